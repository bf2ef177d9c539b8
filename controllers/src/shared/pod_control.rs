//! Creating, deleting and patching the pods of one owner, and telling users about it on the owner.
//!
//! A create is never repeated here: the name is left to the server, so a second attempt makes a second pod. Deletes
//! and patches carry the UID of the pod they are meant for; a namesake is left alone.
//!
//! Creates and patches are what kube-controller-manager sends: a pod without a namespace, and strategic merge patches
//! without a version. A [`Writer`] sends neither, so they use its grants only.

use std::error::Error;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use kube::api::{DeleteParams, PartialObjectMeta, Patch, PatchParams, PostParams, Request};
use serde_json::Value;
use windlass_controller::{Context, Deletion, WriteError, Writer};
use windlass_events::NewEvent;
use windlass_object::ObjectKey;

use super::api_errors::{describe, is_kept_back, is_namespace_terminating};
use super::pods;

/// The pods of one owner's namespace, with the owner as the one whom events concern.
#[derive(Debug)]
pub(crate) struct PodControl<'a> {
    cx: &'a Context,
    key: &'a ObjectKey,
    writer: &'a Writer<Pod>,
    owner: ObjectReference,
}

/// Why a pod was not created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// The template has no labels, so no selector could find the pod.
    #[error("unable to create pods, no labels")]
    NoLabels,
    /// The namespace is going away: no pod can be created in it any more, and nobody needs one.
    #[error("{}", describe(.0))]
    NamespaceTerminating(#[source] kube::Error),
    /// The request failed.
    #[error("{}", describe(.0))]
    Request(#[source] kube::Error),
}

/// Why a pod was not deleted.
#[derive(Debug, thiserror::Error)]
#[error("unable to delete pods: {}", describe(.0))]
pub(crate) struct DeleteError(#[source] WriteError);

impl CreateError {
    /// Whether the request never left this process.
    pub(crate) fn is_kept_back(&self) -> bool {
        matches!(self, CreateError::Request(error) if is_kept_back(error))
    }
}

impl DeleteError {
    /// Whether the request never left this process.
    pub(crate) fn is_kept_back(&self) -> bool {
        is_kept_back(&self.0)
    }
}

impl<'a> PodControl<'a> {
    /// The pods next to the owner of that key, on behalf of `owner`. The `writer` creates, patches and deletes.
    pub(crate) fn new(
        cx: &'a Context,
        key: &'a ObjectKey,
        writer: &'a Writer<Pod>,
        owner: ObjectReference,
    ) -> Self {
        Self { cx, key, writer, owner }
    }

    /// Creates a pod.
    ///
    /// # Errors
    /// [`CreateError`]; users are told, except of a template without labels and of a namespace going away.
    pub(crate) async fn create(&self, pod: &Pod) -> Result<(), CreateError> {
        if pod.metadata.labels.as_ref().is_none_or(|labels| labels.is_empty()) {
            return Err(CreateError::NoLabels);
        }
        match self.post(pod).await {
            Ok(created) => {
                self.tell("SuccessfulCreate", &format!("Created pod: {}", pods::name(&created.metadata)));
                Ok(())
            }
            Err(error) if is_namespace_terminating(&error) => Err(CreateError::NamespaceTerminating(error)),
            Err(error) => {
                self.warn("FailedCreate", "Error creating", &error);
                Err(CreateError::Request(error))
            }
        }
    }

    /// Asks for a pod to be deleted, with the grace it was given.
    ///
    /// # Errors
    /// When the request failed otherwise than by the pod being gone; users are told.
    pub(crate) async fn delete(&self, pod: &Pod) -> Result<(), DeleteError> {
        match self.writer.delete(self.cx, pod, &DeleteParams::default()).await {
            Ok(Deletion::Accepted) => {
                self.tell("SuccessfulDelete", &format!("Deleted pod: {}", pods::name(&pod.metadata)));
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => {
                self.warn("FailedDelete", "Error deleting", &error);
                Err(DeleteError(error))
            }
        }
    }

    /// Applies a strategic merge patch, which is to name the pod's UID.
    ///
    /// # Errors
    /// Whatever the request failed with.
    pub(crate) async fn patch(&self, pod: &ObjectMeta, patch: &Value) -> Result<(), kube::Error> {
        let api = self.cx.api::<PartialObjectMeta<Pod>>(self.key);
        api.patch(pods::name(pod), &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
    }

    /// Decodes the metadata of the answer alone.
    async fn post(&self, pod: &Pod) -> Result<PartialObjectMeta<Pod>, kube::Error> {
        let body = serde_json::to_vec(pod).map_err(kube::Error::SerdeError)?;
        let request = Request::new(Pod::url_path(&(), self.key.namespace()));
        let request = request.create(&PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
        self.cx.client().request(request).await
    }

    fn tell(&self, reason: &str, note: &str) {
        self.cx.events().publish(&self.owner, &NewEvent::normal(reason, note));
    }

    fn warn(&self, reason: &str, what: &str, error: &(dyn Error + 'static)) {
        if !is_kept_back(error) {
            let note = format!("{what}: {}", describe(error));
            self.cx.events().publish(&self.owner, &NewEvent::warning(reason, note));
        }
    }
}
