//! Nodes that have a pod.

use serde_json::{Value, json};

use super::super::placement::{Fit, Placement};
use super::fixtures::{node, set, surge, tainted, unavailable, with_pod_spec};
use crate::shared::fixtures::node_view;
use crate::shared::node_view::NodeView;

fn fit(spec: Value, node: &NodeView) -> Fit {
    Placement::from_set(&with_pod_spec(spec)).fit(node)
}

fn affinity(values: &[&str]) -> Value {
    let term = json!({ "matchExpressions": [{ "key": "type", "operator": "In", "values": values }] });
    let required = json!({ "nodeSelectorTerms": [term] });
    json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } } })
}

#[test]
fn node_name_selector_and_affinity_must_match() {
    let node = node("test-node", json!({ "name": "simple-daemon", "type": "production" }));
    assert_eq!(fit(json!({}), &node), Fit::Run);
    assert_eq!(fit(json!({ "nodeName": "test-node" }), &node), Fit::Run);
    assert_eq!(fit(json!({ "nodeName": "other-node" }), &node), Fit::Leave);
    assert_eq!(fit(json!({ "nodeSelector": { "type": "production" } }), &node), Fit::Run);
    assert_eq!(fit(json!({ "nodeSelector": { "type": "test" } }), &node), Fit::Leave);
    assert_eq!(fit(affinity(&["production"]), &node), Fit::Run);
    assert_eq!(fit(affinity(&["test"]), &node), Fit::Leave);
    let both = |name: &str| json!({ "nodeName": name, "nodeSelector": { "type": "production" } });
    assert_eq!(fit(both("test-node"), &node), Fit::Run);
    assert_eq!(fit(both("other-node"), &node), Fit::Leave);
}

#[test]
fn resources_and_host_ports_are_left_to_the_scheduler() {
    let node = node_view(&json!({
        "metadata": { "name": "test-node" },
        "status": { "allocatable": { "memory": "100M", "cpu": "1" } },
    }));
    let unschedulable = NodeView { taints: cordoned().taints, ..node.clone() };
    let resources = |memory: &str| json!({ "resources": { "requests": { "memory": memory, "cpu": "0.5" } } });
    let named = |name: &str, memory: &str| {
        let mut container = resources(memory);
        container["name"] = json!("main");
        json!({ "nodeName": name, "containers": [container] })
    };
    let port =
        json!({ "containers": [{ "name": "main", "ports": [{ "hostPort": 666, "containerPort": 666 }] }] });
    let cases = [
        (named("", "50M"), Fit::Run),
        (named("", "100M"), Fit::Run),
        (named("", "200M"), Fit::Run),
        (named("other-node", "50M"), Fit::Leave),
        (port, Fit::Run),
    ];
    for (spec, expected) in cases {
        for strategy in [json!({}), unavailable(1), surge(1)] {
            let mut fields = strategy;
            fields["template"] = json!({ "spec": spec });
            let set = set(fields);
            let placement = Placement::from_set(&set);
            assert_eq!(placement.fit(&node), expected, "{spec}");
            assert_eq!(placement.fit(&unschedulable), expected, "{spec}");
        }
    }
}

/// Returns a node that a user marked as unschedulable.
fn cordoned() -> NodeView {
    tainted("test-node", "node.kubernetes.io/unschedulable", "NoSchedule")
}

#[test]
fn untolerated_taint_keeps_or_removes_pods() {
    let tolerating = json!({ "tolerations": [{ "key": "dedicated", "operator": "Exists" }] });
    for (effect, expected) in
        [("NoSchedule", Fit::Keep), ("NoExecute", Fit::Leave), ("PreferNoSchedule", Fit::Run)]
    {
        let node = tainted("one", "dedicated", effect);
        assert_eq!(fit(json!({}), &node), expected, "{effect}");
        assert_eq!(fit(tolerating.clone(), &node), Fit::Run, "{effect}");
    }
}

#[test]
fn taints_of_node_conditions_are_tolerated() {
    for (key, effect) in [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ] {
        let node = tainted("one", &format!("node.kubernetes.io/{key}"), effect);
        assert_eq!(Placement::from_set(&set(json!({}))).fit(&node), Fit::Run, "{key}");
    }
    let node = tainted("one", "node.kubernetes.io/network-unavailable", "NoSchedule");
    assert_eq!(fit(json!({}), &node), Fit::Keep);
    assert_eq!(fit(json!({ "hostNetwork": true }), &node), Fit::Run);
}
