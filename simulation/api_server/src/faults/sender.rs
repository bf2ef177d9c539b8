//! The sender's end of a link, with the faults and delays of its traffic.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_env::{Env, Rng};

use super::connection::Bounds;
use super::effects::ActiveFault;
use super::journal::{ProcessId, RecordKind};
use super::plan::{Fault, FaultAction};
use super::request_summary::RequestSummary;
use super::shared::NetworkState;

/// Maximum latency of one direction in milliseconds, without faults; the minimum is one.
const LATENCY_MS: u64 = 3;

/// One incarnation of a process at its end of a link.
pub(super) struct LinkEndpoint {
    pub(super) network: Arc<NetworkState>,
    pub(super) process: ProcessId,
    pub(super) sender: Env,
    rng: Mutex<LinkRng>,
    /// Whether its writes are counted.
    pub(super) counted: bool,
    pub(super) bounds: Bounds,
}

/// Random numbers and current faults of a link.
pub(super) struct LinkRng {
    latency: Rng,
    pub(super) active_faults: Vec<ActiveFault>,
    injector: Option<FaultInjector>,
    /// Whether the link is partitioned until it is healed.
    pub(super) is_partitioned: bool,
}

/// A function that chooses faults at run time.
struct FaultInjector {
    choose: Choose,
    active_fault: ActiveFault,
}

pub(super) type Choose = Box<dyn FnMut(&RequestSummary) -> Option<FaultAction> + Send>;

impl LinkEndpoint {
    pub(super) fn new(
        network: &Arc<NetworkState>,
        sender: &Env,
        active_faults: Vec<ActiveFault>,
        (counted, bounds): (bool, Bounds),
    ) -> Self {
        let latency = network.stream(sender, "latency");
        LinkEndpoint {
            network: Arc::clone(network),
            process: ProcessId { instance: sender.instance().into(), incarnation: sender.incarnation() },
            sender: sender.clone(),
            rng: Mutex::new(LinkRng { latency, active_faults, injector: None, is_partitioned: false }),
            counted,
            bounds,
        }
    }

    /// Sets the function that chooses faults by hand.
    pub(super) fn inject_fault(&self, choose: Choose) {
        let mut rng = self.rng();
        let active_fault =
            rng.injector.take().map_or_else(|| self.injected_fault(), |injector| injector.active_fault);
        rng.injector = Some(FaultInjector { choose, active_fault });
    }

    /// Returns the time at which data that is ready at `at` gets through.
    pub(super) fn open_at(&self, at: Duration) -> Duration {
        let rng = self.rng();
        let cuts = rng
            .active_faults
            .iter()
            .map(|active_fault| &active_fault.fault)
            .filter(|it| it.action == FaultAction::Partition);
        cuts.filter(|cut| cut.is_on(at)).map(|cut| cut.ends()).max().unwrap_or(at)
    }

    /// Returns the time at which a watch of `request` delivers an event that is ready at `at`.
    pub(super) fn delivered_at(&self, request: &RequestSummary, at: Duration) -> Duration {
        let open = self.open_at(at);
        let rng = self.rng();
        let held = rng
            .active_faults
            .iter()
            .map(|active_fault| &active_fault.fault)
            .filter(|it| it.action == FaultAction::WatchHeld);
        let held = held.filter(|it| it.is_on(open) && it.matches(request));
        held.map(|it| it.ends()).max().unwrap_or(open)
    }

    pub(super) fn record(&self, kind: RecordKind) {
        self.network.record(self.process.clone(), kind);
    }

    pub(super) fn record_injection(&self, id: u64, how: impl Into<String>) {
        self.record(RecordKind::FaultInjected { id, how: how.into() });
    }

    pub(super) fn note(&self, text: String) {
        self.record(RecordKind::Note(text));
    }

    fn injected_fault(&self) -> ActiveFault {
        let rng = self.network.stream(&self.sender, "by hand");
        ActiveFault { index: usize::MAX, fault: Fault::until(Duration::MAX, FaultAction::Forbidden), rng }
    }

    pub(super) fn rng(&self) -> MutexGuard<'_, LinkRng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkRng {
    /// Returns a random latency for one direction.
    pub(super) fn random_latency(&mut self) -> Duration {
        Duration::from_millis(1 + self.latency.below(LATENCY_MS))
    }

    /// Returns the fault that is chosen by hand for a request or for an event of a watch.
    pub(super) fn choose_injected(&mut self, request: &RequestSummary) -> Option<&mut ActiveFault> {
        let injector = self.injector.as_mut()?;
        injector.active_fault.fault.action = (injector.choose)(request)?;
        Some(&mut injector.active_fault)
    }
}
