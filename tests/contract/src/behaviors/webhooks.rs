//! Webhooks: admission of writes, and conversion of custom objects.
//!
//! A behavior serves its webhooks itself ([`crate::webhooks`]). Its configurations select its namespace only, because
//! all behaviors share a server.

mod conditions;
mod conversion;
mod deletions;
mod failures;
mod mutations;
mod setup;

use serde_json::{Value, json};

use self::conditions::{
    all_failed_match_conditions_are_reported, failed_match_condition_follows_failure_policy,
    failed_match_condition_skips_webhook_that_is_ignored, false_match_condition_outweighs_failed_one,
    invalid_match_condition_is_rejected, match_condition_is_evaluated,
    match_condition_needs_unique_qualified_name, match_condition_reads_object_of_subresource,
    match_condition_reads_request_and_old_object, valid_match_condition_is_accepted,
};
use self::conversion::{
    conversion_review_has_first_known_version, converted_labels_are_validated,
    converted_object_keeps_its_metadata, failed_conversion_fails_list, failed_conversion_fails_read,
    failed_conversion_fails_review, failed_conversion_fails_write, list_is_converted_to_requested_version,
    mutated_custom_object_is_checked_by_schema, mutation_cannot_change_kind_of_custom_object,
    object_is_read_in_other_version_by_conversion, patch_in_other_version_changes_stored_object,
    unreachable_conversion_fails_read, watch_delivers_converted_objects, webhook_reviews_equivalent_version,
    write_is_stored_in_storage_version,
};
use self::deletions::{
    denied_deletion_stops_deletion_of_collection, removal_of_last_finalizer_is_not_reviewed_as_deletion,
    scope_of_rule_limits_webhook, wildcard_of_rule_includes_subresources,
};
use self::failures::{
    configuration_is_defaulted, configurations_are_not_reviewed, invalid_configuration_is_rejected,
    missing_service_fails_write, patch_of_deletion_fails_write, patch_that_does_not_apply_fails_write,
    response_with_other_uid_fails_write, response_with_wrong_type_fails_write,
    slow_webhook_fails_write_after_its_timeout, status_response_of_webhook_fails_write,
    text_response_of_webhook_fails_write, undecodable_patch_follows_failure_policy,
    unreachable_webhook_fails_write, unreachable_webhook_is_ignored_by_failure_policy,
    validating_webhook_cannot_patch, webhook_with_side_effects_is_rejected,
    write_fails_at_time_limit_of_request,
};
use self::mutations::{
    creation_by_update_is_reviewed_as_creation, eviction_is_reviewed_with_its_namespace,
    fields_of_webhook_have_no_manager, invalid_managed_fields_of_webhook_are_reset,
    mutated_pod_is_admitted_again, mutating_webhook_receives_status_of_creation,
    mutating_webhook_receives_update_as_written, mutation_can_rename_new_object, mutation_cannot_move_object,
    mutation_without_metadata_is_rejected, review_has_first_known_version,
    scale_is_validated_as_it_would_be_stored,
};
use self::setup::{Type, allowed, denial, denied, install, name_of, patched, remove, rule, serve, webhook};
use super::objects::{config_map, deployment, labeled};
use crate::case::patch;
use crate::webhooks::Reply;
use crate::{Behavior, Case, Outcome, behaviors, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    denied_creation_has_message_of_webhook,
    denial_without_status_has_code_400,
    denial_has_details_of_webhook,
    review_describes_request,
    mutation_is_stored,
    mutated_object_is_validated,
    mutating_webhooks_are_called_by_configuration_name,
    mutating_webhook_is_called_again_after_later_change,
    validating_webhook_receives_mutated_object,
    generated_name_is_visible_to_validating_webhooks,
    warnings_of_webhooks_are_returned,
    long_warnings_are_cut,
    object_selector_limits_webhook,
    namespace_selector_limits_webhook,
    operations_of_rule_limit_webhook,
    dry_run_is_reported_to_webhook,
    update_is_reviewed_with_old_object,
    patch_and_apply_are_reviewed_as_updates,
    deletion_is_reviewed_with_old_object,
    each_object_of_deleted_collection_is_reviewed,
    denied_deletion_stops_deletion_of_collection,
    removal_of_last_finalizer_is_not_reviewed_as_deletion,
    scope_of_rule_limits_webhook,
    wildcard_of_rule_includes_subresources,
    status_update_is_reviewed_as_subresource,
    scale_is_reviewed_as_scale,
    scale_is_validated_as_it_would_be_stored,
    review_has_first_known_version,
    mutating_webhook_receives_update_as_written,
    mutating_webhook_receives_status_of_creation,
    mutation_can_rename_new_object,
    fields_of_webhook_have_no_manager,
    creation_by_update_is_reviewed_as_creation,
    mutation_cannot_move_object,
    mutation_without_metadata_is_rejected,
    eviction_is_reviewed_with_its_namespace,
    mutated_pod_is_admitted_again,
    invalid_managed_fields_of_webhook_are_reset,
    unreachable_webhook_fails_write,
    unreachable_webhook_is_ignored_by_failure_policy,
    missing_service_fails_write,
    status_response_of_webhook_fails_write,
    text_response_of_webhook_fails_write,
    response_with_other_uid_fails_write,
    response_with_wrong_type_fails_write,
    undecodable_patch_follows_failure_policy,
    validating_webhook_cannot_patch,
    patch_that_does_not_apply_fails_write,
    patch_of_deletion_fails_write,
    slow_webhook_fails_write_after_its_timeout,
    write_fails_at_time_limit_of_request,
    configurations_are_not_reviewed,
    configuration_is_defaulted,
    invalid_configuration_is_rejected,
    webhook_with_side_effects_is_rejected,
    match_condition_is_evaluated,
    match_condition_reads_request_and_old_object,
    match_condition_reads_object_of_subresource,
    failed_match_condition_follows_failure_policy,
    failed_match_condition_skips_webhook_that_is_ignored,
    false_match_condition_outweighs_failed_one,
    all_failed_match_conditions_are_reported,
    valid_match_condition_is_accepted,
    invalid_match_condition_is_rejected,
    match_condition_needs_unique_qualified_name,
    object_is_read_in_other_version_by_conversion,
    write_is_stored_in_storage_version,
    patch_in_other_version_changes_stored_object,
    list_is_converted_to_requested_version,
    watch_delivers_converted_objects,
    converted_object_keeps_its_metadata,
    failed_conversion_fails_read,
    failed_conversion_fails_list,
    failed_conversion_fails_write,
    failed_conversion_fails_review,
    mutated_custom_object_is_checked_by_schema,
    mutation_cannot_change_kind_of_custom_object,
    conversion_review_has_first_known_version,
    converted_labels_are_validated,
    unreachable_conversion_fails_read,
    webhook_reviews_equivalent_version,
];

async fn denied_creation_has_message_of_webhook(case: Case) -> Outcome {
    let (client, _) = serve(&case, "deny", |_| denied("not today"));
    let name = install(&case, Type::Validating, "deny", &[webhook(&case, "deny", &client)]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    answer.expect_rejected(403, "Forbidden", &denial(&case, "deny", "not today"))?;
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    remove(&case, Type::Validating, &name).await
}

async fn denial_without_status_has_code_400(case: Case) -> Outcome {
    let (client, _) = serve(&case, "deny", |_| Reply::Response(json!({ "allowed": false })));
    let name = install(&case, Type::Mutating, "deny", &[webhook(&case, "deny", &client)]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    let message =
        format!("admission webhook {:?} denied the request without explanation", name_of(&case, "deny"));
    same!((answer.status, &answer.body["message"]), (400, &json!(message)));
    has!(answer.body, { "kind": "Status", "status": "Failure", "reason": null, "code": 400 });
    remove(&case, Type::Mutating, &name).await
}

async fn denial_has_details_of_webhook(case: Case) -> Outcome {
    let (client, _) = serve(&case, "deny", |_| {
        let causes = json!([{ "reason": "FieldValueInvalid", "field": "data.key", "message": "is short" }]);
        let details = json!({ "name": "a", "kind": "ConfigMap", "causes": causes });
        let status = json!({ "code": 422, "reason": "Invalid", "message": "wrong", "details": details });
        Reply::Response(json!({ "allowed": false, "status": status }))
    });
    let name = install(&case, Type::Validating, "deny", &[webhook(&case, "deny", &client)]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    let details = answer.expect_rejected(422, "Invalid", &denial(&case, "deny", "wrong"))?;
    has!(details, { "name": "a", "kind": "ConfigMap",
        "causes": [{ "reason": "FieldValueInvalid", "field": "data.key", "message": "is short" }] });
    remove(&case, Type::Validating, &name).await
}

async fn review_describes_request(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let name = install(&case, Type::Mutating, "see", &[webhook(&case, "see", &client)]).await?;
    case.make("configmaps?fieldManager=me&fieldValidation=Strict", config_map("a")).await?;
    let request = requests.last()?;
    has!(request, {
        "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "resource": { "group": "", "version": "v1", "resource": "configmaps" },
        "requestKind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "requestResource": { "group": "", "version": "v1", "resource": "configmaps" },
        "subResource": null, "requestSubResource": null,
        "name": "a", "namespace": case.namespace, "operation": "CREATE", "dryRun": false,
        "object": {
            "kind": "ConfigMap", "apiVersion": "v1", "data": { "key": "value" },
            "metadata": { "name": "a", "namespace": case.namespace, "uid": null, "resourceVersion": null },
        },
        "oldObject": null,
    });
    let options = json!({
        "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me", "fieldValidation": "Strict",
    });
    same!(request["options"], options);
    same!(request["object"]["metadata"]["managedFields"][0]["manager"], "me");
    anyhow::ensure!(request["uid"].is_string() && request["userInfo"]["username"].is_string(), "{request}");
    remove(&case, Type::Mutating, &name).await
}

async fn mutation_is_stored(case: Case) -> Outcome {
    let (client, _) =
        serve(&case, "color", |_| patched(json!([{ "op": "add", "path": "/data/color", "value": "red" }])));
    let name = install(&case, Type::Mutating, "color", &[webhook(&case, "color", &client)]).await?;
    let made = case.make("configmaps", config_map("a")).await?;
    same!(made["data"], json!({ "color": "red", "key": "value" }));
    same!(case.read("configmaps/a").await?, made);
    remove(&case, Type::Mutating, &name).await
}

async fn mutated_object_is_validated(case: Case) -> Outcome {
    let (client, _) =
        serve(&case, "spoil", |_| patched(json!([{ "op": "add", "path": "/data/a b", "value": "" }])));
    let name = install(&case, Type::Mutating, "spoil", &[webhook(&case, "spoil", &client)]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    answer.expect_rejected_containing(422, "Invalid", "data[a b]: Invalid value: \"a b\"")?;
    remove(&case, Type::Mutating, &name).await
}

/// Returns a webhook that appends a letter to a value.
fn letter(case: &Case, letter: &'static str) -> Value {
    let (client, _) = serve(case, letter, move |request| {
        let value = format!("{}{letter}", request["object"]["data"]["key"].as_str().unwrap_or_default());
        patched(json!([{ "op": "replace", "path": "/data/key", "value": value }]))
    });
    webhook(case, letter, &client)
}

async fn mutating_webhooks_are_called_by_configuration_name(case: Case) -> Outcome {
    let second = install(&case, Type::Mutating, "b", &[letter(&case, "b"), letter(&case, "c")]).await?;
    let first = install(&case, Type::Mutating, "a", &[letter(&case, "a")]).await?;
    same!(case.make("configmaps", config_map("a")).await?["data"]["key"], "valueabc");
    remove(&case, Type::Mutating, &first).await?;
    remove(&case, Type::Mutating, &second).await
}

async fn mutating_webhook_is_called_again_after_later_change(case: Case) -> Outcome {
    let mut first = letter(&case, "a");
    first["reinvocationPolicy"] = json!("IfNeeded");
    let webhooks = [first, letter(&case, "b"), letter(&case, "c")];
    let name = install(&case, Type::Mutating, "again", &webhooks).await?;
    same!(case.make("configmaps", config_map("a")).await?["data"]["key"], "valueabca");
    remove(&case, Type::Mutating, &name).await
}

async fn validating_webhook_receives_mutated_object(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let seeing = install(&case, Type::Validating, "see", &[webhook(&case, "see", &client)]).await?;
    let changing = install(&case, Type::Mutating, "a", &[letter(&case, "a")]).await?;
    case.make("configmaps", config_map("a")).await?;
    let object = requests.last()?["object"].clone();
    same!(object["data"]["key"], "valuea");
    anyhow::ensure!(object["metadata"]["uid"].is_string(), "{object}");
    remove(&case, Type::Mutating, &changing).await?;
    remove(&case, Type::Validating, &seeing).await
}

async fn generated_name_is_visible_to_validating_webhooks(case: Case) -> Outcome {
    let (client, early) = serve(&case, "early", allowed);
    let first = install(&case, Type::Mutating, "early", &[webhook(&case, "early", &client)]).await?;
    let (client, late) = serve(&case, "late", allowed);
    let second = install(&case, Type::Validating, "late", &[webhook(&case, "late", &client)]).await?;
    let mut map = config_map("");
    map["metadata"] = json!({ "generateName": "a-" });
    let made = case.make("configmaps", map).await?;
    let (early, late) = (early.last()?, late.last()?);
    same!((&early["name"], &early["object"]["metadata"]["name"]), (&Value::Null, &Value::Null));
    same!(
        (&late["name"], &late["object"]["metadata"]["name"]),
        (&made["metadata"]["name"], &made["metadata"]["name"])
    );
    remove(&case, Type::Mutating, &first).await?;
    remove(&case, Type::Validating, &second).await
}

async fn warnings_of_webhooks_are_returned(case: Case) -> Outcome {
    let warn = |allowed: bool, warning: &'static str| {
        move |_: &Value| Reply::Response(json!({ "allowed": allowed, "warnings": [warning] }))
    };
    let (client, _) = serve(&case, "early", warn(true, "first"));
    let first = install(&case, Type::Mutating, "early", &[webhook(&case, "early", &client)]).await?;
    let (client, _) = serve(&case, "late", warn(false, "second"));
    let second = install(&case, Type::Validating, "late", &[webhook(&case, "late", &client)]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    same!((answer.status, answer.warnings()), (400, vec!["first".to_owned(), "second".to_owned()]));
    remove(&case, Type::Validating, &second).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    same!(answer.warnings().first().map(String::as_str), Some("first"));
    remove(&case, Type::Mutating, &first).await
}

async fn long_warnings_are_cut(case: Case) -> Outcome {
    let (client, _) = serve(&case, "warn", |_| {
        let warnings = json!(["a".repeat(3000), "b".repeat(3000), "b".repeat(3000), "", "c"]);
        Reply::Response(json!({ "allowed": true, "warnings": warnings }))
    });
    let name = install(&case, Type::Validating, "warn", &[webhook(&case, "warn", &client)]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    same!(answer.warnings(), ["a".repeat(256), "b".repeat(256), "c".to_owned()]);
    answer.is(201)?;
    remove(&case, Type::Validating, &name).await
}

async fn object_selector_limits_webhook(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let mut limited = webhook(&case, "see", &client);
    limited["objectSelector"] = json!({ "matchLabels": { "watched": "yes" } });
    let name = install(&case, Type::Validating, "see", &[limited]).await?;
    case.make("configmaps", config_map("a")).await?;
    same!(requests.all().len(), 0);
    case.make("configmaps", labeled("b", json!({ "watched": "yes" }))).await?;
    // kube-apiserver can review a write again whose object it read from an old cache.
    same!(requests.all().is_empty(), false);
    // The old object is enough.
    case.merge("configmaps/b", json!({ "metadata": { "labels": { "watched": null } } })).await?;
    anyhow::ensure!(requests.all().len() > 1, "the webhook was not called for the update");
    remove(&case, Type::Validating, &name).await
}

async fn namespace_selector_limits_webhook(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let mut limited = webhook(&case, "see", &client);
    limited["namespaceSelector"]["matchLabels"]["guarded"] = json!("yes");
    let name = install(&case, Type::Validating, "see", &[limited]).await?;
    case.make("configmaps", config_map("a")).await?;
    same!(requests.all().len(), 0);
    let namespace = format!("/api/v1/namespaces/{}", case.namespace);
    case.merge(&namespace, json!({ "metadata": { "labels": { "guarded": "yes" } } })).await?;
    let mut number = 0;
    // A real server reads namespaces from a cache.
    while requests.all().is_empty() && number < 100 {
        case.make("configmaps", config_map(&format!("b-{number}"))).await?;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        number += 1;
    }
    anyhow::ensure!(!requests.all().is_empty(), "the webhook was not called");
    remove(&case, Type::Validating, &name).await
}

async fn operations_of_rule_limit_webhook(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let mut limited = webhook(&case, "see", &client);
    limited["rules"] = json!([rule("*", "*", &["configmaps"], &["DELETE"])]);
    let name = install(&case, Type::Validating, "see", &[limited]).await?;
    case.make("configmaps", config_map("a")).await?;
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    same!(requests.all().len(), 0);
    case.delete("configmaps/a").await?.is(200)?;
    // kube-apiserver can review a write again whose object it read from an old cache.
    same!(requests.all().is_empty(), false);
    remove(&case, Type::Validating, &name).await
}

async fn dry_run_is_reported_to_webhook(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let name = install(&case, Type::Validating, "see", &[webhook(&case, "see", &client)]).await?;
    case.make("configmaps?dryRun=All", config_map("a")).await?;
    has!(requests.last()?, { "dryRun": true, "options": { "dryRun": ["All"] } });
    remove(&case, Type::Validating, &name).await
}

async fn update_is_reviewed_with_old_object(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let name = install(&case, Type::Validating, "see", &[webhook(&case, "see", &client)]).await?;
    let made = case.make("configmaps", config_map("a")).await?;
    let mut changed = made.clone();
    changed["data"]["key"] = json!("new");
    case.replace("configmaps/a", changed).await?;
    let request = requests.last()?;
    has!(request, { "operation": "UPDATE", "name": "a", "options": { "kind": "UpdateOptions" },
        "object": { "data": { "key": "new" } } });
    same!(request["oldObject"], made);
    remove(&case, Type::Validating, &name).await
}

async fn patch_and_apply_are_reviewed_as_updates(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let name = install(&case, Type::Mutating, "see", &[webhook(&case, "see", &client)]).await?;
    case.apply("me", "configmaps/a", config_map("a")).await?.is(201)?;
    has!(requests.last()?, { "operation": "CREATE", "name": "a", "oldObject": null,
        "options": { "kind": "CreateOptions", "fieldManager": "me" } });
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    has!(requests.last()?, { "operation": "UPDATE", "options": { "kind": "UpdateOptions" },
        "object": { "data": { "key": "new" } }, "oldObject": { "data": { "key": "value" } } });
    let add = json!([{ "op": "add", "path": "/data/other", "value": "x" }]);
    case.patch(patch::JSON, "configmaps/a", add).await?.is(200)?;
    has!(requests.last()?, { "operation": "UPDATE", "object": { "data": { "other": "x" } } });
    remove(&case, Type::Mutating, &name).await
}

async fn deletion_is_reviewed_with_old_object(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "stay", |_| denied("it stays"));
    let mut stay = webhook(&case, "stay", &client);
    stay["rules"] = json!([rule("", "v1", &["configmaps"], &["DELETE"])]);
    let name = install(&case, Type::Validating, "stay", &[stay]).await?;
    let made = case.make("configmaps", config_map("a")).await?;
    let answer = case.delete_with("configmaps/a", json!({ "propagationPolicy": "Background" })).await?;
    answer.expect_rejected(403, "Forbidden", &denial(&case, "stay", "it stays"))?;
    let request = requests.last()?;
    has!(request, { "operation": "DELETE", "name": "a", "object": null,
        "options": { "kind": "DeleteOptions", "propagationPolicy": "Background" } });
    same!(request["oldObject"], made);
    same!(case.read("configmaps/a").await?, made);
    remove(&case, Type::Validating, &name).await
}

async fn each_object_of_deleted_collection_is_reviewed(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let mut see = webhook(&case, "see", &client);
    see["rules"] = json!([rule("", "v1", &["configmaps"], &["DELETE"])]);
    let name = install(&case, Type::Validating, "see", &[see]).await?;
    for map in ["a", "b"] {
        case.make("configmaps", labeled(map, json!({ "old": "yes" }))).await?;
    }
    case.delete("configmaps?labelSelector=old=yes").await?.is(200)?;
    let mut reviewed: Vec<_> =
        requests.all().iter().map(|it| it["oldObject"]["metadata"]["name"].clone()).collect();
    reviewed.sort_by_key(Value::to_string);
    same!(reviewed, [json!("a"), json!("b")]);
    anyhow::ensure!(requests.all().iter().all(|it| it["name"].is_null()), "{:?}", requests.all());
    remove(&case, Type::Validating, &name).await
}

async fn status_update_is_reviewed_as_subresource(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let mut see = webhook(&case, "see", &client);
    see["rules"] = json!([rule("apps", "v1", &["deployments/status"], &["UPDATE"])]);
    let name = install(&case, Type::Mutating, "see", &[see]).await?;
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    let mut changed = made.clone();
    changed["status"] = json!({ "replicas": 1 });
    case.replace("apps/v1 deployments/a/status", changed).await?;
    has!(requests.last()?, { "subResource": "status", "requestSubResource": "status", "operation": "UPDATE",
        "kind": { "group": "apps", "version": "v1", "kind": "Deployment" }, "object": { "status": { "replicas": 1 } } });
    // A real server repeats an update, and its review, if its cache is behind.
    anyhow::ensure!(requests.all().iter().all(|it| it["subResource"] == "status"), "{:?}", requests.all());
    remove(&case, Type::Mutating, &name).await
}

async fn scale_is_reviewed_as_scale(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "most", |request| {
        match request["object"]["spec"]["replicas"].as_i64().unwrap_or_default() {
            4.. => denied("too many"),
            _ => patched(json!([{ "op": "replace", "path": "/spec/replicas", "value": 3 }])),
        }
    });
    let mut most = webhook(&case, "most", &client);
    most["rules"] = json!([rule("apps", "v1", &["deployments/scale"], &["UPDATE"])]);
    let name = install(&case, Type::Mutating, "most", &[most]).await?;
    case.make("apps/v1 deployments", deployment("a")).await?;
    let path = "apps/v1 deployments/a/scale";
    let scaled = case.merge(path, json!({ "spec": { "replicas": 1 } })).await?;
    same!(scaled["spec"]["replicas"], 3);
    has!(requests.last()?, { "kind": { "group": "autoscaling", "version": "v1", "kind": "Scale" },
        "resource": { "group": "apps", "version": "v1", "resource": "deployments" }, "subResource": "scale",
        "object": { "kind": "Scale", "spec": { "replicas": 1 } }, "oldObject": { "spec": { "replicas": 2 } } });
    let answer = case.patch(patch::MERGE, path, json!({ "spec": { "replicas": 5 } })).await?;
    answer.expect_rejected(403, "Forbidden", &denial(&case, "most", "too many"))?;
    remove(&case, Type::Mutating, &name).await
}
