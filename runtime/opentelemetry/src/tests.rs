use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::ObjectMeta;
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::SpanData;
use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;
use windlass_controller::{
    Context, Controller, Outcome, ReconcileError, Registration, Setup, SetupError, Writer, by_self, retry,
    terminal,
};
use windlass_env::Env;
use windlass_informer::Lister;
use windlass_object::ObjectKey;
use windlass_testing::{client_of, object, server, with_controllers};

use super::*;

/// Creates a ConfigMap for each Service; fails for the Service `broken`, and once for the Service `flaky`.
struct Mirrors {
    services: Lister<Service>,
    maps: Lister<ConfigMap>,
    writer: Writer<ConfigMap>,
}

impl Controller for Mirrors {
    const NAME: &'static str = "mirrors";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        Ok(Self {
            services: setup.primary::<Service>().lister(),
            maps: setup.watch::<ConfigMap>().enqueue(by_self).lister(),
            writer: setup.writer::<ConfigMap>().create().build(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        if self.services.get(key)?.is_none() || self.maps.get(key)?.is_some() {
            return Ok(Outcome::Done);
        }
        match key.name() {
            "broken" => return Err(terminal("it is broken")),
            "flaky" if cx.attempts() == 0 => return Err(retry("it is flaky")),
            _ => {}
        }
        tracing::info!("mirror missing");
        let metadata = ObjectMeta {
            name: Some(key.name().into()),
            namespace: key.namespace().map(Into::into),
            ..ObjectMeta::default()
        };
        self.writer.create(cx, &ConfigMap { metadata, ..ConfigMap::default() }).await?;
        Ok(Outcome::Done)
    }
}

/// Keeps what it receives: spans or bytes.
#[derive(Debug)]
struct Kept<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Kept<T> {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn extend(&self, items: impl IntoIterator<Item = T>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(items);
    }
}

impl SpanExporter for Kept<SpanData> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.extend(batch);
        Ok(())
    }
}

impl std::io::Write for Kept<u8> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.extend(bytes.iter().copied());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Kept<u8> {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The exported spans, and the lines of the log.
struct Recorded {
    spans: Vec<SpanData>,
    lines: Vec<Value>,
}

/// Runs the controller on Services with these names in a virtual minute. Returns the log, and the spans if `traced`.
async fn run(names: &[&str], traced: bool) -> Recorded {
    let (spans, lines) = (Kept::<SpanData>::new(), Kept::<u8>::new());
    let traces = Traces::exported_by("test", spans.clone());
    let log = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(lines.clone());
    let filter = EnvFilter::new("info,kube_client=error");
    let subscriber: Box<dyn Subscriber + Send + Sync> = match traced {
        true => Box::new(traces.subscriber(filter, log)),
        false => Box::new(tracing_subscriber::registry().with(log.with_filter(filter))),
    };
    let guard = tracing::subscriber::set_default(subscriber);
    let env = Env::virtual_time(7);
    let server = server(&env);
    let services = kube::Api::default_namespaced(client_of(&server));
    let script = async {
        for name in names {
            let service = object::<Service>(
                json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } }),
            );
            services.create(&kube::api::PostParams::default(), &service).await.expect("the name is free");
        }
        env.sleep(Duration::from_secs(60)).await;
    };
    with_controllers(&env, &server, "test", [Registration::controller::<Mirrors>()], script)
        .await
        .expect("the controllers run and stop");
    traces.shutdown(Duration::from_secs(10)).expect("the exporter is in the process");
    drop(guard);
    let text = String::from_utf8(lines.take()).expect("JSON is text");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    Recorded { spans: spans.take(), lines }
}

impl Recorded {
    /// Returns the spans of the reconciles of an object, in order.
    fn reconciles(&self, name: &str) -> Vec<&SpanData> {
        let of_object = |span: &&SpanData| span.name == "reconcile mirrors" && text(span, "name") == name;
        self.spans.iter().filter(of_object).collect()
    }

    fn children(&self, span: &SpanData) -> Vec<&SpanData> {
        self.spans.iter().filter(|child| child.parent_span_id == span.span_context.span_id()).collect()
    }

    /// Returns the only span that `span` links to.
    fn cause(&self, span: &SpanData) -> &SpanData {
        let [link] = &*span.links.links else { panic!("one link: {:?}", span.links) };
        let linked = self.spans.iter().find(|cause| cause.span_context == link.span_context);
        linked.expect("the event is exported")
    }
}

fn number(span: &SpanData, name: &str) -> Option<i64> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key.as_str() == name)?;
    if let opentelemetry::Value::I64(number) = attribute.value { Some(number) } else { None }
}

fn text(span: &SpanData, name: &str) -> String {
    let attribute = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
    attribute.map(|attribute| attribute.value.to_string()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn reconcile_is_span_with_requests_and_link_to_its_event() {
    let recorded = run(&["web"], true).await;
    let reconciles = recorded.reconciles("web");
    let [first, second] = &*reconciles else { panic!("one per event: {reconciles:#?}") };
    assert_eq!(first.parent_span_id, SpanId::INVALID);
    let of_first = ["controller", "namespace", "retries", "reason", "result"].map(|name| text(first, name));
    assert_eq!(of_first, ["mirrors", "default", "0", "event", "success"]);
    assert!(!text(first, "queue_duration").is_empty());
    assert_eq!(number(first, "retries"), Some(0));
    assert_eq!(text(first, "target"), "", "an implementation detail of the log");
    assert_eq!(first.status, Status::Unset);

    let requests = recorded.children(first);
    let [create] = &*requests else { panic!("one request: {requests:#?}") };
    assert_eq!(number(create, "http.response.status_code"), Some(201));
    assert_eq!(create.name, "create configmaps");
    assert_eq!(create.span_kind, opentelemetry::trace::SpanKind::Client);
    let of_create = [
        "verb",
        "resource",
        "http.request.method",
        "http.response.status_code",
        "k8s.namespace.name",
        "url.path",
    ]
    .map(|name| text(create, name));
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(of_create, ["create", "configmaps", "POST", "201", "default", path]);
    assert_eq!(recorded.children(second).len(), 0);

    let event = recorded.cause(first);
    assert_ne!(event.span_context.trace_id(), first.span_context.trace_id());
    let of_event = ["watch", "namespace", "name", "change", "cause"].map(|name| text(event, name));
    assert_eq!(of_event, ["services.v1", "default", "web", "added", "watch"]);
    assert!(text(event, "resource_version").parse::<u64>().is_ok(), "{event:#?}");
    assert_eq!(text(recorded.cause(second), "watch"), "configmaps.v1");

    let outside = |span: &&SpanData| span.parent_span_id == SpanId::INVALID && !text(span, "verb").is_empty();
    assert_eq!(recorded.spans.iter().find(outside), None, "requests of informers have no span");
}

#[tokio::test(start_paused = true)]
async fn failed_reconcile_has_status_error_and_retry_has_its_event() {
    let recorded = run(&["broken", "flaky"], true).await;
    let broken = recorded.reconciles("broken");
    assert_eq!(broken.len(), 1);
    assert_eq!(broken[0].status, Status::error("it is broken"));
    assert_eq!(text(broken[0], "result"), "terminal");
    let flaky = recorded.reconciles("flaky");
    let results =
        flaky.iter().map(|span| [text(span, "retries"), text(span, "reason"), text(span, "result")]);
    let results: Vec<[String; 3]> = results.collect();
    assert_eq!(results[..2], [["0", "event", "error"], ["1", "reconcile", "success"]]);
    assert_eq!(
        text(recorded.cause(flaky[1]), "resource_version"),
        text(recorded.cause(flaky[0]), "resource_version")
    );
}

#[tokio::test(start_paused = true)]
async fn log_lines_have_controller_key_and_id_with_and_without_traces() {
    let (traced, untraced) = (run(&["web"], true).await, run(&["web"], false).await);
    assert_eq!(untraced.spans, []);
    let spans_of = |recorded: &Recorded| {
        let is_of_web =
            |line: &&Value| line["message"] == "mirror missing" && line["span"]["key"] == "default/web";
        let line = recorded.lines.iter().find(is_of_web).expect("it is logged");
        line["spans"].clone()
    };
    let id = text(traced.reconciles("web")[0], "reconcile_id");
    let expected =
        json!([{ "name": "reconcile", "controller": "mirrors", "key": "default/web", "reconcile_id": id }]);
    assert_eq!(spans_of(&traced), expected);
    assert_eq!(spans_of(&untraced), expected, "the seed determines the ID");
    let events = &traced.reconciles("web")[0].events.events;
    assert!(events.iter().any(|event| event.name == "mirror missing"), "{events:?}");
}

/// Exports a span to this address; returns the result of the shutdown within `timeout`, and its time.
fn export_to(address: SocketAddr, timeout: Duration) -> (Result<(), TracesError>, Duration) {
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_http();
    let exporter = exporter.with_endpoint(format!("http://{address}/v1/traces"));
    let traces =
        Traces::exported_to(&Env::system("test"), "the-service", exporter).expect("the endpoint is valid");
    let subscriber = tracing_subscriber::registry().with(traces.layer());
    tracing::subscriber::with_default(subscriber, || {
        tracing::info_span!(target: "my_operator", "work").in_scope(|| ());
    });
    let env = Env::system("test");
    let begun = env.now();
    let outcome = traces.shutdown(timeout);
    (outcome, env.now() - begun)
}

#[test]
fn silent_collector_does_not_delay_shutdown_beyond_its_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (outcome, took) = export_to(address, Duration::from_millis(300));
    assert!(matches!(outcome, Err(TracesError::Shutdown(_))), "{outcome:?}");
    assert!(took < Duration::from_secs(5), "less than the time limit of an export: {took:?}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the collector is not part of a simulation")]
fn shutdown_exports_queued_spans_as_protobuf() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let collector = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the exporter connects");
        let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
        // The name of the span is in the last field of the body.
        while !contains(&request, b"work") {
            let read = stream.read(&mut buffer).expect("the exporter sends");
            assert_ne!(read, 0, "incomplete: {}", String::from_utf8_lossy(&request));
            request.extend_from_slice(&buffer[..read]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("the exporter reads");
        request
    });
    let (outcome, _) = export_to(address, Duration::from_secs(10));
    assert!(outcome.is_ok(), "{outcome:?}");
    let request = collector.join().expect("it received the request");
    assert!(request.starts_with(b"POST /v1/traces HTTP/1.1\r\n"));
    assert!(contains(&request, b"application/x-protobuf") && contains(&request, b"the-service"));
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn nothing_is_exported_without_endpoint() {
    assert!(Traces::from_environment(&Env::system("test"), "test").expect("nothing is configured").is_none());
}

/// Fails as often as it has failures left.
#[derive(Debug)]
struct Unreliable(Mutex<u32>);

impl SpanExporter for Unreliable {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fails = *left > 0;
        *left = left.saturating_sub(1);
        if fails { Err(OTelSdkError::InternalFailure("no collector".into())) } else { Ok(()) }
    }
}

#[tokio::test]
async fn failing_exports_are_logged_once_until_recovery() {
    let lines = Kept::<u8>::new();
    let log = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(lines.clone());
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(log));
    let exporter = LoggedExporter::new(Unreliable(Mutex::new(3)));
    let mut failed = 0;
    for _ in 0..5 {
        failed += u32::from(exporter.export(Vec::new()).await.is_err());
    }
    drop(guard);
    assert_eq!(failed, 3);
    let text = String::from_utf8(lines.take()).expect("JSON is text");
    let levels: Vec<&str> =
        text.lines().map(|line| if line.contains("recovered") { "recovered" } else { "failed" }).collect();
    assert_eq!(levels, ["failed", "recovered"], "{text}");
}

#[test]
fn log_contains_no_error_per_export_and_no_span_of_traces() {
    let (traces, lines) = (Traces::exported_by("test", Kept::<SpanData>::new()), Kept::<u8>::new());
    let log = tracing_subscriber::fmt::layer().with_writer(lines.clone());
    tracing::subscriber::with_default(traces.subscriber(EnvFilter::new("trace"), log), || {
        let span = tracing::trace_span!(target: "windlass::trace", "hidden");
        let _entered = span.enter();
        tracing::error!(name: "BatchSpanProcessor.ExportError", target: "opentelemetry_sdk", "repeated");
        tracing::info!("visible");
    });
    let text = String::from_utf8(lines.take()).expect("lines are text");
    assert!(text.contains("visible") && !text.contains("repeated") && !text.contains("hidden"), "{text}");
}
