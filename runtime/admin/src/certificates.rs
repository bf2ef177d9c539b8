//! The server's certificate, read from files and read again when they change. `made` makes one where none is given.
//!
//! A pair is replaced in one step, between two handshakes: connections that are open keep the one they began with. A
//! new pair that is broken is refused and told once, and the old one continues serving. A certificate and a key that do
//! not belong together are seen while files are being replaced one after the other; so what is refused is looked at
//! once more, a second later, before it is told. One that has expired is served, since those who look at no dates lose
//! nothing by it, and told.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use ring::digest;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError as Fault, RootCertStore, ServerConfig};
use windlass_env::Env;
use windlass_metrics::AdminMetrics;

/// How often files are looked at: as controller-runtime's watcher, which polls next to its notifications.
const LOOK: Duration = Duration::from_secs(10);

/// How soon what was refused is looked at again, once.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// Why there is no certificate to serve with. Never quotes a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("reading {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file has not what it should have.
    #[error("{} has no {what} in PEM", path.display())]
    Lacking {
        /// The file.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
    },
    /// The two do not belong together, or are of a kind that cannot be used.
    #[error("{} and {} cannot be used together: {source}", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong with them.
        source: rustls::Error,
    },
    /// Of a pair that is kept in a folder one half is there.
    #[error(
        "{} is there and {} is not: add the other half, or remove this one to have both made",
        there.display(), missing.display()
    )]
    Half {
        /// The file that is there.
        there: PathBuf,
        /// The one that is not.
        missing: PathBuf,
    },
    /// A pair that was made cannot be kept.
    #[error("writing {}: {source}", path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// No certificate could be made.
    #[error("making a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// The process's provider of cryptography cannot do what is needed.
    #[error("the process's provider of cryptography cannot serve TLS 1.2 or 1.3: {0}")]
    Provider(rustls::Error),
}

/// The certificate that new connections get.
pub(crate) struct Certificates {
    current: ArcSwap<CertifiedKey>,
}

impl Certificates {
    pub(crate) fn new(first: CertifiedKey) -> Arc<Self> {
        Arc::new(Self { current: ArcSwap::from_pointee(first) })
    }

    fn replace(&self, by: CertifiedKey) {
        self.current.store(Arc::new(by));
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

/// The provider that the process installed, or ring's, which is not installed by that.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let installed = CryptoProvider::get_default().cloned();
    installed.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()))
}

/// TLS 1.2 and 1.3 with these certificates, without client certificates.
pub(crate) fn server_config(
    provider: Arc<CryptoProvider>,
    certificates: Arc<Certificates>,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(CertificateError::Provider)?;
    let mut config = config.with_no_client_auth().with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Where a certificate and its key lie.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// What the files have now.
struct KeyPairBytes {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Tells two states of the files apart, without keeping a key.
type Fingerprint = [u8; digest::SHA256_OUTPUT_LEN];

impl Files {
    /// What the files have, ready for use.
    ///
    /// # Errors
    /// When they cannot be read or used.
    pub(crate) fn load(
        &self,
        provider: &CryptoProvider,
    ) -> Result<(CertifiedKey, CertificateReloader), CertificateError> {
        let pair = self.read()?;
        let loaded = self.parse(&pair, provider)?;
        Ok((loaded, CertificateReloader { serving: pair.fingerprint(), refused: None }))
    }

    /// Through whatever links there are, as of now: Kubernetes replaces a mounted Secret by moving one link.
    fn read(&self) -> Result<KeyPairBytes, CertificateError> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|source| CertificateError::Unreadable { path: path.to_owned(), source })
        };
        Ok(KeyPairBytes { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    fn parse(
        &self,
        pair: &KeyPairBytes,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, CertificateError> {
        let lacking = |path: &Path, what| CertificateError::Lacking { path: path.to_owned(), what };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pair.certificate).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| lacking(&self.certificate, "certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&pair.key).map_err(|_| lacking(&self.key, "private key"))?;
        CertifiedKey::from_der(chain, key, provider).map_err(|source| {
            let (certificate, key) = (self.certificate.clone(), self.key.clone());
            CertificateError::Unusable { certificate, key, source }
        })
    }
}

impl KeyPairBytes {
    fn fingerprint(&self) -> Fingerprint {
        let mut whole = digest::Context::new(&digest::SHA256);
        // With its length, so that no byte can be taken for one of the other file.
        whole.update(&self.certificate.len().to_be_bytes());
        whole.update(&self.certificate);
        whole.update(&self.key);
        of(whole.finish())
    }
}

fn of(digest: digest::Digest) -> Fingerprint {
    let mut bytes = Fingerprint::default();
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// Why clients that look at dates will refuse this certificate, if they will.
fn stale(pair: &CertifiedKey, provider: &CryptoProvider, now: Timestamp) -> Option<&'static str> {
    let certificate = ParsedCertificate::try_from(pair.end_entity_cert().ok()?).ok()?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).ok()?));
    let algorithms = provider.signature_verification_algorithms.all;
    // Nobody is trusted, so it always fails, and for its dates before anything else.
    let nobody = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(&certificate, &nobody, &[], now, algorithms) {
        Err(rustls::Error::InvalidCertificate(Fault::Expired | Fault::ExpiredContext { .. })) => {
            Some("has expired")
        }
        Err(rustls::Error::InvalidCertificate(Fault::NotValidYet | Fault::NotValidYetContext { .. })) => {
            Some("is not valid yet")
        }
        _ => None,
    }
}

/// Says so in the log if clients that look at dates will refuse what is served with.
pub(crate) fn warn_if_stale(files: &Files, pair: &CertifiedKey, provider: &CryptoProvider, now: Timestamp) {
    if let Some(why) = stale(pair, provider, now) {
        let certificate = files.certificate.display();
        tracing::warn!(%certificate, "the certificate {why}: replace it, which needs no restart");
    }
}

/// What is known of the files: what is served with, and what was refused since.
pub(crate) struct CertificateReloader {
    serving: Fingerprint,
    refused: Option<RejectedPair>,
}

struct RejectedPair {
    what: Fingerprint,
    told: bool,
}

/// What a look at the files came to.
enum ReloadOutcome {
    /// Nothing to do.
    AsBefore,
    /// There is a new pair, and it is good.
    Replaced(Box<CertifiedKey>),
    /// What is there cannot be used, and may be about to change.
    Doubtful,
    /// What is there cannot be used, still.
    Broken(CertificateError),
}

impl CertificateReloader {
    fn look(&mut self, files: &Files, provider: &CryptoProvider) -> ReloadOutcome {
        let (what, parsed) = match files.read() {
            Ok(pair) if pair.fingerprint() == self.serving => {
                self.refused = None;
                return ReloadOutcome::AsBefore;
            }
            Ok(pair) => (pair.fingerprint(), files.parse(&pair, provider)),
            // By its message: another file that is missing is another state.
            Err(unread) => (of(digest::digest(&digest::SHA256, unread.to_string().as_bytes())), Err(unread)),
        };
        match parsed {
            Ok(pair) => {
                *self = Self { serving: what, refused: None };
                ReloadOutcome::Replaced(Box::new(pair))
            }
            Err(broken) => self.refuse(what, broken),
        }
    }

    fn refuse(&mut self, what: Fingerprint, broken: CertificateError) -> ReloadOutcome {
        match &mut self.refused {
            Some(refused) if refused.what == what && refused.told => ReloadOutcome::AsBefore,
            Some(refused) if refused.what == what => {
                refused.told = true;
                ReloadOutcome::Broken(broken)
            }
            _ => {
                self.refused = Some(RejectedPair { what, told: false });
                ReloadOutcome::Doubtful
            }
        }
    }
}

/// Looks at the files again and again; never ends.
///
/// # Cancel safety
/// Dropping it leaves whatever certificate is served.
pub(crate) async fn follow(
    env: Env,
    files: Files,
    mut follower: CertificateReloader,
    certificates: Arc<Certificates>,
    provider: Arc<CryptoProvider>,
    metrics: AdminMetrics,
) {
    let mut next = LOOK;
    loop {
        env.sleep(next).await;
        next = LOOK;
        match follower.look(&files, &provider) {
            ReloadOutcome::AsBefore => {}
            ReloadOutcome::Doubtful => next = SECOND_LOOK,
            ReloadOutcome::Replaced(pair) => {
                warn_if_stale(&files, &pair, &provider, env.wall());
                certificates.replace(*pair);
                metrics.certificate_replaced.inc();
                tracing::info!(certificate = %files.certificate.display(), "serving with a new certificate");
            }
            ReloadOutcome::Broken(error) => {
                metrics.certificate_refused.inc();
                tracing::error!(%error, "a new certificate is refused; the old one goes on serving");
            }
        }
    }
}

#[cfg(test)]
impl Certificates {
    /// The certificate that is served, as base64 without ends of lines.
    pub(crate) fn served(&self) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(&self.current.load().cert[0])
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    // parity: cert-dir
    #[test]
    fn certificate_is_stale_before_its_first_day_and_after_its_last() {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2020, 3, 1);
        params.not_after = date_time_ymd(2020, 4, 1);
        let made = params.self_signed(&key).expect("signed");
        let der = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = provider();
        let pair = CertifiedKey::from_der(vec![made.der().clone()], der, &provider).expect("usable");
        let on = |day: &str| stale(&pair, &provider, day.parse().expect("a time"));
        assert_eq!(on("2020-02-28T23:00:00Z"), Some("is not valid yet"));
        assert_eq!(on("2020-03-15T00:00:00Z"), None);
        assert_eq!(on("2020-04-02T00:00:00Z"), Some("has expired"));
    }
}
