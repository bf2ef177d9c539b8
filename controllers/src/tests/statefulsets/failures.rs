//! Failed requests and incomplete data.

use super::*;

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
        assert_eq!(world.numbered_revisions().len(), 1, "{request}");
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
async fn status_is_written_once_per_sync_even_if_the_sync_fails() {
    let put = format!("PUT {}/status", web());
    // Whether the creation of a pod and the write of the status fail, and whether the sync is retried.
    for (sync, status) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::new();
        world.api.upsert(&web(), stateful_set(3));
        let (refused, mut pending) = (put.clone(), [sync, status]);
        world.api.inject_fault(move |call| {
            let line = call.line();
            let hits = [line == POST_POD, line == refused];
            let is_refused = hits.iter().zip(&pending).any(|(hit, pending)| *hit && *pending);
            pending.iter_mut().zip(hits).for_each(|(pending, hit)| *pending &= !hit);
            is_refused.then_some(FaultAction::Forbidden)
        });
        world.start("statefulset-controller", &ControllerOptions::default()).await;
        world.pass(1).await;
        let requests = world.requests();
        let first = requests.iter().position(|it| it == POST_POD).expect("a creation");
        assert_eq!(requests[first + 1], put, "{sync} {status} {requests:?}");
        assert_eq!(retries(&world), u64::from(sync || status), "{sync} {status}");
        world.run_all(10).await;
        assert_eq!(self::status(&world, COUNTS), [3; 5], "{sync} {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn adoption_of_a_deleted_revision_is_retried() {
    let world = settled(stateful_set(1)).await;
    let (before, revision) = (retries(&world), path("apis/apps/v1", "controllerrevisions", "web-orphan"));
    let request = format!("PATCH {revision}");
    world.refuse(&request, usize::MAX, FaultAction::SlowServer { by_ms: 2000 });
    let orphan = json!({ "metadata": { "labels": { "app": "web" } }, "data": { "other": 1 }, "revision": 7 });
    world.api.upsert(&revision, orphan);
    world.pass(1).await;
    world.api.upsert(&web(), json!({ "metadata": { "labels": { "touched": "yes" } } }));
    world.env.sleep(std::time::Duration::from_millis(60)).await;
    world.api.remove(&revision);
    world.relent();
    world.pass(5).await;
    let requests = world.requests();
    assert_eq!(requests.iter().filter(|it| **it == request).count(), 1, "{requests:?}");
    assert_eq!(retries(&world) - before, 1);
    assert_eq!(world.numbered_revisions().len(), 1);
}

/// Returns the number of retried syncs.
fn retries(world: &World) -> u64 {
    world.queue_count("statefulset", "retries")
}

/// The results of a correction: failure events, success events, writes, and whether the sync was retried.
type Corrected = (usize, usize, usize, bool);

/// Returns the results of a correction during which writes to a path conflict.
async fn correct(world: &World, path: &str, conflicts: usize, cause: impl FnOnce(&World)) -> Corrected {
    let (put, before) = (format!("PUT {path}"), retries(world));
    world.refuse(&put, conflicts, FaultAction::Conflict);
    cause(world);
    world.pass(2).await;
    let events = world.events();
    let count = |reason: &str| events.iter().filter(|(of, _)| of == reason).count();
    let writes = world.requests().iter().filter(|it| **it == put).count();
    (count("FailedUpdate"), count("SuccessfulUpdate"), writes, retries(world) != before)
}

#[tokio::test(start_paused = true)]
async fn conflict_of_a_correction_is_resolved_in_the_same_sync() {
    let label = "statefulset.kubernetes.io/pod-name";
    let remove_label = |world: &World| {
        world.api.upsert(&pod_path("web-0"), json!({ "metadata": { "labels": { label: null } } }));
    };
    let cases = [(0, (0, 1, 1, false)), (1, (0, 1, 2, false)), (3, (0, 1, 4, false)), (4, (1, 1, 5, true))];
    for (conflicts, expected) in cases {
        let world = settled(stateful_set(1)).await;
        assert_eq!(
            correct(&world, &pod_path("web-0"), conflicts, remove_label).await,
            expected,
            "{conflicts}"
        );
        assert_eq!(world.pod("web-0")["metadata"]["labels"][label], "web-0");
    }
}

#[tokio::test(start_paused = true)]
async fn conflict_of_a_claim_is_reported_and_resolved_in_the_same_sync() {
    let policy = json!({ "whenDeleted": "Delete", "whenScaled": "Retain" });
    let policy = json!({ "spec": { "persistentVolumeClaimRetentionPolicy": policy } });
    let cases = [(0, (0, 1, 1, false)), (1, (1, 1, 2, false)), (3, (3, 1, 4, false)), (4, (4, 1, 5, true))];
    for (conflicts, expected) in cases {
        let world = settled(with_claims(1, Value::Null)).await;
        let change = |world: &World| drop(world.api.upsert(&web(), policy.clone()));
        let claim = claim_path("data-web-0");
        assert_eq!(correct(&world, &claim, conflicts, change).await, expected, "{conflicts}");
        assert_eq!(owners(&world.claim("data-web-0")), [("StatefulSet", "web")]);
    }
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
