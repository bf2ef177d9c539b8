//! Reviews sites as the API server does, without a socket.

use site_operator::webhooks::webhooks;
use site_operator::{Site, SiteSpec};
use windlass::testing::WebhookBench;

fn site(domain: &str, replicas: i32) -> Site {
    Site::new("web", SiteSpec { domain: domain.to_owned(), image: "web:1".to_owned(), replicas })
}

#[tokio::test(start_paused = true)]
async fn site_that_cannot_be_served_is_denied() {
    let bench = WebhookBench::new(webhooks()).await;
    let fields = async |site| bench.create_reviewed("limits.sites.example.com", &site).await.fields;
    assert_eq!(fields(site("web.example.com", 2)).await, [""; 0]);
    assert_eq!(fields(site("web.example.com", 101)).await, ["spec.replicas"]);
    assert_eq!(fields(site("web", 2)).await, ["spec.domain"]);
}
