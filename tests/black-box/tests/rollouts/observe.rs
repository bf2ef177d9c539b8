//! The compared objects: Deployments, ReplicaSets and the number of their pods, without times, versions and UIDs.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use windlass_black_box::{fixtures::controller_of, test_namespace::TestNamespace};

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

    /// Returns whether the controllers have observed all specs, and each ReplicaSet has its pods.
    pub(crate) fn is_settled(&self) -> bool {
        let deployments = self.deployments.iter().all(|it| {
            let observed = it.status.as_ref().and_then(|status| status.observed_generation);
            it.metadata.deletion_timestamp.is_none() && observed == it.metadata.generation
        });
        let sets = self.sets.iter().all(|set| {
            let status = set.status.clone().unwrap_or_default();
            status.observed_generation == set.metadata.generation
                && Some(status.replicas) == set.spec.as_ref().and_then(|spec| spec.replicas)
                && status.replicas == self.pods_of(set).count().try_into().unwrap_or(i32::MAX)
        });
        deployments && sets
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

/// Returns whether a pod has the condition Ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}
