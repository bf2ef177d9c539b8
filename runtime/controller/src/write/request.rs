//! What a writer sends, whatever type its objects have.

use std::collections::BTreeSet;

use http::{Method, Request};
use kube::api::DeleteParams;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use windlass_object::ResourceKind;

use crate::error::WriteError;
use crate::run::context::Context;
use crate::write::difference::difference;

/// An operation that a builder grants, named as its method.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Create,
    Update,
    Patch,
    Delete,
    Apply,
    Finalizer,
    Status,
    StatusUpdate,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Apply => "apply",
            Self::Finalizer => "finalizer",
            Self::Status => "status",
            Self::StatusUpdate => "status_update",
        }
    }
}

/// A writer of any kind.
#[derive(Clone, Debug)]
pub(super) struct Core {
    pub(super) kind: ResourceKind,
    pub(super) granted: BTreeSet<Operation>,
    pub(super) finalizer: Option<&'static str>,
    /// Owns the fields that are applied, and is named in `managedFields`.
    pub(super) field_manager: Option<String>,
    /// Owns the fields that are applied, unless the builder says otherwise.
    pub(super) controller: &'static str,
    /// Whether apply takes fields from other owners.
    pub(super) forced: bool,
}

/// An object as it was read, and as it is to be.
pub(super) struct Intent<'a> {
    pub(super) meta: &'a ObjectMeta,
    pub(super) before: Value,
    pub(super) after: Value,
}

impl Core {
    pub(super) fn granted(&self, operation: Operation) -> Result<(), WriteError> {
        if self.granted.contains(&operation) {
            return Ok(());
        }
        Err(WriteError::NotGranted { kind: self.kind.to_string(), operation: operation.name() })
    }

    /// Creates; returns the answer.
    pub(super) async fn create(
        &self,
        cx: &Context,
        meta: &ObjectMeta,
        object: &Value,
    ) -> Result<String, WriteError> {
        self.granted(Operation::Create)?;
        let uri = self.kind.url_path(meta.namespace.as_deref());
        self.send(cx, Method::POST, self.with_manager(uri), "application/json", object).await
    }

    /// Replaces the object; returns the answer, or nothing if nothing would change.
    pub(super) async fn update(
        &self,
        cx: &Context,
        intent: Intent<'_>,
    ) -> Result<Option<String>, WriteError> {
        self.granted(Operation::Update)?;
        self.replace(cx, intent, "").await
    }

    /// Patches what differs; returns the answer, or nothing if nothing differs.
    pub(super) async fn patch(&self, cx: &Context, intent: Intent<'_>) -> Result<Option<String>, WriteError> {
        self.granted(Operation::Patch)?;
        let Some(patch) = difference(&intent.before, &intent.after) else { return Ok(None) };
        self.merge(cx, intent.meta, "", patch).await.map(Some)
    }

    /// Patches or replaces the status; returns the answer, or nothing if the status does not differ.
    pub(super) async fn update_status(
        &self,
        cx: &Context,
        intent: Intent<'_>,
    ) -> Result<Option<String>, WriteError> {
        if self.granted.contains(&Operation::StatusUpdate) {
            return match intent.before.get("status") == intent.after.get("status") {
                true => Ok(None),
                false => self.replace(cx, intent, "/status").await,
            };
        }
        self.granted(Operation::Status)?;
        let status = |object: &Value| json!({ "status": object.get("status").unwrap_or(&Value::Null) });
        let Some(patch) = difference(&status(&intent.before), &status(&intent.after)) else {
            return Ok(None);
        };
        self.merge(cx, intent.meta, "/status", patch).await.map(Some)
    }

    /// Puts the list of finalizers in the place of the one that was read; returns the answer.
    pub(super) async fn set_finalizers(
        &self,
        cx: &Context,
        meta: &ObjectMeta,
        finalizers: &[String],
    ) -> Result<String, WriteError> {
        self.merge(cx, meta, "", json!({ "metadata": { "finalizers": finalizers } })).await
    }

    /// Applies; returns the answer.
    pub(super) async fn apply(
        &self,
        cx: &Context,
        meta: &ObjectMeta,
        subresource: &str,
        mut desired: Value,
    ) -> Result<String, WriteError> {
        self.granted(if subresource.is_empty() { Operation::Apply } else { Operation::Status })?;
        leave_out_of_apply(&mut desired, subresource);
        let manager = self.field_manager.as_deref().unwrap_or(self.controller);
        let uri = format!("{}?fieldManager={manager}&force={}", self.path(meta, subresource), self.forced);
        self.send(cx, Method::PATCH, uri, "application/apply-patch+yaml", &desired).await
    }

    /// Deletes the object with this UID; `false` if it is gone already.
    pub(super) async fn delete(
        &self,
        cx: &Context,
        meta: &ObjectMeta,
        params: &DeleteParams,
    ) -> Result<bool, WriteError> {
        self.granted(Operation::Delete)?;
        let mut params = params.clone();
        let preconditions = params.preconditions.get_or_insert_default();
        preconditions.uid.clone_from(&meta.uid);
        let only_uid = preconditions.resource_version.is_none();
        let body = serde_json::to_value(&params).map_err(WriteError::Encoding)?;
        match self.send(cx, Method::DELETE, self.path(meta, ""), "application/json", &body).await {
            Ok(_) => Ok(true),
            Err(WriteError::Request(kube::Error::Api(status)))
                if status.code == 404 || status.code == 409 && only_uid =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn replace(
        &self,
        cx: &Context,
        Intent { meta, before, mut after }: Intent<'_>,
        subresource: &str,
    ) -> Result<Option<String>, WriteError> {
        if before == after {
            return Ok(None);
        }
        lock(&mut after, meta);
        let uri = self.with_manager(self.path(meta, subresource));
        self.send(cx, Method::PUT, uri, "application/json", &after).await.map(Some)
    }

    async fn merge(
        &self,
        cx: &Context,
        meta: &ObjectMeta,
        subresource: &str,
        mut patch: Value,
    ) -> Result<String, WriteError> {
        lock(&mut patch, meta);
        let uri = self.with_manager(self.path(meta, subresource));
        self.send(cx, Method::PATCH, uri, "application/merge-patch+json", &patch).await
    }

    async fn send(
        &self,
        cx: &Context,
        method: Method,
        uri: String,
        content: &'static str,
        body: &Value,
    ) -> Result<String, WriteError> {
        let body = serde_json::to_vec(body).map_err(WriteError::Encoding)?;
        let request = Request::builder().method(method).uri(uri).header("content-type", content).body(body);
        let request = request.map_err(|error| WriteError::Request(kube::Error::HttpError(error)))?;
        cx.client().request_text(request).await.map_err(WriteError::Request)
    }

    fn path(&self, meta: &ObjectMeta, subresource: &str) -> String {
        let collection = self.kind.url_path(meta.namespace.as_deref());
        format!("{collection}/{}{subresource}", meta.name.as_deref().unwrap_or_default())
    }

    fn with_manager(&self, uri: String) -> String {
        match &self.field_manager {
            Some(manager) => format!("{uri}?fieldManager={manager}"),
            None => uri,
        }
    }
}

/// Has the server refuse the write unless the object is still the one that was read.
fn lock(document: &mut Value, meta: &ObjectMeta) {
    let metadata = &mut document["metadata"];
    if let Some(version) = &meta.resource_version {
        metadata["resourceVersion"] = json!(version);
    }
    if let Some(uid) = &meta.uid {
        metadata["uid"] = json!(uid);
    }
}

/// Takes out what is not the applier's to set: the server's metadata, and all but the status or the status itself.
fn leave_out_of_apply(desired: &mut Value, subresource: &str) {
    if let Some(metadata) = desired["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
    }
    let Some(fields) = desired.as_object_mut() else { return };
    match subresource {
        "" => drop(fields.remove("status")),
        _ => fields.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status")),
    }
}
