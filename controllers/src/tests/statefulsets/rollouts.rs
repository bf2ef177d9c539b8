//! Revisions and updates.

use super::*;

fn revision_path(name: &str) -> String {
    path("apis/apps/v1", "controllerrevisions", name)
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
async fn rolling_update_replaces_the_highest_ordinal_first() {
    let world = settled(stateful_set(3)).await;
    let old = world.numbered_revisions()[0].1.clone();
    world.use_image("web:2");
    world.pass(5).await;
    assert!(is_being_deleted(&world.pod("web-2")), "web-2 is replaced first");
    assert!(!is_being_deleted(&world.pod("web-1")));
    let set = world.set();
    assert_eq!(set["status"]["currentRevision"], old.as_str());
    assert_ne!(set["status"]["updateRevision"], old.as_str());
    assert_eq!(set["status"]["currentReplicas"], 2);
    world.run_all(1).await;
    world.pass(30).await;
    assert!(!is_being_deleted(&world.pod("web-1")), "web-1 waits for the new web-2");
    world.run_all(10).await;
    assert!(world.images_by_name().iter().all(|(_, image)| image == "web:2"), "{:?}", world.images_by_name());
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
    let old = world.numbered_revisions()[0].1.clone();
    world.use_image("web:2");
    world.run_all(10).await;
    let images: Vec<_> = world.images_by_name().into_iter().map(|(_, image)| image).collect();
    assert_eq!(images, ["web:1", "web:1", "web:2"]);
    assert_eq!(status(&world, COUNTS), [3, 3, 3, 2, 1]);
    world.api.remove(&pod_path("web-0"));
    world.run_all(5).await;
    assert_eq!(world.pod("web-0")["metadata"]["labels"][HASH], old.as_str());
    assert_eq!(
        world.images_by_name()[0].1,
        "web:1",
        "a recreated pod below the partition has the old template"
    );
}

/// Without a partition, the number of pods with the current revision decides.
#[tokio::test(start_paused = true)]
async fn pod_that_is_removed_during_a_rollout_keeps_the_current_revision() {
    let strategy = json!({ "type": "RollingUpdate" });
    for retention in [Value::Null, json!({ "whenDeleted": "Retain", "whenScaled": "Delete" })] {
        let mut set = with_claims(4, retention.clone());
        set["spec"]["updateStrategy"] = strategy.clone();
        let world = settled(set).await;
        world.use_image("broken");
        world.pass(5).await;
        world.api.remove(&pod_path("web-3"));
        world.pass(5).await;
        assert_eq!(status(&world, COUNTS), [4, 3, 3, 3, 1], "{retention}");
        world.api.remove(&pod_path("web-2"));
        world.pass(5).await;
        assert_eq!(world.images_by_name()[2].1, "web:1", "{retention}");
    }
}

#[tokio::test(start_paused = true)]
async fn on_delete_set_replaces_only_deleted_pods() {
    let world = settled(with(2, json!({ "updateStrategy": { "type": "OnDelete" } }))).await;
    world.use_image("web:2");
    world.run_all(5).await;
    assert!(world.images_by_name().iter().all(|(_, image)| image == "web:1"));
    world.api.remove(&pod_path("web-0"));
    world.run_all(5).await;
    let images: Vec<_> = world.images_by_name().into_iter().map(|(_, image)| image).collect();
    assert_eq!(images, ["web:2", "web:1"]);
}

#[tokio::test(start_paused = true)]
async fn rollback_raises_the_number_of_the_old_revision() {
    let world = settled(stateful_set(1)).await;
    let first = world.numbered_revisions()[0].1.clone();
    world.use_image("web:2");
    world.run_all(5).await;
    world.use_image("web:1");
    world.run_all(5).await;
    let revisions = world.numbered_revisions();
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
    let numbers: Vec<_> = world.numbered_revisions().into_iter().map(|(number, _)| number).collect();
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
    world.api.upsert(&revision_path("web-old"), old);
    world.start("statefulset-controller", &ControllerOptions::default()).await;
    world.run_all(5).await;
    assert_eq!(world.numbered_revisions(), [(1, "web-old".to_owned())]);
    assert_eq!(world.set()["status"]["updateRevision"], "web-old");
}

#[tokio::test(start_paused = true)]
async fn existing_revision_name_raises_the_collision_count() {
    let name = {
        let world = settled(stateful_set(1)).await;
        world.numbered_revisions()[0].1.clone()
    };
    let mut world = World::new();
    let other = json!({ "revision": 1, "data": { "spec": "other" } });
    world.api.upsert(&revision_path(&name), other);
    world.api.upsert(&web(), stateful_set(1));
    world.start("statefulset-controller", &ControllerOptions::default()).await;
    world.run_all(5).await;
    let set = world.set();
    assert_eq!(set["status"]["collisionCount"], 1);
    assert_ne!(set["status"]["updateRevision"], name.as_str());
    assert_eq!(world.numbered_revisions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn orphaned_pod_and_revision_are_adopted() {
    let world = settled(stateful_set(1)).await;
    let revision = revision_path(&world.numbered_revisions()[0].1);
    world.api.upsert(&pod_path("web-0"), json!({ "metadata": { "ownerReferences": null } }));
    world.api.upsert(&revision, json!({ "metadata": { "ownerReferences": null } }));
    world.pass(1).await;
    world.api.upsert(&web(), json!({ "metadata": { "labels": { "touched": "yes" } } }));
    world.pass(1).await;
    assert_eq!(owners(&world.pod("web-0")), [("StatefulSet", "web")]);
    assert_eq!(owners(&world.api.object(&revision).expect("a revision")), [("StatefulSet", "web")]);
}

#[tokio::test(start_paused = true)]
async fn rollback_to_an_adopted_revision_has_no_conflict() {
    let world = settled(stateful_set(1)).await;
    let first = world.numbered_revisions()[0].1.clone();
    world.use_image("web:2");
    world.run_all(5).await;
    let revision = revision_path(&first);
    world.api.upsert(&revision, json!({ "metadata": { "ownerReferences": null } }));
    world.pass(1).await;
    world.requests();
    world.use_image("web:1");
    world.pass(1).await;
    let requests = world.requests();
    let sent = |method: &str| requests.iter().filter(|it| **it == format!("{method} {revision}")).count();
    assert_eq!((sent("PATCH"), sent("PUT")), (1, 1), "{requests:?}");
    assert_eq!(world.numbered_revisions()[1], (3, first));
}

#[tokio::test(start_paused = true)]
async fn revisions_in_use_are_kept_when_their_data_are_unreadable() {
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 1 } });
    let world = settled(with(1, json!({ "revisionHistoryLimit": 0, "updateStrategy": strategy }))).await;
    world.use_image("web:2");
    world.pass(1).await;
    let revisions = world.numbered_revisions();
    assert_eq!(revisions.len(), 2, "the pod keeps the current revision");
    world.api.overwrite_unchecked(&revision_path(&revisions[0].1), |it| it["data"] = json!({}));
    world.pass(1).await;
    world.api.remove(&pod_path("web-0"));
    world.pass(30).await;
    assert_eq!(world.pod_names(), Vec::<String>::new(), "the template of web-0 is unknown");
    assert_eq!(world.numbered_revisions(), revisions);
}

#[tokio::test(start_paused = true)]
async fn no_revision_is_deleted_while_the_update_revision_is_unknown() {
    for (failing, image) in [("POST ", "web:3"), ("PUT /apis/apps/v1/namespaces/shop/controllerrev", "web:1")]
    {
        let world = settled(with(0, json!({ "revisionHistoryLimit": 1 }))).await;
        world.use_image("web:2");
        world.run_all(2).await;
        let revisions = world.numbered_revisions();
        world.refuse(failing, usize::MAX, FaultAction::Forbidden);
        world.use_image(image);
        world.pass(2).await;
        let requests = world.requests();
        assert!(requests.iter().any(|it| it.starts_with(failing)), "{requests:?}");
        assert_eq!((revisions.len(), world.numbered_revisions()), (2, revisions), "{failing}");
    }
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
