//! Plans the pods of one sync: creates on nodes without a pod, and deletes of surplus, failed and misplaced pods.
//!
//! A rolling update is planned in [`super::rollout`], in a sync without other changes of pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use windlass_events::NewEvent;

use super::backoff::Admission;
use super::node_pods::{NodePods, by_age, by_node};
use super::placement::{Fit, Placement};
use super::spec::{allows_surge, min_ready_seconds};
use crate::shared::history::REVISION_LABEL;
use crate::shared::node_view::NodeView;
use crate::shared::pod_view::PodView;
use crate::shared::pods::{self, PodPhase};

/// Maximum number of creates, and maximum number of deletes, in one sync. The events of these pods cause the next
/// syncs.
pub(super) const BURST: usize = 250;

/// The objects at the start of a sync.
#[derive(Debug)]
pub(super) struct Observed<'a> {
    pub(super) set: &'a DaemonSet,
    /// The nodes that can be decoded.
    pub(super) nodes: BTreeMap<Arc<str>, Fit>,
    /// Nodes of pods that exist but cannot be decoded. Their pods are kept.
    undecodable: BTreeSet<Arc<str>>,
    pub(super) pods: NodePods,
    /// Hash of the present revision.
    pub(super) hash: &'a str,
    pub(super) now: Timestamp,
    /// Number of failed syncs since the last successful sync.
    pub(super) attempts: u32,
}

/// Changes of pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodPlan {
    /// Nodes that receive a pod.
    pub(super) create: Vec<Arc<str>>,
    pub(super) delete: Vec<Arc<PodView>>,
    pub(super) events: Vec<NewEvent>,
    /// Time until a failed pod can be deleted.
    pub(super) check_in: Option<Duration>,
}

impl PodPlan {
    /// Returns whether the plan changes no pods.
    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty()
    }

    /// Drops changes beyond the [`BURST`].
    pub(super) fn limited(mut self) -> Self {
        self.create.truncate(BURST);
        self.delete.truncate(BURST);
        self
    }

    fn check_after(&mut self, delay: Duration) {
        self.check_in = Some(self.check_in.map_or(delay, |earlier| earlier.min(delay)));
    }
}

impl<'a> Observed<'a> {
    /// Returns the state of the DaemonSet on its nodes.
    pub(super) fn new(
        set: &'a DaemonSet,
        nodes: &[Arc<NodeView>],
        pods: &[Arc<PodView>],
        hash: &'a str,
        now: Timestamp,
    ) -> Self {
        let placement = Placement::from_set(set);
        let fit = |node: &Arc<NodeView>| (Arc::from(node.metadata.header.key.name()), placement.fit(node));
        let nodes = nodes.iter().map(fit).collect();
        Self { set, nodes, undecodable: BTreeSet::new(), pods: by_node(pods), hash, now, attempts: 0 }
    }

    /// Adds the nodes of pods that are not among the observed nodes and for which `exists` returns true.
    pub(super) fn with_undecodable(mut self, exists: impl Fn(&str) -> bool) -> Self {
        let unknown = self.pods.keys().filter(|node| !self.nodes.contains_key(*node) && exists(node));
        self.undecodable = unknown.cloned().collect();
        self
    }

    /// Sets the number of failed syncs since the last successful sync.
    pub(super) fn with_attempts(self, attempts: u32) -> Self {
        Self { attempts, ..self }
    }

    /// Replaces the pods and the time.
    pub(super) fn with_pods(self, pods: &[Arc<PodView>], now: Timestamp) -> Self {
        Self { pods: by_node(pods), now, ..self }
    }

    /// Returns whether a node exists but cannot be decoded.
    pub(super) fn is_undecodable(&self, node: &str) -> bool {
        self.undecodable.contains(node)
    }

    /// Returns the pods of a node.
    pub(super) fn pods_on(&self, node: &str) -> &[Arc<PodView>] {
        self.pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn is_available(&self, pod: &PodView) -> bool {
        pods::is_available(pod, min_ready_seconds(self.set), self.now)
    }

    fn has_hash(&self, pod: &PodView) -> bool {
        pod.metadata.labels.get(REVISION_LABEL).unwrap_or_default() == self.hash
    }
}

/// Plans creates and deletes, except for those of a rolling update. `admit` decides whether a failed pod of a node can
/// be deleted.
pub(super) fn plan(observed: &Observed<'_>, admit: impl Fn(&Arc<str>) -> Admission) -> PodPlan {
    let mut plan = PodPlan::default();
    for (node, fit) in &observed.nodes {
        plan_node(observed, node, *fit, &admit, &mut plan);
    }
    let is_absent = |node: &str| !observed.nodes.contains_key(node) && !observed.is_undecodable(node);
    for (_, pods) in observed.pods.iter().filter(|(node, _)| is_absent(node)) {
        // The scheduler cannot bind these pods, and the garbage collector ignores pods that are not bound.
        let is_lost = |pod: &&Arc<PodView>| pod.node.is_empty() && !pods::is_being_deleted(pod);
        plan.delete.extend(pods.iter().filter(is_lost).cloned());
    }
    rotate(&mut plan.create, observed.attempts);
    rotate(&mut plan.delete, observed.attempts);
    plan
}

/// Starts a list at another item after each failed sync.
///
/// A failed create stops the creates of its sync, and limits truncate the lists. Without the rotation, a request that
/// always fails would starve the items behind it.
pub(super) fn rotate<T>(items: &mut [T], attempts: u32) {
    if let Some(first) = usize::try_from(attempts).unwrap_or_default().checked_rem(items.len()) {
        items.rotate_left(first);
    }
}

fn plan_node(
    observed: &Observed<'_>,
    node: &Arc<str>,
    fit: Fit,
    admit: &impl Fn(&Arc<str>) -> Admission,
    plan: &mut PodPlan,
) {
    let pods = observed.pods_on(node);
    match fit {
        Fit::Run if pods.is_empty() => plan.create.push(Arc::clone(node)),
        Fit::Run | Fit::Keep => {
            let mut running = remove_terminated(pods, node, admit, plan);
            running.sort_by(by_age);
            if !allows_surge(observed.set) {
                plan.delete.extend(running.into_iter().skip(1));
            } else if !running.is_empty() {
                plan.delete.extend(surplus(observed, running));
            } else if fit == Fit::Run {
                // With surge, a new pod does not wait until the old pod is deleted.
                plan.create.push(Arc::clone(node));
            }
        }
        Fit::Leave => plan.delete.extend(pods.iter().filter(|pod| !pods::is_being_deleted(pod)).cloned()),
    }
}

/// Plans the deletion of terminated pods, and returns the others.
fn remove_terminated(
    pods: &[Arc<PodView>],
    node: &Arc<str>,
    admit: &impl Fn(&Arc<str>) -> Admission,
    plan: &mut PodPlan,
) -> Vec<Arc<PodView>> {
    let mut running = Vec::new();
    for pod in pods.iter().filter(|pod| !pods::is_being_deleted(pod)) {
        let (namespace, name) = (pods::namespace(&pod.metadata), pods::name(&pod.metadata));
        let event = match pods::phase(pod) {
            PodPhase::Failed => match admit(node) {
                Admission::Delete => {
                    let note = format!(
                        "Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it"
                    );
                    NewEvent::warning("FailedDaemonPod", note)
                }
                Admission::Wait(delay) => {
                    plan.check_after(delay);
                    continue;
                }
            },
            PodPhase::Succeeded => {
                let note = format!(
                    "Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it"
                );
                NewEvent::normal("SucceededDaemonPod", note)
            }
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => {
                running.push(Arc::clone(pod));
                continue;
            }
        };
        plan.events.push(event);
        plan.delete.push(Arc::clone(pod));
    }
    running
}

/// Returns the pods to delete on a node that can have two pods. The oldest pod of the present revision is kept. The
/// oldest pod of other revisions is kept while it is ready and the pod of the present revision is not available.
fn surplus(observed: &Observed<'_>, running: Vec<Arc<PodView>>) -> Vec<Arc<PodView>> {
    if running.len() == 1 {
        return Vec::new();
    }
    let (mut new, mut old, mut surplus) = (None, None, Vec::new());
    for pod in running {
        let kept = if observed.has_hash(&pod) { &mut new } else { &mut old };
        match kept {
            None => *kept = Some(pod),
            Some(_) => surplus.push(pod),
        }
    }
    if let (Some(new), Some(old)) = (new, old)
        && (!pods::is_ready(&old) || observed.is_available(&new))
    {
        surplus.push(old);
    }
    surplus
}
