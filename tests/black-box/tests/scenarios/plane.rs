//! The shared control plane and subject of all scenarios.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{Api, Client, api::PostParams};
use tokio::sync::OnceCell;
use windlass_black_box::{
    implementation::{Implementation, Running},
    test_namespace::TestNamespace,
    wait::eventually,
};
use windlass_harness::{ControlPlane, ControlPlaneOptions};

use crate::before_start;

struct Stage {
    plane: ControlPlane,
    _implementation: Running,
}

static STAGE: OnceCell<Stage> = OnceCell::const_new();

/// Both IP families, so that a Service can choose its first.
const SERVICE_RANGES: &str = "--service-cluster-ip-range=10.96.0.0/16,2001:db8:1::/112";

/// The plugin taints each new node until a node lifecycle controller finds it ready; none runs here.
const NEW_NODES: &str = "--disable-admission-plugins=TaintNodesByCondition";

/// The options of a control plane without a garbage collector, because some scenarios name owners that do not exist.
pub(crate) fn options() -> ControlPlaneOptions {
    ControlPlaneOptions::default()
        .nodes(0)
        .scheduler(false)
        .upstream_controllers(["serviceaccount-controller"])
        .api_server_arg(SERVICE_RANGES)
        .api_server_arg(NEW_NODES)
}

async fn stage() -> Result<&'static Stage> {
    STAGE
        .get_or_try_init(|| async {
            let plane =
                ControlPlane::start(options()).await.context("starting the plane of the scenarios")?;
            before_start::prepare(&plane.client().await).await.context("preparing what a start finds")?;
            let implementation = Implementation::chosen()?.start(&plane, &[]).await?;
            Ok(Stage { plane, _implementation: implementation })
        })
        .await
}

/// Creates a namespace on the shared control plane.
pub(crate) async fn namespace(scenario: &str) -> Result<TestNamespace> {
    let stage = stage().await?;
    let namespace = stage.plane.namespace(scenario).await?;
    Ok(TestNamespace { client: stage.plane.client().await, namespace })
}

/// Returns a namespace that was prepared before the subject started.
pub(crate) async fn prepared_namespace(namespace: &str) -> Result<TestNamespace> {
    let stage = stage().await?;
    Ok(TestNamespace { client: stage.plane.client().await, namespace: namespace.to_owned() })
}

/// Creates a namespace with exactly this name and waits until it accepts pods.
pub(crate) async fn named_namespace(client: &Client, name: &str) -> Result<TestNamespace> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let namespace = TestNamespace { client: client.clone(), namespace: name.to_owned() };
    eventually(
        "the namespace has its default service account",
        || namespace.find::<ServiceAccount>("default"),
        Option::is_some,
    )
    .await?;
    Ok(namespace)
}
