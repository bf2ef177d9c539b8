//! The TTL controller with an API server.

use std::collections::BTreeMap;

use serde_json::json;
use windlass_api_server::faults::FaultAction;

use super::world::World;
use crate::ControllerOptions;

const NAME: &str = "ttl-controller";
const NODES: &str = "/api/v1/nodes";
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

fn node(number: usize) -> String {
    format!("{NODES}/node-{number}")
}

impl World {
    fn add_nodes(&self, numbers: std::ops::Range<usize>) {
        numbers.for_each(|number| drop(self.api.upsert(&node(number), json!({}))));
    }

    fn remove_nodes(&self, numbers: std::ops::Range<usize>) {
        numbers.for_each(|number| self.api.remove(&node(number)));
    }

    /// Returns the number of nodes with each value of the annotation.
    fn ttls(&self) -> BTreeMap<String, usize> {
        let mut ttls = BTreeMap::new();
        for node in self.api.all(NODES) {
            let ttl = node["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or("none");
            *ttls.entry(ttl.to_owned()).or_default() += 1;
        }
        ttls
    }
}

fn all(nodes: usize, ttl: &str) -> BTreeMap<String, usize> {
    BTreeMap::from([(ttl.to_owned(), nodes)])
}

async fn started(nodes: usize) -> World {
    let mut world = World::new();
    world.add_nodes(0..nodes);
    world.start(NAME, &ControllerOptions::default()).await;
    world.pass(60).await;
    world
}

/// Upstream's integration test `TestTTLAnnotations`.
#[tokio::test(start_paused = true)]
async fn annotations_follow_the_number_of_nodes() {
    let world = started(0).await;
    world.add_nodes(0..100);
    world.pass(60).await;
    assert_eq!(world.ttls(), all(100, "0"));
    world.add_nodes(100..101);
    world.pass(60).await;
    assert_eq!(world.ttls(), all(101, "15"));
    world.requests();
    world.remove_nodes(90..101);
    world.pass(60).await;
    assert_eq!((world.ttls(), world.requests()), (all(90, "15"), Vec::new()));
    world.remove_nodes(89..90);
    world.pass(60).await;
    assert_eq!(world.ttls(), all(89, "0"));
}

#[tokio::test(start_paused = true)]
async fn restart_causes_no_request_for_annotated_nodes() {
    let mut world = started(101).await;
    assert_eq!(world.ttls(), all(101, "15"));
    let requests = world.requests();
    assert_eq!(requests.len(), 101, "each node is patched once, whatever the order of its events");
    assert!(requests.iter().all(|line| line.starts_with("PATCH /api/v1/nodes/node-")), "{requests:?}");
    world.restart(NAME, &ControllerOptions::default()).await;
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn foreign_values_are_replaced_and_other_changes_ignored() {
    let world = started(1).await;
    world.requests();
    world.api.upsert(&node(0), json!({ "metadata": { "labels": { "changed": "yes" } } }));
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
    for foreign in [json!("7"), json!("soon"), json!(null)] {
        world.api.upsert(
            &node(0),
            json!({ "metadata": { "annotations": { ANNOTATION: foreign, "own": "kept" } } }),
        );
        world.pass(60).await;
        assert_eq!((world.ttls(), world.requests()), (all(1, "0"), vec![format!("PATCH {}", node(0))]));
    }
    let annotations = &world.api.object(&node(0)).expect("the node")["metadata"]["annotations"];
    assert_eq!(*annotations, json!({ ANNOTATION: "0", "own": "kept" }));
}

#[tokio::test(start_paused = true)]
async fn failed_patches_of_nodes_are_retried() {
    let world = started(1).await;
    world.requests();
    let patch = format!("PATCH {}", node(1));
    world.refuse(&patch, 3, FaultAction::InternalError);
    world.add_nodes(1..2);
    world.pass(60).await;
    assert_eq!((world.ttls(), world.requests()), (all(2, "0"), vec![patch; 4]));
}

#[tokio::test(start_paused = true)]
async fn deleted_node_that_the_cache_contains_is_no_failure() {
    let world = started(1).await;
    world.requests();
    world.hide("nodes");
    world.api.upsert(&node(0), json!({ "metadata": { "annotations": { ANNOTATION: "7" } } }));
    world.api.remove(&node(0));
    world.pass(600).await;
    let requests = world.requests();
    assert!(requests.len() <= 1, "{requests:?}");
}
