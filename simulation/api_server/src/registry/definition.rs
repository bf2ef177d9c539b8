//! One CustomResourceDefinition and its rules for objects.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass_schema::check::{Decoded, Strictness};
use windlass_schema::custom::{CustomKind, CustomVersion, FieldError};

use super::conversion_review::Conversion;
use super::invalid::FieldErrors;
use super::rules::{Compiled, Rules};
use super::value;
use crate::read::{FieldReader, FieldTable, not_supported};
use crate::status::Cause;
use crate::tables::CustomColumn;

/// A served CustomResourceDefinition.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) kind: CustomKind,
    /// The stored object.
    pub(crate) object: Value,
    /// Webhook that converts the objects.
    pub(crate) conversion: Option<Conversion>,
    /// Validation rules of each version.
    rules: BTreeMap<String, Rules>,
}

/// Reasons of errors after which upstream evaluates no rules.
const BLOCKING: [&str; 5] = [
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
];

impl Definition {
    /// Returns the definition of a valid CRD.
    pub(crate) fn new(kind: CustomKind, object: &Value) -> Definition {
        let mut rules = BTreeMap::new();
        for version in &kind.versions {
            let compiled = Compiled::of(&version.schema, "openAPIV3Schema");
            let invalid = compiled.errors.0.into_iter().map(|it| (it.field, it.message));
            for (path, reason) in compiled.unevaluated.into_iter().chain(invalid) {
                let (kind, version) = (&kind.kind, &version.resource.version);
                tracing::warn!(kind, version, path, reason, "validation rule not evaluated");
            }
            rules.insert(version.resource.version.clone(), compiled.rules);
        }
        Definition { rules, object: object.clone(), conversion: Conversion::of(object), kind }
    }

    /// Decodes an object: removes or reports fields that its schema does not allow.
    pub(crate) fn decode(&self, version: &str, object: &mut Value, strictness: Strictness) -> Decoded {
        self.version(version).map(|it| it.decode(object, strictness)).unwrap_or_default()
    }

    /// Sets the defaults of the schema.
    pub(crate) fn apply_defaults(&self, version: &str, object: &mut Value) {
        if let Some(version) = self.version(version) {
            version.apply_defaults(object);
        }
    }

    /// Returns whether a stored object can differ from the object that the server returns.
    pub(crate) fn changes_stored(&self) -> bool {
        self.conversion.is_some() || value::integer(&self.object, &["metadata", "generation"]) > Some(1)
    }

    /// Applies the schema of its version to an object, which can be older than the schema: removes undeclared fields
    /// and sets defaults.
    pub(crate) fn renew(&self, object: &mut Value) {
        let api_version = value::text(object, &["apiVersion"]);
        let name = api_version.rsplit('/').next().unwrap_or_default();
        // The version in storage can be one that is not served.
        let stored = self.kind.storage().filter(|it| it.resource.version == name);
        if let Some(version) = stored.or_else(|| self.version(name)).filter(|_| self.changes_stored()) {
            version.decode(object, Strictness::Ignore);
            version.apply_defaults(object);
        }
    }

    /// Validates an object against the schema. `before` is the object before an update.
    pub(crate) fn validate(
        &self,
        version: &str,
        object: &Value,
        before: Option<&Value>,
        errors: &mut FieldErrors,
    ) {
        let Some(schema) = self.version(version) else { return };
        let found = schema.validate(object, before);
        let is_blocked = found.iter().any(|it| BLOCKING.contains(&it.reason));
        errors.0.extend(found.into_iter().map(cause));
        let Some(rules) = self.rules.get(version).filter(|it| !it.is_empty()) else { return };
        if is_blocked {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                          errors to complete validation";
            errors.invalid("<nil>", Value::Null, detail);
        } else {
            let correlated = before.map(|before| schema.correlate(object, before));
            rules.validate(object, before, correlated, errors);
        }
    }

    /// Returns the paths of the scale subresource.
    pub(crate) fn scale(&self, version: &str) -> Option<Paths> {
        let scale = self.version(version)?.scale.as_ref()?;
        let path = |text: &str| text.trim_start_matches('.').split('.').map(str::to_owned).collect();
        Some(Paths {
            wanted: path(&scale.spec_replicas_path),
            seen: path(&scale.status_replicas_path),
            selector: scale.label_selector_path.as_deref().map(path),
        })
    }

    /// Returns the fields by which the objects can be selected.
    pub(crate) fn fields(&self, version: &str) -> FieldTable {
        let fields = self.version(version).map(|it| it.selectable_fields.as_slice()).unwrap_or_default();
        let named = FieldTable::empty(not_supported).with("metadata.name", FieldReader::Name);
        let table = if self.kind.namespaced {
            named.with("metadata.namespace", FieldReader::Namespace)
        } else {
            named
        };
        fields.iter().fold(table, |table, path| table.with_path(path.trim_start_matches('.').to_owned()))
    }

    /// Returns the table columns of the objects, except the name.
    pub(crate) fn columns(&self, version: &str) -> Vec<CustomColumn> {
        let versions = value::items(&self.object, &["spec", "versions"]);
        let described = versions.iter().find(|it| value::text(it, &["name"]) == version);
        match described.map(|it| value::items(it, &["additionalPrinterColumns"])).unwrap_or_default() {
            [] => vec![CustomColumn::age()],
            columns => columns.iter().map(CustomColumn::new).collect(),
        }
    }

    /// Returns whether the CRD is terminating.
    pub(crate) fn is_terminating(&self) -> bool {
        value::has(&self.object, &["metadata", "deletionTimestamp"])
    }

    /// Returns the names of all versions.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &str> {
        value::items(&self.object, &["spec", "versions"]).iter().map(|it| value::text(it, &["name"]))
    }

    fn version(&self, name: &str) -> Option<&CustomVersion> {
        self.kind.served(name)
    }
}

/// Converts a field error to an error cause.
pub(crate) fn cause(error: FieldError) -> Cause {
    Cause { reason: error.reason.to_owned(), message: error.message, field: error.field }
}

/// The paths of the scale subresource.
pub(crate) struct Paths {
    /// Path of the desired replicas.
    pub(crate) wanted: Vec<String>,
    /// Path of the observed replicas.
    pub(crate) seen: Vec<String>,
    /// Path of the selector in text form.
    pub(crate) selector: Option<Vec<String>>,
}
