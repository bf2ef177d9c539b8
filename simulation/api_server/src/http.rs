//! HTTP: decodes requests into calls and encodes the results into responses.
//!
//! A request is decoded in upstream's order (path, method, media types, body, parameters, operation), so a request
//! with several errors gets the same error as upstream.
//!
//! Guarantees:
//! - A request takes effect while its future is polled. It waits only for a resource version that does not exist yet,
//!   and for webhooks.
//! - Every error response is a `Status`, except where upstream responds with plain text.

mod causes;
mod identity;
mod media;
mod non_resource;
mod options;
mod pretty;
mod protobuf;
pub(crate) mod query;
mod response;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use ::http::request::Parts;
use ::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::Value;
use windlass_object::Verb;
use windlass_object::request::ResourcePath;
use windlass_schema::ResourceInfo;

pub(crate) use self::media::prefer_json;
use self::options::DeleteBody;
use self::query::Query;
use self::response::{ListMeta, ResponseEncoder};
use crate::body::Body;
use crate::read::{
    self, FieldSelector, LabelSelector, ParseSelectorError, Selection, ShardSelector, WatchEvent,
};
use crate::registry::{
    DeleteOptions, DeleteResponse, PatchKind, ResponseObject, Target, WriteOptions, WriteResponse, convert,
};
use crate::rights::Access;
use crate::server::{ApiServer, RecordedAccess};
use crate::status::{ResourceName, Status};
use crate::storage::{Collection, Key, Stored};
use crate::tables::Printer;

/// Maximum size of a request body, as upstream.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The failure of a request.
enum RequestFailure {
    /// An error response with a `Status`.
    Status(Status),
    /// Upstream's plain text for unknown paths.
    NoPage,
}

impl From<Status> for RequestFailure {
    fn from(status: Status) -> RequestFailure {
        RequestFailure::Status(status)
    }
}

type Outcome = Result<Response<Body>, RequestFailure>;

/// A decoded request for objects.
struct ResourceCall {
    server: ApiServer,
    parts: Parts,
    query: Query,
    verb: Verb,
    target: Target,
    collection: Collection,
    custom: bool,
    user: String,
}

/// Answers a request.
pub(crate) async fn answer<B>(server: ApiServer, request: Request<B>) -> Response<Body>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let pretty = pretty::wanted(&parts);
    let protobuf = media::prefers_protobuf(&parts.headers);
    let answer = match respond(server, parts, body).await {
        Ok(answer) => answer,
        Err(RequestFailure::Status(status)) => response::refusal(&status),
        Err(RequestFailure::NoPage) => response::text(StatusCode::NOT_FOUND, "404 page not found\n"),
    };
    match () {
        () if protobuf => protobuf::converted(answer),
        () if pretty => pretty::lines(answer),
        () => answer,
    }
}

async fn respond<B>(server: ApiServer, parts: Parts, body: B) -> Outcome
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let query = Query::parse(parts.uri.query());
    let user = identity::user(&server, &parts.headers)?;
    let Some(path) = ResourcePath::parse(parts.uri.path()) else {
        return non_resource::respond(&server, &parts, &query);
    };
    let call = ResourceCall::new(server, parts, query, path, user)?;
    let Some(warning) = call.deprecation() else { return call.respond(body).await };
    let is_patch = call.parts.method == Method::PATCH;
    match call.respond(body).await {
        Ok(mut answer) => {
            response::warn_first(&mut answer, warning);
            Ok(answer)
        }
        // A patch of an unknown format, or a request for one, does not reach the resource.
        Err(RequestFailure::Status(status)) if !(status.code == 415 && is_patch) && status.code != 406 => {
            Err(RequestFailure::Status(status.warned(vec![warning.to_owned()])))
        }
        Err(failure) => Err(failure),
    }
}

impl ResourceCall {
    async fn respond<B>(self, body: B) -> Outcome
    where
        B: http_body::Body,
        B::Error: Into<BoxError>,
    {
        let call = self;
        match call.verb {
            Verb::Get => call.get().await,
            Verb::List => call.list().await,
            Verb::Watch => call.watch(),
            Verb::Create => call.create(&read_body(body).await?).await,
            Verb::Update => call.update(&read_body(body).await?).await,
            Verb::Patch => call.patch(&read_body(body).await?).await,
            Verb::Delete => call.delete(&read_body(body).await?).await,
            Verb::DeleteCollection => call.delete_collection(&read_body(body).await?).await,
        }
    }

    /// Returns the warning of every response about a deprecated resource.
    fn deprecation(&self) -> Option<&'static str> {
        let of = &self.target.resource;
        match (of.group.as_str(), of.plural.as_str()) {
            ("", "endpoints") => {
                Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
            }
            ("", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+"),
            _ => None,
        }
    }
}

async fn read_body<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let collected = Limited::new(std::pin::pin!(body), BODY_LIMIT).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            let message = format!("Request entity too large: limit is {BODY_LIMIT}");
            return Status::new(413, "RequestEntityTooLarge", message);
        }
        Status::bad_request(format!("the body of the request could not be read: {error}"))
    })
}

impl ResourceCall {
    fn new(
        server: ApiServer,
        parts: Parts,
        query: Query,
        path: ResourcePath,
        user: String,
    ) -> Result<ResourceCall, RequestFailure> {
        let watch = query.boolean("watch").unwrap_or_default();
        if path.verb(&parts.method, watch) != Some(Verb::Watch) {
            query.timeout()?;
        }
        let (resource, custom) = find(&server, &path)?;
        let verb = if custom {
            route_custom(&resource, &path, &parts.method, watch)?
        } else {
            route(&resource, &path, &parts.method, watch)?
        };
        server.record(RecordedAccess {
            user: user.clone(),
            verb,
            group: path.group.clone(),
            resource: path.resource_in_roles(),
        });
        authorize(&server, &user, verb, &path, &query)?;
        let ResourcePath { namespace, mut name, subresource, .. } = path;
        if verb == Verb::Create && subresource.is_none() {
            // The name is that of the body.
            name = None;
        }
        let collection = convert::collection(&resource);
        let target = Target {
            resource,
            namespace: namespace.unwrap_or_default(),
            name: name.unwrap_or_default(),
            subresource: subresource.unwrap_or_default(),
        };
        Ok(ResourceCall { server, parts, query, verb, target, collection, custom, user })
    }

    fn named(&self) -> ResourceName<'_> {
        ResourceName { group: &self.target.resource.group, resource: &self.target.resource.plural }
    }

    /// Returns the encoder of this request's responses.
    fn encoder(&self) -> Result<ResponseEncoder, Status> {
        let of = &self.target.resource;
        let form = media::form(&self.parts.headers, self.custom, self.supports_protobuf())?;
        let printer = || match self.server.registry().columns(of) {
            Some(columns) => Printer::custom(columns),
            None if self.target.subresource == "scale" => Printer::built_in("autoscaling", "scale"),
            None => Printer::built_in(&of.group, &of.plural),
        };
        ResponseEncoder::new(self.server.env(), of, self.custom, form, &self.query, printer)
    }

    /// Returns whether full objects have an encoding in protobuf.
    fn supports_protobuf(&self) -> bool {
        let of = &self.target.resource;
        let kind = of.subresources.get(&self.target.subresource).map_or(&of.kind, |below| &below.kind);
        !self.custom && protobuf::is_supported(&convert::api_version(of), kind)
    }

    fn write_options(&self, patch: Option<PatchKind>) -> Result<WriteOptions, Status> {
        let agent = self.parts.headers.get(::http::header::USER_AGENT);
        let agent = agent.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let options = self.query.write(self.verb, patch, agent)?;
        let (user, timeout) = (self.user.clone(), self.query.timeout()?);
        Ok(WriteOptions { user, timeout, is_request: true, ..options })
    }

    /// Checks the options of a list in upstream's order. The fields in selectors are checked later.
    fn check_options(&self, list: &query::ListQuery) -> Result<(), Status> {
        LabelSelector::parse(&list.labels)?;
        FieldSelector::check_syntax(&list.fields)?;
        list.list.check()
    }

    fn selection(&self, list: &query::ListQuery) -> Result<Selection, Status> {
        let namespace = Some(self.target.namespace.as_str()).filter(|it| !it.is_empty()).map(Arc::from);
        let labels = LabelSelector::parse(&list.labels)?;
        let table = self.server.registry().fields(&self.target.resource);
        let fields = FieldSelector::parse(&self.fields(list)?, &table)?;
        Ok(Selection { namespace, labels, fields, shard: self.shard(&list.shard)? })
    }

    /// Returns the requested shard, if the server supports sharding.
    fn shard(&self, selector: &str) -> Result<Option<ShardSelector>, Status> {
        if selector.is_empty() || !self.server.supports_shards() {
            return Ok(None);
        }
        let wrong = |error: ParseSelectorError| {
            // Upstream does not handle this error, so it responds with 500.
            Status::new(500, "", format!("invalid shard selector: {error}"))
        };
        selector.parse().map(Some).map_err(wrong)
    }

    /// Returns whether the watch ignores the shard selector. Upstream serves events without its watch cache, which
    /// filters them only if there is another selector.
    fn watches_all_shards(&self, selection: &Selection) -> bool {
        let of = &self.target.resource;
        of.plural == "events" && matches!(&*of.group, "" | "events.k8s.io") && selection.is_unfiltered()
    }

    /// Returns the field selector. The deprecated watch path of one object contains its name.
    fn fields<'a>(&self, list: &'a query::ListQuery) -> Result<Cow<'a, str>, Status> {
        let name = &self.target.name;
        if name.is_empty() {
            return Ok(Cow::Borrowed(&list.fields));
        }
        let this = format!("metadata.name={name}");
        if list.fields.is_empty() || list.fields.split(',').any(|it| it.replace("==", "=") == this) {
            let rest = if list.fields.is_empty() { this } else { list.fields.clone() };
            return Ok(Cow::Owned(rest));
        }
        Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"))
    }

    async fn get(self) -> Outcome {
        let mut encoder = self.encoder()?;
        if self.target.is_subresource() {
            let found = self.server.registry().get_converted(&self.target).await?;
            return Ok(response::json(StatusCode::OK, encode(&mut encoder, &found)?));
        }
        let version = self.query.text("resourceVersion");
        let (view, env) = (self.server.view(), self.server.env());
        read::settle(env, view, version).await;
        let key = Key::new(self.target.namespace.as_str(), self.target.name.as_str());
        let found = read::get(view, &self.collection, &key, version)?;
        let found = found.ok_or_else(|| Status::not_found(self.named(), &self.target.name))?;
        let found = self.server.registry().converted(&self.target.resource, vec![found]).await?;
        let found = found.first().ok_or_else(|| Status::not_found(self.named(), &self.target.name))?;
        Ok(response::json(StatusCode::OK, encoder.stored(found)?))
    }

    async fn list(self) -> Outcome {
        let mut encoder = self.encoder()?;
        let query = self.query.list()?;
        self.check_options(&query)?;
        let selection = self.selection(&query)?;
        let (view, env) = (self.server.view(), self.server.env());
        read::settle(env, view, &query.list.resource_version).await;
        let listed = read::list(view, &self.collection, &selection, &query.list)?;
        let meta = ListMeta {
            revision: listed.revision,
            continue_token: listed.continue_.unwrap_or_default(),
            remaining: listed.remaining,
            shard_selector: selection.shard.as_ref().map(ShardSelector::to_string),
        };
        let items = self.server.registry().converted(&self.target.resource, listed.items).await?;
        Ok(response::json(StatusCode::OK, encoder.list(&items, &meta)?))
    }

    fn watch(self) -> Outcome {
        let mut encoder = self.encoder()?;
        let query = self.query.list()?;
        let mut selection = self.selection(&query)?;
        if self.watches_all_shards(&selection) {
            selection.shard = None;
        }
        let protobuf = media::prefers_protobuf(&self.parts.headers)
            && encoder.supports_protobuf(self.supports_protobuf());
        let (view, env) = (self.server.view(), self.server.env());
        let events = read::watch(env, view, &self.collection, selection, &query.watch)?;
        let events = convert_events(self.server.clone(), Arc::clone(&self.target.resource), events);
        let frames = events.map(move |event| {
            Ok(match event {
                WatchEvent::Added(now) => encoder.frame("ADDED", &now),
                WatchEvent::Modified(now) => encoder.frame("MODIFIED", &now),
                WatchEvent::Deleted(last) => encoder.frame("DELETED", &last),
                WatchEvent::Bookmark { revision, initial_end } => encoder.bookmark(revision, initial_end),
                WatchEvent::Error(status) => response::error_frame(&status),
            })
        });
        let frames = frames.take_until(self.server.stopped());
        if protobuf {
            let frames = frames.map(|frame| frame.map(|json: Bytes| protobuf::frame(&json)));
            return Ok(protobuf::stream(Body::stream(frames)));
        }
        Ok(response::stream(Body::stream(frames)))
    }

    async fn create(self, body: &Bytes) -> Outcome {
        let mut encoder = self.encoder()?;
        let format = media::format(&self.parts.headers)?;
        let mut options = self.write_options(None)?;
        let object = self.object(body, format, &mut options)?;
        let written = self.server.registry().create(&self.target, object, &options).await?;
        finish(&mut encoder, StatusCode::CREATED, &written)
    }

    async fn update(self, body: &Bytes) -> Outcome {
        let mut encoder = self.encoder()?;
        let format = media::format(&self.parts.headers)?;
        let mut options = self.write_options(None)?;
        let object = self.object(body, format, &mut options)?;
        if self.server.registry().creates_by_update(&self.target) {
            self.authorize_create(&object)?;
        }
        let written = self.server.registry().update(&self.target, object, &options).await?;
        self.record_creation(&written);
        finish(&mut encoder, StatusCode::OK, &written)
    }

    async fn patch(self, body: &[u8]) -> Outcome {
        let kind = media::patch_kind(&self.parts.headers, self.custom)?;
        let mut encoder = self.encoder()?;
        let mut options = self.write_options(Some(kind))?;
        let patch = media::patch(body, kind, options.field_validation).map_err(|status| {
            // Upstream decodes a patch when it applies it to an object.
            let missing = kind != PatchKind::Apply && self.server.registry().get(&self.whole()).is_err();
            if missing { Status::not_found(self.named(), &self.target.name) } else { status }
        })?;
        if matches!(kind, PatchKind::Merge | PatchKind::Strategic) {
            options.duplicates = patch.duplicates;
        }
        if kind == PatchKind::Apply {
            self.authorize_create(&patch.value)?;
        }
        let written = self.server.registry().patch(&self.target, kind, patch.value, &options).await?;
        self.record_creation(&written);
        finish(&mut encoder, StatusCode::OK, &written)
    }

    /// Returns the object that a subresource belongs to.
    fn whole(&self) -> Target {
        Target { subresource: String::new(), ..self.target.clone() }
    }

    /// Records that an update or an apply required the `create` permission.
    fn record_creation(&self, written: &WriteResponse) {
        if written.created {
            let ResourceInfo { group, plural, .. } = &*self.target.resource;
            let (user, group, resource) = (self.user.clone(), group.to_string(), plural.to_string());
            self.server.record(RecordedAccess { user, verb: Verb::Create, group, resource });
        }
    }

    /// Checks the `create` permission if an update or an apply would create the object. A body with a UID and a
    /// subresource create nothing.
    fn authorize_create(&self, body: &Value) -> Result<(), Status> {
        if self.target.is_subresource() || body["metadata"]["uid"].is_string() {
            return Ok(());
        }
        let key = Key::new(self.target.namespace.as_str(), self.target.name.as_str());
        if read::get(self.server.view(), &self.collection, &key, "")?.is_some() {
            return Ok(());
        }
        let Target { resource, namespace, name, .. } = &self.target;
        let (group, plural) = (&*resource.group, &*resource.plural);
        let access = Access { verb: Verb::Create, group, resource: plural, namespace, name };
        self.server.rights().check(&self.user, access)
    }

    fn delete_options(&self, body: &[u8]) -> Result<DeleteOptions, Status> {
        let options = match body {
            [] => self.query.delete()?,
            body => {
                let format = media::format(&self.parts.headers)?;
                DeleteBody::read(media::options(body, format)?)?
            }
        };
        let (user, timeout) = (self.user.clone(), self.query.timeout()?);
        Ok(DeleteOptions { is_request: true, user, timeout, ..options.checked()? })
    }

    async fn delete(self, body: &[u8]) -> Outcome {
        let mut encoder = self.encoder()?;
        let options = self.delete_options(body)?;
        let mut warnings = self.delete_warnings(&options);
        let (deleted, reviewed) = self.server.registry().delete(&self.target, &options).await;
        warnings.extend(reviewed);
        let mut answer = match deleted.map_err(|status| status.warned(warnings.clone()))? {
            DeleteResponse::Status(status) => response::json(StatusCode::OK, response::encode(&status)),
            DeleteResponse::Object { answer: found, accepted } => {
                let code = if accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
                response::json(code, encode(&mut encoder, &found)?)
            }
        };
        response::warn(&mut answer, &warnings);
        Ok(answer)
    }

    /// Returns the warnings of a deletion: jobs orphan their pods by default.
    fn delete_warnings(&self, options: &DeleteOptions) -> Vec<String> {
        let of = &self.target.resource;
        let job = (of.group.as_str(), of.plural.as_str()) == ("batch", "jobs");
        if !job || options.propagation.is_some() || options.orphan_dependents.is_some() {
            return Vec::new();
        }
        let text = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                    remove them or set propagationPolicy=Orphan to suppress this warning";
        vec![text.to_owned()]
    }

    async fn delete_collection(self, body: &[u8]) -> Outcome {
        let mut encoder = self.encoder()?;
        let query = self.query.list()?;
        self.check_options(&query)?;
        let selection = self.selection(&query)?;
        let options = self.delete_options(body)?;
        let mut warnings = self.delete_warnings(&options);
        // The response describes the page of the list that is deleted.
        let listed = if query.list.limit > 0 {
            read::list(self.server.view(), &self.collection, &selection, &query.list).ok()
        } else {
            None
        };
        let found = self.server.registry().delete_collection(&self.target, &selection, &query.list, &options);
        let (found, reviewed) = found.await;
        warnings.extend(reviewed);
        let items = found.map_err(|status| status.warned(warnings.clone()))?;
        let meta = ListMeta {
            revision: self.server.view().storage().revision(),
            continue_token: listed.as_ref().and_then(|it| it.continue_.clone()).unwrap_or_default(),
            remaining: listed.and_then(|it| it.remaining),
            ..ListMeta::default()
        };
        let mut answer = response::json(StatusCode::OK, encoder.list(&items, &meta)?);
        response::warn(&mut answer, &warnings);
        Ok(answer)
    }

    /// Decodes the object in a body. Duplicate fields are reported through `options`.
    fn object(
        &self,
        body: &Bytes,
        format: media::Format,
        options: &mut WriteOptions,
    ) -> Result<Value, Status> {
        let parsed = media::object(body, format, self.expected_kind())?;
        options.duplicates = parsed.duplicates;
        options.body = body.clone();
        Ok(parsed.value)
    }

    /// Returns the expected kind of the body.
    fn expected_kind(&self) -> &str {
        let of = &self.target.resource;
        of.subresources.get(&self.target.subresource).map_or(&of.kind, |below| &below.kind)
    }
}

/// Returns the resource of a path, and whether it is a custom one.
fn find(server: &ApiServer, path: &ResourcePath) -> Result<(Arc<ResourceInfo>, bool), RequestFailure> {
    let catalog = server.catalog();
    if let Some(found) = catalog.resource(&path.group, &path.version, &path.resource) {
        return Ok((Arc::clone(found), !catalog.is_built_in(&found.group, &found.version)));
    }
    let known =
        |it: &Arc<ResourceInfo>| it.group == path.group && catalog.is_built_in(&it.group, &it.version);
    if catalog.iter().any(known) { Err(Status::no_such_path().into()) } else { Err(RequestFailure::NoPage) }
}

/// Returns the verb of a request for a custom resource, if the resource supports it at this path. Upstream ignores the
/// name in the path of a creation, and all parts after the subresource.
fn route_custom(
    resource: &ResourceInfo,
    path: &ResourcePath,
    method: &Method,
    watch: bool,
) -> Result<Verb, RequestFailure> {
    let verb = path.verb(method, watch).ok_or_else(not_allowed)?;
    let inside = path.namespace.is_some();
    if resource.namespaced != inside && (inside || !matches!(verb, Verb::List | Verb::Watch)) {
        return Err(RequestFailure::NoPage);
    }
    let named = ResourceName { group: &resource.group, resource: &resource.plural };
    let name = path.name.as_deref().unwrap_or_default();
    let verbs = match &path.subresource {
        None => &resource.verbs,
        Some(below) => {
            let below = resource.subresources.get(below);
            &below.ok_or_else(|| Status::not_found(named, name))?.verbs
        }
    };
    if !verbs.iter().any(|it| it == verb.as_str()) {
        return Err(Status::method_not_allowed(named, verb.as_str()).into());
    }
    if matches!(verb, Verb::Update | Verb::Patch) && name.is_empty() {
        return Err(Status::bad_request("name must be provided").into());
    }
    Ok(verb)
}

/// Returns the verb of a request for a built-in resource, if the resource supports it at this path.
fn route(
    resource: &ResourceInfo,
    path: &ResourcePath,
    method: &Method,
    watch: bool,
) -> Result<Verb, RequestFailure> {
    let nowhere = || RequestFailure::from(Status::no_such_path());
    let (collection, inside) = (path.name.is_none(), path.namespace.is_some());
    let misplaced = if resource.namespaced { !inside && !collection } else { inside };
    if path.goes_on || misplaced {
        return Err(nowhere());
    }
    let verb = path.verb(method, watch).ok_or_else(not_allowed)?;
    let across = resource.namespaced && !inside && !matches!(verb, Verb::List | Verb::Watch);
    let verbs = match &path.subresource {
        None => &resource.verbs,
        Some(subresource) => &resource.subresources.get(subresource).ok_or_else(nowhere)?.verbs,
    };
    let named_only = matches!(verb, Verb::Update | Verb::Patch) && collection;
    let post_to_object = verb == Verb::Create && !collection && path.subresource.is_none();
    if across || named_only || post_to_object || !verbs.iter().any(|it| it == verb.as_str()) {
        return Err(not_allowed().into());
    }
    Ok(verb)
}

/// Checks the permission of a user to send a request.
fn authorize(
    server: &ApiServer,
    user: &str,
    verb: Verb,
    path: &ResourcePath,
    query: &Query,
) -> Result<(), Status> {
    // Lists and watches of one object select it by name.
    let selected = query.text("fieldSelector").split(',').find_map(|it| it.strip_prefix("metadata.name="));
    let selected = selected.filter(|_| matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection));
    let access = Access {
        verb,
        group: &path.group,
        resource: &path.resource_in_roles(),
        namespace: path.namespace.as_deref().unwrap_or_default(),
        name: path.name.as_deref().or(selected).unwrap_or_default(),
    };
    server.rights().check(user, access)
}

/// Returns 405 with the message of upstream's router.
fn not_allowed() -> Status {
    let message = "the server does not allow this method on the requested resource";
    let mut status = Status::new(405, "MethodNotAllowed", message);
    status.details = Some(Box::default());
    status
}

fn encode(encoder: &mut ResponseEncoder, found: &ResponseObject) -> Result<Bytes, Status> {
    match found {
        ResponseObject::Stored(stored) => encoder.stored(stored),
        ResponseObject::Value(value) => encoder.object(value),
    }
}

fn finish(encoder: &mut ResponseEncoder, code: StatusCode, written: &WriteResponse) -> Outcome {
    let code = if written.created { StatusCode::CREATED } else { code };
    let mut answer = response::json(code, encode(encoder, &written.answer)?);
    response::warn(&mut answer, &written.warnings);
    Ok(answer)
}

/// Converts the objects of events to the version of a resource. The watch ends with the first object that cannot be
/// converted.
fn convert_events(
    server: ApiServer,
    resource: Arc<ResourceInfo>,
    events: impl Stream<Item = WatchEvent> + Send + 'static,
) -> BoxStream<'static, WatchEvent> {
    if !server.registry().converts(&resource) {
        return events.boxed();
    }
    let converted = events.then(move |event| {
        let (server, resource) = (server.clone(), Arc::clone(&resource));
        async move { convert_event(&server, &resource, event).await }
    });
    let mut has_failed = false;
    converted
        .take_while(move |event| {
            let ended = std::mem::replace(&mut has_failed, matches!(event, WatchEvent::Error(_)));
            std::future::ready(!ended)
        })
        .boxed()
}

async fn convert_event(server: &ApiServer, resource: &ResourceInfo, event: WatchEvent) -> WatchEvent {
    let convert = async |stored: Arc<Stored>| {
        let converted = server.registry().converted(resource, vec![stored]).await?;
        converted.into_iter().next().ok_or_else(|| Status::internal("the conversion returned no object"))
    };
    let converted = match event {
        WatchEvent::Added(now) => convert(now).await.map(WatchEvent::Added),
        WatchEvent::Modified(now) => convert(now).await.map(WatchEvent::Modified),
        WatchEvent::Deleted(last) => convert(last).await.map(WatchEvent::Deleted),
        other => return other,
    };
    converted.unwrap_or_else(WatchEvent::Error)
}
