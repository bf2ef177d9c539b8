//! The scripts of the simulations: sequences of changes by a user.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Endpoints, Namespace, Pod, Service};
use serde_json::{Value, json};
use windlass_testing::nodes::NodeOptions;
use windlass_testing::{Cluster, Snapshot};

use crate::User;
use crate::fixtures::{self, NAMESPACE, POD_NAME, object, workloads};

/// Starts the controllers of workloads and the nodes.
pub async fn start(cluster: &Cluster) -> User {
    let user = User::of(cluster);
    cluster.run(workloads());
    cluster.run_nodes(&NodeOptions::default());
    user.namespace().await;
    user
}

/// Creates namespaces, and pods for every class of the collector. Waits until each namespace has its ServiceAccount and
/// root CA, each node has a TTL, and the pods are deleted. Then deletes or changes the objects of the controllers, and
/// waits until they are repaired.
///
/// # Panics
/// Panics if an object cannot be created.
pub async fn housekeeping(cluster: Cluster) {
    cluster.run(fixtures::housekeeping());
    cluster.run_nodes(&NodeOptions::default());
    User::of(&cluster).namespace().await;
    let blue: Namespace = object(json!({ "metadata": { "name": "blue" } }));
    cluster.create(&blue).await;
    fixtures::collectable_pods(&cluster).await;
    let is_equipped = |world: &Snapshot| {
        let namespaces = world.count("Namespace");
        world.count("ServiceAccount") == namespaces && world.count("ConfigMap") == namespaces
    };
    cluster.eventually("each namespace has its ServiceAccount and root CA", is_equipped).await;
    let has_ttl = |node: &Value| node["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] == "0";
    let have_ttl = |world: &Snapshot| world.count("Node") > 0 && world.all("Node").all(has_ttl);
    cluster.eventually("each node has a TTL", have_ttl).await;
    let are_collected = |world: &Snapshot| {
        let deleted = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
        world.count("Pod") == 2 && world.all("Pod").filter(|pod| deleted(pod)).count() == 1
    };
    cluster.eventually("the pods are deleted, except the last that terminated", are_collected).await;
    repair(&cluster).await;
}

/// Damages one object of each controller, and waits until it is repaired.
async fn repair(cluster: &Cluster) {
    let account = |world: &Snapshot| {
        world.all("ServiceAccount").find(|it| it["metadata"]["namespace"] == "blue").cloned()
    };
    let uid = |world: &Snapshot| account(world).map(|account| account["metadata"]["uid"].clone());
    let before = uid(&cluster.snapshot());
    fixtures::damage(cluster).await;
    let is_new = |world: &Snapshot| uid(world).is_some_and(|uid| Some(uid) != before);
    cluster.eventually("there is a new ServiceAccount", is_new).await;
    let root_ca = |map: &Value| map["data"]["ca.crt"] == fixtures::ROOT_CA && map["data"]["more"].is_null();
    cluster.eventually("the root CA is restored", |world| world.all("ConfigMap").all(root_ca)).await;
    let has_ttl = |node: &Value| node["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] == "0";
    cluster.eventually("the TTL is restored", |world| world.all("Node").all(has_ttl)).await;
    cluster.eventually("the pod without finalizer is gone", |world| world.count("Pod") == 1).await;
}

/// Creates a Service and a ReplicaSet, then scales the ReplicaSet up.
pub async fn scale_up(cluster: Cluster) {
    let user = start(&cluster).await;
    user.service("web", json!({ "app": "web" })).await;
    user.replica_set("web", "web", 2).await;
    user.ready("web", 2).await;
    user.scale("web", 5).await;
    user.ready("web", 5).await;
    user.addresses("web", 5).await;
}

/// Replaces one set of pods by another behind a Service, and then selects only the new pods. A pod that loses its label
/// is released and replaced.
pub async fn rollout(cluster: Cluster) {
    let user = start(&cluster).await;
    user.service("web", json!({ "app": "web" })).await;
    user.replica_set("blue", "web", 3).await;
    user.replica_set("green", "web", 0).await;
    user.addresses("web", 3).await;
    for step in 1..=3_usize {
        let up = i32::try_from(step).unwrap_or_default();
        user.scale("green", up).await;
        user.ready("green", step).await;
        user.scale("blue", 3 - up).await;
        user.ready("blue", 3 - step).await;
    }
    user.select("web", json!({ "set": "green" })).await;
    user.addresses("web", 3).await;
    user.relabel_one("green", "set", "stray").await;
    user.ready("green", 3).await;
    user.addresses("web", 3).await;
}

/// Rolls out and scales up a Deployment in one request, then rolls back and scales down in one request.
pub async fn deployment(cluster: Cluster) {
    let user = start(&cluster).await;
    user.service("web", json!({ "app": "web" })).await;
    user.deployment("web", 1).await;
    user.rolled_out("web").await;
    user.roll_out("web", "example/shop:2", 2).await;
    user.rolled_out("web").await;
    user.roll_out("web", "example/shop", 1).await;
    user.rolled_out("web").await;
    user.addresses("web", 1).await;
}

/// Rolls out and scales up a StatefulSet in one request, then rolls back and scales down in one request.
pub async fn stateful_set(cluster: Cluster) {
    let user = start(&cluster).await;
    user.stateful_set("db", 2).await;
    user.rolled_out_in_order("db").await;
    user.roll_out_in_order("db", "example/shop:2", 3).await;
    user.rolled_out_in_order("db").await;
    user.roll_out_in_order("db", "example/shop", 1).await;
    user.rolled_out_in_order("db").await;
}

/// Rolls out a DaemonSet on three nodes, then rolls back.
pub async fn daemon_set(cluster: Cluster) {
    let user = start(&cluster).await;
    user.daemon_set("agent").await;
    user.rolled_out_on_nodes("agent", 3).await;
    user.roll_out_on_nodes("agent", "example/shop:2").await;
    user.rolled_out_on_nodes("agent", 3).await;
    user.roll_out_on_nodes("agent", "example/shop").await;
    user.rolled_out_on_nodes("agent", 3).await;
}

/// Rolls out a Deployment and a StatefulSet that keep no old revision.
pub async fn no_histories(cluster: Cluster) {
    let user = start(&cluster).await;
    user.deployment("web", 1).await;
    user.stateful_set("db", 1).await;
    user.keep_no_old_revisions().await;
    for image in ["example/shop", "example/shop:2"] {
        user.roll_out("web", image, 1).await;
        user.rolled_out("web").await;
        user.roll_out_in_order("db", image, 1).await;
        user.rolled_out_in_order("db").await;
    }
    let is_limited =
        |world: &Snapshot| world.count("ReplicaSet") == 1 && world.count("ControllerRevision") == 1;
    cluster.eventually("no workload has an old revision", is_limited).await;
}

/// Rolls out a Deployment, then rolls it back by its annotation.
pub async fn rollback(cluster: Cluster) {
    let user = start(&cluster).await;
    user.deployment("web", 1).await;
    user.rolled_out("web").await;
    user.roll_out("web", "example/shop:2", 1).await;
    user.rolled_out("web").await;
    user.roll_back("web").await;
    let is_back =
        |world: &Snapshot| world.get::<Deployment>("web").is_some_and(|it| image(&it) == "example/shop");
    cluster.eventually("the Deployment has the template before", is_back).await;
    user.rolled_out("web").await;
}

fn image(deployment: &Deployment) -> String {
    json!(deployment)["spec"]["template"]["spec"]["containers"][0]["image"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Lets a ReplicaSet adopt a pod, and a Deployment adopt the ReplicaSet. A label that changes then releases the
/// ReplicaSet, whose name the next one would have.
pub async fn owners(cluster: Cluster) {
    let user = start(&cluster).await;
    let template = json!(fixtures::replica_set("web", "web", 1).spec)["template"].take();
    let pod: Pod = object(json!({
        "metadata": { "name": "orphan", "namespace": NAMESPACE, "labels": template["metadata"]["labels"] },
        "spec": template["spec"],
    }));
    cluster.create(&pod).await;
    user.replica_set("web", "web", 1).await;
    user.ready("web", 1).await;
    user.deployment("web", 1).await;
    user.rolled_out("web").await;
    user.roll_out("web", "example/shop:2", 1).await;
    user.rolled_out("web").await;
    user.release_new_replica_set("web").await;
    let collides = |world: &Snapshot| {
        let count = |it: &Deployment| it.status.as_ref().and_then(|status| status.collision_count);
        world.get::<Deployment>("web").is_some_and(|it| count(&it) == Some(1))
    };
    cluster.eventually("the name collides", collides).await;
    cluster.eventually("there is another ReplicaSet", |world| world.count("ReplicaSet") == 4).await;
    user.rolled_out("web").await;
    // After a crash at the creation of a ReplicaSet, a condition names the one before until the next rollout, as
    // upstream.
    user.roll_out("web", "example/shop:3", 1).await;
    user.rolled_out("web").await;
}

/// Scales a StatefulSet down whose claims go with their pods, and changes the label that identifies a pod.
pub async fn claims(cluster: Cluster) {
    let user = start(&cluster).await;
    user.stateful_set("db", 3).await;
    user.delete_claims_with_pods("db").await;
    user.rolled_out_in_order("db").await;
    user.roll_out_in_order("db", "example/shop", 2).await;
    user.rolled_out_in_order("db").await;
    let owned = |world: &Snapshot| {
        let owners = |claim: &Value| claim["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
        world.all("PersistentVolumeClaim").filter(|claim| owners(claim) > 0).count() >= 1
    };
    cluster.eventually("the claim of the deleted pod has its pod as owner", owned).await;
    user.rename("db-0").await;
    let is_identified = |world: &Snapshot| {
        let pod = world.all("Pod").find(|pod| pod["metadata"]["name"] == "db-0");
        pod.is_some_and(|pod| pod["metadata"]["labels"][POD_NAME] == "db-0")
    };
    cluster.eventually("the pod has its label again", is_identified).await;
}

/// Scales a ReplicaSet down to zero in two steps.
pub async fn scale_down(cluster: Cluster) {
    let user = start(&cluster).await;
    user.service("web", json!({ "app": "web" })).await;
    user.replica_set("web", "web", 5).await;
    user.ready("web", 5).await;
    user.scale("web", 2).await;
    user.ready("web", 2).await;
    user.scale("web", 0).await;
    user.ready("web", 0).await;
    user.addresses("web", 0).await;
}

/// Deletes a Service and its ReplicaSet. Waits until the Endpoints of the Service are deleted.
pub async fn delete(cluster: Cluster) {
    let user = start(&cluster).await;
    user.service("web", json!({ "app": "web" })).await;
    user.replica_set("web", "web", 3).await;
    user.addresses("web", 3).await;
    user.scale("web", 0).await;
    user.ready("web", 0).await;
    user.delete::<ReplicaSet>("web").await;
    user.delete::<Service>("web").await;
    let gone = |world: &windlass_testing::Snapshot| world.get::<Endpoints>("web").is_none();
    cluster.eventually("the Endpoints are deleted", gone).await;
}

/// Scales, selects, relabels and deletes the objects of two ReplicaSets, with pauses between the changes.
pub async fn everything(cluster: Cluster) {
    let user = start(&cluster).await;
    user.service("web", json!({ "app": "web" })).await;
    user.service("all", json!({})).await;
    user.replica_set("blue", "web", 3).await;
    user.replica_set("green", "web", 0).await;
    cluster.advance(std::time::Duration::from_secs(120)).await;
    user.scale("green", 4).await;
    cluster.advance(std::time::Duration::from_secs(60)).await;
    user.scale("blue", 1).await;
    cluster.advance(std::time::Duration::from_secs(120)).await;
    user.ready("green", 4).await;
    user.select("web", json!({ "set": "green" })).await;
    user.relabel_one("green", "set", "stray").await;
    cluster.advance(std::time::Duration::from_secs(60)).await;
    user.scale("blue", 0).await;
    user.ready("blue", 0).await;
    user.delete::<ReplicaSet>("blue").await;
    user.ready("green", 4).await;
    user.addresses("web", 4).await;
}

/// Returns a script of a user that makes a change every hour and finally restores the initial state.
pub fn hours(hours: u64) -> impl AsyncFn(Cluster) {
    async move |cluster: Cluster| {
        let user = start(&cluster).await;
        user.service("web", json!({ "app": "web" })).await;
        user.replica_set("web", "web", 3).await;
        for hour in 0..hours {
            let wanted = [5, 1, 4, 2, 0, 3][usize::try_from(hour % 6).unwrap_or_default()];
            user.scale("web", wanted).await;
            cluster.advance(std::time::Duration::from_secs(3600)).await;
        }
        user.scale("web", 3).await;
        user.ready("web", 3).await;
        user.addresses("web", 3).await;
    }
}
