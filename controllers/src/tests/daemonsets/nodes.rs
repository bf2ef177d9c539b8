//! Pods on nodes.

use serde_json::{Value, json};

use super::super::world::{World, pod_path, uid};
use super::{
    HASH, NAME, POST_POD, POST_REVISION, PUT_STATUS, agent, daemon_set, hash, is_being_deleted, name,
    node_path, rolling, settled, started, target, text,
};
use crate::ControllerOptions;

fn nodes(world: &World) -> Vec<String> {
    world.placed().into_iter().map(|(node, _)| node).collect()
}

#[tokio::test(start_paused = true)]
async fn each_node_receives_a_pod_of_the_first_revision() {
    let world = started(&["one", "two", "three"], daemon_set(rolling(1, 0))).await;
    world.pass(2).await;
    let requests = world.requests();
    assert_eq!(requests[..4], [POST_REVISION, POST_POD, POST_POD, POST_POD]);
    assert!(requests[4..].iter().all(|request| request == PUT_STATUS), "{requests:?}");
    assert_eq!(nodes(&world), ["one", "three", "two"]);
    let (set, revisions) = (world.agent(), world.revisions());
    let [revision] = &revisions[..] else { panic!("one revision") };
    assert_eq!(name(revision), format!("agent-{}", hash(revision)));
    assert_eq!(revision["metadata"]["labels"], json!({ "app": "agent", HASH: hash(revision) }));
    assert_eq!(text(revision, "/metadata/annotations/note"), "copied");
    assert_eq!(text(revision, "/metadata/ownerReferences/0/uid"), uid(&set));
    let mut template = set["spec"]["template"].clone();
    template["$patch"] = json!("replace");
    assert_eq!(revision["data"], json!({ "spec": { "template": template } }));
    for pod in world.pods() {
        assert!(text(&pod, "/metadata/generateName").starts_with("agent-"));
        assert_eq!(hash(&pod), hash(revision));
        assert_eq!(text(&pod, "/metadata/ownerReferences/0/uid"), uid(&set));
        let tolerations = pod["spec"]["tolerations"].as_array().expect("tolerations");
        assert!(tolerations.iter().any(|it| it["key"] == "node.kubernetes.io/unschedulable"));
    }
    let events = world.events();
    let created = events
        .iter()
        .filter(|(reason, note)| reason == "SuccessfulCreate" && note.starts_with("Created pod: agent-"));
    assert_eq!(created.count(), 3, "{events:?}");
    world.operate(3).await;
    assert_eq!(world.numbers(), [3, 3, 0, 3, 3, 3, 0]);
    assert_eq!(world.agent()["status"]["observedGeneration"], world.agent()["metadata"]["generation"]);
}

#[tokio::test(start_paused = true)]
async fn settled_daemon_set_causes_no_request() {
    let mut world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.pass(3600).await;
    assert_eq!(world.requests(), [""; 0]);
    world.restart(NAME, &ControllerOptions::default()).await;
    world.pass(3600).await;
    assert_eq!(world.requests(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn new_node_receives_a_pod() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    world.add_node("two", json!({}));
    world.operate(3).await;
    assert_eq!(nodes(&world), ["one", "two"]);
    assert_eq!(world.numbers(), [2, 2, 0, 2, 2, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn label_of_a_node_adds_and_removes_its_pod() {
    let mut set = daemon_set(rolling(1, 0));
    set["spec"]["template"]["spec"]["nodeSelector"] = json!({ "color": "blue" });
    let world = settled(&["one", "two"], set).await;
    assert_eq!(nodes(&world), [""; 0]);
    world.add_node("two", json!({ "color": "blue" }));
    world.operate(3).await;
    assert_eq!(nodes(&world), ["two"]);
    assert_eq!(world.numbers(), [1, 1, 0, 1, 1, 1, 0]);
    world.add_node("two", json!({ "color": "green" }));
    world.operate(3).await;
    assert_eq!(nodes(&world), [""; 0]);
    assert_eq!(world.numbers(), [0; 7]);
}

#[tokio::test(start_paused = true)]
async fn taint_keeps_or_removes_the_pod() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.taint("one", "NoSchedule");
    world.operate(3).await;
    assert_eq!(nodes(&world), ["one", "two"]);
    world.taint("one", "NoExecute");
    world.operate(3).await;
    assert_eq!(nodes(&world), ["two"]);
    assert_eq!(world.numbers(), [1, 1, 0, 1, 1, 1, 0]);
    world.api.upsert(&node_path("one"), json!({ "spec": { "taints": null } }));
    world.operate(3).await;
    assert_eq!(nodes(&world), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn misscheduled_pods_are_counted_until_the_taint_is_removed() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.taint("one", "NoSchedule");
    world.pass(2).await;
    // As upstream, the taint alone causes no sync.
    world.change(json!({ "minReadySeconds": 1 }));
    world.operate(3).await;
    assert_eq!(world.numbers(), [1, 1, 1, 1, 1, 1, 0]);
    world.api.upsert(&node_path("one"), json!({ "spec": { "taints": null } }));
    world.operate(3).await;
    assert_eq!(world.numbers(), [2, 2, 0, 2, 2, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_of_nodes_cause_no_request() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    world.api.upsert(&node_path("one"), json!({ "status": { "conditions": ready } }));
    world.pass(60).await;
    assert_eq!(world.requests(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_node_are_counted_until_they_are_deleted() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.api.remove(&node_path("two"));
    world.pass(60).await;
    assert_eq!(world.requests(), [""; 0], "the garbage collector deletes the pod");
    let pods = world.pods();
    let lost = pods.iter().find(|pod| target(pod) == "two").expect("a pod");
    world.api.remove(&pod_path(name(lost)));
    world.operate(2).await;
    assert_eq!(world.numbers(), [1, 1, 0, 1, 1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn unbound_pod_of_a_deleted_node_is_deleted() {
    let world = started(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.pass(2).await;
    world.api.remove(&node_path("two"));
    // As upstream, the deletion alone causes no sync.
    world.change(json!({ "minReadySeconds": 1 }));
    world.operate(3).await;
    assert_eq!(nodes(&world), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn undecodable_node_keeps_its_unbound_pod() {
    let world = started(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.pass(2).await;
    world.api.overwrite_unchecked(&node_path("two"), |node| node["spec"] = json!("no spec"));
    world.pass(2).await;
    world.change(json!({ "minReadySeconds": 1 }));
    world.pass(5).await;
    assert_eq!(nodes(&world), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn node_that_becomes_decodable_is_counted_again() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    let desired = || world.agent()["status"]["desiredNumberScheduled"].clone();
    world.api.overwrite_unchecked(&node_path("two"), |node| node["spec"] = json!("no spec"));
    world.pass(2).await;
    world.change(json!({ "minReadySeconds": 1 }));
    world.pass(5).await;
    assert_eq!(desired(), 1);
    world.api.overwrite_unchecked(&node_path("two"), |node| node["spec"] = json!({}));
    world.pass(5).await;
    assert_eq!(desired(), 2);
}

#[tokio::test(start_paused = true)]
async fn deleted_daemon_set_causes_no_request() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    world.api.upsert(&agent(), json!({ "metadata": { "finalizers": ["example.com/hold"] } }));
    world.pass(2).await;
    world.api.remove(&agent());
    assert!(is_being_deleted(&world.agent()));
    let pod = world.pod_names()[0].clone();
    world.api.remove(&pod_path(&pod));
    world.add_node("two", json!({}));
    world.pass(60).await;
    assert_eq!(world.requests(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn empty_selector_causes_an_event_and_no_request() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    world.api.overwrite_unchecked(&agent(), |set| set["spec"]["selector"] = json!({}));
    world.add_node("two", json!({}));
    world.pass(5).await;
    assert_eq!(world.requests(), [""; 0]);
    let note = "This daemon set is selecting all pods. A non-empty selector is required.";
    assert!(world.events().contains(&("SelectingAll".into(), note.into())));
}

#[tokio::test(start_paused = true)]
async fn pods_are_adopted_and_released_by_their_labels() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    let pod = world.pod_names()[0].clone();
    let relabel = |app: &str| {
        world.api.upsert(&pod_path(&pod), json!({ "metadata": { "labels": { "app": app } } }));
    };
    let owners =
        || world.api.object(&pod_path(&pod)).expect("the pod")["metadata"]["ownerReferences"].clone();
    relabel("other");
    world.pass(2).await;
    assert_eq!(owners(), Value::Null, "released");
    assert_eq!(world.pods().len(), 2, "the node receives another pod");
    relabel("agent");
    world.pass(2).await;
    assert_eq!(owners()[0]["uid"], uid(&world.agent()), "adopted");
    world.operate(3).await;
    assert_eq!(world.pod_names(), std::slice::from_ref(&pod), "the older pod is kept");
}
