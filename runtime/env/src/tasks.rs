//! Tasks under their names, and the gate that closes behind them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::task::{AbortHandle, JoinHandle};

use crate::panics::{self, catch_panic};
use crate::poll_monitor::PollMonitor;
use crate::waiters::{WaiterId, Waiters, wake_all};

/// Why a task has no output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// It panicked, with this message.
    #[error("the task panicked: {0}")]
    Panicked(String),
    /// It was aborted, or its Env had been killed before it could run.
    #[error("the task was aborted")]
    Aborted,
}

/// A handle on a spawned task, and a future of its outcome. Dropping it neither stops the task nor ends
/// its tracking: a panic is logged under the task's name in any case.
pub struct Task<T> {
    handle: Option<JoinHandle<Result<T, String>>>,
}

/// The tasks of one Env.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    state: Mutex<State>,
    vigil: Option<PollMonitor>,
    /// How many pauses continue. Apart from the state, since every poll of every task asks.
    pauses: AtomicUsize,
}

/// An instance stands still for as long as this lives; see [`Env::pause`](crate::Env::pause).
#[must_use = "a pause ends when it is dropped"]
#[derive(Debug)]
pub struct Pause {
    tasks: Arc<Tasks>,
}

#[derive(Debug, Default)]
struct State {
    killed: bool,
    spawned: u64,
    living: BTreeMap<u64, TaskRecord>,
    waiters: Waiters,
    /// Tasks that were woken during a pause.
    held: Waiters,
}

#[derive(Debug)]
struct TaskRecord {
    name: String,
    /// Absent for the instant between entering the table and reaching the runtime.
    abort: Option<AbortHandle>,
}

/// A task's body, then its entry in the table: the fields drop in this order, so that a task counts as living until
/// its destructors have run.
struct Tracked<F> {
    body: Pin<Box<F>>,
    /// Who counts the polls, and under which name; in a simulation only.
    watched: Option<(PollMonitor, Arc<str>)>,
    entry: TaskRegistration,
}

struct TaskRegistration {
    tasks: Arc<Tasks>,
    id: u64,
    /// Where it waits for the end of a pause.
    held: Option<WaiterId>,
}

impl<T> Task<T> {
    /// Stops the task at its next await. One that has already ended keeps its outcome.
    pub fn abort(&self) {
        if let Some(handle) = &self.handle {
            handle.abort();
        }
    }

    pub(crate) fn abort_handle(&self) -> Option<AbortHandle> {
        self.handle.as_ref().map(JoinHandle::abort_handle)
    }

    /// Whether the task has ended, one way or another.
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(handle) = &mut self.handle else { return Poll::Ready(Err(TaskError::Aborted)) };
        Poll::Ready(match ready!(Pin::new(handle).poll(cx)) {
            Ok(outcome) => outcome.map_err(TaskError::Panicked),
            // A panic can still reach the runtime from a destructor.
            Err(error) => Err(match error.try_into_panic() {
                Ok(payload) => TaskError::Panicked(panics::message(payload.as_ref())),
                Err(_cancelled) => TaskError::Aborted,
            }),
        })
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("finished", &self.is_finished()).finish()
    }
}

impl Tasks {
    pub(crate) fn under(vigil: Option<PollMonitor>) -> Self {
        Tasks { vigil, ..Tasks::default() }
    }

    pub(crate) fn spawn<F>(tasks: &Arc<Tasks>, name: String, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let Some(id) = tasks.enter(name.clone()) else { return Task { handle: None } };
        let watched = tasks.vigil.clone().map(|vigil| (vigil, Arc::from(name.as_str())));
        let body = Box::pin(reporting(name, future));
        let entry = TaskRegistration { tasks: Arc::clone(tasks), id, held: None };
        let tracked = Tracked { body, watched, entry };
        let handle = tokio::spawn(tracked);
        tasks.attach(id, handle.abort_handle());
        Task { handle: Some(handle) }
    }

    pub(crate) fn open(&self) -> bool {
        !self.lock().killed
    }

    pub(crate) fn kill(&self) {
        let aborts: Vec<AbortHandle> = {
            let mut state = self.lock();
            state.killed = true;
            state.living.values().filter_map(|living| living.abort.clone()).collect()
        };
        // Outside the lock: an aborted task may be dropped here and now, and its entry takes the lock.
        for abort in aborts {
            abort.abort();
        }
    }

    pub(crate) fn pause(tasks: &Arc<Tasks>) -> Pause {
        tasks.pauses.fetch_add(1, Ordering::Relaxed);
        Pause { tasks: Arc::clone(tasks) }
    }

    pub(crate) fn paused(&self) -> bool {
        self.pauses.load(Ordering::Relaxed) > 0
    }

    /// One pause less; with the last, whoever was woken meanwhile has its turn.
    fn resume(&self) {
        if self.pauses.fetch_sub(1, Ordering::Relaxed) == 1 {
            let wakers = self.lock().held.take();
            wake_all(wakers);
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().living.values().map(|living| living.name.clone()).collect()
    }

    pub(crate) async fn ended(&self) {
        let mut wait = Wait { tasks: self, place: None };
        poll_fn(|cx| wait.poll(cx)).await;
    }

    /// A place in the table, or `None` when the gate is closed.
    fn enter(&self, name: String) -> Option<u64> {
        let mut state = self.lock();
        if state.killed {
            return None;
        }
        state.spawned += 1;
        let id = state.spawned;
        state.living.insert(id, TaskRecord { name, abort: None });
        Some(id)
    }

    fn attach(&self, id: u64, abort: AbortHandle) {
        let killed_meanwhile = {
            let mut state = self.lock();
            let killed = state.killed;
            if let Some(living) = state.living.get_mut(&id) {
                living.abort = Some(abort.clone());
            }
            killed
        };
        if killed_meanwhile {
            abort.abort();
        }
    }

    fn leave(&self, id: u64, held: Option<WaiterId>) {
        let wakers = {
            let mut state = self.lock();
            state.held.withdraw(held);
            state.living.remove(&id);
            if state.living.is_empty() { state.waiters.take() } else { Vec::new() }
        };
        wake_all(wakers);
    }

    /// No user code runs under this lock, so poison cannot mean a broken table.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The output of `future`; a panic is reported under the task's name even when nobody awaits the handle.
async fn reporting<F: Future>(name: String, future: F) -> Result<F::Output, String> {
    let outcome = catch_panic(future).await;
    if let Err(message) = &outcome {
        tracing::error!(task = name, message, "a task panicked");
    }
    outcome
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.entry.is_held(cx) {
            return Poll::Pending;
        }
        if let Some((vigil, name)) = &self.watched {
            vigil.polls(name);
        }
        self.body.as_mut().poll(cx)
    }
}

impl TaskRegistration {
    /// Whether a pause continues. If so, the task is woken when it ends.
    fn is_held(&mut self, cx: &Context<'_>) -> bool {
        if !self.tasks.paused() {
            self.held = None;
            return false;
        }
        let mut state = self.tasks.lock();
        // Once more under the lock, or a pause that ends this moment would wake everybody else.
        let held = self.tasks.paused();
        if held {
            state.held.register(&mut self.held, cx.waker());
        }
        held
    }
}

impl Drop for TaskRegistration {
    fn drop(&mut self) {
        self.tasks.leave(self.id, self.held);
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.tasks.resume();
    }
}

struct Wait<'a> {
    tasks: &'a Tasks,
    place: Option<WaiterId>,
}

impl Wait<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.tasks.lock();
        if state.living.is_empty() {
            return Poll::Ready(());
        }
        state.waiters.register(&mut self.place, cx.waker());
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.tasks.lock().waiters.withdraw(self.place);
    }
}
