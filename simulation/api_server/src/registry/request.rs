//! What is asked of the registry, and what it answers.

use std::sync::Arc;

use serde_json::Value;
use windlass_schema::ResourceInfo;

use crate::status::Status;
use crate::storage::Stored;

/// What a request is about.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource, in the version of the path.
    pub resource: Arc<ResourceInfo>,
    /// The namespace of the path; empty for kinds of the cluster, and for all namespaces.
    pub namespace: String,
    /// The name in the path; empty for collections.
    pub name: String,
    /// The subresource in the path; empty for the object itself.
    pub subresource: String,
}

/// What becomes of fields that the type does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and a warning says so.
    #[default]
    Warn,
    /// They are refused.
    Strict,
}

/// The options of a write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Everything is done but the write itself.
    pub dry_run: bool,
    /// The field manager, already derived from the user agent where the request names none.
    pub field_manager: String,
    /// What becomes of unknown fields.
    pub field_validation: FieldValidation,
    /// The paths of the fields that stand twice in the body, which a value no longer shows.
    pub duplicates: Vec<String>,
    /// Whether an apply takes fields from other managers.
    pub force: bool,
    /// Who asks.
    pub user: String,
}

/// How a patch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`.
    Json,
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
    /// `application/apply-patch+yaml`, which JSON is.
    Apply,
}

/// The answer to a write.
#[derive(Clone, Debug)]
pub struct WriteResponse {
    /// What goes back.
    pub answer: ResponseObject,
    /// Whether something new was made: 201 instead of 200.
    pub created: bool,
    /// What `Warning` headers tell.
    pub warnings: Vec<String>,
}

/// What goes back to the client.
#[derive(Clone, Debug)]
pub enum ResponseObject {
    /// What is stored, in the version it is stored in (`Registry::serve` gives the version asked for).
    Stored(Arc<Stored>),
    /// Something made for the answer, in the version asked for.
    Value(Value),
}

/// Which dependents are deleted, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents lose their owner and stay.
    Orphan,
    /// Dependents are deleted after the object.
    Background,
    /// Dependents are deleted before the object.
    Foreground,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// The grace period in seconds.
    pub grace_period_seconds: Option<i64>,
    /// The UID the object must have.
    pub uid: Option<String>,
    /// The version the object must have.
    pub resource_version: Option<String>,
    /// What becomes of dependents.
    pub propagation: Option<Propagation>,
    /// The older way to ask for [`Propagation::Orphan`].
    pub orphan_dependents: Option<bool>,
    /// Everything is done but the deletion itself.
    pub dry_run: bool,
}

/// The answer to a deletion.
#[derive(Clone, Debug)]
pub enum DeleteResponse {
    /// It is gone: 200 with a `Success` status.
    Status(Value),
    /// It is being deleted (or its kind answers with what it was): 200 (202 if `accepted`) with the object.
    Object {
        /// What stands there now.
        answer: ResponseObject,
        /// Whether the deletion continues after the answer.
        accepted: bool,
    },
}

impl Target {
    /// Whether a subresource is meant.
    pub fn is_subresource(&self) -> bool {
        !self.subresource.is_empty()
    }

    pub(crate) fn not_found(&self) -> Status {
        Status::not_found(self.named(), &self.name)
    }

    pub(crate) fn named(&self) -> crate::status::ResourceName<'_> {
        crate::status::ResourceName { group: &self.resource.group, resource: &self.resource.plural }
    }
}

impl WriteResponse {
    pub(crate) fn updated(answer: ResponseObject) -> WriteResponse {
        WriteResponse { answer, created: false, warnings: Vec::new() }
    }
}

impl ResponseObject {
    /// The object.
    pub fn value(&self) -> &Value {
        match self {
            ResponseObject::Stored(stored) => &stored.value,
            ResponseObject::Value(value) => value,
        }
    }
}
