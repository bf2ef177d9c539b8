//! The token of one account over time: asked for when first needed, renewed before it expires, one request at a time.
//!
//! No task keeps it fresh: the request that finds the token due for renewal renews it, and all others continue with the
//! old one meanwhile. An identity that sends nothing asks for nothing.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Mutex as Turns;
use windlass_env::{Env, Instant, Rng};

use super::account::{IssuedToken, ServiceAccountClient, Token, TokenFailure};
use crate::error::IdentityError;

/// A token is renewed when this share of its lifetime has passed, in percent: upstream's rule.
const RENEWED_AFTER: u32 = 80;
/// A renewal may come earlier by up to this share, in percent, so that identities that began together do not all ask
/// at once forever after.
const SPREAD: u32 = 10;
/// The wait after a first failure; it doubles with each further one. Upstream's.
const MIN_WAIT: Duration = Duration::from_millis(500);
/// The longest wait between two tries, but for half of it that chance adds. Short enough that a request which needs a
/// token still gets it within its own deadline, once whatever kept it back is over.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// A server that refuses a token younger than this would refuse the next one too: it does not know the account yet, or
/// does not take tokens at all.
const YOUNG: Duration = Duration::from_secs(10);

/// The tokens of one account. Clones are one.
#[derive(Clone)]
pub(crate) struct TokenCache(Arc<Inner>);

struct Inner {
    env: Env,
    account: ServiceAccountClient,
    /// Whoever asks the server holds it. Fair: tokio's mutex hands over in the order of arrival.
    turns: Turns<()>,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    held: Option<CachedToken>,
    /// How many tokens there were.
    grants: u64,
    /// How many tries failed.
    failures: u64,
    /// How many of these since a token was last made out.
    in_a_row: u32,
    /// The last failure, and before when nobody tries again.
    failed: Option<(IdentityError, Instant)>,
}

/// A token and its times.
#[derive(Clone)]
struct CachedToken {
    ticket: TokenRef,
    asked: Instant,
    renew_at: Instant,
    ends_at: Instant,
}

/// A token to send a request with, and which of its account's it is.
#[derive(Clone)]
pub(crate) struct TokenRef {
    pub(crate) token: Token,
    number: u64,
}

/// What there is for a request.
enum CacheLookup {
    /// A good token.
    Good(TokenRef),
    /// A good token that somebody should renew.
    Due(TokenRef),
    /// None.
    Nothing,
}

impl TokenCache {
    pub(crate) fn new(env: Env, account: ServiceAccountClient, rng: Rng) -> Self {
        let state = State { rng, held: None, grants: 0, failures: 0, in_a_row: 0, failed: None };
        Self(Arc::new(Inner { env, account, turns: Turns::new(()), state: Mutex::new(state) }))
    }

    /// A token that is good now.
    ///
    /// # Cancel safety
    /// A request that is dropped gives up its turn. A token that was on its way to it is lost, and asked for again.
    pub(crate) async fn get(&self) -> Result<TokenRef, IdentityError> {
        match self.look() {
            CacheLookup::Good(ticket) => Ok(ticket),
            CacheLookup::Due(old) => Ok(self.renewed(old).await),
            CacheLookup::Nothing => self.first().await,
        }
    }

    /// The server did not take this token. Whether another one is worth a try.
    pub(crate) fn invalidate(&self, ticket: &TokenRef) -> bool {
        let (now, mut state) = (self.0.env.now(), self.lock());
        match &state.held {
            Some(held) if held.ticket.number == ticket.number => {
                let young = now.saturating_duration_since(held.asked) < YOUNG;
                if !young {
                    state.held = None;
                }
                !young
            }
            // Somebody noticed before.
            _ => true,
        }
    }

    /// A new token instead of one that is still good; the old one if somebody else is at it, or if it fails.
    async fn renewed(&self, old: TokenRef) -> TokenRef {
        let Ok(_turn) = self.0.turns.try_lock() else { return old };
        self.ask().await.unwrap_or(old)
    }

    /// A token for a request that cannot be sent without one. Whoever waited for a try that failed fails with it.
    async fn first(&self) -> Result<TokenRef, IdentityError> {
        let failures = self.lock().failures;
        let _turn = self.0.turns.lock().await;
        if let CacheLookup::Good(ticket) | CacheLookup::Due(ticket) = self.look() {
            return Ok(ticket);
        }
        let pause = {
            let state = self.lock();
            match &state.failed {
                Some((error, _)) if state.failures != failures => return Err(error.clone()),
                Some((_, again)) => *again,
                None => Instant::ORIGIN,
            }
        };
        self.0.env.sleep_until(pause).await;
        self.ask().await
    }

    async fn ask(&self) -> Result<TokenRef, IdentityError> {
        let asked = self.0.env.now();
        match self.0.account.issue().await {
            Ok(grant) => Ok(self.lock().granted(grant, asked)),
            Err(failure) => Err(self.failed(failure)),
        }
    }

    fn failed(&self, failure: TokenFailure) -> IdentityError {
        let error = failure.error.clone();
        let wait = self.lock().failed(failure, self.0.env.now());
        tracing::warn!(%error, ?wait, "no token for a service account: trying again");
        error
    }

    fn look(&self) -> CacheLookup {
        let (now, state) = (self.0.env.now(), self.lock());
        let Some(held) = state.held.as_ref().filter(|held| now < held.ends_at) else {
            return CacheLookup::Nothing;
        };
        let pause = state.failed.as_ref().map_or(Instant::ORIGIN, |(_, again)| *again);
        let ticket = held.ticket.clone();
        if now < held.renew_at || now < pause { CacheLookup::Good(ticket) } else { CacheLookup::Due(ticket) }
    }

    /// No code of others runs under this lock, so poison cannot mean a broken state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn granted(&mut self, grant: IssuedToken, asked: Instant) -> TokenRef {
        let IssuedToken { token, lifetime } = grant;
        self.grants += 1;
        let ticket = TokenRef { token, number: self.grants };
        let earliest = lifetime * (RENEWED_AFTER - SPREAD) / 100;
        let renew_at = asked + self.rng.between(earliest, lifetime * RENEWED_AFTER / 100);
        self.held = Some(CachedToken { ticket: ticket.clone(), asked, renew_at, ends_at: asked + lifetime });
        (self.in_a_row, self.failed) = (0, None);
        ticket
    }

    /// How long to wait before the next try.
    fn failed(&mut self, failure: TokenFailure, now: Instant) -> Duration {
        let TokenFailure { error, advice } = failure;
        let doubled = MIN_WAIT.saturating_mul(1 << self.in_a_row.min(16)).min(MAX_WAIT);
        // Longer than a request waits for its token is too long, whatever the server asks for.
        let wait = self.rng.jitter(doubled.max(advice.unwrap_or_default().min(MAX_WAIT)), 0.5);
        self.failures += 1;
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.failed = Some((error, now + wait));
        wait
    }
}

impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tokens").field(&self.0.account).finish()
    }
}
