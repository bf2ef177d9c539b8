//! Where each key is, and what that does to the metrics. Pure but for those: no clock, no waker, no lock.
//!
//! A key that is neither waiting nor held nor delayed takes no memory.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use windlass_env::Instant;
use windlass_metrics::WorkqueueMetrics;

use crate::delayed::{Delayed, Reason};

pub(crate) struct State<K> {
    /// Every key that waits or is held. Those that wait are in `ready` too.
    places: BTreeMap<K, Place>,
    ready: VecDeque<K>,
    delayed: Delayed<K>,
    /// How many keys are in [`Place::HeldAgain`].
    held_again: usize,
    shut_down: bool,
    metrics: WorkqueueMetrics,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// In `ready` since it was added.
    Waiting { added: Instant },
    /// With a worker.
    Held { since: Instant },
    /// With a worker, and added again meanwhile.
    HeldAgain { since: Instant, added: Instant },
}

impl<K: Ord + Clone> State<K> {
    pub(crate) fn new(metrics: WorkqueueMetrics) -> Self {
        State {
            places: BTreeMap::new(),
            ready: VecDeque::new(),
            delayed: Delayed::new(),
            held_again: 0,
            shut_down: false,
            metrics,
        }
    }

    pub(crate) fn add(&mut self, now: Instant, key: K) {
        if !self.shut_down {
            self.delayed.supersede(&key);
            self.enqueue(now, key);
        }
    }

    pub(crate) fn add_after(&mut self, now: Instant, key: K, delay: Duration, reason: Reason) {
        if self.shut_down {
            return;
        }
        // Upstream counts here, whatever the delay, and dashboards expect it.
        self.metrics.retries.inc();
        if delay.is_zero() {
            self.add(now, key);
        } else {
            self.delayed.insert(key, now + delay, reason);
        }
    }

    pub(crate) fn cancel_delayed(&mut self, key: &K) -> bool {
        self.delayed.cancel(key)
    }

    /// Queues the keys that have come due, as of the times at which they did.
    pub(crate) fn promote(&mut self, now: Instant) {
        while let Some((at, key)) = self.delayed.pop_due(now) {
            self.enqueue(at, key);
        }
    }

    /// Hands out the key that has waited longest.
    pub(crate) fn take(&mut self, now: Instant) -> Option<K> {
        let key = self.ready.pop_front()?;
        let added = match self.places.insert(key.clone(), Place::Held { since: now }) {
            Some(Place::Waiting { added }) => added,
            other => unreachable!("a ready key waits, but it is {other:?}"),
        };
        self.metrics.depth.dec();
        self.metrics.queue_duration.observe(seconds(now - added));
        Some(key)
    }

    /// Takes `key` back from its worker, and queues it if it was added meanwhile.
    pub(crate) fn done(&mut self, now: Instant, key: &K) {
        let since = match self.places.get(key) {
            Some(Place::Held { since }) => {
                let since = *since;
                self.places.remove(key);
                since
            }
            Some(Place::HeldAgain { since, added }) => {
                let (since, added) = (*since, *added);
                self.places.insert(key.clone(), Place::Waiting { added });
                self.held_again -= 1;
                self.ready.push_back(key.clone());
                since
            }
            other => unreachable!("a key given back is held, but it is {other:?}"),
        };
        self.metrics.work_duration.observe(seconds(now - since));
    }

    /// Forgets that a held key was added again: what a planted defect does.
    pub(crate) fn lose_add(&mut self, key: &K) {
        if let Some(Place::HeldAgain { since, .. }) = self.places.get(key) {
            let held = Place::Held { since: *since };
            self.places.insert(key.clone(), held);
            self.held_again -= 1;
            self.metrics.depth.dec();
        }
    }

    pub(crate) fn shut_down(&mut self) {
        self.shut_down = true;
        self.delayed.clear();
    }

    /// Sets the gauges that say how long held keys have been held.
    pub(crate) fn measure(&mut self, now: Instant) {
        let ages = self.places.values().filter_map(|place| match place {
            Place::Waiting { .. } => None,
            Place::Held { since } | Place::HeldAgain { since, .. } => Some(now - *since),
        });
        let (sum, longest) = ages.fold((Duration::ZERO, Duration::ZERO), |(sum, longest), age| {
            (sum.saturating_add(age), longest.max(age))
        });
        self.metrics.unfinished_work.set(seconds(sum));
        self.metrics.longest_running.set(seconds(longest));
    }

    /// How many keys can be handed out now.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// How many keys workers hold.
    pub(crate) fn in_flight(&self) -> usize {
        self.places.len() - self.ready.len()
    }

    /// When the next delayed key comes due.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.delayed.earliest()
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// Whether no key will be handed out any more. A key that is held and was added again still will be: its worker
    /// may be the last one, or may be gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.shut_down && self.ready.is_empty() && self.held_again == 0
    }

    /// Whether nothing is queued or in flight, for good.
    pub(crate) fn is_drained(&self) -> bool {
        self.shut_down && self.places.is_empty()
    }

    fn enqueue(&mut self, added: Instant, key: K) {
        match self.places.get(&key) {
            Some(Place::Waiting { .. } | Place::HeldAgain { .. }) => return,
            Some(Place::Held { since }) => {
                let again = Place::HeldAgain { since: *since, added };
                self.places.insert(key, again);
                self.held_again += 1;
            }
            None => {
                self.places.insert(key.clone(), Place::Waiting { added });
                self.ready.push_back(key);
            }
        }
        self.metrics.adds.inc();
        self.metrics.depth.inc();
    }
}

impl<K> Drop for State<K> {
    /// What is left waits for nobody: the gauges must not go on saying that it does.
    fn drop(&mut self) {
        let left = self.ready.len() + self.held_again;
        self.metrics.depth.sub(i64::try_from(left).unwrap_or(i64::MAX));
        self.metrics.unfinished_work.set(0.0);
        self.metrics.longest_running.set(0.0);
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
