//! The state of each controller, from the metrics of its manager.

use windlass::controller::Descriptor;
use windlass::metrics::Metrics;
use windlass_metrics::{ReconcileMetrics, WorkqueueMetrics};

use crate::last_actions::LastActions;

/// A snapshot of one controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ControllerView {
    pub(crate) name: &'static str,
    /// Queued keys.
    pub(crate) depth: i64,
    /// Active workers, and all workers.
    pub(crate) workers: (i64, i64),
    /// Completed reconciles, with any result.
    pub(crate) reconciles: u64,
    /// Failed reconciles.
    pub(crate) errors: u64,
    /// The last write.
    pub(crate) last: Option<String>,
}

/// The metrics of one controller.
#[derive(Debug)]
struct Gauges {
    name: &'static str,
    client_name: &'static str,
    queue: WorkqueueMetrics,
    reconciles: ReconcileMetrics,
}

/// The metrics of all controllers.
#[derive(Debug)]
pub(crate) struct Panel {
    metrics: Metrics,
    gauges: Vec<Gauges>,
    last_actions: LastActions,
}

impl Panel {
    pub(crate) fn new(metrics: &Metrics, controllers: &[Descriptor], last_actions: LastActions) -> Self {
        let gauges = |one: &Descriptor| Gauges {
            name: one.name,
            client_name: one.client_name,
            queue: metrics.workqueue(one.queue_name),
            reconciles: metrics.reconcile(one.name),
        };
        let gauges = controllers.iter().map(gauges).collect();
        Self { metrics: metrics.clone(), gauges, last_actions }
    }

    /// Returns the current state of every controller.
    pub(crate) fn look(&self) -> Vec<ControllerView> {
        self.metrics.update();
        self.gauges.iter().map(|gauges| gauges.view(&self.last_actions)).collect()
    }
}

impl Gauges {
    fn view(&self, last_actions: &LastActions) -> ControllerView {
        let total = &self.reconciles.total;
        let errors = total.error.get() + total.terminal.get() + total.panic.get();
        let successes = total.success.get() + total.requeue.get() + total.requeue_after.get();
        ControllerView {
            name: self.name,
            depth: self.queue.depth.get(),
            workers: (self.reconciles.active_workers.get(), self.reconciles.max_concurrent.get()),
            reconciles: successes + errors,
            errors,
            last: last_actions.last(self.client_name),
        }
    }
}
