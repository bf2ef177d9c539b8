//! Encoder for responses: objects, lists, watch frames and errors.
//!
//! Objects are encoded in JSON; [`super::protobuf`] converts complete responses.
//!
//! Guarantees:
//! - An object that is returned in its stored form is neither decoded nor encoded. Lists and frames are concatenated
//!   from stored bytes.
//! - As upstream, items of built-in lists have neither `kind` nor `apiVersion`, and items of custom lists have both.
//! - One watch frame is one chunk of the body.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeSet;
use std::sync::Arc;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use ::http::{Response, StatusCode};
use bytes::Bytes;
use serde_json::{Value, json};
use windlass_env::Env;
use windlass_schema::ResourceInfo;

use super::media::{Meta, ResponseForm};
use super::query::Query;
use crate::body::Body;
use crate::go_json;
use crate::registry::convert;
use crate::status::Status;
use crate::storage::Stored;
use crate::tables::Printer;

/// Maximum total number of characters in `Warning` headers, and those of one warning if the total is exceeded, as
/// upstream.
const WARNINGS_LIMIT: usize = 4096;
const CUT_WARNING: usize = 256;

/// Media type of encoded objects.
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The response encoder of one request.
#[derive(Clone, Debug)]
pub(crate) struct ResponseEncoder {
    env: Env,
    resource: Arc<ResourceInfo>,
    custom: bool,
    form: ResponseForm,
    rows: Option<TableOptions>,
    /// The requested `apiVersion`.
    version: String,
    /// The common first bytes of objects stored in that version.
    prefix: String,
}

/// Options of table responses.
#[derive(Clone, Debug)]
struct TableOptions {
    printer: Printer,
    include: Include,
    /// Whether the next table includes the column definitions: a watch sends them once.
    headers: bool,
}

/// Part of the object that a row includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Include {
    Nothing,
    Metadata,
    Object,
}

/// Metadata of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListMeta {
    pub(crate) revision: u64,
    pub(crate) continue_token: String,
    pub(crate) remaining: Option<u64>,
    /// Set only for full objects of built-in kinds, as upstream.
    pub(crate) shard_selector: Option<String>,
}

impl ResponseEncoder {
    /// Creates the encoder for a resource. `printer` is called only for tables.
    pub(crate) fn new(
        env: &Env,
        resource: &Arc<ResourceInfo>,
        custom: bool,
        form: ResponseForm,
        query: &Query,
        printer: impl FnOnce() -> Printer,
    ) -> Result<ResponseEncoder, Status> {
        let rows = match form {
            ResponseForm::Table(_) => {
                Some(TableOptions { printer: printer(), include: include(query)?, headers: true })
            }
            ResponseForm::Whole | ResponseForm::Partial(_) | ResponseForm::PartialList(_) => None,
        };
        let version = convert::api_version(resource);
        let prefix = format!("{{\"apiVersion\":{version:?},\"kind\":{:?},", resource.kind);
        Ok(ResponseEncoder {
            env: env.clone(),
            resource: Arc::clone(resource),
            custom,
            form,
            rows,
            version,
            prefix,
        })
    }

    /// Returns whether the objects of a watch have an encoding in protobuf. `whole` states it for full objects.
    pub(crate) fn supports_protobuf(&self, whole: bool) -> bool {
        match self.form {
            ResponseForm::Whole | ResponseForm::PartialList(_) => whole,
            ResponseForm::Partial(meta) => meta == Meta::V1,
            ResponseForm::Table(_) => false,
        }
    }

    /// Encodes a stored object.
    pub(crate) fn stored(&mut self, stored: &Stored) -> Result<Bytes, Status> {
        if self.form == ResponseForm::Whole && stored.is_of(&self.version) {
            return Ok(stored.bytes.clone());
        }
        let value = stored.value.read();
        let served = self.served(&value);
        self.object(&served)
    }

    /// Encodes an object of the requested version.
    pub(crate) fn object(&mut self, object: &Value) -> Result<Bytes, Status> {
        if object["kind"] == "Status" && object["apiVersion"] == "v1" {
            return Ok(encode(object));
        }
        match self.form {
            ResponseForm::Whole => Ok(encode(object)),
            ResponseForm::Partial(meta) => Ok(encode(&partial(object, meta))),
            ResponseForm::Table(meta) => Ok(encode(&self.table(meta, [object], &metadata_of(object)))),
            ResponseForm::PartialList(_) => Err(Status::new(
                406,
                "NotAcceptable",
                format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                    self.go_type(&self.resource.kind)
                ),
            )),
        }
    }

    /// Encodes a list.
    pub(crate) fn list(&mut self, items: &[Arc<Stored>], meta: &ListMeta) -> Result<Bytes, Status> {
        match self.form {
            ResponseForm::Whole if self.custom => Ok(self.custom_list(items, meta)),
            ResponseForm::Whole => Ok(self.built_in_list(items, meta)),
            ResponseForm::PartialList(version) => {
                let items: Vec<_> = items.iter().map(|it| partial(&it.value.read(), version)).collect();
                let kind = "PartialObjectMetadataList";
                let api_version = version.api_version();
                let metadata = meta.object();
                // Upstream writes an empty list as null.
                let items = if items.is_empty() { Value::Null } else { Value::Array(items) };
                Ok(encode(
                    &json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items}),
                ))
            }
            ResponseForm::Table(version) => {
                // Each object is decoded and dropped in turn: decoded, a long list needs ten times the memory.
                let resource = Arc::clone(&self.resource);
                let served = items.iter().map(|it| served_whole(it, &resource));
                Ok(encode(&self.table(version, served, &meta.object())))
            }
            ResponseForm::Partial(_) => Err(Status::new(
                406,
                "NotAcceptable",
                format!(
                    "you requested PartialObjectMetadata, but the requested object is a list ({})",
                    self.go_type(&self.resource.list_kind)
                ),
            )),
        }
    }

    /// Encodes a watch frame with an object.
    pub(crate) fn frame(&mut self, kind: &str, stored: &Stored) -> Bytes {
        if matches!(self.form, ResponseForm::Whole | ResponseForm::PartialList(_))
            && stored.is_of(&self.version)
        {
            return framed(kind, &stored.bytes);
        }
        let value = stored.value.read();
        let served = self.served(&value);
        self.value_frame(kind, &served)
    }

    /// Encodes a bookmark.
    pub(crate) fn bookmark(&mut self, revision: u64, end_of_initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let version = convert::api_version(&self.resource);
        let object = json!({"kind": self.resource.kind, "apiVersion": version, "metadata": metadata});
        self.value_frame("BOOKMARK", &object)
    }

    fn value_frame(&mut self, kind: &str, object: &Value) -> Bytes {
        let object = match self.form {
            ResponseForm::Whole | ResponseForm::PartialList(_) => encode(object),
            ResponseForm::Partial(meta) => encode(&partial(object, meta)),
            ResponseForm::Table(meta) => encode(&self.table(meta, [object], &metadata_of(object))),
        };
        framed(kind, &object)
    }

    /// Converts a stored object to the requested version.
    fn served<'a>(&self, stored: &'a Value) -> Cow<'a, Value> {
        convert::serve(stored, &self.resource)
    }

    fn built_in_list(&self, items: &[Arc<Stored>], meta: &ListMeta) -> Bytes {
        let version = convert::api_version(&self.resource);
        let mut bytes = Vec::with_capacity(items.iter().map(|it| it.bytes.len()).sum::<usize>() + 256);
        bytes.extend_from_slice(
            format!("{{\"kind\":{:?},\"apiVersion\":{version:?},\"metadata\":", self.resource.list_kind)
                .as_bytes(),
        );
        let mut metadata = meta.object();
        if let Some(selector) = &meta.shard_selector {
            metadata["shardInfo"] = json!({"selector": selector});
        }
        bytes.extend_from_slice(&encode(&metadata));
        bytes.extend_from_slice(b",\"items\":[");
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                bytes.push(b',');
            }
            self.append_bare(&mut bytes, item);
        }
        bytes.extend_from_slice(b"]}\n");
        bytes.into()
    }

    /// Appends an item without kind and version. Most objects begin with both, so they need no new encoding.
    fn append_bare(&self, bytes: &mut Vec<u8>, item: &Stored) {
        if let Some(rest) = item.bytes.strip_prefix(self.prefix.as_bytes()) {
            bytes.push(b'{');
            bytes.extend_from_slice(rest);
            return;
        }
        let value = item.value.read();
        let served = self.served(&value);
        let fields = served.as_object().into_iter().flatten();
        let mut first = true;
        bytes.push(b'{');
        for (name, value) in fields.filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind")) {
            if !first {
                bytes.push(b',');
            }
            first = false;
            bytes.extend_from_slice(&encode(&Value::String(name.clone())));
            bytes.push(b':');
            bytes.extend_from_slice(&encode(value));
        }
        bytes.push(b'}');
    }

    fn custom_list(&self, items: &[Arc<Stored>], meta: &ListMeta) -> Bytes {
        let version = convert::api_version(&self.resource);
        let mut bytes = Vec::with_capacity(items.iter().map(|it| it.bytes.len()).sum::<usize>() + 256);
        bytes.extend_from_slice(format!("{{\"apiVersion\":{version:?},\"items\":[").as_bytes());
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                bytes.push(b',');
            }
            if item.is_of(&self.version) {
                bytes.extend_from_slice(&item.bytes);
            } else {
                bytes.extend_from_slice(&encode(&*self.served(&item.value.read())));
            }
        }
        bytes.extend_from_slice(format!("],\"kind\":{:?},\"metadata\":", self.resource.list_kind).as_bytes());
        let mut metadata = meta.object();
        metadata["continue"] = json!(meta.continue_token);
        bytes.extend_from_slice(&encode(&metadata));
        bytes.extend_from_slice(b"}\n");
        bytes.into()
    }

    fn table(
        &mut self,
        meta: Meta,
        objects: impl IntoIterator<Item = impl Borrow<Value>>,
        metadata: &Value,
    ) -> Value {
        let now = self.env.wall();
        let Some(rows) = &mut self.rows else { return Value::Null };
        let shown = |object: &Value| match rows.include {
            Include::Nothing => Value::Null,
            Include::Metadata => partial(object, meta),
            Include::Object => object.clone(),
        };
        let row = |object: &Value| rows.printer.row(object, now, &shown(object));
        let found: Vec<_> = objects.into_iter().map(|object| row(object.borrow())).collect();
        let found = (!found.is_empty() || !rows.printer.has_null_rows).then_some(found);
        let columns = std::mem::take(&mut rows.headers).then_some(&rows.printer.columns);
        json!({
            "kind": "Table", "apiVersion": meta.api_version(), "metadata": metadata,
            "columnDefinitions": columns, "rows": found,
        })
    }

    /// Returns the Go type that some upstream messages name.
    fn go_type(&self, kind: &str) -> String {
        if self.custom {
            let list = if kind == self.resource.list_kind { "List" } else { "" };
            return format!("*unstructured.Unstructured{list}");
        }
        let package = match self.resource.group.split('.').next().unwrap_or_default() {
            "" => "core",
            "rbac" => "rbac",
            other => other,
        };
        format!("*{package}.{kind}")
    }
}

impl ListMeta {
    fn object(&self) -> Value {
        let mut found = json!({"resourceVersion": self.revision.to_string()});
        if !self.continue_token.is_empty() {
            found["continue"] = json!(self.continue_token);
        }
        if let Some(remaining) = self.remaining {
            found["remainingItemCount"] = json!(remaining);
        }
        found
    }
}

fn include(query: &Query) -> Result<Include, Status> {
    match query.text("includeObject") {
        "" | "Metadata" => Ok(Include::Metadata),
        "Object" => Ok(Include::Object),
        "None" => Ok(Include::Nothing),
        other => Err(Status::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
             'Object', 'None', or empty"
        ))),
    }
}

/// Converts a stored object to the requested version without decoding it permanently.
fn served_whole<'a>(stored: &'a Stored, resource: &ResourceInfo) -> Cow<'a, Value> {
    match stored.value.read() {
        Cow::Borrowed(value) => convert::serve(value, resource),
        Cow::Owned(value) => match convert::serve(&value, resource) {
            Cow::Owned(served) => Cow::Owned(served),
            Cow::Borrowed(_) => Cow::Owned(value),
        },
    }
}

fn metadata_of(object: &Value) -> Value {
    json!({"resourceVersion": object["metadata"]["resourceVersion"]})
}

fn partial(object: &Value, meta: Meta) -> Value {
    let mut metadata = object["metadata"].clone();
    // Upstream stores this annotation of DaemonSets in a field, which is no metadata.
    if object["kind"] == "DaemonSet"
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove("deprecated.daemonset.template.generation");
        if annotations.is_empty() {
            metadata.as_object_mut().map(|fields| fields.remove("annotations"));
        }
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": meta.api_version(), "metadata": metadata})
}

/// Encodes a value as JSON. Every value has an encoding.
pub(crate) fn encode(value: &(impl serde::Serialize + ?Sized)) -> Bytes {
    go_json::encode(value).into()
}

fn framed(kind: &str, object: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(object.len() + kind.len() + 24);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(kind.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(object);
    frame.extend_from_slice(b"}\n");
    frame.into()
}

/// Returns the last frame of a failed watch.
pub(crate) fn error_frame(status: &Status) -> Bytes {
    framed("ERROR", &encode(status))
}

/// Returns a response with JSON bytes.
pub(crate) fn json(code: StatusCode, bytes: Bytes) -> Response<Body> {
    respond(code, JSON, Body::from_bytes(bytes))
}

/// Returns a plain-text response.
pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    respond(code, TEXT, Body::from_bytes(text))
}

/// Returns a stream response.
pub(crate) fn stream(body: Body) -> Response<Body> {
    respond(StatusCode::OK, JSON, body)
}

/// Returns an error response.
pub(crate) fn refusal(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = json(code, encode(status));
    let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if wait > 0 {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait));
    }
    warn(&mut answer, &status.warnings);
    answer
}

/// Adds a `Warning` header before all others.
pub(crate) fn warn_first(answer: &mut Response<Body>, warning: &str) {
    let others: Vec<_> = answer.headers().get_all(WARNING).iter().cloned().collect();
    answer.headers_mut().remove(WARNING);
    warn(answer, &[warning.to_owned()]);
    for other in others {
        answer.headers_mut().append(WARNING, other);
    }
}

/// Adds `Warning` headers to a response, without duplicates. If they are too long in total, each one is cut.
pub(crate) fn warn(answer: &mut Response<Body>, warnings: &[String]) {
    let mut sent = BTreeSet::new();
    let distinct: Vec<_> = warnings.iter().filter(|it| !it.is_empty() && sent.insert(*it)).collect();
    let is_cut = distinct.iter().map(|it| it.chars().count()).sum::<usize>() > WARNINGS_LIMIT;
    let mut written = 0;
    for warning in distinct {
        if written >= WARNINGS_LIMIT {
            break;
        }
        let kept = if is_cut { CUT_WARNING } else { WARNINGS_LIMIT };
        let warning: String = warning.chars().take(kept).collect();
        written += warning.chars().count();
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        let clean: String = quoted.chars().filter(|letter| !letter.is_control()).collect();
        if let Ok(value) = HeaderValue::try_from(format!("299 - \"{clean}\"")) {
            answer.headers_mut().append(WARNING, value);
        }
    }
}

fn respond(code: StatusCode, media: HeaderValue, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, media);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    answer
}

#[cfg(test)]
mod tests {
    use windlass_schema::Catalog;

    use super::*;
    use crate::storage::Key;

    #[test]
    fn encoding_lists_and_frames_keeps_objects_unparsed() {
        let catalog = Catalog::built_in();
        let events = catalog.resource("events.k8s.io", "v1", "events").expect("a resource");
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "note": "n"});
        let item = Stored::new(Key::new("default", "a"), 2, event).expect("an object").unparsed();
        let items = [Arc::clone(&item)];
        let forms = [
            ResponseForm::Whole,
            ResponseForm::Table(Meta::V1),
            ResponseForm::PartialList(Meta::V1),
            ResponseForm::Partial(Meta::V1),
        ];
        for (form, custom) in forms.into_iter().flat_map(|it| [(it.clone(), false), (it, true)]) {
            let printer = || Printer::built_in("events.k8s.io", "events");
            let (env, query) = (Env::virtual_time(1), Query::parse(None));
            let mut encoder =
                ResponseEncoder::new(&env, events, custom, form.clone(), &query, printer).expect("a shape");
            if !matches!(form, ResponseForm::Partial(_)) {
                let list = encoder.list(&items, &ListMeta::default()).expect("a list");
                assert!(String::from_utf8_lossy(&list).contains("\"name\":\"a\""), "{list:?}");
            }
            let frame = encoder.frame("ADDED", &item);
            assert!(String::from_utf8_lossy(&frame).contains("\"name\":\"a\""), "{frame:?}");
            assert!(item.value.is_unparsed(), "{form:?}");
        }
    }
}
