//! The scenarios: which faults, and what must have happened for the scenario to have been one.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Endpoints, Service},
};
use windlass_api_server::faults::{Asked, Fault, What};
use windlass_black_box::{fixtures::service, wait::eventually, workload::Workload as _};

use crate::{
    evidence::creates_a_pod,
    ground::Kind,
    scene::{FEW, MANY, Scene, between},
};

/// Longer than anything is late.
const LONG: Duration = Duration::from_secs(20);
/// Short enough to be waited out where answers never come.
const SHORT: Duration = Duration::from_secs(3);

/// A busy user in bad weather; then everything comes right. Some of these requests were struck.
async fn weather(
    kind: Kind,
    name: &str,
    request_timeout: Duration,
    faults: Vec<Fault>,
    targets: &[fn(&Asked) -> bool],
) -> Result<()> {
    let mut scene = Scene::open(kind, name, request_timeout, faults).await?;
    scene.busy_user().await?;
    scene.calm().await;
    let evidence = scene.evidence();
    for (index, target) in targets.iter().enumerate() {
        ensure!(evidence.struck(target) > 0, "the faults missed target {index}\n{}", evidence.story());
    }
    scene.ends().await
}

fn is_list(asked: &Asked) -> bool {
    !asked.is_watch() && !asked.is_write() && asked.name.is_empty()
}

/// Makes the manager list again what it has been watching, when a storm begins.
fn lists_anew() -> [Fault; 2] {
    ["pods", "services"].map(|resource| between(1_000, 1_100, What::WatchExpired).on(resource))
}

pub(crate) async fn a_storm_of_429_is_waited_out(kind: Kind) -> Result<()> {
    let busy = || What::TooManyRequests { retry_after_seconds: 1 };
    // Nobody gets through at first, some later.
    let mut faults = vec![between(1_000, 3_000, busy()), between(3_000, 4_500, busy()).permille(500)];
    faults.extend(lists_anew());
    weather(kind, "busy", LONG, faults, &[is_list, Asked::is_work]).await
}

pub(crate) async fn a_storm_of_500_and_503_loses_nothing(kind: Kind) -> Result<()> {
    let mut faults = vec![
        between(1_000, 2_000, What::InternalError),
        between(2_000, 3_000, What::Unavailable),
        between(3_000, 4_000, What::InternalError).permille(300),
        between(3_000, 4_000, What::Unavailable).permille(300),
    ];
    faults.extend(lists_anew());
    weather(kind, "failing", LONG, faults, &[is_list, Asked::is_work]).await
}

pub(crate) async fn slow_answers_and_slow_watches_mislead_nobody(kind: Kind) -> Result<()> {
    let faults = vec![
        between(0, 1_000, What::ResponseDelayed { by_ms: 1_000 }).permille(500),
        between(0, 1_000, What::RequestDelayed { by_ms: 500 }).permille(500),
        // Writes are quick again, and what came of them is not seen: who does not remember doubles pods.
        between(1_000, 4_000, What::WatchDelayed { by_ms: 2_000 }).on("pods"),
    ];
    // What is merely late is not struck.
    weather(kind, "slow", LONG, faults, &[]).await
}

/// That an answer is lost is known only after a while, when its effect has long been told over the watch. Were the sender
/// quicker than the watch, it would ask for another pod, and could not know better: the server chooses the names.
pub(crate) async fn answers_lost_after_their_effect_double_no_pod(kind: Kind) -> Result<()> {
    let lost = |silently| What::ResponseLost { silently };
    let late = || between(200, 2_200, What::ResponseDelayed { by_ms: 300 }).on("pods");
    let faults = vec![
        between(200, 1_500, lost(false)).on("pods"),
        between(1_500, 2_200, What::TimedOut).on("pods"),
        between(2_200, 3_000, lost(true)).on("pods"),
        // Together rarely shorter than a twentieth of a second.
        late(),
        late(),
        late(),
        between(500, 3_000, lost(false)).on("replicasets").permille(400),
        between(500, 3_000, What::TimedOut).on("endpoints").permille(400),
    ];
    weather(kind, "unheard", SHORT, faults, &[creates_a_pod]).await
}

pub(crate) async fn watches_that_break_and_end_miss_nothing(kind: Kind) -> Result<()> {
    // A watch is struck at a moment between its opening and the end of the fault, by whatever comes first.
    let faults = vec![
        between(500, 1_500, What::WatchReset),
        between(1_500, 2_500, What::WatchClosed),
        between(2_500, 3_200, What::WatchExpired),
        between(3_200, 4_000, What::WatchReset),
    ];
    weather(kind, "broken-watches", LONG, faults, &[Asked::is_watch]).await
}

/// When the manager is cut off: late enough for it to be idle. And when it is no longer: late enough for
/// kube-apiserver to have etcd forget.
const CUT_MS: u64 = 5_000;
const HEALED_MS: u64 = 10_000;

pub(crate) async fn history_forgotten_during_a_partition_is_made_up_for_by_a_list(kind: Kind) -> Result<()> {
    // The connections break, and nothing gets through any more.
    let faults =
        vec![between(CUT_MS, CUT_MS + 50, What::WatchReset), between(CUT_MS, HEALED_MS, What::Partition)];
    let mut scene = Scene::open(kind, "forgotten", SHORT, faults).await?;
    scene.world().create(&service("gone", &[81])).await?;
    scene.settles(FEW).await?;
    eventually(
        "the other Service has Endpoints",
        || scene.world().ready_addresses("gone"),
        |count| *count == usize::try_from(FEW).unwrap_or(0),
    )
    .await?;
    scene.reach(Duration::from_millis(CUT_MS + 200)).await;

    // A version that the manager, cut off, has not come to.
    let touched = scene.world().update::<ReplicaSet>("web", |set| set.set_desired(FEW + 1)).await?;
    scene.delete_pods(2).await?;
    scene.world().delete::<Service>("gone").await?;
    scene.scale(MANY).await?;
    scene.ground.forget(&touched.metadata.resource_version.unwrap_or_default()).await?;
    scene.calm().await;

    eventually(
        "the Endpoints of the Service that is gone are gone",
        || scene.world().find::<Endpoints>("gone"),
        Option::is_none,
    )
    .await?;
    scene.settles(MANY).await?;
    let evidence = scene.evidence();
    ensure!(evidence.told_expired("pods") > 0, "no watch of pods was told\n{}", evidence.story());
    scene.ends().await
}
