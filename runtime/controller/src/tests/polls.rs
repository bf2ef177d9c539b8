//! Polls and streams: keys from systems other than the API server.

use std::collections::VecDeque;
use std::future::pending;

use futures_util::stream::{self, StreamExt as _};
use windlass_env::watch_channel::{Sender, channel};

use super::*;
use crate::{CacheSync, PollCache, Timer};

const PERIOD: Duration = Duration::from_secs(60);

fn key(name: &str) -> ObjectKey {
    ObjectKey::cluster(name)
}

/// An inventory that returns its results in order and then repeats the last one.
#[derive(Clone)]
struct Inventory(Arc<Mutex<VecDeque<Answer>>>);

#[derive(Clone)]
enum Answer {
    Racks(&'static [(&'static str, u32)]),
    Fails,
    Panics,
    Hangs,
}

impl Inventory {
    fn of(answers: &[Answer]) -> Self {
        Self(Arc::new(Mutex::new(answers.iter().cloned().collect())))
    }

    async fn racks(self) -> Result<BTreeMap<ObjectKey, u32>, std::io::Error> {
        let next = {
            let mut answers = self.0.lock().expect("whole");
            let last = answers.len() == 1;
            if last { answers[0].clone() } else { answers.pop_front().expect("an answer") }
        };
        match next {
            Answer::Racks(racks) => Ok(racks.iter().map(|(name, rack)| (key(name), *rack)).collect()),
            Answer::Fails => Err(std::io::Error::other("the inventory is down")),
            Answer::Panics => panic!("a defect"),
            Answer::Hangs => pending().await,
        }
    }
}

/// Declares a controller that polls an inventory; stores the cache in `kept`.
fn polling(
    inventory: &Inventory,
    kept: &Arc<Mutex<Option<PollCache<u32>>>>,
) -> impl Fn(&mut Setup) + Send + Sync + 'static {
    let (inventory, kept) = (inventory.clone(), Arc::clone(kept));
    move |setup| {
        let inventory = inventory.clone();
        let racks = setup.poll("inventory", Timer::every(PERIOD), move |_| inventory.clone().racks());
        *kept.lock().expect("whole") = Some(racks);
    }
}

#[tokio::test(start_paused = true)]
async fn poll_enqueues_keys_with_added_changed_or_removed_values() {
    let (world, kept) = (World::with(&[]), Arc::default());
    let answers =
        [Answer::Racks(&[("a", 1), ("b", 1), ("c", 1)]), Answer::Racks(&[("a", 1), ("b", 2), ("d", 1)])];
    let _workers = world.watcher(polling(&Inventory::of(&answers), &kept)).await;
    let racks = kept.lock().expect("whole").clone().expect("set up");
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["a", "b", "c"]);
    world.pass(60).await;
    assert_eq!(world.diary.names(), ["b", "d", "c"]);
    let values = ["a", "b", "c", "d"].map(|name| racks.get(&key(name)).map(|rack| *rack));
    assert_eq!(values, [Some(1), Some(2), None, Some(1)]);
    assert_eq!(racks.keys(), [key("a"), key("b"), key("d")]);
    world.pass(600).await;
    assert!(world.diary.names().is_empty(), "an unchanged result enqueues no keys");
}

#[tokio::test(start_paused = true)]
async fn workers_start_after_first_poll_result() {
    let (world, kept) = (World::with(&[]), Arc::default());
    let answers = [Answer::Fails, Answer::Panics, Answer::Racks(&[("a", 1)])];
    let begun = world.env.now();
    let _workers = world.watcher(polling(&Inventory::of(&answers), &kept)).await;
    assert_eq!(world.env.now().saturating_duration_since(begun), Duration::from_secs(3), "1 s, then 2 s");
    assert_eq!(world.metrics.reconcile("scripted").panics.get(), 1);
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn failed_poll_keeps_last_result_and_retries_with_backoff() {
    let (world, kept) = (World::with(&[]), Arc::default());
    let answers = [Answer::Racks(&[("a", 1)]), Answer::Fails, Answer::Fails, Answer::Racks(&[("a", 2)])];
    let _workers = world.watcher(polling(&Inventory::of(&answers), &kept)).await;
    let racks = kept.lock().expect("whole").clone().expect("set up");
    world.pass(61).await;
    assert_eq!(racks.get(&key("a")).as_deref(), Some(&1));
    world.pass(3).await;
    assert_eq!(racks.get(&key("a")).as_deref(), Some(&2), "1 s and 2 s after the failures");
}

#[tokio::test(start_paused = true)]
async fn poll_recovers_after_failing_for_a_day() {
    let (world, kept) = (World::with(&[]), Arc::default());
    let mut answers = vec![Answer::Racks(&[("a", 1)])];
    answers.extend(std::iter::repeat_n(Answer::Fails, 24 * 60));
    answers.push(Answer::Racks(&[("a", 2)]));
    let _workers = world.watcher(polling(&Inventory::of(&answers), &kept)).await;
    let racks = kept.lock().expect("whole").clone().expect("set up");
    world.pass(23 * 3600).await;
    assert_eq!(racks.get(&key("a")).as_deref(), Some(&1));
    world.pass(2 * 3600).await;
    assert_eq!(racks.get(&key("a")).as_deref(), Some(&2));
}

#[tokio::test(start_paused = true)]
async fn start_without_an_answer_fails_and_names_the_poll() {
    for (answer, reason) in [
        (Answer::Fails, "poll inventory: the inventory is down"),
        (Answer::Hangs, "poll inventory: no answer yet"),
    ] {
        let (world, idle) = (World::with(&[]), World::with(&[]).env.tasks().len());
        let wire = polling(&Inventory::of(&[answer]), &Arc::default());
        let wire = move |setup: &mut Setup| {
            wire(setup);
            setup.cache_sync(CacheSync::Within(Duration::from_secs(20)));
        };
        let readied = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
        let caches = readied.prepared.caches();
        assert_eq!(caches(), Ok(()), "a standby does not poll");
        let error = readied.prepared.start(readied.resources).await.expect_err("no answer").to_string();
        assert!(error.contains(reason), "{error}");
        assert!(caches().expect_err("not ready").contains(reason));
        readied.factory.shutdown().await;
        assert_eq!(world.env.tasks().len(), idle, "{:?}", world.env.tasks());
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_start_leaves_no_poll_behind() {
    let world = World::with(&[]);
    let wire = polling(&Inventory::of(&[Answer::Hangs]), &Arc::default());
    let readied = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let remains = readied.prepared.cleanup();
    let started = world.env.timeout(PERIOD, readied.prepared.start(readied.resources)).await;
    assert!(started.is_err());
    remains.finish().await;
    readied.factory.shutdown().await;
    assert!(world.env.tasks().is_empty(), "{:?}", world.env.tasks());
}

#[tokio::test(start_paused = true)]
async fn polls_and_streams_end_with_their_controller() {
    let world = World::with(&[]);
    let wire = polling(&Inventory::of(&[Answer::Racks(&[("a", 1)]), Answer::Hangs]), &Arc::default());
    let mut workers = world
        .watcher(move |setup| {
            wire(setup);
            setup.stream("feed", |_| stream::pending());
        })
        .await;
    world.pass(61).await;
    workers.stop();
    workers.ended().await;
    assert!(world.env.tasks().iter().all(|task| !task.contains("scripted")), "{:?}", world.env.tasks());
}

#[tokio::test(start_paused = true)]
async fn polls_with_duplicate_names_are_rejected() {
    let world = World::with(&[]);
    let (one, other) = (Inventory::of(&[Answer::Fails]), Inventory::of(&[Answer::Fails]));
    let wire = move |setup: &mut Setup| {
        polling(&one, &Arc::default())(setup);
        polling(&other, &Arc::default())(setup);
    };
    let refused = world.scripted(wire, |_, _| async { Ok(Outcome::Done) }).declaration(&world.env);
    let error = refused.map(drop).expect_err("one name").to_string();
    assert!(error.contains("poll inventory") && error.contains("twice"), "{error}");
}

/// A source of streams. Each stream yields two keys and then ends, panics, or continues with published keys.
fn streaming(kind: &'static str, feed: &Sender<u32>) -> impl Fn(&mut Setup) + Send + Sync + 'static {
    let feed = feed.subscribe();
    move |setup| {
        let feed = feed.clone();
        setup.stream("feed", move |_| {
            let two = stream::iter([key("one"), key("two")]);
            let end = match kind {
                "ends" => stream::empty().boxed(),
                "panics" => stream::once(async { panic!("a defect") }).boxed(),
                _ => stream::unfold(feed.clone(), |mut feed| async move {
                    let number = feed.changed().await.ok()?;
                    Some((key(&format!("key-{number}")), feed))
                })
                .boxed(),
            };
            two.chain(end)
        });
    }
}

#[tokio::test(start_paused = true)]
async fn stream_that_ends_or_panics_is_opened_again() {
    for (kind, panics) in [("ends", 0), ("panics", 3)] {
        let (world, feed) = (World::with(&[]), channel(0).0);
        let _workers = world.watcher(streaming(kind, &feed)).await;
        world.env.sleep(Duration::from_millis(2500)).await;
        assert_eq!(world.diary.names(), ["one", "two", "one", "two", "one", "two"], "{kind}");
        assert_eq!(world.metrics.reconcile("scripted").panics.get(), panics, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn stream_queues_keys_as_they_come() {
    let (world, feed) = (World::with(&[]), channel(0).0);
    let _workers = world.watcher(streaming("goes on", &feed)).await;
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["one", "two"]);
    feed.set(1);
    world.pass(1).await;
    feed.set(2);
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["key-1", "key-2"]);
}

#[tokio::test(start_paused = true)]
async fn empty_stream_is_reopened_with_backoff() {
    let (world, opened) = (World::with(&[]), Arc::new(Mutex::new(0)));
    let counts = Arc::clone(&opened);
    let _workers = world
        .watcher(move |setup| {
            let counts = Arc::clone(&counts);
            setup.stream("feed", move |_| {
                *counts.lock().expect("whole") += 1;
                stream::empty()
            });
        })
        .await;
    // At 0, 1, 3, 7, 15, 31 and 63 s, then every minute.
    world.pass(64 + 600).await;
    assert_eq!(*opened.lock().expect("whole"), 17);
}
