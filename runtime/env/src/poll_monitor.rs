//! Counting polls, so that tasks which keep a simulation busy without letting its time continue are found out.
//!
//! Paused time moves only when every task waits. A task that is always ready, or two that wake each other, freeze it,
//! and nothing that waits for a timer would ever notice: a vigil does, after a million polls at one virtual moment. A
//! poll that never returns is for another thread to see: [`PollMonitor::polled`] stands still then, and
//! [`PollMonitor::polling`] names the task.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::watch_channel::{Receiver, Sender, channel};

/// Polls at one virtual moment that are still taken for work. The busiest moment of a sound simulation, thousands of
/// objects told to a dozen caches, takes some ten thousands.
const LIMIT: u64 = 1_000_000;

/// How often the clock is looked at: reading it at each poll would cost more than many a poll.
const LOOK_INTERVAL: u64 = 1024;

/// Counts the polls of all tasks of the Envs that are [under](crate::Env::under) it. Clones are one vigil.
#[derive(Clone, Debug)]
pub struct PollMonitor {
    counts: Arc<Mutex<Counts>>,
    frozen: Sender<Option<Arc<str>>>,
}

#[derive(Debug)]
struct Counts {
    polls: u64,
    /// The clock when it was last looked at, and the count of polls at its last move.
    at: tokio::time::Instant,
    moved: u64,
    task: Option<Arc<str>>,
}

impl PollMonitor {
    /// A vigil over the runtime this is called in.
    pub fn new() -> Self {
        let counts = Counts { polls: 0, at: tokio::time::Instant::now(), moved: 0, task: None };
        PollMonitor { counts: Arc::new(Mutex::new(counts)), frozen: channel(None).0 }
    }

    /// How many polls there were.
    pub fn polled(&self) -> u64 {
        self.lock().polls
    }

    /// The task that was polled last.
    pub fn polling(&self) -> Option<Arc<str>> {
        self.lock().task.clone()
    }

    /// Completes with the name of the task that was polled last, once there were a million polls without virtual time
    /// continuing.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn livelocked(&self) -> Arc<str> {
        let mut observer: Receiver<Option<Arc<str>>> = self.frozen.subscribe();
        match observer.wait_for(Option::is_some).await {
            Ok(Some(task)) => task,
            _ => std::future::pending().await,
        }
    }

    pub(crate) fn polls(&self, task: &Arc<str>) {
        let mut counts = self.lock();
        counts.polls += 1;
        counts.task = Some(Arc::clone(task));
        if !counts.polls.is_multiple_of(LOOK_INTERVAL) {
            return;
        }
        let now = tokio::time::Instant::now();
        if counts.at != now {
            (counts.at, counts.moved) = (now, counts.polls);
        } else if counts.polls - counts.moved >= LIMIT {
            counts.moved = counts.polls;
            drop(counts);
            self.frozen.set(Some(Arc::clone(task)));
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
    async fn task_that_freezes_time_is_named() {
        let vigil = PollMonitor::new();
        let env = Env::virtual_time(1).with_poll_monitor(&vigil).with_incarnation("a", 0);
        let idle = env.spawn("idle", env.sleep(std::time::Duration::from_secs(3600)));
        let busy = env.spawn("busy", async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(&*vigil.livelocked().await, "busy");
        assert!(vigil.polled() >= LIMIT);
        busy.abort();
        idle.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_lets_time_go_on_is_left_alone() {
        let vigil = PollMonitor::new();
        let env = Env::virtual_time(1).with_poll_monitor(&vigil);
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
        assert!(vigil.polled() > LIMIT);
        assert!(futures_util::FutureExt::now_or_never(vigil.livelocked()).is_none());
    }
}
