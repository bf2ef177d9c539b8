//! The start of a controller that is set up: caches first, workers last.
//!
//! A controller waits only for the caches it declared, so a permission or a kind that another controller is missing
//! does not affect it.

use std::fmt;
use std::sync::Arc;

use windlass_client::{ControllerClients, DeclaredVerbs, RawClient};
use windlass_env::catch_panic_sync;
use windlass_events::Recorder;
use windlass_informer::HandlerHandle;

use crate::consistency::read_your_writes::ReadYourWritesBarrier;
use crate::consistency::unknown_outcomes::OutcomeResolver;
use crate::core::Core;
use crate::core::lifecycle::ControllerPhase;
use crate::declared::{Declaration, DeclaredRules, EnforcedRules};
use crate::descriptor::Descriptor;
use crate::enqueue::source::TaskContext;
use crate::enqueue::wiring::{Attach, HandlerContext, Replay};
use crate::error::SetupError;
use crate::explain::ControllerInspector;
use crate::run::cache_wait::{CacheWait, caches_synced, shut_down};
use crate::run::cleanup::Cleanup;
use crate::run::reconcile::Reconcile;
use crate::run::worker::Worker;
use crate::run::workers::Workers;
use crate::setup::{CacheSync, OwnSource, Parts};

/// The resources of the process that a controller needs to run.
#[derive(Clone)]
pub struct ControllerDeps {
    /// The clients with its identity.
    pub clients: ControllerClients,
    /// A client for uncached reads, which determine whether a write without a response took effect.
    pub reader: RawClient,
    /// The recorder of Kubernetes events.
    pub events: Recorder,
}

/// A controller that is set up, with its informers requested, and waits to be started.
pub struct PreparedController {
    core: Arc<Core>,
    controller: Arc<dyn Reconcile>,
    parts: Parts,
}

impl PreparedController {
    pub(crate) fn new(controller: Arc<dyn Reconcile>, core: Core, parts: Parts) -> Self {
        Self { core: Arc::new(core), controller, parts }
    }

    /// Returns the names of the controller.
    pub fn descriptor(&self) -> Descriptor {
        self.core.descriptor
    }

    /// Returns the declarations of the controller.
    pub fn declaration(&self) -> Declaration {
        self.parts.declared.declaration(self.descriptor(), self.core.barrier.caches.watches())
    }

    /// Returns a check that reports whether the caches of this controller are complete and its polls have responded; if
    /// not, it returns the missing ones and the causes. For readiness, usable before the start.
    pub fn caches(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static + use<> {
        let core = Arc::clone(&self.core);
        move || core.missing_caches().map_or(Ok(()), Err)
    }

    /// Returns an inspector of this controller, which works from now until after its end.
    pub fn inspector(&self) -> ControllerInspector {
        ControllerInspector::new(Arc::clone(&self.core))
    }

    /// Returns a handle that cleans up if the start fails, is dropped or never happens.
    pub fn cleanup(&self) -> Cleanup {
        Cleanup {
            controller: self.core.name(),
            triggers: self.core.keys.triggers.clone(),
            informers: self.parts.sources.iter().map(|own| own.factory.clone()).collect(),
            polls: self.core.polls.tasks.clone(),
        }
    }

    /// Returns the time limit for the caches.
    pub fn cache_sync(&self) -> CacheSync {
        self.parts.cache_sync.unwrap_or_default()
    }

    /// Sets the time limit for caches, unless the controller has set one.
    pub fn cache_sync_by_default(&mut self, timeout: CacheSync) {
        self.parts.cache_sync.get_or_insert(timeout);
    }

    /// Starts the controller: attaches its handlers to the informers, waits until they have received all existing
    /// objects, calls [`Controller::started`](crate::Controller::started), then starts timers, triggers and workers.
    /// Completes once the caches are synced.
    ///
    /// # Errors
    /// If an informer has stopped, or caches are not complete within [`CacheSync`]: the error names them and the
    /// causes. Everything is then stopped, and triggers of the controller return errors to their senders.
    ///
    /// # Cancel safety
    /// Dropping it sends the stop signal to everything it started: no handler receives another event and no worker
    /// runs. [`Cleanup::finish`] waits until all parts have stopped.
    pub async fn start(self, resources: ControllerDeps) -> Result<Workers, SetupError> {
        self.start_after(resources, std::future::ready(())).await
    }

    /// Starts the controller like [`start`](Self::start), but no worker runs before `ready` has resolved. `ready` is
    /// first polled when the caches are complete.
    ///
    /// # Errors
    /// See [`start`](Self::start).
    ///
    /// # Cancel safety
    /// See [`start`](Self::start).
    pub async fn start_after(
        self,
        resources: ControllerDeps,
        ready: impl Future<Output = ()> + Send,
    ) -> Result<Workers, SetupError> {
        let mut start = StartGuard { cleanup: self.cleanup(), handles: Vec::new(), is_over: false };
        let timeout = self.cache_sync();
        let Self { core, controller, parts } = self;
        let Parts { declared, metrics, handlers, replays, sources, polls, tasks, cache_sync: _ } = parts;
        let has_sources =
            !(handlers.is_empty() && polls.is_empty() && tasks.is_empty() && core.keys.triggers.is_empty());
        let rules = declared.all;
        let declared: Arc<dyn DeclaredVerbs> =
            Arc::new(EnforcedRules::new(rules.clone(), core.name(), metrics));
        let (env, clients) = (core.env.clone(), resources.clients.clone());
        let cx = TaskContext::new(env, clients, Arc::clone(&declared), core.stop.clone());
        core.phase.begin();
        for poll in polls {
            let (name, run) = core.run_source(poll, &cx);
            drop(core.polls.tasks.spawn(name, run));
        }
        if let Err(error) = start.synced(&core, &sources, handlers, timeout).await {
            start.undo().await;
            return Err(error);
        }
        ready.await;
        if let Err(message) = catch_panic_sync(|| controller.started(&core.handler_context.queue)) {
            core.metrics.panics.inc();
            tracing::error!(controller = core.name(), %message, "start hook panicked");
        }
        if !has_sources && core.keys.queue.has_no_keys() {
            tracing::warn!(
                controller = core.name(),
                "nothing enqueues keys until a watch is added; declare `primary`, or `enqueue` on a watch, in `setup`"
            );
        }
        open(&core, &rules);
        start.is_over = true;
        let worker = |number| Worker {
            core: Arc::clone(&core),
            controller: Arc::clone(&controller),
            number,
            clients: resources.clients.clone(),
            declared: Arc::clone(&declared),
            events: resources.events.clone(),
        };
        let workers = (0..core.policy.workers).map(worker).collect();
        let mut running = run(&core, workers, replays, resources.reader);
        running.run_sources(tasks, &cx);
        running.attach_informers(sources.into_iter().map(|own| own.factory));
        Ok(running)
    }
}

impl fmt::Debug for PreparedController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedController").field("descriptor", &self.descriptor()).finish_non_exhaustive()
    }
}

/// A start in progress. Dropping it before its end reverts it.
struct StartGuard {
    cleanup: Cleanup,
    handles: Vec<(String, HandlerHandle)>,
    is_over: bool,
}

impl StartGuard {
    /// Waits until the caches are filled and the handlers have received their objects.
    async fn synced(
        &mut self,
        core: &Core,
        sources: &[OwnSource],
        handlers: Vec<(String, Attach)>,
        timeout: CacheSync,
    ) -> Result<(), SetupError> {
        sources.iter().for_each(OwnSource::start);
        self.join_handlers(&core.handler_context, handlers)?;
        let lacking = || {
            core.missing_caches()
                .unwrap_or_else(|| "handlers have not received the whole initial list".to_owned())
        };
        let wait = CacheWait { env: &core.env, name: core.name(), limit: timeout };
        wait.until(|| all_synced(core, &self.handles), lacking).await
    }

    fn join_handlers(
        &mut self,
        wiring: &HandlerContext,
        handlers: Vec<(String, Attach)>,
    ) -> Result<(), SetupError> {
        for (kind, attach) in handlers {
            match attach(wiring) {
                Ok(handle) => self.handles.push((kind, handle)),
                Err(error) => return Err(SetupError::Watch { kind, message: error.to_string() }),
            }
        }
        Ok(())
    }

    /// Reverts the start, and waits until all parts have stopped.
    async fn undo(mut self) {
        self.handles.drain(..).for_each(|(_, handle)| handle.remove());
        self.cleanup.finish().await;
        self.is_over = true;
    }
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        if !self.is_over {
            self.handles.iter().for_each(|(_, handle)| handle.remove());
            self.cleanup.begin();
        }
    }
}

/// Waits until the caches are complete, every handler has received the initial list, and the polls have responded.
async fn all_synced(core: &Core, handles: &[(String, HandlerHandle)]) -> Result<(), SetupError> {
    caches_synced(&core.start_caches).await?;
    for (kind, handle) in handles {
        if !handle.synced().await {
            return Err(shut_down(kind.clone()));
        }
    }
    core.polls.wait_answered().await;
    Ok(())
}

/// Opens the triggers and enables dynamic watches.
fn open(core: &Core, rules: &DeclaredRules) {
    let Core { handler_context: wiring, keys, .. } = core;
    for trigger in &keys.triggers {
        trigger.open(wiring.controller, wiring.queue.clone());
    }
    core.watches.open(wiring.clone(), Arc::new(rules.clone()));
}

/// Starts the workers and the resolver of unknown write outcomes.
fn run(core: &Arc<Core>, workers: Vec<Worker>, replays: Arc<[Replay]>, reader: RawClient) -> Workers {
    core.metrics.max_concurrent.set(i64::try_from(core.policy.workers).unwrap_or(i64::MAX));
    core.phase.set(ControllerPhase::Working);
    let ReadYourWritesBarrier { env, tracker, caches, .. } = core.barrier.clone();
    let mut running =
        Workers::start(core, workers, replays, OutcomeResolver { env, tracker, caches, reader });
    running.follow_undecodable();
    running
}

impl fmt::Debug for ControllerDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerDeps").finish_non_exhaustive()
    }
}
