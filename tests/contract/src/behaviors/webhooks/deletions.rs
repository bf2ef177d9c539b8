//! Reviews of deletions, and of requests that rules select by scope and subresource.

use serde_json::{Value, json};

use super::setup::{Type, allowed, denial, denied, install, remove, rule, serve, webhook};
use crate::behaviors::objects::{config_map, deployment, labeled};
use crate::{Case, Outcome, has, same};

pub(super) async fn removal_of_last_finalizer_is_not_reviewed_as_deletion(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "once", |request| {
        match request["oldObject"]["metadata"]["deletionTimestamp"].is_null() {
            true => allowed(request),
            false => denied("it is terminating"),
        }
    });
    let mut once = webhook(&case, "once", &client);
    once["rules"] = json!([rule("", "v1", &["configmaps"], &["DELETE"])]);
    let name = install(&case, Type::Validating, "once", &[once]).await?;
    let mut kept = config_map("a");
    kept["metadata"]["finalizers"] = json!(["example.com/keep"]);
    case.make("configmaps", kept).await?;
    case.delete("configmaps/a").await?.is(200)?;
    case.delete("configmaps/a").await?.expect_rejected_with_reason(403, "Forbidden")?;
    let reviewed = requests.all().len();
    case.merge("configmaps/a", json!({ "metadata": { "finalizers": null } })).await?;
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    same!(requests.all().len(), reviewed);
    remove(&case, Type::Validating, &name).await
}

pub(super) async fn denied_deletion_stops_deletion_of_collection(case: Case) -> Outcome {
    let (client, _) =
        serve(&case, "keep", |request| match request["oldObject"]["metadata"]["name"].as_str() {
            Some("b") => denied("it stays"),
            _ => allowed(request),
        });
    let mut keep = webhook(&case, "keep", &client);
    keep["rules"] = json!([rule("", "v1", &["configmaps"], &["DELETE"])]);
    let name = install(&case, Type::Validating, "keep", &[keep]).await?;
    for map in ["a", "b", "c"] {
        case.make("configmaps", labeled(map, json!({ "old": "yes" }))).await?;
    }
    let answer = case.delete("configmaps?labelSelector=old=yes").await?;
    answer.expect_rejected(403, "Forbidden", &denial(&case, "keep", "it stays"))?;
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    case.read("configmaps/b").await?;
    case.read("configmaps/c").await?;
    remove(&case, Type::Validating, &name).await
}

pub(super) async fn scope_of_rule_limits_webhook(case: Case) -> Outcome {
    let rules = |scope: &str| {
        let mut rule = rule("", "v1", &["namespaces", "configmaps"], &["CREATE", "UPDATE"]);
        rule["scope"] = json!(scope);
        json!([rule])
    };
    let (client, cluster) = serve(&case, "cluster", allowed);
    let mut first = webhook(&case, "cluster", &client);
    first["rules"] = rules("Cluster");
    let (client, namespaced) = serve(&case, "namespaced", allowed);
    let mut second = webhook(&case, "namespaced", &client);
    second["rules"] = rules("Namespaced");
    let name = install(&case, Type::Validating, "scope", &[first, second]).await?;
    case.make("configmaps", config_map("a")).await?;
    let namespace = format!("/api/v1/namespaces/{}", case.namespace);
    case.merge(&namespace, json!({ "metadata": { "annotations": { "a": "b" } } })).await?;
    has!(cluster.last()?, { "name": case.namespace, "namespace": case.namespace,
        "kind": { "kind": "Namespace" }, "operation": "UPDATE" });
    let kinds = |requests: Vec<Value>| -> Vec<Value> {
        let mut kinds: Vec<_> = requests.iter().map(|it| it["kind"]["kind"].clone()).collect();
        kinds.dedup();
        kinds
    };
    same!(
        (kinds(cluster.all()), kinds(namespaced.all())),
        (vec![json!("Namespace")], vec![json!("ConfigMap")])
    );
    remove(&case, Type::Validating, &name).await
}

pub(super) async fn wildcard_of_rule_includes_subresources(case: Case) -> Outcome {
    let (client, all) = serve(&case, "all", allowed);
    let mut first = webhook(&case, "all", &client);
    first["rules"] = json!([rule("apps", "*", &["*/*"], &["*"])]);
    let (client, scales) = serve(&case, "scales", allowed);
    let mut second = webhook(&case, "scales", &client);
    second["rules"] = json!([rule("*", "*", &["*/scale"], &["*"])]);
    let (client, whole) = serve(&case, "whole", allowed);
    let mut third = webhook(&case, "whole", &client);
    third["rules"] = json!([rule("apps", "*", &["*"], &["*"])]);
    let name = install(&case, Type::Mutating, "wild", &[first, second, third]).await?;
    case.make("apps/v1 deployments", deployment("a")).await?;
    case.merge("apps/v1 deployments/a/scale", json!({ "spec": { "replicas": 1 } })).await?;
    case.merge("apps/v1 deployments/a/status", json!({ "status": { "replicas": 1 } })).await?;
    case.delete("apps/v1 deployments/a").await?.is(200)?;
    let subresources = |requests: Vec<Value>| -> Vec<String> {
        let text = |it: &Value| format!("{} {}", it["operation"], it["subResource"]).replace('"', "");
        let mut found: Vec<_> = requests.iter().map(text).collect();
        found.dedup();
        found
    };
    let expected = ["CREATE null", "UPDATE scale", "UPDATE status", "DELETE null"].map(str::to_owned);
    same!(subresources(all.all()), expected);
    same!(subresources(scales.all()), ["UPDATE scale".to_owned()]);
    same!(subresources(whole.all()), ["CREATE null".to_owned(), "DELETE null".to_owned()]);
    remove(&case, Type::Mutating, &name).await
}
