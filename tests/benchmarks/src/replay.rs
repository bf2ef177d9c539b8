//! A server that answers lists and watches of Pods from bytes in memory, over TLS and HTTP/1.1, without any other work.
//!
//! Guarantees: a request costs the server only framing and encryption, so that measurements of clients do not contain
//! the costs of a kube-apiserver. The bytes of one object are the same in lists and watches. Media types and framing
//! are those of kube-apiserver: JSON and protobuf, full objects and `PartialObjectMetadata`, lists with and without
//! pages, and streamed lists with the bookmark that ends the initial events.
//!
//! It does not check credentials, select objects or send changes: a watch is idle after its initial events.

use std::convert::Infallible;
use std::error::Error as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::Either;
use futures_util::{StreamExt as _, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use self::framing::{Format, Framing, Page};
use crate::pods::JsonPod;

mod framing;

/// Size of the chunks of a response, as large as the buffers of common servers.
const CHUNK: usize = 64 * 1024;

/// One Pod in both media types.
#[derive(Clone, Debug)]
pub struct RecordedPod {
    /// The Pod as JSON.
    pub json: JsonPod,
    /// The Pod as a protobuf message.
    pub protobuf: Bytes,
}

/// A running server. Dropping it stops the server.
#[derive(Debug)]
pub struct ReplayServer {
    folder: TempDir,
    /// Dropped with the server, which ends all connections.
    _runtime: Runtime,
}

type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

impl ReplayServer {
    /// Starts a server on a loopback address and writes a kubeconfig for it.
    ///
    /// # Errors
    /// If the address, the certificate or the kubeconfig cannot be created.
    pub fn start(pods: Vec<RecordedPod>) -> Result<ReplayServer> {
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
        let tls = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let folder = TempDir::new()?;
        write_kubeconfig(&kubeconfig(&folder), listener.local_addr()?, &certified.cert.pem())?;
        drop(runtime.spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), Arc::from(pods))));
        Ok(ReplayServer { folder, _runtime: runtime })
    }

    /// Returns the path of a kubeconfig with the address and the certificate of this server.
    pub fn kubeconfig(&self) -> PathBuf {
        kubeconfig(&self.folder)
    }
}

fn kubeconfig(folder: &TempDir) -> PathBuf {
    folder.path().join("kubeconfig")
}

fn write_kubeconfig(path: &Path, address: SocketAddr, certificate: &str) -> Result<()> {
    let cluster = json!({
        "server": format!("https://{address}"), "certificate-authority-data": STANDARD.encode(certificate),
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "replay",
        "clusters": [{ "name": "replay", "cluster": cluster }],
        "users": [{ "name": "replay", "user": { "token": "unchecked" } }],
        "contexts": [{ "name": "replay", "context": { "cluster": "replay", "user": "replay" } }],
    });
    std::fs::write(path, config.to_string()).context("cannot write the kubeconfig")
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, pods: Arc<[RecordedPod]>) {
    loop {
        match listener.accept().await {
            Ok((connection, _)) => {
                drop(tokio::spawn(serve(connection, tls.clone(), Arc::clone(&pods))));
            }
            Err(error) => report(&error),
        }
    }
}

async fn serve(connection: TcpStream, tls: TlsAcceptor, pods: Arc<[RecordedPod]>) {
    let service = service_fn(move |request| {
        let response = respond(&request, &pods);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = match tls.accept(connection).await {
        Ok(connection) => TokioIo::new(connection),
        Err(error) => return report(&error),
    };
    if let Err(error) = http1::Builder::new().serve_connection(connection, service).await {
        // Clients exit without closing their watches, which is an I/O error here.
        let is_disconnect = error.source().is_some_and(|source| source.is::<std::io::Error>());
        if !is_disconnect && !error.is_incomplete_message() {
            report(&error);
        }
    }
}

/// Prints an error of a connection. A client that cannot sync because of it fails the measurement.
fn report(error: &dyn std::error::Error) {
    let mut standard_error = std::io::stderr().lock();
    let _unwritable = writeln!(standard_error, "replay server: {error}");
}

fn respond(request: &Request<Incoming>, pods: &Arc<[RecordedPod]>) -> Response<ResponseBody> {
    if request.uri().path() != "/api/v1/pods" {
        return not_found();
    }
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let page = Page::of(request.uri().query().unwrap_or_default(), pods.len());
    let framing = Framing { format: Format::of(accept), page };
    let mut response = Response::new(body(framing, Arc::clone(pods)));
    let media = HeaderValue::from_static(framing.media_type());
    response.headers_mut().insert(CONTENT_TYPE, media);
    response
}

fn not_found() -> Response<ResponseBody> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "the replay server has only Pods",
    });
    let mut response = Response::new(Full::new(Bytes::from(status.to_string())).boxed_unsync());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the body of a response, framed while it is sent. The body of a watch does not end.
fn body(framing: Framing, pods: Arc<[RecordedPod]>) -> ResponseBody {
    let chunks = stream::iter(Chunks { framing, pods, next: framing.page.first(), is_complete: false });
    let ends = if framing.page.is_watch() {
        Either::Left(stream::pending())
    } else {
        Either::Right(stream::empty())
    };
    StreamBody::new(chunks.chain(ends).map(|chunk| Ok(Frame::data(chunk)))).boxed_unsync()
}

/// The chunks of one response.
struct Chunks {
    framing: Framing,
    pods: Arc<[RecordedPod]>,
    next: usize,
    is_complete: bool,
}

impl Iterator for Chunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_complete {
            return None;
        }
        let Chunks { framing, pods, .. } = self;
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 2);
        if self.next == framing.page.first() {
            framing.write_start(pods, &mut chunk);
        }
        while chunk.len() < CHUNK && self.next < framing.page.end() {
            framing.write_item(&pods[self.next], self.next, &mut chunk);
            self.next += 1;
        }
        if self.next == framing.page.end() {
            framing.write_end(&mut chunk);
            self.is_complete = true;
        }
        Some(Bytes::from(chunk)).filter(|chunk| !chunk.is_empty())
    }
}
