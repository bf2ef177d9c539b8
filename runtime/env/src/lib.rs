//! Access to clocks, timers, wall time, randomness and tasks. Other crates use them only through this crate.
//!
//! An [`Env`] is a cheap value that constructors pass on, one per running instance and incarnation. Code that uses only
//! its `Env` runs unchanged on a real machine and in a simulation, where one seed replays one history.
//!
//! Guarantees (`docs/guarantees.md` lists conditions, limits and tests):
//! - A sleep never ends early in local time, at any rate of the clock.
//! - The system clock advances while the machine sleeps, so deadlines can pass during sleep.
//! - A stream of random numbers depends only on its own name: a draw from one stream does not affect other streams.
//! - Every task is tracked by name from `spawn` until its destructors have run.
//! - While an instance is [paused](Env::pause), its tasks are not polled and time advances. Wakeups during the pause
//!   are not lost.
//! - While an instance is [suspended](Env::suspend), its monotonic clock does not advance either. Its wall time does.
//! - [`Env::kill`] first rejects new tasks, then aborts tasks in spawn order. Tasks spawned later never run.
//! - Tasks on a [dedicated runtime](Env::dedicated_runtime) are polled on time, regardless of the load of other tasks.
//! - A panic in a task does not affect other tasks, and its message is returned.
//! - Futures that wait for a channel or for the end of tasks wake in registration order.
//!
//! There is no global state (two Envs in one process are independent), no detached task, and no iteration order that
//! depends on a randomly seeded hash.

mod clock;
mod dedicated_runtime;
mod group;
mod instant;
mod panics;
mod poll_monitor;
mod rng;
mod suspension;
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
pub use crate::suspension::Suspension;
pub use crate::tasks::{Pause, Task, TaskError};

use crate::clock::Clock;
use crate::suspension::SuspensionTotal;
use crate::tasks::Tasks;
use crate::wall_steps::WallSteps;

/// Error of [`Env::timeout`]: the time limit passed before the future completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time limit passed")]
pub struct Elapsed;

/// Access to time, randomness and tasks for one instance. Cloning is cheap and refers to the same instance.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use windlass_env::Env;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let env = Env::virtual_time(7);
/// let (begun, sleeper) = (env.now(), env.clone());
/// let task = env.spawn("sleeper", async move { sleeper.sleep(Duration::from_secs(3600)).await });
/// // Passes without waiting: the virtual clock advances while every task waits.
/// assert_eq!(task.await, Ok(()));
/// assert_eq!(env.now().saturating_duration_since(begun), Duration::from_secs(3600));
/// # }
/// ```
#[derive(Clone)]
pub struct Env {
    clock: Clock,
    seed: u64,
    identity: Arc<Identity>,
    streams: Arc<Mutex<BTreeSet<String>>>,
    tasks: Arc<Tasks>,
    wall_steps: WallSteps,
    suspension: SuspensionTotal,
    poll_monitor: Option<PollMonitor>,
}

#[derive(Debug)]
struct Identity {
    instance: String,
    incarnation: u64,
}

impl Env {
    /// Creates an Env for the machine: `CLOCK_BOOTTIME`, system wall time, and randomness seeded by the operating
    /// system.
    ///
    /// # Panics
    /// If the operating system returns no random bytes, which does not happen on a booted kernel.
    pub fn system(instance: &str) -> Env {
        Env::build(Clock::system(), rng::operating_system_seed(), instance, 0)
    }

    /// Creates an Env on tokio's clock, which tests pause. Randomness and wall time depend only on `seed`.
    ///
    /// Time starts at zero at this call. The wall time starts at 2026-01-01T00:00:00Z and advances with the clock. Call
    /// this inside the runtime whose clock is used: outside of a runtime, readings do not follow its pause.
    pub fn virtual_time(seed: u64) -> Env {
        Env::build(Clock::virtual_time(), seed, "main", 0)
    }

    /// Returns this Env with a clock that runs `numerator / denominator` times as fast as true time.
    ///
    /// The rate applies to readings and sleeps, counted from the clock's origin.
    ///
    /// # Panics
    /// On the system clock, whose rate cannot be set, and if either number is zero.
    #[must_use]
    pub fn with_rate(self, numerator: u32, denominator: u32) -> Env {
        Env { clock: self.clock.with_rate(numerator, denominator), ..self }
    }

    /// Returns this Env with its wall time shifted by `offset`. [`Env::now`] and timers are not affected.
    ///
    /// # Panics
    /// On the system clock, whose wall time cannot be set.
    #[must_use]
    pub fn with_wall_offset(self, offset: SignedDuration) -> Env {
        let (wall_steps, suspension) = (WallSteps::default(), SuspensionTotal::default());
        Env { clock: self.clock.with_wall_offset(offset), wall_steps, suspension, ..self }
    }

    /// Steps the wall time of this machine by `by`, for every clone and every later incarnation, like an operator or a
    /// time service. [`Env::now`] and timers are not affected.
    ///
    /// # Panics
    /// On the system clock, whose wall time cannot be set.
    pub fn step_wall(&self, by: SignedDuration) {
        assert!(self.clock.is_virtual(), "cannot step the wall time of the system clock");
        self.wall_steps.step(by);
    }

    /// Returns this Env with a monitor that counts the polls of its tasks and of those of later incarnations.
    #[must_use]
    pub fn with_poll_monitor(self, poll_monitor: &PollMonitor) -> Env {
        let tasks = Arc::new(Tasks::under(Some(poll_monitor.clone())));
        Env { poll_monitor: Some(poll_monitor.clone()), tasks, ..self }
    }

    /// Returns an Env for incarnation `n` of `instance`, with the same clock, rate and wall offset, but separate tasks
    /// and random streams.
    #[must_use]
    pub fn with_incarnation(&self, instance: &str, n: u64) -> Env {
        let tasks = Arc::new(Tasks::under(self.poll_monitor.clone()));
        let (wall_steps, poll_monitor) = (self.wall_steps.clone(), self.poll_monitor.clone());
        let suspension = self.suspension.clone();
        Env { tasks, wall_steps, suspension, poll_monitor, ..Env::build(self.clock, self.seed, instance, n) }
    }

    /// Returns the number of this incarnation.
    pub fn incarnation(&self) -> u64 {
        self.identity.incarnation
    }

    /// Returns the name of this instance.
    pub fn instance(&self) -> &str {
        &self.identity.instance
    }

    /// Returns the local monotonic time.
    #[inline]
    pub fn now(&self) -> Instant {
        let now = self.clock.now();
        if self.clock.is_virtual() { now - self.suspension.total() } else { now }
    }

    /// Returns the wall time. Use it for timestamps that people and other machines read, not for durations or
    /// deadlines.
    pub fn wall(&self) -> Timestamp {
        let wall = self.clock.wall();
        let steps = self.wall_steps.total();
        // Saturates at the limits of `Timestamp`.
        let end = if steps.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
        if steps.is_zero() { wall } else { wall.checked_add(steps).unwrap_or(end) }
    }

    /// Completes after `duration` of local time since this call, never earlier.
    ///
    /// # Cancel safety
    /// Dropping the future disarms the timer.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.sleep_until(self.now() + duration)
    }

    /// Completes when [`Env::now`] reaches `at`, never earlier. Completes immediately if it already has.
    ///
    /// A deadline that is not representable (such as `now + Duration::MAX`) is never reached, and arms no timer.
    ///
    /// # Cancel safety
    /// Dropping the future disarms the timer.
    pub fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.suspension.clone().sleep_until(self.clock, at)
    }

    /// Returns the output of `future` if it completes within `limit` of local time. A future that is ready when the
    /// limit passes still succeeds.
    ///
    /// # Errors
    /// [`Elapsed`] if the limit passed first; `future` is dropped.
    ///
    /// # Cancel safety
    /// Same as `future`.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, Elapsed> {
        let sleep = self.sleep(limit);
        match future::select(pin!(future), pin!(sleep)).await {
            Either::Left((output, _)) => Ok(output),
            Either::Right(((), _)) => Err(Elapsed),
        }
    }

    /// Returns the random stream called `name`. A controller gets it once, in `setup`, and shares it between its
    /// reconciles: `Mutex::new(setup.env().rng("site names"))`.
    ///
    /// # Panics
    /// If this Env has already returned `name`: two owners of one stream would generate the same numbers.
    pub fn rng(&self, name: &str) -> Rng {
        let fresh = self.streams.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        assert!(
            fresh,
            "random stream {name:?} is already in use in {self:?}; use another name, or get it once, such as in `setup`, \
             and share it in a Mutex"
        );
        Rng::stream(self.seed, &self.identity.instance, self.identity.incarnation, name)
    }

    /// Releases the name of a random stream whose owner was dropped, to free its memory. The next owner generates the
    /// same numbers again, so do not release names that can be reused.
    pub fn release_rng(&self, name: &str) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Returns the number of random streams that have owners.
    pub fn rng_stream_count(&self) -> usize {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns a seed for hash tables whose keys are untrusted input. It is unpredictable on a real machine and depends
    /// only on the seed in a simulation. Several tables can share a name.
    pub fn hash_seed(&self, name: &str) -> u64 {
        let name = format!("hash seed of {name}");
        Rng::stream(self.seed, &self.identity.instance, self.identity.incarnation, &name).next_u64()
    }

    /// Spawns `future` as a task, tracked as `name` until its destructors have run.
    ///
    /// After [`Env::kill`] the future is dropped without a poll and the [`Task`] returns [`TaskError::Aborted`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn<F>(&self, name: impl Into<String>, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Tasks::spawn(&self.tasks, name.into(), future)
    }

    /// Returns `true` until [`Env::kill`] is called.
    pub fn is_alive(&self) -> bool {
        self.tasks.open()
    }

    /// Stops this instance like a crash: rejects new tasks, then aborts every task in spawn order.
    ///
    /// An aborted task is not polled again, except the task that calls this, which runs to its next await point.
    /// Destructors run before virtual time advances. Further calls have no effect.
    pub fn kill(&self) {
        self.tasks.kill();
    }

    /// Stops this instance like SIGSTOP, until the returned value and every other pause are dropped. Its tasks are not
    /// polled, not even for timers. Clocks advance, and other instances can spawn, wake and [kill](Env::kill) its
    /// tasks. After the pause, woken tasks are polled in the order of their first wakeup. A task that calls this itself
    /// runs to its next await point.
    ///
    /// # Panics
    /// On the system clock: only the operating system can stop a real process.
    pub fn pause(&self) -> Pause {
        assert!(self.clock.is_virtual(), "cannot pause a real process: use virtual time");
        Tasks::pause(&self.tasks)
    }

    /// Suspends this instance like a hypervisor that pauses its machine, until the returned value is dropped. Like
    /// [`pause`](Self::pause), but [`Env::now`] and timers also stop and continue from the same reading, in this and
    /// every later incarnation, while the wall time advances. If the instance is killed during the suspension, its
    /// clock is not changed.
    ///
    /// # Panics
    /// On the system clock: only a hypervisor can suspend a real machine.
    pub fn suspend(&self) -> Suspension {
        assert!(self.clock.is_virtual(), "cannot suspend a real machine: use virtual time");
        Suspension::new(self.clock, self.suspension.clone(), &self.tasks)
    }

    /// Returns the names of the running tasks, in spawn order.
    pub fn tasks(&self) -> Vec<String> {
        self.tasks.names()
    }

    /// Waits until this Env has no running task. Never completes inside a task of this Env.
    ///
    /// # Cancel safety
    /// Cancel safe.
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
            suspension: SuspensionTotal::default(),
            poll_monitor: None,
        }
    }
}

impl fmt::Debug for Env {
    /// Omits the seed: on a real machine every identifier depends on it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("instance", &self.identity.instance)
            .field("incarnation", &self.identity.incarnation)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
