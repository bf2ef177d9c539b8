//! The admin server: endpoints, start and stop.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use http::StatusCode;
use rustls::ServerConfig;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use windlass_env::{Env, Task};
use windlass_metrics::{Metrics, ServingMetrics};
use windlass_serving::{
    CertificateError, CertificateFiles, CertificateReloader, Certificates, Handler, HttpListener, Limits,
    provider, server_config,
};

use crate::config::{Access, AdminConfig, Tls};
use crate::delegated_auth::{DelegatedAuth, Ttls};
use crate::error::AdminError;
use crate::health::Health;
use crate::pages::{PageRequest, PageResponse, Pages};
use crate::service::{self, AccessPolicy, AdminService};
use crate::status::{self, ComponentInfo};
use crate::{probes, self_signed};

/// The dependencies of an admin server.
#[derive(Clone)]
pub struct AdminServerDeps {
    /// The metrics of `/metrics`.
    pub metrics: Metrics,
    /// The checks of the probes.
    pub health: Health,
    /// Additional endpoints. The server adds its own endpoints to them at start.
    pub pages: Pages,
    /// The contents of `/statusz`, `/flagz` and `/configz`.
    pub about: ComponentInfo,
    /// The client for reviews, which uses the identity of the process and has no fence.
    pub reviews: kube::Client,
}

/// A running admin server.
pub struct AdminServer {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: Vec<Task<()>>,
}

impl AdminServer {
    /// Starts a server with this configuration.
    ///
    /// # Errors
    /// When the configuration is invalid, the certificate cannot be used or the address cannot be bound.
    ///
    /// # Panics
    /// When another server with reviews runs in the same environment, because both would use the same random streams.
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
        let secured = TlsSetup::by(env, tls, *address, &metrics.serving)?;
        let bound = |source| AdminError::Bind { address: *address, source };
        let listener = TcpListener::bind(address).await.map_err(bound)?;
        let address = listener.local_addr().map_err(bound)?;
        let (pages, policy) = (all_pages(env, &parts), access_policy(env, access, &parts));
        let service = Arc::new(AdminService::new(pages, policy, metrics.clone()));
        let handler: Handler = Arc::new(move |request, peer| {
            let service = Arc::clone(&service);
            async move { service.respond(request, peer).await }.boxed()
        });
        let stop = CancellationToken::new();
        let listening =
            HttpListener::new(env, handler, secured.config, stop.clone(), limits, metrics.serving);
        let mut tasks = vec![env.spawn("admin server", listening.run(listener))];
        // Started only now: if binding the address had failed, this task would not be stopped.
        tasks.extend(secured.following.map(|following| env.spawn("admin certificate", following)));
        tracing::info!(%address, %tls, "serving health and metrics");
        Ok(Self { address, stop, tasks })
    }

    /// Returns the listen address, with the effective port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening; responses in progress have one second to finish.
    pub async fn stop(mut self) {
        self.close().await;
    }

    /// Stops like [`Self::stop`].
    ///
    /// # Cancel safety
    /// The stop signal has been sent by then; calling it again waits for the rest.
    pub async fn close(&mut self) {
        self.stop.cancel();
        // The first task is the listener. The certificate reloader never ends on its own.
        self.tasks.iter().skip(1).for_each(Task::abort);
        while let Some(task) = self.tasks.last_mut() {
            // The result does not matter here: a panic has been logged under the name of the task.
            let _ended = task.await;
            self.tasks.pop();
        }
    }
}

/// The TLS configuration of the server.
struct TlsSetup {
    config: Option<Arc<ServerConfig>>,
    /// The task that reloads a certificate in files.
    following: Option<BoxFuture<'static, ()>>,
}

impl TlsSetup {
    fn by(
        env: &Env,
        tls: &Tls,
        address: SocketAddr,
        metrics: &ServingMetrics,
    ) -> Result<Self, CertificateError> {
        let (provider, now) = (provider(), env.wall());
        let loaded = |files: CertificateFiles| {
            files.load(&provider, now).map(|(first, reloader)| (first, Some(reloader)))
        };
        let (first, reloader): (_, Option<CertificateReloader>) = match tls {
            Tls::Plain => return Ok(Self { config: None, following: None }),
            Tls::SelfSigned => (self_signed::self_signed(&provider, address.ip(), now)?, None),
            Tls::Persisted { folder, name } => {
                let at = |ending| folder.join(format!("{name}.{ending}"));
                let files = CertificateFiles { certificate: at("crt"), key: at("key") };
                self_signed::keep(&files, address.ip(), now)?;
                loaded(files)?
            }
            Tls::Files { certificate, key } => {
                loaded(CertificateFiles { certificate: certificate.clone(), key: key.clone() })?
            }
        };
        let certificates = Certificates::new(first);
        let config = server_config(Arc::clone(&provider), Arc::clone(&certificates), None)?;
        let following =
            reloader.map(|reloader| reloader.follow(env.clone(), certificates, metrics.clone()).boxed());
        Ok(Self { config: Some(config), following })
    }
}

fn access_policy(env: &Env, access: &Access, parts: &AdminServerDeps) -> AccessPolicy {
    let Access::Delegated { always_allow, authentication_ttl, allow_ttl, deny_ttl } = access else {
        return AccessPolicy::Open;
    };
    let ttls = Ttls { authentication: *authentication_ttl, allow: *allow_ttl, deny: *deny_ttl };
    let reviews = DelegatedAuth::new(env, parts.reviews.clone(), ttls, parts.metrics.admin());
    AccessPolicy::Reviewed { always_allow: always_allow.clone(), reviews: Box::new(reviews) }
}

/// Returns the given endpoints and those of every server.
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
        f.debug_struct("AdminServerDeps")
            .field("pages", &self.pages)
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}
