//! The compared state: all decisions of the controllers, without random values and times.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{EndpointAddress, EndpointSubset, Endpoints, Pod},
};
use kube::{ResourceExt as _, api::ListParams};
use windlass_black_box::{fixtures::controller_of, test_namespace::TestNamespace};

/// The annotation that makes the choice of the pod to delete unambiguous, and that identifies a pod in the script.
pub(crate) const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The annotation that holds a pod's rank.
pub(crate) const RANK: &str = "test.example/rank";

const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// A snapshot of the objects of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) sets: Vec<ReplicaSet>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) endpoints: Vec<Endpoints>,
}

impl Observed {
    pub(crate) async fn now(namespace: &TestNamespace) -> Result<Self> {
        let all = ListParams::default();
        Ok(Self {
            sets: namespace.api::<ReplicaSet>().list(&all).await?.items,
            pods: namespace.api::<Pod>().list(&all).await?.items,
            endpoints: namespace.api::<Endpoints>().list(&all).await?.items,
        })
    }

    /// Returns identity and version of every object. They are equal if and only if no object was written in between.
    pub(crate) fn fingerprint(&self) -> Vec<(Option<String>, Option<String>)> {
        let sets = self.sets.iter().map(|it| &it.metadata);
        let pods = self.pods.iter().map(|it| &it.metadata);
        let endpoints = self.endpoints.iter().map(|it| &it.metadata);
        sets.chain(pods)
            .chain(endpoints)
            .map(|meta| (meta.uid.clone(), meta.resource_version.clone()))
            .collect()
    }

    /// Returns whether every ReplicaSet has reached its desired state, as far as the API shows.
    pub(crate) fn has_converged(&self) -> bool {
        self.sets.iter().all(|set| self.set_has_converged(set))
    }

    fn set_has_converged(&self, set: &ReplicaSet) -> bool {
        let status = set.status.clone().unwrap_or_default();
        let desired = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let owned = self
            .pods
            .iter()
            .filter(|pod| {
                controller_of(&pod.metadata).is_some_and(|it| Some(&it.uid) == set.metadata.uid.as_ref())
            })
            .filter(|pod| is_active(pod))
            .count();
        status.observed_generation == set.metadata.generation
            && status.replicas == desired
            && i32::try_from(owned).is_ok_and(|owned| owned == desired)
    }

    /// Returns the comparable form: ranks instead of names, and no times, versions or UIDs.
    pub(crate) fn normalised(&self) -> BTreeMap<String, String> {
        let owners: BTreeMap<_, _> =
            self.sets.iter().map(|set| (set.uid().unwrap_or_default(), set.name_any())).collect();
        let ranks: BTreeMap<_, _> = self.pods.iter().map(|pod| (pod.name_any(), rank_of(pod))).collect();
        let sets = self.sets.iter().map(|set| (format!("ReplicaSet {}", set.name_any()), set_form(set)));
        let pods = self.pods.iter().map(|pod| (format!("Pod {}", rank_of(pod)), pod_form(pod, &owners)));
        let endpoints = self
            .endpoints
            .iter()
            .map(|it| (format!("Endpoints {}", it.name_any()), endpoints_form(it, &ranks)));
        sets.chain(pods).chain(endpoints).collect()
    }
}

/// Returns whether a pod is active: neither finished nor terminating.
pub(crate) fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns the rank of a pod, or its name if it has no rank.
pub(crate) fn rank_of(pod: &Pod) -> String {
    pod.annotations().get(RANK).cloned().unwrap_or_else(|| pod.name_any())
}

fn set_form(set: &ReplicaSet) -> String {
    let status = set.status.clone().unwrap_or_default();
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .map(|it| (&it.type_, &it.status, it.reason.as_deref().unwrap_or_default()))
        .collect();
    format!(
        "wants {:?} has {} labeled {:?} ready {:?} available {:?} terminating {:?} behind {} conditions {conditions:?}",
        set.spec.as_ref().and_then(|spec| spec.replicas),
        status.replicas,
        status.fully_labeled_replicas,
        status.ready_replicas,
        status.available_replicas,
        status.terminating_replicas,
        set.metadata.generation.unwrap_or(0) - status.observed_generation.unwrap_or(0),
    )
}

fn pod_form(pod: &Pod, owners: &BTreeMap<String, String>) -> String {
    let references: Vec<_> = pod
        .owner_references()
        .iter()
        .map(|it| {
            let owner = owners.get(&it.uid).cloned().unwrap_or_else(|| "gone".to_owned());
            (owner, &it.kind, it.controller, it.block_owner_deletion)
        })
        .collect();
    let status = pod.status.clone().unwrap_or_default();
    format!(
        "labels {:?} owners {references:?} named after {:?} phase {:?} deleting {}",
        pod.labels(),
        pod.metadata.generate_name,
        status.phase,
        pod.metadata.deletion_timestamp.is_some(),
    )
}

fn endpoints_form(endpoints: &Endpoints, ranks: &BTreeMap<String, String>) -> String {
    let mut annotations = endpoints.annotations().clone();
    annotations.remove(TRIGGER_TIME);
    let mut subsets: Vec<String> =
        endpoints.subsets.iter().flatten().map(|subset| subset_form(subset, ranks)).collect();
    subsets.sort();
    format!("labels {:?} annotations {annotations:?} subsets {subsets:?}", endpoints.labels())
}

fn subset_form(subset: &EndpointSubset, ranks: &BTreeMap<String, String>) -> String {
    let mut ports: Vec<_> = subset
        .ports
        .iter()
        .flatten()
        .map(|port| (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone()))
        .collect();
    ports.sort();
    let form = |addresses: &Option<Vec<EndpointAddress>>| {
        let mut forms: Vec<_> = addresses.iter().flatten().map(|it| address_form(it, ranks)).collect();
        forms.sort();
        forms
    };
    format!(
        "ports {ports:?} ready {:?} not ready {:?}",
        form(&subset.addresses),
        form(&subset.not_ready_addresses)
    )
}

fn address_form(address: &EndpointAddress, ranks: &BTreeMap<String, String>) -> String {
    let target = address.target_ref.clone().unwrap_or_default();
    let name = target.name.unwrap_or_default();
    let rank = ranks.get(&name).cloned().unwrap_or(name);
    // The script derives addresses from ranks, so an address is compared as it is.
    format!("{} {:?} {:?} {rank} on {:?}", address.ip, address.hostname, target.kind, address.node_name)
}
