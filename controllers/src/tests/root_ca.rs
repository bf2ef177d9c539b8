//! The publisher of the root CA with an API server.

use serde_json::{Value, json};
use windlass_api_server::faults::FaultAction;

use super::world::{World, path};
use crate::ControllerOptions;

const NAME: &str = "root-ca-certificate-publisher-controller";
const CA: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

fn config_map(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt")
}

fn create(namespace: &str) -> String {
    format!("POST /api/v1/namespaces/{namespace}/configmaps")
}

fn update(namespace: &str) -> String {
    format!("PUT {}", config_map(namespace))
}

fn options(root_ca: &str) -> ControllerOptions {
    ControllerOptions { root_ca: root_ca.into(), ..ControllerOptions::default() }
}

/// Returns a world in which the controller has created the ConfigMaps of all initial namespaces.
async fn settled() -> World {
    let mut world = World::new();
    world.start(NAME, &options(CA)).await;
    world.pass(1).await;
    assert!(world.api.object(&config_map("shop")).is_some());
    world.requests();
    world
}

impl World {
    fn root_ca(&self, namespace: &str) -> Value {
        self.api.object(&config_map(namespace)).expect("the ConfigMap")["data"].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn new_namespace_receives_the_certificates() {
    let world = settled().await;
    world.api.upsert("/api/v1/namespaces/blue", json!({}));
    world.pass(1).await;
    assert_eq!(world.requests(), [create("blue")]);
    assert_eq!(world.root_ca("blue"), json!({ "ca.crt": CA }));
    let created = world.api.object(&config_map("blue")).expect("the ConfigMap");
    let description = created["metadata"]["annotations"]["kubernetes.io/description"].as_str();
    assert!(description.is_some_and(|text| text.starts_with("Contains a CA bundle ")), "{description:?}");
    let exported = world.metrics.encode();
    assert!(exported.contains("root_ca_cert_publisher_sync_total{code=\"200\"}"), "{exported}");
}

#[tokio::test(start_paused = true)]
async fn changed_and_deleted_config_maps_are_restored() {
    let world = settled().await;
    world.api.upsert(&config_map("shop"), json!({ "data": { "ca.crt": "other", "more": "data" } }));
    world.pass(1).await;
    assert_eq!((world.requests(), world.root_ca("shop")), (vec![update("shop")], json!({ "ca.crt": CA })));
    let annotations = json!({ "kubernetes.io/description": null });
    world.api.upsert(&config_map("shop"), json!({ "metadata": { "annotations": annotations } }));
    world.pass(1).await;
    assert_eq!(world.requests(), [update("shop")]);
    world.api.remove(&config_map("shop"));
    world.pass(1).await;
    assert_eq!((world.requests(), world.root_ca("shop")), (vec![create("shop")], json!({ "ca.crt": CA })));
}

#[tokio::test(start_paused = true)]
async fn unrelated_changes_cause_no_request() {
    let world = settled().await;
    let annotations = json!({ "kubernetes.io/description": "of another client", "note": "kept" });
    world.api.upsert(&config_map("shop"), json!({ "metadata": { "annotations": annotations } }));
    world.api.upsert(&path("api/v1", "configmaps", "other"), json!({ "data": { "a": "b" } }));
    world.api.upsert("/api/v1/namespaces/shop", json!({ "metadata": { "labels": { "changed": "yes" } } }));
    world.pass(60).await;
    world.api.remove(&path("api/v1", "configmaps", "other"));
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_receives_no_config_map() {
    let world = settled().await;
    world.terminate_namespace().await;
    world.api.remove(&config_map("shop"));
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn failed_requests_for_config_maps_are_retried_and_counted() {
    let world = settled().await;
    world.refuse(&create("blue"), 2, FaultAction::Unavailable);
    world.api.upsert("/api/v1/namespaces/blue", json!({}));
    world.pass(10).await;
    assert_eq!(world.requests(), vec![create("blue"); 3]);
    assert_eq!(world.root_ca("blue"), json!({ "ca.crt": CA }));
    let exported = world.metrics.encode();
    assert!(exported.contains("root_ca_cert_publisher_sync_total{code=\"503\"} 2"), "{exported}");
    world.relent();
    // The watch is late, so the cached version is outdated.
    world.lag();
    world.api.upsert(&config_map("shop"), json!({ "data": { "ca.crt": "first" } }));
    world.pass(3).await;
    world.api.upsert(&config_map("shop"), json!({ "data": { "ca.crt": "second" } }));
    world.pass(60).await;
    assert_eq!(world.root_ca("shop"), json!({ "ca.crt": CA }));
}

#[tokio::test(start_paused = true)]
async fn restart_writes_only_if_the_certificates_change() {
    let mut world = settled().await;
    world.restart(NAME, &options(CA)).await;
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
    world.restart(NAME, &options("new")).await;
    world.pass(60).await;
    assert_eq!(world.root_ca("shop"), json!({ "ca.crt": "new" }));
    let requests = world.requests();
    assert!(!requests.is_empty() && requests.iter().all(|line| line.starts_with("PUT ")), "{requests:?}");
}
