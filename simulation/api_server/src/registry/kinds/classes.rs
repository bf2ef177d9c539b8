//! Strategies of StorageClasses, VolumeAttributesClasses and PriorityClasses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::invalid::FieldErrors;
use super::super::{meta, names, value};
use super::{Kind, MetadataOrder, NAMED, join, one_of, volumes};

/// Strategy of StorageClasses.
pub(super) static STORAGE_CLASSES: Kind = Kind {
    returns_deleted: true,
    defaults: |object| {
        value::default(object, &["reclaimPolicy"], "Delete");
        value::default(object, &["volumeBindingMode"], "Immediate");
    },
    validate: storage_class,
    metadata_of_update: MetadataOrder::ByKind,
    validate_update: |new, old, errors| {
        meta::validate_built_in(new, false, names::subdomain_name, errors);
        storage_class(new, errors);
        meta::validate_update(new, old, errors);
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            errors.immutable(field, &new[field], &old[field]);
        }
    },
    ..NAMED
};

/// Strategy of VolumeAttributesClasses.
pub(super) static VOLUME_ATTRIBUTES_CLASSES: Kind = Kind {
    returns_deleted: true,
    admit: |_, object| {
        volumes::protect(object, "kubernetes.io/vac-protection");
        Ok(())
    },
    validate: attributes_class,
    metadata_of_update: MetadataOrder::ByKind,
    validate_update: |new, old, errors| {
        meta::validate_update(new, old, errors);
        for field in ["driverName", "parameters"] {
            if !value::same_at(new, old, &[field]) {
                errors.forbidden(field, &format!("updates to {field} are forbidden."));
            }
        }
        meta::validate_built_in(new, false, names::subdomain_name, errors);
        attributes_class(new, errors);
    },
    ..NAMED
};

/// Strategy of PriorityClasses.
pub(super) static PRIORITY_CLASSES: Kind = Kind {
    generation: &[&["value"]],
    defaults: |object| value::default(object, &["preemptionPolicy"], "PreemptLowerPriority"),
    validate: priority_class,
    validate_update: |new, old, errors| {
        let number = |it: &Value| value::integer(it, &["value"]).unwrap_or_default();
        if number(new) != number(old) {
            errors.forbidden("value", "may not be changed in an update.");
        }
        errors.immutable("preemptionPolicy", &new["preemptionPolicy"], &old["preemptionPolicy"]);
    },
    ..NAMED
};

fn storage_class(object: &Value, errors: &mut FieldErrors) {
    provisioner(object, "provisioner", errors);
    parameters(object, errors);
    if !value::text(object, &["reclaimPolicy"]).is_empty() {
        one_of(object, "", "reclaimPolicy", &["Delete", "Retain"], errors);
    }
    one_of(object, "", "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], errors);
    topologies(value::items(object, &["allowedTopologies"]), errors);
}

fn attributes_class(object: &Value, errors: &mut FieldErrors) {
    provisioner(object, "driverName", errors);
    parameters(object, errors);
    if value::is_empty(object, &["parameters"]) {
        errors.required("parameters", "must contain at least one key/value pair");
    }
}

fn provisioner(object: &Value, field: &str, errors: &mut FieldErrors) {
    let name = value::text(object, &[field]).to_lowercase();
    if name.is_empty() {
        errors.required(field, "");
    } else {
        errors.each(field, &name, names::qualified(&name));
    }
}

fn parameters(object: &Value, errors: &mut FieldErrors) {
    const MAX_COUNT: usize = 512;
    const MAX_BYTES: usize = 256 * 1024;
    let found: Vec<_> = value::entries(object, &["parameters"]).collect();
    if found.len() > MAX_COUNT {
        errors.too_long("parameters", MAX_COUNT);
        return;
    }
    for _ in found.iter().filter(|(name, _)| name.is_empty()) {
        errors.invalid("parameters", "", "field can not be empty.");
    }
    let bytes = |(name, text): &(&String, &Value)| name.len() + text.as_str().map_or(0, str::len);
    if found.iter().map(bytes).sum::<usize>() > MAX_BYTES {
        errors.too_long("parameters", MAX_BYTES);
    }
}

fn topologies(terms: &[Value], errors: &mut FieldErrors) {
    // Upstream compares each term with as many empty terms, too.
    let mut known = vec![BTreeMap::new(); terms.len()];
    for (index, term) in terms.iter().enumerate() {
        let path = format!("allowedTopologies[{index}].matchLabelExpressions");
        let mut values_of = BTreeMap::new();
        for (index, expression) in value::items(term, &["matchLabelExpressions"]).iter().enumerate() {
            let (path, key) = (format!("{path}[{index}]"), value::text(expression, &["key"]));
            let values = topology_values(expression, &path, errors);
            if values_of.insert(key, values).is_some() {
                errors.duplicate(join(&path, "key"), key);
            }
        }
        for _ in known.iter().filter(|it| **it == values_of) {
            errors.duplicate(path.as_str(), "");
        }
        known.push(values_of);
    }
}

fn topology_values<'a>(expression: &'a Value, path: &str, errors: &mut FieldErrors) -> BTreeSet<&'a str> {
    let values = value::texts(expression, &["values"]);
    if values.is_empty() {
        errors.required(join(path, "values"), "");
    }
    let mut taken = BTreeSet::new();
    for (index, text) in values.into_iter().enumerate() {
        if !taken.insert(text) {
            errors.duplicate(format!("{path}.values[{index}]"), text);
        }
    }
    let key = value::text(expression, &["key"]);
    errors.each(&join(path, "key"), key, names::qualified(key));
    taken
}

/// Priorities of the classes that only the server creates.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const MAX_PRIORITY: i64 = 1_000_000_000;

fn priority_class(object: &Value, errors: &mut FieldErrors) {
    let name = value::text(object, &["metadata", "name"]);
    let number = value::integer(object, &["value"]).unwrap_or_default();
    if name.starts_with("system-") {
        if let Some(why) = misuse(name, number, value::flag(object, &["globalDefault"])) {
            let reserved = "priority class names with 'system-' prefix are reserved for system use only";
            errors.forbidden("metadata.name", &format!("{reserved}. error: {why}"));
        }
    } else if number > MAX_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
        errors.forbidden("value", &detail);
    }
    match value::at(object, &["preemptionPolicy"]).as_str() {
        Some("") => errors.required("preemptionPolicy", ""),
        Some(_) => one_of(object, "", "preemptionPolicy", &["PreemptLowerPriority", "Never"], errors),
        None => {}
    }
}

/// Returns the reason why a class with a reserved name is not the class of the server.
fn misuse(name: &str, number: i64, is_default: bool) -> Option<String> {
    match SYSTEM_CLASSES.iter().find(|it| it.0 == name) {
        Some((_, known)) if number != *known => {
            Some(format!("value of {name} PriorityClass must be {known}"))
        }
        Some(_) if is_default => Some(format!("globalDefault of {name} PriorityClass must be false")),
        Some(_) => None,
        None => Some(format!("{name} is not a known system priority class")),
    }
}
