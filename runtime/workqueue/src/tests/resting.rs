//! Keys that rest after their processing.

use windlass_metrics::Metrics;

use super::{at, ms, nothing_ready, ready, started};
use crate::{AddOptions, KeyStatus, Priority, Queue};
use windlass_env::Env;

/// Processes `key` with a rest, and adds it during its processing.
fn process_changing(queue: &Queue<&'static str>, key: &'static str, rest: u64) {
    queue.add(key);
    let mut item = ready(queue);
    item.rest(ms(rest));
    queue.add(key);
}

/// Processes `key` with a rest, without an add.
fn process(queue: &Queue<&'static str>, key: &'static str, rest: u64) {
    queue.add(key);
    ready(queue).rest(ms(rest));
}

#[tokio::test(start_paused = true)]
async fn key_added_during_processing_is_dequeued_after_its_rest() {
    let (env, queue) = started();
    process_changing(&queue, "a", 10);
    queue.add("b");
    assert_eq!(*ready(&queue).key(), "b", "another key does not wait");
    env.sleep(ms(9)).await;
    queue.add("a");
    assert!(nothing_ready(&queue), "an add does not end the rest");
    env.sleep(ms(1)).await;
    assert_eq!(*ready(&queue).key(), "a");
    assert!(nothing_ready(&queue), "the adds are merged");
}

#[tokio::test(start_paused = true)]
async fn key_added_during_its_rest_is_dequeued_at_the_end() {
    let (env, queue) = started();
    process(&queue, "a", 10);
    assert_eq!(queue.key_status(&"a"), KeyStatus::default());
    assert!(queue.has_no_keys());
    env.sleep(ms(4)).await;
    queue.add("a");
    assert_eq!(queue.key_status(&"a").resting_until, Some(at(10)));
    assert!(nothing_ready(&queue) && !queue.has_no_keys());
    env.sleep(ms(6)).await;
    assert_eq!(*ready(&queue).key(), "a");
    queue.add("a");
    assert_eq!(*ready(&queue).key(), "a", "the rest is over");
}

#[tokio::test(start_paused = true)]
async fn ended_rest_does_not_delay_adds() {
    let (_env, queue) = started();
    process_changing(&queue, "changing", 10);
    process(&queue, "done", 10);
    queue.add("running");
    let mut running = ready(&queue);
    running.rest(ms(10));
    for key in ["changing", "done", "running"] {
        queue.end_rest(&key);
        queue.add(key);
    }
    drop(running);
    let dequeued = [ready(&queue), ready(&queue), ready(&queue)].map(|item| *item.key());
    assert_eq!(dequeued, ["changing", "done", "running"]);
}

#[tokio::test(start_paused = true)]
async fn add_that_replaces_a_retry_ends_the_rest_at_its_time() {
    let (env, queue) = started();
    queue.add("a");
    let mut item = ready(&queue);
    item.rest(ms(100));
    queue.add_with("a", AddOptions::retry_after(ms(20)));
    drop(item);
    env.sleep(ms(1)).await;
    queue.add("a");
    env.sleep(ms(19)).await;
    assert_eq!(*ready(&queue).key(), "a");
    assert!(nothing_ready(&queue));
}

#[tokio::test(start_paused = true)]
async fn delayed_add_ends_the_rest_of_its_key() {
    let (env, queue) = started();
    process_changing(&queue, "changing", 10);
    process(&queue, "done", 10);
    for key in ["changing", "done"] {
        queue.add_after(key, ms(5));
    }
    env.sleep(ms(5)).await;
    let dequeued = [ready(&queue), ready(&queue)].map(|item| *item.key());
    assert_eq!(dequeued, ["changing", "done"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_get_receives_key_at_the_end_of_its_rest() {
    let (env, queue) = started();
    process_changing(&queue, "a", 10);
    let begun = env.now();
    let item = queue.get().await.expect("the queue is open");
    assert_eq!((*item.key(), env.now() - begun), ("a", ms(10)));
}

#[tokio::test(start_paused = true)]
async fn waiting_get_receives_key_that_is_added_during_its_rest() {
    let (env, queue) = started();
    process(&queue, "a", 10);
    let begun = env.now();
    let add = async {
        env.sleep(ms(4)).await;
        queue.add("a");
    };
    let (item, ()) = tokio::join!(queue.get(), add);
    assert_eq!((item.map(|item| *item.key()), env.now() - begun), (Some("a"), ms(10)));
}

#[tokio::test(start_paused = true)]
async fn rest_that_ends_before_a_waiting_calls_timer_is_on_time() {
    let (env, queue) = started();
    queue.add("a");
    let mut item = ready(&queue);
    item.rest(ms(10));
    queue.add("a");
    queue.add_after("later", ms(50));
    let begun = env.now();
    // The first call owns the timer of the delayed key before the second one starts the rest.
    let first = async { (queue.get().await.map(|item| *item.key()), env.now() - begun) };
    let second = async { (item.get_next().await.map(|item| *item.key()), env.now() - begun) };
    let (first, second) = tokio::join!(first, second);
    let mut dequeued = [first, second];
    dequeued.sort_unstable();
    assert_eq!(dequeued, [(Some("a"), ms(10)), (Some("later"), ms(50))]);
}

#[tokio::test(start_paused = true)]
async fn resting_key_keeps_highest_priority_and_its_delayed_add() {
    let (env, queue) = started();
    process_changing(&queue, "a", 10);
    queue.add_with("a", AddOptions::now().priority(Priority::HIGH));
    queue.add_after("a", ms(50));
    let status = queue.key_status(&"a");
    assert_eq!(status.resting_until, Some(at(10)));
    assert_eq!(status.queued.map(|queued| queued.priority), Some(Priority::HIGH));
    env.sleep(ms(10)).await;
    assert_eq!(ready(&queue).priority(), Priority::HIGH);
    assert!(nothing_ready(&queue));
    env.sleep(ms(40)).await;
    assert_eq!(*ready(&queue).key(), "a", "the scheduled add is a separate change");
}

#[tokio::test(start_paused = true)]
async fn shut_down_ends_rests_and_removal_drops_them() {
    let (_env, queue) = started();
    process_changing(&queue, "dropped", 10);
    process_changing(&queue, "kept", 10);
    queue.remove_if(|key| *key == "dropped");
    queue.shut_down();
    assert_eq!(queue.get().await.map(|item| *item.key()), Some("kept"));
    assert!(queue.get().await.is_none());
    queue.wait_drained().await;
}

#[tokio::test(start_paused = true)]
async fn metrics_count_resting_keys_but_not_the_length_of_rests() {
    let metrics = Metrics::new().workqueue("test");
    let env = Env::virtual_time(1);
    let queue = Queue::new(env.clone(), "test", metrics.clone());
    process_changing(&queue, "a", 10);
    queue.shared.update_metrics();
    assert_eq!((metrics.depth.get(), metrics.adds.get(), queue.len()), (1, 2, 0));
    env.sleep(ms(15)).await;
    drop(ready(&queue));
    queue.shared.update_metrics();
    assert_eq!(metrics.queue_duration.get_sample_sum(), 0.005, "it waited 5 ms for a worker");
}
