//! Where the server in the process deliberately behaves otherwise, each with its reason.
//!
//! The suite demands that exactly these fail there. An entry is a decision: what can be had cheaply is built instead.

/// Behaviours, as `group::behaviour`, and why the server in the process does not have them.
pub const DIFFERENCES: &[(&str, &str)] = &[];
