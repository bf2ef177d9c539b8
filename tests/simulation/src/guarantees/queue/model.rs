//! Reference model of the queue: slow and simple.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_env::Instant;
use windlass_workqueue::Priority;

pub(super) type Key = u8;

/// Order of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The key that has waited longest.
    Plain,
    /// The key with the highest priority, and periodically an aged key.
    Priorities,
    /// Tenants in turn.
    Tenants,
}

/// Time until a waiting key counts as aged.
const AGED: Duration = Duration::from_secs(10);
/// Maximum number of other keys that can be dequeued before an aged key: every eighth is an aged key, and a few keys
/// can precede it.
const TURNS: u64 = 64;

/// Expected state of all keys.
#[derive(Debug)]
pub(super) struct Model {
    order: Order,
    keys: BTreeMap<Key, State>,
    shut_down: bool,
    /// Last tenant, and the number of its consecutive keys while the other tenant waited.
    turns: (&'static str, u32),
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Time since which it is ready.
    waits: Option<Instant>,
    /// Priority with which it waits, or will wait when its holder releases it.
    priority: Option<Priority>,
    /// Last increase of the priority: it moved the key behind keys that can be younger, and does not speed up aging.
    raised: Option<Instant>,
    /// Number of other keys that were dequeued since it aged.
    passed_over: u64,
    held: bool,
    /// Whether it was added while it was held.
    again: bool,
    /// Due time, and whether it is an appointment.
    delayed: Option<(Instant, bool)>,
}

/// Returns the tenant of a key.
pub(super) fn tenant(key: Key) -> &'static str {
    if key < 5 { "many" } else { "few" }
}

impl Model {
    pub(super) fn new(order: Order) -> Self {
        Model { order, keys: BTreeMap::new(), shut_down: false, turns: ("", 0) }
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    pub(super) fn add(&mut self, now: Instant, key: Key, priority: Priority) {
        self.promote(now);
        if self.shut_down {
            return;
        }
        let state = self.keys.entry(key).or_default();
        // The reconcile of a pending retry is moved forward, with the priority of the retry.
        let retry = state.delayed.take_if(|(_, appointment)| !*appointment);
        self.enqueue(now, key, priority.max(retry.map_or(priority, |_| Priority::NORMAL)));
    }

    pub(super) fn add_after(&mut self, now: Instant, key: Key, delay: Duration, appointment: bool) {
        self.promote(now);
        if self.shut_down {
            return;
        }
        if delay.is_zero() {
            return self.add(now, key, Priority::NORMAL);
        }
        let state = self.keys.entry(key).or_default();
        let due = now + delay;
        state.delayed = Some(match state.delayed {
            None => (due, appointment),
            Some((earlier, was)) => (earlier.min(due), was || appointment),
        });
    }

    pub(super) fn cancel(&mut self, now: Instant, key: Key) -> bool {
        self.promote(now);
        self.keys.entry(key).or_default().delayed.take().is_some()
    }

    pub(super) fn shut_down(&mut self, now: Instant) {
        self.promote(now);
        self.shut_down = true;
        self.keys.values_mut().for_each(|state| state.delayed = None);
    }

    /// Records that a worker dequeued this key. Returns a violation of the order.
    pub(super) fn taken(&mut self, now: Instant, key: Key) -> Option<String> {
        self.promote(now);
        let state = self.keys.entry(key).or_default();
        let held = std::mem::replace(&mut state.held, true);
        let waits = state.waits.take();
        (state.passed_over, state.priority, state.raised) = (0, None, None);
        match (held, waits) {
            (true, _) => Some(format!("{key} is held by two workers")),
            (_, None) => Some(format!("{key} was dequeued without being due")),
            (_, Some(since)) => match self.order {
                Order::Plain => self.came_before_another(key, since),
                Order::Priorities => self.passes_over(now),
                Order::Tenants => self.took_turns(key),
            },
        }
    }

    fn came_before_another(&self, key: Key, since: Instant) -> Option<String> {
        let first = self.keys.values().filter_map(|state| state.waits).min();
        let before = first.is_some_and(|first| first < since);
        before.then(|| format!("{key} was dequeued before a key that waited longer"))
    }

    /// Checks that no key starves.
    fn passes_over(&mut self, now: Instant) -> Option<String> {
        for state in self.keys.values_mut() {
            let ages = state.raised.max(state.waits).filter(|_| state.waits.is_some());
            let aged = ages.is_some_and(|since| now - since > AGED);
            state.passed_over += u64::from(aged);
        }
        let starving = self.keys.iter().find(|(_, state)| state.passed_over > TURNS);
        starving.map(|(key, _)| format!("{key} starves at {now:?}: {:?}", self.keys))
    }

    fn took_turns(&mut self, key: Key) -> Option<String> {
        let mine = tenant(key);
        let other_waits = self.keys.iter().any(|(key, it)| tenant(*key) != mine && it.waits.is_some());
        self.turns = match self.turns {
            (last, turns) if last == mine && other_waits => (mine, turns + 1),
            _ => (mine, u32::from(other_waits)),
        };
        (self.turns.1 > 2)
            .then(|| format!("{mine} has {} turns in a row while the other waits", self.turns.1))
    }

    pub(super) fn released(&mut self, now: Instant, key: Key) {
        self.promote(now);
        let state = self.keys.entry(key).or_default();
        state.held = false;
        if std::mem::take(&mut state.again) {
            let priority = state.priority.take().unwrap_or(Priority::NORMAL);
            self.enqueue(now, key, priority);
        }
    }

    /// Returns the number of keys that are ready.
    pub(super) fn ready(&mut self, now: Instant) -> usize {
        self.promote(now);
        self.keys.values().filter(|state| state.waits.is_some()).count()
    }

    /// Returns the longest waiting time of a ready key.
    pub(super) fn waits(&mut self, now: Instant) -> Duration {
        self.promote(now);
        let first = self.keys.values().filter_map(|state| state.waits).min();
        first.map_or(Duration::ZERO, |since| now - since)
    }

    /// Returns the keys that are queued, delayed or held.
    pub(super) fn left(&self) -> Vec<Key> {
        let busy = |state: &State| state.held || state.waits.is_some() || state.delayed.is_some();
        self.keys.iter().filter(|(_, state)| busy(state)).map(|(key, _)| *key).collect()
    }

    pub(super) fn left_but(&self, key: Key) -> Vec<Key> {
        self.left().into_iter().filter(|it| *it != key).collect()
    }

    fn enqueue(&mut self, now: Instant, key: Key, priority: Priority) {
        let state = self.keys.entry(key).or_default();
        let raised = state.priority.is_some_and(|before| before < priority);
        state.priority = state.priority.max(Some(priority));
        if state.held {
            state.again = true;
        } else if state.waits.is_none() {
            state.waits = Some(now);
        } else if raised {
            state.raised = Some(now);
        }
    }

    fn promote(&mut self, now: Instant) {
        let due: Vec<(Instant, Key)> = self
            .keys
            .iter_mut()
            .filter_map(|(key, state)| {
                let due = state.delayed.take_if(|(at, _)| *at <= now)?;
                Some((due.0, *key))
            })
            .collect();
        for (at, key) in due {
            self.enqueue(at, key, Priority::NORMAL);
        }
    }
}
