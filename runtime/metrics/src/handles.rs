//! Handles: structs of metrics whose labels are resolved once, so that an operation costs one atomic instruction and no
//! label lookup.
//!
//! Handles with the same labels share their metrics.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::Hooks;
use crate::families::Families;
use crate::names;

/// The `name` label of informers: upstream uses the name of the process's informer factory.
const INFORMER_FACTORY: &str = "windlass";

/// Maximum number of priorities per queue that have a separate label value, and the label value of all others. Both are
/// those of controller-runtime.
const MAX_PRIORITIES: usize = 25;
const OTHER_PRIORITIES: &str = "exceeded_cardinality_limit";

/// Number of digits of a resource version that a float represents exactly.
const EXACT_DIGITS: usize = 15;

/// Metrics of one work queue.
#[derive(Clone)]
pub struct WorkqueueMetrics {
    /// Queued keys, including keys in progress that must be processed again.
    pub depth: IntGauge,
    /// Keys added.
    pub adds: IntCounter,
    /// Seconds from add to get.
    pub queue_duration: Histogram,
    /// Seconds from get to done.
    pub work_duration: Histogram,
    /// Sum of the processing times of all keys in progress, in seconds. Set it in a hook: see
    /// [`WorkqueueMetrics::on_gather`].
    pub unfinished_work: Gauge,
    /// Longest processing time of a key in progress, in seconds.
    pub longest_running: Gauge,
    /// Keys added with a delay.
    pub retries: IntCounter,
    by_priority: PriorityDepths,
    hooks: Arc<Hooks>,
}

/// The number of keys by priority, for one queue.
#[derive(Clone)]
struct PriorityDepths {
    queue: Arc<str>,
    depths: IntGaugeVec,
    /// The exported priorities, so that a priority that is no longer used is reset to zero.
    shown: Arc<Mutex<BTreeSet<i32>>>,
}

impl WorkqueueMetrics {
    /// Exports the number of ready keys by priority; other priorities are set to zero. If a queue uses more than 25
    /// priorities, only the first 25 have a separate label value, as in controller-runtime.
    pub fn show_depths(&self, depths: impl Iterator<Item = (i32, usize)>) {
        let PriorityDepths { queue, depths: family, shown } = &self.by_priority;
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let gauge = |priority: &str| family.with_label_values(&[&**queue, priority]);
        shown.iter().for_each(|priority| gauge(&priority.to_string()).set(0));
        let mut others = 0;
        for (priority, keys) in depths {
            let keys = i64::try_from(keys).unwrap_or(i64::MAX);
            if shown.contains(&priority) || shown.len() < MAX_PRIORITIES {
                shown.insert(priority);
                gauge(&priority.to_string()).set(keys);
            } else {
                others += keys;
                gauge(OTHER_PRIORITIES).set(others);
            }
        }
        if others == 0 && shown.len() == MAX_PRIORITIES {
            gauge(OTHER_PRIORITIES).set(0);
        }
    }

    /// Like [`Metrics::on_gather`](crate::Metrics::on_gather): queues compute their metrics only when metrics
    /// are gathered. The hook lives as long as the registry, so it should hold a weak reference to its queue.
    pub fn on_gather(&self, hook: Box<dyn Fn() + Send + Sync>) {
        self.hooks.add(hook);
    }
}

impl fmt::Debug for WorkqueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkqueueMetrics").field("depth", &self.depth.get()).finish_non_exhaustive()
    }
}

impl WorkqueueMetrics {
    pub(crate) fn new(families: &Families, name: &str, hooks: Arc<Hooks>) -> Self {
        let labels = &[name];
        WorkqueueMetrics {
            depth: families.gauge(&names::WORKQUEUE_DEPTH, labels),
            adds: families.counter(&names::WORKQUEUE_ADDS, labels),
            queue_duration: families.histogram(&names::WORKQUEUE_QUEUE_DURATION, labels),
            work_duration: families.histogram(&names::WORKQUEUE_WORK_DURATION, labels),
            unfinished_work: families.float_gauge(&names::WORKQUEUE_UNFINISHED_WORK, labels),
            longest_running: families.float_gauge(&names::WORKQUEUE_LONGEST_RUNNING, labels),
            retries: families.counter(&names::WORKQUEUE_RETRIES, labels),
            by_priority: PriorityDepths {
                queue: name.into(),
                depths: families.gauges(&names::WORKQUEUE_PRIORITY_DEPTH),
                shown: Arc::default(),
            },
            hooks,
        }
    }
}

/// Metrics of the requests that one identity sends to the API server. Codes and resources are open sets, so labels are
/// looked up per request; this cost is negligible next to a network round trip.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    identity: Arc<str>,
    requests: IntCounterVec,
    duration: HistogramVec,
    limited: HistogramVec,
    retries: IntCounterVec,
    by_identity: IntCounterVec,
}

impl RequestMetrics {
    pub(crate) fn new(families: &Families, identity: &str) -> Self {
        RequestMetrics {
            identity: identity.into(),
            requests: families.counters(&names::REQUESTS),
            duration: families.histograms(&names::REQUEST_DURATION),
            limited: families.histograms(&names::REQUEST_LIMITED),
            retries: families.counters(&names::REQUEST_RETRIES),
            by_identity: families.counters(&names::CLIENT_REQUESTS),
        }
    }

    /// Counts one request and its duration.
    ///
    /// `verb` is the Kubernetes verb in lowercase (`get`, `list`, `deletecollection`, ...); the HTTP method in
    /// upstream's families is derived from it. `resource` is the plural with its subresource (`pods/status`). `code` is
    /// the status code, or `<error>` if there was no response, as in upstream.
    pub fn observe(&self, verb: &str, resource: &str, code: &str, host: &str, elapsed: Duration) {
        let method = http_method(verb);
        self.requests.with_label_values(&[code, method, host]).inc();
        self.duration.with_label_values(&[method, host]).observe(elapsed.as_secs_f64());
        self.by_identity.with_label_values(&[verb, resource, code, &*self.identity]).inc();
    }

    /// Records the time that a request waited in the client's rate limiter.
    pub fn limited(&self, verb: &str, host: &str, waited: Duration) {
        self.limited.with_label_values(&[http_method(verb), host]).observe(waited.as_secs_f64());
    }

    /// Counts a request that is repeated because the previous attempt returned `code`.
    pub fn retried(&self, verb: &str, code: &str, host: &str) {
        self.retries.with_label_values(&[code, http_method(verb), host]).inc();
    }
}

/// Returns the HTTP method of a Kubernetes verb.
fn http_method(verb: &str) -> &'static str {
    match verb {
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" | "deletecollection" => "DELETE",
        _ => "GET",
    }
}

/// Metrics of one election Lease.
#[derive(Clone, Debug)]
pub struct ElectionMetrics {
    /// 1 while this process holds the Lease.
    pub master_status: IntGauge,
    /// Renewals that had to read the Lease first.
    pub slowpath: IntCounter,
}

impl ElectionMetrics {
    pub(crate) fn new(families: &Families, lease: &str) -> Self {
        ElectionMetrics {
            master_status: families.gauge(&names::LEADER_STATUS, &[lease]),
            slowpath: families.counter(&names::LEADER_SLOWPATH, &[lease]),
        }
    }
}

/// Metrics of one shard election.
#[derive(Clone, Debug)]
pub struct ShardMetrics {
    /// Shards that this process holds.
    pub held: IntGauge,
    /// Live members that this process knows.
    pub members: IntGauge,
    /// Generation of the shard map.
    pub generation: IntGauge,
    /// Namespaces that exceed a fair share.
    pub heavy: IntGauge,
    /// Seconds from the stop request for a shard until the release of its Lease.
    pub handoff: Histogram,
}

impl ShardMetrics {
    pub(crate) fn new(families: &Families, election: &str) -> Self {
        let labels = &[election];
        ShardMetrics {
            held: families.gauge(&names::SHARDS_HELD, labels),
            members: families.gauge(&names::SHARD_MEMBERS, labels),
            generation: families.gauge(&names::SHARD_GENERATION, labels),
            heavy: families.gauge(&names::SHARD_HEAVY, labels),
            handoff: families.histogram(&names::SHARD_HAND_OVER, labels),
        }
    }
}

/// Metrics of one informer. Informers of the same resource with different selectors share them.
#[derive(Clone, Debug)]
pub struct InformerMetrics {
    /// Objects in the store.
    pub objects: IntGauge,
    /// Deltas queued between watch and store.
    pub queued_items: IntGauge,
    /// The last digits of the resource version of the store; see [`InformerMetrics::reached`].
    pub store_resource_version: Gauge,
    /// Full lists from the API server.
    pub lists: IntCounter,
    /// Watches started.
    pub watches: IntCounter,
    /// Lists that failed.
    pub list_errors: IntCounter,
    /// Watches that failed.
    pub watch_errors: IntCounter,
    /// Objects that were isolated because they could not be decoded.
    pub decode_failures: IntCounter,
    /// Panics caught in handlers.
    pub handler_panics: IntCounter,
    /// Handlers with `EveryEvent` delivery that were removed because their backlog exceeded its limit.
    pub handler_overflows: IntCounter,
    /// Wire size of the objects in the store, if the informer has a byte budget.
    pub bytes: IntGauge,
    /// Lists and watches that were stopped because of the budget.
    pub over_budget: IntCounter,
    /// Seconds from leaving the queue until the handlers have received the event.
    pub processing_latency: Histogram,
}

impl InformerMetrics {
    /// Records the resource version of the store, with as many of its last digits as a float represents exactly. A
    /// version that is not a number leaves the gauge unchanged.
    pub fn reached(&self, version: &str) {
        let last = version.len().saturating_sub(EXACT_DIGITS);
        if let Some(Ok(digits)) = version.get(last..).map(str::parse::<u64>) {
            self.store_resource_version.set(digits as f64);
        }
    }
}

impl InformerMetrics {
    pub(crate) fn new(families: &Families, group: &str, version: &str, resource: &str) -> Self {
        let labels = &[INFORMER_FACTORY, group, version, resource];
        InformerMetrics {
            objects: families.gauge(&names::INFORMER_OBJECTS, labels),
            queued_items: families.gauge(&names::INFORMER_QUEUED, labels),
            store_resource_version: families.float_gauge(&names::INFORMER_VERSION, labels),
            lists: families.counter(&names::INFORMER_LISTS, labels),
            watches: families.counter(&names::INFORMER_WATCHES, labels),
            list_errors: families.counter(&names::INFORMER_LIST_ERRORS, labels),
            watch_errors: families.counter(&names::INFORMER_WATCH_ERRORS, labels),
            decode_failures: families.counter(&names::INFORMER_DECODE_FAILURES, labels),
            handler_panics: families.counter(&names::INFORMER_HANDLER_PANICS, labels),
            handler_overflows: families.counter(&names::INFORMER_HANDLER_OVERFLOWS, labels),
            bytes: families.gauge(&names::INFORMER_BYTES, labels),
            over_budget: families.counter(&names::INFORMER_OVER_BUDGET, labels),
            processing_latency: families.histogram(&names::INFORMER_LATENCY, labels),
        }
    }
}

/// Metrics of one controller.
#[derive(Clone, Debug)]
pub struct ReconcileMetrics {
    /// Reconciles by result.
    pub total: ReconcileResults,
    /// Duration of a reconcile in seconds.
    pub duration: Histogram,
    /// Workers with a reconcile in progress.
    pub active_workers: IntGauge,
    /// Number of workers.
    pub max_concurrent: IntGauge,
    /// Panics caught.
    pub panics: IntCounter,
    /// Reconciles dropped because of a timeout.
    pub timeouts: IntCounter,
    /// Keys in quarantine because their reconcile panicked repeatedly.
    pub quarantined: IntGauge,
    /// Keys that are not reconciled because their object cannot be decoded.
    pub undecodable: IntGauge,
    /// Reconciles delayed because the cache did not yet contain the controller's last write.
    pub stale_skips: IntCounter,
    /// Writes that did not change the object.
    pub noop_writes: IntCounter,
}

/// Reconciles by result.
#[derive(Clone, Debug)]
pub struct ReconcileResults {
    /// Success.
    pub success: IntCounter,
    /// A retryable error.
    pub error: IntCounter,
    /// A requeue with the delay of the rate limiter.
    pub requeue: IntCounter,
    /// A requeue after a delay that the controller chose.
    pub requeue_after: IntCounter,
    /// A permanent error that is not retried.
    pub terminal: IntCounter,
    /// A panic.
    pub panic: IntCounter,
}

impl ReconcileMetrics {
    pub(crate) fn new(families: &Families, controller: &str) -> Self {
        let result = |result| families.counter(&names::RECONCILES, &[controller, result]);
        let labels = &[controller];
        ReconcileMetrics {
            total: ReconcileResults {
                success: result("success"),
                error: result("error"),
                requeue: result("requeue"),
                requeue_after: result("requeue_after"),
                terminal: result("terminal"),
                panic: result("panic"),
            },
            duration: families.histogram(&names::RECONCILE_DURATION, labels),
            active_workers: families.gauge(&names::ACTIVE_WORKERS, labels),
            max_concurrent: families.gauge(&names::MAX_CONCURRENT_RECONCILES, labels),
            panics: families.counter(&names::RECONCILE_PANICS, labels),
            timeouts: families.counter(&names::RECONCILE_TIMEOUTS, labels),
            quarantined: families.gauge(&names::QUARANTINED_KEYS, labels),
            undecodable: families.gauge(&names::UNDECODABLE_KEYS, labels),
            stale_skips: families.counter(&names::STALE_SYNC_SKIPS, labels),
            noop_writes: families.counter(&names::NOOP_WRITES, labels),
        }
    }
}

/// Metrics of Event objects.
#[derive(Clone, Debug)]
pub struct EventMetrics {
    /// Events recorded.
    pub recorded: IntCounter,
    /// Events the API server accepted.
    pub sent: IntCounter,
    /// Events that were not sent.
    pub dropped: IntCounter,
    /// Events that the API server rejected.
    pub failed: IntCounter,
}

impl EventMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        let single = |family| families.counter(family, &[]);
        EventMetrics {
            recorded: single(&names::EVENTS_RECORDED),
            sent: single(&names::EVENTS_SENT),
            dropped: single(&names::EVENTS_DROPPED),
            failed: single(&names::EVENTS_FAILED),
        }
    }
}

/// Metrics of the whole process.
#[derive(Clone, Debug)]
pub struct ManagerMetrics {
    /// Number of running tasks. Set it when the metrics are gathered: see
    /// [`Metrics::on_gather`](crate::Metrics::on_gather).
    pub tasks: IntGauge,
    running: IntGaugeVec,
    healthcheck: IntGaugeVec,
    healthchecks: IntCounterVec,
    features: IntGaugeVec,
}

/// Metrics of one health check at one endpoint.
#[derive(Clone, Debug)]
pub struct HealthcheckMetrics {
    latest: IntGauge,
    success: IntCounter,
    error: IntCounter,
}

impl ManagerMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        families.gauge(&names::BUILD_INFO, &[env!("CARGO_PKG_VERSION")]).set(1);
        ManagerMetrics {
            tasks: families.gauge(&names::TASKS, &[]),
            running: families.gauges(&names::RUNNING_CONTROLLERS),
            healthcheck: families.gauges(&names::HEALTHCHECK),
            healthchecks: families.counters(&names::HEALTHCHECKS),
            features: families.gauges(&names::FEATURE_ENABLED),
        }
    }

    /// Returns the gauge that is 1 while `controller` runs in `manager`.
    pub fn running(&self, controller: &str, manager: &str) -> IntGauge {
        self.running.with_label_values(&[controller, manager])
    }

    /// Returns the gauge that is 1 while the feature with this name is enabled. `stage` is its maturity, as upstream
    /// writes it.
    pub fn feature(&self, name: &str, stage: &str) -> IntGauge {
        self.features.with_label_values(&[name, stage])
    }

    /// Returns the metrics of the health check `name` at the endpoint `kind`: `healthz`, `livez` or `readyz`.
    pub fn healthcheck(&self, name: &str, kind: &str) -> HealthcheckMetrics {
        HealthcheckMetrics {
            latest: self.healthcheck.with_label_values(&[name, kind]),
            success: self.healthchecks.with_label_values(&[name, kind, "success"]),
            error: self.healthchecks.with_label_values(&[name, kind, "error"]),
        }
    }
}

impl HealthcheckMetrics {
    /// Records one result.
    pub fn observe(&self, healthy: bool) {
        self.latest.set(i64::from(healthy));
        if healthy { self.success.inc() } else { self.error.inc() }
    }
}

/// Metrics of the admin server.
#[derive(Clone, Debug)]
pub struct AdminMetrics {
    requests: IntCounterVec,
    /// Its connections and certificates.
    pub serving: ServingMetrics,
    /// TokenReviews.
    pub token_reviews: ReviewMetrics,
    /// SubjectAccessReviews.
    pub access_reviews: ReviewMetrics,
}

/// Metrics of the connections and certificates of a server.
#[derive(Clone, Debug)]
pub struct ServingMetrics {
    /// Open connections.
    pub connections: IntGauge,
    /// Connections closed because the limit was reached.
    pub shed: IntCounter,
    /// Serving certificates that replaced the previous one.
    pub certificate_replaced: IntCounter,
    /// Serving certificates that were rejected.
    pub certificate_refused: IntCounter,
}

/// Metrics of one type of review.
#[derive(Clone, Debug)]
pub struct ReviewMetrics {
    /// Reviews answered from the cache.
    pub remembered: IntCounter,
    /// Reviews with the result authenticated or allowed.
    pub granted: IntCounter,
    /// Reviews with the result not authenticated or denied.
    pub refused: IntCounter,
    /// Reviews that failed without a result.
    pub failed: IntCounter,
    /// Reviews that were rejected because too many were in progress.
    pub busy: IntCounter,
    /// Duration of a review in seconds.
    pub duration: Histogram,
}

impl AdminMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        let review = |review: &str| {
            let outcome = |outcome| families.counter(&names::ADMIN_REVIEWS, &[review, outcome]);
            ReviewMetrics {
                remembered: outcome("cached"),
                granted: outcome("granted"),
                refused: outcome("refused"),
                failed: outcome("failed"),
                busy: outcome("busy"),
                duration: families.histogram(&names::ADMIN_REVIEW_DURATION, &[review]),
            }
        };
        AdminMetrics {
            requests: families.counters(&names::ADMIN_REQUESTS),
            serving: ServingMetrics {
                connections: families.gauge(&names::ADMIN_CONNECTIONS, &[]),
                shed: families.counter(&names::ADMIN_SHED, &[]),
                certificate_replaced: families.counter(&names::ADMIN_CERTIFICATES, &["replaced"]),
                certificate_refused: families.counter(&names::ADMIN_CERTIFICATES, &["refused"]),
            },
            token_reviews: review("token"),
            access_reviews: review("access"),
        }
    }

    /// Returns the counter of requests to the endpoint `page` with status `code`. Unknown paths must share one value.
    pub fn requests(&self, page: &str, code: &str) -> IntCounter {
        self.requests.with_label_values(&[page, code])
    }
}

/// Metrics of the webhook server.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    requests: IntCounterVec,
    duration: HistogramVec,
    in_flight: IntGaugeVec,
    panics: IntCounterVec,
    /// Its connections and certificates.
    pub serving: ServingMetrics,
    /// Time until the rotated serving certificate expires, in seconds.
    pub certificate_remaining: Gauge,
}

/// Metrics of one webhook.
#[derive(Clone, Debug)]
pub struct HookMetrics {
    requests: IntCounterVec,
    webhook: String,
    /// Duration of a request in seconds.
    pub duration: Histogram,
    /// Requests in progress.
    pub in_flight: IntGauge,
    /// Panics.
    pub panics: IntCounter,
}

impl WebhookMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        WebhookMetrics {
            requests: families.counters(&names::WEBHOOK_REQUESTS),
            duration: families.histograms(&names::WEBHOOK_DURATION),
            in_flight: families.gauges(&names::WEBHOOK_IN_FLIGHT),
            panics: families.counters(&names::WEBHOOK_PANICS),
            serving: ServingMetrics {
                connections: families.gauge(&names::WEBHOOK_CONNECTIONS, &[]),
                shed: families.counter(&names::WEBHOOK_SHED, &[]),
                certificate_replaced: families.counter(&names::WEBHOOK_CERTIFICATES, &["replaced"]),
                certificate_refused: families.counter(&names::WEBHOOK_CERTIFICATES, &["refused"]),
            },
            certificate_remaining: families.float_gauge(&names::WEBHOOK_CERTIFICATE_EXPIRY, &[]),
        }
    }

    /// Returns the metrics of one webhook.
    pub fn webhook(&self, name: &str) -> HookMetrics {
        HookMetrics {
            requests: self.requests.clone(),
            webhook: name.to_owned(),
            duration: self.duration.with_label_values(&[name]),
            in_flight: self.in_flight.with_label_values(&[name]),
            panics: self.panics.with_label_values(&[name]),
        }
    }
}

impl HookMetrics {
    /// Returns the counter of requests with this result.
    pub fn requests(&self, result: &str) -> IntCounter {
        self.requests.with_label_values(&[self.webhook.as_str(), result])
    }
}

/// Metrics of the ReplicaSet controller that upstream exports.
#[derive(Clone, Debug)]
pub struct ReplicaSetMetrics {
    /// Ratio of the age of a Pod chosen for deletion to the age of the youngest Pod.
    pub sorting_deletion_age_ratio: Histogram,
}

impl ReplicaSetMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        let ratio = families.histogram(&names::SORTING_DELETION_AGE_RATIO, &[]);
        ReplicaSetMetrics { sorting_deletion_age_ratio: ratio }
    }
}

/// Metrics of the publisher of the root CA that upstream exports.
#[derive(Clone, Debug)]
pub struct RootCaMetrics {
    syncs: IntCounterVec,
    duration: HistogramVec,
}

impl RootCaMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        RootCaMetrics {
            syncs: families.counters(&names::ROOT_CA_SYNCS),
            duration: families.histograms(&names::ROOT_CA_SYNC_DURATION),
        }
    }

    /// Records a sync with this status code.
    pub fn observe(&self, code: u16, elapsed: Duration) {
        let code = code.to_string();
        self.syncs.with_label_values(&[&code]).inc();
        self.duration.with_label_values(&[&code]).observe(elapsed.as_secs_f64());
    }
}

/// Metrics of the pod garbage collector that upstream exports.
#[derive(Clone, Debug)]
pub struct PodGcMetrics {
    deletions: IntCounterVec,
    errors: IntCounterVec,
}

impl PodGcMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        PodGcMetrics {
            deletions: families.counters(&names::POD_GC_DELETIONS),
            errors: families.counters(&names::POD_GC_ERRORS),
        }
    }

    /// Records that a pod is deleted for this reason.
    pub fn deleting(&self, namespace: &str, reason: &str) {
        self.deletions.with_label_values(&[namespace, reason]).inc();
    }

    /// Records that the deletion of a pod failed.
    pub fn failed(&self, namespace: &str, reason: &str) {
        self.errors.with_label_values(&[namespace, reason]).inc();
    }
}
