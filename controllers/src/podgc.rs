//! The pod garbage collector: deletes pods that no other client deletes.
//!
//! Watches pods and nodes; reads single nodes from the server; patches the status of pods and deletes pods. A pass runs
//! every 20 s and starts no deletion after 20 s, so that it decides on recent nodes and does not delay a shard that
//! moves to another replica. The next pass reads the nodes of the orphaned pods that remain again, and continues. A
//! pass deletes, in this order:
//!
//! - terminating pods on nodes that are not ready and have the taint `node.kubernetes.io/out-of-service`;
//! - pods on nodes that do not exist: the cache lacks the node, as 40 s ago, and the server confirms it;
//! - terminating pods without a node;
//! - terminated pods beyond a threshold, evicted and oldest pods first. There can be thousands of them, and a node can
//!   return in the meantime.
//!
//! A pod that has not terminated is first marked as failed, because no kubelet reports its end. Orphaned pods also get
//! the condition DisruptionTarget. The deletion has no grace period. A pod that another client has deleted or replaced
//! is not affected, because both requests contain its UID.
//!
//! There is one key, and a reconcile is one pass. A failed deletion is counted and logged, and the next pass repeats
//! it. Undecodable pods are ignored.

mod apply;
mod plan;
mod quarantine;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PartialObjectMeta;
use windlass_controller::{
    Context, Controller, Descriptor, Outcome, ReconcileError, Setup, SetupError, Timer, Writer,
};
use windlass_informer::Lister;
use windlass_metrics::PodGcMetrics;
use windlass_object::{ObjectKey, Verb};

use self::plan::{Observed, nodes_of_orphans};
use self::quarantine::Quarantine;
use crate::ControllerOptions;
use crate::shared::api_errors::for_log;
use crate::shared::node_view::NodeView;
use crate::shared::pod_view::PodView;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(20);

/// The pod garbage collector.
#[derive(Debug)]
pub struct PodGarbageCollectorController {
    pods: Lister<PodView>,
    nodes: Lister<NodeView>,
    writer: Writer<Pod>,
    /// Number of terminated pods that are kept; `None` for all.
    threshold: Option<usize>,
    quarantine: Mutex<Quarantine>,
    metrics: PodGcMetrics,
}

impl Controller for PodGarbageCollectorController {
    const NAME: &'static str = "pod-garbage-collector-controller";
    /// The threshold applies to the pods of the whole cluster, and upstream's role has no rule for Events.
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME)
        .with_aliases(&["podgc"])
        .with_client_name("pod-garbage-collector")
        .with_queue_name("orphaned_pods_nodes")
        .without_events()
        .on_one_shard();
    type Config = ControllerOptions;

    fn setup(setup: &mut Setup, options: &ControllerOptions) -> Result<Self, SetupError> {
        setup.uses::<Node>([Verb::Get]);
        let writer = setup.writer::<Pod>().delete().subresource("status", Verb::Patch).build();
        setup.every(Timer::every(PERIOD).and_at_start(), || [ObjectKey::cluster(Self::NAME)]);
        let threshold = usize::try_from(options.terminated_pod_gc_threshold).ok().filter(|kept| *kept > 0);
        Ok(Self {
            pods: setup.watch::<PodView>().lister(),
            nodes: setup.watch::<NodeView>().lister(),
            writer,
            threshold,
            quarantine: Mutex::default(),
            metrics: setup.metrics().pod_gc(),
        })
    }

    async fn reconcile(&self, _: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let (pods, nodes) = (self.pods.list(), self.nodes.list());
        let observed = Observed::new(&pods, &nodes);
        let deleted = self.deleted_nodes(observed.missing_nodes(), cx).await;
        let removals = observed.removals(self.threshold, &deleted);
        let attempted = self.delete_all(&removals, cx).await;
        self.quarantine().set_unfinished(nodes_of_orphans(&removals[attempted..]));
        Ok(Outcome::Done)
    }
}

impl PodGarbageCollectorController {
    /// Returns the nodes that have been missing for long enough and that the server does not have either.
    async fn deleted_nodes(&self, missing: BTreeSet<Arc<str>>, cx: &Context) -> BTreeSet<Arc<str>> {
        let due = self.quarantine().observe(missing, cx.env().now());
        let mut deleted = BTreeSet::new();
        for node in due {
            let nodes = cx.api::<PartialObjectMeta<Node>>(&ObjectKey::cluster(&node));
            match nodes.get_opt(&node).await {
                Ok(None) => drop(deleted.insert(node)),
                Ok(Some(_)) => {}
                Err(error) => {
                    tracing::warn!(%node, error = for_log(&error), "node check failed; keeping its pods");
                }
            }
        }
        deleted
    }

    /// Locks the quarantine. It is consistent after a panic, because each change is one insertion or removal.
    fn quarantine(&self) -> MutexGuard<'_, Quarantine> {
        self.quarantine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
