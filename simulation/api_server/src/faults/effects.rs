//! Effects of a plan's faults on one request, generated in plan order.

use std::time::Duration;

use http::Method;
use windlass_env::Rng;
use windlass_object::Verb;

use super::plan::{Fault, FaultAction};
use super::refusals;
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
const HALF_OPEN_MS: u64 = 5_000;

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
    pub(super) end: DeliveryOutcome,
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
    LostBefore {
        silently: bool,
    },
    LostAfter {
        silently: bool,
    },
    Refused(Box<Status>),
    /// The request takes effect, and its sender receives this error.
    RefusedAfter(Box<Status>),
}

impl ActiveFault {
    /// Returns whether the fault applies to the request and is injected this time.
    pub(super) fn strikes_at(&mut self, asked: &RequestSummary) -> bool {
        concerns(&self.fault.what, asked) && self.strikes()
    }

    /// Returns whether the fault is injected this time.
    pub(super) fn strikes(&mut self) -> bool {
        let permille = u64::from(self.fault.permille);
        permille >= 1000 || self.rng.below(1000) < permille
    }

    pub(super) fn delay(&mut self, by_ms: u64) -> Duration {
        Duration::from_millis(self.rng.below(by_ms.saturating_add(1)))
    }
}

impl FaultEffects {
    /// Generates the effects for a request that is sent `now`.
    pub(super) fn draw(threats: &mut [ActiveFault], asked: &RequestSummary, now: Duration) -> FaultEffects {
        let mut fate = FaultEffects::default();
        for threat in threats.iter_mut().filter(|it| it.fault.is_on(now) && it.fault.matches(asked)) {
            if threat.strikes_at(asked) {
                fate.suffer(threat, asked);
            }
        }
        fate
    }

    /// Adds the effect of one more fault.
    pub(super) fn suffer(&mut self, threat: &mut ActiveFault, asked: &RequestSummary) {
        match threat.fault.what.clone() {
            FaultAction::RequestDelayed { by_ms } => self.request_delay += threat.delay(by_ms),
            FaultAction::ResponseDelayed { by_ms } => self.response_delay += threat.delay(by_ms),
            FaultAction::SlowConnect { by_ms } => self.connect_delay += threat.delay(by_ms),
            FaultAction::SlowServer { by_ms } => self.processing += threat.delay(by_ms),
            FaultAction::SlowTransfer { ms_per_megabyte } => self.ms_per_megabyte += ms_per_megabyte,
            FaultAction::HalfOpen => {
                self.half_open = true;
                self.request_delay += threat.delay(HALF_OPEN_MS);
                self.meet(DeliveryOutcome::LostAfter { silently: true });
            }
            FaultAction::StaleReplica => self.stale = Some(threat.index),
            FaultAction::Poison { name } => self.poisoned.push(name),
            what => {
                if let Some(end) = end(what, asked) {
                    self.meet(end);
                }
            }
        }
    }

    /// Records an outcome unless there is one: the server cannot reject a request that was lost earlier.
    fn meet(&mut self, end: DeliveryOutcome) {
        if matches!(self.end, DeliveryOutcome::Through) {
            self.end = end;
        }
    }
}

fn end(what: FaultAction, asked: &RequestSummary) -> Option<DeliveryOutcome> {
    let refused = |status: Status| Some(DeliveryOutcome::Refused(Box::new(status)));
    match what {
        FaultAction::RequestLost { silently } => Some(DeliveryOutcome::LostBefore { silently }),
        FaultAction::ServerDies => Some(DeliveryOutcome::LostAfter { silently: true }),
        FaultAction::Unauthorized => refused(refusals::unauthorized()),
        FaultAction::ResponseLost { silently } => Some(DeliveryOutcome::LostAfter { silently }),
        FaultAction::Partition => Some(DeliveryOutcome::LostBefore { silently: true }),
        FaultAction::Conflict => refused(refusals::conflict(asked)),
        FaultAction::TooManyRequests { retry_after_seconds } => {
            refused(refusals::too_many_requests(retry_after_seconds))
        }
        FaultAction::InternalError => refused(Status::internal("a fault")),
        FaultAction::Unavailable | FaultAction::ReadsUnavailable => refused(refusals::unavailable()),
        FaultAction::TimedOut => Some(DeliveryOutcome::RefusedAfter(Box::new(refusals::timed_out()))),
        FaultAction::Expired => refused(refusals::expired()),
        FaultAction::NamespaceTerminating => refused(refusals::namespace_terminating(asked)),
        FaultAction::QuotaExceeded => refused(refusals::quota_exceeded(asked)),
        FaultAction::Forbidden => refused(refusals::forbidden(asked)),
        _ => None,
    }
}

/// Returns whether the fault applies to requests of this type.
fn concerns(what: &FaultAction, asked: &RequestSummary) -> bool {
    let creates = || asked.verb == Some(Verb::Create) && asked.subresource.is_empty();
    match what {
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
        | FaultAction::ServerDies => !asked.is_watch(),
        FaultAction::TimedOut | FaultAction::Forbidden => asked.is_write(),
        FaultAction::Conflict => asked.is_write() && asked.method != Method::POST && !asked.name.is_empty(),
        FaultAction::Expired => match asked.verb {
            Some(Verb::Watch) => true,
            Some(Verb::List) => asked.names("resourceVersion") || asked.names("continue"),
            _ => false,
        },
        FaultAction::NamespaceTerminating | FaultAction::QuotaExceeded => creates(),
        FaultAction::StaleReplica | FaultAction::Poison { .. } | FaultAction::ReadsUnavailable => {
            matches!(asked.verb, Some(Verb::List | Verb::Watch))
        }
        _ => false,
    }
}
