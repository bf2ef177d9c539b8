//! Requests for unknown paths, and bodies of the wrong type.

use http::Method;
use serde_json::{Value, json};

use super::objects::{config_map, deployment, pod};
use crate::{Behavior, Case, Outcome, behaviors, case::patch, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    path_outside_the_api_returns_plain_text_404,
    resource_that_does_not_exist_is_rejected,
    unsupported_verb_is_rejected,
    post_to_named_path_is_rejected,
    body_of_another_media_type_is_rejected,
    unknown_field_is_dropped,
    unknown_field_causes_warning,
    unknown_field_is_rejected_when_strict,
    unknown_field_can_be_ignored,
    several_unknown_fields_are_reported_together,
    nested_unknown_field_is_reported_with_its_path,
    repeated_field_is_rejected_when_strict,
    unknown_field_validation_is_rejected,
    string_instead_of_number_is_rejected,
    number_instead_of_string_is_rejected,
    list_instead_of_object_is_rejected,
    object_instead_of_list_is_rejected,
    fraction_instead_of_integer_is_rejected,
    malformed_quantity_is_rejected,
    malformed_time_is_rejected,
    unknown_option_is_ignored,
    malformed_boolean_option_counts_as_true,
    unknown_dry_run_is_rejected,
    error_response_is_json,
    invalid_timeout_precedes_missing_resource,
    unknown_kind_of_delete_options_is_rejected,
    body_of_other_kind_is_decoded_as_that_kind,
    unrecognized_body_is_quoted_as_sent,
    empty_protobuf_body_is_rejected,
    known_version_that_is_not_served_is_rejected,
    list_options_are_validated_before_fields,
    bytes_can_be_a_list_of_numbers,
];

async fn path_outside_the_api_returns_plain_text_404(case: Case) -> Outcome {
    let answer = case.get("/nothing/here").await?;
    same!((answer.status, answer.body), (404, json!("404 page not found\n")));
    Ok(())
}

async fn resource_that_does_not_exist_is_rejected(case: Case) -> Outcome {
    let answer = case.get("nothings/a").await?;
    let message = "the server could not find the requested resource";
    same!(answer.expect_rejected(404, "NotFound", message)?, json!({}));
    Ok(())
}

async fn unsupported_verb_is_rejected(case: Case) -> Outcome {
    let answer = case.put("configmaps", config_map("a")).await?;
    let message = "the server does not allow this method on the requested resource";
    same!(answer.expect_rejected(405, "MethodNotAllowed", message)?, json!({}));
    let answer = case.get("bindings").await?;
    answer.expect_rejected(405, "MethodNotAllowed", message)?;
    Ok(())
}

async fn post_to_named_path_is_rejected(case: Case) -> Outcome {
    let answer = case.post("configmaps/a", config_map("a")).await?;
    let message = "the server does not allow this method on the requested resource";
    answer.expect_rejected(405, "MethodNotAllowed", message)?;
    Ok(())
}

async fn body_of_another_media_type_is_rejected(case: Case) -> Outcome {
    let headers = [("content-type", "text/plain")];
    let answer = case.send(Method::POST, "configmaps", &headers, config_map("a").to_string()).await?;
    let words =
        "the body of the request was in an unknown format - accepted media types include: application/json";
    answer.expect_rejected_containing(415, "UnsupportedMediaType", words)?;
    Ok(())
}

fn odd() -> Value {
    let mut it = deployment("a");
    it["spec"]["foo"] = json!(1);
    it
}

async fn unknown_field_is_dropped(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", odd()).await?;
    same!(made["spec"]["foo"], Value::Null);
    Ok(())
}

async fn unknown_field_causes_warning(case: Case) -> Outcome {
    let answer = case.post("apps/v1 deployments", odd()).await?;
    same!(answer.warnings(), ["unknown field \"spec.foo\""]);
    Ok(())
}

async fn unknown_field_is_rejected_when_strict(case: Case) -> Outcome {
    let answer = case.post("apps/v1 deployments?fieldValidation=Strict", odd()).await?;
    let message = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown \
        field \"spec.foo\"";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn unknown_field_can_be_ignored(case: Case) -> Outcome {
    let answer = case.post("apps/v1 deployments?fieldValidation=Ignore", odd()).await?;
    same!(answer.warnings(), Vec::<String>::new());
    same!(answer.status, 201);
    Ok(())
}

async fn several_unknown_fields_are_reported_together(case: Case) -> Outcome {
    let mut wanted = odd();
    wanted["spec"]["template"]["bar"] = json!({});
    let answer = case.post("apps/v1 deployments?fieldValidation=Strict", wanted).await?;
    let message = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown \
        field \"spec.foo\", unknown field \"spec.template.bar\"";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn nested_unknown_field_is_reported_with_its_path(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 80, "foo": 1 }]);
    let answer = case.post("pods", wanted).await?;
    same!(answer.warnings(), ["unknown field \"spec.containers[0].ports[0].foo\""]);
    Ok(())
}

async fn repeated_field_is_rejected_when_strict(case: Case) -> Outcome {
    let body = r#"{"metadata":{"name":"a"},"data":{"a":"1"},"data":{"b":"2"}}"#;
    let headers = [("content-type", "application/json")];
    let answer = case.send(Method::POST, "configmaps?fieldValidation=Strict", &headers, body).await?;
    answer.expect_rejected_containing(
        400,
        "BadRequest",
        "strict decoding error: duplicate field \"data\"",
    )?;
    let answer = case.send(Method::POST, "configmaps", &headers, body).await?;
    same!(answer.warnings(), ["duplicate field \"data\""]);
    Ok(())
}

async fn unknown_field_validation_is_rejected(case: Case) -> Outcome {
    let answer = case.post("configmaps?fieldValidation=Loose", config_map("a")).await?;
    let words = "fieldValidation: Unsupported value: \"Loose\": supported values: ";
    let details = answer.expect_rejected_containing(422, "Invalid", words)?;
    has!(details, { "group": "meta.k8s.io", "kind": "CreateOptions" });
    Ok(())
}

async fn string_instead_of_number_is_rejected(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["replicas"] = json!("two");
    let answer = case.post("apps/v1 deployments", wanted).await?;
    let message = "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into \
        Go struct field DeploymentSpec.spec.replicas of type int32";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn number_instead_of_string_is_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["data"]["key"] = json!(5);
    let answer = case.post("configmaps", wanted).await?;
    let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into \
        Go struct field ConfigMap.data of type string";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn list_instead_of_object_is_rejected(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["selector"] = json!([]);
    let answer = case.post("apps/v1 deployments", wanted).await?;
    let message = "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal array into \
        Go struct field DeploymentSpec.spec.selector of type v1.LabelSelector";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn object_instead_of_list_is_rejected(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"] = json!({});
    let answer = case.post("pods", wanted).await?;
    let message = "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal object into Go struct \
        field PodSpec.spec.containers of type []v1.Container";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn fraction_instead_of_integer_is_rejected(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["replicas"] = json!(1.5);
    let answer = case.post("apps/v1 deployments", wanted).await?;
    answer.expect_rejected_containing(
        400,
        "BadRequest",
        "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
    )?;
    Ok(())
}

async fn malformed_quantity_is_rejected(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "much" } });
    let answer = case.post("pods", wanted).await?;
    let message = "Pod in version \"v1\" cannot be handled as a Pod: quantities must match the regular expression \
        '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn malformed_time_is_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["creationTimestamp"] = json!("yesterday");
    let answer = case.post("configmaps", wanted).await?;
    answer.expect_rejected_containing(
        400,
        "BadRequest",
        "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\"",
    )?;
    Ok(())
}

async fn unknown_option_is_ignored(case: Case) -> Outcome {
    case.make("configmaps?nothing=here", config_map("a")).await?;
    Ok(())
}

async fn malformed_boolean_option_counts_as_true(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let mut watch = case.watch("configmaps?allowWatchBookmarks=yes").await?;
    watch.expect("ADDED", "a").await?;
    Ok(())
}

async fn unknown_dry_run_is_rejected(case: Case) -> Outcome {
    let answer = case.post("configmaps?dryRun=Some", config_map("a")).await?;
    let message = "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"";
    answer.expect_rejected_containing(422, "Invalid", &message[..60])?;
    Ok(())
}

async fn error_response_is_json(case: Case) -> Outcome {
    let answer = case.get("configmaps/a").await?;
    same!(answer.media_type(), "application/json");
    has!(answer.body, { "metadata": {}, "status": "Failure" });
    Ok(())
}

async fn invalid_timeout_precedes_missing_resource(case: Case) -> Outcome {
    let message = "invalid timeout specified in the request URL - time: invalid duration \"x\"";
    case.get("nothings?timeout=x").await?.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn unknown_kind_of_delete_options_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let json = [("content-type", "application/json")];
    let answer = case.send(Method::DELETE, "configmaps/a", &json, r#"{"kind":"Foo"}"#).await?;
    let message = "no kind \"Foo\" is registered for version \"meta.k8s.io/v1\" in scheme \"pkg/runtime/scheme.go:111\"";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn body_of_other_kind_is_decoded_as_that_kind(case: Case) -> Outcome {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "data": { "a": "1" } });
    let message =
        "Secret in version \"v1\" cannot be handled as a ConfigMap: illegal base64 data at input byte 0";
    case.post("configmaps", secret).await?.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn unrecognized_body_is_quoted_as_sent(case: Case) -> Outcome {
    let json = [("content-type", "application/json")];
    let answer = case.send(Method::POST, "configmaps", &json, r#"{ "apiVersion": "x/y/z" }"#).await?;
    let message = "the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion string: x/y/z \
        ({ \"apiVersion\": \"x/y/z\" })";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn empty_protobuf_body_is_rejected(case: Case) -> Outcome {
    let protobuf = [("content-type", "application/vnd.kubernetes.protobuf")];
    let unrecognized = "the object provided is unrecognized (must be of type ConfigMap): ";
    let answer = case.send(Method::POST, "configmaps", &protobuf, "").await?;
    answer.expect_rejected(400, "BadRequest", &format!("{unrecognized}empty data (<empty>)"))?;
    let answer = case.send(Method::POST, "configmaps", &protobuf, "{}").await?;
    let why = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] ({})";
    answer.expect_rejected(400, "BadRequest", &format!("{unrecognized}{why}"))?;
    Ok(())
}

async fn known_version_that_is_not_served_is_rejected(case: Case) -> Outcome {
    let mut old = deployment("a");
    old["apiVersion"] = json!("apps/v1beta1");
    let message =
        "the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)";
    case.post("apps/v1 deployments", old).await?.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn list_options_are_validated_before_fields(case: Case) -> Outcome {
    let answer = case.get("configmaps?fieldSelector=x=y&resourceVersionMatch=Exact").await?;
    let words = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    let answer = case.get("configmaps?fieldSelector=x&resourceVersionMatch=Exact").await?;
    answer.expect_rejected(400, "BadRequest", "invalid selector: 'x'; can't understand 'x'")?;
    Ok(())
}

async fn bytes_can_be_a_list_of_numbers(case: Case) -> Outcome {
    let secret = |name: &str, bytes: Value| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": { "k": bytes } });
    let accepted =
        [(json!([1, 2, 255]), "AQL/"), (json!([]), ""), (json!([1, null]), "AQA="), (json!(null), "")];
    for (index, (bytes, expected)) in accepted.into_iter().enumerate() {
        let made = case.make("secrets?fieldValidation=Strict", secret(&format!("s{index}"), bytes)).await?;
        same!(made["data"]["k"], expected);
    }
    for (bytes, given) in [
        (json!(["a"]), "string"),
        (json!([1, 256]), "number 256"),
        (json!([1.5]), "number 1.5"),
        (json!([-1]), "number -1"),
    ] {
        let answer = case.post("secrets", secret("a", bytes)).await?;
        let message = format!(
            "Secret in version \"v1\" cannot be handled as a Secret: json: cannot unmarshal {given} into Go struct field \
             Secret.data of type uint8"
        );
        answer.expect_rejected(400, "BadRequest", &message)?;
    }
    for kind in [patch::MERGE, patch::STRATEGIC] {
        let patched =
            case.patch(kind, "secrets/s0", json!({ "data": { "k": [104, 105] } })).await?.is(200)?;
        same!(patched["data"]["k"], "aGk=");
    }
    Ok(())
}
