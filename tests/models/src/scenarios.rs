//! What threads do to one listener.

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

type Told = Arc<Mutex<Vec<String>>>;

/// Runs `scenario` in every order in which no thread is interrupted more than `interruptions` times.
fn in_every_order(interruptions: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(scenario);
}

/// Whether somebody was woken. No step of loom's: wakers are cloned and dropped under locks of tokio's that loom knows
/// nothing of, and a thread that were interrupted there would block all others forever.
struct Woken(PlainBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls whenever it is woken. Who is never woken again runs into loom's bound of steps, and fails.
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
    Event::Deleted { last, observed: DeletionEvidence::Seen, cause: Cause::Watch }
}

fn brief(event: &Event<u64>) -> String {
    match event {
        Event::Added { object, .. } => format!("+{object}"),
        Event::Updated { old, new, .. } => format!("{old}>{new}"),
        Event::Deleted { last, .. } => format!("-{last}"),
    }
}

/// The handler's thread: it notes what it is told, until it is removed.
fn run(listener: &Arc<Listener<u64>>) -> (thread::JoinHandle<()>, Told) {
    let told = Told::default();
    let (listener, notes) = (Arc::clone(listener), Arc::clone(&told));
    let handler = move |event: &Event<u64>| notes.lock().unwrap().push(brief(event));
    (thread::spawn(move || block_on(listener.run(Box::new(handler)))), told)
}

fn synced(listener: &Listener<u64>) -> bool {
    let state = block_on(listener.state().wait_for(|state| *state != HandlerState::Waiting));
    state == Ok(HandlerState::Synced)
}

/// Changes that one thread queues while the handler takes them come all, in order, and before the handler is synced.
pub fn every_change_is_told_in_order_before_the_handler_is_synced() {
    in_every_order(3, || {
        let listener = listener(Delivery::Coalesced);
        let (running, told) = run(&listener);
        let uid = Uid::from("u");
        listener.enqueue(&key("a"), Some(&uid), added(1));
        listener.enqueue(&key("a"), Some(&uid), updated(1, 2));
        listener.enqueue(&key("b"), None, added(7));
        listener.initial_list_ended();
        assert!(synced(&listener));
        let mut seen = told.lock().unwrap().clone();
        let of_b = seen.iter().position(|event| event == "+7").expect("the other key is told of too");
        seen.remove(of_b);
        assert_eq!(seen, ["+1", "1>2"]);
        listener.detach();
        running.join().unwrap();
    });
}

/// A snapshot is told before what was queued behind it, and the handler is not synced before both.
pub fn snapshot_is_told_before_what_comes_behind_it() {
    in_every_order(3, || {
        let listener = listener(Delivery::Coalesced);
        let (running, told) = run(&listener);
        listener.replay(Box::new([1, 2].into_iter()));
        listener.enqueue(&key("a"), Some(&Uid::from("u")), deleted(1));
        listener.initial_list_ended();
        assert!(synced(&listener));
        assert_eq!(*told.lock().unwrap(), ["+1", "+2", "-1"]);
        listener.detach();
        running.join().unwrap();
    });
}

/// Whenever a handler is removed, its thread ends, and says so; and it is never synced afterwards.
pub fn removed_handler_ends_whatever_is_queued_meanwhile() {
    in_every_order(3, || {
        let listener = listener(Delivery::Coalesced);
        let (running, _told) = run(&listener);
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
        assert_eq!(listener.state().get(), HandlerState::Gone);
        assert_eq!(Arc::strong_count(&pinned), 1, "what nobody will be told is not kept");
    });
}

/// Once a handler is said to be gone, it is told nothing, not even what was in hand.
pub fn who_is_gone_is_told_nothing() {
    in_every_order(3, || {
        let listener = listener(Delivery::Coalesced);
        let (gone, told_after) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let runner = thread::spawn({
            let (listener, gone, told_after) =
                (Arc::clone(&listener), Arc::clone(&gone), Arc::clone(&told_after));
            // Noted and not asserted: what a handler panics with is caught.
            let handler = move |_: &Event<u64>| {
                if gone.load(Ordering::SeqCst) {
                    told_after.store(true, Ordering::SeqCst);
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
        let ended = block_on(listener.state().wait_for(|state| *state == HandlerState::Gone));
        assert_eq!(ended, Ok(HandlerState::Gone));
        gone.store(true, Ordering::SeqCst);
        queuer.join().unwrap();
        runner.join().unwrap();
        assert!(!told_after.load(Ordering::SeqCst), "told after its end");
    });
}

/// A handler that is to miss nothing gets everything in order, or is ended and says why; nothing in between.
pub fn bounded_handler_gets_everything_or_is_ended() {
    in_every_order(3, || {
        let listener = listener(Delivery::EveryEvent { bound: 1 });
        let (running, told) = run(&listener);
        let uid = Uid::from("u");
        listener.enqueue(&key("a"), Some(&uid), added(1));
        listener.enqueue(&key("a"), Some(&uid), updated(1, 2));
        listener.initial_list_ended();
        let synced = synced(&listener);
        assert_eq!(synced, listener.failure().is_none());
        if synced {
            assert_eq!(*told.lock().unwrap(), ["+1", "1>2"]);
        } else {
            assert!(told.lock().unwrap().len() < 2);
        }
        listener.detach();
        running.join().unwrap();
    });
}
