//! The names of a controller or a runnable, and the replicas it runs on.

use windlass_client::RateFactors;
use windlass_informer::{Selection, ShardSelection};
use windlass_object::shard;
use windlass_sharding::KeyPosition;

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

/// The source of the Kubernetes Events that a controller records: `source.component` and `reportingComponent`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventSource {
    /// The client name. The default.
    #[default]
    ClientName,
    /// This name. Upstream has controllers whose Events and requests have different names.
    Named(&'static str),
    /// The controller records no Events: its role has no rule for them, and a recorded Event is discarded.
    NoEvents,
}

/// The distribution of a controller's keys if the replicas divide the keys among themselves.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeySharding {
    /// Each key belongs to the shard of its namespace or, without a namespace, of its name. The default.
    #[default]
    ByKey,
    /// One shard, and therefore one replica at a time, has all keys. For controllers whose decisions depend on the
    /// whole cluster, such as a count of all nodes.
    OneShard,
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
    /// User agent and ServiceAccount. Roles are bound to it, so it must not change when the controller is renamed.
    pub client_name: &'static str,
    /// The source of the Events that it records.
    pub events: EventSource,
    /// Whether all its Events are about objects with a namespace.
    pub has_namespaced_events: bool,
    /// The `name` label of the queue's metrics.
    pub queue_name: &'static str,
    /// Whether `*` in `ManagerConfig::controllers` enables it.
    pub enabled_by_default: bool,
    /// The replicas that run it.
    pub runs_on: RunsOn,
    /// The distribution of its keys over shards.
    pub sharding: KeySharding,
    /// The controller that this one is a part of.
    pub part_of: Option<&'static str>,
    /// The factors of the rate limit of its requests.
    pub rate: RateFactors,
}

impl Descriptor {
    /// Creates a descriptor that uses `name` everywhere, has no aliases, is enabled by default and runs on the leader.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            aliases: &[],
            client_name: name,
            events: EventSource::ClientName,
            has_namespaced_events: false,
            queue_name: name,
            enabled_by_default: true,
            runs_on: RunsOn::Leader,
            sharding: KeySharding::ByKey,
            part_of: None,
            rate: RateFactors::ONE,
        }
    }

    /// Returns the descriptor of a part: a controller with its own keys, queue and workers that is enabled and disabled
    /// together with this one. A part of a part is a part of the whole. It has the client name, and therefore the role
    /// and the rate limit, of this one.
    ///
    /// Upstream has controllers with several queues. Each queue is a part. [`Setup::shared`](crate::Setup::shared)
    /// returns values that all parts use.
    ///
    /// ```
    /// # use windlass_controller::Descriptor;
    /// const JOBS: Descriptor = Descriptor::new("job-controller").with_queue_name("job");
    /// const ORPHANS: Descriptor = JOBS.part("job-controller-orphans").with_queue_name("job_orphan_pod");
    /// # assert_eq!((ORPHANS.client_name, ORPHANS.part_of), ("job-controller", Some("job-controller")));
    /// ```
    pub const fn part(self, name: &'static str) -> Self {
        let whole = match self.part_of {
            Some(whole) => whole,
            None => self.name,
        };
        Self { name, aliases: &[], queue_name: name, part_of: Some(whole), ..self }
    }

    /// Multiplies the rate limit of its requests. Upstream does this for controllers that send several requests for
    /// each object. Controllers with one client name share one limit, and must have the same factors.
    pub const fn with_rate_factors(self, rate: RateFactors) -> Self {
        Self { rate, ..self }
    }

    /// Adds names that `ManagerConfig::controllers` also accepts.
    pub const fn with_aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// Sets the client name for requests to the API server.
    pub const fn with_client_name(self, client_name: &'static str) -> Self {
        Self { client_name, ..self }
    }

    /// Sets the source of the Events, if it differs from the client name.
    pub const fn with_event_source(self, source: &'static str) -> Self {
        Self { events: EventSource::Named(source), ..self }
    }

    /// Declares that the controller records no Events.
    pub const fn without_events(self) -> Self {
        Self { events: EventSource::NoEvents, ..self }
    }

    /// Declares that the controller records no Events about cluster-scoped objects. Such Events are in the namespace
    /// `default`, so the controller needs no role there if the process is limited to other namespaces.
    pub const fn with_namespaced_events(self) -> Self {
        Self { has_namespaced_events: true, ..self }
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

    /// Keeps all keys in one shard, so that one replica at a time reconciles them. With shards its caches contain the
    /// objects of every shard on every replica.
    pub const fn on_one_shard(self) -> Self {
        Self { sharding: KeySharding::OneShard, ..self }
    }

    /// Returns the name in the source of Events; `None` if the controller records none.
    pub const fn event_source(&self) -> Option<&'static str> {
        match self.events {
            EventSource::ClientName => Some(self.client_name),
            EventSource::Named(source) => Some(source),
            EventSource::NoEvents => None,
        }
    }

    /// Returns the position of its keys on the hash ring. Controllers on one shard are spread over the ring by name.
    pub const fn key_position(&self) -> KeyPosition {
        match self.sharding {
            KeySharding::ByKey => KeyPosition::OfKey,
            KeySharding::OneShard => KeyPosition::Fixed(shard::hash(self.name)),
        }
    }

    /// Returns the selection of a watch. A controller that does not divide its keys selects the objects of every shard.
    pub(crate) fn of_shards(self, selection: Selection) -> Selection {
        let is_undivided = self.runs_on == RunsOn::EveryReplica || self.sharding == KeySharding::OneShard;
        match selection.shards {
            ShardSelection::Held if is_undivided => selection.with_every_shard(),
            _ => selection,
        }
    }

    /// Disables the controller unless it is named explicitly.
    pub const fn disabled_by_default(self) -> Self {
        Self { enabled_by_default: false, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_source_is_the_client_name_unless_it_is_set() {
        const PLAIN: Descriptor =
            Descriptor::new("daemonset-controller").with_client_name("daemon-set-controller");
        assert_eq!(PLAIN.event_source(), Some("daemon-set-controller"));
        let named = PLAIN.with_event_source("daemonset-controller");
        assert_eq!(
            (named.event_source(), named.client_name),
            (Some("daemonset-controller"), "daemon-set-controller")
        );
        assert_eq!(PLAIN.without_events().event_source(), None);
    }

    #[test]
    fn controller_on_one_shard_watches_every_shard() {
        const DIVIDED: Descriptor = Descriptor::new("pods");
        assert_eq!(DIVIDED.of_shards(Selection::default()).shards, ShardSelection::Held);
        assert_eq!(DIVIDED.key_position(), KeyPosition::OfKey);
        let undivided = DIVIDED.on_one_shard();
        assert_eq!(undivided.of_shards(Selection::default()).shards, ShardSelection::Every);
        assert_eq!(undivided.key_position(), KeyPosition::Fixed(shard::hash("pods")));
    }
}
