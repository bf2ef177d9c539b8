//! The sender's end of a link, with the faults and delays of its traffic.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_env::{Env, Rng};

use super::connection::Bounds;
use super::effects::ActiveFault;
use super::journal::{ProcessId, RecordKind};
use super::plan::{Fault, FaultAction};
use super::request_summary::RequestSummary;
use super::shared::Shared;

/// Maximum latency of one direction in milliseconds, without faults; the minimum is one.
const LATENCY_MS: u64 = 3;

/// One incarnation of a process at its end of a link.
pub(super) struct LinkEndpoint {
    pub(super) network: Arc<Shared>,
    pub(super) who: ProcessId,
    pub(super) sender: Env,
    chance: Mutex<LinkRng>,
    /// Whether its writes are counted.
    pub(super) counted: bool,
    pub(super) bounds: Bounds,
}

/// Random numbers and current faults of a link.
pub(super) struct LinkRng {
    latency: Rng,
    pub(super) threats: Vec<ActiveFault>,
    hand: Option<FaultInjector>,
    /// Whether the link is partitioned until it is healed.
    pub(super) cut: bool,
}

/// A function that chooses faults at run time.
struct FaultInjector {
    choose: Choose,
    threat: ActiveFault,
}

pub(super) type Choose = Box<dyn FnMut(&RequestSummary) -> Option<FaultAction> + Send>;

impl LinkEndpoint {
    pub(super) fn new(
        network: &Arc<Shared>,
        sender: &Env,
        threats: Vec<ActiveFault>,
        (counted, bounds): (bool, Bounds),
    ) -> Self {
        let latency = network.stream(sender, "latency");
        LinkEndpoint {
            network: Arc::clone(network),
            who: ProcessId { instance: sender.instance().into(), life: sender.incarnation() },
            sender: sender.clone(),
            chance: Mutex::new(LinkRng { latency, threats, hand: None, cut: false }),
            counted,
            bounds,
        }
    }

    /// Sets the function that chooses faults by hand.
    pub(super) fn meddle(&self, choose: Choose) {
        let mut chance = self.chance();
        let threat = chance.hand.take().map_or_else(|| self.threat_by_hand(), |hand| hand.threat);
        chance.hand = Some(FaultInjector { choose, threat });
    }

    /// Returns the time at which data that is ready at `at` gets through.
    pub(super) fn open_at(&self, at: Duration) -> Duration {
        let chance = self.chance();
        let cuts =
            chance.threats.iter().map(|threat| &threat.fault).filter(|it| it.what == FaultAction::Partition);
        cuts.filter(|cut| cut.is_on(at)).map(|cut| cut.ends()).max().unwrap_or(at)
    }

    /// Returns the time at which a watch of `asked` delivers an event that is ready at `at`.
    pub(super) fn delivered_at(&self, asked: &RequestSummary, at: Duration) -> Duration {
        let open = self.open_at(at);
        let chance = self.chance();
        let held =
            chance.threats.iter().map(|threat| &threat.fault).filter(|it| it.what == FaultAction::WatchHeld);
        let held = held.filter(|it| it.is_on(open) && it.matches(asked));
        held.map(|it| it.ends()).max().unwrap_or(open)
    }

    pub(super) fn record(&self, what: RecordKind) {
        self.network.record(self.who.clone(), what);
    }

    pub(super) fn struck(&self, id: u64, how: impl Into<String>) {
        self.record(RecordKind::FaultInjected { id, how: how.into() });
    }

    pub(super) fn note(&self, text: String) {
        self.record(RecordKind::Note(text));
    }

    fn threat_by_hand(&self) -> ActiveFault {
        let rng = self.network.stream(&self.sender, "by hand");
        ActiveFault { index: usize::MAX, fault: Fault::during(Duration::MAX, FaultAction::Forbidden), rng }
    }

    pub(super) fn chance(&self) -> MutexGuard<'_, LinkRng> {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkRng {
    /// Returns a random latency for one direction.
    pub(super) fn leg(&mut self) -> Duration {
        Duration::from_millis(1 + self.latency.below(LATENCY_MS))
    }

    /// Returns the fault that is chosen by hand for a request or for an event of a watch.
    pub(super) fn by_hand(&mut self, asked: &RequestSummary) -> Option<&mut ActiveFault> {
        let hand = self.hand.as_mut()?;
        hand.threat.fault.what = (hand.choose)(asked)?;
        Some(&mut hand.threat)
    }
}
