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

use crate::guarantees::family::{ON_PURPOSE, PlanFamily};

/// Simulations of a controller.
pub const FAMILY: PlanFamily =
    PlanFamily { name: "controller", generate: generate_plan, run, regressions: REGRESSIONS };

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
const PANICKING_MAP: &str = "trips";
/// Time after a deletion for which the probe requires that the cache reflects it. The probe does not check later
/// reconciles, although the runtime makes the key wait for a list.
const MAX_CACHED_AFTER_DELETE: Duration = Duration::from_secs(9);

fn generate_plan(seed: u64) -> FaultPlan {
    Faults::all().plan(seed, SPAN, 2, &["configmaps", "secrets", "leases"].map(str::to_owned))
}

fn run(plan: &FaultPlan) -> Result<u64, String> {
    static QUIET: OnceLock<Report> = OnceLock::new();
    let simulation = Simulation::new(plan.seed).caches_of::<ConfigMap>().caches_of::<Secret>();
    let played = |plan: &FaultPlan, quiet: Option<&Report>| {
        let probe = Arc::new(Probe::default());
        let report = simulation.clone().plan(plan.clone()).run_compared_to(quiet, script(&probe));
        let report = report.map_err(|failure| failure.violation.to_string())?;
        let observations = probe.observations();
        match observations.violations.first().cloned().or_else(|| observations.uncounted()) {
            Some(violation) => Err(violation),
            None => Ok((report, observations.runs)),
        }
    };
    let quiet = match QUIET.get() {
        Some(quiet) => quiet,
        None => {
            let (quiet, _) = played(&FaultPlan::without_faults(1), None)?;
            QUIET.get_or_init(|| quiet)
        }
    };
    played(plan, Some(quiet)).map(|(_, runs)| runs)
}

fn script(probe: &Arc<Probe>) -> impl AsyncFnOnce(Cluster) {
    let probe = Arc::clone(probe);
    async move |cluster: Cluster| {
        cluster.run([registration(&probe)]);
        for name in ["bad", "panics", PANICKING_MAP, "a", "b", "c"] {
            cluster.create(&source(name, "1")).await;
        }
        let sources = cluster.api::<ConfigMap>();
        let changes = [
            ("a", "2"),
            ("b", "2"),
            (PANICKING_MAP, "2"),
            ("a", "3"),
            ("panics", "2"),
            ("a", "4"),
            ("c", "5"),
        ];
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
struct Probe(Mutex<Observations>);

#[derive(Default)]
struct Observations {
    violations: Vec<String>,
    runs: u64,
    /// Keys that are being reconciled, by incarnation.
    busy: BTreeSet<(Incarnation, ObjectKey)>,
    /// Version of the last write for a key, by incarnation.
    written: BTreeMap<(Incarnation, ObjectKey), u64>,
    /// UID and time of the last deletion for a key, by incarnation.
    deleted: BTreeMap<(Incarnation, ObjectKey), (Uid, Instant)>,
    attempts: BTreeMap<(Incarnation, ObjectKey), usize>,
    /// Number of panics of reconciles and of the mapper, and the metrics that count them.
    panics: BTreeMap<Incarnation, (u64, Metrics)>,
}

impl Observations {
    /// Returns the first incarnation whose panics are not counted exactly once.
    fn uncounted(&self) -> Option<String> {
        let counted = |metrics: &Metrics| metrics.reconcile(Copier::NAME).panics.get();
        let wrong = |(_, (panics, metrics)): &(&Incarnation, &(u64, Metrics))| counted(metrics) != *panics;
        let (incarnation, (panics, metrics)) = self.panics.iter().find(wrong)?;
        Some(format!("{incarnation:?} panicked {panics} times, and counted {}", counted(metrics)))
    }

    fn panicked(&mut self, incarnation: &Incarnation) {
        if let Some((panics, _)) = self.panics.get_mut(incarnation) {
            *panics += 1;
        }
    }
}

/// Process and incarnation.
type Incarnation = (String, u64);

struct Copier {
    sources: Lister<ConfigMap>,
    copies: Lister<Secret>,
    probe: Arc<Probe>,
}

/// Guard of a key that is being reconciled.
struct Busy<'a> {
    probe: &'a Probe,
    incarnation_and_key: (Incarnation, ObjectKey),
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
        let incarnation = incarnation_of(setup.env());
        probe.observations().panics.insert(incarnation.clone(), (0, setup.metrics().clone()));
        let watched = Arc::clone(probe);
        let of_source = move |source: &ConfigMap| {
            if source.metadata.name.as_deref() == Some(PANICKING_MAP) {
                watched.observations().panicked(&incarnation);
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
                self.probe.observations().panicked(&incarnation_of(cx.env()));
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
        let incarnation_and_key = (incarnation_of(env), key.clone());
        let mut observations = self.probe.observations();
        observations.runs += 1;
        if !observations.busy.insert(incarnation_and_key.clone()) {
            observations
                .violations
                .push(format!("{key} is held by two workers of {:?}", incarnation_and_key.0));
        }
        let held = self.copies.version().and_then(|it| it.as_str().parse::<u64>().ok()).unwrap_or_default();
        if let Some(written) =
            observations.written.get(&incarnation_and_key).copied().filter(|written| held < *written)
        {
            let violation = format!("{key}: its last write is {written}, the cache is at {held}");
            observations.violations.push(violation);
        }
        let shown = self.copies.get_lossy(&copy_of(key)).and_then(|copy| copy.metadata.uid.clone());
        let deleted = observations
            .deleted
            .get(&incarnation_and_key)
            .filter(|(uid, _)| shown.as_deref() == Some(uid.as_str()));
        if deleted.is_some_and(|(_, at)| env.now().saturating_duration_since(*at) < MAX_CACHED_AFTER_DELETE) {
            observations.violations.push(format!("{key}: its deleted copy is still cached"));
        }
        let attempt = observations.attempts.entry(incarnation_and_key.clone()).or_default();
        *attempt += 1;
        let attempt = *attempt;
        if key.name() == "bad" && attempt > MAX_ATTEMPTS {
            observations.violations.push(format!(
                "a key that always fails was tried {attempt} times by {:?}",
                incarnation_and_key.0
            ));
        }
        (Busy { probe: &self.probe, incarnation_and_key }, attempt)
    }

    fn wrote(&self, key: &ObjectKey, env: &Env, written: &Secret) {
        let incarnation_and_key = (incarnation_of(env), key.clone());
        let version = written.metadata.resource_version.as_ref().and_then(|it| it.parse().ok());
        self.probe.observations().written.insert(incarnation_and_key, version.unwrap_or_default());
    }

    fn deleted(&self, key: &ObjectKey, env: &Env, copy: &Secret) {
        let uid = Uid::from(copy.metadata.uid.as_deref().unwrap_or_default());
        self.probe.observations().deleted.insert((incarnation_of(env), key.clone()), (uid, env.now()));
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.probe.observations().busy.remove(&self.incarnation_and_key);
    }
}

impl Probe {
    fn observations(&self) -> MutexGuard<'_, Observations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn incarnation_of(env: &Env) -> Incarnation {
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
