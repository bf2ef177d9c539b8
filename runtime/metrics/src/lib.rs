//! Metrics: one table of all names, help texts and units, and one registry per manager.
//!
//! Guarantees:
//! - [`names`] is the only module that names built-in metric families, and every family in it has a handle.
//! - Metrics that upstream's controller manager also exports have upstream's names and labels.
//! - Handles hold resolved labels: an operation costs one atomic instruction and no label lookup (except for requests).
//! - [`Metrics`] values in one process are independent.
//!
//! There is no global registry, and no metric name outside of the table. A controller registers a custom family with
//! [`Metrics::custom_counter`], [`Metrics::custom_gauge`] or [`Metrics::custom_histogram`].

mod counted;
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

pub use crate::counted::Counted;
pub use crate::handles::{
    AdminMetrics, ElectionMetrics, EventMetrics, HealthcheckMetrics, HookMetrics, InformerMetrics,
    ManagerMetrics, PodGcMetrics, ReconcileMetrics, ReconcileResults, ReplicaSetMetrics, RequestMetrics,
    ReviewMetrics, RootCaMetrics, ServingMetrics, ShardMetrics, WebhookMetrics, WorkqueueMetrics,
};

use crate::families::Families;

/// Metrics of one manager. Cloning is cheap and refers to the same registry.
///
/// # Examples
/// ```
/// use windlass_metrics::Metrics;
///
/// let metrics = Metrics::new();
/// let orders = metrics.custom_counter("shop_orders_total", "Orders by state.", &[("state", "paid")]);
/// orders.inc();
/// assert!(metrics.encode().contains(r#"shop_orders_total{state="paid"} 1"#));
/// ```
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

/// The hooks that run before metrics are gathered, in registration order.
#[derive(Default)]
pub(crate) struct Hooks(Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>);

impl Metrics {
    /// Creates a registry that contains every built-in family, all without values.
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

    /// Runs the hooks. Call it before reading single metrics of queues, which are only computed on demand.
    pub fn update(&self) {
        self.inner.hooks.run();
    }

    /// Runs the hooks, updates the process metrics and returns all metrics in the Prometheus text format.
    pub fn encode(&self) -> String {
        self.update();
        process::refresh(&self.inner.families);
        let families = self.inner.families.gather();
        // The registry returns only complete families, and writing to a `String` cannot fail.
        TextEncoder::new().encode_to_string(&families).expect("gathered families encode")
    }

    /// Returns only the families of [`names::SLI_FAMILIES`], in the same format. Does not run the hooks.
    pub fn encode_slis(&self) -> String {
        let shown = |name: &str| names::SLI_FAMILIES.iter().any(|family| family.name == name);
        let mut families = self.inner.families.gather();
        families.retain(|family| shown(family.name()));
        TextEncoder::new().encode_to_string(&families).expect("gathered families encode")
    }

    /// Runs `hook` each time metrics are gathered, for gauges that should only be computed on demand.
    ///
    /// The hook lives as long as the registry, so it should hold weak references.
    pub fn on_gather(&self, hook: Box<dyn Fn() + Send + Sync>) {
        self.inner.hooks.add(hook);
    }

    /// Returns the metrics of the work queue `name`.
    pub fn workqueue(&self, name: &str) -> WorkqueueMetrics {
        WorkqueueMetrics::new(&self.inner.families, name, Arc::clone(&self.inner.hooks))
    }

    /// Returns the metrics of the requests that `identity` sends to the API server.
    pub fn requests(&self, identity: &str) -> RequestMetrics {
        RequestMetrics::new(&self.inner.families, identity)
    }

    /// Returns the metrics of the election for the lease `lease`.
    pub fn election(&self, lease: &str) -> ElectionMetrics {
        ElectionMetrics::new(&self.inner.families, lease)
    }

    /// Returns the metrics of the shard election whose Leases have the name prefix `name`.
    pub fn shards(&self, name: &str) -> ShardMetrics {
        ShardMetrics::new(&self.inner.families, name)
    }

    /// Returns the metrics of the informer for one resource; `group` is empty for the core group.
    pub fn informer(&self, group: &str, version: &str, resource: &str) -> InformerMetrics {
        InformerMetrics::new(&self.inner.families, group, version, resource)
    }

    /// Returns the metrics of the workers of `controller`.
    pub fn reconcile(&self, controller: &str) -> ReconcileMetrics {
        ReconcileMetrics::new(&self.inner.families, controller)
    }

    /// Returns the metrics of Event objects.
    pub fn events(&self) -> EventMetrics {
        self.inner.events.clone()
    }

    /// Returns the metrics of the whole process: running controllers and health checks.
    pub fn manager(&self) -> ManagerMetrics {
        self.inner.manager.clone()
    }

    /// Returns the metrics of the webhook server.
    pub fn webhooks(&self) -> WebhookMetrics {
        WebhookMetrics::new(&self.inner.families)
    }

    /// Returns the metrics of the admin server.
    pub fn admin(&self) -> AdminMetrics {
        self.inner.admin.clone()
    }

    /// Returns the metrics of the ReplicaSet controller.
    pub fn replicaset(&self) -> ReplicaSetMetrics {
        self.inner.replicaset.clone()
    }

    /// Returns the metrics of the publisher of the root CA.
    pub fn root_ca(&self) -> RootCaMetrics {
        RootCaMetrics::new(&self.inner.families)
    }

    /// Returns the metrics of the pod garbage collector.
    pub fn pod_gc(&self) -> PodGcMetrics {
        PodGcMetrics::new(&self.inner.families)
    }

    /// Returns a custom counter with the given labels and values. The counter is created by the first call and shared
    /// by later calls. Its name should end with `_total`.
    ///
    /// # Panics
    /// If the name or a label is not valid in Prometheus, or if the name is a built-in family or is already registered
    /// with another type or other labels.
    pub fn custom_counter(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> IntCounter {
        self.inner.families.custom_counter(name, help, labels)
    }

    /// Returns a custom gauge, like [`Metrics::custom_counter`].
    ///
    /// # Panics
    /// Like [`Metrics::custom_counter`].
    pub fn custom_gauge(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> IntGauge {
        self.inner.families.custom_gauge(name, help, labels)
    }

    /// Returns a custom histogram with the given upper bounds, like [`Metrics::custom_counter`]. Its name should end
    /// with its unit.
    ///
    /// # Panics
    /// Like [`Metrics::custom_counter`], and if the bounds are not ascending.
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

    /// Runs the hooks without the lock, so that a hook can add another hook.
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
