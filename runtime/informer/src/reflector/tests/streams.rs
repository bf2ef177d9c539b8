//! Watch-list streams, and the fallback for servers that break their protocol.

use super::*;
use crate::FactoryOptions;

/// Returns a stream of these objects, its end at `version`, and then `then`.
fn streamed(version: u64, names: &[&str], then: Vec<Play>) -> Answer {
    let there = names.iter().map(|name| added(name, 1));
    Answer::Stream(Ok(there.chain([end(version)]).chain(then).collect()))
}

fn unfinished(plays: Vec<Play>) -> Answer {
    Answer::Stream(Ok(plays))
}

fn added(name: &str, version: u64) -> Play {
    Play::Send(Frame::Added(object(name, &format!("uid-{name}"), version, "v")))
}

fn deleted(name: &str, version: u64) -> Play {
    Play::Send(Frame::Deleted(object(name, &format!("uid-{name}"), version, "v")))
}

fn end(version: u64) -> Play {
    Play::Send(Frame::Bookmark { version: at(version), initial_events_end: true })
}

fn lost() -> Play {
    Play::Send(error_frame(&refusal(500, "StoreReadError")))
}

fn newest() -> Asked {
    Asked::Stream(None)
}

fn stream_since(version: u64) -> Asked {
    Asked::Stream(Some(version.to_string()))
}

fn wait(seconds: u64) -> Play {
    Play::Wait(Duration::from_secs(seconds))
}

// parity: watch-list-initial-events, test-watch-list, test-watch-list-resource-version
#[tokio::test(start_paused = true)]
async fn streamed_list_has_version_of_end_bookmark_and_continues_as_watch() {
    let then = vec![modified("a", 9), wait(120)];
    let (rig, script) = play(vec![streamed(7, &["a", "b"], then), stalls()]).await;
    assert_eq!(script.asked(), [newest(), watch(9)], "neither a list nor a separate watch");
    assert_eq!(
        (rig.held(), rig.informer.version()),
        (vec!["a@9=v".to_owned(), "b@1=v".to_owned()], Some(at(9)))
    );
}

// parity: watch-list-initial-events
#[tokio::test(start_paused = true)]
async fn streamed_list_is_applied_atomically_at_its_end() {
    let rig = Rig::new();
    let log = Log::default();
    let _handle = log.attach(&rig.informer, "log");
    let events = vec![added("a", 3), wait(2), added("b", 4), wait(2), end(7), Play::Stall];
    let script = Script::new(&rig.env, [unfinished(events)]);
    rig.start(&script);
    rig.env.sleep(Duration::from_secs(3)).await;
    assert_eq!((rig.held().len(), rig.informer.has_synced(), rig.informer.version()), (0, false, None));
    rig.env.sleep(Duration::from_secs(3)).await;
    assert_eq!((rig.held().len(), rig.informer.has_synced()), (2, true));
    assert_eq!(log.take(), ["+a@3=v InitialList", "+b@4=v InitialList"]);
}

// parity: versions-synthetic-added-events, test-watch-list-resource-version
#[tokio::test(start_paused = true)]
async fn streamed_additions_do_not_advance_version_before_end() {
    let lost = Play::Fail(RequestError::Transport("connection reset".to_owned()));
    let (_rig, script) =
        play(vec![unfinished(vec![added("a", 90), lost]), listed(7, &["a"]), stalls()]).await;
    assert_eq!(script.asked(), [newest(), consistent(), watch(7)]);
}

// parity: test-watch-list
#[tokio::test(start_paused = true)]
async fn changes_during_streamed_list_are_final() {
    let events = vec![added("a", 1), added("b", 2), modified("a", 5), deleted("b", 6), end(6), Play::Stall];
    let (rig, _script) = play(vec![unfinished(events)]).await;
    assert_eq!((rig.held(), rig.informer.version()), (vec!["a@5=v".to_owned()], Some(at(6))));
}

#[tokio::test(start_paused = true)]
async fn stream_after_failure_starts_at_reached_version_and_removes_deleted() {
    let (rig, script) = play(vec![
        streamed(7, &["a", "b"], vec![modified("a", 9), lost()]),
        streamed(12, &["a"], vec![Play::Stall]),
    ])
    .await;
    assert_eq!(script.asked(), [newest(), stream_since(9)]);
    assert_eq!(rig.held().len(), 1);
}

// parity: memory-re-lists
#[tokio::test(start_paused = true)]
async fn stream_reports_known_decode_failure_once() {
    let broken = Play::Send(Frame::Added(undecodable("bad", "uid-bad", 2)));
    let again = Play::Send(Frame::Added(undecodable("bad", "uid-bad", 2)));
    let (rig, _script) =
        play(vec![unfinished(vec![broken, end(7), lost()]), unfinished(vec![again, end(8), Play::Stall])])
            .await;
    assert_eq!(rig.counts().decode_failures.get(), 1);
}

// parity: stream-without-end-bookmark, test-initial-events-end-bookmark-ticker, watch-list-never-falls
#[tokio::test(start_paused = true)]
async fn stream_without_end_falls_back_to_pages_after_timeout() {
    let (rig, script) = play(vec![
        unfinished(vec![added("a", 3), Play::Stall]),
        listed(7, &["a"]),
        played(vec![Play::Send(error_frame(&refusal(500, "StoreReadError")))]),
        listed(8, &["a"]),
        stalls(),
    ])
    .await;
    assert_eq!(script.asked(), [newest(), consistent(), watch(7), not_older_than(7), watch(8)]);
    assert_eq!((script.gaps()[0], script.disappointments()), (Duration::from_secs(15), 1));
    assert_eq!((rig.counts().lists.get(), rig.counts().list_errors.get()), (3, 1));
}

// parity: stream-without-end-bookmark
#[tokio::test(start_paused = true)]
async fn stream_of_endless_changes_falls_back_to_pages_after_deadline() {
    let busy = (0..100_u64)
        .flat_map(|version| [added("a", 3 + version), Play::Send(bookmark(3 + version)), wait(5)]);
    let (rig, script) = play(vec![unfinished(busy.collect()), listed(200, &["a"]), stalls()]).await;
    assert_eq!(script.asked(), [newest(), consistent(), watch(200)]);
    assert_eq!((script.gaps()[0], rig.held()), (Duration::from_secs(120), vec!["a@200=v".to_owned()]));
}

// parity: watch-list-never-falls
#[tokio::test(start_paused = true)]
async fn bookmarks_do_not_extend_wait_for_streamed_list() {
    let marks = (0..100_u64).flat_map(|version| [Play::Send(bookmark(3 + version)), wait(1)]);
    let (_rig, script) = play(vec![unfinished(marks.collect()), listed(200, &[]), stalls()]).await;
    assert_eq!(
        (script.asked(), script.gaps()[0]),
        (vec![newest(), consistent(), watch(200)], Duration::from_secs(15))
    );
}

#[tokio::test(start_paused = true)]
async fn stream_that_is_always_ready_falls_back_to_pages_after_deadline() {
    for frame in [Frame::Modified(object("a", "uid-a", 3, "v")), bookmark(3)] {
        let rig = Rig::new();
        let script =
            Script::new(&rig.env, [unfinished(vec![Play::Flood(frame)]), listed(7, &["a"]), stalls()]);
        rig.start(&script);
        rig.env.sleep(Duration::from_secs(200)).await;
        assert_eq!((script.asked(), rig.held().len()), (vec![newest(), consistent(), watch(7)], 1));
    }
}

// parity: test-watch-list
#[tokio::test(start_paused = true)]
async fn second_stream_closed_before_its_end_disables_streams() {
    for events in [vec![], vec![added("a", 3)], vec![Play::Send(bookmark(5))]] {
        let (_rig, script) = play(vec![
            unfinished(events),
            listed(7, &["a"]),
            played(vec![Play::Send(error_frame(&gone()))]),
            unfinished(vec![added("a", 3)]),
            listed(9, &["a"]),
            stalls(),
        ])
        .await;
        assert_eq!(script.asked(), [newest(), consistent(), watch(7), newest(), consistent(), watch(9)]);
        assert!(script.gaps()[0] >= Backoff::FIRST, "a server that shuts down needs a pause");
        assert_eq!((script.gaps()[3], script.disappointments()), (Duration::ZERO, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn complete_stream_resets_early_close() {
    let lost = Play::Send(error_frame(&gone()));
    let (_rig, script) = play(vec![
        unfinished(vec![]),
        listed(7, &["a"]),
        played(vec![Play::Send(error_frame(&gone()))]),
        streamed(8, &["a"], vec![lost]),
        unfinished(vec![]),
        listed(9, &["a"]),
        stalls(),
    ])
    .await;
    assert_eq!((script.asked().last(), script.disappointments()), (Some(&watch(9)), 0));
}

#[tokio::test(start_paused = true)]
async fn stream_timeout_exceeds_list_deadline() {
    let (_rig, script) = play((0..20).map(|_| Answer::Stream(Err(busy(1)))).collect()).await;
    let windows = script.windows();
    assert!(
        windows.len() > 5 && windows.iter().all(|window| *window > Duration::from_secs(120)),
        "{windows:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn object_changed_during_streamed_list_counts_once() {
    let weight = u64::try_from(object("a", "uid-a", 3, "v").len()).unwrap();
    for events in [
        vec![added("a", 3), modified("a", 4), modified("a", 5), end(7), Play::Stall],
        vec![
            added("a", 3),
            deleted("a", 4),
            added("b", 5),
            deleted("b", 6),
            added("c", 7),
            end(7),
            Play::Stall,
        ],
    ] {
        let options = FactoryOptions { byte_budget: Some(weight * 3 / 2), ..FactoryOptions::default() };
        let rig = Rig::with_options(options);
        let script = Script::new(&rig.env, [unfinished(events)]);
        rig.start(&script);
        rig.settle().await;
        assert_eq!((rig.held().len(), rig.counts().over_budget.get()), (1, 0));
    }
}

// parity: test-watch-list, streaming-list
#[tokio::test(start_paused = true)]
async fn unsupported_stream_falls_back_to_pages_immediately() {
    for (code, reason) in
        [(400, "BadRequest"), (405, "MethodNotAllowed"), (406, "NotAcceptable"), (422, "Invalid")]
    {
        let refused = Answer::Stream(Err(refusal(code, reason)));
        let (_rig, script) = play(vec![refused, listed(7, &["a"]), stalls()]).await;
        assert_eq!(script.asked(), [newest(), consistent(), watch(7)], "{reason}");
        assert_eq!((script.gaps()[0], script.disappointments()), (Duration::ZERO, 1), "{reason}");
    }
}

// parity: test-watch-list
#[tokio::test(start_paused = true)]
async fn unrelated_error_falls_back_to_pages_once() {
    for (code, reason) in [(500, "InternalError"), (403, "Forbidden"), (503, "ServiceUnavailable")] {
        let (_rig, script) = play(vec![
            Answer::Stream(Err(refusal(code, reason))),
            listed(7, &["a"]),
            played(vec![Play::Send(error_frame(&gone()))]),
            streamed(9, &["a"], vec![Play::Stall]),
        ])
        .await;
        assert_eq!(script.asked(), [newest(), consistent(), watch(7), newest()], "{reason}");
        assert_eq!(script.disappointments(), 0, "{reason}");
    }
}

// parity: test-watch-list
#[tokio::test(start_paused = true)]
async fn throttled_or_refused_stream_is_retried_after_wait() {
    let unreachable = || Answer::Stream(Err(RequestError::ConnectionRefused("no listener".to_owned())));
    let (_rig, script) = play(vec![
        unreachable(),
        Answer::Stream(Err(busy(17))),
        unfinished(vec![added("a", 1), Play::Send(error_frame(&busy(5)))]),
        streamed(7, &["a"], vec![Play::Stall]),
    ])
    .await;
    assert_eq!(script.asked(), [newest(), newest(), newest(), newest()]);
    let gaps = script.gaps();
    let least = [Backoff::FIRST, Duration::from_secs(17), Duration::from_secs(5)];
    assert!(gaps.iter().zip(least).all(|(gap, least)| *gap >= least), "{gaps:?}");
}

// parity: test-watch-list
#[tokio::test(start_paused = true)]
async fn stream_at_expired_version_is_repeated_consistently_without_wait() {
    for unavailable in [gone(), refusal(504, "Too large resource version")] {
        let (_rig, script) = play(vec![
            streamed(7, &["a"], vec![lost()]),
            Answer::Stream(Err(unavailable)),
            streamed(9, &["a"], vec![Play::Stall]),
        ])
        .await;
        assert_eq!(script.asked(), [newest(), stream_since(7), newest()]);
        assert_eq!(script.gaps()[1], Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn stale_stream_is_verified_by_consistent_list() {
    let lost = Play::Send(error_frame(&gone()));
    let (rig, script) = play(vec![
        streamed(50, &["a"], vec![lost]),
        streamed(20, &["b"], vec![Play::Stall]),
        listed(20, &["b"]),
        stalls(),
    ])
    .await;
    assert_eq!(script.asked(), [newest(), newest(), consistent(), watch(20)]);
    assert_eq!((rig.held(), rig.informer.version_changes().get().epoch), (vec!["b@20=v".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_closes_stream_for_paged_list() {
    let (rig, script) =
        play(vec![streamed(7, &["a"], vec![Play::Stall]), listed(9, &["a", "b"]), stalls()]).await;
    assert!(rig.relisted_within(Duration::from_secs(1)).await);
    assert_eq!(script.asked(), [newest(), on_request(), watch(9)]);
}

// parity: sleep-back-off-ignores
#[tokio::test(start_paused = true)]
async fn stopping_informer_ends_wait_for_stream() {
    let rig = Rig::new();
    let refused = || Answer::Stream(Err(RequestError::ConnectionRefused("no listener".to_owned())));
    let script = Script::new(&rig.env, (0..8).map(|_| refused()));
    rig.start(&script);
    rig.env.sleep(Duration::from_secs(60)).await;
    let stopping = rig.env.now();
    rig.factory.shutdown().await;
    assert_eq!(rig.env.now(), stopping);
}
