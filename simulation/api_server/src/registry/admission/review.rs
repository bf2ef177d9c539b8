//! AdmissionReviews: the request to a webhook, and the check of its response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use windlass_schema::ResourceInfo;

use super::{Invocation, Operation, Request};
use crate::registry::value;
use crate::status::{Details, Status};

/// `apiVersion` of the reviews.
const VERSION: &str = "admission.k8s.io/v1";

/// A checked response.
#[derive(Debug, PartialEq)]
pub(super) struct Response {
    pub(super) allowed: bool,
    /// The operations of a JSON patch, if there are any.
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
    /// The `status` of a denial.
    pub(super) status: Value,
}

/// Returns group, version and kind of the objects at a resource or subresource.
pub(super) fn kind(of: &ResourceInfo, subresource: &str) -> (String, String, String) {
    match of.subresources.get(subresource) {
        Some(below) => (
            below.group.clone().unwrap_or_else(|| of.group.clone()),
            below.version.clone().unwrap_or_else(|| of.version.clone()),
            below.kind.clone(),
        ),
        None => (of.group.clone(), of.version.clone(), of.kind.clone()),
    }
}

/// Returns the review of a request, without UID.
pub(super) fn review(request: &Request<'_>, invocation: &Invocation, object: &Value, old: &Value) -> Value {
    let subresource = &request.to.subresource;
    let kind = |of: &ResourceInfo| {
        let (group, version, kind) = kind(of, subresource);
        json!({"group": group, "version": version, "kind": kind})
    };
    let resource =
        |of: &ResourceInfo| json!({"group": of.group, "version": of.version, "resource": of.plural});
    let mut sent = json!({
        "kind": kind(&invocation.resource),
        "resource": resource(&invocation.resource),
        "requestKind": kind(&request.to.resource),
        "requestResource": resource(&request.to.resource),
        "operation": request.operation.as_str(),
        "userInfo": user_info(request.user),
        "object": object,
        "oldObject": old,
        "dryRun": request.dry_run,
        "options": request.options,
    });
    let texts = [
        ("name", request.name.as_str()),
        ("namespace", request.namespace.as_str()),
        ("subResource", subresource),
        ("requestSubResource", subresource),
    ];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        value::set(&mut sent, &[field], text);
    }
    json!({"kind": "AdmissionReview", "apiVersion": VERSION, "request": sent})
}

/// Returns the user with the groups that upstream's authenticators add.
fn user_info(user: &str) -> Value {
    let mut groups = Vec::new();
    if let Some(account) = user.strip_prefix("system:serviceaccount:") {
        let namespace = account.split(':').next().unwrap_or_default();
        groups.extend(["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]);
    }
    if user == "system:admin" {
        groups.push("system:masters".to_owned());
    }
    groups.push("system:authenticated".to_owned());
    json!({"username": user, "groups": groups})
}

/// Returns the operation options in a review.
pub(super) fn options(operation: Operation, given: &Value) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    for (field, text) in value::entries(given, &[]) {
        value::set(&mut options, &[field], text.clone());
    }
    options
}

/// Checks a response. `uid` is that of the request.
///
/// # Errors
/// The upstream message for an invalid response.
pub(crate) fn verify(uid: &str, answer: &Value) -> Result<Value, String> {
    let response = &answer["response"];
    if response.is_null() {
        return Err("received invalid webhook response: webhook response was absent".to_owned());
    }
    let found = value::text(response, &["uid"]);
    if found != uid {
        return Err(format!(
            "received invalid webhook response: expected response.uid={uid:?}, got {found:?}"
        ));
    }
    let (version, kind) = (value::text(answer, &["apiVersion"]), value::text(answer, &["kind"]));
    if (version, kind) != (VERSION, "AdmissionReview") {
        return Err(format!(
            "received invalid webhook response: expected webhook response of {VERSION}, Kind=AdmissionReview, got \
             {version}, Kind={kind}"
        ));
    }
    Ok(response.clone())
}

/// Decodes a checked response.
///
/// # Errors
/// The upstream message for an invalid response.
pub(super) fn response(response: &Value, is_mutating: bool) -> Result<Response, String> {
    let invalid = |why: &str| Err(format!("received invalid webhook response: {why}"));
    let (patch, of_type) = (value::text(response, &["patch"]), value::at(response, &["patchType"]));
    match (is_mutating, !patch.is_empty(), of_type.as_str()) {
        (false, true, _) => return invalid("validating webhook may not return response.patch"),
        (false, _, Some(_)) => return invalid("validating webhook may not return response.patchType"),
        (true, true, None) => return invalid("webhook returned response.patch but not response.patchType"),
        (true, false, Some(_)) => {
            return invalid("webhook returned response.patchType but not response.patch");
        }
        (true, true, Some("")) => return invalid("webhook returned invalid response.patchType of \"\""),
        _ => {}
    }
    let allowed = value::flag(response, &["allowed"]);
    let patch = match patch {
        "" => None,
        _ if !allowed => None,
        patch => Some(operations(patch, of_type.as_str().unwrap_or_default())?),
    };
    let warnings = value::texts(response, &["warnings"]).into_iter().map(str::to_owned).collect();
    let status = value::at(response, &["status"]).clone();
    Ok(Response { allowed, patch: patch.filter(|it| it != &json!([])), warnings, status })
}

fn operations(patch: &str, of_type: &str) -> Result<Value, String> {
    let undecodable = |why: String| format!("received undecodable patch in webhook response: {why}");
    let bytes = STANDARD.decode(patch).map_err(|error| undecodable(error.to_string()))?;
    let operations: Value = serde_json::from_slice(&bytes).map_err(|error| undecodable(error.to_string()))?;
    match of_type {
        "JSONPatch" => Ok(operations),
        other => Err(format!("unsupported patch type {other:?}")),
    }
}

/// Returns the error for a denied request.
pub(super) fn denial(webhook: &str, status: &Value) -> Status {
    let by = format!("admission webhook {webhook:?} denied the request");
    let (message, reason) = (value::text(status, &["message"]), value::text(status, &["reason"]));
    let message = match (message, reason) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code = value::integer(status, &["code"]).and_then(|it| u16::try_from(it).ok()).unwrap_or_default();
    let mut denied = Status::new(code.max(400), reason.to_owned(), message);
    denied.details = details(value::at(status, &["details"])).map(Box::new);
    denied
}

fn details(given: &Value) -> Option<Details> {
    serde_json::from_value::<Option<Details>>(given.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denial_has_code_reason_and_details_of_webhook() {
        let status = json!({"code": 422, "reason": "Invalid", "message": "too long",
            "details": {"causes": [{"field": "spec.a", "message": "no"}]}});
        let denied = denial("a.b.c", &status);
        assert_eq!((denied.code, &*denied.reason), (422, "Invalid"));
        assert_eq!(denied.message, "admission webhook \"a.b.c\" denied the request: too long");
        assert_eq!(denied.details.unwrap().causes[0].field, "spec.a");
        let bare = denial("a.b.c", &Value::Null);
        assert_eq!((bare.code, &*bare.reason), (400, ""));
        assert_eq!(bare.message, "admission webhook \"a.b.c\" denied the request without explanation");
        assert_eq!(denial("a.b.c", &json!({"code": 200, "reason": "No"})).code, 400);
    }

    #[test]
    fn response_of_another_request_is_invalid() {
        let answer = json!({"kind": "AdmissionReview", "apiVersion": VERSION, "response": {"uid": "b"}});
        let why = "received invalid webhook response: expected response.uid=\"a\", got \"b\"";
        assert_eq!(verify("a", &answer), Err(why.to_owned()));
        assert_eq!(verify("b", &answer), Ok(json!({"uid": "b"})));
        assert!(verify("b", &json!({})).is_err());
    }

    #[test]
    fn patch_needs_a_type_and_a_mutating_webhook() {
        let patch = STANDARD.encode(r#"[{"op":"remove","path":"/a"}]"#);
        let given = json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"});
        assert_eq!(response(&given, true).unwrap().patch, Some(json!([{"op": "remove", "path": "/a"}])));
        assert!(response(&given, false).is_err());
        assert!(response(&json!({"allowed": true, "patch": patch}), true).is_err());
        assert!(response(&json!({"allowed": true, "patchType": "JSONPatch"}), true).is_err());
    }
}
