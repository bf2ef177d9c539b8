//! Sites: the controller of `several_kinds` as an operator, with health, metrics and an answer to `windlass explain` for
//! whoever is on the same machine.
//!
//! ```sh
//! cargo run -p windlass-examples --bin sites -- --kubeconfig ~/.kube/config --address 127.0.0.1:10357
//! cargo run -- explain site-keeper shop/web --server=http://127.0.0.1:10357
//! ```
//!
//! It may be started before its kind is installed: it waits, and says so.

use windlass::prelude::*;
use windlass_examples::several_kinds::SiteController;

#[tokio::main]
async fn main() -> Result<(), windlass::Error> {
    windlass::run("site-keeper", [Registration::of::<SiteController>()]).await
}
