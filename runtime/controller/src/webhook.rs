//! The webhook server of a process: its configuration, and the declarations from which manifests follow.
//!
//! `windlass-webhook` implements the server as a [`Runnable`](crate::Runnable). Programs without webhooks do not link
//! it.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhook;
use windlass_object::Rule;

/// The default port of a webhook server, as in controller-runtime.
const PORT: u16 = 9443;

/// Configuration of the webhook server of a process.
///
/// # Examples
/// ```
/// # use windlass_controller::{WebhookCertificates, WebhookConfig};
/// let mut config = WebhookConfig::of_process("sites");
/// config.certificates = WebhookCertificates::Files {
///     certificate: "/etc/webhook/tls.crt".into(),
///     key: "/etc/webhook/tls.key".into(),
/// };
/// assert_eq!(config.service, "sites-webhook");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebhookConfig {
    /// The listen address. Port 0 selects a free port. Default `[::]:9443`.
    pub address: SocketAddr,
    /// The serving certificate. Default [`WebhookCertificates::Rotated`].
    pub certificates: WebhookCertificates,
    /// The Service, in the namespace of the process, through which the API server reaches the webhooks. The manifests
    /// contain it. Default `<process>-webhook`.
    pub service: String,
    /// The name of the ValidatingWebhookConfiguration and the MutatingWebhookConfiguration. Default the name of the
    /// process.
    pub configuration: String,
    /// The base URL under which the API server reaches this process, such as `https://10.0.0.7:9443`, instead of the
    /// Service. For a process outside of the cluster. Default `None`.
    pub url: Option<String>,
    /// A PEM file with authorities. The server then accepts only clients with a certificate that one of them has
    /// signed: API servers whose admission configuration contains such a certificate. It is read at start. Default
    /// `None`: every client in the network can send reviews.
    pub client_ca: Option<PathBuf>,
    /// Time during which the server still accepts requests after the first signal. Readiness fails during this time, so
    /// that the API server stops to use this replica. Default 10 s, the period after which a failing readiness probe
    /// has usually removed a Pod from its Service.
    pub linger: Duration,
    /// Serves without a socket and without certificates, for tests. Default `None`.
    #[doc(hidden)]
    pub in_process: Option<InProcessWebhooks>,
}

/// A function that responds to the requests of a webhook server.
pub type WebhookHandler = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// The webhooks of a process of the same program, without a socket. Clones share them.
#[derive(Clone, Default)]
pub struct InProcessWebhooks(Arc<Mutex<Option<WebhookHandler>>>);

impl InProcessWebhooks {
    /// Serves with this function; `None` stops to serve.
    pub fn serve(&self, handler: Option<WebhookHandler>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = handler;
    }

    /// Returns the function, while the process serves webhooks.
    pub fn handler(&self) -> Option<WebhookHandler> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PartialEq for InProcessWebhooks {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for InProcessWebhooks {}

impl fmt::Debug for InProcessWebhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessWebhooks").finish_non_exhaustive()
    }
}

/// The source of the serving certificate of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookCertificates {
    /// The replicas issue certificates, and rotate them before they expire. A Secret in the namespace of the process
    /// contains them. The replicas write the CA certificates into the `caBundle` of the webhook configurations and
    /// CRDs.
    Rotated {
        /// The name of the Secret.
        secret: String,
    },
    /// A certificate in PEM files. The server checks them every 10 s and reloads them without a restart. Another
    /// program, such as cert-manager, writes the `caBundle`.
    Files {
        /// The certificate chain, starting with the server's certificate.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
    },
}

impl WebhookConfig {
    /// Returns the defaults of a process with this name.
    pub fn of_process(name: &str) -> Self {
        Self {
            address: SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT)),
            certificates: WebhookCertificates::Rotated { secret: format!("{name}-webhook-certificates") },
            service: format!("{name}-webhook"),
            configuration: name.to_owned(),
            url: None,
            client_ca: None,
            linger: Duration::from_secs(10),
            in_process: None,
        }
    }
}

/// An admission webhook that a setup declares. The manifests complete it.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionDeclaration {
    /// Whether it can change objects.
    pub is_mutating: bool,
    /// The path on the server.
    pub path: String,
    /// The webhook without its client configuration. Mutating webhooks have the same fields.
    pub webhook: ValidatingWebhook,
}

/// A rule that is limited to objects with known names. `create` is not limited, because a role cannot limit it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRule {
    /// The rule.
    pub rule: Rule,
    /// The names.
    pub names: Vec<String>,
    /// Whether it applies only to the namespace of the process.
    pub in_own_namespace: bool,
}

/// The numbers of declarations so far. A host compares them before and after a part of a setup.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclarationCount {
    /// Caches that the start waits for.
    pub caches: usize,
    /// Declarations of writes.
    pub writes: usize,
}
