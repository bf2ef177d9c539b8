//! Tests of events between the stages of a request.

use futures_util::{FutureExt as _, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::json;
use windlass_env::Env;

use super::*;
use crate::server::ApiServerOptions;

/// A body that arrives after another action has completed.
fn late(
    body: Value,
    first: impl FnOnce(),
) -> impl http_body::Body<Data = Bytes, Error = std::convert::Infallible> {
    StreamBody::new(stream::once(async move {
        first();
        Ok(Frame::data(Bytes::from(body.to_string())))
    }))
}

fn target(server: &ApiServer, name: &str) -> Target {
    let resource =
        server.catalog().resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned();
    let (namespace, subresource) = (String::new(), String::new());
    Target {
        resource: resource.expect("the resource is served"),
        namespace,
        name: name.to_owned(),
        subresource,
    }
}

/// A server with a custom kind.
fn server() -> ApiServer {
    let server = ApiServer::new(&Env::virtual_time(1), ApiServerOptions::default());
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    server
        .registry()
        .create(&target(&server, ""), definition, &WriteOptions::default())
        .now_or_never()
        .expect("no webhook is called")
        .expect("the definition is created");
    server
}

#[tokio::test(start_paused = true)]
async fn kind_removed_before_body_arrives_is_not_found() {
    let collection = "/apis/example.com/v1/namespaces/default/widgets".to_owned();
    let object = format!("{collection}/a");
    let cases = [
        ("POST", &collection, "application/json"),
        ("PUT", &object, "application/json"),
        ("PATCH", &object, "application/merge-patch+json"),
        ("DELETE", &object, "application/json"),
        ("DELETE", &collection, "application/json"),
    ];
    for (method, path, media) in cases {
        let server = server();
        let remove = || {
            let definition = target(&server, "widgets.example.com");
            server
                .registry()
                .delete(&definition, &DeleteOptions::default())
                .now_or_never()
                .expect("no webhook is called")
                .0
                .expect("the definition is deleted");
        };
        let body = match method {
            "DELETE" => json!({}),
            _ => json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}),
        };
        let request = Request::builder().method(method).uri(path.as_str()).header("content-type", media);
        let request = request.body(late(body, remove)).expect("a request");
        assert_eq!(answer(server.clone(), request).await.status(), 404, "{method} {path}");
        let kept = server.view().storage().read(&Collection::new("example.com", "widgets"), None);
        assert!(kept.is_ok_and(|it| it.objects.is_empty()), "{method} {path}");
    }
}
