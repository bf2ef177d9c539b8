//! Features that can be switched on and off: which there are, how finished each is, and what somebody chose.
//!
//! Guarantees: a gate is a constant of the program that asks for it, so no gate is asked for by a misspelt name; nothing
//! is chosen about a gate that does not exist, or that cannot be had otherwise; the order of choices does not matter,
//! but that of two about one gate the last counts. The rules are Kubernetes': `AllAlpha` and `AllBeta` choose for every
//! gate of that stage that is not chosen by name, a gate that is finished may be locked, and the metric
//! `kubernetes_feature_enabled` tells each gate with its stage.
//!
//! It refuses to be global: a set of gates is a value, and two managers in one process have one each.

use std::collections::BTreeMap;
use std::fmt;

use windlass_metrics::Metrics;

use crate::spelling::closest;

/// How finished a feature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardStage {
    /// May change or go without notice.
    Alpha,
    /// Its details may change; it will not go unannounced.
    Beta,
    /// Here to stay; the gate itself will go.
    Stable,
    /// Will go.
    Deprecated,
}

impl ShardStage {
    /// As the metric's label has it, which is as Kubernetes has it: nothing for what is stable.
    pub fn label(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

/// For people.
impl fmt::Display for ShardStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Stable { "GA" } else { self.label() })
    }
}

/// A feature that can be switched: a constant of whoever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGate {
    /// What users call it, in Kubernetes' style: `CoordinatedLeaderElection`.
    pub name: &'static str,
    /// How finished it is.
    pub stage: ShardStage,
    /// Whether it is on unless somebody chooses.
    pub default: bool,
    /// Whether it can be nothing else. Choosing what it is anyway is accepted, so that configurations carry over.
    pub locked: bool,
    /// The version since which it is in this stage.
    pub since: &'static str,
}

/// As `--help` shows it: `Name=true|false (BETA since v1.33 - default=false)`.
impl fmt::Display for FeatureGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, stage, default, locked, since } = self;
        let (choice, word) = match locked {
            true => (default.to_string(), "always"),
            false => ("true|false".to_owned(), "default"),
        };
        write!(f, "{name}={choice} ({stage} since {since} - {word}={default})")
    }
}

/// Chooses for every gate of its stage that is not chosen by name.
const ALL: [(&str, ShardStage); 2] = [("AllAlpha", ShardStage::Alpha), ("AllBeta", ShardStage::Beta)];

/// The gates of a program, and what was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    known: BTreeMap<&'static str, FeatureGate>,
    chosen: BTreeMap<&'static str, bool>,
    stages: BTreeMap<ShardStage, bool>,
}

impl FeatureGates {
    /// These gates, each as it is by default.
    ///
    /// # Errors
    /// When two have one name.
    pub fn new(known: impl IntoIterator<Item = FeatureGate>) -> Result<Self, FeatureGateError> {
        let mut gates = Self::default();
        known.into_iter().try_for_each(|gate| gates.add(gate))?;
        Ok(gates)
    }

    /// One gate more.
    ///
    /// # Errors
    /// When its name is taken.
    pub fn add(&mut self, gate: FeatureGate) -> Result<(), FeatureGateError> {
        let taken = ALL.iter().any(|(name, _)| *name == gate.name) || self.known.contains_key(gate.name);
        if taken {
            return Err(FeatureGateError::Taken(gate.name));
        }
        self.known.insert(gate.name, gate);
        Ok(())
    }

    /// Chooses.
    ///
    /// # Errors
    /// When there is no such gate, or it cannot be had like this.
    pub fn set(&mut self, name: &str, on: bool) -> Result<(), FeatureGateError> {
        if let Some((_, stage)) = ALL.iter().find(|(all, _)| *all == name) {
            self.stages.insert(*stage, on);
            return Ok(());
        }
        let Some(gate) = self.known.get(name) else {
            return Err(self.unknown(name));
        };
        if gate.locked && gate.default != on {
            return Err(FeatureGateError::Locked { name: gate.name, value: gate.default });
        }
        self.chosen.insert(gate.name, on);
        Ok(())
    }

    /// Whether a feature is on. One that was never added is as it is by default.
    pub fn is_on(&self, gate: &FeatureGate) -> bool {
        let free = self.known.contains_key(gate.name) && !gate.locked;
        let by_stage = || self.stages.get(&gate.stage).copied().filter(|_| free);
        self.chosen.get(gate.name).copied().or_else(by_stage).unwrap_or(gate.default)
    }

    /// Every gate by its name, and whether it is on.
    pub fn iter(&self) -> impl Iterator<Item = (&FeatureGate, bool)> {
        self.known.values().map(|gate| (gate, self.is_on(gate)))
    }

    /// Tells every gate as the metric `kubernetes_feature_enabled`.
    pub fn export(&self, metrics: &Metrics) {
        let metrics = metrics.manager();
        self.iter().for_each(|(gate, on)| metrics.feature(gate.name, gate.stage.label()).set(on.into()));
    }

    fn unknown(&self, name: &str) -> FeatureGateError {
        let names = || self.known.keys().copied().chain(ALL.map(|(name, _)| name));
        // By letters first, then by a part of the name: people remember one.
        let part = || {
            let wanted = name.to_ascii_lowercase();
            let long_enough = wanted.len() >= 4;
            names().find(|known| long_enough && known.to_ascii_lowercase().contains(&wanted))
        };
        let closest = closest(name, names()).or_else(part);
        FeatureGateError::Unknown { name: name.to_owned(), closest, known: names().collect() }
    }
}

/// Why a gate cannot be added or chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeatureGateError {
    /// Its name belongs to another.
    #[error("feature gate {0:?} is there already")]
    Taken(&'static str),
    /// There is none of this name.
    #[error("unknown feature gate {name:?}{}", suggestion(*closest, known))]
    Unknown {
        /// As written.
        name: String,
        /// The gate that is spelled most like it.
        closest: Option<&'static str>,
        /// All there are.
        known: Vec<&'static str>,
    },
    /// It cannot be had otherwise.
    #[error("feature gate {name:?} is always {value}")]
    Locked {
        /// The gate.
        name: &'static str,
        /// What it is.
        value: bool,
    },
}

fn suggestion(closest: Option<&'static str>, known: &[&'static str]) -> String {
    match closest {
        Some(closest) => format!(", did you mean {closest}?"),
        None => format!(", there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLY: FeatureGate = gate("EarlyThing", ShardStage::Alpha, false);
    const NEARLY: FeatureGate = gate("NearlyDone", ShardStage::Beta, true);
    const DONE: FeatureGate = FeatureGate { locked: true, ..gate("DoneThing", ShardStage::Stable, true) };
    const ALWAYS_OFF: FeatureGate =
        FeatureGate { locked: true, ..gate("NeverHere", ShardStage::Beta, false) };

    const fn gate(name: &'static str, stage: ShardStage, default: bool) -> FeatureGate {
        FeatureGate { name, stage, default, locked: false, since: "v1.0" }
    }

    /// Sets the gates of `text`, in order: `Name=true,Other=false`.
    fn try_gates(text: &str) -> Result<FeatureGates, FeatureGateError> {
        let mut gates = FeatureGates::new([EARLY, NEARLY, DONE, ALWAYS_OFF]).expect("four names");
        for choice in text.split(',').filter(|choice| !choice.is_empty()) {
            let (name, value) = choice.split_once('=').expect("of the form Name=true");
            gates.set(name, value.parse().expect("true or false"))?;
        }
        Ok(gates)
    }

    fn gates(text: &str) -> FeatureGates {
        try_gates(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> FeatureGateError {
        try_gates(text).expect_err(text)
    }

    // parity: set-all
    #[test]
    fn gate_is_as_chosen_and_else_as_by_default() {
        assert_eq!((gates("").is_on(&EARLY), gates("").is_on(&NEARLY)), (false, true));
        let chosen = gates("EarlyThing=true,NearlyDone=false");
        assert_eq!((chosen.is_on(&EARLY), chosen.is_on(&NEARLY)), (true, false));
        assert!(!gates("EarlyThing=true,EarlyThing=false").is_on(&EARLY), "the last counts");
        for default in [true, false] {
            let stranger = gate("Stranger", ShardStage::Alpha, default);
            for text in ["", "AllAlpha=true", "AllAlpha=false"] {
                assert_eq!(gates(text).is_on(&stranger), default, "nobody added it: {text}");
            }
        }
    }

    // parity: set-all
    #[test]
    fn all_of_a_stage_are_chosen_at_once_save_those_chosen_by_name_and_those_that_are_locked() {
        for text in ["AllBeta=false,NearlyDone=true", "NearlyDone=true,AllBeta=false"] {
            assert!(gates(text).is_on(&NEARLY), "{text}");
        }
        let all = gates("AllAlpha=true,AllBeta=false");
        assert_eq!((all.is_on(&EARLY), all.is_on(&NEARLY)), (true, false));
        assert!(!gates("AllBeta=true").is_on(&ALWAYS_OFF));
    }

    // parity: set-all
    #[test]
    fn locked_gate_can_be_chosen_as_what_it_is_and_as_nothing_else() {
        assert!(gates("DoneThing=true").is_on(&DONE));
        assert_eq!(refused("DoneThing=false"), FeatureGateError::Locked { name: "DoneThing", value: true });
    }

    // parity: unrecognized-feature
    #[test]
    fn what_cannot_be_chosen_is_named_with_what_may_have_been_meant() {
        for (text, parts) in [
            ("EarlyThin=true", "unknown feature gate \"EarlyThin\", did you mean EarlyThing?"),
            ("nearly=true", "unknown feature gate \"nearly\", did you mean NearlyDone?"),
            ("X=true", "there are DoneThing, EarlyThing, NearlyDone, NeverHere, AllAlpha, AllBeta"),
        ] {
            let error = refused(text).to_string();
            assert!(error.contains(parts) && !error.contains('\n'), "{text}: {error}");
        }
        let twice = FeatureGates::new([EARLY, EARLY]);
        assert_eq!(twice, Err(FeatureGateError::Taken("EarlyThing")));
        assert_eq!(
            FeatureGates::new([gate("AllBeta", ShardStage::Alpha, true)]),
            Err(FeatureGateError::Taken("AllBeta"))
        );
    }

    // parity: kubernetes-feature-enabled
    #[test]
    fn every_gate_is_a_metric_with_its_stage() {
        let metrics = Metrics::new();
        gates("EarlyThing=true").export(&metrics);
        let text = metrics.encode();
        for line in [
            "kubernetes_feature_enabled{name=\"EarlyThing\",stage=\"ALPHA\"} 1",
            "kubernetes_feature_enabled{name=\"NeverHere\",stage=\"BETA\"} 0",
            "kubernetes_feature_enabled{name=\"DoneThing\",stage=\"\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in:\n{text}");
        }
    }

    // parity: featuregate-mutable-versioned-feature
    #[test]
    fn two_sets_of_gates_know_nothing_of_each_other() {
        let (one, other) = (gates("EarlyThing=true"), gates(""));
        assert_eq!((one.is_on(&EARLY), other.is_on(&EARLY)), (true, false));
    }

    #[test]
    fn help_says_stage_version_and_default() {
        assert_eq!(EARLY.to_string(), "EarlyThing=true|false (ALPHA since v1.0 - default=false)");
        assert_eq!(DONE.to_string(), "DoneThing=true (GA since v1.0 - always=true)");
    }
}
