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
use crate::CredentialsError;

/// What the server accepts now: a token, or a client certificate.
type Accepted = Arc<Mutex<Vec<u8>>>;

const UNAUTHORIZED: &str =
    r#"{"kind":"Status","status":"Failure","reason":"Unauthorized","code":401,"message":"who?"}"#;

/// Answers the requests of one connection: 401 unless `shown`, or else the bearer token, is what is accepted.
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

/// A server that accepts this token, at the address that is returned.
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

fn plugin(script: &str) -> ExecConfig {
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        "interactiveMode": "Never",
    });
    serde_json::from_value(exec).unwrap()
}

/// A plugin that notes each run, and hands out the token in a file, or fails without one.
fn token_plugin(directory: &Path) -> ExecConfig {
    let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"'"$token"'"}}"#;
    let folder = directory.display();
    plugin(&format!("echo run >> {folder}/runs; token=$(cat {folder}/token) || exit 3; echo '{credential}'"))
}

#[tokio::test]
async fn plugin_runs_again_once_for_all_requests_after_401() {
    let (env, directory) = (Env::system("test"), tempfile::tempdir().unwrap());
    let accepted = Arc::new(Mutex::new(b"first".to_vec()));
    fs::write(directory.path().join("token"), "first").unwrap();
    let mut config = Config::new(token_server(&env, &accepted).await.parse().unwrap());
    config.auth_info.exec = Some(token_plugin(directory.path()));
    let clients = clients_of(&env, config);
    let runs = || fs::read_to_string(directory.path().join("runs")).unwrap().lines().count();
    get(&clients).await.unwrap();
    assert_eq!(runs(), 1);
    fs::write(directory.path().join("token"), "second").unwrap();
    *accepted.lock().unwrap() = b"second".to_vec();
    let results = futures_util::future::join_all((0..8).map(|_| get(&clients))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!((runs(), clients.credentials_error()), (2, None));
    env.kill();
}

#[tokio::test]
async fn credentials_error_is_reported_until_a_request_is_authenticated() {
    let (env, directory) = (Env::system("test"), tempfile::tempdir().unwrap());
    let accepted = Arc::new(Mutex::new(b"first".to_vec()));
    fs::write(directory.path().join("token"), "first").unwrap();
    let mut config = Config::new(token_server(&env, &accepted).await.parse().unwrap());
    config.auth_info.exec = Some(token_plugin(directory.path()));
    let clients = clients_of(&env, config);
    *accepted.lock().unwrap() = b"second".to_vec();
    fs::remove_file(directory.path().join("token")).unwrap();
    assert!(is_unauthorized(&get(&clients).await));
    assert_eq!(clients.credentials_error(), Some(CredentialsError::PluginFailed { code: Some(3) }));
    // A server that rejects everything does not run a plugin for each request.
    assert!(is_unauthorized(&get(&clients).await));
    assert_eq!(fs::read_to_string(directory.path().join("runs")).unwrap().lines().count(), 2);
    *accepted.lock().unwrap() = b"first".to_vec();
    get(&clients).await.unwrap();
    assert_eq!(clients.credentials_error(), None);
    env.kill();
}

/// An authority, and the certificates that it signs.
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

/// A server that accepts this client certificate, of those that the authority has signed.
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
    // A half-written pair cannot be used: the old connections and the reason stay.
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
