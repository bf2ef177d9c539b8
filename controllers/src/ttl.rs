//! The TTL controller: sets on each node for how many seconds its kubelet can cache Secrets and ConfigMaps.
//!
//! Watches and patches nodes. The number of seconds depends on the number of nodes ([`cluster_size`]) and is the value
//! of the annotation `node.alpha.kubernetes.io/ttl`. A kubelet that watches Secrets and ConfigMaps, which is the
//! default, ignores it.
//!
//! If the number of seconds changes, all nodes are enqueued; upstream waits for the next update of each node. A value
//! that another client sets is replaced.

mod cluster_size;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Node;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use serde_json::{Value, json};
use windlass_controller::{
    Context, Controller, Descriptor, Outcome, ReconcileError, Setup, SetupError, by_self,
};
use windlass_informer::Lister;
use windlass_object::{ObjectKey, Verb};

use self::cluster_size::ClusterSize;
use crate::ControllerOptions;
use crate::shared::api_errors::is_not_found;
use crate::shared::node_view::NodeView;

/// The annotation with the number of seconds.
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// Number of nodes that are patched concurrently; fixed upstream.
const WORKERS: usize = 5;

/// The TTL controller.
#[derive(Debug)]
pub struct TtlController {
    nodes: Lister<NodeView>,
    size: SharedSize,
}

/// The size of the cluster, which the mapper of events changes and reconciles read.
#[derive(Clone, Debug, Default)]
struct SharedSize(Arc<Mutex<ClusterSize>>);

impl SharedSize {
    fn lock(&self) -> MutexGuard<'_, ClusterSize> {
        // The value is consistent after a panic, because it changes by assignments.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for TtlController {
    const NAME: &'static str = "ttl-controller";
    /// The number of seconds depends on all nodes, and on its own history: two replicas can differ.
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME)
        .with_aliases(&["ttl"])
        .with_queue_name("ttlcontroller")
        .without_events()
        .on_one_shard();
    type Config = ControllerOptions;

    fn setup(setup: &mut Setup, _: &ControllerOptions) -> Result<Self, SetupError> {
        setup.workers(WORKERS);
        setup.uses::<Node>([Verb::Patch]);
        let mut watch = setup.watch::<NodeView>();
        let (nodes, size) = (watch.informer().lister(), SharedSize::default());
        let (all, observed) = (nodes.clone(), size.clone());
        watch.enqueue(move |node| affected(node, &all, &observed));
        Ok(Self { nodes, size })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(node) = self.nodes.get(key)? else { return Ok(Outcome::Done) };
        let seconds = self.size.lock().seconds();
        let Some(patch) = patch(&node, seconds) else { return Ok(Outcome::Done) };
        let nodes = cx.api::<PartialObjectMeta<Node>>(key);
        match nodes.patch(key.name(), &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => Ok(Outcome::Done),
            Err(error) if is_not_found(&error) => Ok(Outcome::Done),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the keys of the nodes that an event of `node` affects: all nodes if the number of seconds changes.
fn affected(node: &NodeView, nodes: &Lister<NodeView>, size: &SharedSize) -> Vec<ObjectKey> {
    // The cache already contains the change of the event.
    if size.lock().observe(nodes.len()) { nodes.keys() } else { by_self(node) }
}

/// Returns the strategic merge patch of a node that has another number of seconds, or none.
fn patch(node: &NodeView, seconds: u32) -> Option<Value> {
    let current = node.ttl.as_deref().and_then(|ttl| ttl.parse::<i64>().ok());
    let differs = current != Some(i64::from(seconds));
    differs.then(|| json!({ "metadata": { "annotations": { ANNOTATION: seconds.to_string() } } }))
}
