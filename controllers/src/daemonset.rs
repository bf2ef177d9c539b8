//! The DaemonSet controller: runs one pod on each eligible node.
//!
//! Watches DaemonSets, ControllerRevisions, pods and nodes. Writes pods (creates, deletes, adopts, releases, and
//! changes the label of pods with a duplicate revision), ControllerRevisions (creates, changes number and label,
//! deletes, adopts, releases) and the status of DaemonSets.
//!
//! Node selector, node affinity and taints decide which nodes have a pod ([`crate::shared::scheduling`]). Each pod has
//! required affinity to its node, and the scheduler binds it. A sync first creates missing pods and deletes surplus,
//! failed and misplaced pods, at most 250 each. If there are no such pods, it plans the next step of a rolling update.
//!
//! The runtime starts a sync only when the caches reflect the writes of the previous sync. A change of a node enqueues
//! the DaemonSets that gain or lose a pod there.
//!
//! It does not act on incomplete data. A DaemonSet that might own an undecodable revision is not synced until the
//! revision is readable or deleted. If it might own an undecodable pod, the controller creates and deletes none of its
//! pods until that pod is readable or deleted.

mod apply;
mod backoff;
mod events;
mod node_pods;
mod placement;
mod plan;
mod refresh;
mod revisions;
mod rollout;
mod spec;
mod status;
mod sync;
mod template;
#[cfg(test)]
mod tests;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use windlass_controller::{
    Context, Controller, Descriptor, Outcome, ReconcileError, Setup, SetupError, Writer,
};
use windlass_informer::{Index, Lister, Selection};
use windlass_object::{ObjectKey, Verb};

use self::backoff::FailedPodBackoff;
use self::events::{affected_by_node, affected_by_revision, node_of_daemon_pod};
use crate::ControllerOptions;
use crate::shared::controller_index::by_controller;
use crate::shared::history::{self, Revision};
use crate::shared::node_view::NodeView;
use crate::shared::owner_events::watch_pods;
use crate::shared::pod_view::PodView;
use crate::shared::terminating_namespaces::Withheld;

/// The DaemonSet controller.
#[derive(Debug)]
pub struct DaemonSetController {
    sets: Lister<DaemonSet>,
    revisions: Lister<Revision>,
    revisions_by_controller: Index<Revision, String>,
    pods: Lister<PodView>,
    pods_by_controller: Index<PodView, String>,
    nodes: Lister<NodeView>,
    writers: Writers,
    failed_pods: FailedPodBackoff,
    withheld: Withheld,
}

#[derive(Debug)]
struct Writers {
    set: Writer<DaemonSet>,
    revision: Writer<Revision>,
    pod: Writer<Pod>,
}

impl Writers {
    fn declare(setup: &mut Setup) -> Self {
        // Uncached reads: before the first adoption, after a failed status write, and after a collision of names.
        setup.uses::<DaemonSet>([Verb::Get]);
        // References with `blockOwnerDeletion` require the permission to set finalizers on the owner.
        let set =
            setup.writer::<DaemonSet>().replace_status().subresource("finalizers", Verb::Update).build();
        let revision = history::requests::declare(setup);
        let pod = setup.writer::<Pod>().create().patch().delete().build();
        Self { set, revision, pod }
    }
}

impl Controller for DaemonSetController {
    const NAME: &'static str = "daemonset-controller";
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME)
        .with_aliases(&["daemonset"])
        .with_client_name("daemon-set-controller")
        .with_event_source(Self::NAME)
        .with_queue_name("daemonset")
        .with_namespaced_events();
    type Config = ControllerOptions;

    fn setup(setup: &mut Setup, options: &ControllerOptions) -> Result<Self, SetupError> {
        setup.workers(options.concurrent_daemonset_syncs);
        let writers = Writers::declare(setup);
        // Each change of the labels or taints of a node reads all DaemonSets.
        let sets = setup.primary::<DaemonSet>().decoded().lister();
        let owners = sets.clone();
        let revisions = setup.watch::<Revision>().on_event(move |event, queue| {
            affected_by_revision(event, &owners).into_iter().for_each(|key| queue.add(key));
        });
        let revisions = revisions.lister();
        let pods = watch_pods(setup, &sets);
        let (owners, daemon_pods) = (sets.clone(), pods.index(node_of_daemon_pod));
        // With shards, each replica needs all nodes.
        let nodes = setup.watch::<NodeView>().with_selection(Selection::default().with_every_shard());
        let nodes = nodes.on_event(move |event, queue| {
            affected_by_node(event, &owners, &daemon_pods).into_iter().for_each(|key| queue.add(key));
        });
        Ok(Self {
            sets,
            revisions_by_controller: revisions.index(by_controller),
            revisions,
            pods_by_controller: pods.index(by_controller),
            pods,
            nodes: nodes.lister(),
            writers,
            failed_pods: FailedPodBackoff::default(),
            withheld: Withheld::default(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        if let Some(set) = self.sets.get(key)? {
            return self.sync(key, &set, cx).await;
        }
        self.withheld.forget(key);
        Ok(Outcome::Done)
    }
}
