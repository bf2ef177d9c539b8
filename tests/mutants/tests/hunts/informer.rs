//! Hunts for defects of informers.

use windlass_simulation::guarantees::informer::{self, availability, budget, namespaces};

use crate::clusters::busy;
use crate::{hunt, plans};

// parity: consistency-detector-environment
#[test]
fn deletion_lost_on_relist_is_reported() {
    const DEFECT: &[&str] = &["deletion lost on relist"];
    // An object that is deleted while it is undecodable stays in the list of undecodable objects.
    let reports = &["the cache holds", "knows", "the store is at", "undecodable: "];
    hunt(DEFECT, &informer::FAMILY, 30, reports);
    hunt(DEFECT, &busy(plans::relists), 30, &["CacheDiffers {", "Timeout {", "StateDiffers {"]);
}

#[test]
fn store_version_that_moves_back_is_reported() {
    let reports = &["the store went back", "the server was restored"];
    hunt(&["store version moves back"], &informer::FAMILY, 40, reports);
}

#[test]
fn objects_kept_after_namespace_or_kind_is_removed_are_reported() {
    const DEFECT: &[&str] = &["objects of removed namespace kept"];
    let reports = &["was removed, but", "the store is at", "the cache holds"];
    hunt(DEFECT, &namespaces::FAMILY, 3, reports);
    hunt(DEFECT, &availability::FAMILY, 10, reports);
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
    hunt(&["undecodable objects not reported"], &informer::FAMILY, 10, &["undecodable: "]);
}

#[test]
fn handler_synced_before_initial_events_is_reported() {
    let reports = &["received no event for", "is synced before"];
    hunt(&["handler synced before initial events"], &informer::FAMILY, 3, reports);
}

#[test]
fn events_of_a_batch_in_reverse_order_are_reported() {
    const REPORTS: &[&str] = &[
        "added twice",
        "old state is not the last",
        "version does not increase",
        "before its deletion",
        "deleted without being known",
    ];
    hunt(&["events of a batch reversed"], &informer::FAMILY, 40, REPORTS);
}

#[test]
fn coalesced_events_of_every_event_handler_are_reported() {
    let reports =
        &["it is older than an earlier event", "old state is not the last", "received no event for"];
    hunt(&["every event coalesced"], &informer::FAMILY, 40, reports);
}

#[test]
fn late_handler_without_initial_events_is_reported() {
    let reports =
        &["old state is not the last", "deleted without being known", "received no event for", "knows"];
    hunt(&["late handler without initial events"], &informer::FAMILY, 5, reports);
}

#[test]
fn ignored_byte_budget_is_reported() {
    hunt(&["byte budget ignored"], &budget::FAMILY, 3, &["are allowed"]);
}

#[test]
fn missing_kind_with_status_served_is_reported() {
    let reports = &["the availability is Served"];
    hunt(&["missing kind reported as served"], &availability::FAMILY, 3, reports);
}

#[test]
fn denial_that_blocks_other_kinds_is_reported() {
    hunt(&["denial blocks other kinds"], &availability::FAMILY, 3, &["ConfigMaps wait for Widgets"]);
}

#[test]
fn version_trusted_after_restore_is_reported() {
    let reports = &["the server write", "undecodable: "];
    hunt(&["version trusted after restore"], &informer::FAMILY, 100, reports);
}

#[test]
fn undecodable_object_that_is_not_retried_is_reported() {
    hunt(&["undecodable object not retried"], &informer::FAMILY, 40, &["undecodable: "]);
}
