//! Setting a controller or a runnable up: what it watches, what it asks of the API server, and how its queue and workers
//! behave.
//!
//! Everything here is a declaration. Informers are requested from the factory but not started, handlers are kept until
//! the controller starts, and nothing needs a cluster; so the same code that builds a controller also prints its roles.
//! A [`Runnable`](crate::Runnable) has no queue: in its setup a method that needs one is an error.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, Stream, StreamExt as _};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{CustomResourceExt, Resource};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use windlass_env::{Env, TaskGroup};
use windlass_informer::{FactoryOptions, InformerFactory, ListerWatcher};
use windlass_metrics::{Metrics, ReconcileMetrics};
use windlass_object::{
    Dynamic, Metadata, ObjectKey, Representation, ResourceKind, Rule, Scoped, Typed, Verb,
};
use windlass_sharding::{KeyOwnership, OwnsAllKeys};
use windlass_workqueue::{Priority, Queue, RateLimiter};

use crate::consistency::caches::{Cache, Caches};
use crate::consistency::read_your_writes::{ReadYourWrites, ReadYourWritesBarrier};
use crate::consistency::stale_skips::StaleSkips;
use crate::consistency::write_tracker::SharedWriteTracker;
use crate::core::activity::WorkerActivity;
use crate::core::denials::DenialLog;
use crate::core::{Core, Phase, Policy};
use crate::declared::Declared;
use crate::descriptor::{Descriptor, RunsOn};
use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::history::{EnqueueReason, History};
use crate::enqueue::keys::Keys;
use crate::enqueue::limits::ConcurrencyLimit;
use crate::enqueue::poll::{Fetch, Poll, Polled, Polls, Value};
use crate::enqueue::quarantine::Quarantine;
use crate::enqueue::source::{Call, Source, TaskContext};
use crate::enqueue::stream;
use crate::enqueue::timer::{self, Timer};
use crate::enqueue::trigger::{Trigger, Triggers};
use crate::enqueue::undecodable::Undecodable;
use crate::enqueue::watch::{Watch, Watchable};
use crate::enqueue::watches::DynamicWatches;
use crate::enqueue::wiring::{Attach, HandlerContext, OwnCaches, Replay, Wired};
use crate::error::{BoxError, SetupError};

/// How long a controller waits at its start for the caches it needs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CacheSync {
    /// So long; then it fails with an error that names the caches that lack and why.
    Within(Duration),
    /// Until they are there. A role that is granted, or a kind that is installed, an hour later is then picked up
    /// without a restart; whoever runs the controller must tell meanwhile why it does not work.
    Forever,
}

impl Default for CacheSync {
    /// Two minutes, as controller-runtime has it.
    fn default() -> Self {
        CacheSync::Within(Duration::from_secs(120))
    }
}

/// An informer that belongs to one controller or runnable, with a source of its choice.
pub(crate) struct OwnSource {
    pub(crate) factory: InformerFactory,
    pub(crate) source: Arc<dyn ListerWatcher>,
}

impl OwnSource {
    /// Has the informer list and watch.
    pub(crate) fn start(&self) {
        let source = Arc::clone(&self.source);
        self.factory.start(Arc::new(move |_: &_, _: &_| Arc::clone(&source)));
    }
}

/// The process that a controller or a runnable is set up in.
#[derive(Clone)]
pub struct Host {
    /// Where tasks live: clock, timers and randomness.
    pub env: Env,
    /// The metrics of the process.
    pub metrics: Metrics,
    /// Where informers are requested.
    pub factory: InformerFactory,
    /// Which keys are reconciled here, where several replicas share them.
    pub ownership: Arc<dyn KeyOwnership>,
    /// By which code outside of controllers sends keys to them.
    pub triggers: Triggers,
}

impl Host {
    /// A process that reconciles every key.
    pub fn new(env: Env, metrics: Metrics, factory: InformerFactory) -> Self {
        Self { env, metrics, factory, ownership: Arc::new(OwnsAllKeys), triggers: Triggers::default() }
    }
}

/// What a controller or a runnable declares about itself while it is being built.
pub struct Setup {
    descriptor: Descriptor,
    host: Host,
    queue: Queue<ObjectKey>,
    declared: Declared,
    wired: Wired,
    /// What read-your-writes asks.
    caches: Caches,
    /// What the start waits for.
    needed: Vec<Cache>,
    sources: Vec<OwnSource>,
    watches: DynamicWatches,
    triggers: Vec<Trigger>,
    /// What is asked from the start on.
    polls: Vec<(Arc<Poll>, Source)>,
    /// What runs next to the workers.
    tasks: Vec<Source>,
    limits: Vec<ConcurrencyLimit>,
    reconcile_undecodable: bool,
    history: History,
    quarantine: Quarantine,
    reconcile_metrics: ReconcileMetrics,
    policy: Policy,
    read_your_writes: ReadYourWrites,
    cache_sync: Option<CacheSync>,
    background: Priority,
}

/// What the start of a controller takes, next to its core.
pub(crate) struct Parts {
    pub(crate) declared: Declared,
    pub(crate) metrics: Metrics,
    pub(crate) handlers: Vec<(String, Attach)>,
    /// Of the caches that hold the objects of every shard.
    pub(crate) replays: Arc<[Replay]>,
    pub(crate) sources: Vec<OwnSource>,
    pub(crate) polls: Vec<Source>,
    pub(crate) tasks: Vec<Source>,
    pub(crate) cache_sync: Option<CacheSync>,
}

/// What a runnable takes from its setup.
pub(crate) struct RunnableParts {
    pub(crate) descriptor: Descriptor,
    pub(crate) host: Host,
    pub(crate) declared: Declared,
    /// The caches of the API server's objects.
    pub(crate) caches: Caches,
    /// What the start waits for.
    pub(crate) needed: Vec<Cache>,
    pub(crate) sources: Vec<OwnSource>,
    pub(crate) cache_sync: Option<CacheSync>,
}

impl Setup {
    /// An empty declaration. Tests and tools may make one; a manager makes one per controller.
    ///
    /// Until told otherwise: one worker, retries forever, the usual limiter (5 ms doubling to 1000 s per key, and 10
    /// a second with bursts of 100 overall), namespaces take turns, no time limit on a reconcile, quarantine after 15
    /// panics in a row, and the right to create and patch events.
    pub fn new(descriptor: Descriptor, host: Host) -> Self {
        let metrics = host.metrics.clone();
        Self::measured(descriptor, host, &metrics)
    }

    /// An empty declaration of a runnable.
    pub(crate) fn of_runnable(descriptor: Descriptor, host: Host) -> Self {
        // Metrics that are never gathered, because there is no queue to measure.
        let mut setup = Self::measured(descriptor, host, &Metrics::new());
        setup.wired.queueless = true;
        setup
    }

    /// An empty declaration whose queue has its metrics there.
    fn measured(descriptor: Descriptor, host: Host, metrics: &Metrics) -> Self {
        let Host { env, factory, .. } = &host;
        let queue_metrics = metrics.workqueue(descriptor.queue_name);
        let queue = Queue::new(env.clone(), descriptor.queue_name, queue_metrics);
        queue.fair_by(|key: &ObjectKey| key.namespace().unwrap_or_default());
        let mut declared = Declared::default();
        declared.uses_rule(&Rule::new("", "events", [Verb::Create, Verb::Patch]));
        let reconcile_metrics = metrics.reconcile(descriptor.name);
        let caches = Caches::default();
        Self {
            watches: DynamicWatches::new(factory.clone(), caches.clone(), descriptor),
            quarantine: Quarantine::new(Some(reconcile_metrics.quarantined.clone())),
            history: History::new(env.clone(), descriptor.queue_name),
            policy: Policy { workers: 1, max_retries: None, reconcile_timeout: None },
            reconcile_metrics,
            descriptor,
            host,
            queue,
            declared,
            caches,
            wired: Wired::default(),
            needed: Vec::new(),
            sources: Vec::new(),
            triggers: Vec::new(),
            polls: Vec::new(),
            tasks: Vec::new(),
            limits: Vec::new(),
            reconcile_undecodable: false,
            read_your_writes: ReadYourWrites::default(),
            cache_sync: None,
            background: Priority::LOW,
        }
    }
}

/// What is watched.
impl Setup {
    /// Watches every `K`, whose names are the keys of this controller: the same as [`watch`](Self::watch) and
    /// [`Watch::primary`].
    pub fn primary<K: Watchable>(&mut self) -> Watch<'_, K> {
        self.watch().primary()
    }

    /// Watches every `K`: a cache of them all, and the right to list and watch. In a process that holds some shards, of
    /// those in them. [`Watch::selecting`] narrows it.
    pub fn watch<K: Watchable>(&mut self) -> Watch<'_, K> {
        self.watch_as(Typed::new())
    }

    /// Watches every object of a kind known only at run time.
    pub fn watch_dynamic(&mut self, kind: ResourceKind) -> Watch<'_, DynamicObject> {
        self.watch_as(Dynamic::new(kind))
    }

    /// Watches the metadata of every object of a kind, which is all that is sent and kept.
    pub fn watch_metadata(&mut self, kind: ResourceKind) -> Watch<'_, PartialObjectMeta> {
        self.watch_as(Metadata::new(kind))
    }

    /// Watches objects that are decoded as `representation` says. [`watch`](Self::watch), [`watch_dynamic`](Self::watch_dynamic)
    /// and [`watch_metadata`](Self::watch_metadata) are this one.
    pub fn watch_as<R: Representation>(&mut self, representation: R) -> Watch<'_, R::Object> {
        let kind = representation.kind();
        self.declared.watch(&kind);
        let Self { descriptor, host, needed, caches, wired, .. } = self;
        let make = move |selection| {
            let selection = descriptor.of_shards(selection);
            let informer = host.factory.informer(representation, selection);
            needed.push(Cache::of(informer.erased()));
            caches.add(Cache::of(informer.erased()));
            informer
        };
        Watch::new(wired, Box::new(make))
    }

    /// Watches what `source` brings, which may be anything but the API server. Nothing is declared for it; its cache
    /// starts, syncs and stops with the controller, and read-your-writes does not wait for it.
    pub fn watch_from<R: Representation>(
        &mut self,
        source: Arc<dyn ListerWatcher>,
        representation: R,
    ) -> Watch<'_, R::Object> {
        let Self { descriptor, host, needed, sources, wired, .. } = self;
        let make = move |selection| {
            let name = format!("{} source {}", descriptor.name, sources.len());
            let options = FactoryOptions { name, ..FactoryOptions::default() };
            let factory = InformerFactory::new(host.env.clone(), host.metrics.clone(), options);
            let informer = factory.informer(representation, selection);
            needed.push(Cache::of(informer.erased()));
            sources.push(OwnSource { factory, source });
            informer
        };
        Watch::new(wired, Box::new(make))
    }

    /// Watches that are added and removed while the controller runs. [`Context::watches`](crate::Context::watches)
    /// gives the same to a reconcile.
    pub fn watches(&self) -> DynamicWatches {
        self.watches.clone()
    }

    /// Declares a trigger: a handle by which code outside of this controller sends keys to it, at most `bound` of which
    /// wait at a time. It is the same one as [`Host::triggers`] has under the name of this controller and `name`.
    pub fn trigger(&mut self, name: &'static str, bound: usize) -> Trigger {
        self.needs_queue("trigger");
        let trigger = self.host.triggers.get(self.descriptor.name, name);
        trigger.declare(bound);
        self.triggers.push(trigger.clone());
        trigger
    }

    /// Enqueues the keys that `keys` names whenever `timer` goes off, while the controller runs. A panic in `keys` is
    /// counted and costs that one turn.
    pub fn every<I>(&mut self, timer: Timer, mut keys: impl FnMut() -> I + Send + 'static)
    where
        I: IntoIterator<Item = ObjectKey>,
    {
        self.needs_queue("every");
        self.check_timer(timer);
        let keys: timer::Keys = Box::new(move || keys().into_iter().collect());
        let name = format!("timer {}", self.tasks.len());
        self.tasks.push(Source::new(name, move |means| timer::run(timer, keys, means)));
    }

    /// Asks a system that does not tell when something changes: `fetch` returns the value of every key that it has,
    /// at the start of the controller and then in every period of `timer`. Keys whose value appeared, changed or
    /// vanished are queued; the last answer is a cache.
    ///
    /// Like a cache of a watch it is waited for at the [start](Self::cache_sync). An answer that is an error or a panic is
    /// logged and asked for again after a back-off from 1 s to the period; the last answer stays until then. `fetch` has
    /// no time limit but its own.
    ///
    /// `name` is unique in the controller; it shows in the log and in `explain`.
    ///
    /// # Examples
    /// ```
    /// # use std::collections::BTreeMap;
    /// # use std::time::Duration;
    /// # use windlass_controller::{Polled, Setup, Timer};
    /// # use windlass_object::ObjectKey;
    /// # #[derive(Clone)] struct Inventory;
    /// # impl Inventory {
    /// #     async fn racks(self) -> Result<BTreeMap<ObjectKey, String>, std::io::Error> { Ok(BTreeMap::new()) }
    /// # }
    /// # fn declare(setup: &mut Setup, inventory: &Inventory) -> Polled<String> {
    /// let (minute, inventory) = (Timer::every(Duration::from_secs(60)), inventory.clone());
    /// setup.poll("inventory", minute, move |_| inventory.clone().racks())
    /// # }
    /// ```
    pub fn poll<T, F, A, E>(
        &mut self,
        name: &'static str,
        timer: Timer,
        fetch: impl Fn(TaskContext) -> F + Send + Sync + 'static,
    ) -> Polled<T>
    where
        T: PartialEq + Send + Sync + 'static,
        F: Future<Output = Result<A, E>> + Send + 'static,
        A: IntoIterator<Item = (ObjectKey, T)>,
        E: Into<BoxError>,
    {
        let erased = |(key, value): (ObjectKey, T)| (key, Arc::new(value) as Value);
        let fetch: Fetch = Arc::new(move |cx| {
            let answer = fetch(cx);
            Box::pin(async move { Ok(answer.await.map_err(Into::into)?.into_iter().map(erased).collect()) })
        });
        let poll = Poll::new::<T>(name);
        self.add_poll(name, timer, Arc::clone(&poll), fetch);
        Polled::new(poll)
    }

    fn add_poll(&mut self, name: &'static str, timer: Timer, poll: Arc<Poll>, fetch: Fetch) {
        self.needs_queue("poll");
        self.check_timer(timer);
        let asks = Arc::clone(&poll);
        let name = self.named("poll", name);
        let source = Source::new(name, move |means| asks.run(timer, fetch, means));
        self.polls.push((Arc::clone(&poll), source));
        self.wired.replays.push(Arc::new(move |wiring, wanted| {
            let queue = wiring.queue.of(EnqueueReason::Poll).for_background().at(wiring.background);
            queue.add_all(poll.keys_joining(wanted));
        }));
    }

    /// Enqueues the keys of a stream, such as a subscription to a message queue, while the controller runs. A stream that
    /// ends or panics is opened again after a back-off, from 1 s to a minute.
    ///
    /// `name` is unique in the controller; it shows in the log.
    pub fn stream<S>(&mut self, name: &'static str, open: impl Fn(TaskContext) -> S + Send + Sync + 'static)
    where
        S: Stream<Item = ObjectKey> + Send + 'static,
    {
        self.needs_queue("stream");
        let open: Call<BoxStream<'static, ObjectKey>> = Arc::new(move |cx| open(cx).boxed());
        let name = self.named("stream", name);
        self.tasks.push(Source::new(name, move |means| stream::follow(open, means)));
    }

    /// The name of a task. Two of one name have the setup fail.
    fn named(&mut self, what: &str, name: &str) -> String {
        let name = format!("{what} {name}");
        let mut others = self.tasks.iter().chain(self.polls.iter().map(|(_, source)| source));
        if others.any(|other| other.name == name) {
            let fault = format!("the {name} is declared twice: give each a name of its own");
            self.wired.fail(SetupError::invalid(fault));
        }
        name
    }

    fn check_timer(&mut self, timer: Timer) {
        if timer.is_impossible() {
            self.wired.fail(SetupError::Timer);
        }
    }
}

/// What is asked of the API server.
impl Setup {
    /// Has the setup fail. The first fault counts.
    pub(crate) fn fail(&mut self, fault: SetupError) {
        self.wired.fail(fault);
    }

    /// Has the setup of a runnable fail: it calls a method that is about the queue.
    pub(crate) fn needs_queue(&mut self, call: &'static str) {
        self.wired.needs_queue(call);
    }

    /// For writers: where their rules are declared.
    pub(crate) fn declared(&mut self) -> &mut Declared {
        &mut self.declared
    }

    /// Declares that requests with these verbs are made on `K`, beyond what watching it needs. An uncached get is a
    /// use like any other. Writes are granted to a [`writer`](Self::writer).
    pub fn uses<K: Resource<DynamicType = (), Scope: Scoped>>(
        &mut self,
        verbs: impl IntoIterator<Item = Verb>,
    ) {
        let verbs: Vec<Verb> = verbs.into_iter().collect();
        self.declared.uses(&ResourceKind::of::<K>(), "", &verbs);
    }

    /// Declares requests on something that has no Rust type here. A group or resource of `*` stands for all of them,
    /// for controllers that learn at run time what there is. Where roles are limited to namespaces, it is taken for a
    /// resource with namespaces.
    pub fn uses_rule(&mut self, rule: Rule) {
        self.declared.uses_rule(&rule);
    }

    /// Declares that this binary ships the definition of `K`: manifests contain it.
    pub fn crd<K: CustomResourceExt>(&mut self) {
        self.declared.ships(K::crd());
    }

    /// What was declared so far.
    pub fn rules(&self) -> Vec<Rule> {
        self.declared.all.rules()
    }
}

/// How the queue and the workers behave.
impl Setup {
    /// How many keys are reconciled at the same time. Default 1: the safest answer, and enough for most.
    pub fn workers(&mut self, count: usize) {
        self.needs_queue("workers");
        self.policy.workers = count;
    }

    /// At most `limit` keys of a class are reconciled at the same time: `class` says to which one a key belongs, such
    /// as its namespace, or its kind where a controller handles several; `None` is never limited. A key of a full
    /// class makes way for others. May be said more than once: then every limit holds.
    pub fn limit_concurrency(
        &mut self,
        limit: usize,
        class: impl Fn(&ObjectKey) -> Option<String> + Send + Sync + 'static,
    ) {
        self.needs_queue("at_most");
        self.limits.push(ConcurrencyLimit::new(limit, class));
    }

    /// How long one reconcile may take. Then it is dropped at the await where it is, counted, and its key backed off
    /// like one that failed. The outcome of writes it had in flight is unknown, and the key waits until it is known.
    /// Default `None`, as upstream: every single request has its own deadline.
    pub fn reconcile_timeout(&mut self, limit: Option<Duration>) {
        self.needs_queue("reconcile_timeout");
        self.policy.reconcile_timeout = limit;
    }

    /// After how many failures in a row a key is dropped until its next change. Default `None`: never.
    pub fn max_retries(&mut self, limit: Option<u32>) {
        self.needs_queue("max_retries");
        self.policy.max_retries = limit;
    }

    /// After how many panics in a row a key rests until its next change. Default 15, about three minutes of back-off.
    /// With `None` a panic is no more than a failure that never uses up its retries: it is tried again forever.
    pub fn quarantine_after(&mut self, panics: Option<u32>) {
        self.needs_queue("quarantine_after");
        self.quarantine.limit(panics);
    }

    /// Whether keys are reconciled while their own object exists and cannot be decoded. Default `false`: such a key waits
    /// until its object is readable or deleted, and `explain` says why. With `true`,
    /// [`Lister::get`](windlass_informer::Lister::get) returns an error for the object, and an annotation of
    /// [`Watch::paused_by`] cannot be seen.
    ///
    /// If the keys name objects of several watches, a key waits while any object of its name cannot be decoded.
    ///
    /// An object is a key's own if its watch is [`primary`](Watch::primary) or has
    /// [`paused_by`](Watch::paused_by).
    pub fn reconcile_undecodable(&mut self, yes: bool) {
        self.needs_queue("reconcile_undecodable");
        self.reconcile_undecodable = yes;
    }

    /// How many keys are remembered that nothing is the matter with, for whoever asks what became of them
    /// ([`Insight::explain`](crate::host::Insight::explain)): the most recent ones. Default 10,000, for about three megabytes.
    /// Those that are queued, delayed, running, failing or in quarantine are remembered in any case.
    pub fn history_limit(&mut self, keys: usize) {
        self.needs_queue("remember");
        self.history.limit(keys);
    }

    /// How this controller comes to read its own writes. Default [`ReadYourWrites::Requeue`].
    pub fn read_your_writes(&mut self, mode: ReadYourWrites) {
        self.needs_queue("read_your_writes");
        self.read_your_writes = mode;
    }

    /// How long this controller waits for its caches at its start. Default: as its process says, or
    /// [`CacheSync::default`] without one.
    pub fn cache_sync(&mut self, patience: CacheSync) {
        self.cache_sync = Some(patience);
    }

    /// The priority of keys that nothing happened to: those from the initial list and from resyncs. Default
    /// [`Priority::LOW`], so that a restart with a hundred thousand objects does not hold up what changes meanwhile;
    /// the queue lets none starve. [`Priority::NORMAL`] switches this off.
    pub fn background_priority(&mut self, priority: Priority) {
        self.needs_queue("background_priority");
        self.background = priority;
    }

    /// Sets the tenant of each key. Tenants take turns, so a flood of one tenant's keys delays that tenant only. Default:
    /// the namespace; keys without a namespace are one tenant.
    ///
    /// The function must be fast, because it runs once for each key that is queued.
    pub fn fair_by(&mut self, tenant: impl for<'k> Fn(&'k ObjectKey) -> &'k str + Send + 'static) {
        self.needs_queue("fair_by");
        self.queue.fair_by(tenant);
    }

    /// Replaces the limiter that says how long a failing key waits. The usual one doubles from 5 ms to 1000 s per key.
    pub fn limiter(&mut self, limiter: Box<dyn RateLimiter<ObjectKey>>) {
        self.needs_queue("limiter");
        self.queue.replace_limiter(limiter);
    }

    pub(crate) fn queue(&self) -> Queue<ObjectKey> {
        self.queue.clone()
    }
}

/// What a controller is built in.
impl Setup {
    /// The clock, timers and randomness of this process.
    pub fn env(&self) -> &Env {
        &self.host.env
    }

    /// The manager's metrics, for a controller's own families.
    pub fn metrics(&self) -> &Metrics {
        &self.host.metrics
    }

    /// The names this controller goes by.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// The caches that read-your-writes asks.
    pub(crate) fn caches(&self) -> &Caches {
        &self.caches
    }

    pub(crate) fn reads_own_writes(&self) -> bool {
        self.read_your_writes != ReadYourWrites::Off
    }

    /// Makes a controller of the declarations.
    ///
    /// # Errors
    /// When they contradict each other.
    pub(crate) fn assemble(mut self) -> Result<(Core, Parts), SetupError> {
        self.check()?;
        let wiring = self.wiring();
        let keys = self.keys(&wiring);
        let Self { descriptor, host, caches, wired, policy, .. } = self;
        let ledger = SharedWriteTracker::default();
        let (polls, asked) = self.polls.into_iter().unzip();
        let core = Core {
            descriptor,
            keys,
            policy,
            gate: ReadYourWritesBarrier {
                env: host.env.clone(),
                ledger,
                caches,
                mode: self.read_your_writes,
            },
            stale_skips: StaleSkips::new(&host.metrics, descriptor.name),
            metrics: self.reconcile_metrics,
            needed: self.needed,
            watches: self.watches,
            wiring,
            activity: WorkerActivity::new(policy.workers),
            denials: DenialLog::default(),
            stop: CancellationToken::new(),
            phase: Phase::default(),
            polls: Polls { polls, tasks: TaskGroup::new(host.env.clone()) },
            dropped_tasks: TaskGroup::new(host.env.clone()),
            env: host.env,
        };
        let parts = Parts {
            declared: self.declared,
            metrics: host.metrics,
            handlers: wired.handlers,
            replays: wired.replays.into(),
            sources: self.sources,
            polls: asked,
            tasks: self.tasks,
            cache_sync: self.cache_sync,
        };
        Ok((core, parts))
    }

    /// Makes a runnable of the declarations.
    ///
    /// # Errors
    /// When they contradict each other.
    pub(crate) fn assemble_runnable(mut self) -> Result<RunnableParts, SetupError> {
        self.check()?;
        if let (RunsOn::BeforeCaches, Some(cache)) = (self.descriptor.runs_on, self.needed.first()) {
            let message =
                "a runnable that runs before caches reads none: run it later, or read by its client";
            return Err(SetupError::Watch { kind: cache.kind().to_string(), message: message.to_owned() });
        }
        Ok(RunnableParts {
            descriptor: self.descriptor,
            host: self.host,
            declared: self.declared,
            caches: self.caches,
            needed: self.needed,
            sources: self.sources,
            cache_sync: self.cache_sync,
        })
    }

    /// Whether the declaration holds together.
    fn check(&mut self) -> Result<(), SetupError> {
        match self.wired.take_fault() {
            Some(fault) => Err(fault),
            None if self.descriptor.runs_on == RunsOn::BeforeCaches && !self.wired.queueless => {
                Err(SetupError::invalid("a controller cannot run before caches: let it run on every replica"))
            }
            None if self.policy.workers == 0 => Err(SetupError::NoWorkers),
            None if self.limits.iter().any(ConcurrencyLimit::is_impossible) => Err(SetupError::NoPlaces),
            None => self.check_replacements(),
        }
    }

    /// A PUT of an object that a transform has changed would delete what the transform dropped.
    fn check_replacements(&self) -> Result<(), SetupError> {
        let replaced = self.declared.replaced_after(|resource| self.host.factory.has_transform(resource));
        match replaced {
            Some(resource) => Err(SetupError::invalid(format!(
                "a transform changes cached {resource}, and a writer replaces whole objects of them, which would delete what \
                 the transform drops: grant patch or status instead of update or status_update, or drop the transform"
            ))),
            None => Ok(()),
        }
    }

    /// What handlers are joined to.
    pub(crate) fn wiring(&self) -> HandlerContext {
        let (history, ownership) = (self.history.clone(), Arc::clone(&self.host.ownership));
        HandlerContext {
            controller: self.descriptor.name,
            queue: Enqueuer::new(self.queue(), self.quarantine.clone(), history, ownership),
            background: self.background,
            panics: self.reconcile_metrics.panics.clone(),
            own: OwnCaches(self.wired.own.clone().into()),
        }
    }

    fn keys(&mut self, wiring: &HandlerContext) -> Keys {
        let own = if self.reconcile_undecodable { Vec::new() } else { self.wired.own.clone() };
        let undecodable = Undecodable::new(wiring.queue.of(EnqueueReason::Event), own);
        undecodable.measure(&self.host.metrics, self.reconcile_metrics.undecodable.clone());
        Keys {
            queue: self.queue(),
            history: self.history.clone(),
            quarantine: self.quarantine.clone(),
            limits: std::mem::take(&mut self.limits),
            pauses: std::mem::take(&mut self.wired.pauses),
            triggers: std::mem::take(&mut self.triggers),
            undecodable,
            ownership: Arc::clone(&self.host.ownership),
            gone: Notify::new(),
        }
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("descriptor", &self.descriptor)
            .field("declared", &self.declared)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("env", &self.env).finish_non_exhaustive()
    }
}
