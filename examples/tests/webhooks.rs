//! Reviews lamps with the webhooks of the example.

use std::time::Duration;

use kube::api::{ListParams, PostParams};
use windlass::prelude::*;
use windlass::testing::{Bench, Cluster, FaultKind, Faults, WebhookBench};
use windlass_examples::lamps::{LampController, v1, v2, webhooks};

fn lamp(name: &str) -> v2::Lamp {
    let mut lamp = v2::Lamp::new(name, v2::LampSpec { colors: vec!["red".to_owned()], brightness: Some(5) });
    lamp.metadata.namespace = Some("default".to_owned());
    lamp
}

#[tokio::test(start_paused = true)]
async fn fourth_lamp_is_denied_and_third_causes_warning() {
    let bench = WebhookBench::new(webhooks(3)).await;
    bench.create(&lamp("hall")).await;
    assert_eq!(bench.create_reviewed(&lamp("kitchen")).await.warnings, [""; 0]);
    bench.create(&lamp("kitchen")).await;
    let warned = bench.create_reviewed(&lamp("bath")).await;
    assert_eq!(warned.warnings, ["this is the last lamp for this namespace"]);
    bench.create(&lamp("bath")).await;
    let denied = bench.create_reviewed(&lamp("attic")).await.denied.expect("a denial");
    assert!(denied.ends_with("the namespace default has 3 lamps already"), "{denied}");
}

#[tokio::test(start_paused = true)]
async fn missing_fields_are_set_and_limits_checked() {
    let bench = WebhookBench::new(webhooks(3)).await;
    let mut sparse = lamp("hall");
    sparse.spec = v2::LampSpec { colors: vec![], brightness: None };
    let set = bench.create(&sparse).await;
    assert_eq!(set.spec, v2::LampSpec { colors: vec!["white".to_owned()], brightness: Some(50) });
    for (colors, brightness, field) in [("red", 101, "spec.brightness"), ("a+b", 1, "spec.colors[0]")] {
        let spec = v2::LampSpec { colors: vec![colors.to_owned()], brightness: Some(brightness) };
        let changed = v2::Lamp { spec, ..set.clone() };
        assert_eq!(bench.update_reviewed(&changed).await.fields, [field]);
    }
}

/// The server stores `v2`. It converts each lamp of `v1`, and then calls the other webhooks.
#[tokio::test(start_paused = true)]
async fn lamp_of_either_version_is_read_in_both() {
    let bench = WebhookBench::new(webhooks(3)).await;
    let mut old = v1::Lamp::new("hall", v1::LampSpec { color: "red+blue".to_owned(), brightness: None });
    old.metadata.namespace = Some("default".to_owned());
    assert_eq!(bench.create(&old).await.spec.color, "red+blue");
    let stored = bench.api::<v2::Lamp>().get("hall").await.expect("stored").spec;
    assert_eq!(
        stored,
        v2::LampSpec { colors: vec!["red".to_owned(), "blue".to_owned()], brightness: Some(50) }
    );
    bench.create(&lamp("kitchen")).await;
    let listed = bench.api::<v1::Lamp>().list(&ListParams::default()).await.expect("listed");
    let colors: Vec<_> = listed.items.into_iter().map(|lamp| lamp.spec.color).collect();
    assert_eq!(colors, ["red+blue", "red"]);
}

/// The server calls the webhooks of a controller's program for every write.
#[tokio::test(start_paused = true)]
async fn lamp_of_bench_is_defaulted_lit_and_denied() {
    let mut bench = Bench::with_webhooks::<LampController>((), webhooks(3)).await;
    let mut sparse = lamp("hall");
    sparse.spec.brightness = None;
    assert_eq!(bench.create(&sparse).await.spec.brightness, Some(50));
    bench.reconcile(&ObjectKey::new(Some("default"), "hall")).await.result.expect("reconciled");
    let mut bright = lamp("bath");
    bright.spec.brightness = Some(101);
    let denied = bench.api::<v2::Lamp>().create(&PostParams::default(), &bright).await;
    let denied = denied.expect_err("a denial").to_string();
    assert!(denied.contains("denied the request: the lamp cannot be lit"), "{denied}");
}

/// The server calls the webhooks of a running replica. While no replica runs, and while the calls fail, a write fails.
#[windlass::simulation(minutes = 2, faults = Faults::all().with(FaultKind::Webhook), plans = 5, replicas = 2)]
async fn operator_with_webhooks_runs_in_simulation(cluster: Cluster) {
    let program = || [Registration::controller::<LampController>(), webhooks(3).into()];
    cluster.install(program()).await;
    cluster.run(program());
    let mut sparse = lamp("hall");
    sparse.spec.brightness = None;
    while let Err(error) = cluster.api::<v2::Lamp>().create(&PostParams::default(), &sparse).await {
        assert!(error.to_string().contains("failed calling webhook"), "{error}");
        cluster.advance(Duration::from_secs(1)).await;
    }
    let is_lit = |now: &windlass::testing::Snapshot| {
        let lamp = now.get::<v2::Lamp>("hall").filter(|lamp| lamp.spec.brightness == Some(50));
        lamp.and_then(|lamp| lamp.status).is_some_and(|status| status.lit == 1)
    };
    cluster.eventually("the lamp is lit", is_lit).await;
}
