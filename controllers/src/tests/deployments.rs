//! The Deployment and ReplicaSet controllers with an API server.

mod recreate;

use serde_json::{Value, json};
use windlass_api_server::faults::FaultAction;

use super::world::{World, path, pod_path, uid};
use crate::ControllerOptions;

const SETS: &str = "/apis/apps/v1/replicasets";
const POST_SET: &str = "POST /apis/apps/v1/namespaces/shop/replicasets";
const POST_POD: &str = "POST /api/v1/namespaces/shop/pods";
const REVISION: &str = "deployment.kubernetes.io/revision";

fn web() -> String {
    path("apis/apps/v1", "deployments", "web")
}

fn set_path(name: &str) -> String {
    path("apis/apps/v1", "replicasets", name)
}

fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "annotations": { "note": "copied" } },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "web:1" }] },
            },
        },
    })
}

fn with_strategy(replicas: u32, strategy: Value) -> Value {
    let mut deployment = deployment(replicas);
    deployment["spec"]["strategy"] = strategy;
    deployment
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(object: &Value, pointer: &str) -> u64 {
    object.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn revision(object: &Value) -> &str {
    object["metadata"]["annotations"][REVISION].as_str().unwrap_or_default()
}

fn size(set: &Value) -> u64 {
    number(set, "/spec/replicas")
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    pod["metadata"]["deletionTimestamp"].is_null() && ready.any(|condition| condition["status"] == "True")
}

/// Returns a world with both controllers and a Deployment whose pods are ready.
async fn settled(deployment: Value) -> World {
    let world = started(|world| drop(world.api.upsert(&web(), deployment))).await;
    world.roll(20).await;
    world.requests();
    world.events();
    world
}

async fn started(prepare: impl FnOnce(&World)) -> World {
    let mut world = World::new();
    prepare(&world);
    world.start("deployment-controller", &ControllerOptions::default()).await;
    world.start("replicaset-controller", &ControllerOptions::default()).await;
    world
}

impl World {
    fn web(&self) -> Value {
        self.api.object(&web()).expect("the Deployment")
    }

    /// Returns the ReplicaSets by revision.
    fn sets(&self) -> Vec<Value> {
        let mut sets = self.api.all(SETS);
        sets.sort_by_key(|set| revision(set).parse::<u64>().unwrap_or_default());
        sets
    }

    fn sizes(&self) -> Vec<(String, u64)> {
        self.sets().iter().map(|set| (revision(set).to_owned(), size(set))).collect()
    }

    fn set_image(&self, image: &str) {
        let containers = json!([{ "name": "main", "image": image }]);
        self.api.upsert(&web(), json!({ "spec": { "template": { "spec": { "containers": containers } } } }));
    }

    fn condition(&self, of_type: &str) -> Value {
        let web = self.web();
        let conditions = web["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == of_type).unwrap_or_default()
    }

    fn reason(&self, of_type: &str) -> String {
        text(&self.condition(of_type), "/reason").to_owned()
    }

    /// Acts as the nodes for some seconds: starts pods, and removes pods that are being deleted.
    async fn roll(&self, seconds: usize) {
        for _ in 0..seconds {
            self.pass(1).await;
            for pod in self.pods() {
                if !pod["metadata"]["deletionTimestamp"].is_null() {
                    self.api.remove(&pod_path(name(&pod)));
                } else if !is_ready(&pod) {
                    self.run_pod(name(&pod), true);
                }
            }
        }
        self.pass(1).await;
    }

    /// Returns the messages about changed sizes.
    fn scalings(&self) -> Vec<String> {
        let events = self.events().into_iter().filter(|(reason, _)| reason == "ScalingReplicaSet");
        events.map(|(_, note)| note).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn new_deployment_creates_its_set_and_completes() {
    let world = started(|world| drop(world.api.upsert(&web(), deployment(3)))).await;
    world.roll(5).await;
    let [set] = &world.sets()[..] else { panic!("one ReplicaSet") };
    let (web, hash) = (world.web(), text(set, "/metadata/labels/pod-template-hash"));
    assert_eq!(name(set), format!("web-{hash}"));
    assert_eq!(set["spec"]["selector"]["matchLabels"], json!({ "app": "web", "pod-template-hash": hash }));
    assert_eq!(set["spec"]["template"]["metadata"]["labels"], set["metadata"]["labels"]);
    assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], uid(&web));
    let annotations = json!({
        "note": "copied", REVISION: "1", "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
    });
    assert_eq!(set["metadata"]["annotations"], annotations);
    assert_eq!(revision(&web), "1");
    assert_eq!(world.scalings(), [format!("Scaled up replica set {} from 0 to 3", name(set))]);
    for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(web["status"][field], 3, "{field}");
    }
    assert_eq!(web["status"]["terminatingReplicas"], 0);
    assert_eq!(web["status"]["observedGeneration"], web["metadata"]["generation"]);
    assert_eq!(world.reason("Available"), "MinimumReplicasAvailable");
    assert_eq!(world.reason("Progressing"), "NewReplicaSetAvailable");
    let message = format!("ReplicaSet \"{}\" has successfully progressed.", name(set));
    assert_eq!(text(&world.condition("Progressing"), "/message"), message);
}

#[tokio::test(start_paused = true)]
async fn settled_deployment_causes_no_request() {
    let mut world = settled(deployment(2)).await;
    world.pass(3600).await;
    assert_eq!(world.requests(), [""; 0]);
    // A second process with empty memory.
    world.start("deployment-controller", &ControllerOptions::default()).await;
    world.pass(3600).await;
    assert_eq!(world.requests(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn rolling_update_keeps_its_limits_and_records_its_steps() {
    let world = settled(deployment(3)).await;
    world.set_image("web:2");
    for _ in 0..20 {
        world.roll(1).await;
        let active = world.pods().iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).count();
        let ready = world.pods().iter().filter(|pod| is_ready(pod)).count();
        assert!(active <= 4 && ready >= 3, "{active} active, {ready} ready");
    }
    assert_eq!(world.sizes(), [("1".into(), 0), ("2".into(), 3)]);
    assert_eq!(revision(&world.web()), "2");
    let sets = world.sets();
    let (old, new) = (name(&sets[0]), name(&sets[1]));
    let expected = [
        format!("Scaled up replica set {new} from 0 to 1"),
        format!("Scaled down replica set {old} from 3 to 2"),
        format!("Scaled up replica set {new} from 1 to 2"),
        format!("Scaled down replica set {old} from 2 to 1"),
        format!("Scaled up replica set {new} from 2 to 3"),
        format!("Scaled down replica set {old} from 1 to 0"),
    ];
    assert_eq!(world.scalings(), expected);
}

#[tokio::test(start_paused = true)]
async fn old_template_reuses_its_set_with_a_new_revision() {
    let world = settled(deployment(2)).await;
    world.set_image("web:2");
    world.roll(15).await;
    world.set_image("web:1");
    world.roll(15).await;
    assert_eq!(world.sizes(), [("2".into(), 0), ("3".into(), 2)]);
    let history = "deployment.kubernetes.io/revision-history";
    assert_eq!(world.sets()[1]["metadata"]["annotations"][history], "1");
    assert_eq!(revision(&world.web()), "3");
}

#[tokio::test(start_paused = true)]
async fn rollback_annotation_restores_a_revision_once() {
    let world = settled(deployment(2)).await;
    world.set_image("web:2");
    world.roll(15).await;
    world.events();
    let request = |revision: &str| {
        let annotations = json!({ "deprecated.deployment.rollback.to": revision });
        world.api.upsert(&web(), json!({ "metadata": { "annotations": annotations } }));
    };
    request("0");
    world.roll(15).await;
    let rolled_back = ("DeploymentRollback".into(), "Rolled back deployment \"web\" to revision 1".into());
    assert!(world.events().contains(&rolled_back));
    assert_eq!(text(&world.web(), "/spec/template/spec/containers/0/image"), "web:1");
    assert_eq!(world.sizes(), [("2".into(), 0), ("3".into(), 2)]);
    for (revision, reason, note) in [
        ("7", "DeploymentRollbackRevisionNotFound", "Unable to find the revision to rollback to."),
        (
            "3",
            "DeploymentRollbackTemplateUnchanged",
            "The rollback revision contains the same template as current deployment \"web\"",
        ),
    ] {
        request(revision);
        world.roll(3).await;
        assert!(world.events().contains(&(reason.into(), note.into())), "{reason}");
        assert_eq!(world.web()["metadata"]["annotations"]["deprecated.deployment.rollback.to"], Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn paused_deployment_scales_but_does_not_roll_out() {
    let world = settled(deployment(2)).await;
    world.api.upsert(&web(), json!({ "spec": { "paused": true } }));
    world.set_image("web:2");
    world.roll(3).await;
    assert_eq!(world.sizes(), [("1".into(), 2)]);
    assert_eq!(world.reason("Progressing"), "DeploymentPaused");
    world.api.upsert(&web(), json!({ "spec": { "replicas": 4 } }));
    world.roll(3).await;
    assert_eq!(world.sizes(), [("1".into(), 4)]);
    world.api.upsert(&web(), json!({ "spec": { "paused": false } }));
    world.roll(20).await;
    assert_eq!(world.sizes(), [("1".into(), 0), ("2".into(), 4)]);
    assert_eq!(world.reason("Progressing"), "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn scaling_during_a_rollout_is_proportional() {
    let strategy =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 3, "maxUnavailable": 2 } });
    let world = settled(with_strategy(10, strategy)).await;
    world.set_image("broken");
    // The new pods never become ready.
    for _ in 0..5 {
        world.pass(1).await;
        for pod in world.pods() {
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                world.api.remove(&pod_path(name(&pod)));
            }
        }
    }
    assert_eq!(world.sizes(), [("1".into(), 8), ("2".into(), 5)]);
    world.api.upsert(&web(), json!({ "spec": { "replicas": 15 } }));
    world.pass(2).await;
    assert_eq!(world.sizes(), [("1".into(), 11), ("2".into(), 7)]);
    for set in world.sets() {
        let annotations = &set["metadata"]["annotations"];
        assert_eq!(annotations["deployment.kubernetes.io/desired-replicas"], "15");
        assert_eq!(annotations["deployment.kubernetes.io/max-replicas"], "18");
    }
}

#[tokio::test(start_paused = true)]
async fn recreate_waits_for_the_end_of_old_pods() {
    let world = settled(with_strategy(2, json!({ "type": "Recreate" }))).await;
    world.set_image("web:2");
    world.pass(5).await;
    assert_eq!(world.sizes(), [("1".into(), 0)]);
    let old = world.pods();
    assert_eq!(old.len(), 2, "the nodes have not stopped the pods");
    world.api.remove(&pod_path(name(&old[0])));
    world.pass(5).await;
    assert_eq!(world.sizes(), [("1".into(), 0)]);
    world.api.remove(&pod_path(name(&old[1])));
    world.roll(5).await;
    assert_eq!(world.sizes(), [("1".into(), 0), ("2".into(), 2)]);
    assert_eq!(world.reason("Progressing"), "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn stuck_rollout_times_out_at_its_deadline() {
    let mut deployment = deployment(1);
    deployment["spec"]["progressDeadlineSeconds"] = json!(60);
    let world = started(|world| drop(world.api.upsert(&web(), deployment))).await;
    world.pass(55).await;
    assert_eq!(world.reason("Progressing"), "ReplicaSetUpdated");
    world.requests();
    world.pass(10).await;
    assert_eq!(world.reason("Progressing"), "ProgressDeadlineExceeded");
    let condition = world.condition("Progressing");
    assert_eq!(condition["status"], "False");
    assert!(text(&condition, "/message").ends_with(" has timed out progressing."), "{condition}");
    world.requests();
    world.pass(3600).await;
    assert_eq!(world.requests(), [""; 0], "nothing is checked after the deadline");
    world.roll(3).await;
    assert_eq!(world.reason("Progressing"), "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn failed_creation_of_a_set_is_reported_and_retried() {
    let mut world = World::new();
    world.api.upsert(&web(), deployment(1));
    world.refuse(POST_SET, usize::MAX, FaultAction::QuotaExceeded);
    world.start("deployment-controller", &ControllerOptions::default()).await;
    world.pass(5).await;
    assert_eq!(world.reason("Progressing"), "ReplicaSetCreateError");
    let events = world.events();
    let (reason, note) = events.first().expect("an event");
    assert_eq!(reason, "ReplicaSetCreateError");
    assert!(note.starts_with("Failed to create new replica set \"web-"), "{note}");
    world.relent();
    world.pass(120).await;
    assert_eq!(world.sizes(), [("1".into(), 1)]);
    assert_eq!(world.reason("Progressing"), "NewReplicaSetCreated");
}

#[tokio::test(start_paused = true)]
async fn failure_of_pods_appears_in_the_status() {
    let mut world = World::new();
    world.api.upsert(&web(), deployment(1));
    world.refuse(POST_POD, usize::MAX, FaultAction::QuotaExceeded);
    world.start("deployment-controller", &ControllerOptions::default()).await;
    world.start("replicaset-controller", &ControllerOptions::default()).await;
    world.pass(2).await;
    assert_eq!(world.reason("ReplicaFailure"), "FailedCreate");
    world.relent();
    world.roll(30).await;
    assert_eq!(world.condition("ReplicaFailure"), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn history_limit_deletes_the_oldest_sets() {
    let mut deployment = deployment(1);
    deployment["spec"]["revisionHistoryLimit"] = json!(1);
    let world = settled(deployment).await;
    for image in ["web:2", "web:3", "web:4"] {
        world.set_image(image);
        world.roll(15).await;
    }
    assert_eq!(world.sizes(), [("3".into(), 0), ("4".into(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn name_collision_is_counted_and_avoided() {
    let known = settled(deployment(1)).await;
    let taken = name(&known.sets()[0]).to_owned();
    let mut other = deployment(0);
    other["kind"] = json!("ReplicaSet");
    other["spec"]["selector"] = json!({ "matchLabels": { "app": "other" } });
    other["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
    let world = started(|world| {
        world.api.upsert(&set_path(&taken), other);
        world.api.upsert(&web(), deployment(1));
    })
    .await;
    world.roll(5).await;
    assert_eq!(world.web()["status"]["collisionCount"], 1);
    assert_eq!(world.sets().len(), 2);
    assert_eq!(world.web()["status"]["availableReplicas"], 1);
}

#[tokio::test(start_paused = true)]
async fn orphaned_set_is_adopted_and_released_by_its_labels() {
    let world = settled(deployment(1)).await;
    let set = world.sets()[0].clone();
    world.api.upsert(&set_path(name(&set)), json!({ "metadata": { "labels": { "app": "changed" } } }));
    world.pass(2).await;
    let owners =
        |name: &str| world.api.object(&set_path(name)).expect("it")["metadata"]["ownerReferences"].clone();
    assert_eq!(owners(name(&set)), Value::Null, "released");
    world.api.upsert(&set_path(name(&set)), json!({ "metadata": { "labels": { "app": "web" } } }));
    world.pass(2).await;
    assert_eq!(owners(name(&set))[0]["uid"], uid(&world.web()), "adopted");
    assert_eq!(owners(name(&set))[0]["controller"], true);
}

#[tokio::test(start_paused = true)]
async fn scale_and_min_ready_seconds_reach_the_set() {
    let world = settled(deployment(2)).await;
    world.api.upsert(&web(), json!({ "spec": { "replicas": 5, "minReadySeconds": 3 } }));
    world.roll(10).await;
    let [set] = &world.sets()[..] else { panic!("one ReplicaSet") };
    assert_eq!((size(set), number(set, "/spec/minReadySeconds")), (5, 3));
    assert_eq!(world.web()["status"]["availableReplicas"], 5);
}

#[tokio::test(start_paused = true)]
async fn undecodable_pod_delays_a_recreate_but_no_rolling_update() {
    for (strategy, sets) in [("Recreate", 1), ("RollingUpdate", 2)] {
        let world = settled(with_strategy(1, json!({ "type": strategy }))).await;
        world.spoil_pod(&world.pod_names()[0]);
        world.pass(2).await;
        world.set_image("web:2");
        world.pass(5).await;
        assert_eq!(world.sets().len(), sets, "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn undecodable_set_pauses_its_deployment() {
    let world = settled(deployment(1)).await;
    let name = name(&world.sets()[0]).to_owned();
    world.api.overwrite_unchecked(&set_path(&name), |set| set["spec"]["template"]["spec"] = json!("no spec"));
    world.pass(2).await;
    world.set_image("web:2");
    world.pass(5).await;
    assert_eq!(world.api.all(SETS).len(), 1);
    world.api.remove(&set_path(&name));
    world.roll(40).await;
    assert_eq!(world.sizes(), [("1".into(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn refused_scale_down_is_retried_and_delays_no_status() {
    let mut slow = with_strategy(2, json!({ "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } }));
    slow["spec"]["progressDeadlineSeconds"] = json!(60);
    let world = settled(slow).await;
    let put = format!("PUT {}", set_path(name(&world.sets()[0])));
    world.api.inject_fault(move |call| (call.line() == put).then_some(FaultAction::Forbidden));
    world.set_image("web:2");
    world.roll(5).await;
    let web = world.web();
    assert_eq!((number(&web, "/status/updatedReplicas"), number(&web, "/status/availableReplicas")), (1, 3));
    world.pass(120).await;
    assert_eq!(world.reason("Progressing"), "ProgressDeadlineExceeded");
    world.relent();
    world.roll(30).await;
    assert_eq!(world.sizes(), [("1".into(), 0), ("2".into(), 2)]);
    assert_eq!(world.reason("Progressing"), "NewReplicaSetAvailable");
}

/// The old pod may be unavailable, so both ReplicaSets change at the same time. Only a sync between the two changes
/// observes that the rollout is incomplete.
#[tokio::test(start_paused = true)]
async fn rollback_to_an_existing_replica_set_makes_progress() {
    let strategy = json!({ "rollingUpdate": { "maxSurge": 2, "maxUnavailable": 1 } });
    let world = settled(with_strategy(1, strategy)).await;
    world.set_image("web:2");
    world.roll(20).await;
    assert_eq!(world.reason("Progressing"), "NewReplicaSetAvailable");
    world.set_image("web:1");
    world.pass(5).await;
    assert_eq!(world.reason("Progressing"), "ReplicaSetUpdated");
    world.pass(600).await;
    assert_eq!(world.reason("Progressing"), "ProgressDeadlineExceeded");
}
