//! Tests of a control plane's guarantees.

use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::json;
use windlass_harness::{ControlPlane, ControlPlaneOptions};

/// Generous timeout, for machines that are busy.
const TIMEOUT: Duration = Duration::from_secs(60);

// parity: manager-client-envtest
#[tokio::test]
async fn pod_in_a_new_namespace_becomes_ready_with_an_address() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("pods").await?;
    let client = plane.client().await;
    Api::<ServiceAccount>::namespaced(client.clone(), &namespace).get("default").await?;

    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    pods.create(&PostParams::default(), &pod("web")?).await?;
    let ready =
        eventually("the pod is ready", async || Ok(pods.get_opt("web").await?.filter(is_ready))).await?;
    let status = ready.status.context("a ready pod has a status")?;
    ensure!(
        status.pod_ip.is_some_and(|address| address.starts_with("10.128.")),
        "an address of the pod network"
    );
    ensure!(ready.spec.and_then(|spec| spec.node_name).is_some(), "a node");
    Ok(())
}

#[tokio::test]
async fn namespaces_with_one_prefix_differ_and_end_when_deleted() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let (first, second) = (plane.namespace("same").await?, plane.namespace("same").await?);
    ensure!(first != second, "{first} was given out twice");
    let namespaces: Api<Namespace> = Api::all(plane.client().await);
    namespaces.delete(&first, &DeleteParams::default()).await?;
    eventually("the namespace is deleted", async || {
        Ok(namespaces.get_opt(&first).await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
async fn owned_objects_are_collected_with_their_owner() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let maps: Api<ConfigMap> = Api::namespaced(plane.client().await, &plane.namespace("owned").await?);
    let owner = maps.create(&PostParams::default(), &config_map("owner", &[])).await?;
    let uid = owner.metadata.uid.context("a created object has a uid")?;
    maps.create(&PostParams::default(), &config_map("owned", &[("owner", &uid)])).await?;
    maps.delete("owner", &DeleteParams::background()).await?;
    eventually("the owned object is deleted", async || {
        Ok(maps.get_opt("owned").await?.is_none().then_some(()))
    })
    .await
}

// parity: manager-client-envtest
#[tokio::test]
async fn api_server_restarts_on_its_port_with_its_data() -> anyhow::Result<()> {
    let plane = ControlPlane::start(ControlPlaneOptions::default().nodes(0).scheduler(false)).await?;
    let client = plane.client().await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let before = maps.create(&PostParams::default(), &config_map("kept", &[])).await?;

    plane.stop_api_server().await?;
    ensure!(maps.get("kept").await.is_err(), "a stopped API server answered");
    ensure!(plane.stop_api_server().await.is_err(), "it was stopped twice");
    plane.start_api_server().await?;

    let after = maps.get("kept").await?;
    ensure!(after.metadata.uid == before.metadata.uid, "another object of that name");
    ensure!(after.metadata.resource_version == before.metadata.resource_version, "it was written to");
    plane.stop().await
}

#[tokio::test]
async fn control_plane_without_upstream_controllers_admits_pods() -> anyhow::Result<()> {
    let options = ControlPlaneOptions::default().upstream_controllers([""; 0]).authorization_rbac(false);
    let plane = ControlPlane::start(options.nodes(1)).await?;
    let namespace = plane.namespace("bare").await?;
    let pods: Api<Pod> = Api::namespaced(plane.client().await, &namespace);
    pods.create(&PostParams::default(), &pod("web")?).await?;
    eventually("the pod is ready", async || Ok(pods.get_opt("web").await?.filter(is_ready))).await?;
    plane.stop().await
}

#[tokio::test]
async fn additional_upstream_controllers_stop_when_dropped() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("upstream").await?;
    let upstream =
        plane.start_upstream_controllers(&["replicaset-controller"], &["--concurrent-replicaset-syncs=2"])?;
    let pid = upstream.pid();
    ensure!(command_of(pid)?.contains("kube-controller-manager"), "the id is the program's own");

    let sets: Api<ReplicaSet> = Api::namespaced(plane.client().await, &namespace);
    sets.create(&PostParams::default(), &replica_set()?).await?;
    let args = [
        "wait",
        "replicaset/web",
        "-n",
        &namespace,
        "--for=jsonpath={.status.readyReplicas}=2",
        "--timeout=60s",
    ];
    plane.kubectl(&args).await?;

    drop(upstream);
    eventually("the process has exited", async || Ok(is_gone(pid).then_some(()))).await
}

#[tokio::test]
async fn program_ends_with_its_supervisor() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let program = plane.start_upstream_controllers(&["ttl-controller"], &[])?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid()))?;
    let supervisor = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).context("a parent")?;
    ensure!(command_of(supervisor.parse()?)?.contains("supervise"), "the parent is the supervisor");
    let killed = std::process::Command::new("kill").args(["-KILL", supervisor]).status()?;
    ensure!(killed.success(), "the supervisor was killed");
    ensure!(program.wait_exit(TIMEOUT).await.is_err(), "its end could not be seen");
    eventually("the program has exited", async || Ok(is_gone(program.pid()).then_some(()))).await
}

#[tokio::test]
async fn terminated_program_reports_its_exit_status() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let program = plane.start_upstream_controllers(&["ttl-controller"], &[])?;
    ensure!(program.exited().is_none(), "it runs");
    program.terminate();
    let status = program.wait_exit(TIMEOUT).await?;
    ensure!(!status.success() && program.exited() == Some(status), "{status}");
    Ok(())
}

#[tokio::test]
async fn identity_has_only_permissions_bound_to_it() -> anyhow::Result<()> {
    let plane = ControlPlane::shared().await?;
    let path = plane.kubeconfig_for("nobody", "nobody", None)?;
    let config = kube::Config::from_custom_kubeconfig(
        kube::config::Kubeconfig::read_from(path)?,
        &kube::config::KubeConfigOptions::default(),
    )
    .await?;
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, "default");
    match pods.get("any").await {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        other => anyhow::bail!("unexpected response for an unprivileged user: {other:?}"),
    }
}

#[tokio::test]
async fn stopped_control_plane_leaves_only_logs_to_be_kept() -> anyhow::Result<()> {
    let options = ControlPlaneOptions::default().nodes(0).scheduler(false);
    let forgotten = ControlPlane::start(options.clone()).await?;
    let logs = forgotten.logs_dir().to_owned();
    forgotten.stop().await?;
    ensure!(!logs.exists(), "{} is still there", logs.display());

    let kept = ControlPlane::start(options).await?;
    let logs = kept.logs_dir().to_owned();
    kept.keep_logs();
    kept.stop().await?;
    ensure!(logs.join("kube-apiserver.log").is_file(), "{} has no log", logs.display());
    let run = logs.parent().context("the logs lie in the run folder")?;
    ensure!(!run.join("pki").exists(), "keys were left behind");
    Ok(std::fs::remove_dir_all(run)?)
}

async fn eventually<T>(what: &str, probe: impl AsyncFn() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let found = async {
        loop {
            if let Some(found) = probe().await? {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, found).await.with_context(|| format!("not within {TIMEOUT:?}: {what}"))?
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn command_of(pid: u32) -> std::io::Result<String> {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
}

/// Returns whether a process has exited; a zombie has no command line.
fn is_gone(pid: u32) -> bool {
    command_of(pid).map_or(true, |command| command.is_empty())
}

fn pod(name: &str) -> anyhow::Result<Pod> {
    Ok(serde_json::from_value(json!({ "metadata": { "name": name }, "spec": pod_spec() }))?)
}

fn pod_spec() -> serde_json::Value {
    json!({ "containers": [{ "name": "main", "image": "registry.invalid/main" }] })
}

fn replica_set() -> anyhow::Result<ReplicaSet> {
    let labels = json!({ "app": "web" });
    Ok(serde_json::from_value(json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": pod_spec() },
        },
    }))?)
}

fn config_map(name: &str, owners: &[(&str, &str)]) -> ConfigMap {
    let owners =
        owners.iter().map(|(name, uid)| k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: (*name).into(),
            uid: (*uid).into(),
            ..Default::default()
        });
    let metadata = ObjectMeta {
        name: Some(name.into()),
        owner_references: Some(owners.collect()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}
