//! Upstream's integration scenarios for the controllers there are, against a real control plane.
//!
//! One plane and one subject serve all of them, a namespace each.

mod before_start;
mod endpoints;
mod plane;
mod replica_sets;
mod workloads;
