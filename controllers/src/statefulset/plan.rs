//! Computes the requests of one sync from the observed pods and claims.
//!
//! With ordered management, the plan stops at the first pod that is not available. With parallel management, it
//! contains the work for all pods, but at most 500 creations. A failed request stops the sync, so the plan does not
//! depend on results. Its size depends on the existing pods, not on `spec.replicas`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use windlass_object::HasMetadata as _;

use super::claims::{ClaimOwners, ClaimUser, claims};
use super::identity::{Versions, identity_matches, new_pod, ordinal, pod_name, revision, storage_matches};
use super::spec::{
    PodManagement, Retention, UpdateStrategy, is_in_range, management, min_ready_seconds, replicas,
    retention_policy, start, strategy,
};
use super::status::{calculate, is_running_and_ready};
use super::tasks::{CachedClaim, ClaimNeed, ClaimWork, Correction, OwnerCheck, Plan, PodWork, Task};
use crate::shared::pod_view::PodView;
use crate::shared::pods::{self, PodPhase};
use crate::shared::replica_plan::BURST;

/// The state at the start of a sync.
pub(super) struct Observed<'a> {
    pub(super) set: &'a StatefulSet,
    pub(super) versions: &'a Versions,
    pub(super) collisions: i32,
    /// All pods of the StatefulSet.
    pub(super) pods: &'a [Arc<PodView>],
    /// Returns the claim with this name.
    pub(super) claim: &'a dyn Fn(&str) -> CachedClaim,
    pub(super) now: Timestamp,
}

/// Maximum number of pods that one sync creates; their events cause the next sync. As for ReplicaSets.
const MAX_CREATIONS: usize = BURST;

/// The first unavailable pod: a desired pod, or the condemned pod with this index.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstUnavailable {
    None,
    Replica,
    Condemned(usize),
}

/// Whether the sync continues after a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Continue,
    Stop,
}

/// The work of several pods.
struct Group {
    work: Vec<PodWork>,
    flow: Flow,
}

/// Returns the plan of one sync.
pub(super) fn plan(observed: &Observed<'_>) -> Plan {
    let Observed { set, versions, collisions, pods, now, .. } = *observed;
    let mut condemned = Vec::new();
    let mut present = BTreeMap::new();
    for pod in pods {
        let Some(ordinal) = ordinal(pods::name(&pod.metadata)) else { continue };
        match is_in_range(set, ordinal) {
            true => drop(present.insert(ordinal, Arc::clone(pod))),
            false => condemned.push((ordinal, Arc::clone(pod))),
        }
    }
    // The sort is stable: pods with the same ordinal keep their order.
    condemned.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
    let counted = present.values().chain(condemned.iter().map(|(_, pod)| pod));
    let is_deleted = set.metadata.deletion_timestamp.is_some();
    let status = match is_deleted {
        true => calculate(set, versions, collisions, pods, now),
        false => calculate(set, versions, collisions, counted, now),
    };
    let mut planner = Planner {
        observed,
        present,
        condemned,
        plan: Plan { groups: Vec::new(), management: management(set), replaced: None, status },
    };
    if !is_deleted {
        planner.process();
    }
    planner.plan
}

struct Planner<'a> {
    observed: &'a Observed<'a>,
    /// The existing desired pods by ordinal.
    present: BTreeMap<i32, Arc<PodView>>,
    /// The other pods, highest ordinal first.
    condemned: Vec<(i32, Arc<PodView>)>,
    plan: Plan,
}

impl Planner<'_> {
    fn process(&mut self) {
        if self.process_replicas() == Flow::Continue
            && self.correct_owners_of_condemned() == Flow::Continue
            && self.delete_condemned() == Flow::Continue
        {
            self.plan.replaced = self.outdated();
        }
    }

    fn is_ordered(&self) -> bool {
        self.plan.management == PodManagement::Ordered
    }

    fn is_available(&self, pod: &PodView) -> bool {
        pods::is_available(pod, min_ready_seconds(self.observed.set), self.observed.now)
    }

    /// Returns whether a pod is not available or is being deleted.
    fn is_unavailable(&self, pod: &PodView) -> bool {
        !self.is_available(pod) || pods::is_being_deleted(pod)
    }

    /// Adds a group.
    fn add(&mut self, group: Group) -> Flow {
        if group.work.iter().any(|tasks| !tasks.is_empty()) {
            self.plan.groups.push(group.work);
        }
        group.flow
    }

    /// Returns the work of a group. With ordered management, the group ends at the first pod with `Flow::Stop`.
    ///
    /// Pods without work are included, because they count in the batches of parallel management.
    fn group(&self, work: impl Iterator<Item = (PodWork, Flow)>) -> Group {
        let mut group = Group { work: Vec::new(), flow: Flow::Continue };
        for (tasks, flow) in work {
            group.work.push(tasks);
            if flow == Flow::Stop && self.is_ordered() {
                group.flow = Flow::Stop;
                break;
            }
        }
        group
    }

    /// Returns the ordinals of the desired pods.
    fn ordinals(&self) -> impl DoubleEndedIterator<Item = i32> + use<> {
        let first = start(self.observed.set);
        first..=first.saturating_add(replicas(self.observed.set).saturating_sub(1))
    }

    fn process_replicas(&mut self) -> Flow {
        let work = self.ordinals().map(|ordinal| match self.present.get(&ordinal) {
            None => self.create(ordinal),
            Some(pod) => self.maintain(ordinal, pod),
        });
        let mut creations = 0;
        let group = self.group(work.take_while(|(tasks, _)| {
            creations += usize::from(matches!(tasks[..], [Task::Create { .. }]));
            creations <= MAX_CREATIONS
        }));
        self.add(group)
    }

    fn create(&self, ordinal: i32) -> (PodWork, Flow) {
        let Observed { set, versions, .. } = *self.observed;
        let user = ClaimUser { name: pod_name(set, ordinal), uid: String::new(), ordinal };
        let owners = ClaimOwners { set, pod: &user };
        let waits_for_claim = retention_policy(set).when_scaled != Retention::Retain
            && claims(set, ordinal).iter().any(|claim| match self.cached(claim) {
                CachedClaim::Present(claim) => owners.is_pod_stale(claim.metadata()),
                CachedClaim::Missing | CachedClaim::Undecodable(_) => false,
            });
        // The garbage collector deletes such a claim, because its pod was deleted.
        if waits_for_claim {
            return (Vec::new(), Flow::Stop);
        }
        let pod = Box::new(new_pod(set, versions, ordinal));
        (vec![Task::Create { pod, claims: self.claim_work(&user) }], Flow::Stop)
    }

    fn maintain(&self, ordinal: i32, pod: &Arc<PodView>) -> (PodWork, Flow) {
        if pods::is_terminal(pod) {
            // The phase of an evicted pod depends on the exit codes of its containers, so a succeeded pod is replaced
            // too.
            let deletion = (!pods::is_being_deleted(pod)).then(|| Task::Delete(Arc::clone(pod)));
            return (deletion.into_iter().collect(), Flow::Stop);
        }
        let user = self.user(ordinal, pod);
        let mut tasks = Vec::new();
        let is_pending = pods::phase(pod) == PodPhase::Pending;
        if is_pending {
            let claims = self.claim_work(&user);
            if claims != ClaimWork::default() {
                tasks.push(Task::ProvideClaims { user: user.clone(), claims });
            }
        }
        let is_waiting = pods::is_being_deleted(pod) || !is_running_and_ready(pod) || !self.is_available(pod);
        if self.is_ordered() && is_waiting {
            return (tasks, Flow::Stop);
        }
        tasks.extend(self.correction(user, pod, is_pending).map(Task::Correct));
        (tasks, Flow::Continue)
    }

    /// Returns the correction of a pod; `None` if it is correct. The claims of a pending pod are already provided.
    fn correction(&self, user: ClaimUser, pod: &PodView, is_pending: bool) -> Option<Correction> {
        let set = self.observed.set;
        let (identity, storage) = (!identity_matches(set, pod), !storage_matches(set, pod));
        let mut claims = if is_pending { ClaimWork::default() } else { self.claim_work(&user) };
        if !storage {
            claims.needs.clear();
        }
        let is_outdated = |owner: &OwnerCheck| matches!(owner, OwnerCheck::Known { must_update: true, .. });
        let has_outdated_owners = claims.owners.iter().any(is_outdated);
        if !has_outdated_owners {
            claims.owners.clear();
        }
        (identity || storage || has_outdated_owners).then_some(Correction { user, identity, storage, claims })
    }

    fn correct_owners_of_condemned(&mut self) -> Flow {
        let work = self.condemned.iter().map(|(ordinal, pod)| {
            let user = self.user(*ordinal, pod);
            let owners = self.claim_work(&user).owners;
            let must_update = |owner: &OwnerCheck| match owner {
                OwnerCheck::Known { must_update, .. } => *must_update,
                OwnerCheck::Undecodable { .. } => true,
            };
            let tasks = if owners.iter().any(must_update) {
                vec![Task::CorrectOwners { user, owners }]
            } else {
                Vec::new()
            };
            (tasks, Flow::Continue)
        });
        let group = self.group(work);
        self.add(group)
    }

    fn delete_condemned(&mut self) -> Flow {
        let first = self.first_unavailable();
        let work = self.condemned.iter().enumerate().map(|(index, (_, pod))| {
            let is_healthy = is_running_and_ready(pod) && self.is_available(pod);
            let waits = self.is_ordered() && !is_healthy && first != FirstUnavailable::Condemned(index);
            if pods::is_being_deleted(pod) || waits {
                return (Vec::new(), Flow::Stop);
            }
            (vec![Task::Delete(Arc::clone(pod))], Flow::Stop)
        });
        let group = self.group(work);
        self.add(group)
    }

    fn first_unavailable(&self) -> FirstUnavailable {
        let is_any_missing = self.ordinals().any(|ordinal| !self.present.contains_key(&ordinal));
        if is_any_missing || self.present.values().any(|pod| self.is_unavailable(pod)) {
            return FirstUnavailable::Replica;
        }
        let condemned = self.condemned.iter().rposition(|(_, pod)| self.is_unavailable(pod));
        condemned.map_or(FirstUnavailable::None, FirstUnavailable::Condemned)
    }

    /// Returns the pod with the highest ordinal that has an old revision, if all pods with higher ordinals are
    /// available.
    fn outdated(&self) -> Option<Arc<PodView>> {
        let partition = match strategy(self.observed.set) {
            UpdateStrategy::OnDelete => return None,
            UpdateStrategy::RollingUpdate { partition } | UpdateStrategy::Unknown { partition } => partition,
        };
        let first = start(self.observed.set).saturating_add(partition.unwrap_or_default());
        for ordinal in self.ordinals().rev().take_while(|ordinal| *ordinal >= first) {
            let pod = self.present.get(&ordinal)?;
            let is_outdated = revision(pod) != self.observed.versions.update.name;
            if is_outdated && !pods::is_being_deleted(pod) {
                return Some(Arc::clone(pod));
            }
            if self.is_unavailable(pod) {
                return None;
            }
        }
        None
    }

    /// Returns the pod as the user of its claims. A desired pod has the name of its ordinal after its correction.
    fn user(&self, ordinal: i32, pod: &PodView) -> ClaimUser {
        let name = match is_in_range(self.observed.set, ordinal) {
            true => pod_name(self.observed.set, ordinal),
            false => pods::name(&pod.metadata).to_owned(),
        };
        ClaimUser { name, uid: pods::uid(&pod.metadata).to_owned(), ordinal }
    }

    fn cached(&self, claim: &PersistentVolumeClaim) -> CachedClaim {
        (self.observed.claim)(pods::name(&claim.metadata))
    }

    fn claim_work(&self, user: &ClaimUser) -> ClaimWork {
        let owners = ClaimOwners { set: self.observed.set, pod: user };
        let mut work = ClaimWork::default();
        for claim in claims(self.observed.set, user.ordinal) {
            let name = pods::name(&claim.metadata).to_owned();
            match self.cached(&claim) {
                CachedClaim::Missing => work.needs.push(ClaimNeed::Create(Box::new(claim))),
                CachedClaim::Undecodable(reason) => {
                    work.needs.push(ClaimNeed::Undecodable { claim: name.clone(), reason: reason.clone() });
                    work.owners.push(OwnerCheck::Undecodable { claim: name, reason });
                }
                CachedClaim::Present(claim) => {
                    let metadata = claim.metadata();
                    if metadata.deletion_timestamp().is_some() {
                        work.needs.push(ClaimNeed::Terminating(name));
                    }
                    let has_conflict = owners.has_conflict(metadata);
                    let must_update = !owners.are_current(metadata);
                    if has_conflict || must_update {
                        work.owners.push(OwnerCheck::Known { claim, has_conflict, must_update });
                    }
                }
            }
        }
        work
    }
}
