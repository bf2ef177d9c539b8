//! The token of one ServiceAccount: requested on first use and renewed before it expires, one request at a time.
//!
//! There is no refresh task. The first request after the renewal time renews the token, and other requests use the
//! previous one. An identity that sends no requests requests no tokens.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Mutex as Turns;
use windlass_env::{Env, Instant, Rng};

use super::account::{IssuedToken, ServiceAccountClient, Token, TokenFailure};
use crate::error::IdentityError;

/// The share of its lifetime after which a token is renewed, in percent, as in upstream.
const RENEWED_AFTER: u32 = 80;
/// The maximum share by which a renewal is earlier, in percent, so that identities that start together do not renew at
/// the same time.
const SPREAD: u32 = 10;
/// Delay after the first failure; doubles with each further failure. As in upstream.
const MIN_WAIT: Duration = Duration::from_millis(500);
/// Maximum delay between two attempts, before up to 50 % jitter. Short enough that a request that needs a token
/// receives it within its own time limit after the failure ends.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// If a server rejects a token younger than this, it would also reject a new one: it has not observed the
/// ServiceAccount yet, or does not accept tokens.
const YOUNG: Duration = Duration::from_secs(10);

/// The tokens of one ServiceAccount. Clones share them.
#[derive(Clone)]
pub(crate) struct TokenCache(Arc<Inner>);

struct Inner {
    env: Env,
    account: ServiceAccountClient,
    /// Held while requesting a token. Fair: tokio's mutex is first in, first out.
    turns: Turns<()>,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    cached: Option<CachedToken>,
    /// Number of issued tokens.
    grants: u64,
    /// Number of failed attempts.
    failures: u64,
    /// Number of failed attempts since the last issued token.
    in_a_row: u32,
    /// The last failure, and the time of the next attempt.
    failed: Option<(IdentityError, Instant)>,
}

/// A token with its times.
#[derive(Clone)]
struct CachedToken {
    token_ref: TokenRef,
    requested_at: Instant,
    renew_at: Instant,
    ends_at: Instant,
}

/// A token for a request, and its number among the tokens of the ServiceAccount.
#[derive(Clone)]
pub(crate) struct TokenRef {
    pub(crate) token: Token,
    number: u64,
}

/// The result of a cache lookup.
enum CacheLookup {
    /// A valid token.
    Good(TokenRef),
    /// A valid token that should be renewed.
    Due(TokenRef),
    /// No valid token.
    Nothing,
}

impl TokenCache {
    pub(crate) fn new(env: Env, account: ServiceAccountClient, rng: Rng) -> Self {
        let state = State { rng, cached: None, grants: 0, failures: 0, in_a_row: 0, failed: None };
        Self(Arc::new(Inner { env, account, turns: Turns::new(()), state: Mutex::new(state) }))
    }

    /// Returns a valid token, and requests one if necessary.
    ///
    /// # Cancel safety
    /// A dropped request leaves the queue. If its token was already requested, the token is lost and requested again.
    pub(crate) async fn get(&self) -> Result<TokenRef, IdentityError> {
        match self.lookup() {
            CacheLookup::Good(token_ref) => Ok(token_ref),
            CacheLookup::Due(old) => Ok(self.renewed(old).await),
            CacheLookup::Nothing => self.first().await,
        }
    }

    /// Drops a token that the server rejected. Returns whether a retry with another token is useful.
    pub(crate) fn invalidate(&self, token_ref: &TokenRef) -> bool {
        let (now, mut state) = (self.0.env.now(), self.lock());
        match &state.cached {
            Some(cached) if cached.token_ref.number == token_ref.number => {
                let young = now.saturating_duration_since(cached.requested_at) < YOUNG;
                if !young {
                    state.cached = None;
                }
                !young
            }
            // Another request already reported this token.
            _ => true,
        }
    }

    /// Renews a token that is still valid. Returns the old token if another request renews it, or if renewal fails.
    async fn renewed(&self, old: TokenRef) -> TokenRef {
        let Ok(_turn) = self.0.turns.try_lock() else { return old };
        self.request_token().await.unwrap_or(old)
    }

    /// Waits for a token for a request that cannot be sent without one. If an attempt fails while it waits, returns
    /// that error.
    async fn first(&self) -> Result<TokenRef, IdentityError> {
        let failures = self.lock().failures;
        let _turn = self.0.turns.lock().await;
        if let CacheLookup::Good(token_ref) | CacheLookup::Due(token_ref) = self.lookup() {
            return Ok(token_ref);
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
        self.request_token().await
    }

    async fn request_token(&self) -> Result<TokenRef, IdentityError> {
        let requested_at = self.0.env.now();
        match self.0.account.issue().await {
            Ok(grant) => Ok(self.lock().granted(grant, requested_at)),
            Err(failure) => Err(self.failed(failure)),
        }
    }

    fn failed(&self, failure: TokenFailure) -> IdentityError {
        let error = failure.error.clone();
        let wait = self.lock().failed(failure, self.0.env.now());
        tracing::warn!(%error, ?wait, "token request for service account failed; retrying");
        error
    }

    fn lookup(&self) -> CacheLookup {
        let (now, state) = (self.0.env.now(), self.lock());
        let Some(cached) = state.cached.as_ref().filter(|cached| now < cached.ends_at) else {
            return CacheLookup::Nothing;
        };
        let pause = state.failed.as_ref().map_or(Instant::ORIGIN, |(_, again)| *again);
        let token_ref = cached.token_ref.clone();
        if now < cached.renew_at || now < pause {
            CacheLookup::Good(token_ref)
        } else {
            CacheLookup::Due(token_ref)
        }
    }

    /// Ignores poisoning: no user code runs under this lock, so the state is always consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn granted(&mut self, grant: IssuedToken, requested_at: Instant) -> TokenRef {
        let IssuedToken { token, lifetime } = grant;
        self.grants += 1;
        let token_ref = TokenRef { token, number: self.grants };
        let earliest = lifetime * (RENEWED_AFTER - SPREAD) / 100;
        let renew_at = requested_at + self.rng.between(earliest, lifetime * RENEWED_AFTER / 100);
        self.cached = Some(CachedToken {
            token_ref: token_ref.clone(),
            requested_at,
            renew_at,
            ends_at: requested_at + lifetime,
        });
        (self.in_a_row, self.failed) = (0, None);
        token_ref
    }

    /// Records a failure and returns the delay until the next attempt.
    fn failed(&mut self, failure: TokenFailure, now: Instant) -> Duration {
        let TokenFailure { error, advice } = failure;
        let doubled = MIN_WAIT.saturating_mul(1 << self.in_a_row.min(16)).min(MAX_WAIT);
        // A longer delay than the time limit of a request is not useful, regardless of the server's request.
        let wait = self.rng.jitter(doubled.max(advice.unwrap_or_default().min(MAX_WAIT)), 0.5);
        self.failures += 1;
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.failed = Some((error, now + wait));
        wait
    }
}

impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenCache").field(&self.0.account).finish()
    }
}
