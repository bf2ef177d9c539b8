//! Admission webhooks: typed functions behind one erased core.
//!
//! Per kind the compiler generates the decoder, the encoder and the user function. Everything else works on bytes and
//! documents.

use std::sync::Arc;

use base64::Engine as _;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use windlass_controller::{FullObject, Setup, SetupError, Writable};
use windlass_object::json as encode;

use crate::difference::carry_over;
use crate::error::{AdmissionError, Reason};
use crate::hook::Hook;
use crate::review::{Request, Review, ReviewClients, ReviewCore};

/// A function that denies objects, with listers or a configuration. [`Webhooks::validates`](crate::Webhooks::validates)
/// is enough for a function of the object alone.
///
/// # Examples
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
/// # use windlass_controller::{Setup, SetupError};
/// # use windlass_informer::Lister;
/// # use windlass_object::ObjectKey;
/// # use windlass_webhook::{AdmissionError, FailurePolicy, Hook, Operation, Review, Validator, Webhooks, deny};
/// /// Denies new ConfigMaps in namespaces that are marked as frozen.
/// struct Frozen {
///     namespaces: Lister<Namespace>,
/// }
///
/// impl Validator for Frozen {
///     const HOOK: Hook =
///         Hook::new("frozen.policy.example.com").on(&[Operation::Create]).failure(FailurePolicy::Ignore);
///     type Object = ConfigMap;
///     type Config = ();
///
///     fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
///         Ok(Self { namespaces: setup.watch::<Namespace>().lister() })
///     }
///
///     async fn validate(&self, review: &Review<ConfigMap>) -> Result<(), AdmissionError> {
///         let key = ObjectKey::cluster(review.namespace().unwrap_or_default());
///         let Some(namespace) = self.namespaces.get(&key)? else { return Ok(()) };
///         match namespace.metadata.labels.iter().flatten().any(|(name, _)| name == "example.com/frozen") {
///             true => Err(deny("the namespace is frozen")),
///             false => Ok(()),
///         }
///     }
/// }
///
/// let webhooks = Webhooks::new().validator::<Frozen>(());
/// # drop(webhooks);
/// ```
pub trait Validator: Send + Sync + Sized + 'static {
    /// The description of the webhook.
    const HOOK: Hook;

    /// The kind of the objects.
    type Object: FullObject;

    /// The configuration; `()` if there is none.
    type Config: Send + Sync + 'static;

    /// Declares what the function reads and writes, and builds it. Works like the setup of a
    /// [`Runnable`](windlass_controller::Runnable). While caches are not complete, requests fail with status 500.
    ///
    /// # Errors
    /// If it cannot be built from its configuration.
    fn setup(setup: &mut Setup, config: &Self::Config) -> Result<Self, SetupError>;

    /// Decides whether the object is admitted. Implementations write `async fn validate`.
    ///
    /// # Errors
    /// [`deny`](crate::deny) denies the request; other errors are failures of the webhook.
    ///
    /// # Cancel safety
    /// The future is dropped at any await when the time limit expires.
    fn validate(
        &self,
        review: &Review<Self::Object>,
    ) -> impl Future<Output = Result<(), AdmissionError>> + Send;
}

/// A function that changes objects. The API server calls it before all validators, and can call it again after another
/// mutator has changed the object, so its result must be the same if it is applied twice.
///
/// The difference between the given and the returned object is carried over to the object as it was sent: fields that
/// the Rust type does not know are kept.
pub trait Mutator: Send + Sync + Sized + 'static {
    /// The description of the webhook. It cannot contain deletions, which have no new object.
    const HOOK: Hook;

    /// The kind of the objects.
    type Object: FullObject + Writable;

    /// The configuration; `()` if there is none.
    type Config: Send + Sync + 'static;

    /// Declares what the function reads and writes, and builds it. See [`Validator::setup`].
    ///
    /// # Errors
    /// If it cannot be built from its configuration.
    fn setup(setup: &mut Setup, config: &Self::Config) -> Result<Self, SetupError>;

    /// Returns the changed object. Implementations write `async fn mutate`.
    ///
    /// # Errors
    /// See [`Validator::validate`].
    ///
    /// # Cancel safety
    /// The future is dropped at any await when the time limit expires.
    fn mutate(
        &self,
        review: &Review<Self::Object>,
        object: Self::Object,
    ) -> impl Future<Output = Result<Self::Object, AdmissionError>> + Send;
}

/// The encodings of the typed object before and after a mutation.
pub(crate) struct Mutation {
    before: Value,
    after: Value,
}

/// A function with its types erased. It returns `None` if it cannot change objects.
pub(crate) type Function = Arc<
    dyn Fn(Arc<ReviewCore>) -> BoxFuture<'static, Result<Option<Mutation>, AdmissionError>> + Send + Sync,
>;

pub(crate) fn validating<V: Validator>(validator: V) -> Function {
    let validator = Arc::new(validator);
    Arc::new(move |core| {
        let validator = Arc::clone(&validator);
        Box::pin(async move {
            let Some(review) = Review::of(&core)? else { return Ok(None) };
            validator.validate(&review).await.map(|()| None)
        })
    })
}

pub(crate) fn mutating<M: Mutator>(mutator: M) -> Function {
    let mutator = Arc::new(mutator);
    Arc::new(move |core| {
        let mutator = Arc::clone(&mutator);
        Box::pin(async move {
            let Some(review) = Review::of(&core)? else { return Ok(None) };
            let Some(object) = review.object_to_change() else { return Ok(None) };
            let before = encode::value(&object)?;
            let after = encode::value(&mutator.mutate(&review, object).await?)?;
            Ok(Some(Mutation { before, after }))
        })
    })
}

/// The response to an AdmissionReview.
pub(crate) enum Verdict {
    Allowed(Value),
    Denied(Value),
}

/// The envelope of an AdmissionReview.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    api_version: String,
    kind: String,
    request: Box<RawValue>,
}

/// Decodes an AdmissionReview.
///
/// # Errors
/// The reason why the body is not one.
pub(crate) fn decode(body: &[u8], clients: ReviewClients) -> Result<Arc<ReviewCore>, String> {
    let envelope: Envelope = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if (envelope.api_version.as_str(), envelope.kind.as_str()) != ("admission.k8s.io/v1", "AdmissionReview") {
        let Envelope { api_version, kind, .. } = envelope;
        return Err(format!("{kind} of {api_version} is not an AdmissionReview of admission.k8s.io/v1"));
    }
    let request = Request::decode(envelope.request).map_err(|error| error.to_string())?;
    let unknown = |operation| format!("the operation {operation} is unknown");
    ReviewCore::new(request, clients).map(Arc::new).map_err(unknown)
}

/// Calls a function and returns the response.
///
/// # Errors
/// The failure of the function.
///
/// # Cancel safety
/// As the function.
pub(crate) async fn respond(function: &Function, core: &Arc<ReviewCore>) -> Result<Verdict, String> {
    let failure = |error: AdmissionError| error.message();
    match function(Arc::clone(core)).await {
        Ok(None) => Ok(Verdict::Allowed(response(core, json!({ "allowed": true })))),
        Ok(Some(mutation)) => {
            let patched = patched(core, &mutation).map_err(|error| failure(error.into()))?;
            Ok(Verdict::Allowed(response(core, patched)))
        }
        Err(AdmissionError(Reason::Denied(denial))) => {
            let denied = json!({ "allowed": false, "status": denial.status(core.details()) });
            Ok(Verdict::Denied(response(core, denied)))
        }
        Err(error) => Err(failure(error)),
    }
}

/// Returns the response to an admitted mutation: a JSON patch, unless nothing changed.
fn patched(core: &ReviewCore, mutation: &Mutation) -> serde_json::Result<Value> {
    let raw: Value = serde_json::from_str(core.object_text().unwrap_or("null"))?;
    let mut changed = raw.clone();
    carry_over(&mut changed, &mutation.before, &mutation.after);
    let patch = json_patch::diff(&raw, &changed);
    if patch.0.is_empty() {
        return Ok(json!({ "allowed": true }));
    }
    let patch = base64::engine::general_purpose::STANDARD.encode(serde_json::to_vec(&patch)?);
    Ok(json!({ "allowed": true, "patchType": "JSONPatch", "patch": patch }))
}

fn response(core: &ReviewCore, mut response: Value) -> Value {
    response["uid"] = core.uid().into();
    let notes = core.take_notes();
    if !notes.warnings.is_empty() {
        response["warnings"] = notes.warnings.into();
    }
    if !notes.audit_annotations.is_empty() {
        response["auditAnnotations"] = notes.audit_annotations.into_iter().collect();
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
}
