//! Informers with a set of namespaces.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use windlass_object::{ResourceKind, ResourceVersion, TypedObjects, Verb};

use super::world::*;
use super::*;
use crate::availability::KindAvailability;
use crate::testing::relisted_within;
use crate::{Cause, DeletionEvidence, Event, NamespaceSet, RelistState};

/// Returns the recorded events of our objects: `+a/x InitialList`, `~a/x Watch`, `-a/x Deselected Inferred`.
fn recorded(log: &Log) -> Vec<String> {
    let place = |map: &ConfigMap| {
        format!("{}/{}", map.metadata.namespace.clone().unwrap(), map.metadata.name.clone().unwrap())
    };
    // Events of different namespaces have no order.
    let mut recorded: Vec<String> = log
        .take_events()
        .iter()
        .filter(|event| event.object().data.is_some())
        .map(|event| match event {
            Event::Added { object, cause } => format!("+{} {cause:?}", place(object)),
            Event::Updated { new, cause, .. } => format!("~{} {cause:?}", place(new)),
            Event::Deleted { last, observed, cause } => format!("-{} {cause:?} {observed:?}", place(last)),
        })
        .collect();
    recorded.sort();
    recorded
}

/// Starts a world that follows two of three namespaces, each with one object.
async fn followed() -> (World, NamespaceSet, SharedInformer<ConfigMap>, Log) {
    let namespaces = NamespaceSet::from_names(["a", "b"]);
    let (world, log) = (World::over(&namespaces), Log::default());
    for namespace in ["a", "b", "c"] {
        world.put(namespace, "x", "first");
    }
    let informer = world.factory.typed::<ConfigMap>();
    log.attach(&informer, "log");
    world.start();
    world.factory.wait_for_sync(Some(MINUTE)).await.expect("synced");
    world.pass(SECOND).await;
    (world, namespaces, informer, log)
}

// parity: default-namespaces
#[tokio::test(start_paused = true)]
async fn namespace_set_informer_lists_only_its_namespaces() {
    let (world, _, informer, log) = followed().await;
    assert_eq!(held(&informer), ["a/x=first", "b/x=first"]);
    assert_eq!(recorded(&log), ["+a/x InitialList", "+b/x InitialList"]);
    world.put("b", "x", "second");
    world.put("c", "x", "second");
    world.pass(SECOND).await;
    assert_eq!(recorded(&log), ["~b/x Watch"]);
    for (namespace, lists) in [("a", 1), ("b", 1), ("c", 0), ("", 0)] {
        assert_eq!(world.asked(Verb::List, "configmaps", namespace), lists, "{namespace:?}");
    }
    assert!(informer.is_filtered());
}

// parity: with-namespace, dynamic-namespaces
#[tokio::test(start_paused = true)]
async fn namespaces_that_join_or_leave_change_only_their_own_objects() {
    let (world, namespaces, informer, log) = followed().await;
    recorded(&log);
    assert!(namespaces.insert("c") && !namespaces.insert("c"));
    assert!(informer.partitions_synced().await);
    world.pass(SECOND).await;
    assert_eq!(recorded(&log), ["+c/x InitialList"]);
    assert!(namespaces.remove("a") && !namespaces.remove("a"));
    world.pass(SECOND).await;
    assert_eq!(recorded(&log), ["-a/x Deselected Inferred"]);
    assert_eq!(held(&informer), ["b/x=first", "c/x=first"]);
    world.put("a", "x", "unheard");
    world.pass(SECOND).await;
    assert_eq!(recorded(&log), Vec::<String>::new());
}

// parity: dynamic-namespaces
#[tokio::test(start_paused = true)]
async fn namespace_that_rejoins_delivers_its_current_objects() {
    let (world, namespaces, informer, log) = followed().await;
    for round in 0..5 {
        recorded(&log);
        namespaces.remove("a");
        world.pass(SECOND).await;
        assert_eq!(recorded(&log), ["-a/x Deselected Inferred"]);
        world.put("a", "x", &round.to_string());
        namespaces.insert("a");
        world.pass(SECOND).await;
        assert_eq!(recorded(&log), ["+a/x InitialList"]);
        assert_eq!(held(&informer), [format!("a/x={round}"), "b/x=first".to_owned()]);
    }
    // Removed and inserted before the informer runs: no event.
    namespaces.remove("a");
    namespaces.insert("a");
    world.pass(SECOND).await;
    assert_eq!(recorded(&log), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn deselected_object_is_delivered_as_inferred_deletion() {
    let (world, namespaces, _, log) = followed().await;
    log.take_events();
    namespaces.remove("b");
    world.pass(SECOND).await;
    let events = log.take_events();
    assert_eq!(events.len(), 1, "{events:?}");
    for event in events {
        assert!(matches!(
            event,
            Event::Deleted { observed: DeletionEvidence::Inferred, cause: Cause::Deselected, .. }
        ));
    }
}

// parity: multi-namespace-cache-informer
#[tokio::test(start_paused = true)]
async fn relist_of_one_namespace_does_not_affect_other_namespaces() {
    let (world, _, informer, log) = followed().await;
    recorded(&log);
    world.compact("a");
    world.put("a", "x", "second");
    world.put("b", "x", "second");
    world.pass(SECOND).await;
    world.remove("a", "x");
    world.heal();
    world.pass(MINUTE).await;
    let recorded = recorded(&log);
    assert!(recorded.contains(&"~b/x Watch".to_owned()), "{recorded:?}");
    assert!(recorded.contains(&"-a/x Relist Inferred".to_owned()), "{recorded:?}");
    assert_eq!(held(&informer), ["b/x=second"]);
    assert!(world.asked(Verb::List, "configmaps", "a") > 1);
    assert_eq!(world.asked(Verb::List, "configmaps", "b"), 1);
}

#[tokio::test(start_paused = true)]
async fn version_does_not_advance_until_joined_namespace_is_listed() {
    let (world, namespaces, informer, _) = followed().await;
    let mut before = informer.version().expect("a version");
    world.door.shut(Verb::List, "configmaps", Some("c"));
    namespaces.insert("c");
    world.pass(SECOND).await;
    let frozen = informer.version();
    for value in ["1", "2", "3"] {
        world.put("a", "x", value);
        world.pass(SECOND).await;
        assert_eq!(informer.version(), frozen, "the version does not cover the unlisted namespace c");
    }
    world.door.open();
    for round in 0..20 {
        world.put("b", "x", &round.to_string());
        world.pass(SECOND * 10).await;
        if round % 5 == 0 {
            namespaces.remove("a");
        } else {
            namespaces.insert("a");
        }
        let now = informer.version().expect("a version");
        assert!(before.reached(&now) != Some(true) || before == now, "from {before} back to {now}");
        before = now;
    }
    assert!(Some(before) > frozen);
}

#[tokio::test(start_paused = true)]
async fn write_to_unlisted_namespace_is_not_visible() {
    let (world, namespaces, informer, _) = followed().await;
    let versioned_cache: &dyn VersionedCache = &*informer;
    let elsewhere = world.put("c", "x", "second");
    assert!(
        versioned_cache.wait_for_version_in(Some("c").into(), elsewhere.clone(), SECOND).await,
        "the cache will never contain objects of c"
    );
    world.door.shut(Verb::List, "configmaps", Some("c"));
    namespaces.insert("c");
    // Also not before the informer has observed that the namespace joined.
    assert!(!versioned_cache.wait_for_version_in(Some("c").into(), elsewhere.clone(), SECOND).await);
    assert!(!versioned_cache.wait_for_version(elsewhere.clone(), SECOND).await);
    assert_eq!(versioned_cache.version_in(Some("c").into()), None);
    world.door.open();
    informer.recheck();
    assert!(versioned_cache.wait_for_version_in(Some("c").into(), elsewhere.clone(), MINUTE).await);
    assert!(held(&informer).contains(&"c/x=second".to_owned()));
    assert!(versioned_cache.version_in(Some("c").into()) >= Some(elsewhere));
}

#[tokio::test(start_paused = true)]
async fn own_write_in_a_busy_namespace_does_not_wait_for_a_quiet_one() {
    let (world, _, informer, _) = followed().await;
    let written = world.put("a", "x", "second");
    let began = world.env.now();
    assert!(VersionedCache::wait_for_version_in(&*informer, Some("a").into(), written.clone(), MINUTE).await);
    assert!(world.env.now().saturating_duration_since(began) <= SECOND);
    assert!(informer.version() < Some(written), "the minimum over all namespaces is behind");
}

// parity: missing-right-blocks-everything
#[tokio::test(start_paused = true)]
async fn forbidden_namespace_blocks_no_other_and_names_missing_rule() {
    let namespaces = NamespaceSet::from_names(["a", "b"]);
    let world = World::over(&namespaces);
    world.door.shut(Verb::List, "configmaps", Some("b"));
    let informer = world.factory.typed::<ConfigMap>();
    world.start();
    let behind = informer.wait_for_sync(Some(SECOND * 5)).await.unwrap_err();
    assert_eq!(
        behind.to_string(),
        "1 informer(s) not synced: configmaps.v1 (namespace b): the process cannot list configmaps in namespace b; add \
         to a Role in b or to a ClusterRole: - { apiGroups: [\"\"], resources: [\"configmaps\"], verbs: [list, watch] }"
    );
    let written = world.put("a", "x", "first");
    assert!(VersionedCache::wait_for_version_in(&*informer, Some("a").into(), written, SECOND).await);
    assert_eq!(held(&informer), ["a/x=first"]);
    assert!(
        matches!(informer.availability(), KindAvailability::Forbidden(denial) if denial.namespace.as_deref() == Some("b"))
    );
    assert!(informer.last_error().is_some_and(|error| error.starts_with("namespace b: ")));
    world.door.open();
    assert!(informer.wait_for_sync(Some(MINUTE)).await.is_ok(), "it recovers automatically");
    assert_eq!((informer.availability(), informer.last_error()), (KindAvailability::Served, None));
}

#[tokio::test(start_paused = true)]
async fn informer_sync_covers_initial_namespaces_only() {
    let (world, namespaces, informer, _) = followed().await;
    world.door.shut(Verb::List, "configmaps", Some("c"));
    namespaces.insert("c");
    world.pass(SECOND).await;
    assert!(informer.has_synced());
    assert!(world.env.timeout(SECOND, informer.partitions_synced()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn namespace_that_leaves_before_its_list_does_not_block_sync() {
    let namespaces = NamespaceSet::from_names(["a", "b"]);
    let world = World::over(&namespaces);
    world.door.shut(Verb::List, "configmaps", Some("b"));
    let informer = world.factory.typed::<ConfigMap>();
    world.start();
    assert!(informer.wait_for_sync(Some(SECOND)).await.is_err());
    namespaces.remove("b");
    assert!(informer.wait_for_sync(Some(SECOND)).await.is_ok());
    assert_eq!(informer.availability(), KindAvailability::Served);
}

#[tokio::test(start_paused = true)]
async fn empty_namespace_set_is_synced_and_can_grow() {
    let namespaces = NamespaceSet::from_names(Vec::<String>::new());
    let (world, log) = (World::over(&namespaces), Log::default());
    let written = world.put("a", "x", "first");
    let informer = world.factory.typed::<ConfigMap>();
    let handle = log.attach(&informer, "log");
    world.start();
    world.factory.wait_for_sync(Some(SECOND)).await.expect("an empty set is synced");
    assert!(handle.synced().await && informer.lister().is_empty());
    assert!(
        VersionedCache::wait_for_version(&*informer, written.clone(), SECOND).await,
        "the cache will never contain objects"
    );
    assert!(world.requests(Verb::List, "configmaps").is_empty());
    namespaces.insert("a");
    assert!(informer.partitions_synced().await);
    world.pass(SECOND).await;
    assert_eq!(recorded(&log), ["+a/x InitialList"]);
    namespaces.remove("a");
    world.pass(SECOND).await;
    assert_eq!((recorded(&log), informer.lister().len()), (vec!["-a/x Deselected Inferred".to_owned()], 0));
}

// parity: restrict-cache-namespace-cluster, namespace-all
#[tokio::test(start_paused = true)]
async fn cluster_kinds_and_single_namespace_selections_ignore_the_set() {
    let namespaces = NamespaceSet::from_names(["a"]);
    let world = World::over(&namespaces);
    world.put("c", "x", "first");
    let cluster = world.factory.typed::<Namespace>();
    let one = world.factory.informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace("c"));
    world.start();
    world.factory.wait_for_sync(Some(MINUTE)).await.expect("synced");
    assert!(!cluster.is_filtered() && cluster.lister().len() >= 3);
    assert_eq!(held(&one), ["c/x=first"]);
    assert!(cluster.namespaces().is_none() && one.namespaces().is_none());
}

#[tokio::test(start_paused = true)]
async fn shutdown_stops_all_namespace_reflectors_while_set_changes() {
    let (world, namespaces, informer, _) = followed().await;
    namespaces.insert("c");
    namespaces.remove("a");
    world.factory.shutdown().await;
    assert_eq!(world.env.tasks().iter().filter(|name| name.contains("configmaps")).count(), 0);
    assert!(informer.lister().is_stopped());
    namespaces.insert("a");
    world.pass(SECOND).await;
    assert_eq!(world.factory.dead_informers(), []);
}

/// A provider with a separate small server for each of two namespaces.
struct Two(Arc<Server>, Arc<Server>);

impl SourceProvider for Two {
    fn source(&self, kind: &ResourceKind, selection: &Selection) -> Arc<dyn crate::ListerWatcher> {
        let server = if selection.namespace.as_deref() == Some("default") { &self.0 } else { &self.1 };
        Only(Arc::clone(server)).source(kind, selection)
    }
}

#[tokio::test(start_paused = true)]
async fn restored_namespace_makes_other_namespaces_relist() {
    let namespaces = NamespaceSet::from_names(["default", "quiet"]);
    let rig = Rig::with_options(FactoryOptions { namespaces: Some(namespaces), ..FactoryOptions::default() });
    let (here, there, log) = (Server::new(), Server::new(), Log::default());
    log.attach(&rig.informer, "log");
    let backup = there.objects();
    for value in ["1", "2", "3"] {
        here.set("a", value);
        there.pass_time();
    }
    rig.factory.start(Arc::new(Two(Arc::clone(&here), Arc::clone(&there))));
    rig.settle().await;
    assert_eq!((log.take(), rig.counts().lists.get()), (vec!["+a@3=3 InitialList".to_owned()], 2));
    there.cut(None);
    there.restore(backup, 1);
    rig.env.sleep(LONG).await;
    let progress = rig.lister.progress();
    assert_eq!((progress.epoch, progress.version_in(Some("default"))), (1, Some(&at(3))));
    assert_eq!(log.take(), ["~a@3=3>a@3=3 Relist"], "the server might have reused a version");
    assert!(progress.has_listed("default") && progress.has_listed("quiet"));
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_covers_every_namespace() {
    let (world, _, informer, _) = followed().await;
    let lists = |namespace: &str| world.asked(Verb::List, "configmaps", namespace);
    let before = (lists("a"), lists("b"));
    assert!(relisted_within(&world.env, &*informer, MINUTE).await);
    assert_eq!((lists("a"), lists("b")), (before.0 + 1, before.1 + 1));
    let never: Option<ResourceVersion> = VersionedCache::version_in(&*informer, Some("c").into());
    assert_eq!(never, None);
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_waits_for_namespaces_not_followed_yet() {
    let namespaces = NamespaceSet::from_names(["a"]);
    let world = World::over(&namespaces);
    for namespace in ["a", "b"] {
        world.put(namespace, "x", "first");
    }
    let informer = world.factory.typed::<ConfigMap>();
    world.start();
    assert!(relisted_within(&world.env, &*informer, MINUTE).await);
    assert_eq!(held(&informer), ["a/x=first"]);
    namespaces.replace(["b"]);
    assert!(relisted_within(&world.env, &*informer, MINUTE).await);
    assert_eq!(held(&informer), ["b/x=first"]);
    namespaces.replace(Vec::<String>::new());
    assert!(relisted_within(&world.env, &*informer, MINUTE).await, "an empty set is up to date");
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_does_not_wait_for_namespace_that_leaves() {
    let (world, namespaces, informer, _) = followed().await;
    let leaves = async { namespaces.remove("b") };
    let (fresh, left) = future::join(relisted_within(&world.env, &*informer, MINUTE), leaves).await;
    assert!(fresh && left);
    world.pass(SECOND).await;
    assert_eq!(held(&informer), ["a/x=first"]);
}

#[tokio::test(start_paused = true)]
async fn requested_relist_lists_only_the_namespace_of_its_location() {
    let (world, namespaces, informer, _) = followed().await;
    let lists = |namespace: &str| world.asked(Verb::List, "configmaps", namespace);
    let state = |ticket| VersionedCache::relist_state(&*informer, ticket);
    let before = (lists("a"), lists("b"));
    let ticket = VersionedCache::request_relist(&*informer, Some("a").into());
    assert_eq!(state(&ticket), RelistState::Pending);
    informer.wait_relisted(&ticket).await;
    assert_eq!((lists("a"), lists("b")), (before.0 + 1, before.1));
    let unfollowed = VersionedCache::request_relist(&*informer, Some("c").into());
    assert_eq!(state(&unfollowed), RelistState::Done, "none of its objects are stored");
    let leaving = VersionedCache::request_relist(&*informer, Some("b").into());
    namespaces.remove("b");
    assert_eq!(state(&leaving), RelistState::Done);
    informer.wait_relisted(&leaving).await;
}

#[tokio::test(start_paused = true)]
async fn ticket_for_a_joining_namespace_is_done_with_its_first_list() {
    let (world, namespaces, informer, _) = followed().await;
    namespaces.insert("c");
    let ticket = VersionedCache::request_relist(&*informer, Some("c").into());
    assert_eq!(VersionedCache::relist_state(&*informer, &ticket), RelistState::Pending);
    informer.wait_relisted(&ticket).await;
    assert_eq!(held(&informer), ["a/x=first", "b/x=first", "c/x=first"]);
    assert_eq!(world.asked(Verb::List, "configmaps", "c"), 1);
}
