//! Hunts for defects of the work queue.

use windlass_simulation::guarantees::{controller, queue};

use crate::clusters::{BURSTS, busy};
use crate::{hunt, plans};

#[test]
fn key_held_by_two_workers_is_reported() {
    const DEFECT: &[&str] = &["key released when it is dequeued"];
    hunt(DEFECT, &queue::FAMILY, 3, &["is held by two workers"]);
    hunt(DEFECT, &controller::FAMILY, 20, &["is held by two workers"]);
}

#[test]
fn add_lost_during_processing_is_reported() {
    const DEFECT: &[&str] = &["add during processing lost"];
    hunt(DEFECT, &queue::FAMILY, 3, &["keys are ready, and should be"]);
    hunt(DEFECT, &busy(plans::slow_requests), 30, &["Timeout {", "StateDiffers {"]);
}

#[test]
fn delayed_add_that_keeps_the_latest_time_is_reported() {
    const REPORTS: &[&str] = &["keys are ready, and should be", "cancelling"];
    hunt(&["delayed add keeps the latest time"], &queue::FAMILY, 3, REPORTS);
}

#[test]
fn backoff_that_is_never_reset_is_reported() {
    hunt(&["backoff never reset"], &BURSTS, 30, &["Timeout {", "StateDiffers {"]);
}

#[test]
fn backoff_that_other_keys_reset_is_reported() {
    let reports = &["a key that always fails was tried"];
    hunt(&["backoff reset by other keys"], &controller::FAMILY, 10, reports);
}

#[test]
fn starving_low_priority_is_reported() {
    hunt(&["low priorities never age"], &queue::FAMILY, 15, &["starves"]);
}

#[test]
fn starving_tenant_is_reported() {
    hunt(&["tenant never yields"], &queue::FAMILY, 15, &["turns in a row while the other waits"]);
}

#[test]
fn key_that_overtakes_older_keys_is_reported() {
    hunt(
        &["some keys overtake older keys"],
        &queue::FAMILY,
        15,
        &["was dequeued before a key that waited longer"],
    );
}

#[test]
fn drain_that_ends_while_keys_are_held_is_reported() {
    hunt(&["drain ends while keys are held"], &queue::FAMILY, 10, &["reports that it is drained"]);
}

#[test]
fn wakeup_lost_with_canceled_wait_is_reported() {
    const REPORTS: &[&str] = &["although a worker has been idle", "never ran", "never drained", "still wait"];
    hunt(&["wakeup lost with canceled wait"], &queue::FAMILY, 10, REPORTS);
}
