//! One test per guarantee, followed by tests against a model and tests with many workers.

mod get_next;
mod limiter;
mod model;
mod parking;
mod priorities;
mod resting;
mod tenants;
mod threads;
mod upstream;
mod workers;

use std::future::poll_fn;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::yield_now;
use windlass_env::{Env, Instant, TaskError};
use windlass_metrics::Metrics;

use crate::{Exponential, Item, Priority, Queue, RateLimiter};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Instant {
    Instant::ORIGIN + ms(n)
}

fn queue(env: &Env) -> Queue<&'static str> {
    Queue::new(env.clone(), "test", Metrics::new().workqueue("test"))
}

fn started() -> (Env, Queue<&'static str>) {
    let env = Env::virtual_time(1);
    let queue = queue(&env);
    (env, queue)
}

/// Returns the result of `get` if it is ready, and `None` if the call would wait.
fn try_get<K: crate::Key>(queue: &Queue<K>) -> Option<Option<Item<K>>> {
    // Disables the cooperative budget, so that a test can call this any number of times in one poll.
    tokio::task::unconstrained(queue.get()).now_or_never()
}

/// Returns the ready key. Panics if there is none.
fn ready<K: crate::Key>(queue: &Queue<K>) -> Item<K> {
    try_get(queue).expect("a key is ready").expect("the queue is open")
}

fn nothing_ready<K: crate::Key>(queue: &Queue<K>) -> bool {
    try_get(queue).is_none()
}

/// Dequeues and releases all ready keys.
fn all_ready(queue: &Queue<&'static str>) -> Vec<&'static str> {
    std::iter::from_fn(|| try_get(queue)?.map(|item| *item.key())).collect()
}

#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Starts a worker that records the time of each key and releases it immediately.
fn noting_worker(env: &Env, queue: &Queue<&'static str>, journal: &Journal, name: &'static str) {
    let (spawner, env, queue, journal) = (env.clone(), env.clone(), queue.clone(), journal.clone());
    drop(spawner.spawn(name, async move {
        while let Some(item) = queue.get().await {
            journal.note(format!("{name} {} {}", item.key(), env.now().since_origin().as_millis()));
        }
        journal.note(format!("{name} ends"));
    }));
}

// parity: work-queue-controller-add, dirty-processing-sets, doesn-t-return-item
#[tokio::test(start_paused = true)]
async fn key_is_never_processed_by_two_workers() {
    let (_env, queue) = started();
    queue.add("a");
    let held = ready(&queue);
    queue.add("a");
    assert!(nothing_ready(&queue));
    assert_eq!(queue.len(), 0);
    drop(held);
    assert_eq!(ready(&queue).key(), &"a");
}

// parity: work-queue-controller-add, dirty-processing-sets, test-reinsert
#[tokio::test(start_paused = true)]
async fn add_during_processing_causes_another_run() {
    let (_env, queue) = started();
    queue.add("a");
    let held = ready(&queue);
    queue.add("a");
    queue.add("a");
    drop(held);
    assert_eq!(all_ready(&queue), ["a"]);
}

// parity: dirty-processing-sets, test-reinsert, de-duplicates-items
#[tokio::test(start_paused = true)]
async fn adds_before_processing_are_merged() {
    let (_env, queue) = started();
    for _ in 0..3 {
        queue.add("a");
    }
    assert_eq!(queue.len(), 1);
    assert_eq!(all_ready(&queue), ["a"]);
}

// parity: returns-item-returns-items, scheduler-no-order-among
#[tokio::test(start_paused = true)]
async fn keys_are_dequeued_in_order_of_becoming_ready() {
    let (_env, queue) = started();
    ["c", "a", "b", "a", "c"].into_iter().for_each(|key| queue.add(key));
    assert_eq!(all_ready(&queue), ["c", "a", "b"]);
}

// parity: doesn-t-return-item
#[tokio::test(start_paused = true)]
async fn key_added_during_processing_is_requeued_at_the_back() {
    let (_env, queue) = started();
    queue.add("a");
    let held = ready(&queue);
    queue.add("a");
    queue.add("b");
    drop(held);
    assert_eq!(all_ready(&queue), ["b", "a"]);
}

/// Returns a queue of keys `tenant/name` with fair queuing by tenant.
fn shared(env: &Env) -> Queue<&'static str> {
    let queue = Queue::new(env.clone(), "test", None);
    queue.fair_by(before_the_slash);
    queue
}

fn before_the_slash<'k>(key: &'k &'static str) -> &'k str {
    key.split('/').next().unwrap_or_default()
}

mod delays {
    use super::*;

    // parity: add-after, test-reinsert, retains-lowest-after-duration
    #[tokio::test(start_paused = true)]
    async fn delayed_add_keeps_earliest_requested_time() {
        let (env, queue) = started();
        queue.add_after("a", ms(50));
        queue.add_after("a", ms(20));
        queue.add_after("a", ms(90));
        env.sleep(ms(19)).await;
        assert!(nothing_ready(&queue));
        env.sleep(ms(1)).await;
        assert_eq!(all_ready(&queue), ["a"]);
        env.sleep(ms(1_000)).await;
        assert!(nothing_ready(&queue), "one run, not three");
    }

    // parity: test-simple-queue, returned-only-after-after
    #[tokio::test(start_paused = true)]
    async fn delayed_keys_are_ordered_by_due_time_then_arrival() {
        let (env, queue) = started();
        [("d", 30), ("b", 20), ("c", 20), ("a", 10)]
            .into_iter()
            .for_each(|(key, delay)| queue.add_after(key, ms(delay)));
        env.sleep(ms(40)).await;
        assert_eq!(all_ready(&queue), ["a", "b", "c", "d"]);
    }

    #[tokio::test(start_paused = true)]
    async fn key_due_while_workers_are_busy_precedes_later_add() {
        let (env, queue) = started();
        queue.add_after("due", ms(5));
        env.sleep(ms(6)).await;
        queue.add("later");
        assert_eq!(queue.len(), 2);
        assert_eq!(all_ready(&queue), ["due", "later"]);
    }

    // parity: add-after
    #[tokio::test(start_paused = true)]
    async fn delay_of_zero_is_an_add() {
        let (_env, queue) = started();
        queue.add_after("a", Duration::ZERO);
        assert_eq!(all_ready(&queue), ["a"]);
    }

    /// In client-go a delayed add cannot be canceled (kubernetes#133560).
    // parity: no-way-take-delayed, drain-returns-early-double, delayed-add-cannot-cancelled
    #[tokio::test(start_paused = true)]
    async fn delayed_add_can_be_cancelled_until_due() {
        let (env, queue) = started();
        queue.add_after("a", ms(10));
        queue.add_after("b", ms(10));
        assert!(queue.cancel_delayed(&"a"));
        assert!(!queue.cancel_delayed(&"a"), "no delay is pending");
        env.sleep(ms(10)).await;
        assert!(!queue.cancel_delayed(&"b"), "the key is already queued");
        assert_eq!(all_ready(&queue), ["b"]);
    }

    // parity: drain-returns-early-double, waiting-item-returned-right
    #[tokio::test(start_paused = true)]
    async fn immediate_add_keeps_pending_appointment() {
        let (env, queue) = started();
        queue.add_after("a", ms(10));
        queue.add("a");
        assert_eq!(all_ready(&queue), ["a"]);
        env.sleep(ms(10)).await;
        assert_eq!(all_ready(&queue), ["a"], "the earlier run does not replace the scheduled add");
    }

    /// In client-go a key that is added while its retry is pending runs twice (kubernetes#126027).
    // parity: drain-returns-early-double, updates-metrics-correctly-after, waiting-item-returned-right
    #[tokio::test(start_paused = true)]
    async fn immediate_add_replaces_pending_retry_of_same_key() {
        let (env, queue) = started();
        queue.add_rate_limited("a");
        queue.add_rate_limited("b");
        queue.add("a");
        assert_eq!(all_ready(&queue), ["a"]);
        env.sleep(ms(1_000)).await;
        assert_eq!(all_ready(&queue), ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn retry_merged_with_appointment_keeps_earlier_time() {
        let (env, queue) = started();
        queue.add_after("a", ms(100));
        queue.add_rate_limited("a");
        queue.add("a");
        assert_eq!(all_ready(&queue), ["a"]);
        env.sleep(ms(5)).await;
        assert_eq!(all_ready(&queue), ["a"], "at the time of the retry, kept like a scheduled add");
        env.sleep(ms(1_000)).await;
        assert!(nothing_ready(&queue));
    }

    #[tokio::test(start_paused = true)]
    async fn key_due_during_processing_runs_again() {
        let (env, queue) = started();
        queue.add("a");
        let held = ready(&queue);
        queue.add_after("a", ms(5));
        env.sleep(ms(5)).await;
        assert!(nothing_ready(&queue));
        drop(held);
        assert_eq!(all_ready(&queue), ["a"]);
    }

    // parity: add-rate-limited, adding-many-rate-limit, work-queue-dedup-delay
    #[tokio::test(start_paused = true)]
    async fn failing_key_has_its_own_backoff_until_forget() {
        let (env, queue) = started();
        for delay in [5, 10, 20] {
            queue.add_rate_limited("bad");
            env.sleep(ms(delay - 1)).await;
            assert!(nothing_ready(&queue), "{delay}");
            env.sleep(ms(1)).await;
            assert_eq!(all_ready(&queue), ["bad"]);
        }
        assert_eq!((queue.attempts(&"bad"), queue.attempts(&"good")), (3, 0));
        queue.forget(&"bad");
        assert_eq!(queue.attempts(&"bad"), 0);
        queue.add_rate_limited("bad");
        env.sleep(ms(5)).await;
        assert_eq!(all_ready(&queue), ["bad"]);
    }

    // parity: rate-limiter
    #[tokio::test(start_paused = true)]
    async fn replaced_limiter_applies_to_later_adds() {
        let (env, queue) = started();
        queue.replace_limiter(Box::new(Exponential::new(ms(700), ms(700))));
        queue.add_rate_limited("a");
        env.sleep(ms(699)).await;
        assert!(nothing_ready(&queue));
        env.sleep(ms(1)).await;
        assert_eq!(all_ready(&queue), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn panicking_limiter_affects_only_its_call() {
        struct Broken;
        impl RateLimiter<&'static str> for Broken {
            fn when(&mut self, _now: Instant, _key: &&'static str) -> Duration {
                panic!("broken")
            }
            fn forget(&mut self, _now: Instant, _key: &&'static str) {}
            fn attempts(&self, _key: &&'static str) -> u32 {
                0
            }
        }
        let (_env, queue) = started();
        queue.replace_limiter(Box::new(Broken));
        assert!(windlass_env::catch_panic_sync(|| queue.add_rate_limited("a")).is_err());
        queue.forget(&"a");
        queue.add("a");
        assert_eq!(all_ready(&queue), ["a"]);
    }
}

mod waiting {
    use super::*;

    // parity: heartbeat-10-s-delaying, test-simple-queue, returned-only-after-after
    #[tokio::test(start_paused = true)]
    async fn waiting_worker_gets_a_delayed_key_on_time() {
        let (env, queue) = started();
        queue.add_after("a", ms(20));
        let item = queue.get().await.expect("the queue is open");
        assert_eq!((*item.key(), env.now()), ("a", at(20)));
    }

    // parity: heartbeat-10-s-delaying
    #[tokio::test(start_paused = true)]
    async fn earlier_delayed_key_resets_timer_of_waiting_call() {
        let (env, queue) = started();
        let journal = Journal::default();
        queue.add_after("late", ms(1_000));
        noting_worker(&env, &queue, &journal, "w");
        env.sleep(ms(10)).await;
        queue.add_after("early", ms(5));
        env.sleep(ms(2_000)).await;
        assert_eq!(journal.lines(), ["w early 15", "w late 1000"]);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelling_the_earliest_rearms_for_the_next() {
        let (env, queue) = started();
        let journal = Journal::default();
        queue.add_after("a", ms(10));
        queue.add_after("b", ms(30));
        noting_worker(&env, &queue, &journal, "w");
        yield_now().await;
        queue.cancel_delayed(&"a");
        env.sleep(ms(100)).await;
        assert_eq!(journal.lines(), ["w b 30"]);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_notified_get_notifies_next_call() {
        let (env, queue) = started();
        let mut first_call = Box::pin(queue.get());
        assert!(poll_fn(|cx| Poll::Ready(first_call.poll_unpin(cx).is_pending())).await, "first in line");
        let journal = Journal::default();
        noting_worker(&env, &queue, &journal, "second");
        yield_now().await;
        queue.add("a");
        yield_now().await;
        assert!(journal.lines().is_empty(), "the first in line is notified and not polled yet");
        drop(first_call);
        yield_now().await;
        assert_eq!(journal.lines(), ["second a 0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_get_passes_timer_to_next_call() {
        let (env, queue) = started();
        queue.add_after("a", ms(20));
        let mut holder = Box::pin(queue.get());
        assert!(poll_fn(|cx| Poll::Ready(holder.poll_unpin(cx).is_pending())).await, "owns the timer");
        let journal = Journal::default();
        noting_worker(&env, &queue, &journal, "second");
        env.sleep(ms(5)).await;
        drop(holder);
        env.sleep(ms(100)).await;
        assert_eq!(journal.lines(), ["second a 20"]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_add_wakes_only_the_longest_waiting_call() {
        let (env, queue) = started();
        let journal = Journal::default();
        for name in ["w3", "w1", "w2"] {
            let (queue, journal) = (queue.clone(), journal.clone());
            drop(env.spawn(name, async move {
                let item = queue.get().await.expect("the queue is open");
                journal.note(format!("{name} {}", item.key()));
            }));
        }
        yield_now().await;
        queue.add("a");
        queue.add("b");
        yield_now().await;
        assert_eq!(journal.lines(), ["w3 a", "w1 b"]);
        queue.add("c");
        yield_now().await;
        assert_eq!(journal.lines()[2..], ["w2 c"]);
    }

    // parity: returned-only-after-after
    #[tokio::test(start_paused = true)]
    async fn keys_due_together_wake_all_waiting_calls() {
        let (env, queue) = started();
        let started = Journal::default();
        for name in ["w1", "w2", "w3"] {
            let (queue, started, spawner, env) = (queue.clone(), started.clone(), env.clone(), env.clone());
            drop(spawner.spawn(name, async move {
                let item = queue.get().await.expect("the queue is open");
                started.note(format!("{name} {}", item.key()));
                env.sleep(ms(1_000)).await;
            }));
        }
        ["a", "b", "c"].into_iter().for_each(|key| queue.add_after(key, ms(10)));
        env.sleep(ms(11)).await;
        assert_eq!(started.lines().len(), 3, "{:?}", started.lines());
    }

    #[tokio::test(start_paused = true)]
    async fn worker_that_never_waits_yields_to_other_tasks() {
        let (env, queue) = started();
        let journal = Journal::default();
        queue.add("a");
        let greedy = env.spawn("greedy", {
            let queue = queue.clone();
            async move {
                while let Some(item) = queue.get().await {
                    queue.add(item.key());
                }
            }
        });
        for turn in 0..3 {
            yield_now().await;
            journal.note(format!("turn {turn}"));
        }
        greedy.abort();
        assert_eq!(greedy.await, Err(TaskError::Aborted));
        assert_eq!(journal.lines().len(), 3);
    }
}

mod endings {
    use super::*;

    // parity: shut-down, priority-queue-drops-content
    #[tokio::test(start_paused = true)]
    async fn shut_down_queue_ignores_adds_and_returns_queued_keys() {
        let (env, queue) = started();
        queue.add("a");
        queue.add("b");
        queue.add_after("delayed", ms(5));
        queue.shut_down();
        queue.shut_down();
        queue.add("late");
        queue.add_after("late", ms(1));
        queue.add_rate_limited("late");
        assert!(!queue.cancel_delayed(&"delayed"));
        env.sleep(ms(100)).await;
        assert_eq!(all_ready(&queue), ["a", "b"]);
        assert!(matches!(try_get(&queue), Some(None)));
    }

    // parity: get-might-get-stuck
    #[tokio::test(start_paused = true)]
    async fn shut_down_completes_all_waiting_calls() {
        let (env, queue) = started();
        let journal = Journal::default();
        queue.add_after("never", ms(500));
        for name in ["w1", "w2", "w3"] {
            noting_worker(&env, &queue, &journal, name);
        }
        env.sleep(ms(1)).await;
        queue.shut_down();
        env.wait_for_tasks().await;
        assert_eq!(journal.lines(), ["w1 ends", "w2 ends", "w3 ends"]);
        assert_eq!(env.now(), at(1));
    }

    /// In client-go a drain can complete while a key is queued (kubernetes#141079).
    // parity: shut-down-with-drain, test-reinsert, test-queue-drainage-using-shut-down-with, drain-returns-early-double
    #[tokio::test(start_paused = true)]
    async fn drain_completes_when_nothing_is_queued_or_in_progress() {
        let (env, queue) = started();
        let drained = env.spawn("drain", {
            let queue = queue.clone();
            async move { queue.wait_drained().await }
        });
        ["held", "queued"].into_iter().for_each(|key| queue.add(key));
        let held = ready(&queue);
        queue.add("held");
        yield_now().await;
        assert!(!drained.is_finished(), "open");
        queue.shut_down();
        yield_now().await;
        assert!(!drained.is_finished(), "one in progress, one queued");
        drop(ready(&queue));
        yield_now().await;
        assert!(!drained.is_finished(), "one in progress");
        drop(held);
        yield_now().await;
        assert!(!drained.is_finished(), "added again before the shut-down, so queued again");
        drop(ready(&queue));
        drained.await.expect("drains");
        queue.wait_drained().await;
    }

    #[tokio::test(start_paused = true)]
    async fn empty_queue_is_drained_when_shut_down() {
        let (env, queue) = started();
        let drained = env.spawn("drain", {
            let queue = queue.clone();
            async move { queue.wait_drained().await }
        });
        yield_now().await;
        assert!(!drained.is_finished());
        queue.shut_down();
        assert_eq!(drained.await, Ok(()));
    }

    // parity: shut-down-with-drain, test-queue-drainage-using-shut-down-with
    #[tokio::test(start_paused = true)]
    async fn requeued_key_of_dead_worker_is_processed_during_drain() {
        let (env, queue) = started();
        let journal = Journal::default();
        queue.add("a");
        let held = ready(&queue);
        queue.add("a");
        noting_worker(&env, &queue, &journal, "other");
        yield_now().await;
        queue.shut_down();
        yield_now().await;
        assert!(journal.lines().is_empty(), "the other worker still waits for a key");
        drop(held);
        queue.wait_drained().await;
        env.wait_for_tasks().await;
        assert_eq!(journal.lines(), ["other a 0", "other ends"]);
    }

    #[tokio::test(start_paused = true)]
    async fn panic_while_holding_an_item_releases_it() {
        let (env, queue) = started();
        queue.add("a");
        let panicking = env.spawn("w", {
            let queue = queue.clone();
            async move {
                let item = queue.get().await;
                queue.add("a");
                assert!(item.is_none(), "broken");
            }
        });
        assert!(matches!(panicking.await, Err(TaskError::Panicked(message)) if message == "broken"));
        assert_eq!(all_ready(&queue), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn aborted_worker_releases_its_item() {
        let (env, queue) = started();
        queue.add("a");
        let worker = env.spawn("w", {
            let queue = queue.clone();
            async move {
                let _item = queue.get().await;
                std::future::pending::<()>().await;
            }
        });
        yield_now().await;
        assert!(format!("{queue:?}").contains("in_flight: 1"), "{queue:?}");
        env.kill();
        env.wait_for_tasks().await;
        assert_eq!(worker.await, Err(TaskError::Aborted));
        queue.add("a");
        assert_eq!(all_ready(&queue), ["a"]);
    }
}

mod panics {
    use super::*;

    /// Starts two waiting workers that each record one key.
    fn two_waiting(env: &Env, queue: &Queue<&'static str>) -> Journal {
        let journal = Journal::default();
        for name in ["w1", "w2"] {
            let (queue, journal) = (queue.clone(), journal.clone());
            drop(env.spawn(name, async move {
                let item = queue.get().await.expect("the queue is open");
                journal.note(format!("{name} {}", item.key()));
            }));
        }
        journal
    }

    #[tokio::test(start_paused = true)]
    async fn keys_added_before_fair_by_panics_reach_waiting_workers() {
        let (env, queue) = started();
        queue.fair_by(|key| {
            assert!(*key != "c", "no tenant");
            key
        });
        let journal = two_waiting(&env, &queue);
        yield_now().await;
        let add = || queue.add_all(["a", "b", "c", "d"], Priority::NORMAL);
        assert!(windlass_env::catch_panic_sync(add).is_err());
        yield_now().await;
        yield_now().await;
        assert_eq!(journal.lines(), ["w1 a", "w2 b"]);
        assert!(nothing_ready(&queue), "keys after the panic are not added");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_added_before_iterator_panics_reach_waiting_workers() {
        let (env, queue) = started();
        let journal = two_waiting(&env, &queue);
        yield_now().await;
        let keys = (0..3).map(|number| ["a", "b"][number]);
        assert!(windlass_env::catch_panic_sync(|| queue.add_all(keys, Priority::NORMAL)).is_err());
        yield_now().await;
        yield_now().await;
        assert_eq!(journal.lines(), ["w1 a", "w2 b"]);
    }

    /// A key whose clone panics once, on request.
    #[derive(Debug)]
    struct Fragile(Arc<AtomicBool>);

    impl Clone for Fragile {
        fn clone(&self) -> Self {
            assert!(!self.0.swap(false, Ordering::Relaxed), "broken");
            Fragile(Arc::clone(&self.0))
        }
    }

    impl PartialEq for Fragile {
        fn eq(&self, _other: &Self) -> bool {
            true
        }
    }

    impl Eq for Fragile {}

    impl PartialOrd for Fragile {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Fragile {
        fn cmp(&self, _other: &Self) -> std::cmp::Ordering {
            std::cmp::Ordering::Equal
        }
    }

    impl Hash for Fragile {
        fn hash<H: Hasher>(&self, _state: &mut H) {}
    }

    #[tokio::test(start_paused = true)]
    async fn key_with_panicking_clone_goes_to_next_worker() {
        let env = Env::virtual_time(1);
        let queue = Queue::new(env.clone(), "test", None);
        let workers = ["w1", "w2"].map(|name| {
            let queue = queue.clone();
            env.spawn(name, async move { queue.get().await.is_some() })
        });
        yield_now().await;
        queue.add(Fragile(Arc::new(AtomicBool::new(true))));
        let [first, second] = workers;
        yield_now().await;
        yield_now().await;
        assert!(second.is_finished(), "the second worker was not notified");
        assert!(matches!(first.await, Err(TaskError::Panicked(message)) if message == "broken"));
        assert_eq!(second.await, Ok(true));
    }
}

mod accounting {
    use super::*;

    fn measured() -> (Env, Metrics, Queue<&'static str>) {
        let (env, metrics) = (Env::virtual_time(1), Metrics::new());
        let queue = Queue::new(env.clone(), "q", metrics.workqueue("q"));
        (env, metrics, queue)
    }

    fn close(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() < 1e-9
    }

    /// Returns the queue and work durations in seconds, read after an update.
    fn times(metrics: &Metrics) -> (f64, f64) {
        metrics.update();
        let seen = metrics.workqueue("q");
        (seen.queue_duration.get_sample_sum(), seen.work_duration.get_sample_sum())
    }

    // parity: metrics-name, test-metrics, updates-metrics-correctly-after
    #[tokio::test(start_paused = true)]
    async fn adds_depth_and_durations_match_upstream() {
        let (env, metrics, queue) = measured();
        let seen = metrics.workqueue("q");
        let counts = || {
            metrics.update();
            (seen.adds.get(), seen.depth.get())
        };
        queue.add("a");
        assert_eq!(counts(), (1, 1));
        env.sleep(ms(50)).await;
        queue.add("a");
        assert_eq!(counts(), (1, 1), "collapsed");

        let held = ready(&queue);
        assert_eq!(counts(), (1, 0));
        assert!(close(times(&metrics).0, 0.050));
        queue.add("a");
        assert_eq!(counts(), (2, 1), "a pending requeue counts as queued");
        env.sleep(ms(25)).await;
        queue.add("a");
        assert_eq!(counts(), (2, 1));
        drop(held);
        assert_eq!(counts(), (2, 1));
        assert!(close(times(&metrics).1, 0.025));

        env.sleep(ms(10)).await;
        drop(ready(&queue));
        assert_eq!(counts(), (2, 0));
        assert!(close(times(&metrics).0, 0.050 + 0.035), "counted from the add");
        assert_eq!((seen.queue_duration.get_sample_count(), seen.work_duration.get_sample_count()), (2, 2));
    }

    // parity: retries-total
    #[tokio::test(start_paused = true)]
    async fn each_delayed_add_counts_as_a_retry() {
        let (env, metrics, queue) = measured();
        let seen = metrics.workqueue("q");
        let counts = || {
            metrics.update();
            (seen.retries.get(), seen.adds.get())
        };
        queue.add("a");
        assert_eq!(counts(), (0, 1));
        queue.add_rate_limited("b");
        queue.add_after("c", ms(5));
        queue.add_after("d", Duration::ZERO);
        assert_eq!(counts(), (3, 2), "a delayed add counts when it comes due");
        env.sleep(ms(8)).await;
        assert_eq!(queue.len(), 4);
        assert_eq!(counts(), (3, 4));
        queue.shut_down();
        queue.add_after("e", ms(1));
        assert_eq!(counts(), (3, 4));
    }

    // parity: test-metrics, doesn-t-include-non
    #[tokio::test(start_paused = true)]
    async fn queue_duration_of_delayed_key_starts_when_due() {
        let (env, metrics, queue) = measured();
        queue.add_after("a", ms(5));
        env.sleep(ms(8)).await;
        drop(ready(&queue));
        assert!(close(times(&metrics).0, 0.003));
    }

    #[tokio::test(start_paused = true)]
    async fn processing_ages_are_computed_when_metrics_are_gathered() {
        let (env, metrics, queue) = measured();
        queue.add("a");
        queue.add("b");
        let first = ready(&queue);
        env.sleep(ms(2_000)).await;
        let second = ready(&queue);
        env.sleep(ms(1_000)).await;
        let shows = |line: &str| {
            let text = metrics.encode();
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        };
        shows("workqueue_unfinished_work_seconds{name=\"q\"} 4");
        shows("workqueue_longest_running_processor_seconds{name=\"q\"} 3");
        drop(first);
        shows("workqueue_unfinished_work_seconds{name=\"q\"} 1");
        drop(second);
        shows("workqueue_longest_running_processor_seconds{name=\"q\"} 0");
        queue.add_after("c", ms(1));
        env.sleep(ms(1)).await;
        shows("workqueue_depth{name=\"q\"} 1");
    }

    // parity: test-metric-shutdown
    #[tokio::test(start_paused = true)]
    async fn dropped_queue_resets_gauges() {
        let (_env, metrics, queue) = measured();
        queue.add("a");
        queue.add("b");
        let held = ready(&queue);
        queue.add("a");
        drop(queue);
        drop(held);
        let seen = metrics.workqueue("q");
        assert_eq!((seen.adds.get(), seen.depth.get()), (3, 0));
        assert!(metrics.encode().contains("workqueue_unfinished_work_seconds{name=\"q\"} 0"));
    }
}
