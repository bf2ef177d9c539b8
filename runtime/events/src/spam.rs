//! Muting a component that will not stop talking about one object. Pure.

use std::time::Duration;

use windlass_env::Instant;

use crate::correlator::{CAPACITY, Subject};
use crate::lru::Lru;

/// Events that may come at once about one object.
const BURST: u32 = 25;

/// Time in which one more may come.
const REFILL: Duration = Duration::from_secs(300);

/// One bucket of tokens per object and type.
#[derive(Debug)]
pub(crate) struct SpamFilter {
    buckets: Lru<(Subject, String), Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: u32,
    refilled: Instant,
}

impl SpamFilter {
    pub(crate) fn new() -> Self {
        Self { buckets: Lru::new(CAPACITY) }
    }

    /// Whether one more event of this type about this object may be sent now.
    pub(crate) fn admits(&mut self, subject: &Subject, kind: &str, now: Instant) -> bool {
        let key = (subject.clone(), kind.to_owned());
        self.buckets.touch(&key, || Bucket { tokens: BURST, refilled: now }).take(now)
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        while self.tokens < BURST && now.saturating_duration_since(self.refilled) >= REFILL {
            self.tokens += 1;
            self.refilled += REFILL;
        }
        if self.tokens == BURST {
            self.refilled = now;
        }
        let admitted = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_env::Env;

    #[tokio::test(start_paused = true)]
    async fn twenty_five_events_pass_at_once_and_then_one_in_five_minutes() {
        let (mut filter, subject) = (SpamFilter::new(), Subject::default());
        let start = Env::virtual_time(1).now();
        let mut passing = |at| (0..40).filter(|_| filter.admits(&subject, "Normal", at)).count();
        assert_eq!(passing(start), 25);
        assert_eq!(passing(start + Duration::from_secs(299)), 0);
        assert_eq!(passing(start + Duration::from_secs(300)), 1);
        assert_eq!(passing(start + Duration::from_secs(900)), 2);
        assert_eq!(passing(start + Duration::from_secs(1_000_000)), 25);
        assert!(filter.admits(&subject, "Warning", start), "another type has a bucket of its own");
    }
}
