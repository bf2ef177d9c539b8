//! The wait for the caches at the start of a controller or runnable.

use std::time::Duration;

use windlass_env::{Env, Instant};

use crate::consistency::caches::Cache;
use crate::error::SetupError;
use crate::setup::CacheSync;

/// Interval of the log line that names the caches that delay a start.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// The wait of one controller or runnable.
pub(crate) struct CacheWait<'a> {
    pub(crate) env: &'a Env,
    pub(crate) name: &'static str,
    pub(crate) limit: CacheSync,
}

impl CacheWait<'_> {
    /// Waits for the future that `synced` returns, up to the configured time. `lacking` names the missing caches.
    ///
    /// # Errors
    /// The error of the future, and [`SetupError::NotSynced`].
    ///
    /// # Cancel safety
    /// Safe if the future is: it is dropped and created again whenever the log is written.
    pub(crate) async fn until<F>(
        &self,
        synced: impl Fn() -> F,
        lacking: impl Fn() -> String,
    ) -> Result<(), SetupError>
    where
        F: Future<Output = Result<(), SetupError>>,
    {
        let begun = self.env.now();
        let deadline = match self.limit {
            CacheSync::Within(patience) => begun + patience,
            CacheSync::Forever => Instant::NEVER,
        };
        loop {
            let now = self.env.now();
            let turn = deadline.min(now + LOG_INTERVAL).saturating_duration_since(now);
            if let Ok(synced) = self.env.timeout(turn, synced()).await {
                return synced;
            }
            let (waited, lacking) = (self.env.now().saturating_duration_since(begun), lacking());
            if self.env.now() >= deadline {
                return Err(SetupError::NotSynced { waited, lacking });
            }
            tracing::warn!(controller = self.name, ?waited, caches = lacking, "waiting for caches");
        }
    }
}

/// Waits until every cache has its initial list.
///
/// # Errors
/// If an informer was shut down before that.
pub(crate) async fn caches_synced(caches: &[Cache]) -> Result<(), SetupError> {
    for cache in caches {
        if !cache.synced().await {
            return Err(shut_down(cache.kind().to_string()));
        }
    }
    Ok(())
}

pub(crate) fn shut_down(kind: String) -> SetupError {
    SetupError::Watch { kind, message: "the informer has stopped".to_owned() }
}
