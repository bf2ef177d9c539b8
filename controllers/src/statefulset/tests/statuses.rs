//! The status of a StatefulSet.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use serde_json::{Value, json};

use super::fixtures::{short, stateful_set, versions};
use crate::shared::fixtures::at;
use crate::statefulset::status::{calculate, complete_update, must_write, subtract_deleted};

fn counts(status: &StatefulSetStatus) -> [i32; 5] {
    let optional =
        [status.ready_replicas, status.available_replicas, status.current_replicas, status.updated_replicas];
    let [ready, available, current, updated] = optional.map(Option::unwrap_or_default);
    [status.replicas, ready, available, current, updated]
}

fn computed(set: &StatefulSet, pods: &[&str]) -> StatefulSetStatus {
    let pods: Vec<_> = pods.iter().map(|text| short(text)).collect();
    calculate(set, &versions(set), 2, &pods, at(0))
}

#[test]
fn pods_are_counted_by_state_and_revision() {
    let cases: [(&[&str], [i32; 5]); 6] = [
        (&[], [0, 0, 0, 0, 0]),
        (&["0ro", "1ro", "2ru"], [3, 3, 3, 2, 1]),
        (&["0pu", "1nu"], [2, 0, 0, 0, 2]),
        (&["0ro-", "1ru-"], [2, 2, 2, 0, 0]),
        (&["0fo", "1so"], [2, 0, 0, 2, 0]),
        (&["0ro", "1no-"], [2, 1, 1, 1, 0]),
    ];
    let set = stateful_set(3, json!({}));
    for (pods, expected) in cases {
        assert_eq!(counts(&computed(&set, pods)), expected, "{pods:?}");
    }
    let status = computed(&set, &["0ro"]);
    let revisions = (status.current_revision.as_deref(), status.update_revision.as_deref());
    assert_eq!(revisions, (Some("web-old"), Some("web-new")));
    assert_eq!((status.observed_generation, status.collision_count), (Some(3), Some(2)));
}

#[test]
fn pod_is_available_after_the_minimum_ready_time() {
    // The pods are ready for 60 seconds.
    for (minimum, available) in [(0, 1), (60, 1), (61, 0)] {
        let set = stateful_set(1, json!({ "minReadySeconds": minimum }));
        assert_eq!(counts(&computed(&set, &["0ru"])), [1, 1, available, 0, 1], "{minimum}");
    }
}

#[test]
fn update_completes_if_all_pods_are_updated_and_ready() {
    let cases: [(i32, &[&str], bool); 5] = [
        (2, &["0ru", "1ru"], true),
        (2, &["0ro", "1ru"], false),
        (2, &["0nu", "1ru"], false),
        (2, &["0ru", "1ru", "2ru"], false),
        (0, &[], true),
    ];
    for (replicas, pods, is_complete) in cases {
        let set = stateful_set(replicas, json!({}));
        let mut status = computed(&set, pods);
        complete_update(&set, &mut status);
        let current = status.current_revision.as_deref();
        assert_eq!(current, Some(if is_complete { "web-new" } else { "web-old" }), "{pods:?}");
        if is_complete {
            assert_eq!(status.current_replicas, status.updated_replicas);
        }
    }
    let on_delete = stateful_set(1, json!({ "updateStrategy": { "type": "OnDelete" } }));
    let mut status = computed(&on_delete, &["0ru"]);
    complete_update(&on_delete, &mut status);
    assert_eq!(status.current_revision.as_deref(), Some("web-old"));
}

#[test]
fn status_is_written_if_a_compared_field_changed() {
    let mut set = stateful_set(1, json!({}));
    let status = computed(&set, &["0ru"]);
    set.status = Some(status.clone());
    let changed = |field: &str, value: Value| {
        let mut json = json!(status);
        json[field] = value;
        must_write(&set, &serde_json::from_value(json).expect("a status"))
    };
    assert!(!must_write(&set, &status));
    for field in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        assert!(changed(field, json!(7)), "{field}");
    }
    assert!(changed("currentRevision", json!("web-other")));
    assert!(changed("updateRevision", json!("web-other")));
    assert!(changed("observedGeneration", json!(4)));
    assert!(!changed("observedGeneration", json!(2)));
    assert!(!changed("collisionCount", json!(9)));
}

#[test]
fn replaced_pods_are_subtracted_from_current_replicas() {
    let mut status = computed(&stateful_set(2, json!({})), &["0ro", "1ro"]);
    subtract_deleted(&mut status, 1);
    assert_eq!(status.current_replicas, Some(1));
    subtract_deleted(&mut status, 1);
    assert_eq!(status.current_replicas, None);
}
