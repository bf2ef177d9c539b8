//! The Endpoints controller with an API server.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_api_server::faults::FaultAction;

use super::world::{World, path, pod_path, uid};
use crate::ControllerOptions;

fn service_path(name: &str) -> String {
    path("api/v1", "services", name)
}

fn endpoints_path(name: &str) -> String {
    path("api/v1", "endpoints", name)
}

fn service() -> Value {
    let port = json!({ "port": 80, "protocol": "TCP", "targetPort": 8080 });
    json!({
        "apiVersion": "v1", "kind": "Service",
        "spec": { "selector": { "app": "web" }, "ports": [port] },
    })
}

fn pod(ip: &str, ready: bool) -> Value {
    let ready = json!({ "type": "Ready", "status": if ready { "True" } else { "False" } });
    let status = json!({ "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }], "conditions": [ready] });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "labels": { "app": "web" } },
        "spec": { "nodeName": "node", "containers": [{ "name": "main", "image": "web:1" }] }, "status": status,
    })
}

async fn started(options: &ControllerOptions, prepare: impl FnOnce(&World)) -> World {
    let mut world = World::new();
    prepare(&world);
    world.start("endpoints-controller", options).await;
    world.pass(1).await;
    world
}

/// Returns a world with a Service, two ready pods and Endpoints.
async fn settled(options: &ControllerOptions) -> World {
    let world = started(options, |world| {
        world.api.upsert(&service_path("web"), service());
        world.api.upsert(&pod_path("a"), pod("1.1.1.1", true));
        world.api.upsert(&pod_path("b"), pod("1.1.1.2", true));
    })
    .await;
    world.requests();
    world
}

impl World {
    /// Returns the IPs of the only subset: ready IPs, then others.
    fn ips(&self) -> (Vec<String>, Vec<String>) {
        let endpoints = self.api.object(&endpoints_path("web")).expect("the Endpoints");
        let list = |field: &str| {
            let addresses = endpoints["subsets"][0][field].as_array().cloned().unwrap_or_default();
            addresses.iter().map(|address| address["ip"].as_str().unwrap_or_default().to_owned()).collect()
        };
        (list("addresses"), list("notReadyAddresses"))
    }
}

fn ips(ready: &[&str], unready: &[&str]) -> (Vec<String>, Vec<String>) {
    let owned = |ips: &[&str]| ips.iter().map(|ip| (*ip).to_owned()).collect();
    (owned(ready), owned(unready))
}

#[tokio::test(start_paused = true)]
async fn created_and_deleted_pods_update_endpoints() {
    let world = settled(&ControllerOptions::default()).await;
    let endpoints = world.api.object(&endpoints_path("web")).expect("the Endpoints");
    let pod_a = world.api.object(&pod_path("a")).expect("the pod");
    let target = json!({ "kind": "Pod", "namespace": "shop", "name": "a", "uid": uid(&pod_a) });
    assert_eq!(
        endpoints["subsets"][0]["addresses"][0],
        json!({ "ip": "1.1.1.1", "nodeName": "node", "targetRef": target })
    );
    assert_eq!(endpoints["subsets"][0]["ports"], json!([{ "port": 8080, "protocol": "TCP" }]));
    assert_eq!(
        endpoints["metadata"]["labels"],
        json!({ "endpoints.kubernetes.io/managed-by": "endpoint-controller" })
    );
    assert_eq!(
        endpoints["metadata"]["annotations"],
        json!({ "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z" })
    );

    world.api.upsert(&pod_path("b"), pod("1.1.1.2", false));
    world.pass(1).await;
    assert_eq!(world.ips(), ips(&["1.1.1.1"], &["1.1.1.2"]));
    world.api.upsert(&pod_path("c"), pod("1.1.1.3", true));
    world.pass(1).await;
    assert_eq!(world.ips(), ips(&["1.1.1.1", "1.1.1.3"], &["1.1.1.2"]));
    world.api.remove(&pod_path("a"));
    world.pass(1).await;
    assert_eq!(world.ips(), ips(&["1.1.1.3"], &["1.1.1.2"]));
    world.api.upsert(&pod_path("c"), json!({ "metadata": { "labels": { "app": "other" } } }));
    world.pass(1).await;
    assert_eq!(world.ips(), ips(&[], &["1.1.1.2"]));
}

/// With 400 pods, the Service rests for 100 ms.
#[tokio::test(start_paused = true)]
async fn changes_during_the_rest_of_a_large_service_are_one_write() {
    let world = started(&ControllerOptions::default(), |world| {
        world.api.upsert(&service_path("web"), service());
        for number in 0..400 {
            let ip = format!("1.1.{}.{}", number / 200, number % 200);
            world.api.upsert(&pod_path(&number.to_string()), pod(&ip, true));
        }
    })
    .await;
    world.requests();
    let change = async |number: u32| {
        world.api.upsert(&pod_path(&number.to_string()), pod(&format!("1.1.0.{number}"), false));
        world.env.sleep(Duration::from_millis(10)).await;
    };
    for number in 0..5 {
        change(number).await;
    }
    let write = format!("PUT {}", endpoints_path("web"));
    assert_eq!(world.requests(), [&*write], "the first change is written at once");
    world.pass(1).await;
    assert_eq!(world.requests(), [&*write], "the others are written after the rest");
    assert_eq!(world.ips().1.len(), 5);

    change(5).await;
    world.api.upsert(&service_path("web"), json!({ "spec": { "publishNotReadyAddresses": true } }));
    world.env.sleep(Duration::from_millis(10)).await;
    assert_eq!(world.requests(), [&*write, &write], "a new spec ends the rest");
}

// parity: create-or-update
#[tokio::test(start_paused = true)]
async fn irrelevant_changes_cause_no_request() {
    let world = settled(&ControllerOptions::default()).await;
    world.api.upsert(&pod_path("a"), json!({ "metadata": { "annotations": { "note": "new" } } }));
    world.api.upsert(&service_path("web"), json!({ "spec": { "sessionAffinity": "ClientIP" } }));
    world.pass(3600).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_another_controller_sorted_otherwise_are_not_written() {
    let world = started(&ControllerOptions::default(), |world| {
        world.api.upsert(&service_path("web"), service());
        let first = world.api.upsert(&pod_path("a"), pod("1.1.1.1", true))["metadata"]["uid"].clone();
        let second = world.api.upsert(&pod_path("b"), pod("1.1.1.2", true))["metadata"]["uid"].clone();
        let address = |ip: &str, name: &str, uid: &Value| {
            let target = json!({ "kind": "Pod", "namespace": "shop", "name": name, "uid": uid });
            json!({ "ip": ip, "nodeName": "node", "targetRef": target })
        };
        let addresses = json!([address("1.1.1.2", "b", &second), address("1.1.1.1", "a", &first)]);
        let subset = json!({ "addresses": addresses, "ports": [{ "port": 8080, "protocol": "TCP" }] });
        let labels = json!({ "endpoints.kubernetes.io/managed-by": "endpoint-controller" });
        let theirs = json!({ "metadata": { "labels": labels }, "subsets": [subset] });
        world.api.upsert(&endpoints_path("web"), theirs);
    })
    .await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn endpoints_go_with_their_service() {
    let world = settled(&ControllerOptions::default()).await;
    world.api.remove(&service_path("web"));
    world.pass(60).await;
    // The server deletes both objects, and two watches report it, in either order. Each event can cause a DELETE, as
    // upstream, but none creates the Endpoints again.
    let requests = world.requests();
    let delete = format!("DELETE {}", endpoints_path("web"));
    assert!(requests.len() <= 2 && requests.iter().all(|request| *request == delete), "{requests:?}");
    assert_eq!(world.api.object(&endpoints_path("web")), None);
}

#[tokio::test(start_paused = true)]
async fn leftover_endpoints_are_deleted_except_leader_locks() {
    let world = started(&ControllerOptions::default(), |world| {
        let lock =
            json!({ "metadata": { "annotations": { "control-plane.alpha.kubernetes.io/leader": "{}" } } });
        let mut unselective = service();
        unselective["spec"]["selector"] = Value::Null;
        world.api.upsert(&service_path("manual"), unselective);
        world.api.upsert(&endpoints_path("left-over"), json!({}));
        world.api.upsert(&endpoints_path("lock"), lock);
        world.api.upsert(&endpoints_path("manual"), json!({}));
    })
    .await;
    assert_eq!(world.requests(), [format!("DELETE {}", endpoints_path("left-over"))]);
}

#[tokio::test(start_paused = true)]
async fn deleted_endpoints_are_recreated_and_edited_ones_stay() {
    let world = settled(&ControllerOptions::default()).await;
    world.api.upsert(&endpoints_path("web"), json!({ "subsets": [] }));
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
    world.api.remove(&endpoints_path("web"));
    world.pass(1).await;
    assert_eq!(world.ips(), ips(&["1.1.1.1", "1.1.1.2"], &[]));
}

#[tokio::test(start_paused = true)]
async fn changes_of_pods_within_the_batch_period_become_one_write() {
    let options = ControllerOptions {
        endpoint_updates_batch_period: Duration::from_secs(10),
        ..ControllerOptions::default()
    };
    let world = settled(&options).await;
    world.api.upsert(&pod_path("c"), pod("1.1.1.3", true));
    world.pass(4).await;
    world.api.upsert(&pod_path("d"), pod("1.1.1.4", true));
    world.pass(4).await;
    world.api.remove(&pod_path("a"));
    assert_eq!(world.requests(), Vec::<String>::new());
    world.pass(4).await;
    assert_eq!(world.requests(), [format!("PUT {}", endpoints_path("web"))]);
    assert_eq!(world.ips(), ips(&["1.1.1.2", "1.1.1.3", "1.1.1.4"], &[]));
    world.api.upsert(&service_path("web"), json!({ "metadata": { "labels": { "a": "b" } } }));
    world.pass(1).await;
    assert_eq!(world.requests(), [format!("PUT {}", endpoints_path("web"))], "Services do not wait");
}

#[tokio::test(start_paused = true)]
async fn failing_write_is_reported_and_dropped_after_15_retries() {
    let refuse = |world: &World| {
        world.refuse("POST ", usize::MAX, FaultAction::QuotaExceeded);
        world.api.upsert(&service_path("web"), service());
    };
    let world = started(&ControllerOptions::default(), refuse).await;
    world.pass(3600).await;
    assert_eq!(world.requests().len(), 16);
    let (reason, note) = world.events().remove(0);
    assert_eq!(reason, "FailedToCreateEndpoint");
    let begin =
        "Failed to create endpoint for service shop/web: endpoints \"new\" is forbidden: exceeded quota: ";
    assert!(note.starts_with(begin), "{note}");
    world.relent();
    world.api.upsert(&service_path("web"), json!({ "metadata": { "labels": { "a": "b" } } }));
    world.pass(1).await;
    assert!(world.api.object(&endpoints_path("web")).is_some(), "a change retries the key");
}

#[tokio::test(start_paused = true)]
async fn conflict_is_reported_and_retried() {
    let world = settled(&ControllerOptions::default()).await;
    world.refuse("PUT ", 1, FaultAction::Conflict);
    world.api.remove(&pod_path("a"));
    world.pass(1).await;
    let events = world.events();
    let [(reason, note)] = &events[..] else { panic!("one event: {events:?}") };
    assert_eq!(reason, "FailedToUpdateEndpoint");
    assert!(note.starts_with("Failed to update endpoint shop/web: Operation cannot be fulfilled"), "{note}");
    assert_eq!(world.ips(), ips(&["1.1.1.2"], &[]));
}

#[tokio::test(start_paused = true)]
async fn write_that_succeeds_at_last_is_dated_by_the_change_it_answers_to() {
    let refuse = |world: &World| {
        world.refuse("POST ", 2, FaultAction::QuotaExceeded);
        world.api.upsert(&service_path("web"), service());
    };
    let world = started(&ControllerOptions::default(), refuse).await;
    assert_eq!(world.requests().len(), 3);
    let endpoints = world.api.object(&endpoints_path("web")).expect("the Endpoints");
    assert_eq!(
        endpoints["metadata"]["annotations"],
        json!({ "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z" })
    );
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_gets_one_request_and_no_event() {
    let world = started(&ControllerOptions::default(), |world| {
        world.refuse("POST ", usize::MAX, FaultAction::NamespaceTerminating);
        world.api.upsert(&service_path("web"), service());
    })
    .await;
    world.pass(600).await;
    assert_eq!(world.requests().len(), 1);
    assert_eq!(world.events(), []);
}

#[tokio::test(start_paused = true)]
async fn endpoints_of_a_service_that_cannot_be_decoded_stay() {
    let world = settled(&ControllerOptions::default()).await;
    world
        .api
        .overwrite_unchecked(&service_path("web"), |service| service["spec"]["ports"] = json!("not a list"));
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn endpoints_of_deleted_undecodable_service_are_deleted() {
    let world = settled(&ControllerOptions::default()).await;
    world
        .api
        .overwrite_unchecked(&service_path("web"), |service| service["spec"]["ports"] = json!("not a list"));
    world.pass(60).await;
    world.api.remove(&service_path("web"));
    world.pass(1).await;
    assert_eq!(world.requests(), [format!("DELETE {}", endpoints_path("web"))]);
}

#[tokio::test(start_paused = true)]
async fn address_of_undecodable_pod_is_kept_until_its_deletion() {
    let world = settled(&ControllerOptions::default()).await;
    world.spoil_pod("a");
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
    world.api.upsert(&pod_path("b"), pod("1.1.1.2", false));
    world.pass(1).await;
    assert_eq!(world.ips(), ips(&["1.1.1.1"], &["1.1.1.2"]));
    world.api.remove(&pod_path("a"));
    world.pass(31).await;
    assert_eq!(world.ips(), ips(&[], &["1.1.1.2"]));
}

#[tokio::test(start_paused = true)]
async fn outdated_cache_causes_no_surplus_write() {
    let world = settled(&ControllerOptions::default()).await;
    world.lag();
    world.api.upsert(&pod_path("c"), pod("1.1.1.3", true));
    world.pass(8).await;
    world.api.upsert(&service_path("web"), json!({ "metadata": { "labels": { "a": "b" } } }));
    world.pass(60).await;
    assert_eq!(
        world.requests(),
        [format!("PUT {0}", endpoints_path("web")), format!("PUT {0}", endpoints_path("web"))]
    );
    assert_eq!(world.events(), [], "no conflict is reported");
}
