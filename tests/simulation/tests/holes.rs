//! One logical create, under each combination of faults of its response and its watch event, with each form of cache:
//! the server executes it once.
//!
//! The table (`--nocapture` prints it) shows the creates that took effect within a minute and until the end of the run,
//! and the time from the create until the controller reconciled the key again. The random plans combine all faults and
//! check the cache reads of each reconcile.
//!
//! `WINDLASS_PLANS` sets the number of random plans for each form of cache (default 20), `WINDLASS_SEED` the first seed
//! (default 1).

#![expect(clippy::print_stdout, reason = "the tables are the result")]

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use windlass_simulation::env_or;
use windlass_simulation::generator::{self, CacheForm, ReconcileRecords};
use windlass_testing::{Cluster, Fault, FaultAction, FaultPlan, Faults, shrink};

/// Time at which the user creates the parent: every watch is open by then.
const CREATED: Duration = Duration::from_secs(60);
/// Duration of the faults of a row, and time of the first count.
const MINUTE: Duration = Duration::from_secs(60);
const PARENT: &str = "web";

/// One combination of faults of a create, its response and its watch event.
struct Row {
    name: &'static str,
    faults: fn() -> Vec<Fault>,
}

const ROWS: &[Row] = &[
    Row { name: "answered, watch sound", faults: Vec::new },
    Row { name: "answered, watch silent", faults: || vec![silent()] },
    Row { name: "answered, watch broken, reads fail for 60 s", faults: || broken().to_vec() },
    Row { name: "answered, watch 12 s late", faults: || vec![late()] },
    Row { name: "answer lost, watch sound", faults: || vec![answer_lost()] },
    Row { name: "answer lost, watch silent", faults: || vec![answer_lost(), silent()] },
    Row { name: "answer lost, watch broken, reads fail for 60 s", faults: answer_lost_and_broken },
    Row { name: "answer lost, watch 12 s late", faults: || vec![answer_lost(), late()] },
    Row { name: "request lost, watch silent", faults: || vec![request_lost(), silent()] },
];

/// Returns a fault by which the open watch sends no more data and does not end.
fn silent() -> Fault {
    at_the_watch(FaultAction::WatchStalled)
}

/// Returns faults by which the open watch breaks, and the server rejects lists and watches for a minute.
fn broken() -> [Fault; 2] {
    let unreadable = Fault::until(CREATED + MINUTE, FaultAction::ReadsUnavailable).for_resource("secrets");
    [at_the_watch(FaultAction::WatchReset), unreadable.from(CREATED - Duration::from_secs(1))]
}

/// Returns a fault by which each event of the next minute arrives 12 s late.
fn late() -> Fault {
    let late = Fault::until(CREATED + MINUTE, FaultAction::Coalesced { within_ms: 12_000 });
    late.from(CREATED - Duration::from_secs(1)).for_resource("secrets")
}

fn answer_lost() -> Fault {
    at_the_create(FaultAction::ResponseLost { silently: false })
}

fn request_lost() -> Fault {
    at_the_create(FaultAction::RequestLost { silently: false })
}

fn answer_lost_and_broken() -> Vec<Fault> {
    [answer_lost()].into_iter().chain(broken()).collect()
}

fn at_the_watch(action: FaultAction) -> Fault {
    let at = CREATED - Duration::from_secs(1);
    Fault::until(at + Duration::from_millis(1), action).from(at).for_resource("secrets")
}

fn at_the_create(action: FaultAction) -> Fault {
    Fault::until(CREATED + Duration::from_millis(50), action).from(CREATED).for_resource("secrets")
}

/// Runs one row with one form of cache. Returns the creates within a minute, all creates, and the time until the next
/// reconcile.
fn run(row: &Row, form: CacheForm) -> (usize, usize, Option<Duration>) {
    let turns = ReconcileRecords::default();
    let mut within_a_minute = 0;
    let mut in_all = 0;
    let script = async |cluster: Cluster| {
        cluster.run([generator::registration(form, &turns)]);
        generator::namespace(&cluster).await;
        cluster.advance(CREATED.saturating_sub(cluster.env().now().since_origin())).await;
        generator::parent(&cluster, PARENT, 1).await;
        cluster.advance(MINUTE).await;
        within_a_minute = generator::children(&cluster.snapshot(), PARENT);
        cluster.advance(10 * MINUTE).await;
        in_all = generator::children(&cluster.snapshot(), PARENT);
    };
    let plan = FaultPlan { seed: 1, faults: (row.faults)() };
    let run = form.simulation(1).plan(plan).run(script);
    run.unwrap_or_else(|failure| panic!("{} over {form:?}: {failure}", row.name));
    (within_a_minute, in_all, turns.resumed_after(&generator::key(PARENT)))
}

// parity: ensure-ready
#[test]
fn server_executes_a_create_once_with_each_form_of_cache() {
    let mut repeated = Vec::new();
    println!("{:<48} {:<10} {:>6} {:>6} {:>10}", "row", "cache", "60 s", "in all", "resumed");
    for row in ROWS {
        for form in CacheForm::ALL {
            let (within_a_minute, in_all, resumed) = run(row, form);
            let resumed = resumed.map_or_else(|| "never".to_owned(), |after| format!("{after:.1?}"));
            let form = format!("{form:?}");
            println!("{:<48} {form:<10} {within_a_minute:>6} {in_all:>6} {resumed:>10}", row.name);
            if in_all != 1 {
                repeated.push(format!("{} over {form}: {in_all}", row.name));
            }
        }
    }
    assert!(repeated.is_empty(), "creates that did not take effect exactly once: {repeated:#?}");
}

/// A conversion fails for a minute in which the parent changes: the watch returns the parent undecodable, and a later
/// list returns it decodable at the same version. Each list follows a watch that expires.
#[test]
fn cache_contains_object_that_becomes_decodable_at_its_version() {
    let undecodable = Fault::until(CREATED + 2 * MINUTE, FaultAction::Poison { name: PARENT.into() });
    let expires =
        |at: Duration| Fault::until(at + Duration::from_millis(1), FaultAction::WatchExpired).from(at);
    let faults = vec![
        undecodable.from(CREATED + MINUTE),
        expires(CREATED + MINUTE + Duration::from_secs(10)),
        expires(CREATED + 2 * MINUTE + Duration::from_secs(10)),
    ];
    let faults = faults.into_iter().map(|fault| fault.for_resource("configmaps")).collect();
    let simulation = CacheForm::Plain.simulation(1).plan(FaultPlan { seed: 1, faults });
    let simulation = simulation.caches_of::<ConfigMap>().convergence_timeout(MINUTE);
    let script = async |cluster: Cluster| {
        cluster.run([generator::registration(CacheForm::Plain, &ReconcileRecords::default())]);
        generator::namespace(&cluster).await;
        generator::parent(&cluster, PARENT, 1).await;
        cluster.advance(CREATED + MINUTE + Duration::from_secs(30)).await;
        generator::regenerate(&cluster, PARENT, 2).await;
        cluster.advance(2 * MINUTE).await;
    };
    simulation.run(script).unwrap_or_else(|failure| panic!("{failure}"));
}

fn every_generation_has_one_child(form: CacheForm) {
    let (plans, first) = (env_or("WINDLASS_PLANS", 20), env_or("WINDLASS_SEED", 1_u64));
    assert!(plans > 0, "a campaign needs at least one plan");
    let simulation = |seed| form.simulation(seed).with_read_checks(true);
    let script = generator::generations(form);
    let quiet = simulation(first).plan(FaultPlan::without_faults(first)).run(&script);
    let quiet = quiet.unwrap_or_else(|failure| panic!("the run without faults failed: {failure}"));
    let mut failed = 0;
    for seed in first..first + plans {
        let simulation = simulation(seed).faults(Faults::all());
        if let Err(failure) = simulation.run_compared_to(Some(&quiet), &script) {
            println!("{}", shrink(&simulation, &quiet, failure, &script));
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "plans failed over {form:?}; they are printed above");
}

#[test]
fn random_faults_repeat_no_create_with_plain_cache() {
    every_generation_has_one_child(CacheForm::Plain);
}

#[test]
fn random_faults_repeat_no_create_with_namespaced_cache() {
    every_generation_has_one_child(CacheForm::Namespaced);
}

#[test]
fn random_faults_repeat_no_create_with_selected_cache() {
    every_generation_has_one_child(CacheForm::Selected);
}

#[test]
fn random_faults_repeat_no_create_with_sharded_cache() {
    every_generation_has_one_child(CacheForm::Sharded);
}
