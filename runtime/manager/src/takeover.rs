//! The barrier of a takeover: this replica acts only on caches that reflect the writes of the previous leader.
//!
//! A standby that observes a release within milliseconds can have caches that do not reflect the last writes yet. It
//! would count no pods after five hundred have just been created, and create them again. The predecessor determines
//! which writes to wait for:
//!
//! - A predecessor that *released* the Lease recorded in it the highest version of each resource that it wrote. Every
//!   cache of those resources must reach them, which takes as long as its watch does. A cache that does not within
//!   [`GRACE`] is relisted: its watch can be stalled, or its selection can exclude the last write, which then never
//!   advances it. Resources without a cache here are ignored, and so are versions that cannot be compared.
//! - A predecessor that *stopped renewing*, or released with a write of unknown outcome, recorded nothing, and a
//!   stalled watch looks like the watch of a quiet cluster. Its fence closed seconds before its Lease expired, or its
//!   writes have settled. Every cache is therefore relisted consistently, and then reflects all writes.
//!
//! The versions at which the caches reflect these writes are part of the record of this replica's own release, because
//! its successor can have caches that are older than this takeover.
//!
//! Each controller and each runnable waits for the caches that it declared, once they are complete, and for no others:
//! a kind that cannot be listed delays only its readers. These waits have no limit, because a controller that acts on a
//! stale cache repeats writes of its predecessor. Caches that delay a start are logged every [`LOG_INTERVAL`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture, Shared};
use windlass_election::{PreviousHolder, WrittenVersions, merge_written};
use windlass_env::Env;
use windlass_informer::VersionedCache;
use windlass_object::{ResourceKind, ResourceVersion};

/// Interval at which the caches that delay a start are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Time for a watch to deliver the recorded versions: it takes milliseconds unless there is a problem.
const GRACE: Duration = Duration::from_millis(500);

/// A cache, by its kind.
type Cache = (ResourceKind, Arc<dyn VersionedCache>);

/// The caches of one takeover, each with a wait for the version that it must reflect. Clones share the waits, so that
/// each cache is relisted at most once.
#[derive(Clone)]
pub(crate) struct Takeover {
    env: Env,
    /// The result is a version at which the cache reflects the writes; `None` if it is not known.
    waits: Vec<(ResourceKind, Shared<BoxFuture<'static, Option<ResourceVersion>>>)>,
}

impl Takeover {
    /// Creates a takeover from `previous_holder` for these caches. The waits begin when they are first polled.
    pub(crate) fn new(env: Env, caches: Vec<Cache>, previous_holder: &PreviousHolder) -> Self {
        let wait = |(kind, cache)| {
            let wait = match previous_holder {
                PreviousHolder::Released(written) => {
                    reached(cache, version_of(&kind, written)?).boxed().shared()
                }
                PreviousHolder::Unreported => relist(cache).boxed().shared(),
                // Without a previous holder there are no writes to record.
                PreviousHolder::Absent => relist(cache).map(|_| None).boxed().shared(),
            };
            Some((kind, wait))
        };
        Self { env, waits: caches.into_iter().filter_map(wait).collect() }
    }

    /// Returns the versions at which the caches that were waited for reflect the writes of the previous leaders.
    pub(crate) fn reflected(&self) -> WrittenVersions {
        let mut reflected = WrittenVersions::new();
        for (kind, wait) in &self.waits {
            let version = wait.peek().cloned().flatten().filter(ResourceVersion::is_comparable);
            let version = version.map(|version| (kind.group_resource(), version));
            merge_written(&mut reflected, &version.into_iter().collect());
        }
        reflected
    }

    /// Waits until the caches that `reads` selects reflect the writes of the previous leader. `waiting` names the
    /// waiting component.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub(crate) async fn wait_for_writes(&self, waiting: &str, reads: impl Fn(&ResourceKind) -> bool) {
        let begun = self.env.now();
        let of_these = || self.waits.iter().filter(|(kind, _)| reads(kind));
        loop {
            let all = future::join_all(of_these().map(|(_, wait)| wait.clone()));
            if self.env.timeout(LOG_INTERVAL, all).await.is_ok() {
                break;
            }
            let waited = self.env.now().saturating_duration_since(begun);
            let behind = of_these().filter(|(_, wait)| wait.peek().is_none());
            let behind: Vec<String> = behind.map(|(kind, _)| kind.to_string()).collect();
            tracing::warn!(
                waiting,
                ?waited,
                ?behind,
                "waiting for caches to reflect the previous leader's writes"
            );
        }
        let waited = self.env.now().saturating_duration_since(begun);
        tracing::debug!(waiting, ?waited, "caches reflect the previous leader's writes");
    }
}

/// Returns the version that a cache of `kind` must reach; `None` if the predecessor did not write that resource.
fn version_of(kind: &ResourceKind, written: &WrittenVersions) -> Option<ResourceVersion> {
    written.get(&kind.group_resource()).cloned()
}

/// Waits until the cache has reached `version` or has been relisted. A consistent list reflects every write before it,
/// whatever its version is.
async fn reached(cache: Arc<dyn VersionedCache>, version: ResourceVersion) -> Option<ResourceVersion> {
    match cache.wait_for_version(version.clone(), GRACE).await {
        true => Some(version),
        false => relist(cache).await,
    }
}

/// Waits until the cache has been relisted, also if its initial list is in flight, because that list can have started
/// before the last write of the leader. Does not wait for an empty cache that cannot be listed because its CRD is not
/// installed or a permission is missing.
async fn relist(cache: Arc<dyn VersionedCache>) -> Option<ResourceVersion> {
    cache.relist_now().await;
    cache.version()
}

/// Returns the higher version of each resource; `None` if either is unknown.
pub(crate) fn merged(
    one: Option<WrittenVersions>,
    other: Option<WrittenVersions>,
) -> Option<WrittenVersions> {
    let (mut merged, other) = (one?, other?);
    merge_written(&mut merged, &other);
    Some(merged)
}
