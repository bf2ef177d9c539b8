//! Handles: structs of children resolved once, so that an operation costs an atomic and no label look-up.
//!
//! Two handles of the same labels share their children.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::Hooks;
use crate::families::Families;
use crate::names;

/// The `name` label of informers: upstream puts the name of the process's informer factory here.
const INFORMER_FACTORY: &str = "windlass";

/// How many priorities of a queue have a label of their own, and the label of the others: controller-runtime's.
const MAX_PRIORITIES: usize = 25;
const OTHER_PRIORITIES: &str = "exceeded_cardinality_limit";

/// How many of a resource version's digits a float holds exactly.
const EXACT_DIGITS: usize = 15;

/// One work queue's metrics.
#[derive(Clone)]
pub struct WorkqueueMetrics {
    /// Keys waiting, including those to be run again after their worker is done.
    pub depth: IntGauge,
    /// Keys taken in.
    pub adds: IntCounter,
    /// Seconds between add and get.
    pub queue_duration: Histogram,
    /// Seconds between get and done.
    pub work_duration: Histogram,
    /// Seconds for which the keys held now have been held, summed. Set it in a hook: see
    /// [`WorkqueueMetrics::on_gather`].
    pub unfinished_work: Gauge,
    /// Seconds for which the key held longest has been held.
    pub longest_running: Gauge,
    /// Adds that asked for a delay.
    pub retries: IntCounter,
    by_priority: PriorityDepths,
    hooks: Arc<Hooks>,
}

/// Keys by priority, for one queue.
#[derive(Clone)]
struct PriorityDepths {
    queue: Arc<str>,
    depths: IntGaugeVec,
    /// What is shown, so that a priority nobody uses any more goes back to zero.
    shown: Arc<Mutex<BTreeSet<i32>>>,
}

impl WorkqueueMetrics {
    /// Shows how many keys are ready with each priority; other priorities are shown as zero. Of a queue that uses
    /// more than 25 only the first 25 have a label of their own, as in controller-runtime.
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

    /// As [`Metrics::on_gather`](crate::Metrics::on_gather): the ages of what is held now are only worth computing
    /// when somebody looks. The hook lives as long as the registry, so it should hold its queue weakly.
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

/// One identity's requests to the API server. Codes and resources are open sets, so here children are looked up per
/// request: next to a network round trip that is nothing.
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
    /// `verb` is the Kubernetes verb in lower case (`get`, `list`, `deletecollection`, ...); the HTTP method that
    /// upstream's families show follows from it. `resource` is the plural with its subresource (`pods/status`).
    /// `code` is the status code, or `<error>` when no response came, as upstream writes it.
    pub fn observe(&self, verb: &str, resource: &str, code: &str, host: &str, elapsed: Duration) {
        let method = http_method(verb);
        self.requests.with_label_values(&[code, method, host]).inc();
        self.duration.with_label_values(&[method, host]).observe(elapsed.as_secs_f64());
        self.by_identity.with_label_values(&[verb, resource, code, &*self.identity]).inc();
    }

    /// Notes how long a request waited in the client's own limiter.
    pub fn limited(&self, verb: &str, host: &str, waited: Duration) {
        self.limited.with_label_values(&[http_method(verb), host]).observe(waited.as_secs_f64());
    }

    /// Counts a request that is sent again because the attempt before it met `code`.
    pub fn retried(&self, verb: &str, code: &str, host: &str) {
        self.retries.with_label_values(&[code, http_method(verb), host]).inc();
    }
}

/// The HTTP method that carries a Kubernetes verb.
fn http_method(verb: &str) -> &'static str {
    match verb {
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" | "deletecollection" => "DELETE",
        _ => "GET",
    }
}

/// One lease's metrics.
#[derive(Clone, Debug)]
pub struct ElectionMetrics {
    /// 1 while this process holds the lease.
    pub master_status: IntGauge,
    /// Renewals that had to read the lease first.
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

/// The metrics of one election of shards.
#[derive(Clone, Debug)]
pub struct ShardMetrics {
    /// Shards held here.
    pub held: IntGauge,
    /// Live members, as far as is known here.
    pub members: IntGauge,
    /// The number of the plan.
    pub generation: IntGauge,
    /// Namespaces that are heavier than a fair share.
    pub heavy: IntGauge,
    /// Seconds from the word to give a shard up until its lease was given back.
    pub hand_over: Histogram,
}

impl ShardMetrics {
    pub(crate) fn new(families: &Families, election: &str) -> Self {
        let labels = &[election];
        ShardMetrics {
            held: families.gauge(&names::SHARDS_HELD, labels),
            members: families.gauge(&names::SHARD_MEMBERS, labels),
            generation: families.gauge(&names::SHARD_GENERATION, labels),
            heavy: families.gauge(&names::SHARD_HEAVY, labels),
            hand_over: families.histogram(&names::SHARD_HAND_OVER, labels),
        }
    }
}

/// One informer's metrics. Informers of one resource with different selections share them.
#[derive(Clone, Debug)]
pub struct InformerMetrics {
    /// Objects in the store.
    pub objects: IntGauge,
    /// Deltas between watch and store.
    pub queued_items: IntGauge,
    /// The last digits of the store's version; see [`InformerMetrics::reached`].
    pub store_resource_version: Gauge,
    /// Full lists taken.
    pub lists: IntCounter,
    /// Watches started.
    pub watches: IntCounter,
    /// Lists that failed.
    pub list_errors: IntCounter,
    /// Watches that failed.
    pub watch_errors: IntCounter,
    /// Objects put in quarantine.
    pub decode_failures: IntCounter,
    /// Panics caught in handlers.
    pub handler_panics: IntCounter,
    /// Handlers of every event that were ended because they fell behind by more than their bound.
    pub handler_overflows: IntCounter,
    /// Wire bytes of the objects in the store, if the informer has a budget of them.
    pub bytes: IntGauge,
    /// Lists and watches that were given up for the budget.
    pub over_budget: IntCounter,
    /// Seconds from leaving the queue until the handlers are told.
    pub processing_latency: Histogram,
}

impl InformerMetrics {
    /// Notes the resource version that the store has reached, by as many of its last digits as a float holds. A
    /// version that is no number leaves the gauge as it is.
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

/// One controller's metrics.
#[derive(Clone, Debug)]
pub struct ReconcileMetrics {
    /// Reconciles, by how they ended.
    pub total: ReconcileResults,
    /// Seconds a reconcile takes.
    pub duration: Histogram,
    /// Workers that are reconciling now.
    pub active_workers: IntGauge,
    /// Workers there are.
    pub max_concurrent: IntGauge,
    /// Panics caught.
    pub panics: IntCounter,
    /// Reconciles dropped because they took too long.
    pub timeouts: IntCounter,
    /// Keys that rest because their reconcile panicked too often in a row.
    pub quarantined: IntGauge,
    /// Keys that are not reconciled because their own object cannot be decoded.
    pub undecodable: IntGauge,
    /// Reconciles put off because the cache was older than the controller's own last write.
    pub stale_skips: IntCounter,
    /// Writes that changed nothing.
    pub noop_writes: IntCounter,
}

/// How reconciles ended.
#[derive(Clone, Debug)]
pub struct ReconcileResults {
    /// Done.
    pub success: IntCounter,
    /// A retryable error.
    pub error: IntCounter,
    /// To be run again, with the limiter's delay.
    pub requeue: IntCounter,
    /// To be run again after a delay the controller chose.
    pub requeue_after: IntCounter,
    /// An error that no retry would mend.
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

/// The metrics of events for users.
#[derive(Clone, Debug)]
pub struct EventMetrics {
    /// Events recorded.
    pub recorded: IntCounter,
    /// Events the API server accepted.
    pub sent: IntCounter,
    /// Events never sent.
    pub dropped: IntCounter,
    /// Events the API server did not accept.
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

/// The metrics of the process as a whole.
#[derive(Clone, Debug)]
pub struct ManagerMetrics {
    /// How many tasks live. Set it when the metrics are gathered: see [`Metrics::on_gather`](crate::Metrics::on_gather).
    pub tasks: IntGauge,
    running: IntGaugeVec,
    healthcheck: IntGaugeVec,
    healthchecks: IntCounterVec,
    features: IntGaugeVec,
}

/// One health check's metrics, for one endpoint.
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

    /// The gauge that is 1 while `controller` runs in `manager`.
    pub fn running(&self, controller: &str, manager: &str) -> IntGauge {
        self.running.with_label_values(&[controller, manager])
    }

    /// The gauge that is 1 while the feature of this name is on; `stage` is how finished it is, as upstream writes it.
    pub fn feature(&self, name: &str, stage: &str) -> IntGauge {
        self.features.with_label_values(&[name, stage])
    }

    /// The metrics of the health check `name` at the endpoint `kind`: `healthz`, `livez` or `readyz`.
    pub fn healthcheck(&self, name: &str, kind: &str) -> HealthcheckMetrics {
        HealthcheckMetrics {
            latest: self.healthcheck.with_label_values(&[name, kind]),
            success: self.healthchecks.with_label_values(&[name, kind, "success"]),
            error: self.healthchecks.with_label_values(&[name, kind, "error"]),
        }
    }
}

impl HealthcheckMetrics {
    /// Notes one result.
    pub fn observe(&self, healthy: bool) {
        self.latest.set(i64::from(healthy));
        if healthy { self.success.inc() } else { self.error.inc() }
    }
}

/// The metrics of the admin server.
#[derive(Clone, Debug)]
pub struct AdminMetrics {
    requests: IntCounterVec,
    /// Connections that are open.
    pub connections: IntGauge,
    /// Connections that were closed to make room.
    pub shed: IntCounter,
    /// Reviews of whose a token is.
    pub token_reviews: ReviewMetrics,
    /// Reviews of who may read a path.
    pub access_reviews: ReviewMetrics,
    /// Certificates that replaced the one before.
    pub certificate_replaced: IntCounter,
    /// Certificates that could not be used.
    pub certificate_refused: IntCounter,
}

/// The metrics of one kind of review.
#[derive(Clone, Debug)]
pub struct ReviewMetrics {
    /// Answers that were remembered.
    pub remembered: IntCounter,
    /// Reviews that said yes.
    pub granted: IntCounter,
    /// Reviews that said no.
    pub refused: IntCounter,
    /// Reviews that did not come about.
    pub failed: IntCounter,
    /// Questions that were not asked because too many were.
    pub busy: IntCounter,
    /// Seconds that a review takes.
    pub duration: Histogram,
}

impl AdminMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        let review = |review: &str| {
            let outcome = |outcome| families.counter(&names::ADMIN_REVIEWS, &[review, outcome]);
            ReviewMetrics {
                remembered: outcome("remembered"),
                granted: outcome("granted"),
                refused: outcome("refused"),
                failed: outcome("failed"),
                busy: outcome("busy"),
                duration: families.histogram(&names::ADMIN_REVIEW_DURATION, &[review]),
            }
        };
        AdminMetrics {
            requests: families.counters(&names::ADMIN_REQUESTS),
            connections: families.gauge(&names::ADMIN_CONNECTIONS, &[]),
            shed: families.counter(&names::ADMIN_SHED, &[]),
            token_reviews: review("token"),
            access_reviews: review("access"),
            certificate_replaced: families.counter(&names::ADMIN_CERTIFICATES, &["replaced"]),
            certificate_refused: families.counter(&names::ADMIN_CERTIFICATES, &["refused"]),
        }
    }

    /// The requests that `page` answered with `code`. Pages are a bounded set; whoever asks for others is answered by
    /// none.
    pub fn requests(&self, page: &str, code: &str) -> IntCounter {
        self.requests.with_label_values(&[page, code])
    }
}

/// The metrics of the ReplicaSet controller that upstream exports.
#[derive(Clone, Debug)]
pub struct ReplicaSetMetrics {
    /// The age of a chosen Pod over that of the youngest.
    pub sorting_deletion_age_ratio: Histogram,
}

impl ReplicaSetMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        let ratio = families.histogram(&names::SORTING_DELETION_AGE_RATIO, &[]);
        ReplicaSetMetrics { sorting_deletion_age_ratio: ratio }
    }
}
