//! Decides whether a node accepts a pod: node selector, required node affinity and taints.
//!
//! Requirements with the operators `Gt` and `Lt` match no node.

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use windlass_object::{LabelSelector, condition};

/// Returns whether the node is ready and accepts the pod.
pub(super) fn takes(node: &Node, pod: &Pod) -> bool {
    let spec = pod.spec.clone().unwrap_or_default();
    is_ready(node) && tolerates(&spec, node) && is_selected(&spec, node)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
    let ready = condition::find(conditions.unwrap_or_default(), "Ready");
    ready.is_some_and(|ready| ready.status == "True")
}

fn tolerates(spec: &PodSpec, node: &Node) -> bool {
    let (tolerations, node) = (spec.tolerations.as_deref().unwrap_or_default(), node.spec.as_ref());
    let taints = node.and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_cordoned = node.and_then(|spec| spec.unschedulable).unwrap_or_default();
    let cordon = is_cordoned.then(|| Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    });
    let mut repelling = taints.into_iter().chain(cordon).filter(|taint| taint.effect != "PreferNoSchedule");
    repelling.all(|taint| tolerations.iter().any(|toleration| accepts(toleration, &taint)))
}

fn accepts(toleration: &Toleration, taint: &Taint) -> bool {
    let is_any = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == found)
    };
    let is_value_accepted = match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => true,
        "Equal" => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    };
    is_value_accepted && is_any(&toleration.key, &taint.key) && is_any(&toleration.effect, &taint.effect)
}

fn is_selected(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let by_labels = spec.node_selector.as_ref().map(LabelSelector::from_map);
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    by_labels.is_none_or(|selector| selector.matches(labels))
        && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, node)))
}

fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let requirement = |it: &NodeSelectorRequirement| meta::LabelSelectorRequirement {
        key: it.key.clone(),
        operator: it.operator.clone(),
        values: it.values.clone(),
    };
    let selector = meta::LabelSelector {
        match_expressions: Some(expressions.iter().map(requirement).collect()),
        match_labels: None,
    };
    let has_name = |field: &NodeSelectorRequirement| match field.values.as_deref() {
        Some([value]) if field.key == "metadata.name" => match field.operator.as_str() {
            "In" => value == name,
            "NotIn" => value != name,
            _ => false,
        },
        _ => false,
    };
    !(expressions.is_empty() && fields.is_empty())
        && LabelSelector::from_api(&selector).is_ok_and(|it| it.matches(node.metadata.labels.as_ref()))
        && fields.iter().all(has_name)
}

#[cfg(test)]
mod tests {
    use super::takes;
    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::{Value, json};

    fn node(spec: Value) -> Node {
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let metadata = json!({ "name": "node-0", "labels": { "color": "blue" } });
        let node = json!({ "metadata": metadata, "spec": spec, "status": { "conditions": ready } });
        serde_json::from_value(node).expect("a node")
    }

    fn check(node: &Node, spec: Value, expected: bool) {
        let mut pod = json!({ "metadata": { "name": "pod" }, "spec": spec });
        pod["spec"]["containers"] = json!([]);
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        assert_eq!(takes(node, &pod), expected, "{pod:?}");
    }

    fn required(terms: Value) -> Value {
        let required = json!({ "nodeSelectorTerms": terms });
        let affinity = json!({ "requiredDuringSchedulingIgnoredDuringExecution": required });
        json!({ "affinity": { "nodeAffinity": affinity } })
    }

    fn requirement(key: &str, operator: &str, values: &[&str]) -> Value {
        json!([{ "key": key, "operator": operator, "values": values }])
    }

    #[test]
    fn pod_with_affinity_to_a_name_runs_only_there() {
        let node = node(json!({}));
        let by_name = |operator: &str, name: &str| {
            required(json!([{ "matchFields": requirement("metadata.name", operator, &[name]) }]))
        };
        check(&node, json!({}), true);
        check(&node, by_name("In", "node-0"), true);
        check(&node, by_name("In", "node-1"), false);
        check(&node, by_name("NotIn", "node-1"), true);
        check(&node, by_name("NotIn", "node-0"), false);
        check(&node, required(json!([{}])), false);
    }

    #[test]
    fn pod_with_selector_or_affinity_to_labels_requires_them() {
        let node = node(json!({}));
        let color =
            |value: &str| required(json!([{ "matchExpressions": requirement("color", "In", &[value]) }]));
        check(&node, json!({ "nodeSelector": { "color": "blue" } }), true);
        check(&node, json!({ "nodeSelector": { "color": "green" } }), false);
        check(&node, color("blue"), true);
        check(&node, color("green"), false);
    }

    #[test]
    fn taints_and_cordons_must_be_tolerated() {
        let tolerating = |key: &str| json!({ "tolerations": [{ "key": key, "operator": "Exists" }] });
        let tainted =
            node(json!({ "taints": [{ "key": "dedicated", "value": "x", "effect": "NoExecute" }] }));
        check(&tainted, json!({}), false);
        check(&tainted, tolerating("dedicated"), true);
        check(&tainted, tolerating("other"), false);
        let valued = |value: &str| json!({ "tolerations": [{ "key": "dedicated", "value": value }] });
        check(&tainted, valued("x"), true);
        check(&tainted, valued("y"), false);
        let cordoned = node(json!({ "unschedulable": true }));
        check(&cordoned, json!({}), false);
        check(&cordoned, tolerating("node.kubernetes.io/unschedulable"), true);
        let preferring = node(json!({ "taints": [{ "key": "dedicated", "effect": "PreferNoSchedule" }] }));
        check(&preferring, json!({}), true);
    }
}
