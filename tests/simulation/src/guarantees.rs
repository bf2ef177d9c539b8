//! The guarantees of informer, workqueue and controller, each as a check over random plans of faults, in simulations so
//! small that ten thousand plans take minutes.
//!
//! A plan that fails is shortened and printed as a line of Rust; once its cause is fixed it goes to `REGRESSIONS` of its
//! family, which are run before anything random.

pub mod controller;
mod family;
pub mod informer;
pub mod queue;

pub use self::family::{Family, campaign};
