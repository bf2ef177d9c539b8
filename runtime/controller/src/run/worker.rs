//! One worker: it takes one key at a time, waits until the key's own writes are visible, reconciles, and settles.
//!
//! One small function per step, in the order in which a key meets them: `next`, `process`, `admit`, `reconcile`,
//! `attempt`, `decide_requeue`. No panic in any of them ends a worker. A worker that is told to stop waits for nothing but the reconcile
//! that runs.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture, Either};
use tracing::Instrument;
use windlass_client::{ControllerClients, DeclaredVerbs, Fence, one_line};
use windlass_env::{Instant, catch_panic};
use windlass_events::Recorder;
use windlass_metrics::ReconcileMetrics;
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
use crate::run::turn::{OpenTurn, Turn};

/// How long a key waits for its next turn after a panic outside of its reconcile: with a limiter that panics there is
/// no back-off to go by, and a defect does not pass within milliseconds.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// How long a key waits at most for its next turn after its role was found to lack a rule. A rule that is added should
/// be felt within a minute, without a restart, and the back-off of a key may have grown to a quarter of an hour.
const AFTER_DENIAL: Duration = Duration::from_secs(30);

/// The fence of a key; none for the process's own.
type KeyFence = Option<Arc<dyn Fence>>;

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
    /// Works until told to stop.
    pub(crate) async fn run(self) {
        let seat = self.core.activity.take_seat(self.number);
        while let Some(item) = self.next().await {
            if let Err(message) = catch_panic(self.process(&item, &seat)).await {
                self.requeue_after_panic(&item, &message);
            }
            drop(item);
            // A controller that never waits must still let others have a turn.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// The next key; none once the worker is to stop, whatever is still queued: the next leader sees it all again.
    async fn next(&self) -> Option<Item<ObjectKey>> {
        self.unless_stopped(self.core.keys.queue.get()).await.flatten()
    }

    /// What `wait` comes to; nothing if the worker is told to stop before that.
    async fn unless_stopped<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        match future::select(pin!(self.core.stop.cancelled()), pin!(wait)).await {
            Either::Left(((), _)) => None,
            Either::Right((come, _)) => Some(come),
        }
    }

    async fn process(&self, item: &Item<ObjectKey>, seat: &WorkerSlot<'_>) {
        let (key, priority) = (item.key(), item.priority());
        let Keys { limits, queue, triggers, .. } = &self.core.keys;
        // If its class has had room since, the key is added again and this parks nothing. For its trigger it still waits: a
        // trigger that let another key in for each one that is parked would have no bound.
        let Some(_places) = ConcurrencyLimit::enter_all(limits, queue, key, priority) else {
            return item.park(CLASS_FULL);
        };
        triggers.iter().for_each(|trigger| trigger.taken(key));
        let _turn = seat.begin_turn(key, self.core.env.now());
        let _active = Active::count(&self.core.metrics);
        match self.pass(item).await {
            Some((fence, CacheFreshness::Fresh)) => self.reconcile(key, priority, fence).await,
            Some((_, CacheFreshness::Stale { resource, again_after })) => {
                self.skip(key, &resource, AddOptions::after(again_after).priority(priority));
            }
            // Like a key that is still queued: the next leader sees it, or has it.
            None => {}
        }
    }

    /// Waits for the caches, as long as the key is to be reconciled here; then says behind which fence.
    async fn pass(&self, item: &Item<ObjectKey>) -> Option<(KeyFence, CacheFreshness)> {
        let mut passed = pin!(self.unless_stopped(self.core.gate.pass(item.key())));
        let fence = self.admit(item)?;
        if let Some(passed) = passed.as_mut().now_or_never() {
            return Some((fence, passed?));
        }
        loop {
            let mut gone = pin!(self.core.keys.gone.notified());
            // The ownership changes before the notification, so this listens from before the check.
            gone.as_mut().enable();
            self.admit(item)?;
            if let Either::Left((passed, _)) = future::select(passed.as_mut(), gone).await {
                // Time has passed: whoever has the key now may have another fence for it.
                return Some((self.admit(item)?, passed?));
            }
        }
    }

    /// Whether the key is to be reconciled here and now; if so, behind which fence. If not, it is parked or dropped.
    fn admit(&self, item: &Item<ObjectKey>) -> Option<KeyFence> {
        let (name, keys, key) = (self.core.name(), &self.core.keys, item.key());
        let Keys { ownership, pauses, undecodable, history, queue, .. } = keys;
        let fence = match ownership.ownership(key) {
            Ownership::Owned(fence) => fence,
            Ownership::Pending { .. } => {
                keys.park_pending(item);
                return None;
            }
            Ownership::NotOwned { shard, .. } => {
                tracing::debug!(controller = name, %key, %shard, "not reconciled: another replica's");
                queue.forget(key);
                history.forget(key);
                return None;
            }
        };
        if let Some(annotation) = PauseAnnotation::of(pauses, key) {
            tracing::debug!(controller = name, %key, annotation, "not reconciled: paused");
            queue.forget(key);
            history.paused(key, annotation);
            keys.park(item, ParkReason(annotation), || PauseAnnotation::of(pauses, key) == Some(annotation));
            return None;
        }
        if let Some(error) = undecodable.error(key) {
            queue.forget(key);
            if history.withheld(key) {
                tracing::warn!(controller = name, %key, %error, "reconcile withheld: object cannot be decoded");
            }
            keys.park(item, UNDECODABLE, || undecodable.error(key).is_some());
            return None;
        }
        Some(fence)
    }

    /// Goes on after a panic that was not the controller's: above all one of a limiter, which is its user's code. The
    /// key gets another turn, as urgent as this one, at a time that the limiter is not asked about.
    fn requeue_after_panic(&self, item: &Item<ObjectKey>, message: &str) {
        let key = item.key();
        self.core.metrics.panics.inc();
        tracing::error!(controller = self.core.name(), %key, message, "a panic beside the reconcile: trying again");
        self.core.keys.history.beside(key, message);
        self.core.keys.queue.add_with(key.clone(), AddOptions::after(AFTER_PANIC).priority(item.priority()));
    }

    /// Puts a key off whose cache does not show its last write yet. That is no failure of the key's: its back-off, which
    /// may be minutes, has no part in it.
    fn skip(&self, key: &ObjectKey, resource: &GroupResource, again: AddOptions) {
        self.core.stale_skips.count(resource);
        tracing::debug!(controller = self.core.name(), %key, "skipped: the cache is older than the key's last write");
        self.core.keys.history.put_off(key);
        self.core.keys.queue.add_with(key.clone(), again);
    }

    async fn reconcile(&self, key: &ObjectKey, priority: Priority, fence: KeyFence) {
        let span = tracing::info_span!("reconcile", controller = self.core.name(), %key);
        let failures = self.core.keys.queue.attempts(key);
        let about = AttemptInfo { attempts: failures, priority, span: span.clone() };
        let (attempt, ended) = self.attempt(key, about, fence).await;
        let settlement = decide_requeue(&attempt, failures, self.core.policy.max_retries);
        span.in_scope(|| self.tell(&attempt, settlement, failures));
        self.count(&attempt);
        self.note(key, &attempt, settlement, ended);
        self.settle(key, settlement, priority);
    }

    /// Has the key reconciled; tells how that ended, and when.
    async fn attempt(&self, key: &ObjectKey, about: AttemptInfo, fence: KeyFence) -> (Attempt, Instant) {
        let Core { env, keys, .. } = &*self.core;
        let Keys { quarantine, history, .. } = keys;
        let span = about.span.clone();
        let lost = fence.as_ref().map(|fence| fence.closed());
        let turn = self.open_turn(key, fence);
        let context = Context::new(turn.turn(), Arc::clone(&self.core), self.events.clone(), about);
        let begun = env.now();
        history.started(key, begun);
        // Inside an async block, so that a panic before the first await is caught as well.
        let reconcile = async {
            let returned = self.controller.reconcile(key, &context).await;
            turn.turn().tasks().ended().await;
            returned
        };
        let returned = catch_panic(self.in_time(unless_lost(lost, reconcile)).instrument(span)).await;
        turn.end().await;
        let ended = env.now();
        self.core.metrics.duration.observe((ended - begun).as_secs_f64());
        let attempt = match returned {
            Ok(returned) => {
                quarantine.survived(key);
                Attempt::Returned(returned)
            }
            Err(message) => {
                let verdict = quarantine.panicked(key, &message, ended);
                Attempt::Panicked(message, verdict)
            }
        };
        (attempt, ended)
    }

    /// Opens a turn of `key`, behind the fence of the key if it has one.
    fn open_turn(&self, key: &ObjectKey, fence: KeyFence) -> OpenTurn {
        let Core { env, gate, dropped_tasks, .. } = &*self.core;
        let fenced = fence.map(|fence| self.clients.with_fence(fence));
        let clients = fenced.as_ref().unwrap_or(&self.clients);
        let layered = self.controller.clients(key, clients);
        let clients = layered.as_ref().unwrap_or(clients);
        Turn::open(env, clients, Arc::clone(&self.declared), gate.log(key), dropped_tasks)
    }

    /// What `reconcile` comes to, or an error once it has taken longer than the controller allows.
    async fn in_time(
        &self,
        reconcile: impl Future<Output = Result<Outcome, ReconcileError>>,
    ) -> Result<Outcome, ReconcileError> {
        let Some(limit) = self.core.policy.reconcile_timeout else { return reconcile.await };
        self.core.env.timeout(limit, reconcile).await.unwrap_or_else(|_| {
            self.core.metrics.timeouts.inc();
            Err(retry(ReconcileTimeout { limit }))
        })
    }

    /// A key that comes back keeps the priority it had, unless its reconcile asked for another.
    fn settle(&self, key: &ObjectKey, settlement: RequeueDecision, priority: Priority) {
        let queue = &self.core.keys.queue;
        match settlement {
            RequeueDecision::BackOff => {
                queue.add_with(key.clone(), AddOptions::rate_limited().priority(priority))
            }
            RequeueDecision::AwaitRole => {
                // Other keys do not pay for a role that lacks a rule.
                queue
                    .add_with(key.clone(), AddOptions::rate_limited_per_key(AFTER_DENIAL).priority(priority));
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
                // An appointment from before is no change.
                queue.cancel_delayed(key);
            }
        }
    }

    /// Remembers how it ended.
    fn note(&self, key: &ObjectKey, attempt: &Attempt, settlement: RequeueDecision, at: Instant) {
        let ending = match (attempt, settlement) {
            (Attempt::Returned(Ok(Outcome::Done)), _) => AttemptEnd::Done,
            (Attempt::Returned(Ok(Outcome::Paused(reason))), _) => AttemptEnd::Paused(reason),
            (Attempt::Returned(Ok(_)), _) => AttemptEnd::Requeued,
            (Attempt::Returned(Err(_)), RequeueDecision::GiveUp) => AttemptEnd::GivenUp,
            (Attempt::Returned(Err(error)), _) => match error.class() {
                Class::Terminal => AttemptEnd::Terminal,
                Class::NotYet(_) => AttemptEnd::NotYet(one_line(error.cause()).into()),
                Class::Retry | Class::RetryAfter(_) => AttemptEnd::Failed,
            },
            (Attempt::Panicked(_, PanicDecision::TryAgain), _) => AttemptEnd::Panicked,
            (Attempt::Panicked(_, PanicDecision::Rest(_)), _) => AttemptEnd::Quarantined,
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
        self.core.keys.history.ended(key, at, ending, failure);
    }

    fn count(&self, attempt: &Attempt) {
        let metrics = &self.core.metrics;
        match attempt {
            Attempt::Returned(Ok(Outcome::Done | Outcome::Paused(_))) => metrics.total.success.inc(),
            Attempt::Returned(Ok(Outcome::RequeueAfter(_) | Outcome::RequeueAt { .. })) => {
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

    fn tell(&self, attempt: &Attempt, settlement: RequeueDecision, failures: u32) {
        match attempt {
            Attempt::Returned(Ok(outcome)) => tracing::debug!(?outcome, "reconciled"),
            Attempt::Returned(Err(error)) if settlement == RequeueDecision::AwaitRole => {
                self.tell_denial(error, failures);
            }
            Attempt::Returned(Err(error)) => tell_failure(error, settlement, failures),
            Attempt::Panicked(message, PanicDecision::TryAgain) => {
                tracing::error!(%message, failures, "panicked: backing off");
            }
            Attempt::Panicked(message, PanicDecision::Rest(panics)) => {
                tracing::error!(%message, panics, "panicked too often: in quarantine until its next change");
            }
        }
    }
}

impl Worker {
    /// Tells what a role lacks once in a while, and of all other keys that need it in detail only.
    fn tell_denial(&self, error: &ReconcileError, failures: u32) {
        let Some(denial) = error.denial() else {
            let error = one_line(error.cause());
            return tracing::warn!(
                error,
                failures,
                "failed for want of credentials: backing off, half a minute at most"
            );
        };
        if self.core.denials.is_news(&denial, self.core.env.now()) {
            tracing::warn!(%denial, failures, "forbidden: trying again within half a minute, as all keys that need it");
        } else {
            tracing::debug!(%denial, failures, "forbidden: trying again within half a minute");
        }
    }
}

/// One of the workers that have a key, in the metrics.
struct Active<'a>(&'a ReconcileMetrics);

impl<'a> Active<'a> {
    fn count(metrics: &'a ReconcileMetrics) -> Self {
        metrics.active_workers.inc();
        Self(metrics)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.active_workers.dec();
    }
}

/// What `reconcile` comes to, or an error as soon as the fence of its key is closed: its writes would be held back, but
/// whatever else it does, elsewhere or by waiting, would continue next to the next holder of the key.
async fn unless_lost(
    lost: Option<BoxFuture<'static, ()>>,
    reconcile: impl Future<Output = Result<Outcome, ReconcileError>>,
) -> Result<Outcome, ReconcileError> {
    let Some(lost) = lost else { return reconcile.await };
    match future::select(lost, pin!(reconcile)).await {
        Either::Left(((), _)) => Err(retry(LeaseLost)),
        Either::Right((returned, _)) => returned,
    }
}

fn tell_failure(error: &ReconcileError, settlement: RequeueDecision, failures: u32) {
    let (loudness, class) = (error.loudness(), error.class());
    let error = one_line(error.cause());
    match (settlement, loudness) {
        _ if matches!(class, Class::NotYet(_)) => tracing::debug!(reason = error, "not yet: waiting"),
        _ if class == Class::Terminal => {
            tracing::error!(error, "failed for good: waiting for its next change");
        }
        (RequeueDecision::GiveUp, _) => {
            tracing::warn!(error, failures, "failed too often: dropped until its next change");
        }
        (RequeueDecision::RetryAfter(delay), _) => {
            tracing::warn!(error, failures, ?delay, "failed: retrying after the delay");
        }
        (_, FailureSeverity::Expected) => {
            tracing::debug!(error, failures, "failed as may happen: backing off")
        }
        (_, FailureSeverity::Unexpected) => tracing::warn!(error, failures, "failed: backing off"),
    }
}
