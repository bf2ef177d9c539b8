//! The table of all metric families: name, help text, unit, type, labels and buckets.
//!
//! Metrics that upstream's controller manager exports keep their names, so that dashboards and alerts can be reused.
//! Other families start with `windlass_`. A name ends with its unit; the name of a counter ends with `_total`.

/// The static description of one metric family.
#[derive(Debug)]
pub struct FamilyDescriptor {
    /// The full name.
    pub name: &'static str,
    /// The help text: a noun phrase.
    pub help: &'static str,
    /// The unit of the values.
    pub unit: MetricUnit,
    /// The type of the metric.
    pub kind: MetricType,
    /// The names of the labels, in the order in which handles pass their values.
    pub labels: &'static [&'static str],
}

/// The unit of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// A number of events or items.
    Count,
    /// Seconds, including fractions.
    Seconds,
    /// Bytes.
    Bytes,
    /// 0 or 1.
    Flag,
    /// A ratio without a unit.
    Ratio,
    /// Digits of a resource version.
    Version,
}

/// The type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricType {
    /// Increases only, in whole steps.
    Counter,
    /// Increases only, with fractions.
    FloatCounter,
    /// Increases and decreases, in whole steps.
    Gauge,
    /// Increases and decreases, with fractions.
    FloatGauge,
    /// Counts observations by bucket.
    Histogram(Buckets),
}

/// The upper bounds of a histogram's buckets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buckets {
    /// The given bounds.
    Fixed(&'static [f64]),
    /// `count` bounds: `start`, `start * factor`, and so on.
    Exponential {
        /// The first bound.
        start: f64,
        /// The factor from one bound to the next.
        factor: f64,
        /// The number of bounds.
        count: usize,
    },
}

/// Upstream's bounds for queues: ten nanoseconds to ten seconds.
const QUEUE_BUCKETS: Buckets = Buckets::Exponential { start: 1e-8, factor: 10.0, count: 10 };

/// Upstream's bounds for requests to the API server.
const REQUEST_BUCKETS: Buckets =
    Buckets::Fixed(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);

/// Upstream's bounds for the processing of watch events.
const PROCESSING_BUCKETS: Buckets =
    Buckets::Fixed(&[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

/// Bounds for shard handoffs: milliseconds for an idle shard, otherwise as long as the slowest reconcile.
const HAND_OVER_BUCKETS: Buckets = Buckets::Exponential { start: 0.01, factor: 3.0, count: 9 };

/// Bounds for reconciles: from a reconcile without changes to one that writes hundreds of objects.
const RECONCILE_BUCKETS: Buckets = Buckets::Fixed(&[
    0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
]);

const INFORMER_LABELS: &[&str] = &["name", "group", "version", "resource"];
const CONTROLLER_LABELS: &[&str] = &["controller"];

macro_rules! families {
    ($($(#[$group:meta])* $constant:ident: $kind:expr, $unit:ident, $name:literal, $labels:expr, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: FamilyDescriptor =
                FamilyDescriptor { name: $name, help: $help, unit: MetricUnit::$unit, kind: $kind, labels: $labels };
        )*

        /// Every built-in family.
        pub const ALL: &[&FamilyDescriptor] = &[$(&$constant),*];
    };
}

/// The families that `/metrics/slis` exports, as in upstream's components.
pub const SLI_FAMILIES: &[&FamilyDescriptor] = &[&HEALTHCHECK, &HEALTHCHECKS];

families! {
    // Work queues, with upstream's names.
    WORKQUEUE_DEPTH: MetricType::Gauge, Count, "workqueue_depth", &["name"],
        "Queued keys, including keys in progress that must be processed again.";
    WORKQUEUE_ADDS: MetricType::Counter, Count, "workqueue_adds_total", &["name"],
        "Keys added to the queue. Adding a key that is already queued is not counted.";
    WORKQUEUE_QUEUE_DURATION: MetricType::Histogram(QUEUE_BUCKETS), Seconds, "workqueue_queue_duration_seconds", &["name"],
        "Time that a key is queued before a worker dequeues it.";
    WORKQUEUE_WORK_DURATION: MetricType::Histogram(QUEUE_BUCKETS), Seconds, "workqueue_work_duration_seconds", &["name"],
        "Time that a worker processes a key.";
    WORKQUEUE_UNFINISHED_WORK: MetricType::FloatGauge, Seconds, "workqueue_unfinished_work_seconds", &["name"],
        "Sum of the processing times of all keys in progress. Grows while workers are stuck.";
    WORKQUEUE_LONGEST_RUNNING: MetricType::FloatGauge, Seconds, "workqueue_longest_running_processor_seconds", &["name"],
        "Longest processing time of all keys in progress.";
    WORKQUEUE_RETRIES: MetricType::Counter, Count, "workqueue_retries_total", &["name"],
        "Keys added with a delay, set by the rate limiter or by the caller.";
    WORKQUEUE_PRIORITY_DEPTH: MetricType::Gauge, Count, "windlass_workqueue_priority_depth", &["name", "priority"],
        "Keys that are ready to be dequeued, by priority.";

    // Requests to the API server.
    REQUESTS: MetricType::Counter, Count, "rest_client_requests_total", &["code", "method", "host"],
        "Requests to the API server, by status code, HTTP method and host.";
    REQUEST_DURATION: MetricType::Histogram(REQUEST_BUCKETS), Seconds, "rest_client_request_duration_seconds", &["verb", "host"],
        "Duration of requests to the API server, from leaving the rate limiter to the response header.";
    REQUEST_LIMITED: MetricType::Histogram(REQUEST_BUCKETS), Seconds, "rest_client_rate_limiter_duration_seconds", &["verb", "host"],
        "Time that requests to the API server wait in the client's rate limiter.";
    REQUEST_RETRIES: MetricType::Counter, Count, "rest_client_request_retries_total", &["code", "verb", "host"],
        "Repeated requests to the API server, by the result of the previous attempt.";
    CLIENT_REQUESTS: MetricType::Counter, Count, "windlass_client_requests_total", &["verb", "resource", "code", "identity"],
        "Requests to the API server, by Kubernetes verb, resource, status code and the identity that sent them.";

    // Leader election.
    LEADER_STATUS: MetricType::Gauge, Flag, "leader_election_master_status", &["name"],
        "Leader status of this process: 1 if it holds the Lease, 0 if it is on standby.";
    LEADER_SLOWPATH: MetricType::Counter, Count, "leader_election_slowpath_total", &["name"],
        "Renewals of the Lease that had to read it first.";

    SHARDS_HELD: MetricType::Gauge, Count, "windlass_shards_held", &["name"],
        "Shards of this election that this process holds.";
    SHARD_MEMBERS: MetricType::Gauge, Count, "windlass_shard_members", &["name"],
        "Live replicas that share the shards, as observed by this replica.";
    SHARD_GENERATION: MetricType::Gauge, Count, "windlass_shard_generation", &["name"],
        "Generation of the shard map; 0 before the first map.";
    SHARD_HEAVY: MetricType::Gauge, Count, "windlass_shard_heavy_namespaces", &["name"],
        "Namespaces with more objects than one shard's fair share. No shard map can balance them.";
    SHARD_HAND_OVER: MetricType::Histogram(HAND_OVER_BUCKETS), Seconds, "windlass_shard_handoff_duration_seconds",
        &["name"],
        "Time to release a shard, from the stop request to the controllers until the release of the Lease.";

    // Informers. The first three are upstream's.
    INFORMER_QUEUED: MetricType::Gauge, Count, "informer_queued_items", INFORMER_LABELS,
        "Deltas queued between the watch and the store.";
    INFORMER_LATENCY: MetricType::Histogram(PROCESSING_BUCKETS), Seconds, "informer_processing_latency_seconds", INFORMER_LABELS,
        "Time from dequeuing a delta until the store contains it and the handlers have received the event.";
    INFORMER_VERSION: MetricType::FloatGauge, Version, "informer_store_resource_version", INFORMER_LABELS,
        "Last 15 digits of the resource version of the store.";
    INFORMER_OBJECTS: MetricType::Gauge, Count, "windlass_informer_objects", INFORMER_LABELS,
        "Objects in the informer's store.";
    INFORMER_BYTES: MetricType::Gauge, Bytes, "windlass_informer_bytes", INFORMER_LABELS,
        "Wire size of the objects in the informer's store. Only exported for informers with a byte budget.";
    INFORMER_LISTS: MetricType::Counter, Count, "windlass_informer_lists_total", INFORMER_LABELS,
        "Full lists requested from the API server.";
    INFORMER_WATCHES: MetricType::Counter, Count, "windlass_informer_watches_total", INFORMER_LABELS,
        "Watches started at the API server.";
    INFORMER_LIST_ERRORS: MetricType::Counter, Count, "windlass_informer_list_errors_total", INFORMER_LABELS,
        "Lists that failed.";
    INFORMER_WATCH_ERRORS: MetricType::Counter, Count, "windlass_informer_watch_errors_total", INFORMER_LABELS,
        "Watches that failed, at the start or later.";
    INFORMER_DECODE_FAILURES: MetricType::Counter, Count, "windlass_informer_decode_failures_total", INFORMER_LABELS,
        "Objects that could not be decoded and are excluded from the cache.";
    INFORMER_HANDLER_PANICS: MetricType::Counter, Count, "windlass_informer_handler_panics_total", INFORMER_LABELS,
        "Panics caught in event handlers, index functions and watch error handlers.";
    INFORMER_HANDLER_OVERFLOWS: MetricType::Counter, Count, "windlass_informer_handler_overflows_total", INFORMER_LABELS,
        "Handlers with `EveryEvent` delivery that were removed because their backlog exceeded its limit.";
    INFORMER_OVER_BUDGET: MetricType::Counter, Count, "windlass_informer_budget_exceeded_total", INFORMER_LABELS,
        "Lists and watches that were stopped because the informer's byte budget would have been exceeded.";

    // Controllers.
    RECONCILES: MetricType::Counter, Count, "windlass_reconcile_total", &["controller", "result"],
        "Completed reconciles by result: success, requeue, requeue_after, error, terminal or panic.";
    RECONCILE_DURATION: MetricType::Histogram(RECONCILE_BUCKETS), Seconds, "windlass_reconcile_duration_seconds", CONTROLLER_LABELS,
        "Duration of a reconcile.";
    ACTIVE_WORKERS: MetricType::Gauge, Count, "windlass_active_workers", CONTROLLER_LABELS,
        "Workers with a reconcile in progress.";
    MAX_CONCURRENT_RECONCILES: MetricType::Gauge, Count, "windlass_max_concurrent_reconciles", CONTROLLER_LABELS,
        "Number of workers.";
    RECONCILE_PANICS: MetricType::Counter, Count, "windlass_reconcile_panics_total", CONTROLLER_LABELS,
        "Panics caught in reconciles and in functions that map events to keys.";
    RECONCILE_TIMEOUTS: MetricType::Counter, Count, "windlass_reconcile_timeouts_total", CONTROLLER_LABELS,
        "Reconciles that were dropped because they exceeded the timeout of their controller.";
    QUARANTINED_KEYS: MetricType::Gauge, Count, "windlass_quarantined_keys", CONTROLLER_LABELS,
        "Keys in quarantine until their object changes, because their reconcile panicked repeatedly.";
    UNDECODABLE_KEYS: MetricType::Gauge, Count, "windlass_undecodable_keys", CONTROLLER_LABELS,
        "Keys that are not reconciled because their object cannot be decoded.";
    STALE_SYNC_SKIPS: MetricType::Counter, Count, "windlass_stale_sync_skips_total", CONTROLLER_LABELS,
        "Reconciles delayed because the cache did not yet contain the controller's last write.";
    NOOP_WRITES: MetricType::Counter, Count, "windlass_noop_writes_total", CONTROLLER_LABELS,
        "Writes of a controller that did not change the object: the response has the resource version of the request.";
    SORTING_DELETION_AGE_RATIO: MetricType::Histogram(Buckets::Exponential { start: 0.25, factor: 2.0, count: 6 }), Ratio,
        "replicaset_controller_sorting_deletion_age_ratio", &[],
        "Age of a ready Pod chosen for deletion, divided by the age of the youngest ready Pod. Usually below 2.";
    ROOT_CA_SYNCS: MetricType::Counter, Count, "root_ca_cert_publisher_sync_total", &["code"],
        "Syncs of namespaces by the publisher of the root CA, by status code of their last request; 200 for a success.";
    ROOT_CA_SYNC_DURATION: MetricType::Histogram(Buckets::Exponential { start: 0.001, factor: 2.0, count: 15 }), Seconds,
        "root_ca_cert_publisher_sync_duration_seconds", &["code"],
        "Duration of the sync of a namespace by the publisher of the root CA.";
    POD_GC_DELETIONS: MetricType::Counter, Count, "pod_gc_collector_force_delete_pods_total", &["namespace", "reason"],
        "Pods that the pod garbage collector deletes: terminated, out-of-service, orphaned or unscheduled.";
    POD_GC_ERRORS: MetricType::Counter, Count, "pod_gc_collector_force_delete_pod_errors_total", &["namespace", "reason"],
        "Pods that the pod garbage collector could not delete, by the same reasons.";

    // Event objects.
    EVENTS_RECORDED: MetricType::Counter, Count, "windlass_events_recorded_total", &[],
        "Events that controllers recorded.";
    EVENTS_SENT: MetricType::Counter, Count, "windlass_events_sent_total", &[],
        "Events that the API server accepted, as new objects or as updated series.";
    EVENTS_DROPPED: MetricType::Counter, Count, "windlass_events_dropped_total", &[],
        "Events that were not sent: queue full, rate limit reached, namespace terminating, or shutdown.";
    EVENTS_FAILED: MetricType::Counter, Count, "windlass_events_failed_total", &[],
        "Events that the API server rejected, or that did not reach it in 12 attempts or before shutdown.";

    // The admin server.
    ADMIN_REQUESTS: MetricType::Counter, Count, "windlass_admin_requests_total", &["endpoint", "code"],
        "Requests to the admin server, by endpoint and status code.";
    ADMIN_CONNECTIONS: MetricType::Gauge, Count, "windlass_admin_connections", &[],
        "Open connections to the admin server.";
    ADMIN_SHED: MetricType::Counter, Count, "windlass_admin_connections_shed_total", &[],
        "Connections to the admin server that were closed because the connection limit was reached.";
    ADMIN_REVIEWS: MetricType::Counter, Count, "windlass_admin_reviews_total", &["review", "outcome"],
        "Reviews by outcome: granted, refused, failed, cached or busy. Results `cached` and `busy` send no request.";
    ADMIN_REVIEW_DURATION: MetricType::Histogram(REQUEST_BUCKETS), Seconds, "windlass_admin_review_duration_seconds", &["review"],
        "Duration of reviews at the API server, including retries and delays.";
    ADMIN_CERTIFICATES: MetricType::Counter, Count, "windlass_admin_certificate_changes_total", &["result"],
        "Serving certificate reloads, by result (replaced or refused).";

    // The webhook server.
    WEBHOOK_REQUESTS: MetricType::Counter, Count, "windlass_webhook_requests_total", &["webhook", "result"],
        "Requests to webhooks, by result: allowed, denied, converted, rejected, failed, panicked or timeout.";
    WEBHOOK_DURATION: MetricType::Histogram(REQUEST_BUCKETS), Seconds, "windlass_webhook_duration_seconds", &["webhook"],
        "Duration of webhook requests, from the complete request to the response.";
    WEBHOOK_IN_FLIGHT: MetricType::Gauge, Count, "windlass_webhook_requests_in_flight", &["webhook"],
        "Webhook requests in progress.";
    WEBHOOK_PANICS: MetricType::Counter, Count, "windlass_webhook_panics_total", &["webhook"],
        "Panics of webhooks, which respond with status 500.";
    WEBHOOK_CONNECTIONS: MetricType::Gauge, Count, "windlass_webhook_connections", &[],
        "Open connections to the webhook server.";
    WEBHOOK_SHED: MetricType::Counter, Count, "windlass_webhook_connections_shed_total", &[],
        "Connections to the webhook server that were closed because the connection limit was reached.";
    WEBHOOK_CERTIFICATES: MetricType::Counter, Count, "windlass_webhook_certificate_changes_total", &["result"],
        "Serving certificate changes of the webhook server, by result (replaced or refused).";
    WEBHOOK_CERTIFICATE_EXPIRY: MetricType::FloatGauge, Seconds, "windlass_webhook_certificate_remaining_seconds", &[],
        "Time until the serving certificate of the webhook server expires. Only for rotated certificates.";

    // The process.
    RUNNING_CONTROLLERS: MetricType::Gauge, Flag, "running_managed_controllers", &["name", "manager"],
        "Running state of a controller in this process: 1 if it runs.";
    TASKS: MetricType::Gauge, Count, "windlass_tasks", &[],
        "Running tasks of this process.";
    HEALTHCHECK: MetricType::Gauge, Flag, "kubernetes_healthcheck", &["name", "type"],
        "Latest result of a health check: 1 if it passed.";
    HEALTHCHECKS: MetricType::Counter, Count, "kubernetes_healthchecks_total", &["name", "type", "status"],
        "Results of health checks.";
    FEATURE_ENABLED: MetricType::Gauge, Flag, "kubernetes_feature_enabled", &["name", "stage"],
        "State of a feature, by name and stage: 1 if it is enabled.";
    BUILD_INFO: MetricType::Gauge, Flag, "windlass_build_info", &["version"],
        "Constant 1, with the version of this build as a label.";
    PROCESS_CPU: MetricType::FloatCounter, Seconds, "process_cpu_seconds_total", &[],
        "User and system CPU time of this process.";
    PROCESS_RESIDENT: MetricType::Gauge, Bytes, "process_resident_memory_bytes", &[],
        "Resident memory of this process.";
    PROCESS_VIRTUAL: MetricType::Gauge, Bytes, "process_virtual_memory_bytes", &[],
        "Virtual memory of this process.";
    PROCESS_START: MetricType::FloatGauge, Seconds, "process_start_time_seconds", &[],
        "Start time of this process, in seconds since the Unix epoch.";
    PROCESS_OPEN_FDS: MetricType::Gauge, Count, "process_open_fds", &[],
        "Open file descriptors of this process.";
    PROCESS_MAX_FDS: MetricType::Gauge, Count, "process_max_fds", &[],
        "Maximum number of open file descriptors of this process.";
    PROCESS_THREADS: MetricType::Gauge, Count, "process_threads", &[],
        "Threads of this process.";
}
