//! Parks keys whose object exists but cannot be decoded, until the object is decodable or deleted.
//!
//! A lister does not contain such an object, and a reconcile would treat it as deleted.
//!
//! Guarantees:
//! - A parked key is released once its object is decodable or deleted. An informer sends no deletion event for an
//!   object that it never held, so a task compares the caches directly.
//! - A decodable or deleted object enqueues no key that was not parked.
//! - `windlass_undecodable_keys` exports the number of parked keys.
//!
//! A reconcile that runs when its object becomes undecodable completes.

use std::sync::{Arc, Mutex, PoisonError};

use windlass_informer::UndecodableObjects;
use windlass_metrics::{IntGauge, Metrics};
use windlass_object::ObjectKey;
use windlass_workqueue::ParkReason;

use crate::consistency::caches::Cache;
use crate::enqueue::enqueuer::Enqueuer;

/// Reason: the object of the key cannot be decoded.
pub(crate) const UNDECODABLE: ParkReason = ParkReason("its object cannot be decoded");

/// The undecodable objects of one controller's keys. Clones share them.
#[derive(Clone)]
pub(crate) struct Undecodable(Arc<Inner>);

struct Inner {
    queue: Enqueuer,
    /// The caches of the objects that keys name.
    caches: Vec<Cache>,
    /// The undecodable objects of each cache at its last check.
    checked: Mutex<Vec<UndecodableObjects>>,
}

impl Undecodable {
    pub(crate) fn new(queue: Enqueuer, caches: Vec<Cache>) -> Self {
        let checked = Mutex::new(vec![UndecodableObjects::default(); caches.len()]);
        Self(Arc::new(Inner { queue, caches, checked }))
    }

    /// Sets `gauge` to the number of parked keys each time the metrics are gathered.
    pub(crate) fn measure(&self, metrics: &Metrics, gauge: IntGauge) {
        let undecodable = Arc::downgrade(&self.0);
        metrics.on_gather(Box::new(move || {
            let parked = undecodable.upgrade().map_or(0, |it| it.queue.count_parked(UNDECODABLE));
            gauge.set(i64::try_from(parked).unwrap_or(i64::MAX));
        }));
    }

    /// Returns the number of caches to [follow](Self::follow).
    pub(crate) fn caches(&self) -> usize {
        self.0.caches.len()
    }

    /// Returns the decode error of the object of `key`. `None` if the object is decodable or does not exist.
    pub(crate) fn error(&self, key: &ObjectKey) -> Option<Arc<str>> {
        if self.0.caches.is_empty() {
            return None;
        }
        self.check(|checked| {
            checked.iter().find_map(|objects| objects.get(key)).map(|object| Arc::clone(&object.error))
        })
    }

    /// Releases parked keys whenever the cache with this number changes.
    pub(crate) async fn follow(self, number: usize) {
        let mut progress = self.0.caches[number].version_changes();
        // The object of a parked key can have changed before this task subscribed.
        self.check(|_| ());
        while progress.changed().await.is_ok() {
            self.check(|_| ());
        }
    }

    /// Refreshes the recorded state of the caches, and releases the keys whose object is decodable or deleted.
    fn check<R>(&self, read: impl FnOnce(&[UndecodableObjects]) -> R) -> R {
        let (result, released) = {
            // No user code runs under this lock, so a poisoned lock does not mean inconsistent state.
            let mut checked = self.0.checked.lock().unwrap_or_else(PoisonError::into_inner);
            let released: Vec<ObjectKey> = self
                .0
                .caches
                .iter()
                .zip(&mut *checked)
                .flat_map(|(cache, checked)| refresh(cache, checked))
                .collect();
            (read(&checked), released)
        };
        released.iter().for_each(|key| self.0.queue.release(key, UNDECODABLE));
        result
    }
}

/// Returns the keys that are no longer among the undecodable objects.
fn refresh(cache: &Cache, checked: &mut UndecodableObjects) -> Vec<ObjectKey> {
    let newest = cache.undecodable();
    let missing = newest.missing_since(checked);
    *checked = newest;
    missing
}
