//! The feature gates of this binary.
//!
//! Their names are those of features of upstream's controllers that can be switched there. Few can be switched here as
//! well. The others name behaviour that is always on here; setting one of those to what it is anyway is accepted, so that a
//! command line can be moved over, and setting it to anything else is refused. Guarantees: no gate is accepted and then
//! ignored, in a file where a flag overrides it no more than elsewhere.

use windlass::manager::{FeatureGate, FeatureGateError, FeatureGates, Stage};

use crate::settings::{Given, InvalidSetting, Switches, Word, Wrong, shown};

/// The status of a ReplicaSet says how many of its pods are on their way out.
pub(crate) const TERMINATING_REPLICAS: FeatureGate =
    gate("DeploymentReplicaSetTerminatingReplicas", Stage::Beta, true, "v1.35");

/// An annotation of pods takes part in choosing victims.
pub(crate) const POD_DELETION_COST: FeatureGate = gate("PodDeletionCost", Stage::Beta, true, "v1.22");

/// A leader gives its lease back on a clean exit, after its work has ended.
const RELEASE_ON_EXIT: FeatureGate =
    locked("ControllerManagerReleaseLeaderElectionLockOnExit", Stage::Alpha, true, "v1.36");

/// Of pods alike in all else, ages are compared by order of magnitude.
const LOGARITHMIC_SCALE_DOWN: FeatureGate = locked("LogarithmicScaleDown", Stage::Stable, true, "v1.31");

/// No reconcile runs on a cache older than its own last write.
const STALE_CONSISTENCY: FeatureGate =
    locked("StaleControllerConsistencyReplicaSet", Stage::Beta, true, "v1.36");

/// The API server chooses the leader.
pub(crate) const COORDINATED_ELECTION: FeatureGate =
    gate("CoordinatedLeaderElection", Stage::Beta, false, "v1.33");

/// All of them, in stages and with the versions of Kubernetes.
pub(crate) const GATES: [FeatureGate; 6] = [
    RELEASE_ON_EXIT,
    COORDINATED_ELECTION,
    TERMINATING_REPLICAS,
    LOGARITHMIC_SCALE_DOWN,
    POD_DELETION_COST,
    STALE_CONSISTENCY,
];

const fn gate(name: &'static str, stage: Stage, default: bool, since: &'static str) -> FeatureGate {
    FeatureGate { name, stage, default, locked: false, since }
}

const fn locked(name: &'static str, stage: Stage, value: bool, since: &'static str) -> FeatureGate {
    FeatureGate { locked: true, ..gate(name, stage, value, since) }
}

/// The gates as they were set.
///
/// # Errors
/// The first that is unknown, or cannot be had.
pub(crate) fn read(given: &Given<Switches>) -> Result<FeatureGates, InvalidSetting> {
    // What the file says of a name that the flag decides is to make sense, too.
    given.overridden().map(read_one).transpose()?;
    read_one(given)
}

/// What somebody says of a gate by its name, and not of its whole stage.
pub(crate) fn word_about<'a>(given: &'a Given<Switches>, gate: &FeatureGate) -> Option<(&'a Word, bool)> {
    given.value.0.iter().find(|(word, _)| word.text == gate.name).map(|(word, on)| (word, *on))
}

fn read_one(given: &Given<Switches>) -> Result<FeatureGates, InvalidSetting> {
    let mut gates = FeatureGates::default();
    // Their names differ, which a test shows.
    let _ = GATES.into_iter().try_for_each(|gate| gates.add(gate));
    for (word, on) in &given.value.0 {
        gates.set(&word.text, *on).map_err(|problem| given.wrong(wrong(problem, word)))?;
    }
    Ok(gates)
}

fn wrong(problem: FeatureGateError, word: &Word) -> Wrong {
    let (problem, remedy) = match problem {
        FeatureGateError::Unknown { name, closest, known } => {
            let remedy =
                closest.map_or("leave it out".to_owned(), |it| format!("write {it} or leave it out"));
            // The name is whatever somebody wrote, however long.
            (FeatureGateError::Unknown { name: shown(&name), closest, known }, remedy)
        }
        other => (other, "leave it out".to_owned()),
    };
    Wrong::new(problem, remedy).at(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_gates_have_one_name() {
        assert!(FeatureGates::new(GATES).is_ok());
    }
}
