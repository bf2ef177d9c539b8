//! Windlass next to the real kube-controller-manager, each with its own Lease, as in a cluster.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, Deployment, ReplicaSet},
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

/// A StatefulSet, and a DaemonSet for the three nodes of the control plane.
const SETS: &str = r"
apiVersion: apps/v1
kind: StatefulSet
metadata: { name: db }
spec:
  replicas: 2
  serviceName: db
  selector: { matchLabels: { app: db } }
  template:
    metadata: { labels: { app: db } }
    spec: { containers: [{ name: main, image: image.example/main:1 }] }
---
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: agent }
spec:
  updateStrategy: { rollingUpdate: { maxUnavailable: 3 } }
  selector: { matchLabels: { app: agent } }
  template:
    metadata: { labels: { app: agent } }
    spec: { containers: [{ name: main, image: image.example/main:1 }] }
";

#[tokio::test]
async fn workloads_roll_out_scale_and_are_deleted_with_both_managers() -> Result<()> {
    let all_but_ours =
        std::iter::once("*".to_owned()).chain(CONTROLLERS.map(|controller| format!("-{controller}")));
    with_control_plane(ControlPlaneOptions::default().upstream_controllers(all_but_ours), next_to_upstream)
        .await
}

async fn next_to_upstream(plane: &ControlPlane, audit: &Audit) -> Result<()> {
    let manager = ManagerProcess::start(plane, &[]).await?;
    ready(&manager, Duration::from_secs(30)).await?;
    let namespace =
        TestNamespace { client: plane.client().await, namespace: plane.namespace("beside").await? };
    let user = User { plane, namespace: &namespace };
    user.rolls_out_a_deployment().await?;
    user.rolls_back_sets().await?;

    let leases: Api<Lease> = Api::namespaced(namespace.client.clone(), "kube-system");
    ensure!(leases.get_opt("windlass").await?.is_some(), "windlass elects under its own Lease");
    let by_upstream = audit.writes("kube-controller-manager/", &CLIENTS)?;
    ensure!(by_upstream.is_empty(), "upstream acted as one of our controllers: {by_upstream:#?}");
    Ok(())
}

/// A user with kubectl in one namespace.
struct User<'a> {
    plane: &'a ControlPlane,
    namespace: &'a TestNamespace,
}

impl User<'_> {
    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let namespace = format!("--namespace={}", self.namespace.namespace);
        self.plane.kubectl(&[&[namespace.as_str()], args].concat()).await
    }

    async fn apply(&self, manifest: &str) -> Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), manifest)?;
        self.kubectl(&["apply", "--filename", &file.path().to_string_lossy()]).await.map(drop)
    }

    async fn awaits_rollout(&self, workload: &str) -> Result<()> {
        self.kubectl(&["rollout", "status", workload, "--timeout=60s"]).await.map(drop)
    }

    async fn has_addresses(&self, count: usize) -> Result<()> {
        let what = format!("{count} addresses");
        eventually(&what, || self.namespace.ready_addresses("web"), |seen| *seen == count).await?;
        Ok(())
    }

    async fn rolls_out_a_deployment(&self) -> Result<()> {
        let namespace = self.namespace;
        self.apply(MANIFEST).await?;
        self.awaits_rollout("deployment/web").await?;
        self.has_addresses(4).await?;

        self.kubectl(&["set", "image", "deployment/web", "main=image.example/main:2"]).await?;
        self.awaits_rollout("deployment/web").await?;
        self.has_addresses(4).await?;
        let sets = namespace.list::<ReplicaSet>().await?;
        ensure!(sets.len() == 2, "a rollout leaves the old ReplicaSet and the new one: {}", sets.len());

        self.kubectl(&["scale", "deployment/web", "--replicas=7"]).await?;
        self.has_addresses(7).await?;
        self.kubectl(&["delete", "deployment/web", "service/web", "--wait"]).await?;
        eventually("the pods are gone", || namespace.list::<Pod>(), Vec::is_empty).await?;
        eventually("the endpoints are gone", || namespace.find::<Endpoints>("web"), Option::is_none).await?;
        ensure!(namespace.find::<Deployment>("web").await?.is_none(), "the deployment is gone");
        Ok(())
    }

    /// Updates both sets, rolls them back to the first revision, and deletes them.
    async fn rolls_back_sets(&self) -> Result<()> {
        self.apply(SETS).await?;
        for (set, count) in [("statefulset/db", 2), ("daemonset/agent", 3)] {
            self.awaits_rollout(set).await?;
            self.kubectl(&["set", "image", set, "main=image.example/main:2"]).await?;
            self.awaits_rollout(set).await?;
            ensure!(self.images(set).await? == vec!["image.example/main:2"; count], "{set} is updated");
            self.kubectl(&["rollout", "undo", set]).await?;
            self.awaits_rollout(set).await?;
            ensure!(self.images(set).await? == vec!["image.example/main:1"; count], "{set} is rolled back");
            let history = self.kubectl(&["rollout", "history", set]).await?;
            let numbers: Vec<_> = history
                .lines()
                .filter_map(|line| line.split_whitespace().next()?.parse::<i64>().ok())
                .collect();
            ensure!(numbers == [2, 3], "the rollback has the highest number: {history}");
            self.kubectl(&["delete", set, "--wait"]).await?;
        }
        eventually("the pods are gone", || self.namespace.list::<Pod>(), Vec::is_empty).await?;
        let revisions = || self.namespace.list::<ControllerRevision>();
        eventually("the revisions are gone", revisions, Vec::is_empty).await?;
        Ok(())
    }

    /// Returns the images of the pods of a set, without pods that are being deleted.
    async fn images(&self, set: &str) -> Result<Vec<String>> {
        let (_, name) = set.split_once('/').context("a name")?;
        let mut pods = self.namespace.pods(&format!("app={name}")).await?;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        let spec = pods.into_iter().filter_map(|pod| pod.spec);
        Ok(spec.flat_map(|spec| spec.containers).filter_map(|container| container.image).collect())
    }
}
