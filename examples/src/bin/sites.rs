//! Sites: the controller of `several_kinds` as an operator. On a loopback address it serves health checks, metrics and
//! `windlass explain` without authentication.
//!
//! ```sh
//! cargo run -p windlass-examples --bin sites -- --kubeconfig ~/.kube/config --address 127.0.0.1:10357
//! cargo run -- explain site-keeper shop/web --server=http://127.0.0.1:10357
//! ```
//!
//! The program can start before its CRD is installed: it waits and logs the reason. `--install-crds` installs the CRD.
//! The operator in `templates/operator` defines another CRD of the same name, so do not run both in one cluster.

use windlass::prelude::*;
use windlass_examples::several_kinds::SiteController;

#[tokio::main]
async fn main() -> Result<(), windlass::Error> {
    windlass::run("site-keeper", [Registration::controller::<SiteController>()]).await
}
