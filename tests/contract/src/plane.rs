//! The plane on which the real kube-apiserver shows its behaviours: etcd and the server, nobody else.

use anyhow::Result;
use windlass_harness::{Plane, PlaneOptions};

/// Starts it.
///
/// # Errors
/// Those of the plane.
pub async fn start() -> Result<Plane> {
    // No service accounts: nobody here makes them, and pods are to be made without.
    // History goes soon: the behaviours that need it gone wait for that.
    let options = PlaneOptions::default()
        .nodes(0)
        .scheduler(false)
        .authorization_rbac(false)
        .upstream_controllers(Vec::<String>::new())
        .api_server_arg("--disable-admission-plugins=ServiceAccount")
        .api_server_arg("--etcd-compaction-interval=5s");
    Plane::start(options).await
}
