//! Requests from the server to webhooks, which run in the same process.
//!
//! Guarantees:
//! - A webhook that no handler serves is unreachable, with upstream's error message.
//! - A call that takes longer than its time limit fails. The clock of the server measures it.
//!
//! Non-goals: sockets and TLS. The server ignores the `caBundle` of a client configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode, Uri, header};
use serde_json::Value;
use windlass_env::Env;

/// A function that responds to the requests for webhooks at one address. An error is the reason why the server did not
/// receive a response, such as `connection reset by peer`.
pub type WebhookHandler =
    Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, String>> + Send + Sync>;

/// The port of a client configuration without port.
const PORT: i64 = 443;

/// The handlers, by address.
#[derive(Default)]
pub(crate) struct WebhookHandlers(Mutex<BTreeMap<String, WebhookHandler>>);

/// The address of a webhook, from its client configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WebhookAddress {
    /// Host and port.
    authority: String,
    /// URL without query.
    url: String,
    /// Name of the Service, unless the configuration contains a URL.
    service: Option<String>,
}

impl WebhookHandlers {
    /// Serves the webhooks at an address with this handler; `None` stops to serve them.
    pub(crate) fn serve(&self, authority: &str, handler: Option<WebhookHandler>) {
        let mut handlers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match handler {
            Some(handler) => handlers.insert(authority.to_owned(), handler),
            None => handlers.remove(authority),
        };
    }

    fn at(&self, authority: &str) -> Option<WebhookHandler> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(authority).cloned()
    }

    /// Sends a review to a webhook, and returns the decoded response. `rest` is the time until the deadline of the
    /// request to the server.
    ///
    /// # Errors
    /// The upstream message of the HTTP client.
    pub(crate) async fn send(
        &self,
        env: &Env,
        address: &WebhookAddress,
        review: &Value,
        limit: Duration,
        rest: Duration,
    ) -> Result<Value, String> {
        let stated = limit.min(rest).as_nanos().div_ceil(Duration::from_secs(1).as_nanos());
        let url = format!("{}?timeout={stated}s", address.url);
        let failed = |why: String| format!("Post {url:?}: {why}");
        let Some(handler) = self.at(&address.authority) else {
            return Err(failed(address.unreachable()));
        };
        let request = Request::post(&url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Bytes::from(review.to_string()))
            .map_err(|error| failed(error.to_string()))?;
        match env.timeout(limit, handler(request)).await {
            Err(_) => Err(failed("context deadline exceeded".to_owned())),
            Ok(Err(why)) => Err(failed(why)),
            Ok(Ok(response)) => decoded(&response),
        }
    }
}

impl WebhookAddress {
    /// Returns the address in a client configuration.
    pub(crate) fn of(client: &Value) -> WebhookAddress {
        let service = &client["service"];
        let text = |field: &str| service[field].as_str().unwrap_or_default();
        if service.is_object() {
            let port = service["port"].as_i64().unwrap_or(PORT);
            let authority = format!("{}.{}.svc:{port}", text("name"), text("namespace"));
            let path = if text("path").is_empty() { "/" } else { text("path") };
            let url = format!("https://{authority}{path}");
            return WebhookAddress { authority, url, service: Some(text("name").to_owned()) };
        }
        let url = client["url"].as_str().unwrap_or_default().to_owned();
        let parsed = url.parse::<Uri>().unwrap_or_default();
        let host = parsed.host().unwrap_or_default();
        let port = parsed.port_u16().map_or(PORT, i64::from);
        WebhookAddress { authority: format!("{host}:{port}"), url, service: None }
    }

    fn unreachable(&self) -> String {
        match &self.service {
            Some(name) => format!("service {name:?} not found"),
            None => format!("dial tcp {}: connect: connection refused", self.authority),
        }
    }
}

/// Decodes a response as upstream's client does.
fn decoded(response: &Response<Bytes>) -> Result<Value, String> {
    let (status, body) = (response.status(), response.body());
    let value = serde_json::from_slice::<Value>(body);
    if status.is_success() {
        return value.map_err(|error| format!("couldn't get version/kind; json parse error: {error}"));
    }
    if let Ok(value) = &value
        && value["kind"] == "Status"
        && value["status"] == "Failure"
    {
        return Err(value["message"].as_str().unwrap_or_default().to_owned());
    }
    let is_text =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|it| it.as_bytes().starts_with(b"text/"));
    let text = if is_text { String::from_utf8_lossy(body).trim().to_owned() } else { "unknown".to_owned() };
    Err(refusal(status, &text))
}

/// Returns upstream's message for a response without a `Status`.
fn refusal(status: StatusCode, text: &str) -> String {
    let known = match status.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 415 => text,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            return format!("an error on the server ({text:?}) has prevented the request from succeeding");
        }
        code => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    known.to_owned()
}

impl fmt::Debug for WebhookHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handlers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("WebhookHandlers").field(&handlers.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn address_is_read_from_service_or_url() {
        let service = json!({"service": {"name": "w", "namespace": "ops", "path": "/a"}});
        let address = WebhookAddress::of(&service);
        assert_eq!(address.url, "https://w.ops.svc:443/a");
        assert_eq!(address.unreachable(), "service \"w\" not found");
        let bare = json!({"service": {"name": "w", "namespace": "ops", "port": 8443}});
        assert_eq!(WebhookAddress::of(&bare).url, "https://w.ops.svc:8443/");
        let address = WebhookAddress::of(&json!({"url": "https://127.0.0.1:9443/a"}));
        assert_eq!(address.authority, "127.0.0.1:9443");
        assert_eq!(WebhookAddress::of(&json!({"url": "https://example.com/a"})).authority, "example.com:443");
    }

    #[test]
    fn response_without_success_becomes_message_of_client() {
        let response = |code: u16, kind: &str, body: &'static str| {
            let response = Response::builder().status(code).header(header::CONTENT_TYPE, kind);
            decoded(&response.body(Bytes::from_static(body.as_bytes())).unwrap())
        };
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}"#;
        assert_eq!(response(500, "application/json", status), Err("no".to_owned()));
        let why = r#"an error on the server ("broken") has prevented the request from succeeding"#;
        assert_eq!(response(500, "text/plain", "broken\n"), Err(why.to_owned()));
        let why = "the server could not find the requested resource";
        assert_eq!(response(404, "text/plain", "404"), Err(why.to_owned()));
        assert_eq!(response(200, "application/json", "{}"), Ok(json!({})));
    }
}
