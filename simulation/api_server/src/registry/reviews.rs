//! Access reviews and token reviews.
//!
//! An access review allows everything, also for a restricted user whose requests the server denies ([`crate::rights`]).

use serde_json::{Value, json};
use windlass_schema::ResourceInfo;

use super::invalid::FieldErrors;
use super::request::Target;
use super::writer::WriteTransaction;
use super::{convert, value};
use crate::status::Status;

/// Returns whether the resource is a review.
pub(crate) fn is_review(of: &ResourceInfo) -> bool {
    matches!(of.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io")
}

/// Returns the response if the resource is a review.
pub(crate) fn answer(
    transaction: &WriteTransaction<'_>,
    to: &Target,
    body: &Value,
    user: &str,
) -> Option<Result<Value, Status>> {
    let status = match (to.resource.group.as_str(), to.resource.plural.as_str()) {
        (
            "authorization.k8s.io",
            "subjectaccessreviews" | "selfsubjectaccessreviews" | "localsubjectaccessreviews",
        ) => {
            if let Err(status) = validate_attributes(to, body) {
                return Some(Err(status));
            }
            json!({"allowed": true})
        }
        ("authorization.k8s.io", "selfsubjectrulesreviews") => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        ("authentication.k8s.io", "selfsubjectreviews") => json!({"userInfo": {"username": user}}),
        ("authentication.k8s.io", "tokenreviews") => {
            match transaction.user(value::text(body, &["spec", "token"])) {
                Some(owner) => json!({"authenticated": true, "user": {"username": owner}}),
                None => json!({"user": {}, "error": "invalid bearer token"}),
            }
        }
        _ => return None,
    };
    if !body.is_object() {
        return Some(Err(Status::bad_request("the body of the request is no object")));
    }
    let mut review = body.clone();
    value::set(&mut review, &["kind"], to.resource.kind.clone());
    value::set(&mut review, &["apiVersion"], convert::api_version(&to.resource));
    value::default(&mut review, &["metadata"], json!({}));
    value::set(&mut review, &["status"], status);
    Some(Ok(review))
}

fn validate_attributes(to: &Target, body: &Value) -> Result<(), Status> {
    let mut errors = FieldErrors::default();
    let given = |field: &str| value::has(body, &["spec", field]);
    match (given("resourceAttributes"), given("nonResourceAttributes")) {
        (true, true) => {
            let found = value::at(body, &["spec", "nonResourceAttributes"]).clone();
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.invalid("spec.nonResourceAttributes", found, detail);
        }
        (false, false) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.invalid("spec.resourceAttributes", Value::Null, detail);
        }
        _ => {}
    }
    errors.into_result(&to.resource.group, &to.resource.kind, "")
}
