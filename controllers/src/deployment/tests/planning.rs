//! Plans of whole syncs.

use k8s_openapi::api::apps::v1::DeploymentStatus;
use serde_json::{Value, json};

use super::super::annotations::{DESIRED_REPLICAS, MAX_REPLICAS, REVISION};
use super::super::plan::{Observed, plan};
use super::fixtures::{
    annotated, changed, observed, planned, recreating, rolling, set, steps, template, with_available,
};

#[test]
fn first_sync_creates_the_set_then_writes_the_status_once() {
    assert_eq!(steps(&planned(&rolling(3, 1, 1), &[])), ["create 3", "status"]);
}

#[test]
fn deleted_deployment_only_reports() {
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-03-01T12:00:00Z" } });
    assert_eq!(steps(&planned(&changed(&rolling(3, 1, 1), deleted), &[])), ["status"]);
}

#[test]
fn empty_selector_causes_an_event_and_no_pods() {
    let mut deployment = rolling(3, 1, 1);
    deployment.spec.as_mut().expect("a spec").selector = Default::default();
    assert_eq!(steps(&planned(&deployment, &[])), ["event SelectingAll", "status"]);
    let observed = changed(&deployment, json!({ "status": { "observedGeneration": 1 } }));
    assert_eq!(steps(&planned(&observed, &[])), ["event SelectingAll"]);
}

#[test]
fn unknown_strategy_is_an_error() {
    let unknown = json!({ "spec": { "strategy": { "type": "Sideways" } } });
    let error = plan(observed(&changed(&rolling(1, 1, 1), unknown), &[])).expect_err("an error");
    assert_eq!(error.to_string(), "unexpected deployment strategy type: Sideways");
}

#[test]
fn rollback_runs_once_and_before_everything_else() {
    let request = json!({ "metadata": { "annotations": { "deprecated.deployment.rollback.to": "1" } } });
    let deployment = changed(&rolling(1, 1, 1), request);
    let sets = [
        annotated(&set("old", "old", 0, 1), REVISION, "1"),
        annotated(&set("new", "new", 1, 2), REVISION, "2"),
    ];
    let plan = planned(&deployment, &sets);
    assert_eq!(steps(&plan).last().map(String::as_str), Some("roll back"));
    let Some(super::super::plan::Step::RollBack { deployment, .. }) = plan.steps.last() else {
        panic!("a rollback")
    };
    let image = serde_json::to_value(&deployment.spec.as_ref().expect("a spec").template).expect("JSON");
    assert_eq!(image, template("old"));
    assert!(!steps(&planned(deployment, &sets)).contains(&"roll back".to_owned()));
}

#[test]
fn recreate_waits_for_old_pods_in_any_phase_but_terminal() {
    let old = changed(&set("old", "old", 0, 1), json!({ "status": { "replicas": 0 } }));
    let waiting = |old: &k8s_openapi::api::apps::v1::ReplicaSet, running: &[&str]| {
        let running = running.iter().map(|uid| (*uid).to_owned()).collect();
        let plan = plan(Observed { running, ..observed(&recreating(2), std::slice::from_ref(old)) });
        !steps(&plan.expect("a plan")).contains(&"create 2".to_owned())
    };
    assert!(!waiting(&old, &[]));
    assert!(waiting(&old, &["uid-old"]));
    assert!(!waiting(&old, &["uid-another"]));
    assert!(waiting(&changed(&old, json!({ "status": { "replicas": 1 } })), &[]));
}

#[test]
fn recreate_scales_all_old_sets_to_zero() {
    let sets = [set("first", "first", 2, 1), set("second", "second", 3, 2), set("third", "third", 0, 3)];
    assert_eq!(steps(&planned(&recreating(2), &sets)), ["scale first 2->0", "scale second 3->0", "status"]);
}

/// An old ReplicaSet: name, size, pods, revision.
type OldSet = (&'static str, i32, i32, &'static str);

/// Returns the names of the sets that a complete Deployment with this history limit deletes.
fn deleted(limit: i32, old: &[OldSet]) -> Vec<String> {
    deleted_with(json!({ "revisionHistoryLimit": limit }), old)
}

/// Returns the names of the sets that a paused Deployment with this history limit deletes. It does not wait for the
/// removal of old pods.
fn deleted_while_paused(limit: i32, old: &[OldSet]) -> Vec<String> {
    deleted_with(json!({ "revisionHistoryLimit": limit, "paused": true }), old)
}

fn deleted_with(fields: Value, old: &[OldSet]) -> Vec<String> {
    let deployment = changed(
        &rolling(1, 1, 1),
        json!({
            "spec": fields,
            "status": { "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "observedGeneration": 1 },
        }),
    );
    let mut sets: Vec<_> = (1..)
        .zip(old)
        .map(|(age, (name, size, replicas, revision))| {
            let set = changed(&set(name, name, *size, age), json!({ "status": { "replicas": replicas } }));
            if revision.is_empty() { set } else { annotated(&set, REVISION, revision) }
        })
        .collect();
    let new = with_available(set("new", "new", 1, 100), 1);
    let new = annotated(&annotated(&new, DESIRED_REPLICAS, "1"), MAX_REPLICAS, "2");
    sets.push(new);
    let names = steps(&planned(&deployment, &sets)).into_iter();
    names.filter_map(|step| step.strip_prefix("delete ").map(str::to_owned)).collect()
}

#[test]
fn history_limit_deletes_sets_without_pods() {
    let unused = [("a", 0, 0, ""), ("b", 0, 0, ""), ("c", 0, 0, "")];
    assert_eq!(deleted(1, &unused), ["a", "b"]);
    assert_eq!(deleted(0, &unused[..2]), ["a", "b"]);
    assert_eq!(deleted(i32::MAX, &unused), [""; 0]);
    assert_eq!(deleted(0, &[("a", 0, 0, ""), ("b", 0, 1, "")]), ["a"]);
    let sizes = [("a", 0, 0, ""), ("b", 0, 1, ""), ("c", 1, 0, ""), ("d", 1, 1, "")];
    assert_eq!(deleted_while_paused(0, &sizes), ["a"]);
    assert_eq!(deleted_while_paused(0, &[("a", 1, 1, ""), ("b", 1, 1, "")]), [""; 0]);
}

#[test]
fn history_limit_deletes_the_lowest_revisions_first() {
    let cases: [(i32, &[OldSet], &[&str]); 7] = [
        (1, &[("a", 0, 0, "1"), ("b", 0, 0, "2")], &["a"]),
        (1, &[("a", 0, 0, "2"), ("b", 0, 0, "1")], &["b"]),
        (1, &[("a", 0, 0, "1"), ("b", 0, 0, "")], &["b"]),
        (1, &[("a", 0, 0, ""), ("b", 0, 0, "2")], &["a"]),
        // A malformed revision is compared by the creation.
        (1, &[("a", 0, 0, "1"), ("b", 0, 0, "x")], &["a"]),
        (1, &[("a", 0, 1, "1"), ("b", 0, 0, "2"), ("c", 0, 0, "3")], &["b"]),
        (2, &[("a", 0, 0, "3"), ("b", 0, 0, "1"), ("c", 0, 0, "4"), ("d", 0, 0, "2")], &["b", "d"]),
    ];
    for (limit, old, expected) in cases {
        assert_eq!(deleted(limit, old), expected, "{old:?}");
    }
}

#[test]
fn sets_that_are_behind_or_being_deleted_are_not_deleted() {
    let deployment = changed(
        &rolling(1, 1, 1),
        json!({
            "spec": { "revisionHistoryLimit": 0 },
            "status": { "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "observedGeneration": 1 },
        }),
    );
    let new = with_available(set("new", "new", 1, 100), 1);
    let deletes = |change: Value| {
        let old = changed(&set("old", "old", 0, 1), change);
        steps(&planned(&deployment, &[old, new.clone()])).contains(&"delete old".to_owned())
    };
    assert!(deletes(json!({})));
    assert!(!deletes(json!({ "metadata": { "generation": 2 } })));
    assert!(!deletes(json!({ "metadata": { "deletionTimestamp": "2026-03-01T12:00:00Z" } })));
}

#[test]
fn status_after_refused_scale_down_counts_the_present_sizes() {
    let deployment = rolling(4, 1, 1);
    let old = with_available(set("old", "old", 4, 0), 2);
    let new = annotated(&annotated(&set("new", "new", 1, 100), DESIRED_REPLICAS, "4"), MAX_REPLICAS, "5");
    let plan = planned(&deployment, &[old, new]);
    assert_eq!(steps(&plan), ["annotate new", "status", "scale old 4->3", "status"]);
    let unavailable = |status: &DeploymentStatus| status.unavailable_replicas;
    assert_eq!(plan.unscaled.as_deref().and_then(unavailable), Some(3));
}
