//! Requests that always fail, next to requests that can succeed.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_api_server::faults::FaultAction;

use super::super::world::{World, pod_path};
use super::{
    NAME, POST_POD, POST_REVISION, PUT_STATUS, agent, daemon_set, is_being_deleted, name, node_path, rolling,
    settled, started, target,
};
use crate::ControllerOptions;

/// Returns the name of the pod on a node that is not being deleted.
fn pod_on(world: &World, node: &str) -> String {
    let pods = world.pods();
    let found = pods.iter().find(|pod| target(pod) == node && !is_being_deleted(pod));
    name(found.expect("a pod")).to_owned()
}

fn delete(pod: &str) -> String {
    format!("DELETE {}", pod_path(pod))
}

fn count(requests: &[String], request: &str) -> usize {
    requests.iter().filter(|it| *it == request).count()
}

#[tokio::test(start_paused = true)]
async fn pod_that_cannot_be_deleted_does_not_stop_an_update() {
    let world = settled(&["one", "three", "two"], daemon_set(rolling(1, 0))).await;
    let kept = pod_on(&world, "one");
    world.refuse(&delete(&kept), usize::MAX, FaultAction::Forbidden);
    world.set_agent_image("agent:2");
    world.operate(30).await;
    let image = |node: &str, image: &str| (node.to_owned(), image.to_owned());
    assert_eq!(world.placed(), [image("one", "agent:1"), image("three", "agent:2"), image("two", "agent:2")]);
}

#[tokio::test(start_paused = true)]
async fn failed_sync_keeps_the_delay_of_a_failed_pod() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.refuse(&delete(&pod_on(&world, "two")), usize::MAX, FaultAction::Forbidden);
    world.taint("two", "NoExecute");
    // The backoff of the failed syncs grows beyond a minute.
    world.pass(300).await;
    let fail = |pod: &str| {
        world.api.upsert(&pod_path(pod), json!({ "status": { "phase": "Failed" } }));
    };
    // The server deletes a terminated pod immediately.
    fail(&pod_on(&world, "one"));
    world.env.sleep(Duration::from_millis(200)).await;
    let second = pod_on(&world, "one");
    fail(&second);
    world.env.sleep(Duration::from_millis(100)).await;
    world.requests();
    world.pass(2).await;
    assert_eq!(count(&world.requests(), &delete(&second)), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_sync_keeps_the_check_of_ready_pods() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.refuse(&delete(&pod_on(&world, "two")), usize::MAX, FaultAction::Forbidden);
    world.taint("two", "NoExecute");
    world.pass(340).await;
    let pod = pod_path(&pod_on(&world, "one"));
    for status in ["False", "True"] {
        let since = world.env.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ready = json!([{ "type": "Ready", "status": status, "lastTransitionTime": since }]);
        world.api.upsert(&pod, json!({ "status": { "conditions": ready } }));
        world.pass(1).await;
    }
    // The event of the ready pod has requested no check, because the pod was available immediately.
    world.change(json!({ "minReadySeconds": 20 }));
    world.pass(1).await;
    assert_eq!(world.numbers()[5], 0, "not available yet");
    world.pass(25).await;
    assert_eq!(world.numbers()[5], 1);
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_receives_one_create_when_a_delete_fails() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.terminate_namespace().await;
    world.refuse(&delete(&pod_on(&world, "two")), usize::MAX, FaultAction::Forbidden);
    world.taint("two", "NoExecute");
    world.pass(1).await;
    world.api.remove(&pod_path(&pod_on(&world, "one")));
    world.operate(200).await;
    assert_eq!(count(&world.requests(), POST_POD), 1);
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_receives_no_create_after_a_mixed_batch() {
    let mut world = World::new();
    ["one", "three", "two"].iter().for_each(|node| world.add_node(node, Value::Null));
    world.api.upsert(&agent(), daemon_set(rolling(1, 0)));
    let mut creates = 0;
    world.api.inject_fault(move |call| {
        if call.line() != POST_POD {
            return None;
        }
        creates += 1;
        match creates {
            2 => Some(FaultAction::QuotaExceeded),
            3 => Some(FaultAction::NamespaceTerminating),
            _ => None,
        }
    });
    world.start(NAME, &ControllerOptions::default()).await;
    world.pass(200).await;
    assert_eq!(count(&world.requests(), POST_POD), 3);
}

#[tokio::test(start_paused = true)]
async fn terminating_pod_of_a_deleted_node_is_deleted_once() {
    let world = started(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.pass(2).await;
    let pod = pod_on(&world, "two");
    world.api.upsert(&pod_path(&pod), json!({ "metadata": { "finalizers": ["example.com/hold"] } }));
    world.api.remove(&node_path("two"));
    for seconds in 1..5 {
        world.change(json!({ "minReadySeconds": seconds }));
        world.pass(5).await;
    }
    assert!(is_being_deleted(&world.api.object(&pod_path(&pod)).expect("the pod")));
    assert_eq!(count(&world.requests(), &delete(&pod)), 1);
}

#[tokio::test(start_paused = true)]
async fn update_keeps_the_pod_of_an_undecodable_node() {
    for strategy in [rolling(1, 0), rolling(0, 1)] {
        let world = settled(&["one", "two"], daemon_set(strategy)).await;
        world.api.overwrite_unchecked(&node_path("two"), |node| node["spec"] = json!("no spec"));
        world.pass(2).await;
        world.set_agent_image("agent:2");
        world.operate(20).await;
        let image = |node: &str, image: &str| (node.to_owned(), image.to_owned());
        assert_eq!(world.placed(), [image("one", "agent:2"), image("two", "agent:1")]);
    }
}

#[tokio::test(start_paused = true)]
async fn status_counts_pods_that_the_cache_received_during_the_sync() {
    let mut world = World::new();
    world.add_node("one", Value::Null);
    world.api.upsert(&agent(), daemon_set(rolling(1, 0)));
    // The watch sends the pod before its create returns.
    world.refuse(POST_POD, usize::MAX, FaultAction::ResponseDelayed { by_ms: 2000 });
    world.start(NAME, &ControllerOptions::default()).await;
    world.pass(5).await;
    assert_eq!(world.requests(), [POST_REVISION, POST_POD, PUT_STATUS]);
    assert_eq!(world.numbers(), [1, 1, 0, 0, 1, 0, 1]);
}
