//! Process exits and lost responses during a sync.

use serde_json::json;
use windlass_api_server::faults::FaultAction;

use super::super::world::{World, pod_path};
use super::{
    HASH, NAME, POST_POD, POST_REVISION, PUT_STATUS, agent, daemon_set, hash, is_being_deleted, is_ready,
    name, revision_path, rolling, settled, started, target,
};
use crate::ControllerOptions;

const NODES: [&str; 5] = ["five", "four", "one", "three", "two"];

fn count(requests: &[String], request: &str) -> usize {
    requests.iter().filter(|it| *it == request).count()
}

/// Returns a world in which the first of these requests loses its response.
async fn with_lost_response(request: &str) -> World {
    let mut world = World::new();
    NODES.iter().for_each(|node| world.add_node(node, json!({})));
    world.api.upsert(&agent(), daemon_set(rolling(1, 0)));
    world.refuse(request, 1, FaultAction::ResponseLost { silently: false });
    world.start(NAME, &ControllerOptions::default()).await;
    world.pass(1).await;
    world
}

#[tokio::test(start_paused = true)]
async fn pod_is_created_once_when_a_response_is_lost() {
    let world = with_lost_response(POST_POD).await;
    world.operate(10).await;
    assert_eq!(count(&world.requests(), POST_POD), NODES.len());
    assert_eq!(world.pods().len(), NODES.len());
    assert_eq!(world.numbers(), [5, 5, 0, 5, 5, 5, 0]);
}

#[tokio::test(start_paused = true)]
async fn revision_is_created_once_when_the_response_is_lost() {
    let mut world = with_lost_response(POST_REVISION).await;
    world.operate(5).await;
    world.restart(NAME, &ControllerOptions::default()).await;
    world.operate(5).await;
    assert_eq!(world.images(), [(1, "agent:1".into())]);
    assert_eq!(world.pods().len(), NODES.len());
    assert!(world.pods().iter().all(|pod| hash(pod) == hash(&world.revisions()[0])));
    assert_eq!(world.agent()["status"]["collisionCount"], json!(null));
}

#[tokio::test(start_paused = true)]
async fn new_process_creates_only_the_missing_pods() {
    for lost in [POST_REVISION, POST_POD, PUT_STATUS] {
        let mut world = World::new();
        NODES.iter().for_each(|node| world.add_node(node, json!({})));
        world.api.upsert(&agent(), daemon_set(rolling(1, 0)));
        world.refuse(lost, usize::MAX, FaultAction::ResponseLost { silently: true });
        world.start(NAME, &ControllerOptions::default()).await;
        world.pass(1).await;
        world.relent();
        world.restart(NAME, &ControllerOptions::default()).await;
        world.operate(10).await;
        assert_eq!(count(&world.requests(), POST_POD), NODES.len(), "{lost}");
        assert_eq!(world.pods().len(), NODES.len(), "{lost}");
        assert_eq!(world.images(), [(1, "agent:1".into())], "{lost}");
        assert_eq!(world.numbers(), [5, 5, 0, 5, 5, 5, 0], "{lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn restarts_during_an_update_keep_its_limit() {
    for (strategy, available) in [(rolling(1, 0), 4), (rolling(0, 1), 5)] {
        let mut world = settled(&NODES, daemon_set(strategy)).await;
        world.set_agent_image("agent:2");
        for _ in 0..30 {
            world.operate(1).await;
            let pods = world.pods();
            let ready: std::collections::BTreeSet<_> =
                pods.iter().filter(|pod| is_ready(pod)).map(target).collect();
            assert!(ready.len() >= available, "{ready:?}");
            assert!(pods.iter().filter(|pod| !is_being_deleted(pod)).count() <= 6);
            world.restart(NAME, &ControllerOptions::default()).await;
        }
        world.operate(5).await;
        assert!(world.placed().iter().all(|(_, image)| image == "agent:2"), "{:?}", world.placed());
        assert_eq!(world.numbers(), [5, 5, 0, 5, 5, 5, 0]);
        assert_eq!(world.images(), [(1, "agent:1".into()), (2, "agent:2".into())]);
    }
}

#[tokio::test(start_paused = true)]
async fn new_process_finishes_the_removal_of_duplicate_revisions() {
    let mut world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    let mut duplicate = world.revisions()[0].clone();
    duplicate["metadata"] = json!({
        "labels": { "app": "agent", HASH: "duplicate" }, "ownerReferences": duplicate["metadata"]["ownerReferences"],
    });
    duplicate["revision"] = json!(7);
    let pods = world.pod_names();
    let second = pods.last().expect("a pod");
    world.refuse(&format!("PATCH {}", pod_path(second)), usize::MAX, FaultAction::InternalError);
    world.api.upsert(&revision_path("agent-duplicate"), duplicate);
    world.pass(1).await;
    world.change(json!({ "minReadySeconds": 1 }));
    world.pass(5).await;
    let labels = world.pods().iter().map(|pod| hash(pod) == "duplicate").collect::<Vec<_>>();
    assert_eq!((labels, world.revisions().len()), (vec![true, false], 2));
    world.relent();
    world.restart(NAME, &ControllerOptions::default()).await;
    world.operate(5).await;
    assert_eq!(world.images(), [(7, "agent:1".into())]);
    assert_eq!(world.pod_names(), pods, "no pod is replaced");
    assert!(world.pods().iter().all(|pod| hash(pod) == "duplicate"));
}

#[tokio::test(start_paused = true)]
async fn counted_collision_is_not_counted_again_after_a_restart() {
    let mut world = started(&["one"], daemon_set(rolling(1, 0))).await;
    world.operate(3).await;
    let taken = name(&world.revisions()[0]).to_owned();
    world.api.overwrite_unchecked(&revision_path(&taken), |it| {
        it["metadata"]["ownerReferences"] = json!([]);
        it["metadata"]["labels"] = json!({ "app": "other" });
        it["data"] = json!({ "other": 1 });
    });
    world.pass(3).await;
    world.restart(NAME, &ControllerOptions::default()).await;
    world.operate(5).await;
    assert_eq!(world.agent()["status"]["collisionCount"], 1);
    assert_eq!(world.revisions().len(), 2);
}
