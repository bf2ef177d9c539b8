//! Upstream's cases of `TestDesiredTTL`, `TestPatchNode` and `TestUpdateNodeIfNeeded`.

use serde_json::json;

use super::cluster_size::ClusterSize;
use super::patch;
use crate::shared::fixtures::node_view;

#[test]
fn seconds_change_at_the_edges_of_bands() {
    // Seconds and number of nodes before the change, number after it, expected seconds.
    for (before, nodes, after, expected) in [
        (0, 0, 1, 0),
        (0, 99, 100, 0),
        (0, 100, 101, 15),
        (15, 101, 100, 15),
        (15, 91, 90, 15),
        (15, 91, 92, 15),
        (15, 90, 89, 0),
        (300, 1_800, 1_799, 60),
        (300, 10_000, 9_999, 300),
        // Several changes at once.
        (0, 0, 3_000, 300),
        (300, 3_000, 0, 0),
        (60, 1_500, 450, 30),
    ] {
        let mut size = ClusterSize::with_seconds(before);
        assert!(!size.observe(nodes), "{nodes} nodes have {before} s");
        assert_eq!(size.observe(after), before != expected, "{nodes} to {after} nodes");
        assert_eq!(size.seconds(), expected, "{nodes} to {after} nodes");
    }
}

#[test]
fn node_is_patched_only_if_seconds_differ() {
    let patch_of = |seconds: &str| {
        Some(json!({ "metadata": { "annotations": { "node.alpha.kubernetes.io/ttl": seconds } } }))
    };
    for (annotations, seconds, expected) in [
        (json!(null), 0, patch_of("0")),
        (json!(null), 10, patch_of("10")),
        (json!({}), 10, patch_of("10")),
        (json!({ "node.alpha.kubernetes.io/ttl": "0" }), 10, patch_of("10")),
        (json!({ "node.alpha.kubernetes.io/ttl": "0", "a": "b" }), 10, patch_of("10")),
        (json!({ "node.alpha.kubernetes.io/ttl": "10", "a": "b" }), 10, None),
        (json!({ "node.alpha.kubernetes.io/ttl": "60" }), 60, None),
        (json!({ "node.alpha.kubernetes.io/ttl": "60" }), 30, patch_of("30")),
        (json!({ "node.alpha.kubernetes.io/ttl": "+060" }), 60, None),
        (json!({ "node.alpha.kubernetes.io/ttl": "a minute" }), 60, patch_of("60")),
        (json!({ "node.alpha.kubernetes.io/ttl": "" }), 0, patch_of("0")),
    ] {
        let node = node_view(&json!({ "metadata": { "name": "node", "annotations": annotations } }));
        assert_eq!(patch(&node, seconds), expected, "{annotations} and {seconds} s");
    }
}
