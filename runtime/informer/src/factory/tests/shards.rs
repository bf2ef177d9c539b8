//! Informers with a set of shards, with servers that filter by shard and servers that do not.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRole;
use proptest::prelude::*;
use serde_json::json;
use windlass_api_server::ApiServerOptions;
use windlass_api_server::faults::{Fault, FaultAction, FaultPlan, RequestSummary};
use windlass_object::shard::{HashRange, HashRanges, ShardField, ShardId, ShardMap, hash, selector};
use windlass_object::{
    DecodeError, Decoder, ObjectDecoder, Representation, ResourceKind, TypedObjects, Verb, request,
};

use super::world::*;
use super::*;
use crate::{Event, NamespaceSet, Shard, ShardSelection, ShardSet};

const NAMESPACES: [&str; 3] = ["a", "b", "c"];

/// Whether the server filters, and whether it lists by streams.
const SERVERS: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

/// Returns the hash range of one namespace and little more.
fn of(namespace: &str) -> HashRanges {
    let start = hash(namespace) & !0xffff;
    HashRange::new(start, u128::from(start) + 0x1_0000).expect("a range").into()
}

fn shard(number: u16) -> ShardId {
    ShardId(number)
}

fn quarter(number: u16) -> HashRanges {
    ShardMap::even(NonZeroU16::new(4).unwrap()).ranges(shard(number)).clone()
}

fn world_over(shards: &ShardSet, filters: bool, streams: bool) -> World {
    let options = FactoryOptions { shards: Some(shards.clone()), ..FactoryOptions::default() };
    world_with(options, filters, streams)
}

fn world_with(options: FactoryOptions, filters: bool, streams: bool) -> World {
    let server = ApiServerOptions { sharded_list_and_watch: filters, ..ApiServerOptions::default() };
    let world = World::before(server, FaultPlan { seed: 1, faults: Vec::new() }, options);
    if streams {
        world.door.offer_streams();
    }
    for namespace in NAMESPACES {
        world.put(namespace, "x", "first");
    }
    world
}

/// Returns the recorded events of our objects: `+a/x InitialList`, `~a/x Watch`, `-a/x Deselected`. Events of different
/// shards have no order.
fn recorded(log: &Log) -> Vec<String> {
    let place = |map: &ConfigMap| {
        format!("{}/{}", map.metadata.namespace.clone().unwrap(), map.metadata.name.clone().unwrap())
    };
    let mut recorded: Vec<String> = log
        .take_events()
        .iter()
        .filter(|event| event.object().data.is_some())
        .map(|event| match event {
            Event::Added { object, cause } => format!("+{} {cause:?}", place(object)),
            Event::Updated { new, cause, .. } => format!("~{} {cause:?}", place(new)),
            Event::Deleted { last, cause, .. } => format!("-{} {cause:?}", place(last)),
        })
        .collect();
    recorded.sort();
    recorded
}

/// Makes `shards` a set of `wanted`, without an await in between.
fn hold(shards: &ShardSet, wanted: BTreeMap<ShardId, HashRanges>) {
    for (shard, _) in shards.current().iter().filter(|(shard, ranges)| wanted.get(shard) != Some(ranges)) {
        shards.remove(*shard);
    }
    for (shard, ranges) in wanted {
        shards.insert(shard, ranges).expect("no overlap");
    }
}

/// Starts a world that holds the shards of two of three namespaces.
async fn followed(filters: bool, streams: bool) -> (World, ShardSet, SharedInformer<ConfigMap>, Log) {
    let shards = ShardSet::new();
    for (number, namespace) in (0..).zip(["a", "b"]) {
        shards.insert(shard(number), of(namespace)).unwrap();
    }
    let (world, log) = (world_over(&shards, filters, streams), Log::default());
    let informer = world.factory.typed::<ConfigMap>();
    log.attach(&informer, "log");
    world.start();
    world.factory.wait_for_sync(Some(MINUTE)).await.expect("synced");
    world.pass(SECOND).await;
    (world, shards, informer, log)
}

// parity: server-without-gate-passes
#[tokio::test(start_paused = true)]
async fn shard_set_informer_holds_its_objects_with_any_server() {
    for (filters, streams) in SERVERS {
        let (world, _, informer, log) = followed(filters, streams).await;
        assert_eq!(held(&informer), ["a/x=first", "b/x=first"]);
        assert_eq!(recorded(&log), ["+a/x InitialList", "+b/x InitialList"]);
        world.put("b", "x", "second");
        world.put("c", "x", "second");
        world.put("c", "y", "new");
        world.remove("a", "x");
        world.remove("c", "x");
        world.pass(SECOND).await;
        assert_eq!(recorded(&log), ["-a/x Watch", "~b/x Watch"]);
        assert_eq!(held(&informer), ["b/x=second"]);
        assert!(informer.is_filtered());
    }
}

// parity: shards-informer, controller-runtime-sharding
#[tokio::test(start_paused = true)]
async fn shards_that_join_or_leave_change_only_their_own_objects() {
    for (filters, streams) in SERVERS {
        let (world, shards, informer, log) = followed(filters, streams).await;
        recorded(&log);
        shards.insert(shard(2), of("c")).unwrap();
        world.pass(SECOND).await;
        assert_eq!(recorded(&log), ["+c/x InitialList"]);
        shards.remove(shard(0));
        world.pass(SECOND).await;
        assert_eq!(recorded(&log), ["-a/x Deselected"]);
        assert_eq!(held(&informer), ["b/x=first", "c/x=first"]);
        world.put("a", "x", "unheard");
        world.pass(SECOND).await;
        assert_eq!(recorded(&log), Vec::<String>::new());
        hold(&shards, BTreeMap::new());
        world.pass(SECOND).await;
        assert_eq!(held(&informer), Vec::<String>::new());
        assert!(informer.has_synced(), "an empty set is synced");
    }
}

// parity: shards-informer
#[tokio::test(start_paused = true)]
async fn shard_with_changed_ranges_leaves_and_rejoins() {
    for (filters, streams) in SERVERS {
        let (world, shards, informer, log) = followed(filters, streams).await;
        recorded(&log);
        shards.insert(shard(0), of("a").union(&of("c"))).unwrap();
        world.pass(SECOND).await;
        assert_eq!(recorded(&log), ["+a/x InitialList", "+c/x InitialList", "-a/x Deselected"]);
        assert!(informer.partitions_synced().await);
        // The same ranges with another number.
        hold(&shards, BTreeMap::from([(shard(7), of("b"))]));
        world.pass(SECOND).await;
        assert_eq!(held(&informer), ["b/x=first"]);
    }
}

/// Returns whether the informer has the first lists of its partitions now.
async fn is_synced(informer: &SharedInformer<ConfigMap>) -> bool {
    informer.partitions_synced().now_or_never() == Some(true)
}

#[tokio::test(start_paused = true)]
async fn shard_that_leaves_and_rejoins_at_once_is_listed_again() {
    for (filters, streams) in SERVERS {
        let (world, shards, informer, log) = followed(filters, streams).await;
        recorded(&log);
        assert!(is_synced(&informer).await);
        world.door.shut(Verb::List, "configmaps", None);
        world.door.shut(Verb::Watch, "configmaps", None);
        // The informer observes both changes at once.
        hold(&shards, BTreeMap::from([(shard(1), of("b"))]));
        shards.insert(shard(0), of("a")).unwrap();
        assert!(!is_synced(&informer).await, "the earlier list does not count");
        world.pass(SECOND).await;
        assert!(!is_synced(&informer).await, "it has not been listed again");
        assert_eq!(recorded(&log), ["-a/x Deselected"]);
        world.door.open();
        assert!(informer.partitions_synced().await);
        world.pass(SECOND).await;
        assert_eq!(recorded(&log), ["+a/x InitialList"]);
        assert_eq!(held(&informer), ["a/x=first", "b/x=first"]);
    }
}

#[tokio::test(start_paused = true)]
async fn shard_that_rejoins_while_it_is_being_removed_is_not_synced() {
    for (filters, streams) in SERVERS {
        let (world, shards, informer, log) = followed(filters, streams).await;
        recorded(&log);
        shards.remove(shard(0));
        for _ in 0..20 {
            shards.insert(shard(0), of("a")).unwrap();
            let is_synced = is_synced(&informer).await;
            assert!(!is_synced, "the objects of the earlier term count: {:?}", recorded(&log));
            shards.remove(shard(0));
            tokio::task::yield_now().await;
        }
        shards.insert(shard(0), of("a")).unwrap();
        assert!(informer.partitions_synced().await);
        world.pass(SECOND).await;
        assert_eq!(held(&informer), ["a/x=first", "b/x=first"]);
    }
}

// parity: controller-runtime-sharding
#[tokio::test(start_paused = true)]
async fn unlistable_shard_is_named_and_blocks_no_other_shard() {
    let shards = ShardSet::new();
    shards.insert(shard(0), of("a")).unwrap();
    let world = world_over(&shards, true, false);
    let informer = world.factory.typed::<ConfigMap>();
    world.start();
    assert!(informer.synced().await);
    world.api.inject_fault(|request: &RequestSummary| {
        (request.verb == Some(Verb::List)).then_some(FaultAction::InternalError)
    });
    shards.insert(shard(1), of("b")).unwrap();
    world.put("a", "x", "second");
    world.pass(SECOND).await;
    assert_eq!(held(&informer), ["a/x=second"]);
    let unsynced = informer.unsynced();
    assert_eq!(unsynced.len(), 1, "{unsynced:?}");
    assert!(unsynced[0].to_string().contains("shard 1 (0x"), "{}", unsynced[0]);
    assert!(informer.last_error().is_some_and(|error| error.starts_with("shard 1 (0x")));
    assert_eq!(VersionedCache::version_in(&*informer, Some("b").into()), None);
    assert!(VersionedCache::version_in(&*informer, Some("a").into()).is_some());
    world.heal();
    assert!(informer.partitions_synced().await);
    assert_eq!(held(&informer), ["a/x=second", "b/x=first"]);
}

// parity: sharded-list-watch-gate
#[tokio::test(start_paused = true)]
async fn every_list_page_and_watch_contains_the_shard_selector() {
    let shards = ShardSet::new();
    shards.insert(shard(0), of("a")).unwrap();
    let expected = selector(ShardField::Namespace, &of("a")).unwrap();
    for streams in [true, false] {
        let world = world_over(&shards, true, streams);
        for number in 0..600 {
            world.put("a", &format!("n{number}"), "v");
        }
        let informer = world.factory.typed::<ConfigMap>();
        world.start();
        assert!(informer.synced().await);
        // Next: a list with a minimum version, and another watch.
        world.pass(MINUTE * 10).await;
        world.compact("");
        world.put("a", "x", "second");
        world.pass(MINUTE).await;
        world.heal();
        world.pass(MINUTE).await;
        for verb in [Verb::List, Verb::Watch] {
            let asked = world.requests(verb, "configmaps");
            assert!(asked.len() >= 2 || streams && verb == Verb::List, "{verb} {}", asked.len());
            for asked in asked {
                let query = asked.uri.split_once('?').map(|(_, query)| query);
                let found = request::parameter(query, "shardSelector");
                assert_eq!(found.as_deref(), Some(expected.as_str()), "{asked:?}");
            }
        }
        assert_eq!(informer.lister().len(), 601);
    }
}

#[tokio::test(start_paused = true)]
async fn kinds_without_namespaces_are_sharded_by_uid() {
    for (filters, streams) in SERVERS {
        let shards = ShardSet::new();
        let world = world_over(&shards, filters, streams);
        let informer = world.factory.typed::<Namespace>();
        world.start();
        assert!(informer.synced().await);
        let mut seen = BTreeSet::new();
        for number in 0..4 {
            hold(&shards, BTreeMap::from([(shard(number), quarter(number))]));
            world.pass(SECOND).await;
            for namespace in informer.lister().list() {
                let uid = namespace.metadata.uid.clone().unwrap();
                assert!(quarter(number).contains(hash(&uid)), "{uid}");
                assert!(seen.insert(namespace.metadata.name.clone().unwrap()), "in two shards");
            }
        }
        let (_, all) = world.api.request(&http::Method::GET, "/api/v1/namespaces", None);
        assert_eq!(seen.len(), all["items"].as_array().unwrap().len());
    }
}

#[tokio::test(start_paused = true)]
async fn object_recreated_in_another_shard_is_never_lost() {
    for (filters, streams) in SERVERS {
        let shards = ShardSet::new();
        for number in 0..4 {
            shards.insert(shard(number), quarter(number)).unwrap();
        }
        let world = world_over(&shards, filters, streams);
        let informer = world.factory.typed::<ClusterRole>();
        world.start();
        assert!(informer.synced().await);
        for round in 0..30 {
            if round % 3 == 0 {
                // One of the shards relists, perhaps with the previous object.
                let few = AtomicUsize::new(0);
                world.api.inject_fault(move |request: &RequestSummary| {
                    let strikes = request.is_watch() && few.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
                    strikes.then_some(FaultAction::WatchExpired)
                });
            }
            let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/borne-by-many";
            let made = world.api.upsert(path, json!({}));
            world.heal();
            world.pass(Duration::from_secs(90)).await;
            let held = informer.lister().list();
            let held = held.iter().filter(|it| it.metadata.name.as_deref() == Some("borne-by-many"));
            let uids: Vec<_> = held.map(|it| it.metadata.uid.clone()).collect();
            assert_eq!(uids, [made["metadata"]["uid"].as_str().map(str::to_owned)], "round {round}");
            world.api.delete(path);
            if round % 2 == 0 {
                world.pass(SECOND * 5).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn selection_of_every_shard_or_one_namespace_is_complete() {
    let shards = ShardSet::new();
    shards.insert(shard(0), of("a")).unwrap();
    let world = world_over(&shards, true, true);
    let of_shards = world.factory.typed::<ConfigMap>();
    let whole =
        world.factory.informer(TypedObjects::<ConfigMap>::new(), Selection::default().with_every_shard());
    let named = world.factory.informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace("b"));
    world.start();
    world.factory.wait_for_sync(Some(MINUTE)).await.expect("synced");
    assert_eq!(held(&of_shards), ["a/x=first"]);
    assert_eq!(held(&whole), ["a/x=first", "b/x=first", "c/x=first"]);
    assert_eq!(held(&named), ["b/x=first"]);
    assert!(of_shards.is_filtered() && !whole.is_filtered() && named.shards().is_none());
}

#[tokio::test(start_paused = true)]
async fn every_shard_of_unsharded_factory_is_the_whole_informer() {
    let world = World::new();
    world.factory.typed::<ConfigMap>();
    world.factory.informer(TypedObjects::<ConfigMap>::new(), Selection::default().with_every_shard());
    assert_eq!(world.factory.kinds().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn selection_of_one_shard_needs_no_set() {
    let world = world_with(FactoryOptions::default(), false, true);
    let one = Shard { id: shard(3), field: ShardField::Namespace, ranges: of("b"), term: 0 };
    let selection = Selection { shards: ShardSelection::One(Arc::new(one)), ..Selection::default() };
    let informer = world.factory.informer(TypedObjects::<ConfigMap>::new(), selection);
    world.start();
    assert!(informer.synced().await && informer.is_filtered());
    assert_eq!(held(&informer), ["b/x=first"]);
}

#[tokio::test(start_paused = true)]
async fn namespaces_within_shards_are_followed_if_a_shard_contains_them() {
    let (shards, namespaces) = (ShardSet::new(), NamespaceSet::from_names(["a", "b"]));
    shards.insert(shard(0), of("a")).unwrap();
    let options = FactoryOptions {
        shards: Some(shards.clone()),
        namespaces: Some(namespaces.clone()),
        ..FactoryOptions::default()
    };
    let world = world_with(options, false, true);
    let informer = world.factory.typed::<ConfigMap>();
    world.start();
    assert!(informer.synced().await);
    assert_eq!(held(&informer), ["a/x=first"]);
    shards.insert(shard(1), of("b").union(&of("c"))).unwrap();
    world.pass(SECOND).await;
    assert_eq!(held(&informer), ["a/x=first", "b/x=first"]);
    namespaces.insert("c");
    namespaces.remove("a");
    world.pass(SECOND).await;
    assert_eq!(held(&informer), ["b/x=first", "c/x=first"]);
    shards.remove(shard(1));
    world.pass(SECOND).await;
    assert_eq!(held(&informer), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn namespace_of_shard_that_rejoins_at_once_is_listed_again() {
    let (shards, namespaces) = (ShardSet::new(), NamespaceSet::from_names(["a", "b"]));
    shards.insert(shard(0), of("a")).unwrap();
    let options = FactoryOptions {
        shards: Some(shards.clone()),
        namespaces: Some(namespaces),
        ..FactoryOptions::default()
    };
    let (world, log) = (world_with(options, false, true), Log::default());
    let informer = world.factory.typed::<ConfigMap>();
    log.attach(&informer, "log");
    world.start();
    assert!(informer.synced().await);
    world.pass(SECOND).await;
    recorded(&log);
    shards.remove(shard(0));
    shards.insert(shard(0), of("a")).unwrap();
    assert!(!is_synced(&informer).await, "the earlier list does not count");
    world.pass(SECOND).await;
    assert_eq!(recorded(&log), ["+a/x InitialList", "-a/x Deselected"]);
    assert!(is_synced(&informer).await);
}

#[tokio::test(start_paused = true)]
async fn own_writes_are_waited_for_in_their_shard_only() {
    for (filters, streams) in SERVERS {
        let (world, shards, informer, _) = followed(filters, streams).await;
        let written = world.put("a", "x", "second");
        let reached = |namespace, within| {
            VersionedCache::wait_for_version_in(&*informer, Some(namespace).into(), written.clone(), within)
        };
        assert!(reached("a", SECOND).await, "quiet shards are not waited for");
        assert!(reached("c", SECOND).await, "the cache will never contain objects of c");
        world.door.shut(Verb::List, "configmaps", None);
        world.door.shut(Verb::Watch, "configmaps", None);
        shards.insert(shard(2), of("c")).unwrap();
        assert!(!reached("c", SECOND).await, "it has not been listed");
        world.door.open();
        assert!(reached("c", MINUTE * 2).await);
    }
}

/// A representation that counts the decoded objects.
struct Counting(Arc<AtomicUsize>);

struct CountingDecoder(Arc<AtomicUsize>, ObjectDecoder<ConfigMap>);

impl Representation for Counting {
    type Object = ConfigMap;
    type Decoder = CountingDecoder;

    fn kind(&self) -> ResourceKind {
        ResourceKind::of::<ConfigMap>()
    }

    fn decoder(&self) -> CountingDecoder {
        CountingDecoder(Arc::clone(&self.0), TypedObjects::<ConfigMap>::new().decoder())
    }
}

impl Decoder for CountingDecoder {
    type Object = ConfigMap;

    fn decode(&mut self, raw: &bytes::Bytes) -> Result<ConfigMap, DecodeError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.decode(raw)
    }
}

// parity: server-without-gate-passes
#[tokio::test(start_paused = true)]
async fn object_outside_held_shards_is_neither_decoded_nor_budgeted() {
    for streams in [true, false] {
        let shards = ShardSet::new();
        shards.insert(shard(0), of("a")).unwrap();
        let options =
            FactoryOptions { shards: Some(shards), byte_budget: Some(10_000), ..FactoryOptions::default() };
        let world = world_with(options, false, streams);
        for number in 0..100 {
            world.put("b", &format!("n{number}"), "v");
        }
        let decoded = Arc::new(AtomicUsize::new(0));
        let informer = world.factory.informer(Counting(Arc::clone(&decoded)), Selection::default());
        world.start();
        assert!(informer.synced().await);
        let own = informer.lister().len();
        assert_eq!(decoded.swap(0, Ordering::Relaxed), own, "decoded from the list");
        for round in 0..100 {
            world.put("b", &format!("n{round}"), "w");
            world.put("c", "n", "w");
            world.remove("c", "n");
        }
        let last = world.put("c", "y", "last");
        world.pass(SECOND).await;
        assert_eq!(decoded.load(Ordering::Relaxed), 0, "decoded from the watch");
        assert_eq!(informer.version(), Some(last), "the version advances without decoding");
        world.put("a", "x", "second");
        world.pass(SECOND).await;
        assert_eq!(decoded.load(Ordering::Relaxed), 1);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(usize, u8, u8),
    Remove(usize, u8),
    /// Holds these shards of four from now on.
    Hold(u8),
    /// Divides the hash ring again.
    Divide(u16),
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let namespace = 0..NAMESPACES.len();
    prop_oneof![
        6 => (namespace.clone(), 0u8..4, any::<u8>()).prop_map(|(ns, name, value)| Step::Put(ns, name, value)),
        3 => (namespace, 0u8..4).prop_map(|(ns, name)| Step::Remove(ns, name)),
        3 => (0u8..16).prop_map(Step::Hold),
        1 => (1u16..7).prop_map(Step::Divide),
        4 => prop_oneof![1u16..50, 500u16..30_000].prop_map(Step::Wait),
    ]
}

fn what() -> impl Strategy<Value = FaultAction> {
    prop_oneof![
        Just(FaultAction::RequestLost { silently: false }),
        Just(FaultAction::ResponseLost { silently: false }),
        Just(FaultAction::ResponseDelayed { by_ms: 3000 }),
        Just(FaultAction::TooManyRequests { retry_after_seconds: 2 }),
        Just(FaultAction::InternalError),
        Just(FaultAction::Expired),
        Just(FaultAction::WatchClosed),
        Just(FaultAction::WatchReset),
        Just(FaultAction::WatchExpired),
        Just(FaultAction::WatchStalled),
        Just(FaultAction::WatchDelayed { by_ms: 2000 }),
        Just(FaultAction::EventDuplicated),
        Just(FaultAction::Coalesced { within_ms: 1000 }),
        Just(FaultAction::EndBookmarkMissing),
        Just(FaultAction::StaleReplica),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    (0u64..120_000, 1u64..60_000, 50u16..1000, what()).prop_map(|(from_ms, lasts, permille, action)| Fault {
        from_ms,
        until_ms: from_ms + lasts,
        instance: None,
        resource: None,
        write: None,
        permille,
        action,
    })
}

/// The view of a handler, with the errors in the events that it received.
#[derive(Debug, Default)]
struct View {
    known: BTreeMap<String, String>,
    objections: Vec<String>,
}

impl View {
    fn of(informer: &SharedInformer<ConfigMap>) -> Arc<Mutex<Self>> {
        let view = Arc::<Mutex<Self>>::default();
        let observer = Arc::clone(&view);
        let handler = move |event: &Event<Arc<ConfigMap>>| observer.lock().unwrap().on_event(event);
        informer.add_handler("view", handler).expect("the informer lives");
        view
    }

    fn on_event(&mut self, event: &Event<Arc<ConfigMap>>) {
        let (place, version) = placed(event.object());
        let (known, expected) = match event {
            Event::Added { .. } => (self.known.insert(place, version), false),
            Event::Updated { .. } => (self.known.insert(place, version), true),
            Event::Deleted { .. } => (self.known.remove(&place), true),
        };
        // An object that was created and deleted while this handler was busy can be delivered as a deletion only.
        let gone = matches!(event, Event::Deleted { .. });
        if known.is_some() != expected && !gone {
            self.objections.push(format!("{event:?} was delivered to a handler that knows {known:?}"));
        }
    }
}

/// Returns location and version.
fn placed(map: &ConfigMap) -> (String, String) {
    let meta = &map.metadata;
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    (format!("{}/{}", text(&meta.namespace), text(&meta.name)), text(&meta.resource_version))
}

async fn live_through(steps: Vec<Step>, faults: Vec<Fault>, seed: u64, filters: bool, streams: bool) {
    let shards = ShardSet::new();
    let options = FactoryOptions { shards: Some(shards.clone()), ..FactoryOptions::default() };
    let server = ApiServerOptions { sharded_list_and_watch: filters, ..ApiServerOptions::default() };
    let world = World::before(server, FaultPlan { seed, faults }, options);
    if streams {
        world.door.offer_streams();
    }
    let informer = world.factory.typed::<ConfigMap>();
    let view = View::of(&informer);
    world.start();
    let (mut division, mut holding) = (ShardMap::even(NonZeroU16::new(4).unwrap()), 0);
    for step in steps {
        match step {
            Step::Put(namespace, name, value) => {
                world.put(NAMESPACES[namespace], &format!("n{name}"), &value.to_string());
            }
            Step::Remove(namespace, name) => {
                let (namespace, name) = (NAMESPACES[namespace], format!("n{name}"));
                let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
                world.api.object(&path).into_iter().for_each(|_| world.remove(namespace, &name));
            }
            Step::Wait(millis) => world.pass(Duration::from_millis(millis.into())).await,
            Step::Hold(wanted) => holding = wanted,
            Step::Divide(number) => {
                // Weighted by namespace: each shard gets a namespace if there are enough.
                let weights = NAMESPACES.iter().map(|name| ((*name).to_owned(), 1)).collect();
                division = ShardMap::weighted(NonZeroU16::new(number).unwrap(), &weights).0;
            }
        }
        let held = division.iter().filter(|(it, _)| holding & (1 << it.0) != 0);
        hold(&shards, held.map(|(it, ranges)| (it, ranges.clone())).collect());
    }
    world.pass(MINUTE * 10).await;
    let wanted = |namespace: &str| shards.shard_of(hash(namespace)).is_some();
    let (_, all) = world.api.request(&http::Method::GET, "/api/v1/configmaps", None);
    let all = all["items"].as_array().expect("a list").iter().map(|it| &it["metadata"]);
    let text = |it: &serde_json::Value, field: &str| it[field].as_str().expect("a text").to_owned();
    let expected: BTreeMap<String, String> = all
        .filter(|it| wanted(it["namespace"].as_str().expect("a namespace")))
        .map(|it| (format!("{}/{}", text(it, "namespace"), text(it, "name")), text(it, "resourceVersion")))
        .collect();
    let held: BTreeMap<_, _> = informer.lister().list().iter().map(|map| placed(map)).collect();
    assert_eq!(held, expected, "the cache differs from the server within {shards:?}");
    let view = view.lock().unwrap();
    assert_eq!(view.objections, Vec::<String>::new());
    assert_eq!(view.known, expected, "the handler's view differs from the server");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    // parity: shards-informer
    #[test]
    fn after_any_faults_stop_cache_equals_server_within_held_shards(
        steps in proptest::collection::vec(step(), 0..50),
        faults in proptest::collection::vec(fault(), 0..6),
        seed: u64,
        filters: bool,
        streams: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without input or output");
        runtime.block_on(live_through(steps, faults, seed, filters, streams));
    }
}
