//! Rows of volumes, claims and classes.

use serde_json::{Value, json};

use super::Layout;
use super::cells::{Row, plain};

/// Returns the layout of a storage resource.
pub(super) fn layout(group: &str, plural: &str) -> Option<Layout> {
    Some(match (group, plural) {
        ("", "persistentvolumes") => Layout(
            "Name Capacity Access-Modes Reclaim-Policy Status Claim StorageClass VolumeAttributesClass Reason Age \
             VolumeMode?",
            volume,
        ),
        ("", "persistentvolumeclaims") => Layout(
            "Name Status Volume Capacity Access-Modes StorageClass VolumeAttributesClass Age VolumeMode?",
            claim,
        ),
        ("storage.k8s.io", "storageclasses") => {
            Layout("Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age", storage_class)
        }
        ("storage.k8s.io", "volumeattachments") => {
            Layout("Name Attacher:name PV Node Attached:boolean Age", attachment)
        }
        ("storage.k8s.io", "volumeattributesclasses") => Layout("Name DriverName Age", |row| {
            vec![json!(row.name()), json!(row.text("/driverName")), row.age()]
        }),
        ("storage.k8s.io", "csinodes") => Layout("Name Drivers:integer Age", |row| {
            vec![json!(row.name()), json!(row.list("/spec/drivers").len()), row.age()]
        }),
        ("storage.k8s.io", "csidrivers") => Layout(
            "Name AttachRequired:boolean PodInfoOnMount:boolean StorageCapacity:boolean TokenRequests \
             RequiresRepublish:boolean Modes Age",
            driver,
        ),
        ("storage.k8s.io", "csistoragecapacities") => Layout("Name StorageClassName Capacity", |row| {
            let capacity = row.at("/capacity").map_or_else(|| "<unset>".to_owned(), plain);
            vec![json!(row.name()), json!(row.text("/storageClassName")), json!(capacity)]
        }),
        _ => return None,
    })
}

fn access_modes(list: &[Value]) -> Value {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &&(&str, &str)| list.iter().any(|it| it == mode.0);
    json!(short.iter().filter(has).map(|(_, short)| *short).collect::<Vec<_>>().join(","))
}

fn phase(row: Row<'_>) -> Value {
    json!(if row.is_leaving() { "Terminating" } else { row.text("/status/phase") })
}

/// Returns the class of a volume or claim: a deprecated annotation takes precedence over the field.
fn class<'a>(row: Row<'a>) -> &'a str {
    let old = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
    row.at(old).and_then(Value::as_str).unwrap_or_else(|| row.text("/spec/storageClassName"))
}

fn volume(row: Row<'_>) -> Vec<Value> {
    let claim = row.at("/spec/claimRef").map(|it| {
        let text = |field: &str| it[field].as_str().unwrap_or_default();
        format!("{}/{}", text("namespace"), text("name"))
    });
    vec![
        json!(row.name()),
        json!(row.at("/spec/capacity/storage").map_or_else(|| "0".to_owned(), plain)),
        access_modes(row.list("/spec/accessModes")),
        json!(row.text("/spec/persistentVolumeReclaimPolicy")),
        phase(row),
        json!(claim.unwrap_or_default()),
        json!(class(row)),
        json!(row.text_or("/spec/volumeAttributesClassName", "<unset>")),
        json!(row.text("/status/reason")),
        row.age(),
        json!(row.text_or("/spec/volumeMode", "<unset>")),
    ]
}

fn claim(row: Row<'_>) -> Vec<Value> {
    let volume = row.text("/spec/volumeName");
    let (capacity, modes) = match volume {
        "" => (String::new(), json!("")),
        _ => (
            row.at("/status/capacity/storage").map_or_else(|| "0".to_owned(), plain),
            access_modes(row.list("/status/accessModes")),
        ),
    };
    vec![
        json!(row.name()),
        phase(row),
        json!(volume),
        json!(capacity),
        modes,
        json!(class(row)),
        json!(row.text_or("/spec/volumeAttributesClassName", "<unset>")),
        row.age(),
        json!(row.text_or("/spec/volumeMode", "<unset>")),
    ]
}

fn storage_class(row: Row<'_>) -> Vec<Value> {
    let default = "/metadata/annotations/storageclass.kubernetes.io~1is-default-class";
    let mark = if row.text(default) == "true" { " (default)" } else { "" };
    vec![
        json!(format!("{}{mark}", row.name())),
        json!(row.text("/provisioner")),
        json!(row.text_or("/reclaimPolicy", "Delete")),
        json!(row.text_or("/volumeBindingMode", "Immediate")),
        json!(row.boolean("/allowVolumeExpansion")),
        row.age(),
    ]
}

fn attachment(row: Row<'_>) -> Vec<Value> {
    vec![
        json!(row.name()),
        json!(row.text("/spec/attacher")),
        json!(row.text("/spec/source/persistentVolumeName")),
        json!(row.text("/spec/nodeName")),
        json!(row.boolean("/status/attached")),
        row.age(),
    ]
}

fn driver(row: Row<'_>) -> Vec<Value> {
    let joined = |path: &str, field: Option<&str>| {
        let text = |it: &Value| field.map_or(it, |field| &it[field]).as_str().unwrap_or_default().to_owned();
        row.list(path).iter().map(text).collect::<Vec<_>>().join(",")
    };
    let tokens = match row.at("/spec/tokenRequests") {
        None => "<unset>".to_owned(),
        Some(_) => joined("/spec/tokenRequests", Some("audience")),
    };
    let attach = row.at("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true);
    vec![
        json!(row.name()),
        json!(attach),
        json!(row.boolean("/spec/podInfoOnMount")),
        json!(row.boolean("/spec/storageCapacity")),
        json!(tokens),
        json!(row.boolean("/spec/requiresRepublish")),
        json!(super::cells::or_none(joined("/spec/volumeLifecycleModes", None))),
        row.age(),
    ]
}
