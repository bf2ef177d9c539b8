//! One informer with a byte budget that grows and shrinks, with objects that fit or do not fit. It contains either all
//! objects of the server at some version, or less than the budget permits; and it recovers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use windlass_env::{Env, Instant, Rng};
use windlass_informer::{ApiServerSources, FactoryOptions, InformerFactory};
use windlass_metrics::Metrics;
use windlass_object::ObjectKey;
use windlass_testing::api_server::faults::FaultyServer;
use windlass_testing::{FaultKind, FaultPlan};

use super::handler_oracle::TestObject as _;
use super::handlers::HandlerSet;
use super::object_writer::ObjectWriter;
use super::{CONVERGENCE_TIMEOUT, NAMES, NAMESPACES, SPAN};
use super::{converge, index, key_of, link_faults, oracle_for, reader, version_of, with_gaps};
use crate::guarantees::family::{PlanFamily, run_script};

/// Simulations of an informer with a byte budget.
pub const FAMILY: PlanFamily =
    PlanFamily { name: "budget", generate: generate_plan, run, regressions: REGRESSIONS };

const REGRESSIONS: &[&str] = &[];

/// Budgets for no objects, few objects, about half of them, and all of them.
const BUDGETS: [usize; 4] = [100, 9_000, 24_000, 1_000_000];
const PLENTY: usize = BUDGETS[3];
const SCARCE: usize = BUDGETS[1];
/// Maximum delay of events that were admitted before a budget shrank.
const MOMENT: Duration = Duration::from_secs(2);

fn generate_plan(seed: u64) -> FaultPlan {
    let faults = link_faults();
    with_gaps(faults.without(FaultKind::Stale).plan(seed, SPAN, 1, &["configmaps".to_owned()]), "configmaps")
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
    factory: InformerFactory,
    handlers: HandlerSet<ConfigMap>,
    metrics: Metrics,
    budget: usize,
    /// Time since which this budget applies.
    since: Instant,
    /// Permitted size of the cache: the budget, or the size when the budget shrank.
    allowed: usize,
}

impl World {
    fn new(world: &Env, plan: &FaultPlan) -> World {
        let env = world.with_incarnation("a", 0);
        let (mut rng, metrics) = (env.rng("script"), Metrics::new());
        let server = FaultyServer::new(&env, plan.clone());
        let budget = BUDGETS[index(&mut rng, BUDGETS.len())];
        let options = FactoryOptions { byte_budget: Some(budget as u64), ..FactoryOptions::default() };
        let factory = InformerFactory::new(env.clone(), metrics.clone(), options);
        let informer = factory.typed::<ConfigMap>();
        let writer = ObjectWriter::new(&server, "/api/v1", "configmaps");
        let handlers =
            HandlerSet::new(informer.clone(), oracle_for(informer.lister(), &writer, plan), &writer.history);
        let (since, allowed) = (env.now(), budget);
        World { env, writer, plan: plan.clone(), rng, factory, handlers, metrics, budget, since, allowed }
    }

    async fn play(&mut self) -> Result<(), String> {
        self.writer.server.upsert("/api/v1/namespaces/other", json!({}));
        for namespace in NAMESPACES {
            for name in ["a", "b", "c"] {
                self.put(namespace, name);
            }
        }
        let there: BTreeSet<_> = self.writer.history.present().into_keys().collect();
        for name in ["plain", "to be removed"] {
            self.handlers.watch(name, None).expect_before_sync(there.clone());
        }
        let reader = reader(&self.env, &self.writer.server, &self.metrics)?;
        self.factory.start(Arc::new(ApiServerSources::new(reader)));
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
        match self.rng.below(16) {
            0..=3 if self.writer.exists(namespace, name) => self.writer.delete(namespace, name),
            4..=6 => {
                let budget = *self.one_of(&BUDGETS);
                self.set_budget(budget);
            }
            7 if self.handlers.watchers.len() < 4 => self.handlers.watch_late(),
            8 => {
                let at = 1 + index(&mut self.rng, 3);
                self.handlers.remove(at);
            }
            _ => self.put(namespace, name),
        }
    }

    fn set_budget(&mut self, budget: usize) {
        self.check();
        (self.budget, self.since) = (budget, self.env.now());
        self.allowed = self.allowed.max(budget);
        self.handlers.informer.set_byte_budget(Some(budget as u64));
    }

    fn put(&mut self, namespace: &str, name: &str) {
        let bulk = *self.one_of(&[0, 1_000, 3_000, 8_000]);
        self.writer.put(namespace, name, "x", bulk);
    }

    /// Returns the cached size of the data in the objects. The objects are slightly larger.
    fn held(&self) -> usize {
        self.handlers.informer.lister().list().iter().map(|map| map.bulk()).sum()
    }

    fn check(&mut self) {
        self.handlers.check(|key, uid| self.writer.history.was_always_decodable(key, uid));
        let (held, allowed) = (self.held(), self.allowed);
        self.handlers
            .oracle
            .check(held <= allowed, || format!("{held} bytes are held and {allowed} are allowed"));
        if self.env.now() - self.since >= MOMENT {
            self.allowed = self.budget.max(held.min(allowed));
        }
    }

    async fn conclude(&mut self) -> Result<u64, String> {
        self.set_budget(PLENTY);
        self.recover().await?;
        self.run_out().await?;
        self.set_budget(PLENTY);
        self.recover().await?;
        self.shrink().await?;
        let event_count = self.handlers.event_count();
        self.factory.shutdown().await;
        self.handlers.oracle.result()?;
        Ok(event_count)
    }

    async fn recover(&mut self) -> Result<(), String> {
        let env = self.env.clone();
        converge(&env, CONVERGENCE_TIMEOUT, || {
            self.check();
            self.difference()
        })
        .await?;
        self.handlers.oracle.result()
    }

    /// Checks that an informer over budget reports it, serves the cached objects, and rejects further objects.
    async fn run_out(&mut self) -> Result<(), String> {
        let refusals = self.metrics.informer("", "v1", "configmaps").over_budget;
        let (before, held) = (refusals.get(), self.held());
        self.set_budget(SCARCE);
        self.env.sleep(MOMENT).await;
        self.check();
        for (namespace, name) in NAMESPACES.iter().flat_map(|at| NAMES.map(|name| (*at, name))) {
            self.writer.put(namespace, name, "y", 4_000);
            self.env.sleep(Duration::from_secs(1)).await;
            self.check();
        }
        self.env.sleep(CONVERGENCE_TIMEOUT).await;
        self.check();
        self.handlers.oracle.result()?;
        if refusals.get() == before {
            return Err(format!("with a budget of {SCARCE} no object was rejected; {held} are held"));
        }
        match self.handlers.informer.last_error() {
            Some(error) if error.contains("byte budget") => Ok(()),
            other => Err(format!("it is over its budget, but reports {other:?}")),
        }
    }

    /// Checks that a budget that was exceeded is sufficient after the server has fewer objects.
    async fn shrink(&mut self) -> Result<(), String> {
        self.set_budget(SCARCE);
        for (namespace, name) in NAMESPACES.iter().flat_map(|at| NAMES.map(|name| (*at, name))) {
            if self.writer.exists(namespace, name) {
                self.writer.put(namespace, name, "z", 0);
            }
        }
        self.recover().await
    }

    fn difference(&self) -> Option<String> {
        let all = self.writer.all();
        let all: BTreeMap<ObjectKey, u64> = all.iter().map(|it| (key_of(it), version_of(it))).collect();
        self.handlers.difference(&all)
    }

    fn one_of<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[index(&mut self.rng, choices.len())]
    }
}
