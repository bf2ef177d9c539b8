//! The controllers of every replica. They work whether this replica leads or not.
//!
//! Guarantees:
//! - They start at the step of the runnables of every replica, after waiting at most 30 s for all caches. From then on
//!   each waits for its own caches, and delays neither the election nor another controller.
//! - They stop dequeuing keys when the process stops, and have stopped before these runnables do. Running reconciles
//!   finish within the shutdown timeout.
//! - Their writes pass no fence. A lost lease affects them only because it ends the process.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use tokio::sync::SetOnce;
use tokio_util::sync::CancellationToken;
use windlass_env::{Env, Task};

use crate::controllers::Controllers;
use crate::error::ManagerError;
use crate::race::first;
use crate::runnables::Runnables;

/// The controllers of every replica.
pub(crate) struct ReplicaControllers {
    env: Env,
    state: State,
}

enum State {
    Waiting(Box<Controllers>),
    Working(Work),
    Ended,
}

/// The task of these controllers.
struct Work {
    signals: Signals,
    task: Task<Result<(), ManagerError>>,
}

#[derive(Clone, Default)]
struct Signals {
    /// Workers stop dequeuing keys, and running reconciles finish within this time.
    stop: Arc<SetOnce<Duration>>,
    /// All tasks end at their next await.
    abort: CancellationToken,
}

impl ReplicaControllers {
    pub(crate) fn new(env: Env, controllers: Controllers) -> Self {
        Self { env, state: State::Waiting(Box::new(controllers)) }
    }

    /// Starts them in a task. A controller that cannot start is reported as a failure of `runnables`.
    pub(crate) fn start(&mut self, runnables: Runnables) {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Waiting(controllers) if !controllers.is_empty() => {
                let signals = Signals::default();
                let work = work(controllers, signals.clone(), runnables);
                let task = self.env.spawn("controllers of every replica", work);
                self.state = State::Working(Work { signals, task });
            }
            state => self.state = state,
        }
    }

    /// Stops dequeuing keys, and stops the controllers `within` this time.
    pub(crate) fn begin_stop(&self, within: Duration) {
        if let State::Working(Work { signals, .. }) = &self.state {
            // The first signal counts.
            let _sent_before = signals.stop.set(within);
        }
    }

    /// Stops them, and waits for running reconciles.
    ///
    /// # Errors
    /// Returns the reconciles that had to be aborted.
    ///
    /// # Cancel safety
    /// The stop signal has been sent by then; calling it again waits for the rest.
    pub(crate) async fn stop(&mut self, within: Duration) -> Result<(), ManagerError> {
        self.begin_stop(within);
        let State::Working(Work { task, .. }) = &mut self.state else { return Ok(()) };
        let ended = task.await;
        self.state = State::Ended;
        // A panic has been logged under the name of the task.
        ended.unwrap_or(Ok(()))
    }

    /// Aborts all tasks at their next await.
    pub(crate) async fn abort(&mut self) {
        if let State::Working(Work { signals, task }) = &mut self.state {
            signals.abort.cancel();
            let _ended = task.await;
            self.state = State::Ended;
        }
    }

    /// Stops the remaining tasks of controllers that never started.
    pub(crate) fn stop_unstarted(&self) {
        if let State::Waiting(controllers) = &self.state {
            controllers.stop_unstarted();
        }
    }
}

async fn work(
    mut controllers: Box<Controllers>,
    signals: Signals,
    runnables: Runnables,
) -> Result<(), ManagerError> {
    let abort = signals.abort.clone();
    match first(abort.cancelled(), work_and_drain(&mut controllers, &signals, &runnables)).await {
        Either::Left(()) => {
            controllers.abort().await;
            Ok(())
        }
        Either::Right(drained) => drained,
    }
}

async fn work_and_drain(
    controllers: &mut Controllers,
    signals: &Signals,
    runnables: &Runnables,
) -> Result<(), ManagerError> {
    match first(signals.stop.wait(), controllers.start(None)).await {
        Either::Left(_) | Either::Right(Ok(())) => {}
        Either::Right(Err(failure)) => runnables.fail(failure),
    }
    let within = *signals.stop.wait().await;
    controllers.drain(within).await
}
