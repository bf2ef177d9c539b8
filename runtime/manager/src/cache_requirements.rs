//! The caches that each controller requires before it can work. It does not wait for the caches of other controllers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_admin::{Check, Health};
use windlass_controller::host::PreparedController;
use windlass_controller::{CacheSync, SetupError};
use windlass_env::Env;

use crate::error::ManagerError;

/// The required caches of some controllers, for readiness and the start. Clones share them.
#[derive(Clone)]
pub(crate) struct CacheRequirements(Vec<CacheRequirement>);

#[derive(Clone)]
struct CacheRequirement {
    controller: &'static str,
    caches: Check,
    patience: CacheSync,
}

/// A controller whose caches are not synced.
pub(crate) struct UnmetRequirement {
    pub(crate) controller: &'static str,
    /// The caches, with the reasons.
    pub(crate) lacking: String,
    patience: CacheSync,
}

/// The readiness of the controllers before they start.
pub(crate) enum CacheReadiness {
    /// Some controllers have all their caches, or there are no controllers.
    SomeCanWork,
    /// No controller can work, and at least one waits without a limit.
    NoneCanWork,
    /// No controller can work, and each has a limit: this one has the shortest.
    NoneCanWorkFor(UnmetRequirement, Duration),
}

impl CacheRequirements {
    pub(crate) fn of(prepared: &[PreparedController]) -> Self {
        let need = |one: &PreparedController| {
            let caches = one.caches();
            CacheRequirement {
                controller: one.descriptor().name,
                caches: Arc::new(move || caches().map_err(|behind| behind.to_string())),
                patience: one.cache_sync(),
            }
        };
        Self(prepared.iter().map(need).collect())
    }

    /// Adds one check per controller, in addition to the check of all controllers.
    pub(crate) fn add_checks(&self, health: &Health) {
        for CacheRequirement { controller, caches, .. } in &self.0 {
            health.ready(&format!("informer-sync-{controller}"), Arc::clone(caches));
        }
    }

    /// Returns the controllers whose caches are not synced.
    pub(crate) fn unmet(&self) -> Vec<UnmetRequirement> {
        let unmet = |CacheRequirement { controller, caches, patience }: &CacheRequirement| {
            let lacking = caches().err()?;
            Some(UnmetRequirement { controller, lacking, patience: *patience })
        };
        self.0.iter().filter_map(unmet).collect()
    }

    /// Returns whether a controller can work; if none can, the shortest limit of their waits.
    pub(crate) fn standing(&self) -> CacheReadiness {
        let unmet = self.unmet();
        if unmet.is_empty() || unmet.len() < self.0.len() {
            return CacheReadiness::SomeCanWork;
        }
        let bounded: Option<Vec<_>> = unmet.into_iter().map(UnmetRequirement::with_patience).collect();
        match bounded.and_then(|bounded| bounded.into_iter().min_by_key(|(_, patience)| *patience)) {
            Some((unmet, patience)) => CacheReadiness::NoneCanWorkFor(unmet, patience),
            None => CacheReadiness::NoneCanWork,
        }
    }
}

/// Interval at which CRDs that are not installed are rechecked while no controller can work.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Waits for the required caches.
impl CacheRequirements {
    /// Returns the delay before the next check of missing caches, at most `turn`.
    ///
    /// # Errors
    /// When a controller has reached the limit of its wait.
    pub(crate) fn turn(&self, turn: Duration, waited: Duration) -> Result<Duration, ManagerError> {
        let CacheReadiness::NoneCanWorkFor(unmet, patience) = self.standing() else { return Ok(turn) };
        let left = patience.saturating_sub(waited);
        if left.is_zero() {
            let source = SetupError::NotSynced { waited, lacking: unmet.lacking };
            return Err(ManagerError::Setup { controller: unmet.controller, source });
        }
        Ok(turn.min(left))
    }

    /// Waits until at least one controller can work.
    ///
    /// # Errors
    /// As [`CacheRequirements::turn`].
    pub(crate) async fn met(&self, env: &Env) -> Result<(), ManagerError> {
        let begun = env.now();
        while !matches!(self.standing(), CacheReadiness::SomeCanWork) {
            let waited = env.now().saturating_duration_since(begun);
            env.sleep(self.turn(POLL_INTERVAL, waited)?).await;
        }
        Ok(())
    }
}

impl UnmetRequirement {
    fn with_patience(self) -> Option<(Self, Duration)> {
        match self.patience {
            CacheSync::Within(patience) => Some((self, patience)),
            CacheSync::Forever => None,
        }
    }
}

impl fmt::Debug for UnmetRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.controller, self.lacking)
    }
}

impl fmt::Debug for CacheRequirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheRequirements").field(&self.unmet()).finish()
    }
}
