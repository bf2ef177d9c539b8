//! Hunts for defects of controllers and of their runtime.

use windlass_simulation::guarantees::controller;

use crate::clusters::{ALONE, BUSY_WITH_READ_CHECKS, FLICKER, SUCCESSION, TURNS, busy};
use crate::{hunt, plans};

#[test]
fn reconcile_on_cache_without_its_own_writes_is_reported() {
    const DEFECT: &[&str] = &["no read-your-writes"];
    hunt(DEFECT, &ALONE, 30, &["CreatedTooOften {"]);
    hunt(DEFECT, &BUSY_WITH_READ_CHECKS, 30, &["StaleRead {"]);
    // A key rests after its reconcile, so most plans give the caches time.
    let reports = &["its last write is", "its deleted copy is still cached", "without the key's own write"];
    hunt(DEFECT, &controller::FAMILY, 120, reports);
}

#[test]
fn conflict_without_requeue_is_reported() {
    hunt(&["conflict taken for success"], &busy(plans::conflicts), 30, &["Timeout {", "StateDiffers {"]);
}

#[test]
fn leaked_task_is_reported() {
    hunt(&["reconcile leaks a task"], &busy(plans::anything), 30, &["LeakedTasks {"]);
}

/// No built-in controller sends such writes, or has dry runs.
#[test]
fn write_of_a_stray_task_is_reported() {
    hunt(&["writes after their turn"], &TURNS, 3, &["WriteAfterReconcile {"]);
}

#[test]
fn write_in_a_dry_run_is_reported() {
    hunt(&["dry run that writes"], &TURNS, 3, &["WriteInDryRun {"]);
}

#[test]
fn controllers_started_twice_are_reported() {
    hunt(&["controllers started twice"], &busy(plans::anything), 30, &["CreatedTooOften {"]);
}

/// Read-your-writes relists stale caches, and so hides this defect.
#[test]
fn adoption_without_uid_is_reported() {
    const DEFECTS: &[&str] = &["adoption without UID", "no read-your-writes"];
    hunt(DEFECTS, &SUCCESSION, 30, &["Timeout {", "CreatedTooOften {"]);
}

/// Read-your-writes relists stale caches, and so hides this defect.
#[test]
fn status_from_stale_cache_is_reported() {
    const DEFECTS: &[&str] = &["status events ignored", "no read-your-writes"];
    hunt(DEFECTS, &FLICKER, 30, &["StateDiffers {"]);
}

/// The server executes a write after another replica can hold the Lease.
#[test]
fn write_that_takes_effect_after_its_lease_is_reported() {
    hunt(&["creates executed late"], &busy(plans::partitions), 30, &["until: Some(", "SplitBrain {"]);
}
