//! What the server went through, as its user wrote it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use windlass_object::ObjectKey;

use super::version_of;

/// Every state of every key, by version.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<BTreeMap<ObjectKey, BTreeMap<u64, State>>>);

#[derive(Clone, Debug)]
struct State {
    uid: String,
    is: Is,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Sound,
    Spoilt,
    /// It goes, at this version or soon after it.
    Going,
    Gone,
}

impl History {
    pub(super) fn wrote(&self, namespace: &str, name: &str, object: &Value) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let is = if object["data"].is_object() { Is::Sound } else { Is::Spoilt };
        self.push(namespace, name, version_of(object), State { uid, is });
    }

    pub(super) fn deleted(&self, namespace: &str, name: &str, version: u64) {
        let key = ObjectKey::namespaced(namespace, name);
        let uid =
            self.lock().get(&key).and_then(|states| states.last_key_value().map(|(_, it)| it.uid.clone()));
        self.push(namespace, name, version, State { uid: uid.unwrap_or_default(), is: Is::Gone });
    }

    /// Between these versions it went; nobody knows at which.
    pub(super) fn went_between(&self, key: &ObjectKey, before: u64, after: u64) {
        let (namespace, name) = (key.namespace().unwrap_or_default(), key.name());
        let uid =
            self.lock().get(key).and_then(|states| states.last_key_value().map(|(_, it)| it.uid.clone()));
        let uid = uid.unwrap_or_default();
        self.push(namespace, name, before + 1, State { uid: uid.clone(), is: Is::Going });
        self.push(namespace, name, after, State { uid, is: Is::Gone });
    }

    fn push(&self, namespace: &str, name: &str, version: u64, state: State) {
        let key = ObjectKey::namespaced(namespace, name);
        self.lock().entry(key).or_default().entry(version).or_insert(state);
    }

    /// Key and identity of what is there now and can be decoded, with its version.
    pub(super) fn present(&self) -> BTreeMap<(ObjectKey, String), u64> {
        let states = self.lock();
        let latest = states.iter().filter_map(|(key, states)| Some((key, states.last_key_value()?)));
        let sound = latest.filter(|(_, (_, state))| state.is == Is::Sound);
        sound.map(|(key, (version, state))| ((key.clone(), state.uid.clone()), *version)).collect()
    }

    pub(super) fn is_present(&self, key: &ObjectKey) -> bool {
        let states = self.lock();
        let latest = states.get(key).and_then(|states| states.last_key_value());
        latest.is_some_and(|(_, state)| state.is != Is::Gone)
    }

    /// Whether the object with this identity is there and always could be read.
    pub(super) fn was_always_sound(&self, key: &ObjectKey, uid: &str) -> bool {
        let states = self.lock();
        let mut of_it = states.get(key).into_iter().flat_map(BTreeMap::values).filter(|it| it.uid == uid);
        of_it.all(|state| state.is == Is::Sound)
    }

    /// Whether the server ever had this state and could be read then.
    pub(super) fn had(&self, key: &ObjectKey, uid: &str, version: u64) -> bool {
        let states = self.lock();
        let state = states.get(key).and_then(|states| states.get(&version));
        state.is_some_and(|state| state.uid == uid && state.is == Is::Sound)
    }

    /// Whether the object with this identity went at this version: no later than it is known to be gone, and after its
    /// last state.
    pub(super) fn went(&self, key: &ObjectKey, uid: &str, version: u64) -> bool {
        let states = self.lock();
        let state = states.get(key).and_then(|states| states.range(version..).next());
        state.is_some_and(|(_, state)| state.uid == uid && matches!(state.is, Is::Going | Is::Gone))
    }

    /// What could be read of this key at this version: the version of its state then.
    pub(super) fn at(&self, key: &ObjectKey, version: u64) -> Option<u64> {
        let states = self.lock();
        let (at, state) = states.get(key)?.range(..=version).next_back()?;
        (state.is == Is::Sound).then_some(*at)
    }

    /// Whether nobody knows what there was of this key at this version.
    pub(super) fn is_in_doubt(&self, key: &ObjectKey, version: u64) -> bool {
        let states = self.lock();
        let state = states.get(key).and_then(|states| states.range(..=version).next_back());
        state.is_some_and(|(_, state)| state.is == Is::Going)
    }

    /// Every key there ever was.
    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.lock().keys().cloned().collect()
    }

    /// Whether the key was without a readable object at some time after this version.
    pub(super) fn was_away_after(&self, key: &ObjectKey, version: u64) -> bool {
        let states = self.lock();
        states.get(key).is_some_and(|states| states.range(version + 1..).any(|(_, it)| it.is != Is::Sound))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, BTreeMap<u64, State>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
