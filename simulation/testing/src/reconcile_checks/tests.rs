use std::future::{pending, ready};
use std::time::Duration;

use futures_util::future::poll_immediate;
use http::Uri;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use windlass_api_server::faults::{Fault, FaultAction, FaultPlan};
use windlass_client::{ClientOptions, Clients, OpenFence};
use windlass_controller::{Context, Controller, RequestOptions, Setup, SetupError};
use windlass_informer::Lister;
use windlass_metrics::Metrics;
use windlass_object::Verb;

use super::*;
use crate::{Cluster, Simulation, object, server};

/// Reconciles of one key, whose clients send requests to a server.
struct World {
    layer: ReconcileTagLayer,
    clients: ControllerClients,
    oracle: Arc<Oracle>,
    key: ObjectKey,
}

impl World {
    fn new() -> World {
        let env = Env::virtual_time(1);
        let (oracle, process) = (Oracle::new(), ProcessId { instance: "a".into(), incarnation: 0 });
        let link =
            CheckedLink { link: server(&env), process, oracle: Arc::clone(&oracle), world: env.clone() };
        let (uri, options) = (Uri::from_static("http://test"), ClientOptions::default());
        let clients =
            Clients::from_service(env, link, uri, options, &Metrics::new(), Arc::new(OpenFence)).unwrap();
        let clients = clients.for_controller("test").unwrap();
        let layer = ReconcileTagLayer { controller: "test", last: Mutex::default() };
        World { layer, clients, oracle, key: ObjectKey::namespaced("default", "web") }
    }

    /// Begins a reconcile and returns its clients.
    fn begin(&self) -> ControllerClients {
        self.layer.clients(&self.key, &self.clients).expect("they are tagged")
    }

    /// Polls a reconcile once and drops it.
    async fn reconcile(&self, reconcile: BoxFuture<'_, Result<Outcome, ReconcileError>>) {
        drop(poll_immediate(self.layer.around(&self.key, reconcile)).await);
    }
}

fn api(clients: &ControllerClients) -> Api<ConfigMap> {
    Api::namespaced(clients.client(), "default")
}

async fn create(clients: &ControllerClients) {
    let map = object(json!({ "metadata": { "generateName": "web-" } }));
    api(clients).create(&PostParams::default(), &map).await.expect("a ConfigMap");
}

#[tokio::test(start_paused = true)]
async fn write_after_the_next_reconcile_of_its_key_began_is_reported() {
    let world = World::new();
    let first = world.begin();
    world.reconcile(Box::pin(ready(Ok(Outcome::Done)))).await;
    create(&first).await;
    assert_eq!(world.oracle.found(), None, "its tasks can write");
    let second = world.begin();
    create(&second).await;
    assert!(api(&first).get_opt("web").await.is_ok_and(|found| found.is_none()));
    assert_eq!(world.oracle.found(), None, "reads pass");
    create(&first).await;
    let (process, key, at) = ("a/0".to_owned(), "test default/web".to_owned(), Duration::ZERO);
    let request = "POST http://test/api/v1/namespaces/default/configmaps?".to_owned();
    let Some(Violation::WriteAfterReconcile { request: found, .. }) = world.oracle.found() else {
        panic!("not found")
    };
    assert!(found.starts_with(&request), "{found}");
    assert_eq!(
        world.oracle.found(),
        Some(Violation::WriteAfterReconcile { process, request: found, key, at })
    );
}

#[tokio::test(start_paused = true)]
async fn write_after_its_reconcile_was_dropped_is_reported() {
    let world = World::new();
    let clients = world.begin();
    world.reconcile(Box::pin(pending())).await;
    create(&clients).await;
    assert!(matches!(world.oracle.found(), Some(Violation::WriteAfterReconcile { .. })));
}

/// Returns the violation of a deletion with these options by clients in dry-run mode that send the parameter or not.
async fn deletion(sends_dry: bool, params: &DeleteParams) -> Option<Violation> {
    let world = World::new();
    let clients = world.begin().tagged(DryRun);
    let clients = if sends_dry { clients.with(RequestOptions::dry_run()) } else { clients };
    drop(api(&clients).delete("web", params).await);
    world.oracle.found()
}

#[tokio::test(start_paused = true)]
async fn write_of_a_dry_run_without_its_parameter_is_reported() {
    let world = World::new();
    let clients = world.begin().tagged(DryRun);
    create(&clients.with(RequestOptions::dry_run())).await;
    assert!(api(&clients).get_opt("web").await.is_ok());
    assert_eq!(world.oracle.found(), None);
    create(&clients).await;
    assert!(matches!(world.oracle.found(), Some(Violation::WriteInDryRun { .. })));

    let params = DeleteParams::background();
    assert_eq!(deletion(true, &params).await, None);
    assert!(matches!(deletion(false, &params).await, Some(Violation::WriteInDryRun { .. })));
}

/// The server ignores the query of a deletion with a body.
#[test]
fn deletion_is_a_dry_run_by_its_body_if_it_has_one() {
    let is_dry = |uri: &str, body: &'static str| {
        let request = Request::delete(uri).body(Body::from(body.as_bytes().to_vec()));
        is_dry(&request.expect("a request"))
    };
    assert!(is_dry("/p?dryRun=All", ""));
    assert!(!is_dry("/p", ""));
    assert!(is_dry("/p", r#"{"dryRun":["All"]}"#));
    assert!(!is_dry("/p?dryRun=All", r#"{"gracePeriodSeconds":1}"#));
    assert!(!is_dry("/p?dryRun=All", "{"));
}

/// Starts a task in each reconcile that writes after the next reconcile began, and first sends each deletion as a dry
/// run.
struct Stray {
    maps: Lister<ConfigMap>,
}

impl Controller for Stray {
    const NAME: &'static str = "stray";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Patch, Verb::Delete]);
        Ok(Self { maps: setup.primary::<ConfigMap>().lister() })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        if self.maps.get(key)?.is_none() || !key.name().starts_with("web") {
            return Ok(Outcome::Done);
        }
        let trial = cx.with(RequestOptions::dry_run());
        trial.api::<ConfigMap>(key).delete(key.name(), &DeleteParams::background()).await?;
        let (env, name, api) = (cx.env().clone(), key.name().to_owned(), cx.api::<ConfigMap>(key));
        drop(cx.env().spawn("stray", async move {
            env.sleep(Duration::from_secs(5)).await;
            let patch = Patch::Merge(json!({ "data": { "late": "yes" } }));
            drop(api.patch(&name, &PatchParams::default(), &patch).await);
        }));
        Ok(if cx.env().now().since_origin() < Duration::from_secs(60) {
            Outcome::RequeueAfter(Duration::from_secs(2))
        } else {
            Outcome::Done
        })
    }
}

#[test]
fn no_write_of_a_stray_task_or_a_dry_run_has_an_effect() {
    let script = async |cluster: Cluster| {
        cluster.run([Registration::controller::<Stray>()]);
        cluster.advance(Duration::from_secs(20)).await;
        cluster.create(&object::<ConfigMap>(json!({ "metadata": { "name": "web" } }))).await;
        cluster.advance(Duration::from_secs(60)).await;
        let map = cluster.snapshot().get::<ConfigMap>("web").expect("dry runs delete nothing");
        assert_eq!(map.data, None, "stray tasks write nothing");
    };
    let late = Fault::until(Duration::from_secs(50), FaultAction::RequestDelayed { by_ms: 3000 })
        .for_resource("configmaps");
    for faults in [vec![], vec![late]] {
        let run = Simulation::new(1).plan(FaultPlan { seed: 1, faults }).run(script);
        run.unwrap_or_else(|failure| panic!("{failure}"));
    }
}
