//! Keys whose own object exists and cannot be decoded: a worker withholds them until the object is readable or deleted.
//!
//! For a lister such an object is absent, and a reconcile would take absence for a deletion.
//!
//! Guarantees:
//! - A withheld key is queued again, as urgent as it was, once its object is readable or deleted. An informer tells no
//!   handler of the deletion of an object that it never held, so a task compares the caches themselves.
//! - An object that no key was withheld for brings no key.
//!
//! A reconcile that runs when its object becomes undecodable goes on to its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_informer::UndecodableObjects;
use windlass_object::ObjectKey;
use windlass_workqueue::{Add, Priority};

use crate::consistency::caches::Cache;
use crate::enqueue::enqueuer::Enqueuer;

/// The undecodable objects of one controller's keys. Clones share them.
#[derive(Clone)]
pub(crate) struct Undecodable(Arc<Inner>);

struct Inner {
    controller: &'static str,
    queue: Enqueuer,
    /// The caches of the objects that keys name.
    caches: Vec<Cache>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The undecodable objects of each cache when it was last checked.
    checked: Vec<UndecodableObjects>,
    withheld: BTreeMap<ObjectKey, Priority>,
}

impl Undecodable {
    pub(crate) fn new(controller: &'static str, queue: Enqueuer, caches: Vec<Cache>) -> Self {
        let checked = caches.iter().map(|_| UndecodableObjects::default()).collect();
        let state = Mutex::new(State { checked, withheld: BTreeMap::new() });
        Self(Arc::new(Inner { controller, queue, caches, state }))
    }

    /// How many caches there are to [follow](Self::follow).
    pub(crate) fn caches(&self) -> usize {
        self.0.caches.len()
    }

    /// Whether the object of `key` exists and cannot be decoded.
    pub(crate) fn contains(&self, key: &ObjectKey) -> bool {
        !self.0.caches.is_empty() && self.check(|state| state.error(key).is_some())
    }

    /// Withholds `key` until its object is readable or deleted; `false` if it is one of these by now.
    pub(crate) fn withhold(&self, key: &ObjectKey, priority: Priority) -> bool {
        self.check(|state| {
            let Some(error) = state.error(key) else { return false };
            if state.withheld.insert(key.clone(), priority).is_none() {
                let controller = self.0.controller;
                tracing::warn!(controller, %key, %error, "reconcile withheld: object cannot be decoded");
            }
            true
        })
    }

    /// Forgets keys of which `gone` says so.
    pub(crate) fn forget_if(&self, gone: impl Fn(&ObjectKey) -> bool) {
        self.lock().withheld.retain(|key, _| !gone(key));
    }

    /// Queues withheld keys as the cache of this number goes on.
    pub(crate) async fn follow(self, number: usize) {
        let mut progress = self.0.caches[number].version_changes();
        // A key may have been withheld before this listened.
        self.check(|_| ());
        while progress.changed().await.is_ok() {
            self.check(|_| ());
        }
    }

    /// Brings the state up to date, and queues the keys that need not be withheld any more.
    fn check<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        let (looked, released) = {
            let mut state = self.lock();
            let released = state.refresh(&self.0.caches);
            (look(&mut state), released)
        };
        for (key, priority) in released {
            // The worker that dequeues the key checks its ownership.
            self.0.queue.at(priority).put_wanted(key, Add::now());
        }
        looked
    }

    /// Comparison and clone of keys run under this lock and nothing of users', so poison cannot mean a broken state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes over what the caches hold now. Returns the withheld keys whose object is readable or deleted.
    fn refresh(&mut self, caches: &[Cache]) -> Vec<(ObjectKey, Priority)> {
        let mut released = Vec::new();
        for (cache, checked) in caches.iter().zip(&mut self.checked) {
            let newest = cache.undecodable();
            for key in newest.missing_since(checked) {
                released.extend(self.withheld.remove_entry(&key));
            }
            *checked = newest;
        }
        released
    }

    fn error(&self, key: &ObjectKey) -> Option<Arc<str>> {
        self.checked.iter().find_map(|objects| objects.get(key)).map(|object| Arc::clone(&object.error))
    }
}
