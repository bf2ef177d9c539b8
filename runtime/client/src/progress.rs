//! The progress of the requests of one caller, which distinguishes a long list from a stuck list.
//!
//! It does not decide which list is stuck.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use windlass_env::Instant;

/// The progress of the requests of a caller that sends one request at a time. Clones share it. Times have a resolution
/// of one millisecond.
///
/// ```
/// # use std::time::Duration;
/// # use windlass_client::RequestProgress;
/// # use windlass_env::Instant;
/// let progress = RequestProgress::default();
/// assert_eq!((progress.last_data_at(), progress.rate_limit_wait(Instant::ORIGIN)), (None, Duration::ZERO));
/// ```
#[derive(Clone, Debug, Default)]
pub struct RequestProgress(Arc<Inner>);

/// Times are stored as milliseconds plus one; zero means none.
#[derive(Debug, Default)]
struct Inner {
    /// Start of the current wait for the rate limit of the client.
    queued_since: AtomicU64,
    waited_ms: AtomicU64,
    last_data_at: AtomicU64,
    last_growth_at: AtomicU64,
    /// Bytes of the list so far, of its complete pages, and of the longest list that did not complete.
    received: AtomicU64,
    kept: AtomicU64,
    furthest: AtomicU64,
}

impl RequestProgress {
    /// Returns when bytes of the response to the last request arrived; `None` if none have.
    pub fn last_data_at(&self) -> Option<Instant> {
        instant(self.0.last_data_at.load(Relaxed))
    }

    /// Returns when a list last became longer than every earlier list that did not complete.
    pub fn last_growth_at(&self) -> Option<Instant> {
        instant(self.0.last_growth_at.load(Relaxed))
    }

    /// Returns how long requests have waited for their client's rate limit since [`reset_wait`](Self::reset_wait).
    pub fn rate_limit_wait(&self, now: Instant) -> Duration {
        let waiting = instant(self.0.queued_since.load(Relaxed));
        let waiting = waiting.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        Duration::from_millis(self.0.waited_ms.load(Relaxed)) + waiting
    }

    /// Resets the time that [`rate_limit_wait`](Self::rate_limit_wait) returns.
    pub fn reset_wait(&self) {
        self.0.waited_ms.store(0, Relaxed);
    }

    /// Records that a list begins with its first page.
    pub fn begin_list(&self) {
        self.0.received.store(0, Relaxed);
        self.0.kept.store(0, Relaxed);
    }

    /// Records that a list is complete.
    pub fn complete_list(&self) {
        self.0.furthest.store(0, Relaxed);
    }

    /// Records that a request waits for the rate limit of its client, until it is sent or the guard is dropped.
    pub(crate) fn queue(&self, now: Instant) -> Queued<'_> {
        self.0.last_data_at.store(0, Relaxed);
        self.0.received.store(self.0.kept.load(Relaxed), Relaxed);
        self.0.queued_since.store(stored(now), Relaxed);
        Queued(self)
    }

    /// Records that the request is sent.
    pub(crate) fn sent(&self, now: Instant) {
        if let Some(since) = instant(self.0.queued_since.swap(0, Relaxed)) {
            let waited = now.saturating_duration_since(since).as_millis();
            self.0.waited_ms.fetch_add(u64::try_from(waited).unwrap_or(u64::MAX), Relaxed);
        }
    }

    /// Records that bytes of the response arrived.
    pub(crate) fn received(&self, now: Instant, bytes: usize) {
        self.0.last_data_at.store(stored(now), Relaxed);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let received = self.0.received.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if self.0.furthest.fetch_max(received, Relaxed) < received {
            self.0.last_growth_at.store(stored(now), Relaxed);
        }
    }

    /// Records that a page is complete.
    pub(crate) fn page_arrived(&self) {
        self.0.kept.store(self.0.received.load(Relaxed), Relaxed);
    }
}

/// A request that waits for the rate limit of its client.
pub(crate) struct Queued<'a>(&'a RequestProgress);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.0.queued_since.store(0, Relaxed);
    }
}

fn stored(at: Instant) -> u64 {
    u64::try_from(at.since_origin().as_millis()).unwrap_or(u64::MAX - 1) + 1
}

fn instant(stored: u64) -> Option<Instant> {
    Some(Instant::ORIGIN + Duration::from_millis(stored.checked_sub(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(millis)
    }

    #[test]
    fn list_grows_when_it_is_longer_than_every_incomplete_list() {
        let progress = RequestProgress::default();
        progress.begin_list();
        let _first = progress.queue(at(0));
        progress.received(at(1), 50);
        progress.page_arrived();
        let _second = progress.queue(at(2));
        assert_eq!(progress.last_data_at(), None, "no byte of the second page has arrived");
        progress.received(at(3), 30);
        assert_eq!((progress.last_growth_at(), progress.last_data_at()), (Some(at(3)), Some(at(3))));
        // The second page is sent again, and later the whole list.
        let _third = progress.queue(at(4));
        progress.received(at(5), 30);
        progress.begin_list();
        let _again = progress.queue(at(6));
        progress.received(at(7), 80);
        assert_eq!((progress.last_growth_at(), progress.last_data_at()), (Some(at(3)), Some(at(7))));
        progress.received(at(8), 1);
        assert_eq!(progress.last_growth_at(), Some(at(8)));
        progress.complete_list();
        progress.begin_list();
        progress.received(at(9), 1);
        assert_eq!(progress.last_growth_at(), Some(at(9)));
    }

    #[test]
    fn time_in_the_queue_is_counted_until_the_request_is_sent_or_dropped() {
        let (progress, millis) = (RequestProgress::default(), Duration::from_millis);
        let first = progress.queue(at(10));
        assert_eq!(progress.rate_limit_wait(at(15)), millis(5));
        progress.sent(at(20));
        drop(first);
        assert_eq!(progress.rate_limit_wait(at(30)), millis(10));
        drop(progress.queue(at(40)));
        assert_eq!(
            progress.rate_limit_wait(at(50)),
            millis(10),
            "the wait of a dropped request is not counted"
        );
        progress.reset_wait();
        assert_eq!(progress.rate_limit_wait(at(60)), Duration::ZERO);
    }
}
