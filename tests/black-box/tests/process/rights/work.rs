//! The work of all controllers.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Endpoints, Event, Pod, ReplicationController, Service};
use kube::ResourceExt as _;
use serde_json::json;
use windlass_black_box::fixtures;
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::wait::{eventually, eventually_within};
use windlass_black_box::workload::Workload as _;

use super::TIMEOUT;
use crate::identities::sets_are_counted;

/// Makes every controller do all of its work.
pub(super) async fn all_work_is_done(namespace: &TestNamespace) -> Result<()> {
    let owned = async |owner: &str| {
        let mut pods = namespace.list::<Pod>().await?;
        pods.retain(|pod| pod.owner_references().iter().any(|reference| reference.name == owner));
        anyhow::Ok(pods)
    };
    let has = async |owner: &str, count: usize| {
        let what = format!("{owner} has {count} pods");
        eventually_within(TIMEOUT, &what, || owned(owner), |pods| pods.len() == count).await
    };
    namespace.create(&ReplicaSet::new("set", 3)).await?;
    has("set", 3).await?;
    // There is one pod too many then, and this pod can be the deleted one.
    namespace.create(&fixtures::pod("orphan")).await?;
    let look = || namespace.find::<Pod>("orphan");
    let adopted = |pod: &Option<Pod>| pod.as_ref().is_none_or(|pod| !pod.owner_references().is_empty());
    eventually("it is adopted", look, adopted).await?;
    has("set", 3).await?;
    namespace.create(&ReplicationController::new("controller", 2)).await?;
    let pods = has("controller", 2).await?;
    let foreign = json!({ "metadata": { "labels": { "foo": "strange" } } });
    let released = pods.first().context("it has pods")?.name_any();
    namespace.merge::<Pod>(&released, foreign).await?;
    let look = || namespace.get::<Pod>(&released);
    eventually("it is released", look, |pod| pod.owner_references().is_empty()).await?;
    has("controller", 2).await?;
    namespace.update::<ReplicaSet>("set", |set| set.set_desired(1)).await?;
    has("set", 1).await?;
    let look = || namespace.get::<ReplicaSet>("set");
    eventually("the status is written", look, |set| set.counts().replicas == 1).await?;
    namespace.create(&fixtures::service("service", &[80])).await?;
    eventually("it has Endpoints", || namespace.find::<Endpoints>("service"), Option::is_some).await?;
    namespace.delete::<Service>("service").await?;
    eventually("no Endpoints are left", || namespace.find::<Endpoints>("service"), Option::is_none).await?;
    let reported =
        |events: &Vec<Event>| events.iter().any(|event| event.reason.as_deref() == Some("SuccessfulDelete"));
    eventually("events report it", || namespace.list::<Event>(), reported).await?;
    namespace.create(&fixtures::deployment("rollout", 1)).await?;
    let complete =
        |it: &Deployment| it.status.as_ref().is_some_and(|status| status.updated_replicas == Some(1));
    eventually("the rollout has a pod", || namespace.get::<Deployment>("rollout"), complete).await?;
    sets_are_counted(namespace).await
}
