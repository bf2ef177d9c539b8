//! Whether the server answers this process, known from every request of every identity.
//!
//! Guarantees:
//! - Any answer counts, except 429, 502, 503 and 504, which busy servers, starting servers and proxies send: from these
//!   nothing follows. A request counts as unanswered if its connection fails or if its deadline passes; also if its sender drops
//!   it after [`OUTAGE`] and nothing was answered meanwhile, so that a request which is sent again after a recovery does
//!   not report an outage.
//! - An **outage** is a time of at least [`OUTAGE`] without an answer, in which a request was unanswered. Its end, the
//!   first answer, is a **recovery**. A deadline that passes sooner proves no outage: its sender was in a hurry.
//! - Callers that wait for the server continue after the first answer, evenly spread over [`SPREAD`] and no more than one
//!   per [`GAP`] unless more than 75 of them wait.
//! - From [`OUTAGE`] after the first unanswered request on, as long as none is answered, one waiting caller continues every
//!   [`PROBE_INTERVAL`], in turn. So whatever pauses the callers chose, the process sends a request within a second after the
//!   server can be reached again, and no more than one per second for it.
//!
//! It refuses to send anything: the probes are requests that callers want to send anyway.

use std::{
    fmt,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::{self, Either};
use http::{Request, StatusCode};
use kube::client::Body;
use windlass_env::{
    Env, Instant,
    watch_channel::{Sender, channel},
};

use crate::{
    error::{CredentialsError, DeadlineError, FencedError, IdentityError, KilledError},
    progress::RequestProgress,
    stack::{Middleware, Next, ResponseResult},
};

/// The shortest silence that is an outage: longer than what a restarted connection or a lost packet costs.
const OUTAGE: Duration = Duration::from_secs(3);
/// How long it takes until all callers that waited have continued.
const SPREAD: Duration = Duration::from_millis(1_500);
/// The least time between two callers that continue, while no more wait than fit into the spread.
const GAP: Duration = Duration::from_millis(20);
/// How often one of the callers that wait continues although nothing is known.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// What is known about a process's way to its server. Cheap to clone; clones are one.
#[derive(Clone)]
pub struct Reachability {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    state: Mutex<State>,
    answers: Sender<u64>,
    recovery: Sender<Recovery>,
    /// Held by the caller that continues next. Fair: tokio's mutex hands over in the order of arrival.
    prober: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    last_answer: Option<Instant>,
    /// Begins with the first unanswered request since the last answer.
    silence: Option<Silence>,
    /// How many callers wait.
    waiting: u32,
    /// When the next caller can continue after an answer.
    next_slot: Instant,
    next_probe: Instant,
}

#[derive(Copy, Clone, Debug)]
struct Silence {
    since: Instant,
    /// Whether more than a short deadline speaks for an outage.
    is_proven: bool,
}

impl State {
    /// When a caller that waits can probe, as far as is known now; `None` while nothing is unanswered.
    fn probe_at(&self) -> Option<Instant> {
        self.silence.map(|it| self.next_probe.max(it.since + OUTAGE))
    }
}

/// The last recovery.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Recovery {
    number: u64,
    at: Instant,
}

/// Why a caller that waited for the server continues.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Resumption {
    /// The server answered a request of the process.
    Answered {
        /// Whether that ended an outage.
        recovered: bool,
    },
    /// It is this caller's turn to find out.
    Probe,
}

impl Reachability {
    pub(crate) fn new(env: Env) -> Self {
        let state = State {
            last_answer: None,
            silence: None,
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

    /// Waits until it is worth while to send a request that was unanswered: until the server answers another one and this
    /// caller's slot has come, or until it is this caller's turn to probe.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn resumption(&self) -> Resumption {
        let Inner { env, answers, .. } = &*self.inner;
        let (began, seen, _waiting) = (env.now(), answers.get(), Waiting::begin(self));
        let answered = async {
            self.more_answers_than(seen).await;
            let last = self.inner.recovery.get();
            self.slot().await;
            last.number > 0 && last.at >= began
        };
        match future::select(pin!(answered), pin!(self.probe())).await {
            Either::Left((recovered, _)) => Resumption::Answered { recovered },
            Either::Right(((), _)) => Resumption::Probe,
        }
    }

    /// Waits for the next recovery, and then for this caller's slot: for a caller whose connection might not have survived
    /// the outage. A connection that received data less than 3 s before the recovery has; `heard` returns the time of the last
    /// data and is called at the recovery.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn recovered(&self, heard: impl Fn() -> Option<Instant>) {
        let recovery = &self.inner.recovery;
        let seen = recovery.get().number;
        // From the beginning, so that the slots after a recovery are of a size that fits all.
        let _waiting = Waiting::begin(self);
        let silent = |it: &Recovery| heard().is_none_or(|heard| heard + OUTAGE <= it.at);
        let concerns = |it: &Recovery| it.number > seen && silent(it);
        if recovery.subscribe().wait_for(concerns).await.is_err() {
            // Nothing is left that could recover.
            future::pending::<()>().await;
        }
        self.slot().await;
    }

    async fn more_answers_than(&self, seen: u64) {
        if self.inner.answers.subscribe().wait_for(|answers| *answers > seen).await.is_err() {
            future::pending::<()>().await;
        }
    }

    /// Waits for the slot of one of those who continue after the same answer.
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

    /// Waits for this caller's turn to probe.
    async fn probe(&self) {
        let Inner { env, prober, .. } = &*self.inner;
        let _turn = prober.lock().await;
        loop {
            // It moves with every answer.
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
        let silence = {
            let mut state = self.lock();
            state.last_answer = Some(now);
            state.silence.take()
        };
        if let Some(Silence { since, is_proven: true }) = silence
            && now.saturating_duration_since(since) >= OUTAGE
        {
            tracing::info!(silent_for = ?now.saturating_duration_since(since), "server answers again");
            self.inner.recovery.send_modify(|last| *last = Recovery { number: last.number + 1, at: now });
        }
        // After the recovery, so that a caller that resumes knows of it.
        self.inner.answers.send_modify(|answers| *answers += 1);
    }

    /// A request that was sent at `sent` has not been answered: `by_deadline` if only because its deadline has passed.
    fn unanswered(&self, sent: Instant, by_deadline: bool) {
        let now = self.inner.env.now();
        let mut state = self.lock();
        let since = state.last_answer.map_or(sent, |last| last.max(sent));
        let silence = state.silence.get_or_insert(Silence { since, is_proven: false });
        silence.is_proven |= !by_deadline || now.saturating_duration_since(silence.since) >= OUTAGE;
    }

    /// No code of others runs under this lock, so poison cannot mean a broken state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reachability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reachability").field("state", &*self.lock()).finish_non_exhaustive()
    }
}

/// One caller that waits.
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

/// The step that reports answers and their absence.
#[derive(Clone)]
pub(crate) struct Sense(pub(crate) Reachability);

impl Middleware for Sense {
    async fn handle(self, request: Request<Body>, next: Next) -> ResponseResult {
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

/// A request that is not answered yet. One that its sender drops after a long wait was unanswered, too.
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

/// Whether the request failed within this process, so that nothing follows about the server.
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
    async fn dropped_request_is_unanswered_unless_another_was_answered_meanwhile() {
        let env = Env::virtual_time(1);
        for (wait, answer, unanswered) in
            [(OUTAGE, false, true), (OUTAGE - Duration::from_millis(1), false, false), (OUTAGE, true, false)]
        {
            let reachability = Reachability::new(env.clone());
            drop_after(&env, &reachability, wait, answer).await;
            assert_eq!(reachability.lock().silence.is_some(), unanswered, "{wait:?}, {answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn short_deadline_is_no_outage_until_the_silence_is_long() {
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
