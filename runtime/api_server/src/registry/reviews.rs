//! Kinds that are only asked: access reviews and token reviews. Rights are recorded, not enforced, so all is allowed.

use serde_json::{Value, json};

use super::request::Target;
use super::{convert, value};
use crate::status::Status;

/// The answer, if the resource is one of these.
pub(crate) fn answer(to: &Target, body: &Value, user: &str) -> Option<Result<Value, Status>> {
    let status = match (to.resource.group.as_str(), to.resource.plural.as_str()) {
        (
            "authorization.k8s.io",
            "subjectaccessreviews" | "selfsubjectaccessreviews" | "localsubjectaccessreviews",
        ) => json!({"allowed": true}),
        ("authorization.k8s.io", "selfsubjectrulesreviews") => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        ("authentication.k8s.io", "selfsubjectreviews") => json!({"userInfo": {"username": user}}),
        ("authentication.k8s.io", "tokenreviews") => {
            json!({"authenticated": true, "user": {"username": user}})
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
