//! The fence of a leader: a deadline on the replica's monotonic clock.
//!
//! The fence is created closed, before all code that needs it. The elector opens it, extends its deadline with each
//! renewal, and closes it. It also closes when the deadline passes, without an action of any task.
//!
//! If the wall clock runs ahead of the monotonic clock by more than lease duration minus renew deadline, the fence is
//! closed until the next renewal succeeds: the machine might have been paused for longer than the lease.

use std::fmt;
use std::future::ready;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use windlass_client::{Fence, FenceState};
use windlass_env::watch_channel::{self, Receiver, Sender};
use windlass_env::{Env, Instant};

use crate::clocks::Clocks;

/// The leader's fence. Open until the *send* time of the last successful renewal plus the renew deadline.
pub struct LeaderFence {
    env: Env,
    term: Sender<Term>,
    /// Set by the elector, whose configuration contains the allowed clock difference.
    clocks: OnceLock<Arc<Clocks>>,
}

/// One period in which the fence is open. Each term has a new number, so that code that waits for the end of this term
/// cannot confuse it with the next.
#[derive(Copy, Clone, Debug)]
struct Term {
    number: u64,
    deadline: Option<Instant>,
    /// Time of sending of the renewal that set the deadline.
    renewed: Instant,
}

impl LeaderFence {
    /// Returns a closed fence.
    pub fn new(env: Env) -> Arc<Self> {
        let closed = Term { number: 0, deadline: None, renewed: Instant::ORIGIN };
        Arc::new(Self { env, term: watch_channel::channel(closed).0, clocks: OnceLock::new() })
    }

    /// Closes the fence when these clocks jump. Only the first call has an effect: a fence has one elector.
    pub fn watch(&self, clocks: Arc<Clocks>) {
        let _ = self.clocks.set(clocks);
    }

    /// Returns the time until which the fence is open; `None` if it is closed.
    pub fn open_until(&self) -> Option<Instant> {
        self.held_until().filter(|_| !self.is_suspended())
    }

    /// Returns the time until which the lease is held, including the time in which the fence waits for a renewal after
    /// a jump of the clocks.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        let deadline = self.term.get().deadline?;
        (self.env.now() < deadline).then_some(deadline)
    }

    fn is_suspended(&self) -> bool {
        let renewed = self.term.get().renewed;
        self.clocks.get().is_some_and(|clocks| clocks.have_jumped_since(renewed))
    }

    /// Starts a term for a write of the Lease sent at `renewed`. Returns false and opens nothing if its deadline has
    /// passed.
    pub fn open(&self, renewed: Instant, deadline: Instant) -> bool {
        if deadline <= self.env.now() {
            return false;
        }
        let number = self.term.get().number + 1;
        self.term.set(Term { number, deadline: Some(deadline), renewed });
        true
    }

    /// Extends the deadline of the current term, for a renewal sent at `renewed`. Returns false if the lease is no
    /// longer held: other code might have acted on a closed fence, so it stays closed.
    ///
    /// After a jump of the clocks, a renewal sent after the jump opens the fence with a new term.
    pub fn extend(&self, renewed: Instant, deadline: Instant) -> bool {
        let Some(current) = self.held_until() else { return false };
        let was_suspended = self.is_suspended();
        self.term.send_modify(|term| {
            term.number += u64::from(was_suspended);
            term.deadline = Some(deadline.max(current));
            term.renewed = term.renewed.max(renewed);
        });
        true
    }

    /// Ends the term.
    pub fn close(&self) {
        if self.term.get().deadline.is_some() {
            self.term.send_modify(|term| term.deadline = None);
        }
    }
}

impl Fence for LeaderFence {
    fn state(&self) -> FenceState {
        self.open_until().map_or(FenceState::Closed, FenceState::Until)
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        if self.is_suspended() {
            return Box::pin(ready(()));
        }
        Box::pin(term_ended(self.env.clone(), self.term.subscribe()))
    }
}

/// Waits until the current term has ended. Returns immediately if there is none.
async fn term_ended(env: Env, mut term: Receiver<Term>) {
    let number = term.get().number;
    loop {
        let now = term.get();
        let Some(deadline) = now.deadline.filter(|deadline| now.number == number && env.now() < *deadline)
        else {
            return;
        };
        tokio::select! {
            biased;
            changed = term.changed() => if changed.is_err() {
                // The sender is dropped, so the term can no longer be extended.
                return env.sleep_until(deadline).await;
            },
            () = env.sleep_until(deadline) => {}
        }
    }
}

impl fmt::Debug for LeaderFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderFence").field("open_until", &self.open_until()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::SignedDuration;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn fence_is_closed_initially_and_after_its_deadline() {
        let env = Env::virtual_time(1);
        let fence = LeaderFence::new(env.clone());
        assert!(matches!(fence.state(), FenceState::Closed));
        fence.closed().await;
        let deadline = env.now() + seconds(10);
        assert!(fence.open(env.now(), deadline));
        assert!(matches!(fence.state(), FenceState::Until(at) if at == deadline));
        env.sleep(seconds(10)).await;
        assert!(matches!(fence.state(), FenceState::Closed));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_close_follows_extended_deadline() {
        let env = Env::virtual_time(1);
        let fence = LeaderFence::new(env.clone());
        let start = env.now();
        assert!(fence.open(env.now(), start + seconds(10)));
        let closed = env.spawn("waiter", fence.closed());
        env.sleep(seconds(5)).await;
        assert!(fence.extend(env.now(), start + seconds(15)));
        closed.await.expect("the waiter ends");
        assert_eq!(env.now(), start + seconds(15));
    }

    #[tokio::test(start_paused = true)]
    async fn closed_term_is_not_extended_by_later_renewal() {
        let env = Env::virtual_time(1);
        let fence = LeaderFence::new(env.clone());
        let start = env.now();
        assert!(fence.open(env.now(), start + seconds(10)));
        let closed = env.spawn("waiter", fence.closed());
        env.sleep(seconds(1)).await;
        fence.close();
        assert!(!fence.extend(env.now(), start + seconds(20)));
        assert!(fence.open(env.now(), start + seconds(20)));
        closed.await.expect("the waiter ends");
        assert_eq!(env.now(), start + seconds(1));
    }

    #[tokio::test(start_paused = true)]
    async fn term_with_expired_deadline_does_not_start() {
        let env = Env::virtual_time(1);
        let fence = LeaderFence::new(env.clone());
        assert!(!fence.open(env.now(), env.now()));
        assert!(matches!(fence.state(), FenceState::Closed));
    }

    /// Returns a fence that is open for ten seconds, with clocks whose difference can change by five.
    fn watched() -> (Env, Arc<LeaderFence>) {
        let env = Env::virtual_time(1);
        let fence = LeaderFence::new(env.clone());
        fence.watch(Arc::new(Clocks::new(env.clone(), seconds(5))));
        assert!(fence.open(env.now(), env.now() + seconds(10)));
        (env, fence)
    }

    #[tokio::test(start_paused = true)]
    async fn fence_is_closed_until_next_renewal_when_machine_was_paused() {
        let (env, fence) = watched();
        let (sent_before, closed) = (env.now(), env.spawn("waiter", fence.closed()));
        env.sleep(seconds(1)).await;
        // The monotonic clock did not advance for a minute, and then the wall clock is set forward.
        env.step_wall(SignedDuration::from_secs(60));
        assert!(matches!(fence.state(), FenceState::Closed));
        fence.closed().await;
        assert!(fence.extend(sent_before, sent_before + seconds(11)), "the lease is held");
        assert!(matches!(fence.state(), FenceState::Closed), "the renewal can be older than the pause");
        closed.await.expect("the waiter ends");
        env.sleep(seconds(1)).await;
        let deadline = env.now() + seconds(10);
        assert!(fence.extend(env.now(), deadline));
        assert!(matches!(fence.state(), FenceState::Until(at) if at == deadline));
        assert_eq!(env.now(), Instant::ORIGIN + seconds(2));
    }

    #[tokio::test(start_paused = true)]
    async fn pause_is_detected_when_wall_clock_was_set_back_before() {
        let (env, fence) = watched();
        env.sleep(seconds(1)).await;
        env.step_wall(SignedDuration::from_secs(-3600));
        assert!(matches!(fence.state(), FenceState::Until(_)));
        env.step_wall(SignedDuration::from_secs(5));
        assert!(matches!(fence.state(), FenceState::Until(_)), "the difference is allowed");
        env.step_wall(SignedDuration::from_millis(1));
        assert!(matches!(fence.state(), FenceState::Closed));
    }
}
