//! Leading, with or without an election: what begins a term, what ends it, and who renews meanwhile.
//!
//! A replica that is elected stands for its lease in a task of its own, put aside ([`windlass_env::Aside`]): it acquires,
//! renews until it is told to stop or the lease is lost, and hands the elector back. So no renewal waits for a worker,
//! not even for one that never awaits, and none stops between two steps of the process.
//!
//! What it refuses: to stand again for a lease that was lost. What worked under it has been dropped half-way, and only
//! a new process starts from a clean state.

use std::future::Future;

use futures_util::future::{self, Either};
use tokio_util::sync::CancellationToken;
use windlass_election::{ElectionError, Elector, LeaseLost, LossReason, Predecessor, Written};
use windlass_env::cell::{Observer, Publisher, cell};
use windlass_env::{Aside, Env, Task};

use crate::error::ManagerError;
use crate::race::first;
use crate::shards::ShardCoordinator;

/// What a term tells its successor of its writes.
#[derive(Debug)]
pub(crate) enum TermWrites {
    /// It began no work, and did not wait for the writes of its own predecessor: what is known of these is handed on.
    NotBegun,
    /// It wrote up to these versions.
    UpTo(Written),
    /// The outcome of a write is unknown: the successor lists its caches again.
    Unknown,
}

/// How a team comes to act.
#[derive(Debug)]
pub(crate) enum Leadership {
    /// It is always alone, so it always acts.
    Unopposed,
    /// It acts while it holds its lease.
    Elected(Box<Elected>),
    /// It acts on the shards that it holds.
    Sharded(Box<ShardCoordinator>),
}

/// A part in one election.
#[derive(Debug)]
pub(crate) struct Elected {
    env: Env,
    aside: Aside,
    lease: String,
    seat: Seat,
}

#[derive(Debug)]
enum Seat {
    /// Nobody stands for the lease, or not any more.
    Resting(Box<Elector>),
    /// A task does.
    Standing(Stand),
    /// It was held, and is lost; what led to it is over.
    Lost(LeaseLost),
}

#[derive(Debug)]
struct Stand {
    stop: CancellationToken,
    /// Set once the term has begun.
    began: Observer<Option<Predecessor>>,
    /// Whom a coordinator prefers, while this replica leads.
    preferred: Observer<Option<String>>,
    task: Task<(Box<Elector>, Ended)>,
}

/// Why nobody stands for a lease any more.
#[derive(Debug)]
enum Ended {
    /// As told.
    Stopped,
    /// It cannot go on.
    Failed(ElectionError),
    /// Another replica leads now, or may.
    Lost(LeaseLost),
}

impl Leadership {
    /// Waits until this replica leads, and tells who did before, if anybody is elected at all.
    ///
    /// # Cancel safety
    /// Safe: the replica goes on standing for the lease, and may win it; calling it again finds out.
    pub(crate) async fn acquire(&mut self) -> Result<Option<Predecessor>, ManagerError> {
        match self {
            Self::Unopposed => Ok(None),
            Self::Elected(elected) => elected.acquire().await.map(Some),
            // Who acted before is known of each shard.
            Self::Sharded(shards) => {
                shards.begin();
                Ok(None)
            }
        }
    }

    /// Runs `work` while the lease is being renewed. `work` is dropped where it stands when the lease is lost; that is
    /// looked at first whenever both could go on.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ManagerError> {
        let elected = match self {
            Self::Unopposed => return Ok(work.await),
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
    pub(crate) fn unwanted(&self) -> impl Future<Output = ManagerError> + use<> {
        let elected = match self {
            Self::Elected(elected) => Some(elected),
            Self::Unopposed | Self::Sharded(_) => None,
        };
        let standing =
            elected.and_then(|elected| elected.seat.preferred()).zip(elected.map(|it| it.lease.clone()));
        async move {
            let Some((mut preferred, lease)) = standing else { return future::pending().await };
            match preferred.wait_until(Option::is_some).await {
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
            Self::Unopposed => Ok(()),
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
            Self::Unopposed => return,
            Self::Sharded(shards) => return shards.abort().await,
            Self::Elected(elected) => elected,
        };
        let Seat::Standing(stand) = &mut elected.seat else { return };
        stand.task.abort();
        // How it ended is no matter here.
        let _ended = (&mut stand.task).await;
        elected.seat = Seat::Lost(not_held());
    }
}

impl Seat {
    fn preferred(&self) -> Option<Observer<Option<String>>> {
        match self {
            Self::Standing(stand) => Some(stand.preferred.clone()),
            Self::Resting(_) | Self::Lost(_) => None,
        }
    }
}

impl Elected {
    /// A part in the election of `elector`, which has not begun; `lease` is what people call it.
    pub(crate) fn new(env: Env, aside: Aside, lease: String, elector: Elector) -> Self {
        Self { env, aside, lease, seat: Seat::Resting(Box::new(elector)) }
    }

    async fn acquire(&mut self) -> Result<Predecessor, ManagerError> {
        self.stand();
        let mut began = match &self.seat {
            Seat::Standing(stand) => stand.began.clone(),
            Seat::Resting(_) | Seat::Lost(_) => return Err(self.failure(Ended::Lost(not_held()))),
        };
        let ended = match first(self.ended(), began.wait_until(Option::is_some)).await {
            Either::Right(Ok(Some(predecessor))) => return Ok(predecessor),
            // Nobody is left who could begin, so that the end is about to be known.
            Either::Right(_) => self.ended().await,
            Either::Left(ended) => ended,
        };
        Err(self.failure(ended))
    }

    /// Has a task stand for the lease, unless one does.
    fn stand(&mut self) {
        let elector = match std::mem::replace(&mut self.seat, Seat::Lost(not_held())) {
            Seat::Resting(elector) => elector,
            seat => return self.seat = seat,
        };
        let (stop, (began, observer)) = (CancellationToken::new(), cell(None));
        let preferred = elector.preferred();
        let serve = serve(elector, stop.clone(), began);
        let task = self.aside.spawn(format!("election of {}", self.lease), serve);
        self.seat = Seat::Standing(Stand { stop, began: observer, preferred, task });
    }

    /// Waits until nobody stands for the lease any more, for whatever reason.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    async fn ended(&mut self) -> Ended {
        let stand = match &mut self.seat {
            Seat::Resting(_) => return Ended::Stopped,
            Seat::Lost(lost) => return Ended::Lost(lost.clone()),
            Seat::Standing(stand) => stand,
        };
        let served = (&mut stand.task).await;
        // A task that has ended is not asked again.
        self.seat = Seat::Lost(not_held());
        let ended = match served {
            Ok((elector, ended)) => {
                self.seat = Seat::Resting(elector);
                ended
            }
            // A process that is no more learns nothing.
            Err(_) if !self.env.alive() => future::pending().await,
            // It panicked, which its task has told. Nobody renews.
            Err(_) => Ended::Lost(not_held()),
        };
        if let Ended::Lost(lost) = &ended {
            self.seat = Seat::Lost(lost.clone());
        }
        ended
    }

    async fn release(&mut self, writes: TermWrites) -> Result<(), ManagerError> {
        if let Seat::Standing(stand) = &self.seat {
            stand.stop.cancel();
        }
        match (self.ended().await, &mut self.seat) {
            (Ended::Stopped | Ended::Failed(_), Seat::Resting(elector)) => {
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
    fn failure(&self, ended: Ended) -> ManagerError {
        let lease = self.lease.clone();
        match ended {
            Ended::Failed(error) => error.into(),
            Ended::Lost(source) => ManagerError::LeaseLost { lease, source },
            Ended::Stopped => ManagerError::LeaseLost { lease, source: not_held() },
        }
    }
}

/// Stands for the lease until told to stop, or it cannot go on.
async fn serve(
    mut elector: Box<Elector>,
    stop: CancellationToken,
    began: Publisher<Option<Predecessor>>,
) -> (Box<Elector>, Ended) {
    let ended = {
        let stand = async {
            if let Err(error) = elector.acquire().await {
                return Ended::Failed(error);
            }
            began.set(Some(elector.predecessor().clone()));
            Ended::Lost(elector.hold().await)
        };
        match first(stop.cancelled(), stand).await {
            Either::Left(()) => Ended::Stopped,
            Either::Right(ended) => ended,
        }
    };
    (elector, ended)
}

fn not_held() -> LeaseLost {
    LeaseLost { reason: LossReason::NotHeld }
}
