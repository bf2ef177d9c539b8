//! Tests of the server in a manager, on a real socket with a certificate from files.

use std::net::SocketAddr;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use windlass_api_server::{ApiServer, ApiServerOptions};
use windlass_client::Clients;
use windlass_env::Task;
use windlass_manager::{Manager, ManagerConfig, ManagerError, ShutdownSignals, ShutdownTrigger};
use windlass_metrics::Metrics;

use super::*;
use crate::{WebhookCertificates, WebhookConfig};

/// A limit that turns a hang into a failure.
const LIMIT: Duration = Duration::from_secs(30);

const LINGER: Duration = Duration::from_millis(1500);

/// A manager whose webhooks listen on a socket.
struct Running {
    env: Env,
    address: SocketAddr,
    /// The certificate of the server, and also the authority and certificate of its clients.
    pem: String,
    key: String,
    stop: ShutdownTrigger,
    manager: Task<Result<(), ManagerError>>,
    _folder: tempfile::TempDir,
}

impl Running {
    async fn start(webhooks: Webhooks, authenticates: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let pair = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let pem = params.self_signed(&pair).expect("signed").pem();
        std::fs::write(&certificate, &pem).expect("written");
        std::fs::write(&key, pair.serialize_pem()).expect("written");
        // A free port. It is released here, and the server listens on it.
        let free = TcpListener::bind(("127.0.0.1", 0)).await.and_then(|it| it.local_addr());
        let mut server = WebhookConfig::of_process("keeper");
        server.address = free.expect("a port");
        server.client_ca = authenticates.then(|| certificate.clone());
        server.certificates = WebhookCertificates::Files { certificate, key };
        server.linger = LINGER;
        let address = server.address;
        let config = ManagerConfig { election: None, webhooks: Some(server), ..ManagerConfig::new("keeper") };
        let env = Env::system("webhooks");
        let api_server = ApiServer::new(&env.with_incarnation("server", 0), ApiServerOptions::default());
        let manager =
            Manager::with_clients(env.clone(), config, move |env, config, metrics: &Metrics, fence| {
                let uri = http::Uri::from_static("http://kubernetes.default.svc");
                Clients::from_service(env.clone(), api_server, uri, config.client.clone(), metrics, fence)
            });
        let (stop, signals) = ShutdownSignals::manual();
        let manager = manager.expect("a manager").register(webhooks);
        let manager = env.spawn("manager", manager.run(signals));
        let key = pair.serialize_pem();
        let running = Self { env, address, pem, key, stop, manager, _folder: folder };
        let ready = async {
            while running.connect().await.is_err() {
                running.env.sleep(Duration::from_millis(10)).await;
            }
        };
        running.env.timeout(LIMIT, ready).await.expect("the server listens");
        running
    }

    /// Connects with a client certificate.
    async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let certificate = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("PEM");
        let config = self.trusting().with_client_auth_cert(vec![certificate], key).expect("usable");
        self.connect_with(config).await
    }

    fn trusting(&self) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM")).expect("usable");
        let builder = rustls::ClientConfig::builder_with_provider(windlass_serving::provider());
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        builder.with_root_certificates(roots)
    }

    async fn connect_with(&self, config: rustls::ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, socket).await
    }

    /// Sends a review on an open connection, and returns the head and the body of the response.
    async fn review(&self, connection: &mut TlsStream<TcpStream>) -> std::io::Result<(String, Value)> {
        let body = review(&creating(&map()));
        let head = "POST /admission/maps.example.com?timeout=5s HTTP/1.1\r\nHost: localhost\r\n\
                    Content-Type: application/json\r\n";
        connection
            .write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
            .await?;
        let mut answer = Vec::new();
        let end = loop {
            if let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if connection.read_buf(&mut answer).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        };
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|it| it.trim().parse().ok()).expect("a length");
        while answer.len() < end + length {
            connection.read_buf(&mut answer).await?;
        }
        Ok((head, serde_json::from_slice(&answer[end..]).expect("JSON")))
    }
}

#[tokio::test]
async fn server_lingers_after_signal_then_closes_all_connections() {
    let webhooks = Webhooks::new().validates::<ConfigMap>(MAPS, |_| Ok(()));
    let running = Running::start(webhooks, false).await;
    let mut kept = running.connect().await.expect("a connection");
    for _ in 0..2 {
        let (head, answer) = running.review(&mut kept).await.expect("a response");
        assert!(head.starts_with("http/1.1 200") && !head.contains("connection: close"), "{head}");
        assert_eq!(answer["response"]["allowed"], true);
    }

    let begun = running.env.now();
    running.stop.fire();
    // Other parts stop; the webhooks still accept connections, and ask clients to leave.
    let closing = async {
        loop {
            let mut connection = running.connect().await.expect("the server lingers");
            let (head, _) = running.review(&mut connection).await.expect("a response");
            if head.contains("connection: close") {
                return;
            }
        }
    };
    running.env.timeout(LINGER, closing).await.expect("connections are closed after responses");
    let Running { env, address, manager, .. } = running;
    let ended = env.timeout(LIMIT, manager).await.expect("it stops").expect("no panic");
    ended.expect("a graceful stop");
    let took = env.now().saturating_duration_since(begun);
    assert!(took >= LINGER, "it closed early: {took:?}");
    assert!(TcpStream::connect(address).await.is_err(), "nothing listens");
    env.wait_for_tasks().await;
}

#[tokio::test]
async fn client_without_certificate_is_rejected_when_authorities_are_configured() {
    let webhooks = Webhooks::new().validates::<ConfigMap>(MAPS, |_| Ok(()));
    let running = Running::start(webhooks, true).await;
    let mut known = running.connect().await.expect("a connection");
    assert_eq!(running.review(&mut known).await.expect("a response").1["response"]["allowed"], true);
    // With TLS 1.3 the server rejects the client after the handshake of the client.
    let reviewed = match running.connect_with(running.trusting().with_no_client_auth()).await {
        Ok(mut unknown) => running.review(&mut unknown).await,
        Err(error) => Err(error),
    };
    assert!(reviewed.is_err(), "{reviewed:?}");
    running.stop.fire();
    running
        .env
        .timeout(LIMIT, running.manager)
        .await
        .expect("it stops")
        .expect("no panic")
        .expect("gracefully");
}

#[tokio::test]
async fn missing_certificate_fails_start_with_its_file() {
    let mut server = WebhookConfig::of_process("keeper");
    server.address = SocketAddr::from(([127, 0, 0, 1], 0));
    let (certificate, key) = ("/nowhere/tls.crt".into(), "/nowhere/tls.key".into());
    server.certificates = WebhookCertificates::Files { certificate, key };
    let config = ManagerConfig { election: None, webhooks: Some(server), ..ManagerConfig::new("keeper") };
    let env = Env::system("webhooks");
    let api_server = ApiServer::new(&env.with_incarnation("server", 0), ApiServerOptions::default());
    let manager = Manager::with_clients(env.clone(), config, move |env, config, metrics: &Metrics, fence| {
        let uri = http::Uri::from_static("http://kubernetes.default.svc");
        Clients::from_service(env.clone(), api_server, uri, config.client.clone(), metrics, fence)
    });
    let webhooks = Webhooks::new().validates::<ConfigMap>(MAPS, |_| Ok(()));
    let (_stop, signals) = ShutdownSignals::manual();
    let run = manager.expect("a manager").register(webhooks).run(signals);
    let error = env.timeout(LIMIT, run).await.expect("it ends").expect_err("no certificate");
    let message = windlass_client::one_line(&error);
    assert!(message.contains("webhooks") && message.contains("/nowhere/tls.crt"), "{message}");
}
