//! The sender's end of a line: who sends, and the faults and delays that strike what passes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_env::{Env, Rng};

use super::asked::Asked;
use super::connection::Bounds;
use super::fate::Threat;
use super::journal::{Happening, Who};
use super::plan::{Fault, What};
use super::shared::Shared;

/// One way takes between one and this many milliseconds, when nothing goes wrong.
const LATENCY_MS: u64 = 3;

/// One life of a process at its end of a line.
pub(super) struct SenderEnd {
    pub(super) network: Arc<Shared>,
    pub(super) who: Who,
    pub(super) sender: Env,
    chance: Mutex<Chance>,
    /// Whether its writes are counted.
    pub(super) counted: bool,
    pub(super) bounds: Bounds,
}

/// Where everything random about a line comes from.
pub(super) struct Chance {
    latency: Rng,
    pub(super) threats: Vec<Threat>,
    hand: Option<Hand>,
    /// Whether nothing gets through until somebody mends the line.
    pub(super) cut: bool,
}

/// Somebody who chooses faults while things happen.
struct Hand {
    choose: Choose,
    threat: Threat,
}

pub(super) type Choose = Box<dyn FnMut(&Asked) -> Option<What> + Send>;

impl SenderEnd {
    pub(super) fn new(
        network: &Arc<Shared>,
        sender: &Env,
        threats: Vec<Threat>,
        (counted, bounds): (bool, Bounds),
    ) -> Self {
        let latency = network.stream(sender, "latency");
        SenderEnd {
            network: Arc::clone(network),
            who: Who { instance: sender.instance().into(), life: sender.life() },
            sender: sender.clone(),
            chance: Mutex::new(Chance { latency, threats, hand: None, cut: false }),
            counted,
            bounds,
        }
    }

    /// Sets the function that chooses faults by hand.
    pub(super) fn meddle(&self, choose: Choose) {
        let mut chance = self.chance();
        let threat = chance.hand.take().map_or_else(|| self.threat_by_hand(), |hand| hand.threat);
        chance.hand = Some(Hand { choose, threat });
    }

    /// When something gets through that could be told at `at`.
    pub(super) fn open_at(&self, at: Duration) -> Duration {
        let chance = self.chance();
        let cuts = chance.threats.iter().map(|threat| &threat.fault).filter(|it| it.what == What::Partition);
        cuts.filter(|cut| cut.is_on(at)).map(|cut| cut.ends()).max().unwrap_or(at)
    }

    /// When a watch of `asked` delivers what it could deliver at `at`.
    pub(super) fn delivered_at(&self, asked: &Asked, at: Duration) -> Duration {
        let open = self.open_at(at);
        let chance = self.chance();
        let held = chance.threats.iter().map(|threat| &threat.fault).filter(|it| it.what == What::WatchHeld);
        let held = held.filter(|it| it.is_on(open) && it.matches(asked));
        held.map(|it| it.ends()).max().unwrap_or(open)
    }

    pub(super) fn record(&self, what: Happening) {
        self.network.record(self.who.clone(), what);
    }

    pub(super) fn struck(&self, id: u64, how: impl Into<String>) {
        self.record(Happening::Struck { id, how: how.into() });
    }

    pub(super) fn note(&self, text: String) {
        self.record(Happening::Note(text));
    }

    fn threat_by_hand(&self) -> Threat {
        let rng = self.network.stream(&self.sender, "by hand");
        Threat { index: usize::MAX, fault: Fault::during(Duration::MAX, What::Forbidden), rng }
    }

    pub(super) fn chance(&self) -> MutexGuard<'_, Chance> {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chance {
    /// How long one way takes.
    pub(super) fn leg(&mut self) -> Duration {
        Duration::from_millis(1 + self.latency.below(LATENCY_MS))
    }

    /// The fault that is chosen by hand for a request, or for an event of a watch.
    pub(super) fn by_hand(&mut self, asked: &Asked) -> Option<&mut Threat> {
        let hand = self.hand.as_mut()?;
        hand.threat.fault.what = (hand.choose)(asked)?;
        Some(&mut hand.threat)
    }
}
