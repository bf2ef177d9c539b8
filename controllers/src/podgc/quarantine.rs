//! The time for which nodes have been missing. Pure.
//!
//! A cache of nodes can be behind a cache of pods: a pod is bound to a node that the cache does not contain yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use windlass_env::Instant;

/// Time for which a node must be missing before the server is queried for it.
pub(super) const QUARANTINE: Duration = Duration::from_secs(40);

/// The missing nodes, with the time since which each is missing.
#[derive(Debug, Default)]
pub(super) struct Quarantine(BTreeMap<Arc<str>, Instant>);

impl Quarantine {
    /// Records the nodes that are missing now, and returns those whose quarantine is over. A returned node is
    /// quarantined again if it is still missing the next time.
    pub(super) fn observe(&mut self, missing: BTreeSet<Arc<str>>, now: Instant) -> Vec<Arc<str>> {
        self.0.retain(|node, _| missing.contains(node));
        for node in missing {
            self.0.entry(node).or_insert(now);
        }
        let is_due = |since: &Instant| now - *since >= QUARANTINE;
        let due =
            self.0.iter().filter(|(_, since)| is_due(since)).map(|(node, _)| Arc::clone(node)).collect();
        self.0.retain(|_, since| !is_due(since));
        due
    }
}
