//! Webhooks of the behaviors: functions at paths, which the server under test calls.
//!
//! Guarantees: each behavior has its own paths. The listener for a real server is on a loopback address, with a
//! certificate that only its `caBundle` covers, and closes with [`WebhookListener`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The reply of a webhook.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Fields of the `response` of the review. The UID of the request is added.
    Response(Value),
    /// Another response: status code, media type and body.
    Http(u16, &'static str, String),
    /// No response within the time limit of the caller.
    Late,
}

type Webhook = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

/// The webhooks of all behaviors on one server, by path.
#[derive(Clone, Default)]
pub struct Webhooks {
    functions: Arc<Mutex<BTreeMap<String, Webhook>>>,
    url: String,
    ca_bundle: String,
}

impl Webhooks {
    /// Returns webhooks at this URL, such as `https://127.0.0.1:9443`, without a certificate.
    #[must_use]
    pub fn at(url: &str) -> Webhooks {
        Webhooks { url: url.to_owned(), ..Webhooks::default() }
    }

    /// Adds a webhook, and returns its client configuration.
    pub fn add(&self, path: &str, webhook: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Value {
        self.functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(path.to_owned(), Arc::new(webhook));
        let mut client = json!({ "url": format!("{}{path}", self.url) });
        if !self.ca_bundle.is_empty() {
            client["caBundle"] = json!(STANDARD.encode(&self.ca_bundle));
        }
        client
    }

    /// Responds to a request of the server under test.
    pub async fn respond(&self, path: &str, body: &[u8]) -> Response<Bytes> {
        let webhook = self.functions.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        let review: Value = serde_json::from_slice(body).unwrap_or_default();
        match webhook.map(|webhook| webhook(&review)) {
            None => response(404, "text/plain", format!("no webhook at {path}")),
            Some(Reply::Http(code, kind, body)) => response(code, kind, body),
            Some(Reply::Late) => {
                tokio::time::sleep(Duration::from_secs(40)).await;
                response(500, "text/plain", "late".to_owned())
            }
            Some(Reply::Response(mut fields)) => {
                if fields["uid"].is_null() {
                    fields["uid"] = review["request"]["uid"].clone();
                }
                let (version, kind) = (&review["apiVersion"], &review["kind"]);
                let body = json!({ "apiVersion": version, "kind": kind, "response": fields });
                response(200, "application/json", body.to_string())
            }
        }
    }

    /// Serves webhooks for a real server on this machine.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot be created or no port is free.
    pub async fn listen() -> Result<(Webhooks, WebhookListener)> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.self_signed(&key)?;
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port for webhooks")?;
        let url = format!("https://{}", listener.local_addr()?);
        let webhooks = Webhooks { url, ca_bundle: certificate.pem(), ..Webhooks::default() };
        let accepting = accept(listener, TlsAcceptor::from(Arc::new(config)), webhooks.clone());
        Ok((webhooks, WebhookListener(tokio::spawn(accepting))))
    }
}

/// Serves webhooks until it is dropped.
#[derive(Debug)]
pub struct WebhookListener(JoinHandle<()>);

impl Drop for WebhookListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn response(code: u16, kind: &str, body: String) -> Response<Bytes> {
    let response = Response::builder().status(code).header(header::CONTENT_TYPE, kind);
    response.body(Bytes::from(body)).unwrap_or_else(|error| panic!("invalid reply of a webhook: {error}"))
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, webhooks: Webhooks) {
    while let Ok((socket, _)) = listener.accept().await {
        let (tls, webhooks) = (tls.clone(), webhooks.clone());
        tokio::spawn(async move {
            let respond = service_fn(move |request: Request<Incoming>| {
                let webhooks = webhooks.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await?.to_bytes();
                    Ok::<_, hyper::Error>(webhooks.respond(&path, &body).await.map(Full::new))
                }
            });
            // A client can close its connection at any time.
            if let Ok(socket) = tls.accept(socket).await {
                drop(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), respond)
                        .await,
                );
            }
        });
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhooks").field("url", &self.url).finish_non_exhaustive()
    }
}
