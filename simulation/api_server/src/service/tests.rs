//! Tests of the complete server with common clients.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use windlass_env::Env;
use windlass_object::{Frame, FrameDecoder, Rule, Verb, wire};

use super::*;
use crate::{ApiServerOptions, RecordedAccess};

/// Status code, media type and body of a response.
type Answered = (u16, String, Value);

/// An invalid request and its status code: method, path, headers, body, code.
type Wrong<'a> = (&'a str, String, &'a [(&'a str, &'a str)], &'a [u8], u16);

fn server() -> ApiServer {
    ApiServer::new(&Env::virtual_time(1), ApiServerOptions::default())
}

async fn ask_with(
    server: &ApiServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answered {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).expect("a request");
    let Ok(answer) = server.clone().oneshot(request).await;
    let code = answer.status().as_u16();
    let media =
        answer.headers().get("content-type").and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
    let body = answer.into_body().collect().await.expect("a whole body").to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    (code, media, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
}

async fn ask(server: &ApiServer, method: &str, path: &str, body: Value) -> Answered {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    ask_with(server, method, path, &[("content-type", "application/json")], &body).await
}

fn pod(name: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    });
    serde_json::from_value(pod).expect("a pod")
}

#[tokio::test(start_paused = true)]
async fn kube_client_creates_reads_updates_watches_and_deletes() {
    let client = Client::new(server(), "default");
    let pods = Api::<Pod>::default_namespaced(client);
    let made = pods.create(&PostParams::default(), &pod("a")).await.expect("created");
    let version = made.resource_version().expect("a version");
    assert_eq!(pods.get("a").await.expect("there").uid(), made.uid());

    let labels = json!({"metadata": {"labels": {"app": "b"}}});
    let changed = pods.patch("a", &PatchParams::default(), &Patch::Merge(&labels)).await.expect("patched");
    let mut stale = made.clone();
    stale.metadata.labels = None;
    let refused = pods.replace("a", &PostParams::default(), &stale).await.expect_err("stale");
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict")
    );

    let listed = pods.list(&ListParams::default().labels("app=b")).await.expect("listed");
    assert_eq!(listed.items.len(), 1);
    assert!(listed.items[0].spec.is_some());

    pods.delete("a", &DeleteParams::default()).await.expect("deleted");
    assert!(pods.get_opt("a").await.expect("asked").is_none());
    let events =
        pods.watch(&WatchParams::default().timeout(5).disable_bookmarks(), &version).await.expect("watching");
    let events: Vec<_> = events.try_collect().await.expect("events");
    let kinds: Vec<_> = events
        .iter()
        .map(|it| match it {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(it) if it.resource_version() == changed.resource_version() => "changed",
            WatchEvent::Modified(_) => "leaving",
            WatchEvent::Deleted(_) => "deleted",
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => "other",
        })
        .collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"changed"), Some(&"deleted")), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_continues_until_the_server_stops() {
    let server = server();
    let namespaces = Api::<Namespace>::all(Client::new(server.clone(), "default"));
    let mut events = namespaces.watch(&WatchParams::default(), "0").await.expect("watching").boxed();
    let mut names = Vec::new();
    while let Ok(Some(event)) = server.env().timeout(Duration::from_secs(1), events.next()).await {
        if let Ok(WatchEvent::Added(namespace)) = event {
            names.push(namespace.name_any());
        }
    }
    assert!(names.contains(&"default".to_owned()), "{names:?}");
    server.stop();
    while server.env().timeout(Duration::from_secs(1), events.next()).await.expect("an end").is_some() {}
}

#[tokio::test(start_paused = true)]
async fn accesses_are_recorded_with_their_users() {
    let server = server();
    let maps = Api::<ConfigMap>::default_namespaced(Client::new(server.as_user("system:mirror"), "default"));
    assert!(maps.get_opt("none").await.expect("asked").is_none());
    let (code, ..) = ask(&server, "GET", "/api/v1/namespaces/default/pods/x/status", Value::Null).await;
    assert_eq!(code, 404);
    let used: Vec<_> = server.recorded_accesses().into_iter().collect();
    let expected = |user: &str, resource: &str| RecordedAccess {
        user: user.into(),
        verb: Verb::Get,
        group: String::new(),
        resource: resource.into(),
    };
    assert_eq!(used, [expected("system:admin", "pods/status"), expected("system:mirror", "configmaps")]);
}

#[tokio::test(start_paused = true)]
async fn apply_that_creates_requires_create_permission() {
    let server = server();
    let rule = |verb| Rule::new("", "configmaps", [verb]);
    let grant = |verb| Grant { namespace: Some("default".into()), names: Vec::new(), rule: rule(verb) };
    server.restrict("keeper", vec![grant(Verb::Patch)]);
    let maps = Api::<ConfigMap>::default_namespaced(Client::new(server.as_user("keeper"), "default"));
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "web" } });
    let apply = async || maps.patch("web", &PatchParams::apply("keeper"), &Patch::Apply(&map)).await;
    let kube::Error::Api(denied) = apply().await.expect_err("the apply would create an object") else {
        panic!("no answer")
    };
    let message = "configmaps \"web\" is forbidden: User \"keeper\" cannot create resource \"configmaps\" in API group \
                   \"\" in the namespace \"default\"";
    assert_eq!((denied.code, &*denied.message), (403, message));
    let other =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "web", "uid": "other" } });
    let conflict = maps.patch("web", &PatchParams::apply("keeper"), &Patch::Apply(&other)).await;
    assert!(
        matches!(conflict, Err(kube::Error::Api(status)) if status.code == 409),
        "an update of another UID creates nothing"
    );
    server.restrict("keeper", vec![grant(Verb::Create)]);
    apply().await.expect("patch and create are granted");
    apply().await.expect("the object exists");
}

#[tokio::test(start_paused = true)]
async fn update_that_creates_requires_create_permission() {
    let server = server();
    let rule = |verb| Rule::new("coordination.k8s.io", "leases", [verb]);
    let grant = |verb| Grant { namespace: None, names: Vec::new(), rule: rule(verb) };
    server.restrict("keeper", vec![grant(Verb::Update)]);
    let lease =
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "turn" } });
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/turn";
    let keeper = server.as_user("keeper");
    let (code, _, denied) = ask(&keeper, "PUT", path, lease.clone()).await;
    assert_eq!(code, 403, "{denied}");
    let mut gone = lease.clone();
    gone["metadata"]["uid"] = json!("gone");
    assert_eq!(ask(&keeper, "PUT", path, gone).await.0, 409, "an update of another UID creates nothing");
    server.restrict("keeper", vec![grant(Verb::Create)]);
    assert_eq!(ask(&keeper, "PUT", path, lease).await.0, 201);
    assert!(
        server.recorded_accesses().iter().any(|used| used.verb == Verb::Create && used.resource == "leases")
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_are_rejected_like_upstream() {
    let server = server();
    let nothing = "the server could not find the requested resource";
    let method = "the server does not allow this method on the requested resource";
    let cases = [
        ("GET", "/api/v1/wonders", 404, nothing),
        ("GET", "/api/v1/pods/a", 404, nothing),
        ("GET", "/api/v1/namespaces/a/nodes", 404, nothing),
        ("GET", "/apis/apps/v9/deployments", 404, nothing),
        ("GET", "/api/v1/namespaces/a/pods/b/wonders", 404, nothing),
        ("POST", "/api/v1/pods", 405, method),
        ("DELETE", "/api/v1/pods", 405, method),
        ("PUT", "/api/v1/namespaces/a/pods", 405, method),
        ("POST", "/api/v1/namespaces/a/pods/b", 405, method),
    ];
    for (verb, path, code, message) in cases {
        let (found, media, body) = ask(&server, verb, path, Value::Null).await;
        assert_eq!(
            (found, &*media, &body["message"]),
            (code, "application/json", &json!(message)),
            "{verb} {path}"
        );
        assert_eq!(body["details"], json!({}), "{verb} {path}");
    }
    for path in ["/wonders", "/apis/wonders.example.com/v1/things", "/apis/wonders.example.com", "/metrics"] {
        let (code, media, body) = ask(&server, "GET", path, Value::Null).await;
        let expected = (404, "text/plain; charset=utf-8".to_owned(), json!("404 page not found\n"));
        assert_eq!((code, media, body), expected, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_get_upstream_codes() {
    let server = server();
    let maps = "/api/v1/namespaces/default/configmaps";
    let json = ("content-type", "application/json");
    let large = vec![b' '; 3 * 1024 * 1024 + 1];
    let cases: [Wrong<'_>; 9] = [
        ("POST", maps.into(), &[("content-type", "text/plain")], b"{}", 415),
        ("PATCH", format!("{maps}/a"), &[json], b"{}", 415),
        ("GET", maps.into(), &[("accept", "application/cbor")], b"", 406),
        ("GET", format!("{maps}?limit=x"), &[], b"", 400),
        ("GET", format!("{maps}?timeout=x"), &[], b"", 400),
        ("POST", maps.into(), &[json], b"{", 400),
        ("POST", maps.into(), &[json], &large, 413),
        ("POST", format!("{maps}?dryRun=Some"), &[json], b"{}", 422),
        ("GET", maps.into(), &[("authorization", "Bearer nobody")], b"", 401),
    ];
    for (method, path, headers, body, expected) in cases {
        let (code, _, body) = ask_with(&server, method, &path, headers, body).await;
        assert_eq!((code, &body["code"]), (expected, &json!(expected)), "{method} {path}: {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_are_concatenated_from_stored_bytes() {
    let server = server();
    for name in ["a", "b"] {
        // The kind is not the first field, so the encoder cannot remove it by its prefix.
        let map = json!({"metadata": {"name": name}, "data": {"kind": "x"}});
        let (code, _, body) = ask(&server, "POST", "/api/v1/namespaces/lists/configmaps", map.clone()).await;
        assert_eq!(code, 404, "{body}");
        let (code, ..) = ask(&server, "POST", "/api/v1/namespaces/default/configmaps", map).await;
        assert_eq!(code, 201);
    }
    let (_, _, list) =
        ask(&server, "GET", "/api/v1/namespaces/default/configmaps?limit=1", Value::Null).await;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(list["metadata"]["remainingItemCount"], 1);
    assert_eq!(list["items"][0]["data"], json!({"kind": "x"}));
    assert!(list["items"][0].get("kind").is_none() && list["items"][0].get("apiVersion").is_none());
    let (_, _, list) = ask(&server, "GET", "/api/v1/namespaces", Value::Null).await;
    assert_eq!(list["kind"], "NamespaceList");
    assert!(list["items"].as_array().is_some_and(|it| it.len() >= 2));
    assert!(list["items"][0].get("kind").is_none());
}

#[tokio::test(start_paused = true)]
async fn protobuf_and_yaml_bodies_are_decoded() {
    let server = server();
    let maps = "/api/v1/namespaces/default/configmaps";
    // A ConfigMap named `a` with `k: v` and an empty creation time.
    let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0f\x0a\x05\x0a\x01a\x42\x00\x12\x06\x0a\x01k\x12\x01v";
    let sent = [("content-type", "application/vnd.kubernetes.protobuf")];
    let (code, media, made) = ask_with(&server, "POST", maps, &sent, body).await;
    assert_eq!((code, &*media, &made["data"]), (201, "application/json", &json!({"k": "v"})), "{made}");
    let sent = [("content-type", "application/apply-patch+yaml")];
    let body = b"apiVersion: v1\nkind: ConfigMap\ndata:\n  y: z\n";
    let (code, _, made) = ask_with(&server, "PATCH", &format!("{maps}/a?fieldManager=m"), &sent, body).await;
    assert_eq!((code, &made["data"]), (200, &json!({"k": "v", "y": "z"})), "{made}");
}

fn from_protobuf(object: &[u8]) -> Value {
    assert!(wire::protobuf::is_protobuf(object));
    let json = wire::protobuf::to_json(object).expect("an object in protobuf");
    serde_json::from_slice(&json).expect("valid JSON")
}

#[tokio::test(start_paused = true)]
async fn responses_are_in_protobuf_when_the_client_prefers_it() {
    const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json";
    let server = server();
    let maps = "/api/v1/namespaces/default/configmaps";
    ask(&server, "POST", maps, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let get = async |path: &str, accept: &str| {
        let request = Request::get(path).header("accept", accept).body(Full::<Bytes>::default());
        let Ok(answer) = server.clone().oneshot(request.expect("a request")).await;
        let media = answer.headers()["content-type"].to_str().unwrap_or_default().to_owned();
        (media, answer.into_body().collect().await.expect("a complete body").to_bytes())
    };
    let (media, body) = get(maps, BOTH).await;
    assert_eq!(media, "application/vnd.kubernetes.protobuf");
    let page = wire::list(body).expect("a list");
    assert!(page.version.is_some());
    let map = from_protobuf(&page.items[0]);
    assert_eq!((&map["metadata"]["name"], &map["data"]), (&json!("a"), &json!({"k": "v"})));

    let partial =
        format!("{};as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf");
    let watch = format!("{maps}?watch=true&timeoutSeconds=1");
    for (accept, has_data) in [(BOTH, true), (&*partial, false)] {
        let (media, body) = get(&watch, accept).await;
        assert_eq!(media, "application/vnd.kubernetes.protobuf;stream=watch");
        let mut decoder = FrameDecoder::default();
        decoder.feed(body);
        let Ok(Some(Frame::Added(raw))) = decoder.next() else { panic!("no frame") };
        let map = from_protobuf(&raw);
        assert_eq!((&map["metadata"]["name"], map.get("data").is_some()), (&json!("a"), has_data));
    }

    let (media, body) = get(&format!("{maps}/none"), BOTH).await;
    assert_eq!(media, "application/vnd.kubernetes.protobuf");
    assert!(wire::status(500, &body).is_not_found());
    // No encoding of this kind exists here.
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(get(definitions, BOTH).await.0, "application/json");
    assert_eq!(get("/version", BOTH).await.0, "application/json");
}

#[tokio::test(start_paused = true)]
async fn deprecated_watch_paths_select_all_objects_or_one() {
    let server = server();
    for name in ["a", "b"] {
        ask(&server, "POST", "/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": name}}))
            .await;
    }
    let old = "/api/v1/watch/namespaces/default/configmaps";
    for (path, expected) in [(old.to_owned(), 2), (format!("{old}/b"), 1)] {
        let request = Request::get(format!("{path}?timeoutSeconds=1")).body(Full::<Bytes>::default());
        let Ok(answer) = server.clone().oneshot(request.expect("a request")).await;
        let frames = answer.into_body().collect().await.expect("a complete body").to_bytes();
        assert_eq!(frames.iter().filter(|byte| **byte == b'\n').count(), expected, "{path}");
    }
    let (code, ..) = ask(&server, "DELETE", &format!("{old}/b"), Value::Null).await;
    assert_eq!(code, 405);
    let (code, ..) =
        ask(&server, "GET", &format!("{old}/b?fieldSelector=metadata.name=a"), Value::Null).await;
    assert_eq!(code, 400);
}

#[tokio::test(start_paused = true)]
async fn response_for_humans_is_indented() {
    let server = server();
    let request = |path: &str| Request::get(path).body(Full::<Bytes>::default()).expect("a request");
    let path = "/api/v1/namespaces/default?pretty=true";
    let Ok(answer) = server.clone().oneshot(request(path)).await;
    let pretty = answer.into_body().collect().await.expect("a whole body").to_bytes();
    assert!(pretty.starts_with(b"{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"Namespace\",\n"), "{pretty:?}");
    let (_, _, found) = ask(&server, "GET", path, Value::Null).await;
    assert_eq!(found["metadata"]["name"], "default");
}

#[tokio::test(start_paused = true)]
async fn duplicate_field_is_warned_about_or_rejected() {
    let server = server();
    let maps = "/api/v1/namespaces/default/configmaps";
    let body = br#"{"metadata": {"name": "a"}, "data": {"k": "v", "k": "w"}}"#;
    let json_body = ("content-type", "application/json");
    let path = format!("{maps}?fieldValidation=Strict");
    let (code, _, refused) = ask_with(&server, "POST", &path, &[json_body], body).await;
    let why = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \"data.k\"";
    assert_eq!((code, &refused["message"]), (400, &json!(why)));
    let request =
        Request::post(maps).header(json_body.0, json_body.1).body(Full::new(Bytes::from_static(body)));
    let Ok(answer) = server.clone().oneshot(request.expect("a request")).await;
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["warning"], r#"299 - "duplicate field \"data.k\"""#);
    let merge = ("content-type", "application/merge-patch+json");
    let body = br#"{"data": {"k": "v", "k": "w"}, "x": {"y": 1, "y": 2}}"#;
    let path = format!("{maps}/a?fieldValidation=Strict");
    let (code, _, refused) = ask_with(&server, "PATCH", &path, &[merge], body).await;
    let why = "strict decoding error: duplicate field \"data.k\", unknown field \"x\"";
    assert_eq!(code, 422, "{refused}");
    assert!(refused["message"].as_str().is_some_and(|it| it.ends_with(why)), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn stale_replica_serves_old_state_at_version_zero_only() {
    let server = server();
    let stale = server.replica();
    stale.view().freeze();
    let maps = "/api/v1/namespaces/default/configmaps";
    let (code, ..) = ask(&server, "POST", maps, json!({"metadata": {"name": "a"}})).await;
    assert_eq!(code, 201);
    let count = async |path: String| {
        let (_, _, list) = ask(&stale, "GET", &path, Value::Null).await;
        list["items"].as_array().map(Vec::len)
    };
    assert_eq!(count(format!("{maps}?resourceVersion=0")).await, Some(0));
    assert_eq!(count(maps.to_owned()).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn watched_table_sends_its_columns_once() {
    let server = server();
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    let (code, _, found) = ask_with(&server, "GET", "/api/v1/namespaces", &table, b"").await;
    assert_eq!(
        (code, &found["kind"], &found["apiVersion"]),
        (200, &json!("Table"), &json!("meta.k8s.io/v1"))
    );
    let names: Vec<_> =
        found["columnDefinitions"].as_array().into_iter().flatten().map(|it| &it["name"]).collect();
    assert_eq!(names, ["Name", "Status", "Age"]);
    assert_eq!(found["rows"][0]["object"]["kind"], "PartialObjectMetadata");

    let path = "/api/v1/namespaces?watch=1&timeoutSeconds=1&includeObject=Object";
    let (_, _, frames) = ask_with(&server, "GET", path, &table, b"").await;
    let frames: Vec<Value> =
        frames.as_str().unwrap_or_default().lines().filter_map(|it| serde_json::from_str(it).ok()).collect();
    let headed = |frame: &Value| frame["object"]["columnDefinitions"].is_array();
    assert!(frames.len() >= 2, "{frames:?}");
    assert!(headed(&frames[0]) && !frames[1..].iter().any(headed));
    assert_eq!(frames[0]["object"]["rows"][0]["object"]["kind"], "Namespace");
}

#[tokio::test(start_paused = true)]
async fn metadata_only_responses_are_supported() {
    let server = server();
    let partial = [("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")];
    let (code, _, found) = ask_with(&server, "GET", "/api/v1/namespaces/default", &partial, b"").await;
    assert_eq!((code, &found["kind"]), (200, &json!("PartialObjectMetadata")));
    assert!(found.get("spec").is_none());
    let (code, _, refused) = ask_with(&server, "GET", "/api/v1/namespaces", &partial, b"").await;
    assert_eq!((code, &refused["reason"]), (406, &json!("NotAcceptable")));
    let list = [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")];
    let (_, _, found) = ask_with(&server, "GET", "/api/v1/namespaces", &list, b"").await;
    assert_eq!(found["kind"], "PartialObjectMetadataList");
    assert_eq!(found["items"][0]["kind"], "PartialObjectMetadata");
}

#[tokio::test(start_paused = true)]
async fn discovery_is_served_in_both_formats() {
    let server = server();
    let (_, _, groups) = ask(&server, "GET", "/apis", Value::Null).await;
    assert_eq!(groups["kind"], "APIGroupList");
    let (_, _, core) = ask(&server, "GET", "/api/v1", Value::Null).await;
    assert_eq!(core["kind"], "APIResourceList");
    let accept =
        [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")];
    let (_, media, all) = ask_with(&server, "GET", "/apis", &accept, b"").await;
    assert_eq!(all["kind"], "APIGroupDiscoveryList");
    let request =
        |tag: &str| Request::get("/apis").header(accept[0].0, accept[0].1).header("if-none-match", tag);
    for (tag, expected) in [("\"other\"", 200), ("", 304)] {
        let Ok(first) =
            server.clone().oneshot(request("").body(Full::<Bytes>::default()).expect("a request")).await;
        let known = first.headers()["etag"].to_str().expect("a tag");
        let asked = request(if tag.is_empty() { known } else { tag }).body(Full::<Bytes>::default());
        let Ok(answer) = server.clone().oneshot(asked.expect("a request")).await;
        assert_eq!(answer.status(), expected, "{tag}");
    }
    assert!(media.contains("as=APIGroupDiscoveryList"), "{media}");
    let (_, _, version) = ask(&server, "GET", "/version", Value::Null).await;
    assert!(version["gitVersion"].as_str().is_some_and(|it| it.starts_with("v1.36.3+windlass")), "{version}");
    assert_eq!(ask(&server, "GET", "/healthz", Value::Null).await.2, "ok");
}

#[tokio::test]
async fn only_loopback_socket_is_served_until_the_server_stops() {
    let server = ApiServer::new(&Env::system("test"), ApiServerOptions::default());
    let open = TcpListener::bind("0.0.0.0:0").await.expect("a socket");
    let refused = server.serve(open).await;
    assert!(matches!(refused, Err(ServeError::NotLoopback(_))));

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("an address");
    let serving = server.env().spawn("serving", server.serve(listener));
    let config = kube::Config::new(format!("http://{address}").parse().expect("an address"));
    let client = Client::try_from(config).expect("a client");
    let namespaces = Api::<Namespace>::all(client);
    assert!(namespaces.get_opt("default").await.expect("asked").is_some());
    let events = namespaces.watch(&WatchParams::default(), "0").await.expect("watching");
    server.stop();
    // The watch ends with the server, regardless of its timeout.
    let _events: Vec<_> = events.collect().await;
    assert!(matches!(serving.await, Ok(Ok(()))));
}
