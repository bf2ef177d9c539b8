//! State shared by workers and senders on several threads: the slots of a class, and a trigger. The tests need no API
//! server, so `cargo xtask miri` can interpret them. Miri detects data races, uses of freed memory, and deadlocks after
//! a lost wakeup.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use windlass_workqueue::Queue;

use super::*;
use crate::TriggerError;
use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::history::History;
use crate::enqueue::limits::{CLASS_FULL, ConcurrencyLimit};
use crate::enqueue::quarantine::Quarantine;
use crate::host::Triggers;

/// The number of keys. Miri is about a thousand times slower, so it runs fewer keys in more interleavings.
const KEYS: usize = if cfg!(miri) { 4 } else { 2_000 };

/// The timeout that turns a hang into a failure. Under Miri, time advances with every interpreted step.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 100_000 } else { 60 });

/// Blocks this thread until the future completes.
fn wait<F: Future>(env: &Env, future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(env.timeout(LIMIT, future)).expect("a wakeup was lost")
}

fn key(number: usize) -> ObjectKey {
    ObjectKey::namespaced("shop", &number.to_string())
}

fn queue(env: &Env) -> Queue<ObjectKey> {
    Queue::new(env.clone(), "threads", None)
}

#[test]
fn keys_of_a_class_never_exceed_its_limit_and_parked_ones_come_back() {
    const AT_MOST: usize = 2;
    let env = Env::virtual_time(1);
    let (queue, inside) = (queue(&env), AtomicUsize::new(0));
    let limits = [ConcurrencyLimit::new(AT_MOST, |_| Some("only".to_owned()))];
    let (ran, runs) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (env, queue, inside, limits, ran) = (&env, &queue, &inside, &limits, ran.clone());
            scope.spawn(move || {
                wait(env, async {
                    while let Some(item) = queue.get().await {
                        let places =
                            ConcurrencyLimit::acquire_all(limits, queue, item.key(), item.priority());
                        if places.is_none() {
                            item.park(CLASS_FULL);
                            continue;
                        }
                        assert!(inside.fetch_add(1, Ordering::Relaxed) < AT_MOST, "too many");
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::Relaxed);
                        ran.send(item.key().clone()).expect("the receiver is open");
                    }
                });
            });
        }
        (0..KEYS).for_each(|number| queue.add(key(number)));
        let mut missing: BTreeSet<ObjectKey> = (0..KEYS).map(key).collect();
        while !missing.is_empty() {
            missing.remove(&runs.recv_timeout(LIMIT).expect("a parked key was lost"));
        }
        queue.shut_down();
    });
    assert!(limits[0].waiting_class(&key(0)).is_none());
}

#[test]
fn concurrently_sent_keys_are_taken_once_and_no_sender_hangs() {
    let env = Env::virtual_time(1);
    let (queue, trigger, taken) =
        (queue(&env), Triggers::default().get("threads", "feed"), AtomicUsize::new(0));
    trigger.declare(2);
    std::thread::scope(|scope| {
        for sender in 0..2 {
            let (env, trigger) = (&env, &trigger);
            scope.spawn(move || {
                wait(env, async {
                    for number in 0..KEYS / 2 {
                        trigger.send(key(2 * number + sender)).await.expect("it has not stopped");
                    }
                });
            });
        }
        scope.spawn(|| {
            wait(&env, async {
                while let Some(item) = queue.get().await {
                    trigger.on_dequeued(item.key());
                    if taken.fetch_add(1, Ordering::Relaxed) + 1 == KEYS {
                        queue.shut_down();
                    }
                }
            });
        });
        let history = History::new(env.clone(), "threads");
        let enqueuer = Enqueuer::new(queue.clone(), Quarantine::new(None), history, Arc::new(OwnsAllKeys));
        trigger.open("threads", enqueuer);
    });
    assert_eq!(taken.into_inner(), KEYS);
    (0..2).for_each(|number| trigger.try_send(key(number)).expect("there is room"));
    std::thread::scope(|scope| {
        let late = scope.spawn(|| wait(&env, trigger.send(key(2))));
        trigger.close();
        assert_eq!(late.join().expect("no panic"), Err(TriggerError::Stopped { controller: "threads" }));
    });
}
