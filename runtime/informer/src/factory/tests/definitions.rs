//! Kinds whose definition comes and goes, and those that must not be read.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use windlass_client::{MissingPermission, RequestError};
use windlass_object::{Rule, Verb};

use super::world::*;
use super::*;
use crate::Event;
use crate::availability::KindAvailability;
use crate::testing::refreshed_within;

type Widgets = SharedInformer<DynamicObject>;

/// Writes down what is told of widgets: `+w`, `~w`, `-w` and why.
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
async fn kind_whose_definition_is_absent_waits_without_failing_or_holding_up_the_rest() {
    let world = World::new();
    let (widgets, maps) =
        (world.factory.informer(widgets(), Selection::default()), world.factory.typed::<ConfigMap>());
    assert_eq!(widgets.presence(), KindAvailability::Unknown);
    world.start();
    world.factory.wait_for_sync(Some(SECOND * 5)).await.expect("nobody waits for what is not there");
    assert!(maps.has_synced() && !widgets.has_synced());
    assert_eq!(widgets.presence(), KindAvailability::Absent);
    let behind = widgets.wait_for_sync(Some(SECOND)).await.unwrap_err();
    assert_eq!(behind.laggards[0].lag, UnsyncedReason::Absent);
    assert!(behind.to_string().contains("is its definition installed"), "{behind}");
    assert!(widgets.is_following() && world.factory.stopped_reflectors().is_empty());
    world.factory.shutdown().await;
}

// parity: kind-polls
#[tokio::test(start_paused = true)]
async fn absent_kind_is_asked_for_at_a_slow_pace_for_ever() {
    let world = World::new();
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    world.pass(MINUTE * 10).await;
    let before = world.requests(Verb::List, "widgets").len();
    world.pass(MINUTE * 60).await;
    let asked = world.requests(Verb::List, "widgets").len() - before;
    assert!((60..=120).contains(&asked), "{asked} times in an hour");
    world.define_widgets();
    world.put_widget("w");
    assert!(widgets.wait_for_sync(Some(MINUTE)).await.is_ok(), "within a minute of its definition");
    assert_eq!((widgets.lister().len(), widgets.presence()), (1, KindAvailability::Served));
}

#[tokio::test(start_paused = true)]
async fn told_that_something_was_done_it_looks_at_once_and_soon_again_if_that_was_too_early() {
    let world = World::new();
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    world.pass(MINUTE * 10).await;
    let before = world.requests(Verb::List, "widgets").len();
    widgets.look_again();
    world.pass(Duration::from_millis(500)).await;
    assert_eq!(world.requests(Verb::List, "widgets").len(), before + 1, "at once, and once");
    world.define_widgets();
    assert!(widgets.wait_for_sync(Some(SECOND * 2)).await.is_ok(), "the ramp started anew");
}

// parity: kind-polls
#[tokio::test(start_paused = true)]
async fn factory_that_follows_definitions_starts_a_kind_the_moment_it_is_installed() {
    let world = World::with(FactoryOptions { follow_definitions: true, ..FactoryOptions::default() });
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    world.pass(MINUTE * 10).await;
    world.define_widgets();
    assert!(widgets.wait_for_sync(Some(SECOND)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn informer_of_definitions_that_somebody_else_asked_for_serves_as_well() {
    let world = World::with(FactoryOptions { follow_definitions: true, ..FactoryOptions::default() });
    world.factory.typed::<CustomResourceDefinition>();
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    world.pass(MINUTE * 10).await;
    assert_eq!(world.factory.kinds().len(), 2, "none was made beside it");
    world.define_widgets();
    assert!(widgets.wait_for_sync(Some(SECOND)).await.is_ok());
}

// parity: crd-absent-start-uninstalled
#[tokio::test(start_paused = true)]
async fn when_a_definition_goes_its_objects_go_and_when_it_returns_handlers_are_told_of_the_new_ones() {
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
        assert_eq!((widgets.presence(), widgets.lister().len()), (KindAvailability::Absent, 0));
        let told = read(&diary);
        assert!(told.len() == 1 && told[0].starts_with("-w "), "{told:?}");
        world.define_widgets();
        let written = world.put_widget("w");
        assert!(VersionSource::reached(&*widgets, written, MINUTE).await);
        world.pass(SECOND).await;
        let told = read(&diary);
        assert!(told.len() == 1 && told[0].starts_with("+w "), "{told:?}");
        assert_eq!((widgets.presence(), widgets.lister().len()), (KindAvailability::Served, 1));
    }
    assert!(widgets.is_following());
}

#[tokio::test(start_paused = true)]
async fn where_lists_come_as_streams_kinds_come_and_go_all_the_same() {
    let world = World::new();
    world.door.offer_streams();
    let widgets = world.factory.informer(widgets(), Selection::default());
    let diary = diary(&widgets);
    world.start();
    world.factory.wait_for_sync(Some(SECOND * 5)).await.expect("nobody waits for what is not there");
    assert_eq!(widgets.presence(), KindAvailability::Absent);
    world.define_widgets();
    world.put_widget("w");
    widgets.look_again();
    assert!(widgets.wait_for_sync(Some(SECOND)).await.is_ok());
    world.undefine_widgets();
    world.pass(MINUTE * 4).await;
    assert_eq!((widgets.presence(), widgets.lister().len()), (KindAvailability::Absent, 0));
    let told = read(&diary);
    assert!(told.len() == 2 && told[1].starts_with("-w "), "{told:?}");
    assert!(world.asked(Verb::Watch, "widgets", "") > 1, "streams were asked for");
}

/// A list, then a watch that ends, then 404 for a while.
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
async fn one_answer_that_a_kind_is_not_served_takes_nothing_away() {
    let (rig, log) = (Rig::new(), Log::default());
    log.attach(&rig.informer, "log");
    let script = Script::new(&rig.env, gone_for(1));
    rig.start(&script);
    rig.env.sleep(LONG).await;
    assert_eq!((log.take(), rig.held()), (vec!["+a@4=v InitialList".to_owned()], vec!["a@4=v".to_owned()]));
}

fn refused() -> RequestError {
    RequestError::ConnectionRefused("nobody listens".to_owned())
}

#[tokio::test(start_paused = true)]
async fn answers_that_a_kind_is_not_served_count_only_if_nothing_else_came_between_them() {
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
        let last = answers.pop().expect("the kind is back");
        answers.extend(between);
        answers.extend([Answer::List(Err(not_found())), last]);
        let script = Script::new(&rig.env, answers);
        rig.start(&script);
        rig.env.sleep(LONG).await;
        let apart: Duration = script.gaps()[2..9].iter().sum();
        assert!(apart > SECOND * 15, "the answers are far apart: {apart:?}");
        assert_eq!(
            (log.take(), rig.held()),
            (vec!["+a@4=v InitialList".to_owned()], vec!["a@4=v".to_owned()])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn fresh_look_is_granted_by_no_failure_but_by_an_answer_and_wakes_a_source_once() {
    for nothing in [not_found as fn() -> RequestError, || refusal(403, "Forbidden")] {
        let rig = Rig::new();
        let mut answers = vec![Answer::List(Err(nothing()))];
        answers.extend((0..3).map(|_| Answer::List(Err(refused()))));
        answers.extend([Answer::List(Err(nothing()))]);
        let script = Script::new(&rig.env, answers);
        rig.start(&script);
        rig.settle().await;
        let soon = Duration::from_millis(400);
        assert!(!refreshed_within(&rig.env, &*rig.informer, soon).await, "nobody has answered");
        assert_eq!(script.asked().len(), 2, "it was asked at once, and then not without a wait");
        assert!(refreshed_within(&rig.env, &*rig.informer, MINUTE).await, "somebody has");
        assert_eq!(script.asked().len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn informer_of_definitions_tells_of_all_it_sees_from_the_moment_others_can_find_it() {
    let world = World::new();
    let widgets = world.factory.informer(widgets(), Selection::default());
    let inner = &world.factory.inner;
    inner.lock().informer(
        inner,
        Codec::of(crate::factory::definitions::representation()),
        Selection::default(),
        None,
    );
    world.start();
    world.pass(MINUTE * 10).await;
    world.define_widgets();
    assert!(widgets.wait_for_sync(Some(SECOND)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_was_let_go_is_not_taken_to_be_up_to_date_until_it_was_listed_again() {
    let (rig, log) = (Rig::new(), Log::default());
    log.attach(&rig.informer, "log");
    let script = Script::new(&rig.env, gone_for(8));
    rig.start(&script);
    rig.env.sleep(MINUTE).await;
    assert_eq!(log.take(), ["+a@4=v InitialList", "-a@4=v Relist Inferred"]);
    assert!(rig.informer.has_synced() && rig.held().is_empty());
    assert!(!VersionSource::reached(&*rig.informer, at(4), SECOND).await, "an empty cache proves nothing");
    rig.env.sleep(LONG).await;
    assert_eq!(log.take(), ["+a@4=v Relist"]);
    assert!(VersionSource::reached(&*rig.informer, at(9), SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn of_an_absent_kind_a_fresh_look_needs_no_list_but_an_answer() {
    let world = World::new();
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    world.pass(MINUTE * 10).await;
    let began = world.env.now();
    assert!(refreshed_within(&world.env, &*widgets, MINUTE).await);
    assert!(world.env.now().saturating_duration_since(began) < SECOND, "a takeover is not held up by it");
}

#[tokio::test(start_paused = true)]
async fn of_a_kind_whose_definition_went_a_fresh_look_is_granted_once_its_objects_are_gone_too() {
    let world = World::new();
    world.define_widgets();
    world.put_widget("w");
    let widgets = world.factory.informer(widgets(), Selection::default());
    world.start();
    assert!(widgets.wait_for_sync(Some(MINUTE)).await.is_ok());
    world.undefine_widgets();
    assert!(
        !refreshed_within(&world.env, &*widgets, SECOND).await,
        "it may be for a moment, and the object is held"
    );
    assert_eq!(widgets.lister().len(), 1);
    assert!(refreshed_within(&world.env, &*widgets, MINUTE).await);
    assert_eq!((widgets.lister().len(), widgets.presence()), (0, KindAvailability::Absent));
    world.define_widgets();
    world.put_widget("again");
    assert!(
        refreshed_within(&world.env, &*widgets, MINUTE).await,
        "a look by request is not held up by the slow pace"
    );
    assert_eq!(widgets.lister().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_a_kind_that_was_never_to_be_read_a_fresh_look_needs_no_list_but_a_refusal() {
    let world = World::new();
    world.door.shut(Verb::List, "configmaps", None);
    let maps = world.factory.typed::<ConfigMap>();
    world.start();
    world.pass(MINUTE * 10).await;
    let began = world.env.now();
    assert!(refreshed_within(&world.env, &*maps, MINUTE).await);
    assert!(world.env.now().saturating_duration_since(began) < SECOND, "a takeover is not held up by it");
    assert!(matches!(maps.presence(), KindAvailability::Forbidden(_)));
}

#[tokio::test(start_paused = true)]
async fn of_a_kind_that_must_not_be_read_any_more_no_refusal_makes_what_is_held_fresh() {
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
    assert!(!refreshed_within(&world.env, &*maps, MINUTE * 5).await, "nobody knows what became of it");
    assert!(matches!(maps.presence(), KindAvailability::Forbidden(_)));
    assert_eq!(held(&maps).len(), 1, "it is served as it was");
    world.door.open();
    assert!(refreshed_within(&world.env, &*maps, MINUTE * 2).await);
    assert_eq!(held(&maps), ["a/x=third"]);
}

// parity: missing-right-blocks-everything
#[tokio::test(start_paused = true)]
async fn missing_right_blocks_only_its_own_informer_and_is_told_as_the_rule_to_add() {
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
    assert_eq!(behind.laggards.len(), 1);
    assert_eq!(behind.laggards[0].lag, UnsyncedReason::Forbidden(denial.clone()));
    assert_eq!(secrets.presence(), KindAvailability::Forbidden(denial.clone()));
    let rule = r#"- { apiGroups: [""], resources: ["secrets"], verbs: [list, watch] }"#;
    assert_eq!(denial.rule.to_yaml(), rule);
    assert_eq!(denial.to_string(), format!("may not list secrets; add to a cluster role: {rule}"));
    maps.wait_for_sync(Some(SECOND)).await.expect("the others go on");
    world.door.shut(Verb::List, "secrets", Some("a"));
    let one = world.factory.informer(Typed::<Secret>::new(), Selection::in_namespace("a"));
    world.pass(SECOND).await;
    let KindAvailability::Forbidden(denial) = one.presence() else { panic!("{:?}", one.presence()) };
    assert!(denial.to_string().contains("in namespace a; add to a role there"), "{denial}");
    let before = world.env.now();
    world.door.open();
    secrets.wait_for_sync(Some(MINUTE)).await.expect("it recovers by itself");
    assert!(world.env.now() > before, "at its own pace");
}

#[tokio::test(start_paused = true)]
async fn told_of_a_new_role_a_forbidden_informer_looks_at_once() {
    let world = World::new();
    world.door.shut(Verb::List, "secrets", None);
    let secrets = world.factory.typed::<Secret>();
    world.start();
    world.pass(MINUTE * 10).await;
    world.door.open();
    secrets.look_again();
    secrets.wait_for_sync(Some(SECOND)).await.expect("at once");
}

#[tokio::test(start_paused = true)]
async fn watch_that_is_forbidden_is_told_although_lists_are_not() {
    let world = World::new();
    world.door.shut(Verb::Watch, "secrets", None);
    let secrets = world.factory.typed::<Secret>();
    world.start();
    world.pass(MINUTE).await;
    assert!(secrets.has_synced());
    assert!(matches!(
        secrets.presence(),
        KindAvailability::Forbidden(MissingPermission { verb: Verb::Watch, .. })
    ));
    world.door.open();
    world.pass(MINUTE * 2).await;
    assert_eq!(secrets.presence(), KindAvailability::Served);
}
