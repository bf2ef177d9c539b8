//! One informer per kind, selection and representation, started together.
//!
//! A factory is made without a cluster, so that controllers can be set up, and their needs read off, where
//! there is none. [`InformerFactory::start`] brings the sources.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{self, BoxFuture};
use kube::Resource;
use serde::de::DeserializeOwned;
use windlass_env::{Env, Instant};
use windlass_metrics::Metrics;
use windlass_object::{GroupResource, Representation, ResourceKind, Scope, Scoped, Typed};

use crate::error::{Laggard, NotSynced};
use crate::list_watch::{Selection, Sources};
use crate::shared_informer::{SharedInformer, VersionSource};

/// Makes, keeps and starts informers. Cheap to clone; clones are one factory.
#[derive(Clone)]
pub struct InformerFactory {
    inner: Arc<Inner>,
}

/// What the informers of a factory have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactoryOptions {
    /// How often handlers are told of every object although nothing happened. `None` by default:
    /// level-triggered controllers that need another look ask for it themselves, per key.
    pub resync: Option<Duration>,
    /// The namespace of [`InformerFactory::typed`] informers of namespaced kinds. `None` by default: all of
    /// them.
    pub namespace: Option<String>,
    /// Tells this factory's random numbers from those of another in the same [`Env`]. Two factories of one
    /// name in one Env cannot both start an informer of the same kind.
    pub name: String,
}

struct Inner {
    env: Env,
    metrics: Metrics,
    options: FactoryOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    informers: BTreeMap<Identity, Box<dyn AnyInformer>>,
    shut_down: bool,
}

/// What makes two requests for an informer requests for the same one. Ordered by kind first, so that
/// informers are started and reported in an order that people expect.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    kind: ResourceKind,
    selection: Selection,
    representation: TypeId,
}

/// An informer of whatever representation.
trait AnyInformer: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn boxed_clone(&self) -> Box<dyn AnyInformer>;
    fn start(&self, sources: &dyn Sources, resync: Option<Duration>);
    fn stop(&self) -> BoxFuture<'_, ()>;
    fn is_running(&self) -> bool;
    fn is_following(&self) -> bool;
    fn has_synced(&self) -> bool;
    /// Waits for the initial list; `false` if the informer ended first.
    fn synced(&self) -> BoxFuture<'_, bool>;
    fn laggard(&self) -> Laggard;
    fn trouble(&self) -> Option<String>;
    fn version_source(&self) -> Arc<dyn VersionSource>;
}

impl Default for FactoryOptions {
    fn default() -> Self {
        Self { resync: None, namespace: None, name: "informers".to_owned() }
    }
}

impl InformerFactory {
    /// A factory without informers.
    pub fn new(env: Env, metrics: Metrics, options: FactoryOptions) -> Self {
        Self { inner: Arc::new(Inner { env, metrics, options, state: Mutex::default() }) }
    }

    /// The informer of that kind, selection and representation, made if there is none yet.
    ///
    /// One that is made after [`start`](Self::start) needs another start. Representations are told apart by
    /// their type and kind: of two that differ in nothing else, the first is used.
    pub fn informer<R: Representation>(&self, representation: R, selection: Selection) -> SharedInformer<R> {
        let identity = Identity {
            kind: representation.kind(),
            selection: selection.clone(),
            representation: R::identity(),
        };
        let mut state = self.inner.lock();
        let made = state.informers.get(&identity).and_then(|informer| informer.as_any().downcast_ref());
        if let Some(informer) = made {
            return SharedInformer::clone(informer);
        }
        let Inner { env, metrics, options, .. } = &*self.inner;
        let informer = SharedInformer::new(env, metrics, &options.name, representation, selection);
        state.informers.insert(identity, Box::new(informer.clone()));
        informer
    }

    /// The informer of the whole objects of a type, in this factory's namespace if it has one.
    pub fn typed<K>(&self) -> SharedInformer<Typed<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
        K::Scope: Scoped,
    {
        let namespace = self.inner.options.namespace.clone();
        let namespace = namespace.filter(|_| K::Scope::SCOPE == Scope::Namespaced);
        self.informer(Typed::new(), Selection { namespace, ..Selection::default() })
    }

    /// Starts every informer that has not been started. Starting twice starts nothing twice; after
    /// [`shutdown`](Self::shutdown) nothing is started any more.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(&self, sources: Arc<dyn Sources>) {
        if self.inner.lock().shut_down {
            return;
        }
        for informer in self.inner.informers() {
            informer.start(&*sources, self.inner.options.resync);
        }
    }

    /// Waits until every started informer has its initial list, at most for `within` if that is given.
    ///
    /// # Errors
    ///
    /// [`NotSynced`] names those that have none: not in time, or because they were never started or were shut
    /// down.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn wait_for_sync(&self, within: Option<Duration>) -> Result<(), NotSynced> {
        let deadline = within.map_or(Instant::NEVER, |within| self.inner.env.now() + within);
        let informers = self.inner.informers();
        let all = async {
            for informer in informers.iter().filter(|informer| informer.is_running()) {
                informer.synced().await;
            }
        };
        // Who synced, who ended and who ran out of time is told by the informers themselves.
        future::select(pin!(all), pin!(self.inner.env.sleep_until(deadline))).await;
        let behind = informers.iter().filter(|informer| !informer.has_synced());
        let laggards: Vec<Laggard> = behind.map(|informer| informer.laggard()).collect();
        if laggards.is_empty() { Ok(()) } else { Err(NotSynced { laggards }) }
    }

    /// The running informers that follow their source no more: a defect that only a new process mends, see
    /// [`SharedInformer::is_following`].
    pub fn stuck(&self) -> Vec<(ResourceKind, Selection)> {
        let state = self.inner.lock();
        let stuck = state.informers.iter().filter(|(_, one)| one.is_running() && !one.is_following());
        stuck.map(|(identity, _)| (identity.kind.clone(), identity.selection.clone())).collect()
    }

    /// The running informers that may be missing changes right now, with what they last failed at: until they are
    /// out of it, their caches may be older than a watch that works would leave them.
    pub fn troubled(&self) -> Vec<(ResourceKind, String)> {
        let state = self.inner.lock();
        let running = state.informers.iter().filter(|(_, one)| one.is_running());
        running.filter_map(|(it, one)| one.trouble().map(|trouble| (it.kind.clone(), trouble))).collect()
    }

    /// What there are informers of, in order.
    pub fn kinds(&self) -> Vec<(ResourceKind, Selection)> {
        let state = self.inner.lock();
        let mut kinds: Vec<_> =
            state.informers.keys().map(|it| (it.kind.clone(), it.selection.clone())).collect();
        kinds.dedup();
        kinds
    }

    /// How far the cache of a resource has come, if there is one. An informer of everything is preferred to
    /// one that leaves objects out.
    pub fn version_source(&self, resource: &GroupResource) -> Option<Arc<dyn VersionSource>> {
        let state = self.inner.lock();
        let of_resource = state.informers.iter().filter(|(it, _)| it.kind.group_resource() == *resource);
        let best = of_resource.min_by_key(|(it, _)| it.selection.is_filtered());
        best.map(|(_, informer)| informer.version_source())
    }

    /// How far every cache of a resource has come: one per selection and representation.
    pub fn version_sources(&self, resource: &GroupResource) -> Vec<Arc<dyn VersionSource>> {
        let state = self.inner.lock();
        let of_resource = state.informers.iter().filter(|(it, _)| it.kind.group_resource() == *resource);
        of_resource.map(|(_, informer)| informer.version_source()).collect()
    }

    /// Every informer that runs, by its kind: for who has to know that all of them are fresh.
    pub fn running(&self) -> Vec<(ResourceKind, Arc<dyn VersionSource>)> {
        let state = self.inner.lock();
        let running = state.informers.iter().filter(|(_, one)| one.is_running());
        running.map(|(it, one)| (it.kind.clone(), one.version_source())).collect()
    }

    /// Stops every informer and returns once all their tasks have ended. What is stored stays readable.
    ///
    /// # Cancel safety
    /// Those already stopped stay stopped; calling it again goes on.
    pub async fn shutdown(&self) {
        self.inner.lock().shut_down = true;
        let informers = self.inner.informers();
        future::join_all(informers.iter().map(|informer| informer.stop())).await;
    }
}

impl Inner {
    fn informers(&self) -> Vec<Box<dyn AnyInformer>> {
        self.lock().informers.values().map(|informer| informer.boxed_clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Representation> AnyInformer for SharedInformer<R> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn boxed_clone(&self) -> Box<dyn AnyInformer> {
        Box::new(self.clone())
    }

    fn start(&self, sources: &dyn Sources, resync: Option<Duration>) {
        SharedInformer::start(self, || sources.source(self.kind(), self.selection()), resync);
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(SharedInformer::stop(self))
    }

    fn is_running(&self) -> bool {
        SharedInformer::is_running(self)
    }

    fn is_following(&self) -> bool {
        SharedInformer::is_following(self)
    }

    fn has_synced(&self) -> bool {
        SharedInformer::has_synced(self)
    }

    fn synced(&self) -> BoxFuture<'_, bool> {
        Box::pin(SharedInformer::synced(self))
    }

    fn laggard(&self) -> Laggard {
        Laggard { kind: self.kind().clone(), selection: self.selection().clone(), lag: self.lag() }
    }

    fn trouble(&self) -> Option<String> {
        SharedInformer::trouble(self)
    }

    fn version_source(&self) -> Arc<dyn VersionSource> {
        Arc::new(self.clone())
    }
}

impl fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerFactory")
            .field("kinds", &self.kinds())
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
