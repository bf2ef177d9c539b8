//! Validation of volumes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::super::invalid::FieldErrors;
use super::super::super::{names, quantity, value};
use super::super::{join, volumes as claims};
use super::paths::{descending, no_backsteps};
use super::{Context, Volumes, containers, environment};

/// Volume types in the order in which upstream validates them.
const TYPES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "flocker",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];
const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
/// Fields of a pod that a file can contain.
const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
/// Limits of the lifetime of a projected token in seconds.
const TOKEN_SECONDS: std::ops::RangeInclusive<i64> = 600..=(1 << 32);

/// Validates the volumes of a pod, and returns the valid ones.
pub(super) fn validate<'a>(context: &Context<'a>, errors: &mut FieldErrors) -> Volumes<'a> {
    let all = value::items(context.spec, &["volumes"]);
    let created: BTreeSet<String> = match context.name {
        "" => BTreeSet::new(),
        pod => all
            .iter()
            .filter(|it| value::has(it, &["ephemeral"]))
            .map(|it| format!("{pod}-{}", value::text(it, &["name"])))
            .collect(),
    };
    let mut found = Volumes::new();
    for (index, volume) in all.iter().enumerate() {
        let path = format!("{}.volumes[{index}]", context.path);
        let name = value::text(volume, &["name"]);
        let before = errors.0.len();
        source(context, volume, &path, errors);
        match name {
            "" => errors.required(join(&path, "name"), ""),
            name => errors.each(&join(&path, "name"), name, names::label(name)),
        }
        if found.contains_key(name) {
            errors.duplicate(join(&path, "name"), name);
        }
        if errors.0.len() == before {
            found.insert(name, volume);
        }
        let claim = value::text(volume, &["persistentVolumeClaim", "claimName"]);
        if created.contains(claim) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(join(&path, "persistentVolumeClaim.claimName"), claim, detail);
        }
    }
    found
}

fn source(context: &Context<'_>, volume: &Value, path: &str, errors: &mut FieldErrors) {
    let mut count = 0;
    for kind in TYPES {
        let (source, field) = (value::at(volume, &[kind]), join(path, kind));
        if source.is_null() {
            continue;
        }
        count += 1;
        if count > 1 {
            // Upstream's field name is misspelled.
            let field = if kind == "downwardAPI" { join(path, "downwarAPI") } else { field };
            errors.forbidden(field, "may not specify more than 1 volume type");
            continue;
        }
        typed(context, kind, source, &field, value::text(volume, &["name"]), errors);
    }
    if count == 0 {
        errors.required(path, "must specify a volume type");
    }
}

fn typed(
    context: &Context<'_>,
    kind: &str,
    source: &Value,
    path: &str,
    name: &str,
    errors: &mut FieldErrors,
) {
    match kind {
        "emptyDir" => {
            let limit = value::text(source, &["sizeLimit"]);
            if quantity::thousandths(limit).is_some_and(|it| it < 0) {
                let detail = "SizeLimit field must be a valid resource quantity";
                errors.forbidden(join(path, "sizeLimit"), detail);
            }
        }
        "hostPath" => host_path(source, path, errors),
        "gitRepo" => {
            required(source, path, &["repository"], errors);
            descending(value::text(source, &["directory"]), &join(path, "directory"), errors);
        }
        "secret" => files(source, path, "secretName", errors),
        "configMap" => files(source, path, "name", errors),
        "nfs" => {
            required(source, path, &["server", "path"], errors);
            let place = value::text(source, &["path"]);
            if !place.starts_with('/') {
                errors.invalid(join(path, "path"), place, "must be an absolute path");
            }
        }
        "persistentVolumeClaim" => required(source, path, &["claimName"], errors),
        "gcePersistentDisk" => required(source, path, &["pdName"], errors),
        "awsElasticBlockStore" | "cinder" => required(source, path, &["volumeID"], errors),
        "glusterfs" => required(source, path, &["endpoints", "path"], errors),
        "vsphereVolume" => required(source, path, &["volumePath"], errors),
        "downwardAPI" => {
            mode(source, path, "defaultMode", errors);
            for file in value::items(source, &["items"]) {
                downward_file(file, path, errors);
            }
        }
        "projected" => projected(source, path, errors),
        "csi" => csi(source, path, errors),
        "ephemeral" => ephemeral(context, source, path, name, errors),
        "image" => {
            if context.is_pod {
                required(source, path, &["reference"], errors);
            }
            containers::pull_policy(source, path, "pullPolicy", errors);
        }
        // Nothing in a simulation uses the other types.
        _ => {}
    }
}

fn required(source: &Value, path: &str, fields: &[&str], errors: &mut FieldErrors) {
    for field in fields.iter().filter(|field| value::is_empty(source, &[field])) {
        errors.required(join(path, field), "");
    }
}

fn mode(source: &Value, path: &str, field: &str, errors: &mut FieldErrors) {
    if let Some(mode) = value::integer(source, &[field]).filter(|it| !(0..=0o777).contains(it)) {
        errors.invalid(join(path, field), mode, MODE);
    }
}

fn host_path(source: &Value, path: &str, errors: &mut FieldErrors) {
    let place = value::text(source, &["path"]);
    if place.is_empty() {
        errors.required(join(path, "path"), "");
        return;
    }
    no_backsteps(place, &join(path, "path"), errors);
    let kind = value::text(source, &["type"]);
    if !HOST_PATH_TYPES.contains(&kind) {
        errors.not_supported(join(path, "type"), kind, &HOST_PATH_TYPES);
    }
}

fn files(source: &Value, path: &str, name: &str, errors: &mut FieldErrors) {
    required(source, path, &[name], errors);
    mode(source, path, "defaultMode", errors);
    for (index, item) in value::items(source, &["items"]).iter().enumerate() {
        key_to_path(item, &format!("{path}.items[{index}]"), errors);
    }
}

fn key_to_path(item: &Value, path: &str, errors: &mut FieldErrors) {
    required(item, path, &["key", "path"], errors);
    local(value::text(item, &["path"]), &join(path, "path"), errors);
    mode(item, path, "mode", errors);
}

fn downward_file(file: &Value, path: &str, errors: &mut FieldErrors) {
    required(file, path, &["path"], errors);
    local(value::text(file, &["path"]), &join(path, "path"), errors);
    let (field, resource) = (value::at(file, &["fieldRef"]), value::at(file, &["resourceFieldRef"]));
    if !field.is_null() {
        environment::field_reference(field, &FILE_FIELDS, &join(path, "fieldRef"), errors);
        if !resource.is_null() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.invalid(path, "resource", detail);
        }
    } else if !resource.is_null() {
        environment::resource_reference(resource, true, &join(path, "resourceFieldRef"), errors);
    } else {
        errors.required(path, "one of fieldRef and resourceFieldRef is required");
    }
    mode(file, path, "mode", errors);
}

fn projected(source: &Value, path: &str, errors: &mut FieldErrors) {
    mode(source, path, "defaultMode", errors);
    let mut taken = BTreeSet::new();
    for (index, part) in value::items(source, &["sources"]).iter().enumerate() {
        let own = format!("{path}.sources[{index}]");
        let mut count = 0;
        for kind in ["secret", "configMap"] {
            let found = value::at(part, &[kind]);
            if found.is_null() {
                continue;
            }
            count += 1;
            let own = join(&own, kind);
            required(found, &own, &["name"], errors);
            for (index, item) in value::items(found, &["items"]).iter().enumerate() {
                key_to_path(item, &format!("{own}.items[{index}]"), errors);
                let place = value::text(item, &["path"]);
                if !place.is_empty() && !taken.insert(place) {
                    errors.invalid(path, value::text(found, &["name"]), "conflicting duplicate paths");
                }
            }
        }
        if value::has(part, &["downwardAPI"]) {
            count += 1;
            for file in value::items(part, &["downwardAPI", "items"]) {
                downward_file(file, &join(&own, "downwardAPI"), errors);
                let place = value::text(file, &["path"]);
                if !place.is_empty() && !taken.insert(place) {
                    errors.invalid(path, place, "conflicting duplicate paths");
                }
            }
        }
        if value::has(part, &["serviceAccountToken"]) {
            count += 1;
            token(&part["serviceAccountToken"], path, &join(&own, "serviceAccountToken"), errors);
        }
        if value::has(part, &["clusterTrustBundle"]) || value::has(part, &["podCertificate"]) {
            count += 1;
        }
        if count > 1 {
            errors.forbidden(own, "may not specify more than 1 volume type per source");
        }
    }
}

fn token(source: &Value, volume: &str, path: &str, errors: &mut FieldErrors) {
    let seconds = value::integer(source, &["expirationSeconds"]).unwrap_or_default();
    let field = join(path, "expirationSeconds");
    if seconds < *TOKEN_SECONDS.start() {
        errors.invalid(field, seconds, "may not specify a duration less than 10 minutes");
    } else if seconds > *TOKEN_SECONDS.end() {
        errors.invalid(field, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    match value::text(source, &["path"]) {
        "" => errors.required(join(volume, "path"), ""),
        place => local(place, &join(volume, "path"), errors),
    }
}

fn csi(source: &Value, path: &str, errors: &mut FieldErrors) {
    let driver = value::text(source, &["driver"]);
    let field = join(path, "driver");
    if driver.is_empty() {
        errors.required(field, "");
    } else {
        if driver.len() > 63 {
            errors.too_long(field.clone(), 63);
        }
        errors.each(&field, driver, names::subdomain(&driver.to_lowercase()));
    }
    if value::has(source, &["nodePublishSecretRef"]) {
        match value::text(source, &["nodePublishSecretRef", "name"]) {
            "" => errors.required(join(path, "nodePublishSecretRef.name"), ""),
            name => errors.each(&join(path, "name"), name, names::subdomain(name)),
        }
    }
}

fn ephemeral(context: &Context<'_>, source: &Value, path: &str, name: &str, errors: &mut FieldErrors) {
    let template = value::at(source, &["volumeClaimTemplate"]);
    if template.is_null() {
        errors.required(join(path, "volumeClaimTemplate"), "");
    } else {
        claims::validate_template(template, &join(path, "volumeClaimTemplate"), errors);
    }
    if !context.name.is_empty() && !name.is_empty() {
        let claim = format!("{}-{name}", context.name);
        for reason in names::subdomain(&claim) {
            errors.invalid(join(path, "name"), name, &format!("PVC name {claim:?}: {reason}"));
        }
    }
}

/// Rejects paths that leave the volume, or that a volume reserves.
fn local(place: &str, field: &str, errors: &mut FieldErrors) {
    descending(place, field, errors);
    if place.starts_with("..") && !place.starts_with("../") {
        errors.invalid(field, place, "must not start with '..'");
    }
}
