//! The transaction of one write: its reads and changes.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use windlass_env::{Env, Rng};
use windlass_schema::ResourceInfo;

use super::definition::Definition;
use super::replay::Replay;
use super::request::{ResponseObject, Target};
use super::served::ServedResources;
use super::tokens::Tokens;
use super::{autoscalers, convert, value};
use crate::expressions::Conditions;
use crate::status::{ResourceName, Status};
use crate::storage::{Change, Collection, Key, Precondition, Storage, StorageError, Stored};

/// A transaction, which holds the registry's lock.
pub(crate) struct WriteTransaction<'a> {
    pub(crate) storage: &'a Arc<dyn Storage>,
    pub(crate) live: &'a Mutex<Arc<ServedResources>>,
    pub(crate) served: Arc<ServedResources>,
    pub(crate) tokens: &'a Mutex<Tokens>,
    pub(crate) state: MutexGuard<'a, State>,
    pub(crate) has_garbage_collector: bool,
    /// Whether Pods need an existing ServiceAccount.
    pub(crate) admits_by_account: bool,
    /// Whether the labels of a job are those of its template: upstream then stores both in one map.
    pub(crate) labels_are_shared: Cell<bool>,
    /// Whether the current write is a dry run.
    pub(crate) dry_run: bool,
    /// Responses of webhooks, and the values that the write must have again when it starts again.
    pub(crate) replay: RefCell<Replay>,
    /// Warnings of the webhooks that reviewed a deletion.
    pub(crate) warnings: Vec<String>,
}

/// State of writes apart from the storage. One write at a time holds it.
pub(crate) struct State {
    pub(crate) rng: Rng,
    pub(crate) conditions: Conditions,
}

impl State {
    pub(crate) fn new(env: &Env) -> State {
        State { rng: env.rng("registry"), conditions: Conditions::default() }
    }
}

/// Returns the key of an object.
pub(crate) fn key(namespace: &str, name: &str) -> Key {
    Key::new(namespace, name)
}

/// Formats a time as in metadata: whole seconds.
pub(crate) fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

impl WriteTransaction<'_> {
    /// Returns the time of the write in whole seconds.
    pub(crate) fn now(&self) -> String {
        seconds(self.time())
    }

    /// Returns the wall time at which the write began.
    pub(crate) fn time(&self) -> Timestamp {
        self.replay.borrow().begun()
    }

    /// Returns a new UID.
    pub(crate) fn identifier(&mut self) -> String {
        self.replay.get_mut().draw(|| self.state.rng.identifier())
    }

    /// Returns a random number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        let drawn = self.replay.get_mut().draw(|| self.state.rng.below(n).to_string());
        drawn.parse().unwrap_or_default()
    }

    /// Returns a built-in resource in the version that this server writes.
    pub(crate) fn built_in(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Result<Arc<ResourceInfo>, Status> {
        let found = self.served.catalog.resource(group, version, plural).cloned();
        found.ok_or_else(|| Status::internal(format!("{plural} of {group}/{version} are not described")))
    }

    /// Returns the CRD of a custom resource.
    pub(crate) fn definition(&self, resource: &ResourceInfo) -> Option<Arc<Definition>> {
        self.served.definition(resource).cloned()
    }

    /// Returns a stored object.
    pub(crate) fn find(&self, collection: &Collection, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.storage.get(collection, &key(namespace, name))
    }

    /// Returns the stored objects of a namespace, or of all namespaces if `namespace` is empty.
    pub(crate) fn all(&self, collection: &Collection, namespace: &str) -> Vec<Arc<Stored>> {
        let Ok(snapshot) = self.storage.read(collection, None) else {
            // The latest revision is always kept.
            return Vec::new();
        };
        let wanted = |it: &&Arc<Stored>| namespace.is_empty() || &*it.key.namespace == namespace;
        snapshot.objects.values().filter(wanted).cloned().collect()
    }

    /// Stores a new object. With `dry_run`, returns the object without storing it.
    pub(crate) fn insert(
        &self,
        of: &ResourceInfo,
        object: Value,
        dry_run: bool,
    ) -> Result<ResponseObject, Status> {
        let collection = convert::collection(of);
        let place = key(
            value::text(&object, &["metadata", "namespace"]),
            value::text(&object, &["metadata", "name"]),
        );
        if dry_run {
            return match self.storage.get(&collection, &place) {
                None => Ok(ResponseObject::Value(object)),
                Some(found) => Err(exists(of, &place, Some(&found))),
            };
        }
        let change = Change::Put(kept(object, None));
        self.commit(of, &collection, &place, Precondition::Absent, change).map(ResponseObject::Stored)
    }

    /// Stores a changed object. An unchanged object keeps its version.
    pub(crate) fn replace(
        &self,
        of: &ResourceInfo,
        old: &Arc<Stored>,
        mut object: Value,
        dry_run: bool,
    ) -> Result<ResponseObject, Status> {
        value::set(&mut object, &["metadata", "resourceVersion"], old.revision.to_string());
        if object == old.value {
            return Ok(ResponseObject::Stored(Arc::clone(old)));
        }
        if dry_run {
            return Ok(ResponseObject::Value(object));
        }
        let (object, expected) = (kept(object, Some(&old.value)), Precondition::Revision(old.revision));
        self.commit(of, &convert::collection(of), &old.key, expected, Change::Put(object))
            .map(ResponseObject::Stored)
    }

    /// Removes an object. Watches get its last state.
    pub(crate) fn erase(
        &self,
        of: &ResourceInfo,
        old: &Arc<Stored>,
        last: Value,
    ) -> Result<Arc<Stored>, Status> {
        let expected = Precondition::Revision(old.revision);
        self.commit(of, &convert::collection(of), &old.key, expected, Change::Delete(last))
    }

    /// Replaces the served resources.
    pub(crate) fn publish(&mut self, served: ServedResources) {
        self.served = Arc::new(served);
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&self.served);
    }

    /// Returns the target as it is served now: its CRD can have changed or disappeared since the path was parsed.
    pub(crate) fn current<'t>(&self, to: &'t Target) -> Result<Cow<'t, Target>, Status> {
        let of = &to.resource;
        let found = self.served.catalog.resource(&of.group, &of.version, &of.plural);
        let found = found.ok_or_else(Status::no_such_path)?;
        if to.is_subresource() && !found.subresources.contains_key(&to.subresource) {
            return Err(Status::no_such_path());
        }
        if Arc::ptr_eq(found, of) {
            return Ok(Cow::Borrowed(to));
        }
        Ok(Cow::Owned(Target { resource: Arc::clone(found), ..to.clone() }))
    }

    fn commit(
        &self,
        of: &ResourceInfo,
        collection: &Collection,
        place: &Key,
        precondition: Precondition,
        change: Change,
    ) -> Result<Arc<Stored>, Status> {
        let named = ResourceName { group: &of.group, resource: &of.plural };
        self.storage.commit(collection, place, precondition, change).map_err(|error| match error {
            StorageError::Exists { .. } => exists(of, place, self.storage.get(collection, place).as_deref()),
            StorageError::Missing { .. } => Status::not_found(named, &place.name),
            StorageError::Conflict { .. } => Status::conflict(named, &place.name, MODIFIED),
            StorageError::TooDeep { .. } => Status::bad_request(error.to_string()),
            other => Status::internal(other),
        })
    }
}

/// Error message for an update from an older version.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Converts an object to its storage version and sets that version's defaults.
fn kept(object: Value, old: Option<&Value>) -> Value {
    let converted = match convert::kept(&object, old) {
        Cow::Borrowed(_) => None,
        Cow::Owned(converted) => Some(converted),
    };
    let Some(mut converted) = converted else { return object };
    autoscalers::defaults(&mut converted);
    converted
}

fn exists(of: &ResourceInfo, place: &Key, found: Option<&Stored>) -> Status {
    let mut status =
        Status::already_exists(ResourceName { group: &of.group, resource: &of.plural }, &place.name);
    if found.is_some_and(|it| value::has(&it.value, &["metadata", "deletionTimestamp"])) {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}
