//! Adds and removes watches while a controller runs: for kinds whose CustomResourceDefinition is installed later, and
//! for kinds that objects name at run time.
//!
//! An added watch fills its cache in the background. The caller, usually a reconcile, does not wait. The keys of the
//! objects are enqueued as the cache receives them, and [`DynamicWatches::has_synced`] returns whether the cache is
//! complete. The cache of a kind that is not installed, or that RBAC does not allow to read, fills once that changes.
//!
//! Read-your-writes consistency covers these caches like the caches declared in `setup`. Permissions must be declared
//! in `setup`: a watch without them is rejected with an error that contains the line to add.

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

/// The watches that a controller adds and removes while it runs. Clones share the set.
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
    /// The controller has not started, or has stopped.
    Idle,
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

/// The identity of a watch: two watches with the same identity are equal.
#[derive(PartialEq)]
struct Identity {
    kind: ResourceKind,
    selection: Selection,
    representation: TypeId,
}

/// The reason a watch could not be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The controller is not running. `setup` declares the watches that exist from the start.
    #[error("cannot add watch {name:?}: the controller is not running; declare initial watches in setup")]
    NotRunning {
        /// The name of the rejected watch.
        name: String,
    },
    /// The controller did not declare that it reads the kind.
    #[error(
        "cannot add watch {name:?}: its permissions are not declared; add to the controller's setup: \
         setup.uses_rule(Rule::new({:?}, {:?}, [Verb::List, Verb::Watch]))", .kind.group, .kind.plural
    )]
    NotDeclared {
        /// The name of the rejected watch.
        name: String,
        /// The kind of the rejected watch.
        kind: Box<ResourceKind>,
    },
    /// Another watch has the name.
    #[error(
        "cannot add watch {name:?}: the name is used by a watch on {by}; remove that watch or use another name"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The kind of the other watch.
        by: Box<ResourceKind>,
    },
    /// The informer rejected the handler.
    #[error("cannot add watch {name:?}: {source}")]
    Informer {
        /// The name of the rejected watch.
        name: String,
        /// The error of the informer.
        source: InformerError,
    },
}

impl DynamicWatches {
    pub(crate) fn new(factory: InformerFactory, caches: Caches, descriptor: Descriptor) -> Self {
        let state = State { phase: Phase::Idle, added: BTreeMap::new() };
        Self { inner: Arc::new(Inner { factory, caches, descriptor, state: Mutex::new(state) }) }
    }

    /// Watches the objects of `representation` that `selection` selects, and returns a lister of their cache, which
    /// fills in the background. The name must be unique in this controller. `handle` is called with every change, first
    /// with one `Added` event for each existing object.
    ///
    /// Adding an identical watch under the same name changes nothing and returns a lister of the same cache, so a
    /// reconcile can add its watches each time.
    ///
    /// # Errors
    /// Fails if the controller is not running, has not declared that it lists and watches the kind, or has a different
    /// watch with that name.
    ///
    /// # Examples
    /// ```
    /// # use windlass_controller::{Context, WatchError};
    /// # use windlass_informer::Selection;
    /// # use windlass_object::{DynamicObjects, ObjectKey, ResourceKind};
    /// # fn watch(cx: &Context, kind: &ResourceKind) -> Result<(), WatchError> {
    /// cx.watches().add(&kind.to_string(), DynamicObjects::new(kind.clone()), Selection::default(), |event, queue| {
    ///     queue.add(ObjectKey::of(&event.object().metadata));
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
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
            let rejected = |source| WatchError::Informer { name: name.to_owned(), source };
            // The lister in the handler keeps the cache running until the handler is removed.
            let kept = lister.clone();
            let mut handle = handle;
            let handle = move |event: &Event<Arc<R::Object>>, queue: &Enqueuer| {
                let _kept = &kept;
                handle(event, queue);
            };
            let handle = attach(informer, &wiring, handle).map_err(rejected)?;
            let cache: Cache = Cache::of(informer.erased());
            let id = self.inner.caches.add(cache.clone());
            tracing::info!(controller = wiring.controller, watch = name, kind = %identity.kind, "watch added");
            state.added.insert(name.to_owned(), ActiveWatch { identity, handle, cache, id });
        }
        Ok(lister)
    }

    /// Removes the watch with that name and returns whether it existed. Its handler receives no further events. The
    /// cache keeps running while another controller shares it or a lister of it exists. Otherwise it is stopped and its
    /// memory is freed; adding the watch again fills it again.
    pub fn remove(&self, name: &str) -> bool {
        let Some(added) = self.inner.lock().added.remove(name) else { return false };
        added.handle.remove();
        self.inner.caches.remove(added.id);
        tracing::info!(watch = name, kind = %added.identity.kind, "watch removed");
        true
    }

    /// Returns whether the cache of the watch is complete and the handler has received its objects. `None` if there is
    /// no watch with that name.
    pub fn has_synced(&self, name: &str) -> Option<bool> {
        self.inner.lock().added.get(name).map(|added| added.handle.has_synced())
    }

    /// Returns the reason the cache of the watch is incomplete. `None` if it is complete or there is no such watch.
    pub fn unsynced_reason(&self, name: &str) -> Option<String> {
        let state = self.inner.lock();
        let added = state.added.get(name).filter(|added| !added.cache.has_synced())?;
        Some(NotSynced { unsynced: added.cache.unsynced() }.to_string())
    }

    /// Returns the names and kinds of the watches.
    pub fn list(&self) -> Vec<(String, ResourceKind)> {
        let state = self.inner.lock();
        state.added.iter().map(|(name, added)| (name.clone(), added.identity.kind.clone())).collect()
    }

    pub(crate) fn open(&self, wiring: HandlerContext, rules: Arc<DeclaredRules>) {
        self.inner.lock().phase = Phase::Running { wiring: Box::new(wiring), rules };
    }

    /// Removes all watches, because the controller has stopped.
    pub(crate) fn close(&self) {
        let added = {
            let mut state = self.inner.lock();
            state.phase = Phase::Idle;
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
    /// Returns the context for a watch with this name and identity.
    ///
    /// # Errors
    /// Fails if the watch cannot be added.
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
        f.debug_tuple("DynamicWatches").field(&self.list()).finish()
    }
}
