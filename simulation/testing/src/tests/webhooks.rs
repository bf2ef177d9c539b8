//! An operator whose webhook sets a required default, and the faults of the calls.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use windlass_webhook::{AdmissionError, FailurePolicy, Hook, Operation, Review, Webhooks};

use super::*;
use crate::FaultKind;

/// Number of ConfigMaps that the script creates, one every ten seconds.
const MAPS: usize = 24;

fn set_color(_: &Review<ConfigMap>, mut map: ConfigMap) -> Result<ConfigMap, AdmissionError> {
    map.data.get_or_insert_default().entry("color".to_owned()).or_insert_with(|| "white".to_owned());
    Ok(map)
}

/// Creates ConfigMaps, and requires that each has the default of the webhook.
async fn maps_have_color(cluster: Cluster, policy: FailurePolicy) {
    let hook = Hook::new("color.maps.example.com").on(&[Operation::Create]).failure(policy);
    // By default the namespace of the process is excluded.
    let hook = hook.namespaces(LabelSelector::default);
    let program = || [Registration::from(Webhooks::new().mutates::<ConfigMap>(hook, set_color))];
    cluster.install(program()).await;
    cluster.run(program());
    cluster.advance(Duration::from_secs(5)).await;
    for number in 0..MAPS {
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(format!("map-{number}")), ..ObjectMeta::default() },
            ..ConfigMap::default()
        };
        while let Err(error) = cluster.api::<ConfigMap>().create(&PostParams::default(), &map).await {
            assert!(error.to_string().contains("failed calling webhook"), "{error}");
            cluster.advance(Duration::from_secs(1)).await;
        }
        cluster.advance(Duration::from_secs(10)).await;
    }
    let have_color = |now: &crate::Snapshot| {
        let names: Vec<String> = (0..MAPS).map(|number| format!("map-{number}")).collect();
        let color = |map: ConfigMap| map.data.and_then(|mut data| data.remove("color"));
        names.iter().all(|name| now.get::<ConfigMap>(name).and_then(color).is_some())
    };
    cluster.eventually("each map has a color", have_color).await;
}

fn simulation() -> Simulation {
    Simulation::new(1).minutes(4).faults(Faults::only([FaultKind::Webhook]))
}

#[test]
fn ignored_failure_of_required_webhook_is_found() {
    let script = |cluster| maps_have_color(cluster, FailurePolicy::Ignore);
    let failure = random_plans(&simulation(), 20, script).expect_err("a map without color is found");
    let condition = "each map has a color".to_owned();
    assert!(
        matches!(&failure.violation, Violation::Timeout { condition: it, .. } if *it == condition),
        "{failure}"
    );
    assert!(failure.plan.faults.len() == 1 && failure.plan.faults[0].affects_webhooks(), "{failure}");
}

#[test]
fn required_webhook_with_policy_fail_passes_under_faults() {
    let script = |cluster| maps_have_color(cluster, FailurePolicy::Fail);
    let campaign = random_plans(&simulation(), 5, script);
    campaign.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn each_webhook_fault_has_message_of_upstream_and_obeys_its_filters() {
    for (action, message) in [
        (FaultAction::WebhookRefused, "connect: connection refused"),
        (FaultAction::WebhookSilent, "context deadline exceeded"),
        (
            FaultAction::WebhookFails,
            "an error on the server (\"unknown\") has prevented the request from succeeding",
        ),
    ] {
        let whole_run = || Fault::until(Duration::from_secs(60), action.clone());
        for (fault, fails) in [
            (whole_run(), true),
            (whole_run().for_resource("configmaps"), true),
            (whole_run().for_resource("secrets"), false),
            (whole_run().for_instance("a"), true),
            (whole_run().for_instance("b"), false),
            (whole_run().from(Duration::from_secs(30)), false),
        ] {
            let plan = FaultPlan { seed: 1, faults: vec![fault.clone()] };
            let script = async |cluster: Cluster| {
                let hook = Hook::new("color.maps.example.com").on(&[Operation::Create]);
                let hook =
                    hook.failure(FailurePolicy::Fail).namespaces(LabelSelector::default).timeout_seconds(2);
                let program = || [Registration::from(Webhooks::new().mutates::<ConfigMap>(hook, set_color))];
                cluster.install(program()).await;
                cluster.run(program());
                cluster.advance(Duration::from_secs(5)).await;
                let mut map = ConfigMap::default();
                map.metadata.name = Some("map".to_owned());
                let created = cluster.api::<ConfigMap>().create(&PostParams::default(), &map).await;
                let failed = created.err().map(|error| error.to_string());
                assert_eq!(
                    failed.as_ref().is_some_and(|it| it.contains(message)),
                    fails,
                    "{fault}: {failed:?}"
                );
            };
            Simulation::new(1)
                .replicas(1)
                .plan(plan)
                .run(script)
                .unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}
