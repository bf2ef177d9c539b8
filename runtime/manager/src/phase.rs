//! Where a process is in its life, as readiness tells it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_admin::Health;

/// Where a process is in its life. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ProcessPhase(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    /// Its caches are not synced, for this reason.
    Syncing(String),
    /// Its caches are synced: it leads or stands by.
    Synced,
    /// It is on the way out.
    Stopping,
}

impl ProcessPhase {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State::Syncing("not started".to_owned()))))
    }

    pub(crate) fn syncing(&self, reason: String) {
        *self.lock() = State::Syncing(reason);
    }

    pub(crate) fn synced(&self) {
        *self.lock() = State::Synced;
    }

    pub(crate) fn stopping(&self) {
        *self.lock() = State::Stopping;
    }

    /// Adds the checks that tell of it, under the names by which the API server tells the same.
    pub(crate) fn add_checks(&self, health: &Health) {
        let phase = self.clone();
        health.ready(
            "informer-sync",
            Arc::new(move || match &*phase.lock() {
                State::Syncing(reason) => Err(reason.clone()),
                State::Synced | State::Stopping => Ok(()),
            }),
        );
        let phase = self.clone();
        health.ready(
            "shutdown",
            Arc::new(move || match &*phase.lock() {
                State::Stopping => Err("shutting down".to_owned()),
                State::Syncing(_) | State::Synced => Ok(()),
            }),
        );
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
