//! One informer of a kind whose CRD is installed and removed and whose permissions are revoked at times, next to an
//! informer of a kind that must not be affected.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use serde_json::json;
use windlass_env::{Env, Rng};
use windlass_informer::{FactoryOptions, InformerFactory, KindAvailability, Selection};
use windlass_metrics::Metrics;
use windlass_object::{DynamicObjects, ObjectKey, ResourceKind, Scope, Verb};
use windlass_testing::api_server::faults::FaultyServer;
use windlass_testing::{FaultAction, FaultPlan};

use super::access_proxy::Rights;
use super::handler_oracle::version as version_in;
use super::handlers::HandlerSet;
use super::object_writer::ObjectWriter;
use super::{
    CONVERGENCE_TIMEOUT, MAX_WATCH, NAMES, SPAN, converge, index, key_of, link_faults, oracle_for, process,
    reader, version_of, with_clock, with_gaps,
};
use crate::guarantees::family::{PlanFamily, run_script};

/// Simulations of an informer of a kind that is installed and removed.
pub const FAMILY: PlanFamily =
    PlanFamily { name: "presence", generate: generate_plan, run, regressions: REGRESSIONS };

const REGRESSIONS: &[&str] = &[
    // The fault omitted the first and the last event of an object, and not the one between them.
    r#"{"seed": 2002725, "faults": [
        {"from_ms":109248,"until_ms":222009,"permille":500,"what":{"Coalesced":{"within_ms":7000}}},
        {"from_ms":24294,"until_ms":232603,"instance":"a","resource":"widgets","what":"WatchHeld"},
        {"from_ms":34185,"until_ms":45694,"resource":"widgets","what":"WatchExpired"}
    ]}"#,
];

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
/// Maximum wait for operations that must not be delayed.
const MOMENT: Duration = Duration::from_secs(5);

fn generate_plan(seed: u64) -> FaultPlan {
    let faults = link_faults();
    let plan = faults.plan(seed, SPAN, 1, &["configmaps".to_owned(), "widgets".to_owned()]);
    with_clock(with_gaps(plan, "widgets"))
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
    /// Env of the informers.
    process: Env,
    maps: ObjectWriter,
    widgets: ObjectWriter,
    plan: FaultPlan,
    rng: Rng,
    rights: Rights,
    factory: InformerFactory,
    of_maps: HandlerSet<ConfigMap>,
    of_widgets: HandlerSet<DynamicObject>,
    metrics: Metrics,
    defined: bool,
}

impl World {
    fn new(world: &Env, plan: &FaultPlan) -> World {
        let (env, process) = (world.with_incarnation("a", 0), process(world, plan));
        let (mut rng, metrics) = (env.rng("script"), Metrics::new());
        let server = FaultyServer::new(&env, plan.clone());
        let options = FactoryOptions { watch_crds: rng.below(2) == 0, ..FactoryOptions::default() };
        let factory = InformerFactory::new(process.clone(), metrics.clone(), options);
        let (maps, widgets) = (
            ObjectWriter::new(&server, "/api/v1", "configmaps"),
            ObjectWriter::new(&server, "/apis/example.com/v1", "widgets"),
        );
        let informer = factory.typed::<ConfigMap>();
        let of_maps =
            HandlerSet::new(informer.clone(), oracle_for(informer.lister(), &maps, plan), &maps.history);
        let informer = factory.informer(DynamicObjects::new(kind()), Selection::default());
        let of_widgets = HandlerSet::new(
            informer.clone(),
            oracle_for(informer.lister(), &widgets, plan),
            &widgets.history,
        );
        let (rights, plan, defined) = (Rights::default(), plan.clone(), false);
        World {
            env,
            process,
            maps,
            widgets,
            plan,
            rng,
            rights,
            factory,
            of_maps,
            of_widgets,
            metrics,
            defined,
        }
    }

    async fn play(&mut self) -> Result<(), String> {
        for name in ["a", "b"] {
            self.maps.put("default", name, "x", 0);
        }
        if self.rng.below(2) == 0 {
            self.define();
        }
        self.of_maps
            .watch("maps", None)
            .expect_before_sync(self.maps.history.present().into_keys().collect());
        for name in ["plain", "to be removed"] {
            self.of_widgets.watch(name, None);
        }
        let reader = reader(&self.process, &self.maps.server, &self.metrics)?;
        self.factory.start(self.rights.guard(reader));
        while self.env.now().since_origin() < SPAN.max(self.plan.end()) {
            let pause = *self.one_of(&[0, 1, 40, 700, 5_000, 15_000, 40_000]);
            self.env.sleep(Duration::from_millis(pause)).await;
            self.step();
            self.check()?;
        }
        Ok(())
    }

    fn step(&mut self) {
        let name = *self.one_of(&NAMES);
        match self.rng.below(24) {
            0..=2 if self.widgets.exists("default", name) => self.widgets.delete("default", name),
            3..=4 if self.defined => self.undefine(),
            5..=8 if !self.defined => self.define(),
            9..=10 => {
                let verb = *self.one_of(&[Verb::List, Verb::Watch]);
                self.rights.take(verb, "widgets", None);
            }
            11..=12 => self.rights.give_all_back(),
            13 if self.of_widgets.watchers.len() < 5 => self.of_widgets.watch_late(),
            14 => {
                let at = 1 + index(&mut self.rng, 4);
                self.of_widgets.remove(at);
            }
            15..=17 => self.maps.put("default", name, "y", 0),
            _ if self.defined => self.widgets.put("default", name, "x", 0),
            _ => {}
        }
    }

    fn define(&mut self) {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let version = json!({
            "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
        });
        let names = json!({ "plural": "widgets", "singular": "widget", "kind": "Widget" });
        let spec = json!({
            "group": "example.com", "scope": "Namespaced", "names": names, "versions": [version],
        });
        self.widgets.server.upsert(DEFINITION, json!({ "spec": spec }));
        self.defined = true;
        for name in ["a", "b"] {
            self.widgets.put("default", name, "x", 0);
        }
    }

    fn undefine(&mut self) {
        self.defined = false;
        self.widgets.lose_all(|server| server.delete(DEFINITION));
    }

    /// Removes the CRD while the informer cannot observe the deletion of its objects.
    async fn undefine_unseen(&mut self) {
        self.widgets.server.inject_fault(|asked| {
            let what = if asked.is_watch() { FaultAction::WatchClosed } else { FaultAction::Unavailable };
            (asked.resource == "widgets").then_some(what)
        });
        self.widgets.put("default", "a", "z", 0);
        self.env.sleep(MOMENT).await;
        self.undefine();
        self.env.sleep(MOMENT).await;
        self.widgets.server.inject_fault(|_| None);
    }

    fn check(&self) -> Result<(), String> {
        self.of_maps.check(|key, uid| self.maps.history.was_always_decodable(key, uid));
        self.of_widgets.check(|_, _| false);
        self.of_maps.oracle.result()?;
        self.of_widgets.oracle.result()
    }

    async fn conclude(&mut self) -> Result<u64, String> {
        self.rights.give_all_back();
        for is_seen in [true, false] {
            if !self.defined {
                self.define();
            }
            self.settle(&KindAvailability::Served).await?;
            self.lose_the_right().await?;
            if is_seen {
                self.undefine();
            } else {
                self.undefine_unseen().await;
            }
            self.check_other_kind_is_delivered("which are not served").await?;
            self.settle(&KindAvailability::Absent).await?;
            let waited = self.factory.wait_for_sync(Some(MOMENT)).await;
            waited.map_err(|error| format!("a missing kind delays others: {error}"))?;
        }
        let event_count = self.of_widgets.event_count() + self.of_maps.event_count();
        self.factory.shutdown().await;
        self.check()?;
        Ok(event_count)
    }

    /// Waits until the cache equals the server, and the reported availability is correct.
    async fn settle(&self, presence: &KindAvailability) -> Result<(), String> {
        converge(&self.env, CONVERGENCE_TIMEOUT, || {
            let said = self.of_widgets.informer.availability();
            let false_word =
                (said != *presence).then(|| format!("the availability is {said:?}, not {presence:?}"));
            self.difference().or(false_word)
        })
        .await?;
        self.check()
    }

    /// Checks that a revoked permission is reported with the rule to add, and removes no cached object.
    async fn lose_the_right(&mut self) -> Result<(), String> {
        let verb = *self.one_of(&[Verb::List, Verb::Watch]);
        self.rights.take(verb, "widgets", None);
        if verb == Verb::List {
            // Without permission to list, the informer keeps working while a watch can be resumed.
            self.widgets.server.inject_fault(|asked| {
                (asked.is_watch() && asked.resource == "widgets").then_some(FaultAction::Expired)
            });
        }
        self.env.sleep(MAX_WATCH).await;
        // An open watch ends at its timeout, or with its next event.
        let held = self.of_widgets.informer.lister().keys();
        self.env.sleep(CONVERGENCE_TIMEOUT).await;
        self.check()?;
        match self.of_widgets.informer.availability() {
            KindAvailability::Forbidden(denial)
                if denial.verb == verb && denial.to_string().contains("widgets") => {}
            other => return Err(format!("{verb:?} is denied, but the availability is {other:?}")),
        }
        let still = self.of_widgets.informer.lister().keys();
        if still != held {
            return Err(format!("reads are denied: {still:?} of the cached {held:?} remain"));
        }
        self.check_other_kind_is_delivered("which must not be read").await?;
        self.rights.give_all_back();
        self.widgets.server.inject_fault(|_| None);
        self.settle(&KindAvailability::Served).await
    }

    /// Checks that a failing watch delays no other kind: a write of the other kind is cached within [`MOMENT`].
    async fn check_other_kind_is_delivered(&mut self, why: &str) -> Result<(), String> {
        self.maps.put("default", "a", "x", 0);
        self.env.sleep(MOMENT).await;
        let key = ObjectKey::namespaced("default", "a");
        let (version, held) =
            (self.maps.history.at(&key, u64::MAX), self.of_maps.informer.lister().get_lossy(&key));
        if held.map(|it| version_in(&*it)) != version {
            return Err(format!("ConfigMaps wait for Widgets, {why}"));
        }
        self.check()
    }

    fn difference(&self) -> Option<String> {
        let widgets = if self.defined { self.widgets.all() } else { Vec::new() };
        let [maps, widgets] = [self.maps.all(), widgets].map(|all| {
            all.iter().map(|it| (key_of(it), version_of(it))).collect::<BTreeMap<ObjectKey, u64>>()
        });
        self.of_maps.difference(&maps).or_else(|| self.of_widgets.difference(&widgets))
    }

    fn one_of<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        &choices[index(&mut self.rng, choices.len())]
    }
}

fn kind() -> ResourceKind {
    ResourceKind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
        scope: Scope::Namespaced,
    }
}
