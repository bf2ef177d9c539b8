//! The worker loop: dequeues one key at a time, waits until the caches reflect the key's own writes, reconciles it, and
//! settles it.
//!
//! A key rests before its next reconcile, see [`rest_after`].
//!
//! One small function per step, in call order: `process`, `admit`, `reconcile`, `attempt`, `decide_requeue`. No
//! panic in any of them ends a worker. After the stop signal a worker waits only for its running reconcile.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture, Either};
use windlass_client::{ControllerClients, DeclaredVerbs, Fence, one_line};
use windlass_env::{Instant, catch_panic};
use windlass_events::Recorder;
use windlass_metrics::Counted;
use windlass_object::{GroupResource, ObjectKey};
use windlass_sharding::Ownership;
use windlass_workqueue::{AddOptions, Item, ParkReason, Priority};

use crate::consistency::read_your_writes::CacheFreshness;
use crate::core::Core;
use crate::core::activity::WorkerSlot;
use crate::enqueue::history::{AttemptEnd, Failure};
use crate::enqueue::keys::Keys;
use crate::enqueue::limits::{CLASS_FULL, ConcurrencyLimit};
use crate::enqueue::pause::PauseAnnotation;
use crate::enqueue::quarantine::PanicDecision;
use crate::enqueue::undecodable::UNDECODABLE;
use crate::error::{Class, FailureSeverity, LeaseLost, ReconcileError, ReconcileTimeout, retry};
use crate::run::context::{AttemptInfo, Context};
use crate::run::outcome::{Attempt, Outcome, RequeueDecision, decide_requeue};
use crate::run::reconcile::Reconcile;
use crate::run::reconcile_scope::{OpenReconcileScope, ReconcileScope};
use crate::run::spans::ReconcileSpans;

/// Delay of a key after a panic outside of its reconcile. If the limiter panics there is no backoff, and a bug does not
/// disappear within milliseconds.
const PANIC_DELAY: Duration = Duration::from_secs(5);

/// Maximum delay of a key after a missing rule was found. An added rule must take effect within a minute without a
/// restart, and the backoff of a key can have grown to 15 minutes.
const MAX_DENIAL_BACKOFF: Duration = Duration::from_secs(30);

/// A key rests for this multiple of the duration of its reconcile. A key that changes all the time then keeps a worker
/// busy for a quarter of the time, and its status is written once for many changes: with 1,000 pods of one ReplicaSet,
/// half of the CPU time and a fifth of the writes.
const REST_FACTOR: u32 = 3;

/// Maximum rest, unless the reconcile requests a longer one: users do not notice a tenth of a second, and slow
/// reconciles are rare enough without a rest.
const MAX_REST: Duration = Duration::from_millis(100);

/// The fence of a key; `None` for that of the process.
type KeyFence = Option<Arc<dyn Fence>>;

/// The end of one reconcile.
struct Reconciled {
    decision: RequeueDecision,
    /// The rest that the reconcile requested.
    minimum_rest: Duration,
}

/// One worker.
pub(crate) struct Worker {
    pub(crate) core: Arc<Core>,
    pub(crate) controller: Arc<dyn Reconcile>,
    pub(crate) number: usize,
    pub(crate) events: Recorder,
    pub(crate) clients: ControllerClients,
    pub(crate) declared: Arc<dyn DeclaredVerbs>,
}

impl Worker {
    /// Works until the stop signal.
    pub(crate) async fn run(self) {
        let slot = self.core.activity.register_worker(self.number);
        let mut next = self.unless_stopped(self.core.keys.queue.get()).await.flatten();
        while let Some(mut item) = next {
            let begun = self.core.env.now();
            match catch_panic(self.process(&item, &slot)).await {
                Ok(reconciled) => item.rest(rest_after(self.core.env.now() - begun, reconciled.as_ref())),
                Err(message) => self.requeue_after_panic(&item, &message),
            }
            // After the stop signal queued keys are not dequeued: the next leader enqueues them again.
            next = self.unless_stopped(item.get_next()).await.flatten();
        }
    }

    /// Waits for `wait`; returns `None` if the stop signal arrives first.
    async fn unless_stopped<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        match future::select(pin!(self.core.stop.cancelled()), pin!(wait)).await {
            Either::Left(((), _)) => None,
            Either::Right((output, _)) => Some(output),
        }
    }

    /// Processes a dequeued key; returns the end of its reconcile if it was reconciled.
    async fn process(&self, item: &Item<ObjectKey>, slot: &WorkerSlot<'_>) -> Option<Reconciled> {
        let (key, priority) = (item.key(), item.priority());
        let Keys { limits, queue, triggers, .. } = &self.core.keys;
        // If a permit became free in the meantime, the queue holds the key again and `park` has no effect. The key
        // still counts in its trigger: otherwise the trigger would admit a new key for each parked key, without a
        // bound.
        let Some(_permits) = ConcurrencyLimit::acquire_all(limits, queue, key, priority) else {
            item.park(CLASS_FULL);
            return None;
        };
        triggers.iter().for_each(|trigger| trigger.on_dequeued(key));
        let _busy = slot.mark_busy(key, self.core.env.now());
        let _active = Counted::new(&self.core.metrics.active_workers);
        match self.wait_until_fresh(item).await {
            Some((fence, CacheFreshness::Fresh)) => Some(self.reconcile(key, priority, fence).await),
            Some((_, CacheFreshness::Stale { resource, again_after })) => {
                self.skip(key, &resource, AddOptions::after(again_after).priority(priority));
                None
            }
            // Handled like a queued key: the next leader enqueues it, or already has it.
            None => None,
        }
    }

    /// Waits for the caches while the key is to be reconciled here; returns its fence.
    async fn wait_until_fresh(&self, item: &Item<ObjectKey>) -> Option<(KeyFence, CacheFreshness)> {
        let mut passed = pin!(self.unless_stopped(self.core.barrier.wait_until_fresh(item.key())));
        let fence = self.check_ownership(item)?;
        if let Some(passed) = passed.as_mut().now_or_never() {
            return Some((fence, passed?));
        }
        loop {
            let mut gone = pin!(self.core.keys.ownership_lost.notified());
            // The ownership changes before the notification, so this subscribes before the check.
            gone.as_mut().enable();
            self.check_ownership(item)?;
            if let Either::Left((passed, _)) = future::select(passed.as_mut(), gone).await {
                // Admitted again after the wait, because the key might have another fence by now.
                return Some((self.check_ownership(item)?, passed?));
            }
        }
    }

    /// Returns the fence of the key if it is to be reconciled here and now. Otherwise it parks or drops the key.
    fn check_ownership(&self, item: &Item<ObjectKey>) -> Option<KeyFence> {
        let (name, keys, key) = (self.core.name(), &self.core.keys, item.key());
        let Keys { ownership, pauses, undecodable, history, queue, .. } = keys;
        let fence = match ownership.ownership(key) {
            Ownership::Owned(fence) => fence,
            Ownership::Pending { .. } => {
                keys.park_pending(item);
                return None;
            }
            Ownership::NotOwned { shard, .. } => {
                tracing::debug!(controller = name, %key, %shard, "not reconciled: another replica owns the key");
                queue.forget(key);
                history.remove(key);
                return None;
            }
        };
        if let Some(annotation) = PauseAnnotation::of(pauses, key) {
            tracing::debug!(controller = name, %key, annotation, "not reconciled: paused");
            queue.forget(key);
            history.record_paused(key, annotation);
            keys.park(item, ParkReason(annotation), || PauseAnnotation::of(pauses, key) == Some(annotation));
            return None;
        }
        if let Some(error) = undecodable.error(key) {
            queue.forget(key);
            if history.record_withheld(key) {
                tracing::warn!(controller = name, %key, %error, "reconcile withheld: object cannot be decoded");
            }
            keys.park(item, UNDECODABLE, || undecodable.error(key).is_some());
            return None;
        }
        Some(fence)
    }

    /// Handles a panic outside of the reconcile, such as a panic in a custom limiter. The key is requeued with its
    /// priority after a fixed delay, without calling the limiter.
    fn requeue_after_panic(&self, item: &Item<ObjectKey>, message: &str) {
        let key = item.key();
        self.core.metrics.panics.inc();
        tracing::error!(controller = self.core.name(), %key, message, "worker panicked outside reconcile; requeueing");
        self.core.keys.history.record_worker_panic(key, message);
        self.core.keys.queue.add_with(key.clone(), AddOptions::after(PANIC_DELAY).priority(item.priority()));
    }

    /// Requeues a key whose cache does not reflect its last write yet. This is not a failure, so the key's backoff,
    /// which can be minutes, does not apply.
    fn skip(&self, key: &ObjectKey, resource: &GroupResource, again: AddOptions) {
        self.core.stale_skips.count(resource);
        tracing::debug!(controller = self.core.name(), %key, "skipped: the cache is older than the key's last write");
        self.core.keys.history.record_postponed(key);
        self.core.keys.queue.add_with(key.clone(), again);
    }

    async fn reconcile(&self, key: &ObjectKey, priority: Priority, fence: KeyFence) -> Reconciled {
        let failures = self.core.keys.queue.attempts(key);
        let spans = ReconcileSpans::open(&self.core, key, failures);
        let attempt_info = AttemptInfo { attempts: failures, priority, spans: spans.clone() };
        let scope = self.open_scope(key, fence.clone());
        let reconcile_scope = scope.scope();
        let (attempt, ended) = self.attempt(key, attempt_info, fence, scope).await;
        let decision = decide_requeue(&attempt, failures, self.core.policy.max_retries);
        spans.in_scope(|| self.log_attempt(&attempt, decision, failures));
        spans.record_result(&attempt);
        self.count_attempt(&attempt);
        self.record_attempt(key, &attempt, decision, ended);
        self.requeue(key, decision, priority);
        Reconciled { decision, minimum_rest: reconcile_scope.minimum_rest() }
    }

    /// Reconciles the key; returns the result and the time.
    async fn attempt(
        &self,
        key: &ObjectKey,
        attempt_info: AttemptInfo,
        fence: KeyFence,
        scope: OpenReconcileScope,
    ) -> (Attempt, Instant) {
        let Core { env, keys, .. } = &*self.core;
        let Keys { quarantine, history, .. } = keys;
        let spans = attempt_info.spans.clone();
        let lost = fence.map(|fence| fence.closed());
        let context = Context::new(scope.scope(), Arc::clone(&self.core), self.events.clone(), attempt_info);
        let begun = env.now();
        history.record_start(key, begun);
        // Inside an async block, so that a panic before the first await is caught as well.
        let reconcile = async {
            let returned = self.controller.reconcile(key, &context).await;
            scope.scope().tasks().ended().await;
            returned
        };
        let reconcile = self.with_timeout(until_fence_closes(lost, reconcile));
        let returned = catch_panic(spans.instrument(reconcile)).await;
        scope.end().await;
        let ended = env.now();
        self.core.metrics.duration.observe((ended - begun).as_secs_f64());
        let attempt = match returned {
            Ok(returned) => {
                quarantine.record_no_panic(key);
                Attempt::Returned(returned)
            }
            Err(message) => {
                let decision = quarantine.record_panic(key, &message, ended);
                Attempt::Panicked(message, decision)
            }
        };
        (attempt, ended)
    }

    /// Opens the scope of a reconcile of `key`, behind the fence of the key if it has one.
    fn open_scope(&self, key: &ObjectKey, fence: KeyFence) -> OpenReconcileScope {
        let Core { env, barrier, dropped_tasks, .. } = &*self.core;
        let fenced = fence.map(|fence| self.clients.with_fence(fence));
        let clients = fenced.as_ref().unwrap_or(&self.clients);
        let layered = self.controller.clients(key, clients);
        let clients = layered.as_ref().unwrap_or(clients);
        ReconcileScope::open(env, clients, Arc::clone(&self.declared), barrier.log(key), dropped_tasks)
    }

    /// Waits for `reconcile`; returns an error once it exceeds the reconcile timeout.
    async fn with_timeout(
        &self,
        reconcile: impl Future<Output = Result<Outcome, ReconcileError>>,
    ) -> Result<Outcome, ReconcileError> {
        let Some(limit) = self.core.policy.reconcile_timeout else { return reconcile.await };
        self.core.env.timeout(limit, reconcile).await.unwrap_or_else(|_| {
            self.core.metrics.timeouts.inc();
            Err(retry(ReconcileTimeout { limit }))
        })
    }

    /// Requeues or drops the key. A requeued key keeps its priority, unless its reconcile set another.
    fn requeue(&self, key: &ObjectKey, decision: RequeueDecision, priority: Priority) {
        let queue = &self.core.keys.queue;
        match decision {
            RequeueDecision::BackOff => {
                queue.add_with(key.clone(), AddOptions::rate_limited().priority(priority));
            }
            RequeueDecision::AwaitRole => {
                // A missing rule must not consume the shared rate limit of other keys.
                queue.add_with(
                    key.clone(),
                    AddOptions::rate_limited_per_key(MAX_DENIAL_BACKOFF).priority(priority),
                );
            }
            RequeueDecision::Forget | RequeueDecision::GiveUp => queue.forget(key),
            RequeueDecision::RetryAfter(delay) => {
                queue.add_with(key.clone(), AddOptions::retry_after(delay).priority(priority));
            }
            RequeueDecision::ForgetThenAfter(delay, asked) => {
                queue.forget(key);
                queue.add_with(key.clone(), AddOptions::after(delay).priority(asked.unwrap_or(priority)));
            }
            RequeueDecision::Quarantine => {
                queue.forget(key);
                // A delayed add from before is not a change.
                queue.cancel_delayed(key);
            }
        }
    }

    /// Records the end of an attempt in the history.
    fn record_attempt(&self, key: &ObjectKey, attempt: &Attempt, decision: RequeueDecision, at: Instant) {
        let ending = match (attempt, decision) {
            (Attempt::Returned(Ok(Outcome::Done)), _) => AttemptEnd::Done,
            (Attempt::Returned(Ok(Outcome::Paused(reason))), _) => AttemptEnd::Paused(reason.clone()),
            (Attempt::Returned(Ok(_)), _) => AttemptEnd::Requeued,
            (Attempt::Returned(Err(_)), RequeueDecision::GiveUp) => AttemptEnd::GivenUp,
            (Attempt::Returned(Err(error)), _) => match error.class() {
                Class::Terminal => AttemptEnd::Terminal,
                Class::NotYet(_) => AttemptEnd::NotYet(one_line(error.cause()).into()),
                Class::Retry | Class::RetryAfter(_) => AttemptEnd::Failed,
            },
            (Attempt::Panicked(_, PanicDecision::BackOff), _) => AttemptEnd::Panicked,
            (Attempt::Panicked(_, PanicDecision::Quarantine(_)), _) => AttemptEnd::Quarantined,
        };
        let failure = match attempt {
            Attempt::Returned(Ok(_)) => None,
            Attempt::Returned(Err(error)) if matches!(error.class(), Class::NotYet(_)) => None,
            Attempt::Returned(Err(error)) => {
                let lacking = error.denial().map(|denial| denial.to_string());
                Some(Failure::new(at, one_line(error.cause()), lacking))
            }
            Attempt::Panicked(message, _) => Some(Failure::new(at, format!("panicked: {message}"), None)),
        };
        self.core.keys.history.record_end(key, at, ending, failure);
    }

    fn count_attempt(&self, attempt: &Attempt) {
        let metrics = &self.core.metrics;
        match attempt {
            Attempt::Returned(Ok(Outcome::Done | Outcome::Paused(_))) => metrics.total.success.inc(),
            Attempt::Returned(Ok(Outcome::RequeueAfter(_) | Outcome::RequeueWithPriority { .. })) => {
                metrics.total.requeue_after.inc();
            }
            Attempt::Returned(Err(error)) => match error.class() {
                Class::Retry | Class::RetryAfter(_) => metrics.total.error.inc(),
                Class::Terminal => metrics.total.terminal.inc(),
                Class::NotYet(_) => metrics.total.requeue_after.inc(),
            },
            Attempt::Panicked(..) => {
                metrics.total.panic.inc();
                metrics.panics.inc();
            }
        }
    }

    fn log_attempt(&self, attempt: &Attempt, decision: RequeueDecision, failures: u32) {
        match attempt {
            Attempt::Returned(Ok(outcome)) => tracing::debug!(?outcome, "reconciled"),
            Attempt::Returned(Err(error)) if decision == RequeueDecision::AwaitRole => {
                self.log_denial(error, failures);
            }
            Attempt::Returned(Err(error)) => log_failure(error, decision, failures),
            Attempt::Panicked(message, PanicDecision::BackOff) => {
                tracing::error!(%message, failures, "reconcile panicked; backing off");
            }
            Attempt::Panicked(message, PanicDecision::Quarantine(panics)) => {
                tracing::error!(%message, panics, "reconcile panicked too often; quarantining the key");
            }
        }
    }
}

impl Worker {
    /// Logs a missing rule at most once per interval, and later occurrences at debug level.
    fn log_denial(&self, error: &ReconcileError, failures: u32) {
        let Some(denial) = error.denial() else {
            let error = one_line(error.cause());
            return tracing::warn!(
                error,
                failures,
                "no token for the ServiceAccount of the controller; retrying within 30 s"
            );
        };
        if self.core.denials.should_log(&denial, self.core.env.now()) {
            tracing::warn!(%denial, failures, "request forbidden; retrying this and all affected keys within 30 s");
        } else {
            tracing::debug!(%denial, failures, "request forbidden; retrying within 30 s");
        }
    }
}

/// Waits for `reconcile`; returns an error as soon as the fence of its key closes. The fence blocks its writes, but
/// other effects and waits of the reconcile would otherwise overlap with the next owner of the key.
async fn until_fence_closes(
    lost: Option<BoxFuture<'static, ()>>,
    reconcile: impl Future<Output = Result<Outcome, ReconcileError>>,
) -> Result<Outcome, ReconcileError> {
    let Some(lost) = lost else { return reconcile.await };
    match future::select(lost, pin!(reconcile)).await {
        Either::Left(((), _)) => Err(retry(LeaseLost)),
        Either::Right((returned, _)) => returned,
    }
}

/// Returns the rest of a key after a reconcile of this duration, which includes the wait for the caches. A key that was
/// not reconciled, or whose reconciler requests the next reconcile immediately, does not rest.
fn rest_after(duration: Duration, reconciled: Option<&Reconciled>) -> Duration {
    match reconciled {
        None => Duration::ZERO,
        Some(Reconciled { decision, .. }) if decision.is_immediate() => Duration::ZERO,
        Some(Reconciled { minimum_rest, .. }) => {
            duration.saturating_mul(REST_FACTOR).min(MAX_REST).max(*minimum_rest)
        }
    }
}

fn log_failure(error: &ReconcileError, decision: RequeueDecision, failures: u32) {
    let (loudness, class) = (error.severity(), error.class());
    let error = one_line(error.cause());
    match (decision, loudness) {
        _ if matches!(class, Class::NotYet(_)) => {
            tracing::debug!(reason = error, "prerequisite not met; requeueing");
        }
        _ if class == Class::Terminal => {
            tracing::error!(error, "reconcile failed with a terminal error; waiting for the next change");
        }
        (RequeueDecision::GiveUp, _) => {
            tracing::warn!(error, failures, "retry limit reached; not retried until the object changes");
        }
        (RequeueDecision::RetryAfter(delay), _) => {
            tracing::warn!(error, failures, ?delay, "reconcile failed; retrying after the delay");
        }
        (_, FailureSeverity::Expected) => {
            tracing::debug!(
                error,
                failures,
                "reconcile hit a conflict, a lost lease or a shutdown; backing off"
            );
        }
        (_, FailureSeverity::Unexpected) => tracing::warn!(error, failures, "reconcile failed; backing off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reconciled_keys_without_immediate_requeue_rest() {
        let rest = |milliseconds, decision, minimum_rest| {
            rest_after(Duration::from_millis(milliseconds), Some(&Reconciled { decision, minimum_rest }))
        };
        let (short, second) = (Duration::from_millis(30), Duration::from_secs(1));
        let immediate = RequeueDecision::ForgetThenAfter(Duration::ZERO, None);
        assert_eq!(rest(10, RequeueDecision::Forget, Duration::ZERO), short);
        assert_eq!(rest(10, RequeueDecision::BackOff, Duration::from_millis(20)), short);
        assert_eq!(rest(10, RequeueDecision::Forget, second), second);
        assert_eq!(rest(1000, RequeueDecision::Forget, Duration::ZERO), MAX_REST);
        assert_eq!(rest(10, immediate, second), Duration::ZERO);
        assert_eq!(rest_after(second, None), Duration::ZERO);
    }
}
