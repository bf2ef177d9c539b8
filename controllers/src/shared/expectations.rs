//! What an owner has asked for and the cache has not shown yet.
//!
//! Between a create and its appearance in the cache an owner would count too few pods and create more; between a
//! delete and its appearance, too many. So it remembers each pod by UID and holds still until all are accounted for:
//!
//! - a created pod once it was seen, is in the cache, has been deleted, or the cache has passed the version at which
//!   it was created: one that came and went unseen stalls nobody;
//! - a deleted pod once it is seen leaving, is gone from the cache, or the cache has passed the version of the
//!   deletion;
//! - all of them when the cache begins a new epoch: a server restored from a backup may know nothing of them, and the
//!   list that began the epoch shows what it does know;
//! - all of them after [`EXPIRY`], should everything else have failed.
//!
//! That the cache has passed a version is no event: who waits looks again every [`RECHECK`].
//!
//! Expectations are those of one owner by UID. A namesake, whenever it comes, starts clean.
//!
//! A create that failed is not expected. One refused because its namespace is going away is neither failure nor
//! success: it *withholds* further attempts until expiry, since every one of them would be refused as well.
//!
//! Nothing here reads a clock or does I/O. The lock is held for look-ups in memory only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_env::Instant;
use windlass_informer::Progress;
use windlass_object::{ObjectKey, ResourceVersion, Uid};

use super::pods;

/// How long an owner waits for what it has asked for. Watch events take seconds at worst; five minutes mean that
/// something is broken, and acting on an old cache is then better than not acting.
pub(crate) const EXPIRY: Duration = Duration::from_secs(5 * 60);

/// How often an owner that waits looks at the cache. In memory that costs next to nothing, and a pod that came and went
/// unseen is then replaced within seconds.
pub(crate) const RECHECK: Duration = Duration::from_secs(5);

/// The cache of pods, as far as expectations look at it.
pub(crate) trait PodCache {
    /// How far the cache has come.
    fn progress(&self) -> Progress;
    /// A pod by key.
    fn pod(&self, key: &ObjectKey) -> Option<Arc<Pod>>;
}

/// The expectations of all owners of one kind, by owner.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    owners: Mutex<BTreeMap<ObjectKey, Pending>>,
}

/// What one owner waits for.
#[derive(Debug)]
struct Pending {
    /// The owner's UID.
    owner: Uid,
    since: Instant,
    /// The epoch of the cache in which it began.
    epoch: u64,
    created: BTreeMap<Uid, Awaited>,
    deleted: BTreeMap<Uid, Awaited>,
    withheld: bool,
}

/// A pod waited for: where it is in the cache, and at which version the server answered.
#[derive(Debug)]
struct Awaited {
    key: ObjectKey,
    version: Option<ResourceVersion>,
}

impl Expectations {
    /// Starts afresh for `owner`, which has this UID, in an epoch of the cache: what it waited for until `now` is
    /// forgotten.
    pub(crate) fn begin(&self, owner: &ObjectKey, uid: &str, epoch: u64, now: Instant) {
        let pending = Pending {
            owner: Uid::from(uid),
            since: now,
            epoch,
            created: BTreeMap::new(),
            deleted: BTreeMap::new(),
            withheld: false,
        };
        self.lock().insert(owner.clone(), pending);
    }

    /// The server has created a pod and answered with this metadata.
    pub(crate) fn created(&self, owner: &ObjectKey, pod: &ObjectMeta) {
        let awaited = Awaited { key: ObjectKey::of(pod), version: version(pod) };
        self.with(owner, |pending| pending.created.insert(Uid::from(pods::uid(pod)), awaited));
    }

    /// The deletion of a pod is about to be asked for.
    pub(crate) fn deleting(&self, owner: &ObjectKey, pod: &ObjectMeta) {
        let awaited = Awaited { key: ObjectKey::of(pod), version: None };
        self.with(owner, |pending| pending.deleted.insert(Uid::from(pods::uid(pod)), awaited));
    }

    /// The server has accepted a deletion and answered with this metadata.
    pub(crate) fn deleted(&self, owner: &ObjectKey, pod: &ObjectMeta) {
        self.with(owner, |pending| {
            if let Some(awaited) = pending.deleted.get_mut(&Uid::from(pods::uid(pod))) {
                awaited.version = version(pod);
            }
        });
    }

    /// The server has not accepted a deletion, or the pod was gone already.
    pub(crate) fn not_deleted(&self, owner: &ObjectKey, pod: &ObjectMeta) {
        self.with(owner, |pending| pending.deleted.remove(&Uid::from(pods::uid(pod))));
    }

    /// Creating pods makes no sense for now: the namespace is going away.
    pub(crate) fn withhold(&self, owner: &ObjectKey) {
        self.with(owner, |pending| pending.withheld = true);
    }

    /// A watch has shown the pod alive.
    pub(crate) fn seen(&self, owner: &ObjectKey, pod: &ObjectMeta) {
        self.with(owner, |pending| pending.created.remove(&Uid::from(pods::uid(pod))));
    }

    /// A watch has shown the pod leaving, or gone.
    pub(crate) fn seen_leaving(&self, owner: &ObjectKey, pod: &ObjectMeta) {
        let uid = Uid::from(pods::uid(pod));
        self.with(owner, |pending| (pending.created.remove(&uid), pending.deleted.remove(&uid)));
    }

    /// The owner with this UID is gone, or has become another one of the same name.
    pub(crate) fn forget(&self, owner: &ObjectKey, uid: &str) {
        let mut owners = self.lock();
        if owners.get(owner).is_some_and(|pending| pending.owner.as_str() == uid) {
            owners.remove(owner);
        }
    }

    /// There is no owner of that name, and the caller is the only one who could begin for one.
    pub(crate) fn forget_all(&self, owner: &ObjectKey) {
        self.lock().remove(owner);
    }

    /// Whether `owner`, which has this UID, may act: nothing it waits for is outstanding, or it has waited for too
    /// long.
    pub(crate) fn satisfied(
        &self,
        owner: &ObjectKey,
        uid: &str,
        cache: &impl PodCache,
        now: Instant,
    ) -> bool {
        let mut owners = self.lock();
        let Some(pending) = owners.get_mut(owner) else { return true };
        let progress = cache.progress();
        pending.settle(cache, progress.version.as_ref());
        let void = pending.owner.as_str() != uid || pending.epoch != progress.epoch;
        let satisfied = void || pending.is_met() || pending.age(now) >= EXPIRY;
        if satisfied {
            owners.remove(owner);
        }
        satisfied
    }

    /// When to look whether the cache accounts for what `owner` waits for: [`RECHECK`], or expiry if that is sooner.
    /// `None` when it waits for nothing the cache would show.
    pub(crate) fn recheck_in(&self, owner: &ObjectKey, now: Instant) -> Option<Duration> {
        let owners = self.lock();
        let pending = owners.get(owner).filter(|pending| pending.awaits_pods())?;
        Some(EXPIRY.saturating_sub(pending.age(now)).min(RECHECK))
    }

    fn with<R>(&self, owner: &ObjectKey, change: impl FnOnce(&mut Pending) -> R) {
        if let Some(pending) = self.lock().get_mut(owner) {
            change(pending);
        }
    }

    /// A panic elsewhere leaves the map whole: every change is a single insertion or removal.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Pending>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn is_met(&self) -> bool {
        !self.withheld && !self.awaits_pods()
    }

    fn awaits_pods(&self) -> bool {
        !self.created.is_empty() || !self.deleted.is_empty()
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Drops what the cache accounts for.
    fn settle(&mut self, cache: &impl PodCache, reached: Option<&ResourceVersion>) {
        let present = |uid: &Uid, key: &ObjectKey| {
            cache.pod(key).filter(|pod| pods::uid(&pod.metadata) == uid.as_str())
        };
        self.created.retain(|uid, pod| !pod.passed(reached) && present(uid, &pod.key).is_none());
        self.deleted.retain(|uid, pod| {
            !pod.passed(reached) && present(uid, &pod.key).is_some_and(|pod| !pods::is_being_deleted(&pod))
        });
    }
}

impl Awaited {
    /// Whether a cache that has reached a version must show the pod, or its absence. Unknown counts as no.
    fn passed(&self, reached: Option<&ResourceVersion>) -> bool {
        let (Some(reached), Some(wanted)) = (reached, &self.version) else { return false };
        reached.reached(wanted) == Some(true)
    }
}

fn version(meta: &ObjectMeta) -> Option<ResourceVersion> {
    meta.resource_version.as_deref().map(ResourceVersion::new)
}

#[cfg(test)]
mod tests;
