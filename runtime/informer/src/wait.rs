//! Waits for the progress of a store.

use windlass_env::watch_channel::Receiver;
use windlass_object::ResourceVersion;

use crate::partition::ObjectLocation;
use crate::store::Progress;

/// Waits for the initial list. Returns `false` if the informer stops first.
pub(crate) async fn synced(mut progress: Receiver<Progress>) -> bool {
    progress.wait_for(|progress| progress.synced).await.is_ok()
}

/// Waits until the partition for `location` contains all changes up to `wanted`, or until a new epoch starts, which
/// makes the version obsolete. Returns `false` if the informer stops first. `joins` returns whether a partition that is
/// not followed yet is desired.
pub(crate) async fn wait_for_version_in(
    mut progress: Receiver<Progress>,
    location: ObjectLocation<'_>,
    wanted: ResourceVersion,
    joins: impl Fn(ObjectLocation<'_>) -> bool,
) -> bool {
    let epoch = progress.get().epoch;
    let reached = |now: &Progress| {
        let joining = !now.has_listed(location) && joins(location);
        !joining && now.has_reached_in(location, &wanted)
    };
    progress.wait_for(|now| now.epoch != epoch || reached(now)).await.is_ok()
}
