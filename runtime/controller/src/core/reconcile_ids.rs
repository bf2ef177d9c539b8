//! Identifiers of attempts at keys, for logs and traces.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_env::Env;

/// The odd step of Weyl's sequence, which visits every 64-bit number once.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The generator of the reconcile IDs of one controller. A seed determines them in a simulation.
pub(crate) struct ReconcileIds(AtomicU64);

/// An identifier of one attempt at a key: 16 hexadecimal digits, unique in the process per controller.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ReconcileId(u64);

impl ReconcileIds {
    pub(crate) fn new(env: &Env, controller: &str) -> Self {
        Self(env.hash_seed(&format!("reconcile IDs of {controller}")).into())
    }

    pub(crate) fn next(&self) -> ReconcileId {
        ReconcileId(self.0.fetch_add(STEP, Ordering::Relaxed))
    }
}

impl fmt::Display for ReconcileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
