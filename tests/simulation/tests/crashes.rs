//! One history per seed, and a crash or an error at every write of it.

use windlass_simulation::{housekeeping_simulation, scripts, simulation};
use windlass_testing::{CampaignSummary, Cluster, SimulationFailure, exhaustive_crash, exhaustive_rejection};

#[test]
fn seed_replays_one_history_byte_for_byte() {
    let run = |seed| {
        simulation(seed).with_full_trace().run(scripts::everything).unwrap_or_else(|it| panic!("{it}")).trace
    };
    let (first, again, other) = (run(7), run(7), run(8));
    assert!(first.lines().count() > 1_000, "{first}");
    assert_eq!(first, again);
    assert_ne!(first, other);
}

fn survives_crashes(script: impl AsyncFn(Cluster)) {
    affects_each_write(exhaustive_crash(&simulation(1), script));
}

fn survives_errors(script: impl AsyncFn(Cluster)) {
    affects_each_write(exhaustive_rejection(&simulation(1), script));
}

fn affects_each_write(campaign: Result<CampaignSummary, Box<SimulationFailure>>) {
    let summary = campaign.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(summary.runs == 2 * summary.baseline.writes && summary.runs > 10, "{summary:?}");
}

#[test]
fn crash_at_any_write_of_a_scale_up_changes_nothing() {
    survives_crashes(scripts::scale_up);
}

#[test]
fn crash_at_any_write_of_a_rollout_changes_nothing() {
    survives_crashes(scripts::rollout);
}

#[test]
fn crash_at_any_write_of_a_deployment_changes_nothing() {
    survives_crashes(scripts::deployment);
}

#[test]
fn crash_at_any_write_of_a_stateful_set_changes_nothing() {
    survives_crashes(scripts::stateful_set);
}

#[test]
fn crash_at_any_write_of_a_daemon_set_changes_nothing() {
    survives_crashes(scripts::daemon_set);
}

#[test]
fn crash_at_any_write_without_histories_changes_nothing() {
    survives_crashes(scripts::no_histories);
}

#[test]
fn crash_at_any_write_of_a_rollback_changes_nothing() {
    survives_crashes(scripts::rollback);
}

#[test]
fn crash_at_any_write_of_changing_owners_changes_nothing() {
    survives_crashes(scripts::owners);
}

#[test]
fn crash_at_any_write_of_claims_changes_nothing() {
    survives_crashes(scripts::claims);
}

#[test]
fn crash_at_any_write_of_a_scale_down_changes_nothing() {
    survives_crashes(scripts::scale_down);
}

#[test]
fn crash_at_any_write_of_a_deletion_changes_nothing() {
    survives_crashes(scripts::delete);
}

#[test]
fn crash_at_any_write_of_housekeeping_changes_nothing() {
    affects_each_write(exhaustive_crash(&housekeeping_simulation(1), scripts::housekeeping));
}

#[test]
fn error_of_any_write_of_a_scale_up_changes_nothing() {
    survives_errors(scripts::scale_up);
}

#[test]
fn error_of_any_write_of_a_stateful_set_changes_nothing() {
    survives_errors(scripts::stateful_set);
}

#[test]
fn error_of_any_write_of_housekeeping_changes_nothing() {
    affects_each_write(exhaustive_rejection(&housekeeping_simulation(1), scripts::housekeeping));
}
