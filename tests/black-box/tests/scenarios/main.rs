//! Upstream's integration scenarios of the implemented controllers, on a real control plane.
//!
//! All scenarios share one control plane and one subject; each has its own namespace.

mod before_start;
mod daemon_sets;
mod deployments;
mod endpoints;
mod plane;
mod replica_sets;
mod stateful_sets;
mod workloads;
