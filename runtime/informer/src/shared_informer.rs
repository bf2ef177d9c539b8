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
use std::ops::Bound;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture, Either, Shared};
use tokio_util::sync::CancellationToken;
use windlass_env::cell::{Observer, Publisher, cell};
use windlass_env::{Env, Instant, Task};
use windlass_metrics::{InformerMetrics, Metrics};
use windlass_object::shard::ShardField;
use windlass_object::{ObjectKey, Representation, ResourceKind, ResourceVersion};

use crate::budget::Budget;
use crate::delta_fifo::{Audience, Batch, DeltaFifo};
use crate::error::{InformerError, Lag, Laggard, NotSynced};
use crate::handle::HandlerHandle;
use crate::handler::{Delivery, Handler, HandlerOptions, Resync};
use crate::indexes::Index;
use crate::list_watch::{Selection, Sources};
use crate::lister::Lister;
use crate::namespaces::NamespaceSet;
use crate::partition::{Members, Partition, Site};
use crate::polls::Polls;
use crate::presence::Presence;
use crate::processor::{Listener, Processor, Replay};
use crate::reflector::{STUCK_AFTER, Urgency, WatchErrorHandler};
use crate::settings::{Admission, Settings, Transform};
use crate::shards::ShardSet;
use crate::share::Share;
use crate::store::{Applied, Change, Known, Progress, Snapshot, Store, StoreWriter};
use crate::sync::{self, yield_now};

pub use self::following::RefreshTicket;
use self::following::{Feed, Following};

mod following;

/// How many objects of a snapshot are prepared at once for a handler that is told all of them.
const CHUNK: usize = 64;

/// A defect that tests plant, in two places.
const BUDGET_IGNORED: &str = "budget ignored";

/// One kind and selection, kept in step with its source and shared by everyone who needs it. Cheap to clone.
pub struct SharedInformer<R: Representation> {
    inner: Arc<Inner<R>>,
}

/// How far the cache of a resource has come: what read-your-writes asks.
pub trait VersionSource: Send + Sync {
    /// Everything up to this version is in the store; `None` before the initial list.
    fn version(&self) -> Option<ResourceVersion>;

    /// How many times the server went back in time. Versions of different epochs cannot be compared.
    fn epoch(&self) -> u64;

    /// Everything at `site` up to this version is in the store. The same as [`version`](Self::version) unless namespaces
    /// or shards are followed one by one, each with its own version: then also `None` for one that is not followed, or
    /// has not been listed.
    fn version_in(&self, site: Site<'_>) -> Option<ResourceVersion> {
        let _ = site;
        self.version()
    }

    /// Like [`reached`](Self::reached), for a write to an object at `site`. The same unless namespaces or shards are
    /// followed one by one: then the others are not waited for, of which a quiet one may stand still for a minute. True
    /// for one that is not followed: of it, nothing will ever be seen.
    fn reached_in<'a>(
        &'a self,
        site: Site<'a>,
        wanted: ResourceVersion,
        within: Duration,
    ) -> BoxFuture<'a, bool> {
        let _ = site;
        self.reached(wanted, within)
    }

    /// Whether the initial list is in the store. Without it nobody acts on what is there.
    fn has_synced(&self) -> bool;

    /// Waits until everything up to `wanted` is in the store, at most for `within`. True also if a new epoch
    /// begins meanwhile, which makes the question meaningless, and for a version that cannot be compared.
    fn reached(&self, wanted: ResourceVersion, within: Duration) -> BoxFuture<'_, bool>;

    /// Requests a consistent list of the part that holds `site`, or of every part for the default site, and returns
    /// without waiting. The list begins after this call.
    ///
    /// Requests coalesce: one list serves all requests that came before it began. Lists on request are spaced: after a
    /// list that took `t`, the next one begins no earlier than `10 * t` later, at least 1 s and at most 60 s. Their pages
    /// bypass the client's rate limit.
    fn request_refresh(&self, site: Site<'_>) -> RefreshTicket;

    /// Returns whether the lists of a ticket are in the store.
    fn refresh_state(&self, ticket: &RefreshTicket) -> RefreshState;

    /// Waits until [`refresh_state`](Self::refresh_state) of the ticket is [`RefreshState::Done`].
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait, and not the request.
    fn refreshed_since(&self, ticket: &RefreshTicket) -> BoxFuture<'_, ()>;

    /// Requests a consistent list of everything and waits until it is in the store or the informer stops. Waits for ever if
    /// the informer was never started.
    ///
    /// This request is urgent, for a takeover: it waits for no pause between lists, and abandons a list that is in flight.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait, and not the request.
    fn refreshed(&self) -> BoxFuture<'_, ()>;
}

/// How far a requested refresh has come.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RefreshState {
    /// The store might not contain the list yet.
    Pending,
    /// A consistent list that began after the request is in the store, and handlers have it queued. Also if nothing old
    /// can be held: the namespace or shard was left, or the kind is absent or forbidden and nothing is held.
    Done,
}

struct Inner<R: Representation> {
    name: Arc<str>,
    /// Begins the names of this informer's tasks and random streams.
    path: String,
    env: Env,
    representation: R,
    kind: ResourceKind,
    selection: Selection,
    members: Option<Members>,
    store: Arc<Store<R::Stored>>,
    fifo: Arc<DeltaFifo<R::Stored>>,
    /// Held for the moment in which a batch is applied and distributed, or a handler or index is added: never
    /// across an await, and never by a reader.
    hub: Mutex<Hub<R>>,
    /// Whether the hub is in its running phase, for those who must not wait for the hub.
    running: AtomicBool,
    /// Cancelled by the end, of whatever kind, of a task that follows the source.
    unfollowed: CancellationToken,
    /// Those of all its tasks.
    polls: Polls,
    progress: Publisher<Progress>,
    following: Following,
    /// Who is told, by key, of everything that changes.
    witnesses: Mutex<Vec<Witness>>,
    settings: Settings,
    budget: Arc<Budget>,
    stop: CancellationToken,
    metrics: InformerMetrics,
    /// Its share of the objects, and of what is queued, of all informers of the resource.
    objects: Share,
    queued: Share,
}

struct Hub<R: Representation> {
    writer: StoreWriter<R::Stored>,
    /// The indexes there are, and how many asked for each.
    indexes: BTreeMap<String, (Index<R::Read>, usize)>,
    transform: Option<Transform<R::Stored>>,
    processor: Processor<R::Read>,
    /// How many handlers there have been.
    handlers: u64,
    phase: Phase<R::Read>,
}

/// Is told which object changed, and no more.
pub(crate) type Witness = Arc<dyn Fn(&ObjectKey) + Send + Sync>;

/// The end of an informer's tasks, for any number of waiters.
type Ended = Shared<BoxFuture<'static, ()>>;

/// A handler that has no task yet.
struct Waiting<T> {
    listener: Arc<Listener<T>>,
    handler: Box<dyn Handler<T>>,
    resync: Option<Duration>,
}

enum Phase<T> {
    /// Not started: these handlers have no tasks yet.
    Created(Vec<Waiting<T>>),
    Running(Vec<Task<()>>),
    Stopped(Ended),
}

impl<R: Representation> SharedInformer<R> {
    pub(crate) fn new(
        env: &Env,
        metrics: &Metrics,
        factory: &str,
        representation: R,
        selection: Selection,
        settings: Settings,
        members: Option<Members>,
    ) -> Self {
        let kind = representation.kind();
        let selected = selection.is_filtered().then(|| selection.to_string());
        let which = [selected, members.as_ref().and_then(Members::of_what).map(str::to_owned)];
        let which: Vec<String> = which.into_iter().flatten().collect();
        let name: Arc<str> = match which.is_empty() {
            true => kind.to_string().into(),
            false => format!("{kind} ({})", which.join(", ")).into(),
        };
        let store = Arc::new(Store::new());
        let metrics = metrics.informer(&kind.group, &kind.version, &kind.plural);
        let limit = settings.byte_budget.filter(|_| !env.is_planted(BUDGET_IGNORED));
        let budget = Arc::new(Budget::new(limit, metrics.clone()));
        let hub = Hub {
            writer: StoreWriter::new(Arc::clone(&store), R::head, Arc::clone(&budget)),
            indexes: BTreeMap::new(),
            transform: None,
            processor: Processor::new(),
            handlers: 0,
            phase: Phase::Created(Vec::new()),
        };
        let inner = Inner {
            path: format!("{factory}/{name}/{}", std::any::type_name::<R>()),
            name,
            env: env.clone(),
            objects: Share::of(&metrics.objects),
            queued: Share::of(&metrics.queued_items),
            metrics,
            representation,
            kind,
            selection,
            members,
            store,
            fifo: Arc::new(DeltaFifo::new()),
            hub: Mutex::new(hub),
            running: AtomicBool::new(false),
            unfollowed: CancellationToken::new(),
            polls: Polls::default(),
            progress: cell(Progress::default()).0,
            following: Following::new(),
            witnesses: Mutex::default(),
            settings,
            budget,
            stop: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The kind of the objects.
    pub fn kind(&self) -> &ResourceKind {
        &self.inner.kind
    }

    /// Which objects of that kind.
    pub fn selection(&self) -> &Selection {
        &self.inner.selection
    }

    /// The namespaces it follows one by one, if it does.
    pub fn namespaces(&self) -> Option<&NamespaceSet> {
        self.inner.members.as_ref().and_then(Members::namespaces)
    }

    /// The shards it follows, or within which it follows namespaces, if it does.
    pub fn shards(&self) -> Option<&ShardSet> {
        self.inner.members.as_ref().and_then(Members::shards)
    }

    /// By what the shards that it follows are told apart, if it follows shards.
    pub fn sharded_by(&self) -> Option<ShardField> {
        self.inner.members.as_ref().and_then(Members::field)
    }

    /// A reader of the objects. It may be made before the informer is started, and is empty until then.
    pub fn lister(&self) -> Lister<R> {
        Lister::new(Arc::clone(&self.inner.store), Arc::clone(&self.inner.name))
    }

    /// Sets what is done to every object after it was decoded and before it is stored: dropping what nobody reads, say.
    /// It runs once for every state that is decoded, deleted ones included.
    ///
    /// An object that it refuses, or panics at, or changes the name, the UID or the version of, is put in quarantine
    /// like one that cannot be decoded.
    ///
    /// # Errors
    ///
    /// [`InformerError::AlreadyStarted`] once the informer is started, [`InformerError::DuplicateTransform`] if it has
    /// one.
    pub fn set_transform<E: fmt::Display>(
        &self,
        transform: impl Fn(&mut R::Stored) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<(), InformerError> {
        let informer = self.inner.name.to_string();
        let mut hub = self.inner.lock();
        if !matches!(hub.phase, Phase::Created(_)) {
            return Err(InformerError::AlreadyStarted { informer });
        }
        if hub.transform.is_some() {
            return Err(InformerError::DuplicateTransform { informer });
        }
        hub.transform =
            Some(Arc::new(move |object: &mut R::Stored| transform(object).map_err(|why| why.to_string())));
        Ok(())
    }

    /// Sets how many bytes the informer may hold, counted by what its objects had on the wire; `None` for as many as
    /// there are. See [`FactoryOptions::byte_budget`](crate::FactoryOptions::byte_budget).
    ///
    /// A budget that comes while none was set knows nothing of what is held by then until it changes or is listed
    /// anew. One that was passed is tried again within about a minute.
    pub fn set_byte_budget(&self, bytes: Option<u64>) {
        self.inner.budget.limit(bytes.filter(|_| !self.inner.env.is_planted(BUDGET_IGNORED)));
    }

    /// Adds a handler, before the informer is started or at any time after.
    ///
    /// One that comes late is first told of everything there is, as additions by the initial list, then of
    /// what has changed since. Nobody else is held up by that.
    ///
    /// # Errors
    ///
    /// [`InformerError::Stopped`] once the informer is stopped; [`InformerError::ResyncTooShort`] if the factory's
    /// period of resyncs is too short.
    ///
    /// # Panics
    ///
    /// If the informer is running and this is called outside a tokio runtime: the handler needs a task.
    pub fn add_handler(
        &self,
        name: &str,
        handler: impl Handler<R::Read>,
    ) -> Result<HandlerHandle, InformerError> {
        self.add_handler_with(name, HandlerOptions::default(), handler)
    }

    /// As [`add_handler`](Self::add_handler), told as the options say.
    ///
    /// # Errors
    ///
    /// [`InformerError::Stopped`] once the informer is shut down; [`InformerError::ResyncTooShort`].
    ///
    /// # Panics
    ///
    /// If the informer is running and this is called outside a tokio runtime: the handler needs a task.
    pub fn add_handler_with(
        &self,
        name: &str,
        options: HandlerOptions,
        handler: impl Handler<R::Read>,
    ) -> Result<HandlerHandle, InformerError> {
        let HandlerOptions { resync, delivery } = options;
        let coalesced = self.inner.env.is_planted("every event coalesced");
        let delivery = if coalesced { Delivery::Coalesced } else { delivery };
        let resync = self.inner.period(name, resync)?;
        let handler: Box<dyn Handler<R::Read>> = Box::new(handler);
        // Dropping handlers runs users' code, so it comes after the lock.
        let _removed: Vec<Waiting<R::Read>>;
        let mut hub = self.inner.lock();
        hub.handlers += 1;
        let listener = Arc::new(Listener::new(name, hub.handlers, delivery, self.inner.metrics.clone()));
        let waiting_with = |handler| Waiting { listener: Arc::clone(&listener), handler, resync };
        let task = match &mut hub.phase {
            Phase::Stopped(_) => {
                return Err(InformerError::Stopped { informer: self.inner.name.to_string() });
            }
            Phase::Created(waiting) => {
                _removed = waiting.extract_if(.., |waiting| waiting.listener.is_removed()).collect();
                waiting.push(waiting_with(handler));
                None
            }
            Phase::Running(_) => Some(self.inner.spawn_handler(waiting_with(handler))),
        };
        hub.attach(&listener, task);
        if self.inner.env.is_planted("no replay") {
            listener.lose_what_waits();
        }
        drop(hub);
        Ok(HandlerHandle::new(name.to_owned(), listener.state(), listener))
    }

    /// Adds an index over what is and will be stored, before the informer is started or at any time after.
    /// `function` says under which values an object is found; it must not call back into this informer.
    ///
    /// Whoever adds the same function under the same name shares the index. A function can be told to be the
    /// same if it captures nothing: a named function, say.
    ///
    /// # Errors
    ///
    /// [`InformerError::DuplicateIndex`] if the name belongs to what may be another function; nothing is
    /// changed then.
    pub fn add_index<F>(&self, name: &str, function: F) -> Result<(), InformerError>
    where
        F: Fn(&R::Read) -> Vec<String> + Send + Sync + 'static,
    {
        self.share_index(&Index::new(name, function))
    }

    /// As [`add_index`](Self::add_index), for an index that is made already: see [`indexes`](crate::indexes). Whoever
    /// adds the same index shares it.
    ///
    /// # Errors
    ///
    /// [`InformerError::DuplicateIndex`] if the name belongs to what may be another function; nothing is
    /// changed then.
    pub fn share_index(&self, index: &Index<R::Read>) -> Result<(), InformerError> {
        let mut hub = self.inner.lock();
        if let Some((known, users)) = hub.indexes.get_mut(index.name()) {
            if !known.is_same(index) {
                let (informer, index) = (self.inner.name.to_string(), index.name().to_owned());
                return Err(InformerError::DuplicateIndex { informer, index });
            }
            *users += 1;
            return Ok(());
        }
        let values = index.function();
        hub.writer.add_index(index.name(), Arc::new(move |stored: &R::Stored| values(&R::read(stored))));
        hub.indexes.insert(index.name().to_owned(), (index.clone(), 1));
        Ok(())
    }

    /// Takes back one adding of an index. When all have been taken back the index goes, and asking it is an error again;
    /// what a reader got from it stays. `false` if there is no index of that name.
    pub fn remove_index(&self, name: &str) -> bool {
        let mut hub = self.inner.lock();
        let Some((_, users)) = hub.indexes.get_mut(name) else { return false };
        *users -= 1;
        if *users == 0 {
            hub.indexes.remove(name);
            hub.writer.remove_index(name);
        }
        true
    }

    /// Whether the initial list is in the store. Handlers may still be busy with it:
    /// [`HandlerHandle::has_synced`].
    pub fn has_synced(&self) -> bool {
        self.inner.progress.get().synced
    }

    /// Waits until the initial list is in the store; `false` if the informer is shut down before that.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn synced(&self) -> bool {
        let synced = sync::synced(self.inner.progress.observe());
        let stopped = self.inner.stop.cancelled();
        matches!(future::select(pin!(synced), pin!(stopped)).await, Either::Left((true, _)))
    }

    /// Waits until the initial list is in the store, at most for `within` if that is given. A kind that is not served
    /// is waited for like any other.
    ///
    /// # Errors
    ///
    /// [`NotSynced`] says why not: it was not in time, was never started, or was stopped first. Of many namespaces,
    /// each is named that is behind.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn wait_for_sync(&self, within: Option<Duration>) -> Result<(), NotSynced> {
        let synced = async { self.is_running() && self.synced().await };
        let in_time = match within {
            Some(within) => self.inner.env.timeout(within, synced).await == Ok(true),
            None => synced.await,
        };
        if in_time || self.has_synced() { Ok(()) } else { Err(NotSynced { laggards: self.laggards() }) }
    }

    /// Waits until the first list of one namespace is in the store, which may have joined later than others; `false` if
    /// the informer is stopped before that.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn namespace_synced(&self, namespace: &str) -> bool {
        let mut progress = self.inner.progress.observe();
        let listed = progress.wait_until(|progress| progress.has_listed(namespace));
        let stopped = self.inner.stop.cancelled();
        matches!(future::select(pin!(listed), pin!(stopped)).await, Either::Left((Ok(_), _)))
    }

    /// Waits until the first lists of all namespaces or shards that are wanted by then are in the store; `false` if the
    /// informer is stopped before that. The same as [`synced`](Self::synced) for one that follows no set.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn members_synced(&self) -> bool {
        let Some(members) = &self.inner.members else { return self.synced().await };
        let mut progress = self.inner.progress.observe();
        let come = async {
            let listed = |progress: &Progress| {
                progress.synced && members.current().iter().all(|part| progress.has_come(part))
            };
            // What is wanted may change without a word from here, but then something is listed or leaves.
            progress.wait_until(listed).await.is_ok()
        };
        let stopped = self.inner.stop.cancelled();
        matches!(future::select(pin!(come), pin!(stopped)).await, Either::Left((true, _)))
    }

    /// Whether the source serves the kind, as far as is known. Of many namespaces, one that must not be read comes
    /// first.
    pub fn presence(&self) -> Presence {
        if self.inner.env.is_planted("said to be served") {
            return Presence::Served;
        }
        self.inner.following.board.presence()
    }

    /// Whether the source serves the kind, as it comes and goes.
    pub fn presence_changes(&self) -> Observer<Presence> {
        self.inner.following.board.observe()
    }

    /// Says that something was done about a kind that is not served, or must not be read: it is asked for at once, and
    /// soon again if that was too early. Nothing happens if nothing is in the way.
    pub fn look_again(&self) {
        self.inner.following.board.look_again();
    }

    /// Everything up to this version is in the store; `None` before the initial list.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.inner.progress.get().version
    }

    /// Whether objects may be missing by choice: the selection is not everything.
    pub fn is_filtered(&self) -> bool {
        self.inner.selection.is_filtered() || self.inner.members.is_some()
    }

    /// How far the store has come, as it goes on.
    pub fn version_changes(&self) -> Observer<Progress> {
        self.inner.progress.observe()
    }

    /// What the informer last failed at, if nothing has succeeded since.
    pub fn last_error(&self) -> Option<String> {
        self.inner.following.last_error()
    }

    /// From here on `handler` is told of everything that goes wrong between this informer and its source, in place of
    /// the log. It may be set before the informer is started or at any time after; the last one set is told.
    pub fn on_watch_error(&self, handler: impl WatchErrorHandler) {
        self.inner.following.trouble.tell(Arc::new(handler));
    }

    /// How many times an index function panicked.
    pub fn index_panics(&self) -> u64 {
        self.inner.lock().writer.index_panics()
    }

    /// Whether the informer has been started, and is not stopped. Answered at once, however busy the informer
    /// is.
    pub fn is_running(&self) -> bool {
        self.inner.running.load(Ordering::Acquire)
    }

    /// Whether the informer is running and the tasks that follow its source are alive. They outlast every
    /// failure of the source, so an informer that is running and does not follow has met a defect, and only a
    /// new process will follow again. Answered at once, however busy the informer is.
    pub fn is_following(&self) -> bool {
        self.is_running() && !self.inner.unfollowed.is_cancelled()
    }

    /// Why changes may be missing right now, if the informer knows of a reason.
    pub fn trouble(&self) -> Option<String> {
        let dead = || (!self.is_following()).then(|| "it does not follow its source".to_owned());
        self.last_error().or_else(dead)
    }

    /// Returns for how long the informer has been stuck, if that is longer than two windows of a watch (400 s).
    ///
    /// It is stuck while one of its tasks is in code of others (an index function, a handler, and what they call) that
    /// does not return, and while its lists and watches do not complete although the source answers other requests of the
    /// process. A quiet watch, a source that is unreachable, and a source that answers with an error (429 included) do not
    /// count: a new process would not help. This call never blocks.
    pub fn stuck_for(&self) -> Option<Duration> {
        self.inner.stuck_for(self.inner.env.now())
    }

    /// Starts following its source, unless it was started or stopped before.
    pub(crate) fn start(&self, sources: Arc<dyn Sources>) {
        if !matches!(self.inner.lock().phase, Phase::Created(_)) {
            return;
        }
        // Users' code, which may panic: nothing has begun by then, and it may be asked again.
        let whom = match self.inner.members.clone() {
            Some(members) => Either::Left(members),
            None => Either::Right(self.inner.ask(&Partition::Whole, &*sources)),
        };
        let mut hub = self.inner.lock();
        let Phase::Created(waiting) = &mut hub.phase else { return };
        let handlers = std::mem::take(waiting);
        let admission = self.inner.admission(hub.transform.clone());
        let following = match whom {
            Either::Left(members) => self.inner.spawn_members(members, Feed { sources, admission }),
            Either::Right(given) => {
                self.inner.follow(Partition::Whole, given, admission, self.inner.stop.clone())
            }
        };
        let mut tasks = vec![following, self.inner.spawn_processing_loop()];
        tasks.extend(handlers.into_iter().map(|waiting| self.inner.spawn_handler(waiting)));
        hub.phase = Phase::Running(tasks);
        self.inner.running.store(true, Ordering::Release);
    }

    /// Stops everything, and returns once it has ended. Handlers finish the change they are being told of.
    ///
    /// # Cancel safety
    /// It is stopped at once; calling it again waits for the rest of the end.
    pub(crate) async fn stop(&self) {
        let (ended, never_ran) = {
            let mut hub = self.inner.lock();
            hub.processor.close();
            self.inner.running.store(false, Ordering::Release);
            hub.phase.stop()
        };
        // Users' code, too, and so not under the lock.
        drop(never_ran);
        self.inner.stop.cancel();
        self.inner.store.stop();
        self.inner.fifo.close();
        ended.await;
    }

    /// Whether it was stopped and nothing of it runs any more.
    pub(crate) fn has_ended(&self) -> bool {
        let ended = match &self.inner.lock().phase {
            Phase::Stopped(ended) => ended.clone(),
            Phase::Created(_) | Phase::Running(_) => return false,
        };
        ended.now_or_never().is_some()
    }

    /// What of it is in memory, without keeping it there.
    #[cfg(test)]
    pub(crate) fn remains(&self) -> std::sync::Weak<impl Sized + use<R>> {
        Arc::downgrade(&self.inner)
    }

    /// Returns whether the informer follows objects at `site`, or will: a namespace that joins counts before it is followed.
    pub fn expects<'a>(&self, site: impl Into<Site<'a>>) -> bool {
        self.inner.members.as_ref().is_none_or(|members| members.expects(site.into()))
    }

    /// Why there is no initial list yet, for each part that has none.
    pub fn laggards(&self) -> Vec<Laggard> {
        let (kind, selection) = (self.kind(), self.selection());
        let one = |lag| vec![Laggard { kind: kind.clone(), selection: selection.clone(), lag }];
        // Not waited for: an index function may be called under the lock, and not return. What runs has been started.
        let idle = match self.inner.hub.try_lock() {
            Ok(hub) => hub.phase.lag(),
            Err(TryLockError::Poisoned(hub)) => hub.into_inner().phase.lag(),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(lag) = idle {
            return one(lag);
        }
        let progress = self.inner.progress.get();
        let parts = self.inner.following.followers();
        let behind =
            parts.into_iter().map(|(partition, _)| partition).filter(|part| !progress.has_come(part));
        let laggard = |partition: Partition| Laggard {
            kind: kind.clone(),
            selection: self.inner.selection_of(&partition),
            lag: self.lag_of(&partition),
        };
        let laggards: Vec<Laggard> = behind.map(laggard).collect();
        if laggards.is_empty() { one(Lag::Listing) } else { laggards }
    }

    fn lag_of(&self, partition: &Partition) -> Lag {
        if let Some(refusal) = self.inner.budget.refused(partition) {
            return Lag::OverBudget(refusal);
        }
        match (self.inner.following.board.of(partition), self.inner.following.error_of(partition)) {
            (Presence::Absent, _) => Lag::Absent,
            (Presence::Forbidden(denial), _) => Lag::Forbidden(denial),
            (_, Some(last_error)) => Lag::Failing { last_error },
            (_, None) => Lag::Listing,
        }
    }

    /// Whether there is nothing to wait for: the initial list is there, or there will be none for want of a definition.
    pub(crate) fn is_settled(&self) -> bool {
        self.has_synced() || self.presence() == Presence::Absent
    }

    /// Waits until there is nothing to wait for; also ends when the informer does.
    pub(crate) async fn settled(&self) {
        let mut presence = self.presence_changes();
        let absent = presence.wait_until(|presence| *presence == Presence::Absent);
        future::select(pin!(self.synced()), pin!(absent)).await;
    }

    /// Has `witness` told of every object that changes from here on. Called by the processing loop, under no lock.
    pub(crate) fn witness(&self, witness: Witness) {
        self.inner.witnesses.lock().unwrap_or_else(PoisonError::into_inner).push(witness);
    }

    /// Whether both are of one informer.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl<T> Phase<T> {
    /// Why there is no list, if that is for want of tasks.
    fn lag(&self) -> Option<Lag> {
        match self {
            Phase::Created(_) => Some(Lag::NotStarted),
            Phase::Stopped(_) => Some(Lag::Stopped),
            Phase::Running(_) => None,
        }
    }

    /// Moves to the last phase. What it returns ends when every task has; with it the handlers that had none.
    fn stop(&mut self) -> (Ended, Vec<Waiting<T>>) {
        let mut never_ran = Vec::new();
        let ended: BoxFuture<'static, ()> = match std::mem::replace(self, Phase::Created(Vec::new())) {
            Phase::Stopped(ended) => ended.boxed(),
            Phase::Created(waiting) => {
                never_ran = waiting;
                future::ready(()).boxed()
            }
            Phase::Running(tasks) => async {
                for task in tasks {
                    // A panic in a task has been reported under its name by the Env.
                    let _ended = task.await;
                }
            }
            .boxed(),
        };
        let ended = ended.shared();
        *self = Phase::Stopped(ended.clone());
        (ended, never_ran)
    }
}

impl<R: Representation> Inner<R> {
    /// Waits until everything up to `wanted` is in the store of the part that holds what is at `site`.
    async fn reached_in(&self, site: Site<'_>, wanted: ResourceVersion) -> bool {
        // A part may be known to be wanted before it has joined.
        let joins = |site: Site<'_>| self.members.as_ref().is_some_and(|members| members.expects(site));
        sync::reached_in(self.progress.observe(), site, wanted, joins).await
    }

    fn spawn_processing_loop(self: &Arc<Self>) -> Task<()> {
        let (inner, alive) = (Arc::clone(self), self.unfollowed.clone().drop_guard());
        self.spawn("processing loop", async move {
            let _alive = alive;
            let known = Known { store: &inner.store, head: R::head };
            while inner.fifo.pop(&known, |batch| inner.process(batch)).await.is_ok() {
                yield_now().await;
            }
            // Readers may keep what it held; it is nothing that is kept in step any more.
            inner.objects.set(0);
            inner.queued.set(0);
            inner.budget.close();
        })
    }

    fn stuck_for(&self, now: Instant) -> Option<Duration> {
        let poll = self.polls.longest(now).filter(|poll| *poll > STUCK_AFTER);
        self.following.stuck_for(now).max(poll)
    }

    /// What a reflector's objects go through.
    fn admission(&self, transform: Option<Transform<R::Stored>>) -> Admission<R::Stored> {
        let keep_managed_fields = self.settings.keep_managed_fields;
        Admission { keep_managed_fields, transform, budget: Arc::clone(&self.budget) }
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
            Some(period) if period < Resync::SHORTEST => {
                Err(InformerError::ResyncTooShort { informer, handler, period })
            }
            period => Ok(period),
        }
    }

    /// The task of a handler, with the timer of its resyncs. That is the handler's own, so relists do not restart it.
    fn spawn_handler(&self, waiting: Waiting<R::Read>) -> Task<()> {
        let Waiting { listener, handler, resync } = waiting;
        let name = format!("handler {}", listener.name());
        if self.env.is_planted("synced too early") {
            listener.become_synced();
        }
        let (env, fifo, audience) = (self.env.clone(), Arc::clone(&self.fifo), listener.audience());
        let told = listener.run(handler);
        self.spawn(&name, async move {
            let Some(period) = resync else { return told.await };
            let ticks = async {
                loop {
                    env.sleep(period).await;
                    fifo.resync(audience);
                }
            };
            future::select(pin!(told), pin!(ticks)).await;
        })
    }

    fn spawn(&self, what: &str, future: impl Future<Output = ()> + Send + 'static) -> Task<()> {
        self.env.spawn(format!("informer {}: {what}", self.name), self.polls.timed(&self.env, future))
    }

    /// One turn of the processing loop: the store first, then those who wait for versions, then the handlers.
    fn process(&self, mut batch: Batch<R::Stored>) {
        let began = self.env.now();
        self.spoil(&mut batch);
        let changed;
        {
            let mut hub = self.lock();
            let panics = hub.writer.index_panics();
            let before = self.env.is_planted("handlers before store").then(|| hub.writer.snapshot());
            let filed = self.env.is_planted("index left behind").then(|| hub.writer.snapshot());
            let mut applied = hub.writer.apply(batch);
            if let (Some(before), Applied::Changes(_)) = (before, &applied) {
                self.store.put_back(before);
            }
            if let Some(before) = filed {
                self.store.file_as(&before);
            }
            if self.env.is_planted("quarantine forgotten") {
                self.store.forget_quarantine();
            }
            if self.env.is_planted("changes told backwards") {
                applied.reverse();
            }
            self.metrics.handler_panics.inc_by(hub.writer.index_panics() - panics);
            self.tell_progress(&hub.writer.snapshot());
            changed = self.witnessed(&applied, &hub.writer.snapshot());
            hub.distribute(applied);
        }
        self.tell_witnesses(&changed);
        self.queued.set(count(self.fifo.len()));
        let took = self.env.now().saturating_duration_since(began);
        self.metrics.processing_latency.observe(took.as_secs_f64());
    }

    /// Does to a batch what planted defects do.
    fn spoil(&self, batch: &mut Batch<R::Stored>) {
        if self.env.is_planted("dropped delete on relist") {
            batch.drop_vanished();
        }
        if self.env.is_planted("version moved back") {
            batch.turn_back();
        }
        if self.env.is_planted("what left is kept") {
            batch.keep_what_left();
        }
    }

    fn tell_progress(&self, snapshot: &Snapshot<R::Stored>) {
        self.objects.set(count(snapshot.objects().len()));
        let progress = snapshot.progress();
        if progress.is_still(&self.progress.get()) {
            return;
        }
        if let Some(version) = &progress.version {
            self.metrics.reached(version.as_str());
        }
        if progress.epoch != self.progress.get().epoch {
            self.following.distrust_old_epochs(progress);
        }
        self.progress.set(progress.clone());
    }

    /// What witnesses are to be told, if there are any.
    fn witnessed(&self, applied: &Applied<R::Stored>, snapshot: &Snapshot<R::Stored>) -> Vec<ObjectKey> {
        if self.witnesses.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Vec::new();
        }
        match applied {
            Applied::Again(_) => Vec::new(),
            Applied::Filled => snapshot.objects().keys().cloned().collect(),
            Applied::Changes(changes) => changes.iter().map(|change| change.key.clone()).collect(),
        }
    }

    fn tell_witnesses(&self, changed: &[ObjectKey]) {
        let witnesses = self.witnesses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (witness, key) in witnesses.iter().flat_map(|it| changed.iter().map(move |key| (it, key))) {
            witness(key);
        }
    }

    /// Code of others that runs under this lock is guarded (index functions), so poison cannot mean a broken
    /// hub.
    fn lock(&self) -> MutexGuard<'_, Hub<R>> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Representation> Hub<R> {
    /// Lets a handler in. What it is told from here on is what follows the snapshot it is given: no gap, no
    /// overlap.
    fn attach(&mut self, listener: &Arc<Listener<R::Read>>, task: Option<Task<()>>) {
        if let (Phase::Running(tasks), Some(task)) = (&mut self.phase, task) {
            tasks.retain(|task| !task.is_finished());
            tasks.push(task);
        }
        let snapshot = self.writer.snapshot();
        if !snapshot.objects().is_empty() {
            listener.replay(replay::<R>(Arc::clone(&snapshot)));
        }
        if snapshot.progress().synced {
            listener.initial_list_ended();
        }
        self.processor.add(Arc::clone(listener));
    }

    fn distribute(&mut self, applied: Applied<R::Stored>) {
        self.processor.forget_removed();
        if !self.processor.is_empty() {
            match applied {
                Applied::Filled => self.fill(),
                Applied::Changes(changes) => self.tell(changes),
                Applied::Again(audience) => self.look_again(audience),
            }
        }
        if self.writer.snapshot().progress().synced {
            self.processor.initial_list_ended();
        }
    }

    fn fill(&mut self) {
        let snapshot = self.writer.snapshot();
        self.processor.fill(|| replay::<R>(Arc::clone(&snapshot)));
    }

    fn look_again(&mut self, audience: Audience) {
        let snapshot = self.writer.snapshot();
        self.processor.resync(audience, || replay::<R>(Arc::clone(&snapshot)));
    }

    fn tell(&mut self, changes: Vec<Change<R::Stored>>) {
        for Change { key, uid, event } in changes {
            self.processor.distribute(&key, uid.as_ref(), &event.map(|stored| R::read(&stored)));
        }
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The objects of a snapshot in the order of their keys, each made not long before it is told.
fn replay<R: Representation>(snapshot: Arc<Snapshot<R::Stored>>) -> Replay<R::Read> {
    let mut told: Option<ObjectKey> = None;
    let chunks = std::iter::from_fn(move || {
        let untold = (told.as_ref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let rest = snapshot.objects().range::<_, ObjectKey>(untold).take(CHUNK);
        let (keys, objects): (Vec<_>, Vec<_>) = rest.map(|(key, object)| (key, R::read(object))).unzip();
        told = keys.last().map(|key| (*key).clone());
        told.is_some().then_some(objects)
    });
    Box::new(chunks.flatten())
}

impl<R: Representation> VersionSource for SharedInformer<R> {
    fn version(&self) -> Option<ResourceVersion> {
        SharedInformer::version(self)
    }

    fn epoch(&self) -> u64 {
        self.inner.progress.get().epoch
    }

    fn has_synced(&self) -> bool {
        SharedInformer::has_synced(self)
    }

    fn reached(&self, wanted: ResourceVersion, within: Duration) -> BoxFuture<'_, bool> {
        self.reached_in(Site::default(), wanted, within)
    }

    fn version_in(&self, site: Site<'_>) -> Option<ResourceVersion> {
        self.inner.progress.get().version_in(site).cloned()
    }

    fn reached_in<'a>(
        &'a self,
        site: Site<'a>,
        wanted: ResourceVersion,
        within: Duration,
    ) -> BoxFuture<'a, bool> {
        let reached = self.inner.reached_in(site, wanted);
        self.inner.env.timeout(within, reached).map(|outcome| outcome == Ok(true)).boxed()
    }

    fn request_refresh(&self, site: Site<'_>) -> RefreshTicket {
        self.inner.request_refresh(site, Urgency::Spaced)
    }

    fn refresh_state(&self, RefreshTicket(parts): &RefreshTicket) -> RefreshState {
        match parts.iter().all(|part| self.inner.is_refreshed(part)) {
            true => RefreshState::Done,
            false => RefreshState::Pending,
        }
    }

    fn refreshed_since(&self, RefreshTicket(parts): &RefreshTicket) -> BoxFuture<'_, ()> {
        let parts = Arc::clone(parts);
        async move {
            for part in &*parts {
                self.inner.refreshed(part).await;
            }
        }
        .boxed()
    }

    fn refreshed(&self) -> BoxFuture<'_, ()> {
        let ticket = self.inner.request_refresh(Site::default(), Urgency::Urgent);
        async move {
            if !self.is_running() {
                return future::pending().await;
            }
            let stopped = pin!(self.inner.stop.cancelled());
            future::select(stopped, self.refreshed_since(&ticket)).await;
        }
        .boxed()
    }
}

impl<R: Representation> Clone for SharedInformer<R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<R: Representation> fmt::Debug for SharedInformer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer")
            .field("name", &self.inner.name)
            .field("progress", &self.inner.progress.get())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
