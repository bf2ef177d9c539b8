//! Compares the work queue with client-go's and controller-runtime's: nanoseconds and allocations per key that is
//! added, dequeued and marked as done.
//!
//! Workloads have the names of the peers' benchmarks: a thousand keys added, then dequeued and marked as done (`Ints`,
//! `Strings`; `…Measured` with metrics); one key at a time (`OneByOne`); two tasks that add separate batches of a
//! thousand keys and continue when a batch is done, while two tasks dequeue (`Contended`); two threads that add the
//! same keys without waiting while two tasks dequeue (`Flooded`); and delays (`Delayed`). On this side `Strings` are
//! object keys, because controllers queue these. A task of this side marks a key as done when it dequeues the next one,
//! as workers of controllers do; `separate calls` are a drop and a get, as in the peers.
//!
//! `Flooded` counts added keys, and nearly all of them are already queued: the adding threads keep the dequeuing tasks
//! from the lock. It measures an add without effect and shows little about dequeuing; `Contended` does that.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use windlass_env::Env;
use windlass_metrics::{Metrics, WorkqueueMetrics};
use windlass_object::ObjectKey;
use windlass_workqueue::{Item, Key, Priority, Queue};

use crate::figures::{Cost, measure};
use crate::peer::Peer;
use crate::results::{Contender, Goal, Metric, Sample, Unit};
use crate::scenarios::{Context, Record};

/// Number of keys that the peers' benchmarks add before the first get.
const KEYS: u32 = 1000;

/// Duration of each measurement in each round.
const MILLISECONDS: u32 = 300;

const TIME: Metric = Metric::with_goal("time per key", Unit::Nanoseconds, Goal::TimesBetter(8.0));
/// A runtime and growing tables allocate a few times in a measurement, so the goal is not zero.
const ALLOCATIONS: Metric = Metric::with_goal("allocations per key", Unit::Number, Goal::AtMost(0.01));

/// Measures all workloads.
///
/// # Errors
/// If a peer cannot be built or measured.
pub(super) fn run(context: &Context, record: Record<'_>) -> Result<()> {
    let peers = [Peer::build("client-go")?, Peer::build("controller-runtime")?];
    for _ in 0..context.rounds {
        for (workload, variant, ours) in OURS {
            add(record, workload, &Contender::windlass(variant), ours()?)?;
            if *variant == "windlass" {
                for peer in &peers {
                    let cost = peer.measure(workload, MILLISECONDS)?;
                    add(record, workload, &Contender::peer(peer.name()), cost)?;
                }
            }
        }
    }
    Ok(())
}

fn add(record: Record<'_>, workload: &str, contender: &Contender, cost: Cost) -> Result<()> {
    for (metric, value) in [(TIME, cost.nanoseconds), (ALLOCATIONS, cost.allocations)] {
        let (workload, contender) = (format!("queue: {workload}"), contender.clone());
        record(Sample { workload, size: None, metric, contender, value })?;
    }
    Ok(())
}

type Measurement = fn() -> Result<Cost>;

/// This side of each workload. `all features`: metrics and ten tenants; `at once`: added by one call.
const OURS: &[(&str, &str, Measurement)] = &[
    ("Ints", "windlass", || add_get_done(&bare(), ints())),
    ("Ints", "windlass at once", || add_all_get_done(&bare(), ints())),
    ("Strings", "windlass", || add_get_done(&bare(), object_keys())),
    ("IntsMeasured", "windlass", || add_get_done(&measured(), ints())),
    ("IntsMeasured", "windlass at once", || add_all_get_done(&measured(), ints())),
    ("StringsMeasured", "windlass", || add_get_done(&measured(), object_keys())),
    ("StringsMeasured", "windlass all features", || add_get_done(&everything(), object_keys())),
    ("OneByOne", "windlass", || one_by_one(&bare(), get_next)),
    ("OneByOne", "windlass separate calls", || one_by_one(&bare(), done_then_get)),
    ("OneByOne", "windlass all features", || one_by_one(&everything(), get_next)),
    ("Contended", "windlass", || contended(&bare(), |queue, batches| Box::pin(finish_keys(queue, batches)))),
    ("Contended", "windlass separate calls", || {
        contended(&bare(), |queue, batches| Box::pin(finish_keys_separately(queue, batches)))
    }),
    ("Contended", "windlass measured", || {
        contended(&measured(), |queue, batches| Box::pin(finish_keys(queue, batches)))
    }),
    ("Flooded", "windlass", || flooded(&bare())),
    ("Delayed", "windlass", || delayed(&bare())),
];

fn ints() -> Vec<u64> {
    (0..u64::from(KEYS)).collect()
}

fn object_keys() -> Vec<ObjectKey> {
    (0..KEYS).map(|n| ObjectKey::namespaced(&format!("namespace-{}", n % 10), &format!("name-{n}"))).collect()
}

/// Returns a queue without metrics, like client-go's queue without a name.
fn bare<K: Key>() -> Queue<K> {
    Queue::new(Env::system("benchmark"), "q", None)
}

/// Returns a queue as controllers use it.
fn measured<K: Key>() -> Queue<K> {
    Queue::new(Env::system("benchmark"), "q", queue_metrics())
}

fn everything() -> Queue<ObjectKey> {
    let queue = measured();
    queue.fair_by(|key: &ObjectKey| key.namespace().unwrap_or_default());
    queue
}

fn queue_metrics() -> WorkqueueMetrics {
    Metrics::new().workqueue("q")
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().build().context("cannot make a runtime")
}

/// Dequeues the next key, and marks the previous key of this task as done. Workers of controllers do the same.
async fn get_next<K: Key>(queue: &Queue<K>, previous: Option<Item<K>>) -> Option<Item<K>> {
    match previous {
        Some(item) => item.get_next().await,
        None => queue.get().await,
    }
}

/// Does the same with separate calls.
async fn done_then_get<K: Key>(queue: &Queue<K>, previous: Option<Item<K>>) -> Option<Item<K>> {
    drop(previous);
    queue.get().await
}

/// Dequeues all keys of a round and marks them as done.
async fn get_and_done<K: Key>(queue: &Queue<K>) {
    let mut item = None;
    for _ in 0..KEYS {
        item = black_box(get_next(queue, item).await);
    }
}

fn add_get_done<K: Key>(queue: &Queue<K>, keys: Vec<K>) -> Result<Cost> {
    let runtime = runtime()?;
    Ok(measure(MILLISECONDS, KEYS, || {
        keys.iter().for_each(|key| queue.add(key.clone()));
        runtime.block_on(get_and_done(queue));
    }))
}

fn add_all_get_done<K: Key>(queue: &Queue<K>, keys: Vec<K>) -> Result<Cost> {
    let runtime = runtime()?;
    Ok(measure(MILLISECONDS, KEYS, || {
        queue.add_all(keys.iter().cloned(), Priority::NORMAL);
        runtime.block_on(get_and_done(queue));
    }))
}

/// `next` dequeues a key and marks the previous one as done.
fn one_by_one(
    queue: &Queue<ObjectKey>,
    next: impl AsyncFn(&Queue<ObjectKey>, Option<Item<ObjectKey>>) -> Option<Item<ObjectKey>>,
) -> Result<Cost> {
    let (runtime, keys) = (runtime()?, object_keys());
    Ok(measure(MILLISECONDS, KEYS, || {
        runtime.block_on(async {
            let mut item = None;
            for key in &keys {
                queue.add(key.clone());
                item = black_box(next(queue, item).await);
            }
        });
    }))
}

/// Unfinished keys of one adder, and a signal when none is left.
#[derive(Default)]
struct Batch {
    left: AtomicU32,
    done: Notify,
}

type Batches = Arc<[Batch; 2]>;

/// Task that dequeues keys until the queue is shut down.
type FinishKeys = fn(Queue<u64>, Batches) -> BoxFuture<'static, ()>;

impl Batch {
    fn count_finished(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }
}

/// Two tasks add and two dequeue, on two threads: figures per dequeued key. Allocations are those of the adds.
fn contended(queue: &Queue<u64>, finish_keys: FinishKeys) -> Result<Cost> {
    let (runtime, batches) = (two_threads()?, Batches::default());
    for _ in 0..2 {
        drop(runtime.spawn(finish_keys(queue.clone(), Arc::clone(&batches))));
    }
    let start = Instant::now();
    let adders = [0, 1].map(|adder| runtime.spawn(add_batches(queue.clone(), Arc::clone(&batches), adder)));
    let (mut added, mut allocations) = (0, 0);
    for adder in adders {
        let (keys, allocated) = runtime.block_on(adder).context("an adder panicked")?;
        (added, allocations) = (added + keys, allocations + allocated);
    }
    let elapsed = start.elapsed();
    queue.shut_down();
    Ok(Cost {
        nanoseconds: elapsed.as_secs_f64() * 1e9 / added as f64,
        allocations: allocations as f64 / added as f64,
    })
}

/// Marks each key as done when it dequeues the next one, so an adder can add a key that is in progress.
async fn finish_keys(queue: Queue<u64>, batches: Batches) {
    let mut next = queue.get().await;
    while let Some(item) = next {
        batches[usize::from(*item.key() >= u64::from(KEYS))].count_finished();
        next = item.get_next().await;
    }
}

async fn finish_keys_separately(queue: Queue<u64>, batches: Batches) {
    while let Some(item) = queue.get().await {
        let batch = &batches[usize::from(*item.key() >= u64::from(KEYS))];
        drop(item);
        batch.count_finished();
    }
}

/// Returns the number of added keys, and the number of allocations for them.
async fn add_batches(queue: Queue<u64>, batches: Batches, adder: u8) -> (u64, u64) {
    let (batch, first) = (&batches[usize::from(adder)], u64::from(adder) * u64::from(KEYS));
    let (start, mut added, mut allocations) = (Instant::now(), 0, 0);
    while start.elapsed().as_millis() < u128::from(MILLISECONDS) {
        batch.left.store(KEYS, Ordering::Release);
        let counted = allocation_counter::measure(|| {
            (first..first + u64::from(KEYS)).for_each(|key| queue.add(key));
        });
        batch.done.notified().await;
        (added, allocations) = (added + u64::from(KEYS), allocations + counted.count_total);
    }
    (added, allocations)
}

fn two_threads() -> Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).build().context("cannot make a runtime")
}

/// Two threads add while two tasks on two other threads dequeue: figures per added key, as in the peers.
fn flooded(queue: &Queue<ObjectKey>) -> Result<Cost> {
    let runtime = two_threads()?;
    for _ in 0..2 {
        let queue = queue.clone();
        drop(runtime.spawn(async move {
            let mut next = queue.get().await;
            while let Some(item) = next {
                next = item.get_next().await;
            }
        }));
    }
    let (keys, stop) = (object_keys(), Arc::new(AtomicBool::new(false)));
    let other = std::thread::spawn({
        let (queue, keys, stop) = (queue.clone(), keys.clone(), Arc::clone(&stop));
        move || {
            let mut added = 0u64;
            while !stop.load(Ordering::Relaxed) {
                keys.iter().for_each(|key| queue.add(key.clone()));
                added += u64::from(KEYS);
            }
            added
        }
    });
    let (start, mut added) = (Instant::now(), 0u64);
    let cost = measure(MILLISECONDS, KEYS, || {
        keys.iter().for_each(|key| queue.add(key.clone()));
        added += u64::from(KEYS);
    });
    let elapsed = start.elapsed();
    stop.store(true, Ordering::Relaxed);
    added += other.join().map_err(|_| anyhow::anyhow!("the other thread panicked"))?;
    queue.shut_down();
    Ok(Cost { nanoseconds: elapsed.as_secs_f64() * 1e9 / added as f64, ..cost })
}

fn delayed(queue: &Queue<ObjectKey>) -> Result<Cost> {
    let keys = object_keys();
    Ok(measure(MILLISECONDS, KEYS, || {
        keys.iter().for_each(|key| queue.add_after(key.clone(), Duration::from_secs(3600)));
    }))
}
