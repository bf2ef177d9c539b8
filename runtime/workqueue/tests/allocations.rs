//! Measurements of allocations: adding and processing keys does not allocate once the queue has held as many keys
//! before.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use windlass_env::Env;
use windlass_metrics::Metrics;
use windlass_workqueue::{AddOptions, Exponential, Item, Priority, Queue};

/// Key with shared strings, as in controllers: a clone copies pointers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Named {
    namespace: Arc<str>,
    name: Arc<str>,
}

fn keys() -> Vec<Named> {
    let namespaces: Vec<Arc<str>> = (0..10).map(|number| format!("namespace-{number}").into()).collect();
    (0..1_000)
        .map(|number| Named {
            namespace: Arc::clone(&namespaces[number % 10]),
            name: format!("name-{number}").into(),
        })
        .collect()
}

fn queue() -> Queue<Named> {
    let queue = Queue::new(Env::system("test"), "q", Metrics::new().workqueue("q"));
    queue.fair_by(|key: &Named| &*key.namespace);
    queue
}

fn get(queue: &Queue<Named>) -> Item<Named> {
    let got = tokio::task::unconstrained(queue.get()).now_or_never();
    got.flatten().expect("a key is ready")
}

/// Returns the number of allocations in the second of two equal rounds.
fn in_steady_state(mut round: impl FnMut()) -> u64 {
    round();
    allocation_counter::measure(round).count_total
}

#[test]
fn consecutive_keys_allocate_nothing() {
    let (queue, keys) = (queue(), keys());
    let allocations = in_steady_state(|| {
        for key in &keys {
            queue.add(key.clone());
            drop(get(&queue));
            queue.forget(key);
        }
    });
    assert_eq!(allocations, 0);
}

#[test]
fn resting_keys_allocate_nothing() {
    let (queue, keys) = (queue(), keys());
    let allocations = in_steady_state(|| {
        for key in &keys {
            queue.add(key.clone());
            let mut item = get(&queue);
            item.rest(Duration::from_secs(3600));
            drop(item);
            queue.add(key.clone());
            queue.end_rest(key);
            drop(get(&queue));
        }
    });
    assert_eq!(allocations, 0);
}

#[test]
fn getting_next_key_with_an_item_allocates_nothing() {
    let (queue, keys) = (queue(), keys());
    let allocations = in_steady_state(|| {
        keys.iter().for_each(|key| queue.add(key.clone()));
        let mut item = get(&queue);
        for _ in 1..keys.len() {
            let next = tokio::task::unconstrained(item.get_next()).now_or_never();
            item = next.flatten().expect("a key is ready");
        }
    });
    assert_eq!(allocations, 0);
}

#[test]
fn many_keys_with_tenants_and_priorities_allocate_nothing() {
    let (queue, keys) = (queue(), keys());
    let mut held = Vec::with_capacity(keys.len());
    let allocations = in_steady_state(|| {
        for (number, key) in keys.iter().enumerate() {
            let priority = [Priority::LOW, Priority::NORMAL, Priority::HIGH][number % 3];
            queue.add_with(key.clone(), AddOptions::now().priority(priority));
        }
        queue.add_all(keys.iter().cloned(), Priority::NORMAL);
        held.extend(keys.iter().map(|_| get(&queue)));
        // Added again while in progress, and raised while queued.
        keys.iter().for_each(|key| queue.add(key.clone()));
        held.clear();
        keys.iter().for_each(|key| queue.add_with(key.clone(), AddOptions::now().priority(Priority::HIGH)));
        keys.iter().for_each(|_| drop(get(&queue)));
    });
    assert_eq!(allocations, 0);
}

#[test]
fn setting_and_cancelling_delays_allocates_nothing() {
    let (queue, keys) = (queue(), keys());
    let allocations = in_steady_state(|| {
        keys.iter().for_each(|key| queue.add_after(key.clone(), Duration::from_secs(3600)));
        keys.iter().for_each(|key| queue.add_after(key.clone(), Duration::from_secs(60)));
        keys.iter().for_each(|key| assert!(queue.cancel_delayed(key)));
    });
    assert_eq!(allocations, 0);
}

/// The first failure uses an entry in the limiter, and `forget` frees it: many failures leave no memory in use.
#[test]
fn repeated_failures_allocate_nothing() {
    let (queue, keys) = (queue(), keys());
    let an_hour = Duration::from_secs(3600);
    queue.replace_limiter(Box::new(Exponential::new(an_hour, 2 * an_hour)));
    let allocations = in_steady_state(|| {
        keys.iter().for_each(|key| queue.add_rate_limited(key.clone()));
        keys.iter().for_each(|key| assert!(queue.cancel_delayed(key)));
    });
    assert_eq!(allocations, 0);
}

#[test]
fn waiting_for_next_key_allocates_nothing() {
    let (queue, keys) = (queue(), keys());
    let mut cx = Context::from_waker(Waker::noop());
    let allocations = in_steady_state(|| {
        for key in &keys {
            let mut next = pin!(tokio::task::unconstrained(queue.get()));
            assert!(next.as_mut().poll(&mut cx).is_pending());
            queue.add(key.clone());
            let Poll::Ready(Some(item)) = next.poll(&mut cx) else { panic!("{key:?} was added") };
            assert_eq!(item.key(), key);
        }
    });
    assert_eq!(allocations, 0);
}

#[test]
fn allocation_counter_counts_allocations() {
    assert_eq!(allocation_counter::measure(|| drop(Box::new(7))).count_total, 1);
}
