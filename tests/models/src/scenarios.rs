//! Scenarios of threads that use one listener.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool as PlainBool;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use windlass_metrics::Metrics;
use windlass_object::{ObjectKey, Uid};

use crate::handler::{Cause, DeletionEvidence, Delivery, Event};
use crate::processor::{HandlerControl as _, HandlerState, Listener};

type ReceivedEvents = Arc<Mutex<Vec<String>>>;

/// Runs `scenario` in every order in which each thread is preempted at most `interruptions` times.
fn in_every_order(interruptions: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(scenario);
}

/// Whether the waker was called. Not a loom type: tokio clones and drops wakers under locks that loom does not know,
/// and a thread preempted there would block all others forever.
struct Woken(PlainBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls a future whenever it is woken. Without a wakeup the model fails at loom's step limit.
fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, woken) = (pin!(future), Arc::new(Woken(PlainBool::new(true))));
    let waker = Waker::from(Arc::clone(&woken));
    loop {
        if !woken.0.swap(false, Ordering::SeqCst) {
            thread::yield_now();
        } else if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
    }
}

fn listener(delivery: Delivery) -> Arc<Listener<u64>> {
    Arc::new(Listener::new("model", 1, delivery, Metrics::new().informer("", "v1", "models")))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn added(object: u64) -> Event<u64> {
    Event::Added { object, cause: Cause::Watch }
}

fn updated(old: u64, new: u64) -> Event<u64> {
    Event::Updated { old, new, cause: Cause::Watch }
}

fn deleted(last: u64) -> Event<u64> {
    Event::Deleted { last, observed: DeletionEvidence::Observed, cause: Cause::Watch }
}

fn brief(event: &Event<u64>) -> String {
    match event {
        Event::Added { object, .. } => format!("+{object}"),
        Event::Updated { old, new, .. } => format!("{old}>{new}"),
        Event::Deleted { last, .. } => format!("-{last}"),
    }
}

/// Runs the handler's thread, which records its events until it is removed.
fn run(listener: &Arc<Listener<u64>>) -> (thread::JoinHandle<()>, ReceivedEvents) {
    let received = ReceivedEvents::default();
    let (listener, notes) = (Arc::clone(listener), Arc::clone(&received));
    let handler = move |event: &Event<u64>| notes.lock().unwrap().push(brief(event));
    (thread::spawn(move || block_on(listener.run(Box::new(handler)))), received)
}

fn synced(listener: &Listener<u64>) -> bool {
    let state = block_on(listener.state().wait_for(|state| *state != HandlerState::Waiting));
    state == Ok(HandlerState::Synced)
}

/// Changes that one thread queues during delivery are all delivered, in order, before the handler is synced.
pub fn changes_are_delivered_in_order_before_the_handler_is_synced() {
    in_every_order(3, || {
        let listener = listener(Delivery::Coalesced);
        let (running, received) = run(&listener);
        let uid = Uid::from("u");
        listener.enqueue(&key("a"), Some(&uid), added(1));
        listener.enqueue(&key("a"), Some(&uid), updated(1, 2));
        listener.enqueue(&key("b"), None, added(7));
        listener.initial_list_ended();
        assert!(synced(&listener));
        let mut seen = received.lock().unwrap().clone();
        let of_b = seen.iter().position(|event| event == "+7").expect("an event for the other key");
        seen.remove(of_b);
        assert_eq!(seen, ["+1", "1>2"]);
        listener.detach();
        running.join().unwrap();
    });
}

/// The snapshot is delivered before changes queued behind it, and the handler is synced only after both.
pub fn snapshot_is_delivered_before_changes_behind_it() {
    in_every_order(3, || {
        let listener = listener(Delivery::Coalesced);
        let (running, received) = run(&listener);
        listener.replay(Box::new([1, 2].into_iter()));
        listener.enqueue(&key("a"), Some(&Uid::from("u")), deleted(1));
        listener.initial_list_ended();
        assert!(synced(&listener));
        assert_eq!(*received.lock().unwrap(), ["+1", "+2", "-1"]);
        listener.detach();
        running.join().unwrap();
    });
}

/// The thread of a removed handler always ends and reports it, and the handler is never synced afterwards.
pub fn removed_handler_ends_with_changes_queued() {
    in_every_order(3, || {
        let listener = listener(Delivery::Coalesced);
        let (running, _delivered) = run(&listener);
        let remover = thread::spawn({
            let listener = Arc::clone(&listener);
            move || listener.detach()
        });
        listener.enqueue(&key("a"), None, added(1));
        let pinned = Arc::new(2);
        let snapshot = Arc::clone(&pinned);
        listener.replay(Box::new(std::iter::once_with(move || *snapshot)));
        listener.initial_list_ended();
        remover.join().unwrap();
        running.join().unwrap();
        assert_eq!(listener.state().get(), HandlerState::Stopped);
        assert_eq!(Arc::strong_count(&pinned), 1, "undeliverable objects are dropped");
    });
}

/// After a handler is reported as removed, it receives no event, not even one in progress.
pub fn removed_handler_receives_no_event() {
    in_every_order(3, || {
        let listener = listener(Delivery::Coalesced);
        let (gone, delivered_after) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let runner = thread::spawn({
            let (listener, gone, delivered_after) =
                (Arc::clone(&listener), Arc::clone(&gone), Arc::clone(&delivered_after));
            // Recorded and not asserted, because panics of handlers are caught.
            let handler = move |_: &Event<u64>| {
                if gone.load(Ordering::SeqCst) {
                    delivered_after.store(true, Ordering::SeqCst);
                }
            };
            move || block_on(listener.run(Box::new(handler)))
        });
        let queuer = thread::spawn({
            let listener = Arc::clone(&listener);
            move || {
                listener.enqueue(&key("a"), None, added(1));
                listener.enqueue(&key("b"), None, added(2));
            }
        });
        listener.detach();
        let ended = block_on(listener.state().wait_for(|state| *state == HandlerState::Stopped));
        assert_eq!(ended, Ok(HandlerState::Stopped));
        gone.store(true, Ordering::SeqCst);
        queuer.join().unwrap();
        runner.join().unwrap();
        assert!(!delivered_after.load(Ordering::SeqCst), "event after its removal");
    });
}

/// A handler with `EveryEvent` delivery receives all events in order, or is removed with a reason.
pub fn bounded_handler_receives_all_events_or_is_removed() {
    in_every_order(3, || {
        let listener = listener(Delivery::EveryEvent { bound: 1 });
        let (running, received) = run(&listener);
        let uid = Uid::from("u");
        listener.enqueue(&key("a"), Some(&uid), added(1));
        listener.enqueue(&key("a"), Some(&uid), updated(1, 2));
        listener.initial_list_ended();
        let synced = synced(&listener);
        assert_eq!(synced, listener.failure().is_none());
        if synced {
            assert_eq!(*received.lock().unwrap(), ["+1", "1>2"]);
        } else {
            assert!(received.lock().unwrap().len() < 2);
        }
        listener.detach();
        running.join().unwrap();
    });
}
