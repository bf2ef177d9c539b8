//! `windlass manifests`: prints the objects that a process with these settings needs in its cluster.
//!
//! Guarantees: no cluster is needed, and nothing is opened except the file in `--config`; the roles contain exactly the
//! permissions that the process uses with these settings.

use anyhow::{Result, anyhow};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use windlass::manager::{ManifestOptions, ManifestPart, Manifests, Registry};
use windlass_controllers::ControllerOptions;

use crate::config::Config;
use crate::settings::{ObjectName, Settings, Value as _};

/// The name of the subcommand.
pub(crate) const NAME: &str = "manifests";

/// Prints ServiceAccounts, roles and bindings of a process with these settings, as YAML for `kubectl apply -f -`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The settings are those of the process: a role contains the permissions that they require."
)]
pub(crate) struct Options {
    /// `all`, `crd`, `rbac` or `webhook`.
    #[arg(value_name = "PART", default_value = "all")]
    part: ManifestPart,

    /// Namespace of the process and its ServiceAccount.
    #[arg(long, value_name = "NAME", default_value = "kube-system", value_parser = namespace)]
    namespace: String,

    /// One role for each controller, which is bound to the ServiceAccount of the process unless controllers use their
    /// own.
    #[arg(long)]
    per_controller: bool,

    /// User of the process instead of a ServiceAccount: the common name in the client certificate of a static Pod.
    #[arg(long, value_name = "USER", value_parser = NonEmptyStringValueParser::new())]
    user: Option<String>,
}

impl Options {
    /// Returns the manifests of a process with these settings as YAML.
    ///
    /// # Errors
    /// The settings are invalid.
    pub(crate) fn print(&self, settings: Settings) -> Result<String> {
        let Self { part, namespace, per_controller, user } = self;
        let config = Config::new(settings, NAME)?;
        let registry = registry(&config.controllers)?;
        let options = ManifestOptions {
            per_controller: *per_controller,
            user: user.clone(),
            ..ManifestOptions::new(namespace.clone())
        };
        let manifests = Manifests::of(&registry, &config.manager, &options)
            .map_err(|error| anyhow!("cannot generate manifests: {error}"))?;
        Ok(manifests.only(*part).to_yaml())
    }
}

/// Returns the registry of a process with these options.
///
/// # Errors
/// Two controllers have one name.
pub(crate) fn registry(options: &ControllerOptions) -> Result<Registry> {
    let mut registry = Registry::new();
    for registration in windlass_controllers::registrations(options) {
        registry.register(registration)?;
    }
    Ok(registry)
}

fn namespace(text: &str) -> Result<String, String> {
    ObjectName::parse(text).map(|name| name.0).map_err(|error| error.at(text).to_string())
}
