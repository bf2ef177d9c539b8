//! Whole clusters on one clock: simulation, fake nodes, oracles, fixtures.
//!
//! A [`Simulation`] is a world: an API server in the process, wires that lose and delay, processes that crash and come
//! back, each with its own clock. A script plays the user in it. When the script is over and the faults are too,
//! oracles look at what came of it.
//!
//! ```
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use serde_json::json;
//! use windlass_testing::nodes::NodeOptions;
//! use windlass_testing::{Cluster, Faults, Simulation, object, simulate};
//!
//! async fn a_pod_runs(cluster: Cluster) {
//!     cluster.run([]); // the controllers under test
//!     cluster.run_nodes(&NodeOptions::default());
//!     let containers = json!([{ "name": "main", "image": "example/shop" }]);
//!     let pod: Pod = object(json!({ "metadata": { "name": "web" }, "spec": { "containers": containers } }));
//!     cluster.create(&pod).await;
//!     let runs = |world: &windlass_testing::Snapshot| {
//!         let phase = world.get::<Pod>("web").and_then(|pod| pod.status?.phase);
//!         phase.as_deref() == Some("Running")
//!     };
//!     cluster.eventually("the pod runs", runs).await;
//! }
//!
//! // Ten minutes of faults drawn from the seed 7; the test panics with all there is to know if an oracle objects.
//! let report = simulate(Simulation::of(7).minutes(10).faults(Faults::all()), a_pod_runs);
//! assert!(report.lasted >= Duration::from_secs(60));
//! ```
//!
//! Guarantees:
//! - One seed replays one history, byte for byte.
//! - Virtual time costs nothing: a day of waiting passes at once, a day of work as fast as it can be done.
//! - A run ends: in virtual time, at a million polls without any, and at a poll that never returns.
//! - What an oracle objects to is told with the seed, the plan and the end of the trace, as something that can be
//!   pasted into a test.
//!
//! What the oracles demand of the processes under test, without knowing their code:
//! - once the faults are over, the cluster comes to rest, and stays as it is; in the state of a run without faults,
//!   where there is one to compare with ([`random_plans`], [`exhaustive_crash`]);
//! - nothing is created more often than there, unless a leader took over from one that fell silent while watches
//!   withheld what that one had done;
//! - no write is sent, or takes effect, without a lease, later than the lease permits, or while another replica holds it;
//! - no reconcile begins on a cache that does not contain what its key wrote before, by the server's account
//!   ([`Simulation::judging_reads`]);
//! - no write is sent through the turn of a reconcile that was dropped, or that the next of its key follows;
//! - every write of a context in dry-run mode is sent as a dry run;
//! - no shard is without a holder who works on it for longer than the election of shards promises;
//! - no process uses a right that its generated roles lack, and none of its rules is unused
//!   ([`Simulation::exact_rights`]);
//! - caches hold what the server holds ([`Simulation::caches_of`]);
//! - no more requests are sent than the faults explain, and no watch is opened again without a wait;
//! - no task is left behind by a process that ended, or by the world.
//!
//! A simulation refuses real clusters, sockets and real time. Tests that want a server and no simulation have
//! [`client`], [`with_controllers`] and [`check_permissions`]; [`Bench`] reconciles one key at a time.

mod bench;
mod campaign;
mod cluster;
mod exact;
mod judged;
mod local;
pub mod nodes;
mod oracle;
mod ownership_gaps;
mod permissions;
mod plans;
mod probe;
mod reads;
mod simulation;
mod state;
#[cfg(test)]
mod tests;
mod trace_excerpt;
mod turns;
mod violation;
mod watch_rate;
mod watchdog;
mod world;

pub use windlass_api_server as api_server;
pub use windlass_api_server::faults::{Fault, FaultAction, FaultPlan, Server};

pub use crate::bench::{Bench, Reconciled, SentRequest};
pub use crate::campaign::{CampaignSummary, exhaustive_crash, random_plans, replay, shrink, simulate};
pub use crate::cluster::{Cluster, Snapshot};
pub use crate::local::{client, client_of, object, server, with_controllers};
pub use crate::ownership_gaps::OwnershipGaps;
pub use crate::permissions::{MissingRules, check_permissions, rules_from_role, unused_permissions};
pub use crate::plans::{FaultKind, Faults};
pub use crate::simulation::{Report, Simulation};
pub use crate::state::{ClusterState, Difference};
pub use crate::violation::{SimulationFailure, Violation};
