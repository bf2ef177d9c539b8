//! A type-erased controller for workers.

use async_trait::async_trait;
use windlass_client::ControllerClients;
use windlass_object::ObjectKey;

use crate::Controller;
use crate::enqueue::enqueuer::Enqueuer;
use crate::error::ReconcileError;
use crate::run::context::Context;
use crate::run::outcome::Outcome;

/// A type-erased [`Controller`].
#[async_trait]
pub(crate) trait Reconcile: Send + Sync {
    async fn reconcile(&self, key: &ObjectKey, context: &Context) -> Result<Outcome, ReconcileError>;
    fn started(&self, queue: &Enqueuer);
    /// Returns the clients for the reconcile of `key` that begins, or `None` for those of the controller.
    fn clients(&self, key: &ObjectKey, clients: &ControllerClients) -> Option<ControllerClients> {
        let (_key, _clients) = (key, clients);
        None
    }
}

#[async_trait]
impl<C: Controller> Reconcile for C {
    async fn reconcile(&self, key: &ObjectKey, context: &Context) -> Result<Outcome, ReconcileError> {
        Controller::reconcile(self, key, context).await
    }

    fn started(&self, queue: &Enqueuer) {
        Controller::started(self, queue);
    }
}
