//! Claims of pods.

use super::*;

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
async fn claim_templates_with_the_same_name_create_one_claim() {
    let mut world = World::new();
    world.api.upsert(&web(), with_claims(1, Value::Null));
    world.api.overwrite_unchecked(&web(), |set| {
        let templates = &mut set["spec"]["volumeClaimTemplates"];
        let mut last = templates[0].clone();
        last["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
        templates.as_array_mut().expect("templates").push(last);
    });
    world.start("statefulset-controller", &ControllerOptions::default()).await;
    world.pass(2).await;
    assert_eq!(world.pod_names(), ["web-0"]);
    assert_eq!(world.claim("data-web-0")["spec"]["resources"]["requests"]["storage"], "2Gi");
    assert_eq!(world.api.all(CLAIMS).len(), 1);
    assert_eq!(world.notes("FailedCreate"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn stale_caches_cause_no_second_write_of_a_claim() {
    let mut world = World::new();
    world.api.upsert(&web(), with_claims(2, json!({ "whenDeleted": "Delete", "whenScaled": "Delete" })));
    world.lag();
    world.start("statefulset-controller", &ControllerOptions::default()).await;
    world.run_all(80).await;
    world.resize(1);
    world.run_all(40).await;
    let requests = world.requests();
    let count = |request: &str| requests.iter().filter(|it| it.starts_with(request)).count();
    let put = |claim: &str| count(&format!("PUT {}", claim_path(claim)));
    assert_eq!((count(POST_CLAIM), put("data-web-0"), put("data-web-1")), (2, 1, 2), "{requests:?}");
    assert!(world.events().iter().all(|(reason, _)| !reason.starts_with("Failed")));
}

#[tokio::test(start_paused = true)]
async fn claims_have_owners_after_the_adoption_of_their_pod() {
    // Retention when scaled and when deleted, the owners while the pods run, and after they are scaled down.
    let (set, pod) = (("StatefulSet", "web"), ("Pod", "web-1"));
    let cases = [
        ("Retain", "Retain", vec![], vec![]),
        ("Retain", "Delete", vec![set], vec![set]),
        ("Delete", "Retain", vec![], vec![pod]),
        ("Delete", "Delete", vec![set], vec![pod]),
    ];
    for (scaled, deleted, running, after_scaling) in cases {
        let world = settled(with_claims(2, json!({ "whenScaled": scaled, "whenDeleted": deleted }))).await;
        let mut misnamed = world.pod("web-1");
        world.api.upsert(&pod_path("web-1"), json!({ "metadata": { "ownerReferences": null } }));
        world.api.upsert(&claim_path("data-web-1"), json!({ "metadata": { "ownerReferences": null } }));
        let metadata = json!({
            "labels": misnamed["metadata"]["labels"], "ownerReferences": misnamed["metadata"]["ownerReferences"],
        });
        misnamed["metadata"] = metadata;
        world.api.upsert(&pod_path("xweb-2"), misnamed);
        let claim = world.claim("data-web-1");
        world.api.upsert(&claim_path("data-web-2"), json!({ "spec": claim["spec"] }));
        world.run_all(2).await;
        assert_eq!(owners(&world.pod("web-1")), [set], "adopted");
        assert_eq!(owners(&world.pod("xweb-2")), [], "released");
        assert_eq!(owners(&world.claim("data-web-0")), running, "{scaled} {deleted}");
        assert_eq!(owners(&world.claim("data-web-1")), running, "{scaled} {deleted}");
        world.resize(0);
        world.run_all(6).await;
        assert_eq!(owners(&world.claim("data-web-1")), after_scaling, "{scaled} {deleted}");
        assert_eq!(owners(&world.claim("data-web-2")), [], "{scaled} {deleted}");
    }
}

#[tokio::test(start_paused = true)]
async fn claim_of_another_controller_is_reported_and_kept() {
    let mut world = World::new();
    world.api.upsert(&web(), with_claims(1, json!({ "whenDeleted": "Delete", "whenScaled": "Delete" })));
    let set = world.set();
    let spec = set["spec"]["volumeClaimTemplates"][0]["spec"].clone();
    let other = json!({
        "apiVersion": "example.com/v1", "kind": "Backup", "name": "nightly", "uid": "uid-nightly", "controller": true,
    });
    let claim = json!({ "metadata": { "ownerReferences": [other] }, "spec": spec });
    world.api.upsert(&claim_path("data-web-0"), claim);
    world.start("statefulset-controller", &ControllerOptions::default()).await;
    world.run_all(5).await;
    // The misspelled word is part of the upstream message.
    let note = concat!(
        "PersistentVolumeClaim data-web-0 has a conflicting OwnerReference that acts as a manging controller, ",
        "the retention policy is ignored for this claim",
    );
    // As upstream, each sync until the pod runs reports the conflict.
    let notes = world.notes("ConflictingController");
    assert!(!notes.is_empty() && notes.iter().all(|it| it == note), "{notes:?}");
    assert_eq!(owners(&world.claim("data-web-0")), [("Backup", "nightly")]);
    assert_eq!(world.pod_names(), ["web-0"]);
}
