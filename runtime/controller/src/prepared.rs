//! A controller that is set up and waits to be started, and its start: caches first, workers last.
//!
//! A controller waits for the caches it declared and for no others, so a permission or a kind that another one lacks
//! does not concern it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_env::{Env, Instant, caught_now};
use windlass_informer::{HandlerHandle, NotSynced};

use crate::caches::{Cache, behind};
use crate::declared::Enforced;
use crate::denials::Denials;
use crate::descriptor::Descriptor;
use crate::doubts::DoubtResolver;
use crate::error::SetupError;
use crate::explain::{Inner, Insight, Standing, Started};
use crate::freshness::Gate;
use crate::history::Asker;
use crate::registration::{Declaration, Reconcile, Resources};
use crate::remains::Remains;
use crate::setup::{CacheSync, Setup};
use crate::stale_skips::StaleSkips;
use crate::steward::{Handover, Steward};
use crate::trigger::Trigger;
use crate::undecodable::Undecodable;
use crate::worker_pool::{Activity, Shared, Worker, Workers};
use crate::writes::SharedLedger;

/// How often the caches that hold up a controller are told of.
const TELL_INTERVAL: Duration = Duration::from_secs(30);

/// A controller that is set up, with its informers requested, and waits to be started.
pub struct Prepared {
    descriptor: Descriptor,
    controller: Arc<dyn Reconcile>,
    setup: Setup,
    /// Whether the start has begun, and with it sources of the controller's own.
    begun: Arc<AtomicBool>,
    insight: Insight,
}

impl Prepared {
    pub(crate) fn new(descriptor: Descriptor, controller: Arc<dyn Reconcile>, setup: Setup) -> Self {
        let begun: Arc<AtomicBool> = Arc::default();
        let insight = insight(descriptor, &setup, Arc::clone(&begun));
        Self { descriptor, controller, setup, begun, insight }
    }

    /// The names of the controller.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// What the controller declared.
    pub fn declaration(&self) -> Declaration {
        let watched = self.setup.caches.all();
        let watches = watched.iter().map(|cache| (cache.kind().clone(), cache.selection().clone())).collect();
        Declaration { descriptor: self.descriptor, rules: self.setup.rules(), watches }
    }

    /// Says, whenever it is asked, whether the caches that this controller needs are complete; if not, which lack and
    /// why. For readiness, from before the start on.
    pub fn caches(&self) -> impl Fn() -> Result<(), NotSynced> + Send + Sync + 'static + use<> {
        // A source of the controller's own starts with the controller: a standby cannot be held to it.
        let (of_a_standby, needed) = (self.setup.caches.all(), self.setup.needed.clone());
        let begun = Arc::clone(&self.begun);
        move || behind(if begun.load(Ordering::Relaxed) { &needed } else { &of_a_standby })
    }

    /// A look into this controller, from now until after its end, for whoever answers questions about it.
    pub fn insight(&self) -> Insight {
        self.insight.clone()
    }

    /// What is left of the controller if its start fails, is dropped or never comes.
    pub fn remains(&self) -> Remains {
        Remains {
            controller: self.descriptor.name,
            triggers: self.setup.triggers.clone(),
            informers: self.setup.sources.iter().map(|own| own.factory.clone()).collect(),
        }
    }

    /// How long the controller waits for its caches.
    pub fn cache_sync(&self) -> CacheSync {
        self.setup.cache_sync.unwrap_or_default()
    }

    /// How long to wait for caches, unless the controller itself said.
    pub fn cache_sync_by_default(&mut self, patience: CacheSync) {
        self.setup.cache_sync.get_or_insert(patience);
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
    /// [`Remains::end`] waits until all is gone.
    pub async fn start(self, resources: Resources) -> Result<Workers, SetupError> {
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
        resources: Resources,
        ready: impl Future<Output = ()> + Send,
    ) -> Result<Workers, SetupError> {
        let mut start = Start { remains: self.remains(), handles: Vec::new(), is_over: false };
        let Self { descriptor, controller, mut setup, begun, insight } = self;
        begun.store(true, Ordering::Relaxed);
        setup.scope = Arc::clone(&resources.scope);
        insight.stand(Standing::WaitingForCaches);
        let wait = Wait {
            env: resources.env.clone(),
            controller: descriptor.name,
            patience: setup.cache_sync.unwrap_or_default(),
            needed: setup.needed.clone(),
        };
        if let Err(error) = start.synced(&mut setup, &wait).await {
            start.undo().await;
            return Err(error);
        }
        ready.await;
        let queue = setup.queue();
        if let Err(message) = caught_now(|| controller.started(&queue)) {
            setup.reconcile_metrics.panics.inc();
            tracing::error!(controller = descriptor.name, %message, "the start hook panicked");
        }
        if let Err(error) = open(&setup) {
            start.undo().await;
            return Err(error);
        }
        start.is_over = true;
        Ok(run(descriptor, controller, setup, &resources, insight))
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("setup", &self.setup).finish_non_exhaustive()
    }
}

/// A start under way. Dropped before it is over, it takes back what it has begun.
struct Start {
    remains: Remains,
    handles: Vec<(String, HandlerHandle)>,
    is_over: bool,
}

impl Start {
    /// Has the caches filled, and the handlers told of what is in them.
    async fn synced(&mut self, setup: &mut Setup, wait: &Wait) -> Result<(), SetupError> {
        for own in &setup.sources {
            let source = Arc::clone(&own.source);
            own.factory.start(Arc::new(move |_: &_, _: &_| Arc::clone(&source)));
        }
        self.join_handlers(setup)?;
        wait.synced(&self.handles).await
    }

    fn join_handlers(&mut self, setup: &mut Setup) -> Result<(), SetupError> {
        let wiring = setup.wiring();
        for (kind, attach) in setup.handlers.drain(..) {
            match attach(&wiring) {
                Ok(handle) => self.handles.push((kind, handle)),
                Err(error) => return Err(SetupError::Watch { kind, message: error.to_string() }),
            }
        }
        Ok(())
    }

    /// Takes back what has begun, and waits until it is gone.
    async fn undo(mut self) {
        self.handles.drain(..).for_each(|(_, handle)| handle.remove());
        self.remains.end().await;
        self.is_over = true;
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        if !self.is_over {
            self.handles.iter().for_each(|(_, handle)| handle.remove());
            self.remains.begin_to_end();
        }
    }
}

/// The wait of a start for its caches.
struct Wait {
    env: Env,
    controller: &'static str,
    patience: CacheSync,
    needed: Vec<Arc<dyn Cache>>,
}

impl Wait {
    /// Waits until the caches are complete and every handler has been told.
    async fn synced(&self, handles: &[(String, HandlerHandle)]) -> Result<(), SetupError> {
        let (controller, begun) = (self.controller, self.env.now());
        let deadline = match self.patience {
            CacheSync::Within(patience) => begun + patience,
            CacheSync::Forever => Instant::NEVER,
        };
        loop {
            let now = self.env.now();
            let turn = deadline.min(now + TELL_INTERVAL).saturating_duration_since(now);
            if let Ok(synced) = self.env.timeout(turn, all_synced(&self.needed, handles)).await {
                return synced;
            }
            let waited = self.env.now().saturating_duration_since(begun);
            let lacking = describe(behind(&self.needed).err());
            if self.env.now() >= deadline {
                return Err(SetupError::NotSynced { waited, lacking });
            }
            tracing::warn!(controller, ?waited, lacking, "waiting for caches");
        }
    }
}

/// What is lacking when no cache is: handlers that are still being told.
fn describe(lacking: Option<NotSynced>) -> String {
    lacking
        .map_or_else(|| "handlers are still being told of the initial list".to_owned(), |it| it.to_string())
}

async fn all_synced(
    needed: &[Arc<dyn Cache>],
    handles: &[(String, HandlerHandle)],
) -> Result<(), SetupError> {
    let ended =
        |kind: String| SetupError::Watch { kind, message: "the informer has been shut down".to_owned() };
    for cache in needed {
        if !cache.synced().await {
            return Err(ended(cache.kind().to_string()));
        }
    }
    for (kind, handle) in handles {
        if !handle.synced().await {
            return Err(ended(kind.clone()));
        }
    }
    Ok(())
}

/// Lets keys from outside in, and watches come and go; all of it, or nothing.
fn open(setup: &Setup) -> Result<(), SetupError> {
    let wiring = setup.wiring();
    for (number, trigger) in setup.triggers.iter().enumerate() {
        if let Err(taken) = trigger.open(wiring.controller, wiring.queue.clone()) {
            setup.triggers[..number].iter().for_each(Trigger::close);
            return Err(SetupError::invalid(taken));
        }
    }
    setup.watches.open(wiring, Arc::new(setup.rules.clone()));
    Ok(())
}

/// Lets workers, timers and own informers go.
fn run(
    descriptor: Descriptor,
    controller: Arc<dyn Reconcile>,
    setup: Setup,
    resources: &Resources,
    insight: Insight,
) -> Workers {
    let shared = Arc::new(share(descriptor, controller, &setup, resources));
    let workers = (0..setup.workers).map(|number| worker(&shared, number, &setup, resources)).collect();
    setup.reconcile_metrics.max_concurrent.set(i64::try_from(setup.workers).unwrap_or(i64::MAX));
    insight.starts(Started {
        ledger: shared.gate.ledger.clone(),
        activity: shared.activity.clone(),
        scope: Arc::clone(&shared.scope),
    });
    let Gate { env, ledger, caches, .. } = shared.gate.clone();
    let resolver = DoubtResolver { env, ledger, caches, reader: resources.reader.clone() };
    let mut running = Workers::start(&shared, workers, resolver, insight);
    running.follow(&shared.undecodable);
    let wiring = setup.wiring();
    for (number, clockwork) in setup.timers.into_iter().enumerate() {
        running.run_timer(number, clockwork, &wiring);
    }
    running.keep(setup.sources.into_iter().map(|own| own.factory));
    running
}

fn share(
    descriptor: Descriptor,
    controller: Arc<dyn Reconcile>,
    setup: &Setup,
    resources: &Resources,
) -> Shared {
    let gate = Gate {
        env: resources.env.clone(),
        ledger: SharedLedger::default(),
        caches: setup.caches.clone(),
        mode: setup.read_your_writes,
    };
    let activity = Activity::new(setup.workers);
    let steward = steward(descriptor, setup, &gate, &activity);
    Shared {
        undecodable: steward.undecodable.clone(),
        steward,
        name: descriptor.name,
        controller,
        queue: setup.queue(),
        stop: CancellationToken::new(),
        env: resources.env.clone(),
        events: resources.events.clone(),
        gate,
        metrics: setup.reconcile_metrics.clone(),
        stale_skips: StaleSkips::new(setup.metrics(), descriptor.name),
        max_retries: setup.max_retries,
        reconcile_timeout: setup.reconcile_timeout,
        quarantine: setup.quarantine.clone(),
        limits: setup.limits.clone(),
        pauses: setup.pauses.clone(),
        scope: Arc::clone(&setup.scope),
        history: setup.history.clone(),
        triggers: setup.triggers.clone(),
        watches: setup.watches.clone(),
        activity,
        denials: Denials::default(),
    }
}

fn steward(descriptor: Descriptor, setup: &Setup, gate: &Gate, activity: &Activity) -> Steward {
    let own = if setup.reconcile_undecodable { Vec::new() } else { setup.own.clone() };
    let wiring = setup.wiring();
    Steward {
        undecodable: Undecodable::new(descriptor.name, wiring.queue.of(Asker::Event), own),
        name: descriptor.name,
        queue: setup.queue(),
        activity: activity.clone(),
        gate: gate.clone(),
        quarantine: setup.quarantine.clone(),
        history: setup.history.clone(),
        limits: setup.limits.clone(),
        triggers: setup.triggers.clone(),
        handover: Arc::new(Handover::default()),
        needed: setup.needed.clone(),
        scope: Arc::clone(&setup.scope),
        aside: Arc::default(),
        replays: setup.replays.clone(),
        wiring,
    }
}

fn worker(shared: &Arc<Shared>, number: usize, setup: &Setup, resources: &Resources) -> Worker {
    let declared = Enforced::new(setup.rules.clone(), shared.name, setup.metrics().clone());
    let clients = resources.clients.clone();
    Worker { shared: Arc::clone(shared), number, clients, declared: Arc::new(declared) }
}

fn insight(descriptor: Descriptor, setup: &Setup, begun: Arc<AtomicBool>) -> Insight {
    let inner = Inner {
        descriptor,
        env: setup.env().clone(),
        queue: setup.queue(),
        history: setup.history.clone(),
        quarantine: setup.quarantine.clone(),
        caches: setup.caches.clone(),
        needed: setup.needed.clone(),
        limits: setup.limits.clone(),
        pauses: setup.pauses.clone(),
        own_kinds: setup.own.iter().map(|cache| cache.kind().clone()).collect(),
        workers: setup.workers,
        begun,
        standing: Mutex::new(Standing::NotStarted),
        started: OnceLock::new(),
    };
    Insight::new(inner)
}
