//! One informer per kind, selection, set of namespaces and representation, started together, stopped together or one
//! by one.
//!
//! A factory is made without a cluster, so that controllers can be set up, and their needs read off, where
//! there is none. [`InformerFactory::start`] brings the sources.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::{FutureExt as _, future};
use kube::Resource;
use serde::de::DeserializeOwned;
use windlass_env::{Env, Instant};
use windlass_metrics::Metrics;
use windlass_object::{GroupResource, Representation, ResourceKind, Scoped, Typed};

use self::in_use::InformerRef;
pub use self::in_use::RefCountedInformer;
pub use self::kinds::{KindOptions, Kinds};
pub use self::options::FactoryOptions;
pub use self::selectors::Selectors;
use crate::erased::Codec;
use crate::error::{NotSynced, UnsyncedInformer};
use crate::informer::{Informer, VersionSource};
use crate::list_watch::{Selection, SourceProvider};
use crate::namespaces::NamespaceSet;
use crate::partition::PartitionSet;
use crate::shared_informer::SharedInformer;

mod definitions;
mod in_use;
mod kinds;
mod options;
mod selectors;

/// Makes, keeps and starts informers. Cheap to clone; clones are one factory.
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
    /// Those that last as long as they are used, and what keeps them going.
    holds: BTreeMap<Identity, Weak<InformerRef>>,
    /// Those that are being stopped one by one.
    ending: Vec<Arc<Informer>>,
    /// How many were stopped: one number for all, so that nothing is kept of what is asked for once and never again.
    stopped: u64,
    /// Every set of namespaces that was asked for, so that each has a number.
    sets: Vec<NamespaceSet>,
    /// Once started.
    sources: Option<Arc<dyn SourceProvider>>,
    shut_down: bool,
}

/// What makes two requests for an informer requests for the same one. Ordered by kind first, so that
/// informers are started and reported in an order that people expect.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    kind: ResourceKind,
    selection: Selection,
    /// The number of the set of namespaces, if it is over one.
    namespaces: Option<usize>,
    representation: (TypeId, TypeId),
}

/// An informer that was asked for.
struct Found {
    informer: Arc<Informer>,
    /// To start it with, if it is to be.
    sources: Option<Arc<dyn SourceProvider>>,
    identity: Identity,
    is_new: bool,
}

impl InformerFactory {
    /// A factory without informers.
    pub fn new(env: Env, metrics: Metrics, options: FactoryOptions) -> Self {
        Self { inner: Arc::new(Inner { env, metrics, options, state: Mutex::default() }) }
    }

    /// The informer of that kind, selection and representation, made if there is none yet. Of a namespaced kind it is
    /// one over the factory's set of namespaces, if it has one and `selection` names no namespace itself. Of any kind it is
    /// one over the factory's set of shards, if it has one and `selection` names no namespace and is not
    /// [of every shard](Selection::of_every_shard).
    ///
    /// Whoever asks after [`start`](Self::start) gets one that runs: handlers and indexes may be added at any time, so
    /// there is nothing to do in between, and nothing to forget. Representations are told apart by their type and kind:
    /// of two that differ in nothing else, the first is used. Instead of one that was [stopped](Self::stop) a new
    /// one is made.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, if the factory has been started.
    pub fn informer<R: Representation>(
        &self,
        representation: R,
        selection: Selection,
    ) -> SharedInformer<R::Object> {
        let codec = Codec::of(representation);
        let selection = self.inner.options.narrow(&codec.kind, selection);
        let namespaces = self.inner.options.namespaces_of(&codec.kind);
        SharedInformer::of(self.informer_of(codec, selection, namespaces))
    }

    /// The informer of that kind, selection and representation, as long as somebody uses it: the last who drops what was
    /// got from here, or has a handler removed that was added here, stops it. Otherwise like
    /// [`informer`](Self::informer), and the same one; one that was asked for there lasts as long as the factory.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, if the factory has been started.
    pub fn ref_counted_informer<R: Representation>(
        &self,
        representation: R,
        selection: Selection,
    ) -> RefCountedInformer<R::Object> {
        let codec = Codec::of(representation);
        let selection = self.inner.options.narrow(&codec.kind, selection);
        let namespaces = self.inner.options.namespaces_of(&codec.kind);
        let (informer, hold) = self.found(codec, selection, namespaces, |state, found| {
            state.hold(&self.inner, &found.identity, found.is_new)
        });
        RefCountedInformer { informer: SharedInformer::of(informer), hold }
    }

    /// Whether the stored objects of this resource differ from the server's ([`KindOptions::transform`]).
    pub fn has_transform(&self, resource: &GroupResource) -> bool {
        self.inner.options.kinds.has_transform(resource)
    }

    /// Of exactly this selection, for good.
    fn informer_of(
        &self,
        codec: Codec,
        selection: Selection,
        namespaces: Option<NamespaceSet>,
    ) -> Arc<Informer> {
        let for_good = |state: &mut State, found: &Found| drop(state.holds.remove(&found.identity));
        self.found(codec, selection, namespaces, for_good).0
    }

    /// Finds or makes an informer, and has it start if that is due. How long it lasts is settled in the same moment.
    fn found<L>(
        &self,
        codec: Codec,
        selection: Selection,
        namespaces: Option<NamespaceSet>,
        lasts: impl FnOnce(&mut State, &Found) -> L,
    ) -> (Arc<Informer>, L) {
        let scope = codec.kind.scope;
        let members = PartitionSet::of(scope, &selection, namespaces, self.inner.options.shards.clone());
        let (Found { informer, sources, .. }, lasts) = {
            let mut state = self.inner.lock();
            let found = state.informer(&self.inner, codec, selection, members);
            let lasts = lasts(&mut state, &found);
            (found, lasts)
        };
        if let Some(sources) = sources {
            informer.start(sources);
        }
        (informer, lasts)
    }

    /// The informer of the whole objects of a type, in this factory's namespaces if it has some.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, if the factory has been started.
    pub fn typed<K>(&self) -> SharedInformer<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
        K::Scope: Scoped,
    {
        self.informer(Typed::new(), Selection::default())
    }

    /// Starts every informer, those included that are asked for later. The first sources stay: starting twice starts
    /// nothing twice; after [`shutdown`](Self::shutdown) nothing is started any more.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(&self, sources: Arc<dyn SourceProvider>) {
        let sources = {
            let mut state = self.inner.lock();
            if state.shut_down {
                return;
            }
            Arc::clone(state.sources.get_or_insert(sources))
        };
        if self.inner.options.follow_definitions && !self.inner.has_definitions() {
            // Of all of them, whatever the factory selects by: definitions bear the labels of whoever installs them.
            let selection = self.inner.options.every_shard(Selection::default());
            self.informer_of(Codec::of(definitions::representation()), selection, None);
        }
        for informer in self.inner.informers() {
            informer.start(Arc::clone(&sources));
        }
    }

    /// Waits until every started informer has its initial list, at most for `within` if that is given. A kind that is
    /// not served ([`Presence::Absent`](crate::Presence::Absent)) is not waited for:
    /// [`Informer::wait_for_sync`] does that, for who needs this one.
    ///
    /// # Errors
    ///
    /// [`NotSynced`] names those that have none, and why: not in time, or because they were never started or were shut
    /// down.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn wait_for_sync(&self, within: Option<Duration>) -> Result<(), NotSynced> {
        let deadline = within.map_or(Instant::NEVER, |within| self.inner.env.now() + within);
        let all = async {
            // Asked again after each wait: while one was waited for, the definition of another may have come.
            let waits = |one: &Informer| one.is_running() && !one.is_settled();
            while let Some(informer) = self.inner.informers().into_iter().find(|one| waits(one)) {
                informer.settled().await;
            }
        };
        // Who synced, who ended and who ran out of time is told by the informers themselves.
        future::select(pin!(all), pin!(self.inner.env.sleep_until(deadline))).await;
        let informers = self.inner.informers();
        let behind = informers.iter().filter(|informer| !informer.is_running() || !informer.is_settled());
        let behind = behind.filter(|informer| !informer.has_synced());
        let laggards: Vec<UnsyncedInformer> = behind.flat_map(|informer| informer.laggards()).collect();
        if laggards.is_empty() { Ok(()) } else { Err(NotSynced { laggards }) }
    }

    /// Stops one informer, and returns once it has ended: its handlers are told nothing more, what is stored stays
    /// readable ([`Lister::is_stopped`](crate::Lister::is_stopped)). It is stopped for all who share it; who asks the
    /// factory for it again gets a new one. One of another factory is left alone.
    ///
    /// # Cancel safety
    /// It is stopped at once; [`shutdown`](Self::shutdown) waits for what is left of its end.
    pub async fn stop(&self, informer: &Informer) {
        if !self.inner.lock().part_with(informer) {
            return;
        }
        informer.stop().await;
        self.inner.lock().ending.retain(|one| !std::ptr::eq(&**one, informer));
    }

    /// The running informers that follow their source no more: a defect that only a new process mends, see
    /// [`Informer::is_following`].
    pub fn stopped_reflectors(&self) -> Vec<(ResourceKind, Selection)> {
        let state = self.inner.lock();
        let stuck = state.informers.iter().filter(|(_, one)| one.is_running() && !one.is_following());
        stuck.map(|(identity, _)| (identity.kind.clone(), identity.selection.clone())).collect()
    }

    /// The running informers whose tasks live and get nowhere, and for how long, see [`Informer::stuck_for`].
    pub fn stalled(&self) -> Vec<(ResourceKind, Duration)> {
        let state = self.inner.lock();
        let running = state.informers.iter().filter(|(_, one)| one.is_running());
        running.filter_map(|(it, one)| one.stuck_for().map(|stuck| (it.kind.clone(), stuck))).collect()
    }

    /// What there are informers of, in order.
    pub fn kinds(&self) -> Vec<(ResourceKind, Selection)> {
        let state = self.inner.lock();
        let mut kinds: Vec<_> =
            state.informers.keys().map(|it| (it.kind.clone(), it.selection.clone())).collect();
        kinds.dedup();
        kinds
    }

    /// Every informer that runs, by its kind: for who has to know that all of them are fresh.
    pub fn running(&self) -> Vec<(ResourceKind, Arc<dyn VersionSource>)> {
        let state = self.inner.lock();
        let running = state.informers.iter().filter(|(_, one)| one.is_running());
        running.map(|(it, one)| (it.kind.clone(), Arc::clone(one) as Arc<dyn VersionSource>)).collect()
    }

    /// Stops every informer and returns once all their tasks have ended. What is stored stays readable.
    ///
    /// # Cancel safety
    /// Those already stopped stay stopped; calling it again continues.
    pub async fn shutdown(&self) {
        let informers = {
            let mut state = self.inner.lock();
            state.shut_down = true;
            let ending = state.ending.iter().cloned();
            let all: Vec<_> = state.informers.values().cloned().chain(ending).collect();
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

    /// Whether there is an informer of all definitions.
    fn has_definitions(&self) -> bool {
        let state = self.lock();
        let mut informers = state.informers.keys();
        let whole = self.options.every_shard(Selection::default());
        informers.any(|it| definitions::is_of_definitions(&it.kind) && it.selection == whole)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    /// Informers that never ran hold handlers, which may hold listers, which hold informers.
    fn drop(&mut self) {
        for informer in self.informers().iter().filter(|informer| !informer.is_running()) {
            // Nothing runs, so nothing is waited for.
            let _ended = informer.stop().now_or_never();
        }
    }
}

impl State {
    /// The informer that is asked for.
    fn informer(
        &mut self,
        factory: &Arc<Inner>,
        codec: Codec,
        selection: Selection,
        members: Option<PartitionSet>,
    ) -> Found {
        let identity = Identity {
            kind: codec.kind.clone(),
            selection: selection.clone(),
            namespaces: members.as_ref().and_then(PartitionSet::namespaces).map(|set| self.number_of(set)),
            representation: codec.identity,
        };
        let sources = self.sources.clone().filter(|_| !self.shut_down);
        if let Some(informer) = self.informers.get(&identity) {
            return Found { informer: Arc::clone(informer), sources, identity, is_new: false };
        }
        let stream = self.stream(&factory.options.name, &identity);
        let settings = factory.options.settings(&codec.kind);
        let transform = factory.options.transform(&codec.kind, codec.identity.1);
        let informer = Arc::new(Informer::new(
            &factory.env,
            &factory.metrics,
            &stream,
            codec,
            selection,
            settings,
            members,
        ));
        if let Some(transform) = transform {
            informer.set_transform(transform).expect("it is new");
        }
        if definitions::is_of_definitions(&identity.kind) {
            // Before anybody can find and start it: what it tells first must not go unheard.
            definitions::link(factory, &informer);
        }
        self.informers.insert(identity.clone(), Arc::clone(&informer));
        Found { informer, sources, identity, is_new: true }
    }

    /// Begins the names of an informer's random streams, which are taken once: of two that are alike in all that is
    /// told of them, each has its own.
    fn stream(&self, factory: &str, identity: &Identity) -> String {
        let set = identity.namespaces.map_or(String::new(), |number| format!("/set {number}"));
        // Any two of one identity have a stop between them.
        let stopped = if self.stopped == 0 { String::new() } else { format!("/after {}", self.stopped) };
        format!("{factory}{set}{stopped}")
    }

    fn number_of(&mut self, set: &NamespaceSet) -> usize {
        self.sets.iter().position(|known| known == set).unwrap_or_else(|| {
            self.sets.push(set.clone());
            self.sets.len() - 1
        })
    }

    /// Takes an informer out of those that are handed out; `false` if it is not among them.
    fn part_with(&mut self, informer: &Informer) -> bool {
        let found = self.informers.iter().find(|(_, one)| std::ptr::eq(&***one, informer));
        let Some(identity) = found.map(|(identity, _)| identity.clone()) else { return false };
        self.take_out(&identity);
        true
    }

    /// The same by what it was asked for as; it is among those that are being stopped from here on.
    fn take_out(&mut self, identity: &Identity) -> Option<Arc<Informer>> {
        self.holds.remove(identity);
        let informer = self.informers.remove(identity)?;
        self.stopped += 1;
        self.ending.push(Arc::clone(&informer));
        Some(informer)
    }

    /// Those that have ended of all that were being stopped, for the caller to drop under no lock.
    fn take_ended(&mut self) -> Vec<Arc<Informer>> {
        self.ending.extract_if(.., |one| one.has_ended()).collect()
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
