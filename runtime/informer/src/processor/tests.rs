//! One handler's queue alone: what it is told of what waited, and when it counts as synced.

use std::collections::BTreeSet;

use futures_util::FutureExt as _;
use proptest::prelude::*;
use windlass_metrics::Metrics;

use super::pending::MAX_STATES;
use super::*;
use crate::handler::{DeletionEvidence, Delivery};

type Told = Event<u32>;

fn listener<T: Clone + Send + Sync + 'static>() -> Arc<Listener<T>> {
    listener_of(Delivery::Coalesced)
}

fn listener_of<T: Clone + Send + Sync + 'static>(delivery: Delivery) -> Arc<Listener<T>> {
    Arc::new(Listener::new("test", 1, delivery, Metrics::new().informer("", "v1", "configmaps")))
}

/// A listener that was told an empty initial list.
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
    Event::Deleted { last, observed: DeletionEvidence::Seen, cause: Cause::Watch }
}

fn enqueue<T: Clone + Send + Sync + 'static>(listener: &Listener<T>, name: &str, uid: &str, event: Event<T>) {
    listener.enqueue(&key(name), Some(&uid.into()), event);
}

/// What the handler is told next.
fn next<T: Clone + Send + Sync + 'static>(listener: &Listener<T>) -> Vec<Event<T>> {
    work(listener).unwrap_or_default()
}

fn everything<T: Clone + Send + Sync + 'static>(listener: &Listener<T>) -> Vec<Event<T>> {
    std::iter::from_fn(|| work(listener)).flatten().collect()
}

/// What the handler is told next, which may be that there is nothing to look at again; `None` if nothing waits.
fn work<T: Clone + Send + Sync + 'static>(listener: &Listener<T>) -> Option<Vec<Event<T>>> {
    Some(match listener.next().now_or_never()?? {
        HandlerWork::Tell(pending) => pending.into_events().collect(),
        HandlerWork::Replay(objects) => additions(objects).collect(),
        HandlerWork::Resync(objects) => resyncs(objects).collect(),
        HandlerWork::Missed => Vec::new(),
    })
}

/// The states by which a controller finds keys to wake: both sides of every event.
fn mapped(events: &[Event<&'static str>]) -> BTreeSet<&'static str> {
    let states = events.iter().flat_map(|event| match event {
        Event::Updated { old, new, .. } => vec![*old, *new],
        other => vec![*other.object()],
    });
    states.collect()
}

#[test]
fn changes_of_one_object_that_wait_are_told_one_by_one() {
    let listener = listener();
    enqueue(&listener, "a", "u", updated(1, 2));
    enqueue(&listener, "a", "u", updated(2, 3));
    enqueue(&listener, "b", "w", added(1));
    enqueue(&listener, "b", "w", updated(1, 9));
    assert_eq!(everything(&listener), [updated(1, 2), updated(2, 3), added(1), updated(1, 9)]);
}

#[test]
fn what_selected_an_object_before_it_was_relabelled_and_deleted_hears_of_it() {
    let listener = listener();
    enqueue(&listener, "pod", "u", added("app=a"));
    assert_eq!(next(&listener), [added("app=a")]);
    enqueue(&listener, "pod", "u", updated("app=a", "app=debug"));
    enqueue(&listener, "pod", "u", deleted("app=debug"));
    let told = everything(&listener);
    assert_eq!(told, [updated("app=a", "app=debug"), deleted("app=debug")]);
    assert_eq!(mapped(&told), BTreeSet::from(["app=a", "app=debug"]));
}

#[test]
fn owner_that_was_removed_before_the_deletion_hears_of_an_object_the_handler_never_knew() {
    let listener = listener();
    enqueue(&listener, "pod", "u", added("owned"));
    enqueue(&listener, "pod", "u", updated("owned", "orphan"));
    enqueue(&listener, "pod", "u", deleted("orphan"));
    let told = everything(&listener);
    assert_eq!(told, [added("owned"), updated("owned", "orphan"), deleted("orphan")]);
    assert!(mapped(&told).contains("owned"));
}

#[test]
fn state_that_came_and_went_is_told_though_the_object_is_as_it_was() {
    let listener = listener();
    enqueue(&listener, "pod", "u", updated("ready", "unready"));
    enqueue(&listener, "pod", "u", updated("unready", "ready"));
    assert_eq!(everything(&listener), [updated("ready", "unready"), updated("unready", "ready")]);
}

#[test]
fn what_selected_an_object_only_while_the_handler_was_busy_hears_of_it() {
    let listener = listener();
    enqueue(&listener, "pod", "u", updated("app=a", "app=b"));
    enqueue(&listener, "pod", "u", updated("app=b", "app=c"));
    assert_eq!(mapped(&everything(&listener)), BTreeSet::from(["app=a", "app=b", "app=c"]));
}

// parity: test-update
#[test]
fn update_starts_from_what_the_handler_was_last_told() {
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
fn each_state_is_told_with_the_cause_it_came_with() {
    let listener = listener();
    let causes = [Cause::Relist, Cause::Watch, Cause::Watch];
    for (version, cause) in (1..).zip(causes) {
        enqueue(&listener, "a", "u", Event::Updated { old: version, new: version + 1, cause });
    }
    assert_eq!(everything(&listener).iter().map(Event::cause).collect::<Vec<_>>(), causes);
}

/// The versions from one to `last`, one after the other, for a handler that was told of none.
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
fn as_many_states_wait_as_are_promised() {
    assert_eq!(everything(&waiting_history(16)).len(), 16);
}

/// Upstream's buffers grow without bound behind a slow handler (kubernetes#121474).
// parity: ring-growing, listener-rings-grow-without
#[test]
fn beyond_the_bound_the_oldest_states_in_between_are_dropped_and_nothing_else() {
    let told = everything(&waiting_history(20));
    assert_eq!(told.len(), MAX_STATES);
    assert_eq!(told[..3], [added(1), updated(1, 6), updated(6, 7)]);
    assert_eq!(told.last(), Some(&updated(19, 20)));
}

#[test]
fn beyond_the_bound_the_next_update_still_starts_from_what_was_told_and_the_deletion_is_told() {
    let listener = listener();
    for version in 0..20 {
        enqueue(&listener, "a", "u", updated(version, version + 1));
    }
    enqueue(&listener, "a", "u", deleted(20));
    let told = everything(&listener);
    assert_eq!(told.len(), MAX_STATES);
    assert_eq!(told[..2], [updated(0, 6), updated(6, 7)]);
    assert_eq!(told[14..], [updated(19, 20), deleted(20)]);
}

#[test]
fn object_that_comes_and_goes_under_one_uid_stays_within_the_bound_and_ends_as_it_is() {
    let listener = listener();
    enqueue(&listener, "a", "u", updated(0, 1));
    for version in 1..50 {
        enqueue(&listener, "a", "u", deleted(version));
        enqueue(&listener, "a", "u", added(version + 1));
    }
    let told = everything(&listener);
    assert!(told.len() <= MAX_STATES, "{told:?}");
    assert_eq!(told[told.len() - 2..], [deleted(49), added(50)]);
    let is_deletion = |event: &Told| matches!(event, Event::Deleted { .. });
    assert!(told.windows(2).all(|pair| is_deletion(&pair[0]) != is_deletion(&pair[1])), "{told:?}");
}

#[test]
fn deletion_is_told_even_of_an_object_that_came_while_the_handler_was_busy() {
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
fn without_uids_a_deletion_is_never_merged_with_another() {
    let listener = listener();
    for event in [deleted(1), added(2), deleted(3), added(4)] {
        listener.enqueue(&key("a"), None, event);
    }
    let deletions = everything(&listener).into_iter().filter(|event| matches!(event, Event::Deleted { .. }));
    assert_eq!(deletions.collect::<Vec<_>>(), [deleted(1), deleted(3)]);
}

#[test]
fn object_that_is_back_after_its_deletion_is_told_as_both() {
    let listener = listener();
    enqueue(&listener, "a", "u", deleted(1));
    enqueue(&listener, "a", "u", added(2));
    enqueue(&listener, "a", "u", updated(2, 3));
    assert_eq!(everything(&listener), [deleted(1), added(2), updated(2, 3)]);
}

#[test]
fn object_that_waits_keeps_its_place_when_it_changes_again() {
    let listener = listener();
    enqueue(&listener, "a", "u", added(1));
    enqueue(&listener, "b", "w", added(10));
    enqueue(&listener, "a", "u", updated(1, 2));
    assert_eq!(everything(&listener), [added(1), updated(1, 2), added(10)]);
}

// parity: on-update, test-real-fifo-resync
#[test]
fn resync_comes_after_what_happened_before_it_and_before_what_happens_then() {
    let listener = synced_listener(Delivery::Coalesced);
    enqueue(&listener, "a", "u", updated(1, 2));
    resync(&listener, vec![2]);
    enqueue(&listener, "a", "u", updated(2, 3));
    enqueue(&listener, "a", "u", deleted(3));
    let told = everything(&listener);
    assert_eq!(told, [updated(1, 2), resynced(2), updated(2, 3), deleted(3)]);
}

#[test]
fn one_resync_waits_and_none_before_the_handler_is_synced() {
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
fn resync_takes_no_memory_per_object_and_makes_objects_only_as_they_are_told() {
    let listener = synced_listener(Delivery::Coalesced);
    let made = Arc::new(Mutex::new(0));
    let count = Arc::clone(&made);
    listener.resync(|| Box::new((0..1_000_000).inspect(move |_| *count.lock().unwrap() += 1)));
    assert_eq!((listener.lock().waiting.len(), *made.lock().unwrap()), (1, 0));
}

/// Upstream tells a late handler everything under the informer's lock, and nobody else is told of anything meanwhile.
// parity: replay-late-handler-blocks
#[test]
fn what_a_late_handler_has_missed_is_made_as_it_is_told_and_costs_whoever_lets_it_in_nothing() {
    let listener = listener();
    let made = Arc::new(Mutex::new(0));
    let count = Arc::clone(&made);
    listener.replay(Box::new((0..1_000_000).inspect(move |_| *count.lock().unwrap() += 1)));
    listener.initial_list_ended();
    enqueue(&listener, "a", "u", updated(0, 1));
    assert_eq!((listener.lock().waiting.len(), *made.lock().unwrap()), (2, 0));
}

#[test]
fn handler_of_every_event_is_told_each_in_the_order_of_all() {
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
fn handler_of_every_event_that_falls_behind_is_ended_with_a_reason_and_told_nothing_more() {
    let listener = synced_listener(Delivery::EveryEvent { bound: 2 });
    resync(&listener, vec![0]);
    for version in 0..3 {
        enqueue(&listener, "a", "u", updated(version, version + 1));
        assert_eq!(
            listener.failure().is_some(),
            version == 2,
            "the third is one too many, the resync is none"
        );
    }
    enqueue(&listener, "a", "u", updated(3, 4));
    assert_eq!(listener.metrics.handler_overflows.get(), 1, "it is ended once");
    assert!(listener.failure().unwrap().to_string().contains("more than 2 changes waited"));
    assert_eq!(listener.state().get(), HandlerState::Gone);
    assert!(listener.next().now_or_never().expect("it ends at once").is_none());
}

#[test]
fn initial_list_of_any_length_does_not_end_a_handler_of_every_event() {
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
fn bound_of_none_still_lets_one_change_wait() {
    let listener = synced_listener(Delivery::EveryEvent { bound: 0 });
    enqueue(&listener, "a", "u", added(1));
    assert_eq!(everything(&listener), [added(1)]);
}

#[test]
fn handler_that_was_removed_before_it_ran_is_gone_and_never_runs() {
    let listener = listener::<u32>();
    enqueue(&listener, "a", "u", added(1));
    listener.detach();
    assert_eq!(listener.state().get(), HandlerState::Gone);
    let ran = Arc::clone(&listener).run(Box::new(|_: &Told| panic!("it was removed")));
    assert_eq!(ran.now_or_never(), Some(()));
    assert_eq!(listener.metrics.handler_panics.get(), 0);
}

#[test]
fn handler_whose_task_was_never_polled_is_gone_once_it_was_dropped() {
    let (listener, captured) = (listener::<u32>(), Arc::new(()));
    let held = Arc::clone(&captured);
    let task = Arc::clone(&listener).run(Box::new(move |_: &Told| drop(Arc::clone(&held))));
    listener.detach();
    assert_eq!((listener.state().get(), Arc::strong_count(&captured)), (HandlerState::Removed, 2));
    drop(task);
    assert_eq!((listener.state().get(), Arc::strong_count(&captured)), (HandlerState::Gone, 1));
}

#[test]
fn handler_whose_task_is_aborted_is_gone() {
    let listener = listener::<u32>();
    let mut running = Box::pin(Arc::clone(&listener).run(Box::new(|_: &Told| {})));
    assert_eq!(running.as_mut().now_or_never(), None);
    listener.detach();
    assert_eq!(listener.state().get(), HandlerState::Removed, "its task has not looked yet");
    drop(running);
    assert_eq!(listener.state().get(), HandlerState::Gone);
}

// parity: test-basic-logic
#[test]
fn synced_means_that_everything_of_the_initial_list_was_told() {
    let listener = listener();
    let synced = || listener.state().get() == HandlerState::Synced;
    listener.replay(Box::new([1, 2].into_iter()));
    listener.initial_list_ended();
    enqueue(&listener, "a", "u", updated(1, 3));
    assert_eq!(next(&listener).len(), 2);
    assert!(
        !synced(),
        "the replay was handed out, but whether it was told is known only when more is asked for"
    );
    assert_eq!(next(&listener), [updated(1, 3)]);
    assert!(synced());
}

// parity: test-basic-logic
#[test]
fn what_follows_the_initial_list_does_not_put_off_being_synced() {
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
fn removed_handler_is_told_nothing_that_waited() {
    let listener = listener();
    enqueue(&listener, "a", "u", added(1));
    listener.detach();
    listener.detach();
    assert!(listener.next().now_or_never().expect("it ends at once").is_none());
}

#[test]
fn what_comes_after_a_removal_is_not_kept() {
    for delivery in [Delivery::Coalesced, Delivery::EveryEvent { bound: 1 }] {
        let listener = synced_listener(delivery);
        listener.detach();
        for n in 0..3 {
            enqueue(&listener, "a", "u", added(n));
        }
        listener.replay(Box::new([1].into_iter()));
        resync(&listener, vec![1]);
        assert!(listener.lock().waiting.is_empty() && listener.lock().latest.is_empty());
        assert_eq!(listener.failure(), None, "who was removed did not fall behind");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The server changes, creates or (every so often) recreates one of a few objects, or deletes it.
    Set(u8),
    Delete(u8),
    Resync,
    /// The handler finds the time for one change.
    Tell,
}

/// Objects that live shorter or longer, and a handler that is slower or quicker.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    (4u32..40, 1u32..4).prop_flat_map(|(changes, told)| {
        let step = prop_oneof![
            changes => (0u8..3).prop_map(Step::Set),
            2 => (0u8..3).prop_map(Step::Delete),
            1 => Just(Step::Resync),
            told => Just(Step::Tell),
        ];
        proptest::collection::vec(step, 0..160)
    })
}

/// The truth, and what the handler makes of what it is told. An object is its number; its UID is told next to
/// it.
#[derive(Default)]
struct Model {
    clock: u32,
    truth: [Option<(u32, u32)>; 3],
    view: [Option<u32>; 3],
    deleted: BTreeSet<u32>,
    told_deleted: BTreeSet<u32>,
    /// What happened to each object, and what the handler was told of it, but for resyncs.
    happened: [Vec<Told>; 3],
    heard: [Vec<Told>; 3],
}

impl Model {
    fn happens(&mut self, n: u8, uid: u32, event: Told, listener: &Listener<u32>) {
        self.happened[usize::from(n)].push(event.clone());
        enqueue(listener, &n.to_string(), &uid.to_string(), event);
    }

    /// Versions are `uid * 100_000 + 10 * change + n`, so that a version tells its UID and its object.
    fn apply(&mut self, step: Step, listener: &Listener<u32>) {
        self.clock += 1;
        match step {
            Step::Set(n) => self.set(n, listener),
            Step::Delete(n) => self.delete(n, listener),
            Step::Resync => {
                resync(listener, self.truth.iter().flatten().map(|(_, version)| *version).collect());
            }
            Step::Tell => next(listener).into_iter().for_each(|event| self.told(&event)),
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

    fn told(&mut self, event: &Told) {
        let n = usize::try_from(event.object() % 10).expect("a digit");
        if event.cause() != Cause::Resync {
            self.heard[n].push(event.clone());
        }
        match event {
            Event::Added { object, .. } => {
                assert_eq!(self.view[n], None, "an addition of what is there");
                self.view[n] = Some(*object);
            }
            Event::Updated { old, new, .. } => {
                assert_eq!(self.view[n], Some(*old), "an update of something else");
                assert!(old <= new, "time goes backwards");
                self.view[n] = Some(*new);
            }
            Event::Deleted { last, .. } => {
                let uid = |version: u32| version / 100_000;
                assert!(
                    self.view[n].is_none_or(|held| uid(held) == uid(*last)),
                    "a deletion of something else"
                );
                assert!(self.told_deleted.insert(uid(*last)), "a deletion told twice");
                self.view[n] = None;
            }
        }
    }
}

/// How many states wait of the object of which most do.
fn most_states(listener: &Listener<u32>) -> usize {
    let queue = listener.lock();
    let states = queue.waiting.values().map(|work| match work {
        HandlerWork::Tell(pending) => pending.states(),
        HandlerWork::Replay(_) | HandlerWork::Resync(_) | HandlerWork::Missed => 0,
    });
    states.max().unwrap_or_default()
}

// parity: processor-listeners, ring-growing, listener-rings-grow-without
#[test]
fn blocked_handler_keeps_a_bounded_number_of_objects_that_came_and_went() {
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
    let told = everything(&listener);
    assert!(told.contains(&deleted(1)) && told.contains(&added(2)));
    assert_eq!(told.len(), 2 + 3 * MAX_UNSEEN, "the newest are told in full");
    assert_eq!(told.last(), Some(&deleted(100_000)));
}

// parity: ring-growing, listener-rings-grow-without
#[test]
fn handler_is_told_once_that_it_missed_objects_and_then_of_the_rest() {
    struct Counting(std::sync::mpsc::Sender<&'static str>);
    impl Handler<u32> for Counting {
        fn handle(&mut self, _: &Event<u32>) {
            self.0.send("event").expect("somebody counts");
        }

        fn missed(&mut self) {
            self.0.send("missed").expect("somebody counts");
        }
    }
    let (sender, told) = std::sync::mpsc::channel();
    let listener = synced_listener(Delivery::Coalesced);
    for number in 0..2 * u32::try_from(MAX_UNSEEN).expect("a few") {
        let name = number.to_string();
        enqueue(&listener, &name, &name, added(number));
        enqueue(&listener, &name, &name, deleted(number));
    }
    let mut running =
        Box::pin(Arc::clone(&listener).run(Box::new(crate::filtered(|_: &u32| true, Counting(sender)))));
    while running.as_mut().now_or_never().is_none() && !listener.lock().waiting.is_empty() {}
    let told: Vec<_> = told.try_iter().collect();
    assert_eq!((told[0], told.len()), ("missed", 1 + 2 * MAX_UNSEEN));
}

#[test]
fn object_that_returns_after_it_went_unseen_is_told() {
    let listener = synced_listener(Delivery::Coalesced);
    for event in [added(1), deleted(1), added(2)] {
        enqueue(&listener, "a", "a", event);
    }
    assert!(listener.lock().unseen.is_empty());
    assert_eq!(everything(&listener), [added(1), deleted(1), added(2)]);
}

proptest! {
    #[test]
    fn handler_is_told_every_state_the_store_went_through(steps in steps()) {
        let (listener, mut model) = (synced_listener(Delivery::Coalesced), Model::default());
        for step in steps {
            while most_states(&listener) == MAX_STATES {
                model.apply(Step::Tell, &listener);
            }
            model.apply(step, &listener);
        }
        for event in everything(&listener) {
            model.told(&event);
        }
        prop_assert_eq!(model.happened, model.heard);
    }

    // parity: processor-listeners, ring-growing, listener-rings-grow-without
    #[test]
    fn however_slow_a_handler_is_it_ends_with_the_truth_and_every_deletion(steps in steps()) {
        let (listener, mut model) = (synced_listener(Delivery::Coalesced), Model::default());
        for step in steps {
            model.apply(step, &listener);
            let waiting = listener.lock().changes();
            let states = most_states(&listener);
            // A resync that waits parts what happened before it from what happened after.
            prop_assert!(waiting <= 2 * (model.deleted.len() + 3), "{waiting} objects wait");
            prop_assert!(states <= MAX_STATES, "{states} states of one object wait");
        }
        for event in everything(&listener) {
            model.told(&event);
        }
        prop_assert_eq!(model.truth.map(|it| it.map(|(_, version)| version)), model.view);
        prop_assert_eq!(model.deleted, model.told_deleted);
    }
}
