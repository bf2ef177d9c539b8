//! Checks the guarantees of informer, workqueue and controller over random fault plans.
//!
//! `WINDLASS_PLANS` sets the number of plans per family (default 50), `WINDLASS_SEED` the first seed (default 1). To
//! run more plans, use release mode:
//!
//! ```text
//! WINDLASS_PLANS=10000 cargo test --release -p windlass-simulation --test guarantees -- --nocapture
//! ```

use windlass_simulation::guarantees::{campaign, controller, informer, queue};

#[test]
fn informer_keeps_its_guarantees_under_random_faults() {
    campaign(&informer::FAMILY);
}

#[test]
fn informer_follows_changing_namespaces_under_random_faults() {
    campaign(&informer::namespaces::FAMILY);
}

#[test]
fn informer_respects_its_budget_and_recovers_under_random_faults() {
    campaign(&informer::budget::FAMILY);
}

#[test]
fn informer_follows_changing_crd_under_random_faults() {
    campaign(&informer::availability::FAMILY);
}

#[test]
fn queue_keeps_its_guarantees_when_workers_fail() {
    campaign(&queue::FAMILY);
}

#[test]
fn controller_guarantees_hold_under_random_faults() {
    campaign(&controller::FAMILY);
}
