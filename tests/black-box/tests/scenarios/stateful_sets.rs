//! Upstream's integration scenarios of StatefulSets. The test acts as the nodes: it makes pods ready and ends them.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec},
        core::v1::{PersistentVolumeClaim, Pod},
    },
    jiff::{SignedDuration, Timestamp},
};
use kube::{ResourceExt as _, api::PostParams};
use serde_json::{Value, json};
use windlass_black_box::{
    fixtures::{self, LABEL, is_ready, labels, still_pod_spec},
    test_namespace::TestNamespace,
    wait::eventually,
};

use crate::plane::namespace;

const NAME: &str = "sts";

/// Returns a StatefulSet with this number of pods and more fields of its spec. Deleted pods disappear at once.
fn stateful_set(replicas: i32, fields: Value) -> Result<StatefulSet> {
    let mut pod = still_pod_spec();
    pod.termination_grace_period_seconds = Some(0);
    let mut spec = json!({
        "replicas": replicas,
        "serviceName": "service",
        "selector": { "matchLabels": labels() },
        "template": { "metadata": { "labels": labels() }, "spec": pod },
    });
    let all = spec.as_object_mut().context("an object")?;
    all.extend(fields.as_object().cloned().unwrap_or_default());
    Ok(serde_json::from_value(json!({ "metadata": { "name": NAME }, "spec": spec }))?)
}

fn spec(set: &mut StatefulSet) -> &mut StatefulSetSpec {
    set.spec.get_or_insert_default()
}

/// A StatefulSet in its own namespace.
struct Scene {
    namespace: TestNamespace,
}

impl Scene {
    async fn create(scenario: &str, set: &StatefulSet) -> Result<Self> {
        let namespace = namespace(scenario).await?;
        namespace.create(set).await?;
        Ok(Self { namespace })
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        let mut pods = self.namespace.pods(LABEL).await?;
        pods.sort_by_key(ordinal);
        Ok(pods)
    }

    async fn becomes(&self, what: &str, accept: impl Fn(&StatefulSet) -> bool) -> Result<StatefulSet> {
        eventually(what, || self.namespace.get(NAME), accept).await
    }

    async fn update(&self, change: impl Fn(&mut StatefulSet)) -> Result<()> {
        self.namespace.update::<StatefulSet>(NAME, change).await?;
        Ok(())
    }

    /// Makes pods ready until this number of pods has the newest revision.
    async fn is_stable(&self, replicas: i32, updated: i32) -> Result<StatefulSet> {
        let step = || async {
            for pod in self.pods().await?.iter().filter(|pod| can_start(pod)) {
                self.namespace.start_pod(&pod.name_any()).await?;
            }
            self.namespace.get::<StatefulSet>(NAME).await
        };
        let is_stable = |set: &StatefulSet| {
            let status = set.status.clone().unwrap_or_default();
            status.observed_generation == set.metadata.generation
                && status.replicas == replicas
                && status.ready_replicas.unwrap_or(0) == replicas
                && status.updated_replicas.unwrap_or(0) == updated
        };
        eventually("the StatefulSet is stable", step, is_stable).await
    }

    async fn scale(&self, replicas: i32) -> Result<()> {
        self.update(|set| spec(set).replicas = Some(replicas)).await?;
        self.is_stable(replicas, replicas).await.map(drop)
    }

    /// Waits until exactly these kinds own the claims.
    async fn claims_have_owners(&self, expected: [&[&str]; 3]) -> Result<()> {
        let owners = || async {
            let claims = self.namespace.list::<PersistentVolumeClaim>().await?;
            let kinds = |claim: &PersistentVolumeClaim| -> Vec<String> {
                claim.owner_references().iter().map(|owner| owner.kind.clone()).collect()
            };
            Ok(claims.iter().map(kinds).collect::<Vec<_>>())
        };
        eventually(&format!("the claims have owners {expected:?}"), owners, |all| *all == expected).await?;
        Ok(())
    }
}

fn ordinal(pod: &Pod) -> Option<u32> {
    pod.name_any().rsplit('-').next()?.parse().ok()
}

fn can_start(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none() && !is_ready(pod) && status.phase.as_deref() == Some("Pending")
}

#[tokio::test]
async fn size_of_a_stateful_set_is_reached_in_order() -> Result<()> {
    let scene = Scene::create("sts-replicas", &stateful_set(2, json!({}))?).await?;
    scene.is_stable(2, 2).await?;
    for size in [3, 0, 2] {
        scene.scale(size).await?;
    }
    let annotate = |set: &mut StatefulSet| {
        let metadata = spec(set).template.metadata.get_or_insert_default();
        metadata.annotations.get_or_insert_default().insert("test".to_owned(), "annotation".to_owned());
    };
    scene.update(annotate).await?;
    let set = scene.is_stable(2, 2).await?;
    let status = set.status.unwrap_or_default();
    ensure!(status.current_revision == status.update_revision, "{status:?}");
    ensure!(scene.namespace.list::<ControllerRevision>().await?.len() == 2, "two revisions");
    Ok(())
}

#[tokio::test]
async fn stateful_set_replaces_terminal_pods_and_waits_for_terminating_ones() -> Result<()> {
    let parallel = json!({ "podManagementPolicy": "Parallel" });
    let scene = Scene::create("sts-terminal", &stateful_set(3, parallel)?).await?;
    scene.is_stable(3, 3).await?;
    let pods = scene.pods().await?;
    let [deleted, failed, succeeded] = &pods[..] else { anyhow::bail!("three pods, not {}", pods.len()) };
    let held = Some(vec!["test.example/hold".to_owned()]);
    let hold = |pod: &mut Pod| pod.metadata.finalizers.clone_from(&held);
    scene.namespace.update::<Pod>(&deleted.name_any(), hold).await?;
    scene.namespace.delete::<Pod>(&deleted.name_any()).await?;
    for (pod, phase) in [(failed, "Failed"), (succeeded, "Succeeded")] {
        let end = |pod: &mut Pod| pod.status.get_or_insert_default().phase = Some(phase.to_owned());
        scene.namespace.update_status::<Pod>(&pod.name_any(), end).await?;
    }
    let is_replaced = |pods: &Vec<Pod>| {
        let has = |pod: &Pod| pods.iter().any(|it| it.uid() == pod.uid());
        pods.len() == 3 && has(deleted) && !has(failed) && !has(succeeded)
    };
    eventually("terminal pods are replaced", || scene.pods(), is_replaced).await?;
    scene.namespace.update::<Pod>(&deleted.name_any(), |pod| pod.metadata.finalizers = None).await?;
    let is_gone = |pods: &Vec<Pod>| pods.len() == 3 && pods.iter().all(|it| it.uid() != deleted.uid());
    eventually("the deleted pod is replaced", || scene.pods(), is_gone).await?;
    Ok(())
}

#[tokio::test]
async fn available_replicas_of_a_stateful_set_follow_min_ready_seconds() -> Result<()> {
    let fields = json!({ "podManagementPolicy": "Parallel", "minReadySeconds": 3600 });
    let scene = Scene::create("sts-available", &stateful_set(4, fields)?).await?;
    let pods = eventually("four pods", || scene.pods(), |pods| pods.len() == 4).await?;
    let ago = |hours: i64| Timestamp::now() - SignedDuration::from_hours(hours);
    for (pod, hours) in pods.iter().skip(1).zip([0, 2, 2]) {
        scene.namespace.make_ready(&pod.name_any(), ago(hours), 0).await?;
    }
    let counted = |set: &StatefulSet| {
        let status = set.status.clone().unwrap_or_default();
        (status.replicas, status.ready_replicas, status.available_replicas) == (4, Some(3), Some(2))
    };
    scene.becomes("three pods are ready and two available", counted).await?;
    Ok(())
}

#[tokio::test]
async fn status_of_a_stateful_set_is_written_despite_a_failed_create() -> Result<()> {
    let namespace = namespace("sts-quota").await?;
    namespace.limit("two-pods", "pods", 2).await?;
    namespace.create(&stateful_set(4, json!({ "podManagementPolicy": "Parallel" }))?).await?;
    let scene = Scene { namespace };
    let counted = |set: &StatefulSet| set.status.as_ref().is_some_and(|status| status.replicas == 2);
    scene.becomes("two pods are counted", counted).await?;
    Ok(())
}

#[tokio::test]
async fn claims_get_owners_as_the_retention_policy_says() -> Result<()> {
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    for (deleted, scaled) in
        [("Retain", "Retain"), ("Retain", "Delete"), ("Delete", "Retain"), ("Delete", "Delete")]
    {
        let policy = json!({ "whenDeleted": deleted, "whenScaled": scaled });
        let fields =
            json!({ "volumeClaimTemplates": [claim], "persistentVolumeClaimRetentionPolicy": policy });
        let scenario = format!("sts-{}-{}", deleted.to_lowercase(), scaled.to_lowercase());
        let scene = Scene::create(&scenario, &stateful_set(3, fields)?).await?;
        scene.is_stable(3, 3).await?;
        let owner_of_kept: &[_] = if deleted == "Delete" { &["StatefulSet"] } else { &[] };
        // If a deleted pod owns its claim, the StatefulSet does not.
        let owner_of_condemned = if scaled == "Delete" { &["Pod"] } else { owner_of_kept };
        scene.claims_have_owners([owner_of_kept; 3]).await?;
        scene.scale(1).await?;
        // No garbage collector deletes the claims.
        scene.claims_have_owners([owner_of_kept, owner_of_condemned, owner_of_condemned]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn failed_pod_below_the_partition_is_recreated_with_the_old_revision() -> Result<()> {
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 1 } });
    let set = stateful_set(2, json!({ "updateStrategy": strategy }))?;
    let scene = Scene::create("sts-partition", &set).await?;
    scene.is_stable(2, 2).await?;
    let first = scene.pods().await?.into_iter().next().context("a pod")?;
    let name = first.name_any();
    let hold = |pod: &mut Pod| pod.metadata.finalizers = Some(vec!["test.example/hold".to_owned()]);
    scene.namespace.update::<Pod>(&name, hold).await?;
    scene.update(|set| fixtures::set_image(&mut spec(set).template, "new")).await?;
    scene.is_stable(2, 1).await?;
    let fail = |pod: &mut Pod| pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
    scene.namespace.update_status::<Pod>(&name, fail).await?;
    scene.namespace.delete::<Pod>(&name).await?;
    let has_one_ready =
        |set: &StatefulSet| set.status.as_ref().is_some_and(|status| status.ready_replicas == Some(1));
    scene.becomes("the failed pod is not ready", has_one_ready).await?;
    let held = scene.namespace.get::<Pod>(&name).await?;
    ensure!(held.uid() == first.uid() && held.metadata.deletion_timestamp.is_some(), "{held:?}");
    scene.namespace.update::<Pod>(&name, |pod| pod.metadata.finalizers = None).await?;
    let is_recreated =
        |pods: &Vec<Pod>| pods.len() == 2 && pods.first().is_some_and(|pod| pod.uid() != first.uid());
    eventually("the first pod is recreated", || scene.pods(), is_recreated).await?;
    scene.is_stable(2, 1).await?;
    let images: Vec<_> = scene.pods().await?.iter().map(image).collect();
    ensure!(images == [image(&first), "new".to_owned()], "{images:?}");
    Ok(())
}

fn image(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone()).unwrap_or_default()
}

#[tokio::test]
async fn ordinals_begin_with_the_start_ordinal() -> Result<()> {
    let cases = [
        ("no-ordinals", json!({}), 0_i32, 3_i32),
        ("empty-ordinals", json!({ "ordinals": {} }), 0, 3),
        ("start-4", json!({ "ordinals": { "start": 4 } }), 4, 4),
        ("start-2", json!({ "ordinals": { "start": 2 } }), 2, 7),
    ];
    for (scenario, fields, start, replicas) in cases {
        let scene = Scene::create(&format!("sts-{scenario}"), &stateful_set(replicas, fields)?).await?;
        scene.is_stable(replicas, replicas).await?;
        let pods = scene.pods().await?;
        let expected: Vec<_> = (start..start + replicas).map(|ordinal| format!("{NAME}-{ordinal}")).collect();
        let names: Vec<_> = pods.iter().map(kube::ResourceExt::name_any).collect();
        ensure!(names == expected, "{names:?}");
        for (pod, ordinal) in pods.iter().zip(start..) {
            let index = pod.labels().get("apps.kubernetes.io/pod-index");
            ensure!(index == Some(&ordinal.to_string()), "{index:?}");
            let subdomain = pod.spec.as_ref().and_then(|spec| spec.subdomain.as_deref());
            ensure!(subdomain == Some("service"), "{subdomain:?}");
        }
        scene.scale(1).await?;
        let names: Vec<_> = scene.pods().await?.iter().map(kube::ResourceExt::name_any).collect();
        ensure!(names == expected[..1], "{names:?}");
    }
    Ok(())
}

#[tokio::test]
async fn unchanged_claim_template_can_be_replaced() -> Result<()> {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let set = stateful_set(0, json!({ "volumeClaimTemplates": [claim] }))?;
    let scene = Scene::create("sts-claim-template", &set).await?;
    let mut again = scene.namespace.get::<StatefulSet>(NAME).await?;
    again.spec.clone_from(&set.spec);
    again.metadata.resource_version = None;
    scene.namespace.api::<StatefulSet>().replace(NAME, &PostParams::default(), &again).await?;
    Ok(())
}
