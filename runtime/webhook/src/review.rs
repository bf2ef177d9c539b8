//! The request of an admission review, as functions see it.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use k8s_openapi::api::authentication::v1::UserInfo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use windlass_controller::Caller;
use windlass_controller::host::CallerSeal;

use crate::error::{AdmissionError, deny};
use crate::field_path::field_of;
use crate::hook::Operation;

/// The clients with which reviews send requests.
#[derive(Clone)]
pub(crate) struct ReviewClients {
    pub(crate) live: kube::Client,
    /// Its writes change nothing.
    pub(crate) dry_run: kube::Client,
}

/// A request to the API server, under review by a webhook.
///
/// It is also the [`Caller`] of writers that the setup of the webhook declares.
pub struct Review<K> {
    core: Arc<ReviewCore>,
    object: Option<K>,
    old_object: Option<K>,
}

/// The parts of a review that do not depend on its kind.
pub(crate) struct ReviewCore {
    request: Request,
    operation: Operation,
    clients: ReviewClients,
    raw: OnceLock<Value>,
    notes: Mutex<Notes>,
}

/// Additions of the function to the response.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) warnings: Vec<String>,
    pub(crate) audit_annotations: Vec<(String, String)>,
}

/// The request in an AdmissionReview. Objects stay encoded, so that an object that cannot be decoded does not hide the
/// rest.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) uid: String,
    operation: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    kind: GroupVersionKind,
    user_info: UserInfo,
    #[serde(default)]
    object: Option<Box<RawValue>>,
    #[serde(default)]
    old_object: Option<Box<RawValue>>,
    #[serde(default)]
    dry_run: Option<bool>,
    /// The whole request.
    #[serde(skip)]
    text: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GroupVersionKind {
    group: String,
    kind: String,
}

impl Request {
    /// Decodes a request.
    ///
    /// # Errors
    /// If it is not a request, regardless of its objects.
    pub(crate) fn decode(text: Box<RawValue>) -> serde_json::Result<Self> {
        let request: Self = serde_json::from_str(text.get())?;
        Ok(Self { text: Some(text), ..request })
    }
}

impl ReviewCore {
    /// Creates a review.
    ///
    /// # Errors
    /// Returns the name of an unknown operation.
    pub(crate) fn new(request: Request, clients: ReviewClients) -> Result<Self, String> {
        let Some(operation) = Operation::parse(&request.operation) else { return Err(request.operation) };
        Ok(Self { request, operation, clients, raw: OnceLock::new(), notes: Mutex::default() })
    }

    pub(crate) fn uid(&self) -> &str {
        &self.request.uid
    }

    /// Returns the encoded object, which is absent for a deletion.
    pub(crate) fn object_text(&self) -> Option<&str> {
        self.request.object.as_deref().map(RawValue::get)
    }

    /// Returns the object of the request as `details` of a status.
    pub(crate) fn details(&self) -> Value {
        let Request { kind, name, .. } = &self.request;
        serde_json::json!({ "group": kind.group, "kind": kind.kind, "name": name.as_deref().unwrap_or_default() })
    }

    pub(crate) fn take_notes(&self) -> Notes {
        std::mem::take(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_dry_run(&self) -> bool {
        self.request.dry_run == Some(true)
    }

    fn raw(&self) -> &Value {
        self.raw.get_or_init(|| {
            let text = self.request.text.as_deref().map(RawValue::get).unwrap_or_default();
            serde_json::from_str(text).unwrap_or_default()
        })
    }

    fn warn(&self, warning: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).warnings.push(warning);
    }
}

/// Decodes an object.
///
/// # Errors
/// A denial with the field that cannot be decoded.
pub(crate) fn decode<K: DeserializeOwned>(text: &str) -> Result<K, AdmissionError> {
    serde_json::from_str(text).map_err(|error| undecodable(text, &error))
}

fn undecodable(text: &str, error: &serde_json::Error) -> AdmissionError {
    let (field, message) = (field_of(text, error), error.to_string());
    let reason = message.split(" at line ").next().unwrap_or_default();
    match field.as_str() {
        "" => deny(format!("the object cannot be decoded: {reason}")),
        field => deny("the object cannot be decoded").at(field, reason),
    }
}

impl<K: DeserializeOwned> Review<K> {
    /// Decodes the objects of a review. Returns `None` for a deletion whose object cannot be decoded: it must not
    /// become impossible to delete.
    ///
    /// # Errors
    /// A denial if the object cannot be decoded.
    pub(crate) fn of(core: &Arc<ReviewCore>) -> Result<Option<Self>, AdmissionError> {
        let object = core.object_text().map(decode).transpose()?;
        let old = core.request.old_object.as_deref().map(|old| decode(old.get())).transpose();
        let old_object = match old {
            Ok(old) => old,
            Err(undecodable) => {
                // Without the reason, which can quote a value that the user is not allowed to read.
                let field = undecodable.fields().first().map_or("", |(field, _)| *field);
                core.warn(format!("the old object cannot be decoded: {field}"));
                if object.is_none() {
                    return Ok(None);
                }
                None
            }
        };
        Ok(Some(Self { core: Arc::clone(core), object, old_object }))
    }

    /// Separates the object from the review, which keeps a copy.
    pub(crate) fn object_to_change(&self) -> Option<K>
    where
        K: Clone,
    {
        self.object.clone()
    }
}

impl<K> Review<K> {
    /// Returns the object after the request; `None` for a deletion.
    pub fn object(&self) -> Option<&K> {
        self.object.as_ref()
    }

    /// Returns the object before an update or a deletion; `None` for a creation, and for an update of an object that
    /// could not be decoded: a user can fix such an object.
    pub fn old_object(&self) -> Option<&K> {
        self.old_object.as_ref()
    }

    /// Returns the operation of the request.
    pub fn operation(&self) -> Operation {
        self.core.operation
    }

    /// Returns the name of the object; empty if the API server generates it.
    pub fn name(&self) -> &str {
        self.core.request.name.as_deref().unwrap_or_default()
    }

    /// Returns the namespace of the object; `None` for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        self.core.request.namespace.as_deref().filter(|it| !it.is_empty())
    }

    /// Returns the user who sent the request.
    pub fn user(&self) -> &UserInfo {
        &self.core.request.user_info
    }

    /// Returns whether the request changes nothing. Requests of [`client`](Self::client) are then dry runs as well.
    pub fn dry_run(&self) -> bool {
        self.core.is_dry_run()
    }

    /// Returns the whole request as the API server sent it, with `object`, `oldObject` and `options`.
    pub fn raw(&self) -> &Value {
        self.core.raw()
    }

    /// Adds a warning, which clients such as kubectl print. At most 120 characters are recommended.
    pub fn warn(&self, warning: impl Into<String>) {
        self.core.warn(warning.into());
    }

    /// Adds an annotation to the audit event of the request. The API server prefixes the key with the name of the
    /// webhook.
    pub fn audit_annotation(&self, key: &str, value: impl Into<String>) {
        let mut notes = self.core.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.audit_annotations.push((key.to_owned(), value.into()));
    }

    /// Returns a client with the identity and limits of the webhooks. It rejects requests that no webhook declared.
    pub fn client(&self) -> &kube::Client {
        match self.core.is_dry_run() {
            true => &self.core.clients.dry_run,
            false => &self.core.clients.live,
        }
    }
}

impl<K> CallerSeal for Review<K> {}

impl<K: Send + Sync> Caller for Review<K> {
    fn client(&self) -> &kube::Client {
        Review::client(self)
    }

    fn is_dry_run(&self) -> bool {
        self.dry_run()
    }
}

impl<K> fmt::Debug for Review<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Review")
            .field("uid", &self.core.request.uid)
            .field("operation", &self.core.operation)
            .field("namespace", &self.core.request.namespace)
            .field("name", &self.core.request.name)
            .finish_non_exhaustive()
    }
}
