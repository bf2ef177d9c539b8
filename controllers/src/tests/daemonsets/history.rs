//! Revisions.

use serde_json::{Value, json};
use windlass_api_server::faults::FaultAction;

use super::super::world::{pod_path, uid};
use super::{
    HASH, POST_REVISION, agent, daemon_set, hash, name, revision_path, rolling, settled, started, text,
};

#[tokio::test(start_paused = true)]
async fn old_template_reuses_its_revision_with_a_new_number() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    let first = name(&world.revisions()[0]).to_owned();
    world.set_agent_image("agent:2");
    world.operate(10).await;
    assert_eq!(world.images(), [(1, "agent:1".into()), (2, "agent:2".into())]);
    world.set_agent_image("agent:1");
    world.operate(10).await;
    assert_eq!(world.images(), [(2, "agent:2".into()), (3, "agent:1".into())]);
    assert_eq!(name(&world.revisions()[1]), first);
    assert!(world.pods().iter().all(|pod| hash(pod) == hash(&world.revisions()[1])));
}

#[tokio::test(start_paused = true)]
async fn refused_update_of_a_revision_is_retried() {
    let cases = [(FaultAction::Conflict, 0), (FaultAction::Conflict, 2), (FaultAction::InternalError, 1)];
    for (action, times) in cases {
        let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
        let put = format!("PUT {}", revision_path(name(&world.revisions()[0])));
        world.set_agent_image("agent:2");
        world.operate(8).await;
        world.requests();
        world.refuse(&put, times, action.clone());
        world.set_agent_image("agent:1");
        world.operate(8).await;
        let expected = [(2, "agent:2".to_owned()), (3, "agent:1".to_owned())];
        assert_eq!(world.images(), expected, "{action:?} {times}");
        let sent = world.requests().iter().filter(|request| **request == put).count();
        assert_eq!(sent, times + 1, "{action:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn revision_deleted_before_a_request_causes_no_retry() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    world.set_agent_image("agent:2");
    world.operate(8).await;
    let labels = |app: &str| json!({ "metadata": { "labels": { "app": app } } });
    let orphan =
        json!({ "metadata": { "labels": { "app": "agent" } }, "data": { "other": 1 }, "revision": 1 });
    let old = name(&world.revisions()[0]).to_owned();
    // Method, revision, and the change that causes the request.
    let cases = [
        ("PATCH", "agent-orphan", revision_path("agent-orphan"), orphan),
        ("PATCH", &*old, revision_path(&old), labels("other")),
        ("DELETE", "agent-unused", agent(), json!({ "spec": { "revisionHistoryLimit": 0 } })),
    ];
    for (method, revision, changed, change) in cases {
        let request = format!("{method} {}", revision_path(revision));
        if method == "DELETE" {
            let mut unused = world.revisions()[0].clone();
            unused["metadata"] = json!({
                "labels": { "app": "agent", HASH: "unused" },
                "ownerReferences": unused["metadata"]["ownerReferences"],
            });
            unused["data"] = json!({ "other": 2 });
            unused["revision"] = json!(1);
            world.api.upsert(&revision_path(revision), unused);
            world.pass(1).await;
        }
        let before = world.retries();
        world.requests();
        world.refuse(&request, usize::MAX, FaultAction::SlowServer { by_ms: 2000 });
        world.api.upsert(&changed, change);
        world.env.sleep(std::time::Duration::from_millis(60)).await;
        world.api.remove(&revision_path(revision));
        world.relent();
        world.pass(5).await;
        let requests = world.requests();
        assert!(requests.contains(&request), "{request}: {requests:?}");
        assert_eq!(world.retries(), before, "{request}");
        assert_eq!(world.api.object(&revision_path(revision)), None, "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn history_limit_deletes_the_oldest_revisions() {
    let mut set = daemon_set(rolling(1, 0));
    set["spec"]["revisionHistoryLimit"] = json!(1);
    let world = settled(&["one"], set).await;
    for image in ["agent:2", "agent:3", "agent:4"] {
        world.set_agent_image(image);
        world.operate(8).await;
    }
    assert_eq!(world.images(), [(3, "agent:3".into()), (4, "agent:4".into())]);
}

#[tokio::test(start_paused = true)]
async fn revision_of_existing_pods_is_kept_beyond_the_limit() {
    let mut set = daemon_set(json!({ "type": "OnDelete" }));
    set["spec"]["revisionHistoryLimit"] = json!(0);
    let world = settled(&["one"], set).await;
    for image in ["agent:2", "agent:3"] {
        world.set_agent_image(image);
        world.operate(5).await;
    }
    assert_eq!(world.images(), [(1, "agent:1".into()), (3, "agent:3".into())]);
}

#[tokio::test(start_paused = true)]
async fn revisions_are_adopted_and_released_by_their_labels() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    world.set_agent_image("agent:2");
    world.operate(8).await;
    let old = name(&world.revisions()[0]).to_owned();
    let relabel = |app: &str| {
        world.api.upsert(&revision_path(&old), json!({ "metadata": { "labels": { "app": app } } }));
    };
    let owners =
        || world.api.object(&revision_path(&old)).expect("it")["metadata"]["ownerReferences"].clone();
    relabel("other");
    world.pass(2).await;
    assert_eq!(owners(), Value::Null, "released");
    relabel("agent");
    world.pass(2).await;
    assert_eq!(owners()[0]["uid"], uid(&world.agent()), "adopted");
}

#[tokio::test(start_paused = true)]
async fn duplicate_revisions_are_removed_after_their_pods_are_labeled() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    let mut duplicate = world.revisions()[0].clone();
    let first = name(&duplicate).to_owned();
    duplicate["metadata"] = json!({
        "labels": { "app": "agent", HASH: "duplicate" }, "ownerReferences": duplicate["metadata"]["ownerReferences"],
    });
    duplicate["revision"] = json!(7);
    let pods = world.pod_names();
    world.api.upsert(&revision_path("agent-duplicate"), duplicate);
    world.pass(1).await;
    assert_eq!(world.requests(), [""; 0], "a new revision with an owner causes no sync");
    world.change(json!({ "minReadySeconds": 1 }));
    world.operate(3).await;
    let patch = |pod: &String| format!("PATCH /api/v1/namespaces/shop/pods/{pod}");
    let mut expected: Vec<_> = pods.iter().map(patch).collect();
    expected.push(format!("DELETE {}", revision_path(&first)));
    let requests = world.requests();
    assert_eq!(requests[..3], expected);
    assert_eq!(world.images(), [(7, "agent:1".into())]);
    assert_eq!(world.pod_names(), pods, "no pod is replaced");
    assert!(world.pods().iter().all(|pod| hash(pod) == "duplicate"));
}

#[tokio::test(start_paused = true)]
async fn duplicate_revisions_stay_while_a_pod_is_undecodable() {
    let world = settled(&["one", "two"], daemon_set(rolling(1, 0))).await;
    let mut duplicate = world.revisions()[0].clone();
    duplicate["metadata"] = json!({
        "labels": { "app": "agent", HASH: "duplicate" }, "ownerReferences": duplicate["metadata"]["ownerReferences"],
    });
    duplicate["revision"] = json!(7);
    let pod = world.pod_names()[0].clone();
    world.spoil_pod(&pod);
    world.api.upsert(&revision_path("agent-duplicate"), duplicate);
    world.pass(1).await;
    world.change(json!({ "minReadySeconds": 1 }));
    world.pass(40).await;
    assert_eq!(world.revisions().len(), 2);
    world.api.remove(&pod_path(&pod));
    world.operate(40).await;
    assert_eq!(world.revisions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn revision_of_another_namespace_is_not_adopted() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    world.api.upsert("/api/v1/namespaces/blue", json!({}));
    let mut orphan = world.revisions()[0].clone();
    orphan["metadata"] = json!({ "labels": { "app": "agent" } });
    let elsewhere = "/apis/apps/v1/namespaces/blue/controllerrevisions/agent-orphan";
    world.api.upsert(elsewhere, orphan);
    world.set_agent_image("agent:2");
    world.operate(8).await;
    let orphan = world.api.object(elsewhere).expect("the revision");
    assert_eq!(orphan["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn revision_without_hash_is_labeled_with_its_name() {
    let world = settled(&["one"], daemon_set(rolling(1, 0))).await;
    let revision = name(&world.revisions()[0]).to_owned();
    world.api.upsert(&revision_path(&revision), json!({ "metadata": { "labels": { HASH: null } } }));
    world.pass(2).await;
    assert_eq!(hash(&world.revisions()[0]), revision);
}

#[tokio::test(start_paused = true)]
async fn name_collision_is_counted_and_avoided() {
    let known = settled(&["one"], daemon_set(rolling(1, 0))).await;
    let taken = name(&known.revisions()[0]).to_owned();
    let world = started(&[], daemon_set(rolling(1, 0))).await;
    world.pass(2).await;
    let revision = world.revisions()[0].clone();
    assert_eq!(name(&revision), taken, "the name is a function of the template");
    // A revision of another owner takes the name of the next template.
    known.set_agent_image("agent:2");
    known.operate(5).await;
    let next = name(&known.revisions()[1]).to_owned();
    let other =
        json!({ "metadata": { "labels": { "app": "other" } }, "data": { "other": 1 }, "revision": 1 });
    world.api.upsert(&revision_path(&next), other);
    world.requests();
    world.set_agent_image("agent:2");
    world.pass(5).await;
    assert_eq!(world.agent()["status"]["collisionCount"], 1);
    assert_eq!(world.requests().iter().filter(|request| *request == POST_REVISION).count(), 2);
    let ours = world.revisions().into_iter().filter(|it| text(it, "/metadata/labels/app") == "agent");
    assert_eq!(ours.count(), 2);
}
