//! Watches that come and go while their controller runs: for kinds that exist only once their CustomResourceDefinition
//! does, or that objects name at run time.
//!
//! A watch that is added starts its cache in the background. Whoever adds it, a reconcile above all, continues at once;
//! the keys of its objects come when they come, and [`DynamicWatches::has_synced`] tells whether the cache is complete. A kind
//! that is absent, or that may not be read, keeps nobody waiting either: its cache fills once it can.
//!
//! Read-your-writes knows these caches as it knows those declared in `setup`. Rights are declared in `setup` as ever: a
//! watch on what was not declared is refused, with the line to add.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_client::DeclaredVerbs;
use windlass_informer::{Event, HandlerHandle, InformerError, InformerFactory, Lister, NotSynced, Selection};
use windlass_object::{Representation, ResourceKind, Verb};

use crate::consistency::caches::{Cache, CacheId, Caches};
use crate::declared::DeclaredRules;
use crate::descriptor::Descriptor;
use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::wiring::{HandlerContext, attach};

/// The watches that a controller adds and removes while it runs. Clones are the same set.
#[derive(Clone)]
pub struct DynamicWatches {
    inner: Arc<Inner>,
}

struct Inner {
    factory: InformerFactory,
    caches: Caches,
    descriptor: Descriptor,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    added: BTreeMap<String, ActiveWatch>,
}

enum Phase {
    /// The controller does not run: not yet, or not any more.
    Resting,
    Running {
        wiring: Box<HandlerContext>,
        rules: Arc<DeclaredRules>,
    },
}

struct ActiveWatch {
    identity: Identity,
    handle: HandlerHandle,
    cache: Cache,
    id: CacheId,
}

/// What makes two watches the same one.
#[derive(PartialEq)]
struct Identity {
    kind: ResourceKind,
    selection: Selection,
    representation: TypeId,
}

/// Why a watch could not be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// Watches are added while the controller runs; before that, `setup` declares them.
    #[error(
        "the watch {name:?} cannot be added: its controller does not run (declare watches of the start in setup)"
    )]
    NotRunning {
        /// What the watch was to be called.
        name: String,
    },
    /// The controller never said that it reads this.
    #[error(
        "the watch {name:?} was not declared; add to its controller's setup: \
         setup.uses_rule(Rule::new({:?}, {:?}, [Verb::List, Verb::Watch]))", .kind.group, .kind.plural
    )]
    NotDeclared {
        /// What the watch was to be called.
        name: String,
        /// What it was to watch.
        kind: Box<ResourceKind>,
    },
    /// Another watch bears the name.
    #[error("the watch {name:?} is on {by} already: remove it first, or name them apart")]
    NameTaken {
        /// The name.
        name: String,
        /// What the other one watches.
        by: Box<ResourceKind>,
    },
    /// The informer took no handler.
    #[error("the watch {name:?} cannot be added: {source}")]
    Informer {
        /// What the watch was to be called.
        name: String,
        /// What the informer said.
        source: InformerError,
    },
}

impl DynamicWatches {
    pub(crate) fn new(factory: InformerFactory, caches: Caches, descriptor: Descriptor) -> Self {
        let state = State { phase: Phase::Resting, added: BTreeMap::new() };
        Self { inner: Arc::new(Inner { factory, caches, descriptor, state: Mutex::new(state) }) }
    }

    /// Watches the objects of `representation` that `selection` leaves, under a name of this controller's own, and
    /// gives read access to their cache, which fills in the background. `handle` is called with every change, first
    /// with one `ActiveWatch` for each object there is.
    ///
    /// To add what is there already, under the same name, changes nothing and gives the same cache: a reconcile may
    /// say each time what it needs.
    ///
    /// # Errors
    /// When the controller does not run, did not declare that it lists and watches the kind, or has another watch of
    /// that name.
    pub fn add<R: Representation>(
        &self,
        name: &str,
        representation: R,
        selection: Selection,
        handle: impl FnMut(&Event<Arc<R::Object>>, &Enqueuer) + Send + 'static,
    ) -> Result<Lister<R::Object>, WatchError> {
        let selection = self.inner.descriptor.of_shards(selection);
        let mut state = self.inner.lock();
        let identity = Identity {
            kind: representation.kind(),
            selection: selection.clone(),
            representation: R::identity(),
        };
        let wiring = state.admit(name, &identity)?.clone();
        let in_use = self.inner.factory.ref_counted_informer(representation, selection);
        let (informer, lister) = (in_use.informer(), in_use.lister());
        if !state.added.contains_key(name) {
            let refused = |source| WatchError::Informer { name: name.to_owned(), source };
            // The handler keeps the cache going until it is removed.
            let kept = lister.clone();
            let mut handle = handle;
            let handle = move |event: &Event<Arc<R::Object>>, queue: &Enqueuer| {
                let _kept = &kept;
                handle(event, queue);
            };
            let handle = attach(informer, &wiring, handle).map_err(refused)?;
            let cache: Cache = Cache::of(informer.erased());
            let id = self.inner.caches.add(cache.clone());
            tracing::info!(controller = wiring.controller, watch = name, kind = %identity.kind, "watching");
            state.added.insert(name.to_owned(), ActiveWatch { identity, handle, cache, id });
        }
        Ok(lister)
    }

    /// Ends the watch of that name: its handler is told nothing more. Says whether there was one. The cache stays for
    /// those who share it and as long as somebody holds a lister of it; otherwise it is stopped and its memory freed, and
    /// filled again when the watch is added again.
    pub fn remove(&self, name: &str) -> bool {
        let Some(added) = self.inner.lock().added.remove(name) else { return false };
        added.handle.remove();
        self.inner.caches.remove(added.id);
        tracing::info!(watch = name, kind = %added.identity.kind, "watching no more");
        true
    }

    /// Whether the cache of the watch of that name is complete, and its handler has been told; `None` if there is no
    /// such watch.
    pub fn has_synced(&self, name: &str) -> Option<bool> {
        self.inner.lock().added.get(name).map(|added| added.handle.has_synced())
    }

    /// Why the watch of that name has no complete cache; `None` if it has, or if there is no such watch.
    pub fn behind(&self, name: &str) -> Option<String> {
        let state = self.inner.lock();
        let added = state.added.get(name).filter(|added| !added.cache.has_synced())?;
        Some(NotSynced { laggards: added.cache.laggards() }.to_string())
    }

    /// What is watched, by name.
    pub fn names(&self) -> Vec<(String, ResourceKind)> {
        let state = self.inner.lock();
        state.added.iter().map(|(name, added)| (name.clone(), added.identity.kind.clone())).collect()
    }

    pub(crate) fn open(&self, wiring: HandlerContext, rules: Arc<DeclaredRules>) {
        self.inner.lock().phase = Phase::Running { wiring: Box::new(wiring), rules };
    }

    /// The controller has stopped.
    pub(crate) fn close(&self) {
        let added = {
            let mut state = self.inner.lock();
            state.phase = Phase::Resting;
            std::mem::take(&mut state.added)
        };
        added.values().for_each(|added| added.handle.remove());
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What a watch of that name is wired to, if it may be.
    fn admit(&self, name: &str, identity: &Identity) -> Result<&HandlerContext, WatchError> {
        let Phase::Running { wiring, rules } = &self.phase else {
            return Err(WatchError::NotRunning { name: name.to_owned() });
        };
        let kind = &identity.kind;
        let declared =
            [Verb::List, Verb::Watch].iter().all(|verb| rules.permits(*verb, &kind.group, &kind.plural));
        if !declared {
            return Err(WatchError::NotDeclared { name: name.to_owned(), kind: Box::new(kind.clone()) });
        }
        match self.added.get(name) {
            Some(other) if other.identity != *identity => Err(WatchError::NameTaken {
                name: name.to_owned(),
                by: Box::new(other.identity.kind.clone()),
            }),
            _ => Ok(wiring),
        }
    }
}

impl fmt::Debug for DynamicWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watches").field(&self.names()).finish()
    }
}
