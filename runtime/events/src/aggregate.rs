//! Combines events that differ only in their note. Pure functions.

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_env::Instant;

use crate::lru::Lru;
use crate::subject::RegardingKey;

/// Number of different notes from which one Event represents all later notes.
const DISTINCT: usize = 10;

/// Notes that are further apart than this are not combined.
const INTERVAL: Duration = Duration::from_secs(600);

/// The fields that events must share to be combined: all except the note.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AggregateKey {
    pub(crate) subject: RegardingKey,
    pub(crate) type_: &'static str,
    pub(crate) reason: String,
    pub(crate) action: Option<String>,
    pub(crate) related: Option<RegardingKey>,
}

/// The recent notes of each aggregate key.
#[derive(Debug)]
pub(crate) struct Aggregator {
    themes: Lru<AggregateKey, AggregateRecord>,
}

#[derive(Debug)]
struct AggregateRecord {
    distinct: BTreeSet<String>,
    last: Instant,
}

impl Aggregator {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { themes: Lru::new(capacity) }
    }

    /// Records a note. Returns whether its event must be combined with other events of the same key.
    pub(crate) fn combines(&mut self, theme: &AggregateKey, note: &str, now: Instant) -> bool {
        self.themes.forget_oldest_while(|notes| now.saturating_duration_since(notes.last) > INTERVAL);
        let notes = self.themes.touch(theme, || AggregateRecord { distinct: BTreeSet::new(), last: now });
        notes.last = now;
        notes.distinct.insert(note.to_owned());
        if notes.distinct.len() < DISTINCT {
            return false;
        }
        // Keep one note fewer than the threshold: the next new note is combined too, and memory stays bounded.
        notes.distinct.pop_first();
        true
    }
}

/// Returns the note of a combined Event. Tools look for this text.
pub(crate) fn combined_note(note: &str) -> String {
    format!("(combined from similar events): {note}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_env::Env;

    fn theme(reason: &str) -> AggregateKey {
        let (subject, reason) = (RegardingKey::default(), reason.to_owned());
        AggregateKey { subject, type_: "Normal", reason, action: None, related: None }
    }

    // parity: event-aggregator
    #[tokio::test(start_paused = true)]
    async fn tenth_different_note_within_ten_minutes_is_combined() {
        let mut aggregator = Aggregator::new(9);
        let theme = theme("Created");
        let start = Env::virtual_time(1).now();
        for number in 0..9 {
            assert!(!aggregator.combines(&theme, &format!("pod {number}"), start));
            assert!(!aggregator.combines(&theme, "pod 0", start), "a repeated note is not a new note");
        }
        assert!(aggregator.combines(&theme, "pod 9", start));
        assert!(aggregator.combines(&theme, "pod 10", start + INTERVAL));
        assert!(!aggregator.combines(&theme, "pod 11", start + INTERVAL * 2 + Duration::from_millis(1)));
    }

    // parity: memories-4096-entries
    #[tokio::test(start_paused = true)]
    async fn aggregate_key_without_events_for_ten_minutes_is_evicted() {
        let mut aggregator = Aggregator::new(9);
        let start = Env::virtual_time(1).now();
        aggregator.combines(&theme("Created"), "one", start);
        aggregator.combines(&theme("Scaled"), "two", start + INTERVAL);
        assert_eq!(aggregator.themes.len(), 2);
        aggregator.combines(&theme("Scaled"), "three", start + INTERVAL + Duration::from_millis(1));
        assert_eq!(aggregator.themes.len(), 1);
    }
}
