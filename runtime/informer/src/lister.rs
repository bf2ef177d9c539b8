//! How controllers read an informer's objects.
//!
//! Every call reads the newest snapshot and never waits; two calls may see two moments. Objects come sorted
//! by key. A reader holds what it got for as long as it likes and holds up nobody.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::core::ObjectMeta;
use windlass_object::{LabelSelector, ObjectKey, ResourceVersion};

use crate::erased::{self, Object};
use crate::indexes::{Index, IndexValue};
use crate::informer::Informer;
use crate::reader::{Reader, Unreadable, collected};
use crate::store::{Progress, Snapshot, UndecodableObject};
use crate::undecodable::UndecodableObjects;

/// The objects of one informer, for reading. Cheap to clone.
pub struct Lister<T> {
    reader: Reader,
    object: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> Lister<T> {
    pub(crate) fn new(informer: Arc<Informer>) -> Self {
        Self { reader: Reader { informer, hold: None }, object: PhantomData }
    }

    /// The same, which keeps its informer running.
    pub(crate) fn holding(mut self, hold: Arc<dyn Any + Send + Sync>) -> Self {
        self.reader.hold = Some(hold);
        self
    }

    /// Returns the object of that key, or `None` if there is none.
    ///
    /// # Errors
    /// If the object exists and cannot be decoded: a caller that took it for absent might delete what belongs to it.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<T>>, Unreadable> {
        Ok(self.reader.get(key)?.map(|object| erased::shared(&object)))
    }

    /// Returns the object of that key, or `None` if there is none or it cannot be decoded. For mappers and reports;
    /// a reconcile uses [`get`](Self::get).
    pub fn cached(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.reader.informer.store.snapshot().objects().get(key).map(erased::shared)
    }

    /// Returns an error if an object exists, in one namespace or in all, that cannot be decoded and is among those that
    /// the caller acts on: what is counted without it would be too few. `among` gets the metadata of each object that
    /// cannot be decoded. An object whose metadata cannot be decoded either is among them.
    ///
    /// A reconcile calls this before and after it reads the objects: an object that becomes unreadable in between is in
    /// the second answer, and one that becomes readable is in the first.
    ///
    /// # Errors
    /// [`Unreadable`] names the first such object.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use windlass_informer::{Lister, Unreadable};
    /// # use windlass_object::owner::is_controlled_by;
    /// fn count(pods: &Lister<Pod>, owner_uid: &str) -> Result<usize, Unreadable> {
    ///     pods.all_readable(None, |meta| is_controlled_by(meta, owner_uid))?;
    ///     let count = pods.list().iter().filter(|pod| is_controlled_by(&pod.metadata, owner_uid)).count();
    ///     pods.all_readable(None, |meta| is_controlled_by(meta, owner_uid))?;
    ///     Ok(count)
    /// }
    /// ```
    pub fn all_readable(
        &self,
        namespace: Option<&str>,
        among: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<(), Unreadable> {
        self.reader.all_readable(namespace, &among)
    }

    /// Returns all objects.
    pub fn list(&self) -> Vec<Arc<T>> {
        collected(|visit| self.reader.each(None, visit))
    }

    /// Returns the keys of all objects.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.reader.informer.keys()
    }

    /// Returns all objects of one namespace.
    pub fn namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        collected(|visit| self.reader.each(Some(namespace), visit))
    }

    /// Returns all objects whose labels match the selector, of one namespace or of all.
    pub fn select(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<Arc<T>> {
        collected(|visit| self.reader.selected(namespace, selector, visit))
    }

    /// Adds an index: `values` returns the values under which an object is found. Objects that are in the cache already
    /// are in the index when this returns; the index is kept until the returned [`Index`] and its clones are dropped.
    ///
    /// Two indexes by the same function share their memory, if that function captures nothing.
    ///
    /// `values` runs in the informer's processing loop, for each state that is stored, and must not add an index. This
    /// call waits for the batch that the loop applies, and then files every object: keep the index, instead of making one
    /// for each question. If `values` panics, the object is in the index under no value, and the panic is counted.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use windlass_informer::{Index, Lister};
    /// fn by_node(pods: &Lister<Pod>) -> Index<Pod, String> {
    ///     pods.index(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()))
    /// }
    /// ```
    pub fn index<V, I>(&self, values: impl Fn(&T) -> I + Send + Sync + 'static) -> Index<T, V>
    where
        V: IndexValue,
        I: IntoIterator<Item = V>,
    {
        Index::new(self.reader.clone(), values)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.snapshot().objects().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects that exist but cannot be decoded, and are therefore in none of the other answers.
    pub fn undecodable(&self) -> Vec<UndecodableObject> {
        self.snapshot().quarantined().values().cloned().collect()
    }

    /// The same, to look up in and to compare with a later moment.
    pub fn undecodable_snapshot(&self) -> UndecodableObjects {
        self.reader.informer.undecodable()
    }

    /// Everything up to this version is in the store; `None` before the initial list.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.snapshot().progress().version.clone()
    }

    /// How far the cache has come. Version and epoch are of one moment, so they can be compared with a pair
    /// taken earlier.
    pub fn progress(&self) -> Progress {
        self.snapshot().progress().clone()
    }

    /// Whether the initial list has arrived.
    pub fn has_synced(&self) -> bool {
        self.snapshot().progress().synced
    }

    /// Whether the informer has been stopped: what is here then stays as it was.
    pub fn is_stopped(&self) -> bool {
        self.reader.informer.store.is_stopped()
    }

    fn snapshot(&self) -> Arc<Snapshot<Object>> {
        self.reader.informer.store.snapshot()
    }
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone(), object: PhantomData }
    }
}

impl<T> fmt::Debug for Lister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister").field("informer", &self.reader.informer.name).finish_non_exhaustive()
    }
}
