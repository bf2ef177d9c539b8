//! Setting a controller up: what it watches, what it asks of the API server, and how its queue and workers behave.
//!
//! Everything here is a declaration. Informers are requested from the factory but not started, handlers are kept until
//! the controller starts, and nothing needs a cluster; so the same code that builds a controller also prints its roles.

use std::any::type_name;
use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use windlass_env::{Env, caught_now};
use windlass_informer::{
    Event, HandlerHandle, InformerError, InformerFactory, Selection, SharedInformer, TypedLister,
    VersionSource,
};
use windlass_metrics::{Metrics, ReconcileMetrics};
use windlass_object::{ObjectKey, Representation, ResourceKind, Rule, Scoped, Typed, Verb};
use windlass_workqueue::{Queue, QueueOptions, RateLimiter};

use crate::declared::DeclaredRules;
use crate::descriptor::Descriptor;
use crate::enqueue::keys_of;
use crate::error::SetupError;

/// A Rust type whose objects can be watched: k8s-openapi's, and those that derive `CustomResource`.
pub trait Watchable:
    Resource<DynamicType = (), Scope: Scoped> + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Watchable for K where
    K: Resource<DynamicType = (), Scope: Scoped> + DeserializeOwned + Send + Sync + 'static
{
}

/// Joins a handler to its informer, when the controller starts.
pub(crate) type Attach = Box<dyn FnOnce() -> Result<HandlerHandle, InformerError> + Send>;

/// One cache the controller reads, as read-your-writes sees it.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) kind: ResourceKind,
    pub(crate) selection: Selection,
    pub(crate) source: Arc<dyn VersionSource>,
}

/// What a controller declares about itself while it is being built.
pub struct Setup {
    descriptor: Descriptor,
    env: Env,
    metrics: Metrics,
    factory: InformerFactory,
    queue: Queue<ObjectKey>,
    pub(crate) rules: DeclaredRules,
    pub(crate) handlers: Vec<(String, Attach)>,
    pub(crate) watched: Vec<Watched>,
    pub(crate) reconcile_metrics: ReconcileMetrics,
    pub(crate) workers: usize,
    pub(crate) max_retries: Option<u32>,
    fault: Option<SetupError>,
}

impl Setup {
    /// An empty declaration. Tests and tools may make one; a manager makes one per controller.
    ///
    /// Until told otherwise: one worker, retries for ever, the usual limiter (5 ms doubling to 1000 s per key, and 10
    /// a second with bursts of 100 overall), and the right to create and patch events.
    pub fn new(descriptor: Descriptor, env: Env, metrics: Metrics, factory: InformerFactory) -> Self {
        let queue_metrics = metrics.workqueue(descriptor.queue_name);
        let queue = Queue::new(env.clone(), descriptor.queue_name, QueueOptions::default(), queue_metrics);
        let mut rules = DeclaredRules::default();
        rules.add("", "events", [Verb::Create, Verb::Patch]);
        Self {
            reconcile_metrics: metrics.reconcile(descriptor.name),
            descriptor,
            env,
            metrics,
            factory,
            queue,
            rules,
            handlers: Vec::new(),
            watched: Vec::new(),
            workers: 1,
            max_retries: None,
            fault: None,
        }
    }

    /// Watches every `K`: a cache of them all, and the right to list and watch.
    pub fn watch<K: Watchable>(&mut self) -> Watch<'_, K> {
        self.watch_selected(Selection::default())
    }

    /// Watches the `K` that `selection` leaves. Controllers that select alike share one cache.
    pub fn watch_selected<K: Watchable>(&mut self, selection: Selection) -> Watch<'_, K> {
        self.uses::<K>([Verb::List, Verb::Watch]);
        let representation = Typed::<K>::new();
        let kind = representation.kind();
        let informer = self.factory.informer(representation, selection.clone());
        self.watched.push(Watched { kind: kind.clone(), selection, source: Arc::new(informer.clone()) });
        Watch { setup: self, informer, kind }
    }

    /// Declares that requests with these verbs are made on `K`, beyond what watching it needs. An uncached get is a
    /// use like any other.
    pub fn uses<K: Resource<DynamicType = ()>>(&mut self, verbs: impl IntoIterator<Item = Verb>) {
        self.rules.add(&K::group(&()), &K::plural(&()), verbs);
    }

    /// Declares requests on a subresource of `K`, such as `status` or `scale`.
    pub fn uses_subresource<K>(&mut self, subresource: &str, verbs: impl IntoIterator<Item = Verb>)
    where
        K: Resource<DynamicType = ()>,
    {
        let resource = format!("{}/{subresource}", K::plural(&()));
        self.rules.add(&K::group(&()), &resource, verbs);
    }

    /// Declares requests on something that has no Rust type here. A group or resource of `*` stands for all of them,
    /// for controllers that learn at run time what there is.
    pub fn uses_rule(&mut self, rule: Rule) {
        self.rules.add(&rule.group, &rule.resource, rule.verbs);
    }

    /// The controller's queue, for handlers and hooks that enqueue by themselves.
    pub fn queue(&self) -> Queue<ObjectKey> {
        self.queue.clone()
    }

    /// The clock, timers and randomness of this process.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The manager's metrics, for a controller's own families.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The names this controller goes by.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// How many keys are reconciled at the same time. Default 1: the safest answer, and enough for most.
    pub fn workers(&mut self, count: usize) {
        self.workers = count;
    }

    /// After how many failures in a row a key is dropped until its next change. Default `None`: never.
    pub fn max_retries(&mut self, limit: Option<u32>) {
        self.max_retries = limit;
    }

    /// Replaces the limiter that says how long a failing key waits. The usual one doubles from 5 ms to 1000 s per key.
    pub fn limiter(&mut self, limiter: Box<dyn RateLimiter<ObjectKey>>) {
        self.queue.replace_limiter(limiter);
    }

    /// What was declared so far.
    pub fn rules(&self) -> Vec<Rule> {
        self.rules.rules()
    }

    /// Whether the declaration holds together.
    pub(crate) fn check(&mut self) -> Result<(), SetupError> {
        match self.fault.take() {
            Some(fault) => Err(fault),
            None if self.workers == 0 => Err(SetupError::NoWorkers),
            None => Ok(()),
        }
    }

    /// Keeps the first fault: later ones are often its consequences.
    fn fail(&mut self, fault: SetupError) {
        self.fault.get_or_insert(fault);
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("descriptor", &self.descriptor)
            .field("rules", &self.rules)
            .field("workers", &self.workers)
            .field("max_retries", &self.max_retries)
            .finish_non_exhaustive()
    }
}

/// One watched kind, while it is being wired. Ends with [`Watch::lister`], or is simply dropped when only the events
/// matter.
pub struct Watch<'s, K: Watchable> {
    setup: &'s mut Setup,
    informer: SharedInformer<Typed<K>>,
    kind: ResourceKind,
}

impl<K: Watchable> Watch<'_, K> {
    /// Enqueues the keys that `map` finds in an object whenever it changes. Old and new state are both mapped; a key
    /// is enqueued once per event. A panic in `map` is counted and costs that one event's keys.
    pub fn enqueue(self, map: impl Fn(&K) -> Vec<ObjectKey> + Send + 'static) -> Self {
        self.on_event(move |event, queue| {
            for key in keys_of(event, |object: &Arc<K>| map(object)) {
                queue.add(key);
            }
        })
    }

    /// Calls `handle` with every change, first with one `Added` for each object that exists when the controller
    /// starts. It runs on the informer's thread of events, so it does not wait. A panic is counted.
    pub fn on_event(
        self,
        mut handle: impl FnMut(&Event<Arc<K>>, &Queue<ObjectKey>) + Send + 'static,
    ) -> Self {
        let (name, kind) = (self.setup.descriptor.name, self.kind.clone());
        let (queue, panics) = (self.setup.queue(), self.setup.reconcile_metrics.panics.clone());
        let informer = self.informer.clone();
        let guarded = move |event: &Event<Arc<K>>| {
            if let Err(message) = caught_now(|| handle(event, &queue)) {
                panics.inc();
                tracing::error!(controller = name, kind = %kind.kind, object = %ObjectKey::of(event.object().meta()), %message, "a handler panicked");
            }
        };
        let attach: Attach = Box::new(move || informer.add_handler(name, guarded));
        self.setup.handlers.push((self.kind.to_string(), attach));
        self
    }

    /// Adds an index: `values` says under which values an object is found by [`windlass_informer::Lister::by_index`].
    /// Controllers that add the same function, one that captures nothing, under the same name share the index.
    pub fn index(
        self,
        name: &'static str,
        values: impl Fn(&Arc<K>) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        if let Err(error) = self.informer.add_index(name, values) {
            let kind = self.kind.to_string();
            self.setup.fail(SetupError::Watch { kind, message: error.to_string() });
        }
        self
    }

    /// Reads of the cache. Empty until the manager runs.
    pub fn lister(self) -> TypedLister<K> {
        self.informer.lister()
    }
}

impl<K: Watchable> std::fmt::Debug for Watch<'_, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch<{}>", type_name::<K>())
    }
}
