//! Leading, with or without an election: what begins a term, what ends it, and who renews meanwhile.
//!
//! A replica that is elected stands for its lease in its own task, put aside ([`windlass_env::DedicatedRuntime`]): it acquires,
//! renews until it is told to stop or the lease is lost, and hands the elector back. So no renewal waits for a worker,
//! not even for one that never awaits, and none stops between two steps of the process.
//!
//! What it refuses: to stand again for a lease that was lost. What worked under it has been dropped half-way, and only
//! a new process starts from a clean state.

use std::future::Future;

use futures_util::future::{self, Either};
use tokio_util::sync::CancellationToken;
use windlass_election::{ElectionError, Elector, LeaseLost, LossReason, PreviousHolder, WrittenVersions};
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_env::{DedicatedRuntime, Env, Task};

use crate::error::ManagerError;
use crate::race::first;
use crate::shards::ShardCoordinator;

/// What a term tells its successor of its writes.
#[derive(Debug)]
pub(crate) enum TermWrites {
    /// It began no work, and did not wait for the writes of its own predecessor: what is known of these is handed on.
    NotBegun,
    /// It wrote up to these versions.
    UpTo(WrittenVersions),
    /// The outcome of a write is unknown: the successor lists its caches again.
    Unknown,
}

/// How a team comes to act.
#[derive(Debug)]
pub(crate) enum GroupLeadership {
    /// It is always alone, so it always acts.
    Always,
    /// It acts while it holds its lease.
    Elected(Box<ElectedLeadership>),
    /// It acts on the shards that it holds.
    Sharded(Box<ShardCoordinator>),
}

/// A part in one election.
#[derive(Debug)]
pub(crate) struct ElectedLeadership {
    env: Env,
    aside: DedicatedRuntime,
    lease: String,
    seat: ElectorTask,
}

#[derive(Debug)]
enum ElectorTask {
    /// Nobody stands for the lease, or not any more.
    Resting(Box<Elector>),
    /// A task does.
    Standing(RunningElector),
    /// It was held, and is lost; what led to it is over.
    Lost(LeaseLost),
}

#[derive(Debug)]
struct RunningElector {
    stop: CancellationToken,
    /// Set once the term has begun.
    began: Receiver<Option<PreviousHolder>>,
    /// Whom a coordinator prefers, while this replica leads.
    preferred: Receiver<Option<String>>,
    task: Task<(Box<Elector>, ElectorExit)>,
}

/// Why nobody stands for a lease any more.
#[derive(Debug)]
enum ElectorExit {
    /// As told.
    Stopped,
    /// It cannot continue.
    Failed(ElectionError),
    /// Another replica leads now, or may.
    Lost(LeaseLost),
}

impl GroupLeadership {
    /// Waits until this replica leads, and tells who did before, if anybody is elected at all.
    ///
    /// # Cancel safety
    /// Safe: the replica continues standing for the lease, and may win it; calling it again finds out.
    pub(crate) async fn acquire(&mut self) -> Result<Option<PreviousHolder>, ManagerError> {
        match self {
            Self::Always => Ok(None),
            Self::Elected(elected) => elected.acquire().await.map(Some),
            // Who acted before is known of each shard.
            Self::Sharded(shards) => {
                shards.begin();
                Ok(None)
            }
        }
    }

    /// Runs `work` while the lease is being renewed. `work` is dropped where it stands when the lease is lost; that is
    /// looked at first whenever both could continue.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ManagerError> {
        let elected = match self {
            Self::Always => return Ok(work.await),
            Self::Sharded(shards) => return shards.during(work).await,
            Self::Elected(elected) => elected,
        };
        let ended = match first(elected.ended(), work).await {
            Either::Left(ended) => ended,
            Either::Right(done) => return Ok(done),
        };
        Err(elected.failure(ended))
    }

    /// Waits until the work is to end though nobody told this process to stop: a coordinator wants another replica to lead.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) fn handoff_requested(&self) -> impl Future<Output = ManagerError> + use<> {
        let elected = match self {
            Self::Elected(elected) => Some(elected),
            Self::Always | Self::Sharded(_) => None,
        };
        let standing =
            elected.and_then(|elected| elected.seat.preferred()).zip(elected.map(|it| it.lease.clone()));
        async move {
            let Some((mut preferred, lease)) = standing else { return future::pending().await };
            match preferred.wait_for(Option::is_some).await {
                Ok(Some(preferred)) => ManagerError::Preferred { lease, preferred },
                // Nobody stands any more, which is told elsewhere.
                Ok(None) | Err(_) => future::pending().await,
            }
        }
    }

    /// The work is about to end: nothing more is acquired, and what is held is renewed until it is released.
    pub(crate) fn resign(&mut self) {
        if let Self::Sharded(shards) = self {
            shards.stop_acquiring();
        }
    }

    /// Gives the lease back, with what was written. Only after everything that writes has ended.
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

    /// Stands for the lease no more and gives nothing back: if it is held, it expires. Returns once nobody renews.
    /// Calling it again changes nothing.
    pub(crate) async fn abandon(&mut self) {
        let elected = match self {
            Self::Always => return,
            Self::Sharded(shards) => return shards.abort().await,
            Self::Elected(elected) => elected,
        };
        let ElectorTask::Standing(stand) = &mut elected.seat else { return };
        stand.task.abort();
        // How it ended is no matter here.
        let _ended = (&mut stand.task).await;
        elected.seat = ElectorTask::Lost(not_held());
    }
}

impl ElectorTask {
    fn preferred(&self) -> Option<Receiver<Option<String>>> {
        match self {
            Self::Standing(stand) => Some(stand.preferred.clone()),
            Self::Resting(_) | Self::Lost(_) => None,
        }
    }
}

impl ElectedLeadership {
    /// A part in the election of `elector`, which has not begun; `lease` is what people call it.
    pub(crate) fn new(env: Env, aside: DedicatedRuntime, lease: String, elector: Elector) -> Self {
        Self { env, aside, lease, seat: ElectorTask::Resting(Box::new(elector)) }
    }

    async fn acquire(&mut self) -> Result<PreviousHolder, ManagerError> {
        self.stand();
        let mut began = match &self.seat {
            ElectorTask::Standing(stand) => stand.began.clone(),
            ElectorTask::Resting(_) | ElectorTask::Lost(_) => {
                return Err(self.failure(ElectorExit::Lost(not_held())));
            }
        };
        let ended = match first(self.ended(), began.wait_for(Option::is_some)).await {
            Either::Right(Ok(Some(predecessor))) => return Ok(predecessor),
            // Nobody is left who could begin, so that the end is about to be known.
            Either::Right(_) => self.ended().await,
            Either::Left(ended) => ended,
        };
        Err(self.failure(ended))
    }

    /// Has a task stand for the lease, unless one does.
    fn stand(&mut self) {
        let elector = match std::mem::replace(&mut self.seat, ElectorTask::Lost(not_held())) {
            ElectorTask::Resting(elector) => elector,
            seat => return self.seat = seat,
        };
        let (stop, (began, observer)) = (CancellationToken::new(), channel(None));
        let preferred = elector.preferred();
        let serve = serve(elector, stop.clone(), began);
        let task = self.aside.spawn(format!("election of {}", self.lease), serve);
        self.seat = ElectorTask::Standing(RunningElector { stop, began: observer, preferred, task });
    }

    /// Waits until nobody stands for the lease any more, for whatever reason.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    async fn ended(&mut self) -> ElectorExit {
        let stand = match &mut self.seat {
            ElectorTask::Resting(_) => return ElectorExit::Stopped,
            ElectorTask::Lost(lost) => return ElectorExit::Lost(lost.clone()),
            ElectorTask::Standing(stand) => stand,
        };
        let served = (&mut stand.task).await;
        // A task that has ended is not asked again.
        self.seat = ElectorTask::Lost(not_held());
        let ended = match served {
            Ok((elector, ended)) => {
                self.seat = ElectorTask::Resting(elector);
                ended
            }
            // A process that is no more learns nothing.
            Err(_) if !self.env.alive() => future::pending().await,
            // It panicked, which its task has told. Nobody renews.
            Err(_) => ElectorExit::Lost(not_held()),
        };
        if let ElectorExit::Lost(lost) = &ended {
            self.seat = ElectorTask::Lost(lost.clone());
        }
        ended
    }

    async fn release(&mut self, writes: TermWrites) -> Result<(), ManagerError> {
        if let ElectorTask::Standing(stand) = &self.seat {
            stand.stop.cancel();
        }
        match (self.ended().await, &mut self.seat) {
            (ElectorExit::Stopped | ElectorExit::Failed(_), ElectorTask::Resting(elector)) => {
                let written = match writes {
                    TermWrites::NotBegun => elector.predecessor().written().cloned(),
                    TermWrites::UpTo(written) => Some(written),
                    TermWrites::Unknown => None,
                };
                Ok(elector.release(written.as_ref()).await?)
            }
            (ended, _) => Err(self.failure(ended)),
        }
    }

    /// What it means for the process.
    fn failure(&self, ended: ElectorExit) -> ManagerError {
        let lease = self.lease.clone();
        match ended {
            ElectorExit::Failed(error) => error.into(),
            ElectorExit::Lost(source) => ManagerError::LeaseLost { lease, source },
            ElectorExit::Stopped => ManagerError::LeaseLost { lease, source: not_held() },
        }
    }
}

/// Stands for the lease until told to stop, or it cannot continue.
async fn serve(
    mut elector: Box<Elector>,
    stop: CancellationToken,
    began: Sender<Option<PreviousHolder>>,
) -> (Box<Elector>, ElectorExit) {
    let ended = {
        let stand = async {
            if let Err(error) = elector.acquire().await {
                return ElectorExit::Failed(error);
            }
            began.set(Some(elector.predecessor().clone()));
            ElectorExit::Lost(elector.hold().await)
        };
        match first(stop.cancelled(), stand).await {
            Either::Left(()) => ElectorExit::Stopped,
            Either::Right(ended) => ended,
        }
    };
    (elector, ended)
}

fn not_held() -> LeaseLost {
    LeaseLost { reason: LossReason::NotHeld }
}
