//! A snapshot of the cluster, reduced to the displayed data.
//!
//! The data is read from informer caches. Each has its own watch, so an effect can be observed before its cause.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod};
use kube::{Client, Resource, ResourceExt as _};
use windlass::env::Env;
use windlass::informer::Lister;
use windlass::metrics::Metrics;
use windlass::object::ResourceVersion;
use windlass_client::{Clients, OpenFence};
use windlass_informer::{ApiServerSources, FactoryOptions, InformerFactory};

use crate::running::{base, service, unlimited};

/// The lifecycle stage of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PodStage {
    /// Created, not scheduled to a node.
    Waiting,
    /// Scheduled to a node, not ready.
    Starting,
    /// Ready for traffic.
    Ready,
    /// Terminating.
    Ending,
    /// Completed: its containers have terminated permanently.
    Over,
}

/// A pod as displayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodView {
    pub(crate) node: Option<String>,
    pub(crate) address: Option<String>,
    pub(crate) stage: PodStage,
}

/// An object whose controller creates pods, as displayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WorkloadView {
    /// Desired number of pods.
    pub(crate) desired: u64,
    /// Number of pods in the status.
    pub(crate) reported: u64,
    /// Number of ready pods in the status.
    pub(crate) ready: u64,
}

/// A snapshot of the cluster. Names are `namespace/name`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClusterSnapshot {
    /// The version of each cache, in the order of [`Observer`].
    pub(crate) versions: [Option<ResourceVersion>; 7],
    /// Workloads by kind and name.
    pub(crate) workloads: BTreeMap<(&'static str, String), WorkloadView>,
    pub(crate) pods: BTreeMap<String, PodView>,
    /// Ready addresses, by Endpoints.
    pub(crate) addresses: BTreeMap<String, BTreeSet<String>>,
    pub(crate) nodes: usize,
}

/// Informers of the displayed objects.
pub(crate) struct Observer {
    factory: InformerFactory,
    endpoints: Lister<Endpoints>,
    pods: Lister<Pod>,
    nodes: Lister<Node>,
    deployments: Lister<Deployment>,
    daemon_sets: Lister<DaemonSet>,
    replica_sets: Lister<ReplicaSet>,
    stateful_sets: Lister<StatefulSet>,
}

impl Observer {
    /// Starts the informers.
    ///
    /// # Errors
    /// When no client can be created.
    pub(crate) fn start(env: &Env, client: Client) -> Result<Self> {
        let env = env.with_incarnation("observer", 0);
        let metrics = Metrics::new();
        let (service, fence) = (service(client), Arc::new(OpenFence));
        let clients = Clients::from_service(env.clone(), service, base(), unlimited(), &metrics, fence)?;
        let factory = InformerFactory::new(env, metrics, FactoryOptions::default());
        let observer = Self {
            endpoints: factory.typed().lister(),
            pods: factory.typed().lister(),
            nodes: factory.typed().lister(),
            deployments: factory.typed().lister(),
            daemon_sets: factory.typed().lister(),
            replica_sets: factory.typed().lister(),
            stateful_sets: factory.typed().lister(),
            factory,
        };
        observer.factory.start(Arc::new(ApiServerSources::new(clients.for_informers()?)));
        Ok(observer)
    }

    /// Returns the current snapshot, or `before` if there are no changes.
    pub(crate) fn observe(&self, before: ClusterSnapshot) -> ClusterSnapshot {
        let versions = [
            self.endpoints.version(),
            self.pods.version(),
            self.nodes.version(),
            self.deployments.version(),
            self.daemon_sets.version(),
            self.replica_sets.version(),
            self.stateful_sets.version(),
        ];
        if versions == before.versions {
            return before;
        }
        ClusterSnapshot {
            versions,
            addresses: views(&self.endpoints, ready_addresses),
            pods: views(&self.pods, pod),
            workloads: self.workloads(),
            nodes: self.nodes.len(),
        }
    }

    fn workloads(&self) -> BTreeMap<(&'static str, String), WorkloadView> {
        let mut workloads = BTreeMap::new();
        let mut add = |kind, views: BTreeMap<_, _>| {
            workloads.extend(views.into_iter().map(|(name, view)| ((kind, name), view)));
        };
        add("Deployment", views(&self.deployments, deployment));
        add("DaemonSet", views(&self.daemon_sets, daemon_set));
        add("ReplicaSet", views(&self.replica_sets, replica_set));
        add("StatefulSet", views(&self.stateful_sets, stateful_set));
        workloads
    }

    /// Stops the informers.
    pub(crate) async fn end(self) {
        self.factory.shutdown().await;
    }
}

impl ClusterSnapshot {
    /// Returns the number of pods in each stage.
    pub(crate) fn stages(&self) -> BTreeMap<PodStage, usize> {
        let mut stages = BTreeMap::new();
        for pod in self.pods.values() {
            *stages.entry(pod.stage).or_default() += 1;
        }
        stages
    }

    /// Returns the number of pods in a stage.
    pub(crate) fn count(&self, stage: PodStage) -> usize {
        self.pods.values().filter(|pod| pod.stage == stage).count()
    }
}

fn views<K, T>(lister: &Lister<K>, view: impl Fn(&K) -> T) -> BTreeMap<String, T>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let name = |object: &K| match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    };
    lister.list().iter().map(|object| (name(object), view(object))).collect()
}

impl WorkloadView {
    fn new(desired: Option<i32>, reported: Option<i32>, ready: Option<i32>) -> Self {
        let [desired, reported, ready] = [desired, reported, ready]
            .map(|number| number.and_then(|it| u64::try_from(it).ok()).unwrap_or_default());
        Self { desired, reported, ready }
    }
}

fn deployment(deployment: &Deployment) -> WorkloadView {
    let (spec, status) = (deployment.spec.as_ref(), deployment.status.as_ref());
    WorkloadView::new(
        spec.and_then(|spec| spec.replicas),
        status.and_then(|status| status.replicas),
        status.and_then(|status| status.ready_replicas),
    )
}

/// The number of nodes that need a pod is known from the status only.
fn daemon_set(set: &DaemonSet) -> WorkloadView {
    let status = set.status.as_ref();
    WorkloadView::new(
        status.map(|status| status.desired_number_scheduled),
        status.map(|status| status.current_number_scheduled),
        status.map(|status| status.number_ready),
    )
}

fn replica_set(set: &ReplicaSet) -> WorkloadView {
    let (spec, status) = (set.spec.as_ref(), set.status.as_ref());
    WorkloadView::new(
        spec.and_then(|spec| spec.replicas),
        status.map(|status| status.replicas),
        status.and_then(|status| status.ready_replicas),
    )
}

fn stateful_set(set: &StatefulSet) -> WorkloadView {
    let (spec, status) = (set.spec.as_ref(), set.status.as_ref());
    WorkloadView::new(
        spec.and_then(|spec| spec.replicas),
        status.map(|status| status.replicas),
        status.and_then(|status| status.ready_replicas),
    )
}

fn pod(pod: &Pod) -> PodView {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    PodView { node, address, stage: stage(pod) }
}

fn stage(pod: &Pod) -> PodStage {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let is_ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
    let has_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    match (&pod.metadata.deletion_timestamp, status.and_then(|status| status.phase.as_deref())) {
        (Some(_), _) => PodStage::Ending,
        (None, Some("Succeeded" | "Failed")) => PodStage::Over,
        (None, _) if is_ready => PodStage::Ready,
        (None, _) if has_node => PodStage::Starting,
        (None, _) => PodStage::Waiting,
    }
}

fn ready_addresses(endpoints: &Endpoints) -> BTreeSet<String> {
    let subsets = endpoints.subsets.iter().flatten();
    subsets.flat_map(|subset| subset.addresses.iter().flatten()).map(|address| address.ip.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deleted_pod_is_ending_even_if_ready() {
        let stage = |pod: &serde_json::Value| stage(&serde_json::from_value(pod.clone()).expect("a pod"));
        let spec = json!({ "nodeName": "node-0", "containers": [] });
        let ready = json!({ "spec": spec, "status": {
            "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
        } });
        assert_eq!(stage(&ready), PodStage::Ready);
        let mut ending = ready.clone();
        ending["metadata"] = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        assert_eq!(stage(&ending), PodStage::Ending);
        assert_eq!(stage(&json!({ "spec": spec })), PodStage::Starting);
        assert_eq!(stage(&json!({})), PodStage::Waiting);
        assert_eq!(stage(&json!({ "status": { "phase": "Failed" } })), PodStage::Over);
    }

    #[test]
    fn only_ready_addresses_count() {
        let endpoints = json!({ "subsets": [
            { "addresses": [{ "ip": "10.0.0.1" }], "notReadyAddresses": [{ "ip": "10.0.0.9" }] },
            { "addresses": [{ "ip": "10.0.0.2" }] },
        ] });
        let endpoints = serde_json::from_value(endpoints).expect("Endpoints");
        assert_eq!(ready_addresses(&endpoints), BTreeSet::from(["10.0.0.1".into(), "10.0.0.2".into()]));
    }
}
