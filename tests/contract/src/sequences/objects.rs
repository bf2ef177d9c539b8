//! Kinds of the sequences, with valid objects.

use fastrand::Rng;
use serde_json::{Value, json};

/// A kind whose requests are generated.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Group version of the path: `v1`, `apps/v1`.
    pub version: &'static str,
    /// Plural name in the path.
    pub plural: &'static str,
    /// Name of the kind.
    pub kind: &'static str,
    /// Whether objects are in a namespace.
    pub namespaced: bool,
    /// Subresources that have the form of the object.
    pub subresources: &'static [&'static str],
    /// Whether the subresource `scale` exists.
    pub scales: bool,
    /// Relative frequency.
    pub weight: u32,
    /// Content of a valid object, without identity.
    pub content: fn(&mut Rng) -> Value,
}

const PLAIN: Kind = Kind {
    version: "v1",
    plural: "",
    kind: "",
    namespaced: true,
    subresources: &[],
    scales: false,
    weight: 4,
    content: |_| json!({}),
};

/// All kinds.
pub const KINDS: &[Kind] = &[
    Kind { plural: "pods", kind: "Pod", subresources: &["status"], weight: 9, content: pod, ..PLAIN },
    Kind {
        plural: "services",
        kind: "Service",
        subresources: &["status"],
        weight: 6,
        content: service,
        ..PLAIN
    },
    Kind { plural: "endpoints", kind: "Endpoints", weight: 5, content: endpoints, ..PLAIN },
    Kind { plural: "configmaps", kind: "ConfigMap", weight: 5, content: config_map, ..PLAIN },
    Kind { plural: "secrets", kind: "Secret", content: secret, ..PLAIN },
    Kind { plural: "serviceaccounts", kind: "ServiceAccount", weight: 2, content: service_account, ..PLAIN },
    Kind { plural: "events", kind: "Event", weight: 3, content: event, ..PLAIN },
    Kind { version: "coordination.k8s.io/v1", plural: "leases", kind: "Lease", content: lease, ..PLAIN },
    Kind {
        plural: "namespaces",
        kind: "Namespace",
        namespaced: false,
        subresources: &["status", "finalize"],
        weight: 1,
        ..PLAIN
    },
    Kind {
        plural: "nodes",
        kind: "Node",
        namespaced: false,
        subresources: &["status"],
        weight: 3,
        content: node,
        ..PLAIN
    },
    Kind {
        version: "apps/v1",
        plural: "replicasets",
        kind: "ReplicaSet",
        subresources: &["status"],
        scales: true,
        weight: 5,
        content: replica_set,
        ..PLAIN
    },
    Kind {
        plural: "replicationcontrollers",
        kind: "ReplicationController",
        subresources: &["status"],
        scales: true,
        weight: 3,
        content: replication_controller,
        ..PLAIN
    },
    Kind {
        version: "apps/v1",
        plural: "deployments",
        kind: "Deployment",
        subresources: &["status"],
        scales: true,
        weight: 8,
        content: deployment,
        ..PLAIN
    },
    Kind {
        version: "apps/v1",
        plural: "daemonsets",
        kind: "DaemonSet",
        subresources: &["status"],
        weight: 5,
        content: daemon_set,
        ..PLAIN
    },
    Kind {
        version: "apps/v1",
        plural: "statefulsets",
        kind: "StatefulSet",
        subresources: &["status"],
        scales: true,
        weight: 5,
        content: stateful_set,
        ..PLAIN
    },
    Kind {
        version: "batch/v1",
        plural: "jobs",
        kind: "Job",
        subresources: &["status"],
        weight: 8,
        content: job,
        ..PLAIN
    },
    Kind {
        version: "batch/v1",
        plural: "cronjobs",
        kind: "CronJob",
        subresources: &["status"],
        weight: 5,
        content: cron_job,
        ..PLAIN
    },
    Kind {
        plural: "persistentvolumeclaims",
        kind: "PersistentVolumeClaim",
        subresources: &["status"],
        content: claim,
        ..PLAIN
    },
    Kind {
        version: "policy/v1",
        plural: "poddisruptionbudgets",
        kind: "PodDisruptionBudget",
        subresources: &["status"],
        content: budget,
        ..PLAIN
    },
    Kind {
        version: "apps/v1",
        plural: "controllerrevisions",
        kind: "ControllerRevision",
        weight: 3,
        content: revision,
        ..PLAIN
    },
    Kind {
        version: "discovery.k8s.io/v1",
        plural: "endpointslices",
        kind: "EndpointSlice",
        weight: 4,
        content: slice,
        ..PLAIN
    },
];

impl Kind {
    /// Returns a valid object of this name.
    #[must_use]
    pub fn object(&self, name: &str, rng: &mut Rng) -> Value {
        let mut object = (self.content)(rng);
        object["apiVersion"] = json!(self.version);
        object["kind"] = json!(self.kind);
        let mut metadata = json!({ "name": name });
        if rng.u8(..3) == 0 {
            metadata["labels"] = labels(rng);
        }
        if rng.u8(..5) == 0 {
            metadata["annotations"] = json!({ "example.com/note": word(rng) });
        }
        object["metadata"] = metadata;
        object
    }
}

/// Returns a short word.
pub fn word(rng: &mut Rng) -> &'static str {
    pick(rng, &["one", "two", "three", "four"])
}

/// Returns one of the values.
pub fn pick<T: Copy>(rng: &mut Rng, values: &[T]) -> T {
    values[rng.usize(..values.len())]
}

fn labels(rng: &mut Rng) -> Value {
    json!({ "app": pick(rng, &["web", "db"]), "tier": word(rng) })
}

/// Adds the field with a probability of one in `odds`.
fn maybe(rng: &mut Rng, odds: u8, object: &mut Value, field: &str, value: Value) {
    if rng.u8(..odds) == 0 {
        object[field] = value;
    }
}

fn probe(rng: &mut Rng) -> Value {
    match rng.u8(..4) {
        0 => json!({ "httpGet": { "path": "/ready", "port": 80 } }),
        1 => json!({ "tcpSocket": { "port": "http" }, "periodSeconds": 5 }),
        2 => json!({ "grpc": { "port": 90 } }),
        _ => json!({ "exec": { "command": ["true"] }, "initialDelaySeconds": 3 }),
    }
}

fn container(rng: &mut Rng, name: &str) -> Value {
    let mut it = json!({ "name": name, "image": pick(rng, &["nginx", "nginx:1.27", "busybox:latest"]) });
    maybe(rng, 3, &mut it, "ports", json!([{ "name": "http", "containerPort": 80 }]));
    maybe(rng, 6, &mut it, "command", json!(["sh", "-c", "sleep 1"]));
    maybe(rng, 4, &mut it, "env", json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }]));
    let memory = pick(rng, &["64Mi", "1024Ki", "0.5Gi", "128M"]);
    let resources = json!({ "requests": { "cpu": "100m", "memory": memory }, "limits": { "cpu": "1.5" } });
    maybe(rng, 3, &mut it, "resources", resources);
    let probe = probe(rng);
    maybe(rng, 4, &mut it, "livenessProbe", probe);
    maybe(rng, 9, &mut it, "lifecycle", json!({ "preStop": { "exec": { "command": ["true"] } } }));
    maybe(rng, 7, &mut it, "securityContext", json!({ "runAsNonRoot": true, "runAsUser": 1000 }));
    maybe(rng, 6, &mut it, "volumeMounts", json!([{ "name": "data", "mountPath": "/data" }]));
    it
}

fn pod_spec(rng: &mut Rng) -> Value {
    let mut it = json!({ "containers": [container(rng, "main")] });
    if rng.u8(..4) == 0 {
        it["containers"] = json!([container(rng, "main"), container(rng, "sidecar")]);
    }
    let first = container(rng, "init");
    maybe(rng, 6, &mut it, "initContainers", json!([first]));
    let volume = match rng.u8(..4) {
        0 => json!({ "name": "data" }),
        1 => json!({ "name": "data", "configMap": { "name": "config" } }),
        2 => json!({ "name": "data", "secret": { "secretName": "secret" } }),
        _ => json!({ "name": "data", "emptyDir": {} }),
    };
    it["volumes"] = json!([volume]);
    maybe(rng, 5, &mut it, "nodeSelector", json!({ "disk": "ssd" }));
    maybe(rng, 6, &mut it, "terminationGracePeriodSeconds", json!(5));
    maybe(rng, 8, &mut it, "hostNetwork", json!(true));
    maybe(rng, 8, &mut it, "serviceAccountName", json!("runner"));
    maybe(
        rng,
        8,
        &mut it,
        "tolerations",
        json!([{ "key": "a", "operator": "Exists", "effect": "NoSchedule" }]),
    );
    maybe(rng, 9, &mut it, "securityContext", json!({ "fsGroup": 2000 }));
    maybe(rng, 12, &mut it, "priorityClassName", json!("system-node-critical"));
    it
}

fn pod(rng: &mut Rng) -> Value {
    let mut spec = pod_spec(rng);
    maybe(rng, 5, &mut spec, "nodeName", json!("node-1"));
    maybe(rng, 6, &mut spec, "restartPolicy", json!("Never"));
    maybe(rng, 9, &mut spec, "schedulingGates", json!([{ "name": "example.com/gate" }]));
    maybe(rng, 9, &mut spec, "activeDeadlineSeconds", json!(60));
    json!({ "spec": spec })
}

fn template(rng: &mut Rng, restart: &str) -> Value {
    let mut spec = pod_spec(rng);
    if !restart.is_empty() {
        spec["restartPolicy"] = json!(restart);
    }
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": spec })
}

fn selector(rng: &mut Rng) -> Value {
    match rng.u8(..5) {
        0 => json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["web", "db"] }] }),
        _ => json!({ "matchLabels": { "app": "web" } }),
    }
}

fn workload(rng: &mut Rng) -> Value {
    let mut spec = json!({ "selector": selector(rng), "template": template(rng, "") });
    maybe(rng, 5, &mut spec, "minReadySeconds", json!(5));
    spec
}

fn replica_set(rng: &mut Rng) -> Value {
    let mut spec = workload(rng);
    let replicas = rng.u8(..5);
    maybe(rng, 2, &mut spec, "replicas", json!(replicas));
    json!({ "spec": spec })
}

fn replication_controller(rng: &mut Rng) -> Value {
    let mut spec = json!({ "template": template(rng, "") });
    maybe(rng, 2, &mut spec, "selector", json!({ "app": "web" }));
    maybe(rng, 2, &mut spec, "replicas", json!(2));
    json!({ "spec": spec })
}

fn deployment(rng: &mut Rng) -> Value {
    let mut object = replica_set(rng);
    let spec = &mut object["spec"];
    maybe(rng, 6, spec, "paused", json!(true));
    maybe(rng, 5, spec, "revisionHistoryLimit", json!(3));
    let strategy = match rng.u8(..3) {
        0 => json!({ "type": "Recreate" }),
        1 => json!({ "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } }),
        _ => json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "50%" } }),
    };
    maybe(rng, 2, spec, "strategy", strategy);
    object
}

fn daemon_set(rng: &mut Rng) -> Value {
    let mut spec = workload(rng);
    let strategy = match rng.u8(..3) {
        0 => json!({ "type": "OnDelete" }),
        1 => json!({ "rollingUpdate": { "maxUnavailable": "10%" } }),
        _ => json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } }),
    };
    maybe(rng, 2, &mut spec, "updateStrategy", strategy);
    json!({ "spec": spec })
}

fn stateful_set(rng: &mut Rng) -> Value {
    let mut object = replica_set(rng);
    let spec = &mut object["spec"];
    spec["serviceName"] = json!("web");
    maybe(rng, 3, spec, "podManagementPolicy", json!("Parallel"));
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    maybe(rng, 3, spec, "volumeClaimTemplates", json!([claim]));
    let strategy = match rng.u8(..2) {
        0 => json!({ "type": "OnDelete" }),
        _ => json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 1 } }),
    };
    maybe(rng, 3, spec, "updateStrategy", strategy);
    maybe(rng, 6, spec, "persistentVolumeClaimRetentionPolicy", json!({ "whenDeleted": "Delete" }));
    maybe(rng, 6, spec, "ordinals", json!({ "start": 2 }));
    object
}

fn job_spec(rng: &mut Rng) -> Value {
    let restart = pick(rng, &["Never", "OnFailure"]);
    let mut spec = json!({ "template": template(rng, restart) });
    if rng.bool() {
        spec["template"]["metadata"] = json!({});
    }
    match rng.u8(..4) {
        0 => {
            spec["completions"] = json!(3);
            spec["completionMode"] = json!("Indexed");
        }
        1 => spec["parallelism"] = json!(2),
        _ => {}
    }
    maybe(rng, 5, &mut spec, "backoffLimit", json!(2));
    maybe(rng, 5, &mut spec, "ttlSecondsAfterFinished", json!(100));
    maybe(rng, 5, &mut spec, "activeDeadlineSeconds", json!(100));
    maybe(rng, 4, &mut spec, "suspend", json!(true));
    spec
}

fn job(rng: &mut Rng) -> Value {
    let mut spec = job_spec(rng);
    if rng.u8(..6) == 0 {
        spec["manualSelector"] = json!(true);
        spec["selector"] = json!({ "matchLabels": { "app": "web" } });
        spec["template"]["metadata"] = json!({ "labels": { "app": "web" } });
    }
    json!({ "spec": spec })
}

fn cron_job(rng: &mut Rng) -> Value {
    let mut spec = json!({
        "schedule": pick(rng, &["*/5 * * * *", "0 0 * * *", "@hourly", "1 2 3 4 5"]),
        "jobTemplate": { "spec": job_spec(rng) },
    });
    maybe(rng, 4, &mut spec, "concurrencyPolicy", json!("Forbid"));
    maybe(rng, 4, &mut spec, "timeZone", json!("Europe/Berlin"));
    maybe(rng, 4, &mut spec, "startingDeadlineSeconds", json!(10));
    json!({ "spec": spec })
}

fn service(rng: &mut Rng) -> Value {
    let mut spec = json!({ "ports": [{ "port": 80 }], "selector": { "app": "web" } });
    if rng.u8(..3) == 0 {
        spec["ports"] = json!([
            { "name": "http", "port": 80, "targetPort": "http" },
            { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": 5353 },
        ]);
    }
    match rng.u8(..8) {
        0 => spec["type"] = json!("NodePort"),
        1 => spec["type"] = json!("LoadBalancer"),
        2 => {
            spec["type"] = json!("ExternalName");
            spec["externalName"] = json!("example.com");
        }
        3 | 4 => spec["clusterIP"] = json!("None"),
        _ => {}
    }
    maybe(rng, 6, &mut spec, "sessionAffinity", json!("ClientIP"));
    maybe(rng, 8, &mut spec, "publishNotReadyAddresses", json!(true));
    json!({ "spec": spec })
}

fn endpoints(rng: &mut Rng) -> Value {
    let mut subset = json!({ "addresses": [{ "ip": "10.1.2.3" }], "ports": [{ "port": 80 }] });
    maybe(rng, 3, &mut subset, "notReadyAddresses", json!([{ "ip": "10.1.2.4", "nodeName": "node-1" }]));
    let ports = json!([{ "name": "http", "port": 80 }, { "name": "https", "port": 443 }]);
    maybe(rng, 4, &mut subset, "ports", ports);
    json!({ "subsets": [subset] })
}

fn slice(rng: &mut Rng) -> Value {
    let mut object = json!({ "addressType": "IPv4", "endpoints": [{ "addresses": ["10.1.2.3"] }] });
    let ready = json!([{ "addresses": ["10.1.2.3"], "conditions": { "ready": true }, "nodeName": "node-1" }]);
    maybe(rng, 2, &mut object, "endpoints", ready);
    maybe(rng, 2, &mut object, "ports", json!([{ "name": "http", "port": 80 }]));
    object
}

fn config_map(rng: &mut Rng) -> Value {
    let mut object = json!({ "data": { "key": word(rng), "other.txt": "text\nlines" } });
    maybe(rng, 5, &mut object, "binaryData", json!({ "raw": "AAEC" }));
    maybe(rng, 8, &mut object, "immutable", json!(true));
    object
}

fn secret(rng: &mut Rng) -> Value {
    match rng.u8(..5) {
        0 => json!({ "stringData": { "password": word(rng) } }),
        1 => json!({
            "type": "kubernetes.io/basic-auth",
            "stringData": { "username": "user", "password": "secret" },
        }),
        2 => json!({ "type": "kubernetes.io/tls", "data": { "tls.crt": "AAEC", "tls.key": "AAEC" } }),
        3 => json!({ "immutable": true, "data": { "key": "AAEC" } }),
        _ => json!({ "data": { "key": "AAEC", "other": "" } }),
    }
}

fn service_account(rng: &mut Rng) -> Value {
    let mut object = json!({});
    maybe(rng, 3, &mut object, "secrets", json!([{ "name": "secret" }]));
    maybe(rng, 3, &mut object, "imagePullSecrets", json!([{ "name": "registry" }]));
    maybe(rng, 3, &mut object, "automountServiceAccountToken", json!(false));
    object
}

fn event(rng: &mut Rng) -> Value {
    let mut object = json!({
        "involvedObject": { "kind": "Pod", "name": "web", "namespace": "{ns}" },
        "reason": "Started",
        "message": "it started",
        "type": "Normal",
    });
    maybe(rng, 2, &mut object, "count", json!(1));
    maybe(rng, 2, &mut object, "firstTimestamp", json!("2020-01-02T03:04:05Z"));
    maybe(rng, 3, &mut object, "source", json!({ "component": "kubelet", "host": "node-1" }));
    if rng.u8(..4) == 0 {
        object["eventTime"] = json!("2020-01-02T03:04:05.123456Z");
        object["reportingComponent"] = json!("example.com/reporter");
        object["reportingInstance"] = json!("reporter-1");
        object["action"] = json!("Starting");
    }
    object
}

fn lease(rng: &mut Rng) -> Value {
    let mut spec = json!({ "holderIdentity": word(rng), "leaseDurationSeconds": 15 });
    maybe(rng, 2, &mut spec, "renewTime", json!("2020-01-02T03:04:05.123456Z"));
    maybe(rng, 3, &mut spec, "leaseTransitions", json!(2));
    json!({ "spec": spec })
}

fn node(rng: &mut Rng) -> Value {
    let mut object = json!({});
    let taint = json!([{ "key": "a", "value": "b", "effect": "NoSchedule" }]);
    if rng.bool() {
        object["spec"] = json!({ "taints": taint });
    }
    if rng.bool() {
        object["status"] = json!({ "capacity": { "cpu": "4", "memory": "8Gi", "pods": "110" } });
    }
    object
}

fn claim(rng: &mut Rng) -> Value {
    let mut spec = json!({
        "accessModes": [pick(rng, &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"])],
        "resources": { "requests": { "storage": pick(rng, &["1Gi", "500M", "0.5Gi"]) } },
    });
    maybe(rng, 3, &mut spec, "storageClassName", json!("fast"));
    maybe(rng, 5, &mut spec, "volumeMode", json!("Block"));
    maybe(rng, 6, &mut spec, "volumeName", json!("volume"));
    maybe(rng, 8, &mut spec, "selector", json!({ "matchLabels": { "a": "b" } }));
    json!({ "spec": spec })
}

fn budget(rng: &mut Rng) -> Value {
    let mut spec = json!({ "selector": { "matchLabels": { "app": "web" } } });
    let field = pick(rng, &["minAvailable", "maxUnavailable"]);
    spec[field] = pick(rng, &[0, 1, 2]).into();
    if rng.u8(..3) == 0 {
        spec[field] = json!("50%");
    }
    maybe(rng, 4, &mut spec, "unhealthyPodEvictionPolicy", json!("AlwaysAllow"));
    json!({ "spec": spec })
}

fn revision(rng: &mut Rng) -> Value {
    json!({ "revision": rng.u8(1..5), "data": { "spec": { "replicas": 1, "name": word(rng) } } })
}
