//! Tests of delegated access, and of the number of reviews.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::future::join_all;

use super::*;
use crate::delegated_auth::{AuthError, DelegatedAuth, Ttls};
use crate::{Access, Tls};

fn reviewed() -> AdminConfig {
    AdminConfig { tls: Tls::Plain, access: Access::reviewed(), ..AdminConfig::local(anywhere()) }
}

// parity: token-review-subject-access
#[tokio::test]
async fn missing_token_returns_401_and_missing_permission_403() {
    let served = Served::start(reviewed()).await;
    let anonymous = served.ask("GET /metrics").await;
    assert!(code(&anonymous) == 401 && anonymous.contains("www-authenticate: Bearer"), "{anonymous}");
    assert_eq!(served.reviewer.counts(), (0, 0), "no review without a token");
    let unknown = served.ask_as("nobody", "GET /metrics").await;
    assert!(code(&unknown) == 401 && unknown.contains("www-authenticate: Bearer"), "{unknown}");
    let nosy = served.ask_as("nosy", "GET /metrics").await;
    assert!(body(&nosy).starts_with("forbidden: user \"nosy\" cannot get path \"/metrics\""), "{nosy}");
    assert_eq!((code(&nosy), body(&nosy).lines().count()), (403, 1));
    assert_eq!(code(&served.ask_as("reader", "GET /metrics").await), 200);
    assert_eq!(code(&served.ask_as("reader", "HEAD /metrics?a=b").await), 200);
    assert_eq!(
        code(&served.ask_as("nosy", "GET /no/such").await),
        403,
        "paths are not revealed to unauthorized users"
    );
    assert_eq!(code(&served.ask_as("reader", "GET /no/such").await), 404);

    let review = served.reviewer.asked.lock().expect("not poisoned")["subjectaccessreviews"].clone();
    let path = json!({ "path": "/no/such", "verb": "get" });
    let whole = json!({ "user": "reader", "groups": ["readers"], "extra": { "pod": ["p"] }, "nonResourceAttributes": path });
    assert_eq!(review, whole);
    let text = served.parts.metrics.encode();
    for line in [
        "windlass_admin_reviews_total{outcome=\"granted\",review=\"token\"} 2",
        "windlass_admin_reviews_total{outcome=\"refused\",review=\"token\"} 1",
        "windlass_admin_reviews_total{outcome=\"cached\",review=\"access\"} 1",
        "windlass_admin_requests_total{code=\"403\",endpoint=\"none\"} 2",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    served.stop().await;
}

// parity: authorization-always-allow-paths
#[tokio::test]
async fn probes_need_no_token_but_their_subpaths_do() {
    let served = Served::start(reviewed()).await;
    for path in ["/healthz", "/livez", "/readyz", "/livez?verbose"] {
        assert_eq!(code(&served.ask(&format!("GET {path}")).await), 200, "{path}");
        assert_eq!(code(&served.ask_as("nobody", &format!("GET {path}")).await), 200, "{path}");
    }
    for path in ["/", "/livez/ping", "/livez/", "/metrics", "/configz", "/statusz", "/debug/"] {
        assert_eq!(code(&served.ask(&format!("GET {path}")).await), 401, "{path}");
    }
    assert_eq!(served.reviewer.counts(), (0, 0));
    served.stop().await;
}

// parity: authorization-always-allow-paths
#[tokio::test]
async fn hanging_reviews_are_bounded_and_delay_no_probe_or_cached_user() {
    let served = Served::start(reviewed()).await;
    assert_eq!(code(&served.ask_as("reader", "GET /metrics").await), 200);
    served.reviewer.held.store(true, Ordering::Relaxed);
    let unknown_users =
        join_all((0..40).map(|number| {
            let token = format!("unknown-{number}");
            let socket = served.connect();
            async move {
                exchange(socket.await, "GET /metrics", &format!("Authorization: Bearer {token}\r\n")).await
            }
        }));
    let mut unknown_users = Box::pin(unknown_users);
    let meanwhile = async {
        for _ in 0..20 {
            assert_eq!(code(&served.ask("GET /livez").await), 200);
            assert_eq!(code(&served.ask_as("reader", "GET /metrics").await), 200, "cached");
        }
        // The first sixteen requests of this address wait; the others are rejected.
        while served.parts.metrics.admin().token_reviews.busy.get() < 24 {
            tokio::task::yield_now().await;
        }
        served.reviewer.release();
    };
    let codes: Vec<u16> = tokio::select! {
        biased;
        answers = &mut unknown_users => answers.iter().map(|answer| code(answer)).collect(),
        () = async { meanwhile.await; std::future::pending().await } => unreachable!("unknown users are answered"),
    };
    drop(unknown_users);
    assert_eq!(codes.iter().filter(|code| **code == 503).count(), 24, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 16, "{codes:?}");
    served.stop().await;
}

/// Delegated authorization in virtual time.
struct ReviewFixture {
    env: Env,
    reviewer: Arc<Reviewer>,
    reviews: DelegatedAuth,
}

impl ReviewFixture {
    fn new() -> Self {
        let env = Env::virtual_time(1);
        let reviewer = Arc::new(Reviewer::default());
        let ttls = Ttls {
            authentication: Duration::from_secs(60),
            allow: Duration::from_secs(300),
            deny: Duration::from_secs(30),
        };
        let reviews = DelegatedAuth::new(&env, reviewer.client(), ttls, Metrics::new().admin());
        Self { env, reviewer, reviews }
    }

    async fn admit(&self, token: &str) -> Result<(), AuthError> {
        self.reviews.admit(token, "/metrics", IpAddr::from(Ipv4Addr::LOCALHOST)).await
    }

    /// Sends a request each second for `seconds`.
    async fn ask_for(&self, token: &str, seconds: u64) {
        for _ in 0..seconds {
            let _answer = self.admit(token).await;
            self.env.sleep(Duration::from_secs(1)).await;
        }
    }
}

// parity: token-review-subject-access
#[tokio::test(start_paused = true)]
async fn review_results_are_cached_for_their_ttls() {
    let reader = ReviewFixture::new();
    reader.ask_for("reader", 600).await;
    assert_eq!(reader.reviewer.counts(), (10, 2));
    let nosy = ReviewFixture::new();
    nosy.ask_for("nosy", 600).await;
    assert_eq!(nosy.reviewer.counts(), (10, 20));
    let unknown = ReviewFixture::new();
    unknown.ask_for("nobody", 600).await;
    assert_eq!(unknown.reviewer.counts(), (20, 0));
}

// parity: token-review-subject-access
#[tokio::test(start_paused = true)]
async fn concurrent_requests_with_one_token_share_reviews() {
    let fixture = ReviewFixture::new();
    let all = join_all((0..10).map(|_| fixture.admit("reader"))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(fixture.reviewer.counts(), (1, 1));
}

// parity: token-review-subject-access
#[tokio::test(start_paused = true)]
async fn failing_review_is_retried_with_backoff_and_not_cached() {
    let fixture = ReviewFixture::new();
    fixture.reviewer.away.store(true, Ordering::Relaxed);
    let begun = fixture.env.now();
    assert!(matches!(fixture.admit("reader").await, Err(AuthError::Unreachable)));
    let waited = fixture.env.now().saturating_duration_since(begun);
    // 0.5, 0.75, 1.125 and 1.6875 s, plus jitter of up to a fifth.
    assert!((4.0625..4.875).contains(&waited.as_secs_f64()), "{waited:?}");
    assert_eq!(fixture.reviewer.counts(), (5, 0));
    fixture.reviewer.away.store(false, Ordering::Relaxed);
    assert!(fixture.admit("reader").await.is_ok());
    assert_eq!(fixture.reviewer.counts(), (6, 1));
}

// parity: token-review-subject-access
#[tokio::test(start_paused = true)]
async fn unanswered_review_times_out_after_ten_seconds() {
    let fixture = ReviewFixture::new();
    fixture.reviewer.held.store(true, Ordering::Relaxed);
    let begun = fixture.env.now();
    assert!(matches!(fixture.admit("reader").await, Err(AuthError::Unreachable)));
    assert_eq!(fixture.env.now().saturating_duration_since(begun), Duration::from_secs(10));
}
