//! Other representations of objects, and extensions of the server.

use http::Method;
use serde_json::json;

use super::objects::{config_map, pod};
use crate::{Behavior, Case, Outcome, behaviors, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    object_can_be_created_from_yaml,
    object_can_be_read_as_yaml,
    objects_can_be_read_as_protobuf,
    lists_metadata_and_errors_are_in_protobuf_if_preferred,
    json_is_returned_if_protobuf_and_json_are_accepted,
    pretty_json_is_indented,
    limit_range_sets_default_requests,
    validating_admission_policy_is_enforced,
];

async fn object_can_be_created_from_yaml(case: Case) -> Outcome {
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: \"1\"\n";
    let headers = [("content-type", "application/yaml")];
    let made = case.send(Method::POST, "configmaps", &headers, yaml).await?.is(201)?;
    same!(made["data"], json!({ "a": "1" }));
    Ok(())
}

async fn object_can_be_read_as_yaml(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.get_as("application/yaml", "configmaps/a").await?;
    same!((answer.status, answer.media_type()), (200, "application/yaml"));
    anyhow::ensure!(answer.body.as_str().is_some_and(|it| it.starts_with("apiVersion: v1\n")), "{answer:?}");
    Ok(())
}

async fn objects_can_be_read_as_protobuf(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.get_as("application/vnd.kubernetes.protobuf", "configmaps/a").await?;
    same!((answer.status, answer.media_type()), (200, "application/vnd.kubernetes.protobuf"));
    anyhow::ensure!(answer.body.as_str().is_some_and(|it| it.starts_with("k8s\0")), "{answer:?}");
    Ok(())
}

async fn lists_metadata_and_errors_are_in_protobuf_if_preferred(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let both = "application/vnd.kubernetes.protobuf,application/json";
    for (accept, path, status) in
        [(both, "configmaps", 200), (metadata, "configmaps", 200), (both, "configmaps/none", 404)]
    {
        let answer = case.get_as(accept, path).await?;
        same!((answer.status, answer.media_type()), (status, "application/vnd.kubernetes.protobuf"));
        anyhow::ensure!(answer.body.as_str().is_some_and(|it| it.starts_with("k8s\0")), "{answer:?}");
    }
    Ok(())
}

async fn json_is_returned_if_protobuf_and_json_are_accepted(case: Case) -> Outcome {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/none.example.com";
    let answer = case.get_as("application/json, application/vnd.kubernetes.protobuf", path).await?;
    same!(answer.media_type(), "application/json");
    Ok(())
}

async fn pretty_json_is_indented(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.get("configmaps/a?pretty=true").await?;
    let compact = answer.body.to_string().len();
    anyhow::ensure!(answer.length > compact + 20, "{} bytes, {compact} without space", answer.length);
    Ok(())
}

async fn limit_range_sets_default_requests(case: Case) -> Outcome {
    let limits =
        json!([{ "type": "Container", "default": { "cpu": "1" }, "defaultRequest": { "cpu": "500m" } }]);
    case.make("limitranges", json!({ "metadata": { "name": "a" }, "spec": { "limits": limits } })).await?;
    for number in 0..200 {
        let made = case.make("pods", pod(&format!("n-{number}"))).await?;
        let resources = &made["spec"]["containers"][0]["resources"];
        if *resources != json!({}) {
            same!(*resources, json!({ "requests": { "cpu": "500m" }, "limits": { "cpu": "1" } }));
            return Ok(());
        }
    }
    anyhow::bail!("never filled in")
}

async fn validating_admission_policy_is_enforced(case: Case) -> Outcome {
    let name = case.unique("policy");
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": case.namespace } });
    let policy = json!({ "metadata": { "name": name }, "spec": { "failurePolicy": "Fail",
        "matchConstraints": { "namespaceSelector": selector, "resourceRules": [{ "apiGroups": [""],
            "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }] },
        "validations": [{ "expression": "false", "message": "never" }] } });
    let base = "/apis/admissionregistration.k8s.io/v1";
    case.make(&format!("{base}/validatingadmissionpolicies"), policy).await?;
    let binding = json!({ "metadata": { "name": name }, "spec": { "policyName": name, "validationActions": ["Deny"] } });
    case.make(&format!("{base}/validatingadmissionpolicybindings"), binding).await?;
    let refused = async {
        for number in 0.. {
            let answer = case.post("configmaps", config_map(&format!("n-{number}"))).await?;
            if answer.status != 201 {
                return anyhow::Ok(answer);
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        anyhow::bail!("no more numbers")
    };
    let answer = tokio::time::timeout(std::time::Duration::from_secs(30), refused)
        .await
        .map_err(|_| anyhow::anyhow!("the policy was never enforced"))??;
    let details = answer.expect_rejected_containing(422, "Invalid", "denied request: never")?;
    has!(details, { "kind": "configmaps" });
    Ok(())
}
