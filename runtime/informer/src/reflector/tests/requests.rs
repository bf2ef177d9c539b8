//! Requested relists: the number and time of the resulting lists, and the state of the tickets.

use super::*;
use crate::{ObjectLocation, RelistState};

fn request(rig: &Rig) -> crate::RelistTicket {
    rig.informer.request_relist(ObjectLocation::default())
}

fn state(rig: &Rig, ticket: &crate::RelistTicket) -> RelistState {
    rig.informer.relist_state(ticket)
}

fn lists(script: &Script) -> usize {
    script.asked().iter().filter(|asked| matches!(asked, Asked::List(_))).count()
}

/// Returns answers whose lists always succeed, each followed by a silent watch.
fn always(version: u64, names: &'static [&'static str]) -> impl Iterator<Item = Answer> {
    std::iter::repeat_with(move || [listed(version, names), stalls()]).take(200).flatten()
}

#[tokio::test(start_paused = true)]
async fn many_requests_coalesce_into_two_lists() {
    let rig = Rig::new();
    let script = Script::new(&rig.env, always(5, &["a"]));
    rig.start(&script);
    rig.settle().await;
    let mut tickets: Vec<_> = (0..500).map(|_| request(&rig)).collect();
    rig.settle().await;
    assert_eq!(lists(&script), 2, "the first list and one requested relist");
    tickets.extend((0..500).map(|_| request(&rig)));
    assert_eq!(state(&rig, tickets.last().unwrap()), RelistState::Pending);
    for ticket in &tickets {
        rig.informer.wait_relisted(ticket).await;
        assert_eq!(state(&rig, ticket), RelistState::Done);
    }
    assert_eq!(lists(&script), 3);
    rig.env.sleep(LONG).await;
    assert_eq!(lists(&script), 3);
}

#[tokio::test(start_paused = true)]
async fn request_during_requested_list_does_not_abort_it() {
    let rig = Rig::new();
    let silent = [listed(5, &["a"]), stalls(), first_page_of(6, "more", &["a"]), Answer::Silent];
    let script = Script::new(&rig.env, silent);
    rig.start(&script);
    rig.settle().await;
    let first = request(&rig);
    rig.settle().await;
    for _ in 0..100 {
        request(&rig);
        rig.settle().await;
    }
    assert_eq!(
        script.asked(),
        [
            consistent(),
            watch(5),
            on_request(),
            Asked::List(ListRequest {
                limit: Some(500),
                continue_token: Some("more".into()),
                unthrottled: true,
                ..ListRequest::default()
            })
        ],
        "no request aborts the list in flight"
    );
    assert_eq!(state(&rig, &first), RelistState::Pending);
}

#[tokio::test(start_paused = true)]
async fn ticket_is_done_after_store_applied_list() {
    let lagging = played(vec![Play::Send(bookmark(9)), Play::Stall]);
    let rig = Rig::new();
    let script = Script::new(&rig.env, [listed(5, &["a"]), lagging, listed(9, &["a", "b"]), stalls()]);
    rig.start(&script);
    rig.settle().await;
    assert_eq!(rig.informer.version(), Some(at(9)), "the version alone proves nothing");
    let ticket = request(&rig);
    for _ in 0..1_000 {
        if state(&rig, &ticket) == RelistState::Done {
            break;
        }
        assert_eq!(rig.held(), ["a@5=v"], "the list is not in the store");
        tokio::task::yield_now().await;
    }
    assert_eq!((state(&rig, &ticket), rig.held()), (RelistState::Done, vec!["a@9=v".into(), "b@9=v".into()]));
}

#[tokio::test(start_paused = true)]
async fn only_non_urgent_requested_lists_are_spaced() {
    let rig = Rig::new();
    let script = Script::new(&rig.env, always(5, &["a"]));
    rig.start(&script);
    rig.settle().await;
    for _ in 0..100 {
        request(&rig);
        rig.env.sleep(Duration::from_millis(100)).await;
    }
    let spaced = lists(&script);
    assert!((10..=12).contains(&spaced), "{spaced} lists in 10 s");
    for _ in 0..5 {
        assert!(rig.relisted_within(Duration::from_millis(10)).await);
    }
    assert_eq!(lists(&script), spaced + 5);
}

#[tokio::test(start_paused = true)]
async fn requests_do_not_overload_failing_source() {
    let rig = Rig::new();
    let failing = std::iter::repeat_with(|| Answer::List(Err(refusal(500, "StoreReadError")))).take(1_000);
    let script = Script::new(&rig.env, [listed(5, &["a"]), stalls()].into_iter().chain(failing));
    rig.start(&script);
    rig.settle().await;
    let ticket = request(&rig);
    for _ in 0..600 {
        request(&rig);
        rig.env.sleep(Duration::from_millis(100)).await;
    }
    assert!(lists(&script) <= 62, "{} lists in a minute", lists(&script));
    assert_eq!(state(&rig, &ticket), RelistState::Pending);
}

#[tokio::test(start_paused = true)]
async fn accepted_watch_ends_sequence_of_not_found_responses() {
    let rig = Rig::new();
    let rejected =
        std::iter::repeat_with(|| [Answer::List(Err(refusal(404, "NotFound"))), stalls()]).take(60);
    let script = Script::new(&rig.env, [listed(5, &["a"]), stalls()].into_iter().chain(rejected.flatten()));
    rig.start(&script);
    rig.settle().await;
    request(&rig);
    rig.env.sleep(Duration::from_secs(60)).await;
    assert!(lists(&script) > 3, "{} lists", lists(&script));
    assert_eq!(rig.held(), ["a@5=v"], "the server still serves watches of the kind");
}

#[tokio::test(start_paused = true)]
async fn ticket_is_pending_until_informer_has_listed() {
    let rig = Rig::new();
    let script = Script::new(&rig.env, [listed(5, &["a"]), stalls()]);
    let early = request(&rig);
    assert_eq!(state(&rig, &early), RelistState::Pending);
    rig.start(&script);
    rig.informer.wait_relisted(&early).await;
    assert_eq!((rig.held(), lists(&script)), (vec!["a@5=v".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn watch_continues_while_requested_lists_are_rejected() {
    let rig = Rig::new();
    let refused = || Answer::List(Err(refusal(500, "InternalError")));
    let follows = |version| played(vec![modified("a", version), Play::Stall]);
    let script = Script::new(
        &rig.env,
        [
            listed(5, &["a"]),
            stalls(),
            refused(),
            follows(6),
            refused(),
            follows(7),
            listed(8, &["a"]),
            stalls(),
        ],
    );
    rig.start(&script);
    rig.settle().await;
    let ticket = request(&rig);
    rig.settle().await;
    assert_eq!((rig.held(), state(&rig, &ticket)), (vec!["a@6=v".to_owned()], RelistState::Pending));
    rig.informer.wait_relisted(&ticket).await;
    rig.settle().await;
    let expected =
        [consistent(), watch(5), on_request(), watch(5), on_request(), watch(6), on_request(), watch(8)];
    assert_eq!((script.asked(), rig.held()), (expected.to_vec(), vec!["a@8=v".to_owned()]));
    let pauses = [script.gaps()[3], script.gaps()[5]];
    assert!(
        pauses.iter().all(|it| *it >= Duration::from_millis(800)),
        "the source is not overloaded: {pauses:?}"
    );
}
