//! What each controller needs before it can work: its own caches, and nobody else's.

use std::fmt;
use std::sync::Arc;

use windlass_controller::Prepared;

use crate::health::{Check, Health};

/// The caches of every controller, as readiness asks for them.
pub(crate) struct Needs(Vec<(&'static str, Check)>);

impl Needs {
    pub(crate) fn of(prepared: &[Prepared]) -> Self {
        let need = |one: &Prepared| {
            let caches = one.caches();
            let check: Check = Arc::new(move || caches().map_err(|behind| behind.to_string()));
            (one.descriptor().name, check)
        };
        Self(prepared.iter().map(need).collect())
    }

    /// One check per controller, beside the one for all of them.
    pub(crate) fn add_checks(&self, health: &Health) {
        for (controller, check) in &self.0 {
            health.ready(&format!("informer-sync-{controller}"), Arc::clone(check));
        }
    }

    /// The controllers that lack caches, and which.
    pub(crate) fn unmet(&self) -> Vec<String> {
        let unmet = |(controller, check): &(&'static str, Check)| {
            let lacking = check().err()?;
            Some(format!("{controller}: {lacking}"))
        };
        self.0.iter().filter_map(unmet).collect()
    }

    /// Whether a controller has all it needs.
    pub(crate) fn met_by_some(&self) -> bool {
        self.unmet().len() < self.0.len()
    }
}

impl fmt::Debug for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Needs").field(&self.unmet()).finish()
    }
}
