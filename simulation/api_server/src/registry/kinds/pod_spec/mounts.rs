//! Validation of volume mounts and volume devices.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::super::invalid::FieldErrors;
use super::super::super::value;
use super::super::join;
use super::{Volumes, paths};

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];

/// Validates the mounts and devices of a container.
pub(super) fn validate(container: &Value, path: &str, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    let places = |list: &str, field: &str| -> BTreeMap<String, String> {
        value::items(container, &[list])
            .iter()
            .map(|it| (value::text(it, &["name"]).to_owned(), value::text(it, &[field]).to_owned()))
            .collect()
    };
    let (mounts, devices) = (places("volumeMounts", "mountPath"), places("volumeDevices", "devicePath"));
    self::mounts(container, &join(path, "volumeMounts"), volumes, &devices, errors);
    self::devices(container, &join(path, "volumeDevices"), volumes, &mounts, errors);
}

fn mounts(
    container: &Value,
    path: &str,
    volumes: &Volumes<'_>,
    devices: &BTreeMap<String, String>,
    errors: &mut FieldErrors,
) {
    let mut taken = BTreeSet::new();
    for (index, mount) in value::items(container, &["volumeMounts"]).iter().enumerate() {
        let own = format!("{path}[{index}]");
        let (name, at) = (value::text(mount, &["name"]), value::text(mount, &["mountPath"]));
        if name.is_empty() {
            errors.required(join(&own, "name"), "");
        }
        if !volumes.contains_key(name) {
            errors.not_found(join(&own, "name"), name);
        }
        if at.is_empty() {
            errors.required(join(&own, "mountPath"), "");
        }
        if !taken.insert(at) {
            errors.invalid(join(&own, "mountPath"), at, "must be unique");
        }
        if devices.contains_key(name) {
            errors.invalid(join(&own, "name"), name, "must not already exist in volumeDevices");
        }
        if devices.values().any(|it| it == at) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid(join(&own, "mountPath"), at, detail);
        }
        parts(mount, path, &own, errors);
        propagation(container, mount, path, errors);
        read_only(mount, &join(path, "recursiveReadOnly"), errors);
    }
}

/// Validates the mounted part of a volume. Upstream reports some fields without the index.
fn parts(mount: &Value, path: &str, own: &str, errors: &mut FieldErrors) {
    let (part, expression) = (value::text(mount, &["subPath"]), value::text(mount, &["subPathExpr"]));
    if !part.is_empty() {
        paths::descending(part, &join(path, "subPath"), errors);
    }
    if expression.is_empty() {
        return;
    }
    if !part.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.invalid(join(own, "subPathExpr"), expression, detail);
    }
    paths::descending(expression, &join(path, "subPathExpr"), errors);
}

fn propagation(container: &Value, mount: &Value, path: &str, errors: &mut FieldErrors) {
    let Some(found) = value::at(mount, &["mountPropagation"]).as_str() else { return };
    let field = join(path, "mountPropagation");
    if !PROPAGATIONS.contains(&found) {
        errors.not_supported(field.clone(), found, &PROPAGATIONS);
    }
    if found == "Bidirectional" && !value::flag(container, &["securityContext", "privileged"]) {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(field, detail);
    }
}

fn read_only(mount: &Value, field: &str, errors: &mut FieldErrors) {
    match value::at(mount, &["recursiveReadOnly"]).as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !value::flag(mount, &["readOnly"]) {
                errors.forbidden(field, "may only be specified when readOnly is true");
            }
            if !matches!(value::text(mount, &["mountPropagation"]), "" | "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(field, detail);
            }
        }
        Some(other) => errors.not_supported(field, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn devices(
    container: &Value,
    path: &str,
    volumes: &Volumes<'_>,
    mounts: &BTreeMap<String, String>,
    errors: &mut FieldErrors,
) {
    let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in value::items(container, &["volumeDevices"]).iter().enumerate() {
        let path = format!("{path}[{index}]");
        let (name, at) = (value::text(device, &["name"]), value::text(device, &["devicePath"]));
        let (name_field, path_field) = (join(&path, "name"), join(&path, "devicePath"));
        if name.is_empty() {
            errors.required(name_field.clone(), "");
        }
        if names.contains(name) {
            errors.invalid(name_field.clone(), name, "must be unique");
        }
        match volumes.get(name) {
            Some(it) if !(value::has(it, &["persistentVolumeClaim"]) || value::has(it, &["ephemeral"])) => {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(name_field.clone(), name, detail);
            }
            Some(_) => {}
            None => errors.not_found(name_field.clone(), name),
        }
        if at.is_empty() {
            errors.required(path_field.clone(), "");
        }
        if places.contains(at) {
            errors.invalid(path_field.clone(), at, "must be unique");
        }
        if at.split('/').any(|it| it == "..") {
            errors.invalid(path_field.clone(), at, "can not contain backsteps ('..')");
        } else {
            places.insert(at);
        }
        if mounts.contains_key(name) {
            errors.invalid(name_field, name, "must not already exist in volumeMounts");
        }
        if mounts.values().any(|it| it == at) {
            errors.invalid(path_field, at, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
