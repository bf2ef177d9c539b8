//! `windlass migrate check`: reports what must change before windlass can run its controllers in place of
//! kube-controller-manager.
//!
//! Guarantees: nothing in the cluster changes, because it only reads and sends access reviews; the report is on stdout;
//! exit code 0 if windlass can start now, 1 with one line on stderr if a step remains or the cluster cannot be read.
//!
//! It cannot see a kube-controller-manager that runs in no Pod of kube-system, such as that of k3s or of a managed control
//! plane. Without any such Pod it therefore reports a step, until the user states that there is none.

mod cluster;
mod flags;
mod report;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use tokio::runtime::Builder;
use windlass::client::{load_config, one_line};
use windlass::controller::{Descriptor, Registration};
use windlass::env::Env;
use windlass::manager::{ManifestOptions, Manifests, Registry};
use windlass_controllers::ControllerOptions;

use self::cluster::Cluster;
use self::report::Expected;
use crate::config::Config;
use crate::settings::{InvalidInput, SettingSources, Settings};

/// The name of the subcommand.
pub(crate) const NAME: &str = "migrate";
/// The name of its only subcommand.
pub(crate) const CHECK: &str = "check";

/// Time limit for all requests. A check sends about 200 small requests.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Settings of kube-controller-manager that stay in effect only if windlass gets the same values.
const CARRIED_SETTINGS: [&str; 14] = [
    "concurrent-daemonset-syncs",
    "concurrent-deployment-syncs",
    "concurrent-endpoint-syncs",
    "concurrent-rc-syncs",
    "concurrent-replicaset-syncs",
    "concurrent-statefulset-syncs",
    "endpoint-updates-batch-period",
    "feature-gates",
    "kube-api-burst",
    "kube-api-qps",
    "min-resync-period",
    "root-ca-file",
    "terminated-pod-gc-threshold",
    "use-service-account-credentials",
];

/// Checks whether windlass with these settings can take over its controllers: which of them kube-controller-manager
/// still runs, the flag that disables them there, other settings to carry over, and missing rights.
#[derive(Clone, Debug, Args)]
#[command(after_help = "The settings are those that windlass will run with.")]
pub(crate) struct Options {
    /// User whose rights are checked: the one that windlass will have.
    #[arg(long = "as", value_name = "USER", default_value = "system:serviceaccount:kube-system:windlass")]
    user: String,

    /// No kube-controller-manager runs outside of the Pods of kube-system. Without this flag, a cluster that shows no such
    /// Pod is not ready.
    #[arg(long)]
    no_hidden_kube_controller_manager: bool,
}

impl Options {
    /// Reads the cluster and writes the report to stdout.
    ///
    /// # Errors
    /// The cluster cannot be read, or steps remain.
    pub(crate) fn check(&self, settings: Settings) -> Result<()> {
        let expected = expected(settings.clone())?;
        let config = Config::new(settings, NAME)?;
        let provider = rustls::crypto::ring::default_provider().install_default();
        provider.map_err(|_| anyhow!("a TLS provider is installed already"))?;
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
        let check = runtime.block_on(async {
            let cluster = config.cluster;
            let cluster = load_config(cluster.kubeconfig.as_deref(), cluster.master.as_deref()).await?;
            let server = cluster.cluster_url.to_string();
            let client = kube::Client::try_from(cluster).map_err(|error| anyhow!("{}", one_line(&error)))?;
            let env = Env::system(NAME);
            let (user, acknowledged) = (self.user.clone(), self.no_hidden_kube_controller_manager);
            let reader = Cluster { env: env.clone(), client, server, acknowledged, user };
            let check = env.timeout(TIME_LIMIT, reader.check(expected)).await;
            check.map_err(|_| anyhow!("the API server did not answer all requests within {TIME_LIMIT:?}"))?
        });
        runtime.shutdown_background();
        let check = check?;
        std::io::stdout().write_all(check.to_string().as_bytes()).context("cannot write the report")?;
        match check.remaining_steps() {
            0 => Ok(()),
            1 => Err(anyhow!("1 step remains before windlass can start; the report names it")),
            steps => Err(anyhow!("{steps} steps remain before windlass can start; the report names them")),
        }
    }
}

/// Returns the controllers and rights of windlass with these settings.
fn expected(settings: Settings) -> Result<Expected> {
    let flags = settings.to_flags();
    let config = Config::new(settings, NAME)?;
    let mut registry = Registry::new();
    for registration in windlass_controllers::registrations(&config.controllers) {
        registry.register(registration)?;
    }
    let controllers = config.manager.controllers.resolve(&registry.descriptors())?;
    // With namespaces, windlass disables some controllers by default; kube-controller-manager does not.
    let upstream = windlass_controllers::registrations(&ControllerOptions::default());
    let known: Vec<Descriptor> = upstream.iter().map(Registration::descriptor).collect();
    let lease = config.manager.election.as_ref().map(|election| {
        let namespace = election.lease_namespace.as_deref().unwrap_or("kube-system");
        (namespace.to_owned(), election.lease_name.clone())
    });
    let manifests = Manifests::of(&registry, &config.manager, &ManifestOptions::new("kube-system"))
        .map_err(|error| anyhow!("cannot derive the required rights: {error}"))?;
    let carried = flags.into_iter().filter(|(flag, _)| CARRIED_SETTINGS.contains(&flag.as_str())).collect();
    let account = config.manager.name.clone();
    Ok(Expected { known, controllers, lease, manifests, account, settings: carried })
}

/// Returns the normalized value of one flag, as windlass reads it.
fn normalized(flag: &'static str, text: &str) -> Result<Option<String>, InvalidInput> {
    let flags = BTreeMap::from([(flag, text.to_owned())]);
    let settings = Settings::read(&SettingSources { flags, file: BTreeMap::new() })?;
    Ok(settings.to_flags().remove(flag))
}

#[cfg(test)]
mod tests;
