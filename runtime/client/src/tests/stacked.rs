use futures_util::future::join_all;
use kube::Config;
use windlass_object::{ResourceKind, Verb};

use super::*;
use crate::options::RateFactors;
use crate::{
    ClientError, DeclaredVerbs, ListQuery, NotDeclaredError, RequestProgress, timed_out, undeclared,
};

fn count(world: &World, line: &str) -> bool {
    world.metrics.encode().lines().any(|it| it == line)
}

// parity: simple-controller-client-builder
#[tokio::test(start_paused = true)]
async fn request_contains_base_uri_and_user_agent() {
    let world = World::new(answer(200, CREATED));
    config_maps(world.client()).get("a").await.unwrap();
    let seen = &world.seen()[0];
    assert_eq!(seen.uri, "http://api.test:6443/prefix/api/v1/namespaces/web/configmaps/a");
    let agent = seen.headers["user-agent"].to_str().unwrap();
    assert!(agent.starts_with("windlass/") && agent.ends_with("/test-controller"), "{agent}");
}

// parity: cardinality-request-metrics, tracing-per-request
#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_verb_resource_and_code() {
    let world =
        World::new(|seen| if seen.method == "GET" { reply(200, CREATED) } else { reply(409, CONFLICT) });
    let client = world.client();
    config_maps(client.clone()).get("a").await.unwrap();
    config_maps(client.clone()).get("b").await.unwrap();
    create(&client).await.unwrap_err();
    for line in [
        r#"windlass_client_requests_total{code="200",identity="test-controller",resource="configmaps",verb="get"} 2"#,
        r#"windlass_client_requests_total{code="409",identity="test-controller",resource="configmaps",verb="create"} 1"#,
        r#"rest_client_requests_total{code="200",host="api.test:6443",method="GET"} 2"#,
    ] {
        assert!(count(&world, line), "{line}\n{}", world.metrics.encode());
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_and_dropped_requests_are_counted() {
    let fence = TestFence::new(FenceState::Closed);
    let world = World::fenced(&fence, hang);
    let client = world.client();
    create(&client).await.unwrap_err();
    assert!(world.env.timeout(seconds(1), config_maps(client.clone()).get("a")).await.is_err());
    config_maps(client).get("a").await.unwrap_err();
    for (code, verb) in [("<fenced>", "create"), ("<cancelled>", "get"), ("<timeout>", "get")] {
        let line = format!(
            r#"windlass_client_requests_total{{code="{code}",identity="test-controller",resource="configmaps",verb="{verb}"}} 1"#
        );
        assert!(count(&world, &line), "{line}\n{}", world.metrics.encode());
    }
}

// parity: register-metric-and-track-rate-limiter
#[tokio::test(start_paused = true)]
async fn rate_limiter_wait_is_not_part_of_request_duration() {
    let options = ClientOptions { qps: 1.0, burst: 1, ..ClientOptions::default() };
    let world = World::with(options, |_| Arc::new(OpenFence), answer(200, CREATED));
    let api = config_maps(world.client());
    for _ in 0..3 {
        api.get("a").await.unwrap();
    }
    for line in [
        r#"rest_client_request_duration_seconds_sum{host="api.test:6443",verb="GET"} 0"#,
        r#"rest_client_rate_limiter_duration_seconds_sum{host="api.test:6443",verb="GET"} 2"#,
    ] {
        assert!(count(&world, line), "{line}\n{}", world.metrics.encode());
    }
}

// parity: controller-client-builder, simple-controller-client-builder, client-limits-qps-burst, client-without-limits
#[tokio::test(start_paused = true)]
async fn rate_limits_are_per_identity() {
    let options = ClientOptions { qps: 1.0, burst: 2, ..ClientOptions::default() };
    let world = World::with(options, |_| Arc::new(OpenFence), answer(200, CREATED));
    let clients = ["one", "one", "two"].map(|name| world.clients.for_controller(name).unwrap().client());
    let requests = clients.iter().flat_map(|client| [client; 2]).map(|client| config_maps(client.clone()));
    join_all(requests.map(|api| async move { api.get("a").await.unwrap() })).await;
    assert_eq!(
        world.arrivals(),
        [0, 0, 0, 0, 1000, 2000],
        "two clients with the same name share one rate limit"
    );
}

#[tokio::test(start_paused = true)]
async fn rate_factors_multiply_rate_and_burst() {
    let options = ClientOptions { qps: 1.0, burst: 2, ..ClientOptions::default() };
    let world = World::with(options, |_| Arc::new(OpenFence), answer(200, CREATED));
    let rate = RateFactors { qps: 2, burst: 3 };
    let client = world.clients.for_controller_with_rate("one", rate).unwrap().client();
    let requests = (0..8).map(|_| config_maps(client.clone()));
    join_all(requests.map(|api| async move { api.get("a").await.unwrap() })).await;
    assert_eq!(world.arrivals(), [0, 0, 0, 0, 0, 0, 500, 1000]);
    let unlimited = RateFactors { qps: 20, burst: 100 }.applied(-1.0, ClientOptions::MAX_BURST);
    assert_eq!(unlimited, (-20.0, ClientOptions::MAX_BURST));
}

#[tokio::test(start_paused = true)]
async fn watches_skip_the_rate_limiter() {
    let options = ClientOptions { qps: 0.001, burst: 1, ..ClientOptions::default() };
    let world = World::with(options, |_| Arc::new(OpenFence), |_| streamed(then_silence(vec![])));
    let api = config_maps(world.client());
    for _ in 0..10 {
        drop(api.watch(&Default::default(), "1").await.unwrap());
    }
    assert_eq!(world.arrivals(), [0; 10]);
}

// parity: timeouts-stalls
#[tokio::test(start_paused = true)]
async fn unanswered_request_ends_at_its_time_limit() {
    let world = World::new(hang);
    assert!(timed_out(&config_maps(world.client()).get("a").await.unwrap_err()));
    assert_eq!(world.env.now().since_origin(), seconds(60));
}

/// Returns a body of `count` chunks of this size, with a pause of `apart` between them.
fn chunks(count: usize, size: usize, apart: Duration) -> BoxStream<'static, Bytes> {
    let clock = Env::virtual_time(0);
    let chunk = Bytes::from(vec![b' '; size]);
    let steps = stream::iter(std::iter::repeat_n(chunk, count));
    steps.then(move |chunk| clock.sleep(apart).map(|()| chunk)).boxed()
}

#[tokio::test(start_paused = true)]
async fn time_limit_covers_the_body() {
    // Bytes trickle in without end: each arrives soon after the previous one, but the body never completes.
    for list in [false, true] {
        let world = World::new(|_| streamed(chunks(usize::MAX, 1, seconds(7))));
        let api = config_maps(world.client());
        let error = if list {
            api.list(&Default::default()).await.unwrap_err()
        } else {
            api.get("a").await.unwrap_err()
        };
        assert!(timed_out(&error), "{error:?}");
        assert_eq!(world.env.now().since_origin(), seconds(60));
    }
}

#[tokio::test(start_paused = true)]
async fn list_can_exceed_time_limit_while_it_makes_progress() {
    const EMPTY: &str = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}"#;
    let slow = |_: &Seen| {
        let rest = chunks(20, 512 * 1024, seconds(25));
        streamed(stream::iter([Bytes::from_static(EMPTY.as_bytes())]).chain(rest).boxed())
    };
    let world = World::new(slow);
    let list = config_maps(world.client()).list(&Default::default()).await.unwrap();
    assert!(list.items.is_empty());
    assert_eq!(world.env.now().since_origin(), seconds(500));
    let error = config_maps(world.client()).get("a").await.unwrap_err();
    assert!(timed_out(&error), "a single object has no progress limit: {error:?}");
}

#[tokio::test(start_paused = true)]
async fn progress_of_slow_list_is_recorded_with_every_chunk() {
    let world = World::new(|_| streamed(chunks(20, 512 * 1024, seconds(25))));
    let progress = RequestProgress::default();
    let reader = world.clients.for_informers().unwrap().with_progress(progress.clone());
    let kind = ResourceKind::of::<ConfigMap>();
    let list = world.env.spawn("list", async move { reader.list(&kind, None, &ListQuery::default()).await });
    world.env.sleep(seconds(110)).await;
    assert_eq!(progress.last_growth_at(), Some(Instant::ORIGIN + seconds(100)));
    assert_eq!(
        (progress.last_data_at(), progress.rate_limit_wait(world.env.now())),
        (progress.last_growth_at(), Duration::ZERO)
    );
    list.abort();
}

#[tokio::test(start_paused = true)]
async fn list_fails_on_stall_or_late_header() {
    let stalled = World::new(|_| streamed(chunks(2, 8 * 1024 * 1024, seconds(31))));
    assert!(timed_out(&config_maps(stalled.client()).list(&Default::default()).await.unwrap_err()));
    assert_eq!(stalled.env.now().since_origin(), seconds(30));
    let late = World::new(hang);
    assert!(timed_out(&config_maps(late.client()).list(&Default::default()).await.unwrap_err()));
    assert_eq!(late.env.now().since_origin(), seconds(60));
}

#[tokio::test(start_paused = true)]
async fn client_stays_usable_after_any_layer_rejects() {
    let fence = TestFence::new(FenceState::Closed);
    let world = World::fenced(&fence, |seen| {
        if seen.uri.path().ends_with("/hangs") { hang(seen) } else { reply(200, CREATED) }
    });
    let log = Arc::<TestLog>::default();
    let declared = Arc::new(Only(vec![Verb::Get, Verb::Create]));
    let clients = world.clients.for_controller("test-controller").unwrap();
    let client = clients.worker(log, Some(declared));
    for _ in 0..3 {
        create(&client).await.expect_err("fenced");
        config_maps(client.clone())
            .delete("a", &Default::default())
            .await
            .expect_err("the request is not declared");
        config_maps(client.clone()).get("hangs").await.expect_err("the request times out");
        config_maps(client.clone()).get("a").await.expect("the client is still usable");
    }
}

#[derive(Debug)]
struct Only(Vec<Verb>);

impl DeclaredVerbs for Only {
    fn permits(&self, verb: Verb, group: &str, resource: &str) -> bool {
        self.0.contains(&verb) && group.is_empty() && resource == "configmaps"
    }
}

#[tokio::test(start_paused = true)]
async fn undeclared_request_is_not_sent() {
    let world = World::new(answer(200, CREATED));
    let log = Arc::<TestLog>::default();
    let clients = world.clients.for_controller("test-controller").unwrap();
    let client = clients.worker(Arc::clone(&log) as Arc<dyn WriteLog>, Some(Arc::new(Only(vec![Verb::Get]))));
    config_maps(client.clone()).get("a").await.unwrap();
    let error = create(&client).await.unwrap_err();
    let expected =
        NotDeclaredError { verb: Verb::Create, group: String::new(), resource: "configmaps".into() };
    assert_eq!(undeclared(&error), Some(&expected));
    assert!(config_maps(client).get_status("a").await.is_err(), "a subresource needs its own declaration");
    assert_eq!((world.seen().len(), log.is_empty()), (1, true));
}

#[tokio::test(start_paused = true)]
async fn identity_has_at_most_64_requests_in_flight_except_watches() {
    let world = World::new(|seen| match seen.uri.query() {
        Some(query) if query.contains("watch=true") => streamed(then_silence(vec![])),
        // The header of the response arrives immediately, and the body takes one second.
        _ => streamed(stream::once(slow_body()).boxed()),
    });
    let api = config_maps(world.client());
    let mut watches = Vec::new();
    for _ in 0..70 {
        watches.push(api.watch(&Default::default(), "1").await.unwrap());
    }
    let gets = join_all((0..100).map(|_| api.get("a")));
    let other = world.clients.for_controller("other").unwrap().client();
    let others = join_all((0..64).map(|_| create(&other)));
    let (gets, others) = futures_util::future::join(gets, others).await;
    assert!(gets.iter().all(Result::is_ok) && others.iter().all(Result::is_ok));
    let arrived = world.arrivals();
    assert_eq!(
        arrived.iter().filter(|at| **at == 0).count(),
        70 + 64 + 64,
        "each identity has its own limit"
    );
    assert_eq!(arrived.iter().filter(|at| **at == 1000).count(), 36);
}

async fn slow_body() -> Bytes {
    Env::virtual_time(0).sleep(seconds(1)).await;
    Bytes::from_static(CREATED.as_bytes())
}

#[tokio::test(start_paused = true)]
async fn dropped_request_does_not_keep_a_permit() {
    let world = World::new(hang);
    let api = config_maps(world.client());
    let gets = join_all((0..100).map(|_| api.get("a")));
    assert!(world.env.timeout(seconds(1), gets).await.is_err());
    assert!(world.env.timeout(seconds(1), join_all((0..64).map(|_| api.get("a")))).await.is_err());
    assert_eq!(world.seen().len(), 128);
}

#[tokio::test(start_paused = true)]
async fn kube_watch_ends_when_it_receives_no_data() {
    let world = World::new(|_| streamed(then_silence(vec![])));
    let watch =
        config_maps(world.client()).watch(&kube::api::WatchParams::default().timeout(20), "1").await.unwrap();
    let events: Vec<_> = watch.collect().await;
    assert!(events.iter().all(Result::is_err), "{events:?}");
    assert_eq!(world.env.now().since_origin(), seconds(20 + 30));
}

#[tokio::test(start_paused = true)]
async fn invalid_user_agent_is_rejected() {
    let world = World::new(answer(200, CREATED));
    let error = world.clients.for_controller("line\nbreak").unwrap_err();
    assert!(matches!(error, ClientError::UserAgent(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn secrets_appear_in_no_debug_output_or_error() {
    let mut config = Config::new(Uri::from_static("http://user:s3cr3t@api.test:6443"));
    config.auth_info.token = Some("s3cr3t-token".to_string().into());
    config.auth_info.impersonate = Some("s3cr3t-user".into());
    config.headers.push((http::header::COOKIE, http::HeaderValue::from_static("s3cr3t")));
    let env = Env::virtual_time(1);
    let (options, metrics) = (ClientOptions::default(), Metrics::new());
    let clients =
        Clients::new(env.clone(), config.clone(), options.clone(), &metrics, Arc::new(OpenFence)).unwrap();
    let controller = clients.for_controller("test-controller").unwrap();
    let informers = clients.for_informers().unwrap();
    let mut printed = format!("{clients:?} {controller:?} {informers:?} {options:?}");
    config.proxy_url = Some(Uri::from_static("http://user:s3cr3t@proxy.test"));
    let error = Clients::new(env.clone(), config.clone(), options.clone(), &metrics, Arc::new(OpenFence))
        .unwrap_err();
    printed += &format!("{error} {error:?}");
    config.proxy_url = None;
    config.auth_info.impersonate = Some("s3cr3t\n".into());
    let error = Clients::new(env, config, options, &metrics, Arc::new(OpenFence)).unwrap_err();
    printed += &format!("{error} {error:?}");
    assert!(!printed.contains("s3cr3t"), "{printed}");
}

// parity: cardinality-request-metrics
#[tokio::test(start_paused = true)]
async fn metrics_name_host_and_port_of_the_server_and_no_user() {
    let base = Uri::from_static("http://user:s3cr3t@api.test:6443");
    let (env, metrics) = (Env::virtual_time(1), Metrics::new());
    let service = service_fn(|_: Request<Body>| reply(200, CREATED).map(Ok::<_, BoxError>));
    let clients =
        Clients::from_service(env, service, base, ClientOptions::default(), &metrics, Arc::new(OpenFence))
            .unwrap();
    create(&clients.for_controller("test-controller").unwrap().client()).await.unwrap();
    let text = metrics.encode();
    assert!(text.contains(r#"host="api.test:6443""#) && !text.contains("s3cr3t"), "{text}");
}
