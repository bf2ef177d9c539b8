//! Records the last write of each controller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::{Method, Request, header};
use tower::{Layer, Service};

/// The last write of each controller, by its name.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastActions(Arc<Mutex<BTreeMap<String, String>>>);

impl LastActions {
    /// Returns the last write of a controller.
    pub(crate) fn last(&self, controller: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(controller).cloned()
    }

    fn record<B>(&self, request: &Request<B>) {
        let agent = request.headers().get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let controller = agent.and_then(|agent| agent.rsplit('/').next());
        if let (Some(controller), Some(action)) = (controller, last_action(request)) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(controller.to_owned(), action);
        }
    }
}

/// Describes a write briefly; `None` for reads and for Events.
fn last_action<B>(request: &Request<B>) -> Option<String> {
    let verb = match *request.method() {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return None,
    };
    let path = request.uri().path();
    let object = path.split_once("/namespaces/").map_or_else(|| cluster_wide(path), |(_, object)| object);
    (!object.ends_with("/events") && !object.contains("/events/")).then(|| format!("{verb} {object}"))
}

/// Returns the part of a cluster-scoped path after group and version.
fn cluster_wide(path: &str) -> &str {
    let skipped = if path.starts_with("/api/") { 3 } else { 4 };
    path.splitn(skipped + 1, '/').last().unwrap_or(path)
}

impl<S> Layer<S> for LastActions {
    type Service = RecordActions<S>;

    fn layer(&self, inner: S) -> RecordActions<S> {
        RecordActions { actions: self.clone(), inner }
    }
}

/// Records requests before they are sent to `inner`.
#[derive(Clone, Debug)]
pub(crate) struct RecordActions<S> {
    actions: LastActions,
    inner: S,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for RecordActions<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        self.actions.record(&request);
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, path: &str) -> Request<()> {
        let agent = "windlass/0.1.0/replicaset-controller";
        let request = Request::builder().method(method).uri(path).header(header::USER_AGENT, agent);
        request.body(()).expect("a request")
    }

    #[test]
    fn writes_are_recorded_by_controller_without_reads_and_events() {
        let actions = LastActions::default();
        actions.record(&request(Method::DELETE, "/api/v1/namespaces/default/pods/web-1"));
        actions.record(&request(Method::GET, "/api/v1/namespaces/default/pods/web-2"));
        actions.record(&request(Method::POST, "/api/v1/namespaces/default/events"));
        let last = actions.last("replicaset-controller");
        assert_eq!(last.as_deref(), Some("delete default/pods/web-1"));
        assert_eq!(actions.last("endpoints-controller"), None);
    }

    #[test]
    fn cluster_scoped_objects_are_named_without_their_group() {
        assert_eq!(
            last_action(&request(Method::PUT, "/api/v1/nodes/a/status")).as_deref(),
            Some("update nodes/a/status")
        );
        let group = "/apis/storage.k8s.io/v1/csinodes";
        assert_eq!(last_action(&request(Method::POST, group)).as_deref(), Some("create csinodes"));
    }
}
