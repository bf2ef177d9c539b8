//! Inspection of one controller, before, during and after its run.

use std::fmt;
use std::sync::Arc;

use windlass_env::catch_panic_sync;
use windlass_informer::KindAvailability;
use windlass_object::{ObjectKey, ResourceKind};
use windlass_sharding::Ownership;

use crate::consistency::caches::{Cache, behind};
use crate::core::Core;
use crate::core::standing::{ControllerPhase, LeaseStatus};
use crate::descriptor::Descriptor;
use crate::enqueue::history::{AttemptEnd, EnqueueReason, LastSeen, Record};
use crate::enqueue::keys::Keys;
use crate::enqueue::limits::CLASS_FULL;
use crate::enqueue::pause::PauseAnnotation;
use crate::explain::diagnosis::{DiagnosisInput, UndecodableMatch};
use crate::explain::moment::CurrentTime;
use crate::explain::overview::{ControllerOverview, ControllerState, FailingKey, WaitingKey};
use crate::explain::{CachedObject, Explanation, LastError, LastRun, Queued, SeenObject, UndecodedObject};

/// The maximum number of keys per category in an overview.
const NAMED: usize = 20;

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
    pub fn set_phase(&self, standing: ControllerPhase) {
        self.core.phase.stand(standing);
    }

    /// Explains why `key` has not been reconciled, or the outcome of its last reconcile.
    pub fn explain(&self, key: &ObjectKey) -> Explanation {
        let diagnosis_input = diagnosis_input(&self.core, key);
        let situation = diagnosis_input.situation();
        let DiagnosisInput { now, record, whereabouts, failures, cached, undecoded, .. } = diagnosis_input;
        let record = record.unwrap_or_default();
        let next_try = whereabouts.due.map(|due| now.moment(due.at));
        let priority = whereabouts.waiting.map(|waiting| waiting.priority.0);
        let queued_at = whereabouts.waiting.map(|waiting| waiting.since).or(record.queued_at);
        Explanation {
            controller: self.core.descriptor.name.to_owned(),
            key: key.to_string(),
            cause: on_one_line(&situation.to_string()),
            situation,
            asked: now.moment(now.instant),
            seen: record
                .seen
                .as_ref()
                .filter(|seen| seen.at.is_some())
                .map(|seen| seen_object(seen, key, now)),
            cached,
            undecoded: undecoded.into_iter().map(undecoded_object).collect(),
            queued: queued_at.map(|since| Queued {
                since: now.moment(since),
                asked_by: asked_by(record.asked_by).to_owned(),
                priority,
            }),
            last_run: last_run(&record, now),
            runs: record.runs,
            failures,
            last_error: record.failure.map(|failure| LastError {
                at: now.moment(failure.at),
                message: failure.message,
                denial: failure.lacking,
            }),
            next_try,
        }
    }

    /// Returns the overview of the controller.
    pub fn overview(&self) -> ControllerOverview {
        let Core { descriptor, env, activity, policy, .. } = &*self.core;
        let Keys { queue, history, quarantine, .. } = &self.core.keys;
        let (now, busy) = (CurrentTime::of(env), activity.busy());
        let running = busy.iter().map(|busy| waiting_key(&busy.key, now.moment(busy.since)));
        let (failing, first_failing) = history.first_failing(NAMED);
        let oldest = history.oldest(NAMED);
        let named = first_failing.into_iter().map(|(key, error)| FailingKey {
            key: key.to_string(),
            failures: queue.attempts(&key),
            error,
            next_try: queue.key_status(&key).due.map(|due| now.moment(due.at)),
        });
        ControllerOverview {
            name: descriptor.name.to_owned(),
            aliases: descriptor.aliases.iter().map(|&alias| alias.to_owned()).collect(),
            state: state(&self.core),
            depth: queue.len(),
            workers: policy.workers,
            busy: busy.len(),
            failing,
            quarantined: quarantine.resting().iter().map(|resting| resting.key.to_string()).collect(),
            remembered: history.len(),
            running: running.collect(),
            failing_keys: named.collect(),
            oldest_keys: oldest.iter().map(|(key, since)| waiting_key(key, now.moment(*since))).collect(),
        }
    }
}

fn state(core: &Core) -> ControllerState {
    let lacking = behind(&core.expected()).err().map(|behind| behind.to_string());
    match (core.phase.standing(), lacking) {
        (ControllerPhase::NotStarted, Some(lacking)) => ControllerState::WaitingForCaches { lacking },
        (ControllerPhase::NotStarted, None) => ControllerState::NotStarted,
        (ControllerPhase::StandingBy { lease, held }, lacking) => match (held(), lacking) {
            (LeaseStatus::Nowhere, Some(lacking)) => ControllerState::WaitingForCaches { lacking },
            (LeaseStatus::Nowhere, None) => ControllerState::StandingBy { lease, holder: None },
            (LeaseStatus::Elsewhere(holder), _) => {
                ControllerState::StandingBy { lease, holder: Some(holder) }
            }
            (LeaseStatus::Here, _) => ControllerState::TakingOver { lease },
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
        standing: core.phase.standing(),
        laggards: behind(&core.expected()).err().map(|behind| behind.laggards).unwrap_or_default(),
        polls: if core.phase.has_begun() { core.polls.lacking() } else { Vec::new() },
        barred: barred(core),
        behind: outdated_caches(core),
        ownership: ownership(core, key),
        undecoded: undecoded(core, &caches, key),
        resting: keys.quarantine.resting().into_iter().find(|resting| resting.key == *key),
        annotation: PauseAnnotation::of(&keys.pauses, key),
        taken,
        own_write: {
            let ledger = core.gate.ledger.lock();
            if taken.is_some() { ledger.pending(key) } else { ledger.held_up_by(key) }
        },
        full_class: full_class(keys, key),
        whereabouts: keys.queue.key_status(key),
        depth: keys.queue.len(),
        workers: core.policy.workers,
        busy: busy.len(),
        failures: keys.queue.attempts(key),
        record: keys.history.of(key),
        forgets_beyond: keys.history.forgets_beyond(),
        refused: keys.history.refusal(key),
        cached: caches.iter().filter_map(|cache| cached(cache, key)).collect(),
        left_out: left_out(&caches, key),
    }
}

/// Returns the class for which the key is parked, and its concurrency limit.
fn full_class(keys: &Keys, key: &ObjectKey) -> Option<(String, usize)> {
    let is_full = keys.queue.is_parked(key, CLASS_FULL);
    keys.limits.iter().filter(|_| is_full).find_map(|limit| limit.claim(key))
}

/// Returns the undecodable objects with the name of the key; objects of the primary kinds come first.
fn undecoded(core: &Core, caches: &[Cache], key: &ObjectKey) -> Vec<UndecodableMatch> {
    let of = |cache: &Cache| {
        let (kind, what) = (cache.kind().clone(), cache.undecodable().get(key)?.clone());
        Some(UndecodableMatch { is_own: core.wiring.own.0.iter().any(|own| *own.kind() == kind), kind, what })
    };
    let mut undecoded: Vec<UndecodableMatch> = caches.iter().filter_map(of).collect();
    undecoded.sort_by_key(|object| !object.is_own);
    undecoded
}

/// Returns the first required kind whose watch cannot run, although its cache is synced.
fn barred(core: &Core) -> Option<(ResourceKind, KindAvailability)> {
    let barred = core.needed.iter().map(|cache| (cache.kind().clone(), cache.presence()));
    let mut barred =
        barred.filter(|(_, it)| matches!(it, KindAvailability::Absent | KindAvailability::Forbidden(_)));
    barred.next()
}

/// Returns the synced caches that might miss changes, with the reason.
fn outdated_caches(core: &Core) -> Vec<String> {
    let synced = core.expected().into_iter().filter(|cache| cache.has_synced());
    let describe = |cache: Cache| {
        let (kind, selection, trouble) = (cache.kind(), cache.selection(), cache.trouble()?);
        Some(format!("{kind} ({selection}) may have changed since: {trouble}"))
    };
    synced.filter_map(describe).collect()
}

/// Returns all caches without duplicates: declared at setup, added at run time, and fed by other sources.
fn all_caches(core: &Core) -> Vec<Cache> {
    let mut all = core.needed.clone();
    for cache in core.gate.caches.all() {
        let known = |one: &Cache| one.kind() == cache.kind() && one.selection() == cache.selection();
        if !all.iter().any(known) {
            all.push(cache);
        }
    }
    all
}

/// Returns the ownership of a key, if the controller has started. If the check panics, the history contains the panic.
fn ownership(core: &Core, key: &ObjectKey) -> Ownership {
    match core.phase.standing() {
        ControllerPhase::Working | ControllerPhase::Draining => {
            catch_panic_sync(|| core.keys.ownership.ownership(key)).unwrap_or(Ownership::Owned(None))
        }
        ControllerPhase::NotStarted
        | ControllerPhase::StandingBy { .. }
        | ControllerPhase::WaitingForCaches => Ownership::Owned(None),
    }
}

fn undecoded_object(object: UndecodableMatch) -> UndecodedObject {
    let UndecodableMatch { kind, what, .. } = object;
    UndecodedObject {
        kind: kind.to_string(),
        version: what.version.as_ref().map(ToString::to_string),
        error: on_one_line(&what.error),
    }
}

fn cached(cache: &Cache, key: &ObjectKey) -> Option<CachedObject> {
    let (version, uid) = cache.held(key)?;
    Some(CachedObject { kind: cache.kind().to_string(), version, uid })
}

/// Returns the selections that exclude the key, if every cache excludes it.
fn left_out(caches: &[Cache], key: &ObjectKey) -> Option<String> {
    let mut why: Vec<String> =
        caches.iter().map(|cache| cache.exclusion_reason(key)).collect::<Option<_>>()?;
    why.dedup();
    (!why.is_empty()).then(|| why.join("; "))
}

fn seen_object(seen: &LastSeen, key: &ObjectKey, now: CurrentTime) -> SeenObject {
    SeenObject {
        watch: seen.watch.as_deref().unwrap_or_default().to_owned(),
        object: seen.object(key).to_string(),
        event: seen.told.what.as_str().to_owned(),
        cause: seen.told.cause().to_owned(),
        version: seen.version(),
        uid: seen.uid(),
        at: seen.at.map(|at| now.moment(at)),
    }
}

fn asked_by(asker: Option<EnqueueReason>) -> &'static str {
    match asker {
        Some(EnqueueReason::Event) => "event",
        Some(EnqueueReason::Handler) => "handler",
        Some(EnqueueReason::Trigger) => "trigger",
        Some(EnqueueReason::Timer) => "timer",
        Some(EnqueueReason::Poll) => "poll",
        Some(EnqueueReason::Stream) => "stream",
        Some(EnqueueReason::Reconcile) => "reconcile",
        Some(EnqueueReason::Controller) | None => "controller",
    }
}

fn last_run(record: &Record, now: CurrentTime) -> Option<LastRun> {
    let started = record.started?;
    let ended = record.ended.filter(|ended| !record.running && *ended >= started);
    let outcome = record.end.as_ref().filter(|_| ended.is_some()).map(|end| outcome(end).to_owned());
    let seconds = (ended.unwrap_or(now.instant) - started).as_secs_f64();
    Some(LastRun { started: now.moment(started), ended: ended.map(|at| now.moment(at)), seconds, outcome })
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
        AttemptEnd::GivenUp => "failed too often",
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
            Self::StandingBy { .. } => "StandingBy",
            Self::WaitingForCaches => "WaitingForCaches",
            Self::Working => "Working",
            Self::Draining => "Draining",
        })
    }
}
