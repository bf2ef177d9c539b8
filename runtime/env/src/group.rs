//! Tasks that end together.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

use crate::watch_channel::{Receiver, channel};
use crate::{Env, Task};

/// Tasks that are aborted together and waited for together. Clones are the same group.
///
/// Dropping a group does nothing: its tasks are tracked by their [`Env`] like all others.
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
    /// Closed when the task has ended.
    end: Receiver<()>,
}

impl TaskGroup {
    /// A group without tasks, whose tasks are tasks of `env`.
    pub fn new(env: Env) -> Self {
        Self { env, members: Arc::default() }
    }

    /// Spawns a task of this group. It never runs if the group was [aborted](Self::abort).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn<F>(&self, name: impl Into<String>, task: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let (running, end) = channel(());
        let body = async move {
            // Dropped with the task, however it ends.
            let _running = running;
            task.await
        };
        let mut members = self.members();
        members.running.retain(|member| !member.end.is_closed());
        if members.is_aborted {
            drop(members);
            // The body is dropped here, unpolled and under no lock.
            drop(body);
            let never = self.env.spawn(name, std::future::pending());
            never.abort();
            return never;
        }
        let task = self.env.spawn(name, body);
        members.running.push(Member { abort: task.abort_handle(), end });
        task
    }

    /// Stops every task at its next await. None that is spawned later runs.
    pub fn abort(&self) {
        let mut members = self.members();
        members.is_aborted = true;
        members.running.iter().filter_map(|member| member.abort.as_ref()).for_each(AbortHandle::abort);
    }

    /// Waits until no task of the group runs, those included that its tasks spawn.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn ended(&self) {
        loop {
            let last = self.members().running.last().map(|member| member.end.clone());
            let Some(mut end) = last else { return };
            // Nothing is ever published: the cell closes.
            let _closed = end.wait_for(|()| false).await;
            self.members().running.retain(|member| !member.end.is_closed());
        }
    }

    /// Makes the tasks of `aborted`, a group that was [aborted](Self::abort), tasks of this group as well.
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
