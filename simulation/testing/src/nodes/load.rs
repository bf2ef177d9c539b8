//! How many pods each node has, those counted in that are only about to be bound.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pods by their UID and the node they are on, and how many each node has.
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

    /// The one of `nodes` that has the fewest pods, the first of several, counted as that of the pod from now on: the
    /// next choice is made before this one is bound.
    pub(super) fn place(&self, uid: &str, nodes: impl IntoIterator<Item = String>) -> Option<String> {
        let mut book = self.lock();
        let node = nodes.into_iter().min_by_key(|node| book.count.get(node).copied().unwrap_or_default())?;
        book.put(uid, &node);
        Some(node)
    }

    /// The pod is seen on that node.
    pub(super) fn seen(&self, uid: &str, node: &str) {
        self.lock().put(uid, node);
    }

    /// The pod is gone, has ended, or was not bound after all.
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
