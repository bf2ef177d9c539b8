//! A simulated cluster that fails: the program crashes, requests fail, and watches end.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::CustomResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use site_operator::dns::Dns;
use site_operator::{Site, Sites};
use windlass::prelude::*;
use windlass::testing::{Cluster, Snapshot, object};

fn is_ready(now: &Snapshot) -> bool {
    let status = now.get::<Site>("web").and_then(|site| site.status);
    status.is_some_and(|it| it.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
}

/// Script: a site is created, becomes ready, loses a child, and is deleted.
async fn life_of_a_site(cluster: Cluster) {
    let dns = Dns::default();
    cluster.create(&Site::crd()).await;
    cluster.run([Registration::controller_with::<Sites>(dns.clone())]);
    let spec = json!({ "domain": "web.example.com", "image": "web:1", "replicas": 2 });
    cluster.create(&object::<Site>(json!({ "metadata": { "name": "web" }, "spec": spec }))).await;
    let has_children = |now: &Snapshot| {
        now.get::<Deployment>("web").is_some() && now.get::<Service>("web").is_some() && !is_ready(now)
    };
    cluster.eventually("the site has its children", has_children).await;

    let deployments = cluster.api::<Deployment>();
    let status = Patch::Merge(json!({ "status": { "replicas": 2, "readyReplicas": 2 } }));
    deployments.patch_status("web", &PatchParams::default(), &status).await.expect("it exists");
    cluster.eventually("the site is ready", is_ready).await;
    assert_eq!(dns.domains(), BTreeSet::from(["web.example.com".to_owned()]));

    deployments.delete("web", &DeleteParams::default()).await.expect("it exists");
    let is_recreated = |now: &Snapshot| now.get::<Deployment>("web").is_some() && !is_ready(now);
    cluster.eventually("the Deployment exists again and is not ready", is_recreated).await;

    let sites = cluster.api::<Site>();
    sites.delete("web", &DeleteParams::default()).await.expect("it exists");
    cluster.eventually("the site is gone", |now| now.get::<Site>("web").is_none()).await;
    assert!(dns.domains().is_empty(), "the finalizer removed the entry");
}

#[windlass::simulation]
async fn error_of_the_dns_provider_is_in_the_condition(cluster: Cluster) {
    cluster.create(&Site::crd()).await;
    cluster.run([Registration::controller_with::<Sites>(Dns::default())]);
    let spec = json!({ "domain": "web.invalid", "image": "web:1", "replicas": 0 });
    cluster.create(&object::<Site>(json!({ "metadata": { "name": "web" }, "spec": spec }))).await;
    let is_reported = |now: &Snapshot| {
        let status = now.get::<Site>("web").and_then(|site| site.status);
        let message = "no zone contains web.invalid";
        status.is_some_and(|it| it.conditions.iter().any(|it| it.status == "False" && it.message == message))
    };
    cluster.eventually("the condition has the error", is_reported).await;

    cluster.api::<Site>().delete("web", &DeleteParams::default()).await.expect("it exists");
    cluster.eventually("the site is gone", |now| now.get::<Site>("web").is_none()).await;
}

#[windlass::simulation(crashes = all)]
async fn site_lives_through_a_crash_at_any_write(cluster: Cluster) {
    life_of_a_site(cluster).await;
}

#[windlass::simulation(rejections = all)]
async fn site_lives_through_an_error_of_any_write(cluster: Cluster) {
    life_of_a_site(cluster).await;
}

#[windlass::simulation(minutes = 10, faults = all, plans = 5, resources = ["sites", "deployments"], caches = [Site])]
async fn site_lives_through_random_faults(cluster: Cluster) {
    life_of_a_site(cluster).await;
}
