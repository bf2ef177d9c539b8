//! Effects of a plan's faults on one request, generated in plan order.

use std::time::Duration;

use http::Method;
use windlass_env::Rng;
use windlass_object::Verb;

use super::injected_errors;
use super::plan::{Fault, FaultAction, WriteNumber};
use super::request_summary::RequestSummary;
use crate::status::Status;

/// One fault of the plan, for one incarnation of one sender.
#[derive(Debug)]
pub(super) struct ActiveFault {
    /// Index in the plan.
    pub(super) index: usize,
    pub(super) fault: Fault,
    pub(super) rng: Rng,
}

/// Maximum delay of a request on a half-open connection: `TCP_USER_TIMEOUT`.
const HALF_OPEN_MS: u64 = 2_000;

/// The effects of all faults on one request.
#[derive(Debug, Default)]
pub(super) struct FaultEffects {
    pub(super) connect_delay: Duration,
    pub(super) request_delay: Duration,
    pub(super) processing: Duration,
    pub(super) response_delay: Duration,
    /// Transfer time of the response per megabyte.
    pub(super) ms_per_megabyte: u64,
    /// The sender's reset does not reach the server.
    pub(super) half_open: bool,
    pub(super) outcome: DeliveryOutcome,
    /// Plan index of the stale replica that serves the request.
    pub(super) stale: Option<usize>,
    /// Names of the objects that the response contains in corrupted form.
    pub(super) poisoned: Vec<String>,
}

/// The outcome of a request.
#[derive(Debug, Default)]
pub(super) enum DeliveryOutcome {
    #[default]
    Through,
    LostBeforeEffect {
        silently: bool,
    },
    LostAfterEffect {
        silently: bool,
    },
    Rejected(Box<Status>),
    /// If the request takes effect, its sender receives this error.
    RejectedAfterEffect(Box<Status>),
}

impl ActiveFault {
    /// Returns whether the fault applies to the request and is injected this time. `has_object` is whether the named
    /// object exists.
    pub(super) fn is_injected_into(&mut self, request: &RequestSummary, has_object: bool) -> bool {
        applies_to(&self.fault.action, request, has_object) && self.is_injected_now()
    }

    /// Returns whether the fault is injected this time.
    pub(super) fn is_injected_now(&mut self) -> bool {
        let permille = u64::from(self.fault.permille);
        permille >= 1000 || self.rng.below(1000) < permille
    }

    pub(super) fn delay(&mut self, by_ms: u64) -> Duration {
        Duration::from_millis(self.rng.below(by_ms.saturating_add(1)))
    }
}

impl FaultEffects {
    /// Generates the effects for a request that is sent `now`. `write` is its number if it is a write.
    pub(super) fn generate(
        active_faults: &mut [ActiveFault],
        request: &RequestSummary,
        now: Duration,
        write: Option<WriteNumber>,
        has_object: bool,
    ) -> FaultEffects {
        let mut fate = FaultEffects::default();
        for active_fault in
            active_faults.iter_mut().filter(|it| it.fault.is_on_for(now, write) && it.fault.matches(request))
        {
            if active_fault.is_injected_into(request, has_object) {
                fate.add(active_fault, request);
            }
        }
        fate
    }

    /// Adds the effect of one more fault.
    pub(super) fn add(&mut self, active_fault: &mut ActiveFault, request: &RequestSummary) {
        match active_fault.fault.action.clone() {
            FaultAction::RequestDelayed { by_ms } => self.request_delay += active_fault.delay(by_ms),
            FaultAction::ResponseDelayed { by_ms } => self.response_delay += active_fault.delay(by_ms),
            FaultAction::SlowConnect { by_ms } => self.connect_delay += active_fault.delay(by_ms),
            FaultAction::SlowServer { by_ms } => self.processing += active_fault.delay(by_ms),
            FaultAction::SlowTransfer { ms_per_megabyte } => self.ms_per_megabyte += ms_per_megabyte,
            FaultAction::HalfOpen => {
                self.half_open = true;
                self.request_delay += active_fault.delay(HALF_OPEN_MS);
                self.set_outcome(DeliveryOutcome::LostAfterEffect { silently: true });
            }
            FaultAction::StaleReplica => self.stale = Some(active_fault.index),
            FaultAction::Poison { name } => self.poisoned.push(name),
            action => {
                if let Some(end) = end(action, request) {
                    self.set_outcome(end);
                }
            }
        }
    }

    /// Records an outcome unless there is one: the server cannot reject a request that was lost earlier.
    fn set_outcome(&mut self, end: DeliveryOutcome) {
        if matches!(self.outcome, DeliveryOutcome::Through) {
            self.outcome = end;
        }
    }
}

fn end(action: FaultAction, request: &RequestSummary) -> Option<DeliveryOutcome> {
    let refused = |status: Status| Some(DeliveryOutcome::Rejected(Box::new(status)));
    match action {
        FaultAction::RequestLost { silently } => Some(DeliveryOutcome::LostBeforeEffect { silently }),
        FaultAction::ServerDies => Some(DeliveryOutcome::LostAfterEffect { silently: true }),
        FaultAction::Unauthorized => refused(injected_errors::unauthorized()),
        FaultAction::ResponseLost { silently } => Some(DeliveryOutcome::LostAfterEffect { silently }),
        FaultAction::Partition => Some(DeliveryOutcome::LostBeforeEffect { silently: true }),
        FaultAction::Conflict => refused(injected_errors::conflict(request)),
        FaultAction::TooManyRequests { retry_after_seconds } => {
            refused(injected_errors::too_many_requests(retry_after_seconds))
        }
        FaultAction::InternalError => refused(Status::internal("a fault")),
        FaultAction::Unavailable | FaultAction::ReadsUnavailable => refused(injected_errors::unavailable()),
        FaultAction::TimedOut => {
            Some(DeliveryOutcome::RejectedAfterEffect(Box::new(injected_errors::timed_out())))
        }
        FaultAction::Expired => refused(injected_errors::expired()),
        FaultAction::NamespaceTerminating => refused(injected_errors::namespace_terminating(request)),
        FaultAction::QuotaExceeded => refused(injected_errors::quota_exceeded(request)),
        FaultAction::Forbidden => refused(injected_errors::forbidden(request)),
        _ => None,
    }
}

/// Returns whether the fault applies to requests of this type.
fn applies_to(action: &FaultAction, request: &RequestSummary, has_object: bool) -> bool {
    let creates = || request.verb == Some(Verb::Create) && request.subresource.is_empty();
    match action {
        FaultAction::RequestLost { .. }
        | FaultAction::RequestDelayed { .. }
        | FaultAction::ResponseDelayed { .. }
        | FaultAction::TooManyRequests { .. }
        | FaultAction::InternalError
        | FaultAction::Unavailable
        | FaultAction::SlowConnect { .. }
        | FaultAction::SlowServer { .. }
        | FaultAction::Unauthorized
        | FaultAction::Partition => true,
        // A stream has no single response to lose.
        FaultAction::ResponseLost { .. }
        | FaultAction::SlowTransfer { .. }
        | FaultAction::HalfOpen
        | FaultAction::ServerDies => !request.is_watch(),
        FaultAction::TimedOut | FaultAction::Forbidden => request.is_write(),
        // A write of a missing object creates it, or fails with 404.
        FaultAction::Conflict => {
            request.is_write() && request.method != Method::POST && !request.name.is_empty() && has_object
        }
        FaultAction::Expired => match request.verb {
            Some(Verb::Watch) => true,
            Some(Verb::List) => request.names("resourceVersion") || request.names("continue"),
            _ => false,
        },
        FaultAction::NamespaceTerminating | FaultAction::QuotaExceeded => creates(),
        FaultAction::StaleReplica | FaultAction::Poison { .. } | FaultAction::ReadsUnavailable => {
            matches!(request.verb, Some(Verb::List | Verb::Watch))
        }
        _ => false,
    }
}
