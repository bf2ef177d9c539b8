//! One CustomResourceDefinition and its rules for objects.

use serde_json::Value;
use windlass_schema::check::{Decoded, Strictness};
use windlass_schema::custom::{CustomKind, CustomVersion, FieldError};

use super::conversion_review::Conversion;
use super::invalid::FieldErrors;
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
}

impl Definition {
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

    /// Validates an object against the schema.
    pub(crate) fn validate(&self, version: &str, object: &Value, errors: &mut FieldErrors) {
        let found = self.version(version).map(|it| it.validate(object)).unwrap_or_default();
        errors.0.extend(found.into_iter().map(cause));
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
