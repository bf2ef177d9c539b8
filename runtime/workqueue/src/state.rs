//! State of each key, and its effect on the metrics. Except for metrics this module is pure: no clock, no waker, no
//! lock.
//!
//! Code of the key type (comparison, clone, tenant) can panic, so it runs before any change. A key that is no longer
//! needed is returned, so that the caller drops it outside of the lock, except at the end of a rest and at the
//! shutdown.

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
    /// Ends of the rests of the keys in [`SlotState::Resting`]. No worker waits for them: they are removed by the next
    /// call of any method.
    rests: Delays,
    /// Ends of the rests of the keys in [`SlotState::RestingDirty`].
    dirty_rests: Delays,
    /// By slot. None of these keys is queued or in [`SlotState::ProcessingDirty`], because an add ends the parking.
    parked: BTreeMap<usize, Parked>,
    tenants: Tenants,
    /// `None` while all keys belong to one tenant.
    tenant_of: Option<TenantOf<K>>,
    /// Number of keys in progress.
    processing: usize,
    /// Number of keys in [`SlotState::ProcessingDirty`].
    processing_dirty: usize,
    shut_down: bool,
    meter: Option<QueueMeter>,
}

/// Key to add, with its hash, which is computed before the lock is acquired.
#[derive(Debug)]
pub(crate) struct HashedKey<K> {
    pub(crate) hash: u64,
    pub(crate) key: K,
}

/// Key for a worker.
#[derive(Debug)]
pub(crate) struct DequeuedKey<K> {
    pub(crate) key: K,
    pub(crate) slot: usize,
    pub(crate) priority: Priority,
    /// Time for which the key is not queued again after its processing.
    pub(crate) rest: Duration,
}

impl<K: Key> State<K> {
    pub(crate) fn new(seed: u64, metrics: Option<WorkqueueMetrics>) -> Self {
        State {
            slots: Slots::new(),
            schedule: Schedule::default(),
            delays: Delays::default(),
            rests: Delays::default(),
            dirty_rests: Delays::default(),
            parked: BTreeMap::new(),
            tenants: Tenants::new(seed),
            tenant_of: None,
            processing: 0,
            processing_dirty: 0,
            shut_down: false,
            meter: metrics.map(QueueMeter::new),
        }
    }

    /// Sets the tenant function and returns the previous one.
    pub(crate) fn fair_by(&mut self, tenant_of: TenantOf<K>) -> Option<TenantOf<K>> {
        self.tenant_of.replace(tenant_of)
    }

    /// Enqueues a key. Returns the key if the queue already has it or is shut down.
    pub(crate) fn add(&mut self, now: Instant, hashed: HashedKey<K>, priority: Priority) -> Option<K> {
        if self.shut_down {
            return Some(hashed.key);
        }
        let (slot, spare) = self.find_or_insert_slot(hashed);
        self.enqueue_now(now, slot, priority);
        spare
    }

    /// Enqueues a key after a delay. Returns the key as [`State::add`] does.
    pub(crate) fn add_after(
        &mut self,
        now: Instant,
        hashed: HashedKey<K>,
        delay: Delay,
        priority: Priority,
    ) -> Option<K> {
        if self.shut_down {
            return Some(hashed.key);
        }
        let spare = if delay.length.is_zero() {
            self.add(now, hashed, priority)
        } else {
            let (slot, spare) = self.find_or_insert_slot(hashed);
            self.delays.insert(slot, now + delay.length, delay.reason, priority);
            spare
        };
        if let Some(meter) = &mut self.meter {
            meter.on_delayed();
        }
        spare
    }

    /// Cancels a delay. Returns whether there was one, and the key if it is removed.
    pub(crate) fn cancel_delayed(&mut self, hash: u64, key: &K) -> (bool, Option<K>) {
        let Some(slot) = self.slots.find(hash, key) else { return (false, None) };
        (self.delays.cancel(slot), self.remove_slot_if_idle(slot))
    }

    /// Enqueues the keys whose delay or rest is over, in the order of their ends, and count as enqueued at
    /// these times.
    #[inline]
    pub(crate) fn promote(&mut self, now: Instant) {
        if self.earliest().is_some_and(|at| at <= now) {
            self.enqueue_due(now);
        }
        if self.rests.earliest().is_some_and(|at| at <= now) {
            self.end_rests(now);
        }
    }

    fn enqueue_due(&mut self, now: Instant) {
        while let Some(next) = self.earliest().filter(|at| *at <= now) {
            if let Some((_, slot, _)) = self.dirty_rests.pop_due(next) {
                self.end_rest(next, slot);
            } else if let Some((at, slot, priority)) = self.delays.pop_due(next) {
                self.end_rest(at, slot);
                self.enqueue(at, slot, priority);
            }
        }
    }

    /// Ends the rests of the keys that were not added.
    fn end_rests(&mut self, now: Instant) {
        while let Some((at, slot, _)) = self.rests.pop_due(now) {
            self.end_rest(at, slot);
            drop(self.remove_slot_if_idle(slot));
        }
    }

    /// Dequeues the next key.
    pub(crate) fn take(&mut self, now: Instant) -> Option<DequeuedKey<K>> {
        let next = self.schedule.next_key(now)?;
        let key = self.slots.key(next.slot).clone();
        let QueuedEntry { added, priority } = self.schedule.take(next);
        *self.slots.state_mut(next.slot) = SlotState::Processing { since: now };
        self.processing += 1;
        if let Some(meter) = &self.meter {
            meter.on_dequeued(added, now);
        }
        Some(DequeuedKey { key, slot: next.slot, priority, rest: Duration::ZERO })
    }

    /// Marks a key as done, which begins its rest. Requeues it if it was added during processing and does not rest.
    /// Removes and returns it if it neither waits nor rests.
    pub(crate) fn done(&mut self, now: Instant, dequeued: &DequeuedKey<K>) -> Option<K> {
        let DequeuedKey { slot, rest, priority, .. } = *dequeued;
        let skips_rest = self.slots.set_skips_rest(slot, false);
        let rests = !rest.is_zero() && !skips_rest && !self.shut_down && !self.parked.contains_key(&slot);
        let (since, left) = match *self.slots.state(slot) {
            SlotState::Processing { since } if rests => {
                *self.slots.state_mut(slot) = SlotState::Resting;
                self.rests.insert(slot, now + rest, DelayReason::Scheduled, priority);
                (since, None)
            }
            SlotState::Processing { since } => {
                *self.slots.state_mut(slot) = SlotState::Idle;
                (since, self.remove_slot_if_idle(slot))
            }
            SlotState::ProcessingDirty { since, added, priority } => {
                self.processing_dirty -= 1;
                if rests {
                    self.rest_dirty(slot, now + rest, added, priority);
                } else {
                    self.push_queued(slot, priority, added);
                }
                (since, None)
            }
            other => unreachable!("slot {slot} is done but not in progress: {other:?}"),
        };
        self.processing -= 1;
        if let Some(meter) = &self.meter {
            meter.on_done(since, now);
        }
        left
    }

    /// Drops the add of a key during its processing.
    pub(crate) fn drop_pending_add(&mut self, slot: usize) {
        if let SlotState::ProcessingDirty { since, .. } = *self.slots.state_mut(slot) {
            *self.slots.state_mut(slot) = SlotState::Processing { since };
            self.processing_dirty -= 1;
        }
    }

    /// Parks a key in progress when its worker is done. A key that was added meanwhile is enqueued instead.
    pub(crate) fn park(&mut self, slot: usize, parked: Parked) {
        match self.slots.state_mut(slot) {
            SlotState::ProcessingDirty { priority, .. } => *priority = parked.priority.max(*priority),
            SlotState::Processing { .. } if !self.shut_down => drop(self.parked.insert(slot, parked)),
            _ => {}
        }
    }

    /// Enqueues `key` if it is parked for `reason`.
    pub(crate) fn release(&mut self, now: Instant, hash: u64, key: &K, reason: ParkReason) {
        let Some(slot) = self.slots.find(hash, key) else { return };
        if let Some(parked) = self.parked.get(&slot).filter(|parked| parked.reason == reason) {
            self.enqueue_now(now, slot, parked.priority);
        }
    }

    /// Ends the rest of `key`; a key in progress does not rest. Returns the key if it is removed.
    pub(crate) fn end_rest_of(&mut self, now: Instant, hash: u64, key: &K) -> Option<K> {
        let slot = self.slots.find(hash, key)?;
        match self.slots.state(slot) {
            SlotState::Processing { .. } | SlotState::ProcessingDirty { .. } => {
                self.slots.set_skips_rest(slot, true);
            }
            SlotState::Idle | SlotState::Queued | SlotState::Resting | SlotState::RestingDirty { .. } => {
                self.end_rest(now, slot);
            }
        }
        self.remove_slot_if_idle(slot)
    }

    /// Returns the keys that are parked for `reason`, sorted.
    pub(crate) fn parked(&self, reason: ParkReason) -> Vec<K> {
        let parked = self.parked.iter().filter(|(_, parked)| parked.reason == reason);
        let mut keys: Vec<K> = parked.map(|(slot, _)| self.slots.key(*slot).clone()).collect();
        keys.sort();
        keys
    }

    /// Returns the number of keys that are parked for `reason`.
    pub(crate) fn count_parked(&self, reason: ParkReason) -> usize {
        self.parked.values().filter(|parked| parked.reason == reason).count()
    }

    /// Removes the waiting keys for which `is_removed` returns true. Returns the keys that left the queue.
    pub(crate) fn remove_if(&mut self, is_removed: impl Fn(&K) -> bool) -> Vec<K> {
        let mut left = Vec::new();
        for slot in 0..self.slots.len() {
            if !self.slots.used(slot).is_some_and(&is_removed) {
                continue;
            }
            match *self.slots.state(slot) {
                SlotState::Queued => {
                    self.schedule.remove(slot);
                    *self.slots.state_mut(slot) = SlotState::Idle;
                }
                SlotState::ProcessingDirty { .. } => self.drop_pending_add(slot),
                SlotState::Resting | SlotState::RestingDirty { .. } => {
                    self.rests.cancel(slot);
                    self.dirty_rests.cancel(slot);
                    *self.slots.state_mut(slot) = SlotState::Idle;
                }
                SlotState::Idle | SlotState::Processing { .. } => {}
            }
            self.delays.cancel(slot);
            self.parked.remove(&slot);
            left.extend(self.remove_slot_if_idle(slot));
        }
        left
    }

    /// Returns the position of `key`.
    pub(crate) fn key_status(&self, hash: u64, key: &K) -> KeyStatus {
        let Some(slot) = self.slots.find(hash, key) else { return KeyStatus::default() };
        let (queued, processing) = match *self.slots.state(slot) {
            SlotState::Idle | SlotState::Resting => (None, None),
            SlotState::Queued => (Some(self.schedule.queued(slot)), None),
            SlotState::RestingDirty { added, priority } => (Some(Queued { since: added, priority }), None),
            SlotState::Processing { since } => (None, Some(since)),
            SlotState::ProcessingDirty { since, added, priority } => {
                (Some(Queued { since: added, priority }), Some(since))
            }
        };
        let delayed =
            self.delays.due(slot).map(|(at, reason)| Delayed { at, is_retry: reason == DelayReason::Retry });
        let resting_until = self.dirty_rests.due(slot).map(|(at, _)| at);
        KeyStatus { queued, resting_until, processing, delayed, parked: self.parked.get(&slot).copied() }
    }

    pub(crate) fn shut_down(&mut self, now: Instant) {
        self.shut_down = true;
        while let Some((_, slot, _)) = self.dirty_rests.pop_first() {
            self.end_rest(now, slot);
        }
        while let Some((_, slot, _)) = self.rests.pop_first() {
            self.end_rest(now, slot);
            drop(self.remove_slot_if_idle(slot));
        }
        while let Some((_, slot, _)) = self.delays.pop_first() {
            drop(self.remove_slot_if_idle(slot));
        }
        while let Some((slot, _)) = self.parked.pop_first() {
            drop(self.remove_slot_if_idle(slot));
        }
    }

    /// Updates the metrics.
    pub(crate) fn update_metrics(&mut self, now: Instant) {
        let Some(meter) = &mut self.meter else { return };
        let mut ages = ProcessingAges::default();
        for state in self.slots.states() {
            if let SlotState::Processing { since } | SlotState::ProcessingDirty { since, .. } = state {
                ages.count(now - since);
            }
        }
        let depth = self.schedule.ready() + self.processing_dirty + self.dirty_rests.len();
        meter.update_gathered(ages, depth, self.schedule.depths());
    }

    /// Returns the slot of a key. A key that already has a slot is returned as well.
    fn find_or_insert_slot(&mut self, HashedKey { hash, key }: HashedKey<K>) -> (usize, Option<K>) {
        let (tenant_of, tenants) = (&self.tenant_of, &mut self.tenants);
        self.slots.find_or_insert(hash, key, |key| {
            tenants.add_key(tenant_of.as_ref().map(|tenant_of| tenant_of(key)))
        })
    }

    fn enqueue_now(&mut self, now: Instant, slot: usize, priority: Priority) {
        let due = self.delays.due(slot);
        let Some(superseded) = self.delays.supersede(slot) else { return self.enqueue(now, slot, priority) };
        self.enqueue(now, slot, priority.max(superseded));
        // The retry would have ended the rest.
        if let (SlotState::RestingDirty { priority, .. }, Some((retry_at, _))) =
            (*self.slots.state(slot), due)
        {
            self.dirty_rests.insert(slot, retry_at, DelayReason::Scheduled, priority);
        }
    }

    fn enqueue(&mut self, added: Instant, slot: usize, priority: Priority) {
        let priority = self.parked.remove(&slot).map_or(priority, |parked| parked.priority.max(priority));
        match self.slots.state_mut(slot) {
            SlotState::Queued => {
                self.schedule.raise(slot, priority);
                return;
            }
            SlotState::ProcessingDirty { priority: requeue_priority, .. }
            | SlotState::RestingDirty { priority: requeue_priority, .. } => {
                *requeue_priority = priority.max(*requeue_priority);
                return;
            }
            state @ SlotState::Processing { .. } => {
                if let SlotState::Processing { since } = *state {
                    *state = SlotState::ProcessingDirty { since, added, priority };
                }
                self.processing_dirty += 1;
            }
            SlotState::Resting => {
                let until = self.rests.due(slot).map_or(added, |(at, _)| at);
                self.rests.cancel(slot);
                self.rest_dirty(slot, until, added, priority);
            }
            SlotState::Idle => self.push_queued(slot, priority, added),
        }
        if let Some(meter) = &mut self.meter {
            meter.on_added();
        }
    }

    /// Lets an added key wait for the end of its rest.
    fn rest_dirty(&mut self, slot: usize, until: Instant, added: Instant, priority: Priority) {
        *self.slots.state_mut(slot) = SlotState::RestingDirty { added, priority };
        self.dirty_rests.insert(slot, until, DelayReason::Scheduled, priority);
    }

    /// Ends the rest of a key. If it was added, it is queued. The time in the queue starts now: it measures the wait
    /// for a worker.
    fn end_rest(&mut self, at: Instant, slot: usize) {
        match *self.slots.state(slot) {
            SlotState::Resting => {
                self.rests.cancel(slot);
                *self.slots.state_mut(slot) = SlotState::Idle;
            }
            SlotState::RestingDirty { priority, .. } => {
                self.dirty_rests.cancel(slot);
                self.push_queued(slot, priority, at);
            }
            SlotState::Idle
            | SlotState::Queued
            | SlotState::Processing { .. }
            | SlotState::ProcessingDirty { .. } => {}
        }
    }

    fn push_queued(&mut self, slot: usize, priority: Priority, added: Instant) {
        *self.slots.state_mut(slot) = SlotState::Queued;
        let tenant = self.slots.tenant(slot);
        self.schedule.push(slot, tenant, priority, added);
    }

    /// Removes a key that is not queued, delayed, parked or in progress, and returns it.
    fn remove_slot_if_idle(&mut self, slot: usize) -> Option<K> {
        if !matches!(self.slots.state(slot), SlotState::Idle) || self.is_delayed_or_parked(slot) {
            return None;
        }
        Some(self.remove_slot(slot))
    }

    fn remove_slot(&mut self, slot: usize) -> K {
        let (key, tenant) = self.slots.remove(slot);
        self.tenants.remove_key(tenant);
        key
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
        self.processing
    }

    /// Returns the time at which the next delayed or resting key is queued. A rest without an add queues no key.
    #[inline]
    pub(crate) fn earliest(&self) -> Option<Instant> {
        let (delay, rest) = (self.delays.earliest(), self.dirty_rests.earliest());
        delay.into_iter().chain(rest).min()
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// Returns whether no further key will be dequeued. A key in progress that was added again still will be, possibly
    /// by another worker.
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.shut_down && self.ready() == 0 && self.processing_dirty == 0
    }

    /// Returns whether no key is queued, delayed, parked or in progress.
    pub(crate) fn has_no_keys(&self) -> bool {
        let is_resting = |state| matches!(state, SlotState::Resting);
        self.delays.len() == 0 && self.parked.is_empty() && self.slots.states().all(is_resting)
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
        if let Some(meter) = &mut self.meter {
            let depths = self.schedule.depths().map(|(priority, _)| (priority, 0));
            meter.update_gathered(ProcessingAges::default(), 0, depths);
        }
    }
}
