//! Typed writers: they encode and decode objects and leave the rest to [`Core`].

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use kube::api::DeleteParams;
use kube::core::{DynamicObject, ObjectMeta};
use windlass_env::Env;
use windlass_informer::Lister;
use windlass_object::{HasMetadata, ObjectKey, ResourceKind, Verb};

use crate::declared::Declared;
use crate::enqueue::watch::FullObject;
use crate::error::{ReconcileError, WriteError};
use crate::setup::Setup;
use crate::write::cached_apply::{Apply, CachedApply, typed};
use crate::write::caller::Caller;
use crate::write::encoding::{Writable, decoded, encoded};
use crate::write::request::{Answer, Change, Core, Finalizing, Intent, Operation, bytes, restore_unchanged};

/// Grants a [`Writer`] its operations. Each grant declares the rule that its requests need.
pub struct WriterBuilder<'s, K> {
    declared: &'s mut Declared,
    env: Env,
    core: Core,
    cached: Option<CachedApply>,
    object: PhantomData<fn() -> K>,
}

/// The operations that a builder of children grants to their writer.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Grants {
    pub(super) create: bool,
    pub(super) update: bool,
    pub(super) patch: bool,
    pub(super) delete: bool,
    pub(super) apply: bool,
}

/// Changes objects of one kind, by the operations that `setup` granted. Cheap to clone.
///
/// # Cancel safety
/// Not cancel safe: a write that is dropped can still take effect. The next reconcile of the key waits until its
/// outcome is known.
///
/// # Examples
/// ```
/// # use std::collections::BTreeMap;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass_controller::{Context, ReconcileError, Setup, Writer};
/// # fn declare(setup: &mut Setup) -> Writer<ConfigMap> {
/// let maps = setup.writer::<ConfigMap>().patch().build();
/// # maps
/// # }
/// # async fn reconcile(maps: &Writer<ConfigMap>, cx: &Context, map: &ConfigMap) -> Result<(), ReconcileError> {
/// maps.patch(cx, map, |map| {
///     map.data.get_or_insert_default().insert("color".to_owned(), "blue".to_owned());
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
pub struct Writer<K> {
    core: Arc<Core>,
    /// Set if applies that would change nothing are not sent.
    cached: Option<Arc<CachedApply>>,
    object: PhantomData<fn() -> K>,
}

/// Result of a write.
pub type WriteResult<K> = Result<WriteResponse<K>, WriteError>;

/// An object as the server stores it after a write.
#[derive(Clone, Debug)]
pub struct WriteResponse<K> {
    /// The object of the response, or the object that was read if nothing was sent.
    pub object: Arc<K>,
    /// The effect of the write.
    pub change: Change,
}

/// Result of a deletion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deletion {
    /// The server deletes the object, immediately or after its finalizers.
    Accepted,
    /// The object was gone, or another object has its name.
    AlreadyGone,
}

impl Setup {
    /// Declares a writer of `K`. It sends only the operations that are granted to it.
    pub fn writer<K: FullObject + Writable>(&mut self) -> WriterBuilder<'_, K> {
        self.writer_of(ResourceKind::of::<K>())
    }

    /// Declares a writer of objects of a kind known only at run time, like [`writer`](Self::writer). The objects must
    /// have their `apiVersion` and `kind`, as objects of a lister and of [`DynamicObject::new`] do.
    ///
    /// # Examples
    /// ```
    /// # use kube::core::DynamicObject;
    /// # use windlass_controller::{Setup, Writer};
    /// # use windlass_object::ResourceKind;
    /// # fn declare(setup: &mut Setup, kind: ResourceKind) -> Writer<DynamicObject> {
    /// let objects = setup.watch_dynamic(kind.clone()).lister();
    /// setup.writer_dynamic(kind).apply().skip_unchanged(&objects).build()
    /// # }
    /// ```
    pub fn writer_dynamic(&mut self, kind: ResourceKind) -> WriterBuilder<'_, DynamicObject> {
        self.writer_of(kind)
    }

    fn writer_of<K>(&mut self, kind: ResourceKind) -> WriterBuilder<'_, K> {
        let (env, core) = (self.env().clone(), self.write_core(kind));
        WriterBuilder { declared: self.declared(), env, core, cached: None, object: PhantomData }
    }

    fn write_core(&self, kind: ResourceKind) -> Core {
        let descriptor = self.descriptor();
        Core {
            kind,
            granted: [].into(),
            finalizer: None,
            field_manager: None,
            controller: descriptor.client_name,
            forced: true,
            noop_writes: self.metrics().reconcile(descriptor.name).noop_writes,
        }
    }
}

impl<K: Writable> WriterBuilder<'_, K> {
    /// Grants [`Writer::create`].
    #[must_use]
    pub fn create(self) -> Self {
        self.grant(Operation::Create, "", [Verb::Create])
    }

    /// Grants [`Writer::update`]: PUT of the whole object. Fields that the Rust type does not know are lost. The setup
    /// fails if a transform changes cached objects of this kind, because the PUT would delete what it dropped.
    #[must_use]
    pub fn update(self) -> Self {
        self.grant(Operation::Update, "", [Verb::Update])
    }

    /// Grants [`Writer::patch`]: a merge patch of the difference. Fields that the Rust type does not know are kept,
    /// except inside of a list that changes.
    #[must_use]
    pub fn patch(self) -> Self {
        self.grant(Operation::Patch, "", [Verb::Patch])
    }

    /// Grants [`Writer::delete`].
    #[must_use]
    pub fn delete(self) -> Self {
        self.grant(Operation::Delete, "", [Verb::Delete])
    }

    /// Grants [`Writer::apply`]: server-side apply, which creates absent objects.
    #[must_use]
    pub fn apply(self) -> Self {
        self.grant(Operation::Apply, "", [Verb::Create, Verb::Patch])
    }

    /// Grants [`Writer::finalize`] with this finalizer.
    #[must_use]
    pub fn finalizer(mut self, name: &'static str) -> Self {
        self.core.finalizer = Some(name);
        self.grant(Operation::Finalizer, "", [Verb::Patch])
    }

    /// Grants [`Writer::update_status`] by merge patch, and [`Writer::apply_status`].
    #[must_use]
    pub fn patch_status(self) -> Self {
        self.grant(Operation::Status, "/status", [Verb::Patch])
    }

    /// Grants [`Writer::update_status`] by PUT, for roles that grant `update` of the status only. Fields of the status
    /// that the Rust type does not know are lost. The setup fails if a transform changes cached objects of this kind.
    #[must_use]
    pub fn replace_status(self) -> Self {
        self.grant(Operation::StatusUpdate, "/status", [Verb::Update])
    }

    /// Grants requests on a subresource without a method here, such as `binding` or `scale`; send them with
    /// [`Context::api`](crate::Context::api). The name `finalizers` grants references that block the deletion of these
    /// objects.
    #[must_use]
    pub fn subresource(self, name: &'static str, verb: Verb) -> Self {
        self.declared.uses(&self.core.kind, &format!("/{name}"), &[verb]);
        self
    }

    /// Grants several operations.
    pub(super) fn granting(mut self, grants: Grants) -> Self {
        let Grants { create, update, patch, delete, apply } = grants;
        self = if create { self.create() } else { self };
        self = if update { self.update() } else { self };
        self = if patch { self.patch() } else { self };
        self = if delete { self.delete() } else { self };
        if apply { self.apply() } else { self }
    }

    /// Sets the field manager in `managedFields`. Default: the controller's client name for apply, and the server's
    /// default (from the user agent) for other writes.
    #[must_use]
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.core.field_manager = Some(name.into());
        self
    }

    /// Makes apply fail if another owner has a field with another value. By default apply takes the field over.
    #[must_use]
    pub fn without_force(mut self) -> Self {
        self.core.forced = false;
        self
    }

    /// Skips an apply that would change nothing: the last apply of this process to the object was the same, and in the
    /// cache of `lister` the object still has the UID and the content that it had after that apply. The status is not
    /// part of the content. An object that the cache does not contain is always applied.
    #[must_use]
    pub fn skip_unchanged(mut self, lister: &Lister<K>) -> Self {
        self.cached = Some(CachedApply::new(&self.env, lister));
        self
    }

    /// Builds the writer.
    pub fn build(self) -> Writer<K> {
        Writer { core: Arc::new(self.core), cached: self.cached.map(Arc::new), object: PhantomData }
    }

    fn grant<const N: usize>(mut self, operation: Operation, subresource: &str, verbs: [Verb; N]) -> Self {
        self.declared.uses(&self.core.kind, subresource, &verbs);
        if matches!(operation, Operation::Update | Operation::StatusUpdate) {
            self.declared.replaces(&self.core.kind);
        }
        self.core.granted.insert(operation);
        self
    }
}

impl<K: Writable> Writer<K> {
    /// Creates the object.
    ///
    /// # Errors
    /// Errors of the server, including that the object already exists.
    pub async fn create(&self, cx: &dyn Caller, object: &K) -> WriteResult<K> {
        let answer = self.core.create(cx, object.meta(), bytes(object)?).await?;
        Ok(WriteResponse { object: decoded(&answer.body)?, change: Change::Created })
    }

    /// Changes a copy of `current` and replaces the object with it.
    ///
    /// # Errors
    /// Errors of the server; 409 if the object has changed since `current` was read.
    pub async fn update(&self, cx: &dyn Caller, current: &K, change: impl FnOnce(&mut K)) -> WriteResult<K> {
        self.written(cx, current, self.core.update(cx, intent(current, change, bytes)?).await?)
    }

    /// Brings the object of `key` to the state that `change` sets: changes it like [`patch`](Self::patch), or creates
    /// it from `K::default()` if `current` is `None`. A created object has the name and namespace of `key`, whatever
    /// `change` sets. Requires the grants [`create`](WriterBuilder::create) and [`patch`](WriterBuilder::patch). With
    /// [`update`](WriterBuilder::update) instead of `patch` it replaces the object like [`update`](Self::update).
    ///
    /// # Errors
    /// Errors of the server; 409 if the object has changed since `current` was read, or exists although `current` is
    /// `None`.
    pub async fn create_or_update(
        &self,
        cx: &dyn Caller,
        key: &ObjectKey,
        current: Option<&K>,
        change: impl FnOnce(&mut K),
    ) -> WriteResult<K>
    where
        K: Default,
    {
        self.core.granted(Operation::Create)?;
        let patches = self.core.granted(Operation::Patch);
        let replaces = patches.is_err() && self.core.granted(Operation::Update).is_ok();
        if !replaces {
            patches?;
        }
        match current {
            Some(current) if replaces => self.update(cx, current, change).await,
            Some(current) => self.patch(cx, current, change).await,
            None => self.create(cx, &made(key, change)).await,
        }
    }

    /// Changes a copy of `current` and sends the difference. If the kind has a status subresource, the server ignores
    /// changes of the status: use [`update_status`](Self::update_status) for those.
    ///
    /// # Errors
    /// Errors of the server; 409 if the object has changed since `current` was read.
    pub async fn patch(&self, cx: &dyn Caller, current: &K, change: impl FnOnce(&mut K)) -> WriteResult<K> {
        self.written(cx, current, self.core.patch(cx, intent(current, change, encoded)?).await?)
    }

    /// Changes the status in a copy of `current` and sends the difference of the status. Other changes are not sent.
    ///
    /// # Errors
    /// Errors of the server; 409 if the object has changed since `current` was read.
    pub async fn update_status(
        &self,
        cx: &dyn Caller,
        current: &K,
        change: impl FnOnce(&mut K),
    ) -> WriteResult<K> {
        self.written(cx, current, self.core.update_status(cx, intent(current, change, encoded)?).await?)
    }

    /// Applies `desired` without its status: the field manager owns the fields that are set, other fields are left
    /// alone. Creates the object if it is absent. Not sent if it would change nothing
    /// ([`skip_unchanged`](WriterBuilder::skip_unchanged)).
    ///
    /// # Errors
    /// Errors of the server; 409 if another owner has a field and the builder was
    /// [`without_force`](WriterBuilder::without_force).
    pub async fn apply(&self, cx: &dyn Caller, desired: &K) -> WriteResult<K> {
        self.apply_to(cx, desired, None).await
    }

    /// Applies the status of `desired`: for a status that several controllers write. Always sent.
    ///
    /// # Errors
    /// The same as [`apply`](Self::apply).
    pub async fn apply_status(&self, cx: &dyn Caller, desired: &K) -> WriteResult<K> {
        let document = self.core.applicable(encoded(desired)?, "/status")?;
        let answer = self.core.apply(cx, desired.meta(), "/status", None, document).await?;
        Ok(WriteResponse { object: decoded(&answer.body)?, change: Change::Updated })
    }

    /// Applies `desired` like [`apply`](Self::apply); with a UID, only to the object that has it.
    pub(super) async fn apply_to(&self, cx: &dyn Caller, desired: &K, uid: Option<&str>) -> WriteResult<K> {
        let document = self.core.applicable(encoded(desired)?, "")?;
        // The answer to a dry run is not the state of the object.
        let Some(cached) = self.cached.as_ref().filter(|_| !cx.is_dry_run()) else {
            let answer = self.core.apply(cx, desired.meta(), "", uid, document).await?;
            return Ok(WriteResponse { object: decoded(&answer.body)?, change: answer.change() });
        };
        let apply = Apply { meta: desired.meta(), uid, document };
        let (object, change) = cached.send(&self.core, cx, apply).await?;
        Ok(WriteResponse { object: typed(object), change })
    }

    pub(super) fn kind(&self) -> &ResourceKind {
        &self.core.kind
    }

    /// Deletes these objects; returns how many of them the server deletes.
    pub(super) async fn delete_all(
        &self,
        cx: &dyn Caller,
        objects: &[&ObjectMeta],
    ) -> Result<usize, WriteError> {
        self.core.delete_all(cx, objects).await
    }

    /// Reads the object that an apply changes from the server, not from the cache.
    pub(super) async fn live_for_apply(
        &self,
        cx: &dyn Caller,
        object: &K,
    ) -> Result<Option<Arc<K>>, WriteError> {
        // Checked first: the error of an undeclared read would name another remedy.
        self.core.granted(Operation::Apply)?;
        self.core.get_live(cx, object.meta()).await?.map(|body| decoded(&body)).transpose()
    }

    /// Deletes the object with the UID of `object`.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn delete(
        &self,
        cx: &dyn Caller,
        object: &K,
        params: &DeleteParams,
    ) -> Result<Deletion, WriteError> {
        self.delete_view(cx, object, params).await
    }

    /// Deletes the object of a [view](windlass_object::view), like [`delete`](Self::delete).
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn delete_view(
        &self,
        cx: &dyn Caller,
        view: &impl HasMetadata,
        params: &DeleteParams,
    ) -> Result<Deletion, WriteError> {
        let accepted = self.core.delete(cx, view.metadata(), params).await?;
        Ok(if accepted { Deletion::Accepted } else { Deletion::AlreadyGone })
    }

    /// Keeps the granted finalizer on an object that is not being deleted, and removes it from one that is, after
    /// `cleanup`.
    ///
    /// | object | has the finalizer | action | returns |
    /// |---|---|---|---|
    /// | not being deleted | no | adds it | the new object |
    /// | not being deleted | yes | nothing | the object |
    /// | is being deleted | yes | awaits `cleanup`, removes it | `None` |
    /// | is being deleted | no | nothing | `None` |
    ///
    /// `cleanup` is a future, not a closure: it is polled in the third case only. It must have no effect before it is
    /// polled: pass an `async` block or the future of an `async fn`, not a function that starts the work. It must not
    /// change the object itself:
    /// the finalizer is removed from the object that was read, and a change in between makes that a conflict. It must
    /// be idempotent: it runs again if the finalizer could not be removed, or if the process exited before.
    ///
    /// # Errors
    /// The error of `cleanup`, and errors of the server. The finalizer then stays.
    pub async fn finalize<E>(
        &self,
        cx: &dyn Caller,
        object: &Arc<K>,
        cleanup: impl Future<Output = Result<(), E>> + Send,
    ) -> Result<Option<Arc<K>>, ReconcileError>
    where
        ReconcileError: From<E>,
    {
        let meta = object.meta();
        match self.core.finalizing(meta)? {
            Finalizing::Present => Ok(Some(Arc::clone(object))),
            Finalizing::Add(all) => Ok(Some(decoded(&self.core.set_finalizers(cx, meta, &all).await?.body)?)),
            Finalizing::Remove(others) => {
                cleanup.await?;
                self.core.remove_finalizer(cx, meta, &others).await?;
                Ok(None)
            }
            Finalizing::Absent => Ok(None),
        }
    }

    fn written(&self, cx: &dyn Caller, current: &K, answer: Option<Answer>) -> WriteResult<K> {
        let Some(answer) = answer else {
            return Ok(WriteResponse { object: Arc::new(current.clone()), change: Change::Unchanged });
        };
        let object: Arc<K> = decoded(&answer.body)?;
        if !cx.is_dry_run() {
            self.core.count_noop(current.meta(), object.meta());
        }
        Ok(WriteResponse { object, change: Change::Updated })
    }
}

fn intent<K: Writable, T>(
    current: &K,
    change: impl FnOnce(&mut K),
    encode: fn(&K) -> Result<T, WriteError>,
) -> Result<Intent<'_, T>, WriteError> {
    let mut changed = current.clone();
    change(&mut changed);
    restore_unchanged(current.meta(), changed.meta_mut());
    Ok(Intent { meta: current.meta(), before: encode(current)?, after: encode(&changed)? })
}

/// Returns the object to create under `key`.
fn made<K: Writable + Default>(key: &ObjectKey, change: impl FnOnce(&mut K)) -> K {
    let mut object = K::default();
    // Set before the change, which can read the key, and after it, because it can replace the metadata.
    set_key(object.meta_mut(), key);
    change(&mut object);
    set_key(object.meta_mut(), key);
    object
}

fn set_key(meta: &mut ObjectMeta, key: &ObjectKey) {
    meta.name = Some(key.name().to_owned());
    meta.namespace = key.namespace().map(str::to_owned);
}

impl<K> Deref for WriteResponse<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.object
    }
}

impl<K> Clone for Writer<K> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), cached: self.cached.clone(), object: PhantomData }
    }
}

impl<K> fmt::Debug for Writer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Writer").field(&self.core).finish()
    }
}

impl<K> fmt::Debug for WriterBuilder<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WriterBuilder").field(&self.core).finish()
    }
}
