//! State that threads share between a watch and a handler: the queue, and the queue of one handler. The store has its
//! tests in `shared_informer/tests/storing.rs`. `cargo xtask miri` runs these tests; it reports data races, use after
//! free, and lost wakeups, which make every thread wait.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, LazyLock, mpsc};
use std::time::Duration;

use windlass_env::Env;
use windlass_metrics::Metrics;
use windlass_object::{ObjectHeader, ObjectKey};

use crate::delta_fifo::{Batch, Body, Delta, DeltaFifo, Item, KnownObjects, ResyncTarget};
use crate::gauge_share::GaugeShare;
use crate::handler::{Cause, Delivery, Event};
use crate::partition::Partition;
use crate::processor::{HandlerControl as _, HandlerState, Listener};
use crate::testing::{at, key};

/// The number of changes. Miri is a thousand times slower, so it gets few changes and explores many interleavings.
const ROUNDS: u32 = if cfg!(miri) { 6 } else { 5_000 };

/// Turns a hang into a failure. No test depends on speed; miri's clock advances with every step.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 100_000 } else { 60 });

/// Runs a future on this thread.
fn wait<F: Future>(env: &Env, future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(env.timeout(LIMIT, future)).expect("a wakeup was lost")
}

fn item(n: u32) -> Item<u32> {
    let head = ObjectHeader { key: key("a"), uid: None, version: Some(at(n.into())) };
    Item { head, body: Body::Decoded(n), bytes: 1 }
}

struct Nothing;

impl KnownObjects for Nothing {
    fn missing_from(&self, _: &Partition, _: &std::collections::BTreeSet<&ObjectKey>) -> Vec<ObjectKey> {
        Vec::new()
    }
}

fn numbers(batch: Batch<u32>) -> Vec<u32> {
    let items: Vec<Item<u32>> = match batch {
        Batch::Changes(deltas) => deltas
            .into_iter()
            .map(|delta| match delta {
                Delta::Updated(item) => item,
                other => panic!("{other:?} was not queued"),
            })
            .collect(),
        Batch::Replacement { items, .. } => items,
        _ => Vec::new(),
    };
    let number = |item: Item<u32>| match item.body {
        Body::Decoded(n) => n,
        Body::Undecodable { error, .. } => panic!("{error}"),
    };
    items.into_iter().map(number).collect()
}

#[test]
fn fifo_keeps_order_across_threads_and_wakes_waiting_producer() {
    const CAPACITY: usize = 2;
    let env = Env::virtual_time(1);
    let (fifo, throttled) = (DeltaFifo::with_capacity(CAPACITY), AtomicBool::new(false));
    let popped = std::thread::scope(|scope| {
        scope.spawn(|| {
            fifo.replace(&Partition::Whole, vec![item(0)], at(1), true);
            wait(&env, async {
                for n in 1..=ROUNDS {
                    let mut space = Box::pin(fifo.space());
                    poll_fn(|cx| {
                        let polled = space.as_mut().poll(cx);
                        throttled.fetch_or(polled.is_pending(), Ordering::Relaxed);
                        polled
                    })
                    .await;
                    fifo.update(item(n));
                    // A resync of the other thread might be queued as well; at most one is pending.
                    assert!(fifo.len() <= CAPACITY + 1, "the burst was not throttled");
                }
            });
            fifo.close();
        });
        scope.spawn(|| (0..ROUNDS / 2).for_each(|_| fifo.resync(ResyncTarget::All)));
        // Nothing is popped before the producer waits, so that it has to be woken.
        while !throttled.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        wait(&env, async {
            let mut popped = Vec::new();
            while let Ok(batch) = fifo.pop(&Nothing, |batch| batch).await {
                popped.extend(numbers(batch));
            }
            popped
        })
    });
    assert_eq!(popped, (0..=ROUNDS).collect::<Vec<_>>());
}

/// Shared by all tests, because creating it takes most of the time under miri.
static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

fn listener() -> Arc<Listener<u32>> {
    let metrics = METRICS.informer("", "v1", "listeners");
    Arc::new(Listener::new("test", 1, Delivery::Coalesced, metrics))
}

fn enqueue(listener: &Listener<u32>, n: u32) {
    let event = Event::Updated { old: n, new: n + 1, cause: Cause::Watch };
    listener.enqueue(&key("a"), Some(&"u".into()), event);
}

#[test]
fn handler_on_separate_thread_receives_every_state_in_order() {
    let (env, listener, (sender, receiver)) = (Env::virtual_time(1), listener(), mpsc::channel());
    std::thread::scope(|scope| {
        let (env, listener) = (&env, &listener);
        scope.spawn(move || {
            let handler = move |event: &Event<u32>| sender.send(event.clone()).expect("the test receives");
            wait(env, Arc::clone(listener).run(Box::new(handler)));
        });
        scope.spawn(move || {
            listener.replay(Box::new([0].into_iter()));
            listener.initial_list_ended();
            (0..ROUNDS).for_each(|n| enqueue(listener, n));
        });
        let mut state = None;
        while state != Some(ROUNDS) {
            match receiver.recv_timeout(LIMIT).expect("a change was lost") {
                Event::Added { object, .. } => assert_eq!(state.replace(object), None),
                Event::Updated { old, new, .. } => assert_eq!(state.replace(new), Some(old)),
                Event::Deleted { .. } => panic!("nothing was deleted"),
            }
        }
        let synced = wait(env, listener.state().wait_for(|state| *state == HandlerState::Synced));
        assert_eq!(synced, Ok(HandlerState::Synced));
        listener.detach();
    });
    assert_eq!(listener.state().get(), HandlerState::Stopped);
}

/// The state of a handler, with a slow drop.
struct Captured(Arc<AtomicU32>);

impl Drop for Captured {
    fn drop(&mut self) {
        (0..20).for_each(|_| std::thread::yield_now());
    }
}

#[test]
fn removed_handler_was_dropped_and_no_thread_calls_it() {
    for _ in 0..ROUNDS.div_ceil(4) {
        let (env, listener) = (Env::virtual_time(1), listener());
        let (mut captured, begin) = (Arc::new(AtomicU32::new(0)), Barrier::new(3));
        std::thread::scope(|scope| {
            let (calls, running) = (Captured(Arc::clone(&captured)), Arc::clone(&listener));
            let (env, begin) = (&env, &begin);
            scope.spawn(move || {
                // Relaxed: the test has to show that no call happens after the handler is gone.
                let handler = move |_: &Event<u32>| {
                    let Captured(calls) = &calls;
                    calls.fetch_add(1, Ordering::Relaxed);
                };
                let task = running.run(Box::new(handler));
                wait(env, async {
                    begin.wait();
                    task.await;
                });
            });
            let listener = &listener;
            scope.spawn(move || {
                begin.wait();
                (0..3).for_each(|n| enqueue(listener, n));
            });
            begin.wait();
            listener.detach();
            // Busy waiting, to detect the first moment in which the handler is gone.
            while listener.state().get() != HandlerState::Stopped {
                std::thread::yield_now();
            }
            let calls = Arc::get_mut(&mut captured).expect("the handler was dropped");
            assert!(*calls.get_mut() <= 3);
        });
    }
}

#[test]
fn gauge_shares_of_concurrent_threads_add_up() {
    let gauge = METRICS.informer("", "v1", "gauges").objects;
    let (one, other) = (GaugeShare::of(&gauge), GaugeShare::of(&gauge));
    std::thread::scope(|scope| {
        for part in [2, 3] {
            let (one, other) = (&one, &other);
            scope.spawn(move || {
                for n in 0..ROUNDS {
                    one.set(u64::from(n) % part);
                    other.set(u64::from(n) * part);
                }
            });
        }
    });
    one.set(5);
    other.set(7);
    assert_eq!(gauge.get(), 12);
    drop((one, other));
    assert_eq!(gauge.get(), 0);
}
