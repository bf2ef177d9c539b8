use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, client::Body};
use tower::{BoxError, service_fn};
use windlass_admin::{Health, Probe};
use windlass_client::{ClientOptions, Clients, OpenFence};
use windlass_env::Env;
use windlass_metrics::Metrics;

use crate::manager::add_credentials;

#[tokio::test(start_paused = true)]
async fn readiness_fails_while_server_rejects_credentials() {
    let code = Arc::new(AtomicU16::new(401));
    let answers = Arc::clone(&code);
    let service = service_fn(move |_: Request<Body>| {
        let body = Full::new(Bytes::from_static(b"{\"metadata\":{\"name\":\"a\"}}"));
        let response = Response::builder().status(answers.load(Ordering::Relaxed)).body(body);
        async move { Ok::<_, BoxError>(response.expect("a response")) }
    });
    let (env, metrics, uri) = (Env::virtual_time(1), Metrics::new(), Uri::from_static("http://api"));
    let clients =
        Clients::from_service(env, service, uri, ClientOptions::default(), &metrics, Arc::new(OpenFence));
    let (clients, health) = (clients.expect("clients"), Health::new(metrics));
    add_credentials(&health, &clients);
    let pods: Api<Pod> = Api::all(clients.for_election().expect("a client"));
    let outcome = || health.check(Probe::Ready, "credentials").expect("the check").outcome;
    assert_eq!(outcome(), Ok(()));
    pods.get("a").await.expect_err("rejected");
    assert!(outcome().is_err_and(|reason| reason.contains("rejects the credentials (401)")));
    assert!(health.report(Probe::Live).results.iter().all(|check| check.outcome.is_ok()));
    code.store(200, Ordering::Relaxed);
    pods.get("a").await.expect("accepted");
    assert_eq!(outcome(), Ok(()));
}
