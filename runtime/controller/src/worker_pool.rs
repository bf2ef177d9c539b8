//! Workers: each takes one key at a time, waits until the key's own writes are visible, reconciles, and settles.
//!
//! One small function per step, in the order in which a key meets them: `next`, `process`, `admit`, `reconcile`,
//! `attempt`, `settle`. No panic in any of them ends a worker. A worker that is told to stop waits for nothing but the reconcile
//! that runs.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture, Either};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use windlass_client::{ControllerClients, DeclaredVerbs, Fence, one_line};
use windlass_env::{Env, Instant, Task, caught};
use windlass_events::Recorder;
use windlass_informer::InformerFactory;
use windlass_metrics::ReconcileMetrics;
use windlass_object::{GroupResource, ObjectKey, ResourceVersion};
use windlass_workqueue::{Add, Item, Priority, Queue};

use crate::context::{About, Context, ReconcileClient};
use crate::denials::Denials;
use crate::doubts::{DoubtResolver, STOP_TIMEOUT};
use crate::error::{LeaseLost, Loudness, ReconcileError, ReconcileTimeout, retry};
use crate::explain::{Explanation, Insight, Standing};
use crate::freshness::{Freshness, Gate};
use crate::history::{Asker, Ending, Failure, History};
use crate::limits::Limit;
use crate::outcome::{Attempt, Outcome, Settlement, settle};
use crate::pause::Pause;
use crate::quarantine::{Quarantine, Quarantined, Verdict};
use crate::registration::Reconcile;
use crate::scope::{self, Scope};
use crate::stale_skips::StaleSkips;
use crate::steward::Steward;
use crate::timer::Clockwork;
use crate::trigger::Trigger;
use crate::undecodable::Undecodable;
use crate::watch::Wiring;
use crate::watches::Watches;

/// How long a key waits for its next turn after a panic outside of its reconcile: with a limiter that panics there is
/// no back-off to go by, and a defect does not pass within milliseconds.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// How long a key waits at most for its next turn after its role was found to lack a rule. A rule that is added should
/// be felt within a minute, without a restart, and the back-off of a key may have grown to a quarter of an hour.
const AFTER_DENIAL: Duration = Duration::from_secs(30);

/// What a worker may do with a key beside waiting and reconciling, before it is taken for stuck.
const BESIDE_THE_TIMEOUT: Duration = Duration::from_secs(60);

/// What the workers of one controller have in common.
pub(crate) struct Shared {
    pub(crate) name: &'static str,
    pub(crate) controller: Arc<dyn Reconcile>,
    pub(crate) queue: Queue<ObjectKey>,
    pub(crate) stop: CancellationToken,
    pub(crate) env: Env,
    pub(crate) events: Recorder,
    pub(crate) gate: Gate,
    pub(crate) metrics: ReconcileMetrics,
    pub(crate) stale_skips: StaleSkips,
    pub(crate) max_retries: Option<u32>,
    pub(crate) reconcile_timeout: Option<Duration>,
    pub(crate) quarantine: Quarantine,
    pub(crate) limits: Vec<Limit>,
    pub(crate) pauses: Vec<Pause>,
    pub(crate) undecodable: Undecodable,
    pub(crate) scope: Arc<dyn Scope>,
    pub(crate) history: History,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) watches: Watches,
    pub(crate) activity: Activity,
    pub(crate) denials: Denials,
    pub(crate) steward: Steward,
}

/// The fence of a key; none for the process's own.
type KeyFence = Option<Arc<dyn Fence>>;

/// One worker.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: usize,
    pub(crate) clients: ControllerClients,
    pub(crate) declared: Arc<dyn DeclaredVerbs>,
}

impl Worker {
    /// Works until told to stop.
    pub(crate) async fn run(self) {
        let _seat = Seat::take(&self.shared, self.number);
        while let Some(item) = self.next().await {
            if let Err(message) = caught(self.process(&item)).await {
                self.survive(&item, &message);
            }
            drop(item);
            // A controller that never waits must still let others have a turn.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// The next key; none once the worker is to stop, whatever is still queued: the next leader sees it all again.
    async fn next(&self) -> Option<Item<ObjectKey>> {
        self.unless_stopped(self.shared.queue.get()).await.flatten()
    }

    /// What `wait` comes to; nothing if the worker is told to stop before that.
    async fn unless_stopped<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        match future::select(pin!(self.shared.stop.cancelled()), pin!(wait)).await {
            Either::Left(((), _)) => None,
            Either::Right((come, _)) => Some(come),
        }
    }

    async fn process(&self, item: &Item<ObjectKey>) {
        let (key, priority) = (item.key(), item.priority());
        let Shared { limits, queue, triggers, .. } = &*self.shared;
        // None means that the key was put aside until there is room for another of its class. For who sent it, it waits
        // still: a trigger that let another key in for each one put aside would have no bound.
        let Some(_places) = Limit::enter_all(limits, queue, key, priority) else { return };
        triggers.iter().for_each(|trigger| trigger.taken(key));
        let _busy = Turn::begin(&self.shared, self.number, key);
        match self.pass(key, priority).await {
            Some((fence, Freshness::Fresh)) => self.reconcile(key, priority, fence).await,
            Some((_, Freshness::Stale { resource, again_after })) => {
                self.skip(key, &resource, Add::after(again_after).priority(priority));
            }
            // Like a key that is still queued: the next leader sees it, or has it.
            None => {}
        }
    }

    /// Waits for the caches, as long as the key is to be reconciled here; then says behind which fence.
    async fn pass(&self, key: &ObjectKey, priority: Priority) -> Option<(KeyFence, Freshness)> {
        let Shared { gate, steward, .. } = &*self.shared;
        let mut passed = pin!(self.unless_stopped(gate.pass(key)));
        let fence = self.admit(key, priority)?;
        if let Some(passed) = passed.as_mut().now_or_never() {
            return Some((fence, passed?));
        }
        loop {
            let mut gone = pin!(steward.handover.gone.notified());
            // Whoever takes keys away says so in the scope first, so this listens from before the scope is asked.
            gone.as_mut().enable();
            self.admit(key, priority)?;
            if let Either::Left((passed, _)) = future::select(passed.as_mut(), gone).await {
                // Time has passed: whoever has the key now may have another fence for it.
                return Some((self.admit(key, priority)?, passed?));
            }
        }
    }

    /// Whether `key` is to be reconciled here and now; if so, behind which fence.
    fn admit(&self, key: &ObjectKey, priority: Priority) -> Option<KeyFence> {
        let Shared { name, scope, pauses, undecodable, history, queue, steward, .. } = &*self.shared;
        let fence = loop {
            match scope.verdict(key) {
                scope::Verdict::Mine(fence) => break fence,
                scope::Verdict::Soon { .. } if steward.put_aside(key, priority) => return None,
                // It was let in between the two looks.
                scope::Verdict::Soon { .. } => {}
                scope::Verdict::Elsewhere { shard, .. } => {
                    tracing::debug!(controller = name, %key, %shard, "not reconciled: another replica's");
                    queue.forget(key);
                    history.forget(key);
                    return None;
                }
            }
        };
        if let Some(annotation) = Pause::of(pauses, key) {
            tracing::debug!(controller = name, %key, annotation, "not reconciled: paused");
            queue.forget(key);
            history.paused(key, annotation);
            // Whoever was told that the annotation went before this was noted has left the key to this worker.
            if Pause::of(pauses, key).is_some() {
                return None;
            }
        }
        if undecodable.contains(key) {
            queue.forget(key);
            history.withheld(key);
            // The next state of the object queues the key. An object that became readable can have the annotation.
            if undecodable.withhold(key, priority) || Pause::of(pauses, key).is_some() {
                return None;
            }
        }
        Some(fence)
    }

    /// Goes on after a panic that was not the controller's: above all one of a limiter, which is its user's code. The
    /// key gets another turn, as urgent as this one, at a time that the limiter is not asked about.
    fn survive(&self, item: &Item<ObjectKey>, message: &str) {
        let key = item.key();
        self.shared.metrics.panics.inc();
        tracing::error!(controller = self.shared.name, %key, message, "a panic beside the reconcile: trying again");
        self.shared.history.beside(key, message);
        self.shared.queue.add_with(key.clone(), Add::after(AFTER_PANIC).priority(item.priority()));
    }

    /// Puts a key off whose cache does not show its last write yet. That is no failure of the key's: its back-off, which
    /// may be minutes, has no part in it.
    fn skip(&self, key: &ObjectKey, resource: &GroupResource, again: Add) {
        self.shared.stale_skips.count(resource);
        tracing::debug!(controller = self.shared.name, %key, "skipped: the cache is older than the key's last write");
        self.shared.history.put_off(key);
        self.shared.queue.add_with(key.clone(), again);
    }

    async fn reconcile(&self, key: &ObjectKey, priority: Priority, fence: KeyFence) {
        let span = tracing::info_span!("reconcile", controller = self.shared.name, %key);
        let failures = self.shared.queue.attempts(key);
        let about = About { attempts: failures, priority, span: span.clone() };
        let (attempt, ended) = self.attempt(key, about, fence).await;
        let settlement = settle(&attempt, failures, self.shared.max_retries);
        span.in_scope(|| self.tell(&attempt, settlement, failures));
        self.count(&attempt);
        self.note(key, &attempt, settlement, ended);
        self.settle(key, settlement, priority);
    }

    /// Has the key reconciled; tells how that ended, and when.
    async fn attempt(&self, key: &ObjectKey, about: About, fence: KeyFence) -> (Attempt, Instant) {
        let Shared { env, events, watches, quarantine, history, .. } = &*self.shared;
        let span = about.span.clone();
        let lost = fence.as_ref().map(|fence| fence.closed());
        let context =
            Context::new(self.client(key, fence), events.clone(), env.clone(), watches.clone(), about);
        let begun = env.now();
        history.started(key, begun);
        // Inside an async block, so that a panic before the first await is caught as well.
        let reconcile = async { self.shared.controller.reconcile(key, &context).await };
        let returned = caught(self.in_time(unless_lost(lost, reconcile)).instrument(span)).await;
        let ended = env.now();
        self.shared.metrics.duration.observe((ended - begun).as_secs_f64());
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

    /// Returns a client for one reconcile of `key`, behind the fence of the key if it has one.
    fn client(&self, key: &ObjectKey, fence: KeyFence) -> ReconcileClient {
        let clients = match fence {
            Some(fence) => self.clients.behind(fence),
            None => self.clients.clone(),
        };
        ReconcileClient::new(clients, Arc::clone(&self.declared), self.shared.gate.log(key))
    }

    /// What `reconcile` comes to, or an error once it has taken longer than the controller allows.
    async fn in_time(
        &self,
        reconcile: impl Future<Output = Result<Outcome, ReconcileError>>,
    ) -> Result<Outcome, ReconcileError> {
        let Some(limit) = self.shared.reconcile_timeout else { return reconcile.await };
        self.shared.env.timeout(limit, reconcile).await.unwrap_or_else(|_| {
            self.shared.metrics.timeouts.inc();
            Err(retry(ReconcileTimeout { limit }))
        })
    }

    /// A key that comes back keeps the priority it had, unless its reconcile asked for another.
    fn settle(&self, key: &ObjectKey, settlement: Settlement, priority: Priority) {
        let queue = &self.shared.queue;
        match settlement {
            Settlement::BackOff => queue.add_with(key.clone(), Add::rate_limited().priority(priority)),
            Settlement::AwaitRole => {
                // Other keys do not pay for a role that lacks a rule.
                queue.add_with(key.clone(), Add::rate_limited_per_key(AFTER_DENIAL).priority(priority));
            }
            Settlement::Forget | Settlement::GiveUp => queue.forget(key),
            Settlement::ForgetThenAfter(delay, asked) => {
                queue.forget(key);
                queue.add_with(key.clone(), Add::after(delay).priority(asked.unwrap_or(priority)));
            }
            Settlement::Rest => {
                queue.forget(key);
                // An appointment from before is no change.
                queue.cancel_delayed(key);
            }
        }
    }

    /// Remembers how it ended.
    fn note(&self, key: &ObjectKey, attempt: &Attempt, settlement: Settlement, at: Instant) {
        let ending = match (attempt, settlement) {
            (Attempt::Returned(Ok(Outcome::Done)), _) => Ending::Done,
            (Attempt::Returned(Ok(Outcome::Paused(reason))), _) => Ending::Paused(reason),
            (Attempt::Returned(Ok(_)), _) => Ending::Again,
            (Attempt::Returned(Err(ReconcileError::Terminal(_))), _) => Ending::Terminal,
            (Attempt::Returned(Err(_)), Settlement::GiveUp) => Ending::GivenUp,
            (Attempt::Returned(Err(_)), _) => Ending::Failed,
            (Attempt::Panicked(_, Verdict::TryAgain), _) => Ending::Panicked,
            (Attempt::Panicked(_, Verdict::Rest(_)), _) => Ending::Resting,
        };
        let failure = match attempt {
            Attempt::Returned(Ok(_)) => None,
            Attempt::Returned(Err(error)) => {
                let lacking = error.denial().map(|denial| denial.to_string());
                Some(Failure::new(at, one_line(error), lacking))
            }
            Attempt::Panicked(message, _) => Some(Failure::new(at, format!("panicked: {message}"), None)),
        };
        self.shared.history.ended(key, at, ending, failure);
    }

    fn count(&self, attempt: &Attempt) {
        let metrics = &self.shared.metrics;
        match attempt {
            Attempt::Returned(Ok(Outcome::Done | Outcome::Paused(_))) => metrics.total.success.inc(),
            Attempt::Returned(Ok(Outcome::RequeueAfter(_) | Outcome::RequeueAt { .. })) => {
                metrics.total.requeue_after.inc();
            }
            Attempt::Returned(Err(ReconcileError::Retry(_))) => metrics.total.error.inc(),
            Attempt::Returned(Err(ReconcileError::Terminal(_))) => metrics.total.terminal.inc(),
            Attempt::Panicked(..) => {
                metrics.total.panic.inc();
                metrics.panics.inc();
            }
        }
    }

    fn tell(&self, attempt: &Attempt, settlement: Settlement, failures: u32) {
        match attempt {
            Attempt::Returned(Ok(outcome)) => tracing::debug!(?outcome, "reconciled"),
            Attempt::Returned(Err(error)) if settlement == Settlement::AwaitRole => {
                self.tell_denial(error, failures);
            }
            Attempt::Returned(Err(error)) => tell_failure(error, settlement, failures),
            Attempt::Panicked(message, Verdict::TryAgain) => {
                tracing::error!(%message, failures, "panicked: backing off");
            }
            Attempt::Panicked(message, Verdict::Rest(panics)) => {
                tracing::error!(%message, panics, "panicked too often: in quarantine until its next change");
            }
        }
    }
}

impl Worker {
    /// Tells what a role lacks once in a while, and of all other keys that need it in detail only.
    fn tell_denial(&self, error: &ReconcileError, failures: u32) {
        let Some(denial) = error.denial() else {
            let error = one_line(error);
            return tracing::warn!(
                error,
                failures,
                "failed for want of credentials: backing off, half a minute at most"
            );
        };
        if self.shared.denials.is_news(&denial, self.shared.env.now()) {
            tracing::warn!(%denial, failures, "forbidden: trying again within half a minute, as all keys that need it");
        } else {
            tracing::debug!(%denial, failures, "forbidden: trying again within half a minute");
        }
    }
}

/// What `reconcile` comes to, or an error as soon as the fence of its key is closed: its writes would be held back, but
/// whatever else it does, elsewhere or by waiting, would go on beside the next holder of the key.
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

fn tell_failure(error: &ReconcileError, settlement: Settlement, failures: u32) {
    let loudness = error.loudness();
    let terminal = matches!(error, ReconcileError::Terminal(_));
    let error = one_line(error);
    match (settlement, loudness) {
        _ if terminal => tracing::error!(error, "failed for good: waiting for its next change"),
        (Settlement::GiveUp, _) => {
            tracing::warn!(error, failures, "failed too often: dropped until its next change");
        }
        (_, Loudness::Expected) => tracing::debug!(error, failures, "failed as may happen: backing off"),
        (_, Loudness::Unexpected) => tracing::warn!(error, failures, "failed: backing off"),
    }
}

/// What each worker is doing, for whoever asks how the controller fares.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Vec<Mutex<Seated>>>);

/// What one worker is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seated {
    /// It has not started.
    NotYet,
    /// It waits for a key.
    Idle,
    /// It has a key.
    Busy(Busy),
    /// It has ended.
    Ended,
}

/// A key that a worker has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The key.
    pub key: ObjectKey,
    /// When the worker took it.
    pub since: Instant,
}

impl Activity {
    pub(crate) fn new(workers: usize) -> Self {
        Self(Arc::new((0..workers).map(|_| Mutex::new(Seated::NotYet)).collect()))
    }

    fn seat(&self, number: usize) -> MutexGuard<'_, Seated> {
        self.0[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seats(&self) -> Vec<Seated> {
        (0..self.0.len()).map(|number| self.seat(number).clone()).collect()
    }

    pub(crate) fn busy(&self) -> Vec<Busy> {
        let busy = |seated| match seated {
            Seated::Busy(busy) => Some(busy),
            Seated::NotYet | Seated::Idle | Seated::Ended => None,
        };
        self.seats().into_iter().filter_map(busy).collect()
    }
}

/// A worker's place in the activity, given up when the worker ends for whatever reason.
struct Seat {
    activity: Activity,
    number: usize,
}

impl Seat {
    fn take(shared: &Shared, number: usize) -> Self {
        *shared.activity.seat(number) = Seated::Idle;
        Self { activity: shared.activity.clone(), number }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *self.activity.seat(self.number) = Seated::Ended;
    }
}

/// One key's time with a worker.
struct Turn<'a> {
    shared: &'a Shared,
    number: usize,
}

impl<'a> Turn<'a> {
    fn begin(shared: &'a Shared, number: usize, key: &ObjectKey) -> Self {
        *shared.activity.seat(number) = Seated::Busy(Busy { key: key.clone(), since: shared.env.now() });
        shared.metrics.active_workers.inc();
        Self { shared, number }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.shared.activity.seat(self.number) = Seated::Idle;
        self.shared.metrics.active_workers.dec();
        self.shared.steward.handover.let_go.notify_waiters();
    }
}

/// The running workers of one controller. Dropping this neither stops nor forgets them: [`Workers::stop`] and
/// [`Workers::ended`] do, in that order.
pub struct Workers {
    name: &'static str,
    queue: Queue<ObjectKey>,
    stop: CancellationToken,
    env: Env,
    activity: Activity,
    gate: Gate,
    reconcile_timeout: Option<Duration>,
    quarantine: Quarantine,
    steward: Steward,
    insight: Insight,
    triggers: Vec<Trigger>,
    watches: Watches,
    tasks: Vec<Task<()>>,
    /// Resolves unknown outcomes of writes, of the last reconciles too.
    resolver: Option<Task<()>>,
    /// Until when [`Workers::ended`] waits for such outcomes.
    resolve_until: Option<Instant>,
    /// Informers of the controller's own, which end after it.
    own: Vec<InformerFactory>,
}

impl Workers {
    /// Starts `workers`, each as a task of its own.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        workers: Vec<Worker>,
        resolver: DoubtResolver,
        insight: Insight,
    ) -> Self {
        let spawn = |worker: Worker| {
            let name = format!("{} worker {}", shared.name, worker.number);
            shared.env.spawn(name, worker.run())
        };
        Self {
            name: shared.name,
            queue: shared.queue.clone(),
            stop: shared.stop.clone(),
            env: shared.env.clone(),
            activity: shared.activity.clone(),
            gate: shared.gate.clone(),
            reconcile_timeout: shared.reconcile_timeout,
            quarantine: shared.quarantine.clone(),
            steward: shared.steward.clone(),
            insight,
            triggers: shared.triggers.clone(),
            watches: shared.watches.clone(),
            tasks: workers.into_iter().map(spawn).collect(),
            resolver: Some(shared.env.spawn(format!("{} write outcomes", shared.name), resolver.run())),
            resolve_until: None,
            own: Vec::new(),
        }
    }

    /// Lets a timer go off until the workers are told to stop.
    pub(crate) fn run_timer(&mut self, number: usize, clockwork: Clockwork, wiring: &Wiring) {
        let (env, stop, name) =
            (self.env.clone(), self.stop.clone(), format!("{} timer {number}", self.name));
        let queue = wiring.queue.routine().of(Asker::Timer);
        let run = clockwork.run(env, name.clone(), queue, wiring.panics.clone());
        self.tasks.push(self.env.spawn(name, async move {
            stop.run_until_cancelled(run).await;
        }));
    }

    /// Queues keys that are withheld, once they need not be, until the workers are told to stop.
    pub(crate) fn follow(&mut self, undecodable: &Undecodable) {
        for number in 0..undecodable.caches() {
            let (stop, follow) = (self.stop.clone(), undecodable.clone().follow(number));
            let name = format!("{} undecodable {number}", self.name);
            self.tasks.push(self.env.spawn(name, async move {
                stop.run_until_cancelled(follow).await;
            }));
        }
    }

    /// Keeps informers that end with the controller.
    pub(crate) fn keep(&mut self, own: impl IntoIterator<Item = InformerFactory>) {
        self.own.extend(own);
    }

    /// The controller's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// No worker takes another key, and the queue takes no more. Reconciles that run go on to their end.
    pub fn stop(&self) {
        self.insight.stand(Standing::Draining);
        self.stop.cancel();
        self.queue.shut_down();
        self.triggers.iter().for_each(Trigger::close);
        self.watches.close();
    }

    /// Waits until every worker has ended and the outcome of each of their writes is known. An outcome that is unknown 5 s
    /// after the last worker has ended stays unknown ([`Workers::written`]).
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn ended(&mut self) {
        while let Some(task) = self.tasks.last_mut() {
            // How it ended is no matter here: a panic has been logged under the task's name.
            let _ended = task.await;
            self.tasks.pop();
        }
        self.outcomes_resolved().await;
        while let Some(own) = self.own.last() {
            own.shutdown().await;
            self.own.pop();
        }
    }

    /// Waits for unknown outcomes as long as there is time, then ends the task that resolves them.
    async fn outcomes_resolved(&mut self) {
        let Some(resolver) = &mut self.resolver else { return };
        let until = *self.resolve_until.get_or_insert(self.env.now() + STOP_TIMEOUT);
        let left = until.saturating_duration_since(self.env.now());
        let resolved = pin!(self.env.timeout(left, self.gate.ledger.resolved()));
        // A resolver that has ended was aborted, or has panicked, which is logged under its name.
        if let Either::Right((resolved, _)) = future::select(&mut *resolver, resolved).await {
            if resolved.is_err() {
                tracing::warn!(controller = self.name, "stopping with writes of unknown outcome");
            }
            resolver.abort();
            let _aborted = resolver.await;
        }
        self.resolver = None;
    }

    /// Ends every worker at its next await, and what it reconciles with it.
    pub fn abort(&self) {
        self.stop();
        self.tasks.iter().for_each(Task::abort);
        self.resolver.iter().for_each(Task::abort);
    }

    /// Returns the highest version that a write of this controller returned, by resource: what the caches of a successor
    /// must reflect first. `None` if the outcome of a write is unknown. Final once the workers have [ended](Self::ended).
    pub fn written(&self) -> Option<BTreeMap<GroupResource, ResourceVersion>> {
        self.steward.written()
    }

    /// See [`Steward::retire`].
    ///
    /// # Cancel safety
    /// The keys that wait are forgotten when it is first polled; calling it again waits for the rest.
    pub async fn retire(&self, gone: impl Fn(&ObjectKey) -> bool) {
        self.steward.retire(gone).await;
    }

    /// Brings keys to these workers, and takes them away.
    pub fn steward(&self) -> Steward {
        self.steward.clone()
    }

    /// Says why `key` has not been reconciled, or what became of it.
    pub fn explain(&self, key: &ObjectKey) -> Explanation {
        self.insight.explain(key)
    }

    /// A look into this controller, for whoever answers questions about it.
    pub fn insight(&self) -> Insight {
        self.insight.clone()
    }

    /// The keys that workers have now.
    pub fn busy(&self) -> Vec<Busy> {
        self.activity.busy()
    }

    /// The keys that rest until their next change, because their reconcile panicked too often in a row.
    pub fn quarantined(&self) -> Vec<Quarantined> {
        self.quarantine.resting()
    }

    /// Says, whenever it is asked, how many keys are in quarantine; nothing if none is. Which they are is in the log, and
    /// told by [`Workers::quarantined`]: pages are read by more people than objects are.
    pub fn quarantine_notice(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static + use<> {
        let quarantine = self.quarantine.clone();
        move || {
            let resting = quarantine.resting().len();
            (resting > 0).then(|| format!("keys in quarantine because their reconcile panics: {resting}"))
        }
    }

    /// A check that fails when a worker has had one key for longer than `stuck_after`, or has ended without being
    /// told to, or what follows a source of the controller's own has died, of a panic in the source, for instance. Of
    /// a controller with a reconcile timeout it fails a minute after that, if this is sooner: a reconcile that outlasts
    /// its timeout never awaits, and keeps its thread.
    pub fn health(
        &self,
        stuck_after: Duration,
    ) -> impl Fn() -> Result<(), String> + Send + Sync + 'static + use<> {
        let (activity, env, stop) = (self.activity.clone(), self.env.clone(), self.stop.clone());
        let own = self.own.clone();
        let waits = self.gate.longest_wait();
        let stuck_after = match self.reconcile_timeout {
            Some(limit) => stuck_after.min(limit.saturating_add(waits).saturating_add(BESIDE_THE_TIMEOUT)),
            None => stuck_after,
        };
        move || {
            if !stop.is_cancelled() && activity.seats().contains(&Seated::Ended) {
                return Err("a worker has ended".to_owned());
            }
            let dead = || own.iter().flat_map(InformerFactory::stuck).next();
            if let (false, Some((kind, _))) = (stop.is_cancelled(), dead()) {
                return Err(format!("the informer of {kind} has died that followed a source of its own"));
            }
            let age = |busy: &Busy| env.now().saturating_duration_since(busy.since);
            match activity.busy().into_iter().find(|busy| age(busy) > stuck_after) {
                Some(busy) => Err(format!("{} has been reconciled for {:?}", busy.key, age(&busy))),
                None => Ok(()),
            }
        }
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers")
            .field("name", &self.name)
            .field("activity", &self.activity)
            .field("quarantined", &self.quarantined())
            .finish_non_exhaustive()
    }
}
