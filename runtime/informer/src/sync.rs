//! Waiting for informers to have their initial lists.

use std::future::poll_fn;
use std::task::Poll;

use windlass_env::watch_channel::Receiver;
use windlass_object::ResourceVersion;

use crate::partition::ObjectLocation;
use crate::store::Progress;

/// Lets other tasks run before the caller continues. Writers and handlers that find work without end call it,
/// so that none of them keeps a thread to itself.
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

/// Waits for the initial list; `false` if the informer ended first.
pub(crate) async fn synced(mut progress: Receiver<Progress>) -> bool {
    progress.wait_for(|progress| progress.synced).await.is_ok()
}

/// Waits until everything up to `wanted` is held of the part that holds what is at `site`, or until a new epoch makes the
/// question meaningless; `false` if the informer ended first. `joins` says whether a part that is not followed is about to
/// be.
pub(crate) async fn reached_in(
    mut progress: Receiver<Progress>,
    site: ObjectLocation<'_>,
    wanted: ResourceVersion,
    joins: impl Fn(ObjectLocation<'_>) -> bool,
) -> bool {
    let epoch = progress.get().epoch;
    let reached = |now: &Progress| {
        let joining = !now.has_listed(site) && joins(site);
        !joining && now.has_reached_in(site, &wanted)
    };
    progress.wait_for(|now| now.epoch != epoch || reached(now)).await.is_ok()
}
