//! Reflector, queue, store and handlers of one kind and selection, as one.
//!
//! ```text
//! source -> reflector -> DeltaFifo -> processing loop -> store -> handlers, each in a task of its own
//! ```
//!
//! An informer is made without a source and does nothing until its factory starts it with one. Listers,
//! handlers and indexes may be added before that or at any time after. Over a set of namespaces, or of shards, it has a
//! reflector for each of them, and is one in everything else.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Either;
use kube::core::ObjectMeta;
use tokio_util::sync::CancellationToken;
use windlass_env::watch_channel::{Sender, channel};
use windlass_env::{Env, Task};
use windlass_metrics::{InformerMetrics, Metrics};
use windlass_object::shard::ShardField;
use windlass_object::{ObjectKey, ResourceKind};

use self::hub::{InformerState, PendingHandler, Phase};
pub(crate) use self::processing::ChangeObserver;
pub use self::reflector_set::RefreshTicket;
use self::reflector_set::{ReflectorSet, SourceConfig};
pub use self::version_source::{RefreshState, VersionSource};
use crate::budget::ByteBudget;
use crate::delta_fifo::DeltaFifo;
use crate::erased::{Codec, Object};
use crate::error::InformerError;
use crate::handle::HandlerHandle;
use crate::handler::{Handler, HandlerOptions, Resync};
use crate::indexer::{IndexId, NewIndex};
use crate::list_watch::{Selection, SourceProvider};
use crate::namespaces::NamespaceSet;
use crate::partition::{Partition, PartitionSet};
use crate::polls::PollTimers;
use crate::processor::{Listener, Processor};
use crate::reflector::LogWatchErrors;
use crate::settings::{InformerSettings, IngestOptions, Transform};
use crate::shards::ShardSet;
use crate::share::GaugeShare;
use crate::store::{Progress, Store, StoreWriter};
use crate::undecodable::UndecodableObjects;

mod hub;
mod processing;
mod reflector_set;
mod state;
mod version_source;

/// An informer, whatever type its objects have: what a [`SharedInformer`](crate::SharedInformer) of any type can do.
pub struct Informer {
    pub(crate) name: Arc<str>,
    /// Begins the names of this informer's tasks and random streams.
    path: String,
    env: Env,
    pub(crate) codec: Arc<Codec>,
    selection: Selection,
    members: Option<PartitionSet>,
    pub(crate) store: Arc<Store<Object>>,
    fifo: Arc<DeltaFifo<Object>>,
    /// Held for the moment in which a batch is applied and distributed, or a handler or index is added: never
    /// across an await, and never by a reader.
    pub(crate) hub: Mutex<InformerState>,
    /// Indexes that are to be removed when the hub is free.
    retired: Mutex<Vec<IndexId>>,
    /// Whether the hub is in its running phase, for those who must not wait for the hub.
    running: AtomicBool,
    /// Cancelled by the end, of whatever kind, of a task that follows the source.
    unfollowed: CancellationToken,
    /// Those of all its tasks.
    pub(crate) polls: PollTimers,
    progress: Sender<Progress>,
    following: ReflectorSet,
    /// Who is told, by key, of everything that changes.
    witnesses: Mutex<Vec<ChangeObserver>>,
    settings: InformerSettings,
    budget: Arc<ByteBudget>,
    stop: CancellationToken,
    metrics: InformerMetrics,
    /// Its share of the objects, and of what is queued, of all informers of the resource.
    objects: GaugeShare,
    queued: GaugeShare,
}

impl Informer {
    pub(crate) fn new(
        env: &Env,
        metrics: &Metrics,
        factory: &str,
        codec: Codec,
        selection: Selection,
        settings: InformerSettings,
        members: Option<PartitionSet>,
    ) -> Self {
        let kind = &codec.kind;
        let selected = selection.is_filtered().then(|| selection.to_string());
        let which = [selected, members.as_ref().and_then(PartitionSet::of_what).map(str::to_owned)];
        let which: Vec<String> = which.into_iter().flatten().collect();
        let name: Arc<str> = match which.is_empty() {
            true => kind.to_string().into(),
            false => format!("{kind} ({})", which.join(", ")).into(),
        };
        let store = Arc::new(Store::new());
        let metrics = metrics.informer(&kind.group, &kind.version, &kind.plural);
        let budget = Arc::new(ByteBudget::new(settings.byte_budget, metrics.clone()));
        let hub = InformerState {
            writer: StoreWriter::new(Arc::clone(&store), codec.head, Arc::clone(&budget)),
            shared_indexes: BTreeMap::new(),
            transform: None,
            processor: Processor::new(),
            handlers: 0,
            phase: Phase::Created(Vec::new()),
        };
        Self {
            path: format!("{factory}/{name}/{}", codec.name),
            name,
            env: env.clone(),
            objects: GaugeShare::of(&metrics.objects),
            queued: GaugeShare::of(&metrics.queued_items),
            metrics,
            codec: Arc::new(codec),
            selection,
            members,
            store,
            fifo: Arc::new(DeltaFifo::new()),
            hub: Mutex::new(hub),
            retired: Mutex::default(),
            running: AtomicBool::new(false),
            unfollowed: CancellationToken::new(),
            polls: PollTimers::default(),
            progress: channel(Progress::default()).0,
            following: ReflectorSet::new(),
            witnesses: Mutex::default(),
            settings,
            budget,
            stop: CancellationToken::new(),
        }
    }

    /// The kind of the objects.
    pub fn kind(&self) -> &ResourceKind {
        &self.codec.kind
    }

    /// Which objects of that kind.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The namespaces it follows one by one, if it does.
    pub fn namespaces(&self) -> Option<&NamespaceSet> {
        self.members.as_ref().and_then(PartitionSet::namespaces)
    }

    /// The shards it follows, or within which it follows namespaces, if it does.
    pub fn shards(&self) -> Option<&ShardSet> {
        self.members.as_ref().and_then(PartitionSet::shards)
    }

    /// By what the shards that it follows are told apart, if it follows shards.
    pub fn sharded_by(&self) -> Option<ShardField> {
        self.members.as_ref().and_then(PartitionSet::field)
    }

    /// Calls `read` with the metadata of the object of that key, if the store contains one.
    pub fn with_metadata<O>(&self, key: &ObjectKey, read: impl FnOnce(&ObjectMeta) -> O) -> Option<O> {
        self.store.snapshot().objects().get(key).map(|object| read((self.codec.meta)(object)))
    }

    /// Returns the keys of all objects in the store, in order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.store.snapshot().objects().keys().cloned().collect()
    }

    /// Returns the objects that exist and cannot be decoded.
    pub fn undecodable(&self) -> UndecodableObjects {
        UndecodableObjects::new(self.store.snapshot().quarantined().clone())
    }

    /// See [`SharedInformer::set_transform`](crate::SharedInformer::set_transform).
    pub(crate) fn set_transform(&self, transform: Transform) -> Result<(), InformerError> {
        let informer = self.name.to_string();
        let mut hub = self.lock();
        if !matches!(hub.phase, Phase::Created(_)) {
            return Err(InformerError::AlreadyStarted { informer });
        }
        if hub.transform.is_some() {
            return Err(InformerError::DuplicateTransform { informer });
        }
        hub.transform = Some(transform);
        Ok(())
    }

    /// Sets how many bytes the informer may hold, counted by what its objects had on the wire; `None` for as many as
    /// there are. See [`FactoryOptions::byte_budget`](crate::FactoryOptions::byte_budget).
    ///
    /// A budget that comes while none was set knows nothing of what is held by then until it changes or is listed
    /// again. One that was passed is tried again within about a minute.
    pub fn set_byte_budget(&self, bytes: Option<u64>) {
        self.budget.limit(bytes);
    }

    /// See [`SharedInformer::add_handler_with`](crate::SharedInformer::add_handler_with).
    pub(crate) fn add_handler(
        &self,
        name: &str,
        options: HandlerOptions,
        handler: Box<dyn Handler<Object>>,
    ) -> Result<HandlerHandle, InformerError> {
        let HandlerOptions { resync, delivery } = options;
        let resync = self.period(name, resync)?;
        // Dropping handlers runs users' code, so it comes after the lock.
        let _removed: Vec<PendingHandler>;
        let mut hub = self.lock();
        hub.handlers += 1;
        let listener = Arc::new(Listener::new(name, hub.handlers, delivery, self.metrics.clone()));
        let waiting_with = |handler| PendingHandler { listener: Arc::clone(&listener), handler, resync };
        let task = match &mut hub.phase {
            Phase::Stopped(_) => {
                return Err(InformerError::Stopped { informer: self.name.to_string() });
            }
            Phase::Created(waiting) => {
                _removed = waiting.extract_if(.., |waiting| waiting.listener.is_removed()).collect();
                waiting.push(waiting_with(handler));
                None
            }
            Phase::Running(_) => Some(self.spawn_handler(waiting_with(handler))),
        };
        hub.attach(&listener, task);
        drop(hub);
        Ok(HandlerHandle::new(name.to_owned(), listener.state(), listener))
    }

    /// Adds an index, or finds that of the same function. Each call is to be undone by one of
    /// [`remove_index`](Self::remove_index).
    pub(crate) fn add_index(&self, index: NewIndex) -> IndexId {
        let NewIndex { name, values, sameness } = index;
        // Dropped last, and so under no lock.
        let _removed;
        let mut hub = self.lock();
        _removed = hub.remove_indexes(self.take_retired());
        if let Some((id, users)) = sameness.and_then(|function| hub.shared_indexes.get_mut(&function)) {
            *users += 1;
            return *id;
        }
        let id = hub.writer.add_index(name, values);
        if let Some(function) = sameness {
            hub.shared_indexes.insert(function, (id, 1));
        }
        id
    }

    /// Undoes one [`add_index`](Self::add_index). The last one removes the index: at once, or if the lock is taken,
    /// with the next batch, the next index or the stop. Readers keep the results they have. Never waits, because users'
    /// code can drop an index anywhere.
    pub(crate) fn remove_index(&self, id: IndexId) {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        let functions = match self.hub.try_lock() {
            Ok(mut hub) => hub.remove_indexes(self.take_retired()),
            Err(TryLockError::Poisoned(hub)) => hub.into_inner().remove_indexes(self.take_retired()),
            // Whoever has the lock is the processing loop, or will be followed by it.
            Err(TryLockError::WouldBlock) => Vec::new(),
        };
        drop(functions);
    }

    /// Takes the indexes that are to be removed.
    fn take_retired(&self) -> Vec<IndexId> {
        std::mem::take(&mut *self.retired.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts following its source, unless it was started or stopped before.
    pub(crate) fn start(self: &Arc<Self>, sources: Arc<dyn SourceProvider>) {
        if !matches!(self.lock().phase, Phase::Created(_)) {
            return;
        }
        // Users' code, which may panic: nothing has begun by then, and it may be asked again.
        let whom = match self.members.clone() {
            Some(members) => Either::Left(members),
            None => Either::Right(self.ask(&Partition::Whole, &*sources)),
        };
        let mut hub = self.lock();
        let Phase::Created(waiting) = &mut hub.phase else { return };
        let handlers = std::mem::take(waiting);
        let admission = self.admission(hub.transform.clone());
        let following = match whom {
            Either::Left(members) => self.spawn_members(members, SourceConfig { sources, admission }),
            Either::Right(given) => self.follow(Partition::Whole, given, admission, self.stop.clone()),
        };
        let mut tasks = vec![following, self.spawn_processing_loop()];
        tasks.extend(handlers.into_iter().map(|waiting| self.spawn_handler(waiting)));
        hub.phase = Phase::Running(tasks);
        self.running.store(true, Ordering::Release);
    }

    /// Stops everything, and returns once it has ended. Handlers finish the change they are being told of.
    ///
    /// # Cancel safety
    /// It is stopped at once; calling it again waits for the rest of the end.
    pub(crate) async fn stop(&self) {
        let (ended, never_ran, transform, _removed) = {
            let mut hub = self.lock();
            let removed = hub.remove_indexes(self.take_retired());
            hub.processor.close();
            self.running.store(false, Ordering::Release);
            let (ended, never_ran) = hub.phase.stop();
            (ended, never_ran, hub.transform.take(), removed)
        };
        // Users' code, and so dropped under no lock: it can hold listers, and they this informer.
        drop((never_ran, transform, self.following.trouble.tell(Arc::new(LogWatchErrors))));
        self.stop.cancel();
        self.store.stop();
        self.fifo.close();
        ended.await;
    }

    /// Whether it was stopped and nothing of it runs any more.
    pub(crate) fn has_ended(&self) -> bool {
        let ended = match &self.lock().phase {
            Phase::Stopped(ended) => ended.clone(),
            Phase::Created(_) | Phase::Running(_) => return false,
        };
        ended.now_or_never().is_some()
    }

    /// Has `witness` told of every object that changes from here on. Called by the processing loop, under no lock.
    pub(crate) fn witness(&self, witness: ChangeObserver) {
        self.witnesses.lock().unwrap_or_else(PoisonError::into_inner).push(witness);
    }

    /// What a reflector's objects go through.
    fn admission(&self, transform: Option<Transform>) -> IngestOptions {
        let keep_managed_fields = self.settings.keep_managed_fields;
        IngestOptions { keep_managed_fields, transform, budget: Arc::clone(&self.budget) }
    }

    /// How often a handler is to be told of everything.
    fn period(&self, handler: &str, resync: Resync) -> Result<Option<Duration>, InformerError> {
        let period = match resync {
            Resync::AsFactory => self.settings.resync,
            Resync::Never => None,
            Resync::Every(period) => Some(period),
        };
        let (informer, handler) = (self.name.to_string(), handler.to_owned());
        match period {
            Some(period) if period < Resync::MIN => {
                Err(InformerError::ResyncTooShort { informer, handler, period })
            }
            period => Ok(period),
        }
    }

    fn spawn(&self, what: &str, future: impl Future<Output = ()> + Send + 'static) -> Task<()> {
        self.env.spawn(format!("informer {}: {what}", self.name), self.polls.timed(&self.env, future))
    }

    /// Code of others that runs under this lock is guarded (index functions), so poison cannot mean a broken
    /// hub.
    fn lock(&self) -> MutexGuard<'_, InformerState> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Informer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer")
            .field("name", &self.name)
            .field("progress", &self.progress.get())
            .finish_non_exhaustive()
    }
}
