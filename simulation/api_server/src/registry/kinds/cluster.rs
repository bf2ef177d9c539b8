//! Strategies of Namespaces and Nodes.

use serde_json::{Value, json};

use super::super::internal;
use super::super::invalid::FieldErrors;
use super::super::{meta, names, quantity, value};
use super::{Kind, MetadataOrder, NAMED, addresses, join, pod_spec};

/// Strategy of Namespaces.
pub(super) static NAMESPACES: Kind = Kind {
    name: names::label_name,
    returns_deleted: true,
    defaults: label_with_name,
    prepare_create: |_, object| {
        value::set(object, &["status"], json!({"phase": "Active"}));
        let mut finalizers: Vec<Value> = value::items(object, &["spec", "finalizers"]).to_vec();
        if !finalizers.contains(&json!("kubernetes")) {
            finalizers.push(json!("kubernetes"));
        }
        value::set(object, &["spec", "finalizers"], finalizers);
        label_with_name(object);
        Ok(())
    },
    prepare_update: |_, namespace, old| {
        value::keep(namespace, old, &["spec", "finalizers"]);
        Ok(())
    },
    validate: finalizers,
    metadata_of_update: MetadataOrder::ByKind,
    validate_update: |new, old, errors| {
        meta::validate_built_in(new, false, names::label_name, errors);
        finalizers(new, errors);
        meta::validate_update(new, old, errors);
        meta::known_finalizers(new, errors);
    },
    validate_status: |new, _, errors| {
        let phase = value::text(new, &["status", "phase"]);
        let (expected, detail) = if value::has(new, &["metadata", "deletionTimestamp"]) {
            ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
        } else {
            ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
        };
        if phase != expected {
            errors.invalid("status.Phase", phase, detail);
        }
    },
    ..NAMED
};

/// Strategy of Nodes.
pub(super) static NODES: Kind = Kind {
    born_with_status: true,
    admit: |_, node| {
        taint_not_ready(node);
        Ok(())
    },
    defaults: |object| {
        let capacity = value::at(object, &["status", "capacity"]).clone();
        if capacity.is_object() {
            value::default(object, &["status", "allocatable"], capacity);
        }
        first_range(object);
    },
    validate: node,
    metadata_of_update: MetadataOrder::ByKind,
    validate_update: |new, old, errors| {
        meta::validate_built_in(new, false, names::subdomain_name, errors);
        node(new, errors);
        node_update(new, old, errors);
    },
    metadata_of_status: MetadataOrder::ByKind,
    validate_status: node_update,
    warnings: |node, _| {
        let external = !value::text(node, &["spec", "externalID"]).is_empty();
        let text = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
        external.then(|| text.to_owned()).into_iter().collect()
    },
    ..NAMED
};

/// Adds the taint of a new node, which the node lifecycle controller removes when the node is ready.
fn taint_not_ready(node: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let mut taints = value::items(node, &["spec", "taints"]).to_vec();
    let is_same = |it: &Value| ["key", "effect"].iter().all(|field| it[field] == taint[field]);
    if !taints.iter().any(is_same) {
        taints.push(taint);
        value::set(node, &["spec", "taints"], taints);
    }
}

/// Completes the field with the first range of pod addresses, and the field with all ranges, from each other.
fn first_range(node: &mut Value) {
    let first = value::text(node, &["spec", "podCIDR"]).to_owned();
    let all = value::texts(node, &["spec", "podCIDRs"]);
    match (first.is_empty(), all.first()) {
        (false, found) if found.is_none_or(|it| *it != first) => {
            value::set(node, &["spec", "podCIDRs"], json!([first]));
        }
        (true, Some(found)) => {
            let found = (*found).to_owned();
            value::set(node, &["spec", "podCIDR"], found);
        }
        _ => {}
    }
}

/// Validates a Node.
fn node(object: &Value, errors: &mut FieldErrors) {
    taints(object, errors);
    node_resources(object, errors);
    let ranges = value::texts(object, &["spec", "podCIDRs"]);
    for (index, range) in ranges.iter().enumerate() {
        addresses::validate_range(range, &format!("spec.podCIDRs[{index}]"), errors);
    }
    if ranges.len() > 1 {
        let sixes = ranges.iter().filter(|it| it.contains(':')).count();
        if sixes == 0 || sixes == ranges.len() || ranges.len() > 2 {
            let detail = "may specify no more than one CIDR for each IP family";
            errors.invalid("spec.podCIDRs", json!(ranges), detail);
        }
    }
}

fn node_resources(object: &Value, errors: &mut FieldErrors) {
    for list in ["capacity", "allocatable"] {
        for (name, text) in value::entries(object, &["status", list]) {
            let amount = quantity::thousandths(text.as_str().unwrap_or_default());
            pod_spec::resources::amount_of(name, text, amount, &format!("status.{list}.{name}"), errors);
        }
    }
}

/// Validates an update of a Node, or of its status.
fn node_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    meta::validate_update(new, old, errors);
    meta::known_finalizers(new, errors);
    node_resources(new, errors);
    let known = value::items(new, &["status", "addresses"]);
    for (index, address) in known.iter().enumerate().filter(|it| known[..it.0].contains(it.1)) {
        let shown = internal::text("core.NodeAddress", address);
        errors.duplicate_json(format!("status.addresses[{index}]"), &shown);
    }
    let (ranges, before) =
        (value::texts(new, &["spec", "podCIDRs"]), value::texts(old, &["spec", "podCIDRs"]));
    let detail = "node updates may not change podCIDR except from \"\" to valid";
    if !before.is_empty() && ranges.len() != before.len() {
        errors.forbidden("spec.podCIDRs", detail);
    } else {
        for _ in before.iter().zip(&ranges).filter(|(before, after)| before != after) {
            errors.forbidden("spec.podCIDRs", detail);
        }
    }
    let assigned = value::text(old, &["spec", "providerID"]);
    if !assigned.is_empty() && value::text(new, &["spec", "providerID"]) != assigned {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden("spec.providerID", detail);
    }
    taints(new, errors);
    if !value::same_at(new, old, &["spec", "externalID"]) {
        errors.forbidden("spec.externalID", "may not be updated");
    }
}

fn label_with_name(object: &mut Value) {
    let name = value::text(object, &["metadata", "name"]).to_owned();
    if !name.is_empty() {
        value::set(object, &["metadata", "labels", "kubernetes.io/metadata.name"], name);
    }
}

fn finalizers(object: &Value, errors: &mut FieldErrors) {
    for finalizer in value::texts(object, &["spec", "finalizers"]) {
        let path = "spec.finalizers";
        errors.each(path, finalizer, names::qualified(finalizer));
        if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(path, finalizer, detail);
        }
    }
}

fn taints(object: &Value, errors: &mut FieldErrors) {
    let mut taken = std::collections::BTreeSet::new();
    for (index, taint) in value::items(object, &["spec", "taints"]).iter().enumerate() {
        // Upstream reports the taints as a part of the metadata.
        let path = format!("metadata.taints[{index}]");
        let key = value::text(taint, &["key"]);
        errors.each(&join(&path, "key"), key, names::qualified(key));
        let text = value::text(taint, &["value"]);
        let reasons = names::label_value(text);
        if !reasons.is_empty() {
            errors.invalid(join(&path, "value"), text, &reasons.join(";"));
        }
        let effect = value::text(taint, &["effect"]);
        match effect {
            "" => errors.required(join(&path, "effect"), ""),
            "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
            other => {
                let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
                errors.not_supported(join(&path, "effect"), other, &known);
            }
        }
        if !taken.insert((key, effect)) {
            let detail = "taints must be unique by key and effect pair";
            let shown = internal::text("core.Taint", taint);
            errors.duplicate_json(path, &format!("{shown}: {detail}"));
        }
    }
}
