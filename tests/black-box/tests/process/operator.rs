//! Runs an operator with exactly the roles that it prints. It is elected, works and stops, and the API server denies no
//! request. Without one of the rules it names the missing rule.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use windlass_black_box::audit::{AUDITED, Audit};
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::implementation::{exits_gracefully, ready};
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::wait::eventually;
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

const TIMEOUT: Duration = Duration::from_secs(60);

/// The namespace and the user of the ServiceAccount. `hello` runs as `label-mirror`.
const NAMESPACE: &str = "ops";
const ACCOUNT: &str = "system:serviceaccount:ops:label-mirror";

/// Applies the printed roles.
async fn install(plane: &ControlPlane) -> Result<()> {
    let manifests = ManagerProcess::example_prints("hello", &["manifests", "--namespace=ops"]).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("manifests.yaml");
    std::fs::write(&file, &manifests)?;
    plane.kubectl(&["create", "namespace", NAMESPACE]).await?;
    let file = file.to_str().context("a path of text")?;
    plane.kubectl(&["apply", "--server-side", "-f", file]).await?;
    Ok(())
}

async fn service(namespace: &TestNamespace, name: &str) -> Result<()> {
    let labels = json!({ "tier": name });
    let service =
        json!({ "metadata": { "name": name, "labels": labels }, "spec": { "ports": [{ "port": 80 }] } });
    let services: Api<Service> = Api::namespaced(namespace.client.clone(), &namespace.namespace);
    services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

/// Waits until the ConfigMap of a Service has its label.
async fn is_mirrored(namespace: &TestNamespace, name: &str, tier: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(namespace.client.clone(), &namespace.namespace);
    let wanted = BTreeMap::from([("tier".to_owned(), tier.to_owned())]);
    let look = async || Ok(maps.get_opt(name).await?.and_then(|map| map.metadata.labels));
    eventually("the labels are mirrored", look, |labels| *labels == Some(wanted.clone())).await?;
    Ok(())
}

fn refused_nothing(audit: &Audit) -> Result<()> {
    let mut refused = audit.all_writes("")?;
    refused.retain(|request| {
        request.user.username == ACCOUNT && request.response_status.is_some_and(|answer| answer.code == 403)
    });
    ensure!(refused.is_empty(), "it was refused {refused:#?}");
    Ok(())
}

/// Removes `patch` of ConfigMaps from the role.
async fn take_patch(plane: &ControlPlane) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(plane.client().await);
    let role = roles.get("label-mirror").await?;
    let mut rules = role.rules.unwrap_or_default();
    let of_maps =
        |rule: &&mut PolicyRule| rule.resources.iter().flatten().any(|resource| resource == "configmaps");
    for rule in rules.iter_mut().filter(of_maps) {
        rule.verbs.retain(|verb| verb != "patch");
    }
    let patch = ClusterRole {
        metadata: ObjectMeta { name: Some("label-mirror".to_owned()), ..ObjectMeta::default() },
        rules: Some(rules),
        ..ClusterRole::default()
    };
    roles.patch("label-mirror", &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

#[tokio::test]
async fn operator_works_with_the_roles_that_it_prints() -> Result<()> {
    let options = ControlPlaneOptions::default().authorization_rbac(true);
    with_control_plane(options, async |plane, audit| {
        install(plane).await?;
        let kubeconfig = plane.kubeconfig_for("hello", ACCOUNT, Some(AUDITED))?;
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let operator =
            ManagerProcess::start_example(plane, "hello", &[&kubeconfig, "--lease-namespace=ops"])?;
        ready(&operator, TIMEOUT).await?;
        let namespace =
            TestNamespace { client: plane.client().await, namespace: plane.namespace("operator").await? };
        service(&namespace, "front").await?;
        is_mirrored(&namespace, "front", "front").await?;
        let services: Api<Service> = Api::namespaced(namespace.client.clone(), &namespace.namespace);
        let relabel = |tier: &str| Patch::Merge(json!({ "metadata": { "labels": { "tier": tier } } }));
        services.patch("front", &PatchParams::default(), &relabel("back")).await?;
        is_mirrored(&namespace, "front", "back").await?;
        refused_nothing(audit)?;
        let log = || std::fs::read_to_string(operator.log()).context("reading the log");
        ensure!(!log()?.contains("forbidden"), "it was refused something: {}", log()?);

        take_patch(plane).await?;
        let reported = async || {
            services.patch("front", &PatchParams::default(), &relabel("side")).await?;
            log()
        };
        let names_rule = |log: &String| log.contains("configmaps") && log.contains("patch");
        eventually("the log names the rule that is missing", reported, names_rule).await?;
        exits_gracefully(&operator, TIMEOUT).await
    })
    .await
}
