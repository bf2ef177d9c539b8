//! Servers that pause, on real sockets: requests that arrive after the fence has closed.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{Either, select};
use kube::Config;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
};

use super::*;
use crate::{FencedError, RequestError};

/// Time that a standby waits after the fence's end: lease duration minus renew deadline.
const ALLOWANCE: Duration = Duration::from_millis(500);

/// A fence that ends at a point in time, like that of an elector whose renewals fail.
#[derive(Debug)]
struct EndingFence {
    env: Env,
    end: Instant,
}

impl EndingFence {
    fn within(env: &Env, remaining: Duration) -> Arc<Self> {
        Arc::new(Self { env: env.clone(), end: env.now() + remaining })
    }
}

impl Fence for EndingFence {
    fn state(&self) -> FenceState {
        if self.env.now() < self.end { FenceState::Until(self.end) } else { FenceState::Closed }
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        let (env, end) = (self.env.clone(), self.end);
        async move { env.sleep_until(end).await }.boxed()
    }
}

fn client(env: &Env, config: Config, fence: Arc<dyn Fence>) -> kube::Client {
    client_with(ClientOptions::default(), env, config, fence)
}

fn client_with(options: ClientOptions, env: &Env, config: Config, fence: Arc<dyn Fence>) -> kube::Client {
    let clients = Clients::new(env.clone(), config, options, &Metrics::new(), fence).unwrap();
    clients.for_controller("c").unwrap().client()
}

fn config(listener: &TcpListener) -> Config {
    Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap())
}

async fn create_sized(client: &kube::Client, bytes: usize) -> Result<ConfigMap, kube::Error> {
    let data = [("filler".to_owned(), "x".repeat(bytes))].into();
    let object = ConfigMap { data: Some(data), ..config_map() };
    config_maps(client.clone()).create(&Default::default(), &object).await
}

fn is_whole(read: &[u8]) -> bool {
    let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    read.len() - end - 4 >= length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)
}

fn timeout_of(read: &[u8]) -> Duration {
    let line = String::from_utf8_lossy(read);
    let (_, rest) = line.split_once("timeout=").expect("the write has a timeout parameter");
    let (millis, _) = rest.split_once("ms").expect("the timeout is in milliseconds");
    Duration::from_millis(millis.parse().unwrap())
}

/// Reads one request. `None` if the connection ends before the request does.
async fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut read, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    while !is_whole(&read) {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => read.extend_from_slice(&buffer[..count]),
        }
    }
    Some(read)
}

async fn respond(stream: &mut TcpStream, body: &str) {
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// Returns a listener with small receive buffers: most unread bytes stay in the client's kernel.
fn narrow_listener() -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.listen(16).unwrap()
}

#[tokio::test]
async fn write_dropped_by_fence_does_not_arrive_after_fence_end() {
    let (env, listener) = (Env::system("test"), narrow_listener());
    let client = client(&env, config(&listener), EndingFence::within(&env, Duration::from_millis(1_200)));
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        env.sleep(Duration::from_millis(1_400)).await;
        read_request(&mut stream).await
    };
    let (result, arrived) = futures_util::future::join(create_sized(&client, 200_000), server).await;
    assert_eq!(RequestError::from(result.unwrap_err()), RequestError::Fenced(FencedError::Interrupted));
    assert_eq!(arrived.map(|request| request.len()), None, "the kernel does not retransmit a dropped write");
}

#[tokio::test]
async fn timeout_parameter_excludes_time_spent_connecting() {
    let (env, proxy) = (Env::system("test"), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let mut config = Config::new("http://api.test:6443".parse().unwrap());
    config.proxy_url = Some(format!("http://{}", proxy.local_addr().unwrap()).parse().unwrap());
    let fence = EndingFence::within(&env, Duration::from_millis(3_000));
    let (client, end) = (client(&env, config, fence.clone()), fence.end);
    let server = async {
        let (mut stream, _) = proxy.accept().await.unwrap();
        read_request(&mut stream).await.expect("a CONNECT arrives");
        env.sleep(Duration::from_millis(1_500)).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let request = read_request(&mut stream).await.expect("the write arrives");
        let received = env.now();
        respond(&mut stream, CREATED).await;
        (timeout_of(&request), received)
    };
    let (result, (timeout, received)) = futures_util::future::join(create(&client), server).await;
    result.unwrap();
    let takes_effect_by = received + timeout;
    assert!(takes_effect_by <= end + ALLOWANCE, "{:?} too late", takes_effect_by - end);
}

#[tokio::test]
async fn write_is_not_sent_when_connecting_outlasts_fence() {
    let (env, proxy) = (Env::system("test"), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let mut config = Config::new("http://api.test:6443".parse().unwrap());
    config.proxy_url = Some(format!("http://{}", proxy.local_addr().unwrap()).parse().unwrap());
    let client = client(&env, config, EndingFence::within(&env, Duration::from_millis(1_500)));
    let server = async {
        let (mut stream, _) = proxy.accept().await.unwrap();
        read_request(&mut stream).await.expect("a CONNECT arrives");
        // Half a second before its end the fence is still open, but the remaining time is too short for a write.
        env.sleep(Duration::from_millis(1_000)).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        read_request(&mut stream).await
    };
    let (result, arrived) = futures_util::future::join(create(&client), server).await;
    assert_eq!(RequestError::from(result.unwrap_err()), RequestError::Fenced(FencedError::NotSent));
    assert_eq!(arrived, None);
}

#[tokio::test]
async fn connection_is_reused_for_requests_in_sequence() {
    let (env, listener) = (Env::system("test"), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let client = client(&env, config(&listener), Arc::new(OpenFence));
    let served = AtomicUsize::new(0);
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        while read_request(&mut stream).await.is_some() {
            served.fetch_add(1, Ordering::Relaxed);
            respond(&mut stream, CREATED).await;
        }
    };
    let requests = async {
        for _ in 0..10 {
            create(&client).await.unwrap();
            create_sized(&client, 300_000).await.unwrap();
        }
    };
    tokio::select! {
        biased;
        () = server => panic!("the connection was closed after {served:?} requests"),
        () = requests => {}
    }
    assert_eq!(served.into_inner(), 20);
}

#[tokio::test]
async fn write_succeeds_when_server_has_closed_idle_connection() {
    let (env, listener) = (Env::system("test"), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let client = client(&env, config(&listener), Arc::new(OpenFence));
    let server = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await.expect("a request arrives");
            respond(&mut stream, CREATED).await;
        }
    };
    let requests = async {
        for _ in 0..20 {
            create(&client).await.unwrap();
        }
    };
    tokio::select! {
        biased;
        () = server => {}
        () = requests => {}
    }
}

#[tokio::test]
async fn write_fails_without_repetition_when_server_closes_new_connections() {
    let (env, listener) = (Env::system("test"), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let client = client(&env, config(&listener), Arc::new(OpenFence));
    let accepted = AtomicUsize::new(0);
    let server = async {
        loop {
            drop(listener.accept().await.unwrap());
            accepted.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::select! {
        biased;
        () = server => {}
        result = create(&client) => drop(result.unwrap_err()),
    }
    assert!(accepted.into_inner() <= 1);
}

/// The effect of one round on the paused server.
#[derive(Debug, PartialEq, Eq)]
enum Effect {
    None,
    BeforeFenceEnd,
    Late,
}

/// Simulates a server that pauses across the fence's end, before it accepts, reads or executes the leader's one
/// request.
///
/// Like kube-apiserver, it stops at the request's timeout, counted from receipt, and when it detects the reset.
async fn paused_server(env: &Env, listener: TcpListener, pauses: [Duration; 3], end: Instant) -> Effect {
    let [before_accept, before_read, before_effect] = pauses;
    env.sleep(before_accept).await;
    // On a machine so slow that the fence is about to end, no request arrives.
    let Ok(accepted) = env.timeout(seconds(3), listener.accept()).await else { return Effect::None };
    let (mut stream, _) = accepted.unwrap();
    env.sleep(before_read).await;
    let Some(request) = read_request(&mut stream).await else { return Effect::None };
    let stops = env.now() + timeout_of(&request);
    env.sleep(before_effect).await;
    let reset = env.timeout(Duration::from_millis(20), stream.read(&mut [0; 1])).await.is_ok();
    let now = env.now();
    if reset || now >= stops {
        return Effect::None;
    }
    respond(&mut stream, CREATED).await;
    if now <= end + ALLOWANCE { Effect::BeforeFenceEnd } else { Effect::Late }
}

/// Returns the pauses of the server and the size of the leader's write in one round.
fn paused_round(round: u64) -> ([Duration; 3], usize) {
    // The pauses cover every phase in which the fence can end, and end before and after it.
    let (pause, none) = (Duration::from_millis(1_500 + 60 * (round / 4 % 25)), Duration::ZERO);
    match round % 4 {
        0 => ([pause, none, none], 100),
        1 => ([none, pause, none], 100),
        2 => ([none, pause, none], 200_000),
        _ => ([none, none, pause], 100),
    }
}

/// Runs all rounds at once and returns their effects.
async fn paused_rounds() -> Vec<Effect> {
    const ROUNDS: u64 = 200;
    let (env, fence) = (Env::system("test"), TestFence::new(FenceState::Closed));
    let options = ClientOptions { unacknowledged_timeout: ALLOWANCE, ..ClientOptions::default() };
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|round| {
            let listener = narrow_listener();
            let client = client_with(options.clone(), &env, config(&listener), Arc::clone(&fence) as _);
            (client, listener, paused_round(round))
        })
        .collect();
    let end = env.now() + seconds(2);
    fence.state.set(FenceState::Until(end));
    let rounds = rounds.into_iter().map(|(client, listener, (pauses, bytes))| {
        let server = paused_server(&env, listener, pauses, end);
        async move { futures_util::future::join(create_sized(&client, bytes), server).await.1 }
    });
    let closing = async {
        env.sleep_until(end).await;
        fence.state.set(FenceState::Closed);
    };
    futures_util::future::join(futures_util::future::join_all(rounds), closing).await.0
}

#[tokio::test]
async fn server_paused_across_fence_end_applies_no_late_write() {
    // Rounds prove something only if the fence ends before some writes and after others: a busy machine needs another
    // try.
    for _ in 0..5 {
        let effects = paused_rounds().await;
        assert!(effects.iter().all(|effect| *effect != Effect::Late), "{effects:?}");
        let timely = effects.iter().filter(|effect| **effect == Effect::BeforeFenceEnd).count();
        if (1..effects.len()).contains(&timely) {
            return;
        }
    }
    panic!("the fence ended before all writes, or after all of them, in each try");
}

/// A fence that is open for a number of checks, as for a process that is stopped after the last of them.
#[derive(Debug)]
struct CheckedFence {
    env: Env,
    left: AtomicUsize,
}

impl Fence for CheckedFence {
    fn state(&self) -> FenceState {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map_or(FenceState::Closed, |_| FenceState::Until(self.env.now() + seconds(10)))
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        futures_util::future::pending().boxed()
    }
}

#[tokio::test]
async fn no_byte_is_sent_when_the_fence_ends_while_the_write_is_encoded() {
    for checks in 0.. {
        let (env, listener) = (Env::system("test"), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let fence = Arc::new(CheckedFence { env: env.clone(), left: AtomicUsize::new(checks) });
        let client = client(&env, config(&listener), Arc::clone(&fence) as _);
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 1];
            let read = stream.read(&mut bytes).await.is_ok_and(|count| count > 0);
            read.then_some(fence.left.load(Ordering::Relaxed))
        };
        let write = async { drop(create(&client).await) };
        let sent = match select(pin!(write), pin!(server)).await {
            Either::Left(_) => None,
            Either::Right((sent, _)) => sent,
        };
        if sent.is_some() {
            assert_eq!(sent, Some(0), "the check of the socket is the last one");
            assert_eq!(checks, 5, "the write is checked before and after connecting, and by the socket");
            return;
        }
    }
}
