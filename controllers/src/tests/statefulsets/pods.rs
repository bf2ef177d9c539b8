//! Creation, deletion and correction of pods.

use super::*;

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
    let [(1, revision)] = &world.numbered_revisions()[..] else { panic!("one revision") };
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
    let terminating = || {
        let pods = world.pods();
        pods.iter().filter(|pod| is_being_deleted(pod)).map(|pod| name(pod).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(terminating(), ["web-2"], "web-1 waits until web-2 is deleted");
    world.run_all(1).await;
    assert_eq!(terminating(), ["web-1"]);
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
    assert_eq!(world.pods().iter().filter(|pod| is_being_deleted(pod)).count(), 4);
    world.run_all(2).await;
    assert_eq!(world.pod_names(), ["web-0"]);
}

/// Returns a settled parallel set whose pods with these ordinals are removed, and a claim that is being deleted blocks
/// the new pod with the ordinal `blocked`.
async fn parallel_set_with_missing_pods(replicas: u32, removed: &[u32], blocked: u32) -> World {
    let mut set = with_claims(replicas, Value::Null);
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    let world = settled(set).await;
    world.api.delete(&claim_path(&format!("data-web-{blocked}")));
    world.pass(1).await;
    for ordinal in removed {
        world.api.remove(&pod_path(&format!("web-{ordinal}")));
    }
    world.pass(1).await;
    world
}

#[tokio::test(start_paused = true)]
async fn failed_pod_does_not_stop_the_others_of_its_batch() {
    // The batches of five pods are 0, 1-2 and 3-4.
    let world = parallel_set_with_missing_pods(5, &[3, 4], 3).await;
    assert_eq!(world.pod_names(), ["web-0", "web-1", "web-2", "web-4"]);
}

#[tokio::test(start_paused = true)]
async fn failed_pod_stops_later_batches_of_all_pods() {
    // The batches of twelve pods are 0, 1-2, 3-6 and 7-11.
    let world = parallel_set_with_missing_pods(12, &[0, 2, 9], 2).await;
    let names = world.pod_names();
    let exists = |name: &str| names.iter().any(|it| it == name);
    assert_eq!((exists("web-0"), exists("web-2"), exists("web-9")), (true, false, false), "{names:?}");
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
