//! Strategies of each kind for create, get, update, patch and delete.
//!
//! Guarantees:
//! - Writes are serialized: the data that a write has read is unchanged when the write commits.
//! - A write either commits one change of one object, with its consequences, or is rejected as by upstream.
//! - A write that changes nothing keeps its version.
//! - Reads do not wait for writes.
//! - Tokens are kept in memory only: they end with the registry, and a snapshot of the storage does not contain them.
//!
//! Non-goal: HTTP. Paths, media types and query parameters are decoded before they reach the registry.

mod autoscalers;
pub(crate) mod convert;
mod create;
mod custom;
mod definition;
mod delete;
mod field_labels;
mod initial;
mod internal;
mod invalid;
mod kinds;
mod labels;
mod meta;
mod names;
mod patch;
mod patched_text;
mod quantity;
mod quota;
mod request;
mod reviews;
mod scale;
mod served;
mod subresources;
#[cfg(test)]
mod tests;
mod token_requests;
mod tokens;
mod transform;
mod update;
mod value;
mod writer;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use windlass_env::Env;
use windlass_schema::{Catalog, ResourceInfo};

pub use self::request::{
    DeleteOptions, DeleteResponse, FieldValidation, PatchKind, Propagation, ResponseObject, Target,
    WriteOptions, WriteResponse,
};
use self::served::ServedResources;
use self::tokens::Tokens;
use self::writer::{State, WriteTransaction};
use crate::read::{FieldTable, ListOptions, Selection};
use crate::status::Status;
use crate::storage::Storage;
use crate::tables::CustomColumn;

/// The resources of one server and their strategies. Shared by all requests.
pub struct Registry {
    env: Env,
    storage: Arc<dyn Storage>,
    served: Mutex<Arc<ServedResources>>,
    tokens: Mutex<Tokens>,
    state: Mutex<State>,
    has_garbage_collector: bool,
}

impl Registry {
    /// Creates a registry for a storage. Serves the custom kinds of stored CustomResourceDefinitions, and creates the
    /// objects that every cluster has, unless they exist.
    pub fn new(env: &Env, storage: Arc<dyn Storage>, catalog: Catalog) -> Registry {
        let (tokens, state) = (Mutex::default(), Mutex::new(State { rng: env.rng("registry") }));
        let served = ServedResources { catalog: Arc::new(catalog), custom: BTreeMap::new() };
        let served = Mutex::new(Arc::new(served));
        let registry =
            Registry { env: env.clone(), storage, served, tokens, state, has_garbage_collector: true };
        let mut writer = registry.write();
        custom::load(&mut writer);
        if let Err(status) = initial::make(&mut writer) {
            tracing::error!(message = status.message, "initial objects not created");
        }
        drop(writer);
        registry
    }

    /// Returns the registry of a cluster with or without a garbage collector.
    #[must_use]
    pub fn with_garbage_collector(self, has_garbage_collector: bool) -> Registry {
        Registry { has_garbage_collector, ..self }
    }

    /// Returns the resources that are served now.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.served().catalog)
    }

    /// Returns the object, or the representation of a subresource.
    ///
    /// # Errors
    /// 404 if there is no such object, 405 if the subresource cannot be read.
    pub fn get(&self, from: &Target) -> Result<ResponseObject, Status> {
        let collection = convert::collection(&from.resource);
        let key = writer::key(&from.namespace, &from.name);
        let stored = self.storage.get(&collection, &key).ok_or_else(|| from.not_found())?;
        match from.subresource.as_str() {
            "" | "status" | "ephemeralcontainers" | "approval" | "resize" => {
                Ok(ResponseObject::Stored(stored))
            }
            "scale" => scale::of(&self.served(), from, &stored.value).map(ResponseObject::Value),
            _ => Err(Status::method_not_allowed(from.named(), "get")),
        }
    }

    /// Creates the object, or performs the action of a subresource.
    ///
    /// # Errors
    /// As upstream.
    pub fn create(&self, to: &Target, body: Value, options: &WriteOptions) -> Result<WriteResponse, Status> {
        let mut writer = self.write();
        let to = writer.current(to)?;
        writer.post(&to, body, options)
    }

    /// Replaces the object, or the part of it that a subresource represents.
    ///
    /// # Errors
    /// As upstream.
    pub fn update(&self, to: &Target, body: Value, options: &WriteOptions) -> Result<WriteResponse, Status> {
        let mut writer = self.write();
        let to = writer.current(to)?;
        writer.put(&to, body, options)
    }

    /// Returns whether an update of this target creates a missing object.
    pub fn creates_by_update(&self, to: &Target) -> bool {
        !to.is_subresource() && kinds::kind_of(&self.served(), &to.resource).create_on_update
    }

    /// Patches the object, or the part of it that a subresource represents.
    ///
    /// # Errors
    /// As upstream.
    pub fn patch(
        &self,
        to: &Target,
        kind: PatchKind,
        body: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let mut writer = self.write();
        let to = writer.current(to)?;
        writer.patch(&to, kind, &body, options)
    }

    /// Deletes the object, or marks it as terminating.
    ///
    /// # Errors
    /// As upstream.
    pub fn delete(&self, at: &Target, options: &DeleteOptions) -> Result<DeleteResponse, Status> {
        let mut writer = self.write();
        let at = writer.current(at)?;
        writer.delete(&at, options)
    }

    /// Deletes all selected objects and returns them as they were before.
    ///
    /// # Errors
    /// As upstream; objects deleted before the error stay deleted.
    pub fn delete_collection(
        &self,
        at: &Target,
        selection: &Selection,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<ResponseObject>, Status> {
        let mut writer = self.write();
        let at = writer.current(at)?;
        writer.delete_collection(&at, selection, list, options)
    }

    /// Returns the user of a token, unless the token has expired or its ServiceAccount was deleted.
    pub fn user(&self, token: &str) -> Option<String> {
        let now = self.env.wall();
        let owner = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).owner(token, now);
        owner?.user(&*self.storage)
    }

    /// Returns the fields by which objects can be selected.
    pub fn fields(&self, of: &ResourceInfo) -> FieldTable {
        match self.served().definition(of) {
            Some(definition) => definition.fields(&of.version),
            None => field_labels::of(of),
        }
    }

    /// Returns the columns of a custom resource; `None` for built-in resources.
    pub(crate) fn columns(&self, of: &ResourceInfo) -> Option<Vec<CustomColumn>> {
        self.served().definition(of).map(|it| it.columns(&of.version))
    }

    fn served(&self) -> Arc<ServedResources> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self) -> WriteTransaction<'_> {
        // Lock first: the served resources can change until the lock is held.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let served = self.served();
        let Registry { env, storage, served: live, tokens, has_garbage_collector, .. } = self;
        WriteTransaction {
            env,
            storage,
            live,
            served,
            tokens,
            state,
            has_garbage_collector: *has_garbage_collector,
            labels_are_shared: Cell::new(false),
            dry_run: false,
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
