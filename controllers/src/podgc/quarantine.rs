//! The time for which nodes have been missing. Pure.
//!
//! A cache of nodes can be behind a cache of pods: a pod is bound to a node that the cache does not contain yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use windlass_env::Instant;

/// Time for which a node must be missing before the server is queried for it.
pub(super) const QUARANTINE: Duration = Duration::from_secs(40);

/// The missing nodes.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    /// The begin of the quarantine of each node.
    since: BTreeMap<Arc<str>, Instant>,
    /// Nodes with pods for which the last pass had no time.
    unfinished: BTreeSet<Arc<str>>,
    last: Option<Instant>,
}

impl Quarantine {
    /// Records the nodes that are missing now, and returns those whose quarantine is over, or whose pods the last pass
    /// did not all delete. The quarantine then begins again, so that failed deletions are repeated after 40 s, as
    /// upstream. A node that returns in the meantime is not due, but as upstream its quarantine runs on, because the
    /// server is queried at its end. A gap between two calls, such as a lost shard, ends all quarantines.
    pub(super) fn observe(&mut self, missing: BTreeSet<Arc<str>>, now: Instant) -> Vec<Arc<str>> {
        let mut unfinished = std::mem::take(&mut self.unfinished);
        if self.last.replace(now).is_some_and(|last| now - last > 3 * QUARANTINE) {
            self.since.clear();
            unfinished.clear();
        }
        self.since.retain(|node, since| missing.contains(node) || now - *since < QUARANTINE);
        let mut due = Vec::new();
        for node in missing {
            let since = self.since.entry(Arc::clone(&node)).or_insert(now);
            if now - *since >= QUARANTINE || unfinished.contains(&node) {
                *since = now;
                due.push(node);
            }
        }
        due
    }

    /// Records the nodes with pods for which a pass had no time. They are due in the next pass.
    pub(super) fn set_unfinished(&mut self, nodes: BTreeSet<Arc<str>>) {
        self.unfinished = nodes;
    }
}
