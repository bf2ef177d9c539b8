//! Writes through a subresource of one kind: ephemeral containers and resources of pods, and approval of certificate
//! requests. All other fields keep their values.

use serde_json::{Value, json};

use super::super::invalid::FieldErrors;
use super::super::request::Target;
use super::super::value;
use super::pod_spec;

/// Metadata that a write through a subresource does not change.
const METADATA: [&str; 6] =
    ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp", "generation"];
/// Lists of containers whose resources can change while they run.
const RESIZED: [&str; 2] = ["containers", "initContainers"];

/// Resets the fields that the subresource does not write. `now` is the time of new conditions.
pub(crate) fn limit(to: &Target, object: &mut Value, before: &Value, now: &str) {
    match (to.resource.plural.as_str(), to.subresource.as_str()) {
        ("pods", "ephemeralcontainers") => {
            let wanted = value::at(object, &["spec", "ephemeralContainers"]).clone();
            keep_all(object, before);
            let wanted = json!({"spec": {"ephemeralContainers": wanted}});
            value::keep(object, &wanted, &["spec", "ephemeralContainers"]);
        }
        // Validation rejects other containers.
        ("pods", "resize") if same_containers(object, before) => {
            let wanted = value::at(object, &["spec"]).clone();
            keep_all(object, before);
            value::keep(object, &json!({"spec": wanted}), &["spec", "resources"]);
            for list in RESIZED {
                let wanted = value::items(&wanted, &[list]);
                for (container, wanted) in
                    value::items_mut(object, &["spec", list]).into_iter().flatten().zip(wanted)
                {
                    value::keep(container, wanted, &["resources"]);
                    value::keep(container, wanted, &["resizePolicy"]);
                }
            }
        }
        ("certificatesigningrequests", "approval") => {
            let wanted = value::at(object, &["status", "conditions"]).clone();
            value::keep(object, before, &["spec"]);
            value::keep(object, before, &["status"]);
            value::keep(object, &json!({"status": {"conditions": wanted}}), &["status", "conditions"]);
            stamp(object, before, now);
        }
        _ => {}
    }
}

/// Validates a write through a subresource.
pub(crate) fn validate(to: &Target, object: &Value, before: &Value, errors: &mut FieldErrors) {
    match (to.resource.plural.as_str(), to.subresource.as_str()) {
        ("pods", "ephemeralcontainers") => {
            pod_spec::validate(object, errors);
            ephemeral_containers(object, before, errors);
        }
        ("pods", "resize") => resize(object, before, errors),
        ("certificatesigningrequests", "approval") => approval(object, before, errors),
        _ => {}
    }
}

fn keep_all(object: &mut Value, before: &Value) {
    value::keep(object, before, &["spec"]);
    value::keep(object, before, &["status"]);
    for field in METADATA {
        value::keep(object, before, &["metadata", field]);
    }
}

fn names<'a>(pod: &'a Value, list: &str) -> Vec<&'a str> {
    value::items(pod, &["spec", list]).iter().map(|it| value::text(it, &["name"])).collect()
}

fn same_containers(pod: &Value, before: &Value) -> bool {
    RESIZED.iter().all(|list| names(pod, list) == names(before, list))
}

fn ephemeral_containers(pod: &Value, before: &Value, errors: &mut FieldErrors) {
    let path = ["spec", "ephemeralContainers"];
    for old in value::items(before, &path) {
        let name = value::text(old, &["name"]);
        let found = value::items(pod, &path).iter().find(|it| value::text(it, &["name"]) == name);
        let wrong = match found {
            None => "removed",
            Some(new) if !value::same(new, old) => "changed",
            Some(_) => continue,
        };
        errors.forbidden(
            "spec.ephemeralContainers",
            &format!("existing ephemeral containers {name:?} may not be {wrong}\n"),
        );
    }
}

fn resize(pod: &Value, before: &Value, errors: &mut FieldErrors) {
    let spec = value::at(pod, &["spec"]);
    pod_spec::validate(pod, errors);
    let quality = pod_spec::quality(spec);
    if quality != pod_spec::quality(value::at(before, &["spec"])) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid("spec", value::text(pod, &["status", "qosClass"]), detail);
    }
    for list in RESIZED {
        let (new, old) = (names(pod, list), names(before, list));
        if new.len() != old.len() {
            let detail = format!("{list} may not be added or removed on resize");
            errors.forbidden(format!("spec.{list}"), &detail);
            continue;
        }
        for index in (0..new.len()).filter(|index| new[*index] != old[*index]) {
            let detail = format!("{list} may not be renamed or reordered on resize");
            errors.forbidden(format!("spec.{list}[{index}].name"), &detail);
        }
    }
}

/// Sets missing times of conditions.
fn stamp(request: &mut Value, before: &Value, now: &str) {
    let key = |it: &Value| [value::text(it, &["type"]), value::text(it, &["status"])].map(str::to_owned);
    for condition in value::items_mut(request, &["status", "conditions"]).into_iter().flatten() {
        value::default(condition, &["lastUpdateTime"], now);
        let found =
            value::items(before, &["status", "conditions"]).iter().find(|it| key(it) == key(condition));
        let since = found.map(|it| value::text(it, &["lastTransitionTime"])).filter(|it| !it.is_empty());
        value::default(condition, &["lastTransitionTime"], since.unwrap_or(now));
    }
}

fn approval(request: &Value, before: &Value, errors: &mut FieldErrors) {
    let path = ["status", "conditions"];
    let of_type = |it: &Value, wanted: &str| {
        value::items(it, &path).iter().filter(|it| value::text(it, &["type"]) == wanted).count()
    };
    for (index, condition) in value::items(request, &path).iter().enumerate() {
        for field in ["type", "status"] {
            if value::text(condition, &[field]).is_empty() {
                errors.required(format!("status.conditions[{index}].{field}"), "");
            }
        }
    }
    if of_type(request, "Approved") > 0 && of_type(request, "Denied") > 0 {
        let detail = "Approved and Denied conditions are mutually exclusive";
        errors.invalid("status.conditions", "Denied", detail);
    }
    for wanted in ["Approved", "Denied", "Failed"] {
        if of_type(request, wanted) < of_type(before, wanted) {
            let detail = format!("updates may not remove a condition of type {wanted:?}");
            errors.forbidden("status.conditions", &detail);
        }
    }
}
