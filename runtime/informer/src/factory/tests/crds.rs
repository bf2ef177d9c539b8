//! Kinds whose CRD is installed and deleted, and kinds that the client is not permitted to read.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use windlass_client::{MissingPermission, RequestError};
use windlass_object::{Rule, TypedObjects, Verb};

use super::world::*;
use super::*;
use crate::Event;
use crate::availability::KindAvailability;
use crate::testing::relisted_within;

type Widgets = SharedInformer<DynamicObject>;

/// Records the events of widgets: `+w`, `~w` or `-w`, with the cause.
fn diary(informer: &Widgets) -> Arc<Mutex<Vec<String>>> {
    let diary = Arc::new(Mutex::new(Vec::new()));
    let writer = Arc::clone(&diary);
    let write = move |event: &Event<Arc<DynamicObject>>| {
        let sign = match event {
            Event::Added { .. } => "+",
            Event::Updated { .. } => "~",
            Event::Deleted { .. } => "-",
        };
        let name = event.object().metadata.name.clone().unwrap_or_default();
        writer.lock().unwrap().push(format!("{sign}{name} {:?}", event.cause()));
    };
    informer.add_handler("diary", write).expect("it lives");
    diary
}

fn read(diary: &Mutex<Vec<String>>) -> Vec<String> {
    std::mem::take(&mut *diary.lock().unwrap())
}

// parity: kind-polls
#[tokio::test(start_paused = true)]
async fn kind_without_crd_waits_without_blocking_other_kinds() {
    let world = World::new();
    let (widgets, maps) =
        (world.factory.informer(widgets(), Selection::default()), world.factory.typed::<ConfigMap>());
    assert_eq!(widgets.availability(), KindAvailability::Unknown);
    world.start();
    world.factory.wait_for_sync(Some(SECOND * 5)).await.expect("an absent kind is not waited for");
    assert!(maps.has_synced() && !widgets.has_synced());
    assert_eq!(widgets.availability(), KindAvailability::Absent);
    let behind = widgets.wait_for_sync(Some(SECOND)).await.unwrap_err();
    assert_eq!(behind.unsynced[0].reason, UnsyncedReason::Absent);
    assert!(behind.to_string().contains("check that its CRD is installed"), "{behind}");
    assert!(widgets.is_following() && world.factory.dead_informers().is_empty());
    world.factory.shutdown().await;
}

// parity: kind-polls
#[tokio::test(start_paused = true)]
async fn absent_kind_is_retried_about_once_a_minute() {
    let world = World::new();
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    world.pass(MINUTE * 10).await;
    let before = world.requests(Verb::List, "widgets").len();
    world.pass(MINUTE * 60).await;
    let asked = world.requests(Verb::List, "widgets").len() - before;
    assert!((60..=120).contains(&asked), "{asked} requests in an hour");
    world.define_widgets();
    world.put_widget("w");
    assert!(widgets.wait_for_sync(Some(MINUTE)).await.is_ok(), "within a minute after its CRD was installed");
    assert_eq!((widgets.lister().len(), widgets.availability()), (1, KindAvailability::Served));
}

#[tokio::test(start_paused = true)]
async fn recheck_of_absent_kind_lists_immediately_and_resets_backoff() {
    let world = World::new();
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    world.pass(MINUTE * 10).await;
    let before = world.requests(Verb::List, "widgets").len();
    widgets.recheck();
    world.pass(Duration::from_millis(500)).await;
    assert_eq!(world.requests(Verb::List, "widgets").len(), before + 1, "immediately, and once");
    world.define_widgets();
    assert!(widgets.wait_for_sync(Some(SECOND * 2)).await.is_ok(), "the backoff was reset");
}

// parity: kind-polls
#[tokio::test(start_paused = true)]
async fn factory_following_crds_lists_kind_when_it_is_installed() {
    let world = World::with(FactoryOptions { watch_crds: true, ..FactoryOptions::default() });
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    world.pass(MINUTE * 10).await;
    world.define_widgets();
    assert!(widgets.wait_for_sync(Some(SECOND)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn existing_crd_informer_is_reused_to_follow_crds() {
    let world = World::with(FactoryOptions { watch_crds: true, ..FactoryOptions::default() });
    world.factory.typed::<CustomResourceDefinition>();
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    world.pass(MINUTE * 10).await;
    assert_eq!(world.factory.kinds().len(), 2, "no second CRD informer was created");
    world.define_widgets();
    assert!(widgets.wait_for_sync(Some(SECOND)).await.is_ok());
}

// parity: crd-absent-start-uninstalled
#[tokio::test(start_paused = true)]
async fn objects_are_removed_with_their_crd_and_added_when_it_returns() {
    let world = World::new();
    world.define_widgets();
    world.put_widget("w");
    let widgets = world.factory.informer(widgets(), Selection::default());
    let diary = diary(&widgets);
    world.start();
    world.factory.wait_for_sync(Some(MINUTE)).await.expect("synced");
    world.pass(SECOND).await;
    assert_eq!(read(&diary), ["+w InitialList"]);
    for _ in 0..2 {
        world.undefine_widgets();
        assert_eq!(code(&world, "/apis/example.com/v1/widgets"), 404);
        world.pass(MINUTE * 4).await;
        assert_eq!((widgets.availability(), widgets.lister().len()), (KindAvailability::Absent, 0));
        let events = read(&diary);
        assert!(events.len() == 1 && events[0].starts_with("-w "), "{events:?}");
        world.define_widgets();
        let written = world.put_widget("w");
        assert!(VersionedCache::wait_for_version(&*widgets, written, MINUTE).await);
        world.pass(SECOND).await;
        assert_eq!(read(&diary), ["+w Relist"]);
        assert_eq!((widgets.availability(), widgets.lister().len()), (KindAvailability::Served, 1));
    }
    assert!(widgets.is_following());
}

#[tokio::test(start_paused = true)]
async fn crd_changes_are_followed_with_streaming_lists() {
    let world = World::new();
    world.door.offer_streams();
    let widgets = world.factory.informer(widgets(), Selection::default());
    let diary = diary(&widgets);
    world.start();
    world.factory.wait_for_sync(Some(SECOND * 5)).await.expect("an absent kind is not waited for");
    assert_eq!(widgets.availability(), KindAvailability::Absent);
    world.define_widgets();
    world.put_widget("w");
    widgets.recheck();
    assert!(widgets.wait_for_sync(Some(SECOND)).await.is_ok());
    world.undefine_widgets();
    world.pass(MINUTE * 4).await;
    assert_eq!((widgets.availability(), widgets.lister().len()), (KindAvailability::Absent, 0));
    let events = read(&diary);
    assert!(events.len() == 2 && events[1].starts_with("-w "), "{events:?}");
    assert!(world.asked(Verb::Watch, "widgets", "") > 1, "streams were requested");
}

/// Returns a list, then a watch that fails, then `lists` 404 responses.
fn gone_for(lists: usize) -> Vec<Answer> {
    let lost = Answer::Watch(Ok(vec![Play::Fail(refusal(500, "StoreReadError"))]));
    let mut answers = vec![Answer::List(Ok(page(5, &[object("a", "u", 4, "v")]))), lost];
    answers.extend((0..lists).map(|_| Answer::List(Err(not_found()))));
    answers.push(Answer::List(Ok(page(9, &[object("a", "u", 4, "v")]))));
    answers
}

fn not_found() -> RequestError {
    refusal(404, "NotFound")
}

// parity: crd-absent-start-uninstalled
#[tokio::test(start_paused = true)]
async fn single_not_found_response_removes_no_objects() {
    let (rig, log) = (Rig::new(), Log::default());
    log.attach(&rig.informer, "log");
    let script = Script::new(&rig.env, gone_for(1));
    rig.start(&script);
    rig.env.sleep(LONG).await;
    assert_eq!((log.take(), rig.held()), (vec!["+a@4=v InitialList".to_owned()], vec!["a@4=v".to_owned()]));
}

fn refused() -> RequestError {
    RequestError::ConnectionRefused("connection refused".to_owned())
}

#[tokio::test(start_paused = true)]
async fn not_found_responses_count_only_without_other_results_between() {
    let pages = |error: fn() -> RequestError| (0..6).map(|_| Answer::List(Err(error()))).collect::<Vec<_>>();
    let others: [Vec<Answer>; 3] = [
        pages(refused),
        pages(|| refusal(503, "ServiceUnavailable")),
        (0..6).map(|_| Answer::Stream(Err(refused()))).collect(),
    ];
    for between in others {
        let (rig, log) = (Rig::new(), Log::default());
        log.attach(&rig.informer, "log");
        let mut answers = gone_for(1);
        let last = answers.pop().expect("the kind is served again");
        answers.extend(between);
        answers.extend([Answer::List(Err(not_found())), last]);
        let script = Script::new(&rig.env, answers);
        rig.start(&script);
        rig.env.sleep(LONG).await;
        let apart: Duration = script.gaps()[2..9].iter().sum();
        assert!(apart > SECOND * 15, "the 404 responses are far apart: {apart:?}");
        assert_eq!(
            (log.take(), rig.held()),
            (vec!["+a@4=v InitialList".to_owned()], vec!["a@4=v".to_owned()])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_of_absent_kind_needs_a_response_and_retries_once() {
    for nothing in [not_found as fn() -> RequestError, || refusal(403, "Forbidden")] {
        let rig = Rig::new();
        let mut answers = vec![Answer::List(Err(nothing()))];
        answers.extend((0..3).map(|_| Answer::List(Err(refused()))));
        answers.extend([Answer::List(Err(nothing()))]);
        let script = Script::new(&rig.env, answers);
        rig.start(&script);
        rig.settle().await;
        let soon = Duration::from_millis(400);
        assert!(!relisted_within(&rig.env, &*rig.informer, soon).await, "no source has responded");
        assert_eq!(script.asked().len(), 2, "one immediate request, and the next one after a backoff");
        assert!(relisted_within(&rig.env, &*rig.informer, MINUTE).await, "the source has responded");
        assert_eq!(script.asked().len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn crd_informer_is_linked_before_other_callers_can_start_it() {
    let world = World::new();
    let widgets = world.factory.informer(widgets(), Selection::default());
    let inner = &world.factory.inner;
    inner.lock().get_or_insert(
        inner,
        Codec::of(crate::factory::crds::representation()),
        Selection::default(),
        None,
    );
    world.start();
    world.pass(MINUTE * 10).await;
    world.define_widgets();
    assert!(widgets.wait_for_sync(Some(SECOND)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn emptied_cache_is_not_up_to_date_until_it_is_listed_again() {
    let (rig, log) = (Rig::new(), Log::default());
    log.attach(&rig.informer, "log");
    let script = Script::new(&rig.env, gone_for(8));
    rig.start(&script);
    rig.env.sleep(MINUTE).await;
    assert_eq!(log.take(), ["+a@4=v InitialList", "-a@4=v Relist Inferred"]);
    assert!(rig.informer.has_synced() && rig.held().is_empty());
    assert!(
        !VersionedCache::wait_for_version(&*rig.informer, at(4), SECOND).await,
        "an empty cache does not prove the version"
    );
    rig.env.sleep(LONG).await;
    assert_eq!(log.take(), ["+a@4=v Relist"]);
    assert!(VersionedCache::wait_for_version(&*rig.informer, at(9), SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_of_absent_kind_is_done_after_a_response() {
    let world = World::new();
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    world.pass(MINUTE * 10).await;
    let began = world.env.now();
    assert!(relisted_within(&world.env, &*widgets, MINUTE).await);
    assert!(world.env.now().saturating_duration_since(began) < SECOND, "it does not delay a takeover");
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_of_deleted_kind_is_done_after_its_removal() {
    let world = World::new();
    world.define_widgets();
    world.put_widget("w");
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    assert!(widgets.wait_for_sync(Some(MINUTE)).await.is_ok());
    world.undefine_widgets();
    assert!(
        !relisted_within(&world.env, &*widgets, SECOND).await,
        "the 404 might be temporary, and the object is still stored"
    );
    assert_eq!(widgets.lister().len(), 1);
    assert!(relisted_within(&world.env, &*widgets, MINUTE).await);
    assert_eq!((widgets.lister().len(), widgets.availability()), (0, KindAvailability::Absent));
    world.define_widgets();
    world.put_widget("again");
    assert!(
        relisted_within(&world.env, &*widgets, MINUTE).await,
        "a requested relist is not delayed by the slow retry interval"
    );
    assert_eq!(widgets.lister().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_of_forbidden_empty_kind_is_done_after_denial() {
    let world = World::new();
    world.door.shut(Verb::List, "configmaps", None);
    let maps = world.factory.typed::<ConfigMap>();
    world.start();
    world.pass(MINUTE * 10).await;
    let began = world.env.now();
    assert!(relisted_within(&world.env, &*maps, MINUTE).await);
    assert!(world.env.now().saturating_duration_since(began) < SECOND, "it does not delay a takeover");
    assert!(matches!(maps.availability(), KindAvailability::Forbidden(_)));
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_of_stored_objects_is_not_done_by_a_denial() {
    let world = World::new();
    world.put("a", "x", "first");
    let maps = world.factory.typed::<ConfigMap>();
    world.start();
    assert!(maps.wait_for_sync(Some(MINUTE)).await.is_ok());
    for verb in [Verb::List, Verb::Watch] {
        world.door.shut(verb, "configmaps", None);
    }
    world.put("a", "x", "second");
    world.put("a", "x", "third");
    assert!(!relisted_within(&world.env, &*maps, MINUTE * 5).await, "the state of the object is unknown");
    assert!(matches!(maps.availability(), KindAvailability::Forbidden(_)));
    assert_eq!(held(&maps).len(), 1, "the previous state stays served");
    world.door.open();
    assert!(relisted_within(&world.env, &*maps, MINUTE * 2).await);
    assert_eq!(held(&maps), ["a/x=third"]);
}

// parity: missing-right-blocks-everything
#[tokio::test(start_paused = true)]
async fn missing_permission_blocks_only_its_informer_and_names_the_rule() {
    let world = World::new();
    world.door.shut(Verb::List, "secrets", None);
    let (secrets, maps) = (world.factory.typed::<Secret>(), world.factory.typed::<ConfigMap>());
    world.start();
    let behind = world.factory.wait_for_sync(Some(SECOND * 5)).await.unwrap_err();
    let denial = MissingPermission {
        user: None,
        verb: Verb::List,
        namespace: None,
        rule: Rule::new("", "secrets", [Verb::List, Verb::Watch]),
    };
    assert_eq!(behind.unsynced.len(), 1);
    assert_eq!(behind.unsynced[0].reason, UnsyncedReason::Forbidden(denial.clone()));
    assert_eq!(secrets.availability(), KindAvailability::Forbidden(denial.clone()));
    let rule = r#"- { apiGroups: [""], resources: ["secrets"], verbs: [list, watch] }"#;
    assert_eq!(denial.rule.to_yaml(), rule);
    assert_eq!(denial.to_string(), format!("the process cannot list secrets; add to a ClusterRole: {rule}"));
    maps.wait_for_sync(Some(SECOND)).await.expect("the other informers continue");
    world.door.shut(Verb::List, "secrets", Some("a"));
    let one = world.factory.informer(TypedObjects::<Secret>::new(), Selection::in_namespace("a"));
    world.pass(SECOND).await;
    let KindAvailability::Forbidden(denial) = one.availability() else { panic!("{:?}", one.availability()) };
    assert!(denial.to_string().contains("in namespace a; add to a Role in a"), "{denial}");
    let before = world.env.now();
    world.door.open();
    secrets.wait_for_sync(Some(MINUTE)).await.expect("it recovers automatically");
    assert!(world.env.now() > before, "after its retry interval");
}

#[tokio::test(start_paused = true)]
async fn recheck_of_forbidden_informer_lists_immediately() {
    let world = World::new();
    world.door.shut(Verb::List, "secrets", None);
    let secrets = world.factory.typed::<Secret>();
    world.start();
    world.pass(MINUTE * 10).await;
    world.door.open();
    secrets.recheck();
    secrets.wait_for_sync(Some(SECOND)).await.expect("synced immediately");
}

#[tokio::test(start_paused = true)]
async fn forbidden_watch_is_reported_even_if_lists_are_permitted() {
    let world = World::new();
    world.door.shut(Verb::Watch, "secrets", None);
    let secrets = world.factory.typed::<Secret>();
    world.start();
    world.pass(MINUTE).await;
    assert!(secrets.has_synced());
    assert!(matches!(
        secrets.availability(),
        KindAvailability::Forbidden(MissingPermission { verb: Verb::Watch, .. })
    ));
    world.door.open();
    world.pass(MINUTE * 2).await;
    assert_eq!(secrets.availability(), KindAvailability::Served);
}
