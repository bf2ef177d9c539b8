//! Waiting for the world to become as promised, and saying what it looked like when it did not.

use std::{
    fmt::Debug,
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// How long a promise may take to come true. Generous: these tests state properties, not speed.
pub const TIMEOUT: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Looks at the world until `accept` holds for what it sees.
///
/// # Errors
/// A look that failed, or, after [`TIMEOUT`], what was last seen.
pub async fn eventually<T, L, F>(what: &str, look: L, accept: impl Fn(&T) -> bool) -> Result<T>
where
    T: Debug,
    L: FnMut() -> F,
    F: Future<Output = Result<T>>,
{
    eventually_within(TIMEOUT, what, look, accept).await
}

/// The same with another patience.
///
/// # Errors
/// As [`eventually`].
pub async fn eventually_within<T, L, F>(
    patience: Duration,
    what: &str,
    mut look: L,
    accept: impl Fn(&T) -> bool,
) -> Result<T>
where
    T: Debug,
    L: FnMut() -> F,
    F: Future<Output = Result<T>>,
{
    let started = Instant::now();
    loop {
        let seen = look().await?;
        if accept(&seen) {
            return Ok(seen);
        }
        if started.elapsed() > patience {
            bail!("{what}: still not so after {patience:?}; last seen: {seen:#?}");
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
