//! The StatefulSet controller with an API server.

mod claims;
mod failures;
mod pods;
mod rollouts;
mod updates;

use serde_json::{Value, json};
use windlass_api_server::faults::FaultAction;

use super::world::{World, path, pod_path, uid};
use crate::ControllerOptions;

const REVISIONS: &str = "/apis/apps/v1/controllerrevisions";
const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
const POST_POD: &str = "POST /api/v1/namespaces/shop/pods";
const POST_CLAIM: &str = "POST /api/v1/namespaces/shop/persistentvolumeclaims";
const POST_REVISION: &str = "POST /apis/apps/v1/namespaces/shop/controllerrevisions";
const HASH: &str = "controller-revision-hash";

fn web() -> String {
    path("apis/apps/v1", "statefulsets", "web")
}

fn claim_path(name: &str) -> String {
    path("api/v1", "persistentvolumeclaims", name)
}

fn stateful_set(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "annotations": { "note": "copied" } },
        "spec": {
            "replicas": replicas, "serviceName": "peers", "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "web:1" }] },
            },
        },
    })
}

fn with(replicas: u32, fields: Value) -> Value {
    let mut set = stateful_set(replicas);
    let fields = fields.as_object().expect("fields").clone();
    set["spec"].as_object_mut().expect("a spec").extend(fields);
    set
}

fn with_claims(replicas: u32, retention: Value) -> Value {
    let template = json!({
        "metadata": { "name": "data", "labels": { "tier": "db" } },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let mut set = with(replicas, json!({ "volumeClaimTemplates": [template] }));
    if !retention.is_null() {
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = retention;
    }
    set
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}

fn is_being_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn owners(object: &Value) -> Vec<(&str, &str)> {
    let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    references.map(|it| (it["kind"].as_str().unwrap_or(""), it["name"].as_str().unwrap_or(""))).collect()
}

async fn started(set: Value) -> World {
    let mut world = World::new();
    world.api.upsert(&web(), set);
    world.start("statefulset-controller", &ControllerOptions::default()).await;
    world.pass(1).await;
    world
}

/// Returns a world with a StatefulSet whose pods are ready.
async fn settled(set: Value) -> World {
    let world = started(set).await;
    world.run_all(15).await;
    world.requests();
    world.events();
    world
}

impl World {
    fn set(&self) -> Value {
        self.api.object(&web()).expect("the StatefulSet")
    }

    fn resize(&self, replicas: u32) {
        self.api.upsert(&web(), json!({ "spec": { "replicas": replicas } }));
    }

    fn use_image(&self, image: &str) {
        let containers = json!([{ "name": "main", "image": image }]);
        self.api.upsert(&web(), json!({ "spec": { "template": { "spec": { "containers": containers } } } }));
    }

    fn pod(&self, name: &str) -> Value {
        self.api.object(&pod_path(name)).expect("the pod")
    }

    fn claim(&self, name: &str) -> Value {
        self.api.object(&claim_path(name)).expect("the claim")
    }

    /// Returns the revisions as numbers and names, by number.
    fn numbered_revisions(&self) -> Vec<(u64, String)> {
        let revisions = self.api.all(REVISIONS);
        let mut revisions: Vec<_> = revisions
            .iter()
            .map(|it| (it["revision"].as_u64().expect("a number"), name(it).to_owned()))
            .collect();
        revisions.sort();
        revisions
    }

    /// Returns name and image of each pod.
    fn images_by_name(&self) -> Vec<(String, String)> {
        let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap_or("").to_owned();
        self.pods().iter().map(|pod| (name(pod).to_owned(), image(pod))).collect()
    }

    /// Acts as the nodes: starts a pod, or removes a pod that is being deleted.
    fn act_as_nodes(&self) {
        for pod in self.pods() {
            if is_being_deleted(&pod) {
                self.api.remove(&pod_path(name(&pod)));
            } else if !is_ready(&pod) {
                self.run_pod(name(&pod), true);
            }
        }
    }

    /// Acts as the nodes each second.
    async fn run_all(&self, seconds: usize) {
        for _ in 0..seconds {
            self.act_as_nodes();
            self.pass(1).await;
        }
    }

    fn notes(&self, reason: &str) -> Vec<String> {
        self.events().into_iter().filter(|(of, _)| of == reason).map(|(_, note)| note).collect()
    }
}

fn status(world: &World, fields: [&str; 5]) -> [u64; 5] {
    let set = world.set();
    fields.map(|field| set["status"][field].as_u64().unwrap_or_default())
}

const COUNTS: [&str; 5] =
    ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"];
