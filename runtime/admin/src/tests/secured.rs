//! Tests of TLS: generated and configured certificates, reloads, protocols.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt as _;
use rcgen::{CertificateParams, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use windlass_serving::{CertificateFiles, Certificates, provider};

use super::*;
use crate::Tls;

fn secured(tls: Tls) -> AdminConfig {
    AdminConfig { tls, ..AdminConfig::local(anywhere()) }
}

/// A verifier that accepts every certificate.
#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

fn client(versions: &[&'static rustls::SupportedProtocolVersion], protocols: &[&str]) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(versions).expect("versions").dangerous();
    let mut config = builder.with_custom_certificate_verifier(Arc::new(Credulous)).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

impl Served {
    async fn handshake(&self, config: ClientConfig, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, self.connect().await).await
    }

    async fn handshaken(&self, protocols: &[&str]) -> TlsStream<TcpStream> {
        self.handshake(client(rustls::ALL_VERSIONS, protocols), "localhost").await.expect("a handshake")
    }
}

// parity: https-certificates-alpn-without
#[tokio::test]
async fn self_signed_certificate_covers_host_localhost_and_address_only() {
    let served = Served::start(secured(Tls::SelfSigned)).await;
    let stream = served.handshaken(&[]).await;
    let presented = stream.get_ref().1.peer_certificates().expect("one")[0].clone().into_owned();
    let mut roots = RootCertStore::empty();
    roots.add(presented).expect("usable");
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let strict = builder.with_root_certificates(roots).with_no_client_auth();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for name in ["localhost", "127.0.0.1", &host] {
        let stream = served.handshake(strict.clone(), name).await.expect(name);
        assert_eq!(code(&exchange(stream, "GET /livez", "").await), 200, "{name}");
    }
    for name in ["example.com", "127.0.0.2"] {
        assert!(served.handshake(strict.clone(), name).await.is_err(), "{name}");
    }
    served.stop().await;
}

// parity: https-certificates-alpn-without
#[tokio::test]
async fn server_supports_tls_1_2_and_1_3_with_http_1_only() {
    let served = Served::start(secured(Tls::SelfSigned)).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = client(&[version], &["http/1.1"]);
        let stream = served.handshake(config, "localhost").await.expect("a handshake");
        assert_eq!(code(&exchange(stream, "GET /livez", "").await), 200);
    }
    let stream = served.handshaken(&["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(served.handshake(client(rustls::ALL_VERSIONS, &["h3"]), "localhost").await.is_err());
    served.stop().await;
}

#[tokio::test]
async fn plain_http_gets_error_and_silent_client_is_cut_off() {
    let limits = Limits { handshake: Duration::from_millis(200), ..Limits::default() };
    let served = Served::start_within(secured(Tls::SelfSigned), limits).await;
    let answer = served.ask("GET /livez").await;
    assert!(code(&answer) == 400 && body(&answer).contains("https://"), "{answer}");
    let mut silent = served.connect().await;
    assert_eq!(read_all(&mut silent).await, "");
    let mut babbling = served.connect().await;
    babbling.write_all(&[0x16; 64]).await.expect("sent");
    let _alert = read_all(&mut babbling).await;
    let stream = served.handshaken(&[]).await;
    assert_eq!(code(&exchange(stream, "GET /livez", "").await), 200);
    served.stop().await;
}

/// Returns a certificate and its key in PEM.
fn pair(name: &str) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let certificate =
        CertificateParams::new([name.to_owned()]).expect("a name").self_signed(&key).expect("signed");
    (certificate.pem(), key.serialize_pem())
}

fn files(folder: &Path) -> CertificateFiles {
    CertificateFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key") }
}

fn write(folder: &Path, (certificate, key): &(String, String)) {
    fs::write(folder.join("tls.crt"), certificate).expect("written");
    fs::write(folder.join("tls.key"), key).expect("written");
}

/// Serves the pair in `folder`, and follows its changes.
fn follow(env: &Env, metrics: &Metrics, folder: &Path) -> Arc<Certificates> {
    let (first, reloader) = files(folder).load(&provider(), env.wall()).expect("loaded");
    let certificates = Certificates::new(first);
    let following = reloader.follow(env.clone(), Arc::clone(&certificates), metrics.admin().serving);
    drop(env.spawn("follow", following));
    certificates
}

/// Returns the current certificate as base64 without line breaks.
fn served(certificates: &Certificates) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(&certificates.current().cert[0])
}

/// Watched files in virtual time.
struct Followed {
    env: Env,
    folder: tempfile::TempDir,
    metrics: Metrics,
    certificates: Arc<Certificates>,
}

impl Followed {
    fn start() -> Self {
        let env = Env::virtual_time(1);
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), &pair("first"));
        let metrics = Metrics::new();
        let certificates = follow(&env, &metrics, folder.path());
        Self { env, folder, metrics, certificates }
    }

    /// Sleeps for this number of seconds, and returns the numbers of reloaded and rejected certificates.
    async fn after(&self, seconds: u64) -> (u64, u64) {
        self.env.sleep(Duration::from_secs(seconds)).await;
        let metrics = self.metrics.admin().serving;
        (metrics.certificate_replaced.get(), metrics.certificate_refused.get())
    }

    fn serves(&self, (certificate, _): &(String, String)) -> bool {
        let served = served(&self.certificates);
        certificate.replace(['\n', '\r'], "").contains(&served)
    }
}

// parity: certwatcher-errors-without-files
#[tokio::test(start_paused = true)]
async fn replaced_certificate_is_served_within_ten_seconds() {
    let followed = Followed::start();
    assert_eq!(followed.after(60).await, (0, 0));
    let second = pair("second");
    write(followed.folder.path(), &second);
    assert!(!followed.serves(&second));
    assert_eq!(followed.after(11).await, (1, 0));
    assert!(followed.serves(&second));
    assert_eq!(followed.after(60).await, (1, 0), "once");
}

// parity: certwatcher-counts-reads-errors
#[tokio::test(start_paused = true)]
async fn broken_pair_is_rejected_once_and_previous_one_is_kept() {
    let followed = Followed::start();
    let first = fs::read_to_string(followed.folder.path().join("tls.crt")).expect("read");
    let first = (first, String::new());
    let broken = [
        ("not PEM".to_owned(), "nor this".to_owned()),
        (pair("a").0, pair("b").1),
        (String::new(), pair("c").1),
        (pair("d").0, String::new()),
    ];
    for (refused, broken) in (1..).zip(&broken) {
        write(followed.folder.path(), broken);
        assert_eq!(followed.after(120).await, (0, refused));
        assert!(followed.serves(&first));
    }
    fs::remove_file(followed.folder.path().join("tls.key")).expect("removed");
    assert_eq!(followed.after(120).await, (0, 5));
    let last = pair("last");
    write(followed.folder.path(), &last);
    assert_eq!(followed.after(11).await, (1, 5));
    assert!(followed.serves(&last));
}

// parity: certwatcher-counts-reads-errors
#[tokio::test(start_paused = true)]
async fn mismatched_key_is_rechecked_before_it_is_rejected() {
    let followed = Followed::start();
    let second = pair("second");
    followed.after(5).await;
    fs::write(followed.folder.path().join("tls.crt"), &second.0).expect("written");
    // The check at ten seconds finds a mismatch, the recheck at eleven a match.
    assert_eq!(followed.after(5).await, (0, 0));
    followed.env.sleep(Duration::from_millis(500)).await;
    fs::write(followed.folder.path().join("tls.key"), &second.1).expect("written");
    assert_eq!(followed.after(1).await, (1, 0));
    assert!(followed.serves(&second));
}

// parity: certwatcher-errors-without-files
#[tokio::test(start_paused = true)]
async fn moved_symlink_of_mounted_secret_replaces_both_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let (at, second) = (folder.path(), pair("second"));
    for (name, pair) in [("..one", &pair("first")), ("..two", &second)] {
        fs::create_dir(at.join(name)).expect("made");
        write(&at.join(name), pair);
    }
    symlink("..one", at.join("..data")).expect("linked");
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), at.join(name)).expect("linked");
    }
    let (env, metrics) = (Env::virtual_time(1), Metrics::new());
    let certificates = follow(&env, &metrics, at);
    symlink("..two", at.join("..new")).expect("linked");
    fs::rename(at.join("..new"), at.join("..data")).expect("moved");
    env.sleep(Duration::from_secs(11)).await;
    assert_eq!(metrics.admin().serving.certificate_replaced.get(), 1);
    assert!(second.0.replace('\n', "").contains(&served(&certificates)));
}

/// Starts and drops a server with this TLS configuration; returns the error message if it does not start.
async fn start_with(tls: Tls) -> Result<(), String> {
    let (env, metrics) = (Env::system("admin"), Metrics::new());
    let health = Health::new(metrics.clone());
    let reviews = Arc::new(Reviewer::default()).client();
    let parts =
        AdminServerDeps { metrics, health, pages: Pages::new(), about: ComponentInfo::default(), reviews };
    let started = AdminServer::start(&env, &secured(tls), parts).await;
    started.map(drop).map_err(|error| error.to_string())
}

impl Served {
    /// Returns the certificate that the server presents to a client.
    async fn presented(&self) -> CertificateDer<'static> {
        let stream = self.handshaken(&[]).await;
        stream.get_ref().1.peer_certificates().expect("one")[0].clone().into_owned()
    }
}

// parity: cert-dir
#[tokio::test]
async fn persisted_pair_is_generated_once_and_reused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().join("pki").join("admin");
    let kept = Tls::Persisted { folder: at.clone(), name: "windlass".to_owned() };
    let served = Served::start(secured(kept.clone())).await;
    let first = served.presented().await;
    served.stop().await;
    let mode = |name: &str| fs::metadata(at.join(name)).expect("written").permissions().mode() & 0o777;
    assert_eq!(mode("windlass.key"), 0o600, "only the owner can read it");
    assert_eq!(mode("windlass.crt") & 0o600, 0o600);
    let served = Served::start(secured(kept)).await;
    assert_eq!(served.presented().await, first);
    served.stop().await;
}

// parity: cert-dir
#[tokio::test]
async fn existing_pair_is_served_and_partial_or_broken_pair_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let kept = Tls::Persisted { folder: at.to_owned(), name: "tls".to_owned() };
    let given = pair("given");
    write(at, &given);
    let served = Served::start(secured(kept.clone())).await;
    let presented = served.presented().await;
    served.stop().await;
    assert_eq!(CertificateDer::from_pem_slice(given.0.as_bytes()).expect("PEM"), presented);

    fs::remove_file(at.join("tls.key")).expect("removed");
    let half = start_with(kept.clone()).await.expect_err("half");
    assert!(half.contains("tls.crt exists and ") && half.contains("tls.key does not; add"), "{half}");
    assert_eq!(fs::read_to_string(at.join("tls.crt")).expect("still there"), given.0);
    fs::write(at.join("tls.key"), "no key").expect("written");
    let broken = start_with(kept).await.expect_err("no key");
    assert!(broken.contains("no private key in PEM found in "), "{broken}");
    assert_eq!(fs::read_to_string(at.join("tls.key")).expect("still there"), "no key");
}

#[tokio::test]
async fn error_names_folder_that_cannot_be_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    for at in [file.clone(), file.join("below")] {
        let refused =
            start_with(Tls::Persisted { folder: at, name: "tls".to_owned() }).await.expect_err("a file");
        assert!(refused.contains("file") && !refused.contains('\n'), "{refused}");
    }
}

// parity: certwatcher-errors-without-files
#[tokio::test]
async fn unusable_certificate_fails_start_with_one_line_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let given = Tls::Files { certificate: path.join("tls.crt"), key: path.join("tls.key") };
    let started = async || start_with(given.clone()).await;
    let missing = started().await.expect_err("nothing there");
    assert!(missing.contains("tls.crt") && !missing.contains('\n'), "{missing}");
    let secret = pair("a").1;
    write(path, &(pair("b").0, secret.clone()));
    let apart = started().await.expect_err("apart");
    assert!(apart.contains("tls.crt") && apart.contains("tls.key") && !apart.contains('\n'), "{apart}");
    write(path, &(secret.clone(), secret.clone()));
    let no_certificate = started().await.expect_err("a key only");
    let quoted = secret.lines().nth(1).expect("a line of the key");
    assert!(no_certificate.contains("no certificate in PEM found in") && !no_certificate.contains(quoted));
}

#[tokio::test]
async fn failed_bind_leaves_no_task() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), &pair("a"));
    let tls = Tls::Files { certificate: folder.path().join("tls.crt"), key: folder.path().join("tls.key") };
    let taken = std::net::TcpListener::bind(anywhere()).expect("a port");
    let address = taken.local_addr().expect("its address");
    let (env, metrics) = (Env::system("admin"), Metrics::new());
    let health = Health::new(metrics.clone());
    let reviews = Arc::new(Reviewer::default()).client();
    let parts =
        AdminServerDeps { metrics, health, pages: Pages::new(), about: ComponentInfo::default(), reviews };
    let started = AdminServer::start(&env, &AdminConfig { address, ..secured(tls) }, parts).await;
    assert!(matches!(started, Err(crate::AdminError::Bind { .. })));
    assert_eq!(env.tasks(), Vec::<String>::new());
}

#[tokio::test]
async fn dropped_stop_can_be_resumed() {
    let mut served = Served::start(secured(Tls::SelfSigned)).await;
    assert!(served.server.close().now_or_never().is_none(), "its task has not been polled");
    assert_ne!(served.env.tasks(), Vec::<String>::new());
    served.server.close().await;
    assert_eq!(served.env.tasks(), Vec::<String>::new());
    served.server.close().await;
}
