//! Renders without a cluster: lint, committed renders, and rejected values.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use windlass_deploy::{Chart, Helm, charts};

use crate::cases::{CASES, NAMESPACE, OPERATOR_EXTRAS, RELEASE, name_of, objects, only};

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
    ("watchNamespaces: [blue, blue]", "at '/watchNamespaces': items at 0 and 1 are equal"),
    ("watchNamespaces: [Blue]", "at '/watchNamespaces/0': 'Blue' does not match pattern"),
    ("extraArgs: [v=4]", "at '/extraArgs/0': 'v=4' does not match pattern"),
    (
        "leaderElection: {mode: active}",
        "at '/leaderElection/mode': value must be one of 'standby', 'shards', 'coordinated'",
    ),
    ("leaderElection: {leaseDuration: 15}", "at '/leaderElection/leaseDuration': got number, want string"),
    ("controllers: {job-controller: {enabled: true}}", "additional properties 'job-controller' not allowed"),
    (
        "controllers: {endpoints-controller: {concurrency: 0}}",
        "at '/controllers/endpoints-controller/concurrency': minimum: got 0, want 1",
    ),
    (
        "config: {generic: {leaderElection: {}}}",
        "at '/config/generic': additional properties 'leaderElection' not allowed",
    ),
    (
        "watchNamespaces: [blue]\ncontrollers: {deployment-controller: {enabled: false}, replicaset-controller: {enabled: false}, \
         replicationcontroller-controller: {enabled: false}, statefulset-controller: {enabled: false}, \
         endpoints-controller: {enabled: false}}",
        "controllers: all controllers are disabled; enable at least one",
    ),
    ("kind: Deployment", "kind=Deployment: a Deployment needs the controllers that Windlass replaces"),
    (
        "controllers: {daemonset-controller: {enabled: true}}",
        "kind=DaemonSet: a DaemonSet needs the DaemonSet controller that Windlass replaces",
    ),
    (
        "controllers: {root-ca-certificate-publisher-controller: {enabled: true}}",
        "rootCA.configMapName: root-ca-certificate-publisher-controller needs the CA of the API server",
    ),
    ("rootCA: {configMapName: kube-root-ca.crt}", "the controller itself writes this ConfigMap"),
    (
        "watchNamespaces: [blue]\nleaderElection: {mode: shards}",
        "leaderElection.mode=shards: shards divide all namespaces, and `watchNamespaces` selects some; leave one of them out",
    ),
    (
        "leaderElection: {mode: shards}",
        "leaderElection.leaseNamespace: with mode=shards the process can change each Lease of this namespace",
    ),
    (
        "serviceAccount: {create: false}",
        "serviceAccount.create=false: the Pods would use the ServiceAccount `default`",
    ),
    (
        "extraArgs: ['--leader_elect-resource-name=other']",
        "extraArgs: --leader_elect-resource-name=other bypasses the roles and the checks of the chart; set the value leaderElection",
    ),
    ("extraArgs: [--v=4, --shards=4]", "extraArgs: --shards=4 bypasses"),
    (
        "extraArgs: [--namespaces=green]",
        "extraArgs: --namespaces=green bypasses the roles and the checks of the chart; set the value watchNamespaces",
    ),
    ("extraArgs: ['--feature-gates=AllBeta=true']", "set the value config.featureGates"),
    (
        "terminationGracePeriodSeconds: 10",
        "terminationGracePeriodSeconds=10: running reconciles have 10s to complete",
    ),
    (
        "config: {generic: {controllerShutdownTimeout: 1m30.5s}}\nterminationGracePeriodSeconds: 90",
        "terminationGracePeriodSeconds=90: running reconciles have 1m30.5s to complete",
    ),
    (
        "config: {generic: {controllerShutdownTimeout: 0s}}",
        "config.generic.controllerShutdownTimeout=0s: running reconciles would be killed after 30 seconds",
    ),
    ("extraEnv: [{name: A}, {name: A}]", "extraEnv: A is set twice; remove one entry"),
    (
        "metrics: {renderMode: failIfMissing}",
        "metrics.renderMode=failIfMissing: the cluster does not serve ServiceMonitor",
    ),
    (
        "config: {featureGates: {CoordinatedLeaderElection: true}}",
        "config.featureGates: CoordinatedLeaderElection belongs to leaderElection.mode",
    ),
    (
        "useServiceAccountCredentials: true\nserviceAccount: {name: endpoint-controller}",
        "serviceAccount.name=endpoint-controller: with useServiceAccountCredentials this is the ServiceAccount of a controller",
    ),
];

/// Values of an operator, and a part of the message.
const REJECTED_OF_OPERATOR: &[(&str, &str)] = &[
    ("imgae: {tag: edge}", "additional properties 'imgae' not allowed"),
    ("image: {tga: edge}", "at '/image': additional properties 'tga' not allowed"),
    ("crds: {kept: false}", "at '/crds': additional properties 'kept' not allowed"),
    ("operator-base: {replicas: 3}", "additional properties 'replicas' not allowed"),
    ("logFormat: yaml", "at '/logFormat': value must be one of 'text', 'json'"),
    ("watchNamespaces: [blue, blue]", "at '/watchNamespaces': items at 0 and 1 are equal"),
    ("leaderElection: {mode: shards}", "additional properties 'leaderElection' not allowed"),
    ("rootCA: {configMapName: ca}", "additional properties 'rootCA' not allowed"),
    ("webhook: {failurePolicy: Never}", "at '/webhook/failurePolicy': value must be one of 'Fail', 'Ignore'"),
    ("webhook: {timeoutSeconds: 31}", "at '/webhook/timeoutSeconds': maximum: got 31, want 30"),
    (
        "extraArgs: [--webhook-client-ca-file=/ca, --watch-namespaces=blue]",
        "extraArgs: --watch-namespaces=blue bypasses the roles and the checks of the chart; set the value watchNamespaces",
    ),
    ("extraArgs: [--lease-namespace=blue]", "set the value namespaceOverride"),
    ("extraArgs: [--install-crds=true]", "set the value crds.enabled"),
    (
        "extraArgs: [--leader-elect=false]",
        "extraArgs: with --leader-elect=false more than one Pod can act at a time; remove it",
    ),
];

#[tokio::test]
async fn invalid_values_are_rejected_with_culprit_and_problem() -> Result<()> {
    let helm = Helm::new(None).await?;
    for (chart, cases) in [(Chart::Windlass, REJECTED), (Chart::Operator, REJECTED_OF_OPERATOR)] {
        for (values, part) in cases {
            let message = helm.rejection(chart, values).await?;
            ensure!(message.contains(part), "{values}: {part:?} is not in: {message}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn pods_in_the_network_of_the_node_use_the_dns_of_the_cluster() -> Result<()> {
    let helm = Helm::new(None).await?;
    let render =
        helm.release("template", (RELEASE, Chart::Windlass, NAMESPACE), "hostNetwork: true", &[]).await?;
    let workload = only(&objects(&render)?, "DaemonSet")?.clone();
    let pod = &workload["spec"]["template"]["spec"];
    ensure!(pod["hostNetwork"] == true && pod["dnsPolicy"] == "ClusterFirstWithHostNet", "{pod}");
    let other = "hostNetwork: true\ndnsPolicy: Default";
    let render = helm.release("template", (RELEASE, Chart::Windlass, NAMESPACE), other, &[]).await?;
    let workload = only(&objects(&render)?, "DaemonSet")?.clone();
    let pod = &workload["spec"]["template"]["spec"];
    ensure!(pod["hostNetwork"] == true && pod["dnsPolicy"] == "Default", "{pod}");
    ensure!(render.matches("dnsPolicy").count() == 1, "{render}");
    Ok(())
}

/// Fields of the Pods, whose values are unset by default.
const POD: &str = "
initContainers: [{name: init, image: init}]
extraContainers: [{name: proxy, image: proxy}]
dnsPolicy: None
dnsConfig: {nameservers: [10.0.0.10]}
hostAliases: [{ip: 10.0.0.1, hostnames: [a]}]
hostUsers: false
runtimeClassName: gvisor
schedulerName: other
podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}
";

#[tokio::test]
async fn pods_have_the_fields_of_the_values() -> Result<()> {
    let helm = Helm::new(None).await?;
    for (chart, kind) in [(Chart::Windlass, "DaemonSet"), (Chart::Operator, "Deployment")] {
        for (values, is_set) in [("{}", false), (POD, true)] {
            let render = helm.release("template", (RELEASE, chart, NAMESPACE), values, &[]).await?;
            let workload = only(&objects(&render)?, kind)?.clone();
            let pod = &workload["spec"]["template"]["spec"];
            let values: Value = serde_saphyr::from_str(POD)?;
            for field in [
                "initContainers",
                "dnsPolicy",
                "dnsConfig",
                "hostAliases",
                "hostUsers",
                "runtimeClassName",
                "schedulerName",
            ] {
                let expected = if is_set { &values[field] } else { &Value::Null };
                ensure!(pod[field] == *expected, "{field}: {pod}");
            }
            let proxy = &pod["containers"][1]["name"];
            ensure!(*proxy == if is_set { json!("proxy") } else { Value::Null }, "{pod}");
            let context = &pod["securityContext"];
            ensure!(
                context["runAsNonRoot"] == true && context["seccompProfile"]["type"] == "RuntimeDefault",
                "{context}"
            );
            for field in ["runAsUser", "runAsGroup", "fsGroup"] {
                ensure!(context[field].is_null() == is_set, "{field}: {context}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn openshift_selects_users_and_groups_except_those_of_the_values() -> Result<()> {
    let helm = Helm::new(None).await?;
    for (chart, kind) in [(Chart::Windlass, "DaemonSet"), (Chart::Operator, "Deployment")] {
        let values = "podSecurityContext: {fsGroup: 1000}";
        let served = ["--api-versions=security.openshift.io/v1"];
        let render = helm.release("template", (RELEASE, chart, NAMESPACE), values, &served).await?;
        let workload = only(&objects(&render)?, kind)?.clone();
        let context = &workload["spec"]["template"]["spec"]["securityContext"];
        let expected =
            json!({ "fsGroup": 1000, "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
        ensure!(*context == expected, "{context}");
    }
    Ok(())
}

const MONITORING: [&str; 2] = ["ServiceMonitor", "PrometheusRule"];

#[tokio::test]
async fn values_annotate_all_objects_and_render_monitoring_without_its_kinds() -> Result<()> {
    let helm = Helm::new(None).await?;
    let values = "commonAnnotations: {example.com/a: common, example.com/b: common}\n\
                  serviceAccount: {annotations: {example.com/b: own}}\nworkloadAnnotations: {example.com/b: own}\n\
                  metrics: {namespace: monitoring, renderMode: alwaysRender, dashboard: {enabled: true}}";
    for (chart, kind) in [(Chart::Windlass, "DaemonSet"), (Chart::Operator, "Deployment")] {
        let render = helm.release("template", (RELEASE, chart, NAMESPACE), values, &[]).await?;
        let objects = objects(&render)?;
        for object in &objects {
            let annotations = &object["metadata"]["annotations"];
            ensure!(annotations["example.com/a"] == "common", "{}: {annotations}", name_of(object));
            let is_own = object["kind"] == kind || object["kind"] == "ServiceAccount";
            let expected = if is_own { "own" } else { "common" };
            ensure!(annotations["example.com/b"] == expected, "{}: {annotations}", name_of(object));
        }
        let pod = &only(&objects, kind)?["spec"]["template"]["metadata"]["annotations"];
        ensure!(pod["example.com/a"].is_null(), "{pod}");
        for kind in MONITORING {
            let object = only(&objects, kind)?;
            ensure!(object["metadata"]["namespace"] == "monitoring", "{object}");
        }
        let selected = &only(&objects, "ServiceMonitor")?["spec"]["namespaceSelector"];
        ensure!(*selected == json!({ "matchNames": [NAMESPACE] }), "{selected}");
        let is_dashboard =
            |name: &str| name.starts_with("ConfigMap monitoring/") && name.ends_with("-dashboard");
        ensure!(objects.iter().any(|it| is_dashboard(&name_of(it))), "no dashboard: {render}");
        let skipped = helm.release("template", (RELEASE, chart, NAMESPACE), "{}", &[]).await?;
        ensure!(!MONITORING.iter().any(|kind| skipped.contains(kind)), "{skipped}");
    }
    Ok(())
}

#[tokio::test]
async fn notes_name_the_workload_and_missing_parts() -> Result<()> {
    let helm = Helm::new(None).await?;
    let complete =
        format!("image: {{digest: 'sha256:{}'}}\nmetrics: {{renderMode: alwaysRender}}", "0".repeat(64));
    for (chart, name, kind) in
        [(Chart::Windlass, "windlass", "DaemonSet"), (Chart::Operator, "site-operator", "Deployment")]
    {
        for (values, warnings) in [("rbac: {create: false}", 3), (&*complete, 0)] {
            let release = (name, chart, NAMESPACE);
            let output = helm.release("install", release, values, &["--dry-run=client"]).await?;
            let (_, notes) = output.split_once("NOTES:\n").context("no notes")?;
            ensure!(notes.contains(&format!("is installed as {kind} {NAMESPACE}/{name}.")), "{notes}");
            ensure!(notes.matches("WARNING: ").count() == warnings, "{notes}");
            ensure!(notes.contains(&format!(" {} {name}\n", kind.to_lowercase())), "no check: {notes}");
        }
    }
    Ok(())
}

/// The chart creates no role in another cluster.
#[tokio::test]
async fn notes_name_missing_roles_of_other_cluster() -> Result<()> {
    let helm = Helm::new(None).await?;
    let release = (RELEASE, Chart::Windlass, NAMESPACE);
    let output =
        helm.release("install", release, "kubeconfig: {secretName: other}", &["--dry-run=client"]).await?;
    let (_, notes) = output.split_once("NOTES:\n").context("no notes")?;
    ensure!(
        notes.contains("WARNING: this chart creates no roles in the cluster of kubeconfig.secretName"),
        "{notes}"
    );
    ensure!(!notes.contains("rbac.create"), "{notes}");
    Ok(())
}

#[tokio::test]
async fn webhooks_of_an_operator_follow_the_values() -> Result<()> {
    let helm = Helm::new(None).await?;
    let values = format!("watchNamespaces: [blue]\n{OPERATOR_EXTRAS}");
    let render = helm.release("template", (RELEASE, Chart::Operator, NAMESPACE), &values, &[]).await?;
    let objects = objects(&render)?;
    let configuration = only(&objects, "ValidatingWebhookConfiguration")?;
    let injected = &configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    ensure!(injected == "windlass-system/webhook", "{configuration}");
    let webhook = &configuration["webhooks"][0];
    ensure!(webhook["failurePolicy"] == "Ignore" && webhook["timeoutSeconds"] == 10, "{webhook}");
    let excluded =
        json!({ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"] });
    let selected = json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": ["blue"] });
    let selector = json!({ "matchLabels": { "example.com/review": "enabled" }, "matchExpressions": [excluded, selected] });
    ensure!(webhook["namespaceSelector"] == selector, "{webhook}");
    let crd = only(&objects, "CustomResourceDefinition")?;
    // The CRD has no conversion webhook.
    ensure!(
        crd["metadata"]["annotations"] == json!({ "helm.sh/resource-policy": "keep" }),
        "{}",
        crd["metadata"]
    );
    let pod = &only(&objects, "Deployment")?["spec"]["template"]["spec"];
    let mounted = json!({ "name": "webhook", "mountPath": "/etc/webhook", "readOnly": true });
    let mounts = pod["containers"][0]["volumeMounts"].as_array().context("no mounts")?;
    ensure!(mounts.contains(&mounted), "{mounts:?}");
    let secret =
        json!({ "name": "webhook", "secret": { "secretName": "webhook-certificate", "defaultMode": 288 } });
    ensure!(pod["volumes"].as_array().context("no volumes")?.contains(&secret), "{pod}");
    Ok(())
}

#[tokio::test]
async fn monitor_verifies_certificate_of_a_secret() -> Result<()> {
    let helm = Helm::new(None).await?;
    for (chart, kind, service, path) in [
        (Chart::Windlass, "DaemonSet", "windlass", "/etc/windlass/tls"),
        (Chart::Operator, "Deployment", "windlass-site-operator", "/etc/tls"),
    ] {
        for (secret, tls) in [
            ("", json!({ "insecureSkipVerify": true })),
            (
                "serving",
                json!({
                    "serverName": format!("{service}.{NAMESPACE}.svc"),
                    "ca": { "secret": { "name": "serving", "key": "ca.crt" } },
                }),
            ),
        ] {
            let values = format!("tls: {{secretName: '{secret}'}}\nmetrics: {{renderMode: alwaysRender}}");
            let render = helm.release("template", (RELEASE, chart, NAMESPACE), &values, &[]).await?;
            let objects = objects(&render)?;
            let monitor = &only(&objects, "ServiceMonitor")?["spec"]["endpoints"][0]["tlsConfig"];
            ensure!(*monitor == tls, "{monitor}");
            let service = format!("Service {NAMESPACE}/{service}");
            ensure!(objects.iter().any(|it| name_of(it) == service), "no {service}: {render}");
            let pod = &only(&objects, kind)?["spec"]["template"]["spec"];
            let (volumes, mounts) = (&pod["volumes"], &pod["containers"][0]["volumeMounts"]);
            let [volume, mount] = [volumes, mounts].map(|list| {
                list.as_array()
                    .into_iter()
                    .flatten()
                    .find(|it| it["name"] == "tls")
                    .cloned()
                    .unwrap_or_default()
            });
            if secret.is_empty() {
                ensure!(volume.is_null() && mount.is_null() && !render.contains("tls.key"), "{pod}");
                continue;
            }
            let expected = json!({ "secretName": secret, "defaultMode": 288 });
            ensure!(volume["secret"] == expected && mount["mountPath"] == path, "{volume} {mount}");
            ensure!(
                render.contains(&format!("{path}/tls.crt")) && render.contains(&format!("{path}/tls.key"))
            );
        }
    }
    Ok(())
}

/// Helm reads numbers as floats, which templates print with an exponent from a million on.
const LARGE_NUMBERS: &str = "
kind: Deployment
controllers: {deployment-controller: {enabled: false}, replicaset-controller: {enabled: false}}
replicas: 2000000
revisionHistoryLimit: 2000000
terminationGracePeriodSeconds: 2592000
token: {expirationSeconds: 2592000}
podDisruptionBudget: {maxUnavailable: 1000000}
client: {qps: 1000000, burst: 1000000}
probes: {startup: {failureThreshold: 3000000}}
podSecurityContext: {runAsUser: 1000660000}
";

#[tokio::test]
async fn large_numbers_are_rendered_without_exponent() -> Result<()> {
    let helm = Helm::new(None).await?;
    let least = "podDisruptionBudget: {minAvailable: 1000000}";
    for more in ["", least] {
        let values = match more {
            "" => LARGE_NUMBERS.to_owned(),
            _ => LARGE_NUMBERS.replace("podDisruptionBudget: {maxUnavailable: 1000000}", more),
        };
        let render = helm.release("template", (RELEASE, Chart::Windlass, NAMESPACE), &values, &[]).await?;
        let with_exponent: Vec<_> = render.lines().filter(|line| line.contains("e+0")).collect();
        ensure!(with_exponent.is_empty(), "{with_exponent:?}");
        for number in ["2000000", "2592000", "1000000", "3000000", "1000660000"] {
            ensure!(render.contains(&format!(": {number}\n")), "no {number}: {render}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn single_namespaces_need_no_cluster_role() -> Result<()> {
    let helm = Helm::new(None).await?;
    let values = "watchNamespaces: [blue]\nrbac: {reviews: false}\nmetrics: {reader: {create: false}}";
    // Another release contains the CRDs, and cert-manager writes the authority of the webhooks.
    let of_operator =
        format!("{values}\ncrds: {{enabled: false}}\nwebhook: {{secretName: webhook-certificate}}");
    // One role for each of five controllers or for the only one, and that of the Lease.
    for (chart, values, roles) in [(Chart::Windlass, values, 6), (Chart::Operator, &of_operator, 2)] {
        let render = helm.release("template", (RELEASE, chart, NAMESPACE), values, &[]).await?;
        let objects = objects(&render)?;
        let of_kind = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).count();
        ensure!((of_kind("ClusterRole"), of_kind("ClusterRoleBinding")) == (0, 0), "{render}");
        ensure!((of_kind("Role"), of_kind("RoleBinding")) == (roles, roles), "{render}");
    }
    Ok(())
}

/// The first release contains the CRD. Each release has its own webhooks, for its own namespace.
#[tokio::test]
async fn releases_in_two_namespaces_share_no_object() -> Result<()> {
    let helm = Helm::new(None).await?;
    let mut names = BTreeSet::new();
    for (release, has_crds) in [("blue", true), ("green", false)] {
        let values = format!("watchNamespaces: [{release}]\ncrds: {{enabled: {has_crds}}}");
        let render = helm.release("template", (release, Chart::Operator, release), &values, &[]).await?;
        let objects = objects(&render)?;
        for object in &objects {
            ensure!(names.insert(name_of(object)), "both releases contain {}", name_of(object));
        }
        let own = format!("{release}-site-operator");
        let configuration = only(&objects, "ValidatingWebhookConfiguration")?;
        ensure!(configuration["metadata"]["name"] == own, "{configuration}");
        let selected = json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": [release] });
        let selector = &configuration["webhooks"][0]["namespaceSelector"];
        ensure!(*selector == json!({ "matchExpressions": [selected] }), "{selector}");
        let container = &only(&objects, "Deployment")?["spec"]["template"]["spec"]["containers"][0];
        let passed = json!(format!("--webhook-configuration={own}"));
        let arguments = container["args"].as_array().context("no arguments")?;
        ensure!(arguments.contains(&passed), "{arguments:?}");
        let rules = objects.iter().filter_map(|object| object["rules"].as_array()).flatten();
        let mut rules = rules.filter(|rule| rule["resources"] == json!(["validatingwebhookconfigurations"]));
        let rule = rules.next().context("no permission to write the authority")?;
        ensure!(rule["resourceNames"] == json!([own]), "{rule}");
    }
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

/// Names that YAML reads as numbers or booleans, if they are not quoted.
const NAMES_LIKE_NUMBERS: &str = r#"
fullnameOverride: "1"
watchNamespaces: ["2", "true"]
priorityClassName: "3"
tls: {secretName: "4"}
serviceAccount: {name: "5"}
leaderElection: {leaseName: "6", leaseNamespace: "7"}
metrics: {reader: {serviceAccounts: [{name: "8", namespace: "9"}]}}
"#;

/// Returns the paths of names and label values that are not strings.
fn not_strings(value: &Value, path: &str, is_label: bool) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let below = |(field, value): (&String, &Value)| {
                let is_label = ["labels", "matchLabels", "annotations"]
                    .contains(&path.rsplit('.').next().unwrap_or_default());
                let is_name = field.ends_with("ame") || field == "namespace";
                not_strings(value, &format!("{path}.{field}"), is_label || is_name)
            };
            fields.iter().flat_map(below).collect()
        }
        Value::Array(items) => {
            let is_name = path.ends_with(".resourceNames");
            items.iter().flat_map(|item| not_strings(item, path, is_name)).collect()
        }
        Value::String(_) => Vec::new(),
        _ if is_label => vec![format!("{path}={value}")],
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn names_like_numbers_are_rendered_as_strings() -> Result<()> {
    let helm = Helm::new(None).await?;
    let monitoring = ["monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PrometheusRule"];
    let served = ["--api-versions", monitoring[0], "--api-versions", monitoring[1]];
    let of_operator = "fullnameOverride: '1'\ntls: {secretName: '4'}";
    for (chart, values) in [(Chart::Windlass, NAMES_LIKE_NUMBERS), (Chart::Operator, of_operator)] {
        let render = helm.release("template", ("123", chart, "456"), values, &served).await?;
        for object in objects(&render)? {
            let wrong = not_strings(&object, "", false);
            ensure!(wrong.is_empty(), "{}: {wrong:?}: {render}", name_of(&object));
        }
    }
    Ok(())
}
