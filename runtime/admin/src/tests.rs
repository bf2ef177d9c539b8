//! Tests of the admin server on real sockets, and of its parts in virtual time.

mod abused;
mod answered;
mod reviewed;
mod secured;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use windlass_env::Env;
use windlass_metrics::Metrics;
use windlass_serving::Limits;

use crate::health::Health;
use crate::ownership_report::OwnershipReport;
use crate::{AdminConfig, AdminServer, AdminServerDeps, ComponentInfo, Pages};

/// A test API server that knows two users: `reader` is allowed to read everything, `nosy` nothing. `nobody` is an
/// unknown token.
#[derive(Default)]
struct Reviewer {
    tokens: AtomicUsize,
    accesses: AtomicUsize,
    /// The last review of each kind.
    asked: Mutex<BTreeMap<String, Value>>,
    /// While set, every review fails.
    away: AtomicBool,
    /// While set, reviews wait.
    held: AtomicBool,
    released: Notify,
}

impl Reviewer {
    fn client(self: &Arc<Self>) -> kube::Client {
        let reviewer = Arc::clone(self);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let reviewer = Arc::clone(&reviewer);
            async move { Ok::<_, std::io::Error>(reviewer.review(request).await) }
        });
        kube::Client::new(service, "default")
    }

    async fn review(&self, request: http::Request<kube::client::Body>) -> http::Response<kube::client::Body> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.expect("read").to_bytes();
        let mut review: Value = serde_json::from_slice(&body).expect("a review");
        let resource = path.rsplit('/').next().unwrap_or_default().to_owned();
        self.asked.lock().expect("not poisoned").insert(resource.clone(), review["spec"].clone());
        let count = if resource == "tokenreviews" { &self.tokens } else { &self.accesses };
        count.fetch_add(1, Ordering::Relaxed);
        while self.held.load(Ordering::Relaxed) {
            self.released.notified().await;
        }
        if self.away.load(Ordering::Relaxed) {
            let refused =
                json!({ "kind": "Status", "code": 500, "reason": "InternalError", "message": "away" });
            return answered(500, &refused);
        }
        review["status"] = match resource.as_str() {
            "tokenreviews" if review["spec"]["token"] == "nobody" => {
                json!({ "error": "invalid bearer token" })
            }
            "tokenreviews" => json!({ "authenticated": true, "user": {
                "username": review["spec"]["token"], "groups": ["readers"], "extra": { "pod": ["p"] },
            } }),
            _ => json!({ "allowed": review["spec"]["user"] == "reader" }),
        };
        answered(201, &review)
    }

    fn counts(&self) -> (usize, usize) {
        (self.tokens.load(Ordering::Relaxed), self.accesses.load(Ordering::Relaxed))
    }

    fn release(&self) {
        self.held.store(false, Ordering::Relaxed);
        self.released.notify_waiters();
    }
}

fn answered(code: u16, body: &Value) -> http::Response<kube::client::Body> {
    let body = kube::client::Body::from(body.to_string().into_bytes());
    http::Response::builder().status(code).body(body).expect("a response")
}

/// A server under test with its dependencies.
struct Served {
    env: Env,
    server: AdminServer,
    parts: AdminServerDeps,
    reviewer: Arc<Reviewer>,
}

fn anywhere() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

impl Served {
    async fn start(config: AdminConfig) -> Self {
        Self::start_within(config, Limits::default()).await
    }

    async fn start_within(config: AdminConfig, limits: Limits) -> Self {
        let env = Env::system("admin");
        let metrics = Metrics::new();
        let reviewer = Arc::new(Reviewer::default());
        let parts = AdminServerDeps {
            health: Health::new(metrics.clone()),
            metrics,
            pages: Pages::new(),
            about: ComponentInfo {
                component: "windlass".to_owned(),
                flags: BTreeMap::from([("v".to_owned(), "4".to_owned())]),
                configuration: BTreeMap::from([("manager".to_owned(), json!({ "name": "windlass" }))]),
                ownership: OwnershipReport::from_fn(|| {
                    vec!["Lease kube-system/windlass: held here".to_owned()]
                }),
            },
            reviews: reviewer.client(),
        };
        let server = AdminServer::start_within(&env, &config, parts.clone(), limits).await.expect("started");
        Self { env, server, parts, reviewer }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.address()).await.expect("connected")
    }

    /// Returns the response to one request, such as `GET /livez`, on a new connection.
    async fn ask(&self, request: &str) -> String {
        exchange(self.connect().await, request, "").await
    }

    /// Returns the response to a request with a bearer token, like [`Served::ask`].
    async fn ask_as(&self, token: &str, request: &str) -> String {
        exchange(self.connect().await, request, &format!("Authorization: Bearer {token}\r\n")).await
    }

    /// Stops the server, and waits for all tasks.
    async fn stop(self) {
        self.server.stop().await;
        self.env.wait_for_tasks().await;
    }
}

/// Returns the whole response to one request with these additional header lines.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S, request: &str, lines: &str) -> String {
    let request = format!("{request} HTTP/1.1\r\nHost: admin\r\n{lines}Connection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.expect("sent");
    read_all(&mut socket).await
}

/// Reads until the peer closes the connection, cleanly or not.
async fn read_all<S: AsyncRead + Unpin>(socket: &mut S) -> String {
    let mut answer = Vec::new();
    // Data received before a reset is kept.
    let _cut = socket.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn code(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}
