//! Checks the guarantees of informer, workqueue and controller over random plans of faults.
//!
//! `WINDLASS_PLANS` says how many plans each family runs (default 50), `WINDLASS_SEED` which is the first (default 1).
//! By hand, and much faster in release:
//!
//! ```text
//! WINDLASS_PLANS=10000 cargo test --release -p windlass-simulation --test guarantees -- --nocapture
//! ```

use windlass_simulation::guarantees::{campaign, controller, informer, queue};

#[test]
fn informer_keeps_its_promises_under_random_faults() {
    campaign(&informer::FAMILY);
}

#[test]
fn informer_keeps_to_namespaces_that_come_and_go_under_random_faults() {
    campaign(&informer::namespaces::FAMILY);
}

#[test]
fn informer_keeps_to_its_budget_and_recovers_under_random_faults() {
    campaign(&informer::budget::FAMILY);
}

#[test]
fn informer_follows_a_kind_that_comes_and_goes_under_random_faults() {
    campaign(&informer::presence::FAMILY);
}

#[test]
fn queue_keeps_its_promises_whatever_becomes_of_its_workers() {
    campaign(&queue::FAMILY);
}

#[test]
fn controller_is_given_what_it_was_promised_under_random_faults() {
    campaign(&controller::FAMILY);
}
