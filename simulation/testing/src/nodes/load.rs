//! Number of pods on each node, including pods that are about to be bound.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Node of each pod by UID, and the number of pods per node.
#[derive(Debug, Default)]
pub(super) struct NodeLoad(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    node_of: BTreeMap<String, String>,
    count: BTreeMap<String, usize>,
}

impl NodeLoad {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first of `nodes` with the fewest pods, and counts the pod there immediately: the next choice can
    /// precede the binding.
    pub(super) fn place(&self, uid: &str, nodes: impl IntoIterator<Item = String>) -> Option<String> {
        let mut book = self.lock();
        let node = nodes.into_iter().min_by_key(|node| book.count.get(node).copied().unwrap_or_default())?;
        book.put(uid, &node);
        Some(node)
    }

    /// Records the observed node of a pod.
    pub(super) fn seen(&self, uid: &str, node: &str) {
        self.lock().put(uid, node);
    }

    /// Removes a pod that is deleted, has completed, or could not be bound.
    pub(super) fn remove(&self, uid: &str) {
        self.lock().remove(uid);
    }
}

impl Book {
    fn put(&mut self, uid: &str, node: &str) {
        if self.node_of.get(uid).is_some_and(|at| at == node) {
            return;
        }
        self.remove(uid);
        self.node_of.insert(uid.to_owned(), node.to_owned());
        *self.count.entry(node.to_owned()).or_default() += 1;
    }

    fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else { return };
        if let Some(count) = self.count.get_mut(&node) {
            *count -= 1;
        }
    }
}
