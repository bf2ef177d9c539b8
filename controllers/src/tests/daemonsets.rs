//! The DaemonSet controller with an API server.

mod crashes;
mod failures;
mod history;
mod nodes;
mod progress;
mod updates;

use serde_json::{Value, json};

use super::world::{World, path, pod_path};
use crate::ControllerOptions;

const NAME: &str = "daemonset-controller";
const REVISIONS: &str = "/apis/apps/v1/controllerrevisions";
const POST_POD: &str = "POST /api/v1/namespaces/shop/pods";
const POST_REVISION: &str = "POST /apis/apps/v1/namespaces/shop/controllerrevisions";
const PUT_STATUS: &str = "PUT /apis/apps/v1/namespaces/shop/daemonsets/agent/status";
const HASH: &str = "controller-revision-hash";

fn agent() -> String {
    path("apis/apps/v1", "daemonsets", "agent")
}

fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

fn revision_path(name: &str) -> String {
    path("apis/apps/v1", "controllerrevisions", name)
}

/// Returns a DaemonSet with an update strategy.
fn daemon_set(strategy: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "annotations": { "note": "copied" } },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "updateStrategy": strategy,
            "template": {
                "metadata": { "labels": { "app": "agent" }, "annotations": { "note": "a<b & \u{e9}" } },
                "spec": { "containers": [{ "name": "main", "image": "agent:1" }] },
            },
        },
    })
}

fn rolling(unavailable: u32, surge: u32) -> Value {
    json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": unavailable, "maxSurge": surge } })
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn hash(object: &Value) -> &str {
    object["metadata"]["labels"][HASH].as_str().unwrap_or_default()
}

fn is_being_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    !is_being_deleted(pod) && conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Returns the node for which a pod was created.
fn target(pod: &Value) -> &str {
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    text(pod, &format!("{terms}/0/matchFields/0/values/0"))
}

/// Returns a world with nodes, a DaemonSet and its controller.
async fn started(nodes: &[&str], set: Value) -> World {
    let mut world = World::new();
    nodes.iter().for_each(|node| world.add_node(node, json!({})));
    world.api.upsert(&agent(), set);
    world.start(NAME, &ControllerOptions::default()).await;
    world
}

/// Returns a world in which the pods of the DaemonSet are ready.
async fn settled(nodes: &[&str], set: Value) -> World {
    let world = started(nodes, set).await;
    world.operate(5).await;
    world.requests();
    world.events();
    world
}

impl World {
    fn add_node(&self, name: &str, labels: Value) {
        self.api.upsert(&node_path(name), json!({ "metadata": { "labels": labels } }));
        // The node is ready.
        self.api.upsert(&node_path(name), json!({ "spec": { "taints": null } }));
    }

    fn taint(&self, node: &str, effect: &str) {
        let taints = json!([{ "key": "dedicated", "effect": effect }]);
        self.api.upsert(&node_path(node), json!({ "spec": { "taints": taints } }));
    }

    fn agent(&self) -> Value {
        self.api.object(&agent()).expect("the DaemonSet")
    }

    fn change(&self, spec: Value) {
        self.api.upsert(&agent(), json!({ "spec": spec }));
    }

    fn set_agent_image(&self, image: &str) {
        let containers = json!([{ "name": "main", "image": image }]);
        self.change(json!({ "template": { "spec": { "containers": containers } } }));
    }

    /// Returns the number of retried syncs.
    fn retries(&self) -> u64 {
        self.queue_count("daemonset", "retries")
    }

    /// Returns numbers of the status: desired, current, misscheduled, ready, updated, available, unavailable.
    fn numbers(&self) -> [u64; 7] {
        let status = self.agent()["status"].clone();
        [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberMisscheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
        ]
        .map(|field| status[field].as_u64().unwrap_or_default())
    }

    /// Returns the revisions by number.
    fn revisions(&self) -> Vec<Value> {
        let mut revisions = self.api.all(REVISIONS);
        revisions.sort_by_key(|revision| revision["revision"].as_u64());
        revisions
    }

    /// Returns the numbers of the revisions with their images.
    fn images(&self) -> Vec<(u64, String)> {
        let image = |revision: &Value| {
            let image = text(revision, "/data/spec/template/spec/containers/0/image").to_owned();
            (revision["revision"].as_u64().unwrap_or_default(), image)
        };
        self.revisions().iter().map(image).collect()
    }

    /// Returns node and image of each pod that is not being deleted, by node.
    fn placed(&self) -> Vec<(String, String)> {
        let pods = self.pods();
        let remaining = pods.iter().filter(|pod| !is_being_deleted(pod));
        let mut placed: Vec<_> = remaining
            .map(|pod| (target(pod).to_owned(), text(pod, "/spec/containers/0/image").to_owned()))
            .collect();
        placed.sort();
        placed
    }

    /// Acts as the scheduler and the nodes for this number of seconds: starts pods, and removes pods that are being
    /// deleted.
    async fn operate(&self, seconds: usize) {
        for _ in 0..seconds {
            self.pass(1).await;
            for pod in self.pods() {
                let phase = text(&pod, "/status/phase").to_owned();
                if is_being_deleted(&pod) {
                    self.api.remove(&pod_path(name(&pod)));
                } else if !is_ready(&pod) && phase != "Failed" {
                    self.run_pod_on(name(&pod), target(&pod), true);
                }
            }
        }
        self.pass(1).await;
    }
}
