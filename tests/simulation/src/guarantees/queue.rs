//! One queue with three workers that are slow, fail, panic, are killed while they hold a key, or cancel their wait.
//! Keys are added at any time and in any way.

mod model;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use windlass_env::{Env, Instant, Rng, Task, catch_panic};
use windlass_metrics::Metrics;
use windlass_testing::{FaultAction, FaultKind, FaultPlan, Faults};
use windlass_workqueue::{AddOptions, Exponential, Item, Priority, Queue};

use self::model::{Key, Model, Order};
use crate::guarantees::family::{ON_PURPOSE, PlanFamily, run_script};

/// Simulations of a queue.
pub const FAMILY: PlanFamily =
    PlanFamily { name: "queue", generate: generate_plan, run, regressions: REGRESSIONS };

const REGRESSIONS: &[&str] = &[];

const SPAN: Duration = Duration::from_secs(120);
const WORKERS: [&str; 3] = ["a", "b", "c"];
const KEYS: Key = 6;
/// Key that never succeeds.
const FAILING_KEY: Key = 0;
/// Key with the lowest priority, where priorities are used.
const LOW_PRIORITY_KEY: Key = KEYS - 1;
/// Duration of a flood of urgent keys: longer than the aging limit.
const FLOOD: Duration = Duration::from_secs(25);
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(20);
/// Maximum time for a due key to be dequeued if a worker is idle.
const MAX_DEQUEUE_DELAY: Duration = Duration::from_millis(3);

fn generate_plan(seed: u64) -> FaultPlan {
    Faults::only([FaultKind::Crash, FaultKind::Clock]).plan(seed, SPAN, WORKERS.len(), &[])
}

fn run(plan: &FaultPlan) -> Result<u64, String> {
    run_script(plan, |env| async move {
        let world = World::new(&env, plan);
        world.clone().play().await?;
        world.conclude().await
    })
}

/// A queue and its model, updated together, so that they must always agree.
#[derive(Clone)]
struct World {
    env: Env,
    plan: FaultPlan,
    queue: Queue<Key>,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    model: Model,
    /// Idle workers, with the start of their wait.
    idle: BTreeMap<u64, Instant>,
    waits: u64,
    violations: Vec<String>,
    /// Number of dequeued keys.
    dequeued: u64,
    rng: Rng,
    /// End of the flood: until then, urgent keys are added again during their reconcile.
    flood: Instant,
    /// Whether all reconciles succeed from now on.
    always_succeed: bool,
    stopping: bool,
}

/// Guard of a dequeued key. Its end updates queue and model together.
struct DequeuedItem {
    world: World,
    item: Option<Item<Key>>,
}

impl Drop for DequeuedItem {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            let (now, mut shared) = (self.world.env.now(), self.world.shared());
            shared.model.released(now, *item.key());
            drop(item);
        }
    }
}

impl World {
    fn new(world: &Env, plan: &FaultPlan) -> World {
        let mut rates = plan.faults.iter().filter_map(|fault| match fault.action {
            FaultAction::ClockRate { numerator, denominator } => Some((numerator, denominator)),
            _ => None,
        });
        let machine = world.clone().with_wall_offset(SignedDuration::ZERO);
        let machine = match rates.next_back() {
            Some((numerator, denominator)) => machine.with_rate(numerator, denominator),
            None => machine,
        };
        let env = machine.with_incarnation("queue", 0);
        let order = match env.rng("order").below(3) {
            0 => Order::Plain,
            1 => Order::Priorities,
            _ => Order::Tenants,
        };
        let queue = Queue::new(env.clone(), "test", Metrics::new().workqueue("test"));
        queue.replace_limiter(Box::new(Exponential::new(INITIAL_BACKOFF, LAST_RETRY)));
        if order == Order::Tenants {
            queue.fair_by(|key| model::tenant(*key));
        }
        let shared = Shared {
            model: Model::new(order),
            idle: BTreeMap::new(),
            waits: 0,
            always_succeed: false,
            violations: Vec::new(),
            dequeued: 0,
            rng: env.rng("script"),
            flood: Instant::ORIGIN,
            stopping: false,
        };
        World { env, plan: plan.clone(), queue, shared: Arc::new(Mutex::new(shared)) }
    }

    async fn play(&self) -> Result<(), String> {
        for name in WORKERS {
            drop(self.env.spawn(format!("supervisor {name}"), self.clone().supervise(name)));
        }
        self.schedule_steps_of_the_wall_time();
        self.queue.add(FAILING_KEY);
        self.shared().model.add(self.env.now(), FAILING_KEY, Priority::NORMAL);
        let end = self.env.now() + SPAN;
        while self.env.now() < end {
            let pause = [0, 0, 1, 10, 300, 3_000][self.below(6)];
            self.env.sleep(Duration::from_millis(pause)).await;
            self.step();
            self.check_invariants();
            self.result()?;
        }
        Ok(())
    }

    fn schedule_steps_of_the_wall_time(&self) {
        for fault in &self.plan.faults {
            if let FaultAction::WallStep { by_ms } = fault.action {
                let (env, at) = (self.env.clone(), Instant::ORIGIN + Duration::from_millis(fault.from_ms));
                drop(self.env.spawn("wall step", async move {
                    env.sleep_until(at).await;
                    env.step_wall(SignedDuration::from_millis(by_ms));
                }));
            }
        }
    }

    /// Performs the next operation of a client of the queue.
    fn step(&self) {
        let key = self.key();
        let delay = Duration::from_millis([0, 1, 20, 900, 9_000][self.below(5)]);
        match self.below(16) {
            0..=5 => self.add(key),
            6..=9 => self.add_after(key, delay),
            10..=11 => self.add_rate_limited(key),
            12 => self.cancel(key),
            14 if self.shared().model.order() == Order::Priorities => self.add_with_priority(key),
            15 if self.shared().model.order() == Order::Priorities => self.flood(),
            13 => self.queue.forget(&key),
            // Adds more keys than there are workers.
            _ => (1..KEYS).for_each(|key| self.add(key)),
        }
    }

    fn add(&self, key: Key) {
        let mut shared = self.shared();
        let meek = key == LOW_PRIORITY_KEY && shared.model.order() == Order::Priorities;
        let priority = if meek { Priority::LOW } else { Priority::NORMAL };
        self.queue.add_with(key, AddOptions::now().priority(priority));
        shared.model.add(self.env.now(), key, priority);
    }

    /// Adds more urgent keys than there are workers, each of which is added again during its reconcile, and one key
    /// that must wait for all of them.
    fn flood(&self) {
        self.shared().flood = self.env.now() + FLOOD;
        self.add(LOW_PRIORITY_KEY);
        (1..LOW_PRIORITY_KEY).for_each(|key| self.add_with(key, Priority::HIGH));
    }

    fn add_with_priority(&self, key: Key) {
        let priority = [Priority::LOW, Priority::HIGH][self.below(2)];
        self.add_with(key, priority);
    }

    fn add_with(&self, key: Key, priority: Priority) {
        let mut shared = self.shared();
        self.queue.add_with(key, AddOptions::now().priority(priority));
        shared.model.add(self.env.now(), key, priority);
    }

    fn add_after(&self, key: Key, delay: Duration) {
        let mut shared = self.shared();
        self.queue.add_after(key, delay);
        shared.model.add_after(self.env.now(), key, delay, true);
    }

    fn add_rate_limited(&self, key: Key) {
        let mut shared = self.shared();
        let delay = INITIAL_BACKOFF.saturating_mul(1 << self.queue.attempts(&key).min(20)).min(LAST_RETRY);
        self.queue.add_rate_limited(key);
        shared.model.add_after(self.env.now(), key, delay, false);
    }

    fn cancel(&self, key: Key) {
        let mut shared = self.shared();
        let (cancelled, expected) =
            (self.queue.cancel_delayed(&key), shared.model.cancel(self.env.now(), key));
        shared.check(cancelled == expected, || {
            format!("cancelling {key} returned {cancelled}, not {expected}")
        });
    }

    /// Performs the checks that hold at any time.
    fn check_invariants(&self) {
        let (now, length) = (self.env.now(), self.queue.len());
        let mut shared = self.shared();
        let ready = shared.model.ready(now);
        shared.check(length == ready, || format!("{length} keys are ready, and should be {ready}"));
        let waits = shared.model.waits(now);
        let idle = shared.idle.values().min().map_or(Duration::ZERO, |since| now - *since);
        shared.check(idle < MAX_DEQUEUE_DELAY || waits < MAX_DEQUEUE_DELAY, || {
            format!("a key waits for {waits:?} although a worker has been idle for {idle:?}")
        });
    }

    /// Restarts a worker when it ends, and kills it at the times in the plan.
    async fn supervise(self, name: &'static str) {
        let mut crashes: Vec<_> = self.plan.faults.iter().filter(|it| it.applies_to(name)).collect();
        crashes.retain(|fault| fault.action == FaultAction::Crash);
        crashes.sort_by_key(|fault| fault.from_ms);
        let at = |ms: u64| Instant::ORIGIN + Duration::from_millis(ms);
        let mut crashes =
            crashes.iter().map(|fault| (at(fault.from_ms), at(fault.until_ms))).collect::<Vec<_>>();
        crashes.reverse();
        while !self.shared().stopping {
            let worker = self.env.spawn(format!("worker {name}"), self.clone().work());
            let next = crashes.pop().filter(|(from, _)| *from >= self.env.now());
            match next {
                Some((from, until)) => {
                    self.kill_at(&worker, from).await;
                    drop(worker.await);
                    self.env.sleep_until(until).await;
                }
                None => drop(worker.await),
            }
            self.env.sleep(Duration::from_millis(10)).await;
        }
    }

    async fn kill_at(&self, worker: &Task<()>, at: Instant) {
        while self.env.now() < at && !worker.is_finished() {
            self.env.sleep(Duration::from_millis(50).min(at - self.env.now())).await;
        }
        worker.abort();
    }

    /// Dequeues and processes keys until the queue is shut down.
    async fn work(self) {
        while let Some(item) = self.get().await {
            let key = *item.key();
            let holding = self.hold(item);
            let outcome = catch_panic(self.reconcile(key)).await;
            match outcome {
                Ok(true) => self.queue.forget(&key),
                Ok(false) | Err(_) => self.add_rate_limited(key),
            }
            drop(holding);
            self.check_invariants();
        }
    }

    async fn get(&self) -> Option<Item<Key>> {
        loop {
            let _idle = Idle::new(self);
            if self.below(4) > 0 {
                return self.queue.get().await;
            }
            // A worker that cancels its wait must not lose a key.
            let timeout = Duration::from_millis([0, 1, 200][self.below(3)]);
            if let Ok(item) = self.env.timeout(timeout, self.queue.get()).await {
                return item;
            }
        }
    }

    fn hold(&self, item: Item<Key>) -> DequeuedItem {
        let (now, mut shared) = (self.env.now(), self.shared());
        let violation = shared.model.taken(now, *item.key());
        shared.violations.extend(violation);
        shared.dequeued += 1;
        DequeuedItem { world: self.clone(), item: Some(item) }
    }

    async fn reconcile(&self, key: Key) -> bool {
        let dequeued = self.shared().dequeued;
        let strikes = |action: &FaultAction| matches!(action, FaultAction::CrashAtWrite { write, .. } if *write * 5 == dequeued);
        let panics = self.plan.faults.iter().any(|fault| strikes(&fault.action));
        let takes = [0, 0, 1, 30, 400][self.below(5)];
        let always_succeed = |world: &World| world.shared().always_succeed;
        if !always_succeed(self) && self.below(6) == 0 {
            self.add(key);
        }
        if (1..LOW_PRIORITY_KEY).contains(&key) && self.env.now() < self.shared().flood {
            self.add_with(key, Priority::HIGH);
        }
        self.env.sleep(Duration::from_millis(takes)).await;
        if !always_succeed(self) && self.below(6) == 0 {
            self.add_after(key, Duration::from_millis(700));
        }
        if panics {
            std::panic::panic_any(ON_PURPOSE);
        }
        key != FAILING_KEY && (always_succeed(self) || self.below(8) > 0)
    }

    /// Checks that no key is lost: all added keys have run, or run before the queue is drained.
    async fn conclude(self) -> Result<u64, String> {
        self.shared().always_succeed = true;
        if self.below(2) == 0 {
            // All delayed keys become due, except the one that always fails.
            self.env.sleep(LAST_RETRY * 2).await;
            self.check_invariants();
            let left = self.shared().model.left_but(FAILING_KEY);
            if !left.is_empty() {
                return Err(format!("{left:?} were added and never ran"));
            }
        } else {
            (1..KEYS).for_each(|key| self.add(key));
        }
        self.shut_down();
        self.add(1);
        self.env
            .timeout(SPAN * 2, self.queue.wait_drained())
            .await
            .map_err(|_| "the queue is never drained".to_owned())?;
        let left = self.shared().model.left();
        if !left.is_empty() {
            return Err(format!("the queue reports that it is drained, but {left:?} are queued or held"));
        }
        if self.queue.get().await.is_some() {
            return Err("a drained queue returned a key".to_owned());
        }
        self.result()?;
        self.env.sleep(SPAN).await;
        let tasks = self.env.tasks();
        match tasks.as_slice() {
            [] => Ok(self.shared().dequeued),
            tasks => Err(format!("workers still wait after the shutdown of the queue: {tasks:?}")),
        }
    }

    fn shut_down(&self) {
        let mut shared = self.shared();
        self.queue.shut_down();
        shared.model.shut_down(self.env.now());
        shared.stopping = true;
    }

    fn result(&self) -> Result<(), String> {
        self.shared().violations.first().map_or(Ok(()), |first| Err(first.clone()))
    }

    fn below(&self, n: u64) -> usize {
        usize::try_from(self.shared().rng.below(n)).unwrap_or_default()
    }

    /// Returns a key that can succeed.
    fn key(&self) -> Key {
        1 + Key::try_from(self.below(u64::from(KEYS) - 1)).unwrap_or_default()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn check(&mut self, holds: bool, violation: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(violation());
        }
    }
}

/// Guard of an idle worker.
struct Idle<'a> {
    world: &'a World,
    number: u64,
}

impl<'a> Idle<'a> {
    fn new(world: &'a World) -> Self {
        let (now, mut shared) = (world.env.now(), world.shared());
        shared.waits += 1;
        let number = shared.waits;
        shared.idle.insert(number, now);
        Idle { world, number }
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.world.shared().idle.remove(&self.number);
    }
}
