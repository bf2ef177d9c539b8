//! Configuration of an election: Lease, identity and the three durations.
//!
//! A configuration that passes [`validate`](ElectionConfig::validate) is valid for an election; it is not checked
//! again.

use std::time::Duration;

use windlass_object::ObjectKey;

/// Minimum time between the due time of a renewal and the renew deadline. A write needs at least 1 s before the
/// deadline, and the renewal needs another second for its response. With less than both, the fence would block each
/// write of a leader.
const MIN_WRITE_TIME: Duration = Duration::from_secs(2);

/// Settings of one election.
///
/// ```
/// use std::time::Duration;
/// use windlass_election::ElectionConfig;
///
/// // The renew deadline must be shorter than the lease duration.
/// let slow = ElectionConfig { lease_duration: Duration::from_secs(60), ..ElectionConfig::new("pod-1") };
/// assert!(slow.validate().is_ok());
/// let wrong = ElectionConfig { renew_deadline: Duration::from_secs(90), ..slow };
/// assert!(wrong.validate().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// Name of the Lease. Default `windlass`. All replicas of one deployment share it.
    pub lease_name: String,
    /// Namespace of the Lease. Default `None`: the default namespace of the cluster's configuration, which is the Pod's
    /// namespace in a cluster and the context's outside.
    pub lease_namespace: Option<String>,
    /// Holder identity of this replica. It must be unique per *incarnation*: a restarted process that reuses the
    /// identity of its predecessor would treat the predecessor's lease as its own.
    pub identity: String,
    /// Waiting time of a standby after the last observed renewal. Default 15 s; written to the Lease in whole seconds.
    pub lease_duration: Duration,
    /// Time for which the holder acts after its last successful renewal was *sent*. Default 10 s. The difference to
    /// `lease_duration` covers different clock rates and requests in flight. Must exceed `retry_period` by at least 2
    /// s, so that writes have time for a response.
    pub renew_deadline: Duration,
    /// Pause between renewals, and minimum pause between polls if the watch fails. Default 2 s.
    pub retry_period: Duration,
    /// Whether [`Elector::release`](crate::Elector::release) releases the Lease, so that a standby takes over
    /// immediately. Default true. This is safe because the release follows the end of the work.
    pub release_on_exit: bool,
    /// Settings for an election by the API server's coordinator, which chooses among candidates. Default `None`: the
    /// replicas elect among themselves.
    pub coordinated: Option<CoordinatedConfig>,
}

/// Election with a resolved namespace: the input of electors.
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

/// Version information for the API server's coordinator. The API server must enable the feature gate
/// `CoordinatedLeaderElection` and serve `coordination.k8s.io/v1beta1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatedConfig {
    /// The version of this binary, `major.minor.patch`.
    pub binary_version: String,
    /// Version that the binary emulates, `major.minor.patch`; not above the binary version. The candidate with the
    /// oldest version leads.
    pub emulation_version: String,
    /// Rule by which the coordinator chooses.
    pub strategy: CoordinatedStrategy,
}

/// Rule by which the API server's coordinator chooses.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum CoordinatedStrategy {
    /// The candidate with the oldest emulation version, then the oldest binary version, then the oldest creation time.
    /// The only rule in Kubernetes 1.36.
    #[default]
    OldestEmulationVersion,
}

impl CoordinatedStrategy {
    /// Returns the name of the rule in a Lease and a LeaseCandidate.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OldestEmulationVersion => "OldestEmulationVersion",
        }
    }
}

impl CoordinatedConfig {
    /// Returns settings with this version for binary and emulation, and the only strategy.
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
    /// Returns the defaults with this identity. The durations are those of kube-controller-manager.
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

    /// Returns the election in the configured namespace, or in `default_namespace`, the namespace of the cluster's
    /// configuration. As in other clients, an empty namespace means `default`.
    pub fn resolve(self, default_namespace: &str) -> Election {
        let default_namespace = if default_namespace.is_empty() { "default" } else { default_namespace };
        let namespace = self.lease_namespace.as_deref().unwrap_or(default_namespace);
        Election { namespace: namespace.to_owned(), config: self }
    }

    /// Checks each value and the relations between them.
    ///
    /// # Errors
    ///
    /// The first violated rule, with both values if two contradict each other.
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
        if renew < retry.saturating_add(MIN_WRITE_TIME) {
            return Err(ElectionConfigError::NoTimeForWrites { renew, retry });
        }
        Ok(())
    }

    /// Returns the minimum time between the end of this replica's fence and the first write of a standby: lease
    /// duration minus renew deadline. Requests that the holder sends before the end of its fence must arrive within
    /// this time.
    pub fn allowance(&self) -> Duration {
        self.lease_duration.saturating_sub(self.renew_deadline)
    }

    /// Returns the lease duration as the Lease states it.
    pub(crate) fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX)
    }

    /// Returns the timeout of one request: half of the renew deadline, as in client-go. This tolerates a slow server
    /// and leaves time for a second attempt.
    pub(crate) fn attempt(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// Returns the maximum random delay of standbys that wake at the same time: a twentieth of the retry period.
    pub(crate) fn spread(&self) -> Duration {
        self.retry_period / 20
    }
}

/// Violated rule of an [`ElectionConfig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElectionConfigError {
    /// A name is missing.
    #[error("the {what} of the leader election must not be empty")]
    Empty {
        /// Name of the empty field.
        what: &'static str,
    },
    /// The lease duration is not a positive number of whole seconds.
    #[error("the lease duration must be a whole number of seconds and at least 1s, but is {lease:?}")]
    LeaseNotWholeSeconds {
        /// Configured lease duration.
        lease: Duration,
    },
    /// A standby would take over while the holder still acts.
    #[error("the lease duration ({lease:?}) must be longer than the renew deadline ({renew:?})")]
    LeaseNotLonger {
        /// Configured lease duration.
        lease: Duration,
        /// Configured renew deadline.
        renew: Duration,
    },
    /// The lease would be lost before the second attempt of a renewal.
    #[error("the renew deadline ({renew:?}) must be longer than 1.2 times the retry period ({retry:?})")]
    RenewNotLonger {
        /// Configured renew deadline.
        renew: Duration,
        /// Configured retry period.
        retry: Duration,
    },
    /// The holder would lead and never write: a write requires time for its response.
    #[error(
        "the renew deadline ({renew:?}) must be at least {MIN_WRITE_TIME:?} longer than the retry period ({retry:?}), \
         to leave time for writes"
    )]
    NoTimeForWrites {
        /// Configured renew deadline.
        renew: Duration,
        /// Configured retry period.
        retry: Duration,
    },
    /// Renewals would have no pause between them.
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
    fn contradictory_durations_are_rejected_with_both_values() {
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
    fn renew_deadline_without_time_for_writes_is_rejected() {
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
    fn fractional_lease_duration_is_rejected() {
        for lease in [500, 15_500] {
            let lease = Duration::from_millis(lease);
            let config = ElectionConfig { lease_duration: lease, ..with(0, 300, 100) };
            assert_eq!(config.validate(), Err(ElectionConfigError::LeaseNotWholeSeconds { lease }));
        }
    }

    // parity: test-leader-election-config-validation
    #[test]
    fn zero_retry_period_and_empty_names_are_rejected() {
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
