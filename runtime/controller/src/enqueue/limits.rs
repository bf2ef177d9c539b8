//! How many keys of one class are reconciled at the same time: of one tenant, or of one kind where a controller handles
//! several.
//!
//! A worker that takes a key of a class that is full parks it in the queue and takes another, so a full class holds up no
//! other. The key stands in the line of its class, and the next free place is for the most urgent key of the line, and of
//! those for the one that came first. One place in [`FAIR_SHARE`] is for the key that came first of all, so none stands in
//! line forever.
//!
//! The line is the order of the claims to places, and not where keys wait: a key that is added while it is parked goes
//! back to a worker, because its class may have changed, and keeps its position.
//!
//! Guarantees:
//! - A key is as urgent as the most urgent of its adds, also while it stands in line.
//! - A place that is kept for a key does not stand idle while a more urgent key of its class waits: whoever it is kept
//!   for comes as early as that one would.
//! - A key stands in line, or has a place kept, in one class at most. If it is in another class when it comes back, what it
//!   had in the old one is given back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_object::ObjectKey;
use windlass_workqueue::{AddOptions, ParkReason, Priority, Queue};

/// Of so many calls one goes to the key that has stood in line for longest, whatever its priority. The queue lets one key
/// in eight age, and a class should be no less fair.
const FAIR_SHARE: u64 = 8;

/// As many keys of a parked key's class are reconciled as may be.
pub(crate) const CLASS_FULL: ParkReason = ParkReason("its class is full");

type ClassOf = dyn Fn(&ObjectKey) -> Option<String> + Send + Sync;

/// At most so many keys of a class at once.
#[derive(Clone)]
pub(crate) struct ConcurrencyLimit {
    at_most: usize,
    class_of: Arc<ClassOf>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    classes: BTreeMap<String, Class>,
    /// The class in which each key stands in line or has a place kept.
    class_of: BTreeMap<ObjectKey, String>,
}

#[derive(Debug, Default)]
struct Class {
    /// Places that are taken, those kept for `called` included.
    taken: usize,
    line: Line,
    /// Back in the queue at this priority, each with a place that is kept for it. As many as there are places at most.
    called: BTreeMap<ObjectKey, Priority>,
    /// How many were ever called.
    calls: u64,
}

/// The keys that claim a place. Each operation costs the logarithm of their number: a class can hold all keys of a
/// controller, and workers wait for the lock.
#[derive(Debug, Default)]
struct Line {
    keys: BTreeMap<ObjectKey, Claim>,
    by_arrival: BTreeMap<u64, ObjectKey>,
    /// The most urgent first, and of those the one that came first.
    by_urgency: BTreeSet<(Reverse<Priority>, u64)>,
    /// How many ever joined.
    arrivals: u64,
}

/// A key's claim to a place.
#[derive(Copy, Clone, Debug)]
struct Claim {
    priority: Priority,
    arrival: u64,
}

/// A place in a class, given up when it is dropped: to a key that stands in line, if there is one.
pub(crate) struct ClassPermit {
    limit: ConcurrencyLimit,
    class: String,
    queue: Queue<ObjectKey>,
}

/// What a limit does with a key that comes.
enum AcquireOutcome {
    /// It is in.
    In,
    /// The class is full, and the key stands in line. These have places kept, and are to come as early as it would.
    Full(Vec<ObjectKey>),
}

impl ConcurrencyLimit {
    pub(crate) fn new(
        at_most: usize,
        class_of: impl Fn(&ObjectKey) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self { at_most, class_of: Arc::new(class_of), state: Arc::default() }
    }

    /// The class in which `key` claims a place or has one kept, and how many keys of it may run.
    pub(crate) fn claim(&self, key: &ObjectKey) -> Option<(String, usize)> {
        self.lock().class_of.get(key).map(|class| (class.clone(), self.at_most))
    }

    /// Forgets keys of which `gone` says so: their claims, and the places that are kept for them.
    pub(crate) fn forget_if(&self, gone: impl Fn(&ObjectKey) -> bool, queue: &Queue<ObjectKey>) {
        let mut known: Vec<ObjectKey> = self.lock().class_of.keys().cloned().collect();
        known.retain(|key| gone(key));
        // First the claims, so that none of these keys is called by another one's place.
        known.iter().for_each(|key| self.lock().part_with_claim(key));
        // A place that was kept is dropped here, and so given to another.
        known.iter().for_each(|key| drop(self.kept_for(key, queue)));
    }

    pub(crate) fn is_impossible(&self) -> bool {
        self.at_most == 0
    }

    /// A place in every class that `key` belongs to; none if one is full. Then the key stands in line and is to be parked:
    /// it is added once it has a place.
    pub(crate) fn enter_all(
        limits: &[ConcurrencyLimit],
        queue: &Queue<ObjectKey>,
        key: &ObjectKey,
        priority: Priority,
    ) -> Option<Vec<ClassPermit>> {
        // Users' code first: if it panics, nothing has been taken.
        let classes: Vec<_> = limits.iter().map(|limit| (limit, (limit.class_of)(key))).collect();
        // Places kept for the key come first: one that stayed behind while the key waits for another would be lost to
        // everybody, and two such keys could wait for each other.
        let (mut places, mut missing) = (Vec::new(), Vec::new());
        for (limit, class) in classes {
            let kept = limit.kept_for(key, queue);
            // A place in a class that the key has left is dropped here, and so given to another.
            match (class, kept) {
                (Some(class), Some(kept)) if kept.class == class => places.push(kept),
                (Some(class), _) => missing.push((limit, class)),
                (None, _) => limit.forget(key),
            }
        }
        for (limit, class) in missing {
            places.push(limit.enter(class, queue, key, priority)?);
        }
        Some(places)
    }

    /// The place that is kept for `key`, in whichever class.
    fn kept_for(&self, key: &ObjectKey, queue: &Queue<ObjectKey>) -> Option<ClassPermit> {
        let class = self.lock().take_kept(key)?;
        Some(ClassPermit { limit: self.clone(), class, queue: queue.clone() })
    }

    /// The key is in no class any more.
    fn forget(&self, key: &ObjectKey) {
        self.lock().part_with(key);
    }

    fn enter(
        &self,
        class: String,
        queue: &Queue<ObjectKey>,
        key: &ObjectKey,
        priority: Priority,
    ) -> Option<ClassPermit> {
        let entry = self.lock().enter(&class, key, priority, self.at_most);
        match entry {
            AcquireOutcome::In => Some(ClassPermit { limit: self.clone(), class, queue: queue.clone() }),
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
    /// The class in which a place is kept for `key`, which is its own from here on.
    fn take_kept(&mut self, key: &ObjectKey) -> Option<String> {
        let class = self.class_of.get(key)?.clone();
        self.classes.get_mut(&class)?.called.remove(key)?;
        self.class_of.remove(key);
        Some(class)
    }

    /// Forgets a key that stands in line.
    fn part_with(&mut self, key: &ObjectKey) {
        let Some(name) = self.class_of.remove(key) else { return };
        if let Some(class) = self.classes.get_mut(&name) {
            class.line.remove(key);
        }
    }

    /// The same, unless a place is kept for it.
    fn part_with_claim(&mut self, key: &ObjectKey) {
        let class = self.class_of.get(key).and_then(|name| self.classes.get(name));
        if class.is_some_and(|class| class.line.contains(key)) {
            self.part_with(key);
        }
    }

    fn enter(&mut self, name: &str, key: &ObjectKey, priority: Priority, at_most: usize) -> AcquireOutcome {
        if self.class_of.get(key).is_some_and(|other| other != name) {
            self.part_with(key);
        }
        let class = self.classes.entry(name.to_owned()).or_default();
        if class.taken < at_most {
            class.taken += 1;
            return AcquireOutcome::In;
        }
        self.class_of.insert(key.clone(), name.to_owned());
        AcquireOutcome::Full(class.join_line(key, priority))
    }

    /// Gives a place up: to the key that is returned, if there is one.
    fn leave(&mut self, name: &str) -> Option<(ObjectKey, Priority)> {
        let class = self.classes.get_mut(name)?;
        if let Some(next) = class.call() {
            return Some(next);
        }
        class.taken -= 1;
        if class.taken == 0 {
            self.classes.remove(name);
        }
        None
    }
}

impl Class {
    /// A key joins the line, or becomes more urgent in it. Gives those to whom places are kept and who are less so.
    fn join_line(&mut self, key: &ObjectKey, priority: Priority) -> Vec<ObjectKey> {
        self.line.put(key, priority);
        let less_urgent = self.called.iter_mut().filter(|(_, called)| **called < priority);
        less_urgent
            .map(|(key, called)| {
                *called = priority;
                key.clone()
            })
            .collect()
    }

    /// Who has the place that has become free.
    fn call(&mut self) -> Option<(ObjectKey, Priority)> {
        // Who is called in turn goes before those that it was preferred to: its place must not stand idle.
        let (most_urgent, priority) = self.line.most_urgent()?;
        let in_turn = (self.calls + 1).is_multiple_of(FAIR_SHARE);
        let key = if in_turn { self.line.oldest()? } else { most_urgent }.clone();
        self.line.remove(&key);
        self.calls += 1;
        self.called.insert(key.clone(), priority);
        Some((key, priority))
    }
}

impl Line {
    /// Adds a key at the end, or makes one that is here more urgent.
    fn put(&mut self, key: &ObjectKey, priority: Priority) {
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
        let next = self.limit.lock().leave(&self.class);
        if let Some((key, priority)) = next {
            self.queue.add_with(key, AddOptions::now().priority(priority));
        }
    }
}

impl fmt::Debug for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("at_most", &self.at_most).field("state", &self.lock()).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use windlass_env::Env;
    use windlass_metrics::Metrics;

    use super::*;

    /// One class with one place, and the queue that its keys come back to.
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

        fn enter(&self, name: &str, priority: Priority) -> Option<Vec<ClassPermit>> {
            ConcurrencyLimit::enter_all(&self.limits, &self.queue, &key(name), priority)
        }

        /// Who has come back to the queue.
        fn back(&self) -> Option<(String, Priority)> {
            let item = tokio::task::unconstrained(self.queue.get()).now_or_never()??;
            Some((item.key().name().to_owned(), item.priority()))
        }

        /// Gives up a place; tells who is called.
        fn leave(&self, places: Option<Vec<ClassPermit>>) -> Option<(String, Priority)> {
            drop(places.expect("a place"));
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
    async fn key_that_changes_in_line_is_called_as_urgently_as_it_changed() {
        let room = Room::of(one_class);
        let first = room.enter("first", Priority::NORMAL);
        assert!(room.enter("early", Priority::LOW).is_none());
        assert!(room.enter("changed", Priority::LOW).is_none());
        assert!(room.enter("changed", Priority::NORMAL).is_none());
        assert_eq!(room.leave(first), at("changed", Priority::NORMAL), "before what nothing happened to");
        let changed = room.enter("changed", Priority::NORMAL);
        assert_eq!(room.leave(changed), at("early", Priority::LOW));
    }

    #[tokio::test(start_paused = true)]
    async fn of_keys_that_are_alike_who_came_first_is_called_first() {
        let room = Room::of(one_class);
        let mut place = room.enter("first", Priority::NORMAL);
        for name in ["z", "a", "m"] {
            assert!(room.enter(name, Priority::NORMAL).is_none());
        }
        for name in ["z", "a", "m"] {
            assert_eq!(room.leave(place), at(name, Priority::NORMAL));
            place = room.enter(name, Priority::NORMAL);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn place_kept_for_a_low_key_does_not_stand_idle_while_a_more_urgent_one_waits_for_it() {
        let room = Room::of(one_class);
        let first = room.enter("first", Priority::NORMAL);
        assert!(room.enter("low", Priority::LOW).is_none());
        drop(first);
        room.queue.add(key("bystander"));
        assert!(room.enter("urgent", Priority::HIGH).is_none(), "the place is kept");
        assert_eq!(room.back(), at("low", Priority::HIGH), "before keys that it would have waited behind");
        let low = room.enter("low", Priority::HIGH);
        drop(low);
        assert_eq!(room.back(), at("urgent", Priority::HIGH));
    }

    #[tokio::test(start_paused = true)]
    async fn low_key_does_not_stand_in_line_for_ever_behind_a_stream_of_others() {
        let room = Room::of(one_class);
        let mut place = room.enter("n0", Priority::NORMAL);
        assert!(room.enter("low", Priority::LOW).is_none());
        let called = (1..100).find(|number| {
            let name = format!("n{number}");
            assert!(room.enter(&name, Priority::NORMAL).is_none());
            let (called, priority) = room.leave(place.take()).expect("somebody");
            assert_eq!(priority, Priority::NORMAL, "whoever is called holds up nobody");
            place = room.enter(&called, priority);
            called == "low"
        });
        assert_eq!(called, Some(8));
    }

    #[tokio::test(start_paused = true)]
    async fn class_that_changes_while_a_key_waits_loses_no_place() {
        let class: Arc<Mutex<Option<&str>>> = Arc::new(Mutex::new(Some("old")));
        let theirs = Arc::clone(&class);
        let room = Room::of(move |key| {
            let of_mover = theirs.lock().expect("whole").map(str::to_owned);
            if key.name() == "mover" { of_mover } else { Some("old".to_owned()) }
        });
        for now in [Some("new"), None] {
            *class.lock().expect("whole") = Some("old");
            let first = room.enter("first", Priority::NORMAL);
            assert!(room.enter("mover", Priority::NORMAL).is_none());
            assert!(room.enter("other", Priority::NORMAL).is_none());
            assert_eq!(room.leave(first), at("mover", Priority::NORMAL));
            *class.lock().expect("whole") = now;
            let mover = room.enter("mover", Priority::NORMAL);
            assert!(mover.is_some(), "nobody is in its way now");
            assert_eq!(room.back(), at("other", Priority::NORMAL), "the place it had is given back");
            drop((room.enter("other", Priority::NORMAL).expect("kept"), mover));
            assert!(room.limits[0].lock().classes.is_empty(), "and all are free in the end");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_are_forgotten_hold_no_place_and_are_not_called() {
        let room = Room::of(one_class);
        let first = room.enter("first", Priority::NORMAL);
        for name in ["gone", "gone too", "stays"] {
            assert!(room.enter(name, Priority::NORMAL).is_none());
        }
        assert_eq!(room.leave(first), at("gone", Priority::NORMAL));
        assert_eq!(room.limits[0].claim(&key("gone too")), Some(("only".to_owned(), 1)));
        room.limits[0].forget_if(|key| key.name().starts_with("gone"), &room.queue);
        assert_eq!(room.back(), at("stays", Priority::NORMAL), "whom the place was given to");
        drop(room.enter("stays", Priority::NORMAL).expect("kept"));
        assert!(room.limits[0].lock().classes.is_empty() && room.limits[0].lock().class_of.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn key_that_leaves_a_full_class_is_not_called_by_it() {
        let class: Arc<Mutex<Option<&str>>> = Arc::new(Mutex::new(Some("full")));
        let theirs = Arc::clone(&class);
        let room = Room::of(move |key| {
            let of_mover = theirs.lock().expect("whole").map(str::to_owned);
            if key.name() == "mover" { of_mover } else { Some("full".to_owned()) }
        });
        for now in [Some("new"), None] {
            *class.lock().expect("whole") = Some("full");
            let first = room.enter("first", Priority::NORMAL);
            assert!(room.enter("mover", Priority::NORMAL).is_none());
            *class.lock().expect("whole") = now;
            assert!(room.enter("mover", Priority::NORMAL).is_some());
            assert_eq!(room.leave(first), None);
            assert!(room.limits[0].lock().class_of.is_empty());
        }
    }

    /// How long it takes until each of `count` keys of one full class stood in line and had its place.
    fn duration_of_full_class(count: u32) -> std::time::Duration {
        let (env, room) = (Env::system("limits"), Room::of(one_class));
        let begun = env.now();
        let mut place = room.enter("first", Priority::NORMAL);
        let names: Vec<String> = (0..count).map(|number| format!("k{number}")).collect();
        assert!(names.iter().all(|name| room.enter(name, Priority::NORMAL).is_none()));
        for _ in 0..count {
            let (next, priority) = room.leave(place).expect("a key stands in line");
            place = room.enter(&next, priority);
        }
        assert_eq!(room.leave(place), None);
        env.now() - begun
    }

    #[tokio::test(start_paused = true)]
    async fn cost_of_a_full_class_grows_with_its_keys_and_not_with_their_square() {
        let [mut few, mut many] = [std::time::Duration::MAX; 2];
        // The shortest of several runs counts, because other tests share the processors.
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
