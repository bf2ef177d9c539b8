//! Pure function from the observations of a key to its [`Situation`].
//!
//! Causes are checked in this order: causes that affect all keys of the controller, the current position of the key,
//! the outcome of its last reconcile, and reasons why the key was never enqueued.

use windlass_env::Instant;
use windlass_informer::{KindAvailability, UndecodableObject as Undecoded, UnsyncedInformer, UnsyncedReason};
use windlass_object::{GroupResource, ResourceKind};
use windlass_sharding::Ownership;
use windlass_workqueue::KeyStatus;

use crate::core::standing::{ControllerPhase, LeaseStatus};
use crate::enqueue::history::{AttemptEnd, Failure, FilteredEvent, Record};
use crate::enqueue::quarantine::Quarantined;
use crate::explain::CachedObject;
use crate::explain::moment::CurrentTime;
use crate::explain::situation::Situation;

/// A snapshot of the observations of one key.
pub(super) struct DiagnosisInput {
    pub(super) now: CurrentTime,
    pub(super) standing: ControllerPhase,
    /// Caches without an initial list.
    pub(super) laggards: Vec<UnsyncedInformer>,
    /// The polls that have not succeeded yet, with the reason.
    pub(super) polls: Vec<String>,
    /// A kind whose watch cannot run: it is not served, or the controller lacks the permission.
    pub(super) barred: Option<(ResourceKind, KindAvailability)>,
    /// Synced caches that might miss changes because their watch is interrupted, with the reason.
    pub(super) behind: Vec<String>,
    pub(super) ownership: Ownership,
    /// Undecodable objects with the name of the key; objects of the primary kinds come first.
    pub(super) undecoded: Vec<UndecodableMatch>,
    pub(super) resting: Option<Quarantined>,
    /// The annotation that currently pauses the key.
    pub(super) annotation: Option<&'static str>,
    /// The time at which a worker dequeued the key.
    pub(super) taken: Option<Instant>,
    /// The resource whose cache does not contain the key's last write yet.
    pub(super) own_write: Option<GroupResource>,
    /// The class for which the key is parked, and its concurrency limit.
    pub(super) full_class: Option<(String, usize)>,
    pub(super) whereabouts: KeyStatus,
    pub(super) depth: usize,
    pub(super) workers: usize,
    pub(super) busy: usize,
    pub(super) failures: u32,
    pub(super) record: Option<Record>,
    /// The capacity of the history of idle keys, if entries were evicted.
    pub(super) forgets_beyond: Option<usize>,
    pub(super) refused: Option<FilteredEvent>,
    pub(super) cached: Vec<CachedObject>,
    /// The selection or namespace that excludes the key from every cache.
    pub(super) left_out: Option<String>,
}

/// An object that cannot be decoded.
pub(super) struct UndecodableMatch {
    pub(super) kind: ResourceKind,
    pub(super) what: Undecoded,
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
        let taken = self.taken?;
        let record = self.record.as_ref().filter(|record| record.running);
        match (record, &self.own_write) {
            (None, Some(resource)) => Some(own_write(resource)),
            (record, _) => {
                let since = record.and_then(|record| record.started).unwrap_or(taken);
                Some(Situation::Running { since: self.now.moment(since) })
            }
        }
    }

    fn controller_situation(&self) -> Option<Situation> {
        match &self.standing {
            ControllerPhase::Draining => Some(Situation::ShuttingDown),
            ControllerPhase::StandingBy { lease, held } => Some(self.lease_situation(lease.clone(), held())),
            ControllerPhase::NotStarted => Some(lacking(&self.laggards).unwrap_or(Situation::NotStarted)),
            ControllerPhase::WaitingForCaches => Some(lacking(&self.laggards).unwrap_or_else(|| {
                let handlers = "handlers have not received the whole initial list".to_owned();
                let polls = self.polls.clone();
                Situation::WaitingForCache { lacking: if polls.is_empty() { vec![handlers] } else { polls } }
            })),
            ControllerPhase::Working => None,
        }
    }

    /// Returns the situation of a replica on standby, by the state of the Lease.
    fn lease_situation(&self, lease: String, held: LeaseStatus) -> Situation {
        match held {
            LeaseStatus::Elsewhere(holder) => Situation::LeaseElsewhere { lease, holder: Some(holder) },
            // The replica might not have joined the election yet, because its caches are not synced.
            LeaseStatus::Nowhere => {
                lacking(&self.laggards).unwrap_or(Situation::LeaseElsewhere { lease, holder: None })
            }
            LeaseStatus::Here => Situation::TakingOver { lease },
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
                lacking(&self.laggards).unwrap_or(Situation::WaitingForCache { lacking: vec![reason] }),
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
            self.resting.as_ref().filter(|_| self.whereabouts.waiting.is_none())?;
        let (panics, message, since) = (*panics, message.clone(), self.now.moment(*since));
        Some(Situation::Quarantined { panics, message, since })
    }

    fn queue_situation(&self) -> Option<Situation> {
        if let Some(waiting) = self.whereabouts.waiting {
            let since = self.now.moment(waiting.since);
            return Some(if self.busy < self.workers {
                Situation::Queued { since }
            } else {
                Situation::QueueSaturated { depth: self.depth, workers: self.workers, since }
            });
        }
        let due = self.whereabouts.due?;
        let next_try = self.now.moment(due.at);
        let record = self.record.as_ref()?;
        let failed = matches!(
            record.end,
            Some(AttemptEnd::Failed | AttemptEnd::Panicked | AttemptEnd::WorkerPanicked)
        );
        let failure = record.failure.as_deref().filter(|_| failed || due.is_retry)?;
        Some(match denied(failure) {
            Some(denial) => Situation::MissingPermission { denial, next_try: Some(next_try) },
            None => {
                let (failures, error) = (self.failures, failure.message.clone());
                Situation::BackingOff { failures, error, next_try }
            }
        })
    }

    /// Returns the problem of the object, or of the cache that should contain it.
    fn object_situation(&self) -> Option<Situation> {
        if let Some(own) = self.undecoded.iter().find(|object| object.is_own) {
            return Some(own.situation());
        }
        match self.barred.as_ref()? {
            (_, KindAvailability::Forbidden(denial)) => {
                Some(Situation::MissingPermission { denial: denial.to_string(), next_try: None })
            }
            (kind, KindAvailability::Absent) => Some(Situation::KindAbsent { kind: kind.to_string() }),
            (_, KindAvailability::Unknown | KindAvailability::Served) => None,
        }
    }

    fn last_outcome_situation(&self) -> Option<Situation> {
        let record = self.record.as_ref()?;
        let again = self.whereabouts.due.map(|due| self.now.moment(due.at));
        if let (Some(AttemptEnd::NotYet(reason)), Some(next_try)) = (&record.end, &again) {
            return Some(Situation::NotYet { reason: reason.to_string(), next_try: next_try.clone() });
        }
        match record.end.as_ref()? {
            AttemptEnd::Paused(reason) if again.is_none() => {
                Some(Situation::Paused { by: format!("its reconcile reported: {reason}") })
            }
            AttemptEnd::Terminal => Some(given_up(record, "the error is terminal")),
            AttemptEnd::GivenUp => Some(given_up(record, "it failed too often")),
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
        (!self.behind.is_empty()).then(|| Situation::WaitingForCache { lacking: self.behind.clone() })
    }

    fn why_done(&self, record: &Record) -> String {
        let mut why = if self.whereabouts.due.is_some() {
            "its reconcile or its controller requested a requeue".to_owned()
        } else if self.cached.is_empty() {
            "nothing left to do, and no cache holds an object of that name".to_owned()
        } else {
            "nothing to do until something changes".to_owned()
        };
        let later = |refused: &&FilteredEvent| record.ended.is_none_or(|ended| refused.at >= ended);
        if let Some(FilteredEvent { by, watch, at, .. }) = self.refused.as_ref().filter(later) {
            let at = self.now.moment(*at);
            why.push_str(&format!(
                "; predicate {by} filtered out a later event on the watch of {watch}, {at}"
            ));
        }
        why
    }

    /// Returns the situation of a key without recorded reconciles.
    fn unknown_situation(&self) -> Situation {
        if let Some(due) = self.whereabouts.due {
            let again = Some(self.now.moment(due.at));
            return Situation::Done { why: "its first reconcile is scheduled".to_owned(), again };
        }
        // The object might be unrelated to the key, but without a history it is the most likely cause.
        if let Some(object) = self.undecoded.first() {
            return object.situation();
        }
        if let Some(cut) = self.interrupted_watch_situation() {
            return cut;
        }
        if let Some(by) = &self.left_out {
            return Situation::NotSelected { by: by.clone() };
        }
        if let Some(FilteredEvent { at, watch, by, told }) = &self.refused {
            let (watch, predicate, event) = (watch.to_string(), (*by).to_owned(), told.to_string());
            return Situation::Filtered { watch, predicate, event, at: self.now.moment(*at) };
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
        match self.forgets_beyond {
            Some(last) => Situation::NotRemembered { last, why },
            None => Situation::NeverSeen { why },
        }
    }
}

impl UndecodableMatch {
    fn situation(&self) -> Situation {
        let Undecoded { version, error, .. } = &self.what;
        let (kind, version) = (self.kind.to_string(), version.as_ref().map(ToString::to_string));
        Situation::Undecodable { kind, version, error: error.to_string() }
    }
}

fn own_write(resource: &GroupResource) -> Situation {
    Situation::WaitingForOwnWrite { resource: resource.to_string() }
}

fn given_up(record: &Record, why: &str) -> Situation {
    let failure = record.failure.as_deref();
    match failure.and_then(denied) {
        Some(denial) => Situation::MissingPermission { denial, next_try: None },
        None => {
            let error = failure.map_or_else(String::new, |failure| failure.message.clone());
            Situation::GivenUp { why: why.to_owned(), error }
        }
    }
}

fn denied(failure: &Failure) -> Option<String> {
    failure.lacking.clone()
}

/// Returns the reason why caches are not synced. Permissions and CRDs come first, because an operator has to fix them.
fn lacking(laggards: &[UnsyncedInformer]) -> Option<Situation> {
    let forbidden = laggards.iter().find_map(|laggard| match &laggard.lag {
        UnsyncedReason::Forbidden(denial) => {
            Some(Situation::MissingPermission { denial: denial.to_string(), next_try: None })
        }
        _ => None,
    });
    let absent = || laggards.iter().find(|laggard| laggard.lag == UnsyncedReason::Absent);
    forbidden
        .or_else(|| absent().map(|laggard| Situation::KindAbsent { kind: laggard.kind.to_string() }))
        .or_else(|| {
            let lacking: Vec<String> = laggards.iter().map(ToString::to_string).collect();
            (!lacking.is_empty()).then_some(Situation::WaitingForCache { lacking })
        })
}
