//! The command line of `windlass explain`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use http::Uri;
use windlass::object::ObjectKey;

/// Asks a running windlass why an object has not been reconciled: its last observed state, why it was queued, the
/// result of the last reconcile, and the time of the next one. The first line names the cause.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "For a windlass that runs in a cluster: `kubectl -n kube-system port-forward <pod> 10257`, then this \
                  command. The user needs a token (`kubectl create token <serviceaccount>`), and a ClusterRole with \
                  nonResourceURLs [\"/debug/*\"], verbs [get]."
)]
pub(crate) struct Arguments {
    /// The controller, by its name or alias, as in `--controllers`.
    pub(super) controller: String,

    /// The key of the object, as `namespace/name`, or `name` for cluster-scoped objects.
    #[arg(value_name = "NAMESPACE/NAME")]
    pub(super) key: ObjectKey,

    /// Address of the admin server.
    #[arg(long, value_name = "URL", default_value = "https://127.0.0.1:10257", value_parser = address)]
    pub(super) server: Uri,

    /// File with the bearer token. Sent over HTTPS only.
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,

    /// Kubeconfig whose current user provides the token, directly or by a plugin. Client certificates are ignored: the
    /// admin server authenticates tokens only.
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// File with the CA certificates of the server, in PEM.
    #[arg(long, value_name = "FILE")]
    pub(super) certificate_authority: Option<PathBuf>,

    /// Accept any certificate, such as a self-signed one. A man in the middle can then read the token.
    #[arg(long, conflicts_with = "certificate_authority")]
    pub(super) insecure_skip_tls_verify: bool,

    /// `text` for users, `json` for programs.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub(super) output: Output,
}

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For users.
    Text,
    /// For programs.
    Json,
}

fn address(text: &str) -> Result<Uri, String> {
    let uri: Option<Uri> = text.parse().ok();
    let usable = |uri: &Uri| {
        let named = uri.authority().is_some_and(|it| !it.as_str().contains('@'));
        named && matches!(uri.scheme_str(), Some("http" | "https"))
    };
    uri.filter(usable).ok_or_else(|| "write https://host:port, or http://host:port".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    impl Arguments {
        /// Parses the words after `explain`.
        pub(in super::super) fn parse_words(words: &[&str]) -> Result<Self, clap::Error> {
            let command = Self::augment_args(clap::Command::new("explain").no_binary_name(true));
            Self::from_arg_matches(&command.try_get_matches_from(words)?)
        }
    }

    #[test]
    fn default_server_is_the_local_process() {
        let arguments = Arguments::parse_words(&["replicaset-controller", "shop/web"]).expect("valid");
        assert_eq!(arguments.server, "https://127.0.0.1:10257");
        assert_eq!((arguments.key.to_string().as_str(), arguments.output), ("shop/web", Output::Text));
        let json = Arguments::parse_words(&["node", "node-1", "-o", "json", "--server=http://[::1]:7"]);
        let json = json.expect("valid");
        assert_eq!((json.output, json.key.namespace()), (Output::Json, None));
    }
}
