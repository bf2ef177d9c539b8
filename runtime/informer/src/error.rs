//! Errors for users of informers. A failure between informer and server is a state and not an error: the informer
//! retries it indefinitely and reports it through [`NotSynced`] and the metrics.

use std::fmt;
use std::time::Duration;

use windlass_client::MissingPermission;
use windlass_object::ResourceKind;

use crate::budget::OverBudget;
use crate::list_watch::Selection;

/// An error when adding a handler or setting a transform.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InformerError {
    /// The informer was stopped and sends no further events.
    #[error(
        "cannot add a handler: the informer of {informer} has stopped; request the informer from its factory again"
    )]
    Stopped {
        /// The name of the informer.
        informer: String,
    },
    /// The resync period of a handler is too short.
    #[error(
        "cannot resync handler {handler:?} of the informer of {informer} every {period:?}: the minimum is \
         {shortest:?}; use Resync::Never to disable resyncs",
        shortest = crate::handler::Resync::MIN
    )]
    ResyncTooShort {
        /// The name of the informer.
        informer: String,
        /// The name of the handler.
        handler: String,
        /// The requested period.
        period: Duration,
    },
    /// The informer was started before its transform was set; objects might be stored without it.
    #[error(
        "cannot set a transform on the informer of {informer}: it has been started; set it before the start"
    )]
    AlreadyStarted {
        /// The name of the informer.
        informer: String,
    },
    /// The informer has a transform already, perhaps set by another user of the informer.
    #[error(
        "cannot set a transform on the informer of {informer}: it has one already; combine both functions"
    )]
    DuplicateTransform {
        /// The name of the informer.
        informer: String,
    },
}

/// Some informers have not received their initial list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct NotSynced {
    /// The unsynced informers, in the order of their kinds.
    pub unsynced: Vec<UnsyncedInformer>,
}

/// An informer that has not received its initial list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsyncedInformer {
    /// The kind of the objects.
    pub kind: ResourceKind,
    /// The selection of the informer within the kind.
    pub selection: Selection,
    /// The reason, as far as the informer knows.
    pub reason: UnsyncedReason,
}

/// The reason why an informer is not synced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsyncedReason {
    /// Its factory has not been started.
    NotStarted,
    /// It was stopped before it was synced.
    Stopped,
    /// The initial list is in progress, without a failure so far.
    Listing,
    /// The selected objects exceed its byte budget. The previous objects remain served.
    OverBudget(OverBudget),
    /// The kind is not served: its CRD is not installed, or not in this version.
    Absent,
    /// The client is not permitted to read the kind.
    Forbidden(MissingPermission),
    /// Its last attempt failed.
    Failing {
        /// The last error.
        last_error: String,
    },
}

impl fmt::Display for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} informer(s) not synced", self.unsynced.len())?;
        for (i, unsynced) in self.unsynced.iter().enumerate() {
            write!(f, "{} {unsynced}", if i == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl fmt::Display for UnsyncedInformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.kind, self.selection, self.reason)
    }
}

impl fmt::Display for UnsyncedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnsyncedReason::NotStarted => f.write_str("never started"),
            UnsyncedReason::Stopped => f.write_str("stopped"),
            UnsyncedReason::Listing => f.write_str("still listing"),
            UnsyncedReason::OverBudget(refusal) => refusal.fmt(f),
            UnsyncedReason::Absent => {
                f.write_str("not served; check that its CRD is installed in this version")
            }
            UnsyncedReason::Forbidden(denial) => denial.fmt(f),
            UnsyncedReason::Failing { last_error } => write!(f, "last error: {last_error}"),
        }
    }
}
