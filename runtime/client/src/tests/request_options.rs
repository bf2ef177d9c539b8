//! Requests with request options.

use kube::api::{DeleteParams, PostParams, Preconditions};

use super::*;
use crate::stack::in_flight::MAX_IN_FLIGHT;
use crate::{RequestOptions, timed_out};

fn worker(world: &World, options: RequestOptions) -> (kube::Client, Arc<TestLog>) {
    let log = Arc::<TestLog>::default();
    let clients = world.clients.for_controller("test-controller").unwrap().with(options);
    (clients.worker(Arc::clone(&log) as Arc<dyn WriteLog>, None), log)
}

#[tokio::test(start_paused = true)]
async fn timeout_option_replaces_that_of_the_process() {
    for limit in [1, 600] {
        let world = World::new(hang);
        let (client, _log) = worker(&world, RequestOptions::within(seconds(limit)));
        assert!(timed_out(&config_maps(client.clone()).get("a").await.unwrap_err()));
        assert_eq!(world.env.now().since_origin(), seconds(limit));
        assert!(timed_out(&create(&client).await.unwrap_err()));
        let query = world.seen()[1].uri.query().unwrap().to_owned();
        assert_eq!(query, format!("&timeout={}ms", limit * 1000).trim_start_matches('&'));
    }
}

#[tokio::test(start_paused = true)]
async fn request_without_timeout_ends_with_its_response() {
    let late = |env: Env| {
        move |_: &Seen| {
            let env = env.clone();
            async move {
                env.sleep(seconds(86_400)).await;
                reply(200, CREATED).await
            }
            .boxed()
        }
    };
    let clock: Arc<Mutex<Option<Env>>> = Arc::default();
    let theirs = Arc::clone(&clock);
    let world = World::new(move |seen| late(theirs.lock().unwrap().clone().unwrap())(seen));
    *clock.lock().unwrap() = Some(world.env.clone());
    let (client, _log) = worker(&world, RequestOptions::within(Duration::MAX));
    config_maps(client.clone()).get("a").await.unwrap();
    create(&client).await.unwrap();
    assert_eq!(world.env.now().since_origin(), seconds(2 * 86_400));
}

#[tokio::test(start_paused = true)]
async fn requests_without_time_limit_do_not_block_others() {
    let world = World::new(hang);
    let (endless, _log) = worker(&world, RequestOptions::within(Duration::MAX));
    for _ in 0..MAX_IN_FLIGHT {
        let maps = config_maps(endless.clone());
        drop(world.env.spawn("endless", async move { maps.get("a").await.map(drop) }));
    }
    let (client, _log) = worker(&world, RequestOptions::default());
    assert!(timed_out(&config_maps(client).get("a").await.unwrap_err()));
    assert_eq!(world.seen().len(), MAX_IN_FLIGHT + 1);
}

#[tokio::test(start_paused = true)]
async fn dry_run_marks_every_write_and_is_not_logged() {
    let world = World::new(answer(200, CREATED));
    let (client, log) = worker(&world, RequestOptions::dry_run());
    let maps = config_maps(client.clone());
    maps.get("a").await.unwrap();
    create(&client).await.unwrap();
    maps.replace("a", &PostParams::default(), &config_map()).await.unwrap();
    let uid = Preconditions { uid: Some("u-1".into()), resource_version: None };
    maps.delete("a", &DeleteParams { preconditions: Some(uid), ..Default::default() }).await.unwrap();
    let seen = world.seen();
    let is_dry = |seen: &Seen| seen.uri.query().is_some_and(|it| it.split('&').any(|it| it == "dryRun=All"));
    assert_eq!(seen.iter().map(is_dry).collect::<Vec<_>>(), [false, true, true, true]);
    // The server reads the options of a deletion from its body.
    let options: serde_json::Value = serde_json::from_slice(&seen[3].body).unwrap();
    assert_eq!((&options["dryRun"][0], &options["preconditions"]["uid"]), (&"All".into(), &"u-1".into()));
    assert!(log.is_empty());
}

#[tokio::test(start_paused = true)]
async fn dry_run_of_delete_with_invalid_options_is_not_sent() {
    let world = World::new(answer(200, CREATED));
    let (client, _log) = worker(&world, RequestOptions::dry_run());
    let request =
        http::Request::delete("/api/v1/namespaces/web/configmaps/a").body(b"a: b".to_vec()).unwrap();
    let error = client.request_text(request).await.unwrap_err();
    assert!(crate::one_line(&error).contains("write them in JSON"), "{error:?}");
    assert!(world.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn unset_request_options_keep_their_value() {
    let world = World::new(answer(200, CREATED));
    let clients = world.clients.for_controller("test-controller").unwrap();
    let both = clients.with(RequestOptions::dry_run()).with(RequestOptions::within(seconds(1))).options();
    assert_eq!(both, RequestOptions { timeout: Some(seconds(1)), dry_run: true });
    assert_eq!(
        clients.with(RequestOptions::within(seconds(1))).with(RequestOptions::dry_run()).options(),
        both
    );
    assert_eq!(clients.options(), RequestOptions::default());
}
