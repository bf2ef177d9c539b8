//! Two-stage shutdown: the first signal drains, the second aborts.

use std::future::Future;
use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};
use windlass_env::Env;

/// Receiver of the shutdown signals of a manager.
#[derive(Clone, Debug)]
pub struct ShutdownSignals {
    stages: Stages,
    /// Stops the listener for signals of the operating system when the last clone is dropped.
    _listener: Option<Arc<DropGuard>>,
}

/// Sender of [`ShutdownSignals`].
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
    /// Sends a signal: the first drains, the second aborts, further signals have no effect.
    pub fn fire(&self) {
        self.stages.fire();
    }
}

impl ShutdownSignals {
    /// Returns signals that are sent with the trigger. Without a trigger they never arrive.
    pub fn manual() -> (ShutdownTrigger, Self) {
        let stages = Stages::default();
        (ShutdownTrigger { stages: stages.clone() }, Self { stages, _listener: None })
    }

    /// Returns the signals of the process: each SIGTERM and each SIGINT is a signal. Not for simulations, which have no
    /// operating system. The listening task ends when the last clone of the returned value is dropped.
    ///
    /// # Errors
    /// When the operating system rejects the signal handlers.
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
                tracing::info!(signal = name, "received shutdown signal");
                fired.fire();
            }
        };
        // The handle is not needed: the guard stops the task.
        drop(env.spawn("signal listener", listen));
        Ok(Self { stages, _listener: Some(guard) })
    }

    /// Resolves after the first signal.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.stages.drain.clone().cancelled_owned()
    }

    /// Resolves after the second signal.
    pub fn aborted(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.stages.abort.clone().cancelled_owned()
    }
}
