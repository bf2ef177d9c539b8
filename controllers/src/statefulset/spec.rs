//! Fields of StatefulSets with their defaults.

use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};

/// Number of old revisions that are kept, unless the spec contains a number.
const DEFAULT_HISTORY_LIMIT: i32 = 10;

/// The way in which a StatefulSet creates, replaces and deletes its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodManagement {
    /// One pod after the other, in the order of their ordinals. Each pod waits for the previous pod.
    Ordered,
    /// All pods independently of each other.
    Parallel,
}

/// The way in which a StatefulSet replaces its pods after a change of the template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum UpdateStrategy {
    /// Pods are replaced one by one, from the highest ordinal to the partition.
    RollingUpdate { partition: Option<i32> },
    /// Pods are replaced after a user deletes them.
    OnDelete,
    /// A value that this version does not support.
    Unknown { partition: Option<i32> },
}

/// The treatment of claims whose pod or StatefulSet is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retention {
    Retain,
    Delete,
    /// A value that this version does not support.
    Unknown,
}

/// The retention of claims by event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RetentionPolicy {
    pub(super) when_deleted: Retention,
    pub(super) when_scaled: Retention,
}

/// Returns the spec; API servers require it.
fn spec(set: &StatefulSet) -> Option<&StatefulSetSpec> {
    set.spec.as_ref()
}

/// Returns the desired number of pods.
pub(super) fn replicas(set: &StatefulSet) -> i32 {
    spec(set).and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns the ordinal of the first pod.
pub(super) fn start(set: &StatefulSet) -> i32 {
    spec(set).and_then(|spec| spec.ordinals.as_ref()?.start).unwrap_or_default()
}

/// Returns whether a pod with this ordinal is desired.
pub(super) fn is_in_range(set: &StatefulSet, ordinal: i32) -> bool {
    let end = i64::from(start(set)) + i64::from(replicas(set));
    ordinal >= start(set) && i64::from(ordinal) < end
}

/// Returns the time in seconds for which a pod must be ready to be available.
pub(super) fn min_ready_seconds(set: &StatefulSet) -> i32 {
    spec(set).and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
}

/// Returns the number of old revisions to keep; a negative number means no limit.
pub(super) fn history_limit(set: &StatefulSet) -> i32 {
    spec(set).and_then(|spec| spec.revision_history_limit).unwrap_or(DEFAULT_HISTORY_LIMIT)
}

/// Returns the pod management policy.
pub(super) fn management(set: &StatefulSet) -> PodManagement {
    match spec(set).and_then(|spec| spec.pod_management_policy.as_deref()) {
        Some("Parallel") => PodManagement::Parallel,
        _ => PodManagement::Ordered,
    }
}

/// Returns the update strategy. API servers set a default.
pub(super) fn strategy(set: &StatefulSet) -> UpdateStrategy {
    let strategy = spec(set).and_then(|spec| spec.update_strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let partition = |rolling: &RollingUpdateStatefulSetStrategy| rolling.partition.unwrap_or_default();
    let partition = rolling.map(partition);
    match strategy.and_then(|strategy| strategy.type_.as_deref()) {
        Some("RollingUpdate") => UpdateStrategy::RollingUpdate { partition },
        Some("OnDelete") => UpdateStrategy::OnDelete,
        _ => UpdateStrategy::Unknown { partition },
    }
}

/// Returns the template of new pods.
pub(super) fn template(set: &StatefulSet) -> PodTemplateSpec {
    spec(set).map(|spec| spec.template.clone()).unwrap_or_default()
}

/// Returns the name of the headless Service; empty if there is none.
pub(super) fn service_name(set: &StatefulSet) -> &str {
    spec(set).and_then(|spec| spec.service_name.as_deref()).unwrap_or_default()
}

/// Returns the templates of claims. If several templates have the same name, the last template is used, as upstream.
///
/// The API server accepts such templates, but rejects a pod with two volumes of the same name.
pub(super) fn claim_templates(set: &StatefulSet) -> Vec<&PersistentVolumeClaim> {
    let mut templates: Vec<&PersistentVolumeClaim> = Vec::new();
    for template in spec(set).and_then(|spec| spec.volume_claim_templates.as_ref()).into_iter().flatten() {
        templates.retain(|earlier| earlier.metadata.name != template.metadata.name);
        templates.push(template);
    }
    templates
}

/// Returns the retention policy of claims.
pub(super) fn retention_policy(set: &StatefulSet) -> RetentionPolicy {
    let policy = spec(set).and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    let Some(policy) = policy else {
        return RetentionPolicy { when_deleted: Retention::Retain, when_scaled: Retention::Retain };
    };
    let retention = |text: &Option<String>| match text.as_deref() {
        Some("Retain") => Retention::Retain,
        Some("Delete") => Retention::Delete,
        _ => Retention::Unknown,
    };
    RetentionPolicy {
        when_deleted: retention(&policy.when_deleted),
        when_scaled: retention(&policy.when_scaled),
    }
}
