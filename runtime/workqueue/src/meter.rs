//! Metrics of the queue, with the same accounting as client-go.
//!
//! Counters and depth are updated immediately. Durations and the depth by priority are updated when metrics are
//! gathered: an observation in a shared histogram costs more than add, get and done together.

use std::time::Duration;

use windlass_env::Instant;
use windlass_metrics::{LocalHistogram, WorkqueueMetrics};

use crate::Priority;

pub(crate) struct QueueMeter {
    metrics: WorkqueueMetrics,
    queue_duration: LocalHistogram,
    work_duration: LocalHistogram,
}

/// Sum and maximum of the processing times of keys in progress.
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
        let (queue_duration, work_duration) = (metrics.queue_duration.local(), metrics.work_duration.local());
        QueueMeter { metrics, queue_duration, work_duration }
    }

    /// Records that a key was enqueued.
    #[inline]
    pub(crate) fn on_added(&self) {
        self.metrics.adds.inc();
        self.metrics.depth.inc();
    }

    /// Records that a key was dequeued.
    #[inline]
    pub(crate) fn on_dequeued(&self, added: Instant, now: Instant) {
        self.metrics.depth.dec();
        self.queue_duration.observe((now - added).as_secs_f64());
    }

    /// Records that a key was processed.
    #[inline]
    pub(crate) fn on_done(&self, since: Instant, now: Instant) {
        self.work_duration.observe((now - since).as_secs_f64());
    }

    /// Records an add with a delay. Upstream counts all delays in this metric, and dashboards rely on it.
    pub(crate) fn on_delayed(&self) {
        self.metrics.retries.inc();
    }

    /// Subtracts `count` keys that will not be dequeued.
    pub(crate) fn on_removed(&self, count: usize) {
        self.metrics.depth.sub(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Updates the metrics that are computed only when they are gathered.
    pub(crate) fn update_gathered(
        &self,
        ages: ProcessingAges,
        depths: impl Iterator<Item = (Priority, usize)>,
    ) {
        self.queue_duration.flush();
        self.work_duration.flush();
        self.metrics.unfinished_work.set(ages.sum.as_secs_f64());
        self.metrics.longest_running.set(ages.longest.as_secs_f64());
        self.metrics.show_depths(depths.map(|(priority, keys)| (priority.0, keys)));
    }
}
