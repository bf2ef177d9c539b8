//! Validated settings of a whole process.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use windlass_admin::{AdminConfig, AdminConfigError};
use windlass_client::{ClientOptions, ClientOptionsError};
use windlass_controller::{CacheSync, WebhookConfig};
use windlass_election::{Election, ElectionConfig, ElectionConfigError};
use windlass_sharding::{ShardsConfig, ShardsConfigError};

use crate::cache::CacheOptions;
use crate::feature_gates::{FeatureGateError, FeatureGates};
use crate::selection::ControllerSelection;

/// Minimum time for the delivery of a write, if the election permits it: TCP repeats a lost segment after 200 ms.
const MIN_FOR_NETWORK: Duration = Duration::from_secs(1);

/// Configuration of a manager. [`ManagerConfig::new`] sets the defaults, which are kube-controller-manager's unless a
/// reason is stated.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use windlass_manager::{ControllerSelection, ManagerConfig};
///
/// let mut config = ManagerConfig::new("host-1_7f3a").named("shop-operator");
/// config.controllers = ControllerSelection::parse(["*", "-disk-controller"]);
/// config.shutdown_timeout = Duration::from_secs(30);
/// config.validate()?;
/// # Ok::<(), windlass_manager::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// The name of the program: the source of its events and the `manager` label of its metrics. Default `windlass`.
    pub name: String,
    /// The identity of this replica. It must be unique per incarnation: a restarted process needs a new one.
    pub identity: String,
    /// The registered controllers that run. Default: all controllers that are enabled by default.
    pub controllers: ControllerSelection,
    /// Leader election; `None` for a process that is always the only replica. Default: elected.
    pub election: Option<ElectionConfig>,
    /// The number of shards that the replicas divide among themselves; `None` disables sharding. With sharding every
    /// replica acts on a fair share of the keys, by namespace. With one shard a single replica acts, under the Lease of
    /// that shard. Requires `election`, whose Lease name is the prefix of all Leases, and all namespaces: the objects
    /// of every namespace are counted to balance the shards. At most 256. Default: `None`.
    pub shards: Option<NonZeroU16>,
    /// The server of health, metrics and debugging endpoints, with its access rules; `None` for no server. Default
    /// `None`: the operator must choose an address.
    pub admin: Option<AdminConfig>,
    /// The server of webhooks, if the process has webhooks. Default `None`: the defaults of [`WebhookConfig`] for the
    /// name of the program.
    pub webhooks: Option<WebhookConfig>,
    /// The effective flags, which the admin server serves on `/flagz`. Must not contain secrets. Default: empty.
    pub flags: BTreeMap<String, String>,
    /// Additional sections of `/configz`, by component, such as the program's own settings. Must not contain secrets.
    /// Default: empty.
    pub configuration: BTreeMap<String, serde_json::Value>,
    /// The feature gates of this program, which are exported as metrics. Default: none.
    pub feature_gates: FeatureGates,
    /// Options of the caches.
    pub cache: CacheOptions,
    /// Limits and deadlines of requests.
    pub client: ClientOptions,
    /// Minimum delay before a controller starts. Each controller waits for a random time between this value and twice
    /// this value, so that starts are spread. Default zero.
    pub start_interval: Duration,
    /// Time for running reconciles to finish after the first signal. Zero waits indefinitely. Default 10 s.
    pub shutdown_timeout: Duration,
    /// Time that each controller waits for its caches, unless the controller sets its own limit. Default
    /// [`CacheSync::Forever`]: controllers whose caches are synced work; readiness and the log name the others and the
    /// reason; these start once a role is granted or a CRD is installed. controller-runtime's limit of two minutes
    /// would restart a process of twenty controllers because of one missing permission. With [`CacheSync::Within`] a
    /// controller without its caches ends the process with an error that names them. The limit also applies while no
    /// controller can work and the process does not stand for election.
    pub cache_sync: CacheSync,
    /// Time that the API server has to answer at start. Default 10 s.
    pub api_server_wait: Duration,
    /// Processing time of one key after which liveness fails. Default 30 min: every request has its own deadline, so
    /// only a deadlock takes that long.
    pub worker_stuck_after: Duration,
    /// Number of distinct Events that the recorder of each controller keeps, so that a repeated Event increases a count
    /// instead of creating an object. Default 4096 as upstream, about 4 MB; at least 1.
    pub event_cache_size: usize,
}

impl ManagerConfig {
    /// Returns the defaults for a replica of windlass itself with this identity. Other programs set a
    /// [`name`](Self::named).
    pub fn new(identity: impl Into<String>) -> Self {
        let identity = identity.into();
        Self {
            name: "windlass".to_owned(),
            election: Some(ElectionConfig::new(identity.clone())),
            identity,
            controllers: ControllerSelection::default(),
            shards: None,
            admin: None,
            webhooks: None,
            flags: BTreeMap::new(),
            configuration: BTreeMap::new(),
            feature_gates: FeatureGates::default(),
            cache: CacheOptions::default(),
            client: ClientOptions::default(),
            start_interval: Duration::ZERO,
            shutdown_timeout: Duration::from_secs(10),
            cache_sync: CacheSync::Forever,
            api_server_wait: Duration::from_secs(10),
            worker_stuck_after: Duration::from_secs(30 * 60),
            event_cache_size: 4096,
        }
    }

    /// Sets the name of the program, which is also the name of its Lease. Programs with the same name in one cluster
    /// compete for one Lease, and only one of them works. Every operator therefore needs its own name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        if let Some(election) = &mut self.election {
            election.lease_name.clone_from(&self.name);
        }
        self
    }

    /// Returns the configuration of the webhook server.
    pub(crate) fn webhook_config(&self) -> WebhookConfig {
        self.webhooks.clone().unwrap_or_else(|| WebhookConfig::of_process(&self.name))
    }

    /// Validates the settings that do not depend on a cluster.
    ///
    /// # Errors
    /// Returns the first violated rule.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (what, value) in [("name", &self.name), ("identity", &self.identity)] {
            if value.is_empty() {
                return Err(ConfigError::Empty { what });
            }
        }
        for (what, value) in
            [("API server wait", self.api_server_wait), ("stuck worker limit", self.worker_stuck_after)]
        {
            if value.is_zero() {
                return Err(ConfigError::Zero { what });
            }
        }
        if self.cache_sync == CacheSync::Within(Duration::ZERO) {
            return Err(ConfigError::Zero { what: "cache sync timeout" });
        }
        if self.cache.resyncs_too_often() {
            return Err(ConfigError::ResyncTooShort { period: self.cache.resync });
        }
        self.client_options().validate()?;
        self.feature_gates.validate()?;
        // The other rules do not depend on the namespace.
        if let Some(shards) = self.sharding("default")? {
            shards.validate()?;
        }
        if let Some(admin) = &self.admin {
            admin.validate()?;
        }
        self.election.as_ref().map_or(Ok(()), |election| Ok(election.validate()?))
    }
}

impl ManagerConfig {
    /// Returns the options of the clients. Requests that are sent before a fence closes take effect before a standby
    /// acts. The server has the greater part of this time: the network needs milliseconds, webhooks up to 10 s. For
    /// callers of [`Manager::with_clients`](crate::Manager::with_clients).
    pub fn client_options(&self) -> ClientOptions {
        let mut options = self.client.clone();
        if let Some(election) = &self.election {
            let allowance = election.allowance();
            let for_network = (allowance * 2 / 5).max(MIN_FOR_NETWORK).min(allowance);
            options.unacknowledged_timeout = options.unacknowledged_timeout.min(for_network);
            options.fence_allowance = allowance;
        }
        options
    }

    /// Returns the election with its namespace: the configured one, otherwise `default_namespace`.
    pub(crate) fn election(&self, default_namespace: &str) -> Option<Election> {
        self.election.clone().map(|election| election.resolve(default_namespace))
    }

    /// Returns the sharding configuration if sharding is enabled. See [`election`](Self::election) for the namespace.
    ///
    /// # Errors
    /// When sharding contradicts the election or the selected namespaces.
    pub(crate) fn sharding(&self, default_namespace: &str) -> Result<Option<ShardsConfig>, ConfigError> {
        let Some(shards) = self.shards else { return Ok(None) };
        let Some(election) = self.election(default_namespace) else {
            return Err(ConfigError::ShardsUnelected { shards: shards.get() });
        };
        if self.cache.namespaces.is_some() {
            return Err(ConfigError::ShardsOfNamespaces { shards: shards.get() });
        }
        Ok(Some(ShardsConfig { election, shards }))
    }
}

/// A rule that a [`ManagerConfig`] violates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A name is missing.
    #[error("the {what} of the manager is empty; set it")]
    Empty {
        /// The missing setting.
        what: &'static str,
    },
    /// A limit is zero, so the operation could never succeed.
    #[error("the {what} must be longer than zero")]
    Zero {
        /// The setting.
        what: &'static str,
    },
    /// The resync period is shorter than informers support.
    #[error(
        "the resync period {period:?} is too short; use at least {shortest:?}, or zero to disable resyncs",
        shortest = windlass_informer::Resync::MIN
    )]
    ResyncTooShort {
        /// The configured period.
        period: Duration,
    },
    /// The request limits are invalid.
    #[error(transparent)]
    Client(#[from] ClientOptionsError),
    /// The feature gates contradict each other.
    #[error(transparent)]
    FeatureGates(#[from] FeatureGateError),
    /// Shards are held under Leases, and leader election is disabled.
    #[error("{shards} shards require leader election, which is disabled; enable it or disable sharding")]
    ShardsUnelected {
        /// The configured number of shards.
        shards: u16,
    },
    /// Shards divide all namespaces, and the caches contain only some.
    #[error(
        "{shards} shards divide all namespaces, and `cache.namespaces` selects some; leave one of them out"
    )]
    ShardsOfNamespaces {
        /// The configured number of shards.
        shards: u16,
    },
    /// The sharding configuration is invalid.
    #[error(transparent)]
    Shards(#[from] ShardsConfigError),
    /// The admin server would be exposed without protection.
    #[error(transparent)]
    Admin(#[from] AdminConfigError),
    /// The election's settings contradict each other.
    #[error(transparent)]
    Election(#[from] ElectionConfigError),
}

#[cfg(test)]
mod tests {
    use windlass_informer::{NamespaceSet, Resync};

    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(ManagerConfig::new("me").validate(), Ok(()));
    }

    #[test]
    fn server_has_eleven_seconds_for_a_write_by_default() {
        let config = ManagerConfig::new("me");
        let (options, election) = (config.client_options(), config.election.expect("an election"));
        let shortest = election.renew_deadline - election.retry_period;
        let for_server = options.fence_allowance - options.unacknowledged_timeout;
        assert_eq!(shortest + for_server, Duration::from_secs(11));
        assert_eq!(
            election.renew_deadline + for_server + options.unacknowledged_timeout,
            election.lease_duration
        );
    }

    #[test]
    fn programs_with_distinct_names_use_distinct_leases() {
        let lease = |config: ManagerConfig| config.election.map(|election| election.lease_name);
        assert_eq!(lease(ManagerConfig::new("me")).as_deref(), Some("windlass"));
        assert_eq!(lease(ManagerConfig::new("me").named("keeper")).as_deref(), Some("keeper"));
        let alone = ManagerConfig { election: None, ..ManagerConfig::new("me") };
        assert_eq!((alone.clone().named("keeper").name.as_str(), lease(alone)), ("keeper", None));
    }

    #[test]
    fn shards_of_selected_namespaces_are_rejected() {
        let cache =
            CacheOptions { namespaces: Some(NamespaceSet::from_names(["blue"])), ..CacheOptions::default() };
        let sharded = ManagerConfig { shards: NonZeroU16::new(4), ..ManagerConfig::new("me") };
        assert_eq!(sharded.validate(), Ok(()));
        let narrow = ManagerConfig { cache, ..sharded };
        assert_eq!(narrow.validate(), Err(ConfigError::ShardsOfNamespaces { shards: 4 }));
    }

    // parity: defaults-renew-deadline-parameters
    #[test]
    fn configuration_that_can_never_work_is_rejected() {
        assert_eq!(ManagerConfig::new("").validate(), Err(ConfigError::Empty { what: "identity" }));
        let hasty = ManagerConfig { api_server_wait: Duration::ZERO, ..ManagerConfig::new("me") };
        assert_eq!(hasty.validate(), Err(ConfigError::Zero { what: "API server wait" }));
        for period in [1, 999].map(Duration::from_millis) {
            let cache = CacheOptions { resync: period, ..CacheOptions::default() };
            let restless = ManagerConfig { cache, ..ManagerConfig::new("me") };
            assert_eq!(restless.validate(), Err(ConfigError::ResyncTooShort { period }));
        }
        for resync in [Duration::ZERO, Resync::MIN] {
            let cache = CacheOptions { resync, ..CacheOptions::default() };
            assert_eq!(ManagerConfig { cache, ..ManagerConfig::new("me") }.validate(), Ok(()));
        }
        let mut unlimited = ManagerConfig::new("me");
        unlimited.client.qps = 1e-11;
        assert!(matches!(unlimited.validate(), Err(ConfigError::Client(_))));
        let mut contradictory = ManagerConfig::new("me");
        contradictory.election.as_mut().expect("elected").retry_period = Duration::ZERO;
        assert!(matches!(contradictory.validate(), Err(ConfigError::Election(_))));
    }
}
