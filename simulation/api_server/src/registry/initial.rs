//! Initial objects of every cluster.

use std::sync::Arc;

use serde_json::{Value, json};

use super::request::{Target, WriteOptions};
use super::writer::WriteTransaction;
use super::{convert, value};
use crate::status::Status;

/// Priority classes of system components, with value and description.
const PRIORITY_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// Creates the missing objects.
pub(crate) fn make(transaction: &mut WriteTransaction<'_>) -> Result<(), Status> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        ensure(transaction, ("", "v1", "namespaces"), name, namespace)?;
    }
    for (name, priority, description) in PRIORITY_CLASSES {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": priority,
            "description": description,
        });
        ensure(transaction, ("scheduling.k8s.io", "v1", "priorityclasses"), name, class)?;
    }
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {
            "clusterIP": "10.96.0.1",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
    });
    ensure(transaction, ("", "v1", "services"), "kubernetes", service)
}

fn ensure(
    transaction: &mut WriteTransaction<'_>,
    (group, version, plural): (&str, &str, &str),
    name: &str,
    object: Value,
) -> Result<(), Status> {
    let Some(resource) = transaction.served.catalog.resource(group, version, plural).cloned() else {
        // A test can use a catalog without this resource.
        return Ok(());
    };
    let namespace = value::text(&object, &["metadata", "namespace"]).to_owned();
    if transaction.find(&convert::collection(&resource), &namespace, name).is_some() {
        return Ok(());
    }
    let to = Target {
        resource: Arc::clone(&resource),
        namespace,
        name: String::new(),
        subresource: String::new(),
    };
    let options = WriteOptions { field_manager: "kube-apiserver".to_owned(), ..WriteOptions::default() };
    transaction.post(&to, object, &options).map(|_| ())
}
