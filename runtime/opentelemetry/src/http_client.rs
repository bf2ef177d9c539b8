//! The HTTP client of the exporter: hyper and rustls, like the client of the API server.
//!
//! The thread of the exporter blocks on each request. The client therefore has its own runtime, so that neither the
//! worker threads of the process nor a blocked export delays the other.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_TRACES_TIMEOUT};
use tokio::runtime::{Builder, Runtime};
use windlass_env::Env;

/// Maximum size of a response, which contains at most an error message.
const MAX_RESPONSE: usize = 1 << 20;

/// The default time limit of an export, from the specification of OpenTelemetry.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client for requests to the collector.
pub(crate) struct CollectorClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    env: Env,
    timeout: Duration,
    runtime: Runtime,
}

impl CollectorClient {
    pub(crate) fn new(env: &Env) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let connector = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider)?;
        let client =
            Client::builder(TokioExecutor::new()).build(connector.https_or_http().enable_http1().build());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { client, env: env.clone(), timeout: timeout(), runtime })
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = self.client.request(request.map(Full::new)).await?.into_parts();
        let body = Limited::new(body, MAX_RESPONSE).collect().await?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

/// Returns the time limit in the environment, in milliseconds as the specification requires.
fn timeout() -> Duration {
    let variables = [OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT];
    let millis = variables.into_iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
    millis.map_or(TIMEOUT, Duration::from_millis)
}

impl fmt::Debug for CollectorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectorClient").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        self.runtime.block_on(async {
            let sent = self.env.timeout(self.timeout, self.send(request)).await;
            sent.unwrap_or_else(|_| Err(format!("no response within {:?}", self.timeout).into()))
        })
    }
}
