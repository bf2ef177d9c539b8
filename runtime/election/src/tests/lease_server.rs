//! Server with one Lease, and links that delay, lose and reject requests.
//!
//! A request that was sent is independent of its sender: it takes effect even if the sender stops waiting.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tower::{BoxError, service_fn};
use windlass_env::Env;

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Outcome of a request.
#[derive(Copy, Clone, Debug)]
pub(super) enum Fate {
    /// Served immediately.
    Prompt,
    /// Takes effect after `request`; the response follows `response` later.
    Delayed { request: Duration, response: Duration },
    /// Never arrives; no response.
    Lost,
    /// Fails with an error, without effect.
    Refused(u16),
    /// A watch that ends immediately.
    Cut,
}

/// Attributes of a request that links use.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) watch: bool,
    path: String,
    query: String,
    body: Bytes,
}

#[derive(Clone)]
pub(super) struct LeaseServer {
    world: Env,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    version: u64,
    lease: Option<Value>,
    events: Vec<(u64, Bytes)>,
    watchers: Vec<mpsc::UnboundedSender<Bytes>>,
    unchanged: usize,
    writes: usize,
    watches: usize,
    conflicts_to_come: usize,
    frozen: bool,
}

impl LeaseServer {
    pub(super) fn new(world: &Env) -> Self {
        Self { world: world.clone(), state: Arc::default() }
    }

    /// Returns a client whose requests have the outcome that `fate` chooses.
    pub(super) fn client(&self, fate: impl Fn(&Call) -> Fate + Send + Sync + 'static) -> kube::Client {
        let (server, fate) = (self.clone(), Arc::new(fate));
        let service = service_fn(move |request: Request<Body>| {
            let (server, fate) = (server.clone(), fate.clone());
            async move {
                let call = Call::read(request).await?;
                let fate = fate(&call);
                server.carry(call, fate).await
            }
        });
        kube::Client::new(service, "default")
    }

    /// Returns a client whose watches deliver no events, and whose candidate is always up to date.
    pub(super) fn deaf_client(&self) -> kube::Client {
        let (server, world) = (self.clone(), self.world.clone());
        let service = service_fn(move |request: Request<Body>| {
            let (server, world) = (server.clone(), world.clone());
            async move {
                let call = Call::read(request).await?;
                if call.path.contains("leasecandidates") {
                    world.sleep(Duration::from_secs(1)).await;
                    return Ok(refusal(503, "Unavailable", "candidates are not served"));
                }
                if call.watch {
                    let frames = stream::pending::<Result<Frame<Bytes>, BoxError>>();
                    return Ok(Response::new(StreamBody::new(frames).boxed_unsync()));
                }
                server.carry(call, Fate::Prompt).await
            }
        });
        kube::Client::new(service, "default")
    }

    pub(super) fn spec(&self) -> Value {
        self.lock().lease.as_ref().map(|lease| lease["spec"].clone()).unwrap_or_default()
    }

    pub(super) fn holder(&self) -> Option<String> {
        self.spec()["holderIdentity"].as_str().map(str::to_owned)
    }

    pub(super) fn annotation(&self, name: &str) -> Value {
        self.lock()
            .lease
            .as_ref()
            .map(|lease| lease["metadata"]["annotations"][name].clone())
            .unwrap_or_default()
    }

    /// Changes the Lease like another client.
    pub(super) fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut state = self.lock();
        let mut lease = state.lease.clone().expect("the lease exists");
        change(&mut lease);
        state.store("MODIFIED", lease);
    }

    pub(super) fn delete(&self) {
        let mut state = self.lock();
        let lease = state.lease.take().expect("the lease exists");
        state.publish("DELETED", lease);
    }

    /// Returns the number of writes without a change, which return no new version.
    pub(super) fn unchanged(&self) -> usize {
        self.lock().unchanged
    }

    /// Returns the number of writes that took effect.
    pub(super) fn writes(&self) -> usize {
        self.lock().writes
    }

    /// Returns the number of watches.
    pub(super) fn watches(&self) -> usize {
        self.lock().watches
    }

    /// Changes the Lease just before each of the next `count` updates.
    pub(super) fn interfere(&self, count: usize) {
        self.lock().conflicts_to_come = count;
    }

    /// Responds to writes with success, without effect.
    pub(super) fn freeze(&self) {
        self.lock().frozen = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while holding the lock")
    }

    async fn carry(&self, call: Call, fate: Fate) -> Result<Answer, BoxError> {
        let (request, response) = match fate {
            Fate::Prompt => (Duration::ZERO, Duration::ZERO),
            Fate::Delayed { request, response } => (request, response),
            Fate::Lost => return std::future::pending().await,
            Fate::Refused(code) => return Ok(refusal(code, "Injected", "injected")),
            Fate::Cut => return Ok(Response::new(whole(Vec::new()))),
        };
        let (answer, answered) = oneshot::channel();
        let (world, server) = (self.world.clone(), self.clone());
        self.world.spawn("wire", async move {
            world.sleep(request).await;
            let outcome = server.serve(&call);
            world.sleep(response).await;
            // The sender might have stopped waiting.
            drop(answer.send(outcome));
        });
        Ok(answered.await?)
    }

    fn serve(&self, call: &Call) -> Answer {
        let mut state = self.lock();
        match (&call.method, call.watch) {
            (&Method::GET, true) => state.watch(call),
            (&Method::GET, false) => state.get(),
            (&Method::POST, _) => state.create(&call.body),
            (&Method::PUT, _) => state.replace(&call.body),
            (method, _) => panic!("unexpected request: {method} {}", call.path),
        }
    }
}

impl Call {
    async fn read(request: Request<Body>) -> Result<Self, BoxError> {
        let (parts, body) = request.into_parts();
        let query = parts.uri.query().unwrap_or("").to_owned();
        Ok(Self {
            method: parts.method,
            watch: query.contains("watch=true") || query.contains("watch=1"),
            path: parts.uri.path().to_owned(),
            query,
            body: body.collect_bytes().await?,
        })
    }

    pub(super) fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    fn version(&self) -> u64 {
        let pair = self.query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        pair.and_then(|version| version.parse().ok()).unwrap_or(0)
    }
}

impl State {
    fn get(&self) -> Answer {
        match &self.lease {
            Some(lease) => object(lease),
            None => refusal(404, "NotFound", "lease not found"),
        }
    }

    fn create(&mut self, body: &Bytes) -> Answer {
        if self.lease.is_some() {
            return refusal(409, "AlreadyExists", "the lease exists");
        }
        let lease = self.store("ADDED", parse(body));
        object(&lease)
    }

    fn replace(&mut self, body: &Bytes) -> Answer {
        let Some(current) = self.lease.clone() else { return refusal(404, "NotFound", "lease not found") };
        if self.frozen {
            return object(&current);
        }
        let wanted = parse(body);
        if self.conflicts_to_come > 0 {
            self.conflicts_to_come -= 1;
            let mut touched = current.clone();
            touched["metadata"]["labels"]["touched"] = json!(self.version.to_string());
            self.store("MODIFIED", touched);
            return refusal(409, "Conflict", "another client changed it");
        }
        if wanted["metadata"]["resourceVersion"] != current["metadata"]["resourceVersion"] {
            return refusal(409, "Conflict", "the version differs");
        }
        if wanted["spec"] == current["spec"] {
            self.unchanged += 1;
            return object(&current);
        }
        self.writes += 1;
        let lease = self.store("MODIFIED", wanted);
        object(&lease)
    }

    fn watch(&mut self, call: &Call) -> Answer {
        assert!(call.query.contains("fieldSelector=metadata.name"), "{}", call.query);
        let (sender, receiver) = mpsc::unbounded_channel();
        for (_, event) in self.events.iter().filter(|(version, _)| *version > call.version()) {
            sender.send(event.clone()).expect("the receiver is here");
        }
        self.watchers.push(sender);
        self.watches += 1;
        let frames = stream::unfold(receiver, |mut receiver| async move {
            let event = receiver.recv().await?;
            Some((Ok::<_, BoxError>(Frame::data(event)), receiver))
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn store(&mut self, kind: &str, mut lease: Value) -> Value {
        lease["apiVersion"] = json!("coordination.k8s.io/v1");
        lease["kind"] = json!("Lease");
        let lease = self.publish(kind, lease);
        self.lease = Some(lease.clone());
        lease
    }

    fn publish(&mut self, kind: &str, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let event = Bytes::from(format!("{}\n", json!({ "type": kind, "object": lease })));
        self.events.push((self.version, event.clone()));
        self.watchers.retain(|watcher| watcher.send(event.clone()).is_ok());
        lease
    }
}

fn parse(body: &Bytes) -> Value {
    serde_json::from_slice(body).expect("electors send JSON")
}

fn object(object: &Value) -> Answer {
    Response::new(whole(object.to_string().into_bytes()))
}

fn refusal(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code, "reason": reason, "message": message, "details": { "name": "windlass", "kind": "leases" },
    });
    let mut answer = object(&status);
    *answer.status_mut() = StatusCode::from_u16(code).expect("a status code");
    answer
}

fn whole(body: Vec<u8>) -> UnsyncBoxBody<Bytes, BoxError> {
    Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync()
}
