//! Tests of the next step of a pod, from plain data.

use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};

use super::addresses::Addresses;
use super::lifecycle::{PodAction, end, next, run};
use super::load::NodeLoad;
use super::{NodeOptions, annotations};

const NOW: i64 = 1_800_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(NOW + second).expect("a time in range")
}

/// A bound pod, changed by merging `change` into it.
fn pod(change: Value) -> Pod {
    let mut pod = json!({
        "metadata": { "name": "web-1", "namespace": "shop", "uid": "1", "creationTimestamp": at(0).to_string() },
        "spec": { "nodeName": "node-0", "restartPolicy": "Always", "containers": [{ "name": "main", "image": "i" }] },
        "status": { "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "True", "lastTransitionTime": at(0).to_string() },
        ] },
    });
    merge(&mut pod, change);
    serde_json::from_value(pod).expect("a pod")
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

fn with_status(pod: &Pod, status: PodStatus) -> Pod {
    Pod { status: Some(status), ..pod.clone() }
}

fn started(pod: &Pod, second: i64) -> Pod {
    with_status(pod, run(pod, 0, Ipv4Addr::new(10, 128, 0, 1), "172.18.0.2", at(second)))
}

fn deleted(asked_at: i64, grace: i64, stops_in: &str) -> Value {
    json!({ "metadata": {
        "deletionTimestamp": at(asked_at + grace).to_string(),
        "deletionGracePeriodSeconds": grace,
        "annotations": { annotations::STOPS_IN: stops_in },
    } })
}

fn changed(pod: &Pod, change: Value) -> Pod {
    let mut value = serde_json::to_value(pod).expect("a pod is JSON");
    merge(&mut value, change);
    serde_json::from_value(value).expect("a pod")
}

#[test]
fn bound_pod_runs_once_its_start_time_has_passed() {
    let slow = NodeOptions { starts_in: Duration::from_secs(5), ..NodeOptions::default() };
    assert_eq!(next(&pod(json!({})), &slow, at(2)), PodAction::Wait(Duration::from_secs(3)));
    assert_eq!(next(&pod(json!({})), &slow, at(5)), PodAction::Run { restarts: 0 });
}

#[test]
fn running_pod_is_ready_and_keeps_its_scheduling_time() {
    let pod = started(&pod(json!({})), 7);
    let status = pod.status.clone().expect("a status");
    assert_eq!((status.phase.as_deref(), status.pod_ip.as_deref()), (Some("Running"), Some("10.128.0.1")));
    let conditions = status.conditions.expect("conditions");
    let of = |type_: &str| conditions.iter().find(|it| it.type_ == type_).expect("the condition").clone();
    assert_eq!(of("Ready").status, "True");
    assert_eq!(of("PodScheduled").last_transition_time.expect("a time").0, at(0));
    assert_eq!(next(&pod, &NodeOptions::default(), at(1000)), PodAction::Nothing);
}

#[test]
fn pod_with_ready_false_annotation_stays_unready() {
    let shy = json!({ "metadata": { "annotations": { annotations::READY: "false" } } });
    let status = started(&pod(shy), 1).status.expect("a status");
    assert!(!status.container_statuses.expect("containers")[0].ready);
}

#[test]
fn expired_containers_restart_as_the_restart_policy_requires() {
    let cases = [
        ("Never", "0", PodAction::End { exit_code: 0 }),
        ("Never", "3", PodAction::End { exit_code: 3 }),
        ("OnFailure", "0", PodAction::End { exit_code: 0 }),
        ("OnFailure", "3", PodAction::Run { restarts: 1 }),
        ("Always", "0", PodAction::Run { restarts: 1 }),
    ];
    for (policy, code, expected) in cases {
        let asks = json!({ "metadata": { "annotations": {
            annotations::RUNS_FOR: "5s", annotations::EXIT_CODE: code,
        } }, "spec": { "restartPolicy": policy } });
        let pod = started(&pod(asks), 10);
        let options = NodeOptions::default();
        assert_eq!(next(&pod, &options, at(12)), PodAction::Wait(Duration::from_secs(3)), "{policy} {code}");
        assert_eq!(next(&pod, &options, at(15)), expected, "{policy} {code}");
    }
}

#[test]
fn pods_of_jobs_complete_by_default() {
    let owner =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2", "controller": true });
    let job = json!({ "metadata": { "ownerReferences": [owner] }, "spec": { "restartPolicy": "Never" } });
    let pod = started(&pod(job), 10);
    assert_eq!(next(&pod, &NodeOptions::default(), at(11)), PodAction::End { exit_code: 0 });
    let ended = with_status(&pod, end(&pod, 0, at(11)));
    assert_eq!(ended.status.as_ref().and_then(|it| it.phase.as_deref()), Some("Succeeded"));
    assert_eq!(next(&ended, &NodeOptions::default(), at(12)), PodAction::Nothing);
}

#[test]
fn deleted_pod_is_removed_when_stopped_or_after_grace_period() {
    let options = NodeOptions::default();
    let running = started(&pod(json!({})), 1);
    let cases = [
        ("0s", 20, PodAction::End { exit_code: 0 }),
        ("4s", 20, PodAction::Wait(Duration::from_secs(4))),
        ("4s", 24, PodAction::End { exit_code: 0 }),
        ("90s", 24, PodAction::Wait(Duration::from_secs(26))),
        ("90s", 50, PodAction::End { exit_code: 137 }),
    ];
    for (stops_in, second, expected) in cases {
        let leaving = changed(&running, deleted(20, 30, stops_in));
        assert_eq!(next(&leaving, &options, at(second)), expected, "{stops_in} at {second}");
    }
    let leaving = changed(&running, deleted(20, 30, "0s"));
    assert_eq!(next(&with_status(&leaving, end(&leaving, 0, at(21))), &options, at(21)), PodAction::Remove);
    assert_eq!(next(&changed(&pod(json!({})), deleted(20, 30, "0s")), &options, at(20)), PodAction::Remove);
}

#[test]
fn deadline_beyond_representable_time_does_not_panic() {
    let forever = json!({ "metadata": { "annotations": { annotations::RUNS_FOR: "1000000h" } } });
    let pod = started(&pod(forever), 0);
    let left = Duration::try_from(SignedDuration::from_hours(1_000_000)).expect("positive");
    assert_eq!(next(&pod, &NodeOptions::default(), at(0)), PodAction::Wait(left));
}

#[test]
fn pod_addresses_are_unique_and_stable() {
    let addresses = Addresses::default();
    addresses.seen("old", Ipv4Addr::new(10, 128, 0, 1));
    let first = addresses.of("a").expect("a free address");
    assert_ne!(first, Ipv4Addr::new(10, 128, 0, 1), "an observed address is in use");
    assert_eq!(addresses.of("a"), Some(first));
    addresses.release("a");
    assert_ne!(addresses.of("b"), Some(first), "a freed address is not reused immediately");
}

#[test]
fn pods_are_spread_before_the_first_is_bound() {
    let (load, nodes) = (NodeLoad::default(), ["a", "b", "c"].map(str::to_owned));
    load.seen("old", "a");
    let placed = ["1", "2", "3"].map(|uid| load.place(uid, nodes.clone()));
    assert_eq!(placed.map(Option::unwrap), ["b", "c", "a"]);
    load.remove("2");
    load.seen("3", "c");
    assert_eq!(
        load.place("4", nodes.clone()).as_deref(),
        Some("a"),
        "the observed node counts, not the chosen one"
    );
    assert_eq!(load.place("5", []), None);
}
