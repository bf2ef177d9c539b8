//! Storage of objects, with the history that watches need.
//!
//! Guarantees:
//! - Each write gets exactly one global revision, which becomes the object's `metadata.resourceVersion`.
//! - An object is encoded once, when it is written. All readers and watches share these bytes.
//! - Data returned to a reader never changes and does not slow down writes.
//! - Observers are woken in registration order. A slow observer never delays a write: its next read fails because the
//!   missed changes are no longer kept.
//!
//! Non-goal: validation of objects. The registry handles defaults, validation and consequences of writes.

mod document;
mod file;
mod memory;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use imbl::OrdMap;
use serde_json::Value;
use windlass_env::watch_channel::Receiver;

pub use self::document::Document;
pub use self::file::SnapshotError;
pub use self::memory::{InMemoryStorage, MemoryOptions};

/// The collection of an object. All versions of one kind share one collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Collection {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Plural name.
    pub resource: Arc<str>,
}

/// The key of an object. Sorted as the text `namespace/name`, like upstream's lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// One version of one object. Its `metadata.resourceVersion` is `revision`.
#[derive(Debug)]
pub struct Stored {
    /// Key.
    pub key: Key,
    /// Global revision of the write that created this version.
    pub revision: u64,
    /// Object, with apiVersion and kind.
    pub value: Document,
    /// Object as JSON.
    pub bytes: Bytes,
    /// Its `apiVersion`, for access without parsing the object.
    version: Arc<str>,
}

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The object does not exist.
    Absent,
    /// The object has this revision.
    Revision(u64),
}

/// The change of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Creates or replaces the object.
    Put(Value),
    /// Deletes the object; the value is its last state.
    Delete(Value),
}

/// The effect of a write on one object, as watches deliver it.
#[derive(Debug)]
pub enum Transition {
    /// The object was created.
    Created {
        /// New state.
        now: Arc<Stored>,
    },
    /// The object changed.
    Replaced {
        /// Old state.
        before: Arc<Stored>,
        /// New state.
        now: Arc<Stored>,
        /// Old state at the revision of this write; created on first use.
        left: OnceLock<Arc<Stored>>,
    },
    /// The object was deleted.
    Removed {
        /// Old state.
        before: Arc<Stored>,
        /// Last state, at the revision of the deletion.
        last: Arc<Stored>,
    },
}

/// One collection at one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Global revision of the snapshot.
    pub revision: u64,
    /// All objects of the collection.
    pub objects: OrdMap<Key, Arc<Stored>>,
}

/// The error of a storage operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The object exists already.
    #[error("{key} is already there, at revision {found}")]
    Exists {
        /// Key of the object.
        key: Key,
        /// Revision of the object.
        found: u64,
    },
    /// There is no such object.
    #[error("{key} is not there")]
    Missing {
        /// Key of the object.
        key: Key,
    },
    /// The object has changed.
    #[error("{key} is at revision {found}, not at {expected}: read it again")]
    Conflict {
        /// Key of the object.
        key: Key,
        /// Revision that the writer expected.
        expected: u64,
        /// Revision of the object.
        found: u64,
    },
    /// The revision is no longer kept.
    #[error("revision {asked} is no longer kept, the oldest is {floor}: list again")]
    Compacted {
        /// Requested revision.
        asked: u64,
        /// Oldest revision that is kept.
        floor: u64,
    },
    /// The revision is in the future.
    #[error("revision {asked} is yet to come, the present one is {current}")]
    Future {
        /// Requested revision.
        asked: u64,
        /// Latest revision.
        current: u64,
    },
    /// The object is nested too deeply to be parsed again.
    #[error("{key} cannot be written: lists and objects in it are nested more than {MAX_DEPTH} deep")]
    TooDeep {
        /// Key of the object.
        key: Key,
    },
    /// The value is not an object with metadata.
    #[error("{key} cannot be written: it is no object with metadata")]
    NotAnObject {
        /// Key of the object.
        key: Key,
    },
}

/// Maximum nesting of stored objects. The JSON parsers of this server and of clients accept a nesting of 127. A table
/// adds three levels around an object, a list two, and a watch one.
const MAX_DEPTH: usize = 124;

/// A store of objects and their history.
pub trait Storage: fmt::Debug + Send + Sync {
    /// Returns the revision of the latest write.
    fn revision(&self) -> u64;

    /// Returns the oldest revision that can be read. Watches can start from it. They can start from an older revision
    /// only if no later write to their collection was dropped.
    fn floor(&self) -> u64;

    /// Returns the latest state of the object.
    fn get(&self, collection: &Collection, key: &Key) -> Option<Arc<Stored>>;

    /// Returns the collection at a revision, or its latest state.
    ///
    /// # Errors
    /// [`StorageError::Compacted`] and [`StorageError::Future`].
    fn read(&self, collection: &Collection, at: Option<u64>) -> Result<Snapshot, StorageError>;

    /// Writes one object at the next revision and wakes the observers of its collection.
    ///
    /// Sets `metadata.resourceVersion` in the value and in the bytes. Returns the object, or the last state of a
    /// deleted object.
    ///
    /// # Errors
    /// If the precondition fails, or the value is not a valid object. Nothing is written then, and no revision is
    /// used.
    fn commit(
        &self,
        collection: &Collection,
        key: &Key,
        precondition: Precondition,
        change: Change,
    ) -> Result<Arc<Stored>, StorageError>;

    /// Returns at most `most` changes of the collection after one revision and up to another, oldest first.
    ///
    /// # Errors
    /// [`StorageError::Compacted`] if one of the changes is no longer kept.
    fn changes(
        &self,
        collection: &Collection,
        after: u64,
        through: u64,
        most: usize,
    ) -> Result<Vec<Arc<Transition>>, StorageError>;

    /// Drops the history before a revision. Reads from before it then fail, and so do watches that would miss a
    /// change.
    fn compact(&self, revision: u64);

    /// Restores the state at an earlier revision, as from a backup. Later writes are undone, and their revisions are
    /// assigned again. The history before that revision is dropped. Observers of collections are closed.
    ///
    /// # Errors
    /// [`StorageError::Compacted`] and [`StorageError::Future`].
    fn restore(&self, revision: u64) -> Result<(), StorageError>;

    /// Returns a receiver for the revision of each write to the collection, or to any collection.
    fn observe(&self, collection: Option<&Collection>) -> Receiver<u64>;
}

impl Collection {
    /// Creates the collection of a group's resource.
    pub fn new(group: impl Into<Arc<str>>, resource: impl Into<Arc<str>>) -> Collection {
        Collection { group: group.into(), resource: resource.into() }
    }
}

impl Key {
    /// Creates the key of an object; the namespace is empty for cluster-scoped kinds.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Key {
        Key { namespace: namespace.into(), name: name.into() }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(&other.name);
        }
        let (one, two) = (self.namespace.as_bytes(), other.namespace.as_bytes());
        let shared = one.len().min(two.len());
        // At the end of the shorter namespace, compare with the slash that follows it: "a-b/x" sorts before "a/x".
        one[..shared].cmp(&two[..shared]).then_with(|| match (one.get(shared), two.get(shared)) {
            (Some(byte), _) => byte.cmp(&b'/'),
            (None, byte) => b'/'.cmp(byte.unwrap_or(&b'/')),
        })
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

impl Stored {
    /// Encodes `value` as the version at `revision`. Returns `None` if it is not an object with metadata, or nested
    /// too deeply.
    pub fn new(key: Key, revision: u64, value: Value) -> Option<Stored> {
        Stored::encode(key, revision, value).ok()
    }

    /// Encodes `value` like [`Stored::new`] and returns the error.
    fn encode(key: Key, revision: u64, mut value: Value) -> Result<Stored, StorageError> {
        if !is_within(&value, MAX_DEPTH) {
            return Err(StorageError::TooDeep { key });
        }
        let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
        let Some(metadata) = metadata else { return Err(StorageError::NotAnObject { key }) };
        metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        let version = Arc::from(value["apiVersion"].as_str().unwrap_or_default());
        let value = Document::encode(value);
        Ok(Stored { bytes: value.bytes().clone(), key, revision, value, version })
    }

    /// Returns whether the object is stored in this `apiVersion`.
    pub(crate) fn is_of(&self, version: &str) -> bool {
        *self.version == *version
    }

    /// Returns an unparsed copy.
    pub(crate) fn unparsed(&self) -> Arc<Stored> {
        Arc::new(Stored {
            key: self.key.clone(),
            revision: self.revision,
            value: self.value.unparsed(),
            bytes: self.bytes.clone(),
            version: Arc::clone(&self.version),
        })
    }

    /// Returns a version that the caller can parse. A copy keeps the stored object unparsed.
    pub(crate) fn parsable_copy(self: &Arc<Stored>) -> Arc<Stored> {
        if self.value.is_unparsed() { self.unparsed() } else { Arc::clone(self) }
    }
}

/// Returns whether the value is nested at most `depth` levels. Visits no deeper levels.
fn is_within(value: &Value, depth: usize) -> bool {
    let fits = |inner| depth.checked_sub(1).is_some_and(|depth| is_within(inner, depth));
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(fits),
        Value::Object(fields) => depth > 0 && fields.values().all(fits),
        _ => true,
    }
}

impl Transition {
    /// Returns the revision of the write.
    pub fn revision(&self) -> u64 {
        self.now().revision
    }

    /// Returns the state after the write, or the last state at the revision of the deletion.
    pub fn now(&self) -> &Arc<Stored> {
        match self {
            Transition::Created { now } | Transition::Replaced { now, .. } => now,
            Transition::Removed { last, .. } => last,
        }
    }

    /// Returns the state before the write.
    pub fn before(&self) -> Option<&Arc<Stored>> {
        match self {
            Transition::Created { .. } => None,
            Transition::Replaced { before, .. } | Transition::Removed { before, .. } => Some(before),
        }
    }

    /// Returns the old state at the revision of this write, for watches that no longer select the object.
    pub fn leaving(&self) -> Arc<Stored> {
        match self {
            Transition::Created { now } => Arc::clone(now),
            Transition::Removed { last, .. } => Arc::clone(last),
            Transition::Replaced { before, now, left } => Arc::clone(left.get_or_init(|| {
                let value = before.value.read().into_owned();
                // An object that was stored can be stored again.
                let left = Stored::new(before.key.clone(), now.revision, value);
                left.map_or_else(|| Arc::clone(before), |left| left.unparsed())
            })),
        }
    }

    /// Returns an unparsed copy.
    fn unparsed(&self) -> Transition {
        match self {
            Transition::Created { now } => Transition::Created { now: now.unparsed() },
            Transition::Replaced { before, now, .. } => {
                Transition::Replaced { before: before.unparsed(), now: now.unparsed(), left: OnceLock::new() }
            }
            Transition::Removed { before, last } => {
                Transition::Removed { before: before.unparsed(), last: last.unparsed() }
            }
        }
    }
}
