//! Named secondary indexes over the store.
//!
//! Guarantees:
//! - An index says of each object exactly what its function returned when the object was stored, several
//!   values included; a function that changes its mind later leaves nothing behind.
//! - An index is part of a snapshot: index and objects a reader sees are of one moment.
//! - A function that panics costs its object its place in that index, is counted and logged, and harms
//!   nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use windlass_env::caught_now;
use windlass_object::ObjectKey;

/// The values under which an object is found.
pub(crate) type IndexFunction<S> = Arc<dyn Fn(&S) -> Vec<String> + Send + Sync>;

/// The contents of all indexes at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indexes(BTreeMap<Arc<str>, Index>);

/// The contents of one index at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    keys: OrdMap<Arc<str>, OrdSet<ObjectKey>>,
    /// What each object is filed under, so that it can be taken out without asking the function again.
    filed: OrdMap<ObjectKey, Arc<[Arc<str>]>>,
}

/// The functions that fill the indexes. Owned by the writer.
pub(crate) struct Indexers<S> {
    functions: BTreeMap<Arc<str>, IndexFunction<S>>,
    panics: u64,
}

impl Indexes {
    pub(crate) fn get(&self, name: &str) -> Option<&Index> {
        self.0.get(name)
    }

    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        for index in self.0.values_mut() {
            index.file(key, &[]);
        }
    }
}

impl Index {
    /// The keys filed under `value`, in order.
    pub(crate) fn keys(&self, value: &str) -> impl Iterator<Item = &ObjectKey> {
        self.keys.get(value).into_iter().flatten()
    }

    /// How many objects are filed under `value`.
    pub(crate) fn count(&self, value: &str) -> usize {
        self.keys.get(value).map_or(0, OrdSet::len)
    }

    /// Every value something is filed under, in order, and how many objects are.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.keys.iter().map(|(value, keys)| (value.as_ref(), keys.len()))
    }

    /// Every value something is filed under, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(AsRef::as_ref)
    }

    /// Files `key` under exactly `values`.
    fn file(&mut self, key: &ObjectKey, values: &[String]) {
        let filed = self.filed.get(key).cloned().unwrap_or_default();
        if same(&filed, values) {
            return;
        }
        for value in filed.iter() {
            self.withdraw(key, value);
        }
        self.enter(key, values);
    }

    fn withdraw(&mut self, key: &ObjectKey, value: &Arc<str>) {
        let Some(keys) = self.keys.get_mut(value) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.keys.remove(value);
        }
    }

    fn enter(&mut self, key: &ObjectKey, values: &[String]) {
        if values.is_empty() {
            self.filed.remove(key);
            return;
        }
        let values: Arc<[Arc<str>]> = values.iter().map(|value| self.shared(value)).collect();
        for value in values.iter() {
            self.keys.entry(Arc::clone(value)).or_default().insert(key.clone());
        }
        self.filed.insert(key.clone(), values);
    }

    /// The value's text, shared with the objects already filed under it.
    fn shared(&self, value: &str) -> Arc<str> {
        self.keys.get_key_value(value).map_or_else(|| value.into(), |(text, _)| Arc::clone(text))
    }
}

fn same(filed: &[Arc<str>], values: &[String]) -> bool {
    filed.len() == values.len() && filed.iter().zip(values).all(|(filed, value)| **filed == **value)
}

impl<S> Indexers<S> {
    pub(crate) fn new() -> Self {
        Self { functions: BTreeMap::new(), panics: 0 }
    }

    /// Adds an index and fills it; `false`, and nothing is added, if the name is taken.
    pub(crate) fn add<'a>(
        &mut self,
        indexes: &mut Indexes,
        name: &str,
        function: IndexFunction<S>,
        objects: impl Iterator<Item = (&'a ObjectKey, &'a S)>,
    ) -> bool
    where
        S: 'a,
    {
        if self.functions.contains_key(name) {
            return false;
        }
        let mut index = Index::default();
        for (key, object) in objects {
            index.file(key, &values(name, &function, key, object, &mut self.panics));
        }
        let name: Arc<str> = name.into();
        self.functions.insert(Arc::clone(&name), function);
        indexes.0.insert(name, index);
        true
    }

    /// Removes an index with all it holds; `false` if there is none of that name.
    pub(crate) fn remove(&mut self, indexes: &mut Indexes, name: &str) -> bool {
        indexes.0.remove(name);
        self.functions.remove(name).is_some()
    }

    /// Files one object under what every function says of it.
    pub(crate) fn file(&mut self, indexes: &mut Indexes, key: &ObjectKey, object: &S) {
        for (name, function) in &self.functions {
            let values = values(name, function, key, object, &mut self.panics);
            indexes.0.entry(Arc::clone(name)).or_default().file(key, &values);
        }
    }

    /// How many times an index function panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics
    }
}

/// What `function` says of an object; nothing if it panics.
fn values<S>(
    name: &str,
    function: &IndexFunction<S>,
    key: &ObjectKey,
    object: &S,
    panics: &mut u64,
) -> Vec<String> {
    caught_now(|| function(object)).unwrap_or_else(|message| {
        *panics += 1;
        tracing::error!(index = name, %key, message, "an index function panicked; the object is not in that index");
        Vec::new()
    })
}

impl<S> fmt::Debug for Indexers<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Indexers")
            .field("names", &self.functions.keys())
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

    fn indexed(objects: &[(&str, Words)]) -> (Indexers<Words>, Indexes) {
        let (mut indexers, mut indexes) = (Indexers::new(), Indexes::default());
        assert!(indexers.add(&mut indexes, "word", by_word(), std::iter::empty()));
        for (name, words) in objects {
            indexers.file(&mut indexes, &key(name), words);
        }
        (indexers, indexes)
    }

    fn found(indexes: &Indexes, value: &str) -> Vec<String> {
        indexes.get("word").unwrap().keys(value).map(ToString::to_string).collect()
    }

    #[test]
    fn an_object_is_found_under_each_of_its_values() {
        let (_, indexes) = indexed(&[("a", vec!["x", "y"]), ("b", vec!["y"])]);
        assert_eq!(
            (found(&indexes, "x"), found(&indexes, "y")),
            (vec!["a".into()], vec!["a".into(), "b".into()])
        );
        assert_eq!(found(&indexes, "z"), Vec::<String>::new());
    }

    #[test]
    fn a_changed_object_is_found_under_its_new_values_only_and_empty_values_vanish() {
        let (mut indexers, mut indexes) = indexed(&[("a", vec!["x", "y"])]);
        indexers.file(&mut indexes, &key("a"), &vec!["y", "z"]);
        assert_eq!(indexes.get("word").unwrap().values().collect::<Vec<_>>(), ["y", "z"]);
        indexes.forget(&key("a"));
        assert_eq!(indexes.get("word").unwrap().values().count(), 0);
        assert!(indexes.get("word").unwrap().filed.is_empty());
    }

    #[test]
    fn an_index_added_late_holds_what_was_there_before() {
        let (mut indexers, mut indexes) = (Indexers::new(), Indexes::default());
        let objects = [(key("a"), vec!["x"])];
        assert!(indexers.add(
            &mut indexes,
            "word",
            by_word(),
            objects.iter().map(|(key, words)| (key, words))
        ));
        assert_eq!(found(&indexes, "x"), ["a"]);
    }

    #[test]
    fn a_name_that_is_taken_is_refused_and_the_index_stays() {
        let (mut indexers, mut indexes) = indexed(&[("a", vec!["x"])]);
        assert!(!indexers.add(&mut indexes, "word", Arc::new(|_| Vec::new()), std::iter::empty()));
        assert_eq!(found(&indexes, "x"), ["a"]);
    }

    #[test]
    fn a_removed_index_holds_nothing_and_its_name_may_be_given_again() {
        let (mut indexers, mut indexes) = indexed(&[("a", vec!["x"])]);
        let before = indexes.clone();
        assert!(indexers.remove(&mut indexes, "word") && !indexers.remove(&mut indexes, "word"));
        indexers.file(&mut indexes, &key("b"), &vec!["x"]);
        assert!(indexes.get("word").is_none());
        assert_eq!(found(&before, "x"), ["a"], "a reader keeps what it loaded");
        assert!(indexers.add(&mut indexes, "word", by_word(), std::iter::empty()));
        assert_eq!(found(&indexes, "x"), Vec::<String>::new());
    }

    #[test]
    fn values_are_counted() {
        let (_, indexes) = indexed(&[("a", vec!["x", "y"]), ("b", vec!["y"])]);
        let index = indexes.get("word").unwrap();
        assert_eq!(index.counts().collect::<Vec<_>>(), [("x", 1), ("y", 2)]);
        assert_eq!((index.count("y"), index.count("z")), (2, 0));
    }

    #[test]
    fn a_panicking_function_costs_one_object_its_place_and_is_counted() {
        let (mut indexers, mut indexes) = indexed(&[("a", vec!["x"]), ("b", vec!["x"])]);
        indexers.file(&mut indexes, &key("a"), &vec!["panic"]);
        assert_eq!((found(&indexes, "x"), indexers.panics()), (vec!["b".into()], 1));
    }

    #[test]
    fn a_snapshot_taken_before_a_change_does_not_see_it() {
        let (mut indexers, mut indexes) = indexed(&[("a", vec!["x"])]);
        let before = indexes.clone();
        indexers.file(&mut indexes, &key("a"), &vec!["y"]);
        assert_eq!((found(&before, "x"), found(&indexes, "x")), (vec!["a".into()], vec![]));
    }
}
