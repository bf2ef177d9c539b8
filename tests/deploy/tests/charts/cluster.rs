//! The control plane that all tests of this process share.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use windlass_harness::{ControlPlane, ControlPlaneOptions, SUPPORTING_CONTROLLERS};

use crate::cases::NAMESPACE;

/// The upstream controller that creates the Pods of Windlass. Windlass itself reconciles the Deployments of operators.
const WORKLOADS: [&str; 1] = ["daemonset-controller"];

/// Returns a control plane with the namespaces of the charts. Pods of releases must satisfy the Pod Security Standard
/// `restricted`. The first call starts it.
pub(crate) async fn plane() -> Result<&'static ControlPlane> {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = || async {
        let controllers = SUPPORTING_CONTROLLERS.into_iter().chain(WORKLOADS);
        let plane =
            ControlPlane::start(ControlPlaneOptions::default().upstream_controllers(controllers)).await?;
        plane.keep_logs_on_panic();
        for name in [NAMESPACE, "blue", "green", "monitoring"] {
            apply(&plane, &[namespace(name)], &[]).await?;
        }
        plane.kubectl(&["label", "nodes", "--all", "node-role.kubernetes.io/control-plane="]).await?;
        Ok(plane)
    };
    PLANE.get_or_try_init(start).await
}

fn namespace(name: &str) -> Value {
    let labels = json!({
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/warn": "restricted",
    });
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

/// Applies objects with strict validation; a warning of the API server is an error.
pub(crate) async fn apply(plane: &ControlPlane, objects: &[Value], arguments: &[&str]) -> Result<String> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), list.to_string())?;
    let path = file.path().to_str().context("the temporary folder is not UTF-8")?;
    let apply = ["apply", "--server-side", "--validate=strict", "--warnings-as-errors", "-f", path];
    plane.kubectl(&[&apply[..], arguments].concat()).await
}
