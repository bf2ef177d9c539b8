//! Tests of the endpoints and their responses.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::{Access, PageResponse, Tls};

// parity: health-pprof-metrics-server, serves-metrics-nothing-else, healthy-if-all-checks
#[tokio::test]
async fn admin_server_answers_probes_and_scrapers_and_nothing_else() {
    let served = Served::start(AdminConfig::local(anywhere())).await;
    let caches = Arc::new(AtomicBool::new(false));
    let synced = Arc::clone(&caches);
    let check = move || synced.load(Ordering::Relaxed).then_some(()).ok_or("no".to_owned());
    served.parts.health.ready("caches", Arc::new(check));

    let not_ready = served.ask("GET /readyz").await;
    assert!(not_ready.starts_with("HTTP/1.1 500") && not_ready.contains("[-]caches failed: reason withheld"));
    assert!(served.ask("GET /readyz?exclude=caches").await.ends_with("\r\n\r\nok"));
    assert!(served.ask("GET /readyz?exclude=caches&exclude=ping").await.ends_with("\r\n\r\nok"));
    caches.store(true, Ordering::Relaxed);
    assert!(served.ask("GET /readyz").await.ends_with("\r\n\r\nok"));
    let verbose = served.ask("GET /readyz?verbose&exclude=ping&exclude=x").await;
    let lines = "[+]caches ok\n[+]ping excluded: ok\nwarn: cannot exclude \"x\": no such check\n";
    assert_eq!(body(&verbose), format!("{lines}readyz check passed\n"));
    assert_eq!(code(&served.ask("GET /livez/ping").await), 200);
    assert_eq!(code(&served.ask("GET /livez/nobody").await), 404);
    assert!(served.ask("GET /metrics").await.contains("kubernetes_healthcheck{"));
    let head = served.ask("HEAD /metrics").await;
    assert!(code(&head) == 200 && head.contains("content-length: ") && body(&head).is_empty(), "{head}");
    let refused = served.ask("POST /healthz").await;
    assert!(code(&refused) == 405 && refused.contains("allow: GET, HEAD"), "{refused}");
    for (request, expected) in [("GET /debug", 404), ("GET /metrics/", 404), ("GET //", 404)] {
        let answer = served.ask(request).await;
        assert_eq!((code(&answer), body(&answer).lines().count()), (expected, 1), "{request}: {answer}");
    }

    let address = served.server.address();
    let again = AdminServer::start(&served.env, &AdminConfig::local(address), served.parts.clone()).await;
    let taken = again.expect_err("the port is taken").to_string();
    assert!(taken.starts_with(&format!("cannot listen on {address}: ")));
    served.stop().await;
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
}

// parity: extra-endpoints-extra-handlers, metrics-slis
#[tokio::test]
async fn endpoints_report_paths_status_configuration_and_flags() {
    let served = Served::start(AdminConfig::local(anywhere())).await;
    served
        .parts
        .pages
        .add("/debug/late", Arc::new(|request| PageResponse::text(format!("{:?}", request.query))));

    let index: Value = serde_json::from_str(body(&served.ask("GET /").await)).expect("JSON");
    let listed: Vec<&str> =
        index["paths"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for path in ["/", "/configz", "/debug/late", "/flagz", "/livez/", "/metrics", "/metrics/slis", "/statusz"]
    {
        assert!(listed.contains(&path), "{path} in {listed:?}");
        assert_eq!(code(&served.ask(&format!("GET {}", path.replace("livez/", "livez/ping"))).await), 200);
    }
    assert_eq!(body(&served.ask("GET /debug/late?key=a%2Fb").await), r#"[("key", "a/b")]"#);

    let levels = served.ask("GET /metrics/slis").await;
    let families: Vec<&str> =
        levels.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(families, ["kubernetes_healthcheck", "kubernetes_healthchecks_total"]);

    assert_eq!(body(&served.ask("GET /configz").await), r#"{"manager":{"name":"windlass"}}"#);
    assert!(body(&served.ask("GET /flagz").await).ends_with("\n\nv=4\n"));
    let status = served.ask("GET /statusz").await;
    assert!(status.contains("\nwindlass statusz\n") && status.contains("\nUp: 0 hr 00 min 0"), "{status}");
    assert!(status.contains("\nLease kube-system/windlass: held here\nPaths: "), "{status}");
    served.stop().await;
}

// parity: statusz-flagz
#[tokio::test]
async fn statusz_and_flagz_serve_objects_only_by_full_media_type() {
    let served = Served::start(AdminConfig::local(anywhere())).await;
    let asked = async |path: &str, accept: &str| {
        exchange(served.connect().await, &format!("GET {path}"), &format!("Accept: {accept}\r\n")).await
    };
    let status = asked("/statusz", "application/json;v=v1alpha1;g=config.k8s.io;as=Statusz").await;
    assert!(status.contains("warning: 299 - "), "the older version is deprecated: {status}");
    let status: Value = serde_json::from_str(body(&status)).expect("JSON");
    let (kind, version) = (&status["kind"], &status["apiVersion"]);
    assert_eq!((kind, version), (&json!("Statusz"), &json!("config.k8s.io/v1alpha1")));
    assert_eq!(
        (&status["metadata"]["name"], &status["emulationVersion"]),
        (&json!("windlass"), &json!("1.36"))
    );
    assert!(status["paths"].as_array().is_some_and(|paths| paths.contains(&json!("/metrics"))), "{status}");
    let flags = asked("/flagz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz").await;
    assert!(!flags.contains("warning:"), "{flags}");
    let flags: Value = serde_json::from_str(body(&flags)).expect("JSON");
    assert_eq!((&flags["kind"], &flags["flags"]), (&json!("Flagz"), &json!({ "v": "4" })));
    for path in ["/statusz", "/flagz"] {
        assert_eq!(code(&asked(path, "application/json").await), 406);
        assert_eq!(code(&asked(path, "text/html").await), 406);
        assert_eq!(code(&asked(path, "*/*").await), 200);
    }
    served.stop().await;
}

// parity: extra-endpoints-extra-handlers
#[tokio::test]
async fn panicking_endpoint_returns_500_and_server_continues() {
    let served = Served::start(AdminConfig::local(anywhere())).await;
    served.parts.pages.add("/wild", Arc::new(|_| panic!("boom")));
    let answer = served.ask("GET /wild").await;
    assert!(code(&answer) == 500 && !answer.contains("boom"), "{answer}");
    assert_eq!(code(&served.ask("GET /livez").await), 200);
    assert!(
        served
            .parts
            .metrics
            .encode()
            .contains("windlass_admin_requests_total{code=\"500\",endpoint=\"/wild\"} 1")
    );
    served.stop().await;
}

// parity: reasons-withheld-path-check
#[tokio::test]
async fn failure_reason_is_shown_only_to_authorized_clients() {
    let reviewed =
        AdminConfig { tls: Tls::Plain, access: Access::reviewed(), ..AdminConfig::local(anywhere()) };
    for (config, shown) in [(AdminConfig::local(anywhere()), false), (reviewed, true)] {
        let served = Served::start(config).await;
        served.parts.health.live("caches", Arc::new(|| Err("pods in\nshop".to_owned())));
        assert!(served.ask("GET /livez").await.contains("[-]caches failed: reason withheld\n"));
        let answer = served.ask_as("reader", "GET /livez/caches").await;
        assert_eq!((code(&answer), answer.contains("error: pods in shop\n")), (500, shown), "{answer}");
        served.stop().await;
    }
}
