//! What a definition says of the objects of its kind.

use serde_json::Value;
use windlass_schema::check::{Decoded, Strictness};
use windlass_schema::custom::{CustomKind, CustomVersion, FieldError};

use super::invalid::FieldErrors;
use super::value;
use crate::read::{FieldReader, FieldTable, not_supported};
use crate::status::Cause;
use crate::tables::CustomColumn;

/// What one definition makes of the server.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) kind: CustomKind,
    /// As it is stored.
    pub(crate) object: Value,
}

impl Definition {
    /// Makes of an object what its type can hold.
    pub(crate) fn decode(&self, version: &str, object: &mut Value, strictness: Strictness) -> Decoded {
        self.version(version).map(|it| it.decode(object, strictness)).unwrap_or_default()
    }

    /// Puts in what the type says stands where nothing was given.
    pub(crate) fn apply_defaults(&self, version: &str, object: &mut Value) {
        if let Some(version) = self.version(version) {
            version.apply_defaults(object);
        }
    }

    /// What is wrong with an object by its type.
    pub(crate) fn validate(&self, version: &str, object: &Value, errors: &mut FieldErrors) {
        let found = self.version(version).map(|it| it.validate(object)).unwrap_or_default();
        errors.0.extend(found.into_iter().map(cause));
    }

    /// Where its kind keeps what a scale shows.
    pub(crate) fn scale(&self, version: &str) -> Option<Paths> {
        let scale = self.version(version)?.scale.as_ref()?;
        let path = |text: &str| text.trim_start_matches('.').split('.').map(str::to_owned).collect();
        Some(Paths {
            wanted: path(&scale.spec_replicas_path),
            seen: path(&scale.status_replicas_path),
            selector: scale.label_selector_path.as_deref().map(path),
        })
    }

    /// By which fields its objects can be selected.
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

    /// The columns in which its objects are shown, next to the name.
    pub(crate) fn columns(&self, version: &str) -> Vec<CustomColumn> {
        let versions = value::items(&self.object, &["spec", "versions"]);
        let described = versions.iter().find(|it| value::text(it, &["name"]) == version);
        match described.map(|it| value::items(it, &["additionalPrinterColumns"])).unwrap_or_default() {
            [] => vec![CustomColumn::age()],
            columns => columns.iter().map(CustomColumn::new).collect(),
        }
    }

    /// Whether the definition is being deleted.
    pub(crate) fn is_terminating(&self) -> bool {
        value::has(&self.object, &["metadata", "deletionTimestamp"])
    }

    fn version(&self, name: &str) -> Option<&CustomVersion> {
        self.kind.served(name)
    }
}

/// What is wrong with a field, for a refusal.
pub(crate) fn cause(error: FieldError) -> Cause {
    Cause { reason: error.reason.to_owned(), message: error.message, field: error.field }
}

/// Where a kind keeps what a scale shows.
pub(crate) struct Paths {
    /// The replicas wanted.
    pub(crate) wanted: Vec<String>,
    /// The replicas seen.
    pub(crate) seen: Vec<String>,
    /// The selector in writing.
    pub(crate) selector: Option<Vec<String>>,
}
