//! Pods for which a Deployment that recreates its pods waits. No ReplicaSet controller runs.

use super::*;

fn recreating() -> Value {
    with_strategy(1, json!({ "type": "Recreate" }))
}

/// Returns a world with a Deployment that created its ReplicaSet.
async fn with_set(deployment: Value) -> World {
    let mut world = World::new();
    world.api.upsert(&web(), deployment);
    world.start("deployment-controller", &ControllerOptions::default()).await;
    world.pass(1).await;
    world
}

impl World {
    /// Creates a pod in a phase that a ReplicaSet controls.
    fn add_pod_of(&self, set: &Value, pod: &str, phase: &str) {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name(set), "uid": uid(set), "controller": true,
        });
        let metadata =
            json!({ "labels": set["spec"]["template"]["metadata"]["labels"], "ownerReferences": [owner] });
        let spec = json!({ "containers": [{ "name": "main", "image": "web:1" }] });
        self.api.upsert(&pod_path(pod), json!({ "metadata": metadata, "spec": spec }));
        self.api.upsert(&pod_path(pod), json!({ "status": { "phase": phase } }));
    }

    /// Returns how often a Deployment was added to the queue.
    fn enqueued(&self) -> u64 {
        let count = self.queue_count("deployment", "adds");
        assert!(count > 0, "the Deployment was added at the start");
        count
    }
}

#[tokio::test(start_paused = true)]
async fn new_set_waits_for_old_pods_that_have_not_terminated() {
    // Pods in the status of the old set, phases of its existing pods, and whether the new set waits.
    let cases: [(u32, &[&str], bool); 8] = [
        (0, &[], false),
        (1, &[], true),
        (0, &["Running", "Running"], true),
        (0, &["Failed", "Succeeded"], false),
        (0, &["Unknown"], true),
        (0, &["Pending"], true),
        (0, &["Running"], true),
        (0, &["Failed", "Succeeded", "Pending"], true),
    ];
    for (replicas, phases, waits) in cases {
        let world = with_set(recreating()).await;
        let old = world.sets()[0].clone();
        world.api.upsert(&set_path(name(&old)), json!({ "status": { "replicas": replicas } }));
        for (number, phase) in phases.iter().enumerate() {
            world.add_pod_of(&old, &format!("old-{number}"), phase);
        }
        world.set_image("web:2");
        world.pass(5).await;
        assert_eq!(world.sets().len(), if waits { 1 } else { 2 }, "{replicas} {phases:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_enqueues_only_a_deployment_that_recreates_pods() {
    // Strategy, the set of the deleted pod, whether another pod exists, and the number of additions to the queue.
    // Upstream enqueues the Deployment only after its last pod. Here, an earlier sync sends no request.
    let cases = [
        ("Recreate", "own", false, 1),
        ("Recreate", "own", true, 1),
        ("Recreate", "unknown", false, 0),
        ("Recreate", "unknown", true, 0),
        ("Recreate", "orphan", false, 0),
        ("Recreate", "orphan", true, 0),
        ("RollingUpdate", "own", false, 0),
        ("RollingUpdate", "own", true, 0),
    ];
    for (strategy, owner, has_other, expected) in cases {
        let world = with_set(with_strategy(1, json!({ "type": strategy }))).await;
        let own = world.sets()[0].clone();
        let mut orphan = own.clone();
        let labels = json!({ "app": "other" });
        orphan["metadata"] = json!({ "labels": labels });
        orphan["spec"]["selector"] = json!({ "matchLabels": labels });
        orphan["spec"]["template"]["metadata"]["labels"] = labels;
        world.api.upsert(&set_path("orphan"), orphan);
        let mut owner_set = match owner {
            "orphan" => world.api.object(&set_path("orphan")).expect("a set"),
            _ => own.clone(),
        };
        if owner == "unknown" {
            owner_set["metadata"]["uid"] = json!("uid-of-a-deleted-set");
        }
        world.add_pod_of(&owner_set, "first", "Running");
        if has_other {
            world.add_pod_of(&own, "second", "Running");
        }
        world.pass(1).await;
        let before = world.enqueued();
        world.requests();
        world.api.remove(&pod_path("first"));
        world.pass(1).await;
        assert_eq!(world.enqueued() - before, expected, "{strategy} {owner} {has_other}");
        assert_eq!(world.requests(), [""; 0], "{strategy} {owner} {has_other}");
    }
}
