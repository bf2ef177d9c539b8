//! Hunts for defects of the election.

use crate::clusters::{SHARDS, busy};
use crate::{hunt, plans};

#[test]
fn write_after_lease_loss_is_reported() {
    hunt(&["write after lease loss"], &busy(plans::partitions), 30, &["WriteWithoutLease {", "SplitBrain {"]);
}

#[test]
fn write_after_ignored_clock_jump_is_reported() {
    hunt(&["clock jump ignored"], &busy(plans::suspensions), 30, &["WriteWithoutLease {", "SplitBrain {"]);
}

#[test]
fn shard_whose_lease_outlives_its_duration_is_reported() {
    hunt(&["shard lease outlives its duration"], &SHARDS, 3, &["ShardWithoutHolder {"]);
}
