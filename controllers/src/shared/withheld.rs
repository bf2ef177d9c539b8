//! Owners in a namespace that is being deleted: every create would be refused, so none is attempted for a while.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_env::Instant;
use windlass_object::{ObjectKey, Uid};

/// How long no create is attempted. Upstream's expectations expire after this time.
const EXPIRY: Duration = Duration::from_secs(5 * 60);

/// The owners of one kind that create nothing for now, by UID: a namesake starts clean.
#[derive(Debug, Default)]
pub(crate) struct Withheld(Mutex<BTreeMap<ObjectKey, (Uid, Instant)>>);

impl Withheld {
    /// The server refused to create a pod of this owner, because its namespace is being deleted.
    pub(crate) fn withhold(&self, owner: &ObjectKey, uid: &str, now: Instant) {
        self.lock().insert(owner.clone(), (Uid::from(uid), now + EXPIRY));
    }

    /// Whether the owner with this UID creates nothing for now.
    pub(crate) fn contains(&self, owner: &ObjectKey, uid: &str, now: Instant) -> bool {
        let mut owners = self.lock();
        let Some((withheld, until)) = owners.get(owner) else { return false };
        let holds = withheld.as_str() == uid && now < *until;
        if !holds {
            owners.remove(owner);
        }
        holds
    }

    /// There is no owner of that name.
    pub(crate) fn forget(&self, owner: &ObjectKey) {
        self.lock().remove(owner);
    }

    /// A panic elsewhere leaves the map whole: every change is one insertion or removal.
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
