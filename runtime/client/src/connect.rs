//! The wire: connections to the server, with TLS, over a proxy where one is named.
//!
//! HTTP/1.1 only: each watch has its own connection and cannot stall another request, which a shared HTTP/2
//! connection does beyond a hundred streams. The connect timeout covers everything up to the end of the TLS handshake.
//!
//! Every connection is closed with a reset (`SO_LINGER` 0). A request that is dropped in flight therefore takes its
//! unsent and unacknowledged bytes with it: the kernel discards them instead of retransmitting them. The reset of an
//! idle connection is harmless: the server has answered every request on it, and reads an error instead of an end.

use std::{
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt as _};
use http::Uri;
use hyper_util::{
    client::legacy::connect::{
        Connection, HttpConnector,
        proxy::{SocksV5, Tunnel},
    },
    rt::TokioIo,
};
use kube::{Config, client::ConfigExt as _};
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceExt as _};
use windlass_env::Env;

use crate::{
    error::{ClientError, CredentialsError},
    identities::process::ProcessCredentials,
    options::ClientOptions,
    pool::{Dial, Pool, Stream},
    stack::wire::Wire,
};

/// TCP's own probes, which find a peer that is gone while nobody asks it anything.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Between two probes without an answer. On Linux the unacknowledged timeout decides how many there are, elsewhere the
/// retries do.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How many probes may go unanswered.
const KEEPALIVE_RETRIES: u32 = 3;

/// The server could not be connected to: nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to the server")]
pub(crate) struct ConnectError(#[source] BoxError);

/// A connection was not established in time.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {0:?}")]
struct ConnectTimeout(Duration);

/// A pool of connections to the server. Connects when first used, with the certificate that `credentials` then have.
pub(crate) fn connect(
    env: &Env,
    config: &Config,
    options: &ClientOptions,
    credentials: Option<&ProcessCredentials>,
) -> Result<Arc<dyn Wire>, ClientError> {
    let (server, config) = (config.cluster_url.clone(), presenting(config.clone(), credentials));
    let dialer = (credentials.map_or(0, ProcessCredentials::identity), dialer(&config, tcp(options))?);
    let dial = FollowingDial {
        env: env.clone(),
        config,
        options: options.clone(),
        credentials: credentials.cloned(),
        dialer: Arc::new(Mutex::new(dialer)),
    };
    Ok(Arc::new(Pool::new(env.clone(), server, Arc::new(dial))))
}

/// The configuration with the client certificate that these credentials have now.
fn presenting(mut config: Config, credentials: Option<&ProcessCredentials>) -> Config {
    config.auth_info = credentials.map(ProcessCredentials::client_certificate).unwrap_or_default();
    config
}

fn dialer(config: &Config, tcp: Resetting) -> Result<Arc<dyn Dial>, ClientError> {
    match config.proxy_url.as_ref() {
        None => secure(config, tcp),
        Some(proxy) if proxy.authority().is_some_and(|it| it.as_str().contains('@')) => {
            Err(unsupported(proxy))
        }
        Some(proxy) if proxy.scheme_str() == Some("http") => secure(config, Tunnel::new(proxy.clone(), tcp)),
        Some(proxy) if proxy.scheme_str() == Some("socks5") => {
            secure(config, SocksV5::new(proxy.clone(), tcp))
        }
        Some(proxy) => Err(unsupported(proxy)),
    }
}

fn unsupported(proxy: &Uri) -> ClientError {
    ClientError::Proxy { scheme: proxy.scheme_str().unwrap_or_default().into() }
}

fn tcp(options: &ClientOptions) -> Resetting {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(options.unacknowledged_timeout));
    tcp.set_connect_timeout(Some(options.connect_timeout));
    Resetting(tcp)
}

/// TLS for `https` servers. Others need none, and so no certificates either.
fn secure<C>(config: &Config, connector: C) -> Result<Arc<dyn Dial>, ClientError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Stream + Connection,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    if config.cluster_url.scheme_str() == Some("http") {
        return Ok(Arc::new(Dialer(connector)));
    }
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(ClientError::NoCryptoProvider);
    }
    let tls = config.rustls_https_connector_with_connector(connector).map_err(ClientError::Tls)?;
    Ok(Arc::new(Dialer(tls)))
}

/// TCP connections that are reset when they are closed.
#[derive(Clone)]
struct Resetting(HttpConnector);

impl Service<Uri> for Resetting {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<TokioIo<TcpStream>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connecting = self.0.call(server);
        async move {
            let stream = connecting.await?;
            stream.inner().set_zero_linger()?;
            Ok(stream)
        }
        .boxed()
    }
}

/// A connector of any kind.
struct Dialer<C>(C);

impl<C> Dial for Dialer<C>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Stream,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    fn dial(&self, server: Uri) -> BoxFuture<'static, Result<Box<dyn Stream>, BoxError>> {
        let connector = self.0.clone();
        async move {
            let stream = connector.oneshot(server).await.map_err(Into::into)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        }
        .boxed()
    }
}

/// Bounds the time that a connection takes to be established, and makes the dialer again when the certificate changes.
#[derive(Clone)]
struct FollowingDial {
    env: Env,
    config: Config,
    options: ClientOptions,
    credentials: Option<ProcessCredentials>,
    /// The number of the certificate that it presents, and the dialer.
    dialer: Arc<Mutex<(u64, Arc<dyn Dial>)>>,
}

impl FollowingDial {
    /// Returns the dialer for this identity; while its certificate cannot be used, the last one.
    #[expect(clippy::disallowed_methods, reason = "files are no part of a simulation")]
    async fn dialer(&self, identity: u64) -> Arc<dyn Dial> {
        let (made_for, last) = self.dialer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if made_for == identity {
            return last;
        }
        let Self { config, options, credentials, .. } = self.clone();
        let config = presenting(config, credentials.as_ref());
        // It reads files.
        let made = tokio::task::spawn_blocking(move || dialer(&config, tcp(&options))).await;
        match made {
            Ok(Ok(made)) => {
                *self.dialer.lock().unwrap_or_else(PoisonError::into_inner) = (identity, Arc::clone(&made));
                made
            }
            Ok(Err(_)) | Err(_) => {
                if let Some(credentials) = &self.credentials {
                    credentials.set_problem(Some(CredentialsError::Certificate));
                }
                last
            }
        }
    }

    async fn dial_within(self, server: Uri) -> Result<Box<dyn Stream>, BoxError> {
        let within = self.options.connect_timeout;
        let identity = self.identity();
        let dialing = async { self.dialer(identity).await.dial(server).await };
        let dialed = self.env.timeout(within, dialing).await;
        let dialed = dialed.unwrap_or_else(|_| Err(ConnectTimeout(within).into()));
        Ok(dialed.map_err(ConnectError)?)
    }
}

impl Dial for FollowingDial {
    fn dial(&self, server: Uri) -> BoxFuture<'static, Result<Box<dyn Stream>, BoxError>> {
        self.clone().dial_within(server).boxed()
    }

    fn identity(&self) -> u64 {
        self.credentials.as_ref().map_or(0, ProcessCredentials::identity)
    }
}
