//! What every informer of a factory selects by.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use windlass_object::{ResourceKind, Typed, Verb};

use super::world::*;
use super::*;
use crate::Selectors;

fn labels(text: &str) -> Selectors {
    Selectors { labels: Some(text.to_owned()), fields: None }
}

#[tokio::test(start_paused = true)]
async fn a_factorys_selectors_narrow_every_informer_and_those_of_a_kind_take_their_place() {
    let fields = Selectors { labels: None, fields: Some("metadata.name=x".to_owned()) };
    let of_secrets = BTreeMap::from([(ResourceKind::of::<Secret>().group_resource(), fields)]);
    let options = FactoryOptions {
        selectors: labels("app=web"),
        selectors_by_kind: of_secrets,
        ..FactoryOptions::default()
    };
    let world = World::with(options);
    let maps = world.factory.typed::<ConfigMap>();
    let secrets = world.factory.typed::<Secret>();
    assert_eq!(maps.selection().to_string(), "labels app=web");
    assert_eq!(secrets.selection().to_string(), "fields metadata.name=x");
    world.start();
    world.factory.wait_for_sync(Some(MINUTE)).await.expect("synced");
    for (resource, query) in
        [("configmaps", "labelSelector=app%3Dweb"), ("secrets", "fieldSelector=metadata.name%3Dx")]
    {
        for verb in [Verb::List, Verb::Watch] {
            for asked in world.requests(verb, resource) {
                assert!(asked.uri.contains(query), "{}", asked.uri);
            }
        }
        assert!(!world.requests(Verb::Watch, resource).is_empty());
    }
}

#[test]
fn what_is_asked_for_and_what_the_factory_selects_by_must_both_hold() {
    let options = FactoryOptions { selectors: labels("app=web"), ..FactoryOptions::default() };
    let factory = InformerFactory::new(Env::virtual_time(1), Metrics::new(), options);
    let asked = |labels: &str| Selection { labels: Some(labels.to_owned()), ..Selection::default() };
    let informer = factory.informer(Typed::<ConfigMap>::new(), asked("tier=front"));
    assert_eq!(informer.selection(), &asked("tier=front,app=web"));
    let same = factory.informer(Typed::<ConfigMap>::new(), asked("app=web"));
    assert!(
        Arc::ptr_eq(same.erased(), factory.typed::<ConfigMap>().erased()),
        "what is said twice is said once"
    );
}

#[tokio::test(start_paused = true)]
async fn definitions_are_followed_whatever_a_factory_selects_by() {
    for asked_for in [false, true] {
        let options = FactoryOptions {
            selectors: labels("app=web"),
            follow_definitions: true,
            ..FactoryOptions::default()
        };
        let world = World::with(options);
        if asked_for {
            world.factory.typed::<CustomResourceDefinition>();
        }
        let widgets = world.factory.informer(widgets(), Selection::default());
        world.start();
        world.pass(MINUTE * 10).await;
        world.define_widgets();
        assert!(widgets.wait_for_sync(Some(SECOND)).await.is_ok(), "asked for: {asked_for}");
    }
}
