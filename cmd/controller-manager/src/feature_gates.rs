//! `--feature-gates`: features of upstream's controllers that can be switched there.
//!
//! Few can be switched here as well. Others name behaviour that is always on here; setting one of those to what it is
//! anyway is accepted, so that a command line can be moved over, and setting it to anything else is refused.
//! Guarantees: no gate is accepted and then ignored.

/// The gates that can be switched, with upstream's defaults.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gates {
    /// `DeploymentReplicaSetTerminatingReplicas`: `status.terminatingReplicas` is written.
    pub(crate) terminating_replicas: bool,
    /// `PodDeletionCost`: the annotation takes part in choosing victims.
    pub(crate) pod_deletion_cost: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self { terminating_replicas: true, pod_deletion_cost: true }
    }
}

/// A gate whose value cannot be changed here.
struct Locked {
    name: &'static str,
    value: bool,
}

/// Upstream's gates around the controllers that exist here.
const LOCKED: &[Locked] = &[
    // A leader gives its lease back on a clean exit, after its work has ended.
    Locked { name: "ControllerManagerReleaseLeaderElectionLockOnExit", value: true },
    // Standbys are not coordinated by the API server.
    Locked { name: "CoordinatedLeaderElection", value: false },
    // Of pods alike in all else, ages are compared by order of magnitude.
    Locked { name: "LogarithmicScaleDown", value: true },
    // No reconcile runs on a cache older than its own last write.
    Locked { name: "StaleControllerConsistencyReplicaSet", value: true },
];

/// Why a gate is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GateError {
    /// Not of the form `Name=true`.
    #[error("{0:?} is not of the form Name=true or Name=false")]
    Malformed(String),
    /// Windlass does not know it.
    #[error("unknown feature gate {0:?}")]
    Unknown(String),
    /// Windlass knows it and cannot change it.
    #[error("feature gate {name:?} is always {value} in windlass")]
    Locked {
        /// The gate.
        name: String,
        /// What it is.
        value: bool,
    },
}

/// Reads every `Name=value`, of which the last counts; upstream's component prefix, as in `kube:Name=true`, is accepted.
///
/// # Errors
/// The first that is malformed, unknown, or cannot be had.
pub(crate) fn read(written: &[String]) -> Result<Gates, GateError> {
    let mut gates = Gates::default();
    let mut words = written.iter().map(|word| word.trim()).filter(|word| !word.is_empty());
    words.try_for_each(|word| read_one(word, &mut gates))?;
    Ok(gates)
}

fn read_one(word: &str, gates: &mut Gates) -> Result<(), GateError> {
    let malformed = || GateError::Malformed(word.to_owned());
    let (name, value) = word.split_once('=').ok_or_else(malformed)?;
    let name = name.strip_prefix("kube:").unwrap_or(name).trim();
    let value = crate::config::boolean(value.trim()).ok_or_else(malformed)?;
    match name {
        "DeploymentReplicaSetTerminatingReplicas" => gates.terminating_replicas = value,
        "PodDeletionCost" => gates.pod_deletion_cost = value,
        locked => return check_locked(locked, value),
    }
    Ok(())
}

fn check_locked(name: &str, value: bool) -> Result<(), GateError> {
    match LOCKED.iter().find(|gate| gate.name == name) {
        Some(gate) if gate.value == value => Ok(()),
        Some(gate) => Err(GateError::Locked { name: name.to_owned(), value: gate.value }),
        None => Err(GateError::Unknown(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(word: &str) -> Result<Gates, GateError> {
        read(&[word.to_owned()])
    }

    #[test]
    fn a_gate_that_can_be_switched_is() {
        assert_eq!(read(&[]), Ok(Gates { terminating_replicas: true, pod_deletion_cost: true }));
        assert_eq!(one("PodDeletionCost=false"), Ok(Gates { pod_deletion_cost: false, ..Gates::default() }));
        assert_eq!(
            one("kube:DeploymentReplicaSetTerminatingReplicas=false"),
            Ok(Gates { terminating_replicas: false, ..Gates::default() })
        );
        let twice = ["PodDeletionCost=false".to_owned(), "PodDeletionCost=true".to_owned()];
        assert_eq!(read(&twice), Ok(Gates::default()));
    }

    #[test]
    fn a_gate_that_cannot_be_switched_is_accepted_only_as_what_it_is() {
        assert_eq!(one("LogarithmicScaleDown=true"), Ok(Gates::default()));
        let locked = GateError::Locked { name: "LogarithmicScaleDown".into(), value: true };
        assert_eq!(one("LogarithmicScaleDown=false"), Err(locked));
        assert_eq!(one("NoSuchGate=true"), Err(GateError::Unknown("NoSuchGate".into())));
        assert_eq!(one("PodDeletionCost"), Err(GateError::Malformed("PodDeletionCost".into())));
        assert_eq!(one("PodDeletionCost=maybe"), Err(GateError::Malformed("PodDeletionCost=maybe".into())));
    }
}
