//! Validated settings of a whole process.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use windlass_admin::{AdminConfig, AdminConfigError};
use windlass_client::{ClientOptions, ClientOptionsError};
use windlass_controller::CacheSync;
use windlass_election::{Election, ElectionConfig, ElectionConfigError};
use windlass_sharding::{ShardsConfig, ShardsConfigError};

use crate::cache::CacheOptions;
use crate::feature_gates::FeatureGates;
use crate::selection::ControllerSelection;

/// How a manager runs. [`ManagerConfig::new`] gives the defaults, which are kube-controller-manager's unless a reason
/// is stated.
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// What the process calls itself: the source of its events and the `manager` label of its metrics. Default
    /// `windlass`.
    pub name: String,
    /// Who this replica is, unique per incarnation: a restarted process is somebody else.
    pub identity: String,
    /// Which of the registered controllers run. Default: all that are on by default.
    pub controllers: ControllerSelection,
    /// How replicas agree on one that acts; `None` for a process that is always alone. Default: elected.
    pub election: Option<ElectionConfig>,
    /// Into how many shards replicas divide their work, instead of one of them doing it all; `None` for no sharding. Every
    /// replica then acts on a fair share of the keys, by namespace. With one shard a single replica acts, under the Lease
    /// of that shard. Needs `election`, whose Lease name is the prefix of all Leases. At most 256. Default:
    /// none.
    pub shards: Option<NonZeroU16>,
    /// Where health, metrics and debugging pages are served, and to whom; `None` for nowhere. Default `None`: an address
    /// is the operator's to give.
    pub admin: Option<AdminConfig>,
    /// What the process was started with, by flag, as the admin server shows it on `/flagz`. Never put a secret in it.
    /// Default: none.
    pub flags: BTreeMap<String, String>,
    /// Further parts of what the admin server shows on `/configz`, by component: what the program makes of its own
    /// settings. Never put a secret in it. Default: none.
    pub configuration: BTreeMap<String, serde_json::Value>,
    /// The features of this program that can be switched, which metrics tell. Default: none.
    pub feature_gates: FeatureGates,
    /// What caches hold.
    pub cache: CacheOptions,
    /// Limits and deadlines of requests.
    pub client: ClientOptions,
    /// Spreads the start of controllers: each waits for a random time between this and its double. Default zero.
    pub start_interval: Duration,
    /// How long running reconciles may take to end after the first signal. Zero waits forever. Default 10 s.
    pub shutdown_timeout: Duration,
    /// How long each controller waits for the caches it needs, unless it says so itself. Default
    /// [`CacheSync::Forever`], unlike controller-runtime's two minutes: there one missing permission ends a process of
    /// twenty controllers, again and again. Here those that have what they need work, readiness and the log say which
    /// one waits and for what, and it begins once a role is granted or a kind installed. With [`CacheSync::Within`] a
    /// controller without its caches ends the process with an error that names them, also while none can work and the
    /// process leaves leading to another.
    pub cache_sync: CacheSync,
    /// How long the API server may take to answer at start. Default 10 s.
    pub api_server_wait: Duration,
    /// For how long one key may be reconciled before liveness fails. Default 30 min: every single request ends within
    /// its own deadline, so nothing but a deadlock takes that long.
    pub worker_stuck_after: Duration,
    /// How many Events of each sort each component remembers, so that what repeats is counted and not sent again. Default
    /// 4096, as upstream, for some four megabytes; at least one is remembered.
    pub remembered_events: usize,
}

impl ManagerConfig {
    /// The defaults, for a replica of this identity of windlass itself. Anything else is [`named`](Self::named).
    pub fn new(identity: impl Into<String>) -> Self {
        let identity = identity.into();
        Self {
            name: "windlass".to_owned(),
            election: Some(ElectionConfig::new(identity.clone())),
            identity,
            controllers: ControllerSelection::default(),
            shards: None,
            admin: None,
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
            remembered_events: 4096,
        }
    }

    /// The same under a name of one's own, which is also that of its Lease. Programs that bear one name in one cluster
    /// stand for one Lease, so all but one of them would stand by forever: every operator needs its own.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        if let Some(election) = &mut self.election {
            election.lease_name.clone_from(&self.name);
        }
        self
    }

    /// Checks what can be checked without a cluster.
    ///
    /// # Errors
    /// The first rule broken.
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
        self.client.validate()?;
        // The other rules hold in every namespace.
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
    /// Returns the options of the clients: what is sent before a fence ends arrives before a standby acts.
    pub(crate) fn client_options(&self) -> ClientOptions {
        let mut options = self.client.clone();
        if let Some(election) = &self.election {
            options.unacknowledged_timeout = options.unacknowledged_timeout.min(election.allowance());
        }
        options
    }

    /// Returns the election with its namespace, which is `default_namespace` unless it is configured.
    pub(crate) fn election(&self, default_namespace: &str) -> Option<Election> {
        self.election.clone().map(|election| election.resolve(default_namespace))
    }

    /// Returns how replicas share shards, if they do. See [`election`](Self::election) for the namespace.
    ///
    /// # Errors
    /// When sharding contradicts the election.
    pub(crate) fn sharding(&self, default_namespace: &str) -> Result<Option<ShardsConfig>, ConfigError> {
        let Some(shards) = self.shards else { return Ok(None) };
        let Some(election) = self.election(default_namespace) else {
            return Err(ConfigError::ShardsUnelected { shards: shards.get() });
        };
        Ok(Some(ShardsConfig { election, shards }))
    }
}

/// Why a [`ManagerConfig`] cannot be run with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A name is missing.
    #[error("the manager needs {what}, and it is empty")]
    Empty {
        /// Which one.
        what: &'static str,
    },
    /// A duration that bounds something is zero, so nothing could ever succeed.
    #[error("the {what} must be longer than zero")]
    Zero {
        /// Which one.
        what: &'static str,
    },
    /// No informer would look through its cache as often as this.
    #[error(
        "the resync period ({period:?}) is too short: choose {shortest:?} at least, or zero for never",
        shortest = windlass_informer::Resync::MIN
    )]
    ResyncTooShort {
        /// The one given.
        period: Duration,
    },
    /// The limits of requests cannot be kept.
    #[error(transparent)]
    Client(#[from] ClientOptionsError),
    /// Shards are held under Leases, and this process is always alone.
    #[error("{shards} shards need leader election, which is off: switch it on, or drop the shards")]
    ShardsUnelected {
        /// How many were asked for.
        shards: u16,
    },
    /// The shards cannot be elected.
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
    use windlass_informer::Resync;

    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(ManagerConfig::new("me").validate(), Ok(()));
    }

    #[test]
    fn programs_with_names_of_their_own_stand_for_leases_of_their_own() {
        let lease = |config: ManagerConfig| config.election.map(|election| election.lease_name);
        assert_eq!(lease(ManagerConfig::new("me")).as_deref(), Some("windlass"));
        assert_eq!(lease(ManagerConfig::new("me").named("keeper")).as_deref(), Some("keeper"));
        let alone = ManagerConfig { election: None, ..ManagerConfig::new("me") };
        assert_eq!((alone.clone().named("keeper").name.as_str(), lease(alone)), ("keeper", None));
    }

    // parity: defaults-renew-deadline-parameters
    #[test]
    fn what_could_never_work_is_refused() {
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
