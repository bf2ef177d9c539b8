//! Sets of namespaces that can change while a process runs.
//!
//! A [`NamespaceSet`] is a shared handle: every clone can make changes and observes the changes of the others. An
//! informer with a set has a separate reflector per namespace. It is still one informer with one store and one stream
//! of events:
//!
//! - If a namespace joins, it is listed and watched. Its objects are delivered as additions of an initial list.
//! - If a namespace leaves, its objects are removed. Each is delivered as an inferred deletion with the cause
//!   `Deselected`.
//! - A namespace that fails or must not be read blocks no other namespace.
//! - An informer with an empty set is synced and empty.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use windlass_env::watch_channel::{Receiver, Sender, channel};

/// A set of namespaces that can grow and shrink. Cheap to clone; clones share one set.
#[derive(Clone)]
pub struct NamespaceSet {
    /// Copy-on-write, so that readers need no copy.
    names: Arc<Sender<Arc<BTreeSet<String>>>>,
}

impl NamespaceSet {
    /// Creates a set of these namespaces. Empty names are ignored: they would select all namespaces.
    pub fn from_names<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { names: Arc::new(channel(Arc::new(valid(names))).0) }
    }

    /// Adds a namespace. Returns `false` if it was present or is empty.
    pub fn insert(&self, name: impl Into<String>) -> bool {
        let name = name.into();
        if name.is_empty() {
            return false;
        }
        let mut inserted = false;
        self.names.send_modify(|names| inserted = Arc::make_mut(names).insert(name));
        inserted
    }

    /// Removes a namespace. Returns `false` if it was not present.
    pub fn remove(&self, name: &str) -> bool {
        let mut removed = false;
        self.names.send_modify(|names| removed = Arc::make_mut(names).remove(name));
        removed
    }

    /// Replaces the set atomically. Namespaces in both sets are unaffected.
    pub fn replace<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) {
        self.names.set(Arc::new(valid(names)));
    }

    /// Returns whether the set contains this namespace.
    pub fn contains(&self, name: &str) -> bool {
        self.names.get().contains(name)
    }

    /// Returns the namespaces, in order.
    pub fn current(&self) -> BTreeSet<String> {
        BTreeSet::clone(&self.names.get())
    }

    /// Returns a receiver of the changes. The current value counts as seen.
    pub fn subscribe(&self) -> Receiver<Arc<BTreeSet<String>>> {
        self.names.subscribe()
    }
}

/// Returns the names that are not empty.
fn valid<N: Into<String>>(names: impl IntoIterator<Item = N>) -> BTreeSet<String> {
    names.into_iter().map(Into::into).filter(|name: &String| !name.is_empty()).collect()
}

/// Two handles are equal if they refer to the same set, not if their sets have equal contents.
impl PartialEq for NamespaceSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.names, &other.names)
    }
}

impl Eq for NamespaceSet {}

impl fmt::Debug for NamespaceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names.get().iter()).finish()
    }
}
