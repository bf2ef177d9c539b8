//! One informer on an API server behind faults: initial handlers, late handlers, a removed handler, a panicking
//! handler; an initial and a late index; objects that cannot be decoded.

mod access_proxy;
pub mod availability;
pub mod budget;
mod handler_oracle;
mod handlers;
mod history;
pub mod namespaces;
mod object_writer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use windlass_client::{ClientOptions, Clients, RawClient};
use windlass_env::{Env, Instant, Rng};
use windlass_informer::{
    ApiServerSources, Delivery, FactoryOptions, HandlerHandle, HandlerOptions, InformerFactory,
    ObjectLocation, RelistState, RelistTicket, VersionedCache as _,
};
use windlass_metrics::Metrics;
use windlass_object::ObjectKey;
use windlass_testing::api_server::faults::FaultyServer;
use windlass_testing::{Fault, FaultAction, FaultKind, FaultPlan, Faults};

use self::handler_oracle::{EventLog, HandlerOracle, TestObject as _};
use self::handlers::HandlerSet;
use self::object_writer::ObjectWriter;
use crate::guarantees::family::{PlanFamily, run_script};

/// Simulations of an informer.
pub const FAMILY: PlanFamily =
    PlanFamily { name: "informer", generate: generate_plan, run, regressions: REGRESSIONS };

const REGRESSIONS: &[&str] = &[];

/// Duration of faults and writes.
const SPAN: Duration = Duration::from_secs(240);
/// Time for a cache to become equal to the server: a stalled watch times out 30 s after its window of at most four
/// minutes, and the backoff after a few failures is about as long. A slow clock adds a quarter.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(12 * 60 + 30);
/// Upper limit of the duration of a watch, by the slowest clock.
const MAX_WATCH: Duration = Duration::from_secs(375);
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const NAMESPACES: [&str; 2] = ["default", "other"];

fn generate_plan(seed: u64) -> FaultPlan {
    let faults = link_faults();
    let mut plan = faults.plan(seed, SPAN, 1, &["configmaps".to_owned()]);
    let mut rng = Env::virtual_time(seed).rng("poison");
    if rng.below(3) == 0 {
        let from = Duration::from_millis(rng.below(200_000));
        let name = NAMES[index(&mut rng, NAMES.len())].to_owned();
        let until = from + Duration::from_millis(rng.below(40_000));
        // A list heals only objects that no later write has healed. So the fault lasts to the end, and a list shows the
        // object.
        let until = if heals_by_list(&plan) { SPAN } else { until };
        plan.faults.push(Fault::until(until, FaultAction::Poison { name }).from(from).permille(500));
        if heals_by_list(&plan) {
            let expires = Fault::until(from + Duration::from_secs(1), FaultAction::WatchExpired).from(from);
            plan.faults.push(expires.for_resource("configmaps"));
        }
    }
    with_restore(with_clock(with_gaps(plan, "configmaps")))
}

/// Adds a restore of the server from a backup to one plan in four. All requests fail from shortly before the restore
/// until some time after it, so the informer reconnects to a server that has reassigned some versions.
fn with_restore(mut plan: FaultPlan) -> FaultPlan {
    let mut rng = Env::virtual_time(plan.seed).rng("restore");
    if rng.below(4) != 0 {
        return plan;
    }
    let at = 20_000 + rng.below(180_000);
    let backup = Duration::from_millis(at - 1 - rng.below(at.min(120_000)));
    let outage = Duration::from_millis(at - rng.below(5_000));
    let until = Duration::from_millis(at + 1_000 + rng.below(39_000));
    plan.faults.push(Fault::until(Duration::from_millis(at), FaultAction::Restore).from(backup));
    plan.faults.push(Fault::until(until, FaultAction::Unavailable).from(outage));
    plan
}

/// Returns every kind of fault between an informer and its server. Families with different clock rates generate those
/// themselves.
fn link_faults() -> Faults {
    let others =
        [FaultKind::Crash, FaultKind::Clock, FaultKind::Quota, FaultKind::Pause, FaultKind::Suspension];
    others.into_iter().fold(Faults::all(), Faults::without)
}

/// Possibly adds faults during which watches of this resource expire and all requests fail, so that the events of that
/// period are not delivered one by one.
fn with_gaps(mut plan: FaultPlan, resource: &str) -> FaultPlan {
    let mut rng = Env::virtual_time(plan.seed).rng("gaps");
    for _ in 0..rng.below(3) {
        let from = Duration::from_millis(rng.below(200_000));
        let until = from + Duration::from_millis(5_000 + rng.below(25_000));
        let gap = [FaultAction::WatchExpired, FaultAction::Unavailable];
        plan.faults.extend(gap.map(|what| Fault::until(until, what).from(from).for_resource(resource)));
    }
    plan
}

/// Possibly makes the informer's clock run fast or slow, but not the server's.
fn with_clock(mut plan: FaultPlan) -> FaultPlan {
    let rates = [(1, 1), (4, 5), (6, 5), (99, 100), (101, 100)];
    let mut rng = Env::virtual_time(plan.seed).rng("clock");
    let (numerator, denominator) = rates[index(&mut rng, rates.len())];
    if numerator != denominator {
        plan.faults.push(Fault::until(Duration::ZERO, FaultAction::ClockRate { numerator, denominator }));
    }
    plan
}

/// Returns the Env of the informer: process `a`, on a machine with the clock rate of the plan.
fn process(world: &Env, plan: &FaultPlan) -> Env {
    let mut rates = plan.faults.iter().filter_map(|fault| match fault.action {
        FaultAction::ClockRate { numerator, denominator } => Some((numerator, denominator)),
        _ => None,
    });
    let machine = match rates.next_back() {
        Some((numerator, denominator)) => {
            world.clone().with_wall_offset(SignedDuration::ZERO).with_rate(numerator, denominator)
        }
        None => world.clone(),
    };
    machine.with_incarnation("a", 0)
}

fn run(plan: &FaultPlan) -> Result<u64, String> {
    run_script(plan, |env| async move {
        let mut world = World::new(&env, plan);
        world.play().await?;
        world.conclude().await
    })
}

struct World {
    /// Env of the script and the server.
    env: Env,
    /// Env of the informer.
    process: Env,
    writer: ObjectWriter,
    plan: FaultPlan,
    rng: Rng,
    factory: InformerFactory,
    handlers: HandlerSet<ConfigMap>,
    metrics: Metrics,
    late_index: bool,
    /// Pending backups and restores of the plan, in the order of time.
    due: VecDeque<(Duration, Due)>,
    /// Version of each restored backup, by the index of its fault in the plan.
    backups: BTreeMap<usize, u64>,
    /// Ticket of the list that shows a restore to the informer, and the version of the store before the restore.
    unlisted: Option<(RelistTicket, u64)>,
}

/// One half of a restore, with the index of its fault in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Backup(usize),
    Restore(usize),
}

/// Returns the backups and restores of a plan, in the order of time.
fn restores(plan: &FaultPlan) -> VecDeque<(Duration, Due)> {
    let restores = plan.faults.iter().enumerate().filter(|(_, fault)| fault.action == FaultAction::Restore);
    let halves = restores.flat_map(|(at, fault)| {
        let [from, until] = [fault.from_ms, fault.until_ms].map(Duration::from_millis);
        [(from, Due::Backup(at)), (until, Due::Restore(at))]
    });
    halves.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Index of the first initial handler.
const PLAIN: usize = 0;
const PANICKING: usize = 1;
const EVERY: usize = 2;
const TIGHT: usize = 3;
/// Index of the first handler that can be removed.
const REMOVABLE: usize = 4;

impl World {
    fn new(world: &Env, plan: &FaultPlan) -> World {
        let (env, process) = (world.with_incarnation("a", 0), process(world, plan));
        let mut rng = env.rng("script");
        let (server, metrics) = (FaultyServer::new(&env, plan.clone()), Metrics::new());
        let options = FactoryOptions {
            resync: (rng.below(4) == 0).then_some(Duration::from_secs(30)),
            ..FactoryOptions::default()
        };
        let factory = InformerFactory::new(process.clone(), metrics.clone(), options);
        let informer = factory.typed::<ConfigMap>();
        let index = informer.lister().index(|map: &ConfigMap| map.values());
        let writer = ObjectWriter::new(&server, "/api/v1", "configmaps");
        let oracle = oracle_for(informer.lister(), &writer, plan).with_index(index);
        let handlers = HandlerSet::new(informer, oracle, &writer.history);
        World {
            env,
            process,
            writer,
            plan: plan.clone(),
            rng,
            factory,
            handlers,
            metrics,
            late_index: false,
            due: restores(plan),
            backups: BTreeMap::new(),
            unlisted: None,
        }
    }

    async fn play(&mut self) -> Result<(), String> {
        self.writer.server.upsert("/api/v1/namespaces/other", json!({}));
        for namespace in NAMESPACES {
            for name in ["a", "b", "c"] {
                self.put(namespace, name);
            }
        }
        self.watch();
        let reader = reader(&self.process, &self.writer.server, &self.metrics)?;
        self.factory.start(Arc::new(ApiServerSources::new(reader)));
        while self.env.now().since_origin() < SPAN.max(self.plan.end()) {
            let pause = *self.one_of(&[0, 1, 40, 700, 5_000, 15_000]);
            self.pass(Duration::from_millis(pause)).await;
            self.act();
            self.check_handlers();
            self.handlers.oracle.result()?;
            self.check_content()?;
        }
        Ok(())
    }

    /// Sleeps, and performs the backups and restores that become due.
    async fn pass(&mut self, pause: Duration) {
        let until = self.env.now() + pause;
        while let Some((at, due)) = self.due.front().copied().filter(|(at, _)| Instant::ORIGIN + *at <= until)
        {
            self.due.pop_front();
            self.env.sleep_until(Instant::ORIGIN + at).await;
            match due {
                Due::Backup(fault) => drop(self.backups.insert(fault, self.writer.server.revision())),
                Due::Restore(fault) => self.restore(self.backups[&fault]),
            }
        }
        self.env.sleep_until(until).await;
    }

    /// Restores the server and makes the informer list: neither a watch from an undone version nor a list at a later
    /// version shows the restore.
    fn restore(&mut self, version: u64) {
        self.writer.restore(version);
        let held = self.handlers.informer.lister().progress().version;
        let held = held.and_then(|held| held.as_str().parse().ok()).unwrap_or_default();
        self.unlisted = Some((self.handlers.informer.request_relist(ObjectLocation::default()), held));
    }

    /// Performs the next action of the user. Between a restore and the list that shows it, versions of writes stay
    /// below the version of the store.
    fn act(&mut self) {
        /// Maximum number of versions that one call of [`World::put`] uses.
        const MAX_VERSIONS: u64 = 2;
        let informer = &self.handlers.informer;
        let pending = |ticket: &RelistTicket| informer.relist_state(ticket) == RelistState::Pending;
        self.unlisted = self.unlisted.take().filter(|(ticket, _)| pending(ticket));
        match self.unlisted {
            None => self.step(),
            Some((_, held)) if self.writer.server.revision() + MAX_VERSIONS < held => {
                let (namespace, name) = (*self.one_of(&NAMESPACES), *self.one_of(&NAMES));
                let any = ObjectKey::namespaced(namespace, name);
                // Often picks the object that had the next version before the restore.
                let undone = self.writer.history.undone_at(self.writer.server.revision() + 1);
                let key = undone.filter(|_| self.rng.below(2) == 0).unwrap_or(any);
                self.put(key.namespace().unwrap_or_default(), key.name());
            }
            Some(_) => {}
        }
    }

    /// Checks that after a list has shown a restore, the cache contains no object of a version that was reassigned.
    fn check_content(&self) -> Result<(), String> {
        let is_due = !self.backups.is_empty() && self.unlisted.is_none();
        is_due.then(|| self.difference_in_content()).flatten().map_or(Ok(()), Err)
    }

    fn watch(&mut self) {
        let there: BTreeSet<_> = self.writer.history.present().into_keys().collect();
        let tight = 1 + index(&mut self.rng, 12);
        let every = |bound| HandlerOptions { delivery: Delivery::EveryEvent { bound }, ..Default::default() };
        let usual = HandlerOptions::default();
        for (name, options, panics_every) in [
            ("plain", usual, None),
            ("panicking", usual, Some(7)),
            ("every event", every(1_000_000), None),
            ("every event, in time", every(tight), None),
            ("to be removed", usual, None),
        ] {
            self.handlers.watch_with(name, options, panics_every).expect_before_sync(there.clone());
        }
    }

    fn check_handlers(&self) {
        let poisoned: BTreeSet<String> = self.plan.faults.iter().filter_map(poisoned_name).collect();
        self.handlers.check(|key, uid| {
            !poisoned.contains(key.name()) && self.writer.history.was_always_decodable(key, uid)
        });
    }

    /// Performs the next action of the user, mostly a write.
    fn step(&mut self) {
        let namespace = *self.one_of(&NAMESPACES);
        let name = *self.one_of(&NAMES);
        let there = self.writer.exists(namespace, name);
        match self.rng.below(25) {
            0..=3 if there => self.writer.delete(namespace, name),
            4..=5 if there => {
                self.writer.delete(namespace, name);
                self.put(namespace, name);
            }
            6 if there => {
                self.put(namespace, name);
                self.writer.delete(namespace, name);
            }
            7..=8 if there => self.writer.make_undecodable(namespace, name),
            9 if self.handlers.watchers.len() < REMOVABLE + 4 => self.handlers.watch_late(),
            10 => {
                let at = REMOVABLE + index(&mut self.rng, 4);
                self.handlers.remove(at);
            }
            11 if !self.late_index => {
                self.late_index = true;
                let late = self.handlers.informer.lister().index(|map: &ConfigMap| map.values());
                self.handlers.oracle.has_late_index(late);
            }
            12 => self.write_burst(),
            _ => self.put(namespace, name),
        }
    }

    /// Writes more objects at once than some handlers can queue.
    fn write_burst(&mut self) {
        for _ in 0..12 {
            let (namespace, name) = (*self.one_of(&NAMESPACES), *self.one_of(&NAMES));
            self.put(namespace, name);
        }
    }

    fn put(&mut self, namespace: &str, name: &str) {
        let value = *self.one_of(&["x", "y", "z"]);
        self.writer.put(namespace, name, value, 0);
    }

    /// Checks after the faults that the cache equals the server, and that every handler knows the content of the cache.
    async fn conclude(&mut self) -> Result<u64, String> {
        self.heal().await;
        converge(&self.env, CONVERGENCE_TIMEOUT, || {
            self.handlers.oracle.check_store();
            self.difference()
        })
        .await?;
        for _ in 0..3 {
            self.env.sleep(Duration::from_secs(30)).await;
            self.handlers.oracle.check_store();
            if let Some(why) = self.difference() {
                return Err(format!("after it was equal: {why}"));
            }
        }
        self.end().await
    }

    /// Makes undecodable objects decodable: at a new version by a write, or at their unchanged version in a list.
    async fn heal(&mut self) {
        let poisoned: BTreeSet<String> = self.plan.faults.iter().filter_map(poisoned_name).collect();
        if poisoned.is_empty() {
            return;
        }
        if heals_by_list(&self.plan) {
            let _ticket = self.handlers.informer.request_relist(ObjectLocation::default());
            return;
        }
        // A watch that was opened during the fault stays poisoned until it ends.
        self.env.sleep(MAX_WATCH).await;
        for namespace in NAMESPACES {
            for name in &poisoned {
                self.put(namespace, name);
            }
        }
    }

    /// Returns a difference of cache or handlers from the server.
    fn difference(&self) -> Option<String> {
        let (mut sound, mut spoilt) = (BTreeMap::new(), BTreeSet::new());
        for object in self.writer.all() {
            let (key, version) = (key_of(&object), version_of(&object));
            match object["data"].is_object() || object["data"].is_null() {
                true => drop(sound.insert(key, version)),
                false => drop(spoilt.insert(key)),
            }
        }
        let lister = self.handlers.informer.lister();
        if let Some(why) = self.difference_in_content() {
            return Some(why);
        }
        let undecodable: BTreeSet<_> = lister.undecodable().iter().map(|it| it.key.clone()).collect();
        if undecodable != spoilt {
            return Some(format!("undecodable: {undecodable:?} in the cache, {spoilt:?} on the server"));
        }
        self.handlers.difference(&sound)
    }

    /// Returns the first object whose cached content differs from the server's content at the same version.
    fn difference_in_content(&self) -> Option<String> {
        self.writer.all().iter().find_map(|object| {
            let (key, write) = (key_of(object), object["data"]["write"].as_str());
            let held = self.handlers.informer.lister().get_lossy(&key)?;
            let same_version = handler_oracle::version(&*held) == version_of(object);
            let cached = held.data.as_ref().and_then(|data| data.get("write")).map(String::as_str);
            let differs = same_version && write.is_some() && cached != write;
            differs.then(|| format!("the cache holds write {cached:?} of {key}, the server write {write:?}"))
        })
    }

    async fn end(&mut self) -> Result<u64, String> {
        let oracle = Arc::clone(&self.handlers.oracle);
        oracle.result()?;
        let watchers = &self.handlers.watchers;
        let (plain, panicking) = (&watchers[PLAIN].1, &watchers[PANICKING].1);
        if plain.log() != panicking.log() {
            return Err("a panicking handler received other events than one that does not panic".to_owned());
        }
        let metrics = self.metrics.informer("", "v1", "configmaps");
        let (counted, thrown) = (metrics.handler_panics.get(), panicking.panics());
        if counted != thrown {
            return Err(format!("{thrown} panics, {counted} counted"));
        }
        let [every, tight] = [EVERY, TIGHT].map(|at| &watchers[at]);
        check_all_events_received(&every.0, &every.1, plain)?;
        check_all_events_received(&tight.0, &tight.1, &every.1)?;
        let (counted, ended) = (metrics.handler_overflows.get(), u64::from(tight.0.failure().is_some()));
        if counted != ended {
            return Err(format!("{ended} handlers were removed, {counted} counted"));
        }
        let event_count = self.handlers.event_count();
        self.factory.shutdown().await;
        oracle.result()?;
        Ok(event_count)
    }

    fn one_of<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[index(&mut self.rng, choices.len())]
    }
}

/// Checks that a handler with `EveryEvent` delivery received at least the events of other handlers, or was removed and
/// received all earlier events.
fn check_all_events_received(
    handle: &HandlerHandle,
    notes: &EventLog,
    others: &EventLog,
) -> Result<(), String> {
    let (paths, others) = (notes.paths(), others.paths());
    for (key, path) in &others {
        let own = paths.get(key).map(Vec::as_slice).unwrap_or_default();
        let holds = match handle.failure() {
            Some(_) => path.starts_with(own),
            // Other handlers can miss intermediate states of an object.
            None => is_within(path, own),
        };
        if !holds {
            let failure = handle.failure();
            return Err(format!("{handle:?} ({failure:?}) received {own:?} for {key}, others {path:?}"));
        }
    }
    Ok(())
}

/// Returns whether `whole` contains all of `part` in this order.
fn is_within(part: &[String], whole: &[String]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|step| rest.any(|it| it == step))
}

/// Returns an oracle for an informer of the writer's objects, as strict as the faults permit.
fn oracle_for<T: handler_oracle::TestObject>(
    lister: windlass_informer::Lister<T>,
    writer: &ObjectWriter,
    plan: &FaultPlan,
) -> HandlerOracle<T> {
    let restores = plan.faults.iter().filter(|fault| fault.action == FaultAction::Restore).count();
    let oracle = HandlerOracle::new(lister).with_restores(restores as u64);
    if handler_oracle::is_exact(plan) { oracle.exactly(&writer.history) } else { oracle }
}

/// Returns the client of informers, behind the faulty link.
fn reader(env: &Env, server: &FaultyServer, metrics: &Metrics) -> Result<RawClient, String> {
    let fence = Arc::new(windlass_client::OpenFence);
    let uri = Uri::from_static("http://kubernetes.default.svc");
    let clients =
        Clients::from_service(env.clone(), server.link(), uri, ClientOptions::default(), metrics, fence);
    clients.and_then(|clients| clients.for_informers()).map_err(|error| error.to_string())
}

/// Waits until there is no difference.
async fn converge(
    env: &Env,
    within: Duration,
    mut difference: impl FnMut() -> Option<String>,
) -> Result<(), String> {
    let begin = env.now();
    while let Some(why) = difference() {
        if env.now() - begin > within {
            return Err(format!("{within:?} after the faults: {why}"));
        }
        env.sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Returns whether poisoned objects become decodable without a write.
fn heals_by_list(plan: &FaultPlan) -> bool {
    Env::virtual_time(plan.seed).rng("healing").below(2) == 0
}

fn poisoned_name(fault: &Fault) -> Option<String> {
    match &fault.action {
        FaultAction::Poison { name } => Some(name.clone()),
        _ => None,
    }
}

fn index(rng: &mut Rng, length: usize) -> usize {
    usize::try_from(rng.below(length as u64)).unwrap_or_default()
}

fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::namespaced(text("namespace"), text("name"))
}

fn version_of(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.and_then(|it| it.parse().ok()).expect("a server's version")
}
