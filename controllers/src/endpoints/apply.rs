//! Requests for Endpoints, and the events for failures.

use k8s_openapi::api::core::v1::Endpoints;
use kube::api::{DeleteParams, PartialObjectMeta, Preconditions};
use windlass_controller::{Context, ReconcileError, WriteError, Writer};
use windlass_object::ObjectKey;

use super::plan::Action;
use super::service_view::ServiceView;
use crate::shared::api_errors::{describe, is_namespace_terminating, is_not_found, was_not_sent};

/// Requests of one reconcile for Endpoints.
#[derive(Debug)]
pub(super) struct EndpointsApi<'a> {
    writer: &'a Writer<Endpoints>,
    cx: &'a Context,
}

impl<'a> EndpointsApi<'a> {
    /// Returns the requests of this writer, which creates, updates and deletes.
    pub(super) fn new(writer: &'a Writer<Endpoints>, cx: &'a Context) -> Self {
        Self { writer, cx }
    }

    /// Sends the request for the planned action.
    ///
    /// # Errors
    /// If the request fails; an event is recorded. A terminating namespace is not a failure, because it needs no
    /// Endpoints.
    pub(super) async fn apply(
        &self,
        service: &ServiceView,
        action: Action<'_>,
    ) -> Result<(), ReconcileError> {
        let key = service.metadata.header.key.clone();
        match action {
            Action::Nothing => Ok(()),
            Action::Create(endpoints) => match self.writer.create(self.cx, &endpoints).await {
                Ok(_) => Ok(()),
                Err(error) if is_namespace_terminating(&error) => Ok(()),
                Err(error) => {
                    let note = format!("Failed to create endpoint for service {key}: {}", describe(&error));
                    Err(self.failed(&endpoints, "FailedToCreateEndpoint", &note, error))
                }
            },
            Action::Update { current, desired } => {
                match self.writer.update(self.cx, current, |endpoints| *endpoints = *desired).await {
                    Ok(_) => Ok(()),
                    Err(error) => {
                        let note = format!("Failed to update endpoint {key}: {}", describe(&error));
                        Err(self.failed(current, "FailedToUpdateEndpoint", &note, error))
                    }
                }
            }
        }
    }

    /// Deletes the Endpoints of a deleted Service: the cached object, or any object of the name if none is cached. The
    /// cache might not contain Endpoints that another process has just created, and no event would follow.
    ///
    /// # Errors
    /// If the request fails, except if there are no Endpoints.
    pub(super) async fn delete(
        &self,
        key: &ObjectKey,
        known: Option<&Endpoints>,
    ) -> Result<(), ReconcileError> {
        let uid = known.and_then(|known| known.metadata.uid.clone());
        let preconditions = uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None });
        // Not through the writer, which requires a UID and treats Endpoints with another UID as deleted.
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.cx.api::<PartialObjectMeta<Endpoints>>(key).delete(key.name(), &params).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn failed(&self, endpoints: &Endpoints, reason: &str, note: &str, error: WriteError) -> ReconcileError {
        if !was_not_sent(&error) {
            self.cx.events().warning(endpoints, reason, note);
        }
        error.into()
    }
}
