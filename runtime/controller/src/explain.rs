//! Diagnosis of one key: the reason why it has not been reconciled, as text and as JSON.
//!
//! Guarantees: the first line of an [`Explanation`] names the cause; the other lines list the observations. Field names
//! are stable.

mod diagnosis;
mod inspector;
mod observed_time;
mod overview;
mod situation;

use std::fmt;

use serde::Serialize;

pub use crate::explain::inspector::ControllerInspector;
pub use crate::explain::observed_time::ObservedTime;
pub use crate::explain::overview::{ControllerOverview, ControllerState, FailingKey, WaitingKey};
pub use crate::explain::situation::Situation;

/// Explanation of the state of one key of one controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The controller's name.
    pub controller: String,
    /// The key: `namespace/name`, or `name`.
    pub key: String,
    /// The cause, on one line: the text of [`Situation`].
    pub cause: String,
    /// The cause.
    pub situation: Situation,
    /// The time of the query.
    pub asked: ObservedTime,
    /// The last event that enqueued the key.
    pub seen: Option<SeenObject>,
    /// The objects of this key in the controller's caches.
    pub cached: Vec<CachedObject>,
    /// The objects of this key that the caches could not decode.
    pub undecoded: Vec<ExplainedUndecodable>,
    /// The current wait in the queue, or the wait before the last reconcile.
    pub queued: Option<Queued>,
    /// The running reconcile, or the last one.
    pub last_run: Option<LastRun>,
    /// The number of reconciles since the history of the key began.
    pub runs: u32,
    /// The number of consecutive failures.
    pub failures: u32,
    /// The last failure, even if a success followed.
    pub last_error: Option<LastError>,
    /// The time of the next scheduled reconcile.
    pub next_try: Option<ObservedTime>,
}

/// An event that enqueued a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenObject {
    /// The watch that received the event.
    pub watch: String,
    /// The object; a mapper can enqueue a key of another object.
    pub object: String,
    /// `added`, `updated` or `deleted`.
    pub event: String,
    /// The cause of the event: `watch`, `initial list`, `relist`, `deselection` or `resync`.
    pub cause: String,
    /// Its version.
    pub version: Option<String>,
    /// Its UID.
    pub uid: Option<String>,
    /// The time at which the watch received the event.
    pub at: Option<ObservedTime>,
}

/// A cached object of a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CachedObject {
    /// The kind of the object.
    pub kind: String,
    /// Its version.
    pub version: Option<String>,
    /// Its UID.
    pub uid: Option<String>,
}

/// An object that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedUndecodable {
    /// The kind of the object.
    pub kind: String,
    /// Its version, if it is readable.
    pub version: Option<String>,
    /// The decoding error, on one line.
    pub error: String,
}

/// A wait for a reconcile.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Queued {
    /// The time at which the wait began.
    pub since: ObservedTime,
    /// The last source that enqueued the key: `event`, `handler`, `trigger`, `timer`, `reconcile` or `controller`.
    pub asked_by: String,
    /// Its priority in the queue; `None` after a worker has dequeued it.
    pub priority: Option<i32>,
}

/// A reconcile.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRun {
    /// When it began.
    pub started: ObservedTime,
    /// When it ended; `None` while it runs.
    pub ended: Option<ObservedTime>,
    /// The duration so far, or in total.
    pub seconds: f64,
    /// Its outcome; `None` while it runs.
    pub outcome: Option<String>,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    /// The time of the failure.
    pub at: ObservedTime,
    /// The error message, on one line.
    pub message: String,
    /// The denied request and the missing RBAC rule, if authorization failed.
    pub denial: Option<String>,
}

/// Writes the cause, then one line for each observation.
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
        for ExplainedUndecodable { kind, version, error } in &self.undecoded {
            writeln!(f, "  undecoded:  {kind}, version {}: {error}", or_none(version.as_ref()))?;
        }
        if let Some(Queued { since, asked_by, .. }) = &self.queued {
            writeln!(f, "  queued:     {since}, enqueued by {asked_by}")?;
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
                writeln!(f, "  missing:    {denial}")?;
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
        write!(f, "{object} {event} ({cause}, watch on {watch})")?;
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
        write!(f, "{started}, {}, {outcome}", observed_time::brief(*seconds))
    }
}

fn or_none(text: Option<&String>) -> &str {
    text.map_or("none", String::as_str)
}
