//! Tests that need real sockets. They use the machine's clock and wait no longer than necessary.

use std::net::TcpListener;

use http::{HeaderValue, header};
use kube::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::{Identities, ListQuery, RequestError};

fn clients(uri: &str, connect_timeout: Duration) -> Clients {
    let mut config = Config::new(uri.parse().unwrap());
    // No root certificates: no test gets as far as a server certificate.
    config.root_cert = Some(Vec::new());
    let options = ClientOptions { connect_timeout, ..ClientOptions::default() };
    Clients::new(Env::system("test"), config, options, &Metrics::new(), Arc::new(OpenFence)).unwrap()
}

/// Returns an address without a listener.
fn deserted() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn configmaps() -> windlass_object::ResourceKind {
    windlass_object::ResourceKind::of::<ConfigMap>()
}

#[tokio::test]
async fn connection_refused_is_distinguished_and_write_was_not_sent() {
    let clients = clients(&deserted(), seconds(5));
    let error =
        clients.for_informers().unwrap().list(&configmaps(), None, &ListQuery::default()).await.unwrap_err();
    assert!(matches!(error, RequestError::ConnectionRefused(_)), "{error:?}");

    let log = Arc::<TestLog>::default();
    let worker = clients.for_controller("c").unwrap().worker(Arc::clone(&log) as Arc<dyn WriteLog>, None);
    let error: RequestError = create(&worker).await.unwrap_err().into();
    assert!(matches!(error, RequestError::ConnectionRefused(_)), "{error:?}");
    assert!(log.is_empty(), "nothing was sent without a connection");
}

#[tokio::test]
async fn connect_timeout_covers_the_tls_handshake() {
    // Installing fails if another test of this process was faster; the effect is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The kernel accepts the connection, and no data follows.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("https://{}", listener.local_addr().unwrap());
    let clients = clients(&uri, Duration::from_millis(100));
    let (env, raw) = (Env::system("watchdog"), clients.for_informers().unwrap());
    let result = env.timeout(seconds(30), raw.list(&configmaps(), None, &ListQuery::default())).await;
    assert!(matches!(result, Ok(Err(RequestError::Transport(_)))), "{result:?}");
}

/// Answers each request on its own connection, token requests with a token, and records the requests.
async fn serve(listener: tokio::net::TcpListener, received: Arc<Mutex<Vec<String>>>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
        while !is_whole(&read) {
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the request is complete");
            read.extend_from_slice(&buffer[..count]);
        }
        let request = String::from_utf8(read).unwrap().to_lowercase();
        let body = match request.lines().next() {
            Some(line) if line.contains("/token") => {
                r#"{"spec":{"expirationSeconds":3600},"status":{"token":"of-the-account"}}"#
            }
            _ => CREATED,
        };
        received.lock().unwrap().push(request);
        let answer =
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

fn is_whole(read: &[u8]) -> bool {
    let text = String::from_utf8_lossy(read).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn account_requests_contain_no_credentials_of_the_process() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.auth_info.token = Some("of-the-process".to_string().into());
    config.auth_info.impersonate = Some("somebody".into());
    config.headers.push((header::COOKIE, HeaderValue::from_static("of-the-process")));
    let (env, received) = (Env::system("test"), Arc::<Mutex<Vec<String>>>::default());
    let _server = env.spawn("server", serve(listener, Arc::clone(&received)));
    let options = ClientOptions { identities: Identities::service_accounts(), ..ClientOptions::default() };
    let clients = Clients::new(env.clone(), config, options, &Metrics::new(), Arc::new(OpenFence)).unwrap();
    create(&clients.for_controller("one").unwrap().client()).await.unwrap();
    create(&clients.for_election().unwrap()).await.unwrap();
    let received = received.lock().unwrap().clone();
    let [token, account, process] = received.as_slice() else { panic!("{received:#?}") };
    for request in [token, process] {
        let is_process =
            ["authorization: bearer of-the-process", "impersonate-user: somebody", "cookie: of-the-process"];
        assert!(is_process.iter().all(|header| request.contains(header)), "{request}");
    }
    assert!(account.contains("authorization: bearer of-the-account\r\n"), "{account}");
    for foreign in ["of-the-process", "impersonate", "cookie", "somebody"] {
        assert!(!account.contains(foreign), "{account}");
    }
    env.kill();
}
