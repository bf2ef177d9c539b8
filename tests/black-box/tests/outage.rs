//! The API server stops under load and restarts: no pod is lost or created twice.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use k8s_openapi::api::apps::v1::ReplicaSet;
use windlass_black_box::{
    audit::Audit,
    control_plane::with_control_plane,
    fixtures::{is_ready, pairs, service},
    implementation::ready,
    test_namespace::TestNamespace,
    wait::eventually,
    workload::Workload as _,
};
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

const SETS: usize = 10;
const REPLICAS: i32 = 30;
const DOWN: Duration = Duration::from_secs(4);

fn name(index: usize) -> String {
    format!("web-{index}")
}

async fn create_set(namespace: &TestNamespace, index: usize) -> Result<()> {
    let labels = pairs(&[("app", &name(index))]);
    let mut set = ReplicaSet::new(&name(index), REPLICAS);
    set.spec.get_or_insert_default().selector.match_labels = Some(labels.clone());
    let template = set.template_mut();
    template.metadata.get_or_insert_default().labels = Some(labels.clone());
    template.spec.get_or_insert_default().scheduler_name = None;
    namespace.create(&set).await?;
    let mut front = service(&name(index), &[80]);
    front.spec.get_or_insert_default().selector = Some(labels);
    namespace.create(&front).await?;
    Ok(())
}

async fn ready_pods(namespace: &TestNamespace, app: &str) -> Result<usize> {
    let pods = namespace.pods(&format!("app={app}")).await?;
    Ok(pods.iter().filter(|pod| is_ready(pod)).count())
}

#[tokio::test]
async fn api_server_restart_under_load_neither_loses_nor_duplicates_pods() -> Result<()> {
    with_control_plane(ControlPlaneOptions::default(), restart_under_load).await
}

async fn restart_under_load(plane: &ControlPlane, audit: &Audit) -> Result<()> {
    let namespace =
        TestNamespace { client: plane.client().await, namespace: plane.namespace("outage").await? };
    let manager = ManagerProcess::start(plane, &["--kube-api-qps=300", "--kube-api-burst=50"]).await?;
    ready(&manager, Duration::from_secs(30)).await?;

    try_join_all((0..SETS).map(|index| create_set(&namespace, index))).await?;
    eventually("creation is under way", || namespace.pods(""), |pods| pods.len() > 60).await?;
    plane.stop_api_server().await?;
    tokio::time::sleep(DOWN).await;
    plane.start_api_server().await?;
    let namespace = TestNamespace { client: plane.client().await, ..namespace };

    let each = usize::try_from(REPLICAS)?;
    eventually("every pod exists", || namespace.pods(""), |pods| pods.len() >= SETS * each).await?;
    for index in 0..SETS {
        status_and_endpoints_match(&namespace, index).await?;
    }
    let pods = namespace.pods("").await?.len();
    ensure!(pods == SETS * each, "{pods} pods for {} wanted", SETS * each);
    let deletes = audit.writes("windlass/", &[])?.into_iter().filter(|write| write.verb == "delete").count();
    ensure!(deletes == 0, "{deletes} surplus pods were created and deleted");
    ensure!(manager.exited().is_none(), "the manager did not survive the outage");
    Ok(())
}

/// Checks that every pod of a ReplicaSet is ready, and that its status and the Service's Endpoints match.
async fn status_and_endpoints_match(namespace: &TestNamespace, index: usize) -> Result<()> {
    let set = name(index);
    let each = usize::try_from(REPLICAS)?;
    eventually("every pod is ready", || ready_pods(namespace, &set), |count| *count == each).await?;
    eventually("every pod is an address", || namespace.ready_addresses(&set), |count| *count == each).await?;
    eventually(
        "the status is complete",
        || namespace.get::<ReplicaSet>(&set),
        |set| set.counts().ready == REPLICAS,
    )
    .await?;
    Ok(())
}
