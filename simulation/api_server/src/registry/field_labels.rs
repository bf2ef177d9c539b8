//! Field selectors of the built-in kinds.

use std::borrow::Cow;

use serde_json::Value;
use windlass_schema::ResourceInfo;

use super::value;
use crate::read::{FieldReader, FieldTable, not_supported};

/// Returns the field table of a built-in kind.
pub(crate) fn of(resource: &ResourceInfo) -> FieldTable {
    let (group, plural) = (resource.group.as_str(), resource.plural.as_str());
    let table = match (group, plural) {
        ("", "pods") => paths(&[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ])
        .with("spec.host", FieldReader::Pointer(Cow::Borrowed("/spec/nodeName")))
        .with("spec.hostNetwork", FieldReader::With(|it| flag(it, &["spec", "hostNetwork"]))),
        ("", "nodes") => {
            named().with("spec.unschedulable", FieldReader::With(|it| flag(it, &["spec", "unschedulable"])))
        }
        ("", "replicationcontrollers") => namespaced().with("status.replicas", replicas()),
        ("", "events") => events("involvedObject", &["reportingComponent"]),
        ("events.k8s.io", "events") => events("regarding", &["reportingController", "reportingComponent"]),
        ("", "namespaces") => named().with_path("status.phase").with("name", FieldReader::Name),
        ("", "secrets") => namespaced().with_path("type"),
        ("", "services") => namespaced().with_path("spec.clusterIP").with_path("spec.type"),
        ("batch", "jobs") => {
            FieldTable::empty(|field| format!("field label {field:?} not supported for Job"))
                .with("metadata.name", FieldReader::Name)
                .with("metadata.namespace", FieldReader::Namespace)
                .with("status.successful", FieldReader::With(|it| number(it, &["status", "succeeded"])))
        }
        ("certificates.k8s.io", "certificatesigningrequests") => named().with_path("spec.signerName"),
        _ => FieldTable::metadata(),
    };
    if group == "apps" && plural == "replicasets" {
        return table.with("status.replicas", replicas());
    }
    table
}

fn named() -> FieldTable {
    FieldTable::empty(not_supported).with("metadata.name", FieldReader::Name)
}

fn namespaced() -> FieldTable {
    named().with("metadata.namespace", FieldReader::Namespace)
}

fn paths(fields: &[&'static str]) -> FieldTable {
    fields.iter().fold(namespaced(), |table, field| table.with_path(*field))
}

/// Returns the field table of events. Both groups also support the core group's field names. Stored events have the
/// field names of the group in which they were written.
fn events(object: &'static str, controllers: &[&'static str]) -> FieldTable {
    let first =
        |pointers: &[&'static str]| FieldReader::FirstOf(pointers.iter().map(|it| (*it).into()).collect());
    let parts = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];
    let mut table = paths(&["reason", "type"]);
    for part in parts {
        let pointers = ["involvedObject", "regarding"].map(|it| format!("/{it}/{part}").into());
        let reader = FieldReader::FirstOf(pointers.to_vec());
        table = table.with(format!("{object}.{part}"), reader.clone());
        table = table.with(format!("involvedObject.{part}"), reader);
    }
    for controller in controllers {
        table = table.with(*controller, first(&["/reportingComponent", "/reportingController"]));
    }
    // The reporting controller is the default source.
    let sources =
        ["/source/component", "/deprecatedSource/component", "/reportingComponent", "/reportingController"];
    table.with("source", first(&sources))
}

fn replicas() -> FieldReader {
    FieldReader::With(|it| number(it, &["status", "replicas"]))
}

fn number(object: &Value, path: &[&str]) -> String {
    value::integer(object, path).unwrap_or_default().to_string()
}

fn flag(object: &Value, path: &[&str]) -> String {
    value::flag(object, path).to_string()
}
