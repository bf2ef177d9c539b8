//! Tests of the webhooks of a process without sockets.

mod admitted;
mod converted;
mod declared;
mod rotated;
mod socket;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use windlass_controller::host::Host;
use windlass_controller::{Descriptor, Runnable as _, Setup, SetupError};
use windlass_env::Env;
use windlass_informer::{FactoryOptions, InformerFactory};
use windlass_metrics::Metrics;

use crate::review::ReviewClients;
use crate::router::Router;
use crate::server::Server;
use crate::{Hook, Webhooks};

/// A webhook on ConfigMaps.
const MAPS: Hook = Hook::new("maps.example.com");

/// The webhooks of a process, in virtual time.
struct Served {
    env: Env,
    metrics: Metrics,
    router: Router,
    are_caches_synced: Arc<AtomicBool>,
}

/// Returns a client whose requests fail.
fn unused_client() -> kube::Client {
    let service = tower::service_fn(|_: Request<kube::client::Body>| async {
        Err::<Response<kube::client::Body>, _>(std::io::Error::other("no request is expected"))
    });
    kube::Client::new(service, "default")
}

fn set_up(webhooks: &Webhooks) -> Result<(Server, Setup, Host), SetupError> {
    let (env, metrics) = (Env::virtual_time(1), Metrics::new());
    let factory = InformerFactory::new(env.clone(), metrics.clone(), FactoryOptions::default());
    let host = Host::new(env, metrics, factory);
    let mut setup = Setup::new(Descriptor::new("webhooks"), host.clone());
    Ok((Server::setup(&mut setup, webhooks)?, setup, host))
}

impl Served {
    fn of(webhooks: Webhooks) -> Self {
        let (server, _, Host { env, metrics, .. }) = set_up(&webhooks).expect("set up");
        let clients = ReviewClients { live: unused_client(), dry_run: unused_client() };
        let are_caches_synced = Arc::new(AtomicBool::new(true));
        let synced = Arc::clone(&are_caches_synced);
        let check = move || synced.load(Ordering::Relaxed).then_some(()).ok_or("configmaps".to_owned());
        let router = server.router(&env, &metrics.webhooks(), clients, Box::new(check));
        Self { env, metrics, router, are_caches_synced }
    }

    async fn post(&self, path: &str, body: impl Into<Bytes>) -> (StatusCode, Value) {
        let request = Request::post(path).header("Content-Type", "application/json");
        self.send(request.body(Full::new(body.into())).expect("a request")).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> (StatusCode, Value) {
        let response = self.router.respond(request).await;
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&body).expect("JSON"))
    }

    /// Returns the response to a review with this request by [`MAPS`].
    async fn review(&self, request: &Value) -> Value {
        let (status, answer) = self.post("/admission/maps.example.com", review(request)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["kind"], "AdmissionReview");
        answer["response"].clone()
    }

    /// Returns the number of requests to [`MAPS`] with this result.
    fn count(&self, result: &str) -> u64 {
        self.metrics.webhooks().webhook(MAPS_NAME).requests(result).get()
    }
}

const MAPS_NAME: &str = "maps.example.com";

fn review(request: &Value) -> String {
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request }).to_string()
}

/// Returns a request to create `object`.
fn creating(object: &Value) -> Value {
    json!({
        "uid": "u-1", "operation": "CREATE", "name": "web", "namespace": "shop",
        "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "resource": { "group": "", "version": "v1", "resource": "configmaps" },
        "userInfo": { "username": "ann", "groups": ["staff"] },
        "object": object, "oldObject": null, "dryRun": false, "options": { "kind": "CreateOptions" },
    })
}

fn map() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "web", "namespace": "shop" },
        "data": { "a": "1" }, "future": { "kept": [1] },
    })
}
