//! One owner while it is being synced: the requests about its references and its status.
//!
//! Adopting asks the server first, once per sync. Every request that changes a pod or the owner is meant for one UID;
//! a namesake is left alone.

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
use super::pods;
use super::replicated::{ReplicaOwner, ReplicaStatus};

/// What is written for one replicated kind.
#[derive(Debug)]
pub(crate) struct Writers<R> {
    owner: Writer<R>,
    pod: Writer<Pod>,
}

/// One owner, while it is being synced.
pub(crate) struct SyncContext<'a, R: ReplicaOwner> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) owner: &'a R,
    selector: &'a LabelSelector,
    pub(crate) cx: &'a Context,
    writer: &'a Writer<R>,
    pub(crate) control: PodControl<'a>,
}

impl<R: ReplicaOwner> Writers<R> {
    /// Declares the writers, and what they and the reads of a [`SyncContext`] ask of the API server.
    pub(crate) fn declare(setup: &mut Setup) -> Self {
        // An uncached read, before the first adoption and after a status was refused.
        setup.uses::<R>([Verb::Get]);
        // Pods refer to their owner as blocking its deletion, which takes the right to set finalizers on it.
        let owner = setup.writer::<R>().status_update().subresource("finalizers", Verb::Update).build();
        let pod = setup.writer::<Pod>().create().patch().delete().build();
        Self { owner, pod }
    }
}

impl<'a, R: ReplicaOwner> SyncContext<'a, R> {
    /// The owner of that key, and the means to make requests about it.
    pub(crate) fn new(
        key: &'a ObjectKey,
        owner: &'a R,
        selector: &'a LabelSelector,
        cx: &'a Context,
        writers: &'a Writers<R>,
    ) -> Self {
        // Events refer to the version that was read, as those of kube-controller-manager do.
        let resource_version = owner.meta().resource_version.clone();
        let regarding = ObjectReference { resource_version, ..owner.object_ref(&()) };
        let control = PodControl::new(cx, key, &writers.pod, regarding);
        Self { key, owner, selector, cx, writer: &writers.owner, control }
    }

    /// Adopts and releases, and returns the pods that count.
    ///
    /// # Errors
    /// What went wrong with any of them, each thing said once.
    pub(crate) async fn claim(
        &self,
        candidates: impl Iterator<Item = &Arc<Pod>>,
    ) -> Result<Vec<Arc<Pod>>, ReconcileError> {
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

    /// Adopts a pod and returns it, unless it is gone.
    async fn adopt(
        &self,
        pod: &Arc<Pod>,
        may_adopt: &Result<(), String>,
    ) -> Result<Option<Arc<Pod>>, String> {
        if let Err(reason) = may_adopt {
            let (key, uid) = (ObjectKey::of(&pod.metadata), pods::uid(&pod.metadata));
            return Err(format!("can't adopt Pod {key} ({uid}): {reason}"));
        }
        let patch = adopt_patch(&pod.metadata, &controller_reference(self.owner));
        match self.control.patch(&pod.metadata, &patch).await {
            Ok(()) => Ok(Some(Arc::clone(pod))),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(describe(&error)),
        }
    }

    /// A pod that is gone needs no release. One the server finds unacceptable has no reference left, or is a namesake.
    async fn release(&self, pod: &Pod) -> Result<(), String> {
        tracing::debug!(key = %self.key, pod = pods::name(&pod.metadata), "releasing a pod the selector no longer wants");
        match self.control.patch(&pod.metadata, &release_patch(&pod.metadata, self.owner.meta())).await {
            Err(error) if !is_not_found(&error) && !is_invalid(&error) => Err(describe(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Asks the server, not the cache, whether the owner is still there and stays: an orphan adopted by an owner on
    /// its way out would be deleted with it.
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

    /// Writes the status unless it stands already, and returns the owner as it is then.
    ///
    /// A refused write is tried once more on a fresh copy, with the generation the status was computed from: a newer
    /// spec has not been looked at.
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
        // A namesake has its own status.
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
