//! Upstream's tables about progress, completion and deadlines.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use serde_json::{Value, json};

use super::super::conditions::{self, PROGRESSING};
use super::super::status::{
    Sets, TerminatingMode, calculate, calculate_rollout, check_deadline_in, has_timed_out, is_complete,
    is_progressing,
};
use super::fixtures::{changed, recreating, rolling, set};
use crate::shared::fixtures::at;

const UNLIMITED: i32 = i32::MAX;

fn status(counts: [i32; 4]) -> DeploymentStatus {
    let [replicas, updated, ready, available] = counts;
    serde_json::from_value(json!({
        "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": available,
        "observedGeneration": 1,
    }))
    .expect("a status")
}

#[test]
fn deployment_is_complete_with_all_pods_updated_and_available() {
    let cases = [
        (5, [5, 5, 0, 4], false),
        (5, [5, 5, 0, 3], false),
        (5, [5, 5, 0, 5], true),
        (5, [5, 4, 0, 5], false),
        (1, [2, 1, 0, 1], false),
        (1, [1, 1, 0, 0], false),
    ];
    for (desired, counts, expected) in cases {
        assert_eq!(is_complete(&rolling(desired, 1, 1), &status(counts)), expected, "{counts:?}");
    }
    let newer = changed(&rolling(5, 1, 1), json!({ "metadata": { "generation": 2 } }));
    assert!(!is_complete(&newer, &status([5, 5, 5, 5])), "the status is for an older spec");
}

#[test]
fn progress_is_more_new_or_fewer_old_pods() {
    let cases = [
        ([10, 4, 4, 4], [10, 6, 4, 4], true),
        ([10, 4, 4, 4], [10, 4, 4, 4], false),
        ([10, 4, 6, 6], [8, 4, 6, 6], true),
        ([10, 7, 3, 3], [10, 6, 3, 3], false),
        ([10, 4, 7, 7], [8, 8, 5, 5], true),
        ([10, 10, 9, 8], [10, 10, 10, 8], true),
        ([10, 10, 10, 9], [10, 10, 10, 10], true),
    ];
    for (old, new, expected) in cases {
        assert_eq!(is_progressing(&status(old), &status(new)), expected, "{old:?} {new:?}");
    }
}

fn with_deadline(deployment: &Deployment, seconds: Option<i32>) -> Deployment {
    changed(deployment, json!({ "spec": { "progressDeadlineSeconds": seconds } }))
}

/// Returns a Progressing condition that was updated at the origin.
fn progressing(status: &str, reason: &str) -> Value {
    let time = at(0).to_string();
    json!({
        "type": "Progressing", "status": status, "reason": reason, "lastUpdateTime": time, "lastTransitionTime": time,
    })
}

fn with_condition(status: &DeploymentStatus, condition: Option<Value>) -> DeploymentStatus {
    changed(status, json!({ "conditions": condition.into_iter().collect::<Vec<_>>() }))
}

#[test]
fn rollout_times_out_after_its_deadline() {
    let cases = [
        (None, "", 1000, false),
        (Some(UNLIMITED), "", 1000, false),
        (Some(10), "", 11, true),
        (Some(10), "", 10, false),
        (Some(10), "", 9, false),
        (Some(10), "NewReplicaSetAvailable", 1000, false),
        (Some(10), "ProgressDeadlineExceeded", 0, true),
    ];
    for (deadline, reason, now, expected) in cases {
        let deployment = with_deadline(&rolling(1, 1, 1), deadline);
        let status = with_condition(&status([1, 1, 0, 0]), Some(progressing("True", reason)));
        assert_eq!(has_timed_out(&deployment, &status, at(now)), expected, "{deadline:?} {reason} {now}");
    }
    let deployment = with_deadline(&rolling(1, 1, 1), Some(10));
    assert!(!has_timed_out(&deployment, &status([1, 1, 0, 0]), at(1000)));
    let timeless = json!({ "type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated" });
    assert!(has_timed_out(&deployment, &with_condition(&status([1, 1, 0, 0]), Some(timeless)), at(1000)));
}

#[test]
fn deadline_is_checked_a_second_after_it_expires() {
    let stuck = || Some(progressing("True", "ReplicaSetUpdated"));
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let soon = Some(Duration::from_millis(1));
    // Deadline, pods, condition, now, and the delay.
    let cases = [
        (None, [3, 3, 2, 2], None, 0, None),
        (Some(UNLIMITED), [3, 3, 2, 2], stuck(), 0, None),
        (Some(60), [3, 3, 2, 2], None, 0, None),
        (Some(60), [3, 3, 3, 3], stuck(), 0, None),
        (Some(60), [3, 3, 0, 0], Some(progressing("False", "ProgressDeadlineExceeded")), 0, None),
        (Some(60), [3, 3, 1, 1], Some(progressing("True", "NewReplicaSetAvailable")), 0, None),
        (Some(60), [3, 3, 1, 1], stuck(), 30, seconds(31)),
        (Some(60), [3, 3, 1, 1], stuck(), 59, seconds(2)),
        (Some(60), [3, 3, 1, 1], stuck(), 60, soon),
        (Some(60), [3, 3, 1, 1], stuck(), 120, soon),
    ];
    for (deadline, counts, condition, now, expected) in cases {
        let deployment = with_deadline(&rolling(3, 1, 1), deadline);
        let status = with_condition(&status(counts), condition);
        assert_eq!(
            check_deadline_in(&deployment, &status, at(now)),
            expected,
            "{deadline:?} {counts:?} {now}"
        );
    }
}

/// Returns a ReplicaSet with this desired size and these pods.
fn counted(name: &str, size: i32, replicas: i32, available: i32) -> ReplicaSet {
    let status = json!({ "replicas": replicas, "availableReplicas": available });
    changed(&set(name, name, size, 1), json!({ "status": status }))
}

/// Deadline, desired pods, pods of the status, condition, old and new set; then status and reason of the new condition,
/// and whether its transition time stays.
type RolloutCase = (
    Option<i32>,
    i32,
    [i32; 4],
    Option<Value>,
    Option<ReplicaSet>,
    Option<ReplicaSet>,
    Option<(&'static str, &'static str, bool)>,
);

fn rollout_cases() -> [RolloutCase; 11] {
    let updated = || Some(progressing("True", "ReplicaSetUpdated"));
    let failed = || Some(progressing("False", "ProgressDeadlineExceeded"));
    let old = || Some(counted("bar", 0, 1, 1));
    let rolled = || Some(counted("foo", 3, 2, 2));
    let complete = || Some(counted("foo", 3, 3, 3));
    [
        (None, 3, [2, 2, 0, 2], updated(), old(), rolled(), None),
        (
            Some(60),
            3,
            [3, 3, 0, 3],
            Some(progressing("True", "NewReplicaSetAvailable")),
            Some(counted("bar", 3, 3, 3)),
            Some(counted("foo", 0, 3, 0)),
            Some(("True", "NewReplicaSetAvailable", true)),
        ),
        (Some(60), 3, [2, 2, 0, 2], updated(), old(), rolled(), Some(("True", "ReplicaSetUpdated", true))),
        (Some(60), 3, [2, 2, 0, 2], failed(), old(), rolled(), Some(("True", "ReplicaSetUpdated", false))),
        (Some(60), 3, [2, 2, 0, 2], None, old(), rolled(), Some(("True", "ReplicaSetUpdated", false))),
        (
            Some(60),
            3,
            [3, 3, 0, 3],
            updated(),
            None,
            complete(),
            Some(("True", "NewReplicaSetAvailable", true)),
        ),
        (
            Some(60),
            3,
            [3, 3, 0, 3],
            failed(),
            None,
            complete(),
            Some(("True", "NewReplicaSetAvailable", false)),
        ),
        (Some(60), 3, [3, 3, 0, 3], None, None, complete(), Some(("True", "NewReplicaSetAvailable", false))),
        (
            Some(60),
            0,
            [3, 3, 0, 3],
            updated(),
            Some(counted("foo", 0, 0, 0)),
            None,
            Some(("True", "NewReplicaSetAvailable", true)),
        ),
        (
            Some(60),
            3,
            [2, 2, 0, 2],
            updated(),
            None,
            rolled(),
            Some(("False", "ProgressDeadlineExceeded", false)),
        ),
        (
            Some(60),
            3,
            [2, 2, 0, 2],
            failed(),
            None,
            rolled(),
            Some(("False", "ProgressDeadlineExceeded", true)),
        ),
    ]
}

#[test]
fn rollout_status_reports_progress_completion_and_timeout() {
    for (deadline, desired, counts, condition, old, new, expected) in rollout_cases() {
        let mut deployment = with_deadline(&recreating(desired), deadline);
        deployment.status = Some(with_condition(&status(counts), condition));
        let old: Vec<_> = old.iter().collect();
        let sets = Sets { new: new.as_ref(), old: &old };
        let status = calculate_rollout(&deployment, sets, TerminatingMode::Reported, at(1000));
        let found = conditions::get(&status, PROGRESSING).map(|condition| {
            let since = condition.last_transition_time.as_ref().map(|time| time.0);
            (condition.status.as_str(), condition.reason.as_deref().unwrap_or_default(), since == Some(at(0)))
        });
        assert_eq!(found, expected, "{counts:?}");
    }
}

#[test]
fn terminating_pods_are_counted_if_all_sets_report_them() {
    let reported = |count: Value, observed: i64| -> ReplicaSet {
        let status = json!({ "terminatingReplicas": count, "observedGeneration": observed });
        changed(&set("set", "old", 1, 1), json!({ "status": status }))
    };
    let cases = [
        (vec![reported(json!(2), 1), reported(json!(3), 1)], Some(5)),
        (vec![reported(json!(2), 1), reported(Value::Null, 1)], None),
        (vec![reported(json!(2), 1), reported(Value::Null, 0)], Some(2)),
        (vec![], Some(0)),
    ];
    for (sets, expected) in cases {
        let old: Vec<_> = sets.iter().collect();
        let sets = Sets { new: None, old: &old };
        let computed = |mode| calculate(&rolling(1, 1, 1), sets, mode, at(0)).terminating_replicas;
        assert_eq!(computed(TerminatingMode::Reported), expected);
        assert_eq!(computed(TerminatingMode::Omitted), None);
    }
}

#[test]
fn failure_of_the_new_set_precedes_failures_of_old_sets() {
    let failing = |name: &str, reason: &str| {
        let condition = json!([{ "type": "ReplicaFailure", "status": "True", "reason": reason }]);
        changed(&set(name, name, 1, 1), json!({ "status": { "conditions": condition } }))
    };
    let (old, new) = (failing("old", "Old"), failing("new", "New"));
    for (new, expected) in [(Some(&new), "New"), (None, "Old")] {
        let sets = Sets { new, old: &[&old] };
        let status = calculate_rollout(&rolling(1, 1, 1), sets, TerminatingMode::Reported, at(0));
        let found = conditions::get(&status, "ReplicaFailure").and_then(|condition| condition.reason.clone());
        assert_eq!(found.as_deref(), Some(expected));
    }
}
