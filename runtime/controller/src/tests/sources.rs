//! Keys from other sources: triggers, timers and custom sources.

use std::io::Read as _;

use futures_util::FutureExt as _;

use k8s_openapi::api::core::v1::Secret;
use tracing::Level;
use windlass_client::{FrameStream, RequestError};
use windlass_informer::{ListRequest, ListerWatcher, ObjectFeed, Selection, WatchRequest};
use windlass_object::{RawList, TypedObjects};

use super::*;
use crate::{Timer, TriggerError};

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("shop", name)
}

#[tokio::test(start_paused = true)]
async fn controller_that_nothing_enqueues_for_is_reported_at_start() {
    let world = World::with(&[]);
    let (mut log, writer) = std::io::pipe().expect("a pipe");
    let lines = tracing_subscriber::fmt().with_writer(Arc::new(writer)).with_max_level(Level::WARN).finish();
    let guard = tracing::subscriber::set_default(lines);
    let reads_only = |setup: &mut Setup| drop(setup.watch::<ConfigMap>().lister());
    let _first = world.start_with(world.scripted(reads_only, |_, _| async { Ok(Outcome::Done) })).await;
    let sent_to = |setup: &mut Setup| drop(setup.trigger("feed", 1));
    let _second = world.start_with(world.scripted(sent_to, |_, _| async { Ok(Outcome::Done) })).await;
    drop(guard);
    let mut lines = String::new();
    log.read_to_string(&mut lines).expect("text");
    let reports: Vec<&str> = lines.lines().filter(|line| line.contains("nothing enqueues keys")).collect();
    assert_eq!(reports.len(), 1, "only of the watch without a mapper: {lines}");
}

// parity: channel-generic-event-blocked
#[tokio::test(start_paused = true)]
async fn keys_sent_before_and_after_the_start_are_reconciled() {
    let world = World::with(&[]);
    let trigger = world.feed(10);
    trigger.try_send(key("early")).expect("kept");
    let workers = world.watcher(move |setup| drop(setup.trigger("feed", 10))).await;
    trigger.try_send(key("late")).expect("sent");
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["early", "late"]);
    workers.stop();
    let stopped = TriggerError::Stopped { controller: "scripted" };
    assert_eq!(trigger.try_send(key("too-late")), Err(stopped.clone()));
    assert_eq!(trigger.send(key("too-late")).await, Err(stopped));
}

// parity: channel-generic-event-blocked
#[tokio::test(start_paused = true)]
async fn full_trigger_rejects_or_delays_senders() {
    let world = World::with(&[]);
    let trigger = world.feed(2);
    ["a", "b", "a"].iter().for_each(|name| trigger.try_send(key(name)).expect("kept"));
    assert_eq!(trigger.try_send(key("c")), Err(TriggerError::Full { bound: 2 }));
    let mut waiting = Box::pin(trigger.send(key("c")));
    assert!(waiting.as_mut().now_or_never().is_none(), "no worker has dequeued a key");
    let _workers = world.watcher(move |setup| drop(setup.trigger("feed", 2))).await;
    waiting.await.expect("the trigger has room");
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["a", "b", "c"]);
}

// parity: channel-generic-event-blocked
#[tokio::test(start_paused = true)]
async fn waiting_sender_fails_when_controller_stops() {
    let world = World::with(&[]);
    let trigger = world.feed(1);
    let act = |_: ObjectKey, cx: Context| async move {
        cx.env().sleep(Duration::from_secs(60)).await;
        Ok(Outcome::Done)
    };
    let workers = world.start_with(world.scripted(move |setup| drop(setup.trigger("feed", 1)), act)).await;
    trigger.send(key("held")).await.expect("sent");
    world.pass(1).await;
    trigger.send(key("waits")).await.expect("the first is with a worker");
    let mut third = Box::pin(trigger.send(key("third")));
    assert!(third.as_mut().now_or_never().is_none());
    workers.stop();
    assert!(matches!(third.await, Err(TriggerError::Stopped { .. })));
}

// parity: source-informer
#[tokio::test(start_paused = true)]
async fn custom_source_is_watched_and_stops_with_its_controller() {
    let world = World::with(&["served"]);
    let feed = ObjectFeed::new(&world.env);
    let put = |name: &str| {
        feed.upsert(&json!({ "metadata": { "namespace": "shop", "name": name } })).expect("an object")
    };
    put("fed");
    let theirs = feed.clone();
    let wire = move |setup: &mut Setup| {
        let source = theirs.selecting(&Selection::default());
        setup.watch_from(source, TypedObjects::<Secret>::new()).primary();
        setup.primary::<ConfigMap>();
    };
    let registration = world.scripted(wire, |_, _| async { Ok(Outcome::Done) });
    let declared = registration.declaration(&world.env).expect("declared").rules;
    assert!(
        declared.iter().all(|rule| rule.resource != "secrets"),
        "no request to the API server is declared"
    );
    let mut workers = world.start_with(registration).await;
    world.pass(1).await;
    put("later");
    world.pass(1).await;
    let mut names = world.diary.names();
    names.sort();
    assert_eq!(names, ["fed", "later", "served"]);
    assert_eq!(feed.watch_count(), 1);
    workers.stop();
    workers.ended().await;
    assert_eq!(feed.watch_count(), 0);
}

/// A source with an empty list whose watch panics after a set time.
struct Brittle(Env);

#[async_trait::async_trait]
impl ListerWatcher for Brittle {
    async fn list(&self, _: ListRequest) -> Result<RawList, RequestError> {
        Ok(RawList { version: Some(ResourceVersion::new("1")), ..RawList::default() })
    }

    async fn watch(&self, _: WatchRequest) -> Result<FrameStream, RequestError> {
        self.0.sleep(Duration::from_secs(60)).await;
        panic!("a defect of the source")
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_custom_source_fails_health_check_of_controller() {
    let world = World::with(&[]);
    let source = Arc::new(Brittle(world.env.clone()));
    let workers = world
        .watcher(move |setup| drop(setup.watch_from(source.clone(), TypedObjects::<Secret>::new()).primary()))
        .await;
    let health = workers.health(Duration::from_secs(60));
    world.pass(30).await;
    assert_eq!(health(), Ok(()));
    world.pass(60).await;
    let error = health().expect_err("no watch follows the source");
    assert!(error.contains("secrets") || error.contains("Secret"), "{error}");
    workers.stop();
    assert_eq!(health(), Ok(()), "the controller is stopping");
}

#[tokio::test(start_paused = true)]
async fn trigger_that_no_setup_declares_refuses_keys() {
    let triggers = Triggers::default();
    let trigger = triggers.get("typo", "feed");
    trigger.try_send(key("early")).expect("it may be declared later");
    triggers.reject_undeclared();
    let error = trigger.send(key("late")).await.expect_err("no such controller").to_string();
    assert!(error.contains("typo") && error.contains("feed"), "{error}");
    let later = triggers.get("typo", "late").try_send(key("later"));
    assert!(matches!(later, Err(TriggerError::Unknown { .. })), "{later:?}");
}

// parity: watches-raw-source
#[tokio::test(start_paused = true)]
async fn trigger_buffers_keys_until_controller_is_set_up() {
    let world = World::with(&[]);
    let trigger = world.triggers.get("scripted", "feed");
    trigger.try_send(key("early")).expect("kept");
    let _workers = world.watcher(|setup| drop(setup.trigger("feed", 1))).await;
    world.triggers.reject_undeclared();
    world.pass(1).await;
    trigger.try_send(key("late")).expect("it is declared");
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["early", "late"]);
}

// parity: watches-raw-source
#[tokio::test(start_paused = true)]
async fn timer_fires_every_period_and_optionally_at_start() {
    let world = World::with(&[]);
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
    let mut workers = world
        .watcher(move |setup| {
            setup.every(Timer::every(minute), || vec![key("sweep")]);
            setup.every(Timer::every(hour).and_at_start(), || vec![key("report")]);
        })
        .await;
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["report"]);
    world.pass(180).await;
    assert_eq!(world.diary.names(), ["sweep", "sweep", "sweep"]);
    workers.stop();
    workers.ended().await;
    world.pass(3600).await;
    assert_eq!(world.diary.names(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn jittered_timer_is_never_early_and_at_most_so_much_late() {
    let world = World::with(&[]);
    let minute = Duration::from_secs(60);
    let timer = Timer::every(minute).jitter(0.5);
    let _workers = world.watcher(move |setup| setup.every(timer, || vec![key("sweep")])).await;
    world.pass(3600).await;
    let pauses = gaps(&world.diary.times("sweep"));
    assert!(pauses.iter().all(|pause| (minute..=minute * 3 / 2).contains(pause)), "{pauses:?}");
    assert!(pauses.windows(2).any(|pair| pair[0] != pair[1]), "they differ");
}

#[tokio::test(start_paused = true)]
async fn timer_fires_again_after_panic_and_rejects_zero_period() {
    let world = World::with(&[]);
    let mut turns = 0;
    let keys = Arc::new(Mutex::new(move || {
        turns += 1;
        assert_ne!(turns, 1, "a defect of the first turn");
        vec![key("sweep")]
    }));
    let _workers = world
        .watcher(move |setup| {
            let keys = Arc::clone(&keys);
            setup.every(Timer::every(Duration::from_secs(1)), move || {
                (keys.lock().unwrap_or_else(std::sync::PoisonError::into_inner))()
            });
        })
        .await;
    world.env.sleep(Duration::from_millis(2500)).await;
    assert_eq!(world.diary.names(), ["sweep"]);
    assert_eq!(world.metrics.reconcile("scripted").panics.get(), 1);
    let restless = world.scripted(
        |setup| setup.every(Timer::every(Duration::ZERO), Vec::new),
        |_, _| async { Ok(Outcome::Done) },
    );
    assert!(matches!(restless.declaration(&world.env).map(drop), Err(SetupError::Timer)));
}

/// A controller with a trigger that also requires a cache of Secrets.
fn fed_and_needing_secrets(world: &World) -> (Arc<ObjectFeed>, Registration) {
    let feed = Arc::new(ObjectFeed::new(&world.env));
    let theirs = Arc::clone(&feed);
    let wire = move |setup: &mut Setup| {
        let source = theirs.selecting(&Selection::default());
        setup.watch_from(source, TypedObjects::<ConfigMap>::new()).primary();
        setup.primary::<Secret>();
        drop(setup.trigger("feed", 1));
        setup.cache_sync(crate::CacheSync::Forever);
    };
    (feed, world.scripted(wire, |_, _| async { Ok(Outcome::Done) }))
}

// parity: cache-sync-timeout-error
#[tokio::test(start_paused = true)]
async fn dropped_start_leaves_no_task_and_no_waiter() {
    let world = World::with(&[]);
    world.api.inject_fault(|asked| (asked.resource == "secrets").then_some(FaultAction::Unavailable));
    let trigger = world.feed(1);
    let (feed, registration) = fed_and_needing_secrets(&world);
    let readied = world.ready(registration);
    world.pass(1).await;
    let before = world.env.tasks();
    let starting = world.env.spawn("start", readied.prepared.start(readied.resources));
    world.pass(60).await;
    assert!(!starting.is_finished());
    assert_eq!(feed.watch_count(), 1, "its own source has begun");
    trigger.try_send(key("kept")).expect("there is room");
    let mut waiting = Box::pin(trigger.send(key("waits")));
    assert!(waiting.as_mut().now_or_never().is_none());
    starting.abort();
    world.pass(1).await;
    assert_eq!(world.env.tasks(), before);
    assert_eq!(feed.watch_count(), 0);
    assert_eq!(waiting.await, Err(TriggerError::Stopped { controller: "scripted" }));
}

#[tokio::test(start_paused = true)]
async fn start_without_handler_registration_leaves_no_task_or_waiter() {
    let world = World::with(&[]);
    let trigger = world.feed(1);
    let (feed, registration) = fed_and_needing_secrets(&world);
    let readied = world.ready(registration);
    readied.factory.shutdown().await;
    let before = world.env.tasks();
    let error = readied.prepared.start(readied.resources).await.expect_err("the informer of Secrets is gone");
    assert!(matches!(error, SetupError::Watch { .. }), "{error:?}");
    assert_eq!((world.env.tasks(), feed.watch_count()), (before, 0));
    assert_eq!(trigger.try_send(key("late")), Err(TriggerError::Stopped { controller: "scripted" }));
}

#[tokio::test(start_paused = true)]
async fn keys_parked_by_a_limit_count_against_the_bound_of_their_trigger() {
    let world = World::with(&[]);
    let trigger = world.feed(2);
    let wire = move |setup: &mut Setup| {
        setup.workers(4);
        setup.limit_concurrency(1, |_| Some("all".to_owned()));
        drop(setup.trigger("feed", 2));
    };
    let act = |_: ObjectKey, cx: Context| async move {
        cx.env().sleep(Duration::from_secs(10)).await;
        Ok(Outcome::Done)
    };
    let _workers = world.start_with(world.scripted(wire, act)).await;
    trigger.try_send(key("a")).expect("sent");
    world.pass(1).await;
    ["b", "c"].iter().for_each(|name| trigger.try_send(key(name)).expect("there is room"));
    world.pass(1).await;
    assert_eq!(trigger.try_send(key("d")), Err(TriggerError::Full { bound: 2 }));
    world.pass(10).await;
    trigger.try_send(key("d")).expect("b has its turn");
    world.pass(60).await;
    assert_eq!(world.diary.names(), ["a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn key_function_can_use_queue_while_it_runs() {
    let world = World::with(&["m"]);
    let wire = |setup: &mut Setup| {
        let queue = setup.queue();
        setup.watch::<ConfigMap>().on_event(move |_, enqueuer| {
            let names = ["one", "two"].into_iter();
            enqueuer.add_all(names.map(|name| {
                queue.add(key(&format!("{name}-too")));
                key(name)
            }));
        });
    };
    let _workers = world.watcher(wire).await;
    world.pass(1).await;
    let mut names = world.diary.names();
    names.sort();
    assert_eq!(names, ["one", "one-too", "two", "two-too"]);
}
