//! Binds pods to nodes: the one with the fewest pods of those the pod's node selector allows.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PostParams;
use kube::{Api, Resource as _};
use serde_json::json;
use windlass_controller::{Context, Controller, Outcome, ReconcileError, Setup, SetupError, by_self};
use windlass_informer::TypedLister;
use windlass_object::{ObjectKey, Verb};
use windlass_workqueue::Queue;

use super::NodeOptions;

/// The index of pods by the node they are bound to. Pods that wait are under [`WAITING`].
const BY_NODE: &str = "pods-by-node";

/// What pods without a node are found by. No node can have this name.
const WAITING: &str = "";

/// The scheduler.
#[derive(Debug)]
pub(super) struct Scheduler {
    pods: TypedLister<Pod>,
    nodes: TypedLister<Node>,
}

impl Scheduler {
    pub(super) fn declare(setup: &mut Setup, options: &NodeOptions) -> Self {
        setup.workers(options.workers);
        setup.uses_subresource::<Pod>("binding", [Verb::Create]);
        let pods = setup.watch::<Pod>().index(BY_NODE, by_node).enqueue(by_self).lister();
        let waiting = pods.clone();
        // A pod for which there was no node waits without asking again, until a node changes.
        let nodes = setup.watch::<Node>().on_event(move |_, queue| wake_waiting(&waiting, queue)).lister();
        Self { pods, nodes }
    }

    fn choice(&self, pod: &Pod) -> Option<String> {
        let nodes = self.nodes.list().into_iter().filter(|node| takes(node, pod));
        let names = nodes.filter_map(|node| node.metadata.name.clone());
        names.min_by_key(|name| self.pods.by_index(BY_NODE, name).len())
    }
}

#[async_trait]
impl Controller for Scheduler {
    const NAME: &'static str = "node-scheduler";

    fn setup(setup: &mut Setup) -> Result<Self, SetupError> {
        Ok(Self::declare(setup, &NodeOptions::default()))
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key).filter(|pod| waits(pod)) else { return Ok(Outcome::Done) };
        let Some(node) = self.choice(&pod) else { return Ok(Outcome::Done) };
        match bind(&pod, &node, cx).await {
            // Gone, or bound by somebody else: an event tells.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Outcome::Done),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(Outcome::Done),
        }
    }
}

async fn bind(pod: &Pod, node: &str, cx: &Context) -> Result<(), kube::Error> {
    let metadata = pod.meta();
    let (name, namespace) =
        (metadata.name.as_deref().unwrap_or_default(), metadata.namespace.as_deref().unwrap_or_default());
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": { "name": name, "namespace": namespace, "uid": metadata.uid },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    let pods: Api<Pod> = Api::namespaced(cx.client().clone(), namespace);
    let _bound: serde_json::Value =
        pods.create_subresource("binding", name, &PostParams::default(), &binding).await?;
    Ok(())
}

fn wake_waiting(pods: &TypedLister<Pod>, queue: &Queue<ObjectKey>) {
    for pod in pods.by_index(BY_NODE, WAITING) {
        queue.add(ObjectKey::of(&pod.metadata));
    }
}

fn by_node(pod: &Arc<Pod>) -> Vec<String> {
    let ended = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    if matches!(ended, Some("Succeeded" | "Failed")) {
        return Vec::new();
    }
    vec![node_of(pod).unwrap_or(WAITING).to_owned()]
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether the pod wants to be bound by the default scheduler.
fn waits(pod: &Pod) -> bool {
    let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
    let ours = scheduler.is_none_or(|name| name == "default-scheduler");
    ours && node_of(pod).is_none() && pod.metadata.deletion_timestamp.is_none()
}

/// Whether the node takes pods, and has the labels this one asks for.
fn takes(node: &Node, pod: &Pod) -> bool {
    let open = !node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let wanted = pod.spec.iter().flat_map(|spec| spec.node_selector.iter().flatten());
    let has = |(label, value): (&String, &String)| {
        node.metadata.labels.as_ref().is_some_and(|labels| labels.get(label) == Some(value))
    };
    open && is_ready(node) && wanted.into_iter().all(has)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
}
