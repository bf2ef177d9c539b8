//! Priorities: higher priorities are dequeued first, and lower ones are not starved.

use std::time::Duration;

use windlass_env::Env;

use super::{all_ready, ms, nothing_ready, ready, started};
use crate::schedule::{AGED_AFTER, AGED_SHARE};
use crate::{AddOptions, Priority, Queue};

const HIGH: Priority = Priority::HIGH;
const NORMAL: Priority = Priority::NORMAL;
const LOW: Priority = Priority::LOW;

fn numbers(env: &Env) -> Queue<u32> {
    Queue::new(env.clone(), "test", None)
}

/// Dequeues and releases one key.
fn next(queue: &Queue<u32>) -> u32 {
    *ready(queue).key()
}

// parity: priority-queue-highest-first, high-before-low-many, no-priority
#[tokio::test(start_paused = true)]
async fn higher_priority_is_first_and_equal_priorities_are_fifo() {
    let (_env, queue) = started();
    for (key, priority) in
        [("a", LOW), ("b", NORMAL), ("c", HIGH), ("d", Priority(7)), ("e", HIGH), ("f", LOW)]
    {
        queue.add_with(key, AddOptions::now().priority(priority));
    }
    assert_eq!(all_ready(&queue), ["c", "e", "d", "b", "a", "f"]);
}

// parity: high-before-low-many
#[tokio::test(start_paused = true)]
async fn five_priority_levels_of_many_keys_are_dequeued_in_order() {
    const LEVELS: [i32; 5] = [10, 5, 0, -5, -10];
    for delay in [Duration::ZERO, Duration::from_secs(1)] {
        let env = Env::virtual_time(1);
        let queue = numbers(&env);
        for n in 0..1_000 {
            for (level, priority) in (0..).zip(LEVELS) {
                queue.add_with(level * 1_000 + n, AddOptions::after(delay).priority(Priority(priority)));
            }
        }
        env.sleep(delay).await;
        assert!((0..5_000).all(|expected| next(&queue) == expected), "{delay:?}");
        assert!(nothing_ready(&queue));
    }
}

// parity: gets-pushed-front-if
#[tokio::test(start_paused = true)]
async fn waiting_key_is_raised_to_the_back_of_the_higher_priority() {
    let (_env, queue) = started();
    queue.add("raised");
    queue.add_with("first", AddOptions::now().priority(HIGH));
    queue.add_with("raised", AddOptions::now().priority(HIGH));
    queue.add_with("last", AddOptions::now().priority(HIGH));
    queue.add("normal");
    assert_eq!(queue.len(), 4, "raised, not duplicated");
    assert_eq!(all_ready(&queue), ["first", "raised", "last", "normal"]);
}

// parity: retains-highest-priority-not
#[tokio::test(start_paused = true)]
async fn waiting_key_is_never_lowered() {
    let (_env, queue) = started();
    queue.add_with("a", AddOptions::now().priority(HIGH));
    queue.add_with("a", AddOptions::now().priority(LOW));
    queue.add("b");
    let item = ready(&queue);
    assert_eq!((*item.key(), item.priority()), ("a", HIGH));
}

// parity: retains-highest-priority-not
#[tokio::test(start_paused = true)]
async fn priority_of_add_during_processing_applies_to_requeue() {
    let (_env, queue) = started();
    queue.add_with("a", AddOptions::now().priority(HIGH));
    let held = ready(&queue);
    queue.add_with("a", AddOptions::now().priority(LOW));
    queue.add_with("a", AddOptions::now().priority(Priority(-1)));
    queue.add_with("a", AddOptions::now().priority(LOW));
    queue.add("b");
    drop(held);
    assert_eq!(*ready(&queue).key(), "b", "the priority of the finished run does not apply");
    assert_eq!(ready(&queue).priority(), Priority(-1), "the highest priority of the adds during processing");
}

// parity: retains-highest-priority-not
#[tokio::test(start_paused = true)]
async fn delayed_key_keeps_highest_priority_and_earliest_time() {
    let (env, queue) = started();
    queue.add_with("a", AddOptions::after(ms(20)).priority(HIGH));
    queue.add_with("a", AddOptions::after(ms(10)).priority(LOW));
    queue.add_with("a", AddOptions::after(ms(30)).priority(Priority(1_000)));
    env.sleep(ms(10)).await;
    let item = ready(&queue);
    assert_eq!((*item.key(), item.priority()), ("a", Priority(1_000)));
}

#[tokio::test(start_paused = true)]
async fn add_that_supersedes_a_retry_is_as_urgent_as_the_retry_was() {
    let (_env, queue) = started();
    queue.add_with("a", AddOptions::rate_limited().priority(HIGH));
    queue.add_with("a", AddOptions::now().priority(LOW));
    assert_eq!(ready(&queue).priority(), HIGH);
}

// parity: high-before-low-many
#[tokio::test(start_paused = true)]
async fn expired_delay_raises_queued_key() {
    let (env, queue) = started();
    queue.add_with("a", AddOptions::after(ms(5)).priority(HIGH));
    queue.add_with("a", AddOptions::now().priority(LOW));
    queue.add("b");
    env.sleep(ms(5)).await;
    assert_eq!(all_ready(&queue), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn add_all_is_equivalent_to_single_adds() {
    let (_env, queue) = started();
    queue.add("c");
    queue.add_all(["a", "b", "a", "c"], HIGH);
    queue.add_all(["d"], LOW);
    assert_eq!(all_ready(&queue), ["a", "b", "c", "d"]);
    queue.shut_down();
    queue.add_all(["e"], HIGH);
    assert_eq!(queue.len(), 0);
}

// parity: floods-initial-list-naive, priority-queue-highest-first, priority-queue-starves-shutdown
#[tokio::test(start_paused = true)]
async fn low_priority_is_not_starved_by_higher_keys() {
    let env = Env::virtual_time(1);
    let queue = numbers(&env);
    let low = 1_000_000..1_000_003;
    queue.add_all(low.clone(), LOW);
    queue.add(0);
    let mut came = Vec::new();
    // A worker needs 100 ms per key, and there is always another of normal priority.
    for turn in 1..200 {
        queue.add(turn);
        let key = next(&queue);
        if low.contains(&key) {
            came.push((turn, env.now().since_origin()));
        }
        env.sleep(ms(100)).await;
    }
    let turns: Vec<u32> = came.iter().map(|(turn, _)| *turn).collect();
    assert_eq!(turns, [108, 116, 124], "after ten seconds, every eighth turn");
}

#[tokio::test(start_paused = true)]
async fn oldest_aged_level_is_served_first() {
    let env = Env::virtual_time(1);
    let queue = numbers(&env);
    queue.add_with(1, AddOptions::now().priority(Priority(-2)));
    env.sleep(ms(1)).await;
    queue.add_with(2, AddOptions::now().priority(Priority(-1)));
    env.sleep(AGED_AFTER).await;
    queue.add_all(10..30, NORMAL);
    let order: Vec<u32> = (0..18).map(|_| next(&queue)).collect();
    assert_eq!(order, [10, 11, 12, 13, 14, 15, 16, 1, 17, 18, 19, 20, 21, 22, 23, 2, 24, 25]);
}

// parity: priority-queue-starves-shutdown
#[tokio::test(start_paused = true)]
async fn old_low_priority_keys_get_only_their_share() {
    let env = Env::virtual_time(1);
    let queue = numbers(&env);
    queue.add_all(0..100_000, LOW);
    env.sleep(Duration::from_secs(3600)).await;
    queue.add_all(200_000..200_070, NORMAL);
    let order: Vec<u32> = (0..80).map(|_| next(&queue)).collect();
    let fresh = order.iter().filter(|key| **key >= 200_000).count();
    assert_eq!(fresh, 70, "new keys keep seven turns in eight");
}

// parity: no-priority
#[tokio::test(start_paused = true)]
async fn priorities_are_strict_until_a_key_has_waited_ten_seconds() {
    let env = Env::virtual_time(1);
    let queue = numbers(&env);
    queue.add_with(1, AddOptions::now().priority(LOW));
    queue.add_all(10..40, NORMAL);
    env.sleep(AGED_AFTER - ms(1)).await;
    assert!((10..30).all(|expected| next(&queue) == expected));
    env.sleep(ms(1)).await;
    assert!((30..37).all(|expected| next(&queue) == expected));
    assert_eq!([next(&queue), next(&queue)], [1, 37], "the eighth turn since then");
}

#[tokio::test(start_paused = true)]
async fn levels_are_created_and_removed_without_limit() {
    let env = Env::virtual_time(1);
    let queue = numbers(&env);
    for round in 0..3 {
        let priority = |key: u32| Priority(i32::try_from(key * 37 % 100).unwrap_or_default() + round);
        (0..100).for_each(|key| queue.add_with(key, AddOptions::now().priority(priority(key))));
        let handed: Vec<Priority> = (0..100).map(|_| priority(next(&queue))).collect();
        assert!(handed.is_sorted_by(|a, b| a >= b), "{handed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn raised_keys_do_not_starve_another_tenant() {
    let env = Env::virtual_time(1);
    let queue: Queue<String> = Queue::new(env.clone(), "test", None);
    queue.fair_by(|key: &String| key.split('/').next().unwrap_or_default());
    let add = |key: String, priority| queue.add_with(key, AddOptions::now().priority(priority));
    add("busy/0".into(), LOW);
    add("other/0".into(), LOW);
    for second in 1..=2 * AGED_AFTER.as_secs() {
        // The busy tenant always has a key of low priority, and none of them is old.
        add(format!("busy/{second}"), LOW);
        add(format!("busy/{}", second - 1), HIGH);
        (0..AGED_SHARE).for_each(|n| add(format!("urgent/{n}"), HIGH));
        env.sleep(Duration::from_secs(1)).await;
        if (0..AGED_SHARE).any(|_| ready(&queue).key() == "other/0") {
            return;
        }
    }
    panic!("the key of the other tenant is never dequeued");
}
