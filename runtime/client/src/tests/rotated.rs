//! Credentials that change while the process runs, on real sockets, with real files and a real plugin.

use std::{fs, path::Path};

use kube::{Config, config::ExecConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
};

use super::*;
use crate::{CredentialsError, one_line};

/// The credential that the server accepts: a token, or a client certificate.
type Accepted = Arc<Mutex<Vec<u8>>>;

const UNAUTHORIZED: &str =
    r#"{"kind":"Status","status":"Failure","reason":"Unauthorized","code":401,"message":"who?"}"#;

/// Answers the requests of one connection, with 401 unless `shown`, or else the bearer token, is accepted.
async fn answer_all(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    shown: Option<Vec<u8>>,
    accepted: Accepted,
) {
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
        read.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&read).to_lowercase();
        if !text.contains("\r\n\r\n") {
            continue;
        }
        let bearer = text.lines().find_map(|line| line.strip_prefix("authorization: bearer "));
        let shown = shown.clone().or_else(|| Some(bearer?.as_bytes().to_vec()));
        let (code, body) = match shown {
            Some(shown) if shown == *accepted.lock().unwrap() => (200, CREATED),
            _ => (401, UNAUTHORIZED),
        };
        read.clear();
        let answer = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Starts a server that accepts this token, and returns its address.
async fn token_server(env: &Env, accepted: &Accepted) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let (server, accepted) = (env.clone(), Arc::clone(accepted));
    drop(env.spawn("server", async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            drop(server.spawn("connection", answer_all(stream, None, Arc::clone(&accepted))));
        }
    }));
    uri
}

fn clients_of(env: &Env, config: Config) -> Clients {
    Clients::new(env.clone(), config, ClientOptions::default(), &Metrics::new(), Arc::new(OpenFence)).unwrap()
}

async fn get(clients: &Clients) -> Result<ConfigMap, kube::Error> {
    config_maps(clients.for_controller("c").unwrap().client()).get("a").await
}

fn is_unauthorized(result: &Result<ConfigMap, kube::Error>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 401)
}

#[tokio::test]
async fn token_file_is_trimmed_and_read_again_after_401() {
    let (env, directory) = (Env::system("test"), tempfile::tempdir().unwrap());
    let (path, accepted) = (directory.path().join("token"), Arc::new(Mutex::new(b"first".to_vec())));
    fs::write(&path, "first\n").unwrap();
    let mut config = Config::new(token_server(&env, &accepted).await.parse().unwrap());
    config.auth_info.token_file = Some(path.to_string_lossy().into_owned());
    let clients = clients_of(&env, config);
    get(&clients).await.unwrap();
    assert_eq!(clients.credentials_error(), None);
    fs::write(&path, " second \n").unwrap();
    *accepted.lock().unwrap() = b"second".to_vec();
    get(&clients).await.unwrap();
    env.kill();
}

/// Returns a plugin that records each run and prints the credential in a file. It fails without that file, and waits
/// while a file called `wait` exists.
fn plugin(directory: &Path) -> ExecConfig {
    let folder = directory.display();
    let wait = format!("while [ -e {folder}/wait ]; do sleep 0.02; done");
    let script = format!("echo run >> {folder}/runs; {wait}; cat {folder}/credential || exit 3");
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        "interactiveMode": "Never",
    });
    serde_json::from_value(exec).unwrap()
}

/// Makes the plugin wait until the returned function is called.
fn hold_plugin(directory: &Path) -> impl FnOnce() {
    let file = directory.join("wait");
    fs::write(&file, "").unwrap();
    move || fs::remove_file(file).unwrap()
}

/// Writes the credential that the plugin prints.
fn write_credential(directory: &Path, status: serde_json::Value) {
    let kind = json!({ "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status });
    fs::write(directory.join("credential"), kind.to_string()).unwrap();
}

fn runs(directory: &Path) -> usize {
    fs::read_to_string(directory.join("runs")).unwrap().lines().count()
}

/// A server that accepts the token `first`, and a configuration whose plugin prints it.
struct WithPlugin {
    env: Env,
    directory: tempfile::TempDir,
    accepted: Accepted,
    config: Config,
}

impl WithPlugin {
    async fn new(first: serde_json::Value) -> Self {
        let (env, directory) = (Env::system("test"), tempfile::tempdir().unwrap());
        let accepted = Arc::new(Mutex::new(b"first".to_vec()));
        write_credential(directory.path(), first);
        let mut config = Config::new(token_server(&env, &accepted).await.parse().unwrap());
        config.auth_info.exec = Some(plugin(directory.path()));
        Self { env, directory, accepted, config }
    }

    fn accept(&self, token: &str) {
        *self.accepted.lock().unwrap() = token.into();
    }
}

#[tokio::test]
async fn plugin_runs_again_once_for_all_requests_after_401() {
    let world = WithPlugin::new(json!({ "token": "first" })).await;
    let (clients, directory) = (clients_of(&world.env, world.config.clone()), world.directory.path());
    get(&clients).await.unwrap();
    assert_eq!(runs(directory), 1);
    write_credential(directory, json!({ "token": "second" }));
    world.accept("second");
    let results = futures_util::future::join_all((0..8).map(|_| get(&clients))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!((runs(directory), clients.credentials_error()), (2, None));
    world.env.kill();
}

#[tokio::test]
async fn credentials_error_is_reported_until_a_request_is_authenticated() {
    let world = WithPlugin::new(json!({ "token": "first" })).await;
    let (clients, directory) = (clients_of(&world.env, world.config.clone()), world.directory.path());
    world.accept("second");
    fs::remove_file(directory.join("credential")).unwrap();
    assert!(is_unauthorized(&get(&clients).await));
    assert_eq!(clients.credentials_error(), Some(CredentialsError::PluginFailed { code: Some(3) }));
    // If the server rejects everything, the plugin does not run for each request.
    assert!(is_unauthorized(&get(&clients).await));
    assert_eq!(runs(directory), 2);
    world.accept("first");
    get(&clients).await.unwrap();
    assert_eq!(clients.credentials_error(), None);
    world.env.kill();
}

#[tokio::test]
async fn token_that_expires_soon_is_sent_while_the_plugin_runs() {
    let expires_at = Env::system("clock").wall() + Duration::from_secs(30);
    let world = WithPlugin::new(json!({ "token": "first", "expirationTimestamp": expires_at })).await;
    let (clients, directory) = (clients_of(&world.env, world.config.clone()), world.directory.path());
    write_credential(directory, json!({ "token": "second" }));
    let release = hold_plugin(directory);
    // Neither request waits, and the plugin runs once for both.
    get(&clients).await.unwrap();
    get(&clients).await.unwrap();
    release();
    world.accept("second");
    get(&clients).await.unwrap();
    assert_eq!(runs(directory), 2);
    world.env.kill();
}

#[tokio::test]
async fn next_request_waits_for_a_slow_plugin() {
    let world = WithPlugin::new(json!({ "token": "first" })).await;
    let directory = world.directory.path();
    let options = ClientOptions { request_timeout: Duration::from_millis(300), ..ClientOptions::default() };
    let fence = Arc::new(OpenFence);
    let clients =
        Clients::new(world.env.clone(), world.config.clone(), options, &Metrics::new(), fence).unwrap();
    write_credential(directory, json!({ "token": "second" }));
    let release = hold_plugin(directory);
    world.accept("second");
    get(&clients).await.unwrap_err();
    get(&clients).await.unwrap_err();
    release();
    while get(&clients).await.is_err() {}
    assert_eq!(runs(directory), 2);
    world.env.kill();
}

#[tokio::test]
async fn request_with_an_expired_credential_is_not_sent_when_the_plugin_fails() {
    let expired_at = Env::system("clock").wall() - Duration::from_secs(1);
    let world = WithPlugin::new(json!({ "token": "first", "expirationTimestamp": expired_at })).await;
    let (clients, directory) = (clients_of(&world.env, world.config.clone()), world.directory.path());
    fs::remove_file(directory.join("credential")).unwrap();
    for _ in 0..3 {
        let error = get(&clients).await.unwrap_err();
        assert!(one_line(&error).contains("credential plugin failed (exit status 3)"), "{error}");
    }
    assert_eq!(clients.credentials_error(), Some(CredentialsError::PluginFailed { code: Some(3) }));
    assert_eq!(runs(directory), 2);
    world.env.kill();
}

/// A CA and the certificates that it signs.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }
}

/// Starts a server that accepts this client certificate of the authority.
async fn certificate_server(env: &Env, authority: &Authority, accepted: &Accepted) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(authority.0.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let (certificate, key) = authority.sign("server");
    let chain = vec![CertificateDer::clone(certificate.der())];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_client_cert_verifier(verifier);
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("https://{}", listener.local_addr().unwrap());
    let (server, accepted) = (env.clone(), Arc::clone(accepted));
    drop(env.spawn("server", async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let shown = stream.get_ref().1.peer_certificates().map(|chain| chain[0].to_vec());
            drop(server.spawn("connection", answer_all(stream, shown, Arc::clone(&accepted))));
        }
    }));
    uri
}

fn write_pair(directory: &Path, (certificate, key): &(rcgen::Certificate, KeyPair)) {
    fs::write(directory.join("key"), key.serialize_pem()).unwrap();
    fs::write(directory.join("certificate"), certificate.pem()).unwrap();
}

#[tokio::test]
async fn rotated_client_certificate_is_used_without_restart() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (env, directory, authority) = (Env::system("test"), tempfile::tempdir().unwrap(), Authority::new());
    let (first, second) = (authority.sign("first"), authority.sign("second"));
    let accepted = Arc::new(Mutex::new(first.0.der().to_vec()));
    write_pair(directory.path(), &first);
    let mut config = Config::new(certificate_server(&env, &authority, &accepted).await.parse().unwrap());
    config.root_cert = Some(vec![authority.0.der().to_vec()]);
    let path = |name: &str| Some(directory.path().join(name).to_string_lossy().into_owned());
    (config.auth_info.client_certificate, config.auth_info.client_key) = (path("certificate"), path("key"));
    let clients = clients_of(&env, config);
    get(&clients).await.unwrap();
    // A half-written pair cannot be used: the old connections and the problem are kept.
    *accepted.lock().unwrap() = second.0.der().to_vec();
    fs::write(directory.path().join("key"), second.1.serialize_pem()).unwrap();
    assert!(is_unauthorized(&get(&clients).await));
    assert_eq!(clients.credentials_error(), Some(CredentialsError::Certificate));
    write_pair(directory.path(), &second);
    env.sleep(Duration::from_millis(1_100)).await;
    get(&clients).await.unwrap();
    assert_eq!(clients.credentials_error(), None);
    env.kill();
}

/// Clients whose plugin prints a certificate, and a server that requires a certificate and accepts `second` only.
async fn with_plugin_pair(
    env: &Env,
    directory: &Path,
    authority: &Authority,
    second: &(rcgen::Certificate, KeyPair),
) -> Clients {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let first = authority.sign("first");
    let accepted = Arc::new(Mutex::new(first.0.der().to_vec()));
    write_credential(directory, status(&first));
    let mut config = Config::new(certificate_server(env, authority, &accepted).await.parse().unwrap());
    config.root_cert = Some(vec![authority.0.der().to_vec()]);
    config.auth_info.exec = Some(plugin(directory));
    let clients = clients_of(env, config);
    get(&clients).await.unwrap();
    *accepted.lock().unwrap() = second.0.der().to_vec();
    clients
}

fn status((certificate, key): &(rcgen::Certificate, KeyPair)) -> serde_json::Value {
    json!({ "clientCertificateData": certificate.pem(), "clientKeyData": key.serialize_pem() })
}

#[tokio::test]
async fn certificate_of_a_plugin_is_replaced_after_401() {
    let (env, directory, authority) = (Env::system("test"), tempfile::tempdir().unwrap(), Authority::new());
    let second = authority.sign("second");
    let clients = with_plugin_pair(&env, directory.path(), &authority, &second).await;
    write_credential(directory.path(), status(&second));
    let results = futures_util::future::join_all((0..8).map(|_| get(&clients))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!((runs(directory.path()), clients.credentials_error()), (2, None));
    env.kill();
}

#[tokio::test]
async fn certificate_of_failing_plugin_is_still_presented() {
    let (env, directory, authority) = (Env::system("test"), tempfile::tempdir().unwrap(), Authority::new());
    let clients = with_plugin_pair(&env, directory.path(), &authority, &authority.sign("second")).await;
    fs::remove_file(directory.path().join("credential")).unwrap();
    // The server accepts no connection without a certificate: an answered request has presented one.
    let results = futures_util::future::join_all((0..8).map(|_| get(&clients))).await;
    assert!(results.iter().all(is_unauthorized), "{results:?}");
    assert_eq!(clients.credentials_error(), Some(CredentialsError::PluginFailed { code: Some(3) }));
    assert_eq!(runs(directory.path()), 2);
    env.kill();
}
