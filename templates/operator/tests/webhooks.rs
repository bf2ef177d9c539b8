//! The API server of the bench calls the webhooks for each write.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use site_operator::dns::Dns;
use site_operator::webhooks::webhooks;
use site_operator::{Site, SiteSpec, Sites};
use windlass::prelude::*;
use windlass::testing::Bench;

fn site(domain: &str, replicas: i32) -> Site {
    let spec = SiteSpec { domain: domain.to_owned(), image: "web:1".to_owned(), replicas };
    let mut site = Site::new("web", spec);
    site.metadata.namespace = Some("default".to_owned());
    site
}

#[tokio::test(start_paused = true)]
async fn site_that_cannot_be_served_is_denied() {
    let bench = Bench::with_webhooks::<Sites>(Dns::default(), webhooks()).await;
    for (denied, field) in [(site("web.example.com", 101), "spec.replicas"), (site("web", 2), "spec.domain")]
    {
        let error = bench.api::<Site>().create(&PostParams::default(), &denied).await.expect_err(field);
        assert!(error.to_string().contains(field), "{error}");
    }
    bench.create(&site("web.example.com", 2)).await;
}

#[tokio::test(start_paused = true)]
async fn domain_of_existing_site_cannot_change() {
    let bench = Bench::with_webhooks::<Sites>(Dns::default(), webhooks()).await;
    bench.create(&site("web.example.com", 2)).await;
    let sites = bench.api::<Site>();
    let patch = async |spec| {
        sites.patch("web", &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await
    };
    patch(json!({ "replicas": 3 })).await.expect("replicas can change");
    let error = patch(json!({ "domain": "shop.example.com" })).await.expect_err("a denial").to_string();
    assert!(error.contains("spec.domain: cannot change"), "{error}");
}

/// Such a Site was stored before the webhook existed, or by an earlier version with other limits.
#[tokio::test(start_paused = true)]
async fn stored_site_that_is_invalid_can_be_deleted() {
    let mut bench = Bench::with_webhooks::<Sites>(Dns::default(), webhooks()).await;
    let configurations = bench.api::<ValidatingWebhookConfiguration>();
    let mut installed = configurations.list(&ListParams::default()).await.expect("a list").items.remove(0);
    configurations.delete(&installed.name_any(), &DeleteParams::default()).await.expect("it exists");
    bench.create(&site("web", 1000)).await;
    installed.metadata.resource_version = None;
    bench.create(&installed).await;

    let sites = bench.api::<Site>();
    let patch = Patch::Merge(json!({ "spec": { "replicas": 2000 } }));
    sites.patch("web", &PatchParams::default(), &patch).await.expect_err("the webhook is active");
    let key = ObjectKey::new(Some("default"), "web");
    bench.reconcile(&key).await.result.expect("the finalizer is added");
    assert_eq!(sites.get("web").await.expect("a Site").finalizers(), ["example.com/dns"]);

    sites.delete("web", &DeleteParams::default()).await.expect("it exists");
    assert!(sites.get("web").await.is_ok(), "the finalizer blocks the deletion");
    bench.reconcile(&key).await.result.expect("the finalizer is removed");
    assert!(sites.get_opt("web").await.expect("a response").is_none(), "the Site is gone");
}
