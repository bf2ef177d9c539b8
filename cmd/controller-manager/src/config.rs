//! Validated configuration: the second half of "arguments, then validated configuration, then run".
//!
//! Guarantees: pure, so that it runs before anything is opened or sent; relations between settings are checked here; an
//! error names the flag or the field that the user wrote, and the remedy; each section is destructured, so that a new
//! setting cannot be forgotten.
//!
//! It rejects values that would have no effect, except for values that command lines of kube-controller-manager contain
//! while the feature is off: durations and names of an election with `--leader-elect=false`, and addresses,
//! certificates and reviews of a server with `--secure-port=0`.

mod election;
mod serving;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use windlass::LogFormat;
use windlass::client::{ClientOptions, Identities};
use windlass::informer::{NamespaceSet, Resync};
use windlass::manager::{CacheOptions, ControllerSelection, FeatureGates, ManagerConfig};
use windlass_controllers::ControllerOptions;

use crate::settings::{
    ClusterSettings, ControllerSettings, DurationSetting, Format, InvalidInput, LoggingSettings, Namespaces,
    SettingValue, Settings, gates,
};

/// The name of this configuration in `/configz`.
const COMPONENT: &str = "config.windlass.dev";

/// The configuration of a process.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) cluster: Cluster,
    pub(crate) manager: ManagerConfig,
    pub(crate) controllers: ControllerOptions,
    /// The file with the CA to publish; `None` for the CA of the connection.
    pub(crate) root_ca_file: Option<PathBuf>,
    pub(crate) worker_threads: usize,
    pub(crate) logging: Logging,
}

/// The location of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) master: Option<String>,
}

impl Cluster {
    /// Returns whether the process sends no credentials: an address without a kubeconfig, as upstream.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.master.is_some() && self.kubeconfig.is_none()
    }
}

/// The verbosity and the format of the log.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logging {
    pub(crate) verbosity: u32,
    pub(crate) format: LogFormat,
}

impl Config {
    /// Returns the configuration of the replica with this `identity`.
    ///
    /// # Errors
    /// The first setting that contradicts the others.
    pub(crate) fn new(settings: Settings, identity: &str) -> Result<Self, InvalidInput> {
        let manager = ManagerConfig {
            flags: settings.to_flags(),
            configuration: BTreeMap::from([(COMPONENT.to_owned(), settings.to_json())]),
            ..ManagerConfig::new(identity)
        };
        let Settings { cluster, controllers, election, serving, logging } = settings;
        let (gates, namespaces) =
            (controllers.feature_gates.value.clone(), controllers.watch_namespaces.clone());
        let root_ca_file = controllers.root_ca_file.value.clone();
        let worker_threads = controllers.worker_threads.value.0 as usize;
        let (manager, controllers) = self::controllers(controllers, manager)?;
        let manager = election::configure(election, &gates, &namespaces, manager)?;
        let (cluster, client) = self::cluster(cluster);
        let manager = ManagerConfig { client, admin: serving::admin(serving)?, ..manager };
        let LoggingSettings { v, logging_format } = logging;
        let format = match logging_format.value {
            Format::Text => LogFormat::Text,
            Format::Json => LogFormat::Json,
        };
        let logging = Logging { verbosity: v.value.0, format };
        Ok(Self { cluster, manager, controllers, root_ca_file, worker_threads, logging })
    }
}

fn cluster(settings: ClusterSettings) -> (Cluster, ClientOptions) {
    let ClusterSettings {
        kubeconfig,
        master,
        kube_api_qps,
        kube_api_burst,
        field_manager,
        use_service_account_credentials,
    } = settings;
    let identities = match use_service_account_credentials.value {
        true => Identities::service_accounts(),
        false => Identities::Shared,
    };
    let (qps, burst) = (kube_api_qps.value.0, kube_api_burst.value.0);
    // The API server takes the name of the field manager from the user agent, up to the first slash.
    let user_agent = format!("{}/{}", field_manager.value.0, env!("CARGO_PKG_VERSION"));
    let client = ClientOptions { user_agent, qps, burst, identities, ..ClientOptions::default() };
    (Cluster { kubeconfig: kubeconfig.value, master: master.value.0 }, client)
}

fn controllers(
    settings: ControllerSettings,
    manager: ManagerConfig,
) -> Result<(ManagerConfig, ControllerOptions), InvalidInput> {
    let ControllerSettings {
        controllers,
        watch_namespaces,
        concurrent_deployment_syncs,
        concurrent_daemonset_syncs,
        concurrent_replicaset_syncs,
        concurrent_rc_syncs,
        concurrent_statefulset_syncs,
        concurrent_endpoint_syncs,
        endpoint_updates_batch_period,
        terminated_pod_gc_threshold,
        root_ca_file: _,
        min_resync_period,
        controller_start_interval,
        controller_shutdown_timeout,
        worker_threads: _,
        feature_gates,
    } = settings;
    let invalid = |problem| feature_gates.invalid(problem, "correct the gate or leave it out");
    let feature_gates: FeatureGates = feature_gates.value.feature_gates().map_err(invalid)?;
    let options = ControllerOptions {
        concurrent_deployment_syncs: concurrent_deployment_syncs.value.0 as usize,
        concurrent_daemonset_syncs: concurrent_daemonset_syncs.value.0 as usize,
        concurrent_replicaset_syncs: concurrent_replicaset_syncs.value.0 as usize,
        concurrent_rc_syncs: concurrent_rc_syncs.value.0 as usize,
        concurrent_statefulset_syncs: concurrent_statefulset_syncs.value.0 as usize,
        concurrent_endpoint_syncs: concurrent_endpoint_syncs.value.0 as usize,
        endpoint_updates_batch_period: endpoint_updates_batch_period.value.0,
        terminating_replicas: feature_gates.is_on(&gates::TERMINATING_REPLICAS),
        pod_deletion_cost: feature_gates.is_on(&gates::POD_DELETION_COST),
        terminated_pod_gc_threshold: terminated_pod_gc_threshold.value,
        // Read when the process starts.
        root_ca: Arc::default(),
        limited_to_namespaces: !watch_namespaces.value.0.is_empty(),
    };
    let manager = ManagerConfig {
        controllers: ControllerSelection::parse(controllers.value.0),
        cache: CacheOptions {
            resync: resync(&min_resync_period)?,
            namespaces: namespaces(&watch_namespaces)?,
            ..CacheOptions::default()
        },
        start_interval: controller_start_interval.value.0,
        shutdown_timeout: controller_shutdown_timeout.value.0,
        feature_gates,
        ..manager
    };
    Ok((manager, options))
}

fn namespaces(names: &SettingValue<Namespaces>) -> Result<Option<NamespaceSet>, InvalidInput> {
    // An empty variable of a script must not widen the scope of the process.
    if names.is_flag() && names.value.0.is_empty() {
        return Err(names.invalid("the list is empty", "leave the flag out for all namespaces"));
    }
    Ok((!names.value.0.is_empty()).then(|| NamespaceSet::from_names(names.value.0.iter().cloned())))
}

fn resync(period: &SettingValue<DurationSetting>) -> Result<Duration, InvalidInput> {
    let DurationSetting(duration) = period.value;
    if !duration.is_zero() && duration < Resync::MIN {
        return Err(period.invalid("resyncs would be too frequent", "write 1s or more, or 0s for no resyncs"));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests;
