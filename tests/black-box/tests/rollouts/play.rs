//! Performs a script in a namespace, acts as its nodes, and records the objects after each step.
//!
//! One pod becomes ready at a time, when nothing else changes, so that all implementations see the same order.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, ReplicaSet, RollingUpdateDeployment},
        core::v1::Pod,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, PropagationPolicy},
};
use serde_json::Value;
use windlass_black_box::{
    fixtures::{self, controller_of, is_ready, pairs, revision, set_image},
    test_namespace::TestNamespace,
    wait::TIMEOUT,
};

use crate::{
    observe::Observed,
    script::{BROKEN, Operation, Script},
};

/// Time without a write after which the controllers have reacted. They need a few milliseconds.
const QUIET: Duration = Duration::from_millis(250);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// One step of a recording.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) operation: Operation,
    pub(crate) objects: BTreeMap<String, Value>,
}

/// Plays `steps` operations of the script with this seed.
pub(crate) async fn play(namespace: &TestNamespace, seed: u64, steps: u64) -> Result<Vec<Step>> {
    let mut script = Script::new(seed);
    let mut recording = Vec::new();
    for _ in 0..steps {
        let operation = script.next();
        perform(namespace, &operation).await.with_context(|| format!("{operation:?}"))?;
        let observed =
            settle(namespace, Pace::OneByOne).await.with_context(|| format!("after {operation:?}"))?;
        recording.push(Step { operation, objects: observed.normalized() });
    }
    Ok(recording)
}

/// Performs one operation.
pub(crate) async fn perform(namespace: &TestNamespace, operation: &Operation) -> Result<()> {
    let change = async |name: &str, change: &dyn Fn(&mut Deployment)| -> Result<()> {
        namespace.update::<Deployment>(name, change).await?;
        Ok(())
    };
    match operation {
        Operation::Create { name, replicas, recreates, surge, unavailable } => {
            let mut deployment = deployment(name, *replicas);
            spec(&mut deployment).strategy = Some(match recreates {
                true => strategy(true),
                false => DeploymentStrategy {
                    rolling_update: Some(RollingUpdateDeployment {
                        max_surge: Some(IntOrString::Int(*surge)),
                        max_unavailable: Some(IntOrString::Int(*unavailable)),
                    }),
                    ..strategy(false)
                },
            });
            namespace.create(&deployment).await?;
            Ok(())
        }
        Operation::SetImage { name, image } => {
            change(name, &|it| set_image(&mut spec(it).template, image)).await
        }
        Operation::Scale { name, replicas } => change(name, &|it| spec(it).replicas = Some(*replicas)).await,
        Operation::ScaleAndSetImage { name, replicas, image } => {
            let both = |it: &mut Deployment| {
                spec(it).replicas = Some(*replicas);
                set_image(&mut spec(it).template, image);
            };
            change(name, &both).await
        }
        Operation::SetPaused { name, paused } => change(name, &|it| spec(it).paused = Some(*paused)).await,
        Operation::RollBack { name } => {
            annotate(namespace, name, "deprecated.deployment.rollback.to", "0").await
        }
        Operation::SetHistoryLimit { name, limit } => {
            change(name, &|it| spec(it).revision_history_limit = Some(*limit)).await
        }
        Operation::Annotate { name, value } => annotate(namespace, name, "note", &value.to_string()).await,
        Operation::SetStrategy { name, recreates } => {
            change(name, &|it| spec(it).strategy = Some(strategy(*recreates))).await
        }
        Operation::ReleaseNewestSet { name } => {
            let Some(set) = newest_set(namespace, name).await? else { return Ok(()) };
            let released = |set: &mut ReplicaSet| set.metadata.labels = Some(pairs(&[("app", "released")]));
            namespace.update::<ReplicaSet>(&set, released).await?;
            Ok(())
        }
        Operation::DeleteNewestSet { name } => match newest_set(namespace, name).await? {
            Some(set) => namespace.delete::<ReplicaSet>(&set).await,
            None => Ok(()),
        },
        Operation::Orphan { name } => {
            let orphan = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Orphan),
                ..DeleteParams::default()
            };
            namespace.api::<Deployment>().delete(name, &orphan).await?;
            Ok(())
        }
    }
}

/// Returns a Deployment whose pods only the test changes; deleted pods disappear at once.
pub(crate) fn deployment(name: &str, replicas: i32) -> Deployment {
    let mut deployment = fixtures::deployment(name, replicas);
    let labels = Some(pairs(&[("app", name)]));
    spec(&mut deployment).selector.match_labels.clone_from(&labels);
    let template = &mut spec(&mut deployment).template;
    template.metadata.get_or_insert_default().labels = labels;
    let pod = template.spec.get_or_insert_default();
    pod.node_name = Some("no-such-node".to_owned());
    pod.termination_grace_period_seconds = Some(0);
    deployment
}

fn spec(deployment: &mut Deployment) -> &mut DeploymentSpec {
    deployment.spec.get_or_insert_default()
}

fn strategy(recreates: bool) -> DeploymentStrategy {
    let name = if recreates { "Recreate" } else { "RollingUpdate" };
    DeploymentStrategy { rolling_update: None, type_: Some(name.to_owned()) }
}

async fn annotate(namespace: &TestNamespace, name: &str, key: &str, value: &str) -> Result<()> {
    let insert = |it: &mut Deployment| drop(it.annotations_mut().insert(key.to_owned(), value.to_owned()));
    namespace.update::<Deployment>(name, insert).await?;
    Ok(())
}

/// Returns the name of the owned ReplicaSet with the highest revision.
async fn newest_set(namespace: &TestNamespace, deployment: &str) -> Result<Option<String>> {
    let owned = |set: &ReplicaSet| controller_of(&set.metadata).is_some_and(|it| it.name == deployment);
    let revision = |set: &ReplicaSet| revision(&set.metadata)?.parse::<u32>().ok();
    let sets = namespace.list::<ReplicaSet>().await?.into_iter().filter(owned);
    Ok(sets.max_by_key(|set| (revision(set), set.name_any())).map(|set| set.name_any()))
}

/// Order in which pods become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The next pod becomes ready when the controllers have reacted to the last one.
    OneByOne,
    AllAtOnce,
}

/// Makes pods ready until nothing changes, and returns the objects.
pub(crate) async fn settle(namespace: &TestNamespace, pace: Pace) -> Result<Observed> {
    loop {
        let observed = quiet(namespace).await?;
        let mut pods: Vec<_> = observed.pods.iter().filter(|pod| can_start(pod)).collect();
        if pods.is_empty() {
            return Ok(observed);
        }
        pods.sort_by_key(|pod| order(pod));
        if pace == Pace::OneByOne {
            pods.truncate(1);
        }
        for pod in pods {
            namespace.start_pod(&pod.name_any()).await?;
        }
    }
}

fn can_start(pod: &Pod) -> bool {
    let is_broken = pod.spec.iter().any(|spec| spec.containers[0].image.as_deref() == Some(BROKEN));
    !is_broken && !is_ready(pod)
}

/// Pods of one ReplicaSet are equal for the controllers.
fn order(pod: &Pod) -> Option<String> {
    controller_of(&pod.metadata).map(|owner| owner.name.clone())
}

async fn quiet(namespace: &TestNamespace) -> Result<Observed> {
    let started = Instant::now();
    let mut last = Observed::now(namespace).await?;
    let mut quiet_since = Instant::now();
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let observed = Observed::now(namespace).await?;
        if observed.versions() != last.versions() || !observed.is_settled() {
            quiet_since = Instant::now();
        }
        last = observed;
        if quiet_since.elapsed() >= QUIET {
            return Ok(last);
        }
        if started.elapsed() > TIMEOUT {
            bail!("the objects still change: {:#?}", last.normalized());
        }
    }
}
