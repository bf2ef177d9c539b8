//! Keys that are to be queued later: one time per key, the earliest asked for.

use std::collections::BTreeMap;

use windlass_env::Instant;

/// Why a key is to be queued later. The order says which reason outlives the other in a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// A run as soon as the limiter allows: an immediate add makes it pointless.
    Retry,
    /// A run at that time.
    Appointment,
}

#[derive(Debug)]
pub(crate) struct Delayed<K> {
    by_key: BTreeMap<K, Entry>,
    by_time: BTreeMap<Turn, K>,
    inserted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    turn: Turn,
    reason: Reason,
}

/// When, and among equal times in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at: Instant,
    arrival: u64,
}

impl<K: Ord + Clone> Delayed<K> {
    pub(crate) fn new() -> Self {
        Delayed { by_key: BTreeMap::new(), by_time: BTreeMap::new(), inserted: 0 }
    }

    /// Sets `key`'s time to `at`, unless it is due earlier already.
    pub(crate) fn insert(&mut self, key: K, at: Instant, reason: Reason) {
        let pending = self.by_key.get_mut(&key);
        if let Some(entry) = pending {
            entry.reason = entry.reason.max(reason);
            if entry.turn.at <= at {
                return;
            }
        }
        self.inserted += 1;
        let turn = Turn { at, arrival: self.inserted };
        let reason = match self.remove(&key) {
            Some(entry) => entry.reason,
            None => reason,
        };
        self.by_time.insert(turn, key.clone());
        self.by_key.insert(key, Entry { turn, reason });
    }

    /// Takes back whatever is pending for `key`.
    pub(crate) fn cancel(&mut self, key: &K) -> bool {
        self.remove(key).is_some()
    }

    /// Takes back a retry of `key`; an appointment stands.
    pub(crate) fn supersede(&mut self, key: &K) {
        if self.by_key.get(key).is_some_and(|entry| entry.reason == Reason::Retry) {
            self.remove(key);
        }
    }

    /// The next time at which a key comes due.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|(turn, _)| turn.at)
    }

    /// The key that came due first, with its time, if there is one by `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, K)> {
        let first = self.by_time.first_entry().filter(|first| first.key().at <= now)?;
        let (turn, key) = first.remove_entry();
        self.by_key.remove(&key);
        Some((turn.at, key))
    }

    pub(crate) fn clear(&mut self) {
        self.by_key.clear();
        self.by_time.clear();
    }

    fn remove(&mut self, key: &K) -> Option<Entry> {
        let entry = self.by_key.remove(key)?;
        self.by_time.remove(&entry.turn);
        Some(entry)
    }
}
