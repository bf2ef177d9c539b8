//! The work of the DaemonSet controller, on nodes of all cases.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_black_box::fixtures;
use windlass_black_box::test_namespace::TestNamespace;
use windlass_harness::ControlPlane;

use super::revisions::{self, RevisionOwner, Samples};
use super::{MANY, has_repeated_event, object, owned_by, pod, pod_owner_spec};

/// Label of the nodes; its value is the name of the node.
const NODE: &str = "test.example/node";

/// Creates the nodes.
pub(super) async fn add_nodes(plane: &ControlPlane) -> Result<()> {
    let nodes: Api<Node> = Api::all(plane.client().await);
    for number in 0..MANY {
        let name = format!("node-{number}");
        let mut node = fixtures::node(&name);
        node.labels_mut().insert(NODE.to_owned(), name);
        nodes.create(&PostParams::default(), &node).await?;
    }
    Ok(())
}

/// Returns a DaemonSet for one node, or for none if it does not exist, with more fields of its spec.
fn daemon_set(name: &str, node: &str, fields: Value) -> Result<DaemonSet> {
    let mut spec = pod_owner_spec(name);
    spec["template"]["spec"]["nodeSelector"] = json!({ NODE: node });
    let all = spec.as_object_mut().context("an object")?;
    all.extend(fields.as_object().cloned().unwrap_or_default());
    object(name, json!({ "spec": spec }))
}

impl RevisionOwner for DaemonSet {
    fn idle(name: &str, fields: Value) -> Result<Self> {
        daemon_set(name, "none", fields)
    }

    fn collisions(&self) -> Option<i32> {
        self.status.as_ref()?.collision_count
    }
}

/// Returns a pod for the first node, as the controller creates it.
fn pinned(name: &str, app: &str) -> Result<Pod> {
    let mut pod = json!(pod(name, app)?);
    let field = json!({ "key": "metadata.name", "operator": "In", "values": ["node-0"] });
    let required = json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = required;
    Ok(serde_json::from_value(pod)?)
}

/// Creates a DaemonSet whose pods are missing, one with a misplaced pod, one that adopts a pod, and revisions.
pub(super) async fn prepare(namespace: &TestNamespace, samples: &Samples) -> Result<()> {
    namespace.create(&object::<DaemonSet>("grow", json!({ "spec": pod_owner_spec("grow") }))?).await?;

    let shrink = namespace.create(&daemon_set("shrink", "none", json!({}))?).await?;
    namespace.create(&owned_by(&shrink, pinned("misplaced", "shrink")?)).await?;

    let kept = json!({ "updateStrategy": { "type": "OnDelete" } });
    namespace.create(&daemon_set("adopt", "node-0", kept)?).await?;
    namespace.create(&pinned("orphan", "adopt")?).await?;

    revisions::prepare::<DaemonSet>(namespace, samples).await
}

pub(super) async fn are_done(namespace: &TestNamespace) -> Result<bool> {
    let pods = namespace.list::<Pod>().await?;
    let find = |name: &str| pods.iter().find(|pod| pod.name_any() == name);
    let status = namespace.get::<DaemonSet>("grow").await?.status;
    let is_grown = status.is_some_and(|it| it.current_number_scheduled == MANY);
    let is_shrunk = find("misplaced").is_none();
    let is_adopted = find("orphan").is_some_and(|pod| !pod.owner_references().is_empty());
    let is_done = is_grown && is_shrunk && is_adopted;
    Ok(is_done && revisions::are_done::<DaemonSet>(namespace).await? && has_repeated_event(namespace).await?)
}
