//! Discovery, version and health of the server.

use serde_json::{Value, json};

use crate::{Behavior, Case, Outcome, TestResponse, behaviors, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    core_group_has_one_version,
    groups_are_listed,
    group_names_its_versions_and_the_preferred_one,
    version_lists_its_resources,
    core_version_lists_its_resources,
    subresources_are_listed_with_their_resources,
    scale_is_in_autoscaling_group,
    group_that_does_not_exist_is_rejected,
    version_that_does_not_exist_is_rejected,
    aggregated_discovery_lists_all_groups,
    aggregated_discovery_lists_core_group,
    aggregated_discovery_has_etag,
    server_version_is_served,
    health_endpoints_report_ok,
    single_health_check_is_served,
    openapi_version_three_has_an_index,
    openapi_version_three_describes_a_group,
    openapi_version_two_is_served,
    discovery_contains_storage_version_hash,
    discovery_contains_short_names,
    discovery_contains_categories,
];

fn resource<'a>(list: &'a Value, name: &str) -> &'a Value {
    let resources = list["resources"].as_array();
    resources.into_iter().flatten().find(|it| it["name"] == name).unwrap_or(&Value::Null)
}

async fn core_group_has_one_version(case: Case) -> Outcome {
    let found = case.read("/api").await?;
    has!(found, { "kind": "APIVersions", "versions": ["v1"] });
    Ok(())
}

async fn groups_are_listed(case: Case) -> Outcome {
    let found = case.read("/apis").await?;
    has!(found, { "kind": "APIGroupList", "apiVersion": "v1" });
    let groups = found["groups"].as_array().into_iter().flatten();
    let groups: Vec<_> = groups.filter_map(|it| it["name"].as_str()).collect();
    for name in [
        "apps",
        "batch",
        "autoscaling",
        "policy",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "apiextensions.k8s.io",
        "rbac.authorization.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "networking.k8s.io",
        "storage.k8s.io",
        "certificates.k8s.io",
        "scheduling.k8s.io",
    ] {
        anyhow::ensure!(groups.contains(&name), "{name} is not among {groups:?}");
    }
    Ok(())
}

async fn group_names_its_versions_and_the_preferred_one(case: Case) -> Outcome {
    let found = case.read("/apis/autoscaling").await?;
    same!(
        found,
        json!({ "kind": "APIGroup", "apiVersion": "v1", "name": "autoscaling",
            "versions": [{ "groupVersion": "autoscaling/v2", "version": "v2" },
                { "groupVersion": "autoscaling/v1", "version": "v1" }],
            "preferredVersion": { "groupVersion": "autoscaling/v2", "version": "v2" } })
    );
    Ok(())
}

async fn version_lists_its_resources(case: Case) -> Outcome {
    let found = case.read("/apis/apps/v1").await?;
    has!(found, { "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1" });
    let mut deployments = resource(&found, "deployments").clone();
    deployments["storageVersionHash"].take();
    same!(
        deployments,
        json!({ "name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["deploy"], "categories": ["all"], "storageVersionHash": null })
    );
    Ok(())
}

async fn core_version_lists_its_resources(case: Case) -> Outcome {
    let found = case.read("/api/v1").await?;
    has!(found, { "kind": "APIResourceList", "groupVersion": "v1" });
    has!(*resource(&found, "nodes"), { "namespaced": false, "kind": "Node", "shortNames": ["no"] });
    has!(*resource(&found, "pods"), { "namespaced": true, "kind": "Pod", "shortNames": ["po"] });
    Ok(())
}

async fn subresources_are_listed_with_their_resources(case: Case) -> Outcome {
    let found = case.read("/api/v1").await?;
    same!(
        *resource(&found, "pods/status"),
        json!({ "name": "pods/status", "singularName": "", "namespaced": true, "kind": "Pod",
            "verbs": ["get", "patch", "update"] })
    );
    same!(
        *resource(&found, "pods/eviction"),
        json!({ "name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1",
            "kind": "Eviction", "verbs": ["create"] })
    );
    Ok(())
}

async fn scale_is_in_autoscaling_group(case: Case) -> Outcome {
    let found = case.read("/apis/apps/v1").await?;
    same!(
        *resource(&found, "deployments/scale"),
        json!({ "name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
            "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"] })
    );
    Ok(())
}

async fn group_that_does_not_exist_is_rejected(case: Case) -> Outcome {
    for path in
        ["/apis/nothing.example.com", "/apis/nothing.example.com/v1", "/apis/nothing.example.com/v1/things"]
    {
        same!(case.get(path).await?.status, 404);
    }
    Ok(())
}

async fn version_that_does_not_exist_is_rejected(case: Case) -> Outcome {
    same!(case.get("/apis/apps/v7").await?.status, 404);
    same!(case.get("/apis/apps/v7/namespaces/{ns}/deployments").await?.status, 404);
    Ok(())
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn group<'a>(list: &'a Value, name: &str) -> &'a Value {
    let items = list["items"].as_array();
    items.into_iter().flatten().find(|it| it["metadata"]["name"] == name).unwrap_or(&Value::Null)
}

async fn aggregated_discovery_lists_all_groups(case: Case) -> Outcome {
    let answer = case.get_as(AGGREGATED, "/apis").await?;
    same!(answer.media_type(), AGGREGATED);
    let list = answer.is(200)?;
    has!(list, { "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2" });
    let apps = &group(&list, "apps")["versions"][0];
    has!(*apps, { "version": "v1", "freshness": "Current" });
    let resources = apps["resources"].as_array().into_iter().flatten();
    let found = resources.into_iter().find(|it| it["resource"] == "deployments").cloned().unwrap_or_default();
    has!(found, { "responseKind": { "group": "", "version": "", "kind": "Deployment" }, "scope": "Namespaced",
        "singularResource": "deployment", "shortNames": ["deploy"] });
    has!(found["subresources"], [
        { "subresource": "scale", "responseKind": { "group": "autoscaling", "version": "v1", "kind": "Scale" } },
        { "subresource": "status", "verbs": ["get", "patch", "update"] } ]);
    Ok(())
}

async fn aggregated_discovery_lists_core_group(case: Case) -> Outcome {
    let list = case.get_as(AGGREGATED, "/api").await?.is(200)?;
    let version = &list["items"][0]["versions"][0];
    same!(version["version"], "v1");
    let resources = version["resources"].as_array().into_iter().flatten();
    let pods = resources.into_iter().find(|it| it["resource"] == "pods").cloned().unwrap_or_default();
    has!(pods, { "responseKind": { "group": "", "version": "", "kind": "Pod" }, "scope": "Namespaced" });
    Ok(())
}

async fn aggregated_discovery_has_etag(case: Case) -> Outcome {
    let first = case.get_as(AGGREGATED, "/api").await?;
    let tag = first.headers.get("etag").and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
    anyhow::ensure!(!tag.is_empty(), "no tag: {:?}", first.headers);
    let headers = [("accept", AGGREGATED), ("if-none-match", tag.as_str())];
    let again = case.send(http::Method::GET, "/api", &headers, Vec::new()).await?;
    same!(again.status, 304);
    Ok(())
}

async fn server_version_is_served(case: Case) -> Outcome {
    let found = case.read("/version").await?;
    has!(found, { "major": "1", "minor": "36" });
    let version = found["gitVersion"].as_str().unwrap_or_default();
    anyhow::ensure!(version.starts_with("v1.36."), "{found}");
    Ok(())
}

async fn health_endpoints_report_ok(case: Case) -> Outcome {
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer: TestResponse = case.get(path).await?;
        same!((answer.status, answer.body), (200, json!("ok")));
    }
    Ok(())
}

async fn single_health_check_is_served(case: Case) -> Outcome {
    let answer = case.get("/readyz?verbose").await?;
    let text = answer.body.as_str().unwrap_or_default();
    anyhow::ensure!(text.contains("[+]ping ok") && text.ends_with("readyz check passed\n"), "{text}");
    same!(case.get("/healthz/ping").await?.body, json!("ok"));
    Ok(())
}

async fn openapi_version_three_has_an_index(case: Case) -> Outcome {
    let found = case.read("/openapi/v3").await?;
    let url = found["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap_or_default();
    anyhow::ensure!(url.starts_with("/openapi/v3/apis/apps/v1"), "{url}");
    anyhow::ensure!(found["paths"]["api/v1"].is_object(), "no core group");
    Ok(())
}

async fn openapi_version_three_describes_a_group(case: Case) -> Outcome {
    let found = case.read("/openapi/v3/apis/apps/v1").await?;
    let schema = &found["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
    same!(
        schema["x-kubernetes-group-version-kind"],
        json!([{ "group": "apps", "kind": "Deployment", "version": "v1" }])
    );
    let patch = &found["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let parameters = patch["parameters"].as_array().into_iter().flatten();
    anyhow::ensure!(
        parameters.into_iter().any(|it| it["name"] == "fieldValidation"),
        "nothing to validate with"
    );
    Ok(())
}

async fn openapi_version_two_is_served(case: Case) -> Outcome {
    let found = case.read("/openapi/v2").await?;
    same!(found["swagger"], "2.0");
    anyhow::ensure!(found["definitions"]["io.k8s.api.apps.v1.Deployment"].is_object(), "no deployments");
    Ok(())
}

async fn discovery_contains_storage_version_hash(case: Case) -> Outcome {
    let found = case.read("/apis/apps/v1").await?;
    same!(resource(&found, "deployments")["storageVersionHash"], "8aSe+NMegvE=");
    Ok(())
}

async fn discovery_contains_short_names(case: Case) -> Outcome {
    let found = case.read("/api/v1").await?;
    for (name, short) in
        [("configmaps", "cm"), ("services", "svc"), ("namespaces", "ns"), ("serviceaccounts", "sa")]
    {
        same!(resource(&found, name)["shortNames"], json!([short]));
    }
    Ok(())
}

async fn discovery_contains_categories(case: Case) -> Outcome {
    let found = case.read("/api/v1").await?;
    same!(resource(&found, "pods")["categories"], json!(["all"]));
    same!(resource(&found, "secrets")["categories"], Value::Null);
    Ok(())
}
