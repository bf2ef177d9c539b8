//! The guarantees of informer, workqueue and controller, each as an oracle over random plans of faults: what the
//! design promises of them, in worlds so small that ten thousand plans take minutes.
//!
//! `WINDLASS_PLANS` says how many plans each family runs (default 50), `WINDLASS_SEED` which is the first (default 1).
//! By hand, and much faster in release:
//!
//! ```text
//! WINDLASS_PLANS=10000 cargo test --release -p windlass-simulation --test guarantees -- --nocapture
//! ```
//!
//! A plan that fails is shortened and printed as a line of Rust; once its cause is gone it goes to `REGRESSIONS` of its
//! family, which are run before anything random.

mod campaign;
mod controller;
mod informer;
mod queue;

use crate::campaign::campaign;

#[test]
fn an_informer_keeps_its_promises_under_random_faults() {
    campaign(&informer::FAMILY);
}

#[test]
fn a_queue_keeps_its_promises_whatever_becomes_of_its_workers() {
    campaign(&queue::FAMILY);
}

#[test]
fn a_controller_is_given_what_it_was_promised_under_random_faults() {
    campaign(&controller::FAMILY);
}
