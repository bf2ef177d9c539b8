//! Requests for unknown paths, and bodies of the wrong type.

use http::Method;
use serde_json::{Value, json};

use super::objects::{config_map, deployment, pod};
use crate::{Behavior, Case, Outcome, behaviours, has, same};

pub(super) const ALL: &[Behavior] = behaviours![
    a_path_outside_the_api_is_refused_in_plain_text,
    a_resource_that_does_not_exist_is_refused,
    a_verb_the_resource_does_not_have_is_refused,
    a_creation_by_name_is_refused,
    a_body_of_another_media_type_is_refused,
    an_unknown_field_is_dropped,
    an_unknown_field_is_warned_about,
    an_unknown_field_is_refused_when_strict,
    an_unknown_field_can_be_ignored,
    several_unknown_fields_are_told_together,
    an_unknown_field_deep_inside_is_told_with_its_path,
    a_repeated_field_is_refused_when_strict,
    an_unknown_validation_is_refused,
    a_text_where_a_number_belongs_is_refused,
    a_number_where_a_text_belongs_is_refused,
    a_list_where_an_object_belongs_is_refused,
    an_object_where_a_list_belongs_is_refused,
    a_fraction_where_an_integer_belongs_is_refused,
    a_malformed_quantity_is_refused,
    a_malformed_time_is_refused,
    an_unknown_option_is_ignored,
    a_malformed_boolean_option_counts_as_true,
    an_unknown_dry_run_is_refused,
    a_refusal_is_json,
];

async fn a_path_outside_the_api_is_refused_in_plain_text(case: Case) -> Outcome {
    let answer = case.get("/nothing/here").await?;
    same!((answer.status, answer.body), (404, json!("404 page not found\n")));
    Ok(())
}

async fn a_resource_that_does_not_exist_is_refused(case: Case) -> Outcome {
    let answer = case.get("nothings/a").await?;
    let message = "the server could not find the requested resource";
    same!(answer.refused(404, "NotFound", message)?, json!({}));
    Ok(())
}

async fn a_verb_the_resource_does_not_have_is_refused(case: Case) -> Outcome {
    let answer = case.put("configmaps", config_map("a")).await?;
    let message = "the server does not allow this method on the requested resource";
    same!(answer.refused(405, "MethodNotAllowed", message)?, json!({}));
    let answer = case.get("bindings").await?;
    answer.refused(405, "MethodNotAllowed", message)?;
    Ok(())
}

async fn a_creation_by_name_is_refused(case: Case) -> Outcome {
    let answer = case.post("configmaps/a", config_map("a")).await?;
    let message = "the server does not allow this method on the requested resource";
    answer.refused(405, "MethodNotAllowed", message)?;
    Ok(())
}

async fn a_body_of_another_media_type_is_refused(case: Case) -> Outcome {
    let headers = [("content-type", "text/plain")];
    let answer = case.send(Method::POST, "configmaps", &headers, config_map("a").to_string()).await?;
    let words =
        "the body of the request was in an unknown format - accepted media types include: application/json";
    answer.refused_with(415, "UnsupportedMediaType", words)?;
    Ok(())
}

fn odd() -> Value {
    let mut it = deployment("a");
    it["spec"]["foo"] = json!(1);
    it
}

async fn an_unknown_field_is_dropped(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", odd()).await?;
    same!(made["spec"]["foo"], Value::Null);
    Ok(())
}

async fn an_unknown_field_is_warned_about(case: Case) -> Outcome {
    let answer = case.post("apps/v1 deployments", odd()).await?;
    same!(answer.warnings(), ["unknown field \"spec.foo\""]);
    Ok(())
}

async fn an_unknown_field_is_refused_when_strict(case: Case) -> Outcome {
    let answer = case.post("apps/v1 deployments?fieldValidation=Strict", odd()).await?;
    let message = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown \
        field \"spec.foo\"";
    answer.refused(400, "BadRequest", message)?;
    Ok(())
}

async fn an_unknown_field_can_be_ignored(case: Case) -> Outcome {
    let answer = case.post("apps/v1 deployments?fieldValidation=Ignore", odd()).await?;
    same!(answer.warnings(), Vec::<String>::new());
    same!(answer.status, 201);
    Ok(())
}

async fn several_unknown_fields_are_told_together(case: Case) -> Outcome {
    let mut wanted = odd();
    wanted["spec"]["template"]["bar"] = json!({});
    let answer = case.post("apps/v1 deployments?fieldValidation=Strict", wanted).await?;
    let message = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown \
        field \"spec.foo\", unknown field \"spec.template.bar\"";
    answer.refused(400, "BadRequest", message)?;
    Ok(())
}

async fn an_unknown_field_deep_inside_is_told_with_its_path(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 80, "foo": 1 }]);
    let answer = case.post("pods", wanted).await?;
    same!(answer.warnings(), ["unknown field \"spec.containers[0].ports[0].foo\""]);
    Ok(())
}

async fn a_repeated_field_is_refused_when_strict(case: Case) -> Outcome {
    let body = r#"{"metadata":{"name":"a"},"data":{"a":"1"},"data":{"b":"2"}}"#;
    let headers = [("content-type", "application/json")];
    let answer = case.send(Method::POST, "configmaps?fieldValidation=Strict", &headers, body).await?;
    answer.refused_with(400, "BadRequest", "strict decoding error: duplicate field \"data\"")?;
    let answer = case.send(Method::POST, "configmaps", &headers, body).await?;
    same!(answer.warnings(), ["duplicate field \"data\""]);
    Ok(())
}

async fn an_unknown_validation_is_refused(case: Case) -> Outcome {
    let answer = case.post("configmaps?fieldValidation=Loose", config_map("a")).await?;
    let words = "fieldValidation: Unsupported value: \"Loose\": supported values: ";
    let details = answer.refused_with(422, "Invalid", words)?;
    has!(details, { "group": "meta.k8s.io", "kind": "CreateOptions" });
    Ok(())
}

async fn a_text_where_a_number_belongs_is_refused(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["replicas"] = json!("two");
    let answer = case.post("apps/v1 deployments", wanted).await?;
    let message = "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into \
        Go struct field DeploymentSpec.spec.replicas of type int32";
    answer.refused(400, "BadRequest", message)?;
    Ok(())
}

async fn a_number_where_a_text_belongs_is_refused(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["data"]["key"] = json!(5);
    let answer = case.post("configmaps", wanted).await?;
    let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into \
        Go struct field ConfigMap.data of type string";
    answer.refused(400, "BadRequest", message)?;
    Ok(())
}

async fn a_list_where_an_object_belongs_is_refused(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["selector"] = json!([]);
    let answer = case.post("apps/v1 deployments", wanted).await?;
    let message = "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal array into \
        Go struct field DeploymentSpec.spec.selector of type v1.LabelSelector";
    answer.refused(400, "BadRequest", message)?;
    Ok(())
}

async fn an_object_where_a_list_belongs_is_refused(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"] = json!({});
    let answer = case.post("pods", wanted).await?;
    let message = "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal object into Go struct \
        field PodSpec.spec.containers of type []v1.Container";
    answer.refused(400, "BadRequest", message)?;
    Ok(())
}

async fn a_fraction_where_an_integer_belongs_is_refused(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["replicas"] = json!(1.5);
    let answer = case.post("apps/v1 deployments", wanted).await?;
    answer.refused_with(
        400,
        "BadRequest",
        "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
    )?;
    Ok(())
}

async fn a_malformed_quantity_is_refused(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "much" } });
    let answer = case.post("pods", wanted).await?;
    let message = "Pod in version \"v1\" cannot be handled as a Pod: quantities must match the regular expression \
        '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    answer.refused(400, "BadRequest", message)?;
    Ok(())
}

async fn a_malformed_time_is_refused(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["creationTimestamp"] = json!("yesterday");
    let answer = case.post("configmaps", wanted).await?;
    answer.refused_with(400, "BadRequest", "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\"")?;
    Ok(())
}

async fn an_unknown_option_is_ignored(case: Case) -> Outcome {
    case.make("configmaps?nothing=here", config_map("a")).await?;
    Ok(())
}

async fn a_malformed_boolean_option_counts_as_true(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let mut watch = case.watch("configmaps?allowWatchBookmarks=yes").await?;
    watch.expect("ADDED", "a").await?;
    Ok(())
}

async fn an_unknown_dry_run_is_refused(case: Case) -> Outcome {
    let answer = case.post("configmaps?dryRun=Some", config_map("a")).await?;
    let message = "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"";
    answer.refused_with(422, "Invalid", &message[..60])?;
    Ok(())
}

async fn a_refusal_is_json(case: Case) -> Outcome {
    let answer = case.get("configmaps/a").await?;
    same!(answer.media_type(), "application/json");
    has!(answer.body, { "metadata": {}, "status": "Failure" });
    Ok(())
}
