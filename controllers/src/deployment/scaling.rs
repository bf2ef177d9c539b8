//! Sizes of ReplicaSets during rollouts, and after changes of the size of the Deployment.

use std::cmp::Reverse;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use windlass_events::NewEvent;

use super::annotations::{DESIRED_REPLICAS, MAX_REPLICAS, annotation, number, set_sizes};
use super::plan::{Need, Planner, Resized};
use super::spec::{
    Strategy, available, is_active, max_surge, max_unavailable, name, replicas, size, strategy, total,
    total_size,
};

impl Planner {
    /// Changes the size of a ReplicaSet. Returns whether it changed.
    pub(super) fn resize(&mut self, index: usize, to: i32) -> bool {
        let from = size(&self.sets[index]);
        if from != to {
            self.force_size(index, to);
        }
        from != to
    }

    /// Changes the size of a ReplicaSet and its annotations about sizes, if any of them differs.
    fn force_size(&mut self, index: usize, to: i32) {
        let set = &mut self.sets[index];
        let from = size(set);
        let is_annotated = set_sizes(set, &self.deployment);
        if from == to {
            if is_annotated {
                self.push_update(index, None);
            }
            return;
        }
        set.spec.get_or_insert_default().replicas = Some(to);
        // The server raises the generation with each change of the spec.
        set.metadata.generation = set.metadata.generation.map(|it| it.saturating_add(1));
        self.push_update(index, Some(Resized { from, to }));
    }

    /// Returns whether the desired size changed since the ReplicaSets were scaled.
    pub(super) fn is_scaling_event(&self) -> bool {
        let desired = replicas(&self.deployment);
        let scaled_for = |set: &ReplicaSet| number(set, DESIRED_REPLICAS);
        self.sets.iter().filter(|set| is_active(set)).filter_map(scaled_for).any(|number| number != desired)
    }

    /// Scales without progress of the rollout: a single active ReplicaSet completely, several in proportion.
    pub(super) fn scale(&mut self) {
        let desired = replicas(&self.deployment);
        let active: Vec<_> = (0..self.sets.len()).filter(|index| is_active(&self.sets[*index])).collect();
        if active.len() < 2 {
            let newest = || self.new.or_else(|| self.sets.len().checked_sub(1));
            if let Some(index) = active.first().copied().or_else(newest) {
                self.resize(index, desired);
            }
            return;
        }
        let new = self.new.map(|index| &self.sets[index]);
        if new.is_some_and(|set| is_saturated(&self.deployment, set)) {
            for index in self.active_old_sets() {
                self.resize(index, 0);
            }
        } else if strategy(&self.deployment) == Strategy::RollingUpdate {
            self.scale_in_proportion(active);
        }
    }

    fn scale_in_proportion(&mut self, mut active: Vec<usize>) {
        let desired = replicas(&self.deployment);
        let allowed = if desired > 0 { desired.saturating_add(max_surge(&self.deployment)) } else { 0 };
        let to_add = allowed.saturating_sub(total_size(active.iter().map(|index| &self.sets[*index])));
        // Larger ones first; of equal ones the newer when scaling up, the older when scaling down. The sets are sorted
        // by creation.
        match to_add {
            1.. => active.sort_by_key(|index| (Reverse(size(&self.sets[*index])), Reverse(*index))),
            0 => {}
            _ => active.sort_by_key(|index| (Reverse(size(&self.sets[*index])), *index)),
        }
        let mut added = 0_i32;
        let mut sizes = Vec::new();
        for index in active {
            let set = &self.sets[index];
            let share = proportion(&self.deployment, set, to_add, added);
            added = added.saturating_add(share);
            sizes.push((index, size(set).saturating_add(share)));
        }
        if let Some((_, first)) = sizes.first_mut()
            && to_add != 0
        {
            *first = first.saturating_add(to_add.saturating_sub(added)).max(0);
        }
        for (index, size) in sizes {
            self.force_size(index, size);
        }
    }

    /// Returns the positions of old ReplicaSets that desire pods, by creation.
    pub(super) fn active_old_sets(&self) -> Vec<usize> {
        self.old_indices().into_iter().filter(|index| is_active(&self.sets[*index])).collect()
    }

    /// Returns the size that the new ReplicaSet can have now.
    pub(super) fn size_of_new_set(&self, present: i32) -> i32 {
        let desired = replicas(&self.deployment);
        if strategy(&self.deployment) == Strategy::Recreate {
            return desired;
        }
        let most = desired.saturating_add(max_surge(&self.deployment));
        let total = total_size(&self.sets);
        if total >= most {
            return present;
        }
        present.saturating_add((most - total).min(desired.saturating_sub(present)))
    }

    /// Gives the new ReplicaSet all pods.
    pub(super) fn fill_new_set(&mut self) {
        if let Some(index) = self.new {
            self.resize(index, replicas(&self.deployment));
        }
    }

    /// Scales the new ReplicaSet as far as the surge permits. Returns whether its size changed.
    pub(super) fn grow_new_set(&mut self) -> bool {
        let Some(index) = self.new else { return false };
        let (present, desired) = (size(&self.sets[index]), replicas(&self.deployment));
        let to = if present > desired { desired } else { self.size_of_new_set(present) };
        present != desired && self.resize(index, to)
    }

    /// Scales old ReplicaSets down as far as availability permits, unhealthy pods first. Returns whether a size
    /// changed.
    pub(super) fn shrink_old_sets(&mut self) -> bool {
        let old = self.active_old_sets();
        let Some(new) = self.new.map(|index| &self.sets[index]) else { return false };
        let in_old = total_size(old.iter().map(|index| &self.sets[*index]));
        if in_old == 0 {
            return false;
        }
        let min_available = replicas(&self.deployment).saturating_sub(max_unavailable(&self.deployment));
        let unavailable_new = size(new).saturating_sub(available(new));
        let most = total_size(&self.sets).saturating_sub(min_available).saturating_sub(unavailable_new);
        if most <= 0 {
            return false;
        }
        self.need = Need::Optional;
        let unhealthy = self.remove_unhealthy(&old, most);
        let healthy = unhealthy.map(|_| self.remove_healthy(&old, min_available));
        self.need = Need::Required;
        unhealthy.zip(healthy).is_some_and(|(unhealthy, healthy)| unhealthy > 0 || healthy > 0)
    }

    /// Removes pods that are not available. `None` if a ReplicaSet reports more available pods than it has: its status
    /// is older than its size.
    pub(super) fn remove_unhealthy(&mut self, old: &[usize], most: i32) -> Option<i32> {
        let mut removed = 0_i32;
        for index in old {
            let (size, available) = (size(&self.sets[*index]), available(&self.sets[*index]));
            if removed >= most {
                break;
            }
            if size == 0 || size == available {
                continue;
            }
            let count = (most - removed).min(size.saturating_sub(available));
            if count < 0 {
                return None;
            }
            self.resize(*index, size - count);
            removed += count;
        }
        Some(removed)
    }

    /// Removes pods in the order of creation, as far as enough pods stay available. Returns their number.
    pub(super) fn remove_healthy(&mut self, old: &[usize], min_available: i32) -> i32 {
        let sets = old.iter().copied().chain(self.new).map(|index| &self.sets[index]);
        let most = total(sets, |status| status.available_replicas).saturating_sub(min_available);
        let mut removed = 0_i32;
        for index in old {
            if removed >= most {
                break;
            }
            let size = size(&self.sets[*index]);
            if size > 0 {
                let count = size.min(most - removed);
                self.resize(*index, size - count);
                removed += count;
            }
        }
        removed
    }
}

/// Returns whether the new ReplicaSet has all pods, was scaled for this size, and all its pods are available.
pub(super) fn is_saturated(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let desired = replicas(deployment);
    let scaled_for = annotation(&set.metadata, DESIRED_REPLICAS).and_then(|text| text.parse::<i32>().ok());
    size(set) == desired && scaled_for == Some(desired) && available(set) == desired
}

/// Returns the share of a ReplicaSet in `to_add` pods, of which `added` are assigned to others.
pub(super) fn proportion(deployment: &Deployment, set: &ReplicaSet, to_add: i32, added: i32) -> i32 {
    if size(set) == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let (fraction, allowed) = (fraction(deployment, set), to_add.saturating_sub(added));
    if to_add > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
}

/// Returns the change of a ReplicaSet that keeps its part in the whole.
fn fraction(deployment: &Deployment, set: &ReplicaSet) -> i32 {
    let (desired, present) = (replicas(deployment), size(set));
    if desired == 0 {
        return -present;
    }
    let most = i64::from(desired.saturating_add(max_surge(deployment)));
    let before = number(set, MAX_REPLICAS).filter(|number| *number != 0);
    let before = before.or_else(|| deployment.status.as_ref()?.replicas).unwrap_or_default();
    if before == 0 {
        return 0;
    }
    // Rounded half away from zero. Both factors are positive, so twice the product decides exactly.
    let (product, divisor) = (i64::from(present) * most, i64::from(before));
    let rounded = (2 * product + divisor).div_euclid(2 * divisor);
    i32::try_from(rounded).unwrap_or(i32::MAX).saturating_sub(present)
}

/// Returns the event of a changed size.
pub(super) fn resized(set: &ReplicaSet, Resized { from, to }: Resized) -> NewEvent {
    let direction = if from < to { "up" } else { "down" };
    let note = format!("Scaled {direction} replica set {} from {from} to {to}", name(set));
    NewEvent::normal("ScalingReplicaSet", note)
}
