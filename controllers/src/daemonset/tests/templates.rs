//! Templates of new pods.

use serde_json::{Value, json};

use super::super::node_pods::target_node;
use super::super::template::{is_updated, pinned, pod_template};
use super::fixtures::{pinned_pod, pod, set, with_pod_spec};
use crate::shared::fixtures::with_labels;

#[test]
fn template_has_labels_of_its_revision() {
    let labels = |generation: Value, hash: &str| {
        let mut set = set(json!({}));
        if let Some(generation) = generation.as_str() {
            let key = "deprecated.daemonset.template.generation".to_owned();
            set.metadata.annotations = Some([(key, generation.to_owned())].into());
        }
        pod_template(&set, hash).metadata.and_then(|metadata| metadata.labels).expect("labels")
    };
    let label = |labels: &std::collections::BTreeMap<String, String>, key: &str| labels.get(key).cloned();
    let with_both = labels(json!("2"), "3242341807");
    assert_eq!(label(&with_both, "pod-template-generation"), Some("2".into()));
    assert_eq!(label(&with_both, "controller-revision-hash"), Some("3242341807".into()));
    assert_eq!(label(&with_both, "app"), Some("agent".into()));
    let without_hash = labels(json!("1"), "");
    assert_eq!(label(&without_hash, "pod-template-generation"), Some("1".into()));
    assert_eq!(label(&without_hash, "controller-revision-hash"), None);
    assert_eq!(label(&labels(json!("one"), "h"), "pod-template-generation"), None);
    assert_eq!(label(&labels(Value::Null, "h"), "pod-template-generation"), None);
}

#[test]
fn tolerations_are_added_once_and_without_time_limit() {
    let tolerations = |spec: Value| {
        let template = pod_template(&with_pod_spec(spec), "h");
        serde_json::to_value(template.spec.and_then(|spec| spec.tolerations)).expect("JSON")
    };
    let exists = |key: &str, effect: &str| json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect });
    let all = [
        exists("not-ready", "NoExecute"),
        exists("unreachable", "NoExecute"),
        exists("disk-pressure", "NoSchedule"),
        exists("memory-pressure", "NoSchedule"),
        exists("pid-pressure", "NoSchedule"),
        exists("unschedulable", "NoSchedule"),
    ];
    assert_eq!(tolerations(json!({})), json!(all));
    let mut on_host = all.to_vec();
    on_host.push(exists("network-unavailable", "NoSchedule"));
    assert_eq!(tolerations(json!({ "hostNetwork": true })), json!(on_host));
    let mut limited = all[1].clone();
    limited["tolerationSeconds"] = json!(300);
    let own = json!({ "key": "own", "operator": "Exists" });
    let given = json!({ "tolerations": [limited, own] });
    let expected = [&all[1], &own, &all[0], &all[2], &all[3], &all[4], &all[5]];
    assert_eq!(tolerations(given), json!(expected));
}

#[test]
fn affinity_is_replaced_by_the_node() {
    let term = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["host_1"] }] });
    let required = json!({ "nodeSelectorTerms": [term] });
    let on_node = json!({ "requiredDuringSchedulingIgnoredDuringExecution": required });
    let other_terms = json!({ "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": "not-host", "operator": "In", "values": ["label_value_1"] }] },
        { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["host_2"] }] },
    ]});
    let preferred = json!([{ "weight": 1, "preference": { "matchExpressions": [] } }]);
    let cases = [
        (Value::Null, json!({ "nodeAffinity": on_node })),
        (json!({}), json!({ "nodeAffinity": on_node })),
        (json!({ "podAffinity": {} }), json!({ "podAffinity": {}, "nodeAffinity": on_node })),
        (
            json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": other_terms } }),
            json!({ "nodeAffinity": on_node }),
        ),
        (
            json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": preferred } }),
            json!({ "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                "requiredDuringSchedulingIgnoredDuringExecution": required,
            } }),
        ),
    ];
    for (affinity, expected) in cases {
        let affinity = serde_json::from_value(affinity).expect("an affinity");
        let pinned = serde_json::to_value(pinned(affinity, "host_1")).expect("JSON");
        assert_eq!(pinned, expected);
    }
}

#[test]
fn target_is_the_bound_node_or_the_pinned_node() {
    let name = |operator: &str, values: &[&str]| json!({ "matchFields": [{ "key": "metadata.name", "operator": operator, "values": values }] });
    let labels =
        json!({ "matchExpressions": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }] });
    let target = |terms: Value| target_node(&pinned_pod("pod", terms)).map(|node| node.to_string());
    assert_eq!(target_node(&pod("pod", "node-1", "h", 0)).map(|node| &**node), Some("node-1"));
    assert_eq!(target(json!([name("In", &["node-1"])])), Some("node-1".into()));
    assert_eq!(target(json!([labels, name("In", &["node-1"])])), Some("node-1".into()));
    assert_eq!(target(json!([name("In", &["node-1", "node-2"])])), None);
    assert_eq!(target(json!([name("NotIn", &["node-1"])])), None);
    assert_eq!(target(json!([labels])), None);
    assert_eq!(target(json!([])), None);
    assert_eq!(target(Value::Null), None);
}

type Labels = &'static [(&'static str, &'static str)];

#[test]
fn pod_is_updated_by_hash_or_by_generation() {
    const BOTH: Labels = &[("pod-template-generation", "12345"), ("controller-revision-hash", "55555")];
    let cases: [(Labels, &str, Option<i64>, bool); 10] = [
        (BOTH, "55555", Some(12345), true),
        (BOTH, "55555123", Some(12345), true),
        (&BOTH[..1], "55555", Some(12345), true),
        (&BOTH[..1], "", Some(12345), true),
        (BOTH, "", Some(12345), true),
        (BOTH, "55555", Some(12350), true),
        (BOTH, "55555", None, true),
        (BOTH, "55555123", Some(12350), false),
        (&[], "", Some(12345), false),
        (&[], "55555", Some(12345), false),
    ];
    for (labels, hash, generation, expected) in cases {
        let pod = with_labels(pod("pod", "node", "", 0), labels);
        assert_eq!(is_updated(&pod, hash, generation), expected, "{labels:?} {hash} {generation:?}");
    }
}
