//! A controller with operations whose effects the runtime must prevent: writes of tasks that outlive their reconcile,
//! and dry runs.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use windlass_controller::{
    Context, Controller, Outcome, ReconcileError, Registration, RequestOptions, Setup, SetupError,
};
use windlass_object::{ObjectKey, Verb};
use windlass_testing::{Cluster, object};

/// End of the repeated reconciles.
const UNTIL: Duration = Duration::from_secs(120);

/// Reconciles ConfigMaps every two seconds. A task of each reconcile writes five seconds later.
struct Strays;

impl Controller for Strays {
    const NAME: &'static str = "strays";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Patch, Verb::Delete]);
        setup.primary::<ConfigMap>();
        Ok(Self)
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        if key.namespace() != Some("default") || !key.name().starts_with("web") {
            return Ok(Outcome::Done);
        }
        let trial = cx.with(RequestOptions::dry_run()).api::<ConfigMap>(key);
        trial.delete(key.name(), &DeleteParams::background()).await?;
        let (env, name, api) = (cx.env().clone(), key.name().to_owned(), cx.api::<ConfigMap>(key));
        drop(cx.env().spawn("stray", async move {
            env.sleep(Duration::from_secs(5)).await;
            let patch = Patch::Merge(json!({ "data": { "late": "yes" } }));
            drop(api.patch(&name, &PatchParams::default(), &patch).await);
        }));
        let goes_on = cx.env().now().since_origin() < UNTIL;
        Ok(if goes_on { Outcome::RequeueAfter(Duration::from_secs(2)) } else { Outcome::Done })
    }
}

/// Creates a ConfigMap for the controller.
pub(crate) async fn play(cluster: Cluster) {
    cluster.run([Registration::controller::<Strays>()]);
    cluster.create(&object::<ConfigMap>(json!({ "metadata": { "name": "web" } }))).await;
    cluster.advance(Duration::from_secs(120)).await;
}
