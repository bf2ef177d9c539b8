//! Pure function from the observations of a key to its [`Situation`].
//!
//! Causes are checked in this order: causes that affect all keys of the controller, the current position of the key,
//! the outcome of its last reconcile, and reasons why the key was never enqueued.

use windlass_env::Instant;
use windlass_informer::{KindAvailability, UndecodableObject as Undecoded, UnsyncedInformer, UnsyncedReason};
use windlass_object::{GroupResource, ResourceKind};
use windlass_sharding::Ownership;
use windlass_workqueue::KeyStatus;

use crate::core::lifecycle::{ControllerPhase, LeaseStatus};
use crate::enqueue::history::{AttemptEnd, Failure, FilteredEvent, Record};
use crate::enqueue::quarantine::Quarantined;
use crate::explain::CachedObject;
use crate::explain::observed_time::CurrentTime;
use crate::explain::situation::Situation;

/// A snapshot of the observations of one key.
pub(super) struct DiagnosisInput {
    pub(super) now: CurrentTime,
    pub(super) phase: ControllerPhase,
    /// Caches without an initial list.
    pub(super) unsynced: Vec<UnsyncedInformer>,
    /// The polls that have not succeeded yet, with the reason.
    pub(super) polls: Vec<String>,
    /// A kind whose watch cannot run: it is not served, or the controller lacks the permission.
    pub(super) unavailable_kind: Option<(ResourceKind, KindAvailability)>,
    /// Synced caches that might miss changes because their watch is interrupted, with the reason.
    pub(super) interrupted: Vec<String>,
    pub(super) ownership: Ownership,
    /// Undecodable objects with the name of the key; objects of the primary kinds come first.
    pub(super) undecodable: Vec<UndecodableMatch>,
    pub(super) quarantined: Option<Quarantined>,
    /// The annotation that currently pauses the key.
    pub(super) annotation: Option<&'static str>,
    /// The time at which a worker dequeued the key.
    pub(super) dequeued_at: Option<Instant>,
    /// The resource whose cache does not contain the key's last write yet.
    pub(super) own_write: Option<GroupResource>,
    /// The class for which the key is parked, and its concurrency limit.
    pub(super) full_class: Option<(String, usize)>,
    pub(super) key_status: KeyStatus,
    pub(super) depth: usize,
    pub(super) workers: usize,
    pub(super) busy: usize,
    pub(super) failures: u32,
    pub(super) record: Option<Record>,
    /// The capacity of the history of idle keys, if entries were evicted.
    pub(super) eviction_limit: Option<usize>,
    pub(super) filtered: Option<FilteredEvent>,
    pub(super) cached: Vec<CachedObject>,
    /// The selection or namespace that excludes the key from every cache.
    pub(super) excluded_by: Option<String>,
}

/// An object that cannot be decoded.
pub(super) struct UndecodableMatch {
    pub(super) kind: ResourceKind,
    pub(super) object: Undecoded,
    /// Whether this is a primary kind of the controller.
    pub(super) is_own: bool,
}

impl DiagnosisInput {
    pub(super) fn situation(&self) -> Situation {
        self.running_situation()
            .or_else(|| self.controller_situation())
            .or_else(|| self.key_situation())
            .or_else(|| self.queue_situation())
            .or_else(|| self.object_situation())
            .or_else(|| self.last_outcome_situation())
            .unwrap_or_else(|| self.unknown_situation())
    }

    /// Returns the situation of a key that a worker has dequeued.
    fn running_situation(&self) -> Option<Situation> {
        let taken = self.dequeued_at?;
        let record = self.record.as_ref().filter(|record| record.running);
        match (record, &self.own_write) {
            (None, Some(resource)) => Some(own_write(resource)),
            (record, _) => {
                let since = record.and_then(|record| record.started).unwrap_or(taken);
                Some(Situation::Running { since: self.now.observed(since) })
            }
        }
    }

    fn controller_situation(&self) -> Option<Situation> {
        match &self.phase {
            ControllerPhase::Draining => Some(Situation::ShuttingDown),
            ControllerPhase::Standby { lease, lease_status: held } => {
                Some(self.lease_situation(lease.clone(), held()))
            }
            ControllerPhase::NotStarted => {
                Some(unsynced_situation(&self.unsynced).unwrap_or(Situation::NotStarted))
            }
            ControllerPhase::WaitingForCaches => {
                Some(unsynced_situation(&self.unsynced).unwrap_or_else(|| {
                    let handlers = "handlers have not received the whole initial list".to_owned();
                    let polls = self.polls.clone();
                    Situation::WaitingForCache {
                        lacking: if polls.is_empty() { vec![handlers] } else { polls },
                    }
                }))
            }
            ControllerPhase::Working => None,
        }
    }

    /// Returns the situation of a replica on standby, by the state of the Lease.
    fn lease_situation(&self, lease: String, held: LeaseStatus) -> Situation {
        match held {
            LeaseStatus::HeldByOther(holder) => Situation::LeaseElsewhere { lease, holder: Some(holder) },
            // The replica might not have joined the election yet, because its caches are not synced.
            LeaseStatus::Unknown => unsynced_situation(&self.unsynced)
                .unwrap_or(Situation::LeaseElsewhere { lease, holder: None }),
            LeaseStatus::Held => Situation::TakingOver { lease },
            LeaseStatus::Lost => Situation::ShuttingDown,
        }
    }

    /// Returns the condition of the key itself that prevents or delays its reconcile.
    fn key_situation(&self) -> Option<Situation> {
        if let Ownership::NotOwned { shard, holder } = &self.ownership {
            return Some(Situation::OtherShard { shard: shard.0, holder: holder.clone() });
        }
        if let Ownership::Pending { shard } = &self.ownership {
            let reason = format!("shard {shard} is being taken over");
            return Some(
                unsynced_situation(&self.unsynced)
                    .unwrap_or(Situation::WaitingForCache { lacking: vec![reason] }),
            );
        }
        if let Some(annotation) = self.annotation {
            return Some(Situation::Paused { by: format!("its object has the annotation {annotation}") });
        }
        if let Some((class, limit)) = &self.full_class {
            return Some(Situation::AtMost { class: class.clone(), limit: *limit });
        }
        if let Some(resource) = &self.own_write {
            return Some(own_write(resource));
        }
        let Quarantined { panics, message, since, .. } =
            self.quarantined.as_ref().filter(|_| self.key_status.queued.is_none())?;
        let (panics, message, since) = (*panics, message.clone(), self.now.observed(*since));
        Some(Situation::Quarantined { panics, message, since })
    }

    fn queue_situation(&self) -> Option<Situation> {
        if let Some(until) = self.key_status.resting_until {
            return Some(Situation::Resting { until: self.now.observed(until) });
        }
        if let Some(waiting) = self.key_status.queued {
            let since = self.now.observed(waiting.since);
            return Some(if self.busy < self.workers {
                Situation::Queued { since }
            } else {
                Situation::QueueSaturated { depth: self.depth, workers: self.workers, since }
            });
        }
        let due = self.key_status.delayed?;
        let next_try = self.now.observed(due.at);
        let record = self.record.as_ref()?;
        let failed = matches!(
            record.end,
            Some(AttemptEnd::Failed | AttemptEnd::Panicked | AttemptEnd::WorkerPanicked)
        );
        let failure = record.failure.as_deref().filter(|_| failed || due.is_retry)?;
        Some(match missing_rule(failure) {
            Some(denial) => Situation::MissingPermission { denial, next_try: Some(next_try) },
            None => {
                let (failures, error) = (self.failures, failure.message.clone());
                Situation::BackingOff { failures, error, next_try }
            }
        })
    }

    /// Returns the problem of the object, or of the cache that should contain it.
    fn object_situation(&self) -> Option<Situation> {
        if let Some(own) = self.undecodable.iter().find(|object| object.is_own) {
            return Some(own.situation());
        }
        match self.unavailable_kind.as_ref()? {
            (_, KindAvailability::Forbidden(denial)) => {
                Some(Situation::MissingPermission { denial: denial.to_string(), next_try: None })
            }
            (kind, KindAvailability::Absent) => Some(Situation::KindAbsent { kind: kind.to_string() }),
            (_, KindAvailability::Unknown | KindAvailability::Served) => None,
        }
    }

    fn last_outcome_situation(&self) -> Option<Situation> {
        let record = self.record.as_ref()?;
        let again = self.key_status.delayed.map(|due| self.now.observed(due.at));
        if let (Some(AttemptEnd::NotYet(reason)), Some(next_try)) = (&record.end, &again) {
            return Some(Situation::NotYet { reason: reason.to_string(), next_try: next_try.clone() });
        }
        match record.end.as_ref()? {
            AttemptEnd::Paused(reason) if again.is_none() => {
                Some(Situation::Paused { by: format!("its reconcile reported: {reason}") })
            }
            AttemptEnd::Terminal => Some(given_up(record, "the error is terminal")),
            AttemptEnd::GivenUp => Some(given_up(record, "the retry limit is reached")),
            AttemptEnd::Annotated(annotation) if again.is_none() => {
                Some(Situation::Paused { by: format!("its object had the annotation {annotation}") })
            }
            _ => Some(
                self.interrupted_watch_situation()
                    .unwrap_or_else(|| Situation::Done { why: self.why_done(record), again }),
            ),
        }
    }

    /// Reports interrupted watches: their caches might miss changes.
    fn interrupted_watch_situation(&self) -> Option<Situation> {
        (!self.interrupted.is_empty())
            .then(|| Situation::WaitingForCache { lacking: self.interrupted.clone() })
    }

    fn why_done(&self, record: &Record) -> String {
        let mut why = if self.key_status.delayed.is_some() {
            "requeue requested".to_owned()
        } else if self.cached.is_empty() {
            "nothing left to do, and no cache holds an object of that name".to_owned()
        } else {
            "nothing to do until something changes".to_owned()
        };
        let later = |refused: &&FilteredEvent| record.ended.is_none_or(|ended| refused.at >= ended);
        if let Some(FilteredEvent { by, watch, at, .. }) = self.filtered.as_ref().filter(later) {
            let at = self.now.observed(*at);
            why.push_str(&format!("; predicate {by} dropped a later event of the watch on {watch}, {at}"));
        }
        why
    }

    /// Returns the situation of a key without recorded reconciles.
    fn unknown_situation(&self) -> Situation {
        if let Some(due) = self.key_status.delayed {
            let again = Some(self.now.observed(due.at));
            return Situation::Done { why: "its first reconcile is scheduled".to_owned(), again };
        }
        // The object might be unrelated to the key, but without a history it is the most likely cause.
        if let Some(object) = self.undecodable.first() {
            return object.situation();
        }
        if let Some(cut) = self.interrupted_watch_situation() {
            return cut;
        }
        if let Some(by) = &self.excluded_by {
            return Situation::NotSelected { by: by.clone() };
        }
        if let Some(FilteredEvent { at, watch, by, info: event_info }) = &self.filtered {
            let (watch, predicate, event) = (watch.to_string(), (*by).to_owned(), event_info.to_string());
            return Situation::Filtered { watch, predicate, event, at: self.now.observed(*at) };
        }
        let kinds: Vec<&str> = self.cached.iter().map(|cached| cached.kind.as_str()).collect();
        let why = if kinds.is_empty() {
            "no cache of this controller holds an object of that name".to_owned()
        } else {
            format!(
                "an object of that name is among the cached {}, and no event enqueued its key",
                kinds.join(", ")
            )
        };
        match self.eviction_limit {
            Some(last) => Situation::NotRemembered { last, why },
            None => Situation::NeverSeen { why },
        }
    }
}

impl UndecodableMatch {
    fn situation(&self) -> Situation {
        let Undecoded { version, error, .. } = &self.object;
        let (kind, version) = (self.kind.to_string(), version.as_ref().map(ToString::to_string));
        Situation::Undecodable { kind, version, error: error.to_string() }
    }
}

fn own_write(resource: &GroupResource) -> Situation {
    Situation::WaitingForOwnWrite { resource: resource.to_string() }
}

fn given_up(record: &Record, why: &str) -> Situation {
    let failure = record.failure.as_deref();
    match failure.and_then(missing_rule) {
        Some(denial) => Situation::MissingPermission { denial, next_try: None },
        None => {
            let error = failure.map_or_else(String::new, |failure| failure.message.clone());
            Situation::GivenUp { why: why.to_owned(), error }
        }
    }
}

fn missing_rule(failure: &Failure) -> Option<String> {
    failure.missing_rule.clone()
}

/// Returns the reason why caches are not synced. Permissions and CRDs come first, because an operator has to fix them.
fn unsynced_situation(unsynced: &[UnsyncedInformer]) -> Option<Situation> {
    let forbidden = unsynced.iter().find_map(|unsynced| match &unsynced.reason {
        UnsyncedReason::Forbidden(denial) => {
            Some(Situation::MissingPermission { denial: denial.to_string(), next_try: None })
        }
        _ => None,
    });
    let absent = || unsynced.iter().find(|unsynced| unsynced.reason == UnsyncedReason::Absent);
    forbidden
        .or_else(|| absent().map(|unsynced| Situation::KindAbsent { kind: unsynced.kind.to_string() }))
        .or_else(|| {
            let lacking: Vec<String> = unsynced.iter().map(ToString::to_string).collect();
            (!lacking.is_empty()).then_some(Situation::WaitingForCache { lacking })
        })
}
