//! The reflector, queue, store and handlers of one kind and selection.
//!
//! ```text
//! source -> reflector -> DeltaFifo -> processing loop -> store -> handlers, each in a separate task
//! ```
//!
//! An informer is created without a source and is idle until its factory starts it with a source. Listers, handlers and
//! indexes can be added before or after the start. With a set of namespaces or shards, the informer has one reflector
//! per member and shares all other parts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Either;
use tokio_util::sync::CancellationToken;
use windlass_env::watch_channel::{Sender, channel};
use windlass_env::{Env, Task};
use windlass_metrics::{InformerMetrics, Metrics};
use windlass_object::shard::ShardField;
use windlass_object::{MetadataRef, ObjectHeader, ObjectKey, Projection, ResourceKind};

use self::locked::{InformerState, PendingHandler, Phase};
pub(crate) use self::processing::ChangeObserver;
pub use self::reflector_set::RelistTicket;
use self::reflector_set::{ReflectorSet, SourceConfig};
pub use self::versioned_cache::{RelistState, VersionedCache};
use crate::budget::ByteBudget;
use crate::compact::ObjectForm;
use crate::delta_fifo::DeltaFifo;
use crate::erased::Codec;
use crate::error::InformerError;
use crate::gauge_share::GaugeShare;
use crate::handle::HandlerHandle;
use crate::handler::{Handler, HandlerOptions, Resync};
use crate::indexer::{IndexId, NewIndex};
use crate::list_watch::{Selection, SourceProvider};
use crate::namespaces::NamespaceSet;
use crate::object::Object;
use crate::partition::{Partition, PartitionSet};
use crate::polls::PollTimers;
use crate::processor::{Listener, Processor};
use crate::reflector::LogWatchErrors;
use crate::settings::{InformerSettings, IngestOptions, Transform};
use crate::shards::ShardSet;
use crate::store::{Progress, Store, StoreWriter};
use crate::undecodable::UndecodableObjects;

mod locked;
mod processing;
mod reflector_set;
mod status;
mod versioned_cache;

/// An informer without the type of its objects: the methods that every [`SharedInformer`](crate::SharedInformer) has.
pub struct Informer {
    pub(crate) name: Arc<str>,
    /// The prefix of the names of this informer's random streams.
    rng_prefix: String,
    env: Env,
    pub(crate) codec: Arc<Codec>,
    selection: Selection,
    partitions: Option<PartitionSet>,
    pub(crate) store: Arc<Store<Object>>,
    fifo: Arc<DeltaFifo<Object>>,
    /// Locked while a batch is applied and distributed, and while a handler or index is added. Never locked across an
    /// await, and never by a reader.
    pub(crate) state: Mutex<InformerState>,
    /// Indexes to remove when the lock is free.
    retired_indexes: Mutex<Vec<IndexId>>,
    /// Whether the informer is in its running phase, for callers that must not wait for the lock.
    running: AtomicBool,
    /// Whether a holder of the informer requires decoded objects.
    is_kept_decoded: AtomicBool,
    /// Canceled when the processing loop or a reflector task ends other than by a stop.
    core_task_died: CancellationToken,
    /// The poll timers of all tasks.
    pub(crate) poll_timers: PollTimers,
    progress: Sender<Progress>,
    reflectors: ReflectorSet,
    /// The observers that receive the key of every change.
    observers: Mutex<Vec<ChangeObserver>>,
    settings: InformerSettings,
    budget: Arc<ByteBudget>,
    stop: CancellationToken,
    metrics: InformerMetrics,
    /// The shares of this informer in the gauges of its resource: stored objects and queued items.
    objects: GaugeShare,
    queued: GaugeShare,
}

impl Informer {
    pub(crate) fn new(
        env: &Env,
        metrics: &Metrics,
        rng_prefix: &str,
        codec: Codec,
        selection: Selection,
        settings: InformerSettings,
        partitions: Option<PartitionSet>,
    ) -> Self {
        let kind = &codec.kind;
        let selected = selection.is_filtered().then(|| selection.to_string());
        let which = [selected, partitions.as_ref().and_then(PartitionSet::description).map(str::to_owned)];
        let which: Vec<String> = which.into_iter().flatten().collect();
        let name: Arc<str> = match which.is_empty() {
            true => kind.to_string().into(),
            false => format!("{kind} ({})", which.join(", ")).into(),
        };
        let store = Arc::new(Store::new());
        let metrics = metrics.informer(&kind.group, &kind.version, &kind.plural);
        let budget = Arc::new(ByteBudget::new(settings.byte_budget, metrics.clone()));
        let state = InformerState {
            writer: StoreWriter::new(Arc::clone(&store), codec.head, Arc::clone(&budget)),
            shared_indexes: BTreeMap::new(),
            transform: None,
            processor: Processor::new(),
            handlers: 0,
            phase: Phase::Created(Vec::new()),
        };
        Self {
            rng_prefix: format!("{rng_prefix}/{name}/{}", codec.name),
            name,
            env: env.clone(),
            objects: GaugeShare::of(&metrics.objects),
            queued: GaugeShare::of(&metrics.queued_items),
            metrics,
            codec: Arc::new(codec),
            selection,
            partitions,
            store,
            fifo: Arc::new(DeltaFifo::new()),
            state: Mutex::new(state),
            retired_indexes: Mutex::default(),
            running: AtomicBool::new(false),
            is_kept_decoded: AtomicBool::new(false),
            core_task_died: CancellationToken::new(),
            poll_timers: PollTimers::default(),
            progress: channel(Progress::default()).0,
            reflectors: ReflectorSet::new(),
            observers: Mutex::default(),
            settings,
            budget,
            stop: CancellationToken::new(),
        }
    }

    /// Returns the kind of the objects.
    pub fn kind(&self) -> &ResourceKind {
        &self.codec.kind
    }

    /// Returns the selection of objects of that kind.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Returns the namespaces that it follows separately, if it does.
    pub fn namespaces(&self) -> Option<&NamespaceSet> {
        self.partitions.as_ref().and_then(PartitionSet::namespaces)
    }

    /// Returns its shards: the shards that it follows, or the shards that limit its namespaces.
    pub fn shards(&self) -> Option<&ShardSet> {
        self.partitions.as_ref().and_then(PartitionSet::shards)
    }

    /// Returns the field by which objects are assigned to its shards, if it follows shards.
    pub fn shard_field(&self) -> Option<ShardField> {
        self.partitions.as_ref().and_then(PartitionSet::shard_field)
    }

    /// Calls `read` with the metadata of the object of that key, if the store contains one. `managedFields` can be
    /// missing.
    pub fn with_metadata<O>(&self, key: &ObjectKey, read: impl FnOnce(MetadataRef<'_>) -> O) -> Option<O> {
        self.store.snapshot().objects().get(key).map(|object| self.codec.with_metadata(object, read))
    }

    /// Returns the header of the object of that key, if the store contains one.
    pub fn header(&self, key: &ObjectKey) -> Option<ObjectHeader> {
        self.store.snapshot().objects().get(key).map(self.codec.head)
    }

    /// Returns the keys of all objects in the store, in order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.store.snapshot().objects().keys().cloned().collect()
    }

    /// Returns the objects that exist and cannot be decoded.
    pub fn undecodable(&self) -> UndecodableObjects {
        UndecodableObjects::new(self.store.snapshot().undecodable().clone())
    }

    /// See [`SharedInformer::set_transform`](crate::SharedInformer::set_transform).
    pub(crate) fn set_transform(&self, transform: Transform) -> Result<(), InformerError> {
        let informer = self.name.to_string();
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Created(_)) {
            return Err(InformerError::AlreadyStarted { informer });
        }
        if state.transform.is_some() {
            return Err(InformerError::DuplicateTransform { informer });
        }
        state.transform = Some(transform);
        Ok(())
    }

    /// Returns whether it stores whole objects that a transform changed.
    pub(crate) fn transforms_whole_objects(&self) -> bool {
        self.codec.projection == Projection::Full && self.lock().transform.is_some()
    }

    /// Stores objects [decoded](ObjectForm::Decoded), for all holders of this informer. After the start it has no
    /// effect.
    pub fn keep_decoded(&self) {
        self.is_kept_decoded.store(true, Ordering::Release);
    }

    /// Sets how many bytes the informer can hold, measured by the size of its objects on the wire; `None` for no limit.
    /// See [`FactoryOptions::byte_budget`](crate::FactoryOptions::byte_budget).
    ///
    /// A budget that is set later does not count the objects that are already stored until they change or are listed
    /// again. After the budget was exceeded, the informer retries within about a minute.
    pub fn set_byte_budget(&self, bytes: Option<u64>) {
        self.budget.set_limit(bytes);
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
        // Dropping handlers runs user code, so it happens after the lock is released.
        let _removed: Vec<PendingHandler>;
        let mut state = self.lock();
        state.handlers += 1;
        let listener = Arc::new(Listener::new(name, state.handlers, delivery, self.metrics.clone()));
        let waiting_with = |handler| PendingHandler { listener: Arc::clone(&listener), handler, resync };
        let task = match &mut state.phase {
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
        state.attach(&listener, task);
        drop(state);
        Ok(HandlerHandle::new(name.to_owned(), listener.state(), listener))
    }

    /// Adds an index, or finds the index of the same function. Each call must be paired with a call to
    /// [`remove_index`](Self::remove_index).
    pub(crate) fn add_index(&self, index: NewIndex) -> IndexId {
        let NewIndex { name, values, function_type } = index;
        // Dropped last, without a lock.
        let _removed;
        let mut state = self.lock();
        _removed = state.remove_indexes(self.take_retired());
        if let Some((id, users)) = function_type.and_then(|function| state.shared_indexes.get_mut(&function))
        {
            *users += 1;
            return *id;
        }
        let id = state.writer.add_index(name, values);
        if let Some(function) = function_type {
            state.shared_indexes.insert(function, (id, 1));
        }
        id
    }

    /// Reverts one [`add_index`](Self::add_index). The last call removes the index: immediately, or if the lock is
    /// taken, with the next batch, the next index or the stop. Readers keep their results. Never waits, because user
    /// code can drop an index anywhere.
    pub(crate) fn remove_index(&self, id: IndexId) {
        self.retired_indexes.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        let functions = match self.state.try_lock() {
            Ok(mut state) => state.remove_indexes(self.take_retired()),
            Err(TryLockError::Poisoned(state)) => state.into_inner().remove_indexes(self.take_retired()),
            // The lock is held by the processing loop or by a caller; the next batch removes the index.
            Err(TryLockError::WouldBlock) => Vec::new(),
        };
        drop(functions);
    }

    /// Takes the indexes to remove.
    fn take_retired(&self) -> Vec<IndexId> {
        std::mem::take(&mut *self.retired_indexes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts to follow its source, unless it was started or stopped before.
    pub(crate) fn start(self: &Arc<Self>, sources: Arc<dyn SourceProvider>) {
        if !matches!(self.lock().phase, Phase::Created(_)) {
            return;
        }
        // User code, which can panic. Nothing has been started yet, so `start` can be called again.
        let source = match self.partitions.clone() {
            Some(partitions) => Either::Left(partitions),
            None => Either::Right(self.source_of(&Partition::Whole, &*sources)),
        };
        let mut state = self.lock();
        let Phase::Created(pending) = &mut state.phase else { return };
        let handlers = std::mem::take(pending);
        let ingest_options = self.ingest_options(state.transform.clone());
        let following = match source {
            Either::Left(partitions) => {
                self.spawn_partition_set(partitions, SourceConfig { sources, ingest_options })
            }
            Either::Right(source) => {
                self.spawn_reflector(Partition::Whole, source, ingest_options, self.stop.clone())
            }
        };
        let mut tasks = vec![following, self.spawn_processing_loop()];
        tasks.extend(handlers.into_iter().map(|pending| self.spawn_handler(pending)));
        state.phase = Phase::Running(tasks);
        self.running.store(true, Ordering::Release);
    }

    /// Stops all tasks and returns when they have stopped. A handler finishes its current call.
    ///
    /// # Cancel safety
    /// The informer is stopped immediately; another call waits for the remaining tasks.
    pub(crate) async fn stop(&self) {
        let (ended, never_ran, transform, _removed) = {
            let mut state = self.lock();
            let removed = state.remove_indexes(self.take_retired());
            state.processor.close();
            self.running.store(false, Ordering::Release);
            let (ended, never_ran) = state.phase.stop();
            (ended, never_ran, state.transform.take(), removed)
        };
        // Dropped without a lock, because it is user code: it can hold listers, which hold this informer.
        drop((never_ran, transform, self.reflectors.failures.replace_handler(Arc::new(LogWatchErrors))));
        self.stop.cancel();
        self.store.stop();
        self.fifo.close();
        ended.await;
    }

    /// Returns whether it was stopped and none of its tasks runs.
    pub(crate) fn has_stopped(&self) -> bool {
        let ended = match &self.lock().phase {
            Phase::Stopped(ended) => ended.clone(),
            Phase::Created(_) | Phase::Running(_) => return false,
        };
        ended.now_or_never().is_some()
    }

    /// Adds an observer that receives the key of every later change. The processing loop calls it without a lock.
    pub(crate) fn observe_changes(&self, observer: ChangeObserver) {
        self.observers.lock().unwrap_or_else(PoisonError::into_inner).push(observer);
    }

    /// Returns the steps for the objects of a reflector.
    fn ingest_options(&self, transform: Option<Transform>) -> IngestOptions {
        let InformerSettings { keep_managed_fields, form, .. } = self.settings;
        // A transformed object has no bytes.
        let is_decoded =
            transform.is_some() || !self.codec.is_compactable || self.is_kept_decoded.load(Ordering::Acquire);
        let form = if is_decoded { ObjectForm::Decoded } else { form };
        IngestOptions { keep_managed_fields, transform, form, budget: Arc::clone(&self.budget) }
    }

    /// Returns the resync period of a handler.
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
        self.env.spawn(format!("informer {}: {what}", self.name), self.poll_timers.timed(&self.env, future))
    }

    /// User code that runs under this lock (index functions) is guarded, so poison cannot mean a broken state.
    fn lock(&self) -> MutexGuard<'_, InformerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
