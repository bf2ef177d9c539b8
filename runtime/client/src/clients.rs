//! Who sends requests, under which name and within which budget.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use kube::{
    Config,
    client::{Body, ConfigExt as _, middleware::AuthLayer},
};
use tower::{BoxError, Layer as _, Service, ServiceBuilder};
use windlass_env::{
    Env,
    cell::{Observer, Publisher, cell},
};
use windlass_metrics::Metrics;

use crate::{
    connect::connect,
    error::ClientError,
    raw::RawClient,
    stack::{
        AsService, Next, before,
        count::{Count, Meter},
        credentials::{CredentialsError, HideSecrets},
        deadline::Deadline,
        declared::{Declared, DeclaredVerbs},
        drain::Drain,
        gate::{Fence, Gate},
        in_flight::InFlight,
        limit::{Limit, Limiter},
        over,
        repeat::Repeat,
        write_log::{Log, WriteLog},
    },
};

/// How clients behave.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientOptions {
    /// Requests per second and identity, in the long run. Default 20, as kube-controller-manager's. Zero or less: no
    /// limit.
    pub qps: f64,
    /// Requests per identity at once, after a pause. Default 30, as kube-controller-manager's.
    pub burst: u32,
    /// The name servers log. Identities append theirs: `windlass/0.1.0/replicaset-controller`.
    pub user_agent: String,
    /// How long a request may take from leaving the limiter to the last byte of its answer. Default 60 s, what API
    /// servers allow themselves.
    pub request_timeout: Duration,
    /// How long a connection may take to be made, TLS and all. Default 10 s: within a lease's renew deadline, so
    /// that another address can still be tried.
    pub connect_timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            qps: 20.0,
            burst: 30,
            user_agent: concat!("windlass/", env!("CARGO_PKG_VERSION")).into(),
            request_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// Makes every client of a process: one identity per controller, one for informers, one for the election.
///
/// All of them share credentials and, but for the election, connections; each identity has its own budget and user
/// agent. Making one connects nowhere.
///
/// The process must have installed a rustls `CryptoProvider` before a client for an `https` server is made.
#[derive(Clone)]
pub struct Clients {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    config: Config,
    options: ClientOptions,
    metrics: Metrics,
    fence: Arc<dyn Fence>,
    auth: Option<AuthLayer>,
    wires: Wires,
    health: Next,
    identities: Mutex<BTreeMap<String, ControllerClients>>,
    draining: Publisher<bool>,
}

/// Where requests go.
enum Wires {
    /// To the server: this pool, and one more for the election.
    Pool(Next),
    /// Into a service of the caller's.
    Service(Next),
}

impl Wires {
    fn shared(&self) -> &Next {
        match self {
            Wires::Pool(next) | Wires::Service(next) => next,
        }
    }
}

/// The identity whose requests are the informers'.
const INFORMERS: &str = "shared-informers";
/// The identity whose requests are the election's.
const ELECTION: &str = "leader-election";

impl Clients {
    /// Clients of the cluster that `config` describes. Its credentials are read, or its plugin run, here.
    ///
    /// kube's own timeouts and retries in `config` are not used: a retried create may create twice.
    ///
    /// # Errors
    ///
    /// When credentials, certificates, proxy or user agent cannot be used, or no `CryptoProvider` is installed.
    pub fn new(
        env: Env,
        config: Config,
        options: ClientOptions,
        metrics: &Metrics,
        fence: Arc<dyn Fence>,
    ) -> Result<Self, ClientError> {
        let wires = Wires::Pool(connect(&config, options.connect_timeout)?);
        Self::build(env, config, options, metrics, fence, wires)
    }

    /// Clients whose requests go into a service instead of over the network: an API server in the process, or a
    /// test's. `base_uri` is what the service is told it is called.
    ///
    /// # Errors
    ///
    /// When the user agent cannot be used.
    pub fn over_service<S, B>(
        env: Env,
        service: S,
        base_uri: Uri,
        options: ClientOptions,
        metrics: &Metrics,
        fence: Arc<dyn Fence>,
    ) -> Result<Self, ClientError>
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::build(env, Config::new(base_uri), options, metrics, fence, Wires::Service(over(service)))
    }

    fn build(
        env: Env,
        config: Config,
        options: ClientOptions,
        metrics: &Metrics,
        fence: Arc<dyn Fence>,
        wires: Wires,
    ) -> Result<Self, ClientError> {
        let auth = config.auth_layer().map_err(unauthenticated)?;
        let metrics = metrics.clone();
        let gate = Gate { env: env.clone(), fence: None, request_timeout: options.request_timeout };
        let deadline = Deadline { env: env.clone(), within: options.request_timeout };
        let headers = identified(&config, &options.user_agent)?;
        let health =
            before(deadline, addressed(&headers, auth.as_ref(), before(gate, Arc::clone(wires.shared())))?);
        let (identities, draining) = (Mutex::default(), cell(false).0);
        let shared =
            Shared { env, config, options, metrics, fence, auth, wires, health, identities, draining };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// From now on no worker waits: a request that can leave at once still does, and one that would have to wait for
    /// the limiter, for a place on the wire or for a busy server fails at once with
    /// [`DrainingError`](crate::DrainingError), those that wait already among them. What is on the wire is answered.
    ///
    /// Only clients of [`ControllerClients::worker`] are concerned; events, informers, election and health go on. This
    /// is for good: a process that worked once more would make its clients anew.
    pub fn drain(&self) {
        self.shared.draining.set(true);
    }

    /// The clients of one controller. Whoever asks for the same name shares one budget.
    ///
    /// # Errors
    ///
    /// When the name cannot be part of a user agent.
    pub fn for_controller(&self, name: &str) -> Result<ControllerClients, ClientError> {
        let mut identities = self.shared.identities.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clients) = identities.get(name) {
            return Ok(clients.clone());
        }
        let fence = Some(Arc::clone(&self.shared.fence));
        let limited = self.shared.limited(name, self.shared.inner(name, fence, self.shared.wires.shared())?);
        let clients = self.shared.clients(name, limited);
        identities.insert(name.into(), clients.clone());
        Ok(clients)
    }

    /// Lists and watches for informers, standby or leading. Lists have a budget of their own; watches start at once.
    ///
    /// # Errors
    ///
    /// When the user agent cannot be used.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn for_informers(&self) -> Result<RawClient, ClientError> {
        let clients = self.for_controller(INFORMERS)?;
        Ok(RawClient::new(clients.client(), self.shared.env.clone()))
    }

    /// A client that neither fence nor limiter can hold back, on connections of its own: renewing a lease must not
    /// wait behind the work that the lease permits.
    ///
    /// # Errors
    ///
    /// When credentials or certificates cannot be used any more.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn for_election(&self) -> Result<kube::Client, ClientError> {
        let wire = match &self.shared.wires {
            Wires::Pool(_) => connect(&self.shared.config, self.shared.options.connect_timeout)?,
            Wires::Service(service) => Arc::clone(service),
        };
        Ok(self.shared.clients(ELECTION, self.shared.inner(ELECTION, None, &wire)?).client())
    }

    /// A client for `/healthz` and its like, without limit or fence.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn for_health(&self) -> kube::Client {
        self.shared.clients("health", Arc::clone(&self.shared.health)).client()
    }
}

impl Shared {
    /// The part of a stack that every identity has.
    fn inner(&self, name: &str, fence: Option<Arc<dyn Fence>>, wire: &Next) -> Result<Next, ClientError> {
        let Self { env, options, .. } = self;
        let gate = Gate { env: env.clone(), fence, request_timeout: options.request_timeout };
        let config = identified(&self.config, &format!("{}/{name}", options.user_agent))?;
        let addressed = addressed(&config, self.auth.as_ref(), before(gate, Arc::clone(wire)))?;
        Ok(before(Deadline { env: env.clone(), within: options.request_timeout }, addressed))
    }

    /// What keeps an identity from asking too much of the server.
    fn limited(&self, name: &str, inner: Next) -> Next {
        let bounded = before(InFlight::new(self.env.clone()), inner);
        let limiter = Limiter::new(self.env.clone(), self.options.qps, self.options.burst);
        let limited = before(Limit { limiter, meter: self.meter(name) }, bounded);
        before(Repeat { env: self.env.clone(), meter: self.meter(name) }, limited)
    }

    fn clients(&self, name: &str, inner: Next) -> ControllerClients {
        let count = Count { env: self.env.clone(), meter: self.meter(name) };
        ControllerClients {
            name: name.into(),
            namespace: self.config.default_namespace.as_str().into(),
            count,
            inner,
            draining: self.draining.observe(),
        }
    }

    fn meter(&self, identity: &str) -> Meter {
        Meter {
            metrics: self.metrics.requests(identity),
            host: host_and_port(&self.config.cluster_url).into(),
        }
    }
}

/// Where a server is, without the name and password that its URL may hold.
fn host_and_port(server: &Uri) -> String {
    let host = server.host().unwrap_or_default();
    server.port_u16().map_or_else(|| host.into(), |port| format!("{host}:{port}"))
}

fn unauthenticated(error: kube::Error) -> ClientError {
    CredentialsError::among(&error).map_or(ClientError::Headers(error), ClientError::Credentials)
}

/// The configuration with a user agent among its headers.
fn identified(config: &Config, user_agent: &str) -> Result<Config, ClientError> {
    let value = HeaderValue::from_str(user_agent).map_err(|_| ClientError::UserAgent(user_agent.into()))?;
    let mut config = config.clone();
    config.headers.retain(|(name, _)| name != header::USER_AGENT);
    config.headers.push((header::USER_AGENT, value));
    Ok(config)
}

/// kube's layers: where the server is, who asks, and as whom.
fn addressed(config: &Config, auth: Option<&AuthLayer>, next: Next) -> Result<Next, ClientError> {
    let headers = config.extra_headers_layer().map_err(ClientError::Headers)?;
    let next = over(headers.layer(AsService(next)));
    let next = match auth {
        Some(auth) => before(HideSecrets, over(auth.layer(AsService(next)))),
        None => next,
    };
    Ok(over(ServiceBuilder::new().layer(config.base_uri_layer()).service(AsService(next))))
}

/// The clients of one identity: they share a budget, a user agent, a fence and connections.
#[derive(Clone)]
pub struct ControllerClients {
    name: Arc<str>,
    namespace: Arc<str>,
    count: Count,
    inner: Next,
    draining: Observer<bool>,
}

impl ControllerClients {
    /// The identity's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client whose writes nobody keeps a log of, and that [`Clients::drain`] leaves alone: for events, which are
    /// still to be sent when the work is over.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.over(Arc::clone(&self.inner))
    }

    /// A client for one worker: its writes are told to `log`, and with `declared` whatever was not declared is
    /// refused. Everything sent with it or with a clone of it is logged, from whatever task. It no longer waits after
    /// [`Clients::drain`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn worker(&self, log: Arc<dyn WriteLog>, declared: Option<Arc<dyn DeclaredVerbs>>) -> kube::Client {
        let drained = before(Drain(self.draining.clone()), Arc::clone(&self.inner));
        let logged = before(Log(log), drained);
        self.over(match declared {
            Some(declared) => before(Declared(declared), logged),
            None => logged,
        })
    }

    fn over(&self, next: Next) -> kube::Client {
        kube::Client::new(AsService(before(self.count.clone(), next)), self.namespace.as_ref())
    }
}

/// Names the server and nothing else: the configuration holds secrets.
impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.shared.config.cluster_url.host();
        f.debug_struct("Clients").field("host", &host).finish_non_exhaustive()
    }
}

impl fmt::Debug for ControllerClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerClients").field("name", &self.name).finish_non_exhaustive()
    }
}
