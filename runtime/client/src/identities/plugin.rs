//! Runs a credential plugin, as `client.authentication.k8s.io` describes it.
//!
//! This replaces kube's implementation: kube returns the token of a plugin but not its certificate, runs the plugin
//! once for each of them, and connects without a certificate if the plugin fails.

use std::{
    io::IsTerminal as _,
    process::{Command, Stdio},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;

use crate::error::CredentialsError;

/// The credential that a plugin returns: a token, a client certificate with its key, or both. It has no `Debug` because
/// all of it is secret.
#[derive(PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) token: Option<String>,
    pub(crate) pair: Option<Pair>,
    pub(crate) expires_at: Option<Timestamp>,
}

/// A client certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    certificate: String,
    key: String,
}

impl Pair {
    /// Sets this as the client certificate of a configuration.
    pub(crate) fn apply(&self, auth: &mut AuthInfo) {
        auth.client_certificate_data = Some(BASE64_STANDARD.encode(&self.certificate));
        auth.client_key_data = Some(BASE64_STANDARD.encode(&self.key).into());
    }
}

#[derive(Deserialize)]
struct Output {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<Timestamp>,
}

/// Runs the plugin and waits until it exits, without a time limit.
///
/// # Errors
/// If it cannot be started, fails, or prints neither a token nor a certificate with its key.
pub(crate) fn run(exec: &ExecConfig) -> Result<Credential, CredentialsError> {
    let output = command(exec)?.output().map_err(|error| CredentialsError::PluginNotStarted(error.kind()))?;
    if !output.status.success() {
        return Err(CredentialsError::PluginFailed { code: output.status.code() });
    }
    // client-go accepts YAML, which includes JSON.
    let Output { status } =
        serde_saphyr::from_slice(&output.stdout).map_err(|_| CredentialsError::PluginOutput)?;
    let pair = match (status.client_certificate_data, status.client_key_data) {
        (Some(certificate), Some(key)) => Some(Pair { certificate, key }),
        (None, None) => None,
        _ => return Err(CredentialsError::PluginOutput),
    };
    if status.token.is_none() && pair.is_none() {
        return Err(CredentialsError::PluginOutput);
    }
    Ok(Credential { token: status.token, pair, expires_at: status.expiration_timestamp })
}

fn command(exec: &ExecConfig) -> Result<Command, CredentialsError> {
    let cluster = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info);
    if exec.provide_cluster_info && cluster.is_none() {
        return Err(CredentialsError::PluginConfiguration);
    }
    let mut command = Command::new(exec.command.as_ref().ok_or(CredentialsError::PluginConfiguration)?);
    let is_interactive = match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) => true,
        Some(ExecInteractiveMode::IfAvailable) | None => std::io::stdin().is_terminal(),
    };
    let mut spec = json!({ "interactive": is_interactive });
    if let Some(cluster) = cluster {
        spec["cluster"] = json!(cluster);
    }
    let info = json!({ "kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec });
    let variables = exec.env.iter().flatten().filter_map(|it| Some((it.get("name")?, it.get("value")?)));
    command.args(exec.args.iter().flatten()).envs(variables).env("KUBERNETES_EXEC_INFO", info.to_string());
    for variable in exec.drop_env.iter().flatten() {
        command.env_remove(variable);
    }
    // Standard error can contain secrets: it is shown at a terminal and never logged.
    let (input, errors) =
        if is_interactive { (Stdio::inherit(), Stdio::inherit()) } else { (Stdio::null(), Stdio::null()) };
    command.stdin(input).stderr(errors);
    Ok(command)
}
