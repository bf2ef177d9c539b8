//! `windlass migrate check` next to a kube-controller-manager, whose Pod is an object like that of a static Pod.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::wait::eventually;
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

const CONTROLLERS: &str = "--controllers=deployment,endpoint";
const ACCOUNT: &str = "--as=system:serviceaccount:kube-system:windlass";

/// Runs the check; returns whether windlass can start, and the report or the error.
async fn check(plane: &ControlPlane, words: &[&str]) -> Result<(bool, String)> {
    let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig_path().display());
    let words = [&["migrate", "check", CONTROLLERS, &kubeconfig], words].concat();
    let output = ManagerProcess::command(&words).await?;
    let report = String::from_utf8(output.stdout)?;
    let error = String::from_utf8(output.stderr)?;
    Ok((output.status.success(), format!("{report}{error}")))
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
        "spec": { "schedulerName": "nobody", "containers": [{
            "name": "kube-controller-manager",
            "image": "kube-controller-manager",
            "command": ["kube-controller-manager", format!("--controllers={controllers}")],
            "args": ["--concurrent-deployment-syncs=9"],
        }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    Ok(())
}

/// Creates or renews the Lease of kube-controller-manager.
async fn renew_lease(plane: &ControlPlane, number: u32) -> Result<()> {
    let leases = Api::<Lease>::namespaced(plane.client().await, "kube-system");
    // Of another clock: years ago.
    let renewed = format!("2020-01-01T00:00:{:02}.000000Z", number % 60);
    let spec = json!({ "holderIdentity": "cp_1", "leaseDurationSeconds": 4, "renewTime": renewed });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "kube-controller-manager" },
        "spec": spec,
    });
    let parameters = PatchParams::apply("test").force();
    leases.patch("kube-controller-manager", &parameters, &Patch::Apply(&lease)).await?;
    Ok(())
}

/// A kube-controller-manager in no Pod is found by the renewals of its Lease, whatever its clock shows.
async fn hidden_upstream_is_found_by_its_renewals(plane: &ControlPlane) -> Result<()> {
    renew_lease(plane, 0).await?;
    let (ready, report) = check(plane, &[]).await?;
    ensure!(ready && report.contains("kube-controller-manager: no leader\n"), "{report}");
    let renewals = async {
        for number in 1.. {
            renew_lease(plane, number).await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok::<_, anyhow::Error>(())
    };
    let (ready, report) = tokio::select! {
        checked = check(plane, &[]) => checked?,
        failed = renewals => return failed,
    };
    ensure!(!ready && report.contains("deployment-controller: unknown\n"), "{report}");
    ensure!(report.contains("runs that is in no Pod of kube-system"), "{report}");
    Ok(())
}

#[tokio::test]
async fn migration_check_names_each_step_until_windlass_can_start() -> Result<()> {
    with_control_plane(ControlPlaneOptions::default(), async |plane, _audit| {
        hidden_upstream_is_found_by_its_renewals(plane).await?;
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

        let manifests = ManagerProcess::command(&["manifests", "rbac", CONTROLLERS]).await?;
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), manifests.stdout)?;
        plane.kubectl(&["apply", "-f", file.path().to_str().context("a path")?]).await?;
        run_upstream(plane, "*,-deployment,-endpoints-controller").await?;
        // The API server applies new roles after a moment.
        eventually("windlass can start", async || check(plane, &[ACCOUNT]).await, |(ready, _)| *ready).await?;
        let (_, report) = check(plane, &[ACCOUNT, "--concurrent-deployment-syncs=9"]).await?;
        ensure!(report.ends_with("endpoints-controller: free\n\nWindlass can start.\n"), "{report}");

        // Kubernetes binds its own roles to the ServiceAccounts of these controllers.
        let (ready, report) = check(plane, &["--use-service-account-credentials"]).await?;
        ensure!(ready, "{report}");
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
