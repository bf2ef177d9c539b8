//! Upstream, then Windlass, then upstream manage the same objects. A newcomer writes nothing while nothing changes, and
//! continues a rollout with the names that its predecessor would have used. Windlass uses upstream's field manager.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use windlass_black_box::{
    audit::{Audit, Write},
    control_plane::with_control_plane,
    implementation::{CLIENTS, Implementation, Running},
};
use windlass_harness::ControlPlane;

use crate::{
    kind::{Kind, app},
    observe::{Objects, number},
    play::{Pace, is_broken, settle},
    scene::{Scene, options},
    script::{BROKEN, Operation},
};

/// Workloads of each kind: a third of them in the middle of a rollout.
const WORKLOADS: usize = 30;

/// Nodes of the DaemonSets: a rollout is in the middle while the second node waits for the first.
const NODES: usize = 3;

/// Pods of each other workload.
const REPLICAS: usize = 2;

/// Time in which a newcomer must not write. It has synced its caches and reconciled all objects after one second, and
/// reconciles them again at least twice.
const REST: Duration = Duration::from_secs(8);

/// Caches are resynced after this time, or up to twice as long.
const RESYNC: &str = "--min-resync-period=2s";

/// Prefix of Windlass's user agents with upstream's field manager.
const WINDLASS: &str = concat!("kube-controller-manager/", env!("CARGO_PKG_VERSION"), "/");

/// Prefix of upstream's user agents.
const UPSTREAM: &str = "kube-controller-manager/v1.";

/// The names of revisions and pods, and the field managers of all objects.
type Outcome = (Vec<(String, String)>, BTreeSet<String>);

struct Swap<'a> {
    plane: &'a ControlPlane,
    audit: &'a Audit,
    scenes: Vec<Scene>,
    names: Vec<&'static str>,
}

impl Swap<'_> {
    /// Starts an implementation next to resting objects, and checks that it writes nothing.
    async fn newcomer(&self, implementation: Implementation) -> Result<Running> {
        let (user_agent, arguments) = match implementation {
            Implementation::Windlass => (WINDLASS, &[RESYNC, "--field-manager=kube-controller-manager"][..]),
            Implementation::Upstream => (UPSTREAM, &[RESYNC][..]),
        };
        let before = self.audit.writes(user_agent, &CLIENTS)?.len();
        let writes =
            || -> Result<Vec<Write>> { Ok(self.audit.writes(user_agent, &CLIENTS)?.split_off(before)) };
        let running = implementation.start(self.plane, arguments).await?;
        tokio::time::sleep(REST).await;
        let early = writes()?;
        ensure!(early.is_empty(), "{implementation:?} wrote to objects at rest: {early:#?}");
        self.observes_a_change(implementation).await?;
        // A slow newcomer has reconciled the other objects by now.
        let changed = self.names[0];
        let is_other =
            |write: &Write| write.object_ref.as_ref().is_none_or(|target| !target.name.starts_with(changed));
        let mut others = writes()?;
        others.retain(is_other);
        ensure!(others.is_empty(), "{implementation:?} wrote to objects at rest: {others:#?}");
        Ok(running)
    }

    /// Proves that the newcomer works: it must observe a change of each kind.
    async fn observes_a_change(&self, implementation: Implementation) -> Result<()> {
        let name = self.names[0];
        for scene in &self.scenes {
            let before = scene.workloads().get(name).await?.metadata.generation;
            scene.perform(&Operation::set_history_limit(name, 5 + implementation as i32)).await?;
            settle(scene, Pace::AllAtOnce).await?;
            let changed = scene.workloads().get(name).await?;
            let generation = changed.metadata.generation;
            ensure!(generation > before, "{name} has not changed");
            let observed = i64::try_from(number(&changed, "/status/observedGeneration"))?;
            ensure!(Some(observed) == generation, "{implementation:?} did not observe {name}");
        }
        Ok(())
    }

    async fn set_images(&self, image: &str, is_changed: impl Fn(usize) -> bool) -> Result<()> {
        let changed =
            |index: usize| is_changed(index).then(|| Operation::set_image(self.names[index], image));
        self.perform_on_all(|_, index| changed(index)).await?;
        if image == BROKEN {
            return Ok(());
        }
        // A StatefulSet waits for a broken pod with an old revision until a user deletes the pod.
        for scene in self.scenes.iter().filter(|scene| scene.kind == Kind::StatefulSet) {
            for pod in scene.objects().await?.pods.iter().filter(|pod| is_broken(pod)) {
                let index = self.names.iter().position(|name| *name == app(pod));
                if index.is_some_and(&is_changed) {
                    scene.namespace.delete_now::<Pod>(&pod.name_any()).await?;
                }
            }
        }
        self.settle().await.map(drop)
    }

    /// Performs an operation on each workload, and waits until the scenes are at rest.
    async fn perform_on_all(&self, operation: impl Fn(Kind, usize) -> Option<Operation>) -> Result<()> {
        for scene in &self.scenes {
            let operations: Vec<_> =
                (0..self.names.len()).filter_map(|index| operation(scene.kind, index)).collect();
            try_join_all(operations.iter().map(|operation| scene.perform(operation))).await?;
        }
        self.settle().await.map(drop)
    }

    async fn settle(&self) -> Result<Vec<Objects>> {
        try_join_all(self.scenes.iter().map(|scene| settle(scene, Pace::AllAtOnce))).await
    }

    /// Creates the workloads with a history of two revisions, and blocks a rollout of every third.
    async fn begin(&self) -> Result<()> {
        let create =
            |kind, index: usize| Operation::Create { name: self.names[index], spec: spec(kind, index) };
        self.perform_on_all(|kind, index| Some(create(kind, index))).await?;
        self.set_images("second", |index| index % 2 == 0).await?;
        self.set_images(BROKEN, |index| index % 3 == 0).await
    }

    /// Checks that all rollouts are complete.
    async fn outcomes(&self) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for (scene, objects) in self.scenes.iter().zip(self.settle().await?) {
            let pods = if scene.kind == Kind::DaemonSet { NODES } else { REPLICAS };
            for workload in &objects.workloads {
                let updated = number(workload, scene.kind.updated_pods());
                ensure!(
                    updated == pods,
                    "{:?} {} has {updated} updated pods",
                    scene.kind,
                    workload.name_any()
                );
            }
            outcomes.push((objects.history(), objects.field_managers()));
            scene.remove_nodes().await?;
        }
        Ok(outcomes)
    }
}

/// Returns the spec of a workload. All strategies occur in rollouts that are blocked.
fn spec(kind: Kind, index: usize) -> Value {
    match (kind, index % 5) {
        (Kind::Deployment, 4) => json!({ "replicas": REPLICAS, "strategy": { "type": "Recreate" } }),
        (Kind::Deployment, _) => {
            let limits = json!({ "maxSurge": 1, "maxUnavailable": 0 });
            json!({ "replicas": REPLICAS, "strategy": { "rollingUpdate": limits } })
        }
        (Kind::StatefulSet, remainder) => {
            let policy = if remainder < 3 { "OrderedReady" } else { "Parallel" };
            json!({ "replicas": REPLICAS, "serviceName": "service", "podManagementPolicy": policy })
        }
        (Kind::DaemonSet, remainder) => {
            let surge = usize::from(remainder < 2);
            let limits = json!({ "maxSurge": surge, "maxUnavailable": 1 - surge });
            json!({ "updateStrategy": { "rollingUpdate": limits } })
        }
    }
}

/// Returns the name of a workload. None is a prefix of another.
fn name(index: usize) -> &'static str {
    Box::leak(format!("web-{index}x").into_boxed_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_writes_nothing_at_rest_and_continues_rollouts() -> Result<()> {
    let swapped = with_control_plane(options(), async |plane, audit| {
        let swap = prepare(plane, audit).await?;
        let upstream = Implementation::Upstream.start(plane, &[]).await?;
        swap.begin().await?;
        drop(upstream);
        let windlass = swap.newcomer(Implementation::Windlass).await?;
        // Finishes the blocked rollouts, and starts others that are blocked.
        swap.set_images("third", |index| index % 3 == 0).await?;
        swap.set_images(BROKEN, |index| index % 3 == 1).await?;
        drop(windlass);
        let upstream = swap.newcomer(Implementation::Upstream).await?;
        swap.set_images("third", |index| index % 3 == 1).await?;
        let outcomes = swap.outcomes().await;
        drop(upstream);
        outcomes
    });
    let unswapped = with_control_plane(options(), async |plane, audit| {
        let swap = prepare(plane, audit).await?;
        let _upstream = Implementation::Upstream.start(plane, &[]).await?;
        swap.begin().await?;
        swap.set_images("third", |index| index % 3 == 0).await?;
        swap.set_images(BROKEN, |index| index % 3 == 1).await?;
        swap.set_images("third", |index| index % 3 == 1).await?;
        swap.outcomes().await
    });
    let swapped = async { swapped.await.context("swapped") };
    let unswapped = async { unswapped.await.context("not swapped") };
    let (swapped, unswapped) = tokio::try_join!(swapped, unswapped)?;
    ensure!(swapped == unswapped, "swapped: {swapped:#?}\nnot swapped: {unswapped:#?}");
    Ok(())
}

async fn prepare<'a>(plane: &'a ControlPlane, audit: &'a Audit) -> Result<Swap<'a>> {
    let names: Vec<_> = (0..WORKLOADS).map(name).collect();
    let mut scenes = Vec::new();
    for kind in Kind::ALL {
        let scene = Scene::new(plane, kind, "swap").await?;
        if kind == Kind::DaemonSet {
            for number in 0..NODES {
                scene.add_node("all", number, &names).await?;
            }
        }
        scenes.push(scene);
    }
    Ok(Swap { plane, audit, scenes, names })
}
