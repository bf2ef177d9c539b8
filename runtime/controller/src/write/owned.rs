//! Children: objects of one kind that are controlled by objects of another kind.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::Resource;
use windlass_informer::indexes::controller_uid;
use windlass_informer::{Index, Lister, Selection, UndecodableError};
use windlass_object::owner::{controller_reference, is_controlled_by};
use windlass_object::{ObjectKey, ResourceKind, Uid};

use crate::enqueue::enqueuer::by_owner;
use crate::enqueue::predicate::Predicate;
use crate::enqueue::watch::FullObject;
use crate::error::WriteError;
use crate::setup::Setup;
use crate::write::caller::Caller;
use crate::write::encoding::Writable;
use crate::write::ownership;
use crate::write::writer::{Grants, WriteResult, Writer};

/// Declares [`Owned`] children: the granted writes and the watched objects.
pub struct OwnedBuilder<'s, C: Resource, O> {
    setup: &'s mut Setup,
    grants: Grants,
    selection: Selection,
    predicates: Vec<Predicate<C>>,
    adopts: bool,
    owner: PhantomData<fn() -> O>,
}

/// The children of kind `C` that objects of kind `O` control.
///
/// A change of a child enqueues the key of its owner. Writes set the owner reference, and the owner's name and
/// namespace where the child has none. They reject an existing child of that name that the owner does not control.
///
/// # Cancel safety
/// Not cancel safe: a write that is dropped can still take effect. The next reconcile of the key waits until its
/// outcome is known.
pub struct Owned<C, O> {
    children: Lister<C>,
    by_owner: Index<C, Uid>,
    writer: Writer<C>,
    adopts: bool,
    owner: PhantomData<fn() -> O>,
}

impl Setup {
    /// Declares children of kind `C` of objects of kind `O`: a watch that enqueues their owners, and a writer.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Service};
    /// # use windlass_controller::{Owned, Setup};
    /// # fn declare(setup: &mut Setup) -> Owned<ConfigMap, Service> {
    /// setup.owned::<ConfigMap, Service>().apply().build()
    /// # }
    /// ```
    pub fn owned<C: FullObject + Writable, O: FullObject>(&mut self) -> OwnedBuilder<'_, C, O> {
        self.needs_queue("owned");
        OwnedBuilder {
            setup: self,
            grants: Grants::default(),
            selection: Selection::default(),
            predicates: Vec::new(),
            adopts: false,
            owner: PhantomData,
        }
    }
}

impl<C: FullObject + Writable, O: FullObject> OwnedBuilder<'_, C, O> {
    /// Grants [`Owned::apply`].
    #[must_use]
    pub fn apply(mut self) -> Self {
        self.grants.apply = true;
        self
    }

    /// Grants [`Owned::create`]; with [`patch`](Self::patch) or [`update`](Self::update) also
    /// [`Owned::create_or_update`].
    #[must_use]
    pub fn create(mut self) -> Self {
        self.grants.create = true;
        self
    }

    /// Grants [`Writer::patch`] of [`Owned::writer`]. Fields that the Rust type does not know are kept.
    #[must_use]
    pub fn patch(mut self) -> Self {
        self.grants.patch = true;
        self
    }

    /// Grants [`Writer::update`] of [`Owned::writer`]. Fields that the Rust type does not know are lost.
    #[must_use]
    pub fn update(mut self) -> Self {
        self.grants.update = true;
        self
    }

    /// Grants [`Owned::prune`], and [`Writer::delete`] of [`Owned::writer`].
    #[must_use]
    pub fn delete(mut self) -> Self {
        self.grants.delete = true;
        self
    }

    /// Watches only the children that `selection` selects.
    #[must_use]
    pub fn with_selection(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Enqueues the owner only for changes that `predicate` passes. Several predicates must all pass.
    #[must_use]
    pub fn when(mut self, predicate: Predicate<C>) -> Self {
        self.predicates.push(predicate);
        self
    }

    /// Adopts children of the right name that no other object controls. Without it they are rejected.
    #[must_use]
    pub fn adopt_orphans(mut self) -> Self {
        self.adopts = true;
        self
    }

    /// Builds the children.
    pub fn build(self) -> Owned<C, O> {
        let Self { setup, grants, selection, predicates, adopts, owner } = self;
        let (child, parent) = (ResourceKind::of::<C>(), ResourceKind::of::<O>());
        let selection = ownership::declare(setup, &child, &parent, grants, selection);
        let watch = setup.watch::<C>().with_selection(selection);
        let watch = predicates.into_iter().fold(watch, |watch, predicate| watch.when(predicate));
        let children = watch.enqueue(|child| by_owner::<O>(child)).lister();
        let by_owner = children.index(controller_uid);
        let writer = setup.writer::<C>().granting(grants).skip_unchanged(&children).build();
        Owned { children, by_owner, writer, adopts, owner }
    }
}

impl<C: FullObject + Writable, O: FullObject> Owned<C, O> {
    /// Returns the child with that key, regardless of its controller.
    ///
    /// # Errors
    /// If it exists and cannot be decoded.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<C>>, UndecodableError> {
        self.children.get(key)
    }

    /// Returns all children that `owner` controls, ordered by key.
    ///
    /// # Errors
    /// If one of them cannot be decoded.
    pub fn children_of(&self, owner: &O) -> Result<Vec<Arc<C>>, UndecodableError> {
        let uid = owner.meta().uid.as_deref().unwrap_or_default();
        let check_decodable = || {
            self.children
                .check_decodable(owner.meta().namespace.as_deref(), |child| is_controlled_by(child, uid))
        };
        // Checked before and after the read: a child can become readable or unreadable in between.
        check_decodable()?;
        let children = self.by_owner.get(&uid.into());
        check_decodable()?;
        Ok(children)
    }

    /// Applies the child, unless that would change nothing: see [`Writer::apply`]. A child in the cache keeps its UID;
    /// a child that is not in the cache is first read from the server. If another client creates an object of that name
    /// between that read and the apply, the apply takes it over.
    ///
    /// # Errors
    /// [`WriteError::NotOwned`] or [`WriteError::OfEarlierOwner`] if another object controls the existing child of that
    /// name, [`WriteError::NotAdopted`] if no object controls it, [`WriteError::CrossNamespace`] if it would be in
    /// another namespace, and errors of the server.
    pub async fn apply(&self, cx: &dyn Caller, owner: &O, desired: C) -> WriteResult<C> {
        let child = self.prepared(owner, desired)?;
        let present = match self.cached(&child)? {
            Some(present) => Some(present),
            None => self.writer.live_for_apply(cx, &child).await?,
        };
        let Some(present) = present else { return self.writer.apply(cx, &child).await };
        self.check_owner(owner, &present)?;
        let uid = present.meta().uid.as_deref().unwrap_or_default();
        self.writer.apply_to(cx, &child, Some(uid)).await
    }

    /// Creates the child: see [`Writer::create`].
    ///
    /// # Errors
    /// The same as [`apply`](Self::apply), based on the cache.
    pub async fn create(&self, cx: &dyn Caller, owner: &O, desired: C) -> WriteResult<C> {
        let child = self.prepared(owner, desired)?;
        if let Some(present) = self.cached(&child)? {
            self.check_owner(owner, &present)?;
        }
        self.writer.create(cx, &child).await
    }

    /// Brings the child of `key` to the state that `change` sets: changes the cached child, or creates one. See
    /// [`Writer::create_or_update`].
    ///
    /// # Errors
    /// The same as [`apply`](Self::apply), based on the cache; 409 if the object differs from the cached one.
    pub async fn create_or_update(
        &self,
        cx: &dyn Caller,
        owner: &O,
        key: &ObjectKey,
        change: impl FnOnce(&mut C),
    ) -> WriteResult<C>
    where
        C: Default,
    {
        ownership::check_namespace(self.writer.kind(), key, owner.meta())?;
        let present = self.children.get(key).map_err(WriteError::Undecodable)?;
        if let Some(present) = &present {
            self.check_owner(owner, present)?;
        }
        let change = |child: &mut C| {
            change(child);
            ownership::set_owner(child.meta_mut(), controller_reference(owner));
        };
        self.writer.create_or_update(cx, key, present.as_deref(), change).await
    }

    /// Deletes the owner's children that `keep` rejects and that are not being deleted; returns their number.
    ///
    /// # Errors
    /// The error of the first deletion that fails; [`WriteError::Undecodable`] if a child cannot be decoded.
    pub async fn prune(
        &self,
        cx: &dyn Caller,
        owner: &O,
        keep: impl Fn(&C) -> bool + Send,
    ) -> Result<usize, WriteError> {
        let children = self.children_of(owner).map_err(WriteError::Undecodable)?;
        let living = children.iter().filter(|child| child.meta().deletion_timestamp.is_none());
        let rejected: Vec<_> = living.filter(|child| !keep(child)).map(|child| child.meta()).collect();
        self.writer.delete_all(cx, &rejected).await
    }

    /// Returns the lister of all children in the cache, regardless of their controller.
    pub fn lister(&self) -> &Lister<C> {
        &self.children
    }

    /// Returns the writer of the children, which does not check their controller.
    pub fn writer(&self) -> &Writer<C> {
        &self.writer
    }

    /// Returns the child as it is written.
    fn prepared(&self, owner: &O, mut child: C) -> Result<C, WriteError> {
        let reference = controller_reference(owner);
        ownership::prepare(self.writer.kind(), child.meta_mut(), owner.meta(), reference)?;
        Ok(child)
    }

    /// Returns the cached child of that name.
    fn cached(&self, child: &C) -> Result<Option<Arc<C>>, WriteError> {
        let has_name = child.meta().name.is_some();
        let cached = has_name.then(|| self.children.get(&ObjectKey::of(child.meta())));
        cached.transpose().map(Option::flatten).map_err(WriteError::Undecodable)
    }

    fn check_owner(&self, owner: &O, present: &C) -> Result<(), WriteError> {
        ownership::check_owner(self.writer.kind(), present.meta(), &controller_reference(owner), self.adopts)
    }
}

impl<C: Resource, O> fmt::Debug for OwnedBuilder<'_, C, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedBuilder").field("grants", &self.grants).finish_non_exhaustive()
    }
}

impl<C, O> Clone for Owned<C, O> {
    fn clone(&self) -> Self {
        Self {
            children: self.children.clone(),
            by_owner: self.by_owner.clone(),
            writer: self.writer.clone(),
            adopts: self.adopts,
            owner: PhantomData,
        }
    }
}

impl<C, O> fmt::Debug for Owned<C, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owned").field(&self.writer).finish()
    }
}
