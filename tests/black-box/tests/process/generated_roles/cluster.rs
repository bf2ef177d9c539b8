//! The work of the controllers of namespaces and nodes, which process the whole cluster.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use windlass_black_box::fixtures;
use windlass_black_box::test_namespace::TestNamespace;
use windlass_harness::ControlPlane;

use super::object;

const CA: &str = "kube-root-ca.crt";
const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// Creates a namespace that no controller has processed.
pub(super) async fn namespace(plane: &ControlPlane) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(plane.client().await);
    let namespace = json!({ "metadata": { "generateName": "role-" } });
    Ok(namespaces.create(&PostParams::default(), &serde_json::from_value(namespace)?).await?.name_any())
}

pub(super) async fn has_service_account(namespace: &TestNamespace) -> Result<bool> {
    Ok(namespace.find::<ServiceAccount>("default").await?.is_some())
}

/// Publishes a wrong CA in this namespace, and creates a second one without a CA.
pub(super) async fn publish_wrong_ca(namespace: &TestNamespace) -> Result<()> {
    namespace.create(&object::<ConfigMap>(CA, json!({ "data": { "ca.crt": "wrong" } }))?).await?;
    let namespaces: Api<Namespace> = Api::all(namespace.client.clone());
    let second = json!({ "metadata": { "name": second(namespace).namespace } });
    namespaces.create(&PostParams::default(), &serde_json::from_value(second)?).await?;
    Ok(())
}

fn second(namespace: &TestNamespace) -> TestNamespace {
    TestNamespace { client: namespace.client.clone(), namespace: format!("{}-second", namespace.namespace) }
}

/// Returns whether this namespace has the right CA, and the second one has a CA.
pub(super) async fn has_right_ca(namespace: &TestNamespace) -> Result<bool> {
    let data = namespace.get::<ConfigMap>(CA).await?.data.unwrap_or_default();
    let is_right = data.get("ca.crt").is_some_and(|ca| ca.starts_with("-----BEGIN"));
    Ok(is_right && second(namespace).find::<ConfigMap>(CA).await?.is_some())
}

/// Creates a node with the name of the namespace.
pub(super) async fn add_node(namespace: &TestNamespace) -> Result<()> {
    nodes(namespace).create(&PostParams::default(), &fixtures::node(&namespace.namespace)).await?;
    Ok(())
}

pub(super) async fn has_ttl(namespace: &TestNamespace) -> Result<bool> {
    Ok(nodes(namespace).get(&namespace.namespace).await?.annotations().contains_key(TTL))
}

fn nodes(namespace: &TestNamespace) -> Api<Node> {
    Api::all(namespace.client.clone())
}

/// Creates two pods that have terminated, a terminating pod that was never scheduled, and a pod of a missing node.
pub(super) async fn add_garbage(namespace: &TestNamespace) -> Result<()> {
    for name in ["first", "second"] {
        namespace.create(&fixtures::pod(name)).await?;
        let terminate =
            |pod: &mut Pod| pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        namespace.update_status::<Pod>(name, terminate).await?;
    }
    let mut leaving = fixtures::pod("leaving");
    leaving.metadata.finalizers = Some(vec!["test.example/stays".to_owned()]);
    namespace.create(&leaving).await?;
    namespace.delete::<Pod>("leaving").await?;
    namespace.create(&fixtures::pod_on_no_node("orphan")).await?;
    Ok(())
}

/// Returns whether one of the pods that have terminated is deleted, and the terminating pod has failed. The orphan
/// stays for a minute.
pub(super) async fn is_garbage_collected(namespace: &TestNamespace) -> Result<bool> {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    let pods = namespace.list::<Pod>().await?;
    let leaving = pods.iter().find(|pod| pod.name_any() == "leaving").context("the terminating pod")?;
    let terminated = pods.iter().filter(|pod| phase(pod).as_deref() == Some("Succeeded")).count();
    Ok(terminated < 2 && phase(leaving).as_deref() == Some("Failed"))
}
