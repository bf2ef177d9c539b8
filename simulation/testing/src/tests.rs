//! Planted bugs that the oracles must detect, and correct controllers that they must not report.

mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{PostParams, WatchParams};
use windlass_api_server::faults::{Fault, FaultAction, FaultPlan};
use windlass_controller::{
    Context, Controller, Descriptor, Outcome, ReconcileError, Registration, Setup, SetupError, by_owner,
    terminal,
};
use windlass_env::{Env, catch_panic};
use windlass_informer::Lister;
use windlass_object::{ObjectKey, ResourceKind, Scope, Verb};

use crate::{
    Cluster, Faults, Simulation, SimulationFailure, Violation, exhaustive_crash, exhaustive_rejection,
    random_plans, server, with_controllers,
};

/// Creates one Secret for every ConfigMap and sets a marker on the ConfigMap.
struct Mirror {
    maps: Lister<ConfigMap>,
    secrets: Lister<Secret>,
    habit: Habit,
}

/// Planted bug of a mirror, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// No bug.
    Sound,
    /// Lets the server generate the Secret's name, so that a second Secret is not rejected.
    Draws,
    /// Returns `Done` after the first of two writes, if that write fails.
    GivesUp,
    /// Writes every ten seconds forever although nothing has changed.
    Restless,
    /// Writes four times a second, for five minutes.
    Busy,
    /// Leaves a task running.
    Leaks,
    /// Opens watches in a loop.
    Spins,
    /// Writes a Lease that is not an election Lease, with a holder that does not exist.
    Leases,
    /// Does the same without a declared rule.
    Undeclared,
    /// Takes two minutes for a write.
    Slow,
    /// Writes only an Event every two seconds.
    Records,
    /// Fails every reconcile; that of `web-2` with a terminal error.
    Fails,
}

impl Mirror {
    fn registration(habit: Habit) -> Registration {
        Registration::controller_with::<Self>(habit)
    }

    fn declare(setup: &mut Setup, habit: Habit) -> Result<Self, SetupError> {
        setup.uses::<Secret>([Verb::Create]);
        setup.uses::<ConfigMap>([Verb::Update]);
        if habit == Habit::Leases {
            setup.uses::<Lease>([Verb::Create]);
        }
        Ok(Self {
            maps: setup.primary::<ConfigMap>().lister(),
            secrets: setup.watch::<Secret>().enqueue(by_owner::<ConfigMap>).lister(),
            habit,
        })
    }

    fn secret(&self, map: &ConfigMap) -> Secret {
        let name = map.metadata.name.clone().unwrap_or_default();
        let (drawn, given) = if self.habit == Habit::Draws {
            (Some(format!("{name}-")), None)
        } else {
            (None, Some(name.clone()))
        };
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            controller: Some(true),
            name,
            uid: map.metadata.uid.clone().unwrap_or_default(),
            ..OwnerReference::default()
        };
        let metadata = ObjectMeta {
            name: given,
            generate_name: drawn,
            namespace: map.metadata.namespace.clone(),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        Secret { metadata, ..Secret::default() }
    }

    /// Returns whether the Secret exists. With generated names, only the marker on the ConfigMap counts.
    fn has_secret(&self, key: &ObjectKey, map: &ConfigMap) -> bool {
        match self.habit {
            Habit::Draws => noted(map).is_some(),
            _ => self.secrets.get_lossy(key).is_some(),
        }
    }
}

fn noted(map: &ConfigMap) -> Option<&String> {
    map.data.as_ref().and_then(|data| data.get("mirrored"))
}

impl Controller for Mirror {
    const NAME: &'static str = "mirror";
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME);
    type Config = Habit;

    fn setup(setup: &mut Setup, habit: &Habit) -> Result<Self, SetupError> {
        Self::declare(setup, *habit)
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(map) = self.maps.get(key)? else { return Ok(Outcome::Done) };
        if !key.name().starts_with("web") {
            return Ok(Outcome::Done);
        }
        if self.habit == Habit::Records {
            let message = format!("seen at {}", cx.env().wall());
            cx.events().normal(&*map, "Seen", message);
            return Ok(Outcome::RequeueAfter(Duration::from_secs(2)));
        }
        if self.habit == Habit::Fails {
            let error = std::io::Error::other("no space left");
            return Err(if key.name() == "web-2" { terminal(error) } else { error.into() });
        }
        if self.habit == Habit::Leaks {
            let env = cx.env().clone();
            drop(tokio_leak(env.sleep(Duration::MAX)));
        }
        if self.habit == Habit::Spins {
            let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "default");
            for _ in 0..100 {
                drop(maps.watch(&WatchParams::default(), "0").await?);
            }
        }
        if matches!(self.habit, Habit::Leases | Habit::Undeclared) {
            let leases: Api<Lease> = Api::namespaced(cx.client().clone(), "default");
            drop(leases.create(&PostParams::default(), &unrelated_lease(key.name())).await);
        }
        let again = match self.habit {
            Habit::Restless => Some(Duration::from_secs(10)),
            Habit::Busy if cx.env().wall().as_second() % 86_400 < 300 => Some(Duration::from_millis(250)),
            _ => None,
        };
        if let Some(pause) = again {
            cx.env().sleep(pause).await;
        }
        if self.habit == Habit::Slow && !self.has_secret(key, &map) {
            cx.env().sleep(Duration::from_secs(120)).await;
        }
        let namespace = key.namespace().unwrap_or_default();
        if !self.has_secret(key, &map) {
            let secrets: Api<Secret> = Api::namespaced(cx.client().clone(), namespace);
            let created = secrets.create(&PostParams::default(), &self.secret(&map)).await;
            match created {
                Err(_) if self.habit == Habit::GivesUp => return Ok(Outcome::Done),
                created => drop(created?),
            }
        }
        if noted(&map).is_none() || again.is_some() {
            let version = map.metadata.resource_version.clone().unwrap_or_default();
            let note = if again.is_some() { version } else { "yes".to_owned() };
            let mut map = ConfigMap::clone(&map);
            map.data.get_or_insert_default().insert("mirrored".into(), note);
            let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), namespace);
            maps.replace(key.name(), &PostParams::default(), &map).await?;
        }
        Ok(Outcome::Done)
    }
}

fn unrelated_lease(name: &str) -> Lease {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    let spec = LeaseSpec { holder_identity: Some("unknown".into()), ..LeaseSpec::default() };
    Lease { metadata, spec: Some(spec) }
}

/// Starts a task that belongs to no Env.
#[expect(clippy::disallowed_methods, reason = "the bug that the oracle must detect")]
fn tokio_leak(work: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(work)
}

async fn two_maps(cluster: Cluster, habit: Habit) {
    cluster.run([Mirror::registration(habit)]);
    for name in ["web-1", "web-2"] {
        let metadata = ObjectMeta {
            name: Some(name.into()),
            namespace: Some("default".into()),
            ..ObjectMeta::default()
        };
        cluster.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
        cluster.advance(Duration::from_secs(20)).await;
    }
    cluster.settle().await;
}

fn crashes(habit: Habit) -> Result<u64, Violation> {
    let simulation = Simulation::new(3).caches_of::<ConfigMap>().caches_of::<Secret>();
    exhaustive_crash(&simulation, async |cluster| two_maps(cluster, habit).await)
        .map(|summary| summary.runs)
        .map_err(|failure| failure.violation)
}

#[test]
fn sound_controller_survives_a_crash_at_each_write() {
    assert_eq!(crashes(Habit::Sound), Ok(8), "two writes for each of two maps, each with two crashes");
}

#[test]
fn second_generated_name_after_a_crash_is_reported() {
    let violation = crashes(Habit::Draws).expect_err("a second Secret");
    assert!(
        matches!(violation, Violation::StateDiffers { .. } | Violation::CreatedTooOften { .. }),
        "{violation}"
    );
}

fn rejections(habit: Habit) -> Result<u64, Violation> {
    exhaustive_rejection(&Simulation::new(3), async |cluster| two_maps(cluster, habit).await)
        .map(|summary| summary.runs)
        .map_err(|failure| {
            assert_eq!(failure.plan.faults.len(), 1, "only the fault that was injected remains: {failure}");
            failure.violation
        })
}

#[test]
fn each_write_is_rejected_once_with_and_without_effect() {
    assert_eq!(rejections(Habit::Sound), Ok(8), "two writes for each of two maps, each with two errors");
    let swallowed = rejections(Habit::GivesUp).expect_err("a Secret is missing");
    assert!(matches!(swallowed, Violation::StateDiffers { .. }), "{swallowed}");
    let doubled = rejections(Habit::Draws).expect_err("a second Secret");
    assert!(
        matches!(doubled, Violation::StateDiffers { .. } | Violation::CreatedTooOften { .. }),
        "{doubled}"
    );
}

#[test]
fn failed_write_without_retry_is_reported_with_one_fault() {
    let simulation = Simulation::new(1).minutes(1).faults(Faults::all()).resources(["secrets"]);
    let failure = random_plans(&simulation, 200, async |cluster| two_maps(cluster, Habit::GivesUp).await)
        .expect_err("a Secret is missing");
    assert!(matches!(failure.violation, Violation::StateDiffers { .. }), "{failure}");
    assert_eq!(failure.plan.faults.len(), 1, "{failure}");
    assert!(failure.to_string().contains("fn plan() -> windlass::testing::FaultPlan {"), "{failure}");
    let again = simulation.plan(failure.plan.clone());
    let quiet = again
        .clone()
        .plan(FaultPlan::without_faults(1))
        .run(async |cluster| two_maps(cluster, Habit::GivesUp).await);
    let seen = again.run_compared_to(Some(&quiet.expect("sound")), async |cluster| {
        two_maps(cluster, Habit::GivesUp).await;
    });
    assert_eq!(
        seen.map_err(|it| it.violation).err(),
        Some(failure.violation),
        "the printed plan reproduces it"
    );
}

#[test]
fn failure_names_keys_whose_last_reconcile_failed() {
    let simulation = Simulation::new(3).convergence_timeout(Duration::from_secs(60));
    let script = async |cluster: Cluster| {
        two_maps(cluster.clone(), Habit::Fails).await;
        cluster.eventually("a Secret exists", |_| false).await;
    };
    let failure = simulation.run(script).expect_err("the condition never holds");
    assert!(matches!(failure.violation, Violation::Timeout { .. }), "{failure}");
    let named: Vec<_> = failure.unfinished.iter().map(|line| line.contains("no space left")).collect();
    assert_eq!(named, [true, true], "{failure}");
    assert!(failure.to_string().contains("mirror default/web-1, "), "{failure}");
    let terminal = "mirror default/web-2, not retried until a change: no space left";
    assert!(failure.to_string().contains(terminal), "{failure}");
    assert!(
        failure.to_string().ends_with("the run had no faults: the same test reproduces it\n"),
        "{failure}"
    );
}

/// Watches a kind without a CRD.
struct Keeper;

impl Controller for Keeper {
    const NAME: &'static str = "keeper";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        let kind = ResourceKind {
            group: "example.com".into(),
            version: "v1".into(),
            kind: "Lamp".into(),
            plural: "lamps".into(),
            scope: Scope::Namespaced,
        };
        drop(setup.watch_dynamic(kind).primary());
        Ok(Self)
    }

    async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
        Ok(Outcome::Done)
    }
}

#[test]
fn failure_names_controllers_that_wait_for_caches() {
    let simulation = Simulation::new(3).convergence_timeout(Duration::from_secs(60));
    let script = async |cluster: Cluster| {
        cluster.run([Registration::controller::<Keeper>()]);
        cluster.eventually("a Lamp is lit", |_| false).await;
    };
    let failure = simulation.run(script).expect_err("the condition never holds");
    let cause = "keeper: waiting for caches (1 informer(s) not synced: lamps.v1.example.com (all): not served; check that";
    assert!(failure.unfinished.iter().any(|line| line.contains(cause)), "{failure}");
}

#[test]
fn controller_that_never_becomes_idle_is_reported() {
    let run = Simulation::new(3).run(async |cluster| two_maps(cluster, Habit::Restless).await);
    assert!(matches!(run.map_err(|it| it.violation), Err(Violation::NotConverged { .. })));
}

#[test]
fn signal_to_unknown_process_fails_and_names_the_replicas() {
    for signal in [Cluster::kill, Cluster::terminate] {
        let run = Simulation::new(3).run(async |cluster| signal(&cluster, "c"));
        let Err(Violation::Panicked(message)) = run.map_err(|it| it.violation) else { panic!("no panic") };
        assert!(message.contains("\"c\": no process has this name; use one of a, b"), "{message}");
    }
}

#[test]
fn task_outside_every_env_is_reported() {
    let run = Simulation::new(3).run(async |cluster| two_maps(cluster, Habit::Leaks).await);
    assert!(matches!(run.map_err(|it| it.violation), Err(Violation::LeakedTasks { .. })));
}

#[test]
fn watch_opened_in_a_loop_is_reported() {
    let run = Simulation::new(3).run(async |cluster| two_maps(cluster, Habit::Spins).await);
    assert!(matches!(run.map_err(|it| it.violation), Err(Violation::WatchReopenedTooOften { .. })));
}

#[test]
fn lease_outside_the_election_makes_no_leader() {
    let run = Simulation::new(3).run(async |cluster| two_maps(cluster, Habit::Leases).await);
    assert_eq!(run.map_err(|it| it.violation).map(|report| report.writes), Ok(4));
}

#[test]
fn undeclared_request_is_reported_although_its_error_is_ignored() {
    let run = Simulation::new(3).run(async |cluster| two_maps(cluster, Habit::Undeclared).await);
    let Err(Violation::Undeclared { requests, .. }) = run.map_err(|it| it.violation) else {
        panic!("not found")
    };
    assert!(requests.contains(r#"resource="leases",verb="create""#), "{requests}");
}

/// Returns the trace of processes that receive this many stop signals one second after an object was created.
fn terminated(habit: Habit, times: u32, faults: Vec<Fault>) -> Result<String, Violation> {
    let script = async |cluster: Cluster| {
        cluster.run([Mirror::registration(habit)]);
        cluster.advance(Duration::from_secs(29)).await;
        let metadata = ObjectMeta {
            name: Some("web".into()),
            namespace: Some("default".into()),
            ..ObjectMeta::default()
        };
        cluster.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
        cluster.advance(Duration::from_secs(1)).await;
        (0..times).for_each(|_| ["a", "b"].iter().for_each(|name| cluster.terminate(name)));
        cluster.eventually("there is a Secret", |now| now.get::<Secret>("web").is_some()).await;
    };
    let simulation = Simulation::new(3)
        .plan(FaultPlan { seed: 3, faults })
        .with_config(|config| config.shutdown_timeout = Duration::from_secs(2))
        .replicas(2)
        .with_full_trace();
    simulation.run(script).map(|report| report.trace).map_err(|failure| failure.violation)
}

#[test]
fn process_that_faults_prevent_from_stopping_is_not_reported() {
    let delayed = Fault::until(Duration::from_secs(90), FaultAction::ResponseDelayed { by_ms: 60_000 });
    let delayed = delayed.from(Duration::from_secs(25)).for_resource("secrets");
    let lost = Fault::until(Duration::from_secs(60), FaultAction::RequestLost { silently: false });
    let lost = lost.from(Duration::from_millis(29_990)).for_resource("leases");
    let cases = [
        (Habit::Sound, 1, vec![], "ends"),
        (Habit::Sound, 1, vec![delayed], "did not stop within 2"),
        (Habit::Sound, 1, vec![lost], "cannot release the lease"),
        (
            Habit::Slow,
            2,
            vec![],
            "shutdown aborted by a second signal; a held Lease expires after the lease duration",
        ),
    ];
    for (habit, times, faults, how) in cases {
        let what = format!("{habit:?}, {times} times, {faults:?}");
        let trace =
            terminated(habit, times, faults).unwrap_or_else(|violation| panic!("{what}: {violation}"));
        let of_first_lives: Vec<&str> = trace.lines().filter(|line| line.contains("/0 ")).collect();
        let ended = of_first_lives.iter().any(|line| line.contains(how));
        assert!(ended, "{what}: {:#?}", &of_first_lives[of_first_lives.len().saturating_sub(30)..]);
    }
}

#[test]
fn process_that_does_not_stop_without_faults_is_reported() {
    let of_another = Fault::until(Duration::from_secs(90), FaultAction::RequestDelayed { by_ms: 1 })
        .for_instance("another");
    for faults in [vec![], vec![of_another]] {
        let Err(Violation::UnexpectedExit { error, .. }) = terminated(Habit::Slow, 1, faults) else {
            panic!("not found")
        };
        assert!(error.contains("did not stop within"), "{error}");
    }
}

#[test]
fn campaign_that_cannot_fail_is_rejected() {
    let plan = FaultPlan::without_faults(1);
    let fault = Fault::until(Duration::from_secs(1), FaultAction::Unavailable);
    let thought_out = FaultPlan { seed: 1, faults: vec![fault] };
    let cases = [
        (Simulation::new(1), 3, "no run has a fault"),
        (Simulation::new(1).faults(Faults::all()), 0, "a count above zero"),
        (Simulation::new(1).faults(Faults::all()).plan(plan), 3, "the same plan"),
        (Simulation::new(1).plan(thought_out), 3, "the same plan"),
    ];
    for (simulation, count, why) in cases {
        let refused = random_plans(&simulation, count, async |_| panic!("the script must not run"));
        let Err(Violation::VacuousCampaign(said)) = refused.map_err(|failure| failure.violation) else {
            panic!("{simulation:?} is not rejected")
        };
        assert!(said.contains(why), "{said}");
    }
    let failure = exhaustive_rejection(&Simulation::new(1), async |_| {}).expect_err("no write");
    assert!(failure.to_string().contains("sends no write"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_controller_panics_the_test() {
    let env = Env::virtual_time(1);
    let server = server(&env);
    let registration = Mirror::registration(Habit::Sound).with_settings(|_| panic!("boom"));
    // The script would wait forever for an object that no controller creates.
    let run = with_controllers(&env, &server, "test", [registration], std::future::pending::<()>());
    let message = catch_panic(run).await.expect_err("it panics");
    assert!(message.contains("boom") && message.contains("\"test\""), "{message}");
}

fn violation_of(script: impl AsyncFnOnce(Cluster)) -> Option<Violation> {
    Simulation::new(5).run(script).map_err(|failure: SimulationFailure| failure.violation).err()
}

#[test]
fn run_ends_on_panic_unmet_condition_and_frozen_time() {
    assert_eq!(violation_of(async |_| panic!("no")), Some(Violation::Panicked("no".into())));
    let never = violation_of(async |cluster: Cluster| cluster.eventually("the moon", |_| false).await);
    assert!(matches!(never, Some(Violation::Timeout { condition, .. }) if condition == "the moon"));
    let frozen = violation_of(async |cluster: Cluster| {
        let env = cluster.env().clone();
        drop(env.spawn("busy", async {
            loop {
                tokio::task::yield_now().await;
            }
        }));
        cluster.advance(Duration::from_secs(1)).await;
    });
    assert_eq!(frozen, Some(Violation::Livelock { task: "busy".into() }));
    let endless = violation_of(async |cluster: Cluster| cluster.advance(Duration::MAX).await);
    assert!(matches!(endless, Some(Violation::VirtualTimeLimit(_))));
}

#[test]
fn seed_replays_one_history_under_all_faults() {
    let run = |seed| {
        let simulation = Simulation::new(seed).minutes(5).faults(Faults::all()).with_full_trace();
        simulation
            .run(async |cluster| two_maps(cluster, Habit::Sound).await)
            .unwrap_or_else(|it| panic!("{it}"))
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11).trace, run(12).trace);
}

/// Runs a controller that writes continuously.
async fn busy_mirror(cluster: Cluster, span: Duration) {
    cluster.run([Mirror::registration(Habit::Busy)]);
    let metadata =
        ObjectMeta { name: Some("web".into()), namespace: Some("default".into()), ..ObjectMeta::default() };
    cluster.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    cluster.advance(span).await;
}

/// Clock rates whose ratio a Lease tolerates, and one ratio that it does not, to test both the fence and the oracle.
#[test]
fn two_leaders_are_reported_if_clock_rates_differ_too_much() {
    let script = async |cluster: Cluster| busy_mirror(cluster, Duration::from_secs(300)).await;
    let rate = |name: &str, numerator, denominator| {
        Fault::until(Duration::ZERO, FaultAction::ClockRate { numerator, denominator }).for_instance(name)
    };
    let cut = |name: &str| {
        // Renewals of the holder fail, and its other requests succeed.
        let lost = FaultAction::RequestLost { silently: false };
        Fault::until(Duration::from_secs(290), lost)
            .from(Duration::from_secs(30))
            .for_instance(name)
            .for_resource("leases")
    };
    let judged = |slow: (u32, u32), fast: (u32, u32)| {
        (0..3).find_map(|seed| {
            let faults = vec![rate("a", slow.0, slow.1), rate("b", fast.0, fast.1), cut("a")];
            let violation =
                Simulation::new(seed).plan(FaultPlan { seed, faults }).run(script).err()?.violation;
            matches!(violation, Violation::SplitBrain { .. } | Violation::WriteWithoutLease { .. })
                .then_some(violation)
        })
    };
    assert_eq!(judged((1, 1), (1, 1)), None);
    assert_eq!(judged((4, 5), (6, 5)), None, "the limit");
    assert!(matches!(judged((1, 2), (2, 1)), Some(Violation::SplitBrain { .. })), "far beyond it");
}

#[test]
fn suspended_leader_sends_no_write_under_a_lease_that_expired_meanwhile() {
    let script = async |cluster: Cluster| busy_mirror(cluster, Duration::from_secs(100)).await;
    let suspended = |name: &str| {
        let lost = FaultAction::RequestLost { silently: false };
        // Neither a renewal nor a watch of the Lease reports another holder to the process.
        let blind = [(25, 100, FaultAction::WatchHeld), (30, 100, lost)];
        let blind = blind.map(|(from, until, what)| {
            Fault::until(Duration::from_secs(until), what)
                .from(Duration::from_secs(from))
                .for_instance(name)
                .for_resource("leases")
        });
        let suspended =
            Fault::until(Duration::from_secs(60), FaultAction::Suspend).from(Duration::from_secs(30));
        [suspended.for_instance(name)].into_iter().chain(blind).collect::<Vec<_>>()
    };
    // Either replica can win the first election, so both plans are needed.
    for name in ["a", "b"] {
        let plan = FaultPlan { seed: 1, faults: suspended(name) };
        let run = Simulation::new(1).plan(plan).run(script);
        run.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// The fence of a slow clock ends too late for a fast one, as in
/// [`two_leaders_are_reported_if_clock_rates_differ_too_much`].
#[test]
fn event_sent_after_lease_is_lost_is_reported() {
    let script = async |cluster: Cluster| {
        cluster.run([Mirror::registration(Habit::Records)]);
        cluster.advance(Duration::from_secs(20)).await;
        let metadata = ObjectMeta {
            name: Some("web".into()),
            namespace: Some("default".into()),
            ..ObjectMeta::default()
        };
        cluster.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
        cluster.advance(Duration::from_secs(100)).await;
    };
    let rate = |name: &str, numerator, denominator| {
        Fault::until(Duration::ZERO, FaultAction::ClockRate { numerator, denominator }).for_instance(name)
    };
    let lost = Fault::until(Duration::from_secs(90), FaultAction::RequestLost { silently: false });
    let lost = lost.from(Duration::from_secs(25)).for_instance("a").for_resource("leases");
    let run = |seed: u64, rates: Vec<Fault>| {
        let faults = rates.into_iter().chain([lost.clone()]).collect();
        Simulation::new(seed)
            .plan(FaultPlan { seed, faults })
            .run(script)
            .map_err(|failure| failure.violation)
    };
    let sound = run(1, Vec::new()).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(sound.writes, 0, "it sends events only");
    let violation = (0..3).find_map(|seed| run(seed, vec![rate("a", 1, 2), rate("b", 2, 1)]).err());
    let violation = violation.expect("an event is sent under a lost lease");
    assert!(
        matches!(violation, Violation::WriteWithoutLease { .. } | Violation::SplitBrain { .. }),
        "{violation}"
    );
    assert!(violation.to_string().contains("/events"), "{violation}");
}

/// An `Arc` is sufficient to run a simulation on a custom server.
#[test]
fn simulation_runs_on_a_custom_server() {
    use windlass_api_server::{ApiServer, ApiServerOptions};
    let simulation =
        Simulation::with_server(1, |env| Arc::new(ApiServer::new(env, ApiServerOptions::default())));
    let report = simulation.run(async |cluster| {
        assert!(cluster.advance(Duration::ZERO).now_or_never().is_some());
    });
    assert!(report.is_ok_and(|report| report.writes == 0));
}
