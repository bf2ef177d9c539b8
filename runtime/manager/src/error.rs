//! Errors of a manager: why it does not start, or stopped.

use std::time::Duration;

use windlass_admin::AdminError;
use windlass_client::ClientError;
use windlass_controller::{BoxError, SetupError};
use windlass_election::{ElectionError, LeaseLost};
use windlass_object::ResourceKind;

use crate::config::ConfigError;
use crate::selection::UnknownController;

/// The reason why [`Manager::run`](crate::Manager::run) did not end with a clean shutdown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Two controllers or runnables claim one name.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The configuration names a controller that is not registered.
    #[error(transparent)]
    UnknownController(#[from] UnknownController),
    /// A runnable could not be added.
    #[error(transparent)]
    Add(#[from] AddError),
    /// The operating system provides no thread for elections, which must not wait for workers.
    #[error("cannot start the election thread: {0}")]
    NoThread(#[source] std::io::Error),
    /// A controller could not be set up or started, or a runnable could not be set up.
    #[error("cannot set up {controller}: {source}")]
    Setup {
        /// The name of the controller or runnable.
        controller: &'static str,
        /// The cause.
        source: SetupError,
    },
    /// The keys of a controller cannot be divided into shards, and sharding is enabled.
    #[error(
        "cannot shard {controller}: its watch of the cluster-scoped {kind} contains only the shards of this replica; add \
         .with_selection(Selection::default().with_every_shard()) to the watch, or disable sharding"
    )]
    Unshareable {
        /// The controller.
        controller: &'static str,
        /// The watched kind.
        kind: ResourceKind,
    },
    /// No client could be built from the cluster's configuration.
    #[error("cannot create the client: {0}")]
    Client(#[from] ClientError),
    /// The admin server could not be started. No request has been sent to the cluster yet.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The API server did not answer in time.
    #[error("the API server did not report a healthy /healthz within {waited:?}: {last}")]
    ApiServerUnreachable {
        /// The time waited.
        waited: Duration,
        /// The failure of the last attempt.
        last: String,
    },
    /// The election cannot continue, for example because the API server rejects the Lease as invalid.
    #[error("leader election: {0}")]
    Election(#[from] ElectionError),
    /// The API server's coordinator prefers another replica as the leader. The work was stopped gracefully and the
    /// Lease released. The process must exit, because its controllers cannot start again.
    #[error(
        "leader election: {lease} was handed off to {preferred}, which the API server's coordinator prefers"
    )]
    Preferred {
        /// The Lease, as `namespace/name`.
        lease: String,
        /// The identity of the preferred replica.
        preferred: String,
    },
    /// Another replica leads now, or might lead. The work under that lease was aborted. The process must exit: its
    /// successor starts from a clean state.
    #[error("leader election: Lease {lease} lost: {}; restart the process", source.reason)]
    LeaseLost {
        /// The Lease, as `namespace/name`.
        lease: String,
        /// The cause of the loss.
        source: LeaseLost,
    },
    /// A runnable returned an error, or panicked.
    #[error("the runnable {name} failed: {source}")]
    Runnable {
        /// The runnable.
        name: &'static str,
        /// The cause.
        source: BoxError,
    },
    /// A runnable did not stop within the shutdown timeout and was aborted. If it required leadership, the Lease was
    /// left to expire.
    #[error(
        "runnables did not stop within {waited:?}: {}; raise ManagerConfig::shutdown_timeout, or return when \
         RunnableContext::stopped resolves",
        names.join(", ")
    )]
    RunnablesStuck {
        /// The time waited.
        waited: Duration,
        /// The runnables.
        names: Vec<&'static str>,
    },
    /// Reconciles did not finish within the shutdown timeout and were aborted. The Lease was left to expire, because
    /// their last writes can still be in flight.
    #[error(
        "{} did not stop within {waited:?}: {}; raise the shutdown timeout",
        count(stragglers.len()),
        stragglers.join(", ")
    )]
    ShutdownTimeout {
        /// The time waited.
        waited: Duration,
        /// The running reconciles, as `controller: key`.
        stragglers: Vec<String>,
    },
    /// A handler of an informer, such as a mapper or a predicate of a controller, did not return within the shutdown
    /// timeout. All Leases were released before, because handlers do not write.
    #[error(
        "informers did not stop within {waited:?}: an event handler has not returned; raise the \
         shutdown timeout, or report a bug of the controller"
    )]
    InformersStuck {
        /// The time waited.
        waited: Duration,
    },
    /// A second signal arrived before the shutdown was complete. The Lease was left to expire.
    #[error("shutdown aborted by a second signal; a held Lease expires after the lease duration")]
    Aborted,
}

impl ManagerError {
    /// Returns whether the process must stop immediately.
    pub(crate) fn is_lost_lease(&self) -> bool {
        matches!(self, Self::LeaseLost { .. })
    }
}

fn count(stragglers: usize) -> String {
    if stragglers == 1 { "one reconcile".to_owned() } else { format!("{stragglers} reconciles") }
}

/// A controller or runnable that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Another one has its name.
    #[error(
        "cannot register {second}: {first} uses its name or alias {name:?}; rename one of them with \
         Registration::with_descriptor"
    )]
    NameInUse {
        /// The name or alias of both.
        name: &'static str,
        /// The name of the first.
        first: &'static str,
        /// The name of the second.
        second: &'static str,
    },
    /// It is a part of a controller that is not registered.
    #[error("cannot register {part}: it is a part of {whole}; register {whole} first")]
    PartOfUnknown {
        /// The part.
        part: &'static str,
        /// The controller that it is a part of.
        whole: &'static str,
    },
}

/// The reason why a runnable was not added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The process is shutting down, or the step of the runnable has stopped.
    #[error("cannot add runnable {name}: the manager is stopping")]
    Stopping {
        /// The runnable.
        name: &'static str,
    },
    /// The runnable requires the leader, and replicas that share shards have none.
    #[error(
        "cannot add runnable {name}: it requires a leader, and sharded replicas have none; run it on every replica or \
         disable sharding"
    )]
    NoLeader {
        /// The runnable.
        name: &'static str,
    },
    /// A runnable of this name waits or runs.
    #[error("cannot add runnable {name}: the name is in use; choose a unique name")]
    NameTaken {
        /// The name.
        name: &'static str,
    },
    /// The registration is a controller.
    #[error("{name} is a controller: register it before the manager runs")]
    Controller {
        /// The controller.
        name: &'static str,
    },
    /// The setup of the runnable failed.
    #[error("cannot set up {name}: {source}")]
    Setup {
        /// The runnable.
        name: &'static str,
        /// The cause.
        source: SetupError,
    },
}
