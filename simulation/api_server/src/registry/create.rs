//! Creation of objects.

use serde_json::{Value, json};

use super::invalid::FieldErrors;
use super::kinds::{self, Kind, MetadataRules};
use super::request::{ResponseObject, Target, WriteOptions, WriteResponse};
use super::transform::{self, FieldManagerContext};
use super::writer::WriteTransaction;
use super::{admission, convert, meta, names, quota, reviews, value};
use crate::status::{Cause, Status};

/// Characters of generated names: no vowels, and no characters that look alike.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Maximum length of the prefix in a generated name, and number of generated characters.
const PREFIX_KEPT: usize = 58;
const LETTERS: usize = 5;
/// Maximum number of attempts to generate a free name.
const ATTEMPTS: usize = 8;

impl WriteTransaction<'_> {
    /// Handles POST: creates an object, or performs the action of a subresource.
    pub(crate) fn post(
        &mut self,
        to: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        if to.is_subresource() || reviews::is_review(&to.resource) {
            let mut body = body;
            let warnings = self.review_action(to, &mut body, options)?;
            let done = match to.is_subresource() {
                true => self.post_below(to, body, options),
                false => self.post_whole(to, body, options),
            };
            return WriteResponse::warned(done, warnings);
        }
        self.post_whole(to, body, options)
    }

    fn post_whole(
        &mut self,
        to: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        if let Some(answer) = reviews::answer(self, to, &body, &options.user) {
            return Ok(WriteResponse {
                answer: ResponseObject::Value(answer?),
                created: true,
                warnings: Vec::new(),
            });
        }
        let mut object = body;
        let warnings = self.read_body(to, &mut object, options)?;
        let written = self.post_decoded(to, object, options);
        WriteResponse::warned(written, warnings)
    }

    fn post_decoded(
        &mut self,
        to: &Target,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        if to.resource.group.is_empty() && to.resource.plural == "bindings" {
            let warnings = self.review_action(to, &mut object, options)?;
            let bound =
                self.bind(&to.namespace, value::text(&object, &["metadata", "name"]), &object, options);
            return WriteResponse::warned(bound, warnings);
        }
        self.wipe(&mut object);
        in_namespace(to, &mut object)?;
        self.create(to, object, options)
    }

    /// Creates a decoded object.
    pub(crate) fn create(
        &mut self,
        to: &Target,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let mut reset = object.clone();
        self.kind_of(&to.resource).reset_for_create(&mut reset, self.has_status(to));
        self.manage(to, &Value::Null, &mut reset, options);
        value::keep(&mut object, &reset, &["metadata", "managedFields"]);
        self.create_managed(to, object, options)
    }

    /// Creates an object whose managed fields are set.
    pub(crate) fn create_managed(
        &mut self,
        to: &Target,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        if self.definition(&to.resource).is_some_and(|it| it.is_terminating()) {
            let mut status = Status::method_not_allowed(to.named(), "create");
            status.message = "create not allowed while custom resource definition is terminating".to_owned();
            return Err(status);
        }
        let kind = self.kind_of(&to.resource);
        self.dry_run = options.dry_run;
        self.admit_into_namespace(to, &object)?;
        (kind.admit)(self, &mut object)?;
        if !options.is_request {
            return self.create_admitted(to, kind, object, options);
        }
        // Mutating webhooks receive the object as the client wrote it.
        let request = admission::Request::create(to, &object, options);
        // Reviews contain the name in the request, even if a webhook renames the object.
        let named = Target { name: request.name().to_owned(), ..to.clone() };
        let warnings = self.mutate(&request, &mut object)?;
        let created = self.create_admitted(&named, kind, object, options);
        WriteResponse::warned(created, warnings)
    }

    /// Creates an object that admission has changed.
    fn create_admitted(
        &mut self,
        to: &Target,
        kind: &'static Kind,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        in_namespace(to, &mut object)?;
        kind.reset_for_create(&mut object, self.has_status(to));
        let generated = value::text(&object, &["metadata", "name"]).is_empty()
            && !value::text(&object, &["metadata", "generateName"]).is_empty();
        if !generated {
            return self.create_named(to, kind, object, options);
        }
        // Upstream copies the object for each attempt, so that the maps are separate.
        self.labels_are_shared.set(false);
        for _ in 1..ATTEMPTS {
            match self.create_generated(to, kind, object.clone(), options) {
                Err(status) if status.reason == "AlreadyExists" => {}
                other => return other,
            }
        }
        self.create_generated(to, kind, object, options)
    }

    fn create_generated(
        &mut self,
        to: &Target,
        kind: &'static Kind,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let prefix = value::text(&object, &["metadata", "generateName"]);
        let name = self.generated_name(prefix);
        value::set(&mut object, &["metadata", "name"], name.clone());
        self.create_named(to, kind, object, options).map_err(|status| {
            if status.reason != "AlreadyExists" {
                return status;
            }
            let why = "the server was not able to generate a unique name for the object";
            let mut status = status;
            status.message = format!("{} {name:?} already exists, {why}", to.named());
            if let Some(details) = &mut status.details {
                details.retry_after_seconds = 1;
            }
            status
        })
    }

    fn create_named(
        &mut self,
        to: &Target,
        kind: &'static Kind,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        self.fill_metadata(to, kind, &mut object);
        (kind.prepare_create)(self, &mut object)?;
        self.validate_new(to, kind, &object)?;
        let mut warnings = (kind.warnings)(&object, None);
        if options.is_request {
            warnings.extend(self.validate(&admission::Request::create(to, &object, options), &object)?);
        }
        let written = self.store_new(to, kind, object, options);
        WriteResponse::warned(written, warnings)
    }

    fn store_new(
        &mut self,
        to: &Target,
        kind: &'static Kind,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        if !options.dry_run {
            let version = value::text(&object, &["metadata", "resourceVersion"]);
            // Upstream ignores a version that is not a number.
            if version.parse::<u64>().is_ok_and(|it| it != 0) {
                return Err(Status::new(
                    500,
                    "",
                    "resourceVersion should not be set on objects to be created",
                ));
            }
            value::remove(&mut object, &["metadata", "resourceVersion"]);
        }
        // Upstream returns the object as it reads it from the storage, with defaults.
        (kind.defaults)(&mut object);
        transform::settle(
            &to.resource,
            self.definition(&to.resource).is_some(),
            &mut object,
            options.dry_run,
        );
        self.reject_existing(to, &object)?;
        quota::charge(self, &to.resource, &object, options.dry_run)?;
        if !options.dry_run {
            object = self.to_storage(&to.resource, object)?;
        }
        let answer = self.insert(&to.resource, object, options.dry_run)?;
        (kind.after_create)(self, answer.value(), options.dry_run)?;
        Ok(WriteResponse { answer, created: true, warnings: Vec::new() })
    }

    /// Decodes a body and checks it against the path. Returns warnings.
    pub(crate) fn read_body(
        &self,
        to: &Target,
        object: &mut Value,
        options: &WriteOptions,
    ) -> Result<Vec<String>, Status> {
        let definition = self.definition(&to.resource);
        transform::identify(&self.served.catalog, &to.resource, definition.is_some(), object, options)?;
        let validation = options.field_validation;
        transform::decode(&to.resource, definition.as_deref(), object, validation, Some(options))
            .inspect(|_| self.put_defaults(to, object))
    }

    /// Sets defaults. Those that depend on other fields come first, while missing fields are still recognizable.
    pub(crate) fn put_defaults(&self, to: &Target, object: &mut Value) {
        let is_labeled = |it: &Value| !value::is_empty(it, &["metadata", "labels"]);
        let was_labeled = is_labeled(object);
        (self.kind_of(&to.resource).defaults)(object);
        self.labels_are_shared.set(!was_labeled && is_labeled(object));
        transform::defaults(&to.resource, self.definition(&to.resource).as_deref(), object);
    }

    /// Updates the managed fields for a write.
    pub(crate) fn manage(&self, to: &Target, old: &Value, object: &mut Value, options: &WriteOptions) {
        let managing = FieldManagerContext {
            manager: &options.field_manager,
            subresource: &to.subresource,
            now: self.time(),
            resets: self.resets(to, self.kind_of(&to.resource)),
        };
        transform::manage(&to.resource, old, object, &managing);
    }

    /// Returns the strategy of a resource.
    pub(crate) fn kind_of(&self, resource: &windlass_schema::ResourceInfo) -> &'static Kind {
        kinds::kind_of(&self.served, resource)
    }

    /// Returns whether the object's status is written through a subresource.
    pub(crate) fn has_status(&self, to: &Target) -> bool {
        to.resource.subresources.contains_key("status")
    }

    fn wipe(&self, object: &mut Value) {
        for field in
            ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"]
        {
            value::remove(object, &["metadata", field]);
        }
    }

    fn fill_metadata(&mut self, to: &Target, kind: &Kind, object: &mut Value) {
        value::set(object, &["metadata", "creationTimestamp"], self.now());
        let uid = self.identifier();
        value::set(object, &["metadata", "uid"], uid);
        if kind.has_generation() || self.definition(&to.resource).is_some() {
            value::set(object, &["metadata", "generation"], 1);
        }
    }

    fn validate_new(&self, to: &Target, kind: &Kind, object: &Value) -> Result<(), Status> {
        let (resource, name) = (&to.resource, value::text(object, &["metadata", "name"]));
        let mut errors = FieldErrors::default();
        if kind.metadata != MetadataRules::Common {
            meta::validate(object, resource.namespaced, kind.name, &mut errors);
        }
        match self.definition(resource) {
            Some(definition) => definition.validate(&resource.version, object, None, &mut errors),
            None if kind.metadata == MetadataRules::Own => meta::known_finalizers(object, &mut errors),
            None => {}
        }
        (kind.validate)(object, &mut errors);
        errors.into_result(&resource.group, &resource.kind, name)?;
        let mut errors = FieldErrors::default();
        meta::validate(object, resource.namespaced, names::path_name, &mut errors);
        errors.into_result(&resource.group, &resource.kind, name)
    }

    fn reject_existing(&self, to: &Target, object: &Value) -> Result<(), Status> {
        let (namespace, name) =
            (value::text(object, &["metadata", "namespace"]), value::text(object, &["metadata", "name"]));
        match self.find(&convert::collection(&to.resource), namespace, name) {
            // A dry run returns the same result as the write.
            Some(_) => self.insert(&to.resource, object.clone(), true).map(|_| ()),
            None => Ok(()),
        }
    }

    fn admit_into_namespace(&self, to: &Target, object: &Value) -> Result<(), Status> {
        if !to.resource.namespaced {
            return Ok(());
        }
        let namespaces = convert::collection(&*self.built_in("", "v1", "namespaces")?);
        let named = crate::status::ResourceName { group: "", resource: "namespaces" };
        let found = self.find(&namespaces, "", &to.namespace);
        let namespace = found.ok_or_else(|| Status::not_found(named, &to.namespace))?;
        if value::text(&namespace.value, &["status", "phase"]) != "Terminating" {
            return Ok(());
        }
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            to.namespace
        );
        let name = [&["metadata", "name"], &["metadata", "generateName"]].map(|it| value::text(object, it));
        let name = name.into_iter().find(|it| !it.is_empty()).unwrap_or("Unknown");
        let mut status = Status::forbidden(to.named(), name, &why);
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {} is being terminated", to.namespace),
                field: "metadata.namespace".to_owned(),
            });
        }
        Err(status)
    }

    pub(super) fn generated_name(&mut self, prefix: &str) -> String {
        let mut kept = prefix.len().min(PREFIX_KEPT);
        while !prefix.is_char_boundary(kept) {
            kept -= 1;
        }
        let rng = &mut self.state.rng;
        let mut letter = || {
            let drawn = rng.below(ALPHABET.len() as u64);
            usize::try_from(drawn).ok().and_then(|it| ALPHABET.get(it)).map_or('b', |it| char::from(*it))
        };
        let letters = self.replay.get_mut().draw(|| (0..LETTERS).map(|_| letter()).collect());
        format!("{}{letters}", &prefix[..kept])
    }
}

/// Sets the namespace of the path, or rejects an object with another namespace.
pub(crate) fn in_namespace(to: &Target, object: &mut Value) -> Result<(), Status> {
    let expected = if to.resource.namespaced { to.namespace.as_str() } else { "" };
    let found = value::text(object, &["metadata", "namespace"]);
    if found == expected {
        return Ok(());
    }
    if expected.is_empty() {
        value::remove(object, &["metadata", "namespace"]);
        return Ok(());
    }
    if found.is_empty() {
        value::set(object, &["metadata", "namespace"], expected);
        return Ok(());
    }
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    Err(Status::bad_request(why))
}

/// Returns the `Success` status that some POST requests get.
pub(crate) fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}
