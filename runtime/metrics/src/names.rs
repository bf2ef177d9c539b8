//! The one table of every metric family: name, help, unit, kind, labels, buckets.
//!
//! Names that upstream's controller manager exports are kept to the letter, so that dashboards and alerts carry over;
//! families of our own begin with `windlass_`. A name ends with its unit, and a counter with `_total`.

/// All there is to know about one family before anything is measured.
#[derive(Debug)]
pub struct FamilyDescriptor {
    /// The full name.
    pub name: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// What one of it is.
    pub unit: MetricUnit,
    /// Which type of metric it is.
    pub kind: MetricType,
    /// The names of its labels, in the order in which handles give their values.
    pub labels: &'static [&'static str],
}

/// What a family counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Events or things: a plain number.
    Count,
    /// Seconds, fractions included.
    Seconds,
    /// Bytes.
    Bytes,
    /// Zero or one.
    Flag,
    /// A quotient without a unit.
    Ratio,
    /// Digits of a resource version.
    Version,
}

/// A family's type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricType {
    /// Only ever goes up, in whole steps.
    Counter,
    /// Only ever goes up, in fractions.
    FloatCounter,
    /// Goes up and down, in whole steps.
    Gauge,
    /// Goes up and down, in fractions.
    FloatGauge,
    /// Observations sorted into buckets.
    Histogram(Buckets),
}

/// The upper bounds of a histogram's buckets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buckets {
    /// These.
    Fixed(&'static [f64]),
    /// `count` of them: `start`, `start * factor`, and so on.
    Exponential {
        /// The first bound.
        start: f64,
        /// What each bound is multiplied with to yield the next.
        factor: f64,
        /// How many bounds there are.
        count: usize,
    },
}

/// From ten nanoseconds to ten seconds: upstream's bounds for queues.
const QUEUE_BUCKETS: Buckets = Buckets::Exponential { start: 1e-8, factor: 10.0, count: 10 };

/// Upstream's bounds for requests to the API server.
const REQUEST_BUCKETS: Buckets =
    Buckets::Fixed(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);

/// Upstream's bounds for the processing of watch events.
const PROCESSING_BUCKETS: Buckets =
    Buckets::Fixed(&[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

/// Hand-overs of shards take milliseconds where nothing is being worked on, and as long as the slowest piece of work else.
const HAND_OVER_BUCKETS: Buckets = Buckets::Exponential { start: 0.01, factor: 3.0, count: 9 };

/// From a pass that finds nothing to do to one that writes hundreds of objects.
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

        /// Every family there is.
        pub const ALL: &[&FamilyDescriptor] = &[$(&$constant),*];
    };
}

/// What `/metrics/slis` shows: the families that service levels are measured by, as upstream's components show them.
pub const SLI_FAMILIES: &[&FamilyDescriptor] = &[&HEALTHCHECK, &HEALTHCHECKS];

families! {
    // Work queues, named as upstream names them.
    WORKQUEUE_DEPTH: MetricType::Gauge, Count, "workqueue_depth", &["name"],
        "Keys that wait in the queue, including those to be run again once their worker is done.";
    WORKQUEUE_ADDS: MetricType::Counter, Count, "workqueue_adds_total", &["name"],
        "Keys the queue has taken in; an add that meets the same key already waiting is not counted.";
    WORKQUEUE_QUEUE_DURATION: MetricType::Histogram(QUEUE_BUCKETS), Seconds, "workqueue_queue_duration_seconds", &["name"],
        "How long a key waits in the queue before a worker gets it.";
    WORKQUEUE_WORK_DURATION: MetricType::Histogram(QUEUE_BUCKETS), Seconds, "workqueue_work_duration_seconds", &["name"],
        "How long a worker holds a key.";
    WORKQUEUE_UNFINISHED_WORK: MetricType::FloatGauge, Seconds, "workqueue_unfinished_work_seconds", &["name"],
        "The sum of the times for which workers have held the keys they hold now; it grows while workers are stuck.";
    WORKQUEUE_LONGEST_RUNNING: MetricType::FloatGauge, Seconds, "workqueue_longest_running_processor_seconds", &["name"],
        "The longest time for which a worker has held the key it holds now.";
    WORKQUEUE_RETRIES: MetricType::Counter, Count, "workqueue_retries_total", &["name"],
        "Adds that asked for a delay, be it by a limiter or by the caller.";
    WORKQUEUE_PRIORITY_DEPTH: MetricType::Gauge, Count, "windlass_workqueue_priority_depth", &["name", "priority"],
        "Keys that are ready to be handed out, by priority.";

    // Requests to the API server.
    REQUESTS: MetricType::Counter, Count, "rest_client_requests_total", &["code", "method", "host"],
        "Requests to the API server, by status code, HTTP method and host.";
    REQUEST_DURATION: MetricType::Histogram(REQUEST_BUCKETS), Seconds, "rest_client_request_duration_seconds", &["verb", "host"],
        "How long requests to the API server take, from leaving the limiter to the response's head.";
    REQUEST_LIMITED: MetricType::Histogram(REQUEST_BUCKETS), Seconds, "rest_client_rate_limiter_duration_seconds", &["verb", "host"],
        "How long requests to the API server wait in the client's own limiter.";
    REQUEST_RETRIES: MetricType::Counter, Count, "rest_client_request_retries_total", &["code", "verb", "host"],
        "Requests to the API server that were sent again, by what the attempt before them met.";
    CLIENT_REQUESTS: MetricType::Counter, Count, "windlass_client_requests_total", &["verb", "resource", "code", "identity"],
        "Requests to the API server, by Kubernetes verb, resource, status code and the identity that sent them.";

    // Leader election.
    LEADER_STATUS: MetricType::Gauge, Flag, "leader_election_master_status", &["name"],
        "Whether this process holds the lease: 1 if it does, 0 if it stands by.";
    LEADER_SLOWPATH: MetricType::Counter, Count, "leader_election_slowpath_total", &["name"],
        "Renewals of the lease that had to read it first.";

    SHARDS_HELD: MetricType::Gauge, Count, "windlass_shards_held", &["name"],
        "Shards that this process holds, of the election of this name.";
    SHARD_MEMBERS: MetricType::Gauge, Count, "windlass_shard_members", &["name"],
        "Live processes that share the shards, as far as this one knows.";
    SHARD_GENERATION: MetricType::Gauge, Count, "windlass_shard_generation", &["name"],
        "The number of the plan that says which shard has which keys; 0 before there is one.";
    SHARD_HEAVY: MetricType::Gauge, Count, "windlass_shard_heavy_namespaces", &["name"],
        "Namespaces heavier than a fair share of all, by the plan: no division balances them.";
    SHARD_HAND_OVER: MetricType::Histogram(HAND_OVER_BUCKETS), Seconds, "windlass_shard_hand_over_duration_seconds", &["name"],
        "How long it took to give a shard up, from the word to the controllers until its lease was given back.";

    // Informers. The first three are upstream's.
    INFORMER_QUEUED: MetricType::Gauge, Count, "informer_queued_items", INFORMER_LABELS,
        "Deltas that wait between the watch and the store.";
    INFORMER_LATENCY: MetricType::Histogram(PROCESSING_BUCKETS), Seconds, "informer_processing_latency_seconds", INFORMER_LABELS,
        "How long a delta takes from leaving the queue until the store has it and the handlers are told.";
    INFORMER_VERSION: MetricType::FloatGauge, Version, "informer_store_resource_version", INFORMER_LABELS,
        "The fifteen least significant digits of the resource version that the store has reached.";
    INFORMER_OBJECTS: MetricType::Gauge, Count, "windlass_informer_objects", INFORMER_LABELS,
        "Objects in the informer's store.";
    INFORMER_BYTES: MetricType::Gauge, Bytes, "windlass_informer_bytes", INFORMER_LABELS,
        "Bytes that the objects in the informer's store had on the wire. Only of informers with a byte budget.";
    INFORMER_LISTS: MetricType::Counter, Count, "windlass_informer_lists_total", INFORMER_LABELS,
        "Full lists taken from the API server.";
    INFORMER_WATCHES: MetricType::Counter, Count, "windlass_informer_watches_total", INFORMER_LABELS,
        "Watches started at the API server.";
    INFORMER_LIST_ERRORS: MetricType::Counter, Count, "windlass_informer_list_errors_total", INFORMER_LABELS,
        "Lists that failed.";
    INFORMER_WATCH_ERRORS: MetricType::Counter, Count, "windlass_informer_watch_errors_total", INFORMER_LABELS,
        "Watches that failed, at their start or on the way.";
    INFORMER_DECODE_FAILURES: MetricType::Counter, Count, "windlass_informer_decode_failures_total", INFORMER_LABELS,
        "Objects that could not be decoded and were put in quarantine.";
    INFORMER_HANDLER_PANICS: MetricType::Counter, Count, "windlass_informer_handler_panics_total", INFORMER_LABELS,
        "Panics caught in event handlers.";
    INFORMER_HANDLER_OVERFLOWS: MetricType::Counter, Count, "windlass_informer_handler_overflows_total", INFORMER_LABELS,
        "Handlers of every event that fell behind by more than their bound and were ended.";
    INFORMER_OVER_BUDGET: MetricType::Counter, Count, "windlass_informer_over_budget_total", INFORMER_LABELS,
        "Lists and watches that were given up because the informer's byte budget would have been passed.";

    // Controllers.
    RECONCILES: MetricType::Counter, Count, "windlass_reconcile_total", &["controller", "result"],
        "Reconciles, by how they ended.";
    RECONCILE_DURATION: MetricType::Histogram(RECONCILE_BUCKETS), Seconds, "windlass_reconcile_duration_seconds", CONTROLLER_LABELS,
        "How long a reconcile takes.";
    ACTIVE_WORKERS: MetricType::Gauge, Count, "windlass_active_workers", CONTROLLER_LABELS,
        "Workers that are reconciling now.";
    MAX_CONCURRENT_RECONCILES: MetricType::Gauge, Count, "windlass_max_concurrent_reconciles", CONTROLLER_LABELS,
        "Workers there are.";
    RECONCILE_PANICS: MetricType::Counter, Count, "windlass_reconcile_panics_total", CONTROLLER_LABELS,
        "Panics caught in reconciles and in the functions that map events to keys.";
    RECONCILE_TIMEOUTS: MetricType::Counter, Count, "windlass_reconcile_timeouts_total", CONTROLLER_LABELS,
        "Reconciles that were dropped because they took longer than their controller allows.";
    QUARANTINED_KEYS: MetricType::Gauge, Count, "windlass_quarantined_keys", CONTROLLER_LABELS,
        "Keys that rest until their next change because their reconcile panicked too often in a row.";
    UNDECODABLE_KEYS: MetricType::Gauge, Count, "windlass_undecodable_keys", CONTROLLER_LABELS,
        "Keys that are not reconciled because their own object cannot be decoded.";
    STALE_SYNC_SKIPS: MetricType::Counter, Count, "windlass_stale_sync_skips_total", CONTROLLER_LABELS,
        "Reconciles put off because the cache had not yet seen the controller's own last write.";
    NOOP_WRITES: MetricType::Counter, Count, "windlass_noop_writes_total", CONTROLLER_LABELS,
        "Writes of a controller that changed nothing: the answer has the resource version that was sent.";
    SORTING_DELETION_AGE_RATIO: MetricType::Histogram(Buckets::Exponential { start: 0.25, factor: 2.0, count: 6 }), Ratio,
        "replicaset_controller_sorting_deletion_age_ratio", &[],
        "The age of a ready Pod chosen for deletion over that of the youngest ready Pod at the time; below 2 when all is well.";

    // Events for users.
    EVENTS_RECORDED: MetricType::Counter, Count, "windlass_events_recorded_total", &[],
        "Events that controllers recorded.";
    EVENTS_SENT: MetricType::Counter, Count, "windlass_events_sent_total", &[],
        "Events that the API server accepted, as new objects or as counts on old ones.";
    EVENTS_DROPPED: MetricType::Counter, Count, "windlass_events_dropped_total", &[],
        "Events that were never sent because the buffer was full or a limit was reached.";
    EVENTS_FAILED: MetricType::Counter, Count, "windlass_events_failed_total", &[],
        "Events that the API server did not accept.";

    // The admin server.
    ADMIN_REQUESTS: MetricType::Counter, Count, "windlass_admin_requests_total", &["page", "code"],
        "Requests to the admin server, by the page that answered and status code.";
    ADMIN_CONNECTIONS: MetricType::Gauge, Count, "windlass_admin_connections", &[],
        "Connections to the admin server that are open.";
    ADMIN_SHED: MetricType::Counter, Count, "windlass_admin_connections_shed_total", &[],
        "Connections to the admin server that were closed to make room for others.";
    ADMIN_REVIEWS: MetricType::Counter, Count, "windlass_admin_reviews_total", &["review", "outcome"],
        "Questions of who may read the admin server, by how they were answered; only those that are not remembered or busy reach the API server.";
    ADMIN_REVIEW_DURATION: MetricType::Histogram(REQUEST_BUCKETS), Seconds, "windlass_admin_review_duration_seconds", &["review"],
        "How long reviews at the API server take, attempts and pauses included.";
    ADMIN_CERTIFICATES: MetricType::Counter, Count, "windlass_admin_certificate_changes_total", &["result"],
        "Certificates that were found in the place of the admin server's: replaced by them, or refused.";

    // The process.
    RUNNING_CONTROLLERS: MetricType::Gauge, Flag, "running_managed_controllers", &["name", "manager"],
        "Whether a controller runs in this process.";
    TASKS: MetricType::Gauge, Count, "windlass_tasks", &[],
        "Tasks of this process that have not ended.";
    HEALTHCHECK: MetricType::Gauge, Flag, "kubernetes_healthcheck", &["name", "type"],
        "The latest result of a health check: 1 if it passed.";
    HEALTHCHECKS: MetricType::Counter, Count, "kubernetes_healthchecks_total", &["name", "type", "status"],
        "Results of health checks.";
    FEATURE_ENABLED: MetricType::Gauge, Flag, "kubernetes_feature_enabled", &["name", "stage"],
        "Whether a feature is on, by its name and by how finished it is.";
    BUILD_INFO: MetricType::Gauge, Flag, "windlass_build_info", &["version"],
        "Always 1, labelled with the version of this build.";
    PROCESS_CPU: MetricType::FloatCounter, Seconds, "process_cpu_seconds_total", &[],
        "Processor time spent by this process, user and system.";
    PROCESS_RESIDENT: MetricType::Gauge, Bytes, "process_resident_memory_bytes", &[],
        "Memory of this process that is in RAM.";
    PROCESS_VIRTUAL: MetricType::Gauge, Bytes, "process_virtual_memory_bytes", &[],
        "Address space of this process.";
    PROCESS_START: MetricType::FloatGauge, Seconds, "process_start_time_seconds", &[],
        "When this process started, in seconds since the Unix epoch.";
    PROCESS_OPEN_FDS: MetricType::Gauge, Count, "process_open_fds", &[],
        "File descriptors this process has open.";
    PROCESS_MAX_FDS: MetricType::Gauge, Count, "process_max_fds", &[],
        "File descriptors this process may have open.";
    PROCESS_THREADS: MetricType::Gauge, Count, "process_threads", &[],
        "Threads of this process.";
}
