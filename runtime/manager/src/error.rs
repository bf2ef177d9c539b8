//! Why a manager does not run, or stopped running.

use std::time::Duration;

use windlass_admin::AdminError;
use windlass_client::ClientError;
use windlass_controller::{BoxError, SetupError};
use windlass_election::{ElectionError, LeaseLost};
use windlass_object::ResourceKind;

use crate::config::ConfigError;
use crate::selection::UnknownController;

/// Why [`Manager::run`](crate::Manager::run) did not end with a clean shutdown.
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
    /// The operating system grants no thread for elections, which must not wait for workers.
    #[error("starting the thread of the elections: {0}")]
    NoThread(#[source] std::io::Error),
    /// A controller could not be set up or started, or a runnable could not be set up.
    #[error("setting up {controller}: {source}")]
    Setup {
        /// Which one.
        controller: &'static str,
        /// What it said.
        source: SetupError,
    },
    /// A controller's keys cannot be shared, and replicas are to share shards.
    #[error(
        "{controller} watches {kind}, which has no namespaces, in the shards that are held: watch every shard of it, or \
         switch sharding off"
    )]
    Unshareable {
        /// Which one.
        controller: &'static str,
        /// What it watches.
        kind: ResourceKind,
    },
    /// No client could be built from the cluster's configuration.
    #[error("building the client: {0}")]
    Client(#[from] ClientError),
    /// The admin server could not be started. Nothing has been asked of the cluster yet.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The API server did not answer in time.
    #[error("the API server did not become healthy within {waited:?}: {last}")]
    ApiServerUnreachable {
        /// How long it was waited for.
        waited: Duration,
        /// How the last attempt failed.
        last: String,
    },
    /// The election cannot continue: the API server calls the Lease invalid, for instance.
    #[error("leader election: {0}")]
    Election(#[from] ElectionError),
    /// The API server's coordinator wants another replica to lead. The work was ended in order and the lease given back;
    /// the process must end, since its controllers cannot start again.
    #[error(
        "leader election: {lease} was handed over to {preferred}, whom the API server's coordinator prefers"
    )]
    Preferred {
        /// Which one, as `namespace/name`.
        lease: String,
        /// To whom.
        preferred: String,
    },
    /// Another replica leads now, or may. What worked under that lease was stopped where it stood; what this process
    /// leads next to it was handed over in order. The process must end: its successor starts from a clean state.
    #[error("leader election: {lease}: {source}")]
    LeaseLost {
        /// Which one, as `namespace/name`.
        lease: String,
        /// How.
        source: LeaseLost,
    },
    /// A runnable ended with an error, or panicked.
    #[error("the runnable {name} failed: {source}")]
    Runnable {
        /// Its name.
        name: &'static str,
        /// Why.
        source: BoxError,
    },
    /// Something that runs next to the controllers did not end within the shutdown timeout and was aborted. If it needed
    /// leadership, the lease was left to expire.
    #[error("gave up after {waited:?} waiting for the runnables to end that were told to stop: {}", names.join(", "))]
    RunnablesStuck {
        /// How long they were waited for.
        waited: Duration,
        /// Which ones.
        names: Vec<&'static str>,
    },
    /// Some reconciles did not end within the shutdown timeout and were aborted. The lease was left to expire, since
    /// their last writes may still be on their way.
    #[error("gave up after {waited:?} waiting for {} to end: {}", count(stragglers.len()), stragglers.join(", "))]
    ShutdownTimeout {
        /// How long they were waited for.
        waited: Duration,
        /// What was still running, as `controller: key`.
        stragglers: Vec<String>,
    },
    /// A handler of an informer (a mapper or a predicate of a controller, perhaps) was called and did not return within
    /// the shutdown timeout. All leases were given back by then, for nothing writes there.
    #[error(
        "gave up after {waited:?} waiting for informers to end: a handler was called and does not return"
    )]
    InformersStuck {
        /// How long they were waited for.
        waited: Duration,
    },
    /// A second signal came before the first was obeyed. The lease was left to expire.
    #[error("aborted by a second signal")]
    Aborted,
}

impl ManagerError {
    /// Whether the process must end without regard for anything.
    pub(crate) fn is_lost_lease(&self) -> bool {
        matches!(self, Self::LeaseLost { .. })
    }
}

fn count(stragglers: usize) -> String {
    if stragglers == 1 { "one reconcile".to_owned() } else { format!("{stragglers} reconciles") }
}

/// Two controllers or runnables claim one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name {name:?} is registered twice: by {first} and by {second}")]
pub struct RegistryError {
    /// The name or alias that both claim.
    pub name: &'static str,
    /// Who has it.
    pub first: &'static str,
    /// Who claims it too.
    pub second: &'static str,
}

/// Why a runnable was not added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The process shuts down, or its step has ended.
    #[error("the runnable {name} comes too late: the manager is stopping")]
    Stopping {
        /// Its name.
        name: &'static str,
    },
    /// It needs the leader, and replicas that share shards have none.
    #[error(
        "the runnable {name} needs the leader, and replicas that share shards have none: let it run on every replica, or \
         switch sharding off"
    )]
    NoLeader {
        /// Its name.
        name: &'static str,
    },
    /// A runnable of this name waits or runs.
    #[error("the runnable {name} is there already: give each a name of its own")]
    NameTaken {
        /// The name.
        name: &'static str,
    },
    /// It is a controller.
    #[error("{name} is a controller: register it before the manager runs")]
    Controller {
        /// Its name.
        name: &'static str,
    },
    /// Its setup failed.
    #[error("setting up {name}: {source}")]
    Setup {
        /// Its name.
        name: &'static str,
        /// Why.
        source: SetupError,
    },
}
