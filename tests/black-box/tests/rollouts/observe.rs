//! The compared objects: Deployments, ReplicaSets and the number of their pods, without times, versions and UIDs.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use windlass_black_box::{
    fixtures::{controller_of, is_ready},
    test_namespace::TestNamespace,
};

/// The objects of one namespace at one time.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) deployments: Vec<Deployment>,
    pub(crate) sets: Vec<ReplicaSet>,
    pub(crate) pods: Vec<Pod>,
}

impl Observed {
    pub(crate) async fn now(namespace: &TestNamespace) -> Result<Self> {
        let (deployments, sets, pods) =
            tokio::try_join!(namespace.list(), namespace.list(), namespace.list())?;
        Ok(Self { deployments, sets, pods })
    }

    /// Returns UIDs and versions, which change with each write.
    pub(crate) fn versions(&self) -> Vec<(Option<String>, Option<String>)> {
        let deployments = self.deployments.iter().map(|it| &it.metadata);
        let all = deployments.chain(self.sets.iter().map(|it| &it.metadata));
        let all = all.chain(self.pods.iter().map(|it| &it.metadata));
        all.map(|meta| (meta.uid.clone(), meta.resource_version.clone())).collect()
    }

    /// Returns whether the controllers have observed everything: the specs, the pods, and ReplicaSets to release.
    pub(crate) fn is_settled(&self) -> bool {
        self.deployments.iter().all(|it| self.deployment_is_settled(it))
            && self.sets.iter().all(|it| self.set_is_settled(it))
    }

    fn deployment_is_settled(&self, deployment: &Deployment) -> bool {
        let uid = deployment.uid();
        let owned =
            || self.sets.iter().filter(|set| controller_of(&set.metadata).map(|it| it.uid.clone()) == uid);
        let status = deployment.status.clone().unwrap_or_default();
        let number = Option::unwrap_or_default;
        let selected = deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.as_ref());
        deployment.metadata.deletion_timestamp.is_none()
            && status.observed_generation == deployment.metadata.generation
            && number(status.replicas) == owned().map(|set| numbers(set).0).sum::<i32>()
            && number(status.ready_replicas) == owned().map(|set| numbers(set).1).sum::<i32>()
            && owned().all(|set| {
                selected.into_iter().flatten().all(|(key, value)| set.labels().get(key) == Some(value))
            })
    }

    fn set_is_settled(&self, set: &ReplicaSet) -> bool {
        let observed = set.status.as_ref().and_then(|status| status.observed_generation);
        let (all, ready) = numbers(set);
        let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        observed == set.metadata.generation
            && Some(all) == set.spec.as_ref().and_then(|spec| spec.replicas)
            && all == count(self.pods_of(set).count())
            && ready == count(self.pods_of(set).filter(|pod| is_ready(pod)).count())
    }

    fn pods_of(&self, set: &ReplicaSet) -> impl Iterator<Item = &Pod> {
        let uid = set.uid();
        self.pods.iter().filter(move |pod| controller_of(&pod.metadata).map(|it| it.uid.clone()) == uid)
    }

    /// Returns the comparable form of each object by kind and name.
    pub(crate) fn normalized(&self) -> BTreeMap<String, Value> {
        let deployments =
            self.deployments.iter().map(|it| (format!("Deployment {}", it.name_any()), deployment(it)));
        let sets = self.sets.iter().map(|it| (format!("ReplicaSet {}", it.name_any()), self.set(it)));
        deployments.chain(sets).collect()
    }

    fn set(&self, set: &ReplicaSet) -> Value {
        let mut status = set.status.clone().unwrap_or_default();
        status.conditions = None;
        // Counts the writes of the spec. Windlass sends two changes of a size in one sync as one write.
        status.observed_generation = None;
        json!({
            "owner": controller_of(&set.metadata).map(|owner| &owner.name),
            "labels": set.labels(),
            "annotations": set.annotations(),
            "spec": set.spec,
            "ready": self.pods_of(set).filter(|pod| is_ready(pod)).count(),
            "status": status,
        })
    }
}

fn deployment(deployment: &Deployment) -> Value {
    let mut status = deployment.status.clone().unwrap_or_default();
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_transition_time = None;
        condition.last_update_time = None;
    }
    status.conditions.iter_mut().for_each(|conditions| conditions.sort_by(|a, b| a.type_.cmp(&b.type_)));
    json!({ "annotations": deployment.annotations(), "spec": deployment.spec, "status": status })
}

/// Returns the pods and the ready pods in the status of a ReplicaSet.
fn numbers(set: &ReplicaSet) -> (i32, i32) {
    set.status
        .as_ref()
        .map(|status| (status.replicas, status.ready_replicas.unwrap_or(0)))
        .unwrap_or_default()
}
