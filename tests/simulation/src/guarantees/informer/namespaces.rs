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

use super::crowd::HandlerSet;
use super::hand::ObjectWriter;
use super::rights::Rights;
use super::{
    CONVERGES, SPAN, converge, faults_of_lines, index, judge, key_of, reader, version_of, with_gaps,
};
use crate::guarantees::family::{Family, play};

/// Simulations of an informer over a set of namespaces.
pub const FAMILY: Family = Family { name: "namespaces", draw, run, regressions: REGRESSIONS };

const REGRESSIONS: &[&str] = &[];

const NAMES: [&str; 3] = ["a", "b", "c"];
const NAMESPACES: [&str; 4] = ["default", "north", "south", "never"];
/// Number of namespaces that can be selected.
const SELECTABLE: usize = 3;
/// Initial set of namespaces.
const FIRST: [&str; 2] = ["default", "north"];
/// Maximum time for which objects of a removed namespace can stay in the cache.
const MOMENT: Duration = Duration::from_secs(2);

fn draw(seed: u64) -> FaultPlan {
    let faults = faults_of_lines();
    with_gaps(faults.plan(seed, SPAN, 1, &["configmaps".to_owned()]), "configmaps")
}

fn run(plan: &FaultPlan) -> Result<u64, String> {
    play(plan, |env| async move {
        let mut world = World::new(&env, plan);
        world.play().await?;
        world.conclude().await
    })
}

struct World {
    env: Env,
    hand: ObjectWriter,
    plan: FaultPlan,
    rng: Rng,
    set: NamespaceSet,
    rights: Rights,
    factory: InformerFactory,
    crowd: HandlerSet<ConfigMap>,
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
        let scene = FaultyServer::new(&env, plan.clone());
        let set = NamespaceSet::of(FIRST);
        let options = FactoryOptions { namespaces: Some(set.clone()), ..FactoryOptions::default() };
        let factory = InformerFactory::new(env.clone(), metrics.clone(), options);
        let informer = factory.typed::<ConfigMap>();
        let hand = ObjectWriter::new(&scene, "/api/v1", "configmaps");
        let judge = judge(informer.lister(), &hand, plan).deselects();
        let crowd = HandlerSet::new(informer, judge, &hand.history);
        let left = NAMESPACES[FIRST.len()..].iter().map(|name| (*name, Instant::ORIGIN)).collect();
        let (stayed, rights) = (BTreeSet::from(FIRST), Rights::default());
        World { env, hand, plan: plan.clone(), rng, set, rights, factory, crowd, metrics, left, stayed }
    }

    async fn play(&mut self) -> Result<(), String> {
        for namespace in &NAMESPACES[1..] {
            self.hand.scene.upsert(&format!("/api/v1/namespaces/{namespace}"), json!({}));
        }
        for namespace in NAMESPACES {
            self.put(namespace, "a");
            self.put(namespace, "b");
        }
        let there: BTreeSet<_> = self.hand.history.present().into_keys().collect();
        for name in ["plain", "to be removed"] {
            self.crowd.watch(name, None).owes(there.clone());
        }
        let reader = reader(&self.env, &self.hand.scene, &self.metrics)?;
        self.factory.start(self.rights.guard(reader));
        while self.env.now().since_origin() < SPAN.max(self.plan.end()) {
            let pause = *self.one_of(&[0, 1, 40, 700, 5_000, 15_000]);
            self.env.sleep(Duration::from_millis(pause)).await;
            self.step();
            self.look();
            self.crowd.judge.verdict()?;
        }
        Ok(())
    }

    fn step(&mut self) {
        let (namespace, name) = (*self.one_of(&NAMESPACES), *self.one_of(&NAMES));
        let selectable = *self.one_of(&NAMESPACES[..SELECTABLE]);
        match self.rng.below(24) {
            0..=3 if self.hand.is_there(namespace, name) => self.hand.delete(namespace, name),
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
            13 if self.crowd.watchers.len() < 5 => self.crowd.watch_late(),
            14 => {
                let at = 1 + index(&mut self.rng, 4);
                self.crowd.remove(at);
            }
            _ => self.put(namespace, name),
        }
    }

    fn select(&mut self, namespace: &'static str) {
        let joined = self.set.insert(namespace);
        let was_out = self.left.remove(namespace).is_some();
        self.crowd.judge.check(joined == was_out, || format!("{namespace} joined: {joined}"));
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
        self.hand.put(namespace, name, value, 0);
    }

    fn look(&self) {
        self.crowd.look(|key, uid| {
            let stayed = key.namespace().is_some_and(|it| self.stayed.contains(it));
            stayed && self.hand.history.was_always_sound(key, uid)
        });
        let (lister, now) = (self.crowd.informer.lister(), self.env.now());
        for (namespace, since) in &self.left {
            let gone = now - *since < MOMENT || lister.list_namespace(namespace).is_empty();
            self.crowd
                .judge
                .check(gone, || format!("{namespace} was removed, but its objects are still cached"));
        }
    }

    async fn conclude(&mut self) -> Result<u64, String> {
        self.rights.give_all_back();
        for round in 0..3 {
            converge(&self.env, CONVERGES, || {
                self.look();
                self.difference()
            })
            .await?;
            self.crowd.judge.verdict()?;
            if round == 0 {
                self.lose_a_right().await?;
            }
            self.replace();
        }
        self.asked_for_nothing_else()?;
        let told = self.crowd.told();
        self.factory.shutdown().await;
        self.crowd.judge.verdict()?;
        Ok(told)
    }

    /// Checks that a revoked permission is reported, removes no cached object, and delays no other namespace.
    async fn lose_a_right(&mut self) -> Result<(), String> {
        for namespace in FIRST {
            self.select(namespace);
        }
        converge(&self.env, CONVERGES, || self.difference()).await?;
        let [kept, lost] = FIRST;
        for verb in [Verb::List, Verb::Watch] {
            self.rights.take(verb, "configmaps", Some(lost));
        }
        let held = self.crowd.informer.lister().list_namespace(lost).len();
        self.env.sleep(CONVERGES).await;
        match self.crowd.informer.presence() {
            KindAvailability::Forbidden(denial) if denial.namespace.as_deref() == Some(lost) => {}
            other => return Err(format!("reads of {lost} are denied, but the availability is {other:?}")),
        }
        let still = self.crowd.informer.lister().list_namespace(lost).len();
        if still != held {
            return Err(format!("reads are denied: {still} of {held} cached objects remain"));
        }
        self.put(kept, "a");
        self.env.sleep(MOMENT).await;
        let key = ObjectKey::namespaced(kept, "a");
        let (version, held) =
            (self.hand.history.at(&key, u64::MAX), self.crowd.informer.lister().get_lossy(&key));
        if held.map(|it| super::told::version(&*it)) != version {
            return Err(format!("{kept} waits for {lost}, whose reads are denied"));
        }
        self.rights.give_all_back();
        converge(&self.env, CONVERGES, || {
            let said = self.crowd.informer.presence();
            let still = (said != KindAvailability::Served)
                .then(|| format!("all reads are permitted, but the availability is {said:?}"));
            self.difference().or(still)
        })
        .await
    }

    fn asked_for_nothing_else(&self) -> Result<(), String> {
        let sent = self.hand.scene.sent_requests();
        let others = sent.iter().find(|asked| {
            asked.resource == "configmaps" && !NAMESPACES[..SELECTABLE].contains(&asked.namespace.as_str())
        });
        others
            .map_or(Ok(()), |asked| Err(format!("request outside the selected namespaces: {}", asked.line())))
    }

    fn difference(&self) -> Option<String> {
        let all = self.hand.all();
        let selected = all.iter().map(|it| (key_of(it), version_of(it)));
        let selected = selected.filter(|(key, _)| self.set.contains(key.namespace().unwrap_or_default()));
        self.crowd.difference(&selected.collect())
    }

    fn one_of<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[index(&mut self.rng, choices.len())]
    }
}
