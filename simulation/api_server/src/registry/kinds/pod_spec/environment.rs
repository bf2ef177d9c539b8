//! Validation of environment variables and references to fields.

use serde_json::Value;

use super::super::super::invalid::FieldErrors;
use super::super::super::{names, value};
use super::super::join;
use super::paths;

/// Fields of a pod that a variable can have as its value.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields of a pod that have a label in the API.
const KNOWN_FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTE_DIVISORS: [&str; 13] =
    ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];

/// Validates the environment of a container.
pub(super) fn validate(container: &Value, path: &str, errors: &mut FieldErrors) {
    for (index, variable) in value::items(container, &["env"]).iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        match value::text(variable, &["name"]) {
            "" => errors.required(join(&path, "name"), ""),
            name => variable_name(name, &join(&path, "name"), errors),
        }
        if value::has(variable, &["valueFrom"]) {
            source(variable, &join(&path, "valueFrom"), errors);
        }
    }
    from(container, &join(path, "envFrom"), errors);
}

fn variable_name(name: &str, field: &str, errors: &mut FieldErrors) {
    if name.is_empty() || !name.bytes().all(|it| (b' '..=b'~').contains(&it) && it != b'=') {
        let detail = "a valid environment variable name must consist only of printable ASCII characters other than \
                      '='";
        errors.invalid(field, name, detail);
    }
}

fn source(variable: &Value, path: &str, errors: &mut FieldErrors) {
    let found = value::at(variable, &["valueFrom"]);
    let mut count = 0;
    for kind in SOURCES {
        let (reference, path) = (value::at(found, &[kind]), join(path, kind));
        if reference.is_null() {
            continue;
        }
        count += 1;
        match kind {
            "fieldRef" => field_reference(reference, &FIELDS, &path, errors),
            "resourceFieldRef" => resource_reference(reference, false, &path, errors),
            "fileKeyRef" => file_reference(reference, &path, errors),
            _ => key_reference(reference, &path, errors),
        }
    }
    let detail = match count {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !value::text(variable, &["value"]).is_empty() => {
            "may not be specified when `value` is not empty"
        }
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.invalid(path, "", detail);
}

/// Validates a reference to a field of a pod.
pub(super) fn field_reference(reference: &Value, known: &[&str], path: &str, errors: &mut FieldErrors) {
    for field in ["apiVersion", "fieldPath"] {
        if value::text(reference, &[field]).is_empty() {
            errors.required(join(path, field), "");
            return;
        }
    }
    let (version, given) = (value::text(reference, &["apiVersion"]), value::text(reference, &["fieldPath"]));
    let subscript = given.strip_suffix("']").and_then(|it| it.split_once("['"));
    let subscript = subscript.filter(|it| !it.0.is_empty());
    let problem = match subscript {
        _ if version != "v1" => format!("unsupported pod version: {version}"),
        Some((parent, key)) => match parent {
            "metadata.annotations" => {
                errors.each(path, &key.to_lowercase(), names::qualified(&key.to_lowercase()));
                return;
            }
            "metadata.labels" => {
                errors.each(path, key, names::qualified(key));
                return;
            }
            _ => format!("field label does not support subscript: {given}"),
        },
        None if given == "spec.host" || KNOWN_FIELDS.contains(&given) => {
            let given = if given == "spec.host" { "spec.nodeName" } else { given };
            if !known.contains(&given) {
                errors.not_supported(join(path, "fieldPath"), given, known);
            }
            return;
        }
        None => format!("field label not supported: {given}"),
    };
    errors.invalid(join(path, "fieldPath"), given, &format!("error converting fieldPath: {problem}"));
}

/// Validates a reference to a resource of a container.
pub(super) fn resource_reference(reference: &Value, in_volume: bool, path: &str, errors: &mut FieldErrors) {
    let resource = value::text(reference, &["resource"]);
    let pages = ["requests.hugepages-", "limits.hugepages-"].iter().any(|it| resource.starts_with(it));
    if in_volume && value::text(reference, &["containerName"]).is_empty() {
        errors.required(join(path, "containerName"), "");
    } else if resource.is_empty() {
        errors.required(join(path, "resource"), "");
    } else if !pages && !RESOURCES.contains(&resource) {
        errors.not_supported(join(path, "resource"), resource, &RESOURCES);
    }
    let divisor = value::text(reference, &["divisor"]);
    if matches!(divisor, "" | "0") {
        return;
    }
    let bytes = |of: &str| {
        let known = BYTE_DIVISORS.join(", ");
        (!BYTE_DIVISORS.contains(&divisor))
            .then(|| format!("only divisor's values {known} are supported with the {of} resource"))
    };
    let problem = match resource.split_once('.').map(|it| it.1) {
        Some("cpu") => (!["1m", "1"].contains(&divisor))
            .then(|| "only divisor's values 1m and 1 are supported with the cpu resource".to_owned()),
        Some("memory") => bytes("memory"),
        Some("ephemeral-storage") => bytes("local ephemeral storage"),
        Some(_) if pages => bytes("hugepages"),
        _ => None,
    };
    if let Some(detail) = problem {
        errors.invalid(join(path, "divisor"), resource, &detail);
    }
}

fn key_reference(reference: &Value, path: &str, errors: &mut FieldErrors) {
    let name = value::text(reference, &["name"]);
    errors.each(&join(path, "name"), name, names::subdomain(name));
    match value::text(reference, &["key"]) {
        "" => errors.required(join(path, "key"), ""),
        key => errors.each(&join(path, "key"), key, names::data_key(key)),
    }
}

fn file_reference(reference: &Value, path: &str, errors: &mut FieldErrors) {
    match value::text(reference, &["key"]) {
        "" => errors.required(join(path, "key"), ""),
        key => variable_name(key, &join(path, "key"), errors),
    }
    match value::text(reference, &["volumeName"]) {
        "" => errors.required(join(path, "volumeName"), ""),
        name => errors.each(&join(path, "volumeName"), name, names::label(name)),
    }
    match value::text(reference, &["path"]) {
        "" => errors.required(join(path, "path"), ""),
        text => paths::no_backsteps(text, &join(path, "path"), errors),
    }
}

fn from(container: &Value, path: &str, errors: &mut FieldErrors) {
    for (index, source) in value::items(container, &["envFrom"]).iter().enumerate() {
        let own = format!("{path}[{index}]");
        let prefix = value::text(source, &["prefix"]);
        if !prefix.is_empty() {
            variable_name(prefix, &join(&own, "prefix"), errors);
        }
        let mut count = 0;
        for kind in ["configMapRef", "secretRef"] {
            if !value::has(source, &[kind]) {
                continue;
            }
            count += 1;
            let field = format!("{own}.{kind}.name");
            match value::text(source, &[kind, "name"]) {
                "" => errors.required(field, ""),
                name => errors.each(&field, name, names::subdomain_name(name, true)),
            }
        }
        match count {
            0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
        }
    }
}
