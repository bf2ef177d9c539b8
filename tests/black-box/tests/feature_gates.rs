//! Upstream's feature gates of these controllers, disabled and enabled.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use windlass_black_box::{
    control_plane::with_control_plane,
    fixtures::{LABEL, pairs},
    implementation::{Implementation, ready},
    test_namespace::TestNamespace,
    wait::eventually,
    workload::{Workload as _, create_stable, stable},
};
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

/// Runs `body` with a dedicated manager that has these gates, and stops the manager.
async fn with_gates(plane: &ControlPlane, gates: &str, body: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    ensure!(Implementation::chosen()? == Implementation::Windlass, "gates are given to windlass alone");
    let gates = format!("--feature-gates={gates}");
    let manager = ManagerProcess::start(plane, &["--leader-elect=false", &gates]).await?;
    ready(&manager, Duration::from_secs(30)).await?;
    body().await?;
    manager.terminate();
    let status = manager.wait_exit(Duration::from_secs(10)).await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}

async fn namespace(plane: &ControlPlane, name: &str) -> Result<TestNamespace> {
    Ok(TestNamespace { client: plane.client().await, namespace: plane.namespace(name).await? })
}

async fn terminating_becomes(namespace: &TestNamespace, expected: Option<i32>) -> Result<()> {
    eventually(
        &format!("terminatingReplicas is {expected:?}"),
        || namespace.get::<ReplicaSet>("web"),
        |set| (set.counts().terminating, set.counts().replicas) == (expected, 5),
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn feature_gates_change_the_same_behavior_as_upstream() -> Result<()> {
    with_control_plane(ControlPlaneOptions::default().nodes(0).scheduler(false), async |plane, _| {
        terminating_replicas(plane).await?;
        deletion_costs(plane).await
    })
    .await
}

/// Checks that the field is set while the gate is on and absent while it is off, independent of earlier values.
async fn terminating_replicas(plane: &ControlPlane) -> Result<()> {
    let namespace = namespace(plane, "terminating").await?;
    let mut set = ReplicaSet::new("web", 5);
    let spec = set.template_mut().spec.get_or_insert_default();
    // A deleted pod stays, because its node does not exist and its grace period is long.
    spec.node_name = Some("no-such-node".to_owned());
    spec.termination_grace_period_seconds = Some(300);
    with_gates(plane, "DeploymentReplicaSetTerminatingReplicas=false", async || {
        create_stable(&namespace, &set).await?;
        delete_one(&namespace).await?;
        stable::<ReplicaSet>(&namespace, "web").await?;
        terminating_becomes(&namespace, None).await
    })
    .await?;
    with_gates(plane, "DeploymentReplicaSetTerminatingReplicas=true", async || {
        delete_one(&namespace).await?;
        terminating_becomes(&namespace, Some(2)).await
    })
    .await?;
    with_gates(plane, "DeploymentReplicaSetTerminatingReplicas=false", async || {
        terminating_becomes(&namespace, None).await
    })
    .await
}

/// Deletes one pod that is not terminating.
async fn delete_one(namespace: &TestNamespace) -> Result<()> {
    let pods = eventually("five pods stay", || staying(namespace), |pods| pods.len() == 5).await?;
    namespace.delete::<Pod>(&pods[0]).await
}

async fn staying(namespace: &TestNamespace) -> Result<Vec<String>> {
    let pods = namespace.pods(LABEL).await?.into_iter();
    let staying = pods.filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(staying.filter_map(|pod| pod.metadata.name).collect())
}

/// Checks that without the gate the pod with restarts is deleted, in spite of its deletion cost.
async fn deletion_costs(plane: &ControlPlane) -> Result<()> {
    let namespace = namespace(plane, "costs").await?;
    with_gates(plane, "PodDeletionCost=false", async || {
        create_stable(&namespace, &ReplicaSet::new("web", 2)).await?;
        let pods = eventually("two pods exist", || staying(&namespace), |pods| pods.len() == 2).await?;
        let now = jiff::Timestamp::now();
        for (name, (cost, restarts)) in pods.iter().zip([("1000", 5), ("100", 0)]) {
            let cost = pairs(&[("controller.kubernetes.io/pod-deletion-cost", cost)]);
            namespace.update::<Pod>(name, |pod| pod.metadata.annotations = Some(cost.clone())).await?;
            namespace.make_ready(name, now, restarts).await?;
        }
        // Pods and ReplicaSets have separate watches: the manager must observe the pods before the ReplicaSet changes.
        eventually(
            "both pods are seen ready",
            || namespace.get::<ReplicaSet>("web"),
            |set| set.counts().ready == 2,
        )
        .await?;
        namespace.update::<ReplicaSet>("web", |set| set.set_desired(1)).await?;
        let left = eventually("one pod remains", || staying(&namespace), |pods| pods.len() == 1).await?;
        ensure!(left[0] == pods[1], "the costly pod stayed although costs do not count");
        Ok(())
    })
    .await
}
