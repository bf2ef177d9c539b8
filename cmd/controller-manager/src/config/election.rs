//! Which replicas act when several run: durations that agree, and one way to choose.
//!
//! With `--leader-elect=false` durations and names of the election are accepted and mean nothing, as in
//! kube-controller-manager, whose command lines carry them along. Settings that request an election (shards, the
//! coordinator, its feature gate by name) are rejected beside it.

use std::num::NonZeroU16;

use windlass::election::{CoordinatedConfig, ElectionConfig, ElectionConfigError};
use windlass::manager::{FeatureGates, ManagerConfig};

use crate::feature_gates::{COORDINATED_ELECTION, word_about};
use crate::settings::{
    ElectionSettings, Given, InvalidSetting, Lock, ObjectName, Period, Switches, Whole, Wrong,
};

/// The longest name that Leases of shards can begin with: it is the value of a label, too.
const LONGEST_PREFIX: usize = 63;

/// Adds the election to a configuration that has its controllers.
pub(super) fn of(
    settings: ElectionSettings,
    (gates, switches): (&FeatureGates, &Given<Switches>),
    manager: ManagerConfig,
) -> Result<ManagerConfig, InvalidSetting> {
    let ElectionSettings {
        leader_elect,
        leader_elect_lease_duration: lease_duration,
        leader_elect_renew_deadline: renew_deadline,
        leader_elect_retry_period: retry_period,
        // There is one kind.
        leader_elect_resource_lock: Given { value: Lock, .. },
        leader_elect_resource_name: name,
        leader_elect_resource_namespace: namespace,
        leader_elect_coordinated: coordinated,
        shards,
    } = settings;
    let sharing = sharing(&shards, &leader_elect, &coordinated, &name)?;
    let coordinated = coordination(&coordinated, (gates, switches), &leader_elect)?;
    if !leader_elect.value {
        return Ok(ManagerConfig { election: None, ..manager });
    }
    let election = ElectionConfig {
        lease_name: name.value.0.clone(),
        lease_namespace: namespace.value.0,
        lease_duration: lease_duration.value.0,
        renew_deadline: renew_deadline.value.0,
        retry_period: retry_period.value.0,
        coordinated,
        ..ElectionConfig::new(manager.identity.clone())
    };
    let durations = Durations { lease: &lease_duration, renew: &renew_deadline, retry: &retry_period };
    election.validate().map_err(|problem| durations.contradiction(&problem, &name))?;
    if let (Some(_), Some(_)) = (sharing, &election.coordinated) {
        return Err(shards.refuse(
            "the feature gate CoordinatedLeaderElection has the API server choose one leader",
            "leave the shards out, or switch the gate off",
        ));
    }
    Ok(ManagerConfig { election: Some(election), shards: sharing, ..manager })
}

/// How many shards there are to be, if any: they exclude every other way of choosing who acts.
fn sharing(
    shards: &Given<Whole<0, 256>>,
    leader_elect: &Given<bool>,
    coordinated: &Given<bool>,
    name: &Given<ObjectName>,
) -> Result<Option<NonZeroU16>, InvalidSetting> {
    let Some(number) = u16::try_from(shards.value.0).ok().and_then(NonZeroU16::new) else { return Ok(None) };
    if !leader_elect.value {
        return Err(shards.refuse(unelected(leader_elect), "leave the shards out"));
    }
    if coordinated.value {
        let problem = format!("{} has the API server choose one leader", coordinated.called());
        return Err(shards.refuse(problem, "leave one of them out"));
    }
    if name.value.0.len() > LONGEST_PREFIX {
        let problem = format!("too long to begin the names of shards: {LONGEST_PREFIX} characters at most");
        return Err(name.refuse(problem, "make it shorter"));
    }
    Ok(Some(number))
}

fn unelected(leader_elect: &Given<bool>) -> String {
    format!("nobody is elected with {}=false", leader_elect.called())
}

/// The flag and the gate ask for the same, and either is enough. The flag must not say no where the gate says yes; the
/// field may, since that is what it says in a file with all settings.
fn coordination(
    flag: &Given<bool>,
    (gates, switches): (&FeatureGates, &Given<Switches>),
    leader_elect: &Given<bool>,
) -> Result<Option<CoordinatedConfig>, InvalidSetting> {
    let gate = word_about(switches, &COORDINATED_ELECTION);
    if !leader_elect.value {
        if flag.value {
            return Err(flag.refuse(unelected(leader_elect), "leave one of them out"));
        }
        return match gate {
            Some((word, true)) => {
                let problem = format!("{}: {}", word.text, unelected(leader_elect));
                Err(switches.wrong(Wrong::new(problem, "leave one of them out").at(word)))
            }
            // A whole stage may be asked for, for the sake of other gates.
            _ => Ok(None),
        };
    }
    let by_gate = gates.is_on(&COORDINATED_ELECTION);
    if by_gate && flag.is_flag() && !flag.value {
        let called = gate.map_or_else(|| switches.called(), |(word, _)| switches.called_by(word));
        let name = COORDINATED_ELECTION.name;
        let problem = format!("{called} switches the feature gate {name} on, which asks for it");
        return Err(flag.refuse(problem, "leave one of them out"));
    }
    Ok((flag.value || by_gate).then(|| CoordinatedConfig::new(env!("CARGO_PKG_VERSION"))))
}

/// The three whose relation keeps the promise.
struct Durations<'a> {
    lease: &'a Given<Period>,
    renew: &'a Given<Period>,
    retry: &'a Given<Period>,
}

impl Durations<'_> {
    /// The rules are the election's own; the setting to turn, and the direction, are known here.
    fn contradiction(&self, problem: &ElectionConfigError, name: &Given<ObjectName>) -> InvalidSetting {
        use ElectionConfigError::{
            Empty, LeaseNotLonger, LeaseNotWholeSeconds, NoTimeForWrites, RenewNotLonger, RetryZero,
        };
        match problem {
            LeaseNotWholeSeconds { .. } => self.lease.refuse(problem, "write one like 15s"),
            LeaseNotLonger { .. } => too_close(problem, self.lease, self.renew),
            RenewNotLonger { .. } | NoTimeForWrites { .. } => too_close(problem, self.renew, self.retry),
            RetryZero => self.retry.refuse(problem, "write one like 2s"),
            // About names, which are read as such.
            Empty { .. } => name.refuse(problem, "write a name"),
        }
    }
}

/// Of two durations the first should exceed the second. The one that somebody wrote is to blame: the second if both are.
fn too_close(problem: &ElectionConfigError, long: &Given<Period>, short: &Given<Period>) -> InvalidSetting {
    if short.is_given() || !long.is_given() {
        short.refuse(problem, format!("make it shorter, or {} longer", long.called()))
    } else {
        long.refuse(problem, format!("make it longer, or {} shorter", short.called()))
    }
}
