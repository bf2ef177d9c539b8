//! `windlass migrate check` next to a kube-controller-manager, whose Pod is an object like that of a static Pod.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use windlass_black_box::audit::Audit;
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::implementation::exits_gracefully;
use windlass_black_box::wait::eventually;
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess, Process};

const CONTROLLERS: &str = "--controllers=deployment,endpoint";
/// The controllers of kube-controller-manager before and after the migration, and during it.
const BEFORE: [&str; 3] = ["deployment-controller", "endpoints-controller", "ttl-controller"];
const DURING: [&str; 1] = ["ttl-controller"];
/// kube-controller-manager elects a leader, with a third of the default durations.
const ELECTION: [&str; 4] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=5s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
];
/// The longest time without a process that acts: kube-controller-manager's Lease, and its start under load.
const LONGEST_GAP: Duration = Duration::from_secs(15);
const ACCOUNT: &str = "--account=system:serviceaccount:kube-system:windlass";

/// Runs the check; returns whether windlass can start, and the report or the error.
async fn check(plane: &ControlPlane, words: &[&str]) -> Result<(bool, String)> {
    let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig_path().display());
    let words = [&["migrate", "check", CONTROLLERS, &kubeconfig], words].concat();
    let output = ManagerProcess::command(&words).await?;
    let report = String::from_utf8(output.stdout)?;
    let error = String::from_utf8(output.stderr)?;
    Ok((output.status.success(), format!("{report}{error}")))
}

/// Applies the roles that windlass prints.
async fn grant_roles(plane: &ControlPlane) -> Result<()> {
    let manifests = ManagerProcess::command(&["manifests", "rbac", CONTROLLERS]).await?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), manifests.stdout)?;
    plane.kubectl(&["apply", "-f", file.path().to_str().context("a path")?]).await.map(drop)
}

/// Replaces the Pod of kube-controller-manager by one with this flag.
async fn run_upstream(plane: &ControlPlane, controllers: &str) -> Result<()> {
    let pods = Api::<Pod>::namespaced(plane.client().await, "kube-system");
    let name = "kube-controller-manager-cp";
    if pods.get_opt(name).await?.is_some() {
        pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        eventually("the Pod is gone", async || Ok(pods.get_opt(name).await?.is_none()), |gone| *gone).await?;
    }
    let pod = json!({
        "metadata": { "name": name, "labels": { "component": "kube-controller-manager" } },
        "spec": { "nodeName": hostname()?, "containers": [{
            "name": "kube-controller-manager",
            "image": "kube-controller-manager",
            "command": ["kube-controller-manager", format!("--controllers={controllers}")],
            "args": ["--concurrent-deployment-syncs=9"],
        }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    Ok(())
}

/// Without a visible kube-controller-manager the check is not ready until the user states that none runs elsewhere.
async fn cluster_without_visible_upstream_needs_a_statement(plane: &ControlPlane) -> Result<()> {
    let (ready, report) = check(plane, &["--account=admin"]).await?;
    ensure!(
        !ready && report.contains("deployment-controller: unknown in kube-controller-manager\n"),
        "{report}"
    );
    let (_, report) = check(plane, &["--assert-no-other-kube-controller-manager"]).await?;
    ensure!(report.contains("deployment-controller: off in kube-controller-manager\n"), "{report}");
    Ok(())
}

#[tokio::test]
async fn migration_check_names_each_step_until_windlass_can_start() -> Result<()> {
    with_control_plane(ControlPlaneOptions::default(), async |plane, _audit| {
        cluster_without_visible_upstream_needs_a_statement(plane).await?;
        run_upstream(plane, "*,tokencleaner").await?;
        let (ready, report) = check(plane, &[ACCOUNT]).await?;
        ensure!(!ready && report.ends_with("2 steps remain before windlass can start; the report names them\n"), "{report}");
        for part in [
            "  kube-controller-manager-cp: --controllers=*,tokencleaner,-deployment-controller,-endpoints-controller\n",
            "  deployment-controller: runs in kube-controller-manager\n",
            "  update deployments/status.apps\n",
            "  get leases.coordination.k8s.io windlass in namespace kube-system\n",
            "  --concurrent-deployment-syncs=9\n",
        ] {
            ensure!(report.contains(part), "{part:?} is missing in {report}");
        }

        grant_roles(plane).await?;
        run_upstream(plane, "*,-deployment,-endpoints-controller").await?;
        // The API server applies new roles after a moment.
        eventually("windlass can start", async || check(plane, &[ACCOUNT]).await, |(ready, _)| *ready).await?;
        let (_, report) = check(plane, &[ACCOUNT, "--concurrent-deployment-syncs=9"]).await?;
        ensure!(report.ends_with("endpoints-controller: off in kube-controller-manager\n\nWindlass can start.\n"), "{report}");

        // Kubernetes binds its own roles to the ServiceAccounts of these controllers; windlass creates their tokens.
        let (ready, report) = check(plane, &["--use-service-account-credentials"]).await?;
        ensure!(!ready && report.contains("  create serviceaccounts/token in namespace kube-system\n"), "{report}");
        ensure!(!report.contains("deployments.apps"), "{report}");
        Ok(())
    })
    .await
}

/// A Deployment whose generation the acting process observes.
struct Probe {
    api: Api<Deployment>,
}

impl Probe {
    async fn create(plane: &ControlPlane) -> Result<Self> {
        let api = Api::<Deployment>::namespaced(plane.client().await, "default");
        let labels = json!({ "app": "probe" });
        let deployment = json!({
            "metadata": { "name": "probe" },
            "spec": { "replicas": 0, "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "main", "image": "main" }] },
            } },
        });
        api.create(&PostParams::default(), &serde_json::from_value(deployment)?).await?;
        Ok(Self { api })
    }

    /// Changes the Deployment, and waits until a process observes the change.
    async fn observed(&self, revisions: i32) -> Result<()> {
        let change = json!({ "spec": { "revisionHistoryLimit": revisions } });
        self.api.patch("probe", &PatchParams::default(), &Patch::Merge(&change)).await?;
        let observed = async || {
            let found = self.api.get("probe").await?;
            Ok(found.status.and_then(|status| status.observed_generation) >= found.metadata.generation)
        };
        eventually("a process observes the change", observed, |is_observed| *is_observed).await.map(drop)
    }
}

async fn stop(upstream: &Process) -> Result<()> {
    upstream.terminate();
    upstream.wait_exit(Duration::from_secs(30)).await.map(drop)
}

/// Returns the name of this machine, with which the identity of kube-controller-manager begins.
fn hostname() -> Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned())
}

/// Checks that no write of a client is between two writes of the other, and that both have written.
fn ensure_apart(audit: &Audit, first: &str, second: &str, since: usize) -> Result<usize> {
    let writes = audit.writes("", &[])?;
    let agents: Vec<_> = writes[since..].iter().map(|write| write.user_agent.as_str()).collect();
    let last = agents.iter().rposition(|agent| agent.starts_with(first));
    let next = agents.iter().position(|agent| agent.starts_with(second));
    ensure!(last.zip(next).is_some_and(|(last, next)| last < next), "{first} and {second}: {agents:#?}");
    Ok(since + last.unwrap_or_default() + 1)
}

#[tokio::test]
async fn controllers_move_and_return_while_one_process_acts_at_a_time() -> Result<()> {
    with_control_plane(ControlPlaneOptions::default(), async |plane, audit| {
        grant_roles(plane).await?;
        run_upstream(plane, "*").await?;
        let upstream = plane.start_upstream_controllers(&BEFORE, &ELECTION)?;
        let probe = Probe::create(plane).await?;
        probe.observed(1).await?;

        // The kubelet stops the process before it replaces the Pod. The check waits for this.
        let restart = async {
            probe.observed(2).await?;
            stop(&upstream).await?;
            let stopped = Instant::now();
            let upstream = plane.start_upstream_controllers(&DURING, &ELECTION)?;
            run_upstream(plane, "*,-deployment-controller,-endpoints-controller").await?;
            anyhow::Ok((stopped, upstream))
        };
        let (waited, restarted) = tokio::join!(check(plane, &[ACCOUNT, "--wait"]), restart);
        let ((ready, report), (stopped, upstream)) = (waited?, restarted?);
        ensure!(ready && report.contains("waiting: controllers of windlass run in kube-"), "{report}");
        let windlass = ManagerProcess::start(plane, &[CONTROLLERS]).await?;
        probe.observed(3).await?;
        let there = stopped.elapsed();
        let moved = ensure_apart(audit, "kube-controller-manager/", "windlass/", 0)?;

        exits_gracefully(&windlass, Duration::from_secs(30)).await?;
        let stopped = Instant::now();
        stop(&upstream).await?;
        let _upstream = plane.start_upstream_controllers(&BEFORE, &ELECTION)?;
        probe.observed(4).await?;
        let back = stopped.elapsed();
        ensure_apart(audit, "windlass/", "kube-controller-manager/", moved)?;
        ensure!(there < LONGEST_GAP && back < LONGEST_GAP, "{there:?} there, {back:?} back");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn migration_check_names_request_and_remedy_without_access() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let file = plane.kubeconfig_for("migration-reader", "migration-reader", None)?;
    let (ready, error) = check(plane, &[&format!("--kubeconfig={}", file.display())]).await?;
    ensure!(!ready && error.contains("pods is forbidden"), "{error}");
    ensure!(
        error.ends_with("use the kubeconfig of an administrator\n") && error.lines().count() == 1,
        "{error}"
    );
    Ok(())
}
