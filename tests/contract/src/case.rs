//! Environment of one behavior: a server, its own namespace, and helpers for requests.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::test_server::{TestRequest, TestResponse, TestServer, Watch};

/// Timeout of waits, for machines that are busy building.
const TIMEOUT: Duration = Duration::from_secs(50);

/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The media types of patches.
pub mod patch {
    /// RFC 6902.
    pub const JSON: &str = "application/json-patch+json";
    /// RFC 7386.
    pub const MERGE: &str = "application/merge-patch+json";
    /// Strategic merge patch.
    pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
    /// Server-side apply.
    pub const APPLY: &str = "application/apply-patch+yaml";
}

/// A server, and a namespace that no other case uses.
///
/// Paths have three forms: `/healthz` is used unchanged, `pods/web` is in the core group and this namespace, and
/// `apps/v1 deployments/web` is in that group version and this namespace. In each form, `{ns}` is replaced by the
/// namespace.
#[derive(Clone, Debug)]
pub struct Case {
    /// Server under test.
    pub server: TestServer,
    /// Namespace of the case.
    pub namespace: String,
}

impl Case {
    /// Returns a case in a new namespace.
    pub(crate) async fn fresh(server: &TestServer) -> Result<Case> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("contract-{}-{number}", std::process::id());
        let case = Case { server: server.clone(), namespace };
        case.make("/api/v1/namespaces", json!({ "metadata": { "name": case.namespace } })).await?;
        Ok(case)
    }

    /// Returns a unique name for a cluster-scoped object.
    #[must_use]
    pub fn unique(&self, prefix: &str) -> String {
        format!("{prefix}-{}", self.namespace)
    }

    fn resolve(&self, path: &str) -> String {
        let namespace = &self.namespace;
        let (place, query) = match path.split_once('?') {
            Some((place, query)) => (place, format!("?{}", query.replace(' ', "%20"))),
            None => (path, String::new()),
        };
        let place = match place.split_once(' ') {
            _ if place.starts_with('/') => place.to_owned(),
            Some((version, rest)) => format!("/apis/{version}/namespaces/{namespace}/{rest}"),
            None => format!("/api/v1/namespaces/{namespace}/{place}"),
        };
        format!("{place}{query}").replace("{ns}", namespace)
    }

    /// Sends a request.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Result<TestResponse> {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let request = TestRequest { method, path: self.resolve(path), headers, body: body.into() };
        self.repeated(&request, |_| true).await
    }

    /// Repeats a request until the response satisfies `condition`, and the storage of the kind is initialized.
    async fn repeated(
        &self,
        request: &TestRequest,
        condition: impl Fn(&TestResponse) -> bool,
    ) -> Result<TestResponse> {
        let poll = async {
            loop {
                let answer = self.server.send(request.clone()).await?;
                if !answer.is_initializing() && condition(&answer) {
                    return Ok(answer);
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(TIMEOUT, poll)
            .await
            .with_context(|| format!("{}: condition was not met in time", request.path))?
    }

    /// Sends a GET request.
    pub async fn get(&self, path: &str) -> Result<TestResponse> {
        self.send(Method::GET, path, &[], Vec::new()).await
    }

    /// Sends a GET request for a media type.
    pub async fn get_as(&self, accept: &str, path: &str) -> Result<TestResponse> {
        self.send(Method::GET, path, &[("accept", accept)], Vec::new()).await
    }

    /// Sends a POST request with a JSON body.
    pub async fn post(&self, path: &str, body: Value) -> Result<TestResponse> {
        self.send(Method::POST, path, &[JSON], body.to_string()).await
    }

    /// Sends a PUT request with a JSON body.
    pub async fn put(&self, path: &str, body: Value) -> Result<TestResponse> {
        self.send(Method::PUT, path, &[JSON], body.to_string()).await
    }

    /// Sends a PATCH request of one of the four types.
    pub async fn patch(&self, kind: &str, path: &str, body: Value) -> Result<TestResponse> {
        self.send(Method::PATCH, path, &[("content-type", kind)], body.to_string()).await
    }

    /// Sends a server-side apply request.
    pub async fn apply(&self, manager: &str, path: &str, body: Value) -> Result<TestResponse> {
        self.patch(patch::APPLY, &format!("{path}?fieldManager={manager}"), body).await
    }

    /// Sends a DELETE request without options.
    pub async fn delete(&self, path: &str) -> Result<TestResponse> {
        self.send(Method::DELETE, path, &[], Vec::new()).await
    }

    /// Sends a DELETE request with `DeleteOptions`.
    pub async fn delete_with(&self, path: &str, mut options: Value) -> Result<TestResponse> {
        options["apiVersion"] = json!("v1");
        options["kind"] = json!("DeleteOptions");
        self.send(Method::DELETE, path, &[JSON], options.to_string()).await
    }

    /// Starts a watch. `path` can have a query, without `watch=true`.
    pub async fn watch(&self, path: &str) -> Result<Watch> {
        self.watch_as("application/json", path).await
    }

    /// Starts a watch for a media type.
    pub async fn watch_as(&self, accept: &str, path: &str) -> Result<Watch> {
        let joint = if path.contains('?') { '&' } else { '?' };
        let path = self.resolve(&format!("{path}{joint}watch=true"));
        let headers = vec![("accept", accept.to_owned())];
        self.server.watch(TestRequest { method: Method::GET, path, headers, body: Vec::new() }).await
    }

    /// Creates an object that must be accepted, and returns it.
    pub async fn make(&self, path: &str, body: Value) -> Result<Value> {
        self.post(path, body).await?.is(201)
    }

    /// Reads an object that must exist, and returns it.
    pub async fn read(&self, path: &str) -> Result<Value> {
        self.get(path).await?.is(200)
    }

    /// Replaces an object; the request must be accepted. Returns the new object.
    pub async fn replace(&self, path: &str, body: Value) -> Result<Value> {
        self.put(path, body).await?.is(200)
    }

    /// Sends a merge patch that must be accepted, and returns the new object.
    pub async fn merge(&self, path: &str, body: Value) -> Result<Value> {
        self.patch(patch::MERGE, path, body).await?.is(200)
    }

    /// Repeats a GET request until the response satisfies `condition`, and returns the response.
    pub async fn until(&self, path: &str, condition: impl Fn(&TestResponse) -> bool) -> Result<TestResponse> {
        let (path, headers, body) = (self.resolve(path), Vec::new(), Vec::new());
        self.repeated(&TestRequest { method: Method::GET, path, headers, body }, condition).await
    }
}

const JSON: (&str, &str) = ("content-type", "application/json");

impl TestResponse {
    /// Returns whether kube-apiserver still starts the storage of a kind, as after each change of a CRD.
    fn is_initializing(&self) -> bool {
        self.status == 429 && self.body["message"] == "storage is (re)initializing"
    }

    /// Returns the body if the status is `status`.
    ///
    /// # Errors
    /// Returns an error for any other status.
    pub fn is(self, status: u16) -> Result<Value> {
        ensure!(
            self.status == status,
            "{}: expected {status}, got {}: {}",
            self.request,
            self.status,
            self.body
        );
        Ok(self.body)
    }

    /// Returns the details of an error response with exactly this code, reason and message.
    ///
    /// # Errors
    /// Returns an error for any other response.
    pub fn expect_rejected(self, code: u16, reason: &str, message: &str) -> Result<Value> {
        let details = self.clone().expect_rejected_with_reason(code, reason)?;
        let said = &self.body["message"];
        ensure!(said == message, "{}: message\n  expected {message:?}\n  got      {said}", self.request);
        Ok(details)
    }

    /// Returns the details of an error response with this code and reason, whose message contains `words`.
    ///
    /// # Errors
    /// Returns an error for any other response.
    pub fn expect_rejected_containing(self, code: u16, reason: &str, words: &str) -> Result<Value> {
        let details = self.clone().expect_rejected_with_reason(code, reason)?;
        let said = self.body["message"].as_str().unwrap_or_default();
        ensure!(
            said.contains(words),
            "{}: message\n  expected ..{words:?}..\n  got      {said:?}",
            self.request
        );
        Ok(details)
    }

    /// Returns the details of an error response with this code and reason.
    ///
    /// # Errors
    /// Returns an error for any other response.
    pub fn expect_rejected_with_reason(self, code: u16, reason: &str) -> Result<Value> {
        let request = &self.request;
        ensure!(
            self.status == code,
            "{request}: expected {code} {reason}, got {}: {}",
            self.status,
            self.body
        );
        let kind = (&self.body["kind"], &self.body["apiVersion"], &self.body["status"]);
        ensure!(
            *kind.0 == "Status" && *kind.1 == "v1" && *kind.2 == "Failure",
            "{request}: not an error Status: {}",
            self.body
        );
        ensure!(self.body["code"] == code, "{request}: expected code {code}, got {}", self.body);
        let said = self.body["reason"].as_str().unwrap_or_default();
        ensure!(said == reason, "{request}: expected reason {reason:?}, got {}", self.body);
        Ok(self.body["details"].clone())
    }

    /// Returns the warnings in the response, without code and agent.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let values = self.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok());
        let text = |value: &str| {
            let quoted = value.trim_start_matches("299 - ");
            quoted.strip_prefix('"')?.strip_suffix('"').map(|it| it.replace("\\\"", "\""))
        };
        values.filter_map(text).collect()
    }

    /// Returns the media type.
    #[must_use]
    pub fn media_type(&self) -> &str {
        self.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}
