use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::{ListQuery, RequestError, WatchQuery, retry_after};

const BUSY: &str = r#"{"kind":"Status","status":"Failure","reason":"TooManyRequests","code":429,"message":"busy","details":{"retryAfterSeconds":2}}"#;
const FORBIDDEN_BY_BUDGET: &str = r#"{"kind":"Status","status":"Failure","reason":"TooManyRequests","code":429,"message":"a budget forbids it"}"#;

fn busy_for(header: &'static str) -> Reply {
    let response = Response::builder().status(429).header("retry-after", header).body(full(Bytes::new()));
    futures_util::future::ready(response.unwrap()).boxed()
}

/// Returns a server that is busy for the first `times` requests.
fn busy(
    times: usize,
    refuse: impl Fn() -> Reply + Clone + Send + Sync + 'static,
) -> impl Fn(&Seen) -> Reply + Clone + Send + Sync + 'static {
    let asked = Arc::new(AtomicUsize::new(0));
    move |_| if asked.fetch_add(1, Ordering::Relaxed) < times { refuse() } else { reply(201, CREATED) }
}

fn configmaps() -> windlass_object::ResourceKind {
    windlass_object::ResourceKind::of::<ConfigMap>()
}

// parity: retries-429-5xx-retry
#[tokio::test(start_paused = true)]
async fn request_to_busy_server_is_repeated_whole_after_its_delay() {
    let world = World::new(busy(2, || busy_for("3")));
    let log = Arc::<TestLog>::default();
    let clients = world.clients.for_controller("test-controller").unwrap();
    create(&clients.worker(Arc::clone(&log) as Arc<dyn WriteLog>, None)).await.unwrap();
    assert_eq!(world.arrivals(), [0, 3_000, 6_000]);
    let seen = world.seen();
    assert!(seen[0].length > Some(0), "{:?}", seen[0]);
    for again in &seen[1..] {
        assert_eq!(
            (&again.method, &again.uri, &again.length),
            (&seen[0].method, &seen[0].uri, &seen[0].length)
        );
        assert_eq!(again.headers, seen[0].headers);
    }
    assert_eq!((log.wrote().len(), log.ambiguous().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn retry_delay_is_1_to_60_seconds_and_can_be_in_the_body() {
    for (refuse, wait) in [
        ((|| busy_for("0")) as fn() -> Reply, 1_000),
        (|| busy_for("86400"), 60_000),
        (|| reply(429, BUSY), 2_000),
    ] {
        let world = World::new(busy(1, refuse));
        create(&world.client()).await.unwrap();
        assert_eq!(world.arrivals(), [0, wait]);
    }
}

#[tokio::test(start_paused = true)]
async fn error_is_returned_after_ten_attempts() {
    let world = World::new(answer(429, BUSY));
    let error = create(&world.client()).await.unwrap_err();
    assert_eq!(retry_after(&error), Some(seconds(2)));
    assert_eq!(world.seen().len(), 10);
    let text = world.metrics.encode();
    let line = r#"rest_client_request_retries_total{code="429",host="api.test:6443",verb="POST"} 9"#;
    assert!(text.lines().any(|it| it == line), "{text}");
    let waiting = r#"rest_client_request_duration_seconds_sum{host="api.test:6443",verb="POST"} 0"#;
    assert!(text.lines().any(|it| it == waiting), "waiting time is not response time: {text}");
}

// parity: retries-429-5xx-retry
#[tokio::test(start_paused = true)]
async fn busy_error_without_delay_and_5xx_are_not_repeated() {
    for (code, body) in
        [(429, FORBIDDEN_BY_BUDGET), (429, "busy"), (500, BUSY), (503, BUSY), (504, BUSY), (409, CONFLICT)]
    {
        let world = World::new(answer(code, body));
        let error = create(&world.client()).await.unwrap_err();
        assert!(matches!(error, kube::Error::Api(_)), "{code}: {error:?}");
        assert_eq!(world.seen().len(), 1, "{code}: {body}");
    }
}

// parity: retries-429-5xx-retry
#[tokio::test(start_paused = true)]
async fn request_to_server_that_shuts_down_is_repeated_after_its_delay() {
    let shuts_down =
        r#"{"kind":"Status","metadata":{},"status":"Failure","reason":"ServiceUnavailable","code":503}"#;
    for (code, body, attempts) in
        [(503, shuts_down, 10), (503, "a proxy", 1), (500, shuts_down, 1), (504, shuts_down, 1)]
    {
        let world = World::new(move |_| {
            let response =
                Response::builder().status(code).header("retry-after", "1").body(full(body.into()));
            futures_util::future::ready(response.unwrap()).boxed()
        });
        create(&world.client()).await.unwrap_err();
        assert_eq!(world.seen().len(), attempts, "{code} {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn informers_and_the_election_receive_429_immediately() {
    let world = World::new(answer(429, BUSY));
    let informers = world.clients.for_informers().unwrap();
    let watch = WatchQuery { timeout: seconds(300), ..WatchQuery::default() };
    let Err(RequestError::TooManyRequests { retry_after, .. }) =
        informers.watch(&configmaps(), None, &watch).await
    else {
        panic!("the watch is rejected")
    };
    assert_eq!(retry_after, Some(seconds(2)));
    create(&world.clients.for_election().unwrap()).await.unwrap_err();
    informers.list(&configmaps(), None, &ListQuery::default()).await.unwrap_err();
    assert_eq!(world.arrivals(), [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn each_attempt_passes_limiter_fence_and_timeout() {
    let options = ClientOptions { qps: 0.2, burst: 1, ..ClientOptions::default() };
    let fence = TestFence::new(FenceState::Until(Instant::ORIGIN + seconds(9)));
    let world = World::with(options, |_| Arc::clone(&fence) as Arc<dyn Fence>, |_| busy_for("1"));
    let error = create(&world.client()).await.unwrap_err();
    assert_eq!(crate::fenced(&error), Some(&crate::FencedError::NotSent));
    assert_eq!(world.arrivals(), [0, 5_000], "delayed by the rate limiter, and finally blocked by the fence");

    let answered = Arc::new(AtomicUsize::new(0));
    let world =
        World::new(
            move |seen| {
                if answered.fetch_add(1, Ordering::Relaxed) < 2 { busy_for("30") } else { hang(seen) }
            },
        );
    assert!(crate::timed_out(&create(&world.client()).await.unwrap_err()));
    assert_eq!(world.env.now().since_origin(), seconds(2 * 30 + 60));
}

#[tokio::test(start_paused = true)]
async fn request_canceled_during_retry_delay_is_not_ambiguous() {
    let world = World::new(|_| busy_for("30"));
    let log = Arc::<TestLog>::default();
    let clients = world.clients.for_controller("test-controller").unwrap();
    let worker = clients.worker(Arc::clone(&log) as Arc<dyn WriteLog>, None);
    assert!(world.env.timeout(seconds(1), create(&worker)).await.is_err());
    assert!(log.is_empty(), "a rejected request is not ambiguous");
}

#[tokio::test(start_paused = true)]
async fn create_returns_busy_error_within_request_timeout() {
    let world = World::new(|_| busy_for("25"));
    let error = create(&world.client()).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 429), "{error:?}");
    assert_eq!(world.arrivals(), [0, 25_000, 50_000]);
    assert_eq!(world.env.now().since_origin(), seconds(50));
}
