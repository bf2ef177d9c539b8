//! The situations that a key can be in, each with the line that names it.

use std::fmt;

use serde::Serialize;

use crate::explain::moment::{ObservedTime, brief};

/// Why a key has not been reconciled, or what became of it. Its [`Display`](fmt::Display) is one line that begins with
/// the cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Situation {
    /// The controller is set up and has not begun to start.
    NotStarted,
    /// The process is on its way out.
    ShuttingDown,
    /// Another replica acts.
    LeaseElsewhere {
        /// The Lease.
        lease: String,
        /// Who holds it, if that is known and anybody does.
        holder: Option<String>,
    },
    /// This replica holds the lease, and its controllers are about to start.
    TakingOver {
        /// The Lease.
        lease: String,
    },
    /// A right lacks, to read or to write.
    MissingPermission {
        /// What may not be done, and the rule to add to a role.
        denial: String,
        /// When it is tried again; none for what is asked for about once a minute, as caches are.
        next_try: Option<ObservedTime>,
    },
    /// A kind that the controller needs is not served.
    KindAbsent {
        /// Which kind.
        kind: String,
    },
    /// A cache has no initial list, or nothing was done since it ceased to be followed.
    WaitingForCache {
        /// Which caches, and why.
        lacking: Vec<String>,
    },
    /// The key is in a shard that this replica does not hold.
    OtherShard {
        /// Which shard.
        shard: u16,
        /// Who holds it, if that is known.
        holder: Option<String>,
    },
    /// The key's namespace, or what the watches select, leaves it out.
    NotSelected {
        /// What leaves it out.
        by: String,
    },
    /// The object is there and cannot be decoded.
    Undecodable {
        /// Of which kind it is.
        kind: String,
        /// Its version, if that can be read.
        version: Option<String>,
        /// Why it cannot be decoded.
        error: String,
    },
    /// The key rests until its next change, because its reconcile panicked too often.
    Quarantined {
        /// How often in a row.
        panics: u32,
        /// What the last panic said.
        message: String,
        /// When that was.
        since: ObservedTime,
    },
    /// The key is paused.
    Paused {
        /// By what.
        by: String,
    },
    /// The last reconcile found that something else has to happen first.
    NotYet {
        /// What has to happen.
        reason: String,
        /// When the key is reconciled again.
        next_try: ObservedTime,
    },
    /// A worker reconciles the key.
    Running {
        /// Since when.
        since: ObservedTime,
    },
    /// The caches do not show yet what the key's last reconcile wrote.
    WaitingForOwnWrite {
        /// Of which resource.
        resource: String,
    },
    /// As many keys of its class are reconciled as may be.
    AtMost {
        /// The class.
        class: String,
        /// How many may.
        limit: usize,
    },
    /// The key waits, and every worker is busy.
    QueueSaturated {
        /// How many keys wait, this one included.
        depth: usize,
        /// How many workers there are.
        workers: usize,
        /// Since when it waits.
        since: ObservedTime,
    },
    /// The key waits, and a worker is free.
    Queued {
        /// Since when.
        since: ObservedTime,
    },
    /// The key failed and waits for its next try.
    BackingOff {
        /// How often it failed in a row; none if it did not come to its reconcile.
        failures: u32,
        /// What the last failure said.
        error: String,
        /// When it is tried again.
        next_try: ObservedTime,
    },
    /// The key failed for good, or too often, and waits for its next change.
    GivenUp {
        /// Why it is not tried again.
        why: String,
        /// What the last failure said.
        error: String,
    },
    /// The last reconcile succeeded.
    Done {
        /// Why there was nothing more to do.
        why: String,
        /// When it is looked at again, if it is.
        again: Option<ObservedTime>,
    },
    /// A predicate keeps the object's events from the watch that would queue the key.
    Filtered {
        /// The watch.
        watch: String,
        /// The predicate's name.
        predicate: String,
        /// What the event was: `updated, told by watch`.
        event: String,
        /// When the last one was kept back.
        at: ObservedTime,
    },
    /// Nothing is remembered of the key, and some that nothing was the matter with were forgotten.
    NotRemembered {
        /// How many of those are remembered.
        last: usize,
        /// What is known of an object of that name.
        why: String,
    },
    /// Nothing asked for the key.
    NeverSeen {
        /// What is known of an object of that name.
        why: String,
    },
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => {
                f.write_str("not started: the process has not begun to start this controller")
            }
            Self::ShuttingDown => f.write_str("shutting down: no key is taken any more"),
            Self::LeaseElsewhere { lease, holder } => lease_elsewhere(f, lease, holder.as_deref()),
            Self::TakingOver { lease } => taking_over(f, lease),
            Self::MissingPermission { denial, next_try } => {
                write!(f, "missing permission: {denial}{}", in_time(next_try.as_ref(), "tried again"))
            }
            Self::KindAbsent { kind } => {
                write!(f, "kind absent: {kind} is not served; install its definition, in this version")
            }
            Self::WaitingForCache { lacking } => write!(f, "waiting for cache: {}", lacking.join("; ")),
            Self::OtherShard { shard, holder } => other_shard(f, *shard, holder.as_deref()),
            Self::NotSelected { by } => write!(f, "not selected: {by}"),
            Self::Undecodable { kind, version, error } => {
                let version = version.as_ref().map(|it| format!(" at version {it}")).unwrap_or_default();
                write!(f, "quarantined object: {kind}{version} cannot be decoded: {error}")
            }
            Self::Quarantined { panics, message, since } => quarantined(f, *panics, message, since),
            Self::Paused { by } => write!(f, "paused: {by}"),
            Self::NotYet { reason, next_try } => {
                write!(f, "not yet: {reason}; reconciled again {}", next_try.ahead())
            }
            Self::Running { since } => write!(f, "running: a worker has reconciled it for {}", since.span()),
            Self::WaitingForOwnWrite { resource } => {
                write!(f, "waiting for its own write: the cache of {resource} does not show it yet")
            }
            Self::AtMost { class, limit } => {
                write!(
                    f,
                    "limited by at_most: {limit} of class {class:?} are reconciled, which is as many as may"
                )
            }
            Self::QueueSaturated { depth, workers, since } => {
                let waited = since.span();
                write!(
                    f,
                    "queue saturated: one of {depth} keys that wait for {workers} busy worker(s), for {waited}"
                )
            }
            Self::Queued { since } => {
                write!(f, "queued: a free worker is about to take it, for {}", since.span())
            }
            Self::BackingOff { failures: 0, error, next_try } => {
                write!(f, "backing off: tried again {}: {error}", next_try.ahead())
            }
            Self::BackingOff { failures, error, next_try } => write!(
                f,
                "backing off: failed {failures} time(s) in a row, tried again {}: {error}",
                next_try.ahead()
            ),
            Self::GivenUp { why, error } => write!(f, "given up: {why}, until its next change: {error}"),
            Self::Done { why, again } => {
                write!(f, "done: {why}{}", in_time(again.as_ref(), "looked at again"))
            }
            Self::Filtered { watch, predicate, event, at } => write!(
                f,
                "filtered by predicate: {predicate} kept its last event ({event}) from the watch on {watch}, {}",
                at.ago()
            ),
            Self::NotRemembered { last, why } => write!(
                f,
                "not remembered: idle for longer than the last {last} keys, or never asked for; {why}"
            ),
            Self::NeverSeen { why } => write!(f, "never seen: {why}"),
        }
    }
}

fn taking_over(f: &mut fmt::Formatter<'_>, lease: &str) -> fmt::Result {
    write!(f, "taking over: {lease} is held here, and caches catch up with what its last holder wrote")
}

fn quarantined(f: &mut fmt::Formatter<'_>, panics: u32, message: &str, since: &ObservedTime) -> fmt::Result {
    let ago = since.ago();
    write!(
        f,
        "quarantined key: its reconcile panicked {panics} times in a row, last {ago}: {message}; it rests until its \
         next change"
    )
}

fn lease_elsewhere(f: &mut fmt::Formatter<'_>, lease: &str, holder: Option<&str>) -> fmt::Result {
    match holder {
        Some(holder) => write!(f, "lease elsewhere: {lease} is held by {holder}; ask that replica"),
        None => write!(f, "lease elsewhere: nobody is known to hold {lease}; this replica stands by for it"),
    }
}

fn other_shard(f: &mut fmt::Formatter<'_>, shard: u16, holder: Option<&str>) -> fmt::Result {
    match holder {
        Some(holder) => {
            write!(f, "filtered out by shard: shard {shard} is held by {holder}; ask that replica")
        }
        None => write!(f, "filtered out by shard: shard {shard} is held by nobody that is known here"),
    }
}

fn in_time(at: Option<&ObservedTime>, what: &str) -> String {
    at.map(|at| format!("; {what} {}", at.ahead())).unwrap_or_default()
}

impl ObservedTime {
    /// How long ago it was when it was asked about.
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
