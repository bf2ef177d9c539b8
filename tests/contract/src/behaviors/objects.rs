//! Objects that many behaviors use.

use serde_json::{Value, json};

/// A ConfigMap.
pub(super) fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": "value" } })
}

/// A ConfigMap with labels.
pub(super) fn labeled(name: &str, labels: Value) -> Value {
    let mut it = config_map(name);
    it["metadata"]["labels"] = labels;
    it
}

/// A pod of one container.
pub(super) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "main", "image": "image" }] },
    })
}

/// A pod on a node, as if scheduled.
pub(super) fn pod_on_node(name: &str) -> Value {
    let mut it = pod(name);
    it["spec"]["nodeName"] = json!("node");
    it
}

/// The template of pods labeled `app: web`.
pub(super) fn template() -> Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "image" }] },
    })
}

/// A workload of group `apps` with two replicas of that template.
pub(super) fn workload(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "web" } }, "template": template() },
    })
}

/// A Deployment.
pub(super) fn deployment(name: &str) -> Value {
    workload("Deployment", name)
}

/// A Service.
pub(super) fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] },
    })
}

/// A Job.
pub(super) fn job(name: &str) -> Value {
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name }, "spec": { "template": template },
    })
}

/// A Lease.
pub(super) fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
        "spec": { "holderIdentity": "me" },
    })
}
