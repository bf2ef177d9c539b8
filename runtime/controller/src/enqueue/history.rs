//! What happened to each key: what was seen of it last, why it was queued, how its reconciles went.
//!
//! Kept so that [`explain`](crate::host::Explanation) has something to go by. Guarantees:
//! - A key that is queued, delayed, running, failing or in quarantine is remembered; of those that are paused or given up
//!   on the most recent ones, ten thousand; of the others as many as [`Setup::remember`](crate::Setup::remember) says.
//!   Whether any was forgotten for that is remembered too. A key costs about 320 bytes.
//! - Nothing is allocated for a key that comes and goes as it did before, but for what a failure says, and the reason of a `not_yet`.
//! - Times are read off the monotonic clock alone; what the wall showed then is worked out when somebody asks.
//!
//! It decides nothing: a controller works alike whatever is written here.

mod filtered_events;
mod identity;
mod recent;

use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_env::{Env, Instant};
use windlass_informer::{Cause, Event};
use windlass_object::ObjectKey;

pub(crate) use crate::enqueue::history::filtered_events::FilteredEvent;
use crate::enqueue::history::filtered_events::FilteredEvents;
use crate::enqueue::history::identity::{CompactUid, CompactVersion};
use crate::enqueue::history::recent::{EvictionList, RecentKeys, Recycle, Retention};

/// How many keys are remembered that nothing is the matter with, unless a controller says otherwise: more than a person
/// asks about before they ask again, for about three megabytes.
pub(crate) const REMEMBERED: usize = 10_000;

/// How many keys are remembered that are paused or given up on, next to those: what waits for a person should not be
/// pushed out by what goes well, and a defect may give up on every key there is.
const STUCK: usize = 10_000;

/// The history of one controller's keys. Clones share it.
#[derive(Clone)]
pub(crate) struct History {
    env: Env,
    state: Arc<Mutex<State>>,
}

struct State {
    records: RecentKeys<Record>,
    refusals: FilteredEvents,
}

/// What is known of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) seen: Option<LastSeen>,
    /// Since when it waits for its next reconcile, and who asked for it first and last.
    pub(crate) queued_at: Option<Instant>,
    pub(crate) asked_by: Option<EnqueueReason>,
    /// Whether it waits: in the queue, or for a time.
    waits: bool,
    pub(crate) running: bool,
    /// Failed, and not succeeded since; or in quarantine.
    failing: bool,
    pub(crate) started: Option<Instant>,
    pub(crate) ended: Option<Instant>,
    pub(crate) runs: u32,
    pub(crate) end: Option<AttemptEnd>,
    /// The last failure, also after a success.
    pub(crate) failure: Option<Box<Failure>>,
}

/// The state that was seen last of the object that a key was found in.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastSeen {
    pub(crate) at: Option<Instant>,
    /// Through which watch.
    pub(crate) watch: Option<Arc<str>>,
    pub(crate) told: EventInfo,
    /// The object, where it is not the one that the key names.
    other: bool,
    namespace: String,
    name: String,
    version: CompactVersion,
    uid: CompactUid,
}

/// What an event was.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventInfo {
    pub(crate) what: ChangeType,
    pub(crate) cause: Cause,
}

/// What happened to an object.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeType {
    Added,
    Updated,
    Deleted,
}

/// Who asked for a reconcile.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum EnqueueReason {
    /// An event of a watch.
    Event,
    /// A handler of a watch, but not while it was told of an event.
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
    /// The controller itself, through its queue; or nobody knows.
    Controller,
}

/// How a reconcile ended, or why a key that was taken was not reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// Nothing more to do.
    Done,
    /// To be looked at again.
    Requeued,
    /// Paused by its reconcile, for this reason.
    Paused(&'static str),
    /// It waits for something else, for this reason, and is to be looked at again.
    NotYet(Arc<str>),
    /// Not reconciled, since its object has this annotation.
    Annotated(&'static str),
    /// Not reconciled, since its object cannot be decoded.
    Withheld,
    /// Failed; to be tried again.
    Failed,
    /// Failed for good.
    Terminal,
    /// Failed too often.
    GivenUp,
    /// Panicked; to be tried again.
    Panicked,
    /// Panicked too often.
    Quarantined,
    /// Not reconciled, since something next to its reconcile panicked; to be tried again.
    WorkerPanicked,
}

/// A failure of a key's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) at: Instant,
    /// On one line.
    pub(crate) message: String,
    /// What a role has to say, if a right was what lacked.
    pub(crate) lacking: Option<String>,
}

/// What a watch is being told of: filled once per event, and looked at when a key is queued meanwhile.
#[derive(Debug)]
pub(crate) struct ObservedEvent {
    watch: Arc<str>,
    /// Its time is read when it is first asked for.
    seen: Mutex<Option<LastSeen>>,
    live: std::sync::atomic::AtomicBool,
}

/// Where keys come from that are queued at one place.
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
        let state =
            State { records: RecentKeys::new(seed, REMEMBERED, STUCK), refusals: FilteredEvents::new(seed) };
        Self { env, state: Arc::new(Mutex::new(state)) }
    }

    /// How many keys are remembered that nothing is the matter with.
    pub(crate) fn limit(&self, keys: usize) {
        self.lock().records.limit(keys);
    }

    /// `keys` are about to be queued.
    pub(crate) fn queued<'k>(&self, keys: impl IntoIterator<Item = &'k ObjectKey>, origin: &KeyOrigin) {
        let mut seen = origin.seen();
        let mut seen = seen.as_mut().and_then(|seen| seen.as_mut());
        // The clock is read once per event.
        let now = seen.as_mut().map_or_else(|| self.env.now(), |seen| seen.time(&self.env));
        let mut state = self.lock();
        let asker = match (origin, &seen) {
            (KeyOrigin::Watch(_), Some(_)) => EnqueueReason::Event,
            (KeyOrigin::Watch(_), None) => EnqueueReason::Handler,
            (KeyOrigin::Other(asker), _) => *asker,
        };
        for key in keys {
            state.records.change(key, |record| {
                record.asked_by = Some(asker);
                if let Some(seen) = &seen {
                    record.seen.get_or_insert_default().take(seen, key);
                }
                record.waits_from(now)
            });
        }
    }

    /// A predicate has kept an event of an object from the watch that is told of it.
    pub(crate) fn refused<T>(
        &self,
        meta: &ObjectMeta,
        event: &Event<T>,
        sighting: &ObservedEvent,
        by: &'static str,
    ) {
        let watch = Arc::clone(&sighting.watch);
        let refused = FilteredEvent { at: sighting.time(&self.env), watch, by, told: EventInfo::of(event) };
        self.lock().refusals.note(meta, refused);
    }

    /// A reconcile of `key` begins.
    pub(crate) fn started(&self, key: &ObjectKey, now: Instant) {
        self.lock().records.change(key, |record| {
            (record.running, record.started, record.waits) = (true, Some(now), false);
            record.runs = record.runs.saturating_add(1);
            Retention::Hold
        });
    }

    /// The reconcile of `key` that began last has ended.
    pub(crate) fn ended(&self, key: &ObjectKey, now: Instant, end: AttemptEnd, failure: Option<Failure>) {
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
                record.asked_by = Some(EnqueueReason::Reconcile);
                record.waits_from(now);
            }
            record.end = Some(end);
            record.keep()
        });
    }

    /// `key` was taken, and something next to its reconcile panicked: it goes back to the queue.
    pub(crate) fn beside(&self, key: &ObjectKey, message: &str) {
        let now = self.env.now();
        let failure = Failure::new(now, format!("panicked beside its reconcile: {message}"), None);
        self.lock().records.change(key, |record| {
            (record.running, record.failing) = (false, true);
            (record.ended, record.end) = (Some(now), Some(AttemptEnd::WorkerPanicked));
            record.failure = Some(Box::new(failure));
            record.waits_from(now)
        });
    }

    /// `key` was taken, is not reconciled, and goes back to the queue.
    pub(crate) fn put_off(&self, key: &ObjectKey) {
        let now = self.env.now();
        self.lock().records.change(key, |record| {
            record.running = false;
            record.waits_from(now)
        });
    }

    /// `key` was taken and is not reconciled, because of an annotation.
    pub(crate) fn paused(&self, key: &ObjectKey, annotation: &'static str) {
        self.dropped(key, AttemptEnd::Annotated(annotation));
    }

    /// `key` was taken and is not reconciled, because its object cannot be decoded. Returns whether that is new.
    pub(crate) fn withheld(&self, key: &ObjectKey) -> bool {
        self.dropped(key, AttemptEnd::Withheld) != Some(AttemptEnd::Withheld)
    }

    /// Returns how the key ended before.
    fn dropped(&self, key: &ObjectKey, end: AttemptEnd) -> Option<AttemptEnd> {
        let (now, mut before) = (self.env.now(), None);
        self.lock().records.change(key, |record| {
            (record.waits, record.failing) = (false, false);
            record.ended = Some(now);
            before = record.end.replace(end);
            record.keep()
        });
        before
    }

    /// Forgets `key`.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.lock().records.remove_key(key);
    }

    /// Forgets the keys of which `gone` says so.
    pub(crate) fn forget_if(&self, gone: impl Fn(&ObjectKey) -> bool) {
        self.lock().records.remove_if(gone);
    }

    /// What is known of `key`.
    pub(crate) fn of(&self, key: &ObjectKey) -> Option<Record> {
        self.lock().records.get(key).cloned()
    }

    /// Which predicate kept an event of the object `key` from its watch last, if that is remembered.
    pub(crate) fn refusal(&self, key: &ObjectKey) -> Option<FilteredEvent> {
        self.lock().refusals.of(key)
    }

    /// How many keys are remembered that nothing is the matter with, if others were forgotten for that.
    pub(crate) fn forgets_beyond(&self) -> Option<usize> {
        self.lock().records.lost_beyond()
    }

    /// Returns all keys of the history, sorted.
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        let mut keys: Vec<_> = self.lock().records.iter().map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys
    }

    /// The keys that fail.
    pub(crate) fn failing(&self) -> Vec<ObjectKey> {
        let state = self.lock();
        let failing = state.records.iter().filter(|(_, record)| record.failing);
        failing.map(|(key, _)| key.clone()).collect()
    }

    /// How many keys fail; and the first of them, in order, at most `count`, each with what its last failure said.
    pub(crate) fn first_failing(&self, count: usize) -> (usize, Vec<(ObjectKey, String)>) {
        let state = self.lock();
        let failing = || state.records.iter().filter(|(_, record)| record.failing);
        let error = |key: &ObjectKey| Some(state.records.get(key)?.failure.as_ref()?.message.clone());
        let first = least(failing().map(|(key, _)| key), count);
        let first = first.into_iter().map(|key| (key.clone(), error(key).unwrap_or_default())).collect();
        (failing().count(), first)
    }

    /// The keys that have waited longest, the first of them first, at most `count`.
    pub(crate) fn oldest(&self, count: usize) -> Vec<(ObjectKey, Instant)> {
        let state = self.lock();
        let waiting = state.records.iter().filter(|(_, record)| record.waits && !record.failing);
        let waiting = waiting.filter_map(|(key, record)| Some((record.queued_at?, key)));
        least(waiting, count).into_iter().map(|(at, key)| (key.clone(), at)).collect()
    }

    /// How many keys are remembered.
    pub(crate) fn len(&self) -> usize {
        self.lock().records.len()
    }

    /// Only comparison, hash and clone of keys run under this lock, so poison cannot mean a broken record.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The least of `all`, at most `count`, in order. As much room as that is all it takes.
fn least<T: Ord>(all: impl Iterator<Item = T>, count: usize) -> Vec<T> {
    let mut least = BinaryHeap::with_capacity(count + 1);
    for one in all {
        least.push(one);
        if least.len() > count {
            least.pop();
        }
    }
    least.into_sorted_vec()
}

impl Failure {
    pub(crate) fn new(at: Instant, message: impl AsRef<str>, lacking: Option<String>) -> Self {
        let words: Vec<&str> = message.as_ref().split_whitespace().collect();
        Self { at, message: words.join(" "), lacking }
    }
}

impl Record {
    /// A key that waits already continues waiting.
    fn waits_from(&mut self, now: Instant) -> Retention {
        if !std::mem::replace(&mut self.waits, true) {
            self.queued_at = Some(now);
        }
        Retention::Hold
    }

    fn keep(&self) -> Retention {
        if self.waits || self.running || self.failing {
            return Retention::Hold;
        }
        Retention::LetGo(match self.end {
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
        let seen = self.seen.take().map(LastSeen::emptied);
        *self = Self { seen, ..Self::default() };
    }
}

impl LastSeen {
    /// The object, if it is another one than `key` names.
    pub(crate) fn object(&self, key: &ObjectKey) -> ObjectKey {
        if self.other { ObjectKey::new(Some(&self.namespace), &self.name) } else { key.clone() }
    }

    pub(crate) fn version(&self) -> Option<String> {
        self.version.text()
    }

    pub(crate) fn uid(&self) -> Option<String> {
        self.uid.text()
    }

    /// Takes over what a watch was told of, in the room there is.
    fn take(&mut self, told: &LastSeen, key: &ObjectKey) {
        self.other = told.name != key.name() || told.namespace != key.namespace().unwrap_or_default();
        if self.other {
            self.namespace.clone_from(&told.namespace);
            self.name.clone_from(&told.name);
        }
        self.at = told.at;
        self.watch.clone_from(&told.watch);
        (self.told, self.version, self.uid) = (told.told, told.version.clone(), told.uid.clone());
    }

    /// When it was seen: read once.
    fn time(&mut self, env: &Env) -> Instant {
        *self.at.get_or_insert_with(|| env.now())
    }

    fn emptied(mut self) -> Self {
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
        Self { what, cause: event.cause() }
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
            Cause::Relist => "re-list",
            Cause::Deselected => "deselection",
            Cause::Resync => "resync",
        }
    }
}

impl std::fmt::Display for EventInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, told by {}", self.what.as_str(), self.cause())
    }
}

impl Default for EventInfo {
    fn default() -> Self {
        Self { what: ChangeType::Added, cause: Cause::Watch }
    }
}

impl ObservedEvent {
    /// Of a watch of this name.
    pub(crate) fn of(watch: &str) -> Arc<Self> {
        let watch: Arc<str> = watch.into();
        Arc::new(Self { watch, seen: Mutex::default(), live: false.into() })
    }

    /// When the event was told that the watch is being told of.
    fn time(&self, env: &Env) -> Instant {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.as_mut().map_or_else(|| env.now(), |seen| seen.time(env))
    }

    /// The watch is told of `event`, until [`over`](Self::over).
    pub(crate) fn told<T>(&self, meta: &ObjectMeta, event: &Event<T>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.get_or_insert_default();
        if seen.watch.is_none() {
            seen.watch = Some(Arc::clone(&self.watch));
        }
        seen.namespace.clear();
        seen.namespace.push_str(meta.namespace.as_deref().unwrap_or_default());
        seen.name.clear();
        seen.name.push_str(meta.name.as_deref().unwrap_or_default());
        (seen.at, seen.told) = (None, EventInfo::of(event));
        seen.version = CompactVersion::of(meta.resource_version.as_deref());
        seen.uid = CompactUid::of(meta.uid.as_deref());
        self.live.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn over(&self) {
        self.live.store(false, std::sync::atomic::Ordering::Relaxed);
    }
}

impl KeyOrigin {
    /// What the watch is being told of; nothing outside of an event.
    fn seen(&self) -> Option<MutexGuard<'_, Option<LastSeen>>> {
        let Self::Watch(sighting) = self else { return None };
        let live = sighting.live.load(std::sync::atomic::Ordering::Relaxed);
        live.then(|| sighting.seen.lock().unwrap_or_else(PoisonError::into_inner))
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

    fn tell(sighting: &ObservedEvent, name: &str, version: &str) {
        sighting.told(&meta(name, version), &Event::Added { object: (), cause: Cause::Watch });
    }

    fn run(history: &History, key: &ObjectKey, end: AttemptEnd) {
        history.started(key, history.env.now());
        history.ended(key, history.env.now(), end, None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_runs_or_fails_is_remembered_and_of_the_rest_the_most_recent() {
        let history = history(2);
        let other = KeyOrigin::Other(EnqueueReason::Trigger);
        let all: Vec<ObjectKey> = ["a", "b", "c", "fails", "runs", "waits"].map(key).into();
        history.queued(&all, &other);
        ["a", "b", "c"].into_iter().for_each(|name| run(&history, &key(name), AttemptEnd::Done));
        run(&history, &key("fails"), AttemptEnd::Failed);
        history.started(&key("runs"), history.env.now());
        let known = |name: &str| history.of(&key(name)).is_some();
        assert!(!known("a"), "done before two others");
        assert!(["b", "c", "fails", "runs", "waits"].into_iter().all(known));
        assert_eq!(history.failing(), [key("fails")]);
        run(&history, &key("fails"), AttemptEnd::Done);
        assert!(!known("b") && known("fails"), "it does not fail any more");
    }

    #[tokio::test(start_paused = true)]
    async fn withheld_key_is_new_until_it_ends_otherwise() {
        let history = history(2);
        assert!(history.withheld(&key("a")));
        history.queued([&key("a")], &KeyOrigin::Other(EnqueueReason::Trigger));
        assert!(!history.withheld(&key("a")), "still");
        run(&history, &key("a"), AttemptEnd::Done);
        assert!(history.withheld(&key("a")), "again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_stuck_is_not_forgotten_for_what_goes_well_and_it_is_known_that_something_was() {
        let history = history(2);
        run(&history, &key("hopeless"), AttemptEnd::Terminal);
        run(&history, &key("given-up"), AttemptEnd::GivenUp);
        run(&history, &key("paused"), AttemptEnd::Paused("by hand"));
        history.paused(&key("annotated"), "example.com/paused");
        ["a", "b"].into_iter().for_each(|name| run(&history, &key(name), AttemptEnd::Done));
        assert_eq!(history.forgets_beyond(), None);
        run(&history, &key("c"), AttemptEnd::Done);
        assert_eq!(history.forgets_beyond(), Some(2));
        assert!(history.of(&key("a")).is_none());
        for name in ["hopeless", "given-up", "paused", "annotated"] {
            assert!(history.of(&key(name)).is_some(), "{name}");
        }
        (0..STUCK).for_each(|number| run(&history, &key(&format!("stuck-{number}")), AttemptEnd::GivenUp));
        assert!(history.of(&key("hopeless")).is_none(), "they have a bound too");
        assert_eq!(history.len(), STUCK + 2);
    }

    #[tokio::test(start_paused = true)]
    async fn of_those_that_fail_or_wait_all_are_counted_and_the_first_named() {
        let history = history(2);
        for name in ["d", "a", "c", "b"] {
            history.queued([&key(&format!("waits-{name}"))], &KeyOrigin::Other(EnqueueReason::Timer));
            history.env.sleep(std::time::Duration::from_secs(1)).await;
            let failure = Failure::new(history.env.now(), format!("{name}\nfailed"), None);
            history.ended(&key(name), history.env.now(), AttemptEnd::Failed, Some(failure));
        }
        let first = [(key("a"), "a failed".to_owned()), (key("b"), "b failed".to_owned())];
        assert_eq!(history.first_failing(2), (4, first.into()));
        assert_eq!(history.first_failing(20).1.len(), 4);
        let oldest = history.oldest(2).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(oldest, [key("waits-d"), key("waits-a")]);
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_comes_of_one_event_bears_one_reading_of_the_clock() {
        let history = history(10);
        let sighting = ObservedEvent::of("pods");
        let origin = KeyOrigin::Watch(Arc::clone(&sighting));
        let begun = history.env.now();
        tell(&sighting, "web", "1");
        history.queued([&key("web")], &origin);
        history.env.sleep(std::time::Duration::from_secs(1)).await;
        history.queued([&key("later")], &origin);
        let event = Event::Added { object: (), cause: Cause::Watch };
        history.refused(&meta("web", "1"), &event, &sighting, "no");
        let of =
            |name: &str| history.of(&key(name)).map(|it| (it.queued_at, it.seen.and_then(|seen| seen.at)));
        let first = Some((Some(begun), Some(begun)));
        assert_eq!((of("web"), of("later")), (first, first));
        assert_eq!(history.refusal(&key("web")).map(|refused| refused.at), Some(begun));
        tell(&sighting, "web", "2");
        history.queued([&key("next")], &origin);
        assert_eq!(of("next").and_then(|(queued, _)| queued), Some(history.env.now()), "of another event");
    }

    #[tokio::test(start_paused = true)]
    async fn key_remembers_the_object_it_was_found_in() {
        let history = history(10);
        let sighting = ObservedEvent::of("pods");
        let origin = KeyOrigin::Watch(Arc::clone(&sighting));
        tell(&sighting, "web-1", "12");
        history.queued([&key("web-1"), &key("web")], &origin);
        sighting.over();
        history.queued([&key("web"), &key("later")], &origin);
        let of = |name: &str| {
            let record = history.of(&key(name)).expect("remembered");
            let seen = record.seen.map(|seen| (seen.object(&key(name)), seen.version(), seen.uid()));
            (seen, record.asked_by)
        };
        let uid = Some("3ce2b2d4-6b0e-4f8e-9f43-0a1b2c3d4e5f".to_owned());
        let seen = Some((key("web-1"), Some("12".to_owned()), uid));
        assert_eq!(of("web-1"), (seen.clone(), Some(EnqueueReason::Event)));
        assert_eq!(of("web"), (seen, Some(EnqueueReason::Handler)));
        assert_eq!(
            of("later"),
            (None, Some(EnqueueReason::Handler)),
            "an event that is over explains nothing"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn key_that_is_asked_for_again_waits_since_the_first_time() {
        let history = history(10);
        let other = KeyOrigin::Other(EnqueueReason::Timer);
        history.queued([&key("a")], &other);
        let first = history.of(&key("a")).and_then(|it| it.queued_at);
        history.env.sleep(std::time::Duration::from_secs(5)).await;
        history.queued([&key("a")], &other);
        assert_eq!(history.of(&key("a")).and_then(|it| it.queued_at), first);
        history.started(&key("a"), history.env.now());
        history.queued([&key("a")], &other);
        assert!(history.of(&key("a")).and_then(|it| it.queued_at) > first);
    }

    #[tokio::test(start_paused = true)]
    async fn key_that_comes_and_goes_allocates_nothing_and_costs_a_few_hundred_bytes() {
        let history = history(1000);
        let sighting = ObservedEvent::of("pods");
        let origin = KeyOrigin::Watch(Arc::clone(&sighting));
        let keys: Vec<ObjectKey> = (0..3000).map(|number| key(&format!("name-of-a-pod-{number}"))).collect();
        let metas: Vec<ObjectMeta> = keys.iter().map(|key| meta(key.name(), "123456")).collect();
        let owner = key("web");
        let round = || {
            for (key, meta) in keys.iter().zip(&metas) {
                sighting.told(meta, &Event::Added { object: (), cause: Cause::Watch });
                history.queued([key, &owner], &origin);
                history.refused(meta, &Event::Added { object: (), cause: Cause::Watch }, &sighting, "no");
                sighting.over();
                history.started(key, Instant::ORIGIN);
                history.ended(key, Instant::ORIGIN, AttemptEnd::Done, None);
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
