//! Order in which surplus pods are deleted.
//!
//! The rules, in order; the first rule that distinguishes two pods decides:
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
//! In 6 and 8 an unknown time is first. Times within the same power of two are ordered by UID, so that pods of about
//! the same age have a random but stable order.
//!
//! # The order is total
//!
//! Applied pairwise, these rules contradict each other: pods that became ready in the same second are compared by
//! restarts, and other pods within the same power of two by UID. Three pods can therefore form a cycle, and the result
//! of a sort with such a comparison is undefined. This module ranks each pod by the number of its peers that precede it
//! under the rules. Without a contradiction this *is* the order of the rules. Pods of a cycle stay together, after all
//! pods that precede the whole cycle. Ties are ordered by UID and name, so the result does not depend on the order of
//! the list.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::pod_view::PodView;
use super::pods::{self, PodPhase};

/// Whether rule 4 applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionCostMode {
    /// The annotation of a pod states its cost.
    Honored,
    /// All pods have the same cost.
    Ignored,
}

/// Returns the first `count` of `pods` to delete. `related` are the pods that count for the crowding of a node in rule
/// 5.
///
/// Returns all pods in their original order if `count` is not less than their number.
pub(crate) fn choose(
    pods: &[Arc<PodView>],
    related: &[Arc<PodView>],
    count: usize,
    cost_mode: DeletionCostMode,
    now: Timestamp,
) -> Vec<Arc<PodView>> {
    if count >= pods.len() {
        return pods.to_vec();
    }
    let mut ordered = ordered(pods, related, cost_mode, now);
    ordered.truncate(count);
    ordered
}

/// Returns the age of each ready victim as a whole multiple of the age of the youngest ready pod in `pods`.
///
/// Empty if the age of the youngest pod is zero.
pub(crate) fn age_ratios(pods: &[Arc<PodView>], victims: &[Arc<PodView>], now: Timestamp) -> Vec<f64> {
    let age = |pod: &Arc<PodView>| Some(now.duration_since(pods::created(&pod.metadata)?).as_millis());
    let ready = |pods: &[Arc<PodView>]| {
        pods.iter().filter(|pod| pods::is_ready(pod)).filter_map(age).collect::<Vec<_>>()
    };
    let Some(youngest) = ready(pods).into_iter().min().filter(|age| *age > 0) else { return Vec::new() };
    #[expect(clippy::cast_precision_loss, reason = "a ratio of ages is small, and a histogram wants floats")]
    ready(victims).into_iter().map(|age| (age / youngest) as f64).collect()
}

/// Returns all `pods` in the order of deletion.
fn ordered(
    pods: &[Arc<PodView>],
    related: &[Arc<PodView>],
    cost_mode: DeletionCostMode,
    now: Timestamp,
) -> Vec<Arc<PodView>> {
    let crowding = crowding(related);
    let on_node = |pod: &PodView| crowding.get(&*pod.node).copied().unwrap_or_default();
    let cost = |pod: &PodView| if cost_mode == DeletionCostMode::Honored { deletion_cost(pod) } else { 0 };
    let candidate = |pod| RankedPod::new(pod, cost(pod), on_node(pod), now);
    let mut candidates: Vec<_> = pods.iter().map(candidate).collect();
    candidates.sort_by(|a, b| a.deletion_rank.cmp(&b.deletion_rank));
    candidates.chunk_by_mut(|a, b| a.deletion_rank == b.deletion_rank).for_each(count_preceding_peers);
    candidates.into_iter().map(|candidate| Arc::clone(candidate.pod)).collect()
}

/// Returns the number of active pods of each node.
fn crowding(related: &[Arc<PodView>]) -> BTreeMap<&str, usize> {
    let mut crowding = BTreeMap::new();
    for pod in related.iter().filter(|pod| pods::is_active(pod)) {
        *crowding.entry(&*pod.node).or_default() += 1;
    }
    crowding
}

/// Orders pods that are equal under rules 1 to 6, up to the power of two of their ready time.
///
/// Pods with the same ready time are compared by rules 7 and 8, all others by UID. `before` counts for each pod the
/// peers that precede it.
fn count_preceding_peers(peers: &mut [RankedPod<'_>]) {
    peers.sort_by_key(RankedPod::identity);
    for (place, candidate) in peers.iter_mut().enumerate() {
        candidate.before = place;
    }
    peers.sort_by_key(|candidate| candidate.ready_since);
    for simultaneous in peers.chunk_by_mut(|a, b| a.ready_since == b.ready_since) {
        for (place, candidate) in simultaneous.iter_mut().enumerate() {
            candidate.before -= place;
        }
        simultaneous.sort_by(|a, b| (&a.restart_rank, a.identity()).cmp(&(&b.restart_rank, b.identity())));
        for (place, candidate) in simultaneous.iter_mut().enumerate() {
            candidate.before += place;
        }
    }
    peers.sort_by_key(|candidate| (candidate.before, candidate.identity()));
}

/// A pod and its attributes in the rules.
struct RankedPod<'a> {
    pod: &'a Arc<PodView>,
    deletion_rank: DeletionRank,
    ready_since: Option<Timestamp>,
    restart_rank: RestartRank,
    /// Number of its peers that precede it; counted by [`count_preceding_peers`].
    before: usize,
}

impl<'a> RankedPod<'a> {
    fn new(pod: &'a Arc<PodView>, cost: i32, on_node: usize, now: Timestamp) -> Self {
        let ready_since = pods::ready_since(pod);
        let (deletion_rank, restart_rank) =
            (DeletionRank::of(pod, cost, on_node, ready_since, now), RestartRank::of(pod, now));
        Self { pod, deletion_rank, ready_since, restart_rank, before: 0 }
    }

    fn identity(&self) -> (&'a str, &'a str) {
        (pods::uid(&self.pod.metadata), pods::name(&self.pod.metadata))
    }
}

/// Rules 1 to 6: the fields are in the order of the rules, and smaller values are deleted first.
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
    fn of(pod: &PodView, cost: i32, on_node: usize, ready_since: Option<Timestamp>, now: Timestamp) -> Self {
        // Completed pods are never candidates; such a pod would count as pending.
        let phase = if pods::is_terminal(pod) { PodPhase::Pending } else { pods::phase(pod) };
        Self {
            bound: !pod.node.is_empty(),
            phase,
            ready: pods::is_ready(pod),
            cost,
            on_node: Reverse(on_node),
            ready_for: LogAge::of(ready_since, now),
        }
    }
}

/// Rules 7 and 8, with the same ordering.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RestartRank {
    restarts: Reverse<i32>,
    sidecar_restarts: Reverse<i32>,
    created: LogAge,
}

impl RestartRank {
    fn of(pod: &PodView, now: Timestamp) -> Self {
        let (restarts, sidecar_restarts) = restarts(pod);
        Self {
            restarts: Reverse(restarts),
            sidecar_restarts: Reverse(sidecar_restarts),
            created: LogAge::of(pods::created(&pod.metadata), now),
        }
    }
}

/// Age on a logarithmic scale, with the unknown age first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum LogAge {
    /// The time is missing.
    Unknown,
    /// The time is in the future, because of clock differences.
    None,
    /// Binary logarithm of the elapsed nanoseconds, rounded down.
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

/// Returns the deletion cost of the pod; zero if the annotation is missing or invalid.
///
/// A plus sign, leading zeros and numbers beyond 32 bits are invalid.
fn deletion_cost(pod: &PodView) -> i32 {
    pod.deletion_cost
        .as_deref()
        .filter(|cost| is_canonical(cost))
        .and_then(|cost| cost.parse().ok())
        .unwrap_or_default()
}

fn is_canonical(number: &str) -> bool {
    number == "0" || number.starts_with(|first: char| first == '-' || ('1'..='9').contains(&first))
}

/// Returns the maximum number of restarts of an ordinary container and of a sidecar.
fn restarts(pod: &PodView) -> (i32, i32) {
    let is_sidecar = |name: &str| pod.init_containers.iter().any(|it| it.is_sidecar() && *it.name == *name);
    let most = |counts: &mut dyn Iterator<Item = i32>| counts.max().unwrap_or_default().max(0);
    let sidecars = pod.init_container_statuses.iter().filter(|status| is_sidecar(&status.name));
    (
        most(&mut pod.container_statuses.iter().map(|status| status.restart_count)),
        most(&mut sidecars.map(|status| status.restart_count)),
    )
}

#[cfg(test)]
mod tests;
