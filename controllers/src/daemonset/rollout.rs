//! Plans the next step of a rolling update.
//!
//! Without surge, the plan deletes old pods within the limit of unavailable nodes. The next sync creates new pods on
//! these nodes. With surge, the plan creates new pods next to old pods. It deletes an old pod when its replacement is
//! available.

use std::sync::Arc;

use super::placement::Fit;
use super::plan::{Observed, PodPlan, rotate};
use super::spec::{LimitError, max_surge, max_unavailable, template_generation};
use super::template::is_updated;
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// A rolling update that cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RolloutError {
    /// A limit is malformed.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A pod to replace is on a node that does not exist.
    #[error("couldn't get node for nodeName {0:?}: node {0:?} not found")]
    NoNode(Arc<str>),
}

/// The limits of a rolling update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) surge: usize,
    pub(super) unavailable: usize,
    /// Number of nodes that must have a pod.
    pub(super) desired: usize,
}

/// The pods of a node that are not being deleted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NodeState<'a> {
    Empty,
    New(&'a Arc<PodView>),
    Old(&'a Arc<PodView>),
    Both {
        new: &'a Arc<PodView>,
        old: &'a Arc<PodView>,
    },
    /// More than one old or new pod. The next sync deletes the surplus.
    Surplus,
}

/// Returns the limits as numbers.
///
/// # Errors
/// If a limit is malformed.
pub(super) fn limits(observed: &Observed<'_>) -> Result<Limits, LimitError> {
    let desired = observed.nodes.values().filter(|fit| **fit == Fit::Run).count();
    let total = i32::try_from(desired).unwrap_or(i32::MAX);
    let number = |limit: i32| usize::try_from(limit).unwrap_or_default();
    let unavailable = number(max_unavailable(observed.set, total)?);
    let surge = number(max_surge(observed.set, total)?);
    // If both limits were 0, the update could not start.
    let is_stuck = desired > 0 && unavailable == 0 && surge == 0;
    Ok(Limits { surge, unavailable: if is_stuck { 1 } else { unavailable }, desired })
}

/// Plans the next step.
///
/// # Errors
/// [`RolloutError`].
pub(super) fn roll_out(observed: &Observed<'_>) -> Result<PodPlan, RolloutError> {
    let limits = limits(observed)?;
    if limits.surge == 0 { Ok(replace(observed, limits)) } else { surge(observed, limits) }
}

/// Returns the nodes that have pods or must have one, with their pods.
fn nodes<'a>(observed: &'a Observed<'_>) -> impl Iterator<Item = (&'a Arc<str>, NodeState<'a>)> {
    let with_pods = observed.pods.keys();
    let without_pods = observed
        .nodes
        .iter()
        .filter(|(node, fit)| **fit == Fit::Run && !observed.pods.contains_key(*node))
        .map(|(node, _)| node);
    with_pods.chain(without_pods).map(|node| (node, state(observed, observed.pods_on(node))))
}

fn state<'a>(observed: &Observed<'_>, pods: &'a [Arc<PodView>]) -> NodeState<'a> {
    let generation = template_generation(observed.set);
    let remaining = pods.iter().filter(|pod| !pods::is_being_deleted(pod));
    let (new, old): (Vec<_>, Vec<_>) = remaining.partition(|pod| is_updated(pod, observed.hash, generation));
    match (new.as_slice(), old.as_slice()) {
        ([], []) => NodeState::Empty,
        ([new], []) => NodeState::New(new),
        ([], [old]) => NodeState::Old(old),
        ([new], [old]) => NodeState::Both { new, old },
        _ => NodeState::Surplus,
    }
}

/// Plans the deletion of old pods: all unavailable pods, and available pods within the limit.
fn replace(observed: &Observed<'_>, limits: Limits) -> PodPlan {
    let (mut unavailable, mut delete, mut candidates) = (0, Vec::new(), Vec::new());
    for (node, state) in nodes(observed) {
        match state {
            NodeState::Empty | NodeState::Both { .. } | NodeState::Surplus => unavailable += 1,
            NodeState::New(pod) => unavailable += usize::from(!observed.is_available(pod)),
            NodeState::Old(pod) if observed.is_undecodable(node) => {
                unavailable += usize::from(!observed.is_available(pod));
            }
            NodeState::Old(pod) if observed.is_available(pod) => candidates.push(Arc::clone(pod)),
            NodeState::Old(pod) => {
                unavailable += 1;
                delete.push(Arc::clone(pod));
            }
        }
    }
    rotate(&mut delete, observed.attempts);
    rotate(&mut candidates, observed.attempts);
    candidates.truncate(limits.unavailable.saturating_sub(unavailable));
    delete.append(&mut candidates);
    PodPlan { delete, ..PodPlan::default() }
}

/// Plans new pods next to old pods: for all unavailable pods, and for available pods within the limit.
fn surge(observed: &Observed<'_>, limits: Limits) -> Result<PodPlan, RolloutError> {
    let (mut surging, mut available) = (0, 0);
    let (mut plan, mut candidates, mut misplaced) = (PodPlan::default(), Vec::new(), Vec::new());
    for (node, state) in nodes(observed) {
        let is_surging = is_surging(observed, state);
        surging += usize::from(is_surging);
        // The pods of an undecodable node are kept, and do not count as replacements for pods of other nodes.
        if observed.is_undecodable(node) {
            continue;
        }
        match state {
            NodeState::Surplus | NodeState::Empty => {}
            NodeState::New(pod) => available += usize::from(observed.is_available(pod)),
            NodeState::Both { old, .. } => {
                available += usize::from(observed.is_available(old));
                if !is_surging {
                    plan.delete.push(Arc::clone(old));
                }
            }
            NodeState::Old(pod) => {
                let is_available = observed.is_available(pod);
                available += usize::from(is_available);
                match (is_available, fit(observed, node)?) {
                    (false, Fit::Run) => plan.create.push(Arc::clone(node)),
                    (false, Fit::Keep | Fit::Leave) => plan.delete.push(Arc::clone(pod)),
                    (true, Fit::Run) => candidates.push(Arc::clone(node)),
                    (true, Fit::Keep | Fit::Leave) => misplaced.push(Arc::clone(pod)),
                }
            }
        }
    }
    // An available pod on a node that receives no new pod is deleted only if another node has a replacement.
    rotate(&mut plan.delete, observed.attempts);
    rotate(&mut misplaced, observed.attempts);
    misplaced.truncate(available.saturating_sub(limits.desired));
    plan.delete.append(&mut misplaced);
    plan.create = choose(plan.create, candidates, limits.surge.saturating_sub(surging), observed.attempts);
    Ok(plan)
}

/// Returns whether a node uses the surge: its new pod is not available, or it has surplus pods.
fn is_surging(observed: &Observed<'_>, state: NodeState<'_>) -> bool {
    match state {
        NodeState::Surplus => true,
        NodeState::Both { new, .. } => !observed.is_available(new),
        NodeState::Empty | NodeState::New(_) | NodeState::Old(_) => false,
    }
}

/// Returns the nodes that receive a pod: all `urgent` nodes, and at most `room` of the `candidates`.
///
/// After each failed sync, the order starts at another node, because the first failed create stops the creates of a
/// sync.
fn choose(
    urgent: Vec<Arc<str>>,
    mut candidates: Vec<Arc<str>>,
    mut room: usize,
    attempts: u32,
) -> Vec<Arc<str>> {
    if room == 0 {
        candidates.clear();
    }
    let optional = candidates.into_iter().map(|node| (node, true));
    let mut nodes: Vec<_> = urgent.into_iter().map(|node| (node, false)).chain(optional).collect();
    rotate(&mut nodes, attempts);
    nodes.retain(|(_, is_optional)| {
        let is_chosen = !is_optional || room > 0;
        room = room.saturating_sub(usize::from(*is_optional));
        is_chosen
    });
    nodes.into_iter().map(|(node, _)| node).collect()
}

fn fit(observed: &Observed<'_>, node: &Arc<str>) -> Result<Fit, RolloutError> {
    observed.nodes.get(node).copied().ok_or_else(|| RolloutError::NoNode(Arc::clone(node)))
}
