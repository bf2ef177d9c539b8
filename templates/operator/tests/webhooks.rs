//! Reviews Sites as an API server does that calls the webhooks.

use site_operator::webhooks::webhooks;
use site_operator::{Site, SiteSpec};
use windlass::testing::WebhookBench;

fn site(domain: &str, replicas: i32) -> Site {
    let spec = SiteSpec { domain: domain.to_owned(), image: "web:1".to_owned(), replicas };
    let mut site = Site::new("web", spec);
    site.metadata.namespace = Some("default".to_owned());
    site
}

#[tokio::test(start_paused = true)]
async fn site_that_cannot_be_served_is_denied() {
    let bench = WebhookBench::new(webhooks()).await;
    let fields = async |site| bench.create_reviewed(&site).await.fields;
    assert_eq!(fields(site("web.example.com", 2)).await, [""; 0]);
    assert_eq!(fields(site("web.example.com", 101)).await, ["spec.replicas"]);
    assert_eq!(fields(site("web", 2)).await, ["spec.domain"]);
}

#[tokio::test(start_paused = true)]
async fn domain_of_existing_site_cannot_change() {
    let bench = WebhookBench::new(webhooks()).await;
    let created = bench.create(&site("web.example.com", 2)).await;
    let changed = |domain: &str, replicas| Site { spec: site(domain, replicas).spec, ..created.clone() };
    assert_eq!(bench.update_reviewed(&changed("web.example.com", 3)).await.fields, [""; 0]);
    assert_eq!(bench.update_reviewed(&changed("shop.example.com", 2)).await.fields, ["spec.domain"]);
}
