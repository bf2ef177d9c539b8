//! The webhooks of a process, and the server that runs on every replica.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, FutureExt as _, join, select};
use http::Response;
use http_body_util::{BodyExt as _, Collected, Full};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig,
    WebhookConversion,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use windlass_client::RequestOptions;
use windlass_controller::host::{InProcessWebhooks, NamedRule};
use windlass_controller::{
    BoxError, Descriptor, FullObject, Registration, Runnable, RunnableContext, RunsOn, Setup, SetupError,
    WebhookCertificates, WebhookConfig, Writable,
};
use windlass_env::{Env, Task};
use windlass_metrics::WebhookMetrics;
use windlass_object::{ResourceKind, Rule, Verb};
use windlass_serving::{
    CertificateFiles, Certificates, Handler, HttpListener, Limits, load_authorities, provider, server_config,
};

use crate::admission::{Function, Mutator, Validator, mutating, validating};
use crate::certificates::bundle::Target;
use crate::certificates::rotation::{Rotation, ServedCertificate};
use crate::certificates::state::Lifetimes;
use crate::conversion::Conversion;
use crate::error::AdmissionError;
use crate::hook::{Hook, Operation, SideEffects};
use crate::review::{Review, ReviewClients};
use crate::router::{self, CacheCheck, Route, Router};

/// Time for requests in progress when the server closes its connections: the longest time limit of a webhook.
const CLOSING: Duration = Duration::from_secs(30);

/// Limits of the connections. API servers close idle connections after 90 s. The server keeps them for longer, because
/// a request on a connection that the server closes at the same time fails.
fn limits() -> Limits {
    let (idle, whole) = (Duration::from_secs(120), Duration::from_secs(100 * 365 * 24 * 60 * 60));
    Limits { connections: 512, head: idle, whole, closing: CLOSING, ..Limits::default() }
}

/// The webhooks of a process.
///
/// # Examples
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass_controller::Registration;
/// # use windlass_webhook::{FailurePolicy, Hook, Webhooks, deny};
/// const HOOK: Hook = Hook::new("config-maps.policy.example.com").failure(FailurePolicy::Ignore);
///
/// let webhooks = Webhooks::new().validates::<ConfigMap>(HOOK, |review| {
///     let Some(map) = review.object() else { return Ok(()) };
///     match map.data.iter().flatten().find(|(_, value)| value.is_empty()) {
///         Some((key, _)) => Err(deny("empty values are not allowed").at(&format!("data.{key}"), "is empty")),
///         None => Ok(()),
///     }
/// });
/// let registration = Registration::from(webhooks);
/// # drop(registration);
/// ```
#[derive(Default)]
pub struct Webhooks {
    hooks: Vec<HookRegistration>,
    conversions: Vec<Arc<Conversion>>,
}

type SetUp = Box<dyn Fn(&mut Setup) -> Result<Function, SetupError> + Send + Sync>;

struct HookRegistration {
    hook: Hook,
    kind: ResourceKind,
    is_mutating: bool,
    set_up: SetUp,
}

impl Webhooks {
    /// Returns no webhooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a validator.
    #[must_use]
    pub fn validator<V: Validator>(self, config: V::Config) -> Self {
        let set_up: SetUp = Box::new(move |setup| Ok(validating(V::setup(setup, &config)?)));
        self.hook(V::HOOK, ResourceKind::of::<V::Object>(), false, set_up)
    }

    /// Adds a mutator.
    #[must_use]
    pub fn mutator<M: Mutator>(self, config: M::Config) -> Self {
        let set_up: SetUp = Box::new(move |setup| Ok(mutating(M::setup(setup, &config)?)));
        self.hook(M::HOOK, ResourceKind::of::<M::Object>(), true, set_up)
    }

    /// Adds a function of the object that admits it or returns an error.
    #[must_use]
    pub fn validates<K: FullObject>(
        self,
        hook: Hook,
        check: impl Fn(&Review<K>) -> Result<(), AdmissionError> + Send + Sync + 'static,
    ) -> Self {
        let check = Arc::new(check);
        let set_up: SetUp = Box::new(move |_| {
            let check = Arc::clone(&check);
            Ok(validating(Check(check, PhantomData::<fn(K)>)))
        });
        self.hook(hook, ResourceKind::of::<K>(), false, set_up)
    }

    /// Adds a function of the object that returns the changed object.
    #[must_use]
    pub fn mutates<K: FullObject + Writable>(
        self,
        hook: Hook,
        change: impl Fn(&Review<K>, K) -> Result<K, AdmissionError> + Send + Sync + 'static,
    ) -> Self {
        let change = Arc::new(change);
        let set_up: SetUp = Box::new(move |_| {
            let change = Arc::clone(&change);
            Ok(mutating(Check(change, PhantomData::<fn(K)>)))
        });
        self.hook(hook, ResourceKind::of::<K>(), true, set_up)
    }

    /// Adds the conversion of a kind. The process then ships the CRD with all versions.
    #[must_use]
    pub fn converts(mut self, conversion: impl Into<Conversion>) -> Self {
        self.conversions.push(Arc::new(conversion.into()));
        self
    }

    fn hook(mut self, hook: Hook, kind: ResourceKind, is_mutating: bool, set_up: SetUp) -> Self {
        self.hooks.push(HookRegistration { hook, kind, is_mutating, set_up });
        self
    }
}

impl From<Webhooks> for Registration {
    fn from(webhooks: Webhooks) -> Self {
        // A webhook records no Events, so its role has no rule for them.
        let descriptor = Descriptor::new(Server::NAME).with_runs_on(Server::RUNS_ON).without_events();
        Registration::runnable::<Server>(webhooks).with_descriptor(descriptor)
    }
}

/// A function without a setup.
struct Check<F, K>(Arc<F>, PhantomData<fn(K)>);

/// The description comes from the caller.
const UNUSED: Hook = Hook::new("");

impl<F, K> Validator for Check<F, K>
where
    F: Fn(&Review<K>) -> Result<(), AdmissionError> + Send + Sync + 'static,
    K: FullObject,
{
    const HOOK: Hook = UNUSED;
    type Object = K;
    type Config = Arc<F>;

    fn setup(_: &mut Setup, check: &Arc<F>) -> Result<Self, SetupError> {
        Ok(Self(Arc::clone(check), PhantomData))
    }

    async fn validate(&self, review: &Review<K>) -> Result<(), AdmissionError> {
        (self.0)(review)
    }
}

impl<F, K> Mutator for Check<F, K>
where
    F: Fn(&Review<K>, K) -> Result<K, AdmissionError> + Send + Sync + 'static,
    K: FullObject + Writable,
{
    const HOOK: Hook = UNUSED;
    type Object = K;
    type Config = Arc<F>;

    fn setup(_: &mut Setup, change: &Arc<F>) -> Result<Self, SetupError> {
        Ok(Self(Arc::clone(change), PhantomData))
    }

    async fn mutate(&self, review: &Review<K>, object: K) -> Result<K, AdmissionError> {
        (self.0)(review, object)
    }
}

/// The server of a process.
pub(crate) struct Server {
    config: WebhookConfig,
    hooks: Vec<ServedHook>,
    conversions: Vec<Arc<Conversion>>,
}

struct ServedHook {
    hook: Hook,
    is_mutating: bool,
    function: Function,
    reads_caches: bool,
}

impl Runnable for Server {
    const NAME: &'static str = "webhooks";
    const RUNS_ON: RunsOn = RunsOn::BeforeCaches;
    type Config = Webhooks;

    fn setup(setup: &mut Setup, webhooks: &Webhooks) -> Result<Self, SetupError> {
        let config = setup.webhook_config().clone();
        setup.start_without_caches();
        setup.extend_shutdown(config.linger.saturating_add(CLOSING));
        let mut names = BTreeSet::new();
        let mut hooks = Vec::new();
        for registration in &webhooks.hooks {
            let name = registration.hook.name;
            if !names.insert(name) {
                let fault = format!("the webhook {name:?} is declared twice: give each a unique name");
                return Err(SetupError::invalid(fault));
            }
            hooks.push(registration.set_up(setup)?);
        }
        for conversion in &webhooks.conversions {
            setup.declare_definition(converted(conversion, &config)?);
        }
        let server = Self { config, hooks, conversions: webhooks.conversions.clone() };
        if let (WebhookCertificates::Rotated { secret }, None) =
            (&server.config.certificates, &server.config.in_process)
        {
            rotation_rules(secret, &server.targets()).into_iter().for_each(|rule| setup.uses_named(rule));
        }
        Ok(server)
    }

    async fn run(&self, cx: RunnableContext) -> Result<(), BoxError> {
        let clients = ReviewClients {
            live: cx.client().clone(),
            dry_run: cx.with(RequestOptions::dry_run()).client().clone(),
        };
        let caches = cx.clone();
        let caches: CacheCheck = Box::new(move || caches.caches_synced());
        let metrics = cx.metrics().webhooks();
        let router = Arc::new(self.router(cx.env(), &metrics, clients, caches));
        match &self.config.in_process {
            Some(served) => {
                self.serve_in_process(&cx, router, served).await;
                Ok(())
            }
            None => self.serve(&cx, router, &metrics).await,
        }
    }
}

/// Stops to serve when it is dropped.
struct Unserved<'a>(&'a InProcessWebhooks);

impl Drop for Unserved<'_> {
    fn drop(&mut self) {
        self.0.serve(None);
    }
}

impl Server {
    /// Serves without a socket until the stop.
    async fn serve_in_process(&self, cx: &RunnableContext, router: Arc<Router>, served: &InProcessWebhooks) {
        let _unserved = Unserved(served);
        served.serve(Some(Arc::new(move |request| {
            let router = Arc::clone(&router);
            async move {
                let (head, body) = router.respond(request.map(Full::new)).await.into_parts();
                // The body is in memory, so collecting it cannot fail.
                let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
                Response::from_parts(head, body)
            }
            .boxed()
        })));
        cx.ready();
        cx.stopped().await;
    }

    /// Serves on a socket until the stop.
    async fn serve(
        &self,
        cx: &RunnableContext,
        router: Arc<Router>,
        metrics: &WebhookMetrics,
    ) -> Result<(), BoxError> {
        let bound = TcpListener::bind(self.config.address).await;
        let listener = bound.map_err(|error| {
            format!("cannot listen on {} for webhooks: {error}; choose another address", self.config.address)
        })?;
        let address = listener.local_addr()?;
        let clients = self.config.client_ca.as_deref().map(load_authorities).transpose()?;
        let (certificates, updating) = self.certificates(cx, metrics).await?;
        let Some(certificates) = certificates else { return Ok(()) };
        let tls = server_config(provider(), certificates, clients)?;
        let (stop, serving) = (CancellationToken::new(), metrics.serving.clone());
        let http = HttpListener::new(cx.env(), handler(&router), Some(tls), stop.clone(), limits(), serving);
        tracing::info!(%address, webhooks = self.hooks.len() + self.conversions.len(), "serving webhooks");
        cx.ready();
        // If this future is dropped, the guard stops the connections.
        let _stop_at_the_end = stop.clone().drop_guard();
        let stopping = async {
            cx.shutting_down().await;
            router.drain();
            cx.env().sleep(self.config.linger).await;
            cx.stopped().await;
            stop.cancel();
        };
        join(http.run(listener), stopping).await;
        drop(updating);
        Ok(())
    }
}

/// A task that is aborted when this is dropped.
struct Updating(Task<()>);

impl Drop for Updating {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Server {
    /// Returns the certificate, with the task that replaces it; `None` if the process stops before there is one.
    async fn certificates(
        &self,
        cx: &RunnableContext,
        metrics: &WebhookMetrics,
    ) -> Result<(Option<Arc<Certificates>>, Updating), BoxError> {
        match &self.config.certificates {
            WebhookCertificates::Files { certificate, key } => {
                let files = CertificateFiles { certificate: certificate.clone(), key: key.clone() };
                let (first, reloader) = files.load(&provider(), cx.env().wall())?;
                let certificates = Certificates::new(first);
                let following =
                    reloader.follow(cx.env().clone(), Arc::clone(&certificates), metrics.serving.clone());
                Ok((Some(certificates), Updating(cx.env().spawn("webhook certificate", following))))
            }
            WebhookCertificates::Rotated { secret } => {
                let served = Arc::new(ServedCertificate::default());
                let rotation = self.rotation(cx, secret, metrics, &served);
                let updating = Updating(cx.env().spawn("webhook certificate", rotation.run()));
                let (checked, env) = (Arc::clone(&served), cx.env().clone());
                cx.health().ready("webhooks", Arc::new(move || checked.check(env.wall())));
                let stopped = Box::pin(cx.stopped());
                match select(Box::pin(served.available()), stopped).await {
                    Either::Left((certificates, _)) => Ok((Some(certificates), updating)),
                    Either::Right(_) => Ok((None, updating)),
                }
            }
        }
    }

    fn rotation(
        &self,
        cx: &RunnableContext,
        secret: &str,
        metrics: &WebhookMetrics,
        served: &Arc<ServedCertificate>,
    ) -> Rotation {
        Rotation {
            env: cx.env().clone(),
            client: cx.client().clone(),
            secret: secret.to_owned(),
            names: served_names(&self.config, cx.client().default_namespace()),
            targets: self.targets(),
            lifetimes: Lifetimes::DEFAULT,
            metrics: metrics.clone(),
            served: Arc::clone(served),
        }
    }

    /// Returns the objects with a `caBundle` for this server.
    fn targets(&self) -> Vec<Target> {
        let of = |is_mutating: bool| -> Vec<String> {
            let hooks = self.hooks.iter().filter(|it| it.is_mutating == is_mutating);
            hooks.map(|it| it.hook.name.to_owned()).collect()
        };
        let name = self.config.configuration.clone();
        let configurations = [
            Target::Validating { name: name.clone(), webhooks: of(false) },
            Target::Mutating { name, webhooks: of(true) },
        ];
        let is_used = |target: &Target| match target {
            Target::Validating { webhooks, .. } | Target::Mutating { webhooks, .. } => !webhooks.is_empty(),
            Target::Definition { .. } => true,
        };
        let definitions = self.conversions.iter().map(|it| Target::Definition { name: it.name() });
        configurations.into_iter().filter(is_used).chain(definitions).collect()
    }

    pub(crate) fn router(
        &self,
        env: &Env,
        metrics: &WebhookMetrics,
        clients: ReviewClients,
        caches: CacheCheck,
    ) -> Router {
        let hooks = self.hooks.iter().map(|it| {
            let target = router::Target::Admission {
                function: Arc::clone(&it.function),
                reads_caches: it.reads_caches,
            };
            (it.hook.path(), Route { metrics: metrics.webhook(it.hook.name), target })
        });
        let conversions = self.conversions.iter().map(|it| {
            let target = router::Target::Conversion(Arc::clone(it));
            (it.path(), Route { metrics: metrics.webhook(&it.name()), target })
        });
        let routes: BTreeMap<String, Route> = hooks.chain(conversions).collect();
        Router::new(env.clone(), routes, clients, caches)
    }
}

fn handler(router: &Arc<Router>) -> Handler {
    let router = Arc::clone(router);
    Arc::new(move |request, _| {
        let router = Arc::clone(&router);
        async move { router.respond(request).await }.boxed()
    })
}

impl HookRegistration {
    /// Sets up the webhook and declares it.
    fn set_up(&self, setup: &mut Setup) -> Result<ServedHook, SetupError> {
        let Self { hook, kind, is_mutating, set_up } = self;
        hook.check()?;
        let invalid = |fault: &str| {
            Err(SetupError::invalid(format!("cannot declare webhook {:?}: {fault}", hook.name)))
        };
        if *is_mutating && hook.operations().contains(&Operation::Delete) {
            return invalid(
                "a deletion has no object to change; remove Operation::Delete, or use a validator",
            );
        }
        let before = setup.declaration_count();
        let function = set_up(setup)?;
        let after = setup.declaration_count();
        if hook.side_effects == SideEffects::None && after.writes > before.writes {
            return invalid("it declares a write; add side_effects(SideEffects::NoneOnDryRun) to its Hook");
        }
        setup.declare_admission(hook.declaration(kind, *is_mutating));
        let reads_caches = after.caches > before.caches;
        Ok(ServedHook { hook: *hook, is_mutating: *is_mutating, function, reads_caches })
    }
}

/// Returns the CRD with its conversion. The manifests add the namespace of the Service.
fn converted(
    conversion: &Conversion,
    config: &WebhookConfig,
) -> Result<CustomResourceDefinition, SetupError> {
    let mut definition = conversion.definition()?;
    let service = ServiceReference {
        name: config.service.clone(),
        path: Some(conversion.path()),
        ..ServiceReference::default()
    };
    let client = WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() };
    definition.spec.conversion = Some(CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(client),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    });
    Ok(definition)
}

/// Returns the permissions for the rotation of certificates.
fn rotation_rules(secret: &str, targets: &[Target]) -> Vec<NamedRule> {
    let rule = |kind: ResourceKind, verbs: &[Verb], name: &str, in_own_namespace| NamedRule {
        rule: Rule::new(kind.group, kind.plural, verbs.iter().copied()),
        names: vec![name.to_owned()],
        in_own_namespace,
    };
    let secret = rule(ResourceKind::of::<Secret>(), &[Verb::Get, Verb::Create, Verb::Update], secret, true);
    let targets = targets.iter().map(|target| {
        let kind = match target {
            Target::Validating { .. } => ResourceKind::of::<ValidatingWebhookConfiguration>(),
            Target::Mutating { .. } => ResourceKind::of::<MutatingWebhookConfiguration>(),
            Target::Definition { .. } => ResourceKind::of::<CustomResourceDefinition>(),
        };
        rule(kind, &[Verb::Get, Verb::Patch], target.name(), false)
    });
    std::iter::once(secret).chain(targets).collect()
}

/// Returns the names and addresses under which API servers reach the server.
fn served_names(config: &WebhookConfig, namespace: &str) -> Vec<String> {
    let service = &config.service;
    let url = config.url.as_deref().and_then(|url| url.parse::<http::Uri>().ok());
    let host = url.as_ref().and_then(http::Uri::host).map(|host| host.trim_matches(['[', ']']).to_owned());
    let names = [
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
    ];
    names.into_iter().chain(host).collect()
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hooks: Vec<_> = self.hooks.iter().map(|it| it.hook.name).collect();
        f.debug_struct("Webhooks").field("hooks", &hooks).field("conversions", &self.conversions).finish()
    }
}
