//! What only real sockets show. Time is the machine's here; nothing waits for longer than it must.

use std::net::TcpListener;

use kube::Config;

use super::*;
use crate::{ListQuery, RequestError};

fn clients(uri: &str, connect_timeout: Duration) -> Clients {
    let mut config = Config::new(uri.parse().unwrap());
    // No roots at all: nothing here gets as far as a certificate.
    config.root_cert = Some(Vec::new());
    let options = ClientOptions { connect_timeout, ..ClientOptions::default() };
    Clients::new(Env::system("test"), config, options, &Metrics::new(), Arc::new(OpenFence)).unwrap()
}

/// An address at which nobody listens.
fn deserted() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn configmaps() -> windlass_object::ResourceKind {
    windlass_object::ResourceKind::of::<ConfigMap>()
}

#[tokio::test]
async fn a_refused_connection_is_told_apart_and_its_write_was_not_sent() {
    let clients = clients(&deserted(), seconds(5));
    let error =
        clients.for_informers().unwrap().list(&configmaps(), None, &ListQuery::default()).await.unwrap_err();
    assert!(error.is_connection_refused(), "{error:?}");

    let log = Arc::<TestLog>::default();
    let worker = clients.for_controller("c").unwrap().worker(Arc::clone(&log) as Arc<dyn WriteLog>, None);
    let error: RequestError = create(&worker).await.unwrap_err().into();
    assert!(error.is_connection_refused(), "{error:?}");
    assert!(log.is_empty(), "a connection that was never made carried nothing");
}

#[tokio::test]
async fn the_connect_timeout_covers_the_tls_handshake() {
    // Installing fails when another test of this process was faster, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The kernel accepts, and nobody ever says a word of TLS.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("https://{}", listener.local_addr().unwrap());
    let clients = clients(&uri, Duration::from_millis(100));
    let (env, raw) = (Env::system("watchdog"), clients.for_informers().unwrap());
    let result = env.timeout(seconds(30), raw.list(&configmaps(), None, &ListQuery::default())).await;
    assert!(matches!(result, Ok(Err(RequestError::Transport(_)))), "{result:?}");
}
