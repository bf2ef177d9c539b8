//! Who sends requests, under which name and within which budget.

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
    options::{ClientOptions, Identities},
    raw::RawClient,
    reachability::{Reachability, Sense},
    stack::{
        Next, StackService, before,
        declared::{Declared, DeclaredVerbs},
        drain::Drain,
        fence::{AttachFence, Fence, FenceMiddleware},
        in_flight::ConcurrencyLimit,
        limit::{RateLimit, RequestLimiter},
        metrics::{MetricsMiddleware, RequestMeter},
        over,
        request_options::RequestOptions,
        retry_after::RetryAfter,
        tag::Tags,
        timeout::Timeout,
        turn::During,
        wire::{ServiceWire, Wire},
        write_log::{OpenWrites, WriteLog, WriteLogMiddleware},
    },
};

/// Makes every client of a process: one identity per controller, one for informers, one for the election.
///
/// Each identity has its own budget and user agent. All but the election share the refreshed credentials of the process
/// and its connections, unless [`ClientOptions::identities`] gives each controller its own account; these then share
/// connections that nobody's certificate has opened. Making one connects nowhere.
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
    credentials: ProcessCredentials,
    /// Those of the election's clients.
    election: Mutex<Vec<ProcessCredentials>>,
    wires: Transports,
    health: Next,
    identities: Mutex<BTreeMap<(IdentityKind, String), ControllerClients>>,
    draining: Sender<bool>,
    reachability: Reachability,
}

/// Where requests go.
enum Transports {
    /// To the server: this pool, and one more for the election.
    Pool {
        /// For the process, whose certificate may be what opens them.
        process: Arc<dyn Wire>,
        /// For accounts. The same as the other where there are none.
        anonymous: Arc<dyn Wire>,
    },
    /// Into a service of the caller's.
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

    fn of(&self, whose: IdentityKind) -> &Arc<dyn Wire> {
        match (self, whose) {
            (Transports::Pool { process: next, .. }, IdentityKind::Process)
            | (Transports::Pool { anonymous: next, .. }, IdentityKind::Account)
            | (Transports::Service(next), _) => next,
        }
    }
}

/// Whose credentials an identity has.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IdentityKind {
    /// The process's.
    Process,
    /// Its own.
    Account,
}

/// What adds credentials to a request.
enum Credentials<'a> {
    /// kube's layer for those of the process; none if it has none, or only a certificate.
    Process(&'a ProcessCredentials),
    /// The tokens of an account.
    Account(Bearer),
}

/// The identity whose requests are the informers'.
const INFORMERS: &str = "shared-informers";
/// The identity whose requests are the election's.
const ELECTION: &str = "leader-election";
/// The identity that asks who may read what the process shows.
const REVIEWS: &str = "admin-server";
/// The identity that asks for the accounts and tokens of the others.
const ACCOUNTS: &str = "service-accounts";
/// How long one request for an account or a token may take, at most. Well below what the request that needs it has.
const ACCOUNTS_TIMEOUT: Duration = Duration::from_secs(10);

impl Clients {
    /// Clients of the cluster that `config` describes. Its credentials are read, or its plugin run, here.
    ///
    /// kube's own timeouts and retries in `config` are not used: a retried create may create twice.
    ///
    /// # Errors
    ///
    /// When credentials, certificates, proxy, user agent or limits cannot be used, when no namespace can be called as the
    /// one of the service accounts, or when no `CryptoProvider` is installed.
    pub fn new(
        env: Env,
        config: Config,
        options: ClientOptions,
        metrics: &Metrics,
        fence: Arc<dyn Fence>,
    ) -> Result<Self, ClientError> {
        options.validate()?;
        let credentials = ProcessCredentials::load(env.clone(), config.clone())?;
        let wires = Transports::pool(&env, &config, &options, &credentials)?;
        Self::build(env, config, options, metrics, fence, credentials, wires)
    }

    /// Clients whose requests go into a service instead of over the network: an API server in the process, or a
    /// test's. `base_uri` is what the service is told it is called.
    ///
    /// # Errors
    ///
    /// When the user agent or the limits cannot be used, or no namespace can be called as the one of the service accounts.
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
        let wires = Transports::Service(Arc::new(ServiceWire(over(service))));
        Self::build(env, config, options, metrics, fence, credentials, wires)
    }

    /// Returns the namespace of requests that name none: the Pod's in a cluster, the context's outside.
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
        wires: Transports,
    ) -> Result<Self, ClientError> {
        options.validate()?;
        if let Identities::ServiceAccounts { namespace } = &options.identities {
            ServiceAccountClient::check_namespace(namespace)?;
        }
        let metrics = metrics.clone();
        let deadline = Timeout { env: env.clone(), within: options.request_timeout };
        let headers = identified(&config, &options.user_agent)?;
        let gate = FenceMiddleware {
            env: env.clone(),
            fence: None,
            wire: Arc::clone(wires.of(IdentityKind::Process)),
        };
        let gate: Next = Arc::new(gate);
        let reachability = Reachability::new(env.clone());
        let health = before(deadline, addressed(&headers, Credentials::Process(&credentials), gate)?);
        let health = before(Sense(reachability.clone()), health);
        let (identities, draining) = (Mutex::default(), channel(false).0);
        let shared = Shared {
            env,
            config,
            options,
            metrics,
            fence,
            credentials,
            election: Mutex::default(),
            wires,
            health,
            identities,
            draining,
            reachability,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// From now on no worker waits: a request that can leave at once still does, and one that would have to wait for
    /// the limiter, for a place on the wire or for a busy server fails at once with
    /// [`DrainingError`](crate::DrainingError), those that wait already among them. What is on the wire is answered.
    ///
    /// Only clients of [`ControllerClients::worker`] are concerned; events, informers, election and health continue. This
    /// is for good: a process that worked once more would make its clients again.
    pub fn drain(&self) {
        self.shared.draining.set(true);
    }

    /// The clients of one controller. Whoever asks for the same name shares one budget, and one account where
    /// controllers have accounts ([`ClientOptions::identities`]): the ServiceAccount of that name.
    ///
    /// # Errors
    ///
    /// When the name cannot be part of a user agent, or be an account's.
    ///
    /// # Panics
    ///
    /// Where controllers have accounts: when other `Clients` over the same environment have made clients of this name.
    /// Both would draw the same random numbers.
    pub fn for_controller(&self, name: &str) -> Result<ControllerClients, ClientError> {
        let whose = match self.shared.options.identities {
            Identities::Shared => IdentityKind::Process,
            Identities::ServiceAccounts { .. } => IdentityKind::Account,
        };
        self.identity(name, whose)
    }

    fn identity(&self, name: &str, whose: IdentityKind) -> Result<ControllerClients, ClientError> {
        let mut identities = self.shared.identities.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (whose, name.to_owned());
        if let Some(clients) = identities.get(&key) {
            return Ok(clients.clone());
        }
        let clients = self.shared.clients(name, self.shared.limited(name, self.shared.fenced(name, whose)?));
        identities.insert(key, clients.clone());
        Ok(clients)
    }

    /// Lists and watches for informers, standby or leading. Lists have a budget of their own; watches start at once. A 429
    /// is returned to the informer, which waits as long as it says and stays visible while it does.
    ///
    /// # Errors
    ///
    /// When the user agent cannot be used.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn for_informers(&self) -> Result<RawClient, ClientError> {
        let clients = self.identity(INFORMERS, IdentityKind::Process)?;
        let reachability = self.shared.reachability.clone();
        Ok(RawClient::new(clients.client(), self.shared.env.clone()).with_reachability(reachability))
    }

    /// A client that neither fence nor limiter can hold back, on connections of its own and with credentials that it
    /// refreshes itself: renewing a lease must not wait behind the work that the lease permits, not even for a token
    /// that a worker has begun to refresh. Credentials are read, or their plugin run, once more here.
    ///
    /// # Errors
    ///
    /// When credentials or certificates cannot be used any more.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn for_election(&self) -> Result<kube::Client, ClientError> {
        let Shared { env, config, options, .. } = &*self.shared;
        let credentials = ProcessCredentials::load(env.clone(), config.clone())?;
        let wire = match &self.shared.wires {
            Transports::Pool { .. } => connect(env, config, options, Some(&credentials))?,
            Transports::Service(service) => Arc::clone(service),
        };
        let unlimited = self.shared.unfenced(ELECTION, &credentials, options.request_timeout, &wire)?;
        self.shared.election.lock().unwrap_or_else(PoisonError::into_inner).push(credentials);
        Ok(self.shared.clients(ELECTION, unlimited).client())
    }

    /// A client for reviews of who may read this process's pages: with the credentials of the process, without fence,
    /// and with its own budget, so that strangers who try tokens hold up nobody else.
    ///
    /// # Errors
    ///
    /// When the user agent cannot be used.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn for_reviews(&self) -> Result<kube::Client, ClientError> {
        let (within, wire) =
            (self.shared.options.request_timeout, self.shared.wires.of(IdentityKind::Process));
        let unfenced = self.shared.unfenced(REVIEWS, &self.shared.credentials, within, wire)?;
        let limited = self.shared.limited(REVIEWS, unfenced);
        Ok(self.shared.clients(REVIEWS, limited).client())
    }

    /// Returns why requests of the process or of its election are not authenticated, until one is again: credentials
    /// that cannot be renewed, or that the server rejects.
    pub fn credentials_error(&self) -> Option<CredentialsError> {
        let election = self.shared.election.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&self.shared.credentials).chain(election.iter()).find_map(ProcessCredentials::problem)
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
    /// The part of a stack that every identity has, with its credentials, behind the fence.
    fn fenced(&self, name: &str, whose: IdentityKind) -> Result<Next, ClientError> {
        let (within, wire) = (self.options.request_timeout, self.wires.of(whose));
        let fence = Some(Arc::clone(&self.fence));
        match &self.options.identities {
            Identities::ServiceAccounts { namespace } if whose == IdentityKind::Account => {
                let bearer = Bearer { tokens: self.tokens(namespace, name)?, meter: self.meter(name) };
                let config = anonymous(&self.config);
                self.inner(name, &config, Credentials::Account(bearer), fence, within, wire)
            }
            _ => self.inner(name, &self.config, Credentials::Process(&self.credentials), fence, within, wire),
        }
    }

    /// The same for the process itself, where leadership is not asked for.
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
        let gate: Next = Arc::new(FenceMiddleware { env: env.clone(), fence, wire: Arc::clone(wire) });
        let config = identified(config, &format!("{}/{name}", options.user_agent))?;
        let addressed = addressed(&config, credentials, gate)?;
        let bounded = before(Timeout { env: env.clone(), within }, addressed);
        Ok(before(Sense(self.reachability.clone()), bounded))
    }

    /// The tokens of a controller's account.
    fn tokens(&self, namespace: &str, name: &str) -> Result<TokenCache, ClientError> {
        let within = self.options.request_timeout.min(ACCOUNTS_TIMEOUT);
        let root =
            self.unfenced(ACCOUNTS, &self.credentials, within, self.wires.of(IdentityKind::Process))?;
        let root = before(MetricsMiddleware { env: self.env.clone(), meter: self.meter(ACCOUNTS) }, root);
        let account = ServiceAccountClient::new(namespace, name, root)?;
        let rng = self.env.rng(&format!("identities/{name}"));
        Ok(TokenCache::new(self.env.clone(), account, rng))
    }

    /// What keeps an identity from asking too much of the server.
    fn limited(&self, name: &str, inner: Next) -> Next {
        let bounded = before(ConcurrencyLimit::new(self.env.clone()), inner);
        let limiter = RequestLimiter::new(self.env.clone(), self.options.qps, self.options.burst);
        let limited = before(RateLimit { limiter, meter: self.meter(name) }, bounded);
        if name == INFORMERS {
            return limited;
        }
        let within = self.options.request_timeout;
        before(RetryAfter { env: self.env.clone(), meter: self.meter(name), within }, limited)
    }

    fn clients(&self, name: &str, inner: Next) -> ControllerClients {
        let count = MetricsMiddleware { env: self.env.clone(), meter: self.meter(name) };
        ControllerClients {
            name: name.into(),
            namespace: self.config.default_namespace.as_str().into(),
            count,
            inner,
            fence: None,
            turn: None,
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

/// Where a server is, without the name and password that its URL may hold.
fn host_and_port(server: &Uri) -> String {
    let host = server.host().unwrap_or_default();
    server.port_u16().map_or_else(|| host.into(), |port| format!("{host}:{port}"))
}

/// The configuration with a user agent among its headers.
fn identified(config: &Config, user_agent: &str) -> Result<Config, ClientError> {
    let value = HeaderValue::from_str(user_agent).map_err(|_| ClientError::UserAgent(user_agent.into()))?;
    let mut config = config.clone();
    config.headers.retain(|(name, _)| name != header::USER_AGENT);
    config.headers.push((header::USER_AGENT, value));
    Ok(config)
}

/// Where the server is, who asks, and as whom.
fn addressed(config: &Config, credentials: Credentials<'_>, next: Next) -> Result<Next, ClientError> {
    let headers = config.extra_headers_layer().map_err(ClientError::Headers)?;
    let next = over(headers.layer(StackService(next)));
    let next = match credentials {
        Credentials::Process(credentials) => before(credentials.clone(), next),
        Credentials::Account(bearer) => before(bearer, next),
    };
    Ok(over(ServiceBuilder::new().layer(config.base_uri_layer()).service(StackService(next))))
}

/// The clients of one identity: they share a budget, a user agent, a fence and connections.
#[derive(Clone)]
pub struct ControllerClients {
    name: Arc<str>,
    namespace: Arc<str>,
    count: MetricsMiddleware,
    inner: Next,
    /// What these clients write behind; `None` for the fence of all.
    fence: Option<Arc<dyn Fence>>,
    /// Closed when these clients write no more; `None` for clients that write as long as the process does.
    turn: Option<Receiver<()>>,
    open: OpenWrites,
    options: RequestOptions,
    /// What each request carries to the wire.
    tags: Extensions,
    draining: Receiver<bool>,
}

impl ControllerClients {
    /// The identity's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same identity, whose clients write behind `fence` and not behind the one of all [`Clients`].
    #[must_use]
    pub fn with_fence(&self, fence: Arc<dyn Fence>) -> Self {
        Self { fence: Some(fence), ..self.clone() }
    }

    /// The same identity, whose clients write until `turn` is closed. A write that is under way then is dropped when its
    /// task is next polled; until then it is among `open`. Reads are not concerned.
    #[must_use]
    pub fn during(&self, turn: Receiver<()>, open: OpenWrites) -> Self {
        Self { turn: Some(turn), open, ..self.clone() }
    }

    /// The same identity, whose clients send requests with these options. An option that is not set keeps its value, so a dry
    /// run stays one. The log of a [`worker`](Self::worker) records no dry run.
    #[must_use]
    pub fn with(&self, options: RequestOptions) -> Self {
        Self { options: options.over(self.options), ..self.clone() }
    }

    /// The same identity, whose requests carry `tag` in their extensions, for observers of the wire. It replaces a tag of
    /// the same type.
    #[must_use]
    pub fn tagged<T: Clone + Send + Sync + 'static>(&self, tag: T) -> Self {
        let mut tags = self.tags.clone();
        tags.insert(tag);
        Self { tags, ..self.clone() }
    }

    /// The options of its clients.
    pub fn options(&self) -> RequestOptions {
        self.options
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

    /// As [`client`](Self::client), but whatever was not declared is refused.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn declared(&self, declared: Arc<dyn DeclaredVerbs>) -> kube::Client {
        self.over(before(Declared(declared), Arc::clone(&self.inner)))
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
        let logged = before(WriteLogMiddleware { log, open: self.open.clone() }, drained);
        self.over(match declared {
            Some(declared) => before(Declared(declared), logged),
            None => logged,
        })
    }

    fn over(&self, next: Next) -> kube::Client {
        let next = match self.fence.clone() {
            Some(fence) => before(AttachFence(fence), next),
            None => next,
        };
        let next = match self.turn.clone() {
            Some(turn) => before(During(turn), next),
            None => next,
        };
        let next = if self.options == RequestOptions::default() { next } else { before(self.options, next) };
        let next = if self.tags.is_empty() { next } else { before(Tags(self.tags.clone()), next) };
        kube::Client::new(StackService(before(self.count.clone(), next)), self.namespace.as_ref())
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
