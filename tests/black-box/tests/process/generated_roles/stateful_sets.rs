//! The work of the StatefulSet controller.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};
use windlass_black_box::test_namespace::TestNamespace;

use super::revisions::{self, RevisionOwner, Samples};
use super::{MANY, has_repeated_event, object, owned_by, pod, pod_owner_spec};

/// Label with the name of the pod, which the controller corrects.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

/// Returns a StatefulSet with more fields of its spec. No node starts its pods.
fn stateful_set(name: &str, replicas: i32, fields: Value) -> Result<StatefulSet> {
    let mut spec = pod_owner_spec(name);
    spec["replicas"] = replicas.into();
    spec["serviceName"] = "service".into();
    let all = spec.as_object_mut().context("an object")?;
    all.extend(fields.as_object().cloned().unwrap_or_default());
    object(name, json!({ "spec": spec }))
}

impl RevisionOwner for StatefulSet {
    fn idle(name: &str, fields: Value) -> Result<Self> {
        stateful_set(name, 0, fields)
    }

    fn collisions(&self) -> Option<i32> {
        self.status.as_ref()?.collision_count
    }
}

/// Returns fields with a claim template, and with the policy for the claims of deleted and of scaled sets.
fn claims(when_deleted: &str, when_scaled: &str) -> Value {
    let template = json!({ "metadata": { "name": "data" }, "spec": claim_spec() });
    let policy = json!({ "whenDeleted": when_deleted, "whenScaled": when_scaled });
    json!({ "volumeClaimTemplates": [template], "persistentVolumeClaimRetentionPolicy": policy,
            "podManagementPolicy": "Parallel" })
}

fn claim_spec() -> Value {
    json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } })
}

/// Creates a StatefulSet whose pods are missing, one with a pod too many, one that adopts a pod, one whose pod lacks a
/// label, one whose claims lack their owner or are missing, one whose claim must be owned by a pod, and revisions.
pub(super) async fn prepare(namespace: &TestNamespace, samples: &Samples) -> Result<()> {
    namespace.create(&stateful_set("grow", MANY, json!({ "podManagementPolicy": "Parallel" }))?).await?;

    let shrink = namespace.create(&stateful_set("shrink", 0, json!({}))?).await?;
    namespace.create(&owned_by(&shrink, pod("shrink-0", "shrink")?)).await?;

    namespace.create(&stateful_set("adopt", 1, json!({}))?).await?;
    namespace.create(&pod("adopt-0", "adopt")?).await?;

    let kept = json!({ "podManagementPolicy": "Parallel", "updateStrategy": { "type": "OnDelete" } });
    let relabel = namespace.create(&stateful_set("relabel", 1, kept)?).await?;
    namespace.create(&owned_by(&relabel, pod("relabel-0", "relabel")?)).await?;

    let claim = |name: &str| object::<PersistentVolumeClaim>(name, json!({ "spec": claim_spec() }));
    namespace.create(&claim("data-claims-0")?).await?;
    namespace.create(&stateful_set("claims", 2, claims("Delete", "Retain"))?).await?;

    namespace.create(&claim("data-scaled-0")?).await?;
    let scaled = namespace.create(&stateful_set("scaled", 0, claims("Retain", "Delete"))?).await?;
    namespace.create(&owned_by(&scaled, pod("scaled-0", "scaled")?)).await?;

    revisions::prepare::<StatefulSet>(namespace, samples).await
}

pub(super) async fn are_done(namespace: &TestNamespace) -> Result<bool> {
    let pods = namespace.list::<Pod>().await?;
    let find = |name: &str| pods.iter().find(|pod| pod.name_any() == name);
    let is_grown = namespace.get::<StatefulSet>("grow").await?.status.is_some_and(|it| it.replicas == MANY);
    let is_shrunk = find("shrink-0").is_none() && find("scaled-0").is_none();
    let is_adopted = find("adopt-0").is_some_and(|pod| !pod.owner_references().is_empty());
    let is_labeled = find("relabel-0").is_some_and(|pod| pod.labels().contains_key(POD_NAME));
    let claims = namespace.list::<PersistentVolumeClaim>().await?;
    let owned = |kind: &str| {
        let is_owned =
            |claim: &&PersistentVolumeClaim| claim.owner_references().iter().any(|owner| owner.kind == kind);
        claims.iter().filter(is_owned).map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    // The garbage collector deletes the claim of the deleted pod.
    let is_owned_by_pod = owned("Pod") == ["data-scaled-0"] || claims.len() == 2;
    let are_owned = owned("StatefulSet") == ["data-claims-0", "data-claims-1"] && is_owned_by_pod;
    let is_done = is_grown && is_shrunk && is_adopted && is_labeled && are_owned;
    Ok(is_done
        && revisions::are_done::<StatefulSet>(namespace).await?
        && has_repeated_event(namespace).await?)
}
