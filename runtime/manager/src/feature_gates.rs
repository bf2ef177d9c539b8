//! Feature gates: known gates, their maturity, and the chosen values.
//!
//! Guarantees:
//! - A gate is a constant of the program that checks it, so code cannot check a misspelled gate.
//! - Setting an unknown gate fails, and so does changing a locked gate, by its name or with its stage.
//! - The order of values does not matter, except that the last value for a gate wins.
//! - The rules are those of Kubernetes. `AllAlpha` and `AllBeta` set every gate of that stage that is not set by name,
//!   a stable gate can be locked, and the metric `kubernetes_feature_enabled` exports each gate with its stage.
//!
//! There is no global state: a set of gates is a value, and two managers in one process have separate sets.

use std::collections::BTreeMap;
use std::fmt;

use windlass_metrics::Metrics;

use crate::spelling::closest;

/// The maturity of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FeatureStage {
    /// Can change or be removed without notice.
    Alpha,
    /// Details can change; it will not be removed without notice.
    Beta,
    /// Permanent; the gate itself will be removed.
    Stable,
    /// Will be removed.
    Deprecated,
}

impl FeatureStage {
    /// Returns the label value for metrics, as in Kubernetes: empty for a stable feature.
    pub fn label(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

/// Formats the stage for help texts.
impl fmt::Display for FeatureStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Stable { "GA" } else { self.label() })
    }
}

/// A feature that can be enabled or disabled, declared as a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGate {
    /// The name in Kubernetes style: `CoordinatedLeaderElection`.
    pub name: &'static str,
    /// The maturity of the feature.
    pub stage: FeatureStage,
    /// Whether it is enabled by default.
    pub default: bool,
    /// Whether the value is fixed. Setting a locked gate to its fixed value is accepted, so that configurations remain
    /// valid.
    pub locked: bool,
    /// The version in which it reached this stage.
    pub since: &'static str,
}

/// Formats the gate for `--help`: `Name=true|false (BETA since v1.33 - default=false)`.
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

/// Names that set every gate of a stage that is not set by name.
const ALL: [(&str, FeatureStage); 2] = [("AllAlpha", FeatureStage::Alpha), ("AllBeta", FeatureStage::Beta)];

/// The gates of a program and their chosen values.
///
/// # Examples
/// ```
/// use windlass_manager::{FeatureGate, FeatureGates, FeatureStage};
///
/// const FAST_DISKS: FeatureGate = FeatureGate {
///     name: "FastDisks",
///     stage: FeatureStage::Alpha,
///     default: false,
///     locked: false,
///     since: "v0.1",
/// };
///
/// let mut gates = FeatureGates::new([FAST_DISKS])?;
/// gates.set("FastDisks", true)?;
/// assert!(gates.is_on(&FAST_DISKS));
/// # Ok::<(), windlass_manager::FeatureGateError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    known: BTreeMap<&'static str, FeatureGate>,
    chosen: BTreeMap<&'static str, bool>,
    stages: BTreeMap<FeatureStage, bool>,
}

impl FeatureGates {
    /// Returns these gates with their default values.
    ///
    /// # Errors
    /// When two gates have the same name.
    pub fn new(known: impl IntoIterator<Item = FeatureGate>) -> Result<Self, FeatureGateError> {
        let mut gates = Self::default();
        known.into_iter().try_for_each(|gate| gates.add(gate))?;
        Ok(gates)
    }

    /// Adds a gate.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn add(&mut self, gate: FeatureGate) -> Result<(), FeatureGateError> {
        let exists = ALL.iter().any(|(name, _)| *name == gate.name) || self.known.contains_key(gate.name);
        if exists {
            return Err(FeatureGateError::Taken(gate.name));
        }
        self.known.insert(gate.name, gate);
        Ok(())
    }

    /// Sets a gate, or all gates of a stage. [`validate`](Self::validate) checks a stage, because a later call can set
    /// some of its gates by name.
    ///
    /// # Errors
    /// When the gate is unknown, or is locked to the other value.
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

    /// Checks the gates that are set with their stage.
    ///
    /// # Errors
    /// When such a gate is locked to the other value and not set by name.
    pub fn validate(&self) -> Result<(), FeatureGateError> {
        let is_unset = |gate: &&FeatureGate| gate.locked && !self.chosen.contains_key(gate.name);
        for gate in self.known.values().filter(is_unset) {
            if self.stages.get(&gate.stage).is_some_and(|on| *on != gate.default) {
                let all = ALL.iter().find(|(_, stage)| *stage == gate.stage).map_or("", |(all, _)| *all);
                return Err(FeatureGateError::LockedInStage { all, name: gate.name, value: gate.default });
            }
        }
        Ok(())
    }

    /// Returns whether a feature is enabled. A gate that was never added has its default value.
    pub fn is_on(&self, gate: &FeatureGate) -> bool {
        let free = self.known.contains_key(gate.name) && !gate.locked;
        let by_stage = || self.stages.get(&gate.stage).copied().filter(|_| free);
        self.chosen.get(gate.name).copied().or_else(by_stage).unwrap_or(gate.default)
    }

    /// Returns every gate, sorted by name, and whether it is enabled.
    pub fn iter(&self) -> impl Iterator<Item = (&FeatureGate, bool)> {
        self.known.values().map(|gate| (gate, self.is_on(gate)))
    }

    /// Exports every gate as the metric `kubernetes_feature_enabled`.
    pub fn export(&self, metrics: &Metrics) {
        let metrics = metrics.manager();
        self.iter().for_each(|(gate, on)| metrics.feature(gate.name, gate.stage.label()).set(on.into()));
    }

    fn unknown(&self, name: &str) -> FeatureGateError {
        let names = || self.known.keys().copied().chain(ALL.map(|(name, _)| name));
        // Compares by edit distance first, then by substring: users often remember a part of the name.
        let part = || {
            let wanted = name.to_ascii_lowercase();
            let long_enough = wanted.len() >= 4;
            names().find(|known| long_enough && known.to_ascii_lowercase().contains(&wanted))
        };
        let closest = closest(name, names()).or_else(part);
        FeatureGateError::Unknown { name: name.to_owned(), closest, known: names().collect() }
    }
}

/// The reason why a gate cannot be added or set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeatureGateError {
    /// The name belongs to another gate.
    #[error("cannot add feature gate {0:?}: it exists already; choose another name")]
    Taken(&'static str),
    /// No gate has this name.
    #[error("unknown feature gate {name:?}{}", suggestion(*closest, known))]
    Unknown {
        /// The name in the configuration.
        name: String,
        /// The gate with the most similar name.
        closest: Option<&'static str>,
        /// All known names.
        known: Vec<&'static str>,
    },
    /// The gate is locked to its default.
    #[error("cannot set feature gate {name:?}: it is locked to {value}")]
    Locked {
        /// The gate.
        name: &'static str,
        /// The value to which it is locked.
        value: bool,
    },
    /// All gates of a stage are set, and one of them is locked to its default.
    #[error("cannot set {all}={}: feature gate {name:?} is locked to {value}; set {name}={value} too", !value)]
    LockedInStage {
        /// The name for all gates of the stage.
        all: &'static str,
        /// The gate.
        name: &'static str,
        /// The value to which it is locked.
        value: bool,
    },
}

fn suggestion(closest: Option<&'static str>, known: &[&'static str]) -> String {
    match closest {
        Some(closest) => format!(", did you mean {closest}?"),
        None => format!("; known gates: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLY: FeatureGate = gate("EarlyThing", FeatureStage::Alpha, false);
    const NEARLY: FeatureGate = gate("NearlyDone", FeatureStage::Beta, true);
    const DONE: FeatureGate = FeatureGate { locked: true, ..gate("DoneThing", FeatureStage::Stable, true) };
    const ALWAYS_OFF: FeatureGate =
        FeatureGate { locked: true, ..gate("NeverHere", FeatureStage::Beta, false) };

    const fn gate(name: &'static str, stage: FeatureStage, default: bool) -> FeatureGate {
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

    fn rejected(text: &str) -> FeatureGateError {
        try_gates(text).expect_err(text)
    }

    // parity: set-all
    #[test]
    fn gate_has_chosen_value_or_its_default() {
        assert_eq!((gates("").is_on(&EARLY), gates("").is_on(&NEARLY)), (false, true));
        let chosen = gates("EarlyThing=true,NearlyDone=false");
        assert_eq!((chosen.is_on(&EARLY), chosen.is_on(&NEARLY)), (true, false));
        assert!(!gates("EarlyThing=true,EarlyThing=false").is_on(&EARLY), "the last value wins");
        for default in [true, false] {
            let unknown = gate("Unknown", FeatureStage::Alpha, default);
            for text in ["", "AllAlpha=true", "AllAlpha=false"] {
                assert_eq!(gates(text).is_on(&unknown), default, "the gate was never added: {text}");
            }
        }
    }

    // parity: set-all
    #[test]
    fn stage_sets_all_gates_except_named_and_locked_ones() {
        for text in ["AllBeta=false,NearlyDone=true", "NearlyDone=true,AllBeta=false"] {
            assert!(gates(text).is_on(&NEARLY), "{text}");
        }
        let all = gates("AllAlpha=true,AllBeta=false");
        assert_eq!((all.is_on(&EARLY), all.is_on(&NEARLY)), (true, false));
        assert!(!gates("AllBeta=true").is_on(&ALWAYS_OFF));
    }

    #[test]
    fn stage_with_locked_gate_is_rejected_unless_the_gate_is_named() {
        let rejected = gates("AllBeta=true").validate().map_err(|error| error.to_string());
        let expected =
            "cannot set AllBeta=true: feature gate \"NeverHere\" is locked to false; set NeverHere=false too";
        assert_eq!(rejected, Err(expected.to_owned()));
        for text in
            ["AllBeta=true,NeverHere=false", "NeverHere=false,AllBeta=true", "AllBeta=false", "AllAlpha=true"]
        {
            assert_eq!(gates(text).validate(), Ok(()), "{text}");
        }
    }

    // parity: set-all
    #[test]
    fn locked_gate_accepts_only_its_fixed_value() {
        assert!(gates("DoneThing=true").is_on(&DONE));
        assert_eq!(rejected("DoneThing=false"), FeatureGateError::Locked { name: "DoneThing", value: true });
    }

    // parity: unrecognized-feature
    #[test]
    fn unknown_gate_error_suggests_a_known_gate() {
        for (text, parts) in [
            ("EarlyThin=true", "unknown feature gate \"EarlyThin\", did you mean EarlyThing?"),
            ("nearly=true", "unknown feature gate \"nearly\", did you mean NearlyDone?"),
            ("X=true", "known gates: DoneThing, EarlyThing, NearlyDone, NeverHere, AllAlpha, AllBeta"),
        ] {
            let error = rejected(text).to_string();
            assert!(error.contains(parts) && !error.contains('\n'), "{text}: {error}");
        }
        let twice = FeatureGates::new([EARLY, EARLY]);
        assert_eq!(twice, Err(FeatureGateError::Taken("EarlyThing")));
        assert_eq!(
            FeatureGates::new([gate("AllBeta", FeatureStage::Alpha, true)]),
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
    fn two_sets_of_gates_are_independent() {
        let (one, other) = (gates("EarlyThing=true"), gates(""));
        assert_eq!((one.is_on(&EARLY), other.is_on(&EARLY)), (true, false));
    }

    #[test]
    fn gate_help_shows_stage_version_and_default() {
        assert_eq!(EARLY.to_string(), "EarlyThing=true|false (ALPHA since v1.0 - default=false)");
        assert_eq!(DONE.to_string(), "DoneThing=true (GA since v1.0 - always=true)");
    }
}
