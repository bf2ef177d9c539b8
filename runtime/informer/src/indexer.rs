//! Secondary indexes over the store.
//!
//! Guarantees:
//! - For each object, an index contains exactly the values that its function returned when the object was stored. If
//!   the function returns other values later, no stale entry remains.
//! - An index is part of a snapshot: a reader gets index and objects from one snapshot.
//! - If a function panics, its index does not contain the object. The panic is counted and logged and has no other
//!   effect.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use windlass_env::catch_panic_sync;
use windlass_object::ObjectKey;

use crate::object::Object;

/// The values under which an object is found.
pub(crate) type IndexFunction<S> = Arc<dyn Fn(&S) -> Vec<String> + Send + Sync>;

/// The identity of an index within its informer; never reused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexId(u64);

/// An index to be added.
pub(crate) struct NewIndex {
    /// The name of the function, for messages.
    pub(crate) name: &'static str,
    pub(crate) values: IndexFunction<Object>,
    /// The identity of the function, if all values of its type are the same function.
    pub(crate) function_type: Option<TypeId>,
}

/// The contents of all indexes in one snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexSnapshots(BTreeMap<IndexId, Entries>);

/// The contents of one index in one snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    keys: OrdMap<Arc<str>, OrdSet<ObjectKey>>,
    /// The values of each object, so that it can be removed without another call to the function.
    values_by_key: OrdMap<ObjectKey, Arc<[Arc<str>]>>,
}

/// The functions that fill the indexes. Owned by the writer.
pub(crate) struct Indexers<S> {
    indexers: BTreeMap<IndexId, Indexer<S>>,
    /// The number of indexes added so far.
    added: u64,
    panics: u64,
}

struct Indexer<S> {
    /// The name of the function, for messages.
    name: &'static str,
    function: IndexFunction<S>,
}

impl IndexSnapshots {
    pub(crate) fn get(&self, id: IndexId) -> Option<&Entries> {
        self.0.get(&id)
    }

    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        for index in self.0.values_mut() {
            index.set_values(key, &[]);
        }
    }
}

impl Entries {
    /// Returns the keys under `value`, in order.
    pub(crate) fn keys(&self, value: &str) -> impl Iterator<Item = &ObjectKey> {
        self.keys.get(value).into_iter().flatten()
    }

    /// Returns the number of objects under `value`.
    pub(crate) fn count(&self, value: &str) -> usize {
        self.keys.get(value).map_or(0, OrdSet::len)
    }

    /// Returns every value with at least one object, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(AsRef::as_ref)
    }

    /// Sets the values of `key` to exactly `values`.
    fn set_values(&mut self, key: &ObjectKey, values: &[String]) {
        let before = self.values_by_key.get(key).cloned().unwrap_or_default();
        if same(&before, values) {
            return;
        }
        for value in before.iter() {
            self.remove(key, value);
        }
        self.insert(key, values);
    }

    fn remove(&mut self, key: &ObjectKey, value: &Arc<str>) {
        let Some(keys) = self.keys.get_mut(value) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.keys.remove(value);
        }
    }

    fn insert(&mut self, key: &ObjectKey, values: &[String]) {
        if values.is_empty() {
            self.values_by_key.remove(key);
            return;
        }
        let values: Arc<[Arc<str>]> = values.iter().map(|value| self.shared(value)).collect();
        for value in values.iter() {
            self.keys.entry(Arc::clone(value)).or_default().insert(key.clone());
        }
        self.values_by_key.insert(key.clone(), values);
    }

    /// Returns the text of the value, shared with the objects that have it already.
    fn shared(&self, value: &str) -> Arc<str> {
        self.keys.get_key_value(value).map_or_else(|| value.into(), |(text, _)| Arc::clone(text))
    }
}

fn same(before: &[Arc<str>], values: &[String]) -> bool {
    before.len() == values.len() && before.iter().zip(values).all(|(before, value)| **before == **value)
}

impl<S> Indexers<S> {
    pub(crate) fn new() -> Self {
        Self { indexers: BTreeMap::new(), added: 0, panics: 0 }
    }

    /// Adds an index and fills it.
    pub(crate) fn add<'a>(
        &mut self,
        indexes: &mut IndexSnapshots,
        name: &'static str,
        function: IndexFunction<S>,
        objects: impl Iterator<Item = (&'a ObjectKey, &'a S)>,
    ) -> IndexId
    where
        S: 'a,
    {
        let (id, indexer) = (IndexId(self.added), Indexer { name, function });
        self.added += 1;
        let mut entries = Entries::default();
        for (key, object) in objects {
            entries.set_values(key, &indexer.values(key, object, &mut self.panics));
        }
        self.indexers.insert(id, indexer);
        indexes.0.insert(id, entries);
        id
    }

    /// Removes an index with its contents and returns its function, because dropping it runs user code.
    pub(crate) fn remove(&mut self, indexes: &mut IndexSnapshots, id: IndexId) -> Option<IndexFunction<S>> {
        indexes.0.remove(&id);
        self.indexers.remove(&id).map(|indexer| indexer.function)
    }

    /// Updates one object in all indexes.
    pub(crate) fn set_values(&mut self, indexes: &mut IndexSnapshots, key: &ObjectKey, object: &S) {
        for (id, indexer) in &self.indexers {
            let values = indexer.values(key, object, &mut self.panics);
            indexes.0.entry(*id).or_default().set_values(key, &values);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.indexers.len()
    }

    /// Returns how many times an index function panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics
    }
}

impl<S> Indexer<S> {
    /// Returns the values of an object, or none if the function panics.
    fn values(&self, key: &ObjectKey, object: &S, panics: &mut u64) -> Vec<String> {
        let Self { name, function } = self;
        catch_panic_sync(|| function(object)).unwrap_or_else(|message| {
            *panics += 1;
            tracing::error!(index = name, %key, message, "index function panicked; index omits the object");
            Vec::new()
        })
    }
}

impl<S> fmt::Debug for Indexers<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Indexers")
            .field("indexes", &self.indexers.len())
            .field("panics", &self.panics)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Words = Vec<&'static str>;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::cluster(name)
    }

    fn by_word() -> IndexFunction<Words> {
        Arc::new(|words: &Words| {
            assert!(!words.contains(&"panic"), "a word too many");
            words.iter().map(|word| (*word).to_owned()).collect()
        })
    }

    struct Indexed {
        indexers: Indexers<Words>,
        indexes: IndexSnapshots,
        id: IndexId,
    }

    impl Indexed {
        fn with(objects: &[(&str, Words)]) -> Self {
            let (mut indexers, mut indexes) = (Indexers::new(), IndexSnapshots::default());
            let id = indexers.add(&mut indexes, "word", by_word(), std::iter::empty());
            let mut indexed = Self { indexers, indexes, id };
            objects.iter().for_each(|(name, words)| indexed.set_values(name, words));
            indexed
        }

        fn set_values(&mut self, name: &str, words: &Words) {
            self.indexers.set_values(&mut self.indexes, &key(name), words);
        }

        fn entries(&self) -> &Entries {
            self.indexes.get(self.id).expect("added")
        }

        fn found(&self, value: &str) -> Vec<String> {
            found(&self.indexes, self.id, value)
        }
    }

    fn found(indexes: &IndexSnapshots, id: IndexId, value: &str) -> Vec<String> {
        indexes.get(id).expect("added").keys(value).map(ToString::to_string).collect()
    }

    // parity: by-index, multi-valued-indexes-empty, test-get-index-func-values
    #[test]
    fn object_is_found_under_each_of_its_values() {
        let indexed = Indexed::with(&[("a", vec!["x", "y"]), ("b", vec!["y"])]);
        assert_eq!(
            (indexed.found("x"), indexed.found("y")),
            (vec!["a".into()], vec!["a".into(), "b".into()])
        );
        assert_eq!(indexed.found("z"), Vec::<String>::new());
        assert_eq!((indexed.entries().count("y"), indexed.entries().count("z")), (2, 0));
    }

    // parity: multi-valued-indexes-empty, test-thread-safe-store-delete-removes
    #[test]
    fn changed_object_is_found_under_new_values_only() {
        let mut indexed = Indexed::with(&[("a", vec!["x", "y"])]);
        indexed.set_values("a", &vec!["y", "z"]);
        assert_eq!(indexed.entries().values().collect::<Vec<_>>(), ["y", "z"]);
        indexed.indexes.forget(&key("a"));
        assert_eq!(indexed.entries().values().count(), 0);
        assert!(indexed.entries().values_by_key.is_empty());
    }

    #[test]
    fn index_added_late_contains_existing_objects() {
        let (mut indexers, mut indexes) = (Indexers::new(), IndexSnapshots::default());
        let objects = [(key("a"), vec!["x"])];
        let objects = objects.iter().map(|(key, words)| (key, words));
        let id = indexers.add(&mut indexes, "word", by_word(), objects);
        assert_eq!(found(&indexes, id, "x"), ["a"]);
    }

    #[test]
    fn removed_index_is_empty_and_its_id_is_not_reused() {
        let Indexed { mut indexers, mut indexes, id } = Indexed::with(&[("a", vec!["x"])]);
        let before = indexes.clone();
        assert!(indexers.remove(&mut indexes, id).is_some() && indexers.remove(&mut indexes, id).is_none());
        indexers.set_values(&mut indexes, &key("b"), &vec!["x"]);
        assert!(indexes.get(id).is_none());
        assert_eq!(found(&before, id, "x"), ["a"], "a reader keeps what it loaded");
        let next = indexers.add(&mut indexes, "word", by_word(), std::iter::empty());
        assert_ne!(next, id);
        assert_eq!(found(&indexes, next, "x"), Vec::<String>::new());
    }

    // parity: index-function-error-panics
    #[test]
    fn panicking_index_function_skips_one_object_and_is_counted() {
        let mut indexed = Indexed::with(&[("a", vec!["x"]), ("b", vec!["x"])]);
        indexed.set_values("a", &vec!["panic"]);
        assert_eq!((indexed.found("x"), indexed.indexers.panics()), (vec!["b".into()], 1));
    }

    #[test]
    fn index_snapshot_does_not_reflect_later_changes() {
        let mut indexed = Indexed::with(&[("a", vec!["x"])]);
        let before = indexed.indexes.clone();
        indexed.set_values("a", &vec!["y"]);
        assert_eq!((found(&before, indexed.id, "x"), indexed.found("x")), (vec!["a".into()], vec![]));
    }
}
