//! Connections to the server, with TLS, through a proxy if one is configured.
//!
//! HTTP/1.1 only: each watch has a separate connection and cannot stall another request. A shared HTTP/2 connection
//! stalls beyond 100 streams. The connect timeout includes the TLS handshake.
//!
//! Every connection is closed with a reset (`SO_LINGER` 0). The kernel then discards the unsent and unacknowledged
//! bytes of a request that is dropped in flight, instead of retransmitting them. The reset of an idle connection is
//! harmless: the server has answered every request on it, and reads an error instead of the end of the stream.

use std::{
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt as _};
use http::Uri;
use hyper_util::client::legacy::connect::{
    Connection, HttpConnector,
    proxy::{SocksV5, Tunnel},
};
use kube::{Config, client::ConfigExt as _};
use tower::{BoxError, Service, ServiceExt as _};
use windlass_env::Env;

use crate::{
    error::{ClientError, CredentialsError},
    gated_stream::{GatedStream, Stream},
    identities::process::ProcessCredentials,
    options::ClientOptions,
    pool::{Dial, Pool},
    stack::wire::Wire,
};

/// Interval of TCP keepalive probes, which detect a failed peer on an idle connection.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Time between two unanswered probes. On Linux the timeout for unacknowledged data limits their number, on other
/// systems the number of retries.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of unanswered probes.
const KEEPALIVE_RETRIES: u32 = 3;

/// The client could not connect to the server, so nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to the server")]
pub(crate) struct ConnectError(#[source] BoxError);

/// A connection was not established within the timeout.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {0:?}")]
struct ConnectTimeout(Duration);

/// Creates a pool of connections to the server. It connects on first use, with the client certificate that
/// `credentials` have at that time.
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

/// Returns the configuration with the current client certificate of these credentials.
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

/// Adds TLS for `https` servers. Other servers need no TLS and no certificates.
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

/// TCP connections that are closed with a reset.
#[derive(Clone)]
struct Resetting(HttpConnector);

impl Service<Uri> for Resetting {
    type Response = GatedStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<GatedStream, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connecting = self.0.call(server);
        async move {
            let stream = connecting.await?;
            stream.inner().set_zero_linger()?;
            Ok(GatedStream::new(stream))
        }
        .boxed()
    }
}

/// A connector of any type.
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

/// Limits the time to establish a connection, and recreates the connector when the client certificate changes.
#[derive(Clone)]
struct FollowingDial {
    env: Env,
    config: Config,
    options: ClientOptions,
    credentials: Option<ProcessCredentials>,
    /// The number of the client certificate that the connector presents, and the connector.
    dialer: Arc<Mutex<(u64, Arc<dyn Dial>)>>,
}

impl FollowingDial {
    /// Returns the connector for this client certificate; the previous connector if the certificate cannot be used.
    #[expect(clippy::disallowed_methods, reason = "simulations do not use files")]
    async fn dialer(&self, identity: u64) -> Arc<dyn Dial> {
        let (made_for, last) = self.dialer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if made_for == identity {
            return last;
        }
        let Self { config, options, credentials, .. } = self.clone();
        let config = presenting(config, credentials.as_ref());
        // This reads files.
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
