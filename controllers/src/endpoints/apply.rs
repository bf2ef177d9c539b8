//! Requests for Endpoints, and what users are told when one fails.

use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use windlass_controller::{Context, ReconcileError};
use windlass_events::{EventType, Recorder, reference};
use windlass_object::ObjectKey;

use super::plan::Action;
use crate::shared::api_errors::{describe, is_kept_back, is_namespace_terminating, is_not_found};

/// The Endpoints of one namespace.
#[derive(Debug)]
pub(super) struct EndpointsApi<'a> {
    api: Api<Endpoints>,
    events: &'a Recorder,
}

impl<'a> EndpointsApi<'a> {
    /// The Endpoints beside a Service.
    pub(super) fn new(cx: &'a Context, service: &ObjectKey) -> Self {
        let api = Api::namespaced(cx.client().clone(), service.namespace().unwrap_or_default());
        Self { api, events: cx.events() }
    }

    /// Carries out what is planned for a Service.
    ///
    /// # Errors
    /// When the request failed; users are told. A namespace on its way out takes no Endpoints and needs none: that
    /// is no failure.
    pub(super) async fn apply(&self, service: &Service, action: Action) -> Result<(), ReconcileError> {
        let key = ObjectKey::of(&service.metadata);
        match action {
            Action::Nothing => Ok(()),
            Action::Create(endpoints) => match self.api.create(&PostParams::default(), &endpoints).await {
                Ok(_) => Ok(()),
                Err(error) if is_namespace_terminating(&error) => Ok(()),
                Err(error) => {
                    let note = format!("Failed to create endpoint for service {key}: {}", describe(&error));
                    Err(self.failed(&endpoints, "FailedToCreateEndpoint", &note, error))
                }
            },
            Action::Update(endpoints) => {
                match self.api.replace(key.name(), &PostParams::default(), &endpoints).await {
                    Ok(_) => Ok(()),
                    Err(error) => {
                        let note = format!("Failed to update endpoint {key}: {}", describe(&error));
                        Err(self.failed(&endpoints, "FailedToUpdateEndpoint", &note, error))
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
        match self.api.delete(key.name(), &DeleteParams { preconditions, ..DeleteParams::default() }).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn failed(&self, endpoints: &Endpoints, reason: &str, note: &str, error: kube::Error) -> ReconcileError {
        if !is_kept_back(&error) {
            self.events.event(&reference(endpoints), EventType::Warning, reason, note);
        }
        error.into()
    }
}
