//! The turn of one key: what its reconcile can do while it runs, and cannot do afterwards.
//!
//! Guarantees:
//! - Tasks of [`Context::spawn`](crate::Context::spawn) have ended before the key is settled. They are awaited when the
//!   reconcile returns, and aborted when it is dropped or panics.
//! - A write through the turn's client after the turn is over is not sent. One that is under way at that moment is
//!   dropped, and its key waits for a consistent read, as after every write of unknown outcome.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tracing::Instrument as _;
use windlass_client::{ControllerClients, DeclaredVerbs};
use windlass_env::cell::{Observer, Publisher, cell};
use windlass_env::{Env, Task, TaskAbort};

use crate::consistency::key_log::KeyLog;

/// The turn of one key.
pub(crate) struct Turn {
    clients: ControllerClients,
    declared: Arc<dyn DeclaredVerbs>,
    log: Arc<KeyLog>,
    /// Built at its first use, because most reconciles change nothing.
    client: OnceLock<kube::Client>,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    is_over: bool,
    /// Of each task: how to abort it, and the cell that its end closes.
    spawned: Vec<(TaskAbort, Observer<()>)>,
}

/// A turn that is open until this is dropped.
pub(crate) struct OpenTurn {
    turn: Arc<Turn>,
    /// Dropped when the turn is over: its client writes until then.
    open: Option<Publisher<()>>,
}

impl Turn {
    pub(crate) fn open(
        clients: &ControllerClients,
        declared: Arc<dyn DeclaredVerbs>,
        log: KeyLog,
    ) -> OpenTurn {
        let (publisher, open) = cell(());
        let turn = Turn {
            clients: clients.during(open),
            declared,
            log: Arc::new(log),
            client: OnceLock::new(),
            tasks: Mutex::default(),
        };
        OpenTurn { turn: Arc::new(turn), open: Some(publisher) }
    }

    /// Returns the client of this turn.
    pub(crate) fn client(&self) -> &kube::Client {
        let build = || self.clients.worker(Arc::clone(&self.log) as _, Some(Arc::clone(&self.declared)));
        self.client.get_or_init(build)
    }

    /// Spawns a task of this turn. It never runs if the turn is over.
    pub(crate) fn spawn<F>(&self, env: &Env, span: &tracing::Span, name: String, task: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let (running, ended) = cell(());
        let mut tasks = self.tasks();
        let task = env.spawn(
            name,
            async move {
                // Dropped with the task, however it ends.
                let _running = running;
                task.await
            }
            .instrument(span.clone()),
        );
        match tasks.is_over {
            true => task.abort(),
            false => tasks.spawned.push((task.abort_handle(), ended)),
        }
        task
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenTurn {
    pub(crate) fn turn(&self) -> Arc<Turn> {
        Arc::clone(&self.turn)
    }

    /// Waits until every task of the turn has ended, with those that a task spawns.
    pub(crate) async fn tasks_ended(&self) {
        loop {
            let last = self.turn.tasks().spawned.last().map(|(_, running)| running.clone());
            let Some(mut running) = last else { return };
            // Nothing is ever published: the cell closes when the task has ended.
            let _closed = running.wait_until(|()| false).await;
            self.turn.tasks().spawned.retain(|(_, running)| !running.is_closed());
        }
    }

    /// Ends the turn, and waits until tasks that still ran are gone.
    pub(crate) async fn end(mut self) {
        self.close();
        self.tasks_ended().await;
    }

    fn close(&mut self) {
        self.open = None;
        let mut tasks = self.turn.tasks();
        tasks.is_over = true;
        tasks.spawned.iter().for_each(|(task, _)| task.abort());
    }
}

impl Drop for OpenTurn {
    fn drop(&mut self) {
        self.close();
    }
}
