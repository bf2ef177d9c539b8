//! The queue against a model that is slow and plain, over random sequences of operations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::FutureExt;
use proptest::prelude::*;
use windlass_env::{Env, Instant};
use windlass_metrics::Metrics;

use super::{ms, try_get};
use crate::{Item, Queue, RateLimiter};

#[derive(Clone, Debug)]
enum Op {
    Add(u8),
    AddAfter(u8, u64),
    AddRateLimited(u8),
    CancelDelayed(u8),
    Forget(u8),
    Advance(u64),
    Get,
    /// Releases one of the items held.
    Done(prop::sample::Index),
    ShutDown,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0u8..4;
    prop_oneof![
        8 => key().prop_map(Op::Add),
        6 => (key(), 0u64..12).prop_map(|(key, delay)| Op::AddAfter(key, delay)),
        4 => key().prop_map(Op::AddRateLimited),
        2 => key().prop_map(Op::CancelDelayed),
        2 => key().prop_map(Op::Forget),
        8 => (1u64..8).prop_map(Op::Advance),
        10 => Just(Op::Get),
        8 => any::<prop::sample::Index>().prop_map(Op::Done),
        1 => Just(Op::ShutDown),
    ]
}

/// Three milliseconds more for each attempt.
#[derive(Default)]
struct Stairs(BTreeMap<u8, u32>);

impl RateLimiter<u8> for Stairs {
    fn when(&mut self, _now: Instant, key: &u8) -> Duration {
        let attempts = self.0.entry(*key).or_default();
        *attempts += 1;
        ms(3) * *attempts
    }

    fn forget(&mut self, key: &u8) {
        self.0.remove(key);
    }

    fn attempts(&self, key: &u8) -> u32 {
        self.0.get(key).copied().unwrap_or(0)
    }
}

/// What the queue should be, without a thought for speed.
#[derive(Default)]
struct Model {
    now: u64,
    arrivals: u64,
    ready: Vec<u8>,
    held: BTreeSet<u8>,
    again: BTreeSet<u8>,
    delayed: BTreeMap<u8, Pending>,
    attempts: BTreeMap<u8, u32>,
    shut_down: bool,
    adds: u64,
    retries: u64,
}

#[derive(Clone, Copy)]
struct Pending {
    at: u64,
    arrival: u64,
    appointment: bool,
}

impl Model {
    fn add(&mut self, key: u8) {
        if self.shut_down {
            return;
        }
        if self.delayed.get(&key).is_some_and(|pending| !pending.appointment) {
            self.delayed.remove(&key);
        }
        self.enqueue(key);
    }

    fn enqueue(&mut self, key: u8) {
        let fresh = if self.held.contains(&key) {
            self.again.insert(key)
        } else if self.ready.contains(&key) {
            false
        } else {
            self.ready.push(key);
            true
        };
        self.adds += u64::from(fresh);
    }

    fn add_after(&mut self, key: u8, delay: u64, appointment: bool) {
        if self.shut_down {
            return;
        }
        self.retries += 1;
        if delay == 0 {
            return self.add(key);
        }
        self.arrivals += 1;
        let asked = Pending { at: self.now + delay, arrival: self.arrivals, appointment };
        let merged = match self.delayed.get(&key) {
            None => asked,
            Some(old) => {
                let earlier = if old.at <= asked.at { *old } else { asked };
                Pending { appointment: old.appointment || appointment, ..earlier }
            }
        };
        self.delayed.insert(key, merged);
    }

    fn add_rate_limited(&mut self, key: u8) {
        let attempts = self.attempts.entry(key).or_default();
        *attempts += 1;
        let delay = 3 * u64::from(*attempts);
        self.add_after(key, delay, false);
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        let mut due: Vec<(u8, Pending)> =
            self.delayed.iter().map(|(key, pending)| (*key, *pending)).collect();
        due.retain(|(_, pending)| pending.at <= self.now);
        due.sort_by_key(|(_, pending)| (pending.at, pending.arrival));
        for (key, _) in due {
            self.delayed.remove(&key);
            self.enqueue(key);
        }
    }

    /// As `try_get`: outer `None` is to wait, inner `None` is the end.
    fn get(&mut self) -> Option<Option<u8>> {
        if self.ready.is_empty() {
            return (self.shut_down && self.again.is_empty()).then_some(None);
        }
        let key = self.ready.remove(0);
        self.held.insert(key);
        Some(Some(key))
    }

    fn done(&mut self, key: u8) {
        self.held.remove(&key);
        if self.again.remove(&key) {
            self.ready.push(key);
        }
    }

    fn shut_down(&mut self) {
        self.shut_down = true;
        self.delayed.clear();
    }

    fn drained(&self) -> bool {
        self.shut_down && self.ready.is_empty() && self.held.is_empty()
    }
}

async fn apply(env: &Env, queue: &Queue<u8>, model: &mut Model, held: &mut Vec<Item<u8>>, op: Op) {
    match op {
        Op::Add(key) => {
            queue.add(key);
            model.add(key);
        }
        Op::AddAfter(key, delay) => {
            queue.add_after(key, ms(delay));
            model.add_after(key, delay, true);
        }
        Op::AddRateLimited(key) => {
            queue.add_rate_limited(key);
            model.add_rate_limited(key);
        }
        Op::CancelDelayed(key) => {
            assert_eq!(queue.cancel_delayed(&key), model.delayed.remove(&key).is_some());
        }
        Op::Forget(key) => {
            queue.forget(&key);
            model.attempts.remove(&key);
        }
        Op::Advance(by) => {
            env.sleep(ms(by)).await;
            model.advance(by);
        }
        Op::Get => {
            let got = try_get(queue);
            assert_eq!(got.as_ref().map(|got| got.as_ref().map(|item| *item.key())), model.get());
            held.extend(got.flatten());
        }
        Op::Done(index) if !held.is_empty() => {
            let item = held.remove(index.index(held.len()));
            model.done(*item.key());
        }
        Op::Done(_) => {}
        Op::ShutDown => {
            queue.shut_down();
            model.shut_down();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_does_what_the_model_does(ops in prop::collection::vec(op(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime with a paused clock").block_on(async {
            let (env, metrics) = (Env::virtual_time(1), Metrics::new().workqueue("q"));
            let queue = Queue::new(env.clone(), "q", Box::<Stairs>::default(), metrics.clone());
            let (mut model, mut held) = (Model::default(), Vec::new());
            for op in ops {
                apply(&env, &queue, &mut model, &mut held, op).await;
                assert_eq!(queue.len(), model.ready.len());
                assert_eq!(queue.drained().now_or_never().is_some(), model.drained());
                assert_eq!(metrics.adds.get(), model.adds);
                assert_eq!(metrics.retries.get(), model.retries);
                let depth = i64::try_from(model.ready.len() + model.again.len()).unwrap();
                assert_eq!(metrics.depth.get(), depth);
                for key in 0..4 {
                    assert_eq!(queue.attempts(&key), model.attempts.get(&key).copied().unwrap_or(0));
                }
            }
        });
    }
}
