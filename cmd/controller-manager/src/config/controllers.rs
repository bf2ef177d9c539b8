//! Which controllers run, and how eagerly.

use std::time::Duration;

use windlass::controller::Descriptor;
use windlass::informer::Resync;
use windlass::manager::{ControllerSelection, FeatureGates, ManagerConfig, UnknownController};
use windlass_controllers::Options;

use crate::settings::{ControllerSettings, Given, InvalidSetting, Names, Period, Word, Wrong, quoted};
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
        resync: resync(&min_resync_period)?,
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

fn resync(given: &Given<Period>) -> Result<Duration, InvalidSetting> {
    let period = given.value.0;
    if !period.is_zero() && period < Resync::SHORTEST {
        return Err(given
            .refuse("a cache is not worth looking through so often", "write 1s or more, or 0s for never"));
    }
    Ok(period)
}

fn selection(given: &Given<Names>, known: &[Descriptor]) -> Result<ControllerSelection, InvalidSetting> {
    // The file's names are to be right, whatever the flag says.
    given.overridden().map(|file| resolve(file, known)).transpose()?;
    let (selection, selected) = resolve(given, known)?;
    if selected.is_empty() {
        let remedy = format!("write '*' for all; there are {}", names(known));
        return Err(given.refuse("no controller would run", remedy));
    }
    Ok(selection)
}

/// A list, and the controllers that it selects.
fn resolve(
    given: &Given<Names>,
    known: &[Descriptor],
) -> Result<(ControllerSelection, Vec<&'static str>), InvalidSetting> {
    let words = &given.value.0;
    let selection = ControllerSelection::parse(words.iter().map(|word| &word.text));
    match selection.resolve(known) {
        Ok(selected) => Ok((selection, selected)),
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
