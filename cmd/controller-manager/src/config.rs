//! Settings given meaning: the high half of "arguments, then validated configuration, then run".
//!
//! Guarantees: pure, so it is done before anything is opened or sent; every refusal names the flag or the place in the
//! file, the value and what to write instead; relations between settings are checked here too; a setting that exists
//! cannot be forgotten, since they are taken apart by name. Refuses values that would be accepted and then ignored.

use std::net::SocketAddr;
use std::path::PathBuf;

use windlass::client::ClientOptions;
use windlass::controller::Descriptor;
use windlass::election::{ElectionConfig, ElectionConfigError};
use windlass::manager::{ControllerSelection, FeatureGates, ManagerConfig};
use windlass_controllers::Options;

use crate::settings::{Format, Given, InvalidSetting, Names, Period, Settings, Wrong, quoted};
use crate::{feature_gates, known_flags};

/// All settings of one process, each valid and none contradicting another.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) cluster: Cluster,
    pub(crate) manager: ManagerConfig,
    /// How eagerly each controller works.
    pub(crate) controllers: Options,
    pub(crate) logging: Logging,
}

/// Where the API server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) master: Option<String>,
}

/// What is told to stderr, and in which form.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logging {
    pub(crate) verbosity: u8,
    pub(crate) format: Format,
}

impl Config {
    /// Gives every setting its meaning, for a replica of this `identity` that has the `known` controllers.
    ///
    /// # Errors
    /// The first whose value makes no sense, alone or beside the others.
    pub(crate) fn new(
        settings: Settings,
        known: &[Descriptor],
        identity: &str,
    ) -> Result<Self, InvalidSetting> {
        let gates = feature_gates::read(&settings.feature_gates)?;
        let election = election(&settings, identity)?;
        let admin = admin(&settings)?;
        let controllers = selection(&settings.controllers, known)?;
        let options = options(&settings, &gates);
        let Settings {
            kubeconfig,
            master,
            kube_api_qps,
            kube_api_burst,
            min_resync_period,
            controller_start_interval,
            controller_shutdown_timeout,
            v,
            logging_format,
            // Taken apart above.
            controllers: _,
            concurrent_replicaset_syncs: _,
            concurrent_rc_syncs: _,
            concurrent_endpoint_syncs: _,
            endpoint_updates_batch_period: _,
            feature_gates: _,
            leader_elect: _,
            leader_elect_lease_duration: _,
            leader_elect_renew_deadline: _,
            leader_elect_retry_period: _,
            leader_elect_resource_lock: _,
            leader_elect_resource_name: _,
            leader_elect_resource_namespace: _,
            bind_address: _,
            secure_port: _,
        } = settings;
        let (qps, burst) = (kube_api_qps.value.0, kube_api_burst.value.0);
        let manager = ManagerConfig {
            client: ClientOptions { qps, burst, ..ClientOptions::default() },
            election,
            admin,
            controllers,
            resync: min_resync_period.value.0,
            start_interval: controller_start_interval.value.0,
            shutdown_timeout: controller_shutdown_timeout.value.0,
            ..ManagerConfig::new(identity)
        };
        let cluster = Cluster { kubeconfig: kubeconfig.value.0, master: master.value.0 };
        let verbosity = u8::try_from(v.value.0).unwrap_or(u8::MAX);
        let logging = Logging { verbosity, format: logging_format.value };
        Ok(Self { cluster, manager, controllers: options, logging })
    }
}

fn options(settings: &Settings, gates: &FeatureGates) -> Options {
    Options {
        concurrent_replicaset_syncs: settings.concurrent_replicaset_syncs.value.0 as usize,
        concurrent_rc_syncs: settings.concurrent_rc_syncs.value.0 as usize,
        concurrent_endpoint_syncs: settings.concurrent_endpoint_syncs.value.0 as usize,
        endpoint_updates_batch_period: settings.endpoint_updates_batch_period.value.0,
        terminating_replicas: gates.is_on(&feature_gates::TERMINATING_REPLICAS),
        pod_deletion_cost: gates.is_on(&feature_gates::POD_DELETION_COST),
    }
}

fn selection(given: &Given<Names>, known: &[Descriptor]) -> Result<ControllerSelection, InvalidSetting> {
    let there_are = || known.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
    let words = &given.value.0;
    let selection = ControllerSelection::parse(words.iter().map(|word| &word.text));
    let unknown = match selection.resolve(known) {
        Ok(selected) if selected.is_empty() => {
            return Err(given
                .refuse("no controller would run", format!("write '*' for all; there are {}", there_are())));
        }
        Ok(_) => return Ok(selection),
        Err(unknown) => unknown,
    };
    let (problem, remedy) = if known_flags::is_upstream_controller(&unknown.name) {
        ("is a kube-controller-manager controller that windlass does not have yet", "leave it out".to_owned())
    } else {
        let meant = unknown.closest.map(|name| format!("write {name} if you meant that"));
        ("is not a controller", meant.unwrap_or_else(|| "correct the name".to_owned()))
    };
    let wrong = Wrong::new(
        format!("{} {problem}", quoted(&unknown.name)),
        format!("{remedy}; there are {}", there_are()),
    );
    let culprit = words
        .iter()
        .find(|word| word.text.trim().trim_start_matches('-') == unknown.name.trim_start_matches('-'));
    Err(given.wrong(culprit.map_or(wrong.clone(), |word| wrong.at(word))))
}

fn election(settings: &Settings, identity: &str) -> Result<Option<ElectionConfig>, InvalidSetting> {
    let election = ElectionConfig {
        lease_name: settings.leader_elect_resource_name.value.0.clone(),
        lease_namespace: settings.leader_elect_resource_namespace.value.0.clone(),
        lease_duration: settings.leader_elect_lease_duration.value.0,
        renew_deadline: settings.leader_elect_renew_deadline.value.0,
        retry_period: settings.leader_elect_retry_period.value.0,
        ..ElectionConfig::new(identity)
    };
    if !settings.leader_elect.value {
        return Ok(None);
    }
    election.validate().map_err(|problem| contradiction(settings, &problem))?;
    Ok(Some(election))
}

/// The rules are the election's own; the setting to turn, and the direction, are known here.
fn contradiction(settings: &Settings, problem: &ElectionConfigError) -> InvalidSetting {
    use ElectionConfigError::{
        Empty, LeaseNotLonger, LeaseNotWholeSeconds, NoTimeForWrites, RenewNotLonger, RetryZero,
    };
    let Settings {
        leader_elect_resource_name: name,
        leader_elect_lease_duration: lease,
        leader_elect_renew_deadline: renew,
        leader_elect_retry_period: retry,
        ..
    } = settings;
    match problem {
        LeaseNotWholeSeconds { .. } => lease.refuse(problem, "write one like 15s"),
        LeaseNotLonger { .. } => too_close(problem, lease, renew),
        RenewNotLonger { .. } | NoTimeForWrites { .. } => too_close(problem, renew, retry),
        RetryZero => retry.refuse(problem, "write one like 2s"),
        Empty { .. } => name.refuse(problem, "write a name"),
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

fn admin(settings: &Settings) -> Result<Option<SocketAddr>, InvalidSetting> {
    let Settings { bind_address, secure_port, .. } = settings;
    let Some(port) = u16::try_from(secure_port.value.0).ok().filter(|port| *port != 0) else {
        return Ok(None);
    };
    let address = bind_address.value.0;
    if !address.is_loopback() {
        let problem = "the server cannot tell who is asking yet, so it is kept on loopback";
        return Err(
            bind_address.refuse(problem, "write 127.0.0.1 or ::1, or turn it off with --secure-port=0")
        );
    }
    Ok(Some(SocketAddr::new(address, port)))
}

#[cfg(test)]
mod tests;
