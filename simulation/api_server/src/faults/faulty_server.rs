//! One server and one link to it, with direct access to both: the environment of a single controller under test.
//!
//! Guarantees:
//! - Direct changes of the cluster take effect before the call returns; they take no time and do not use the link.
//! - Faults injected by hand affect only traffic on the link.
//!
//! Non-goals: running whole processes and long histories, which the simulation does.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use windlass_env::Env;

use super::journal::{Journal, RecordKind};
use super::link::Link;
use super::network::Network;
use super::plan::{FaultAction, FaultPlan};
use super::request_summary::RequestSummary;
use super::server::Server as _;
use crate::server::{ApiServer, ApiServerOptions};
use crate::storage::{Change, Collection, Key, Precondition};

/// More records than a test of one controller produces.
const RECORDS: usize = 1_000_000;

/// A server and a link to it. Clones share both.
#[derive(Clone, Debug)]
pub struct FaultyServer {
    server: ApiServer,
    journal: Journal,
    link: Link,
}

impl FaultyServer {
    /// Creates a server with an empty cluster in `env`, behind a link with the faults of `plan`.
    ///
    /// # Panics
    /// If this `env` already has such a server: both would use the same random numbers.
    pub fn new(env: &Env, plan: FaultPlan) -> FaultyServer {
        FaultyServer::with(env, plan, ApiServerOptions::default())
    }

    /// Creates a server with custom options; see [`new`](Self::new).
    ///
    /// # Panics
    /// If this `env` already has such a server: both would use the same random numbers.
    pub fn with(env: &Env, plan: FaultPlan, options: ApiServerOptions) -> FaultyServer {
        let server = ApiServer::new(env, options);
        let journal = Journal::new(RECORDS, None);
        let network = Network::new(env, Arc::new(server.clone()), plan, journal.clone());
        FaultyServer { server, journal, link: network.link(env) }
    }

    /// Returns the link for clients.
    pub fn link(&self) -> Link {
        self.link.clone()
    }

    /// Injects faults by hand from now on; see [`Link::inject_fault`].
    pub fn inject_fault(&self, choose: impl FnMut(&RequestSummary) -> Option<FaultAction> + Send + 'static) {
        self.link.inject_fault(choose);
    }

    /// Returns the requests sent so far, in order.
    pub fn sent_requests(&self) -> Vec<Arc<RequestSummary>> {
        self.pick(|kind| if let RecordKind::Sent { request, .. } = kind { Some(request) } else { None })
    }

    /// Returns the requests that the server has answered so far, in order. Their effects are complete.
    pub fn served_requests(&self) -> Vec<Arc<RequestSummary>> {
        self.pick(|kind| if let RecordKind::Served { request, .. } = kind { Some(request) } else { None })
    }

    /// Sends one request past the link and returns status code and body. Patches are merge patches.
    ///
    /// # Panics
    /// If the path is invalid, or the response is not immediate, as with a watch.
    pub fn request(&self, method: &Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        let answered = self.server.answer(request.body(body).expect("a path")).now_or_never();
        let (parts, body) = answered.expect("an answer that takes no time").into_parts();
        let body = body.collect().now_or_never().expect("a body that takes no time");
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        (parts.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Creates the object, or merges it into the existing one (`null` removes a field), as users and other
    /// controllers would. Also writes its status.
    ///
    /// # Panics
    /// If the server rejects the write.
    pub fn upsert(&self, path: &str, mut object: Value) -> Value {
        let status = object.get("status").cloned();
        let (code, mut written) = self.request(&Method::PATCH, path, Some(&object));
        if code == 404 {
            let (collection, name) = path.rsplit_once('/').unwrap_or_default();
            object["metadata"]["name"] = json!(name);
            self.identify(path, &mut object);
            written = expect_success(path, self.request(&Method::POST, collection, Some(&object)));
        } else {
            written = expect_success(path, (code, written));
        }
        if let Some(status) = status {
            let (path, status) = (format!("{path}/status"), json!({ "status": status }));
            written = expect_success(&path, self.request(&Method::PATCH, &path, Some(&status)));
        }
        written
    }

    /// Sets the version and the kind of a custom object, which the server requires.
    fn identify(&self, path: &str, object: &mut Value) {
        let (parts, ()) = Request::get(path).body(()).expect("a path").into_parts();
        let plural = RequestSummary::of(&parts).resource.clone();
        let ["", "apis", group, version, ..] = path.split('/').collect::<Vec<_>>()[..] else { return };
        let catalog = self.server.catalog();
        let Some(resource) = catalog.resource(group, version, &plural) else { return };
        for (field, text) in [("apiVersion", format!("{group}/{version}")), ("kind", resource.kind.clone())] {
            if object[field].is_null() {
                object[field] = json!(text);
            }
        }
    }

    /// Changes a stored object without validation, to simulate an object that another server version has written.
    ///
    /// # Panics
    /// If there is no such object, or the result is not a valid object.
    pub fn overwrite_unchecked(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let (parts, ()) = Request::get(path).body(()).expect("a path").into_parts();
        let at = RequestSummary::of(&parts);
        let collection = Collection::new(&*at.group, &*at.resource);
        let (storage, key) = (self.server.view().storage(), Key::new(&*at.namespace, &*at.name));
        let stored =
            storage.get(&collection, &key).unwrap_or_else(|| panic!("cannot read {path}: it does not exist"));
        let mut object = Value::clone(&stored.value);
        change(&mut object);
        let expected = Precondition::Revision(stored.revision);
        let overwritten = storage.commit(&collection, &key, expected, Change::Put(object));
        overwritten.unwrap_or_else(|error| panic!("cannot overwrite {path}: {error}"));
    }

    /// Returns the revision of the latest write.
    pub fn revision(&self) -> u64 {
        self.server.view().storage().revision()
    }

    /// Restores the server to its state at a revision, as from a backup. Later writes are undone, and open watches
    /// end.
    ///
    /// # Panics
    /// If the server does not keep that revision.
    pub fn restore(&self, revision: u64) {
        let restored = self.server.view().storage().restore(revision);
        restored.unwrap_or_else(|error| panic!("cannot restore revision {revision}: {error}"));
    }

    /// Sends a delete request, as users do. An object with finalizers remains and is terminating.
    ///
    /// # Panics
    /// If the server rejects the request.
    pub fn delete(&self, path: &str) {
        expect_success(path, self.request(&Method::DELETE, path, None));
    }

    /// Deletes an object with a grace period of zero, as its node does.
    ///
    /// # Panics
    /// If the server rejects the request.
    pub fn remove(&self, path: &str) {
        expect_success(path, self.request(&Method::DELETE, path, Some(&json!({ "gracePeriodSeconds": 0 }))));
    }

    /// Returns the object, if it exists.
    pub fn object(&self, path: &str) -> Option<Value> {
        let (code, object) = self.request(&Method::GET, path, None);
        (code == 200).then_some(object)
    }

    /// Returns the objects of a collection, such as `/api/v1/pods`, by namespace and name.
    ///
    /// # Panics
    /// If there is no such collection.
    pub fn all(&self, path: &str) -> Vec<Value> {
        let list = expect_success(path, self.request(&Method::GET, path, None));
        list["items"].as_array().cloned().unwrap_or_default()
    }

    fn pick(&self, of: impl Fn(RecordKind) -> Option<Arc<RequestSummary>>) -> Vec<Arc<RequestSummary>> {
        self.journal.records().into_iter().filter_map(|record| of(record.kind)).collect()
    }
}

fn expect_success(path: &str, (code, body): (u16, Value)) -> Value {
    assert!(code < 300, "request to {path} failed: {body}");
    body
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, WatchParams};

    use super::*;

    const MAP: &str = "/api/v1/namespaces/default/configmaps/a";

    fn fixture() -> (Env, FaultyServer, Api<ConfigMap>) {
        let env = Env::virtual_time(1);
        let server = FaultyServer::new(&env, FaultPlan::without_faults(1));
        let maps = Api::namespaced(kube::Client::new(server.link(), "default"), "default");
        (env, server, maps)
    }

    // parity: testing-fake
    #[tokio::test(start_paused = true)]
    async fn faulty_server_changes_take_effect_immediately_without_link() {
        let (env, server, _) = fixture();
        assert_eq!(server.upsert(MAP, json!({ "data": { "a": "1", "b": "1" } }))["metadata"]["name"], "a");
        server.upsert(MAP, json!({ "data": { "a": "2", "b": null } }));
        server.overwrite_unchecked(MAP, |map| map["immutable"] = json!("perhaps"));
        let map = server.object(MAP).expect("the map");
        assert_eq!((&map["data"], &map["immutable"]), (&json!({ "a": "2" }), &json!("perhaps")));
        assert_eq!(server.all("/api/v1/configmaps").len(), 1);
        server.remove(MAP);
        assert_eq!(server.object(MAP), None);
        assert_eq!((env.now().since_origin(), server.sent_requests().len()), (Duration::ZERO, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn restore_ends_watches_before_they_send_events_of_reassigned_versions() {
        let (env, server, maps) = fixture();
        server.upsert(MAP, json!({ "data": { "a": "1" } }));
        let backup = server.revision();
        server.upsert(MAP, json!({ "data": { "a": "2" } }));
        let held = server.revision().to_string();
        let events = maps.watch(&WatchParams::default().disable_bookmarks(), &held).await;
        let mut events = events.expect("watching").boxed();
        assert!(env.timeout(Duration::from_secs(1), events.next()).await.is_err(), "there is no newer event");
        server.restore(backup);
        assert_eq!(server.object(MAP).expect("the map")["data"], json!({ "a": "1" }));
        for value in ["3", "4"] {
            server.upsert(MAP, json!({ "data": { "a": value } }));
        }
        let end = env.timeout(Duration::from_secs(1), events.next()).await;
        assert!(matches!(end, Ok(None)), "the watch ends without an event: {end:?}");
    }

    // parity: testing-fake
    #[tokio::test(start_paused = true)]
    async fn faults_injected_by_hand_affect_only_chosen_requests() {
        let (_, server, maps) = fixture();
        server.upsert(MAP, json!({}));
        let mut left = 1;
        server.inject_fault(move |request| {
            let hit = left > 0 && request.is_write();
            left -= i32::from(hit);
            hit.then_some(FaultAction::Forbidden)
        });
        assert!(maps.get("a").await.is_ok());
        let refused = maps.delete("a", &Default::default()).await.expect_err("by hand");
        assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
        assert!(maps.delete("a", &Default::default()).await.is_ok());
        let lines =
            |all: Vec<Arc<RequestSummary>>| all.iter().map(|request| request.line()).collect::<Vec<_>>();
        let (get, delete) = (format!("GET {MAP}"), format!("DELETE {MAP}"));
        assert_eq!(lines(server.sent_requests()), [get.clone(), delete.clone(), delete.clone()]);
        assert_eq!(
            lines(server.served_requests()),
            [get, delete],
            "a rejected request never reached the server"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn open_watch_is_delayed_and_ended_by_injected_fault() {
        let (env, server, maps) = fixture();
        let events = maps.watch(&WatchParams::default().disable_bookmarks(), "0").await;
        let mut events = events.expect("watching").boxed();
        server
            .inject_fault(|request| request.is_watch().then_some(FaultAction::Coalesced { within_ms: 7000 }));
        server.upsert(MAP, json!({}));
        assert!(env.timeout(Duration::from_millis(6999), events.next()).await.is_err());
        assert!(env.timeout(Duration::from_millis(10), events.next()).await.is_ok());
        server.inject_fault(|request| request.is_watch().then_some(FaultAction::WatchClosed));
        server.remove(MAP);
        let end = env.timeout(Duration::from_secs(1), events.next()).await;
        assert!(matches!(end, Ok(None)), "the watch ends instead of the event: {end:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn partitioned_link_breaks_watches_and_loses_requests_until_healed() {
        let (env, server, maps) = fixture();
        let events = maps.watch(&WatchParams::default().disable_bookmarks(), "0").await;
        let mut events = events.expect("watching").boxed();
        server.link().partition();
        server.upsert(MAP, json!({}));
        let end = env.timeout(Duration::from_secs(1), events.next()).await;
        assert!(matches!(end, Ok(Some(Err(_)))), "the watch breaks instead of the event: {end:?}");
        assert!(
            env.timeout(Duration::from_secs(60), maps.get("a")).await.is_err(),
            "a partitioned link delivers no response"
        );
        server.link().heal();
        assert!(maps.get("a").await.is_ok());
        assert!(events.next().await.is_none(), "a broken watch stays broken");
    }
}
