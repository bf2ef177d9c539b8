//! The work of the Deployment controller.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use windlass_black_box::fixtures;
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::workload::Workload as _;

use super::{MANY, has_repeated_event, object, owned_by};

/// Annotation that requests a rollback of a Deployment.
const ROLLBACK: &str = "deprecated.deployment.rollback.to";

/// Creates a Deployment without ReplicaSet, one that adopts and scales a ReplicaSet, one with a rollback, one whose
/// history is too long, and one with many ReplicaSets to scale down.
pub(super) async fn prepare(namespace: &TestNamespace) -> Result<()> {
    namespace.create(&deployment("new", 1, json!({}))?).await?;
    namespace.create(&replica_set("adopted", "adopt", "image.example/main:1", 0)?).await?;
    namespace.create(&deployment("adopt", 1, json!({}))?).await?;
    let mut rollback = deployment("rollback", 1, json!({}))?;
    rollback.annotations_mut().insert(ROLLBACK.to_owned(), "1".to_owned());
    namespace.create(&rollback).await?;

    let limited = namespace.create(&deployment("limited", 0, json!({ "revisionHistoryLimit": 0 }))?).await?;
    namespace.create(&owned_by(&limited, replica_set("surplus", "limited", "old", 0)?)).await?;
    // As the ReplicaSet controller does, which does not run.
    let observe = |set: &mut ReplicaSet| set.status.get_or_insert_default().observed_generation = Some(1);
    namespace.update_status("surplus", observe).await?;

    let many = deployment("many", 0, json!({ "strategy": { "type": "Recreate" } }))?;
    let many = namespace.create(&many).await?;
    for number in 0..MANY {
        let set = replica_set(&format!("many-{number}"), "many", &format!("old-{number}"), 1)?;
        namespace.create(&owned_by(&many, set)).await?;
    }
    Ok(())
}

fn deployment(name: &str, replicas: i32, fields: Value) -> Result<Deployment> {
    let mut spec = replica_set(name, name, "image.example/main:1", replicas)?.spec.map(|spec| json!(spec));
    let all = spec.as_mut().and_then(Value::as_object_mut).context("a spec")?;
    all.extend(fields.as_object().cloned().unwrap_or_default());
    object(name, json!({ "spec": spec }))
}

fn replica_set(name: &str, app: &str, image: &str, replicas: i32) -> Result<ReplicaSet> {
    let labels = fixtures::pairs(&[("app", app)]);
    let mut template = fixtures::template();
    template.metadata.get_or_insert_default().labels = Some(labels.clone());
    fixtures::set_image(&mut template, image);
    let spec = json!({ "replicas": replicas, "selector": { "matchLabels": labels }, "template": template });
    object(name, json!({ "metadata": { "labels": labels }, "spec": spec }))
}

pub(super) async fn are_done(namespace: &TestNamespace) -> Result<bool> {
    let sets = namespace.list::<ReplicaSet>().await?;
    let owner = |set: &ReplicaSet| fixtures::controller_of(&set.metadata).map(|it| it.name.clone());
    let owned =
        |name: &str| sets.iter().filter(|set| owner(set).as_deref() == Some(name)).collect::<Vec<_>>();
    let is_adopted = owned("adopt").iter().any(|set| set.name_any() == "adopted" && set.desired() == 1);
    let is_shortened = !sets.iter().any(|set| set.name_any() == "surplus");
    let are_scaled = owned("many").iter().all(|set| set.desired() == 0);
    let rollback = namespace.get::<Deployment>("rollback").await?;
    let is_processed = !rollback.annotations().contains_key(ROLLBACK);
    let is_done = !owned("new").is_empty() && is_adopted && is_shortened && are_scaled && is_processed;
    Ok(is_done && has_repeated_event(namespace).await?)
}
