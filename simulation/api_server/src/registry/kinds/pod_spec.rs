//! Defaults and validation of pod specs, shared by Pods and pod templates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::invalid::FieldErrors;
use super::super::{meta, names, quantity, value};
use super::{join, one_of};

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Sets defaults that depend on other fields, in pods and templates.
pub(super) fn defaults(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    for list in CONTAINERS {
        for container in value::items_mut(spec, &[list]).into_iter().flatten() {
            container_defaults(container);
        }
    }
    for volume in value::items_mut(spec, &["volumes"]).into_iter().flatten() {
        if volume.as_object().is_some_and(|it| it.keys().all(|name| name == "name")) {
            value::set(volume, &["emptyDir"], json!({}));
        }
    }
    if value::text(spec, &["serviceAccountName"]).is_empty() {
        let older = value::text(spec, &["serviceAccount"]).to_owned();
        if !older.is_empty() {
            value::set(spec, &["serviceAccountName"], older);
        }
    }
    // The deprecated field keeps the same value.
    value::keep(spec, &spec.clone(), &["serviceAccountName"]);
    let account = value::text(spec, &["serviceAccountName"]).to_owned();
    if !account.is_empty() {
        value::set(spec, &["serviceAccount"], account);
    }
    value::default(spec, &["securityContext"], json!({}));
}

/// Sets the defaults of a workload's pod template.
pub(super) fn template_defaults(object: &mut Value, path: &[&str]) {
    if value::has(object, path) {
        defaults(value::place(object, path));
    }
}

fn container_defaults(container: &mut Value) {
    if value::text(container, &["imagePullPolicy"]).is_empty() {
        let policy = if is_latest(value::text(container, &["image"])) { "Always" } else { "IfNotPresent" };
        value::set(container, &["imagePullPolicy"], policy);
    }
    value::default(container, &["resources"], json!({}));
}

/// Returns whether an image has the tag `latest`, explicitly or by default.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// Sets defaults that only pods have: requests from limits, and host ports.
pub(super) fn pod_defaults(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        let on_host = value::flag(spec, &["hostNetwork"]);
        for container in value::items_mut(spec, &[list]).into_iter().flatten() {
            let limits: Vec<_> = value::entries(container, &["resources", "limits"])
                .map(|(name, limit)| (name.clone(), limit.clone()))
                .collect();
            for (name, limit) in limits {
                value::default(container, &["resources", "requests", &name], limit);
            }
            for port in value::items_mut(container, &["ports"]).into_iter().flatten().filter(|_| on_host) {
                if value::integer(port, &["hostPort"]).unwrap_or_default() == 0 {
                    value::keep(port, &json!({"hostPort": port["containerPort"]}), &["hostPort"]);
                }
            }
        }
    }
    value::default(spec, &["enableServiceLinks"], true);
}

/// Returns the QoS class of a pod: `Guaranteed`, `Burstable` or `BestEffort`.
pub(super) fn quality(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (BTreeMap::new(), BTreeMap::new());
    let mut guaranteed = true;
    let all = ["containers", "initContainers"].iter().flat_map(|list| value::items(spec, &[list]));
    for container in all {
        let mut found = BTreeSet::new();
        for (part, sums) in [("requests", &mut requests), ("limits", &mut limits)] {
            for name in ["cpu", "memory"] {
                let text = value::text(container, &["resources", part, name]);
                let Some(amount) = quantity::thousandths(text).filter(|it| *it > 0) else { continue };
                *sums.entry(name).or_insert(0) += amount;
                if part == "limits" {
                    found.insert(name);
                }
            }
        }
        guaranteed = guaranteed && found.len() == 2;
    }
    match (requests.is_empty() && limits.is_empty(), guaranteed && requests == limits) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

/// Validates a pod template.
pub(super) fn validate_template(template: &Value, path: &str, errors: &mut FieldErrors) {
    meta::label_map(value::at(template, &["metadata", "labels"]), &join(path, "labels"), errors);
    meta::annotations(value::at(template, &["metadata", "annotations"]), &join(path, "annotations"), errors);
    let spec = value::at(template, &["spec"]);
    validate(spec, &join(path, "spec"), errors);
    if !value::is_empty(spec, &["ephemeralContainers"]) {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(join(path, "spec.ephemeralContainers"), detail);
    }
}

/// Validates a pod spec.
pub(super) fn validate(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let volumes = volumes(spec, path, errors);
    containers(spec, path, &volumes, errors);
    match value::text(spec, &["restartPolicy"]) {
        "" => errors.required(join(path, "restartPolicy"), ""),
        _ => one_of(spec, path, "restartPolicy", &["Always", "OnFailure", "Never"], errors),
    }
    match value::text(spec, &["dnsPolicy"]) {
        "" => errors.required(join(path, "dnsPolicy"), ""),
        _ => {
            let known = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
            one_of(spec, path, "dnsPolicy", &known, errors);
        }
    }
    meta::label_map(value::at(spec, &["nodeSelector"]), &join(path, "nodeSelector"), errors);
    for (field, rule) in [
        ("serviceAccountName", names::subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::subdomain),
        ("hostname", names::label),
        ("subdomain", names::label),
        ("priorityClassName", names::subdomain),
    ] {
        let found = value::text(spec, &[field]);
        if !found.is_empty() {
            errors.each(&join(path, field), found, rule(found));
        }
    }
    if let Some(seconds) = value::integer(spec, &["activeDeadlineSeconds"])
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.invalid(join(path, "activeDeadlineSeconds"), seconds, detail);
    }
    tolerations(spec, path, errors);
}

fn volumes(spec: &Value, path: &str, errors: &mut FieldErrors) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (index, volume) in value::items(spec, &["volumes"]).iter().enumerate() {
        let path = format!("{path}.volumes[{index}]");
        let name = value::text(volume, &["name"]);
        if name.is_empty() {
            errors.required(format!("{path}.name"), "");
        } else {
            errors.each(&format!("{path}.name"), name, names::label(name));
        }
        let sources = value::entries(volume, &[]).filter(|it| it.0 != "name").count();
        if sources > 1 {
            let second = value::entries(volume, &[]).filter(|it| it.0 != "name").nth(1);
            let field = second.map_or_else(String::new, |it| it.0.clone());
            errors.forbidden(format!("{path}.{field}"), "may not specify more than 1 volume type");
        }
        if !found.insert(name.to_owned()) {
            errors.duplicate(format!("{path}.name"), name);
        }
    }
    found
}

fn containers(spec: &Value, path: &str, volumes: &BTreeSet<String>, errors: &mut FieldErrors) {
    if value::is_empty(spec, &["containers"]) {
        errors.required(join(path, "containers"), "");
    }
    let mut taken = BTreeSet::new();
    for list in CONTAINERS {
        for (index, container) in value::items(spec, &[list]).iter().enumerate() {
            let path = format!("{path}.{list}[{index}]");
            container_itself(container, &path, volumes, errors);
            let name = value::text(container, &["name"]);
            if !name.is_empty() && !taken.insert(name) {
                errors.duplicate(format!("{path}.name"), name);
            }
        }
    }
}

fn container_itself(container: &Value, path: &str, volumes: &BTreeSet<String>, errors: &mut FieldErrors) {
    match value::text(container, &["name"]) {
        "" => errors.required(join(path, "name"), ""),
        name => errors.each(&join(path, "name"), name, names::label(name)),
    }
    if value::text(container, &["image"]).is_empty() {
        errors.required(join(path, "image"), "");
    }
    let policy = value::text(container, &["terminationMessagePolicy"]);
    if !matches!(policy, "" | "File" | "FallbackToLogsOnError") {
        one_of(container, path, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], errors);
    }
    ports(container, path, errors);
    environment(container, path, errors);
    mounts(container, path, volumes, errors);
    one_of(container, path, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], errors);
    resources(container, path, errors);
}

fn ports(container: &Value, path: &str, errors: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (index, port) in value::items(container, &["ports"]).iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let name = value::text(port, &["name"]);
        if !name.is_empty() {
            errors.each(&format!("{path}.name"), name, names::port_name(name));
            if !taken.insert(name) {
                errors.duplicate(format!("{path}.name"), name);
            }
        }
        match value::integer(port, &["containerPort"]).unwrap_or_default() {
            0 => errors.required(format!("{path}.containerPort"), ""),
            number => port_number(number, &format!("{path}.containerPort"), errors),
        }
        if let Some(number) = value::integer(port, &["hostPort"]).filter(|it| *it != 0) {
            port_number(number, &format!("{path}.hostPort"), errors);
        }
        one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"], errors);
    }
}

/// Validates a port number.
pub(super) fn port_number(number: i64, path: &str, errors: &mut FieldErrors) {
    if !(1..=65535).contains(&number) {
        errors.invalid(path, number, "must be between 1 and 65535, inclusive");
    }
}

fn environment(container: &Value, path: &str, errors: &mut FieldErrors) {
    for (index, variable) in value::items(container, &["env"]).iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        let name = value::text(variable, &["name"]);
        if name.is_empty() {
            errors.required(format!("{path}.name"), "");
        } else if !name.bytes().all(|it| (b' '..=b'~').contains(&it) && it != b'=') {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other \
                          than '='";
            errors.invalid(format!("{path}.name"), name, detail);
        }
        if !value::text(variable, &["value"]).is_empty() && value::has(variable, &["valueFrom"]) {
            let detail = "may not be specified when `value` is not empty";
            errors.invalid(format!("{path}.valueFrom"), "", detail);
        }
    }
}

fn mounts(container: &Value, path: &str, volumes: &BTreeSet<String>, errors: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (index, mount) in value::items(container, &["volumeMounts"]).iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let name = value::text(mount, &["name"]);
        if name.is_empty() {
            errors.required(format!("{path}.name"), "");
        }
        if !volumes.contains(name) {
            errors.not_found(format!("{path}.name"), name);
        }
        let at = value::text(mount, &["mountPath"]);
        if at.is_empty() {
            errors.required(format!("{path}.mountPath"), "");
        }
        if !taken.insert(at) {
            errors.invalid(format!("{path}.mountPath"), at, "must be unique");
        }
    }
}

fn resources(container: &Value, path: &str, errors: &mut FieldErrors) {
    let path = join(path, "resources");
    let amount =
        |part: &str, name: &str| quantity::thousandths(value::text(container, &["resources", part, name]));
    for part in ["limits", "requests"] {
        for (name, text) in value::entries(container, &["resources", part]) {
            let field = format!("{path}.{part}[{name}]");
            errors.each(&field, name, names::qualified(name));
            if amount(part, name).is_some_and(|it| it < 0) {
                errors.invalid(field, text.clone(), "must be greater than or equal to 0");
            }
        }
    }
    for (name, text) in value::entries(container, &["resources", "requests"]) {
        if let (Some(request), Some(limit)) = (amount("requests", name), amount("limits", name))
            && request > limit
        {
            let limit = value::text(container, &["resources", "limits", name]);
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            errors.invalid(format!("{path}.requests"), text.clone(), &detail);
        }
    }
}

fn tolerations(spec: &Value, path: &str, errors: &mut FieldErrors) {
    for (index, toleration) in value::items(spec, &["tolerations"]).iter().enumerate() {
        let path = format!("{path}.tolerations[{index}]");
        let key = value::text(toleration, &["key"]);
        let operator = value::text(toleration, &["operator"]);
        let effect = value::text(toleration, &["effect"]);
        if !key.is_empty() {
            errors.each(&format!("{path}.key"), key, names::qualified(key));
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(format!("{path}.operator"), operator, detail);
        }
        if value::has(toleration, &["tolerationSeconds"]) && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(format!("{path}.effect"), effect, detail);
        }
        if operator == "Exists" && !value::text(toleration, &["value"]).is_empty() {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.invalid(format!("{path}.operator"), toleration.clone(), detail);
        }
        if !matches!(operator, "" | "Equal" | "Exists") {
            errors.not_supported(format!("{path}.operator"), operator, &["Equal", "Exists"]);
        }
        if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            let known = ["NoExecute", "NoSchedule", "PreferNoSchedule"];
            errors.not_supported(format!("{path}.effect"), effect, &known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_images_default_to_always_pull() {
        for (image, expected) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.27", false),
            ("localhost:5000/nginx", true),
            ("localhost:5000/nginx:1", false),
            ("nginx@sha256:abc", false),
        ] {
            assert_eq!(is_latest(image), expected, "{image}");
        }
    }

    #[test]
    fn qos_class_depends_on_requests_and_limits() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let of = |resources: Value| quality(&json!({"containers": [{"resources": resources}]}));
        assert_eq!(of(json!({})), "BestEffort");
        assert_eq!(of(json!({"limits": both, "requests": both})), "Guaranteed");
        assert_eq!(of(json!({"requests": {"cpu": "1"}})), "Burstable");
    }
}
