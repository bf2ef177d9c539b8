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
pub(crate) const DEFAULT_PANIC_LIMIT: u32 = 15;

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
    quarantined: usize,
    gauge: Option<IntGauge>,
}

#[derive(Debug)]
struct PanicRecord {
    times: u32,
    last_panic: Option<(String, Instant)>,
}

/// The next step for a key whose reconcile panicked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum PanicDecision {
    /// The key is retried after a backoff.
    BackOff,
    /// The key is quarantined until a change, after this many panics.
    Quarantine(u32),
}

impl Quarantine {
    pub(crate) fn new(gauge: Option<IntGauge>) -> Self {
        let state =
            State { limit: Some(DEFAULT_PANIC_LIMIT), panicked: BTreeMap::new(), quarantined: 0, gauge };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn limit(&self, limit: Option<u32>) {
        self.lock().limit = limit;
    }

    /// Counts a panic and returns the next step for the key.
    pub(crate) fn record_panic(&self, key: &ObjectKey, message: &str, now: Instant) -> PanicDecision {
        let mut state = self.lock();
        let limit = state.limit;
        let panicked =
            state.panicked.entry(key.clone()).or_insert(PanicRecord { times: 0, last_panic: None });
        panicked.times = panicked.times.saturating_add(1);
        let times = panicked.times;
        let is_quarantined = limit.is_some_and(|limit| times >= limit);
        if is_quarantined {
            let was_quarantined = panicked.last_panic.replace((message.to_owned(), now)).is_some();
            state.quarantined += usize::from(!was_quarantined);
            state.update_gauge();
        }
        if is_quarantined { PanicDecision::Quarantine(times) } else { PanicDecision::BackOff }
    }

    /// Records an attempt that did not panic, even if it failed.
    pub(crate) fn record_no_panic(&self, key: &ObjectKey) {
        let mut state = self.lock();
        if state.panicked.remove(key).is_some_and(|panicked| panicked.last_panic.is_some()) {
            state.quarantined -= 1;
            state.update_gauge();
        }
    }

    /// Returns whether `key` is quarantined.
    pub(crate) fn is_quarantined(&self, key: &ObjectKey) -> bool {
        self.lock().panicked.get(key).is_some_and(|panicked| panicked.last_panic.is_some())
    }

    /// Removes the panics of the keys for which `gone` returns true.
    pub(crate) fn remove_if(&self, gone: impl Fn(&ObjectKey) -> bool) {
        let mut state = self.lock();
        state.panicked.retain(|key, _| !gone(key));
        state.quarantined = state.panicked.values().filter(|panicked| panicked.last_panic.is_some()).count();
        state.update_gauge();
    }

    /// Returns the quarantined keys in key order.
    pub(crate) fn quarantined(&self) -> Vec<Quarantined> {
        let state = self.lock();
        let resting = state.panicked.iter().filter_map(|(key, panicked)| {
            let (message, since) = panicked.last_panic.clone()?;
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
            gauge.set(i64::try_from(self.quarantined).unwrap_or(i64::MAX));
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
        let panic = || quarantine.record_panic(&key, "boom", now);
        assert_eq!([panic(), panic()], [PanicDecision::BackOff, PanicDecision::BackOff]);
        quarantine.record_no_panic(&key);
        assert_eq!(
            [panic(), panic()],
            [PanicDecision::BackOff, PanicDecision::BackOff],
            "the count restarts"
        );
        assert!(!quarantine.is_quarantined(&key));
        assert_eq!(
            [panic(), panic()],
            [PanicDecision::Quarantine(3), PanicDecision::Quarantine(4)],
            "one more attempt is allowed"
        );
        let quarantined = quarantine.quarantined();
        assert_eq!((quarantined[0].panics, quarantined[0].message.as_str()), (4, "boom"));
        quarantine.record_no_panic(&key);
        assert_eq!(quarantine.quarantined(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn no_key_is_quarantined_without_limit() {
        let (quarantine, now) = (Quarantine::new(None), Env::virtual_time(1).now());
        quarantine.limit(None);
        let key = ObjectKey::cluster("wild");
        assert!((0..1000).all(|_| quarantine.record_panic(&key, "boom", now) == PanicDecision::BackOff));
    }

    #[tokio::test(start_paused = true)]
    async fn gauge_counts_quarantined_keys() {
        let gauge = windlass_metrics::Metrics::new().reconcile("gauge").quarantined;
        let (quarantine, now) = (Quarantine::new(Some(gauge.clone())), Env::virtual_time(1).now());
        quarantine.limit(Some(1));
        let keys = ["a", "b", "c"].map(ObjectKey::cluster);
        let panic = |key: &ObjectKey| {
            assert!(matches!(quarantine.record_panic(key, "boom", now), PanicDecision::Quarantine(_)));
        };
        keys.iter().for_each(panic);
        panic(&keys[0]);
        assert_eq!(gauge.get(), 3, "a key that panics again is counted once");
        quarantine.remove_if(|key| key.name() == "b");
        assert_eq!(gauge.get(), 2);
        keys.iter().for_each(|key| quarantine.record_no_panic(key));
        assert_eq!((gauge.get(), quarantine.quarantined()), (0, Vec::new()));
    }
}
