//! Failed pods and failed requests.

use serde_json::json;
use windlass_api_server::faults::FaultAction;

use super::super::world::{World, pod_path};
use super::{
    NAME, POST_POD, POST_REVISION, PUT_STATUS, agent, daemon_set, name, revision_path, rolling, settled,
    started,
};
use crate::ControllerOptions;

/// Makes each new pod fail, for this number of seconds. Returns the number of failed pods that were deleted.
async fn fail_all(world: &World, seconds: usize) -> usize {
    world.events();
    for _ in 0..seconds * 4 {
        for pod in world.pods() {
            if super::is_being_deleted(&pod) {
                world.api.remove(&pod_path(name(&pod)));
            } else {
                world.api.upsert(&pod_path(name(&pod)), json!({ "status": { "phase": "Failed" } }));
            }
        }
        world.env.sleep(std::time::Duration::from_millis(250)).await;
    }
    world.events().iter().filter(|(reason, _)| reason == "FailedDaemonPod").count()
}

#[tokio::test(start_paused = true)]
async fn failed_pod_is_replaced_with_growing_delays() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    let pod = world.pod_names()[0].clone();
    let first_minute = fail_all(&world, 60).await;
    assert!((4..=7).contains(&first_minute), "{first_minute} deletions in the first minute");
    let second = fail_all(&world, 60).await;
    assert!(second <= 2, "{second} deletions in the second minute");
    assert!(!world.pod_names().contains(&pod));
    world.operate(1).await;
}

#[tokio::test(start_paused = true)]
async fn failed_pod_causes_one_event_and_one_deletion() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    let pod = world.pod_names()[0].clone();
    world.api.upsert(&pod_path(&pod), json!({ "status": { "phase": "Failed" } }));
    world.operate(3).await;
    let note = format!("Found failed daemon pod shop/{pod} on node one, will try to kill it");
    let events = world.events();
    assert_eq!(events.iter().filter(|event| **event == ("FailedDaemonPod".into(), note.clone())).count(), 1);
    assert!(events.contains(&("SuccessfulDelete".into(), format!("Deleted pod: {pod}"))));
    assert_eq!(world.numbers(), [1, 1, 0, 1, 1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn failed_create_is_retried_and_the_status_is_written() {
    let mut world = World::new();
    ["one", "two", "three"].iter().for_each(|node| world.add_node(node, json!({})));
    world.api.upsert(&agent(), daemon_set(rolling(1, 0)));
    world.refuse(POST_POD, usize::MAX, FaultAction::QuotaExceeded);
    world.start(NAME, &ControllerOptions::default()).await;
    world.pass(1).await;
    assert_eq!(world.requests()[..3], [POST_REVISION, POST_POD, PUT_STATUS], "slow start");
    assert_eq!(world.numbers(), [3, 0, 0, 0, 0, 0, 3]);
    let events = world.events();
    let (reason, note) = events.first().expect("an event");
    assert_eq!(reason, "FailedCreate");
    assert!(note.starts_with("Error creating: "), "{note}");
    world.pass(5).await;
    world.relent();
    world.operate(60).await;
    assert_eq!(world.numbers(), [3, 3, 0, 3, 3, 3, 0]);
}

#[tokio::test(start_paused = true)]
async fn failed_delete_is_retried() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.refuse("DELETE /api/v1/namespaces/shop/pods", 2, FaultAction::Forbidden);
    world.taint("one", "NoExecute");
    world.operate(5).await;
    assert_eq!(world.placed().len(), 1);
    let events = world.events();
    assert_eq!(events.iter().filter(|(reason, _)| reason == "FailedDelete").count(), 2, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_status_is_written_again_on_a_fresh_copy() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    world.refuse(PUT_STATUS, 1, FaultAction::InternalError);
    world.add_node("two", json!({}));
    world.pass(2).await;
    let requests = world.requests();
    let get = format!("GET {}", agent());
    assert_eq!(requests[..4], [POST_POD, PUT_STATUS, get.as_str(), PUT_STATUS], "{requests:?}");
    world.operate(3).await;
    assert_eq!(world.numbers(), [2, 2, 0, 2, 2, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn status_write_is_repeated_once_per_sync() {
    let get = format!("GET {}", agent());
    let (get, put) = (get.as_str(), PUT_STATUS);
    // Failing writes and reads, the requests, and the number of retried syncs.
    let cases: [((u32, u32), &[&str], u64); 4] = [
        ((0, 0), &[put], 0),
        ((1, 0), &[put, get, put], 0),
        ((2, 0), &[put, get, put, put], 1),
        ((1, 1), &[put, get, put], 1),
    ];
    for (failing, expected, retried) in cases {
        let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
        let before = world.retries();
        let (read, mut writes, mut reads) = (get.to_owned(), failing.0, failing.1);
        world.api.inject_fault(move |call| {
            let (left, action) = match call.line() {
                line if line == PUT_STATUS => (&mut writes, FaultAction::Forbidden),
                line if line == read => (&mut reads, FaultAction::InternalError),
                _ => return None,
            };
            let is_refused = *left > 0;
            *left = left.saturating_sub(1);
            is_refused.then_some(action)
        });
        let pod = world.pod_names()[0].clone();
        world.api.upsert(&pod_path(&pod), json!({ "status": { "conditions": [] } }));
        world.pass(2).await;
        assert_eq!(world.requests(), expected, "{failing:?}");
        assert_eq!(world.retries() - before, retried, "{failing:?}");
        assert_eq!(world.numbers(), [1, 1, 0, 0, 1, 0, 1], "{failing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_create_of_a_revision_is_retried_before_pods() {
    let mut world = World::new();
    world.add_node("one", json!({}));
    world.api.upsert(&agent(), daemon_set(rolling(1, 0)));
    world.refuse(POST_REVISION, 3, FaultAction::InternalError);
    world.start(NAME, &ControllerOptions::default()).await;
    world.pass(5).await;
    let requests = world.requests();
    assert_eq!(requests[..5], [POST_REVISION, POST_REVISION, POST_REVISION, POST_REVISION, POST_POD]);
    world.operate(3).await;
    assert_eq!(world.numbers(), [1, 1, 0, 1, 1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_receives_one_create() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    world.terminate_namespace().await;
    let pod = world.pod_names()[0].clone();
    world.api.remove(&pod_path(&pod));
    world.operate(200).await;
    let creates = world.requests().into_iter().filter(|request| request == POST_POD);
    assert_eq!(creates.count(), 1);
    assert!(!world.events().iter().any(|(reason, _)| reason == "FailedCreate"));
}

#[tokio::test(start_paused = true)]
async fn pod_missing_from_the_cache_is_not_created_twice() {
    let world = started(&["one", "two"], daemon_set(rolling(1, 0))).await;
    world.lag();
    world.pass(1).await;
    world.add_node("three", json!({}));
    world.operate(30).await;
    assert_eq!(world.pods().len(), 3);
    let creates = world.requests().into_iter().filter(|request| request == POST_POD);
    assert_eq!(creates.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn undecodable_pod_pauses_creates_and_deletes() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    let pod = world.pod_names()[0].clone();
    world.spoil_pod(&pod);
    world.pass(2).await;
    world.add_node("two", json!({}));
    world.set_agent_image("agent:2");
    world.pass(60).await;
    assert_eq!(world.pods().len(), 1);
    world.api.remove(&pod_path(&pod));
    world.operate(40).await;
    assert_eq!(world.numbers(), [2, 2, 0, 2, 2, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn undecodable_revision_pauses_its_daemon_set() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    let revision = name(&world.revisions()[0]).to_owned();
    world.api.overwrite_unchecked(&revision_path(&revision), |it| it["revision"] = json!("no number"));
    world.pass(2).await;
    world.set_agent_image("agent:2");
    world.pass(5).await;
    assert_eq!(world.requests(), [""; 0]);
    world.api.remove(&revision_path(&revision));
    world.operate(60).await;
    assert_eq!(world.images(), [(1, "agent:2".into())]);
}
