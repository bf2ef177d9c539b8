//! Upstream's cases of `gc_controller_test.go`: the pods that a pass deletes and marks, and the quarantine of nodes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use windlass_env::Instant;

use super::plan::{Observed, Reason, nodes_of_orphans};
use super::quarantine::{QUARANTINE, Quarantine};
use super::status::failed_patch;
use crate::shared::fixtures::{at, node_view, pod_view};
use crate::shared::node_view::NodeView;
use crate::shared::pod_view::PodView;

/// A pod, as upstream's tables describe it.
#[derive(Clone, Copy, Default)]
struct PodCase {
    name: &'static str,
    phase: &'static str,
    reason: &'static str,
    node: &'static str,
    terminating: bool,
}

fn pod(case: &PodCase, hour: usize) -> Arc<PodView> {
    let deleted = if case.terminating { json!("2026-03-01T12:00:00Z") } else { Value::Null };
    let metadata = json!({
        "namespace": "default", "name": case.name, "uid": format!("uid-{}", case.name), "generation": 3,
        "creationTimestamp": format!("2026-01-01T{hour:02}:00:00Z"), "deletionTimestamp": deleted,
    });
    let status = json!({ "phase": case.phase, "reason": case.reason });
    Arc::new(pod_view(&json!({ "metadata": metadata, "spec": { "nodeName": case.node }, "status": status })))
}

fn pods(cases: &[PodCase]) -> Vec<Arc<PodView>> {
    cases.iter().enumerate().map(|(hour, case)| pod(case, hour)).collect()
}

fn node(name: &str, ready: &str, taints: &[(&str, &str)]) -> Arc<NodeView> {
    let taints: Vec<_> =
        taints.iter().map(|(key, effect)| json!({ "key": key, "effect": effect, "value": "any" })).collect();
    let conditions = json!([{ "type": "Ready", "status": ready }]);
    let node = json!({
        "metadata": { "name": name }, "spec": { "taints": taints }, "status": { "conditions": conditions },
    });
    Arc::new(node_view(&node))
}

/// Returns the names of the deleted pods, and of those that are marked first.
fn pass(
    pods: &[Arc<PodView>],
    nodes: &[Arc<NodeView>],
    kept: Option<usize>,
    deleted: &[&str],
    only: Reason,
) -> (Vec<String>, Vec<String>) {
    let deleted: BTreeSet<Arc<str>> = deleted.iter().map(|node| Arc::from(*node)).collect();
    let removals = Observed::new(pods, nodes).removals(kept, &deleted);
    assert!(removals.iter().all(|removal| removal.reason == only), "{removals:?}");
    let name = |pod: &PodView| pod.metadata.header.key.name().to_owned();
    let marked = removals.iter().filter(|it| failed_patch(it.pod, it.reason, &Time(at(0))).is_some());
    (removals.iter().map(|it| name(it.pod)).collect(), marked.map(|it| name(it.pod)).collect())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn terminated_pods_beyond_threshold_are_deleted_in_order() {
    let case = |name, phase, reason| PodCase { name, phase, reason, node: "node", terminating: false };
    let (failed, succeeded) = (case("a", "Failed", ""), case("b", "Succeeded", ""));
    let (c, evicted) = (case("c", "Failed", ""), case("c", "Failed", "Evicted"));
    let running = case("a", "Running", "");
    for (cases, kept, expected) in [
        (vec![failed, succeeded, c], Some(1), vec!["a", "b"]),
        (vec![failed, succeeded], None, vec![]),
        (vec![running, succeeded, c], Some(1), vec!["b"]),
        (vec![failed, succeeded], Some(1), vec!["a"]),
        (vec![failed, succeeded], Some(5), vec![]),
        (vec![failed, succeeded, evicted], Some(1), vec!["c", "a"]),
        (vec![running, succeeded, evicted], Some(1), vec!["c"]),
        // The younger pod of two comes later, whatever its name.
        (vec![succeeded, failed], Some(1), vec!["b"]),
    ] {
        let nodes = [node("node", "True", &[])];
        let passed = pass(&pods(&cases), &nodes, kept, &[], Reason::Terminated);
        assert_eq!(passed, (names(&expected), names(&[])), "{kept:?}");
    }
}

#[test]
fn pods_of_deleted_nodes_are_deleted() {
    let case = |name, node, phase| PodCase { name, phase, node, ..PodCase::default() };
    let orphans = [
        case("a", "deleted", "Failed"),
        case("b", "existing", "Failed"),
        case("c", "deleted", "Succeeded"),
        case("d", "deleted", "Running"),
        case("e", "", "Pending"),
    ];
    let (pods, nodes) = (pods(&orphans), [node("existing", "True", &[])]);
    assert_eq!(Observed::new(&pods, &nodes).missing_nodes(), BTreeSet::from(["deleted".into()]));
    let passed = pass(&pods, &nodes, None, &["deleted"], Reason::Orphaned);
    assert_eq!(passed, (names(&["a", "c", "d"]), names(&["d"])));
    assert_eq!(pass(&pods, &nodes, None, &[], Reason::Orphaned), (names(&[]), names(&[])));
}

#[test]
fn terminated_pods_of_equal_age_are_deleted_by_name() {
    let of = |namespace: &str, name: &str| {
        let created = "2026-01-01T00:00:00Z";
        let metadata = json!({ "namespace": namespace, "name": name, "creationTimestamp": created });
        Arc::new(pod_view(&json!({ "metadata": metadata, "status": { "phase": "Succeeded" } })))
    };
    let pods = [of("ns-a", "z"), of("ns-b", "a")];
    assert_eq!(pass(&pods, &[], Some(1), &[], Reason::Terminated).0, names(&["a"]));
}

#[test]
fn unscheduled_terminating_pods_are_deleted() {
    let case =
        |name, phase, node, terminating| PodCase { name, phase, node, terminating, ..PodCase::default() };
    let nodes = [node("node", "True", &[])];
    for (cases, deleted, marked) in [
        (
            vec![
                case("a", "Failed", "", true),
                case("b", "Succeeded", "", true),
                case("c", "Running", "", true),
            ],
            vec!["a", "b", "c"],
            vec!["c"],
        ),
        (
            vec![
                case("a", "Failed", "", false),
                case("b", "Succeeded", "node", false),
                case("c", "Running", "node", true),
            ],
            vec![],
            vec![],
        ),
    ] {
        let passed = pass(&pods(&cases), &nodes, None, &[], Reason::Unscheduled);
        assert_eq!(passed, (names(&deleted), names(&marked)));
    }
}

#[test]
fn terminating_pods_of_nodes_out_of_service_are_deleted() {
    let taint = "node.kubernetes.io/out-of-service";
    let nodes = [
        node("worker-0", "False", &[(taint, "NoExecute")]),
        node("worker-1", "False", &[]),
        node("worker-2", "True", &[]),
        node("worker-3", "False", &[(taint, "NoSchedule")]),
        node("worker-4", "False", &[("other", "NoSchedule"), (taint, "PreferNoSchedule")]),
        node("worker-5", "Unknown", &[(taint, "NoExecute")]),
        node("worker-6", "True", &[(taint, "NoExecute")]),
    ];
    let case =
        |name, phase, node, terminating| PodCase { name, phase, node, terminating, ..PodCase::default() };
    let cases = [
        case("a0", "", "worker-0", false),
        case("b0", "", "worker-0", true),
        case("c0", "Pending", "worker-0", false),
        case("d0", "Running", "worker-0", false),
        case("e0", "Unknown", "worker-0", false),
        case("b1", "", "worker-1", true),
        case("b2", "", "worker-2", true),
        case("b3", "", "worker-3", true),
        case("b4", "", "worker-4", true),
        case("b5", "", "worker-5", true),
        case("b6", "", "worker-6", true),
        case("f0", "Failed", "worker-0", true),
        case("g0", "Succeeded", "worker-0", true),
    ];
    let passed = pass(&pods(&cases), &nodes, None, &[], Reason::OutOfService);
    let marked = ["b0", "b3", "b4", "b5"];
    assert_eq!(passed, (names(&["b0", "b3", "b4", "b5", "f0", "g0"]), names(&marked)));
}

#[test]
fn pod_is_deleted_once_with_the_first_reason() {
    let case = PodCase { name: "a", phase: "Failed", node: "gone", terminating: true, ..PodCase::default() };
    let (pods, deleted) = (pods(&[case]), BTreeSet::from(["gone".into()]));
    for (kept, expected) in [(Some(0), Reason::Terminated), (None, Reason::Orphaned)] {
        let observed = Observed::new(&pods, &[]);
        let reasons: Vec<_> = observed.removals(kept, &deleted).iter().map(|it| it.reason).collect();
        assert_eq!(reasons, [expected]);
    }
}

#[test]
fn terminated_pods_are_deleted_after_all_others() {
    let case = |name, phase, node| PodCase { name, phase, node, ..PodCase::default() };
    let pods = pods(&[case("done", "Failed", "node"), case("lost", "Running", "gone")]);
    let (nodes, deleted) = ([node("node", "True", &[])], BTreeSet::from(["gone".into()]));
    let removals = Observed::new(&pods, &nodes).removals(Some(0), &deleted);
    let reasons: Vec<_> = removals.iter().map(|removal| removal.reason).collect();
    assert_eq!(reasons, [Reason::Orphaned, Reason::Terminated]);
}

#[test]
fn orphaned_pod_is_marked_as_failed_and_disrupted() {
    let now = Time(at(0));
    let orphan = pod(&PodCase { name: "a", phase: "Running", ..PodCase::default() }, 1);
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists", "observedGeneration": 3,
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    });
    let status = json!({ "phase": "Failed", "observedGeneration": 3, "conditions": [condition] });
    let expected = json!({ "metadata": { "uid": "uid-a" }, "status": status });
    assert_eq!(failed_patch(&orphan, Reason::Orphaned, &now), Some(expected.clone()));

    let mut disrupted = PodView::clone(&orphan);
    disrupted.disruption_target = "True".into();
    let mut kept = expected;
    kept["status"]["conditions"][0].as_object_mut().expect("a condition").remove("lastTransitionTime");
    assert_eq!(failed_patch(&disrupted, Reason::Orphaned, &now), Some(kept));

    let status = json!({ "phase": "Failed", "observedGeneration": 3 });
    let plain = json!({ "metadata": { "uid": "uid-a" }, "status": status });
    assert_eq!(failed_patch(&orphan, Reason::Unscheduled, &now), Some(plain));
}

/// Upstream's cases of `TestGCOrphaned`: nodes of the cache before and after a delay, and whether the server is
/// queried.
#[test]
fn nodes_are_due_after_their_quarantine() {
    let (long, short) = (2 * QUARANTINE, QUARANTINE / 2);
    let missing = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<BTreeSet<Arc<str>>>();
    for (before, delay, after, due) in [
        (missing(&[]), long, missing(&[]), missing(&[])),
        (missing(&["a", "b"]), long, missing(&["a", "b"]), missing(&["a", "b"])),
        (missing(&["a"]), short, missing(&["a"]), missing(&[])),
        (missing(&["a"]), QUARANTINE, missing(&["a"]), missing(&["a"])),
        // The node was added.
        (missing(&["a"]), long, missing(&[]), missing(&[])),
        // The node was deleted after the first pass.
        (missing(&[]), long, missing(&["a"]), missing(&[])),
        (missing(&["a"]), long, missing(&["a", "b"]), missing(&["a"])),
        // The node can have returned in the gap.
        (missing(&["a"]), 4 * QUARANTINE, missing(&["a"]), missing(&[])),
    ] {
        let (mut quarantine, start) = (Quarantine::default(), Instant::ORIGIN);
        assert!(quarantine.observe(before.clone(), start).is_empty(), "{before:?}");
        let found: BTreeSet<_> = quarantine.observe(after.clone(), start + delay).into_iter().collect();
        assert_eq!(found, due, "{before:?}, {delay:?}, {after:?}");
        // Nodes that are due are quarantined again.
        let again = quarantine.observe(after.clone(), start + delay + Duration::from_secs(20));
        assert!(again.iter().all(|node| !due.contains(node)), "{again:?}");
    }
}

#[test]
fn node_that_returns_for_a_short_time_is_due_at_the_end_of_its_quarantine() {
    let (mut quarantine, missing) = (Quarantine::default(), BTreeSet::from([Arc::from("a")]));
    let mut observe = |missing: &BTreeSet<Arc<str>>, seconds| {
        quarantine.observe(missing.clone(), Instant::ORIGIN + Duration::from_secs(seconds))
    };
    assert!(observe(&missing, 0).is_empty() && observe(&BTreeSet::new(), 20).is_empty());
    assert_eq!(observe(&missing, 40), [Arc::from("a")]);
}

#[test]
fn node_with_remaining_orphans_is_due_in_the_next_pass() {
    let on = |name, node| PodCase { name, node, phase: "Running", ..PodCase::default() };
    let pods = pods(&[on("a", "first"), on("b", "second")]);
    let (observed, now) = (Observed::new(&pods, &[]), Instant::ORIGIN);
    let removals = observed.removals(None, &observed.missing_nodes());
    let mut quarantine = Quarantine::default();
    assert!(quarantine.observe(observed.missing_nodes(), now).is_empty());
    quarantine.set_unfinished(nodes_of_orphans(&removals[1..]));
    let due = |quarantine: &mut Quarantine, seconds| {
        quarantine.observe(observed.missing_nodes(), now + Duration::from_secs(seconds))
    };
    assert_eq!(due(&mut quarantine, 20), [Arc::from("second")]);
    assert_eq!(due(&mut quarantine, 40), [Arc::from("first")]);
}
