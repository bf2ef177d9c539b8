//! Nodes that kwok simulates.

use std::collections::BTreeSet;

use anyhow::Context;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

/// Taint that admission sets on every new node. Upstream's node lifecycle controller removes it when the node is ready;
/// without that controller, the harness does.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Component that removes the taint of a node that became ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaintRemover {
    /// The harness.
    Ours,
    /// Upstream's node lifecycle controller.
    Upstream,
}

/// Creates nodes with these names.
pub(crate) async fn create(nodes: &Api<Node>, names: &BTreeSet<String>) -> anyhow::Result<()> {
    for name in names {
        let created = nodes.create(&PostParams::default(), &node(name)?).await;
        created.with_context(|| format!("creating node {name}"))?;
    }
    Ok(())
}

/// Returns whether pods can be scheduled on all these nodes, and removes taints if that is the harness's task.
pub(crate) async fn settle(
    nodes: &Api<Node>,
    names: &BTreeSet<String>,
    untainting: TaintRemover,
) -> anyhow::Result<bool> {
    let mut settled = 0;
    for node in nodes.list(&ListParams::default()).await? {
        if names.contains(&node.name_any()) && settle_one(nodes, &node, untainting).await? {
            settled += 1;
        }
    }
    Ok(settled == names.len())
}

async fn settle_one(nodes: &Api<Node>, node: &Node, untainting: TaintRemover) -> anyhow::Result<bool> {
    match (is_ready(node), is_tainted(node), untainting) {
        (false, _, _) | (true, true, TaintRemover::Upstream) => Ok(false),
        (true, false, _) => Ok(true),
        (true, true, TaintRemover::Ours) => untaint(nodes, node).await,
    }
}

/// Removes the taint. Returns `false` if the node has changed and must be checked again.
async fn untaint(nodes: &Api<Node>, node: &Node) -> anyhow::Result<bool> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let rest: Vec<_> = taints.filter(|taint| taint.key != NOT_READY).collect();
    let patch =
        json!({ "metadata": { "resourceVersion": node.resource_version() }, "spec": { "taints": rest } });
    match nodes.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error).context("taking the taint off a node"),
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == NOT_READY)
}

/// Returns a node without capacity: kwok sets one for a million pods.
fn node(name: &str) -> anyhow::Result<Node> {
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "type": "kwok",
            },
            "annotations": { "kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0" },
        },
    }))?)
}
