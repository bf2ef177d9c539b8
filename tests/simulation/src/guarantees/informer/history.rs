//! History of the server's objects, as the user wrote them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use windlass_object::ObjectKey;

use super::version_of;

/// All states of all keys.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<EpochStates>);

/// States by key and version.
type States = BTreeMap<ObjectKey, BTreeMap<u64, State>>;

#[derive(Debug, Default)]
struct EpochStates {
    /// States since the last restore, including those before its backup.
    current: States,
    /// States until each restore, including the writes that it undid.
    past: Vec<States>,
}

impl EpochStates {
    /// Returns the states of a key in each era.
    fn of<'a>(&'a self, key: &'a ObjectKey) -> impl Iterator<Item = &'a BTreeMap<u64, State>> {
        self.past.iter().chain([&self.current]).filter_map(move |states| states.get(key))
    }
}

#[derive(Clone, Debug)]
struct State {
    uid: String,
    state: ObjectState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectState {
    Decodable,
    Undecodable,
    /// Deleted at this version or soon after it.
    Deleting,
    Deleted,
}

impl History {
    pub(super) fn wrote(&self, namespace: &str, name: &str, object: &Value) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let state =
            if object["data"].is_object() { ObjectState::Decodable } else { ObjectState::Undecodable };
        self.push(namespace, name, version_of(object), State { uid, state });
    }

    pub(super) fn deleted(&self, namespace: &str, name: &str, version: u64) {
        let key = ObjectKey::namespaced(namespace, name);
        let uid = self
            .lock()
            .current
            .get(&key)
            .and_then(|states| states.last_key_value().map(|(_, it)| it.uid.clone()));
        self.push(
            namespace,
            name,
            version,
            State { uid: uid.unwrap_or_default(), state: ObjectState::Deleted },
        );
    }

    /// Records a deletion at an unknown version between these versions.
    pub(super) fn was_deleted_between(&self, key: &ObjectKey, before: u64, after: u64) {
        let (namespace, name) = (key.namespace().unwrap_or_default(), key.name());
        let uid = self
            .lock()
            .current
            .get(key)
            .and_then(|states| states.last_key_value().map(|(_, it)| it.uid.clone()));
        let uid = uid.unwrap_or_default();
        self.push(namespace, name, before + 1, State { uid: uid.clone(), state: ObjectState::Deleting });
        self.push(namespace, name, after, State { uid, state: ObjectState::Deleted });
    }

    /// Records a restore of the server to its state at this version.
    pub(super) fn restored(&self, version: u64) {
        let mut epochs = self.lock();
        let mut kept = epochs.current.clone();
        kept.values_mut().for_each(|states| states.retain(|at, _| *at <= version));
        kept.retain(|_, states| !states.is_empty());
        let before = std::mem::replace(&mut epochs.current, kept);
        epochs.past.push(before);
    }

    /// Returns the key whose state of this version the last restore undid.
    pub(super) fn undone_at(&self, version: u64) -> Option<ObjectKey> {
        let epochs = self.lock();
        let mut undone = epochs.past.last()?.iter().filter(|(_, states)| states.contains_key(&version));
        undone.next().map(|(key, _)| key.clone())
    }

    fn push(&self, namespace: &str, name: &str, version: u64, state: State) {
        let key = ObjectKey::namespaced(namespace, name);
        self.lock().current.entry(key).or_default().entry(version).or_insert(state);
    }

    /// Returns key and UID of all existing decodable objects, with their versions.
    pub(super) fn present(&self) -> BTreeMap<(ObjectKey, String), u64> {
        let epochs = self.lock();
        let latest = epochs.current.iter().filter_map(|(key, states)| Some((key, states.last_key_value()?)));
        let sound = latest.filter(|(_, (_, state))| state.state == ObjectState::Decodable);
        sound.map(|(key, (version, state))| ((key.clone(), state.uid.clone()), *version)).collect()
    }

    pub(super) fn is_present(&self, key: &ObjectKey) -> bool {
        let epochs = self.lock();
        let latest = epochs.current.get(key).and_then(|states| states.last_key_value());
        latest.is_some_and(|(_, state)| state.state != ObjectState::Deleted)
    }

    /// Returns whether the object with this UID exists and was always decodable.
    pub(super) fn was_always_decodable(&self, key: &ObjectKey, uid: &str) -> bool {
        let epochs = self.lock();
        let mut of_it = epochs.of(key).flat_map(BTreeMap::values).filter(|it| it.uid == uid);
        of_it.all(|state| state.state == ObjectState::Decodable)
    }

    /// Returns whether the server ever had this state and it was decodable.
    pub(super) fn had(&self, key: &ObjectKey, uid: &str, version: u64) -> bool {
        let epochs = self.lock();
        let mut states = epochs.of(key).filter_map(|states| states.get(&version));
        states.any(|state| state.uid == uid && state.state == ObjectState::Decodable)
    }

    /// Returns whether the object with this UID can have been deleted at this version: after its last state, and no
    /// later than it is known to be deleted.
    pub(super) fn went(&self, key: &ObjectKey, uid: &str, version: u64) -> bool {
        let epochs = self.lock();
        let mut states = epochs.of(key).filter_map(|states| states.range(version..).next());
        states.any(|(_, state)| {
            state.uid == uid && matches!(state.state, ObjectState::Deleting | ObjectState::Deleted)
        })
    }

    /// Returns the version of the decodable state of a key at this version.
    pub(super) fn at(&self, key: &ObjectKey, version: u64) -> Option<u64> {
        let epochs = self.lock();
        let (at, state) = epochs.current.get(key)?.range(..=version).next_back()?;
        (state.state == ObjectState::Decodable).then_some(*at)
    }

    /// Returns whether the state of a key at this version is unknown.
    pub(super) fn has_unknown_outcome(&self, key: &ObjectKey, version: u64) -> bool {
        let epochs = self.lock();
        let state = epochs.current.get(key).and_then(|states| states.range(..=version).next_back());
        state.is_some_and(|(_, state)| state.state == ObjectState::Deleting)
    }

    /// Returns all keys that ever existed.
    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.lock().current.keys().cloned().collect()
    }

    /// Returns whether the key had no decodable object at some time after this version. Always true after a restore,
    /// because then the order of versions does not show it.
    pub(super) fn was_absent_after(&self, key: &ObjectKey, version: u64) -> bool {
        let epochs = self.lock();
        if !epochs.past.is_empty() {
            return true;
        }
        epochs.current.get(key).is_some_and(|states| {
            states.range(version + 1..).any(|(_, it)| it.state != ObjectState::Decodable)
        })
    }

    fn lock(&self) -> MutexGuard<'_, EpochStates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
