//! Fields of DaemonSets with their defaults.

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::shared::int_or_percent::{Rounding, scaled};

/// Annotation with the generation of the template. It identified templates before ControllerRevisions existed.
pub(super) const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// Default number of old revisions to keep. API servers always set the number.
const DEFAULT_HISTORY_LIMIT: i32 = 10;

/// The way in which a DaemonSet replaces its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Step by step, within limits.
    RollingUpdate,
    /// Pods are replaced after a user deletes them. Also used for strategies that this version does not support.
    OnDelete,
}

/// A malformed limit of a rolling update.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't get unavailable numbers: invalid value for {field}: {value}")]
pub(crate) struct LimitError {
    field: &'static str,
    value: String,
}

fn spec(set: &DaemonSet) -> Option<&DaemonSetSpec> {
    set.spec.as_ref()
}

/// Returns the spec of the pods.
pub(super) fn pod_spec(set: &DaemonSet) -> Option<&PodSpec> {
    spec(set)?.template.spec.as_ref()
}

/// Returns whether the selector is empty. Such a DaemonSet manages no pods.
pub(super) fn selects_everything(set: &DaemonSet) -> bool {
    spec(set).is_some_and(|spec| {
        spec.selector.match_labels.as_ref().is_none_or(|labels| labels.is_empty())
            && spec.selector.match_expressions.as_ref().is_none_or(|expressions| expressions.is_empty())
    })
}

/// Returns the strategy. API servers set a default.
pub(super) fn strategy(set: &DaemonSet) -> Strategy {
    let strategy = spec(set).and_then(|spec| spec.update_strategy.as_ref()?.type_.as_deref());
    if strategy == Some("RollingUpdate") { Strategy::RollingUpdate } else { Strategy::OnDelete }
}

/// Returns the time in seconds for which a pod must be ready to be available.
pub(super) fn min_ready_seconds(set: &DaemonSet) -> i32 {
    spec(set).and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
}

/// Returns the number of revisions of old templates to keep.
pub(super) fn history_limit(set: &DaemonSet) -> i32 {
    spec(set).and_then(|spec| spec.revision_history_limit).unwrap_or(DEFAULT_HISTORY_LIMIT)
}

/// Returns the generation of the template in the annotation; `None` if it is missing or not a number.
pub(super) fn template_generation(set: &DaemonSet) -> Option<i64> {
    set.metadata.annotations.as_ref()?.get(TEMPLATE_GENERATION_ANNOTATION)?.parse().ok()
}

fn rolling_update(set: &DaemonSet) -> Option<&RollingUpdateDaemonSet> {
    if strategy(set) != Strategy::RollingUpdate {
        return None;
    }
    spec(set)?.update_strategy.as_ref()?.rolling_update.as_ref()
}

/// Returns the number of nodes that can have an old and a new pod at the same time.
///
/// # Errors
/// If the limit is malformed.
pub(super) fn max_surge(set: &DaemonSet, desired: i32) -> Result<i32, LimitError> {
    match rolling_update(set).and_then(|rolling| rolling.max_surge.as_ref()) {
        Some(limit) => resolve("MaxSurge", Some(limit), desired),
        None => Ok(0),
    }
}

/// Returns the number of nodes whose pod can be unavailable during a rolling update.
///
/// # Errors
/// If the limit is malformed or missing.
pub(super) fn max_unavailable(set: &DaemonSet, desired: i32) -> Result<i32, LimitError> {
    match rolling_update(set) {
        Some(rolling) => resolve("MaxUnavailable", rolling.max_unavailable.as_ref(), desired),
        None => Ok(0),
    }
}

fn resolve(field: &'static str, limit: Option<&IntOrString>, desired: i32) -> Result<i32, LimitError> {
    let number = limit.and_then(|limit| scaled(limit, desired, Rounding::Up));
    number.ok_or_else(|| {
        let value = match limit {
            None => "nil value for IntOrString".to_owned(),
            Some(IntOrString::Int(number)) => number.to_string(),
            Some(IntOrString::String(text)) => format!("{text:?} is not a percentage"),
        };
        LimitError { field, value }
    })
}

/// Returns whether a node can have two pods during a rolling update.
pub(super) fn allows_surge(set: &DaemonSet) -> bool {
    max_surge(set, 1).is_ok_and(|surge| surge > 0)
}
