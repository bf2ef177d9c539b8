//! Runs each scenario of `src/scenarios.rs` in every order.

use windlass_models::scenarios;

#[test]
fn changes_are_delivered_in_order_before_the_handler_is_synced() {
    scenarios::changes_are_delivered_in_order_before_the_handler_is_synced();
}

#[test]
fn snapshot_is_delivered_before_changes_behind_it() {
    scenarios::snapshot_is_delivered_before_changes_behind_it();
}

#[test]
fn removed_handler_ends_with_changes_queued() {
    scenarios::removed_handler_ends_with_changes_queued();
}

#[test]
fn removed_handler_receives_no_event() {
    scenarios::removed_handler_receives_no_event();
}

#[test]
fn bounded_handler_receives_all_events_or_is_removed() {
    scenarios::bounded_handler_receives_all_events_or_is_removed();
}
