//! What runs beside the controllers.

use std::sync::{Mutex, PoisonError};

use windlass_controller::{Declaration, UNDECLARED};

use super::*;
use crate::{AddError, Runnable, RunnableContext, RunnableError, RunnableGroup, declaring, runnable};

/// What happened, in order.
#[derive(Clone, Default)]
struct Story(Arc<Mutex<Vec<String>>>);

impl Story {
    fn tell(&self, what: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what.into());
    }

    fn told(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tells(&self, what: &str) -> bool {
        self.told().iter().any(|told| told == what)
    }
}

/// Says when it starts, and when it ends because it was told to.
fn diarist(name: &'static str, group: RunnableGroup, story: &Story) -> impl Runnable + use<> {
    let story = story.clone();
    runnable(name, group, move |cx| {
        let story = story.clone();
        async move {
            story.tell(format!("{name} starts"));
            cx.stopped().await;
            story.tell(format!("{name} ends"));
            Ok(())
        }
    })
}

impl World {
    fn manager_of_scribe(&self, identity: &str) -> (Env, Manager) {
        let env = self.env.incarnation(identity, 0);
        let config =
            ManagerConfig { shutdown_timeout: Duration::from_secs(30), ..ManagerConfig::new(identity) };
        let manager = self.manager(&env, config).register(Registration::of::<Scribe>());
        (env, manager)
    }

    fn start_manager(&self, (env, manager): (Env, Manager)) -> Replica {
        let (trigger, signals) = ShutdownSignals::manual();
        let (health, metrics) = (manager.health().clone(), manager.metrics().clone());
        let run = self.env.spawn("manager", manager.run(signals));
        Replica { env, health, metrics, trigger, run }
    }
}

#[tokio::test(start_paused = true)]
async fn runnables_start_in_the_place_of_their_group_and_end_in_the_reverse_order() {
    let world = World::new();
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("one");
    let manager = manager
        .add(diarist("leading", RunnableGroup::Leader, &story))
        .add(diarist("everywhere", RunnableGroup::EveryReplica, &story))
        .add(diarist("early", RunnableGroup::BeforeCaches, &story));
    let one = world.start_manager((env, manager));
    world.pass(5).await;
    assert_eq!(story.told(), ["early starts", "everywhere starts", "leading starts"]);
    assert_eq!(world.scribbled(), json!(begun_by("one")), "and the controllers work");
    one.trigger.fire();
    world.pass(1).await;
    assert!(!story.tells("leading ends"), "a reconcile still runs, and may rely on it");
    assert!(one.ended().await.is_ok());
    assert_eq!(story.told()[3..], ["leading ends", "everywhere ends", "early ends"]);
    assert_eq!(world.holder(), json!(""));
}

#[tokio::test(start_paused = true)]
async fn a_standby_runs_what_needs_no_leadership_and_nothing_else() {
    let world = World::new();
    let one = world.start("one");
    world.pass(5).await;
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("two");
    let manager = manager.add(diarist("leading", RunnableGroup::default(), &story)).add(diarist(
        "everywhere",
        RunnableGroup::EveryReplica,
        &story,
    ));
    let two = world.start_manager((env, manager));
    world.pass(5).await;
    assert_eq!(story.told(), ["everywhere starts"]);
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
    assert_eq!(story.told(), ["everywhere starts", "everywhere ends"]);
    one.stops().await;
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_is_added_later_starts_at_once_if_its_step_has_been_reached_and_in_its_place_otherwise()
 {
    let world = World::new();
    let one = world.start("one");
    world.pass(5).await;
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("two");
    let handle = manager.handle();
    let two = world.start_manager((env, manager));
    world.pass(5).await;
    handle.add(diarist("everywhere", RunnableGroup::EveryReplica, &story)).expect("it runs");
    handle.add(diarist("leading", RunnableGroup::Leader, &story)).expect("it waits");
    world.pass(1).await;
    assert_eq!(story.told(), ["everywhere starts"]);
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    world.pass(5).await;
    assert_eq!(story.told(), ["everywhere starts", "leading starts"]);
    handle.add(diarist("late", RunnableGroup::Leader, &story)).expect("this replica leads");
    world.pass(1).await;
    assert!(story.tells("late starts"));
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
    assert!(story.tells("late ends"));
}

#[tokio::test(start_paused = true)]
async fn runnable_is_rejected_when_it_is_added_while_the_manager_stops() {
    let world = World::new();
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("one");
    let handle = manager.handle();
    let one = world.start_manager((env, manager));
    world.pass(5).await;
    one.trigger.fire();
    world.pass(1).await;
    for group in [RunnableGroup::BeforeCaches, RunnableGroup::EveryReplica, RunnableGroup::Leader] {
        let late = handle.add(diarist("late", group, &story));
        assert_eq!(late, Err(AddError::Stopping { name: "late".to_owned() }));
    }
    assert!(one.ended().await.is_ok());
    let late = handle.add(diarist("late", RunnableGroup::EveryReplica, &story));
    assert_eq!(late, Err(AddError::Stopping { name: "late".to_owned() }));
    assert_eq!(story.told(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_first_error_of_a_runnable_ends_the_manager_in_order_and_is_told_with_its_name() {
    let panics = |_: RunnableContext| async { panic!("boom") };
    for group in [RunnableGroup::BeforeCaches, RunnableGroup::EveryReplica, RunnableGroup::Leader] {
        for panicking in [false, true] {
            let world = World::new();
            let (env, manager) = world.manager_of_scribe("one");
            let fails = |cx: RunnableContext| async move {
                cx.env().sleep(Duration::from_secs(5)).await;
                Err(RunnableError::from("no more"))
            };
            let manager = match panicking {
                true => manager.add(runnable("fragile", group, panics)),
                false => manager.add(runnable("fragile", group, fails)),
            };
            let one = world.start_manager((env, manager));
            let end = one.ended().await.expect_err("it ends the manager").to_string();
            let why = if panicking { "it panicked: boom" } else { "no more" };
            assert_eq!(end, format!("the runnable fragile failed: {why}"));
            if !panicking {
                assert_eq!(world.scribbled(), json!(done_by("one")), "what was begun came to its end");
                assert_eq!(world.holder(), json!(""), "and the lease was released");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_has_done_its_work_ends_nobody_else() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let one = world
        .start_manager((env, manager.add(runnable("brief", RunnableGroup::Leader, |_| async { Ok(()) }))));
    world.pass(60).await;
    assert!(!one.run.is_finished());
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_end_within_the_shutdown_timeout_is_aborted_and_named_and_its_lease_is_left_to_expire()
 {
    for (group, holder) in [(RunnableGroup::Leader, "one"), (RunnableGroup::EveryReplica, "")] {
        let world = World::new();
        let env = world.env.incarnation("one", 0);
        let config = ManagerConfig { shutdown_timeout: Duration::from_secs(3), ..ManagerConfig::new("one") };
        let stubborn = runnable("stubborn", group, |_| async { std::future::pending().await });
        let manager = world.manager(&env, config).add(stubborn);
        let one = world.start_manager((env, manager));
        world.pass(5).await;
        let begun = world.env.now();
        one.trigger.fire();
        let end = one.ended().await.expect_err("it did not end");
        assert!(end.to_string().ends_with("told to stop: stubborn"), "{end}");
        assert!(since(&world.env, begun) < Duration::from_secs(4));
        assert_eq!(world.holder(), json!(holder), "whoever needed the lease may have a write on its way");
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_signal_ends_runnables_at_once() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let stubborn =
        runnable("stubborn", RunnableGroup::EveryReplica, |_| async { std::future::pending().await });
    let one = world.start_manager((env, manager.add(stubborn)));
    world.pass(5).await;
    let begun = world.env.now();
    one.trigger.fire();
    one.trigger.fire();
    assert!(matches!(one.ended().await, Err(ManagerError::Aborted)));
    assert!(since(&world.env, begun) < Duration::from_millis(10));
}

/// Is ready after so many seconds.
struct Slow(u64);

#[async_trait::async_trait]
impl Runnable for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn group(&self) -> RunnableGroup {
        RunnableGroup::BeforeCaches
    }

    fn says_when_ready(&self) -> bool {
        true
    }

    async fn run(&self, cx: RunnableContext) -> Result<(), RunnableError> {
        cx.env().sleep(Duration::from_secs(self.0)).await;
        cx.ready();
        cx.stopped().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn caches_wait_for_all_that_must_be_ready_before_them_each_in_its_time() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let one = world.start_manager((env, manager.add(Slow(3)).add(Slow(0)).add(Slow(1))));
    let listed = || world.api.sent().iter().any(|asked| asked.resource == "configmaps");
    world.pass(2).await;
    assert!(!listed() && !one.ready());
    world.pass(2).await;
    assert!(listed() && one.ready());
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

/// Writes every second until it is refused, and says what of.
fn writer(group: RunnableGroup, story: &Story) -> impl Runnable + use<> {
    let story = story.clone();
    runnable("writer", group, move |cx| {
        let story = story.clone();
        async move {
            let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "shop");
            while !cx.is_stopped() {
                let patch = Patch::Merge(json!({ "data": { "writer": cx.env().instance() } }));
                if let Err(error) = maps.patch("web", &PatchParams::default(), &patch).await {
                    story.tell(error.to_string());
                }
                cx.env().sleep(Duration::from_secs(1)).await;
            }
            Ok(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn what_declares_its_requests_sends_no_other_and_is_told_with_the_controllers() {
    let world = World::new();
    let (first, second) = (Story::default(), Story::default());
    let (env, manager) = world.manager_of_scribe("one");
    let declared =
        |name, verb| Declaration::new(Descriptor::new(name), [Rule::new("", "configmaps", [verb])]);
    let everywhere = |story| writer(RunnableGroup::EveryReplica, story);
    let manager = manager
        .add(declaring(declared("patcher", Verb::Patch), everywhere(&first)))
        .add(declaring(declared("reader", Verb::Get), everywhere(&second)))
        .with_registry(Registry::new());
    let told = manager.registry().declarations_for(&env, &ManagerConfig::new("one")).expect("declared");
    let names: Vec<_> = told.iter().map(|one| one.descriptor.name).collect();
    assert_eq!(names, ["patcher", "reader", "leader-election"]);
    assert_eq!(told[0].rules, [Rule::new("", "configmaps", [Verb::Patch])]);
    assert_eq!(manager.registry().declarations(&env).expect("declared").len(), 3);

    let one = world.start_manager((env, manager));
    world.pass(5).await;
    assert_eq!(first.told(), Vec::<String>::new());
    let refused = second.told();
    assert!(
        refused[0].contains("patch on \"configmaps\"") && refused[0].contains("not declared"),
        "{refused:?}"
    );
    let patches = world.api.sent().into_iter().filter(|asked| asked.verb == Some(Verb::Patch));
    assert!(patches.count() > 0, "the one that declared it writes");
    let counted =
        format!(r#"{UNDECLARED}{{controller="reader",group="",resource="configmaps",verb="patch"}}"#);
    assert!(one.metrics.encode().contains(&counted), "what is refused is counted");
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_needs_leadership_writes_behind_the_fence_and_what_does_not_writes_from_every_replica() {
    let world = World::new();
    let one = world.start("one");
    world.pass(15).await;
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("two");
    let two = world.start_manager((env, manager.add(writer(RunnableGroup::EveryReplica, &story))));
    world.pass(5).await;
    let map = world.api.object(MAP).expect("the map");
    assert_eq!((&map["data"]["writer"], world.holder()), (&json!("two"), json!("one")));
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
    one.stops().await;

    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let one = world.start_manager((env, manager.add(writer(RunnableGroup::Leader, &story))));
    world.pass(5).await;
    assert_eq!(story.told(), Vec::<String>::new());
    world.api.put(LEASE, json!({ "spec": { "holderIdentity": "other" } }));
    assert!(matches!(one.ended().await, Err(ManagerError::LeaseLost { .. })));
    let writes = world.work();
    world.pass(60).await;
    assert_eq!(world.work(), writes, "it was stopped with the lease");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_comes_of_being_told_to_stop_does_not_spoil_an_orderly_end() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let hurt = runnable("hurt", RunnableGroup::EveryReplica, |cx| async move {
        cx.stopped().await;
        cx.env().sleep(Duration::from_secs(2)).await;
        Err(RunnableError::from("cancelled"))
    });
    let one = world.start_manager((env, manager.add(hurt)));
    world.pass(20).await;
    let begun = world.env.now();
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    let waited = since(&world.env, begun);
    assert!(waited >= Duration::from_secs(2) && waited < Duration::from_secs(3), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn with_a_shutdown_timeout_of_zero_runnables_are_waited_for_without_end() {
    let world = World::new();
    let env = world.env.incarnation("one", 0);
    let config = ManagerConfig { shutdown_timeout: Duration::ZERO, ..ManagerConfig::new("one") };
    let slow = runnable("slow", RunnableGroup::Leader, |cx| async move {
        cx.stopped().await;
        cx.env().sleep(Duration::from_secs(3600)).await;
        Ok(())
    });
    let manager = world.manager(&env, config).add(slow);
    let one = world.start_manager((env, manager));
    world.pass(5).await;
    one.trigger.fire();
    world.pass(3000).await;
    assert_eq!(world.holder(), json!("one"), "renewed all the while");
    assert!(one.ended().await.is_ok());
    assert_eq!(world.holder(), json!(""));
}

#[tokio::test(start_paused = true)]
async fn what_ended_the_work_is_told_before_what_did_not_stop_after_it() {
    let world = World::new();
    let env = world.env.incarnation("one", 0);
    let config = ManagerConfig { shutdown_timeout: Duration::from_secs(3), ..ManagerConfig::new("one") };
    let fails = runnable("fails", RunnableGroup::Leader, |cx| async move {
        cx.env().sleep(Duration::from_secs(1)).await;
        Err(RunnableError::from("no more"))
    });
    let stubborn = runnable("stubborn", RunnableGroup::Leader, |_| async { std::future::pending().await });
    let manager = world.manager(&env, config).add(stubborn).add(fails);
    let end = world.start_manager((env, manager)).ended().await.expect_err("it failed");
    assert_eq!(end.to_string(), "the runnable fails failed: no more");
}

#[tokio::test(start_paused = true)]
async fn runnables_that_are_added_while_others_start_all_start_once() {
    let world = World::new();
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("one");
    let handle = manager.handle();
    let one = world.start_manager((env, manager));
    let adders = (0..20_u64).map(|number| {
        let (handle, story, env) = (handle.clone(), story.clone(), world.env.clone());
        world.env.spawn("adder", async move {
            env.sleep(Duration::from_millis(number)).await;
            handle.add(diarist("one of many", RunnableGroup::EveryReplica, &story))
        })
    });
    for added in join_all(adders).await {
        assert_eq!(added, Ok(Ok(())));
    }
    world.pass(5).await;
    assert_eq!(story.told(), vec!["one of many starts"; 20]);
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    assert_eq!(story.told().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn those_that_have_ended_are_forgotten_while_others_come() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let handle = manager.handle();
    let one = world.start_manager((env, manager));
    world.pass(5).await;
    for _ in 0..100 {
        let brief = runnable("brief", RunnableGroup::EveryReplica, |_| async { Ok(()) });
        handle.add(brief).expect("it runs");
        world.pass(1).await;
    }
    assert_eq!(handle.kept(RunnableGroup::EveryReplica), 1, "the last one");
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_during_the_shutdown_and_before_its_turn_to_stop_is_told_of() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let fails = runnable("fails", RunnableGroup::EveryReplica, |cx| async move {
        cx.env().sleep(Duration::from_secs(7)).await;
        Err(RunnableError::from("no more"))
    });
    let one = world.start_manager((env, manager.add(fails)));
    world.pass(5).await;
    one.trigger.fire();
    let end = one.ended().await.expect_err("something failed").to_string();
    assert_eq!(end, "the runnable fails failed: no more");
    assert_eq!(world.scribbled(), json!(done_by("one")), "what was begun came to its end");
    assert_eq!(world.holder(), json!(""), "and the lease was released");
}
