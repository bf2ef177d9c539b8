//! Parked keys.

use windlass_env::Env;
use windlass_metrics::Metrics;

use super::{ms, nothing_ready, ready, started};
use crate::{AddOptions, ParkReason, Parked, Priority, Queue};

const CLOSED: ParkReason = ParkReason("closed");
const BROKEN: ParkReason = ParkReason("broken");

/// Adds `key` at `priority` and parks it.
fn park(queue: &Queue<&'static str>, key: &'static str, priority: Priority, reason: ParkReason) {
    queue.add_with(key, AddOptions::now().priority(priority));
    ready(queue).park(reason);
}

#[tokio::test(start_paused = true)]
async fn parked_key_is_dequeued_after_release_with_its_priority() {
    let (_env, queue) = started();
    park(&queue, "a", Priority::HIGH, CLOSED);
    assert!(nothing_ready(&queue));
    let parked = Some(Parked { reason: CLOSED, priority: Priority::HIGH });
    assert_eq!(queue.key_status(&"a").parked, parked);
    queue.release(&"a", BROKEN);
    assert!(nothing_ready(&queue), "released for another reason");
    queue.release(&"a", CLOSED);
    assert!(!queue.is_parked(&"a", CLOSED));
    let item = ready(&queue);
    assert_eq!((*item.key(), item.priority()), ("a", Priority::HIGH));
    drop(item);
    queue.release(&"a", CLOSED);
    assert!(nothing_ready(&queue), "released once");
}

#[tokio::test(start_paused = true)]
async fn add_queues_parked_key_at_the_higher_priority() {
    let (env, queue) = started();
    for (parked, added) in [(Priority::HIGH, Priority::LOW), (Priority::LOW, Priority::HIGH)] {
        park(&queue, "a", parked, CLOSED);
        queue.add_with("a", AddOptions::after(ms(5)).priority(added));
        assert!(nothing_ready(&queue));
        env.sleep(ms(5)).await;
        assert_eq!(ready(&queue).priority(), Priority::HIGH);
    }
}

#[tokio::test(start_paused = true)]
async fn key_added_during_processing_is_requeued_despite_park() {
    let (_env, queue) = started();
    queue.add_with("before", AddOptions::now().priority(Priority::HIGH));
    let item = ready(&queue);
    queue.add("before");
    item.park(CLOSED);
    drop(item);
    let item = ready(&queue);
    assert_eq!((*item.key(), item.priority()), ("before", Priority::HIGH));
    item.park(CLOSED);
    queue.add("before");
    drop(item);
    assert_eq!(*ready(&queue).key(), "before", "added after it was parked");
    assert!(nothing_ready(&queue));
}

#[tokio::test(start_paused = true)]
async fn parked_keys_of_a_reason_are_listed_in_order() {
    let (_env, queue) = started();
    for (key, reason) in [("b", CLOSED), ("c", BROKEN), ("a", CLOSED)] {
        park(&queue, key, Priority::NORMAL, reason);
    }
    assert_eq!((queue.parked(CLOSED), queue.parked(BROKEN)), (vec!["a", "b"], vec!["c"]));
    queue.remove_if(|key| *key != "a");
    assert_eq!((queue.parked(CLOSED), queue.parked(BROKEN)), (vec!["a"], vec![]));
}

#[tokio::test(start_paused = true)]
async fn withdrawn_key_is_not_parked_by_its_worker() {
    let (_env, queue) = started();
    queue.add("a");
    let item = ready(&queue);
    item.park(CLOSED);
    queue.remove_if(|_| true);
    drop(item);
    assert_eq!(queue.key_status(&"a"), crate::KeyStatus::default());
}

#[tokio::test(start_paused = true)]
async fn shut_down_drops_parked_keys_and_completes_drain() {
    let (_env, queue) = started();
    park(&queue, "parked", Priority::NORMAL, CLOSED);
    ["held", "late"].iter().for_each(|key| queue.add(key));
    let (held, late) = (ready(&queue), ready(&queue));
    held.park(CLOSED);
    queue.shut_down();
    late.park(CLOSED);
    drop((held, late));
    queue.wait_drained().await;
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn depth_does_not_count_parked_keys() {
    let metrics = Metrics::new().workqueue("test");
    let queue = Queue::new(Env::virtual_time(1), "test", metrics.clone());
    park(&queue, "a", Priority::NORMAL, CLOSED);
    queue.shared.update_metrics();
    assert_eq!((metrics.depth.get(), queue.len()), (0, 0));
    queue.release(&"a", CLOSED);
    queue.shared.update_metrics();
    assert_eq!((metrics.depth.get(), metrics.adds.get()), (1, 2));
}
