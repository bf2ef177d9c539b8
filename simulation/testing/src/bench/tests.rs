use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, PostParams};
use serde_json::json;
use windlass_controller::{Context, Setup, SetupError, Writer};
use windlass_informer::Lister;
use windlass_object::Verb;

use super::*;
use crate::object;

/// Copies each ConfigMap into a Secret, and sends the writes that its data requests.
struct Copier {
    maps: Lister<ConfigMap>,
    secrets: Lister<Secret>,
    secret: Writer<Secret>,
}

impl Controller for Copier {
    const NAME: &'static str = "copier";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Get]);
        Ok(Self {
            maps: setup.primary::<ConfigMap>().lister(),
            secrets: setup.watch::<Secret>().lister(),
            secret: setup.writer::<Secret>().create().build(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(map) = self.maps.get(key)? else { return Ok(Outcome::Done) };
        let orders = |order: &str| map.data.iter().flatten().any(|(name, _)| name == order);
        assert!(!orders("panic"), "the map orders it");
        if orders("undeclared") {
            let maps: Api<ConfigMap> = cx.api(key);
            let _dropped = maps.create(&PostParams::default(), &map).await;
        }
        cx.get_live::<ConfigMap>(key).await?;
        if self.secrets.get(key)?.is_some() {
            return Ok(Outcome::RequeueAfter(Duration::from_secs(60)));
        }
        self.secret.create(cx, &secret(key)).await?;
        cx.events().normal(&*map, "Copied", format!("copied {}", key.name()));
        Ok(Outcome::Done)
    }
}

fn secret(key: &ObjectKey) -> Secret {
    object(json!({ "metadata": { "name": key.name() } }))
}

async fn bench_with(name: &str, data: Value) -> (Bench, ObjectKey) {
    let bench = Bench::new::<Copier>(()).await;
    let map: ConfigMap = object(json!({ "metadata": { "name": name }, "data": data }));
    bench.create(&map).await;
    (bench, ObjectKey::namespaced("default", name))
}

fn paths(reconciled: &ReconcileReport) -> Vec<String> {
    reconciled.requests.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn reconcile_returns_requests_in_order_and_events() {
    let (mut bench, key) = bench_with("web", json!({})).await;
    let done = bench.reconcile(&key).await;
    let expected =
        ["GET /api/v1/namespaces/default/configmaps/web", "POST /api/v1/namespaces/default/secrets"];
    assert_eq!(paths(&done), expected);
    assert_eq!(done.requests[1].body["metadata"]["name"], "web");
    assert_eq!(done.result.expect("it is copied"), Outcome::Done);
    let [CapturedEvent { regarding, event }] = &done.events[..] else { panic!("{:?}", done.events) };
    assert_eq!((event.type_(), &*event.reason, &*event.note), ("Normal", "Copied", "copied web"));
    assert_eq!(regarding.name.as_deref(), Some("web"));
}

#[tokio::test(start_paused = true)]
async fn caches_contain_every_object_when_reconcile_begins() {
    let (mut bench, key) = bench_with("web", json!({})).await;
    bench.create(&secret(&key)).await;
    let done = bench.reconcile(&key).await;
    assert_eq!(done.result.expect("the Secret is cached"), Outcome::RequeueAfter(Duration::from_secs(60)));
    assert_eq!(done.requests.len(), 1, "{:?}", done.requests);
    bench.api::<Secret>().delete("web", &kube::api::DeleteParams::default()).await.expect("it exists");
    assert_eq!(bench.reconcile(&key).await.requests.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn controller_reconciles_only_when_requested() {
    let (mut bench, key) = bench_with("web", json!({})).await;
    bench.env().sleep(Duration::from_secs(3600)).await;
    assert!(bench.api::<Secret>().get_opt("web").await.expect("the server answers").is_none());
    assert_eq!(bench.reconcile(&key).await.requests.len(), 2);
    let other = bench.reconcile(&ObjectKey::namespaced("default", "none")).await;
    assert_eq!((other.result.expect("done"), other.requests, other.events), (Outcome::Done, vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn undeclared_request_is_returned_although_its_error_is_ignored() {
    let (mut bench, key) = bench_with("web", json!({ "undeclared": "" })).await;
    let error = bench.reconcile(&key).await.result.expect_err("no rule permits it");
    assert!(error.is_terminal());
    assert!(error.to_string().contains(r#"resource="configmaps",verb="create""#), "{error}");
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_reconcile_reaches_the_test() {
    let (mut bench, key) = bench_with("web", json!({ "panic": "" })).await;
    let message = catch_panic(bench.reconcile(&key)).await.expect_err("it panics");
    assert_eq!(message, "the reconcile of default/web panicked: the map orders it");
}

#[tokio::test]
async fn bench_requires_a_paused_clock() {
    let message = catch_panic(Bench::new::<Copier>(())).await.expect_err("the clock runs");
    assert_eq!(message, "a bench needs a paused clock; use #[tokio::test(start_paused = true)]");
}
