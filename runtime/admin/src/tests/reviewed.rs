//! Who is let in, and how often the API server is asked.

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
async fn without_a_token_401_without_the_right_403_with_both_the_page() {
    let served = Served::start(reviewed()).await;
    let anonymous = served.ask("GET /metrics").await;
    assert!(code(&anonymous) == 401 && anonymous.contains("www-authenticate: Bearer"), "{anonymous}");
    assert_eq!(served.reviewer.counts(), (0, 0), "without a token nobody is asked");
    let unknown = served.ask_as("nobody", "GET /metrics").await;
    assert!(code(&unknown) == 401 && unknown.contains("www-authenticate: Bearer"), "{unknown}");
    let nosy = served.ask_as("nosy", "GET /metrics").await;
    assert!(body(&nosy).starts_with("forbidden: user \"nosy\" cannot get path \"/metrics\""), "{nosy}");
    assert_eq!((code(&nosy), body(&nosy).lines().count()), (403, 1));
    assert_eq!(code(&served.ask_as("reader", "GET /metrics").await), 200);
    assert_eq!(code(&served.ask_as("reader", "HEAD /metrics?a=b").await), 200);
    assert_eq!(code(&served.ask_as("nosy", "GET /no/such").await), 403, "who may not look learns of no page");
    assert_eq!(code(&served.ask_as("reader", "GET /no/such").await), 404);

    let asked = served.reviewer.asked.lock().expect("nobody panics")["subjectaccessreviews"].clone();
    let path = json!({ "path": "/no/such", "verb": "get" });
    let whole = json!({ "user": "reader", "groups": ["readers"], "extra": { "pod": ["p"] }, "nonResourceAttributes": path });
    assert_eq!(asked, whole);
    let text = served.parts.metrics.encode();
    for line in [
        "windlass_admin_reviews_total{outcome=\"granted\",review=\"token\"} 2",
        "windlass_admin_reviews_total{outcome=\"refused\",review=\"token\"} 1",
        "windlass_admin_reviews_total{outcome=\"remembered\",review=\"access\"} 1",
        "windlass_admin_requests_total{code=\"403\",page=\"none\"} 2",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    served.stop().await;
}

// parity: authorization-always-allow-paths
#[tokio::test]
async fn probes_need_no_token_and_their_sub_paths_do() {
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
async fn reviews_that_hang_hold_up_no_probe_and_nobody_from_elsewhere_and_are_bounded() {
    let served = Served::start(reviewed()).await;
    assert_eq!(code(&served.ask_as("reader", "GET /metrics").await), 200);
    served.reviewer.held.store(true, Ordering::Relaxed);
    let strangers =
        join_all((0..40).map(|number| {
            let token = format!("stranger-{number}");
            let socket = served.connect();
            async move {
                exchange(socket.await, "GET /metrics", &format!("Authorization: Bearer {token}\r\n")).await
            }
        }));
    let mut strangers = Box::pin(strangers);
    let meanwhile = async {
        for _ in 0..20 {
            assert_eq!(code(&served.ask("GET /livez").await), 200);
            assert_eq!(code(&served.ask_as("reader", "GET /metrics").await), 200, "remembered");
        }
        // The first sixteen of this address wait; the others were sent away.
        while served.parts.metrics.admin().token_reviews.busy.get() < 24 {
            tokio::task::yield_now().await;
        }
        served.reviewer.release();
    };
    let codes: Vec<u16> = tokio::select! {
        biased;
        answers = &mut strangers => answers.iter().map(|answer| code(answer)).collect(),
        () = async { meanwhile.await; std::future::pending().await } => unreachable!("strangers are answered"),
    };
    drop(strangers);
    assert_eq!(codes.iter().filter(|code| **code == 503).count(), 24, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 16, "{codes:?}");
    served.stop().await;
}

/// Reviews in virtual time.
struct Asked {
    env: Env,
    reviewer: Arc<Reviewer>,
    reviews: DelegatedAuth,
}

impl Asked {
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

    /// Asks each second for `seconds`.
    async fn ask_for(&self, token: &str, seconds: u64) {
        for _ in 0..seconds {
            let _answer = self.admit(token).await;
            self.env.sleep(Duration::from_secs(1)).await;
        }
    }
}

// parity: token-review-subject-access
#[tokio::test(start_paused = true)]
async fn user_is_remembered_for_a_minute_a_right_for_five_and_a_refusal_for_half_of_one() {
    let reader = Asked::new();
    reader.ask_for("reader", 600).await;
    assert_eq!(reader.reviewer.counts(), (10, 2));
    let nosy = Asked::new();
    nosy.ask_for("nosy", 600).await;
    assert_eq!(nosy.reviewer.counts(), (10, 20));
    let nobody = Asked::new();
    nobody.ask_for("nobody", 600).await;
    assert_eq!(nobody.reviewer.counts(), (20, 0));
}

// parity: token-review-subject-access
#[tokio::test(start_paused = true)]
async fn many_who_come_at_once_with_one_token_cost_one_review_of_each_kind() {
    let asked = Asked::new();
    let all = join_all((0..10).map(|_| asked.admit("reader"))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(asked.reviewer.counts(), (1, 1));
}

// parity: token-review-subject-access
#[tokio::test(start_paused = true)]
async fn api_server_that_is_away_is_asked_five_times_with_pauses_and_that_is_not_remembered() {
    let asked = Asked::new();
    asked.reviewer.away.store(true, Ordering::Relaxed);
    let begun = asked.env.now();
    assert!(matches!(asked.admit("reader").await, Err(AuthError::Unreachable)));
    let waited = asked.env.now().saturating_duration_since(begun);
    // 0.5, 0.75, 1.125 and 1.6875 s, and up to a fifth more.
    assert!((4.0625..4.875).contains(&waited.as_secs_f64()), "{waited:?}");
    assert_eq!(asked.reviewer.counts(), (5, 0));
    asked.reviewer.away.store(false, Ordering::Relaxed);
    assert!(asked.admit("reader").await.is_ok());
    assert_eq!(asked.reviewer.counts(), (6, 1));
}

// parity: token-review-subject-access
#[tokio::test(start_paused = true)]
async fn review_that_is_never_answered_ends_after_ten_seconds() {
    let asked = Asked::new();
    asked.reviewer.held.store(true, Ordering::Relaxed);
    let begun = asked.env.now();
    assert!(matches!(asked.admit("reader").await, Err(AuthError::Unreachable)));
    assert_eq!(asked.env.now().saturating_duration_since(begun), Duration::from_secs(10));
}
