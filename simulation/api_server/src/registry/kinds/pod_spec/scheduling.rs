//! Validation of fields for scheduling: affinity, tolerations, topology and gates.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::super::invalid::FieldErrors;
use super::super::super::{labels, names, value};
use super::super::{join, one_of};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Validates the affinity of a pod.
pub(super) fn affinity(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let (found, path) = (value::at(spec, &["affinity"]), join(path, "affinity"));
    if value::has(found, &["nodeAffinity"]) {
        node_affinity(&found["nodeAffinity"], &join(&path, "nodeAffinity"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (found, path) = (value::at(found, &[kind]), join(&path, kind));
        for (index, term) in value::items(found, &[REQUIRED]).iter().enumerate() {
            pod_term(term, &format!("{path}.{REQUIRED}[{index}]"), errors);
        }
        for (index, term) in value::items(found, &[PREFERRED]).iter().enumerate() {
            let path = format!("{path}.{PREFERRED}[{index}]");
            weight(term, &path, errors);
            pod_term(value::at(term, &["podAffinityTerm"]), &join(&path, "podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Value, path: &str, errors: &mut FieldErrors) {
    let weight = value::integer(term, &["weight"]).unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.invalid(join(path, "weight"), weight, "must be in the range 1-100");
    }
}

fn node_affinity(found: &Value, path: &str, errors: &mut FieldErrors) {
    if value::has(found, &[REQUIRED]) {
        let path = format!("{path}.{REQUIRED}.nodeSelectorTerms");
        let terms = value::items(found, &[REQUIRED, "nodeSelectorTerms"]);
        if terms.is_empty() {
            errors.required(path.clone(), "must have at least one node selector term");
        }
        for (index, term) in terms.iter().enumerate() {
            node_term(term, true, &format!("{path}[{index}]"), errors);
        }
    }
    for (index, term) in value::items(found, &[PREFERRED]).iter().enumerate() {
        let path = format!("{path}.{PREFERRED}[{index}]");
        weight(term, &path, errors);
        node_term(value::at(term, &["preference"]), false, &join(&path, "preference"), errors);
    }
}

fn node_term(term: &Value, checks_values: bool, path: &str, errors: &mut FieldErrors) {
    for (index, requirement) in value::items(term, &["matchExpressions"]).iter().enumerate() {
        node_requirement(requirement, checks_values, &format!("{path}.matchExpressions[{index}]"), errors);
    }
    for (index, requirement) in value::items(term, &["matchFields"]).iter().enumerate() {
        field_requirement(requirement, &format!("{path}.matchFields[{index}]"), errors);
    }
}

fn node_requirement(requirement: &Value, checks_values: bool, path: &str, errors: &mut FieldErrors) {
    let (operator, values) =
        (value::text(requirement, &["operator"]), value::texts(requirement, &["values"]));
    let field = join(path, "values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(field.clone(), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(field.clone(), detail);
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.required(field.clone(), detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(join(path, "operator"), other, "not a valid selector operator"),
    }
    let key = value::text(requirement, &["key"]);
    errors.each(&join(path, "key"), key, names::qualified(key));
    for (index, text) in values.iter().enumerate().filter(|_| checks_values) {
        errors.each(&format!("{field}[{index}]"), text, names::label_value(text));
    }
}

fn field_requirement(requirement: &Value, path: &str, errors: &mut FieldErrors) {
    let values = value::texts(requirement, &["values"]);
    match value::text(requirement, &["operator"]) {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(join(path, "values"), detail);
        }
        "In" | "NotIn" => {}
        other => errors.invalid(join(path, "operator"), other, "not a valid selector operator"),
    }
    match value::text(requirement, &["key"]) {
        "metadata.name" => {
            for (index, text) in values.iter().enumerate() {
                errors.each(&format!("{path}.values[{index}]"), text, names::subdomain(text));
            }
        }
        key => errors.invalid(join(path, "key"), key, "not a valid field selector key"),
    }
}

fn pod_term(term: &Value, path: &str, errors: &mut FieldErrors) {
    for field in ["labelSelector", "namespaceSelector"] {
        labels::validate(value::at(term, &[field]), &join(path, field), errors);
    }
    for name in value::texts(term, &["namespaces"]) {
        errors.each(&join(path, "namespace"), name, names::label(name));
    }
    label_keys(term, path, errors);
    let key = value::text(term, &["topologyKey"]);
    if key.is_empty() {
        errors.required(join(path, "topologyKey"), "can not be empty");
    }
    errors.each(&join(path, "topologyKey"), key, names::qualified(key));
}

fn label_keys(term: &Value, path: &str, errors: &mut FieldErrors) {
    let selector = value::at(term, &["labelSelector"]);
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let (keys, path) = (value::texts(term, &[field]), join(path, field));
        if !keys.is_empty() && selector.is_null() {
            errors.forbidden(path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            errors.each(&format!("{path}[{index}]"), key, names::qualified(key));
        }
    }
    let matched = value::texts(term, &["matchLabelKeys"]);
    let mut known: BTreeSet<&str> =
        value::entries(selector, &["matchLabels"]).map(|it| it.0.as_str()).collect();
    for expression in value::items(selector, &["matchExpressions"]) {
        let key = value::text(expression, &["key"]);
        let index = matched.iter().rposition(|it| *it == key).filter(|_| known.contains(key));
        if let Some(index) = index {
            let detail = "exists in both matchLabelKeys and labelSelector";
            errors.invalid(format!("{path}[{index}]"), key, detail);
        }
        known.insert(key);
    }
    let mismatched = value::texts(term, &["mismatchLabelKeys"]);
    for (index, key) in matched.iter().enumerate().filter(|it| mismatched.contains(it.1)) {
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.invalid(format!("{path}.matchLabelKeys[{index}]"), *key, detail);
    }
}

/// Validates the effect of a taint or toleration.
fn effect(text: &str, field: String, errors: &mut FieldErrors) {
    let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !known.contains(&text) {
        errors.not_supported(field, text, &known);
    }
}

/// Validates tolerations.
pub(in super::super) fn tolerations(spec: &Value, path: &str, errors: &mut FieldErrors) {
    for (index, toleration) in value::items(spec, &["tolerations"]).iter().enumerate() {
        let path = format!("{path}.tolerations[{index}]");
        let field = join(&path, "operator");
        let [key, operator, given, found] =
            ["key", "operator", "value", "effect"].map(|name| value::text(toleration, &[name]));
        if !key.is_empty() {
            errors.each(&join(&path, "key"), key, names::qualified(key));
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(field.clone(), operator, detail);
        }
        if value::has(toleration, &["tolerationSeconds"]) && found != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(join(&path, "effect"), found, detail);
        }
        match operator {
            "" | "Equal" => {
                let reasons = names::label_value(given);
                if !reasons.is_empty() {
                    errors.invalid(field, given, &reasons.join(";"));
                }
            }
            "Exists" if !given.is_empty() => {
                errors.invalid(field, given, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => errors.not_supported(field, operator, &["Equal", "Exists", "Lt", "Gt"]),
            other => errors.not_supported(field, other, &["Equal", "Exists"]),
        }
        if !found.is_empty() {
            effect(found, join(&path, "effect"), errors);
        }
    }
}

/// Validates scheduling gates.
pub(super) fn gates(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (index, gate) in value::items(spec, &["schedulingGates"]).iter().enumerate() {
        let field = format!("{path}.schedulingGates[{index}]");
        let name = value::text(gate, &["name"]);
        errors.each(&field, name, names::qualified(name));
        if !taken.insert(name) {
            errors.duplicate(field, name);
        }
    }
}

/// Validates topology spread constraints.
pub(super) fn topology(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let all = value::items(spec, &["topologySpreadConstraints"]);
    let pair =
        |it: &Value| [&["topologyKey"], &["whenUnsatisfiable"]].map(|path| value::text(it, path).to_owned());
    for (index, constraint) in all.iter().enumerate() {
        let path = format!("{path}.topologySpreadConstraints[{index}]");
        positive(constraint, &path, "maxSkew", errors);
        if value::text(constraint, &["topologyKey"]).is_empty() {
            errors.required(join(&path, "topologyKey"), "can not be empty");
        }
        one_of(constraint, &path, "whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"], errors);
        let [key, action] = pair(constraint);
        if all.iter().skip(index + 1).any(|it| pair(it) == [key.as_str(), action.as_str()]) {
            let field = join(&path, "{topologyKey, whenUnsatisfiable}");
            errors.duplicate(field, format!("{{{key}, {action}}}"));
        }
        if value::has(constraint, &["minDomains"]) {
            positive(constraint, &path, "minDomains", errors);
            if action != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(join(&path, "minDomains"), constraint["minDomains"].clone(), &detail);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if value::has(constraint, &[field]) {
                one_of(constraint, &path, field, &["Honor", "Ignore"], errors);
            }
        }
        label_keys(constraint, &path, errors);
        labels::validate(value::at(constraint, &["labelSelector"]), &join(&path, "labelSelector"), errors);
    }
}

fn positive(object: &Value, path: &str, field: &str, errors: &mut FieldErrors) {
    let number = value::integer(object, &[field]).unwrap_or_default();
    if number <= 0 {
        errors.invalid(join(path, field), number, "must be greater than zero");
    }
}
