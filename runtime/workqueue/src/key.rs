//! The trait of keys.

use std::fmt;
use std::hash::Hash;

/// A type that can be a key. Its comparison, hash, clone and drop run under the queue's lock, so they must not call the
/// queue.
pub trait Key: Ord + Hash + Clone + Send + fmt::Debug + 'static {}

impl<K: Ord + Hash + Clone + Send + fmt::Debug + 'static> Key for K {}
