//! The queue in all orders in which a few threads can take its lock: no wakeup is lost, and no call hangs.
//!
//! This crate compiles the modules of the queue again with loom's lock instead of the standard library's, so it tests
//! the production code. `cargo test -p windlass-workqueue --test models` runs the models, as does `cargo test`. Each
//! model limits how often a thread can be preempted.
//!
//! The models do not cover the clock and timers of `env`. The tests next to the code cover delays and ages.

// The models use only a part of the modules.
#![allow(dead_code, unreachable_pub, unused_imports)]

#[path = "../../src/add.rs"]
mod add;
#[path = "../../src/delays.rs"]
mod delays;
#[path = "../../src/drain_future.rs"]
mod drain_future;
#[path = "../../src/drain_waiters.rs"]
mod drain_waiters;
#[path = "../../src/getter.rs"]
mod getter;
#[path = "../../src/key.rs"]
mod key;
#[path = "../../src/key_status.rs"]
mod key_status;
#[path = "../../src/limiter.rs"]
mod limiter;
#[path = "../../src/meter.rs"]
mod meter;
#[path = "../../src/park.rs"]
mod park;
#[path = "../../src/queue.rs"]
mod queue;
#[path = "../../src/schedule.rs"]
mod schedule;
#[path = "../../src/shared.rs"]
mod shared;
#[path = "../../src/slots.rs"]
mod slots;
#[path = "../../src/state.rs"]
mod state;
#[path = "../../src/tenants.rs"]
mod tenants;
#[path = "../../src/waiters.rs"]
mod waiters;

/// Lock of loom, which schedules the threads.
mod sync {
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use windlass_env::Env;

pub use crate::add::{AddDelay, AddOptions, Priority};
pub use crate::key::Key;
pub use crate::key_status::{Delayed, KeyStatus, Queued};
pub use crate::limiter::RateLimiter;
pub use crate::park::{ParkReason, Parked};
pub use crate::queue::{Item, Queue};

/// Runs `scenario` in all orders in which no thread is preempted more than `interruptions` times.
fn in_every_order(interruptions: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(scenario);
}

fn queue() -> Queue<u8> {
    Queue::new(Env::virtual_time(1), "model", None)
}

/// Polls once, with a waker that does nothing.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn each_add_is_followed_by_a_run() {
    in_every_order(3, || {
        let queue = queue();
        let news = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let worker = thread::spawn({
            let (queue, news) = (queue.clone(), Arc::clone(&news));
            move || {
                let mut seen = [false, false];
                let mut next = block_on(queue.get());
                while let Some(item) = next {
                    for (seen, news) in seen.iter_mut().zip(news.iter()) {
                        *seen |= news.load(Ordering::SeqCst);
                    }
                    next = block_on(item.get_next());
                }
                seen
            }
        });
        let other = thread::spawn({
            let (queue, news) = (queue.clone(), Arc::clone(&news));
            move || {
                news[0].store(true, Ordering::SeqCst);
                queue.add(1);
            }
        });
        news[1].store(true, Ordering::SeqCst);
        queue.add(1);
        other.join().unwrap();
        queue.shut_down();
        assert_eq!(worker.join().unwrap(), [true, true], "an add was lost");
    });
}

#[test]
fn each_key_reaches_exactly_one_worker() {
    in_every_order(2, || {
        let queue = queue();
        let held = Arc::new(AtomicBool::new(false));
        let runs = Arc::new(AtomicUsize::new(0));
        let work = |queue: Queue<u8>, held: Arc<AtomicBool>, runs: Arc<AtomicUsize>| {
            while let Some(item) = block_on(queue.get()) {
                assert!(!held.swap(true, Ordering::SeqCst), "the key has two workers");
                runs.fetch_add(1, Ordering::SeqCst);
                held.store(false, Ordering::SeqCst);
                drop(item);
            }
        };
        let other = thread::spawn({
            let (queue, held, runs) = (queue.clone(), Arc::clone(&held), Arc::clone(&runs));
            move || work(queue, held, runs)
        });
        let adder = thread::spawn({
            let queue = queue.clone();
            move || {
                queue.add(1);
                queue.add(1);
                queue.shut_down();
            }
        });
        work(queue, held, Arc::clone(&runs));
        adder.join().unwrap();
        other.join().unwrap();
        assert!((1..=2).contains(&runs.load(Ordering::SeqCst)));
    });
}

#[test]
fn key_readded_before_get_next_reaches_exactly_one_worker() {
    in_every_order(3, || {
        let queue = queue();
        queue.add(1);
        let Poll::Ready(Some(item)) = poll_once(queue.get()) else { panic!("a key is ready") };
        let held = Arc::new(AtomicBool::new(true));
        let work = |mut next: Option<Item<u8>>, held: &AtomicBool| {
            let mut runs = 0;
            while let Some(item) = next {
                held.store(false, Ordering::SeqCst);
                next = block_on(item.get_next());
                if next.is_some() {
                    assert!(!held.swap(true, Ordering::SeqCst), "the key has two workers");
                    runs += 1;
                }
            }
            runs
        };
        let other = thread::spawn({
            let (queue, held) = (queue.clone(), Arc::clone(&held));
            move || {
                let next = block_on(queue.get());
                let first = usize::from(next.is_some());
                assert!(next.is_none() || !held.swap(true, Ordering::SeqCst), "the key has two workers");
                first + work(next, &held)
            }
        });
        let adder = thread::spawn({
            let queue = queue.clone();
            move || {
                queue.add(1);
                queue.shut_down();
            }
        });
        let runs = work(Some(item), &held);
        adder.join().unwrap();
        assert_eq!(runs + other.join().unwrap(), 1);
    });
}

#[test]
fn cancelled_get_leaves_key_to_waiting_call() {
    in_every_order(3, || {
        let queue = queue();
        let fickle = thread::spawn({
            let queue = queue.clone();
            move || {
                // The call can be notified and leave, or receive the key and release it.
                if let Poll::Ready(Some(item)) = poll_once(queue.get()) {
                    queue.add(*item.key());
                }
            }
        });
        let adder = thread::spawn({
            let queue = queue.clone();
            move || queue.add(1)
        });
        let item = block_on(queue.get()).expect("the queue is open");
        assert_eq!(*item.key(), 1);
        fickle.join().unwrap();
        adder.join().unwrap();
    });
}

#[test]
fn adds_wake_one_waiting_call_each() {
    in_every_order(2, || {
        let queue = queue();
        let waiting = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || block_on(queue.get()).map(|item| *item.key()))
        });
        queue.add(1);
        queue.add(2);
        let mut got = waiting.map(|waiting| waiting.join().unwrap());
        got.sort_unstable();
        assert!(got == [Some(1), Some(2)], "{got:?}");
    });
}

// parity: not-deadlock-shutdown-while
#[test]
fn shut_down_completes_all_waiting_calls() {
    in_every_order(3, || {
        let queue = queue();
        let waiting = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || assert!(block_on(queue.get()).is_none()))
        });
        queue.shut_down();
        for waiting in waiting {
            waiting.join().unwrap();
        }
    });
}

// parity: not-deadlock-shutdown-while
#[test]
fn add_concurrent_with_shut_down_is_processed_or_ignored() {
    in_every_order(3, || {
        let queue = queue();
        let adder = thread::spawn({
            let queue = queue.clone();
            move || queue.add(1)
        });
        let worker = thread::spawn({
            let queue = queue.clone();
            move || while block_on(queue.get()).is_some() {}
        });
        queue.shut_down();
        block_on(queue.wait_drained());
        assert_eq!(queue.len(), 0);
        adder.join().unwrap();
        worker.join().unwrap();
    });
}

#[test]
fn drain_waits_for_second_run_of_readded_key() {
    in_every_order(3, || {
        let queue = queue();
        queue.add(1);
        let Poll::Ready(Some(held)) = poll_once(queue.get()) else { panic!("a key is ready") };
        queue.add(1);
        let runs = Arc::new(AtomicUsize::new(0));
        let worker = thread::spawn({
            let (queue, runs) = (queue.clone(), Arc::clone(&runs));
            move || {
                while let Some(_item) = block_on(queue.get()) {
                    runs.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let holder = thread::spawn(move || drop(held));
        queue.shut_down();
        block_on(queue.wait_drained());
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        holder.join().unwrap();
        worker.join().unwrap();
    });
}

#[test]
fn key_parked_while_its_reason_ends_is_dequeued_again() {
    const CLOSED: ParkReason = ParkReason("the door is closed");
    in_every_order(3, || {
        let queue = queue();
        let is_open = Arc::new(AtomicBool::new(false));
        queue.add(1);
        let opener = thread::spawn({
            let (queue, is_open) = (queue.clone(), Arc::clone(&is_open));
            move || {
                is_open.store(true, Ordering::SeqCst);
                queue.parked(CLOSED).iter().for_each(|key| queue.release(key, CLOSED));
            }
        });
        // Waits forever if the release does not find the key.
        while let Some(item) = block_on(queue.get()) {
            if is_open.load(Ordering::SeqCst) {
                break;
            }
            item.park(CLOSED);
            if is_open.load(Ordering::SeqCst) {
                queue.release(item.key(), CLOSED);
            }
        }
        opener.join().unwrap();
    });
}
