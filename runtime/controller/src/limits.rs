//! How many keys of one class are reconciled at the same time: of one tenant, or of one kind where a controller handles
//! several.
//!
//! A worker that takes a key of a class that is full puts it aside and takes another, so a full class holds up nobody
//! else. A key that was put aside has the next free place of its class, in the order of arrival.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_object::ObjectKey;
use windlass_workqueue::{Add, Priority, Queue};

type ClassOf = dyn Fn(&ObjectKey) -> Option<String> + Send + Sync;

/// At most so many keys of a class at once.
#[derive(Clone)]
pub(crate) struct Limit {
    at_most: usize,
    class_of: Arc<ClassOf>,
    classes: Arc<Mutex<BTreeMap<String, Class>>>,
}

#[derive(Debug, Default)]
struct Class {
    /// Places that are taken, those kept for `called` included.
    taken: usize,
    /// Put aside, in order of arrival.
    aside: VecDeque<(ObjectKey, Priority)>,
    /// The keys of these.
    waiting: BTreeSet<ObjectKey>,
    /// Back in the queue, each with a place that is kept for it.
    called: BTreeSet<ObjectKey>,
}

/// A place in a class, given up when it is dropped: to who was put aside first, if anybody was.
pub(crate) struct Place {
    limit: Limit,
    class: String,
    queue: Queue<ObjectKey>,
}

impl Limit {
    pub(crate) fn new(
        at_most: usize,
        class_of: impl Fn(&ObjectKey) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self { at_most, class_of: Arc::new(class_of), classes: Arc::default() }
    }

    pub(crate) fn is_impossible(&self) -> bool {
        self.at_most == 0
    }

    /// A place in every class that `key` belongs to; none if one is full, and then the key is put aside and comes back
    /// by itself.
    pub(crate) fn enter_all(
        limits: &[Limit],
        queue: &Queue<ObjectKey>,
        key: &ObjectKey,
        priority: Priority,
    ) -> Option<Vec<Place>> {
        let classes = limits.iter().filter_map(|limit| Some((limit, (limit.class_of)(key)?)));
        let classes: Vec<_> = classes.collect();
        let place = |limit: &Limit, class: &str| Place {
            limit: limit.clone(),
            class: class.to_owned(),
            queue: queue.clone(),
        };
        // Places kept for the key come first: one that stayed behind while the key waits for another would be lost to
        // everybody, and two such keys could wait for each other.
        let (mut places, mut missing) = (Vec::new(), Vec::new());
        for (limit, class) in &classes {
            if limit.was_called(class, key) {
                places.push(place(limit, class));
            } else {
                missing.push((*limit, class));
            }
        }
        for (limit, class) in missing {
            if !limit.enter(class, key, priority) {
                return None;
            }
            places.push(place(limit, class));
        }
        Some(places)
    }

    fn was_called(&self, class: &str, key: &ObjectKey) -> bool {
        self.lock().get_mut(class).is_some_and(|class| class.called.remove(key))
    }

    fn enter(&self, class: &str, key: &ObjectKey, priority: Priority) -> bool {
        let mut classes = self.lock();
        let class = classes.entry(class.to_owned()).or_default();
        if class.taken < self.at_most {
            class.taken += 1;
            return true;
        }
        if class.waiting.insert(key.clone()) {
            class.aside.push_back((key.clone(), priority));
        }
        false
    }

    fn leave(&self, name: &str) -> Option<(ObjectKey, Priority)> {
        let mut classes = self.lock();
        let class = classes.get_mut(name)?;
        if let Some(next) = class.aside.pop_front() {
            class.waiting.remove(&next.0);
            class.called.insert(next.0.clone());
            return Some(next);
        }
        class.taken -= 1;
        if class.taken == 0 {
            classes.remove(name);
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Class>> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((key, priority)) = self.limit.leave(&self.class) {
            self.queue.add_with(key, Add::now().priority(priority));
        }
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("at_most", &self.at_most).field("classes", &self.lock()).finish()
    }
}
