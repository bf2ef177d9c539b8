//! Requests about one owner during its sync: references of pods, and the status.
//!
//! An adoption first reads the owner from the server, once per sync. Each request that changes a pod or the owner
//! contains a UID, so that another object with the same name is not changed.

use std::sync::Arc;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::PartialObjectMeta;
use windlass_controller::{Context, ReconcileError, Setup, WriteError, Writer, retry};
use windlass_object::owner::controller_reference;
use windlass_object::{LabelSelector, ObjectKey, Verb};

use super::adoption::{Claim, adopt_patch, claim, release_patch};
use super::api_errors::{aggregate, describe, is_invalid, is_not_found};
use super::pod_control::PodControl;
use super::pod_view::PodView;
use super::pods;
use super::replicated::{ReplicaOwner, ReplicaStatus};

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
        // Events refer to the version that was read, as in kube-controller-manager.
        let resource_version = owner.meta().resource_version.clone();
        let regarding = ObjectReference { resource_version, ..owner.object_ref(&()) };
        let control = PodControl::new(cx, key, &writers.pod, regarding);
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
        let (mut kept, mut wanted, mut unwanted) = (Vec::new(), Vec::new(), Vec::new());
        for pod in candidates {
            match claim(self.owner.meta(), self.selector, pod) {
                Claim::Keep => kept.push(Arc::clone(pod)),
                Claim::Adopt => wanted.push(pod),
                Claim::Release => unwanted.push(pod),
                Claim::Ignore => {}
            }
        }
        let may_adopt = if wanted.is_empty() { Ok(()) } else { self.recheck().await };
        let adopted = join_all(wanted.into_iter().map(|pod| self.adopt(pod, &may_adopt))).await;
        let released = join_all(unwanted.into_iter().map(|pod| self.release(pod))).await;
        let mut failed: Vec<_> = released.into_iter().filter_map(Result::err).collect();
        for adopted in adopted {
            match adopted {
                Ok(pod) => kept.extend(pod),
                Err(message) => failed.push(message),
            }
        }
        if failed.is_empty() { Ok(kept) } else { Err(retry(aggregate(failed))) }
    }

    /// Adopts a pod and returns it, unless it no longer exists.
    async fn adopt(
        &self,
        pod: &Arc<PodView>,
        may_adopt: &Result<(), String>,
    ) -> Result<Option<Arc<PodView>>, String> {
        if let Err(reason) = may_adopt {
            let (key, uid) = (&pod.metadata.header.key, pods::uid(&pod.metadata));
            return Err(format!("can't adopt Pod {key} ({uid}): {reason}"));
        }
        let patch = adopt_patch(pod, &controller_reference(self.owner));
        match self.control.patch(pod, &patch).await {
            Ok(()) => Ok(Some(Arc::clone(pod))),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(describe(&error)),
        }
    }

    /// Releases a pod. Not found and invalid are no failures: the pod was deleted, has no reference to the owner, or is
    /// another pod with the same name.
    async fn release(&self, pod: &PodView) -> Result<(), String> {
        tracing::debug!(key = %self.key, pod = pods::name(&pod.metadata), "releasing pod that is no longer selected");
        match self.control.patch(pod, &release_patch(pod, self.owner.meta())).await {
            Err(error) if !is_not_found(&error) && !is_invalid(&error) => Err(describe(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Reads the owner from the server instead of the cache: an orphan that a terminating owner adopts would be deleted
    /// with it.
    async fn recheck(&self) -> Result<(), String> {
        let recheck = |reason: String| format!("can't recheck DeletionTimestamp: {reason}");
        let fresh = self.cx.api::<PartialObjectMeta<R>>(self.key).get(self.key.name()).await;
        let fresh = fresh.map_err(|error| recheck(describe(&error)))?;
        let (got, wanted) = (pods::uid(&fresh.metadata), pods::uid(self.owner.meta()));
        if got != wanted {
            let kind = R::kind(&());
            return Err(recheck(format!(
                "original {kind} {} is gone: got uid {got}, wanted {wanted}",
                self.key
            )));
        }
        match &fresh.metadata.deletion_timestamp {
            Some(time) => {
                let time = time.0.strftime("%Y-%m-%d %H:%M:%S +0000 UTC");
                Err(format!("{} has just been deleted at {time}", self.key))
            }
            None => Ok(()),
        }
    }

    /// Writes the status if it changed, and returns the new owner.
    ///
    /// A failed write is retried once on a fresh copy, with the generation for which the status was computed, because a
    /// newer spec was not processed.
    pub(crate) async fn write_status(
        &self,
        status: ReplicaStatus<R::Condition>,
    ) -> Result<Arc<R>, WriteError> {
        if self.owner.status() == status {
            return Ok(Arc::new(self.owner.clone()));
        }
        let refused = match self.put_status(self.owner, status.clone()).await {
            Ok(written) => return Ok(written),
            Err(refused) => refused,
        };
        let fresh = self.cx.get_live::<R>(self.key).await.map_err(WriteError::Request)?;
        // Another owner with the same name has its own status.
        match fresh.filter(|fresh| fresh.meta().uid == self.owner.meta().uid) {
            Some(fresh) => self.put_status(&fresh, status).await,
            None => Err(refused),
        }
    }

    async fn put_status(&self, owner: &R, status: ReplicaStatus<R::Condition>) -> Result<Arc<R>, WriteError> {
        let written = self.writer.update_status(self.cx, owner, |owner| owner.set_status(status)).await?;
        Ok(written.object)
    }
}
