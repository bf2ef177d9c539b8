//! Control planes for the behaviors of the real kube-apiserver: only etcd and the API server.

use anyhow::Result;
use windlass_harness::{ControlPlane, ControlPlaneOptions};

/// Starts a control plane.
///
/// # Errors
/// Returns the errors of [`ControlPlane::start`].
pub async fn start() -> Result<ControlPlane> {
    ControlPlane::start(options()).await
}

/// Starts a control plane whose server supports sharded lists and watches.
///
/// # Errors
/// Returns the errors of [`ControlPlane::start`].
pub async fn start_with_shards() -> Result<ControlPlane> {
    ControlPlane::start(options().api_server_arg("--feature-gates=ShardedListAndWatch=true")).await
}

/// Starts a control plane with the admission of ServiceAccounts, and with the in-process server's range of service
/// addresses, for random sequences.
///
/// # Errors
/// Returns the errors of [`ControlPlane::start`].
pub async fn start_with_service_accounts() -> Result<ControlPlane> {
    ControlPlane::start(bare_options().api_server_arg("--service-cluster-ip-range=10.96.0.0/12")).await
}

fn options() -> ControlPlaneOptions {
    // No controller creates ServiceAccounts here, and pods must be accepted without them. Compaction is frequent,
    // because some behaviors wait for it.
    bare_options()
        .api_server_arg("--disable-admission-plugins=ServiceAccount")
        .api_server_arg("--etcd-compaction-interval=5s")
}

fn bare_options() -> ControlPlaneOptions {
    ControlPlaneOptions::default()
        .nodes(0)
        .scheduler(false)
        .authorization_rbac(false)
        .upstream_controllers(Vec::<String>::new())
}
