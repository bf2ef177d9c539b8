//! Where objects are kept, in every version that watches may still ask for.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

/// Which collection an object belongs to. Versions of one kind share one collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Collection {
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The plural name.
    pub resource: Arc<str>,
}

/// Where an object is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace; empty for kinds of the cluster.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// One version of one object. Its `metadata.resourceVersion` is `revision`.
#[derive(Debug)]
pub struct Stored {
    /// Where.
    pub key: Key,
    /// The global revision of the write that made it.
    pub revision: u64,
    /// The object, with apiVersion and kind.
    pub value: Value,
    /// The object as JSON.
    pub bytes: Bytes,
}
