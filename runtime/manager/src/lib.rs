//! The process: registry, start order, shutdown.
//!
//! A [`Manager`] runs the registered controllers that its configuration selects, on one set of caches, behind one
//! election.
//!
//! Guarantees:
//! - Start order is one table with a reason at each step ([`START`]); stop is its reverse.
//! - Building a manager starts nothing and sends no request to the cluster. [`Manager::run`] always returns: it never
//!   exits the process, not even when the Lease is lost.
//! - The first signal drains: workers stop dequeuing keys and running reconciles finish while the Lease is still
//!   renewed. The Lease is released after that. The second signal aborts.
//! - A controller of a new leader acts only on caches that reflect the writes of the previous leader. A release records
//!   the highest version written of each resource; a cache that does not reach it within 500 ms is relisted. After an
//!   expired Lease, and after a release with a write of unknown outcome, every cache is relisted. Each controller and
//!   each runnable waits for its own caches, without a limit. Writes of runnables are not recorded.
//! - When a lease is lost, its fence closes and the work under it stops: the client sends no more writes. Then
//!   `run` returns [`ManagerError::LeaseLost`].
//! - Replicas can share the keys of all controllers instead ([`ManagerConfig::shards`]): each replica acts on a fair
//!   share of the namespaces, and every write passes the fence of its key's shard. Shards are handed off when replicas
//!   join and leave; two replicas never act on the same key. A replica that loses a shard stops the work on that shard
//!   only.
//! - Leases are renewed on time even if workers block their threads.
//! - A controller of [every replica](windlass_controller::RunsOn::EveryReplica) works on every key, whether its replica
//!   leads or not. Its writes need no Lease.
//! - A [`Runnable`](windlass_controller::Runnable) starts and stops at its step. Its first error stops the manager and
//!   is returned with its name. A runnable that does not stop in time is reported the same way.
//! - Readiness reports whether caches are synced, whether the replica leads or is on standby, and whether it is
//!   shutting down. Liveness fails when a worker, an informer, a watch or an election is stuck, but not because the API
//!   server is unavailable.
//! - A controller waits only for its own caches. A permission or kind that is missing for one controller delays no
//!   other controller; readiness and the log name the controller, the cache and the reason.
//! - Quarantined keys are listed on the health endpoints.
//! - The [admin server](windlass_admin) is the first part to start and the last to stop.
//! - Every task is spawned through `windlass_env::Env` and has ended when `run` returns, except the task of an event
//!   handler that never returns ([`ManagerError::InformersStuck`]).
//!
//! Not supported: reading arguments and environment variables (`cmd/` does that), several configurations of one
//! controller, and starting with an unknown controller in the configuration.

mod api_server;
mod cache;
mod cache_requirements;
mod config;
mod configuration;
mod controller_group;
mod controllers;
mod error;
mod explain;
mod feature_gates;
mod leadership;
mod lifecycle;
mod manager;
pub mod manifests;
mod ownership_report;
mod phase;
mod process;
mod race;
mod registry;
mod replica_controllers;
mod runnables;
mod selection;
mod shards;
mod shutdown;
mod shutdown_deadline;
mod spelling;
mod takeover;
mod webhooks;

#[cfg(test)]
mod tests;

pub use crate::cache::CacheOptions;
pub use crate::config::{ConfigError, ManagerConfig};
pub use crate::error::{AddError, ManagerError, RegistryError};
pub use crate::explain::{Explainer, NoSuchController};
pub use crate::feature_gates::{FeatureGate, FeatureGateError, FeatureGates, FeatureStage};
pub use crate::lifecycle::{START, StartStep};
pub use crate::manager::Manager;
pub use crate::manifests::{ManifestOptions, ManifestPart, Manifests};
pub use crate::registry::Registry;
pub use crate::runnables::ManagerHandle;
pub use crate::selection::{ControllerSelection, UnknownController};
pub use crate::shutdown::{ShutdownSignals, ShutdownTrigger};
pub use crate::spelling::closest;
pub use windlass_informer::{KindOptions, NamespaceSet, ObjectForm, Selectors};
