//! Whether this replica may write, as a deadline on its own monotonic clock.
//!
//! The fence is made before anything that needs it, and closed. The elector opens it, moves its deadline forward with
//! each renewal, and closes it. It also closes by itself: when the deadline passes there is nobody who would have to
//! act, or could forget to.
//!
//! It is closed too, until the next renewal succeeds, once the wall clock has run ahead of the monotonic clock by more
//! than lease duration minus renew deadline: then the machine may have been paused for longer than the lease.

use std::fmt;
use std::future::ready;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use windlass_client::{Fence, FenceState};
use windlass_env::watch_channel::{self, Receiver, Sender};
use windlass_env::{Env, Instant};

use crate::clocks::Clocks;

/// The leader's fence: open until the *send* time of the last successful renewal plus the renew deadline.
pub struct LeaderFence {
    env: Env,
    term: Sender<Term>,
    /// Set by the elector, whose configuration says how far the clocks can be apart.
    clocks: OnceLock<Arc<Clocks>>,
}

/// One stretch of being open. A term that has ended does not come back: the next has another number, so that whoever
/// waits for the end of this one cannot mistake the next for it.
#[derive(Copy, Clone, Debug)]
struct Term {
    number: u64,
    deadline: Option<Instant>,
    /// When the renewal was sent to which the deadline belongs.
    renewed: Instant,
}

impl LeaderFence {
    /// A closed fence.
    pub fn new(env: Env) -> Arc<Self> {
        let closed = Term { number: 0, deadline: None, renewed: Instant::ORIGIN };
        Arc::new(Self { env, term: watch_channel::channel(closed).0, clocks: OnceLock::new() })
    }

    /// Closes the fence when these clocks jump. Only the first call counts: a fence has one elector.
    pub fn watch(&self, clocks: Arc<Clocks>) {
        let _ = self.clocks.set(clocks);
    }

    /// Until when the fence is open; `None` if it is closed.
    pub fn open_until(&self) -> Option<Instant> {
        self.held_until().filter(|_| !self.is_suspended())
    }

    /// Until when the lease is held, whether the fence is open or waits for a renewal after a jump of the clocks.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        let deadline = self.term.get().deadline?;
        (self.env.now() < deadline).then_some(deadline)
    }

    fn is_suspended(&self) -> bool {
        let renewed = self.term.get().renewed;
        self.clocks.get().is_some_and(|clocks| clocks.have_jumped_since(renewed))
    }

    /// Starts a term for a write of the Lease sent at `renewed`. False, and nothing is opened, if its deadline has
    /// passed already.
    pub fn open(&self, renewed: Instant, deadline: Instant) -> bool {
        if deadline <= self.env.now() {
            return false;
        }
        let number = self.term.get().number + 1;
        self.term.set(Term { number, deadline: Some(deadline), renewed });
        true
    }

    /// Moves the deadline of the running term forward, for a renewal sent at `renewed`. False if the lease is not held
    /// any more: what was closed in the meantime, even for an instant, may have been acted on, and stays closed.
    ///
    /// After a jump of the clocks the fence opens again with a new term, if the renewal was sent after the jump.
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

/// Resolves when the term that is running now has ended, at once if none is.
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
                // Nobody is left who could prolong the term.
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
    async fn fence_is_closed_before_it_was_opened_and_after_its_deadline() {
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
    async fn waiting_for_the_end_follows_a_deadline_that_moves() {
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
    async fn term_that_ended_is_not_extended_and_the_next_is_not_mistaken_for_it() {
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
    async fn term_whose_deadline_has_passed_never_begins() {
        let env = Env::virtual_time(1);
        let fence = LeaderFence::new(env.clone());
        assert!(!fence.open(env.now(), env.now()));
        assert!(matches!(fence.state(), FenceState::Closed));
    }

    /// A fence that was opened for ten seconds, with clocks that may differ by five.
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
        // The clock stood still for a minute, and the wall clock is corrected afterwards.
        env.step_wall(SignedDuration::from_secs(60));
        assert!(matches!(fence.state(), FenceState::Closed));
        fence.closed().await;
        assert!(fence.extend(sent_before, sent_before + seconds(11)), "the lease is held as far as is known");
        assert!(matches!(fence.state(), FenceState::Closed), "the renewal may be as old as the pause");
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
        assert!(matches!(fence.state(), FenceState::Until(_)), "not more than allowed");
        env.step_wall(SignedDuration::from_millis(1));
        assert!(matches!(fence.state(), FenceState::Closed));
    }
}
