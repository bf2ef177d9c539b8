//! Upstream, then Windlass, then upstream manage the same objects. A newcomer writes nothing while nothing changes, and
//! continues a rollout with the names that its predecessor would have used.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt as _;
use windlass_black_box::{
    audit::{Audit, Write},
    control_plane::with_control_plane,
    fixtures::revision,
    implementation::{CLIENTS, Implementation, Running},
    test_namespace::TestNamespace,
};
use windlass_harness::{ControlPlane, ControlPlaneOptions};

use crate::{
    play::{Pace, perform, settle},
    script::{BROKEN, Operation},
};

/// Deployments of the test: a third of them in the middle of a rollout.
const DEPLOYMENTS: usize = 30;

/// Time in which a newcomer must not write. It has synced its caches and reconciled all objects after one second.
const REST: Duration = Duration::from_secs(8);

struct Swap<'a> {
    plane: &'a ControlPlane,
    audit: &'a Audit,
    namespace: TestNamespace,
    names: Vec<&'static str>,
}

impl Swap<'_> {
    /// Starts an implementation next to resting objects, and checks that it writes nothing.
    async fn newcomer(&self, implementation: Implementation) -> Result<Running> {
        let before = self.audit.writes(implementation.user_agent(), &CLIENTS)?.len();
        let writes = || -> Result<Vec<Write>> {
            Ok(self.audit.writes(implementation.user_agent(), &CLIENTS)?.split_off(before))
        };
        let running = implementation.start(self.plane, &[]).await?;
        tokio::time::sleep(REST).await;
        let early = writes()?;
        ensure!(early.is_empty(), "{implementation:?} wrote to objects at rest: {early:#?}");
        self.has_observed_a_change(implementation).await?;
        // A slow newcomer has reconciled the other objects by now.
        let changed = self.names[0];
        let is_other =
            |write: &Write| write.object_ref.as_ref().is_none_or(|target| !target.name.starts_with(changed));
        let mut others = writes()?;
        others.retain(is_other);
        ensure!(others.is_empty(), "{implementation:?} wrote to objects at rest: {others:#?}");
        Ok(running)
    }

    /// Proves that the newcomer works: it must react to a change.
    async fn has_observed_a_change(&self, implementation: Implementation) -> Result<()> {
        let name = self.names[0];
        perform(&self.namespace, &Operation::Annotate { name, value: implementation as u32 }).await?;
        settle(&self.namespace, Pace::AllAtOnce).await?;
        let value = (implementation as u32).to_string();
        let sets = self.namespace.list::<ReplicaSet>().await?;
        let copied = sets.iter().any(|set| set.annotations().get("note") == Some(&value));
        ensure!(copied, "{implementation:?} did not copy an annotation to a ReplicaSet");
        Ok(())
    }

    async fn set_images(&self, image: &str, is_changed: impl Fn(usize) -> bool) -> Result<()> {
        for (index, name) in self.names.iter().enumerate() {
            if is_changed(index) {
                perform(&self.namespace, &Operation::SetImage { name, image: image.to_owned() }).await?;
            }
        }
        settle(&self.namespace, Pace::AllAtOnce).await?;
        Ok(())
    }

    /// Returns names and revisions of the ReplicaSets of a Deployment. The names contain the hash of the template.
    async fn revisions(&self, deployment: &str) -> Result<Vec<(String, String)>> {
        let prefix = format!("{deployment}-");
        let sets = self.namespace.list::<ReplicaSet>().await?;
        let mine = sets.iter().filter(|set| set.name_any().starts_with(&prefix));
        let revision = |set: &ReplicaSet| revision(&set.metadata).unwrap_or_default().to_owned();
        Ok(mine.map(|set| (set.name_any(), revision(set))).collect())
    }
}

/// Returns the name of a Deployment. None is a prefix of another.
fn name(index: usize) -> &'static str {
    Box::leak(format!("web-{index}x").into_boxed_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_writes_nothing_at_rest_and_continues_rollouts() -> Result<()> {
    let options = ControlPlaneOptions::default().nodes(0).scheduler(false);
    let swapped = with_control_plane(options.clone(), async |plane, audit| {
        let swap = prepare(plane, audit, "swap").await?;
        let upstream = Implementation::Upstream.start(plane, &[]).await?;
        begin(&swap).await?;
        drop(upstream);
        let windlass = swap.newcomer(Implementation::Windlass).await?;
        // Finishes the blocked rollouts, and starts others that are blocked.
        swap.set_images("third", |index| index % 3 == 0).await?;
        swap.set_images(BROKEN, |index| index % 3 == 1).await?;
        drop(windlass);
        let upstream = swap.newcomer(Implementation::Upstream).await?;
        swap.set_images("third", |index| index % 3 == 1).await?;
        drop(upstream);
        results(&swap).await
    });
    let unswapped = with_control_plane(options, async |plane, audit| {
        let swap = prepare(plane, audit, "swap").await?;
        let _upstream = Implementation::Upstream.start(plane, &[]).await?;
        begin(&swap).await?;
        swap.set_images("third", |index| index % 3 == 0).await?;
        swap.set_images(BROKEN, |index| index % 3 == 1).await?;
        swap.set_images("third", |index| index % 3 == 1).await?;
        results(&swap).await
    });
    let (swapped, unswapped) = tokio::try_join!(swapped, unswapped)?;
    ensure!(swapped == unswapped, "swapped: {swapped:#?}\nnot swapped: {unswapped:#?}");
    Ok(())
}

async fn prepare<'a>(plane: &'a ControlPlane, audit: &'a Audit, namespace: &str) -> Result<Swap<'a>> {
    let namespace = plane.namespace(namespace).await?;
    let namespace = TestNamespace { client: plane.client().await, namespace };
    Ok(Swap { plane, audit, namespace, names: (0..DEPLOYMENTS).map(name).collect() })
}

/// Creates the Deployments with a history of two revisions, and blocks a rollout of every third.
async fn begin(swap: &Swap<'_>) -> Result<()> {
    for (index, &name) in swap.names.iter().enumerate() {
        let recreates = index % 5 == 4;
        let create = Operation::Create { name, replicas: 2, recreates, surge: 1, unavailable: 0 };
        perform(&swap.namespace, &create).await?;
    }
    settle(&swap.namespace, Pace::AllAtOnce).await?;
    swap.set_images("second", |index| index % 2 == 0).await?;
    swap.set_images(BROKEN, |index| index % 3 == 0).await
}

async fn results(swap: &Swap<'_>) -> Result<Vec<Vec<(String, String)>>> {
    let mut results = Vec::new();
    for name in &swap.names {
        let deployment = swap.namespace.get::<Deployment>(name).await?;
        let updated = deployment.status.as_ref().and_then(|status| status.updated_replicas);
        ensure!(updated == Some(2), "{name} has {updated:?} updated replicas");
        results.push(swap.revisions(name).await.with_context(|| (*name).to_owned())?);
    }
    Ok(results)
}
