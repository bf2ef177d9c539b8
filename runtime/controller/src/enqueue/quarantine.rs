//! Keys whose reconcile panics again and again rest until something changes.
//!
//! A panic is a defect, and a defect that is met at every try burns a worker for nothing. Each panic in a row backs the
//! key off as an error would; after the last of them ([`PANICS`] unless a controller says otherwise) the key rests.
//! The next change of something it concerns, or a trigger, gives it one more try: it goes back to rest if that panics
//! too, and is free again as soon as one try does not. The first list, resyncs and timers wake nobody, since nothing
//! happened.
//!
//! Resting is never silent: it is logged as an error, counted in `windlass_quarantined_keys`, told by
//! [`Insight::overview`](crate::host::Insight::overview) and by the manager's health page.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_env::Instant;
use windlass_metrics::IntGauge;
use windlass_object::ObjectKey;

/// After how many panics in a row a key rests, by default: as many tries as upstream's own controllers give a key that
/// fails. With the usual back-off that is after about three minutes, so what passes by itself has passed.
pub(crate) const PANICS: u32 = 15;

/// A key that rests because its reconcile keeps panicking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quarantined {
    /// The key.
    pub key: ObjectKey,
    /// How many times in a row its reconcile has panicked.
    pub panics: u32,
    /// What the last panic said.
    pub message: String,
    /// When that was.
    pub since: Instant,
}

/// The panics of one controller's keys. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// After how many panics a key rests; `None` for never.
    limit: Option<u32>,
    /// Keys whose last try panicked. One for each failing key, so as many as the queue's limiter remembers.
    panicked: BTreeMap<ObjectKey, PanicRecord>,
    /// How many of them rest: counted, since every panic shows it.
    resting: usize,
    gauge: Option<IntGauge>,
}

#[derive(Debug)]
struct PanicRecord {
    times: u32,
    rest: Option<(String, Instant)>,
}

/// What becomes of a key that has panicked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum PanicDecision {
    /// It is tried again, later.
    TryAgain,
    /// It rests until something changes, after this many panics.
    Rest(u32),
}

impl Quarantine {
    pub(crate) fn new(gauge: Option<IntGauge>) -> Self {
        let state = State { limit: Some(PANICS), panicked: BTreeMap::new(), resting: 0, gauge };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn limit(&self, limit: Option<u32>) {
        self.lock().limit = limit;
    }

    /// Counts a panic.
    pub(crate) fn panicked(&self, key: &ObjectKey, message: &str, now: Instant) -> PanicDecision {
        let mut state = self.lock();
        let limit = state.limit;
        let panicked = state.panicked.entry(key.clone()).or_insert(PanicRecord { times: 0, rest: None });
        panicked.times = panicked.times.saturating_add(1);
        let times = panicked.times;
        let rests = limit.is_some_and(|limit| times >= limit);
        if rests {
            let rested = panicked.rest.replace((message.to_owned(), now)).is_some();
            state.resting += usize::from(!rested);
            state.tell();
        }
        if rests { PanicDecision::Rest(times) } else { PanicDecision::TryAgain }
    }

    /// A try that did not panic, whatever else came of it.
    pub(crate) fn survived(&self, key: &ObjectKey) {
        let mut state = self.lock();
        if state.panicked.remove(key).is_some_and(|panicked| panicked.rest.is_some()) {
            state.resting -= 1;
            state.tell();
        }
    }

    /// Whether `key` rests.
    pub(crate) fn holds(&self, key: &ObjectKey) -> bool {
        self.lock().panicked.get(key).is_some_and(|panicked| panicked.rest.is_some())
    }

    /// Forgets the panics of keys of which `gone` says so.
    pub(crate) fn forget_if(&self, gone: impl Fn(&ObjectKey) -> bool) {
        let mut state = self.lock();
        state.panicked.retain(|key, _| !gone(key));
        state.resting = state.panicked.values().filter(|panicked| panicked.rest.is_some()).count();
        state.tell();
    }

    /// Every key that rests, in order.
    pub(crate) fn resting(&self) -> Vec<Quarantined> {
        let state = self.lock();
        let resting = state.panicked.iter().filter_map(|(key, panicked)| {
            let (message, since) = panicked.rest.clone()?;
            Some(Quarantined { key: key.clone(), panics: panicked.times, message, since })
        });
        resting.collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tell(&self) {
        if let Some(gauge) = &self.gauge {
            gauge.set(i64::try_from(self.resting).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_env::Env;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn key_rests_after_its_panics_in_a_row_and_one_calm_try_frees_it() {
        let (quarantine, now) = (Quarantine::new(None), Env::virtual_time(1).now());
        quarantine.limit(Some(3));
        let key = ObjectKey::cluster("wild");
        let panic = || quarantine.panicked(&key, "boom", now);
        assert_eq!([panic(), panic()], [PanicDecision::TryAgain, PanicDecision::TryAgain]);
        quarantine.survived(&key);
        assert_eq!(
            [panic(), panic()],
            [PanicDecision::TryAgain, PanicDecision::TryAgain],
            "the count begins anew"
        );
        assert!(!quarantine.holds(&key));
        assert_eq!(
            [panic(), panic()],
            [PanicDecision::Rest(3), PanicDecision::Rest(4)],
            "a further try is the last"
        );
        let resting = quarantine.resting();
        assert_eq!((resting[0].panics, resting[0].message.as_str()), (4, "boom"));
        quarantine.survived(&key);
        assert_eq!(quarantine.resting(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_no_key_ever_rests() {
        let (quarantine, now) = (Quarantine::new(None), Env::virtual_time(1).now());
        quarantine.limit(None);
        let key = ObjectKey::cluster("wild");
        assert!((0..1000).all(|_| quarantine.panicked(&key, "boom", now) == PanicDecision::TryAgain));
    }

    #[tokio::test(start_paused = true)]
    async fn gauge_shows_how_many_keys_rest() {
        let gauge = windlass_metrics::Metrics::new().reconcile("gauge").quarantined;
        let (quarantine, now) = (Quarantine::new(Some(gauge.clone())), Env::virtual_time(1).now());
        quarantine.limit(Some(1));
        let keys = ["a", "b", "c"].map(ObjectKey::cluster);
        let panic = |key: &ObjectKey| {
            assert!(matches!(quarantine.panicked(key, "boom", now), PanicDecision::Rest(_)))
        };
        keys.iter().for_each(panic);
        panic(&keys[0]);
        assert_eq!(gauge.get(), 3, "a key that panics again is the same one");
        quarantine.forget_if(|key| key.name() == "b");
        assert_eq!(gauge.get(), 2);
        keys.iter().for_each(|key| quarantine.survived(key));
        assert_eq!((gauge.get(), quarantine.resting()), (0, Vec::new()));
    }
}
