//! A custom feed as a source: the program adds and removes the objects.
//!
//! Guarantees:
//! - Every change gets its own version, higher than all versions before it. Watches deliver the changes in that order.
//! - The history is bounded. A watch at a version before the history, or too far behind it, gets the `Expired` error of
//!   the API and relists.
//! - Failures of real sources can be simulated: lost connections and compaction.
//!
//! It supports no selectors except the namespace.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{self, Either};
use futures_util::stream;
use serde::Serialize;
use serde_json::Value;
use windlass_client::{FrameStream, RequestError, VersionMatch};
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_env::{Env, Instant};
use windlass_object::{Frame, ObjectKey, RawList, ResourceVersion, WireError, json, wire};

use super::{ListRequest, ListerWatcher, Selection, WatchListRequest, WatchRequest, api_errors};

/// A custom feed. Cheap to clone; clones share the same objects.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
/// use windlass_env::Env;
/// use windlass_informer::{FactoryOptions, InformerFactory, ObjectFeed, Selection};
/// use windlass_metrics::Metrics;
/// use windlass_object::ResourceKind;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let env = Env::virtual_time(1);
/// let feed = ObjectFeed::new(&env);
/// feed.upsert(&json!({"metadata": {"namespace": "default", "name": "greeting"}, "data": {"hello": "world"}}))?;
///
/// let factory = InformerFactory::new(env, Metrics::new(), FactoryOptions::default());
/// let informer = factory.typed::<ConfigMap>();
/// let source = feed.clone();
/// factory.start(Arc::new(move |_: &ResourceKind, selection: &Selection| source.selecting(selection)));
/// assert!(informer.synced().await);
/// assert_eq!(informer.lister().list().len(), 1);
/// # Ok::<(), windlass_informer::FeedError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ObjectFeed {
    shared: Arc<Shared>,
    /// The selection that the source returns; all objects are stored.
    selection: Selection,
}

/// The error for an invalid object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The object cannot be serialized as JSON.
    #[error("cannot serialize the object as JSON: {0}")]
    Encoding(String),
    /// The object has no name.
    #[error("invalid object for the feed: {0}; it needs metadata with a name")]
    MissingName(#[from] WireError),
}

struct Shared {
    env: Env,
    state: Mutex<State>,
    /// Counter of events that watches must check.
    changes: Sender<u64>,
}

struct State {
    version: u64,
    objects: BTreeMap<ObjectKey, StoredObject>,
    /// The latest changes, in order.
    history: VecDeque<Entry>,
    history_limit: usize,
    /// Number of entries removed from the history: the number of its first entry.
    left: u64,
    /// Changes up to this version are no longer in the history.
    forgotten: u64,
    /// The last disconnection of all watches.
    disconnection: Disconnection,
    watches: usize,
}

struct StoredObject {
    version: u64,
    raw: Bytes,
}

struct Entry {
    version: u64,
    /// The changed object; `None` for a bookmark.
    key: Option<ObjectKey>,
    frame: Frame,
}

#[derive(Clone, Default)]
struct Disconnection {
    count: u64,
    error: Option<RequestError>,
}

impl ObjectFeed {
    /// The default length of the history: longer than the backlog of any working reader, and small next to the objects.
    pub const HISTORY: usize = 1000;

    /// Creates an empty feed.
    pub fn new(env: &Env) -> Self {
        Self::with_history(env, Self::HISTORY)
    }

    /// Creates an empty feed that keeps this many changes.
    pub fn with_history(env: &Env, changes: usize) -> Self {
        let state = State {
            version: 1,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            history_limit: changes,
            left: 0,
            forgotten: 0,
            disconnection: Disconnection::default(),
            watches: 0,
        };
        let shared = Shared { env: env.clone(), state: Mutex::new(state), changes: channel(0).0 };
        Self { shared: Arc::new(shared), selection: Selection::default() }
    }

    /// Returns a source of the selected objects. With a label or field selector, every request to the source fails.
    pub fn selecting(&self, selection: &Selection) -> Arc<dyn ListerWatcher> {
        Arc::new(Self { shared: Arc::clone(&self.shared), selection: selection.clone() })
    }

    /// Adds or replaces an object and returns its new version.
    ///
    /// # Errors
    ///
    /// Returns [`FeedError`] if the object is invalid; the feed is then unchanged.
    pub fn upsert(&self, object: &impl Serialize) -> Result<ResourceVersion, FeedError> {
        let object = to_json(object)?;
        let put = self.shared.lock().put(object)?;
        self.shared.notify_watches();
        Ok(put)
    }

    /// Removes an object; returns the version of the deletion, `None` if the object did not exist.
    pub fn delete(&self, key: &ObjectKey) -> Option<ResourceVersion> {
        let deleted = self.shared.lock().delete(key);
        self.shared.notify_watches();
        deleted
    }

    /// Replaces all objects and returns the new version. Watches receive the differences.
    ///
    /// # Errors
    ///
    /// Returns [`FeedError`] if an object is invalid; the feed is then unchanged.
    pub fn replace<T: Serialize>(
        &self,
        objects: impl IntoIterator<Item = T>,
    ) -> Result<ResourceVersion, FeedError> {
        let mut wanted = BTreeMap::new();
        for object in objects {
            let object = to_json(&object)?;
            wanted.insert(with_version(object.clone(), 1)?.0, object);
        }
        let mut state = self.shared.lock();
        let gone: Vec<_> = state.objects.keys().filter(|key| !wanted.contains_key(key)).cloned().collect();
        for key in gone {
            state.delete(&key);
        }
        for object in wanted.into_values() {
            state.put(object)?;
        }
        let version = state.resource_version();
        drop(state);
        self.shared.notify_watches();
        Ok(version)
    }

    /// Sends a bookmark to every watch.
    pub fn bookmark(&self) {
        let mut state = self.shared.lock();
        let frame = Frame::Bookmark { version: state.resource_version(), initial_events_end: false };
        state.append_history(None, frame);
        drop(state);
        self.shared.notify_watches();
    }

    /// Clears the history, as servers do after some minutes.
    pub fn compact(&self) {
        let mut state = self.shared.lock();
        state.trim_history(0);
        state.forgotten = state.version;
        drop(state);
        self.shared.notify_watches();
    }

    /// Ends every watch: with this error, or normally as after a timeout.
    pub fn end_watches(&self, error: Option<RequestError>) {
        let mut state = self.shared.lock();
        state.disconnection = Disconnection { count: state.disconnection.count + 1, error };
        drop(state);
        self.shared.notify_watches();
    }

    /// Returns the number of open watches.
    pub fn watch_count(&self) -> usize {
        self.shared.lock().watches
    }

    /// Returns the version of the last change.
    pub fn version(&self) -> ResourceVersion {
        self.shared.lock().resource_version()
    }

    /// Validates the selection and locks the state, before every request.
    fn admit(&self) -> Result<MutexGuard<'_, State>, RequestError> {
        if self.selection.labels.is_some() || self.selection.fields.is_some() {
            return Err(RequestError::Unsupported("a feed does not support label and field selectors"));
        }
        Ok(self.shared.lock())
    }

    fn selects(&self, key: &ObjectKey) -> bool {
        self.selection.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace))
    }

    fn selected(&self, state: &State) -> Vec<Bytes> {
        let selected = state.objects.iter().filter(|(key, _)| self.selects(key));
        selected.map(|(_, held)| held.raw.clone()).collect()
    }

    /// Returns the entries after the first `read` entries, until `timeout`.
    fn follow(&self, mut state: MutexGuard<'_, State>, read: u64, timeout: Duration) -> FrameStream {
        state.watches += 1;
        let cut = state.disconnection.count;
        drop(state);
        let (source, changes) = (self.clone(), self.shared.changes.subscribe());
        let until = self.shared.env.now() + timeout;
        let reader = Reader { source, changes, read, disconnection: cut, until, over: false };
        stream::unfold(reader, |mut reader| async { reader.next().await.map(|next| (next, reader)) }).boxed()
    }
}

/// The stream state of one watch.
struct Reader {
    source: ObjectFeed,
    changes: Receiver<u64>,
    /// Number of entries that the watch has passed.
    read: u64,
    /// Number of disconnections when the watch was opened.
    disconnection: u64,
    until: Instant,
    over: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<Frame, RequestError>> {
        loop {
            if self.over {
                return None;
            }
            if let Some(next) = self.ready() {
                return next;
            }
            let timer = self.source.shared.env.sleep_until(self.until);
            match future::select(pin!(self.changes.changed()), pin!(timer)).await {
                Either::Left((Ok(_), _)) => {}
                Either::Left((Err(_), _)) | Either::Right(_) => return None,
            }
        }
    }

    /// Returns the next result that is available without waiting.
    fn ready(&mut self) -> Option<Option<Result<Frame, RequestError>>> {
        let source = self.source.clone();
        let state = source.shared.lock();
        loop {
            if self.read < state.left {
                self.over = true;
                return Some(Some(Ok(Frame::Error(Box::new(api_errors::expired())))));
            }
            let at = usize::try_from(self.read - state.left).unwrap_or(usize::MAX);
            let Some(entry) = state.history.get(at) else { break };
            self.read += 1;
            if entry.key.as_ref().is_none_or(|key| source.selects(key)) {
                return Some(Some(Ok(entry.frame.clone())));
            }
        }
        if state.disconnection.count > self.disconnection {
            self.over = true;
            return Some(state.disconnection.error.clone().map(Err));
        }
        None
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.source.shared.lock().watches -= 1;
    }
}

impl Shared {
    fn notify_watches(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Locks the state. No foreign code runs under this lock, so a poisoned lock is still consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn resource_version(&self) -> ResourceVersion {
        ResourceVersion::new(&self.version.to_string())
    }

    fn put(&mut self, object: Value) -> Result<ResourceVersion, FeedError> {
        let (key, raw) = with_version(object.clone(), self.version + 1)?;
        if let Some(held) = self.objects.get(&key)
            && with_version(object, held.version)?.1 == held.raw
        {
            return Ok(ResourceVersion::new(&held.version.to_string()));
        }
        self.version += 1;
        let held = StoredObject { version: self.version, raw: raw.clone() };
        let frame = match self.objects.insert(key.clone(), held) {
            Some(_) => Frame::Modified(raw),
            None => Frame::Added(raw),
        };
        self.append_history(Some(key), frame);
        Ok(self.resource_version())
    }

    fn delete(&mut self, key: &ObjectKey) -> Option<ResourceVersion> {
        let held = self.objects.remove(key)?;
        self.version += 1;
        let last =
            serde_json::from_slice(&held.raw).ok().and_then(|last| with_version(last, self.version).ok());
        let (_, raw) = last.unwrap_or_else(|| (key.clone(), held.raw));
        self.append_history(Some(key.clone()), Frame::Deleted(raw));
        Some(self.resource_version())
    }

    fn append_history(&mut self, key: Option<ObjectKey>, frame: Frame) {
        self.history.push_back(Entry { version: self.version, key, frame });
        self.trim_history(self.history_limit);
    }

    /// Removes all but the last `keep` entries.
    fn trim_history(&mut self, keep: usize) {
        while self.history.len() > keep {
            if let Some(entry) = self.history.pop_front() {
                self.left += 1;
                self.forgotten = self.forgotten.max(entry.version);
            }
        }
    }

    /// Returns the number of entries up to this version; `None` if later entries were removed.
    fn read_up_to(&self, version: u64) -> Option<u64> {
        let known = version >= self.forgotten && version <= self.version;
        let passed = self.history.iter().take_while(|entry| entry.version <= version).count();
        known.then(|| self.left + passed as u64)
    }

    fn end(&self) -> u64 {
        self.left + self.history.len() as u64
    }

    /// Rejects a list at a version that does not exist or no longer exists.
    fn check(&self, version: Option<&str>, matching: Option<VersionMatch>) -> Result<(), RequestError> {
        let Some(wanted) = version.filter(|version| !matches!(*version, "" | "0")) else { return Ok(()) };
        let wanted: u64 = wanted.parse().map_err(|_| api_errors::error(api_errors::expired()))?;
        match matching {
            _ if wanted > self.version => Err(api_errors::error(api_errors::too_large(wanted, self.version))),
            Some(VersionMatch::Exact) if wanted != self.version => {
                Err(api_errors::error(api_errors::expired()))
            }
            _ => Ok(()),
        }
    }
}

fn to_json(object: &impl Serialize) -> Result<Value, FeedError> {
    json::value(object).map_err(|error| FeedError::Encoding(error.to_string()))
}

/// Returns the key of the object and its JSON at this version.
fn with_version(mut object: Value, version: u64) -> Result<(ObjectKey, Bytes), FeedError> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), Value::String(version.to_string()));
    }
    let raw = Bytes::from(object.to_string());
    Ok((wire::object_header(&raw)?.key, raw))
}

#[async_trait]
impl ListerWatcher for ObjectFeed {
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError> {
        let state = self.admit()?;
        state.check(request.version.as_deref(), request.version_match)?;
        let items = self.selected(&state);
        Ok(RawList { version: Some(state.resource_version()), items, ..RawList::default() })
    }

    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError> {
        let state = self.admit()?;
        let read = request.version.parse().ok().and_then(|version| state.read_up_to(version));
        let read = read.ok_or_else(|| api_errors::error(api_errors::expired()))?;
        Ok(self.follow(state, read, request.timeout))
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<FrameStream, RequestError> {
        let state = self.admit()?;
        state.check(request.not_older_than.as_deref(), None)?;
        let there = self.selected(&state).into_iter().map(Frame::Added);
        let end = Frame::Bookmark { version: state.resource_version(), initial_events_end: true };
        let initial: Vec<_> = there.chain([end]).map(Ok).collect();
        let read = state.end();
        Ok(stream::iter(initial).chain(self.follow(state, read, request.timeout)).boxed())
    }
}

impl fmt::Debug for ObjectFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("ObjectFeed")
            .field("version", &state.version)
            .field("objects", &state.objects.len())
            .field("watches", &state.watches)
            .field("selection", &self.selection)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
