//! The reachability of the server, derived from all requests of all identities.
//!
//! Guarantees:
//! - Every response counts, except 429, 502, 503 and 504: busy servers, starting servers and proxies send these, so
//!   they show nothing. A request is unanswered if its connection fails, if its time limit passes, or if its sender
//!   drops it after [`OUTAGE`] without any response in the meantime. A request that is repeated after a recovery
//!   therefore does not report an outage.
//! - An **outage** is a period of at least [`OUTAGE`] without a response and with an unanswered request. The first
//!   response after it is the **recovery**. A time limit shorter than this does not prove an outage.
//! - Callers that wait for the server continue after the first response, evenly spread over [`SPREAD`], and at most one
//!   per [`GAP`] unless more than 75 callers wait.
//! - From [`OUTAGE`] after the first unanswered request until the next response, one waiting caller continues every
//!   [`PROBE_INTERVAL`], in turn. Independent of the callers' backoffs, the process sends a request within a second
//!   after the server is reachable again, and at most one probe per second.
//!
//! This module sends no requests: the probes are requests that callers send anyway.

use crate::stack::BoxedRequest;
use std::{
    fmt,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::{self, Either};
use http::StatusCode;
use windlass_env::{
    Env, Instant,
    watch_channel::{Sender, channel},
};

use crate::{
    error::{CredentialsError, DeadlineError, FencedError, IdentityError, KilledError},
    progress::RequestProgress,
    stack::{Middleware, Next, ResponseResult},
};

/// Minimum duration of an outage: longer than a reconnect or the retransmission of a lost packet.
const OUTAGE: Duration = Duration::from_secs(3);
/// Time until all waiting callers have continued.
const SPREAD: Duration = Duration::from_millis(1_500);
/// Minimum time between two callers that continue, unless too many wait to fit into the spread.
const GAP: Duration = Duration::from_millis(20);
/// Interval at which one waiting caller continues while requests are unanswered.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The reachability of the server from this process. Cheap to clone; clones share the state.
#[derive(Clone)]
pub struct Reachability {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    state: Mutex<State>,
    answers: Sender<u64>,
    recovery: Sender<Recovery>,
    /// Held by the caller that continues next. Fair: tokio's mutex is first in, first out.
    prober: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    last_answer: Option<Instant>,
    /// The period since the first unanswered request after the last response.
    unanswered: Option<UnansweredPeriod>,
    /// Number of waiting callers.
    waiting: u32,
    /// Earliest time for the next caller to continue after a response.
    next_slot: Instant,
    next_probe: Instant,
}

#[derive(Copy, Clone, Debug)]
struct UnansweredPeriod {
    since: Instant,
    /// Whether there is stronger evidence of an outage than a short time limit.
    is_proven: bool,
}

impl State {
    /// Returns the time of the next probe; `None` while no request is unanswered.
    fn probe_at(&self) -> Option<Instant> {
        self.unanswered.map(|it| self.next_probe.max(it.since + OUTAGE))
    }
}

/// The last recovery.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Recovery {
    number: u64,
    at: Instant,
}

/// The reason why a waiting caller continues.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Resumption {
    /// The server answered a request of the process.
    Answered {
        /// Whether the response ended an outage.
        recovered: bool,
    },
    /// This caller sends the next probe.
    Probe,
}

impl Reachability {
    pub(crate) fn new(env: Env) -> Self {
        let state = State {
            last_answer: None,
            unanswered: None,
            waiting: 0,
            next_slot: Instant::ORIGIN,
            next_probe: Instant::ORIGIN,
        };
        let answers = channel(0).0;
        let recovery = channel(Recovery { number: 0, at: Instant::ORIGIN }).0;
        let inner =
            Inner { env, state: Mutex::new(state), answers, recovery, prober: tokio::sync::Mutex::new(()) };
        Self { inner: Arc::new(inner) }
    }

    /// Returns whether a request of the process was answered at `then` or later.
    pub fn has_answered_since(&self, then: Instant) -> bool {
        self.lock().last_answer.is_some_and(|last| last >= then)
    }

    /// Waits until repeating an unanswered request is useful: until the server responds to another request and this
    /// caller's slot begins, or until this caller sends the next probe.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_resumption(&self) -> Resumption {
        let Inner { env, answers, .. } = &*self.inner;
        let (began, seen, _waiting) = (env.now(), answers.get(), Waiting::begin(self));
        let answered = async {
            self.wait_for_answer_after(seen).await;
            let last = self.inner.recovery.get();
            self.slot().await;
            last.number > 0 && last.at >= began
        };
        match future::select(pin!(answered), pin!(self.probe())).await {
            Either::Left((recovered, _)) => Resumption::Answered { recovered },
            Either::Right(((), _)) => Resumption::Probe,
        }
    }

    /// Waits for the next recovery and then for this caller's slot. Used by a caller whose connection might not have
    /// survived the outage. A connection that received data less than 3 s before the recovery has survived;
    /// `last_data_at` returns the time of the last data and is called at the recovery.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_recovered(&self, last_data_at: impl Fn() -> Option<Instant>) {
        let recovery = &self.inner.recovery;
        let seen = recovery.get().number;
        // Registered from the start, so that slots after a recovery fit all callers.
        let _waiting = Waiting::begin(self);
        let silent = |it: &Recovery| last_data_at().is_none_or(|last_data_at| last_data_at + OUTAGE <= it.at);
        let concerns = |it: &Recovery| it.number > seen && silent(it);
        if recovery.subscribe().wait_for(concerns).await.is_err() {
            // All senders were dropped, so there is no further recovery.
            future::pending::<()>().await;
        }
        self.slot().await;
    }

    async fn wait_for_answer_after(&self, seen: u64) {
        if self.inner.answers.subscribe().wait_for(|answers| *answers > seen).await.is_err() {
            future::pending::<()>().await;
        }
    }

    /// Waits for the slot of this caller among those that continue after the same response.
    async fn slot(&self) {
        let env = &self.inner.env;
        let at = {
            let mut state = self.lock();
            let slot = state.next_slot.max(env.now());
            state.next_slot = slot + GAP.min(SPREAD / state.waiting.max(1));
            slot
        };
        if at > env.now() {
            env.sleep_until(at).await;
        }
    }

    /// Waits until this caller sends the next probe.
    async fn probe(&self) {
        let Inner { env, prober, .. } = &*self.inner;
        let _turn = prober.lock().await;
        loop {
            // The time changes with every response.
            let at = self.lock().probe_at().unwrap_or(env.now() + PROBE_INTERVAL);
            if at <= env.now() {
                break;
            }
            env.sleep_until(at).await;
        }
        self.lock().next_probe = env.now() + PROBE_INTERVAL;
    }

    fn answered(&self) {
        let now = self.inner.env.now();
        let unanswered = {
            let mut state = self.lock();
            state.last_answer = Some(now);
            state.unanswered.take()
        };
        if let Some(UnansweredPeriod { since, is_proven: true }) = unanswered
            && now.saturating_duration_since(since) >= OUTAGE
        {
            tracing::info!(silent_for = ?now.saturating_duration_since(since), "server reachable again");
            self.inner.recovery.send_modify(|last| *last = Recovery { number: last.number + 1, at: now });
        }
        // After the recovery, so that a resumed caller observes it.
        self.inner.answers.send_modify(|answers| *answers += 1);
    }

    /// Records that a request sent at `sent` is unanswered. `by_deadline` is true if only its time limit passed.
    fn unanswered(&self, sent: Instant, by_deadline: bool) {
        let now = self.inner.env.now();
        let mut state = self.lock();
        let since = state.last_answer.map_or(sent, |last| last.max(sent));
        let unanswered = state.unanswered.get_or_insert(UnansweredPeriod { since, is_proven: false });
        unanswered.is_proven |= !by_deadline || now.saturating_duration_since(unanswered.since) >= OUTAGE;
    }

    /// Ignores poisoning: no user code runs under this lock, so the state is always consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reachability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reachability").field("state", &*self.lock()).finish_non_exhaustive()
    }
}

/// One waiting caller.
struct Waiting<'a>(&'a Reachability);

impl<'a> Waiting<'a> {
    fn begin(of: &'a Reachability) -> Self {
        of.lock().waiting += 1;
        Self(of)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// Middleware that reports responses and unanswered requests.
#[derive(Clone)]
pub(crate) struct ReachabilityMiddleware(pub(crate) Reachability);

impl Middleware for ReachabilityMiddleware {
    async fn handle(self, request: BoxedRequest, next: Next) -> ResponseResult {
        if let Some(progress) = request.extensions().get::<RequestProgress>() {
            progress.sent(self.0.inner.env.now());
        }
        let mut pending = Pending { sent: self.0.inner.env.now(), reachability: Some(self.0) };
        let answer = next.send(request).await;
        if let Some(reachability) = pending.reachability.take() {
            match &answer {
                Ok(response) if is_answer(response.status()) => reachability.answered(),
                Err(error) if !is_ours(error.as_ref()) => {
                    reachability.unanswered(pending.sent, error.is::<DeadlineError>());
                }
                Ok(_) | Err(_) => {}
            }
        }
        answer
    }
}

/// A request in progress. If its sender drops it after a long wait, it is unanswered.
struct Pending {
    sent: Instant,
    reachability: Option<Reachability>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(reachability) = self.reachability.take() else { return };
        let is_long = reachability.inner.env.now().saturating_duration_since(self.sent) >= OUTAGE;
        if is_long && !reachability.has_answered_since(self.sent) {
            reachability.unanswered(self.sent, false);
        }
    }
}

fn is_answer(status: StatusCode) -> bool {
    !matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Returns whether the request failed inside this process, which shows nothing about the server.
fn is_ours(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<FencedError>()
        || error.is::<KilledError>()
        || error.is::<IdentityError>()
        || error.is::<CredentialsError>()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn drop_after(env: &Env, reachability: &Reachability, wait: Duration, answer: bool) {
        let pending = Pending { sent: env.now(), reachability: Some(reachability.clone()) };
        env.sleep(wait).await;
        if answer {
            reachability.answered();
        }
        drop(pending);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_request_is_unanswered_unless_another_got_a_response() {
        let env = Env::virtual_time(1);
        for (wait, answer, unanswered) in
            [(OUTAGE, false, true), (OUTAGE - Duration::from_millis(1), false, false), (OUTAGE, true, false)]
        {
            let reachability = Reachability::new(env.clone());
            drop_after(&env, &reachability, wait, answer).await;
            assert_eq!(reachability.lock().unanswered.is_some(), unanswered, "{wait:?}, {answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn short_time_limit_is_no_outage_until_silence_is_long() {
        let (env, short) = (Env::virtual_time(1), Duration::from_millis(200));
        for (misses, recoveries) in [(1, 0), (20, 1)] {
            let reachability = Reachability::new(env.clone());
            for _ in 0..misses {
                let sent = env.now();
                env.sleep(short).await;
                reachability.unanswered(sent, true);
            }
            env.sleep(OUTAGE).await;
            reachability.answered();
            assert_eq!(reachability.inner.recovery.get().number, recoveries, "{misses} misses");
        }
    }
}
