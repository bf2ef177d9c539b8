//! Operations by type: the interface to `windlass_schema` and `windlass_patch`.

use jiff::Timestamp;
use serde_json::Value;
use windlass_patch::apply::{self, ApplyError, FieldSet, ManagedFields, Manager};
use windlass_patch::{PatchError, json, strategic};
use windlass_schema::check::{self, Decoded, Strictness};
use windlass_schema::{Catalog, NodeType, ResourceInfo, Schema};

use super::convert;
use super::definition::Definition;
use super::request::{FieldValidation, PatchKind, WriteOptions};
use super::value;
use crate::status::{Cause, Details, Status};

/// The field manager, subresource and time of a write.
pub(crate) struct FieldManagerContext<'a> {
    /// Field manager.
    pub(crate) manager: &'a str,
    /// Subresource; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// Time.
    pub(crate) now: Timestamp,
    /// Fields that this kind of write does not change.
    pub(crate) resets: Vec<&'static [&'static str]>,
}

/// Checks that a body has the kind and version of the path, and sets them if they are missing.
pub(crate) fn identify(
    catalog: &Catalog,
    resource: &ResourceInfo,
    custom: bool,
    object: &mut Value,
    options: &WriteOptions,
) -> Result<(), Status> {
    if custom && options.is_request {
        return identify_custom(catalog, resource, object, options);
    }
    if object.is_null() {
        *object = Value::Object(serde_json::Map::new());
    }
    if !object.is_object() {
        let why = check::unrecognized(&resource.kind, object.to_string().as_bytes(), "the body is no object");
        return Err(Status::bad_request(why));
    }
    if value::text(object, &["apiVersion"]).is_empty() {
        value::set(object, &["apiVersion"], convert::api_version(resource));
    }
    if value::text(object, &["kind"]).is_empty() {
        value::set(object, &["kind"], resource.kind.clone());
    }
    identity(catalog, resource, custom, object, options)
}

/// Checks that the body of a request has the kind and version of a custom resource.
fn identify_custom(
    catalog: &Catalog,
    resource: &ResourceInfo,
    object: &Value,
    options: &WriteOptions,
) -> Result<(), Status> {
    let (api_version, expected) = (value::text(object, &["apiVersion"]), convert::api_version(resource));
    if value::text(object, &["kind"]).is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&options.body));
        return Err(unrecognized(resource, &options.body, &why));
    }
    if api_version.matches('/').count() < 2 && api_version != expected {
        return Err(other_version(api_version, &expected));
    }
    identity(catalog, resource, true, object, options)
}

/// Returns the error for an object whose type cannot be determined.
fn unrecognized(resource: &ResourceInfo, body: &[u8], why: &str) -> Status {
    let message = check::unrecognized(&resource.kind, body, why);
    Status::bad_request(message.replacen("couldn't get version/kind; json parse error: ", "", 1))
}

fn other_version(found: &str, expected: &str) -> Status {
    Status::bad_request(format!(
        "the API version in the data ({found}) does not match the expected API version ({expected})"
    ))
}

/// Checks that an object has the kind and version of the path.
pub(crate) fn identity(
    catalog: &Catalog,
    resource: &ResourceInfo,
    custom: bool,
    object: &Value,
    options: &WriteOptions,
) -> Result<(), Status> {
    let expected = convert::api_version(resource);
    let (api_version, kind) = (value::text(object, &["apiVersion"]), value::text(object, &["kind"]));
    let of_kind = kind == resource.kind;
    if of_kind && api_version == expected {
        return Ok(());
    }
    if custom && !of_kind {
        let (name, message) = (
            value::text(object, &["metadata", "name"]),
            format!("Invalid value: {kind:?}: must be {}", resource.kind),
        );
        let causes =
            vec![Cause { reason: "FieldValueInvalid".to_owned(), message, field: "kind".to_owned() }];
        return Err(Status::invalid(&resource.group, kind, name, causes));
    }
    if api_version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {api_version}");
        let body = match &options.body[..] {
            [] => object.to_string().into_bytes(),
            given => given.to_vec(),
        };
        return Err(unrecognized(resource, &body, &why));
    }
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if !custom && catalog.kind_schema(group, version, kind).is_none() && !is_unserved(group, version, kind) {
        let why = format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
        );
        return Err(Status::bad_request(check::cannot_be_handled(kind, version, &resource.kind, &why)));
    }
    if !of_kind {
        // Upstream decodes the body first as an object of the kind that it names.
        if let Some(other) = catalog.kind_schema(group, version, kind)
            && let Some(error) = check::decode(other, &mut object.clone(), Strictness::Ignore).errors.first()
        {
            let why = &error.message;
            return Err(Status::bad_request(check::cannot_be_handled(kind, version, &resource.kind, why)));
        }
        let why = format!(
            "converting ({version}.{kind}) to ({}): unknown conversion",
            convert::internal_type(resource)
        );
        return Err(Status::bad_request(check::cannot_be_handled(kind, version, &resource.kind, &why)));
    }
    Err(other_version(api_version, &expected))
}

/// Versions that upstream's scheme contains although it does not serve them, and their kinds.
const UNSERVED: &[(&str, &str, &[&str])] = &[
    ("apps", "v1beta1", &["ControllerRevision", "Deployment", "Scale", "StatefulSet"]),
    (
        "apps",
        "v1beta2",
        &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "Scale", "StatefulSet"],
    ),
    (
        "extensions",
        "v1beta1",
        &["DaemonSet", "Deployment", "Ingress", "NetworkPolicy", "ReplicaSet", "Scale"],
    ),
    ("batch", "v1beta1", &["CronJob"]),
    ("coordination.k8s.io", "v1beta1", &["Lease"]),
    ("discovery.k8s.io", "v1beta1", &["EndpointSlice"]),
    ("events.k8s.io", "v1beta1", &["Event"]),
    ("networking.k8s.io", "v1beta1", &["Ingress", "IngressClass"]),
    ("policy", "v1beta1", &["Eviction", "PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", "v1alpha1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("rbac.authorization.k8s.io", "v1beta1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("scheduling.k8s.io", "v1beta1", &["PriorityClass"]),
    ("storage.k8s.io", "v1beta1", &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"]),
];

fn is_unserved(group: &str, version: &str, kind: &str) -> bool {
    UNSERVED.iter().any(|it| (it.0, it.1) == (group, version) && it.2.contains(&kind))
}

/// Returns the reason why a patched object has a wrong kind, from the error for a body with that kind.
pub(crate) fn patched_kind(status: &Status) -> String {
    let why = status.message.split_once("cannot be handled as a ").and_then(|it| it.1.split_once(": "));
    why.map_or(status.message.clone(), |it| it.1.to_owned())
}

/// Decodes an object by its type. `body` are the options of a request whose body is the object. Returns warnings.
pub(crate) fn decode(
    resource: &ResourceInfo,
    definition: Option<&Definition>,
    object: &mut Value,
    validation: FieldValidation,
    body: Option<&WriteOptions>,
) -> Result<Vec<String>, Status> {
    let strictness = match validation {
        FieldValidation::Ignore => Strictness::Ignore,
        FieldValidation::Warn => Strictness::Warn,
        FieldValidation::Strict => Strictness::Strict,
    };
    // Decoding removes empty lists. This list has the same meaning: the request removes all managers.
    if object.pointer("/metadata/managedFields").is_some_and(|it| it == &Value::Array(Vec::new())) {
        value::set(object, &["metadata", "managedFields"], serde_json::json!([{}]));
    }
    let decoded = match definition {
        Some(definition) => definition.decode(&resource.version, object, strictness),
        None => check::decode(&resource.schema, object, strictness),
    };
    oracle(resource, &decoded, validation, body)
}

fn oracle(
    resource: &ResourceInfo,
    decoded: &Decoded,
    validation: FieldValidation,
    body: Option<&WriteOptions>,
) -> Result<Vec<String>, Status> {
    let refuse = |why: &str| {
        let text = check::cannot_be_handled(&resource.kind, &resource.version, &resource.kind, why);
        Err(Status::bad_request(text))
    };
    let is_one = decoded.errors.len() + decoded.unknown_fields.len() < 2;
    let duplicates: Vec<_> = body.map(|it| own_duplicates(resource, &it.duplicates)).unwrap_or_default();
    // Upstream reports errors in the order of the body.
    let order = match body {
        Some(body) if !is_one || !duplicates.is_empty() => check::fields_in_order(&body.body),
        _ => Vec::new(),
    };
    let place = |path: &str| order.iter().position(|it| path == it || path.starts_with(&format!("{it}[")));
    if let Some(error) = decoded.errors.iter().min_by_key(|error| (!error.ends_decoding, place(&error.path)))
    {
        return refuse(&error.message);
    }
    let complaints = decoded.error_messages(&duplicates, &order);
    match validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            refuse(&check::strict_decoding_error(&complaints))
        }
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict | FieldValidation::Warn => Ok(complaints),
    }
}

/// Returns the duplicate fields that are not inside of raw JSON, which upstream does not check.
fn own_duplicates(resource: &ResourceInfo, duplicates: &[String]) -> Vec<String> {
    let is_raw = |path: &str| {
        let mut node = resource.schema.resolve(&resource.schema.root);
        for name in path.split(['.', '[']) {
            let next = match &node.node_type {
                NodeType::Any => return true,
                NodeType::Object(object) => object.fields.get(name).or(object.additional.as_deref()),
                NodeType::List(list) => Some(&*list.items),
                _ => None,
            };
            let Some(next) = next else { return false };
            node = resource.schema.resolve(next);
        }
        false
    };
    duplicates.iter().filter(|path| !is_raw(path)).cloned().collect()
}

/// Sets the defaults of the type.
pub(crate) fn defaults(resource: &ResourceInfo, definition: Option<&Definition>, object: &mut Value) {
    match definition {
        Some(definition) => definition.apply_defaults(&resource.version, object),
        None => check::apply_defaults(&resource.schema, object),
    }
}

/// Converts a prepared object to its storage form. A dry run returns the given `selfLink`.
pub(crate) fn settle(resource: &ResourceInfo, custom: bool, object: &mut Value, dry_run: bool) {
    if !dry_run {
        value::remove(object, &["metadata", "selfLink"]);
    }
    if !custom {
        check::store(&resource.schema, object);
        check::apply_defaults(&resource.schema, object);
    }
}

/// Applies a patch of any kind except apply.
pub(crate) fn patch(
    schema: &Schema,
    kind: PatchKind,
    before: &Value,
    patch: &Value,
) -> Result<Value, Status> {
    let patched = match kind {
        PatchKind::Json => json::apply(before, patch),
        PatchKind::Merge => json::expect_object(patch).map(|()| json::merge(before, patch)),
        PatchKind::Strategic if !(patch.is_object() || patch.is_null()) => {
            Err(PatchError::Malformed(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                check::kind_of(patch)
            )))
        }
        PatchKind::Strategic | PatchKind::Apply => strategic::apply(schema, before, patch),
    };
    patched.map_err(|error| match error {
        PatchError::Malformed(why) => Status::bad_request(why),
        PatchError::Inapplicable(_) => inapplicable(),
        PatchError::TooManyOperations { .. } => {
            let why = format!("Request entity is too large: {error}");
            Status::new(413, "RequestEntityTooLarge", why)
        }
        PatchError::Failed(why) => Status::new(500, "", why),
    })
}

/// Returns the error for a patch that cannot be applied.
fn inapplicable() -> Status {
    let mut status =
        Status::new(422, "Invalid", "the server rejected our request due to an error in our request");
    status.details = Some(Box::default());
    status
}

/// Applies a manager's configuration to an object.
pub(crate) fn apply(
    resource: &ResourceInfo,
    before: Option<&Value>,
    applied: &Value,
    managing: &FieldManagerContext<'_>,
    force: bool,
) -> Result<Value, Status> {
    let (manager, resets) = (manager(managing, force), FieldSet::of_fields(&managing.resets));
    let applied =
        apply::server_side_apply(&resource.schema, before, applied, &manager, &resets, managing.now);
    applied.map_err(|error| match &error {
        ApplyError::Conflicts(conflicts) => {
            let mut status = Status::new(409, "Conflict", error.to_string());
            let cause = |it: &apply::Conflict| Cause {
                reason: "FieldManagerConflict".to_owned(),
                message: it.message(),
                field: it.field(),
            };
            let causes = conflicts.iter().map(cause).collect();
            status.details = Some(Box::new(Details { causes, ..Details::default() }));
            status
        }
        ApplyError::BadRequest(why) => Status::bad_request(why.as_str()),
        ApplyError::Invalid(why) => Status::new(500, "", why.as_str()),
    })
}

/// Records the manager of the fields that a write changed.
pub(crate) fn manage(
    resource: &ResourceInfo,
    old: &Value,
    object: &mut Value,
    managing: &FieldManagerContext<'_>,
) {
    let empty = Value::Object(serde_json::Map::new());
    let old = if old.is_null() { &empty } else { old };
    let resets = FieldSet::of_fields(&managing.resets);
    apply::after_update(&resource.schema, old, object, &manager(managing, false), &resets, managing.now);
}

/// Returns the reason why the managed fields of an object are invalid.
pub(crate) fn invalid_managed_fields(object: &Value) -> Option<String> {
    ManagedFields::read(object).err().map(|error| error.to_string())
}

/// Restores the times of managed fields if nothing else changed.
pub(crate) fn keep_times(before: &Value, after: &mut Value) {
    apply::keep_times(before, after);
}

fn manager(managing: &FieldManagerContext<'_>, force: bool) -> Manager {
    let subresource = Some(managing.subresource.to_owned()).filter(|it| !it.is_empty());
    Manager { name: managing.manager.to_owned(), subresource, force }
}
