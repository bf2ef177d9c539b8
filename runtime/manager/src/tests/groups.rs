//! Several elections in one manager.

use super::*;
use crate::ElectionGroup;

/// Signs the field that it is named after, as the scribe does.
struct Signer {
    field: &'static str,
    maps: TypedLister<ConfigMap>,
}

fn signer(name: &'static str) -> Registration {
    Registration::with(Descriptor::new(name), move |setup: &mut Setup| {
        setup.uses::<ConfigMap>([Verb::Patch]);
        Ok(Signer { field: name, maps: setup.watch::<ConfigMap>().enqueue(by_self).lister() })
    })
}

#[async_trait]
impl Controller for Signer {
    const NAME: &'static str = "signer";

    fn setup(_: &mut Setup) -> Result<Self, SetupError> {
        Err(SetupError::invalid("it is made by `signer`"))
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let done = done_by(cx.env().instance());
        let data = self.maps.get(key).and_then(|map| map.data.clone()).unwrap_or_default();
        if data.get(self.field) == Some(&done) {
            return Ok(Outcome::Done);
        }
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "shop");
        let write = |text: &str| Patch::Merge(json!({ "data": { self.field: text } }));
        let params = PatchParams::default();
        maps.patch(key.name(), &params, &write(&begun_by(cx.env().instance()))).await?;
        cx.env().sleep(Duration::from_secs(10)).await;
        maps.patch(key.name(), &params, &write(&done)).await?;
        Ok(Outcome::Done)
    }
}

/// Two groups, of one controller each.
fn two_groups(identity: &str) -> ManagerConfig {
    ManagerConfig {
        groups: vec![ElectionGroup::new("left", ["left"]), ElectionGroup::new("right", ["right"])],
        shutdown_timeout: Duration::from_secs(30),
        ..ManagerConfig::new(identity)
    }
}

fn lease(group: &str) -> String {
    format!("{LEASE}-{group}")
}

impl World {
    fn start_groups(&self, config: ManagerConfig) -> Replica {
        let env = self.env.incarnation(&config.identity, 0);
        let manager = self.manager(&env, config).register(signer("left")).register(signer("right"));
        self.run(env, manager)
    }

    fn leader_of(&self, group: &str) -> Value {
        self.api.object(&lease(group)).map_or(Value::Null, |lease| lease["spec"]["holderIdentity"].clone())
    }

    fn leaders(&self) -> [Value; 2] {
        [self.leader_of("left"), self.leader_of("right")]
    }

    fn field(&self, name: &str) -> Value {
        self.api.object(MAP).expect("the map")["data"][name].clone()
    }

    fn fields(&self) -> [Value; 2] {
        [self.field("left"), self.field("right")]
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_share_groups_and_each_goes_on_with_the_work_of_one_that_dies() {
    for dies_first in [true, false] {
        let world = World::new();
        let replicas = [world.start_groups(two_groups("one")), world.start_groups(two_groups("two"))];
        world.pass(15).await;
        let [left, right] = world.leaders();
        assert_ne!(left, right, "each leads one group");
        let done = |leader: &Value| json!(done_by(leader.as_str().expect("a name")));
        assert_eq!(world.fields(), [done(&left), done(&right)], "and does its work, and no other");
        let dead = if dies_first { "one" } else { "two" };
        let survivor = if dies_first { "two" } else { "one" };
        replicas.iter().find(|one| one.env.instance() == dead).expect("both run").dies().await;
        world.pass(30).await;
        assert_eq!(world.leaders(), [json!(survivor), json!(survivor)]);
        assert_eq!(world.fields(), [json!(done_by(survivor)), json!(done_by(survivor))]);
        for one in &replicas {
            one.dies().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_alone_leads_every_group_within_a_retry_period_and_releases_each_with_what_it_wrote()
 {
    let world = World::new();
    let one = world.start_groups(two_groups("one"));
    world.pass(2).await;
    assert_eq!((world.holder(), world.leaders()), (json!("one"), [json!("one"), json!("one")]));
    world.pass(2).await;
    assert_eq!(world.fields(), [json!(begun_by("one")), json!(begun_by("one"))]);
    one.trigger.fire();
    world.pass(1).await;
    assert_eq!(world.leaders(), [json!("one"), json!("one")], "both are held while something may write");
    assert!(one.ended().await.is_ok());
    assert_eq!(world.fields(), [json!(done_by("one")), json!(done_by("one"))]);
    assert_eq!((world.holder(), world.leaders()), (json!(""), [json!(""), json!("")]));
    for group in ["left", "right"] {
        let lease = world.api.object(&lease(group)).expect("the lease");
        let written = lease["metadata"]["annotations"][WRITTEN_ANNOTATION].as_str().expect("told").to_owned();
        assert!(written.contains("configmaps"), "{group}: {written}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_of_one_group_stops_its_work_at_once_and_the_others_are_handed_over_in_order() {
    let world = World::new();
    let one = world.start_groups(two_groups("one"));
    world.pass(5).await;
    world.api.put(&lease("left"), json!({ "spec": { "holderIdentity": "other" } }));
    let end = one.ended().await.expect_err("the process must end").to_string();
    assert!(end.contains("kube-system/windlass-left") && end.contains("other holds it"), "{end}");
    let told = [json!(begun_by("one")), json!(done_by("one"))];
    assert_eq!(world.fields(), told, "what worked under the lease was stopped, the other came to its end");
    assert_eq!((world.holder(), world.leaders()), (json!(""), [json!("other"), json!("")]));
    let writes = world.work();
    world.pass(60).await;
    assert_eq!(world.work(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_lease_cannot_be_renewed_writes_nothing_after_its_own_deadline_while_others_do() {
    let world = World::new();
    let one = world.start_groups(two_groups("one"));
    world.pass(2).await;
    let cut = world.env.now();
    world.api.meddle(|asked| (asked.name == "windlass-left").then_some(What::Partition));
    let end = one.ended().await.expect_err("the process must end").to_string();
    assert!(end.contains("windlass-left") && end.contains("no renewal succeeded"), "{end}");
    assert!(since(&world.env, cut) <= Duration::from_secs(13), "{:?}", since(&world.env, cut));
    assert_eq!(world.leaders(), [json!("one"), json!("")], "one expires, the other is released");
    assert_eq!(world.field("right"), json!(done_by("one")));
}

#[tokio::test(start_paused = true)]
async fn a_group_leaves_leading_to_others_while_none_of_its_controllers_could_work() {
    let world = World::new();
    world.fail("secrets", What::Unavailable);
    let config = ManagerConfig {
        groups: vec![ElectionGroup::new("left", ["hoarder"])],
        shutdown_timeout: Duration::from_secs(30),
        ..ManagerConfig::new("one")
    };
    let one = world.start_both(config);
    world.pass(60).await;
    assert_eq!((world.holder(), world.leader_of("left")), (json!("one"), Value::Null));
    assert_eq!(world.scribbled(), json!(done_by("one")));
    world.api.meddle(|_| None);
    world.pass(60).await;
    assert_eq!(world.leader_of("left"), json!("one"), "it can work now");
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn groups_that_do_not_fit_the_controllers_are_refused_before_anything_starts() {
    let cases = [
        (vec![ElectionGroup::new("a", ["lef"])], "did you mean \"left\"?"),
        (
            vec![ElectionGroup::new("a", ["left"]), ElectionGroup::new("b", ["left"])],
            "left is in the election groups \"a\" and \"b\": it can be in one only",
        ),
    ];
    for (groups, told) in cases {
        let world = World::new();
        let one = world.start_groups(ManagerConfig { groups, ..ManagerConfig::new("one") });
        let error = one.ended().await.expect_err("refused").to_string();
        assert!(error.contains(told), "{error}");
        assert!(world.api.sent().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn liveness_tells_of_each_election_by_its_name() {
    let world = World::new();
    let one = world.start_groups(two_groups("one"));
    world.pass(5).await;
    let report = one.health.report(Probe::Live);
    let names: Vec<_> = report.results.iter().map(|one| one.name.as_str()).collect();
    for name in ["leaderElection", "leaderElection-left", "leaderElection-right"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(report.passed());
    one.stops().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_of_one_group_is_told_also_when_the_work_of_another_outlasts_the_shutdown_timeout() {
    let world = World::new();
    let config = ManagerConfig { shutdown_timeout: Duration::from_secs(3), ..two_groups("one") };
    let one = world.start_groups(config);
    world.pass(5).await;
    world.api.put(&lease("left"), json!({ "spec": { "holderIdentity": "other" } }));
    let end = one.ended().await.expect_err("the process must end").to_string();
    assert!(end.contains("kube-system/windlass-left") && end.contains("other holds it"), "{end}");
    assert_eq!(world.field("right"), json!(begun_by("one")), "it was stopped half-way");
    assert_eq!(world.leader_of("right"), json!("one"), "so that its lease expires");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_runs_nothing_of_a_group_leaves_its_lease_to_those_that_do() {
    let world = World::new();
    let config = two_groups("one");
    let one = world.start_groups(ManagerConfig { controllers: "*,-left".parse().expect("one"), ..config });
    world.pass(20).await;
    assert_eq!(world.leaders(), [Value::Null, json!("one")]);
    assert!(one.ready(), "{}", one.health.report(Probe::Ready).details());
    let two = world.start_groups(two_groups("two"));
    world.pass(20).await;
    assert_eq!(world.leaders(), [json!("two"), json!("one")]);
    assert_eq!(world.field("left"), json!(done_by("two")));
    for replica in [one, two] {
        replica.trigger.fire();
        assert!(replica.ended().await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_without_controllers_is_stood_for_once_something_is_added_that_runs_with_it() {
    let world = World::new();
    let env = world.env.incarnation("one", 0);
    let config = ManagerConfig { controllers: "*,-left".parse().expect("one"), ..two_groups("one") };
    let manager = world.manager(&env, config).register(signer("left")).register(signer("right"));
    let handle = manager.handle();
    let one = world.run(env, manager);
    world.pass(20).await;
    assert_eq!(world.leader_of("left"), Value::Null);
    let group = crate::RunnableGroup::LeaderOf("left".to_owned());
    let late = crate::runnable("late", group, |cx| async move {
        cx.stopped().await;
        Ok(())
    });
    handle.add(late).expect("there is such a group");
    world.pass(2).await;
    assert_eq!(world.leader_of("left"), json!("one"));
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    assert_eq!(world.leader_of("left"), json!(""));
}
