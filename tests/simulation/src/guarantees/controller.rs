//! A minimal controller in two processes: a Secret for each ConfigMap, with its value. One key always fails, one panics
//! at first, and the mapper panics for one object. The controller itself checks the guarantees of each reconcile, and
//! that each of these panics is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;
use windlass_controller::{
    Context, Controller, Descriptor, Outcome, ReconcileError, Registration, Setup, SetupError, by_self, retry,
};
use windlass_env::{Env, Instant};
use windlass_informer::Lister;
use windlass_metrics::Metrics;
use windlass_object::{ObjectKey, Uid, Verb};
use windlass_testing::{Cluster, FaultPlan, Faults, Report, Simulation, Snapshot, object};

use crate::guarantees::family::{Family, ON_PURPOSE};

/// Simulations of a controller.
pub const FAMILY: Family = Family { name: "controller", draw, run, regressions: REGRESSIONS };

/// A standby whose list was lost in a partition became leader, timed out waiting for a relist, and recreated objects
/// that its predecessor had deleted.
const REGRESSIONS: &[&str] = &[r##"{"seed": 6493, "faults": [
    {"from_ms": 166507, "until_ms": 180000, "instance": "b", "what": "Crash"},
    {"from_ms": 59198, "until_ms": 166551, "instance": "a", "what": "Partition"},
    {"from_ms": 78562, "until_ms": 88267, "what": "WatchExpired"}
]}"##];

const SPAN: Duration = Duration::from_secs(180);
/// 18 attempts double the backoff from five milliseconds to 15 minutes; the others follow every 15 minutes.
const MAX_ATTEMPTS: usize = 30;
/// Number of panics of a key before it succeeds.
const PANICS: usize = 3;
/// ConfigMap for which the mapper panics.
const TRIPS: &str = "trips";
/// Time after a deletion for which the probe requires that the cache reflects it. The probe does not check later
/// reconciles, although the runtime makes the key wait for a list.
const DELETION_SHOWS: Duration = Duration::from_secs(9);

fn draw(seed: u64) -> FaultPlan {
    Faults::all().plan(seed, SPAN, 2, &["configmaps", "secrets", "leases"].map(str::to_owned))
}

fn run(plan: &FaultPlan) -> Result<u64, String> {
    static QUIET: OnceLock<Report> = OnceLock::new();
    let simulation = Simulation::of(plan.seed).caches_of::<ConfigMap>().caches_of::<Secret>();
    let played = |plan: &FaultPlan, quiet: Option<&Report>| {
        let probe = Arc::new(Probe::default());
        let report = simulation.clone().plan(plan.clone()).run_compared_to(quiet, script(&probe));
        let report = report.map_err(|failure| failure.violation.to_string())?;
        let notes = probe.notes();
        match notes.objections.first().cloned().or_else(|| notes.uncounted()) {
            Some(objection) => Err(objection),
            None => Ok((report, notes.runs)),
        }
    };
    let quiet = match QUIET.get() {
        Some(quiet) => quiet,
        None => {
            let (quiet, _) = played(&FaultPlan::quiet(1), None)?;
            QUIET.get_or_init(|| quiet)
        }
    };
    played(plan, Some(quiet)).map(|(_, runs)| runs)
}

fn script(probe: &Arc<Probe>) -> impl AsyncFnOnce(Cluster) {
    let probe = Arc::clone(probe);
    async move |cluster: Cluster| {
        cluster.run([registration(&probe)]);
        for name in ["bad", "panics", TRIPS, "a", "b", "c"] {
            cluster.create(&source(name, "1")).await;
        }
        let sources = cluster.api::<ConfigMap>();
        let changes =
            [("a", "2"), ("b", "2"), (TRIPS, "2"), ("a", "3"), ("panics", "2"), ("a", "4"), ("c", "5")];
        for (name, value) in changes {
            cluster.advance(SPAN / 9).await;
            let patch = Patch::Merge(json!({ "data": { "value": value } }));
            sources.patch(name, &PatchParams::default(), &patch).await.expect("the user can write");
        }
        sources.delete("b", &DeleteParams::default()).await.expect("the user can delete");
        sources.delete("c", &DeleteParams::default()).await.expect("the user can delete");
        cluster.create(&source("c", "6")).await;
        let wanted = BTreeMap::from([("copy-a", "4"), ("copy-c", "6"), ("copy-panics", "2")]);
        cluster.eventually("every copy is one", |world| copies(world) == wanted).await;
    }
}

fn source(name: &str, value: &str) -> ConfigMap {
    object(json!({ "metadata": { "name": name }, "data": { "value": value } }))
}

fn copies(world: &Snapshot) -> BTreeMap<&str, &str> {
    let secrets = world.objects().iter().filter(|it| it["kind"] == "Secret");
    secrets
        .filter_map(|it| {
            Some((it["metadata"]["name"].as_str()?, it["metadata"]["labels"]["value"].as_str()?))
        })
        .collect()
}

/// Observations of the controller about its reconciles.
#[derive(Default)]
struct Probe(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    objections: Vec<String>,
    runs: u64,
    /// Keys that are being reconciled, by incarnation.
    busy: BTreeSet<(Life, ObjectKey)>,
    /// Version of the last write for a key, by incarnation.
    written: BTreeMap<(Life, ObjectKey), u64>,
    /// UID and time of the last deletion for a key, by incarnation.
    deleted: BTreeMap<(Life, ObjectKey), (Uid, Instant)>,
    attempts: BTreeMap<(Life, ObjectKey), usize>,
    /// Number of panics of reconciles and of the mapper, and the metrics that count them.
    panics: BTreeMap<Life, (u64, Metrics)>,
}

impl Notes {
    /// Returns the first incarnation whose panics are not counted exactly once.
    fn uncounted(&self) -> Option<String> {
        let counted = |metrics: &Metrics| metrics.reconcile(Copier::NAME).panics.get();
        let wrong = |(_, (panics, metrics)): &(&Life, &(u64, Metrics))| counted(metrics) != *panics;
        let (life, (panics, metrics)) = self.panics.iter().find(wrong)?;
        Some(format!("{life:?} panicked {panics} times, and counted {}", counted(metrics)))
    }

    fn panicked(&mut self, life: &Life) {
        if let Some((panics, _)) = self.panics.get_mut(life) {
            *panics += 1;
        }
    }
}

/// Process and incarnation.
type Life = (String, u64);

struct Copier {
    sources: Lister<ConfigMap>,
    copies: Lister<Secret>,
    probe: Arc<Probe>,
}

/// Guard of a key that is being reconciled.
struct Busy<'a> {
    probe: &'a Probe,
    who: (Life, ObjectKey),
}

fn registration(probe: &Arc<Probe>) -> Registration {
    Registration::controller_with::<Copier>(Arc::clone(probe))
}

impl Controller for Copier {
    const NAME: &'static str = "copier-controller";
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME);
    type Config = Arc<Probe>;

    fn setup(setup: &mut Setup, probe: &Arc<Probe>) -> Result<Self, SetupError> {
        setup.uses::<Secret>([Verb::Create, Verb::Update, Verb::Delete]);
        setup.workers(3);
        let of_copy = |copy: &Secret| {
            let source = copy.metadata.name.as_deref().and_then(|name| name.strip_prefix("copy-"));
            source.map(|name| ObjectKey::namespaced("default", name))
        };
        let life = life_of(setup.env());
        probe.notes().panics.insert(life.clone(), (0, setup.metrics().clone()));
        let watched = Arc::clone(probe);
        let of_source = move |source: &ConfigMap| {
            if source.metadata.name.as_deref() == Some(TRIPS) {
                watched.notes().panicked(&life);
                std::panic::panic_any(ON_PURPOSE);
            }
            by_self(source)
        };
        Ok(Self {
            sources: setup.watch::<ConfigMap>().enqueue(of_source).lister(),
            copies: setup.watch::<Secret>().enqueue(of_copy).lister(),
            probe: Arc::clone(probe),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let (_busy, attempt) = self.begin(key, cx.env());
        match key.name() {
            "bad" => return Err(retry("it always fails")),
            "panics" if attempt <= PANICS => {
                self.probe.notes().panicked(&life_of(cx.env()));
                std::panic::panic_any(ON_PURPOSE);
            }
            _ => {}
        }
        let copy_key = copy_of(key);
        let api: Api<Secret> = Api::namespaced(cx.client().clone(), "default");
        let (source, copy) = (self.sources.get(key)?, self.copies.get(&copy_key)?);
        let value = source.as_ref().and_then(|source| source.data.as_ref()?.get("value").cloned());
        let written = match (value, copy) {
            (None, None) => return Ok(Outcome::Done),
            (None, Some(copy)) => {
                if delete(&api, &copy).await? {
                    self.deleted(key, cx.env(), &copy);
                }
                return Ok(Outcome::Done);
            }
            (Some(value), None) => api.create(&PostParams::default(), &secret(copy_key.name(), &value)).await,
            (Some(value), Some(copy)) if value_of(&copy) == Some(&value) => return Ok(Outcome::Done),
            (Some(value), Some(copy)) => {
                let mut changed = Secret::clone(&copy);
                changed.metadata.labels.get_or_insert_default().insert("value".into(), value);
                api.replace(copy_key.name(), &PostParams::default(), &changed).await
            }
        };
        self.wrote(key, cx.env(), &written.map_err(retry)?);
        Ok(Outcome::Done)
    }
}

impl Copier {
    /// Checks the guarantees at the start of a reconcile.
    fn begin(&self, key: &ObjectKey, env: &Env) -> (Busy<'_>, usize) {
        let who = (life_of(env), key.clone());
        let mut notes = self.probe.notes();
        notes.runs += 1;
        if !notes.busy.insert(who.clone()) {
            notes.objections.push(format!("{key} is held by two workers of {:?}", who.0));
        }
        let held = self.copies.version().and_then(|it| it.as_str().parse::<u64>().ok()).unwrap_or_default();
        if let Some(written) = notes.written.get(&who).copied().filter(|written| held < *written) {
            let objection = format!("{key}: its last write is {written}, the cache is at {held}");
            notes.objections.push(objection);
        }
        let shown = self.copies.get_lossy(&copy_of(key)).and_then(|copy| copy.metadata.uid.clone());
        let deleted = notes.deleted.get(&who).filter(|(uid, _)| shown.as_deref() == Some(uid.as_str()));
        if deleted.is_some_and(|(_, at)| env.now().saturating_duration_since(*at) < DELETION_SHOWS) {
            notes.objections.push(format!("{key}: its deleted copy is still cached"));
        }
        let attempt = notes.attempts.entry(who.clone()).or_default();
        *attempt += 1;
        let attempt = *attempt;
        if key.name() == "bad" && attempt > MAX_ATTEMPTS {
            notes
                .objections
                .push(format!("a key that always fails was tried {attempt} times by {:?}", who.0));
        }
        (Busy { probe: &self.probe, who }, attempt)
    }

    fn wrote(&self, key: &ObjectKey, env: &Env, written: &Secret) {
        let who = (life_of(env), key.clone());
        let version = written.metadata.resource_version.as_ref().and_then(|it| it.parse().ok());
        self.probe.notes().written.insert(who, version.unwrap_or_default());
    }

    fn deleted(&self, key: &ObjectKey, env: &Env, copy: &Secret) {
        let uid = Uid::from(copy.metadata.uid.as_deref().unwrap_or_default());
        self.probe.notes().deleted.insert((life_of(env), key.clone()), (uid, env.now()));
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.probe.notes().busy.remove(&self.who);
    }
}

impl Probe {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn life_of(env: &Env) -> Life {
    (env.instance().to_owned(), env.incarnation())
}

fn copy_of(key: &ObjectKey) -> ObjectKey {
    ObjectKey::namespaced("default", &format!("copy-{}", key.name()))
}

fn secret(name: &str, value: &str) -> Secret {
    let labels = BTreeMap::from([("value".to_owned(), value.to_owned())]);
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    Secret { metadata, ..Secret::default() }
}

fn value_of(copy: &Secret) -> Option<&String> {
    copy.metadata.labels.as_ref()?.get("value")
}

/// Deletes exactly this copy. Returns whether it still existed.
async fn delete(api: &Api<Secret>, copy: &Secret) -> Result<bool, ReconcileError> {
    let uid = copy.metadata.uid.clone();
    let preconditions = Preconditions { uid, ..Preconditions::default() };
    let only_that_one = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let name = copy.metadata.name.as_deref().unwrap_or_default();
    match api.delete(name, &only_that_one).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(retry(error)),
    }
}
