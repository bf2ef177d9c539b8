//! For how long each task of an informer has been in one poll.
//!
//! A poll takes a moment, unless code of others is called in it (index functions, handlers, mappers, predicates) that does
//! not return: then nothing of that task continues, and only a new process mends it. It is told by the millisecond, without a
//! lock on the way of the tasks.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use windlass_env::{Env, Instant};

use crate::reflector::millis;

/// Since when the polls of tasks last that are under way. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct PollTimers(Arc<Mutex<Vec<Weak<AtomicU64>>>>);

/// Of a task that is not being polled.
const AT_REST: u64 = u64::MAX;

impl PollTimers {
    /// The same future, whose polls are timed for as long as it lives.
    pub(crate) fn timed<F: Future>(&self, env: &Env, future: F) -> impl Future<Output = F::Output> + use<F> {
        let since = Arc::new(AtomicU64::new(AT_REST));
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
                since.store(AT_REST, Ordering::Relaxed);
                polled
            })
            .await
        }
    }

    /// For how long the longest poll lasts that is under way now.
    pub(crate) fn longest(&self, now: Instant) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = all.iter().filter_map(|one| Some(one.upgrade()?.load(Ordering::Relaxed)));
        let since = under_way.filter(|since| *since != AT_REST).min()?;
        Some(Duration::from_millis(millis(now).saturating_sub(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn task_is_timed_while_it_is_polled_and_neither_between_two_polls_nor_after_its_end() {
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
        assert_eq!(polls.longest(env.now() + hour), None, "it waits");
        assert_eq!(task.await.expect("no panic"), (Some(hour), Some(hour)), "each poll counts anew");
        assert_eq!(polls.longest(env.now() + hour), None, "it has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_panicked_is_not_in_a_poll_for_ever() {
        let (env, polls) = (Env::virtual_time(1), PollTimers::default());
        let task = env.spawn("task", polls.timed(&env, async { panic!("a defect") }));
        assert!(task.await.is_err());
        assert_eq!(polls.longest(env.now() + Duration::from_secs(3_600)), None);
    }
}
