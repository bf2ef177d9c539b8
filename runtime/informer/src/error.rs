//! What can go wrong for those who use an informer. What goes wrong between informer and server is not an
//! error but a state: it is retried forever and told through [`NotSynced`] and the metrics.

use std::fmt;
use std::time::Duration;

use windlass_client::MissingPermission;
use windlass_object::ResourceKind;

use crate::budget::OverBudget;
use crate::list_watch::Selection;

/// Why a handler could not be added, or a transform not be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InformerError {
    /// The informer has been stopped and will tell nobody anything any more.
    #[error("the informer of {informer} has been shut down")]
    Stopped {
        /// Which informer.
        informer: String,
    },
    /// A handler wants to be told of everything more often than makes sense.
    #[error(
        "handler {handler:?} of the informer of {informer} cannot be resynced every {period:?}: the shortest period is \
         {shortest:?}, and Resync::Never or no period means never",
        shortest = crate::handler::Resync::MIN
    )]
    ResyncTooShort {
        /// Which informer.
        informer: String,
        /// Which handler.
        handler: String,
        /// What was asked for.
        period: Duration,
    },
    /// A transform came when objects may have been stored without it.
    #[error("the informer of {informer} has been started: set its transform before that")]
    AlreadyStarted {
        /// Which informer.
        informer: String,
    },
    /// A transform has been set, perhaps by somebody else who shares the informer.
    #[error("the informer of {informer} already has a transform: make one function that does both")]
    DuplicateTransform {
        /// Which informer.
        informer: String,
    },
}

/// Some informers have not received their initial list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct NotSynced {
    /// Those that are behind, in the order of their kinds.
    pub laggards: Vec<UnsyncedInformer>,
}

/// An informer that has not received its initial list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsyncedInformer {
    /// Of what kind.
    pub kind: ResourceKind,
    /// Which objects of that kind.
    pub selection: Selection,
    /// Why it is behind, as far as it knows.
    pub lag: UnsyncedReason,
}

/// Why an informer is behind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsyncedReason {
    /// Its factory has not been started.
    NotStarted,
    /// It was shut down first.
    Stopped,
    /// Nothing has failed so far; the list is on its way.
    Listing,
    /// What it selects does not fit into its byte budget. What it held before stays served.
    OverBudget(OverBudget),
    /// The kind is not served: its definition is not installed, or not in this version.
    Absent,
    /// It must not be read.
    Forbidden(MissingPermission),
    /// Its last attempt failed.
    Failing {
        /// With this error.
        last_error: String,
    },
}

impl fmt::Display for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} informer(s) not synced", self.laggards.len())?;
        for (i, laggard) in self.laggards.iter().enumerate() {
            write!(f, "{} {laggard}", if i == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl fmt::Display for UnsyncedInformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.kind, self.selection, self.lag)
    }
}

impl fmt::Display for UnsyncedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnsyncedReason::NotStarted => f.write_str("never started"),
            UnsyncedReason::Stopped => f.write_str("shut down"),
            UnsyncedReason::Listing => f.write_str("still listing"),
            UnsyncedReason::OverBudget(refusal) => refusal.fmt(f),
            UnsyncedReason::Absent => {
                f.write_str("not served; is its definition installed, in this version?")
            }
            UnsyncedReason::Forbidden(denial) => denial.fmt(f),
            UnsyncedReason::Failing { last_error } => write!(f, "last error: {last_error}"),
        }
    }
}
