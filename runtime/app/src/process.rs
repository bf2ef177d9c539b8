//! The steps of a program: arguments, configuration, cluster, run.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::{Ipv6Addr, SocketAddr};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use windlass_admin::AdminConfig;
use windlass_client::{Cluster, infer_config};
use windlass_controller::{Registration, WebhookCertificates, WebhookConfig};
use windlass_env::Env;
use windlass_informer::NamespaceSet;
use windlass_manager::{
    Manager, ManagerConfig, ManagerError, ManifestOptions, Manifests, Registry, ShutdownSignals,
};

use crate::arguments::{self, Command, Run};
use crate::error::Error;
use crate::install::CrdInstaller;
use crate::log::{Log, LogError};
use crate::{App, identity};

/// The log filter without `RUST_LOG`. Warnings of kube's client are disabled because they quote whole responses.
const FILTER: &str = "info,kube_client=error";

/// Runs the program with these arguments.
pub(crate) async fn run(app: App, words: Vec<OsString>) -> Result<(), Error> {
    match Command::parse(app.name, words)? {
        Command::Help(text) => print(&text),
        Command::Manifests(asked) => print(&app.manifests(&asked)?),
        Command::Run(run) => app.manage(run).await,
    }
}

impl App {
    pub(crate) fn manifests(self, asked: &arguments::Manifests) -> Result<String, Error> {
        let mut options = ManifestOptions::new(asked.namespace.as_deref().unwrap_or("default"));
        options.per_controller = asked.per_controller;
        let mut config = config(self.name, "manifests", &asked.run, true);
        self.configure.into_iter().for_each(|change| change(&mut config));
        let mut registry = registry(self.registrations)?;
        if asked.run.install_crds {
            install(&mut registry, Vec::new())?;
        }
        let manifests = Manifests::of(&registry, &config, &options)?;
        Ok(manifests.only(asked.part).to_yaml())
    }

    async fn manage(self, run: Run) -> Result<(), Error> {
        let env = Env::system(self.name);
        let log = match Log::install(&env, self.name, &filter(), run.log_format) {
            // A program can install its own subscriber before.
            Err(LogError::Installed(_)) => None,
            log => Some(log?),
        };
        let outcome = self.run_manager(env, run).await;
        if let Some(log) = log {
            log.close();
        }
        outcome
    }

    async fn run_manager(self, env: Env, run: Run) -> Result<(), Error> {
        // Fails if the process has installed a provider, which is then used.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let signals = ShutdownSignals::from_process(&env)
            .map_err(|source| Error::System { what: "install signal handlers", source })?;
        let Cluster { config: cluster, source } = infer_config(run.kubeconfig.as_deref()).await?;
        let mut config = config(self.name, &identity(&env), &run, in_pod());
        self.configure.into_iter().for_each(|change| change(&mut config));
        let server = cluster.cluster_url.to_string();
        tracing::info!(identity = config.identity, server, %source, "{} starting", self.name);
        let mut registry = registry(self.registrations)?;
        if run.install_crds {
            // Conversions name the Service in the namespace of the process.
            let options = ManifestOptions::new(cluster.default_namespace.clone());
            let crds = Manifests::of(&registry, &config, &options)?.crds;
            install(&mut registry, crds)?;
        }
        Ok(Manager::new(env, config, cluster)?.with_registry(registry).run(signals).await?)
    }
}

/// Returns the log filter.
fn filter() -> String {
    std::env::var("RUST_LOG").unwrap_or_else(|_| FILTER.to_owned())
}

fn registry(registrations: Vec<Registration>) -> Result<Registry, Error> {
    let mut registry = Registry::new();
    registrations.into_iter().try_for_each(|one| registry.register(one)).map_err(ManagerError::from)?;
    Ok(registry)
}

/// Registers the installer of CRDs, which runs at the start.
fn install(registry: &mut Registry, crds: Vec<CustomResourceDefinition>) -> Result<(), Error> {
    let installer = Registration::runnable::<CrdInstaller>(crds);
    Ok(registry.register(installer).map_err(ManagerError::from)?)
}

/// Returns whether the process runs in a Pod, regardless of its cluster.
fn in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Returns the configuration for the arguments.
fn config(name: &str, identity: &str, run: &Run, in_pod: bool) -> ManagerConfig {
    let mut config = ManagerConfig::new(identity).named(name);
    config.election = config.election.filter(|_| run.leader_elect);
    if let Some(election) = &mut config.election {
        election.lease_namespace.clone_from(&run.lease_namespace);
    }
    if !run.watch_namespaces.is_empty() {
        config.cache.namespaces = Some(NamespaceSet::of(run.watch_namespaces.iter().cloned()));
    }
    // In a Pod the network limits connections, and delegated access limits reads.
    let in_pod = in_pod.then_some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8443)));
    config.admin = run.address.or(in_pod).map(|address| match address.ip().to_canonical().is_loopback() {
        true => AdminConfig::local(address),
        false => AdminConfig::new(address),
    });
    config.webhooks = Some(webhooks(name, &run.webhooks));
    config
}

fn webhooks(name: &str, options: &arguments::Webhooks) -> WebhookConfig {
    let arguments::Webhooks { address, url, configuration, certificate, key, client_ca } = options;
    let mut config = WebhookConfig::of_process(name);
    if let Some(configuration) = configuration {
        config.configuration.clone_from(configuration);
    }
    config.address = address.unwrap_or(config.address);
    config.url.clone_from(url);
    config.client_ca.clone_from(client_ca);
    if let (Some(certificate), Some(key)) = (certificate, key) {
        config.certificates =
            WebhookCertificates::Files { certificate: certificate.clone(), key: key.clone() };
    }
    config
}

fn print(text: &str) -> Result<(), Error> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|source| Error::System { what: "write to stdout", source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifests(words: &str) -> String {
        let words = words.split_whitespace().map(OsString::from).collect();
        let Ok(Command::Manifests(asked)) = Command::parse("sites", words) else { panic!("it is a command") };
        App::new("sites").manifests(&asked).expect("nothing is registered")
    }

    #[test]
    fn configurations_of_webhooks_have_the_name_of_the_flag() {
        for (words, name) in [("", "sites"), ("--webhook-configuration=blue", "blue")] {
            let words = words.split_whitespace().map(OsString::from).collect();
            let Ok(Command::Run(run)) = Command::parse("sites", words) else { panic!("it is a command") };
            let webhooks = config("sites", "a", &run, false).webhooks.expect("webhooks");
            assert_eq!((&*webhooks.configuration, &*webhooks.service), (name, "sites-webhook"));
        }
    }

    #[test]
    fn roles_grant_election_and_reviews_only_to_programs_that_have_them() {
        let all = manifests("manifests rbac");
        assert!(all.contains("leases") && all.contains("tokenreviews"), "{all}");
        let alone = manifests("manifests rbac --leader-elect=false");
        assert!(!alone.contains("leases") && alone.contains("tokenreviews"), "{alone}");
        let local = manifests("manifests rbac --address=127.0.0.1:8080");
        assert!(local.contains("leases") && !local.contains("tokenreviews"), "{local}");
    }
}
