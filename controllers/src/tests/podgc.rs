//! The pod garbage collector with an API server.

use http::Method;
use serde_json::{Value, json};
use windlass_api_server::faults::FaultAction;
use windlass_object::Verb;

use super::world::{World, pod_path};
use crate::ControllerOptions;

const NAME: &str = "pod-garbage-collector-controller";

fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

fn node(ready: &str, taints: &Value) -> Value {
    let conditions = json!([{ "type": "Ready", "status": ready }]);
    json!({ "spec": { "taints": taints }, "status": { "conditions": conditions } })
}

fn pod(node: Option<&str>, phase: &str) -> Value {
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    json!({
        "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "web:1" }] },
        "status": { "phase": phase, "conditions": [ready] },
    })
}

fn marks(name: &str) -> String {
    format!("PATCH {}/status", pod_path(name))
}

fn deletes(name: &str) -> String {
    format!("DELETE {}", pod_path(name))
}

fn reads(name: &str) -> String {
    format!("GET {}", node_path(name))
}

async fn started(options: &ControllerOptions, prepare: impl FnOnce(&World)) -> World {
    let mut world = World::new();
    prepare(&world);
    world.start(NAME, options).await;
    world
}

impl World {
    /// Deletes a pod as a user does, with a grace period.
    fn begin_deletion(&self, name: &str) {
        let options = json!({ "gracePeriodSeconds": 300 });
        let (code, answer) = self.api.request(&Method::DELETE, &pod_path(name), Some(&options));
        assert_eq!(code, 200, "{answer}");
    }

    fn deletions(&self, reason: &str) -> (bool, bool) {
        let exported = self.metrics.encode();
        let has = |name: &str| {
            exported.contains(&format!(
                "pod_gc_collector_{name}_total{{namespace=\"shop\",reason=\"{reason}\"}} 1"
            ))
        };
        (has("force_delete_pods"), has("force_delete_pod_errors"))
    }
}

/// Upstream's integration test `TestPodGcOrphanedPodsWithFinalizer`.
#[tokio::test(start_paused = true)]
async fn orphaned_pod_is_marked_before_its_deletion() {
    for (phase, expected, marked) in
        [("Pending", "Failed", true), ("Succeeded", "Succeeded", false), ("Failed", "Failed", false)]
    {
        let world = started(&ControllerOptions::default(), |world| {
            world.api.upsert(&node_path("worker"), node("True", &json!([])));
            let mut orphan = pod(Some("worker"), phase);
            orphan["metadata"] = json!({ "finalizers": ["example.com/kept"] });
            world.api.upsert(&pod_path("orphan"), orphan);
        })
        .await;
        world.pass(60).await;
        assert_eq!(world.requests(), Vec::<String>::new());
        world.api.remove(&node_path("worker"));
        world.pass(39).await;
        assert_eq!(world.requests(), Vec::<String>::new(), "the node is in quarantine");
        world.pass(22).await;
        let expected_requests: Vec<String> = match marked {
            true => vec![reads("worker"), marks("orphan"), deletes("orphan")],
            false => vec![reads("worker"), deletes("orphan")],
        };
        assert_eq!(world.requests(), expected_requests, "{phase}");
        let orphan = world.api.object(&pod_path("orphan")).expect("a finalizer keeps the pod");
        assert!(orphan["metadata"]["deletionTimestamp"].is_string());
        assert_eq!(orphan["status"]["phase"], expected);
        let conditions = orphan["status"]["conditions"].as_array().expect("conditions");
        let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget");
        assert_eq!(target.is_some(), marked, "{phase}");
        if let Some(target) = target {
            assert_eq!(target["reason"], "DeletionByPodGC");
            assert_eq!(target["message"], "PodGC: node no longer exists");
            assert_eq!(target["status"], "True");
            assert!(target["lastTransitionTime"].is_string());
        }
        assert!(conditions.iter().any(|condition| condition["type"] == "Ready"), "other conditions are kept");
        assert_eq!(world.deletions("orphaned"), (true, false));
    }
}

#[tokio::test(start_paused = true)]
async fn pod_stays_if_the_server_has_its_node() {
    let world = started(&ControllerOptions::default(), |world| {
        world.api.upsert(&node_path("old"), node("True", &json!([])));
    })
    .await;
    world.hide("nodes");
    world.api.upsert(&node_path("worker"), node("True", &json!([])));
    world.api.upsert(&pod_path("web"), pod(Some("worker"), "Running"));
    world.pass(70).await;
    assert_eq!(world.requests(), [reads("worker")]);
    assert_eq!(world.pod_names(), ["web"]);
}

#[tokio::test(start_paused = true)]
async fn pod_stays_if_its_node_cannot_be_read() {
    let world = started(&ControllerOptions::default(), |world| {
        world.api.upsert(&pod_path("web"), pod(Some("worker"), "Running"));
    })
    .await;
    world.refuse(&reads("worker"), 1, FaultAction::InternalError);
    world.pass(50).await;
    assert_eq!(world.requests(), [reads("worker")]);
    // The node is quarantined again.
    world.pass(35).await;
    assert_eq!(world.requests(), [reads("worker"), marks("web"), deletes("web")]);
    assert_eq!(world.pod_names(), Vec::<String>::new());
}

/// Upstream's integration test `TestTerminatingOnOutOfServiceNode`.
#[tokio::test(start_paused = true)]
async fn terminating_pod_of_node_out_of_service_is_deleted() {
    let world = started(&ControllerOptions::default(), |world| {
        world.api.upsert(&node_path("worker"), node("False", &json!([])));
        world.api.upsert(&pod_path("leaving"), pod(Some("worker"), "Running"));
        world.api.upsert(&pod_path("staying"), pod(Some("worker"), "Running"));
    })
    .await;
    world.begin_deletion("leaving");
    world.pass(60).await;
    assert_eq!(world.requests().iter().filter(|line| !line.starts_with("DELETE")).count(), 0);
    let taint = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
    world.api.upsert(&node_path("worker"), node("False", &taint));
    world.pass(21).await;
    assert_eq!(world.requests(), [marks("leaving"), deletes("leaving")]);
    assert_eq!(world.pod_names(), ["staying"]);
    assert_eq!(world.deletions("out-of-service"), (true, false));
}

#[tokio::test(start_paused = true)]
async fn terminating_pod_without_node_is_deleted() {
    let world = started(&ControllerOptions::default(), |world| {
        let mut leaving = pod(None, "Pending");
        leaving["metadata"] = json!({ "finalizers": ["example.com/kept"] });
        world.api.upsert(&pod_path("leaving"), leaving);
        world.api.upsert(&pod_path("waiting"), pod(None, "Pending"));
    })
    .await;
    world.begin_deletion("leaving");
    world.requests();
    world.pass(21).await;
    assert_eq!(world.requests(), [marks("leaving"), deletes("leaving")]);
    assert_eq!(world.deletions("unscheduled"), (true, false));
    assert_eq!(world.pod_names(), ["leaving", "waiting"]);
}

#[tokio::test(start_paused = true)]
async fn terminated_pods_beyond_threshold_are_deleted() {
    let options = |threshold| ControllerOptions {
        terminated_pod_gc_threshold: threshold,
        ..ControllerOptions::default()
    };
    for (threshold, kept) in
        [(1, vec!["c", "d"]), (0, vec!["a", "b", "c", "d"]), (-1, vec!["a", "b", "c", "d"])]
    {
        let world = started(&options(threshold), |world| {
            world.api.upsert(&node_path("worker"), node("True", &json!([])));
            for (name, phase) in [("a", "Failed"), ("b", "Succeeded"), ("c", "Failed"), ("d", "Running")] {
                world.api.upsert(&pod_path(name), pod(Some("worker"), phase));
            }
        })
        .await;
        world.pass(1).await;
        assert_eq!(world.pod_names(), kept, "{threshold}");
        assert!(world.requests().iter().all(|line| line.starts_with("DELETE ")));
    }
}

#[tokio::test(start_paused = true)]
async fn failed_deletion_is_counted_and_repeated_by_the_next_pass() {
    let world = started(&ControllerOptions::default(), |_| {}).await;
    let mut leaving = pod(None, "Running");
    leaving["metadata"] = json!({ "finalizers": ["example.com/kept"] });
    world.api.upsert(&pod_path("leaving"), leaving);
    world.begin_deletion("leaving");
    world.requests();
    world.refuse(&marks("leaving"), 1, FaultAction::InternalError);
    world.pass(21).await;
    assert_eq!(world.requests(), [marks("leaving")], "an unmarked pod is not deleted");
    assert_eq!(world.deletions("unscheduled"), (true, true));
    world.refuse(&deletes("leaving"), 1, FaultAction::InternalError);
    world.pass(20).await;
    assert_eq!(world.requests(), [marks("leaving"), deletes("leaving")]);
    // The pod is marked by now.
    world.pass(20).await;
    assert_eq!(world.requests(), [deletes("leaving")]);
}

#[tokio::test(start_paused = true)]
async fn later_pod_of_the_same_name_is_not_deleted() {
    let world = started(&ControllerOptions::default(), |world| {
        world.api.upsert(&node_path("worker"), node("True", &json!([])));
        world.api.upsert(&pod_path("web"), pod(Some("gone"), "Running"));
    })
    .await;
    world.pass(30).await;
    world.hide("pods");
    world.api.remove(&pod_path("web"));
    world.api.upsert(&pod_path("web"), pod(Some("worker"), "Running"));
    world.pass(21).await;
    assert_eq!(world.requests().last(), Some(&marks("web")));
    assert_eq!(world.api.object(&pod_path("web")).expect("the pod")["status"]["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn restart_begins_a_new_quarantine() {
    let mut world = started(&ControllerOptions::default(), |world| {
        world.api.upsert(&pod_path("web"), pod(Some("gone"), "Running"));
    })
    .await;
    world.pass(30).await;
    world.restart(NAME, &ControllerOptions::default()).await;
    world.pass(30).await;
    assert_eq!(world.requests(), Vec::<String>::new());
    world.pass(11).await;
    assert_eq!(world.requests(), [reads("gone"), marks("web"), deletes("web")]);
}

/// Otherwise a pass with thousands of pods decides on old states, and delays a shard that moves.
#[tokio::test(start_paused = true)]
async fn long_pass_ends_after_its_period_and_the_next_one_observes_again() {
    let names: Vec<_> = (0..200).map(|number| format!("pod-{number}")).collect();
    let options = ControllerOptions { terminated_pod_gc_threshold: 1, ..ControllerOptions::default() };
    let world = started(&options, |world| {
        for name in &names {
            world.api.upsert(&pod_path(name), pod(None, "Failed"));
        }
        let slow = FaultAction::RequestDelayed { by_ms: 20_000 };
        world.api.inject_fault(move |call| (call.verb == Some(Verb::Delete)).then(|| slow.clone()));
    })
    .await;
    world.pass(21).await;
    let sent = world.requests();
    assert!((10..150).contains(&sent.len()), "{sent:?}");
    let is_left = |name: &&String| !sent.contains(&deletes(name));
    for name in names.iter().filter(is_left) {
        world.api.remove(&pod_path(name));
    }
    world.pass(120).await;
    assert_eq!(world.requests(), Vec::<String>::new());
    assert_eq!(world.pod_names(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn pass_continues_with_orphans_of_the_previous_one() {
    let names: Vec<_> = (0..260).map(|number| format!("pod-{number}")).collect();
    let world = started(&ControllerOptions::default(), |world| {
        for name in &names {
            world.api.upsert(&pod_path(name), pod(Some("gone"), "Failed"));
        }
        let slow = FaultAction::RequestDelayed { by_ms: 2_000 };
        world.api.inject_fault(move |call| (call.verb == Some(Verb::Delete)).then(|| slow.clone()));
    })
    .await;
    world.pass(59).await;
    let left = world.pod_names().len();
    assert!((1..250).contains(&left), "{left}");
    world.pass(19).await;
    assert_eq!(world.pod_names(), Vec::<String>::new());
    let reads = world.requests().iter().filter(|line| **line == reads("gone")).count();
    assert_eq!(reads, 2, "each pass reads the node");
}
