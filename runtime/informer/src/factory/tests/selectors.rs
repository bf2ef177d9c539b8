//! Selectors and options of a factory and its kinds.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use windlass_object::{MetadataObjects, ResourceKind, TypedObjects, Verb};

use super::world::*;
use super::*;
use crate::{KindOptions, KindOptionsMap, Selectors};

fn labels(text: &str) -> Selectors {
    Selectors { labels: Some(text.to_owned()), fields: None }
}

// parity: with-tweak-list-options, default-label-selector
#[tokio::test(start_paused = true)]
async fn kind_selectors_override_factory_selectors() {
    let fields = Selectors { labels: None, fields: Some("metadata.name=x".to_owned()) };
    let mut kinds = KindOptionsMap::default();
    let mut of_secrets = KindOptions::<Secret>::new();
    of_secrets.selectors = Some(fields);
    kinds.set(of_secrets);
    let options = FactoryOptions { selectors: labels("app=web"), kinds, ..FactoryOptions::default() };
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

// parity: default-label-selector
#[test]
fn requested_and_factory_selectors_are_combined() {
    let options = FactoryOptions { selectors: labels("app=web"), ..FactoryOptions::default() };
    let factory = InformerFactory::new(Env::virtual_time(1), Metrics::new(), options);
    let asked = |labels: &str| Selection::by_labels(labels);
    let informer = factory.informer(TypedObjects::<ConfigMap>::new(), asked("tier=front"));
    assert_eq!(informer.selection(), &asked("tier=front,app=web"));
    let same = factory.informer(TypedObjects::<ConfigMap>::new(), asked("app=web"));
    assert!(
        Arc::ptr_eq(same.erased(), factory.typed::<ConfigMap>().erased()),
        "equal selectors are not repeated"
    );
}

#[tokio::test(start_paused = true)]
async fn crd_informer_ignores_factory_selectors() {
    for requested in [false, true] {
        let options =
            FactoryOptions { selectors: labels("app=web"), watch_crds: true, ..FactoryOptions::default() };
        let world = World::with(options);
        if requested {
            world.factory.typed::<CustomResourceDefinition>();
        }
        let widgets = world.factory.informer(widgets(), Selection::default());
        world.start();
        world.pass(MINUTE * 10).await;
        world.define_widgets();
        assert!(widgets.wait_for_sync(Some(SECOND)).await.is_ok(), "requested: {requested}");
    }
}

#[tokio::test(start_paused = true)]
async fn kind_options_override_factory_options() {
    let mut options = FactoryOptions { byte_budget: Some(1 << 20), ..FactoryOptions::default() };
    let mut of_maps = KindOptions::<ConfigMap>::new().transform(|map| map.data = None);
    of_maps.namespaces = Some(NamespaceSet::from_names(["shop"]));
    of_maps.keep_managed_fields = Some(true);
    of_maps.byte_budget = Some(7);
    options.kinds.set(of_maps);
    let kind = |kind: &ResourceKind| {
        let settings = options.settings(kind);
        (settings.byte_budget, settings.keep_managed_fields, options.namespaces_of(kind).is_some())
    };
    assert_eq!(kind(&ResourceKind::of::<ConfigMap>()), (Some(7), true, true));
    assert_eq!(kind(&ResourceKind::of::<Secret>()), (Some(1 << 20), false, false));
    assert!(options.kinds.has_transform(&ResourceKind::of::<ConfigMap>().group_resource()));
    assert!(!options.kinds.has_transform(&ResourceKind::of::<Secret>().group_resource()));
}

#[tokio::test(start_paused = true)]
async fn kind_transform_changes_only_objects_of_its_type() {
    let mut options = FactoryOptions::default();
    options.kinds.set(KindOptions::<ConfigMap>::new().transform(|map| map.data = None));
    let world = World::with(options);
    world.put("a", "m", "big");
    let maps = world.factory.typed::<ConfigMap>();
    let metadata =
        world.factory.informer(MetadataObjects::new(ResourceKind::of::<ConfigMap>()), Selection::default());
    world.start();
    world.factory.wait_for_sync(Some(MINUTE)).await.expect("synced");
    let map = maps.lister().list().pop().expect("stored");
    assert_eq!((map.data.as_ref(), metadata.lister().list().len()), (None, 1));
}
