//! The barrier of a takeover: what the last leader wrote is in this replica's caches before this one acts.
//!
//! A standby that is told of a release within milliseconds may have caches that do not show the last writes yet: it
//! would count no pods where five hundred have just been created, and create them again. Which writes to wait for:
//!
//! - Of a predecessor that *released* the lease, the Lease says up to which version of each resource it wrote. Every
//!   cache of those resources has to reach them, which takes as long as its watch does. One that does not get there
//!   within [`GRACE`] is listed anew: its watch may be stalled, or its selection may leave out the last write, which
//!   then never moves it. A resource without a cache here is read by nobody, and versions that cannot be compared are
//!   not waited for.
//! - One that *fell silent* tells nothing, and a watch that is stalled, or that is fed by an API server whose own
//!   cache has stopped, looks like one of a quiet cluster. The predecessor has not written since its renew deadline,
//!   and its lease expired seconds later; so every cache is read anew, consistently, which then shows everything. A
//!   leader that starts only after its election pays the same.
//!
//! What it refuses: to hold a replica back for good. After [`PATIENCE`] it says what is missing and lets go: a cluster
//! without a leader is worse than one with caches that are behind, and each write of a key still waits for the last.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future;
use windlass_election::{Predecessor, Written};
use windlass_env::Env;
use windlass_informer::{InformerFactory, VersionSource};
use windlass_object::{GroupResource, ResourceKind, ResourceVersion};

/// How long the barrier holds at most: a list takes seconds where there are a hundred thousand objects.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a watch is given to show what it should: it takes milliseconds, unless something is the matter.
const GRACE: Duration = Duration::from_millis(500);

/// A cache, by its kind.
type Cache = (ResourceKind, Arc<dyn VersionSource>);

/// Returns once the caches show what `predecessor` wrote, or after [`PATIENCE`].
///
/// # Cancel safety
/// Changes nothing; may be dropped and called again.
pub(crate) async fn caught_up(env: &Env, factory: &InformerFactory, predecessor: &Predecessor) {
    caught_up_in(env, &factory.running(), predecessor).await;
}

/// The same for these caches alone.
///
/// # Cancel safety
/// Changes nothing; may be dropped and called again.
pub(crate) async fn caught_up_in(env: &Env, caches: &[Cache], predecessor: &Predecessor) {
    let begun = env.now();
    let behind = match predecessor {
        Predecessor::Released(written) => behind(caches, written).await,
        Predecessor::Silent => not_refreshed(caches).await,
    };
    let waited = env.now().saturating_duration_since(begun);
    if behind.is_empty() {
        tracing::debug!(?waited, "the caches show what the last leader wrote");
    } else {
        tracing::warn!(?waited, ?behind, "going on although caches may not show what the last leader wrote");
    }
}

/// Waits for every cache of what was written; tells which did not get there.
async fn behind(caches: &[Cache], written: &Written) -> Vec<String> {
    let waits = written.iter().flat_map(|(resource, version)| {
        let of_resource = caches.iter().filter(move |(kind, _)| kind.group_resource() == *resource);
        of_resource.map(move |(_, cache)| reached(Arc::clone(cache), resource, version))
    });
    future::join_all(waits).await.into_iter().flatten().collect()
}

/// Waits for one cache; tells of it if it did not get there.
async fn reached(
    cache: Arc<dyn VersionSource>,
    resource: &GroupResource,
    version: &ResourceVersion,
) -> Option<String> {
    // A consistent list shows every write that was made before it, whatever its version says.
    if cache.reached(version.clone(), GRACE).await || cache.refreshed(PATIENCE - GRACE).await {
        return None;
    }
    let at = cache.version();
    Some(format!("{resource} at {}, not {version}", at.as_ref().map_or("nothing", ResourceVersion::as_str)))
}

/// Has every cache read anew; tells which could not be. One without its initial list, for want of a right, say, is
/// asked and not waited for: whoever needs it does not act before it has one.
async fn not_refreshed(caches: &[Cache]) -> Vec<String> {
    let waits = caches.iter().map(|(kind, cache)| async move {
        let within = if cache.has_synced() { PATIENCE } else { Duration::ZERO };
        let fresh = cache.refreshed(within).await || within.is_zero();
        (!fresh).then(|| format!("{kind}: it could not be listed anew"))
    });
    future::join_all(waits).await.into_iter().flatten().collect()
}
