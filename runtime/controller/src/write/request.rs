//! The requests of a writer, independent of the type of its objects.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use kube::api::{DeleteParams, Preconditions};
use kube::core::{ObjectMeta, Status};
use serde::Serialize;
use serde_json::{Value, json};
use windlass_client::is_not_found;
use windlass_metrics::IntCounter;
use windlass_object::{MetadataRef, ObjectKey, ResourceKind, Scope};

use crate::error::WriteError;
use crate::live::{escaped, get_live};
use crate::write::caller::Caller;
use crate::write::difference::difference;

/// Replaces the object.
const PUT: (Method, &str) = (Method::PUT, "application/json");
/// Changes the fields that the patch contains.
const MERGE: (Method, &str) = (Method::PATCH, "application/merge-patch+json");

/// An operation that a builder grants, named like its method.
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
            Self::Status => "patch_status",
            Self::StatusUpdate => "replace_status",
        }
    }
}

/// A writer of any kind.
#[derive(Clone, Debug)]
pub(super) struct Core {
    pub(super) kind: ResourceKind,
    pub(super) granted: BTreeSet<Operation>,
    pub(super) finalizer: Option<&'static str>,
    /// The owner of applied fields, as named in `managedFields`.
    pub(super) field_manager: Option<String>,
    /// The default field manager of applies.
    pub(super) controller: &'static str,
    /// Whether apply takes fields from other owners.
    pub(super) forced: bool,
    pub(super) noop_writes: IntCounter,
}

/// The response to a write: the object.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) body: Bytes,
    pub(super) is_created: bool,
}

/// The effect of a write.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The object was created.
    Created,
    /// A change was sent.
    Updated,
    /// No request was sent, because the object would not have changed.
    Unchanged,
}

/// The next step of a finalizer. The lists contain the object's finalizers after that step.
pub(super) enum Finalizing {
    /// The object is not being deleted and has the finalizer.
    Present,
    /// The object is not being deleted and gets the finalizer.
    Add(Vec<String>),
    /// The object is being deleted and loses the finalizer after the cleanup.
    Remove(Vec<String>),
    /// The object is being deleted and does not have the finalizer.
    Absent,
}

/// An object before and after the change, encoded as a document or as its bytes.
pub(super) struct Intent<'a, T> {
    pub(super) meta: &'a ObjectMeta,
    pub(super) before: T,
    pub(super) after: T,
}

impl Core {
    pub(super) fn granted(&self, operation: Operation) -> Result<(), WriteError> {
        if self.granted.contains(&operation) {
            return Ok(());
        }
        Err(WriteError::NotGranted { kind: self.kind.to_string(), operation: operation.name() })
    }

    /// Creates the object; returns the response.
    pub(super) async fn create(
        &self,
        cx: &dyn Caller,
        meta: &ObjectMeta,
        object: Vec<u8>,
    ) -> Result<Answer, WriteError> {
        self.granted(Operation::Create)?;
        let uri = self.collection(meta)?;
        self.send(cx, Method::POST, self.with_manager(uri), "application/json", object).await
    }

    /// Replaces the object; returns the response, or `None` if nothing would change. Both states contain the version
    /// and the UID that were read.
    pub(super) async fn update(
        &self,
        cx: &dyn Caller,
        Intent { meta, before, after }: Intent<'_, Vec<u8>>,
    ) -> Result<Option<Answer>, WriteError> {
        self.granted(Operation::Update)?;
        if is_same(&before, &after) {
            return Ok(None);
        }
        self.lock(meta)?;
        self.change(cx, PUT, meta, "", after).await.map(Some)
    }

    /// Sends a patch of the difference; returns the response, or `None` if there is no difference.
    pub(super) async fn patch(
        &self,
        cx: &dyn Caller,
        intent: Intent<'_, Value>,
    ) -> Result<Option<Answer>, WriteError> {
        self.granted(Operation::Patch)?;
        let Some(patch) = difference(&intent.before, &intent.after) else { return Ok(None) };
        self.change(cx, MERGE, intent.meta, "", self.locked(patch, intent.meta)?).await.map(Some)
    }

    /// Patches or replaces the status; returns the response, or `None` if the status does not differ.
    pub(super) async fn update_status(
        &self,
        cx: &dyn Caller,
        Intent { meta, mut before, mut after }: Intent<'_, Value>,
    ) -> Result<Option<Answer>, WriteError> {
        let is_put = self.granted.contains(&Operation::StatusUpdate);
        if !is_put {
            self.granted(Operation::Status)?;
        }
        let (old, new) = (before["status"].take(), after["status"].take());
        let Some(patch) = difference(&old, &new) else { return Ok(None) };
        if is_put {
            before["status"] = new;
            return self.change(cx, PUT, meta, "/status", self.locked(before, meta)?).await.map(Some);
        }
        let patch = self.locked(json!({ "status": patch }), meta)?;
        self.change(cx, MERGE, meta, "/status", patch).await.map(Some)
    }

    /// Returns the next step of the granted finalizer of the object.
    pub(super) fn finalizing(&self, meta: &ObjectMeta) -> Result<Finalizing, WriteError> {
        self.granted(Operation::Finalizer)?;
        let (present, name) =
            (meta.finalizers.as_deref().unwrap_or_default(), self.finalizer.unwrap_or_default());
        let others = present.iter().filter(|finalizer| *finalizer != name).cloned();
        Ok(match (meta.deletion_timestamp.is_some(), present.iter().any(|finalizer| finalizer == name)) {
            (false, true) => Finalizing::Present,
            (false, false) => Finalizing::Add(others.chain([name.to_owned()]).collect()),
            (true, true) => Finalizing::Remove(others.collect()),
            (true, false) => Finalizing::Absent,
        })
    }

    /// Replaces the list of finalizers that was read; returns the response.
    pub(super) async fn set_finalizers(
        &self,
        cx: &dyn Caller,
        meta: &ObjectMeta,
        finalizers: &[String],
    ) -> Result<Answer, WriteError> {
        let patch = self.locked(json!({ "metadata": { "finalizers": finalizers } }), meta)?;
        self.change(cx, MERGE, meta, "", patch).await
    }

    /// Removes the granted finalizer from the list, unless the object is gone.
    pub(super) async fn remove_finalizer(
        &self,
        cx: &dyn Caller,
        meta: &ObjectMeta,
        others: &[String],
    ) -> Result<(), WriteError> {
        unless_gone(self.set_finalizers(cx, meta, others).await).map(drop)
    }

    /// Returns the document that an apply of `desired` sends.
    pub(super) fn applicable(&self, mut desired: Value, subresource: &str) -> Result<Value, WriteError> {
        self.granted(if subresource.is_empty() { Operation::Apply } else { Operation::Status })?;
        leave_out_of_apply(&mut desired, subresource);
        Ok(desired)
    }

    /// Applies a document from [`applicable`](Self::applicable); returns the response. With a UID, applies only to the
    /// object that has it.
    pub(super) async fn apply(
        &self,
        cx: &dyn Caller,
        meta: &ObjectMeta,
        subresource: &str,
        uid: Option<&str>,
        mut desired: Value,
    ) -> Result<Answer, WriteError> {
        if let Some(uid) = uid {
            desired["metadata"]["uid"] = json!(uid);
        }
        let manager = escaped(self.field_manager.as_deref().unwrap_or(self.controller));
        let uri = format!("{}?fieldManager={manager}&force={}", self.path(meta, subresource)?, self.forced);
        self.send(cx, Method::PATCH, uri, "application/apply-patch+yaml", bytes(&desired)?).await
    }

    /// Counts a locked write that changed nothing, for example because the server reverts the change each time.
    pub(super) fn count_noop(&self, sent: &ObjectMeta, answer: &ObjectMeta) {
        if sent.resource_version == answer.resource_version {
            self.noop_writes.inc();
        }
    }

    /// Reads the object from the server, not from the cache; `None` if it does not exist.
    pub(super) async fn get_live(
        &self,
        cx: &dyn Caller,
        meta: &ObjectMeta,
    ) -> Result<Option<Bytes>, WriteError> {
        // Without a name or a namespace the path would be that of a collection.
        self.path(meta, "")?;
        get_live(cx.client(), &self.kind, &ObjectKey::of(meta)).await.map_err(failed)
    }

    /// Deletes the object with this UID; `false` if it is already gone.
    pub(super) async fn delete(
        &self,
        cx: &dyn Caller,
        meta: MetadataRef<'_>,
        params: &DeleteParams,
    ) -> Result<bool, WriteError> {
        self.granted(Operation::Delete)?;
        let uid = meta.uid().ok_or_else(|| self.lacks("UID"))?.to_owned();
        let mut params = params.clone();
        params.preconditions.get_or_insert_default().uid = Some(uid);
        let body = bytes(&params)?;
        let mut uri = self.path(meta, "")?;
        if params.dry_run {
            // The server reads `dryRun` from the body, the write log from the query.
            uri.push_str("?dryRun=All");
        }
        match self.send(cx, Method::DELETE, uri, "application/json", body).await {
            Ok(_) => Ok(true),
            Err(WriteError::Request(kube::Error::Api(status)))
                if is_not_found(&status) || is_another_object(&status) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the objects with these UIDs and versions; returns how many of them the server deletes.
    pub(super) async fn delete_all(
        &self,
        cx: &dyn Caller,
        objects: &[&ObjectMeta],
    ) -> Result<usize, WriteError> {
        let mut deleted = 0;
        for meta in objects {
            // The version is included because the reason for the deletion might have changed since the read.
            let resource_version = meta.resource_version.clone();
            let preconditions = Some(Preconditions { resource_version, ..Preconditions::default() });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            deleted += usize::from(self.delete(cx, (*meta).into(), &params).await?);
        }
        Ok(deleted)
    }

    /// Sends a change of the object that was read. The body is [locked](Self::lock).
    async fn change(
        &self,
        cx: &dyn Caller,
        (method, content): (Method, &'static str),
        meta: &ObjectMeta,
        subresource: &str,
        body: Vec<u8>,
    ) -> Result<Answer, WriteError> {
        let uri = self.with_manager(self.path(meta, subresource)?);
        self.send(cx, method, uri, content, body).await
    }

    async fn send(
        &self,
        cx: &dyn Caller,
        method: Method,
        uri: String,
        content: &'static str,
        body: Vec<u8>,
    ) -> Result<Answer, WriteError> {
        let request = Request::builder().method(method).uri(uri).header("content-type", content).body(body);
        let request = request.map_err(|error| WriteError::Request(kube::Error::HttpError(error)))?;
        // A clone shares the text.
        let uri = request.uri().clone();
        let answer = windlass_client::send(cx.client(), request).await;
        answer.map(Answer::from).map_err(|error| unless_served(&self.kind, uri.path(), error))
    }

    /// Returns the version and the UID that were read. With them in the body, the server rejects the write if the
    /// object has changed since.
    fn lock<'a>(&self, meta: &'a ObjectMeta) -> Result<(&'a str, &'a str), WriteError> {
        let version = meta.resource_version.as_deref().ok_or_else(|| self.lacks("resource version"))?;
        let uid = meta.uid.as_deref().ok_or_else(|| self.lacks("UID"))?;
        Ok((version, uid))
    }

    fn locked(&self, mut document: Value, meta: &ObjectMeta) -> Result<Vec<u8>, WriteError> {
        let (version, uid) = self.lock(meta)?;
        let metadata = &mut document["metadata"];
        (metadata["resourceVersion"], metadata["uid"]) = (json!(version), json!(uid));
        bytes(&document)
    }

    fn collection<'a>(&self, meta: impl Into<MetadataRef<'a>>) -> Result<String, WriteError> {
        let namespace = meta.into().namespace();
        if self.kind.scope == Scope::Namespaced && namespace.is_none() {
            return Err(self.lacks("namespace"));
        }
        Ok(self.kind.url_path(namespace))
    }

    fn path<'a>(&self, meta: impl Into<MetadataRef<'a>>, subresource: &str) -> Result<String, WriteError> {
        let meta = meta.into();
        let name = Some(meta.name()).filter(|name| !name.is_empty()).ok_or_else(|| self.lacks("name"))?;
        Ok(format!("{}/{}{subresource}", self.collection(meta)?, escaped(name)))
    }

    fn with_manager(&self, uri: String) -> String {
        match &self.field_manager {
            Some(manager) => format!("{uri}?fieldManager={}", escaped(manager)),
            None => uri,
        }
    }

    fn lacks(&self, what: &'static str) -> WriteError {
        WriteError::Incomplete { kind: self.kind.to_string(), lacks: what }
    }
}

impl Answer {
    /// Returns the effect of the apply with this response.
    pub(super) fn change(&self) -> Change {
        if self.is_created { Change::Created } else { Change::Updated }
    }
}

impl From<Response<Bytes>> for Answer {
    fn from(response: Response<Bytes>) -> Self {
        Self { is_created: response.status() == StatusCode::CREATED, body: response.into_body() }
    }
}

/// Returns the body of a request.
pub(super) fn bytes(object: &impl Serialize) -> Result<Vec<u8>, WriteError> {
    serde_json::to_vec(object).map_err(WriteError::Encoding)
}

/// Returns whether two bodies contain the same document. The order of keys, which varies with a `HashMap`, is ignored;
/// it does not change the length.
fn is_same(before: &[u8], after: &[u8]) -> bool {
    let parsed = |body| serde_json::from_slice::<Value>(body);
    let is_reordered =
        || matches!((parsed(before), parsed(after)), (Ok(before), Ok(after)) if before == after);
    before == after || (before.len() == after.len() && is_reordered())
}

/// Removes differences without a meaning, as closures leave them behind: restores the identity and the server's fields,
/// also when a closure replaces the metadata, and removes empty labels and the like where there were none.
pub(super) fn restore_unchanged(read: &ObjectMeta, changed: &mut ObjectMeta) {
    changed.resource_version.clone_from(&read.resource_version);
    changed.uid.clone_from(&read.uid);
    changed.name.clone_from(&read.name);
    changed.namespace.clone_from(&read.namespace);
    changed.generate_name.clone_from(&read.generate_name);
    changed.generation = read.generation;
    changed.creation_timestamp.clone_from(&read.creation_timestamp);
    changed.deletion_timestamp.clone_from(&read.deletion_timestamp);
    changed.deletion_grace_period_seconds = read.deletion_grace_period_seconds;
    changed.self_link.clone_from(&read.self_link);
    if changed.managed_fields.is_none() {
        changed.managed_fields.clone_from(&read.managed_fields);
    }
    changed.labels.take_if(|it| it.is_empty() && read.labels.is_none());
    changed.annotations.take_if(|it| it.is_empty() && read.annotations.is_none());
    changed.finalizers.take_if(|it| it.is_empty() && read.finalizers.is_none());
    changed.owner_references.take_if(|it| it.is_empty() && read.owner_references.is_none());
}

/// Converts the error of a request for this path, which the server might not serve.
fn unless_served(kind: &ResourceKind, path: &str, error: kube::Error) -> WriteError {
    match error {
        kube::Error::Api(status) if status.code == 404 && !is_not_found(&status) => {
            let (kind, path) = (kind.to_string(), path.to_owned());
            WriteError::NotServed { kind, path, source: kube::Error::Api(status) }
        }
        error => failed(error),
    }
}

/// Converts the error of a request.
fn failed(error: kube::Error) -> WriteError {
    match windlass_client::reconcile_ended(&error) {
        Some(over) => WriteError::ReconcileEnded(*over),
        None => WriteError::Request(error),
    }
}

/// Returns `None` if the object is gone.
fn unless_gone(answer: Result<Answer, WriteError>) -> Result<Option<Answer>, WriteError> {
    match answer {
        Err(WriteError::Request(kube::Error::Api(status))) if is_not_found(&status) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Returns whether a deletion was rejected because another object has the name. Other conflicts leave the object in
/// place.
fn is_another_object(status: &Status) -> bool {
    // Upstream rejects it in two places, with two messages.
    let words = ["UID in precondition", "UID in the precondition"];
    status.code == 409 && words.iter().any(|words| status.message.contains(words))
}

/// Removes the fields that the applier must not set: the server's metadata, everything but the status or the status
/// itself, and fields that are `null`, which apply would own without a value.
fn leave_out_of_apply(desired: &mut Value, subresource: &str) {
    without_nulls(desired);
    if let Some(metadata) = desired["metadata"].as_object_mut() {
        let of_server = [
            "managedFields",
            "resourceVersion",
            "uid",
            "creationTimestamp",
            "generation",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ];
        metadata.retain(|field, _| match subresource {
            "" => !of_server.contains(&field.as_str()),
            _ => matches!(field.as_str(), "name" | "namespace"),
        });
    }
    let Some(fields) = desired.as_object_mut() else { return };
    match subresource {
        "" => drop(fields.remove("status")),
        _ => fields.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status")),
    }
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_conflict_of_uids_means_another_object() {
        let conflict =
            |code, message: &str| Status { code, message: message.to_owned(), ..Status::default() };
        let stored = "StorageError: invalid object, AdditionalErrorMsg: Precondition failed: UID in precondition: a, UID \
            in object meta: b";
        let recorded = "the UID in the precondition (a) does not match the UID in record (b)";
        assert!(is_another_object(&conflict(409, stored)) && is_another_object(&conflict(409, recorded)));
        let versions =
            "Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: 2";
        for other in
            [conflict(409, versions), conflict(409, "the object has been modified"), conflict(422, stored)]
        {
            assert!(!is_another_object(&other), "{other:?}");
        }
    }

    #[test]
    fn unserved_path_differs_from_a_missing_object() {
        let kind = ResourceKind::of::<k8s_openapi::api::core::v1::ConfigMap>();
        let error = |body: &[u8]| {
            let status = kube::Error::Api(windlass_object::wire::status(404, body).boxed());
            unless_served(&kind, "/api/v1/namespaces/shop/configmaps/m/status", status)
        };
        let expected = "cannot write configmaps.v1: the server does not serve /api/v1/namespaces/shop/configmaps/m/status (404)";
        for body in ["404 page not found", r#"{"kind":"Status","reason":"NotFound","code":404,"details":{}}"#]
        {
            let text = error(body.as_bytes()).to_string();
            assert!(text.starts_with(expected), "{text}");
        }
        let gone =
            r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404,"details":{"name":"m"}}"#;
        assert!(matches!(error(gone.as_bytes()), WriteError::Request(_)));
    }

    #[test]
    fn bodies_are_the_same_whatever_the_order_of_their_keys() {
        let body = br#"{"a":1,"b":[2,3]}"#;
        assert!(is_same(body, body));
        assert!(is_same(body, br#"{"b":[2,3],"a":1}"#));
        assert!(!is_same(body, br#"{"a":1,"b":[3,2]}"#));
        assert!(!is_same(body, br#"{"a":1,"b":[2,30]}"#));
    }
}
