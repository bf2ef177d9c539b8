//! What the queue tells its metrics, with upstream's accounting.
//!
//! Counters and depth move at once. Durations and what is counted by priority are shown when metrics are gathered: an
//! observation in a shared histogram costs more than a whole add, get and done.

use std::time::Duration;

use windlass_env::Instant;
use windlass_metrics::{LocalHistogram, WorkqueueMetrics};

use crate::Priority;

pub(crate) struct QueueMeter {
    metrics: WorkqueueMetrics,
    queued: LocalHistogram,
    worked: LocalHistogram,
}

/// How long held keys have been held.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessingAges {
    sum: Duration,
    longest: Duration,
}

impl ProcessingAges {
    pub(crate) fn count(&mut self, age: Duration) {
        self.sum = self.sum.saturating_add(age);
        self.longest = self.longest.max(age);
    }
}

impl QueueMeter {
    pub(crate) fn new(metrics: WorkqueueMetrics) -> Self {
        let (queued, worked) = (metrics.queue_duration.local(), metrics.work_duration.local());
        QueueMeter { metrics, queued, worked }
    }

    /// A key has come in that was not waiting.
    #[inline]
    pub(crate) fn added(&self) {
        self.metrics.adds.inc();
        self.metrics.depth.inc();
    }

    /// A worker has got a key.
    #[inline]
    pub(crate) fn taken(&self, added: Instant, now: Instant) {
        self.metrics.depth.dec();
        self.queued.observe((now - added).as_secs_f64());
    }

    /// A worker has given a key back.
    #[inline]
    pub(crate) fn done(&self, since: Instant, now: Instant) {
        self.worked.observe((now - since).as_secs_f64());
    }

    /// A key was added with a delay. Upstream counts whatever the delay, and dashboards expect it.
    pub(crate) fn delayed(&self) {
        self.metrics.retries.inc();
    }

    /// `count` keys that were to come will not.
    pub(crate) fn lost(&self, count: usize) {
        self.metrics.depth.sub(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Brings up to date what is only shown when somebody looks.
    pub(crate) fn show(&self, ages: ProcessingAges, depths: impl Iterator<Item = (Priority, usize)>) {
        self.queued.flush();
        self.worked.flush();
        self.metrics.unfinished_work.set(ages.sum.as_secs_f64());
        self.metrics.longest_running.set(ages.longest.as_secs_f64());
        self.metrics.show_depths(depths.map(|(priority, keys)| (priority.0, keys)));
    }
}
