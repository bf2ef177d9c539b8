//! Two-stage shutdown: the first signal drains, the second aborts.

use std::future::Future;
use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};
use windlass_env::Env;

/// Where a manager hears that it should stop.
#[derive(Clone, Debug)]
pub struct ShutdownSignals {
    stages: Stages,
    /// Ends the listener for the operating system's signals when nobody listens any more.
    _listener: Option<Arc<DropGuard>>,
}

/// The other end of [`ShutdownSignals`].
#[derive(Clone, Debug)]
pub struct ShutdownTrigger {
    stages: Stages,
}

#[derive(Clone, Debug, Default)]
struct Stages {
    drain: CancellationToken,
    abort: CancellationToken,
}

impl Stages {
    fn fire(&self) {
        if self.drain.is_cancelled() {
            self.abort.cancel();
        } else {
            self.drain.cancel();
        }
    }
}

impl ShutdownTrigger {
    /// Gives a signal: the first drains, the second aborts, more change nothing.
    pub fn fire(&self) {
        self.stages.fire();
    }
}

impl ShutdownSignals {
    /// Signals that are given by hand. Without a trigger left they never come.
    pub fn manual() -> (ShutdownTrigger, Self) {
        let stages = Stages::default();
        (ShutdownTrigger { stages: stages.clone() }, Self { stages, _listener: None })
    }

    /// The process's own: each SIGTERM and each SIGINT is a signal. For a real process only: a simulation has no
    /// operating system. The listening task ends with the last clone of what this returns.
    ///
    /// # Errors
    /// When the operating system refuses the handlers.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled.
    pub fn from_process(env: &Env) -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stages = Stages::default();
        let unheard = CancellationToken::new();
        let guard = Arc::new(unheard.clone().drop_guard());
        let fired = stages.clone();
        let listen = async move {
            loop {
                let name = tokio::select! {
                    biased;
                    () = unheard.cancelled() => return,
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                tracing::info!(signal = name, "a signal arrived");
                fired.fire();
            }
        };
        // The handle is not needed: the guard ends the task.
        drop(env.spawn("signal listener", listen));
        Ok(Self { stages, _listener: Some(guard) })
    }

    /// Resolves when the first signal has been given.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.stages.drain.clone().cancelled_owned()
    }

    /// Resolves when the second signal has been given.
    pub fn aborted(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.stages.abort.clone().cancelled_owned()
    }
}
