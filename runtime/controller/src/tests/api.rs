//! The least API server that a controller can run against: objects of any kind at their paths, versions, watches with
//! an adjustable delay, and a few ways to go wrong. Strict about nothing; only what these tests ask.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, StreamExt};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::Service;
use windlass_env::{Env, Instant};

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A server of its own objects. Clones share them.
#[derive(Clone)]
pub(crate) struct FakeApi {
    env: Env,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    version: u64,
    /// Objects by collection (`/api/v1/configmaps`), namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    history: Vec<(u64, String, Value)>,
    watchers: Vec<(String, mpsc::UnboundedSender<(Instant, Value)>)>,
    writes: Vec<String>,
    watch_delay: Duration,
    lists: u64,
    fault: Option<Fault>,
}

/// What the server does wrong from now on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The next write takes effect and is never answered.
    SwallowNextAnswer,
    /// The next write fails in the server, without effect.
    RefuseNextWrite,
    /// No request is answered.
    Silent,
    /// Every write to a Lease is refused.
    LeasesRefused,
    /// No write of an Event is answered.
    EventsSilent,
    /// Every list and watch is refused, but for those of Leases.
    CollectionsRefused,
}

/// A request's path: collection over all namespaces, and which part of it.
struct Target {
    collection: String,
    namespace: String,
    name: Option<String>,
}

impl Target {
    fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let root = if parts.first() == Some(&"api") { 2 } else { 3 };
        let (base, rest) = parts.split_at_checked(root)?;
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, rest) = rest.split_first()?;
        Some(Self {
            collection: format!("/{}/{plural}", base.join("/")),
            namespace: namespace.to_owned(),
            name: rest.first().map(|name| (*name).to_owned()),
        })
    }
}

impl FakeApi {
    pub(crate) fn new(env: Env) -> Self {
        let state = State { version: 100, ..State::default() };
        Self { env, state: Arc::new(Mutex::new(state)) }
    }

    /// Puts an object there, as somebody else would.
    pub(crate) fn put(&self, path: &str, object: Value) {
        let target = Target::of(path).expect("a path of an object");
        self.write(&target, object);
    }

    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        let Target { collection, namespace, name } = Target::of(path)?;
        self.lock().objects.get(&(collection, namespace, name?)).cloned()
    }

    /// Every write so far, as `METHOD path`.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.lock().writes.clone()
    }

    /// The writes that are neither about Leases nor Events.
    pub(crate) fn work(&self) -> Vec<String> {
        let admin = |write: &String| write.contains("/leases") || write.contains("/events");
        self.writes().into_iter().filter(|write| !admin(write)).collect()
    }

    pub(crate) fn lists(&self) -> u64 {
        self.lock().lists
    }

    /// Delays what watches show from now on, but for those of Leases.
    pub(crate) fn delay_watches(&self, delay: Duration) {
        self.lock().watch_delay = delay;
    }

    /// Ends every watch, but for those of Leases.
    pub(crate) fn cut_watches(&self) {
        self.lock().watchers.retain(|(collection, _)| is_of_leases(collection));
    }

    pub(crate) fn fail(&self, fault: Option<Fault>) {
        self.lock().fault = fault;
    }

    async fn answer(self, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let fault = self.lock().fault;
        if fault == Some(Fault::Silent) {
            return pending().await;
        }
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let path = parts.uri.path().to_owned();
        let Some(target) = Target::of(&path) else { return text("ok") };
        if parts.method == Method::GET {
            return self.read(&target, parts.uri.query().unwrap_or_default());
        }
        if fault == Some(Fault::EventsSilent) && target.collection.ends_with("/events") {
            return pending().await;
        }
        if fault == Some(Fault::LeasesRefused) && is_of_leases(&target.collection) {
            return status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
        }
        if fault == Some(Fault::RefuseNextWrite) {
            self.fail(None);
            return status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
        }
        self.lock().writes.push(format!("{} {path}", parts.method));
        let answer = self.mutate(&parts.method, target, &body);
        if fault == Some(Fault::SwallowNextAnswer) {
            self.fail(None);
            return pending().await;
        }
        answer
    }

    fn read(&self, target: &Target, query: &str) -> Answer {
        let refused = self.lock().fault == Some(Fault::CollectionsRefused) && target.name.is_none();
        if refused && !is_of_leases(&target.collection) {
            return status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
        }
        if query.split('&').any(|part| part == "watch=1" || part == "watch=true") {
            return self.watch(&target.collection, query);
        }
        let mut state = self.lock();
        if let Some(name) = &target.name {
            let key = (target.collection.clone(), target.namespace.clone(), name.clone());
            return state.objects.get(&key).map_or_else(|| status(StatusCode::NOT_FOUND, "NotFound"), ok);
        }
        state.lists += 1;
        let items: Vec<&Value> = state
            .objects
            .iter()
            .filter(|((c, ..), _)| *c == target.collection)
            .map(|(_, object)| object)
            .collect();
        let version = state.version.to_string();
        ok(
            &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
        )
    }

    fn watch(&self, collection: &str, query: &str) -> Answer {
        let since = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let since: u64 = since.and_then(|text| text.parse().ok()).unwrap_or_default();
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.lock();
        for (_, _, event) in state.history.iter().filter(|(at, c, _)| *at > since && c == collection) {
            // A closed channel is a watch that ended.
            let _open = sender.send((self.env.now() + state.watch_delay, event.clone()));
        }
        state.watchers.push((collection.to_owned(), sender));
        let env = self.env.clone();
        let frames = stream::unfold((receiver, env), |(mut receiver, env)| async move {
            let (visible, event) = receiver.recv().await?;
            env.sleep_until(visible).await;
            Some((Ok(Frame::data(Bytes::from(format!("{event}\n")))), (receiver, env)))
        });
        Response::new(StreamBody::new(frames.boxed()).boxed_unsync())
    }

    fn mutate(&self, method: &Method, target: Target, body: &[u8]) -> Answer {
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = target.name.clone().or_else(|| sent["metadata"]["name"].as_str().map(str::to_owned));
        let target = Target { name, ..target };
        let key =
            (target.collection.clone(), target.namespace.clone(), target.name.clone().unwrap_or_default());
        let stored = self.lock().objects.get(&key).cloned();
        let object = match (method, stored) {
            (&Method::POST, Some(_)) => return status(StatusCode::CONFLICT, "AlreadyExists"),
            (&Method::PUT, None) => return status(StatusCode::NOT_FOUND, "NotFound"),
            (&Method::PUT, Some(stored)) if stale(&sent, &stored) => {
                return status(StatusCode::CONFLICT, "Conflict");
            }
            (&Method::PATCH, Some(mut stored)) => {
                merge(&mut stored, &sent);
                stored
            }
            (&Method::DELETE, _) => return status(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            _ => sent,
        };
        ok(&self.write(&target, object))
    }

    fn write(&self, target: &Target, mut object: Value) -> Value {
        let mut state = self.lock();
        state.version += 1;
        let version = state.version;
        let name = target.name.clone().unwrap_or_default();
        let key = (target.collection.clone(), target.namespace.clone(), name);
        object["metadata"]["name"] = json!(key.2);
        object["metadata"]["uid"] = json!(format!("uid-of-{}", key.2));
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if !key.1.is_empty() {
            object["metadata"]["namespace"] = json!(key.1);
        }
        let known = state.objects.insert(key, object.clone()).is_some();
        let event = json!({"type": if known { "MODIFIED" } else { "ADDED" }, "object": object});
        state.history.push((version, target.collection.clone(), event.clone()));
        let delay = if is_of_leases(&target.collection) { Duration::ZERO } else { state.watch_delay };
        let visible = self.env.now() + delay;
        state.watchers.retain(|(collection, sender)| {
            *collection != target.collection || sender.send((visible, event.clone())).is_ok()
        });
        object
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service<Request<Body>> for FakeApi {
    type Response = Answer;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().answer(request).map(Ok).boxed()
    }
}

fn is_of_leases(collection: &str) -> bool {
    collection.ends_with("/leases")
}

fn stale(sent: &Value, stored: &Value) -> bool {
    let version = &sent["metadata"]["resourceVersion"];
    !version.is_null() && *version != stored["metadata"]["resourceVersion"]
}

fn merge(into: &mut Value, patch: &Value) {
    let (Some(fields), true) = (patch.as_object(), into.is_object()) else {
        *into = patch.clone();
        return;
    };
    for (name, value) in fields {
        merge(&mut into[name], value);
    }
}

fn ok(object: &Value) -> Answer {
    answer(StatusCode::OK, object.to_string())
}

fn text(body: &str) -> Answer {
    answer(StatusCode::OK, body.to_owned())
}

fn status(code: StatusCode, reason: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code.as_u16(),
    });
    answer(code, body.to_string())
}

fn answer(code: StatusCode, body: String) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() = code;
    response
}
