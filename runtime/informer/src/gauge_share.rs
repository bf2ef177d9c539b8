//! The share of one informer in a gauge that all informers of its resource share.
//!
//! Guarantees: the gauge is the sum of the last values of all shares, and a dropped share no longer counts.

use std::sync::atomic::{AtomicI64, Ordering};

use windlass_metrics::IntGauge;

/// A share of a gauge.
#[derive(Debug)]
pub(crate) struct GaugeShare {
    gauge: IntGauge,
    last_value: AtomicI64,
}

impl GaugeShare {
    pub(crate) fn of(gauge: &IntGauge) -> Self {
        Self { gauge: gauge.clone(), last_value: AtomicI64::new(0) }
    }

    /// Sets the value of this share.
    pub(crate) fn set(&self, part: u64) {
        let part = i64::try_from(part).unwrap_or(i64::MAX);
        // One atomic exchange counts each difference once, also with concurrent writers.
        let before = self.last_value.swap(part, Ordering::Relaxed);
        self.gauge.add(part - before);
    }
}

impl Drop for GaugeShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use windlass_metrics::Metrics;

    use super::*;

    #[test]
    fn gauge_is_sum_of_live_shares() {
        let metrics = Metrics::new();
        let gauge = metrics.informer("", "v1", "configmaps").objects;
        let (one, other) = (GaugeShare::of(&gauge), GaugeShare::of(&gauge));
        one.set(3);
        other.set(5);
        one.set(2);
        assert_eq!(gauge.get(), 7);
        drop(one);
        assert_eq!(gauge.get(), 5);
        other.set(0);
        assert_eq!(gauge.get(), 0);
    }
}
