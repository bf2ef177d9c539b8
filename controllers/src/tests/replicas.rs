//! The ReplicaSet and ReplicationController controllers with an API server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use serde_json::{Value, json};
use windlass_api_server::faults::FaultAction;
use windlass_client::{Fence, FenceState};

use super::world::{World, path, pod_path, uid};
use crate::ControllerOptions;

const POST_POD: &str = "POST /api/v1/namespaces/shop/pods";

fn web() -> String {
    path("apis/apps/v1", "replicasets", "web")
}

fn replica_set(replicas: u32) -> Value {
    let template = json!({
        "metadata": { "labels": { "app": "web", "tier": "front" }, "annotations": { "note": "kept" } },
        "spec": { "containers": [{ "name": "main", "image": "web:1" }] },
    });
    let selector = json!({ "matchLabels": { "app": "web" } });
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "spec": { "replicas": replicas, "selector": selector, "template": template },
    })
}

/// Returns an orphan that the ReplicaSet selects.
fn orphan() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "web:1" }] }, "status": { "phase": "Running" },
    })
}

/// Returns a ReplicaSet with a finalizer, which is terminating when it is deleted.
fn held(replicas: u32) -> Value {
    let mut held = replica_set(replicas);
    held["metadata"] = json!({ "finalizers": ["windlass.test/hold"] });
    held
}

/// Returns a world with a running controller and a ReplicaSet with all its pods.
async fn settled(replicas: u32) -> World {
    let world = started(|world| drop(world.api.upsert(&web(), replica_set(replicas)))).await;
    world.pass(1).await;
    world.requests();
    world.events();
    world
}

/// Returns a world with a running controller and the objects of `prepare`.
async fn started(prepare: impl FnOnce(&World)) -> World {
    let mut world = World::new();
    prepare(&world);
    world.start("replicaset-controller", &ControllerOptions::default()).await;
    world
}

fn count(requests: &[String], prefix: &str) -> usize {
    requests.iter().filter(|request| request.starts_with(prefix)).count()
}

impl World {
    fn scale(&self, replicas: u32) {
        self.api.upsert(&web(), json!({ "spec": { "replicas": replicas } }));
    }

    fn replica_set(&self) -> Value {
        self.api.object(&web()).expect("the ReplicaSet")
    }

    fn status(&self) -> Value {
        self.replica_set()["status"].clone()
    }

    /// Returns a number of the status; zero if it is missing.
    fn counted(&self, field: &str) -> u64 {
        self.status()[field].as_u64().unwrap_or_default()
    }
}

#[tokio::test(start_paused = true)]
async fn missing_pods_are_created_from_the_template_and_counted() {
    let world = started(|world| drop(world.api.upsert(&web(), replica_set(3)))).await;
    world.pass(1).await;
    let pods = world.pods();
    assert_eq!(pods.len(), 3);
    let owner = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid(&world.replica_set()),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    for pod in &pods {
        assert_eq!(pod["metadata"]["generateName"], "web-");
        assert_eq!(pod["metadata"]["labels"], json!({ "app": "web", "tier": "front" }));
        assert_eq!(pod["metadata"]["annotations"], json!({ "note": "kept" }));
        assert_eq!(pod["metadata"]["ownerReferences"], owner);
        assert_eq!(pod["spec"]["containers"][0]["image"], "web:1");
    }
    let mut events = world.events();
    events.sort();
    let created =
        world.pod_names().into_iter().map(|name| ("SuccessfulCreate".into(), format!("Created pod: {name}")));
    assert_eq!(events, created.collect::<Vec<_>>());
    assert_eq!(
        world.status(),
        json!({
            "replicas": 3, "fullyLabeledReplicas": 3, "terminatingReplicas": 0, "observedGeneration": 1,
        })
    );
}

// parity: create-or-update
#[tokio::test(start_paused = true)]
async fn settled_replica_set_causes_no_request() {
    let world = settled(3).await;
    world.pass(3600).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn cache_that_lags_never_makes_a_pod_too_many() {
    let world = started(|world| {
        world.api.upsert(&web(), replica_set(5));
        world.lag();
    })
    .await;
    world.pass(60).await;
    assert_eq!(count(&world.requests(), POST_POD), 5);
    world.scale(2);
    world.pass(60).await;
    assert_eq!(count(&world.requests(), "DELETE "), 3);
    assert_eq!((world.pods().len(), world.status()["replicas"].clone()), (2, json!(2)));
    let skips = world.metrics.reconcile("replicaset-controller").stale_skips.get();
    assert!(skips > 0, "the cache was outdated");
}

#[tokio::test(start_paused = true)]
async fn more_than_a_burst_is_created_in_several_syncs() {
    let world = started(|world| drop(world.api.upsert(&web(), replica_set(600)))).await;
    world.pass(5).await;
    assert_eq!(count(&world.requests(), POST_POD), 600);
    assert_eq!(world.status()["replicas"], 600);
}

#[tokio::test(start_paused = true)]
async fn adoption_reads_the_owner_once() {
    let world = started(|world| {
        world.api.upsert(&web(), replica_set(2));
        world.api.upsert(&pod_path("one"), orphan());
        world.api.upsert(&pod_path("two"), orphan());
    })
    .await;
    world.pass(1).await;
    let requests = world.requests();
    assert_eq!(requests[0], format!("GET {}", web()));
    assert_eq!(count(&requests, "GET "), 1);
    assert_eq!(count(&requests, "PATCH /api/v1/namespaces/shop/pods/"), 2);
    assert_eq!(count(&requests, POST_POD), 0);
    assert!(
        world
            .pods()
            .iter()
            .all(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == uid(&world.replica_set()))
    );
    assert_eq!((world.counted("replicas"), world.counted("fullyLabeledReplicas")), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn owner_terminating_on_server_adopts_and_creates_nothing() {
    let world = started(|world| drop(world.api.upsert(&web(), held(0)))).await;
    world.pass(1).await;
    world.requests();
    world.hide("replicasets");
    world.api.delete(&web());
    world.api.upsert(&pod_path("one"), orphan());
    world.pass(1).await;
    let requests = world.requests();
    assert!(count(&requests, "GET ") > 1, "the controller retries: {requests:?}");
    assert_eq!(count(&requests, "PATCH ") + count(&requests, "POST ") + count(&requests, "PUT "), 0);
}

#[tokio::test(start_paused = true)]
async fn terminating_owner_changes_no_pod_and_updates_status() {
    let world = started(|world| {
        world.api.upsert(&web(), held(2));
        world.api.delete(&web());
        world.api.upsert(&pod_path("one"), orphan());
    })
    .await;
    world.pass(1).await;
    assert_eq!(world.requests(), [format!("PUT {}/status", web())]);
    assert_eq!(world.status()["observedGeneration"], world.replica_set()["metadata"]["generation"]);
}

#[tokio::test(start_paused = true)]
async fn unselected_pod_is_released_and_replaced() {
    let world = settled(2).await;
    let name = world.pod_names()[0].clone();
    world.api.upsert(&pod_path(&name), json!({ "metadata": { "labels": { "app": "debug" } } }));
    world.pass(1).await;
    let released = world.api.object(&pod_path(&name)).expect("the pod is left alone");
    assert_eq!(released["metadata"].get("ownerReferences"), None);
    assert_eq!(count(&world.requests(), POST_POD), 1);
    assert_eq!((world.pods().len(), world.status()["replicas"].clone()), (3, json!(2)));
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_owners_are_not_counted_or_changed() {
    let world = started(|world| {
        let mut taken = orphan();
        taken["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": "x", "controller": true }]);
        world.api.upsert(&pod_path("taken"), taken);
        world.api.upsert(&web(), replica_set(2));
    })
    .await;
    world.pass(1).await;
    let requests = world.requests();
    assert_eq!((count(&requests, POST_POD), count(&requests, "PATCH ")), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn pods_of_another_namespace_are_not_replicas() {
    let world = started(|world| {
        let owner = world.api.upsert(&web(), replica_set(2));
        let mut foreign = orphan();
        foreign["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid(&owner), "controller": true,
        }]);
        world.api.upsert("/api/v1/namespaces/other", json!({}));
        for number in 0..3 {
            world.api.upsert(&format!("/api/v1/namespaces/other/pods/foreign-{number}"), foreign.clone());
        }
    })
    .await;
    world.pass(1).await;
    let requests = world.requests();
    assert_eq!(
        (count(&requests, POST_POD), count(&requests, "DELETE "), count(&requests, "PATCH ")),
        (2, 0, 0)
    );
    assert_eq!(world.status()["replicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn quota_failure_is_reported_until_it_is_resolved() {
    let quota =
        "pods \"new\" is forbidden: exceeded quota: quota, requested: pods=1, used: pods=1, limited: pods=1";
    let world = started(|world| {
        world.refuse(POST_POD, usize::MAX, FaultAction::QuotaExceeded);
        world.api.upsert(&web(), replica_set(10));
    })
    .await;
    world.pass(1).await;
    let (attempts, events) = (count(&world.requests(), POST_POD), world.events());
    assert!((2..12).contains(&attempts), "backoff, and one pod per attempt: {attempts}");
    let expected = ("FailedCreate".to_owned(), format!("Error creating: {quota}"));
    assert_eq!(events, vec![expected; attempts]);
    let condition = world.status()["conditions"][0].clone();
    assert_eq!((&condition["type"], &condition["status"]), (&json!("ReplicaFailure"), &json!("True")));
    assert_eq!((&condition["reason"], &condition["message"]), (&json!("FailedCreate"), &json!(quota)));
    world.relent();
    world.pass(600).await;
    assert_eq!(world.pods().len(), 10);
    assert_eq!(world.status().get("conditions"), None);
}

/// Fence of a process that no longer leads.
#[derive(Debug)]
struct Closed;

impl Fence for Closed {
    fn state(&self) -> FenceState {
        FenceState::Closed
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn unsent_request_records_no_event() {
    let mut world = World::new();
    world.fence = Arc::new(Closed);
    world.api.upsert(&web(), replica_set(10));
    world.start("replicaset-controller", &ControllerOptions::default()).await;
    world.pass(60).await;
    assert_eq!(world.events(), [], "the owner is not the cause");
    assert!(world.requests().iter().all(|request| request.starts_with("GET")), "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_gets_one_request_and_no_event() {
    let world = started(|world| {
        world.refuse(POST_POD, usize::MAX, FaultAction::NamespaceTerminating);
        world.api.upsert(&web(), replica_set(10));
    })
    .await;
    world.pass(200).await;
    assert_eq!(count(&world.requests(), POST_POD), 1);
    assert_eq!(world.events(), []);
    assert_eq!(world.status().get("conditions"), None);
}

#[tokio::test(start_paused = true)]
async fn template_without_labels_is_reported_without_requests() {
    let world = started(|world| {
        world.api.upsert(&web(), replica_set(1));
        world.api.overwrite_unchecked(&web(), |set| set["spec"]["template"]["metadata"] = json!({}));
    })
    .await;
    world.pass(1).await;
    assert_eq!(count(&world.requests(), POST_POD), 0);
    assert_eq!(world.events(), []);
    assert_eq!(world.status()["conditions"][0]["message"], "unable to create pods, no labels");
}

#[tokio::test(start_paused = true)]
async fn scale_down_deletes_least_useful_pods_and_counts_them() {
    let world = settled(3).await;
    let names = world.pod_names();
    world.run_pod(&names[0], true);
    world.run_pod(&names[1], false);
    world.run_pod(&names[2], true);
    world.pass(1).await;
    world.requests();
    world.scale(2);
    world.pass(1).await;
    let deleted = format!("DELETE {}", pod_path(&names[1]));
    assert_eq!(count(&world.requests(), &deleted), 1);
    assert_eq!(world.events(), [("SuccessfulDelete".to_owned(), format!("Deleted pod: {}", names[1]))]);
    assert_eq!((world.counted("replicas"), world.counted("terminatingReplicas")), (2, 1));

    world.api.remove(&pod_path(&names[1]));
    world.pass(1).await;
    assert_eq!(world.status()["terminatingReplicas"], 0);
    assert_eq!((count(&world.requests(), POST_POD), world.pods().len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn disabled_terminating_replicas_are_removed_from_status() {
    let mut world = World::new();
    let mut reported = replica_set(0);
    reported["status"] = json!({ "replicas": 0, "terminatingReplicas": 2, "observedGeneration": 1 });
    world.api.upsert(&web(), reported);
    let options = ControllerOptions { terminating_replicas: false, ..ControllerOptions::default() };
    world.start("replicaset-controller", &options).await;
    world.pass(1).await;
    assert_eq!(world.requests(), [format!("PUT {}/status", web())]);
    assert_eq!(world.status().get("terminatingReplicas"), None);
}

#[tokio::test(start_paused = true)]
async fn deletion_costs_choose_victims_only_if_enabled() {
    let spared = async |pod_deletion_cost: bool| {
        let mut world = World::new();
        world.api.upsert(&web(), replica_set(1));
        let mut pods = ["a", "b"].map(|name| world.api.upsert(&pod_path(name), orphan()));
        pods.sort_by(|one, other| uid(one).cmp(uid(other)));
        let names = pods.map(|pod| pod["metadata"]["name"].as_str().expect("a name").to_owned());
        for (name, cost) in names.iter().zip(["100", "10"]) {
            let annotations = json!({ "controller.kubernetes.io/pod-deletion-cost": cost });
            world.api.upsert(&pod_path(name), json!({ "metadata": { "annotations": annotations } }));
        }
        let options = ControllerOptions { pod_deletion_cost, ..ControllerOptions::default() };
        world.start("replicaset-controller", &options).await;
        world.pass(1).await;
        (world.pod_names(), names)
    };
    let (left, [dear, _]) = spared(true).await;
    assert_eq!(left, [dear]);
    let (left, [_, last]) = spared(false).await;
    assert_eq!(left, [last], "the UID decides");
}

#[tokio::test(start_paused = true)]
async fn terminating_pod_is_replaced_immediately() {
    let world = settled(1).await;
    let name = world.pod_names()[0].clone();
    world.run_pod(&name, true);
    world.api.delete(&pod_path(&name));
    world.pass(1).await;
    assert_eq!(count(&world.requests(), POST_POD), 1);
    world.api.remove(&pod_path(&name));
    world.pass(1).await;
    assert_eq!((count(&world.requests(), POST_POD), world.pods().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn failed_pod_is_replaced_and_not_deleted() {
    let world = settled(1).await;
    let name = world.pod_names()[0].clone();
    world.api.upsert(&pod_path(&name), json!({ "status": { "phase": "Failed" } }));
    world.pass(1).await;
    let requests = world.requests();
    assert_eq!((count(&requests, POST_POD), count(&requests, "DELETE ")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn failed_deletions_are_reported_and_retried() {
    let world = settled(1).await;
    let name = world.pod_names()[0].clone();
    world.refuse("DELETE ", 1, FaultAction::Forbidden);
    world.scale(0);
    world.pass(1).await;
    let reasons: Vec<_> =
        world.events().into_iter().map(|(reason, note)| format!("{reason}: {note}")).collect();
    let expected = format!("FailedDelete: Error deleting: pods \"{name}\" is forbidden: denied by a webhook");
    assert_eq!(reasons[0], expected);
    assert!(reasons[1].starts_with("SuccessfulDelete: "), "{reasons:?}");
    assert_eq!(world.pods().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn recreated_pod_with_same_name_counts_as_deleted() {
    let world = settled(1).await;
    let name = world.pod_names()[0].clone();
    world.hide("pods");
    world.api.remove(&pod_path(&name));
    world.api.upsert(&pod_path(&name), orphan());
    world.scale(0);
    world.pass(1).await;
    assert!(count(&world.requests(), "DELETE ") > 0);
    assert!(world.api.object(&pod_path(&name)).is_some(), "the namesake is left alone");
    assert_eq!((world.events(), world.status().get("conditions").cloned()), (vec![], None));
}

#[tokio::test(start_paused = true)]
async fn other_delete_conflicts_are_failures() {
    let world = settled(1).await;
    world.refuse("DELETE ", 1, FaultAction::Conflict);
    world.scale(0);
    world.pass(1).await;
    let (reason, note) = world.events().remove(0);
    assert!(reason == "FailedDelete" && note.contains("the object has been modified"), "{reason}: {note}");
    assert_eq!(world.pods().len(), 0, "the delete was retried");
}

#[tokio::test(start_paused = true)]
async fn pod_becomes_available_without_further_events() {
    let world = started(|world| {
        let mut patient = replica_set(1);
        patient["spec"]["minReadySeconds"] = json!(30);
        world.api.upsert(&web(), patient);
    })
    .await;
    world.pass(1).await;
    world.run_pod(&world.pod_names()[0], true);
    world.pass(29).await;
    assert_eq!((world.counted("readyReplicas"), world.counted("availableReplicas")), (1, 0));
    world.pass(2).await;
    assert_eq!(world.status()["availableReplicas"], 1);
}

#[tokio::test(start_paused = true)]
async fn failed_status_write_is_retried_on_a_fresh_copy() {
    let world = settled(1).await;
    world.refuse(&format!("PUT {}/status", web()), 1, FaultAction::Conflict);
    world.run_pod(&world.pod_names()[0], true);
    world.env.sleep(Duration::from_millis(50)).await;
    let put = format!("PUT {}/status", web());
    assert_eq!(world.requests(), [put.clone(), format!("GET {}", web()), put]);
    assert_eq!(world.status()["readyReplicas"], 1);
}

#[tokio::test(start_paused = true)]
async fn recreated_replica_set_creates_new_pods() {
    let world = settled(2).await;
    world.api.remove(&web());
    world.api.upsert(&web(), replica_set(1));
    world.pass(1).await;
    assert_eq!(count(&world.requests(), POST_POD), 1);
    assert_eq!(world.pods().len(), 3, "the garbage collector deletes the pods of the old owner");
}

#[tokio::test(start_paused = true)]
async fn undecodable_pod_is_not_replaced() {
    let world = settled(2).await;
    let name = world.pod_names()[0].clone();
    world.spoil_pod(&name);
    world.pass(60).await;
    assert_eq!(count(&world.requests(), POST_POD), 0);
}

#[tokio::test(start_paused = true)]
async fn undecodable_pod_is_matched_by_truncated_owner_name() {
    let long = path("apis/apps/v1", "replicasets", &"a".repeat(60));
    let world = started(|world| drop(world.api.upsert(&long, replica_set(1)))).await;
    world.pass(1).await;
    world.requests();
    let name = world.pod_names()[0].clone();
    world.spoil_pod(&name);
    world.pass(60).await;
    assert_eq!((name.len(), count(&world.requests(), POST_POD)), (63, 0));
}

#[tokio::test(start_paused = true)]
async fn deleted_undecodable_pod_is_replaced() {
    let world = settled(2).await;
    let name = world.pod_names()[0].clone();
    world.spoil_pod(&name);
    world.pass(60).await;
    world.api.remove(&pod_path(&name));
    world.pass(31).await;
    assert_eq!(count(&world.requests(), POST_POD), 1);
}

#[tokio::test(start_paused = true)]
async fn undecodable_pod_of_another_owner_blocks_no_sync() {
    let world = settled(2).await;
    let mut foreign = orphan();
    foreign["metadata"] = json!({});
    world.api.upsert(&pod_path("web-front-x7k2p"), foreign);
    world.spoil_pod("web-front-x7k2p");
    world.pass(1).await;
    world.scale(3);
    world.pass(1).await;
    assert_eq!(count(&world.requests(), POST_POD), 1);
}

#[tokio::test(start_paused = true)]
async fn invalid_selector_sends_no_request() {
    let world = started(|world| {
        world.api.upsert(&web(), replica_set(1));
        let near = json!({ "matchExpressions": [{ "key": "app", "operator": "Near" }] });
        world.api.overwrite_unchecked(&web(), |set| set["spec"]["selector"] = near);
    })
    .await;
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn pods_on_nodes_crowded_by_the_rollout_go_first() {
    let mut world = World::new();
    let rollout = json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true }]);
    let labels = json!({ "app": "web" });
    let pod = |node: &str, owner: Option<&str>| {
        let mut pod = orphan();
        pod["metadata"]["labels"] = if owner.is_some() { labels.clone() } else { json!({ "app": "old" }) };
        pod["spec"]["nodeName"] = json!(node);
        pod
    };
    let mut new = replica_set(2);
    new["metadata"] = json!({ "ownerReferences": rollout });
    let mut old = replica_set(1);
    old["metadata"] = json!({ "ownerReferences": rollout });
    old["spec"]["selector"]["matchLabels"] = json!({ "app": "old" });
    old["spec"]["template"]["metadata"]["labels"] = json!({ "app": "old" });
    world.api.upsert(&web(), new);
    world.api.upsert(&path("apis/apps/v1", "replicasets", "web-old"), old);
    world.api.upsert(&pod_path("alone"), pod("quiet", Some("web")));
    world.api.upsert(&pod_path("crowded"), pod("busy", Some("web")));
    world.api.upsert(&pod_path("older"), pod("busy", None));
    world.start("replicaset-controller", &ControllerOptions::default()).await;
    world.pass(1).await;
    world.scale(1);
    world.pass(1).await;
    let leaving = |pod: &&Value| !pod["metadata"]["deletionTimestamp"].is_null();
    let leaving: Vec<Value> =
        world.pods().iter().filter(leaving).map(|pod| pod["metadata"]["name"].clone()).collect();
    assert_eq!(leaving, ["crowded"]);
}

#[tokio::test(start_paused = true)]
async fn replication_controller_omits_terminating_replicas() {
    let mut world = World::new();
    let counter = path("api/v1", "replicationcontrollers", "web");
    let mut controller = replica_set(2);
    (controller["apiVersion"], controller["kind"]) = (json!("v1"), json!("ReplicationController"));
    controller["spec"]["selector"] = json!({ "app": "web" });
    world.api.upsert(&counter, controller);
    world.start("replicationcontroller-controller", &ControllerOptions::default()).await;
    world.pass(1).await;
    let pods = world.pods();
    assert_eq!(pods.len(), 2);
    let owner = &pods[0]["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["apiVersion"], &owner["kind"]), (&json!("v1"), &json!("ReplicationController")));
    let stored = world.api.object(&counter).expect("the controller");
    assert_eq!(
        (&stored["status"]["replicas"], stored["status"].get("terminatingReplicas")),
        (&json!(2), None)
    );

    world.requests();
    world.api.upsert(&counter, json!({ "spec": { "replicas": 0 } }));
    world.pass(1).await;
    assert_eq!(count(&world.requests(), "DELETE "), 2);
    assert_eq!(world.pods().len(), 0);
}
