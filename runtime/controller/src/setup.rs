//! The setup of a controller or a runnable: its watches, its requests to the API server, its queue and its workers.
//!
//! Every call is a declaration. Informers are requested from the factory but not started, handlers are kept until the
//! controller starts, and nothing needs a cluster. The same code therefore builds a controller and prints its roles. A
//! [`Runnable`](crate::Runnable) has no queue: a method that needs one is an error in its setup.

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
    DynamicObjects, MetadataObjects, ObjectKey, Representation, ResourceKind, Rule, Scoped, Verb, Watchable,
};
use windlass_sharding::{KeyOwnership, OwnsAllKeys};
use windlass_workqueue::{Priority, Queue, RateLimiter};

use crate::consistency::caches::{Cache, Caches};
use crate::consistency::read_your_writes::{ReadYourWrites, ReadYourWritesBarrier};
use crate::consistency::stale_skips::StaleSkips;
use crate::consistency::write_tracker::SharedWriteTracker;
use crate::core::activity::WorkerActivity;
use crate::core::denials::DenialLog;
use crate::core::reconcile_ids::ReconcileIds;
use crate::core::{Core, PhaseCell, Policy};
use crate::declared::Declared;
use crate::descriptor::{Descriptor, RunsOn};
use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::history::{EnqueueReason, History};
use crate::enqueue::keys::Keys;
use crate::enqueue::limits::ConcurrencyLimit;
use crate::enqueue::poll::{Fetch, Poll, PollCache, Polls, Value};
use crate::enqueue::quarantine::Quarantine;
use crate::enqueue::source::{Call, Source, TaskContext};
use crate::enqueue::stream;
use crate::enqueue::timer::{self, Timer};
use crate::enqueue::trigger::{Trigger, Triggers};
use crate::enqueue::undecodable::Undecodable;
use crate::enqueue::watch::Watch;
use crate::enqueue::watches::DynamicWatches;
use crate::enqueue::wiring::{Attach, DeclaredWatches, HandlerContext, PrimaryCaches, Replay};
use crate::error::{BoxError, SetupError};
use crate::shared_values::SharedValues;
use crate::webhook::WebhookConfig;

/// Time limit for the caches that a controller waits for at its start.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum CacheSync {
    /// Waits this long, then fails with an error that names the missing caches and the causes.
    Within(Duration),
    /// Waits indefinitely. The controller then starts without a restart when a role is granted or a kind is installed
    /// an hour later; until then the host must report why the controller does not run.
    #[default]
    Forever,
}

/// An informer with a custom source that belongs to one controller or runnable.
pub(crate) struct OwnSource {
    pub(crate) factory: InformerFactory,
    pub(crate) source: Arc<dyn ListerWatcher>,
}

impl OwnSource {
    /// Starts the informer's list and watch.
    pub(crate) fn start(&self) {
        let source = Arc::clone(&self.source);
        self.factory.start(Arc::new(move |_: &_, _: &_| Arc::clone(&source)));
    }
}

/// The process in which a controller or a runnable is set up.
#[derive(Clone)]
pub struct Host {
    /// Clock, timers, randomness and tasks.
    pub env: Env,
    /// The metrics of the process.
    pub metrics: Metrics,
    /// The factory of informers.
    pub factory: InformerFactory,
    /// The ownership of keys among several replicas.
    pub ownership: Arc<dyn KeyOwnership>,
    /// The handles by which code outside of controllers sends keys to them.
    pub triggers: Triggers,
    /// The values that the parts of a controller share.
    pub shared_values: SharedValues,
    /// The configuration of the webhook server.
    pub webhooks: Arc<WebhookConfig>,
}

impl Host {
    /// Creates a process that reconciles every key.
    pub fn new(env: Env, metrics: Metrics, factory: InformerFactory) -> Self {
        let (ownership, triggers) = (Arc::new(OwnsAllKeys), Triggers::default());
        let webhooks = Arc::new(WebhookConfig::of_process("windlass"));
        Self { env, metrics, factory, ownership, triggers, shared_values: SharedValues::default(), webhooks }
    }
}

/// The declarations of a controller or a runnable, collected while it is built. See the example of
/// [`Controller`](crate::Controller).
///
/// # Examples
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// # use windlass_controller::{Setup, Writer, by_owner};
/// # use windlass_informer::Lister;
/// # fn setup(setup: &mut Setup) -> (Lister<ConfigMap>, Lister<Pod>, Writer<Pod>) {
/// let maps = setup.primary::<ConfigMap>().lister();
/// let pods = setup.watch::<Pod>().enqueue(by_owner::<ConfigMap>).lister();
/// let writer = setup.writer::<Pod>().create().delete().build();
/// (maps, pods, writer)
/// # }
/// ```
pub struct Setup {
    descriptor: Descriptor,
    host: Host,
    queue: Queue<ObjectKey>,
    declared: Declared,
    declared_watches: DeclaredWatches,
    /// The caches of read-your-writes.
    caches: Caches,
    /// The caches that the start waits for.
    needed: Vec<Cache>,
    sources: Vec<OwnSource>,
    watches: DynamicWatches,
    triggers: Vec<Trigger>,
    /// The polls, which run from the start on.
    polls: Vec<(Arc<Poll>, Source)>,
    /// The tasks that run next to the workers.
    tasks: Vec<Source>,
    limits: Vec<ConcurrencyLimit>,
    reconcile_undecodable: bool,
    history: History,
    quarantine: Quarantine,
    reconcile_metrics: ReconcileMetrics,
    policy: Policy,
    read_your_writes: ReadYourWrites,
    cache_sync: Option<CacheSync>,
    /// Whether a runnable starts without its caches.
    without_caches: bool,
    /// Time to stop in addition to the shutdown timeout.
    shutdown_extension: Duration,
    background: Priority,
}

/// The parts that the start of a controller needs in addition to its core.
pub(crate) struct Parts {
    pub(crate) declared: Declared,
    pub(crate) metrics: Metrics,
    pub(crate) handlers: Vec<(String, Attach)>,
    /// Replays of the caches that contain the objects of every shard.
    pub(crate) replays: Arc<[Replay]>,
    pub(crate) sources: Vec<OwnSource>,
    pub(crate) polls: Vec<Source>,
    pub(crate) tasks: Vec<Source>,
    pub(crate) cache_sync: Option<CacheSync>,
}

/// The parts of a runnable's setup.
pub(crate) struct RunnableParts {
    pub(crate) descriptor: Descriptor,
    pub(crate) host: Host,
    pub(crate) declared: Declared,
    /// The caches of the API server's objects.
    pub(crate) caches: Caches,
    /// The caches that the start waits for.
    pub(crate) needed: Vec<Cache>,
    pub(crate) sources: Vec<OwnSource>,
    pub(crate) cache_sync: Option<CacheSync>,
    /// Whether it starts without its caches.
    pub(crate) without_caches: bool,
    /// Time to stop in addition to the shutdown timeout.
    pub(crate) shutdown_extension: Duration,
}

impl Setup {
    /// Creates an empty declaration. Tests and tools can create one; a manager creates one per controller.
    ///
    /// Defaults: one worker, unlimited retries, the default limiter (5 ms doubling to 1000 s per key, and 10 per second
    /// with bursts of 100 overall), fair queuing by namespace, no reconcile timeout, quarantine after 15 consecutive
    /// panics, and permission to create and patch events, unless the descriptor has none.
    pub fn new(descriptor: Descriptor, host: Host) -> Self {
        let metrics = host.metrics.clone();
        Self::measured(descriptor, host, &metrics)
    }

    /// Creates an empty declaration of a runnable.
    pub(crate) fn of_runnable(descriptor: Descriptor, host: Host) -> Self {
        // These metrics are never gathered, because there is no queue to measure.
        let mut setup = Self::measured(descriptor, host, &Metrics::new());
        setup.declared_watches.queueless = true;
        setup
    }

    /// Creates an empty declaration whose queue reports to `metrics`.
    fn measured(descriptor: Descriptor, host: Host, metrics: &Metrics) -> Self {
        let Host { env, factory, .. } = &host;
        let queue_metrics = metrics.workqueue(descriptor.queue_name);
        let queue = Queue::new(env.clone(), descriptor.queue_name, queue_metrics);
        queue.fair_by(|key: &ObjectKey| key.namespace().unwrap_or_default());
        let mut declared = Declared::default();
        if descriptor.event_source().is_some() {
            declared.uses_rule(&Rule::new("", "events", [Verb::Create, Verb::Patch]));
        }
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
            declared_watches: DeclaredWatches::default(),
            needed: Vec::new(),
            sources: Vec::new(),
            triggers: Vec::new(),
            polls: Vec::new(),
            tasks: Vec::new(),
            limits: Vec::new(),
            reconcile_undecodable: false,
            read_your_writes: ReadYourWrites::default(),
            cache_sync: None,
            without_caches: false,
            shutdown_extension: Duration::ZERO,
            background: Priority::LOW,
        }
    }
}

/// Watches.
impl Setup {
    /// Watches every `K`; their names are the keys of this controller. Short for [`watch`](Self::watch) and
    /// [`Watch::primary`].
    pub fn primary<K: Watchable>(&mut self) -> Watch<'_, K> {
        self.watch().primary()
    }

    /// Watches every `K`, a type of full objects or a [view](windlass_object::view): declares a cache of all objects,
    /// and permission to list and watch them. In a sharded process the cache contains the objects of the owned shards.
    /// [`Watch::with_selection`] narrows it.
    pub fn watch<K: Watchable>(&mut self) -> Watch<'_, K> {
        self.watch_as(K::representation())
    }

    /// Watches every object of a kind known only at run time.
    pub fn watch_dynamic(&mut self, kind: ResourceKind) -> Watch<'_, DynamicObject> {
        self.watch_as(DynamicObjects::new(kind))
    }

    /// Watches the metadata of every object of a kind. Only metadata is sent and cached. For a Rust type pass
    /// `ResourceKind::of::<Pod>()`; for a kind from a configuration fill the fields of [`ResourceKind`].
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::batch::v1::Job;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube::core::PartialObjectMeta;
    /// # use windlass_controller::{Setup, by_owner};
    /// # use windlass_informer::Lister;
    /// # use windlass_object::ResourceKind;
    /// # fn declare(setup: &mut Setup) -> Lister<PartialObjectMeta> {
    /// setup.watch_metadata(ResourceKind::of::<Pod>()).enqueue(|pod| by_owner::<Job>(pod)).lister()
    /// # }
    /// ```
    pub fn watch_metadata(&mut self, kind: ResourceKind) -> Watch<'_, PartialObjectMeta> {
        self.watch_as(MetadataObjects::new(kind))
    }

    /// Watches objects that are decoded by `representation`. [`watch`](Self::watch),
    /// [`watch_dynamic`](Self::watch_dynamic) and [`watch_metadata`](Self::watch_metadata) call this method.
    pub fn watch_as<R: Representation>(&mut self, representation: R) -> Watch<'_, R::Object> {
        let kind = representation.kind();
        self.declared.watch(&kind);
        let Self { descriptor, host, needed, caches, declared_watches, .. } = self;
        let make = move |selection| {
            let selection = descriptor.of_shards(selection);
            let informer = host.factory.informer(representation, selection);
            needed.push(Cache::of(informer.erased()));
            caches.add(Cache::of(informer.erased()));
            informer
        };
        Watch::new(declared_watches, Box::new(make))
    }

    /// Watches the objects of `source`, which can be any system except the API server. No rule is declared for it. Its
    /// cache starts, syncs and stops with the controller, and read-your-writes does not wait for it. For objects that
    /// the program itself adds and removes, `source` is `ObjectFeed::selecting(&Selection::default())` and
    /// `representation` is `TypedObjects::<K>::new()`.
    pub fn watch_from<R: Representation>(
        &mut self,
        source: Arc<dyn ListerWatcher>,
        representation: R,
    ) -> Watch<'_, R::Object> {
        let Self { descriptor, host, needed, sources, declared_watches, .. } = self;
        let make = move |selection| {
            let name = format!("{} source {}", descriptor.name, sources.len());
            let options = FactoryOptions { name, ..FactoryOptions::default() };
            let factory = InformerFactory::new(host.env.clone(), host.metrics.clone(), options);
            let informer = factory.informer(representation, selection);
            needed.push(Cache::of(informer.erased()));
            sources.push(OwnSource { factory, source });
            informer
        };
        Watch::new(declared_watches, Box::new(make))
    }

    /// Starts a runnable without waiting for its caches. It checks [`RunnableContext::caches_synced`] before it relies
    /// on them. For servers that must respond before caches are complete.
    ///
    /// [`RunnableContext::caches_synced`]: crate::RunnableContext::caches_synced
    pub fn start_without_caches(&mut self) {
        self.without_caches = true;
    }

    /// Gives a runnable this time to stop in addition to the shutdown timeout of the process. For servers that first
    /// have to be removed from a Service. Default zero.
    pub fn extend_shutdown(&mut self, by: Duration) {
        self.shutdown_extension = by;
    }

    /// Returns the watches that can be added and removed while the controller runs.
    /// [`Context::watches`](crate::Context::watches) returns the same to a reconcile.
    pub fn watches(&self) -> DynamicWatches {
        self.watches.clone()
    }

    /// Returns a value that the parts of a controller share in this process ([`Descriptor::part`]). The first call for
    /// a type creates it.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::{Arc, Mutex};
    /// # use windlass_controller::Setup;
    /// # use windlass_object::ObjectKey;
    /// #[derive(Debug, Default)]
    /// struct Graph(Mutex<Vec<ObjectKey>>);
    ///
    /// # fn setup(setup: &mut Setup) {
    /// let graph: Arc<Graph> = setup.shared();
    /// # }
    /// ```
    pub fn shared<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.host.shared_values.get(self.descriptor.part_of.unwrap_or(self.descriptor.name))
    }

    /// Declares a trigger: a handle with which other code sends keys to this controller. Other code gets it by the name
    /// of this controller and `name`: from `Manager::trigger`, as in
    /// `manager.trigger("site-controller", "webhook").try_send(key)`, or from
    /// [`RunnableContext::trigger`](crate::RunnableContext::trigger). At most `bound` distinct keys wait in it; 0
    /// counts as 1.
    pub fn trigger(&mut self, name: &'static str, bound: usize) -> Trigger {
        self.needs_queue("trigger");
        let trigger = self.host.triggers.get(self.descriptor.name, name);
        trigger.declare(bound);
        self.triggers.push(trigger.clone());
        trigger
    }

    /// Enqueues the keys that `keys` returns whenever `timer` fires, while the controller runs. A panic in `keys` is
    /// counted and skips that one run.
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

    /// Polls a system that sends no change notifications. `fetch` returns the value of every key, once at the start of
    /// the controller and then in every period of `timer`. Keys whose value appeared, changed or disappeared are
    /// enqueued; the last response is a cache.
    ///
    /// The [start](Self::cache_sync) waits for it as for the cache of a watch. If `fetch` fails or panics, the failure
    /// is logged and `fetch` is retried after a backoff from 1 s to the period; the last response stays until then.
    /// `fetch` must set its own timeout.
    ///
    /// `name` is unique in the controller; the log and `explain` show it.
    ///
    /// # Examples
    /// ```
    /// # use std::collections::BTreeMap;
    /// # use std::time::Duration;
    /// # use windlass_controller::{PollCache, Setup, Timer};
    /// # use windlass_object::ObjectKey;
    /// # #[derive(Clone)] struct Inventory;
    /// # impl Inventory {
    /// #     async fn racks(self) -> Result<BTreeMap<ObjectKey, String>, std::io::Error> { Ok(BTreeMap::new()) }
    /// # }
    /// # fn declare(setup: &mut Setup, inventory: &Inventory) -> PollCache<String> {
    /// let (minute, inventory) = (Timer::every(Duration::from_secs(60)), inventory.clone());
    /// setup.poll("inventory", minute, move |_| inventory.clone().racks())
    /// # }
    /// ```
    pub fn poll<T, F, A, E>(
        &mut self,
        name: &'static str,
        timer: Timer,
        fetch: impl Fn(TaskContext) -> F + Send + Sync + 'static,
    ) -> PollCache<T>
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
        PollCache::new(poll)
    }

    fn add_poll(&mut self, name: &'static str, timer: Timer, poll: Arc<Poll>, fetch: Fetch) {
        self.needs_queue("poll");
        self.check_timer(timer);
        let asks = Arc::clone(&poll);
        let name = self.named("poll", name);
        let source = Source::new(name, move |means| asks.run(timer, fetch, means));
        self.polls.push((Arc::clone(&poll), source));
        self.declared_watches.replays.push(Arc::new(move |wiring, wanted| {
            let queue =
                wiring.queue.of(EnqueueReason::Poll).for_background().with_priority(wiring.background);
            queue.add_all(poll.keys_joining(wanted));
        }));
    }

    /// Enqueues the keys of a stream, such as a subscription to a message queue, while the controller runs. A stream
    /// that ends or panics is reopened after a backoff from 1 s to a minute.
    ///
    /// `name` is unique in the controller; the log shows it.
    pub fn stream<S>(&mut self, name: &'static str, open: impl Fn(TaskContext) -> S + Send + Sync + 'static)
    where
        S: Stream<Item = ObjectKey> + Send + 'static,
    {
        self.needs_queue("stream");
        let open: Call<BoxStream<'static, ObjectKey>> = Arc::new(move |cx| open(cx).boxed());
        let name = self.named("stream", name);
        self.tasks.push(Source::new(name, move |means| stream::follow(open, means)));
    }

    /// Returns the name of a task. A duplicate name makes the setup fail.
    fn named(&mut self, what: &str, name: &str) -> String {
        let name = format!("{what} {name}");
        let mut others = self.tasks.iter().chain(self.polls.iter().map(|(_, source)| source));
        if others.any(|other| other.name == name) {
            let fault = format!("the {name} is declared twice: give each a unique name");
            self.declared_watches.fail(SetupError::invalid(fault));
        }
        name
    }

    fn check_timer(&mut self, timer: Timer) {
        if timer.is_impossible() {
            self.declared_watches.fail(SetupError::Timer);
        }
    }
}

/// Requests to the API server.
impl Setup {
    /// Makes the setup fail. Only the first fault is reported.
    pub(crate) fn fail(&mut self, fault: SetupError) {
        self.declared_watches.fail(fault);
    }

    /// Makes the setup of a runnable fail, because `call` needs a queue.
    pub(crate) fn needs_queue(&mut self, call: &'static str) {
        self.declared_watches.needs_queue(call);
    }

    /// Returns the declarations, to which writers add their rules.
    pub(crate) fn declared(&mut self) -> &mut Declared {
        &mut self.declared
    }

    /// Declares requests with these verbs on `K`, in addition to those of a watch. An uncached get must be declared
    /// like any other request. Writes are granted to a [`writer`](Self::writer).
    pub fn uses<K: Resource<DynamicType = (), Scope: Scoped>>(
        &mut self,
        verbs: impl IntoIterator<Item = Verb>,
    ) {
        let verbs: Vec<Verb> = verbs.into_iter().collect();
        self.declared.uses(&ResourceKind::of::<K>(), "", &verbs);
    }

    /// Declares requests on a resource without a Rust type. A group or resource of `*` matches all of them, for
    /// controllers that discover resources at run time. Where roles are limited to namespaces, the resource is assumed
    /// to be namespaced.
    pub fn uses_rule(&mut self, rule: Rule) {
        self.declared.uses_rule(&rule);
    }

    /// Declares that this binary ships the CustomResourceDefinition of `K`, so manifests contain it.
    pub fn crd<K: CustomResourceExt>(&mut self) {
        self.declared.ships(K::crd());
    }

    /// Returns the rules declared so far.
    pub fn rules(&self) -> Vec<Rule> {
        self.declared.all.rules()
    }
}

/// Settings of the queue and the workers.
impl Setup {
    /// Sets the number of keys that are reconciled concurrently. Default 1, the safest value and enough for most
    /// controllers.
    pub fn workers(&mut self, count: usize) {
        self.needs_queue("workers");
        self.policy.workers = count;
    }

    /// Limits the concurrent reconciles of a class of keys to `limit`. `class` returns the class of a key, such as its
    /// namespace or kind; `None` is never limited. A key of a full class is parked, so that other keys can run. Every
    /// call adds a limit; all limits apply.
    pub fn limit_concurrency(
        &mut self,
        limit: usize,
        class: impl Fn(&ObjectKey) -> Option<String> + Send + Sync + 'static,
    ) {
        self.needs_queue("limit_concurrency");
        self.limits.push(ConcurrencyLimit::new(limit, class));
    }

    /// Sets the timeout of a reconcile. A reconcile that exceeds it is dropped at its current await and counted, and
    /// its key backs off as after a failure. The outcome of its in-flight writes is unknown, and the key waits until it
    /// is known. Default `None`, as upstream: every single request has its own deadline.
    pub fn reconcile_timeout(&mut self, limit: Option<Duration>) {
        self.needs_queue("reconcile_timeout");
        self.policy.reconcile_timeout = limit;
    }

    /// Sets the number of consecutive failures after which a key is dropped until its next change. Default `None`:
    /// never.
    pub fn max_retries(&mut self, limit: Option<u32>) {
        self.needs_queue("max_retries");
        self.policy.max_retries = limit;
    }

    /// Sets the number of consecutive panics after which a key is quarantined until its next change. Default 15, about
    /// three minutes of backoff. With `None` a panic counts as a failure that is retried indefinitely, regardless of
    /// the maximum of retries.
    pub fn quarantine_after(&mut self, panics: Option<u32>) {
        self.needs_queue("quarantine_after");
        self.quarantine.limit(panics);
    }

    /// Sets whether keys are reconciled while their own object exists and cannot be decoded. Default `false`: such a
    /// key waits until its object is readable or deleted, and `explain` reports the reason. With `true`,
    /// [`Lister::get`](windlass_informer::Lister::get) returns an error for the object, and an annotation of
    /// [`Watch::paused_by`] cannot be read.
    ///
    /// If the keys name objects of several watches, a key waits while any object of its name cannot be decoded.
    ///
    /// An object is a key's own if its watch is [`primary`](Watch::primary) or has [`paused_by`](Watch::paused_by).
    pub fn reconcile_undecodable(&mut self, yes: bool) {
        self.needs_queue("reconcile_undecodable");
        self.reconcile_undecodable = yes;
    }

    /// Sets how many settled keys keep a history for
    /// [`ControllerInspector::explain`](crate::host::ControllerInspector::explain): the most recent ones. Default
    /// 10,000, about 3 MB. Keys that are queued, delayed, running, failing or in quarantine always keep theirs.
    pub fn history_limit(&mut self, keys: usize) {
        self.needs_queue("history_limit");
        self.history.limit(keys);
    }

    /// Sets how this controller waits for its own writes. Default [`ReadYourWrites::Requeue`].
    pub fn read_your_writes(&mut self, mode: ReadYourWrites) {
        self.needs_queue("read_your_writes");
        self.read_your_writes = mode;
    }

    /// Sets the time limit for the caches at the start of this controller. If the time passes, the process ends with an
    /// error that names the missing caches. Default: `ManagerConfig::cache_sync`, which is [`CacheSync::Forever`]
    /// unless it is changed.
    pub fn cache_sync(&mut self, timeout: CacheSync) {
        self.cache_sync = Some(timeout);
    }

    /// Sets the priority of keys without a change: those from the initial list and from resyncs. Default
    /// [`Priority::LOW`], so that the initial list of a restart with a hundred thousand objects does not delay changed
    /// objects; the queue prevents starvation. [`Priority::NORMAL`] disables this.
    pub fn background_priority(&mut self, priority: Priority) {
        self.needs_queue("background_priority");
        self.background = priority;
    }

    /// Sets the tenant of each key. Tenants are served in turn, so a flood of keys of one tenant delays that tenant
    /// only. Default: the namespace; keys without a namespace are one tenant.
    ///
    /// The function must be fast, because it runs once for each key that is queued.
    pub fn fair_by(&mut self, tenant: impl for<'k> Fn(&'k ObjectKey) -> &'k str + Send + 'static) {
        self.needs_queue("fair_by");
        self.queue.fair_by(tenant);
    }

    /// Replaces the limiter that delays failing keys. The default doubles the delay per key from 5 ms to 1000 s.
    pub fn limiter(&mut self, limiter: Box<dyn RateLimiter<ObjectKey>>) {
        self.needs_queue("limiter");
        self.queue.replace_limiter(limiter);
    }

    pub(crate) fn queue(&self) -> Queue<ObjectKey> {
        self.queue.clone()
    }
}

/// Accessors.
impl Setup {
    /// Returns the clock, timers and randomness of this process.
    pub fn env(&self) -> &Env {
        &self.host.env
    }

    /// Returns the manager's metrics, for a controller's own metric families.
    pub fn metrics(&self) -> &Metrics {
        &self.host.metrics
    }

    pub(crate) fn webhooks(&self) -> &WebhookConfig {
        &self.host.webhooks
    }

    pub(crate) fn needed_count(&self) -> usize {
        self.needed.len()
    }

    /// Returns the names of this controller.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// Returns the caches of read-your-writes.
    pub(crate) fn caches(&self) -> &Caches {
        &self.caches
    }

    pub(crate) fn reads_own_writes(&self) -> bool {
        self.read_your_writes != ReadYourWrites::Off
    }

    /// Builds a controller from the declarations.
    ///
    /// # Errors
    /// If they contradict each other.
    pub(crate) fn assemble(mut self) -> Result<(Core, Parts), SetupError> {
        self.check()?;
        let handler_context = self.handler_context();
        let keys = self.keys(&handler_context);
        let Self { descriptor, host, caches, declared_watches, policy, .. } = self;
        let tracker = SharedWriteTracker::default();
        let (polls, poll_tasks) = self.polls.into_iter().unzip();
        let core = Core {
            descriptor,
            keys,
            policy,
            barrier: ReadYourWritesBarrier {
                env: host.env.clone(),
                tracker,
                caches,
                mode: self.read_your_writes,
            },
            stale_skips: StaleSkips::new(&host.metrics, descriptor.name),
            metrics: self.reconcile_metrics,
            start_caches: self.needed,
            watches: self.watches,
            handler_context,
            activity: WorkerActivity::new(policy.workers),
            denials: DenialLog::default(),
            reconcile_ids: ReconcileIds::new(&host.env, descriptor.name),
            stop: CancellationToken::new(),
            phase: PhaseCell::default(),
            polls: Polls { polls, tasks: TaskGroup::new(host.env.clone()) },
            dropped_tasks: TaskGroup::new(host.env.clone()),
            env: host.env,
        };
        let parts = Parts {
            declared: self.declared,
            metrics: host.metrics,
            handlers: declared_watches.handlers,
            replays: declared_watches.replays.into(),
            sources: self.sources,
            polls: poll_tasks,
            tasks: self.tasks,
            cache_sync: self.cache_sync,
        };
        Ok((core, parts))
    }

    /// Builds a runnable from the declarations.
    ///
    /// # Errors
    /// If they contradict each other.
    pub(crate) fn assemble_runnable(mut self) -> Result<RunnableParts, SetupError> {
        self.check()?;
        let cache = self.needed.first().filter(|_| !self.without_caches);
        if let (RunsOn::BeforeCaches, Some(cache)) = (self.descriptor.runs_on, cache) {
            let message = "a runnable on RunsOn::BeforeCaches has no caches; use RunsOn::EveryReplica, read through \
                 RunnableContext::client, or call Setup::start_without_caches";
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
            without_caches: self.without_caches,
            shutdown_extension: self.shutdown_extension,
        })
    }

    /// Returns an error if the declarations contradict each other.
    fn check(&mut self) -> Result<(), SetupError> {
        match self.declared_watches.take_fault() {
            Some(fault) => Err(fault),
            None if self.descriptor.runs_on == RunsOn::BeforeCaches && !self.declared_watches.queueless => {
                let message = "a controller cannot run on RunsOn::BeforeCaches; use RunsOn::EveryReplica";
                Err(SetupError::invalid(message))
            }
            None if self.policy.workers == 0 => Err(SetupError::NoWorkers),
            None if self.limits.iter().any(ConcurrencyLimit::is_zero) => {
                Err(SetupError::ZeroConcurrencyLimit)
            }
            None => self.check_replacements(),
        }
    }

    /// Rejects writers that PUT transformed objects: a PUT would delete the fields that the transform dropped.
    fn check_replacements(&self) -> Result<(), SetupError> {
        let replaced = self.declared.replaced_after(|resource| self.host.factory.has_transform(resource));
        match replaced {
            Some(resource) => Err(SetupError::invalid(format!(
                "cannot grant update of {resource}: a transform drops fields of the cached objects, and a PUT would delete \
                 these fields on the server; grant patch() or patch_status(), or remove the transform"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the context that connects handlers to the queue.
    pub(crate) fn handler_context(&self) -> HandlerContext {
        let (history, ownership) = (self.history.clone(), Arc::clone(&self.host.ownership));
        HandlerContext {
            controller: self.descriptor.name,
            queue: Enqueuer::new(self.queue(), self.quarantine.clone(), history, ownership),
            background: self.background,
            panics: self.reconcile_metrics.panics.clone(),
            primary: PrimaryCaches(self.declared_watches.primary.clone().into()),
        }
    }

    fn keys(&mut self, handler_context: &HandlerContext) -> Keys {
        let primary =
            if self.reconcile_undecodable { Vec::new() } else { self.declared_watches.primary.clone() };
        let undecodable = Undecodable::new(handler_context.queue.of(EnqueueReason::Event), primary);
        undecodable.measure(&self.host.metrics, self.reconcile_metrics.undecodable.clone());
        Keys {
            queue: self.queue(),
            history: self.history.clone(),
            quarantine: self.quarantine.clone(),
            limits: std::mem::take(&mut self.limits),
            pauses: std::mem::take(&mut self.declared_watches.pauses),
            triggers: std::mem::take(&mut self.triggers),
            undecodable,
            ownership: Arc::clone(&self.host.ownership),
            ownership_lost: Notify::new(),
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
