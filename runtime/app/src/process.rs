//! The steps of a program: arguments, configuration, cluster, run.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::{Ipv6Addr, SocketAddr};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tracing_subscriber::EnvFilter;
use windlass_admin::{AdminConfig, AdminError, Tls};
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
        let mut config = config(self.name, "manifests", &asked.run, true)?;
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
        let (filter, ignored) = filter(std::env::var_os("RUST_LOG"));
        let log = match Log::install(&env, self.name, &filter, run.log_format) {
            // A program can install its own subscriber before.
            Err(LogError::Installed(_)) => None,
            log => Some(log?),
        };
        if let Some(value) = ignored {
            tracing::warn!(?value, filter, "RUST_LOG is not a valid filter; using the default");
        }
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
        let mut config = config(self.name, &identity(&env), &run, in_pod())?;
        let Cluster { config: cluster, source } = infer_config(run.kubeconfig.as_deref()).await?;
        self.configure.into_iter().for_each(|change| change(&mut config));
        let server = cluster.cluster_url.to_string();
        let origin = source.to_string();
        tracing::info!(identity = config.identity, server, source = %origin, "{} starting", self.name);
        let mut registry = registry(self.registrations)?;
        if run.install_crds {
            // Conversions name the Service in the namespace of the process.
            let options = ManifestOptions::new(cluster.default_namespace.clone());
            let crds = Manifests::of(&registry, &config, &options)?.crds;
            install(&mut registry, crds)?;
        }
        let serves = |files: &Tls| config.admin.as_ref().is_some_and(|admin| admin.tls == *files);
        let files = run.tls.setting().filter(serves);
        let manager = Manager::new(env, config, cluster)?.with_registry(registry);
        manager.run(signals).await.map_err(|error| explained(error, files, server, origin))
    }
}

/// Adds the address of an API server that does not answer, and the flags of the certificate if the server uses their
/// files.
fn explained(error: ManagerError, files: Option<Tls>, server: String, origin: String) -> Error {
    match (error, files) {
        (error @ ManagerError::ApiServerUnreachable { .. }, _) => {
            Error::ApiServer { server, origin, source: Box::new(error) }
        }
        (ManagerError::Admin(AdminError::Tls(source)), Some(Tls::Files { certificate, key })) => {
            Error::Certificate { certificate, key, source: Box::new(source) }
        }
        (error, _) => error.into(),
    }
}

/// Returns the log filter, and the value of `RUST_LOG` if it is ignored. A value without a directive would hide
/// warnings, so it has the effect of an unset variable.
fn filter(variable: Option<OsString>) -> (String, Option<OsString>) {
    let default = || FILTER.to_owned();
    let is_blank = |text: &str| text.split(',').all(|directive| directive.trim().is_empty());
    let Some(value) = variable else { return (default(), None) };
    match value.to_str() {
        Some(text) if is_blank(text) => (default(), None),
        Some(text) if EnvFilter::try_new(text).is_ok() => (text.to_owned(), None),
        _ => (default(), Some(value)),
    }
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
fn config(name: &str, identity: &str, run: &Run, in_pod: bool) -> Result<ManagerConfig, Error> {
    let mut config = ManagerConfig::new(identity).named(name);
    config.election = config.election.filter(|_| run.leader_elect);
    if let Some(election) = &mut config.election {
        election.lease_namespace.clone_from(&run.lease_namespace);
    }
    if !run.watch_namespaces.is_empty() {
        config.cache.namespaces = Some(NamespaceSet::from_names(run.watch_namespaces.iter().cloned()));
    }
    config.admin = admin(run, in_pod)?;
    config.webhooks = Some(webhooks(name, &run.webhooks));
    Ok(config)
}

/// Returns the configuration of the server for probes and metrics.
fn admin(run: &Run, in_pod: bool) -> Result<Option<AdminConfig>, Error> {
    let files = run.tls.setting();
    // In a Pod the network limits connections, and delegated access limits reads.
    let in_pod = in_pod.then_some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8443)));
    let Some(address) = run.address.or(in_pod) else {
        return match files {
            None => Ok(None),
            Some(_) => Err(Error::Argument(
                "--tls-cert-file: outside a Pod nothing is served without --address; set --address, or omit the flag"
                    .to_owned(),
            )),
        };
    };
    Ok(Some(match files {
        Some(tls) => AdminConfig { tls, ..AdminConfig::new(address) },
        None if address.ip().to_canonical().is_loopback() => AdminConfig::local(address),
        None => AdminConfig::new(address),
    }))
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
    fn unreachable_api_server_is_named_with_its_origin() {
        let error = ManagerError::ApiServerUnreachable {
            waited: std::time::Duration::from_secs(10),
            last: "connection refused".to_owned(),
        };
        let error =
            explained(error, None, "https://10.0.0.1:6443/".to_owned(), "context prod of a".to_owned());
        let expected = "the API server did not report a healthy /healthz within 10s: connection refused; check the address \
                        https://10.0.0.1:6443/ (context prod of a), its CA, and the state of the API server";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn log_filter_without_directives_is_the_default() {
        use std::os::unix::ffi::OsStringExt as _;
        let of = |text: &str| filter(Some(text.into()));
        assert_eq!(of("warn,sites=debug"), ("warn,sites=debug".to_owned(), None));
        let default = || FILTER.to_owned();
        assert_eq!(filter(None), (default(), None));
        for blank in ["", " ", ",", " , "] {
            assert_eq!(of(blank), (default(), None), "{blank:?}");
        }
        assert_eq!(of("sites=loud"), (default(), Some("sites=loud".into())));
        let invalid = OsString::from_vec(vec![0xff]);
        assert_eq!(filter(Some(invalid.clone())), (default(), Some(invalid)));
    }

    #[test]
    fn configurations_of_webhooks_have_the_name_of_the_flag() {
        for (words, name) in [("", "sites"), ("--webhook-configuration=blue", "blue")] {
            let words = words.split_whitespace().map(OsString::from).collect();
            let Ok(Command::Run(run)) = Command::parse("sites", words) else { panic!("it is a command") };
            let configured = config("sites", "a", &run, false).expect("valid arguments");
            let webhooks = configured.webhooks.expect("webhooks");
            assert_eq!((&*webhooks.configuration, &*webhooks.service), (name, "sites-webhook"));
        }
    }

    #[test]
    fn certificate_files_select_tls_and_delegated_access_on_every_address() {
        let served = |words: &str, in_pod| {
            let words = words.split_whitespace().map(OsString::from).collect();
            let Ok(Command::Run(run)) = Command::parse("sites", words) else { panic!("it is a command") };
            admin(&run, in_pod)
        };
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let files = "--tls-cert-file=/c --tls-private-key-file=/k";
        let tls = || Tls::Files { certificate: "/c".into(), key: "/k".into() };
        let secured = |at: &str| AdminConfig { tls: tls(), ..AdminConfig::new(address(at)) };
        for (words, in_pod, expected) in [
            ("", false, None),
            ("", true, Some(AdminConfig::new(address("[::]:8443")))),
            ("--address=127.0.0.1:9", true, Some(AdminConfig::local(address("127.0.0.1:9")))),
            (files, true, Some(secured("[::]:8443"))),
            (&format!("{files} --address=127.0.0.1:9"), false, Some(secured("127.0.0.1:9"))),
        ] {
            assert_eq!(served(words, in_pod).expect(words), expected, "{words}");
        }
        let error = served(files, false).expect_err("nothing is served").to_string();
        assert!(error.starts_with("--tls-cert-file: ") && error.contains("set --address"), "{error}");
    }

    #[test]
    fn roles_grant_election_and_reviews_only_to_programs_that_have_them() {
        let all = manifests("manifests rbac");
        assert!(all.contains("leases") && all.contains("tokenreviews"), "{all}");
        let alone = manifests("manifests rbac --leader-elect=false");
        assert!(!alone.contains("leases") && alone.contains("tokenreviews"), "{alone}");
        let local = manifests("manifests rbac --address=127.0.0.1:8080");
        assert!(local.contains("leases") && !local.contains("tokenreviews"), "{local}");
        let secured = "manifests rbac --address=127.0.0.1:8443 --tls-cert-file=/c --tls-private-key-file=/k";
        assert!(manifests(secured).contains("tokenreviews"), "the server delegates access");
    }
}
