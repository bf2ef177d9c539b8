//! The oracles bite: bugs, each planted in controllers that are sound without it, are caught.
//!
//! How many plans each took, and what gave it away, is printed (`--nocapture` shows it). The bounds leave room: a
//! change elsewhere shifts what a seed draws. `WINDLASS_SEED` says which seed is the first (default 1).

use windlass_simulation::planted::{self, Bug, hunt};

#[expect(clippy::print_stdout, reason = "the table that the oracles are judged by")]
fn caught(bug: &Bug, within: u64) {
    let first = std::env::var("WINDLASS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let caught = hunt(bug, first, within);
    let told: String = caught.flaw.to_string().chars().take(150).collect();
    println!("{:<32} {:>3} plans  {}", bug.name, caught.plans, told.replace('\n', " "));
}

#[test]
fn creates_repeated_on_a_stale_cache_are_caught() {
    caught(&planted::REPEATED_CREATES, 30);
}

#[test]
fn adoption_without_uid_is_caught() {
    caught(&planted::ADOPTION_WITHOUT_UID, 30);
}

#[test]
fn a_status_from_a_stale_cache_is_caught() {
    caught(&planted::STATUS_FROM_STALE_CACHE, 30);
}

#[test]
fn writes_after_the_loss_of_the_lease_are_caught() {
    caught(&planted::WRITE_AFTER_LEASE_LOSS, 30);
}

#[test]
fn an_enqueue_lost_during_processing_is_caught() {
    caught(&planted::LOST_ENQUEUE, 30);
}

#[test]
fn a_delete_dropped_on_a_relist_is_caught() {
    caught(&planted::DROPPED_DELETE, 30);
}

#[test]
fn a_backoff_that_is_never_reset_is_caught() {
    caught(&planted::BACKOFF_NEVER_RESET, 30);
}

#[test]
fn a_conflict_without_requeue_is_caught() {
    caught(&planted::NO_REQUEUE_ON_CONFLICT, 30);
}

#[test]
fn a_leaked_task_is_caught() {
    caught(&planted::LEAKED_TASK, 30);
}

#[test]
fn controllers_that_are_started_twice_are_caught() {
    caught(&planted::DOUBLE_START, 30);
}

#[test]
fn reconcile_on_a_cache_without_its_own_writes_is_caught() {
    caught(&planted::NO_READ_YOUR_WRITES, 30);
}

#[test]
fn write_that_takes_effect_after_its_lease_is_caught() {
    caught(&planted::LATE_EFFECTS, 30);
}
