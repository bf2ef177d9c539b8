//! Test of code that takes a `kube::Client`, with its own API server: no cluster, no port, no mocks.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use windlass::testing::{client, object};

/// Code under test, which does not depend on windlass: increments a counter in a ConfigMap.
async fn count_visit(client: Client, page: &str) -> kube::Result<u64> {
    let pages: Api<ConfigMap> = Api::default_namespaced(client);
    let map = pages.get(page).await?;
    let visits = map.data.as_ref().and_then(|data| data.get("visits")).and_then(|it| it.parse().ok());
    let visits = visits.unwrap_or(0) + 1;
    let counted = json!({
        // A concurrent update fails with 409 Conflict.
        "metadata": { "resourceVersion": map.metadata.resource_version },
        "data": { "visits": visits.to_string() },
    });
    pages.patch(page, &PatchParams::default(), &Patch::Merge(counted)).await?;
    Ok(visits)
}

// parity: no-fake-api-server
#[tokio::test]
async fn visits_are_counted() {
    let client = client();
    let pages: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let home = object(json!({ "metadata": { "name": "home" } }));
    pages.create(&PostParams::default(), &home).await.expect("the name is free");
    assert_eq!(count_visit(client.clone(), "home").await.expect("the page exists"), 1);
    assert_eq!(count_visit(client, "home").await.expect("the page exists"), 2);
}

#[tokio::test]
async fn missing_page_returns_upstream_not_found_message() {
    let error = count_visit(client(), "home").await.expect_err("the page does not exist");
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!((status.code, &*status.message), (404, "configmaps \"home\" not found"));
}
