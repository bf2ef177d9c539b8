//! The time for which nodes have been missing. Pure.
//!
//! A cache of nodes can be behind a cache of pods: a pod is bound to a node that the cache does not contain yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use windlass_env::Instant;

/// Time for which a node must be missing before the server is queried for it.
pub(super) const QUARANTINE: Duration = Duration::from_secs(40);

/// The missing nodes, with the begin of their quarantine.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    since: BTreeMap<Arc<str>, Instant>,
    last: Option<Instant>,
}

impl Quarantine {
    /// Records the nodes that are missing now, and returns those whose quarantine is over. It then begins again, so
    /// that failed deletions are repeated after 40 s, as upstream. A gap between two calls, such as a lost shard, ends
    /// all quarantines, because a node could have returned in it.
    pub(super) fn observe(&mut self, missing: BTreeSet<Arc<str>>, now: Instant) -> Vec<Arc<str>> {
        if self.last.replace(now).is_some_and(|last| now - last > 3 * QUARANTINE) {
            self.since.clear();
        }
        self.since.retain(|node, _| missing.contains(node));
        let mut due = Vec::new();
        for node in missing {
            let since = self.since.entry(Arc::clone(&node)).or_insert(now);
            if now - *since >= QUARANTINE {
                *since = now;
                due.push(node);
            }
        }
        due
    }
}
