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

use crate::campaign::{Bug, Family, campaign, hunt};

#[test]
fn an_informer_keeps_its_promises_under_random_faults() {
    campaign(&informer::FAMILY);
}

#[test]
fn an_informer_keeps_to_namespaces_that_come_and_go_under_random_faults() {
    campaign(&informer::namespaces::FAMILY);
}

#[test]
fn an_informer_keeps_to_its_budget_and_recovers_under_random_faults() {
    campaign(&informer::budget::FAMILY);
}

#[test]
fn an_informer_follows_a_kind_that_comes_and_goes_under_random_faults() {
    campaign(&informer::presence::FAMILY);
}

#[test]
fn a_queue_keeps_its_promises_whatever_becomes_of_its_workers() {
    campaign(&queue::FAMILY);
}

#[test]
fn a_controller_is_given_what_it_was_promised_under_random_faults() {
    campaign(&controller::FAMILY);
}

/// Each bug is seen, and is what was seen.
fn objects_to(family: &Family, bugs: &[Bug]) {
    bugs.iter().for_each(|bug| hunt(family, bug));
}

#[test]
fn the_oracles_of_the_queue_object_to_planted_bugs() {
    objects_to(&queue::FAMILY, queue::BUGS);
}

#[test]
fn the_oracles_of_the_informer_object_to_planted_bugs() {
    objects_to(&informer::FAMILY, informer::BUGS);
}

#[test]
fn the_oracles_of_namespaces_budget_and_presence_object_to_planted_bugs() {
    objects_to(&informer::namespaces::FAMILY, informer::namespaces::BUGS);
    objects_to(&informer::budget::FAMILY, informer::budget::BUGS);
    objects_to(&informer::presence::FAMILY, informer::presence::BUGS);
}

#[test]
fn the_oracles_of_the_controller_object_to_planted_bugs() {
    objects_to(&controller::FAMILY, controller::BUGS);
}
