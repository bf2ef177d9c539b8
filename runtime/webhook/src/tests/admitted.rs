//! Tests of admission: responses, failures, limits.

use std::time::Duration;

use base64::Engine as _;
use windlass_controller::Caller as _;

use super::*;
use crate::{AdmissionError, Operation, Review, Validator, deny};

fn checking(
    check: impl Fn(&Review<ConfigMap>) -> Result<(), AdmissionError> + Send + Sync + 'static,
) -> Served {
    Served::of(Webhooks::new().validates::<ConfigMap>(MAPS, check))
}

fn changing(change: impl Fn(&mut ConfigMap) + Send + Sync + 'static) -> Served {
    Served::of(Webhooks::new().mutates::<ConfigMap>(MAPS, move |_, mut map| {
        change(&mut map);
        Ok(map)
    }))
}

#[tokio::test(start_paused = true)]
async fn denial_names_object_and_fields() {
    let served = checking(|_| Err(deny("too many").at("data.a", "is not a color")));
    let response = served.review(&creating(&map())).await;
    assert_eq!(response["uid"], "u-1");
    assert_eq!(response["allowed"], false);
    let status = &response["status"];
    assert_eq!(status["code"], 422);
    assert_eq!(status["message"], "too many: data.a: is not a color");
    let details = &status["details"];
    assert_eq!((&details["kind"], &details["name"]), (&json!("ConfigMap"), &json!("web")));
    assert_eq!(details["causes"][0]["field"], "data.a");
    assert_eq!((served.count("denied"), served.count("allowed")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn review_contains_request_and_collects_notes() {
    let served = checking(|review| {
        assert_eq!((review.name(), review.namespace()), ("web", Some("shop")));
        assert_eq!((review.operation(), review.dry_run()), (Operation::Create, false));
        assert_eq!(review.user().username.as_deref(), Some("ann"));
        assert_eq!(review.raw()["object"]["future"]["kept"][0], 1);
        assert!(review.object().is_some() && review.old_object().is_none());
        review.warn("use another name");
        review.audit_annotation("checked", "yes");
        Ok(())
    });
    let response = served.review(&creating(&map())).await;
    let expected = json!({
        "uid": "u-1", "allowed": true, "warnings": ["use another name"], "auditAnnotations": { "checked": "yes" },
    });
    assert_eq!(response, expected);
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_is_denied_with_its_uid_and_field() {
    let served = checking(|_| Ok(()));
    let mut wrong = map();
    wrong["data"]["a"] = json!(5);
    let response = served.review(&creating(&wrong)).await;
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("u-1"), &json!(false)));
    let message = response["status"]["message"].as_str().expect("a message");
    assert!(
        message.starts_with("the object cannot be decoded: data.a: invalid type: integer `5`"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn undecodable_old_object_blocks_neither_deletion_nor_repair() {
    let served = checking(|review| match review.old_object() {
        None => Ok(()),
        Some(_) => Err(deny("it was decoded")),
    });
    let mut request = creating(&map());
    request["operation"] = "UPDATE".into();
    request["oldObject"] = json!({ "data": { "key": 12345 } });
    let response = served.review(&request).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(
        response["warnings"],
        json!(["the old object cannot be decoded: data.key"]),
        "without its value"
    );
    request["operation"] = "DELETE".into();
    request["object"] = Value::Null;
    assert_eq!(served.review(&request).await["allowed"], true);
    request["oldObject"] = map();
    assert_eq!(served.review(&request).await["allowed"], false, "the function decides again");
}

/// Returns the object after the patch of a response.
fn patched(object: &Value, response: &Value) -> Value {
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = response["patch"].as_str().expect("a patch");
    let patch = base64::engine::general_purpose::STANDARD.decode(patch).expect("base64");
    let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a JSON patch");
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).expect("it applies");
    object
}

#[tokio::test(start_paused = true)]
async fn patch_changes_only_changed_fields_and_keeps_unknown_ones() {
    let served = changing(|map| {
        map.data.get_or_insert_default().insert("b".to_owned(), "2".to_owned());
        map.metadata.labels.get_or_insert_default().insert("x".to_owned(), "y".to_owned());
    });
    let response = served.review(&creating(&map())).await;
    let mut expected = map();
    expected["data"]["b"] = "2".into();
    expected["metadata"]["labels"] = json!({ "x": "y" });
    assert_eq!(patched(&map(), &response), expected);
}

#[tokio::test(start_paused = true)]
async fn response_has_no_patch_when_nothing_changed() {
    let served = changing(|_| {});
    assert_eq!(served.review(&creating(&map())).await, json!({ "uid": "u-1", "allowed": true }));
}

#[tokio::test(start_paused = true)]
async fn panic_and_failure_return_500_and_are_counted() {
    let served = checking(|review| match review.name() {
        "web" => panic!("a bug"),
        _ => Err(AdmissionError::from("the inventory is away")),
    });
    let (status, answer) = served.post("/admission/maps.example.com", review(&creating(&map()))).await;
    assert_eq!((status, answer["kind"].as_str()), (StatusCode::INTERNAL_SERVER_ERROR, Some("Status")));
    assert_eq!(answer["message"], "the webhook panicked: a bug");
    let mut other = creating(&map());
    other["name"] = "other".into();
    let (status, answer) = served.post("/admission/maps.example.com", review(&other)).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer["message"], "the inventory is away");
    let metrics = served.metrics.webhooks().webhook(MAPS_NAME);
    assert_eq!((metrics.panics.get(), served.count("panicked"), served.count("failed")), (1, 1, 1));
    assert_eq!((metrics.in_flight.get(), metrics.duration.get_sample_count()), (0, 2));
}

/// Never responds.
struct Stuck(Env);

impl Validator for Stuck {
    const HOOK: Hook = MAPS;
    type Object = ConfigMap;
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        Ok(Self(setup.env().clone()))
    }

    async fn validate(&self, _: &Review<ConfigMap>) -> Result<(), AdmissionError> {
        self.0.sleep(Duration::from_secs(3600)).await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn slow_webhook_returns_504_before_limit_of_api_server() {
    let served = Served::of(Webhooks::new().validator::<Stuck>(()));
    let begun = served.env.now();
    let (status, _) = served.post("/admission/maps.example.com?timeout=5s", review(&creating(&map()))).await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(served.env.now().saturating_duration_since(begun), Duration::from_millis(4_500));
    assert_eq!(served.count("timeout"), 1);
}

#[tokio::test(start_paused = true)]
async fn malformed_request_is_rejected_with_its_status() {
    let served = checking(|_| Ok(()));
    let path = "/admission/maps.example.com";
    let with = |method: &str, path: &str, media: &str, body: Vec<u8>| {
        let request = Request::builder().method(method).uri(path).header("Content-Type", media);
        request.body(Full::new(Bytes::from(body))).expect("a request")
    };
    let json = "application/json; charset=utf-8";
    let good = review(&creating(&map())).into_bytes();
    let beta = String::from_utf8(good.clone()).expect("text").replace("k8s.io/v1\"", "k8s.io/v1beta1\"");
    let mut connecting = creating(&map());
    connecting["operation"] = "GUESS".into();
    for (request, expected) in [
        (with("POST", path, json, good.clone()), StatusCode::OK),
        (with("POST", "/admission/other", json, good.clone()), StatusCode::NOT_FOUND),
        (with("GET", path, json, Vec::new()), StatusCode::METHOD_NOT_ALLOWED),
        (with("POST", path, "text/plain", good), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (with("POST", path, json, b"{".to_vec()), StatusCode::BAD_REQUEST),
        (with("POST", path, json, beta.into_bytes()), StatusCode::BAD_REQUEST),
        (with("POST", path, json, review(&connecting).into_bytes()), StatusCode::BAD_REQUEST),
        (with("POST", path, json, vec![b' '; 7 * 1024 * 1024 + 1]), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        assert_eq!(served.send(request).await.0, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn body_of_unknown_length_is_limited() {
    let served = checking(|_| Ok(()));
    let chunk = || Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from(vec![b' '; 1024 * 1024])));
    let body = http_body_util::StreamBody::new(futures_util::stream::iter((0..8).map(move |_| chunk())));
    let request = Request::post("/admission/maps.example.com").header("Content-Type", "application/json");
    let response = served.router.respond(request.body(body).expect("a request")).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(start_paused = true)]
async fn writes_of_a_dry_run_are_dry_runs() {
    let served = checking(|review| {
        assert_eq!((review.dry_run(), review.is_dry_run()), (true, true));
        Ok(())
    });
    let mut request = creating(&map());
    request["dryRun"] = true.into();
    assert_eq!(served.review(&request).await["allowed"], true);
}

/// Reads a cache.
struct Cached;

impl Validator for Cached {
    const HOOK: Hook = Hook::new("cached.example.com");
    type Object = ConfigMap;
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        drop(setup.watch::<ConfigMap>().lister());
        Ok(Self)
    }

    async fn validate(&self, _: &Review<ConfigMap>) -> Result<(), AdmissionError> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn webhook_with_caches_fails_until_they_are_complete() {
    let served = Served::of(Webhooks::new().validator::<Cached>(()).validates::<ConfigMap>(MAPS, |_| Ok(())));
    served.are_caches_synced.store(false, Ordering::Relaxed);
    let body = || review(&creating(&map()));
    let (status, answer) = served.post("/admission/cached.example.com", body()).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer["message"].as_str().expect("a message").contains("configmaps"), "{answer}");
    assert_eq!(served.review(&creating(&map())).await["allowed"], true, "it reads no cache");
    served.are_caches_synced.store(true, Ordering::Relaxed);
    assert_eq!(served.post("/admission/cached.example.com", body()).await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn draining_server_closes_connection_after_response() {
    let served = checking(|_| Ok(()));
    let request = || {
        let request = Request::post("/admission/maps.example.com").header("Content-Type", "application/json");
        request.body(Full::new(Bytes::from(review(&creating(&map()))))).expect("a request")
    };
    let before = served.router.respond(request()).await;
    assert_eq!(before.headers().get("Connection"), None);
    served.router.drain();
    let after = served.router.respond(request()).await;
    assert_eq!(after.status(), StatusCode::OK);
    assert_eq!(after.headers()["Connection"], "close");
}
