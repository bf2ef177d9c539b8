//! The requests of the reflector, their timing, and the effects of the responses.

mod requests;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::mpsc;
use windlass_client::{RequestError, VersionMatch};
use windlass_metrics::Metrics;
use windlass_object::{Frame, RawList, ResourceKind, TypedObjects, WireError, wire};

use super::*;
use crate::availability::AvailabilityTracker;
use crate::budget::ByteBudget;
use crate::compact::ObjectForm;
use crate::testing::*;
use crate::{FactoryOptions, VersionedCache as _};

fn consistent() -> Asked {
    Asked::List(ListRequest { limit: Some(500), ..ListRequest::default() })
}

/// Returns the same request as sent for a requested relist.
fn on_request() -> Asked {
    Asked::List(ListRequest { limit: Some(500), unthrottled: true, ..ListRequest::default() })
}

fn unpaged() -> Asked {
    Asked::List(ListRequest::default())
}

fn not_older_than(version: u64) -> Asked {
    Asked::List(ListRequest {
        version: Some(version.to_string()),
        version_match: Some(VersionMatch::NotOlderThan),
        ..ListRequest::default()
    })
}

fn continued(token: &str) -> Asked {
    Asked::List(ListRequest {
        limit: Some(500),
        continue_token: Some(token.to_owned()),
        ..ListRequest::default()
    })
}

fn watch(version: u64) -> Asked {
    Asked::Watch(version.to_string())
}

fn listed(version: u64, names: &[&str]) -> Answer {
    let items: Vec<_> = names.iter().map(|name| object(name, &format!("uid-{name}"), version, "v")).collect();
    Answer::List(Ok(page(version, &items)))
}

fn first_page_of(version: u64, token: &str, names: &[&str]) -> Answer {
    let Answer::List(Ok(list)) = listed(version, names) else { unreachable!("a list was made") };
    Answer::List(Ok(RawList { continue_token: Some(token.to_owned()), ..list }))
}

fn played(plays: Vec<Play>) -> Answer {
    Answer::Watch(Ok(plays))
}

fn stalls() -> Answer {
    played(vec![Play::Stall])
}

fn modified(name: &str, version: u64) -> Play {
    Play::Send(Frame::Modified(object(name, &format!("uid-{name}"), version, "v")))
}

fn busy(seconds: u32) -> RequestError {
    let body = format!(r#"{{"status":"Failure","code":429,"details":{{"retryAfterSeconds":{seconds}}}}}"#);
    RequestError::from_status(wire::status(429, body.as_bytes()), None)
}

/// Plays these answers, and returns after a time that suffices for all of them.
async fn play(answers: Vec<Answer>) -> (Rig, Arc<Script>) {
    let rig = Rig::new();
    let script = Script::new(&rig.env, answers);
    rig.start(&script);
    rig.env.sleep(LONG).await;
    (rig, script)
}

// parity: lister-watcher-lister, list-metadata-version-watch, pages-500, test-reflector-list-and-watch
// parity: test-reflector-watch-list-page-size, watcher-states
#[tokio::test(start_paused = true)]
async fn watch_starts_at_version_of_paged_initial_list() {
    let (rig, script) = play(vec![
        first_page_of(7, "two", &["a"]),
        first_page_of(7, "three", &["b"]),
        listed(7, &["c"]),
        stalls(),
    ])
    .await;
    assert_eq!(script.asked(), [consistent(), continued("two"), continued("three"), watch(7)]);
    assert_eq!(rig.held(), ["a@7=v", "b@7=v", "c@7=v"]);
}

#[tokio::test(start_paused = true)]
async fn throttled_page_is_requested_again() {
    let turned_away = || Answer::List(Err(busy(7)));
    let answers =
        [first_page_of(7, "two", &["a"]), turned_away(), turned_away(), listed(7, &["b"]), stalls()];
    let (rig, script) = play(answers.into()).await;
    let [two, again] = [continued("two"), continued("two")];
    assert_eq!(script.asked(), [consistent(), two, again, continued("two"), watch(7)]);
    assert_eq!(
        (rig.held(), script.gaps()[1]),
        (vec!["a@7=v".into(), "b@7=v".into()], Duration::from_secs(7))
    );
}

// parity: watches-last-5-10, test-watch-timeout
#[tokio::test(start_paused = true)]
async fn watch_timeout_is_randomized_within_bounds() {
    let watches = (0..4).map(|_| played(vec![Play::Wait(Duration::from_secs(2))]));
    let (_rig, script) = play([listed(1, &[])].into_iter().chain(watches).chain([stalls()]).collect()).await;
    let windows = script.windows();
    assert!(
        windows.iter().all(|window| (MIN_WATCH_TIMEOUT..MAX_WATCH_TIMEOUT).contains(window)),
        "{windows:?}"
    );
    assert!(windows.windows(2).all(|pair| pair[0] != pair[1]), "{windows:?}");
}

// parity: re-list-not-older, test-reflector-resync-with-resource
#[tokio::test(start_paused = true)]
async fn list_after_failed_watch_starts_at_reached_version() {
    let (_rig, script) = play(vec![
        listed(5, &["a"]),
        played(vec![modified("a", 6), Play::Send(error_frame(&refusal(500, "StoreReadError")))]),
        listed(8, &["a"]),
        stalls(),
    ])
    .await;
    assert_eq!(script.asked(), [consistent(), watch(5), not_older_than(6), watch(8)]);
}

// parity: every-exit-list-and, test-reflector-expired-exact-resource
#[tokio::test(start_paused = true)]
async fn list_at_expired_version_is_repeated_consistently_without_wait() {
    let (rig, script) = play(vec![
        listed(5, &[]),
        Answer::Watch(Err(refusal(500, "StoreReadError"))),
        Answer::List(Err(gone())),
        listed(9, &["a"]),
        stalls(),
    ])
    .await;
    assert_eq!(script.asked(), [consistent(), watch(5), not_older_than(5), consistent(), watch(9)]);
    assert_eq!((script.gaps()[2], rig.held()), (Duration::ZERO, vec!["a@9=v".to_owned()]));
}

// parity: expired-too-large-list, test-reflector-full-list-if-too-large
#[tokio::test(start_paused = true)]
async fn too_large_version_triggers_consistent_list_in_every_format() {
    let old = r#"{"status":"Failure","code":504,"reason":"Timeout","message":"Too large resource version: 5, current: 1"}"#;
    let new = r#"{"status":"Failure","code":504,"reason":"Timeout","message":"later","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"x"}]}}"#;
    let oldest = r#"{"status":"Failure","code":500,"message":"Too large resource version: 5, current: 1"}"#;
    for body in [old, new, oldest] {
        let refusal = RequestError::from_status(wire::status(504, body.as_bytes()), None);
        let (_rig, script) = play(vec![
            listed(5, &[]),
            Answer::Watch(Err(self::refusal(500, "StoreReadError"))),
            Answer::List(Err(refusal)),
            listed(9, &[]),
            stalls(),
        ])
        .await;
        assert_eq!(script.asked()[2..], [not_older_than(5), consistent(), watch(9)], "{body}");
    }
}

// parity: full-list-if-expired, test-reflector-full-list-if-expired
#[tokio::test(start_paused = true)]
async fn expired_continue_token_triggers_unpaged_consistent_list() {
    let (rig, script) =
        play(vec![first_page_of(7, "two", &["a"]), Answer::List(Err(gone())), listed(9, &["b"]), stalls()])
            .await;
    assert_eq!(script.asked(), [consistent(), continued("two"), unpaged(), watch(9)]);
    assert_eq!(rig.held(), ["b@9=v"], "the items of the first attempt are dropped");
}

// parity: is-expired-error
#[tokio::test(start_paused = true)]
async fn rejected_watch_at_expired_version_triggers_consistent_list() {
    let (rig, script) =
        play(vec![listed(5, &["a"]), Answer::Watch(Err(gone())), listed(9, &["b"]), stalls()]).await;
    assert_eq!(script.asked(), [consistent(), watch(5), consistent(), watch(9)]);
    assert_eq!(rig.held(), ["b@9=v"]);
}

// parity: is-expired-error
#[tokio::test(start_paused = true)]
async fn expired_frame_in_watch_triggers_consistent_list() {
    let (_rig, script) =
        play(vec![listed(5, &[]), played(vec![Play::Send(error_frame(&gone()))]), listed(9, &[]), stalls()])
            .await;
    assert_eq!(script.asked(), [consistent(), watch(5), consistent(), watch(9)]);
}

// parity: every-exit-list-and
#[tokio::test(start_paused = true)]
async fn reflector_backs_off_when_server_always_returns_gone() {
    let rounds = (0..5).flat_map(|_| [listed(5, &[]), Answer::Watch(Err(gone()))]);
    let (_rig, script) = play(rounds.chain([listed(5, &[]), stalls()]).collect()).await;
    let waits: Vec<Duration> = script.gaps().into_iter().skip(1).step_by(2).collect();
    assert!(waits.iter().zip([800, 1600, 3200]).all(|(wait, least)| wait.as_millis() >= least), "{waits:?}");
}

// parity: refused-connection-429-start, test-no-relist-on-too-many-requests
#[tokio::test(start_paused = true)]
async fn throttled_watch_resumes_after_retry_after_without_list() {
    let (_rig, script) = play(vec![
        listed(5, &[]),
        Answer::Watch(Err(busy(17))),
        played(vec![modified("a", 6), Play::Send(error_frame(&busy(9)))]),
        stalls(),
    ])
    .await;
    assert_eq!(script.asked(), [consistent(), watch(5), watch(5), watch(6)]);
    assert!(script.gaps()[1] >= Duration::from_secs(17) && script.gaps()[2] >= Duration::from_secs(9));
}

// parity: refused-connection-429-start, test-reflector-list-and-watch-init-conn
#[tokio::test(start_paused = true)]
async fn refused_connection_resumes_watch_without_list() {
    let refused = || Answer::Watch(Err(RequestError::ConnectionRefused("no listener".to_owned())));
    let (_rig, script) = play(vec![listed(5, &[]), refused(), refused(), stalls()]).await;
    assert_eq!(script.asked(), [consistent(), watch(5), watch(5), watch(5)]);
    assert!(script.gaps()[1] >= Backoff::FIRST && script.gaps()[2] >= Backoff::FIRST * 2);
}

// parity: odd-stream-errors-short
#[tokio::test(start_paused = true)]
async fn broken_watch_resumes_after_last_delivered_version() {
    let cut = RequestError::Transport("connection reset".to_owned());
    let truncated = RequestError::Wire(WireError::Truncated { bytes: 3 });
    let (_rig, script) = play(vec![
        listed(5, &[]),
        played(vec![modified("a", 6), Play::Fail(cut)]),
        played(vec![Play::Send(bookmark(20)), Play::Fail(RequestError::WatchIdle)]),
        played(vec![Play::Fail(truncated)]),
        stalls(),
    ])
    .await;
    assert_eq!(script.asked(), [consistent(), watch(5), watch(6), watch(20), watch(20)]);
}

fn connection_lost() -> Play {
    Play::Fail(RequestError::Transport("connection reset".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn long_watch_is_resumed_after_first_backoff_step() {
    let minute = || Play::Wait(Duration::from_secs(60));
    let truncated = || Play::Fail(RequestError::Wire(WireError::Truncated { bytes: 3 }));
    let rounds = (0..5u64).flat_map(|round| {
        let change = modified("a", 6 + round);
        [played(vec![change, minute(), connection_lost()]), played(vec![minute(), truncated()])]
    });
    let (rig, script) = play([listed(5, &["a"])].into_iter().chain(rounds).chain([stalls()]).collect()).await;
    rig.env.sleep(LONG * 2).await;
    let gaps = script.gaps();
    let longest = Duration::from_secs(60) + Backoff::FIRST * 2;
    assert!(gaps.len() == 11 && gaps.iter().all(|gap| *gap <= longest), "{gaps:?}");
    assert_eq!((rig.counts().lists.get(), rig.informer.last_error()), (1, None));
}

#[tokio::test(start_paused = true)]
async fn short_watches_that_break_raise_backoff() {
    let early = Duration::from_secs(5);
    let rounds =
        (0..6u64).map(|round| played(vec![modified("a", 6 + round), Play::Wait(early), connection_lost()]));
    let (_rig, script) =
        play([listed(5, &["a"])].into_iter().chain(rounds).chain([stalls()]).collect()).await;
    let gaps = script.gaps();
    assert!(gaps.len() == 7 && gaps[6] >= early + Duration::from_secs(25), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_with_replayed_changes_only_is_resumed_after_backoff() {
    let repeats = || played(vec![modified("a", 6)]);
    let (_rig, script) =
        play(vec![listed(9, &["a"]), repeats(), played(vec![modified("a", 9)]), repeats(), stalls()]).await;
    let gaps = script.gaps();
    let waits = [Backoff::FIRST, Backoff::FIRST * 2, Backoff::FIRST * 4];
    assert!(gaps.len() == 4 && gaps[1..].iter().zip(waits).all(|(gap, least)| *gap >= least), "{gaps:?}");
}

// parity: test-reflector-handle-watch-result-chan
#[tokio::test(start_paused = true)]
async fn watch_closed_after_change_is_resumed_immediately() {
    let (_rig, script) = play(vec![listed(5, &["a"]), played(vec![modified("a", 6)]), stalls()]).await;
    assert_eq!(script.gaps()[1], Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn reflector_caps_retry_after_at_one_minute() {
    let (_rig, script) =
        play(vec![listed(5, &[]), Answer::Watch(Err(busy(u32::from(u16::MAX)))), stalls()]).await;
    assert_eq!(script.gaps()[1..], [Duration::from_secs(60)]);
}

#[tokio::test(start_paused = true)]
async fn open_watch_clears_last_error() {
    let rig = Rig::new();
    let script = Script::new(&rig.env, [listed(5, &[]), Answer::Watch(Err(busy(17))), stalls()]);
    rig.start(&script);
    rig.settle().await;
    assert!(rig.informer.last_error().is_some_and(|error| error.contains("watch: ")));
    rig.env.sleep(LONG).await;
    assert_eq!(rig.informer.last_error(), None);
}

// parity: bookmarks-move-version, enable-watch-bookmarks
#[tokio::test(start_paused = true)]
async fn bookmarks_advance_watch_and_store_version() {
    let (rig, script) = play(vec![
        listed(5, &["a"]),
        played(vec![Play::Send(bookmark(30)), Play::Wait(Duration::from_secs(60))]),
        stalls(),
    ])
    .await;
    assert_eq!(script.asked().last(), Some(&watch(30)));
    assert_eq!(rig.informer.version(), Some(at(30)));
}

// parity: watch-handler, normal-close-again-once
#[tokio::test(start_paused = true)]
async fn watch_closed_at_timeout_is_resumed_immediately() {
    let (_rig, script) =
        play(vec![listed(5, &[]), played(vec![Play::Wait(Duration::from_secs(150))]), stalls()]).await;
    assert_eq!(script.asked(), [consistent(), watch(5), watch(5)]);
    assert_eq!(script.gaps()[1], Duration::from_secs(150));
}

/// Upstream relists after a short watch or an unusual error.
// parity: closed-less-second-without, test-reflector-handle-watch-result-chan, odd-stream-errors-short
#[tokio::test(start_paused = true)]
async fn empty_short_watch_is_resumed_after_backoff_without_list() {
    let (_rig, script) = play(vec![listed(5, &[]), played(vec![]), played(vec![]), stalls()]).await;
    assert_eq!(script.asked(), [consistent(), watch(5), watch(5), watch(5)]);
    assert!(script.gaps()[1] >= Backoff::FIRST && script.gaps()[2] >= Backoff::FIRST * 2);
}

// parity: test-reflector-list-and-watch-with, no-back-off-unless
#[tokio::test(start_paused = true)]
async fn failing_server_raises_backoff_even_if_lists_succeed() {
    let failing = || refusal(500, "StoreReadError");
    let lists = (0..6).map(|_| Answer::List(Err(failing())));
    let (_rig, script) = play(lists.chain([listed(1, &[]), stalls()]).collect()).await;
    let gaps = script.gaps();
    assert!(
        gaps[..6].windows(2).all(|pair| pair[1] * 2 >= pair[0]) && gaps[5] >= Duration::from_secs(25),
        "{gaps:?}"
    );

    let watches = (0..6).flat_map(|_| [listed(1, &[]), Answer::Watch(Err(failing()))]);
    let (_rig, script) = play(watches.chain([listed(1, &[]), stalls()]).collect()).await;
    assert!(script.gaps()[11] >= Duration::from_secs(25), "{:?}", script.gaps());
}

// parity: any-other-error-start, test-reflector-replaces-store-on-unsafe, test-reflector-list-and-watch-with
#[tokio::test(start_paused = true)]
async fn unknown_watch_error_triggers_list_that_removes_deleted() {
    let (rig, _script) = play(vec![
        listed(5, &["a", "b"]),
        played(vec![Play::Send(error_frame(&refusal(500, "StoreReadError")))]),
        listed(6, &["b"]),
        stalls(),
    ])
    .await;
    assert_eq!(rig.held(), ["b@6=v"]);
}

// parity: watch-handler, events-unexpected-type-skipped
#[tokio::test(start_paused = true)]
async fn watch_event_without_name_triggers_relist() {
    let headless = Play::Send(Frame::Modified(r#"{"metadata":{}}"#.into()));
    let (rig, script) = play(vec![
        listed(5, &["a"]),
        played(vec![modified("a", 6), headless, Play::Stall]),
        listed(8, &["a"]),
        stalls(),
    ])
    .await;
    assert_eq!(script.asked(), [consistent(), watch(5), not_older_than(6), watch(8)]);
    assert_eq!(rig.counts().decode_failures.get(), 1);
}

// parity: test-key-error
#[tokio::test(start_paused = true)]
async fn list_item_without_name_does_not_hide_others() {
    let items = [r#"{"metadata":{}}"#.into(), object("a", "u", 3, "v"), "7".into()];
    let (rig, _script) = play(vec![Answer::List(Ok(page(5, &items))), stalls()]).await;
    assert_eq!((rig.held(), rig.counts().decode_failures.get()), (vec!["a@3=v".to_owned()], 2));
}

// parity: list-metadata-version-watch
#[tokio::test(start_paused = true)]
async fn list_without_version_is_rejected() {
    let (rig, script) = play(vec![Answer::List(Ok(RawList::default())), listed(5, &["a"]), stalls()]).await;
    assert_eq!(script.asked(), [consistent(), consistent(), watch(5)]);
    assert_eq!(rig.held(), ["a@5=v"]);
}

#[tokio::test(start_paused = true)]
async fn stale_list_is_rejected_unless_consistent() {
    let (rig, script) = play(vec![
        listed(50, &["a"]),
        Answer::Watch(Err(refusal(500, "StoreReadError"))),
        listed(20, &["b"]),
        listed(20, &["b"]),
        stalls(),
    ])
    .await;
    assert_eq!(script.asked(), [consistent(), watch(50), not_older_than(50), consistent(), watch(20)]);
    let progress = rig.informer.version_changes().get();
    assert_eq!((rig.held(), progress.version, progress.epoch), (vec!["b@20=v".to_owned()], Some(at(20)), 1));
}

#[tokio::test(start_paused = true)]
async fn replayed_watch_events_do_not_move_version_back() {
    let (rig, script) = play(vec![
        listed(5, &["a"]),
        played(vec![modified("a", 9), modified("a", 6), Play::Send(bookmark(7))]),
        stalls(),
    ])
    .await;
    assert_eq!((rig.held(), script.asked().last()), (vec!["a@9=v".to_owned()], Some(&watch(9))));
}

#[tokio::test(start_paused = true)]
async fn unversioned_change_is_applied_but_never_watched_from() {
    for version in [0, 6] {
        let end = modified("a", version);
        let (rig, script) =
            play(vec![listed(5, &["a"]), played(vec![end, Play::Wait(LONG / 2)]), stalls()]).await;
        assert_eq!(script.asked(), [consistent(), watch(5), watch(version.max(5))]);
        assert_eq!(rig.held(), [format!("a@{version}=v")]);
    }
}

// parity: reflector-metrics-defined-never
#[tokio::test(start_paused = true)]
async fn metrics_count_lists_watches_and_errors() {
    let rig = Rig::new();
    let script = Script::new(
        &rig.env,
        [
            Answer::List(Err(refusal(403, "Forbidden"))),
            listed(5, &[]),
            Answer::Watch(Err(refusal(500, "StoreReadError"))),
            listed(5, &[]),
            stalls(),
        ],
    );
    rig.start(&script);
    rig.settle().await;
    assert!(rig.informer.last_error().is_some_and(|error| error.contains("list: ") && error.contains("403")));
    rig.env.sleep(LONG).await;
    let counts = rig.counts();
    assert_eq!((counts.lists.get(), counts.list_errors.get()), (3, 1));
    assert_eq!((counts.watches.get(), counts.watch_errors.get()), (2, 1));
    assert_eq!(rig.informer.last_error(), None);
}

// parity: unlock-while-processing
#[tokio::test(start_paused = true)]
async fn full_queue_delays_reading_of_source() {
    let env = Env::virtual_time(1);
    let (frames, receiver) = mpsc::unbounded_channel();
    let capacity = DeltaFifo::<Arc<ConfigMap>>::CAPACITY;
    for version in 6..6 + 2 * u64::try_from(capacity).unwrap() {
        frames.send(Frame::Modified(object("a", "uid-a", version, "v"))).unwrap();
    }
    let fifo = Arc::new(DeltaFifo::new());
    let metrics = Metrics::new().informer("", "v1", "configmaps");
    let budget = Arc::new(ByteBudget::new(None, metrics.clone()));
    let reflector = Reflector::new(ReflectorParams {
        partition: Partition::Whole,
        informer: "configmaps".into(),
        stream: "test".to_owned(),
        source: Script::new(&env, [listed(5, &["a"]), played(vec![Play::Live(receiver)])]),
        codec: Arc::new(Codec::of(TypedObjects::<ConfigMap>::new())),
        fifo: Arc::clone(&fifo),
        store: Arc::new(Store::new()),
        env: env.clone(),
        metrics,
        failures: FailureReporter::default(),
        relist: RelistHandle::new(),
        ingest_options: IngestOptions {
            keep_managed_fields: false,
            transform: None,
            form: ObjectForm::Compact,
            budget,
        },
        availability: AvailabilityTracker::new().reporter(
            Partition::Whole,
            ResourceKind::of::<ConfigMap>(),
            None,
        ),
        heartbeat: Heartbeat::new(windlass_client::RequestProgress::default()),
    });
    let task = env.spawn("reflector", reflector.run());
    env.sleep(LONG).await;
    assert_eq!(fifo.len(), capacity);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_replaces_silent_watch() {
    let (rig, script) = play(vec![listed(5, &["a"]), stalls(), listed(9, &["a", "b"]), stalls()]).await;
    assert_eq!(rig.held(), ["a@5=v"]);
    assert!(rig.relisted_within(Duration::from_secs(1)).await);
    assert_eq!(script.asked(), [consistent(), watch(5), on_request(), watch(9)]);
    assert_eq!(rig.held(), ["a@9=v", "b@9=v"], "missed changes are stored before the request is granted");
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_waits_for_new_list_and_honors_retry_after() {
    let rig = Rig::new();
    let script = Script::new(
        &rig.env,
        [
            listed(5, &[]),
            Answer::Watch(Err(refusal(500, "StoreReadError"))),
            Answer::List(Err(busy(60))),
            listed(6, &["a"]),
            stalls(),
        ],
    );
    rig.start(&script);
    rig.env.sleep(Duration::from_secs(5)).await;
    assert_eq!(
        script.asked(),
        [consistent(), watch(5), not_older_than(5)],
        "the server required a wait of one minute"
    );
    assert!(!rig.relisted_within(Duration::from_secs(1)).await, "a throttled server gets no extra request");
    assert!(rig.relisted_within(LONG).await);
    rig.settle().await;
    assert_eq!(
        script.asked()[3..],
        [on_request(), watch(6)],
        "pending requests are granted by the next list"
    );
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_ends_backoff_once_per_request() {
    let rig = Rig::new();
    let lost = || Answer::List(Err(RequestError::Transport("lost".into())));
    let failures = std::iter::repeat_with(lost).take(7);
    let script = Script::new(&rig.env, failures.chain([listed(9, &["a"]), stalls()]));
    rig.start(&script);
    while script.asked().len() < 6 {
        rig.env.sleep(Duration::from_secs(1)).await;
    }
    let waits = "the reflector backs off for 30 s";
    assert!(
        !rig.relisted_within(Duration::from_secs(1)).await,
        "one request ends one wait, and its list fails"
    );
    assert_eq!(script.asked().len(), 7, "{waits}");
    rig.env.sleep(Duration::from_secs(5)).await;
    assert_eq!(script.asked().len(), 7, "{waits}");
    assert!(rig.relisted_within(Duration::from_secs(1)).await);
    rig.settle().await;
    assert_eq!(rig.held(), ["a@9=v"]);
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_aborts_unanswered_list() {
    for last_page in [None, Some(first_page_of(9, "more", &["gone"]))] {
        let rig = Rig::new();
        let pages = usize::from(last_page.is_some()) + 1;
        let unanswered = last_page.into_iter().chain([Answer::Silent]);
        let script = Script::new(&rig.env, unanswered.chain([listed(10, &["a"]), stalls()]));
        rig.start(&script);
        rig.env.sleep(LONG).await;
        assert_eq!(script.asked().len(), pages, "without a request only the deadline ends the list");
        assert!(rig.relisted_within(Duration::from_secs(1)).await);
        assert_eq!(script.asked()[pages..], [on_request(), watch(10)]);
        assert_eq!(rig.held(), ["a@10=v"], "no items of the aborted list are kept");
    }
}

#[tokio::test(start_paused = true)]
async fn page_larger_than_budget_is_rejected() {
    let rig = Rig::with_options(FactoryOptions { byte_budget: Some(10_000), ..FactoryOptions::default() });
    let too_long = || Answer::List(Err(RequestError::BudgetExceeded("longer than allowed".into())));
    let script = Script::new(&rig.env, [too_long(), listed(5, &["a"]), stalls()]);
    rig.start(&script);
    rig.settle().await;
    let refusal = rig.informer.last_error().expect("the error is reported");
    assert!(refusal.contains("at least 10001 bytes required, byte budget 10000"), "{refusal}");
    assert_eq!(rig.counts().over_budget.get(), 1);
    rig.env.sleep(LONG).await;
    assert_eq!(rig.held(), ["a@5=v"], "the list is retried");
    let Asked::List(request) = script.asked().remove(0) else { panic!("the first request is a list") };
    assert_eq!((request.limit, request.max_bytes), (Some(500), Some(10_000 + 64 * 1024)));
}

// parity: stream-410-lists-429, test-no-relist-on-too-many-requests, test-retry-with-deadline, odd-stream-errors-short
#[tokio::test(start_paused = true)]
async fn repeated_internal_errors_trigger_relist_after_limit() {
    let stumbles = || played(vec![Play::Send(error_frame(&refusal(500, "InternalError")))]);
    let (_rig, script) = play(vec![
        listed(5, &["a"]),
        stumbles(),
        Answer::Watch(Err(refusal(500, "InternalError"))),
        played(vec![modified("a", 6), Play::Send(error_frame(&refusal(500, "InternalError")))]),
        stumbles(),
        stumbles(),
        stumbles(),
        listed(8, &["a"]),
        stalls(),
    ])
    .await;
    let asked = [consistent(), watch(5), watch(5), watch(5), watch(6), watch(6), watch(6), not_older_than(6)];
    assert_eq!(script.asked()[..8], asked);
    assert!(script.gaps()[1..7].iter().all(|gap| *gap >= Backoff::FIRST), "{:?}", script.gaps());
}

// parity: events-unexpected-type-skipped
#[tokio::test(start_paused = true)]
async fn unknown_watch_event_is_ignored() {
    let unknown = Play::Send(Frame::Unknown("RENAMED".into()));
    let (rig, script) =
        play(vec![listed(5, &["a"]), played(vec![unknown, modified("a", 6), Play::Stall])]).await;
    assert_eq!((script.asked().len(), rig.held()), (2, vec!["a@6=v".to_owned()]));
    assert_eq!(rig.informer.last_error(), None);
}

// parity: closed-less-second-without
#[tokio::test(start_paused = true)]
async fn watch_with_bookmarks_only_resumes_at_last_bookmark() {
    let marks = |version| played(vec![Play::Send(bookmark(version)), Play::Send(bookmark(version + 1))]);
    let (rig, script) = play(vec![listed(5, &["a"]), marks(10), marks(20), stalls()]).await;
    assert_eq!(script.asked(), [consistent(), watch(5), watch(11), watch(21)]);
    assert_eq!(rig.informer.version(), Some(at(21)));
}

// parity: parts-articles-watch-error-handler, watch-error-handler-not, test-shared-informer-error-handling
// parity: default-watch-error-handler
#[tokio::test(start_paused = true)]
async fn watch_error_handler_receives_next_action_and_delay() {
    let rig = Rig::new();
    let failures = Arc::new(std::sync::Mutex::new(Vec::new()));
    let recorded = Arc::clone(&failures);
    rig.informer.on_watch_error(move |failure: &WatchFailure| recorded.lock().unwrap().push(failure.clone()));
    let script = Script::new(
        &rig.env,
        [
            Answer::Stream(Err(refusal(422, "Invalid"))),
            Answer::List(Err(refusal(403, "Forbidden"))),
            listed(5, &[]),
            Answer::Watch(Err(busy(17))),
            played(vec![modified("a", 6), Play::Send(error_frame(&gone()))]),
            listed(9, &[]),
            played(vec![Play::Wait(Duration::from_secs(60)), connection_lost()]),
            stalls(),
        ],
    );
    rig.start(&script);
    rig.env.sleep(LONG).await;
    let failures = failures.lock().unwrap().clone();
    let newest = || NextAction::Read { not_older_than: None };
    let from = |version| NextAction::Watch { from: at(version) };
    let expected = [
        (WatchOperation::WatchList, newest()),
        (WatchOperation::List, newest()),
        (WatchOperation::OpeningWatch, from(5)),
        (WatchOperation::Watch, newest()),
        (WatchOperation::Watch, from(9)),
    ];
    let steps: Vec<_> =
        failures.iter().map(|failure| (failure.operation, failure.next_action.clone())).collect();
    assert_eq!(steps, expected);
    let gaps = script.gaps();
    let waits: Vec<_> = failures.iter().map(|failure| failure.delay).collect();
    let came = [gaps[0], gaps[1], gaps[3], gaps[4]];
    let on_time =
        |(gap, wait): (&Duration, &Duration)| (*wait..*wait + Duration::from_millis(2)).contains(gap);
    assert!(came.iter().zip(&waits).all(on_time), "{waits:?}, but the requests came after {came:?}");
    assert!(failures[2].error.is_too_many_requests() && &*failures[2].informer == "configmaps.v1");
}

// parity: parts-articles-watch-error-handler, default-watch-error-handler
#[tokio::test(start_paused = true)]
async fn panicking_watch_error_handler_does_not_stop_reflector() {
    let rig = Rig::new();
    rig.informer.on_watch_error(|_: &WatchFailure| panic!("handler"));
    let script = Script::new(&rig.env, [Answer::List(Err(gone())), listed(5, &["a"]), stalls()]);
    rig.start(&script);
    rig.env.sleep(LONG).await;
    assert_eq!((rig.held().len(), rig.counts().handler_panics.get()), (1, 1));
}
