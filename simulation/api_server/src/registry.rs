//! Strategies of each kind for create, get, update, patch and delete.
//!
//! Guarantees:
//! - Writes are serialized: the data that a write has read is unchanged when the write commits. A write that waits for
//!   a webhook starts again after the response.
//! - A write either commits one change of one object, with its consequences, or is rejected as by upstream.
//! - A write that waits for webhooks ends at the time limit of the request with 504, and changes nothing.
//! - A write that changes nothing keeps its version.
//! - Reads do not wait for writes.
//! - Tokens are kept in memory only: they end with the registry, and a snapshot of the storage does not contain them.
//!
//! Non-goal: HTTP. Paths, media types and query parameters are decoded before they reach the registry.

mod admission;
mod autoscalers;
mod conversion;
mod conversion_review;
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
mod replay;
mod request;
mod reviews;
mod rules;
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

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future;
use serde_json::Value;
use windlass_env::Env;
use windlass_schema::{Catalog, ResourceInfo};

use self::replay::{Answer, Call, Replay};
pub use self::request::{
    DeleteOptions, DeleteResponse, Deleted, FieldValidation, PatchKind, Propagation, ResponseObject, Target,
    WriteOptions, WriteResponse,
};
use self::served::ServedResources;
use self::tokens::Tokens;
use self::writer::{State, WriteTransaction};
use crate::read::{FieldTable, ListOptions, Selection};
use crate::status::Status;
use crate::storage::{Storage, Stored};
use crate::tables::CustomColumn;
use crate::webhooks::{WebhookHandler, WebhookHandlers};

/// Time limit of a write, as upstream.
const WRITE_LIMIT: Duration = Duration::from_secs(34);

/// Time limit of the deletion of a collection: that of all requests of upstream.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// The resources of one server and their strategies. Shared by all requests.
pub struct Registry {
    env: Env,
    storage: Arc<dyn Storage>,
    served: Mutex<Arc<ServedResources>>,
    tokens: Mutex<Tokens>,
    state: Mutex<State>,
    has_garbage_collector: bool,
    admits_by_account: bool,
    webhooks: WebhookHandlers,
}

impl Registry {
    /// Creates a registry for a storage. Serves the custom kinds of stored CustomResourceDefinitions, and creates the
    /// objects that every cluster has, unless they exist.
    pub fn new(env: &Env, storage: Arc<dyn Storage>, catalog: Catalog) -> Registry {
        let (tokens, state) = (Mutex::default(), Mutex::new(State::new(env)));
        let served = ServedResources { catalog: Arc::new(catalog), custom: BTreeMap::new() };
        let served = Mutex::new(Arc::new(served));
        let (env, webhooks) = (env.clone(), WebhookHandlers::default());
        let (has_garbage_collector, admits_by_account) = (true, false);
        let registry = Registry {
            env,
            storage,
            served,
            tokens,
            state,
            has_garbage_collector,
            admits_by_account,
            webhooks,
        };
        let mut writer = registry.begin(Replay::new(registry.env.wall()));
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

    /// Returns the registry of a cluster in which Pods need an existing ServiceAccount, or not.
    #[must_use]
    pub fn with_service_account_admission(self, admits_by_account: bool) -> Registry {
        Registry { admits_by_account, ..self }
    }

    /// Returns the resources that are served now.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.served().catalog)
    }

    /// Returns the object, or the representation of a subresource, in its storage version.
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

    /// Returns the same as [`get`](Self::get), in the version of the resource if a webhook converts it.
    ///
    /// # Errors
    /// See [`get`](Self::get), and the error of the conversion.
    ///
    /// # Cancel safety
    /// Dropping the future drops the calls.
    pub async fn get_converted(&self, from: &Target) -> Result<ResponseObject, Status> {
        if from.subresource != "scale" || !self.converts(&from.resource) {
            return self.object_in_version_of(from, self.get(from)?).await;
        }
        let whole = Target { subresource: String::new(), ..from.clone() };
        let object = self.object_in_version_of(&whole, self.get(&whole)?).await?;
        scale::of(&self.served(), from, object.value()).map(ResponseObject::Value)
    }

    /// Creates the object, or performs the action of a subresource.
    ///
    /// # Errors
    /// As upstream.
    ///
    /// # Cancel safety
    /// Dropping the future while it waits for a webhook cancels the write.
    pub async fn create(
        &self,
        to: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let written = self.write(limit(options.timeout, WRITE_LIMIT), |writer| {
            let to = writer.current(to)?;
            writer.post(&to, body.clone(), options)
        });
        let written = written.await.0?;
        self.in_version_of(to, written).await
    }

    /// Replaces the object, or the part of it that a subresource represents.
    ///
    /// # Errors
    /// As upstream.
    ///
    /// # Cancel safety
    /// See [`create`](Self::create).
    pub async fn update(
        &self,
        to: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let written = self.write(limit(options.timeout, WRITE_LIMIT), |writer| {
            let to = writer.current(to)?;
            writer.put(&to, body.clone(), options)
        });
        let written = written.await.0?;
        self.in_version_of(to, written).await
    }

    /// Returns whether an update of this target creates a missing object.
    pub fn creates_by_update(&self, to: &Target) -> bool {
        !to.is_subresource() && kinds::kind_of(&self.served(), &to.resource).create_on_update
    }

    /// Patches the object, or the part of it that a subresource represents.
    ///
    /// # Errors
    /// As upstream.
    ///
    /// # Cancel safety
    /// See [`create`](Self::create).
    pub async fn patch(
        &self,
        to: &Target,
        kind: PatchKind,
        body: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let written = self.write(limit(options.timeout, WRITE_LIMIT), |writer| {
            let to = writer.current(to)?;
            writer.patch(&to, kind, &body, options)
        });
        let written = written.await.0?;
        self.in_version_of(to, written).await
    }

    /// Deletes the object, or marks it as terminating.
    ///
    /// # Errors
    /// As upstream.
    ///
    /// # Cancel safety
    /// See [`create`](Self::create).
    pub async fn delete(&self, at: &Target, options: &DeleteOptions) -> Deleted<DeleteResponse> {
        self.delete_within(limit(options.timeout, WRITE_LIMIT), at, options).await
    }

    async fn delete_within(
        &self,
        limit: Duration,
        at: &Target,
        options: &DeleteOptions,
    ) -> Deleted<DeleteResponse> {
        let deleted = self.write(limit, |writer| {
            let at = writer.current(at)?;
            writer.delete(&at, options)
        });
        match deleted.await {
            (Ok(DeleteResponse::Object { answer, accepted }), warnings) => {
                let answer = self.object_in_version_of(at, answer).await;
                (answer.map(|answer| DeleteResponse::Object { answer, accepted }), warnings)
            }
            other => other,
        }
    }

    /// Deletes all selected objects and returns them as they were before.
    ///
    /// # Errors
    /// As upstream; objects deleted before the error stay deleted.
    ///
    /// # Cancel safety
    /// Dropping the future while it waits for a webhook stops the deletion. Objects deleted before stay deleted.
    pub async fn delete_collection(
        &self,
        at: &Target,
        selection: &Selection,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Deleted<Vec<Arc<Stored>>> {
        let found = {
            let reader = self.begin(Replay::new(self.env.wall()));
            reader.current(at).map(|at| reader.selected(&at, selection, list))
        };
        let (mut deleted, mut warnings) = (Vec::new(), Vec::new());
        let options = DeleteOptions { of_collection: true, ..options.clone() };
        let found = match found {
            Ok(found) => found,
            Err(status) => return (Err(status), warnings),
        };
        let (limit, begun) = (limit(options.timeout, REQUEST_LIMIT), self.env.now());
        for stored in found {
            let rest = limit.saturating_sub(self.env.now().saturating_duration_since(begun));
            let (namespace, name) = (stored.key.namespace.to_string(), stored.key.name.to_string());
            let one = Target { namespace, name, ..at.clone() };
            let (result, new) = self.delete_within(rest, &one, &options).await;
            warnings.extend(new);
            match result {
                Ok(_) => deleted.push(stored),
                Err(status) if status.code == 404 => {}
                Err(status) => return (Err(status), warnings),
            }
        }
        (self.converted(&at.resource, deleted).await, warnings)
    }

    /// Converts stored objects to the version of a resource, if a webhook does that. Applies a newer schema of their
    /// CRD. Other objects are unchanged.
    ///
    /// # Errors
    /// As upstream: if one object cannot be converted, none is returned.
    ///
    /// # Cancel safety
    /// Dropping the future drops the calls.
    pub async fn converted(
        &self,
        resource: &ResourceInfo,
        stored: Vec<Arc<Stored>>,
    ) -> Result<Vec<Arc<Stored>>, Status> {
        if !self.converts(resource) {
            return Ok(stored);
        }
        let converted = stored.iter().map(|it| self.convert(resource, it));
        future::try_join_all(converted).await
    }

    /// Returns whether a stored object of a resource can differ from the object that the server returns.
    pub fn converts(&self, resource: &ResourceInfo) -> bool {
        self.served().definition(resource).is_some_and(|it| it.changes_stored())
    }

    /// Serves the webhooks at an address, a host with a port, with this handler; `None` stops to serve them.
    pub(crate) fn serve_webhooks(&self, authority: &str, handler: Option<WebhookHandler>) {
        self.webhooks.serve(authority, handler);
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

    /// Executes a write, and repeats it while the response of a webhook is missing. Returns the warnings of webhooks
    /// that reviewed a deletion.
    async fn write<T>(
        &self,
        limit: Duration,
        mut attempt: impl FnMut(&mut WriteTransaction<'_>) -> Result<T, Status>,
    ) -> (Result<T, Status>, Vec<String>) {
        let (mut replay, begun) = (Replay::new(self.env.wall()), self.env.now());
        loop {
            let (result, warnings, after) = self.attempt(replay, &mut attempt);
            replay = after;
            let missing = replay.rewind();
            if missing.is_empty() {
                return (result, warnings);
            }
            let rest = limit.saturating_sub(self.env.now().saturating_duration_since(begun));
            match self.env.timeout(rest, self.call(missing, rest)).await {
                Ok(answers) => replay.add(answers),
                Err(_) => return (Err(Status::timed_out()), warnings),
            }
        }
    }

    fn attempt<T>(
        &self,
        replay: Replay,
        attempt: &mut impl FnMut(&mut WriteTransaction<'_>) -> Result<T, Status>,
    ) -> (Result<T, Status>, Vec<String>, Replay) {
        let mut writer = self.begin(replay);
        let result = attempt(&mut writer);
        let WriteTransaction { replay, warnings, .. } = writer;
        (result, warnings, replay.into_inner())
    }

    /// Calls webhooks at the same time. `rest` is the time until the deadline of the request.
    async fn call(&self, calls: Vec<Call>, rest: Duration) -> Vec<(Call, Answer)> {
        let uids: Vec<String> = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            calls.iter().map(|_| state.rng.identifier()).collect()
        };
        future::join_all(calls.into_iter().zip(uids).map(|(call, uid)| async move {
            let mut review = call.review.clone();
            review["request"]["uid"] = Value::from(uid.as_str());
            let answer = self.webhooks.send(&self.env, &call.address, &review, call.limit, rest).await;
            let answer = match value::text(&review, &["kind"]) {
                "AdmissionReview" => answer
                    .map_err(|why| format!("failed to call webhook: {why}"))
                    .and_then(|answer| admission::verify(&review, &answer)),
                _ => answer.and_then(|answer| conversion_review::verify(&review, &answer)),
            };
            (call, answer)
        }))
        .await
    }

    async fn convert(&self, resource: &ResourceInfo, stored: &Arc<Stored>) -> Result<Arc<Stored>, Status> {
        let served = self.served();
        let Some(definition) = served.definition(resource) else { return Ok(Arc::clone(stored)) };
        let (mut original, version) = (stored.value.read().into_owned(), convert::api_version(resource));
        definition.renew(&mut original);
        let converted = match conversion::call(Some(definition), &original, &version)? {
            Some(call) => {
                let answer = self.call(vec![call], Duration::MAX).await.pop().map(|(_, answer)| answer);
                let answer = answer.unwrap_or_else(|| Err("no response provided".to_owned()));
                let mut converted = conversion::accept(definition, &original, &version, answer)?;
                definition.apply_defaults(&resource.version, &mut converted);
                converted
            }
            None if original == *stored.value.read() => return Ok(Arc::clone(stored)),
            None => original,
        };
        let converted = Stored::new(stored.key.clone(), stored.revision, converted);
        converted.map(Arc::new).ok_or_else(|| Status::internal("the converted object is nested too deeply"))
    }

    async fn in_version_of(&self, to: &Target, written: WriteResponse) -> Result<WriteResponse, Status> {
        let answer = self.object_in_version_of(to, written.answer).await?;
        Ok(WriteResponse { answer, ..written })
    }

    async fn object_in_version_of(
        &self,
        to: &Target,
        object: ResponseObject,
    ) -> Result<ResponseObject, Status> {
        match object {
            ResponseObject::Stored(stored) if self.converts(&to.resource) => {
                self.convert(&to.resource, &stored).await.map(ResponseObject::Stored)
            }
            other => Ok(other),
        }
    }

    fn begin(&self, replay: Replay) -> WriteTransaction<'_> {
        // Lock first: the served resources can change until the lock is held.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let served = self.served();
        let Registry { storage, served: live, tokens, has_garbage_collector, admits_by_account, .. } = self;
        WriteTransaction {
            storage,
            live,
            served,
            tokens,
            state,
            has_garbage_collector: *has_garbage_collector,
            admits_by_account: *admits_by_account,
            labels_are_shared: Cell::new(false),
            dry_run: false,
            replay: RefCell::new(replay),
            warnings: Vec::new(),
        }
    }
}

/// Returns the time limit of a request: that of the client, if it is positive and shorter.
fn limit(of_client: Option<Duration>, longest: Duration) -> Duration {
    of_client.filter(|it| !it.is_zero()).map_or(longest, |it| it.min(longest))
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
