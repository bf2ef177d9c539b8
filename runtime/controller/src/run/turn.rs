//! The turn of one key: what its reconcile can do while it runs, and cannot do afterwards.
//!
//! Guarantees:
//! - Tasks of [`Context::spawn`](crate::Context::spawn) have ended before the key is settled. They are awaited when the
//!   reconcile returns, and aborted when it is dropped or panics. A worker that is aborted waits for nothing:
//!   [`Workers::ended`](crate::host::Workers::ended) waits for the tasks of its turn.
//! - A write through the turn's client after the turn is over is not sent. One that is under way at that moment is
//!   dropped, and its key waits for a consistent read, as after every write of unknown outcome.

use std::sync::{Arc, OnceLock};

use windlass_client::{ControllerClients, DeclaredVerbs, DryRun, OpenWrites, RequestOptions, WriteLog as _};
use windlass_env::watch_channel::{Sender, channel};
use windlass_env::{Env, TaskGroup};
use windlass_object::ObjectKey;

use crate::consistency::key_log::KeyLog;

/// The turn of one key.
pub(crate) struct Turn {
    clients: ControllerClients,
    declared: Arc<dyn DeclaredVerbs>,
    log: Arc<KeyLog>,
    /// The writes of the client that are under way.
    writes: OpenWrites,
    /// Built at its first use, because most reconciles change nothing.
    client: OnceLock<kube::Client>,
    tasks: TaskGroup,
}

/// A turn that is open until this is dropped.
pub(crate) struct OpenTurn {
    turn: Arc<Turn>,
    /// Has the tasks of turns that were dropped.
    dropped: TaskGroup,
    /// Dropped when the turn is over: its client writes until then.
    open: Option<Sender<()>>,
}

impl Turn {
    pub(crate) fn open(
        env: &Env,
        clients: &ControllerClients,
        declared: Arc<dyn DeclaredVerbs>,
        log: KeyLog,
        dropped: &TaskGroup,
    ) -> OpenTurn {
        let (publisher, open) = channel(());
        let writes = OpenWrites::default();
        let turn = Turn {
            clients: clients.during(open, writes.clone()),
            writes,
            declared,
            log: Arc::new(log),
            client: OnceLock::new(),
            tasks: TaskGroup::new(env.clone()),
        };
        OpenTurn { turn: Arc::new(turn), dropped: dropped.clone(), open: Some(publisher) }
    }

    /// The same turn, with a client that sends requests with these options.
    pub(crate) fn with(&self, options: RequestOptions) -> Self {
        let clients = self.clients.with(options);
        Self {
            // The tag does not depend on how options are merged and sent, so that observers can judge that.
            clients: if options.dry_run { clients.tagged(DryRun) } else { clients },
            declared: Arc::clone(&self.declared),
            log: Arc::clone(&self.log),
            writes: self.writes.clone(),
            client: OnceLock::new(),
            tasks: self.tasks.clone(),
        }
    }

    /// Its key.
    pub(crate) fn key(&self) -> &ObjectKey {
        self.log.key()
    }

    /// The options of its client.
    pub(crate) fn options(&self) -> RequestOptions {
        self.clients.options()
    }

    /// Returns the client of this turn.
    pub(crate) fn client(&self) -> &kube::Client {
        let build = || self.clients.worker(Arc::clone(&self.log) as _, Some(Arc::clone(&self.declared)));
        self.client.get_or_init(build)
    }

    /// The tasks of this turn. None runs after it.
    pub(crate) fn tasks(&self) -> &TaskGroup {
        &self.tasks
    }
}

impl OpenTurn {
    pub(crate) fn turn(&self) -> Arc<Turn> {
        Arc::clone(&self.turn)
    }

    /// Ends the turn, and waits until tasks that still ran are gone.
    pub(crate) async fn end(mut self) {
        self.close();
        self.turn.tasks.ended().await;
    }

    fn close(&mut self) {
        if self.open.take().is_none() {
            return;
        }
        // A write of a task that is not of this turn may be dropped after the key has begun its next.
        self.turn.writes.targets().into_iter().for_each(|target| self.turn.log.ambiguous(target));
        self.turn.tasks.abort();
    }
}

impl Drop for OpenTurn {
    fn drop(&mut self) {
        self.close();
        self.dropped.adopt(&self.turn.tasks);
    }
}
