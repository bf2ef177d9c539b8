//! Which controllers run, and how eagerly.

use windlass::controller::Descriptor;
use windlass::manager::{ControllerSelection, FeatureGates, ManagerConfig, UnknownController};
use windlass_controllers::Options;

use crate::settings::{ControllerSettings, Given, InvalidSetting, Names, Word, Wrong, quoted};
use crate::{feature_gates, known_flags};

pub(super) fn of(
    settings: ControllerSettings,
    known: &[Descriptor],
    gates: &FeatureGates,
    manager: ManagerConfig,
) -> Result<(ManagerConfig, Options), InvalidSetting> {
    let ControllerSettings {
        controllers,
        concurrent_replicaset_syncs,
        concurrent_rc_syncs,
        concurrent_endpoint_syncs,
        endpoint_updates_batch_period,
        min_resync_period,
        controller_start_interval,
        controller_shutdown_timeout,
        // Read already.
        feature_gates: _,
    } = settings;
    let manager = ManagerConfig {
        controllers: selection(&controllers, known)?,
        resync: min_resync_period.value.0,
        start_interval: controller_start_interval.value.0,
        shutdown_timeout: controller_shutdown_timeout.value.0,
        ..manager
    };
    let options = Options {
        concurrent_replicaset_syncs: concurrent_replicaset_syncs.value.0 as usize,
        concurrent_rc_syncs: concurrent_rc_syncs.value.0 as usize,
        concurrent_endpoint_syncs: concurrent_endpoint_syncs.value.0 as usize,
        endpoint_updates_batch_period: endpoint_updates_batch_period.value.0,
        terminating_replicas: gates.is_on(&feature_gates::TERMINATING_REPLICAS),
        pod_deletion_cost: gates.is_on(&feature_gates::POD_DELETION_COST),
    };
    Ok((manager, options))
}

fn selection(given: &Given<Names>, known: &[Descriptor]) -> Result<ControllerSelection, InvalidSetting> {
    let words = &given.value.0;
    let selection = ControllerSelection::parse(words.iter().map(|word| &word.text));
    match selection.resolve(known) {
        Ok(selected) if selected.is_empty() => {
            let remedy = format!("write '*' for all; there are {}", names(known));
            Err(given.refuse("no controller would run", remedy))
        }
        Ok(_) => Ok(selection),
        Err(problem) => {
            let named =
                |word: &&Word| word.text.trim().strip_prefix('-').unwrap_or(word.text.trim()) == problem.name;
            Err(given.wrong(unknown(&problem, known, words.iter().find(named))))
        }
    }
}

/// Of a name that no controller has.
pub(super) fn unknown(problem: &UnknownController, known: &[Descriptor], word: Option<&Word>) -> Wrong {
    let (what, remedy) = if known_flags::is_upstream_controller(&problem.name) {
        ("is a kube-controller-manager controller that windlass does not have yet", "leave it out".to_owned())
    } else {
        let meant = problem.closest.map(|name| format!("write {name} if you meant that"));
        ("is not a controller", meant.unwrap_or_else(|| "correct the name".to_owned()))
    };
    let what = format!("{} {what}", quoted(&problem.name));
    let wrong = Wrong::new(what, format!("{remedy}; there are {}", names(known)));
    match word {
        Some(word) => wrong.at(word),
        None => wrong,
    }
}

fn names(known: &[Descriptor]) -> String {
    known.iter().map(|one| one.name).collect::<Vec<_>>().join(", ")
}
