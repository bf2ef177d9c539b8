//! The scale subresource: reads and sets the number of replicas of any kind.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_patch::apply::{ManagedFields, ReplicasPaths};
use windlass_schema::{ResourceInfo, check};

use super::definition::Paths;
use super::invalid::FieldErrors;
use super::request::{PatchKind, ResponseObject, Target, WriteOptions, WriteResponse};
use super::served::ServedResources;
use super::transform::FieldManagerContext;
use super::update::{check_identity, uid_text};
use super::writer::{MODIFIED, WriteTransaction};
use super::{admission, convert, labels, patch, transform, value};
use crate::status::Status;
use crate::storage::Stored;

/// Path of the desired replicas in builtin kinds.
const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Returns the scale of an object.
pub(crate) fn of(served: &ServedResources, to: &Target, object: &Value) -> Result<Value, Status> {
    let paths = paths(served, to)?;
    let count = |path: &[String]| value::integer(object, &borrowed(path)).unwrap_or_default();
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {},
        "spec": {},
        "status": {"replicas": count(&paths.seen)},
    });
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        value::keep(&mut scale, object, &["metadata", field]);
    }
    if count(&paths.wanted) != 0 {
        value::set(&mut scale, &["spec", "replicas"], count(&paths.wanted));
    }
    let selector = match &paths.selector {
        Some(path) => value::text(object, &borrowed(path)).to_owned(),
        None if served.definition(&to.resource).is_some() => String::new(),
        None if to.resource.plural == "replicationcontrollers" => {
            labels::written_map(value::at(object, &["spec", "selector"]).as_object())
        }
        None => labels::written(value::at(object, &["spec", "selector"])),
    };
    if !selector.is_empty() {
        value::set(&mut scale, &["status", "selector"], selector);
    }
    Ok(scale)
}

impl WriteTransaction<'_> {
    /// Sets the replicas from a `Scale`.
    pub(crate) fn put_scale(
        &mut self,
        to: &Target,
        mut body: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let scale = self.scale_target(to)?.resource;
        transform::identify(&self.served.catalog, &scale, false, &mut body, options)?;
        let validation = options.field_validation;
        let warnings = transform::decode(&scale, None, &mut body, validation, Some(options))?;
        WriteResponse::warned(self.put_decoded_scale(to, body, options), warnings)
    }

    /// Returns the target with the type of its `Scale`.
    fn scale_target(&self, to: &Target) -> Result<Target, Status> {
        let schema = self.served.catalog.kind_schema("autoscaling", "v1", "Scale");
        let schema = schema.cloned().ok_or_else(|| Status::internal("Scale is not described"))?;
        let (group, version, kind) = ("autoscaling".to_owned(), "v1".to_owned(), "Scale".to_owned());
        let resource = ResourceInfo { group, version, kind, schema, ..(*to.resource).clone() };
        Ok(Target { resource: Arc::new(resource), ..to.clone() })
    }

    fn put_decoded_scale(
        &mut self,
        to: &Target,
        mut body: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let name = value::text(&body, &["metadata", "name"]);
        if name.is_empty() {
            let why = format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                to.name
            );
            return Err(Status::bad_request(why));
        }
        if name != to.name {
            let why =
                format!("the name of the object ({name}) does not match the name on the URL ({})", to.name);
            return Err(Status::bad_request(why));
        }
        let old = self.scaled(to)?;
        let (given, found) =
            (value::text(&body, &["metadata", "uid"]), value::text(&old.value, &["metadata", "uid"]));
        if !given.is_empty() && given != found {
            return Err(Status::conflict(to.named(), &to.name, &uid_text(to, given, found)));
        }
        let before = self.managed_scale(to, &old.value)?;
        self.manage(&self.scale_target(to)?, &before, &mut body, options);
        self.set_scale(to, &old, &body, options)
    }

    /// Returns the scale of an object with the managers of its replicas.
    fn managed_scale(&self, to: &Target, object: &Value) -> Result<Value, Status> {
        let mut scale = of(&self.served, to, object)?;
        managers(object)?.to_scale(&self.replicas_paths(to)).write(&mut scale);
        Ok(scale)
    }

    fn replicas_paths(&self, to: &Target) -> ReplicasPaths {
        let (group, paths) = (&to.resource.group, ReplicasPaths::default());
        match self.served.definition(&to.resource) {
            Some(definition) => definition.versions().fold(paths, |paths, version| {
                let path = definition.scale(version).map(|it| it.wanted);
                paths.with_version(&format!("{group}/{version}"), path.as_deref().map(borrowed).as_deref())
            }),
            None if group.is_empty() => paths.with_version("v1", Some(&REPLICAS)),
            None => ["v1beta1", "v1beta2", "v1"].into_iter().fold(paths, |paths, version| {
                paths.with_version(&format!("{group}/{version}"), Some(&REPLICAS))
            }),
        }
    }

    /// Sets the replicas from a patch of the `Scale`.
    pub(crate) fn patch_scale(
        &mut self,
        to: &Target,
        kind: PatchKind,
        patch: &Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let old = self.scaled(to)?;
        let (before, of_scale) = (self.managed_scale(to, &old.value)?, self.scale_target(to)?);
        let (mut scale, warnings) = match kind {
            PatchKind::Apply => (self.applied_scale(&of_scale, &before, patch, options)?, Vec::new()),
            _ => {
                let (mut scale, warnings) = self.patched(&of_scale, kind, &before, patch, options)?;
                self.manage(&of_scale, &before, &mut scale, options);
                (scale, warnings)
            }
        };
        let written = check_identity(to, &mut scale);
        let written = written.and_then(|()| self.set_scale(to, &old, &scale, options));
        WriteResponse::warned(written, warnings)
    }

    fn applied_scale(
        &self,
        of_scale: &Target,
        before: &Value,
        applied: &Value,
        options: &WriteOptions,
    ) -> Result<Value, Status> {
        patch::named(of_scale, applied)?;
        let (manager, subresource) = (options.field_manager.as_str(), of_scale.subresource.as_str());
        let managing = FieldManagerContext { manager, subresource, now: self.time(), resets: Vec::new() };
        transform::apply(&of_scale.resource, Some(before), applied, &managing, options.force)
    }

    fn scaled(&self, to: &Target) -> Result<Arc<Stored>, Status> {
        self.find(&convert::collection(&to.resource), &to.namespace, &to.name).ok_or_else(|| to.not_found())
    }

    fn set_scale(
        &mut self,
        to: &Target,
        old: &Arc<Stored>,
        scale: &Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let whole = self.converted(old.value.clone(), &to.resource)?;
        let (before, mut scale) = (of(&self.served, to, &whole)?, scale.clone());
        let request = admission::Request::update(to, &before, options);
        let warnings = if options.is_request { self.mutate(&request, &mut scale)? } else { Vec::new() };
        let written = self.set_mutated_scale(&request, old, &whole, &scale, options);
        WriteResponse::warned(written, warnings)
    }

    fn set_mutated_scale(
        &mut self,
        request: &admission::Request<'_>,
        old: &Arc<Stored>,
        before: &Value,
        scale: &Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let to = request.target();
        let wanted = value::at(scale, &["spec", "replicas"]);
        let is_int32 = wanted.as_i64().is_some_and(|it| i32::try_from(it).is_ok());
        if !(is_int32 || wanted.is_null()) {
            let given = match wanted {
                Value::Number(number) => format!("number {number}"),
                other => check::kind_of(other).to_owned(),
            };
            let why = format!(
                "json: cannot unmarshal {given} into Go struct field ScaleSpec.spec.replicas of type int32"
            );
            return Err(patch::unfit(&scale.to_string(), &why));
        }
        let replicas = wanted.as_i64().unwrap_or_default();
        let mut errors = FieldErrors::default();
        errors.not_negative("spec.replicas", Some(replicas));
        errors.into_result("autoscaling", "Scale", &to.name)?;
        let version = value::text(scale, &["metadata", "resourceVersion"]);
        if !version.is_empty() && version != old.revision.to_string() {
            return Err(Status::conflict(to.named(), &to.name, MODIFIED));
        }
        let paths = paths(&self.served, to)?;
        let mut object = before.clone();
        value::set(&mut object, &borrowed(&paths.wanted), replicas);
        let mut warnings = Vec::new();
        if options.is_request {
            warnings = self.validate(request, &of(&self.served, to, &object)?)?;
        }
        let version = convert::api_version(&to.resource);
        managers(before)?.with_scale(managers(scale)?, &self.replicas_paths(to), &version).write(&mut object);
        let whole = Target { subresource: String::new(), ..to.clone() };
        // Webhooks have reviewed the `Scale`.
        let unreviewed = WriteOptions { is_request: false, ..options.clone() };
        let written = self.update(&whole, old, object, &unreviewed, false)?;
        let scale = ResponseObject::Value(of(&self.served, to, written.answer.value())?);
        // Upstream warns about the full object.
        let warnings = written.warnings.into_iter().chain(warnings).collect();
        Ok(WriteResponse { warnings, ..WriteResponse::updated(scale) })
    }
}

fn paths(served: &ServedResources, to: &Target) -> Result<Paths, Status> {
    if let Some(definition) = served.definition(&to.resource) {
        return definition.scale(&to.resource.version).ok_or_else(Status::no_such_path);
    }
    let path = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    Ok(Paths { wanted: path(REPLICAS), seen: path(["status", "replicas"]), selector: None })
}

fn managers(of: &Value) -> Result<ManagedFields, Status> {
    ManagedFields::read(of).map_err(|error| Status::new(500, "", error.to_string()))
}

fn borrowed(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}
