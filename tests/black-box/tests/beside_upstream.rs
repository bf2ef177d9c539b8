//! Windlass next to the real kube-controller-manager, each with its own Lease, as in a cluster.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    coordination::v1::Lease,
    core::v1::{Endpoints, Pod},
};
use kube::Api;
use windlass_black_box::{
    audit::Audit,
    control_plane::with_control_plane,
    implementation::{CLIENTS, CONTROLLERS, ready},
    test_namespace::TestNamespace,
    wait::eventually,
};
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

const MANIFEST: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 4
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec: { containers: [{ name: main, image: image.example/main:1 }] }
---
apiVersion: v1
kind: Service
metadata: { name: web }
spec:
  selector: { app: web }
  ports: [{ port: 80 }]
";

#[tokio::test]
async fn deployment_rolls_out_scales_and_is_deleted_with_both_managers() -> Result<()> {
    let all_but_ours =
        std::iter::once("*".to_owned()).chain(CONTROLLERS.map(|controller| format!("-{controller}")));
    with_control_plane(ControlPlaneOptions::default().upstream_controllers(all_but_ours), beside).await
}

async fn beside(plane: &ControlPlane, audit: &Audit) -> Result<()> {
    let manager = ManagerProcess::start(plane, &[]).await?;
    ready(&manager, Duration::from_secs(30)).await?;
    let namespace =
        TestNamespace { client: plane.client().await, namespace: plane.namespace("beside").await? };
    let manifest = tempfile::NamedTempFile::new()?;
    fs::write(manifest.path(), MANIFEST)?;
    let namespace_flag = format!("--namespace={}", namespace.namespace);
    let kubectl = async |args: &[&str]| plane.kubectl(&[&[namespace_flag.as_str()], args].concat()).await;

    kubectl(&["apply", "--filename", &manifest.path().to_string_lossy()]).await?;
    kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await?;
    addresses_become(&namespace, 4).await?;

    kubectl(&["set", "image", "deployment/web", "main=image.example/main:2"]).await?;
    kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await?;
    addresses_become(&namespace, 4).await?;
    let sets = namespace.list::<ReplicaSet>().await?;
    ensure!(sets.len() == 2, "a rollout leaves the old ReplicaSet and the new one: {}", sets.len());

    kubectl(&["scale", "deployment/web", "--replicas=7"]).await?;
    addresses_become(&namespace, 7).await?;
    kubectl(&["delete", "deployment/web", "service/web", "--wait"]).await?;
    eventually("the pods are gone", || namespace.list::<Pod>(), Vec::is_empty).await?;
    eventually("the endpoints are gone", || namespace.find::<Endpoints>("web"), Option::is_none).await?;
    ensure!(namespace.find::<Deployment>("web").await?.is_none(), "the deployment is gone");

    let leases: Api<Lease> = Api::namespaced(namespace.client.clone(), "kube-system");
    ensure!(leases.get_opt("windlass").await?.is_some(), "windlass elects under a lease of its own");
    let by_upstream = audit.writes("kube-controller-manager/", &CLIENTS)?;
    ensure!(by_upstream.is_empty(), "upstream acted as one of our controllers: {by_upstream:#?}");
    Ok(())
}

async fn addresses_become(namespace: &TestNamespace, count: usize) -> Result<()> {
    let what = format!("{count} addresses");
    eventually(&what, || namespace.ready_addresses("web"), |seen| *seen == count).await?;
    Ok(())
}
