//! The process: registry, start order, shutdown.
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
//! - A controller of a new leader acts only on caches that reflect what the last leader wrote. A release records up to which
//!   versions it wrote; a cache that does not reach them within 500 ms is listed again. After a lease that expired, and
//!   after a release with a write of unknown outcome, every cache is listed again. Each controller and each runnable waits for
//!   its own caches, without a limit. Writes of runnables are not recorded.
//! - When a lease is lost, its fence closes and the work under it stops: the client sends no more writes. Then
//!   `run` returns [`ManagerError::LeaseLost`].
//! - Replicas may share the keys of all controllers instead ([`ManagerConfig::shards`]): each acts on a fair share of the
//!   namespaces, every write leaves behind the fence of its key's shard, and shards are handed over as replicas come and go
//!   with no key in two hands. A lost shard ends the work on it and nothing else.
//! - A lease is renewed on time whatever workers do to their threads.
//! - A controller of [every replica](windlass_controller::RunsOn::EveryReplica) works whether its replica leads or not, with
//!   every key. No lease holds up its writes.
//! - A [`Runnable`](windlass_controller::Runnable) starts and stops at its step. Its first error ends the manager and names
//!   it, and so does one that does not stop in time.
//! - Readiness tells the truth: caches synced, whether leading or standing by, and not on the way out. Liveness fails
//!   when a worker, an informer, a watch or an election is stuck, and not because the API server is away.
//! - A controller waits for its own caches only: a permission or a kind that one lacks holds up nobody else, and
//!   readiness and the log say which controller waits, for what and why.
//! - Keys in quarantine are shown on the health pages.
//! - The [admin server](windlass_admin) is the first part to start and the last to stop.
//! - Every task is spawned through `windlass_env::Env` and has ended when `run` returns, except the task of a handler that
//!   never returns ([`ManagerError::InformersStuck`]).
//!
//! What it refuses: arguments and environment variables (those are `cmd/`'s), more than one configuration of one
//! controller, and to continue with a controller it does not know.

mod api_server;
mod budget;
mod cache;
mod cache_requirements;
mod config;
mod configuration;
mod controller_group;
mod controllers;
mod error;
mod explain;
mod feature_gates;
mod holdings;
mod leadership;
mod lifecycle;
mod manager;
pub mod manifests;
mod phase;
mod process;
mod race;
mod registry;
mod replica_team;
mod runnables;
mod selection;
mod shards;
mod shutdown;
mod spelling;
mod takeover;

#[cfg(test)]
mod tests;

pub use crate::cache::CacheOptions;
pub use crate::config::{ConfigError, ManagerConfig};
pub use crate::error::{AddError, ManagerError, RegistryError};
pub use crate::explain::{Explainer, NoSuchController};
pub use crate::feature_gates::{FeatureGate, FeatureGateError, FeatureGates, ShardStage};
pub use crate::lifecycle::{START, StartStep};
pub use crate::manager::Manager;
pub use crate::manifests::{ManifestOptions, Manifests};
pub use crate::registry::Registry;
pub use crate::runnables::ManagerHandle;
pub use crate::selection::{ControllerSelection, UnknownController};
pub use crate::shutdown::{ShutdownSignals, ShutdownTrigger};
pub use crate::spelling::closest;
pub use windlass_informer::{KindOptions, NamespaceSet, Selectors};
