//! Comparison of the queue with a slow and simple model, over random sequences of operations.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::FutureExt;
use proptest::prelude::*;
use windlass_env::{Env, Instant};
use windlass_metrics::Metrics;

use super::{at, ms, try_get};
use crate::schedule::{AGED_AFTER, AGED_SHARE};
use crate::{
    AddDelay, AddOptions, Delayed, Item, KeyStatus, ParkReason, Parked, Priority, Queue, RateLimiter,
};

/// Keys below three belong to one tenant, the others to another.
const KEYS: u8 = 6;
const REASONS: [ParkReason; 2] = [ParkReason("one"), ParkReason("other")];

fn tenant(key: u8) -> &'static str {
    if key < 3 { "lower" } else { "upper" }
}

#[derive(Clone, Debug)]
enum Op {
    Add(u8, Priority, Asked),
    AddAll(Vec<u8>, Priority),
    CancelDelayed(u8),
    /// Removes the keys from this number up.
    Withdraw(u8),
    Forget(u8),
    Advance(u64),
    Get,
    /// Adds this key with a high priority, gets a key, and releases it.
    Turn(u8),
    /// Parks one of the items in progress, for this reason.
    Park(prop::sample::Index, ParkReason),
    Release(u8, ParkReason),
    /// Sets the rest of one of the items in progress, in milliseconds.
    Rest(prop::sample::Index, u64),
    EndRest(u8),
    /// Drops one of the items in progress.
    Done(prop::sample::Index),
    GetNext(prop::sample::Index),
    ShutDown,
}

/// Delay of an add, in milliseconds.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Now,
    After(u64),
    RateLimited,
}

impl Asked {
    fn delay(self) -> AddDelay {
        match self {
            Asked::Now => AddDelay::Now,
            Asked::After(delay) => AddDelay::After(ms(delay)),
            Asked::RateLimited => AddDelay::RateLimited,
        }
    }
}

/// Returns one operation, or several turns of a key with high priority, during which other keys age.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let turns = (0..KEYS, 1usize..2 * usize::try_from(AGED_SHARE).unwrap());
    prop_oneof![
        20 => op().prop_map(|op| vec![op]),
        1 => turns.prop_map(|(key, turns)| vec![Op::Turn(key); turns]),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS;
    let priority =
        || prop_oneof![4 => Just(0), 1 => Just(100), 1 => Just(-100), 1 => -2..2].prop_map(Priority);
    let index = any::<prop::sample::Index>;
    let reason = || prop::sample::select(REASONS.to_vec());
    let requested = prop_oneof![
        8 => Just(Asked::Now),
        6 => (0u64..12).prop_map(Asked::After),
        4 => Just(Asked::RateLimited),
    ];
    prop_oneof![
        18 => (key(), priority(), requested).prop_map(|(key, priority, requested)| Op::Add(key, priority, requested)),
        2 => (prop::collection::vec(key(), 0..4), priority()).prop_map(|(keys, priority)| Op::AddAll(keys, priority)),
        2 => key().prop_map(Op::CancelDelayed),
        2 => key().prop_map(Op::Withdraw),
        2 => key().prop_map(Op::Forget),
        8 => (1u64..8).prop_map(Op::Advance),
        3 => (3_000u64..7_000).prop_map(Op::Advance),
        10 => Just(Op::Get),
        4 => (index(), reason()).prop_map(|(index, reason)| Op::Park(index, reason)),
        3 => (key(), reason()).prop_map(|(key, reason)| Op::Release(key, reason)),
        4 => (index(), 0u64..12).prop_map(|(index, rest)| Op::Rest(index, rest)),
        2 => key().prop_map(Op::EndRest),
        6 => index().prop_map(Op::Done),
        4 => index().prop_map(Op::GetNext),
        1 => Just(Op::ShutDown),
    ]
}

/// Limiter that adds three milliseconds per attempt.
#[derive(Default)]
struct Stairs(BTreeMap<u8, u32>);

impl RateLimiter<u8> for Stairs {
    fn when(&mut self, _now: Instant, key: &u8) -> Duration {
        let attempts = self.0.entry(*key).or_default();
        *attempts += 1;
        ms(3) * *attempts
    }

    fn forget(&mut self, _now: Instant, key: &u8) {
        self.0.remove(key);
    }

    fn attempts(&self, key: &u8) -> u32 {
        self.0.get(key).copied().unwrap_or(0)
    }
}

/// Queued key and the time at which it was enqueued.
type Waiting = (u8, u64);

/// Keys of one tenant and one priority.
#[derive(Clone, Debug)]
struct Lane {
    tenant: &'static str,
    keys: Vec<Waiting>,
}

/// The model: simple, without regard to speed.
#[derive(Default)]
struct Model {
    now: u64,
    arrivals: u64,
    /// By priority, highest first: the non-empty lanes, with the current lane first.
    levels: BTreeMap<Reverse<Priority>, Vec<Lane>>,
    skipped_claims: u32,
    held: BTreeSet<u8>,
    again: BTreeMap<u8, (Priority, u64)>,
    /// Rests of the keys in progress.
    rests: BTreeMap<u8, u64>,
    /// Keys in progress that do not rest.
    restless: BTreeSet<u8>,
    resting: BTreeMap<u8, Rest>,
    delayed: BTreeMap<u8, Pending>,
    parked: BTreeMap<u8, Parked>,
    attempts: BTreeMap<u8, u32>,
    shut_down: bool,
    adds: u64,
    retries: u64,
}

/// A key that rests. If it was added, it is queued at `until`.
#[derive(Clone, Copy)]
struct Rest {
    until: u64,
    arrival: u64,
    added: Option<(Priority, u64)>,
}

#[derive(Clone, Copy)]
struct Pending {
    at: u64,
    arrival: u64,
    appointment: bool,
    priority: Priority,
}

impl Model {
    fn add(&mut self, key: u8, priority: Priority) {
        if self.shut_down {
            return;
        }
        let retry = self.delayed.get(&key).filter(|pending| !pending.appointment).copied();
        if retry.is_some() {
            self.delayed.remove(&key);
        }
        let priority = retry.map_or(priority, |retry| retry.priority.max(priority));
        self.enqueue(key, priority, self.now);
        if let (Some(retry), Some(rest)) = (retry, self.resting.get_mut(&key))
            && retry.at < rest.until
        {
            self.arrivals += 1;
            (rest.until, rest.arrival) = (retry.at, self.arrivals);
        }
    }

    fn end_rest_of(&mut self, key: u8) {
        if self.held.contains(&key) {
            self.restless.insert(key);
        }
        self.end_rest(key, self.now);
    }

    fn enqueue(&mut self, key: u8, priority: Priority, added: u64) {
        let parked = self.parked.remove(&key);
        let priority = parked.map_or(priority, |parked| parked.priority.max(priority));
        if self.held.contains(&key) {
            let fresh = !self.again.contains_key(&key);
            let again = self.again.entry(key).or_insert((priority, added));
            again.0 = again.0.max(priority);
            self.adds += u64::from(fresh);
        } else if let Some(rest) = self.resting.get_mut(&key) {
            if let Some((earlier, _)) = &mut rest.added {
                *earlier = priority.max(*earlier);
            } else {
                self.arrivals += 1;
                self.adds += 1;
                (rest.arrival, rest.added) = (self.arrivals, Some((priority, added)));
            }
        } else if let Some((old, since)) = self.waiting(key) {
            if old < priority {
                self.pass_if_next(key, old);
                self.take_out(key);
                self.push(key, priority, since);
            }
        } else {
            self.push(key, priority, added);
            self.adds += 1;
        }
    }

    fn push(&mut self, key: u8, priority: Priority, added: u64) {
        let lanes = self.levels.entry(Reverse(priority)).or_default();
        let tenant = tenant(key);
        match lanes.iter_mut().find(|lane| lane.tenant == tenant) {
            Some(lane) => lane.keys.push((key, added)),
            None => lanes.push(Lane { tenant, keys: vec![(key, added)] }),
        }
    }

    fn waiting(&self, key: u8) -> Option<(Priority, u64)> {
        self.levels.iter().find_map(|(priority, lanes)| {
            let mut keys = lanes.iter().flat_map(|lane| &lane.keys);
            keys.find(|(other, _)| *other == key).map(|(_, added)| (priority.0, *added))
        })
    }

    /// Ends the tenant's turn if its next key is raised.
    fn pass_if_next(&mut self, key: u8, priority: Priority) {
        let lanes = self.levels.get_mut(&Reverse(priority)).expect("the key is queued at this priority");
        if lanes[0].keys[0].0 == key && lanes[0].keys.len() > 1 {
            lanes.rotate_left(1);
        }
    }

    fn take_out(&mut self, key: u8) {
        for lanes in self.levels.values_mut() {
            lanes.iter_mut().for_each(|lane| lane.keys.retain(|(other, _)| *other != key));
            lanes.retain(|lane| !lane.keys.is_empty());
        }
        self.levels.retain(|_, lanes| !lanes.is_empty());
    }

    fn add_after(&mut self, key: u8, delay: u64, priority: Priority, appointment: bool) {
        if self.shut_down {
            return;
        }
        self.retries += 1;
        if delay == 0 {
            return self.add(key, priority);
        }
        self.arrivals += 1;
        let requested = Pending { at: self.now + delay, arrival: self.arrivals, appointment, priority };
        let merged = match self.delayed.get(&key) {
            None => requested,
            Some(old) => {
                let earlier = if old.at <= requested.at { *old } else { requested };
                let appointment = old.appointment || appointment;
                Pending { appointment, priority: old.priority.max(priority), ..earlier }
            }
        };
        self.delayed.insert(key, merged);
    }

    fn add_as(&mut self, key: u8, priority: Priority, requested: Asked) {
        match requested {
            Asked::Now => self.add(key, priority),
            Asked::After(delay) => self.add_after(key, delay, priority, true),
            Asked::RateLimited => {
                let attempts = self.attempts.entry(key).or_default();
                *attempts += 1;
                let delay = 3 * u64::from(*attempts);
                self.add_after(key, delay, priority, false);
            }
        }
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        let rests = self.resting.iter().map(|(key, rest)| (rest.until, false, rest.arrival, *key));
        let delays = self.delayed.iter().map(|(key, pending)| (pending.at, true, pending.arrival, *key));
        let mut due: Vec<_> = rests.chain(delays).filter(|(at, ..)| *at <= self.now).collect();
        due.sort_unstable();
        for (at, is_delay, _, key) in due {
            if !is_delay {
                self.end_rest(key, at);
            } else if let Some(pending) = self.delayed.remove(&key) {
                self.end_rest(key, at);
                self.enqueue(key, pending.priority, pending.at);
            }
        }
    }

    /// Mirrors `try_get`: the outer `None` means waiting, the inner `None` the end.
    fn get(&mut self) -> Option<Option<(u8, Priority)>> {
        let Some(top) = self.levels.keys().next().copied() else {
            return (self.shut_down && self.again.is_empty()).then_some(None);
        };
        let since = |lanes: &Vec<Lane>| lanes[0].keys[0].1;
        let below = self.levels.iter().skip(1).min_by_key(|(_, lanes)| since(lanes));
        let claim = below.filter(|(_, lanes)| ms(self.now - since(lanes)) >= AGED_AFTER);
        let served = match claim.map(|(level, _)| *level) {
            None => {
                self.skipped_claims = 0;
                top
            }
            Some(level) if self.skipped_claims + 1 >= AGED_SHARE => {
                self.skipped_claims = 0;
                level
            }
            Some(_) => {
                self.skipped_claims += 1;
                top
            }
        };
        let key = self.serve(served);
        self.held.insert(key);
        Some(Some((key, served.0)))
    }

    fn serve(&mut self, level: Reverse<Priority>) -> u8 {
        let lanes = self.levels.get_mut(&level).expect("the level has keys");
        let (key, _) = lanes[0].keys.remove(0);
        if lanes[0].keys.is_empty() {
            lanes.remove(0);
        } else {
            lanes.rotate_left(1);
        }
        self.levels.retain(|_, lanes| !lanes.is_empty());
        key
    }

    fn done(&mut self, key: u8) {
        self.held.remove(&key);
        let length = self.rests.remove(&key).filter(|length| *length > 0 && !self.shut_down);
        let added = self.again.remove(&key);
        let does_rest = !self.restless.remove(&key) && !self.parked.contains_key(&key);
        if let Some(length) = length.filter(|_| does_rest) {
            self.arrivals += 1;
            self.resting.insert(key, Rest { until: self.now + length, arrival: self.arrivals, added });
        } else if let Some((priority, added)) = added {
            self.push(key, priority, added);
        }
    }

    fn end_rest(&mut self, key: u8, at: u64) {
        if let Some((priority, _)) = self.resting.remove(&key).and_then(|rest| rest.added) {
            self.push(key, priority, at);
        }
    }

    /// Returns the resting keys that were added.
    fn dirty_rests(&self) -> impl Iterator<Item = (u8, Rest)> {
        self.resting.iter().filter(|(_, rest)| rest.added.is_some()).map(|(key, rest)| (*key, *rest))
    }

    fn park(&mut self, key: u8, parked: Parked) {
        if let Some((requested, _)) = self.again.get_mut(&key) {
            *requested = parked.priority.max(*requested);
        } else if !self.shut_down {
            self.parked.insert(key, parked);
        }
    }

    fn release(&mut self, key: u8, reason: ParkReason) {
        if let Some(parked) = self.parked.get(&key).filter(|parked| parked.reason == reason) {
            self.add(key, parked.priority);
        }
    }

    fn shut_down(&mut self) {
        self.shut_down = true;
        self.delayed.clear();
        self.parked.clear();
        let mut rested: Vec<(u8, Rest)> = std::mem::take(&mut self.resting).into_iter().collect();
        rested.sort_by_key(|(_, rest)| (rest.until, rest.arrival));
        for (key, rest) in rested {
            if let Some((priority, _)) = rest.added {
                self.push(key, priority, self.now);
            }
        }
    }

    fn withdraw(&mut self, from: u8) {
        for key in from..KEYS {
            self.take_out(key);
            self.again.remove(&key);
            self.resting.remove(&key);
            self.delayed.remove(&key);
            self.parked.remove(&key);
        }
    }

    fn key_status(&self, key: u8) -> KeyStatus {
        let rest = self.resting.get(&key).filter(|rest| rest.added.is_some());
        let resting = rest.and_then(|rest| rest.added);
        let waiting = self.waiting(key).or(self.again.get(&key).copied()).or(resting);
        let due = self.delayed.get(&key);
        KeyStatus {
            queued: waiting.map(|(priority, added)| crate::Queued { since: at(added), priority }),
            resting_until: rest.map(|rest| at(rest.until)),
            processing: None,
            delayed: due.map(|due| Delayed { at: at(due.at), is_retry: !due.appointment }),
            parked: self.parked.get(&key).copied(),
        }
    }

    fn ready(&self) -> usize {
        self.levels.values().flatten().map(|lane| lane.keys.len()).sum()
    }

    fn has_no_keys(&self) -> bool {
        let waits = !self.levels.is_empty() || self.dirty_rests().next().is_some();
        !waits && self.held.is_empty() && self.delayed.is_empty() && self.parked.is_empty()
    }

    fn drained(&self) -> bool {
        self.shut_down && self.levels.is_empty() && self.held.is_empty() && self.resting.is_empty()
    }
}

fn get(queue: &Queue<u8>, model: &mut Model) -> Option<Item<u8>> {
    check_dequeued(try_get(queue), model)
}

fn check_dequeued(got: Option<Option<Item<u8>>>, model: &mut Model) -> Option<Item<u8>> {
    let key = |item: &Item<u8>| (*item.key(), item.priority());
    assert_eq!(got.as_ref().map(|got| got.as_ref().map(key)), model.get());
    got.flatten()
}

async fn apply(env: &Env, queue: &Queue<u8>, model: &mut Model, held: &mut Vec<Item<u8>>, op: Op) {
    match op {
        Op::Add(key, priority, requested) => {
            queue.add_with(key, AddOptions { priority, when: requested.delay() });
            model.add_as(key, priority, requested);
        }
        Op::AddAll(keys, priority) => {
            keys.iter().for_each(|key| model.add(*key, priority));
            queue.add_all(keys, priority);
        }
        Op::CancelDelayed(key) => {
            assert_eq!(queue.cancel_delayed(&key), model.delayed.remove(&key).is_some());
        }
        Op::Withdraw(from) => {
            queue.remove_if(|key| *key >= from);
            model.withdraw(from);
        }
        Op::Forget(key) => {
            queue.forget(&key);
            model.attempts.remove(&key);
        }
        Op::Advance(by) => {
            env.sleep(ms(by)).await;
            model.advance(by);
        }
        Op::Get => held.extend(get(queue, model)),
        Op::Turn(key) => {
            queue.add_with(key, AddOptions::now().priority(Priority::HIGH));
            model.add(key, Priority::HIGH);
            if let Some(item) = get(queue, model) {
                model.done(*item.key());
            }
        }
        Op::Done(index) if !held.is_empty() => {
            let item = held.remove(index.index(held.len()));
            model.done(*item.key());
        }
        Op::Park(index, reason) if !held.is_empty() => {
            let item = &held[index.index(held.len())];
            item.park(reason);
            model.park(*item.key(), Parked { reason, priority: item.priority() });
        }
        Op::Rest(index, length) if !held.is_empty() => {
            let place = index.index(held.len());
            held[place].rest(ms(length));
            model.rests.insert(*held[place].key(), length);
        }
        Op::EndRest(key) => {
            queue.end_rest(&key);
            model.end_rest_of(key);
        }
        Op::Release(key, reason) => {
            queue.release(&key, reason);
            model.release(key, reason);
        }
        Op::GetNext(index) if !held.is_empty() => {
            let item = held.remove(index.index(held.len()));
            model.done(*item.key());
            let next = tokio::task::unconstrained(item.get_next()).now_or_never();
            held.extend(check_dequeued(next, model));
        }
        Op::Done(_) | Op::GetNext(_) | Op::Park(..) | Op::Rest(..) => {}
        Op::ShutDown => {
            queue.shut_down();
            model.shut_down();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    // parity: dirty-processing-sets, priority-queue-fuzz
    #[test]
    fn queue_matches_model(ops in prop::collection::vec(ops(), 1..100)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime with a paused clock").block_on(async {
            let (env, metrics) = (Env::virtual_time(1), Metrics::new().workqueue("q"));
            let queue = Queue::new(env.clone(), "q", metrics.clone());
            queue.replace_limiter(Box::<Stairs>::default());
            queue.fair_by(|key| tenant(*key));
            let (mut model, mut held) = (Model::default(), Vec::new());
            for op in ops.into_iter().flatten() {
                apply(&env, &queue, &mut model, &mut held, op).await;
                assert_eq!(queue.len(), model.ready());
                assert_eq!(queue.has_no_keys(), model.has_no_keys());
                assert_eq!(queue.wait_drained().now_or_never().is_some(), model.drained());
                queue.shared.update_metrics();
                assert_eq!(metrics.adds.get(), model.adds);
                assert_eq!(metrics.retries.get(), model.retries);
                let depth = i64::try_from(model.ready() + model.again.len() + model.dirty_rests().count()).unwrap();
                assert_eq!(metrics.depth.get(), depth);
                for key in 0..KEYS {
                    assert_eq!(queue.attempts(&key), model.attempts.get(&key).copied().unwrap_or(0));
                    let KeyStatus { processing, .. } = queue.key_status(&key);
                    assert_eq!(processing.is_some(), model.held.contains(&key));
                    assert_eq!(KeyStatus { processing: None, ..queue.key_status(&key) }, model.key_status(key));
                }
                for reason in REASONS {
                    let parked = model.parked.iter().filter(|(_, parked)| parked.reason == reason);
                    let parked: Vec<_> = parked.map(|(key, _)| *key).collect();
                    assert_eq!(queue.count_parked(reason), parked.len());
                    assert_eq!(queue.parked(reason), parked);
                }
            }
        });
    }
}
