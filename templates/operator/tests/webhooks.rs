//! The API server of the bench calls the webhooks for each write.

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use site_operator::dns::Dns;
use site_operator::webhooks::webhooks;
use site_operator::{Site, SiteSpec, Sites};
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
