//! The StatefulSet controller with an API server.

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

fn is_leaving(object: &Value) -> bool {
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
    fn revisions(&self) -> Vec<(u64, String)> {
        let revisions = self.api.all(REVISIONS);
        let mut revisions: Vec<_> = revisions
            .iter()
            .map(|it| (it["revision"].as_u64().expect("a number"), name(it).to_owned()))
            .collect();
        revisions.sort();
        revisions
    }

    /// Returns name and image of each pod.
    fn images(&self) -> Vec<(String, String)> {
        let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap_or("").to_owned();
        self.pods().iter().map(|pod| (name(pod).to_owned(), image(pod))).collect()
    }

    /// Acts as the nodes: starts a pod, or removes a pod that is being deleted.
    fn act(&self) {
        for pod in self.pods() {
            if is_leaving(&pod) {
                self.api.remove(&pod_path(name(&pod)));
            } else if !is_ready(&pod) {
                self.run_pod(name(&pod), true);
            }
        }
    }

    async fn run_all(&self, seconds: usize) {
        for _ in 0..seconds {
            self.act();
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

#[tokio::test(start_paused = true)]
async fn pods_are_created_one_by_one_in_order() {
    let world = started(stateful_set(3)).await;
    for expected in [["web-0"].as_slice(), &["web-0", "web-1"], &["web-0", "web-1", "web-2"]] {
        assert_eq!(world.pod_names(), expected);
        world.pass(30).await;
        assert_eq!(world.pod_names(), expected, "the next pod waits for the last");
        world.run_all(1).await;
    }
    world.pass(1).await;
    assert_eq!(world.pod_names().len(), 3);
    assert_eq!(status(&world, COUNTS), [3, 3, 3, 3, 3]);
    let set = world.set();
    assert_eq!(set["status"]["observedGeneration"], set["metadata"]["generation"]);
    assert_eq!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    assert_eq!(set["status"]["collisionCount"], 0);
    let note = |pod| format!("Create Pod {pod} in StatefulSet web successful");
    assert_eq!(world.notes("SuccessfulCreate"), ["web-0", "web-1", "web-2"].map(note));
}

#[tokio::test(start_paused = true)]
async fn pod_has_the_identity_of_its_ordinal() {
    let world = settled(with(1, json!({ "ordinals": { "start": 5 } }))).await;
    let (set, pod) = (world.set(), world.pod("web-5"));
    let [(1, revision)] = &world.revisions()[..] else { panic!("one revision") };
    let labels = json!({
        "app": "web", "statefulset.kubernetes.io/pod-name": "web-5", "apps.kubernetes.io/pod-index": "5",
        HASH: revision,
    });
    assert_eq!(pod["metadata"]["labels"], labels);
    assert_eq!(pod["metadata"]["generateName"], "web-");
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-5"), &json!("peers")));
    assert_eq!(owners(&pod), [("StatefulSet", "web")]);
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], uid(&set));
}

#[tokio::test(start_paused = true)]
async fn revision_records_the_template_and_its_hash() {
    let world = settled(stateful_set(1)).await;
    let [revision] = &world.api.all(REVISIONS)[..] else { panic!("one revision") };
    let hash = revision["metadata"]["labels"]["controller.kubernetes.io/hash"].as_str().expect("a hash");
    assert_eq!(name(revision), format!("web-{hash}"));
    assert_eq!(revision["metadata"]["labels"]["app"], "web");
    assert_eq!(revision["metadata"]["annotations"], json!({ "note": "copied" }));
    assert_eq!(owners(revision), [("StatefulSet", "web")]);
    let mut template = world.set()["spec"]["template"].clone();
    template["$patch"] = json!("replace");
    assert_eq!(revision["data"], json!({ "spec": { "template": template } }));
    assert_eq!(world.set()["status"]["updateRevision"], name(revision));
}

#[tokio::test(start_paused = true)]
async fn settled_set_causes_no_requests() {
    let world = settled(with_claims(2, Value::Null)).await;
    world.api.upsert(&web(), json!({ "metadata": { "labels": { "touched": "yes" } } }));
    world.pass(600).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn pods_are_deleted_one_by_one_in_reverse_order() {
    let world = settled(stateful_set(3)).await;
    world.resize(1);
    world.pass(5).await;
    let leaving = || {
        let pods = world.pods();
        pods.iter().filter(|pod| is_leaving(pod)).map(|pod| name(pod).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(leaving(), ["web-2"], "web-1 waits for the end of web-2");
    world.run_all(1).await;
    assert_eq!(leaving(), ["web-1"]);
    world.run_all(2).await;
    assert_eq!(world.pod_names(), ["web-0"]);
    let note = |pod| format!("Delete Pod {pod} in StatefulSet web successful");
    assert_eq!(world.notes("SuccessfulDelete"), ["web-2", "web-1"].map(note));
    assert_eq!(status(&world, COUNTS), [1, 1, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn parallel_set_creates_and_deletes_all_pods_at_the_same_time() {
    let world = started(with(5, json!({ "podManagementPolicy": "Parallel" }))).await;
    assert_eq!(world.pod_names().len(), 5);
    world.run_all(2).await;
    world.resize(1);
    world.pass(1).await;
    assert_eq!(world.pods().iter().filter(|pod| is_leaving(pod)).count(), 4);
    world.run_all(2).await;
    assert_eq!(world.pod_names(), ["web-0"]);
}

#[tokio::test(start_paused = true)]
async fn rolling_update_replaces_the_highest_ordinal_first() {
    let world = settled(stateful_set(3)).await;
    let old = world.revisions()[0].1.clone();
    world.use_image("web:2");
    world.pass(5).await;
    assert!(is_leaving(&world.pod("web-2")), "web-2 is replaced first");
    assert!(!is_leaving(&world.pod("web-1")));
    let set = world.set();
    assert_eq!(set["status"]["currentRevision"], old.as_str());
    assert_ne!(set["status"]["updateRevision"], old.as_str());
    assert_eq!(set["status"]["currentReplicas"], 2);
    world.run_all(1).await;
    world.pass(30).await;
    assert!(!is_leaving(&world.pod("web-1")), "web-1 waits for the new web-2");
    world.run_all(10).await;
    assert!(world.images().iter().all(|(_, image)| image == "web:2"), "{:?}", world.images());
    let set = world.set();
    assert_eq!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    assert_eq!(status(&world, COUNTS), [3, 3, 3, 3, 3]);
    let order: Vec<_> = world.notes("SuccessfulDelete");
    assert_eq!(order.len(), 3);
    assert!(order[0].contains("web-2") && order[2].contains("web-0"), "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_below_the_partition_keep_the_current_revision() {
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } });
    let world = settled(with(3, json!({ "updateStrategy": strategy }))).await;
    let old = world.revisions()[0].1.clone();
    world.use_image("web:2");
    world.run_all(10).await;
    let images: Vec<_> = world.images().into_iter().map(|(_, image)| image).collect();
    assert_eq!(images, ["web:1", "web:1", "web:2"]);
    assert_eq!(status(&world, COUNTS), [3, 3, 3, 2, 1]);
    world.api.remove(&pod_path("web-0"));
    world.run_all(5).await;
    assert_eq!(world.pod("web-0")["metadata"]["labels"][HASH], old.as_str());
    assert_eq!(world.images()[0].1, "web:1", "a recreated pod below the partition has the old template");
}

#[tokio::test(start_paused = true)]
async fn on_delete_set_replaces_only_deleted_pods() {
    let world = settled(with(2, json!({ "updateStrategy": { "type": "OnDelete" } }))).await;
    world.use_image("web:2");
    world.run_all(5).await;
    assert!(world.images().iter().all(|(_, image)| image == "web:1"));
    world.api.remove(&pod_path("web-0"));
    world.run_all(5).await;
    let images: Vec<_> = world.images().into_iter().map(|(_, image)| image).collect();
    assert_eq!(images, ["web:2", "web:1"]);
}

#[tokio::test(start_paused = true)]
async fn rollback_raises_the_number_of_the_old_revision() {
    let world = settled(stateful_set(1)).await;
    let first = world.revisions()[0].1.clone();
    world.use_image("web:2");
    world.run_all(5).await;
    world.use_image("web:1");
    world.run_all(5).await;
    let revisions = world.revisions();
    assert_eq!(revisions.len(), 2);
    assert_eq!(revisions[1], (3, first.clone()));
    assert_eq!(world.pod("web-0")["metadata"]["labels"][HASH], first);
}

#[tokio::test(start_paused = true)]
async fn old_revisions_are_deleted_beyond_the_limit() {
    let world = settled(with(1, json!({ "revisionHistoryLimit": 2 }))).await;
    for image in 2..=5 {
        world.use_image(&format!("web:{image}"));
        world.run_all(6).await;
    }
    let numbers: Vec<_> = world.revisions().into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [3, 4, 5], "two old revisions, and the revision in use");
}

#[tokio::test(start_paused = true)]
async fn revision_of_an_older_version_is_recognized() {
    let mut world = World::new();
    world.api.upsert(&web(), stateful_set(1));
    let set = world.set();
    let mut template = set["spec"]["template"].clone();
    template["$patch"] = json!("replace");
    template["metadata"]["creationTimestamp"] = Value::Null;
    template["spec"].as_object_mut().expect("a spec").remove("schedulerName");
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": uid(&set), "controller": true,
    });
    let old = json!({
        "metadata": { "labels": { "app": "web" }, "ownerReferences": [owner] }, "revision": 1,
        "data": { "spec": { "template": template } },
    });
    world.api.upsert(&path("apis/apps/v1", "controllerrevisions", "web-old"), old);
    world.start("statefulset-controller", &ControllerOptions::default()).await;
    world.run_all(5).await;
    assert_eq!(world.revisions(), [(1, "web-old".to_owned())]);
    assert_eq!(world.set()["status"]["updateRevision"], "web-old");
}

#[tokio::test(start_paused = true)]
async fn taken_name_of_a_revision_raises_the_collision_count() {
    let name = {
        let world = settled(stateful_set(1)).await;
        world.revisions()[0].1.clone()
    };
    let mut world = World::new();
    let other = json!({ "revision": 1, "data": { "spec": "other" } });
    world.api.upsert(&path("apis/apps/v1", "controllerrevisions", &name), other);
    world.api.upsert(&web(), stateful_set(1));
    world.start("statefulset-controller", &ControllerOptions::default()).await;
    world.run_all(5).await;
    let set = world.set();
    assert_eq!(set["status"]["collisionCount"], 1);
    assert_ne!(set["status"]["updateRevision"], name.as_str());
    assert_eq!(world.revisions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn orphaned_pod_and_revision_are_adopted() {
    let world = settled(stateful_set(1)).await;
    let revision = path("apis/apps/v1", "controllerrevisions", &world.revisions()[0].1);
    world.api.upsert(&pod_path("web-0"), json!({ "metadata": { "ownerReferences": null } }));
    world.api.upsert(&revision, json!({ "metadata": { "ownerReferences": null } }));
    world.pass(1).await;
    world.api.upsert(&web(), json!({ "metadata": { "labels": { "touched": "yes" } } }));
    world.pass(1).await;
    assert_eq!(owners(&world.pod("web-0")), [("StatefulSet", "web")]);
    assert_eq!(owners(&world.api.object(&revision).expect("a revision")), [("StatefulSet", "web")]);
}

#[tokio::test(start_paused = true)]
async fn pod_that_is_not_selected_or_not_a_member_is_released() {
    let world = settled(stateful_set(1)).await;
    world.api.upsert(&pod_path("web-0"), json!({ "metadata": { "labels": { "app": "other" } } }));
    world.pass(1).await;
    assert_eq!(owners(&world.pod("web-0")), []);
    assert_eq!(status(&world, COUNTS), [0, 0, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn failed_and_succeeded_pods_are_replaced() {
    for phase in ["Failed", "Succeeded"] {
        let world = settled(stateful_set(2)).await;
        let before = uid(&world.pod("web-0")).to_owned();
        world.api.upsert(&pod_path("web-0"), json!({ "status": { "phase": phase } }));
        world.pass(1).await;
        // The API server deletes a pod that has terminated immediately.
        assert_ne!(uid(&world.pod("web-0")), before, "{phase}");
        let (deletions, creations) = (world.requests(), world.events());
        assert_eq!(deletions.iter().filter(|it| it.starts_with("DELETE ")).count(), 1);
        assert!(creations.iter().any(|(reason, _)| reason == "SuccessfulCreate"));
        world.run_all(3).await;
        assert_eq!(status(&world, COUNTS), [2, 2, 2, 2, 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn missing_label_of_a_running_pod_is_restored() {
    let world = settled(stateful_set(1)).await;
    let label = "statefulset.kubernetes.io/pod-name";
    world.api.upsert(&pod_path("web-0"), json!({ "metadata": { "labels": { label: null } } }));
    world.pass(1).await;
    assert_eq!(world.pod("web-0")["metadata"]["labels"][label], "web-0");
    assert_eq!(world.notes("SuccessfulUpdate"), ["Update Pod web-0 in StatefulSet web successful"]);
}

#[tokio::test(start_paused = true)]
async fn claims_are_created_before_their_pod_and_kept() {
    let world = started(with_claims(1, Value::Null)).await;
    let requests = world.requests();
    let position = |request: &str| requests.iter().position(|it| it.starts_with(request));
    assert!(position(POST_CLAIM) < position(POST_POD), "{requests:?}");
    assert!(position(POST_CLAIM).is_some());
    let claim = world.claim("data-web-0");
    assert_eq!(claim["metadata"]["labels"], json!({ "tier": "db", "app": "web" }));
    assert_eq!(owners(&claim), []);
    let volume = json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data-web-0" } });
    assert_eq!(world.pod("web-0")["spec"]["volumes"][0], volume);
    let created = [
        "Create Claim data-web-0 Pod web-0 in StatefulSet web success",
        "Create Pod web-0 in StatefulSet web successful",
    ];
    assert_eq!(world.notes("SuccessfulCreate"), created);
    world.run_all(3).await;
    world.resize(0);
    world.run_all(3).await;
    assert_eq!(world.pod_names(), Vec::<String>::new());
    assert_eq!(world.api.all(CLAIMS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn claims_have_owners_by_retention_policy() {
    let cases = [
        (json!({ "whenDeleted": "Retain", "whenScaled": "Retain" }), vec![], vec![]),
        (
            json!({ "whenDeleted": "Delete", "whenScaled": "Retain" }),
            vec![("StatefulSet", "web")],
            vec![("StatefulSet", "web")],
        ),
        (json!({ "whenDeleted": "Retain", "whenScaled": "Delete" }), vec![], vec![("Pod", "web-1")]),
        (
            json!({ "whenDeleted": "Delete", "whenScaled": "Delete" }),
            vec![("StatefulSet", "web")],
            vec![("Pod", "web-1")],
        ),
    ];
    for (policy, while_running, after_scaling) in cases {
        let world = settled(with_claims(2, policy.clone())).await;
        assert_eq!(owners(&world.claim("data-web-1")), while_running, "{policy}");
        world.resize(1);
        world.run_all(4).await;
        assert_eq!(world.pod_names(), ["web-0"]);
        assert_eq!(owners(&world.claim("data-web-1")), after_scaling, "{policy}");
        assert_eq!(owners(&world.claim("data-web-0")), while_running, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn claim_of_a_deleted_pod_blocks_the_new_pod() {
    let policy = json!({ "whenDeleted": "Retain", "whenScaled": "Delete" });
    let world = settled(with_claims(2, policy)).await;
    world.resize(1);
    world.run_all(4).await;
    world.resize(2);
    world.run_all(4).await;
    assert_eq!(world.pod_names(), ["web-0"], "the claim belongs to the deleted pod");
    world.api.upsert(&claim_path("data-web-1"), json!({ "metadata": { "finalizers": null } }));
    world.api.remove(&claim_path("data-web-1"));
    world.api.upsert(&web(), json!({ "metadata": { "labels": { "touched": "yes" } } }));
    world.run_all(4).await;
    assert_eq!(world.pod_names(), ["web-0", "web-1"]);
}

#[tokio::test(start_paused = true)]
async fn rejected_claim_is_reported_and_retried() {
    let mut world = World::new();
    world.api.upsert(&web(), with_claims(1, Value::Null));
    world.refuse(POST_CLAIM, 1, FaultAction::QuotaExceeded);
    world.start("statefulset-controller", &ControllerOptions::default()).await;
    world.pass(5).await;
    let failed = world.notes("FailedCreate");
    assert_eq!(failed.len(), 2, "{failed:?}");
    let claim = "Create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: ";
    let pod = "Create Pod web-0 in StatefulSet web failed error: failed to create PVC data-web-0: ";
    assert!(failed[0].starts_with(claim) && failed[1].starts_with(pod), "{failed:?}");
    assert_eq!(world.pod_names(), ["web-0"]);
}

#[tokio::test(start_paused = true)]
async fn rejected_writes_are_retried_until_they_succeed() {
    let status = format!("PUT {}/status", web());
    for request in [POST_POD, POST_REVISION, &status] {
        let mut world = World::new();
        world.api.upsert(&web(), stateful_set(2));
        world.refuse(request, 3, FaultAction::Forbidden);
        world.start("statefulset-controller", &ControllerOptions::default()).await;
        world.run_all(10).await;
        assert_eq!(self::status(&world, COUNTS), [2, 2, 2, 2, 2], "{request}");
        assert_eq!(world.revisions().len(), 1, "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_deletion_is_reported_and_retried() {
    let world = settled(stateful_set(2)).await;
    world.refuse("DELETE ", 1, FaultAction::Forbidden);
    world.resize(1);
    world.pass(5).await;
    let failed = world.notes("FailedDelete");
    assert!(failed[0].starts_with("Delete Pod web-1 in StatefulSet web failed error: "), "{failed:?}");
    world.run_all(2).await;
    assert_eq!(world.pod_names(), ["web-0"]);
}

#[tokio::test(start_paused = true)]
async fn conflict_of_the_status_is_resolved_in_the_same_sync() {
    let world = settled(stateful_set(1)).await;
    world.refuse(&format!("PUT {}/status", web()), 1, FaultAction::Conflict);
    world.api.upsert(&pod_path("web-0"), json!({ "status": { "conditions": [] } }));
    world.pass(1).await;
    let requests = world.requests();
    let writes = requests.iter().filter(|it| it.starts_with("PUT ")).count();
    assert_eq!((writes, status(&world, COUNTS)), (2, [1, 0, 0, 1, 1]), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn pod_becomes_available_after_the_minimum_ready_time() {
    let world = started(with(2, json!({ "minReadySeconds": 10 }))).await;
    world.run_all(1).await;
    world.pass(5).await;
    assert_eq!((status(&world, COUNTS), world.pod_names().len()), ([1, 1, 0, 1, 1], 1));
    world.pass(6).await;
    assert_eq!(world.pod_names().len(), 2, "web-1 waits until web-0 is available");
    world.run_all(12).await;
    assert_eq!(status(&world, COUNTS), [2, 2, 2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn stale_caches_cause_no_second_pod() {
    let world = settled(stateful_set(2)).await;
    world.lag();
    world.use_image("web:2");
    world.run_all(80).await;
    let requests = world.requests();
    let count = |request: &str| requests.iter().filter(|it| it.starts_with(request)).count();
    assert_eq!((count(POST_POD), count("DELETE "), count(POST_REVISION)), (2, 2, 1), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn set_that_is_being_deleted_changes_no_pods() {
    let world = settled(stateful_set(2)).await;
    world.api.upsert(&web(), json!({ "metadata": { "finalizers": ["example.com/hold"] } }));
    world.api.delete(&web());
    world.api.remove(&pod_path("web-1"));
    world.pass(5).await;
    assert_eq!(world.pod_names(), ["web-0"]);
    assert_eq!(status(&world, COUNTS), [1, 1, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn undecodable_pod_pauses_its_set() {
    let world = settled(stateful_set(2)).await;
    world.spoil_pod("web-1");
    world.resize(0);
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
    assert_eq!(world.pod_names().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn restarted_controller_writes_nothing() {
    let mut world = settled(with_claims(2, json!({ "whenDeleted": "Delete", "whenScaled": "Delete" }))).await;
    world.restart("statefulset-controller", &ControllerOptions::default()).await;
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}
