//! Metrics of the queue, with the same accounting as client-go.
//!
//! All metrics are updated when metrics are gathered: the updates of shared metrics would cost more than add, get and
//! done together.

use std::time::Duration;

use windlass_env::Instant;
use windlass_metrics::{LocalHistogram, WorkqueueMetrics};

use crate::Priority;

pub(crate) struct QueueMeter {
    metrics: WorkqueueMetrics,
    /// Since the last update.
    adds: u64,
    /// Since the last update.
    retries: u64,
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
        QueueMeter { metrics, adds: 0, retries: 0, queue_duration, work_duration }
    }

    /// Records that a key was enqueued.
    #[inline]
    pub(crate) fn on_added(&mut self) {
        self.adds += 1;
    }

    /// Records that a key was dequeued.
    #[inline]
    pub(crate) fn on_dequeued(&self, added: Instant, now: Instant) {
        self.queue_duration.observe((now - added).as_secs_f64());
    }

    /// Records that a key was processed.
    #[inline]
    pub(crate) fn on_done(&self, since: Instant, now: Instant) {
        self.work_duration.observe((now - since).as_secs_f64());
    }

    /// Records an add with a delay. Upstream counts all delays in this metric, and dashboards rely on it.
    pub(crate) fn on_delayed(&mut self) {
        self.retries += 1;
    }

    /// Updates the metrics.
    pub(crate) fn update_gathered(
        &mut self,
        ages: ProcessingAges,
        depth: usize,
        depths: impl Iterator<Item = (Priority, usize)>,
    ) {
        self.metrics.adds.inc_by(std::mem::take(&mut self.adds));
        self.metrics.retries.inc_by(std::mem::take(&mut self.retries));
        self.metrics.depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
        self.queue_duration.flush();
        self.work_duration.flush();
        self.metrics.unfinished_work.set(ages.sum.as_secs_f64());
        self.metrics.longest_running.set(ages.longest.as_secs_f64());
        self.metrics.show_depths(depths.map(|(priority, keys)| (priority.0, keys)));
    }
}
