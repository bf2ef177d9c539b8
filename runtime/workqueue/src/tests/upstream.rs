//! Scenarios from the tests of client-go and controller-runtime that the other tests do not cover, and defects that
//! their users have reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::task::yield_now;
use windlass_env::Env;
use windlass_metrics::Metrics;

use super::{Journal, all_ready, ms, nothing_ready, noting_worker, ready, started, try_get};
use crate::{AddOptions, Priority, Queue, per_key_limiter};

// parity: test-reinsert, test-basic
#[tokio::test(start_paused = true)]
async fn many_producers_and_workers_leave_no_key_behind() {
    let (env, queue) = (Env::virtual_time(1), numbers());
    let runs = Arc::<Mutex<BTreeMap<u32, u32>>>::default();
    for producer in 0..50 {
        let (inner, queue) = (env.clone(), queue.clone());
        drop(env.spawn(format!("producer {producer}"), async move {
            for _ in 0..50 {
                queue.add(producer);
                inner.sleep(ms(1)).await;
            }
        }));
    }
    for worker in 0..10 {
        let (inner, queue, runs) = (env.clone(), queue.clone(), Arc::clone(&runs));
        drop(env.spawn(format!("worker {worker}"), async move {
            while let Some(item) = queue.get().await {
                *runs.lock().unwrap().entry(*item.key()).or_default() += 1;
                inner.sleep(ms(3)).await;
            }
        }));
    }
    env.sleep(ms(51)).await;
    queue.shut_down();
    queue.add(1_000);
    env.wait_for_tasks().await;
    let runs = runs.lock().unwrap();
    assert_eq!((queue.len(), runs.len(), runs.get(&1_000)), (0, 50, None));
}

// parity: test-reinsert, test-basic
#[tokio::test(start_paused = true)]
async fn key_readded_by_its_worker_runs_again_during_shut_down() {
    let (env, queue) = (Env::virtual_time(1), numbers());
    let runs = Arc::<Mutex<BTreeMap<u32, u32>>>::default();
    queue.add_all(0..50, Priority::NORMAL);
    for worker in 0..10 {
        let (queue, runs) = (queue.clone(), Arc::clone(&runs));
        drop(env.spawn(format!("worker {worker}"), async move {
            while let Some(item) = queue.get().await {
                let first = {
                    let mut runs = runs.lock().unwrap();
                    let times = runs.entry(*item.key()).or_default();
                    *times += 1;
                    *times == 1
                };
                if first {
                    queue.add(*item.key());
                }
                yield_now().await;
            }
        }));
    }
    yield_now().await;
    queue.shut_down();
    env.wait_for_tasks().await;
    let again = runs.lock().unwrap().values().filter(|times| **times == 2).count();
    assert_eq!(again, 10, "keys in progress at shutdown had been added again");
    assert_eq!(runs.lock().unwrap().len(), 50);
}

// parity: test-garbage-collection
#[tokio::test(start_paused = true)]
async fn finished_key_is_dropped() {
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct Big(Arc<str>);
    let env = Env::virtual_time(1);
    let queue = Queue::new(env, "test", None);
    let big: Arc<str> = "big".into();
    let seen: Weak<str> = Arc::downgrade(&big);
    queue.add(Big(big));
    drop(ready(&queue));
    assert_eq!(seen.strong_count(), 0);
}

// parity: test-reinsert, test-no-queue-drainage-using-shut-down
#[tokio::test(start_paused = true)]
async fn shut_down_returns_while_keys_are_in_progress() {
    let (env, queue) = started();
    ["foo", "bar"].into_iter().for_each(|key| queue.add(key));
    let held = [ready(&queue), ready(&queue)];
    queue.shut_down();
    assert!(env.timeout(ms(1), queue.wait_drained()).await.is_err(), "both keys are in progress");
    assert!(matches!(try_get(&queue), Some(None)), "no worker receives another key");
    drop(held);
    queue.wait_drained().await;
}

// parity: shut-down-with-drain, test-reinsert, drain-returns-early-double
#[tokio::test(start_paused = true)]
async fn drain_waits_for_queued_keys_without_workers() {
    let (env, queue) = started();
    queue.add("queued");
    queue.shut_down();
    assert!(env.timeout(ms(1), queue.wait_drained()).await.is_err(), "client-go's returns here");
    assert_eq!(all_ready(&queue), ["queued"]);
    queue.wait_drained().await;
}

#[tokio::test(start_paused = true)]
async fn drain_calls_complete_in_order_and_can_be_cancelled() {
    let (env, queue) = started();
    let journal = Journal::default();
    queue.add("a");
    for name in ["first", "second", "third"] {
        let (inner, queue, journal) = (env.clone(), queue.clone(), journal.clone());
        drop(env.spawn(name, async move {
            let timeout = if name == "second" { ms(1) } else { ms(1_000) };
            let outcome = inner.timeout(timeout, queue.wait_drained()).await;
            journal.note(format!("{name} {}", outcome.is_ok()));
        }));
    }
    env.sleep(ms(5)).await;
    queue.shut_down();
    drop(ready(&queue));
    env.wait_for_tasks().await;
    assert_eq!(journal.lines(), ["second false", "first true", "third true"]);
}

// parity: get-might-get-stuck, priority-queue-starves-shutdown
#[tokio::test(start_paused = true)]
async fn shut_down_queue_returns_its_keys_and_then_ends_calls() {
    let (env, queue) = started();
    queue.add("baz");
    queue.shut_down();
    queue.add_after("foo", Duration::from_secs(1));
    let journal = Journal::default();
    noting_worker(&env, &queue, &journal, "w");
    env.wait_for_tasks().await;
    assert_eq!(journal.lines(), ["w baz 0", "w ends"]);
}

// parity: test-reinsert, test-simple-queue, returned-only-after-after
#[tokio::test(start_paused = true)]
async fn delays_expire_independently_of_their_order_of_arrival() {
    let (env, queue) = started();
    let journal = Journal::default();
    queue.add_after("third", ms(1_000));
    queue.add_after("first", ms(50));
    queue.add_after("second", ms(500));
    noting_worker(&env, &queue, &journal, "w");
    env.sleep(ms(2_000)).await;
    assert_eq!(journal.lines(), ["w first 50", "w second 500", "w third 1000"]);
}

// parity: add-after
#[tokio::test(start_paused = true)]
async fn later_delay_does_not_postpone_an_earlier_one() {
    let (env, queue) = started();
    queue.add_after("foo", ms(50));
    queue.add_after("foo", ms(70));
    env.sleep(ms(60)).await;
    assert_eq!(all_ready(&queue), ["foo"]);
    env.sleep(ms(20)).await;
    assert!(nothing_ready(&queue), "the second was merged into the first");
    queue.add_after("foo", ms(50));
    queue.add_after("foo", ms(30));
    env.sleep(ms(40)).await;
    assert_eq!(all_ready(&queue), ["foo"]);
    env.sleep(ms(20)).await;
    assert!(nothing_ready(&queue));
}

// parity: add-rate-limited, test-rate-limiting-queue
#[tokio::test(start_paused = true)]
async fn attempts_are_counted_per_key_and_cleared_by_forget() {
    let env = Env::virtual_time(1);
    let queue = Queue::new(env.clone(), "test", None);
    queue.replace_limiter(per_key_limiter());
    for _ in 0..2 {
        queue.add_rate_limited("one");
    }
    queue.add_rate_limited("two");
    assert_eq!((queue.attempts(&"one"), queue.attempts(&"two")), (2, 1));
    queue.forget(&"one");
    queue.forget(&"never seen");
    assert_eq!((queue.attempts(&"one"), queue.attempts(&"two")), (0, 1));
    env.sleep(ms(5)).await;
    assert_eq!(all_ready(&queue), ["one", "two"]);
}

// parity: test-len, doesn-t-include-non
#[tokio::test(start_paused = true)]
async fn depth_by_priority_counts_queued_keys_only() {
    let (env, metrics) = (Env::virtual_time(1), Metrics::new());
    let queue = Queue::new(env, "test", metrics.workqueue("test"));
    let depth = |priority: i32| {
        let start = format!("windlass_workqueue_priority_depth{{name=\"test\",priority=\"{priority}\"}} ");
        metrics.encode().lines().find_map(|line| line.strip_prefix(&start).map(str::to_owned))
    };
    let (none, one) = (Some("0".to_owned()), Some("1".to_owned()));
    queue.add_with("foo", AddOptions::after(Duration::from_secs(3600)));
    assert_eq!((depth(0), metrics.workqueue("test").depth.get()), (None, 0));
    queue.add_with("foo", AddOptions::now().priority(Priority(1)));
    assert_eq!((depth(1), metrics.workqueue("test").depth.get()), (one.clone(), 1));
    queue.add_with("foo", AddOptions::now().priority(Priority(2)));
    assert_eq!((depth(1), depth(2)), (none.clone(), one));
    assert_eq!(metrics.workqueue("test").adds.get(), 1, "raised, not added");
    let held = ready(&queue);
    assert_eq!((depth(2), held.priority()), (none, Priority(2)));
    drop(held);
    assert_eq!(depth(2), Some("0".to_owned()));
    assert_eq!(metrics.workqueue("test").depth.get(), 0);
}

// parity: unnamed-queue-no-metrics, test-metrics
#[tokio::test(start_paused = true)]
async fn queue_works_without_metrics() {
    let queue = numbers();
    queue.add_all([3, 1, 2], Priority::NORMAL);
    let order: Vec<u32> = (0..3).map(|_| *ready(&queue).key()).collect();
    assert_eq!(order, [3, 1, 2]);
}

// parity: priority-queue-fuzz
#[tokio::test(start_paused = true)]
async fn large_queue_of_random_priorities_and_delays_can_be_emptied() {
    let (env, queue) = (Env::virtual_time(1), numbers());
    let mut rng = env.rng("plan");
    for round in 0..20 {
        for key in 0..1_000 {
            let roll = i32::try_from(rng.below(100)).unwrap_or_default();
            let add = if roll < 10 { AddOptions::after(ms(rng.below(10))) } else { AddOptions::now() };
            queue.add_with(key, add.priority(Priority(roll)));
        }
        env.sleep(ms(10)).await;
        let handed = std::iter::from_fn(|| try_get(&queue)?.map(|item| *item.key())).count();
        assert_eq!(handed, 1_000, "round {round}");
    }
}

fn numbers() -> Queue<u32> {
    Queue::new(Env::virtual_time(1), "test", None)
}
