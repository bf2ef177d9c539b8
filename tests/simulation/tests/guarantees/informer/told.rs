//! What handlers are told, held against what the server went through and what the store holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::ConfigMap;
use windlass_informer::{Cause, Event, Handler, Observation, TypedLister};
use windlass_object::ObjectKey;

use super::history::History;
use super::values;
use crate::campaign::ON_PURPOSE;

/// What is objected to, and what the store was like when it was last looked at.
pub(super) struct Judge {
    lister: TypedLister<ConfigMap>,
    objections: Mutex<Vec<String>>,
    version: Mutex<u64>,
    late_index: AtomicBool,
}

/// A handler that holds what it is told against everything.
pub(super) struct Watcher {
    name: String,
    history: Arc<History>,
    judge: Arc<Judge>,
    notes: Arc<Notes>,
    panics_every: Option<u64>,
}

/// What a handler was told.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) removed: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// What is there, as far as the handler knows.
    known: BTreeMap<ObjectKey, (String, u64)>,
    /// The version that must be passed, or reached again after an end that was inferred, by key.
    floor: BTreeMap<ObjectKey, u64>,
    /// Key and identity of everything that was ever told.
    ever: BTreeSet<(ObjectKey, String)>,
    /// What must be told before the handler is synced, if it is still there then.
    owed: BTreeSet<(ObjectKey, String)>,
    /// What must be, whatever becomes of it.
    owed_anyway: BTreeSet<(ObjectKey, String)>,
    log: Vec<String>,
    panics: u64,
}

impl Judge {
    pub(super) fn new(lister: TypedLister<ConfigMap>) -> Judge {
        Judge { lister, objections: Mutex::default(), version: Mutex::default(), late_index: false.into() }
    }

    pub(super) fn check(&self, holds: bool, objection: impl FnOnce() -> String) {
        if !holds {
            lock(&self.objections).push(objection());
        }
    }

    /// The store's version only moves forward, and what an index files is what the store holds.
    pub(super) fn look(&self) {
        let progress = self.lister.progress();
        let now = progress.version.as_ref().map_or(0, |it| it.as_str().parse().unwrap_or(0));
        let mut last = lock(&self.version);
        self.check(now >= *last, || format!("the store went back from {last} to {now}"));
        self.check(progress.epoch == 0, || "the server never went back, the store says it did".to_owned());
        *last = (*last).max(now);
    }

    pub(super) fn has_late_index(&self) {
        self.late_index.store(true, Ordering::Relaxed);
        let indexes: Vec<_> = ["value", "late"].map(|index| self.filed(index)).into_iter().collect();
        self.check(indexes[0] == indexes[1], || format!("a late index differs: {indexes:?}"));
    }

    pub(super) fn verdict(&self) -> Result<(), String> {
        lock(&self.objections).first().map_or(Ok(()), |first| Err(first.clone()))
    }

    fn filed(&self, index: &str) -> BTreeMap<String, Vec<ObjectKey>> {
        let values = self.lister.index_values(index).into_iter();
        let keys = |value: &str| self.lister.by_index(index, value).iter().map(|it| key(it)).collect();
        values.map(|value| (value.clone(), keys(&value))).collect()
    }

    /// The first index in which what is held of a key is not, or is under another value.
    fn misfiled(&self, held: &Arc<ConfigMap>) -> Option<String> {
        let late = self.late_index.load(Ordering::Relaxed).then_some("late");
        let (key, expected) = (key(held), values(held));
        ["value"].into_iter().chain(late).find_map(|index| {
            let filed: Vec<String> = self
                .filed(index)
                .into_iter()
                .filter(|(_, keys)| keys.contains(&key))
                .map(|it| it.0)
                .collect();
            (filed != expected).then(|| format!("{index} files {key} under {filed:?}, not {expected:?}"))
        })
    }
}

impl Watcher {
    pub(super) fn new(
        name: &str,
        history: Arc<History>,
        judge: Arc<Judge>,
        panics_every: Option<u64>,
    ) -> (Watcher, Arc<Notes>) {
        let notes = Arc::new(Notes::default());
        let name = name.to_owned();
        (Watcher { name, history, judge, notes: Arc::clone(&notes), panics_every }, notes)
    }

    fn check(&self, holds: bool, event: &Event<Arc<ConfigMap>>, why: &str) {
        self.judge.check(holds, || format!("{}: {why}: {}", self.name, brief(event)));
    }

    /// States come as the server produced them, each from the one before it.
    fn follows(&self, told: &mut Told, event: &Event<Arc<ConfigMap>>) {
        let object = event.object();
        let (key, uid, now) = (key(object), uid(object), version(object));
        let known = told.known.get(&key).cloned();
        let floor = told.floor.get(&key).copied().unwrap_or_default();
        match event {
            Event::Added { .. } => {
                self.check(known.is_none(), event, "added twice");
                self.check(now >= floor, event, "added in a state from before its end");
                self.check(self.history.had(&key, &uid, now), event, "the server never had it so");
                told.floor.insert(key.clone(), now);
                told.known.insert(key.clone(), (uid.clone(), now));
            }
            Event::Updated { old, cause, .. } => {
                let before = (self::uid(old), version(old));
                self.check(known == Some(before.clone()), event, "not from what was told before");
                self.check(before.0 == uid, event, "an update into another object");
                let forward = now > before.1 || *cause == Cause::Resync && now == before.1;
                self.check(forward, event, "not forward");
                self.check(self.history.had(&key, &uid, now), event, "the server never had it so");
                told.floor.insert(key.clone(), now);
                told.known.insert(key.clone(), (uid.clone(), now));
            }
            Event::Deleted { observed, .. } => {
                let of_it = known.as_ref().is_some_and(|(known, at)| *known == uid && now >= *at);
                self.check(of_it, event, "deleted, and not known before");
                let (had, went) = (self.history.had(&key, &uid, now), self.history.went(&key, &uid, now));
                self.check(had || went, event, "the server never had it so");
                // What could not be decoded for a while comes back as it was.
                let floor = if *observed == Observation::Seen { now + 1 } else { now };
                told.floor.insert(key.clone(), floor);
                told.known.remove(&key);
            }
        }
        told.ever.insert((key, uid));
    }

    /// The store holds it already, or something newer.
    fn is_held(&self, event: &Event<Arc<ConfigMap>>) {
        self.judge.look();
        let (key, told) = (key(event.object()), version(event.object()));
        self.check(*lock(&self.judge.version) >= told, event, "the store's version is older");
        let held = self.judge.lister.get(&key);
        let quarantined = self.judge.lister.is_quarantined(&key);
        if let Some(held) = &held {
            let misfiled = self.judge.misfiled(held);
            self.check(misfiled.is_none(), event, &misfiled.unwrap_or_default());
            self.check(!quarantined, event, "it is both held and in quarantine");
        }
        let held = held.map(|held| version(&held));
        let holds = match (event, held) {
            (Event::Deleted { .. }, None) => true,
            (Event::Deleted { observed: Observation::Seen, .. }, Some(held)) => held > told,
            (_, Some(held)) => held >= told,
            (_, None) => quarantined || self.history.was_away_after(&key, told),
        };
        self.check(holds, event, &format!("the store holds {held:?}"));
    }
}

impl Handler<Arc<ConfigMap>> for Watcher {
    fn handle(&mut self, event: &Event<Arc<ConfigMap>>) {
        self.check(!self.notes.removed.load(Ordering::Relaxed), event, "told after it was removed");
        self.is_held(event);
        let mut told = self.notes.lock();
        self.follows(&mut told, event);
        told.log.push(brief(event));
        let panics = self.panics_every.is_some_and(|n| (told.log.len() as u64).is_multiple_of(n));
        told.panics += u64::from(panics);
        drop(told);
        if panics {
            std::panic::panic_any(ON_PURPOSE);
        }
    }
}

impl Notes {
    /// The server has these before the informer begins.
    pub(super) fn owes(&self, those: BTreeSet<(ObjectKey, String)>) {
        self.lock().owed = those;
    }

    /// The store holds these before the handler comes.
    pub(super) fn owes_anyway(&self, those: BTreeSet<(ObjectKey, String)>) {
        self.lock().owed_anyway = those;
    }

    /// What was to be told by the time the handler is synced, and was not. `can_be_read` is asked about those that the
    /// informer did not hold.
    pub(super) fn still_owed(&self, can_be_read: impl Fn(&ObjectKey, &str) -> bool) -> Vec<ObjectKey> {
        let told = self.lock();
        let owed = told.owed.iter().filter(|(key, uid)| can_be_read(key, uid)).chain(&told.owed_anyway);
        owed.filter(|it| !told.ever.contains(it)).map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn known(&self) -> BTreeMap<ObjectKey, u64> {
        self.lock().known.iter().map(|(key, (_, version))| (key.clone(), *version)).collect()
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    pub(super) fn panics(&self) -> u64 {
        self.lock().panics
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        lock(&self.told)
    }
}

pub(super) fn key(map: &ConfigMap) -> ObjectKey {
    ObjectKey::of(&map.metadata)
}

pub(super) fn uid(map: &ConfigMap) -> String {
    map.metadata.uid.clone().unwrap_or_default()
}

pub(super) fn version(map: &ConfigMap) -> u64 {
    map.metadata.resource_version.as_ref().and_then(|it| it.parse().ok()).unwrap_or_default()
}

pub(super) fn identity(map: &ConfigMap) -> (ObjectKey, String) {
    (key(map), uid(map))
}

fn brief(event: &Event<Arc<ConfigMap>>) -> String {
    let state = |map: &Arc<ConfigMap>| format!("{}@{}{:?}", key(map), version(map), values(map));
    match event {
        Event::Added { object, cause } => format!("+{} {cause:?}", state(object)),
        Event::Updated { old, new, cause } => format!("{} > {} {cause:?}", state(old), state(new)),
        Event::Deleted { last, observed, cause } => format!("-{} {observed:?} {cause:?}", state(last)),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
