//! Shared fixtures of the black-box tests: the subject under test, a namespace for its objects, and waiting with a
//! timeout.
//!
//! The tests use a real API server and observe the controllers only through it. With `WINDLASS_SUBJECT=upstream` the
//! same scenarios run against kube-controller-manager, which validates the scenarios themselves.

pub mod audit;
pub mod comparison;
pub mod control_plane;
pub mod fixtures;
pub mod forwarder;
pub mod implementation;
pub mod lease_history;
pub mod recorded_events;
pub mod sample;
pub mod test_namespace;
pub mod wait;
pub mod workload;

use anyhow::{Context as _, Result};

/// Returns the number in an environment variable, or the default.
///
/// # Errors
/// The variable has another value.
pub fn number(variable: &str, default: u64) -> Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable}={text} is not a number")),
        Err(_) => Ok(default),
    }
}
