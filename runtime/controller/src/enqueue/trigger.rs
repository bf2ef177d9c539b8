//! Keys from outside: a webhook, a message queue, another controller, a test.
//!
//! `setup` declares a [`Trigger`] by name ([`Setup::trigger`](crate::Setup::trigger)). The process has one of each controller
//! and name, which code outside of the controller finds in its [`Triggers`], before or after the controller is set up.
//! Until the controller starts the trigger keeps what is sent; from then on keys go straight to the queue. At most as many
//! keys as its bound wait at any time, counted by distinct key until a worker takes them: a sender that is faster than the
//! workers gets an error ([`TriggerError::Full`]) or waits ([`Trigger::send`]). A key that waits already costs nothing.
//!
//! What it refuses: to carry data. A reconcile reads the world, not messages; what the key stands for is to be found
//! where the sender put it.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use windlass_object::ObjectKey;
use windlass_workqueue::{AddOptions, Priority};

use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::history::EnqueueReason;

/// Sends keys to a controller from outside. Clones are one trigger.
#[derive(Clone)]
pub struct Trigger {
    inner: Arc<Inner>,
}

struct Inner {
    controller: String,
    name: String,
    state: Mutex<State>,
    /// Told whenever a key no longer waits, and when the controller stops.
    room: Notify,
}

struct State {
    /// How many keys wait at most.
    bound: usize,
    phase: Phase,
    /// Sent and not yet taken by a worker.
    waiting: BTreeMap<ObjectKey, Priority>,
}

enum Phase {
    /// No setup has declared the trigger so far.
    Undeclared,
    /// The controller has not started.
    Buffering,
    /// Keys go to the queue of this controller.
    Open { controller: &'static str, queue: Enqueuer },
    /// The controller has stopped.
    Stopped { controller: &'static str },
    /// No controller of this process declares the trigger.
    Unknown,
}

/// How many keys a trigger keeps before a setup declares its bound.
const UNDECLARED_BOUND: usize = 1024;

/// Why a key was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerError {
    /// As many keys wait as the trigger holds.
    #[error(
        "the trigger is full: {bound} keys wait for a worker; send less, wait with send(), or raise the bound"
    )]
    Full {
        /// How many it holds.
        bound: usize,
    },
    /// The controller has stopped and takes nothing any more.
    #[error("the controller {controller} has stopped and takes no more keys")]
    Stopped {
        /// Which one.
        controller: &'static str,
    },
    /// No controller of this process declares the trigger: the name is wrong, or the controller is not enabled.
    #[error(
        "no controller {controller} of this process declares a trigger {name}: check both names, and --controllers"
    )]
    Unknown {
        /// The controller that was asked for.
        controller: String,
        /// The trigger that was asked for.
        name: String,
    },
}

/// The triggers of one process, by controller and name. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    triggers: BTreeMap<(String, String), Trigger>,
    /// Whether all controllers are set up, so that no trigger is declared any more.
    is_complete: bool,
}

impl Triggers {
    /// Returns the trigger `name` of `controller`. Until the controller is set up it keeps up to 1024 keys.
    pub fn get(&self, controller: &str, name: &str) -> Trigger {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (controller.to_owned(), name.to_owned());
        let is_complete = known.is_complete;
        let trigger = known.triggers.entry(key).or_insert_with(|| Trigger::new(controller, name)).clone();
        if is_complete {
            trigger.refuse_if_undeclared();
        }
        trigger
    }

    /// Has triggers refuse keys that no setup has declared, those included that are asked for later. To be called once all
    /// controllers are set up.
    pub fn refuse_undeclared(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.is_complete = true;
        known.triggers.values().for_each(Trigger::refuse_if_undeclared);
    }
}

impl Trigger {
    fn new(controller: &str, name: &str) -> Self {
        let state = State { bound: UNDECLARED_BOUND, phase: Phase::Undeclared, waiting: BTreeMap::new() };
        let (controller, name) = (controller.to_owned(), name.to_owned());
        let state = Mutex::new(state);
        Self { inner: Arc::new(Inner { controller, name, state, room: Notify::new() }) }
    }

    /// A setup declares the trigger: at most `bound` keys wait, at least one. Nothing that waits already is dropped.
    pub(crate) fn declare(&self, bound: usize) {
        let mut state = self.inner.lock();
        state.bound = bound.max(1);
        if let Phase::Undeclared = state.phase {
            state.phase = Phase::Buffering;
        }
    }

    fn refuse_if_undeclared(&self) {
        let mut state = self.inner.lock();
        if let Phase::Undeclared = state.phase {
            state.phase = Phase::Unknown;
            state.waiting.clear();
        }
        drop(state);
        self.inner.room.notify_waiters();
    }

    /// Sends a key at normal priority, without waiting.
    ///
    /// # Errors
    /// When the trigger is full, its controller has stopped, or no controller declares it. The key is not sent then.
    pub fn try_send(&self, key: ObjectKey) -> Result<(), TriggerError> {
        self.try_send_at(key, Priority::NORMAL)
    }

    /// Sends a key at this priority, without waiting.
    ///
    /// # Errors
    /// As [`Trigger::try_send`].
    pub fn try_send_at(&self, key: ObjectKey, priority: Priority) -> Result<(), TriggerError> {
        // The ownership is users' code: it is called without the lock.
        let queue = self.inner.lock().queue();
        if queue.is_some_and(|queue| !queue.accepts(&key)) {
            // It is another replica's, whose own look at the world brings it.
            return Ok(());
        }
        let mut state = self.inner.lock();
        let waits = state.waiting.get(&key).copied();
        match state.phase {
            Phase::Stopped { controller } => return Err(TriggerError::Stopped { controller }),
            Phase::Unknown => {
                let (controller, name) = (self.inner.controller.clone(), self.inner.name.clone());
                return Err(TriggerError::Unknown { controller, name });
            }
            Phase::Undeclared | Phase::Buffering | Phase::Open { .. } => {}
        }
        if waits.is_none() && state.waiting.len() >= state.bound {
            return Err(TriggerError::Full { bound: state.bound });
        }
        // Opened meanwhile, or moved: the worker that takes the key asks once more.
        if let Some(queue) = state.queue() {
            queue.at(priority).enqueue_accepted(key.clone(), AddOptions::now());
        }
        state.waiting.insert(key, waits.map_or(priority, |waits| waits.max(priority)));
        Ok(())
    }

    /// Sends a key at normal priority, and waits for room if there is none.
    ///
    /// # Errors
    /// When the controller has stopped, now or while it waits, or no controller declares the trigger.
    ///
    /// # Cancel safety
    /// A dropped call has sent nothing.
    pub async fn send(&self, key: ObjectKey) -> Result<(), TriggerError> {
        loop {
            let mut room = pin!(self.inner.room.notified());
            // Listening starts before trying, so that room made in between is not missed.
            room.as_mut().enable();
            match self.try_send(key.clone()) {
                Err(TriggerError::Full { .. }) => room.await,
                sent => return sent,
            }
        }
    }

    /// Lets everything kept, and all that follows, through to `queue`.
    pub(crate) fn open(&self, controller: &'static str, queue: Enqueuer) {
        let queue = queue.of(EnqueueReason::Trigger);
        // The ownership is users' code: it is called without the lock. The workers check keys that are sent meanwhile.
        let mut unwanted: Vec<ObjectKey> = self.inner.lock().waiting.keys().cloned().collect();
        unwanted.retain(|key| !queue.accepts(key));
        let mut state = self.inner.lock();
        for key in &unwanted {
            state.waiting.remove(key);
        }
        for (key, priority) in &state.waiting {
            queue.at(*priority).enqueue_accepted(key.clone(), AddOptions::now());
        }
        state.phase = Phase::Open { controller, queue };
    }

    /// Keys of which `gone` says so wait no more.
    pub(crate) fn forget_if(&self, gone: impl Fn(&ObjectKey) -> bool) {
        self.inner.lock().waiting.retain(|key, _| !gone(key));
        self.inner.room.notify_waiters();
    }

    /// A worker has taken `key`.
    pub(crate) fn taken(&self, key: &ObjectKey) {
        if self.inner.lock().waiting.remove(key).is_some() {
            self.inner.room.notify_waiters();
        }
    }

    /// The controller has stopped.
    pub(crate) fn close(&self) {
        let mut state = self.inner.lock();
        if let Phase::Open { controller, .. } = state.phase {
            state.phase = Phase::Stopped { controller };
            state.waiting.clear();
        }
        drop(state);
        self.inner.room.notify_waiters();
    }

    /// The controller that this trigger keeps keys for will not start.
    pub(crate) fn abandon(&self, controller: &'static str) {
        let mut state = self.inner.lock();
        if let Phase::Buffering = state.phase {
            state.phase = Phase::Stopped { controller };
            state.waiting.clear();
        }
        drop(state);
        self.inner.room.notify_waiters();
    }
}

impl State {
    /// The queue of the controller that has started.
    fn queue(&self) -> Option<Enqueuer> {
        match &self.phase {
            Phase::Open { queue, .. } => Some(queue.clone()),
            Phase::Undeclared | Phase::Buffering | Phase::Stopped { .. } | Phase::Unknown => None,
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.lock();
        f.debug_struct("Trigger")
            .field("controller", &self.inner.controller)
            .field("name", &self.inner.name)
            .field("waiting", &state.waiting.len())
            .field("bound", &state.bound)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use windlass_sharding::{KeyOwnership, Ownership};

    use windlass_env::Env;
    use windlass_object::shard::ShardId;
    use windlass_workqueue::Queue;

    use super::*;
    use crate::enqueue::history::History;
    use crate::enqueue::quarantine::Quarantine;

    /// Looks at the trigger whenever it is asked, as users' code may. Names up to `m` are this replica's.
    struct Curious {
        trigger: Trigger,
        asked: AtomicUsize,
        locked: AtomicUsize,
    }

    impl KeyOwnership for Curious {
        fn ownership(&self, key: &ObjectKey) -> Ownership {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.trigger.inner.state.try_lock().is_err() {
                self.locked.fetch_add(1, Ordering::Relaxed);
            }
            if key.name() > "m" {
                return Ownership::NotOwned { shard: ShardId(3), holder: None };
            }
            Ownership::Owned(None)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ownership_is_checked_without_lock_before_room() {
        let env = Env::virtual_time(1);
        let trigger = Trigger::new("test", "feed");
        trigger.declare(2);
        let (asked, locked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let ownership = Arc::new(Curious { trigger: trigger.clone(), asked, locked });
        let queue = Queue::new(env.clone(), "test", None);
        let quarantine = Quarantine::new(None);
        let enqueuer = Enqueuer::new(queue.clone(), quarantine, History::new(env, "test"), ownership.clone());
        ["a", "z"].iter().for_each(|name| trigger.try_send(ObjectKey::cluster(name)).expect("kept"));
        trigger.open("test", enqueuer);
        trigger.try_send(ObjectKey::cluster("b")).expect("z has left");
        trigger.try_send(ObjectKey::cluster("y")).expect("what is elsewhere takes no room");
        assert_eq!(
            trigger.try_send(ObjectKey::cluster("c")),
            Err(TriggerError::Full { bound: 2 }),
            "what is not elsewhere does"
        );
        assert_eq!(
            (ownership.asked.load(Ordering::Relaxed), ownership.locked.load(Ordering::Relaxed)),
            (5, 0)
        );
        assert_eq!(queue.len(), 2);
    }
}
