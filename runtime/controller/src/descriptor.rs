//! The names of a controller or a runnable, and the replicas it runs on.

use windlass_informer::{Selection, Shards};

/// When, and on which replicas, a controller or a runnable runs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunsOn {
    /// On every replica, before caches fill. For runnables that caches depend on, such as a conversion webhook.
    BeforeCaches,
    /// On every replica, whether it leads or not.
    EveryReplica,
    /// On the leader, or on every replica without an election. The default, because two replicas must not write the
    /// same objects.
    #[default]
    Leader,
}

/// The names of a controller or a runnable, and the replicas that run it.
///
/// It is built in a constant, so every name is known before anything runs:
///
/// ```
/// # use windlass_controller::Descriptor;
/// const ENDPOINTS: Descriptor = Descriptor::new("endpoints-controller")
///     .with_aliases(&["endpoint"])
///     .with_client_name("endpoint-controller")
///     .with_queue_name("endpoint");
/// # assert_eq!(ENDPOINTS.client_name, "endpoint-controller");
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The canonical name: in `ManagerConfig::controllers`, in logs and in metrics.
    pub name: &'static str,
    /// Older names that `ManagerConfig::controllers` still accepts.
    pub aliases: &'static [&'static str],
    /// User agent, ServiceAccount and event source. Roles are bound to it, so it must not change when the controller is
    /// renamed.
    pub client_name: &'static str,
    /// The `name` label of the queue's metrics.
    pub queue_name: &'static str,
    /// Whether `*` in `ManagerConfig::controllers` enables it.
    pub enabled_by_default: bool,
    /// The replicas that run it.
    pub runs_on: RunsOn,
}

impl Descriptor {
    /// Creates a descriptor that uses `name` everywhere, has no aliases, is enabled by default and runs on the leader.
    pub const fn new(name: &'static str) -> Self {
        let (enabled_by_default, runs_on) = (true, RunsOn::Leader);
        Self { name, aliases: &[], client_name: name, queue_name: name, enabled_by_default, runs_on }
    }

    /// Adds names that `ManagerConfig::controllers` also accepts.
    pub const fn with_aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// Sets the client name for requests to the API server.
    pub const fn with_client_name(self, client_name: &'static str) -> Self {
        Self { client_name, ..self }
    }

    /// Sets the `name` label of the queue's metrics.
    pub const fn with_queue_name(self, queue_name: &'static str) -> Self {
        Self { queue_name, ..self }
    }

    /// Sets the replicas. A controller on [every replica](RunsOn::EveryReplica) starts without leadership, once its
    /// caches are synced. Its writes pass no fence, so every replica writes; with shards it receives the objects of
    /// every shard.
    pub const fn with_runs_on(self, runs_on: RunsOn) -> Self {
        Self { runs_on, ..self }
    }

    /// Returns the selection of a watch. A controller or runnable on every replica does not share its keys, so it
    /// selects the objects of every shard.
    pub(crate) fn of_shards(self, selection: Selection) -> Selection {
        match (self.runs_on, &selection.shards) {
            (RunsOn::EveryReplica, Shards::Held) => selection.of_every_shard(),
            _ => selection,
        }
    }

    /// Disables the controller unless it is named explicitly.
    pub const fn disabled_by_default(self) -> Self {
        Self { enabled_by_default: false, ..self }
    }
}
