//! The phase of a process, as readiness reports it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_admin::Health;

/// The phase of a process. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ProcessPhase(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    /// Caches are not synced, for this reason.
    Syncing(String),
    /// Caches are synced: the process leads or is on standby.
    Synced,
    /// The process is shutting down.
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

    /// Adds the readiness checks of the phase, under the names that kube-apiserver uses for the same checks.
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
