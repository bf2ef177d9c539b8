//! Selects the pods to delete. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::shared::node_view::NodeView;
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// The taint of a node that an administrator has shut down.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The reason to delete a pod.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// The pod has terminated, and there are too many such pods.
    Terminated,
    /// The pod is terminating on a node that is out of service.
    OutOfService,
    /// The node of the pod does not exist.
    Orphaned,
    /// The pod is terminating and has no node.
    Unscheduled,
}

impl Reason {
    /// Returns the label of upstream's metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Reason::Terminated => "terminated",
            Reason::OutOfService => "out-of-service",
            Reason::Orphaned => "orphaned",
            Reason::Unscheduled => "unscheduled",
        }
    }
}

/// A pod to delete.
#[derive(Clone, Debug)]
pub(super) struct Removal<'a> {
    pub(super) pod: &'a PodView,
    pub(super) reason: Reason,
}

/// The pods and nodes of one pass.
#[derive(Debug)]
pub(super) struct Observed<'a> {
    pods: &'a [Arc<PodView>],
    nodes: BTreeMap<&'a str, &'a NodeView>,
}

impl<'a> Observed<'a> {
    /// Returns the state of a pass.
    pub(super) fn new(pods: &'a [Arc<PodView>], nodes: &'a [Arc<NodeView>]) -> Self {
        let nodes = nodes.iter().map(|node| (pods::name(&node.metadata), &**node)).collect();
        Self { pods, nodes }
    }

    /// Returns the nodes of pods that are missing.
    pub(super) fn missing_nodes(&self) -> BTreeSet<Arc<str>> {
        let bound = self.pods.iter().map(|pod| &pod.node).filter(|node| !node.is_empty());
        bound.filter(|node| !self.nodes.contains_key(&***node)).cloned().collect()
    }

    /// Returns the pods to delete, each once, with the first reason that applies; those with the reason
    /// [`Reason::Terminated`] last. `kept` is the number of terminated pods to keep, and `deleted` are the nodes that
    /// do not exist.
    pub(super) fn removals(&self, kept: Option<usize>, deleted: &BTreeSet<Arc<str>>) -> Vec<Removal<'a>> {
        let terminated = kept.map(|kept| self.terminated(kept)).unwrap_or_default();
        let classes = [
            (Reason::Terminated, terminated),
            (Reason::OutOfService, self.out_of_service()),
            (Reason::Orphaned, self.select(|pod| deleted.contains(&pod.node))),
            (Reason::Unscheduled, self.select(|pod| pods::is_being_deleted(pod) && pod.node.is_empty())),
        ];
        let mut seen = BTreeSet::new();
        let of_class = |(reason, pods): (Reason, Vec<&'a PodView>)| {
            pods.into_iter().map(move |pod| Removal { pod, reason })
        };
        let mut removals: Vec<_> = classes
            .into_iter()
            .flat_map(of_class)
            .filter(|removal| seen.insert(&removal.pod.metadata.header.key))
            .collect();
        removals.sort_by_key(|removal| removal.reason == Reason::Terminated);
        removals
    }

    /// Returns the terminated pods beyond the first `kept`.
    fn terminated(&self, kept: usize) -> Vec<&'a PodView> {
        let mut terminated = self.select(has_terminated);
        terminated.sort_by_key(|&pod| deletion_order(pod));
        terminated.truncate(terminated.len().saturating_sub(kept));
        terminated
    }

    fn out_of_service(&self) -> Vec<&'a PodView> {
        let is_out = |node: &NodeView| !node.is_ready() && node.has_taint(OUT_OF_SERVICE);
        let mut pods = self.select(|pod| {
            pods::is_being_deleted(pod) && self.nodes.get(&*pod.node).is_some_and(|node| is_out(node))
        });
        pods.sort_by_key(|&pod| deletion_order(pod));
        pods
    }

    fn select(&self, is_selected: impl Fn(&PodView) -> bool) -> Vec<&'a PodView> {
        self.pods.iter().map(|pod| &**pod).filter(|pod| is_selected(pod)).collect()
    }
}

/// Returns the nodes of the orphaned pods among those to delete.
pub(super) fn nodes_of_orphans(removals: &[Removal<'_>]) -> BTreeSet<Arc<str>> {
    let orphans = removals.iter().filter(|removal| removal.reason == Reason::Orphaned);
    orphans.map(|removal| Arc::clone(&removal.pod.node)).collect()
}

/// Returns whether the pod has terminated. As upstream, every phase counts that is none of the three others.
fn has_terminated(pod: &PodView) -> bool {
    !matches!(&*pod.phase, "Pending" | "Running" | "Unknown")
}

/// Sorts pods in the order of deletion: evicted pods first, because no controller waits for them, then by age and name.
/// As upstream, the namespace does not precede the name.
fn deletion_order(pod: &PodView) -> impl Ord {
    let is_evicted = &*pod.phase == "Failed" && &*pod.reason == "Evicted";
    let (name, namespace) = (pods::name(&pod.metadata), pods::namespace(&pod.metadata));
    (Reverse(is_evicted), pods::created(&pod.metadata), name, namespace)
}
