//! Keys from answers of a system that does not tell when something changes.
//!
//! A poll asks at the start and in every period, keeps the last answer as a cache, and queues the keys whose value
//! appeared, changed or vanished. An answer that fails is logged and asked for again after a back-off, which begins at
//! one second and doubles up to the period; the last answer stays until then.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_env::{TaskGroup, catch_panic};
use windlass_object::ObjectKey;

use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::history::EnqueueReason;
use crate::enqueue::source::{Call, Means};
use crate::enqueue::timer::Timer;
use crate::error::BoxError;

/// How long the first wait is after an answer that failed.
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);

/// The last answer of a poll ([`Setup::poll`](crate::Setup::poll)). Clones are the same.
pub struct Polled<T> {
    poll: Arc<Poll>,
    value: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> Polled<T> {
    pub(crate) fn new(poll: Arc<Poll>) -> Self {
        Self { poll, value: PhantomData }
    }

    /// Returns the value of `key` in the last answer.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        let value = self.poll.state().values.get(key).cloned()?;
        // The poll was made with this type.
        value.downcast().ok()
    }

    /// Returns the keys of the last answer, in their order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.poll.keys()
    }
}

impl<T> Clone for Polled<T> {
    fn clone(&self) -> Self {
        Self { poll: Arc::clone(&self.poll), value: PhantomData }
    }
}

impl<T> fmt::Debug for Polled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polled").field("name", &self.poll.name).finish_non_exhaustive()
    }
}

/// A value of any type.
pub(crate) type Value = Arc<dyn Any + Send + Sync>;

/// The values of one answer.
type Values = BTreeMap<ObjectKey, Value>;

/// One answer.
pub(crate) type Answer = Result<Values, BoxError>;

/// Asks once.
pub(crate) type Fetch = Call<BoxFuture<'static, Answer>>;

/// The cache of one poll, whatever its values are.
pub(crate) struct Poll {
    name: &'static str,
    same: fn(&Value, &Value) -> bool,
    state: Mutex<State>,
    /// Whether there was an answer.
    answered: Sender<bool>,
}

#[derive(Default)]
struct State {
    values: Arc<Values>,
    /// The keys that vanished with the last two answers and were another replica's.
    gone_elsewhere: [BTreeSet<ObjectKey>; 2],
    /// Why the last attempt failed.
    error: Option<String>,
}

impl Poll {
    pub(crate) fn new<T: PartialEq + Send + Sync + 'static>(name: &'static str) -> Arc<Self> {
        let same = |one: &Value, other: &Value| one.downcast_ref::<T>() == other.downcast_ref::<T>();
        Arc::new(Self { name, same, state: Mutex::default(), answered: channel(false).0 })
    }

    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.state().values.keys().cloned().collect()
    }

    /// Asks until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, timer: Timer, fetch: Fetch, means: Means) {
        let env = means.cx.env();
        let mut periods = timer.periods(env, &means.name);
        let mut wait = FIRST_BACK_OFF;
        loop {
            let asked = catch_panic(self.ask(&fetch, &means)).await.unwrap_or_else(|message| {
                means.panics.inc();
                Err(format!("panicked: {message}"))
            });
            let pause = match asked {
                Ok(()) => {
                    wait = FIRST_BACK_OFF;
                    periods.next()
                }
                Err(error) => {
                    let pause = wait.min(timer.period());
                    tracing::warn!(poll = means.name, error, again_in = ?pause, "a poll failed");
                    self.state().error = Some(error);
                    wait = (pause * 2).max(FIRST_BACK_OFF);
                    pause
                }
            };
            env.sleep(pause).await;
        }
    }

    async fn ask(&self, fetch: &Fetch, means: &Means) -> Result<(), String> {
        let answer = fetch(means.cx.clone()).await;
        let answer = answer.map_err(|error| windlass_client::one_line(error.as_ref()))?;
        let queue = means.queue.of(EnqueueReason::Poll);
        // As in the first list of a watch, nothing is known to have happened.
        let queue = if self.answered.get() { queue } else { queue.for_background().at(means.background) };
        let mut keys = self.changed(&answer);
        let gone = self.replace(answer, &queue);
        keys.extend(gone);
        queue.add_all(keys);
        self.answered.set(true);
        Ok(())
    }

    /// The keys whose value appears or changes with `answer`. Compares values, which is users' code, under no lock.
    fn changed(&self, answer: &Values) -> Vec<ObjectKey> {
        let old = self.state().values.clone();
        let is_same =
            |key: &ObjectKey, value: &Value| old.get(key).is_some_and(|old| (self.same)(old, value));
        answer.iter().filter(|(key, value)| !is_same(key, value)).map(|(key, _)| key.clone()).collect()
    }

    /// Replaces the last answer; returns the keys that vanish.
    fn replace(&self, answer: Values, queue: &Enqueuer) -> Vec<ObjectKey> {
        let answer = Arc::new(answer);
        let old = std::mem::replace(&mut self.state().values, Arc::clone(&answer));
        let gone: Vec<ObjectKey> = old.keys().filter(|key| !answer.contains_key(key)).cloned().collect();
        // The replica that has the key may lose its shard to this one before it asks.
        let elsewhere = gone.iter().filter(|key| !queue.accepts(key)).cloned().collect();
        let mut state = self.state();
        state.gone_elsewhere = [std::mem::take(&mut state.gone_elsewhere[1]), elsewhere];
        gone
    }

    /// The keys that `wanted` names: those of the last answer, and those that vanished lately while another replica had
    /// them.
    pub(crate) fn keys_joining(&self, wanted: &dyn Fn(&ObjectKey) -> bool) -> Vec<ObjectKey> {
        let mut keys = self.keys();
        keys.extend(self.state().gone_elsewhere.iter().flatten().cloned());
        keys.retain(|key| wanted(key));
        keys
    }

    /// Why there is no answer yet; `None` if there is one.
    pub(crate) fn lacking(&self) -> Option<String> {
        let why = || match &self.state().error {
            Some(error) => format!("poll {}: {error}", self.name),
            None => format!("poll {}: no answer yet", self.name),
        };
        (!self.answered.get()).then(why)
    }

    /// Waits for the first answer.
    pub(crate) async fn answered(&self) {
        let mut answered: Receiver<bool> = self.answered.subscribe();
        // The publisher lives in `self`.
        let _closed = answered.wait_for(|answered| *answered).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The polls of one controller.
pub(crate) struct Polls {
    pub(crate) polls: Vec<Arc<Poll>>,
    /// They ask from the start of the controller on, before its workers run.
    pub(crate) tasks: TaskGroup,
}

impl Polls {
    /// What is lacking as long as polls have no answer.
    pub(crate) fn lacking(&self) -> Vec<String> {
        self.polls.iter().filter_map(|poll| poll.lacking()).collect()
    }

    /// Waits for the first answer of each.
    pub(crate) async fn answered(&self) {
        for poll in &self.polls {
            poll.answered().await;
        }
    }
}
