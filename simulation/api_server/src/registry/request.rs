//! Requests to the registry, and its responses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use windlass_schema::ResourceInfo;

use crate::status::Status;
use crate::storage::Stored;

/// The target of a request.
#[derive(Clone, Debug)]
pub struct Target {
    /// Resource, in the version of the path.
    pub resource: Arc<ResourceInfo>,
    /// Namespace of the path; empty for cluster-scoped kinds, and for all namespaces.
    pub namespace: String,
    /// Name in the path; empty for collections.
    pub name: String,
    /// Subresource in the path; empty for the object itself.
    pub subresource: String,
}

/// The handling of fields that the type does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drops them.
    Ignore,
    /// Drops them and returns a warning.
    #[default]
    Warn,
    /// Rejects them.
    Strict,
}

/// The options of a write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Whether the write is checked but not committed.
    pub dry_run: bool,
    /// Field manager; its default is the first part of the user agent.
    pub field_manager: String,
    /// Handling of unknown fields.
    pub field_validation: FieldValidation,
    /// Paths of duplicate fields in the body, which the decoded value no longer contains.
    pub duplicates: Vec<String>,
    /// Body of a request that contains an object. It orders the errors if it is JSON.
    pub body: Bytes,
    /// Whether an apply takes fields from other managers.
    pub force: bool,
    /// User of the request.
    pub user: String,
    /// Whether a client requests the write. Webhooks review only such writes.
    pub is_request: bool,
    /// The given options as JSON, for webhooks.
    pub given: Value,
    /// Time limit of the client, if it has one.
    pub timeout: Option<Duration>,
}

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`.
    Json,
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
    /// `application/apply-patch+yaml`, which includes JSON.
    Apply,
}

/// The response to a write.
#[derive(Clone, Debug)]
pub struct WriteResponse {
    /// Object in the response.
    pub answer: ResponseObject,
    /// Whether an object was created: 201 instead of 200.
    pub created: bool,
    /// Texts of the `Warning` headers.
    pub warnings: Vec<String>,
}

/// The object in a response.
#[derive(Clone, Debug)]
pub enum ResponseObject {
    /// A stored object in its storage version (`convert::serve` converts it to the requested version).
    Stored(Arc<Stored>),
    /// A value created for the response, in the requested version.
    Value(Value),
}

/// The deletion propagation to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents lose their owner reference and stay.
    Orphan,
    /// Dependents are deleted after the object.
    Background,
    /// Dependents are deleted before the object.
    Foreground,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Grace period in seconds.
    pub grace_period_seconds: Option<i64>,
    /// Required UID of the object.
    pub uid: Option<String>,
    /// Required version of the object.
    pub resource_version: Option<String>,
    /// Deletion propagation.
    pub propagation: Option<Propagation>,
    /// Deprecated form of [`Propagation::Orphan`].
    pub orphan_dependents: Option<bool>,
    /// Whether the deletion is checked but not committed.
    pub dry_run: bool,
    /// Whether a client requests the deletion. Webhooks review only such deletions.
    pub is_request: bool,
    /// Whether the request deletes a collection.
    pub of_collection: bool,
    /// User of the request.
    pub user: String,
    /// Time limit of the client, if it has one.
    pub timeout: Option<Duration>,
}

/// The result of a deletion, and the texts of the `Warning` headers.
pub type Deleted<T> = (Result<T, Status>, Vec<String>);

/// The response to a deletion.
#[derive(Clone, Debug)]
pub enum DeleteResponse {
    /// The object was removed: 200 with a `Success` status.
    Status(Value),
    /// The object is terminating, or its kind returns deleted objects: 200 (202 if `accepted`) with the object.
    Object {
        /// Object in the response.
        answer: ResponseObject,
        /// Whether the deletion continues after the response.
        accepted: bool,
    },
}

impl Target {
    /// Returns whether the target is a subresource.
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

    /// Adds warnings before those of a response or an error.
    pub(crate) fn warned(
        result: Result<WriteResponse, Status>,
        warnings: Vec<String>,
    ) -> Result<WriteResponse, Status> {
        match result {
            Ok(mut written) => {
                written.warnings.splice(0..0, warnings);
                Ok(written)
            }
            Err(status) => Err(status.warned(warnings)),
        }
    }
}

impl ResponseObject {
    /// Returns the object.
    pub fn value(&self) -> &Value {
        match self {
            ResponseObject::Stored(stored) => &stored.value,
            ResponseObject::Value(value) => value,
        }
    }
}
