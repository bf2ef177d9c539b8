//! Limits the events of a component for one object. Pure functions.

use std::time::Duration;

use windlass_env::Instant;

use crate::lru::Lru;
use crate::subject::RegardingKey;

/// Number of events for one object that can be sent in a burst.
const BURST: u32 = 25;

/// Time until one more event can be sent.
const REFILL: Duration = Duration::from_secs(300);

/// One token bucket per object and event type.
#[derive(Debug)]
pub(crate) struct SpamFilter {
    buckets: Lru<(RegardingKey, &'static str), Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: u32,
    refilled: Instant,
}

impl SpamFilter {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { buckets: Lru::new(capacity) }
    }

    /// Returns whether an event of this type for this object can be sent now.
    pub(crate) fn admits(&mut self, subject: &RegardingKey, type_: &'static str, now: Instant) -> bool {
        // A full bucket is equal to a new one, so it can be evicted.
        self.buckets.forget_oldest_while(|bucket| bucket.tokens_at(now) == BURST);
        let key = (subject.clone(), type_);
        self.buckets.touch(&key, || Bucket { tokens: BURST, refilled: now }).take(now)
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let tokens = self.tokens_at(now);
        let refills = tokens.saturating_sub(self.tokens);
        self.refilled = if tokens == BURST { now } else { self.refilled + REFILL * refills };
        self.tokens = tokens.saturating_sub(1);
        tokens > 0
    }

    fn tokens_at(&self, now: Instant) -> u32 {
        let refills = now.saturating_duration_since(self.refilled).as_secs() / REFILL.as_secs();
        self.tokens.saturating_add(u32::try_from(refills).unwrap_or(u32::MAX)).min(BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_env::Env;

    // parity: event-source-object-spam-filter
    #[tokio::test(start_paused = true)]
    async fn twenty_five_events_pass_then_one_every_five_minutes() {
        let (mut filter, subject) = (SpamFilter::new(9), RegardingKey::default());
        let start = Env::virtual_time(1).now();
        let mut passing = |at| (0..40).filter(|_| filter.admits(&subject, "Normal", at)).count();
        assert_eq!(passing(start), 25);
        assert_eq!(passing(start + Duration::from_secs(299)), 0);
        assert_eq!(passing(start + Duration::from_secs(300)), 1);
        assert_eq!(passing(start + Duration::from_secs(900)), 2);
        assert_eq!(passing(start + Duration::from_secs(1_000_000)), 25);
        assert!(filter.admits(&subject, "Warning", start), "another type has a separate bucket");
    }

    // parity: memories-4096-entries
    #[tokio::test(start_paused = true)]
    async fn refilled_bucket_is_evicted() {
        let mut filter = SpamFilter::new(9);
        let about = |name: &str| RegardingKey::named(name);
        let start = Env::virtual_time(1).now();
        filter.admits(&about("web"), "Normal", start);
        filter.admits(&about("shop"), "Normal", start + Duration::from_secs(1));
        let refilled = start + REFILL;
        filter.admits(&about("shop"), "Normal", refilled);
        assert_eq!(filter.buckets.len(), 1, "the bucket of web was refilled");
        for _ in 0..3 {
            filter.admits(&about("shop"), "Normal", refilled);
        }
        filter.admits(&about("web"), "Normal", refilled + REFILL);
        assert_eq!(filter.buckets.len(), 2, "the bucket of shop was not refilled");
    }
}
