//! Quarantines keys whose reconcile panics repeatedly.
//!
//! A panic is a defect, and retrying it indefinitely wastes a worker. Each consecutive panic delays the key like an
//! error. After a number of consecutive panics (by default [`PANICS`]) the key is quarantined. A change of a related
//! object, or a trigger, allows one more attempt. If the attempt panics too, the key stays quarantined; otherwise the
//! quarantine ends. The initial list, resyncs and timers do not enqueue a quarantined key.
//!
//! A quarantine is logged as an error, exported in `windlass_quarantined_keys`, and reported by
//! [`ControllerInspector::overview`](crate::host::ControllerInspector::overview) and by the manager's health endpoint.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_env::Instant;
use windlass_metrics::IntGauge;
use windlass_object::ObjectKey;

/// The default number of consecutive panics before a key is quarantined: the number of attempts that the upstream
/// controllers allow a failing key. With the default backoff it takes about three minutes, so transient causes have
/// passed.
pub(crate) const PANICS: u32 = 15;

/// A key that is quarantined because its reconcile panics repeatedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quarantined {
    /// The key.
    pub key: ObjectKey,
    /// The number of consecutive panics of its reconcile.
    pub panics: u32,
    /// The message of the last panic.
    pub message: String,
    /// The time of the last panic.
    pub since: Instant,
}

/// The panics of one controller's keys. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The number of panics before a key is quarantined; `None` disables quarantine.
    limit: Option<u32>,
    /// The keys whose last attempt panicked. At most as many as the queue's rate limiter tracks.
    panicked: BTreeMap<ObjectKey, PanicRecord>,
    /// The number of quarantined keys. It is cached because every panic updates the gauge.
    resting: usize,
    gauge: Option<IntGauge>,
}

#[derive(Debug)]
struct PanicRecord {
    times: u32,
    rest: Option<(String, Instant)>,
}

/// The next step for a key whose reconcile panicked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum PanicDecision {
    /// The key is retried after a backoff.
    TryAgain,
    /// The key is quarantined until a change, after this many panics.
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

    /// Counts a panic and returns the next step for the key.
    pub(crate) fn panicked(&self, key: &ObjectKey, message: &str, now: Instant) -> PanicDecision {
        let mut state = self.lock();
        let limit = state.limit;
        let panicked = state.panicked.entry(key.clone()).or_insert(PanicRecord { times: 0, rest: None });
        panicked.times = panicked.times.saturating_add(1);
        let times = panicked.times;
        let is_quarantined = limit.is_some_and(|limit| times >= limit);
        if is_quarantined {
            let was_quarantined = panicked.rest.replace((message.to_owned(), now)).is_some();
            state.resting += usize::from(!was_quarantined);
            state.update_gauge();
        }
        if is_quarantined { PanicDecision::Rest(times) } else { PanicDecision::TryAgain }
    }

    /// Records an attempt that did not panic, even if it failed.
    pub(crate) fn survived(&self, key: &ObjectKey) {
        let mut state = self.lock();
        if state.panicked.remove(key).is_some_and(|panicked| panicked.rest.is_some()) {
            state.resting -= 1;
            state.update_gauge();
        }
    }

    /// Returns whether `key` is quarantined.
    pub(crate) fn holds(&self, key: &ObjectKey) -> bool {
        self.lock().panicked.get(key).is_some_and(|panicked| panicked.rest.is_some())
    }

    /// Removes the panics of the keys for which `gone` returns true.
    pub(crate) fn forget_if(&self, gone: impl Fn(&ObjectKey) -> bool) {
        let mut state = self.lock();
        state.panicked.retain(|key, _| !gone(key));
        state.resting = state.panicked.values().filter(|panicked| panicked.rest.is_some()).count();
        state.update_gauge();
    }

    /// Returns the quarantined keys in key order.
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
    fn update_gauge(&self) {
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
    async fn key_is_quarantined_after_consecutive_panics_until_success() {
        let (quarantine, now) = (Quarantine::new(None), Env::virtual_time(1).now());
        quarantine.limit(Some(3));
        let key = ObjectKey::cluster("wild");
        let panic = || quarantine.panicked(&key, "boom", now);
        assert_eq!([panic(), panic()], [PanicDecision::TryAgain, PanicDecision::TryAgain]);
        quarantine.survived(&key);
        assert_eq!(
            [panic(), panic()],
            [PanicDecision::TryAgain, PanicDecision::TryAgain],
            "the count restarts"
        );
        assert!(!quarantine.holds(&key));
        assert_eq!(
            [panic(), panic()],
            [PanicDecision::Rest(3), PanicDecision::Rest(4)],
            "one more attempt is allowed"
        );
        let quarantined = quarantine.resting();
        assert_eq!((quarantined[0].panics, quarantined[0].message.as_str()), (4, "boom"));
        quarantine.survived(&key);
        assert_eq!(quarantine.resting(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn no_key_is_quarantined_without_limit() {
        let (quarantine, now) = (Quarantine::new(None), Env::virtual_time(1).now());
        quarantine.limit(None);
        let key = ObjectKey::cluster("wild");
        assert!((0..1000).all(|_| quarantine.panicked(&key, "boom", now) == PanicDecision::TryAgain));
    }

    #[tokio::test(start_paused = true)]
    async fn gauge_counts_quarantined_keys() {
        let gauge = windlass_metrics::Metrics::new().reconcile("gauge").quarantined;
        let (quarantine, now) = (Quarantine::new(Some(gauge.clone())), Env::virtual_time(1).now());
        quarantine.limit(Some(1));
        let keys = ["a", "b", "c"].map(ObjectKey::cluster);
        let panic = |key: &ObjectKey| {
            assert!(matches!(quarantine.panicked(key, "boom", now), PanicDecision::Rest(_)));
        };
        keys.iter().for_each(panic);
        panic(&keys[0]);
        assert_eq!(gauge.get(), 3, "a key that panics again is counted once");
        quarantine.forget_if(|key| key.name() == "b");
        assert_eq!(gauge.get(), 2);
        keys.iter().for_each(|key| quarantine.survived(key));
        assert_eq!((gauge.get(), quarantine.resting()), (0, Vec::new()));
    }
}
