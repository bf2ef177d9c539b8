//! Defaults and validation of pod specs, shared by Pods and pod templates.

mod containers;
mod environment;
pub(super) mod handlers;
mod mounts;
mod network;
mod paths;
pub(super) mod resources;
pub(super) mod scheduling;
mod security;
mod volumes;
mod windows;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use windlass_gotext::quantity::GoQuantity;

use super::super::invalid::FieldErrors;
use super::super::{meta, names, value};
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
    // A feature that is disabled by default owns this field.
    if value::remove(container, &["lifecycle", "stopSignal"]).is_some()
        && !["postStart", "preStop"].into_iter().any(|it| value::has(container, &["lifecycle", it]))
    {
        value::remove(container, &["lifecycle"]);
    }
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
    let (place, last) = image.rsplit_once('/').unwrap_or(("", image));
    let (name, tag) = last.split_once(':').unwrap_or((last, "latest"));
    tag == "latest"
        && is_image_part(name)
        && (place.is_empty() || place.split('/').skip(1).all(is_image_part))
}

/// Returns whether a part of the name of an image is valid. Upstream finds no tag in an invalid name.
fn is_image_part(part: &str) -> bool {
    let bytes = part.as_bytes();
    let is_end = |byte: Option<&u8>| byte.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    let is_valid = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(byte);
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_valid)
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
    let (mut requests, mut limits) = (BTreeMap::new(), BTreeMap::<_, GoQuantity>::new());
    let (zero, mut guaranteed) = (GoQuantity::default(), true);
    let all = ["containers", "initContainers"].iter().flat_map(|list| value::items(spec, &[list]));
    for container in all {
        let mut found = BTreeSet::new();
        for (part, sums) in [("requests", &mut requests), ("limits", &mut limits)] {
            for name in ["cpu", "memory"] {
                let text = value::text(container, &["resources", part, name]);
                let amount = GoQuantity::parse(text).ok();
                let Some(amount) = amount.filter(|it| it.compare(&zero) == Ordering::Greater) else {
                    continue;
                };
                sums.entry(name).or_default().add(&amount);
                if part == "limits" {
                    found.insert(name);
                }
            }
        }
        guaranteed = guaranteed && found.len() == 2;
    }
    let are_equal = requests.len() == limits.len()
        && requests.iter().all(|(name, sum)| limits.get(name).is_some_and(|it| it.compare(sum).is_eq()));
    match (requests.is_empty() && limits.is_empty(), guaranteed && are_equal) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

/// A pod spec under validation.
pub(super) struct Context<'a> {
    /// The spec.
    spec: &'a Value,
    /// Path of the spec.
    path: &'a str,
    /// Name of the pod; empty for templates.
    name: &'a str,
    /// Whether the spec is that of a pod. Upstream validates some fields in pods only.
    is_pod: bool,
}

/// Validates a pod template.
pub(super) fn validate_template(template: &Value, path: &str, errors: &mut FieldErrors) {
    meta::label_map(value::at(template, &["metadata", "labels"]), &join(path, "labels"), errors);
    meta::annotations(value::at(template, &["metadata", "annotations"]), &join(path, "annotations"), errors);
    let spec = value::at(template, &["spec"]);
    validate_spec(&Context { spec, path: &join(path, "spec"), name: "", is_pod: false }, errors);
    if !value::is_empty(spec, &["ephemeralContainers"]) {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(join(path, "spec.ephemeralContainers"), detail);
    }
}

/// Validates the spec of a pod.
pub(super) fn validate(pod: &Value, errors: &mut FieldErrors) {
    let spec = value::at(pod, &["spec"]);
    let name = value::text(pod, &["metadata", "name"]);
    validate_spec(&Context { spec, path: "spec", name, is_pod: true }, errors);
    for list in ["containers", "initContainers"] {
        for (index, container) in value::items(spec, &[list]).iter().enumerate() {
            containers::trimmed_image(container, &format!("spec.{list}[{index}]"), errors);
        }
    }
}

/// Validates a pod spec, in upstream's order.
fn validate_spec(context: &Context<'_>, errors: &mut FieldErrors) {
    let Context { spec, path, .. } = *context;
    if !value::has(spec, &["terminationGracePeriodSeconds"]) {
        errors.required(join(path, "terminationGracePeriodSeconds"), "");
    }
    let volumes = volumes::validate(context, errors);
    containers::validate(context, &volumes, errors);
    resources::of_pod(spec, path, errors);
    containers::on_host_network(context, errors);
    for (field, known) in [("restartPolicy", RESTART_POLICIES), ("dnsPolicy", DNS_POLICIES)] {
        match value::text(spec, &[field]) {
            "" => errors.required(join(path, field), ""),
            _ => one_of(spec, path, field, known, errors),
        }
    }
    meta::label_map(value::at(spec, &["nodeSelector"]), &join(path, "nodeSelector"), errors);
    security::of_pod(context, errors);
    scheduling::affinity(spec, path, errors);
    network::dns_config(spec, path, errors);
    for (index, gate) in value::items(spec, &["readinessGates"]).iter().enumerate() {
        let kind = value::text(gate, &["conditionType"]);
        let field = format!("{path}.readinessGates[{index}].conditionType");
        errors.each(&field, kind, names::qualified(kind));
    }
    scheduling::gates(spec, path, errors);
    scheduling::topology(spec, path, errors);
    network::host_users(spec, path, errors);
    network::host_name_override(spec, path, errors);
    for (field, rule) in NAMES {
        let found = value::text(spec, &[field]);
        if !found.is_empty() {
            errors.each(&join(path, field), found, rule(found));
        }
        if *field == "nodeName" {
            deadline(spec, path, errors);
        }
    }
    scheduling::tolerations(spec, path, errors);
    network::host_aliases(spec, path, errors);
    for field in ["priorityClassName", "runtimeClassName"] {
        let found = value::at(spec, &[field]).as_str();
        if let Some(found) = found.filter(|it| !it.is_empty() || field == "runtimeClassName") {
            errors.each(&join(path, field), found, names::subdomain(found));
        }
    }
    if value::has(spec, &["preemptionPolicy"]) {
        match value::text(spec, &["preemptionPolicy"]) {
            "" => errors.required(join(path, "preemptionPolicy"), ""),
            _ => one_of(spec, path, "preemptionPolicy", &["PreemptLowerPriority", "Never"], errors),
        }
    }
    if value::has(spec, &["overhead"]) {
        let limits = json!({"limits": spec["overhead"]});
        resources::of_container(&limits, &join(path, "overhead"), &BTreeSet::new(), errors);
    }
    network::operating_system(spec, path, errors);
}

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Valid volumes by name.
type Volumes<'a> = std::collections::BTreeMap<&'a str, &'a Value>;

/// Returns the reasons why a name is invalid.
type Rule = fn(&str) -> Vec<String>;

/// Fields that contain names, with their rules.
const NAMES: &[(&str, Rule)] = &[
    ("serviceAccountName", names::subdomain),
    ("nodeName", names::subdomain),
    ("hostname", names::label),
    ("subdomain", names::label),
];

fn deadline(spec: &Value, path: &str, errors: &mut FieldErrors) {
    if let Some(seconds) = value::integer(spec, &["activeDeadlineSeconds"])
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.invalid(join(path, "activeDeadlineSeconds"), seconds, detail);
    }
}

/// Validates a port number.
pub(super) fn port_number(number: i64, path: &str, errors: &mut FieldErrors) {
    if !(1..=65535).contains(&number) {
        errors.invalid(path, number, "must be between 1 and 65535, inclusive");
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
