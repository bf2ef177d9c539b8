//! User scripts of the hunts: a few minutes of activity that can expose many defects.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use windlass_controller::Registration;
use windlass_env::Instant;
use windlass_simulation::User;
use windlass_simulation::fixtures::NAMESPACE;
use windlass_testing::nodes::NodeOptions;
use windlass_testing::{Cluster, Simulation};

/// Start of the first burst of rejections: all processes run by then.
pub(crate) const FIRST_BURST: Duration = Duration::from_secs(30);
/// Interval between two bursts.
pub(crate) const BURST_INTERVAL: Duration = Duration::from_secs(15);
/// Number of bursts.
pub(crate) const BURSTS: u32 = 16;

/// One of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Script {
    /// A ReplicaSet behind a Service grows and shrinks, and loses pods by deletion and by a changed label.
    Busy,
    /// The same without a Service.
    Alone,
    /// Pods are ready, briefly not ready, and ready again.
    Flicker,
    /// A ReplicaSet is deleted, and a new one of the same name adopts its pods.
    Succession,
    /// The user makes a change during each burst of rejections.
    Bursts,
}

impl Script {
    pub(crate) async fn play(self, cluster: Cluster, controllers: Vec<Registration>) {
        let user = User::of(&cluster);
        cluster.run(controllers);
        cluster.run_nodes(&NodeOptions::default());
        user.namespace().await;
        if !matches!(self, Script::Alone) {
            user.service("web", json!({ "app": "web" })).await;
        }
        match self {
            Script::Busy => {
                busy(&cluster, &user).await;
                user.addresses("web", 4).await;
            }
            Script::Alone => busy(&cluster, &user).await,
            Script::Flicker => flicker(&cluster, &user).await,
            Script::Succession => succession(&cluster, &user).await,
            Script::Bursts => bursts(&cluster, &user).await,
        }
    }

    /// Sets the convergence time.
    pub(crate) fn tuned(self, simulation: Simulation) -> Simulation {
        match self {
            // No key fails for more than a few minutes, and a backoff is no longer than the failing time before it.
            Script::Busy | Script::Alone | Script::Flicker | Script::Succession => {
                simulation.convergence_timeout(Duration::from_secs(20 * 60))
            }
            // Recovery from faults of one second takes about that time.
            Script::Bursts => simulation.convergence_timeout(Duration::from_secs(60)),
        }
    }
}

async fn busy(cluster: &Cluster, user: &User) {
    let pause = Duration::from_secs(20);
    user.replica_set("web", "web", 3).await;
    cluster.advance(pause).await;
    for wanted in [5, 2, 4] {
        user.scale("web", wanted).await;
        cluster.advance(pause).await;
    }
    user.ready("web", 4).await;
    for _ in 0..2 {
        let pod = user.ready_pods(&cluster.snapshot(), "web").remove(0);
        user.delete::<Pod>(&pod).await;
        cluster.advance(pause).await;
        user.ready("web", 4).await;
    }
    user.relabel_one("web", "set", "stray").await;
    cluster.advance(pause).await;
    user.scale("web", 3).await;
    user.ready("web", 3).await;
}

async fn flicker(cluster: &Cluster, user: &User) {
    let sets = ["north", "east", "south", "west"];
    for set in sets {
        user.replica_set(set, "web", 2).await;
    }
    for set in sets {
        user.ready(set, 2).await;
    }
    for set in sets {
        cluster.advance(Duration::from_secs(20)).await;
        let pod = user.ready_pods(&cluster.snapshot(), set).remove(0);
        set_ready(cluster, &pod, "False").await;
        cluster.advance(Duration::from_millis(500)).await;
        set_ready(cluster, &pod, "True").await;
    }
    user.addresses("web", 8).await;
}

async fn succession(cluster: &Cluster, user: &User) {
    user.replica_set("web", "web", 2).await;
    user.ready("web", 2).await;
    for _ in 0..3 {
        user.scale("web", 0).await;
        user.ready("web", 0).await;
        user.delete::<ReplicaSet>("web").await;
        cluster.advance(Duration::from_secs(1)).await;
        for _ in 0..2 {
            orphan(cluster).await;
        }
        cluster.advance(Duration::from_secs(2)).await;
        user.replica_set("web", "web", 2).await;
        user.ready("web", 2).await;
        cluster.advance(Duration::from_secs(20)).await;
    }
    user.addresses("web", 2).await;
}

async fn bursts(cluster: &Cluster, user: &User) {
    user.replica_set("web", "web", 2).await;
    for burst in 0..BURSTS {
        let begins = Instant::ORIGIN + FIRST_BURST + BURST_INTERVAL * burst;
        cluster.env().sleep_until(begins).await;
        let wanted = if burst % 2 == 0 { 4 } else { 3 };
        user.scale("web", wanted).await;
    }
    user.scale("web", 5).await;
    user.ready("web", 5).await;
    user.addresses("web", 5).await;
}

/// Creates a pod like those of the ReplicaSet `web`, but without an owner.
async fn orphan(cluster: &Cluster) {
    let labels = json!({ "app": "web", "set": "web" });
    let container = json!({
        "name": "main", "image": "example/shop", "ports": [{ "containerPort": 8080, "protocol": "TCP" }],
    });
    let pod = json!({
        "metadata": { "generateName": "web-", "namespace": NAMESPACE, "labels": labels },
        "spec": { "containers": [container] },
    });
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    cluster.create(&pod).await;
}

async fn set_ready(cluster: &Cluster, pod: &str, status: &str) {
    let api: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let mut pod = api.get(pod).await.expect("the pod is there");
    let conditions = pod.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten());
    conditions.filter(|it| it.type_ == "Ready").for_each(|it| status.clone_into(&mut it.status));
    let name = pod.metadata.name.clone().unwrap_or_default();
    api.replace_status(&name, &PostParams::default(), &pod).await.expect("no other client writes its status");
}
