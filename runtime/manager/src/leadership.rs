//! Leading, with or without an election.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{self, Either};
use windlass_election::{Elector, LeaseLost, Predecessor, Written};

use crate::error::ManagerError;

/// How this replica comes to act.
pub(crate) enum Leadership {
    /// It is always alone, so it always acts.
    Unopposed,
    /// It acts while it holds the lease.
    Elected(Box<Elector>),
}

impl Leadership {
    /// Waits until this replica leads.
    pub(crate) async fn acquire(&mut self) -> Result<(), ManagerError> {
        match self {
            Self::Unopposed => Ok(()),
            Self::Elected(elector) => Ok(elector.acquire().await?),
        }
    }

    /// Runs `work` while the lease is being renewed beside it. `work` is dropped where it stands when the lease is
    /// lost; that is looked at first whenever both could go on.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, LeaseLost> {
        let elector = match self {
            Self::Unopposed => return Ok(work.await),
            Self::Elected(elector) => elector,
        };
        match future::select(pin!(elector.hold()), pin!(work)).await {
            Either::Left((lost, _)) => Err(lost),
            Either::Right((done, _)) => Ok(done),
        }
    }

    /// Who led before, if this replica was elected.
    pub(crate) fn predecessor(&self) -> Option<Predecessor> {
        match self {
            Self::Unopposed => None,
            Self::Elected(elector) => Some(elector.predecessor().clone()),
        }
    }

    /// Gives the lease back, with what was written; `None` if nothing was begun. Only after everything that writes has
    /// ended.
    pub(crate) async fn release(&mut self, written: Option<&Written>) -> Result<(), ManagerError> {
        match self {
            Self::Unopposed => Ok(()),
            Self::Elected(elector) => Ok(elector.release(written).await?),
        }
    }
}
