use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use serde_json::json;
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
    record: Writer<Secret>,
}

impl Validator for Limit {
    const HOOK: Hook = LIMIT;
    type Object = ConfigMap;
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        let maps = setup.watch::<ConfigMap>().lister();
        Ok(Self { maps, record: setup.writer::<Secret>().create().build() })
    }

    async fn validate(&self, review: &Review<ConfigMap>) -> Result<(), AdmissionError> {
        match (review.operation(), self.maps.list().len()) {
            (Operation::Create, 0) => Ok(()),
            (Operation::Create, 1) => {
                let record = json!({ "metadata": { "name": "record", "namespace": "shop" } });
                self.record.create(review, &object::<Secret>(record)).await?;
                review.warn("the \"last\" one");
                Ok(())
            }
            (Operation::Create, _) => Err(deny("too many").at("metadata.name", "is one too many")),
            (Operation::Delete, _) => Err(deny("they stay")),
            _ => Err("the inventory is away".into()),
        }
    }
}

fn map(name: &str) -> ConfigMap {
    object(json!({ "metadata": { "name": name, "namespace": "shop" } }))
}

fn webhooks() -> Webhooks {
    const DEFAULTS: Hook = Hook::new("defaults.example.com").failure(FailurePolicy::Fail);
    Webhooks::new().validator::<Limit>(()).mutates::<ConfigMap>(DEFAULTS, |_, mut map| {
        map.data.get_or_insert_default().entry("color".to_owned()).or_insert("red".to_owned());
        Ok(map)
    })
}

/// Returns a bench with a namespace that the webhooks do not skip.
async fn bench() -> WebhookBench {
    let bench = WebhookBench::new(webhooks()).await;
    bench.create(&object::<Namespace>(json!({ "metadata": { "name": "shop" } }))).await;
    bench
}

#[tokio::test(start_paused = true)]
async fn reviews_see_created_objects_and_can_write() {
    let bench = bench().await;
    let records = Api::<Secret>::namespaced(bench.client.clone(), "shop");
    let admitted = bench.create_reviewed(&map("first")).await;
    assert_eq!((admitted.denied, admitted.warnings), (None, vec![]));
    bench.create(&map("first")).await;
    assert_eq!(bench.create_reviewed(&map("second")).await.warnings, ["the \"last\" one"]);
    assert!(records.get_opt("record").await.expect("read").is_none(), "a review is a dry run");
    bench.create(&map("second")).await;
    assert!(records.get_opt("record").await.expect("read").is_some(), "the webhook wrote it");
    let denied = bench.create_reviewed(&map("third")).await;
    let message = "admission webhook \"limit.example.com\" denied the request: too many: metadata.name: is one too many";
    assert_eq!(denied.denied.as_deref(), Some(message));
    assert_eq!(denied.fields, ["metadata.name"]);
    let denied = bench.delete_reviewed(&map("first")).await;
    let message = "admission webhook \"limit.example.com\" denied the request: they stay";
    assert_eq!((denied.denied.as_deref(), denied.object), (Some(message), None));
}

#[tokio::test(start_paused = true)]
async fn patch_of_mutator_is_stored() {
    let bench = bench().await;
    let reviewed = bench.create_reviewed(&map("web")).await;
    assert_eq!(reviewed.object.expect("an object").data.expect("data")["color"], "red");
    assert_eq!(bench.create(&map("web")).await.data.expect("data")["color"], "red");
}

#[tokio::test(start_paused = true)]
async fn failed_webhook_fails_the_test() {
    let bench = bench().await;
    let made = bench.create(&map("web")).await;
    let message = catch_panic(bench.update_reviewed(&made)).await.expect_err("the webhook fails");
    assert!(message.contains("the inventory is away"), "{message}");
}
