//! The scope of one reconcile: its client and its tasks, which end with it.
//!
//! Guarantees:
//! - Tasks of [`Context::spawn`](crate::Context::spawn) have ended before the key is settled. They are awaited when the
//!   reconcile returns, and aborted when it is dropped or panics. An aborted worker does not wait:
//!   [`Workers::ended`](crate::host::Workers::ended) waits for the tasks of its reconcile.
//! - A write through the client after the end of the reconcile is not sent. A write in flight at that moment is
//!   dropped, and its key waits for a consistent read, as after every write of unknown outcome.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use windlass_client::{ControllerClients, DeclaredVerbs, DryRun, OpenWrites, RequestOptions, WriteLog as _};
use windlass_env::watch_channel::{Sender, channel};
use windlass_env::{Env, TaskGroup};
use windlass_object::ObjectKey;

use crate::consistency::key_log::KeyLog;

/// The scope of one reconcile.
pub(crate) struct ReconcileScope {
    clients: ControllerClients,
    declared: Arc<dyn DeclaredVerbs>,
    log: Arc<KeyLog>,
    /// The client's writes in flight.
    writes: OpenWrites,
    /// Built at its first use, because most reconciles change nothing.
    client: OnceLock<kube::Client>,
    tasks: TaskGroup,
    /// The rest of the key that the reconcile requested, in nanoseconds.
    rest: Arc<AtomicU64>,
}

/// A scope that is open until this is dropped.
pub(crate) struct OpenReconcileScope {
    scope: Arc<ReconcileScope>,
    /// The tasks of reconciles that were dropped.
    dropped: TaskGroup,
    /// Dropped at the end of the reconcile, after which its client no longer writes.
    open: Option<Sender<()>>,
}

impl ReconcileScope {
    pub(crate) fn open(
        env: &Env,
        clients: &ControllerClients,
        declared: Arc<dyn DeclaredVerbs>,
        log: KeyLog,
        dropped: &TaskGroup,
    ) -> OpenReconcileScope {
        let (publisher, open) = channel(());
        let writes = OpenWrites::default();
        let scope = ReconcileScope {
            clients: clients.with_scope(open, writes.clone()),
            writes,
            declared,
            log: Arc::new(log),
            client: OnceLock::new(),
            tasks: TaskGroup::new(env.clone()),
            rest: Arc::default(),
        };
        OpenReconcileScope { scope: Arc::new(scope), dropped: dropped.clone(), open: Some(publisher) }
    }

    /// Returns the scope with a client that sends requests with these options.
    pub(crate) fn with(&self, options: RequestOptions) -> Self {
        let clients = self.clients.with(options);
        Self {
            // The tag does not depend on how options are merged and sent, so that test observers can verify them.
            clients: if options.dry_run { clients.tagged(DryRun) } else { clients },
            declared: Arc::clone(&self.declared),
            log: Arc::clone(&self.log),
            writes: self.writes.clone(),
            client: OnceLock::new(),
            tasks: self.tasks.clone(),
            rest: Arc::clone(&self.rest),
        }
    }

    /// Sets the minimum rest of the key, unless a longer one is set.
    pub(crate) fn rest_at_least(&self, length: Duration) {
        self.rest.fetch_max(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the minimum rest of the key.
    pub(crate) fn minimum_rest(&self) -> Duration {
        Duration::from_nanos(self.rest.load(Ordering::Relaxed))
    }

    /// Returns its key.
    pub(crate) fn key(&self) -> &ObjectKey {
        self.log.key()
    }

    /// Returns the options of its client.
    pub(crate) fn options(&self) -> RequestOptions {
        self.clients.options()
    }

    /// Returns the client of this reconcile.
    pub(crate) fn client(&self) -> &kube::Client {
        let build = || self.clients.worker(Arc::clone(&self.log) as _, Some(Arc::clone(&self.declared)));
        self.client.get_or_init(build)
    }

    /// Returns the tasks of this reconcile. None runs after it.
    pub(crate) fn tasks(&self) -> &TaskGroup {
        &self.tasks
    }
}

impl OpenReconcileScope {
    pub(crate) fn scope(&self) -> Arc<ReconcileScope> {
        Arc::clone(&self.scope)
    }

    /// Closes the scope, and waits until its tasks have ended.
    pub(crate) async fn end(mut self) {
        self.close();
        self.scope.tasks.ended().await;
    }

    fn close(&mut self) {
        if self.open.take().is_none() {
            return;
        }
        // A write of a task outside of this reconcile can be dropped after the next reconcile of the key has begun.
        let dropped = self.scope.writes.dropped(self.scope.log.env().now());
        dropped.into_iter().for_each(|(target, settled_at)| self.scope.log.ambiguous(target, settled_at));
        self.scope.tasks.abort();
    }
}

impl Drop for OpenReconcileScope {
    fn drop(&mut self) {
        self.close();
        self.dropped.adopt(&self.scope.tasks);
    }
}
