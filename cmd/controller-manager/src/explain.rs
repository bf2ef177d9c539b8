//! `windlass explain`: asks a running process why an object has not been reconciled.
//!
//! Guarantees: exit code 0 with the answer on stdout, 1 with one line on stderr that says what to do; no token is sent
//! over plain HTTP; nothing but the admin server is asked, and nothing is changed.

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

/// How long the server is waited for.
#[derive(Copy, Clone, Debug)]
struct ExplainTimeouts {
    /// For being connected to it, TLS and all.
    connect: Duration,
    /// For its answer then. It has that in memory, but asks two reviews of the API server first, each of which may take
    /// 10 s.
    answer: Duration,
}

const TIMEOUT: ExplainTimeouts =
    ExplainTimeouts { connect: Duration::from_secs(10), answer: Duration::from_secs(25) };

impl Arguments {
    /// Asks, and writes the answer to stdout.
    ///
    /// # Errors
    /// Whatever kept it from an answer, with what to do about it.
    pub(crate) fn run(self) -> Result<()> {
        let provider = rustls::crypto::ring::default_provider().install_default();
        provider.map_err(|_| anyhow!("a TLS provider is installed already"))?;
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
        let answer = runtime.block_on(self.ask(TIMEOUT));
        runtime.shutdown_background();
        let mut answer = answer?;
        if !answer.ends_with('\n') {
            answer.push('\n');
        }
        std::io::stdout().write_all(answer.as_bytes()).context("cannot write the answer")
    }

    async fn ask(&self, patience: ExplainTimeouts) -> Result<String> {
        let config = self.config(patience).await?;
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
        let ExplainTimeouts { connect, answer: within } = patience;
        // Whoever could not be connected to has failed before, so that no answer came for at least as long as is said.
        let answer = Env::system(NAME).timeout(connect + within, client.request_text(request)).await;
        let Ok(answer) = answer else { return Err(self.unanswered(within)) };
        answer.map_err(|error| self.explained(&error))
    }

    /// How to reach the server, and as whom. kube reads certificates, tokens and plugins.
    async fn config(&self, patience: ExplainTimeouts) -> Result<Config> {
        let Arguments { server, token_file, kubeconfig, certificate_authority, .. } = self;
        let user = match (token_file, kubeconfig) {
            (Some(file), _) => Some(AuthInfo { token: Some(token_in(file)?.into()), ..AuthInfo::default() }),
            (None, Some(file)) => Some(user_of(file)?),
            (None, None) => None,
        };
        ensure!(
            user.is_none() || server.scheme_str() == Some("https"),
            "{server} speaks plain HTTP, over which no token is sent: write --server=https://..."
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
        (config.connect_timeout, config.read_timeout) = (Some(patience.connect), None);
        // What is forwarded to this machine is not to be looked for behind a proxy.
        config.proxy_url = None;
        Ok(config)
    }

    /// Of a server that listens and says nothing.
    fn unanswered(&self, within: Duration) -> anyhow::Error {
        let Arguments { server, .. } = self;
        anyhow!(
            "{server} was connected to, but no answer came within {within:?}: look in its log whether the API server \
             answers its reviews of tokens, and try again"
        )
    }

    /// Adds what can be done about it.
    fn explained(&self, error: &kube::Error) -> anyhow::Error {
        let Arguments { server, .. } = self;
        if let kube::Error::Api(status) = error {
            return refused(server, status.code, status.message.trim());
        }
        let line = one_line(error);
        if line.contains("InvalidContentType") || line.contains("InvalidMessage") {
            return anyhow!("{server} does not speak TLS: write --server=http://...");
        }
        if line.contains("certificate") {
            return anyhow!(
                "{server} is not trusted: name who vouches for it with --certificate-authority, or pass \
                 --insecure-skip-tls-verify ({line})"
            );
        }
        anyhow!(
            "cannot reach {server}: {line}; is it the admin server's address (--bind-address, --secure-port)? In a \
             cluster: kubectl -n kube-system port-forward <pod> 10257"
        )
    }
}

/// What an answer that is none means.
fn refused(server: &Uri, code: u16, message: &str) -> anyhow::Error {
    match code {
        401 => anyhow!(
            "{server} does not know who asks (401): show a token with --token-file or --kubeconfig; `kubectl create \
             token <serviceaccount>` makes one"
        ),
        403 => anyhow!(
            "{server} does not let this user ask (403): add to a cluster role: - {{ nonResourceURLs: [\"/debug/*\"], \
             verbs: [get] }}"
        ),
        _ if message.is_empty() => anyhow!("{server} answered {code}: is it windlass's admin server?"),
        _ => anyhow!("{message}"),
    }
}

/// The token alone: what `kubectl create token` prints ends with the end of a line, which no header may hold.
fn token_in(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        anyhow!(
            "cannot read the token file {}: {error}; name a readable file with --token-file",
            file.display()
        )
    })?;
    Ok(text.trim().to_owned())
}

/// The credentials of a kubeconfig's current user, without certificates, which the admin server does not look at.
fn user_of(file: &Path) -> Result<AuthInfo> {
    let kubeconfig = Kubeconfig::read_from(file)
        .map_err(|error| anyhow!("cannot use {}: {}", file.display(), one_line(&error)))?;
    let Kubeconfig { current_context, contexts, auth_infos, .. } = kubeconfig;
    let current = contexts.into_iter().find(|one| Some(&one.name) == current_context.as_ref());
    let name = current.and_then(|one| one.context?.user);
    let user =
        auth_infos.into_iter().find(|one| Some(&one.name) == name.as_ref()).and_then(|one| one.auth_info);
    let Some(AuthInfo { token, token_file, exec, auth_provider, .. }) = user else {
        bail!("{} has no current user: `kubectl config view` shows what it holds", file.display());
    };
    ensure!(
        token.is_some() || token_file.is_some() || exec.is_some() || auth_provider.is_some(),
        "the current user of {} has no token: `kubectl create token <serviceaccount>` makes one for --token-file",
        file.display()
    );
    Ok(AuthInfo { token, token_file, exec, auth_provider, ..AuthInfo::default() })
}

/// A kubeconfig of one cluster and one user.
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
    let text = path.to_str().with_context(|| format!("{} is no text", path.display()))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What is said of a server at this address. Nothing here is waited for as long as a user would.
    async fn told(address: std::net::SocketAddr) -> String {
        let server = format!("--server=http://{address}");
        let arguments = Arguments::parse_words(&["replicaset", "shop/web", &server]);
        let patience =
            ExplainTimeouts { connect: Duration::from_millis(500), answer: Duration::from_millis(100) };
        arguments.expect("valid arguments").ask(patience).await.expect_err("no answer").to_string()
    }

    #[tokio::test]
    async fn server_that_says_nothing_is_told_apart_from_one_that_is_not_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let silent = told(address).await;
        assert!(silent.contains("was connected to, but no answer came within 100ms"), "{silent}");
        drop(listener);
        let absent = told(address).await;
        assert!(absent.starts_with("cannot reach http://"), "{absent}");
    }

    #[test]
    fn token_is_sent_without_the_end_of_its_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "a.b.c\n").expect("it can be written");
        assert_eq!(token_in(file.path()).expect("a token"), "a.b.c");
    }

    #[test]
    fn answer_is_waited_for_longer_than_its_reviews_may_take() {
        // Each review of the admin server may take 10 s.
        assert!(TIMEOUT.answer > 2 * Duration::from_secs(10));
    }
}
