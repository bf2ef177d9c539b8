//! Creates and deletes the pods of one owner, and records events for the owner.
//!
//! Creates are not retried here: the server generates the name, so a second attempt creates a second pod. Deletes
//! contain the UID of their pod, so that another pod with the same name is not deleted.
//!
//! Creates are the same as in kube-controller-manager: a pod without a namespace. A [`Writer`] does not support it, so
//! this code uses only its grants.

use std::borrow::Borrow;
use std::error::Error;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Resource as _;
use kube::api::{DeleteParams, PostParams, Request};
use serde::Deserialize;
use windlass_client::send;
use windlass_controller::{Context, Deletion, WriteError, Writer};
use windlass_events::NewEvent;
use windlass_object::ObjectKey;

use super::api_errors::{describe, is_namespace_terminating, was_not_sent};
use super::pod_view::PodView;
use super::pods;
use super::slow_start::slow_start;
use super::terminating_namespaces::Withheld;

/// Pods in the namespace of one owner. The owner is the subject of the events.
#[derive(Debug)]
pub(crate) struct PodControl<'a> {
    cx: &'a Context,
    key: &'a ObjectKey,
    writer: &'a Writer<Pod>,
    owner: ObjectReference,
}

/// The part of a created pod that its event needs.
#[derive(Deserialize)]
struct CreatedPod {
    metadata: CreatedMetadata,
}

#[derive(Deserialize)]
struct CreatedMetadata {
    name: String,
}

/// Failure to create a pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// The template has no labels, so no selector could find the pod.
    #[error("unable to create pods, no labels")]
    NoLabels,
    /// The namespace is terminating: the server rejects all creates in it, and no pod is needed.
    #[error("{}", describe(.0))]
    NamespaceTerminating(#[source] kube::Error),
    /// The request failed.
    #[error("{}", describe(.0))]
    Request(#[source] kube::Error),
}

/// Failure to delete a pod.
#[derive(Debug, thiserror::Error)]
#[error("unable to delete pods: {}", describe(.0))]
pub(crate) struct DeleteError(#[source] WriteError);

impl CreateError {
    /// Returns whether the request was not sent.
    pub(crate) fn was_not_sent(&self) -> bool {
        matches!(self, CreateError::Request(error) if was_not_sent(error))
    }
}

impl DeleteError {
    /// Returns whether the request was not sent.
    pub(crate) fn was_not_sent(&self) -> bool {
        was_not_sent(&self.0)
    }
}

impl<'a> PodControl<'a> {
    /// Returns access to the pods in the namespace of `owner`, which contains the UID. The `writer` creates and
    /// deletes.
    pub(crate) fn new(
        cx: &'a Context,
        key: &'a ObjectKey,
        writer: &'a Writer<Pod>,
        owner: ObjectReference,
    ) -> Self {
        Self { cx, key, writer, owner }
    }

    /// Creates `count` pods in growing batches, and stops after a batch with a failure. `pod` receives the number of a
    /// pod, from 0.
    ///
    /// A terminating namespace is no failure. The owner is recorded in `withheld`, also if another create of the batch
    /// fails for another reason, because the retry of that create would send all creates again.
    ///
    /// # Errors
    /// The first other failure of the last batch.
    pub(crate) async fn create_all<P: Borrow<Pod>>(
        &self,
        withheld: &Withheld,
        count: usize,
        pod: impl Fn(usize) -> P,
    ) -> Result<(), CreateError> {
        let create = |number| {
            let pod = pod(number);
            async move {
                let created = self.create(pod.borrow()).await;
                if matches!(created, Err(CreateError::NamespaceTerminating(_))) {
                    let uid = self.owner.uid.as_deref().unwrap_or_default();
                    withheld.withhold(self.key, uid, self.cx.env().now());
                }
                created
            }
        };
        let mut failures = slow_start(count, create).await.into_iter();
        let other = failures.find(|error| !matches!(error, CreateError::NamespaceTerminating(_)));
        other.map_or(Ok(()), Err)
    }

    /// Creates a pod.
    ///
    /// # Errors
    /// [`CreateError`]. Records an event, except for a template without labels and a terminating namespace.
    async fn create(&self, pod: &Pod) -> Result<(), CreateError> {
        if pod.metadata.labels.as_ref().is_none_or(|labels| labels.is_empty()) {
            return Err(CreateError::NoLabels);
        }
        match self.post(pod).await {
            Ok(name) => {
                self.record_event("SuccessfulCreate", &format!("Created pod: {name}"));
                Ok(())
            }
            Err(error) if is_namespace_terminating(&error) => Err(CreateError::NamespaceTerminating(error)),
            Err(error) => {
                self.warn("FailedCreate", "Error creating", &error);
                Err(CreateError::Request(error))
            }
        }
    }

    /// Deletes a pod with its own grace period.
    ///
    /// # Errors
    /// If the request fails, except if the pod no longer exists. Records an event.
    pub(crate) async fn delete(&self, pod: &PodView) -> Result<(), DeleteError> {
        match self.writer.delete_view(self.cx, pod, &DeleteParams::default()).await {
            Ok(Deletion::Accepted) => {
                self.record_event("SuccessfulDelete", &format!("Deleted pod: {}", pods::name(&pod.metadata)));
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => {
                self.warn("FailedDelete", "Error deleting", &error);
                Err(DeleteError(error))
            }
        }
    }

    /// Creates a pod; returns its name. Decodes nothing else of the response: it is as long as four pods of the
    /// template.
    async fn post(&self, pod: &Pod) -> Result<String, kube::Error> {
        let body = serde_json::to_vec(pod).map_err(kube::Error::SerdeError)?;
        let request = Request::new(Pod::url_path(&(), self.key.namespace()));
        let request = request.create(&PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
        let answer = send(self.cx.client(), request).await?;
        let created: CreatedPod = serde_json::from_slice(answer.body()).map_err(kube::Error::SerdeError)?;
        Ok(created.metadata.name)
    }

    fn record_event(&self, reason: &str, note: &str) {
        self.cx.events().publish(&self.owner, &NewEvent::normal(reason, note));
    }

    fn warn(&self, reason: &str, what: &str, error: &(dyn Error + 'static)) {
        if !was_not_sent(error) {
            let note = format!("{what}: {}", describe(error));
            self.cx.events().publish(&self.owner, &NewEvent::warning(reason, note));
        }
    }
}
