//! Waiting for a condition. The error contains the last observed state.

use std::{
    fmt::Debug,
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// Default timeout. It is long because these tests check properties, not speed.
pub const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Calls `poll` until `accept` returns true for its result.
///
/// # Errors
/// `poll` fails, or [`TIMEOUT`] passes; the error then contains the last result.
pub async fn eventually<T, L, F>(what: &str, poll: L, accept: impl Fn(&T) -> bool) -> Result<T>
where
    T: Debug,
    L: FnMut() -> F,
    F: Future<Output = Result<T>>,
{
    eventually_within(TIMEOUT, what, poll, accept).await
}

/// Polls like [`eventually`], with another timeout.
///
/// # Errors
/// As [`eventually`].
pub async fn eventually_within<T, L, F>(
    timeout: Duration,
    what: &str,
    mut poll: L,
    accept: impl Fn(&T) -> bool,
) -> Result<T>
where
    T: Debug,
    L: FnMut() -> F,
    F: Future<Output = Result<T>>,
{
    let started = Instant::now();
    loop {
        let seen = poll().await?;
        if accept(&seen) {
            return Ok(seen);
        }
        if started.elapsed() > timeout {
            bail!("{what}: timed out after {timeout:?}; last observed: {seen:#?}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
