//! Connects the handlers of a controller to informers and to its queue.

use std::fmt;
use std::sync::Arc;

use windlass_env::catch_panic_sync;
use windlass_informer::{Cause, Event, Handler, HandlerHandle, InformerError, SharedInformer};
use windlass_metrics::IntCounter;
use windlass_object::{HasMetadata, MetadataRef, ObjectKey, ResourceKind};
use windlass_workqueue::Priority;

use crate::consistency::caches::Cache;
use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::history::ObservedEvent;
use crate::enqueue::pause::PauseAnnotation;
use crate::error::SetupError;

/// The declarations of a controller's watches, collected during setup.
#[derive(Default)]
pub(crate) struct DeclaredWatches {
    /// The handlers, each with the kind whose events it receives.
    pub(crate) handlers: Vec<(String, Attach)>,
    pub(crate) replays: Vec<Replay>,
    pub(crate) pauses: Vec<PauseAnnotation>,
    /// The caches of the objects that the controller's keys name.
    pub(crate) primary: Vec<Cache>,
    /// Whether there is no queue, as for a runnable.
    pub(crate) queueless: bool,
    fault: Option<SetupError>,
}

impl DeclaredWatches {
    /// Records a fault. The first is kept, because later faults are often its consequences.
    pub(crate) fn fail(&mut self, fault: SetupError) {
        self.fault.get_or_insert(fault);
    }

    /// Records a fault if setup calls a method that needs a queue and there is none.
    pub(crate) fn needs_queue(&mut self, call: &'static str) {
        if self.queueless {
            self.fail(SetupError::NoQueue { call });
        }
    }

    pub(crate) fn take_fault(&mut self) -> Option<SetupError> {
        self.fault.take()
    }
}

/// The context to which handlers are attached when their controller starts.
#[derive(Clone, Debug)]
pub(crate) struct HandlerContext {
    pub(crate) controller: &'static str,
    pub(crate) queue: Enqueuer,
    /// The priority of background keys.
    pub(crate) background: Priority,
    pub(crate) panics: IntCounter,
    pub(crate) primary: PrimaryCaches,
}

/// The caches of the objects that a controller's keys name.
#[derive(Clone)]
pub(crate) struct PrimaryCaches(pub(crate) Arc<[Cache]>);

impl fmt::Debug for PrimaryCaches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|cache| cache.kind())).finish()
    }
}

impl HandlerContext {
    /// Counts and logs a panic of user code.
    pub(crate) fn panicked(&self, kind: &str, object: MetadataRef<'_>, message: &str) {
        let (controller, object) = (self.controller, object.key());
        self.panics.inc();
        tracing::error!(controller, %kind, %object, %message, "handler panicked");
    }
}

/// Attaches a handler to its informer.
pub(crate) type Attach = Box<dyn FnOnce(&HandlerContext) -> Result<HandlerHandle, InformerError> + Send>;

/// Enqueues the keys of cached objects that the filter selects, as if the objects had just been listed.
pub(crate) type Replay = Arc<dyn Fn(&HandlerContext, &dyn Fn(&ObjectKey) -> bool) + Send + Sync>;

/// Attaches `handle` to `informer`. Panics of `handle` are caught.
pub(crate) fn attach<T: HasMetadata>(
    informer: &SharedInformer<T>,
    wiring: &HandlerContext,
    handle: impl FnMut(&Event<Arc<T>>, &Enqueuer) + Send + 'static,
) -> Result<HandlerHandle, InformerError> {
    informer.add_handler(wiring.controller, Guarded::new(informer.kind(), wiring, handle))
}

/// A user handler whose panics are caught.
pub(crate) struct Guarded<F> {
    wiring: HandlerContext,
    kind: String,
    observed: Arc<ObservedEvent>,
    queue: Enqueuer,
    /// The same queue for background keys. Made once, because a copy for each event takes longer than many handlers.
    background: Enqueuer,
    handle: F,
}

impl<F> Guarded<F> {
    pub(crate) fn new(kind: &ResourceKind, wiring: &HandlerContext, handle: F) -> Self {
        let observed = ObservedEvent::of(&kind.to_string());
        let queue = wiring.queue.for_watch(Arc::clone(&observed));
        let background = queue.for_background().with_priority(wiring.background);
        let kind = kind.kind.clone().into_owned();
        Self { wiring: wiring.clone(), kind, observed, queue, background, handle }
    }
}

impl<O, F> Handler<Arc<O>> for Guarded<F>
where
    O: HasMetadata,
    F: FnMut(&Event<Arc<O>>, &Enqueuer) + Send + 'static,
{
    fn handle(&mut self, event: &Event<Arc<O>>) {
        let queue = match event.cause() {
            Cause::InitialList | Cause::Resync => &self.background,
            // A relist or a changed selection reveals changes that the watch has missed.
            Cause::Watch | Cause::Relist | Cause::Deselected => &self.queue,
        };
        self.observed.begin_event(event.object().metadata(), event);
        if let Err(message) = catch_panic_sync(|| (self.handle)(event, queue)) {
            self.wiring.panicked(&self.kind, event.object().metadata(), &message);
        }
        self.observed.end_event();
    }

    /// Enqueues the keys of the controller's own objects and all keys of its history. A reconcile can have acted on an
    /// object that no mapper receives.
    fn missed(&mut self) {
        let queue = self.queue.with_priority(self.wiring.background);
        self.wiring.primary.0.iter().for_each(|cache| queue.add_all(cache.keys()));
        queue.add_known();
    }
}
