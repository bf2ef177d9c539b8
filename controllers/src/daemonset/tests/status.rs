//! The numbers of the status.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSetStatus;
use serde_json::{Value, json};

use super::super::plan::Observed;
use super::super::status::{Counts, count};
use super::fixtures::{Cluster, HASH, pod, ready, set, tainted};
use crate::shared::fixtures::{being_deleted, with_phase};

fn counted(cluster: &Cluster) -> Counts {
    let pods: Vec<_> = cluster.pods.values().cloned().map(Arc::new).collect();
    count(&Observed::new(&cluster.set, &cluster.nodes, &pods, &cluster.hash, cluster.time()))
}

#[test]
fn nodes_are_counted_by_their_oldest_pod() {
    let mut cluster = Cluster::new(set(json!({ "minReadySeconds": 10 })), 6);
    cluster.nodes[5] = Arc::new(tainted("node-5", "dedicated", "NoSchedule"));
    cluster.now = 100;
    cluster.add(ready(pod("available", "node-0", HASH, 0), 90));
    cluster.add(ready(pod("ready", "node-1", HASH, 0), 91));
    cluster.add(pod("outdated", "node-2", "old", 0));
    cluster.add(ready(pod("younger", "node-2", HASH, 1), 0));
    cluster.add(being_deleted(pod("terminating", "node-3", HASH, 0)));
    cluster.add(with_phase(being_deleted(pod("ended", "node-4", HASH, 0)), "Failed"));
    cluster.add(ready(pod("misplaced", "node-5", HASH, 0), 0));
    let expected = Counts { desired: 5, current: 4, misscheduled: 1, ready: 2, updated: 3, available: 1 };
    assert_eq!(counted(&cluster), expected);
}

#[test]
fn zero_counts_are_omitted_as_upstream() {
    let written = |counts: Counts, processed: Option<i64>| {
        let mut status = DaemonSetStatus { observed_generation: Some(1), ..DaemonSetStatus::default() };
        counts.write(&mut status, processed);
        serde_json::to_value(status).expect("JSON")
    };
    let zero = json!({
        "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        "observedGeneration": 1,
    });
    assert_eq!(written(Counts::default(), None), zero);
    let counts = Counts { desired: 5, current: 4, misscheduled: 1, ready: 3, updated: 2, available: 3 };
    let full = json!({
        "currentNumberScheduled": 4, "desiredNumberScheduled": 5, "numberMisscheduled": 1, "numberReady": 3,
        "updatedNumberScheduled": 2, "numberAvailable": 3, "numberUnavailable": 2, "observedGeneration": 7,
    });
    assert_eq!(written(counts, Some(7)), full);
}

#[test]
fn unchanged_status_is_not_written_again() {
    let reported = |status: Value, processed: Option<i64>| {
        let mut set = set(json!({}));
        set.status = serde_json::from_value(status).expect("a status");
        Counts { desired: 1, current: 1, ..Counts::default() }.is_reported(&set, processed)
    };
    let status = json!({
        "currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 0,
        "numberUnavailable": 1, "observedGeneration": 2,
    });
    assert!(reported(status.clone(), Some(2)));
    assert!(reported(status.clone(), Some(1)));
    assert!(!reported(status.clone(), Some(3)), "a newer generation");
    assert!(reported(status.clone(), None), "a generation that is not processed is not reported");
    let mut other = status;
    other["numberUnavailable"] = json!(0);
    assert!(!reported(other, Some(2)));
    assert!(!reported(Value::Null, None));
}
