//! The planes on which the real kube-apiserver shows its behaviors: etcd and the server, nobody else.

use anyhow::Result;
use windlass_harness::{ControlPlane, ControlPlaneOptions};

/// Starts it.
///
/// # Errors
/// Those of the plane.
pub async fn start() -> Result<ControlPlane> {
    ControlPlane::start(options()).await
}

/// Starts one whose server knows of shards.
///
/// # Errors
/// Those of the plane.
pub async fn start_with_shards() -> Result<ControlPlane> {
    ControlPlane::start(options().api_server_arg("--feature-gates=ShardedListAndWatch=true")).await
}

fn options() -> ControlPlaneOptions {
    // No service accounts: nobody here makes them, and pods are to be made without.
    // History goes soon: the behaviors that need it gone wait for that.
    ControlPlaneOptions::default()
        .nodes(0)
        .scheduler(false)
        .authorization_rbac(false)
        .upstream_controllers(Vec::<String>::new())
        .api_server_arg("--disable-admission-plugins=ServiceAccount")
        .api_server_arg("--etcd-compaction-interval=5s")
}
