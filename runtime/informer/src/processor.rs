//! Fan-out: every handler of an informer is told of every change, each at its own pace.
//!
//! Guarantees:
//! - A handler delays only itself: it runs in a task of its own, and its changes are gathered while it is
//!   busy.
//! - Gathered changes keep the path of their object, that is of one key and UID: a handler is told every
//!   state the store went through, each from the one before it. A label that came and went, and a label that
//!   went before its object did, are told however late.
//! - What waits is bounded by the number of objects and not by the number of changes: of one object at most
//!   sixteen states wait. Beyond that the oldest in between are dropped, which is logged; see [`pending`].
//! - Changes of different UIDs are never merged: a recreated object is a deletion and an addition.
//! - A deletion is always told.
//! - For one key, changes are told in the order they happened; an object that waits keeps its place in the
//!   queue when it changes again, so nothing is put off for ever.
//! - A handler that panics is counted, and told the next change. It still becomes synced.
//! - What was there when a handler came (or when the initial list arrived) is told from a snapshot, which
//!   holds up nobody and takes no memory per object; later changes wait behind it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use windlass_env::caught_now;
use windlass_env::cell::{Observer, Publisher, cell};
use windlass_metrics::InformerMetrics;
use windlass_object::{ObjectKey, Uid};

use self::pending::Pending;
use crate::handler::{Cause, Event, Handler};
use crate::sync::yield_now;

mod pending;

/// How many changes a handler is told before it lets other tasks run.
const BURST: usize = 64;

/// Objects to be told as additions, made one by one as they are told.
pub(crate) type Replay<T> = Box<dyn Iterator<Item = T> + Send>;

/// Where a handler stands with regard to the initial list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandlerState {
    /// It has not been told of all of it.
    Waiting,
    /// It has.
    Synced,
    /// It is told nothing any more.
    Removed,
}

/// Cuts a handler off, whatever it handles.
pub(crate) trait Detach: Send + Sync {
    fn detach(&self);
}

/// The handlers of one informer.
#[derive(Debug)]
pub(crate) struct Processor<T> {
    listeners: Vec<Arc<Listener<T>>>,
}

/// One handler's queue.
pub(crate) struct Listener<T> {
    name: String,
    queue: Mutex<Queue<T>>,
    arrived: Notify,
    state: Publisher<HandlerState>,
    metrics: InformerMetrics,
}

struct Queue<T> {
    replay: Option<Replay<T>>,
    /// What waits, by place in the queue.
    pending: BTreeMap<u64, Pending<T>>,
    /// The place of what waits last for each key. Only that may be continued.
    latest: BTreeMap<ObjectKey, u64>,
    next_place: u64,
    /// The first place behind the initial list, once that has been queued.
    initial_list_ends: Option<u64>,
}

/// What a handler's task does next.
enum Work<T> {
    Replay(Replay<T>),
    Tell(Pending<T>),
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
    pub(crate) fn new(name: &str, metrics: InformerMetrics) -> Self {
        let (state, _) = cell(HandlerState::Waiting);
        Self { name: name.to_owned(), queue: Mutex::default(), arrived: Notify::new(), state, metrics }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn state(&self) -> Observer<HandlerState> {
        self.state.observe()
    }

    /// Queues a change, behind what already waits of the same object and in its place.
    pub(crate) fn enqueue(&self, key: &ObjectKey, uid: Option<&Uid>, event: Event<T>) {
        let fits = self.lock().push(key, uid, event);
        self.arrived.notify_one();
        if !fits {
            tracing::debug!(handler = self.name, %key, "a slow handler misses a state in between");
        }
    }

    /// Queues everything there is, ahead of any change. Only for a handler that was told nothing yet.
    pub(crate) fn replay(&self, objects: Replay<T>) {
        self.lock().replay = Some(objects);
        self.arrived.notify_one();
    }

    /// Notes that all of the initial list has been queued.
    pub(crate) fn initial_list_ended(&self) {
        let mut queue = self.lock();
        if queue.initial_list_ends.is_none() {
            queue.initial_list_ends = Some(queue.next_place);
            self.arrived.notify_one();
        }
    }

    /// Tells the handler, until it is removed.
    pub(crate) async fn run(self: Arc<Self>, mut handler: Box<dyn Handler<T>>) {
        let mut told = 0;
        while let Some(work) = self.next().await {
            match work {
                Work::Replay(objects) => self.tell_each(&mut *handler, additions(objects), &mut told).await,
                Work::Tell(pending) => self.tell_each(&mut *handler, pending.into_events(), &mut told).await,
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
        if self.is_removed() {
            return;
        }
        if let Err(message) = caught_now(|| handler.handle(event)) {
            self.metrics.handler_panics.inc();
            tracing::error!(handler = self.name, message, "a handler panicked; it is told the next change");
        }
    }

    /// The next work; `None` once the handler is removed. Everything handed out before has been told by then.
    async fn next(&self) -> Option<Work<T>> {
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

    fn become_synced(&self) {
        if self.state.get() != HandlerState::Waiting {
            return;
        }
        self.state.update(|state| {
            // Looked at again under the cell's lock: a handler removed meanwhile stays removed.
            if *state == HandlerState::Waiting {
                *state = HandlerState::Synced;
            }
        });
    }

    fn is_removed(&self) -> bool {
        self.state.get() == HandlerState::Removed
    }

    /// No code of others runs under this lock, so poison cannot mean a broken queue.
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone + Send + Sync + 'static> Detach for Listener<T> {
    fn detach(&self) {
        self.state.set(HandlerState::Removed);
        let waiting = std::mem::take(&mut *self.lock());
        drop(waiting);
        self.arrived.notify_one();
    }
}

impl<T: Clone> Queue<T> {
    /// Whether nothing had to be dropped for the change.
    fn push(&mut self, key: &ObjectKey, uid: Option<&Uid>, event: Event<T>) -> bool {
        let waiting = self.latest.get(key).and_then(|place| self.pending.get_mut(place));
        if let Some(waiting) = waiting.filter(|waiting| waiting.takes(uid)) {
            return waiting.add(event);
        }
        self.append(Pending::new(key.clone(), uid.cloned(), event));
        true
    }

    fn append(&mut self, pending: Pending<T>) {
        let place = self.next_place;
        self.next_place += 1;
        self.latest.insert(pending.key().clone(), place);
        self.pending.insert(place, pending);
    }

    fn take(&mut self) -> Option<Work<T>> {
        if let Some(objects) = self.replay.take() {
            return Some(Work::Replay(objects));
        }
        let (place, pending) = self.pending.pop_first()?;
        if self.latest.get(pending.key()) == Some(&place) {
            self.latest.remove(pending.key());
        }
        Some(Work::Tell(pending))
    }

    /// Whether nothing of the initial list waits any more.
    fn initial_list_was_told(&self) -> bool {
        let Some(end) = self.initial_list_ends else { return false };
        self.replay.is_none() && self.pending.first_key_value().is_none_or(|(place, _)| *place >= end)
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            replay: None,
            pending: BTreeMap::new(),
            latest: BTreeMap::new(),
            next_place: 0,
            initial_list_ends: None,
        }
    }
}

/// What a handler is told of the objects that were there before it.
fn additions<T>(objects: Replay<T>) -> impl Iterator<Item = Event<T>> + Send {
    objects.map(|object| Event::Added { object, cause: Cause::InitialList })
}

impl<T> fmt::Debug for Listener<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
