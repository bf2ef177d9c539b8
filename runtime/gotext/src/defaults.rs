//! Default values in pod templates, as upstream's scheme sets them.

use serde_json::{Map, Value};

use crate::fields::{Shape, TEMPLATE, types};

/// Go type, field in JSON, and default in JSON.
const DEFAULTS: [(&str, &str, &str); 36] = [
    ("v1.PodSpec", "dnsPolicy", r#""ClusterFirst""#),
    ("v1.PodSpec", "restartPolicy", r#""Always""#),
    ("v1.PodSpec", "schedulerName", r#""default-scheduler""#),
    ("v1.PodSpec", "securityContext", "{}"),
    ("v1.PodSpec", "terminationGracePeriodSeconds", "30"),
    ("v1.Container", "terminationMessagePath", r#""/dev/termination-log""#),
    ("v1.Container", "terminationMessagePolicy", r#""File""#),
    ("v1.EphemeralContainerCommon", "terminationMessagePath", r#""/dev/termination-log""#),
    ("v1.EphemeralContainerCommon", "terminationMessagePolicy", r#""File""#),
    ("v1.ContainerPort", "protocol", r#""TCP""#),
    ("v1.ObjectFieldSelector", "apiVersion", r#""v1""#),
    ("v1.FileKeySelector", "optional", "false"),
    ("v1.HTTPGetAction", "path", r#""/""#),
    ("v1.HTTPGetAction", "scheme", r#""HTTP""#),
    ("v1.GRPCAction", "service", r#""""#),
    ("v1.Probe", "failureThreshold", "3"),
    ("v1.Probe", "periodSeconds", "10"),
    ("v1.Probe", "successThreshold", "1"),
    ("v1.Probe", "timeoutSeconds", "1"),
    ("v1.AzureDiskVolumeSource", "cachingMode", r#""ReadWrite""#),
    ("v1.AzureDiskVolumeSource", "fsType", r#""ext4""#),
    ("v1.AzureDiskVolumeSource", "kind", r#""Shared""#),
    ("v1.AzureDiskVolumeSource", "readOnly", "false"),
    ("v1.ConfigMapVolumeSource", "defaultMode", "420"),
    ("v1.DownwardAPIVolumeSource", "defaultMode", "420"),
    ("v1.ProjectedVolumeSource", "defaultMode", "420"),
    ("v1.SecretVolumeSource", "defaultMode", "420"),
    ("v1.PersistentVolumeClaimSpec", "volumeMode", r#""Filesystem""#),
    ("v1.HostPathVolumeSource", "type", r#""""#),
    ("v1.ISCSIVolumeSource", "iscsiInterface", r#""default""#),
    ("v1.ServiceAccountTokenProjection", "expirationSeconds", "3600"),
    ("v1.RBDVolumeSource", "keyring", r#""/etc/ceph/keyring""#),
    ("v1.RBDVolumeSource", "pool", r#""rbd""#),
    ("v1.RBDVolumeSource", "user", r#""admin""#),
    ("v1.ScaleIOVolumeSource", "fsType", r#""xfs""#),
    ("v1.ScaleIOVolumeSource", "storageMode", r#""ThinProvisioned""#),
];

/// Sets the defaults of the fields that a pod template lacks.
///
/// A template that an older API server stored lacks the fields that were added since.
pub fn set_template_defaults(template: &mut Value) {
    if template.is_object() {
        default(TEMPLATE, template);
    }
}

fn default(go_type: &'static str, value: &mut Value) {
    match (types().shape(go_type), value) {
        (Some(Shape::Pointer(target)), value) => default(target, value),
        (Some(Shape::List(element)), Value::Array(items)) => {
            items.iter_mut().for_each(|item| default(element, item));
        }
        (Some(Shape::Map(element)), Value::Object(members)) => {
            members.iter_mut().for_each(|(_, value)| default(element, value));
        }
        (Some(Shape::Struct(_)), Value::Object(members)) => default_struct(go_type, members),
        _ => {}
    }
}

fn default_struct(go_type: &'static str, members: &mut Map<String, Value>) {
    set_constants(go_type, members);
    match go_type {
        "v1.Container" | "v1.EphemeralContainerCommon" => {
            set_pull_policy(members, "imagePullPolicy", "image");
        }
        "v1.ImageVolumeSource" => {
            set_pull_policy(members, "pullPolicy", "reference");
        }
        "v1.Volume" if members.keys().all(|name| name == "name") => {
            members.insert("emptyDir".to_owned(), Value::Object(Map::new()));
        }
        _ => {}
    }
    let Some(Shape::Struct(fields)) = types().shape(go_type) else { return };
    for field in fields {
        match field.json_name {
            Some(name) => {
                if let Some(value) = members.get_mut(name) {
                    default(field.go_type, value);
                }
            }
            None => default_struct(field.go_type, members),
        }
    }
}

fn set_constants(go_type: &str, members: &mut Map<String, Value>) {
    for (_, field, value) in DEFAULTS.iter().filter(|(of, ..)| *of == go_type) {
        let is_missing = members.get(*field).is_none_or(is_zero);
        if is_missing && let Ok(value) = serde_json::from_str(value) {
            members.insert((*field).to_owned(), value);
        }
    }
}

/// Returns whether upstream sets the default of a field with this value. A number of zero is set by a user only where
/// Go distinguishes it from a missing number; the API server rejects it elsewhere.
fn is_zero(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

fn set_pull_policy(members: &mut Map<String, Value>, field: &str, image: &str) {
    if members.get(field).is_none_or(is_zero) {
        let image = members.get(image).and_then(Value::as_str).unwrap_or_default();
        let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
        members.insert(field.to_owned(), Value::String(policy.to_owned()));
    }
}

/// Returns whether an image has the tag `latest`, explicitly or by default. An image with a digest has no default tag.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DEFAULTS, set_template_defaults};
    use crate::fields::{Shape, types};

    #[test]
    fn defaults_name_fields_of_the_table() {
        for (go_type, field, value) in DEFAULTS {
            let Some(Shape::Struct(fields)) = types().shape(go_type) else { panic!("{go_type}") };
            assert!(fields.iter().any(|it| it.json_name == Some(field)), "{go_type} {field}");
            serde_json::from_str::<serde_json::Value>(value).expect("JSON");
        }
    }

    #[test]
    fn missing_fields_get_their_defaults() {
        let mut template = json!({ "spec": {
            "containers": [{
                "name": "c", "image": "web", "ports": [{ "containerPort": 80 }],
                "livenessProbe": { "httpGet": { "port": 80 }, "periodSeconds": 5 },
            }],
            "initContainers": [{ "name": "i", "image": "registry:5000/web:1", "imagePullPolicy": "Never" }],
            "volumes": [
                { "name": "e" }, { "name": "s", "secret": { "secretName": "s", "defaultMode": 256 } },
                { "name": "p", "projected": { "sources": [{ "serviceAccountToken": { "path": "t" } }] } },
                { "name": "i", "image": { "reference": "a@sha256:1" } },
            ],
            "terminationGracePeriodSeconds": 0,
        } });
        set_template_defaults(&mut template);
        let expected = json!({ "spec": {
            "containers": [{
                "name": "c", "image": "web", "ports": [{ "containerPort": 80, "protocol": "TCP" }],
                "livenessProbe": {
                    "httpGet": { "port": 80, "path": "/", "scheme": "HTTP" }, "periodSeconds": 5,
                    "failureThreshold": 3, "successThreshold": 1, "timeoutSeconds": 1,
                },
                "imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "initContainers": [{
                "name": "i", "image": "registry:5000/web:1", "imagePullPolicy": "Never",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "volumes": [
                { "name": "e", "emptyDir": {} },
                { "name": "s", "secret": { "secretName": "s", "defaultMode": 256 } },
                { "name": "p", "projected": { "defaultMode": 420, "sources": [
                    { "serviceAccountToken": { "path": "t", "expirationSeconds": 3600 } },
                ] } },
                { "name": "i", "image": { "reference": "a@sha256:1", "pullPolicy": "IfNotPresent" } },
            ],
            "terminationGracePeriodSeconds": 0, "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "securityContext": {},
        } });
        assert_eq!(template, expected);
    }
}
