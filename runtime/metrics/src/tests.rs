//! Tests for the rules of the table and the guarantees of the registry.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::Metrics;
use crate::families::bounds;
use crate::names::{self, FamilyDescriptor, MetricType, MetricUnit};

/// Creates every handle and updates each once, so that every family is exported.
fn all_moved() -> Metrics {
    let metrics = Metrics::new();
    metrics.workqueue("replicaset").show_depths([(0, 2)].into_iter());
    let requests = metrics.requests("replicaset-controller");
    requests.observe("create", "pods", "201", "10.0.0.1:443", Duration::from_millis(3));
    requests.limited("list", "10.0.0.1:443", Duration::from_millis(1));
    requests.retried("get", "429", "10.0.0.1:443");
    drop(metrics.election("windlass"));
    drop(metrics.shards("windlass"));
    drop(metrics.informer("apps", "v1", "replicasets"));
    drop(metrics.reconcile("replicaset-controller"));
    metrics.manager().running("replicaset-controller", "windlass").set(1);
    metrics.manager().feature("Fancy", "ALPHA").set(1);
    metrics.admin().requests("/metrics", "200").inc();
    let webhook = metrics.webhooks().webhook("sites.example.com");
    webhook.requests("allowed").inc();
    metrics.manager().healthcheck("leaderElection", "healthz").observe(true);
    metrics.root_ca().observe(200, Duration::from_millis(3));
    metrics.pod_gc().deleting("shop", "orphaned");
    metrics.pod_gc().failed("shop", "orphaned");
    metrics
}

fn families() -> impl Iterator<Item = &'static FamilyDescriptor> {
    names::ALL.iter().copied()
}

#[test]
fn every_built_in_family_has_a_handle_and_is_exported() {
    let text = all_moved().encode();
    for family in families() {
        assert!(text.contains(&format!("# HELP {} ", family.name)), "{} is missing", family.name);
    }
}

#[test]
fn every_exported_family_is_in_the_table() {
    let named: BTreeSet<&str> = families().map(|family| family.name).collect();
    for line in all_moved().encode().lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let name = line.split(' ').next().unwrap_or_default();
        assert!(named.contains(name), "{name} is not in the table");
    }
}

// parity: metrics-slis
#[test]
fn slis_contain_exactly_two_families() {
    let text = all_moved().encode_slis();
    let shown: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()).collect();
    assert_eq!(shown, ["kubernetes_healthcheck", "kubernetes_healthchecks_total"]);
}

/// The start of `docs/metrics.md`.
const PAGE_START: &str = "# Metrics

This page is for operators. It lists the metrics that `/metrics` exports and names those to alert on. A family appears
after its first sample. Two counters have no row: `windlass_undeclared_requests_total` counts requests that the client
rejected because the controller did not declare them, and `<controller>_stale_sync_skips_total` is the upstream name of
`windlass_stale_sync_skips_total` by resource.

This page is generated: `WRITE_DOCS=1 cargo test -p windlass-metrics metrics_page`.

## Alerts

The Helm charts contain these alerts. [Alerts](alerts.md) describes meaning, impact, checks and remedy of each.

| alert | condition | duration |
|---|---|---|
| `WindlassNoMetrics` | no target, or `up` is 0 for all targets | 5 min |
| `WindlassTargetDown` | `up` is 0 for one target | 10 min |
| `WindlassNoLeader` | the sum of `leader_election_master_status` is 0; without shards | 2 min |
| `WindlassSeveralLeaders` | the sum of `leader_election_master_status` is more than 1; without shards | 2 min |
| `WindlassShardNotHeld` | the sum of `windlass_shards_held` is less than the number of shards | 5 min |
| `WindlassShardHeldTwice` | the sum of `leader_election_master_status` of one shard is more than 1 | 2 min |
| `WindlassTwoManagers` | `workqueue_depth` of one queue is exported by Windlass and by kube-controller-manager | 10 min |
| `WindlassReconcileErrors` | more than 10 % of `windlass_reconcile_total` of a controller are `error`, `terminal` or \
`panic`, and more than one a minute | 15 min |
| `WindlassWritesRejected` | more than 10 % of the writes in `windlass_client_requests_total` of an identity to a resource \
have the code 400, 403, 413 or 422, and more than one a minute | 15 min |
| `WindlassEventsFailed` | `windlass_events_failed_total` increases | 15 min |
| `WindlassQuarantinedKeys` | `windlass_quarantined_keys` is more than 0 | 5 min |
| `WindlassUndecodableKeys` | `windlass_undecodable_keys` is more than 0 | 5 min |
| `WindlassStuckWorker` | `workqueue_longest_running_processor_seconds` is more than 300 | 2 min |
| `WindlassCacheCannotList` | `windlass_informer_list_errors_total` increases | 10 min |

";

#[test]
fn metrics_page_matches_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let mut page = PAGE_START.to_owned();
    for (title, is_own) in [("Metrics of Windlass", true), ("Metrics with the names of upstream", false)] {
        page +=
            &format!("## {title}\n\n| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n");
        for FamilyDescriptor { name, help, unit, kind, labels } in families() {
            if name.starts_with("windlass_") == is_own {
                let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
                let labels = labels.join(", ");
                page += &format!(
                    "| `{name}` | {} | {labels} | {} | {help} |\n",
                    shown_type(*kind),
                    shown_unit(*unit)
                );
            }
        }
        page.push('\n');
    }
    page.pop();
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, &page).expect("docs/metrics.md is writable");
    }
    assert!(
        std::fs::read_to_string(path).expect("docs/metrics.md") == page,
        "run this test with WRITE_DOCS=1"
    );
}

fn shown_type(kind: MetricType) -> &'static str {
    match kind {
        MetricType::Counter | MetricType::FloatCounter => "counter",
        MetricType::Gauge | MetricType::FloatGauge => "gauge",
        MetricType::Histogram(_) => "histogram",
    }
}

fn shown_unit(unit: MetricUnit) -> &'static str {
    match unit {
        MetricUnit::Count => "count",
        MetricUnit::Seconds => "seconds",
        MetricUnit::Bytes => "bytes",
        MetricUnit::Flag => "0 or 1",
        MetricUnit::Ratio => "ratio",
        MetricUnit::Version => "resource version",
    }
}

#[test]
fn metric_names_are_unique() {
    let distinct: BTreeSet<&str> = families().map(|family| family.name).collect();
    assert_eq!(distinct.len(), names::ALL.len());
}

#[test]
fn metric_help_is_one_sentence() {
    for family in families() {
        let first = family.help.chars().next();
        assert!(first.is_some_and(char::is_uppercase) && family.help.ends_with('.'), "{}", family.name);
    }
}

#[test]
fn metric_names_end_with_unit_and_counters_with_total() {
    for family in families() {
        let counter = matches!(family.kind, MetricType::Counter | MetricType::FloatCounter);
        assert_eq!(family.name.ends_with("_total"), counter, "{}", family.name);
        let stem = family.name.trim_end_matches("_total");
        assert_eq!(stem.ends_with("_seconds"), family.unit == MetricUnit::Seconds, "{}", family.name);
        assert_eq!(stem.ends_with("_bytes"), family.unit == MetricUnit::Bytes, "{}", family.name);
        assert_eq!(stem.ends_with("_ratio"), family.unit == MetricUnit::Ratio, "{}", family.name);
        assert_eq!(stem.ends_with("_version"), family.unit == MetricUnit::Version, "{}", family.name);
    }
}

#[test]
fn histogram_bounds_are_ascending() {
    for family in families() {
        if let MetricType::Histogram(buckets) = family.kind {
            assert!(bounds(buckets).is_sorted_by(|low, high| low < high), "{}", family.name);
        }
    }
}

// parity: metrics-name, no-metrics
#[test]
fn queue_metrics_have_upstream_names_label_and_buckets() {
    let metrics = Metrics::new();
    let queue = metrics.workqueue("replicaset");
    queue.adds.inc();
    queue.depth.set(3);
    queue.retries.inc_by(2);
    queue.queue_duration.observe(0.000_000_05);
    queue.work_duration.observe(2.0);
    queue.unfinished_work.set(1.5);
    queue.longest_running.set(0.5);
    let text = metrics.encode();
    for line in [
        "workqueue_adds_total{name=\"replicaset\"} 1",
        "workqueue_depth{name=\"replicaset\"} 3",
        "workqueue_retries_total{name=\"replicaset\"} 2",
        "workqueue_queue_duration_seconds_bucket{name=\"replicaset\",le=\"0.00000001\"} 0",
        "workqueue_queue_duration_seconds_bucket{name=\"replicaset\",le=\"0.0000001\"} 1",
        "workqueue_queue_duration_seconds_count{name=\"replicaset\"} 1",
        "workqueue_work_duration_seconds_sum{name=\"replicaset\"} 2",
        "workqueue_unfinished_work_seconds{name=\"replicaset\"} 1.5",
        "workqueue_longest_running_processor_seconds{name=\"replicaset\"} 0.5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    let queue_buckets =
        text.lines().filter(|line| line.starts_with("workqueue_queue_duration_seconds_bucket"));
    assert_eq!(queue_buckets.count(), 11, "ten bounds and infinity");
}

#[test]
fn priority_depth_is_exported_for_at_most_25_priorities() {
    let metrics = Metrics::new();
    let queue = metrics.workqueue("q");
    let shows = |line: &str| {
        let (text, line) =
            (metrics.encode(), format!("windlass_workqueue_priority_depth{{name=\"q\",{line}"));
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    };
    queue.show_depths([(100, 1), (0, 2)].into_iter());
    shows("priority=\"100\"} 1");
    shows("priority=\"0\"} 2");
    queue.show_depths([(-100, 3)].into_iter());
    shows("priority=\"0\"} 0");
    shows("priority=\"-100\"} 3");
    queue.show_depths((0..30).map(|priority| (priority, 1)));
    shows("priority=\"22\"} 1");
    shows("priority=\"exceeded_cardinality_limit\"} 7");
}

// parity: rest-client
#[test]
fn request_is_counted_by_upstream_labels_and_by_identity() {
    let metrics = Metrics::new();
    let requests = metrics.requests("endpoint-controller");
    requests.observe("deletecollection", "pods", "200", "h", Duration::from_millis(30));
    requests.observe("watch", "pods", "200", "h", Duration::from_millis(30));
    let text = metrics.encode();
    assert!(
        text.contains("rest_client_requests_total{code=\"200\",host=\"h\",method=\"DELETE\"} 1"),
        "{text}"
    );
    assert!(text.contains("rest_client_requests_total{code=\"200\",host=\"h\",method=\"GET\"} 1"), "{text}");
    assert!(
        text.contains("rest_client_request_duration_seconds_count{host=\"h\",verb=\"DELETE\"} 1"),
        "{text}"
    );
    let own = "windlass_client_requests_total{code=\"200\",identity=\"endpoint-controller\",resource=\"pods\",\
               verb=\"deletecollection\"} 1";
    assert!(text.contains(own), "{text}");
}

// parity: several-clusters
#[test]
fn metrics_registries_are_independent() {
    let (first, second) = (Metrics::new(), Metrics::new());
    first.workqueue("a").adds.inc();
    assert_eq!(second.workqueue("a").adds.get(), 0);
    assert!(!second.clone().encode().contains("workqueue_adds_total{name=\"a\"} 1"));
}

#[test]
fn handles_with_equal_labels_share_metrics() {
    let metrics = Metrics::new();
    metrics.reconcile("a").total.success.inc();
    assert_eq!(metrics.clone().reconcile("a").total.success.get(), 1);
    assert_eq!(metrics.reconcile("b").total.success.get(), 0);
}

#[test]
fn gather_hooks_run_in_order_and_can_add_hooks() {
    let metrics = Metrics::new();
    let (runs, gauge) = (Arc::new(AtomicUsize::new(0)), metrics.workqueue("a").unfinished_work);
    let inner: Weak<AtomicUsize> = Arc::downgrade(&runs);
    let handle = metrics.workqueue("a");
    metrics.workqueue("a").on_gather(Box::new(move || {
        gauge.set(7.0);
        let inner = inner.clone();
        handle.on_gather(Box::new(move || {
            if let Some(runs) = inner.upgrade() {
                runs.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }));
    assert!(metrics.encode().contains("workqueue_unfinished_work_seconds{name=\"a\"} 7"));
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    metrics.encode();
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[test]
fn process_metrics_match_the_kernel() {
    let metrics = Metrics::new();
    let value = |name: &str| -> f64 {
        let text = metrics.encode();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("{name} is missing")).parse().expect("a number")
    };
    assert!(value("process_resident_memory_bytes") > 100_000.0);
    assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
    assert!(value("process_start_time_seconds") > 1_600_000_000.0);
    assert!(value("process_threads") >= 1.0);
    assert!(value("process_max_fds") >= value("process_open_fds"));
    assert!(value("process_cpu_seconds_total") >= 0.0);
}

// parity: new-informer-name
#[test]
fn store_version_gauge_has_last_15_digits() {
    let metrics = Metrics::new();
    let informer = metrics.informer("", "v1", "pods");
    informer.reached("12345");
    assert!((informer.store_resource_version.get() - 12_345.0).abs() < 0.5);
    informer.reached("9123456789012345");
    assert!((informer.store_resource_version.get() - 123_456_789_012_345.0).abs() < 0.5);
    informer.reached("not a number");
    assert!((informer.store_resource_version.get() - 123_456_789_012_345.0).abs() < 0.5);
    let label = "windlass_informer_objects{group=\"\",name=\"windlass\",resource=\"pods\",version=\"v1\"} 0";
    assert!(metrics.encode().contains(label));
}

#[test]
fn health_check_exports_latest_result_and_history() {
    let metrics = Metrics::new();
    let check = metrics.manager().healthcheck("leaderElection", "healthz");
    check.observe(true);
    check.observe(false);
    let text = metrics.encode();
    assert!(text.contains("kubernetes_healthcheck{name=\"leaderElection\",type=\"healthz\"} 0"), "{text}");
    for status in ["success", "error"] {
        let line =
            format!("healthchecks_total{{name=\"leaderElection\",status=\"{status}\",type=\"healthz\"}} 1");
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn custom_family_is_registered_once_and_shared() {
    let metrics = Metrics::new();
    let changes =
        |operation| metrics.custom_counter("x_changes_total", "Changes.", &[("operation", operation)]);
    changes("create").inc();
    changes("create").inc();
    changes("delete").inc();
    assert_eq!((changes("create").get(), changes("delete").get()), (2, 1));
    for _ in 0..2 {
        metrics.custom_histogram("x_skew_seconds", "Skew.", &[], vec![1.0, 2.0]).observe(1.5);
    }
    metrics.custom_gauge("x_slices", "Slices.", &[]).set(4);
    let text = metrics.encode();
    assert!(text.contains("x_skew_seconds_count 2") && text.contains("x_slices 4"), "{text}");
}

#[test]
fn conflicting_custom_family_is_rejected() {
    let refused = |f: fn(&Metrics)| {
        let metrics = Metrics::new();
        metrics.custom_counter("x_total", "X.", &[("a", "1")]);
        catch_unwind(std::panic::AssertUnwindSafe(|| f(&metrics))).is_err()
    };
    assert!(refused(|metrics| drop(metrics.custom_gauge("x_total", "X.", &[]))), "another type");
    assert!(refused(|metrics| drop(metrics.custom_counter("x_total", "X.", &[]))), "other labels");
    assert!(refused(|metrics| drop(metrics.custom_gauge("workqueue_depth", "X.", &[]))), "built-in");
    let same = |metrics: &Metrics| drop(metrics.custom_gauge("workqueue_depth", "X.", &[("name", "q")]));
    assert!(refused(same), "built-in with the same labels");
    assert!(refused(|metrics| drop(metrics.custom_gauge("not a name", "X.", &[]))), "illegal");
}
