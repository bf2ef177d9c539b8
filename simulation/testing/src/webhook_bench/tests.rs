use k8s_openapi::api::core::v1::ConfigMap;
use windlass_controller::{Setup, SetupError, Writer};
use windlass_env::catch_panic;
use windlass_informer::Lister;
use windlass_webhook::{
    AdmissionError, FailurePolicy, Hook, Operation, Review, SideEffects, Validator, Webhooks, deny,
};

use super::*;
use crate::object;

const LIMIT: Hook = Hook::new("limit.example.com")
    .on(&[Operation::Create, Operation::Update, Operation::Delete])
    .failure(FailurePolicy::Fail)
    .side_effects(SideEffects::NoneOnDryRun);

/// Admits two ConfigMaps, and records the second.
struct Limit {
    maps: Lister<ConfigMap>,
    map: Writer<ConfigMap>,
}

impl Validator for Limit {
    const HOOK: Hook = LIMIT;
    type Object = ConfigMap;
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        let maps = setup.watch::<ConfigMap>().lister();
        Ok(Self { maps, map: setup.writer::<ConfigMap>().create().build() })
    }

    async fn validate(&self, review: &Review<ConfigMap>) -> Result<(), AdmissionError> {
        match (review.operation(), self.maps.list().len()) {
            (Operation::Create, 0) => Ok(()),
            (Operation::Create, 1) => {
                self.map.create(review, &map("record")).await?;
                review.warn("the last one");
                Ok(())
            }
            (Operation::Create, _) => Err(deny("too many").at("metadata.name", "is one too many")),
            (Operation::Delete, _) => Err(deny("they stay")),
            _ => Err("the inventory is away".into()),
        }
    }
}

fn map(name: &str) -> ConfigMap {
    object(json!({ "metadata": { "name": name } }))
}

fn webhooks() -> Webhooks {
    const DEFAULTS: Hook = Hook::new("defaults.example.com").failure(FailurePolicy::Fail);
    Webhooks::new().validator::<Limit>(()).mutates::<ConfigMap>(DEFAULTS, |_, mut map| {
        map.data.get_or_insert_default().entry("color".to_owned()).or_insert("red".to_owned());
        Ok(map)
    })
}

#[tokio::test(start_paused = true)]
async fn reviews_see_created_objects_and_can_write() {
    let bench = WebhookBench::new(webhooks()).await;
    let review = async || bench.create_reviewed("limit.example.com", &map("new")).await;
    let admitted = Reviewed { denied: None, fields: vec![], warnings: vec![], object: Some(map("new")) };
    assert_eq!(review().await, admitted);
    bench.create(&map("first")).await;
    assert_eq!(review().await.warnings, ["the last one"]);
    assert!(bench.api::<ConfigMap>().get("record").await.is_ok(), "the webhook wrote it");
    let denied = review().await;
    assert_eq!(denied.denied.as_deref(), Some("too many: metadata.name: is one too many"));
    assert_eq!(denied.fields, ["metadata.name"]);
    let denied = bench.delete_reviewed("limit.example.com", &map("first")).await;
    assert_eq!((denied.denied.as_deref(), denied.object), (Some("they stay"), None));
}

#[tokio::test(start_paused = true)]
async fn patch_of_mutator_is_applied() {
    let bench = WebhookBench::new(webhooks()).await;
    let reviewed = bench.create_reviewed("defaults.example.com", &map("web")).await;
    assert_eq!(reviewed.object.expect("an object").data.expect("data")["color"], "red");
}

#[tokio::test(start_paused = true)]
async fn failed_webhook_fails_the_test() {
    let bench = WebhookBench::new(webhooks()).await;
    let (old, new) = (map("web"), map("web"));
    let reviewed = catch_panic(bench.update_reviewed("limit.example.com", &old, &new)).await;
    let message = reviewed.expect_err("the webhook fails");
    assert!(message.contains("the inventory is away"), "{message}");
}
