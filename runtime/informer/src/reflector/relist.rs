//! Asking a reflector for a fresh list of its source, for callers that cannot rely on the watch.
//!
//! A watch that is stalled, or that is fed by a server whose own cache has stopped, looks like one of a quiet
//! cluster. Only a consistent list distinguishes the two.
//!
//! Guarantees:
//! - A request is granted by a consistent list that begins after the request. The list that is in flight does not count.
//! - Requests coalesce: one list grants every request that came before it began.
//! - Lists on request are spaced ([`pause_after`]): after one that took a time `t`, successful or not, the next begins no
//!   earlier than `10 * t` later, at least 1 s and at most 60 s. A list that the source rejects is repeated after the backoff of
//!   the reflector, and the watch continues meanwhile. An urgent request waits for none of that, and abandons
//!   the list that is in flight.

use std::pin::pin;
use std::time::Duration;

use futures_util::future;
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_env::{Env, Instant};

use crate::delta_fifo::Position;

/// The shortest pause between two lists on request.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two lists on request.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Both ends of the requests. Cheap to clone; clones are one.
#[derive(Clone, Debug)]
pub(crate) struct RelistHandle {
    asked: Sender<Asked>,
    given: Sender<RelistReply>,
}

/// How many requests there were.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Asked {
    /// The newest request.
    newest: u64,
    /// The newest urgent request.
    urgent: u64,
}

/// How soon a request must be seen to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// After the pause that follows the last list on request.
    Spaced,
    /// Immediately.
    Urgent,
}

/// The newest request that was granted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct RelistReply {
    ticket: u64,
    /// Where the list stands in the queue to the store; `None` before the first grant.
    position: Option<Position>,
}

/// The reflector's end: the requests that it must see to.
#[derive(Debug)]
pub(crate) struct RelistReceiver {
    env: Env,
    asked: Receiver<Asked>,
    given: Sender<RelistReply>,
    /// The newest request at the time when the last list began.
    looked: u64,
    /// The newest request that was granted.
    granted: u64,
    /// When the last list on request began, until it ends.
    began: Option<Instant>,
    /// When the next list on request can begin.
    not_before: Instant,
}

impl RelistHandle {
    pub(crate) fn new() -> Self {
        Self { asked: channel(Asked::default()).0, given: channel(RelistReply::default()).0 }
    }

    pub(crate) fn wishes(&self, env: &Env) -> RelistReceiver {
        RelistReceiver {
            env: env.clone(),
            asked: self.asked.subscribe(),
            given: self.given.clone(),
            looked: 0,
            granted: 0,
            began: None,
            not_before: Instant::ORIGIN,
        }
    }

    /// Requests a consistent list that begins after this call, without waiting. Returns the request's ticket.
    pub(crate) fn ask(&self, urgency: Urgency) -> u64 {
        let mut ticket = 0;
        self.asked.send_modify(|asked| {
            asked.newest += 1;
            ticket = asked.newest;
            if urgency == Urgency::Urgent {
                asked.urgent = ticket;
            }
        });
        ticket
    }

    /// Returns the queue position behind which the ticket's list is in the store; `None` while it was not listed.
    pub(crate) fn given(&self, ticket: u64) -> Option<Position> {
        let given = self.given.get();
        given.position.filter(|_| given.ticket >= ticket)
    }

    /// Waits until the ticket's list has been passed on. Never completes if the reflector is gone.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait, and not the request.
    pub(crate) async fn granted(&self, ticket: u64) -> Position {
        let given = self.given.subscribe().wait_for(|it| it.position.is_some() && it.ticket >= ticket).await;
        match given.ok().and_then(|given| given.position) {
            Some(position) => position,
            None => future::pending().await,
        }
    }
}

impl RelistReceiver {
    /// Notes that a list begins. Returns the newest request: a list that begins now grants it.
    pub(crate) fn look(&mut self) -> u64 {
        self.looked = self.asked.get().newest;
        self.began = self.are_pending().then(|| self.env.now());
        self.looked
    }

    /// Notes that the list which began last has ended, successfully or not.
    pub(crate) fn looked(&mut self) {
        let now = self.env.now();
        if let Some(began) = self.began.take() {
            self.not_before = now + pause_after(now.saturating_duration_since(began));
        }
    }

    /// Whether an urgent request was not granted.
    pub(crate) fn are_urgent(&self) -> bool {
        self.asked.get().urgent > self.granted
    }

    /// Postpones the next list on request to `until`, unless it is urgent.
    pub(crate) fn postpone(&mut self, until: Instant) {
        self.not_before = self.not_before.max(until);
    }

    /// Whether a request was not granted, be it due or not.
    pub(crate) fn are_pending(&self) -> bool {
        self.asked.get().newest > self.granted
    }

    /// Whether a request is due that was not granted.
    pub(crate) fn are_open(&self) -> bool {
        let Asked { newest, urgent } = self.asked.get();
        urgent > self.granted || newest > self.granted && self.env.now() >= self.not_before
    }

    /// Waits until a request is due that was not granted.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) async fn opened(&self) {
        self.due(self.granted).await;
    }

    /// Waits until a request is due that is younger than the last list.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) async fn opened_since_look(&self) {
        self.due(self.looked.max(self.granted)).await;
    }

    /// Waits for an urgent request that is younger than the last list.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) async fn overtaken(&self) {
        let seen = self.looked.max(self.granted);
        self.asked_for(|asked| asked.urgent > seen).await;
    }

    async fn due(&self, seen: u64) {
        let asked = self.asked_for(|asked| asked.newest > seen).await;
        if asked.urgent > seen || self.env.now() >= self.not_before {
            return;
        }
        let urgent = self.asked_for(|asked| asked.urgent > seen);
        future::select(pin!(urgent), pin!(self.env.sleep_until(self.not_before))).await;
    }

    async fn asked_for(&self, wanted: impl FnMut(&Asked) -> bool) -> Asked {
        match self.asked.clone().wait_for(wanted).await {
            Ok(asked) => asked,
            // No caller is left.
            Err(_) => future::pending().await,
        }
    }

    /// Grants the requests up to `ticket`: what the last list found is in the store once it has come to `position`.
    pub(crate) fn grant(&mut self, ticket: u64, position: Position) {
        self.granted = ticket;
        self.given.set(RelistReply { ticket, position: Some(position) });
    }
}

/// Returns the pause after a list on request that took this long: lists on request take at most a tenth of the time,
/// unless that would delay a request by more than a minute.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(10).clamp(MIN_PAUSE, MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_between_lists_on_request_is_ten_times_the_last_list() {
        for (took_ms, pause_ms) in [(0, 1_000), (99, 1_000), (300, 3_000), (6_000, 60_000), (900_000, 60_000)]
        {
            let pause = pause_after(Duration::from_millis(took_ms));
            assert_eq!(pause, Duration::from_millis(pause_ms), "{took_ms} ms");
        }
    }
}
