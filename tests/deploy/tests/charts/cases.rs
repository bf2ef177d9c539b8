//! Values, rendered objects and programs that several tests use.

use anyhow::{Context as _, Result};
use serde_json::Value;
use windlass_deploy::Chart;

/// Values of one test case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) chart: Chart,
    pub(crate) values: &'static str,
    /// Whether the render is compared with a committed file.
    pub(crate) is_golden: bool,
}

const fn case(name: &'static str, chart: Chart, values: &'static str) -> Case {
    Case { name, chart, values, is_golden: false }
}

const fn golden(name: &'static str, chart: Chart, values: &'static str) -> Case {
    Case { name, chart, values, is_golden: true }
}

/// The matrix: each value is set in at least one case.
pub(crate) const CASES: &[Case] = &[
    golden("defaults", Chart::Windlass, "{}"),
    golden(
        "deployment",
        Chart::Windlass,
        r#"
kind: Deployment
replicas: 3
controllers:
  deployment-controller: {enabled: false}
  replicaset-controller: {enabled: false}
  daemonset-controller: {enabled: true}
  root-ca-certificate-publisher-controller: {enabled: true}
rootCA: {configMapName: cluster-ca, key: ca.pem}
useServiceAccountCredentials: true
image: {registry: registry.example.com, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
imagePullSecrets: [{name: pull}]
tls: {secretName: serving}
nodeSelector: {kubernetes.io/os: linux}
antiAffinity: required
updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
podDisruptionBudget: {minAvailable: 50%}
metrics: {reader: {serviceAccounts: [{name: prometheus, namespace: monitoring}]}}
"#,
    ),
    golden(
        "namespaces",
        Chart::Windlass,
        r#"
nameOverride: keeper
fullnameOverride: blue-keeper
watchNamespaces: [blue, green]
rbac: {reviews: false}
metrics: {reader: {create: false}}
leaderElection: {leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 5s}
config:
  generic: {minResyncPeriod: 6h, controllerStartInterval: 1s, controllerShutdownTimeout: 15s, workerThreads: 2}
  endpointController: {endpointUpdatesBatchPeriod: 500ms}
  podGCController: {terminatedPodGCThreshold: 0}
  authentication: {webhook: {cacheTTL: 2m}}
  authorization: {webhook: {cacheAuthorizedTTL: 2m, cacheUnauthorizedTTL: 10s}}
  featureGates: {PodDeletionCost: false}
"#,
    ),
    case(
        "shards",
        Chart::Windlass,
        "leaderElection: {mode: shards, shards: 8, leaseNamespace: green}\nhostNetwork: false\ndnsPolicy: Default\n\
         flowControl: {create: false}\nkubeControllerManager: {check: false}",
    ),
    case(
        "coordinated",
        Chart::Windlass,
        "namespaceOverride: blue\nleaderElection: {mode: coordinated, leaseName: other, leaseNamespace: green}\n\
         bindAddress: '::'\nport: 8443\nlogging: {level: 4, format: text}\nclient: {qps: -1, burst: 100, fieldManager: kube-controller-manager}",
    ),
    case(
        "other-cluster",
        Chart::Windlass,
        "kind: Deployment\nkubeconfig: {secretName: hosted, key: config}\nantiAffinity: none\n\
         topologySpreadConstraints: []\npodDisruptionBudget: {maxUnavailable: 25%}\n\
         networkPolicy: {extraEgress: [{ports: [{port: 53, protocol: UDP}]}]}",
    ),
    case(
        "namespaced-accounts",
        Chart::Windlass,
        "watchNamespaces: [blue]\nuseServiceAccountCredentials: true\nrevisionHistoryLimit: 3\npriorityClassName: ''",
    ),
    case(
        "existing-objects",
        Chart::Windlass,
        "serviceAccount: {create: false, name: existing}\nrbac: {create: false}\nnetworkPolicy: {enabled: false}\n\
         podDisruptionBudget: {enabled: false}\n\
         metrics: {service: {enabled: false}, reader: {create: false}, serviceMonitor: {enabled: false}, \
         prometheusRule: {enabled: false}}",
    ),
    case(
        "extras",
        Chart::Windlass,
        r#"
commonLabels: {team: platform}
commonAnnotations: {example.com/team: platform}
workloadAnnotations: {example.com/restart: "true"}
dnsConfig: {options: [{name: ndots, value: "2"}]}
hostAliases: [{ip: 10.0.0.1, hostnames: [registry.example.com]}]
hostUsers: false
runtimeClassName: gvisor
schedulerName: default-scheduler
serviceAccount: {annotations: {example.com/a: b}}
token: {expirationSeconds: 7200}
podAnnotations: {example.com/c: d}
podLabels: {example.com/e: f}
podSecurityContext: {supplementalGroups: [1000]}
securityContext: {runAsNonRoot: true}
resources: {limits: {memory: 1Gi}}
probes: {startup: {failureThreshold: 60}, liveness: {timeoutSeconds: 10}, readiness: {periodSeconds: 10}}
terminationGracePeriodSeconds: 60
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
networkPolicy:
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  apiServerPorts: [6443]
  extraIngress: [{ports: [{port: 9000}]}]
image: {repository: mirror/windlass, tag: edge, pullPolicy: Always}
metrics:
  namespace: monitoring
  renderMode: skipIfMissing
  service: {port: 443, annotations: {example.com/g: h}}
  dashboard: {enabled: true, labels: {grafana_dashboard: "1"}, annotations: {grafana_folder: Platform}}
extraArgs: [--v=6]
extraEnv: [{name: A, value: b}, {name: C, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
extraEnvFrom: [{configMapRef: {name: env, optional: true}}]
extraVolumes: [{name: scratch, emptyDir: {}}]
extraVolumeMounts: [{name: scratch, mountPath: /scratch}]
initContainers:
- {name: init, image: init, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
extraContainers:
- {name: proxy, image: proxy, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
extraObjects:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Release.Name }}-a", namespace: "{{ .Release.Namespace }}"}}
- |
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: {{ .Release.Name }}-b, namespace: {{ .Release.Namespace }}}
"#,
    ),
    golden("operator", Chart::Operator, "{}"),
    case(
        "operator-namespaces",
        Chart::Operator,
        "watchNamespaces: [blue]\ncrds: {keep: false, aggregateRoles: false}\nbindAddress: 0.0.0.0\nlogFormat: text\n\
         metrics: {dashboard: {enabled: true}}",
    ),
    case("operator-without-crds", Chart::Operator, "crds: {enabled: false}\nreplicas: 1\nkind: DaemonSet"),
    golden("operator-extras", Chart::Operator, OPERATOR_EXTRAS),
];

/// Values of webhooks and requests that only an operator has, and a certificate.
pub(crate) const OPERATOR_EXTRAS: &str = "
flowControl: {create: true}
tls: {secretName: serving}
webhook:
  port: 9444
  secretName: webhook-certificate
  failurePolicy: Ignore
  timeoutSeconds: 10
  namespaceSelector:
    matchLabels: {example.com/review: enabled}
    matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]
  annotations: {cert-manager.io/inject-ca-from: windlass-system/webhook}
";

/// The name of the release in renders.
pub(crate) const RELEASE: &str = "windlass";

/// The namespace of the release.
pub(crate) const NAMESPACE: &str = "windlass-system";

/// Splits YAML documents and parses them.
pub(crate) fn objects(yaml: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    let mut document = String::new();
    for line in yaml.lines().chain(["---"]) {
        if line != "---" {
            document += line;
            document.push('\n');
            continue;
        }
        let text = std::mem::take(&mut document);
        let object: Value = serde_saphyr::from_str(&text).with_context(|| format!("not YAML: {text}"))?;
        if !object.is_null() {
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Returns the only object of a kind.
pub(crate) fn only<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    let mut matching = objects.iter().filter(|object| object["kind"] == kind);
    let first = matching.next().with_context(|| format!("no {kind}"))?;
    anyhow::ensure!(matching.next().is_none(), "more than one {kind}");
    Ok(first)
}

/// Returns `Kind namespace/name`.
pub(crate) fn name_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    format!("{} {}/{}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}
