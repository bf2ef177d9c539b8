//! `Item::get_next`: the effects of a drop and a get in one step.

use super::*;

#[tokio::test(start_paused = true)]
async fn get_next_releases_key_and_returns_next_key() {
    let (_env, queue) = started();
    ["a", "b"].iter().for_each(|key| queue.add(key));
    let item = ready(&queue);
    queue.add("a");
    let item = item.get_next().await.expect("the queue is open");
    assert_eq!(*item.key(), "b");
    let item = item.get_next().await.expect("the queue is open");
    assert_eq!(*item.key(), "a", "added again while in progress");
    queue.shut_down();
    assert!(item.get_next().await.is_none());
    queue.wait_drained().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_get_next_has_released_its_key() {
    let (env, queue) = started();
    queue.add("a");
    let item = ready(&queue);
    let mut next = Box::pin(item.get_next());
    assert!(poll_fn(|cx| Poll::Ready(next.poll_unpin(cx).is_pending())).await);
    assert_eq!(queue.key_status(&"a"), crate::KeyStatus::default());
    let journal = Journal::default();
    noting_worker(&env, &queue, &journal, "second");
    yield_now().await;
    queue.add("b");
    drop(next);
    yield_now().await;
    assert_eq!(journal.lines(), ["second b 0"], "the dropped call passes its notification on");
}

#[tokio::test(start_paused = true)]
async fn get_next_dropped_without_poll_releases_its_key() {
    let (_env, queue) = started();
    queue.add("a");
    let item = ready(&queue);
    queue.add("a");
    drop(item.get_next());
    assert_eq!(all_ready(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn get_next_releases_its_key_when_task_must_yield() {
    let (_env, queue) = started();
    queue.add("a");
    let item = ready(&queue);
    queue.add("a");
    while tokio::task::coop::has_budget_remaining() {
        tokio::task::coop::consume_budget().await;
    }
    let mut next = Box::pin(item.get_next());
    assert!(poll_fn(|cx| Poll::Ready(next.poll_unpin(cx).is_pending())).await, "no budget remains");
    assert_eq!(all_ready(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn parked_key_stays_parked_when_its_worker_gets_next_key() {
    let (_env, queue) = started();
    ["a", "b"].iter().for_each(|key| queue.add(key));
    let item = ready(&queue);
    item.park(crate::ParkReason("closed"));
    let item = item.get_next().await.expect("the queue is open");
    assert_eq!((*item.key(), queue.count_parked(crate::ParkReason("closed"))), ("b", 1));
}
