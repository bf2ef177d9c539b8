//! Spans of a reconcile: one for its log lines, and one for traces.
//!
//! The span of the log has the fields that identify a line: controller, key and reconcile ID. The span of the trace has
//! more, and its target [`TRACE_TARGET`] is enabled only by a subscriber that exports traces. Without one, a reconcile
//! creates no span for traces, formats nothing and copies nothing.
//!
//! The span of a trace links to a span of the event that enqueued the key. The queue carries no span: the history of
//! the key contains the event, so its span is created when the reconcile starts.

use tracing::field::Empty;
use tracing::{Instrument as _, Span};
use windlass_client::{TRACE_TARGET, one_line};
use windlass_object::{ObjectKey, ResourceVersion, Uid};

use crate::core::Core;
use crate::core::reconcile_ids::ReconcileId;
use crate::enqueue::history::{EnqueueReason, LastEvent, Record};
use crate::error::Class;
use crate::run::outcome::{Attempt, Outcome};

/// The spans of one reconcile. Clones share them.
#[derive(Clone)]
pub(crate) struct ReconcileSpans {
    log: Span,
    trace: Span,
}

impl ReconcileSpans {
    /// Opens the spans of an attempt. Called before the history records its start.
    pub(crate) fn open(core: &Core, key: &ObjectKey, failures: u32) -> Self {
        let id = core.reconcile_ids.next();
        let trace = trace_span(core, key, id, failures);
        let log = tracing::info_span!("reconcile", controller = core.name(), %key, reconcile_id = %id);
        Self { log, trace }
    }

    /// Runs `task` in the spans.
    pub(crate) fn instrument<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
        // Both are entered: a layer finds the enabled span among the entered ones, not among the parents.
        task.instrument(self.log.clone()).instrument(self.trace.clone())
    }

    /// Calls `task` in the spans.
    pub(crate) fn in_scope<T>(&self, task: impl FnOnce() -> T) -> T {
        self.trace.in_scope(|| self.log.in_scope(task))
    }

    /// Records the result of the attempt in the trace.
    pub(crate) fn record_result(&self, attempt: &Attempt) {
        if self.trace.is_disabled() {
            return;
        }
        self.trace.record("result", result_of(attempt));
        if let Some(error) = error_of(attempt) {
            self.trace.record("otel.status_code", "ERROR");
            self.trace.record("otel.status_description", error);
        }
    }
}

fn trace_span(core: &Core, key: &ObjectKey, id: ReconcileId, failures: u32) -> Span {
    let span = tracing::trace_span!(
        target: TRACE_TARGET,
        parent: None,
        "reconcile",
        otel.name = format!("reconcile {}", core.name()),
        controller = core.name(),
        namespace = key.namespace(),
        name = key.name(),
        reconcile_id = %id,
        // OpenTelemetry has no unsigned integers.
        retries = i64::from(failures),
        queue_duration = Empty,
        reason = Empty,
        result = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    );
    // The history is locked and copied only for a trace.
    if !span.is_disabled()
        && let Some(record) = core.keys.history.of(key)
    {
        record_cause(core, key, &record, &span);
    }
    span
}

/// Records the time in the queue and the reason of the reconcile, and links its event.
fn record_cause(core: &Core, key: &ObjectKey, record: &Record, span: &Span) {
    if let Some(queued) = record.queued_at {
        span.record("queue_duration", core.env.now().saturating_duration_since(queued).as_secs_f64());
    }
    let Some(reason) = record.reason else { return };
    span.record("reason", reason.as_str());
    // A retry has the event of the first attempt, so that the trace of every attempt contains the cause.
    if let (EnqueueReason::Event | EnqueueReason::Reconcile, Some(event)) = (reason, &record.seen) {
        let event = event_span(core, key, event);
        // Borrowed: a span that is closed first cannot be linked.
        span.follows_from(&event);
    }
}

fn event_span(core: &Core, key: &ObjectKey, event: &LastEvent) -> Span {
    let object = event.object(key);
    tracing::trace_span!(
        target: TRACE_TARGET,
        parent: None,
        "event",
        watch = event.watch.as_deref(),
        namespace = object.namespace(),
        name = object.name(),
        uid = event.uid.as_ref().map(Uid::as_str),
        resource_version = event.version.as_ref().map(ResourceVersion::as_str),
        change = event.info.change.as_str(),
        cause = event.info.cause(),
        age = event.at.map(|at| core.env.now().saturating_duration_since(at).as_secs_f64()),
    )
}

/// Returns the result as in the label of `windlass_reconcile_total`.
fn result_of(attempt: &Attempt) -> &'static str {
    match attempt {
        Attempt::Returned(Ok(Outcome::Done | Outcome::Paused(_))) => "success",
        Attempt::Returned(Ok(Outcome::RequeueAfter(_) | Outcome::RequeueWithPriority { .. })) => {
            "requeue_after"
        }
        Attempt::Returned(Err(error)) => match error.class() {
            Class::Retry | Class::RetryAfter(_) => "error",
            Class::Terminal => "terminal",
            Class::NotYet(_) => "requeue_after",
        },
        Attempt::Panicked(..) => "panic",
    }
}

/// Returns the message of a failure on one line.
fn error_of(attempt: &Attempt) -> Option<String> {
    match attempt {
        Attempt::Returned(Ok(_)) => None,
        Attempt::Returned(Err(error)) if matches!(error.class(), Class::NotYet(_)) => None,
        Attempt::Returned(Err(error)) => Some(one_line(error.cause())),
        Attempt::Panicked(message, _) => Some(format!("panicked: {message}")),
    }
}
