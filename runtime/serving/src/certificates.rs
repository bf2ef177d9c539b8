//! The serving certificate: replaced while the server runs, and loaded from files and reloaded on changes.
//!
//! A pair is replaced atomically between two handshakes; open connections keep their certificate. A broken new pair is
//! rejected and logged once, and the server keeps the previous one. While files are replaced one after the other,
//! certificate and key do not match, so a rejected pair is rechecked after one second before it is logged. An expired
//! certificate is used and logged, because some clients do not check dates.

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
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError as Fault, RootCertStore, ServerConfig};
use windlass_env::Env;
use windlass_metrics::ServingMetrics;

/// Interval between checks of the files, as in controller-runtime's watcher, which polls in addition to notifications.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Delay before a rejected pair is rechecked once.
const RECHECK_DELAY: Duration = Duration::from_secs(1);

/// The reason why no certificate is available. Never contains file contents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file does not contain the expected PEM item.
    #[error("no {what} in PEM found in {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The expected item.
        what: &'static str,
    },
    /// Certificate and key do not match, or their type is not supported.
    #[error("{} and {} cannot be used together: {source}", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The error of the TLS library.
        source: rustls::Error,
    },
    /// Only one file of a persisted pair exists.
    #[error(
        "{} exists and {} does not; add the missing file, or remove the existing one to generate both",
        there.display(), missing.display()
    )]
    Half {
        /// The existing file.
        there: PathBuf,
        /// The missing file.
        missing: PathBuf,
    },
    /// A generated pair cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The certificate could not be generated.
    #[error("cannot generate a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// The installed crypto provider of rustls does not support TLS 1.2 or 1.3.
    #[error("the installed crypto provider cannot serve TLS 1.2 or 1.3: {0}")]
    Provider(rustls::Error),
}

/// The certificate for new connections.
pub struct Certificates {
    current: ArcSwap<CertifiedKey>,
}

impl Certificates {
    /// Creates a value that serves `first`.
    pub fn new(first: CertifiedKey) -> Arc<Self> {
        Arc::new(Self { current: ArcSwap::from_pointee(first) })
    }

    /// Serves `next` to new connections.
    pub fn replace(&self, next: CertifiedKey) {
        self.current.store(Arc::new(next));
    }

    /// Returns the certificate that new connections get.
    pub fn current(&self) -> Arc<CertifiedKey> {
        self.current.load_full()
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

/// Returns the crypto provider that the process installed, otherwise ring's, without installing it.
pub fn provider() -> Arc<CryptoProvider> {
    let installed = CryptoProvider::get_default().cloned();
    installed.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()))
}

/// Returns a configuration of TLS 1.2 and 1.3 with these certificates. With `clients` a client needs a certificate that
/// one of these authorities has signed.
///
/// # Errors
/// When the provider does not support TLS 1.2 or 1.3, or `clients` is empty.
pub fn server_config(
    provider: Arc<CryptoProvider>,
    certificates: Arc<Certificates>,
    clients: Option<RootCertStore>,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions().map_err(CertificateError::Provider)?;
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(clients) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), provider);
            config.with_client_cert_verifier(
                verifier
                    .build()
                    .map_err(|error| CertificateError::Provider(rustls::Error::General(error.to_string())))?,
            )
        }
    };
    let mut config = config.with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Loads the certificates of authorities from a PEM file.
///
/// # Errors
/// When the file cannot be read, or contains no usable certificate.
pub fn load_authorities(path: &Path) -> Result<RootCertStore, CertificateError> {
    let bytes = std::fs::read(path)
        .map_err(|source| CertificateError::Unreadable { path: path.to_owned(), source })?;
    let mut authorities = RootCertStore::empty();
    authorities.add_parsable_certificates(CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok));
    match authorities.is_empty() {
        true => Err(CertificateError::Missing { path: path.to_owned(), what: "certificate" }),
        false => Ok(authorities),
    }
}

/// The paths of a certificate and its key.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate chain in PEM, starting with the server's certificate.
    pub certificate: PathBuf,
    /// The private key in PEM.
    pub key: PathBuf,
}

/// The contents of the files.
struct KeyPairBytes {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// A digest that distinguishes two states of the files without storing a key.
type Fingerprint = [u8; digest::SHA256_OUTPUT_LEN];

impl CertificateFiles {
    /// Loads the pair, and warns if it is expired or not valid yet at `now`. Returns it with the reloader of its files.
    ///
    /// # Errors
    /// When the files cannot be read or used.
    pub fn load(
        self,
        provider: &Arc<CryptoProvider>,
        now: Timestamp,
    ) -> Result<(CertifiedKey, CertificateReloader), CertificateError> {
        let pair = self.read()?;
        let loaded = self.parse(&pair, provider)?;
        warn_if_stale(&self, &loaded, provider, now);
        let (serving, provider) = (pair.fingerprint(), Arc::clone(provider));
        Ok((loaded, CertificateReloader { files: self, provider, serving, rejected: None }))
    }

    /// Reads the files through symbolic links: kubelet updates a mounted Secret by replacing one link.
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
        let missing = |path: &Path, what| CertificateError::Missing { path: path.to_owned(), what };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pair.certificate).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| missing(&self.certificate, "certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&pair.key).map_err(|_| missing(&self.key, "private key"))?;
        CertifiedKey::from_der(chain, key, provider).map_err(|source| {
            let (certificate, key) = (self.certificate.clone(), self.key.clone());
            CertificateError::Unusable { certificate, key, source }
        })
    }
}

impl KeyPairBytes {
    fn fingerprint(&self) -> Fingerprint {
        let mut whole = digest::Context::new(&digest::SHA256);
        // With the length, so that bytes cannot move from one file to the other without a change of the digest.
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

/// Returns the reason if clients that check dates will reject this certificate.
fn stale(
    certificate: &CertificateDer<'_>,
    provider: &CryptoProvider,
    now: Timestamp,
) -> Option<&'static str> {
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).ok()?));
    let algorithms = provider.signature_verification_algorithms.all;
    // With an empty root store verification always fails, and it checks dates first.
    let no_roots = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(&certificate, &no_roots, &[], now, algorithms) {
        Err(rustls::Error::InvalidCertificate(Fault::Expired | Fault::ExpiredContext { .. })) => {
            Some("has expired")
        }
        Err(rustls::Error::InvalidCertificate(Fault::NotValidYet | Fault::NotValidYetContext { .. })) => {
            Some("is not valid yet")
        }
        _ => None,
    }
}

/// Returns whether `now` is within the dates of a certificate; also if the certificate cannot be parsed.
pub fn is_current(certificate: &CertificateDer<'_>, now: Timestamp) -> bool {
    stale(certificate, &provider(), now).is_none()
}

/// Logs a warning if clients that check dates will reject this certificate.
fn warn_if_stale(files: &CertificateFiles, pair: &CertifiedKey, provider: &CryptoProvider, now: Timestamp) {
    let why = pair.end_entity_cert().ok().and_then(|certificate| stale(certificate, provider, now));
    if let Some(why) = why {
        let certificate = files.certificate.display();
        tracing::warn!(%certificate, "the certificate {why}; replace it, no restart is needed");
    }
}

/// The state of the files: the pair in use, and the pair rejected since.
pub struct CertificateReloader {
    files: CertificateFiles,
    provider: Arc<CryptoProvider>,
    serving: Fingerprint,
    rejected: Option<RejectedPair>,
}

struct RejectedPair {
    what: Fingerprint,
    logged: bool,
}

/// The result of a check of the files.
enum ReloadOutcome {
    /// No change.
    AsBefore,
    /// A new, usable pair.
    Replaced(Box<CertifiedKey>),
    /// A new pair that cannot be used, and might be incomplete.
    MaybeIncomplete,
    /// A pair that still cannot be used after a recheck.
    Broken(CertificateError),
}

impl CertificateReloader {
    fn check(&mut self) -> ReloadOutcome {
        let (what, parsed) = match self.files.read() {
            Ok(pair) if pair.fingerprint() == self.serving => {
                self.rejected = None;
                return ReloadOutcome::AsBefore;
            }
            Ok(pair) => (pair.fingerprint(), self.files.parse(&pair, &self.provider)),
            // By its message: a different missing file is a different state.
            Err(unread) => (of(digest::digest(&digest::SHA256, unread.to_string().as_bytes())), Err(unread)),
        };
        match parsed {
            Ok(pair) => {
                (self.serving, self.rejected) = (what, None);
                ReloadOutcome::Replaced(Box::new(pair))
            }
            Err(broken) => self.reject(what, broken),
        }
    }

    fn reject(&mut self, what: Fingerprint, broken: CertificateError) -> ReloadOutcome {
        match &mut self.rejected {
            Some(rejected) if rejected.what == what && rejected.logged => ReloadOutcome::AsBefore,
            Some(rejected) if rejected.what == what => {
                rejected.logged = true;
                ReloadOutcome::Broken(broken)
            }
            _ => {
                self.rejected = Some(RejectedPair { what, logged: false });
                ReloadOutcome::MaybeIncomplete
            }
        }
    }
}

impl CertificateReloader {
    /// Checks the files periodically, and replaces the served pair by a new one; never returns.
    ///
    /// # Cancel safety
    /// Dropping the future keeps the current certificate.
    pub async fn follow(mut self, env: Env, certificates: Arc<Certificates>, metrics: ServingMetrics) {
        let mut next = CHECK_INTERVAL;
        loop {
            env.sleep(next).await;
            next = CHECK_INTERVAL;
            match self.check() {
                ReloadOutcome::AsBefore => {}
                ReloadOutcome::MaybeIncomplete => next = RECHECK_DELAY,
                ReloadOutcome::Replaced(pair) => {
                    warn_if_stale(&self.files, &pair, &self.provider, env.wall());
                    certificates.replace(*pair);
                    metrics.certificate_replaced.inc();
                    let certificate = self.files.certificate.display();
                    tracing::info!(%certificate, "serving certificate reloaded");
                }
                ReloadOutcome::Broken(error) => {
                    metrics.certificate_refused.inc();
                    tracing::error!(%error, "new certificate rejected; keeping the previous one");
                }
            }
        }
    }
}

impl fmt::Debug for CertificateReloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateReloader").field("files", &self.files).finish_non_exhaustive()
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
        let on = |day: &str| stale(&pair.cert[0], &provider, day.parse().expect("a time"));
        assert_eq!(on("2020-02-28T23:00:00Z"), Some("is not valid yet"));
        assert_eq!(on("2020-03-15T00:00:00Z"), None);
        assert_eq!(on("2020-04-02T00:00:00Z"), Some("has expired"));
    }
}
