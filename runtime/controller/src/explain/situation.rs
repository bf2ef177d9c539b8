//! The situations of a key, each with its one-line message.

use std::fmt;

use serde::Serialize;

use crate::explain::observed_time::{ObservedTime, brief};

/// The reason why a key has not been reconciled, or the outcome of its last reconcile. The [`Display`](fmt::Display)
/// text is one line that begins with the cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Situation {
    /// The controller is set up but its start has not begun.
    NotStarted,
    /// The process is shutting down.
    ShuttingDown,
    /// Another replica is active.
    LeaseElsewhere {
        /// The Lease.
        lease: String,
        /// The holder of the Lease, if there is a known one.
        holder: Option<String>,
    },
    /// This replica holds the lease, and its controllers are about to start.
    TakingOver {
        /// The Lease.
        lease: String,
    },
    /// The controller lacks a permission to read or to write.
    MissingPermission {
        /// The denied request and the RBAC rule to add.
        denial: String,
        /// The time of the next attempt; `None` for caches, which retry about once a minute.
        next_try: Option<ObservedTime>,
    },
    /// The API server does not serve a kind that the controller needs.
    KindAbsent {
        /// The kind.
        kind: String,
    },
    /// A cache has no initial list, or its watch has been interrupted since the last reconcile.
    WaitingForCache {
        /// The caches and the reasons.
        lacking: Vec<String>,
    },
    /// The key is in a shard that this replica does not hold.
    OtherShard {
        /// The index of the shard.
        shard: u16,
        /// The holder of the shard, if known.
        holder: Option<String>,
    },
    /// The namespaces or selectors of the watches exclude the key.
    NotSelected {
        /// The namespace or selector that excludes the key.
        by: String,
    },
    /// The object exists but cannot be decoded.
    Undecodable {
        /// The kind of the object.
        kind: String,
        /// Its version, if it is readable.
        version: Option<String>,
        /// The decoding error.
        error: String,
    },
    /// The key is quarantined until its next change, because its reconcile panicked repeatedly.
    Quarantined {
        /// The number of consecutive panics.
        panics: u32,
        /// The message of the last panic.
        message: String,
        /// The time of the last panic.
        since: ObservedTime,
    },
    /// The key is paused.
    Paused {
        /// The annotation or the reconcile that pauses the key.
        by: String,
    },
    /// The last reconcile waits for a condition.
    NotYet {
        /// The condition.
        reason: String,
        /// The time of the next reconcile.
        next_try: ObservedTime,
    },
    /// A worker reconciles the key.
    Running {
        /// The time at which this situation began.
        since: ObservedTime,
    },
    /// The caches do not contain the key's last write yet.
    WaitingForOwnWrite {
        /// The resource of the write.
        resource: String,
    },
    /// The class of the key has reached its concurrency limit.
    AtMost {
        /// The class.
        class: String,
        /// The concurrency limit of the class.
        limit: usize,
    },
    /// The key waits, and every worker is busy.
    QueueSaturated {
        /// The number of waiting keys, this key included.
        depth: usize,
        /// The number of workers.
        workers: usize,
        /// The time at which the wait began.
        since: ObservedTime,
    },
    /// The key waits, and a worker is free.
    Queued {
        /// The time at which this situation began.
        since: ObservedTime,
    },
    /// The key changed during its last reconcile or during the rest that follows it, and waits for the end of the rest.
    Resting {
        /// The end of the rest.
        until: ObservedTime,
    },
    /// The key failed and waits for its next attempt.
    BackingOff {
        /// The number of consecutive failures; 0 if the failure occurred before the reconcile.
        failures: u32,
        /// The last error message.
        error: String,
        /// The time of the next attempt.
        next_try: ObservedTime,
    },
    /// The key failed permanently, or has used up its retries, and waits for its next change.
    GivenUp {
        /// The reason for not retrying.
        why: String,
        /// The last error message.
        error: String,
    },
    /// The last reconcile succeeded.
    Done {
        /// The reason why no work is left.
        why: String,
        /// The time of the next scheduled reconcile, if any.
        again: Option<ObservedTime>,
    },
    /// A predicate filters out the object's events in the watch that would enqueue the key.
    Filtered {
        /// The watch.
        watch: String,
        /// The predicate's name.
        predicate: String,
        /// The event and its cause.
        event: String,
        /// The time at which the last event was filtered out.
        at: ObservedTime,
    },
    /// The history has no entry for the key, and entries of idle keys have been evicted.
    NotRemembered {
        /// The capacity of the history of idle keys.
        last: usize,
        /// The observations of an object of that name.
        why: String,
    },
    /// No event or other source has enqueued the key.
    NeverSeen {
        /// The observations of an object of that name.
        why: String,
    },
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => {
                f.write_str("not started: the process has not begun to start this controller")
            }
            Self::ShuttingDown => {
                f.write_str("shutting down: workers dequeue no further keys; query another replica")
            }
            Self::LeaseElsewhere { lease, holder } => lease_elsewhere(f, lease, holder.as_deref()),
            Self::TakingOver { lease } => taking_over(f, lease),
            Self::MissingPermission { denial, next_try } => {
                write!(f, "missing permission: {denial}{}", in_time(next_try.as_ref(), "next attempt"))
            }
            Self::KindAbsent { kind } => {
                write!(
                    f,
                    "kind absent: the API server does not serve {kind}; install the CRD with this version"
                )
            }
            Self::WaitingForCache { lacking } => write!(f, "waiting for cache: {}", lacking.join("; ")),
            Self::OtherShard { shard, holder } => other_shard(f, *shard, holder.as_deref()),
            Self::NotSelected { by } => write!(f, "not selected: {by}"),
            Self::Undecodable { kind, version, error } => {
                let version = version.as_ref().map(|it| format!(" at version {it}")).unwrap_or_default();
                write!(f, "undecodable object: {kind}{version} cannot be decoded: {error}")
            }
            Self::Quarantined { panics, message, since } => quarantined(f, *panics, message, since),
            Self::Paused { by } => write!(f, "paused: {by}"),
            Self::NotYet { reason, next_try } => {
                write!(f, "not yet: {reason}; reconciled again {}", next_try.ahead())
            }
            Self::Running { since } => write!(f, "running: a worker has reconciled it for {}", since.span()),
            Self::WaitingForOwnWrite { resource } => {
                write!(
                    f,
                    "waiting for its own write: the cache of {resource} does not yet reflect the last write of this key"
                )
            }
            Self::AtMost { class, limit } => concurrency_limit(f, class, *limit),
            Self::QueueSaturated { depth, workers, since } => queue_saturated(f, *depth, *workers, since),
            Self::Queued { since } => write!(f, "queued for {}: a worker is free", since.span()),
            Self::Resting { until } => resting(f, until),
            Self::BackingOff { failures: 0, error, next_try } => {
                write!(f, "backing off: next attempt {}: {error}", next_try.ahead())
            }
            Self::BackingOff { failures, error, next_try } => write!(
                f,
                "backing off: failed {failures} time(s) in a row; next attempt {}: {error}",
                next_try.ahead()
            ),
            Self::GivenUp { why, error } => {
                write!(f, "not retried: {why}; reconciled again when the object changes: {error}")
            }
            Self::Done { why, again } => {
                write!(f, "done: {why}{}", in_time(again.as_ref(), "reconciled again"))
            }
            Self::Filtered { watch, predicate, event, at } => write!(
                f,
                "filtered by predicate: {predicate} dropped the last event ({event}) of the watch on {watch}, {}",
                at.ago()
            ),
            Self::NotRemembered { last, why } => write!(
                f,
                "no history: the key was never enqueued, or {last} other idle keys are more recent; {why}"
            ),
            Self::NeverSeen { why } => write!(f, "never seen: {why}"),
        }
    }
}

fn concurrency_limit(f: &mut fmt::Formatter<'_>, class: &str, limit: usize) -> fmt::Result {
    write!(
        f,
        "concurrency limit: class {class:?} runs {limit} reconciles, which is its limit (limit_concurrency)"
    )
}

fn resting(f: &mut fmt::Formatter<'_>, until: &ObservedTime) -> fmt::Result {
    write!(f, "resting: it changed during or after its last reconcile; reconciled again {}", until.ahead())
}

fn queue_saturated(
    f: &mut fmt::Formatter<'_>,
    depth: usize,
    workers: usize,
    since: &ObservedTime,
) -> fmt::Result {
    let waited = since.span();
    write!(f, "queue saturated: queued for {waited} among {depth} keys; all workers ({workers}) are busy")
}

fn taking_over(f: &mut fmt::Formatter<'_>, lease: &str) -> fmt::Result {
    write!(
        f,
        "taking over: this replica holds {lease} and waits until its caches reflect the writes of the previous holder"
    )
}

fn quarantined(f: &mut fmt::Formatter<'_>, panics: u32, message: &str, since: &ObservedTime) -> fmt::Result {
    let ago = since.ago();
    write!(
        f,
        "quarantined key: its reconcile panicked {panics} times in a row, last {ago}: {message}; reconciled \
         again when the object changes"
    )
}

fn lease_elsewhere(f: &mut fmt::Formatter<'_>, lease: &str, holder: Option<&str>) -> fmt::Result {
    match holder {
        Some(holder) => write!(f, "lease elsewhere: {lease} is held by {holder}; query that replica"),
        None => write!(f, "lease elsewhere: {lease} has no known holder; this replica is on standby for it"),
    }
}

fn other_shard(f: &mut fmt::Formatter<'_>, shard: u16, holder: Option<&str>) -> fmt::Result {
    match holder {
        Some(holder) => {
            write!(f, "other shard: shard {shard} is held by {holder}; query that replica")
        }
        None => write!(f, "other shard: shard {shard} has no known holder"),
    }
}

fn in_time(at: Option<&ObservedTime>, what: &str) -> String {
    at.map(|at| format!("; {what} {}", at.ahead())).unwrap_or_default()
}

impl ObservedTime {
    /// Returns the time between this point and the query.
    fn span(&self) -> String {
        brief(-self.seconds_from_now)
    }

    fn ago(&self) -> String {
        format!("{} ago", self.span())
    }

    fn ahead(&self) -> String {
        if self.seconds_from_now > 0.0 {
            format!("in {}", brief(self.seconds_from_now))
        } else {
            "now".to_owned()
        }
    }
}
