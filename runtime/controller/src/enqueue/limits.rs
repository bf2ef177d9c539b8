//! Limits the number of keys of one class that are reconciled concurrently. A class is for example a tenant, or a kind
//! if a controller handles several kinds.
//!
//! A worker that dequeues a key of a full class parks the key and dequeues another, so a full class does not block
//! other classes. The parked key joins the wait list of its class. A free permit is reserved for the key with the
//! highest priority; keys of equal priority are served in arrival order. One in [`FAIR_SHARE`] permits is reserved for
//! the key that has waited longest, so no key starves.
//!
//! The wait list only orders the claims to permits; the keys themselves wait in the queue. A parked key that is added
//! again is dequeued again, because its class can have changed. It keeps its position in the wait list.
//!
//! Guarantees:
//! - A key has the highest priority of its adds, also in the wait list.
//! - A reserved permit does not stay idle while a key of the class with a higher priority waits: the key with the
//!   reserved permit is requeued at the higher priority.
//! - A key is in the wait list, or has a reserved permit, in at most one class. If its class has changed when it is
//!   dequeued again, it releases its claim or permit in the old class.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_object::ObjectKey;
use windlass_workqueue::{AddOptions, ParkReason, Priority, Queue};

/// One in this many permits goes to the key that has waited longest, regardless of its priority. The same ratio as the
/// aging of keys in the queue.
const FAIR_SHARE: u64 = 8;

/// Reason: the class of the key has reached its concurrency limit.
pub(crate) const CLASS_FULL: ParkReason = ParkReason("its class is full");

type ClassOf = dyn Fn(&ObjectKey) -> Option<String> + Send + Sync;

/// A limit of concurrent reconciles per class. Clones share it.
#[derive(Clone)]
pub(crate) struct ConcurrencyLimit {
    max_concurrent: usize,
    class_of: Arc<ClassOf>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    classes: BTreeMap<String, Class>,
    /// The class in which each key is in the wait list or has a reserved permit.
    class_of: BTreeMap<ObjectKey, String>,
}

#[derive(Debug, Default)]
struct Class {
    /// The number of permits in use, including those reserved for `called`.
    permits_in_use: usize,
    wait_list: WaitList,
    /// The requeued keys with a reserved permit, and their priorities. Never more keys than permits.
    reserved: BTreeMap<ObjectKey, Priority>,
    /// The number of permits reserved so far.
    reservations: u64,
}

/// The wait list of a class. Operations take logarithmic time, because a class can contain all keys of a controller and
/// workers wait for the lock.
#[derive(Debug, Default)]
struct WaitList {
    keys: BTreeMap<ObjectKey, Claim>,
    by_arrival: BTreeMap<u64, ObjectKey>,
    /// Ordered by descending priority, then by arrival.
    by_urgency: BTreeSet<(Reverse<Priority>, u64)>,
    /// The number of inserts so far.
    arrivals: u64,
}

/// A key's claim to a permit.
#[derive(Copy, Clone, Debug)]
struct Claim {
    priority: Priority,
    arrival: u64,
}

/// A permit of a class. When it is dropped, it is reserved for the next key in the wait list, or becomes free.
pub(crate) struct ClassPermit {
    limit: ConcurrencyLimit,
    class: String,
    queue: Queue<ObjectKey>,
}

/// The result of an attempt to acquire a permit.
enum AcquireOutcome {
    /// A permit was acquired.
    Acquired,
    /// The class is full, and the key is in the wait list. The caller must requeue these keys, which have a reserved
    /// permit and a lower priority, at the priority of the waiting key.
    Full(Vec<ObjectKey>),
}

impl ConcurrencyLimit {
    pub(crate) fn new(
        at_most: usize,
        class_of: impl Fn(&ObjectKey) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self { max_concurrent: at_most, class_of: Arc::new(class_of), state: Arc::default() }
    }

    /// Returns the class in which `key` is waiting or has a reserved permit, and the limit of the class.
    pub(crate) fn waiting_class(&self, key: &ObjectKey) -> Option<(String, usize)> {
        self.lock().class_of.get(key).map(|class| (class.clone(), self.max_concurrent))
    }

    /// Removes the claims and the reserved permits of keys for which `gone` returns true.
    pub(crate) fn remove_if(&self, gone: impl Fn(&ObjectKey) -> bool, queue: &Queue<ObjectKey>) {
        let mut known: Vec<ObjectKey> = self.lock().class_of.keys().cloned().collect();
        known.retain(|key| gone(key));
        // Claims are removed first, so that no released permit is reserved for another removed key.
        known.iter().for_each(|key| self.lock().remove_unless_reserved(key));
        // Dropping a reserved permit passes it on to the next key.
        known.iter().for_each(|key| drop(self.take_reserved(key, queue)));
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.max_concurrent == 0
    }

    /// Acquires a permit in every class of `key`. Returns `None` if a class is full: the key is then in its wait list,
    /// and the caller must park it. The key is enqueued once a permit is reserved for it.
    pub(crate) fn acquire_all(
        limits: &[ConcurrencyLimit],
        queue: &Queue<ObjectKey>,
        key: &ObjectKey,
        priority: Priority,
    ) -> Option<Vec<ClassPermit>> {
        // User code runs first, so that a panic leaks no permit.
        let classes: Vec<_> = limits.iter().map(|limit| (limit, (limit.class_of)(key))).collect();
        // Reserved permits are taken first: otherwise a key that waits in another class would keep its reserved permit,
        // and two such keys could deadlock.
        let (mut permits, mut missing) = (Vec::new(), Vec::new());
        for (limit, class) in classes {
            let kept = limit.take_reserved(key, queue);
            // Dropping the permit of a class that the key has left passes it on to the next key.
            match (class, kept) {
                (Some(class), Some(kept)) if kept.class == class => permits.push(kept),
                (Some(class), _) => missing.push((limit, class)),
                (None, _) => limit.forget(key),
            }
        }
        for (limit, class) in missing {
            permits.push(limit.acquire(class, queue, key, priority)?);
        }
        Some(permits)
    }

    /// Takes the permit that is reserved for `key` in any class.
    fn take_reserved(&self, key: &ObjectKey, queue: &Queue<ObjectKey>) -> Option<ClassPermit> {
        let class = self.lock().take_reserved_class(key)?;
        Some(ClassPermit { limit: self.clone(), class, queue: queue.clone() })
    }

    /// Removes a key that has no class any longer from its wait list.
    fn forget(&self, key: &ObjectKey) {
        self.lock().remove_waiting(key);
    }

    fn acquire(
        &self,
        class: String,
        queue: &Queue<ObjectKey>,
        key: &ObjectKey,
        priority: Priority,
    ) -> Option<ClassPermit> {
        let entry = self.lock().acquire(&class, key, priority, self.max_concurrent);
        match entry {
            AcquireOutcome::Acquired => {
                Some(ClassPermit { limit: self.clone(), class, queue: queue.clone() })
            }
            AcquireOutcome::Full(urged) => {
                urged.into_iter().for_each(|key| queue.add_with(key, AddOptions::now().priority(priority)));
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the reserved permit of `key` and returns its class.
    fn take_reserved_class(&mut self, key: &ObjectKey) -> Option<String> {
        let class = self.class_of.get(key)?.clone();
        self.classes.get_mut(&class)?.reserved.remove(key)?;
        self.class_of.remove(key);
        Some(class)
    }

    /// Removes a key from its wait list.
    fn remove_waiting(&mut self, key: &ObjectKey) {
        let Some(name) = self.class_of.remove(key) else { return };
        if let Some(class) = self.classes.get_mut(&name) {
            class.wait_list.remove(key);
        }
    }

    /// Removes a key from its wait list, unless it has a reserved permit.
    fn remove_unless_reserved(&mut self, key: &ObjectKey) {
        let class = self.class_of.get(key).and_then(|name| self.classes.get(name));
        if class.is_some_and(|class| class.wait_list.contains(key)) {
            self.remove_waiting(key);
        }
    }

    fn acquire(&mut self, name: &str, key: &ObjectKey, priority: Priority, at_most: usize) -> AcquireOutcome {
        if self.class_of.get(key).is_some_and(|other| other != name) {
            self.remove_waiting(key);
        }
        let class = self.classes.entry(name.to_owned()).or_default();
        if class.permits_in_use < at_most {
            class.permits_in_use += 1;
            return AcquireOutcome::Acquired;
        }
        self.class_of.insert(key.clone(), name.to_owned());
        AcquireOutcome::Full(class.add_waiting(key, priority))
    }

    /// Releases a permit. Returns the key for which it is now reserved, if a key was waiting.
    fn release(&mut self, name: &str) -> Option<(ObjectKey, Priority)> {
        let class = self.classes.get_mut(name)?;
        if let Some(next) = class.reserve_next() {
            return Some(next);
        }
        class.permits_in_use -= 1;
        if class.permits_in_use == 0 {
            self.classes.remove(name);
        }
        None
    }
}

impl Class {
    /// Adds a key to the wait list or raises its priority. Returns the keys with reserved permits whose priority was
    /// raised to `priority`.
    fn add_waiting(&mut self, key: &ObjectKey, priority: Priority) -> Vec<ObjectKey> {
        self.wait_list.insert_or_raise(key, priority);
        let less_urgent = self.reserved.iter_mut().filter(|(_, called)| **called < priority);
        less_urgent
            .map(|(key, called)| {
                *called = priority;
                key.clone()
            })
            .collect()
    }

    /// Reserves the released permit for a waiting key and returns the key.
    fn reserve_next(&mut self) -> Option<(ObjectKey, Priority)> {
        // The oldest key gets the highest waiting priority, so that its reserved permit does not stay idle.
        let (most_urgent, priority) = self.wait_list.most_urgent()?;
        let in_turn = (self.reservations + 1).is_multiple_of(FAIR_SHARE);
        let key = if in_turn { self.wait_list.oldest()? } else { most_urgent }.clone();
        self.wait_list.remove(&key);
        self.reservations += 1;
        self.reserved.insert(key.clone(), priority);
        Some((key, priority))
    }
}

impl WaitList {
    /// Appends a key, or raises the priority of a key that is present.
    fn insert_or_raise(&mut self, key: &ObjectKey, priority: Priority) {
        let known = self.remove(key);
        let arrival = known.map_or(self.arrivals, |claim| claim.arrival);
        let priority = known.map_or(priority, |claim| claim.priority.max(priority));
        self.arrivals += 1;
        self.keys.insert(key.clone(), Claim { priority, arrival });
        self.by_arrival.insert(arrival, key.clone());
        self.by_urgency.insert((Reverse(priority), arrival));
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Claim> {
        let claim = self.keys.remove(key)?;
        self.by_arrival.remove(&claim.arrival);
        self.by_urgency.remove(&(Reverse(claim.priority), claim.arrival));
        Some(claim)
    }

    fn contains(&self, key: &ObjectKey) -> bool {
        self.keys.contains_key(key)
    }

    fn oldest(&self) -> Option<&ObjectKey> {
        self.by_arrival.values().next()
    }

    fn most_urgent(&self) -> Option<(&ObjectKey, Priority)> {
        let (Reverse(priority), arrival) = self.by_urgency.first()?;
        Some((self.by_arrival.get(arrival)?, *priority))
    }
}

impl Drop for ClassPermit {
    fn drop(&mut self) {
        let next = self.limit.lock().release(&self.class);
        if let Some((key, priority)) = next {
            self.queue.add_with(key, AddOptions::now().priority(priority));
        }
    }
}

impl fmt::Debug for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit")
            .field("at_most", &self.max_concurrent)
            .field("state", &self.lock())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use windlass_env::Env;
    use windlass_metrics::Metrics;

    use super::*;

    /// A limit of one permit per class, and the queue to which the keys are requeued.
    struct Room {
        limits: Vec<ConcurrencyLimit>,
        queue: Queue<ObjectKey>,
    }

    impl Room {
        fn of(class: impl Fn(&ObjectKey) -> Option<String> + Send + Sync + 'static) -> Self {
            let metrics = Metrics::new().workqueue("room");
            let queue = Queue::new(Env::virtual_time(1), "room", metrics);
            Self { limits: vec![ConcurrencyLimit::new(1, class)], queue }
        }

        fn acquire(&self, name: &str, priority: Priority) -> Option<Vec<ClassPermit>> {
            ConcurrencyLimit::acquire_all(&self.limits, &self.queue, &key(name), priority)
        }

        /// Dequeues the next key.
        fn back(&self) -> Option<(String, Priority)> {
            let item = tokio::task::unconstrained(self.queue.get()).now_or_never()??;
            Some((item.key().name().to_owned(), item.priority()))
        }

        /// Releases permits and dequeues the next key.
        fn release(&self, permits: Option<Vec<ClassPermit>>) -> Option<(String, Priority)> {
            drop(permits.expect("a permit"));
            self.back()
        }
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("shop", name)
    }

    fn one_class(_: &ObjectKey) -> Option<String> {
        Some("only".to_owned())
    }

    fn at(name: &str, priority: Priority) -> Option<(String, Priority)> {
        Some((name.to_owned(), priority))
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_key_is_requeued_at_highest_priority_of_its_adds() {
        let room = Room::of(one_class);
        let first = room.acquire("first", Priority::NORMAL);
        assert!(room.acquire("early", Priority::LOW).is_none());
        assert!(room.acquire("changed", Priority::LOW).is_none());
        assert!(room.acquire("changed", Priority::NORMAL).is_none());
        assert_eq!(room.release(first), at("changed", Priority::NORMAL), "before the background key");
        let changed = room.acquire("changed", Priority::NORMAL);
        assert_eq!(room.release(changed), at("early", Priority::LOW));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_of_equal_priority_get_permits_in_arrival_order() {
        let room = Room::of(one_class);
        let mut permit = room.acquire("first", Priority::NORMAL);
        for name in ["z", "a", "m"] {
            assert!(room.acquire(name, Priority::NORMAL).is_none());
        }
        for name in ["z", "a", "m"] {
            assert_eq!(room.release(permit), at(name, Priority::NORMAL));
            permit = room.acquire(name, Priority::NORMAL);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn key_with_reserved_permit_inherits_higher_waiting_priority() {
        let room = Room::of(one_class);
        let first = room.acquire("first", Priority::NORMAL);
        assert!(room.acquire("low", Priority::LOW).is_none());
        drop(first);
        room.queue.add(key("bystander"));
        assert!(room.acquire("urgent", Priority::HIGH).is_none(), "the permit is reserved");
        assert_eq!(room.back(), at("low", Priority::HIGH), "before keys of its old priority");
        let low = room.acquire("low", Priority::HIGH);
        drop(low);
        assert_eq!(room.back(), at("urgent", Priority::HIGH));
    }

    #[tokio::test(start_paused = true)]
    async fn low_priority_key_does_not_starve() {
        let room = Room::of(one_class);
        let mut permit = room.acquire("n0", Priority::NORMAL);
        assert!(room.acquire("low", Priority::LOW).is_none());
        let called = (1..100).find(|number| {
            let name = format!("n{number}");
            assert!(room.acquire(&name, Priority::NORMAL).is_none());
            let (called, priority) = room.release(permit.take()).expect("a waiting key");
            assert_eq!(priority, Priority::NORMAL, "the highest waiting priority");
            permit = room.acquire(&called, priority);
            called == "low"
        });
        assert_eq!(called, Some(8));
    }

    #[tokio::test(start_paused = true)]
    async fn change_of_class_leaks_no_permit() {
        let class: Arc<Mutex<Option<&str>>> = Arc::new(Mutex::new(Some("old")));
        let theirs = Arc::clone(&class);
        let room = Room::of(move |key| {
            let of_mover = theirs.lock().expect("whole").map(str::to_owned);
            if key.name() == "mover" { of_mover } else { Some("old".to_owned()) }
        });
        for now in [Some("new"), None] {
            *class.lock().expect("whole") = Some("old");
            let first = room.acquire("first", Priority::NORMAL);
            assert!(room.acquire("mover", Priority::NORMAL).is_none());
            assert!(room.acquire("other", Priority::NORMAL).is_none());
            assert_eq!(room.release(first), at("mover", Priority::NORMAL));
            *class.lock().expect("whole") = now;
            let mover = room.acquire("mover", Priority::NORMAL);
            assert!(mover.is_some(), "no other key is in its class");
            assert_eq!(room.back(), at("other", Priority::NORMAL), "the reserved permit is released");
            drop((room.acquire("other", Priority::NORMAL).expect("reserved"), mover));
            assert!(room.limits[0].lock().classes.is_empty(), "all permits are free");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn removed_keys_hold_no_permit_and_get_none() {
        let room = Room::of(one_class);
        let first = room.acquire("first", Priority::NORMAL);
        for name in ["gone", "gone too", "stays"] {
            assert!(room.acquire(name, Priority::NORMAL).is_none());
        }
        assert_eq!(room.release(first), at("gone", Priority::NORMAL));
        assert_eq!(room.limits[0].waiting_class(&key("gone too")), Some(("only".to_owned(), 1)));
        room.limits[0].remove_if(|key| key.name().starts_with("gone"), &room.queue);
        assert_eq!(room.back(), at("stays", Priority::NORMAL), "the next key gets the permit");
        drop(room.acquire("stays", Priority::NORMAL).expect("reserved"));
        assert!(room.limits[0].lock().classes.is_empty() && room.limits[0].lock().class_of.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn key_that_left_full_class_gets_no_permit_of_it() {
        let class: Arc<Mutex<Option<&str>>> = Arc::new(Mutex::new(Some("full")));
        let theirs = Arc::clone(&class);
        let room = Room::of(move |key| {
            let of_mover = theirs.lock().expect("whole").map(str::to_owned);
            if key.name() == "mover" { of_mover } else { Some("full".to_owned()) }
        });
        for now in [Some("new"), None] {
            *class.lock().expect("whole") = Some("full");
            let first = room.acquire("first", Priority::NORMAL);
            assert!(room.acquire("mover", Priority::NORMAL).is_none());
            *class.lock().expect("whole") = now;
            assert!(room.acquire("mover", Priority::NORMAL).is_some());
            assert_eq!(room.release(first), None);
            assert!(room.limits[0].lock().class_of.is_empty());
        }
    }

    /// Measures the time until each of `count` keys of one full class has waited and acquired its permit.
    fn duration_of_full_class(count: u32) -> std::time::Duration {
        let (env, room) = (Env::system("limits"), Room::of(one_class));
        let begun = env.now();
        let mut permit = room.acquire("first", Priority::NORMAL);
        let names: Vec<String> = (0..count).map(|number| format!("k{number}")).collect();
        assert!(names.iter().all(|name| room.acquire(name, Priority::NORMAL).is_none()));
        for _ in 0..count {
            let (next, priority) = room.release(permit).expect("a waiting key");
            permit = room.acquire(&next, priority);
        }
        assert_eq!(room.release(permit), None);
        env.now() - begun
    }

    #[tokio::test(start_paused = true)]
    async fn full_class_cost_does_not_grow_quadratically() {
        let [mut few, mut many] = [std::time::Duration::MAX; 2];
        // The shortest of several runs counts, because other tests use the same CPUs.
        for _ in 0..10 {
            few = few.min(duration_of_full_class(5_000));
            many = many.min(duration_of_full_class(20_000));
            if many < few * 8 {
                return;
            }
        }
        panic!("four times as many keys took {many:?} instead of {few:?}");
    }
}
