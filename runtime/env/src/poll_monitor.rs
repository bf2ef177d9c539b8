//! Counts polls to detect tasks that keep a simulation busy without letting virtual time advance.
//!
//! Paused time advances only when every task waits. A task that is always ready, or two tasks that wake each other,
//! stop it, and no timer would ever report this. The monitor reports it after a million polls without an advance. A
//! poll that never returns must be detected from another thread: [`PollMonitor::polled`] then stays constant, and
//! [`PollMonitor::polling`] returns the task.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::watch_channel::{Receiver, Sender, channel};

/// Number of polls at one virtual time that are still considered progress. The busiest point of a valid simulation,
/// thousands of objects delivered to a dozen caches, takes some ten thousand.
const LIMIT: u64 = 1_000_000;

/// Number of polls between readings of the clock: reading it at every poll would cost more than most polls.
const POLLS_PER_CLOCK_READ: u64 = 1024;

/// Counts the polls of all tasks whose Env has this [monitor](crate::Env::with_poll_monitor). Clones share the counts.
#[derive(Clone, Debug)]
pub struct PollMonitor {
    counts: Arc<Mutex<Counts>>,
    livelocked: Sender<Option<Arc<str>>>,
}

#[derive(Debug)]
struct Counts {
    polls: u64,
    /// The last reading of the clock, and the poll count at its last change.
    at: tokio::time::Instant,
    moved: u64,
    task: Option<Arc<str>>,
}

impl PollMonitor {
    /// Creates a monitor for the current runtime.
    pub fn new() -> Self {
        let counts = Counts { polls: 0, at: tokio::time::Instant::now(), moved: 0, task: None };
        PollMonitor { counts: Arc::new(Mutex::new(counts)), livelocked: channel(None).0 }
    }

    /// Returns the number of polls.
    pub fn polled(&self) -> u64 {
        self.lock().polls
    }

    /// Returns the name of the task that was polled last.
    pub fn polling(&self) -> Option<Arc<str>> {
        self.lock().task.clone()
    }

    /// Waits until there were a million polls without an advance of virtual time. Returns the task that was polled
    /// last.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn livelocked(&self) -> Arc<str> {
        let mut observer: Receiver<Option<Arc<str>>> = self.livelocked.subscribe();
        match observer.wait_for(Option::is_some).await {
            Ok(Some(task)) => task,
            _ => std::future::pending().await,
        }
    }

    pub(crate) fn polls(&self, task: &Arc<str>) {
        let mut counts = self.lock();
        counts.polls += 1;
        counts.task = Some(Arc::clone(task));
        if !counts.polls.is_multiple_of(POLLS_PER_CLOCK_READ) {
            return;
        }
        let now = tokio::time::Instant::now();
        if counts.at != now {
            (counts.at, counts.moved) = (now, counts.polls);
        } else if counts.polls - counts.moved >= LIMIT {
            counts.moved = counts.polls;
            drop(counts);
            self.livelocked.set(Some(Arc::clone(task)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for PollMonitor {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use crate::Env;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn poll_monitor_names_task_that_stops_virtual_time() {
        let poll_monitor = PollMonitor::new();
        let env = Env::virtual_time(1).with_poll_monitor(&poll_monitor).with_incarnation("a", 0);
        let idle = env.spawn("idle", env.sleep(std::time::Duration::from_secs(3600)));
        let busy = env.spawn("busy", async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(&*poll_monitor.livelocked().await, "busy");
        assert!(poll_monitor.polled() >= LIMIT);
        busy.abort();
        idle.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn poll_monitor_ignores_work_that_lets_time_advance() {
        let poll_monitor = PollMonitor::new();
        let env = Env::virtual_time(1).with_poll_monitor(&poll_monitor);
        let ticking = env.clone();
        env.spawn("ticking", async move {
            for _ in 0..3_000 {
                for _ in 0..500 {
                    tokio::task::yield_now().await;
                }
                ticking.sleep(std::time::Duration::from_millis(1)).await;
            }
        })
        .await
        .unwrap();
        assert!(poll_monitor.polled() > LIMIT);
        assert!(futures_util::FutureExt::now_or_never(poll_monitor.livelocked()).is_none());
    }
}
