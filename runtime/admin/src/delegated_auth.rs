//! Delegated authentication and authorization: TokenReviews and SubjectAccessReviews of the API server.
//!
//! Guarantees:
//! - A token is stored only as a keyed digest.
//! - The number of reviews in flight is bounded per client address and in total, and each review ends within ten
//!   seconds.
//! - A cached result waits for no review.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use ring::hmac;
use tokio::sync::Semaphore;
use windlass_client::one_line;
use windlass_env::{Env, Rng};
use windlass_metrics::{AdminMetrics, ReviewMetrics};

use crate::review_cache::{CachedReview, ReviewCache, ReviewKey};

/// Time limit of a review including retries: controller-runtime's limit for token reviews.
const WITHIN: Duration = Duration::from_secs(10);

/// Backoff between attempts, as in controller-runtime: initial delay, factor, jitter, and number of attempts.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const FACTOR: f64 = 1.5;
const JITTER: f64 = 0.2;
const ATTEMPTS: u32 = 5;

/// Limit of concurrent reviews. Each takes milliseconds; a client that guesses tokens must not load the API server.
const AT_ONCE: usize = 16;

/// Limit of requests that wait for reviews, in total and per address. Lower than the limit of connections, so that
/// probes are always accepted.
const MAX_WAITING: usize = 64;
const MAX_WAITING_FROM_ONE: usize = 16;

/// Limit of cached results per type of review. Clients are few.
const REMEMBERED: usize = 1024;

/// The reviewed verb. A HEAD is a GET without the body.
const VERB: &str = "get";

/// TTLs of cached results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ttls {
    pub(crate) authentication: Duration,
    pub(crate) allow: Duration,
    pub(crate) deny: Duration,
}

/// The user according to a TokenReview.
pub(crate) type User = Arc<UserInfo>;

/// The reason why a request was rejected.
#[derive(Clone, Debug)]
pub(crate) enum AuthError {
    /// The API server does not know the token.
    UnknownToken,
    /// The user is not allowed to read the path.
    Forbidden(User),
    /// Too many requests wait for reviews.
    Busy,
    /// The API server is unavailable. The reason is in the log.
    Unreachable,
}

/// A review that failed, which has been logged.
#[derive(Clone, Debug)]
struct Failed;

/// Sends reviews and caches their results.
pub(crate) struct DelegatedAuth {
    asker: ReviewClient,
    /// Random, so that the digests in memory reveal nothing about tokens.
    key: hmac::Key,
    ttls: Ttls,
    /// The user of a token; `None` for an unknown token.
    users: ReviewCache<Option<User>, Failed>,
    /// Whether a user is allowed to read a path.
    rights: ReviewCache<bool, Failed>,
    waiting: Mutex<BTreeMap<IpAddr, usize>>,
    metrics: AdminMetrics,
}

impl DelegatedAuth {
    pub(crate) fn new(env: &Env, client: kube::Client, ttls: Ttls, metrics: AdminMetrics) -> Self {
        let mut random = env.rng("admin token digests");
        let secret: Vec<u8> = (0..4).flat_map(|_| random.next_u64().to_ne_bytes()).collect();
        let asker = ReviewClient {
            env: env.clone(),
            client,
            pauses: Arc::new(Mutex::new(env.rng("admin review pauses"))),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            failing: Arc::default(),
        };
        Self {
            asker,
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            ttls,
            users: ReviewCache::new(env.clone(), REMEMBERED),
            rights: ReviewCache::new(env.clone(), REMEMBERED),
            waiting: Mutex::default(),
            metrics,
        }
    }

    /// Checks whether the client with `token` at `peer` is allowed to read `path`.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the review, unless another request waits for it.
    pub(crate) async fn admit(&self, token: &str, path: &str, peer: IpAddr) -> Result<(), AuthError> {
        let user = self.user(token, peer).await?.ok_or(AuthError::UnknownToken)?;
        match self.may_read(&user, path, peer).await? {
            true => Ok(()),
            false => Err(AuthError::Forbidden(user)),
        }
    }

    async fn user(&self, token: &str, peer: IpAddr) -> Result<Option<User>, AuthError> {
        let (question, metrics) = (self.question(&[token.as_bytes()]), &self.metrics.token_reviews);
        if let Some(user) = self.users.remembered(&question) {
            metrics.remembered.inc();
            return Ok(user);
        }
        let _waiting = self.wait(peer, metrics)?;
        let (asker, ttls, metrics) = (self.asker.clone(), self.ttls, metrics.clone());
        let token = token.to_owned();
        let asking = || async move { asker.authenticate(token, ttls, metrics).await }.boxed();
        self.users.ask(question, asking).await.map_err(|Failed| AuthError::Unreachable)
    }

    async fn may_read(&self, user: &User, path: &str, peer: IpAddr) -> Result<bool, AuthError> {
        // Maps in it are ordered, so one user has one serialization.
        let subject = serde_json::to_vec(&**user).unwrap_or_default();
        let (question, metrics) = (self.question(&[&subject, path.as_bytes()]), &self.metrics.access_reviews);
        if let Some(allowed) = self.rights.remembered(&question) {
            metrics.remembered.inc();
            return Ok(allowed);
        }
        let _waiting = self.wait(peer, metrics)?;
        let (asker, ttls, metrics) = (self.asker.clone(), self.ttls, metrics.clone());
        let (user, path) = (Arc::clone(user), path.to_owned());
        let asking = || async move { asker.may_read(&user, path, ttls, metrics).await }.boxed();
        self.rights.ask(question, asking).await.map_err(|Failed| AuthError::Unreachable)
    }

    fn question(&self, parts: &[&[u8]]) -> ReviewKey {
        let mut whole = hmac::Context::with_key(&self.key);
        for part in parts {
            whole.update(&part.len().to_be_bytes());
            whole.update(part);
        }
        let mut question = ReviewKey::default();
        question.copy_from_slice(whole.sign().as_ref());
        question
    }

    /// Reserves a position among the requests that wait for reviews.
    fn wait(&self, peer: IpAddr, metrics: &ReviewMetrics) -> Result<PendingReview<'_>, AuthError> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let from_peer = waiting.get(&peer).copied().unwrap_or_default();
        if from_peer >= MAX_WAITING_FROM_ONE || waiting.values().sum::<usize>() >= MAX_WAITING {
            metrics.busy.inc();
            return Err(AuthError::Busy);
        }
        waiting.insert(peer, from_peer + 1);
        Ok(PendingReview { waiting: &self.waiting, peer })
    }
}

impl fmt::Debug for DelegatedAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelegatedAuth").field("ttls", &self.ttls).finish_non_exhaustive()
    }
}

/// A request that waits for a review.
struct PendingReview<'a> {
    waiting: &'a Mutex<BTreeMap<IpAddr, usize>>,
    peer: IpAddr,
}

impl Drop for PendingReview<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = waiting.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.peer);
            }
        }
    }
}

/// Sends reviews.
#[derive(Clone)]
struct ReviewClient {
    env: Env,
    client: kube::Client,
    pauses: Arc<Mutex<Rng>>,
    places: Arc<Semaphore>,
    /// Whether the last review failed. Failures are logged once instead of once per request.
    failing: Arc<AtomicBool>,
}

impl ReviewClient {
    async fn authenticate(
        &self,
        token: String,
        ttls: Ttls,
        metrics: ReviewMetrics,
    ) -> Result<CachedReview<Option<User>>, Failed> {
        let spec = TokenReviewSpec { token, ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = self.create("TokenReview", &review, &metrics).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true)).map(Arc::new);
        let good = user.is_some();
        count(&metrics, good);
        let holds = if good { ttls.authentication } else { ttls.deny };
        Ok(CachedReview { value: user, holds, good })
    }

    async fn may_read(
        &self,
        user: &UserInfo,
        path: String,
        ttls: Ttls,
        metrics: ReviewMetrics,
    ) -> Result<CachedReview<bool>, Failed> {
        let UserInfo { extra, groups, uid, username } = user.clone();
        let attributes = NonResourceAttributes { path: Some(path), verb: Some(VERB.to_owned()) };
        let spec = SubjectAccessReviewSpec {
            extra,
            groups,
            non_resource_attributes: Some(attributes),
            resource_attributes: None,
            uid,
            user: username,
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let status = self.create("SubjectAccessReview", &review, &metrics).await?.status.unwrap_or_default();
        let good = status.allowed && status.denied != Some(true);
        count(&metrics, good);
        Ok(CachedReview { value: good, holds: if good { ttls.allow } else { ttls.deny }, good })
    }

    async fn create<K>(&self, what: &'static str, review: &K, metrics: &ReviewMetrics) -> Result<K, Failed>
    where
        K: kube::Resource<DynamicType = ()> + serde::Serialize + serde::de::DeserializeOwned,
        K: Clone + fmt::Debug,
    {
        let begun = self.env.now();
        let api = Api::all(self.client.clone());
        let reviewed = self.env.timeout(WITHIN, self.attempts(&api, review)).await;
        metrics.duration.observe(self.env.now().saturating_duration_since(begun).as_secs_f64());
        let error = match reviewed {
            Ok(Ok(review)) => {
                self.failing.store(false, Ordering::Relaxed);
                return Ok(review);
            }
            Ok(Err(error)) => one_line(&error),
            Err(_) => format!("no answer within {WITHIN:?}"),
        };
        metrics.failed.inc();
        if self.failing.swap(true, Ordering::Relaxed) {
            tracing::debug!(review = what, error, "review failed; request rejected");
        } else {
            tracing::warn!(review = what, error, "review failed; requests to the admin server are rejected");
        }
        Err(Failed)
    }

    async fn attempts<K>(&self, api: &Api<K>, review: &K) -> Result<K, kube::Error>
    where
        K: serde::Serialize + serde::de::DeserializeOwned + Clone + fmt::Debug,
    {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let mut pause = INITIAL_BACKOFF;
        for _ in 1..ATTEMPTS {
            match api.create(&PostParams::default(), review).await {
                Err(error) if may_pass(&error) => {
                    let jittered =
                        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).jitter(pause, JITTER);
                    self.env.sleep(jittered).await;
                    pause = pause.mul_f64(FACTOR);
                }
                answered => return answered,
            }
        }
        api.create(&PostParams::default(), review).await
    }
}

fn count(metrics: &ReviewMetrics, good: bool) {
    if good { metrics.granted.inc() } else { metrics.refused.inc() }
}

/// Returns whether a retry can succeed. A review changes nothing, so it can be repeated.
fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}
