//! Strategies of the configurations of admission webhooks.

use serde_json::{Value, json};

use super::super::invalid::FieldErrors;
use super::super::{labels, meta, names, value};
use super::{Kind, NAMED, one_of};
use crate::expressions::Condition;

/// Strategy of MutatingWebhookConfigurations.
pub(super) static MUTATING: Kind = Kind {
    defaults: |object| {
        defaults(object);
        for webhook in webhooks(object) {
            value::default(webhook, &["reinvocationPolicy"], "Never");
        }
    },
    ..VALIDATING
};

/// Strategy of ValidatingWebhookConfigurations.
pub(super) static VALIDATING: Kind = Kind {
    generation: &[&["webhooks"]],
    unconditional_update: false,
    defaults,
    validate,
    validate_update: |new, old, errors| {
        meta::validate_built_in(new, false, names::subdomain_name, errors);
        validate_webhooks(new, has_other_conditions(new, old), errors);
    },
    ..NAMED
};

/// Maximum number of match conditions of a webhook.
const CONDITIONS: usize = 64;

fn webhooks(object: &mut Value) -> &mut [Value] {
    value::items_mut(object, &["webhooks"]).map(Vec::as_mut_slice).unwrap_or_default()
}

fn defaults(object: &mut Value) {
    for webhook in webhooks(object) {
        value::default(webhook, &["failurePolicy"], "Fail");
        value::default(webhook, &["matchPolicy"], "Equivalent");
        value::default(webhook, &["namespaceSelector"], json!({}));
        value::default(webhook, &["objectSelector"], json!({}));
        value::default(webhook, &["timeoutSeconds"], 10);
        if value::has(webhook, &["clientConfig", "service"]) {
            value::default(webhook, &["clientConfig", "service", "port"], 443);
        }
        for rule in value::items_mut(webhook, &["rules"]).into_iter().flatten() {
            value::default(rule, &["scope"], "*");
        }
    }
}

fn validate(object: &Value, errors: &mut FieldErrors) {
    validate_webhooks(object, true, errors);
}

/// Returns whether an update changes match conditions.
fn has_other_conditions(new: &Value, old: &Value) -> bool {
    let conditions = |object| -> Vec<_> {
        let webhooks = value::items(object, &["webhooks"]).iter();
        webhooks.map(|it| value::items(it, &["matchConditions"]).to_vec()).collect()
    };
    conditions(new) != conditions(old)
}

fn validate_webhooks(object: &Value, has_new_conditions: bool, errors: &mut FieldErrors) {
    let mut seen = Vec::new();
    for (index, webhook) in value::items(object, &["webhooks"]).iter().enumerate() {
        let path = format!("webhooks[{index}]");
        validate_webhook(webhook, &path, errors);
        if has_new_conditions {
            let conditions = value::items(webhook, &["matchConditions"]);
            validate_conditions(conditions, &format!("{path}.matchConditions"), errors);
        }
        validate_review_versions(webhook, &format!("{path}.admissionReviewVersions"), errors);
        let name = value::text(webhook, &["name"]);
        if !name.is_empty() && seen.contains(&name) {
            errors.duplicate(format!("{path}.name"), name);
        }
        seen.push(name);
    }
}

fn validate_webhook(webhook: &Value, path: &str, errors: &mut FieldErrors) {
    validate_name(value::text(webhook, &["name"]), format!("{path}.name"), errors);
    for (index, rule) in value::items(webhook, &["rules"]).iter().enumerate() {
        validate_rule(rule, &format!("{path}.rules[{index}]"), errors);
    }
    one_of(webhook, path, "failurePolicy", &["Fail", "Ignore"], errors);
    one_of(webhook, path, "matchPolicy", &["Equivalent", "Exact"], errors);
    let side_effects = ["None", "NoneOnDryRun"];
    if value::has(webhook, &["sideEffects"]) {
        one_of(webhook, path, "sideEffects", &side_effects, errors);
    } else {
        errors.required(format!("{path}.sideEffects"), "must specify one of None, NoneOnDryRun");
    }
    let seconds = value::integer(webhook, &["timeoutSeconds"]).unwrap_or(10);
    if !(1..=30).contains(&seconds) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(format!("{path}.timeoutSeconds"), seconds, detail);
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        labels::validate(value::at(webhook, &[selector]), &format!("{path}.{selector}"), errors);
    }
    if value::has(webhook, &["reinvocationPolicy"]) {
        one_of(webhook, path, "reinvocationPolicy", &["IfNeeded", "Never"], errors);
    }
    validate_client(value::at(webhook, &["clientConfig"]), &format!("{path}.clientConfig"), errors);
}

fn validate_conditions(conditions: &[Value], path: &str, errors: &mut FieldErrors) {
    if conditions.len() > CONDITIONS {
        errors.too_many(path, conditions.len(), CONDITIONS);
    }
    let mut seen = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let expression = value::text(condition, &["expression"]).trim();
        if expression.is_empty() {
            errors.required(format!("{path}.expression"), "");
        } else if let Err(why) = Condition::compile(expression) {
            errors.invalid(format!("{path}.expression"), expression, &why);
        }
        let (name, path) = (value::text(condition, &["name"]), format!("{path}.name"));
        if name.is_empty() {
            errors.required(path, "");
            continue;
        }
        errors.each(&path, name, names::qualified(name));
        if seen.contains(&name) {
            errors.duplicate(path, name);
        }
        seen.push(name);
    }
}

fn validate_name(name: &str, path: String, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let reasons = names::subdomain(name);
    if !reasons.is_empty() {
        errors.invalid(path, name, &reasons.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots");
    }
}

fn validate_rule(rule: &Value, path: &str, errors: &mut FieldErrors) {
    let lists = [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")];
    for (field, named) in lists {
        let items = value::texts(rule, &[field]);
        let path = format!("{path}.{field}");
        if items.is_empty() {
            errors.required(path.clone(), "");
        }
        if items.len() > 1 && items.contains(&"*") {
            let detail = format!("if '*' is present, must not specify other {named}");
            errors.invalid(path.clone(), value::at(rule, &[field]).clone(), &detail);
        }
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
            match field {
                "operations" if !known.contains(item) => errors.not_supported(path, *item, &known),
                "apiVersions" if item.is_empty() => errors.required(path, ""),
                _ => {}
            }
        }
    }
    validate_resources(value::at(rule, &["resources"]), &format!("{path}.resources"), errors);
    if value::has(rule, &["scope"]) {
        one_of(rule, path, "scope", &["*", "Cluster", "Namespaced"], errors);
    }
}

fn validate_resources(resources: &Value, path: &str, errors: &mut FieldErrors) {
    let written = value::texts(resources, &[]);
    if written.is_empty() {
        errors.required(path, "");
    }
    let (mut whole, mut below) = (Vec::new(), Vec::new());
    let mut has_plain = false;
    for (index, item) in written.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if item.is_empty() {
            errors.required(path, "");
            continue;
        }
        let Some((resource, subresource)) = item.split_once('/') else {
            has_plain = *item != "*";
            continue;
        };
        if whole.contains(&resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {item}");
            errors.invalid(path.clone(), *item, &detail);
        }
        if below.contains(&subresource) {
            let detail = format!("if '*/{subresource}' is present, must not specify {item}");
            errors.invalid(path, *item, &detail);
        }
        whole.extend((subresource == "*").then_some(resource));
        below.extend((resource == "*").then_some(subresource));
    }
    if written.len() > 1 && written.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.invalid(path, resources.clone(), detail);
    }
    if has_plain && written.contains(&"*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, resources.clone(), detail);
    }
}

fn validate_client(client: &Value, path: &str, errors: &mut FieldErrors) {
    let (url, service) = (client["url"].as_str(), value::at(client, &["service"]));
    match (url, service.is_null()) {
        (Some(_), false) | (None, true) => {
            errors.required(path, "exactly one of url or service is required");
        }
        (Some(url), true) => validate_url(url, &format!("{path}.url"), errors),
        (None, false) => {
            for field in ["name", "namespace"] {
                if value::text(service, &[field]).is_empty() {
                    errors.required(format!("{path}.service.{field}"), "");
                }
            }
            let port = value::integer(service, &["port"]).unwrap_or(443);
            if !(1..=65535).contains(&port) {
                let detail = "port is not valid: must be between 1 and 65535, inclusive";
                errors.invalid(format!("{path}.service.port"), port, detail);
            }
        }
    }
}

fn validate_url(url: &str, path: &str, errors: &mut FieldErrors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        errors.invalid(path, scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let host = if scheme.is_empty() { "" } else { rest.split(['/', '?', '#']).next().unwrap_or_default() };
    if host.is_empty() {
        errors.invalid(path, host, &format!("host must be specified{FORM}"));
    }
    if let Some((user, _)) = host.split_once('@') {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    if !fragment.is_empty() {
        errors.invalid(path, fragment, "fragments are not permitted in the URL");
    }
    if let Some((_, query)) = rest.split_once('?').filter(|(_, query)| !query.is_empty()) {
        errors.invalid(path, query, "query parameters are not permitted in the URL");
    }
}

fn validate_review_versions(webhook: &Value, path: &str, errors: &mut FieldErrors) {
    let versions = value::texts(webhook, &["admissionReviewVersions"]);
    if versions.is_empty() {
        errors.required(path, "must specify one of v1, v1beta1");
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            errors.invalid(format!("{path}[{index}]"), *version, "duplicate version");
        }
    }
    // This server sends `v1` only.
    if !versions.contains(&"v1") {
        let given = value::at(webhook, &["admissionReviewVersions"]).clone();
        errors.invalid(path, given, "must include at least one of v1, v1beta1");
    }
}
