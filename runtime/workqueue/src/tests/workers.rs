//! The queue with workers that wait, time out, restart and panic: no wakeup is lost, and no key has two workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use windlass_env::{Env, Instant, Rng};
use windlass_metrics::Metrics;

use super::ms;
use crate::Queue;

fn queue(env: &Env) -> Queue<u32> {
    Queue::new(env.clone(), "q", Metrics::new().workqueue("q"))
}

fn paused<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime with a paused clock").block_on(future)
}

type Handed = Arc<Mutex<BTreeMap<u32, Instant>>>;

/// Dequeues keys, and cancels each wait after a random time. Records the time of each key.
async fn fickle_worker(env: Env, queue: Queue<u32>, mut rng: Rng, handed: Handed) {
    loop {
        let timeout = rng.between(Duration::ZERO, ms(12));
        match env.timeout(timeout, queue.get()).await {
            Ok(Some(item)) => drop(handed.lock().unwrap().insert(*item.key(), env.now())),
            Ok(None) => return,
            Err(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn key_reaches_idle_worker_within_same_millisecond(
        seed: u64,
        workers in 1usize..5,
        plan in prop::collection::vec((0u64..10, 0u64..40), 1..60),
    ) {
        paused(async {
            let env = Env::virtual_time(seed);
            let (queue, handed) = (queue(&env), Handed::default());
            for n in 0..workers {
                let name = format!("worker {n}");
                let worker = fickle_worker(env.clone(), queue.clone(), env.rng(&name), Arc::clone(&handed));
                drop(env.spawn(name, worker));
            }
            let mut expected = BTreeMap::new();
            for (key, (gap, delay)) in (0..).zip(plan) {
                env.sleep(ms(gap)).await;
                queue.add_after(key, ms(delay));
                expected.insert(key, env.now() + ms(delay));
            }
            env.sleep(ms(60)).await;
            queue.shut_down();
            env.wait_for_tasks().await;
            assert_eq!(*handed.lock().unwrap(), expected);
        });
    }
}

/// Keys in progress, and the start of the latest run of each key.
#[derive(Default)]
struct Tracker {
    held: BTreeSet<u32>,
    began: BTreeMap<u32, Instant>,
}

/// Holds each key for a random time, and sometimes panics with it.
async fn busy_worker(env: Env, queue: Queue<u32>, mut rng: Rng, tracker: Arc<Mutex<Tracker>>) {
    let mut next = queue.get().await;
    while let Some(item) = next {
        let key = *item.key();
        {
            let mut tracker = tracker.lock().unwrap();
            assert!(tracker.held.insert(key), "{key} has two workers");
            tracker.began.insert(key, env.now());
        }
        let timeout = rng.between(Duration::ZERO, ms(9));
        let _ = env.timeout(timeout, env.sleep(ms(5))).await;
        tracker.lock().unwrap().held.remove(&key);
        next = item.get_next().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn each_add_is_followed_by_a_run_of_one_worker(
        seed: u64,
        workers in 1usize..5,
        plan in prop::collection::vec((0u64..4, 0u32..4, 0u64..10), 1..80),
    ) {
        paused(async {
            let env = Env::virtual_time(seed);
            let (queue, tracker) = (queue(&env), Arc::<Mutex<Tracker>>::default());
            let tasks: Vec<_> = (0..workers).map(|n| {
                let name = format!("worker {n}");
                let worker = busy_worker(env.clone(), queue.clone(), env.rng(&name), Arc::clone(&tracker));
                env.spawn(name, worker)
            }).collect();
            let mut wanted = BTreeMap::new();
            for (gap, key, delay) in plan {
                env.sleep(ms(gap)).await;
                queue.add_after(key, ms(delay));
                wanted.insert(key, env.now());
            }
            env.sleep(ms(1_000)).await;
            queue.shut_down();
            queue.wait_drained().await;
            for task in tasks {
                assert_eq!(task.await, Ok(()));
            }
            for (key, added) in wanted {
                assert!(tracker.lock().unwrap().began[&key] >= added, "{key} did not run after its last add");
            }
        });
    }
}

/// Uses real threads and the real clock. The result does not depend on speed: the limit only turns a hang into a
/// failure.
// parity: priority-queue-fuzz
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_key_runs_on_one_of_several_real_threads() {
    // Under Miri each add takes a thousand times as long.
    const KEYS: u32 = if cfg!(miri) { 2 } else { 50 };
    const ROUNDS: u32 = if cfg!(miri) { 3 } else { 200 };
    let env = Env::system("test");
    let queue = queue(&env);
    let tracker = Arc::<Mutex<(BTreeSet<u32>, u32)>>::default();
    for n in 0..6 {
        let (queue, tracker) = (queue.clone(), Arc::clone(&tracker));
        drop(env.spawn(format!("worker {n}"), async move {
            while let Some(item) = queue.get().await {
                assert!(tracker.lock().unwrap().0.insert(*item.key()), "two workers");
                tokio::task::yield_now().await;
                let mut tracker = tracker.lock().unwrap();
                tracker.0.remove(item.key());
                tracker.1 += 1;
            }
        }));
    }
    for round in 0..ROUNDS {
        (0..KEYS).for_each(|key| queue.add_after(key, Duration::from_micros(u64::from(round % 3) * 700)));
        tokio::task::yield_now().await;
    }
    env.sleep(ms(5)).await;
    queue.shut_down();
    let drained = env.timeout(Duration::from_secs(60), queue.wait_drained()).await;
    assert!(drained.is_ok(), "a wakeup was lost: {queue:?}");
    env.wait_for_tasks().await;
    let (held, runs) = &*tracker.lock().unwrap();
    assert!(held.is_empty());
    assert!((KEYS..=KEYS * ROUNDS).contains(runs), "{runs}");
}
