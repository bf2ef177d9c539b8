//! Whether this replica may write, as a deadline on its own monotonic clock.
//!
//! The fence is made before anything that needs it, and closed. The elector opens it, moves its deadline forward with
//! each renewal, and closes it. It also closes by itself: when the deadline passes there is nobody who would have to
//! act, or could forget to.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use windlass_client::{Fence, FenceState};
use windlass_env::cell::{self, Observer, Publisher};
use windlass_env::{Env, Instant};

/// The leader's fence: open until the *send* time of the last successful renewal plus the renew deadline.
pub struct LeaderFence {
    env: Env,
    term: Publisher<Term>,
}

/// One stretch of being open. A term that has ended does not come back: the next has another number, so that whoever
/// waits for the end of this one cannot mistake the next for it.
#[derive(Copy, Clone, Debug)]
struct Term {
    number: u64,
    deadline: Option<Instant>,
}

impl LeaderFence {
    /// A closed fence.
    pub fn new(env: Env) -> Arc<Self> {
        let (term, _) = cell::cell(Term { number: 0, deadline: None });
        Arc::new(Self { env, term })
    }

    /// Until when the fence is open; `None` if it is closed.
    pub fn open_until(&self) -> Option<Instant> {
        let deadline = self.term.get().deadline?;
        (self.env.now() < deadline).then_some(deadline)
    }

    /// Starts a term. False, and nothing is opened, if its deadline has passed already.
    pub(crate) fn open(&self, deadline: Instant) -> bool {
        if deadline <= self.env.now() {
            return false;
        }
        let number = self.term.get().number + 1;
        self.term.set(Term { number, deadline: Some(deadline) });
        true
    }

    /// Moves the deadline of the running term forward. False if the term is over: what was closed in the meantime,
    /// even for an instant, may have been acted upon, and stays closed.
    pub(crate) fn extend(&self, deadline: Instant) -> bool {
        let Some(current) = self.open_until() else { return false };
        self.term.update(|term| term.deadline = Some(deadline.max(current)));
        true
    }

    /// Ends the term.
    pub(crate) fn close(&self) {
        if self.term.get().deadline.is_some() {
            self.term.update(|term| term.deadline = None);
        }
    }
}

impl Fence for LeaderFence {
    fn state(&self) -> FenceState {
        if self.env.is_planted("write after lease loss") {
            return FenceState::Open;
        }
        self.open_until().map_or(FenceState::Closed, FenceState::Until)
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        Box::pin(term_ended(self.env.clone(), self.term.observe()))
    }
}

/// Resolves when the term that is running now has ended, at once if none is.
async fn term_ended(env: Env, mut term: Observer<Term>) {
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
    use super::*;
    use std::time::Duration;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_is_closed_before_it_was_opened_and_after_its_deadline() {
        let env = Env::virtual_time(1);
        let fence = LeaderFence::new(env.clone());
        assert!(matches!(fence.state(), FenceState::Closed));
        fence.closed().await;
        let deadline = env.now() + seconds(10);
        assert!(fence.open(deadline));
        assert!(matches!(fence.state(), FenceState::Until(at) if at == deadline));
        env.sleep(seconds(10)).await;
        assert!(matches!(fence.state(), FenceState::Closed));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_end_follows_a_deadline_that_moves() {
        let env = Env::virtual_time(1);
        let fence = LeaderFence::new(env.clone());
        let start = env.now();
        assert!(fence.open(start + seconds(10)));
        let closed = env.spawn("waiter", fence.closed());
        env.sleep(seconds(5)).await;
        assert!(fence.extend(start + seconds(15)));
        closed.await.expect("the waiter ends");
        assert_eq!(env.now(), start + seconds(15));
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_that_ended_is_not_extended_and_the_next_is_not_mistaken_for_it() {
        let env = Env::virtual_time(1);
        let fence = LeaderFence::new(env.clone());
        let start = env.now();
        assert!(fence.open(start + seconds(10)));
        let closed = env.spawn("waiter", fence.closed());
        env.sleep(seconds(1)).await;
        fence.close();
        assert!(!fence.extend(start + seconds(20)));
        assert!(fence.open(start + seconds(20)));
        closed.await.expect("the waiter ends");
        assert_eq!(env.now(), start + seconds(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_whose_deadline_has_passed_never_begins() {
        let env = Env::virtual_time(1);
        let fence = LeaderFence::new(env.clone());
        assert!(!fence.open(env.now()));
        assert!(matches!(fence.state(), FenceState::Closed));
    }
}
