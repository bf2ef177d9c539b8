//! Tests with misbehaving clients.

use std::time::Duration;

use futures_util::future::join_all;

use super::*;
use crate::PageResponse;

/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(60);

fn few() -> Limits {
    Limits { connections: 8, ..Limits::default() }
}

/// Deadlines that are short enough for tests.
fn hasty() -> Limits {
    let soon = Duration::from_millis(200);
    Limits { head: soon, handshake: soon, stalled: soon, ..Limits::default() }
}

impl Served {
    /// Waits until this number of connections is open.
    async fn open(&self, connections: i64) {
        let open = async {
            while self.parts.metrics.admin().serving.connections.get() != connections {
                tokio::task::yield_now().await;
            }
        };
        self.env.timeout(TIMEOUT, open).await.expect("as many connections");
    }

    /// Waits until the server has closed this connection, and returns the data received before.
    async fn closed(&self, socket: &mut TcpStream) -> String {
        self.env.timeout(TIMEOUT, read_all(socket)).await.expect("closed by the server")
    }
}

#[tokio::test]
async fn silent_client_does_not_delay_admin_server_stop() {
    let served = Served::start(AdminConfig::local(anywhere())).await;
    let mut silent = served.connect().await;
    silent.write_all(b"GET /metr").await.expect("sent");
    assert_eq!(code(&served.ask("GET /livez").await), 200);
    served.stop().await;
}

// parity: read-header-timeout-32
#[tokio::test]
async fn slow_request_head_is_cut_off_while_others_are_served() {
    let served = Served::start_within(AdminConfig::local(anywhere()), hasty()).await;
    let mut slow = served.connect().await;
    slow.write_all(b"GET /livez HTTP/1.1\r\nHost: a").await.expect("sent");
    let begun = served.env.now();
    let trickle = async {
        // Additional bytes do not extend the deadline.
        while slow.write_all(b"a").await.is_ok() {
            assert_eq!(code(&served.ask("GET /livez").await), 200);
            served.env.sleep(Duration::from_millis(10)).await;
        }
    };
    served.env.timeout(TIMEOUT, trickle).await.expect("cut off");
    assert!(served.env.now().saturating_duration_since(begun) >= Duration::from_millis(200));
    served.stop().await;
}

// parity: read-header-timeout-32
#[tokio::test]
async fn idle_connections_stay_within_limit_and_do_not_block_probes() {
    let served = Served::start_within(AdminConfig::local(anywhere()), few()).await;
    let mut idle = Vec::new();
    for number in 0..200 {
        idle.push(served.connect().await);
        if number % 10 == 0 {
            assert_eq!(code(&served.ask("GET /livez").await), 200, "after {number}");
            assert_eq!(code(&served.ask("GET /metrics").await), 200, "after {number}");
        }
        assert!(served.parts.metrics.admin().serving.connections.get() <= 8);
    }
    assert!(served.parts.metrics.admin().serving.shed.get() >= 190);
    // The first have been closed because of the limit; the last are still served.
    assert_eq!(served.closed(&mut idle[0]).await, "");
    let last = idle.pop().expect("two hundred");
    assert_eq!(code(&exchange(last, "GET /livez", "").await), 200);
    served.stop().await;
}

#[tokio::test]
async fn connection_with_request_in_progress_is_not_closed_at_limit() {
    let config = AdminConfig { access: crate::Access::reviewed(), ..AdminConfig::local(anywhere()) };
    let served = Served::start_within(config, few()).await;
    served.reviewer.held.store(true, Ordering::Relaxed);
    let mut scrape = served.connect().await;
    scrape
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer reader\r\n\r\n")
        .await
        .expect("sent");
    while served.reviewer.counts().0 == 0 {
        tokio::task::yield_now().await;
    }
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(served.connect().await);
    }
    assert_eq!(code(&served.ask("GET /livez").await), 200);
    served.reviewer.release();
    let mut first = [0; 12];
    scrape.read_exact(&mut first).await.expect("answered");
    assert_eq!(&first, b"HTTP/1.1 200");
    served.stop().await;
}

// parity: read-header-timeout-32
#[tokio::test]
async fn oversized_request_head_returns_431_and_server_continues() {
    let served = Served::start(AdminConfig::local(anywhere())).await;
    let large = format!("X-Large: {}\r\n", "a".repeat(40 * 1024));
    let many: String = (0..100).map(|number| format!("X-{number}: a\r\n")).collect();
    let whole = "a".repeat(1024 * 1024);
    for lines in [large, many, format!("X-Larger: {whole}\r\n")] {
        let mut socket = served.connect().await;
        // The server can close before it has read all data.
        let _cut =
            socket.write_all(format!("GET /livez HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes()).await;
        let answer = served.closed(&mut socket).await;
        // Unread data can reset the connection before the response is read.
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
        assert_eq!(code(&served.ask("GET /livez").await), 200);
    }
    let fits = format!("X-Large: {}\r\n", "a".repeat(20 * 1024));
    assert_eq!(code(&exchange(served.connect().await, "GET /livez", &fits).await), 200);
    served.stop().await;
}

#[tokio::test]
async fn slightly_oversized_request_head_returns_431() {
    let served = Served::start(AdminConfig::local(anywhere())).await;
    let lines = format!("X-Large: {}\r\n", "a".repeat(33 * 1024));
    assert_eq!(code(&exchange(served.connect().await, "GET /livez", &lines).await), 431);
    served.stop().await;
}

// parity: read-header-timeout-32
#[tokio::test]
async fn request_with_body_is_rejected_unread() {
    let served = Served::start(AdminConfig::local(anywhere())).await;
    for lines in ["Content-Length: 1000000000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let answer = exchange(served.connect().await, "GET /livez", lines).await;
        assert!(code(&answer) == 413 && answer.contains("connection: close"), "{answer}");
    }
    assert_eq!(code(&exchange(served.connect().await, "GET /livez", "Content-Length: 0\r\n").await), 200);
    served.stop().await;
}

// parity: read-header-timeout-32
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let served = Served::start(AdminConfig::local(anywhere())).await;
    let mut socket = served.connect().await;
    let one = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let ahead: String =
        (0..500).map(|number| one(if number % 2 == 0 { "/livez" } else { "/none" })).collect();
    let last = "GET /livez/ping HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let (mut read, mut write) = socket.split();
    let sending = async {
        write.write_all(ahead.as_bytes()).await.expect("sent");
        write.write_all(last.as_bytes()).await.expect("sent");
    };
    let ((), answers) = futures_util::future::join(sending, read_all(&mut read)).await;
    let codes: Vec<&str> =
        answers.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.split(' ').next()).collect();
    let expected: Vec<&str> = (0..501).map(|number| if number % 2 == 0 { "200" } else { "404" }).collect();
    assert_eq!(codes, expected);
    served.stop().await;
}

// parity: read-header-timeout-32
#[tokio::test]
async fn client_that_reads_nothing_is_cut_off_and_memory_is_freed() {
    let served = Served::start_within(AdminConfig::local(anywhere()), hasty()).await;
    let heavy = bytes::Bytes::from(vec![b'a'; 16 * 1024 * 1024]);
    served.parts.pages.add("/heavy", Arc::new(move |_| PageResponse::text(heavy.clone())));
    // Each takes a quarter of the memory limit of responses.
    let stalled = join_all((0..8).map(|_| async {
        let mut socket = served.connect().await;
        socket.write_all(b"GET /heavy HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
        let mut first = [0; 12];
        socket.read_exact(&mut first).await.expect("begun");
        (socket, String::from_utf8_lossy(&first).into_owned())
    }));
    let stalled = stalled.await;
    let refused = stalled.iter().filter(|(_, first)| first.ends_with("503")).count();
    assert_eq!(refused, 4, "the memory of responses is bounded");
    assert_eq!(code(&served.ask("GET /livez").await), 200, "a probe is not counted");
    served.open(0).await;
    assert_eq!(body(&served.ask("GET /heavy").await).len(), 16 * 1024 * 1024);
    served.stop().await;
}
