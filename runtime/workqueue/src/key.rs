//! What a key must be able to do.

use std::fmt;
use std::hash::Hash;

/// What a key must be able to do. Its comparison, hash and clone run under the queue's lock.
pub trait Key: Ord + Hash + Clone + Send + fmt::Debug + 'static {}

impl<K: Ord + Hash + Clone + Send + fmt::Debug + 'static> Key for K {}
