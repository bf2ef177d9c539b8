//! Owners in a terminating namespace: the server would reject all creates, so none is sent for some minutes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_env::Instant;
use windlass_object::{ObjectKey, Uid};

/// Time without creates, the same as the expiry of expectations upstream.
const EXPIRY: Duration = Duration::from_secs(5 * 60);

/// Owners that currently create no pods, by UID: a new owner with the same name is not affected.
#[derive(Debug, Default)]
pub(crate) struct Withheld(Mutex<BTreeMap<ObjectKey, (Uid, Instant)>>);

impl Withheld {
    /// Records that the server rejected a pod of this owner because its namespace is terminating.
    pub(crate) fn withhold(&self, owner: &ObjectKey, uid: &str, now: Instant) {
        self.lock().insert(owner.clone(), (Uid::from(uid), now + EXPIRY));
    }

    /// Returns whether the owner with this UID currently creates no pods.
    pub(crate) fn contains(&self, owner: &ObjectKey, uid: &str, now: Instant) -> bool {
        let mut owners = self.lock();
        let Some((withheld, until)) = owners.get(owner) else { return false };
        let holds = withheld.as_str() == uid && now < *until;
        if !holds {
            owners.remove(owner);
        }
        holds
    }

    /// Removes an owner that no longer exists.
    pub(crate) fn forget(&self, owner: &ObjectKey) {
        self.lock().remove(owner);
    }

    /// Locks the map. It is consistent after a panic, because each change is one insertion or removal.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, (Uid, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_withheld_for_five_minutes_and_its_namesake_is_not() {
        let (withheld, web, now) =
            (Withheld::default(), ObjectKey::namespaced("default", "web"), Instant::ORIGIN);
        withheld.withhold(&web, "first", now);
        let just_before = now + Duration::from_millis(299_999);
        assert!(withheld.contains(&web, "first", just_before));
        assert!(!withheld.contains(&ObjectKey::namespaced("default", "db"), "first", now));
        assert!(!withheld.contains(&web, "first", now + EXPIRY));
        withheld.withhold(&web, "first", now);
        assert!(!withheld.contains(&web, "second", now));
        assert!(!withheld.contains(&web, "first", now), "the first is gone");
        withheld.withhold(&web, "first", now);
        withheld.forget(&web);
        assert!(!withheld.contains(&web, "first", now));
    }
}
