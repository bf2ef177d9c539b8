//! Named tasks of an Env, and their shutdown.

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

/// The reason why a task has no output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The task panicked with this message.
    #[error("the task panicked: {0}")]
    Panicked(String),
    /// The task was aborted, or its Env was killed before the task could run.
    #[error("the task was aborted")]
    Aborted,
}

/// A handle to a spawned task, and a future of its result. Dropping the handle neither stops the task nor ends its
/// tracking; a panic is still logged with the task's name.
pub struct Task<T> {
    handle: Option<JoinHandle<Result<T, String>>>,
}

/// The tasks of one Env.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    state: Mutex<State>,
    poll_monitor: Option<PollMonitor>,
    /// Number of active pauses. Not part of the state, because every poll of every task reads it.
    pauses: AtomicUsize,
}

/// Keeps an instance paused until it is dropped; see [`Env::pause`](crate::Env::pause).
#[must_use = "a pause ends when it is dropped"]
#[derive(Debug)]
pub struct Pause {
    tasks: Arc<Tasks>,
}

#[derive(Debug, Default)]
struct State {
    killed: bool,
    spawned: u64,
    records: BTreeMap<u64, TaskRecord>,
    waiters: Waiters,
    /// Tasks that were woken during a pause.
    held: Waiters,
}

#[derive(Debug)]
struct TaskRecord {
    name: String,
    /// `None` until the task is spawned in the runtime.
    abort: Option<AbortHandle>,
}

/// The body of a task, then its registration. Fields drop in this order, so that the task is tracked until its
/// destructors have run.
struct Tracked<F> {
    body: Pin<Box<F>>,
    /// The monitor that counts the polls, and the task name for it; only in a simulation.
    watched: Option<(PollMonitor, Arc<str>)>,
    entry: TaskRegistration,
}

struct TaskRegistration {
    tasks: Arc<Tasks>,
    id: u64,
    /// The position in the list of tasks that wait for the end of a pause.
    held: Option<WaiterId>,
}

impl<T> Task<T> {
    /// Aborts the task at its next await point. A task that has already completed keeps its result.
    pub fn abort(&self) {
        if let Some(handle) = &self.handle {
            handle.abort();
        }
    }

    pub(crate) fn abort_handle(&self) -> Option<AbortHandle> {
        self.handle.as_ref().map(JoinHandle::abort_handle)
    }

    /// Returns whether the task has completed, panicked or been aborted.
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
            // A panic in a destructor can still reach the runtime.
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
    pub(crate) fn under(poll_monitor: Option<PollMonitor>) -> Self {
        Tasks { poll_monitor, ..Tasks::default() }
    }

    pub(crate) fn spawn<F>(tasks: &Arc<Tasks>, name: String, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let Some(id) = tasks.enter(name.clone()) else { return Task { handle: None } };
        let watched = tasks.poll_monitor.clone().map(|poll_monitor| (poll_monitor, Arc::from(name.as_str())));
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
            state.records.values().filter_map(|record| record.abort.clone()).collect()
        };
        // Without the lock: an aborted task can be dropped immediately, and its registration takes the lock.
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

    /// Ends one pause. After the last pause, tasks woken during it are polled.
    fn resume(&self) {
        if self.pauses.fetch_sub(1, Ordering::Relaxed) == 1 {
            let wakers = self.lock().held.take();
            wake_all(wakers);
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().records.values().map(|record| record.name.clone()).collect()
    }

    pub(crate) async fn ended(&self) {
        let mut wait = Wait { tasks: self, waiter_id: None };
        poll_fn(|cx| wait.poll(cx)).await;
    }

    /// Registers a task and returns its number; `None` after the Env was killed.
    fn enter(&self, name: String) -> Option<u64> {
        let mut state = self.lock();
        if state.killed {
            return None;
        }
        state.spawned += 1;
        let id = state.spawned;
        state.records.insert(id, TaskRecord { name, abort: None });
        Some(id)
    }

    fn attach(&self, id: u64, abort: AbortHandle) {
        let killed_meanwhile = {
            let mut state = self.lock();
            let killed = state.killed;
            if let Some(record) = state.records.get_mut(&id) {
                record.abort = Some(abort.clone());
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
            state.records.remove(&id);
            if state.records.is_empty() { state.waiters.take() } else { Vec::new() }
        };
        wake_all(wakers);
    }

    /// Ignores poisoning: no user code runs under this lock, so the table is always consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the output of `future`. A panic is logged with the task's name even if the handle is not awaited.
async fn reporting<F: Future>(name: String, future: F) -> Result<F::Output, String> {
    let outcome = catch_panic(future).await;
    if let Err(message) = &outcome {
        tracing::error!(task = name, message, "task panicked");
    }
    outcome
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.entry.is_held(cx) {
            return Poll::Pending;
        }
        if let Some((poll_monitor, name)) = &self.watched {
            poll_monitor.polls(name);
        }
        self.body.as_mut().poll(cx)
    }
}

impl TaskRegistration {
    /// Returns whether a pause is active. If so, the task is woken when it ends.
    fn is_held(&mut self, cx: &Context<'_>) -> bool {
        if !self.tasks.paused() {
            self.held = None;
            return false;
        }
        let mut state = self.tasks.lock();
        // Check again under the lock: a pause that ends now has already taken the wakers.
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
    waiter_id: Option<WaiterId>,
}

impl Wait<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.tasks.lock();
        if state.records.is_empty() {
            return Poll::Ready(());
        }
        state.waiters.register(&mut self.waiter_id, cx.waker());
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.tasks.lock().waiters.withdraw(self.waiter_id);
    }
}
