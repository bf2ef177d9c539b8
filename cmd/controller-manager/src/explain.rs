//! `windlass explain`: queries a running process for the reason why an object has not been reconciled.
//!
//! Guarantees: exit code 0 with the response on stdout, 1 with one line on stderr that contains the remedy; no token is
//! sent over plain HTTP; only the admin server is queried, and nothing is changed.

mod arguments;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use http::{Request, Uri, header};
use kube::config::{
    AuthInfo, Cluster, Config, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster,
    NamedContext,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::runtime::Builder;
use windlass::client::one_line;
use windlass::env::Env;

pub(crate) use arguments::Arguments;
use arguments::Output;

/// The name of the subcommand, and of its client.
const NAME: &str = "explain";

/// Time limits of the query.
#[derive(Copy, Clone, Debug)]
struct ExplainTimeouts {
    /// To connect, including TLS.
    connect: Duration,
    /// To receive the response. The server has it in memory, but sends two reviews to the API server first, each with a
    /// limit of 10 s.
    response: Duration,
}

const TIMEOUTS: ExplainTimeouts =
    ExplainTimeouts { connect: Duration::from_secs(10), response: Duration::from_secs(25) };

impl Arguments {
    /// Sends the query, and writes the response to stdout.
    ///
    /// # Errors
    /// The reason why there is no response, with a remedy.
    pub(crate) fn run(self) -> Result<()> {
        let provider = rustls::crypto::ring::default_provider().install_default();
        provider.map_err(|_| anyhow!("cannot install the TLS provider: the process has one already"))?;
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
        let response = runtime.block_on(self.send_query(TIMEOUTS));
        runtime.shutdown_background();
        let mut response = response?;
        if !response.ends_with('\n') {
            response.push('\n');
        }
        std::io::stdout().write_all(response.as_bytes()).context("cannot write the answer")
    }

    async fn send_query(&self, timeouts: ExplainTimeouts) -> Result<String> {
        let config = self.config(timeouts).await?;
        let client = kube::Client::try_from(config).map_err(|error| anyhow!("{}", one_line(&error)))?;
        let Arguments { controller, key, output, .. } = self;
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let path =
            format!("/debug/explain?controller={}&key={}", encoded(controller), encoded(&key.to_string()));
        let accept = match output {
            Output::Text => "text/plain",
            Output::Json => "application/json",
        };
        let request = Request::get(path).header(header::ACCEPT, accept).body(Vec::new())?;
        let ExplainTimeouts { connect, response: within } = timeouts;
        // A failed connection has returned an error before, so a timeout means that the response took at least
        // `within`.
        let response = Env::system(NAME).timeout(connect + within, client.request_text(request)).await;
        let Ok(response) = response else { return Err(self.unanswered(within)) };
        response.map_err(|error| self.explained(&error))
    }

    /// Returns the configuration of the client. kube reads certificates, tokens and plugins.
    async fn config(&self, timeouts: ExplainTimeouts) -> Result<Config> {
        let Arguments { server, token_file, kubeconfig, certificate_authority, .. } = self;
        let user = match (token_file, kubeconfig) {
            (Some(file), _) => Some(AuthInfo { token: Some(token_in(file)?.into()), ..AuthInfo::default() }),
            (None, Some(file)) => Some(user_of(file)?),
            (None, None) => None,
        };
        ensure!(
            user.is_none() || server.scheme_str() == Some("https"),
            "{server} uses plain HTTP, and no token is sent over plain HTTP; use --server=https://..."
        );
        let cluster = Cluster {
            server: Some(server.to_string()),
            insecure_skip_tls_verify: Some(self.insecure_skip_tls_verify),
            certificate_authority: certificate_authority.as_deref().map(text_of).transpose()?,
            ..Cluster::default()
        };
        let config = Config::from_custom_kubeconfig(
            only(cluster, user.unwrap_or_default()),
            &KubeConfigOptions::default(),
        )
        .await;
        let mut config = config.map_err(|error| anyhow!("{}", one_line(&error)))?;
        (config.connect_timeout, config.read_timeout) = (Some(timeouts.connect), None);
        // A port forwarded to this machine is not reachable through a proxy.
        config.proxy_url = None;
        Ok(config)
    }

    /// Returns the error for a server that accepts connections and does not respond.
    fn unanswered(&self, within: Duration) -> anyhow::Error {
        let Arguments { server, .. } = self;
        anyhow!(
            "{server} accepted the connection and did not respond within {within:?}; check in its log whether the \
             API server answers its token reviews, and try again"
        )
    }

    /// Returns the error with a remedy.
    fn explained(&self, error: &kube::Error) -> anyhow::Error {
        let Arguments { server, .. } = self;
        if let kube::Error::Api(status) = error {
            return rejected(server, status.code, status.message.trim());
        }
        let line = one_line(error);
        if line.contains("InvalidContentType") || line.contains("InvalidMessage") {
            return anyhow!("{server} does not use TLS; use --server=http://...");
        }
        if line.contains("certificate") {
            return anyhow!(
                "the certificate of {server} is not trusted; pass its CA with --certificate-authority, or pass \
                 --insecure-skip-tls-verify ({line})"
            );
        }
        anyhow!(
            "cannot reach {server}: {line}; check the address of the admin server (--bind-address, --secure-port); \
             in a cluster: kubectl -n kube-system port-forward <pod> 10257"
        )
    }
}

/// Returns the error for a response with this status.
fn rejected(server: &Uri, code: u16, message: &str) -> anyhow::Error {
    match code {
        401 => anyhow!(
            "{server} denied the request (401): the token is missing or unknown; pass --token-file or --kubeconfig; \
             `kubectl create token <serviceaccount>` creates a token"
        ),
        403 => anyhow!(
            "{server} denied the request (403): the user has no permission; add to a ClusterRole: \
             - {{ nonResourceURLs: [\"/debug/*\"], verbs: [get] }}"
        ),
        _ if message.is_empty() => {
            anyhow!("{server} answered {code}; check that it is the admin server of windlass")
        }
        503 => anyhow!("{server} answered 503: {message}; try again in a second"),
        _ => anyhow!("{server} answered {code}: {message}"),
    }
}

/// Returns the token without the newline that `kubectl create token` prints, which a header must not contain.
fn token_in(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        anyhow!(
            "cannot read the token file {}: {error}; name a readable file with --token-file",
            file.display()
        )
    })?;
    Ok(text.trim().to_owned())
}

/// Returns the credentials of a kubeconfig's current user, without certificates, which the admin server ignores.
fn user_of(file: &Path) -> Result<AuthInfo> {
    let kubeconfig = Kubeconfig::read_from(file).map_err(|error| {
        anyhow!("cannot use {}: {}; name a kubeconfig with --kubeconfig", file.display(), one_line(&error))
    })?;
    let Kubeconfig { current_context, contexts, auth_infos, .. } = kubeconfig;
    let current = contexts.into_iter().find(|one| Some(&one.name) == current_context.as_ref());
    let name = current.and_then(|one| one.context?.user);
    let user =
        auth_infos.into_iter().find(|one| Some(&one.name) == name.as_ref()).and_then(|one| one.auth_info);
    let Some(AuthInfo { token, token_file, exec, auth_provider, .. }) = user else {
        bail!("{} has no current user; check it with `kubectl config view`", file.display());
    };
    ensure!(
        token.is_some() || token_file.is_some() || exec.is_some() || auth_provider.is_some(),
        "the current user of {} has no token; create one with `kubectl create token <serviceaccount>` and pass \
         --token-file",
        file.display()
    );
    Ok(AuthInfo { token, token_file, exec, auth_provider, ..AuthInfo::default() })
}

/// Returns a kubeconfig of one cluster and one user.
fn only(cluster: Cluster, user: AuthInfo) -> Kubeconfig {
    let name = || NAME.to_owned();
    let context = Context { cluster: name(), user: Some(name()), ..Context::default() };
    Kubeconfig {
        clusters: vec![NamedCluster { name: name(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo { name: name(), auth_info: Some(user), ..NamedAuthInfo::default() }],
        contexts: vec![NamedContext { name: name(), context: Some(context), ..NamedContext::default() }],
        current_context: Some(name()),
        ..Kubeconfig::default()
    }
}

fn text_of(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Returns the error about a server at this address, with timeouts that are short enough for tests.
    async fn error_of(address: std::net::SocketAddr) -> String {
        let server = format!("--server=http://{address}");
        let arguments = Arguments::parse_words(&["replicaset", "shop/web", &server]);
        let timeouts =
            ExplainTimeouts { connect: Duration::from_millis(500), response: Duration::from_millis(100) };
        arguments.expect("valid arguments").send_query(timeouts).await.expect_err("no answer").to_string()
    }

    #[tokio::test]
    async fn silent_server_is_distinguished_from_absent_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let silent = error_of(address).await;
        assert!(silent.contains("did not respond within 100ms"), "{silent}");
        drop(listener);
        let absent = error_of(address).await;
        assert!(absent.starts_with("cannot reach http://"), "{absent}");
    }

    #[test]
    fn token_is_sent_without_newline() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "a.b.c\n").expect("it can be written");
        assert_eq!(token_in(file.path()).expect("a token"), "a.b.c");
    }

    #[test]
    fn answer_timeout_exceeds_both_reviews() {
        // Each review of the admin server can take 10 s.
        assert!(TIMEOUTS.response > 2 * Duration::from_secs(10));
    }
}
