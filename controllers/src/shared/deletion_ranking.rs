//! Which pods to give up first when there are too many.
//!
//! The rules, in order; the first that tells two pods apart decides:
//!
//! 1. not bound to a node before bound;
//! 2. pending before unknown before running;
//! 3. not ready before ready;
//! 4. lower `controller.kubernetes.io/pod-deletion-cost` first, unless these are ignored;
//! 5. more active related pods on the same node first;
//! 6. both ready: ready for a shorter time first, on a logarithmic scale;
//! 7. more restarts first, of ordinary containers, then of sidecars;
//! 8. created later first, on a logarithmic scale.
//!
//! In 6 and 8 an unknown time comes first, and times that differ but fall into one power of two are told apart
//! by UID, so that pods of about the same age go in a random but stable order.
//!
//! # The order is total
//!
//! Taken literally these rules contradict themselves: pods that became ready in the same second are compared by
//! restarts, their neighbors in the same power of two by UID, and so three pods can each come before the next
//! in a circle. A sort fed with such a comparison may do anything. Here every pod is instead placed by how many
//! of its peers come before it under the rules. Where the rules are free of contradiction that *is* their order;
//! pods in a circle stay together, behind everything that comes before all of them. Ties fall to UID and name,
//! so the result does not depend on the order in which pods were listed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::pods::{self, PodPhase};

/// The annotation by which a user says how much losing a pod would hurt.
pub(crate) const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Whether rule 4 applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionCostMode {
    /// A pod costs what its annotation says.
    Honoured,
    /// All pods cost the same.
    Ignored,
}

/// The first `count` of `pods` to give up. `related` are the pods whose crowding of a node counts in rule 5.
///
/// All of them, as listed, when `count` is not less than their number.
pub(crate) fn choose(
    pods: &[Arc<Pod>],
    related: &[Arc<Pod>],
    count: usize,
    costs: DeletionCostMode,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    if count >= pods.len() {
        return pods.to_vec();
    }
    let mut ordered = ordered(pods, related, costs, now);
    ordered.truncate(count);
    ordered
}

/// For each ready victim, its age as a whole multiple of the age of the youngest ready pod among `pods`.
///
/// Empty when that youngest pod has no age yet; nothing can be divided by it.
pub(crate) fn age_ratios(pods: &[Arc<Pod>], victims: &[Arc<Pod>], now: Timestamp) -> Vec<f64> {
    let age = |pod: &Arc<Pod>| Some(now.duration_since(pods::created(&pod.metadata)?).as_millis());
    let ready =
        |pods: &[Arc<Pod>]| pods.iter().filter(|pod| pods::is_ready(pod)).filter_map(age).collect::<Vec<_>>();
    let Some(youngest) = ready(pods).into_iter().min().filter(|age| *age > 0) else { return Vec::new() };
    #[expect(clippy::cast_precision_loss, reason = "a ratio of ages is small, and a histogram wants floats")]
    ready(victims).into_iter().map(|age| (age / youngest) as f64).collect()
}

/// All of `pods`, those to give up first in front.
fn ordered(
    pods: &[Arc<Pod>],
    related: &[Arc<Pod>],
    costs: DeletionCostMode,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    let crowding = crowding(related);
    let on_node = |pod: &Pod| crowding.get(pods::node(pod)).copied().unwrap_or_default();
    let cost = |pod: &Pod| if costs == DeletionCostMode::Honoured { deletion_cost(pod) } else { 0 };
    let candidate = |pod| RankedPod::new(pod, cost(pod), on_node(pod), now);
    let mut candidates: Vec<_> = pods.iter().map(candidate).collect();
    candidates.sort_by(|a, b| a.standing.cmp(&b.standing));
    candidates.chunk_by_mut(|a, b| a.standing == b.standing).for_each(settle);
    candidates.into_iter().map(|candidate| Arc::clone(candidate.pod)).collect()
}

/// How many active pods each node holds.
fn crowding(related: &[Arc<Pod>]) -> BTreeMap<&str, usize> {
    let mut crowding = BTreeMap::new();
    for pod in related.iter().filter(|pod| pods::is_active(pod)) {
        *crowding.entry(pods::node(pod)).or_default() += 1;
    }
    crowding
}

/// Orders pods that rules 1 to 6 hold for equal up to the power of two of their ready time.
///
/// Pods ready since the very same moment are compared by rules 7 and 8, all others by identity. `before` counts,
/// for each pod, the peers that come before it under that rule.
fn settle(peers: &mut [RankedPod<'_>]) {
    peers.sort_by_key(RankedPod::identity);
    for (place, candidate) in peers.iter_mut().enumerate() {
        candidate.before = place;
    }
    peers.sort_by_key(|candidate| candidate.ready_since);
    for simultaneous in peers.chunk_by_mut(|a, b| a.ready_since == b.ready_since) {
        for (place, candidate) in simultaneous.iter_mut().enumerate() {
            candidate.before -= place;
        }
        simultaneous.sort_by(|a, b| (&a.wear, a.identity()).cmp(&(&b.wear, b.identity())));
        for (place, candidate) in simultaneous.iter_mut().enumerate() {
            candidate.before += place;
        }
    }
    peers.sort_by_key(|candidate| (candidate.before, candidate.identity()));
}

/// A pod next to all that decides about it.
struct RankedPod<'a> {
    pod: &'a Arc<Pod>,
    standing: DeletionRank,
    ready_since: Option<Timestamp>,
    wear: RestartRank,
    /// How many of its peers come before it; counted by [`settle`].
    before: usize,
}

impl<'a> RankedPod<'a> {
    fn new(pod: &'a Arc<Pod>, cost: i32, on_node: usize, now: Timestamp) -> Self {
        let ready_since = pods::ready_since(pod);
        let (standing, wear) =
            (DeletionRank::of(pod, cost, on_node, ready_since, now), RestartRank::of(pod, now));
        Self { pod, standing, ready_since, wear, before: 0 }
    }

    fn identity(&self) -> (&'a str, &'a str) {
        (pods::uid(&self.pod.metadata), pods::name(&self.pod.metadata))
    }
}

/// Rules 1 to 6: the fields are in the order of the rules, and smaller goes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DeletionRank {
    bound: bool,
    phase: PodPhase,
    ready: bool,
    cost: i32,
    on_node: Reverse<usize>,
    ready_for: LogAge,
}

impl DeletionRank {
    fn of(pod: &Pod, cost: i32, on_node: usize, ready_since: Option<Timestamp>, now: Timestamp) -> Self {
        // Pods that have ended are never candidates; were one passed in, it would run as little as a pending one.
        let phase = if pods::is_terminal(pod) { PodPhase::Pending } else { pods::phase(pod) };
        Self {
            bound: !pods::node(pod).is_empty(),
            phase,
            ready: pods::is_ready(pod),
            cost,
            on_node: Reverse(on_node),
            ready_for: LogAge::of(ready_since, now),
        }
    }
}

/// Rules 7 and 8, in the same manner.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RestartRank {
    restarts: Reverse<i32>,
    sidecar_restarts: Reverse<i32>,
    created: LogAge,
}

impl RestartRank {
    fn of(pod: &Pod, now: Timestamp) -> Self {
        let (restarts, sidecar_restarts) = restarts(pod);
        Self {
            restarts: Reverse(restarts),
            sidecar_restarts: Reverse(sidecar_restarts),
            created: LogAge::of(pods::created(&pod.metadata), now),
        }
    }
}

/// An age on a logarithmic scale, the unknown first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum LogAge {
    /// Nobody wrote down the time.
    Unknown,
    /// The time lies ahead of us: clocks differ.
    None,
    /// The binary logarithm of the nanoseconds passed, rounded down.
    Scale(u32),
}

impl LogAge {
    fn of(since: Option<Timestamp>, now: Timestamp) -> Self {
        let Some(since) = since else { return Self::Unknown };
        match u128::try_from(now.duration_since(since).as_nanos()) {
            Ok(nanoseconds) if nanoseconds > 0 => Self::Scale(nanoseconds.ilog2()),
            Ok(_) | Err(_) => Self::None,
        }
    }
}

/// The cost a user put on losing the pod; zero when there is none or it does not read as one.
///
/// A sign of plus, leading zeros and numbers beyond 32 bits do not count.
fn deletion_cost(pod: &Pod) -> i32 {
    let annotation = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(DELETION_COST));
    annotation.filter(|cost| is_canonical(cost)).and_then(|cost| cost.parse().ok()).unwrap_or_default()
}

fn is_canonical(number: &str) -> bool {
    number == "0" || number.starts_with(|first: char| first == '-' || ('1'..='9').contains(&first))
}

/// The most restarts of any ordinary container, and of any sidecar.
fn restarts(pod: &Pod) -> (i32, i32) {
    let Some(status) = &pod.status else { return (0, 0) };
    let init = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let sidecars: BTreeSet<_> = init
        .iter()
        .filter(|container| pods::is_sidecar(container))
        .map(|container| &container.name)
        .collect();
    let most = |statuses: Option<&Vec<ContainerStatus>>, counts: &dyn Fn(&ContainerStatus) -> bool| {
        let statuses = statuses.map(Vec::as_slice).unwrap_or_default();
        statuses
            .iter()
            .filter(|status| counts(status))
            .map(|status| status.restart_count)
            .max()
            .unwrap_or_default()
            .max(0)
    };
    (
        most(status.container_statuses.as_ref(), &|_| true),
        most(status.init_container_statuses.as_ref(), &|status| sidecars.contains(&status.name)),
    )
}

#[cfg(test)]
mod tests;
