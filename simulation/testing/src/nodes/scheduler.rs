//! Binds each pod to the node with the fewest pods among the nodes that accept it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PostParams;
use serde_json::json;
use windlass_controller::{Context, Controller, Enqueuer, Outcome, ReconcileError, Setup, SetupError};
use windlass_informer::{Event, Index, Lister};
use windlass_object::{ObjectKey, Verb};

use super::NodeOptions;
use super::load::NodeLoad;
use super::placement::takes;

/// The scheduler.
#[derive(Debug)]
pub(super) struct Scheduler {
    pods: Lister<Pod>,
    nodes: Lister<Node>,
    load: Arc<NodeLoad>,
}

impl Scheduler {
    fn choice(&self, pod: &Pod) -> Option<String> {
        let nodes = self.nodes.list().into_iter().filter(|node| takes(node, pod));
        self.load.place(uid(pod), nodes.filter_map(|node| node.metadata.name.clone()))
    }
}

impl Controller for Scheduler {
    const NAME: &'static str = "node-scheduler";
    type Config = NodeOptions;

    fn setup(setup: &mut Setup, options: &NodeOptions) -> Result<Self, SetupError> {
        setup.workers(options.workers);
        setup.writer::<Pod>().subresource("binding", Verb::Create).build();
        let load = Arc::new(NodeLoad::default());
        let theirs = Arc::clone(&load);
        let pods = setup.primary::<Pod>().on_event(move |event, _| note(&theirs, event)).lister();
        let waiting = pods.index(|pod| waits(pod).then_some(true));
        // A pod without a suitable node waits until a node changes.
        let nodes = setup.watch::<Node>().on_event(move |_, queue| wake_waiting(&waiting, queue)).lister();
        Ok(Self { pods, nodes, load })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key)?.filter(|pod| waits(pod)) else { return Ok(Outcome::Done) };
        let Some(node) = self.choice(&pod) else { return Ok(Outcome::Done) };
        let Err(error) = bind(&pod, key, &node, cx).await else { return Ok(Outcome::Done) };
        self.load.remove(uid(&pod));
        match error {
            // Deleted, or bound by another client: an event follows.
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => Ok(Outcome::Done),
            error => Err(error.into()),
        }
    }
}

async fn bind(pod: &Pod, key: &ObjectKey, node: &str, cx: &Context) -> Result<(), kube::Error> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": { "name": key.name(), "namespace": key.namespace(), "uid": pod.metadata.uid },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    let params = PostParams::default();
    let bound = cx.api::<Pod>(key).create_subresource("binding", key.name(), &params, &binding).await;
    bound.map(|_: serde_json::Value| ())
}

fn wake_waiting(pods: &Index<Pod, bool>, queue: &Enqueuer) {
    queue.add_all(pods.keys(&true));
}

fn note(load: &NodeLoad, event: &Event<Arc<Pod>>) {
    let pod = event.object();
    let ended = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    match (event, node_of(pod)) {
        (Event::Deleted { .. }, _) => load.remove(uid(pod)),
        _ if matches!(ended, Some("Succeeded" | "Failed")) => load.remove(uid(pod)),
        (_, Some(node)) => load.seen(uid(pod), node),
        // A pod that is about to be bound stays counted.
        (_, None) => {}
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns whether the default scheduler must bind the pod.
fn waits(pod: &Pod) -> bool {
    let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
    let ours = scheduler.is_none_or(|name| name == "default-scheduler");
    ours && node_of(pod).is_none() && pod.metadata.deletion_timestamp.is_none()
}
