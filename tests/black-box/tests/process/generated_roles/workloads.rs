//! The work of the ReplicaSet controller and of the ReplicationController controller.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;
use windlass_black_box::fixtures;
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::workload::Workload;

use super::{MANY, has_repeated_event, object, owned_by, pod};

/// Creates a workload whose Pods are missing, a workload with a Pod too many, and a workload that adopts a Pod.
pub(super) async fn prepare<W: Workload>(namespace: &TestNamespace) -> Result<()> {
    for (name, replicas) in [("grow", MANY), ("shrink", 0), ("adopt", 1)] {
        let labels = fixtures::pairs(&[("app", name)]);
        // The selector of a ReplicationController has no field for labels.
        let selector = match W::KIND {
            "ReplicaSet" => json!({ "matchLabels": labels }),
            _ => json!(labels),
        };
        let template = json!({ "metadata": { "labels": labels }, "spec": fixtures::still_pod_spec() });
        let spec = json!({ "replicas": replicas, "selector": selector, "template": template });
        namespace.create(&object::<W>(name, json!({ "spec": spec }))?).await?;
    }
    namespace.create(&pod("orphan", "adopt")?).await?;
    let owner = namespace.get::<W>("shrink").await?;
    namespace.create(&owned_by(&owner, pod("owned", "shrink")?)).await?;
    Ok(())
}

pub(super) async fn are_done<W: Workload>(namespace: &TestNamespace) -> Result<bool> {
    let pods = namespace.list::<Pod>().await?;
    let is_adopted = |pod: &Pod| pod.name_any() == "orphan" && !pod.owner_references().is_empty();
    let is_owned = |pod: &Pod| pod.name_any() == "owned";
    let grown = namespace.get::<W>("grow").await?.counts().replicas;
    let is_done = grown == MANY && pods.iter().any(is_adopted) && !pods.iter().any(is_owned);
    Ok(is_done && has_repeated_event(namespace).await?)
}
