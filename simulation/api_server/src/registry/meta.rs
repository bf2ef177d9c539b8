//! Validation of object metadata.

use serde_json::{Value, json};

use super::internal;
use super::invalid::FieldErrors;
use super::names::{self, NameRule};
use super::value;

/// Maximum total size of one object's annotations.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Validates the metadata of an object.
pub(crate) fn validate(object: &Value, namespaced: bool, name_rule: NameRule, errors: &mut FieldErrors) {
    let metadata = value::at(object, &["metadata"]);
    let prefix = value::text(metadata, &["generateName"]);
    if !prefix.is_empty() {
        errors.each("metadata.generateName", prefix, name_rule(prefix, true));
    }
    match value::text(metadata, &["name"]) {
        "" => errors.required("metadata.name", "name or generateName is required"),
        name => errors.each("metadata.name", name, name_rule(name, false)),
    }
    match (value::text(metadata, &["namespace"]), namespaced) {
        ("", true) => errors.required("metadata.namespace", ""),
        (namespace, true) => {
            errors.each("metadata.namespace", namespace, names::label_name(namespace, false));
        }
        ("", false) => {}
        (_, false) => errors.forbidden("metadata.namespace", "not allowed on this type"),
    }
    errors.not_negative("metadata.generation", value::integer(metadata, &["generation"]));
    labels(metadata, errors);
    finalizers(metadata, errors);
}

/// Validates the metadata of an object of a built-in namespaced kind, and its finalizers.
pub(crate) fn validate_built_in(
    object: &Value,
    namespaced: bool,
    name_rule: NameRule,
    errors: &mut FieldErrors,
) {
    validate(object, namespaced, name_rule, errors);
    known_finalizers(object, errors);
}

/// Validates labels, annotations and owners of an object or template.
pub(crate) fn labels(metadata: &Value, errors: &mut FieldErrors) {
    label_map(value::at(metadata, &["labels"]), "metadata.labels", errors);
    annotations(value::at(metadata, &["annotations"]), "metadata.annotations", errors);
    owners(metadata, errors);
}

/// Validates a map of labels.
pub(crate) fn label_map(map: &Value, path: &str, errors: &mut FieldErrors) {
    for (name, text) in value::entries(map, &[]) {
        errors.each(path, name, names::qualified(name));
        let text = text.as_str().unwrap_or_default();
        errors.each(path, text, names::label_value(text));
    }
}

/// Validates annotations.
pub(crate) fn annotations(map: &Value, path: &str, errors: &mut FieldErrors) {
    let mut size = 0;
    for (name, text) in value::entries(map, &[]) {
        errors.each(path, name, names::qualified(&name.to_lowercase()));
        size += name.len() + text.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_LIMIT {
        errors.too_long(path, ANNOTATIONS_LIMIT);
    }
}

/// Validates an update of metadata.
pub(crate) fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let (new, old) = (value::at(new, &["metadata"]), value::at(old, &["metadata"]));
    if value::has(old, &["deletionTimestamp"]) {
        no_new_finalizers(new, old, errors);
    }
    if value::text(new, &["resourceVersion"]).is_empty() {
        errors.invalid("metadata.resourceVersion", "", "must be specified for an update");
    }
    if value::integer(new, &["generation"]) < value::integer(old, &["generation"]) {
        let generation = value::integer(new, &["generation"]).unwrap_or_default();
        errors.invalid("metadata.generation", generation, "must not be decremented");
    }
    let fixed =
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];
    for field in fixed {
        errors.immutable(format!("metadata.{field}"), value::at(new, &[field]), value::at(old, &[field]));
    }
    labels(new, errors);
}

fn no_new_finalizers(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let before = value::texts(old, &["finalizers"]);
    let mut added = value::texts(new, &["finalizers"]);
    added.retain(|it| !before.contains(it));
    added.sort_unstable();
    added.dedup();
    if !added.is_empty() {
        let added: Vec<_> = added.iter().map(|it| format!("{it:?}")).collect();
        let words = "no new finalizers can be added if the object is being deleted, found new finalizers";
        errors.forbidden("metadata.finalizers", &format!("{words} []string{{{}}}", added.join(", ")));
    }
}

fn owners(metadata: &Value, errors: &mut FieldErrors) {
    let path = "metadata.ownerReferences";
    let owners = value::items(metadata, &["ownerReferences"]);
    let mut controller: Option<String> = None;
    for owner in owners {
        owner_itself(owner, path, errors);
        if !value::flag(owner, &["controller"]) {
            continue;
        }
        let this = format!("{}/{}", value::text(owner, &["kind"]), value::text(owner, &["name"]));
        match &controller {
            None => controller = Some(this),
            Some(first) => errors.invalid_json(
                path,
                &internal::text("[]v1.OwnerReference", value::at(metadata, &["ownerReferences"])),
                &format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                     and {this}"
                ),
            ),
        }
    }
}

fn owner_itself(owner: &Value, path: &str, errors: &mut FieldErrors) {
    let api_version = value::text(owner, &["apiVersion"]);
    if api_version.is_empty() || api_version.ends_with('/') {
        errors.invalid(format!("{path}.apiVersion"), api_version, "version must not be empty");
    }
    for field in ["kind", "name", "uid"] {
        if value::text(owner, &[field]).is_empty() {
            errors.invalid(format!("{path}.{field}"), "", "must not be empty");
        }
    }
    if (api_version, value::text(owner, &["kind"])) == ("v1", "Event") {
        errors.invalid(path, owner.clone(), "/v1, Kind=Event is disallowed from being an owner");
    }
}

/// Validates finalizers of built-in kinds: they have a domain or are upstream's own.
pub(crate) fn known_finalizers(object: &Value, errors: &mut FieldErrors) {
    for (index, finalizer) in value::texts(object, &["metadata", "finalizers"]).into_iter().enumerate() {
        if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(format!("metadata.finalizers[{index}]"), finalizer, detail);
        }
    }
}

fn finalizers(metadata: &Value, errors: &mut FieldErrors) {
    let path = "metadata.finalizers";
    let finalizers = value::texts(metadata, &["finalizers"]);
    for finalizer in &finalizers {
        errors.each(path, finalizer, names::qualified(finalizer));
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.invalid(path, json!(finalizers), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(metadata: Value) -> Vec<String> {
        let mut errors = FieldErrors::default();
        validate(&json!({"metadata": metadata}), true, names::subdomain_name, &mut errors);
        errors.0.into_iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
    }

    #[test]
    fn second_controller_reference_is_rejected() {
        let owner = |name: &str| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true});
        let found =
            messages(json!({"name": "a", "namespace": "b", "ownerReferences": [owner("x"), owner("y")]}));
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with(
            "Only one reference can have Controller set to true. Found \"true\" in references for ReplicaSet/x and \
             ReplicaSet/y"
        ));
    }

    #[test]
    fn name_is_required() {
        let found = messages(json!({"namespace": "b"}));
        assert_eq!(found, ["metadata.name: Required value: name or generateName is required"]);
    }

    #[test]
    fn annotations_are_limited_to_256_kilobytes() {
        let found =
            messages(json!({"name": "a", "namespace": "b", "annotations": {"a": "x".repeat(262_144)}}));
        assert_eq!(found, ["metadata.annotations: Too long: may not be more than 262144 bytes"]);
    }

    #[test]
    fn terminating_object_gets_no_new_finalizer() {
        let old =
            json!({"metadata": {"resourceVersion": "1", "deletionTimestamp": "t", "finalizers": ["a/b"]}});
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
        let mut errors = FieldErrors::default();
        validate_update(&new, &old, &mut errors);
        assert_eq!(errors.0.len(), 1);
        assert!(errors.0[0].message.ends_with(r#"found new finalizers []string{"c/d"}"#));
    }
}
