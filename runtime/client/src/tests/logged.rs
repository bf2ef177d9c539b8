use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use windlass_object::{GroupResource, ObjectKey, ResourceVersion, Verb};

use super::*;
use crate::{CacheState, timed_out};

fn worker(world: &World) -> (kube::Client, Arc<TestLog>) {
    let log = Arc::<TestLog>::default();
    let clients = world.clients.for_controller("test-controller").unwrap();
    (clients.worker(Arc::clone(&log) as Arc<dyn WriteLog>, None), log)
}

fn target(verb: Verb, name: Option<&str>) -> WriteTarget {
    WriteTarget {
        verb,
        resource: GroupResource::new("", "configmaps"),
        subresource: None,
        namespace: Some("web".into()),
        name: name.map(Into::into),
    }
}

// parity: consistency-store-wrote-at
#[tokio::test(start_paused = true)]
async fn write_is_logged_with_the_content_of_its_response() {
    let world = World::new(answer(201, CREATED));
    let (client, log) = worker(&world);
    let created = create(&client).await.unwrap();
    assert_eq!(
        created.metadata.resource_version.as_deref(),
        Some("12"),
        "the caller receives the response too"
    );
    let expected = Write {
        target: target(Verb::Create, None),
        key: Some(ObjectKey::namespaced("web", "a")),
        uid: Some("u-1".into()),
        version: Some(ResourceVersion::new("12")),
        is_removed: false,
        cached: CacheState::default(),
    };
    assert_eq!((log.wrote(), log.ambiguous()), (vec![expected], vec![]));
}

// parity: consistency-store-wrote-at
#[tokio::test(start_paused = true)]
async fn reads_and_dry_runs_are_not_logged() {
    let world = World::new(answer(200, CREATED));
    let (client, log) = worker(&world);
    config_maps(client.clone()).get("a").await.unwrap();
    let dry = PostParams { dry_run: true, ..Default::default() };
    config_maps(client).create(&dry, &config_map()).await.unwrap();
    assert!(log.is_empty());
}

// parity: consistency-store-wrote-at, read-your-writes-0
#[tokio::test(start_paused = true)]
async fn delete_is_logged_with_its_version_or_uid() {
    let world = World::new(answer(200, CREATED));
    let (client, log) = worker(&world);
    config_maps(client).delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(log.wrote()[0].version, Some(ResourceVersion::new("12")));

    let gone = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"a","kind":"configmaps","uid":"u-1"}}"#;
    let world = World::new(answer(200, gone));
    let (client, log) = worker(&world);
    config_maps(client).delete("a", &DeleteParams::default()).await.unwrap();
    let Write { key, uid, version, .. } = log.wrote()[0].clone();
    assert_eq!((key, uid, version), (Some(ObjectKey::namespaced("web", "a")), Some("u-1".into()), None));
}

#[tokio::test(start_paused = true)]
async fn update_that_removes_last_finalizer_is_logged_as_removal() {
    let cases = [
        (r#"{"metadata":{"name":"a","deletionGracePeriodSeconds":0}}"#, true),
        (r#"{"metadata":{"name":"a","deletionGracePeriodSeconds":0,"finalizers":[]}}"#, true),
        (r#"{"metadata":{"name":"a","deletionGracePeriodSeconds":0,"finalizers":["example.com/b"]}}"#, false),
        (r#"{"metadata":{"name":"a","deletionGracePeriodSeconds":30}}"#, false),
        (r#"{"metadata":{"name":"a","finalizers":[]}}"#, false),
    ];
    for (object, expected) in cases {
        let world = World::new(answer(200, object));
        let (client, log) = worker(&world);
        let patch = Patch::Merge(serde_json::json!({ "metadata": { "finalizers": null } }));
        config_maps(client).patch("a", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(log.wrote()[0].is_removed, expected, "{object}");
    }
}

#[tokio::test(start_paused = true)]
async fn delete_collection_has_no_version_to_wait_for() {
    let world = World::new(answer(200, r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#));
    let (client, log) = worker(&world);
    config_maps(client).delete_collection(&Default::default(), &Default::default()).await.unwrap();
    assert_eq!((log.wrote(), log.ambiguous()), (vec![], vec![target(Verb::DeleteCollection, None)]));
}

#[tokio::test(start_paused = true)]
async fn rejected_write_is_neither_done_nor_ambiguous() {
    for (code, body) in [(409, CONFLICT), (404, "404 page not found"), (429, "busy"), (400, "{}")] {
        let world = World::new(answer(code, body));
        let (client, log) = worker(&world);
        create(&client).await.unwrap_err();
        assert!(log.is_empty(), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn write_with_server_error_is_ambiguous() {
    for code in [500, 502, 503, 504] {
        let world = World::new(answer(code, "oops"));
        let (client, log) = worker(&world);
        create(&client).await.unwrap_err();
        assert_eq!((log.wrote(), log.ambiguous()), (vec![], vec![target(Verb::Create, None)]), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn write_with_unreadable_response_is_ambiguous() {
    let world = World::new(answer(201, "<html>"));
    let (client, log) = worker(&world);
    create(&client).await.unwrap_err();
    assert_eq!(log.ambiguous(), [target(Verb::Create, None)]);
}

#[tokio::test(start_paused = true)]
async fn ambiguous_write_is_recorded_when_the_caller_is_canceled() {
    let world = World::new(hang);
    let (client, log) = worker(&world);
    let patch = Patch::Merge(json!({"data": {"a": "b"}}));
    let (api, params) = (config_maps(client), PatchParams::default());
    let write = api.patch("a", &params, &patch);
    assert!(world.env.timeout(seconds(1), write).await.is_err());
    assert_eq!(log.ambiguous(), [target(Verb::Patch, Some("a"))]);
}

#[tokio::test(start_paused = true)]
async fn dropped_write_settles_when_no_late_copy_can_take_effect() {
    let options = ClientOptions { unacknowledged_timeout: seconds(5), ..ClientOptions::default() };
    let world = World::with(options, |_| Arc::new(OpenFence), hang);
    let (client, log) = worker(&world);
    assert!(world.env.timeout(seconds(3), create(&client)).await.is_err());
    let (arrival, timeout, application) = (seconds(5), seconds(60), seconds(1));
    assert_eq!(log.settled_at(), [arrival + timeout + application]);
}

#[tokio::test(start_paused = true)]
async fn dropped_fenced_write_settles_when_a_standby_can_write() {
    let fence = TestFence::new(FenceState::Until(Instant::ORIGIN + seconds(10)));
    let options = ClientOptions { unacknowledged_timeout: seconds(5), ..ClientOptions::default() };
    let shared = Arc::clone(&fence);
    let world = World::with(options, move |_| Arc::clone(&shared) as _, hang);
    let (client, log) = worker(&world);
    world.env.sleep(seconds(4)).await;
    assert!(world.env.timeout(seconds(1), create(&client)).await.is_err());
    assert_eq!(log.settled_at(), [seconds(10) + seconds(5) + seconds(1)]);
}

#[tokio::test(start_paused = true)]
async fn write_that_the_server_has_ended_settles_within_a_second() {
    let world = World::new(answer(500, "{}"));
    let (client, log) = worker(&world);
    create(&client).await.unwrap_err();
    assert_eq!(log.settled_at(), [seconds(1)]);
}

#[tokio::test(start_paused = true)]
async fn write_canceled_before_it_was_sent_is_not_ambiguous() {
    let options = ClientOptions { qps: 0.1, burst: 1, ..ClientOptions::default() };
    let world = World::with(options, |_| Arc::new(OpenFence), answer(201, CREATED));
    let (client, log) = worker(&world);
    create(&client).await.unwrap();
    assert!(world.env.timeout(seconds(1), create(&client)).await.is_err(), "it waits for the rate limiter");
    assert_eq!((log.wrote().len(), log.ambiguous().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn write_with_timeout_is_ambiguous() {
    let world = World::new(hang);
    let (client, log) = worker(&world);
    assert!(timed_out(&create(&client).await.unwrap_err()));
    assert_eq!(world.env.now().since_origin(), seconds(60));
    assert_eq!(log.ambiguous(), [target(Verb::Create, None)]);
}

#[tokio::test(start_paused = true)]
async fn write_with_truncated_response_is_ambiguous() {
    let world = World::new(|_| streamed(then_silence(vec![r#"{"metadata":"#.into()])));
    let (client, log) = worker(&world);
    assert!(timed_out(&create(&client).await.unwrap_err()));
    assert_eq!(log.ambiguous(), [target(Verb::Create, None)]);
}

#[tokio::test(start_paused = true)]
async fn fenced_write_is_ambiguous_only_when_it_was_sent() {
    let fence = TestFence::new(FenceState::Closed);
    let world = World::fenced(&fence, hang);
    let (client, log) = worker(&world);
    create(&client).await.unwrap_err();
    assert!(log.is_empty(), "rejected before it was sent");

    fence.state.set(FenceState::Until(Instant::ORIGIN + seconds(30)));
    let closing = async {
        world.env.sleep(seconds(5)).await;
        fence.state.set(FenceState::Closed);
    };
    let (result, ()) = futures_util::future::join(create(&client), closing).await;
    assert!(result.is_err());
    assert_eq!(log.ambiguous(), [target(Verb::Create, None)]);
}

// parity: consistency-store-wrote-at
#[tokio::test(start_paused = true)]
async fn writes_of_spawned_tasks_are_logged_for_their_worker_only() {
    let world = World::new(answer(201, CREATED));
    let ((client, log), (_other, other_log)) = (worker(&world), worker(&world));
    let task = world.env.spawn("write", async move { create(&client).await.map(|_| ()) });
    task.await.unwrap().unwrap();
    assert_eq!((log.wrote().len(), other_log.wrote().len()), (1, 0));
}
