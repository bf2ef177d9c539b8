//! Tests of runnables.

use std::sync::{Mutex, PoisonError};

use windlass_controller::{BoxError, Runnable, RunnableContext, RunsOn, UNDECLARED_REQUESTS_METRIC, Writer};
use windlass_informer::Index;

use super::*;
use crate::AddError;

/// A log of what happened, in order.
#[derive(Clone, Default)]
struct Story(Arc<Mutex<Vec<String>>>);

impl Story {
    fn record(&self, what: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn contains(&self, what: &str) -> bool {
        self.lines().iter().any(|line| line == what)
    }
}

/// Registers a task that logs its start and its stop.
fn diarist(name: &'static str, group: RunsOn, story: &Story) -> Registration {
    let story = story.clone();
    Registration::task(name, group, move |cx| {
        let story = story.clone();
        async move {
            story.record(format!("{name} starts"));
            cx.ready();
            cx.stopped().await;
            story.record(format!("{name} ends"));
            Ok(())
        }
    })
}

impl World {
    fn manager_of_scribe(&self, identity: &str) -> (Env, Manager) {
        let env = self.env.with_incarnation(identity, 0);
        let config =
            ManagerConfig { shutdown_timeout: Duration::from_secs(30), ..ManagerConfig::new(identity) };
        let manager = self.manager(&env, config).register(Registration::controller::<Scribe>());
        (env, manager)
    }

    fn start_manager(&self, (env, manager): (Env, Manager)) -> Replica {
        let (trigger, signals) = ShutdownSignals::manual();
        let (health, metrics) = (manager.health().clone(), manager.metrics().clone());
        let run = self.env.spawn("manager", manager.run(signals));
        Replica { env, health, metrics, trigger, run }
    }
}

// parity: manager-start-order-stop, starts-each-component-returns
#[tokio::test(start_paused = true)]
async fn runnables_start_at_their_step_and_stop_in_reverse_order() {
    let world = World::new();
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("one");
    let manager = manager
        .register(diarist("leading", RunsOn::Leader, &story))
        .register(diarist("everywhere", RunsOn::EveryReplica, &story))
        .register(diarist("early", RunsOn::BeforeCaches, &story));
    let one = world.start_manager((env, manager));
    world.pass(5).await;
    assert_eq!(story.lines(), ["early starts", "everywhere starts", "leading starts"]);
    assert_eq!(world.scribbled(), json!(begun_by("one")), "and the controllers work");
    one.trigger.fire();
    world.pass(1).await;
    assert!(!story.contains("leading ends"), "a reconcile still runs, and can depend on it");
    assert!(one.ended().await.is_ok());
    assert_eq!(story.lines()[3..], ["leading ends", "everywhere ends", "early ends"]);
    assert_eq!(world.holder(), json!(""));
}

// parity: http-servers-caches-webhooks, warm-runnables-before-election
#[tokio::test(start_paused = true)]
async fn standby_runs_only_runnables_without_leadership() {
    let world = World::new();
    let one = world.start("one");
    world.pass(5).await;
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("two");
    let manager = manager.register(diarist("leading", RunsOn::default(), &story)).register(diarist(
        "everywhere",
        RunsOn::EveryReplica,
        &story,
    ));
    let two = world.start_manager((env, manager));
    world.pass(5).await;
    assert_eq!(story.lines(), ["everywhere starts"]);
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
    assert_eq!(story.lines(), ["everywhere starts", "everywhere ends"]);
    one.stops().await;
}

// parity: runnable-added-later-starts
#[tokio::test(start_paused = true)]
async fn added_runnable_starts_immediately_or_at_its_step() {
    let world = World::new();
    let one = world.start("one");
    world.pass(5).await;
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("two");
    let handle = manager.handle();
    let two = world.start_manager((env, manager));
    world.pass(5).await;
    handle.add(diarist("everywhere", RunsOn::EveryReplica, &story)).expect("it runs");
    handle.add(diarist("leading", RunsOn::Leader, &story)).expect("it waits");
    world.pass(1).await;
    assert_eq!(story.lines(), ["everywhere starts"]);
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    world.pass(5).await;
    assert_eq!(story.lines(), ["everywhere starts", "leading starts"]);
    handle.add(diarist("late", RunsOn::Leader, &story)).expect("this replica leads");
    world.pass(1).await;
    assert!(story.contains("late starts"));
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
    assert!(story.contains("late ends"));
}

// parity: refuses-runnables-once-stop
#[tokio::test(start_paused = true)]
async fn runnable_added_while_manager_stops_is_rejected() {
    let world = World::new();
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("one");
    let handle = manager.handle();
    let one = world.start_manager((env, manager));
    world.pass(5).await;
    one.trigger.fire();
    world.pass(1).await;
    for group in [RunsOn::BeforeCaches, RunsOn::EveryReplica, RunsOn::Leader] {
        let late = handle.add(diarist("late", group, &story));
        assert!(matches!(late, Err(AddError::Stopping { name: "late" })));
    }
    assert!(one.ended().await.is_ok());
    let late = handle.add(diarist("late", RunsOn::EveryReplica, &story));
    assert!(matches!(late, Err(AddError::Stopping { name: "late" })));
    assert_eq!(story.lines(), Vec::<String>::new());
}

// parity: starts-each-component-returns, waits-runnables-stop-after, group-ready-when-all
#[tokio::test(start_paused = true)]
async fn first_runnable_error_stops_manager_and_is_returned_with_name() {
    let panics = |_: RunnableContext| async { panic!("boom") };
    for group in [RunsOn::BeforeCaches, RunsOn::EveryReplica, RunsOn::Leader] {
        for panicking in [false, true] {
            let world = World::new();
            let (env, manager) = world.manager_of_scribe("one");
            let fails = |cx: RunnableContext| async move {
                cx.ready();
                cx.env().sleep(Duration::from_secs(5)).await;
                Err(BoxError::from("no more"))
            };
            let manager = match panicking {
                true => manager.register(Registration::task("fragile", group, panics)),
                false => manager.register(Registration::task("fragile", group, fails)),
            };
            let one = world.start_manager((env, manager));
            let end = one.ended().await.expect_err("it ends the manager").to_string();
            let why = if panicking { "panicked: boom" } else { "no more" };
            assert_eq!(end, format!("the runnable fragile failed: {why}"));
            if !panicking {
                assert_eq!(world.scribbled(), json!(done_by("one")), "the running reconcile finished");
                assert_eq!(world.holder(), json!(""), "and the lease was released");
            }
        }
    }
}

// parity: ends-early
#[tokio::test(start_paused = true)]
async fn completed_runnable_stops_no_other_part() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let one = world.start_manager((
        env,
        manager.register(Registration::task("brief", RunsOn::Leader, |_| async { Ok(()) })),
    ));
    world.pass(60).await;
    assert!(!one.run.is_finished());
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

// parity: returns-both-errors-runnables, cancels-election-only-when, group-waits-all-members
#[tokio::test(start_paused = true)]
async fn stuck_runnable_is_aborted_and_named_and_keeps_its_lease() {
    for (group, holder) in [(RunsOn::Leader, "one"), (RunsOn::EveryReplica, "")] {
        let world = World::new();
        let env = world.env.with_incarnation("one", 0);
        let config = ManagerConfig { shutdown_timeout: Duration::from_secs(3), ..ManagerConfig::new("one") };
        let stubborn = Registration::task("stubborn", group, |_| async { std::future::pending().await });
        let manager = world.manager(&env, config).register(stubborn);
        let one = world.start_manager((env, manager));
        world.pass(5).await;
        let begun = world.env.now();
        one.trigger.fire();
        let end = one.ended().await.expect_err("it did not end");
        assert!(end.to_string().contains(": stubborn; "), "{end}");
        assert!(since(&world.env, begun) < Duration::from_secs(4));
        assert_eq!(world.holder(), json!(holder), "a runnable under the lease can have a write in flight");
    }
}

// parity: grace-zero-waits-below
#[tokio::test(start_paused = true)]
async fn second_signal_aborts_runnables() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let stubborn =
        Registration::task("stubborn", RunsOn::EveryReplica, |_| async { std::future::pending().await });
    let one = world.start_manager((env, manager.register(stubborn)));
    world.pass(5).await;
    let begun = world.env.now();
    one.trigger.fire();
    one.trigger.fire();
    assert!(matches!(one.ended().await, Err(ManagerError::Aborted)));
    assert!(since(&world.env, begun) < Duration::from_millis(10));
}

/// Registers a task that is ready after this number of seconds.
fn slow(name: &'static str, seconds: u64) -> Registration {
    Registration::task(name, RunsOn::BeforeCaches, move |cx| async move {
        cx.env().sleep(Duration::from_secs(seconds)).await;
        cx.ready();
        cx.stopped().await;
        Ok(())
    })
}

// parity: cache-before-anything-else, group-ready-when-all
#[tokio::test(start_paused = true)]
async fn caches_wait_for_all_early_runnables_to_be_ready() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let one = world
        .start_manager((env, manager.register(slow("a", 3)).register(slow("b", 0)).register(slow("c", 1))));
    let listed = || world.api.sent_requests().iter().any(|asked| asked.resource == "configmaps");
    world.pass(2).await;
    assert!(!listed() && !one.ready());
    world.pass(2).await;
    assert!(listed() && one.ready());
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

/// Writes every second until it stops, and logs errors.
struct Patcher(Story);

impl Runnable for Patcher {
    const NAME: &'static str = "patcher";
    type Config = Story;

    fn setup(setup: &mut Setup, story: &Story) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Patch]);
        Ok(Self(story.clone()))
    }

    async fn run(&self, cx: RunnableContext) -> Result<(), BoxError> {
        patch_every_second(&cx, &self.0).await;
        Ok(())
    }
}

async fn patch_every_second(cx: &RunnableContext, story: &Story) {
    let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "shop");
    while !cx.is_stopped() {
        let patch = Patch::Merge(json!({ "data": { "writer": cx.env().instance() } }));
        if let Err(error) = maps.patch("web", &PatchParams::default(), &patch).await {
            story.record(error.to_string());
        }
        cx.env().sleep(Duration::from_secs(1)).await;
    }
}

fn patcher(group: RunsOn, story: &Story) -> Registration {
    Registration::runnable::<Patcher>(story.clone())
        .with_descriptor(Descriptor::new(Patcher::NAME).with_runs_on(group))
}

#[tokio::test(start_paused = true)]
async fn runnable_sends_only_declared_requests_and_roles_contain_them() {
    let world = World::new();
    let (first, second) = (Story::default(), Story::default());
    let (env, manager) = world.manager_of_scribe("one");
    let log = second.clone();
    let undeclared = Registration::task("reader", RunsOn::EveryReplica, move |cx| {
        let story = log.clone();
        async move {
            patch_every_second(&cx, &story).await;
            Ok(())
        }
    });
    let manager = manager.register(patcher(RunsOn::EveryReplica, &first)).register(undeclared);
    let declared = manager.registry().declarations_for(&env, &ManagerConfig::new("one")).expect("declared");
    let names: Vec<_> = declared.iter().map(|one| one.descriptor.name).collect();
    assert_eq!(names, ["scribe", "patcher", "reader", "leader-election"]);
    let events = Rule::new("", "events", [Verb::Create, Verb::Patch]);
    assert_eq!(declared[1].rules, [Rule::new("", "configmaps", [Verb::Patch]), events.clone()]);
    assert_eq!(declared[2].rules, [events]);

    let one = world.start_manager((env, manager));
    world.pass(5).await;
    assert_eq!(first.lines(), Vec::<String>::new());
    let refused = second.lines();
    assert!(
        refused[0].contains("patch on \"configmaps\"") && refused[0].contains("not declared"),
        "{refused:?}"
    );
    let counted = format!(
        r#"{UNDECLARED_REQUESTS_METRIC}{{controller="reader",group="",resource="configmaps",verb="patch"}}"#
    );
    assert!(one.metrics.encode().contains(&counted), "rejected requests are counted");
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

/// Logs the ConfigMap `web` when it starts, using lister and index of its setup, signs it with its writer, and
/// publishes an Event.
struct Reader {
    maps: Lister<ConfigMap>,
    by_scribe: Index<ConfigMap, String>,
    fed: Lister<ConfigMap>,
    map: Writer<ConfigMap>,
    story: Story,
}

impl Runnable for Reader {
    const NAME: &'static str = "reader";
    type Config = Story;

    fn setup(setup: &mut Setup, story: &Story) -> Result<Self, SetupError> {
        let maps = setup.watch::<ConfigMap>().lister();
        let scribe = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("scribe").cloned());
        let source = ObjectFeed::new(setup.env());
        source.upsert(&json!({ "metadata": { "name": "fed", "namespace": "shop" } })).expect("an object");
        let source = source.selecting(&Selection::default());
        let fed = setup.watch_from(source, TypedObjects::<ConfigMap>::new()).lister();
        let map = setup.writer::<ConfigMap>().patch().build();
        Ok(Self { by_scribe: maps.index(scribe), maps, fed, map, story: story.clone() })
    }

    async fn run(&self, cx: RunnableContext) -> Result<(), BoxError> {
        let key = ObjectKey::namespaced("shop", "web");
        let map = self.maps.get(&key)?.ok_or("the cache is empty")?;
        let scribe = map.data.as_ref().and_then(|data| data.get("scribe").cloned()).unwrap_or_default();
        let found = self.by_scribe.get(&scribe).len();
        self.story.record(format!("{scribe}: {found} by index, {} fed", self.fed.list().len()));
        let sign = |map: &mut ConfigMap| {
            map.data.get_or_insert_default().insert("reader".to_owned(), cx.env().instance().to_owned());
        };
        self.map.patch(&cx, &map, sign).await?;
        cx.events().publish(&map_reference(&key), &NewEvent::normal("Read", "read once"));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn runnable_reads_declared_kinds_after_caches_are_synced() {
    let world = World::new();
    let one = world.start("one");
    world.pass(15).await;
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("two");
    let everywhere = Descriptor::new("everywhere").with_runs_on(RunsOn::EveryReplica);
    let handle = manager.handle();
    let manager = manager
        .register(Registration::runnable::<Reader>(story.clone()))
        .register(Registration::runnable::<Reader>(story.clone()).with_descriptor(everywhere));
    let declared = manager.registry().declarations_for(&env, &ManagerConfig::new("two")).expect("declared");
    assert_eq!(declared[1].rules[0], Rule::new("", "configmaps", [Verb::List, Verb::Watch, Verb::Patch]));
    let two = world.start_manager((env, manager));
    world.pass(5).await;
    let read = "done by one: 1 by index, 1 fed";
    assert_eq!(story.lines(), [read], "the one that needs no leadership");
    assert_eq!(world.api.object(MAP).expect("the map")["data"]["reader"], json!("two"), "and it writes");
    handle.add(Registration::runnable::<Reader>(story.clone()).with_descriptor(everywhere)).expect("it runs");
    world.pass(5).await;
    assert_eq!(story.lines(), [read; 2], "and one that is added later");
    one.stops().await;
    world.pass(5).await;
    assert_eq!(story.lines().len(), 3, "and the one that needs leadership");
    let published = world.events().iter().filter(|(_, note)| note == "read once").count();
    assert!(published > 0, "events of a runnable that has ended are sent: {:?}", world.events());
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn runnable_of_new_leader_waits_for_previous_writes() {
    let world = World::new();
    let one = world.start("one");
    world.pass(5).await;
    let story = Story::default();
    let env = world.env.with_incarnation("two", 0);
    let manager = world.manager(&env, ManagerConfig::new("two"));
    let two = world.start_manager((env, manager.register(Registration::runnable::<Reader>(story.clone()))));
    world.pass(2).await;
    world.fail("configmaps", FaultAction::Coalesced { within_ms: 3000 });
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    world.pass(2).await;
    assert_eq!(story.lines(), ["done by one: 1 by index, 1 fed"]);
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn runnable_without_caches_delays_nothing_and_times_out() {
    let world = World::new();
    world.fail("secrets", FaultAction::Unavailable);
    let env = world.env.with_incarnation("one", 0);
    let config = ManagerConfig {
        shutdown_timeout: Duration::from_secs(30),
        cache_sync: CacheSync::Within(Duration::from_secs(120)),
        ..ManagerConfig::new("one")
    };
    let unread = Registration::task("unread", RunsOn::Leader, |_| async { Ok(()) })
        .with_settings(|setup| drop(setup.watch::<Secret>()));
    let manager = world.manager(&env, config).register(Registration::controller::<Scribe>()).register(unread);
    let one = world.start_manager((env, manager));
    world.pass(90).await;
    assert_eq!(world.scribbled(), json!(done_by("one")), "controllers work");
    assert!(one.health.report(Probe::Ready).details().contains("informer-sync-unread"));
    let end = one.ended().await.expect_err("time is up").to_string();
    assert!(end.contains("the runnable unread failed: caches did not sync"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn failed_runnable_setup_stops_start_and_names_it() {
    let world = World::new();
    let early = Registration::task("early", RunsOn::BeforeCaches, |_| async { Ok(()) })
        .with_settings(|setup| drop(setup.watch::<ConfigMap>()));
    let (_, manager) = world.manager_of_scribe("one");
    let (_trigger, signals) = ShutdownSignals::manual();
    let error = manager.register(early).run(signals).await.expect_err("refused").to_string();
    assert!(
        error.contains("cannot set up early: cannot watch configmaps.v1: a runnable on RunsOn::BeforeCaches"),
        "{error}"
    );
    let (_, manager) = world.manager_of_scribe("two");
    let added = manager.handle().add(Registration::controller::<Scribe>()).expect_err("refused").to_string();
    assert_eq!(added, "scribe is a controller: register it before the manager runs");
}

// parity: no-grace-after-lease
#[tokio::test(start_paused = true)]
async fn only_runnables_with_leadership_write_behind_the_fence() {
    let world = World::new();
    let one = world.start("one");
    world.pass(15).await;
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("two");
    let two = world.start_manager((env, manager.register(patcher(RunsOn::EveryReplica, &story))));
    world.pass(5).await;
    let map = world.api.object(MAP).expect("the map");
    assert_eq!((&map["data"]["writer"], world.holder()), (&json!("two"), json!("one")));
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
    one.stops().await;

    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let one = world.start_manager((env, manager.register(patcher(RunsOn::Leader, &story))));
    world.pass(5).await;
    assert_eq!(story.lines(), Vec::<String>::new());
    world.api.upsert(LEASE, json!({ "spec": { "holderIdentity": "other" } }));
    assert!(matches!(one.ended().await, Err(ManagerError::LeaseLost { .. })));
    let writes = world.work();
    world.pass(60).await;
    assert_eq!(world.work(), writes, "it was stopped with the lease");
}

// parity: waits-runnables-stop-after, not-return-context-canceled, no-goroutine-left-runnable
#[tokio::test(start_paused = true)]
async fn error_after_stop_signal_does_not_fail_graceful_shutdown() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let hurt = Registration::task("hurt", RunsOn::EveryReplica, |cx| async move {
        cx.stopped().await;
        cx.env().sleep(Duration::from_secs(2)).await;
        Err(BoxError::from("cancelled"))
    });
    let one = world.start_manager((env, manager.register(hurt)));
    world.pass(20).await;
    let begun = world.env.now();
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    let waited = since(&world.env, begun);
    assert!(waited >= Duration::from_secs(2) && waited < Duration::from_secs(3), "{waited:?}");
}

// parity: grace-zero-waits-below
#[tokio::test(start_paused = true)]
async fn zero_shutdown_timeout_awaits_runnables_indefinitely() {
    let world = World::new();
    let env = world.env.with_incarnation("one", 0);
    let config = ManagerConfig { shutdown_timeout: Duration::ZERO, ..ManagerConfig::new("one") };
    let slow = Registration::task("slow", RunsOn::Leader, |cx| async move {
        cx.stopped().await;
        cx.env().sleep(Duration::from_secs(3600)).await;
        Ok(())
    });
    let manager = world.manager(&env, config).register(slow);
    let one = world.start_manager((env, manager));
    world.pass(5).await;
    one.trigger.fire();
    world.pass(3000).await;
    assert_eq!(world.holder(), json!("one"), "renewed all the while");
    assert!(one.ended().await.is_ok());
    assert_eq!(world.holder(), json!(""));
}

// parity: returns-both-errors-runnables
#[tokio::test(start_paused = true)]
async fn runnable_failure_is_reported_before_stuck_runnable() {
    let world = World::new();
    let env = world.env.with_incarnation("one", 0);
    let config = ManagerConfig { shutdown_timeout: Duration::from_secs(3), ..ManagerConfig::new("one") };
    let fails = Registration::task("fails", RunsOn::Leader, |cx| async move {
        cx.env().sleep(Duration::from_secs(1)).await;
        Err(BoxError::from("no more"))
    });
    let stubborn = Registration::task("stubborn", RunsOn::Leader, |_| async { std::future::pending().await });
    let manager = world.manager(&env, config).register(stubborn).register(fails);
    let end = world.start_manager((env, manager)).ended().await.expect_err("it failed");
    assert_eq!(end.to_string(), "the runnable fails failed: no more");
}

// parity: added-before-after-while
#[tokio::test(start_paused = true)]
async fn concurrently_added_runnables_each_start_once() {
    let world = World::new();
    let story = Story::default();
    let (env, manager) = world.manager_of_scribe("one");
    let handle = manager.handle();
    let one = world.start_manager((env, manager));
    let adders = (0..20_u64).map(|number| {
        let (handle, story, env) = (handle.clone(), story.clone(), world.env.clone());
        world.env.spawn("adder", async move {
            env.sleep(Duration::from_millis(number)).await;
            let name: &'static str = Box::leak(format!("number {number}").into_boxed_str());
            handle.add(diarist(name, RunsOn::EveryReplica, &story))
        })
    });
    for added in join_all(adders).await {
        assert!(matches!(added, Ok(Ok(()))));
    }
    world.pass(5).await;
    assert_eq!(story.lines().iter().filter(|line| line.ends_with(" starts")).count(), 20);
    let again = diarist("number 7", RunsOn::Leader, &story);
    assert!(matches!(handle.add(again), Err(AddError::NameTaken { name: "number 7" })));
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    assert_eq!(story.lines().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn ended_runnables_are_dropped_when_others_are_added() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let handle = manager.handle();
    let one = world.start_manager((env, manager));
    world.pass(5).await;
    for _ in 0..100 {
        let brief = Registration::task("brief", RunsOn::EveryReplica, |_| async { Ok(()) });
        handle.add(brief).expect("it runs");
        world.pass(1).await;
    }
    assert_eq!(handle.kept(RunsOn::EveryReplica), 1, "the last one");
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn runnable_failure_during_shutdown_is_reported() {
    let world = World::new();
    let (env, manager) = world.manager_of_scribe("one");
    let fails = Registration::task("fails", RunsOn::EveryReplica, |cx| async move {
        cx.env().sleep(Duration::from_secs(7)).await;
        Err(BoxError::from("no more"))
    });
    let one = world.start_manager((env, manager.register(fails)));
    world.pass(5).await;
    one.trigger.fire();
    let end = one.ended().await.expect_err("something failed").to_string();
    assert_eq!(end, "the runnable fails failed: no more");
    assert_eq!(world.scribbled(), json!(done_by("one")), "the running reconcile finished");
    assert_eq!(world.holder(), json!(""), "and the lease was released");
}
