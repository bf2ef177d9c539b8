//! What this replica knows of who leads, and whether a leader that stopped renewing has noticed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_env::{Env, Instant};

/// This replica's place in the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// It stands by.
    Following {
        /// Who leads, if that is known and anybody does.
        holder: Option<String>,
    },
    /// It leads.
    Leading,
    /// It led, and lost the lease. Acquiring again ends this state.
    Lost,
}

/// A check to be asked at any time, from any thread; the error says what is wrong.
pub type HealthCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// How long past the lease's expiry a leader that has not stepped down still counts as healthy. Upstream's value; it
/// leaves time for an orderly end before the process is killed from outside.
const TOLERANCE: Duration = Duration::from_secs(20);

/// When the lease was last renewed; nothing while this replica does not lead.
#[derive(Clone, Debug, Default)]
pub struct LastRenewal(Arc<Mutex<Option<Instant>>>);

impl LastRenewal {
    /// Sets when the renewal was sent; `None` if no lease is held.
    pub fn set(&self, at: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a check that fails if a held lease was not renewed for its duration and 20 s more: the task that should have
    /// stopped the work is stuck.
    pub fn health(&self, env: Env, lease: String, lease_duration: Duration) -> HealthCheck {
        let last = self.clone();
        Arc::new(move || match last.get() {
            Some(at) if env.now() > at + lease_duration + TOLERANCE => {
                Err(format!("the lease {lease} is held but has not been renewed"))
            }
            _ => Ok(()),
        })
    }
}
