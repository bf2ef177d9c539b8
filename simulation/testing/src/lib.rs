//! Simulated clusters on one virtual clock, with fake nodes, oracles and fixtures.
//!
//! A [`Simulation`] contains an in-process API server, links that lose and delay messages, and processes that crash and
//! restart, each with its own clock. A script acts as the user. After the script and the faults end, oracles check the
//! result.
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
//! // Ten minutes of faults generated from the seed 7; the test panics with the full failure report on a violation.
//! let report = simulate(Simulation::new(7).minutes(10).faults(Faults::all()), a_pod_runs);
//! assert!(report.virtual_duration >= Duration::from_secs(60));
//! ```
//!
//! Guarantees:
//! - One seed replays one history, byte for byte.
//! - Virtual time is free: a day of waiting passes immediately, a day of work as fast as the machine allows.
//! - A run ends: by virtual time, after a million polls without time passing, or at a poll that never returns.
//! - A violation is reported with the seed, the plan and the end of the trace, as code for a regression test.
//!
//! The oracles check the processes under test without knowledge of their code:
//! - After the faults end, the cluster reaches a stable state. If a run without faults exists, the states are equal
//!   ([`random_plans`], [`exhaustive_crash`], [`exhaustive_rejection`]).
//! - No object is created more often than in the run without faults.
//! - No write is sent or takes effect without a Lease, after the Lease expired, or while another replica holds it.
//! - No reconcile begins on a cache that lacks an earlier write of its key, as recorded by the server
//!   ([`Simulation::with_read_checks`]).
//! - No write is sent by a dropped reconcile, or by a reconcile after the next reconcile of its key began.
//! - Every write of a context in dry-run mode is sent as a dry run.
//! - No shard is without an active holder for longer than the shard election promises.
//! - No process uses a permission that its generated roles lack, and no declared rule is unused
//!   ([`Simulation::exact_permissions`]).
//! - Caches contain the objects of the server ([`Simulation::caches_of`]).
//! - No more requests are sent than the faults explain, and no watch is reopened without a backoff.
//! - No task remains after its process or the world ends.
//!
//! Real clusters, sockets and real time are not supported. For tests with a server and no simulation, use [`client`],
//! [`with_controllers`] and [`check_permissions`]; [`Bench`] reconciles one key at a time, and [`WebhookBench`]
//! reviews single writes by webhooks.

mod bench;
mod campaign;
mod cluster;
mod difference;
mod exact_permissions;
mod local;
pub mod nodes;
mod oracle;
mod ownership_gaps;
mod permissions;
mod plans;
mod probe;
mod progress;
mod read_checks;
mod reads;
mod reconcile_checks;
mod simulation;
mod state;
#[cfg(test)]
mod tests;
mod trace_excerpt;
mod violation;
mod watch_rate;
mod watchdog;
mod webhook_bench;
mod world;

pub use windlass_api_server as api_server;
pub use windlass_api_server::faults::{Fault, FaultAction, FaultPlan, Server};

pub use crate::bench::{Bench, ReconcileReport, SentRequest};
pub use crate::campaign::{
    CampaignSummary, assert_passed, exhaustive_crash, exhaustive_rejection, random_plans, replay, shrink,
    simulate,
};
pub use crate::cluster::{Cluster, Snapshot};
pub use crate::difference::Difference;
pub use crate::local::{client, client_of, object, server, with_controllers};
pub use crate::ownership_gaps::OwnershipGaps;
pub use crate::permissions::{MissingRules, check_permissions, rules_from_role, unused_permissions};
pub use crate::plans::{FaultKind, Faults};
pub use crate::simulation::{Report, Simulation};
pub use crate::state::ClusterState;
pub use crate::trace_excerpt::Trace;
pub use crate::violation::{SimulationFailure, Violation};
pub use crate::webhook_bench::{Reviewed, WebhookBench};
