//! Computes the status of a Deployment from its ReplicaSets.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};

use super::conditions::{
    self, AVAILABLE, PROGRESSING, REPLICA_FAILURE, Reason, condition, from_set, has_reason,
};
use super::spec::{counted, max_unavailable, name, progress_deadline, replicas, total, total_size};
use crate::shared::non_zero;

/// Requeue time if a deadline expires within a second: upstream requeues immediately.
const MIN_CHECK: Duration = Duration::from_millis(1);

/// The ReplicaSets of a Deployment.
#[derive(Clone, Copy)]
pub(super) struct Sets<'a> {
    /// The ReplicaSet of the present template.
    pub(super) new: Option<&'a ReplicaSet>,
    /// All others.
    pub(super) old: &'a [&'a ReplicaSet],
}

impl<'a> Sets<'a> {
    fn all(self) -> impl Iterator<Item = &'a ReplicaSet> {
        self.old.iter().copied().chain(self.new)
    }
}

/// Whether the status contains the number of terminating pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminatingMode {
    Reported,
    Omitted,
}

/// Returns the status without changes of the progress conditions.
pub(super) fn calculate(
    deployment: &Deployment,
    sets: Sets<'_>,
    mode: TerminatingMode,
    now: Timestamp,
) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let available = total(sets.all(), |status| status.available_replicas);
    let replicas_of = |set: &ReplicaSet| counted(set, |status| Some(status.replicas));
    let mut status = DeploymentStatus {
        observed_generation: non_zero(deployment.metadata.generation.unwrap_or_default()),
        replicas: non_zero(total(sets.all(), |status| Some(status.replicas))),
        updated_replicas: non_zero(sets.new.map(replicas_of).unwrap_or_default()),
        ready_replicas: non_zero(total(sets.all(), |status| status.ready_replicas)),
        available_replicas: non_zero(available),
        unavailable_replicas: non_zero(total_size(sets.all()).saturating_sub(available).max(0)),
        collision_count: old.collision_count,
        terminating_replicas: match mode {
            TerminatingMode::Reported => terminating(sets),
            TerminatingMode::Omitted => None,
        },
        conditions: old.conditions,
    };
    let enough = available >= replicas(deployment).saturating_sub(max_unavailable(deployment));
    let condition = if enough {
        let message = "Deployment has minimum availability.";
        condition(AVAILABLE, "True", Reason::MinimumAvailable, message, now)
    } else {
        let message = "Deployment does not have minimum availability.";
        condition(AVAILABLE, "False", Reason::MinimumUnavailable, message, now)
    };
    conditions::set(&mut status, condition);
    status
}

/// Returns the number of terminating pods; `None` if a ReplicaSet that its controller has processed does not report it.
fn terminating(sets: Sets<'_>) -> Option<i32> {
    sets.all().try_fold(0_i32, |sum, set| {
        let reported = set.status.as_ref().and_then(|status| status.terminating_replicas);
        let observed = set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
        match reported {
            Some(count) => Some(sum.saturating_add(count)),
            None if observed == 0 => Some(sum),
            None => None,
        }
    })
}

/// Returns the status during a rollout, with the conditions about its progress.
pub(super) fn calculate_rollout(
    deployment: &Deployment,
    sets: Sets<'_>,
    mode: TerminatingMode,
    now: Timestamp,
) -> DeploymentStatus {
    let mut status = calculate(deployment, sets, mode, now);
    let old = deployment.status.clone().unwrap_or_default();
    let current = conditions::get(&old, PROGRESSING);
    // A rollout that has completed does not progress again when its pods change.
    let is_completed =
        status.replicas == status.updated_replicas && has_reason(current, Reason::NewSetAvailable);
    if progress_deadline(deployment).is_none() {
        conditions::remove(&mut status, PROGRESSING);
    } else if !is_completed {
        set_progress(deployment, &old, sets.new, &mut status, now);
    }
    match replica_failure(sets) {
        Some(failure) => conditions::set(&mut status, failure),
        None => conditions::remove(&mut status, REPLICA_FAILURE),
    }
    status
}

fn set_progress(
    deployment: &Deployment,
    old: &DeploymentStatus,
    new_set: Option<&ReplicaSet>,
    status: &mut DeploymentStatus,
    now: Timestamp,
) {
    let subject = match new_set {
        Some(set) => format!("ReplicaSet {:?}", name(set)),
        None => format!("Deployment {:?}", deployment.metadata.name.as_deref().unwrap_or_default()),
    };
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        conditions::set(status, condition(PROGRESSING, "True", Reason::NewSetAvailable, message, now));
    } else if is_progressing(old, status) {
        let message = format!("{subject} is progressing.");
        let mut progress = condition(PROGRESSING, "True", Reason::SetUpdated, message, now);
        if let Some(current) = conditions::get(old, PROGRESSING) {
            if current.status == "True" {
                progress.last_transition_time.clone_from(&current.last_transition_time);
            }
            // Each progress changes the update time, even if the reason stays.
            conditions::remove(status, PROGRESSING);
        }
        conditions::set(status, progress);
    } else if has_timed_out(deployment, status, now) {
        let message = format!("{subject} has timed out progressing.");
        conditions::set(status, condition(PROGRESSING, "False", Reason::DeadlineExceeded, message, now));
    }
}

/// Returns whether all desired pods are updated and available, and no other pods exist.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let desired = replicas(deployment);
    let reached = |count: Option<i32>| count.unwrap_or_default() == desired;
    reached(status.updated_replicas)
        && reached(status.replicas)
        && reached(status.available_replicas)
        && status.observed_generation.unwrap_or_default()
            >= deployment.metadata.generation.unwrap_or_default()
}

/// Returns whether more pods are updated, ready or available, or fewer old pods exist.
pub(super) fn is_progressing(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| count.unwrap_or_default();
    let old_pods =
        |status: &DeploymentStatus| count(status.replicas).saturating_sub(count(status.updated_replicas));
    count(new.updated_replicas) > count(old.updated_replicas)
        || old_pods(new) < old_pods(old)
        || count(new.ready_replicas) > count(old.ready_replicas)
        || count(new.available_replicas) > count(old.available_replicas)
}

/// Returns whether the last progress is older than the deadline.
pub(super) fn has_timed_out(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    let progressing = conditions::get(status, PROGRESSING);
    if progressing.is_none() || has_reason(progressing, Reason::NewSetAvailable) {
        return false;
    }
    if has_reason(progressing, Reason::DeadlineExceeded) {
        return true;
    }
    remaining(deployment, status, now).is_some_and(|left| left.is_negative())
}

/// Returns the time until the deadline; `None` without a deadline or a progress condition. As upstream, a progress
/// without a time was long ago.
fn remaining(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<SignedDuration> {
    let deadline = SignedDuration::from_secs(i64::from(progress_deadline(deployment)?));
    let progressed = conditions::get(status, PROGRESSING)?.last_update_time.as_ref();
    let progressed = progressed.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    deadline.checked_sub(now.duration_since(progressed))
}

/// Returns the time until the deadline must be checked; `None` if it does not run. The status did not change.
pub(super) fn check_deadline_in(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let current = conditions::get(status, PROGRESSING);
    // Upstream also requeues a completed rollout with unavailable pods, at the rate of its limiter, without effect.
    if is_complete(deployment, status)
        || has_reason(current, Reason::DeadlineExceeded)
        || has_reason(current, Reason::NewSetAvailable)
    {
        return None;
    }
    let left = Duration::try_from(remaining(deployment, status, now)?).unwrap_or_default();
    // One second more, as upstream, because the recorded time has no fraction.
    Some(if left < Duration::from_secs(1) { left + MIN_CHECK } else { left + Duration::from_secs(1) })
}

/// Returns the failure condition of the new ReplicaSet, or else of the first old one with a failure.
fn replica_failure(sets: Sets<'_>) -> Option<k8s_openapi::api::apps::v1::DeploymentCondition> {
    let failure = |set: &ReplicaSet| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|condition| condition.type_ == REPLICA_FAILURE).map(from_set)
    };
    sets.new.and_then(failure).or_else(|| sets.old.iter().find_map(|set| failure(set)))
}
