//! The ServiceAccount controller with an API server.

use serde_json::json;
use windlass_api_server::faults::FaultAction;

use super::world::{World, path, uid};
use crate::ControllerOptions;

const NAME: &str = "serviceaccount-controller";

fn account(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/serviceaccounts/default")
}

fn create(namespace: &str) -> String {
    format!("POST /api/v1/namespaces/{namespace}/serviceaccounts")
}

/// Returns a world in which the controller has created the ServiceAccounts of all initial namespaces.
async fn settled() -> World {
    let mut world = World::new();
    world.start(NAME, &ControllerOptions::default()).await;
    world.pass(1).await;
    assert!(world.api.object(&account("shop")).is_some());
    world.requests();
    world
}

#[tokio::test(start_paused = true)]
async fn new_namespace_receives_its_account_once() {
    let world = settled().await;
    world.api.upsert("/api/v1/namespaces/blue", json!({}));
    world.pass(1).await;
    assert_eq!(world.requests(), [create("blue")]);
    assert!(world.api.object(&account("blue")).is_some());
    world.api.upsert("/api/v1/namespaces/blue", json!({ "metadata": { "labels": { "changed": "yes" } } }));
    world.api.upsert(&account("blue"), json!({ "metadata": { "labels": { "changed": "yes" } } }));
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn deleted_account_is_created_again() {
    let world = settled().await;
    let first = uid(&world.api.object(&account("shop")).expect("the ServiceAccount")).to_owned();
    world.api.remove(&account("shop"));
    world.pass(1).await;
    assert_eq!(world.requests(), [create("shop")]);
    assert_ne!(uid(&world.api.object(&account("shop")).expect("the ServiceAccount")), first);
}

#[tokio::test(start_paused = true)]
async fn other_accounts_cause_no_request() {
    let world = settled().await;
    world.api.upsert(&path("api/v1", "serviceaccounts", "robot"), json!({}));
    world.pass(1).await;
    world.api.remove(&path("api/v1", "serviceaccounts", "robot"));
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_receives_no_account() {
    let world = settled().await;
    world.terminate_namespace().await;
    world.api.remove(&account("shop"));
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
    assert_eq!(world.api.object(&account("shop")), None);
}

#[tokio::test(start_paused = true)]
async fn failed_create_of_account_is_retried() {
    let world = settled().await;
    world.refuse(&create("blue"), 3, FaultAction::InternalError);
    world.api.upsert("/api/v1/namespaces/blue", json!({}));
    world.pass(10).await;
    assert_eq!(world.requests(), vec![create("blue"); 4]);
    assert!(world.api.object(&account("blue")).is_some());
}

#[tokio::test(start_paused = true)]
async fn account_that_the_cache_lacks_is_no_failure() {
    let world = settled().await;
    world.hide("serviceaccounts");
    world.api.upsert("/api/v1/namespaces/blue", json!({}));
    world.api.upsert(&account("blue"), json!({}));
    world.pass(60).await;
    assert_eq!(world.requests(), [create("blue")]);
}

#[tokio::test(start_paused = true)]
async fn restart_causes_no_request_for_existing_accounts() {
    let mut world = settled().await;
    world.restart(NAME, &ControllerOptions::default()).await;
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}
