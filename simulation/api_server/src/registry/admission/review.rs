//! AdmissionReviews: the request to a webhook, and the check of its response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use windlass_schema::ResourceInfo;
use windlass_schema::check::kind_of;

use super::{Invocation, Operation, Request};
use crate::registry::value;
use crate::status::{Details, Status};

/// A field of a response, its Go type, and the check of its values.
type FieldType = (&'static str, &'static str, fn(&Value) -> bool);

/// Kind of the reviews.
const KIND: &str = "AdmissionReview";

/// The version of a review.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    pub(super) fn named(name: &str) -> Option<ReviewVersion> {
        [ReviewVersion::V1, ReviewVersion::V1Beta1].into_iter().find(|it| it.name() == name)
    }

    fn of(api_version: &str) -> Option<ReviewVersion> {
        api_version.strip_prefix("admission.k8s.io/").and_then(ReviewVersion::named)
    }

    fn name(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1Beta1 => "v1beta1",
        }
    }
}

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
pub(super) fn review(
    request: &Request<'_>,
    invocation: &Invocation,
    version: ReviewVersion,
    object: &Value,
    old: &Value,
) -> Value {
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
    json!({"kind": KIND, "apiVersion": format!("admission.k8s.io/{}", version.name()), "request": sent})
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

/// Checks the response to a review, which includes the UID of the request.
///
/// # Errors
/// The upstream message for an invalid response.
pub(crate) fn verify(sent: &Value, answer: &Value) -> Result<Value, String> {
    decodable(sent, answer).map_err(|why| format!("failed to call webhook: {why}"))?;
    let invalid = |why: String| Err(format!("received invalid webhook response: {why}"));
    let response = &answer["response"];
    if response.is_null() {
        return invalid("webhook response was absent".to_owned());
    }
    let (version, kind) = (value::text(sent, &["apiVersion"]), value::text(answer, &["kind"]));
    if ReviewVersion::of(version) == Some(ReviewVersion::V1Beta1) {
        return Ok(response.clone());
    }
    let (uid, found) = (value::text(sent, &["request", "uid"]), value::text(response, &["uid"]));
    if found != uid {
        return invalid(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    let found = value::text(answer, &["apiVersion"]);
    if (found, kind) != (version, KIND) {
        let (group, name) = found.split_once('/').unwrap_or(("", found));
        return invalid(format!(
            "expected webhook response of {version}, Kind={KIND}, got {group}/{name}, Kind={kind}"
        ));
    }
    Ok(response.clone())
}

/// Checks the types of a response.
///
/// # Errors
/// The upstream message of the decoder.
fn decodable(sent: &Value, answer: &Value) -> Result<(), String> {
    let versions = [answer, sent].map(|it| ReviewVersion::of(value::text(it, &["apiVersion"])));
    if let [Some(found), Some(sent)] = versions
        && found != sent
        && value::text(answer, &["kind"]) == KIND
    {
        let [found, sent] = [found, sent].map(|it| format!("({}.{KIND})", it.name()));
        return Err(format!("converting {found} to {sent}: unknown conversion"));
    }
    let response = &answer["response"];
    let wrong = |field: &str, found: &Value, of: &str| {
        let found = kind_of(found);
        Err(format!("json: cannot unmarshal {found} into Go struct field {field} of type {of}"))
    };
    if !(response.is_null() || response.is_object()) {
        return wrong("AdmissionReview.response", response, "v1.AdmissionResponse");
    }
    let text: fn(&Value) -> bool = Value::is_string;
    let types: [FieldType; 7] = [
        ("uid", "types.UID", text),
        ("allowed", "bool", Value::is_boolean),
        ("status", "v1.Status", Value::is_object),
        ("patch", "[]uint8", text),
        ("patchType", "v1.PatchType", text),
        ("auditAnnotations", "map[string]string", |it| is_map_of_texts(it)),
        ("warnings", "[]string", |it| it.as_array().is_some_and(|all| all.iter().all(Value::is_string))),
    ];
    for (field, of, is_of_type) in types {
        let found = &response[field];
        if !found.is_null() && !is_of_type(found) {
            return wrong(&format!("AdmissionResponse.response.{field}"), found, of);
        }
    }
    let types: [FieldType; 4] = [
        ("message", "string", text),
        ("reason", "v1.StatusReason", text),
        ("code", "int32", |it| it.as_i64().is_some_and(|it| i32::try_from(it).is_ok())),
        ("details", "v1.StatusDetails", Value::is_object),
    ];
    for (field, of, is_of_type) in types {
        let found = value::at(response, &["status", field]);
        if !found.is_null() && !is_of_type(found) {
            return wrong(&format!("Status.response.status.{field}"), found, of);
        }
    }
    match STANDARD.decode(value::text(response, &["patch"])) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("illegal base64 data: {error}")),
    }
}

fn is_map_of_texts(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.values().all(Value::is_string))
}

/// Decodes a checked response.
///
/// # Errors
/// The upstream message for an invalid response.
pub(super) fn response(
    response: &Value,
    version: ReviewVersion,
    is_mutating: bool,
) -> Result<Response, String> {
    let invalid = |why: &str| Err(format!("received invalid webhook response: {why}"));
    let (mut patch, mut of_type) =
        (value::text(response, &["patch"]), value::at(response, &["patchType"]).as_str());
    if version == ReviewVersion::V1Beta1 {
        patch = if is_mutating { patch } else { "" };
        of_type = (!patch.is_empty()).then_some("JSONPatch");
    }
    match (is_mutating, !patch.is_empty(), of_type) {
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
        patch => Some(operations(patch, of_type.unwrap_or_default())?),
    };
    let warnings = value::texts(response, &["warnings"]).into_iter().map(str::to_owned).collect();
    let status = value::at(response, &["status"]).clone();
    Ok(Response { allowed, patch: patch.filter(|it| it != &json!([])), warnings, status })
}

/// Decodes a patch. Upstream decodes `null` as a list without operations.
fn operations(patch: &str, of_type: &str) -> Result<Value, String> {
    let undecodable = |why: String| format!("received undecodable patch in webhook response: {why}");
    let bytes = STANDARD.decode(patch).map_err(|error| undecodable(error.to_string()))?;
    let operations: Option<Vec<Map<String, Value>>> =
        serde_json::from_slice(&bytes).map_err(|error| undecodable(error.to_string()))?;
    let operations = operations.unwrap_or_default();
    match of_type {
        _ if operations.is_empty() => Ok(json!([])),
        "JSONPatch" => Ok(operations.into_iter().map(Value::Object).collect()),
        other => Err(format!("unsupported patch type {other:?}")),
    }
}

/// Checks that a changed custom object still has a kind.
pub(super) fn check_kind(object: &Value) -> Result<(), String> {
    match value::text(object, &["kind"]) {
        "" => Err(format!("Object 'Kind' is missing in '{object}'")),
        _ => Ok(()),
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
    serde_json::from_value(given.clone()).unwrap_or_default()
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

    fn answer(version: &str, response: Value) -> Value {
        json!({"kind": KIND, "apiVersion": format!("admission.k8s.io/{version}"), "response": response})
    }

    fn sent(version: &str) -> Value {
        json!({"apiVersion": format!("admission.k8s.io/{version}"), "request": {"uid": "a"}})
    }

    #[test]
    fn response_of_another_request_is_invalid() {
        let why = "received invalid webhook response: expected response.uid=\"a\", got \"b\"";
        assert_eq!(verify(&sent("v1"), &answer("v1", json!({"uid": "b"}))), Err(why.to_owned()));
        assert_eq!(verify(&sent("v1"), &answer("v1", json!({"uid": "a"}))), Ok(json!({"uid": "a"})));
        assert!(verify(&sent("v1"), &json!({})).is_err());
        let bare = json!({"response": {"uid": "a"}});
        let why = "received invalid webhook response: expected webhook response of admission.k8s.io/v1, \
                   Kind=AdmissionReview, got /, Kind=";
        assert_eq!(verify(&sent("v1"), &bare), Err(why.to_owned()));
    }

    #[test]
    fn older_review_accepts_response_without_uid_but_not_of_other_version() {
        let allowed = json!({"allowed": true});
        assert_eq!(verify(&sent("v1beta1"), &json!({"response": allowed})), Ok(allowed.clone()));
        let why = "failed to call webhook: converting (v1.AdmissionReview) to (v1beta1.AdmissionReview): unknown \
                   conversion";
        assert_eq!(verify(&sent("v1beta1"), &answer("v1", allowed)), Err(why.to_owned()));
    }

    #[test]
    fn response_with_wrong_type_cannot_be_decoded() {
        for (response, field) in [
            (json!({"allowed": "true"}), "AdmissionResponse.response.allowed of type bool"),
            (json!({"warnings": "w"}), "AdmissionResponse.response.warnings of type []string"),
            (json!({"patch": {}}), "AdmissionResponse.response.patch of type []uint8"),
            (json!({"status": {"code": "403"}}), "Status.response.status.code of type int32"),
            (json!("yes"), "AdmissionReview.response of type v1.AdmissionResponse"),
        ] {
            let error = verify(&sent("v1"), &answer("v1", response)).unwrap_err();
            assert!(error.starts_with("failed to call webhook: json: cannot unmarshal "), "{error}");
            assert!(error.ends_with(field), "{error}");
        }
        assert!(verify(&sent("v1"), &answer("v1", json!({"uid": "a", "patch": "?"}))).is_err());
    }

    #[test]
    fn patch_needs_a_type_and_a_mutating_webhook() {
        let response = |given: &Value, is_mutating| response(given, ReviewVersion::V1, is_mutating);
        let patch = STANDARD.encode(r#"[{"op":"remove","path":"/a"}]"#);
        let given = json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"});
        assert_eq!(response(&given, true).unwrap().patch, Some(json!([{"op": "remove", "path": "/a"}])));
        assert!(response(&given, false).is_err());
        assert!(response(&json!({"allowed": true, "patch": patch}), true).is_err());
        assert!(response(&json!({"allowed": true, "patchType": "JSONPatch"}), true).is_err());
    }

    #[test]
    fn patch_must_be_a_list_of_operations() {
        let patched = |patch: &str| {
            let given = json!({"allowed": true, "patch": STANDARD.encode(patch), "patchType": "JSONPatch"});
            response(&given, ReviewVersion::V1, true).map(|it| it.patch)
        };
        assert!(patched(r#"{"data":{}}"#).unwrap_err().starts_with("received undecodable patch"));
        assert!(patched("[1]").is_err());
        assert_eq!((patched("[]"), patched("null")), (Ok(None), Ok(None)));
    }

    #[test]
    fn older_review_accepts_patch_without_type() {
        let given = json!({"allowed": true, "patch": STANDARD.encode(r#"[{"op":"remove","path":"/a"}]"#)});
        let patch = |is_mutating| response(&given, ReviewVersion::V1Beta1, is_mutating).unwrap().patch;
        assert_eq!((patch(true).is_some(), patch(false)), (true, None));
    }
}
