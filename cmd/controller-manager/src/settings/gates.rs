//! The feature gates of this binary.
//!
//! They have the names of upstream's gates. A few can be switched. The others name behavior that this binary always or
//! never has; a command line of kube-controller-manager that sets one to this value is accepted.
//! Guarantees: a gate that is accepted has an effect, or names the behavior that this binary has.

use std::collections::BTreeMap;

use serde::Serialize;
use windlass::manager::{FeatureGate, FeatureGateError, FeatureGates, FeatureStage};

use super::invalid::InvalidValue;
use super::value::{Value, ValueShape, entries};

/// The status of a ReplicaSet counts terminating pods.
pub(crate) const TERMINATING_REPLICAS: FeatureGate =
    gate("DeploymentReplicaSetTerminatingReplicas", FeatureStage::Beta, true, "v1.35");

/// The annotation `controller.kubernetes.io/pod-deletion-cost` ranks pods for deletion.
pub(crate) const POD_DELETION_COST: FeatureGate = gate("PodDeletionCost", FeatureStage::Beta, true, "v1.22");

/// The API server selects the leader.
pub(crate) const COORDINATED_ELECTION: FeatureGate =
    gate("CoordinatedLeaderElection", FeatureStage::Beta, false, "v1.33");

/// All gates, with the stages and versions of Kubernetes.
const GATES: [FeatureGate; 11] = [
    // The leader releases its Lease on a clean exit, after its work has stopped.
    locked("ControllerManagerReleaseLeaderElectionLockOnExit", FeatureStage::Alpha, "v1.36"),
    COORDINATED_ELECTION,
    TERMINATING_REPLICAS,
    // The age of pods is compared by order of magnitude.
    locked("LogarithmicScaleDown", FeatureStage::Stable, "v1.31"),
    // More than one unavailable pod during a rolling update.
    absent("MaxUnavailableStatefulSet", FeatureStage::Beta, "v1.35"),
    POD_DELETION_COST,
    // No reconcile runs on a cache older than the controller's last write.
    locked("StaleControllerConsistencyDaemonSet", FeatureStage::Beta, "v1.36"),
    locked("StaleControllerConsistencyReplicaSet", FeatureStage::Beta, "v1.36"),
    locked("StaleControllerConsistencyStatefulSet", FeatureStage::Beta, "v1.36"),
    // A revision with other bytes for the same template is not a new revision.
    locked("StatefulSetSemanticRevisionComparison", FeatureStage::Beta, "v1.0"),
    // The operators Gt and Lt of tolerations.
    absent("TaintTolerationComparisonOperators", FeatureStage::Alpha, "v1.35"),
];

const fn gate(name: &'static str, stage: FeatureStage, default: bool, since: &'static str) -> FeatureGate {
    FeatureGate { name, stage, default, locked: false, since }
}

const fn locked(name: &'static str, stage: FeatureStage, since: &'static str) -> FeatureGate {
    FeatureGate { locked: true, ..gate(name, stage, true, since) }
}

const fn absent(name: &'static str, stage: FeatureStage, since: &'static str) -> FeatureGate {
    FeatureGate { locked: true, ..gate(name, stage, false, since) }
}

/// The gates that the user sets, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Gates(pub(crate) BTreeMap<String, bool>);

impl Gates {
    /// Returns the state of every gate.
    ///
    /// # Errors
    /// The first gate that is unknown, or that is locked to the other value.
    pub(crate) fn feature_gates(&self) -> Result<FeatureGates, FeatureGateError> {
        let gates = self.unchecked()?;
        gates.validate()?;
        Ok(gates)
    }

    /// Returns the state of every gate. The flag and the file can each contain a part of the gates, so only all of them
    /// can be checked together.
    fn unchecked(&self) -> Result<FeatureGates, FeatureGateError> {
        let mut gates = FeatureGates::new(GATES)?;
        self.0.iter().try_for_each(|(name, on)| gates.set(name, *on))?;
        Ok(gates)
    }
}

impl Value for Gates {
    const SHAPE: ValueShape = ValueShape::Map;

    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let mut gates = Self::default();
        for entry in entries(text) {
            let invalid =
                || InvalidValue::new(format!("{entry:?} is not a gate"), "write Name=true or Name=false");
            let (name, on) = entry.split_once('=').ok_or_else(invalid)?;
            let on = bool::parse(on.trim()).map_err(|_| invalid())?;
            // Upstream permits the name of a component as a prefix; this is the only component.
            let name = name.trim();
            let name = name.strip_prefix("kube:").unwrap_or(name).trim();
            gates.0.insert(name.to_owned(), on);
        }
        gates
            .unchecked()
            .map_err(|problem| InvalidValue::new(problem, "correct the gate or leave it out"))?;
        Ok(gates)
    }

    /// The flag overrides the file gate by gate.
    fn over(self, mut file: Self) -> Self {
        file.0.extend(self.0);
        file
    }

    fn choices() -> Vec<String> {
        GATES.iter().map(ToString::to_string).collect()
    }
}
