//! Quotas: limits on the number of objects in a namespace.
//!
//! Supported are `pods`, other kinds with their own quota name, and `count/<resource>`. The resource quota controller
//! counts CPU and storage requests; this server does not enforce them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use windlass_gotext::quantity::GoQuantity;
use windlass_schema::ResourceInfo;

use super::writer::WriteTransaction;
use super::{convert, quantity, value};
use crate::status::{ResourceName, Status};
use crate::storage::Stored;

/// Kinds of the core group that also have quotas by their plural names.
const NAMED: [&str; 7] = [
    "pods",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "resourcequotas",
];

/// Charges a new object to the quotas of its namespace, or rejects it.
pub(crate) fn charge(
    transaction: &WriteTransaction<'_>,
    resource: &ResourceInfo,
    object: &Value,
    dry_run: bool,
) -> Result<(), Status> {
    if !resource.namespaced || resource.plural == "resourcequotas" {
        return Ok(());
    }
    let quotas = transaction.built_in("", "v1", "resourcequotas")?;
    let namespace = value::text(object, &["metadata", "namespace"]);
    let requested = requested(resource, object);
    let mut charged = Vec::new();
    for stored in transaction.all(&convert::collection(&quotas), namespace) {
        let scoped = !value::is_empty(&stored.value, &["spec", "scopes"])
            || value::has(&stored.value, &["spec", "scopeSelector"]);
        if !scoped && let Some(after) = charge_one(resource, object, &requested, &stored)? {
            charged.push((stored, after));
        }
    }
    for (stored, after) in charged {
        transaction.replace(&quotas, &stored, after, dry_run)?;
    }
    Ok(())
}

/// Returns the resources that one object uses.
fn requested(resource: &ResourceInfo, object: &Value) -> BTreeMap<String, i64> {
    let mut requested = BTreeMap::new();
    let name = ResourceName { group: &resource.group, resource: &resource.plural };
    requested.insert(format!("count/{name}"), 1);
    if resource.group.is_empty() && NAMED.contains(&resource.plural.as_str()) {
        requested.insert(resource.plural.clone(), 1);
    }
    if resource.group.is_empty() && resource.plural == "services" {
        let ports = i64::try_from(value::items(object, &["spec", "ports"]).len()).unwrap_or(i64::MAX);
        match value::text(object, &["spec", "type"]) {
            "NodePort" => drop(requested.insert("services.nodeports".to_owned(), ports)),
            "LoadBalancer" => {
                requested.insert("services.loadbalancers".to_owned(), 1);
                requested.insert("services.nodeports".to_owned(), ports);
            }
            _ => {}
        }
    }
    requested
}

/// Returns the quota after the object is charged; `None` if it limits no resource of the object.
fn charge_one(
    resource: &ResourceInfo,
    object: &Value,
    requested: &BTreeMap<String, i64>,
    quota: &Arc<Stored>,
) -> Result<Option<Value>, Status> {
    let limits: Vec<(&String, i64, &str)> = requested
        .iter()
        .filter_map(|(name, count)| {
            let limit = value::at(&quota.value, &["status", "hard", name]).as_str()?;
            Some((name, *count, limit))
        })
        .collect();
    if limits.is_empty() {
        return Ok(None);
    }
    let used = |name: &str| value::at(&quota.value, &["status", "used", name]).as_str();
    let unknown: Vec<_> = limits.iter().filter(|it| used(it.0).is_none()).map(|it| it.0.as_str()).collect();
    let quota_name = &quota.key.name;
    let refuse = |why: &str| {
        let named = ResourceName { group: &resource.group, resource: &resource.plural };
        Err(Status::forbidden(named, value::text(object, &["metadata", "name"]), why))
    };
    if !unknown.is_empty() {
        return refuse(&format!("status unknown for quota: {quota_name}, resources: {}", unknown.join(",")));
    }
    let sum = |name: &str, count: i64| quantity::sum([used(name).unwrap_or_default(), &count.to_string()]);
    let is_exceeded = |(name, count, limit): &&(&String, i64, &str)| {
        GoQuantity::parse(limit).is_ok_and(|limit| sum(name, *count).compare(&limit) == Ordering::Greater)
    };
    let exceeded: Vec<_> = limits.iter().filter(is_exceeded).collect();
    if !exceeded.is_empty() {
        let join = |of: &dyn Fn(&(&String, i64, &str)) -> String| {
            let parts: Vec<_> = exceeded.iter().map(|it| format!("{}={}", it.0, of(it))).collect();
            parts.join(",")
        };
        return refuse(&format!(
            "exceeded quota: {quota_name}, requested: {}, used: {}, limited: {}",
            join(&|it| it.1.to_string()),
            join(&|it| used(it.0).unwrap_or_default().to_owned()),
            join(&|it| it.2.to_owned()),
        ));
    }
    let mut after = quota.value.clone();
    for (name, count, _) in limits {
        value::set(&mut after, &["status", "used", name], sum(name, count).canonical());
    }
    Ok(Some(after))
}
