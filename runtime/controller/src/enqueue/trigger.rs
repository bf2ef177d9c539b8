//! Sends keys to a controller from other code: a webhook, a message queue, another controller, a test.
//!
//! `setup` declares a [`Trigger`] by name ([`Setup::trigger`](crate::Setup::trigger)). A process has one trigger per
//! controller and name. Other code looks it up in the [`Triggers`] of the process, before or after setup. Before the
//! controller starts, the trigger buffers keys; afterwards it enqueues them directly. The bound limits the number of
//! distinct keys that no worker has dequeued yet. At the bound, a sender receives an error ([`TriggerError::Full`]) or
//! waits ([`Trigger::send`]). A key that is already waiting does not count twice.
//!
//! A trigger carries keys and no data: a reconcile reads the current state, not messages.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use windlass_object::ObjectKey;
use windlass_workqueue::{AddOptions, Priority};

use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::history::EnqueueReason;

/// A handle that sends keys to a controller. Clones share one trigger.
///
/// # Examples
/// ```
/// # use windlass_controller::{Setup, Trigger, TriggerError};
/// # use windlass_object::ObjectKey;
/// // In the setup of a controller, with room for 100 keys:
/// fn declare(setup: &mut Setup) -> Trigger {
///     setup.trigger("orders", 100)
/// }
///
/// // In other code of the process, with the trigger that `Manager::trigger` returns:
/// async fn on_order(trigger: &Trigger) -> Result<(), TriggerError> {
///     trigger.send(ObjectKey::namespaced("shop", "web")).await
/// }
/// ```
#[derive(Clone)]
pub struct Trigger {
    inner: Arc<Inner>,
}

struct Inner {
    controller: String,
    name: String,
    state: Mutex<State>,
    /// Notified when a key stops waiting and when the trigger closes.
    room: Notify,
}

struct State {
    /// The maximum number of waiting keys.
    bound: usize,
    phase: Phase,
    /// The keys that were sent and that no worker has dequeued.
    waiting: BTreeMap<ObjectKey, Priority>,
}

enum Phase {
    /// Setup has not declared the trigger yet.
    Undeclared,
    /// The controller has not started.
    Buffering,
    /// Keys are added to the queue of this controller.
    Open { controller: &'static str, queue: Enqueuer },
    /// The controller has stopped.
    Stopped { controller: &'static str },
    /// No controller of this process declares the trigger.
    Unknown,
}

/// The bound of a trigger that setup has not declared yet.
const UNDECLARED_BOUND: usize = 1024;

/// The reason a key was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerError {
    /// The number of waiting keys has reached the bound.
    #[error(
        "cannot send key: the trigger is full with {bound} keys; send fewer keys, wait with send(), or raise the bound"
    )]
    Full {
        /// The bound of the trigger.
        bound: usize,
    },
    /// The controller has stopped and accepts no more keys.
    #[error("cannot send key: controller {controller} has stopped")]
    Stopped {
        /// The name of the controller.
        controller: &'static str,
    },
    /// No controller of this process declares the trigger: the name is wrong, or the controller is not enabled.
    #[error(
        "cannot send key: no controller {controller} in this process declares a trigger {name}; \
         check both names, and that ManagerConfig::controllers enables the controller"
    )]
    Unknown {
        /// The requested controller.
        controller: String,
        /// The requested trigger.
        name: String,
    },
}

/// The triggers of one process, by controller and name. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    known: Arc<Mutex<KnownTriggers>>,
}

#[derive(Debug, Default)]
struct KnownTriggers {
    triggers: BTreeMap<(String, String), Trigger>,
    /// Whether all controllers are set up, so that no more triggers will be declared.
    is_complete: bool,
}

impl Triggers {
    /// Returns the trigger `name` of `controller`. Until the controller is set up, the trigger buffers up to 1024 keys.
    pub fn get(&self, controller: &str, name: &str) -> Trigger {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (controller.to_owned(), name.to_owned());
        let is_complete = known.is_complete;
        let trigger = known.triggers.entry(key).or_insert_with(|| Trigger::new(controller, name)).clone();
        if is_complete {
            trigger.reject_if_undeclared();
        }
        trigger
    }

    /// Makes triggers that setup has not declared reject keys, including triggers that are looked up later. Call this
    /// once all controllers are set up.
    pub fn reject_undeclared(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.is_complete = true;
        known.triggers.values().for_each(Trigger::reject_if_undeclared);
    }
}

impl Trigger {
    fn new(controller: &str, name: &str) -> Self {
        let state = State { bound: UNDECLARED_BOUND, phase: Phase::Undeclared, waiting: BTreeMap::new() };
        let (controller, name) = (controller.to_owned(), name.to_owned());
        let state = Mutex::new(state);
        Self { inner: Arc::new(Inner { controller, name, state, room: Notify::new() }) }
    }

    /// Declares the trigger with a bound of at least one key. Keys that are already waiting stay.
    pub(crate) fn declare(&self, bound: usize) {
        let mut state = self.inner.lock();
        state.bound = bound.max(1);
        if let Phase::Undeclared = state.phase {
            state.phase = Phase::Buffering;
        }
    }

    fn reject_if_undeclared(&self) {
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
    /// Fails if the trigger is full, its controller has stopped, or no controller declares it. The key is then not
    /// sent.
    pub fn try_send(&self, key: ObjectKey) -> Result<(), TriggerError> {
        self.try_send_with_priority(key, Priority::NORMAL)
    }

    /// Sends a key at this priority, without waiting.
    ///
    /// # Errors
    /// Fails like [`Trigger::try_send`].
    pub fn try_send_with_priority(&self, key: ObjectKey, priority: Priority) -> Result<(), TriggerError> {
        // The ownership is user code, so it is called without the lock.
        let queue = self.inner.lock().queue();
        if queue.is_some_and(|queue| !queue.accepts(&key)) {
            // Another replica owns the key and observes the cause itself.
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
        // The trigger can have opened, or the key moved, meanwhile: the worker checks the ownership again.
        if let Some(queue) = state.queue() {
            queue.with_priority(priority).enqueue_accepted(key.clone(), AddOptions::now());
        }
        state.waiting.insert(key, waits.map_or(priority, |waits| waits.max(priority)));
        Ok(())
    }

    /// Sends a key at normal priority. Waits while the trigger is full.
    ///
    /// # Errors
    /// Fails if the controller has stopped or stops during the wait, or if no controller declares the trigger.
    ///
    /// # Cancel safety
    /// This method is cancel safe: a dropped call sends no key.
    pub async fn send(&self, key: ObjectKey) -> Result<(), TriggerError> {
        loop {
            let mut room = pin!(self.inner.room.notified());
            // Subscribe before trying, so that no notification in between is missed.
            room.as_mut().enable();
            match self.try_send(key.clone()) {
                Err(TriggerError::Full { .. }) => room.await,
                sent => return sent,
            }
        }
    }

    /// Enqueues the buffered keys, and connects the trigger to `queue`.
    pub(crate) fn open(&self, controller: &'static str, queue: Enqueuer) {
        let queue = queue.of(EnqueueReason::Trigger);
        // The ownership is user code, so it is called without the lock. Workers check keys that are sent meanwhile.
        let mut unwanted: Vec<ObjectKey> = self.inner.lock().waiting.keys().cloned().collect();
        unwanted.retain(|key| !queue.accepts(key));
        let mut state = self.inner.lock();
        for key in &unwanted {
            state.waiting.remove(key);
        }
        for (key, priority) in &state.waiting {
            queue.with_priority(*priority).enqueue_accepted(key.clone(), AddOptions::now());
        }
        state.phase = Phase::Open { controller, queue };
    }

    /// Removes the waiting keys for which `gone` returns true.
    pub(crate) fn remove_if(&self, gone: impl Fn(&ObjectKey) -> bool) {
        self.inner.lock().waiting.retain(|key, _| !gone(key));
        self.inner.room.notify_waiters();
    }

    /// Records that a worker dequeued `key`.
    pub(crate) fn on_dequeued(&self, key: &ObjectKey) {
        if self.inner.lock().waiting.remove(key).is_some() {
            self.inner.room.notify_waiters();
        }
    }

    /// Closes the trigger, because its controller has stopped.
    pub(crate) fn close(&self) {
        let mut state = self.inner.lock();
        if let Phase::Open { controller, .. } = state.phase {
            state.phase = Phase::Stopped { controller };
            state.waiting.clear();
        }
        drop(state);
        self.inner.room.notify_waiters();
    }

    /// Closes a buffering trigger, because its controller will not start.
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
    /// Returns the queue of the controller, if the controller runs.
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

    /// User code that accesses the trigger in each ownership check. This replica owns the names up to `m`.
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
        ["a", "z"].iter().for_each(|name| trigger.try_send(ObjectKey::cluster(name)).expect("buffered"));
        trigger.open("test", enqueuer);
        trigger.try_send(ObjectKey::cluster("b")).expect("z was removed");
        trigger.try_send(ObjectKey::cluster("y")).expect("a key of another replica is not counted");
        assert_eq!(
            trigger.try_send(ObjectKey::cluster("c")),
            Err(TriggerError::Full { bound: 2 }),
            "a key of this replica is counted"
        );
        assert_eq!(
            (ownership.asked.load(Ordering::Relaxed), ownership.locked.load(Ordering::Relaxed)),
            (5, 0)
        );
        assert_eq!(queue.len(), 2);
    }
}
