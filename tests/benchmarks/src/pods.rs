//! Generates realistic Pods: about 9 KB of JSON with two containers, environments, probes, volumes, a projected token,
//! status, and `managedFields`, which are about 40 % of each Pod.
//!
//! Guarantees: the same number and shape result in the same bytes. Objects have the form and field order in which
//! kube-apiserver sends them. Pods of one owner differ in the fields that differ in a cluster: name, UID, version,
//! times, node, addresses, container IDs and the volume of the token.

use bytes::Bytes;
use fastrand::Rng;
use serde_json::{Map, Value, json};

/// The number of Pods that one ReplicaSet owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Ten Pods per owner, and many owners: each owner has its own template.
    TenPerOwner,
    /// One Pod per owner: no two Pods have the same template. The worst case of a cache that shares templates.
    OnePerOwner,
}

/// One Pod in JSON without `apiVersion` and `kind`, as in a list.
#[derive(Clone, Debug)]
pub struct JsonPod {
    /// The object.
    pub object: Bytes,
    /// The value of its field `metadata`.
    pub metadata: Bytes,
}

impl Shape {
    /// Returns the name of the shape in results.
    pub const fn name(self) -> &'static str {
        match self {
            Shape::TenPerOwner => "10 per owner",
            Shape::OnePerOwner => "1 per owner",
        }
    }

    const fn pods_per_owner(self) -> usize {
        match self {
            Shape::TenPerOwner => 10,
            Shape::OnePerOwner => 1,
        }
    }
}

/// Generates `count` Pods, in the order of `namespace/name`, in which kube-apiserver sends a list.
pub fn generate(count: usize, shape: Shape) -> Vec<JsonPod> {
    let per_owner = shape.pods_per_owner();
    let mut pods: Vec<_> = (0..count)
        .map(|number| {
            let pod = Owner::new(number / per_owner).pod(number);
            let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
            (format!("{}/{}", text("namespace"), text("name")), encode(&pod))
        })
        .collect();
    pods.sort_by(|(a, _), (b, _)| a.cmp(b));
    pods.into_iter().map(|(_, pod)| pod).collect()
}

fn encode(pod: &Value) -> JsonPod {
    let metadata = pod["metadata"].to_string();
    let head = format!("{{\"metadata\":{metadata}");
    let object = format!("{head},\"spec\":{},\"status\":{}}}", pod["spec"], pod["status"]);
    let object = Bytes::from(object);
    JsonPod { metadata: object.slice(head.len() - metadata.len()..head.len()), object }
}

/// A ReplicaSet and the template of its Pods.
struct Owner {
    name: String,
    namespace: String,
    uid: String,
    images: [String; 2],
    labels: Map<String, Value>,
    environments: [Vec<Value>; 2],
    port: u64,
}

const TEAMS: [&str; 8] =
    ["payments", "search", "checkout", "identity", "catalog", "shipping", "billing", "media"];
const ROLES: [&str; 6] = ["api", "worker", "gateway", "consumer", "scheduler", "frontend"];
const SETTINGS: [&str; 12] = [
    "LOG_LEVEL",
    "DATABASE_HOST",
    "DATABASE_NAME",
    "CACHE_ADDRESS",
    "QUEUE_URL",
    "HTTP_TIMEOUT",
    "MAX_CONNECTIONS",
    "FEATURE_SET",
    "TRACE_ENDPOINT",
    "REGION",
    "BUCKET_NAME",
    "RETRY_LIMIT",
];

impl Owner {
    fn new(number: usize) -> Owner {
        let mut rng = Rng::with_seed(number as u64 + 1);
        let (team, role) = (TEAMS[rng.usize(..TEAMS.len())], ROLES[rng.usize(..ROLES.len())]);
        let app = format!("{team}-{role}-{number}");
        let hash = word(&mut rng, 10);
        let labels = json!({
            "app.kubernetes.io/name": app,
            "app.kubernetes.io/part-of": team,
            "app.kubernetes.io/version": format!("{}.{}.{}", rng.u8(1..9), rng.u8(..40), rng.u8(..20)),
            "pod-template-hash": hash,
        });
        let Value::Object(labels) = labels else { unreachable!("the literal is an object") };
        let image =
            |name: &str, rng: &mut Rng| format!("registry.example.com/{team}/{name}:v{}", rng.u16(1..2000));
        Owner {
            name: format!("{app}-{hash}"),
            namespace: format!("{team}-{}", number % 25),
            uid: uid(&mut rng),
            images: [image(role, &mut rng), image("proxy", &mut rng)],
            environments: [environment(&mut rng, 2), environment(&mut rng, 1)],
            port: rng.u64(3000..9999),
            labels,
        }
    }

    fn pod(&self, number: usize) -> Value {
        let mut rng = Rng::with_seed(u64::MAX - number as u64);
        let name = format!("{}-{}", self.name, word(&mut rng, 5));
        let node = format!("node-{}", rng.u16(..5000));
        let created = time(&mut rng, 10);
        let token = format!("kube-api-access-{}", word(&mut rng, 5));
        let spec = self.spec(&node, &token);
        let status = self.status(&mut rng, &created);
        let mut metadata = json!({
            "name": name,
            "generateName": format!("{}-", self.name),
            "namespace": self.namespace,
            "uid": uid(&mut rng),
            "resourceVersion": (1_000_000 + number).to_string(),
            "generation": 1,
            "creationTimestamp": created,
            "labels": self.labels,
            "annotations": {
                "checksum/config": hexadecimal(&mut rng, 64),
                "prometheus.io/port": self.port.to_string(),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": self.name, "uid": self.uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        });
        metadata["managedFields"] = managed_fields(&metadata, &spec, &status, &created);
        json!({ "metadata": metadata, "spec": spec, "status": status })
    }

    fn spec(&self, node: &str, token: &str) -> Value {
        json!({
            "volumes": [
                { "name": "config", "configMap": { "name": format!("{}-config", self.name), "defaultMode": 420 } },
                { "name": "credentials", "secret": { "secretName": "credentials", "defaultMode": 420 } },
                { "name": token, "projected": { "sources": [
                    { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                    { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                    { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": {
                        "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
                ], "defaultMode": 420 } },
            ],
            "containers": [self.container(0, "main", token), self.container(1, "proxy", token)],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "nodeName": node,
            "securityContext": { "runAsUser": 1000, "runAsNonRoot": true, "fsGroup": 2000 },
            "schedulerName": "default-scheduler",
            "tolerations": [
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                  "tolerationSeconds": 300 },
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
                  "tolerationSeconds": 300 },
            ],
            "priority": 0,
            "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
        })
    }

    /// Returns the main container, or the proxy next to it, which has fewer fields.
    fn container(&self, index: usize, name: &str, token: &str) -> Value {
        let port = self.port + index as u64;
        let token = json!({
            "name": token, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        });
        let mut container = json!({
            "name": name,
            "image": self.images[index],
            "args": ["--config=/etc/app/config.yaml", format!("--listen=:{port}")],
            "ports": [{ "name": "http", "containerPort": port, "protocol": "TCP" }],
            "env": self.environments[index],
            "resources": {
                "limits": { "memory": "512Mi" }, "requests": { "cpu": "100m", "memory": "256Mi" },
            },
            "volumeMounts": [token],
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        });
        if index == 0 {
            let config = json!({ "name": "config", "readOnly": true, "mountPath": "/etc/app" });
            container["volumeMounts"] = json!([config, token]);
            container["livenessProbe"] = probe("/healthz", port);
            container["readinessProbe"] = probe("/readyz", port);
        }
        container
    }

    fn status(&self, rng: &mut Rng, created: &str) -> Value {
        let started = time(rng, 11);
        let condition = |kind: &str, at: &str| json!({ "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": at });
        let image_id = |index: usize| {
            let digest = hexadecimal(&mut Rng::with_seed(self.port + index as u64), 64);
            format!("registry.example.com/app@sha256:{digest}")
        };
        let container = |index: usize, name: &str, rng: &mut Rng| {
            json!({
                "name": name, "state": { "running": { "startedAt": started } }, "lastState": {},
                "ready": true, "restartCount": 0, "image": self.images[index],
                "imageID": image_id(index),
                "containerID": format!("containerd://{}", hexadecimal(rng, 64)), "started": true,
            })
        };
        let address = format!("10.{}.{}.{}", rng.u8(..), rng.u8(..), rng.u8(1..255));
        let host = format!("192.168.{}.{}", rng.u8(..), rng.u8(1..255));
        json!({
            "observedGeneration": 1,
            "phase": "Running",
            "conditions": [
                condition("Initialized", created),
                condition("Ready", &started), condition("ContainersReady", &started),
                condition("PodScheduled", created),
            ],
            "hostIP": host, "hostIPs": [{ "ip": host }], "podIP": address, "podIPs": [{ "ip": address }],
            "startTime": created,
            "containerStatuses": [container(0, "main", rng), container(1, "proxy", rng)],
            "qosClass": "Burstable",
        })
    }
}

fn probe(path: &str, port: u64) -> Value {
    json!({
        "httpGet": { "path": path, "port": port, "scheme": "HTTP" },
        "initialDelaySeconds": 5, "timeoutSeconds": 2, "periodSeconds": 10, "successThreshold": 1,
        "failureThreshold": 3,
    })
}

fn environment(rng: &mut Rng, count: usize) -> Vec<Value> {
    let offset = rng.usize(..SETTINGS.len());
    let plain = (0..count).map(|index| {
        let name = SETTINGS[(offset + index) % SETTINGS.len()];
        json!({ "name": name, "value": format!("{}.example.com:{}", word(rng, 12), rng.u16(..)) })
    });
    let mut all: Vec<Value> = plain.collect();
    all.push(json!({ "name": "POD_NAME", "valueFrom": { "fieldRef": {
        "apiVersion": "v1", "fieldPath": "metadata.name" } } }));
    all.push(json!({ "name": "PASSWORD", "valueFrom": { "secretKeyRef": {
        "name": "credentials", "key": word(rng, 8) } } }));
    all
}

/// Returns the entries of kube-controller-manager, which created the Pod, and of the kubelet, which wrote the status.
fn managed_fields(metadata: &Value, spec: &Value, status: &Value, time: &str) -> Value {
    let mut spec = owned_fields(spec);
    // The scheduler binds the Pod, and a binding has no field manager.
    if let Value::Object(fields) = &mut spec {
        fields.remove("f:nodeName");
    }
    let created: Map<String, Value> = ["generateName", "labels", "annotations", "ownerReferences"]
        .iter()
        .map(|name| (format!("f:{name}"), owned_fields(&metadata[*name])))
        .collect();
    json!([
        { "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": time,
          "fieldsType": "FieldsV1", "fieldsV1": { "f:metadata": created, "f:spec": spec } },
        { "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
          "fieldsV1": { "f:status": owned_fields(status) }, "subresource": "status" },
    ])
}

/// Returns the `FieldsV1` form of a value: fields by name, items of associative lists by key, other values as leaves.
fn owned_fields(value: &Value) -> Value {
    let fields: Map<String, Value> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (format!("f:{name}"), owned_fields(value))).collect()
        }
        // Atomic lists, such as `containerStatuses`, have no keys.
        Value::Array(items) if items.iter().all(|item| item.get("containerID").is_none()) => {
            items.iter().filter_map(owned_item).collect()
        }
        _ => Map::new(),
    };
    Value::Object(fields)
}

fn owned_item(item: &Value) -> Option<(String, Value)> {
    let key = ["name", "type", "uid", "ip", "mountPath", "containerPort"];
    let (name, value) = key.iter().find_map(|name| Some((name, item.get(*name)?)))?;
    let Value::Object(mut fields) = owned_fields(item) else { return None };
    fields.insert(".".to_owned(), json!({}));
    Some((format!("k:{}", json!({ *name: value })), Value::Object(fields)))
}

fn time(rng: &mut Rng, hour: u8) -> String {
    format!("2026-10-{:02}T{hour}:{:02}:{:02}Z", rng.u8(1..29), rng.u8(..60), rng.u8(..60))
}

fn hexadecimal(rng: &mut Rng, length: usize) -> String {
    (0..length).map(|_| char::from(b"0123456789abcdef"[rng.usize(..16)])).collect()
}

/// Returns random characters as in generated names of Kubernetes.
fn word(rng: &mut Rng, length: usize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..length).map(|_| char::from(ALPHABET[rng.usize(..ALPHABET.len())])).collect()
}

fn uid(rng: &mut Rng) -> String {
    let hex = hexadecimal(rng, 32);
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pods_have_realistic_size_and_share_of_managed_fields() {
        for pod in generate(50, Shape::TenPerOwner) {
            let value: Value = serde_json::from_slice(&pod.object).expect("a Pod is JSON");
            let managed = value["metadata"]["managedFields"].to_string().len();
            assert!((8_500..9_800).contains(&pod.object.len()), "{} bytes", pod.object.len());
            let share = managed * 100 / pod.object.len();
            assert!((35..=45).contains(&share), "{share} % of {} bytes", pod.object.len());
        }
    }

    #[test]
    fn pods_are_equal_for_equal_numbers_and_have_distinct_names() {
        let (first, second) = (generate(100, Shape::OnePerOwner), generate(100, Shape::OnePerOwner));
        assert!(first.iter().zip(&second).all(|(one, other)| one.object == other.object));
        let names: BTreeSet<String> = first
            .iter()
            .map(|pod| {
                let metadata: Value = serde_json::from_slice(&pod.metadata).expect("metadata is JSON");
                format!("{}/{}", metadata["namespace"], metadata["name"])
            })
            .collect();
        assert_eq!(names.len(), 100);
    }

    #[test]
    fn owners_have_as_many_pods_as_the_shape_defines() {
        for (shape, owners) in [(Shape::TenPerOwner, 3), (Shape::OnePerOwner, 30)] {
            let uids: BTreeSet<String> = generate(30, shape)
                .iter()
                .map(|pod| {
                    let value: Value = serde_json::from_slice(&pod.object).expect("a Pod is JSON");
                    value["metadata"]["ownerReferences"][0]["uid"].to_string()
                })
                .collect();
            assert_eq!(uids.len(), owners, "{shape:?}");
        }
    }
}
