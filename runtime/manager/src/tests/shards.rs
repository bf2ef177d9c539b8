//! Tests of replicas that share shards: keys move, and no key is processed by two replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use k8s_openapi::api::core::v1::Node;
use windlass_controller::RunsOn;
use windlass_object::shard::{ShardId, ShardMap, hash};
use windlass_sharding::{DIVISION_ANNOTATION, ShardTable};

use super::*;

const NAMESPACES: usize = 12;

/// Default lease duration.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// One reconcile, as recorded by the controller.
#[derive(Clone, Debug)]
struct Turn {
    key: String,
    replica: String,
    begun: Instant,
    ended: Option<Instant>,
}

/// The reconciles of all replicas, which share a clock.
type Diary = Arc<Mutex<Vec<Turn>>>;

/// Copies `wanted` of each ConfigMap to `done`, in two writes three seconds apart.
struct Porter {
    maps: Lister<ConfigMap>,
    diary: Diary,
}

fn porter(diary: &Diary) -> Registration {
    Registration::controller_with::<Porter>(Arc::clone(diary))
}

impl Controller for Porter {
    const NAME: &'static str = "porter";
    type Config = Diary;

    fn setup(setup: &mut Setup, diary: &Diary) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Patch]);
        setup.workers(NAMESPACES);
        let maps = setup.primary::<ConfigMap>().lister();
        Ok(Self { maps, diary: Arc::clone(diary) })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let data = self.maps.get_lossy(key).and_then(|map| map.data.clone()).unwrap_or_default();
        let wanted = data.get("wanted").cloned().unwrap_or_default();
        if data.get("done") == Some(&wanted) {
            return Ok(Outcome::Done);
        }
        let replica = cx.env().instance().to_owned();
        let turn =
            Turn { key: key.to_string(), replica: replica.clone(), begun: cx.env().now(), ended: None };
        let number = {
            let mut diary = self.diary.lock().expect("not poisoned");
            diary.push(turn);
            diary.len() - 1
        };
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), key.namespace().unwrap_or_default());
        let write = |field: &str, text: &str| Patch::Merge(json!({ "data": { field: text } }));
        maps.patch(key.name(), &PatchParams::default(), &write("by", &replica)).await?;
        cx.env().sleep(Duration::from_secs(3)).await;
        maps.patch(key.name(), &PatchParams::default(), &write("done", &wanted)).await?;
        self.diary.lock().expect("not poisoned")[number].ended = Some(cx.env().now());
        Ok(Outcome::Done)
    }
}

fn four_shards(identity: &str) -> ManagerConfig {
    ManagerConfig {
        shards: NonZeroU16::new(4),
        shutdown_timeout: Duration::from_secs(30),
        ..ManagerConfig::new(identity)
    }
}

/// Returns the same configuration with a tenth of the renewals, for an hour in which no replica is lost.
fn four_calm_shards(identity: &str) -> ManagerConfig {
    let config = four_shards(identity);
    let mut election = config.election.clone().expect("elected");
    election.lease_duration = LEASE_DURATION * 10;
    election.renew_deadline *= 10;
    election.retry_period *= 10;
    ManagerConfig { election: Some(election), ..config }
}

fn map(number: usize) -> String {
    format!("/api/v1/namespaces/tenant-{number}/configmaps/web")
}

/// A world of tenants, with a log of reconciles.
struct Tenants {
    world: World,
    diary: Diary,
    asked: usize,
}

impl Tenants {
    fn new() -> Self {
        let world = World::new();
        for number in 0..NAMESPACES {
            world.api.upsert(&format!("/api/v1/namespaces/tenant-{number}"), json!({}));
        }
        let mut this = Self { world, diary: Diary::default(), asked: 0 };
        this.ask();
        this
    }

    fn start(&self, config: ManagerConfig) -> Replica {
        self.world.start_controller(config, porter(&self.diary))
    }

    /// Changes the desired state of every tenant.
    fn ask(&mut self) {
        self.asked += 1;
        for number in 0..NAMESPACES {
            let mut data = self.world.api.object(&map(number)).map_or(json!({}), |map| map["data"].clone());
            data["wanted"] = json!(self.asked.to_string());
            self.world.api.upsert(&map(number), json!({ "data": data }));
        }
    }

    /// Adds this number of objects without pending work to a tenant.
    fn fill(&self, tenant: usize, count: usize) {
        for number in 0..count {
            let path = format!("/api/v1/namespaces/tenant-{tenant}/configmaps/idle-{number}");
            self.world.api.upsert(&path, json!({ "data": { "wanted": "", "done": "" } }));
        }
    }

    fn plan(&self) -> Value {
        self.world.api.object(&format!("{LEASE}-shards")).expect("the plan")["metadata"]["annotations"]
            .clone()
    }

    fn division(&self) -> ShardMap {
        self.plan()[DIVISION_ANNOTATION].as_str().expect("a shard map").parse().expect("a division")
    }

    /// Returns the number of objects in each shard.
    fn loads(&self) -> [usize; 4] {
        let (division, mut loads) = (self.division(), [0; 4]);
        for map in self.world.api.all("/api/v1/configmaps") {
            let namespace = map["metadata"]["namespace"].as_str().unwrap_or_default();
            loads[usize::from(division.shard_of(hash(namespace)).0)] += 1;
        }
        loads
    }

    /// Returns the replica that reached the desired state of each tenant; `None` if it is not reached.
    fn done(&self) -> Vec<Option<String>> {
        let done = |number| {
            let map = self.world.api.object(&map(number)).expect("the map");
            let is_done = map["data"]["done"] == map["data"]["wanted"];
            is_done.then(|| map["data"]["by"].as_str().unwrap_or_default().to_owned())
        };
        (0..NAMESPACES).map(done).collect()
    }

    /// Returns the holder of each shard's Lease.
    fn holders(&self) -> [Value; 4] {
        [0, 1, 2, 3].map(|shard| {
            let lease = self.world.api.object(&format!("{LEASE}-shard-{shard}"));
            lease.map_or(Value::Null, |lease| lease["spec"]["holderIdentity"].clone())
        })
    }

    /// Returns when the holder of a shard acquired its Lease.
    fn term(&self, shard: u16) -> Value {
        let lease = self.world.api.object(&format!("{LEASE}-shard-{shard}")).expect("the Lease");
        lease["spec"]["acquireTime"].clone()
    }

    fn shares(&self) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        for holder in self.holders() {
            *shares.entry(holder.as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        shares
    }

    /// Asserts that every desired state of every tenant was reached by exactly one reconcile.
    fn each_turn_once(&self) {
        let mut turns = BTreeMap::<String, usize>::new();
        let diary = self.diary.lock().expect("not poisoned");
        for turn in diary.iter().filter(|turn| turn.key.starts_with("tenant-")) {
            *turns.entry(turn.key.clone()).or_default() += 1;
        }
        assert!(turns.len() == NAMESPACES && turns.values().all(|turns| *turns == self.asked), "{turns:?}");
    }

    /// Asserts that no replica started with a key before the previous replica had finished.
    fn never_two_at_once(&self) {
        let diary = self.diary.lock().expect("not poisoned");
        for (at, turn) in diary.iter().enumerate() {
            let others = diary[..at].iter().filter(|one| one.key == turn.key && one.replica != turn.replica);
            for other in others {
                assert!(other.ended.is_some_and(|ended| ended <= turn.begun), "{other:?}, then {turn:?}");
            }
        }
    }
}

fn even(shares: &[(&str, usize)]) -> BTreeMap<String, usize> {
    shares.iter().map(|(holder, shards)| ((*holder).to_owned(), *shards)).collect()
}

// parity: replica-runs-all-controllers
#[tokio::test(start_paused = true)]
async fn two_replicas_share_shards_and_each_key_has_one_replica() {
    let mut tenants = Tenants::new();
    let (one, two) = (tenants.start(four_shards("one")), tenants.start(four_shards("two")));
    tenants.world.pass(60).await;
    assert_eq!(tenants.shares(), even(&[("one", 2), ("two", 2)]));
    tenants.ask();
    tenants.world.pass(10).await;
    let done: BTreeSet<_> = tenants.done().into_iter().collect();
    let both = [Some("one".to_owned()), Some("two".to_owned())];
    assert_eq!(done, both.into_iter().collect(), "all tenants are done, by both replicas");
    assert!(one.ready() && two.ready());
    tenants.never_two_at_once();
    one.stops().await;
    two.stops().await;
}

// parity: replica-runs-all-controllers
#[tokio::test(start_paused = true)]
async fn stopping_replica_hands_off_in_a_second_and_new_one_gets_share() {
    let mut tenants = Tenants::new();
    let (one, two) = (tenants.start(four_shards("one")), tenants.start(four_shards("two")));
    tenants.world.pass(60).await;
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    let ended = tenants.world.env.now();
    while tenants.shares() != even(&[("two", 4)]) {
        tenants.world.env.sleep(Duration::from_millis(10)).await;
        assert!(since(&tenants.world.env, ended) <= Duration::from_secs(1), "{:?}", tenants.holders());
    }
    tenants.ask();
    tenants.world.pass(5).await;
    assert_eq!(tenants.done(), vec![Some("two".to_owned()); NAMESPACES]);
    let three = tenants.start(four_shards("three"));
    tenants.world.pass(30).await;
    assert_eq!(tenants.shares(), even(&[("three", 2), ("two", 2)]));
    tenants.ask();
    tenants.world.pass(10).await;
    let done: BTreeSet<_> = tenants.done().into_iter().collect();
    assert_eq!(done, [Some("three".to_owned()), Some("two".to_owned())].into_iter().collect());
    tenants.never_two_at_once();
    two.stops().await;
    three.stops().await;
}

// parity: replica-runs-all-controllers
#[tokio::test(start_paused = true)]
async fn shards_of_crashed_replica_are_taken_over_after_lease_expiry() {
    let mut tenants = Tenants::new();
    let (one, two) = (tenants.start(four_shards("one")), tenants.start(four_shards("two")));
    tenants.world.pass(60).await;
    one.dies().await;
    tenants.ask();
    tenants.world.env.sleep(LEASE_DURATION + Duration::from_secs(6)).await;
    assert_eq!(tenants.shares(), even(&[("two", 4)]));
    assert_eq!(tenants.done(), vec![Some("two".to_owned()); NAMESPACES]);
    two.stops().await;
}

// parity: replica-runs-all-controllers
#[tokio::test(start_paused = true)]
async fn running_reconciles_finish_before_shard_release() {
    let mut tenants = Tenants::new();
    let one = tenants.start(four_shards("one"));
    tenants.world.pass(30).await;
    let mut replicas = vec![one];
    for name in ["two", "three", "four"] {
        // All keys are in progress while shards move.
        tenants.ask();
        tenants.world.pass(1).await;
        replicas.push(tenants.start(four_shards(name)));
        tenants.world.pass(40).await;
    }
    assert_eq!(tenants.shares(), even(&[("four", 1), ("one", 1), ("three", 1), ("two", 1)]));
    assert!(tenants.done().iter().all(Option::is_some));
    let diary = tenants.diary.lock().expect("not poisoned").clone();
    assert!(diary.iter().all(|turn| turn.ended.is_some()), "no reconcile was aborted: {diary:?}");
    tenants.never_two_at_once();
    for replica in replicas {
        replica.trigger.fire();
        assert!(replica.ended().await.is_ok());
    }
    assert_eq!(tenants.holders(), [json!(""), json!(""), json!(""), json!("")]);
}

// parity: lost-lease-ends-process
#[tokio::test(start_paused = true)]
async fn partitioned_replica_stops_writing_and_rejoins_later() {
    let mut tenants = Tenants::new();
    let (one, two) = (tenants.start(four_shards("one")), tenants.start(four_shards("two")));
    tenants.world.pass(60).await;
    // Replicas cannot renew their Leases.
    let agent = |request: &windlass_api_server::faults::RequestSummary| {
        request.resource == "leases" && request.is_write()
    };
    tenants.world.api.inject_fault(move |asked| agent(asked).then_some(FaultAction::Partition));
    tenants.world.pass(20).await;
    let turns = tenants.diary.lock().expect("not poisoned").len();
    tenants.ask();
    tenants.world.pass(10).await;
    assert_eq!(tenants.diary.lock().expect("not poisoned").len(), turns, "no shard is held");
    tenants.world.api.inject_fault(|_| None);
    tenants.world.pass(60).await;
    assert!(tenants.done().iter().all(Option::is_some), "{:?}", tenants.holders());
    assert_eq!(tenants.shares(), even(&[("one", 2), ("two", 2)]), "neither process has ended");
    tenants.never_two_at_once();
    one.stops().await;
    two.stops().await;
}

// parity: lost-lease-ends-process
#[tokio::test(start_paused = true)]
async fn replica_that_loses_one_shard_continues_with_its_other_shards() {
    let mut tenants = Tenants::new();
    let one = tenants.start(four_shards("one"));
    tenants.world.pass(30).await;
    let division = tenants.division();
    let lost = |tenant: usize| division.shard_of(hash(&format!("tenant-{tenant}"))) == ShardId(1);
    assert!((0..NAMESPACES).any(lost) && !(0..NAMESPACES).all(lost), "both sides have tenants");
    let terms = [0, 2, 3].map(|shard| tenants.term(shard));
    tenants
        .world
        .api
        .inject_fault(|asked| (asked.name == "windlass-shard-1").then_some(FaultAction::Partition));
    tenants.world.pass(20).await;
    tenants.ask();
    tenants.world.pass(20).await;
    for (tenant, done) in tenants.done().into_iter().enumerate() {
        assert_eq!(done.is_none(), lost(tenant), "tenant-{tenant}");
    }
    assert_eq!(
        [0, 2, 3].map(|shard| tenants.term(shard)),
        terms,
        "the other shards are held without a break"
    );
    tenants.world.api.inject_fault(|_| None);
    tenants.world.pass(60).await;
    assert_eq!(tenants.done(), vec![Some("one".to_owned()); NAMESPACES], "the shard is acquired again");
    one.stops().await;
}

// parity: replica-runs-all-controllers
#[tokio::test(start_paused = true)]
async fn explain_names_holder_of_key_in_another_shard() {
    let tenants = Tenants::new();
    let env = tenants.world.env.with_incarnation("one", 0);
    let manager = tenants.world.manager(&env, four_shards("one")).register(porter(&tenants.diary));
    let (explainer, pages) = (manager.explainer().clone(), manager.pages().clone());
    let one = tenants.world.run(env, manager);
    let two = tenants.start(four_shards("two"));
    tenants.world.pass(60).await;
    let mut elsewhere = 0;
    for (number, by) in tenants.done().into_iter().enumerate() {
        let key = ObjectKey::namespaced(&format!("tenant-{number}"), "web");
        let explanation = explainer.explain("porter", &key).expect("it runs");
        let line = explanation.to_string().lines().next().unwrap_or_default().to_owned();
        if line.starts_with("other shard") {
            elsewhere += 1;
            assert!(line.contains("two"), "{line}");
        } else {
            assert!(by.is_some() && line.starts_with("done"), "{line}");
        }
    }
    assert!(elsewhere > 0 && elsewhere < NAMESPACES, "{elsewhere}");
    let (_, page) = pages.find("/debug/shards").expect("a page");
    let request = windlass_admin::PageRequest {
        path: "/debug/shards".to_owned(),
        query: Vec::new(),
        accept: String::new(),
        reviewed: true,
    };
    let text = String::from_utf8(page(&request).body.to_vec()).expect("text");
    assert!(
        text.contains("members: one, two") && text.matches("this replica: working").count() == 2,
        "{text}"
    );
    one.stops().await;
    two.stops().await;
}

/// Warnings of this thread, as text.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn about(&self, what: &str) -> Vec<String> {
        let lines = self.0.lock().expect("not poisoned");
        lines.iter().filter(|line| line.contains(what)).cloned().collect()
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("not poisoned").push(line.0);
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// The only replica in its world, with four shards and its endpoints.
struct Observed {
    replica: Replica,
    pages: windlass_admin::Pages,
}

impl Observed {
    fn start(tenants: &Tenants) -> Self {
        let env = tenants.world.env.with_incarnation("one", 0);
        let manager = tenants.world.manager(&env, four_calm_shards("one")).register(porter(&tenants.diary));
        let pages = manager.pages().clone();
        Self { replica: tenants.world.run(env, manager), pages }
    }

    fn page(&self) -> String {
        let path = "/debug/shards".to_owned();
        let (_, page) = self.pages.find(&path).expect("a page");
        let request =
            windlass_admin::PageRequest { path, query: Vec::new(), accept: String::new(), reviewed: true };
        String::from_utf8(page(&request).body.to_vec()).expect("text")
    }

    /// Returns the number of heavy namespaces in the metric.
    fn heavy(&self) -> String {
        let metrics = self.replica.metrics.encode();
        let of = "windlass_shard_heavy_namespaces{name=\"windlass\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(of)).unwrap_or_default().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn shards_follow_existing_namespaces_and_heavy_one_is_reported() {
    let (tenants, warnings) = (Tenants::new(), Warnings::default());
    let _guard = tracing::subscriber::set_default(warnings.clone());
    tenants.fill(0, 100);
    let one = Observed::start(&tenants);
    tenants.world.pass(60).await;
    let division = tenants.division();
    let shard = |number| division.shard_of(hash(&format!("tenant-{number}")));
    let shards: BTreeSet<ShardId> = (0..NAMESPACES).map(shard).collect();
    assert!(shards.len() >= 3, "namespaces are spread: {division}");
    assert!((1..NAMESPACES).all(|other| shard(other) != shard(0)), "the heavy one has its own shard");
    let line = "namespace tenant-0 has 101 objects, more than a fair share (29)";
    assert!(one.page().contains(line), "{}", one.page());
    assert_eq!(one.heavy(), "1");
    let heavy = warnings.about("namespace exceeds a fair share");
    assert!(heavy.len() == 1 && heavy[0].contains("namespace=\"tenant-0\""), "{heavy:?}");
    one.replica.stops().await;
}

// parity: elected-stays-however-work
#[tokio::test(start_paused = true)]
async fn growing_namespace_is_reported_without_useless_rebalance() {
    let (tenants, warnings) = (Tenants::new(), Warnings::default());
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let one = Observed::start(&tenants);
    tenants.world.pass(60).await;
    assert_eq!(one.heavy(), "0");
    let before = tenants.division();
    tenants.fill(3, 300);
    tenants.world.pass(360).await;
    assert_eq!(one.heavy(), "1");
    let line = "namespace tenant-3 has 301 objects, more than a fair share (79)";
    assert!(one.page().contains(line), "{}", one.page());
    let heavy = warnings.about("namespace exceeds a fair share");
    assert!(heavy.len() == 1 && heavy[0].contains("namespace=\"tenant-3\""), "{heavy:?}");
    tenants.world.pass(1_200).await;
    assert_eq!(tenants.division(), before, "another shard boundary would not reduce its load");
    assert_eq!(warnings.about("namespace exceeds a fair share").len(), 1, "it is logged once");
    tenants.never_two_at_once();
    tenants.each_turn_once();
    one.replica.stops().await;
}

// parity: elected-stays-however-work
#[tokio::test(start_paused = true)]
async fn rebalance_during_work_keeps_each_reconcile_unique() {
    let mut tenants = Tenants::new();
    let (one, two) = (tenants.start(four_calm_shards("one")), tenants.start(four_calm_shards("two")));
    tenants.world.pass(60).await;
    let (before, plan) = (tenants.division(), tenants.plan());
    let crowded: Vec<usize> = (0..NAMESPACES)
        .filter(|number| before.shard_of(hash(&format!("tenant-{number}"))) == ShardId(1))
        .collect();
    assert!(crowded.len() > 1, "{before}");
    crowded.iter().for_each(|tenant| tenants.fill(*tenant, 200));
    let load = tenants.loads();
    let mut done_by = BTreeSet::new();
    // A shard map is kept for 15 minutes. All keys are in progress at the count that follows.
    tenants.world.pass(840).await;
    for _ in 0..65 {
        tenants.ask();
        tenants.world.pass(8).await;
        done_by.insert(tenants.done());
    }
    assert_ne!(tenants.division(), before, "{load:?}");
    let heaviest = |loads: [usize; 4]| loads.into_iter().max().unwrap_or_default();
    assert!(heaviest(tenants.loads()) * 3 <= heaviest(load) * 2, "{load:?}, then {:?}", tenants.loads());
    assert_ne!(tenants.plan(), plan);
    assert!(done_by.len() > 1, "some tenants moved");
    let after = tenants.plan();
    tenants.world.pass(700).await;
    assert_eq!(tenants.plan(), after, "no further rebalance");
    assert!(tenants.done().iter().all(Option::is_some));
    tenants.never_two_at_once();
    tenants.each_turn_once();
    one.stops().await;
    two.stops().await;
}

// parity: elected-stays-however-work
#[tokio::test(start_paused = true)]
async fn slight_imbalance_causes_no_rebalance() {
    let tenants = Tenants::new();
    (0..NAMESPACES).for_each(|tenant| tenants.fill(tenant, 40));
    let one = tenants.start(four_calm_shards("one"));
    tenants.world.pass(60).await;
    let (before, load) = (tenants.plan(), tenants.loads());
    tenants.fill(1, 100);
    assert_ne!(tenants.loads(), load);
    tenants.world.pass(1_300).await;
    assert_eq!(tenants.plan(), before);
    one.stops().await;
}

// parity: elected-stays-however-work
#[tokio::test(start_paused = true)]
async fn failed_count_is_retried_and_unchanged_namespaces_skip_counting() {
    let (tenants, warnings) = (Tenants::new(), Warnings::default());
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let one = Observed::start(&tenants);
    tenants.world.pass(60).await;
    let lists = |limit: &str| {
        let sent = tenants.world.api.sent_requests();
        sent.iter().filter(|asked| asked.verb == Some(Verb::List) && asked.uri.ends_with(limit)).count()
    };
    let (checks, counts) = (lists("limit=1"), lists("limit=500"));
    tenants.world.pass(1_100).await;
    assert!(lists("limit=1") >= checks + 3, "it checks every few minutes: {}", lists("limit=1"));
    assert_eq!(lists("limit=500"), counts, "nothing has changed");
    tenants.fill(3, 300);
    tenants.world.api.inject_fault(|asked| {
        let is_list = asked.resource == "configmaps" && asked.verb == Some(Verb::List);
        is_list.then_some(FaultAction::InternalError)
    });
    tenants.world.pass(600).await;
    assert_eq!(one.heavy(), "0", "the count failed");
    assert_eq!(warnings.about("count of objects failed").len(), 1, "it is logged once");
    tenants.world.api.inject_fault(|_| None);
    tenants.world.pass(40).await;
    assert_eq!(one.heavy(), "1", "{}", one.page());
    one.replica.stops().await;
}

#[test]
fn invalid_sharding_configuration_is_rejected_with_reason() {
    let cases = [
        (
            ManagerConfig { election: None, ..four_shards("one") },
            "4 shards require leader election, which is disabled",
        ),
        (ManagerConfig { shards: NonZeroU16::new(300), ..four_shards("one") }, "at most 256 shards"),
    ];
    for (config, reason) in cases {
        let error = config.validate().expect_err("refused").to_string();
        assert!(error.contains(reason), "{error}");
    }
}

/// Labels each Node with the replica that reconciled it last.
struct Warden {
    nodes: Lister<Node>,
}

/// Labels each Node like [`Warden`], and does not divide the Nodes.
struct Undivided(Warden);

impl Controller for Undivided {
    const NAME: &'static str = "undivided";
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME).on_one_shard();
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<Node>([Verb::Patch]);
        Ok(Self(Warden { nodes: setup.primary::<Node>().lister() }))
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        self.0.reconcile(key, cx).await
    }
}

fn warden() -> Registration {
    Registration::controller::<Warden>()
}

impl Controller for Warden {
    const NAME: &'static str = "warden";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<Node>([Verb::Patch]);
        Ok(Self {
            nodes: setup.primary::<Node>().with_selection(Selection::default().with_every_shard()).lister(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let me = cx.env().instance();
        let node = self.nodes.get_lossy(key);
        let by = node.as_ref().and_then(|node| node.metadata.labels.as_ref()?.get("by"));
        if node.is_some() && by.map(String::as_str) != Some(me) {
            let nodes: Api<Node> = Api::all(cx.client().clone());
            let patch = Patch::Merge(json!({ "metadata": { "labels": { "by": me } } }));
            nodes.patch(key.name(), &PatchParams::default(), &patch).await?;
        }
        Ok(Outcome::Done)
    }
}

// parity: objects-without-namespace-holder
#[tokio::test(start_paused = true)]
async fn cluster_scoped_objects_are_sharded_by_name_and_taken_over() {
    let world = World::new();
    for number in 0..24 {
        world.api.upsert(&format!("/api/v1/nodes/node-{number}"), json!({}));
    }
    let seen_by = || {
        let mut seen = BTreeMap::<String, usize>::new();
        for node in world.api.all("/api/v1/nodes") {
            let by = node["metadata"]["labels"]["by"].as_str().unwrap_or_default().to_owned();
            *seen.entry(by).or_default() += 1;
        }
        seen
    };
    let one = world.start_controller(four_shards("one"), warden());
    let two = world.start_controller(four_shards("two"), warden());
    world.pass(60).await;
    let seen = seen_by();
    assert!(seen.len() == 2 && seen.values().all(|nodes| *nodes >= 8), "{seen:?}");
    one.dies().await;
    world.env.sleep(LEASE_DURATION + Duration::from_secs(6)).await;
    assert_eq!(seen_by(), even(&[("two", 24)]), "no object has changed, and all keys were enqueued");
    two.stops().await;
}

#[tokio::test(start_paused = true)]
async fn controller_on_one_shard_has_all_keys_on_one_replica() {
    let world = World::new();
    for number in 0..24 {
        world.api.upsert(&format!("/api/v1/nodes/node-{number}"), json!({}));
    }
    let seen_by = || {
        let by = |node: &Value| node["metadata"]["labels"]["by"].as_str().unwrap_or_default().to_owned();
        world.api.all("/api/v1/nodes").iter().map(by).collect::<BTreeSet<String>>()
    };
    let undivided = || Registration::controller::<Undivided>();
    let one = world.start_controller(four_shards("one"), undivided());
    let two = world.start_controller(four_shards("two"), undivided());
    world.pass(60).await;
    let holder = seen_by();
    assert_eq!(holder.len(), 1, "{holder:?}");
    let (dying, other) = if holder.contains("one") { (one, two) } else { (two, one) };
    dying.dies().await;
    world.env.sleep(LEASE_DURATION + Duration::from_secs(6)).await;
    let next = seen_by();
    assert!(next.len() == 1 && next != holder, "{next:?}: all keys were enqueued again");
    other.stops().await;
}

// parity: objects-without-namespace-holder
#[tokio::test(start_paused = true)]
async fn leader_runnable_and_sharded_cluster_kinds_are_rejected() {
    let world = World::new();
    let registration = |every: bool| {
        porter(&Diary::default()).with_settings(move |setup| {
            if every {
                setup.primary::<Node>().with_selection(Selection::default().with_every_shard());
            } else {
                setup.primary::<Node>();
            }
        })
    };
    let one = world.start_controller(four_shards("one"), registration(false));
    let error = one.ended().await.expect_err("refused").to_string();
    assert!(error.contains("cannot shard porter: ") && error.contains("the cluster-scoped "), "{error}");
    let two = world.start_controller(four_shards("two"), registration(true));
    world.pass(30).await;
    assert!(two.ready());
    two.dies().await;
    let env = world.env.with_incarnation("three", 0);
    let led = Registration::task("led", RunsOn::Leader, |_| async { Ok(()) });
    let manager = world.manager(&env, four_shards("three")).register(led);
    let (_trigger, signals) = ShutdownSignals::manual();
    let error = manager.run(signals).await.expect_err("refused").to_string();
    assert!(error.contains("cannot add runnable led: it requires a leader"), "{error}");
}

#[test]
fn fence_of_empty_shard_table_is_closed() {
    use windlass_client::FenceState;
    assert_eq!(ShardTable::default().fence().state(), FenceState::Closed);
}
