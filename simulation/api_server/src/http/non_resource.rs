//! Non-resource URLs: discovery, health and version.

use std::hash::{DefaultHasher, Hasher as _};

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use ::http::request::Parts;
use ::http::{Method, Response, StatusCode};
use bytes::Bytes;
use serde_json::{Value, json};
use windlass_object::request;
use windlass_schema::{Catalog, discovery, openapi};

use super::query::Query;
use super::response::{self, encode};
use super::{Outcome, RequestFailure, media};
use crate::body::Body;
use crate::server::ApiServer;
use crate::status::Status;

/// Kind that clients request for aggregated discovery.
const AGGREGATED: &str = "APIGroupDiscoveryList";
const AGGREGATED_GROUP: &str = "apidiscovery.k8s.io";

/// Answers a request for a non-resource URL.
pub(super) fn respond(server: &ApiServer, parts: &Parts, query: &Query) -> Outcome {
    let path = request::decoded(parts.uri.path());
    let segments: Vec<&str> = path.split('/').collect();
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(super::not_allowed().into());
    }
    query.timeout()?;
    let catalog = server.catalog();
    match segments.as_slice() {
        [""] => Ok(found(&paths(&catalog))),
        ["version"] => Ok(found(&version())),
        ["healthz" | "livez" | "readyz", ..] => health(&segments, query),
        ["api"] => discovery(parts, &catalog, false),
        ["apis"] => discovery(parts, &catalog, true),
        ["api", version] => resources(&catalog, "", version),
        ["apis", group] => {
            discovery::api_group(&catalog, group).map(|it| found(&it)).ok_or(RequestFailure::NoPage)
        }
        ["apis", group, version] => resources(&catalog, group, version),
        ["openapi", "v2"] => Ok(found(&openapi::v2(&catalog))),
        ["openapi", "v3"] => Ok(found(&openapi::v3_index(&catalog))),
        ["openapi", "v3", "api", version] => described(&catalog, "", version),
        ["openapi", "v3", "apis", group, version] => described(&catalog, group, version),
        _ => Err(RequestFailure::NoPage),
    }
}

fn found(value: &Value) -> Response<Body> {
    response::json(StatusCode::OK, encode(value))
}

fn resources(catalog: &Catalog, group: &str, version: &str) -> Outcome {
    match discovery::resource_list(catalog, group, version) {
        Some(list) => Ok(found(&list)),
        None if discovery::api_group(catalog, group).is_some() || group.is_empty() => {
            Err(Status::no_such_path().into())
        }
        None => Err(RequestFailure::NoPage),
    }
}

fn described(catalog: &Catalog, group: &str, version: &str) -> Outcome {
    let document = openapi::v3_document(catalog, group, version);
    document.map(|document| found(&document)).ok_or(RequestFailure::NoPage)
}

/// Answers `/api` and `/apis`: aggregated discovery if the client accepts it, and otherwise the older format.
fn discovery(parts: &Parts, catalog: &Catalog, groups: bool) -> Outcome {
    for clause in media::accepted(&parts.headers).iter().filter(|clause| clause.takes_json()) {
        match clause.conversion() {
            None if groups => return Ok(varying(found(&discovery::api_groups(catalog)))),
            None => return Ok(varying(found(&discovery::api_versions(catalog)))),
            Some((AGGREGATED, AGGREGATED_GROUP, "v2")) => {
                let value = if groups {
                    discovery::aggregated_groups(catalog)
                } else {
                    discovery::aggregated_core(catalog)
                };
                return Ok(varying(at_once(parts, encode(&value))));
            }
            Some(_) => {}
        }
    }
    Err(media::no_representation().into())
}

/// Returns the aggregated discovery document, or 304 if the client has it already.
fn at_once(parts: &Parts, bytes: Bytes) -> Response<Body> {
    const MEDIA: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    let tag = HeaderValue::try_from(format!("\"{:016X}\"", hasher.finish())).ok();
    let mut answer = Response::new(Body::empty());
    if tag.is_some() && parts.headers.get(IF_NONE_MATCH) == tag.as_ref() {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        answer = response::json(StatusCode::OK, bytes);
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA));
    }
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.extend(tag.map(|tag| (ETAG, tag)));
    answer
}

fn varying(mut answer: Response<Body>) -> Response<Body> {
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    answer
}

/// Returns the paths that `/` lists.
fn paths(catalog: &Catalog) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for resource in catalog.iter().filter(|it| !it.group.is_empty()) {
        paths.push(format!("/apis/{}", resource.group));
        paths.push(format!("/apis/{}/{}", resource.group, resource.version));
    }
    paths.extend(
        ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(str::to_owned),
    );
    paths.sort();
    paths.dedup();
    json!({"paths": paths})
}

/// Returns the emulated Kubernetes version and the version of this implementation.
fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": concat!("v1.36.3+windlass-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// Reports the server as healthy: it has no component that could fail separately.
fn health(segments: &[&str], query: &Query) -> Outcome {
    let text = match segments {
        [_, "ping"] | [_] if query.boolean("verbose").is_none() => "ok".to_owned(),
        [name] | [name, "ping"] => format!("[+]ping ok\n{name} check passed\n"),
        _ => return Err(RequestFailure::NoPage),
    };
    Ok(response::text(StatusCode::OK, text))
}
