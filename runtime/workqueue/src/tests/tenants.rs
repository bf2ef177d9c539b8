//! One tenant cannot starve another.

use std::sync::Arc;
use std::time::Duration;

use windlass_env::Env;

use super::{all_ready, before_the_slash, ready, shared, started};
use crate::{AddOptions, Priority, Queue};

/// Key with a namespace, as in controllers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Named {
    namespace: Arc<str>,
    name: u32,
}

fn named(namespace: &str, name: u32) -> Named {
    Named { namespace: namespace.into(), name }
}

fn by_namespace(env: &Env) -> Queue<Named> {
    let queue = Queue::new(env.clone(), "test", None);
    queue.fair_by(|key: &Named| &*key.namespace);
    queue
}

// parity: fairness-between-tenants
#[tokio::test(start_paused = true)]
async fn tenant_with_many_keys_does_not_delay_another() {
    let env = Env::virtual_time(1);
    let queue = by_namespace(&env);
    queue.add_all((0..100_000).map(|name| named("big", name)), Priority::NORMAL);
    queue.add_all((0..3).map(|name| named("small", name)), Priority::NORMAL);
    let first: Vec<Named> = (0..8).map(|_| ready(&queue).key().clone()).collect();
    let small = first.iter().filter(|key| &*key.namespace == "small").count();
    assert_eq!(small, 3, "{first:?}");
    assert_eq!(queue.len(), 100_003 - 8);
}

// parity: fairness-between-tenants
#[tokio::test(start_paused = true)]
async fn tenants_are_served_in_turn_and_their_keys_in_order() {
    let queue = shared(&Env::virtual_time(1));
    for key in ["a/1", "a/2", "a/3", "b/1", "b/2", "c/1", "a/4"] {
        queue.add(key);
    }
    assert_eq!(all_ready(&queue), ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3", "a/4"]);
}

#[tokio::test(start_paused = true)]
async fn priority_precedes_fairness() {
    let queue = shared(&Env::virtual_time(1));
    queue.add("a/low");
    queue.add("b/low");
    queue.add_with("a/1", AddOptions::now().priority(Priority::HIGH));
    queue.add_with("a/2", AddOptions::now().priority(Priority::HIGH));
    assert_eq!(all_ready(&queue), ["a/1", "a/2", "a/low", "b/low"]);
}

#[tokio::test(start_paused = true)]
async fn returning_tenant_is_served_last_in_its_round() {
    let queue = shared(&Env::virtual_time(1));
    ["a/1", "b/1", "b/2", "c/1"].into_iter().for_each(|key| queue.add(key));
    drop(ready(&queue));
    queue.add("a/2");
    assert_eq!(all_ready(&queue), ["b/1", "c/1", "a/2", "b/2"]);
}

#[tokio::test(start_paused = true)]
async fn raised_key_keeps_position_of_other_keys_of_its_tenant() {
    let queue = shared(&Env::virtual_time(1));
    ["a/1", "a/2", "a/3", "b/1"].into_iter().for_each(|key| queue.add(key));
    queue.add_with("a/2", AddOptions::now().priority(Priority::HIGH));
    assert_eq!(all_ready(&queue), ["a/2", "a/1", "b/1", "a/3"]);
}

#[tokio::test(start_paused = true)]
async fn requeued_and_due_keys_count_for_their_tenant() {
    let env = Env::virtual_time(1);
    let queue = shared(&env);
    queue.add("a/again");
    let held = ready(&queue);
    queue.add("a/again");
    queue.add_after("b/due", Duration::from_millis(1));
    ["a/1", "a/2"].into_iter().for_each(|key| queue.add(key));
    drop(held);
    env.sleep(Duration::from_millis(1)).await;
    assert_eq!(all_ready(&queue), ["a/1", "b/due", "a/2", "a/again"]);
}

#[tokio::test(start_paused = true)]
async fn fair_by_applies_to_later_keys() {
    let (_env, queue) = started();
    ["a/1", "a/2", "b/1"].into_iter().for_each(|key| queue.add(key));
    queue.fair_by(before_the_slash);
    ["c/1", "d/1", "c/2"].into_iter().for_each(|key| queue.add(key));
    assert_eq!(all_ready(&queue), ["a/1", "c/1", "d/1", "a/2", "c/2", "b/1"]);
}

#[tokio::test(start_paused = true)]
async fn idle_tenants_are_removed_and_their_numbers_reused() {
    let env = Env::virtual_time(1);
    let queue = by_namespace(&env);
    for round in 0..3 {
        for tenant in 0..2_000 {
            queue.add(named(&format!("tenant-{tenant}"), round));
            drop(ready(&queue));
        }
    }
    (0..3).for_each(|name| queue.add(named("tenant-7", name)));
    (0..2).for_each(|name| queue.add(named("other", name)));
    let order: Vec<String> = (0..5).map(|_| ready(&queue).key().namespace.to_string()).collect();
    assert_eq!(order, ["tenant-7", "other", "tenant-7", "other", "tenant-7"]);
}

#[tokio::test(start_paused = true)]
async fn panic_in_fair_by_loses_only_the_add_that_caused_it() {
    let (_env, queue) = started();
    queue.fair_by(|key| {
        assert!(*key != "broken", "broken");
        before_the_slash(key)
    });
    queue.add("a/1");
    assert!(windlass_env::catch_panic_sync(|| queue.add("broken")).is_err());
    assert!(!queue.cancel_delayed(&"broken"));
    queue.add("a/2");
    assert_eq!(all_ready(&queue), ["a/1", "a/2"]);
    queue.shut_down();
    assert!(format!("{queue:?}").contains("ready: 0, in_flight: 0"), "{queue:?}");
}
