//! Overview of the state of one controller.

use std::fmt;

use serde::Serialize;

use crate::explain::observed_time::ObservedTime;

/// The state of one controller. Names at most 20 running, failing and waiting keys each.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerOverview {
    /// Its name.
    pub name: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// The phase of the controller.
    pub state: ControllerState,
    /// The number of keys that wait for a worker.
    pub depth: usize,
    /// The number of workers.
    pub workers: usize,
    /// The number of workers that process a key.
    pub busy: usize,
    /// The number of keys whose last reconcile failed.
    pub failing: usize,
    /// The keys that are quarantined after repeated panics.
    pub quarantined: Vec<String>,
    /// The number of keys in the history.
    pub remembered: usize,
    /// The keys in progress, with their start times.
    pub running: Vec<WaitingKey>,
    /// The first keys whose last reconcile failed.
    pub failing_keys: Vec<FailingKey>,
    /// The keys that have waited longest, delayed ones included.
    pub oldest_keys: Vec<WaitingKey>,
}

/// The phase of a controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ControllerState {
    /// The controller is set up but not started.
    NotStarted,
    /// Required caches are not synced.
    WaitingForCaches {
        /// The caches and the reasons.
        lacking: String,
    },
    /// Another replica is active.
    StandingBy {
        /// The Lease.
        lease: String,
        /// The holder of the Lease, if known.
        holder: Option<String>,
    },
    /// This replica has acquired the Lease and prepares to start.
    TakingOver {
        /// The Lease.
        lease: String,
    },
    /// The controller processes keys.
    Working,
    /// The controller no longer dequeues keys.
    Draining,
}

/// A key with the time at which its state began.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingKey {
    /// The key.
    pub key: String,
    /// The time at which the state began.
    pub since: ObservedTime,
}

/// A key whose last reconcile failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailingKey {
    /// The key.
    pub key: String,
    /// The number of consecutive failures; 0 if the key is reconciled again only after a change.
    pub failures: u32,
    /// The last error message.
    pub error: String,
    /// The time of the next attempt.
    pub next_try: Option<ObservedTime>,
}

impl ControllerOverview {
    /// Returns the overview on one line.
    pub fn summary(&self) -> String {
        let Self { name, state, depth, workers, busy, failing, quarantined, .. } = self;
        let quarantined = quarantined.len();
        format!(
            "{name}: {state}, {depth} queued, {busy} of {workers} workers busy, {failing} failing, \
             {quarantined} in quarantine"
        )
    }
}

/// Writes a summary, then one line for each key.
impl fmt::Display for ControllerOverview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        for WaitingKey { key, since } in &self.running {
            writeln!(f, "  running     {key}, since {since}")?;
        }
        for WaitingKey { key, since } in &self.oldest_keys {
            writeln!(f, "  waiting     {key}, since {since}")?;
        }
        for failing in &self.failing_keys {
            writeln!(f, "  failing     {failing}")?;
        }
        self.quarantined.iter().try_for_each(|key| writeln!(f, "  quarantined {key}"))
    }
}

impl fmt::Display for FailingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, failures, error, .. } = self;
        match failures {
            0 => write!(f, "{key}, not retried until a change: {error}"),
            _ => write!(f, "{key}, {failures} time(s) in a row: {error}"),
        }
    }
}

impl fmt::Display for ControllerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("not started"),
            Self::WaitingForCaches { lacking } => write!(f, "waiting for caches ({lacking})"),
            Self::StandingBy { lease, holder: Some(holder) } => {
                write!(f, "on standby ({lease} is held by {holder})")
            }
            Self::StandingBy { lease, holder: None } => {
                write!(f, "on standby ({lease} has no known holder)")
            }
            Self::TakingOver { lease } => write!(f, "taking over {lease}"),
            Self::Working => f.write_str("working"),
            Self::Draining => f.write_str("shutting down"),
        }
    }
}
