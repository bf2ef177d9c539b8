//! Helpers that wait for informers.

use std::future::poll_fn;
use std::task::Poll;

use windlass_env::watch_channel::Receiver;
use windlass_object::ResourceVersion;

use crate::partition::ObjectLocation;
use crate::store::Progress;

/// Lets other tasks run before the caller continues. Writers and handlers call it in long loops so that they do not
/// occupy a thread.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for the initial list. Returns `false` if the informer stops first.
pub(crate) async fn synced(mut progress: Receiver<Progress>) -> bool {
    progress.wait_for(|progress| progress.synced).await.is_ok()
}

/// Waits until the partition for `location` contains all changes up to `wanted`, or until a new epoch starts, which makes
/// the version obsolete. Returns `false` if the informer stops first. `joins` returns whether a partition that is not
/// followed yet is desired.
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
