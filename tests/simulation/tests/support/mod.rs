//! The server of these simulations.

#[path = "../../../../controllers/src/tests/api.rs"]
#[allow(dead_code, unreachable_pub)]
mod api;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, BodyStream};
use serde_json::Value;
use tower::Service as _;
use windlass_api_server::body::Body;
use windlass_api_server::faults::Server;
use windlass_env::Env;
use windlass_testing::Simulation;

#[derive(Clone)]
struct Fake(api::Api);

impl Server for Fake {
    fn answer(&self, request: Request<Bytes>) -> BoxFuture<'static, Response<Body>> {
        let mut api = self.0.clone();
        async move {
            if !request.uri().path().starts_with("/api") {
                return Response::new(Body::whole("ok"));
            }
            let request = request.map(|bytes| kube::client::Body::from(bytes.to_vec()));
            let Ok(response) = api.call(request).await;
            let (parts, body) = response.into_parts();
            if body.size_hint().exact().is_some() {
                let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                return Response::from_parts(parts, Body::whole(bytes));
            }
            let frames = BodyStream::new(body).filter_map(async |frame| {
                let Ok(frame) = frame;
                frame.into_data().ok().map(Ok)
            });
            Response::from_parts(parts, Body::stream(Box::pin(frames)))
        }
        .boxed()
    }

    fn stale(&self) -> Arc<dyn Server> {
        Arc::new(self.clone())
    }

    fn objects(&self) -> Vec<Value> {
        let of = |collection: &str, kind: &str, version: &str| {
            let mut all = self.0.all(collection);
            for object in &mut all {
                object["kind"] = kind.into();
                object["apiVersion"] = version.into();
            }
            all
        };
        [
            of("/api/v1/pods", "Pod", "v1"),
            of("/api/v1/services", "Service", "v1"),
            of("/api/v1/endpoints", "Endpoints", "v1"),
            of("/apis/apps/v1/replicasets", "ReplicaSet", "apps/v1"),
        ]
        .concat()
    }
}

pub fn simulation(seed: u64) -> Simulation {
    Simulation::on(seed, |env: &Env| Arc::new(Fake(api::Api::new(env.clone()))) as Arc<dyn Server>)
        .resources(["replicasets", "services", "endpoints"])
}
