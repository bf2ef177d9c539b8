//! Listers: read access to the objects of an informer.
//!
//! Except [`Lister::index`], every call reads the newest snapshot and does not wait for the informer. Two calls can
//! return different snapshots. Objects are sorted by key. A caller can keep returned objects indefinitely without
//! blocking the informer.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::core::ObjectMeta;
use windlass_object::{LabelSelector, ObjectKey, ResourceVersion};

use crate::indexes::{Index, IndexValue};
use crate::informer::Informer;
use crate::object::Object;
use crate::reader::Reader;
use crate::store::{Progress, Snapshot};
use crate::undecodable::{UndecodableError, UndecodableObjects};

/// The objects of one informer, for reading. Cheap to clone.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass_informer::{Lister, UndecodableError};
/// use windlass_object::ObjectKey;
///
/// /// Returns whether a pod is scheduled; a missing pod is not.
/// fn is_scheduled(pods: &Lister<Pod>, key: &ObjectKey) -> Result<bool, UndecodableError> {
///     let pod = pods.get(key)?;
///     Ok(pod.is_some_and(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())))
/// }
/// ```
pub struct Lister<T> {
    reader: Reader,
    object: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> Lister<T> {
    pub(crate) fn new(informer: Arc<Informer>) -> Self {
        Self { reader: Reader { informer, reference: None }, object: PhantomData }
    }

    /// Returns the lister with a reference that keeps its informer running.
    pub(crate) fn holding(mut self, hold: Arc<dyn Any + Send + Sync>) -> Self {
        self.reader.reference = Some(hold);
        self
    }

    /// Returns the object of that key, or `None` if there is none.
    ///
    /// # Errors
    /// If the object exists and cannot be decoded: a caller that took it for absent might delete its dependents.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<T>>, UndecodableError> {
        Ok(self.reader.get(key)?.map(|object| self.reader.informer.codec.read(&object)))
    }

    /// Returns the object of that key, or `None` if there is none or it cannot be decoded. For mappers and reports;
    /// a reconcile uses [`get`](Self::get).
    pub fn get_lossy(&self, key: &ObjectKey) -> Option<Arc<T>> {
        let Reader { informer, .. } = &self.reader;
        informer.store.snapshot().objects().get(key).map(|object| informer.codec.read(object))
    }

    /// Returns an error if an object that cannot be decoded is relevant to the caller, in one namespace or in all: a
    /// count without it would be too low. `among` receives the metadata of each object that cannot be decoded and
    /// returns whether it is relevant. An object whose metadata cannot be decoded is always relevant.
    ///
    /// A reconcile calls this before and after it reads the objects. An object that becomes unreadable in between is
    /// found by the second call; an object that becomes readable is found by the first.
    ///
    /// # Errors
    /// [`UndecodableError`] names the first such object.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use windlass_informer::{Lister, UndecodableError};
    /// # use windlass_object::owner::is_controlled_by;
    /// fn count(pods: &Lister<Pod>, owner_uid: &str) -> Result<usize, UndecodableError> {
    ///     pods.check_decodable(None, |meta| is_controlled_by(meta, owner_uid))?;
    ///     let count = pods.list().iter().filter(|pod| is_controlled_by(&pod.metadata, owner_uid)).count();
    ///     pods.check_decodable(None, |meta| is_controlled_by(meta, owner_uid))?;
    ///     Ok(count)
    /// }
    /// ```
    pub fn check_decodable(
        &self,
        namespace: Option<&str>,
        among: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<(), UndecodableError> {
        self.reader.check_decodable(namespace, &among)
    }

    /// Returns all objects. A cache in [compact form](crate::ObjectForm) decodes each of them, unless it was read or
    /// changed recently.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.reader.collected(|visit| self.reader.each(None, visit))
    }

    /// Returns the keys of all objects.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.reader.informer.keys()
    }

    /// Returns all objects of one namespace, as [`list`](Self::list) does.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        self.reader.collected(|visit| self.reader.each(Some(namespace), visit))
    }

    /// Returns all objects whose labels match the selector, of one namespace or of all. Only these objects are decoded.
    pub fn select(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<Arc<T>> {
        self.reader.collected(|visit| self.reader.selected(namespace, selector, visit))
    }

    /// Adds an index: `values` returns the values under which an object is found. When this returns, the index contains
    /// all objects of the cache. The index is kept until the returned [`Index`] and its clones are dropped.
    ///
    /// Two indexes by the same function share their memory, if that function captures nothing.
    ///
    /// `values` runs in the informer's processing loop for every stored state, and must not add an index. This call
    /// waits for the current batch of the loop and then indexes every object: keep the index and reuse it. If `values`
    /// panics, the index does not contain the object, and the panic is counted.
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

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.snapshot().objects().len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the objects that exist but cannot be decoded. No other method returns them.
    pub fn undecodable(&self) -> UndecodableObjects {
        self.reader.informer.undecodable()
    }

    /// Returns the version of the store: it contains all changes up to this version. `None` before the initial list.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.snapshot().progress().version.clone()
    }

    /// Returns the progress of the cache. Version and epoch are from one snapshot, so they can be compared with an
    /// earlier pair.
    pub fn progress(&self) -> Progress {
        self.snapshot().progress().clone()
    }

    /// Returns whether the initial list has arrived.
    pub fn has_synced(&self) -> bool {
        self.snapshot().progress().synced
    }

    /// Returns whether the informer has been stopped. The objects then no longer change.
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
