//! ConversionReviews: the request to the webhook of a CRD, and the check of its response.

use std::time::Duration;

use serde_json::{Value, json};

use super::replay::{Answer, Call};
use super::value;
use crate::status::Status;
use crate::webhooks::WebhookAddress;

/// `apiVersion` of the reviews.
const VERSION: &str = "apiextensions.k8s.io/v1";

/// Time limit of a conversion, as upstream.
const LIMIT: Duration = Duration::from_secs(30);

/// The conversion webhook of a CRD.
#[derive(Clone, Debug)]
pub(crate) struct Conversion {
    address: WebhookAddress,
    speaks_v1: bool,
}

impl Conversion {
    /// Returns the conversion webhook of a CRD; `None` if it has another strategy.
    pub(crate) fn of(definition: &Value) -> Option<Conversion> {
        let conversion = value::at(definition, &["spec", "conversion"]);
        if value::text(conversion, &["strategy"]) != "Webhook" {
            return None;
        }
        let webhook = value::at(conversion, &["webhook"]);
        let address = WebhookAddress::of(value::at(webhook, &["clientConfig"]));
        let speaks_v1 = value::texts(webhook, &["conversionReviewVersions"]).contains(&"v1");
        Some(Conversion { address, speaks_v1 })
    }

    /// Returns the call that converts an object.
    pub(crate) fn call(&self, object: &Value, to: &str) -> Result<Call, Status> {
        if !self.speaks_v1 {
            return Err(failure("no supported conversion review versions"));
        }
        let request = json!({"desiredAPIVersion": to, "objects": [object]});
        let review = json!({"kind": "ConversionReview", "apiVersion": VERSION, "request": request});
        Ok(Call { address: self.address.clone(), limit: LIMIT, review })
    }
}

/// Returns the response of a ConversionReview.
///
/// # Errors
/// The upstream message for an invalid response.
pub(crate) fn verify(uid: &str, answer: &Value) -> Result<Value, String> {
    let (version, kind) = (value::text(answer, &["apiVersion"]), value::text(answer, &["kind"]));
    if (version, kind) != (VERSION, "ConversionReview") {
        return Err(format!(
            "expected webhook response of {VERSION}, Kind=ConversionReview, got {version}, Kind={kind}"
        ));
    }
    let response = &answer["response"];
    if response.is_null() {
        return Err("no response provided".to_owned());
    }
    let found = value::text(response, &["uid"]);
    if found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    let result = |field: &str| value::text(response, &["result", field]);
    match (result("status"), result("message")) {
        ("Success", _) => Ok(response["convertedObjects"].clone()),
        (status, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => Err(message.to_owned()),
    }
}

/// Returns the converted object from the response of the webhook.
pub(crate) fn converted(original: &Value, version: &str, answer: Answer) -> Result<Value, Status> {
    let webhook = format!("conversion webhook for {}", group_version_kind(original));
    let objects = answer.map_err(|why| failure(format!("{webhook} failed: {why}")))?;
    let objects = objects.as_array().map(Vec::as_slice).unwrap_or_default();
    let [converted] = objects else {
        return Err(failure(format!("{webhook} returned {} objects, expected 1", objects.len())));
    };
    check(original, converted, version).map_err(|why| failure(format!("{webhook} {why}")))?;
    let mut converted = converted.clone();
    restore_metadata(original, &mut converted);
    Ok(converted)
}

fn failure(why: impl Into<String>) -> Status {
    Status::new(500, "", why)
}

fn group_version_kind(object: &Value) -> String {
    format!("{}, Kind={}", value::text(object, &["apiVersion"]), value::text(object, &["kind"]))
}

fn check(original: &Value, converted: &Value, version: &str) -> Result<(), String> {
    let found = value::text(converted, &["apiVersion"]);
    if found != version {
        return Err(format!(
            "returned invalid object at index 0: invalid groupVersion (expected {version}, received {found})"
        ));
    }
    let (kind, found) = (value::text(original, &["kind"]), value::text(converted, &["kind"]));
    if kind != found {
        return Err(format!(
            "returned invalid object at index 0: invalid kind (expected {kind}, received {found})"
        ));
    }
    for (field, named) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let [one, other] = [original, converted].map(|it| value::text(it, &["metadata", field]));
        if one != other {
            return Err(format!("returned invalid object: must have the same {named}: {one} != {other}"));
        }
    }
    match value::at(converted, &["metadata"]) {
        Value::Object(_) => Ok(()),
        _ => Err("returned invalid metadata: missing metadata in converted object".to_owned()),
    }
}

/// Restores the metadata of the original object, except labels and annotations.
fn restore_metadata(original: &Value, converted: &mut Value) {
    let mut metadata = value::at(original, &["metadata"]).clone();
    for field in ["labels", "annotations"] {
        value::keep(&mut metadata, value::at(converted, &["metadata"]), &[field]);
    }
    value::set(converted, &["metadata"], metadata);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_keeps_metadata_except_labels_and_annotations() {
        let original =
            json!({"metadata": {"name": "a", "uid": "u", "labels": {"a": "1"}, "finalizers": ["f/f"]}});
        let mut converted = json!({"metadata": {"name": "a", "uid": "u", "annotations": {"b": "2"}}});
        restore_metadata(&original, &mut converted);
        let expected = json!({"name": "a", "uid": "u", "annotations": {"b": "2"}, "finalizers": ["f/f"]});
        assert_eq!(converted["metadata"], expected);
    }

    #[test]
    fn failed_conversion_has_message_of_webhook() {
        let review = |result: Value| {
            let response = json!({"uid": "u", "result": result, "convertedObjects": [1]});
            verify("u", &json!({"kind": "ConversionReview", "apiVersion": VERSION, "response": response}))
        };
        assert_eq!(review(json!({"status": "Success"})), Ok(json!([1])));
        assert_eq!(review(json!({"status": "Failure", "message": "no"})), Err("no".to_owned()));
        let why = "response.result.status was 'Failure', not 'Success'";
        assert_eq!(review(json!({"status": "Failure"})), Err(why.to_owned()));
    }
}
