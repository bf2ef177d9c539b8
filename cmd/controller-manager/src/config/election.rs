//! The election: which replicas act if several run.
//!
//! With `--leader-elect=false` durations and names of the election have no effect, as in kube-controller-manager, whose
//! command lines contain them. Settings that request an election are rejected next to it: shards, the coordinator, and
//! the feature gate of the coordinator by name.

use std::num::NonZeroU16;

use windlass::election::{CoordinatedConfig, ElectionConfig, ElectionConfigError};
use windlass::manager::ManagerConfig;

use crate::settings::gates::COORDINATED_ELECTION;
use crate::settings::{
    ElectionSettings, Gates, InvalidInput, LockKind, Namespaces, ObjectName, SettingValue, Source,
};

/// The longest prefix of the Leases of shards, which is also the value of a label.
const MAX_PREFIX: usize = 63;

const LEAVE_ONE_OUT: &str = "leave one of them out";

/// Adds the election to a configuration that has its feature gates and `namespaces`.
pub(super) fn configure(
    settings: ElectionSettings,
    gates: &Gates,
    namespaces: &SettingValue<Namespaces>,
    manager: ManagerConfig,
) -> Result<ManagerConfig, InvalidInput> {
    let ElectionSettings {
        leader_elect,
        leader_elect_lease_duration: lease_duration,
        leader_elect_renew_deadline: renew_deadline,
        leader_elect_retry_period: retry_period,
        leader_elect_resource_lock: SettingValue { value: LockKind::Leases, .. },
        leader_elect_resource_name: name,
        leader_elect_resource_namespace: namespace,
        leader_elect_coordinated: coordinated,
        shards,
    } = settings;
    let number = u16::try_from(shards.value.0).ok().and_then(NonZeroU16::new);
    let gate = COORDINATED_ELECTION.name;
    if !leader_elect.value {
        let problem = format!("{}=false disables the election", leader_elect.name());
        // `AllBeta` can be meant for other gates.
        let requests_election: [(bool, &Source); 2] =
            [(number.is_some(), &shards), (coordinated.value, &coordinated)];
        if let Some((_, source)) = requests_election.into_iter().find(|(requests, _)| *requests) {
            return Err(source.invalid(problem, LEAVE_ONE_OUT));
        }
        if gates.0.get(gate) == Some(&true) {
            let problem = format!("the feature gate {gate} requests an election");
            return Err(leader_elect.invalid(problem, LEAVE_ONE_OUT));
        }
        return Ok(ManagerConfig { election: None, ..manager });
    }
    let by_gate = manager.feature_gates.is_on(&COORDINATED_ELECTION);
    // The field is `false` in a file with all settings.
    if by_gate && coordinated.is_flag() && !coordinated.value {
        let remedy = format!("leave it out, or write --feature-gates={gate}=false");
        return Err(coordinated.invalid(format!("the feature gate {gate} is on"), remedy));
    }
    let is_coordinated = coordinated.value || by_gate;
    if number.is_some() && is_coordinated {
        let request = if coordinated.value { coordinated.name() } else { format!("the feature gate {gate}") };
        // `AllBeta` switches the gate on, so the gate has no entry that could be left out.
        let remedy = match coordinated.value {
            true => LEAVE_ONE_OUT.to_owned(),
            false => format!("leave it out, or write --feature-gates={gate}=false"),
        };
        return Err(shards.invalid(format!("{request} lets the API server select one leader"), remedy));
    }
    if number.is_some() {
        check_shards(&shards, &name, namespaces)?;
    }
    let election = ElectionConfig {
        lease_name: name.value.0.clone(),
        lease_namespace: Some(namespace.value.0),
        lease_duration: lease_duration.value.0,
        renew_deadline: renew_deadline.value.0,
        retry_period: retry_period.value.0,
        coordinated: is_coordinated.then(|| CoordinatedConfig::new(env!("CARGO_PKG_VERSION"))),
        ..ElectionConfig::new(manager.identity.clone())
    };
    let durations = [&*lease_duration, &*renew_deadline, &*retry_period];
    election.validate().map_err(|problem| contradiction(&problem, durations, &name))?;
    Ok(ManagerConfig { election: Some(election), shards: number, ..manager })
}

/// Checks settings next to shards.
fn check_shards(
    shards: &Source,
    name: &SettingValue<ObjectName>,
    namespaces: &SettingValue<Namespaces>,
) -> Result<(), InvalidInput> {
    if name.value.0.len() > MAX_PREFIX {
        let problem = format!("with {} a name has {MAX_PREFIX} characters at most", shards.name());
        return Err(name.invalid(problem, "shorten it"));
    }
    if !namespaces.value.0.is_empty() {
        let problem = format!("shards divide all namespaces, and {} selects some", namespaces.name());
        return Err(shards.invalid(problem, LEAVE_ONE_OUT));
    }
    Ok(())
}

/// Names the setting to change for a rule of the election.
fn contradiction(
    problem: &ElectionConfigError,
    [lease, renew, retry]: [&Source; 3],
    name: &SettingValue<ObjectName>,
) -> InvalidInput {
    use ElectionConfigError::{
        Empty, LeaseNotLonger, LeaseNotWholeSeconds, NoTimeForWrites, RenewNotLonger, RetryZero,
    };
    match problem {
        LeaseNotWholeSeconds { .. } => lease.invalid(problem, "write a duration such as 15s"),
        LeaseNotLonger { .. } => too_close(problem, lease, renew),
        RenewNotLonger { .. } | NoTimeForWrites { .. } => too_close(problem, renew, retry),
        RetryZero => retry.invalid(problem, "write a duration such as 2s"),
        Empty { .. } => name.invalid(problem, "write a name"),
    }
}

/// The first duration must exceed the second. The error names the one that the user wrote, the second if both are.
fn too_close(problem: &ElectionConfigError, long: &Source, short: &Source) -> InvalidInput {
    if short.is_given() || !long.is_given() {
        short.invalid(problem, format!("shorten it, or lengthen {}", long.name()))
    } else {
        long.invalid(problem, format!("lengthen it, or shorten {}", short.name()))
    }
}
