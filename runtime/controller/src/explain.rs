//! Why a key has not been reconciled: the answer, for people and for machines.
//!
//! Guarantees: the first line of an [`Explanation`] names the cause; what the other lines say is what was observed. Field
//! names are stable.

mod diagnosis;
mod inspector;
mod moment;
mod overview;
mod situation;

use std::fmt;

use serde::Serialize;

pub use crate::explain::inspector::ControllerInspector;
pub use crate::explain::moment::ObservedTime;
pub use crate::explain::overview::{ControllerOverview, ControllerState, FailingKey, WaitingKey};
pub use crate::explain::situation::Situation;

/// Everything there is to say of one key of one controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The controller's name.
    pub controller: String,
    /// The key: `namespace/name`, or `name`.
    pub key: String,
    /// The cause, on one line: what [`Situation`] displays.
    pub cause: String,
    /// The cause.
    pub situation: Situation,
    /// When this was asked.
    pub asked: ObservedTime,
    /// What was seen last that queued the key.
    pub seen: Option<SeenObject>,
    /// What the controller's caches hold under this key.
    pub cached: Vec<CachedObject>,
    /// What its caches were told of under this key and could not decode.
    pub undecoded: Vec<UndecodedObject>,
    /// The wait for the next reconcile, if it has begun, or for the last.
    pub queued: Option<Queued>,
    /// The last reconcile, or the one that runs.
    pub last_run: Option<LastRun>,
    /// How often the key has been reconciled, since it is remembered.
    pub runs: u32,
    /// How often it failed in a row.
    pub failures: u32,
    /// The last failure, also one that a success came after.
    pub last_error: Option<LastError>,
    /// When it is reconciled again by itself.
    pub next_try: Option<ObservedTime>,
}

/// A state of an object that queued a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenObject {
    /// The watch that was told of it.
    pub watch: String,
    /// The object; not always the one that the key names.
    pub object: String,
    /// `added`, `updated` or `deleted`.
    pub event: String,
    /// Why it was told: `watch`, `initial list`, `re-list`, `deselection` or `resync`.
    pub cause: String,
    /// Its version.
    pub version: Option<String>,
    /// Its UID.
    pub uid: Option<String>,
    /// When the watch was told.
    pub at: Option<ObservedTime>,
}

/// What a cache holds under a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CachedObject {
    /// Of which kind.
    pub kind: String,
    /// Its version.
    pub version: Option<String>,
    /// Its UID.
    pub uid: Option<String>,
}

/// An object that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UndecodedObject {
    /// Of which kind.
    pub kind: String,
    /// Its version, if that can be read.
    pub version: Option<String>,
    /// Why it cannot be decoded, on one line.
    pub error: String,
}

/// A wait for a reconcile.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Queued {
    /// Since when.
    pub since: ObservedTime,
    /// Who asked for it last: `event`, `handler`, `trigger`, `timer`, `reconcile` or `controller`.
    pub asked_by: String,
    /// How urgent it is, while it waits for a worker.
    pub priority: Option<i32>,
}

/// A reconcile.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRun {
    /// When it began.
    pub started: ObservedTime,
    /// When it ended; none while it runs.
    pub ended: Option<ObservedTime>,
    /// How long it took, or has taken.
    pub seconds: f64,
    /// How it ended.
    pub outcome: Option<String>,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    /// When.
    pub at: ObservedTime,
    /// What it said, on one line.
    pub message: String,
    /// What may not be done and the rule that lacks, if that was it.
    pub denial: Option<String>,
}

/// The cause first, then a line for each thing that is known.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.cause)?;
        writeln!(f, "  key:        {} of {}", self.key, self.controller)?;
        if let Some(seen) = &self.seen {
            writeln!(f, "  seen last:  {seen}")?;
        }
        for cached in &self.cached {
            writeln!(f, "  cached:     {cached}")?;
        }
        for UndecodedObject { kind, version, error } in &self.undecoded {
            writeln!(f, "  undecoded:  {kind}, version {}: {error}", or_none(version.as_ref()))?;
        }
        if let Some(Queued { since, asked_by, .. }) = &self.queued {
            writeln!(f, "  queued:     {since}, asked for by {asked_by}")?;
        }
        if let Some(run) = &self.last_run {
            writeln!(f, "  last run:   {run}; {} in all", self.runs)?;
        }
        if self.failures > 0 {
            writeln!(f, "  failures:   {} in a row", self.failures)?;
        }
        if let Some(LastError { at, message, denial }) = &self.last_error {
            writeln!(f, "  last error: {at} {message}")?;
            if let Some(denial) = denial {
                writeln!(f, "  lacking:    {denial}")?;
            }
        }
        match &self.next_try {
            Some(next) => writeln!(f, "  next try:   {next}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for SeenObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { watch, object, event, cause, version, uid, at } = self;
        write!(f, "{object} {event}, told by {cause} to the watch on {watch}")?;
        write!(f, ", version {}, uid {}", or_none(version.as_ref()), or_none(uid.as_ref()))?;
        at.as_ref().map_or(Ok(()), |at| write!(f, ", {at}"))
    }
}

impl fmt::Display for CachedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, version, uid } = self;
        write!(f, "{kind}, version {}, uid {}", or_none(version.as_ref()), or_none(uid.as_ref()))
    }
}

impl fmt::Display for LastRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { started, seconds, outcome, .. } = self;
        let outcome = outcome.as_deref().unwrap_or("not ended");
        write!(f, "{started}, {}, {outcome}", moment::brief(*seconds))
    }
}

fn or_none(text: Option<&String>) -> &str {
    text.map_or("none", String::as_str)
}
