//! Errors of credentials, without secrets.
//!
//! kube's errors can quote a command, its environment and its output. They are replaced where they occur, so that no
//! caller that logs an error with its causes receives them.

use std::{error::Error, io, path::PathBuf};

use kube::client::AuthError;

use super::chain::find;

/// Credentials cannot be obtained or sent. Contains no secret, no command and no output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The credential plugin failed.
    #[error("credential plugin failed ({})", ended(*.code))]
    PluginFailed {
        /// The exit status; `None` if a signal killed the plugin.
        code: Option<i32>,
    },
    /// The credential plugin could not be started.
    #[error("cannot start the credential plugin: {0}; check exec.command in the kubeconfig")]
    PluginNotStarted(io::ErrorKind),
    /// The output of the credential plugin is not a credential, or is incomplete.
    #[error("credential plugin printed no usable credential; run its command to see the output")]
    PluginOutput,
    /// The credential plugin has run for 30 s, and its previous credential has expired.
    #[error("credential plugin does not exit; requests wait for it")]
    PluginSlow,
    /// The configuration of the credential plugin is incomplete.
    #[error("credential plugin is not fully configured; complete exec in the kubeconfig")]
    PluginConfiguration,
    /// The token file cannot be read.
    #[error("cannot read the token file {}: {reason}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        reason: io::ErrorKind,
    },
    /// User name, password or token contain characters that are not valid in a header.
    #[error("name, password or token cannot be sent in a header; remove control characters and line ends")]
    Header,
    /// The server rejects the credentials.
    #[error("the server rejects the credentials (401); renew the certificate, token or plugin login")]
    Rejected,
    /// The client certificate or its key changed, and the new pair cannot be used.
    #[error("client certificate and key cannot be used; write a matching pair in PEM")]
    Certificate,
    /// Any other error.
    #[error("cannot obtain credentials; check the user in the kubeconfig")]
    Other,
}

fn ended(code: Option<i32>) -> String {
    code.map_or_else(|| "ended by a signal".into(), |code| format!("exit status {code}"))
}

impl CredentialsError {
    /// Returns the error for a credentials error of kube among an error and its causes; `None` if there is none.
    pub(crate) fn among(error: &(dyn Error + 'static)) -> Option<Self> {
        find::<AuthError>(error).map(Self::of)
    }

    fn of(error: &AuthError) -> Self {
        match error {
            AuthError::AuthExecRun { out, .. } => Self::PluginFailed { code: out.status.code() },
            AuthError::AuthExecStart(error) => Self::PluginNotStarted(error.kind()),
            AuthError::AuthExecParse(_)
            | AuthError::ExecPluginFailed
            | AuthError::MalformedTokenExpirationDate(_)
            | AuthError::UnrefreshableTokenResponse => Self::PluginOutput,
            AuthError::MissingCommand | AuthError::ExecMissingClusterInfo => Self::PluginConfiguration,
            AuthError::ReadTokenFile(error, path) => {
                Self::TokenFile { path: path.clone(), reason: error.kind() }
            }
            AuthError::InvalidBasicAuth(_) | AuthError::InvalidBearerToken(_) => Self::Header,
            _ => Self::Other,
        }
    }
}
