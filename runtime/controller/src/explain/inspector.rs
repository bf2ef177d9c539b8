//! Inspection of one controller, before, during and after its run.

use std::fmt;
use std::sync::Arc;

use windlass_env::catch_panic_sync;
use windlass_informer::KindAvailability;
use windlass_object::{ObjectKey, ResourceKind};
use windlass_sharding::Ownership;

use crate::consistency::caches::{Cache, check_synced};
use crate::core::Core;
use crate::core::lifecycle::{ControllerPhase, LeaseStatus};
use crate::descriptor::Descriptor;
use crate::enqueue::history::{AttemptEnd, EnqueueReason, LastEvent, Record};
use crate::enqueue::keys::Keys;
use crate::enqueue::limits::CLASS_FULL;
use crate::enqueue::pause::PauseAnnotation;
use crate::explain::diagnosis::{DiagnosisInput, UndecodableMatch};
use crate::explain::observed_time::CurrentTime;
use crate::explain::overview::{ControllerOverview, ControllerState, FailingKey, WaitingKey};
use crate::explain::{
    CachedObject, ExplainedUndecodable, Explanation, LastError, LastRun, Queued, SeenObject,
};

/// The maximum number of keys per category in an overview.
const MAX_LISTED_KEYS: usize = 20;

/// Read access to the state of one controller. Clones share the state. An idle inspector causes no load.
#[derive(Clone)]
pub struct ControllerInspector {
    core: Arc<Core>,
}

impl ControllerInspector {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Returns the names of the controller.
    pub fn descriptor(&self) -> Descriptor {
        self.core.descriptor
    }

    /// Sets the phase of the controller before its start, for example while the replica is on standby. The controller
    /// sets the later phases.
    pub fn set_phase(&self, phase: ControllerPhase) {
        self.core.phase.set(phase);
    }

    /// Explains why `key` has not been reconciled, or the outcome of its last reconcile.
    pub fn explain(&self, key: &ObjectKey) -> Explanation {
        let diagnosis_input = diagnosis_input(&self.core, key);
        let situation = diagnosis_input.situation();
        let DiagnosisInput {
            now,
            record,
            key_status: whereabouts,
            failures,
            cached,
            undecodable: undecoded,
            ..
        } = diagnosis_input;
        let record = record.unwrap_or_default();
        let next_try = whereabouts.delayed.map(|due| now.observed(due.at));
        let priority = whereabouts.queued.map(|waiting| waiting.priority.0);
        let queued_at = whereabouts.queued.map(|waiting| waiting.since).or(record.queued_at);
        Explanation {
            controller: self.core.descriptor.name.to_owned(),
            key: key.to_string(),
            cause: on_one_line(&situation.to_string()),
            situation,
            asked: now.observed(now.instant),
            seen: record
                .seen
                .as_ref()
                .filter(|seen| seen.at.is_some())
                .map(|seen| seen_object(seen, key, now)),
            cached,
            undecoded: undecoded.into_iter().map(undecoded_object).collect(),
            queued: queued_at.map(|since| Queued {
                since: now.observed(since),
                asked_by: record.reason.unwrap_or(EnqueueReason::Controller).as_str().to_owned(),
                priority,
            }),
            last_run: last_run(&record, now),
            runs: record.runs,
            failures,
            last_error: record.failure.map(|failure| LastError {
                at: now.observed(failure.at),
                message: failure.message,
                denial: failure.missing_rule,
            }),
            next_try,
        }
    }

    /// Returns the overview of the controller.
    pub fn overview(&self) -> ControllerOverview {
        let Core { descriptor, env, activity, policy, .. } = &*self.core;
        let Keys { queue, history, quarantine, .. } = &self.core.keys;
        let (now, busy) = (CurrentTime::of(env), activity.busy());
        let running = busy.iter().map(|busy| waiting_key(&busy.key, now.observed(busy.since)));
        let (failing, first_failed) = history.first_failed(MAX_LISTED_KEYS);
        let oldest = history.longest_waiting(MAX_LISTED_KEYS);
        let named = first_failed.into_iter().map(|(key, error)| FailingKey {
            key: key.to_string(),
            failures: queue.attempts(&key),
            error,
            next_try: queue.key_status(&key).delayed.map(|due| now.observed(due.at)),
        });
        ControllerOverview {
            name: descriptor.name.to_owned(),
            aliases: descriptor.aliases.iter().map(|&alias| alias.to_owned()).collect(),
            state: state(&self.core),
            depth: queue.len(),
            workers: policy.workers,
            busy: busy.len(),
            failing,
            quarantined: quarantine.quarantined().iter().map(|resting| resting.key.to_string()).collect(),
            remembered: history.len(),
            running: running.collect(),
            failing_keys: named.collect(),
            oldest_keys: oldest.iter().map(|(key, since)| waiting_key(key, now.observed(*since))).collect(),
        }
    }
}

fn state(core: &Core) -> ControllerState {
    let lacking = check_synced(&core.expected()).err().map(|behind| behind.to_string());
    match (core.phase.get(), lacking) {
        (ControllerPhase::NotStarted, Some(lacking)) => ControllerState::WaitingForCaches { lacking },
        (ControllerPhase::NotStarted, None) => ControllerState::NotStarted,
        (ControllerPhase::Standby { lease, lease_status: held }, lacking) => match (held(), lacking) {
            (LeaseStatus::Unknown, Some(lacking)) => ControllerState::WaitingForCaches { lacking },
            (LeaseStatus::Unknown, None) => ControllerState::StandingBy { lease, holder: None },
            (LeaseStatus::HeldByOther(holder), _) => {
                ControllerState::StandingBy { lease, holder: Some(holder) }
            }
            (LeaseStatus::Held, _) => ControllerState::TakingOver { lease },
            (LeaseStatus::Lost, _) => ControllerState::Draining,
        },
        (ControllerPhase::WaitingForCaches, lacking) => {
            ControllerState::WaitingForCaches { lacking: lacking.unwrap_or_default() }
        }
        (ControllerPhase::Working, _) => ControllerState::Working,
        (ControllerPhase::Draining, _) => ControllerState::Draining,
    }
}

fn diagnosis_input(core: &Core, key: &ObjectKey) -> DiagnosisInput {
    let (keys, busy, caches) = (&core.keys, core.activity.busy(), all_caches(core));
    let taken = busy.iter().find(|busy| busy.key == *key).map(|busy| busy.since);
    DiagnosisInput {
        now: CurrentTime::of(&core.env),
        phase: core.phase.get(),
        unsynced: check_synced(&core.expected()).err().map(|behind| behind.unsynced).unwrap_or_default(),
        polls: if core.phase.has_begun() { core.polls.unanswered() } else { Vec::new() },
        unavailable_kind: unavailable_kind(core),
        interrupted: outdated_caches(core),
        ownership: ownership(core, key),
        undecodable: undecoded(core, &caches, key),
        quarantined: keys.quarantine.quarantined().into_iter().find(|resting| resting.key == *key),
        annotation: PauseAnnotation::of(&keys.pauses, key),
        dequeued_at: taken,
        own_write: {
            let tracker = core.barrier.tracker.lock();
            if taken.is_some() { tracker.pending(key) } else { tracker.awaited_resource(key) }
        },
        full_class: full_class(keys, key),
        key_status: keys.queue.key_status(key),
        depth: keys.queue.len(),
        workers: core.policy.workers,
        busy: busy.len(),
        failures: keys.queue.attempts(key),
        record: keys.history.of(key),
        eviction_limit: keys.history.eviction_limit(),
        filtered: keys.history.last_filtered(key),
        cached: caches.iter().filter_map(|cache| cached(cache, key)).collect(),
        excluded_by: excluded_by(&caches, key),
    }
}

/// Returns the class for which the key is parked, and its concurrency limit.
fn full_class(keys: &Keys, key: &ObjectKey) -> Option<(String, usize)> {
    let is_full = keys.queue.is_parked(key, CLASS_FULL);
    keys.limits.iter().filter(|_| is_full).find_map(|limit| limit.waiting_class(key))
}

/// Returns the undecodable objects with the name of the key; objects of the primary kinds come first.
fn undecoded(core: &Core, caches: &[Cache], key: &ObjectKey) -> Vec<UndecodableMatch> {
    let of = |cache: &Cache| {
        let (kind, what) = (cache.kind().clone(), cache.undecodable().get(key)?.clone());
        Some(UndecodableMatch {
            is_own: core.handler_context.primary.0.iter().any(|primary| *primary.kind() == kind),
            kind,
            object: what,
        })
    };
    let mut undecoded: Vec<UndecodableMatch> = caches.iter().filter_map(of).collect();
    undecoded.sort_by_key(|object| !object.is_own);
    undecoded
}

/// Returns the first required kind whose watch cannot run, although its cache is synced.
fn unavailable_kind(core: &Core) -> Option<(ResourceKind, KindAvailability)> {
    let barred = core.start_caches.iter().map(|cache| (cache.kind().clone(), cache.availability()));
    let mut barred =
        barred.filter(|(_, it)| matches!(it, KindAvailability::Absent | KindAvailability::Forbidden(_)));
    barred.next()
}

/// Returns the synced caches that might miss changes, with the reason.
fn outdated_caches(core: &Core) -> Vec<String> {
    let synced = core.expected().into_iter().filter(|cache| cache.has_synced());
    let describe = |cache: Cache| {
        let (kind, selection, trouble) = (cache.kind(), cache.selection(), cache.staleness_reason()?);
        Some(format!("{kind} ({selection}) may have changed since: {trouble}"))
    };
    synced.filter_map(describe).collect()
}

/// Returns all caches without duplicates: declared at setup, added at run time, and fed by other sources.
fn all_caches(core: &Core) -> Vec<Cache> {
    let mut all = core.start_caches.clone();
    for cache in core.barrier.caches.all() {
        let known = |one: &Cache| one.kind() == cache.kind() && one.selection() == cache.selection();
        if !all.iter().any(known) {
            all.push(cache);
        }
    }
    all
}

/// Returns the ownership of a key, if the controller has started. If the check panics, the history contains the panic.
fn ownership(core: &Core, key: &ObjectKey) -> Ownership {
    match core.phase.get() {
        ControllerPhase::Working | ControllerPhase::Draining => {
            catch_panic_sync(|| core.keys.ownership.ownership(key)).unwrap_or(Ownership::Owned(None))
        }
        ControllerPhase::NotStarted | ControllerPhase::Standby { .. } | ControllerPhase::WaitingForCaches => {
            Ownership::Owned(None)
        }
    }
}

fn undecoded_object(object: UndecodableMatch) -> ExplainedUndecodable {
    let UndecodableMatch { kind, object: what, .. } = object;
    ExplainedUndecodable {
        kind: kind.to_string(),
        version: what.version.as_ref().map(ToString::to_string),
        error: on_one_line(&what.error),
    }
}

fn cached(cache: &Cache, key: &ObjectKey) -> Option<CachedObject> {
    let (version, uid) = cache.version_and_uid(key)?;
    Some(CachedObject { kind: cache.kind().to_string(), version, uid })
}

/// Returns the selections that exclude the key, if every cache excludes it.
fn excluded_by(caches: &[Cache], key: &ObjectKey) -> Option<String> {
    let mut why: Vec<String> =
        caches.iter().map(|cache| cache.exclusion_reason(key)).collect::<Option<_>>()?;
    why.dedup();
    (!why.is_empty()).then(|| why.join("; "))
}

fn seen_object(seen: &LastEvent, key: &ObjectKey, now: CurrentTime) -> SeenObject {
    SeenObject {
        watch: seen.watch.as_deref().unwrap_or_default().to_owned(),
        object: seen.object(key).to_string(),
        event: seen.info.change.as_str().to_owned(),
        cause: seen.info.cause().to_owned(),
        version: seen.version.as_ref().map(ToString::to_string),
        uid: seen.uid.as_ref().map(ToString::to_string),
        at: seen.at.map(|at| now.observed(at)),
    }
}

fn last_run(record: &Record, now: CurrentTime) -> Option<LastRun> {
    let started = record.started?;
    let ended = record.ended.filter(|ended| !record.running && *ended >= started);
    let outcome = record.end.as_ref().filter(|_| ended.is_some()).map(|end| outcome(end).to_owned());
    let seconds = (ended.unwrap_or(now.instant) - started).as_secs_f64();
    Some(LastRun {
        started: now.observed(started),
        ended: ended.map(|at| now.observed(at)),
        seconds,
        outcome,
    })
}

fn outcome(end: &AttemptEnd) -> &'static str {
    match end {
        AttemptEnd::Done => "done",
        AttemptEnd::Requeued => "requested a requeue",
        AttemptEnd::Paused(_) => "paused",
        AttemptEnd::NotYet(_) => "not yet",
        AttemptEnd::Annotated(_) => "not reconciled: paused",
        AttemptEnd::Withheld => "not reconciled: its object could not be decoded",
        AttemptEnd::Failed => "failed",
        AttemptEnd::Terminal => "failed with a terminal error",
        AttemptEnd::GivenUp => "failed; retry limit reached",
        AttemptEnd::Panicked => "panicked",
        AttemptEnd::Quarantined => "panicked too often",
        AttemptEnd::WorkerPanicked => "not reconciled: the worker panicked outside the reconcile",
    }
}

fn waiting_key(key: &ObjectKey, since: crate::explain::ObservedTime) -> WaitingKey {
    WaitingKey { key: key.to_string(), since }
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Debug for ControllerInspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerInspector")
            .field("controller", &self.core.descriptor.name)
            .field("state", &state(&self.core))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ControllerPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotStarted => "NotStarted",
            Self::Standby { .. } => "StandingBy",
            Self::WaitingForCaches => "WaitingForCaches",
            Self::Working => "Working",
            Self::Draining => "Draining",
        })
    }
}
