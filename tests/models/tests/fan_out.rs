//! Each scenario in every order; they are told in `src/scenarios.rs`.

use windlass_models::scenarios;

#[test]
fn every_change_is_told_in_order_before_the_handler_is_synced() {
    scenarios::every_change_is_told_in_order_before_the_handler_is_synced();
}

#[test]
fn snapshot_is_told_before_what_comes_behind_it() {
    scenarios::snapshot_is_told_before_what_comes_behind_it();
}

#[test]
fn removed_handler_ends_whatever_is_queued_meanwhile() {
    scenarios::removed_handler_ends_whatever_is_queued_meanwhile();
}

#[test]
fn who_is_gone_is_told_nothing() {
    scenarios::who_is_gone_is_told_nothing();
}

#[test]
fn bounded_handler_gets_everything_or_is_ended() {
    scenarios::bounded_handler_gets_everything_or_is_ended();
}
