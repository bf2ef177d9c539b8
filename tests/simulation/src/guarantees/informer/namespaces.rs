//! One informer over a changing set of namespaces, while faults and changing roles prevent it from watching some of
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use windlass_env::{Env, Instant, Rng};
use windlass_informer::{FactoryOptions, InformerFactory, KindAvailability, NamespaceSet};
use windlass_metrics::Metrics;
use windlass_object::{ObjectKey, Verb};
use windlass_testing::FaultPlan;
use windlass_testing::api_server::faults::FaultyServer;

use super::access_proxy::Rights;
use super::handlers::HandlerSet;
use super::object_writer::ObjectWriter;
use super::{
    CONVERGENCE_TIMEOUT, SPAN, converge, index, key_of, link_faults, oracle_for, reader, version_of,
    with_gaps,
};
use crate::guarantees::family::{PlanFamily, run_script};

/// Simulations of an informer over a set of namespaces.
pub const FAMILY: PlanFamily =
    PlanFamily { name: "namespaces", generate: generate_plan, run, regressions: REGRESSIONS };

const REGRESSIONS: &[&str] = &[];

const NAMES: [&str; 3] = ["a", "b", "c"];
const NAMESPACES: [&str; 4] = ["default", "north", "south", "never"];
/// Number of namespaces that can be selected.
const SELECTABLE: usize = 3;
/// Initial set of namespaces.
const FIRST: [&str; 2] = ["default", "north"];
/// Maximum time for which objects of a removed namespace can stay in the cache.
const MOMENT: Duration = Duration::from_secs(2);

fn generate_plan(seed: u64) -> FaultPlan {
    let faults = link_faults();
    with_gaps(faults.plan(seed, SPAN, 1, &["configmaps".to_owned()]), "configmaps")
}

fn run(plan: &FaultPlan) -> Result<u64, String> {
    run_script(plan, |env| async move {
        let mut world = World::new(&env, plan);
        world.play().await?;
        world.conclude().await
    })
}

struct World {
    env: Env,
    writer: ObjectWriter,
    plan: FaultPlan,
    rng: Rng,
    set: NamespaceSet,
    rights: Rights,
    factory: InformerFactory,
    handlers: HandlerSet<ConfigMap>,
    metrics: Metrics,
    /// Time of removal of the namespaces that are not selected.
    left: BTreeMap<&'static str, Instant>,
    /// Namespaces that were always selected.
    stayed: BTreeSet<&'static str>,
}

impl World {
    fn new(world: &Env, plan: &FaultPlan) -> World {
        let env = world.with_incarnation("a", 0);
        let (rng, metrics) = (env.rng("script"), Metrics::new());
        let server = FaultyServer::new(&env, plan.clone());
        let set = NamespaceSet::from_names(FIRST);
        let options = FactoryOptions { namespaces: Some(set.clone()), ..FactoryOptions::default() };
        let factory = InformerFactory::new(env.clone(), metrics.clone(), options);
        let informer = factory.typed::<ConfigMap>();
        let writer = ObjectWriter::new(&server, "/api/v1", "configmaps");
        let oracle = oracle_for(informer.lister(), &writer, plan).deselects();
        let handlers = HandlerSet::new(informer, oracle, &writer.history);
        let left = NAMESPACES[FIRST.len()..].iter().map(|name| (*name, Instant::ORIGIN)).collect();
        let (stayed, rights) = (BTreeSet::from(FIRST), Rights::default());
        World { env, writer, plan: plan.clone(), rng, set, rights, factory, handlers, metrics, left, stayed }
    }

    async fn play(&mut self) -> Result<(), String> {
        for namespace in &NAMESPACES[1..] {
            self.writer.server.upsert(&format!("/api/v1/namespaces/{namespace}"), json!({}));
        }
        for namespace in NAMESPACES {
            self.put(namespace, "a");
            self.put(namespace, "b");
        }
        let there: BTreeSet<_> = self.writer.history.present().into_keys().collect();
        for name in ["plain", "to be removed"] {
            self.handlers.watch(name, None).expect_before_sync(there.clone());
        }
        let reader = reader(&self.env, &self.writer.server, &self.metrics)?;
        self.factory.start(self.rights.guard(reader));
        while self.env.now().since_origin() < SPAN.max(self.plan.end()) {
            let pause = *self.one_of(&[0, 1, 40, 700, 5_000, 15_000]);
            self.env.sleep(Duration::from_millis(pause)).await;
            self.step();
            self.check();
            self.handlers.oracle.result()?;
        }
        Ok(())
    }

    fn step(&mut self) {
        let (namespace, name) = (*self.one_of(&NAMESPACES), *self.one_of(&NAMES));
        let selectable = *self.one_of(&NAMESPACES[..SELECTABLE]);
        match self.rng.below(24) {
            0..=3 if self.writer.exists(namespace, name) => self.writer.delete(namespace, name),
            4..=5 => self.select(selectable),
            6..=7 => self.deselect(selectable),
            // Both changes before the informer can react.
            8 => {
                self.deselect(selectable);
                self.put(selectable, name);
                self.select(selectable);
            }
            9 => self.replace(),
            10..=11 => {
                let verb = *self.one_of(&[Verb::List, Verb::Watch]);
                self.rights.take(verb, "configmaps", Some(selectable));
            }
            12 => self.rights.give_all_back(),
            13 if self.handlers.watchers.len() < 5 => self.handlers.watch_late(),
            14 => {
                let at = 1 + index(&mut self.rng, 4);
                self.handlers.remove(at);
            }
            _ => self.put(namespace, name),
        }
    }

    fn select(&mut self, namespace: &'static str) {
        let joined = self.set.insert(namespace);
        let was_out = self.left.remove(namespace).is_some();
        self.handlers.oracle.check(joined == was_out, || format!("{namespace} joined: {joined}"));
    }

    fn deselect(&mut self, namespace: &'static str) {
        if self.set.remove(namespace) {
            self.left.insert(namespace, self.env.now());
            self.stayed.remove(namespace);
        }
    }

    fn replace(&mut self) {
        let chosen: BTreeSet<&'static str> =
            NAMESPACES[..SELECTABLE].iter().copied().filter(|_| self.rng.below(2) == 0).collect();
        self.set.replace(chosen.iter().copied());
        for namespace in &NAMESPACES[..SELECTABLE] {
            if chosen.contains(namespace) {
                self.left.remove(namespace);
            } else {
                self.left.entry(namespace).or_insert(self.env.now());
                self.stayed.remove(namespace);
            }
        }
    }

    fn put(&mut self, namespace: &str, name: &str) {
        let value = *self.one_of(&["x", "y", "z"]);
        self.writer.put(namespace, name, value, 0);
    }

    fn check(&self) {
        self.handlers.check(|key, uid| {
            let stayed = key.namespace().is_some_and(|it| self.stayed.contains(it));
            stayed && self.writer.history.was_always_decodable(key, uid)
        });
        let (lister, now) = (self.handlers.informer.lister(), self.env.now());
        for (namespace, since) in &self.left {
            let gone = now - *since < MOMENT || lister.list_namespace(namespace).is_empty();
            self.handlers
                .oracle
                .check(gone, || format!("{namespace} was removed, but its objects are still cached"));
        }
    }

    async fn conclude(&mut self) -> Result<u64, String> {
        self.rights.give_all_back();
        for round in 0..3 {
            converge(&self.env, CONVERGENCE_TIMEOUT, || {
                self.check();
                self.difference()
            })
            .await?;
            self.handlers.oracle.result()?;
            if round == 0 {
                self.lose_a_right().await?;
            }
            self.replace();
        }
        self.asked_for_nothing_else()?;
        let event_count = self.handlers.event_count();
        self.factory.shutdown().await;
        self.handlers.oracle.result()?;
        Ok(event_count)
    }

    /// Checks that a revoked permission is reported, removes no cached object, and delays no other namespace.
    async fn lose_a_right(&mut self) -> Result<(), String> {
        for namespace in FIRST {
            self.select(namespace);
        }
        converge(&self.env, CONVERGENCE_TIMEOUT, || self.difference()).await?;
        let [kept, lost] = FIRST;
        for verb in [Verb::List, Verb::Watch] {
            self.rights.take(verb, "configmaps", Some(lost));
        }
        let held = self.handlers.informer.lister().list_namespace(lost).len();
        self.env.sleep(CONVERGENCE_TIMEOUT).await;
        match self.handlers.informer.availability() {
            KindAvailability::Forbidden(denial) if denial.namespace.as_deref() == Some(lost) => {}
            other => return Err(format!("reads of {lost} are denied, but the availability is {other:?}")),
        }
        let still = self.handlers.informer.lister().list_namespace(lost).len();
        if still != held {
            return Err(format!("reads are denied: {still} of {held} cached objects remain"));
        }
        self.put(kept, "a");
        self.env.sleep(MOMENT).await;
        let key = ObjectKey::namespaced(kept, "a");
        let (version, held) =
            (self.writer.history.at(&key, u64::MAX), self.handlers.informer.lister().get_lossy(&key));
        if held.map(|it| super::handler_oracle::version(&*it)) != version {
            return Err(format!("{kept} waits for {lost}, whose reads are denied"));
        }
        self.rights.give_all_back();
        converge(&self.env, CONVERGENCE_TIMEOUT, || {
            let said = self.handlers.informer.availability();
            let still = (said != KindAvailability::Served)
                .then(|| format!("all reads are permitted, but the availability is {said:?}"));
            self.difference().or(still)
        })
        .await
    }

    fn asked_for_nothing_else(&self) -> Result<(), String> {
        let sent = self.writer.server.sent_requests();
        let others = sent.iter().find(|asked| {
            asked.resource == "configmaps" && !NAMESPACES[..SELECTABLE].contains(&asked.namespace.as_str())
        });
        others
            .map_or(Ok(()), |asked| Err(format!("request outside the selected namespaces: {}", asked.line())))
    }

    fn difference(&self) -> Option<String> {
        let all = self.writer.all();
        let selected = all.iter().map(|it| (key_of(it), version_of(it)));
        let selected = selected.filter(|(key, _)| self.set.contains(key.namespace().unwrap_or_default()));
        self.handlers.difference(&selected.collect())
    }

    fn one_of<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[index(&mut self.rng, choices.len())]
    }
}
