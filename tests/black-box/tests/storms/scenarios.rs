//! The scenarios: faults, and the minimum number of hits that makes a scenario meaningful.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Endpoints, Service},
};
use windlass_api_server::faults::{FaultAction, RequestSummary};
use windlass_black_box::{
    fixtures::service,
    wait::{eventually, eventually_within},
    workload::Workload as _,
};
use windlass_object::Verb;

use crate::{
    evidence::creates_a_pod,
    ground::Kind,
    scene::{FEW, MANY, RECOVERY, ScenarioRun, Target},
};

/// Request timeout that is longer than any delay.
const LONG: Duration = Duration::from_secs(60);
/// Request timeout for scenarios with lost responses: short, but much longer than a watch takes to deliver a write.
const SHORT: Duration = Duration::from_secs(4);

/// Minimum time of a late response.
const LATE: Duration = Duration::from_millis(250);

/// Cycles through the faults.
fn in_turns<const N: usize>(
    turns: [Option<FaultAction>; N],
) -> impl FnMut() -> Option<FaultAction> + Send + 'static {
    let mut turns = turns.into_iter().cycle();
    move || turns.next().flatten()
}

/// Applies each fault to a watch once, with a pause before each because reconnects back off.
///
/// A fault replaces an event, which the next watch or list then delivers. The request that opens a watch is also passed
/// to this function, but is not affected by the fault. Each fault is therefore returned twice: once for the event and
/// once for the request.
fn once_each<const N: usize>(ways: [FaultAction; N]) -> impl FnMut() -> Option<FaultAction> + Send + 'static {
    let mut turns = ways.into_iter().flat_map(|way| [None, Some(way.clone()), Some(way)]);
    move || turns.next().flatten()
}

/// Returns whether a request lists objects, and does not only read the current version.
fn is_list(request: &RequestSummary) -> bool {
    request.verb == Some(Verb::List) && !request.uri.split(['?', '&']).any(|part| part == "limit=1")
}

/// Returns whether a request watches pods. Without this watch the manager still receives changes of the desired state.
fn watches_pods(request: &RequestSummary) -> bool {
    request.is_watch() && request.resource == "pods"
}

const fn lists(enough: usize) -> Target {
    Target {
        name: "lists were struck",
        hits: |seen| seen.injected_count(|request, _| is_list(request)),
        enough,
    }
}

const fn work(enough: usize) -> Target {
    Target {
        name: "writes were struck",
        hits: |seen| seen.injected_count(|request, _| request.is_work()),
        enough,
    }
}

const fn requests(enough: usize) -> Target {
    Target { name: "requests were struck", hits: |seen| seen.injected_count(|_, _| true), enough }
}

/// Fails all requests, and expires watches of pods, so that the manager must relist.
fn refused(
    mut with: impl FnMut() -> Option<FaultAction> + Send + 'static,
) -> impl FnMut(&RequestSummary) -> Option<FaultAction> + Send + 'static {
    move |request| if watches_pods(request) { Some(FaultAction::WatchExpired) } else { with() }
}

pub(crate) async fn manager_waits_out_429_responses(kind: Kind) -> Result<()> {
    let busy = || FaultAction::TooManyRequests { retry_after_seconds: 1 };
    let mut scene = ScenarioRun::open(kind, "busy", LONG).await?;
    scene.storm(refused(move || Some(busy())), &[lists(1), work(1)]).await?;
    let mut turn = in_turns([None, Some(busy())]);
    scene.storm(move |_| turn(), &[requests(4)]).await?;
    scene.calm();
    scene.ends().await
}

pub(crate) async fn nothing_is_lost_under_500_and_503_responses(kind: Kind) -> Result<()> {
    let mut scene = ScenarioRun::open(kind, "failing", LONG).await?;
    let turn = in_turns([Some(FaultAction::InternalError), Some(FaultAction::Unavailable)]);
    scene.storm(refused(turn), &[lists(1), work(1)]).await?;
    let mut turn = in_turns([None, Some(FaultAction::InternalError), None, Some(FaultAction::Unavailable)]);
    scene.storm(move |_| turn(), &[requests(4), work(1)]).await?;
    scene.calm();
    scene.ends().await
}

pub(crate) async fn slow_responses_and_watches_cause_no_wrong_write(kind: Kind) -> Result<()> {
    let mut scene = ScenarioRun::open(kind, "slow", LONG).await?;
    let mut of_pods = once_each([FaultAction::WatchExpired]);
    let mut of_others = in_turns([
        Some(FaultAction::ResponseDelayed { by_ms: 1_000 }),
        Some(FaultAction::RequestDelayed { by_ms: 1_000 }),
        None,
    ]);
    let slow = move |request: &RequestSummary| match request.is_watch() {
        true if watches_pods(request) => of_pods(),
        true => None,
        false => of_others(),
    };
    let work = Target {
        name: "writes were late",
        hits: |seen| seen.answered_late(LATE, RequestSummary::is_work),
        enough: 2,
    };
    scene.storm(slow, &[work]).await?;

    // Writes are fast again, but watch events are late: a manager that does not record its creates would duplicate
    // pods.
    let unseen =
        Target { name: "pods were seen late", hits: |seen| seen.late_pod_events(2 * LATE), enough: 2 };
    let late = |request: &RequestSummary| {
        watches_pods(request).then_some(FaultAction::WatchDelayed { by_ms: 2_000 })
    };
    scene.storm(late, &[unseen]).await?;
    scene.calm();
    scene.ends().await
}

/// The server generates pod names, so a client that loses the response to a create cannot identify its pod. It must
/// wait for the watch, for an unknown time. Responses to pod writes are therefore lost silently: until the request
/// timeout and the manager's own wait have passed, the watch has caught up. Responses to idempotent writes are also
/// lost with errors.
pub(crate) async fn lost_create_responses_create_no_extra_pod(kind: Kind) -> Result<()> {
    let lost = |silently| FaultAction::ResponseLost { silently };
    let mut of_sets = in_turns([Some(lost(false)), None]);
    let mut of_endpoints = in_turns([Some(FaultAction::TimedOut), None]);
    let unheard = move |request: &RequestSummary| match request.resource.as_str() {
        _ if !request.is_write() => None,
        "pods" => Some(lost(true)),
        "replicasets" => of_sets(),
        "endpoints" => of_endpoints(),
        _ => None,
    };
    let pods = Target {
        name: "answers about new pods were lost",
        hits: |seen| seen.injected_count(|request, _| creates_a_pod(request)),
        enough: 1,
    };
    let sets = Target {
        name: "answers about ReplicaSets were lost",
        hits: |seen| seen.injected_count(|request, _| request.resource == "replicasets"),
        enough: 1,
    };
    let endpoints = Target {
        name: "answers about Endpoints were lost",
        hits: |seen| seen.injected_count(|request, _| request.resource == "endpoints"),
        enough: 1,
    };
    let mut scene = ScenarioRun::open(kind, "unheard", SHORT).await?;
    scene.storm(unheard, &[pods, sets, endpoints]).await?;
    scene.calm();
    scene.ends().await
}

pub(crate) async fn broken_and_ended_watches_miss_no_change(kind: Kind) -> Result<()> {
    let broken = {
        let mut turns = BTreeMap::new();
        move |request: &RequestSummary| {
            let of_resource = turns.entry(request.resource.clone()).or_insert_with(|| {
                once_each([FaultAction::WatchReset, FaultAction::WatchClosed, FaultAction::WatchExpired])
            });
            if request.is_watch() { of_resource() } else { None }
        }
    };
    let targets = [
        Target {
            name: "watches broke off",
            hits: |seen| seen.injected_count(|_, how| how == "WatchReset"),
            enough: 2,
        },
        Target {
            name: "watches ended",
            hits: |seen| seen.injected_count(|_, how| how == "WatchClosed"),
            enough: 2,
        },
        Target {
            name: "watches expired",
            hits: |seen| seen.injected_count(|_, how| how == "WatchExpired"),
            enough: 2,
        },
    ];
    let mut scene = ScenarioRun::open(kind, "broken-watches", LONG).await?;
    scene.storm(broken, &targets).await?;
    scene.calm();
    scene.ends().await
}

pub(crate) async fn compaction_during_partition_causes_relist(kind: Kind) -> Result<()> {
    let mut scene = ScenarioRun::open(kind, "forgotten", SHORT).await?;
    scene.namespace().create(&service("gone", &[81])).await?;
    eventually(
        "the other Service has Endpoints",
        || scene.namespace().ready_addresses("gone"),
        |count| *count == usize::try_from(FEW).unwrap_or(0),
    )
    .await?;

    let lists = scene.evidence().lists("pods");
    scene.line().partition();
    // A version that the partitioned manager does not reach.
    let touched = scene.namespace().update::<ReplicaSet>("web", |set| set.set_desired(FEW + 1)).await?;
    scene.delete_pods(2).await?;
    scene.namespace().delete::<Service>("gone").await?;
    scene.scale(MANY).await?;
    // The watch must fail before the link is healed; otherwise it would continue where it stopped.
    eventually(
        "the watch of pods is broken",
        async || Ok(scene.evidence().injected_count(|request, _| watches_pods(request))),
        |count| *count > 0,
    )
    .await?;
    scene.ground.forget(&touched.metadata.resource_version.unwrap_or_default()).await?;
    scene.line().heal();

    eventually_within(
        RECOVERY,
        "the Endpoints of the deleted Service are deleted",
        || scene.namespace().find::<Endpoints>("gone"),
        Option::is_none,
    )
    .await?;
    scene.settles(MANY).await?;
    let evidence = scene.evidence();
    // The watch gets 410 Gone, unless a key that waits for its own writes requests a list before.
    ensure!(evidence.lists("pods") > lists, "pods were not listed again\n{}", evidence.story());
    scene.ends().await
}
