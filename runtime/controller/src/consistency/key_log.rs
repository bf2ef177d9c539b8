//! The write log of one key's reconciles: records the writes that the client reports in the [`WriteTracker`].

use windlass_client::{CacheState, Write, WriteLog, WriteTarget};
use windlass_env::{Env, Instant};
use windlass_object::{GroupResource, ObjectKey, Uid, Verb};

use crate::consistency::caches::{Caches, DeletionState};
use crate::consistency::write_tracker::{NO_EPOCH, SharedWriteTracker, WriteTracker, WrittenCollection};

/// The write log of one reconcile: all writes of its client belong to this key, however long the client is kept.
pub(crate) struct KeyLog {
    env: Env,
    tracker: SharedWriteTracker,
    caches: Caches,
    key: ObjectKey,
}

impl KeyLog {
    pub(crate) fn new(env: Env, tracker: SharedWriteTracker, caches: Caches, key: ObjectKey) -> Self {
        Self { env, tracker, caches, key }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns whether the server and the caches are of different epochs: the version of a created object is not later
    /// than the version of a cache before the create. Other writes prove nothing: without a change they return the old
    /// version.
    fn is_of_other_epoch(write: &Write) -> bool {
        let versions = write.version.as_ref().zip(write.cached.version.as_ref());
        write.target.verb == Verb::Create
            && write.target.subresource.is_none()
            && versions.is_some_and(|(version, cached)| version <= cached)
    }

    fn collection(&self, target: &WriteTarget) -> WrittenCollection {
        WrittenCollection::new(changed(target), target.namespace.as_deref())
    }

    fn record(
        &self,
        target: &WriteTarget,
        object: Option<&Uid>,
        write: impl FnOnce(&mut WriteTracker, &ObjectKey, &WrittenCollection, u64, Instant),
    ) {
        // Without a watch of the resource there is no cache that could be stale.
        let collection = self.collection(target);
        let Some(epoch) = self.caches.epoch(&collection.resource) else { return };
        let object = object.filter(|_| self.caches.sharded_by_uid(&collection.resource));
        let collection = match object {
            Some(uid) => collection.of_object(uid.clone()),
            None => collection,
        };
        let mut tracker = self.tracker.lock();
        write(&mut tracker, &self.key, &collection, epoch, self.env.now());
        tracker.sweep_some(|collection, awaited| self.caches.reflect(collection, awaited));
    }
}

impl WriteLog for KeyLog {
    fn cached(&self, target: &WriteTarget) -> CacheState {
        let collection = self.collection(target);
        let key = target.name.as_deref().map(|name| ObjectKey::new(collection.namespace(), name));
        CacheState {
            version: self.caches.newest_version(&collection.resource, collection.location()),
            uid: key.and_then(|key| self.caches.uid_of(&collection.resource, &key)),
        }
    }

    fn wrote(&self, write: Write) {
        let resource = &write.target.resource;
        let is_of_other_epoch = Self::is_of_other_epoch(&write);
        if let Some(version) = &write.version {
            let (epoch, now) = (self.caches.epoch(resource), self.env.now());
            let mut tracker = self.tracker.lock();
            tracker.record_version(resource, version, epoch, now);
            if is_of_other_epoch {
                tracker.left_epoch(resource, epoch);
            }
        }
        if changes_nothing(&write.target) {
            return;
        }
        let ended = ended(&write);
        // The deletion of a cached object is reflected when the object is gone. A cache without it can receive it
        // later, so its version must pass a consistent read.
        let is_followed = ended.as_ref().is_some_and(|(_, uid, _)| write.cached.uid.as_ref() == Some(uid));
        if write.version.is_none() && !is_followed {
            // It has taken effect.
            return self.ambiguous(write.target, self.env.now());
        }
        self.record(&write.target, write.uid.as_ref(), |tracker, key, collection, epoch, now| {
            let epoch = if is_of_other_epoch { NO_EPOCH } else { epoch };
            if let Some(version) = &write.version {
                tracker.record_write(key, collection, version, epoch, now);
            }
            if let Some(object) = ended {
                tracker.record_deletion(key, collection, object, epoch, now);
            }
        });
    }

    fn ambiguous(&self, target: WriteTarget, settled_at: Instant) {
        let resource = changed(&target);
        if self.caches.epoch(&resource).is_none() {
            return self.tracker.lock().record_unknown_uncached(&resource, settled_at);
        }
        self.record(&target, None, |tracker, key, collection, epoch, now| {
            tracker.record_unknown_outcome(key, collection, epoch, now, settled_at);
        });
        self.tracker.notify_outcomes_changed();
    }
}

/// Returns whether a request with a write verb leaves the object unchanged: creating a token stores nothing.
fn changes_nothing(target: &WriteTarget) -> bool {
    target.resource == GroupResource::new("", "serviceaccounts")
        && target.subresource.as_deref() == Some("token")
}

/// Returns the resource whose objects a write changes: that of its path, except for bindings, which are not stored and
/// change the Pod they name.
fn changed(target: &WriteTarget) -> GroupResource {
    let binds = target.resource == GroupResource::new("", "bindings");
    if binds { GroupResource::new("", "pods") } else { target.resource.clone() }
}

/// Returns the object that a write deleted, if the response identifies it. The name alone is not enough: another object
/// can have it by now.
fn ended(write: &Write) -> Option<(ObjectKey, Uid, DeletionState)> {
    let deletes = write.target.verb == Verb::Delete && write.target.subresource.is_none();
    let end = if write.is_removed {
        Some(DeletionState::Gone)
    } else {
        deletes.then_some(DeletionState::Terminating)
    };
    Some((write.key.clone()?, write.uid.clone()?, end?))
}

impl std::fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyLog").field("key", &self.key).finish_non_exhaustive()
    }
}
