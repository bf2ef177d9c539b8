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
