//! A small API server: objects of any kind at their paths, versions, watches that can lag, graceful deletion, and
//! refusals on demand. It does what these controllers rely on, and nothing else.

use std::collections::BTreeMap;
use std::convert::Infallible;
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
pub(super) struct Api {
    env: Env,
    state: Arc<Mutex<State>>,
}

/// An object: its collection over all namespaces (`/api/v1/pods`), namespace and name.
type Place = (String, String, String);

#[derive(Default)]
struct State {
    version: u64,
    identities: u64,
    objects: BTreeMap<Place, Value>,
    history: Vec<(u64, String, Value)>,
    watchers: Vec<(String, mpsc::UnboundedSender<(Instant, Value)>)>,
    requests: Vec<String>,
    refusals: Vec<Refusal>,
    watch_lag: Duration,
    graceful: bool,
}

/// Requests that are refused from now on, a number of times.
struct Refusal {
    request: String,
    status: Value,
    times: usize,
}

/// What a path means.
#[derive(Clone)]
struct Target {
    collection: String,
    namespace: String,
    name: String,
    subresource: String,
}

impl Target {
    fn of(path: &str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (root, rest) = parts.split_at(if parts[0] == "api" { 2 } else { 3 });
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let part = |place: usize| rest.get(place).copied().unwrap_or_default().to_owned();
        Self {
            collection: format!("/{}/{}", root.join("/"), part(0)),
            namespace: namespace.to_owned(),
            name: part(1),
            subresource: part(2),
        }
    }

    fn place(&self) -> Place {
        (self.collection.clone(), self.namespace.clone(), self.name.clone())
    }
}

impl Api {
    pub(super) fn new(env: Env) -> Self {
        let state = State { version: 100, ..State::default() };
        Self { env, state: Arc::new(Mutex::new(state)) }
    }

    /// Puts an object there, as a user would: a new one, or another state of one that exists.
    pub(super) fn put(&self, path: &str, object: Value) -> Value {
        let target = Target::of(path);
        let mut state = self.lock();
        match state.objects.get(&target.place()).cloned() {
            Some(mut stored) => {
                merge(&mut stored, &object);
                state.update(&self.env, &target, stored)
            }
            None => state.create(&self.env, &target, object),
        }
    }

    /// Takes an object away for good, as its node or the garbage collector would.
    pub(super) fn remove(&self, path: &str) {
        self.lock().remove(&self.env, &Target::of(path));
    }

    pub(super) fn object(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(&Target::of(path).place()).cloned()
    }

    /// All objects of a collection, such as `/api/v1/pods`.
    pub(super) fn all(&self, collection: &str) -> Vec<Value> {
        let state = self.lock();
        state
            .objects
            .iter()
            .filter(|((c, ..), _)| c == collection)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// The requests since this was last asked, as `METHOD path`, except reads of lists and watches.
    pub(super) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().requests)
    }

    /// Refuses requests whose `METHOD path` begins so.
    pub(super) fn refuse(&self, request: &str, times: usize, status: Value) {
        self.lock().refusals.push(Refusal { request: request.to_owned(), status, times });
    }

    /// Refuses nothing any more.
    pub(super) fn relent(&self) {
        self.lock().refusals.clear();
    }

    /// Delays what watches show from now on.
    pub(super) fn lag(&self, lag: Duration) {
        self.lock().watch_lag = lag;
    }

    /// Pods that are deleted stay until they are removed.
    pub(super) fn delete_gracefully(&self) {
        self.lock().graceful = true;
    }

    async fn answer(self, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let target = Target::of(parts.uri.path());
        let query = parts.uri.query().unwrap_or_default();
        if parts.method == Method::GET && target.name.is_empty() {
            return if query.contains("watch=") {
                self.watch(&target.collection, query)
            } else {
                self.list(&target)
            };
        }
        let mut state = self.lock();
        let line = format!("{} {}", parts.method, parts.uri.path());
        state.requests.push(line.clone());
        if let Some(status) = state.refusal(&line) {
            return refused(&status);
        }
        let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        match state.serve(&self.env, &parts.method, &target, sent) {
            Ok(object) => answer(StatusCode::OK, &object),
            Err(status) => refused(&status),
        }
    }

    fn list(&self, target: &Target) -> Answer {
        let state = self.lock();
        let items = state.objects.iter().filter(|((c, ..), _)| *c == target.collection);
        let items: Vec<&Value> = items.map(|(_, object)| object).collect();
        let meta = json!({ "resourceVersion": state.version.to_string() });
        answer(
            StatusCode::OK,
            &json!({ "kind": "List", "apiVersion": "v1", "metadata": meta, "items": items }),
        )
    }

    fn watch(&self, collection: &str, query: &str) -> Answer {
        let since = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let since: u64 = since.and_then(|text| text.parse().ok()).unwrap_or_default();
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.lock();
        for (_, _, event) in state.history.iter().filter(|(at, c, _)| *at > since && c == collection) {
            sender
                .send((self.env.now() + state.watch_lag, event.clone()))
                .expect("the receiver is in our hands");
        }
        state.watchers.push((collection.to_owned(), sender));
        let frames = stream::unfold((receiver, self.env.clone()), |(mut receiver, env)| async move {
            let (visible, event) = receiver.recv().await?;
            env.sleep_until(visible).await;
            Some((Ok(Frame::data(Bytes::from(format!("{event}\n")))), (receiver, env)))
        });
        Response::new(StreamBody::new(frames.boxed()).boxed_unsync())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn refusal(&mut self, line: &str) -> Option<Value> {
        let refusal = self.refusals.iter_mut().find(|it| it.times > 0 && line.starts_with(&it.request))?;
        refusal.times -= 1;
        Some(refusal.status.clone())
    }

    fn serve(&mut self, env: &Env, method: &Method, target: &Target, sent: Value) -> Result<Value, Value> {
        if *method == Method::POST {
            return self.post(env, target, sent);
        }
        let stored =
            self.objects.get(&target.place()).cloned().ok_or_else(|| status(404, "NotFound", "not found"))?;
        match *method {
            Method::GET => Ok(stored),
            Method::PUT => self.replace(env, target, &stored, sent),
            Method::PATCH => self.patch(env, target, stored, &sent),
            Method::DELETE => self.delete(env, target, stored, &sent),
            _ => Err(status(405, "MethodNotAllowed", "no such method")),
        }
    }

    fn post(&mut self, env: &Env, target: &Target, sent: Value) -> Result<Value, Value> {
        let given = sent["metadata"]["name"].as_str().map(str::to_owned);
        let prefix = sent["metadata"]["generateName"].as_str().unwrap_or_default();
        let prefix = prefix.get(..58).unwrap_or(prefix);
        let name = given.unwrap_or_else(|| format!("{prefix}{:05}", self.identities));
        let target = Target { name, ..target.clone() };
        if self.objects.contains_key(&target.place()) {
            return Err(status(409, "AlreadyExists", "already exists"));
        }
        Ok(self.create(env, &target, sent))
    }

    fn replace(&mut self, env: &Env, target: &Target, stored: &Value, sent: Value) -> Result<Value, Value> {
        for field in ["resourceVersion", "uid"] {
            let sent = &sent["metadata"][field];
            if !sent.is_null() && *sent != stored["metadata"][field] {
                return Err(status(409, "Conflict", "the object has been modified"));
            }
        }
        let mut object = if target.subresource == "status" { stored.clone() } else { sent.clone() };
        object["status"] =
            if target.subresource == "status" { sent["status"].clone() } else { stored["status"].clone() };
        Ok(self.update(env, target, object))
    }

    /// As far as strategic merge patches go here: owner references are merged by UID, all else is merged.
    fn patch(&mut self, env: &Env, target: &Target, mut stored: Value, sent: &Value) -> Result<Value, Value> {
        if sent["metadata"]["uid"] != stored["metadata"]["uid"] {
            return Err(status(422, "Invalid", "metadata.uid: field is immutable"));
        }
        let mut references = stored["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        for change in sent["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            references.retain(|reference| reference["uid"] != change["uid"]);
            if change["$patch"] != "delete" {
                references.push(change.clone());
            }
        }
        stored["metadata"]["ownerReferences"] = json!(references);
        Ok(self.update(env, target, stored))
    }

    fn delete(
        &mut self,
        env: &Env,
        target: &Target,
        mut stored: Value,
        sent: &Value,
    ) -> Result<Value, Value> {
        let uid = &sent["preconditions"]["uid"];
        if !uid.is_null() && *uid != stored["metadata"]["uid"] {
            return Err(status(409, "Conflict", "Precondition failed: UID"));
        }
        if self.graceful && target.collection.ends_with("/pods") {
            stored["metadata"]["deletionTimestamp"] =
                json!(env.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            return Ok(self.update(env, target, stored));
        }
        Ok(self.remove(env, target))
    }

    fn create(&mut self, env: &Env, target: &Target, mut object: Value) -> Value {
        self.identities += 1;
        let meta = &mut object["metadata"];
        meta["name"] = json!(target.name);
        meta["namespace"] = json!(target.namespace);
        meta["uid"] = json!(format!("uid-{}", self.identities));
        meta["generation"] = json!(1);
        if meta["creationTimestamp"].is_null() {
            meta["creationTimestamp"] = json!(env.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
        self.store(env, target, "ADDED", object)
    }

    /// Writing what stands there already is no write.
    fn update(&mut self, env: &Env, target: &Target, mut object: Value) -> Value {
        let Some(stored) = self.objects.get(&target.place()) else { return Value::Null };
        object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        if object == *stored {
            return object;
        }
        if object["spec"] != stored["spec"] {
            object["metadata"]["generation"] =
                json!(stored["metadata"]["generation"].as_u64().unwrap_or_default() + 1);
        }
        self.store(env, target, "MODIFIED", object)
    }

    fn store(&mut self, env: &Env, target: &Target, kind: &str, object: Value) -> Value {
        let object = self.announce(env, &target.collection, kind, object);
        self.objects.insert(target.place(), object.clone());
        object
    }

    fn remove(&mut self, env: &Env, target: &Target) -> Value {
        let removed = self.objects.remove(&target.place()).unwrap_or_default();
        self.announce(env, &target.collection, "DELETED", removed)
    }

    fn announce(&mut self, env: &Env, collection: &str, kind: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let event = json!({ "type": kind, "object": object });
        self.history.push((self.version, collection.to_owned(), event.clone()));
        let visible = env.now() + self.watch_lag;
        self.watchers.retain(|(watched, sender)| {
            watched != collection || sender.send((visible, event.clone())).is_ok()
        });
        object
    }
}

impl Service<Request<Body>> for Api {
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

/// A refusal, as the API writes it.
pub(super) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    })
}

/// The refusal of a create in a namespace on its way out.
pub(super) fn namespace_terminating() -> Value {
    let mut status = status(403, "Forbidden", "the namespace is being terminated");
    status["details"] = json!({ "causes": [{ "reason": "NamespaceTerminating" }] });
    status
}

/// Merges fields; `null` takes one away.
fn merge(into: &mut Value, patch: &Value) {
    match (into.as_object_mut(), patch.as_object()) {
        (Some(into), Some(patch)) => {
            for (name, value) in patch {
                match value {
                    Value::Null => drop(into.remove(name)),
                    value => merge(into.entry(name.clone()).or_insert(Value::Null), value),
                }
            }
        }
        _ => *into = patch.clone(),
    }
}

fn refused(status: &Value) -> Answer {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code =
        code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer(code, status)
}

fn answer(code: StatusCode, body: &Value) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = code;
    response
}
