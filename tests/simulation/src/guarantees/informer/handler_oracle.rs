//! Compares the events of handlers with the history of the server and the content of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::DynamicObject;
use windlass_informer::{Cause, DeletionEvidence, Delivery, Event, Handler, Index, Lister, Progress};
use windlass_object::{ObjectKey, ResourceVersion};
use windlass_testing::{FaultAction, FaultPlan};

use super::history::History;
use crate::guarantees::family::ON_PURPOSE;

/// The checked properties of an object.
pub(super) trait TestObject: Resource + Send + Sync + 'static {
    /// Returns its index values.
    fn values(&self) -> Vec<String>;

    /// Returns the size of its data.
    fn bulk(&self) -> usize {
        0
    }
}

impl TestObject for ConfigMap {
    fn values(&self) -> Vec<String> {
        self.data.as_ref().and_then(|data| data.get("value").cloned()).into_iter().collect()
    }

    fn bulk(&self) -> usize {
        self.data.iter().flatten().map(|(_, text)| text.len()).sum()
    }
}

impl TestObject for DynamicObject {
    fn values(&self) -> Vec<String> {
        self.data["data"]["value"].as_str().map(str::to_owned).into_iter().collect()
    }
}

/// Violations, and the state of the store at the last check.
pub(super) struct HandlerOracle<T: TestObject> {
    lister: Lister<T>,
    /// History of the server, if the store must contain exactly the server's objects at the store's version.
    exact: Option<Arc<History>>,
    /// Whether the selection can change.
    deselects: bool,
    /// Number of restores of the server: the maximum epoch of the store.
    restores: u64,
    index: Option<Index<T, String>>,
    violations: Mutex<Vec<String>>,
    /// Newest epoch of the store, and its newest version in that epoch.
    reached: Mutex<(u64, u64)>,
    late_index: Mutex<Option<Index<T, String>>>,
}

/// A handler that checks the events it receives.
pub(super) struct CheckingHandler<T: TestObject> {
    name: String,
    history: Arc<History>,
    oracle: Arc<HandlerOracle<T>>,
    event_log: Arc<EventLog>,
    delivery: Delivery,
    panics_every: Option<u64>,
}

/// Record of the events of a handler.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    pub(super) removed: AtomicBool,
    state: Mutex<EventLogState>,
}

#[derive(Debug, Default)]
struct EventLogState {
    /// Objects that exist according to the events.
    known: BTreeMap<ObjectKey, (String, u64)>,
    /// Version that the next event must exceed, or equal after an inferred deletion, by key.
    floor: BTreeMap<ObjectKey, u64>,
    /// Key and UID of all objects that were ever reported.
    reported: BTreeSet<(ObjectKey, String)>,
    /// Objects that must be reported before the handler is synced, if they still exist then.
    expected_before_sync: BTreeSet<(ObjectKey, String)>,
    /// Objects that must be reported in any case.
    expected_always: BTreeSet<(ObjectKey, String)>,
    log: Vec<String>,
    /// States of each key, without resyncs.
    paths: BTreeMap<ObjectKey, Vec<String>>,
    /// Newest version that was reported as observed by a watch.
    seen: u64,
    panics: u64,
}

/// Returns whether a correct store contains exactly the server's objects at the store's version under these faults: no
/// fault returns older lists or other objects, or omits states.
pub(super) fn is_exact(plan: &FaultPlan) -> bool {
    let blurs = |what: &FaultAction| {
        // The versions of a restored server do not order its states.
        matches!(
            what,
            FaultAction::StaleReplica
                | FaultAction::Poison { .. }
                | FaultAction::Coalesced { .. }
                | FaultAction::Restore
        )
    };
    !plan.faults.iter().any(|fault| blurs(&fault.action))
}

/// Returns the content of an index.
fn filed<T: TestObject>(index: &Index<T, String>) -> BTreeMap<String, Vec<ObjectKey>> {
    index.values().into_iter().map(|value| (value.clone(), index.keys(&value))).collect()
}

impl<T: TestObject> HandlerOracle<T> {
    pub(super) fn new(lister: Lister<T>) -> Self {
        HandlerOracle {
            lister,
            exact: None,
            deselects: false,
            restores: 0,
            index: None,
            violations: Mutex::default(),
            reached: Mutex::default(),
            late_index: Mutex::default(),
        }
    }

    /// Requires the store to contain exactly the server's objects at the store's version.
    pub(super) fn exactly(self, history: &Arc<History>) -> Self {
        HandlerOracle { exact: Some(Arc::clone(history)), ..self }
    }

    /// Permits changes of the selection.
    pub(super) fn deselects(self) -> Self {
        HandlerOracle { deselects: true, ..self }
    }

    /// Permits this many restores of the server.
    pub(super) fn with_restores(self, restores: u64) -> Self {
        HandlerOracle { restores, ..self }
    }

    /// Returns whether all versions so far belong to one epoch, so that they are in the order of the writes.
    fn orders_versions(&self) -> bool {
        self.restores == 0 || self.lister.progress().epoch == 0
    }

    /// Requires the cached objects to be in this index.
    pub(super) fn with_index(self, index: Index<T, String>) -> Self {
        HandlerOracle { index: Some(index), ..self }
    }

    pub(super) fn check(&self, holds: bool, violation: impl FnOnce() -> String) {
        if !holds {
            lock(&self.violations).push(violation());
        }
    }

    /// Checks that the store's version never decreases, and that indexes contain the objects of the store.
    pub(super) fn check_store(&self) {
        let progress = self.lister.progress();
        let now = progress.version.as_ref().and_then(number).unwrap_or_default();
        let mut reached = lock(&self.reached);
        let (epoch, last) = *reached;
        let was_restored = self.restores > 0 && progress.epoch > epoch;
        self.check(now >= last || was_restored, || {
            format!("the store went back from {last} to {now} in epoch {epoch}")
        });
        let restores = self.restores;
        self.check(progress.epoch <= restores, || {
            format!("the server was restored {restores} times, the store is in epoch {}", progress.epoch)
        });
        *reached = (*reached).max((progress.epoch, now));
        drop(reached);
        if let Some(history) = &self.exact {
            self.check_store_equals_server(history, &progress);
        }
    }

    fn check_store_equals_server(&self, history: &History, progress: &Progress) {
        let held: BTreeMap<_, _> = self.lister.list().iter().map(|it| (key(&**it), version(&**it))).collect();
        for key in history.keys() {
            let namespace = key.namespace();
            let listed = progress.has_listed(namespace.unwrap_or_default());
            let at = progress.version_in(namespace).filter(|_| listed).and_then(number);
            if at.is_some_and(|at| history.has_unknown_outcome(&key, at)) {
                continue;
            }
            let (held, was) = (held.get(&key).copied(), at.and_then(|at| history.at(&key, at)));
            self.check(held == was, || {
                format!("the store is at {at:?} and holds {key} at {held:?}, the server had {was:?} then")
            });
        }
    }

    /// Returns the version of the store in the namespace of this key.
    fn version_of(&self, key: &ObjectKey) -> Option<u64> {
        self.lister.progress().version_in(key.namespace()).and_then(number)
    }

    pub(super) fn has_late_index(&self, late: Index<T, String>) {
        let early = self.index.as_ref().map(filed);
        self.check(early == Some(filed(&late)), || {
            format!("a late index differs: {early:?}, {:?}", filed(&late))
        });
        *lock(&self.late_index) = Some(late);
    }

    pub(super) fn result(&self) -> Result<(), String> {
        lock(&self.violations).first().map_or(Ok(()), |first| Err(first.clone()))
    }

    /// Returns the first index that lacks a cached object, or has it under another value.
    fn index_difference(&self, held: &T) -> Option<String> {
        let late = lock(&self.late_index).clone();
        let (key, expected) = (key(held), held.values());
        self.index.iter().chain(&late).find_map(|index| {
            let under = filed(index).into_iter().filter(|(_, keys)| keys.contains(&key));
            let under: Vec<String> = under.map(|(value, _)| value).collect();
            (under != expected).then(|| format!("an index has {key} under {under:?}, not {expected:?}"))
        })
    }
}

impl<T: TestObject> CheckingHandler<T> {
    pub(super) fn new(
        name: &str,
        history: Arc<History>,
        oracle: Arc<HandlerOracle<T>>,
        delivery: Delivery,
        panics_every: Option<u64>,
    ) -> (Self, Arc<EventLog>) {
        let event_log = Arc::new(EventLog::default());
        let name = name.to_owned();
        (
            CheckingHandler {
                name,
                history,
                oracle,
                event_log: Arc::clone(&event_log),
                delivery,
                panics_every,
            },
            event_log,
        )
    }

    fn check(&self, holds: bool, event: &Event<Arc<T>>, why: &str) {
        self.oracle.check(holds, || format!("{}: {why}: {}", self.name, brief(event)));
    }

    /// Checks that each event follows from the previous state and has a state that the server produced.
    fn follows(&self, state: &mut EventLogState, event: &Event<Arc<T>>) {
        let object = &**event.object();
        let (key, uid, now) = (key(object), uid(object), version(object));
        let known = state.known.get(&key).cloned();
        let floor = state.floor.get(&key).copied().unwrap_or_default();
        let ordered = self.oracle.orders_versions();
        match event {
            Event::Added { .. } => {
                self.check(known.is_none(), event, "added twice");
                self.check(now >= floor || !ordered, event, "added in a state from before its deletion");
                self.check(self.history.had(&key, &uid, now), event, "the server never had this state");
                state.floor.insert(key.clone(), now);
                state.known.insert(key.clone(), (uid.clone(), now));
            }
            Event::Updated { old, cause, .. } => {
                let before = (self::uid(&**old), version(&**old));
                self.check(known == Some(before.clone()), event, "old state is not the last reported one");
                self.check(before.0 == uid, event, "the update has another UID");
                let forward = now > before.1 || *cause == Cause::Resync && now == before.1;
                self.check(forward || !ordered, event, "the version does not increase");
                self.check(self.history.had(&key, &uid, now), event, "the server never had this state");
                state.floor.insert(key.clone(), now);
                state.known.insert(key.clone(), (uid.clone(), now));
            }
            Event::Deleted { observed, .. } => {
                let of_it =
                    known.as_ref().is_some_and(|(known, at)| *known == uid && (now >= *at || !ordered));
                self.check(of_it, event, "deleted without being known");
                let (had, went) = (self.history.had(&key, &uid, now), self.history.went(&key, &uid, now));
                self.check(had || went, event, "the server never had this state");
                let deselected = event.cause() == Cause::Deselected;
                self.check(!deselected || self.oracle.deselects, event, "everything is selected");
                let ended = went || deselected || self.history.was_absent_after(&key, now);
                self.check(ended || self.oracle.exact.is_none(), event, "it was never deleted");
                // An object that could not be decoded for some time can reappear unchanged.
                let floor = if *observed == DeletionEvidence::Observed { now + 1 } else { now };
                state.floor.insert(key.clone(), floor);
                state.known.remove(&key);
            }
        }
        state.reported.insert((key, uid));
    }

    /// Records the state, and checks the order of events for handlers with `EveryEvent` delivery.
    fn records_path(&self, state: &mut EventLogState, event: &Event<Arc<T>>) {
        let (key, now) = (key(&**event.object()), version(&**event.object()));
        let (step, was_seen) = match event {
            Event::Updated { cause: Cause::Resync, .. } => return,
            Event::Added { .. } => (format!("+{now}"), true),
            Event::Updated { .. } => (format!("~{now}"), true),
            Event::Deleted { observed, .. } => (format!("-{now}"), *observed == DeletionEvidence::Observed),
        };
        state.paths.entry(key).or_default().push(step);
        let every = matches!(self.delivery, Delivery::EveryEvent { .. });
        if every && self.oracle.exact.is_some() && was_seen && event.cause() == Cause::Watch {
            self.check(now >= state.seen, event, "it is older than an earlier event");
            state.seen = now;
        }
    }

    /// Checks that the store already contains this state or a newer one.
    fn is_held(&self, event: &Event<Arc<T>>) {
        self.oracle.check_store();
        let (key, state) = (key(&**event.object()), version(&**event.object()));
        // Objects outside the selection, or of a kind that is not served, have no version.
        let listed = self.oracle.lister.progress().has_listed(key.namespace().unwrap_or_default());
        let reached = self.oracle.version_of(&key).is_some_and(|version| version >= state);
        let ordered = self.oracle.orders_versions();
        self.check(!listed || reached || !ordered, event, "the store's version is older");
        let held = self.oracle.lister.get_lossy(&key);
        let undecodable = self.oracle.lister.get(&key).is_err();
        if let Some(held) = &held {
            let index_difference = self.oracle.index_difference(held);
            self.check(index_difference.is_none(), event, &index_difference.unwrap_or_default());
            self.check(!undecodable, event, "it is both cached and undecodable");
        }
        let held = held.map(|held| version(&*held));
        let holds = match (event, held) {
            (Event::Deleted { .. }, None) => true,
            (_, Some(_)) if !ordered => true,
            (Event::Deleted { observed: DeletionEvidence::Observed, .. }, Some(held)) => held > state,
            (_, Some(held)) => held >= state,
            (_, None) => !listed || undecodable || self.history.was_absent_after(&key, state),
        };
        self.check(holds, event, &format!("the store holds {held:?}"));
    }
}

impl<T: TestObject> Handler<Arc<T>> for CheckingHandler<T> {
    fn handle(&mut self, event: &Event<Arc<T>>) {
        self.check(
            !self.event_log.removed.load(Ordering::Relaxed),
            event,
            "event after the handler was removed",
        );
        self.is_held(event);
        let mut state = self.event_log.lock();
        self.follows(&mut state, event);
        state.log.push(brief(event));
        self.records_path(&mut state, event);
        let panics = self.panics_every.is_some_and(|n| (state.log.len() as u64).is_multiple_of(n));
        state.panics += u64::from(panics);
        drop(state);
        if panics {
            std::panic::panic_any(ON_PURPOSE);
        }
    }
}

impl EventLog {
    /// Adds objects that the server has before the informer starts.
    pub(super) fn expect_before_sync(&self, those: BTreeSet<(ObjectKey, String)>) {
        self.lock().expected_before_sync = those;
    }

    /// Adds objects that the store contains before the handler is added.
    pub(super) fn expect_always(&self, those: BTreeSet<(ObjectKey, String)>) {
        self.lock().expected_always = those;
    }

    /// Returns the objects that should have been reported before the handler was synced. `can_be_read` is called for
    /// objects that the informer did not contain.
    pub(super) fn missing_events(&self, can_be_read: impl Fn(&ObjectKey, &str) -> bool) -> Vec<ObjectKey> {
        let state = self.lock();
        let expected_before_sync = state
            .expected_before_sync
            .iter()
            .filter(|(key, uid)| can_be_read(key, uid))
            .chain(&state.expected_always);
        expected_before_sync.filter(|it| !state.reported.contains(it)).map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn known(&self) -> BTreeMap<ObjectKey, u64> {
        self.lock().known.iter().map(|(key, (_, version))| (key.clone(), *version)).collect()
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    /// Returns the reported states of each key, without resyncs.
    pub(super) fn paths(&self) -> BTreeMap<ObjectKey, Vec<String>> {
        self.lock().paths.clone()
    }

    pub(super) fn panics(&self) -> u64 {
        self.lock().panics
    }

    fn lock(&self) -> MutexGuard<'_, EventLogState> {
        lock(&self.state)
    }
}

pub(super) fn key(thing: &impl TestObject) -> ObjectKey {
    ObjectKey::of(thing.meta())
}

pub(super) fn uid(thing: &impl TestObject) -> String {
    thing.meta().uid.clone().unwrap_or_default()
}

pub(super) fn version(thing: &impl TestObject) -> u64 {
    thing.meta().resource_version.as_ref().and_then(|it| it.parse().ok()).unwrap_or_default()
}

pub(super) fn identity(thing: &impl TestObject) -> (ObjectKey, String) {
    (key(thing), uid(thing))
}

fn number(version: &ResourceVersion) -> Option<u64> {
    version.as_str().parse().ok()
}

fn brief<T: TestObject>(event: &Event<Arc<T>>) -> String {
    let state = |thing: &Arc<T>| format!("{}@{}{:?}", key(&**thing), version(&**thing), thing.values());
    match event {
        Event::Added { object, cause } => format!("+{} {cause:?}", state(object)),
        Event::Updated { old, new, cause } => format!("{} > {} {cause:?}", state(old), state(new)),
        Event::Deleted { last, observed, cause } => format!("-{} {observed:?} {cause:?}", state(last)),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
