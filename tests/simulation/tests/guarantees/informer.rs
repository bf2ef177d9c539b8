//! One informer on an API server behind faults: handlers from the start, late ones, one that is removed, one that
//! panics; an index from the start and a late one; objects that cannot be decoded.

mod history;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Uri;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use windlass_client::{ClientOptions, Clients};
use windlass_env::{Env, Rng};
use windlass_informer::{ApiSources, FactoryOptions, HandlerHandle, InformerFactory, SharedInformer};
use windlass_metrics::Metrics;
use windlass_object::{ObjectKey, Typed};
use windlass_testing::api_server::faults::Scene;
use windlass_testing::{Fault, FaultKind, Faults, Plan, What};

use self::history::History;
use self::told::{Judge, Notes, Watcher};
use crate::campaign::{Family, play};

pub(crate) const FAMILY: Family = Family { name: "informer", draw, run, regressions: REGRESSIONS };

const REGRESSIONS: &[&str] = &[];

/// How long faults and writes go on.
const SPAN: Duration = Duration::from_secs(240);
/// How long after that a cache may take to be the server's again: a watch that is stalled is given up half a minute
/// after its own time is up, four minutes at most, and the wait after a few failures is about as long.
const CONVERGES: Duration = Duration::from_secs(10 * 60);
/// Longer than any watch lasts.
const LONGEST_WATCH: Duration = Duration::from_secs(300);
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const NAMESPACES: [&str; 2] = ["default", "other"];

fn draw(seed: u64) -> Plan {
    let faults = Faults::all().without(FaultKind::Crash).without(FaultKind::Clock).without(FaultKind::Quota);
    let mut plan = faults.plan(seed, SPAN, 1, &["configmaps".to_owned()]);
    let mut rng = Env::virtual_time(seed).rng("poison");
    if rng.below(3) == 0 {
        let from = Duration::from_millis(rng.below(200_000));
        let name = NAMES[index(&mut rng, NAMES.len())].to_owned();
        let until = from + Duration::from_millis(rng.below(40_000));
        plan.faults.push(Fault::during(until, What::Poison { name }).from(from).permille(500));
    }
    plan
}

fn run(plan: &Plan) -> Result<u64, String> {
    play(plan, |env| async move {
        let mut world = World::new(&env, plan);
        world.play().await?;
        world.conclude().await
    })
}

struct World {
    env: Env,
    scene: Scene,
    plan: Plan,
    rng: Rng,
    factory: InformerFactory,
    informer: SharedInformer<Typed<ConfigMap>>,
    metrics: Metrics,
    history: Arc<History>,
    judge: Arc<Judge>,
    watchers: Vec<(HandlerHandle, Arc<Notes>)>,
    late_index: bool,
    writes: u64,
}

impl World {
    fn new(world: &Env, plan: &Plan) -> World {
        let env = world.incarnation("a", 0);
        let mut rng = env.rng("script");
        let (scene, metrics) = (Scene::new(&env, plan.clone()), Metrics::new());
        let options = FactoryOptions {
            resync: (rng.below(4) == 0).then_some(Duration::from_secs(30)),
            ..FactoryOptions::default()
        };
        let factory = InformerFactory::new(env.clone(), metrics.clone(), options);
        let informer = factory.typed::<ConfigMap>();
        informer.add_index("value", values).expect("a fresh name");
        let judge = Arc::new(Judge::new(informer.lister()));
        let (history, watchers) = (Arc::default(), Vec::new());
        let plan = plan.clone();
        let (late_index, writes) = (false, 0);
        World {
            env,
            scene,
            plan,
            rng,
            factory,
            informer,
            metrics,
            history,
            judge,
            watchers,
            late_index,
            writes,
        }
    }

    async fn play(&mut self) -> Result<(), String> {
        self.scene.put("/api/v1/namespaces/other", json!({}));
        for namespace in NAMESPACES {
            for name in ["a", "b", "c"] {
                self.put(namespace, name);
            }
        }
        let there: BTreeSet<_> = self.history.present().into_keys().collect();
        for (name, panics_every) in [("plain", None), ("panicking", Some(7)), ("to be removed", None)] {
            self.watch(name, panics_every).owes(there.clone());
        }
        self.connect()?;
        while self.env.now().since_origin() < SPAN.max(self.plan.end()) {
            let pause = *self.one_of(&[0, 1, 40, 700, 5_000, 15_000]);
            self.env.sleep(Duration::from_millis(pause)).await;
            self.step();
            self.judge.look();
            self.look_at_handlers();
            self.judge.verdict()?;
        }
        Ok(())
    }

    /// Whoever says it is synced has been told what was there.
    fn look_at_handlers(&self) {
        let poisoned: BTreeSet<String> = self.plan.faults.iter().filter_map(poisoned_name).collect();
        let can_be_read = |key: &ObjectKey, uid: &str| {
            !poisoned.contains(key.name()) && self.history.was_always_sound(key, uid)
        };
        for (handle, notes) in self.watchers.iter().filter(|(handle, _)| handle.has_synced()) {
            let owed = notes.still_owed(can_be_read);
            self.judge.check(owed.is_empty(), || format!("{handle:?} was not told of {owed:?}"));
        }
    }

    fn connect(&self) -> Result<(), String> {
        let fence = Arc::new(windlass_client::OpenFence);
        let uri = Uri::from_static("http://kubernetes.default.svc");
        let options = ClientOptions::default();
        let clients =
            Clients::over_service(self.env.clone(), self.scene.line(), uri, options, &self.metrics, fence);
        let reader =
            clients.and_then(|clients| clients.for_informers()).map_err(|error| error.to_string())?;
        self.factory.start(Arc::new(ApiSources::new(reader)));
        Ok(())
    }

    /// What a user does next: mostly writes.
    fn step(&mut self) {
        let namespace = *self.one_of(&NAMESPACES);
        let name = *self.one_of(&NAMES);
        let there = self.history.is_present(&ObjectKey::namespaced(namespace, name));
        match self.rng.below(24) {
            0..=3 if there => self.delete(namespace, name),
            4..=5 if there => {
                self.delete(namespace, name);
                self.put(namespace, name);
            }
            6 if there => {
                self.put(namespace, name);
                self.delete(namespace, name);
            }
            7..=8 if there => self.spoil(namespace, name),
            9 if self.watchers.len() < 6 => self.watch_late(),
            10 => self.remove(),
            11 if !self.late_index => {
                self.late_index = true;
                self.informer.add_index("late", values).expect("a fresh name");
                self.judge.has_late_index();
            }
            _ => self.put(namespace, name),
        }
    }

    fn watch(&mut self, name: &str, panics_every: Option<u64>) -> Arc<Notes> {
        let (history, judge) = (Arc::clone(&self.history), Arc::clone(&self.judge));
        let (watcher, notes) = Watcher::new(name, history, judge, panics_every);
        let handle = self.informer.add_handler(name, watcher).expect("the informer lives");
        let synced = handle.has_synced();
        self.judge.check(!synced, || format!("{name} is synced before it was told anything"));
        self.watchers.push((handle, Arc::clone(&notes)));
        notes
    }

    /// A handler that comes while the informer runs is to be told of what is in the store at that moment.
    fn watch_late(&mut self) {
        let held = self.informer.lister().list();
        let there = held.iter().map(|it| told::identity(it)).collect();
        let name = format!("late {}", self.watchers.len());
        self.watch(&name, None).owes_anyway(there);
    }

    fn remove(&mut self) {
        let at = 2 + index(&mut self.rng, 4);
        if let Some((handle, notes)) = self.watchers.get(at) {
            handle.remove();
            notes.removed.store(true, Ordering::Relaxed);
            self.judge.check(!handle.has_synced(), || "a removed handler says it is synced".to_owned());
        }
    }

    fn put(&mut self, namespace: &str, name: &str) {
        self.writes += 1;
        let value = ["x", "y", "z"][index(&mut self.rng, 3)];
        let data = json!({ "value": value, "write": self.writes.to_string() });
        let path = path(namespace, name);
        if self.scene.object(&path).is_some_and(|it| it["data"].is_number()) {
            // What was spoilt is nothing that a patch could be merged into.
            self.scene.plant(&path, |object| object["data"] = json!({}));
            self.history.wrote(namespace, name, &self.scene.object(&path).expect("it is there"));
        }
        let written = self.scene.put(&path, json!({ "data": data }));
        self.history.wrote(namespace, name, &written);
    }

    /// Makes an object of it that cannot be decoded.
    fn spoil(&mut self, namespace: &str, name: &str) {
        let path = path(namespace, name);
        self.scene.plant(&path, |object| object["data"] = json!(7));
        let written = self.scene.object(&path).expect("it is there");
        self.history.wrote(namespace, name, &written);
    }

    fn delete(&mut self, namespace: &str, name: &str) {
        self.scene.delete(&path(namespace, name));
        let latest = self.scene.ask(&http::Method::GET, "/api/v1/configmaps?limit=1", None).1;
        self.history.deleted(namespace, name, version_of(&latest));
    }

    /// After the faults: cache equals server, and every handler knows what the cache holds.
    async fn conclude(&mut self) -> Result<u64, String> {
        self.heal().await;
        let end = self.env.now();
        let mut difference = self.difference();
        while let Some(why) = &difference {
            if self.env.now() - end > CONVERGES {
                return Err(format!("{CONVERGES:?} after the faults {why}"));
            }
            self.env.sleep(Duration::from_secs(1)).await;
            self.judge.look();
            difference = self.difference();
        }
        for _ in 0..3 {
            self.env.sleep(Duration::from_secs(30)).await;
            self.judge.look();
            if let Some(why) = self.difference() {
                return Err(format!("after it had come to rest {why}"));
            }
        }
        self.end().await
    }

    /// What could not be decoded on the way is tried again when it changes.
    async fn heal(&mut self) {
        let poisoned: BTreeSet<String> = self.plan.faults.iter().filter_map(poisoned_name).collect();
        if !poisoned.is_empty() {
            // A watch that was opened while the fault was on stays poisoned to its end.
            self.env.sleep(LONGEST_WATCH).await;
        }
        for namespace in NAMESPACES {
            for name in &poisoned {
                self.put(namespace, name);
            }
        }
    }

    /// Where cache or handlers are not what the server is.
    fn difference(&self) -> Option<String> {
        let (mut sound, mut spoilt) = (BTreeMap::new(), BTreeSet::new());
        for object in self.scene.all("/api/v1/configmaps") {
            let (key, version) = (key_of(&object), version_of(&object));
            match object["data"].is_object() || object["data"].is_null() {
                true => drop(sound.insert(key, version)),
                false => drop(spoilt.insert(key)),
            }
        }
        let lister = self.informer.lister();
        let held: BTreeMap<_, _> =
            lister.list().iter().map(|it| (told::key(it), told::version(it))).collect();
        let quarantined: BTreeSet<_> = lister.quarantined().into_iter().map(|it| it.key).collect();
        if held != sound {
            return Some(format!("the cache holds {held:?}, the server {sound:?}"));
        }
        if quarantined != spoilt {
            return Some(format!("in quarantine are {quarantined:?}, undecodable {spoilt:?}"));
        }
        for (handle, notes) in &self.watchers {
            if notes.removed.load(Ordering::Relaxed) {
                continue;
            }
            let known = notes.known();
            if known != sound {
                return Some(format!("{handle:?} knows {known:?}, the server holds {sound:?}"));
            }
            if !handle.has_synced() {
                return Some(format!("{handle:?} is not synced"));
            }
        }
        None
    }

    async fn end(&mut self) -> Result<u64, String> {
        self.judge.verdict()?;
        let [(_, plain), (_, panicking), ..] = self.watchers.as_slice() else {
            return Err("the first handlers are gone".to_owned());
        };
        if plain.log() != panicking.log() {
            return Err("a handler that panics is told something else than one that does not".to_owned());
        }
        let (counted, thrown) = (self.panics_counted(), panicking.panics());
        if counted != thrown {
            return Err(format!("{thrown} panics, {counted} counted"));
        }
        let told = self.watchers.iter().map(|(_, notes)| notes.log().len() as u64).sum();
        self.factory.shutdown().await;
        self.judge.verdict()?;
        Ok(told)
    }

    fn panics_counted(&self) -> u64 {
        self.metrics.informer("", "v1", "configmaps").handler_panics.get()
    }

    fn one_of<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[index(&mut self.rng, choices.len())]
    }
}

fn poisoned_name(fault: &Fault) -> Option<String> {
    match &fault.what {
        What::Poison { name } => Some(name.clone()),
        _ => None,
    }
}

fn values(map: &Arc<ConfigMap>) -> Vec<String> {
    map.data.as_ref().and_then(|data| data.get("value").cloned()).into_iter().collect()
}

fn index(rng: &mut Rng, length: usize) -> usize {
    usize::try_from(rng.below(length as u64)).unwrap_or_default()
}

fn path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::namespaced(text("namespace"), text("name"))
}

fn version_of(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.and_then(|it| it.parse().ok()).expect("a server's version")
}
