//! Failing webhooks, and their configurations.

use serde_json::{Value, json};

use super::setup::{
    Type, configuration, denied, install, message, name_of, patched, remove, rule, serve, webhook,
};
use crate::behaviors::objects::config_map;
use crate::webhooks::Reply;
use crate::{Case, Outcome, has, same};

/// A client configuration of an address at which nothing listens.
pub(super) fn nowhere() -> Value {
    json!({ "url": "https://127.0.0.1:1/none" })
}

/// Installs a webhook, and checks that the creation of an object fails with this reason.
async fn expect_failure(case: &Case, of_type: Type, webhook: Value, why: &str) -> Outcome {
    let name = install(case, of_type, "fail", &[webhook]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    let failed = format!("failed calling webhook {:?}: {why}", name_of(case, "fail"));
    let details =
        answer.expect_rejected(500, "InternalError", &format!("Internal error occurred: {failed}"))?;
    has!(details, { "causes": [{ "message": failed }] });
    remove(case, of_type, &name).await
}

pub(super) async fn unreachable_webhook_fails_write(case: Case) -> Outcome {
    let why = "failed to call webhook: Post \"https://127.0.0.1:1/none?timeout=10s\": dial tcp 127.0.0.1:1: connect: \
               connection refused";
    expect_failure(&case, Type::Validating, webhook(&case, "fail", &nowhere()), why).await
}

pub(super) async fn unreachable_webhook_is_ignored_by_failure_policy(case: Case) -> Outcome {
    let mut ignored = webhook(&case, "ignored", &nowhere());
    ignored["failurePolicy"] = json!("Ignore");
    let first = install(&case, Type::Mutating, "one", &[ignored.clone()]).await?;
    let second = install(&case, Type::Validating, "two", &[ignored]).await?;
    same!(case.make("configmaps", config_map("a")).await?["data"], json!({ "key": "value" }));
    remove(&case, Type::Mutating, &first).await?;
    remove(&case, Type::Validating, &second).await
}

pub(super) async fn missing_service_fails_write(case: Case) -> Outcome {
    let client = json!({ "service": { "name": "absent", "namespace": case.namespace, "path": "/a" } });
    let why = format!(
        "failed to call webhook: Post \"https://absent.{}.svc:443/a?timeout=10s\": service \"absent\" not found",
        case.namespace
    );
    expect_failure(&case, Type::Mutating, webhook(&case, "fail", &client), &why).await
}

pub(super) async fn status_response_of_webhook_fails_write(case: Case) -> Outcome {
    let (client, _) = serve(&case, "fail", |_| {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "message": "out of paper",
        });
        Reply::Http(500, "application/json", status.to_string())
    });
    let why = "failed to call webhook: out of paper";
    expect_failure(&case, Type::Validating, webhook(&case, "fail", &client), why).await
}

pub(super) async fn text_response_of_webhook_fails_write(case: Case) -> Outcome {
    let (client, _) = serve(&case, "fail", |_| Reply::Http(500, "text/plain", "broken".to_owned()));
    let why = "failed to call webhook: an error on the server (\"broken\") has prevented the request from succeeding";
    expect_failure(&case, Type::Mutating, webhook(&case, "fail", &client), why).await
}

pub(super) async fn response_with_other_uid_fails_write(case: Case) -> Outcome {
    let (client, requests) =
        serve(&case, "fail", |_| Reply::Response(json!({ "allowed": true, "uid": "other" })));
    let name = install(&case, Type::Validating, "fail", &[webhook(&case, "fail", &client)]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    let why = format!(
        "received invalid webhook response: expected response.uid={}, got \"other\"",
        requests.last()?["uid"]
    );
    let expected =
        format!("Internal error occurred: failed calling webhook {:?}: {why}", name_of(&case, "fail"));
    answer.expect_rejected(500, "InternalError", &expected)?;
    remove(&case, Type::Validating, &name).await
}

pub(super) async fn response_with_wrong_type_fails_write(case: Case) -> Outcome {
    let (client, _) = serve(&case, "fail", |_| Reply::Response(json!({ "allowed": "false" })));
    let name = install(&case, Type::Validating, "fail", &[webhook(&case, "fail", &client)]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    let why = "failed to call webhook: json: cannot unmarshal string into Go struct field \
               AdmissionResponse.response.allowed of type bool";
    answer.expect_rejected_containing(500, "InternalError", why)?;
    remove(&case, Type::Validating, &name).await?;
    let mut ignored = webhook(&case, "fail", &client);
    ignored["failurePolicy"] = json!("Ignore");
    let name = install(&case, Type::Validating, "ignore", &[ignored]).await?;
    case.make("configmaps", config_map("a")).await?;
    remove(&case, Type::Validating, &name).await
}

pub(super) async fn undecodable_patch_follows_failure_policy(case: Case) -> Outcome {
    let (client, _) = serve(&case, "fail", |_| patched(json!({ "data": { "key": "new" } })));
    let name = install(&case, Type::Mutating, "fail", &[webhook(&case, "fail", &client)]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    let why = "received undecodable patch in webhook response: ";
    answer.expect_rejected_containing(500, "InternalError", why)?;
    remove(&case, Type::Mutating, &name).await?;
    let mut ignored = webhook(&case, "fail", &client);
    ignored["failurePolicy"] = json!("Ignore");
    let name = install(&case, Type::Mutating, "ignore", &[ignored]).await?;
    same!(case.make("configmaps", config_map("a")).await?["data"], json!({ "key": "value" }));
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn write_fails_at_time_limit_of_request(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "late", |_| Reply::Late);
    let mut late = webhook(&case, "late", &client);
    late["failurePolicy"] = json!("Ignore");
    let name = install(&case, Type::Validating, "late", &[late]).await?;
    // Two parts of kube-apiserver end the request at the same time. One sends a status without a kind, and if the other
    // one is faster, it can close the connection instead.
    let mut attempt = case.post("configmaps?timeout=2s", config_map("a")).await;
    for _ in 0..5 {
        if attempt.is_err() {
            attempt = case.post("configmaps?timeout=2s", config_map("a")).await;
        }
    }
    let answer = attempt?;
    has!(answer.body, { "code": 504, "reason": "Timeout", "status": "Failure" });
    anyhow::ensure!(
        answer.status == 504 && message(&answer).starts_with("Timeout: request did not complete within "),
        "{}: {}",
        answer.status,
        answer.body
    );
    same!(requests.all().is_empty(), false);
    remove(&case, Type::Validating, &name).await?;
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

pub(super) async fn validating_webhook_cannot_patch(case: Case) -> Outcome {
    let (client, _) = serve(&case, "fail", |_| patched(json!([{ "op": "remove", "path": "/data" }])));
    let why = "received invalid webhook response: validating webhook may not return response.patch";
    expect_failure(&case, Type::Validating, webhook(&case, "fail", &client), why).await
}

pub(super) async fn patch_that_does_not_apply_fails_write(case: Case) -> Outcome {
    let (client, _) = serve(&case, "fail", |_| patched(json!([{ "op": "remove", "path": "/data/absent" }])));
    let name = install(&case, Type::Mutating, "fail", &[webhook(&case, "fail", &client)]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    answer.expect_rejected_containing(500, "InternalError", "Internal error occurred: ")?;
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn patch_of_deletion_fails_write(case: Case) -> Outcome {
    let (client, _) = serve(&case, "fail", |_| patched(json!([{ "op": "remove", "path": "/data" }])));
    let mut deleting = webhook(&case, "fail", &client);
    deleting["rules"] = json!([rule("", "v1", &["configmaps"], &["DELETE"])]);
    let name = install(&case, Type::Mutating, "fail", &[deleting]).await?;
    case.make("configmaps", config_map("a")).await?;
    let expected = format!(
        "Internal error occurred: admission webhook {:?} attempted to modify the object, which is not supported for \
         this operation",
        name_of(&case, "fail")
    );
    case.delete("configmaps/a").await?.expect_rejected(500, "InternalError", &expected)?;
    case.read("configmaps/a").await?;
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn slow_webhook_fails_write_after_its_timeout(case: Case) -> Outcome {
    let (client, _) = serve(&case, "fail", |_| Reply::Late);
    let mut slow = webhook(&case, "fail", &client);
    slow["timeoutSeconds"] = json!(1);
    let url = client["url"].as_str().unwrap_or_default();
    let why = format!("failed to call webhook: Post \"{url}?timeout=1s\": context deadline exceeded");
    expect_failure(&case, Type::Validating, slow, &why).await
}

pub(super) async fn configurations_are_not_reviewed(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "all", |_| denied("nothing may change"));
    let mut all = webhook(&case, "all", &client);
    let operations = ["CREATE", "UPDATE", "DELETE"];
    all["rules"] = json!([rule("admissionregistration.k8s.io", "*", &["*"], &operations)]);
    let name = install(&case, Type::Validating, "all", &[all]).await?;
    let path = Type::Mutating.path();
    let other = case.unique("other");
    case.make(&path, configuration(&other, json!([]))).await?;
    case.delete(&format!("{path}/{other}")).await?.is(200)?;
    remove(&case, Type::Validating, &name).await?;
    same!(requests.all().len(), 0);
    Ok(())
}

pub(super) async fn configuration_is_defaulted(case: Case) -> Outcome {
    let path = Type::Mutating.path();
    let client = json!({ "service": { "name": "absent", "namespace": case.namespace } });
    let sparse = json!({
        "name": name_of(&case, "sparse"), "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [rule("example.invalid", "v1", &["things"], &["CREATE"])],
    });
    let name = case.unique("sparse");
    let made = case.make(&path, configuration(&name, json!([sparse]))).await?;
    has!(made, { "metadata": { "generation": 1 } });
    has!(made["webhooks"][0], {
        "failurePolicy": "Fail", "matchPolicy": "Equivalent", "reinvocationPolicy": "Never", "timeoutSeconds": 10,
        "namespaceSelector": {}, "objectSelector": {}, "clientConfig": { "service": { "port": 443 } },
        "rules": [{ "scope": "*" }],
    });
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn invalid_configuration_is_rejected(case: Case) -> Outcome {
    let (path, name) = (Type::Validating.path(), case.unique("invalid"));
    let valid = webhook(&case, "valid", &nowhere());
    for (field, to, why) in [
        (
            "name",
            json!("a.b"),
            "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
        ),
        (
            "sideEffects",
            json!("Some"),
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ),
        (
            "sideEffects",
            Value::Null,
            "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
        ),
        (
            "admissionReviewVersions",
            json!([]),
            "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
        ),
        (
            "timeoutSeconds",
            json!(31),
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            "failurePolicy",
            json!("Maybe"),
            "webhooks[0].failurePolicy: Unsupported value: \"Maybe\": supported values: \"Fail\", \"Ignore\"",
        ),
        (
            "clientConfig",
            json!({}),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            "clientConfig",
            json!({ "url": "http://a/" }),
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (
            "rules",
            json!([rule("", "v1", &["pods"], &["READ"])]),
            "webhooks[0].rules[0].operations[0]: Unsupported value: \"READ\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
        ),
        (
            "rules",
            json!([rule("", "v1", &["*", "pods"], &["CREATE"])]),
            "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources without subresources",
        ),
    ] {
        let mut invalid = valid.clone();
        invalid[field] = to;
        let answer = case.post(&path, configuration(&name, json!([invalid]))).await?;
        let expected = format!(
            "ValidatingWebhookConfiguration.admissionregistration.k8s.io \"{name}\" is invalid: {why}"
        );
        answer.expect_rejected(422, "Invalid", &expected)?;
    }
    let answer = case.post(&path, configuration(&name, json!([valid, valid]))).await?;
    answer.expect_rejected_containing(422, "Invalid", "webhooks[1].name: Duplicate value")?;
    Ok(())
}

pub(super) async fn webhook_with_side_effects_is_rejected(case: Case) -> Outcome {
    let mut unknown = webhook(&case, "some", &nowhere());
    unknown["sideEffects"] = json!("Unknown");
    let answer =
        case.post(&Type::Mutating.path(), configuration(&case.unique("some"), json!([unknown]))).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "webhooks[0].sideEffects: Unsupported value: \"Unknown\"",
    )?;
    Ok(())
}
