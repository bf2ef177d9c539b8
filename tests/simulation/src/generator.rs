//! A controller that creates one Secret with a generated name for each generation of a ConfigMap, with each form of
//! cache.
//!
//! The server accepts every create with `generateName`, so only read-your-writes prevents a second child: no name
//! conflict hides a reconcile on a stale cache.

use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use windlass_controller::{
    Context, Controller, Descriptor, Outcome, ReconcileError, Registration, Setup, SetupError, retry,
};
use windlass_env::Instant;
use windlass_informer::{Lister, NamespaceSet, Selection};
use windlass_object::{ObjectKey, Verb};
use windlass_testing::{Cluster, Simulation, Snapshot};

use crate::fixtures::{NAMESPACE, object};

/// Label of every child. The selected cache selects it.
const CHILD_LABEL: (&str, &str) = ("made-by", "generator");
/// Label with the name of the parent.
const PARENT: &str = "parent";
/// Label with the generation.
const GENERATION: &str = "generation";
/// Delay after a create until the controller reconciles the key again.
const REQUEUE_DELAY: Duration = Duration::from_secs(1);

/// Form of the cache of the children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheForm {
    /// All objects of the kind.
    Plain,
    /// The namespaces that the process is configured with.
    Namespaced,
    /// The objects that match a label selector.
    Selected,
    /// The shards that the replica holds.
    Sharded,
}

impl CacheForm {
    /// All forms.
    pub const ALL: [CacheForm; 4] =
        [CacheForm::Plain, CacheForm::Namespaced, CacheForm::Selected, CacheForm::Sharded];

    /// Returns a simulation whose processes cache in this form: one process without an election, or two with sharding.
    pub fn simulation(self, seed: u64) -> Simulation {
        let simulation = Simulation::new(seed).resources(["secrets", "configmaps"]);
        match self {
            CacheForm::Plain | CacheForm::Selected => simulation.replicas(1),
            CacheForm::Namespaced => simulation
                .replicas(1)
                .with_config(|config| config.cache.namespaces = Some(NamespaceSet::from_names([NAMESPACE]))),
            CacheForm::Sharded => simulation.with_config(|config| config.shards = NonZeroU16::new(2)),
        }
    }

    fn selection(self) -> Selection {
        let labels = (self == CacheForm::Selected).then(|| format!("{}={}", CHILD_LABEL.0, CHILD_LABEL.1));
        Selection { labels, ..Selection::default() }
    }
}

/// Reconciles of one run, in order.
#[derive(Clone, Debug, Default)]
pub struct ReconcileRecords(Arc<Mutex<Vec<ReconcileRecord>>>);

/// One reconcile.
#[derive(Clone, Debug)]
pub struct ReconcileRecord {
    /// Reconciled key.
    pub key: ObjectKey,
    /// Start of the reconcile.
    pub begun: Instant,
    /// Whether it sent a create.
    pub creates: bool,
}

impl ReconcileRecords {
    /// Returns the time between the starts of the first creating reconcile of `key` and the next reconcile of `key`.
    pub fn resumed_after(&self, key: &ObjectKey) -> Option<Duration> {
        let records = self.lock();
        let mut records =
            records.iter().filter(|record| record.key == *key).skip_while(|record| !record.creates);
        let created = records.next()?.begun;
        Some(records.next()?.begun.saturating_duration_since(created))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ReconcileRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Generator {
    parents: Lister<ConfigMap>,
    children: Lister<Secret>,
    records: ReconcileRecords,
}

/// Returns the controller with caches of this form. It appends its reconciles to `records`.
pub fn registration(form: CacheForm, records: &ReconcileRecords) -> Registration {
    Registration::controller_with::<Generator>((form, records.clone()))
}

impl Controller for Generator {
    const NAME: &'static str = "generator-controller";
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME);
    type Config = (CacheForm, ReconcileRecords);

    fn setup(setup: &mut Setup, (form, records): &Self::Config) -> Result<Self, SetupError> {
        setup.uses::<Secret>([Verb::Create]);
        let parents = setup.primary::<ConfigMap>().lister();
        let children = setup.watch::<Secret>().with_selection(form.selection()).enqueue(parent_of).lister();
        Ok(Self { parents, children, records: records.clone() })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let parent = self.parents.get(key)?;
        let generation = parent.as_ref().and_then(|parent| parent.data.as_ref()?.get(GENERATION).cloned());
        let missing = generation.filter(|generation| !self.has_child(key, generation));
        self.records.lock().push(ReconcileRecord {
            key: key.clone(),
            begun: cx.env().now(),
            creates: missing.is_some(),
        });
        let Some(generation) = missing else { return Ok(Outcome::Done) };
        let api: Api<Secret> = Api::namespaced(cx.client().clone(), NAMESPACE);
        api.create(&PostParams::default(), &child(key.name(), &generation)).await.map_err(retry)?;
        Ok(Outcome::RequeueAfter(REQUEUE_DELAY))
    }
}

impl Generator {
    fn has_child(&self, key: &ObjectKey, generation: &str) -> bool {
        self.children.list().iter().any(|child| {
            let labels = child.metadata.labels.as_ref();
            let label = |name: &str| labels.and_then(|labels| labels.get(name)).map(String::as_str);
            label(PARENT) == Some(key.name()) && label(GENERATION) == Some(generation)
        })
    }
}

fn parent_of(child: &Secret) -> Vec<ObjectKey> {
    let parent = child.metadata.labels.as_ref().and_then(|labels| labels.get(PARENT));
    parent.map(|name| key(name)).into_iter().collect()
}

fn child(parent: &str, generation: &str) -> Secret {
    object(json!({
        "metadata": {
            "generateName": format!("{parent}-{generation}-"),
            "labels": { (CHILD_LABEL.0): CHILD_LABEL.1, (PARENT): parent, (GENERATION): generation },
        },
    }))
}

/// Returns the key of a parent.
pub fn key(parent: &str) -> ObjectKey {
    ObjectKey::namespaced(NAMESPACE, parent)
}

/// Returns the number of children of a parent on the server.
pub fn children(world: &Snapshot, parent: &str) -> usize {
    world.all("Secret").filter(|child| child["metadata"]["labels"][PARENT] == *parent).count()
}

/// Creates the namespace of the parents.
pub async fn namespace(cluster: &Cluster) {
    let namespace: Namespace = object(json!({ "metadata": { "name": NAMESPACE } }));
    cluster.create(&namespace).await;
}

/// Creates a parent of this generation.
pub async fn parent(cluster: &Cluster, name: &str, generation: u64) {
    let parent: ConfigMap = object(json!({
        "metadata": { "name": name, "namespace": NAMESPACE },
        "data": { (GENERATION): generation.to_string() },
    }));
    cluster.create(&parent).await;
}

/// Changes the generation of a parent.
///
/// # Panics
/// Panics if the server rejects the change.
pub async fn regenerate(cluster: &Cluster, name: &str, generation: u64) {
    let parents: Api<ConfigMap> = Api::namespaced(cluster.client(), NAMESPACE);
    let patch = Patch::Merge(json!({ "data": { (GENERATION): generation.to_string() } }));
    parents.patch(name, &PatchParams::default(), &patch).await.expect("no fault affects the user");
}

/// Number of parents.
const PARENTS: usize = 3;
/// Number of generations of each parent.
const GENERATIONS: u64 = 5;

/// Returns a script with parents that change their generation for ten minutes and get one child per generation.
pub fn generations(form: CacheForm) -> impl AsyncFn(Cluster) {
    async move |cluster: Cluster| {
        cluster.run([registration(form, &ReconcileRecords::default())]);
        namespace(&cluster).await;
        let names: Vec<String> = (0..PARENTS).map(|number| format!("parent-{number}")).collect();
        for generation in 1..=GENERATIONS {
            for name in &names {
                if generation == 1 {
                    parent(&cluster, name, generation).await;
                } else {
                    regenerate(&cluster, name, generation).await;
                }
                // The controller creates no child for a generation that it does not observe.
                let has_child = |world: &Snapshot| children(world, name) as u64 >= generation;
                cluster.eventually("the generation has a child", has_child).await;
                cluster.advance(Duration::from_secs(30)).await;
            }
        }
    }
}
