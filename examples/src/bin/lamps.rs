//! Lamps: the controller and the webhooks of `lamps` as an operator.
//!
//! In a cluster, the output of `manifests` contains the Service and the webhook configurations. Outside, the API server
//! calls this process at a URL:
//!
//! ```sh
//! address="--webhook-address=127.0.0.1:9443 --webhook-url=https://127.0.0.1:9443"
//! cargo run -p windlass-examples --bin lamps -- manifests $address | kubectl apply -f -
//! cargo run -p windlass-examples --bin lamps -- $address --kubeconfig ~/.kube/config
//! ```

use windlass::prelude::*;
use windlass_examples::lamps::{LampController, webhooks};

#[tokio::main]
async fn main() -> Result<(), windlass::Error> {
    windlass::run("lamps", [Registration::controller::<LampController>(), webhooks(3).into()]).await
}
