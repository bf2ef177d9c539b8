//! Properties of ReplicaSets only: an immutable selector, terminating replicas, and no added finalizer.

use anyhow::{Result, ensure};
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use windlass_black_box::{
    fixtures::{LABEL, pairs},
    wait::eventually,
    workload::{Workload as _, create_stable, stable},
};

use crate::plane::namespace;

#[tokio::test]
async fn selector_cannot_be_changed() -> Result<()> {
    let namespace = namespace("selector").await?;
    let mut set = namespace.create(&ReplicaSet::new("web", 0)).await?;
    let other = pairs(&[("other", "label")]);
    set.spec.get_or_insert_default().selector.match_labels = Some(other.clone());
    set.template_mut().metadata.get_or_insert_default().labels = Some(other);
    set.metadata.resource_version = None;
    let refusal = namespace
        .api::<ReplicaSet>()
        .replace("web", &kube::api::PostParams::default(), &set)
        .await
        .expect_err("a changed selector is refused")
        .to_string();
    ensure!(refusal.contains("Invalid value") && refusal.contains("field is immutable"), "{refusal}");
    Ok(())
}

#[tokio::test]
async fn terminating_replicas_are_counted_and_do_not_count_as_replicas() -> Result<()> {
    let namespace = namespace("terminating").await?;
    let mut set = ReplicaSet::new("web", 5);
    let spec = set.template_mut().spec.get_or_insert_default();
    // A deleted pod stays, because its node does not exist and its grace period is long.
    spec.node_name = Some("no-such-node".to_owned());
    spec.termination_grace_period_seconds = Some(300);
    create_stable(&namespace, &set).await?;
    let pods = eventually("five pods exist", || namespace.pods(LABEL), |pods| pods.len() == 5).await?;
    let name = |index: usize| pods[index].metadata.name.clone().unwrap_or_default();

    namespace.delete::<Pod>(&name(0)).await?;
    namespace.delete::<Pod>(&name(1)).await?;
    stable::<ReplicaSet>(&namespace, "web").await?;
    terminating_becomes(&namespace, 2).await?;
    namespace.delete_now::<Pod>(&name(0)).await?;
    terminating_becomes(&namespace, 1).await?;
    namespace.delete_now::<Pod>(&name(1)).await?;
    terminating_becomes(&namespace, 0).await?;
    Ok(())
}

async fn terminating_becomes(
    namespace: &windlass_black_box::test_namespace::TestNamespace,
    count: i32,
) -> Result<()> {
    eventually(
        &format!("{count} replicas are terminating and five are kept"),
        || namespace.get::<ReplicaSet>("web"),
        |set| (set.counts().terminating, set.counts().replicas) == (Some(count), 5),
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn deletion_adds_no_finalizer_and_stops_replacement() -> Result<()> {
    let namespace = namespace("gc-policy").await?;
    let held = "test.example/hold";
    let mut set = ReplicaSet::new("web", 2);
    set.metadata.finalizers = Some(vec![held.to_owned()]);
    create_stable(&namespace, &set).await?;
    let pods = eventually("two pods exist", || namespace.pods(LABEL), |pods| pods.len() == 2).await?;
    namespace.delete::<ReplicaSet>("web").await?;
    let deleting = eventually(
        "the set is marked for deletion",
        || namespace.get::<ReplicaSet>("web"),
        |set| set.metadata.deletion_timestamp.is_some(),
    )
    .await?;
    ensure!(
        deleting.metadata.finalizers.as_deref() == Some(&[held.to_owned()]),
        "finalizers became {:?}",
        deleting.metadata.finalizers
    );
    // ReplicaSets and pods have separate watches. Until the manager reports the deletion, it can still replace pods.
    eventually(
        "the manager has observed the deletion of the set",
        || namespace.get::<ReplicaSet>("web"),
        |set| set.counts().observed_generation >= set.metadata.generation.unwrap_or(0),
    )
    .await?;
    // A terminating ReplicaSet updates its status and creates no pods.
    namespace.delete::<Pod>(pods[0].metadata.name.as_deref().unwrap_or_default()).await?;
    eventually(
        "the status of a deleting set still follows its pods",
        || namespace.get::<ReplicaSet>("web"),
        |set| set.counts().replicas == 1,
    )
    .await?;
    ensure!(namespace.pods(LABEL).await?.len() == 1, "a deleting set made a pod");
    namespace.update::<ReplicaSet>("web", |set| set.metadata.finalizers = None).await?;
    Ok(())
}

#[tokio::test]
async fn rejected_create_sets_condition_until_it_succeeds() -> Result<()> {
    let namespace = namespace("quota").await?;
    namespace.limit("few", "count/pods", 2).await?;
    namespace.create(&ReplicaSet::new("web", 4)).await?;
    let set = eventually(
        "the condition says that pods could not be created",
        || namespace.get::<ReplicaSet>("web"),
        |set| failure(set).is_some() && set.counts().replicas == 2,
    )
    .await?;
    ensure!(failure(&set).as_deref() == Some("FailedCreate"), "reason is {:?}", failure(&set));
    ensure!(namespace.pods(LABEL).await?.len() == 2, "more pods than the quota allows");

    namespace.delete::<k8s_openapi::api::core::v1::ResourceQuota>("few").await?;
    // The next attempt can be delayed by the backoff; a change of the ReplicaSet triggers it immediately.
    namespace
        .merge::<ReplicaSet>("web", serde_json::json!({"metadata": {"annotations": {"try": "again"}}}))
        .await?;
    eventually(
        "the condition is gone once all pods exist",
        || namespace.get::<ReplicaSet>("web"),
        |set| failure(set).is_none() && set.counts().replicas == 4,
    )
    .await?;
    Ok(())
}

fn failure(set: &ReplicaSet) -> Option<String> {
    let conditions = set.status.as_ref()?.conditions.as_ref()?;
    let failure = conditions.iter().find(|condition| condition.type_ == "ReplicaFailure")?;
    failure.reason.clone()
}
