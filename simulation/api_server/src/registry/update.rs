//! Updates of objects.

use std::sync::Arc;

use serde_json::Value;

use super::create::in_namespace;
use super::invalid::FieldErrors;
use super::kinds::{Kind, MetadataOrder, MetadataRules, subresource_update};
use super::request::{ResponseObject, Target, WriteOptions, WriteResponse};
use super::writer::{MODIFIED, WriteTransaction};
use super::{admission, convert, meta, names, transform, value};
use crate::status::{Cause, Status};
use crate::storage::Stored;

/// The update of a stored object.
struct Update<'a> {
    to: &'a Target,
    kind: &'static Kind,
    old: &'a Arc<Stored>,
    /// The old state in the version of the request.
    before: &'a Value,
    options: &'a WriteOptions,
}

impl WriteTransaction<'_> {
    /// Replaces the object, or the part of it that a subresource represents.
    pub(crate) fn put(
        &mut self,
        to: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        if to.subresource == "scale" {
            return self.put_scale(to, body, options);
        }
        let mut object = body;
        let warnings = self.read_body(to, &mut object, options)?;
        let written = self.put_decoded(to, object, options);
        WriteResponse::warned(written, warnings)
    }

    fn put_decoded(
        &mut self,
        to: &Target,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        in_namespace(to, &mut object)?;
        check_name(to, &object)?;
        match self.find(&convert::collection(&to.resource), &to.namespace, &to.name) {
            Some(old) => {
                check_uid(to, &object, &old, options)?;
                self.update(to, &old, object, options, true)
            }
            None => self.put_missing(to, object, options),
        }
    }

    /// Replaces a stored object by a decoded object with defaults. With `manage`, the manager owns the changed
    /// fields.
    pub(crate) fn update(
        &mut self,
        to: &Target,
        old: &Arc<Stored>,
        mut object: Value,
        options: &WriteOptions,
        manage: bool,
    ) -> Result<WriteResponse, Status> {
        let kind = self.kind_of(&to.resource);
        let before = self.converted(old.value.clone(), &to.resource)?;
        self.dry_run = options.dry_run;
        if manage {
            let mut reset = object.clone();
            self.reset_for_update(to, kind, &mut reset, &before);
            self.manage(to, &before, &mut reset, options);
            value::keep(&mut object, &reset, &["metadata", "managedFields"]);
        }
        let update = Update { to, kind, old, before: &before, options };
        if !options.is_request {
            return self.update_mutated(&update, object);
        }
        // Mutating webhooks receive the object as the client wrote it.
        let request = admission::Request::update(to, &before, options);
        let warnings = self.mutate(&request, &mut object)?;
        let written = self.update_mutated(&update, object);
        WriteResponse::warned(written, warnings)
    }

    /// Replaces a stored object by one that mutating webhooks have changed.
    fn update_mutated(&mut self, update: &Update<'_>, mut object: Value) -> Result<WriteResponse, Status> {
        let Update { to, kind, old, before, .. } = *update;
        self.check_version(to, kind, &mut object, old)?;
        in_namespace(to, &mut object)?;
        self.reset_for_update(to, kind, &mut object, before);
        self.update_admitted(update, object)
    }

    /// Replaces a stored object by one that admission has changed.
    fn update_admitted(&mut self, update: &Update<'_>, mut object: Value) -> Result<WriteResponse, Status> {
        let Update { to, kind, before, options, .. } = *update;
        value::keep(&mut object, before, &["metadata", "generation"]);
        if to.subresource.is_empty() {
            (kind.prepare_update)(self, &mut object, before)?;
        } else if to.subresource == "status" {
            (kind.prepare_status)(&mut object, before, &self.now());
        }
        if to.subresource != "status" {
            self.bump_generation(to, kind, &mut object, before);
        }
        keep_metadata(&mut object, before);
        self.validate_changed(to, kind, &object, before)?;
        let mut warnings = match to.subresource.as_str() {
            "" => (kind.warnings)(&object, Some(before)),
            _ => Vec::new(),
        };
        if options.is_request {
            warnings.extend(self.validate(&admission::Request::update(to, before, options), &object)?);
        }
        let written = self.store_changed(update, object);
        WriteResponse::warned(written, warnings)
    }

    fn store_changed(&mut self, update: &Update<'_>, mut object: Value) -> Result<WriteResponse, Status> {
        let Update { to, kind, old, before, options } = *update;
        transform::settle(
            &to.resource,
            self.definition(&to.resource).is_some(),
            &mut object,
            options.dry_run,
        );
        transform::keep_times(before, &mut object);
        if self.emptied(to, &object, before) {
            return self.finish_deletion(to, old, object, options);
        }
        if !options.dry_run {
            object = self.to_storage(&to.resource, object)?;
        }
        let answer = if value::text(&old.value, &["apiVersion"]) != value::text(&object, &["apiVersion"])
            && unchanged(&object, before)
        {
            ResponseObject::Stored(Arc::clone(old))
        } else {
            self.replace(&to.resource, old, object, options.dry_run)?
        };
        (kind.after_update)(self, answer.value(), options.dry_run)?;
        Ok(WriteResponse::updated(answer))
    }

    fn put_missing(
        &mut self,
        to: &Target,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        if to.is_subresource() || !self.kind_of(&to.resource).create_on_update {
            return Err(to.not_found());
        }
        let uid = value::text(&object, &["metadata", "uid"]);
        if !uid.is_empty() {
            let why = uid_text_below(root(options), to, uid, "");
            return Err(Status::conflict(to.named(), &to.name, &why));
        }
        ignore_version(&mut object, options)?;
        self.create(to, object, options)
    }

    /// Resets the fields that this kind of update does not change.
    fn reset_for_update(&self, to: &Target, kind: &Kind, object: &mut Value, before: &Value) {
        match to.subresource.as_str() {
            "" if self.has_status(to) => value::keep(object, before, &["status"]),
            "" => {}
            "status" => {
                keep_all_but(object, before, &["apiVersion", "kind", "metadata", "status"]);
                for path in kind.kept_by_status {
                    value::keep(object, before, path);
                }
                if self.definition(&to.resource).is_some() {
                    keep_metadata_of_status(object, before);
                }
            }
            "finalize" => keep_all_but(object, before, &["apiVersion", "kind", "metadata", "spec"]),
            _ => subresource_update::limit(to, object, before, &self.now()),
        }
    }

    fn check_version(
        &self,
        to: &Target,
        kind: &Kind,
        object: &mut Value,
        old: &Stored,
    ) -> Result<(), Status> {
        let path = ["metadata", "resourceVersion"];
        let found = value::text(object, &path).to_owned();
        if matches!(found.as_str(), "" | "0") {
            if kind.unconditional_update {
                value::set(object, &path, old.revision.to_string());
                return Ok(());
            }
            let message = "Invalid value: 0: must be specified for an update".to_owned();
            let (reason, field) = ("FieldValueInvalid".to_owned(), "metadata.resourceVersion".to_owned());
            // Upstream reports the resource here instead of the kind.
            let causes = vec![Cause { reason, message, field }];
            return Err(Status::invalid(&to.resource.group, &to.resource.plural, &to.name, causes));
        }
        parsed_version(&found)?;
        if found != old.revision.to_string() {
            return Err(Status::conflict(to.named(), &to.name, MODIFIED));
        }
        Ok(())
    }

    fn bump_generation(&self, to: &Target, kind: &Kind, object: &mut Value, before: &Value) {
        let changed = if self.definition(&to.resource).is_some() {
            custom_spec_changed(object, before, self.has_status(to))
        } else {
            // A missing selector selects nothing, and an empty one everything.
            let selects = |it: &Value| value::has(it, &["spec", "selector"]);
            kind.generation.iter().any(|path| !value::same_at(object, before, path))
                || (kind.has_generation() && selects(object) != selects(before))
        };
        if changed {
            let generation = value::integer(before, &["metadata", "generation"]).unwrap_or_default();
            value::set(object, &["metadata", "generation"], generation + 1);
        }
    }

    fn validate_changed(
        &self,
        to: &Target,
        kind: &Kind,
        object: &Value,
        before: &Value,
    ) -> Result<(), Status> {
        let resource = &to.resource;
        let mut errors = FieldErrors::default();
        meta::validate(object, resource.namespaced, names::path_name, &mut errors);
        meta::validate_update(object, before, &mut errors);
        let order = match to.subresource.as_str() {
            "" => kind.metadata_of_update,
            "status" => kind.metadata_of_status,
            _ => MetadataOrder::First,
        };
        if order == MetadataOrder::First {
            // Upstream's kinds validate metadata a second time, so each error appears twice.
            meta::validate_update(object, before, &mut errors);
            if self.definition(resource).is_none() && kind.metadata == MetadataRules::Own {
                meta::known_finalizers(object, &mut errors);
            }
        }
        if let Some(definition) = self.definition(resource) {
            definition.validate(&resource.version, object, Some(before), &mut errors);
        }
        match to.subresource.as_str() {
            "" => (kind.validate_update)(object, before, &mut errors),
            "status" => (kind.validate_status)(object, before, &mut errors),
            _ => subresource_update::validate(to, object, before, &mut errors),
        }
        errors.into_result(&resource.group, &resource.kind, &to.name)
    }

    /// Returns whether a terminating object can be removed because nothing keeps it.
    fn emptied(&self, to: &Target, object: &Value, before: &Value) -> bool {
        let namespace = to.resource.group.is_empty() && to.resource.plural == "namespaces";
        value::is_empty(object, &["metadata", "finalizers"])
            && value::has(before, &["metadata", "deletionTimestamp"])
            && value::integer(before, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default() == 0
            && (!namespace || value::is_empty(object, &["spec", "finalizers"]))
    }

    fn finish_deletion(
        &mut self,
        to: &Target,
        old: &Arc<Stored>,
        object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        if options.dry_run {
            return Ok(WriteResponse::updated(ResponseObject::Value(object)));
        }
        self.erase(&to.resource, old, old.value.clone())?;
        self.gone(to, &old.value)?;
        Ok(WriteResponse::updated(ResponseObject::Value(object)))
    }
}

/// Returns the error for a version that is not a number.
fn parsed_version(version: &str) -> Result<(), Status> {
    match version.parse::<u64>() {
        Ok(_) => Ok(()),
        Err(_) => {
            Err(Status::new(500, "", format!("strconv.ParseUint: parsing {version:?}: invalid syntax")))
        }
    }
}

/// Removes the version of an object that an update or an apply creates. A dry run returns it.
pub(crate) fn ignore_version(object: &mut Value, options: &WriteOptions) -> Result<(), Status> {
    let version = value::text(object, &["metadata", "resourceVersion"]);
    if !version.is_empty() {
        parsed_version(version)?;
    }
    if !options.dry_run {
        value::remove(object, &["metadata", "resourceVersion"]);
    }
    Ok(())
}

/// Returns whether two states of an object are equal, except for the resource version.
fn unchanged(object: &Value, before: &Value) -> bool {
    let bare = |it: &Value| {
        let mut it = it.clone();
        value::remove(&mut it, &["metadata", "resourceVersion"]);
        it
    };
    bare(object) == bare(before)
}

fn check_name(to: &Target, object: &Value) -> Result<(), Status> {
    match value::text(object, &["metadata", "name"]) {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            to.name
        ))),
        name if name != to.name => Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            to.name
        ))),
        _ => Ok(()),
    }
}

/// Checks that a patched object still has the identity of the path.
pub(crate) fn check_identity(to: &Target, object: &mut Value) -> Result<(), Status> {
    in_namespace(to, object)?;
    check_name(to, object)
}

fn check_uid(to: &Target, object: &Value, old: &Stored, options: &WriteOptions) -> Result<(), Status> {
    let (given, found) =
        (value::text(object, &["metadata", "uid"]), value::text(&old.value, &["metadata", "uid"]));
    if given.is_empty() || given == found {
        return Ok(());
    }
    Err(Status::conflict(to.named(), &to.name, &uid_text_below(root(options), to, given, found)))
}

/// Returns the start of the storage path in messages. Upstream does not start the transaction of a dry run, and names
/// the key that the transaction would extend.
fn root(options: &WriteOptions) -> &'static str {
    if options.dry_run { "/" } else { "/registry/" }
}

/// Returns upstream's UID error, which contains the storage path.
pub(crate) fn uid_text(to: &Target, given: &str, found: &str) -> String {
    uid_text_below("/registry/", to, given, found)
}

fn uid_text_below(root: &str, to: &Target, given: &str, found: &str) -> String {
    let place = match (to.resource.group.as_str(), to.resource.plural.as_str()) {
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (group, plural) if group.contains('.') && !group.ends_with(".k8s.io") => format!("{group}/{plural}"),
        ("apiextensions.k8s.io", plural) => format!("apiextensions.k8s.io/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    let path: Vec<_> =
        [place.as_str(), &to.namespace, &to.name].into_iter().filter(|it| !it.is_empty()).collect();
    format!(
        "StorageError: invalid object, Code: 4, Key: {root}{}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {given}, UID in object meta: {found}",
        path.join("/")
    )
}

fn keep_all_but(object: &mut Value, before: &Value, changed: &[&str]) {
    let names: Vec<String> = value::entries(object, &[])
        .chain(value::entries(before, &[]))
        .map(|(name, _)| name.clone())
        .filter(|name| !changed.contains(&name.as_str()))
        .collect();
    for name in names {
        value::keep(object, before, &[&name]);
    }
}

/// Resets the metadata of a custom object on a status update, except the managed fields.
fn keep_metadata_of_status(object: &mut Value, before: &Value) {
    let managed = value::at(object, &["metadata", "managedFields"]).clone();
    let version = value::at(object, &["metadata", "resourceVersion"]).clone();
    value::keep(object, before, &["metadata"]);
    value::set(object, &["metadata", "managedFields"], managed);
    value::set(object, &["metadata", "resourceVersion"], version);
    for field in ["managedFields", "resourceVersion"] {
        if !value::has(object, &["metadata", field]) {
            value::remove(object, &["metadata", field]);
        }
    }
}

/// Resets the metadata that no update changes.
fn keep_metadata(object: &mut Value, before: &Value) {
    value::keep(object, before, &["metadata", "creationTimestamp"]);
    if value::text(object, &["metadata", "uid"]).is_empty() {
        value::keep(object, before, &["metadata", "uid"]);
    }
    if value::has(before, &["metadata", "deletionTimestamp"]) {
        value::keep(object, before, &["metadata", "deletionTimestamp"]);
    }
    if !value::has(object, &["metadata", "deletionGracePeriodSeconds"]) {
        value::keep(object, before, &["metadata", "deletionGracePeriodSeconds"]);
    }
}

fn custom_spec_changed(object: &Value, before: &Value, has_status: bool) -> bool {
    let bare = |it: &Value| {
        let mut it = it.clone();
        value::remove(&mut it, &["metadata"]);
        if has_status {
            value::remove(&mut it, &["status"]);
        }
        it
    };
    bare(object) != bare(before)
}
