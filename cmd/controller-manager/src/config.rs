//! Arguments given meaning: the high half of "arguments, then validated configuration, then run".
//!
//! Guarantees: pure, so it is done before anything is opened or sent; every refusal names the flag, the value and
//! what to write instead; relations between flags are checked here too; a flag that exists cannot be forgotten,
//! since each group of arguments is taken apart by name. Refuses values that would be accepted and then ignored.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use windlass::client::ClientOptions;
use windlass::controller::Descriptor;
use windlass::election::{ElectionConfig, ElectionConfigError};
use windlass::manager::{ControllerSelection, ManagerConfig};
use windlass_controllers::Options;

use crate::args::{Args, ClusterArgs, ControllerArgs, ElectionArgs, LoggingArgs, ServingArgs};
use crate::feature_gates::Gates;
use crate::{duration, feature_gates, known_flags};

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

/// The form of a log line.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// A flag whose value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{flag}={value}: {problem}; {remedy}")]
pub(crate) struct InvalidFlag {
    flag: &'static str,
    value: String,
    problem: String,
    remedy: String,
}

impl InvalidFlag {
    pub(crate) fn new(
        flag: &'static str,
        value: impl Display,
        problem: impl Display,
        remedy: impl Display,
    ) -> Self {
        let [value, problem, remedy] = [value.to_string(), problem.to_string(), remedy.to_string()];
        Self { flag, value, problem, remedy }
    }
}

impl Config {
    /// Gives every argument its meaning, for a replica of this `identity` that has the `known` controllers.
    ///
    /// # Errors
    /// The first flag whose value makes no sense, alone or beside the others.
    pub(crate) fn from_args(args: Args, known: &[Descriptor], identity: &str) -> Result<Self, InvalidFlag> {
        let Args { cluster, controllers, election, serving, logging, version: _ } = args;
        let (cluster, client) = self::cluster(cluster)?;
        let manager = ManagerConfig {
            client,
            election: self::election(election, identity)?,
            admin: admin(&serving)?,
            ..ManagerConfig::new(identity)
        };
        let (manager, controllers) = self::controllers(controllers, known, manager)?;
        Ok(Self { cluster, manager, controllers, logging: self::logging(&logging)? })
    }
}

fn cluster(args: ClusterArgs) -> Result<(Cluster, ClientOptions), InvalidFlag> {
    let ClusterArgs { kubeconfig, master, kube_api_qps, kube_api_burst } = args;
    let kubeconfig = kubeconfig.filter(|path| !path.is_empty()).map(PathBuf::from);
    let master = master.filter(|url| !url.is_empty());
    let burst = whole("kube-api-burst", &kube_api_burst, 1, u32::MAX)?;
    let client = ClientOptions { qps: qps(&kube_api_qps)?, burst, ..ClientOptions::default() };
    Ok((Cluster { kubeconfig, master }, client))
}

/// A rate above zero, or below it for no limit.
fn qps(text: &str) -> Result<f64, InvalidFlag> {
    let refuse = |problem| {
        InvalidFlag::new("kube-api-qps", text, problem, "write a rate like 20 or 0.5, or -1 for no limit")
    };
    match text.parse::<f64>() {
        Ok(0.0) => Err(refuse("no request would ever be sent")),
        Ok(rate) if rate.is_finite() => Ok(rate),
        _ => Err(refuse("not a number")),
    }
}

fn controllers(
    args: ControllerArgs,
    known: &[Descriptor],
    manager: ManagerConfig,
) -> Result<(ManagerConfig, Options), InvalidFlag> {
    let ControllerArgs {
        controllers,
        concurrent_replicaset_syncs,
        concurrent_rc_syncs,
        concurrent_endpoint_syncs,
        endpoint_updates_batch_period,
        min_resync_period,
        controller_start_interval,
        controller_shutdown_timeout,
        feature_gates,
    } = args;
    let Gates { terminating_replicas, pod_deletion_cost } = gates(&feature_gates)?;
    let manager = ManagerConfig {
        controllers: selection(&controllers, known)?,
        resync: period("min-resync-period", &min_resync_period)?,
        start_interval: period("controller-start-interval", &controller_start_interval)?,
        shutdown_timeout: period("controller-shutdown-timeout", &controller_shutdown_timeout)?,
        ..manager
    };
    let options = Options {
        concurrent_replicaset_syncs: workers("concurrent-replicaset-syncs", &concurrent_replicaset_syncs)?,
        concurrent_rc_syncs: workers("concurrent-rc-syncs", &concurrent_rc_syncs)?,
        concurrent_endpoint_syncs: workers("concurrent-endpoint-syncs", &concurrent_endpoint_syncs)?,
        endpoint_updates_batch_period: period(
            "endpoint-updates-batch-period",
            &endpoint_updates_batch_period,
        )?,
        terminating_replicas,
        pod_deletion_cost,
    };
    Ok((manager, options))
}

fn selection(written: &[String], known: &[Descriptor]) -> Result<ControllerSelection, InvalidFlag> {
    let names = || known.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
    let refuse = |problem: String, remedy: String| {
        InvalidFlag::new(
            "controllers",
            written.join(","),
            problem,
            format!("{remedy}; there are {}", names()),
        )
    };
    let selection = ControllerSelection::parse(written);
    match selection.resolve(known) {
        Ok(selected) if selected.is_empty() => {
            Err(refuse("no controller would run".to_owned(), "write '*' for all".to_owned()))
        }
        Ok(_) => Ok(selection),
        Err(unknown) if known_flags::is_upstream_controller(&unknown.name) => {
            let problem = "is a kube-controller-manager controller that windlass does not have yet";
            Err(refuse(format!("{:?} {problem}", unknown.name), "leave it out".to_owned()))
        }
        Err(unknown) => {
            let meant = unknown.closest.map(|name| format!("write {name} if you meant that"));
            let remedy = meant.unwrap_or_else(|| "correct the name".to_owned());
            Err(refuse(format!("{:?} is not a controller", unknown.name), remedy))
        }
    }
}

fn gates(written: &[String]) -> Result<Gates, InvalidFlag> {
    feature_gates::read(written).map_err(|problem| {
        let remedy = "leave it out, or see --help for how gates are written";
        InvalidFlag::new("feature-gates", written.join(","), problem, remedy)
    })
}

const LEASE_NAME: &str = "leader-elect-resource-name";
const LEASE_NAMESPACE: &str = "leader-elect-resource-namespace";
const LEASE_DURATION: &str = "leader-elect-lease-duration";
const RENEW_DEADLINE: &str = "leader-elect-renew-deadline";
const RETRY_PERIOD: &str = "leader-elect-retry-period";

fn election(args: ElectionArgs, identity: &str) -> Result<Option<ElectionConfig>, InvalidFlag> {
    let ElectionArgs {
        leader_elect,
        leader_elect_lease_duration,
        leader_elect_renew_deadline,
        leader_elect_retry_period,
        leader_elect_resource_lock: lock,
        leader_elect_resource_name,
        leader_elect_resource_namespace,
    } = args;
    if lock != "leases" {
        return Err(InvalidFlag::new(
            "leader-elect-resource-lock",
            lock,
            "not a kind of lock",
            "write leases",
        ));
    }
    let election = ElectionConfig {
        lease_name: object_name(LEASE_NAME, leader_elect_resource_name)?,
        lease_namespace: object_name(LEASE_NAMESPACE, leader_elect_resource_namespace)?,
        lease_duration: period(LEASE_DURATION, &leader_elect_lease_duration)?,
        renew_deadline: period(RENEW_DEADLINE, &leader_elect_renew_deadline)?,
        retry_period: period(RETRY_PERIOD, &leader_elect_retry_period)?,
        ..ElectionConfig::new(identity)
    };
    if !switch("leader-elect", &leader_elect)? {
        return Ok(None);
    }
    election.validate().map_err(|problem| contradiction(&election, &problem))?;
    Ok(Some(election))
}

/// The rules are the election's own; the flag to turn, and the direction, are known here.
fn contradiction(election: &ElectionConfig, problem: &ElectionConfigError) -> InvalidFlag {
    use ElectionConfigError::{
        Empty, LeaseNotLonger, LeaseNotWholeSeconds, NoTimeForWrites, RenewNotLonger, RetryZero,
    };
    let (flag, value, remedy) = match problem {
        LeaseNotWholeSeconds { lease } => {
            (LEASE_DURATION, format!("{lease:?}"), "write one like 15s".to_owned())
        }
        LeaseNotLonger { renew, .. } => {
            (RENEW_DEADLINE, format!("{renew:?}"), format!("make it shorter than --{LEASE_DURATION}"))
        }
        RenewNotLonger { renew, .. } | NoTimeForWrites { renew, .. } => {
            (RENEW_DEADLINE, format!("{renew:?}"), format!("make it longer, or --{RETRY_PERIOD} shorter"))
        }
        RetryZero => (RETRY_PERIOD, "0".to_owned(), "write one like 2s".to_owned()),
        Empty { .. } => (LEASE_NAME, election.lease_name.clone(), "write a name".to_owned()),
    };
    InvalidFlag::new(flag, value, problem, remedy)
}

fn admin(args: &ServingArgs) -> Result<Option<SocketAddr>, InvalidFlag> {
    let ServingArgs { bind_address, secure_port } = args;
    let port = secure_port.parse::<u16>().map_err(|_| {
        InvalidFlag::new(
            "secure-port",
            secure_port,
            "not a port",
            "write a number up to 65535, 0 to serve nothing",
        )
    })?;
    let address = bind_address.parse::<IpAddr>().map_err(|_| {
        InvalidFlag::new("bind-address", bind_address, "not an IP address", "write one like 127.0.0.1 or ::1")
    })?;
    if port == 0 {
        return Ok(None);
    }
    if !address.is_loopback() {
        let problem = "the server cannot tell who is asking yet, so it is kept on loopback";
        let remedy = "write 127.0.0.1 or ::1, or turn it off with --secure-port=0";
        return Err(InvalidFlag::new("bind-address", bind_address, problem, remedy));
    }
    Ok(Some(SocketAddr::new(address, port)))
}

fn logging(args: &LoggingArgs) -> Result<Logging, InvalidFlag> {
    let LoggingArgs { verbosity, logging_format } = args;
    let format = match logging_format.as_str() {
        "text" => Format::Text,
        "json" => Format::Json,
        other => {
            return Err(InvalidFlag::new("logging-format", other, "not a format", "write text or json"));
        }
    };
    let verbosity = whole("v", verbosity, 0, 10)?;
    Ok(Logging { verbosity: u8::try_from(verbosity).unwrap_or(u8::MAX), format })
}

fn workers(flag: &'static str, text: &str) -> Result<usize, InvalidFlag> {
    // Ten thousand tasks are cheap; more is a slip of the finger.
    Ok(whole(flag, text, 1, 10_000)? as usize)
}

fn whole(flag: &'static str, text: &str, least: u32, most: u32) -> Result<u32, InvalidFlag> {
    let remedy = match most {
        u32::MAX => format!("write a number from {least} up"),
        _ => format!("write a number from {least} to {most}"),
    };
    let refuse = |problem| InvalidFlag::new(flag, text, problem, &remedy);
    let number = text.parse::<i128>().map_err(|_| refuse("not a whole number"))?;
    let number = u32::try_from(number).ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| refuse("out of range"))
}

fn period(flag: &'static str, text: &str) -> Result<Duration, InvalidFlag> {
    duration::parse(text).map_err(|problem| {
        let problem = format!("not a duration, {problem}");
        InvalidFlag::new(flag, text, problem, "write one like 15s, 1m30s, 500ms or 0")
    })
}

fn switch(flag: &'static str, text: &str) -> Result<bool, InvalidFlag> {
    boolean(text).ok_or_else(|| InvalidFlag::new(flag, text, "neither true nor false", "write true or false"))
}

/// A boolean as Go reads one.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// A name the API server accepts: lower-case letters, digits, dashes and dots.
fn object_name(flag: &'static str, name: String) -> Result<String, InvalidFlag> {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let legal = (1..=253).contains(&name.len())
        && name.chars().all(|c| alphanumeric(c) || c == '-' || c == '.')
        && name.starts_with(alphanumeric)
        && name.ends_with(alphanumeric);
    if legal {
        return Ok(name);
    }
    Err(InvalidFlag::new(flag, name, "not a name Kubernetes accepts", "write one like windlass"))
}

#[cfg(test)]
mod tests;
