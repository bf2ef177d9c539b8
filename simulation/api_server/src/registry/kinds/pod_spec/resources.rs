//! Validation of resource requirements.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value;
use windlass_gotext::quantity::GoQuantity;

use super::super::super::invalid::FieldErrors;
use super::super::super::{names, quantity, value};
use super::super::join;

/// Names without a prefix that resources can have.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
/// Resources that are counted.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const PAGES: &str = "hugepages-";

/// Returns the names of the resource claims of a pod.
pub(super) fn claim_names(spec: &Value) -> BTreeSet<&str> {
    value::items(spec, &["resourceClaims"]).iter().map(|it| value::text(it, &["name"])).collect()
}

/// Validates the requirements of a container.
pub(super) fn of_container(
    requirements: &Value,
    path: &str,
    claims: &BTreeSet<&str>,
    errors: &mut FieldErrors,
) {
    validate(requirements, container_name, path, claims, errors);
}

/// Validates the requirements of a pod.
pub(super) fn of_pod(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let requirements = value::at(spec, &["resources"]);
    if requirements.is_null() {
        return;
    }
    let path = join(path, "resources");
    if value::text(spec, &["os", "name"]) == "windows" {
        errors.forbidden(path, "may not be set for a windows pod");
        return;
    }
    if value::has(requirements, &["claims"]) {
        errors.forbidden(join(&path, "claims"), "claims may not be set for Resources at pod-level");
    }
    validate(requirements, pod_name, &path, &claim_names(spec), errors);
    containers_fit(spec, requirements, &path, errors);
}

/// Validates that the containers fit into the requirements of the pod.
fn containers_fit(spec: &Value, requirements: &Value, path: &str, errors: &mut FieldErrors) {
    for (name, text) in value::entries(requirements, &["requests"]) {
        let containers = value::items(spec, &["containers"]).iter();
        let sum = quantity::sum(containers.map(|it| value::text(it, &["resources", "requests", name])));
        let whole = GoQuantity::parse(text.as_str().unwrap_or_default());
        if whole.is_ok_and(|whole| sum.compare(&whole) == Ordering::Greater) {
            let sum = sum.canonical();
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.invalid(format!("{path}.requests[{name}]"), text.clone(), &detail);
        }
    }
    for (index, container) in value::items(spec, &["containers"]).iter().enumerate() {
        for (name, text) in value::entries(container, &["resources", "limits"]) {
            let limit = value::text(requirements, &["limits", name]);
            if quantity::order(text.as_str().unwrap_or_default(), limit) == Some(Ordering::Greater) {
                let detail = format!("must be less than or equal to pod limits of {limit}");
                errors.invalid(format!("{path}.containers[{index}][{name}].limits"), text.clone(), &detail);
            }
        }
    }
}

fn validate(
    requirements: &Value,
    name_rule: fn(&str, &str, &mut FieldErrors),
    path: &str,
    claims: &BTreeSet<&str>,
    errors: &mut FieldErrors,
) {
    let amount = |part: &str, name: &str| quantity::thousandths(value::text(requirements, &[part, name]));
    let (mut has_pages, mut has_compute) = (false, false);
    for part in ["limits", "requests"] {
        for (name, text) in value::entries(requirements, &[part]) {
            let field = format!("{path}.{part}[{name}]");
            name_rule(name, &field, errors);
            amount_of(name, text, amount(part, name), &field, errors);
            if part == "requests" {
                request(requirements, name, path, errors);
            }
            if name.starts_with(PAGES) {
                has_pages = true;
                whole_pages(name, text, amount(part, name), &field, errors);
            }
            has_compute |= matches!(name.as_str(), "cpu" | "memory");
        }
    }
    if has_pages && !has_compute {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    claimed(requirements, &join(path, "claims"), claims, errors);
}

fn request(requirements: &Value, name: &str, path: &str, errors: &mut FieldErrors) {
    let text = value::text(requirements, &["requests", name]);
    let limit = value::text(requirements, &["limits", name]);
    let order = quantity::order(text, limit);
    let field = join(path, "requests");
    if !value::has(requirements, &["limits", name]) {
        if !allows_overcommit(name) {
            errors.required(join(path, "limits"), "Limit must be set for non overcommitable resources");
        }
    } else if !allows_overcommit(name) && order.is_some_and(Ordering::is_ne) {
        errors.invalid(field, text, &format!("must be equal to {name} limit of {limit}"));
    } else if order == Some(Ordering::Greater) {
        errors.invalid(field, text, &format!("must be less than or equal to {name} limit of {limit}"));
    }
}

/// Validates the amount of a resource.
pub(in super::super) fn amount_of(
    name: &str,
    text: &Value,
    amount: Option<i128>,
    field: &str,
    errors: &mut FieldErrors,
) {
    if amount.is_some_and(|it| it < 0) {
        errors.invalid(field, text.clone(), "must be greater than or equal to 0");
    }
    let counted = COUNTED.contains(&name) || is_extended(name);
    if counted && amount.is_some_and(|it| it % 1000 != 0) {
        errors.invalid(field, text.clone(), "must be an integer");
    }
}

fn whole_pages(name: &str, text: &Value, amount: Option<i128>, field: &str, errors: &mut FieldErrors) {
    let size = name.strip_prefix(PAGES).and_then(quantity::thousandths).filter(|it| *it > 0);
    let divides = match (size, amount) {
        (Some(size), Some(amount)) => amount >= 0 && amount % size == 0,
        _ => false,
    };
    if !divides {
        let shown = text.as_str().unwrap_or_default();
        errors.invalid(field, text.clone(), &format!("{shown} is not positive integer multiple of {name}"));
    }
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified(&format!("requests.{name}")).is_empty()
}

/// Returns whether the limit of a resource can exceed its request.
pub(in super::super) fn allows_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with(PAGES)
}

/// Returns whether a resource without a prefix is known.
pub(in super::super) fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || name.starts_with(PAGES) || name.starts_with("requests.hugepages-")
}

/// Adds errors for the name of a resource, and returns whether there are any.
pub(in super::super) fn resource_name(name: &str, field: &str, errors: &mut FieldErrors) -> bool {
    let reasons = names::qualified(name);
    if !reasons.is_empty() {
        errors.each(field, name, reasons);
        return false;
    }
    if !name.contains('/') && !is_standard(name) {
        errors.invalid(field, name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// Validates the name of a resource of containers.
pub(in super::super) fn container_name(name: &str, field: &str, errors: &mut FieldErrors) {
    resource_name(name, field, errors);
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with(PAGES);
    if name.split('/').count() == 1 {
        if !standard {
            errors.invalid(field, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(field, name, "doesn't follow extended resource name standard");
    }
}

fn pod_name(name: &str, field: &str, errors: &mut FieldErrors) {
    let supported = matches!(name, "cpu" | "memory") || name.starts_with(PAGES);
    if resource_name(name, field, errors) && !supported {
        errors.not_supported(field, name, &["cpu", "memory"]);
    }
}

fn claimed(requirements: &Value, path: &str, claims: &BTreeSet<&str>, errors: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (index, claim) in value::items(requirements, &["claims"]).iter().enumerate() {
        let field = format!("{path}[{index}]");
        let (name, request) = (value::text(claim, &["name"]), value::text(claim, &["request"]));
        if name.is_empty() {
            errors.required(field, "");
            continue;
        }
        if taken.contains(name) {
            errors.duplicate(field.clone(), name);
        } else {
            let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
            if !request.is_empty() {
                errors.each(&join(&field, "request"), request, names::label(request));
            }
            if !taken.insert(key.clone()) {
                errors.duplicate(field.clone(), key);
            }
        }
        if !claims.contains(name) {
            let detail = "must be one of the names in pod.spec.resourceClaims";
            let known: Vec<_> = claims.iter().copied().collect();
            let detail = match known.as_slice() {
                [] => format!("{detail} which is empty"),
                known => format!("{detail}: {}", known.join(", ")),
            };
            errors.not_found_because(field, name, &detail);
        }
    }
}
