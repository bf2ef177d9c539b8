//! Requests about the revisions of one owner during its sync.

use std::sync::Arc;

use kube::api::DeleteParams;
use windlass_controller::{Context, ReconcileError, Setup, Writer, retry};
use windlass_gotext::revision_hash;
use windlass_object::{ObjectKey, Verb};

use super::{Revision, has_data, revision_name};
use crate::shared::api_errors::{for_log, is_already_exists};

/// The revisions of one owner.
pub(crate) struct Revisions<'a> {
    pub(crate) cx: &'a Context,
    /// The owner.
    pub(crate) key: &'a ObjectKey,
    pub(crate) writer: &'a Writer<Revision>,
}

/// The result of a create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Creation {
    /// The server created the revision.
    Created(Arc<Revision>),
    /// A revision with this name exists.
    Exists(Arc<Revision>),
}

/// Declares the requests of [`Revisions`].
pub(crate) fn declare(setup: &mut Setup) -> Writer<Revision> {
    // An uncached read of the existing revision after a rejected create.
    setup.uses::<Revision>([Verb::Get]);
    setup.writer::<Revision>().create().update().patch().delete().build()
}

impl Revisions<'_> {
    /// Creates a revision with the name in its metadata.
    ///
    /// # Errors
    /// If a request fails.
    pub(crate) async fn create(&self, revision: &Revision) -> Result<Creation, ReconcileError> {
        match self.writer.create(self.cx, revision).await {
            Ok(written) => Ok(Creation::Created(written.object)),
            Err(error) if is_already_exists(&error) => {
                let existing = self.cx.api::<Revision>(self.key).get(revision.name()).await;
                Ok(Creation::Exists(Arc::new(existing?)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a revision whose name ends with the hash of its data and the collision count. If a revision with this
    /// name has equal data, returns that revision. If its data differ, increments the count and tries the next name.
    ///
    /// # Errors
    /// If a request fails.
    pub(crate) async fn create_named_by_data(
        &self,
        mut revision: Revision,
        collisions: &mut i32,
    ) -> Result<Arc<Revision>, ReconcileError> {
        loop {
            let hash = revision_hash(revision.data(), Some(*collisions));
            revision.metadata.name = Some(revision_name(self.key.name(), &hash));
            match self.create(&revision).await? {
                Creation::Created(created) => return Ok(created),
                Creation::Exists(existing) if has_data(&existing, revision.data()) => return Ok(existing),
                Creation::Exists(_) => {
                    *collisions = collisions.checked_add(1).ok_or_else(|| {
                        retry(format!("cannot name a revision of {}: too many collisions", self.key))
                    })?;
                }
            }
        }
    }

    /// Changes a revision. A conflict is an error: the next sync reads the new version from the cache.
    ///
    /// # Errors
    /// If the request fails.
    pub(crate) async fn update(
        &self,
        revision: &Revision,
        change: impl FnOnce(&mut Revision),
    ) -> Result<Arc<Revision>, ReconcileError> {
        Ok(self.writer.update(self.cx, revision, change).await?.object)
    }

    /// Changes the number of a revision.
    ///
    /// # Errors
    /// If the request fails.
    pub(crate) async fn renumber(
        &self,
        revision: &Arc<Revision>,
        number: i64,
    ) -> Result<Arc<Revision>, ReconcileError> {
        if revision.revision == number {
            return Ok(Arc::clone(revision));
        }
        self.update(revision, |revision| revision.revision = number).await
    }

    /// Deletes revisions in this order, up to the first failure. A revision that is already deleted is not a failure.
    ///
    /// # Errors
    /// If a request fails.
    pub(crate) async fn delete(&self, revisions: &[Arc<Revision>]) -> Result<(), ReconcileError> {
        for revision in revisions {
            let deleted = self.writer.delete(self.cx, revision, &DeleteParams::default()).await;
            if let Err(error) = deleted {
                tracing::debug!(
                    key = %self.key, revision = revision.name(), error = for_log(&error),
                    "old revision not deleted"
                );
                return Err(error.into());
            }
        }
        Ok(())
    }
}
