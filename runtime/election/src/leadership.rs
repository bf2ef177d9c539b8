//! Observed leadership, and a health check for leaders that stopped renewing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_env::{Env, Instant};

/// Role of this replica in the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// The replica is on standby.
    Following {
        /// Identity of the observed leader, if there is one.
        holder: Option<String>,
    },
    /// The replica leads.
    Leading,
    /// The replica led and lost the lease. The next acquire ends this state.
    Lost,
}

/// Health check that can be called at any time from any thread. The error describes the failure.
pub type HealthCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Time after the expiry of the lease for which a leader that has not stepped down is healthy. The value of client-go;
/// it leaves time for a graceful stop before the process is killed.
const TOLERANCE: Duration = Duration::from_secs(20);

/// Time of the last renewal; `None` while this replica does not lead.
#[derive(Clone, Debug, Default)]
pub struct LastRenewal(Arc<Mutex<Option<Instant>>>);

impl LastRenewal {
    /// Sets the send time of the last renewal; `None` if no lease is held.
    pub fn set(&self, at: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a check that fails if a held lease was not renewed for its duration and 20 s more: the task that must
    /// stop the work is stuck.
    pub fn health(&self, env: Env, lease: String, lease_duration: Duration) -> HealthCheck {
        let last = self.clone();
        Arc::new(move || match last.get() {
            Some(at) if env.now() > at + lease_duration + TOLERANCE => {
                Err(format!("the lease {lease} is held but was not renewed in time"))
            }
            _ => Ok(()),
        })
    }
}
