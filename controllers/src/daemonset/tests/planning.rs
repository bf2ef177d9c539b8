//! Creates and deletes apart from rolling updates.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass_events::NewEvent;

use super::super::backoff::Admission;
use super::super::plan::{BURST, Observed, PodPlan, plan};
use super::fixtures::{
    Cluster, HASH, node, pinned_pod, pod, set, surge, tainted, unavailable, with_pod_spec,
};
use crate::shared::fixtures::{being_deleted, with_phase};
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Returns clusters with one node for each strategy.
fn one_node(pods: &[PodView]) -> [Cluster; 3] {
    [json!({}), unavailable(1), surge(1)].map(|strategy| {
        let mut cluster = Cluster::new(set(strategy), 1);
        pods.iter().for_each(|pod| cluster.add(pod.clone()));
        cluster
    })
}

fn deleted(plan: &PodPlan) -> Vec<&str> {
    plan.delete.iter().map(|pod| pods::name(&pod.metadata)).collect()
}

#[test]
fn each_fitting_node_receives_one_pod() {
    for strategy in [json!({}), unavailable(1), surge(1)] {
        let mut cluster = Cluster::new(set(strategy), 5);
        assert_eq!(cluster.syncs(), [(5, 0)]);
    }
    assert_eq!(Cluster::new(set(json!({})), 0).sync(), (0, 0));
}

#[test]
fn sync_changes_at_most_250_pods() {
    let mut cluster = Cluster::new(set(json!({})), 600);
    assert_eq!(cluster.syncs(), [(BURST, 0), (BURST, 0), (100, 0)]);
    cluster.set = with_pod_spec(json!({ "nodeName": "elsewhere" }));
    assert_eq!(cluster.syncs(), [(0, BURST), (0, BURST), (0, 100)]);
}

#[test]
fn surplus_pods_are_deleted_except_for_the_oldest() {
    let mut cluster = Cluster::new(set(json!({})), 5);
    let on_node = |node: &str, count: i64| {
        let node = node.to_owned();
        (0..count).map(move |number| pod(&format!("{node}-{number}"), &node, HASH, 100 - number))
    };
    let existing = on_node("node-1", 1).chain(on_node("node-2", 2)).chain(on_node("node-3", 5));
    existing.for_each(|pod| cluster.add(pod));
    let plan = cluster.plan();
    assert_eq!(plan.create, ["node-0".into(), "node-4".into()]);
    assert_eq!(deleted(&plan), ["node-2-0", "node-3-3", "node-3-2", "node-3-1", "node-3-0"]);
}

#[test]
fn bound_pod_is_kept_then_the_oldest_then_the_first_by_name() {
    let term =
        json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-0"] }] }]);
    let unbound = pinned_pod("a-unbound", term);
    let kept = |pods: &[PodView]| {
        let [cluster, ..] = one_node(pods);
        let mut cluster = cluster;
        cluster.sync();
        cluster.pods.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(kept(&[unbound, pod("b", "node-0", HASH, 9)]), ["b"]);
    assert_eq!(kept(&[pod("a", "node-0", HASH, 9), pod("b", "node-0", HASH, 8)]), ["b"]);
    assert_eq!(kept(&[pod("b", "node-0", HASH, 9), pod("a", "node-0", HASH, 9)]), ["a"]);
}

#[test]
fn terminating_pod_is_replaced_after_deletion_unless_surging() {
    let [on_delete, rolling, surging] = one_node(&[being_deleted(pod("old", "node-0", HASH, 0))]);
    for (mut cluster, expected) in [(on_delete, (0, 0)), (rolling, (0, 0)), (surging, (1, 0))] {
        assert_eq!(cluster.sync(), expected);
    }
    // The plan ignores terminated pods that are being deleted.
    let terminated = with_phase(being_deleted(pod("old", "node-0", HASH, 0)), "Failed");
    for mut cluster in one_node(&[terminated]) {
        assert_eq!(cluster.sync(), (1, 0));
    }
}

#[test]
fn terminated_pod_is_deleted_with_an_event() {
    let failed = "Found failed daemon pod default/old on node node-0, will try to kill it";
    let succeeded = "Found succeeded daemon pod default/old on node node-0, will try to delete it";
    for (phase, event) in [
        ("Failed", NewEvent::warning("FailedDaemonPod", failed)),
        ("Succeeded", NewEvent::normal("SucceededDaemonPod", succeeded)),
    ] {
        for cluster in one_node(&[with_phase(pod("old", "node-0", HASH, 0), phase)]) {
            let plan = cluster.plan();
            assert_eq!(deleted(&plan), ["old"]);
            assert_eq!(plan.events, std::slice::from_ref(&event));
        }
    }
}

#[test]
fn failed_pods_are_deleted_next_to_surplus_pods() {
    // Failed and running pods of a node, and creates without surge, creates with surge, deletes and events.
    let cases = [
        (0, 1, (0, 0, 0, 0)),
        (0, 0, (1, 1, 0, 0)),
        // With surge, the new pod does not wait until the failed pod is deleted.
        (1, 0, (0, 1, 1, 1)),
        (1, 3, (0, 0, 3, 1)),
    ];
    for (failed, running, (creates, surging, deletes, events)) in cases {
        let failed =
            (0..failed).map(|it| with_phase(pod(&format!("failed-{it}"), "node-0", HASH, it), "Failed"));
        let running = (0..running).map(|it| pod(&format!("running-{it}"), "node-0", HASH, it));
        let pods: Vec<_> = failed.chain(running).collect();
        for (cluster, creates) in std::iter::zip(one_node(&pods), [creates, creates, surging]) {
            let plan = cluster.plan();
            let counts = (plan.create.len(), plan.delete.len(), plan.events.len());
            assert_eq!(counts, (creates, deletes, events), "{pods:?}");
        }
    }
}

#[test]
fn failed_pod_in_backoff_is_kept_and_checked_later() {
    let (set, hash) = (set(json!({})), HASH);
    let nodes = [Arc::new(node("node-0", json!({}))), Arc::new(node("node-1", json!({})))];
    let failed = |name: &str, node: &str| Arc::new(with_phase(pod(name, node, hash, 0), "Failed"));
    let pods = [failed("a", "node-0"), failed("b", "node-1")];
    let observed = Observed::new(&set, &nodes, &pods, hash, crate::shared::fixtures::at(0));
    let seconds = |node: &Arc<str>| Duration::from_secs(if &**node == "node-0" { 8 } else { 4 });
    let plan = plan(&observed, |node| Admission::Wait(seconds(node)));
    assert_eq!(plan, PodPlan { check_in: Some(Duration::from_secs(4)), ..PodPlan::default() });
}

#[test]
fn misplaced_pods_are_deleted_unless_the_taint_allows_them() {
    for (node, expected) in [
        (tainted("node-0", "dedicated", "NoSchedule"), (0, 0)),
        (tainted("node-0", "dedicated", "NoExecute"), (0, 1)),
    ] {
        for mut cluster in one_node(&[pod("a", "node-0", HASH, 0)]) {
            cluster.nodes = vec![Arc::new(node.clone())];
            assert_eq!(cluster.sync(), expected);
        }
    }
    let mut cluster = Cluster::new(with_pod_spec(json!({ "nodeSelector": { "color": "blue" } })), 1);
    cluster.nodes.push(Arc::new(node("blue", json!({ "color": "blue" }))));
    cluster.add(pod("a", "node-0", HASH, 0));
    cluster.add(being_deleted(pod("b", "node-0", HASH, 0)));
    assert_eq!(cluster.sync(), (1, 1));
}

#[test]
fn unbound_pods_of_missing_nodes_are_deleted() {
    let pinned = |node: &str| json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] }]);
    let mut cluster = Cluster::new(set(json!({})), 1);
    cluster.add(pod("a", "node-0", HASH, 0));
    cluster.add(pod("b", "node-1", HASH, 0));
    cluster.add(pinned_pod("c", pinned("node-2")));
    assert_eq!(deleted(&cluster.plan()), ["c"]);
    let pods: Vec<_> = cluster.pods.values().cloned().map(Arc::new).collect();
    let observed = Observed::new(&cluster.set, &cluster.nodes, &pods, HASH, cluster.time());
    let observed = observed.with_undecodable(|node| node == "node-2");
    assert_eq!(
        deleted(&plan(&observed, |_| Admission::Delete)),
        [""; 0],
        "the node exists but is undecodable"
    );
    let terminating = being_deleted(cluster.pods["c"].clone());
    cluster.add(terminating);
    assert_eq!(deleted(&cluster.plan()), [""; 0], "it is being deleted");
}

#[test]
fn node_that_rejects_its_pod_does_not_starve_the_others() {
    for strategy in [json!({}), unavailable(1), surge(1)] {
        let mut cluster = Cluster::new(set(strategy), 5);
        (0..3).for_each(|_| cluster.sync_with_failures_on("node-0"));
        assert_eq!(cluster.pods.len(), 4);
    }
}

#[test]
fn rejected_requests_do_not_starve_requests_beyond_the_burst() {
    let mut cluster = Cluster::new(set(json!({})), BURST + 2);
    let first = |cluster: &Cluster| cluster.plan().create[0].clone();
    let mut nodes = std::collections::BTreeSet::new();
    for attempts in 0..BURST + 2 {
        cluster.attempts = u32::try_from(attempts).expect("a small number");
        assert_eq!(cluster.plan().create.len(), BURST);
        nodes.insert(first(&cluster));
    }
    assert_eq!(nodes.len(), BURST + 2, "each node is the first once");
}
