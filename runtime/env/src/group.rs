//! Groups of tasks that are stopped together.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

use crate::watch_channel::{Receiver, channel};
use crate::{Env, Task};

/// A group of tasks that can be aborted together and awaited together. Clones refer to the same group.
///
/// Dropping a group has no effect: its [`Env`] tracks the tasks like all others.
#[derive(Clone, Debug)]
pub struct TaskGroup {
    env: Env,
    members: Arc<Mutex<Members>>,
}

#[derive(Debug, Default)]
struct Members {
    is_aborted: bool,
    running: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    abort: Option<AbortHandle>,
    /// Closed when the task has completed.
    end: Receiver<()>,
}

impl TaskGroup {
    /// Creates an empty group. Its tasks are tasks of `env`.
    pub fn new(env: Env) -> Self {
        Self { env, members: Arc::default() }
    }

    /// Spawns a task in this group. The task does not run if the group is already [aborted](Self::abort).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn<F>(&self, name: impl Into<String>, task: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let (running, end) = channel(());
        let body = async move {
            // Dropped with the task, including after an abort or a panic.
            let _running = running;
            task.await
        };
        let mut members = self.members();
        members.running.retain(|member| !member.end.is_closed());
        if members.is_aborted {
            drop(members);
            // The body is dropped here, without a poll and without the lock.
            drop(body);
            let never = self.env.spawn(name, std::future::pending());
            never.abort();
            return never;
        }
        let task = self.env.spawn(name, body);
        members.running.push(Member { abort: task.abort_handle(), end });
        task
    }

    /// Aborts every task at its next await point. Tasks that are spawned later do not run.
    pub fn abort(&self) {
        let mut members = self.members();
        members.is_aborted = true;
        members.running.iter().filter_map(|member| member.abort.as_ref()).for_each(AbortHandle::abort);
    }

    /// Waits until no task of the group runs, including tasks that its tasks spawn.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&self) {
        loop {
            let last = self.members().running.last().map(|member| member.end.clone());
            let Some(mut end) = last else { return };
            // No value is ever sent: the wait ends when the channel closes.
            let _closed = end.wait_for(|()| false).await;
            self.members().running.retain(|member| !member.end.is_closed());
        }
    }

    /// Adds the tasks of `aborted`, a group that was [aborted](Self::abort), to this group.
    pub fn adopt(&self, aborted: &TaskGroup) {
        let mut running = aborted.members().running.clone();
        let mut members = self.members();
        members.running.append(&mut running);
        members.running.retain(|member| !member.end.is_closed());
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
