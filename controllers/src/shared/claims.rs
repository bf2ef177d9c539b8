//! Adopts and releases the children of one owner during its sync.
//!
//! An adoption first reads the owner from the server, once per sync. Each patch contains the UID of its child, so that
//! another object with the same name is not changed. The patches run concurrently, within the limit of [`join_all`].

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use serde_json::Value;
use windlass_controller::{Context, ReconcileError, retry};
use windlass_object::owner::controller_reference;
use windlass_object::{HasMetadata, LabelSelector, MetadataRef, ObjectKey};

use super::adoption::{Claim, adopt_patch, claim, release_patch};
use super::api_errors::{aggregate, describe, is_invalid, is_not_found};
use super::concurrency::join_all;
use super::pods;

/// A kind whose objects are in namespaces.
pub(crate) trait NamespacedKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug
{
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug> NamespacedKind for K {}

/// The children of one owner in its namespace.
pub(crate) struct Claims<'a, O> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) owner: &'a O,
    pub(crate) selector: &'a LabelSelector,
    pub(crate) cx: &'a Context,
}

impl<O> Claims<'_, O>
where
    O: NamespacedKind,
{
    /// Adopts and releases children of the kind `K`, and returns the owned children.
    ///
    /// # Errors
    /// The failures of all requests, without duplicates.
    pub(crate) async fn claim<K, C>(
        &self,
        candidates: impl Iterator<Item = &Arc<C>>,
    ) -> Result<Vec<Arc<C>>, ReconcileError>
    where
        K: NamespacedKind,
        C: HasMetadata,
    {
        self.claim_members::<K, C>(candidates, |_| true).await
    }

    /// Adopts orphans in order, up to the first failure, and returns their new metadata. A deleted orphan is a failure.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) async fn adopt_in_order<K, C>(
        &self,
        orphans: &[Arc<C>],
    ) -> Result<Vec<ObjectMeta>, ReconcileError>
    where
        K: NamespacedKind,
        C: HasMetadata,
    {
        if !orphans.is_empty() {
            let kinds = format!("{}s", K::kind(&()));
            self.recheck().await.map_err(|reason| retry(format!("can't adopt {kinds}: {reason}")))?;
        }
        let mut adopted = Vec::with_capacity(orphans.len());
        for orphan in orphans {
            let patched = self.patch_owner::<K>(orphan.metadata()).await;
            adopted.push(patched.map_err(|error| retry(describe(&error)))?);
        }
        Ok(adopted)
    }

    /// Adopts and releases children like [`claim`](Self::claim). A child that is not a member counts as not selected.
    ///
    /// # Errors
    /// The failures of all requests, without duplicates.
    pub(crate) async fn claim_members<K, C>(
        &self,
        candidates: impl Iterator<Item = &Arc<C>>,
        is_member: impl Fn(MetadataRef<'_>) -> bool,
    ) -> Result<Vec<Arc<C>>, ReconcileError>
    where
        K: NamespacedKind,
        C: HasMetadata,
    {
        let (mut kept, mut wanted, mut unwanted) = (Vec::new(), Vec::new(), Vec::new());
        for child in candidates {
            let metadata = child.metadata();
            let is_selected = self.selector.matches(metadata.labels()) && is_member(metadata);
            match claim(self.owner.meta(), is_selected, metadata) {
                Claim::Keep => kept.push(Arc::clone(child)),
                Claim::Adopt => wanted.push(child),
                Claim::Release => unwanted.push(child),
                Claim::Ignore => {}
            }
        }
        let may_adopt = if wanted.is_empty() { Ok(()) } else { self.recheck().await };
        let mut failed = Vec::new();
        let adopt = |number: usize| self.adopt::<K, C>(wanted[number], &may_adopt);
        for adopted in join_all(wanted.len(), adopt).await {
            match adopted {
                Ok(child) => kept.extend(child),
                Err(message) => failed.push(message),
            }
        }
        let release = |number: usize| self.release::<K>(unwanted[number].metadata());
        let released = join_all(unwanted.len(), release).await;
        failed.extend(released.into_iter().filter_map(Result::err));
        if failed.is_empty() { Ok(kept) } else { Err(retry(aggregate(failed))) }
    }

    /// Adopts a child and returns it, unless it no longer exists.
    async fn adopt<K, C>(
        &self,
        child: &Arc<C>,
        may_adopt: &Result<(), String>,
    ) -> Result<Option<Arc<C>>, String>
    where
        K: NamespacedKind,
        C: HasMetadata,
    {
        let metadata = child.metadata();
        if let Err(reason) = may_adopt {
            let (kind, key, uid) = (K::kind(&()), metadata.key(), pods::uid(metadata));
            return Err(format!("can't adopt {kind} {key} ({uid}): {reason}"));
        }
        match self.patch_owner::<K>(metadata).await {
            Ok(_) => Ok(Some(Arc::clone(child))),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(describe(&error)),
        }
    }

    /// Releases a child. The responses NotFound and Invalid are not failures: the child was deleted, has no reference
    /// to the owner, or is another object with the same name.
    async fn release<K>(&self, child: MetadataRef<'_>) -> Result<(), String>
    where
        K: NamespacedKind,
    {
        tracing::debug!(
            key = %self.key, kind = %K::kind(&()), child = child.name(),
            "releasing object that is no longer selected"
        );
        match self.patch::<K>(child, &release_patch(child, self.owner.meta())).await {
            Err(error) if !is_not_found(&error) && !is_invalid(&error) => Err(describe(&error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Makes this owner the controller of an orphan.
    async fn patch_owner<K>(&self, orphan: MetadataRef<'_>) -> Result<ObjectMeta, kube::Error>
    where
        K: NamespacedKind,
    {
        let patch = adopt_patch(orphan, &controller_reference(self.owner));
        self.patch::<K>(orphan, &patch).await
    }

    /// Sends a strategic merge patch without a version, as kube-controller-manager does. Returns the new metadata.
    async fn patch<K>(&self, child: MetadataRef<'_>, patch: &Value) -> Result<ObjectMeta, kube::Error>
    where
        K: NamespacedKind,
    {
        let api = self.cx.api::<PartialObjectMeta<K>>(self.key);
        let patched = api.patch(child.name(), &PatchParams::default(), &Patch::Strategic(patch)).await?;
        Ok(patched.metadata)
    }

    /// Reads the owner from the server instead of the cache: an orphan that a terminating owner adopts would be deleted
    /// with it.
    async fn recheck(&self) -> Result<(), String> {
        let recheck = |reason: String| format!("can't recheck DeletionTimestamp: {reason}");
        let fresh = self.cx.api::<PartialObjectMeta<O>>(self.key).get(self.key.name()).await;
        let fresh = fresh.map_err(|error| recheck(describe(&error)))?;
        let (got, wanted) = (pods::uid(&fresh.metadata), pods::uid(self.owner.meta()));
        if got != wanted {
            let kind = O::kind(&());
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
}
