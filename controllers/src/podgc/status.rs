//! The patch that marks a pod as failed. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::plan::Reason;
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Returns the strategic merge patch of the status before a deletion; `None` for a pod that has terminated.
pub(super) fn failed_patch(pod: &PodView, reason: Reason, now: &Time) -> Option<Value> {
    if pods::is_terminal(pod) {
        return None;
    }
    let mut status = json!({ "phase": "Failed" });
    if let Some(generation) = pod.metadata.generation {
        status["observedGeneration"] = json!(generation);
    }
    if reason == Reason::Orphaned {
        status["conditions"] = json!([disruption_target(pod, now)]);
    }
    Some(json!({ "metadata": { "uid": pods::uid(&pod.metadata) }, "status": status }))
}

/// Returns the condition of an orphaned pod. The list of conditions is merged by type. A true condition keeps its
/// transition time, because the patch does not contain one.
fn disruption_target(pod: &PodView, now: &Time) -> Value {
    let mut condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
    });
    if let Some(generation) = pod.metadata.generation {
        condition["observedGeneration"] = json!(generation);
    }
    if &*pod.disruption_target != "True" {
        condition["lastTransitionTime"] = json!(now);
    }
    condition
}
