//! Hunts for defects of informers.

use windlass_simulation::guarantees::informer::{self, budget, namespaces, presence};

use crate::clusters::busy;
use crate::{hunt, plans};

// parity: consistency-detector-environment
#[test]
fn deletion_lost_on_relist_is_reported() {
    const DEFECT: &[&str] = &["deletion lost on relist"];
    // An object that is deleted while it is undecodable stays in quarantine.
    let reports = &["the cache holds", "knows", "the store is at", "in quarantine are"];
    hunt(DEFECT, &informer::FAMILY, 30, reports);
    hunt(DEFECT, &busy(plans::relists), 30, &["CacheDiffers {", "Never {", "Differs {"]);
}

#[test]
fn store_version_that_moves_back_is_reported() {
    let reports = &["the store went back", "the server went back"];
    hunt(&["store version moves back"], &informer::FAMILY, 40, reports);
}

#[test]
fn objects_kept_after_namespace_or_kind_is_removed_are_reported() {
    const DEFECT: &[&str] = &["objects of removed namespace kept"];
    let reports = &["left long ago", "the store is at", "the cache holds"];
    hunt(DEFECT, &namespaces::FAMILY, 3, reports);
    hunt(DEFECT, &presence::FAMILY, 10, reports);
}

#[test]
fn handlers_called_before_store_update_are_reported() {
    let reports = &["the store holds", "the store's version is older", "the store is at"];
    hunt(&["handlers called before store update"], &informer::FAMILY, 3, reports);
}

#[test]
fn index_that_is_not_updated_is_reported() {
    hunt(&["index not updated"], &informer::FAMILY, 3, &["an index has", "a late index differs"]);
}

#[test]
fn unreported_undecodable_object_is_reported() {
    hunt(&["undecodable objects not reported"], &informer::FAMILY, 10, &["in quarantine are"]);
}

#[test]
fn handler_synced_before_initial_events_is_reported() {
    let reports = &["was not told of", "is synced before"];
    hunt(&["handler synced before initial events"], &informer::FAMILY, 3, reports);
}

#[test]
fn events_of_a_batch_in_reverse_order_are_reported() {
    const REPORTS: &[&str] =
        &["added twice", "not from what was told", "not forward", "before its end", "not known before"];
    hunt(&["events of a batch reversed"], &informer::FAMILY, 40, REPORTS);
}

#[test]
fn coalesced_events_of_every_event_handler_are_reported() {
    let reports = &["it happened before what was told before", "not from what was told", "not told"];
    hunt(&["every event coalesced"], &informer::FAMILY, 40, reports);
}

#[test]
fn late_handler_without_initial_events_is_reported() {
    let reports = &["not from what was told", "not known before", "was not told of", "knows"];
    hunt(&["late handler without initial events"], &informer::FAMILY, 5, reports);
}

#[test]
fn ignored_byte_budget_is_reported() {
    hunt(&["byte budget ignored"], &budget::FAMILY, 3, &["are allowed"]);
}

#[test]
fn missing_kind_that_is_said_to_be_served_is_reported() {
    let reports = &["Served is said, not", "what is said is Served"];
    hunt(&["missing kind reported as served"], &presence::FAMILY, 3, reports);
}

#[test]
fn denial_that_blocks_other_kinds_is_reported() {
    hunt(&["denial blocks other kinds"], &presence::FAMILY, 3, &["ConfigMaps wait for Widgets"]);
}

#[test]
fn version_trusted_after_restore_is_reported() {
    let reports = &["the server write", "in quarantine are"];
    hunt(&["version trusted after restore"], &informer::FAMILY, 100, reports);
}

#[test]
fn undecodable_object_that_is_not_retried_is_reported() {
    hunt(&["undecodable object not retried"], &informer::FAMILY, 40, &["in quarantine are"]);
}
