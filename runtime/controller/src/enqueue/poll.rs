//! Polls a system that sends no events, and enqueues the keys whose values differ.
//!
//! A poll calls the system at the start and once per period, caches the last response, and enqueues the keys whose
//! value was added, changed or removed. A failed call is logged and retried after a backoff, which starts at one second
//! and doubles up to the period. The last response stays cached until the next successful call.

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
use crate::enqueue::source::{Call, SourceContext};
use crate::enqueue::timer::Timer;
use crate::error::BoxError;

/// The initial backoff after a failed call.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

/// The cached last response of a poll ([`Setup::poll`](crate::Setup::poll)). Clones share it.
pub struct PollCache<T> {
    poll: Arc<Poll>,
    value: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> PollCache<T> {
    pub(crate) fn new(poll: Arc<Poll>) -> Self {
        Self { poll, value: PhantomData }
    }

    /// Returns the value of `key` in the last response.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        let value = self.poll.state().values.get(key).cloned()?;
        // The poll was created with this type, so the downcast succeeds.
        value.downcast().ok()
    }

    /// Returns the keys of the last response in key order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.poll.keys()
    }
}

impl<T> Clone for PollCache<T> {
    fn clone(&self) -> Self {
        Self { poll: Arc::clone(&self.poll), value: PhantomData }
    }
}

impl<T> fmt::Debug for PollCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollCache").field("name", &self.poll.name).finish_non_exhaustive()
    }
}

/// A value of any type.
pub(crate) type Value = Arc<dyn Any + Send + Sync>;

/// The values of one response.
type Values = BTreeMap<ObjectKey, Value>;

/// The result of one call.
pub(crate) type PollResult = Result<Values, BoxError>;

/// A function that calls the system once.
pub(crate) type Fetch = Call<BoxFuture<'static, PollResult>>;

/// The cache of one poll, with values of any type.
pub(crate) struct Poll {
    name: &'static str,
    same: fn(&Value, &Value) -> bool,
    state: Mutex<State>,
    /// Whether a call has succeeded.
    answered: Sender<bool>,
}

#[derive(Default)]
struct State {
    values: Arc<Values>,
    /// The keys that the last two responses removed and that another replica owned.
    gone_elsewhere: [BTreeSet<ObjectKey>; 2],
    /// The error of the last failed call.
    error: Option<String>,
}

impl Poll {
    pub(crate) fn new<T: PartialEq + Send + Sync + 'static>(name: &'static str) -> Arc<Self> {
        let same = |left: &Value, right: &Value| left.downcast_ref::<T>() == right.downcast_ref::<T>();
        Arc::new(Self { name, same, state: Mutex::default(), answered: channel(false).0 })
    }

    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.state().values.keys().cloned().collect()
    }

    /// Polls until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, timer: Timer, fetch: Fetch, means: SourceContext) {
        let env = means.cx.env();
        let mut periods = timer.periods(env, &means.name);
        let mut wait = INITIAL_BACKOFF;
        loop {
            let result = catch_panic(self.poll_once(&fetch, &means)).await.unwrap_or_else(|message| {
                means.panics.inc();
                Err(format!("panicked: {message}"))
            });
            let pause = match result {
                Ok(()) => {
                    wait = INITIAL_BACKOFF;
                    periods.next()
                }
                Err(error) => {
                    let pause = wait.min(timer.period());
                    tracing::warn!(poll = means.name, error, again_in = ?pause, "poll failed");
                    self.state().error = Some(error);
                    wait = (pause * 2).max(INITIAL_BACKOFF);
                    pause
                }
            };
            env.sleep(pause).await;
        }
    }

    async fn poll_once(&self, fetch: &Fetch, means: &SourceContext) -> Result<(), String> {
        let answer = fetch(means.cx.clone()).await;
        let answer = answer.map_err(|error| windlass_client::one_line(error.as_ref()))?;
        let queue = means.queue.of(EnqueueReason::Poll);
        // As in the initial list of a watch, no change is known.
        let queue =
            if self.answered.get() { queue } else { queue.for_background().with_priority(means.background) };
        let mut keys = self.changed(&answer);
        let gone = self.replace(answer, &queue);
        keys.extend(gone);
        queue.add_all(keys);
        self.answered.set(true);
        Ok(())
    }

    /// Returns the keys whose value `answer` adds or changes. Comparing values is user code, so it runs without a lock.
    fn changed(&self, answer: &Values) -> Vec<ObjectKey> {
        let old = self.state().values.clone();
        let is_same =
            |key: &ObjectKey, value: &Value| old.get(key).is_some_and(|old| (self.same)(old, value));
        answer.iter().filter(|(key, value)| !is_same(key, value)).map(|(key, _)| key.clone()).collect()
    }

    /// Replaces the last response and returns the removed keys.
    fn replace(&self, answer: Values, queue: &Enqueuer) -> Vec<ObjectKey> {
        let answer = Arc::new(answer);
        let old = std::mem::replace(&mut self.state().values, Arc::clone(&answer));
        let gone: Vec<ObjectKey> = old.keys().filter(|key| !answer.contains_key(key)).cloned().collect();
        // This replica can take over the shard of such a key before the owner polls.
        let elsewhere = gone.iter().filter(|key| !queue.accepts(key)).cloned().collect();
        let mut state = self.state();
        state.gone_elsewhere = [std::mem::take(&mut state.gone_elsewhere[1]), elsewhere];
        gone
    }

    /// Returns the keys that `wanted` selects from the last response, and from the keys that the last two responses
    /// removed while another replica owned them.
    pub(crate) fn keys_joining(&self, wanted: &dyn Fn(&ObjectKey) -> bool) -> Vec<ObjectKey> {
        let mut keys = self.keys();
        keys.extend(self.state().gone_elsewhere.iter().flatten().cloned());
        keys.retain(|key| wanted(key));
        keys
    }

    /// Returns the reason there is no response yet; `None` if there is a response.
    pub(crate) fn unanswered(&self) -> Option<String> {
        let why = || match &self.state().error {
            Some(error) => format!("poll {}: {error}", self.name),
            None => format!("poll {}: no answer yet", self.name),
        };
        (!self.answered.get()).then(why)
    }

    /// Waits for the first response.
    pub(crate) async fn wait_answered(&self) {
        let mut answered: Receiver<bool> = self.answered.subscribe();
        // The sender is in `self`, so the channel is open.
        let _closed = answered.wait_for(|answered| *answered).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The polls of one controller.
pub(crate) struct Polls {
    pub(crate) polls: Vec<Arc<Poll>>,
    /// The polls start with the controller, before its workers run.
    pub(crate) tasks: TaskGroup,
}

impl Polls {
    /// Returns the reasons for which polls have no response yet.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        self.polls.iter().filter_map(|poll| poll.unanswered()).collect()
    }

    /// Waits for the first response of each poll.
    pub(crate) async fn wait_answered(&self) {
        for poll in &self.polls {
            poll.wait_answered().await;
        }
    }
}
