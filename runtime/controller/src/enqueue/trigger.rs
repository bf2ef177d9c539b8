//! Keys from outside: a webhook, a message queue, another controller, a test.
//!
//! A [`Trigger`] is a handle that is made before its controller runs and can be cloned to wherever news come from. Until
//! the controller starts it keeps what is sent; from then on keys go straight to the queue. At most as many keys as its
//! bound wait at any time, counted by distinct key until a worker takes them: who sends faster than workers work is told
//! so ([`TriggerError::Full`]) or waits ([`Trigger::send`]). A key that waits already costs nothing.
//!
//! What it refuses: to carry data. A reconcile reads the world, not messages; what the key stands for is to be found
//! where the sender put it. And to serve two controllers at once: each has a trigger of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use windlass_object::ObjectKey;
use windlass_workqueue::{Add, Priority};

use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::history::Asker;

/// Sends keys to a controller from outside. Clones are one trigger.
#[derive(Clone)]
pub struct Trigger {
    inner: Arc<Inner>,
}

struct Inner {
    bound: usize,
    state: Mutex<State>,
    /// Told whenever a key no longer waits, and when the controller stops.
    room: Notify,
}

struct State {
    phase: Phase,
    /// Sent and not yet taken by a worker.
    waiting: BTreeMap<ObjectKey, Priority>,
}

enum Phase {
    /// The controller has not started.
    Kept,
    /// Keys go to the queue of this controller.
    Open { controller: &'static str, queue: Enqueuer },
    /// The controller has stopped.
    Stopped { controller: &'static str },
}

/// Why a key was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
}

/// Another controller runs on this trigger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trigger serves the controller {by}: give each controller one of its own")]
pub(crate) struct Taken {
    by: &'static str,
}

impl Trigger {
    /// A trigger for at most `bound` waiting keys, at least one. To be given to
    /// [`Setup::triggered_by`](crate::Setup::triggered_by).
    pub fn new(bound: usize) -> Self {
        let state = State { phase: Phase::Kept, waiting: BTreeMap::new() };
        Self { inner: Arc::new(Inner { bound: bound.max(1), state: Mutex::new(state), room: Notify::new() }) }
    }

    /// Sends a key at normal priority, without waiting.
    ///
    /// # Errors
    /// When the trigger is full or its controller has stopped. The key is not sent then.
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
        if queue.is_some_and(|queue| !queue.wants(&key)) {
            // It is another replica's, whose own look at the world brings it.
            return Ok(());
        }
        let mut state = self.inner.lock();
        let waits = state.waiting.get(&key).copied();
        if let Phase::Stopped { controller } = state.phase {
            return Err(TriggerError::Stopped { controller });
        }
        if waits.is_none() && state.waiting.len() >= self.inner.bound {
            return Err(TriggerError::Full { bound: self.inner.bound });
        }
        // Opened meanwhile, or moved: the worker that takes the key asks once more.
        if let Some(queue) = state.queue() {
            queue.at(priority).put_wanted(key.clone(), Add::now());
        }
        state.waiting.insert(key, waits.map_or(priority, |waits| waits.max(priority)));
        Ok(())
    }

    /// Sends a key at normal priority, and waits for room if there is none.
    ///
    /// # Errors
    /// When the controller has stopped, now or while it waits.
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
    pub(crate) fn open(&self, controller: &'static str, queue: Enqueuer) -> Result<(), Taken> {
        let queue = queue.of(Asker::Trigger);
        // The ownership is users' code: it is called without the lock. The workers check keys that are sent meanwhile.
        let mut unwanted: Vec<ObjectKey> = self.inner.lock().waiting.keys().cloned().collect();
        unwanted.retain(|key| !queue.wants(key));
        let mut state = self.inner.lock();
        if let Phase::Open { controller: by, .. } = state.phase {
            return Err(Taken { by });
        }
        for key in &unwanted {
            state.waiting.remove(key);
        }
        for (key, priority) in &state.waiting {
            queue.at(*priority).put_wanted(key.clone(), Add::now());
        }
        state.phase = Phase::Open { controller, queue };
        Ok(())
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

    /// The controller that this trigger keeps keys for will not start. Nothing happens if another one has it.
    pub(crate) fn abandon(&self, controller: &'static str) {
        let mut state = self.inner.lock();
        if let Phase::Kept = state.phase {
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
            Phase::Kept | Phase::Stopped { .. } => None,
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
        let phase = match &state.phase {
            Phase::Kept => "not started",
            Phase::Open { controller, .. } | Phase::Stopped { controller } => controller,
        };
        f.debug_struct("Trigger")
            .field("controller", &phase)
            .field("waiting", &state.waiting.len())
            .field("bound", &self.inner.bound)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use windlass_sharding::{KeyOwnership, Ownership};

    use windlass_env::Env;
    use windlass_object::shard::ShardId;
    use windlass_workqueue::{Queue, QueueOptions};

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
        let trigger = Trigger::new(2);
        let (asked, locked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let ownership = Arc::new(Curious { trigger: trigger.clone(), asked, locked });
        let queue = Queue::new(env.clone(), "test", QueueOptions::default(), None);
        let quarantine = Quarantine::new(None);
        let enqueuer = Enqueuer::new(queue.clone(), quarantine, History::new(env, "test"), ownership.clone());
        ["a", "z"].iter().for_each(|name| trigger.try_send(ObjectKey::cluster(name)).expect("kept"));
        trigger.open("test", enqueuer).expect("nobody has it");
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
