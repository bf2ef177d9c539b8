//! Requests about one owner during its sync: references of pods, and the status.
//!
//! Each request that changes a pod or the owner contains a UID, so that another object with the same name is not
//! changed.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use windlass_controller::{Context, ReconcileError, Setup, WriteError, Writer};
use windlass_object::{LabelSelector, ObjectKey, Verb};

use super::claims::Claims;
use super::event_reference::event_reference;
use super::pod_control::PodControl;
use super::pod_view::PodView;
use super::replicated::{ReplicaOwner, ReplicaStatus};
use super::status_write::write_status;

/// Writers of one replicated kind.
#[derive(Debug)]
pub(crate) struct Writers<R> {
    owner: Writer<R>,
    pod: Writer<Pod>,
}

/// One owner during its sync.
pub(crate) struct SyncContext<'a, R: ReplicaOwner> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) owner: &'a R,
    selector: &'a LabelSelector,
    pub(crate) cx: &'a Context,
    writer: &'a Writer<R>,
    pub(crate) control: PodControl<'a>,
}

impl<R: ReplicaOwner> Writers<R> {
    /// Declares the writers, and the requests that they and the reads of a [`SyncContext`] send.
    pub(crate) fn declare(setup: &mut Setup) -> Self {
        // An uncached read, before the first adoption and after a failed status write.
        setup.uses::<R>([Verb::Get]);
        // References with `blockOwnerDeletion` require the permission to set finalizers on the owner.
        let owner = setup.writer::<R>().replace_status().subresource("finalizers", Verb::Update).build();
        let pod = setup.writer::<Pod>().create().patch().delete().build();
        Self { owner, pod }
    }
}

impl<'a, R: ReplicaOwner> SyncContext<'a, R> {
    /// Returns the context of an owner.
    pub(crate) fn new(
        key: &'a ObjectKey,
        owner: &'a R,
        selector: &'a LabelSelector,
        cx: &'a Context,
        writers: &'a Writers<R>,
    ) -> Self {
        let control = PodControl::new(cx, key, &writers.pod, event_reference(owner));
        Self { key, owner, selector, cx, writer: &writers.owner, control }
    }

    /// Adopts and releases pods, and returns the owned pods.
    ///
    /// # Errors
    /// The failures of all requests, without duplicates.
    pub(crate) async fn claim(
        &self,
        candidates: impl Iterator<Item = &Arc<PodView>>,
    ) -> Result<Vec<Arc<PodView>>, ReconcileError> {
        let Self { key, owner, selector, cx, .. } = *self;
        Claims { key, owner, selector, cx }.claim::<Pod, PodView>(candidates).await
    }

    /// Writes the status if it changed, and returns the new owner.
    pub(crate) async fn write_status(
        &self,
        status: ReplicaStatus<R::Condition>,
    ) -> Result<Arc<R>, WriteError> {
        if self.owner.status() == status {
            return Ok(Arc::new(self.owner.clone()));
        }
        let change = |owner: &mut R| owner.set_status(status.clone());
        write_status(self.cx, self.key, self.writer, self.owner, change).await
    }
}
