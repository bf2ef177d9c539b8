//! Requests to relist the source, for callers that cannot rely on the watch.
//!
//! A stalled watch, or a watch of a server whose own cache has stopped, looks like the watch of an idle cluster. Only a
//! consistent list distinguishes them.
//!
//! Guarantees:
//! - A request is granted by a consistent list that begins after the request. The list in flight does not count.
//! - Requests coalesce: one list grants all requests that arrived before it began.
//! - Requested relists are spaced ([`pause_after`]). A list that took the time `t`, successful or not, is followed
//!   by a pause of `10 * t`, within 1 s and 60 s. A list that the source rejects is repeated after the reflector's
//!   backoff; the watch continues in the meantime. An urgent request bypasses these waits and aborts the list in
//!   flight. No request shortens a `Retry-After` of the server, or the wait after an exceeded byte budget.

use std::pin::pin;
use std::time::Duration;

use futures_util::future;
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_env::{Env, Instant};

use crate::delta_fifo::Position;

/// The shortest pause between two requested relists.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two requested relists.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The sender of relist requests. Cheap to clone; all clones share one channel.
#[derive(Clone, Debug)]
pub(crate) struct RelistHandle {
    requests: Sender<RelistCounters>,
    replies: Sender<RelistReply>,
}

/// Counters of the requests.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct RelistCounters {
    /// The newest request.
    newest: u64,
    /// The newest urgent request.
    urgent: u64,
}

/// Priority of a relist request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Normal: not before the pause after the previous requested relist.
    Spaced,
    /// Immediately.
    Urgent,
}

/// The newest request that was granted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct RelistReply {
    ticket: u64,
    /// The queue position of the list; `None` before the first grant.
    position: Option<Position>,
}

/// The reflector's receiver of relist requests.
#[derive(Debug)]
pub(crate) struct RelistReceiver {
    env: Env,
    requests: Receiver<RelistCounters>,
    replies: Sender<RelistReply>,
    /// The newest request when the last list began.
    covered: u64,
    /// The newest request that was granted.
    granted: u64,
    /// Start of the current requested relist; `None` when none is in flight.
    began: Option<Instant>,
    /// The earliest start of the next requested relist.
    not_before: Instant,
}

impl RelistHandle {
    pub(crate) fn new() -> Self {
        Self { requests: channel(RelistCounters::default()).0, replies: channel(RelistReply::default()).0 }
    }

    pub(crate) fn receiver(&self, env: &Env) -> RelistReceiver {
        RelistReceiver {
            env: env.clone(),
            requests: self.requests.subscribe(),
            replies: self.replies.clone(),
            covered: 0,
            granted: 0,
            began: None,
            not_before: Instant::ORIGIN,
        }
    }

    /// Requests a consistent list that begins after this call, without waiting. Returns the request's ticket.
    pub(crate) fn request(&self, urgency: Urgency) -> u64 {
        let mut ticket = 0;
        self.requests.send_modify(|asked| {
            asked.newest += 1;
            ticket = asked.newest;
            if urgency == Urgency::Urgent {
                asked.urgent = ticket;
            }
        });
        ticket
    }

    /// Returns the queue position behind the ticket's list; `None` until that list is queued.
    pub(crate) fn granted_position(&self, ticket: u64) -> Option<Position> {
        let given = self.replies.get();
        given.position.filter(|_| given.ticket >= ticket)
    }

    /// Waits until the ticket's list is queued for the store. Never completes after the reflector has stopped.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait; the request stays.
    pub(crate) async fn granted(&self, ticket: u64) -> Position {
        let given =
            self.replies.subscribe().wait_for(|it| it.position.is_some() && it.ticket >= ticket).await;
        match given.ok().and_then(|given| given.position) {
            Some(position) => position,
            None => future::pending().await,
        }
    }
}

impl RelistReceiver {
    /// Records the start of a list. Returns the newest request, which this list will grant.
    pub(crate) fn begin_list(&mut self) -> u64 {
        self.covered = self.requests.get().newest;
        self.began = self.has_pending().then(|| self.env.now());
        self.covered
    }

    /// Records the end of the last list, successful or not.
    pub(crate) fn end_list(&mut self) {
        let now = self.env.now();
        if let Some(began) = self.began.take() {
            self.not_before = now + pause_after(now.saturating_duration_since(began));
        }
    }

    /// Returns whether an urgent request is pending.
    pub(crate) fn has_urgent(&self) -> bool {
        self.requests.get().urgent > self.granted
    }

    /// Postpones the next requested relist to `until`, unless it is urgent.
    pub(crate) fn postpone(&mut self, until: Instant) {
        self.not_before = self.not_before.max(until);
    }

    /// Returns whether a request is pending, due or not.
    pub(crate) fn has_pending(&self) -> bool {
        self.requests.get().newest > self.granted
    }

    /// Returns whether a pending request is due.
    pub(crate) fn is_due(&self) -> bool {
        let RelistCounters { newest, urgent } = self.requests.get();
        urgent > self.granted || newest > self.granted && self.env.now() >= self.not_before
    }

    /// Waits until a pending request is due.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait.
    pub(crate) async fn wait_due(&self) {
        self.due(self.granted).await;
    }

    /// Waits until a request that arrived after the start of the last list is due.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait.
    pub(crate) async fn wait_due_since_list(&self) {
        self.due(self.covered.max(self.granted)).await;
    }

    /// Waits for an urgent request that arrived after the start of the last list.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait.
    pub(crate) async fn wait_urgent_since_list(&self) {
        let seen = self.covered.max(self.granted);
        self.request_where(|asked| asked.urgent > seen).await;
    }

    async fn due(&self, seen: u64) {
        let asked = self.request_where(|asked| asked.newest > seen).await;
        if asked.urgent > seen || self.env.now() >= self.not_before {
            return;
        }
        let urgent = self.request_where(|asked| asked.urgent > seen);
        future::select(pin!(urgent), pin!(self.env.sleep_until(self.not_before))).await;
    }

    async fn request_where(&self, wanted: impl FnMut(&RelistCounters) -> bool) -> RelistCounters {
        match self.requests.clone().wait_for(wanted).await {
            Ok(asked) => asked,
            // All senders are dropped.
            Err(_) => future::pending().await,
        }
    }

    /// Grants the requests up to `ticket`: the last list is in the store once the queue has processed `position`.
    pub(crate) fn grant(&mut self, ticket: u64, position: Position) {
        self.granted = ticket;
        self.replies.set(RelistReply { ticket, position: Some(position) });
    }
}

/// Returns the pause after a requested relist that took `took`. Requested relists use at most a tenth of the time,
/// unless that would delay a request by more than a minute.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(10).clamp(MIN_PAUSE, MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_between_requested_lists_is_ten_times_list_duration() {
        for (took_ms, pause_ms) in [(0, 1_000), (99, 1_000), (300, 3_000), (6_000, 60_000), (900_000, 60_000)]
        {
            let pause = pause_after(Duration::from_millis(took_ms));
            assert_eq!(pause, Duration::from_millis(pause_ms), "{took_ms} ms");
        }
    }
}
