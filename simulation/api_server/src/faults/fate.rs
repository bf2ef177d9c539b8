//! What becomes of one request: the faults of a plan that strike it, drawn in the order of the plan.

use std::time::Duration;

use http::Method;
use windlass_env::Rng;
use windlass_object::Verb;

use super::asked::Asked;
use super::plan::{Fault, What};
use super::refusals;
use crate::status::Status;

/// One fault of the plan as it strikes one life of one sender.
#[derive(Debug)]
pub(super) struct Threat {
    /// Its place in the plan.
    pub(super) index: usize,
    pub(super) fault: Fault,
    pub(super) rng: Rng,
}

/// How late a request on a half-open connection can arrive: `TCP_USER_TIMEOUT`.
const HALF_OPEN_MS: u64 = 5_000;

/// What becomes of a request.
#[derive(Debug, Default)]
pub(super) struct Fate {
    pub(super) connect_delay: Duration,
    pub(super) request_delay: Duration,
    pub(super) processing: Duration,
    pub(super) response_delay: Duration,
    /// How long the answer takes for each megabyte.
    pub(super) ms_per_megabyte: u64,
    /// The reset by the sender does not reach the server.
    pub(super) half_open: bool,
    pub(super) end: End,
    /// The place in the plan of the stale replica that serves it.
    pub(super) stale: Option<usize>,
    /// The objects that the answer shows broken.
    pub(super) poisoned: Vec<String>,
}

/// How a request ends.
#[derive(Debug, Default)]
pub(super) enum End {
    #[default]
    Through,
    LostBefore {
        silently: bool,
    },
    LostAfter {
        silently: bool,
    },
    Refused(Box<Status>),
    /// It takes effect, and its sender is told this.
    RefusedAfter(Box<Status>),
}

impl Threat {
    /// Whether it is about such a request, and strikes it.
    pub(super) fn strikes_at(&mut self, asked: &Asked) -> bool {
        concerns(&self.fault.what, asked) && self.strikes()
    }

    /// Whether it strikes, once.
    pub(super) fn strikes(&mut self) -> bool {
        let permille = u64::from(self.fault.permille);
        permille >= 1000 || self.rng.below(1000) < permille
    }

    pub(super) fn delay(&mut self, by_ms: u64) -> Duration {
        Duration::from_millis(self.rng.below(by_ms.saturating_add(1)))
    }
}

impl Fate {
    /// Draws the fate of a request that is sent `now`.
    pub(super) fn draw(threats: &mut [Threat], asked: &Asked, now: Duration) -> Fate {
        let mut fate = Fate::default();
        for threat in threats.iter_mut().filter(|it| it.fault.is_on(now) && it.fault.matches(asked)) {
            if threat.strikes_at(asked) {
                fate.suffer(threat, asked);
            }
        }
        fate
    }

    /// One more fault strikes.
    pub(super) fn suffer(&mut self, threat: &mut Threat, asked: &Asked) {
        match threat.fault.what.clone() {
            What::RequestDelayed { by_ms } => self.request_delay += threat.delay(by_ms),
            What::ResponseDelayed { by_ms } => self.response_delay += threat.delay(by_ms),
            What::SlowConnect { by_ms } => self.connect_delay += threat.delay(by_ms),
            What::SlowServer { by_ms } => self.processing += threat.delay(by_ms),
            What::SlowTransfer { ms_per_megabyte } => self.ms_per_megabyte += ms_per_megabyte,
            What::HalfOpen => {
                self.half_open = true;
                self.request_delay += threat.delay(HALF_OPEN_MS);
                self.meet(End::LostAfter { silently: true });
            }
            What::StaleReplica => self.stale = Some(threat.index),
            What::Poison { name } => self.poisoned.push(name),
            what => {
                if let Some(end) = end(what, asked) {
                    self.meet(end);
                }
            }
        }
    }

    /// The first end counts: a request that was lost is refused by nobody.
    fn meet(&mut self, end: End) {
        if matches!(self.end, End::Through) {
            self.end = end;
        }
    }
}

fn end(what: What, asked: &Asked) -> Option<End> {
    let refused = |status: Status| Some(End::Refused(Box::new(status)));
    match what {
        What::RequestLost { silently } => Some(End::LostBefore { silently }),
        What::ServerDies => Some(End::LostAfter { silently: true }),
        What::Unauthorized => refused(refusals::unauthorized()),
        What::ResponseLost { silently } => Some(End::LostAfter { silently }),
        What::Partition => Some(End::LostBefore { silently: true }),
        What::Conflict => refused(refusals::conflict(asked)),
        What::TooManyRequests { retry_after_seconds } => {
            refused(refusals::too_many_requests(retry_after_seconds))
        }
        What::InternalError => refused(Status::internal("a fault")),
        What::Unavailable | What::ReadsUnavailable => refused(refusals::unavailable()),
        What::TimedOut => Some(End::RefusedAfter(Box::new(refusals::timed_out()))),
        What::Expired => refused(refusals::expired()),
        What::NamespaceTerminating => refused(refusals::namespace_terminating(asked)),
        What::QuotaExceeded => refused(refusals::quota_exceeded(asked)),
        What::Forbidden => refused(refusals::forbidden(asked)),
        _ => None,
    }
}

/// Whether a fault of this sort is about requests of that sort.
fn concerns(what: &What, asked: &Asked) -> bool {
    let creates = || asked.verb == Some(Verb::Create) && asked.subresource.is_empty();
    match what {
        What::RequestLost { .. }
        | What::RequestDelayed { .. }
        | What::ResponseDelayed { .. }
        | What::TooManyRequests { .. }
        | What::InternalError
        | What::Unavailable
        | What::SlowConnect { .. }
        | What::SlowServer { .. }
        | What::Unauthorized
        | What::Partition => true,
        // A stream has no single answer to lose.
        What::ResponseLost { .. } | What::SlowTransfer { .. } | What::HalfOpen | What::ServerDies => {
            !asked.is_watch()
        }
        What::TimedOut | What::Forbidden => asked.is_write(),
        What::Conflict => asked.is_write() && asked.method != Method::POST && !asked.name.is_empty(),
        What::Expired => match asked.verb {
            Some(Verb::Watch) => true,
            Some(Verb::List) => asked.names("resourceVersion") || asked.names("continue"),
            _ => false,
        },
        What::NamespaceTerminating | What::QuotaExceeded => creates(),
        What::StaleReplica | What::Poison { .. } | What::ReadsUnavailable => {
            matches!(asked.verb, Some(Verb::List | Verb::Watch))
        }
        _ => false,
    }
}
