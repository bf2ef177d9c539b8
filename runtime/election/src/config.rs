//! Which Lease, under what name, and the three durations whose relation keeps the promise.
//!
//! A configuration that passes [`validate`](ElectionConfig::validate) can be elected with; nothing later checks again.

use std::time::Duration;

use windlass_object::ObjectKey;

/// What a renewal must leave of the renew deadline when the next one is due. A write is sent only while at least 1 s is
/// left of it, and the renewal that moves it is granted another to be answered: with less than both, the fence would
/// hold back every write of a replica that leads.
const MIN_FOR_WRITES: Duration = Duration::from_secs(2);

/// Settings of one election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// Name of the Lease. Default `windlass`. All replicas of one deployment share it.
    pub lease_name: String,
    /// Namespace of the Lease. Default `None`: the default namespace of the cluster's configuration, which is the Pod's
    /// namespace in a cluster and the context's outside.
    pub lease_namespace: Option<String>,
    /// What this replica writes as the holder. It must be unique per *incarnation*: a restarted process that reuses
    /// its predecessor's identity would take the predecessor's lease for its own.
    pub identity: String,
    /// How long a standby waits after the last renewal it saw. Default 15 s; written to the Lease in whole seconds.
    pub lease_duration: Duration,
    /// How long after its last successful renewal was *sent* the holder continues acting. Default 10 s. The gap to
    /// `lease_duration` pays for clocks of different rates and for requests already on the wire. At least 2 s longer
    /// than `retry_period`, or no write would ever find enough time to be answered in.
    pub renew_deadline: Duration,
    /// Pause between renewals, and the least pause between polls where the watch does not work. Default 2 s.
    pub retry_period: Duration,
    /// Whether [`Elector::release`](crate::Elector::release) gives the lease back, so that a standby takes over at
    /// once. Default true. It is safe here because release comes after the work has ended.
    pub release_on_exit: bool,
    /// Who decides. Default `None`: the replicas among themselves. Otherwise the API server's coordinator does, which
    /// chooses among candidates.
    pub coordinated: Option<CoordinatedConfig>,
}

/// An election whose namespace is known: the input of electors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// The other settings. [`ElectionConfig::lease_namespace`] has no further effect.
    pub config: ElectionConfig,
}

impl Election {
    /// Returns the key of the Lease. In an election of shards, its name is the prefix of all Lease names.
    pub fn lease(&self) -> ObjectKey {
        ObjectKey::namespaced(&self.namespace, &self.config.lease_name)
    }
}

/// What a replica tells the API server's coordinator of itself. The API server must have the feature gate
/// `CoordinatedLeaderElection` on and serve `coordination.k8s.io/v1beta1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatedConfig {
    /// The version of this binary, `major.minor.patch`.
    pub binary_version: String,
    /// The version it behaves as, `major.minor.patch`; not above that of the binary. Among candidates the oldest leads.
    pub emulation_version: String,
    /// By what rule the coordinator chooses.
    pub strategy: CoordinatedStrategy,
}

/// A rule by which the API server's coordinator chooses.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum CoordinatedStrategy {
    /// The candidate with the oldest emulation version, then the oldest binary, then the one created first. The only
    /// rule that Kubernetes 1.36 has.
    #[default]
    OldestEmulationVersion,
}

impl CoordinatedStrategy {
    /// As it stands in a Lease and in a LeaseCandidate.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OldestEmulationVersion => "OldestEmulationVersion",
        }
    }
}

impl CoordinatedConfig {
    /// This version as both, by the only strategy there is.
    pub fn new(version: impl Into<String>) -> Self {
        let version = version.into();
        Self {
            binary_version: version.clone(),
            emulation_version: version,
            strategy: CoordinatedStrategy::default(),
        }
    }
}

impl ElectionConfig {
    /// The defaults under this identity. The durations are upstream's.
    pub fn new(identity: impl Into<String>) -> Self {
        Self {
            lease_name: "windlass".to_owned(),
            lease_namespace: None,
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_exit: true,
            coordinated: None,
        }
    }

    /// Returns the election in the configured namespace, or in `default_namespace`, which is that of the cluster's
    /// configuration. An empty one means `default`, as other clients read it.
    pub fn resolve(self, default_namespace: &str) -> Election {
        let default_namespace = if default_namespace.is_empty() { "default" } else { default_namespace };
        let namespace = self.lease_namespace.as_deref().unwrap_or(default_namespace);
        Election { namespace: namespace.to_owned(), config: self }
    }

    /// Checks each value and the relations between them.
    ///
    /// # Errors
    ///
    /// The first rule broken, naming both values where two contradict each other.
    pub fn validate(&self) -> Result<(), ElectionConfigError> {
        self.validate_names()?;
        self.validate_lease_duration()?;
        self.validate_relations()
    }

    fn validate_names(&self) -> Result<(), ElectionConfigError> {
        let names = [
            ("lease name", Some(&self.lease_name)),
            ("lease namespace", self.lease_namespace.as_ref()),
            ("identity", Some(&self.identity)),
        ];
        match names.into_iter().find(|(_, value)| value.is_some_and(String::is_empty)) {
            Some((what, _)) => Err(ElectionConfigError::Empty { what }),
            None => Ok(()),
        }
    }

    fn validate_lease_duration(&self) -> Result<(), ElectionConfigError> {
        let lease = self.lease_duration;
        let whole = lease.subsec_nanos() == 0 && lease.as_secs() >= 1;
        if whole && i32::try_from(lease.as_secs()).is_ok() {
            Ok(())
        } else {
            Err(ElectionConfigError::LeaseNotWholeSeconds { lease })
        }
    }

    fn validate_relations(&self) -> Result<(), ElectionConfigError> {
        let (lease, renew, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        if retry.is_zero() {
            return Err(ElectionConfigError::RetryZero);
        }
        if lease <= renew {
            return Err(ElectionConfigError::LeaseNotLonger { lease, renew });
        }
        if renew <= retry.saturating_add(retry / 5) {
            return Err(ElectionConfigError::RenewNotLonger { renew, retry });
        }
        if renew < retry.saturating_add(MIN_FOR_WRITES) {
            return Err(ElectionConfigError::NoTimeForWrites { renew, retry });
        }
        Ok(())
    }

    /// Returns how long a standby waits at least between the end of this replica's fence and its own first write: lease
    /// duration minus renew deadline. What the holder sends before the fence ends must not arrive later than that.
    pub fn allowance(&self) -> Duration {
        self.lease_duration.saturating_sub(self.renew_deadline)
    }

    /// The lease duration as the Lease states it.
    pub(crate) fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX)
    }

    /// How long one request may take. Half of the renew deadline, as upstream's election client: a slow server is
    /// borne with, and yet a hung one leaves time for a second try.
    pub(crate) fn attempt(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// The widest random delay that spreads standbys which wake at the same moment: a twentieth of the retry period.
    pub(crate) fn spread(&self) -> Duration {
        self.retry_period / 20
    }
}

/// Why an [`ElectionConfig`] cannot be elected with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElectionConfigError {
    /// A name is missing.
    #[error("leader election needs a {what}, and it is empty")]
    Empty {
        /// Which one.
        what: &'static str,
    },
    /// The Lease states its duration as a whole, positive number of seconds.
    #[error("the lease duration must be a whole number of seconds and at least 1s, but is {lease:?}")]
    LeaseNotWholeSeconds {
        /// The lease duration given.
        lease: Duration,
    },
    /// A standby would take over while the holder still acts.
    #[error("the lease duration ({lease:?}) must be longer than the renew deadline ({renew:?})")]
    LeaseNotLonger {
        /// The lease duration given.
        lease: Duration,
        /// The renew deadline given.
        renew: Duration,
    },
    /// The holder would give up before its second try.
    #[error("the renew deadline ({renew:?}) must be longer than 1.2 times the retry period ({retry:?})")]
    RenewNotLonger {
        /// The renew deadline given.
        renew: Duration,
        /// The retry period given.
        retry: Duration,
    },
    /// The holder would lead and never write: a write leaves only while there is time for its answer.
    #[error(
        "the renew deadline ({renew:?}) must be at least {MIN_FOR_WRITES:?} longer than the retry period ({retry:?}), \
         to leave time for writes"
    )]
    NoTimeForWrites {
        /// The renew deadline given.
        renew: Duration,
        /// The retry period given.
        retry: Duration,
    },
    /// Renewals would follow each other without a pause.
    #[error("the retry period must be longer than zero")]
    RetryZero,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(lease: u64, renew: u64, retry: u64) -> ElectionConfig {
        ElectionConfig {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew),
            retry_period: Duration::from_millis(retry),
            ..ElectionConfig::new("me")
        }
    }

    #[test]
    fn defaults_are_valid() {
        assert_eq!(ElectionConfig::new("me").validate(), Ok(()));
    }

    // parity: test-leader-election-config-validation, defaults-renew-deadline-parameters
    #[test]
    fn contradictory_durations_are_refused_naming_both_values() {
        let message = with(10_000, 10_000, 2_000).validate().unwrap_err().to_string();
        assert!(
            message.contains("lease duration (10s)") && message.contains("renew deadline (10s)"),
            "{message}"
        );
        let message = with(15_000, 12_000, 10_000).validate().unwrap_err().to_string();
        assert!(
            message.contains("renew deadline (12s)") && message.contains("retry period (10s)"),
            "{message}"
        );
        assert_eq!(with(15_000, 12_001, 10_000).validate(), Ok(()));
    }

    #[test]
    fn renew_deadline_that_leaves_no_time_for_writes_is_refused_naming_both_values() {
        let message = with(2_000, 1_000, 200).validate().unwrap_err().to_string();
        assert!(
            message.contains("renew deadline (1s)")
                && message.contains("2s longer than the retry period (200ms)"),
            "{message}"
        );
        assert!(matches!(
            with(4_000, 2_199, 200).validate(),
            Err(ElectionConfigError::NoTimeForWrites { .. })
        ));
        assert_eq!(with(4_000, 2_200, 200).validate(), Ok(()));
    }

    #[test]
    fn lease_duration_the_lease_cannot_state_is_refused() {
        for lease in [500, 15_500] {
            let lease = Duration::from_millis(lease);
            let config = ElectionConfig { lease_duration: lease, ..with(0, 300, 100) };
            assert_eq!(config.validate(), Err(ElectionConfigError::LeaseNotWholeSeconds { lease }));
        }
    }

    // parity: test-leader-election-config-validation
    #[test]
    fn retry_period_of_zero_and_empty_names_are_refused() {
        assert_eq!(with(15_000, 10_000, 0).validate(), Err(ElectionConfigError::RetryZero));
        assert_eq!(ElectionConfig::new("").validate(), Err(ElectionConfigError::Empty { what: "identity" }));
        let unnamed = ElectionConfig { lease_namespace: Some(String::new()), ..ElectionConfig::new("me") };
        assert_eq!(unnamed.validate(), Err(ElectionConfigError::Empty { what: "lease namespace" }));
    }

    #[test]
    fn lease_is_in_default_namespace_unless_configured() {
        let config = ElectionConfig::new("me");
        assert_eq!(config.clone().resolve("shop").lease(), ObjectKey::namespaced("shop", "windlass"));
        assert_eq!(config.clone().resolve("").lease(), ObjectKey::namespaced("default", "windlass"));
        let config = ElectionConfig { lease_namespace: Some("leases".to_owned()), ..config };
        assert_eq!(config.resolve("shop").lease(), ObjectKey::namespaced("leases", "windlass"));
    }
}
