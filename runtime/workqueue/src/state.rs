//! State of each key, and its effect on the metrics. Except for metrics this module is pure: no clock, no waker, no
//! lock.
//!
//! Code of the key type (comparison, hash, clone, tenant) can panic, so it runs before any change. A key that is no
//! longer needed is returned, so that the caller drops it outside of the lock.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_env::Instant;
use windlass_metrics::WorkqueueMetrics;

use crate::delays::{DelayReason, Delays};
use crate::meter::{ProcessingAges, QueueMeter};
use crate::schedule::{QueuedEntry, Schedule};
use crate::slots::{SlotState, Slots};
use crate::tenants::Tenants;
use crate::{Delayed, Key, KeyStatus, ParkReason, Parked, Priority, Queued};

/// Returns the tenant of a key.
pub(crate) type TenantOf<K> = Box<dyn for<'k> Fn(&'k K) -> &'k str + Send>;

pub(crate) struct State<K> {
    slots: Slots<K>,
    schedule: Schedule,
    delays: Delays,
    /// By slot. None of these keys is queued or in [`SlotState::HeldAgain`], because an add ends the parking.
    parked: BTreeMap<usize, Parked>,
    tenants: Tenants,
    /// `None` while all keys belong to one tenant.
    tenant_of: Option<TenantOf<K>>,
    /// Number of keys in progress.
    held: usize,
    /// Number of keys in [`SlotState::HeldAgain`].
    held_again: usize,
    shut_down: bool,
    meter: Option<QueueMeter>,
}

/// Key for a worker.
#[derive(Debug)]
pub(crate) struct DequeuedKey<K> {
    pub(crate) key: K,
    pub(crate) slot: usize,
    pub(crate) priority: Priority,
}

impl<K: Key> State<K> {
    pub(crate) fn new(seed: u64, metrics: Option<WorkqueueMetrics>) -> Self {
        State {
            slots: Slots::new(seed),
            schedule: Schedule::default(),
            delays: Delays::default(),
            parked: BTreeMap::new(),
            tenants: Tenants::new(seed),
            tenant_of: None,
            held: 0,
            held_again: 0,
            shut_down: false,
            meter: metrics.map(QueueMeter::new),
        }
    }

    /// Sets the tenant function and returns the previous one.
    pub(crate) fn fair_by(&mut self, tenant_of: TenantOf<K>) -> Option<TenantOf<K>> {
        self.tenant_of.replace(tenant_of)
    }

    /// Enqueues a key. Returns the key if the queue already has it or is shut down.
    pub(crate) fn add(&mut self, now: Instant, key: K, priority: Priority) -> Option<K> {
        if self.shut_down {
            return Some(key);
        }
        let (slot, spare) = self.enter(key);
        self.enqueue_now(now, slot, priority);
        spare
    }

    /// Enqueues a key after a delay. Returns the key as [`State::add`] does.
    pub(crate) fn add_after(&mut self, now: Instant, key: K, delay: Delay, priority: Priority) -> Option<K> {
        if self.shut_down {
            return Some(key);
        }
        let spare = if delay.length.is_zero() {
            self.add(now, key, priority)
        } else {
            let (slot, spare) = self.enter(key);
            self.delays.insert(slot, now + delay.length, delay.reason, priority);
            spare
        };
        if let Some(meter) = &self.meter {
            meter.delayed();
        }
        spare
    }

    /// Cancels a delay. Returns whether there was one, and the key if it is removed.
    pub(crate) fn cancel_delayed(&mut self, key: &K) -> (bool, Option<K>) {
        let Some(slot) = self.slots.find(self.slots.hash(key), key) else { return (false, None) };
        (self.delays.cancel(slot), self.leave_if_idle(slot))
    }

    /// Enqueues the keys whose delay has expired, with their due times as the enqueue times.
    pub(crate) fn promote(&mut self, now: Instant) {
        while let Some((at, slot, priority)) = self.delays.pop_due(now) {
            self.enqueue(at, slot, priority);
        }
    }

    /// Dequeues the next key.
    pub(crate) fn take(&mut self, now: Instant) -> Option<DequeuedKey<K>> {
        let turn = self.schedule.turn(now)?;
        let key = self.slots.record(turn.slot).key.clone();
        let QueuedEntry { added, priority } = self.schedule.take(turn);
        *self.slots.place_mut(turn.slot) = SlotState::Processing { since: now };
        self.held += 1;
        if let Some(meter) = &self.meter {
            meter.taken(added, now);
        }
        Some(DequeuedKey { key, slot: turn.slot, priority })
    }

    /// Marks a key as done, and requeues it if it was added during processing. Otherwise removes and returns it.
    pub(crate) fn done(&mut self, now: Instant, slot: usize) -> Option<K> {
        let place = self.slots.record(slot).place;
        let (since, left) = match place {
            SlotState::Processing { since } if self.is_delayed_or_parked(slot) => {
                *self.slots.place_mut(slot) = SlotState::Idle;
                (since, None)
            }
            SlotState::Processing { since } => (since, Some(self.leave(slot))),
            SlotState::HeldAgain { since, added, priority } => {
                self.held_again -= 1;
                self.wait(slot, priority, added);
                (since, None)
            }
            other => unreachable!("slot {slot} is done but not in progress: {other:?}"),
        };
        self.held -= 1;
        if let Some(meter) = &self.meter {
            meter.done(since, now);
        }
        left
    }

    /// Drops the add of a key during its processing.
    pub(crate) fn lose_add(&mut self, slot: usize) {
        if let SlotState::HeldAgain { since, .. } = *self.slots.place_mut(slot) {
            *self.slots.place_mut(slot) = SlotState::Processing { since };
            self.held_again -= 1;
            self.lost(1);
        }
    }

    /// Parks a key in progress when its worker is done. A key that was added meanwhile is enqueued instead.
    pub(crate) fn park(&mut self, slot: usize, parked: Parked) {
        match self.slots.place_mut(slot) {
            SlotState::HeldAgain { priority, .. } => *priority = parked.priority.max(*priority),
            SlotState::Processing { .. } if !self.shut_down => drop(self.parked.insert(slot, parked)),
            _ => {}
        }
    }

    /// Enqueues `key` if it is parked for `reason`.
    pub(crate) fn release(&mut self, now: Instant, key: &K, reason: ParkReason) {
        let Some(slot) = self.slots.find(self.slots.hash(key), key) else { return };
        if let Some(parked) = self.parked.get(&slot).filter(|parked| parked.reason == reason) {
            self.enqueue_now(now, slot, parked.priority);
        }
    }

    /// Returns the keys that are parked for `reason`, sorted.
    pub(crate) fn parked(&self, reason: ParkReason) -> Vec<K> {
        let parked = self.parked.iter().filter(|(_, parked)| parked.reason == reason);
        let mut keys: Vec<K> = parked.map(|(slot, _)| self.slots.record(*slot).key.clone()).collect();
        keys.sort();
        keys
    }

    /// Returns the number of keys that are parked for `reason`.
    pub(crate) fn count_parked(&self, reason: ParkReason) -> usize {
        self.parked.values().filter(|parked| parked.reason == reason).count()
    }

    /// Removes the waiting keys for which `gone` returns true. Returns the keys that left the queue.
    pub(crate) fn withdraw(&mut self, gone: impl Fn(&K) -> bool) -> Vec<K> {
        let mut left = Vec::new();
        for slot in 0..self.slots.len() {
            if !self.slots.used(slot).is_some_and(|record| gone(&record.key)) {
                continue;
            }
            let place = *self.slots.place_mut(slot);
            match place {
                SlotState::Queued => {
                    self.schedule.withdraw(slot);
                    *self.slots.place_mut(slot) = SlotState::Idle;
                    self.lost(1);
                }
                SlotState::HeldAgain { .. } => self.lose_add(slot),
                SlotState::Idle | SlotState::Processing { .. } => {}
            }
            self.delays.cancel(slot);
            self.parked.remove(&slot);
            left.extend(self.leave_if_idle(slot));
        }
        left
    }

    /// Returns the position of `key`.
    pub(crate) fn whereabouts(&self, key: &K) -> KeyStatus {
        let Some(slot) = self.slots.find(self.slots.hash(key), key) else { return KeyStatus::default() };
        let (waiting, held) = match self.slots.record(slot).place {
            SlotState::Idle => (None, None),
            SlotState::Queued => (Some(self.schedule.waiting(slot)), None),
            SlotState::Processing { since } => (None, Some(since)),
            SlotState::HeldAgain { since, added, priority } => {
                (Some(Queued { since: added, priority }), Some(since))
            }
        };
        let due =
            self.delays.due(slot).map(|(at, reason)| Delayed { at, is_retry: reason == DelayReason::Retry });
        KeyStatus { waiting, processing: held, due, parked: self.parked.get(&slot).copied() }
    }

    pub(crate) fn shut_down(&mut self) {
        self.shut_down = true;
        while let Some(slot) = self.delays.pop_any() {
            drop(self.leave_if_idle(slot));
        }
        while let Some((slot, _)) = self.parked.pop_first() {
            drop(self.leave_if_idle(slot));
        }
    }

    /// Updates the metrics that are computed only when they are gathered.
    pub(crate) fn show(&self, now: Instant) {
        let Some(meter) = &self.meter else { return };
        let mut ages = ProcessingAges::default();
        for place in self.slots.places() {
            if let SlotState::Processing { since } | SlotState::HeldAgain { since, .. } = place {
                ages.count(now - since);
            }
        }
        meter.show(ages, self.schedule.depths());
    }

    /// Returns the slot of a key. A key that already has a slot is returned as well.
    fn enter(&mut self, key: K) -> (usize, Option<K>) {
        let (tenant_of, tenants) = (&self.tenant_of, &mut self.tenants);
        self.slots
            .find_or_insert(key, |key| tenants.enter(tenant_of.as_ref().map(|tenant_of| tenant_of(key))))
    }

    fn enqueue_now(&mut self, now: Instant, slot: usize, priority: Priority) {
        let superseded = self.delays.supersede(slot).unwrap_or(priority);
        self.enqueue(now, slot, priority.max(superseded));
    }

    fn enqueue(&mut self, added: Instant, slot: usize, priority: Priority) {
        let priority = self.parked.remove(&slot).map_or(priority, |parked| parked.priority.max(priority));
        match self.slots.place_mut(slot) {
            SlotState::Queued => {
                self.schedule.raise(slot, priority);
                return;
            }
            SlotState::HeldAgain { priority: requeue_priority, .. } => {
                *requeue_priority = priority.max(*requeue_priority);
                return;
            }
            place @ SlotState::Processing { .. } => {
                if let SlotState::Processing { since } = *place {
                    *place = SlotState::HeldAgain { since, added, priority };
                }
                self.held_again += 1;
            }
            SlotState::Idle => self.wait(slot, priority, added),
        }
        if let Some(meter) = &self.meter {
            meter.added();
        }
    }

    /// Subtracts keys that will not be dequeued from the depth.
    fn lost(&self, count: usize) {
        if let Some(meter) = &self.meter {
            meter.lost(count);
        }
    }

    fn wait(&mut self, slot: usize, priority: Priority, added: Instant) {
        *self.slots.place_mut(slot) = SlotState::Queued;
        let tenant = self.slots.record(slot).tenant;
        self.schedule.push(slot, tenant, priority, added);
    }

    /// Removes a key that is not queued, delayed, parked or in progress, and returns it.
    fn leave_if_idle(&mut self, slot: usize) -> Option<K> {
        if !matches!(self.slots.record(slot).place, SlotState::Idle) || self.is_delayed_or_parked(slot) {
            return None;
        }
        Some(self.leave(slot))
    }

    fn leave(&mut self, slot: usize) -> K {
        let record = self.slots.remove(slot);
        self.tenants.leave(record.tenant);
        record.key
    }
}

/// Delay of an add, and its reason.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    pub(crate) length: Duration,
    pub(crate) reason: DelayReason,
}

impl<K> State<K> {
    #[inline]
    fn is_delayed_or_parked(&self, slot: usize) -> bool {
        self.delays.contains(slot) || self.parked.contains_key(&slot)
    }

    /// Returns the number of keys that can be dequeued now.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.schedule.ready()
    }

    /// Returns the number of keys in progress.
    pub(crate) fn in_flight(&self) -> usize {
        self.held
    }

    /// Returns the due time of the earliest delayed key.
    #[inline]
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.delays.earliest()
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// Returns whether no further key will be dequeued. A key in progress that was added again still will be, possibly
    /// by another worker.
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.shut_down && self.ready() == 0 && self.held_again == 0
    }

    /// Returns whether the queue is shut down and no key is queued or in progress.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.shut_down && self.slots.is_empty()
    }
}

impl<K> Drop for State<K> {
    /// Resets the gauges: the remaining keys will never be dequeued.
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            meter.lost(self.ready() + self.held_again);
            let depths = self.schedule.depths().map(|(priority, _)| (priority, 0));
            meter.show(ProcessingAges::default(), depths);
        }
    }
}
