//! A namespace with workloads of one kind and the nodes of its DaemonSets, and the operations on them.
use anyhow::{Context as _, Result};
use futures_util::future::OptionFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy},
};
use serde_json::{Value, json};
use windlass_black_box::{fixtures::pairs, test_namespace::TestNamespace};
use windlass_harness::{ControlPlane, ControlPlaneOptions};

use crate::{
    kind::{APP, GROUP, Kind, app, node_label},
    observe::Objects,
    script::Operation,
};

/// The label of all nodes of a scene.
const SCENE: &str = "test.example/scene";

/// Returns the options of a control plane without nodes.
pub(crate) fn options() -> ControlPlaneOptions {
    ControlPlaneOptions::default().nodes(0).scheduler(false).api_server_arg(
        // The first plugin taints each new node until a node lifecycle controller finds it ready, and the second one
        // keeps deleted claims until a protection controller finds them unused. Neither controller runs here.
        "--disable-admission-plugins=TaintNodesByCondition,StorageObjectInUseProtection",
    )
}

/// A namespace and its nodes.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) kind: Kind,
    pub(crate) namespace: TestNamespace,
    /// Prefix of the names of the nodes; equal on all control planes, as templates and hashes contain it.
    name: String,
}

impl Scene {
    pub(crate) async fn new(plane: &ControlPlane, kind: Kind, name: &str) -> Result<Self> {
        let name = format!("{name}-{}", kind.lowercase());
        let namespace = plane.namespace(&name).await?;
        Ok(Self { kind, namespace: TestNamespace { client: plane.client().await, namespace }, name })
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.namespace.client.clone())
    }

    /// Returns the parameters that list the nodes of this scene.
    fn own_nodes(&self) -> ListParams {
        ListParams::default().labels(&format!("{SCENE}={}", self.name))
    }

    /// Adds a node that these DaemonSets select.
    pub(crate) async fn add_node(&self, group: &str, number: usize, selected_by: &[&str]) -> Result<()> {
        let mut node = Node::default();
        node.metadata.name = Some(format!("{}-{group}-{number}", self.name));
        let mut labels = pairs(&[(SCENE, &self.name), (GROUP, group)]);
        labels.extend(selected_by.iter().map(|name| (node_label(name), self.name.clone())));
        node.metadata.labels = Some(labels);
        self.nodes().create(&PostParams::default(), &node).await?;
        Ok(())
    }

    pub(crate) async fn remove_nodes(&self) -> Result<()> {
        self.nodes().delete_collection(&DeleteParams::default(), &self.own_nodes()).await?;
        Ok(())
    }

    pub(crate) fn workloads(&self) -> Api<DynamicObject> {
        let (client, namespace) = (self.namespace.client.clone(), &self.namespace.namespace);
        Api::namespaced_with(client, namespace, &self.kind.resource())
    }

    fn revisions(&self) -> Api<DynamicObject> {
        let (client, namespace) = (self.namespace.client.clone(), &self.namespace.namespace);
        Api::namespaced_with(client, namespace, &self.kind.revision_resource())
    }

    /// Lists the objects.
    pub(crate) async fn objects(&self) -> Result<Objects> {
        let (workloads, revisions) = (self.workloads(), self.revisions());
        let all = ListParams::default();
        let claims = OptionFuture::from((self.kind == Kind::StatefulSet).then(|| self.namespace.list()));
        let nodes = async {
            match self.kind {
                Kind::DaemonSet => Ok(self.nodes().list(&self.own_nodes()).await?.items),
                Kind::Deployment | Kind::StatefulSet => anyhow::Ok(Vec::new()),
            }
        };
        let (workloads, revisions, pods, claims, nodes) =
            tokio::join!(workloads.list(&all), revisions.list(&all), self.namespace.list(), claims, nodes,);
        Ok(Objects {
            kind: self.kind,
            workloads: workloads?.items,
            revisions: revisions?.items,
            pods: pods?,
            claims: claims.transpose()?.unwrap_or_default(),
            nodes: nodes?,
        })
    }

    /// Performs one operation.
    pub(crate) async fn perform(&self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::Create { name, spec } => {
                let workload = self.kind.workload(name, spec, &self.name);
                self.workloads().create(&PostParams::default(), &workload).await?;
            }
            Operation::Change { name, patch } => {
                let patch = Patch::Strategic(patch);
                self.workloads().patch(name, &PatchParams::default(), &patch).await?;
            }
            Operation::ReleaseNewestRevision { name } => self.release_newest_revision(name).await?,
            Operation::DeleteNewestRevision { name } => {
                if let Some(newest) = self.objects().await?.newest_revision(name) {
                    self.revisions().delete(&newest, &DeleteParams::default()).await?;
                }
            }
            Operation::DeletePod { name, index } => {
                let objects = self.objects().await?;
                let pods: Vec<_> =
                    objects.pods_in_order().into_iter().filter(|it| app(it) == *name).collect();
                if let Some(pod) = pods.get(index % pods.len().max(1)) {
                    self.namespace.delete_now::<Pod>(&pod.name_any()).await?;
                }
            }
            Operation::ToggleNode { name, index } => self.toggle_node(name, *index).await?,
            Operation::Orphan { name } => {
                let orphan = DeleteParams {
                    propagation_policy: Some(PropagationPolicy::Orphan),
                    ..DeleteParams::default()
                };
                self.workloads().delete(name, &orphan).await?;
            }
        }
        Ok(())
    }

    /// Binds a pod to a node, as a scheduler does, unless a controller deletes the pod at the same time.
    pub(crate) async fn bind(&self, pod: &str, node: &str) -> Result<()> {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": pod },
            "target": { "kind": "Node", "name": node },
        });
        let pods = self.namespace.api::<Pod>();
        match pods.create_subresource::<_, Value>("binding", pod, &PostParams::default(), &binding).await {
            Err(error) if pods.get_opt(pod).await?.is_some() => Err(error.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn release_newest_revision(&self, name: &str) -> Result<()> {
        let Some(newest) = self.objects().await?.newest_revision(name) else { return Ok(()) };
        let patch = Patch::Merge(json!({ "metadata": { "labels": { APP: "released" } } }));
        self.revisions().patch(&newest, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Adds the label that a DaemonSet selects to a node, or removes it.
    async fn toggle_node(&self, name: &str, index: usize) -> Result<()> {
        let objects = self.objects().await?;
        let nodes = objects.nodes_in_order(name);
        let node = nodes.get(index % nodes.len().max(1)).context("a node")?;
        let value = match node.labels().contains_key(&node_label(name)) {
            true => None,
            false => Some(&self.name),
        };
        let patch = Patch::Merge(json!({ "metadata": { "labels": { node_label(name): value } } }));
        self.nodes().patch(&node.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}
