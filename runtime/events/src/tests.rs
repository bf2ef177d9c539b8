//! Tests of recorder and sink together, in virtual time, with a server that supports only Events.

mod upstream;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};
use windlass_env::{Env, Task};
use windlass_metrics::{EventMetrics, Metrics};

use crate::{NewEvent, Recorder, Sink, recorder};

/// The reaction of the server to the next request.
#[derive(Clone, Debug)]
enum Mood {
    Unreachable,
    Silent,
    Refusing(Value),
}

#[derive(Clone, Default)]
struct EventServer(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    moods: VecDeque<Mood>,
    always: Option<Mood>,
    requests: Vec<(Method, String, Value)>,
    gone: bool,
}

impl EventServer {
    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.serve(request).await }
        });
        kube::Client::new(service, "default")
    }

    async fn serve(&self, request: Request<Body>) -> Result<Response<Full<Bytes>>, BoxError> {
        let (parts, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await?)?;
        let gone = self.lock().gone && parts.method == Method::PATCH;
        match self.log(&parts.method, parts.uri.path(), &body) {
            Some(Mood::Unreachable) => Err("connection refused".into()),
            Some(Mood::Silent) => std::future::pending().await,
            Some(Mood::Refusing(status)) => Ok(answer(&status)),
            None if gone => Ok(answer(&refusal(404, "NotFound"))),
            None => Ok(answer(&stored(body))),
        }
    }

    fn log(&self, method: &Method, path: &str, body: &Value) -> Option<Mood> {
        let mut state = self.lock();
        state.requests.push((method.clone(), path.to_owned(), body.clone()));
        state.moods.pop_front().or_else(|| state.always.clone())
    }

    fn requests(&self) -> Vec<(Method, String, Value)> {
        self.lock().requests.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while holding the lock")
    }
}

/// Returns an Event as the server would return it; a patch alone is incomplete.
fn stored(mut event: Value) -> Value {
    event["apiVersion"] = json!("v1");
    event["kind"] = json!("Event");
    event["metadata"]["resourceVersion"] = json!("1");
    if event.get("involvedObject").is_none() {
        event["involvedObject"] = json!({});
    }
    event
}

fn refusal(code: u16, reason: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no" })
}

fn answer(object: &Value) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(object.to_string())));
    if object["kind"] == "Status" {
        let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok()).expect("a code");
        *answer.status_mut() = StatusCode::from_u16(code).expect("a status code");
    }
    answer
}

/// A recorder and its sink, which is not running yet.
struct Rig {
    env: Env,
    recorder: Recorder,
    sink: Option<Sink>,
    server: EventServer,
    metrics: EventMetrics,
    stop: CancellationToken,
}

impl Rig {
    fn new() -> Self {
        let (env, metrics) = (Env::virtual_time(1), Metrics::new());
        let (recorder, sink) = recorder(env.clone(), "tester", "tester", &metrics);
        let metrics = metrics.events();
        let (server, stop) = (EventServer::default(), CancellationToken::new());
        Self { env, recorder, sink: Some(sink), server, metrics, stop }
    }

    fn run(&mut self) -> Task<()> {
        let sink = self.sink.take().expect("runs once");
        self.env.spawn("sink", sink.run(self.server.client(), self.stop.clone()))
    }

    fn record(&self, note: &str) {
        let regarding = ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some("shop".to_owned()),
            name: Some("web".to_owned()),
            ..ObjectReference::default()
        };
        self.recorder.publish(&regarding, &NewEvent::normal("Told", note));
    }

    /// Returns the numbers of recorded, sent, dropped and failed events.
    fn counts(&self) -> (u64, u64, u64, u64) {
        let metrics = &self.metrics;
        (metrics.recorded.get(), metrics.sent.get(), metrics.dropped.get(), metrics.failed.get())
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

// parity: new-broadcaster, recorder-awaited
#[tokio::test(start_paused = true)]
async fn full_queue_drops_and_counts_events_without_waiting() {
    let rig = Rig::new();
    for number in 0..1003 {
        rig.record(&format!("{number}"));
    }
    assert_eq!(rig.counts(), (1003, 0, 3, 0));
}

// parity: new-recorder, event-logger
#[tokio::test(start_paused = true)]
async fn repeated_event_patches_the_count() {
    let mut rig = Rig::new();
    let _sink = rig.run();
    rig.record("hello");
    rig.env.sleep(seconds(3)).await;
    rig.record("hello");
    rig.env.sleep(seconds(1)).await;
    let requests = rig.server.requests();
    let [(post, path, event), (patch, patched, change)] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((post, path.as_str()), (&Method::POST, "/api/v1/namespaces/shop/events"));
    let name = event["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("web."), "{name}");
    assert_eq!((&event["count"], &event["firstTimestamp"]), (&json!(1), &event["lastTimestamp"]));
    assert_eq!(
        (&event["source"]["component"], &event["reportingComponent"]),
        (&json!("tester"), &json!("tester"))
    );
    assert_eq!((patch, patched.as_str()), (&Method::PATCH, format!("{path}/{name}").as_str()));
    assert_eq!((&change["count"], &change["message"]), (&json!(2), &json!("hello")));
    assert_ne!(change["lastTimestamp"], event["lastTimestamp"]);
    assert_eq!(rig.counts(), (2, 2, 0, 0));
}

// parity: event-expired-created-again
#[tokio::test(start_paused = true)]
async fn repeat_of_deleted_event_is_created_with_its_count() {
    let mut rig = Rig::new();
    let _sink = rig.run();
    rig.server.lock().gone = true;
    rig.record("hello");
    rig.record("hello");
    rig.env.sleep(seconds(1)).await;
    let requests = rig.server.requests();
    let methods: Vec<_> = requests.iter().map(|(method, ..)| method.clone()).collect();
    assert_eq!(methods, [Method::POST, Method::PATCH, Method::POST]);
    assert_eq!(requests[2].2["count"], json!(2));
    assert_eq!(requests[2].2["metadata"]["name"], requests[0].2["metadata"]["name"]);
    assert_eq!(rig.counts(), (2, 2, 0, 0));
}

// parity: twelve-tries-10-s
#[tokio::test(start_paused = true)]
async fn rejected_event_is_not_sent_again() {
    for status in [refusal(403, "Forbidden"), refusal(500, "InternalError"), refusal(409, "AlreadyExists")] {
        let mut rig = Rig::new();
        let _sink = rig.run();
        rig.server.lock().moods.push_back(Mood::Refusing(status));
        rig.record("hello");
        rig.env.sleep(seconds(300)).await;
        assert_eq!(rig.server.requests().len(), 1);
        assert_eq!(rig.counts(), (1, 0, 0, 1));
    }
}

// parity: twelve-tries-10-s
#[tokio::test(start_paused = true)]
async fn event_in_terminating_namespace_is_dropped_without_failure() {
    let mut rig = Rig::new();
    let _sink = rig.run();
    let mut status = refusal(403, "Forbidden");
    status["details"] = json!({ "causes": [{ "reason": "NamespaceTerminating" }] });
    rig.server.lock().moods.push_back(Mood::Refusing(status));
    rig.record("hello");
    rig.env.sleep(seconds(300)).await;
    assert_eq!(rig.server.requests().len(), 1);
    assert_eq!(rig.counts(), (1, 0, 1, 0));
}

// parity: twelve-tries-10-s
#[tokio::test(start_paused = true)]
async fn unreachable_server_is_tried_twelve_times_per_event() {
    let mut rig = Rig::new();
    let _sink = rig.run();
    rig.server.lock().moods.extend(std::iter::repeat_n(Mood::Unreachable, 12));
    rig.record("lost");
    rig.record("arrives");
    rig.env.sleep(seconds(99)).await;
    assert_eq!(rig.counts(), (2, 0, 0, 0), "ten delays of ten seconds follow the first");
    rig.env.sleep(seconds(12)).await;
    assert_eq!(rig.server.requests().len(), 13);
    assert_eq!(rig.counts(), (2, 1, 0, 1));
}

// parity: shutdown-more
#[tokio::test(start_paused = true)]
async fn queued_events_are_sent_after_stop_and_later_events_dropped() {
    let mut rig = Rig::new();
    for number in 0..20 {
        rig.record(&format!("{number}"));
    }
    rig.stop.cancel();
    let sink = rig.run();
    sink.await.expect("the sink stops");
    rig.record("too late");
    assert_eq!(rig.server.requests().len(), 20);
    assert_eq!(rig.counts(), (21, 20, 1, 0));
}

// parity: shutdown-more
#[tokio::test(start_paused = true)]
async fn stop_ends_the_delay_and_allows_one_attempt_per_event() {
    let mut rig = Rig::new();
    let sink = rig.run();
    rig.server.lock().always = Some(Mood::Unreachable);
    rig.record("one");
    rig.record("two");
    rig.env.sleep(seconds(30)).await;
    let (tried, stopped) = (rig.server.requests().len(), rig.env.now());
    rig.stop.cancel();
    sink.await.expect("the sink stops");
    assert_eq!(rig.env.now(), stopped);
    assert_eq!(rig.server.requests().len(), tried + 2);
    assert_eq!(rig.counts(), (2, 0, 0, 2));
}

// parity: shutdown-more
#[tokio::test(start_paused = true)]
async fn draining_is_limited_to_five_seconds() {
    let mut rig = Rig::new();
    let sink = rig.run();
    rig.server.lock().always = Some(Mood::Silent);
    for number in 0..4 {
        rig.record(&format!("{number}"));
    }
    rig.env.sleep(seconds(1)).await;
    let stopped = rig.env.now();
    rig.stop.cancel();
    sink.await.expect("the sink stops");
    assert_eq!(rig.env.now() - stopped, seconds(5));
    assert_eq!(rig.counts(), (4, 0, 4, 0), "the event in progress and three queued events");
}

#[tokio::test(start_paused = true)]
async fn sink_stops_when_every_recorder_is_dropped() {
    let mut rig = Rig::new();
    let sink = rig.run();
    rig.record("hello");
    rig.recorder = Recorder::discarding();
    sink.await.expect("the sink stops");
    assert_eq!(rig.server.requests().len(), 1);
}
