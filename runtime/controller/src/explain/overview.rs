//! How one controller fares as a whole.

use std::fmt;

use serde::Serialize;

use crate::explain::moment::ObservedTime;

/// How one controller fares. Of running, failing and waiting keys it names the first twenty.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerOverview {
    /// Its name.
    pub name: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// How it stands.
    pub state: ControllerState,
    /// How many keys wait for a worker.
    pub depth: usize,
    /// How many workers it has.
    pub workers: usize,
    /// How many of them have a key.
    pub busy: usize,
    /// How many keys failed and have not succeeded since.
    pub failing: usize,
    /// The keys that rest because their reconcile panics.
    pub quarantined: Vec<String>,
    /// How many keys are remembered.
    pub remembered: usize,
    /// What workers have, and since when.
    pub running: Vec<WaitingKey>,
    /// Keys that fail.
    pub failing_keys: Vec<FailingKey>,
    /// The keys that have waited longest, delayed ones included.
    pub oldest_keys: Vec<WaitingKey>,
}

/// How a controller stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ControllerState {
    /// It is set up.
    NotStarted,
    /// Caches that it needs have no initial list.
    WaitingForCaches {
        /// Which, and why.
        lacking: String,
    },
    /// Another replica acts.
    StandingBy {
        /// The Lease.
        lease: String,
        /// Who holds it, if that is known.
        holder: Option<String>,
    },
    /// This replica has just become the one that acts.
    TakingOver {
        /// The Lease.
        lease: String,
    },
    /// It works.
    Working,
    /// It takes no key any more.
    Draining,
}

/// A key, and since when.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingKey {
    /// The key.
    pub key: String,
    /// Since when.
    pub since: ObservedTime,
}

/// A key that fails.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailingKey {
    /// The key.
    pub key: String,
    /// How often in a row.
    pub failures: u32,
    /// What the last failure said.
    pub error: String,
    /// When it is tried again.
    pub next_try: Option<ObservedTime>,
}

impl ControllerOverview {
    /// The overview on one line.
    pub fn summary(&self) -> String {
        let Self { name, state, depth, workers, busy, failing, quarantined, .. } = self;
        let quarantined = quarantined.len();
        format!(
            "{name}: {state}, {depth} queued, {busy} of {workers} workers busy, {failing} failing, \
             {quarantined} in quarantine"
        )
    }
}

/// A summary, then a line for each key.
impl fmt::Display for ControllerOverview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        for WaitingKey { key, since } in &self.running {
            writeln!(f, "  running     {key}, since {since}")?;
        }
        for WaitingKey { key, since } in &self.oldest_keys {
            writeln!(f, "  waiting     {key}, since {since}")?;
        }
        for FailingKey { key, failures, error, .. } in &self.failing_keys {
            writeln!(f, "  failing     {key}, {failures} time(s) in a row: {error}")?;
        }
        self.quarantined.iter().try_for_each(|key| writeln!(f, "  quarantined {key}"))
    }
}

impl fmt::Display for ControllerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("not started"),
            Self::WaitingForCaches { lacking } => write!(f, "waiting for caches ({lacking})"),
            Self::StandingBy { lease, holder: Some(holder) } => {
                write!(f, "standing by ({lease} is held by {holder})")
            }
            Self::StandingBy { lease, holder: None } => {
                write!(f, "standing by ({lease} has no known holder)")
            }
            Self::TakingOver { lease } => write!(f, "taking over {lease}"),
            Self::Working => f.write_str("working"),
            Self::Draining => f.write_str("shutting down"),
        }
    }
}
