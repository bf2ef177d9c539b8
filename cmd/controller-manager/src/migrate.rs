//! `windlass migrate check`: reports what must change before windlass can run its controllers in place of
//! kube-controller-manager.
//!
//! Guarantees: nothing in the cluster changes, because it only reads and sends access reviews; the report is on stdout;
//! exit code 0 if windlass can start now, 1 with one line on stderr if a step remains or the cluster cannot be read.
//! With `--wait`, the report follows as soon as each Pod that ran one of the controllers has other flags.
//!
//! It cannot see a kube-controller-manager that runs in no Pod of kube-system, such as that of k3s or of a managed
//! control plane. If no such Pod exists, or none can be the leader, it therefore reports a step, until the user states
//! that none runs elsewhere.

mod cluster;
mod command;
mod flags;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use tokio::runtime::Builder;
use windlass::client::{load_config, one_line};
use windlass::env::Env;
use windlass::manager::{ManagerConfig, ManifestOptions, Manifests};
use windlass_controllers::ControllerOptions;

use self::cluster::Cluster;
use self::report::{Check, Expected};
use crate::config::Config;
use crate::manifests::registry;
use crate::settings::{InvalidInput, SettingSources, Settings, built_in};

/// The name of the subcommand.
pub(crate) const NAME: &str = "migrate";
/// The name of its only subcommand.
pub(crate) const CHECK: &str = "check";

/// The user of the ServiceAccount that `windlass manifests` creates by default.
const DEFAULT_ACCOUNT: &str = "system:serviceaccount:kube-system:windlass";

/// Time limit for all requests. A check sends about 200 small requests.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Pause between two reads of `--wait`. Until windlass starts, no process reconciles.
const WAIT_INTERVAL: Duration = Duration::from_millis(500);

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
/// still runs, the flag that disables them there, other settings to carry over, and missing permissions.
#[derive(Clone, Debug, Args)]
#[command(after_help = "The settings are those that windlass will run with.")]
pub(crate) struct Options {
    /// User whose permissions are checked: the one that windlass will have.
    #[arg(long, value_name = "USER", default_value = DEFAULT_ACCOUNT)]
    account: String,

    /// States that no kube-controller-manager runs outside of the Pods of kube-system. Without this flag, a step
    /// remains if there is no such Pod, or none on the node of the leader.
    #[arg(long)]
    assert_no_other_kube_controller_manager: bool,

    /// States that this kube-controller-manager runs none of the controllers, if its Pod does not show its flags. Can
    /// be repeated.
    #[arg(long, value_name = "POD")]
    assert_disabled_in: Vec<String>,

    /// Waits until no kube-controller-manager runs one of the controllers, for a command that then starts windlass.
    /// Fails at once if another step remains. Start it before the first restart.
    #[arg(long)]
    wait: bool,
}

impl Options {
    /// Reads the cluster and writes the report to stdout.
    ///
    /// # Errors
    /// The cluster cannot be read, or steps remain.
    pub(crate) fn check(&self, settings: Settings) -> Result<()> {
        let flags = settings.to_flags();
        let Config { cluster, manager, controllers, .. } = Config::new(settings, NAME)?;
        let expected = self.expected(&manager, &controllers, flags)?;
        let provider = rustls::crypto::ring::default_provider().install_default();
        provider.map_err(|_| anyhow!("cannot install the TLS provider: the process has one already"))?;
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
        let check = runtime.block_on(async {
            let cluster = load_config(cluster.kubeconfig.as_deref(), cluster.master.as_deref()).await?;
            let server = cluster.cluster_url.to_string();
            let client = kube::Client::try_from(cluster).map_err(|error| anyhow!("{}", one_line(&error)))?;
            self.read(&Cluster { env: Env::system(NAME), client, server }, expected).await
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

    /// Reads the cluster, with `--wait` until no kube-controller-manager runs one of the controllers. A step that a
    /// restart cannot complete ends the wait before it begins: afterwards no process would act.
    async fn read(&self, cluster: &Cluster, expected: Expected) -> Result<Check> {
        let mut check = Check::new(expected);
        limited(&cluster.env, cluster.read(&mut check)).await?;
        limited(&cluster.env, cluster.review(&mut check)).await?;
        ensure_stated_pods_exist(&check)?;
        if !self.wait || check.needs_more_than_restarts() {
            return Ok(check);
        }
        let mut shown = String::new();
        let mut restarts = BTreeSet::new();
        while let Some(reason) = check.reason_to_wait(&mut restarts) {
            show(&mut shown, reason)?;
            cluster.env.sleep(WAIT_INTERVAL).await;
            // A restart of the control plane can include the API server.
            while let Err(error) = limited(&cluster.env, cluster.read(&mut check)).await {
                show(&mut shown, error.to_string())?;
                cluster.env.sleep(WAIT_INTERVAL).await;
            }
        }
        Ok(check)
    }

    /// Returns the controllers and permissions of a process with this configuration and these flags.
    fn expected(
        &self,
        manager: &ManagerConfig,
        controllers: &ControllerOptions,
        mut flags: BTreeMap<String, String>,
    ) -> Result<Expected> {
        let registry = registry(controllers)?;
        let manifests = Manifests::of(&registry, manager, &ManifestOptions::new("kube-system"))
            .map_err(|error| anyhow!("cannot derive the required permissions: {error}"))?;
        let lease = manager.election.as_ref().map(|election| {
            let namespace = election.lease_namespace.as_deref().unwrap_or("kube-system");
            (namespace.to_owned(), election.lease_name.clone())
        });
        flags.retain(|flag, _| CARRIED_SETTINGS.contains(&flag.as_str()));
        Ok(Expected {
            // With namespaces, windlass disables some controllers by default; kube-controller-manager does not.
            known: built_in(),
            controllers: manager.controllers.resolve(&registry.descriptors())?,
            lease,
            manifests,
            account: manager.name.clone(),
            user: self.account.clone(),
            has_no_hidden_upstream: self.assert_no_other_kube_controller_manager,
            stated: self.assert_disabled_in.iter().cloned().collect(),
            settings: flags,
        })
    }
}

fn ensure_stated_pods_exist(check: &Check) -> Result<()> {
    let Some(name) = check.stray_statement() else { return Ok(()) };
    Err(anyhow!(
        "--assert-disabled-in={name}: no kube-controller-manager runs in a Pod of this name in kube-system; name a Pod that \
         the report of a check without this flag names"
    ))
}

/// Writes a reason to wait to stderr, unless it was the last one.
fn show(shown: &mut String, reason: String) -> Result<()> {
    if *shown != reason {
        writeln!(std::io::stderr(), "waiting: {reason}").context("cannot write the reason to wait")?;
        *shown = reason;
    }
    Ok(())
}

/// Returns the result of requests, unless they exceed the time limit.
async fn limited<T>(env: &Env, requests: impl Future<Output = Result<T>>) -> Result<T> {
    let result = env.timeout(TIME_LIMIT, requests).await;
    result.map_err(|_| {
        anyhow!(
            "the API server did not answer all requests within {TIME_LIMIT:?}; check its load and try again"
        )
    })?
}

/// Returns the normalized value of one flag, as windlass reads it.
fn normalized(flag: &'static str, text: &str) -> Result<Option<String>, InvalidInput> {
    let flags = BTreeMap::from([(flag, text.to_owned())]);
    let settings = Settings::read(&SettingSources { flags, file: BTreeMap::new() })?;
    Ok(settings.to_flags().remove(flag))
}

#[cfg(test)]
mod tests;
