use futures_util::future::{join, join_all};

use super::*;
use crate::draining;

fn worker(world: &World) -> (kube::Client, Arc<TestLog>) {
    let log = Arc::<TestLog>::default();
    let clients = world.clients.for_controller("test-controller").unwrap();
    (clients.worker(Arc::clone(&log) as Arc<dyn WriteLog>, None), log)
}

/// Responds after one second.
fn slowly(_: &Seen) -> Reply {
    async {
        Env::virtual_time(0).sleep(seconds(1)).await;
        Response::builder().status(201).body(full(CREATED.into())).unwrap()
    }
    .boxed()
}

async fn drain_after(world: &World, wait: Duration) {
    world.env.sleep(wait).await;
    world.clients.drain();
}

#[tokio::test(start_paused = true)]
async fn draining_fails_queued_requests_and_awaits_requests_in_flight() {
    let options = ClientOptions { qps: 20.0, burst: 5, ..ClientOptions::default() };
    let world = World::with(options, |_| Arc::new(OpenFence), slowly);
    let (client, log) = worker(&world);
    let writes = join_all((0..500).map(|_| create(&client)));
    let (results, ()) = join(writes, drain_after(&world, Duration::from_millis(10))).await;
    let (done, failed): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((done.len(), failed.len()), (5, 495));
    assert!(failed.iter().all(|result| result.as_ref().is_err_and(draining)));
    assert_eq!(world.env.now().since_origin(), seconds(1), "the caller waits only for requests in flight");
    assert_eq!(
        (log.wrote().len(), log.ambiguous().len()),
        (5, 0),
        "a request that was not sent is not ambiguous"
    );
    let line = r#"windlass_client_requests_total{code="<draining>",identity="test-controller",resource="configmaps",verb="create"} 495"#;
    assert!(world.metrics.encode().lines().any(|it| it == line));
}

#[tokio::test(start_paused = true)]
async fn draining_fails_requests_that_wait_for_a_permit() {
    let world = World::new(slowly);
    let (client, _log) = worker(&world);
    let writes = join_all((0..100).map(|_| create(&client)));
    let (results, ()) = join(writes, drain_after(&world, Duration::from_millis(10))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 64);
    assert_eq!(world.env.now().since_origin(), seconds(1));
}

#[tokio::test(start_paused = true)]
async fn draining_ends_retry_delay_and_skips_later_delays() {
    let busy = || {
        let response = Response::builder().status(429).header("retry-after", "30").body(full(Bytes::new()));
        response.unwrap()
    };
    for slow in [Duration::ZERO, seconds(5)] {
        let world = World::new(move |_| {
            async move {
                Env::virtual_time(0).sleep(slow).await;
                busy()
            }
            .boxed()
        });
        let (client, log) = worker(&world);
        let (result, ()) = join(create(&client), drain_after(&world, seconds(2))).await;
        assert!(draining(&result.unwrap_err()));
        assert_eq!(world.env.now().since_origin(), slow.max(seconds(2)));
        assert!(log.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn after_drain_requests_are_sent_immediately_or_fail() {
    let options = ClientOptions { qps: 20.0, burst: 2, ..ClientOptions::default() };
    let world = World::with(options, |_| Arc::new(OpenFence), answer(201, CREATED));
    let (before, _log) = worker(&world);
    world.clients.drain();
    let (after, log) = worker(&world);
    create(&before).await.unwrap();
    create(&after).await.unwrap();
    for client in [&before, &after] {
        assert!(draining(&create(client).await.unwrap_err()));
        assert!(draining(&config_maps(client.clone()).get("a").await.unwrap_err()));
    }
    assert_eq!((world.arrivals(), log.wrote().len()), (vec![0, 0], 1));
    assert_eq!(world.env.now().since_origin(), Duration::ZERO);
    world.env.sleep(Duration::from_millis(50)).await;
    create(&after).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn drain_does_not_affect_events_informers_and_election() {
    let options = ClientOptions { qps: 20.0, burst: 1, ..ClientOptions::default() };
    let world = World::with(options, |_| Arc::new(OpenFence), answer(201, CREATED));
    world.clients.drain();
    for client in
        [world.client(), world.client(), world.clients.for_election().unwrap(), world.clients.for_health()]
    {
        create(&client).await.unwrap();
    }
    assert_eq!(world.arrivals(), [0, 50, 50, 50]);
}

#[tokio::test(start_paused = true)]
async fn event_is_sent_immediately_after_drain_empties_the_limiter() {
    let options = ClientOptions { qps: 20.0, burst: 1, ..ClientOptions::default() };
    let world = World::with(options, |_| Arc::new(OpenFence), answer(201, CREATED));
    let (client, _log) = worker(&world);
    let event = async {
        drain_after(&world, Duration::from_millis(10)).await;
        create(&world.client()).await.unwrap();
    };
    join(join_all((0..500).map(|_| create(&client))), event).await;
    assert_eq!(world.arrivals(), [0, 50]);
}
