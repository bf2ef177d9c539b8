//! Validation of containers: regular, init and ephemeral ones.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::super::invalid::FieldErrors;
use super::super::super::{names, value};
use super::super::{join, one_of};
use super::{Context, Volumes, environment, handlers, mounts, resources, security};

const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// Fields that ephemeral containers cannot have, in upstream's order.
const NOT_EPHEMERAL: [&str; 8] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Validates all containers of a pod spec.
pub(super) fn validate(context: &Context<'_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    regular(context, volumes, errors);
    init(context, volumes, errors);
    ephemeral(context, volumes, errors);
}

fn regular(context: &Context<'_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    let path = join(context.path, "containers");
    let containers = value::items(context.spec, &["containers"]);
    if containers.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut taken = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = format!("{path}[{index}]");
        common(context, container, &path, volumes, errors);
        let name = value::text(container, &["name"]);
        if !taken.insert(name) {
            errors.duplicate(join(&path, "name"), name);
        }
        handlers::validate(context, container, &path, errors);
        restart_policy(container, &path, errors);
    }
    host_ports(containers.iter(), &path, errors);
}

fn init(context: &Context<'_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    let all = join(context.path, "initContainers");
    let mut taken: BTreeSet<&str> =
        value::items(context.spec, &["containers"]).iter().map(|it| value::text(it, &["name"])).collect();
    for (index, container) in value::items(context.spec, &["initContainers"]).iter().enumerate() {
        let path = format!("{all}[{index}]");
        common(context, container, &path, volumes, errors);
        restart_policy(container, &path, errors);
        let name = value::text(container, &["name"]);
        if taken.contains(name) {
            errors.duplicate(join(&path, "name"), name);
        } else if !name.is_empty() {
            taken.insert(name);
        }
        host_ports(std::iter::once(container), &all, errors);
        let restarts = value::text(container, &["restartPolicy"]) == "Always";
        if restarts {
            handlers::validate(context, container, &path, errors);
        } else {
            let detail = "may not be set for init containers without restartPolicy=Always";
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if value::has(container, &[field]) {
                    errors.forbidden(join(&path, field), detail);
                }
            }
            for (index, policy) in value::items(container, &["resizePolicy"]).iter().enumerate() {
                if value::text(policy, &["restartPolicy"]) == "RestartContainer" {
                    let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    let field = format!("{path}.resizePolicy[{index}].restartPolicy");
                    errors.invalid(field, "RestartContainer", detail);
                }
            }
        }
    }
}

fn ephemeral(context: &Context<'_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    let others: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| value::items(context.spec, &[list]))
        .map(|it| value::text(it, &["name"]))
        .collect();
    let mut taken = others.clone();
    for (index, container) in value::items(context.spec, &["ephemeralContainers"]).iter().enumerate() {
        let path = format!("{}.ephemeralContainers[{index}]", context.path);
        common(context, container, &path, volumes, errors);
        trimmed_image(container, &path, errors);
        let name = value::text(container, &["name"]);
        if !taken.insert(name) {
            errors.duplicate(join(&path, "name"), name);
        }
        let target = value::text(container, &["targetContainerName"]);
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(join(&path, "targetContainerName"), target);
        }
        let detail = "cannot be set for an Ephemeral Container";
        for field in NOT_EPHEMERAL {
            if !value::is_empty(container, &[field]) {
                errors.forbidden(join(&path, field), detail);
            }
        }
        for (index, mount) in value::items(container, &["volumeMounts"]).iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !value::text(mount, &[field]).is_empty() {
                    errors.forbidden(format!("{path}.volumeMounts[{index}].{field}"), detail);
                }
            }
        }
    }
}

/// Rejects images with leading or trailing space. Upstream checks them in pods only.
pub(super) fn trimmed_image(container: &Value, path: &str, errors: &mut FieldErrors) {
    let image = value::text(container, &["image"]);
    if image.trim() != image {
        errors.invalid(join(path, "image"), image, "must not have leading or trailing whitespace");
    }
}

fn common(
    context: &Context<'_>,
    container: &Value,
    path: &str,
    volumes: &Volumes<'_>,
    errors: &mut FieldErrors,
) {
    match value::text(container, &["name"]) {
        "" => errors.required(join(path, "name"), ""),
        name => errors.each(&join(path, "name"), name, names::label(name)),
    }
    if value::text(container, &["image"]).is_empty() {
        errors.required(join(path, "image"), "");
    }
    match value::text(container, &["terminationMessagePolicy"]) {
        "" => errors.required(join(path, "terminationMessagePolicy"), ""),
        _ => {
            one_of(container, path, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], errors);
        }
    }
    ports(container, path, errors);
    environment::validate(container, path, errors);
    mounts::validate(container, path, volumes, errors);
    pull_policy(container, path, "imagePullPolicy", errors);
    let claims = resources::claim_names(context.spec);
    let requirements = value::at(container, &["resources"]);
    resources::of_container(requirements, &join(path, "resources"), &claims, errors);
    resize_policy(context, container, path, errors);
    security::of_container(context, container, path, errors);
}

/// Validates an image pull policy.
pub(super) fn pull_policy(parent: &Value, path: &str, field: &str, errors: &mut FieldErrors) {
    match value::text(parent, &[field]) {
        "" => errors.required(join(path, field), ""),
        _ => one_of(parent, path, field, &PULL_POLICIES, errors),
    }
}

fn ports(container: &Value, path: &str, errors: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (index, port) in value::items(container, &["ports"]).iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let name = value::text(port, &["name"]);
        let reasons = if name.is_empty() { Vec::new() } else { names::port_name(name) };
        if reasons.is_empty() && !name.is_empty() && !taken.insert(name) {
            errors.duplicate(join(&path, "name"), name);
        }
        errors.each(&join(&path, "name"), name, reasons);
        match value::integer(port, &["containerPort"]).unwrap_or_default() {
            0 => errors.required(join(&path, "containerPort"), ""),
            number => super::port_number(number, &join(&path, "containerPort"), errors),
        }
        if let Some(number) = value::integer(port, &["hostPort"]).filter(|it| *it != 0) {
            super::port_number(number, &join(&path, "hostPort"), errors);
        }
        match value::text(port, &["protocol"]) {
            "" => errors.required(join(&path, "protocol"), ""),
            _ => one_of(port, &path, "protocol", &PROTOCOLS, errors),
        }
    }
}

/// Rejects host ports that several containers use.
fn host_ports<'a>(containers: impl Iterator<Item = &'a Value>, path: &str, errors: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (position, container) in containers.enumerate() {
        for (index, port) in value::items(container, &["ports"]).iter().enumerate() {
            let number = value::integer(port, &["hostPort"]).unwrap_or_default();
            if number == 0 {
                continue;
            }
            let (protocol, address) = (value::text(port, &["protocol"]), value::text(port, &["hostIP"]));
            let key = format!("{protocol}/{address}/{number}");
            if !taken.insert(key.clone()) {
                errors.duplicate(format!("{path}[{position}].ports[{index}].hostPort"), key);
            }
        }
    }
}

fn resize_policy(context: &Context<'_>, container: &Value, path: &str, errors: &mut FieldErrors) {
    let path = join(path, "resizePolicy");
    let mut taken = BTreeSet::new();
    for (index, policy) in value::items(container, &["resizePolicy"]).iter().enumerate() {
        let (resource, restart) =
            (value::text(policy, &["resourceName"]), value::text(policy, &["restartPolicy"]));
        if !taken.insert(resource) {
            errors.duplicate(format!("{path}[{index}]"), resource);
        }
        match resource {
            "cpu" | "memory" => {}
            "" => errors.required(path.clone(), ""),
            other => errors.not_supported(path.clone(), other, &["cpu", "memory"]),
        }
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => errors.required(path.clone(), ""),
            other => errors.not_supported(path.clone(), other, &["NotRequired", "RestartContainer"]),
        }
        if value::text(context.spec, &["restartPolicy"]) == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path.clone(), restart, detail);
        }
    }
}

fn restart_policy(container: &Value, path: &str, errors: &mut FieldErrors) {
    let rules = value::items(container, &["restartPolicyRules"]);
    let field = join(path, "restartPolicy");
    match value::at(container, &["restartPolicy"]).as_str() {
        None if rules.is_empty() => return,
        None => errors.required(field, "must specify restartPolicy when restart rules are used"),
        Some(policy) if RESTART_POLICIES.contains(&policy) => {}
        Some(policy) => errors.not_supported(field, policy, &RESTART_POLICIES),
    }
    if rules.len() > 20 {
        errors.too_many(join(path, "restartPolicyRules"), rules.len(), 20);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}.restartPolicyRules[{index}]");
        one_of(rule, &path, "action", &["Restart", "RestartAllContainers"], errors);
        let codes = value::at(rule, &["exitCodes"]);
        let path = join(&path, "exitCodes");
        if codes.is_null() {
            errors.required(path, "must be specified");
            continue;
        }
        one_of(codes, &path, "operator", &["In", "NotIn"], errors);
        let count = value::items(codes, &["values"]).len();
        if count > 255 {
            errors.too_many(join(&path, "values"), count, 255);
        }
    }
}

/// Validates the host ports of a pod on the host network.
pub(super) fn on_host_network(context: &Context<'_>, errors: &mut FieldErrors) {
    if !value::flag(context.spec, &["hostNetwork"]) {
        return;
    }
    for (position, container) in value::items(context.spec, &["containers"]).iter().enumerate() {
        for (index, port) in value::items(container, &["ports"]).iter().enumerate() {
            let number = |field: &str| value::integer(port, &[field]).unwrap_or_default();
            let (host, own) = (number("hostPort"), number("containerPort"));
            if (context.is_pod || host != 0) && host != own {
                let field = format!("{}.containers[{position}].ports[{index}].hostPort", context.path);
                errors.invalid(field, json!(host), "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}
