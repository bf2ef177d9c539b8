//! Delays between the deletions of failed pods, by node and generation.
//!
//! A pod that fails on a node often fails again, for example because the node rejects it. Each deletion doubles the
//! delay until the next deletion on this node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_env::Instant;

/// Delay after the first deletion.
const INITIAL_DELAY: Duration = Duration::from_secs(1);
/// Maximum delay.
const MAX_DELAY: Duration = Duration::from_secs(15 * 60);
/// Time without a deletion after which a delay expires.
const EXPIRY: Duration = Duration::from_secs(2 * MAX_DELAY.as_secs());
/// Time between two removals of expired delays.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(60);

/// The delays of all DaemonSets of one process.
#[derive(Debug, Default)]
pub(super) struct FailedPodBackoff(Mutex<Delays>);

#[derive(Debug, Default)]
struct Delays {
    entries: BTreeMap<NodeKey, Delay>,
    cleaned_up: Option<Instant>,
}

/// A node of a DaemonSet. A new generation starts again with the initial delay.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeKey {
    /// UID of the DaemonSet.
    pub(super) uid: Arc<str>,
    /// Generation that was observed last.
    pub(super) generation: i64,
    pub(super) node: Arc<str>,
}

#[derive(Clone, Copy, Debug)]
struct Delay {
    length: Duration,
    since: Instant,
}

impl Delay {
    fn is_expired(self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > EXPIRY
    }
}

/// Whether a failed pod can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Now.
    Delete,
    /// After this time.
    Wait(Duration),
}

impl FailedPodBackoff {
    /// Returns whether a failed pod of this node can be deleted, and if so records the deletion.
    pub(super) fn admit(&self, key: &NodeKey, now: Instant) -> Admission {
        // Consistent after a panic, because each change is one insertion or removal.
        let mut delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        delays.clean_up(now);
        let known = delays.entries.get(key).copied().filter(|delay| !delay.is_expired(now));
        let length = match known {
            Some(delay) if now.saturating_duration_since(delay.since) < delay.length => {
                return Admission::Wait(delay.length);
            }
            Some(delay) => (delay.length * 2).min(MAX_DELAY),
            None => INITIAL_DELAY,
        };
        delays.entries.insert(key.clone(), Delay { length, since: now });
        Admission::Delete
    }
}

impl Delays {
    fn clean_up(&mut self, now: Instant) {
        let last = *self.cleaned_up.get_or_insert(now);
        if now.saturating_duration_since(last) >= CLEAN_UP_INTERVAL {
            self.entries.retain(|_, delay| !delay.is_expired(now));
            self.cleaned_up = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(node: &str, generation: i64) -> NodeKey {
        NodeKey { uid: "uid".into(), generation, node: node.into() }
    }

    #[test]
    fn delay_doubles_with_each_deletion_up_to_its_maximum() {
        let (backoff, one) = (FailedPodBackoff::default(), key("one", 1));
        let mut now = Instant::ORIGIN;
        assert_eq!(backoff.admit(&one, now), Admission::Delete);
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900] {
            let length = Duration::from_secs(seconds);
            let just_before = now + (length - Duration::from_nanos(1));
            assert_eq!(backoff.admit(&one, just_before), Admission::Wait(length));
            now += length;
            assert_eq!(backoff.admit(&one, now), Admission::Delete, "{seconds}");
        }
        now = now + EXPIRY + Duration::from_nanos(1);
        assert_eq!(backoff.admit(&one, now), Admission::Delete);
        assert_eq!(
            backoff.admit(&one, now),
            Admission::Wait(INITIAL_DELAY),
            "the delay restarts after its expiry"
        );
    }

    #[test]
    fn nodes_and_generations_have_their_own_delays() {
        let (backoff, now) = (FailedPodBackoff::default(), Instant::ORIGIN);
        assert_eq!(backoff.admit(&key("one", 1), now), Admission::Delete);
        assert_eq!(backoff.admit(&key("two", 1), now), Admission::Delete);
        assert_eq!(backoff.admit(&key("one", 2), now), Admission::Delete);
        assert_eq!(backoff.admit(&key("one", 1), now), Admission::Wait(INITIAL_DELAY));
    }

    #[test]
    fn expired_delays_are_removed() {
        let (backoff, now) = (FailedPodBackoff::default(), Instant::ORIGIN);
        backoff.admit(&key("one", 1), now);
        backoff.admit(&key("two", 1), now + EXPIRY + CLEAN_UP_INTERVAL);
        let delays = backoff.0.lock().expect("a lock");
        assert_eq!(delays.entries.keys().collect::<Vec<_>>(), [&key("two", 1)]);
    }
}
