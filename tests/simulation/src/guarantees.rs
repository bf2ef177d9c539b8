//! Checks the guarantees of informer, workqueue and controller over random fault plans, in simulations so small that
//! ten thousand plans take minutes.
//!
//! A failed plan is shrunk and printed as a line of Rust. After the fix, add it to `REGRESSIONS` of its family;
//! regressions run before random plans.

pub mod controller;
mod family;
pub mod informer;
pub mod queue;

pub use self::family::{PlanFamily, campaign};
