//! Handlers: adding, removal, resyncs, filters, backlog limits and waiting for removal.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Atomic};

use super::*;
use crate::{Cause, Delivery, HandlerFailure, HandlerOptions, Resync, SelfWaitError, filtered};

const PERIOD: Duration = Duration::from_secs(600);

fn resynced_every(resync: Resync) -> HandlerOptions {
    HandlerOptions { resync, ..HandlerOptions::default() }
}

/// Adds a handler with these options that records its events.
fn attach(rig: &Rig, name: &str, options: HandlerOptions) -> (Log, HandlerHandle) {
    let log = Log::default();
    let received = log.clone();
    let handler = move |event: &TestEvent| received.push(event.clone());
    let handle = rig.informer.add_handler_with(name, options, handler).expect("the informer lives");
    (log, handle)
}

fn drop_history(server: &Server) {
    server.compact(true);
    server.pass_time();
    server.compact(true);
    server.cut(cut_connection());
}

// parity: with-resync-period, test-listener-resync-periods
#[tokio::test(start_paused = true)]
async fn each_handler_is_resynced_in_its_own_period() {
    let rig = Rig::with_options(FactoryOptions { resync: Some(PERIOD), ..FactoryOptions::default() });
    let server = Server::new();
    for name in ["a", "b"] {
        server.set(name, "first");
    }
    let cases = [
        (Resync::AsFactory, 3),
        (Resync::Never, 0),
        (Resync::Every(PERIOD / 2), 6),
        (Resync::Every(PERIOD * 2), 1),
    ];
    let handlers = cases.map(|(resync, times)| (attach(&rig, "handler", resynced_every(resync)).0, times));
    // Periods start with the informer, which is started late here.
    rig.env.sleep(PERIOD * 10).await;
    rig.start(&server);
    rig.settle().await;
    handlers.iter().for_each(|(log, _)| assert_eq!(log.take().len(), 2));
    rig.env.sleep(PERIOD * 3 + PERIOD / 4).await;
    for (log, times) in &handlers {
        let received = log.events();
        assert!(received.iter().all(|event| event.cause() == Cause::Resync), "{received:?}");
        assert_eq!(received.len(), 2 * times);
    }
    let (late, _) = attach(&rig, "late", resynced_every(Resync::Every(PERIOD)));
    rig.env.sleep(PERIOD + LONG).await;
    assert_eq!(late.take()[2..], ["~a@1=first>a@1=first Resync", "~b@2=first>b@2=first Resync"]);
}

// parity: test-shared-informer-watch-disruption, resync-re-list-confused
#[tokio::test(start_paused = true)]
async fn handler_receives_only_changes_of_a_relist_despite_resync() {
    let (rig, server) = (Rig::new(), Server::new());
    for name in ["a", "b", "c"] {
        server.set(name, "first");
    }
    let (quiet, _) = attach(&rig, "quiet", resynced_every(Resync::Never));
    let (resynced, _) = attach(&rig, "resynced", resynced_every(Resync::Every(PERIOD)));
    rig.start(&server);
    rig.settle().await;
    let _initial = (quiet.take(), resynced.take());
    drop_history(&server);
    rig.env.sleep(Duration::from_secs(10)).await;
    assert_eq!((quiet.take(), resynced.take(), rig.counts().lists.get()), (vec![], vec![], 2));
    server.cut(cut_connection());
    server.delete("c");
    server.set("b", "second");
    drop_history(&server);
    rig.env.sleep(Duration::from_secs(10)).await;
    let changes = ["-c@3=first Relist Inferred", "~b@2=first>b@6=second Relist"];
    assert_eq!(
        (quiet.take(), resynced.take()),
        (changes.map(str::to_owned).to_vec(), changes.map(str::to_owned).to_vec())
    );
}

// parity: resync-periods-per-handler
#[tokio::test(start_paused = true)]
async fn short_resync_period_is_rejected_with_name_and_remedy() {
    let rig = Rig::new();
    let options = resynced_every(Resync::Every(Duration::from_millis(999)));
    let refused = rig.informer.add_handler_with("eager", options, |_: &TestEvent| {}).unwrap_err();
    let expected = "cannot resync handler \"eager\" of the informer of configmaps.v1 every 999ms: the minimum is 1s; \
                    use Resync::Never to disable resyncs";
    assert_eq!(refused.to_string(), expected);
    let options = resynced_every(Resync::Every(Resync::MIN));
    assert!(rig.informer.add_handler_with("patient", options, |_: &TestEvent| {}).is_ok());
}

// parity: test-shared-informer-remove-handler
#[test]
#[should_panic(expected = "the resync period 999ms is too short")]
fn factory_rejects_short_resync_period() {
    let options = FactoryOptions { resync: Some(Duration::from_millis(999)), ..FactoryOptions::default() };
    InformerFactory::new(Env::virtual_time(1), Metrics::new(), options);
}

#[tokio::test(start_paused = true)]
async fn removed_handler_is_not_resynced_and_leaves_no_timer() {
    let (rig, server) = (Rig::new(), Server::new());
    server.set("a", "first");
    let (log, handle) = attach(&rig, "resynced", resynced_every(Resync::Every(PERIOD)));
    rig.start(&server);
    rig.env.sleep(PERIOD + LONG).await;
    assert_eq!(log.take().len(), 2);
    handle.remove();
    assert_eq!(handle.removed().await, Ok(()));
    rig.env.sleep(PERIOD * 2).await;
    assert_eq!(log.take(), Vec::<String>::new());
    assert!(!rig.env.tasks().iter().any(|task| task.ends_with("handler resynced")));
}

#[tokio::test(start_paused = true)]
async fn filtered_handler_receives_crossing_objects_as_add_or_delete() {
    let (rig, server, log) = (Rig::new(), Server::new(), Log::default());
    let received = log.clone();
    let shown = |map: &Arc<ConfigMap>| brief(map).ends_with("=shown");
    rig.informer
        .add_handler("filtered", filtered(shown, move |event: &TestEvent| received.push(event.clone())))
        .unwrap();
    server.set("a", "hidden");
    server.set("b", "shown");
    rig.start(&server);
    rig.settle().await;
    for (name, value) in [("a", "shown"), ("a", "shown"), ("b", "hidden"), ("b", "hidden")] {
        server.set(name, value);
    }
    rig.settle().await;
    server.delete("b");
    rig.settle().await;
    let expected = [
        "+b@2=shown InitialList",
        "+a@3=shown Watch",
        "~a@3=shown>a@4=shown Watch",
        "-b@2=shown Watch Inferred",
    ];
    assert_eq!(log.take(), expected);
}

// parity: listener-rings-grow-without
#[tokio::test(start_paused = true)]
async fn every_event_handler_that_misses_an_event_is_removed_with_reason() {
    let (rig, server, bystander) = running(&["a"]).await;
    bystander.take();
    let options = HandlerOptions { delivery: Delivery::EveryEvent { bound: 3 }, ..HandlerOptions::default() };
    let (log, handle) = attach(&rig, "strict", options);
    assert!(handle.synced().await);
    for round in 0..3 {
        server.set("a", &round.to_string());
        server.set("b", &round.to_string());
        rig.settle().await;
    }
    assert_eq!(
        (log.take().len(), handle.failure()),
        (7, None),
        "a handler that keeps up receives every event"
    );
    // All of these arrive together.
    for round in 3..10 {
        server.set("a", &round.to_string());
    }
    rig.settle().await;
    let failure = HandlerFailure::Overflow { handler: "strict".to_owned(), bound: 3 };
    assert_eq!((handle.failure(), handle.removed().await), (Some(failure), Ok(())));
    assert!(!handle.has_synced());
    assert_eq!(rig.counts().handler_overflows.get(), 1);
    server.set("a", "after");
    rig.settle().await;
    assert_eq!(log.take(), Vec::<String>::new());
    assert_eq!(bystander.take().last().map(String::as_str), Some("~a@14=9>a@15=after Watch"));
}

// parity: shut-down-event-handler, test-event-panics, test-remove-event-handler-asynchronous
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn removal_wait_covers_only_running_call_of_the_same_handler() {
    let factory = InformerFactory::new(Env::system("test"), Metrics::new(), FactoryOptions::default());
    let (informer, server) = (factory.typed::<ConfigMap>(), Server::new());
    let ((entered, enters), (release, wait)) = (blocking::channel::<()>(), blocking::channel::<()>());
    let ended = Arc::new(AtomicBool::new(false));
    let finished = Arc::clone(&ended);
    let blocks = move |_: &TestEvent| {
        entered.send(()).unwrap();
        // Blocks until the test drops the sender.
        wait.recv().unwrap_err();
        finished.store(true, Atomic::SeqCst);
    };
    let handle = informer.add_handler("blocks", blocks).unwrap();
    let quick = informer.add_handler("quick", |_: &TestEvent| {}).unwrap();
    server.set("a", "first");
    server.set("b", "first");
    factory.start(Arc::new(Only(Arc::clone(&server))));
    tokio::task::yield_now().await;
    let (handle, inside) = (Arc::new(handle), enters);
    while inside.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    handle.remove();
    quick.remove();
    assert_eq!(quick.removed().await, Ok(()), "the running call belongs to the other handler");
    let waiting = Arc::clone(&handle);
    let mut removed = Box::pin(async move { waiting.removed().await });
    assert_eq!(removed.as_mut().now_or_never(), None, "its call is running");
    drop(release);
    assert_eq!(removed.await, Ok(()));
    assert!(ended.load(Atomic::SeqCst));
    assert!(inside.try_recv().is_err(), "it did not receive the second object");
    factory.shutdown().await;
}

// parity: shut-down-event-handler, test-remove-event-handler-asynchronous
#[tokio::test(start_paused = true)]
async fn handler_call_waiting_for_its_own_removal_is_rejected() {
    let (rig, _server, _log) = running(&["a"]).await;
    let (own, outcome) = (Arc::new(Mutex::new(None::<HandlerHandle>)), Arc::new(Mutex::new(None)));
    let (handle, waited) = (Arc::clone(&own), Arc::clone(&outcome));
    let waits = move |_: &TestEvent| {
        if let Some(handle) = &*handle.lock().unwrap() {
            handle.remove();
            *waited.lock().unwrap() = handle.removed().now_or_never();
        }
    };
    *own.lock().unwrap() = Some(rig.informer.add_handler("selfish", waits).unwrap());
    rig.settle().await;
    let refusal = SelfWaitError { handler: "selfish".to_owned() };
    assert_eq!(*outcome.lock().unwrap(), Some(Err(refusal)));
    let handle = own.lock().unwrap().take().unwrap();
    assert_eq!(handle.removed().await, Ok(()), "another task can wait for it");
}

// parity: test-event-panics, test-state-shared-informer
#[tokio::test(start_paused = true)]
async fn handler_is_gone_after_informer_shutdown_or_without_start() {
    let (rig, _server, log) = running(&["a"]).await;
    let handle = log.attach(&rig.informer, "until the end");
    rig.factory.shutdown().await;
    assert_eq!(handle.removed().await, Ok(()));
    let rig = Rig::new();
    let handle = log.attach(&rig.informer, "never begun");
    handle.remove();
    handle.remove();
    assert_eq!((handle.removed().await, handle.failure()), (Ok(()), None));
}

#[tokio::test(start_paused = true)]
async fn handler_is_dropped_before_it_is_reported_as_gone() {
    let (rig, _server, _log) = running(&["a"]).await;
    let held = Arc::new(());
    let holds = Arc::clone(&held);
    let handle = rig.informer.add_handler("holds", move |_: &TestEvent| drop(Arc::clone(&holds))).unwrap();
    assert!(handle.synced().await);
    assert_eq!(Arc::strong_count(&held), 2);
    handle.remove();
    handle.removed().await.unwrap();
    assert_eq!(Arc::strong_count(&held), 1);
}

// parity: test-event-panics, handle-has-synced
#[tokio::test(start_paused = true)]
async fn handler_that_panics_on_whole_initial_list_becomes_synced() {
    let (rig, server) = (Rig::new(), Server::new());
    for name in ["a", "b", "c"] {
        server.set(name, "first");
    }
    let panics = |_: &TestEvent| panic!("a bug in a handler");
    let early = rig.informer.add_handler("early", panics).unwrap();
    rig.start(&server);
    assert!(early.synced().await);
    let late = rig.informer.add_handler("late", panics).unwrap();
    assert!(late.synced().await);
    assert_eq!(rig.counts().handler_panics.get(), 6);
}

// parity: add-event-handler, test-add-while-active
#[tokio::test(start_paused = true)]
async fn late_handler_receives_deletions_and_recreations() {
    let (rig, server, _log) = running(&["a"]).await;
    let late = Log::default();
    let handle = late.attach(&rig.informer, "late");
    assert!(handle.synced().await);
    server.delete("a");
    rig.settle().await;
    server.set("a", "again");
    rig.settle().await;
    assert_eq!(late.take(), ["+a@1=first InitialList", "-a@2=end Watch Observed", "+a@3=again Watch"]);
}

/// Upstream deadlocks when handlers or indexes are added while informers start (kubernetes#136509, #137282). A deadlock
/// would also block the timers of its runtime, so a separate thread enforces the timeout.
// parity: test-hammer-controller, test-shared-informer-initialization-race, deadlocks-start
#[test]
fn concurrent_changes_of_handlers_and_indexes_do_not_deadlock() {
    let (ends, ended) = blocking::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
        runtime.expect("a runtime").block_on(change_handlers_and_indexes());
        ends.send(()).expect("waited for");
    };
    let _thread = std::thread::Builder::new().spawn(run).expect("a thread");
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(()), "a task is deadlocked or panicked");
}

async fn change_handlers_and_indexes() {
    let env = Env::system("test");
    let factory = InformerFactory::new(env.clone(), Metrics::new(), FactoryOptions::default());
    let (informer, server) = (factory.typed::<ConfigMap>(), Server::new());
    server.set("a", "first");
    let received = Arc::new(AtomicUsize::new(0));
    let change = |round: usize| {
        let (informer, received, server) = (informer.clone(), Arc::clone(&received), Arc::clone(&server));
        async move {
            for turn in 0..20 {
                let counted = Arc::clone(&received);
                let counts = move |_: &TestEvent| {
                    counted.fetch_add(1, Atomic::SeqCst);
                };
                let handle = informer.add_handler("passing", counts).unwrap();
                let index = informer.lister().index(move |_| [format!("index {round} {turn}")]);
                server.set("a", &format!("{round} {turn}"));
                if turn % 2 == 0 {
                    assert!(handle.synced().await);
                }
                handle.remove();
                assert_eq!(handle.removed().await, Ok(()));
                drop(index);
            }
        }
    };
    let spawn = |round| env.spawn(format!("changes {round}"), change(round));
    let before: Vec<_> = (0..8).map(spawn).collect();
    factory.start(Arc::new(Only(Arc::clone(&server))));
    let during = (8..16).map(spawn);
    let ended = future::join_all(before.into_iter().chain(during)).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    let last = server.version();
    let mut progress = informer.version_changes();
    progress.wait_for(|progress| progress.version == Some(at(last))).await.unwrap();
    assert!(received.load(Atomic::SeqCst) >= 160, "every handler that became synced received the object");
    factory.shutdown().await;
}
