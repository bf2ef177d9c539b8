//! Creates one informer per kind, selection, set of namespaces and representation. Informers are started together and
//! stopped together or one by one.
//!
//! A factory needs no cluster, so controllers can be set up, and their requirements collected, without one.
//! [`InformerFactory::start`] sets the sources.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::{FutureExt as _, future};
use windlass_env::{Env, Instant};
use windlass_metrics::Metrics;
use windlass_object::{GroupResource, Representation, ResourceKind, Watchable};

pub use self::kinds::{KindOptions, KindOptionsMap};
pub use self::options::FactoryOptions;
use self::ref_counted::InformerRef;
pub use self::ref_counted::RefCountedInformer;
pub use self::selectors::Selectors;
use crate::erased::Codec;
use crate::error::{NotSynced, UnsyncedInformer};
use crate::handler::Resync;
use crate::informer::{Informer, VersionedCache};
use crate::list_watch::{Selection, SourceProvider};
use crate::namespaces::NamespaceSet;
use crate::partition::PartitionSet;
use crate::shared_informer::SharedInformer;

mod crds;
mod kinds;
mod options;
mod ref_counted;
mod selectors;

/// A factory that creates, keeps and starts informers. Cheap to clone; clones share one factory.
#[derive(Clone)]
pub struct InformerFactory {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    metrics: Metrics,
    options: FactoryOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    informers: BTreeMap<Identity, Arc<Informer>>,
    /// The references to reference-counted informers.
    references: BTreeMap<Identity, Weak<InformerRef>>,
    /// The informers that are being stopped one by one.
    stopping: Vec<Arc<Informer>>,
    /// The number of stopped informers. A single counter, so that an informer that is requested only once leaves no
    /// state.
    stopped: u64,
    /// Every set of namespaces that was requested. The index of a set is its number.
    sets: Vec<NamespaceSet>,
    /// The sources, once started.
    sources: Option<Arc<dyn SourceProvider>>,
    shut_down: bool,
}

/// The identity of an informer: requests with the same identity share one informer. Ordered by kind first, so that
/// informers are started and reported in a predictable order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    kind: ResourceKind,
    selection: Selection,
    /// The number of the set of namespaces, if the informer has one.
    namespaces: Option<usize>,
    representation: (TypeId, TypeId),
}

/// An informer that was found or created for a request.
struct InformerLookup {
    informer: Arc<Informer>,
    /// The sources to start it with, if the factory is started.
    sources: Option<Arc<dyn SourceProvider>>,
    identity: Identity,
    is_new: bool,
}

impl InformerFactory {
    /// Creates a factory without informers.
    ///
    /// # Panics
    ///
    /// If the resync period of the options is shorter than [`Resync::MIN`].
    pub fn new(env: Env, metrics: Metrics, options: FactoryOptions) -> Self {
        if let Some(period) = options.resync {
            assert!(
                period >= Resync::MIN,
                "the resync period {period:?} is too short; use {:?} or more",
                Resync::MIN
            );
        }
        Self { inner: Arc::new(Inner { env, metrics, options, state: Mutex::default() }) }
    }

    /// Returns the informer of that kind, selection and representation; creates it if it does not exist. If `selection`
    /// names no namespace, an informer of a namespaced kind uses the factory's set of namespaces, and an informer of
    /// any kind uses the factory's set of shards, unless the selection is [for every
    /// shard](Selection::with_every_shard). Both sets are optional.
    ///
    /// After [`start`](Self::start), the returned informer is already running; handlers and indexes can be added at any
    /// time. Representations are distinguished by their type and kind: of two representations that differ otherwise,
    /// the first is used. After an informer was [stopped](Self::stop), the next call creates a new one.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, if the factory has been started. If another factory with the same
    /// [name](FactoryOptions::name) has an informer of the same kind in this Env.
    pub fn informer<R: Representation>(
        &self,
        representation: R,
        selection: Selection,
    ) -> SharedInformer<R::Object> {
        let codec = Codec::of(representation);
        let selection = self.inner.options.narrow(&codec.kind, selection);
        let namespaces = self.inner.options.namespaces_of(&codec.kind);
        SharedInformer::of(self.get_or_insert(codec, selection, namespaces))
    }

    /// Returns the informer of that kind, selection and representation and keeps it only while it is referenced. It
    /// is stopped after the returned values and their clones, listers and indexes have been dropped.
    ///
    /// It is the same informer as that of [`informer`](Self::informer). If it was also requested there, it lasts as
    /// long as the factory.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, if the factory has been started. If another factory with the same
    /// [name](FactoryOptions::name) has an informer of the same kind in this Env.
    pub fn ref_counted_informer<R: Representation>(
        &self,
        representation: R,
        selection: Selection,
    ) -> RefCountedInformer<R::Object> {
        let codec = Codec::of(representation);
        let selection = self.inner.options.narrow(&codec.kind, selection);
        let namespaces = self.inner.options.namespaces_of(&codec.kind);
        let (informer, hold) = self.find_or_create(codec, selection, namespaces, |state, found| {
            state.reference(&self.inner, &found.identity, found.is_new)
        });
        RefCountedInformer { informer: SharedInformer::of(informer), reference: hold }
    }

    /// Returns whether the stored whole objects of this resource differ from the server's, because of
    /// [`KindOptions::transform`] or [`SharedInformer::set_transform`].
    pub fn has_transform(&self, resource: &GroupResource) -> bool {
        self.inner.options.kinds.has_transform(resource)
            || self.inner.informers_of(resource).iter().any(|informer| informer.transforms_whole_objects())
    }

    /// Returns the informer for exactly this selection and keeps it until the factory stops it.
    fn get_or_insert(
        &self,
        codec: Codec,
        selection: Selection,
        namespaces: Option<NamespaceSet>,
    ) -> Arc<Informer> {
        let permanent =
            |state: &mut State, found: &InformerLookup| drop(state.references.remove(&found.identity));
        self.find_or_create(codec, selection, namespaces, permanent).0
    }

    /// Finds or creates an informer, and starts it if the factory is started. `set_lifetime` sets its lifetime under
    /// the same lock.
    fn find_or_create<L>(
        &self,
        codec: Codec,
        selection: Selection,
        namespaces: Option<NamespaceSet>,
        set_lifetime: impl FnOnce(&mut State, &InformerLookup) -> L,
    ) -> (Arc<Informer>, L) {
        let scope = codec.kind.scope;
        let partitions = PartitionSet::of(scope, &selection, namespaces, self.inner.options.shards.clone());
        let (InformerLookup { informer, sources, .. }, lifetime) = {
            let mut state = self.inner.lock();
            let found = state.get_or_insert(&self.inner, codec, selection, partitions);
            let lifetime = set_lifetime(&mut state, &found);
            (found, lifetime)
        };
        if let Some(sources) = sources {
            informer.start(sources);
        }
        (informer, lifetime)
    }

    /// Returns the informer of a type of full objects or views, in the namespaces of this factory if it has some.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, if the factory has been started. If another factory with the same
    /// [name](FactoryOptions::name) has an informer of the same kind in this Env.
    pub fn typed<K: Watchable>(&self) -> SharedInformer<K> {
        self.informer(K::representation(), Selection::default())
    }

    /// Starts every informer, including informers that are requested later. The sources of the first call are kept:
    /// starting twice has no effect. After [`shutdown`](Self::shutdown) nothing is started.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime. If another factory with the same [name](FactoryOptions::name) has started an informer
    /// of the same kind in this Env.
    pub fn start(&self, sources: Arc<dyn SourceProvider>) {
        let sources = {
            let mut state = self.inner.lock();
            if state.shut_down {
                return;
            }
            Arc::clone(state.sources.get_or_insert(sources))
        };
        if self.inner.options.watch_crds && !self.inner.has_crd_informer() {
            // Watch all CRDs, whatever the factory selects: their labels are set by their installers.
            let selection = self.inner.options.every_shard(Selection::default());
            self.get_or_insert(Codec::of(crds::representation()), selection, None);
        }
        for informer in self.inner.informers() {
            informer.start(Arc::clone(&sources));
        }
    }

    /// Waits until every started informer has its initial list, for `within` at most if set. It does not wait for a
    /// kind that is not served ([`KindAvailability::Absent`](crate::KindAvailability::Absent));
    /// [`Informer::wait_for_sync`] does.
    ///
    /// # Errors
    ///
    /// [`NotSynced`] names the informers without an initial list, each with an
    /// [`UnsyncedReason`](crate::UnsyncedReason). Without `within`, the call waits indefinitely for a kind that the
    /// client is not permitted to read.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn wait_for_sync(&self, within: Option<Duration>) -> Result<(), NotSynced> {
        let deadline = within.map_or(Instant::NEVER, |within| self.inner.env.now() + within);
        let all = async {
            // Check again after each wait: the CRD of another informer might have been installed meanwhile.
            let waits = |one: &Informer| one.is_running() && !one.is_settled();
            while let Some(informer) = self.inner.informers().into_iter().find(|one| waits(one)) {
                informer.settled().await;
            }
        };
        // The informers themselves report which of them synced, stopped or timed out.
        future::select(pin!(all), pin!(self.inner.env.sleep_until(deadline))).await;
        let informers = self.inner.informers();
        let behind = informers.iter().filter(|informer| !informer.is_running() || !informer.is_settled());
        let behind = behind.filter(|informer| !informer.has_synced());
        let unsynced: Vec<UnsyncedInformer> = behind.flat_map(|informer| informer.unsynced()).collect();
        if unsynced.is_empty() { Ok(()) } else { Err(NotSynced { unsynced }) }
    }

    /// Stops one informer and returns when it has stopped. Its handlers receive no further events; its objects stay
    /// readable ([`Lister::is_stopped`](crate::Lister::is_stopped)). It is stopped for all its holders. The next
    /// request to the factory creates a new informer. An informer of another factory is ignored.
    ///
    /// # Cancel safety
    /// The informer is stopped immediately; [`shutdown`](Self::shutdown) waits for its remaining tasks.
    pub async fn stop(&self, informer: &Informer) {
        if !self.inner.lock().remove_informer(informer) {
            return;
        }
        informer.stop().await;
        self.inner.lock().stopping.retain(|one| !std::ptr::eq(&**one, informer));
    }

    /// Returns the running informers of which the processing loop or a reflector has stopped: a defect that only a
    /// restart of the process fixes.
    pub fn dead_informers(&self) -> Vec<(ResourceKind, Selection)> {
        let state = self.inner.lock();
        let stuck = state.informers.iter().filter(|(_, one)| one.is_running() && !one.is_following());
        stuck.map(|(identity, _)| (identity.kind.clone(), identity.selection.clone())).collect()
    }

    /// Returns the running informers whose tasks make no progress, and for how long, see [`Informer::stalled_for`].
    pub fn stalled(&self) -> Vec<(ResourceKind, Duration)> {
        let state = self.inner.lock();
        let running = state.informers.iter().filter(|(_, one)| one.is_running());
        running.filter_map(|(it, one)| one.stalled_for().map(|stuck| (it.kind.clone(), stuck))).collect()
    }

    /// Returns the kinds and selections of all informers, in order.
    pub fn kinds(&self) -> Vec<(ResourceKind, Selection)> {
        let state = self.inner.lock();
        let mut kinds: Vec<_> =
            state.informers.keys().map(|it| (it.kind.clone(), it.selection.clone())).collect();
        kinds.dedup();
        kinds
    }

    /// Returns every running informer, with its kind. A takeover waits for these caches.
    pub fn running(&self) -> Vec<(ResourceKind, Arc<dyn VersionedCache>)> {
        let state = self.inner.lock();
        let running = state.informers.iter().filter(|(_, one)| one.is_running());
        running.map(|(it, one)| (it.kind.clone(), Arc::clone(one) as Arc<dyn VersionedCache>)).collect()
    }

    /// Stops every informer and returns when all their tasks have stopped. Stored objects stay readable.
    ///
    /// # Cancel safety
    /// Stopped informers stay stopped; another call continues.
    pub async fn shutdown(&self) {
        let informers = {
            let mut state = self.inner.lock();
            state.shut_down = true;
            let stopping = state.stopping.iter().cloned();
            let all: Vec<_> = state.informers.values().cloned().chain(stopping).collect();
            all
        };
        future::join_all(informers.iter().map(|informer| informer.stop())).await;
    }
}

impl Inner {
    fn informers(&self) -> Vec<Arc<Informer>> {
        self.lock().informers.values().cloned().collect()
    }

    fn informers_of(&self, resource: &GroupResource) -> Vec<Arc<Informer>> {
        let state = self.lock();
        let of_resource = state.informers.iter().filter(|(it, _)| it.kind.group_resource() == *resource);
        of_resource.map(|(_, informer)| Arc::clone(informer)).collect()
    }

    /// Returns whether there is an informer of all CRDs.
    fn has_crd_informer(&self) -> bool {
        let state = self.lock();
        let mut informers = state.informers.keys();
        let whole = self.options.every_shard(Selection::default());
        informers.any(|it| crds::is_crd(&it.kind) && it.selection == whole)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    /// Breaks reference cycles: informers that never ran hold handlers, which can hold listers, which hold informers.
    fn drop(&mut self) {
        for informer in self.informers().iter().filter(|informer| !informer.is_running()) {
            // No task runs, so this does not wait.
            let _ended = informer.stop().now_or_never();
        }
    }
}

impl State {
    /// Returns the informer of a request.
    fn get_or_insert(
        &mut self,
        factory: &Arc<Inner>,
        codec: Codec,
        selection: Selection,
        partitions: Option<PartitionSet>,
    ) -> InformerLookup {
        let identity = Identity {
            kind: codec.kind.clone(),
            selection: selection.clone(),
            namespaces: partitions.as_ref().and_then(PartitionSet::namespaces).map(|set| self.number_of(set)),
            representation: codec.identity,
        };
        let sources = self.sources.clone().filter(|_| !self.shut_down);
        if let Some(informer) = self.informers.get(&identity) {
            return InformerLookup { informer: Arc::clone(informer), sources, identity, is_new: false };
        }
        let rng_prefix = self.rng_prefix(&factory.options.name, &identity);
        let settings = factory.options.settings(&codec.kind);
        let transform = factory.options.transform(&codec.kind, codec.identity.1);
        let informer = Arc::new(Informer::new(
            &factory.env,
            &factory.metrics,
            &rng_prefix,
            codec,
            selection,
            settings,
            partitions,
        ));
        if let Some(transform) = transform {
            informer.set_transform(transform).expect("it is new");
        }
        if crds::is_crd(&identity.kind) {
            // Link it before another caller can find and start it, so that its first events are observed.
            crds::link(factory, &informer);
        }
        self.informers.insert(identity.clone(), Arc::clone(&informer));
        InformerLookup { informer, sources, identity, is_new: true }
    }

    /// Returns the prefix of the names of an informer's random streams. Each name is used once: informers with equal
    /// identities get different prefixes.
    fn rng_prefix(&self, factory: &str, identity: &Identity) -> String {
        let set = identity.namespaces.map_or(String::new(), |number| format!("/set {number}"));
        // Between two informers with the same identity, one was stopped.
        let stopped = if self.stopped == 0 { String::new() } else { format!("/after {}", self.stopped) };
        format!("{factory}{set}{stopped}")
    }

    fn number_of(&mut self, set: &NamespaceSet) -> usize {
        self.sets.iter().position(|known| known == set).unwrap_or_else(|| {
            self.sets.push(set.clone());
            self.sets.len() - 1
        })
    }

    /// Removes an informer from the available informers; returns `false` if it is not among them.
    fn remove_informer(&mut self, informer: &Informer) -> bool {
        let found = self.informers.iter().find(|(_, one)| std::ptr::eq(&***one, informer));
        let Some(identity) = found.map(|(identity, _)| identity.clone()) else { return false };
        self.take_out(&identity);
        true
    }

    /// Removes an informer by its identity and records it as being stopped.
    fn take_out(&mut self, identity: &Identity) -> Option<Arc<Informer>> {
        self.references.remove(identity);
        let informer = self.informers.remove(identity)?;
        self.stopped += 1;
        self.stopping.push(Arc::clone(&informer));
        Some(informer)
    }

    /// Returns the stopped informers for the caller to drop without a lock.
    fn take_stopped(&mut self) -> Vec<Arc<Informer>> {
        self.stopping.extract_if(.., |one| one.has_stopped()).collect()
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
