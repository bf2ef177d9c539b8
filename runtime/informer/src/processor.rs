//! Delivers every change to every handler of an informer, at the pace of each handler.
//!
//! Guarantees:
//! - A handler delays only itself: it runs in its own task, and its changes are collected while it is busy.
//! - Pending changes keep the path of their object, that is, of one key and UID. A handler receives every state that
//!   the store contained, each as an update from the previous state. A label that was set and removed, or removed
//!   before its object was deleted, is delivered however late.
//! - The number of pending states does not depend on the number of changes: at most sixteen states of one object are
//!   pending. Above that, the oldest intermediate states are dropped and logged; see [`pending`].
//! - The number of pending objects is limited to the objects that exist or that the handler knows, plus [`MAX_UNSEEN`]
//!   objects that were created and deleted before the handler received an event for them. Above that, the oldest of
//!   these are dropped and logged, and the handler is [notified](Handler::missed).
//! - Changes of different UIDs are never merged: a recreated object is a deletion and an addition.
//! - The deletion of an object that the handler knows is always delivered.
//! - Changes of one key are delivered in order. A pending object keeps its position in the queue when it changes again,
//!   so it is not delayed indefinitely.
//! - A handler with [`Delivery::EveryEvent`] receives every change in the order across all objects. If more changes are
//!   pending than its bound, it is removed with a reason. Other handlers are not affected.
//! - If a handler panics, the panic is counted and the next event is delivered. The handler still becomes synced.
//! - Existing objects are delivered from a snapshot when a handler is added and when the initial list arrives. The
//!   snapshot blocks no other handler and needs no memory per object; later changes are queued behind it. A resync
//!   works the same way: at most one is pending, and none before the handler is synced.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError};

use tokio::sync::Notify;
use windlass_env::catch_panic_sync;
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_metrics::InformerMetrics;
use windlass_object::{ObjectKey, Uid};

use self::pending::Pending;
use crate::delta_fifo::ResyncTarget;
use crate::handler::{Cause, Delivery, Event, Handler, HandlerFailure};
use crate::lock::{Mutex, MutexGuard};
use crate::yield_now::yield_now;

// The explicit path is for the models of the fan-out (`tests/models`), which compile this file.
#[path = "processor/pending.rs"]
mod pending;

/// The number of events after which a handler's task lets other tasks run.
const BURST: usize = 64;

/// The maximum number of pending objects that were created and deleted unseen. A slow handler does not reach it.
const MAX_UNSEEN: usize = 4_096;

/// The objects of a snapshot, created one by one during delivery.
pub(crate) type Replay<T> = Box<dyn Iterator<Item = T> + Send>;

thread_local! {
    /// The address of the listener whose handler this thread is calling. A call returns on the thread that started it,
    /// so this value shows whether code runs within a call.
    static CALLING: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The progress of a handler with the initial list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandlerState {
    /// The handler has not received the whole initial list.
    Waiting,
    /// The handler has received the initial list.
    Synced,
    /// The handler receives no further events, but a call of it might still be running.
    Removed,
    /// The handler receives no further events, and no call of it is running.
    Stopped,
}

/// Control over a handler, independent of its object type.
pub(crate) trait HandlerControl: Send + Sync {
    fn detach(&self);
    /// Returns whether the calling code runs within a call of the handler.
    fn is_calling_here(&self) -> bool;
    /// Returns why the handler was removed, if the informer removed it.
    fn failure(&self) -> Option<HandlerFailure>;
}

/// The handlers of one informer.
#[derive(Debug)]
pub(crate) struct Processor<T> {
    listeners: Vec<Arc<Listener<T>>>,
}

/// One handler's queue.
pub(crate) struct Listener<T> {
    name: String,
    /// The number of the handler within its informer.
    number: u64,
    delivery: Delivery,
    failure: OnceLock<HandlerFailure>,
    queue: Mutex<Queue<T>>,
    arrived: Notify,
    state: Sender<HandlerState>,
    metrics: InformerMetrics,
}

struct Queue<T> {
    /// The pending work, by position in the queue.
    waiting: BTreeMap<u64, HandlerWork<T>>,
    /// The number of entries that are not changes: snapshots and parts of an initial list.
    unchanged: usize,
    /// The last position of each key. Only that entry can be extended, and only if no snapshot is queued behind it.
    latest: BTreeMap<ObjectKey, u64>,
    /// The positions of objects that were created and deleted unseen.
    unseen: BTreeSet<u64>,
    /// Whether such an object was dropped since the last call of [`Handler::missed`].
    missed: bool,
    next_position: u64,
    /// The first position behind the initial list, once the list has been queued.
    initial_list_ends: Option<u64>,
    /// Whether the handler has a task.
    runs: bool,
}

/// The next work of a handler's task.
enum HandlerWork<T> {
    /// Deliver these objects as additions.
    Replay(Replay<T>),
    /// Deliver these objects as resyncs.
    Resync(Replay<T>),
    /// Deliver the changes of one object.
    Deliver(Pending<T>),
    /// Report that unseen objects were dropped.
    Missed,
}

/// The outcome of queueing a change.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum EnqueueOutcome {
    Queued,
    /// Queued; an intermediate state was dropped.
    StateDropped,
    /// The change deletes an unseen object; an older unseen object was dropped for it.
    Missed,
    /// The bound of the handler is reached.
    Full,
}

impl<T: Clone + Send + Sync + 'static> Processor<T> {
    pub(crate) fn new() -> Self {
        Self { listeners: Vec::new() }
    }

    pub(crate) fn add(&mut self, listener: Arc<Listener<T>>) {
        self.forget_removed();
        self.listeners.push(listener);
    }

    /// Queues a change for every handler.
    pub(crate) fn distribute(&mut self, key: &ObjectKey, uid: Option<&Uid>, event: &Event<T>) {
        for listener in &self.listeners {
            listener.enqueue(key, uid, event.clone());
        }
    }

    /// Queues the initial list for every handler, from a snapshot.
    pub(crate) fn fill(&mut self, mut replay: impl FnMut() -> Replay<T>) {
        for listener in &self.listeners {
            listener.replay(replay());
        }
    }

    /// Records that the initial list has been queued for every handler.
    pub(crate) fn initial_list_ended(&self) {
        for listener in &self.listeners {
            listener.initial_list_ended();
        }
    }

    /// Queues a resync from a snapshot for the handlers in `target`.
    pub(crate) fn resync(&self, target: ResyncTarget, mut everything: impl FnMut() -> Replay<T>) {
        for listener in self.listeners.iter().filter(|listener| listener.is_among(target)) {
            listener.resync(&mut everything);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    pub(crate) fn forget_removed(&mut self) {
        self.listeners.retain(|listener| !listener.is_removed());
    }

    /// Removes every handler.
    pub(crate) fn close(&mut self) {
        for listener in self.listeners.drain(..) {
            listener.detach();
        }
    }
}

impl<T: Clone + Send + Sync + 'static> Listener<T> {
    pub(crate) fn new(name: &str, number: u64, delivery: Delivery, metrics: InformerMetrics) -> Self {
        Self {
            name: name.to_owned(),
            number,
            delivery,
            failure: OnceLock::new(),
            queue: Mutex::default(),
            arrived: Notify::new(),
            state: channel(HandlerState::Waiting).0,
            metrics,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the target of resyncs for this handler only.
    pub(crate) fn resync_target(&self) -> ResyncTarget {
        ResyncTarget::Only(self.number)
    }

    pub(crate) fn state(&self) -> Receiver<HandlerState> {
        self.state.subscribe()
    }

    /// Queues a change. If changes of the same object are pending, it joins them at their position.
    pub(crate) fn enqueue(&self, key: &ObjectKey, uid: Option<&Uid>, event: Event<T>) {
        let pushed = {
            let mut queue = self.lock();
            // Checked under the lock: an entry that is queued after the removal would never be dequeued.
            if self.is_removed() {
                return;
            }
            queue.push(key, uid, event, self.delivery)
        };
        self.arrived.notify_one();
        match pushed {
            EnqueueOutcome::Queued => {}
            EnqueueOutcome::StateDropped => {
                tracing::debug!(handler = self.name, %key, "slow handler misses an intermediate state");
            }
            EnqueueOutcome::Missed => {
                tracing::warn!(
                    handler = self.name,
                    "slow handler misses objects that were created and deleted"
                );
            }
            EnqueueOutcome::Full => self.remove_slow_handler(),
        }
    }

    /// Queues all existing objects. Only for a handler that has received no event yet.
    pub(crate) fn replay(&self, objects: Replay<T>) {
        let mut queue = self.lock();
        if !self.is_removed() {
            queue.append_snapshot(HandlerWork::Replay(objects));
            self.arrived.notify_one();
        }
    }

    /// Queues a resync, unless one is pending or the handler is not synced.
    fn resync(&self, everything: impl FnOnce() -> Replay<T>) {
        let mut queue = self.lock();
        if self.state.get() == HandlerState::Synced
            && !queue.waiting.values().any(|work| matches!(work, HandlerWork::Resync(_)))
        {
            queue.append_snapshot(HandlerWork::Resync(everything()));
            self.arrived.notify_one();
        }
    }

    fn is_among(&self, target: ResyncTarget) -> bool {
        match target {
            ResyncTarget::All => true,
            ResyncTarget::Only(number) => number == self.number,
        }
    }

    /// Removes a handler that would miss a change otherwise.
    fn remove_slow_handler(&self) {
        let Delivery::EveryEvent { bound } = self.delivery else { return };
        if self.is_removed() {
            return;
        }
        let failure = HandlerFailure::Overflow { handler: self.name.clone(), bound };
        tracing::error!(handler = self.name, error = %failure, "slow handler removed");
        self.metrics.handler_overflows.inc();
        // Only the processing loop queues changes, so the cell is still empty.
        let _first = self.failure.set(failure);
        self.detach();
    }

    /// Records that the whole initial list has been queued.
    pub(crate) fn initial_list_ended(&self) {
        let mut queue = self.lock();
        if queue.initial_list_ends.is_none() {
            queue.initial_list_ends = Some(queue.next_position);
            self.arrived.notify_one();
        }
    }

    /// Delivers events to the handler until it is removed. The handler counts as running from this call on, not from
    /// the first poll. It reaches [`HandlerState::Stopped`] when the returned future completes or is dropped.
    pub(crate) fn run(self: Arc<Self>, handler: Box<dyn Handler<T>>) -> impl Future<Output = ()> + Send {
        let task = HandlerGuard::begin(&self).map(|running| HandlerTask { handler, running });
        async move {
            let Some(mut task) = task else { return };
            let (listener, handler) = (Arc::clone(&task.running.0), &mut *task.handler);
            let mut delivered = 0;
            while let Some(work) = listener.next().await {
                match work {
                    HandlerWork::Replay(objects) => {
                        listener.deliver_all(handler, additions(objects), &mut delivered).await;
                    }
                    HandlerWork::Resync(objects) => {
                        listener.deliver_all(handler, resyncs(objects), &mut delivered).await;
                    }
                    HandlerWork::Deliver(pending) => {
                        listener.deliver_all(handler, pending.into_events(), &mut delivered).await;
                    }
                    HandlerWork::Missed => listener.call(|| handler.missed()),
                }
            }
        }
    }

    /// Delivers these events and lets other tasks run every [`BURST`] events. `delivered` counts the delivered events.
    async fn deliver_all(
        &self,
        handler: &mut dyn Handler<T>,
        events: impl Iterator<Item = Event<T>> + Send,
        delivered: &mut usize,
    ) {
        for event in events {
            self.call(|| handler.handle(&event));
            *delivered += 1;
            if delivered.is_multiple_of(BURST) {
                yield_now().await;
            }
        }
    }

    /// Calls the handler, unless it has been removed.
    fn call(&self, call: impl FnOnce()) {
        if self.is_removed() {
            return;
        }
        let outer = CALLING.replace(Some(self.address()));
        let outcome = catch_panic_sync(call);
        CALLING.set(outer);
        if let Err(message) = outcome {
            self.metrics.handler_panics.inc();
            tracing::error!(handler = self.name, message, "handler panicked; continuing with the next event");
        }
    }

    /// Returns the next work, or `None` once the handler is removed. All previous work has been delivered by then.
    async fn next(&self) -> Option<HandlerWork<T>> {
        loop {
            let arrived = self.arrived.notified();
            if self.is_removed() {
                return None;
            }
            let (initial_list_was_delivered, work) = {
                let mut queue = self.lock();
                (queue.initial_list_was_delivered(), queue.take())
            };
            if initial_list_was_delivered {
                self.become_synced();
            }
            if work.is_some() {
                return work;
            }
            arrived.await;
        }
    }

    pub(crate) fn become_synced(&self) {
        if self.state.get() != HandlerState::Waiting {
            return;
        }
        self.state.send_modify(|state| {
            // Checked again under the channel's lock: a handler that was removed meanwhile stays removed.
            if *state == HandlerState::Waiting {
                *state = HandlerState::Synced;
            }
        });
    }

    /// Drops the pending work. Dropping it can run user code, so that happens without the lock.
    pub(crate) fn drop_pending(&self) {
        let waiting = {
            let mut queue = self.lock();
            queue.unchanged = 0;
            queue.latest.clear();
            queue.unseen.clear();
            queue.missed = false;
            std::mem::take(&mut queue.waiting)
        };
        drop(waiting);
    }

    pub(crate) fn is_removed(&self) -> bool {
        matches!(self.state.get(), HandlerState::Removed | HandlerState::Stopped)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// No user code runs under this lock, so poison cannot mean a broken queue.
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone + Send + Sync + 'static> HandlerControl for Listener<T> {
    fn detach(&self) {
        let queue = self.lock();
        let end = if queue.runs { HandlerState::Removed } else { HandlerState::Stopped };
        if self.state.get() != HandlerState::Stopped {
            self.state.set(end);
        }
        drop(queue);
        self.drop_pending();
        self.arrived.notify_one();
    }

    fn is_calling_here(&self) -> bool {
        CALLING.get() == Some(self.address())
    }

    fn failure(&self) -> Option<HandlerFailure> {
        self.failure.get().cloned()
    }
}

/// The state of a handler's task, in drop order: the handler is dropped before it is reported as gone.
struct HandlerTask<T> {
    handler: Box<dyn Handler<T>>,
    running: HandlerGuard<T>,
}

/// A guard of a running handler. When it is dropped, for whatever reason, the handler is gone.
struct HandlerGuard<T>(Arc<Listener<T>>);

impl<T: Clone + Send + Sync + 'static> HandlerGuard<T> {
    /// Returns `None` if the handler was removed before its task started.
    fn begin(listener: &Arc<Listener<T>>) -> Option<Self> {
        let mut queue = listener.lock();
        queue.runs = !listener.is_removed();
        // Created only if it is returned, because its `Drop` takes the lock.
        queue.runs.then(|| Self(Arc::clone(listener)))
    }
}

impl<T> Drop for HandlerGuard<T> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.runs = false;
        self.0.state.set(HandlerState::Stopped);
    }
}

impl<T: Clone> Queue<T> {
    fn push(
        &mut self,
        key: &ObjectKey,
        uid: Option<&Uid>,
        event: Event<T>,
        delivery: Delivery,
    ) -> EnqueueOutcome {
        if let Delivery::EveryEvent { bound } = delivery {
            if event.cause() != Cause::InitialList && self.changes() >= bound.max(1) {
                return EnqueueOutcome::Full;
            }
        } else if let Some((position, waiting)) = self.extendable(key, uid) {
            let fits = waiting.add(event);
            let unseen = waiting.is_undelivered_deletion();
            let missed = self.track_unseen(position, unseen);
            return match (missed, fits) {
                (true, _) => EnqueueOutcome::Missed,
                (false, true) => EnqueueOutcome::Queued,
                (false, false) => EnqueueOutcome::StateDropped,
            };
        }
        let position = self.append(HandlerWork::Deliver(Pending::new(key.clone(), uid.cloned(), event)));
        if delivery == Delivery::Coalesced {
            self.latest.insert(key.clone(), position);
        }
        EnqueueOutcome::Queued
    }

    /// Returns the pending changes of the object that can be extended.
    fn extendable(&mut self, key: &ObjectKey, uid: Option<&Uid>) -> Option<(u64, &mut Pending<T>)> {
        let position = *self.latest.get(key)?;
        match self.waiting.get_mut(&position)? {
            HandlerWork::Deliver(pending) if pending.takes(uid) => Some((position, pending)),
            HandlerWork::Deliver(_)
            | HandlerWork::Replay(_)
            | HandlerWork::Resync(_)
            | HandlerWork::Missed => None,
        }
    }

    /// Records whether the entry at a position is an object that was created and deleted unseen. If there are too many
    /// of these, drops the oldest. Returns `true` if it is the first drop since the handler was last notified.
    fn track_unseen(&mut self, position: u64, unseen: bool) -> bool {
        match unseen {
            true => self.unseen.insert(position),
            false => self.unseen.remove(&position),
        };
        if self.unseen.len() <= MAX_UNSEEN {
            return false;
        }
        let Some(oldest) = self.unseen.first().copied() else { return false };
        // States of user types are dropped under the lock here, as intermediate states are.
        let _dropped = self.take_at(oldest);
        !std::mem::replace(&mut self.missed, true)
    }

    /// Returns the number of pending changes, without objects that existed before.
    fn changes(&self) -> usize {
        self.waiting.len() - self.unchanged
    }

    /// Queues a snapshot. Later changes must be delivered after it, so no earlier entry is extended.
    fn append_snapshot(&mut self, work: HandlerWork<T>) {
        self.latest.clear();
        self.append(work);
    }

    fn append(&mut self, work: HandlerWork<T>) -> u64 {
        let position = self.next_position;
        self.next_position += 1;
        self.unchanged += usize::from(work.is_unchanged());
        self.waiting.insert(position, work);
        position
    }

    fn take(&mut self) -> Option<HandlerWork<T>> {
        if std::mem::take(&mut self.missed) {
            return Some(HandlerWork::Missed);
        }
        let position = *self.waiting.first_key_value()?.0;
        self.take_at(position)
    }

    fn take_at(&mut self, position: u64) -> Option<HandlerWork<T>> {
        let work = self.waiting.remove(&position)?;
        self.unseen.remove(&position);
        self.unchanged -= usize::from(work.is_unchanged());
        if let HandlerWork::Deliver(pending) = &work
            && self.latest.get(pending.key()) == Some(&position)
        {
            self.latest.remove(pending.key());
        }
        Some(work)
    }

    /// Returns whether no entry of the initial list is pending.
    fn initial_list_was_delivered(&self) -> bool {
        let Some(end) = self.initial_list_ends else { return false };
        self.waiting.first_key_value().is_none_or(|(position, _)| *position >= end)
    }
}

impl<T: Clone> HandlerWork<T> {
    /// Returns whether the work is not a change, from the view of the handler.
    fn is_unchanged(&self) -> bool {
        match self {
            HandlerWork::Replay(_) | HandlerWork::Resync(_) => true,
            HandlerWork::Deliver(pending) => pending.is_initial(),
            HandlerWork::Missed => false,
        }
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            unchanged: 0,
            latest: BTreeMap::new(),
            unseen: BTreeSet::new(),
            missed: false,
            next_position: 0,
            initial_list_ends: None,
            runs: false,
        }
    }
}

/// Returns the events for the objects that existed before the handler.
fn additions<T>(objects: Replay<T>) -> impl Iterator<Item = Event<T>> + Send {
    objects.map(|object| Event::Added { object, cause: Cause::InitialList })
}

/// Returns the events of a resync.
fn resyncs<T: Clone>(objects: Replay<T>) -> impl Iterator<Item = Event<T>> + Send {
    objects.map(|object| Event::Updated { old: object.clone(), new: object, cause: Cause::Resync })
}

impl<T> fmt::Debug for Listener<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
