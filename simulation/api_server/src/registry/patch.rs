//! Patches of objects.

use std::sync::Arc;

use serde_json::Value;
use windlass_schema::check;

use super::create::in_namespace;
use super::kinds::Kind;
use super::request::{FieldValidation, PatchKind, Target, WriteOptions, WriteResponse};
use super::transform::{self, FieldManagerContext};
use super::update::{check_identity, ignore_version};
use super::writer::WriteTransaction;
use super::{convert, patched_text, value};
use crate::status::{Cause, Status};
use crate::storage::Stored;

impl WriteTransaction<'_> {
    /// Patches the object, or the part of it that a subresource represents.
    pub(crate) fn patch(
        &mut self,
        to: &Target,
        kind: PatchKind,
        patch: &Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        if to.subresource == "scale" {
            return self.patch_scale(to, kind, patch, options);
        }
        let found = self.find(&convert::collection(&to.resource), &to.namespace, &to.name);
        match (kind, found) {
            (PatchKind::Apply, found) => self.apply(to, found.as_ref(), patch, options),
            (_, None) => Err(to.not_found()),
            (kind, Some(old)) => self.patch_found(to, kind, &old, patch, options),
        }
    }

    fn patch_found(
        &mut self,
        to: &Target,
        kind: PatchKind,
        old: &Arc<Stored>,
        patch: &Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let before = self.converted(old.value.clone(), &to.resource)?;
        let custom = self.definition(&to.resource).is_some();
        if custom && kind == PatchKind::Strategic {
            let why = "the body of the request was in an unknown format - accepted media types include: \
                       application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            return Err(Status::new(415, "UnsupportedMediaType", why));
        }
        let (mut object, warnings) = self.patched(to, kind, &before, patch, options)?;
        let written =
            check_identity(to, &mut object).and_then(|()| self.update(to, old, object, options, true));
        WriteResponse::warned(written, warnings)
    }

    /// Returns the decoded result of a patch, and the warnings.
    pub(super) fn patched(
        &self,
        to: &Target,
        kind: PatchKind,
        before: &Value,
        patch: &Value,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>), Status> {
        let is_lenient = patch.is_null() || options.field_validation == FieldValidation::Ignore;
        if kind == PatchKind::Merge && is_lenient && !patch.is_object() {
            return Err(Status::bad_request("Invalid JSON Patch"));
        }
        if kind == PatchKind::Json && is_lenient {
            expect_operations(patch)?;
        }
        let mut object = transform::patch(&to.resource.schema, kind, before, patch)?;
        // Decoding changes the object, so the error message regenerates the original, in the rare error case.
        let shown = || match kind {
            PatchKind::Strategic => check::go_text(patch),
            _ => transform::patch(&to.resource.schema, kind, before, patch)
                .map(|it| patched_text::text(&to.resource.schema, kind, before, patch, &it))
                .unwrap_or_default(),
        };
        let warnings = self.decode_patched(to, kind, &mut object, shown, options)?;
        Ok((object, warnings))
    }

    /// Decodes a patched object like a body, but with other error messages.
    fn decode_patched(
        &self,
        to: &Target,
        kind: PatchKind,
        object: &mut Value,
        shown: impl Fn() -> String,
        options: &WriteOptions,
    ) -> Result<Vec<String>, Status> {
        let definition = self.definition(&to.resource);
        let custom = definition.is_some();
        if kind == PatchKind::Strategic && !custom {
            if !(object["apiVersion"].is_string() && object["kind"].is_string())
                && let Some(why) = check::conversion_error(&to.resource.schema, object)
            {
                return Err(unfit(&shown(), &why));
            }
            // Upstream converts the patched object to the type of the path, whatever its kind and version are.
            value::set(object, &["apiVersion"], convert::api_version(&to.resource));
            value::set(object, &["kind"], to.resource.kind.clone());
        }
        if let Err(why) = check::version_and_kind(object) {
            let why = format!("couldn't get version/kind; json parse error: {why}");
            return Err(unfit(&shown(), &why));
        }
        let is_own_kind = [to.resource.kind.as_str(), ""].contains(&value::text(object, &["kind"]));
        if !custom && is_own_kind && value::text(object, &["apiVersion"]).is_empty() {
            return Err(without_version(to, object, &shown, options));
        }
        let own = WriteOptions::default();
        let identified = if custom {
            patched_identity(to, object, &shown)?;
            transform::identity(&self.served.catalog, &to.resource, custom, object, &own)
        } else {
            transform::identify(&self.served.catalog, &to.resource, custom, object, &own)
        };
        let shown = match identified {
            Err(status) if !custom => return Err(unfit(&shown(), &transform::patched_kind(&status))),
            Err(status) => return Err(status),
            Ok(()) => shown,
        };
        // The duplicates are those of the patch.
        let body = WriteOptions { duplicates: options.duplicates.clone(), ..WriteOptions::default() };
        let validation = options.field_validation;
        let converts = kind == PatchKind::Strategic && !custom;
        let unconverted = converts.then(|| check::conversion_error(&to.resource.schema, object)).flatten();
        let decoded = transform::decode(&to.resource, definition.as_deref(), object, validation, Some(&body));
        let warnings = decoded.map_err(|status| {
            if let Some(why) = &unconverted {
                return unfit(&shown(), why);
            }
            let why = status.message.split_once(&format!("as a {}: ", to.resource.kind));
            let why = why.map_or(status.message.as_str(), |it| it.1);
            unfit(&shown(), why)
        })?;
        self.put_defaults(to, object);
        Ok(warnings)
    }

    fn apply(
        &mut self,
        to: &Target,
        old: Option<&Arc<Stored>>,
        applied: &Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        named(to, applied)?;
        let kind = self.kind_of(&to.resource);
        if old.is_none() && to.is_subresource() {
            return Err(to.not_found());
        }
        let before = old.map(|it| self.converted(it.value.clone(), &to.resource)).transpose()?;
        let managing = FieldManagerContext {
            manager: &options.field_manager,
            subresource: &to.subresource,
            now: self.time(),
            resets: self.resets(to, kind),
        };
        let mut object = transform::apply(&to.resource, before.as_ref(), applied, &managing, options.force)?;
        let warnings = self.finish_applied(to, &mut object, applied, options)?;
        let written = match old {
            Some(old) => {
                check_identity(to, &mut object).and_then(|()| self.update(to, old, object, options, false))
            }
            None => self.create_applied(to, object, options),
        };
        WriteResponse::warned(written, warnings)
    }

    fn finish_applied(
        &self,
        to: &Target,
        object: &mut Value,
        applied: &Value,
        options: &WriteOptions,
    ) -> Result<Vec<String>, Status> {
        let definition = self.definition(&to.resource);
        // Applying has already rejected unknown fields.
        let lenient = match options.field_validation {
            FieldValidation::Strict | FieldValidation::Warn => FieldValidation::Warn,
            FieldValidation::Ignore => FieldValidation::Ignore,
        };
        let decoded = transform::decode(&to.resource, definition.as_deref(), object, lenient, None);
        let warnings = decoded.map_err(|status| match definition {
            None => unconverted(to, object, applied).unwrap_or(status),
            Some(_) => status,
        })?;
        self.put_defaults(to, object);
        Ok(warnings)
    }

    fn create_applied(
        &mut self,
        to: &Target,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let uid = value::text(&object, &["metadata", "uid"]);
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict(to.named(), &to.name, &why));
        }
        in_namespace(to, &mut object)?;
        check_identity(to, &mut object)?;
        ignore_version(&mut object, options)?;
        self.create_managed(to, object, options)
    }

    /// Returns the fields that a write to this target does not change, and so does not manage.
    pub(crate) fn resets(&self, to: &Target, kind: &Kind) -> Vec<&'static [&'static str]> {
        match to.subresource.as_str() {
            "" if self.has_status(to) => vec![&["status"]],
            "status" if self.definition(&to.resource).is_some() => vec![&["spec"], &["metadata"]],
            "status" => {
                let mut resets: Vec<&'static [&'static str]> = vec![&["spec"]];
                resets.extend(kind.kept_by_status);
                resets
            }
            _ => Vec::new(),
        }
    }
}

/// Checks that an applied object has the kind and the version of the path.
pub(super) fn named(to: &Target, applied: &Value) -> Result<(), Status> {
    let (api_version, kind) = (value::text(applied, &["apiVersion"]), value::text(applied, &["kind"]));
    let expected = convert::api_version(&to.resource);
    let served = to.resource.subresources.get(&to.subresource).map_or(&to.resource.kind, |below| &below.kind);
    if api_version != expected || kind != *served {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    Ok(())
}

/// Checks the type of a patched custom object.
fn patched_identity(to: &Target, object: &Value, shown: impl Fn() -> String) -> Result<(), Status> {
    let (api_version, kind) = (value::text(object, &["apiVersion"]), value::text(object, &["kind"]));
    if api_version.is_empty() {
        let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
        return Err(Status::internal(why));
    }
    if kind.is_empty() {
        let shown = shown();
        return Err(unfit(&shown, &format!("Object 'Kind' is missing in '{shown}'")));
    }
    let expected = convert::api_version(&to.resource);
    if kind == to.resource.kind && api_version != expected {
        let message = format!("Invalid value: {api_version:?}: must be {expected}");
        let reason = "FieldValueInvalid".to_owned();
        let causes = vec![Cause { reason, message, field: "apiVersion".to_owned() }];
        let group = api_version.split_once('/').map_or("", |it| it.0);
        return Err(Status::invalid(group, kind, &to.name, causes));
    }
    Ok(())
}

/// Returns the error for a patched object without a version. Upstream decodes it as an internal type, which has none of
/// the fields.
fn without_version(
    to: &Target,
    object: &Value,
    shown: &impl Fn() -> String,
    options: &WriteOptions,
) -> Status {
    let fields = value::entries(object, &[]).map(|(name, _)| name.as_str());
    let unknown: Vec<_> = fields
        .filter(|name| !matches!(*name, "apiVersion" | "kind"))
        .map(|name| format!("unknown field {name:?}"))
        .collect();
    let nameless = Status::bad_request(format!(
        "the name of the object ({} based on URL) was undeterminable: name must be provided",
        to.name
    ));
    match options.field_validation {
        FieldValidation::Ignore => nameless,
        FieldValidation::Strict if !unknown.is_empty() => {
            unfit(&shown(), &check::strict_decoding_error(&unknown))
        }
        _ => nameless.warned(unknown),
    }
}

/// Checks that a JSON patch is a list of objects. Upstream checks more, unless field validation is off.
fn expect_operations(patch: &Value) -> Result<(), Status> {
    let (wrong, of) = match patch {
        Value::Null => return Ok(()),
        Value::Array(items) => match items.iter().find(|it| !it.is_object() && !it.is_null()) {
            Some(item) => (item, "Operation"),
            None => return Ok(()),
        },
        other => (other, "Patch"),
    };
    let given = check::kind_of(wrong);
    Err(Status::bad_request(format!("json: cannot unmarshal {given} into Go value of type jsonpatch.{of}")))
}

/// Returns the error for an object with an applied configuration, whose values do not fit the types.
fn unconverted(to: &Target, object: &Value, applied: &Value) -> Option<Status> {
    let why = check::conversion_error(&to.resource.schema, object)?;
    let (namespace, name) =
        (value::text(applied, &["metadata", "namespace"]), value::text(applied, &["metadata", "name"]));
    let version = format!("{}/{}", to.resource.group, to.resource.version);
    let kind = &to.resource.kind;
    let message = format!(
        "failed to convert new object ({namespace}/{name}; {version}, Kind={kind}) to proper version: unable to \
         convert unstructured object to {version}, Kind={kind}: {why}"
    );
    Some(Status::new(500, "", message))
}

/// Returns the error for an invalid patched object.
pub(super) fn unfit(shown: &str, why: &str) -> Status {
    let message = format!("Invalid value: {shown:?}: {why}");
    let causes = vec![Cause { reason: "FieldValueInvalid".to_owned(), message, field: "patch".to_owned() }];
    Status::invalid("", "", "", causes)
}
