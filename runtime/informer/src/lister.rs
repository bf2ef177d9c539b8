//! How controllers read an informer's objects.
//!
//! Every call reads the newest snapshot and never waits; two calls may see two moments. Objects come sorted
//! by key. A reader holds what it got for as long as it likes and holds up nobody.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::core::ObjectMeta;
use windlass_object::{LabelSelector, ObjectKey, ResourceKind, ResourceVersion};

use crate::erased::{self, Codec, Object};
use crate::indexer::Index;
use crate::store::{Progress, Quarantined, Snapshot, Store};
use crate::undecodable::UndecodableObjects;

/// The objects of one informer, for reading. Cheap to clone.
pub struct Lister<T> {
    reader: Reader,
    object: PhantomData<fn() -> T>,
}

/// A lister for objects of any type.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub(crate) store: Arc<Store<Object>>,
    /// The informer's name, for messages.
    pub(crate) informer: Arc<str>,
    pub(crate) codec: Arc<Codec>,
    /// Keeps the informer running, if it is one that runs as long as it is used.
    pub(crate) hold: Option<Arc<dyn Any + Send + Sync>>,
}

/// An object exists and cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {key} exists and cannot be decoded: {reason}")]
pub struct Unreadable {
    /// The kind of the object.
    pub kind: Box<ResourceKind>,
    /// The key of the object.
    pub key: ObjectKey,
    /// Why it cannot be decoded.
    pub reason: Arc<str>,
}

impl<T: Send + Sync + 'static> Lister<T> {
    pub(crate) fn new(reader: Reader) -> Self {
        Self { reader, object: PhantomData }
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
        self.reader.store.snapshot().objects().get(key).map(erased::shared)
    }

    /// Returns an error if an object exists that cannot be decoded and is among those that the caller acts on: what is
    /// counted without it would be too few. `among` gets the metadata of each object that cannot be decoded. An object
    /// whose metadata cannot be decoded either is among them.
    ///
    /// A reconcile calls this after it read the objects: an object that becomes unreadable in between is then in one of
    /// the two answers at least.
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
    ///     let count = pods.list().iter().filter(|pod| is_controlled_by(&pod.metadata, owner_uid)).count();
    ///     pods.all_readable(|meta| is_controlled_by(meta, owner_uid))?;
    ///     Ok(count)
    /// }
    /// ```
    pub fn all_readable(&self, among: impl Fn(&ObjectMeta) -> bool) -> Result<(), Unreadable> {
        self.reader.all_readable(&among)
    }

    /// Returns all objects.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.collect(|visit| self.reader.each(None, visit))
    }

    /// Returns the keys of all objects.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.snapshot().objects().keys().cloned().collect()
    }

    /// Returns all objects of one namespace.
    pub fn namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        self.collect(|visit| self.reader.each(Some(namespace), visit))
    }

    /// Returns all objects whose labels match the selector, of one namespace or of all.
    pub fn select(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<Arc<T>> {
        self.collect(|visit| self.reader.selected(namespace, selector, visit))
    }

    /// Returns all objects that `index` contains under `value`.
    ///
    /// # Panics
    ///
    /// If the informer has no index of that name: to answer "nothing" would let a controller act on a typing
    /// error. Who reads an index that others remove asks [`has_index`](Self::has_index) first, or adds it too.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<T>> {
        self.collect(|visit| self.reader.filed(index, value, visit))
    }

    /// The keys of the objects that `index` files under `value`, in order.
    ///
    /// # Panics
    ///
    /// If the informer has no index of that name.
    pub fn index_keys(&self, index: &str, value: &str) -> Vec<ObjectKey> {
        self.index(&self.snapshot(), index).keys(value).cloned().collect()
    }

    /// How many objects `index` files under `value`.
    ///
    /// # Panics
    ///
    /// If the informer has no index of that name.
    pub fn index_count(&self, index: &str, value: &str) -> usize {
        self.index(&self.snapshot(), index).count(value)
    }

    /// Every value that `index` files something under, in order.
    ///
    /// # Panics
    ///
    /// If the informer has no index of that name.
    pub fn index_values(&self, index: &str) -> Vec<String> {
        self.index(&self.snapshot(), index).values().map(str::to_owned).collect()
    }

    /// Every value that `index` files something under, in order, and how many objects it does.
    ///
    /// # Panics
    ///
    /// If the informer has no index of that name.
    pub fn index_counts(&self, index: &str) -> Vec<(String, usize)> {
        let snapshot = self.snapshot();
        let counts = self.index(&snapshot, index).counts();
        counts.map(|(value, count)| (value.to_owned(), count)).collect()
    }

    /// Whether there is an index of that name right now.
    pub fn has_index(&self, index: &str) -> bool {
        self.snapshot().index(index).is_some()
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
    pub fn quarantined(&self) -> Vec<Quarantined> {
        self.snapshot().quarantined().values().cloned().collect()
    }

    /// The same, to look up in and to compare with a later moment.
    pub fn undecodable(&self) -> UndecodableObjects {
        UndecodableObjects::new(self.snapshot().quarantined().clone())
    }

    /// Whether the object of that key exists but cannot be decoded: what seems to be absence is ignorance.
    pub fn is_quarantined(&self, key: &ObjectKey) -> bool {
        self.snapshot().quarantined().contains_key(key)
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
        self.reader.store.is_stopped()
    }

    fn snapshot(&self) -> Arc<Snapshot<Object>> {
        self.reader.store.snapshot()
    }

    fn index<'a>(&self, snapshot: &'a Snapshot<Object>, index: &str) -> &'a Index {
        self.reader.index(snapshot, index)
    }

    /// The objects that `walk` visits, as their type.
    fn collect(&self, walk: impl FnOnce(&mut dyn FnMut(&Object))) -> Vec<Arc<T>> {
        let mut objects = Vec::new();
        walk(&mut |object| objects.push(erased::shared(object)));
        objects
    }
}

impl Reader {
    /// Returns the object of that key.
    ///
    /// # Errors
    /// If it exists and cannot be decoded.
    pub(crate) fn get(&self, key: &ObjectKey) -> Result<Option<Object>, Unreadable> {
        let snapshot = self.store.snapshot();
        match snapshot.quarantined().get(key) {
            Some(held) => Err(self.unreadable(held)),
            None => Ok(snapshot.objects().get(key).cloned()),
        }
    }

    fn all_readable(&self, among: &dyn Fn(&ObjectMeta) -> bool) -> Result<(), Unreadable> {
        let snapshot = self.store.snapshot();
        let is_among = |held: &&Quarantined| held.metadata.as_deref().is_none_or(among);
        let found = snapshot.quarantined().values().find(is_among);
        found.map_or(Ok(()), |held| Err(self.unreadable(held)))
    }

    fn unreadable(&self, held: &Quarantined) -> Unreadable {
        let kind = Box::new(self.codec.kind.clone());
        Unreadable { kind, key: held.key.clone(), reason: Arc::clone(&held.error) }
    }

    /// Visits all objects of one namespace, or of all.
    fn each(&self, namespace: Option<&str>, visit: &mut dyn FnMut(&Object)) {
        let snapshot = self.store.snapshot();
        let Some(namespace) = namespace else { return snapshot.objects().values().for_each(visit) };
        let first = ObjectKey::namespaced(namespace, "");
        let rest = snapshot.objects().range(first..);
        rest.take_while(|(key, _)| key.namespace() == Some(namespace)).for_each(|(_, object)| visit(object));
    }

    fn selected(&self, namespace: Option<&str>, selector: &LabelSelector, visit: &mut dyn FnMut(&Object)) {
        self.each(namespace, &mut |object| {
            if selector.matches_optional((self.codec.meta)(object).labels.as_ref()) {
                visit(object);
            }
        });
    }

    fn filed(&self, index: &str, value: &str, visit: &mut dyn FnMut(&Object)) {
        let snapshot = self.store.snapshot();
        let keys = self.index(&snapshot, index).keys(value);
        keys.filter_map(|key| snapshot.objects().get(key)).for_each(visit);
    }

    fn index<'a>(&self, snapshot: &'a Snapshot<Object>, index: &str) -> &'a Index {
        match snapshot.index(index) {
            Some(entries) => entries,
            None => panic!("the informer of {} has no index {index:?}", self.informer),
        }
    }
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone(), object: PhantomData }
    }
}

impl<T> fmt::Debug for Lister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister").field("informer", &self.reader.informer).finish_non_exhaustive()
    }
}
