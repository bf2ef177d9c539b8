//! Settings given meaning: the high half of "arguments, then validated configuration, then run".
//!
//! Guarantees: pure, so it is done before anything is opened or sent; every refusal names the flag or the place in the
//! file, the value and what to write instead; relations between settings are checked here too; a setting that exists
//! cannot be forgotten, since each section is taken apart by name.
//!
//! It refuses values that would be accepted and then ignored, but for what command lines of kube-controller-manager carry
//! along where it is switched off: durations and names of an election with `--leader-elect=false`, and addresses,
//! certificates and reviews of a server with `--secure-port=0`.

mod controllers;
mod election;
mod serving;

use std::collections::BTreeMap;
use std::path::PathBuf;

use windlass::client::{ClientOptions, Identities};
use windlass::controller::Descriptor;
use windlass::manager::ManagerConfig;
use windlass_controllers::Options;

use crate::feature_gates;
use crate::settings::{ClusterSettings, Format, InvalidSetting, LoggingSettings, Settings};

/// What this program's part of `/configz` is called.
const COMPONENT: &str = "config.windlass.dev";

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
        let manager = ManagerConfig {
            flags: settings.to_flags(),
            configuration: BTreeMap::from([(COMPONENT.to_owned(), settings.to_json())]),
            ..ManagerConfig::new(identity)
        };
        let Settings { cluster, controllers, election, serving, logging } = settings;
        let switches = controllers.feature_gates.clone();
        let gates = feature_gates::read(&switches)?;
        let (manager, options) = controllers::of(controllers, known, &gates, manager)?;
        let manager = election::of(election, (&gates, &switches), manager)?;
        let (cluster, client) = self::cluster(cluster);
        let manager = ManagerConfig { client, admin: serving::of(serving)?, feature_gates: gates, ..manager };
        Ok(Self { cluster, manager, controllers: options, logging: self::logging(logging) })
    }
}

fn cluster(settings: ClusterSettings) -> (Cluster, ClientOptions) {
    let ClusterSettings { kubeconfig, master, kube_api_qps, kube_api_burst, use_service_account_credentials } =
        settings;
    let (qps, burst) = (kube_api_qps.value.0, kube_api_burst.value.0);
    let identities = match use_service_account_credentials.value {
        true => Identities::service_accounts(),
        false => Identities::Shared,
    };
    let client = ClientOptions { qps, burst, identities, ..ClientOptions::default() };
    (Cluster { kubeconfig: kubeconfig.value.0, master: master.value.0 }, client)
}

fn logging(settings: LoggingSettings) -> Logging {
    let LoggingSettings { v, logging_format } = settings;
    Logging { verbosity: u8::try_from(v.value.0).unwrap_or(u8::MAX), format: logging_format.value }
}

#[cfg(test)]
mod tests;
