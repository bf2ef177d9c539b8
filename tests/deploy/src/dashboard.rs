//! The Grafana dashboard of a controller manager, from which `files/dashboard.json` of the library chart is generated.
//!
//! Queries select a release by the variables `job` and `namespace`, so that one dashboard works for every release. The
//! chart sets title, UID and the selected release.

use serde_json::{Value, json};

/// Width of the grid, in Grafana's units.
const WIDTH: usize = 24;

/// Width and height of a panel.
const PANEL: (usize, usize) = (8, 8);

/// The selector of a release in queries below.
const RELEASE: &str = "$release";

/// A row of panels.
struct Row {
    title: &'static str,
    panels: &'static [Panel],
}

/// A graph over time.
struct Panel {
    title: &'static str,
    unit: &'static str,
    /// PromQL with `$release` for the selector of the release, and the legend.
    queries: &'static [(&'static str, &'static str)],
}

const fn panel(
    title: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, unit, queries }
}

const ROWS: &[Row] = &[
    Row {
        title: "Replicas",
        panels: &[
            panel(
                "Leader status",
                "none",
                &[("leader_election_master_status{$release}", "{{instance}} {{name}}")],
            ),
            panel(
                "Running controllers",
                "none",
                &[("sum by (name) (running_managed_controllers{$release})", "{{name}}")],
            ),
            panel("Scraped replicas", "none", &[("up{$release}", "{{instance}}")]),
            panel(
                "Replicas by version",
                "none",
                &[("count by (version) (windlass_build_info{$release})", "{{version}}")],
            ),
            panel(
                "Health checks",
                "none",
                &[("min by (type, name) (kubernetes_healthcheck{$release})", "{{type}} {{name}}")],
            ),
            panel(
                "Lease renewals that read first",
                "ops",
                &[(
                    "sum by (name) (rate(leader_election_slowpath_total{$release}[$__rate_interval]))",
                    "{{name}}",
                )],
            ),
        ],
    },
    Row {
        title: "Reconciles",
        panels: &[
            panel(
                "Reconciles by result",
                "ops",
                &[(
                    "sum by (controller, result) (rate(windlass_reconcile_total{$release}[$__rate_interval])) > 0",
                    "{{controller}} {{result}}",
                )],
            ),
            panel(
                "Failed reconciles",
                "percentunit",
                &[(
                    "sum by (controller) (rate(windlass_reconcile_total{$release,result=~\"error|terminal|panic\"}[$__rate_interval])) / sum by (controller) (rate(windlass_reconcile_total{$release}[$__rate_interval]))",
                    "{{controller}}",
                )],
            ),
            panel(
                "Duration of reconciles, 99th percentile",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (controller, le) (rate(windlass_reconcile_duration_seconds_bucket{$release}[$__rate_interval])))",
                    "{{controller}}",
                )],
            ),
            panel(
                "Busy workers",
                "percentunit",
                &[(
                    "sum by (controller) (windlass_active_workers{$release}) / sum by (controller) (windlass_max_concurrent_reconciles{$release})",
                    "{{controller}}",
                )],
            ),
            panel(
                "Keys that are not reconciled",
                "none",
                &[
                    (
                        "sum by (controller) (windlass_quarantined_keys{$release})",
                        "{{controller}} quarantined",
                    ),
                    (
                        "sum by (controller) (windlass_undecodable_keys{$release})",
                        "{{controller}} undecodable",
                    ),
                ],
            ),
            panel(
                "Panics and timeouts",
                "ops",
                &[
                    (
                        "sum by (controller) (rate(windlass_reconcile_panics_total{$release}[$__rate_interval]))",
                        "{{controller}} panics",
                    ),
                    (
                        "sum by (controller) (rate(windlass_reconcile_timeouts_total{$release}[$__rate_interval]))",
                        "{{controller}} timeouts",
                    ),
                ],
            ),
            panel(
                "Reconciles delayed by the cache",
                "ops",
                &[(
                    "sum by (controller) (rate(windlass_stale_sync_skips_total{$release}[$__rate_interval]))",
                    "{{controller}}",
                )],
            ),
            panel(
                "Writes without a change",
                "ops",
                &[(
                    "sum by (controller) (rate(windlass_noop_writes_total{$release}[$__rate_interval]))",
                    "{{controller}}",
                )],
            ),
            panel(
                "Events",
                "ops",
                &[
                    ("sum(rate(windlass_events_recorded_total{$release}[$__rate_interval]))", "recorded"),
                    ("sum(rate(windlass_events_sent_total{$release}[$__rate_interval]))", "sent"),
                    ("sum(rate(windlass_events_dropped_total{$release}[$__rate_interval]))", "dropped"),
                    ("sum(rate(windlass_events_failed_total{$release}[$__rate_interval]))", "failed"),
                ],
            ),
        ],
    },
    Row {
        title: "Queues",
        panels: &[
            panel("Queued keys", "none", &[("sum by (name) (workqueue_depth{$release})", "{{name}}")]),
            panel(
                "Ready keys by priority",
                "none",
                &[(
                    "sum by (name, priority) (windlass_workqueue_priority_depth{$release})",
                    "{{name}} {{priority}}",
                )],
            ),
            panel(
                "Added keys",
                "ops",
                &[("sum by (name) (rate(workqueue_adds_total{$release}[$__rate_interval]))", "{{name}}")],
            ),
            panel(
                "Keys added with a delay",
                "ops",
                &[("sum by (name) (rate(workqueue_retries_total{$release}[$__rate_interval]))", "{{name}}")],
            ),
            panel(
                "Time in the queue, 99th percentile",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket{$release}[$__rate_interval])))",
                    "{{name}}",
                )],
            ),
            panel(
                "Longest running reconcile",
                "s",
                &[("max by (name) (workqueue_longest_running_processor_seconds{$release})", "{{name}}")],
            ),
        ],
    },
    Row {
        title: "Caches",
        panels: &[
            panel(
                "Objects",
                "none",
                &[(
                    "max by (group, version, resource) (windlass_informer_objects{$release})",
                    "{{resource}} {{group}}/{{version}}",
                )],
            ),
            panel(
                "Lists and watches",
                "ops",
                &[
                    (
                        "sum by (resource) (rate(windlass_informer_lists_total{$release}[$__rate_interval]))",
                        "{{resource}} lists",
                    ),
                    (
                        "sum by (resource) (rate(windlass_informer_watches_total{$release}[$__rate_interval]))",
                        "{{resource}} watches",
                    ),
                ],
            ),
            panel(
                "Failed lists and watches",
                "ops",
                &[
                    (
                        "sum by (resource) (rate(windlass_informer_list_errors_total{$release}[$__rate_interval]))",
                        "{{resource}} lists",
                    ),
                    (
                        "sum by (resource) (rate(windlass_informer_watch_errors_total{$release}[$__rate_interval]))",
                        "{{resource}} watches",
                    ),
                ],
            ),
            panel(
                "Queued changes",
                "none",
                &[("sum by (resource) (informer_queued_items{$release})", "{{resource}}")],
            ),
            panel(
                "Processing of changes, 99th percentile",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (resource, le) (rate(informer_processing_latency_seconds_bucket{$release}[$__rate_interval])))",
                    "{{resource}}",
                )],
            ),
            panel(
                "Undecodable objects and panics of handlers",
                "ops",
                &[
                    (
                        "sum by (resource) (rate(windlass_informer_decode_failures_total{$release}[$__rate_interval]))",
                        "{{resource}} undecodable",
                    ),
                    (
                        "sum by (resource) (rate(windlass_informer_handler_panics_total{$release}[$__rate_interval]))",
                        "{{resource}} panics",
                    ),
                ],
            ),
        ],
    },
    Row {
        title: "Requests to the API server",
        panels: &[
            panel(
                "Requests by status code",
                "reqps",
                &[(
                    "sum by (code, method) (rate(rest_client_requests_total{$release}[$__rate_interval]))",
                    "{{code}} {{method}}",
                )],
            ),
            panel(
                "Most frequent requests",
                "reqps",
                &[(
                    "topk(10, sum by (identity, verb, resource) (rate(windlass_client_requests_total{$release}[$__rate_interval])))",
                    "{{identity}} {{verb}} {{resource}}",
                )],
            ),
            panel(
                "Rejected requests",
                "reqps",
                &[(
                    "sum by (identity, verb, resource, code) (rate(windlass_client_requests_total{$release,code!~\"[123]..\"}[$__rate_interval]))",
                    "{{identity}} {{verb}} {{resource}} {{code}}",
                )],
            ),
            panel(
                "Duration of requests, 99th percentile",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (verb, le) (rate(rest_client_request_duration_seconds_bucket{$release}[$__rate_interval])))",
                    "{{verb}}",
                )],
            ),
            panel(
                "Wait for the client's rate limit, 99th percentile",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (verb, le) (rate(rest_client_rate_limiter_duration_seconds_bucket{$release}[$__rate_interval])))",
                    "{{verb}}",
                )],
            ),
            panel(
                "Repeated requests",
                "reqps",
                &[(
                    "sum by (code, verb) (rate(rest_client_request_retries_total{$release}[$__rate_interval]))",
                    "{{code}} {{verb}}",
                )],
            ),
        ],
    },
    Row {
        title: "Shards",
        panels: &[
            panel("Held shards", "none", &[("windlass_shards_held{$release}", "{{instance}}")]),
            panel("Members", "none", &[("windlass_shard_members{$release}", "{{instance}}")]),
            panel(
                "Generation of the shard map",
                "none",
                &[("windlass_shard_generation{$release}", "{{instance}}")],
            ),
            panel(
                "Heavy namespaces",
                "none",
                &[("max(windlass_shard_heavy_namespaces{$release})", "namespaces")],
            ),
            panel(
                "Duration of handoffs, 99th percentile",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (le) (rate(windlass_shard_handoff_duration_seconds_bucket{$release}[$__rate_interval])))",
                    "handoff",
                )],
            ),
        ],
    },
    Row {
        title: "Webhooks",
        panels: &[
            panel(
                "Requests by result",
                "reqps",
                &[(
                    "sum by (webhook, result) (rate(windlass_webhook_requests_total{$release}[$__rate_interval]))",
                    "{{webhook}} {{result}}",
                )],
            ),
            panel(
                "Duration, 99th percentile",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (webhook, le) (rate(windlass_webhook_duration_seconds_bucket{$release}[$__rate_interval])))",
                    "{{webhook}}",
                )],
            ),
            panel(
                "Requests in progress and connections",
                "none",
                &[
                    ("sum by (webhook) (windlass_webhook_requests_in_flight{$release})", "{{webhook}}"),
                    ("sum(windlass_webhook_connections{$release})", "connections"),
                ],
            ),
            panel(
                "Panics",
                "ops",
                &[(
                    "sum by (webhook) (rate(windlass_webhook_panics_total{$release}[$__rate_interval]))",
                    "{{webhook}}",
                )],
            ),
            panel(
                "Time until the certificate expires",
                "s",
                &[(
                    "min by (instance) (windlass_webhook_certificate_remaining_seconds{$release})",
                    "{{instance}}",
                )],
            ),
        ],
    },
    Row {
        title: "Process",
        panels: &[
            panel(
                "CPU",
                "none",
                &[("rate(process_cpu_seconds_total{$release}[$__rate_interval])", "{{instance}}")],
            ),
            panel("Resident memory", "bytes", &[("process_resident_memory_bytes{$release}", "{{instance}}")]),
            panel("Open file descriptors", "none", &[("process_open_fds{$release}", "{{instance}}")]),
            panel(
                "Tasks and threads",
                "none",
                &[
                    ("windlass_tasks{$release}", "{{instance}} tasks"),
                    ("process_threads{$release}", "{{instance}} threads"),
                ],
            ),
            panel(
                "Requests to the admin server",
                "reqps",
                &[(
                    "sum by (endpoint, code) (rate(windlass_admin_requests_total{$release}[$__rate_interval]))",
                    "{{endpoint}} {{code}}",
                )],
            ),
            panel(
                "Reviews of readers",
                "ops",
                &[(
                    "sum by (review, outcome) (rate(windlass_admin_reviews_total{$release}[$__rate_interval]))",
                    "{{review}} {{outcome}}",
                )],
            ),
        ],
    },
];

/// Returns the dashboard as Grafana reads it.
#[must_use]
pub fn dashboard() -> Value {
    let mut panels = Vec::new();
    let mut top = 0;
    for row in ROWS {
        let position = json!({ "x": 0, "y": top, "w": WIDTH, "h": 1 });
        let id = panels.len() + 1;
        panels.push(json!({ "id": id, "type": "row", "title": row.title, "collapsed": false, "gridPos": position, "panels": [] }));
        top += 1;
        let (width, height) = PANEL;
        let per_line = WIDTH / width;
        for (index, panel) in row.panels.iter().enumerate() {
            let (x, y) = (index % per_line * width, top + index / per_line * height);
            panels.push(panel.json(panels.len() + 1, &json!({ "x": x, "y": y, "w": width, "h": height })));
        }
        top += row.panels.len().div_ceil(per_line) * height;
    }
    json!({
        "title": "Windlass",
        "uid": "windlass",
        "tags": ["windlass"],
        "editable": true,
        "schemaVersion": 39,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "timezone": "",
        "annotations": { "list": [] },
        "templating": { "list": variables() },
        "panels": panels,
    })
}

impl Panel {
    fn json(&self, id: usize, position: &Value) -> Value {
        let targets = self.queries.iter().zip('A'..).map(|((query, legend), reference)| {
            let query = query.replace(RELEASE, "job=\"$job\",namespace=\"$namespace\"");
            json!({ "refId": reference, "expr": query, "legendFormat": legend, "datasource": datasource() })
        });
        let unit = json!({ "defaults": { "unit": self.unit, "min": 0 }, "overrides": [] });
        json!({
            "id": id,
            "type": "timeseries",
            "title": self.title,
            "datasource": datasource(),
            "gridPos": position,
            "fieldConfig": unit,
            "options": { "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi", "sort": "desc" } },
            "targets": targets.collect::<Vec<_>>(),
        })
    }
}

fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// Returns the variables: the data source, and namespace and job of the release.
fn variables() -> Vec<Value> {
    let query = |name: &str, query: &str| {
        json!({
            "name": name,
            "type": "query",
            "datasource": datasource(),
            "definition": query,
            "query": { "query": query, "refId": name },
            "refresh": 2,
            "sort": 1,
            "current": {},
        })
    };
    vec![
        json!({ "name": "datasource", "type": "datasource", "query": "prometheus", "current": {} }),
        query("namespace", "label_values(windlass_build_info, namespace)"),
        query("job", "label_values(windlass_build_info{namespace=\"$namespace\"}, job)"),
    ]
}
