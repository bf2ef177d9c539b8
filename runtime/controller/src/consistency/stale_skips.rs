//! Counts keys that were postponed because a cache was behind, in two metrics: one of this project, by controller, and
//! one with the upstream name that dashboards of the built-in controllers use, by resource of the cache.

use windlass_metrics::{IntCounter, Metrics};
use windlass_object::GroupResource;

/// Both counters of one controller.
pub(crate) struct StaleSkips {
    ours: IntCounter,
    metrics: Metrics,
    /// The name of the upstream metric, which exists from the first skip on.
    name: String,
}

impl StaleSkips {
    pub(crate) fn new(metrics: &Metrics, controller: &str) -> Self {
        let ours = metrics.reconcile(controller).stale_skips;
        Self { ours, metrics: metrics.clone(), name: name(controller) }
    }

    /// Counts one key that waits for a cache of this resource.
    pub(crate) fn count(&self, resource: &GroupResource) {
        const HELP: &str =
            "Reconciles delayed because the cache of this resource did not yet contain the last write.";
        self.ours.inc();
        let labels = [("group", &*resource.group), ("resource", &*resource.resource)];
        self.metrics.custom_counter(&self.name, HELP, &labels).inc();
    }
}

/// Returns the metric name: `replicaset-controller` counts `replicaset_controller_stale_sync_skips_total`. Characters
/// that Prometheus does not allow in a name become underscores.
fn name(controller: &str) -> String {
    let stem = controller.strip_suffix("-controller").unwrap_or(controller);
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let stem: String = stem.chars().map(legal).collect();
    let lead = if stem.starts_with(|c: char| c.is_ascii_digit()) { "_" } else { "" };
    format!("{lead}{stem}_controller_stale_sync_skips_total")
}

#[cfg(test)]
mod tests {
    use super::*;

    // parity: stale-sync-skips-total
    #[test]
    fn skip_is_counted_by_controller_and_under_the_name_dashboards_know() {
        let metrics = Metrics::new();
        let skips = StaleSkips::new(&metrics, "replicaset-controller");
        skips.count(&GroupResource::new("", "pods"));
        let text = metrics.encode();
        for line in [
            r#"windlass_stale_sync_skips_total{controller="replicaset-controller"} 1"#,
            r#"replicaset_controller_stale_sync_skips_total{group="",resource="pods"} 1"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{text}");
        }
    }

    #[test]
    fn any_controllers_name_makes_a_counters_name() {
        for controller in ["scribe", "scribe-controller", "example.com/scribe", "3rd", "-controller", "é"] {
            StaleSkips::new(&Metrics::new(), controller).count(&GroupResource::new("apps", "replicasets"));
        }
        assert_eq!(name("pod-gc-controller"), "pod_gc_controller_stale_sync_skips_total");
    }
}
