//! The clients of a process, by identity: each identity has its own user agent and rate limit.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Extensions, HeaderValue, Request, Response, Uri, header};
use kube::{
    Config,
    client::{Body, ConfigExt as _},
};
use tower::{BoxError, Layer as _, Service, ServiceBuilder};
use windlass_env::{
    Env,
    watch_channel::{Receiver, Sender, channel},
};
use windlass_metrics::Metrics;

use crate::{
    connect::connect,
    error::{ClientError, CredentialsError},
    identities::{
        account::ServiceAccountClient, anonymous::anonymous, bearer::Bearer, process::ProcessCredentials,
        tokens::TokenCache,
    },
    options::{ClientOptions, Identities, RateFactors},
    raw::RawClient,
    reachability::{Reachability, ReachabilityMiddleware},
    stack::{
        Next, StackService,
        declared::{Declared, DeclaredVerbs},
        drain::Drain,
        fence::{AttachFence, Fence, FenceMiddleware},
        in_flight::ConcurrencyLimit,
        layer,
        limit::{RateLimit, RequestLimiter},
        metrics::{MetricsMiddleware, RequestMeter},
        over,
        reconcile_scope::ReconcileScopeMiddleware,
        request_options::RequestOptions,
        retry_after::RetryAfter,
        tag::Tags,
        timeout::Timeout,
        wire::{ServiceWire, Wire},
        write_log::{OpenWrites, WriteLog, WriteLogMiddleware},
    },
};

/// Creates all clients of a process: one identity per controller, one for informers, one for the election.
///
/// Each identity has its own rate limit and user agent. All identities except the election share the credentials and
/// connections of the process, unless [`ClientOptions::identities`] gives each controller its own ServiceAccount.
/// Controllers with ServiceAccounts share connections without a client certificate. Creating a client does not connect.
///
/// The process must install a rustls `CryptoProvider` before it creates a client for an `https` server.
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
    credentials: ProcessCredentials,
    /// Credentials of the election's clients.
    election: Mutex<Vec<ProcessCredentials>>,
    transports: Transports,
    health: Next,
    identities: Mutex<BTreeMap<(IdentityKind, String), ControllerClients>>,
    draining: Sender<bool>,
    reachability: Reachability,
}

/// The destination of requests.
enum Transports {
    /// The server: this pool, and a separate pool for the election.
    Pool {
        /// For requests of the process, whose client certificate can authenticate the connections.
        process: Arc<dyn Wire>,
        /// For requests of ServiceAccounts. The same pool if identities are shared.
        anonymous: Arc<dyn Wire>,
    },
    /// A service that the caller provides.
    Service(Arc<dyn Wire>),
}

impl Transports {
    fn pool(
        env: &Env,
        config: &Config,
        options: &ClientOptions,
        credentials: &ProcessCredentials,
    ) -> Result<Self, ClientError> {
        let process = connect(env, config, options, Some(credentials))?;
        let anonymous = match options.identities {
            Identities::Shared => Arc::clone(&process),
            Identities::ServiceAccounts { .. } => connect(env, &anonymous(config), options, None)?,
        };
        Ok(Self::Pool { process, anonymous })
    }

    fn of(&self, kind: IdentityKind) -> &Arc<dyn Wire> {
        match (self, kind) {
            (Transports::Pool { process: next, .. }, IdentityKind::Process)
            | (Transports::Pool { anonymous: next, .. }, IdentityKind::Account)
            | (Transports::Service(next), _) => next,
        }
    }
}

/// The kind of credentials that an identity uses.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IdentityKind {
    /// The credentials of the process.
    Process,
    /// The tokens of the controller's own ServiceAccount.
    Account,
}

/// The credentials that are added to a request.
enum Credentials<'a> {
    /// kube's layer for the credentials of the process. It adds nothing if there are none, or only a certificate.
    Process(&'a ProcessCredentials),
    /// The tokens of a ServiceAccount.
    Account(Bearer),
}

/// The identity of the informers' requests.
const INFORMERS: &str = "shared-informers";
/// The identity of the election's requests.
const ELECTION: &str = "leader-election";
/// The identity that sends access reviews for the admin server.
const REVIEWS: &str = "admin-server";
/// The identity that requests ServiceAccounts and tokens for other identities.
const ACCOUNTS: &str = "service-accounts";
/// Time limit of a request for an account or a token. Well below the time limit of the request that needs the token.
const ACCOUNTS_TIMEOUT: Duration = Duration::from_secs(10);

impl Clients {
    /// Creates clients for the cluster in `config`. This call reads the credentials, or runs the credential plugin.
    ///
    /// kube's timeouts and retries in `config` are not used: repeating a create could create a second object.
    ///
    /// # Errors
    ///
    /// If credentials, certificates, proxy, user agent or limits cannot be used, if the namespace of the service
    /// accounts is not a valid name, or if no `CryptoProvider` is installed.
    pub fn new(
        env: Env,
        config: Config,
        options: ClientOptions,
        metrics: &Metrics,
        fence: Arc<dyn Fence>,
    ) -> Result<Self, ClientError> {
        options.validate()?;
        let credentials = ProcessCredentials::load(env.clone(), config.clone())?;
        let transports = Transports::pool(&env, &config, &options, &credentials)?;
        Self::build(env, config, options, metrics, fence, credentials, transports)
    }

    /// Creates clients that send requests to a service instead of the network: an API server in this process or a test
    /// server. `base_uri` is the base of the request URIs.
    ///
    /// # Errors
    ///
    /// If the user agent or the limits cannot be used, or if the namespace of the service accounts is not a valid name.
    pub fn from_service<S, B>(
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
        let config = Config::new(base_uri);
        let credentials = ProcessCredentials::load(env.clone(), config.clone())?;
        let transports = Transports::Service(Arc::new(ServiceWire(over(service))));
        Self::build(env, config, options, metrics, fence, credentials, transports)
    }

    /// Returns the default namespace: the Pod's namespace in a cluster, otherwise that of the context.
    pub fn default_namespace(&self) -> &str {
        &self.shared.config.default_namespace
    }

    fn build(
        env: Env,
        config: Config,
        options: ClientOptions,
        metrics: &Metrics,
        fence: Arc<dyn Fence>,
        credentials: ProcessCredentials,
        transports: Transports,
    ) -> Result<Self, ClientError> {
        options.validate()?;
        if let Identities::ServiceAccounts { namespace } = &options.identities {
            ServiceAccountClient::check_namespace(namespace)?;
        }
        let metrics = metrics.clone();
        let deadline = Timeout { env: env.clone(), within: options.request_timeout };
        let headers = identified(&config, &options.user_agent)?;
        let innermost = FenceMiddleware {
            env: env.clone(),
            fence: None,
            wire: Arc::clone(transports.of(IdentityKind::Process)),
            unacknowledged_timeout: options.unacknowledged_timeout,
            server_allowance: options.server_allowance(),
        };
        let innermost: Next = Arc::new(innermost);
        let reachability = Reachability::new(env.clone());
        let health = layer(deadline, addressed(&headers, Credentials::Process(&credentials), innermost)?);
        let health = layer(ReachabilityMiddleware(reachability.clone()), health);
        let (identities, draining) = (Mutex::default(), channel(false).0);
        let shared = Shared {
            env,
            config,
            options,
            metrics,
            fence,
            credentials,
            election: Mutex::default(),
            transports,
            health,
            identities,
            draining,
            reachability,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Stops all waits of workers. A request that can be sent immediately is still sent. A request that waits, or would
    /// have to wait, for the rate limiter, for a permit or for a busy server fails with
    /// [`DrainingError`](crate::DrainingError). Requests in flight complete.
    ///
    /// This affects only clients of [`ControllerClients::worker`]; events, informers, election and health continue. It
    /// cannot be undone: a process that resumes work must create new clients.
    pub fn drain(&self) {
        self.shared.draining.set(true);
    }

    /// Returns the clients of one controller. Callers with the same name share one rate limit,
    /// which has the factors of the first call. If controllers have
    /// ServiceAccounts ([`ClientOptions::identities`]), they also share the ServiceAccount of that name.
    ///
    /// # Errors
    ///
    /// If the name is not valid in a user agent, or as the name of a ServiceAccount.
    ///
    /// # Panics
    ///
    /// If controllers have ServiceAccounts and other `Clients` with the same environment have created clients of this
    /// name. Both would use the same random numbers.
    pub fn for_controller(&self, name: &str) -> Result<ControllerClients, ClientError> {
        self.for_controller_with_rate(name, RateFactors::ONE)
    }

    /// Returns the clients of one controller, with a multiple of the rate limit. See
    /// [`for_controller`](Self::for_controller).
    ///
    /// # Errors
    /// As [`for_controller`](Self::for_controller).
    ///
    /// # Panics
    /// As [`for_controller`](Self::for_controller).
    pub fn for_controller_with_rate(
        &self,
        name: &str,
        rate: RateFactors,
    ) -> Result<ControllerClients, ClientError> {
        let kind = match self.shared.options.identities {
            Identities::Shared => IdentityKind::Process,
            Identities::ServiceAccounts { .. } => IdentityKind::Account,
        };
        self.identity(name, kind, rate)
    }

    fn identity(
        &self,
        name: &str,
        kind: IdentityKind,
        rate: RateFactors,
    ) -> Result<ControllerClients, ClientError> {
        let mut identities = self.shared.identities.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, name.to_owned());
        if let Some(clients) = identities.get(&key) {
            return Ok(clients.clone());
        }
        let clients =
            self.shared.clients(name, self.shared.limited(name, rate, self.shared.fenced(name, kind)?));
        identities.insert(key, clients.clone());
        Ok(clients)
    }

    /// Returns a client for the lists and watches of informers, before and during leadership. Lists have a separate
    /// rate limit; watches start immediately. A 429 is returned to the informer, which waits as requested and reports
    /// its state while it does.
    ///
    /// # Errors
    ///
    /// If the user agent cannot be used.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn for_informers(&self) -> Result<RawClient, ClientError> {
        let clients = self.identity(INFORMERS, IdentityKind::Process, RateFactors::ONE)?;
        let reachability = self.shared.reachability.clone();
        let client = RawClient::new(clients.client(), self.shared.env.clone());
        Ok(client.with_format(self.shared.options.format).with_reachability(reachability))
    }

    /// Returns a client without fence and rate limiter, with separate connections and separately refreshed credentials.
    /// Lease renewal must not wait behind the work that the Lease permits, not even for a token that a worker has begun
    /// to refresh. This call reads the credentials, or runs their plugin, again.
    ///
    /// # Errors
    ///
    /// If credentials or certificates can no longer be used.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn for_election(&self) -> Result<kube::Client, ClientError> {
        let Shared { env, config, options, .. } = &*self.shared;
        let credentials = ProcessCredentials::load(env.clone(), config.clone())?;
        let wire = match &self.shared.transports {
            Transports::Pool { .. } => connect(env, config, options, Some(&credentials))?,
            Transports::Service(service) => Arc::clone(service),
        };
        let unlimited = self.shared.unfenced(ELECTION, &credentials, options.request_timeout, &wire)?;
        self.shared.election.lock().unwrap_or_else(PoisonError::into_inner).push(credentials);
        Ok(self.shared.clients(ELECTION, unlimited).client())
    }

    /// Returns a client for access reviews of the admin server. It uses the credentials of the process, has no fence,
    /// and has a separate rate limit, so that unauthenticated requests cannot delay other requests.
    ///
    /// # Errors
    ///
    /// If the user agent cannot be used.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn for_reviews(&self) -> Result<kube::Client, ClientError> {
        let (within, wire) =
            (self.shared.options.request_timeout, self.shared.transports.of(IdentityKind::Process));
        let unfenced = self.shared.unfenced(REVIEWS, &self.shared.credentials, within, wire)?;
        let limited = self.shared.limited(REVIEWS, RateFactors::ONE, unfenced);
        Ok(self.shared.clients(REVIEWS, limited).client())
    }

    /// Returns the reason why requests of the process or of its election are not authenticated: credentials that cannot
    /// be renewed, or that the server rejects. Returns `None` once a request is authenticated again.
    pub fn credentials_error(&self) -> Option<CredentialsError> {
        let election = self.shared.election.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&self.shared.credentials).chain(election.iter()).find_map(ProcessCredentials::problem)
    }

    /// Returns a client for health endpoints such as `/healthz`, without rate limit and fence.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn for_health(&self) -> kube::Client {
        self.shared.clients("health", Arc::clone(&self.shared.health)).client()
    }
}

impl Shared {
    /// Returns the inner stack of an identity: its credentials, behind the fence.
    fn fenced(&self, name: &str, kind: IdentityKind) -> Result<Next, ClientError> {
        let (within, wire) = (self.options.request_timeout, self.transports.of(kind));
        let fence = Some(Arc::clone(&self.fence));
        match &self.options.identities {
            Identities::ServiceAccounts { namespace } if kind == IdentityKind::Account => {
                let bearer = Bearer { tokens: self.tokens(namespace, name)?, meter: self.meter(name) };
                let config = anonymous(&self.config);
                self.inner(name, &config, Credentials::Account(bearer), fence, within, wire)
            }
            _ => self.inner(name, &self.config, Credentials::Process(&self.credentials), fence, within, wire),
        }
    }

    /// Returns the inner stack of the process without a fence, for requests that do not require leadership.
    fn unfenced(
        &self,
        name: &str,
        credentials: &ProcessCredentials,
        within: Duration,
        wire: &Arc<dyn Wire>,
    ) -> Result<Next, ClientError> {
        self.inner(name, &self.config, Credentials::Process(credentials), None, within, wire)
    }

    fn inner(
        &self,
        name: &str,
        config: &Config,
        credentials: Credentials<'_>,
        fence: Option<Arc<dyn Fence>>,
        within: Duration,
        wire: &Arc<dyn Wire>,
    ) -> Result<Next, ClientError> {
        let Self { env, options, .. } = self;
        let innermost: Next = Arc::new(FenceMiddleware {
            env: env.clone(),
            fence,
            wire: Arc::clone(wire),
            unacknowledged_timeout: options.unacknowledged_timeout,
            server_allowance: options.server_allowance(),
        });
        let config = identified(config, &format!("{}/{name}", options.user_agent))?;
        let addressed = addressed(&config, credentials, innermost)?;
        let bounded = layer(Timeout { env: env.clone(), within }, addressed);
        Ok(layer(ReachabilityMiddleware(self.reachability.clone()), bounded))
    }

    /// Returns the tokens of a controller's ServiceAccount.
    fn tokens(&self, namespace: &str, name: &str) -> Result<TokenCache, ClientError> {
        let within = self.options.request_timeout.min(ACCOUNTS_TIMEOUT);
        let root =
            self.unfenced(ACCOUNTS, &self.credentials, within, self.transports.of(IdentityKind::Process))?;
        let root = layer(MetricsMiddleware { env: self.env.clone(), meter: self.meter(ACCOUNTS) }, root);
        let account = ServiceAccountClient::new(namespace, name, root)?;
        let rng = self.env.rng(&format!("identities/{name}"));
        Ok(TokenCache::new(self.env.clone(), account, rng))
    }

    /// Adds the limits of an identity: concurrency, rate, and retries for a busy server.
    fn limited(&self, name: &str, rate: RateFactors, inner: Next) -> Next {
        let bounded = layer(ConcurrencyLimit::new(self.env.clone()), inner);
        let (qps, burst) = rate.applied(self.options.qps, self.options.burst);
        let limiter = RequestLimiter::new(self.env.clone(), qps, burst);
        let limited = layer(RateLimit { limiter, meter: self.meter(name) }, bounded);
        if name == INFORMERS {
            return limited;
        }
        let within = self.options.request_timeout;
        layer(RetryAfter { env: self.env.clone(), meter: self.meter(name), within }, limited)
    }

    fn clients(&self, name: &str, inner: Next) -> ControllerClients {
        let count = MetricsMiddleware { env: self.env.clone(), meter: self.meter(name) };
        ControllerClients {
            env: self.env.clone(),
            name: name.into(),
            namespace: self.config.default_namespace.as_str().into(),
            count,
            inner,
            fence: None,
            scope: None,
            open: OpenWrites::default(),
            options: RequestOptions::default(),
            tags: Extensions::new(),
            draining: self.draining.subscribe(),
        }
    }

    fn meter(&self, identity: &str) -> RequestMeter {
        RequestMeter {
            metrics: self.metrics.requests(identity),
            host: host_and_port(&self.config.cluster_url).into(),
        }
    }
}

/// Returns host and port of a server, without the user name and password that its URL can contain.
fn host_and_port(server: &Uri) -> String {
    let host = server.host().unwrap_or_default();
    server.port_u16().map_or_else(|| host.into(), |port| format!("{host}:{port}"))
}

/// Returns the configuration with a user agent header.
fn identified(config: &Config, user_agent: &str) -> Result<Config, ClientError> {
    let value = HeaderValue::from_str(user_agent).map_err(|_| ClientError::UserAgent(user_agent.into()))?;
    let mut config = config.clone();
    config.headers.retain(|(name, _)| name != header::USER_AGENT);
    config.headers.push((header::USER_AGENT, value));
    Ok(config)
}

/// Adds base URI, extra headers and credentials to a stack.
fn addressed(config: &Config, credentials: Credentials<'_>, next: Next) -> Result<Next, ClientError> {
    let headers = config.extra_headers_layer().map_err(ClientError::Headers)?;
    let next = over(headers.layer(StackService(next)));
    let next = match credentials {
        Credentials::Process(credentials) => layer(credentials.clone(), next),
        Credentials::Account(bearer) => layer(bearer, next),
    };
    Ok(over(ServiceBuilder::new().layer(config.base_uri_layer()).service(StackService(next))))
}

/// The clients of one identity, with a common rate limit, user agent, fence and connections.
#[derive(Clone)]
pub struct ControllerClients {
    env: Env,
    name: Arc<str>,
    namespace: Arc<str>,
    count: MetricsMiddleware,
    inner: Next,
    /// The fence of these clients; `None` for the common fence.
    fence: Option<Arc<dyn Fence>>,
    /// Closed when these clients must not write any longer; `None` for clients without such a limit.
    scope: Option<Receiver<()>>,
    open: OpenWrites,
    options: RequestOptions,
    /// Extensions that are added to each request.
    tags: Extensions,
    draining: Receiver<bool>,
}

impl ControllerClients {
    /// Returns the identity's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns this identity with `fence` instead of the fence of all [`Clients`].
    #[must_use]
    pub fn with_fence(&self, fence: Arc<dyn Fence>) -> Self {
        Self { fence: Some(fence), ..self.clone() }
    }

    /// Returns this identity with clients that can write until `scope` is closed. A write in flight is dropped when its
    /// task is next polled; until then it is listed in `open`. Reads are not affected.
    #[must_use]
    pub fn with_scope(&self, scope: Receiver<()>, open: OpenWrites) -> Self {
        Self { scope: Some(scope), open, ..self.clone() }
    }

    /// Returns this identity with clients that use these options. Options that are not set keep their value, so a dry
    /// run cannot be disabled. The log of a [`worker`](Self::worker) does not record dry runs.
    #[must_use]
    pub fn with(&self, options: RequestOptions) -> Self {
        Self { options: options.over(self.options), ..self.clone() }
    }

    /// Returns this identity with `tag` in the extensions of its requests, for observers of the connection. Replaces a
    /// tag of the same type.
    #[must_use]
    pub fn tagged<T: Clone + Send + Sync + 'static>(&self, tag: T) -> Self {
        let mut tags = self.tags.clone();
        tags.insert(tag);
        Self { tags, ..self.clone() }
    }

    /// Returns the options of these clients.
    pub fn options(&self) -> RequestOptions {
        self.options
    }

    /// Returns a client without a write log that [`Clients::drain`] does not affect: for Events, which are still sent
    /// when the work is complete.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.build_client(Arc::clone(&self.inner))
    }

    /// Like [`client`](Self::client), but rejects requests that were not declared.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn declared(&self, declared: Arc<dyn DeclaredVerbs>) -> kube::Client {
        self.build_client(layer(Declared(declared), Arc::clone(&self.inner)))
    }

    /// Returns a client for one worker. Its writes are recorded in `log`; with `declared`, requests that were not
    /// declared are rejected. All requests of this client and its clones are logged, in any task. It does not wait
    /// after [`Clients::drain`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn worker(&self, log: Arc<dyn WriteLog>, declared: Option<Arc<dyn DeclaredVerbs>>) -> kube::Client {
        let drained = layer(Drain(self.draining.clone()), Arc::clone(&self.inner));
        let logged =
            layer(WriteLogMiddleware { env: self.env.clone(), log, open: self.open.clone() }, drained);
        self.build_client(match declared {
            Some(declared) => layer(Declared(declared), logged),
            None => logged,
        })
    }

    fn build_client(&self, next: Next) -> kube::Client {
        let next = match self.fence.clone() {
            Some(fence) => layer(AttachFence(fence), next),
            None => next,
        };
        let next = match self.scope.clone() {
            Some(scope) => layer(ReconcileScopeMiddleware(scope), next),
            None => next,
        };
        let next = if self.options == RequestOptions::default() { next } else { layer(self.options, next) };
        let next = if self.tags.is_empty() { next } else { layer(Tags(self.tags.clone()), next) };
        kube::Client::new(StackService(layer(self.count.clone(), next)), self.namespace.as_ref())
    }
}

/// Prints only the server: the configuration contains secrets.
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
