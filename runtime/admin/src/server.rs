//! The server: what it shows, how it listens, how it ends.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use http::StatusCode;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use windlass_env::{Env, Task};
use windlass_metrics::{AdminMetrics, Metrics};

use crate::certificates::{self, CertificateError, CertificateReloader, Certificates, Files};
use crate::config::{Access, AdminConfig, Tls};
use crate::delegated_auth::{DelegatedAuth, Ttls};
use crate::error::AdminError;
use crate::health::Health;
use crate::pages::{PageRequest, PageResponse, Pages};
use crate::service::{self, AccessPolicy, AdminService};
use crate::serving::{HttpListener, Limits};
use crate::status::{self, ComponentInfo};
use crate::{probes, self_signed};

/// What an admin server shows, and asks.
#[derive(Clone)]
pub struct AdminServerDeps {
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// What the probes ask.
    pub health: Health,
    /// Further pages. Those of the server itself are added to them when it starts.
    pub pages: Pages,
    /// What `/statusz`, `/flagz` and `/configz` tell.
    pub about: ComponentInfo,
    /// With what reviews are sent: as the process itself, and held up by no fence.
    pub reviews: kube::Client,
}

/// An admin server that listens.
pub struct AdminServer {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: Vec<Task<()>>,
}

impl AdminServer {
    /// Listens as `config` says, and serves from now on.
    ///
    /// # Errors
    /// When the configuration contradicts itself, the certificate cannot be used or the address cannot be bound.
    ///
    /// # Panics
    /// When another one with reviews runs in the same environment: both would draw the same random numbers.
    pub async fn start(env: &Env, config: &AdminConfig, parts: AdminServerDeps) -> Result<Self, AdminError> {
        Self::start_within(env, config, parts, Limits::default()).await
    }

    pub(crate) async fn start_within(
        env: &Env,
        config: &AdminConfig,
        parts: AdminServerDeps,
        limits: Limits,
    ) -> Result<Self, AdminError> {
        config.validate()?;
        let AdminConfig { address, tls, access } = config;
        let metrics = parts.metrics.admin();
        let secured = TlsSetup::by(env, tls, *address, &metrics)?;
        let bound = |source| AdminError::Bind { address: *address, source };
        let listener = TcpListener::bind(address).await.map_err(bound)?;
        let address = listener.local_addr().map_err(bound)?;
        let site =
            Arc::new(AdminService::new(all_pages(env, &parts), leave(env, access, &parts), metrics.clone()));
        let stop = CancellationToken::new();
        let listening = HttpListener::new(env, site, secured.config, stop.clone(), limits, metrics);
        let mut tasks = vec![env.spawn("admin server", listening.run(listener))];
        // Begun only now: before the address was bound, nobody would have ended it.
        tasks.extend(secured.following.map(|following| env.spawn("admin certificate", following)));
        tracing::info!(%address, %tls, "serving health and metrics");
        Ok(Self { address, stop, tasks })
    }

    /// Where it listens, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening; answers under way get a second to end.
    pub async fn stop(mut self) {
        self.close().await;
    }

    /// As [`Self::stop`].
    ///
    /// # Cancel safety
    /// It has been told to stop by then; calling it again waits for the rest.
    pub async fn close(&mut self) {
        self.stop.cancel();
        // What looks after the certificate never ends by itself. The first is what serves.
        self.tasks.iter().skip(1).for_each(Task::abort);
        while let Some(task) = self.tasks.last_mut() {
            // How it ended is no matter here: a panic has been logged under the task's name.
            let _ended = task.await;
            self.tasks.pop();
        }
    }
}

/// What TLS takes.
struct TlsSetup {
    config: Option<Arc<ServerConfig>>,
    /// What looks after a certificate in files.
    following: Option<BoxFuture<'static, ()>>,
}

impl TlsSetup {
    fn by(
        env: &Env,
        tls: &Tls,
        address: SocketAddr,
        metrics: &AdminMetrics,
    ) -> Result<Self, CertificateError> {
        let provider = certificates::provider();
        let (first, files) = match tls {
            Tls::Plain => return Ok(Self { config: None, following: None }),
            Tls::SelfSigned => (self_signed::self_signed(&provider, address.ip(), env.wall())?, None),
            Tls::Persisted { folder, name } => {
                let at = |ending| folder.join(format!("{name}.{ending}"));
                let files = Files { certificate: at("crt"), key: at("key") };
                self_signed::keep(&files, address.ip(), env.wall())?;
                loaded(files, &provider, env)?
            }
            Tls::Files { certificate, key } => {
                let files = Files { certificate: certificate.clone(), key: key.clone() };
                loaded(files, &provider, env)?
            }
        };
        let certificates = Certificates::new(first);
        let config = certificates::server_config(Arc::clone(&provider), Arc::clone(&certificates))?;
        let following = files.map(|(files, follower)| {
            let (to, metrics) = (env.clone(), metrics.clone());
            certificates::follow(to, files, follower, certificates, provider, metrics).boxed()
        });
        Ok(Self { config: Some(config), following })
    }
}

/// What the files have, and what looks after them.
fn loaded(
    files: Files,
    provider: &CryptoProvider,
    env: &Env,
) -> Result<(CertifiedKey, Option<(Files, CertificateReloader)>), CertificateError> {
    let (first, follower) = files.load(provider)?;
    certificates::warn_if_stale(&files, &first, provider, env.wall());
    Ok((first, Some((files, follower))))
}

fn leave(env: &Env, access: &Access, parts: &AdminServerDeps) -> AccessPolicy {
    let Access::Delegated { always_allow, authentication_ttl, allow_ttl, deny_ttl } = access else {
        return AccessPolicy::Open;
    };
    let ttls = Ttls { authentication: *authentication_ttl, allow: *allow_ttl, deny: *deny_ttl };
    let reviews = DelegatedAuth::new(env, parts.reviews.clone(), ttls, parts.metrics.admin());
    AccessPolicy::Reviewed { always_allow: always_allow.clone(), reviews: Box::new(reviews) }
}

/// The pages that were given, and those of every server.
fn all_pages(env: &Env, parts: &AdminServerDeps) -> Pages {
    let AdminServerDeps { metrics, health, pages, about, reviews: _ } = parts;
    probes::add(pages, health, metrics);
    let shown = metrics.clone();
    let whole =
        move |_: &PageRequest| PageResponse::of(StatusCode::OK, service::PROMETHEUS_TEXT, shown.encode());
    pages.add("/metrics", Arc::new(whole));
    status::add(pages, env, about.clone());
    let listed = pages.downgrade();
    pages.add("/", Arc::new(move |_| PageResponse::json(json!({ "paths": listed.paths() }).to_string())));
    pages.clone()
}

impl fmt::Debug for AdminServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl fmt::Debug for AdminServerDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminParts")
            .field("pages", &self.pages)
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}
