//! Owner references of claims.

use serde_json::{Value, json};
use windlass_object::HasMetadata as _;

use super::fixtures::{claim, owner, stateful_set};
use crate::statefulset::claims::{ClaimOwners, ClaimUser, claims};

fn user(ordinal: i32) -> ClaimUser {
    ClaimUser { name: format!("web-{ordinal}"), uid: "uid-pod".into(), ordinal }
}

fn policy(when_scaled: &str, when_deleted: &str) -> Value {
    let policy = json!({ "whenScaled": when_scaled, "whenDeleted": when_deleted });
    json!({ "persistentVolumeClaimRetentionPolicy": policy })
}

fn set_reference() -> Value {
    owner("apps/v1", "StatefulSet", "web", "uid-web", true)
}

fn pod_reference(ordinal: i32) -> Value {
    owner("v1", "Pod", &format!("web-{ordinal}"), "uid-pod", true)
}

fn others() -> Vec<Value> {
    vec![owner("v1", "Pod", "rand1", "uid-1", false), owner("custom/v1", "Random", "rand2", "uid-2", false)]
}

/// Policies for scaling and deletion, ordinal of three pods, and the required references to the set and to the pod.
const REQUIRED: [(&str, &str, i32, bool, bool); 8] = [
    ("Retain", "Retain", 1, false, false),
    ("Retain", "Retain", 3, false, false),
    ("Retain", "Delete", 1, true, false),
    ("Retain", "Delete", 3, true, false),
    ("Delete", "Retain", 1, false, false),
    ("Delete", "Retain", 3, false, true),
    ("Delete", "Delete", 1, true, false),
    ("Delete", "Delete", 3, false, true),
];

#[test]
fn owner_references_follow_the_policy() {
    for (scaled, deleted, ordinal, needs_set, needs_pod) in REQUIRED {
        let (set, pod) = (stateful_set(3, policy(scaled, deleted)), user(ordinal));
        let owners = ClaimOwners { set: &set, pod: &pod };
        for (has_set, has_pod, has_others) in (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0)) {
            let mut references = Vec::new();
            references.extend(has_pod.then(|| pod_reference(ordinal)));
            references.extend(has_set.then(set_reference));
            references.extend(if has_others { others() } else { Vec::new() });
            let view = claim("data", &json!(references));
            let expected = (has_set, has_pod) == (needs_set, needs_pod);
            assert_eq!(
                owners.are_current(view.metadata()),
                expected,
                "{scaled} {deleted} {ordinal} {references:?}"
            );

            let present = serde_json::from_value::<Vec<_>>(json!(references)).expect("references");
            let updated = owners.updated(view.metadata(), &present);
            let has = |uid: &str| updated.iter().any(|it| it.uid == uid && it.controller == Some(true));
            assert_eq!(
                (has("uid-web"), has("uid-pod")),
                (needs_set, needs_pod),
                "{scaled} {deleted} {ordinal}"
            );
            let expected_len = usize::from(needs_set || needs_pod) + if has_others { 2 } else { 0 };
            assert_eq!(updated.len(), expected_len);
        }
    }
}

#[test]
fn unusual_owner_references_are_current_or_corrected() {
    let without_control = |mut reference: Value| {
        reference["controller"] = json!(false);
        reference
    };
    let stale_pod = owner("v1", "Pod", "web-3", "uid-stale", true);
    let stale_set = owner("apps/v1", "StatefulSet", "web", "uid-stale", true);
    let foreign = owner("v1", "Pod", "random", "uid-random", true);
    let both = ("Delete", "Delete");
    let with_set = ("Retain", "Delete");
    let cases = [
        (both, vec![pod_reference(3)], true),
        (both, vec![without_control(pod_reference(3))], false),
        (both, vec![stale_pod.clone()], true),
        (both, vec![pod_reference(3), foreign.clone()], false),
        (both, vec![foreign.clone()], true),
        (with_set, vec![set_reference()], true),
        (with_set, vec![without_control(set_reference())], false),
        (with_set, vec![stale_set], true),
        (with_set, vec![set_reference(), foreign.clone()], false),
        (("Retain", "Retain"), vec![foreign], true),
    ];
    for ((scaled, deleted), references, expected) in cases {
        let (set, pod) = (stateful_set(3, policy(scaled, deleted)), user(3));
        let view = claim("data", &json!(references));
        let owners = ClaimOwners { set: &set, pod: &pod };
        assert_eq!(owners.are_current(view.metadata()), expected, "{references:?}");
    }
}

#[test]
fn other_controllers_are_conflicts_unless_claims_are_retained() {
    let cases = [
        (vec![owner("chipmunks/v1", "Custom", "simon", "uid-other", true)], true),
        (vec![owner("chipmunks/v1", "Custom", "simon", "uid-other", false)], false),
        (vec![owner("v1", "Pod", "simon", "uid-other", true)], true),
        (vec![owner("apps/v1", "Set", "simon", "uid-other", true)], true),
        (vec![set_reference()], false),
        (vec![owner("apps/v1", "StatefulSet", "web", "uid-stale", true)], true),
        (vec![pod_reference(1)], false),
        (vec![owner("v1", "Pod", "web-1", "uid-stale", true)], true),
        (vec![pod_reference(1), owner("chipmunks/v1", "Custom", "simon", "uid-other", true)], true),
        (vec![pod_reference(1), owner("chipmunks/v1", "Custom", "simon", "uid-other", false)], false),
    ];
    let pod = user(1);
    for (references, expected) in cases {
        let view = claim("data", &json!(references));
        let conflicts = |fields: Value| {
            let set = stateful_set(3, fields);
            ClaimOwners { set: &set, pod: &pod }.has_conflict(view.metadata())
        };
        assert!(!conflicts(json!({})) && !conflicts(policy("Retain", "Retain")));
        for (scaled, deleted) in [("Delete", "Retain"), ("Retain", "Delete"), ("Delete", "Delete")] {
            assert_eq!(conflicts(policy(scaled, deleted)), expected, "{references:?}");
        }
    }
}

#[test]
fn reference_to_the_set_is_completed_or_dropped_if_stale() {
    // References before and after the change: kind, name, UID, and whether the owner is the controller.
    type References = &'static [(&'static str, &'static str, &'static str, bool)];
    const COMPLETE: (&str, &str, &str, bool) = ("StatefulSet", "web", "uid-web", true);
    const CASES: [(References, References); 6] = [
        (&[COMPLETE, ("Else", "foo", "", false)], &[COMPLETE, ("Else", "foo", "", false)]),
        (&[("StatefulSet", "web", "uid-web", false)], &[COMPLETE]),
        (&[("Else", "web", "uid-other", false)], &[COMPLETE, ("Else", "web", "uid-other", false)]),
        (&[], &[COMPLETE]),
        // A missing UID is the UID of another object.
        (&[("StatefulSet", "web", "", true)], &[]),
        (&[("StatefulSet", "web", "", false)], &[]),
    ];
    let (set, pod) = (stateful_set(1, policy("Delete", "Delete")), user(0));
    for (given, expected) in CASES {
        let reference = |(kind, name, uid, controls): &(&str, &str, &str, bool)| {
            let version = if *kind == "StatefulSet" { "apps/v1" } else { "someone/v1" };
            owner(version, kind, name, uid, *controls)
        };
        let references = json!(given.iter().map(reference).collect::<Vec<_>>());
        let present = serde_json::from_value::<Vec<_>>(references.clone()).expect("references");
        let view = claim("data", &references);
        let updated = ClaimOwners { set: &set, pod: &pod }.updated(view.metadata(), &present);
        let mut found: Vec<_> = updated
            .iter()
            .map(|it| (&*it.kind, &*it.name, &*it.uid, it.controller.unwrap_or_default()))
            .collect();
        let mut expected = expected.to_vec();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{given:?}");
    }
}

#[test]
fn conflict_removes_the_references_to_set_and_pod() {
    let set = stateful_set(3, policy("Delete", "Delete"));
    let pod = user(3);
    let foreign = owner("custom/v1", "Unknown", "unknown", "xyz", true);
    let references = json!([pod_reference(3), set_reference(), foreign]);
    let present = serde_json::from_value::<Vec<_>>(references.clone()).expect("references");
    let view = claim("data", &references);
    let updated = ClaimOwners { set: &set, pod: &pod }.updated(view.metadata(), &present);
    assert_eq!(updated.iter().map(|it| it.uid.as_str()).collect::<Vec<_>>(), ["xyz"]);
}

#[test]
fn claims_have_the_labels_of_template_and_selector() {
    let template = |labels: Value| json!([{ "metadata": { "name": "data", "labels": labels }, "spec": {} }]);
    let cases = [
        (Value::Null, json!({ "app": "web" })),
        (json!({ "tier": "db" }), json!({ "tier": "db", "app": "web" })),
        (json!({ "app": "other" }), json!({ "app": "web" })),
    ];
    for (labels, expected) in cases {
        let set = stateful_set(1, json!({ "volumeClaimTemplates": template(labels) }));
        let [claim] = &claims(&set, 4)[..] else { panic!("one claim") };
        assert_eq!(claim.metadata.name.as_deref(), Some("data-web-4"));
        assert_eq!(claim.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(json!(claim.metadata.labels), expected);
    }
}

#[test]
fn last_claim_template_with_a_repeated_name_is_used() {
    let template = |name: &str, size: &str| json!({ "metadata": { "name": name }, "spec": { "resources": { "requests": { "storage": size } } } });
    let templates = json!([template("data", "1Gi"), template("log", "2Gi"), template("data", "3Gi")]);
    let set = stateful_set(1, json!({ "volumeClaimTemplates": templates }));
    let sizes: Vec<_> = claims(&set, 0)
        .into_iter()
        .map(|claim| {
            let requests = claim.spec.and_then(|spec| spec.resources?.requests).expect("requests");
            (claim.metadata.name.expect("a name"), requests["storage"].0.clone())
        })
        .collect();
    assert_eq!(sizes, [("log-web-0".into(), "2Gi".into()), ("data-web-0".into(), "3Gi".into())]);
}
