//! What each controller needs before it can work: its own caches, and nobody else's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_admin::{Check, Health};
use windlass_controller::host::PreparedController;
use windlass_controller::{CacheSync, SetupError};
use windlass_env::Env;

use crate::error::ManagerError;

/// The caches of some controllers, as readiness and the start ask for them. Clones are the same.
#[derive(Clone)]
pub(crate) struct CacheRequirements(Vec<CacheRequirement>);

#[derive(Clone)]
struct CacheRequirement {
    controller: &'static str,
    caches: Check,
    patience: CacheSync,
}

/// A controller that lacks caches.
pub(crate) struct UnmetRequirement {
    pub(crate) controller: &'static str,
    /// Which ones, and why.
    pub(crate) lacking: String,
    patience: CacheSync,
}

/// How the controllers stand before they start.
pub(crate) enum CacheReadiness {
    /// Some have all they need, or there are none.
    SomeCanWork,
    /// None can work, but one of them would wait without end.
    NoneCanWork,
    /// None can work, and each waits for so long only: this one for the shortest time.
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

    /// One check per controller, next to the one for all of them.
    pub(crate) fn add_checks(&self, health: &Health) {
        for CacheRequirement { controller, caches, .. } in &self.0 {
            health.ready(&format!("informer-sync-{controller}"), Arc::clone(caches));
        }
    }

    /// The controllers that lack caches.
    pub(crate) fn unmet(&self) -> Vec<UnmetRequirement> {
        let unmet = |CacheRequirement { controller, caches, patience }: &CacheRequirement| {
            let lacking = caches().err()?;
            Some(UnmetRequirement { controller, lacking, patience: *patience })
        };
        self.0.iter().filter_map(unmet).collect()
    }

    /// Whether a controller can work; if not, for how long they all wait at most.
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

/// How often kinds that are not served are looked for, as long as no controller can work without: as often as a person
/// would who has just installed one.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How they stand together, while time passes.
impl CacheRequirements {
    /// How long to wait before the next look at what is lacking, at most for `turn`.
    ///
    /// # Errors
    /// When a controller has waited for as long as it would.
    pub(crate) fn turn(&self, turn: Duration, waited: Duration) -> Result<Duration, ManagerError> {
        let CacheReadiness::NoneCanWorkFor(unmet, patience) = self.standing() else { return Ok(turn) };
        let left = patience.saturating_sub(waited);
        if left.is_zero() {
            let source = SetupError::NotSynced { waited, lacking: unmet.lacking };
            return Err(ManagerError::Setup { controller: unmet.controller, source });
        }
        Ok(turn.min(left))
    }

    /// Waits until one of them could work.
    ///
    /// # Errors
    /// As [`CacheRequirements::turn`].
    pub(crate) async fn met(&self, env: &Env) -> Result<(), ManagerError> {
        let begun = env.now();
        while !matches!(self.standing(), CacheReadiness::SomeCanWork) {
            let waited = env.now().saturating_duration_since(begun);
            env.sleep(self.turn(LOOK_INTERVAL, waited)?).await;
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
        f.debug_tuple("Needs").field(&self.unmet()).finish()
    }
}
