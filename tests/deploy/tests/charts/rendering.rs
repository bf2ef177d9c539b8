//! Renders without a cluster: lint, committed renders, and rejected values.

use anyhow::{Context as _, Result, ensure};
use windlass_deploy::{Chart, Helm, charts};

use crate::cases::{CASES, NAMESPACE, RELEASE, objects, only};

#[tokio::test]
async fn charts_pass_lint() -> Result<()> {
    let helm = Helm::new(None).await?;
    for chart in [Chart::Windlass, Chart::Operator] {
        let report = helm.run(&["lint", "--strict", &helm.path(chart)?]).await?;
        ensure!(report.contains("0 chart(s) failed"), "{report}");
    }
    Ok(())
}

#[tokio::test]
async fn renders_match_the_committed_files() -> Result<()> {
    let helm = Helm::new(None).await?;
    for case in CASES.iter().filter(|case| case.is_golden) {
        let render = helm.release("template", (RELEASE, case.chart, NAMESPACE), case.values, &[]).await?;
        let path = charts::root().join(format!("tests/deploy/golden/{}.yaml", case.name));
        if std::env::var_os("WRITE_DOCS").is_some() {
            std::fs::write(&path, &render)?;
        }
        let committed = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let rewrite = "WRITE_DOCS=1 cargo test -p windlass-deploy renders";
        ensure!(
            committed == render,
            "{} differs from the render; check it, and run {rewrite}",
            path.display()
        );
    }
    Ok(())
}

/// Values, and a part of the message.
const REJECTED: &[(&str, &str)] = &[
    ("replcas: 2", "additional properties 'replcas' not allowed"),
    ("replicas: many", "at '/replicas': got string, want integer"),
    ("kind: StatefulSet", "at '/kind': value must be one of 'DaemonSet', 'Deployment'"),
    ("image: {digest: latest}", "at '/image/digest': 'latest' does not match pattern"),
    ("port: 80", "at '/port': minimum: got 80, want 1,024"),
    ("namespaces: [Blue]", "at '/namespaces/0': 'Blue' does not match pattern"),
    ("extraArgs: [v=4]", "at '/extraArgs/0': 'v=4' does not match pattern"),
    (
        "leaderElection: {mode: active}",
        "at '/leaderElection/mode': value must be one of 'standby', 'shards', 'coordinated'",
    ),
    ("leaderElection: {leaseDuration: 15}", "at '/leaderElection/leaseDuration': got number, want string"),
    (
        "controllers: {deployment-controller: {enabled: true}}",
        "additional properties 'deployment-controller' not allowed",
    ),
    (
        "controllers: {endpoints-controller: {concurrency: 0}}",
        "at '/controllers/endpoints-controller/concurrency': minimum: got 0, want 1",
    ),
    (
        "config: {generic: {leaderElection: {}}}",
        "at '/config/generic': additional properties 'leaderElection' not allowed",
    ),
    (
        "namespaces: [blue]\ncontrollers: {replicaset-controller: {enabled: false}, \
         replicationcontroller-controller: {enabled: false}, endpoints-controller: {enabled: false}}",
        "controllers: all controllers are disabled; enable at least one",
    ),
    (
        "kind: Deployment",
        "kind=Deployment: a Deployment needs the ReplicaSet controller that Windlass replaces",
    ),
    ("extraEnv: [{name: A}, {name: A}]", "extraEnv: A is set twice; remove one entry"),
    (
        "useServiceAccountCredentials: true\nserviceAccount: {name: endpoint-controller}",
        "serviceAccount.name=endpoint-controller: with useServiceAccountCredentials this is the ServiceAccount of a controller",
    ),
];

#[tokio::test]
async fn invalid_values_are_rejected_with_culprit_and_problem() -> Result<()> {
    let helm = Helm::new(None).await?;
    for (values, part) in REJECTED {
        let message = helm.rejection(Chart::Windlass, values).await?;
        ensure!(message.contains(part), "{values}: {part:?} is not in: {message}");
    }
    Ok(())
}

#[tokio::test]
async fn single_namespaces_need_no_cluster_role() -> Result<()> {
    let helm = Helm::new(None).await?;
    let values = "namespaces: [blue]\nrbac: {reviews: false}\nmetrics: {reader: {create: false}}";
    let render = helm.release("template", (RELEASE, Chart::Windlass, NAMESPACE), values, &[]).await?;
    let objects = objects(&render)?;
    let of_kind = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).count();
    ensure!((of_kind("ClusterRole"), of_kind("ClusterRoleBinding")) == (0, 0), "{render}");
    // One for each of three controllers, and that of the Lease.
    ensure!((of_kind("Role"), of_kind("RoleBinding")) == (4, 4), "{render}");
    Ok(())
}

#[tokio::test]
async fn changed_configuration_changes_the_pods() -> Result<()> {
    let helm = Helm::new(None).await?;
    let mut checksums = Vec::new();
    for values in ["{}", "logging: {level: 4}", "image: {tag: edge}"] {
        let render = helm.release("template", (RELEASE, Chart::Windlass, NAMESPACE), values, &[]).await?;
        let objects = objects(&render)?;
        let template = &only(&objects, "DaemonSet")?["spec"]["template"];
        checksums.push(template["metadata"]["annotations"]["checksum/config"].clone());
    }
    ensure!(checksums[0] != checksums[1], "the level of the log is not part of the checksum");
    ensure!(checksums[0] == checksums[2], "the image is part of the checksum");
    Ok(())
}
