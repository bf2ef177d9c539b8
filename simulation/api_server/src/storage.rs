//! Where objects are kept, in every version that watches may still ask for.
//!
//! Guarantees:
//! - Every write takes exactly one global revision, and `metadata.resourceVersion` says which.
//! - An object is encoded once, when it is written; whoever reads or watches it shares those bytes.
//! - What a reader holds never changes, and costs a writer nothing.
//! - Observers are woken in registration order. A slow one never delays a write: it is told that what it missed is
//!   no longer kept.
//!
//! It refuses to judge objects: defaults, validation and what follows from a write are the registry's.

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

/// Which collection an object belongs to. Versions of one kind share one collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Collection {
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The plural name.
    pub resource: Arc<str>,
}

/// Where an object is kept. Ordered as `namespace/name` is, which is the order in which upstream lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    pub value: Document,
    /// The object as JSON.
    pub bytes: Bytes,
    /// Its `apiVersion`, for who must not take it apart.
    version: Arc<str>,
}

/// What must be so for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// There is no such object.
    Absent,
    /// The object is of this revision.
    Revision(u64),
}

/// What a write does.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The object is this from now on.
    Put(Value),
    /// The object is gone; this was its last state.
    Delete(Value),
}

/// What a write did to one object, as watches tell it.
#[derive(Debug)]
pub enum Transition {
    /// The object is new.
    Created {
        /// What it is.
        now: Arc<Stored>,
    },
    /// The object changed.
    Replaced {
        /// What it was.
        before: Arc<Stored>,
        /// What it is.
        now: Arc<Stored>,
        /// What it was, at the revision of this write; made when first asked for.
        left: OnceLock<Arc<Stored>>,
    },
    /// The object is gone.
    Removed {
        /// What it was.
        before: Arc<Stored>,
        /// Its last state, at the revision of its deletion.
        last: Arc<Stored>,
    },
}

/// One collection as it was at one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The global revision at which this is the truth.
    pub revision: u64,
    /// Every object of the collection.
    pub objects: OrdMap<Key, Arc<Stored>>,
}

/// Why storage did not do as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The object is already there.
    #[error("{key} is already there, at revision {found}")]
    Exists {
        /// The object.
        key: Key,
        /// Its revision.
        found: u64,
    },
    /// There is no such object.
    #[error("{key} is not there")]
    Missing {
        /// The object.
        key: Key,
    },
    /// The object has changed.
    #[error("{key} is at revision {found}, not at {expected}: read it again")]
    Conflict {
        /// The object.
        key: Key,
        /// The revision the writer knew.
        expected: u64,
        /// The revision it is at.
        found: u64,
    },
    /// The revision is no longer kept.
    #[error("revision {asked} is no longer kept, the oldest is {floor}: list again")]
    Compacted {
        /// The revision asked for.
        asked: u64,
        /// The oldest revision kept.
        floor: u64,
    },
    /// The revision is yet to come.
    #[error("revision {asked} is yet to come, the present one is {current}")]
    Future {
        /// The revision asked for.
        asked: u64,
        /// The present one.
        current: u64,
    },
    /// What was to be written is nested too deeply to be read again.
    #[error("{key} cannot be written: lists and objects in it are nested more than {MAX} deep")]
    TooDeep {
        /// Where it was to be kept.
        key: Key,
    },
    /// What was to be written is not an object with metadata.
    #[error("{key} cannot be written: it is no object with metadata")]
    NotAnObject {
        /// Where it was to be kept.
        key: Key,
    },
}

/// How deep lists and objects may be nested in what is kept. JSON is read 127 deep, here and by clients; a table puts
/// three levels around an object, a list two and a watch one.
const MAX: usize = 124;

/// A place for objects and their history.
pub trait Storage: fmt::Debug + Send + Sync {
    /// The revision of the latest write.
    fn revision(&self) -> u64;

    /// The oldest revision that can still be read. It can be watched from, too; older ones only where nothing was
    /// written since that is forgotten.
    fn floor(&self) -> u64;

    /// The object as it is now.
    fn get(&self, collection: &Collection, key: &Key) -> Option<Arc<Stored>>;

    /// The collection as it was at a revision, or as it is now.
    ///
    /// # Errors
    /// [`StorageError::Compacted`] and [`StorageError::Future`].
    fn read(&self, collection: &Collection, at: Option<u64>) -> Result<Snapshot, StorageError>;

    /// Writes one object at the next revision, and tells the collection's observers.
    ///
    /// Sets `metadata.resourceVersion`, in the value and in the bytes. Returns the object, or what was its last
    /// state, as it will be told.
    ///
    /// # Errors
    /// When the object is not as expected, or is none; nothing has happened then, and no revision is used up.
    fn commit(
        &self,
        collection: &Collection,
        key: &Key,
        expected: Precondition,
        change: Change,
    ) -> Result<Arc<Stored>, StorageError>;

    /// At most `most` of the collection's changes after one revision and up to another, oldest first.
    ///
    /// # Errors
    /// [`StorageError::Compacted`] when one of them is no longer kept.
    fn changes(
        &self,
        collection: &Collection,
        after: u64,
        through: u64,
        most: usize,
    ) -> Result<Vec<Arc<Transition>>, StorageError>;

    /// Forgets what was before a revision. Reads from before it are refused from then on, and so are watches that
    /// would miss something.
    fn compact(&self, revision: u64);

    /// Restores the state at an earlier revision, as from a backup: later writes are undone, and their revisions are
    /// assigned again. No history before that revision remains. Observers of collections are closed.
    ///
    /// # Errors
    /// [`StorageError::Compacted`] and [`StorageError::Future`].
    fn restore(&self, revision: u64) -> Result<(), StorageError>;

    /// Wakes after every write to the collection, or to any, with its revision.
    fn observe(&self, collection: Option<&Collection>) -> Receiver<u64>;
}

impl Collection {
    /// The collection of a group's resource.
    pub fn new(group: impl Into<Arc<str>>, resource: impl Into<Arc<str>>) -> Collection {
        Collection { group: group.into(), resource: resource.into() }
    }
}

impl Key {
    /// The place of an object; the namespace is empty for kinds of the cluster.
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
        // Where one namespace ends and the other continues, the slash after it is compared: "a-b/x" is before "a/x".
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
    /// `value` as it is kept at `revision`: versioned, and encoded. Nothing if it is no object with metadata, or nested
    /// too deeply.
    pub fn new(key: Key, revision: u64, value: Value) -> Option<Stored> {
        Stored::encode(key, revision, value).ok()
    }

    /// The same, with the reason why not.
    fn encode(key: Key, revision: u64, mut value: Value) -> Result<Stored, StorageError> {
        if !is_within(&value, MAX) {
            return Err(StorageError::TooDeep { key });
        }
        let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
        let Some(metadata) = metadata else { return Err(StorageError::NotAnObject { key }) };
        metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        let version = Arc::from(value["apiVersion"].as_str().unwrap_or_default());
        let value = Document::encode(value);
        Ok(Stored { bytes: value.bytes().clone(), key, revision, value, version })
    }

    /// Whether it is kept in this `apiVersion`.
    pub(crate) fn is_of(&self, version: &str) -> bool {
        *self.version == *version
    }

    /// The same, not taken apart.
    pub(crate) fn folded(&self) -> Arc<Stored> {
        Arc::new(Stored {
            key: self.key.clone(),
            revision: self.revision,
            value: self.value.unparsed(),
            bytes: self.bytes.clone(),
            version: Arc::clone(&self.version),
        })
    }

    /// The same, for someone who may take it apart: what is not, is not because of him.
    pub(crate) fn lent(self: &Arc<Stored>) -> Arc<Stored> {
        if self.value.is_unparsed() { self.folded() } else { Arc::clone(self) }
    }
}

/// Whether lists and objects are nested no deeper than that. It walks no deeper either.
fn is_within(value: &Value, depth: usize) -> bool {
    let fits = |inner| depth.checked_sub(1).is_some_and(|depth| is_within(inner, depth));
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(fits),
        Value::Object(fields) => depth > 0 && fields.values().all(fits),
        _ => true,
    }
}

impl Transition {
    /// The revision of the write.
    pub fn revision(&self) -> u64 {
        self.now().revision
    }

    /// The object as it is after the write, or its last state at the revision of its deletion.
    pub fn now(&self) -> &Arc<Stored> {
        match self {
            Transition::Created { now } | Transition::Replaced { now, .. } => now,
            Transition::Removed { last, .. } => last,
        }
    }

    /// The object as it was before.
    pub fn before(&self) -> Option<&Arc<Stored>> {
        match self {
            Transition::Created { .. } => None,
            Transition::Replaced { before, .. } | Transition::Removed { before, .. } => Some(before),
        }
    }

    /// The object as someone sees it leave: as it was, at the revision of this write.
    pub fn leaving(&self) -> Arc<Stored> {
        match self {
            Transition::Created { now } => Arc::clone(now),
            Transition::Removed { last, .. } => Arc::clone(last),
            Transition::Replaced { before, now, left } => Arc::clone(left.get_or_init(|| {
                let value = before.value.read().into_owned();
                // What has been stored once can be stored again.
                let left = Stored::new(before.key.clone(), now.revision, value);
                left.map_or_else(|| Arc::clone(before), |left| left.folded())
            })),
        }
    }

    /// The same, not taken apart.
    fn folded(&self) -> Transition {
        match self {
            Transition::Created { now } => Transition::Created { now: now.folded() },
            Transition::Replaced { before, now, .. } => {
                Transition::Replaced { before: before.folded(), now: now.folded(), left: OnceLock::new() }
            }
            Transition::Removed { before, last } => {
                Transition::Removed { before: before.folded(), last: last.folded() }
            }
        }
    }
}
