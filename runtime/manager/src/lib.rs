//! The process: registry, start order, health, admin server, shutdown.
//!
//! A [`Manager`] runs the registered controllers that its configuration selects, on one set of caches, behind one
//! election.
//!
//! Guarantees:
//! - Start order is one table with a reason at each step ([`START`]); stop is its reverse.
//! - Building a manager starts nothing and asks nothing of the cluster. [`Manager::run`] runs, and returns: it never
//!   ends the process, not even when the lease is lost.
//! - The first signal drains: no key is taken any more, running reconciles are awaited while the lease is still being
//!   renewed, and only then is it released. The second signal aborts.
//! - A new leader acts only on caches that show what the last one wrote: a release says up to which versions, and a
//!   lease that expires leaves a cache that follows its source the time. The wait is bounded by 10 s.
//! - When the lease is lost, `run` returns [`ManagerError::LeaseLost`] at once, with the fence closed and every worker
//!   stopped: nothing is written after that.
//! - Readiness tells the truth: caches synced, whether leading or standing by, and not on the way out. Liveness fails
//!   when a worker, an informer or the election is stuck.
//! - A controller waits for its own caches only: a permission or a kind that one lacks holds up nobody else, and
//!   readiness and the log say which controller waits, for what and why.
//! - Keys in quarantine are shown on the health pages.
//! - Every task is spawned through `windlass_env::Env` and has ended when `run` returns.
//!
//! What it refuses: arguments and environment variables (those are `cmd/`'s), more than one configuration of one
//! controller, and to go on with a controller it does not know.

mod admin_server;
mod api_server;
mod config;
mod controllers;
mod error;
mod feature_gates;
mod health;
mod leadership;
mod lifecycle;
mod manager;
mod needs;
mod phase;
mod process;
mod registry;
mod selection;
mod shutdown;
mod spelling;
mod takeover;

#[cfg(test)]
mod tests;

pub use crate::admin_server::AdminServer;
pub use crate::config::{ConfigError, ManagerConfig};
pub use crate::error::ManagerError;
pub use crate::health::{Check, CheckResult, Health, Notice, Probe, Report};
pub use crate::lifecycle::{START, Step};
pub use crate::manager::Manager;
pub use crate::registry::{Registry, RegistryError};
pub use crate::selection::{ControllerSelection, UnknownController};
pub use crate::shutdown::{ShutdownSignals, ShutdownTrigger};
pub use crate::feature_gates::{FeatureGate, FeatureGateError, FeatureGates, Stage};
pub use crate::spelling::closest;
