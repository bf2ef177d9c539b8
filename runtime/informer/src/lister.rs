//! How controllers read an informer's objects.
//!
//! Every call reads the newest snapshot and never waits; two calls may see two moments. Objects come sorted
//! by key. A reader holds what it got for as long as it likes and holds up nobody.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kube::Resource;
use windlass_object::{LabelSelector, ObjectKey, Representation, ResourceVersion, Typed};

use crate::indexer::Index;
use crate::store::{Progress, Quarantined, Snapshot, Store};
use crate::undecodable::UndecodableObjects;

/// The objects of one informer, for reading. Cheap to clone.
pub struct Lister<R: Representation> {
    store: Arc<Store<R::Stored>>,
    /// Whose objects these are, for messages.
    informer: Arc<str>,
    /// What keeps the informer going, if it is one that lasts as long as it is used.
    hold: Option<Arc<dyn Any + Send + Sync>>,
}

/// The whole objects of one type.
pub type TypedLister<K> = Lister<Typed<K>>;

/// What a reader gets, if its labels can be read.
pub trait Labelled {
    /// The labels; `None` and empty mean the same.
    fn labels(&self) -> Option<&BTreeMap<String, String>>;
}

impl<K: Resource> Labelled for Arc<K> {
    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.meta().labels.as_ref()
    }
}

impl<R: Representation> Lister<R> {
    pub(crate) fn new(store: Arc<Store<R::Stored>>, informer: Arc<str>) -> Self {
        Self { store, informer, hold: None }
    }

    /// The same, which keeps its informer going.
    pub(crate) fn holding(self, hold: Arc<dyn Any + Send + Sync>) -> Self {
        Self { hold: Some(hold), ..self }
    }

    /// The object of that key, if there is one.
    pub fn get(&self, key: &ObjectKey) -> Option<R::Read> {
        self.snapshot().objects().get(key).map(R::read)
    }

    /// Every object.
    pub fn list(&self) -> Vec<R::Read> {
        self.snapshot().objects().values().map(R::read).collect()
    }

    /// The key of every object.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.snapshot().objects().keys().cloned().collect()
    }

    /// Every object in one namespace.
    pub fn namespace(&self, namespace: &str) -> Vec<R::Read> {
        in_namespace(&self.snapshot(), namespace).map(R::read).collect()
    }

    /// Every object whose labels the selector matches, in one namespace or in all.
    pub fn select(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<R::Read>
    where
        R::Read: Labelled,
    {
        let snapshot = self.snapshot();
        let matches = |object: &R::Read| selector.matches_optional(object.labels());
        match namespace {
            Some(namespace) => in_namespace(&snapshot, namespace).map(R::read).filter(matches).collect(),
            None => snapshot.objects().values().map(R::read).filter(matches).collect(),
        }
    }

    /// Every object that `index` files under `value`.
    ///
    /// # Panics
    ///
    /// If the informer has no index of that name: to answer "nothing" would let a controller act on a typing
    /// error. Who reads an index that others remove asks [`has_index`](Self::has_index) first, or adds it too.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<R::Read> {
        let snapshot = self.snapshot();
        let entries = self.index(&snapshot, index);
        entries.keys(value).filter_map(|key| snapshot.objects().get(key)).map(R::read).collect()
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
        self.store.is_stopped()
    }

    fn snapshot(&self) -> Arc<Snapshot<R::Stored>> {
        self.store.snapshot()
    }

    fn index<'a>(&self, snapshot: &'a Snapshot<R::Stored>, index: &str) -> &'a Index {
        match snapshot.index(index) {
            Some(entries) => entries,
            None => panic!("the informer of {} has no index {index:?}", self.informer),
        }
    }
}

fn in_namespace<'a, S>(snapshot: &'a Snapshot<S>, namespace: &'a str) -> impl Iterator<Item = &'a S> {
    let first = ObjectKey::namespaced(namespace, "");
    let rest = snapshot.objects().range(first..);
    rest.take_while(move |(key, _)| key.namespace() == Some(namespace)).map(|(_, object)| object)
}

impl<R: Representation> Clone for Lister<R> {
    fn clone(&self) -> Self {
        let (store, informer) = (Arc::clone(&self.store), Arc::clone(&self.informer));
        Self { store, informer, hold: self.hold.clone() }
    }
}

impl<R: Representation> fmt::Debug for Lister<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister").field("informer", &self.informer).field("store", &self.store).finish()
    }
}
