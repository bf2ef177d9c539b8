//! The wire: connections to the server, with TLS, over a proxy where one is named.
//!
//! HTTP/1.1 only: each watch has a connection of its own and cannot stall another request, which a shared HTTP/2
//! connection does beyond a hundred streams. The timeout covers everything up to the end of the TLS handshake; it
//! and the connections' own tasks are hyper's, and so the one place where time is not the environment's.

use std::time::Duration;

use http::Uri;
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{
        Client,
        connect::{
            Connect, Connection, HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Config,
    client::{Body, ConfigExt as _},
};
use tower::{BoxError, Service};

use crate::{
    error::ClientError,
    stack::{Next, over},
};

/// How long an idle connection is kept: less than the 3 minutes after which servers and balancers drop theirs.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// TCP's own probes, which find a peer that is gone while nobody asks it anything.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Between two probes without an answer; with the retries, a dead peer is known for one within a minute.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How many probes may go unanswered.
const KEEPALIVE_RETRIES: u32 = 3;
/// How long what was sent may go unacknowledged. Probes do not run then, and the kernel's own patience is 15 minutes.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(30);
/// How many idle connections are kept: enough for the next burst, and not what the worst moment once needed.
const MOST_IDLE: usize = 32;

/// A pool of connections to the server. Connects when first used.
pub(crate) fn connect(config: &Config, timeout: Duration) -> Result<Next, ClientError> {
    let tcp = tcp(timeout);
    match config.proxy_url.as_ref() {
        None => secure(config, tcp, timeout),
        Some(proxy) if proxy.authority().is_some_and(|it| it.as_str().contains('@')) => {
            Err(unsupported(proxy))
        }
        Some(proxy) if proxy.scheme_str() == Some("http") => {
            secure(config, Tunnel::new(proxy.clone(), tcp), timeout)
        }
        Some(proxy) if proxy.scheme_str() == Some("socks5") => {
            secure(config, SocksV5::new(proxy.clone(), tcp), timeout)
        }
        Some(proxy) => Err(unsupported(proxy)),
    }
}

fn unsupported(proxy: &Uri) -> ClientError {
    ClientError::Proxy { scheme: proxy.scheme_str().unwrap_or_default().into() }
}

fn tcp(timeout: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT));
    tcp.set_connect_timeout(Some(timeout));
    tcp
}

/// TLS for `https` servers. Others need none, and so no certificates either.
fn secure<C>(config: &Config, connector: C, timeout: Duration) -> Result<Next, ClientError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper::rt::Read + hyper::rt::Write + Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    if config.cluster_url.scheme_str() == Some("http") {
        return Ok(pool(connector, timeout));
    }
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(ClientError::NoCryptoProvider);
    }
    let tls = config.rustls_https_connector_with_connector(connector).map_err(ClientError::Tls)?;
    Ok(pool(tls, timeout))
}

fn pool<C>(connector: C, timeout: Duration) -> Next
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper::rt::Read + hyper::rt::Write + Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
    TimeoutConnector<C>: Connect,
{
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(Some(timeout));
    // Reading and writing are bounded by the stack's deadline, which knows a watch from a list.
    let client: Client<_, Body> = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MOST_IDLE)
        .build(connector);
    over(client)
}
