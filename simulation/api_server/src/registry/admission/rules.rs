//! Selection of webhooks: rules, selectors and the match policy.

use std::sync::Arc;

use serde_json::Value;
use windlass_schema::ResourceInfo;

use super::{Invocation, Operation, Request};
use crate::registry::writer::WriteTransaction;
use crate::registry::{convert, labels, value};
use crate::status::{ResourceName, Status};

/// Kinds of `admissionregistration.k8s.io` that no webhook reviews, so that a webhook cannot prevent its own repair.
const EXEMPT: [&str; 6] = [
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// Returns whether webhooks do not review a kind.
pub(super) fn is_exempt(of: &ResourceInfo) -> bool {
    of.group == "admissionregistration.k8s.io" && EXEMPT.contains(&of.plural.as_str())
}

/// Returns how a webhook reviews a request; `None` if it does not.
pub(super) fn invocation(
    transaction: &WriteTransaction<'_>,
    webhook: &Value,
    request: &Request<'_>,
    object: &Value,
) -> Result<Option<Invocation>, Status> {
    let in_namespace = match selects_namespace(transaction, webhook, request, object) {
        Ok(false) => return Ok(None),
        other => other,
    };
    let selector = value::at(webhook, &["objectSelector"]);
    let has_labels =
        |it: &Value| !it.is_null() && labels::matches(selector, value::at(it, &["metadata", "labels"]));
    if !labels::is_empty(selector) && !has_labels(object) && !has_labels(request.old) {
        return Ok(None);
    }
    let Some(resource) = matching_resource(transaction, webhook, request) else { return Ok(None) };
    // An unknown namespace matters only if the webhook would be called.
    in_namespace.map(|_| Some(Invocation { resource }))
}

/// Returns the resource under which a webhook reviews the request: with the match policy `Equivalent`, another version
/// of the same objects is enough.
fn matching_resource(
    transaction: &WriteTransaction<'_>,
    webhook: &Value,
    request: &Request<'_>,
) -> Option<Arc<ResourceInfo>> {
    let (rules, own) = (value::items(webhook, &["rules"]), &request.to.resource);
    if rules.iter().any(|rule| matches(rule, request, own)) {
        return Some(Arc::clone(own));
    }
    if value::text(webhook, &["matchPolicy"]) != "Equivalent" {
        return None;
    }
    let collection = convert::collection(own);
    let subresource = &request.to.subresource;
    let is_equivalent = |it: &&Arc<ResourceInfo>| {
        let has_subresource = subresource.is_empty() || it.subresources.contains_key(subresource);
        !Arc::ptr_eq(it, own) && has_subresource && convert::collection(it) == collection
    };
    let others: Vec<_> = transaction.served.catalog.iter().filter(is_equivalent).collect();
    let of_rule = |rule: &Value| others.iter().find(|it| matches(rule, request, it)).map(|it| Arc::clone(it));
    rules.iter().find_map(of_rule)
}

fn matches(rule: &Value, request: &Request<'_>, resource: &ResourceInfo) -> bool {
    let lists = |field: &str, wanted: &str| {
        value::texts(rule, &[field]).into_iter().any(|it| it == "*" || it == wanted)
    };
    is_in_scope(rule, request, resource)
        && lists("operations", request.operation.as_str())
        && lists("apiGroups", &resource.group)
        && lists("apiVersions", &resource.version)
        && value::texts(rule, &["resources"])
            .into_iter()
            .any(|it| is_of(it, resource, &request.to.subresource))
}

fn is_in_scope(rule: &Value, request: &Request<'_>, resource: &ResourceInfo) -> bool {
    let is_namespace = resource.group.is_empty() && resource.plural == "namespaces";
    let is_namespaced = !is_namespace && !request.namespace.is_empty();
    match value::text(rule, &["scope"]) {
        "Namespaced" => is_namespaced,
        "Cluster" => !is_namespaced,
        _ => true,
    }
}

fn is_of(written: &str, resource: &ResourceInfo, subresource: &str) -> bool {
    let (plural, below) = written.split_once('/').unwrap_or((written, ""));
    (plural == "*" || plural == resource.plural) && (below == "*" || below == subresource)
}

fn selects_namespace(
    transaction: &WriteTransaction<'_>,
    webhook: &Value,
    request: &Request<'_>,
    object: &Value,
) -> Result<bool, Status> {
    let is_namespace = request.to.resource.plural == "namespaces";
    let selector = value::at(webhook, &["namespaceSelector"]);
    if (request.namespace.is_empty() && !is_namespace) || labels::is_empty(selector) {
        return Ok(true);
    }
    let is_new_state = request.operation != Operation::Delete && request.to.subresource.is_empty();
    if is_namespace && is_new_state {
        return Ok(labels::matches(selector, value::at(object, &["metadata", "labels"])));
    }
    let namespaces = convert::collection(&*transaction.built_in("", "v1", "namespaces")?);
    let found = transaction.find(&namespaces, "", &request.namespace);
    let named = ResourceName { group: "", resource: "namespaces" };
    let found = found.ok_or_else(|| Status::not_found(named, &request.namespace))?;
    Ok(labels::matches(selector, value::at(&found.value, &["metadata", "labels"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_schema::Catalog;

    #[test]
    fn resource_of_rule_can_have_wildcards_and_subresource() {
        let catalog = Catalog::built_in();
        let pods = catalog.resource("", "v1", "pods").expect("pods");
        for (written, subresource, expected) in [
            ("pods", "", true),
            ("pods", "status", false),
            ("pods/status", "status", true),
            ("pods/*", "status", true),
            ("*/status", "status", true),
            ("*", "", true),
            ("*", "status", false),
            ("services", "", false),
        ] {
            assert_eq!(is_of(written, pods, subresource), expected, "{written} {subresource}");
        }
    }
}
