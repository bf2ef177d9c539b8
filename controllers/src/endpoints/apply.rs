//! Requests for Endpoints, and what users are told when one fails.

use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::{DeleteParams, PartialObjectMeta, Preconditions};
use windlass_controller::{Context, ReconcileError, WriteError, Writer};
use windlass_object::ObjectKey;

use super::plan::Action;
use crate::shared::api_errors::{describe, is_kept_back, is_namespace_terminating, is_not_found};

/// What one reconcile sends about Endpoints.
#[derive(Debug)]
pub(super) struct EndpointsApi<'a> {
    writer: &'a Writer<Endpoints>,
    cx: &'a Context,
}

impl<'a> EndpointsApi<'a> {
    /// Through this writer, which creates, updates and deletes.
    pub(super) fn new(writer: &'a Writer<Endpoints>, cx: &'a Context) -> Self {
        Self { writer, cx }
    }

    /// Carries out what is planned for a Service.
    ///
    /// # Errors
    /// When the request failed; users are told. A namespace on its way out takes no Endpoints and needs none: that
    /// is no failure.
    pub(super) async fn apply(&self, service: &Service, action: Action<'_>) -> Result<(), ReconcileError> {
        let key = ObjectKey::of(&service.metadata);
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
                match self.writer.update(self.cx, current, |endpoints| endpoints.clone_from(&desired)).await {
                    Ok(_) => Ok(()),
                    Err(error) => {
                        let note = format!("Failed to update endpoint {key}: {}", describe(&error));
                        Err(self.failed(&desired, "FailedToUpdateEndpoint", &note, error))
                    }
                }
            }
        }
    }

    /// Deletes the Endpoints of a Service that is gone: exactly those known, or whatever is there if none are. The
    /// cache may not show yet what another process has made a moment ago, and nobody would look again.
    ///
    /// # Errors
    /// When the request failed otherwise than by there being none.
    pub(super) async fn delete(
        &self,
        key: &ObjectKey,
        known: Option<&Endpoints>,
    ) -> Result<(), ReconcileError> {
        let uid = known.and_then(|known| known.metadata.uid.clone());
        let preconditions = uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None });
        // Not by the writer, which needs a UID and takes Endpoints of another UID for deleted.
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.cx.api::<PartialObjectMeta<Endpoints>>(key).delete(key.name(), &params).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn failed(&self, endpoints: &Endpoints, reason: &str, note: &str, error: WriteError) -> ReconcileError {
        if !is_kept_back(&error) {
            self.cx.events().warning(endpoints, reason, note);
        }
        error.into()
    }
}
