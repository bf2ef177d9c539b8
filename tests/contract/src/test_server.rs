//! The server under test as raw HTTP: method, path, headers and body in; status, headers and JSON out.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

use crate::webhooks::Webhooks;

/// Timeout for the next frame of a watch, for machines that are busy building.
const SILENCE: Duration = Duration::from_secs(20);

/// User agent of the requests; the part before the slash is the default field manager.
pub const USER_AGENT: &str = "contract/1.0";

/// A server under test.
#[derive(Clone)]
pub struct TestServer {
    client: Client,
    compact: Option<Arc<dyn Fn() + Send + Sync>>,
    exclusive: Arc<Mutex<()>>,
    webhooks: Webhooks,
}

impl fmt::Debug for TestServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestServer")
            .field("compacts_on_request", &self.compact.is_some())
            .finish_non_exhaustive()
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct TestRequest {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Headers in addition to those of every request.
    pub headers: Vec<(&'static str, String)>,
    /// Unmodified body.
    pub body: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct TestResponse {
    /// HTTP status code.
    pub status: u16,
    /// Response headers.
    pub headers: HeaderMap,
    /// Body as JSON; a body that is not JSON is a string.
    pub body: Value,
    /// Length of the body in bytes.
    pub length: usize,
    /// Method and path of the request, for messages.
    pub request: String,
}

impl TestServer {
    /// Creates a server behind `client`, which must not retry. The server compacts its history itself, like
    /// kube-apiserver.
    #[must_use]
    pub fn new(client: Client) -> TestServer {
        TestServer { client, compact: None, exclusive: Arc::default(), webhooks: Webhooks::default() }
    }

    /// Sets the function that compacts the history of the server.
    #[must_use]
    pub fn with_compaction(mut self, compact: impl Fn() + Send + Sync + 'static) -> TestServer {
        self.compact = Some(Arc::new(compact));
        self
    }

    /// Sets the webhooks that the server can call.
    #[must_use]
    pub fn with_webhooks(self, webhooks: Webhooks) -> TestServer {
        TestServer { webhooks, ..self }
    }

    /// Returns the webhooks that the server can call.
    #[must_use]
    pub fn webhooks(&self) -> &Webhooks {
        &self.webhooks
    }

    /// Compacts the history up to now, possibly with a delay.
    pub fn compact_history(&self) {
        if let Some(compact) = &self.compact {
            compact();
        }
    }

    /// Waits for exclusive access, for behaviors that prepare the server for all others. Each server has its own lock,
    /// because servers can use different clocks.
    pub(crate) async fn lock_exclusive(&self) -> MutexGuard<'_, ()> {
        self.exclusive.lock().await
    }

    /// Sends a request and reads the whole response.
    ///
    /// # Errors
    /// Returns an error if there is no response.
    pub async fn send(&self, request: TestRequest) -> Result<TestResponse> {
        let description = format!("{} {}", request.method, request.path);
        let response =
            self.client.send(build_request(request)?).await.with_context(|| description.clone())?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.with_context(|| description.clone())?.to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        let (status, length) = (parts.status.as_u16(), bytes.len());
        Ok(TestResponse { status, headers: parts.headers, body, length, request: description })
    }

    /// Sends a request whose response is a stream of frames.
    ///
    /// # Errors
    /// Returns an error if the status is not 200.
    pub async fn watch(&self, request: TestRequest) -> Result<Watch> {
        let description = format!("{} {}", request.method, request.path);
        let response =
            self.client.send(build_request(request)?).await.with_context(|| description.clone())?;
        let (parts, body) = response.into_parts();
        if parts.status != 200 {
            let bytes = body.collect().await?.to_bytes();
            bail!("{description}: {}: {}", parts.status, String::from_utf8_lossy(&bytes));
        }
        let chunks = Box::pin(body.into_data_stream());
        Ok(Watch { chunks, unread: Vec::new(), headers: parts.headers, request: description })
    }
}

fn build_request(request: TestRequest) -> Result<Request<Body>> {
    let mut builder =
        Request::builder().method(request.method).uri(&request.path).header("user-agent", USER_AGENT);
    for (name, value) in request.headers {
        builder = builder.header(name, value);
    }
    builder.body(Body::from(request.body)).with_context(|| format!("invalid request for {}", request.path))
}

/// One frame of a watch.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Type of the event: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
    pub kind: String,
    /// Object of the event.
    pub object: Value,
}

/// A running watch.
pub struct Watch {
    chunks: Pin<Box<dyn Stream<Item = Result<Bytes, kube::Error>> + Send>>,
    unread: Vec<u8>,
    /// Response headers.
    pub headers: HeaderMap,
    request: String,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("request", &self.request).finish_non_exhaustive()
    }
}

impl Watch {
    /// Returns the next frame, or `None` at the end of the stream.
    ///
    /// # Errors
    /// Returns an error if the stream sends no data, breaks, or contains an invalid frame.
    pub async fn frame(&mut self) -> Result<Option<Frame>> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return parse(&line).with_context(|| self.request.clone()).map(Some);
            }
            let chunk = tokio::time::timeout(SILENCE, self.chunks.next()).await;
            match chunk.map_err(|_| anyhow!("{}: no data for {SILENCE:?}", self.request))? {
                Some(chunk) => self.unread.extend_from_slice(&chunk?),
                None if self.unread.is_empty() => return Ok(None),
                None => {
                    let line = std::mem::take(&mut self.unread);
                    return parse(&line).with_context(|| self.request.clone()).map(Some);
                }
            }
        }
    }

    /// Returns the next frame that is not a bookmark.
    ///
    /// # Errors
    /// Returns the errors of [`frame`](Self::frame), and an error if the stream ends.
    pub async fn change(&mut self) -> Result<Frame> {
        loop {
            match self.frame().await? {
                Some(frame) if frame.kind == "BOOKMARK" => {}
                Some(frame) => return Ok(frame),
                None => bail!("{}: the stream ended before the expected event", self.request),
            }
        }
    }

    /// Returns the object of the next frame that is not a bookmark. The frame must have this type and an object of this
    /// name.
    ///
    /// # Errors
    /// Returns the errors of [`change`](Self::change), and an error for any other frame.
    pub async fn expect(&mut self, kind: &str, name: &str) -> Result<Value> {
        let frame = self.change().await?;
        ensure!(
            frame.kind == kind && frame.object["metadata"]["name"] == name,
            "{}: expected {kind} of {name}, got {} {}",
            self.request,
            frame.kind,
            frame.object
        );
        Ok(frame.object)
    }

    /// Returns all remaining frames, including bookmarks.
    ///
    /// # Errors
    /// Returns the errors of [`frame`](Self::frame).
    pub async fn rest(&mut self) -> Result<Vec<Frame>> {
        let mut frames = Vec::new();
        while let Some(frame) = self.frame().await? {
            frames.push(frame);
        }
        Ok(frames)
    }
}

fn parse(line: &[u8]) -> Result<Frame> {
    let mut frame: Value = serde_json::from_slice(line)
        .with_context(|| format!("invalid frame: {}", String::from_utf8_lossy(line)))?;
    let kind = frame["type"].as_str().context("a frame has a type")?.to_owned();
    Ok(Frame { kind, object: frame["object"].take() })
}
