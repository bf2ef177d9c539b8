//! Strategies of LimitRanges and ResourceQuotas.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::invalid::FieldErrors;
use super::super::{meta, names, quantity, value};
use super::pod_spec::resources;
use super::{Kind, MetadataOrder, NAMED, join};
use crate::go_json;

/// Strategy of LimitRanges.
pub(super) static LIMIT_RANGES: Kind = Kind {
    create_on_update: true,
    defaults: |object| {
        for limit in value::items_mut(object, &["spec", "limits"]).into_iter().flatten() {
            if value::text(limit, &["type"]) == "Container" {
                container_defaults(limit);
            }
        }
    },
    admit: |transaction, object| {
        let metadata = value::at(object, &["metadata"]);
        if value::text(metadata, &["name"]).is_empty() && value::text(metadata, &["generateName"]).is_empty()
        {
            let name = transaction.identifier();
            value::set(object, &["metadata", "name"], name);
        }
        Ok(())
    },
    validate: limit_range,
    metadata_of_update: MetadataOrder::ByKind,
    validate_update: |new, _, errors| {
        meta::validate_built_in(new, true, names::subdomain_name, errors);
        limit_range(new, errors);
    },
    ..NAMED
};

/// Strategy of ResourceQuotas.
pub(super) static RESOURCE_QUOTAS: Kind = Kind {
    returns_deleted: true,
    validate: |object, errors| quota(value::at(object, &["spec"]), errors),
    validate_update: |new, old, errors| {
        quota(value::at(new, &["spec"]), errors);
        let scopes = |it: &Value| -> BTreeSet<String> {
            value::texts(it, &["spec", "scopes"]).into_iter().map(str::to_owned).collect()
        };
        if scopes(new) != scopes(old) {
            errors.invalid("spec.scopes", value::at(new, &["spec", "scopes"]).clone(), "field is immutable");
        }
    },
    validate_status: |new, _, errors| {
        amounts(value::at(new, &["status", "hard"]), "status.hard", errors);
        amounts(value::at(new, &["status", "used"]), "status.used", errors);
    },
    ..NAMED
};

/// Sets the default limits and requests: the maximum, then the limit, then the minimum.
fn container_defaults(limit: &mut Value) {
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let given: Vec<_> =
            value::entries(limit, &[from]).map(|(name, it)| (name.clone(), it.clone())).collect();
        for (name, amount) in given {
            value::default(limit, &[to, &name], amount);
        }
    }
}

const LIMIT_TYPES: [&str; 3] = ["Pod", "Container", "PersistentVolumeClaim"];

fn limit_range(object: &Value, errors: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (index, limit) in value::items(object, &["spec", "limits"]).iter().enumerate() {
        let (path, kind) = (format!("spec.limits[{index}]"), value::text(limit, &["type"]));
        limit_type(kind, &join(&path, "type"), errors);
        if !taken.insert(kind) {
            errors.duplicate(join(&path, "type"), kind);
        }
        let names = limited(limit, kind, &path, errors);
        for name in &names {
            bounds(&Bounds { limit, name, path: &path, of_pod: kind == "Pod" }, errors);
        }
    }
}

fn limit_type(kind: &str, field: &str, errors: &mut FieldErrors) {
    let reasons = names::qualified(kind);
    if !reasons.is_empty() {
        errors.each(field, kind, reasons);
    } else if !kind.contains('/') && !LIMIT_TYPES.contains(&kind) {
        errors.invalid(field, kind, "must be a standard limit type or fully qualified");
    }
}

/// Validates the names of the resources, and returns them.
fn limited<'a>(limit: &'a Value, kind: &str, path: &str, errors: &mut FieldErrors) -> BTreeSet<&'a str> {
    let mut known = BTreeSet::new();
    let mut check = |part: &str, errors: &mut FieldErrors| {
        for (name, _) in value::entries(limit, &[part]) {
            let field = format!("{path}.{part}[{name}]");
            match kind {
                "Pod" | "Container" => resources::container_name(name, &field, errors),
                _ => drop(resources::resource_name(name, &field, errors)),
            }
            known.insert(name.as_str());
        }
    };
    check("max", errors);
    check("min", errors);
    for part in ["default", "defaultRequest"] {
        if kind != "Pod" {
            check(part, errors);
        } else if !value::is_empty(limit, &[part]) {
            errors.forbidden(join(path, part), "may not be specified when `type` is 'Pod'");
        }
    }
    let has_storage = |part: &str| value::has(limit, &[part, "storage"]);
    if kind == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(join(path, "limits"), detail);
    }
    check("maxLimitRequestRatio", errors);
    known
}

/// The limits of one resource.
struct Bounds<'a> {
    limit: &'a Value,
    name: &'a str,
    path: &'a str,
    of_pod: bool,
}

impl Bounds<'_> {
    /// Returns the text and the amount of a limit.
    fn get(&self, part: &str) -> Option<(&str, i128)> {
        let is_ignored = self.of_pod && part.starts_with("default");
        let text = value::at(self.limit, &[part, self.name]).as_str().filter(|_| !is_ignored)?;
        Some((text, quantity::thousandths(text)?))
    }

    fn field(&self, part: &str) -> String {
        format!("{}.{part}[{}]", self.path, self.name)
    }
}

fn bounds(bounds: &Bounds<'_>, errors: &mut FieldErrors) {
    // The smaller limit, the larger one, their names in the message, the field of the error, and the shown limit.
    let pairs = [
        ("min", "max", ["min", "max"], "min", "min"),
        ("min", "defaultRequest", ["min", "default request"], "defaultRequest", "defaultRequest"),
        ("defaultRequest", "max", ["default request", "max"], "defaultRequest", "defaultRequest"),
        (
            "defaultRequest",
            "default",
            ["default request", "default limit"],
            "defaultRequest",
            "defaultRequest",
        ),
        ("min", "default", ["min", "default"], "default", "min"),
        ("default", "max", ["default", "max"], "default", "max"),
    ];
    for (smaller, larger, [one, other], field, shown) in pairs {
        let (Some(smaller), Some(larger)) = (bounds.get(smaller), bounds.get(larger)) else { continue };
        if smaller.1 > larger.1 {
            let detail = format!("{one} value {} is greater than {other} value {}", smaller.0, larger.0);
            let shown = bounds.get(shown).map_or("", |it| it.0);
            errors.invalid(bounds.field(field), shown, &detail);
        }
    }
    if let Some(ratio) = bounds.get("maxLimitRequestRatio") {
        limit_ratio(bounds, ratio, errors);
    }
    if let (Some(default), Some(request)) = (bounds.get("default"), bounds.get("defaultRequest"))
        && default.1 != request.1
        && !resources::allows_overcommit(bounds.name)
    {
        let (default, request, name) = (default.0, request.0, bounds.name);
        let detail =
            format!("default value {default} must equal to defaultRequest value {request} in {name}");
        errors.invalid(bounds.field("defaultRequest"), request, &detail);
    }
}

fn limit_ratio(bounds: &Bounds<'_>, (text, ratio): (&str, i128), errors: &mut FieldErrors) {
    let field = bounds.field("maxLimitRequestRatio");
    if ratio < 1000 {
        errors.invalid(field.as_str(), text, &format!("ratio {text} is less than 1"));
    }
    let (Some((_, min)), Some((_, max))) = (bounds.get("min"), bounds.get("max")) else { return };
    // Upstream divides as floating-point numbers, and does not exclude zero.
    let number = |amount: i128| amount.to_string().parse::<f64>().unwrap_or(f64::NAN);
    let largest = number(max) / number(min);
    if number(ratio) / 1000.0 > largest {
        errors.invalid(field, text, &format!("ratio {text} is greater than max/min = {largest:.6}"));
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

fn quota(spec: &Value, errors: &mut FieldErrors) {
    let hard = value::at(spec, &["hard"]);
    amounts(hard, "spec.hard", errors);
    let names: Vec<_> = value::entries(hard, &[]).map(|(name, _)| name.as_str()).collect();
    let (scopes, shown) = (value::texts(spec, &["scopes"]), value::at(spec, &["scopes"]));
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            errors.invalid("spec.scopes", shown.clone(), "unsupported scope");
        }
        for _ in names.iter().filter(|name| !applies_to(scope, name)) {
            errors.invalid("spec.scopes", shown.clone(), "unsupported scope applied to resource");
        }
    }
    conflicting(&scopes, "spec.scopes", shown, errors);
    if value::has(spec, &["scopeSelector"]) {
        scope_selector(spec, &names, errors);
    }
}

/// Returns whether a quota with this scope can limit a resource. Quotas of other resources are not checked.
fn applies_to(scope: &str, name: &str) -> bool {
    if !is_quota_name(name) {
        return true;
    }
    let compute = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => name == "pods" || compute.contains(&name),
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

fn is_quota_name(name: &str) -> bool {
    name != "storage" && resources::is_standard(name)
}

fn conflicting(scopes: &[&str], field: &str, shown: &Value, errors: &mut FieldErrors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|it| scopes.contains(it)) {
            errors.invalid(field, shown.clone(), "conflicting scopes");
        }
    }
}

fn scope_selector(spec: &Value, names: &[&str], errors: &mut FieldErrors) {
    let path = "spec.scopeSelector.matchExpressions";
    let expressions = value::items(spec, &["scopeSelector", "matchExpressions"]);
    let mut scopes = Vec::new();
    for expression in expressions {
        let scope = value::text(expression, &["scopeName"]);
        let operator = value::text(expression, &["operator"]);
        scopes.push(scope);
        if !SCOPES.contains(&scope) {
            errors.invalid(join(path, "scopeName"), scope, "unsupported scope");
        }
        for _ in names.iter().filter(|name| !applies_to(scope, name)) {
            errors.invalid_json(path, &go_selector(expressions), "unsupported scope applied to resource");
        }
        if SCOPES.contains(&scope)
            && !matches!(scope, "PriorityClass" | "VolumeAttributesClass")
            && operator != "Exists"
        {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(join(path, "operator"), operator, detail);
        }
        scope_operator(expression, operator, path, errors);
    }
    conflicting(&scopes, path, value::at(spec, &["scopes"]), errors);
}

fn scope_operator(expression: &Value, operator: &str, path: &str, errors: &mut FieldErrors) {
    let values = value::at(expression, &["values"]);
    let is_empty = value::is_empty(expression, &["values"]);
    match operator {
        "In" | "NotIn" if is_empty => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            errors.required(join(path, "values"), detail);
        }
        "Exists" | "DoesNotExist" if !is_empty => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            errors.invalid(join(path, "values"), values.clone(), detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(join(path, "operator"), other, "not a valid selector operator"),
    }
}

/// Returns a scope selector as JSON of upstream's internal type, which errors contain.
fn go_selector(expressions: &[Value]) -> String {
    let texts: Vec<_> = expressions
        .iter()
        .map(|it| {
            let text =
                |field: &str| String::from_utf8_lossy(&go_json::encode(value::at(it, &[field]))).into_owned();
            let (scope, operator, values) = (text("scopeName"), text("operator"), text("values"));
            format!("{{\"ScopeName\":{scope},\"Operator\":{operator},\"Values\":{values}}}")
        })
        .collect();
    format!("{{\"MatchExpressions\":[{}]}}", texts.join(","))
}

fn amounts(amounts: &Value, path: &str, errors: &mut FieldErrors) {
    for (name, text) in value::entries(amounts, &[]) {
        let field = format!("{path}[{name}]");
        resources::resource_name(name, &field, errors);
        if !name.contains('/') && !is_quota_name(name) {
            errors.invalid(field.as_str(), name.as_str(), "must be a standard resource for quota");
        }
        let amount = quantity::thousandths(text.as_str().unwrap_or_default());
        resources::amount_of(name, text, amount, &field, errors);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn messages(check: impl FnOnce(&mut FieldErrors)) -> Vec<String> {
        let mut errors = FieldErrors::default();
        check(&mut errors);
        errors.0.into_iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
    }

    #[test]
    fn ratio_of_limits_is_compared_as_number() {
        let limit = json!({ "type": "Container", "max": { "cpu": "1" }, "min": { "cpu": "400m" },
            "maxLimitRequestRatio": { "cpu": "2.6" } });
        let range = json!({ "spec": { "limits": [limit] } });
        let expected = "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"2.6\": ratio 2.6 is greater than \
                        max/min = 2.500000";
        assert_eq!(messages(|errors| limit_range(&range, errors)), [expected]);
    }

    #[test]
    fn scope_limits_only_resources_of_its_objects() {
        let names = ["pods", "cpu", "persistentvolumeclaims", "count/pods", "example.com/gpu"];
        let applied: BTreeMap<_, _> = SCOPES
            .iter()
            .map(|scope| (*scope, names.iter().filter(|name| applies_to(scope, name)).count()))
            .collect();
        assert_eq!(
            (applied["BestEffort"], applied["Terminating"], applied["VolumeAttributesClass"]),
            (3, 4, 3)
        );
    }
}
