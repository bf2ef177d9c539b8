//! Reviews lamps with the webhooks of the example.

use kube::CustomResourceExt as _;
use windlass::prelude::*;
use windlass::testing::{Cluster, WebhookBench};
use windlass_examples::lamps::{LampController, v2, webhooks};

fn lamp(name: &str) -> v2::Lamp {
    let mut lamp = v2::Lamp::new(name, v2::LampSpec { colors: vec!["red".to_owned()], brightness: Some(5) });
    lamp.metadata.namespace = Some("default".to_owned());
    lamp
}

#[tokio::test(start_paused = true)]
async fn fourth_lamp_is_denied_and_third_causes_warning() {
    let bench = WebhookBench::new(webhooks(3)).await;
    let review = async |name: &str| bench.create_reviewed("quota.lamps.example.com", &lamp(name)).await;
    bench.create(&lamp("hall")).await;
    assert_eq!(review("kitchen").await.warnings, [""; 0]);
    bench.create(&lamp("kitchen")).await;
    assert_eq!(review("bath").await.warnings, ["this is the last lamp for this namespace"]);
    bench.create(&lamp("bath")).await;
    let denied = review("attic").await.denied;
    assert_eq!(denied.as_deref(), Some("the namespace default has 3 lamps already"));
}

#[tokio::test(start_paused = true)]
async fn missing_fields_are_set_and_limits_checked() {
    let bench = WebhookBench::new(webhooks(3)).await;
    let sparse = v2::Lamp::new("hall", v2::LampSpec { colors: vec![], brightness: None });
    let set = bench.create_reviewed("defaults.lamps.example.com", &sparse).await.object.expect("an object");
    assert_eq!(set.spec, v2::LampSpec { colors: vec!["white".to_owned()], brightness: Some(50) });
    for (colors, brightness, field) in [("red", 101, "spec.brightness"), ("a+b", 1, "spec.colors[0]")] {
        let spec = v2::LampSpec { colors: vec![colors.to_owned()], brightness: Some(brightness) };
        let reviewed =
            bench.update_reviewed("limits.lamps.example.com", &set, &v2::Lamp::new("hall", spec)).await;
        assert_eq!(reviewed.fields, [field]);
    }
}

/// Replicas with webhooks open no socket in a simulation, and the controller works next to them.
#[windlass::simulation(minutes = 2, faults = all, plans = 5, replicas = 2)]
async fn operator_with_webhooks_runs_in_simulation(cluster: Cluster) {
    cluster.create(&v2::Lamp::crd()).await;
    cluster.run([Registration::controller::<LampController>(), webhooks(3).into()]);
    cluster.create(&lamp("hall")).await;
    let is_lit = |now: &windlass::testing::Snapshot| {
        now.get::<v2::Lamp>("hall").and_then(|lamp| lamp.status).is_some_and(|status| status.lit == 1)
    };
    cluster.eventually("the lamp is lit", is_lit).await;
}
