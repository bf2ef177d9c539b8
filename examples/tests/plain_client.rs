//! Any code that takes a `kube::Client`, tested on its own API server: no cluster, no port, no mocks.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use windlass::testing::{client, object};

/// What is tested: code that has never heard of windlass.
async fn count_visit(client: Client, page: &str) -> kube::Result<u64> {
    let pages: Api<ConfigMap> = Api::default_namespaced(client);
    let map = pages.get(page).await?;
    let visits = map.data.as_ref().and_then(|data| data.get("visits")).and_then(|it| it.parse().ok());
    let visits = visits.unwrap_or(0) + 1;
    let counted = json!({
        // Somebody who counts at the same time is told so, by a 409.
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
    assert_eq!(count_visit(client.clone(), "home").await.expect("the page is there"), 1);
    assert_eq!(count_visit(client, "home").await.expect("the page is there"), 2);
}

#[tokio::test]
async fn page_that_is_not_there_is_told_in_the_server_s_words() {
    let error = count_visit(client(), "home").await.expect_err("nobody made it");
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!((status.code, &*status.message), (404, "configmaps \"home\" not found"));
}
