//! Fan-out: every handler of an informer is told of every change, each at its own pace.
//!
//! Guarantees:
//! - A handler delays only itself: it runs in its own task, and its changes are gathered while it is
//!   busy.
//! - Gathered changes keep the path of their object, that is of one key and UID: a handler is told every
//!   state the store went through, each from the one before it. A label that came and went, and a label that
//!   went before its object did, are told however late.
//! - The number of waiting states does not depend on the number of changes: of one object at most sixteen states wait.
//!   Beyond that the oldest in between are dropped, which is logged; see [`pending`].
//! - The number of waiting objects is bounded by the number of objects that exist or that the handler knows, and
//!   [`MAX_UNSEEN`] objects that came and went before the handler received an event for them. Beyond that the oldest of
//!   these are dropped, which is logged, and the handler is [told](Handler::missed) that it missed some.
//! - Changes of different UIDs are never merged: a recreated object is a deletion and an addition.
//! - The deletion of an object that the handler knows is always told.
//! - For one key, changes are told in the order they happened; an object that waits keeps its place in the
//!   queue when it changes again, so nothing is put off forever.
//! - A handler that asked for every event is told every change in the order of all of them, or ended with a
//!   reason once more of them wait than it allowed. That harms nobody else.
//! - A handler that panics is counted, and told the next change. It still becomes synced.
//! - What was there when a handler came (or when the initial list arrived) is told from a snapshot, which
//!   holds up nobody and takes no memory per object; later changes wait behind it. So is a resync, of which at most
//!   one waits, and none before the handler is synced.

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
use crate::sync::yield_now;

// The path is spelled out for the models of the fan-out (`tests/models`), which compile this very file.
#[path = "processor/pending.rs"]
mod pending;

/// How many changes a handler is told before it lets other tasks run.
const BURST: usize = 64;

/// How many objects wait that came and went unseen: more than come and go while a handler is merely slow.
const MAX_UNSEEN: usize = 4_096;

/// The objects of a snapshot, made one by one as they are told.
pub(crate) type Replay<T> = Box<dyn Iterator<Item = T> + Send>;

thread_local! {
    /// The listener whose handler this thread is calling right now, by its address. A call ends on the thread it began
    /// on, so this says whether code runs within a call.
    static CALLING: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Where a handler stands with regard to the initial list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandlerState {
    /// It has not been told of all of it.
    Waiting,
    /// It has.
    Synced,
    /// It is told nothing any more, but a call of it may still be running.
    Removed,
    /// It is told nothing any more, and no call of it is running.
    Gone,
}

/// Cuts a handler off, whatever it handles.
pub(crate) trait HandlerControl: Send + Sync {
    fn detach(&self);
    /// Whether the caller's code runs within a call of the handler.
    fn is_calling_here(&self) -> bool;
    /// Why it was ended, if it was.
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
    /// Tells it from the others of its informer.
    number: u64,
    delivery: Delivery,
    failure: OnceLock<HandlerFailure>,
    queue: Mutex<Queue<T>>,
    arrived: Notify,
    state: Sender<HandlerState>,
    metrics: InformerMetrics,
}

struct Queue<T> {
    /// What waits, by place in the queue.
    waiting: BTreeMap<u64, HandlerWork<T>>,
    /// How much of it is no news: snapshots, and what is part of an initial list.
    no_news: usize,
    /// The place of what waits last for each key. Only that may be continued, and only if no snapshot waits behind it.
    latest: BTreeMap<ObjectKey, u64>,
    /// The places of objects that came and went unseen.
    unseen: BTreeSet<u64>,
    /// Whether such an object was dropped since the handler was last told so.
    missed: bool,
    next_place: u64,
    /// The first place behind the initial list, once that has been queued.
    initial_list_ends: Option<u64>,
    /// Whether the handler has a task.
    runs: bool,
}

/// What a handler's task does next.
enum HandlerWork<T> {
    /// These are there.
    Replay(Replay<T>),
    /// These are there still.
    Resync(Replay<T>),
    /// This changed.
    Tell(Pending<T>),
    /// Objects that came and went were dropped.
    Missed,
}

/// What became of a change that was to be queued.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum EnqueueOutcome {
    Queued,
    /// It took the place of a state in between.
    QueuedForAnother,
    /// It is the end of an object that nobody saw, for which another such object was dropped.
    Missed,
    /// As many wait as may.
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

    /// Notes that the initial list has been queued for every handler.
    pub(crate) fn initial_list_ended(&self) {
        for listener in &self.listeners {
            listener.initial_list_ended();
        }
    }

    /// Queues another look at everything for those who are to take it, from a snapshot.
    pub(crate) fn resync(&self, audience: ResyncTarget, mut everything: impl FnMut() -> Replay<T>) {
        for listener in self.listeners.iter().filter(|listener| listener.is_among(audience)) {
            listener.resync(&mut everything);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    pub(crate) fn forget_removed(&mut self) {
        self.listeners.retain(|listener| !listener.is_removed());
    }

    /// Cuts every handler off.
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

    /// Whom a resync for this handler alone is for.
    pub(crate) fn audience(&self) -> ResyncTarget {
        ResyncTarget::Only(self.number)
    }

    pub(crate) fn state(&self) -> Receiver<HandlerState> {
        self.state.subscribe()
    }

    /// Queues a change, behind what already waits of the same object and in its place.
    pub(crate) fn enqueue(&self, key: &ObjectKey, uid: Option<&Uid>, event: Event<T>) {
        let pushed = {
            let mut queue = self.lock();
            // Looked at under the lock: nothing would ever take out again what is queued after the end.
            if self.is_removed() {
                return;
            }
            queue.push(key, uid, event, self.delivery)
        };
        self.arrived.notify_one();
        match pushed {
            EnqueueOutcome::Queued => {}
            EnqueueOutcome::QueuedForAnother => {
                tracing::debug!(handler = self.name, %key, "a slow handler misses a state in between");
            }
            EnqueueOutcome::Missed => {
                tracing::warn!(handler = self.name, "slow handler misses objects that came and went");
            }
            EnqueueOutcome::Full => self.fell_behind(),
        }
    }

    /// Queues everything there is. Only for a handler that was told nothing yet.
    pub(crate) fn replay(&self, objects: Replay<T>) {
        let mut queue = self.lock();
        if !self.is_removed() {
            queue.append_snapshot(HandlerWork::Replay(objects));
            self.arrived.notify_one();
        }
    }

    /// Queues another look at everything, unless one waits already or the handler has not even taken the first.
    fn resync(&self, everything: impl FnOnce() -> Replay<T>) {
        let mut queue = self.lock();
        if self.state.get() == HandlerState::Synced
            && !queue.waiting.values().any(|work| matches!(work, HandlerWork::Resync(_)))
        {
            queue.append_snapshot(HandlerWork::Resync(everything()));
            self.arrived.notify_one();
        }
    }

    fn is_among(&self, audience: ResyncTarget) -> bool {
        match audience {
            ResyncTarget::Everyone => true,
            ResyncTarget::Only(number) => number == self.number,
        }
    }

    /// Ends a handler that would miss something otherwise.
    fn fell_behind(&self) {
        let Delivery::EveryEvent { bound } = self.delivery else { return };
        if self.is_removed() {
            return;
        }
        let failure = HandlerFailure::FellBehind { handler: self.name.clone(), bound };
        tracing::error!(handler = self.name, error = %failure, "a handler is ended");
        self.metrics.handler_overflows.inc();
        // Only the processing loop queues changes, so nobody else can have said why.
        let _first = self.failure.set(failure);
        self.detach();
    }

    /// Notes that all of the initial list has been queued.
    pub(crate) fn initial_list_ended(&self) {
        let mut queue = self.lock();
        if queue.initial_list_ends.is_none() {
            queue.initial_list_ends = Some(queue.next_place);
            self.arrived.notify_one();
        }
    }

    /// Tells the handler, until it is removed. The handler counts as running from this call on, not from the first poll:
    /// until what this returns has ended or was dropped, it is not gone.
    pub(crate) fn run(self: Arc<Self>, handler: Box<dyn Handler<T>>) -> impl Future<Output = ()> + Send {
        let task = HandlerGuard::begin(&self).map(|running| HandlerTask { handler, running });
        async move {
            let Some(mut task) = task else { return };
            let (listener, handler) = (Arc::clone(&task.running.0), &mut *task.handler);
            let mut told = 0;
            while let Some(work) = listener.next().await {
                match work {
                    HandlerWork::Replay(objects) => {
                        listener.tell_each(handler, additions(objects), &mut told).await;
                    }
                    HandlerWork::Resync(objects) => {
                        listener.tell_each(handler, resyncs(objects), &mut told).await
                    }
                    HandlerWork::Tell(pending) => {
                        listener.tell_each(handler, pending.into_events(), &mut told).await;
                    }
                    HandlerWork::Missed => listener.call(|| handler.missed()),
                }
            }
        }
    }

    /// Tells the handler these events, letting other tasks run every so often. `told` counts what it was told.
    async fn tell_each(
        &self,
        handler: &mut dyn Handler<T>,
        events: impl Iterator<Item = Event<T>> + Send,
        told: &mut usize,
    ) {
        for event in events {
            self.tell(handler, &event);
            *told += 1;
            if told.is_multiple_of(BURST) {
                yield_now().await;
            }
        }
    }

    /// Tells the handler one event, unless it was removed meanwhile.
    fn tell(&self, handler: &mut dyn Handler<T>, event: &Event<T>) {
        self.call(|| handler.handle(event));
    }

    /// Calls the handler, unless it was removed meanwhile.
    fn call(&self, call: impl FnOnce()) {
        if self.is_removed() {
            return;
        }
        let outer = CALLING.replace(Some(self.address()));
        let outcome = catch_panic_sync(call);
        CALLING.set(outer);
        if let Err(message) = outcome {
            self.metrics.handler_panics.inc();
            tracing::error!(handler = self.name, message, "a handler panicked; it is told the next change");
        }
    }

    /// The next work; `None` once the handler is removed. Everything handed out before has been told by then.
    async fn next(&self) -> Option<HandlerWork<T>> {
        loop {
            let arrived = self.arrived.notified();
            if self.is_removed() {
                return None;
            }
            let (initial_list_was_told, work) = {
                let mut queue = self.lock();
                (queue.initial_list_was_told(), queue.take())
            };
            if initial_list_was_told {
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
            // Looked at again under the cell's lock: a handler removed meanwhile stays removed.
            if *state == HandlerState::Waiting {
                *state = HandlerState::Synced;
            }
        });
    }

    /// Forgets what has not been told. What waits may be code of others to drop, so that is done without the lock.
    pub(crate) fn lose_what_waits(&self) {
        let waiting = {
            let mut queue = self.lock();
            queue.no_news = 0;
            queue.latest.clear();
            queue.unseen.clear();
            queue.missed = false;
            std::mem::take(&mut queue.waiting)
        };
        drop(waiting);
    }

    pub(crate) fn is_removed(&self) -> bool {
        matches!(self.state.get(), HandlerState::Removed | HandlerState::Gone)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// No code of others runs under this lock, so poison cannot mean a broken queue.
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone + Send + Sync + 'static> HandlerControl for Listener<T> {
    fn detach(&self) {
        let queue = self.lock();
        let end = if queue.runs { HandlerState::Removed } else { HandlerState::Gone };
        if self.state.get() != HandlerState::Gone {
            self.state.set(end);
        }
        drop(queue);
        self.lose_what_waits();
        self.arrived.notify_one();
    }

    fn is_calling_here(&self) -> bool {
        CALLING.get() == Some(self.address())
    }

    fn failure(&self) -> Option<HandlerFailure> {
        self.failure.get().cloned()
    }
}

/// What a handler's task owns, in the order in which it is dropped: who is said to be gone has been dropped.
struct HandlerTask<T> {
    handler: Box<dyn Handler<T>>,
    running: HandlerGuard<T>,
}

/// While there is one, the handler has a task; its end, of whatever kind, is the end of the handler.
struct HandlerGuard<T>(Arc<Listener<T>>);

impl<T: Clone + Send + Sync + 'static> HandlerGuard<T> {
    /// Nothing if the handler was removed before it began.
    fn begin(listener: &Arc<Listener<T>>) -> Option<Self> {
        let mut queue = listener.lock();
        queue.runs = !listener.is_removed();
        // Made only if it is kept: its end takes the lock.
        queue.runs.then(|| Self(Arc::clone(listener)))
    }
}

impl<T> Drop for HandlerGuard<T> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.runs = false;
        self.0.state.set(HandlerState::Gone);
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
        } else if let Some((place, waiting)) = self.continued(key, uid) {
            let fits = waiting.add(event);
            let unseen = waiting.is_unseen_and_gone();
            let missed = self.note_unseen(place, unseen);
            return match (missed, fits) {
                (true, _) => EnqueueOutcome::Missed,
                (false, true) => EnqueueOutcome::Queued,
                (false, false) => EnqueueOutcome::QueuedForAnother,
            };
        }
        let place = self.append(HandlerWork::Tell(Pending::new(key.clone(), uid.cloned(), event)));
        if delivery == Delivery::Coalesced {
            self.latest.insert(key.clone(), place);
        }
        EnqueueOutcome::Queued
    }

    /// What waits of the object and may be continued.
    fn continued(&mut self, key: &ObjectKey, uid: Option<&Uid>) -> Option<(u64, &mut Pending<T>)> {
        let place = *self.latest.get(key)?;
        match self.waiting.get_mut(&place)? {
            HandlerWork::Tell(pending) if pending.takes(uid) => Some((place, pending)),
            HandlerWork::Tell(_) | HandlerWork::Replay(_) | HandlerWork::Resync(_) | HandlerWork::Missed => {
                None
            }
        }
    }

    /// Notes whether what waits at a place came and went unseen. Drops the oldest of such if there are too many; `true` if
    /// it is the first since the handler was told that it missed some.
    fn note_unseen(&mut self, place: u64, unseen: bool) -> bool {
        match unseen {
            true => self.unseen.insert(place),
            false => self.unseen.remove(&place),
        };
        if self.unseen.len() <= MAX_UNSEEN {
            return false;
        }
        let Some(oldest) = self.unseen.first().copied() else { return false };
        // States of users' types are dropped here, under the lock, as those in between are.
        let _dropped = self.take_at(oldest);
        !std::mem::replace(&mut self.missed, true)
    }

    /// How many changes wait, if each waits for itself. What was there before does not count.
    fn changes(&self) -> usize {
        self.waiting.len() - self.no_news
    }

    /// Queues a snapshot. What happens later must be told behind it, so nothing that waits is continued.
    fn append_snapshot(&mut self, work: HandlerWork<T>) {
        self.latest.clear();
        self.append(work);
    }

    fn append(&mut self, work: HandlerWork<T>) -> u64 {
        let place = self.next_place;
        self.next_place += 1;
        self.no_news += usize::from(work.is_no_news());
        self.waiting.insert(place, work);
        place
    }

    fn take(&mut self) -> Option<HandlerWork<T>> {
        if std::mem::take(&mut self.missed) {
            return Some(HandlerWork::Missed);
        }
        let place = *self.waiting.first_key_value()?.0;
        self.take_at(place)
    }

    fn take_at(&mut self, place: u64) -> Option<HandlerWork<T>> {
        let work = self.waiting.remove(&place)?;
        self.unseen.remove(&place);
        self.no_news -= usize::from(work.is_no_news());
        if let HandlerWork::Tell(pending) = &work
            && self.latest.get(pending.key()) == Some(&place)
        {
            self.latest.remove(pending.key());
        }
        Some(work)
    }

    /// Whether nothing of the initial list waits any more.
    fn initial_list_was_told(&self) -> bool {
        let Some(end) = self.initial_list_ends else { return false };
        self.waiting.first_key_value().is_none_or(|(place, _)| *place >= end)
    }
}

impl<T: Clone> HandlerWork<T> {
    /// Whether this was there before anything changed, as far as the handler is concerned.
    fn is_no_news(&self) -> bool {
        match self {
            HandlerWork::Replay(_) | HandlerWork::Resync(_) => true,
            HandlerWork::Tell(pending) => pending.is_initial(),
            HandlerWork::Missed => false,
        }
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            no_news: 0,
            latest: BTreeMap::new(),
            unseen: BTreeSet::new(),
            missed: false,
            next_place: 0,
            initial_list_ends: None,
            runs: false,
        }
    }
}

/// What a handler is told of the objects that were there before it.
fn additions<T>(objects: Replay<T>) -> impl Iterator<Item = Event<T>> + Send {
    objects.map(|object| Event::Added { object, cause: Cause::InitialList })
}

/// What a handler is told when it looks again.
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
