//! The barrier of a takeover: the caches reflect what the last leader wrote before anything of this replica acts on them.
//!
//! A standby that observes a release within milliseconds can have caches that do not reflect the last writes yet: it would
//! count no pods where five hundred have just been created, and create them again. Which writes to wait for:
//!
//! - A predecessor that *released* the lease recorded in the Lease up to which version of each resource it wrote. Every
//!   cache of those resources must reach them, which takes as long as its watch does. A cache that does not within
//!   [`GRACE`] is listed again: its watch can be stalled, or its selection can exclude the last write, which then never
//!   moves it. A resource without a cache here is not read, and versions that cannot be compared are not waited for.
//! - A predecessor that *fell silent*, or released with a write of unknown outcome, recorded nothing, and a watch that is
//!   stalled looks like one of a quiet cluster. Its fence closed seconds before its lease expired, or its writes have
//!   settled; so every cache is listed again, consistently, and then reflects everything.
//!
//! Each controller and each runnable waits for the caches that it declared, once they are complete, and for no others: a kind
//! that cannot be listed delays only what reads it. These waits have no limit, because a controller that acts on a stale
//! cache repeats what its predecessor did; what is missing is logged every [`LOG_INTERVAL`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture, Shared};
use windlass_election::{PreviousHolder, WrittenVersions};
use windlass_env::Env;
use windlass_informer::VersionSource;
use windlass_object::{ResourceKind, ResourceVersion};

/// How often the caches that delay a start are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// How long a watch is given to show what it should: it takes milliseconds, unless something is the matter.
const GRACE: Duration = Duration::from_millis(500);

/// A cache, by its kind.
type Cache = (ResourceKind, Arc<dyn VersionSource>);

/// The caches of one takeover, each with the wait for what it must reflect. Clones share the waits, so that a cache is
/// listed once for everything that reads it.
#[derive(Clone)]
pub(crate) struct Takeover {
    env: Env,
    waits: Vec<(ResourceKind, Shared<BoxFuture<'static, ()>>)>,
}

impl Takeover {
    /// A takeover from `predecessor` by what reads these caches. The waits begin when they are first polled.
    pub(crate) fn new(env: Env, caches: Vec<Cache>, predecessor: &PreviousHolder) -> Self {
        let wait = |(kind, cache)| {
            let wait = match predecessor {
                PreviousHolder::Released(written) => {
                    reached(cache, version_of(&kind, written)?).boxed().shared()
                }
                PreviousHolder::Unreported => refreshed(cache).boxed().shared(),
            };
            Some((kind, wait))
        };
        Self { env, waits: caches.into_iter().filter_map(wait).collect() }
    }

    /// Waits until the caches that `reads` selects reflect what the last leader wrote. `waiting` names who waits.
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
                "waiting for caches to reflect what the last leader wrote"
            );
        }
        let waited = self.env.now().saturating_duration_since(begun);
        tracing::debug!(waiting, ?waited, "the caches reflect what the last leader wrote");
    }
}

/// Returns the version that a cache of `kind` must reach, if there is one.
fn version_of(kind: &ResourceKind, written: &WrittenVersions) -> Option<ResourceVersion> {
    written.get(&kind.group_resource()).cloned()
}

/// Waits until the cache has reached `version`, or has been listed again: a consistent list reflects every write that was
/// made before it, whatever its version is.
async fn reached(cache: Arc<dyn VersionSource>, version: ResourceVersion) {
    if !cache.reached(version, GRACE).await {
        refreshed(cache).await;
    }
}

/// Waits until the cache has been listed again: also one whose initial list is in flight, because that list can have begun
/// before the last write of the leader. A cache that cannot be listed, because its kind is absent or a permission is missing,
/// and that holds nothing is not waited for.
async fn refreshed(cache: Arc<dyn VersionSource>) {
    cache.refreshed().await;
}

/// Returns the higher version of each resource; `None` if either is unknown.
pub(crate) fn merged(
    one: Option<WrittenVersions>,
    other: Option<WrittenVersions>,
) -> Option<WrittenVersions> {
    let mut merged = one?;
    for (resource, version) in other? {
        let highest = merged.entry(resource).or_insert_with(|| version.clone());
        if *highest < version {
            *highest = version;
        }
    }
    Some(merged)
}
