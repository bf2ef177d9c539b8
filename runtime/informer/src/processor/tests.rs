//! The queue of one handler: the delivery of pending events, and when the handler counts as synced.

use std::collections::BTreeSet;

use futures_util::FutureExt as _;
use proptest::prelude::*;
use windlass_metrics::Metrics;

use super::pending::MAX_PENDING_STATES;
use super::*;
use crate::handler::{DeletionEvidence, Delivery};

type TestEvent = Event<u32>;

fn listener<T: Clone + Send + Sync + 'static>() -> Arc<Listener<T>> {
    listener_of(Delivery::Coalesced)
}

fn listener_of<T: Clone + Send + Sync + 'static>(delivery: Delivery) -> Arc<Listener<T>> {
    Arc::new(Listener::new("test", 1, delivery, Metrics::new().informer("", "v1", "configmaps")))
}

/// Returns a listener that has received an empty initial list.
fn synced_listener<T: Clone + Send + Sync + 'static>(delivery: Delivery) -> Arc<Listener<T>> {
    let listener = listener_of(delivery);
    listener.initial_list_ended();
    assert!(next(&listener).is_empty() && listener.state().get() == HandlerState::Synced);
    listener
}

fn resync<T: Clone + Send + Sync + 'static>(listener: &Listener<T>, objects: Vec<T>) {
    listener.resync(|| Box::new(objects.into_iter()));
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::cluster(name)
}

fn added<T>(object: T) -> Event<T> {
    Event::Added { object, cause: Cause::Watch }
}

fn updated<T>(old: T, new: T) -> Event<T> {
    Event::Updated { old, new, cause: Cause::Watch }
}

fn resynced<T: Clone>(object: T) -> Event<T> {
    Event::Updated { old: object.clone(), new: object, cause: Cause::Resync }
}

fn deleted<T>(last: T) -> Event<T> {
    Event::Deleted { last, observed: DeletionEvidence::Observed, cause: Cause::Watch }
}

fn enqueue<T: Clone + Send + Sync + 'static>(listener: &Listener<T>, name: &str, uid: &str, event: Event<T>) {
    listener.enqueue(&key(name), Some(&uid.into()), event);
}

/// Returns the events that the handler receives next.
fn next<T: Clone + Send + Sync + 'static>(listener: &Listener<T>) -> Vec<Event<T>> {
    work(listener).unwrap_or_default()
}

fn everything<T: Clone + Send + Sync + 'static>(listener: &Listener<T>) -> Vec<Event<T>> {
    std::iter::from_fn(|| work(listener)).flatten().collect()
}

/// Returns the next events of the handler, possibly none; `None` if no work is pending.
fn work<T: Clone + Send + Sync + 'static>(listener: &Listener<T>) -> Option<Vec<Event<T>>> {
    Some(match listener.next().now_or_never()?? {
        HandlerWork::Deliver(pending) => pending.into_events().collect(),
        HandlerWork::Replay(objects) => additions(objects).collect(),
        HandlerWork::Resync(objects) => resyncs(objects).collect(),
        HandlerWork::Missed => Vec::new(),
    })
}

/// Returns the states by which a controller maps events to keys: both sides of every event.
fn mapped(events: &[Event<&'static str>]) -> BTreeSet<&'static str> {
    let states = events.iter().flat_map(|event| match event {
        Event::Updated { old, new, .. } => vec![*old, *new],
        other => vec![*other.object()],
    });
    states.collect()
}

#[test]
fn pending_changes_of_one_object_are_delivered_one_by_one() {
    let listener = listener();
    enqueue(&listener, "a", "u", updated(1, 2));
    enqueue(&listener, "a", "u", updated(2, 3));
    enqueue(&listener, "b", "w", added(1));
    enqueue(&listener, "b", "w", updated(1, 9));
    assert_eq!(everything(&listener), [updated(1, 2), updated(2, 3), added(1), updated(1, 9)]);
}

#[test]
fn relabel_before_deletion_is_delivered() {
    let listener = listener();
    enqueue(&listener, "pod", "u", added("app=a"));
    assert_eq!(next(&listener), [added("app=a")]);
    enqueue(&listener, "pod", "u", updated("app=a", "app=debug"));
    enqueue(&listener, "pod", "u", deleted("app=debug"));
    let delivered = everything(&listener);
    assert_eq!(delivered, [updated("app=a", "app=debug"), deleted("app=debug")]);
    assert_eq!(mapped(&delivered), BTreeSet::from(["app=a", "app=debug"]));
}

#[test]
fn owner_change_before_deletion_of_unseen_object_is_delivered() {
    let listener = listener();
    enqueue(&listener, "pod", "u", added("owned"));
    enqueue(&listener, "pod", "u", updated("owned", "orphan"));
    enqueue(&listener, "pod", "u", deleted("orphan"));
    let delivered = everything(&listener);
    assert_eq!(delivered, [added("owned"), updated("owned", "orphan"), deleted("orphan")]);
    assert!(mapped(&delivered).contains("owned"));
}

#[test]
fn reverted_intermediate_state_is_delivered() {
    let listener = listener();
    enqueue(&listener, "pod", "u", updated("ready", "unready"));
    enqueue(&listener, "pod", "u", updated("unready", "ready"));
    assert_eq!(everything(&listener), [updated("ready", "unready"), updated("unready", "ready")]);
}

#[test]
fn intermediate_labels_are_delivered_when_handler_is_busy() {
    let listener = listener();
    enqueue(&listener, "pod", "u", updated("app=a", "app=b"));
    enqueue(&listener, "pod", "u", updated("app=b", "app=c"));
    assert_eq!(mapped(&everything(&listener)), BTreeSet::from(["app=a", "app=b", "app=c"]));
}

// parity: test-update
#[test]
fn update_starts_from_last_delivered_state() {
    let listener = listener();
    enqueue(&listener, "a", "u", added(1));
    enqueue(&listener, "a", "u", updated(1, 2));
    assert_eq!(next(&listener), [added(1), updated(1, 2)]);
    enqueue(&listener, "a", "u", updated(2, 3));
    enqueue(&listener, "a", "u", updated(3, 4));
    assert_eq!(next(&listener), [updated(2, 3), updated(3, 4)]);
}

// parity: no-cause-event-reconcile
#[test]
fn each_state_is_delivered_with_its_own_cause() {
    let listener = listener();
    let causes = [Cause::Relist, Cause::Watch, Cause::Watch];
    for (version, cause) in (1..).zip(causes) {
        enqueue(&listener, "a", "u", Event::Updated { old: version, new: version + 1, cause });
    }
    assert_eq!(everything(&listener).iter().map(Event::cause).collect::<Vec<_>>(), causes);
}

/// Returns a listener with the pending versions from one to `last`, for a handler that has received none.
fn waiting_history(last: u32) -> Arc<Listener<u32>> {
    let listener = listener();
    enqueue(&listener, "a", "u", added(1));
    for version in 1..last {
        enqueue(&listener, "a", "u", updated(version, version + 1));
    }
    listener
}

// parity: ring-growing
#[test]
fn sixteen_pending_states_of_one_object_are_kept() {
    assert_eq!(everything(&waiting_history(16)).len(), 16);
}

/// Upstream's buffers grow without bound behind a slow handler (kubernetes#121474).
// parity: ring-growing, listener-rings-grow-without
#[test]
fn oldest_intermediate_states_are_dropped_above_limit() {
    let delivered = everything(&waiting_history(20));
    assert_eq!(delivered.len(), MAX_PENDING_STATES);
    assert_eq!(delivered[..3], [added(1), updated(1, 6), updated(6, 7)]);
    assert_eq!(delivered.last(), Some(&updated(19, 20)));
}

#[test]
fn last_delivered_state_and_deletion_are_kept_above_limit() {
    let listener = listener();
    for version in 0..20 {
        enqueue(&listener, "a", "u", updated(version, version + 1));
    }
    enqueue(&listener, "a", "u", deleted(20));
    let delivered = everything(&listener);
    assert_eq!(delivered.len(), MAX_PENDING_STATES);
    assert_eq!(delivered[..2], [updated(0, 6), updated(6, 7)]);
    assert_eq!(delivered[14..], [updated(19, 20), deleted(20)]);
}

#[test]
fn repeated_recreation_under_one_uid_stays_within_limit() {
    let listener = listener();
    enqueue(&listener, "a", "u", updated(0, 1));
    for version in 1..50 {
        enqueue(&listener, "a", "u", deleted(version));
        enqueue(&listener, "a", "u", added(version + 1));
    }
    let delivered = everything(&listener);
    assert!(delivered.len() <= MAX_PENDING_STATES, "{delivered:?}");
    assert_eq!(delivered[delivered.len() - 2..], [deleted(49), added(50)]);
    let is_deletion = |event: &TestEvent| matches!(event, Event::Deleted { .. });
    assert!(delivered.windows(2).all(|pair| is_deletion(&pair[0]) != is_deletion(&pair[1])), "{delivered:?}");
}

#[test]
fn deletion_is_delivered_for_object_created_while_handler_is_busy() {
    let listener = listener();
    enqueue(&listener, "a", "u", added(1));
    enqueue(&listener, "a", "u", deleted(2));
    assert_eq!(everything(&listener), [added(1), deleted(2)]);
}

#[test]
fn changes_of_different_uids_are_never_merged() {
    let listener = listener();
    enqueue(&listener, "a", "u", updated(1, 2));
    enqueue(&listener, "a", "u", deleted(3));
    enqueue(&listener, "a", "w", added(4));
    enqueue(&listener, "a", "w", deleted(5));
    enqueue(&listener, "a", "x", added(6));
    assert_eq!(everything(&listener), [updated(1, 2), deleted(3), added(4), deleted(5), added(6)]);
}

#[test]
fn deletions_without_uids_are_never_merged() {
    let listener = listener();
    for event in [deleted(1), added(2), deleted(3), added(4)] {
        listener.enqueue(&key("a"), None, event);
    }
    let deletions = everything(&listener).into_iter().filter(|event| matches!(event, Event::Deleted { .. }));
    assert_eq!(deletions.collect::<Vec<_>>(), [deleted(1), deleted(3)]);
}

#[test]
fn recreated_object_is_delivered_as_deletion_and_addition() {
    let listener = listener();
    enqueue(&listener, "a", "u", deleted(1));
    enqueue(&listener, "a", "u", added(2));
    enqueue(&listener, "a", "u", updated(2, 3));
    assert_eq!(everything(&listener), [deleted(1), added(2), updated(2, 3)]);
}

#[test]
fn pending_object_keeps_queue_position_when_it_changes() {
    let listener = listener();
    enqueue(&listener, "a", "u", added(1));
    enqueue(&listener, "b", "w", added(10));
    enqueue(&listener, "a", "u", updated(1, 2));
    assert_eq!(everything(&listener), [added(1), updated(1, 2), added(10)]);
}

// parity: on-update, test-real-fifo-resync
#[test]
fn resync_is_delivered_in_order_with_changes() {
    let listener = synced_listener(Delivery::Coalesced);
    enqueue(&listener, "a", "u", updated(1, 2));
    resync(&listener, vec![2]);
    enqueue(&listener, "a", "u", updated(2, 3));
    enqueue(&listener, "a", "u", deleted(3));
    let delivered = everything(&listener);
    assert_eq!(delivered, [updated(1, 2), resynced(2), updated(2, 3), deleted(3)]);
}

#[test]
fn at_most_one_resync_is_pending_and_none_before_sync() {
    let listener = listener();
    resync(&listener, vec![1]);
    assert_eq!(everything(&listener), []);
    listener.initial_list_ended();
    assert_eq!(everything(&listener), []);
    for version in [1, 2, 3] {
        resync(&listener, vec![version]);
    }
    assert_eq!(everything(&listener), [resynced(1)]);
    resync(&listener, vec![4]);
    assert_eq!(everything(&listener), [resynced(4)]);
}

#[test]
fn resync_creates_objects_only_on_delivery() {
    let listener = synced_listener(Delivery::Coalesced);
    let made = Arc::new(Mutex::new(0));
    let count = Arc::clone(&made);
    listener.resync(|| Box::new((0..1_000_000).inspect(move |_| *count.lock().unwrap() += 1)));
    assert_eq!((listener.lock().waiting.len(), *made.lock().unwrap()), (1, 0));
}

/// Upstream delivers all objects to a late handler under the informer's lock and blocks all other handlers meanwhile.
// parity: replay-late-handler-blocks
#[test]
fn snapshot_for_late_handler_is_created_only_on_delivery() {
    let listener = listener();
    let made = Arc::new(Mutex::new(0));
    let count = Arc::clone(&made);
    listener.replay(Box::new((0..1_000_000).inspect(move |_| *count.lock().unwrap() += 1)));
    listener.initial_list_ended();
    enqueue(&listener, "a", "u", updated(0, 1));
    assert_eq!((listener.lock().waiting.len(), *made.lock().unwrap()), (2, 0));
}

#[test]
fn every_event_handler_receives_events_in_global_order() {
    let listener = synced_listener(Delivery::EveryEvent { bound: 100 });
    let mut happened = Vec::new();
    for version in 0..50 {
        for name in ["a", "b"] {
            let event = updated(version, version + 1);
            enqueue(&listener, name, "u", event.clone());
            happened.push(event);
        }
    }
    assert_eq!(everything(&listener), happened);
    assert_eq!(listener.failure(), None);
}

// parity: ring-growing, listener-rings-grow-without
#[test]
fn every_event_handler_is_removed_when_it_falls_behind() {
    let listener = synced_listener(Delivery::EveryEvent { bound: 2 });
    resync(&listener, vec![0]);
    for version in 0..3 {
        enqueue(&listener, "a", "u", updated(version, version + 1));
        assert_eq!(
            listener.failure().is_some(),
            version == 2,
            "the third change exceeds the bound, the resync does not count"
        );
    }
    enqueue(&listener, "a", "u", updated(3, 4));
    assert_eq!(listener.metrics.handler_overflows.get(), 1, "it is removed once");
    assert!(listener.failure().unwrap().to_string().contains("more than 2 events were pending"));
    assert_eq!(listener.state().get(), HandlerState::Stopped);
    assert!(listener.next().now_or_never().expect("it ends at once").is_none());
}

#[test]
fn initial_list_does_not_count_against_every_event_bound() {
    let listener = listener_of(Delivery::EveryEvent { bound: 1 });
    for version in 0..10 {
        let event = Event::Added { object: version, cause: Cause::InitialList };
        enqueue(&listener, &version.to_string(), "u", event);
    }
    enqueue(&listener, "10", "u", added(10));
    assert_eq!((everything(&listener).len(), listener.failure()), (11, None));
    assert_eq!(listener.lock().changes(), 0);
}

#[test]
fn zero_bound_allows_one_pending_change() {
    let listener = synced_listener(Delivery::EveryEvent { bound: 0 });
    enqueue(&listener, "a", "u", added(1));
    assert_eq!(everything(&listener), [added(1)]);
}

#[test]
fn handler_removed_before_start_never_runs() {
    let listener = listener::<u32>();
    enqueue(&listener, "a", "u", added(1));
    listener.detach();
    assert_eq!(listener.state().get(), HandlerState::Stopped);
    let ran = Arc::clone(&listener).run(Box::new(|_: &TestEvent| panic!("it was removed")));
    assert_eq!(ran.now_or_never(), Some(()));
    assert_eq!(listener.metrics.handler_panics.get(), 0);
}

#[test]
fn handler_with_unpolled_task_is_gone_once_dropped() {
    let (listener, captured) = (listener::<u32>(), Arc::new(()));
    let held = Arc::clone(&captured);
    let task = Arc::clone(&listener).run(Box::new(move |_: &TestEvent| drop(Arc::clone(&held))));
    listener.detach();
    assert_eq!((listener.state().get(), Arc::strong_count(&captured)), (HandlerState::Removed, 2));
    drop(task);
    assert_eq!((listener.state().get(), Arc::strong_count(&captured)), (HandlerState::Stopped, 1));
}

#[test]
fn handler_with_aborted_task_is_gone() {
    let listener = listener::<u32>();
    let mut running = Box::pin(Arc::clone(&listener).run(Box::new(|_: &TestEvent| {})));
    assert_eq!(running.as_mut().now_or_never(), None);
    listener.detach();
    assert_eq!(listener.state().get(), HandlerState::Removed, "its task has not run yet");
    drop(running);
    assert_eq!(listener.state().get(), HandlerState::Stopped);
}

// parity: test-basic-logic
#[test]
fn handler_is_synced_after_delivery_of_initial_list() {
    let listener = listener();
    let synced = || listener.state().get() == HandlerState::Synced;
    listener.replay(Box::new([1, 2].into_iter()));
    listener.initial_list_ended();
    enqueue(&listener, "a", "u", updated(1, 3));
    assert_eq!(next(&listener).len(), 2);
    assert!(!synced(), "the replay was dequeued, but its delivery is known only at the next dequeue");
    assert_eq!(next(&listener), [updated(1, 3)]);
    assert!(synced());
}

// parity: test-basic-logic
#[test]
fn later_changes_do_not_delay_handler_sync() {
    let listener = listener();
    enqueue(&listener, "a", "u", added(1));
    listener.initial_list_ended();
    enqueue(&listener, "a", "u", updated(1, 2));
    enqueue(&listener, "b", "w", added(3));
    assert_eq!(next(&listener), [added(1), updated(1, 2)]);
    assert_eq!(next(&listener), [added(3)]);
    assert_eq!(listener.state().get(), HandlerState::Synced);
}

// parity: test-event-panics
#[test]
fn removed_handler_receives_no_pending_events() {
    let listener = listener();
    enqueue(&listener, "a", "u", added(1));
    listener.detach();
    listener.detach();
    assert!(listener.next().now_or_never().expect("it ends at once").is_none());
}

#[test]
fn events_after_removal_are_not_queued() {
    for delivery in [Delivery::Coalesced, Delivery::EveryEvent { bound: 1 }] {
        let listener = synced_listener(delivery);
        listener.detach();
        for n in 0..3 {
            enqueue(&listener, "a", "u", added(n));
        }
        listener.replay(Box::new([1].into_iter()));
        resync(&listener, vec![1]);
        assert!(listener.lock().waiting.is_empty() && listener.lock().latest.is_empty());
        assert_eq!(listener.failure(), None, "a removed handler did not fall behind");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The server changes or creates one of a few objects; after a deletion it creates the object with a new UID.
    Set(u8),
    Delete(u8),
    Resync,
    /// The handler processes one entry.
    Deliver,
}

/// Generates objects with different lifetimes and handlers with different speeds.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    (4u32..40, 1u32..4).prop_flat_map(|(changes, delivered)| {
        let step = prop_oneof![
            changes => (0u8..3).prop_map(Step::Set),
            2 => (0u8..3).prop_map(Step::Delete),
            1 => Just(Step::Resync),
            delivered => Just(Step::Deliver),
        ];
        proptest::collection::vec(step, 0..160)
    })
}

/// The server's state and the handler's view. An object is its number; the map key is its UID.
#[derive(Default)]
struct Model {
    clock: u32,
    truth: [Option<(u32, u32)>; 3],
    view: [Option<u32>; 3],
    deleted: BTreeSet<u32>,
    delivered_deletions: BTreeSet<u32>,
    /// The changes of each object, and the changes that the handler received, without resyncs.
    happened: [Vec<TestEvent>; 3],
    heard: [Vec<TestEvent>; 3],
}

impl Model {
    fn happens(&mut self, n: u8, uid: u32, event: TestEvent, listener: &Listener<u32>) {
        self.happened[usize::from(n)].push(event.clone());
        enqueue(listener, &n.to_string(), &uid.to_string(), event);
    }

    /// Versions are `uid * 100_000 + 10 * change + n`, so a version contains its UID and its object.
    fn apply(&mut self, step: Step, listener: &Listener<u32>) {
        self.clock += 1;
        match step {
            Step::Set(n) => self.set(n, listener),
            Step::Delete(n) => self.delete(n, listener),
            Step::Resync => {
                resync(listener, self.truth.iter().flatten().map(|(_, version)| *version).collect());
            }
            Step::Deliver => next(listener).into_iter().for_each(|event| self.on_event(&event)),
        }
    }

    fn set(&mut self, n: u8, listener: &Listener<u32>) {
        let (uid, event, version) = match self.truth[usize::from(n)] {
            Some((uid, old)) => (uid, updated(old, old + 10), old + 10),
            None => {
                (self.clock, added(self.clock * 100_000 + u32::from(n)), self.clock * 100_000 + u32::from(n))
            }
        };
        self.truth[usize::from(n)] = Some((uid, version));
        self.happens(n, uid, event, listener);
    }

    fn delete(&mut self, n: u8, listener: &Listener<u32>) {
        let Some((uid, version)) = self.truth[usize::from(n)].take() else { return };
        self.deleted.insert(uid);
        self.happens(n, uid, deleted(version), listener);
    }

    fn on_event(&mut self, event: &TestEvent) {
        let n = usize::try_from(event.object() % 10).expect("a digit");
        if event.cause() != Cause::Resync {
            self.heard[n].push(event.clone());
        }
        match event {
            Event::Added { object, .. } => {
                assert_eq!(self.view[n], None, "an addition of an existing object");
                self.view[n] = Some(*object);
            }
            Event::Updated { old, new, .. } => {
                assert_eq!(self.view[n], Some(*old), "an update from another state");
                assert!(old <= new, "a version moved back");
                self.view[n] = Some(*new);
            }
            Event::Deleted { last, .. } => {
                let uid = |version: u32| version / 100_000;
                assert!(
                    self.view[n].is_none_or(|held| uid(held) == uid(*last)),
                    "a deletion of another object"
                );
                assert!(self.delivered_deletions.insert(uid(*last)), "a deletion was delivered twice");
                self.view[n] = None;
            }
        }
    }
}

/// Returns the largest number of pending states of one object.
fn most_states(listener: &Listener<u32>) -> usize {
    let queue = listener.lock();
    let states = queue.waiting.values().map(|work| match work {
        HandlerWork::Deliver(pending) => pending.states(),
        HandlerWork::Replay(_) | HandlerWork::Resync(_) | HandlerWork::Missed => 0,
    });
    states.max().unwrap_or_default()
}

// parity: processor-listeners, ring-growing, listener-rings-grow-without
#[test]
fn blocked_handler_keeps_bounded_number_of_unseen_objects() {
    let listener = synced_listener(Delivery::Coalesced);
    enqueue(&listener, "known", "known", added(1));
    assert_eq!(next(&listener), [added(1)]);
    enqueue(&listener, "known", "known", deleted(1));
    enqueue(&listener, "stays", "stays", added(2));
    for number in 0..100_000_u32 {
        let name = number.to_string();
        enqueue(&listener, &name, &name, added(number));
        enqueue(&listener, &name, &name, updated(number, number + 1));
        enqueue(&listener, &name, &name, deleted(number + 1));
        let queue = listener.lock();
        assert!(queue.waiting.len() <= MAX_UNSEEN + 3 && queue.latest.len() <= MAX_UNSEEN + 3);
    }
    let delivered = everything(&listener);
    assert!(delivered.contains(&deleted(1)) && delivered.contains(&added(2)));
    assert_eq!(delivered.len(), 2 + 3 * MAX_UNSEEN, "the newest objects are delivered in full");
    assert_eq!(delivered.last(), Some(&deleted(100_000)));
}

// parity: ring-growing, listener-rings-grow-without
#[test]
fn handler_is_notified_once_of_missed_objects() {
    struct Counting(std::sync::mpsc::Sender<&'static str>);
    impl Handler<u32> for Counting {
        fn handle(&mut self, _: &Event<u32>) {
            self.0.send("event").expect("the test receives");
        }

        fn missed(&mut self) {
            self.0.send("missed").expect("the test receives");
        }
    }
    let (sender, delivered) = std::sync::mpsc::channel();
    let listener = synced_listener(Delivery::Coalesced);
    for number in 0..2 * u32::try_from(MAX_UNSEEN).expect("a few") {
        let name = number.to_string();
        enqueue(&listener, &name, &name, added(number));
        enqueue(&listener, &name, &name, deleted(number));
    }
    let mut running =
        Box::pin(Arc::clone(&listener).run(Box::new(crate::filtered(|_: &u32| true, Counting(sender)))));
    while running.as_mut().now_or_never().is_none() && !listener.lock().waiting.is_empty() {}
    let delivered: Vec<_> = delivered.try_iter().collect();
    assert_eq!((delivered[0], delivered.len()), ("missed", 1 + 2 * MAX_UNSEEN));
}

#[test]
fn object_recreated_after_unseen_deletion_is_delivered() {
    let listener = synced_listener(Delivery::Coalesced);
    for event in [added(1), deleted(1), added(2)] {
        enqueue(&listener, "a", "a", event);
    }
    assert!(listener.lock().unseen.is_empty());
    assert_eq!(everything(&listener), [added(1), deleted(1), added(2)]);
}

proptest! {
    #[test]
    fn handler_receives_every_state_of_the_store(steps in steps()) {
        let (listener, mut model) = (synced_listener(Delivery::Coalesced), Model::default());
        for step in steps {
            while most_states(&listener) == MAX_PENDING_STATES {
                model.apply(Step::Deliver, &listener);
            }
            model.apply(step, &listener);
        }
        for event in everything(&listener) {
            model.on_event(&event);
        }
        prop_assert_eq!(model.happened, model.heard);
    }

    // parity: processor-listeners, ring-growing, listener-rings-grow-without
    #[test]
    fn slow_handler_ends_with_final_state_and_every_deletion(steps in steps()) {
        let (listener, mut model) = (synced_listener(Delivery::Coalesced), Model::default());
        for step in steps {
            model.apply(step, &listener);
            let waiting = listener.lock().changes();
            let states = most_states(&listener);
            // A pending resync separates the changes before it from the changes after it.
            prop_assert!(waiting <= 2 * (model.deleted.len() + 3), "{waiting} objects are pending");
            prop_assert!(states <= MAX_PENDING_STATES, "{states} states of one object are pending");
        }
        for event in everything(&listener) {
            model.on_event(&event);
        }
        prop_assert_eq!(model.truth.map(|it| it.map(|(_, version)| version)), model.view);
        prop_assert_eq!(model.deleted, model.delivered_deletions);
    }
}
