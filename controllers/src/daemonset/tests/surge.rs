//! Two pods on a node during a rolling update with surge.

use serde_json::json;

use super::fixtures::{Cluster, HASH, pod, ready, set, surge};
use crate::shared::fixtures::being_deleted;
use crate::shared::pods;

/// Returns five nodes. `node-1` has a new pod and two old pods; `node-2` has a new pod.
fn surging(minimum: i32, new_ready: Option<i64>, old_ready: bool) -> Cluster {
    let mut strategy = surge(1);
    strategy["minReadySeconds"] = json!(minimum);
    let mut cluster = Cluster::new(set(strategy), 5);
    let new = pod("new", "node-1", HASH, 100);
    cluster.add(match new_ready {
        Some(since) => ready(new, since),
        None => new,
    });
    let old = pod("old", "node-1", "old", 50);
    cluster.add(if old_ready { ready(old, 50) } else { old });
    cluster.add(ready(pod("old-surplus", "node-1", "old", 60), 60));
    cluster.add(pod("other", "node-2", HASH, 0));
    cluster
}

fn deleted(cluster: &Cluster) -> Vec<String> {
    cluster.plan().delete.iter().map(|pod| pods::name(&pod.metadata).to_owned()).collect()
}

#[test]
fn node_without_running_pod_receives_one_and_surplus_is_deleted() {
    let mut cluster = Cluster::new(set(surge(1)), 5);
    for (node, count) in [("node-1", 1), ("node-2", 2), ("node-3", 5)] {
        (0..count).for_each(|number| cluster.add(pod(&format!("{node}-{number}"), node, HASH, number)));
    }
    assert_eq!(cluster.sync(), (2, 5));
}

#[test]
fn ready_old_pod_is_kept_until_the_new_pod_is_available() {
    assert_eq!(deleted(&surging(0, None, true)), ["old-surplus"]);
    assert_eq!(surging(0, None, true).plan().create.len(), 3);
    let mut waiting = surging(15, Some(50), true);
    waiting.now = 60;
    assert_eq!(deleted(&waiting), ["old-surplus"]);
    waiting.now = 70;
    assert_eq!(deleted(&waiting), ["old-surplus", "old"]);
}

#[test]
fn unready_old_pod_is_deleted_if_a_new_pod_exists() {
    assert_eq!(deleted(&surging(0, None, false)), ["old-surplus", "old"]);
}

#[test]
fn terminating_old_pod_is_replaced_beyond_the_limit() {
    let mut cluster = Cluster::new(set(surge(1)), 5);
    cluster.add(pod("node-0-new", "node-0", HASH, 100));
    cluster.add(ready(pod("node-0-old", "node-0", "old", 50), 50));
    for number in 1..5 {
        let name = format!("node-{number}");
        let old = ready(pod(&format!("{name}-old"), &name, "old", 1), 1);
        cluster.add(if number == 4 { being_deleted(old) } else { old });
    }
    assert_eq!(cluster.plan().create, ["node-4".into()]);
    assert_eq!(deleted(&cluster), [""; 0]);
}
