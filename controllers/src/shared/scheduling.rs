//! Scheduling predicates: the nodes on which a pod can run.
//!
//! All functions are pure. A pod names its nodes by a node selector and by required node affinity ([`node_affinity`]),
//! and a node repels pods by taints that they do not tolerate ([`taints`]). Resources and the scheduler's other rules
//! are not checked.

pub(crate) mod node_affinity;
pub(crate) mod taints;

#[cfg(test)]
mod tests;
