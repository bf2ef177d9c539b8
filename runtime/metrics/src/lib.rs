//! Every metric name, help and unit in one table; one registry value per manager.
//!
//! Guarantees:
//! - [`names`] is the only place where a family of this project is named, and every family in it has a handle.
//! - What upstream's controller manager exports keeps upstream's name and labels.
//! - Handles hold resolved children: an operation costs an atomic and no label look-up (requests excepted).
//! - Two [`Metrics`] values in one process are independent.
//!
//! What it refuses: a global registry, and names made up at the place of use. A controller with its own family
//! registers it through [`Metrics::custom_counter`] and its siblings.

mod families;
mod handles;
pub mod names;
mod process;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::TextEncoder;

pub use prometheus::local::LocalHistogram;
pub use prometheus::{Gauge, Histogram, IntCounter, IntGauge};

pub use crate::handles::{
    AdminMetrics, ElectionMetrics, EventMetrics, HealthcheckMetrics, InformerMetrics, ManagerMetrics,
    ReconcileMetrics, ReconcileResults, ReplicaSetMetrics, RequestMetrics, ReviewMetrics, ShardMetrics,
    WorkqueueMetrics,
};

use crate::families::Families;

/// One manager's metrics. Cloning is cheap and yields the same registry.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    families: Families,
    events: EventMetrics,
    manager: ManagerMetrics,
    admin: AdminMetrics,
    replicaset: ReplicaSetMetrics,
    hooks: Arc<Hooks>,
}

/// What runs before metrics are gathered, in registration order.
#[derive(Default)]
pub(crate) struct Hooks(Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>);

impl Metrics {
    /// An empty registry with every family of the table in it.
    #[expect(clippy::new_without_default, reason = "a registry is made on purpose, once per manager")]
    pub fn new() -> Metrics {
        let families = Families::new();
        let inner = Inner {
            events: EventMetrics::new(&families),
            manager: ManagerMetrics::new(&families),
            admin: AdminMetrics::new(&families),
            replicaset: ReplicaSetMetrics::new(&families),
            families,
            hooks: Arc::default(),
        };
        Metrics { inner: Arc::new(inner) }
    }

    /// Everything in Prometheus' text format, after the hooks have run and the process has been looked at.
    pub fn encode(&self) -> String {
        self.inner.hooks.run();
        process::refresh(&self.inner.families);
        let families = self.inner.families.gather();
        // A registry yields whole families only, and a String takes whatever is written to it.
        TextEncoder::new().encode_to_string(&families).expect("gathered families encode")
    }

    /// The families of [`names::SLI_FAMILIES`] alone, in the same format. No hook runs for them.
    pub fn encode_slis(&self) -> String {
        let shown = |name: &str| names::SLI_FAMILIES.iter().any(|family| family.name == name);
        let mut families = self.inner.families.gather();
        families.retain(|family| shown(family.name()));
        TextEncoder::new().encode_to_string(&families).expect("gathered families encode")
    }

    /// Runs `hook` before each gathering, for gauges that are only worth computing when somebody looks.
    ///
    /// The hook lives as long as the registry: hold what it reads weakly.
    pub fn on_gather(&self, hook: Box<dyn Fn() + Send + Sync>) {
        self.inner.hooks.add(hook);
    }

    /// The metrics of the work queue `name`.
    pub fn workqueue(&self, name: &str) -> WorkqueueMetrics {
        WorkqueueMetrics::new(&self.inner.families, name, Arc::clone(&self.inner.hooks))
    }

    /// The metrics of the requests that `identity` sends to the API server.
    pub fn requests(&self, identity: &str) -> RequestMetrics {
        RequestMetrics::new(&self.inner.families, identity)
    }

    /// The metrics of the election for the lease `lease`.
    pub fn election(&self, lease: &str) -> ElectionMetrics {
        ElectionMetrics::new(&self.inner.families, lease)
    }

    /// The metrics of the election of the shards whose leases begin with `name`.
    pub fn shards(&self, name: &str) -> ShardMetrics {
        ShardMetrics::new(&self.inner.families, name)
    }

    /// The metrics of the informer for one resource; `group` is empty for the core group.
    pub fn informer(&self, group: &str, version: &str, resource: &str) -> InformerMetrics {
        InformerMetrics::new(&self.inner.families, group, version, resource)
    }

    /// The metrics of `controller`'s workers.
    pub fn reconcile(&self, controller: &str) -> ReconcileMetrics {
        ReconcileMetrics::new(&self.inner.families, controller)
    }

    /// The metrics of events for users.
    pub fn events(&self) -> EventMetrics {
        self.inner.events.clone()
    }

    /// The metrics of the process as a whole: which controllers run, and how its health checks end.
    pub fn manager(&self) -> ManagerMetrics {
        self.inner.manager.clone()
    }

    /// The metrics of the admin server.
    pub fn admin(&self) -> AdminMetrics {
        self.inner.admin.clone()
    }

    /// The metrics of the ReplicaSet controller.
    pub fn replicaset(&self) -> ReplicaSetMetrics {
        self.inner.replicaset.clone()
    }

    /// A counter of a controller's own, with the given labels and their values; made once, shared afterwards. The
    /// name should end with `_total`.
    ///
    /// # Panics
    /// If Prometheus does not allow the name or a label, or if the name exists with another kind, other labels or in
    /// the table.
    pub fn custom_counter(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> IntCounter {
        self.inner.families.custom_counter(name, help, labels)
    }

    /// A gauge of a controller's own, as [`Metrics::custom_counter`].
    ///
    /// # Panics
    /// As [`Metrics::custom_counter`].
    pub fn custom_gauge(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> IntGauge {
        self.inner.families.custom_gauge(name, help, labels)
    }

    /// A histogram of a controller's own with the given upper bounds, as [`Metrics::custom_counter`]. The name should end
    /// with its unit.
    ///
    /// # Panics
    /// As [`Metrics::custom_counter`], and if the bounds do not rise.
    pub fn custom_histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        buckets: Vec<f64>,
    ) -> Histogram {
        self.inner.families.custom_histogram(name, help, labels, buckets)
    }
}

impl Hooks {
    pub(crate) fn add(&self, hook: Box<dyn Fn() + Send + Sync>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(hook.into());
    }

    /// Runs the hooks outside the lock, so that a hook may add another.
    fn run(&self) {
        let hooks = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for hook in hooks {
            hook();
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
