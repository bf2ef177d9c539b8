//! Records the history of each key: its last event, the reason it was enqueued, and the results of its reconciles.
//!
//! [`explain`](crate::host::Explanation) reads the history; it does not influence the controller. Guarantees:
//! - The history contains every key that is queued, delayed, running, failing or quarantined, and the 10,000 most
//!   recent keys that are paused or dropped after failures. Of other keys it contains as many as
//!   [`Setup::history_limit`](crate::Setup::history_limit) allows. It also records whether a key was evicted for this
//!   limit. A key takes about 320 bytes.
//! - A recurring key allocates no memory, except for the message of a failure and the reason of a pause or a `not_yet`.
//! - Times come from the monotonic clock. They are converted to wall-clock times when the history is read.

mod filtered_events;
mod recent;

use std::borrow::Cow;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_env::{Env, Instant};
use windlass_informer::{Cause, Event};
use windlass_object::{MetadataRef, ObjectKey, ResourceVersion, Uid};

pub(crate) use crate::enqueue::history::filtered_events::FilteredEvent;
use crate::enqueue::history::filtered_events::FilteredEvents;
use crate::enqueue::history::recent::{EvictionList, RecentKeys, Recycle, Retention};

/// The default number of idle keys in the history. They take about three megabytes.
pub(crate) const DEFAULT_IDLE_KEYS: usize = 10_000;

/// The number of paused and dropped keys in the history. They have a separate limit, so that idle keys do not evict
/// keys that wait for an operator. The limit is finite because a defect can make every key fail.
const MAX_STUCK_KEYS: usize = 10_000;

/// The history of one controller's keys. Clones share it.
#[derive(Clone)]
pub(crate) struct History {
    env: Env,
    state: Arc<Mutex<State>>,
}

struct State {
    records: RecentKeys<Record>,
    filtered: FilteredEvents,
}

/// The history of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) seen: Option<LastEvent>,
    /// The time since which the key waits for its next reconcile.
    pub(crate) queued_at: Option<Instant>,
    /// The reason of the last enqueue.
    pub(crate) reason: Option<EnqueueReason>,
    /// Whether the key is queued or delayed.
    is_waiting: bool,
    pub(crate) running: bool,
    /// Whether the last reconcile failed or the key is quarantined.
    failing: bool,
    pub(crate) started: Option<Instant>,
    pub(crate) ended: Option<Instant>,
    pub(crate) runs: u32,
    pub(crate) end: Option<AttemptEnd>,
    /// The last failure. It is kept after a success.
    pub(crate) failure: Option<Box<Failure>>,
}

/// The last observed event for a key, and the object of the event.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastEvent {
    pub(crate) at: Option<Instant>,
    /// The watch that received the event.
    pub(crate) watch: Option<Arc<str>>,
    pub(crate) info: EventInfo,
    /// Whether the object is not the object that the key names. Only then are the namespace and the name set.
    is_other_object: bool,
    namespace: String,
    name: String,
    pub(crate) version: Option<ResourceVersion>,
    pub(crate) uid: Option<Uid>,
}

/// The type and the cause of an event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventInfo {
    pub(crate) change: ChangeType,
    pub(crate) cause: Cause,
}

/// The type of a change to an object.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeType {
    Added,
    Updated,
    Deleted,
}

/// The reason a key was enqueued.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum EnqueueReason {
    /// An event of a watch.
    Event,
    /// A handler of a watch, outside of an event.
    Handler,
    /// A trigger.
    Trigger,
    /// A timer.
    Timer,
    /// A poll.
    Poll,
    /// A stream.
    Stream,
    /// Its last reconcile.
    Reconcile,
    /// The controller itself, through its queue; or an unknown reason.
    Controller,
}

/// The result of a reconcile, or the reason a dequeued key was not reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// Succeeded without a requeue.
    Done,
    /// Succeeded with a requeue.
    Requeued,
    /// Paused by its reconcile, for this reason.
    Paused(Cow<'static, str>),
    /// Not ready, for this reason; requeued.
    NotYet(Arc<str>),
    /// Not reconciled, because its object has this annotation.
    Annotated(&'static str),
    /// Not reconciled, because its object cannot be decoded.
    Withheld,
    /// Failed; retried.
    Failed,
    /// Failed permanently.
    Terminal,
    /// Failed too often; dropped.
    GivenUp,
    /// Panicked; retried.
    Panicked,
    /// Panicked too often; quarantined.
    Quarantined,
    /// Not reconciled, because the worker panicked outside the reconcile; retried.
    WorkerPanicked,
}

/// A failed reconcile of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) at: Instant,
    /// The error message on one line.
    pub(crate) message: String,
    /// The RBAC rule to add, if a permission was missing.
    pub(crate) missing_rule: Option<String>,
}

/// The event that a watch is handling. It is written once per event and read when a handler enqueues a key.
#[derive(Debug)]
pub(crate) struct ObservedEvent {
    watch: Arc<str>,
    /// The last event. The clock is read when the time is first needed.
    seen: Mutex<Option<LastEvent>>,
    is_handling: std::sync::atomic::AtomicBool,
}

/// The origin of the keys that one enqueuer adds.
#[derive(Clone, Debug)]
pub(crate) enum KeyOrigin {
    /// A watch.
    Watch(Arc<ObservedEvent>),
    /// Anything else.
    Other(EnqueueReason),
}

impl History {
    pub(crate) fn new(env: Env, name: &str) -> Self {
        let seed = env.hash_seed(name);
        let state = State {
            records: RecentKeys::new(seed, DEFAULT_IDLE_KEYS, MAX_STUCK_KEYS),
            filtered: FilteredEvents::new(seed),
        };
        Self { env, state: Arc::new(Mutex::new(state)) }
    }

    /// Sets the number of idle keys to keep.
    pub(crate) fn limit(&self, keys: usize) {
        self.lock().records.limit(keys);
    }

    /// Records that `keys` are about to be enqueued.
    pub(crate) fn record_enqueue<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k ObjectKey>,
        origin: &KeyOrigin,
    ) {
        let mut seen = origin.seen();
        let mut seen = seen.as_mut().and_then(|seen| seen.as_mut());
        // The clock is read once per event.
        let now = seen.as_mut().map_or_else(|| self.env.now(), |seen| seen.time(&self.env));
        let mut state = self.lock();
        let reason = match (origin, &seen) {
            (KeyOrigin::Watch(_), Some(_)) => EnqueueReason::Event,
            (KeyOrigin::Watch(_), None) => EnqueueReason::Handler,
            (KeyOrigin::Other(reason), _) => *reason,
        };
        for key in keys {
            state.records.change(key, |record| {
                record.reason = Some(reason);
                if let Some(seen) = &seen {
                    record.seen.get_or_insert_default().copy_from(seen, key);
                }
                record.mark_waiting(now)
            });
        }
    }

    /// Records that a predicate rejected an event of a watch.
    pub(crate) fn record_filtered<T>(
        &self,
        meta: MetadataRef<'_>,
        event: &Event<T>,
        observed: &ObservedEvent,
        by: &'static str,
    ) {
        let watch = Arc::clone(&observed.watch);
        let refused = FilteredEvent { at: observed.time(&self.env), watch, by, info: EventInfo::of(event) };
        self.lock().filtered.record(meta, refused);
    }

    /// Records the start of a reconcile of `key`.
    pub(crate) fn record_start(&self, key: &ObjectKey, now: Instant) {
        self.lock().records.change(key, |record| {
            (record.running, record.started, record.is_waiting) = (true, Some(now), false);
            record.runs = record.runs.saturating_add(1);
            Retention::Hold
        });
    }

    /// Records the end of the last started reconcile of `key`.
    pub(crate) fn record_end(
        &self,
        key: &ObjectKey,
        now: Instant,
        end: AttemptEnd,
        failure: Option<Failure>,
    ) {
        self.lock().records.change(key, |record| {
            (record.running, record.ended) = (false, Some(now));
            record.failing =
                matches!(end, AttemptEnd::Failed | AttemptEnd::Panicked | AttemptEnd::Quarantined);
            if failure.is_some() {
                record.failure = failure.map(Box::new);
            }
            if matches!(
                end,
                AttemptEnd::Requeued | AttemptEnd::NotYet(_) | AttemptEnd::Failed | AttemptEnd::Panicked
            ) {
                record.reason = Some(EnqueueReason::Reconcile);
                record.mark_waiting(now);
            }
            record.end = Some(end);
            record.keep()
        });
    }

    /// Records a panic of the worker outside the reconcile of `key`. The key is requeued.
    pub(crate) fn record_worker_panic(&self, key: &ObjectKey, message: &str) {
        let now = self.env.now();
        let failure = Failure::new(now, format!("panicked outside its reconcile: {message}"), None);
        self.lock().records.change(key, |record| {
            (record.running, record.failing) = (false, true);
            (record.ended, record.end) = (Some(now), Some(AttemptEnd::WorkerPanicked));
            record.failure = Some(Box::new(failure));
            record.mark_waiting(now)
        });
    }

    /// Records that `key` was dequeued, is not reconciled, and is requeued.
    pub(crate) fn record_postponed(&self, key: &ObjectKey) {
        let now = self.env.now();
        self.lock().records.change(key, |record| {
            record.running = false;
            record.mark_waiting(now)
        });
    }

    /// Records that `key` was dequeued and is not reconciled because of an annotation.
    pub(crate) fn record_paused(&self, key: &ObjectKey, annotation: &'static str) {
        self.record_dropped(key, AttemptEnd::Annotated(annotation));
    }

    /// Records that `key` was dequeued and is not reconciled because its object cannot be decoded. Returns whether the
    /// previous result was a different one.
    pub(crate) fn record_withheld(&self, key: &ObjectKey) -> bool {
        self.record_dropped(key, AttemptEnd::Withheld) != Some(AttemptEnd::Withheld)
    }

    /// Records `end` as the result and returns the previous result.
    fn record_dropped(&self, key: &ObjectKey, end: AttemptEnd) -> Option<AttemptEnd> {
        let (now, mut before) = (self.env.now(), None);
        self.lock().records.change(key, |record| {
            (record.is_waiting, record.failing) = (false, false);
            record.ended = Some(now);
            before = record.end.replace(end);
            record.keep()
        });
        before
    }

    /// Removes the history of `key`.
    pub(crate) fn remove(&self, key: &ObjectKey) {
        self.lock().records.remove_key(key);
    }

    /// Removes the history of the keys for which `gone` returns true.
    pub(crate) fn remove_if(&self, gone: impl Fn(&ObjectKey) -> bool) {
        self.lock().records.remove_if(gone);
    }

    /// Returns the history of `key`.
    pub(crate) fn of(&self, key: &ObjectKey) -> Option<Record> {
        self.lock().records.get(key).cloned()
    }

    /// Returns the last event of the object `key` that a predicate rejected, if it is still recorded.
    pub(crate) fn last_filtered(&self, key: &ObjectKey) -> Option<FilteredEvent> {
        self.lock().filtered.of(key)
    }

    /// Returns the limit of idle keys if a key was evicted because of a limit, otherwise `None`.
    pub(crate) fn eviction_limit(&self) -> Option<usize> {
        self.lock().records.eviction_limit()
    }

    /// Returns all keys of the history, sorted.
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        let mut keys: Vec<_> = self.lock().records.iter().map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys
    }

    /// Returns the failing keys, without those that are not retried.
    pub(crate) fn failing(&self) -> Vec<ObjectKey> {
        let state = self.lock();
        let failing = state.records.iter().filter(|(_, record)| record.failing);
        failing.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the number of keys whose last reconcile failed, and the first `count` of them in key order with the
    /// message of their last failure.
    pub(crate) fn first_failed(&self, count: usize) -> (usize, Vec<(ObjectKey, String)>) {
        let state = self.lock();
        let failed = || state.records.iter().filter(|(_, record)| record.has_failed());
        let error = |key: &ObjectKey| Some(state.records.get(key)?.failure.as_ref()?.message.clone());
        let first = least(failed().map(|(key, _)| key), count);
        let first = first.into_iter().map(|key| (key.clone(), error(key).unwrap_or_default())).collect();
        (failed().count(), first)
    }

    /// Returns the `count` keys that have waited longest, longest first. Failing keys are excluded.
    pub(crate) fn longest_waiting(&self, count: usize) -> Vec<(ObjectKey, Instant)> {
        let state = self.lock();
        let waiting = state.records.iter().filter(|(_, record)| record.is_waiting && !record.failing);
        let waiting = waiting.filter_map(|(key, record)| Some((record.queued_at?, key)));
        least(waiting, count).into_iter().map(|(at, key)| (key.clone(), at)).collect()
    }

    /// Returns the number of keys in the history.
    pub(crate) fn len(&self) -> usize {
        self.lock().records.len()
    }

    /// Locks the state. No user code runs under the lock, so a poisoned lock does not mean inconsistent records.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the `count` smallest elements of `all` in order. The memory is proportional to `count`.
fn least<T: Ord>(all: impl Iterator<Item = T>, count: usize) -> Vec<T> {
    let mut least = BinaryHeap::with_capacity(count + 1);
    for element in all {
        least.push(element);
        if least.len() > count {
            least.pop();
        }
    }
    least.into_sorted_vec()
}

impl Failure {
    pub(crate) fn new(at: Instant, message: impl AsRef<str>, lacking: Option<String>) -> Self {
        let words: Vec<&str> = message.as_ref().split_whitespace().collect();
        Self { at, message: words.join(" "), missing_rule: lacking }
    }
}

impl Record {
    /// Marks the key as waiting since `now`, unless it already waits.
    fn mark_waiting(&mut self, now: Instant) -> Retention {
        if !std::mem::replace(&mut self.is_waiting, true) {
            self.queued_at = Some(now);
        }
        Retention::Hold
    }

    /// Returns whether the last reconcile failed, also if the key is not retried.
    fn has_failed(&self) -> bool {
        self.failing || matches!(self.end, Some(AttemptEnd::Terminal | AttemptEnd::GivenUp))
    }

    fn keep(&self) -> Retention {
        if self.is_waiting || self.running || self.failing {
            return Retention::Hold;
        }
        Retention::Release(match self.end {
            Some(
                AttemptEnd::Terminal
                | AttemptEnd::GivenUp
                | AttemptEnd::Paused(_)
                | AttemptEnd::Annotated(_)
                | AttemptEnd::Withheld,
            ) => EvictionList::Stuck,
            _ => EvictionList::Idle,
        })
    }
}

impl Recycle for Record {
    fn recycle(&mut self) {
        let seen = self.seen.take().map(LastEvent::cleared);
        *self = Self { seen, ..Self::default() };
    }
}

impl LastEvent {
    /// Returns the key of the event's object, which can differ from `key`.
    pub(crate) fn object(&self, key: &ObjectKey) -> ObjectKey {
        if self.is_other_object { ObjectKey::new(Some(&self.namespace), &self.name) } else { key.clone() }
    }

    /// Copies the event of a watch and reuses the allocated strings.
    fn copy_from(&mut self, event: &LastEvent, key: &ObjectKey) {
        self.is_other_object =
            event.name != key.name() || event.namespace != key.namespace().unwrap_or_default();
        if self.is_other_object {
            self.namespace.clone_from(&event.namespace);
            self.name.clone_from(&event.name);
        }
        self.at = event.at;
        self.watch.clone_from(&event.watch);
        (self.info, self.version, self.uid) = (event.info, event.version.clone(), event.uid.clone());
    }

    /// Returns the time of the event. The clock is read once.
    fn time(&mut self, env: &Env) -> Instant {
        *self.at.get_or_insert_with(|| env.now())
    }

    fn cleared(mut self) -> Self {
        self.namespace.clear();
        self.name.clear();
        Self { namespace: self.namespace, name: self.name, ..Self::default() }
    }
}

impl EventInfo {
    fn of<T>(event: &Event<T>) -> Self {
        let what = match event {
            Event::Added { .. } => ChangeType::Added,
            Event::Updated { .. } => ChangeType::Updated,
            Event::Deleted { .. } => ChangeType::Deleted,
        };
        Self { change: what, cause: event.cause() }
    }
}

impl EnqueueReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Handler => "handler",
            Self::Trigger => "trigger",
            Self::Timer => "timer",
            Self::Poll => "poll",
            Self::Stream => "stream",
            Self::Reconcile => "reconcile",
            Self::Controller => "controller",
        }
    }
}

impl ChangeType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }
}

impl EventInfo {
    pub(crate) fn cause(self) -> &'static str {
        match self.cause {
            Cause::Watch => "watch",
            Cause::InitialList => "initial list",
            Cause::Relist => "relist",
            Cause::Deselected => "deselection",
            Cause::Resync => "resync",
        }
    }
}

impl std::fmt::Display for EventInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, cause: {}", self.change.as_str(), self.cause())
    }
}

impl Default for EventInfo {
    fn default() -> Self {
        Self { change: ChangeType::Added, cause: Cause::Watch }
    }
}

impl ObservedEvent {
    /// Creates the slot for the events of the watch with this name.
    pub(crate) fn of(watch: &str) -> Arc<Self> {
        let watch: Arc<str> = watch.into();
        Arc::new(Self { watch, seen: Mutex::default(), is_handling: false.into() })
    }

    /// Returns the time of the event that the watch is handling.
    fn time(&self, env: &Env) -> Instant {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.as_mut().map_or_else(|| env.now(), |seen| seen.time(env))
    }

    /// Records that the watch is handling `event`, until [`end_event`](Self::end_event).
    pub(crate) fn begin_event<T>(&self, meta: MetadataRef<'_>, event: &Event<T>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.get_or_insert_default();
        if seen.watch.is_none() {
            seen.watch = Some(Arc::clone(&self.watch));
        }
        seen.namespace.clear();
        seen.namespace.push_str(meta.namespace().unwrap_or_default());
        seen.name.clear();
        seen.name.push_str(meta.name());
        (seen.at, seen.info) = (None, EventInfo::of(event));
        seen.version = meta.resource_version().map(ResourceVersion::new);
        seen.uid = meta.uid().map(Uid::from);
        self.is_handling.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn end_event(&self) {
        self.is_handling.store(false, std::sync::atomic::Ordering::Relaxed);
    }
}

impl KeyOrigin {
    /// Returns the event that the watch is handling. `None` outside of an event.
    fn seen(&self) -> Option<MutexGuard<'_, Option<LastEvent>>> {
        let Self::Watch(observed) = self else { return None };
        let live = observed.is_handling.load(std::sync::atomic::Ordering::Relaxed);
        live.then(|| observed.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History").field("keys", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("shop", name)
    }

    fn history(limit: usize) -> History {
        let history = History::new(Env::virtual_time(1), "test");
        history.limit(limit);
        history
    }

    fn meta(name: &str, version: &str) -> ObjectMeta {
        ObjectMeta {
            namespace: Some("shop".into()),
            name: Some(name.into()),
            resource_version: Some(version.into()),
            uid: Some("3ce2b2d4-6b0e-4f8e-9f43-0a1b2c3d4e5f".into()),
            ..ObjectMeta::default()
        }
    }

    fn observe(observed: &ObservedEvent, name: &str, version: &str) {
        observed
            .begin_event((&meta(name, version)).into(), &Event::Added { object: (), cause: Cause::Watch });
    }

    fn run(history: &History, key: &ObjectKey, end: AttemptEnd) {
        history.record_start(key, history.env.now());
        history.record_end(key, history.env.now(), end, None);
    }

    #[tokio::test(start_paused = true)]
    async fn history_keeps_active_keys_and_most_recent_idle_keys() {
        let history = history(2);
        let other = KeyOrigin::Other(EnqueueReason::Trigger);
        let all: Vec<ObjectKey> = ["a", "b", "c", "fails", "runs", "waits"].map(key).into();
        history.record_enqueue(&all, &other);
        ["a", "b", "c"].into_iter().for_each(|name| run(&history, &key(name), AttemptEnd::Done));
        run(&history, &key("fails"), AttemptEnd::Failed);
        history.record_start(&key("runs"), history.env.now());
        let known = |name: &str| history.of(&key(name)).is_some();
        assert!(!known("a"), "completed before two other keys");
        assert!(["b", "c", "fails", "runs", "waits"].into_iter().all(known));
        assert_eq!(history.failing(), [key("fails")]);
        run(&history, &key("fails"), AttemptEnd::Done);
        assert!(!known("b") && known("fails"), "it no longer fails");
    }

    #[tokio::test(start_paused = true)]
    async fn withheld_key_is_new_after_different_result() {
        let history = history(2);
        assert!(history.record_withheld(&key("a")));
        history.record_enqueue([&key("a")], &KeyOrigin::Other(EnqueueReason::Trigger));
        assert!(!history.record_withheld(&key("a")), "still withheld");
        run(&history, &key("a"), AttemptEnd::Done);
        assert!(history.record_withheld(&key("a")), "withheld again");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_keys_do_not_evict_stuck_keys_and_eviction_is_reported() {
        let history = history(2);
        run(&history, &key("hopeless"), AttemptEnd::Terminal);
        run(&history, &key("given-up"), AttemptEnd::GivenUp);
        run(&history, &key("paused"), AttemptEnd::Paused("by hand".into()));
        history.record_paused(&key("annotated"), "example.com/paused");
        ["a", "b"].into_iter().for_each(|name| run(&history, &key(name), AttemptEnd::Done));
        assert_eq!(history.eviction_limit(), None);
        run(&history, &key("c"), AttemptEnd::Done);
        assert_eq!(history.eviction_limit(), Some(2));
        assert!(history.of(&key("a")).is_none());
        for name in ["hopeless", "given-up", "paused", "annotated"] {
            assert!(history.of(&key(name)).is_some(), "{name}");
        }
        (0..MAX_STUCK_KEYS)
            .for_each(|number| run(&history, &key(&format!("stuck-{number}")), AttemptEnd::GivenUp));
        assert!(history.of(&key("hopeless")).is_none(), "stuck keys have a limit too");
        assert_eq!(history.len(), MAX_STUCK_KEYS + 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_keys_are_counted_and_first_are_listed() {
        let history = history(2);
        for (name, end) in [
            ("d", AttemptEnd::Failed),
            ("a", AttemptEnd::Terminal),
            ("c", AttemptEnd::Panicked),
            ("b", AttemptEnd::GivenUp),
        ] {
            history.record_enqueue([&key(&format!("waits-{name}"))], &KeyOrigin::Other(EnqueueReason::Timer));
            history.env.sleep(std::time::Duration::from_secs(1)).await;
            let failure = Failure::new(history.env.now(), format!("{name}\nfailed"), None);
            history.record_end(&key(name), history.env.now(), end, Some(failure));
        }
        let first = [(key("a"), "a failed".to_owned()), (key("b"), "b failed".to_owned())];
        assert_eq!(history.first_failed(2), (4, first.into()));
        assert_eq!(history.first_failed(20).1.len(), 4);
        run(&history, &key("a"), AttemptEnd::Done);
        assert_eq!(history.first_failed(20).0, 3, "a success ends the failure");
        let oldest = history.longest_waiting(2).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(oldest, [key("waits-d"), key("waits-a")]);
    }

    #[tokio::test(start_paused = true)]
    async fn records_of_one_event_have_same_time() {
        let history = history(10);
        let observed = ObservedEvent::of("pods");
        let origin = KeyOrigin::Watch(Arc::clone(&observed));
        let begun = history.env.now();
        observe(&observed, "web", "1");
        history.record_enqueue([&key("web")], &origin);
        history.env.sleep(std::time::Duration::from_secs(1)).await;
        history.record_enqueue([&key("later")], &origin);
        let event = Event::Added { object: (), cause: Cause::Watch };
        history.record_filtered((&meta("web", "1")).into(), &event, &observed, "no");
        let of =
            |name: &str| history.of(&key(name)).map(|it| (it.queued_at, it.seen.and_then(|seen| seen.at)));
        let first = Some((Some(begun), Some(begun)));
        assert_eq!((of("web"), of("later")), (first, first));
        assert_eq!(history.last_filtered(&key("web")).map(|refused| refused.at), Some(begun));
        observe(&observed, "web", "2");
        history.record_enqueue([&key("next")], &origin);
        assert_eq!(
            of("next").and_then(|(queued, _)| queued),
            Some(history.env.now()),
            "the time of the next event"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn record_contains_object_of_last_event() {
        let history = history(10);
        let observed = ObservedEvent::of("pods");
        let origin = KeyOrigin::Watch(Arc::clone(&observed));
        observe(&observed, "web-1", "12");
        history.record_enqueue([&key("web-1"), &key("web")], &origin);
        observed.end_event();
        history.record_enqueue([&key("web"), &key("later")], &origin);
        let of = |name: &str| {
            let record = history.of(&key(name)).expect("remembered");
            let seen = record.seen.map(|seen| (seen.object(&key(name)), seen.version, seen.uid));
            (seen, record.reason)
        };
        let uid = Some(Uid::from("3ce2b2d4-6b0e-4f8e-9f43-0a1b2c3d4e5f"));
        let seen = Some((key("web-1"), Some(ResourceVersion::new("12")), uid));
        assert_eq!(of("web-1"), (seen.clone(), Some(EnqueueReason::Event)));
        assert_eq!(of("web"), (seen, Some(EnqueueReason::Handler)));
        assert_eq!(of("later"), (None, Some(EnqueueReason::Handler)), "a handled event is not recorded");
    }

    #[tokio::test(start_paused = true)]
    async fn key_enqueued_again_keeps_first_enqueue_time() {
        let history = history(10);
        let other = KeyOrigin::Other(EnqueueReason::Timer);
        history.record_enqueue([&key("a")], &other);
        let first = history.of(&key("a")).and_then(|it| it.queued_at);
        history.env.sleep(std::time::Duration::from_secs(5)).await;
        history.record_enqueue([&key("a")], &other);
        assert_eq!(history.of(&key("a")).and_then(|it| it.queued_at), first);
        history.record_start(&key("a"), history.env.now());
        history.record_enqueue([&key("a")], &other);
        assert!(history.of(&key("a")).and_then(|it| it.queued_at) > first);
    }

    #[tokio::test(start_paused = true)]
    async fn recurring_key_allocates_nothing_and_fits_in_500_bytes() {
        let history = history(1000);
        let observed = ObservedEvent::of("pods");
        let origin = KeyOrigin::Watch(Arc::clone(&observed));
        let keys: Vec<ObjectKey> = (0..3000).map(|number| key(&format!("name-of-a-pod-{number}"))).collect();
        let metas: Vec<ObjectMeta> = keys.iter().map(|key| meta(key.name(), "123456")).collect();
        let owner = key("web");
        let round = || {
            for (key, meta) in keys.iter().zip(&metas) {
                observed.begin_event(meta.into(), &Event::Added { object: (), cause: Cause::Watch });
                history.record_enqueue([key, &owner], &origin);
                history.record_filtered(
                    meta.into(),
                    &Event::Added { object: (), cause: Cause::Watch },
                    &observed,
                    "no",
                );
                observed.end_event();
                history.record_start(key, Instant::ORIGIN);
                history.record_end(key, Instant::ORIGIN, AttemptEnd::Done, None);
            }
        };
        let first = allocation_counter::measure(round);
        let again = allocation_counter::measure(round);
        assert_eq!(again.count_total, 0, "in steady state");
        let per_key = (first.bytes_current - i64::try_from(filtered_events::BYTES).expect("small")) / 1000;
        let record = size_of::<Record>();
        assert!(per_key < 500, "{per_key} bytes per key, {record} of them the record");
    }
}
