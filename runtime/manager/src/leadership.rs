//! Leadership of a group, with or without an election: start and end of a term, and the renewal of its Lease.
//!
//! An elected replica runs its elector in a task on a dedicated thread ([`windlass_env::DedicatedRuntime`]). The task
//! acquires the Lease, renews it until it is stopped or the Lease is lost, and returns the elector. Therefore no worker
//! delays a renewal, not even one that never awaits, and renewal does not pause between two steps of the process.
//!
//! Not supported: standing for election again after a Lease was lost. The work under it was dropped partway, and only a
//! new process starts from a clean state.

use std::future::Future;

use futures_util::future::{self, Either};
use tokio_util::sync::CancellationToken;
use windlass_election::{ElectionError, Elector, LeaseLost, LossReason, PreviousHolder, WrittenVersions};
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_env::{DedicatedRuntime, Env, Task};

use crate::error::ManagerError;
use crate::race::first;
use crate::shards::ShardCoordinator;

/// The record of a term's writes for its successor.
#[derive(Debug)]
pub(crate) enum TermWrites {
    /// The term started no work, and did not wait for the writes of its predecessor: the record of those is
    /// forwarded.
    NotBegun,
    /// The term wrote up to these versions.
    UpTo(WrittenVersions),
    /// The outcome of a write is unknown: the successor relists its caches.
    Unknown,
}

/// The kind of leadership under which a group acts.
#[derive(Debug)]
pub(crate) enum GroupLeadership {
    /// The process is always the only replica, so the group always acts.
    Always,
    /// The group acts while it holds its Lease.
    Elected(Box<ElectedLeadership>),
    /// The group acts on the shards that it holds.
    Sharded(Box<ShardCoordinator>),
}

/// The participation in one election.
#[derive(Debug)]
pub(crate) struct ElectedLeadership {
    env: Env,
    runtime: DedicatedRuntime,
    lease: String,
    elector_task: ElectorTask,
}

#[derive(Debug)]
enum ElectorTask {
    /// No task runs the elector.
    Idle(Box<Elector>),
    /// A task runs the elector.
    Running(RunningElector),
    /// The Lease was lost; the elector is gone.
    Lost(LeaseLost),
}

#[derive(Debug)]
struct RunningElector {
    stop: CancellationToken,
    /// The previous holder, set once the term has begun.
    began: Receiver<Option<PreviousHolder>>,
    /// The identity that a coordinator prefers while this replica leads.
    preferred: Receiver<Option<String>>,
    task: Task<(Box<Elector>, ElectorExit)>,
}

/// The reason why an elector task exited.
#[derive(Debug)]
enum ElectorExit {
    /// It was stopped.
    Stopped,
    /// It cannot continue.
    Failed(ElectionError),
    /// Another replica leads, or might lead.
    Lost(LeaseLost),
}

impl GroupLeadership {
    /// Waits until this replica leads, and returns the previous holder if there is an election.
    ///
    /// # Cancel safety
    /// The replica continues to stand for election and can win; calling it again returns the result.
    pub(crate) async fn acquire(&mut self) -> Result<Option<PreviousHolder>, ManagerError> {
        match self {
            Self::Always => Ok(None),
            Self::Elected(elected) => elected.acquire().await.map(Some),
            // The previous holders are known per shard.
            Self::Sharded(shards) => {
                shards.begin();
                Ok(None)
            }
        }
    }

    /// Runs `work` while the Lease is renewed. Drops `work` when the Lease is lost; the loss is checked first if both
    /// are ready.
    pub(crate) async fn run_while_led<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, ManagerError> {
        let elected = match self {
            Self::Always => return Ok(work.await),
            Self::Sharded(shards) => return shards.during(work).await,
            Self::Elected(elected) => elected,
        };
        let ended = match first(elected.wait_exit(), work).await {
            Either::Left(ended) => ended,
            Either::Right(done) => return Ok(done),
        };
        Err(elected.failure(ended))
    }

    /// Waits until a coordinator prefers another replica, so that the work must end without a stop signal.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) fn handoff_requested(&self) -> impl Future<Output = ManagerError> + use<> {
        let elected = match self {
            Self::Elected(elected) => Some(elected),
            Self::Always | Self::Sharded(_) => None,
        };
        let standing = elected
            .and_then(|elected| elected.elector_task.preferred())
            .zip(elected.map(|it| it.lease.clone()));
        async move {
            let Some((mut preferred, lease)) = standing else { return future::pending().await };
            match preferred.wait_for(Option::is_some).await {
                Ok(Some(preferred)) => ManagerError::Preferred { lease, preferred },
                // The election has ended, which `wait_exit` reports.
                Ok(None) | Err(_) => future::pending().await,
            }
        }
    }

    /// Prepares for the end of the work: acquires nothing more; held Leases are renewed until they are released.
    pub(crate) fn stop_acquiring(&mut self) {
        if let Self::Sharded(shards) = self {
            shards.stop_acquiring();
        }
    }

    /// Releases the Lease with the written versions. Call it only after all writers have ended.
    pub(crate) async fn release(&mut self, writes: TermWrites) -> Result<(), ManagerError> {
        match self {
            Self::Always => Ok(()),
            Self::Elected(elected) => elected.release(writes).await,
            Self::Sharded(shards) => match writes {
                TermWrites::UpTo(written) => shards.release_all(Some(written)).await,
                TermWrites::NotBegun | TermWrites::Unknown => shards.release_all(None).await,
            },
        }
    }

    /// Stops standing for election without a release: a held Lease expires. Returns once no task renews it. Idempotent.
    pub(crate) async fn abandon(&mut self) {
        let elected = match self {
            Self::Always => return,
            Self::Sharded(shards) => return shards.abort().await,
            Self::Elected(elected) => elected,
        };
        let ElectorTask::Running(running) = &mut elected.elector_task else { return };
        running.task.abort();
        // The result does not matter here.
        let _ended = (&mut running.task).await;
        elected.elector_task = ElectorTask::Lost(not_held());
    }
}

impl ElectorTask {
    fn preferred(&self) -> Option<Receiver<Option<String>>> {
        match self {
            Self::Running(running) => Some(running.preferred.clone()),
            Self::Idle(_) | Self::Lost(_) => None,
        }
    }
}

impl ElectedLeadership {
    /// Returns a participation in the election of `elector` that has not started. `lease` names it in logs and errors.
    pub(crate) fn new(env: Env, runtime: DedicatedRuntime, lease: String, elector: Elector) -> Self {
        Self { env, runtime, lease, elector_task: ElectorTask::Idle(Box::new(elector)) }
    }

    async fn acquire(&mut self) -> Result<PreviousHolder, ManagerError> {
        self.start_elector();
        let mut began = match &self.elector_task {
            ElectorTask::Running(running) => running.began.clone(),
            ElectorTask::Idle(_) | ElectorTask::Lost(_) => {
                return Err(self.failure(ElectorExit::Lost(not_held())));
            }
        };
        let ended = match first(self.wait_exit(), began.wait_for(Option::is_some)).await {
            Either::Right(Ok(Some(previous_holder))) => return Ok(previous_holder),
            // The elector task has exited, so the reason is available soon.
            Either::Right(_) => self.wait_exit().await,
            Either::Left(ended) => ended,
        };
        Err(self.failure(ended))
    }

    /// Starts a task that runs the elector, unless there is one.
    fn start_elector(&mut self) {
        let elector = match std::mem::replace(&mut self.elector_task, ElectorTask::Lost(not_held())) {
            ElectorTask::Idle(elector) => elector,
            task => return self.elector_task = task,
        };
        let (stop, (began, observer)) = (CancellationToken::new(), channel(None));
        let preferred = elector.preferred();
        let serve = serve(elector, stop.clone(), began);
        let task = self.runtime.spawn(format!("election of {}", self.lease), serve);
        self.elector_task = ElectorTask::Running(RunningElector { stop, began: observer, preferred, task });
    }

    /// Waits until no task runs the elector, and returns the reason.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    async fn wait_exit(&mut self) -> ElectorExit {
        let running = match &mut self.elector_task {
            ElectorTask::Idle(_) => return ElectorExit::Stopped,
            ElectorTask::Lost(lost) => return ElectorExit::Lost(lost.clone()),
            ElectorTask::Running(running) => running,
        };
        let served = (&mut running.task).await;
        // A completed task must not be polled again.
        self.elector_task = ElectorTask::Lost(not_held());
        let ended = match served {
            Ok((elector, ended)) => {
                self.elector_task = ElectorTask::Idle(elector);
                ended
            }
            // A killed process observes nothing.
            Err(_) if !self.env.is_alive() => future::pending().await,
            // The task panicked, which has been logged. The Lease is not renewed.
            Err(_) => ElectorExit::Lost(not_held()),
        };
        if let ElectorExit::Lost(lost) = &ended {
            self.elector_task = ElectorTask::Lost(lost.clone());
        }
        ended
    }

    async fn release(&mut self, writes: TermWrites) -> Result<(), ManagerError> {
        if let ElectorTask::Running(running) = &self.elector_task {
            running.stop.cancel();
        }
        match (self.wait_exit().await, &mut self.elector_task) {
            (ElectorExit::Stopped | ElectorExit::Failed(_), ElectorTask::Idle(elector)) => {
                let written = match writes {
                    TermWrites::NotBegun => elector.previous_holder().written().cloned(),
                    TermWrites::UpTo(written) => Some(written),
                    TermWrites::Unknown => None,
                };
                Ok(elector.release(written.as_ref()).await?)
            }
            (ended, _) => Err(self.failure(ended)),
        }
    }

    /// Returns the error of the process for the end of an election.
    fn failure(&self, ended: ElectorExit) -> ManagerError {
        let lease = self.lease.clone();
        match ended {
            ElectorExit::Failed(error) => error.into(),
            ElectorExit::Lost(source) => ManagerError::LeaseLost { lease, source },
            ElectorExit::Stopped => ManagerError::LeaseLost { lease, source: not_held() },
        }
    }
}

/// Runs the elector until it is stopped or cannot continue.
async fn serve(
    mut elector: Box<Elector>,
    stop: CancellationToken,
    began: Sender<Option<PreviousHolder>>,
) -> (Box<Elector>, ElectorExit) {
    let ended = {
        let running = async {
            if let Err(error) = elector.acquire().await {
                return ElectorExit::Failed(error);
            }
            began.set(Some(elector.previous_holder().clone()));
            ElectorExit::Lost(elector.hold().await)
        };
        match first(stop.cancelled(), running).await {
            Either::Left(()) => ElectorExit::Stopped,
            Either::Right(ended) => ended,
        }
    };
    (elector, ended)
}

fn not_held() -> LeaseLost {
    LeaseLost { reason: LossReason::NotHeld }
}
