//! Fields of Deployments and ReplicaSets with their defaults.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::shared::int_or_percent::{Rounding, scaled};
use crate::shared::pods;

/// Value of a limit that means no limit.
const UNLIMITED: i32 = i32::MAX;

/// The way in which a Deployment replaces its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Step by step, within limits.
    RollingUpdate,
    /// All at the same time.
    Recreate,
    /// Not known to this version.
    Unknown,
}

/// Returns the spec; API servers require it.
fn spec(deployment: &Deployment) -> Option<&DeploymentSpec> {
    deployment.spec.as_ref()
}

/// Returns the desired number of pods.
pub(super) fn replicas(deployment: &Deployment) -> i32 {
    spec(deployment).and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns whether rollouts are paused.
pub(super) fn is_paused(deployment: &Deployment) -> bool {
    spec(deployment).and_then(|spec| spec.paused).unwrap_or_default()
}

/// Returns the time in seconds for which a pod must be ready to be available.
pub(super) fn min_ready_seconds(deployment: &Deployment) -> i32 {
    spec(deployment).and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
}

/// Returns the strategy. API servers set a default.
pub(super) fn strategy(deployment: &Deployment) -> Strategy {
    let strategy = spec(deployment).and_then(|spec| spec.strategy.as_ref()?.type_.as_deref());
    match strategy {
        Some("RollingUpdate") => Strategy::RollingUpdate,
        Some("Recreate") => Strategy::Recreate,
        _ => Strategy::Unknown,
    }
}

/// Returns the progress deadline in seconds; `None` if the Deployment does not have one.
pub(super) fn progress_deadline(deployment: &Deployment) -> Option<i32> {
    spec(deployment).and_then(|spec| spec.progress_deadline_seconds).filter(|limit| *limit != UNLIMITED)
}

/// Returns the number of old ReplicaSets to keep; `None` for all.
pub(super) fn history_limit(deployment: &Deployment) -> Option<i32> {
    spec(deployment).and_then(|spec| spec.revision_history_limit).filter(|limit| *limit != UNLIMITED)
}

/// Returns the number of pods above the desired number that a rolling update can create.
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    if strategy(deployment) == Strategy::RollingUpdate { limits(deployment).0 } else { 0 }
}

/// Returns the number of pods that a rolling update can make unavailable.
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    let replicas = replicas(deployment);
    if strategy(deployment) != Strategy::RollingUpdate || replicas == 0 {
        return 0;
    }
    limits(deployment).1.min(replicas)
}

fn limits(deployment: &Deployment) -> (i32, i32) {
    let rolling =
        spec(deployment).and_then(|spec| spec.strategy.as_ref()).and_then(|it| it.rolling_update.as_ref());
    let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
    let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    resolve_limits(surge, unavailable, replicas(deployment)).unwrap_or_default()
}

/// Returns surge and unavailable pods as numbers: the surge rounded up, the other down. If both are zero, one pod can
/// be unavailable, because a rollout could not start. `None` if a value is malformed.
pub(super) fn resolve_limits(
    surge: Option<&IntOrString>,
    unavailable: Option<&IntOrString>,
    desired: i32,
) -> Option<(i32, i32)> {
    let limit = |value: Option<&IntOrString>, rounding| match value {
        Some(value) => scaled(value, desired, rounding),
        None => Some(0),
    };
    let surge = limit(surge, Rounding::Up)?;
    let unavailable = limit(unavailable, Rounding::Down)?;
    Some(if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) })
}

/// Returns the desired number of pods of a ReplicaSet.
pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns whether a ReplicaSet desires pods.
pub(super) fn is_active(set: &ReplicaSet) -> bool {
    size(set) > 0
}

/// Returns the sum of the desired numbers of pods.
pub(super) fn total_size<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    sets.into_iter().fold(0, |sum, set| sum.saturating_add(size(set)))
}

/// Returns the number of available pods of a ReplicaSet.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    counted(set, |status| status.available_replicas)
}

/// Returns the sum of a number in the status of ReplicaSets.
pub(super) fn total<'a>(
    sets: impl IntoIterator<Item = &'a ReplicaSet>,
    number: impl Fn(&ReplicaSetStatus) -> Option<i32>,
) -> i32 {
    sets.into_iter().fold(0, |sum, set| sum.saturating_add(counted(set, &number)))
}

/// Returns a number in the status of a ReplicaSet.
pub(super) fn counted(set: &ReplicaSet, number: impl Fn(&ReplicaSetStatus) -> Option<i32>) -> i32 {
    set.status.as_ref().and_then(number).unwrap_or_default()
}

/// Returns the name of a ReplicaSet.
pub(super) fn name(set: &ReplicaSet) -> &str {
    pods::name(&set.metadata)
}
