//! Conversion between versions, and the storage collection of a resource.
//!
//! Among the kinds that are served by default, only two exist in several versions: events have two groups, and
//! autoscalers have two versions. Autoscalers are stored in the newer version, which can represent the older one.
//! Other objects are stored in the version in which they were last written.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use windlass_schema::ResourceInfo;

use super::value;
use crate::storage::Collection;

/// Returns the collection in which the objects of a resource are stored.
pub(crate) fn collection(resource: &ResourceInfo) -> Collection {
    collection_of(&resource.group, &resource.plural)
}

/// Returns the collection in which the objects of a group's resource are stored.
pub(crate) fn collection_of(group: &str, plural: &str) -> Collection {
    match (group, plural) {
        ("events.k8s.io", "events") => Collection::new("", "events"),
        (group, plural) => Collection::new(group, plural),
    }
}

/// Returns the `apiVersion` of a resource.
pub(crate) fn api_version(resource: &ResourceInfo) -> String {
    match resource.group.as_str() {
        "" => resource.version.clone(),
        group => format!("{group}/{}", resource.version),
    }
}

/// Returns the name of upstream's internal Go type of a resource.
pub(crate) fn internal_type(resource: &ResourceInfo) -> String {
    let package = match resource.group.split('.').next().unwrap_or_default() {
        "" | "events" => "core",
        package => package,
    };
    format!("{package}.{}", resource.kind)
}

/// Converts a stored object to the version of the resource.
pub(crate) fn serve<'a>(stored: &'a Value, resource: &ResourceInfo) -> Cow<'a, Value> {
    let asked = api_version(resource);
    let from = value::text(stored, &["apiVersion"]);
    if from == asked {
        return Cow::Borrowed(stored);
    }
    let mut object = stored.clone();
    match (from, asked.as_str()) {
        ("v1", "events.k8s.io/v1") => rename(&mut object, EVENT_FIELDS, false),
        ("events.k8s.io/v1", "v1") => rename(&mut object, EVENT_FIELDS, true),
        ("autoscaling/v1", "autoscaling/v2") => newer_autoscaler(&mut object),
        ("autoscaling/v2", "autoscaling/v1") => older_autoscaler(&mut object),
        _ => {}
    }
    value::set(&mut object, &["apiVersion"], asked);
    value::set(&mut object, &["kind"], resource.kind.clone());
    Cow::Owned(object)
}

/// Converts an object to its storage version. Fields that its version cannot represent keep their value from `old`.
pub(crate) fn kept<'a>(object: &'a Value, old: Option<&Value>) -> Cow<'a, Value> {
    let said = [&["apiVersion"], &["kind"]].map(|it| value::text(object, it));
    if said != ["autoscaling/v1", "HorizontalPodAutoscaler"] {
        return Cow::Borrowed(object);
    }
    let newer = |it: &Value| {
        let mut it = it.clone();
        if value::text(&it, &["apiVersion"]) == "autoscaling/v1" {
            newer_autoscaler(&mut it);
            value::set(&mut it, &["apiVersion"], "autoscaling/v2");
        }
        it
    };
    let mut object = newer(object);
    if let Some(old) = old.map(newer) {
        value::keep(&mut object, &old, &["spec", "behavior"]);
        value::keep(&mut object, &old, &["status", "conditions"]);
        for part in AUTOSCALER_PARTS {
            merge_metrics(&mut object, &old, part);
        }
    }
    Cow::Owned(object)
}

/// Merges the metrics of an autoscaler: the older version has only the CPU utilization.
fn merge_metrics(object: &mut Value, old: &Value, (part, _, list, inner): AutoscalerPart) {
    let path = ["resource", inner, "averageUtilization"];
    let is_share = |it: &Value| value::text(it, &["resource", "name"]) == "cpu" && value::has(it, &path);
    let given = value::items(object, &[part, list]).iter().find(|it| is_share(it)).cloned();
    let mut metrics = value::items(old, &[part, list]).to_vec();
    match (metrics.iter_mut().find(|it| is_share(it)), given) {
        (Some(found), Some(given)) => value::keep(found, &given, &path),
        (None, Some(given)) => metrics.push(given),
        (Some(_), None) => metrics.retain(|it| !is_share(it)),
        (None, None) => {}
    }
    if metrics.is_empty() {
        value::remove(object, &[part, list]);
    } else {
        value::set(object, &[part, list], metrics);
    }
}

/// Fields of events with different names in the core group and in `events.k8s.io`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(object: &mut Value, names: &[(&str, &str)], back: bool) {
    let fields = value::fields(object);
    for (core, own) in names {
        let (from, to) = if back { (own, core) } else { (core, own) };
        if let Some(found) = fields.remove(*from) {
            fields.insert((*to).to_owned(), found);
        }
    }
}

/// Location of a number: the part, its field in the older version, its list in the newer one, and the field in an
/// item.
type AutoscalerPart = (&'static str, &'static str, &'static str, &'static str);

const AUTOSCALER_PARTS: [AutoscalerPart; 2] = [
    ("spec", "targetCPUUtilizationPercentage", "metrics", "target"),
    ("status", "currentCPUUtilizationPercentage", "currentMetrics", "current"),
];

fn newer_autoscaler(object: &mut Value) {
    for (part, old, new, inner) in AUTOSCALER_PARTS {
        let Some(share) = value::remove(object, &[part, old]) else { continue };
        let mut figures = Map::from_iter([("averageUtilization".to_owned(), share)]);
        if part == "spec" {
            figures.insert("type".to_owned(), json!("Utilization"));
        }
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", inner: figures}});
        value::set(object, &[part, new], json!([metric]));
    }
}

fn older_autoscaler(object: &mut Value) {
    for (part, old, new, inner) in AUTOSCALER_PARTS {
        let Some(metrics) = value::remove(object, &[part, new]) else { continue };
        let cpu = value::items(&metrics, &[])
            .iter()
            .filter(|it| value::text(it, &["resource", "name"]) == "cpu")
            .map(|it| value::at(it, &["resource", inner, "averageUtilization"]).clone())
            .find(|it| !it.is_null());
        if let Some(share) = cpu {
            value::set(object, &[part, old], share);
        }
    }
    value::remove(object, &["spec", "behavior"]);
    value::remove(object, &["status", "conditions"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_has_the_field_names_of_the_requested_group() {
        let mut event = json!({"involvedObject": {"name": "a"}, "message": "m", "count": 2});
        let core = event.clone();
        rename(&mut event, EVENT_FIELDS, false);
        assert_eq!(event, json!({"regarding": {"name": "a"}, "note": "m", "deprecatedCount": 2}));
        rename(&mut event, EVENT_FIELDS, true);
        assert_eq!(event, core);
    }

    #[test]
    fn cpu_autoscaler_is_equal_in_both_versions() {
        let older = json!({"spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 80}});
        let mut object = older.clone();
        newer_autoscaler(&mut object);
        let target = value::at(&object["spec"]["metrics"][0], &["resource", "target"]);
        assert_eq!(*target, json!({"type": "Utilization", "averageUtilization": 80}));
        older_autoscaler(&mut object);
        assert_eq!(object, older);
    }
}
