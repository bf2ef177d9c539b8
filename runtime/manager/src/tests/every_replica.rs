//! Tests of controllers that run on every replica.

use std::num::NonZeroU16;

use windlass_controller::{BoxError, RunsOn};

use super::*;

/// Records each observing replica in the ConfigMap, in two writes four seconds apart, and publishes an Event.
struct Herald {
    maps: Lister<ConfigMap>,
}

impl Controller for Herald {
    const NAME: &'static str = "herald";
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME).with_runs_on(RunsOn::EveryReplica);
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Patch]);
        setup.workers(8);
        Ok(Self { maps: setup.primary::<ConfigMap>().lister() })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let me = cx.env().instance();
        let data = self.maps.get_lossy(key).and_then(|map| map.data.clone()).unwrap_or_default();
        if data.get(me).is_some_and(|seen| seen == "done") {
            return Ok(Outcome::Done);
        }
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), key.namespace().unwrap_or_default());
        for seen in ["begun", "done"] {
            let patch = Patch::Merge(json!({ "data": { me: seen } }));
            maps.patch(key.name(), &PatchParams::default(), &patch).await?;
            cx.env().sleep(Duration::from_secs(4)).await;
        }
        cx.events().publish(&map_reference(key), &NewEvent::normal("Seen", format!("seen by {me}")));
        Ok(Outcome::Done)
    }
}

impl World {
    /// Starts a replica that runs the herald, and the scribe while it leads.
    fn start_herald(&self, config: ManagerConfig) -> Replica {
        let env = self.env.with_incarnation(&config.identity, 0);
        let config = ManagerConfig { shutdown_timeout: Duration::from_secs(30), ..config };
        let manager = self.manager(&env, config);
        self.run(
            env,
            manager
                .register(Registration::controller::<Herald>())
                .register(Registration::controller::<Scribe>()),
        )
    }

    fn seen_by(&self, replica: &str) -> Value {
        self.api.object(MAP).expect("the map")["data"][replica].clone()
    }
}

// parity: need-leader-election
#[tokio::test(start_paused = true)]
async fn standby_reconciles_on_every_replica_while_another_leads() {
    let world = World::new();
    let one = world.start_herald(ManagerConfig::new("one"));
    world.pass(20).await;
    let two = world.start_herald(ManagerConfig::new("two"));
    world.pass(20).await;
    assert_eq!((world.seen_by("one"), world.seen_by("two")), (json!("done"), json!("done")));
    assert_eq!((world.holder(), world.scribbled()), (json!("one"), json!(done_by("one"))));
    assert!(two.ready());
    let published = world.events().into_iter().filter(|(_, note)| note.starts_with("seen by")).count();
    assert_eq!(published, 2, "{:?}", world.events());
    one.stops().await;
    world.pass(20).await;
    assert_eq!(world.scribbled(), json!(done_by("two")), "the standby leads");
    two.stops().await;
}

#[tokio::test(start_paused = true)]
async fn every_replica_controller_stops_with_its_process_after_its_reconcile() {
    let world = World::new();
    let one = world.start("one");
    world.pass(20).await;
    let two = world.start_herald(ManagerConfig::new("two"));
    world.pass(2).await;
    assert_eq!(world.seen_by("two"), json!("begun"));
    two.stops().await;
    assert_eq!(world.seen_by("two"), json!("done"), "the reconcile that ran has finished");
    world.api.upsert("/api/v1/namespaces/shop/configmaps/late", json!({}));
    world.pass(60).await;
    let late = world.api.object("/api/v1/namespaces/shop/configmaps/late").expect("the map");
    assert_eq!(late["data"]["two"], Value::Null);
    one.stops().await;
}

#[tokio::test(start_paused = true)]
async fn every_replica_controller_dequeues_no_key_during_drain() {
    let world = World::new();
    let one = world.start_herald(ManagerConfig::new("one"));
    world.pass(3).await;
    assert_eq!(world.scribbled(), json!(begun_by("one")));
    one.trigger.fire();
    world.pass(1).await;
    world.api.upsert("/api/v1/namespaces/shop/configmaps/late", json!({}));
    assert!(one.ended().await.is_ok());
    assert_eq!((world.scribbled(), world.seen_by("one")), (json!(done_by("one")), json!("done")));
    let late = world.api.object("/api/v1/namespaces/shop/configmaps/late").expect("the map");
    assert_eq!(late["data"]["one"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn every_replica_controller_stops_when_the_lease_is_lost() {
    let world = World::new();
    let one = world.start_herald(ManagerConfig::new("one"));
    world.pass(3).await;
    world.api.upsert(LEASE, json!({ "spec": { "holderIdentity": "other" } }));
    assert!(matches!(one.ended().await, Err(ManagerError::LeaseLost { .. })));
    let work = world.work();
    world.pass(60).await;
    assert_eq!(world.work(), work);
}

#[tokio::test(start_paused = true)]
async fn second_signal_aborts_every_replica_controllers() {
    let world = World::new();
    let one = world.start_herald(ManagerConfig::new("one"));
    world.pass(2).await;
    one.trigger.fire();
    one.trigger.fire();
    assert!(matches!(one.ended().await, Err(ManagerError::Aborted)));
    assert_eq!(world.seen_by("one"), json!("begun"));
}

#[tokio::test(start_paused = true)]
async fn stuck_reconcile_on_every_replica_is_aborted_and_named() {
    let world = World::new();
    let env = world.env.with_incarnation("one", 0);
    let config = ManagerConfig { shutdown_timeout: Duration::from_secs(1), ..ManagerConfig::new("one") };
    let manager = world.manager(&env, config).register(Registration::controller::<Herald>());
    let one = world.run(env, manager);
    world.pass(2).await;
    one.trigger.fire();
    let end = one.ended().await.expect_err("it takes eight seconds").to_string();
    assert!(end.contains("herald: shop/web"), "{end}");
}

// parity: need-leader-election
#[tokio::test(start_paused = true)]
async fn every_replica_controller_sees_all_keys_of_all_shards() {
    let world = World::new();
    for number in 0..12 {
        world.api.upsert(&format!("/api/v1/namespaces/n{number}"), json!({}));
        world.api.upsert(&format!("/api/v1/namespaces/n{number}/configmaps/web"), json!({}));
    }
    let config = |name| ManagerConfig { shards: NonZeroU16::new(4), ..ManagerConfig::new(name) };
    let (one, two) = (world.start_herald(config("one")), world.start_herald(config("two")));
    world.pass(90).await;
    for number in 0..12 {
        let map = world.api.object(&format!("/api/v1/namespaces/n{number}/configmaps/web")).expect("it");
        let data = &map["data"];
        assert_eq!((&data["one"], &data["two"]), (&json!("done"), &json!("done")), "{map}");
    }
    assert!(one.ready() && two.ready());
    two.stops().await;
    one.stops().await;
}

#[tokio::test(start_paused = true)]
async fn every_replica_controller_without_its_caches_delays_nothing() {
    let world = World::new();
    world.fail("secrets", FaultAction::Unavailable);
    let env = world.env.with_incarnation("one", 0);
    let config = ManagerConfig { cache_sync: CacheSync::Forever, ..ManagerConfig::new("one") };
    let waiting = Registration::controller::<Herald>().with_settings(|setup| drop(setup.watch::<Secret>()));
    let early = Registration::task("early", RunsOn::EveryReplica, |_| async { Ok::<(), BoxError>(()) });
    let manager = world.manager(&env, config).register(waiting).register(early);
    let one = world.run(env, manager.register(Registration::controller::<Scribe>()));
    world.pass(90).await;
    assert_eq!(world.scribbled(), json!(done_by("one")), "the others work");
    assert_eq!(world.seen_by("one"), Value::Null);
    world.heal();
    world.pass(90).await;
    assert_eq!(world.seen_by("one"), json!("done"));
    one.stops().await;
}

#[tokio::test(start_paused = true)]
async fn permissions_of_every_replica_controllers_are_declared() {
    let world = World::new();
    let manager = world.manager(&world.env, ManagerConfig::new("one"));
    let manager = manager.register(Registration::controller::<Herald>());
    let declared = manager.registry().declarations_for(&world.env, &ManagerConfig::new("one"));
    let declared = declared.expect("declared");
    assert_eq!(declared[0].descriptor.name, "herald");
    let expected = Rule::new("", "configmaps", [Verb::List, Verb::Watch, Verb::Patch]);
    assert!(declared[0].rules.contains(&expected), "{:?}", declared[0].rules);

    let early = Registration::controller::<Herald>()
        .with_descriptor(Descriptor::new("early").with_runs_on(RunsOn::BeforeCaches));
    let error = early.declaration(&world.env).expect_err("refused").to_string();
    assert_eq!(error, "a controller cannot run on RunsOn::BeforeCaches; use RunsOn::EveryReplica");
}
