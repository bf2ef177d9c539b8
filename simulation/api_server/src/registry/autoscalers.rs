//! Defaults of HorizontalPodAutoscalers.

use serde_json::{Value, json};

use super::value;

/// Sets defaults according to the object's `apiVersion`.
pub(crate) fn defaults(object: &mut Value) {
    value::default(object, &["spec", "minReplicas"], 1);
    if value::text(object, &["apiVersion"]) == "autoscaling/v2"
        && value::is_empty(object, &["spec", "metrics"])
    {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        value::set(object, &["spec", "metrics"], json!([metric]));
    }
}
