//! Updates of the template.

use serde_json::json;

use super::super::world::pod_path;
use super::{daemon_set, is_being_deleted, is_ready, name, rolling, settled, target};

const NODES: [&str; 5] = ["five", "four", "one", "three", "two"];

fn all(image: &str) -> Vec<(String, String)> {
    NODES.iter().map(|node| ((*node).to_owned(), image.to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn rolling_update_keeps_its_limit_of_unavailable_nodes() {
    let world = settled(&NODES, daemon_set(rolling(2, 0))).await;
    world.set_agent_image("agent:2");
    for _ in 0..15 {
        world.operate(1).await;
        let ready = world.pods().iter().filter(|pod| is_ready(pod)).count();
        assert!(ready >= 3, "{ready} ready");
        let mut nodes: Vec<_> = world.placed().into_iter().map(|(node, _)| node).collect();
        nodes.dedup();
        assert_eq!(nodes.len(), world.placed().len(), "one pod for each node");
    }
    assert_eq!(world.placed(), all("agent:2"));
    assert_eq!(world.numbers(), [5, 5, 0, 5, 5, 5, 0]);
    assert_eq!(world.images(), [(1, "agent:1".into()), (2, "agent:2".into())]);
}

#[tokio::test(start_paused = true)]
async fn rolling_update_stops_at_pods_that_do_not_become_ready() {
    let world = settled(&NODES, daemon_set(rolling(2, 0))).await;
    world.set_agent_image("broken");
    for _ in 0..20 {
        world.pass(1).await;
        for pod in world.pods().iter().filter(|pod| is_being_deleted(pod)) {
            world.api.remove(&pod_path(name(pod)));
        }
    }
    let broken = world.placed().iter().filter(|(_, image)| image == "broken").count();
    assert_eq!((broken, world.numbers()), (2, [5, 5, 0, 3, 2, 3, 2]));
}

#[tokio::test(start_paused = true)]
async fn surge_keeps_all_nodes_available() {
    let world = settled(&NODES, daemon_set(rolling(0, 2))).await;
    world.set_agent_image("agent:2");
    for _ in 0..15 {
        world.operate(1).await;
        let pods = world.pods();
        let ready: std::collections::BTreeSet<_> =
            pods.iter().filter(|pod| is_ready(pod)).map(target).collect();
        assert_eq!(ready.len(), 5, "each node has a ready pod");
        let remaining = pods.iter().filter(|pod| !is_being_deleted(pod)).count();
        assert!(remaining <= 7, "{remaining} pods");
    }
    assert_eq!(world.placed(), all("agent:2"));
    assert_eq!(world.numbers(), [5, 5, 0, 5, 5, 5, 0]);
}

#[tokio::test(start_paused = true)]
async fn on_delete_replaces_only_pods_that_a_user_deletes() {
    let world = settled(&NODES, daemon_set(json!({ "type": "OnDelete" }))).await;
    world.set_agent_image("agent:2");
    world.operate(5).await;
    assert_eq!(world.placed(), all("agent:1"));
    assert_eq!(world.numbers(), [5, 5, 0, 5, 0, 5, 0]);
    let pods = world.pods();
    let two = pods.iter().find(|pod| target(pod) == "two").expect("a pod");
    world.api.remove(&pod_path(name(two)));
    world.operate(5).await;
    let mut expected = all("agent:1");
    expected[4].1 = "agent:2".into();
    assert_eq!(world.placed(), expected);
    assert_eq!(world.numbers(), [5, 5, 0, 5, 1, 5, 0]);
}

#[tokio::test(start_paused = true)]
async fn min_ready_seconds_delay_the_next_step() {
    let mut set = daemon_set(rolling(1, 0));
    set["spec"]["minReadySeconds"] = json!(30);
    let world = settled(&["one", "two"], set).await;
    assert_eq!(world.numbers(), [2, 2, 0, 2, 2, 0, 2]);
    world.operate(40).await;
    assert_eq!(world.numbers(), [2, 2, 0, 2, 2, 2, 0]);
    world.set_agent_image("agent:2");
    world.operate(20).await;
    let updated = || world.placed().iter().filter(|(_, image)| image == "agent:2").count();
    assert_eq!(updated(), 1, "the new pod is ready but not available");
    world.operate(60).await;
    assert_eq!(updated(), 2);
    assert_eq!(world.numbers(), [2, 2, 0, 2, 2, 2, 0]);
}
