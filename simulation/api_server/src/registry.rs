//! What each kind does when it is created, read, updated, patched and deleted.
//!
//! Guarantees:
//! - Writes are serialized: what a write read is still so when it is committed.
//! - A write either commits one change of one object, with what follows from it, or is refused as upstream refuses it.
//! - A write that changes nothing keeps its version.
//! - Reads wait for no write.
//! - What is told to nobody but the caller is kept in memory only: tokens end with the registry, and a snapshot of the
//!   storage does not hold them.
//!
//! It refuses to know of HTTP: paths, media types and query parameters have become values before they come here.

mod autoscalers;
pub(crate) mod convert;
mod create;
mod custom;
mod definition;
mod delete;
mod field_labels;
mod initial;
mod invalid;
mod kinds;
mod labels;
mod meta;
mod names;
mod patch;
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

/// The resources of one server and what they do. Shared by all requests.
pub struct Registry {
    env: Env,
    storage: Arc<dyn Storage>,
    served: Mutex<Arc<ServedResources>>,
    tokens: Mutex<Tokens>,
    state: Mutex<State>,
}

impl Registry {
    /// A registry over what is stored. Definitions of custom kinds that are stored already are served at once, and the
    /// objects that every cluster has are made if they are not there.
    pub fn new(env: &Env, storage: Arc<dyn Storage>, catalogue: Catalog) -> Registry {
        let (tokens, state) = (Mutex::default(), Mutex::new(State { rng: env.rng("registry") }));
        let served = ServedResources { catalogue: Arc::new(catalogue), custom: BTreeMap::new() };
        let served = Mutex::new(Arc::new(served));
        let registry = Registry { env: env.clone(), storage, served, tokens, state };
        let mut writer = registry.write();
        custom::load(&mut writer);
        if let Err(status) = initial::make(&mut writer) {
            tracing::error!(message = status.message, "what every cluster has could not be made");
        }
        drop(writer);
        registry
    }

    /// The resources served now.
    pub fn catalogue(&self) -> Arc<Catalog> {
        Arc::clone(&self.served().catalogue)
    }

    /// The object, or what a subresource shows of it.
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

    /// Creates the object, or what posting to a subresource means.
    ///
    /// # Errors
    /// As upstream refuses it.
    pub fn create(&self, to: &Target, body: Value, options: &WriteOptions) -> Result<WriteResponse, Status> {
        let mut writer = self.write();
        let to = writer.current(to)?;
        writer.post(&to, body, options)
    }

    /// Replaces the object, or the part of it that a subresource stands for.
    ///
    /// # Errors
    /// As upstream refuses it.
    pub fn update(&self, to: &Target, body: Value, options: &WriteOptions) -> Result<WriteResponse, Status> {
        let mut writer = self.write();
        let to = writer.current(to)?;
        writer.put(&to, body, options)
    }

    /// Whether an update of this target creates it if it is absent.
    pub fn creates_by_update(&self, to: &Target) -> bool {
        !to.is_subresource() && kinds::kind_of(&self.served(), &to.resource).create_on_update
    }

    /// Patches the object, or the part of it that a subresource stands for.
    ///
    /// # Errors
    /// As upstream refuses it.
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

    /// Deletes the object, or begins to.
    ///
    /// # Errors
    /// As upstream refuses it.
    pub fn delete(&self, at: &Target, options: &DeleteOptions) -> Result<DeleteResponse, Status> {
        let mut writer = self.write();
        let at = writer.current(at)?;
        writer.delete(&at, options)
    }

    /// Deletes every object that is selected, and returns them as they were found.
    ///
    /// # Errors
    /// As upstream refuses it; what was deleted before stays deleted.
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

    /// The user that a token was made out for, unless it has expired or its account is gone.
    pub fn user(&self, token: &str) -> Option<String> {
        let now = self.env.wall();
        let owner = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).owner(token, now);
        owner?.user(&*self.storage)
    }

    /// By which fields objects can be selected.
    pub fn fields(&self, of: &ResourceInfo) -> FieldTable {
        match self.served().definition(of) {
            Some(definition) => definition.fields(&of.version),
            None => field_labels::of(of),
        }
    }

    /// The columns of a custom resource; nothing for built-in ones.
    pub(crate) fn columns(&self, of: &ResourceInfo) -> Option<Vec<CustomColumn>> {
        self.served().definition(of).map(|it| it.columns(&of.version))
    }

    fn served(&self) -> Arc<ServedResources> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self) -> WriteTransaction<'_> {
        // The lock comes first: what is served may change until it is held.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let served = self.served();
        let Registry { env, storage, served: live, tokens, .. } = self;
        WriteTransaction { env, storage, live, served, tokens, state }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
