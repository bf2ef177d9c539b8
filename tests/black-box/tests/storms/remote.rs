//! Adapter of kube-apiserver for the fault layer: forwards requests and responses, and streams watch events.
//!
//! All scenarios share one kube-apiserver. Requests of a manager to all namespaces are confined to the namespace of its
//! scenario.
//!
//! The adapter cannot act as a stale replica.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, future::BoxFuture};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::{Value, json};
use windlass_api_server::{
    body::{Body, BodyError},
    faults::Server,
};

/// One namespace of a server behind a client that does not retry.
#[derive(Clone)]
pub(crate) struct Remote {
    client: Client,
    namespace: String,
}

impl Remote {
    pub(crate) fn new(client: Client, namespace: impl Into<String>) -> Self {
        Self { client, namespace: namespace.into() }
    }

    async fn ask(self, request: Request<Bytes>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let asked = parts.uri.path_and_query().map_or("/", |it| it.as_str());
        let asked = match confined(&parts.method, asked, &self.namespace) {
            Some(confined) => confined,
            None => asked.to_owned(),
        };
        let is_watch = asked.contains("watch=true") || asked.contains("watch=1");
        match asked.parse::<Uri>() {
            Ok(uri) => parts.uri = uri,
            Err(error) => return outcome_unknown(&error),
        }
        match self.client.send(Request::from_parts(parts, body.into())).await {
            Ok(answer) if is_watch && answer.status().is_success() => answer.map(streamed),
            Ok(answer) => whole(answer).await,
            Err(error) => outcome_unknown(&error),
        }
    }
}

impl Server for Remote {
    fn answer(&self, request: Request<Bytes>) -> BoxFuture<'static, Response<Body>> {
        Box::pin(self.clone().ask(request))
    }

    fn stale(&self) -> Arc<dyn Server> {
        Arc::new(self.clone())
    }

    fn objects(&self) -> Vec<Value> {
        Vec::new()
    }
}

/// Returns the request confined to one namespace, if it concerns the objects of all namespaces.
fn confined(method: &Method, asked: &str, namespace: &str) -> Option<String> {
    let (path, query) = asked.split_once('?').unwrap_or((asked, ""));
    let (version, resource) = path.rsplit_once('/')?;
    let segments: Vec<_> = version.split('/').collect();
    let is_group_version = matches!(segments.as_slice(), ["", "api", _] | ["", "apis", _, _]);
    let of_all = is_group_version && method == Method::GET && !resource.is_empty();
    of_all.then(|| format!("{version}/namespaces/{namespace}/{resource}?{query}"))
}

fn streamed(body: kube::client::Body) -> Body {
    Body::stream(body.into_data_stream().map(|piece| piece.map_err(|_| BodyError::Truncated)))
}

async fn whole(answer: Response<kube::client::Body>) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    match body.collect().await {
        Ok(body) => Response::from_parts(parts, Body::from_bytes(body.to_bytes())),
        Err(error) => outcome_unknown(&error),
    }
}

/// Returns the response of a gateway that does not know the outcome of the request.
fn outcome_unknown(error: &dyn std::error::Error) -> Response<Body> {
    let message = format!("the server did not answer: {error}");
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Timeout",
        "message": message, "code": 504 });
    let mut answer = Response::new(Body::from_bytes(status.to_string()));
    *answer.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    answer
}

#[test]
fn requests_to_all_namespaces_are_confined_to_one() {
    let confined = |method, asked| confined(&method, asked, "here");
    let of_one = |text: &str| Some(text.to_owned());
    assert_eq!(confined(Method::GET, "/api/v1/pods?limit=5"), of_one("/api/v1/namespaces/here/pods?limit=5"));
    assert_eq!(
        confined(Method::GET, "/apis/apps/v1/replicasets?watch=true"),
        of_one("/apis/apps/v1/namespaces/here/replicasets?watch=true")
    );
    for asked in ["/api/v1/namespaces/there/pods?limit=5", "/api/v1", "/apis/apps/v1", "/readyz", "/version"]
    {
        assert_eq!(confined(Method::GET, asked), None, "{asked}");
    }
    assert_eq!(confined(Method::POST, "/api/v1/pods"), None);
}
