//! Tests of the whole stack, with a service that replaces the server.

mod drained;
mod fenced;
mod identities;
mod logged;
mod paused;
mod raw;
mod repeated;
mod request_options;
mod rotated;
mod secrets;
mod sockets;
mod stacked;
mod threads;

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::ObjectMeta, client::Body};
use tower::{BoxError, service_fn};
use windlass_env::{
    Env, Instant,
    watch_channel::{Receiver, Sender, channel},
};
use windlass_metrics::Metrics;

use crate::{
    ClientOptions, Clients, Fence, FenceState, OpenFence, Write, WriteLog, WriteTarget,
    stack::{ResponseBody, full},
};

/// A request as the server received it.
#[derive(Clone, Debug)]
struct Seen {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    /// Length of the body, in bytes.
    length: Option<u64>,
    /// The body, if it is not a stream.
    body: Bytes,
    at: Instant,
}

type Reply = BoxFuture<'static, Response<ResponseBody>>;

/// A server in this process, and clients for it.
struct World {
    env: Env,
    metrics: Metrics,
    clients: Clients,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl World {
    fn new(serve: impl Fn(&Seen) -> Reply + Clone + Send + Sync + 'static) -> Self {
        Self::with(ClientOptions::default(), |_| Arc::new(OpenFence), serve)
    }

    fn fenced(
        fence: &Arc<TestFence>,
        serve: impl Fn(&Seen) -> Reply + Clone + Send + Sync + 'static,
    ) -> Self {
        let options = ClientOptions::default();
        Self::with(options, |_| Arc::clone(fence) as Arc<dyn Fence>, serve)
    }

    fn with(
        options: ClientOptions,
        fence: impl FnOnce(&Env) -> Arc<dyn Fence>,
        serve: impl Fn(&Seen) -> Reply + Clone + Send + Sync + 'static,
    ) -> Self {
        let (env, metrics, seen) = (Env::virtual_time(7), Metrics::new(), Arc::<Mutex<Vec<Seen>>>::default());
        let (clock, log) = (env.clone(), Arc::clone(&seen));
        let service = service_fn(move |request: Request<Body>| {
            let (parts, body) = request.into_parts();
            let (length, at) = (http_body::Body::size_hint(&body).exact(), clock.now());
            let body = body.collect().now_or_never().and_then(Result::ok).unwrap_or_default().to_bytes();
            let it = Seen { method: parts.method, uri: parts.uri, headers: parts.headers, length, body, at };
            log.lock().unwrap().push(it.clone());
            serve(&it).map(Ok::<_, BoxError>)
        });
        let base = Uri::from_static("http://api.test:6443/prefix");
        let fence = fence(&env);
        let clients = Clients::from_service(env.clone(), service, base, options, &metrics, fence).unwrap();
        Self { env, metrics, clients, seen }
    }

    fn client(&self) -> kube::Client {
        self.clients.for_controller("test-controller").unwrap().client()
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the arrival times of requests, in milliseconds since the clock's origin.
    fn arrivals(&self) -> Vec<u128> {
        self.seen().iter().map(|seen| seen.at.since_origin().as_millis()).collect()
    }
}

/// Returns a server that answers every request with one code and body.
fn answer(code: u16, body: &'static str) -> impl Fn(&Seen) -> Reply + Clone + Send + Sync + 'static {
    move |_| reply(code, body)
}

fn reply(code: u16, body: impl Into<Bytes>) -> Reply {
    let response = Response::builder().status(code).body(full(body.into())).unwrap();
    futures_util::future::ready(response).boxed()
}

/// Never answers.
fn hang(_: &Seen) -> Reply {
    futures_util::future::pending().boxed()
}

/// Returns a response 200 whose body is a stream of chunks.
fn streamed(chunks: BoxStream<'static, Bytes>) -> Reply {
    let frames = chunks.map(|chunk| Ok::<_, BoxError>(http_body::Frame::data(chunk)));
    let body = StreamBody::new(frames).boxed_unsync();
    futures_util::future::ready(Response::new(body)).boxed()
}

/// Returns a body that sends these chunks and then no data, without ending.
fn then_silence(chunks: Vec<Bytes>) -> BoxStream<'static, Bytes> {
    stream::iter(chunks).chain(stream::pending()).boxed()
}

const CREATED: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"web","uid":"u-1","resourceVersion":"12"}}"#;
const CONFLICT: &str =
    r#"{"kind":"Status","status":"Failure","reason":"Conflict","code":409,"message":"changed"}"#;

fn config_map() -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some("a".into()), ..Default::default() }, ..Default::default() }
}

fn config_maps(client: kube::Client) -> Api<ConfigMap> {
    Api::namespaced(client, "web")
}

async fn create(client: &kube::Client) -> Result<ConfigMap, kube::Error> {
    config_maps(client.clone()).create(&Default::default(), &config_map()).await
}

/// A fence that a test opens and closes.
#[derive(Debug)]
struct TestFence {
    state: Sender<FenceState>,
}

impl TestFence {
    fn new(state: FenceState) -> Arc<Self> {
        Arc::new(Self { state: channel(state).0 })
    }
}

impl Fence for TestFence {
    fn state(&self) -> FenceState {
        self.state.get()
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        let mut states: Receiver<FenceState> = self.state.subscribe();
        async move {
            if states.wait_for(|state| *state == FenceState::Closed).await.is_err() {
                futures_util::future::pending::<()>().await;
            }
        }
        .boxed()
    }
}

/// Records the writes of a worker.
#[derive(Default)]
struct TestLog {
    wrote: Mutex<Vec<Write>>,
    ambiguous: Mutex<Vec<(WriteTarget, Instant)>>,
}

impl TestLog {
    fn wrote(&self) -> Vec<Write> {
        self.wrote.lock().unwrap().clone()
    }

    fn ambiguous(&self) -> Vec<WriteTarget> {
        self.ambiguous.lock().unwrap().iter().map(|(target, _)| target.clone()).collect()
    }

    /// Returns when the writes of unknown outcome settle.
    fn settled_at(&self) -> Vec<Duration> {
        self.ambiguous.lock().unwrap().iter().map(|(_, at)| at.since_origin()).collect()
    }

    fn is_empty(&self) -> bool {
        self.wrote().is_empty() && self.ambiguous().is_empty()
    }
}

impl fmt::Debug for TestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestLog")
    }
}

impl WriteLog for TestLog {
    fn wrote(&self, write: Write) {
        self.wrote.lock().unwrap().push(write);
    }

    fn ambiguous(&self, target: WriteTarget, settled_at: Instant) {
        self.ambiguous.lock().unwrap().push((target, settled_at));
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
