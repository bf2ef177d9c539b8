//! Code around every reconcile of a controller, for tracing, audits and tests.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use windlass_client::ControllerClients;
use windlass_informer::VersionedCache;
use windlass_object::{GroupResource, ObjectKey};

use crate::consistency::caches::Caches;
use crate::enqueue::enqueuer::Enqueuer;
use crate::error::ReconcileError;
use crate::run::context::Context;
use crate::run::outcome::Outcome;
use crate::run::reconcile::Reconcile;
use crate::setup::Setup;

/// A layer around every reconcile of a controller ([`Registration::with_layer`](crate::Registration::with_layer)).
pub trait ReconcileLayer: Send + Sync + 'static {
    /// Runs `reconcile`, which reconciles `key`.
    ///
    /// # Cancel safety
    /// The future can be dropped at any await, like that of [`Controller::reconcile`](crate::Controller::reconcile).
    fn around<'a>(
        &'a self,
        key: &'a ObjectKey,
        reconcile: BoxFuture<'a, Result<Outcome, ReconcileError>>,
    ) -> BoxFuture<'a, Result<Outcome, ReconcileError>>;

    /// Returns the clients for the reconcile of `key` that begins, or `None` (the default) for those of the controller.
    /// Called before [`around`](Self::around) and before any later reconcile of the key.
    fn clients(&self, key: &ObjectKey, clients: &ControllerClients) -> Option<ControllerClients> {
        let (_key, _clients) = (key, clients);
        None
    }
}

/// The versions of the caches that one controller reads.
#[derive(Clone)]
pub struct CacheVersions(Caches);

impl CacheVersions {
    /// Returns the caches of `resource`, including those of watches that were added at run time.
    pub fn of(&self, resource: &GroupResource) -> Vec<Arc<dyn VersionedCache>> {
        self.0.of(resource).into_iter().map(|cache| cache.version_source()).collect()
    }
}

impl Setup {
    /// Returns the versions of the caches that this controller reads. `None` if it does not
    /// [read its own writes](Setup::read_your_writes).
    pub fn cache_versions(&self) -> Option<CacheVersions> {
        self.reads_own_writes().then(|| CacheVersions(self.caches().clone()))
    }
}

/// A controller inside a layer.
pub(crate) struct Layered {
    pub(crate) inner: Arc<dyn Reconcile>,
    pub(crate) layer: Arc<dyn ReconcileLayer>,
}

#[async_trait]
impl Reconcile for Layered {
    async fn reconcile(&self, key: &ObjectKey, context: &Context) -> Result<Outcome, ReconcileError> {
        self.layer.around(key, self.inner.reconcile(key, context)).await
    }

    fn started(&self, queue: &Enqueuer) {
        self.inner.started(queue);
    }

    fn clients(&self, key: &ObjectKey, clients: &ControllerClients) -> Option<ControllerClients> {
        let inner = self.inner.clients(key, clients);
        self.layer.clients(key, inner.as_ref().unwrap_or(clients)).or(inner)
    }
}

impl fmt::Debug for CacheVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheVersions").finish_non_exhaustive()
    }
}
