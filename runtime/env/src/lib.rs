//! The only door to clocks, timers, wall time, randomness and tasks.
//!
//! An [`Env`] is a cheap value handed down through constructors, one per running instance and incarnation. Code
//! that reaches the world only through it runs unchanged on a real machine and inside a simulation, where one seed
//! replays one history.
//!
//! Guarantees (`docs/guarantees.md` lists conditions, limits and tests):
//! - No sleep ends early in local time, whatever the rate of the clock.
//! - The system clock also runs while the machine sleeps, so a deadline that passed meanwhile has passed.
//! - A stream of random numbers depends on its own name only: draws on one stream never shift another.
//! - Every task is tracked by name from `spawn` until its destructors have run.
//! - While an instance is [paused](Env::pause) no task of it is polled, and time continues; what woke them meanwhile is not
//!   lost.
//! - While an instance is [suspended](Env::suspend) its monotonic clock does not advance either; its wall time does.
//! - [`Env::kill`] first closes the gate, then stops tasks in the order they were spawned; nothing spawned later runs.
//! - What is put [aside](Env::aside) has its turns and timers on time, whatever the load of all other tasks.
//! - A panicking task takes down nothing else, and its message is returned.
//! - Whoever waits, for a cell or for the end of tasks, wakes in registration order.
//!
//! What it refuses: global state (two Envs in one process know nothing of each other), detached tasks, and any
//! order that comes from a randomly seeded hash.

mod clock;
mod dedicated_runtime;
mod group;
mod instant;
mod panics;
mod poll_monitor;
mod rng;
mod standstill;
mod tasks;
#[cfg(test)]
mod tests;
mod waiters;
mod wall_steps;
pub mod watch_channel;

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{self, Either};
use jiff::{SignedDuration, Timestamp};

pub use crate::dedicated_runtime::DedicatedRuntime;
pub use crate::group::TaskGroup;
pub use crate::instant::Instant;
pub use crate::panics::{catch_panic, catch_panic_sync};
pub use crate::poll_monitor::PollMonitor;
pub use crate::rng::Rng;
pub use crate::standstill::Suspension;
pub use crate::tasks::{Pause, Task, TaskError};

use crate::clock::Clock;
use crate::standstill::Standstill;
use crate::tasks::Tasks;
use crate::wall_steps::WallSteps;

/// The time limit of [`Env::timeout`] passed before the future completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time limit passed")]
pub struct Elapsed;

/// One instance's door to time, chance and tasks. Cloning is cheap and yields the same door.
#[derive(Clone)]
pub struct Env {
    clock: Clock,
    seed: u64,
    identity: Arc<Identity>,
    streams: Arc<Mutex<BTreeSet<String>>>,
    tasks: Arc<Tasks>,
    wall_steps: WallSteps,
    standstill: Standstill,
    vigil: Option<PollMonitor>,
}

#[derive(Debug)]
struct Identity {
    instance: String,
    incarnation: u64,
}

impl Env {
    /// The machine's own: `CLOCK_BOOTTIME`, its wall time, and randomness seeded by the operating system.
    ///
    /// # Panics
    /// If the operating system hands out no random bytes, which a kernel that has booted does not do.
    pub fn system(instance: &str) -> Env {
        Env::build(Clock::system(), rng::operating_system_seed(), instance, 0)
    }

    /// Time over tokio's clock, which a test runs paused, with randomness and wall time that follow from `seed`.
    ///
    /// Time starts at zero when this is called. The wall time starts at 2026-01-01T00:00:00Z and advances with the
    /// clock. Call it inside the runtime whose clock is meant: outside of one, readings do not follow the pause.
    pub fn virtual_time(seed: u64) -> Env {
        Env::build(Clock::virtual_time(), seed, "main", 0)
    }

    /// The same Env with a clock that runs `numerator / denominator` times as fast as true time.
    ///
    /// The rate acts on readings and on sleeps alike, counted from the clock's origin.
    ///
    /// # Panics
    /// On the system clock, whose rate is not ours to set, and if either number is zero.
    #[must_use]
    pub fn with_rate(self, numerator: u32, denominator: u32) -> Env {
        Env { clock: self.clock.with_rate(numerator, denominator), ..self }
    }

    /// The same Env with its wall time set off by `offset`. [`Env::now`] and timers are untouched.
    ///
    /// # Panics
    /// On the system clock, whose wall time is not ours to set.
    #[must_use]
    pub fn with_wall_offset(self, offset: SignedDuration) -> Env {
        let (wall_steps, standstill) = (WallSteps::default(), Standstill::default());
        Env { clock: self.clock.with_wall_offset(offset), wall_steps, standstill, ..self }
    }

    /// Steps this machine's wall time by `by`, for every clone and every later incarnation, as an operator or a time
    /// service does. [`Env::now`] and timers are untouched.
    ///
    /// # Panics
    /// On the system clock, whose wall time is not ours to set.
    pub fn step_wall(&self, by: SignedDuration) {
        assert!(self.clock.is_virtual(), "the system clock's wall time is not ours to step");
        self.wall_steps.step(by);
    }

    /// The same Env, and every incarnation made of it, with its tasks' polls counted by `poll_monitor`.
    #[must_use]
    pub fn with_poll_monitor(self, vigil: &PollMonitor) -> Env {
        let tasks = Arc::new(Tasks::under(Some(vigil.clone())));
        Env { vigil: Some(vigil.clone()), tasks, ..self }
    }

    /// A fresh Env of the same world for the `n`th life of `instance`: the same clock, rate and wall offset, but
    /// its own tasks, its own gate and its own streams.
    #[must_use]
    pub fn with_incarnation(&self, instance: &str, n: u64) -> Env {
        let tasks = Arc::new(Tasks::under(self.vigil.clone()));
        let (wall_steps, vigil) = (self.wall_steps.clone(), self.vigil.clone());
        let standstill = self.standstill.clone();
        Env { tasks, wall_steps, standstill, vigil, ..Env::build(self.clock, self.seed, instance, n) }
    }

    /// Which life of its instance this is.
    pub fn incarnation(&self) -> u64 {
        self.identity.incarnation
    }

    /// The name this instance was given.
    pub fn instance(&self) -> &str {
        &self.identity.instance
    }

    /// The local monotonic time.
    pub fn now(&self) -> Instant {
        let now = self.clock.now();
        if self.clock.is_virtual() { now - self.standstill.total() } else { now }
    }

    /// The wall time: for timestamps that people and other machines read, never for measuring or for deadlines.
    pub fn wall(&self) -> Timestamp {
        let wall = self.clock.wall();
        let steps = self.wall_steps.total();
        // Saturates at the ends of the calendar.
        let end = if steps.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
        if steps.is_zero() { wall } else { wall.checked_add(steps).unwrap_or(end) }
    }

    /// Completes once `duration` of local time has passed since this call, never earlier.
    ///
    /// # Cancel safety
    /// Dropping the future disarms the timer.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.sleep_until(self.now() + duration)
    }

    /// Completes once [`Env::now`] has reached `at`, never earlier, and without waiting if it already has.
    ///
    /// A deadline too far away to be told from never (such as `now + Duration::MAX`) never comes, and arms no timer.
    ///
    /// # Cancel safety
    /// Dropping the future disarms the timer.
    pub fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.standstill.clone().sleep_until(self.clock, at)
    }

    /// The output of `future`, if it completes within `limit` of local time. A future that is ready when the limit
    /// passes still wins.
    ///
    /// # Errors
    /// [`Elapsed`] when the limit passed first; `future` is dropped.
    ///
    /// # Cancel safety
    /// As that of `future`.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, Elapsed> {
        let sleep = self.sleep(limit);
        match future::select(pin!(future), pin!(sleep)).await {
            Either::Left((output, _)) => Ok(output),
            Either::Right(((), _)) => Err(Elapsed),
        }
    }

    /// The stream of random numbers called `name`.
    ///
    /// # Panics
    /// If this Env has already handed out `name`: two owners of one stream would draw the same numbers.
    pub fn rng(&self, name: &str) -> Rng {
        let fresh = self.streams.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        assert!(fresh, "the random stream {name:?} is taken twice in {self:?}");
        Rng::stream(self.seed, &self.identity.instance, self.identity.incarnation, name)
    }

    /// Forgets that the stream called `name` was handed out: its owner is gone, and the name takes no room any more. Who
    /// takes it again draws the same numbers again, so names of things that come back had better not.
    pub fn release_rng(&self, name: &str) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// How many streams of random numbers have owners.
    pub fn rng_stream_count(&self) -> usize {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// A seed for hash tables whose keys strangers choose: on a real machine nobody can guess it, in a simulation the
    /// same seed yields the same. Any number of tables may share a name.
    pub fn hash_seed(&self, name: &str) -> u64 {
        let name = format!("hash seed of {name}");
        Rng::stream(self.seed, &self.identity.instance, self.identity.incarnation, &name).next_u64()
    }

    /// Runs `future` as its own task, tracked as `name` until its destructors have run.
    ///
    /// After [`Env::kill`] the future is dropped unpolled and the [`Task`] says [`TaskError::Aborted`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn<F>(&self, name: impl Into<String>, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Tasks::spawn(&self.tasks, name.into(), future)
    }

    /// Whether [`Env::kill`] has not been called.
    pub fn alive(&self) -> bool {
        self.tasks.open()
    }

    /// Stops this instance as a crash would: closes the gate, then aborts every task in spawn order.
    ///
    /// No aborted task is polled again, save the one that calls this, which runs to its next await. Destructors run
    /// before virtual time moves. Calling it twice is calling it once.
    pub fn kill(&self) {
        self.tasks.kill();
    }

    /// Stops this instance as SIGSTOP does, until what this returns is dropped, and with it every other pause: no task of
    /// it is polled meanwhile, not even to see a timer, while clocks continue and others can spawn, wake and
    /// [kill](Env::kill). Whoever was woken in that time then has its turn, in the order of the first waking. A task
    /// that calls this itself runs on to its next await.
    ///
    /// # Panics
    /// On the system clock: a real process is stopped by its machine.
    pub fn pause(&self) -> Pause {
        assert!(self.clock.is_virtual(), "a real process is stopped by its machine");
        Tasks::pause(&self.tasks)
    }

    /// Suspends this instance as a hypervisor does that pauses its machine, until the returned value is dropped. As
    /// [`pause`](Self::pause), and afterwards [`Env::now`] and timers continue where they stopped, in this life and
    /// every later one, while the wall time has advanced. An instance that is killed meanwhile leaves its clock running.
    ///
    /// # Panics
    /// On the system clock: a real machine is suspended by its hypervisor.
    pub fn suspend(&self) -> Suspension {
        assert!(self.clock.is_virtual(), "a real machine is suspended by its hypervisor");
        Suspension::new(self.clock, self.standstill.clone(), &self.tasks)
    }

    /// The names of the living tasks, in spawn order.
    pub fn tasks(&self) -> Vec<String> {
        self.tasks.names()
    }

    /// Completes when no task of this Env lives. Never completes inside one of its own tasks.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn wait_for_tasks(&self) {
        self.tasks.ended().await;
    }

    fn build(clock: Clock, seed: u64, instance: &str, incarnation: u64) -> Env {
        Env {
            clock,
            seed,
            identity: Arc::new(Identity { instance: instance.to_owned(), incarnation }),
            streams: Arc::default(),
            tasks: Arc::default(),
            wall_steps: WallSteps::default(),
            standstill: Standstill::default(),
            vigil: None,
        }
    }
}

impl fmt::Debug for Env {
    /// Leaves the seed out: on a real machine it is what every identifier follows from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("instance", &self.identity.instance)
            .field("incarnation", &self.identity.incarnation)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
