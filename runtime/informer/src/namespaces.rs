//! Which namespaces an operator works in, changeable while it runs.
//!
//! A [`NamespaceSet`] is a shared handle: whoever holds a clone sees, and may make, every change. An informer over a set
//! follows each of its namespaces for itself and is still one informer, with one store and one stream of events:
//!
//! - A namespace that joins is listed and watched; its objects are told as additions of an initial list.
//! - One that leaves takes its objects along: each is told as a deletion that was inferred, because it was deselected.
//! - One that fails, or must not be read, holds up no other.
//! - Nobody in the set, nothing followed: such an informer has synced, and is empty.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use windlass_env::watch_channel::{Receiver, Sender, channel};

/// A set of namespaces that may grow and shrink. Cheap to clone; clones are one set.
#[derive(Clone)]
pub struct NamespaceSet {
    /// Replaced and never changed, so that who asks takes no copy.
    names: Arc<Sender<Arc<BTreeSet<String>>>>,
}

impl NamespaceSet {
    /// A set of these namespaces. An empty name is not one: it would mean all of them.
    pub fn of<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { names: Arc::new(channel(Arc::new(valid(names))).0) }
    }

    /// Adds a namespace; `false` if it was there, or is no name.
    pub fn insert(&self, name: impl Into<String>) -> bool {
        let name = name.into();
        if name.is_empty() {
            return false;
        }
        let mut inserted = false;
        self.names.send_modify(|names| inserted = Arc::make_mut(names).insert(name));
        inserted
    }

    /// Removes a namespace; `false` if it was not there.
    pub fn remove(&self, name: &str) -> bool {
        let mut removed = false;
        self.names.send_modify(|names| removed = Arc::make_mut(names).remove(name));
        removed
    }

    /// Makes it a set of these namespaces, at once: what is in both stays untouched.
    pub fn replace<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) {
        self.names.set(Arc::new(valid(names)));
    }

    /// Whether it has this namespace.
    pub fn contains(&self, name: &str) -> bool {
        self.names.get().contains(name)
    }

    /// The namespaces, in order.
    pub fn current(&self) -> BTreeSet<String> {
        BTreeSet::clone(&self.names.get())
    }

    /// The set as it changes. What it is now counts as seen.
    pub fn observe(&self) -> Receiver<Arc<BTreeSet<String>>> {
        self.names.subscribe()
    }
}

/// Those of the names that are such.
fn valid<N: Into<String>>(names: impl IntoIterator<Item = N>) -> BTreeSet<String> {
    names.into_iter().map(Into::into).filter(|name: &String| !name.is_empty()).collect()
}

/// Two handles are equal if they are of one set: sets that happen to hold the same go their own ways.
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
