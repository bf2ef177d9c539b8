//! Upstream's integration scenarios of Deployments. The test acts as the nodes: it makes pods ready and removes them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, ReplicaSet, RollingUpdateDeployment},
        core::v1::{EnvVar, Pod},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use windlass_black_box::{
    control_plane::with_control_plane,
    fixtures::{self, LABEL, controller_of, is_ready, owner, pairs, revision, set_image},
    implementation::Implementation,
    test_namespace::TestNamespace,
    wait::eventually,
    workload::{Workload as _, stable},
};

use crate::plane::{namespace, options};

const NAME: &str = "web";
const HASH: &str = "pod-template-hash";
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
const REVISION: &str = "deployment.kubernetes.io/revision";

fn deployment(replicas: i32) -> Deployment {
    fixtures::deployment(NAME, replicas)
}

/// Returns a Deployment that replaces its pods step by step.
fn rolling(replicas: i32, max_surge: i32, max_unavailable: i32) -> Deployment {
    let limits = RollingUpdateDeployment {
        max_surge: Some(IntOrString::Int(max_surge)),
        max_unavailable: Some(IntOrString::Int(max_unavailable)),
    };
    let mut deployment = deployment(replicas);
    spec(&mut deployment).strategy =
        Some(DeploymentStrategy { rolling_update: Some(limits), type_: Some("RollingUpdate".to_owned()) });
    deployment
}

fn recreating(replicas: i32) -> Deployment {
    let mut deployment = deployment(replicas);
    let strategy = DeploymentStrategy { rolling_update: None, type_: Some("Recreate".to_owned()) };
    spec(&mut deployment).strategy = Some(strategy);
    deployment
}

/// Keeps deleted pods in existence: nothing acknowledges their end.
fn with_lasting_pods(mut deployment: Deployment) -> Deployment {
    let pod = spec(&mut deployment).template.spec.get_or_insert_default();
    pod.node_name = Some("no-such-node".to_owned());
    pod.termination_grace_period_seconds = Some(300);
    deployment
}

fn spec(deployment: &mut Deployment) -> &mut DeploymentSpec {
    deployment.spec.get_or_insert_default()
}

fn set_environment(deployment: &mut Deployment) {
    let pod = spec(deployment).template.spec.get_or_insert_default();
    let variable = EnvVar { name: "second".to_owned(), value: Some("true".to_owned()), ..EnvVar::default() };
    pod.containers[0].env = Some(vec![variable]);
}

/// Replicas of a status: all, updated, ready, available, unavailable, terminating.
type Replicas = (i32, i32, i32, i32, i32, Option<i32>);

fn replicas(deployment: &Deployment) -> Replicas {
    let Some(status) = &deployment.status else { return Replicas::default() };
    let number = Option::unwrap_or_default;
    (
        number(status.replicas),
        number(status.updated_replicas),
        number(status.ready_replicas),
        number(status.available_replicas),
        number(status.unavailable_replicas),
        status.terminating_replicas,
    )
}

fn reason<'a>(deployment: &'a Deployment, of_type: &str) -> Option<&'a str> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == of_type)?.reason.as_deref()
}

fn is_observed(deployment: &Deployment) -> bool {
    let observed = deployment.status.as_ref().and_then(|status| status.observed_generation);
    observed >= deployment.metadata.generation
}

fn is_complete(deployment: &Deployment) -> bool {
    let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let (all, updated, _, available, ..) = replicas(deployment);
    is_observed(deployment) && (all, updated, available) == (desired, desired, desired)
}

fn is_pending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !is_ready(pod)
}

/// A Deployment in its own namespace.
struct Rollout {
    namespace: TestNamespace,
    name: String,
}

impl Rollout {
    async fn create(scenario: &str, deployment: &Deployment) -> Result<Self> {
        let namespace = namespace(scenario).await?;
        Self::create_in(&namespace, deployment).await
    }

    async fn create_in(namespace: &TestNamespace, deployment: &Deployment) -> Result<Self> {
        namespace.create(deployment).await?;
        Ok(Self { namespace: namespace.clone(), name: deployment.name_any() })
    }

    async fn get(&self) -> Result<Deployment> {
        self.namespace.get(&self.name).await
    }

    async fn update(&self, change: impl Fn(&mut Deployment)) -> Result<Deployment> {
        self.namespace.update(&self.name, change).await
    }

    async fn becomes(&self, what: &str, accept: impl Fn(&Deployment) -> bool) -> Result<Deployment> {
        eventually(what, || self.get(), accept).await
    }

    async fn reaches_revision(&self, number: &str) -> Result<()> {
        let what = format!("revision {number} is rolled out");
        self.becomes(&what, |it| revision(&it.metadata) == Some(number)).await?;
        Ok(())
    }

    async fn is_observed(&self) -> Result<Deployment> {
        self.becomes("the newest generation is observed", is_observed).await
    }

    async fn has_reason(&self, of_type: &str, wanted: &str) -> Result<()> {
        let what = format!("condition {of_type} has reason {wanted}");
        self.becomes(&what, |it| reason(it, of_type) == Some(wanted)).await?;
        Ok(())
    }

    async fn has_replicas(&self, expected: Replicas) -> Result<()> {
        let what = format!("the status has the replicas {expected:?}");
        self.becomes(&what, |it| replicas(it) == expected).await?;
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        self.namespace.pods(LABEL).await
    }

    /// Makes all pods ready that exist now.
    async fn make_pods_ready(&self) -> Result<()> {
        for pod in self.pods().await?.iter().filter(|pod| is_pending(pod)) {
            self.namespace.start_pod(&pod.name_any()).await?;
        }
        Ok(())
    }

    /// Makes pods ready until the rollout is complete.
    async fn completes(&self) -> Result<Deployment> {
        let step = || async {
            self.make_pods_ready().await?;
            self.get().await
        };
        eventually("the rollout is complete", step, is_complete).await
    }

    /// Makes pods ready until the rollout is complete, and checks the limits of the rollout after each step.
    async fn completes_within(&self, most: i32, least_available: i32) -> Result<()> {
        let step = || async {
            self.make_pods_ready().await?;
            let deployment = self.get().await?;
            // Not the status: it sums what the ReplicaSets reported at different times.
            let size = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
            let all: i32 = self.sets().await?.iter().map(size).sum();
            let (_, _, _, available, ..) = replicas(&deployment);
            ensure!(all <= most, "{all} replicas are desired; at most {most} are permitted");
            ensure!(
                available >= least_available,
                "{available} replicas are available, not {least_available}"
            );
            Ok(deployment)
        };
        eventually("the rollout is complete", step, is_complete).await?;
        Ok(())
    }

    /// Returns the owned ReplicaSets in the order of their revisions.
    async fn sets(&self) -> Result<Vec<ReplicaSet>> {
        let uid = self.get().await?.uid();
        let mut sets = self.namespace.list::<ReplicaSet>().await?;
        sets.retain(|set| controller_of(&set.metadata).map(|it| it.uid.clone()) == uid);
        sets.sort_by_key(|set| revision(&set.metadata).and_then(|text| text.parse::<u32>().ok()));
        Ok(sets)
    }

    async fn newest_set(&self) -> Result<ReplicaSet> {
        self.sets().await?.pop().context("a ReplicaSet")
    }

    async fn sizes(&self) -> Result<Vec<i32>> {
        Ok(self.sets().await?.iter().map(ReplicaSet::desired).collect())
    }

    async fn annotations_of_sets(&self) -> Result<Vec<BTreeMap<String, String>>> {
        Ok(self.sets().await?.iter().map(|set| set.annotations().clone()).collect())
    }

    /// Removes all terminating pods, as their nodes do after the containers stop.
    async fn remove_terminating_pods(&self) -> Result<()> {
        for pod in self.pods().await?.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            self.namespace.delete_now::<Pod>(&pod.name_any()).await?;
        }
        Ok(())
    }

    /// Deletes that many pods of a ReplicaSet; with a `grace` of zero they are gone at once.
    async fn delete_pods(&self, set: &ReplicaSet, count: usize, grace: u32) -> Result<()> {
        let hash = set.labels().get(HASH).context("a hash")?;
        let pods = self.namespace.pods(&format!("{HASH}={hash}")).await?;
        for pod in pods.iter().take(count) {
            match grace {
                0 => self.namespace.delete_now::<Pod>(&pod.name_any()).await?,
                _ => self.namespace.delete::<Pod>(&pod.name_any()).await?,
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn new_deployment_creates_pods_with_the_hash_of_its_set() -> Result<()> {
    let mut deployment = deployment(20);
    spec(&mut deployment).min_ready_seconds = Some(4);
    let applied = "kubectl.kubernetes.io/last-applied-configuration";
    deployment.metadata.annotations = Some(pairs(&[("test", "copied"), (applied, "not copied")]));
    let rollout = Rollout::create("new-deployment", &deployment).await?;
    rollout.reaches_revision("1").await?;
    rollout.completes().await?;
    let set = rollout.newest_set().await?;
    ensure!(set.annotations().get("test").is_some_and(|it| it == "copied"), "{:?}", set.annotations());
    ensure!(!set.annotations().contains_key(applied), "{:?}", set.annotations());
    let hash = set.labels().get(HASH).context("a label")?;
    ensure!(set.name_any() == format!("{NAME}-{hash}"), "{}", set.name_any());
    let spec = set.spec.as_ref().context("a spec")?;
    let selected = spec.selector.match_labels.as_ref().and_then(|labels| labels.get(HASH));
    ensure!(selected == Some(hash), "the selector has {selected:?}");
    let pods = rollout.pods().await?;
    ensure!(pods.len() == 20 && pods.iter().all(|pod| pod.labels().get(HASH) == Some(hash)));
    Ok(())
}

#[tokio::test]
async fn rollout_keeps_its_limits_and_replaces_an_unfinished_one() -> Result<()> {
    let mut deployment = rolling(20, 5, 5);
    spec(&mut deployment).min_ready_seconds = Some(4);
    let rollout = Rollout::create("rolling-update", &deployment).await?;
    rollout.completes().await?;
    rollout.update(|it| set_image(&mut spec(it).template, "second")).await?;
    rollout.reaches_revision("2").await?;
    rollout.completes_within(25, 15).await?;
    rollout.update(|it| set_image(&mut spec(it).template, "unfinished")).await?;
    rollout.reaches_revision("3").await?;
    rollout.update(|it| set_image(&mut spec(it).template, "fourth")).await?;
    rollout.reaches_revision("4").await?;
    rollout.completes_within(25, 15).await?;
    ensure!(rollout.sizes().await? == [0, 0, 0, 20]);
    Ok(())
}

#[tokio::test]
async fn selector_of_a_deployment_cannot_be_changed() -> Result<()> {
    let rollout = Rollout::create("deployment-selector", &deployment(0)).await?;
    let mut changed = rollout.get().await?;
    let other = pairs(&[("other", "label")]);
    spec(&mut changed).selector.match_labels = Some(other.clone());
    spec(&mut changed).template.metadata.get_or_insert_default().labels = Some(other);
    changed.metadata.resource_version = None;
    let refusal = rollout.namespace.api::<Deployment>().replace(NAME, &PostParams::default(), &changed).await;
    let refusal = refusal.err().context("a changed selector is rejected")?.to_string();
    ensure!(refusal.contains("Invalid value") && refusal.contains("field is immutable"), "{refusal}");
    Ok(())
}

#[tokio::test]
async fn paused_deployment_scales_but_starts_no_rollout() -> Result<()> {
    let mut deployment = deployment(1);
    spec(&mut deployment).paused = Some(true);
    let rollout = Rollout::create("paused", &deployment).await?;
    rollout.is_observed().await?;
    ensure!(rollout.sets().await?.is_empty(), "a paused Deployment creates no ReplicaSet");
    rollout.update(|it| spec(it).paused = Some(false)).await?;
    rollout.reaches_revision("1").await?;
    rollout.completes().await?;

    rollout.update(|it| spec(it).paused = Some(true)).await?;
    rollout.is_observed().await?;
    rollout.update(|it| set_image(&mut spec(it).template, "second")).await?;
    rollout.is_observed().await?;
    ensure!(rollout.sizes().await? == [1], "no second ReplicaSet");
    rollout.update(|it| set_image(&mut spec(it).template, "image.example/main:1")).await?;
    rollout.update(|it| spec(it).replicas = Some(10)).await?;
    rollout.is_observed().await?;
    ensure!(rollout.sizes().await? == [10], "the only ReplicaSet is scaled");
    rollout.completes().await?;
    Ok(())
}

#[tokio::test]
async fn hash_collision_is_counted_and_another_name_is_used() -> Result<()> {
    let rollout = Rollout::create("hash-collision", &deployment(1)).await?;
    rollout.reaches_revision("1").await?;
    let first = rollout.newest_set().await?.name_any();
    let other = |set: &mut ReplicaSet| {
        let pod = set.template_mut().spec.get_or_insert_default();
        pod.termination_grace_period_seconds = Some(5);
    };
    rollout.namespace.update(&first, other).await?;
    let collisions = |it: &Deployment| it.status.as_ref().and_then(|status| status.collision_count);
    rollout.becomes("the collision is counted", |it| collisions(it) == Some(1)).await?;
    rollout.reaches_revision("2").await
}

#[tokio::test]
async fn rollout_without_progress_exceeds_its_deadline() -> Result<()> {
    let mut deployment = deployment(1);
    spec(&mut deployment).progress_deadline_seconds = Some(3);
    let rollout = Rollout::create("deadline", &deployment).await?;
    rollout.has_reason("Progressing", "ProgressDeadlineExceeded").await?;
    rollout.completes().await?;
    rollout.has_reason("Progressing", "NewReplicaSetAvailable").await
}

#[tokio::test]
async fn deployments_with_one_selector_own_separate_sets() -> Result<()> {
    let namespace = namespace("overlapping").await?;
    let mut second = deployment(1);
    second.metadata.name = Some("second".to_owned());
    let first = Rollout::create_in(&namespace, &deployment(1)).await?;
    first.completes().await?;
    let second = Rollout::create_in(&namespace, &second).await?;
    second.completes().await?;
    first.update(|it| spec(it).replicas = Some(2)).await?;
    first.completes().await?;
    ensure!(first.newest_set().await?.metadata.uid != second.newest_set().await?.metadata.uid);
    ensure!((first.sizes().await?, second.sizes().await?) == (vec![2], vec![1]));
    Ok(())
}

#[tokio::test]
async fn change_of_size_and_template_at_once_is_not_blocked() -> Result<()> {
    let rollout = Rollout::create("scaled-rollout", &rolling(10, 3, 2)).await?;
    rollout.completes().await?;
    for (blocked, next, size, kept) in [("second", "third", 20, (8, 5)), ("fourth", "fifth", 5, (18, 5))] {
        // No pod of this revision becomes ready.
        rollout.update(|it| set_image(&mut spec(it).template, blocked)).await?;
        let sizes = || rollout.sizes();
        let blocked = |sizes: &Vec<i32>| sizes.ends_with(&[kept.0, kept.1]);
        eventually("the rollout has used its surge", sizes, blocked).await?;
        rollout
            .update(|it| {
                spec(it).replicas = Some(size);
                set_image(&mut spec(it).template, next);
            })
            .await?;
        rollout.completes().await?;
        let sets = rollout.sets().await?;
        let desired = size.to_string();
        for set in sets.iter().rev().take(3) {
            ensure!(set.annotations().get(DESIRED_REPLICAS) == Some(&desired), "{:?}", set.annotations());
        }
    }
    Ok(())
}

#[tokio::test]
async fn size_of_a_deployment_reaches_its_set() -> Result<()> {
    let rollout = Rollout::create("spec-replicas", &recreating(1)).await?;
    for size in [2, 0, 1] {
        rollout.update(|it| spec(it).replicas = Some(size)).await?;
        rollout.is_observed().await?;
        eventually("the ReplicaSet has the size", || rollout.sizes(), |sizes| *sizes == [size]).await?;
    }
    rollout.update(|it| spec(it).revision_history_limit = Some(4)).await?;
    rollout.is_observed().await?;
    Ok(())
}

#[tokio::test]
async fn availability_follows_min_ready_seconds() -> Result<()> {
    let mut deployment = deployment(10);
    spec(&mut deployment).min_ready_seconds = Some(3600);
    spec(&mut deployment).progress_deadline_seconds = Some(7200);
    let rollout = Rollout::create("available", &deployment).await?;
    rollout.has_replicas((10, 10, 0, 0, 10, Some(0))).await?;
    rollout.has_reason("Available", "MinimumReplicasUnavailable").await?;
    rollout.make_pods_ready().await?;
    rollout.has_replicas((10, 10, 10, 0, 10, Some(0))).await?;
    rollout.has_reason("Available", "MinimumReplicasUnavailable").await?;
    rollout.update(|it| spec(it).min_ready_seconds = Some(1)).await?;
    rollout.is_observed().await?;
    rollout.has_reason("Available", "MinimumReplicasAvailable").await?;
    rollout.has_replicas((10, 10, 10, 10, 0, Some(0))).await
}

#[tokio::test]
async fn set_with_another_owner_is_adopted_as_controller() -> Result<()> {
    let rollout = Rollout::create("adoption", &deployment(1)).await?;
    let deployment = rollout.completes().await?;
    let set = rollout.newest_set().await?.name_any();
    let uid = deployment.uid().context("a UID")?;
    let foreign = owner("apps/v1", "StatefulSet", NAME, "0a0a0a0a", Some(false), None);
    let ours = owner("apps/v1", "Deployment", NAME, &uid, Some(false), None);
    for (reference, count) in [(foreign, 2), (ours, 1)] {
        let change = |set: &mut ReplicaSet| set.metadata.owner_references = Some(vec![reference.clone()]);
        rollout.namespace.update(&set, change).await?;
        let is_adopted = |set: &ReplicaSet| controller_of(&set.metadata).is_some_and(|it| it.uid == uid);
        let adopted =
            eventually("the set is adopted", || rollout.namespace.get::<ReplicaSet>(&set), is_adopted)
                .await?;
        ensure!(adopted.owner_references().len() == count, "{:?}", adopted.owner_references());
    }
    Ok(())
}

#[tokio::test]
async fn scale_subresource_changes_the_size() -> Result<()> {
    let rollout = Rollout::create("deployment-scale", &deployment(2)).await?;
    rollout.completes().await?;
    let api = rollout.namespace.api::<Deployment>();
    for size in [3, 0] {
        let patch = Patch::Merge(json!({ "spec": { "replicas": size } }));
        api.patch_scale(NAME, &PatchParams::default(), &patch).await?;
        let scale = api.get_scale(NAME).await?;
        // The API server omits a size of zero.
        ensure!(scale.spec.and_then(|spec| spec.replicas).unwrap_or_default() == size);
        eventually("the ReplicaSet has the size", || rollout.sizes(), |sizes| *sizes == [size]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn set_is_released_and_adopted_when_its_labels_change() -> Result<()> {
    let rollout = Rollout::create("orphaning", &deployment(1)).await?;
    rollout.completes().await?;
    let first = rollout.newest_set().await?;
    let relabel = async |new| {
        let name = first.name_any();
        rollout.namespace.update(&name, |set: &mut ReplicaSet| set.metadata.labels = Some(pairs(new))).await
    };
    relabel(&[("other", "label")]).await?;
    let look = || rollout.namespace.get::<ReplicaSet>(first.metadata.name.as_deref().unwrap_or_default());
    eventually("it is released", look, |set| controller_of(&set.metadata).is_none()).await?;
    let replaced = |sets: &Vec<ReplicaSet>| sets.len() == 1 && sets[0].metadata.uid != first.metadata.uid;
    eventually("another ReplicaSet replaces it", || rollout.sets(), replaced).await?;
    relabel(&[("foo", "bar")]).await?;
    eventually("it is adopted", look, |set| controller_of(&set.metadata).is_some()).await?;
    Ok(())
}

#[tokio::test]
async fn terminating_pods_are_counted_in_the_status_of_a_deployment() -> Result<()> {
    let rollout = Rollout::create("terminating-replicas", &with_lasting_pods(recreating(6))).await?;
    rollout.completes().await?;
    rollout.has_replicas((6, 6, 6, 6, 0, Some(0))).await?;
    for (size, terminating) in [(4, 2), (3, 3)] {
        rollout.update(|it| spec(it).replicas = Some(size)).await?;
        rollout.has_replicas((size, size, size, size, 0, Some(terminating))).await?;
    }
    rollout.remove_terminating_pods().await?;
    rollout.has_replicas((3, 3, 3, 3, 0, Some(0))).await
}

/// Replaces all pods of a Deployment while pods terminate; the gate decides whether the status counts those.
async fn recreate(namespace: &TestNamespace, counts_terminating: bool) -> Result<()> {
    let counted = |terminating: i32| counts_terminating.then_some(terminating);
    let rollout = Rollout::create_in(namespace, &with_lasting_pods(recreating(6))).await?;
    rollout.completes().await?;
    let first = rollout.newest_set().await?;
    rollout.update(set_environment).await?;
    rollout.has_replicas((0, 0, 0, 0, 0, counted(6))).await?;
    ensure!(rollout.sizes().await? == [0], "no new ReplicaSet while old pods run");
    rollout.delete_pods(&first, usize::MAX, 0).await?;
    rollout.has_replicas((6, 6, 0, 0, 6, counted(0))).await?;
    let second = rollout.newest_set().await?;
    rollout.delete_pods(&second, 1, 300).await?;
    rollout.has_replicas((6, 6, 0, 0, 6, counted(1))).await?;
    rollout.update(|it| spec(it).replicas = Some(7)).await?;
    rollout.has_replicas((7, 7, 0, 0, 7, counted(1))).await?;
    rollout.update(|it| spec(it).replicas = Some(5)).await?;
    rollout.has_replicas((5, 5, 0, 0, 5, counted(3))).await?;
    rollout.completes().await?;
    rollout.has_replicas((5, 5, 5, 5, 0, counted(3))).await?;
    rollout.remove_terminating_pods().await?;
    rollout.has_replicas((5, 5, 5, 5, 0, counted(0))).await
}

#[tokio::test]
async fn recreate_waits_for_the_end_of_terminating_pods() -> Result<()> {
    recreate(&namespace("recreate").await?, true).await
}

/// Scales a Deployment in a rollout while pods terminate; the gate decides whether the status counts those.
async fn scale_during_a_rollout(namespace: &TestNamespace, counts_terminating: bool) -> Result<()> {
    let counted = |terminating: i32| counts_terminating.then_some(terminating);
    let rollout = Rollout::create_in(namespace, &with_lasting_pods(rolling(100, 20, 0))).await?;
    rollout.completes().await?;
    let first = rollout.newest_set().await?;
    rollout.delete_pods(&first, 15, 300).await?;
    stable::<ReplicaSet>(&rollout.namespace, &first.name_any()).await?;
    rollout.completes().await?;
    rollout.update(set_environment).await?;
    rollout.has_replicas((120, 20, 100, 100, 20, counted(15))).await?;
    let second = rollout.newest_set().await?;
    rollout.delete_pods(&second, 1, 300).await?;
    rollout.has_replicas((120, 20, 100, 100, 20, counted(16))).await?;
    rollout.update(|it| spec(it).replicas = Some(120)).await?;
    rollout.has_replicas((140, 23, 100, 100, 40, counted(16))).await?;
    ensure!(rollout.sizes().await? == [117, 23], "both ReplicaSets grow");
    let expected = ["1", "2"]
        .map(|revision| pairs(&[(DESIRED_REPLICAS, "120"), (MAX_REPLICAS, "140"), (REVISION, revision)]));
    ensure!(rollout.annotations_of_sets().await? == expected, "{:?}", rollout.sets().await?);
    let step = || async {
        rollout.remove_terminating_pods().await?;
        rollout.make_pods_ready().await?;
        rollout.get().await
    };
    eventually("the rollout is complete", step, is_complete).await?;
    ensure!(rollout.sizes().await? == [0, 120], "the second ReplicaSet replaces the first");
    ensure!(rollout.annotations_of_sets().await? == expected, "{:?}", rollout.sets().await?);
    rollout.remove_terminating_pods().await?;
    rollout.has_replicas((120, 120, 120, 120, 0, counted(0))).await
}

#[tokio::test]
async fn scaling_during_a_rollout_ignores_terminating_pods() -> Result<()> {
    scale_during_a_rollout(&namespace("proportional").await?, true).await
}

#[tokio::test]
async fn terminating_pods_are_counted_only_with_their_feature_gate() -> Result<()> {
    with_control_plane(options(), async |plane, _| {
        let namespace = async |name| {
            let namespace = plane.namespace(name).await?;
            anyhow::Ok(TestNamespace { client: plane.client().await, namespace })
        };
        let start = async |gate: bool| {
            let gate = format!("--feature-gates=DeploymentReplicaSetTerminatingReplicas={gate}");
            Implementation::chosen()?.start(plane, &[&gate]).await
        };
        let subject = start(false).await?;
        recreate(&namespace("recreate").await?, false).await?;
        scale_during_a_rollout(&namespace("proportional").await?, false).await?;
        let deployment = with_lasting_pods(recreating(6));
        let rollout = Rollout::create_in(&namespace("terminating-replicas").await?, &deployment).await?;
        rollout.completes().await?;
        rollout.has_replicas((6, 6, 6, 6, 0, None)).await?;
        rollout.update(|it| spec(it).replicas = Some(4)).await?;
        rollout.has_replicas((4, 4, 4, 4, 0, None)).await?;
        drop(subject);
        for (gate, size, terminating) in [(true, 3, Some(3)), (false, 2, None)] {
            let _subject = start(gate).await?;
            rollout.update(|it| spec(it).replicas = Some(size)).await?;
            rollout.has_replicas((size, size, size, size, 0, terminating)).await?;
        }
        Ok(())
    })
    .await
}
