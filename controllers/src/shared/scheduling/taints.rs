//! Taints and tolerations.
//!
//! A toleration tolerates a taint if it has the same effect and key, and its operator accepts the value. A missing
//! effect or key matches all. The numeric operators `Gt` and `Lt` tolerate nothing, because their feature gate
//! (`TaintTolerationComparisonOperators`) is off by default.

use k8s_openapi::api::core::v1::Toleration;

use crate::shared::node_view::TaintView;

/// Effect of a taint: new pods are not scheduled.
pub(crate) const NO_SCHEDULE: &str = "NoSchedule";
/// Effect of a taint: new pods are not scheduled, and running pods are evicted.
pub(crate) const NO_EXECUTE: &str = "NoExecute";

/// Returns whether the toleration tolerates the taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &TaintView) -> bool {
    let accepts = |wanted: &Option<String>, actual: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == actual)
    };
    if !accepts(&toleration.effect, &taint.effect) || !accepts(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == &*taint.value,
        "Exists" => true,
        _ => false,
    }
}

/// Returns whether each taint with one of these effects is tolerated.
pub(crate) fn tolerates_all(
    is_tolerated: impl Fn(&TaintView) -> bool,
    taints: &[TaintView],
    effects: &[&str],
) -> bool {
    taints.iter().filter(|taint| effects.contains(&&*taint.effect)).all(is_tolerated)
}
