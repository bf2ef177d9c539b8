//! Informers over a failing connection, with the client stack of a process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};
use http::{Request, Uri};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::json;
use tower::{BoxError, Service as _, service_fn};
use windlass_api_server::faults::{Fault, FaultAction, FaultPlan, FaultyServer, Link};
use windlass_client::{ClientOptions, Clients, OpenFence};
use windlass_env::{Env, Instant};
use windlass_metrics::Metrics;
use windlass_object::TypedObjects;

use super::world::{MINUTE, SECOND};
use crate::{ApiServerSources, FactoryOptions, InformerFactory, Selection, SharedInformer};

/// The times at which each request was sent and successfully answered.
type Traffic = Arc<Mutex<Vec<(Instant, Option<Instant>)>>>;

/// A delay for a request before it is sent.
type Detour = Arc<dyn Fn(&Request<Body>) -> Option<BoxFuture<'static, ()>> + Send + Sync>;

struct Process {
    env: Env,
    api: FaultyServer,
    clients: Clients,
    factory: InformerFactory,
    traffic: Traffic,
}

impl Process {
    fn new(faults: Vec<Fault>) -> Self {
        Self::with(faults, Arc::new(|_| None))
    }

    /// Creates a process whose requests wait for the futures that `detour` returns.
    fn with(faults: Vec<Fault>, detour: Detour) -> Self {
        Self::limited(faults, detour, 0.0)
    }

    /// Creates a process that sends `qps` requests per second.
    fn limited(faults: Vec<Fault>, detour: Detour, qps: f64) -> Self {
        let (env, metrics, traffic) = (Env::virtual_time(1), Metrics::new(), Traffic::default());
        let api = FaultyServer::new(&env, FaultPlan { seed: 1, faults });
        let service = service(&env, &api, &traffic, detour);
        let options = ClientOptions { qps, burst: 1, ..ClientOptions::default() };
        let base = Uri::from_static("http://api.test");
        let fence = Arc::new(OpenFence);
        let clients = Clients::from_service(env.clone(), service, base, options, &metrics, fence);
        let clients = clients.expect("clients");
        let factory = InformerFactory::new(env.clone(), metrics, FactoryOptions::default());
        Self { env, api, clients, factory, traffic }
    }

    fn start(&self) {
        let reader = self.clients.for_informers().expect("a reader");
        self.factory.start(Arc::new(ApiServerSources::new(reader).without_watch_list()));
    }

    fn put(&self, namespace: &str, value: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/x");
        self.api.upsert(&path, json!({ "data": { "value": value } }));
    }

    /// Sends a request outside of the informers every few seconds, as elections do.
    fn chatter(&self) -> windlass_env::Task<()> {
        let (client, env) = (self.clients.for_health(), self.env.clone());
        self.env.spawn("chatter", async move {
            loop {
                let request = Request::get("/api/v1/namespaces/n0").body(Vec::new()).expect("a request");
                let _answered = env.timeout(SECOND, client.request_text(request)).await;
                env.sleep(SECOND * 2).await;
            }
        })
    }
}

fn service(
    env: &Env,
    api: &FaultyServer,
    traffic: &Traffic,
    detour: Detour,
) -> impl tower::Service<
    Request<Body>,
    Response = <Link as tower::Service<Request<Body>>>::Response,
    Error = BoxError,
    Future: Send + 'static,
> + Clone
+ Send
+ Sync
+ 'static {
    let (env, line, traffic) = (env.clone(), api.link(), Arc::clone(traffic));
    service_fn(move |request: Request<Body>| {
        let (env, mut line, traffic) = (env.clone(), line.clone(), Arc::clone(&traffic));
        let wait = detour(&request).unwrap_or_else(|| future::ready(()).boxed());
        async move {
            let number = {
                let mut traffic = traffic.lock().unwrap();
                traffic.push((env.now(), None));
                traffic.len() - 1
            };
            wait.await;
            let answer = line.call(request).await.map_err(BoxError::from)?;
            if answer.status().is_success() {
                traffic.lock().unwrap()[number].1 = Some(env.now());
            }
            Ok::<_, BoxError>(answer)
        }
    })
}

fn value(informer: &SharedInformer<ConfigMap>) -> Option<String> {
    informer.lister().list().first().and_then(|it| it.data.as_ref()?.get("value").cloned())
}

/// Returns an outage of two minutes: watches stall or break, requests are refused or never answered.
fn outage(silent_permille: u16) -> Vec<Fault> {
    let (from, until) = (SECOND * 10, SECOND * 130);
    let fault = |what| Fault::until(until, what).from(from);
    vec![
        fault(FaultAction::WatchStalled).permille(500),
        fault(FaultAction::WatchReset),
        fault(FaultAction::RequestLost { silently: true }).permille(silent_permille),
        fault(FaultAction::RequestLost { silently: false }),
    ]
}

async fn recover_from(faults: Vec<Fault>) {
    const INFORMERS: usize = 50;
    let process = Process::new(faults);
    let namespaces: Vec<String> = (0..INFORMERS).map(|number| format!("n{number}")).collect();
    for namespace in &namespaces {
        process.api.upsert(&format!("/api/v1/namespaces/{namespace}"), json!({}));
        process.put(namespace, "first");
    }
    let select =
        |it: &String| process.factory.informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace(it));
    let informers: Vec<_> = namespaces.iter().map(select).collect();
    process.start();
    process.env.sleep(SECOND * 20).await;
    // Each watch has an event to deliver, at which it stalls or breaks.
    namespaces.iter().for_each(|namespace| process.put(namespace, "second"));
    process.env.sleep(SECOND * 109).await;
    namespaces.iter().for_each(|namespace| process.put(namespace, "third"));
    process.env.sleep(SECOND).await;
    let healed = process.env.now();
    let mut current = None;
    while current.is_none() {
        process.env.sleep(Duration::from_millis(10)).await;
        let now = process.env.now();
        assert!(now < healed + MINUTE * 5, "some informers are never current");
        let all = informers.iter().all(|informer| value(informer).as_deref() == Some("third"));
        current = all.then_some(now);
    }
    let traffic = process.traffic.lock().unwrap().clone();
    let answers = traffic.iter().filter_map(|(sent, answered)| answered.filter(|_| *sent >= healed));
    let first = answers.min().expect("an answer");
    let current = current.expect("current").saturating_duration_since(first);
    let found = first.saturating_duration_since(healed);
    let sent: Vec<Instant> = traffic.iter().map(|(sent, _)| *sent).filter(|sent| *sent >= healed).collect();
    let within = |from: Instant| sent.iter().filter(|it| (from..from + SECOND / 10).contains(*it)).count();
    let burst = sent.iter().map(|from| within(*from)).max().unwrap_or_default();
    assert!(found <= SECOND + SECOND / 10, "the first request is answered after {found:?}");
    assert!(current <= SECOND * 2, "all are current {current:?} after the first answer");
    assert!(burst <= 12, "{burst} requests in 100 ms");
}

#[tokio::test(start_paused = true)]
async fn informers_recover_in_2_s_when_requests_were_refused() {
    recover_from(outage(0)).await;
}

#[tokio::test(start_paused = true)]
async fn informers_recover_in_2_s_when_requests_hung() {
    recover_from(outage(500)).await;
}

#[tokio::test(start_paused = true)]
async fn informers_recover_in_2_s_when_some_requests_passed() {
    let mut faults = outage(300);
    faults.last_mut().expect("refusals").permille = 800;
    recover_from(faults).await;
}

#[tokio::test(start_paused = true)]
async fn process_probes_unreachable_server_about_once_a_second() {
    let process = Process::new(vec![Fault::until(MINUTE * 60, FaultAction::RequestLost { silently: false })]);
    for number in 0..50 {
        process
            .factory
            .informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace(format!("n{number}")));
    }
    process.start();
    process.env.sleep(MINUTE * 10).await;
    let begin = process.traffic.lock().unwrap().len();
    process.env.sleep(MINUTE * 10).await;
    let sent: Vec<Instant> = process.traffic.lock().unwrap()[begin..].iter().map(|(sent, _)| *sent).collect();
    let longest = sent.windows(2).map(|pair| pair[1].saturating_duration_since(pair[0])).max();
    assert!(longest.is_some_and(|gap| gap <= SECOND + SECOND / 10), "{longest:?}");
    // One probe per second, and the backoffs of 50 informers, which reach 30 to 60 s.
    assert!(sent.len() <= 600 * 3, "{} requests in ten minutes", sent.len());
    assert_eq!(process.factory.stalled(), [], "an unreachable server makes no informer stuck");
}

#[tokio::test(start_paused = true)]
async fn server_answering_429_for_15_minutes_makes_no_informer_stuck() {
    let env = Env::virtual_time(2);
    let slow: Detour = Arc::new(move |_| {
        let env = env.clone();
        Some(async move { env.sleep(SECOND * 20).await }.boxed())
    });
    let busy = FaultAction::TooManyRequests { retry_after_seconds: 60 };
    let process = Process::with(vec![Fault::until(MINUTE * 15, busy)], slow);
    process.api.upsert("/api/v1/namespaces/n0", json!({}));
    process.put("n0", "first");
    let informer = process.factory.typed::<ConfigMap>();
    process.start();
    for minute in 0..15 {
        assert_eq!(process.factory.stalled(), [], "after {minute} minutes");
        process.env.sleep(MINUTE).await;
    }
    informer.wait_for_sync(Some(MINUTE * 3)).await.expect("it syncs once the server accepts requests");
    assert_eq!(value(&informer).as_deref(), Some("first"));
}

#[tokio::test(start_paused = true)]
async fn informers_waiting_for_their_rate_limiter_are_not_stuck() {
    let process = Process::limited(Vec::new(), Arc::new(|_| None), 0.05);
    for number in 0..60 {
        process
            .factory
            .informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace(format!("n{number}")));
    }
    process.start();
    for minute in 0..19 {
        process.env.sleep(MINUTE).await;
        assert_eq!(process.factory.stalled(), [], "after {minute} minutes");
    }
    process.factory.wait_for_sync(Some(SECOND)).await.expect_err("some still wait");
    process.factory.wait_for_sync(Some(MINUTE * 2)).await.expect("all have listed");
}

#[tokio::test(start_paused = true)]
async fn informer_is_stuck_when_only_its_own_lists_never_arrive() {
    let hangs: Detour = Arc::new(|request| {
        let of_list = request.uri().path().ends_with("/configmaps");
        of_list.then(|| future::pending().boxed())
    });
    let process = Process::with(Vec::new(), hangs);
    process.api.upsert("/api/v1/namespaces/n0", json!({}));
    process.factory.typed::<ConfigMap>();
    process.start();
    let chatter = process.chatter();
    process.env.sleep(MINUTE * 15).await;
    assert_eq!(process.factory.stalled().len(), 1, "the server responds, but its lists never arrive");
    chatter.abort();
}
