//! A controller that is set up and waits to be started, and its start: caches first, workers last.
//!
//! A controller waits for the caches it declared and for no others, so a permission or a kind that another one lacks
//! does not concern it.

use std::fmt;
use std::sync::Arc;

use windlass_client::{ControllerClients, DeclaredVerbs, RawClient};
use windlass_env::catch_panic_sync;
use windlass_events::Recorder;
use windlass_informer::HandlerHandle;

use crate::consistency::doubts::DoubtResolver;
use crate::consistency::read_your_writes::ReadYourWritesBarrier;
use crate::core::Core;
use crate::core::standing::ControllerPhase;
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

/// What a controller needs from its process in order to run.
#[derive(Clone)]
pub struct ControllerDeps {
    /// Its identity towards the API server.
    pub clients: ControllerClients,
    /// Reads next to the caches, to find out whether a write whose answer was lost took effect.
    pub reader: RawClient,
    /// Where it tells users what happened.
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

    /// The names of the controller.
    pub fn descriptor(&self) -> Descriptor {
        self.core.descriptor
    }

    /// What the controller declared.
    pub fn declaration(&self) -> Declaration {
        self.parts.declared.declaration(self.descriptor(), self.core.gate.caches.watches())
    }

    /// Says, whenever it is asked, whether the caches that this controller needs are complete, and polls answered; if not,
    /// which lack and why. For readiness, from before the start on.
    pub fn caches(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static + use<> {
        let core = Arc::clone(&self.core);
        move || core.lacking().map_or(Ok(()), Err)
    }

    /// A look into this controller, from now until after its end, for whoever answers questions about it.
    pub fn insight(&self) -> ControllerInspector {
        ControllerInspector::new(Arc::clone(&self.core))
    }

    /// What is left of the controller if its start fails, is dropped or never comes.
    pub fn remains(&self) -> Cleanup {
        Cleanup {
            controller: self.core.name(),
            triggers: self.core.keys.triggers.clone(),
            informers: self.parts.sources.iter().map(|own| own.factory.clone()).collect(),
            polls: self.core.polls.tasks.clone(),
        }
    }

    /// How long the controller waits for its caches.
    pub fn cache_sync(&self) -> CacheSync {
        self.parts.cache_sync.unwrap_or_default()
    }

    /// How long to wait for caches, unless the controller itself said.
    pub fn cache_sync_by_default(&mut self, patience: CacheSync) {
        self.parts.cache_sync.get_or_insert(patience);
    }

    /// Starts the controller: joins its handlers to the informers, waits until they have seen what exists, calls
    /// [`Controller::started`](crate::Controller::started), then lets timers, triggers and workers go. Takes as long
    /// as the caches take to sync.
    ///
    /// # Errors
    /// When an informer has been shut down, or caches are not complete in the time that [`CacheSync`] gives: the error
    /// names them and says why. Nothing is left running then, and who sends to the controller's triggers is told.
    ///
    /// # Cancel safety
    /// Dropping it tells everything that it began to end: no handler is told anything more and no worker runs.
    /// [`Cleanup::finish`] waits until all is gone.
    pub async fn start(self, resources: ControllerDeps) -> Result<Workers, SetupError> {
        self.start_after(resources, std::future::ready(())).await
    }

    /// As [`start`](Self::start), but no worker runs before `ready` has resolved. It is first polled when the caches are
    /// complete.
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
        let mut start = StartGuard { remains: self.remains(), handles: Vec::new(), is_over: false };
        let patience = self.cache_sync();
        let Self { core, controller, parts } = self;
        let Parts { declared, metrics, handlers, replays, sources, polls, tasks, cache_sync: _ } = parts;
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
        if let Err(error) = start.synced(&core, &sources, handlers, patience).await {
            start.undo().await;
            return Err(error);
        }
        ready.await;
        if let Err(message) = catch_panic_sync(|| controller.started(&core.wiring.queue)) {
            core.metrics.panics.inc();
            tracing::error!(controller = core.name(), %message, "the start hook panicked");
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
        running.keep(sources.into_iter().map(|own| own.factory));
        Ok(running)
    }
}

impl fmt::Debug for PreparedController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("descriptor", &self.descriptor()).finish_non_exhaustive()
    }
}

/// A start under way. Dropped before it is over, it takes back what it has begun.
struct StartGuard {
    remains: Cleanup,
    handles: Vec<(String, HandlerHandle)>,
    is_over: bool,
}

impl StartGuard {
    /// Has the caches filled, and the handlers told of what is in them.
    async fn synced(
        &mut self,
        core: &Core,
        sources: &[OwnSource],
        handlers: Vec<(String, Attach)>,
        patience: CacheSync,
    ) -> Result<(), SetupError> {
        sources.iter().for_each(OwnSource::start);
        self.join_handlers(&core.wiring, handlers)?;
        let lacking = || {
            core.lacking().unwrap_or_else(|| "handlers have not received the whole initial list".to_owned())
        };
        let wait = CacheWait { env: &core.env, name: core.name(), patience };
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

    /// Takes back what has begun, and waits until it is gone.
    async fn undo(mut self) {
        self.handles.drain(..).for_each(|(_, handle)| handle.remove());
        self.remains.finish().await;
        self.is_over = true;
    }
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        if !self.is_over {
            self.handles.iter().for_each(|(_, handle)| handle.remove());
            self.remains.begin();
        }
    }
}

/// Waits until the caches are complete, every handler has received the initial list, and polls are answered.
async fn all_synced(core: &Core, handles: &[(String, HandlerHandle)]) -> Result<(), SetupError> {
    caches_synced(&core.needed).await?;
    for (kind, handle) in handles {
        if !handle.synced().await {
            return Err(shut_down(kind.clone()));
        }
    }
    core.polls.answered().await;
    Ok(())
}

/// Lets keys from outside in, and watches come and go.
fn open(core: &Core, rules: &DeclaredRules) {
    let Core { wiring, keys, .. } = core;
    for trigger in &keys.triggers {
        trigger.open(wiring.controller, wiring.queue.clone());
    }
    core.watches.open(wiring.clone(), Arc::new(rules.clone()));
}

/// Lets workers go, and what resolves the outcomes of their writes.
fn run(core: &Arc<Core>, workers: Vec<Worker>, replays: Arc<[Replay]>, reader: RawClient) -> Workers {
    core.metrics.max_concurrent.set(i64::try_from(core.policy.workers).unwrap_or(i64::MAX));
    core.phase.stand(ControllerPhase::Working);
    let ReadYourWritesBarrier { env, ledger, caches, .. } = core.gate.clone();
    let mut running = Workers::start(core, workers, replays, DoubtResolver { env, ledger, caches, reader });
    running.follow_undecodable();
    running
}

impl fmt::Debug for ControllerDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resources").finish_non_exhaustive()
    }
}
