//! Measures how long each task of an informer has been in one poll.
//!
//! A poll takes little time unless user code (index functions, handlers, mappers, predicates) does not return. Then the
//! task makes no progress, and only a restart of the process helps. The resolution is one millisecond; the tasks take
//! no lock.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use windlass_env::{Env, Instant};

/// The start times of the polls in progress. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct PollTimers(Arc<Mutex<Vec<Weak<AtomicU64>>>>);

/// The stored form of no time: a task that is not being polled, or a reflector that has not started.
pub(crate) const NO_TIME: u64 = u64::MAX;

/// Converts an instant to its stored form, in milliseconds; never returns [`NO_TIME`].
pub(crate) fn millis(at: Instant) -> u64 {
    u64::try_from(at.since_origin().as_millis()).unwrap_or(NO_TIME - 1)
}

impl PollTimers {
    /// Wraps a future so that its polls are timed.
    pub(crate) fn timed<F: Future>(&self, env: &Env, future: F) -> impl Future<Output = F::Output> + use<F> {
        let since = Arc::new(AtomicU64::new(NO_TIME));
        {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|one| one.strong_count() > 0);
            all.push(Arc::downgrade(&since));
        }
        let env = env.clone();
        async move {
            let mut future = pin!(future);
            poll_fn(|context| {
                since.store(millis(env.now()), Ordering::Relaxed);
                let polled = future.as_mut().poll(context);
                since.store(NO_TIME, Ordering::Relaxed);
                polled
            })
            .await
        }
    }

    /// Returns how long the longest poll in progress has lasted.
    pub(crate) fn longest(&self, now: Instant) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = all.iter().filter_map(|one| Some(one.upgrade()?.load(Ordering::Relaxed)));
        let since = under_way.filter(|since| *since != NO_TIME).min()?;
        Some(Duration::from_millis(millis(now).saturating_sub(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn task_is_timed_only_during_polls() {
        let (env, polls) = (Env::virtual_time(1), PollTimers::default());
        let hour = Duration::from_secs(3_600);
        let (observed, clock) = (polls.clone(), env.clone());
        let task = env.spawn(
            "task",
            polls.timed(&env, async move {
                let first = observed.longest(clock.now() + hour);
                clock.sleep(hour).await;
                (first, observed.longest(clock.now() + hour))
            }),
        );
        env.sleep(hour / 2).await;
        assert_eq!(polls.longest(env.now() + hour), None, "the task waits");
        assert_eq!(task.await.expect("no panic"), (Some(hour), Some(hour)), "each poll is timed separately");
        assert_eq!(polls.longest(env.now() + hour), None, "the task has completed");
    }

    #[tokio::test(start_paused = true)]
    async fn panicked_task_is_no_longer_timed() {
        let (env, polls) = (Env::virtual_time(1), PollTimers::default());
        let task = env.spawn("task", polls.timed(&env, async { panic!("a defect") }));
        assert!(task.await.is_err());
        assert_eq!(polls.longest(env.now() + Duration::from_secs(3_600)), None);
    }
}
