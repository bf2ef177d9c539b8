//! Keys whose own object exists and cannot be decoded: a worker parks them until the object is readable or deleted.
//!
//! For a lister such an object is absent, and a reconcile would take absence for a deletion.
//!
//! Guarantees:
//! - A parked key is released once its object is readable or deleted. An informer tells no handler of the deletion of an
//!   object that it never held, so a task compares the caches themselves.
//! - An object that no key was parked for brings no key.
//! - `windlass_undecodable_keys` shows the number of parked keys.
//!
//! A reconcile that runs when its object becomes undecodable goes on to its end.

use std::sync::{Arc, Mutex, PoisonError};

use windlass_informer::UndecodableObjects;
use windlass_metrics::{IntGauge, Metrics};
use windlass_object::ObjectKey;
use windlass_workqueue::ParkReason;

use crate::consistency::caches::Cache;
use crate::enqueue::enqueuer::Enqueuer;

/// The object of a parked key cannot be decoded.
pub(crate) const UNDECODABLE: ParkReason = ParkReason("its object cannot be decoded");

/// The undecodable objects of one controller's keys. Clones share them.
#[derive(Clone)]
pub(crate) struct Undecodable(Arc<Inner>);

struct Inner {
    queue: Enqueuer,
    /// The caches of the objects that keys name.
    caches: Vec<Cache>,
    /// The undecodable objects of each cache when it was last checked.
    checked: Mutex<Vec<UndecodableObjects>>,
}

impl Undecodable {
    pub(crate) fn new(queue: Enqueuer, caches: Vec<Cache>) -> Self {
        let checked = Mutex::new(vec![UndecodableObjects::default(); caches.len()]);
        Self(Arc::new(Inner { queue, caches, checked }))
    }

    /// Shows the number of parked keys in `gauge` whenever the metrics are gathered.
    pub(crate) fn measure(&self, metrics: &Metrics, gauge: IntGauge) {
        let undecodable = Arc::downgrade(&self.0);
        metrics.on_gather(Box::new(move || {
            let parked = undecodable.upgrade().map_or(0, |it| it.queue.count_parked(UNDECODABLE));
            gauge.set(i64::try_from(parked).unwrap_or(i64::MAX));
        }));
    }

    /// How many caches there are to [follow](Self::follow).
    pub(crate) fn caches(&self) -> usize {
        self.0.caches.len()
    }

    /// Returns why the object of `key` cannot be decoded; none if it is readable or does not exist.
    pub(crate) fn error(&self, key: &ObjectKey) -> Option<Arc<str>> {
        if self.0.caches.is_empty() {
            return None;
        }
        self.check(|checked| {
            checked.iter().find_map(|objects| objects.get(key)).map(|object| Arc::clone(&object.error))
        })
    }

    /// Releases parked keys as the cache of this number continues.
    pub(crate) async fn follow(self, number: usize) {
        let mut progress = self.0.caches[number].version_changes();
        // A key may have been parked before this listened.
        self.check(|_| ());
        while progress.changed().await.is_ok() {
            self.check(|_| ());
        }
    }

    /// Takes over what the caches hold now, and releases the keys whose object is readable or deleted.
    fn check<R>(&self, look: impl FnOnce(&[UndecodableObjects]) -> R) -> R {
        let (looked, released) = {
            // Comparison and clone of keys run under this lock and nothing of users', so poison cannot mean a broken state.
            let mut checked = self.0.checked.lock().unwrap_or_else(PoisonError::into_inner);
            let released: Vec<ObjectKey> = self
                .0
                .caches
                .iter()
                .zip(&mut *checked)
                .flat_map(|(cache, checked)| refresh(cache, checked))
                .collect();
            (look(&checked), released)
        };
        released.iter().for_each(|key| self.0.queue.release(key, UNDECODABLE));
        looked
    }
}

/// Returns the keys that are not among the undecodable objects any more.
fn refresh(cache: &Cache, checked: &mut UndecodableObjects) -> Vec<ObjectKey> {
    let newest = cache.undecodable();
    let missing = newest.missing_since(checked);
    *checked = newest;
    missing
}
