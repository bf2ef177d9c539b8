use k8s_openapi::api::{authorization::v1::SelfSubjectAccessReview, coordination::v1::Lease};

use super::*;
use crate::{FencedError, fenced, killed};

fn until(env_at: Duration) -> FenceState {
    FenceState::Until(Instant::ORIGIN + env_at)
}

fn timeout_of(seen: &Seen) -> Duration {
    let value = windlass_object::request::parameter(seen.uri.query(), "timeout")
        .expect("a fenced write has a timeout parameter");
    Duration::from_millis(value.strip_suffix("ms").unwrap().parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn fenced_write_after_the_deadline_is_never_sent() {
    let fence = TestFence::new(until(seconds(10)));
    let world = World::fenced(&fence, answer(201, CREATED));
    let client = world.client();
    world.env.sleep_until(Instant::ORIGIN + Duration::from_millis(9_001)).await;
    for _ in 0..3 {
        let error = create(&client).await.unwrap_err();
        assert_eq!(fenced(&error), Some(&FencedError::NotSent));
        world.env.sleep(seconds(5)).await;
    }
    fence.state.set(FenceState::Closed);
    assert_eq!(fenced(&create(&client).await.unwrap_err()), Some(&FencedError::NotSent));
    assert!(world.seen().is_empty(), "{:?}", world.seen());
}

#[tokio::test(start_paused = true)]
async fn timeout_parameter_is_positive_and_within_remaining_time() {
    let fence = TestFence::new(FenceState::Open);
    let world = World::fenced(&fence, answer(201, CREATED));
    let client = world.client();
    for remaining in
        [1_000_000, 1_000_001, 1_999_999, 2_000_000, 9_876_543, 59_999_999, 60_000_000, 3_600_000_000]
    {
        let remaining = Duration::from_micros(remaining);
        fence.state.set(FenceState::Until(world.env.now() + remaining));
        create(&client).await.unwrap();
        let timeout = timeout_of(world.seen().last().unwrap());
        assert!(timeout <= remaining && timeout <= seconds(60), "{timeout:?} of {remaining:?}");
        assert!(timeout >= seconds(1), "{timeout:?} of {remaining:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_parameter_contains_the_time_until_a_standby_can_write() {
    let options = ClientOptions {
        unacknowledged_timeout: seconds(2),
        fence_allowance: seconds(5),
        ..ClientOptions::default()
    };
    let fence = TestFence::new(until(seconds(8)));
    let world = World::with(options, |_| Arc::clone(&fence) as Arc<dyn Fence>, answer(201, CREATED));
    create(&world.client()).await.unwrap();
    assert_eq!(timeout_of(world.seen().last().unwrap()), seconds(11));
}

#[tokio::test(start_paused = true)]
async fn fence_is_checked_after_the_rate_limiter() {
    let options = ClientOptions { qps: 1.0, burst: 1, ..ClientOptions::default() };
    let fence = TestFence::new(until(Duration::from_millis(2_500)));
    let world = World::with(options, |_| Arc::clone(&fence) as Arc<dyn Fence>, answer(201, CREATED));
    let client = world.client();
    let results: Vec<_> = futures_util::future::join_all((0..3).map(|_| create(&client))).await;
    assert!(results[0].is_ok() && results[1].is_ok());
    assert_eq!(fenced(results[2].as_ref().unwrap_err()), Some(&FencedError::NotSent), "0.5 s were left");
    let timeouts: Vec<_> = world.seen().iter().map(timeout_of).collect();
    assert_eq!(timeouts, [Duration::from_millis(2_500), Duration::from_millis(1_500)]);
}

#[tokio::test(start_paused = true)]
async fn write_in_flight_is_dropped_when_the_fence_closes() {
    let fence = TestFence::new(until(seconds(30)));
    let world = World::fenced(&fence, hang);
    let client = world.client();
    let closing = async {
        world.env.sleep(seconds(5)).await;
        fence.state.set(FenceState::Closed);
    };
    let (result, ()) = futures_util::future::join(create(&client), closing).await;
    assert_eq!(fenced(&result.unwrap_err()), Some(&FencedError::Interrupted));
    assert_eq!(world.env.now().since_origin(), seconds(5));
}

#[tokio::test(start_paused = true)]
async fn lease_renewal_moves_the_deadline_and_drops_no_write() {
    let fence = TestFence::new(until(seconds(2)));
    let world = World::fenced(&fence, |_| {
        async {
            // Simulates a slow server: longer than the first deadline, shorter than the second.
            let env = Env::virtual_time(0);
            env.sleep(Duration::from_secs(4)).await;
            Response::new(full(CREATED.into()))
        }
        .boxed()
    });
    let client = world.client();
    let renewing = async {
        world.env.sleep(seconds(1)).await;
        fence.state.set(until(seconds(20)));
    };
    let (result, ()) = futures_util::future::join(create(&client), renewing).await;
    assert!(result.is_ok(), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn closed_fence_passes_reads_and_blocks_all_writes() {
    let fence = TestFence::new(FenceState::Closed);
    let world = World::fenced(&fence, answer(200, r#"{"metadata":{"name":"a"}}"#));
    let client = world.client();
    assert!(config_maps(client.clone()).get("a").await.is_ok());
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let error = leases.create(&Default::default(), &Lease::default()).await.unwrap_err();
    assert_eq!(fenced(&error), Some(&FencedError::NotSent), "a Lease written by a controller is fenced");
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client);
    let error = reviews.create(&Default::default(), &SelfSubjectAccessReview::default()).await.unwrap_err();
    assert_eq!(fenced(&error), Some(&FencedError::NotSent));
    assert_eq!(world.seen().len(), 1);
    assert_eq!(world.seen()[0].uri.query().unwrap_or_default(), "");
    let reviews: Api<SelfSubjectAccessReview> = Api::all(world.clients.for_reviews().unwrap());
    reviews.create(&Default::default(), &SelfSubjectAccessReview::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn election_client_skips_fence_and_rate_limiter() {
    let options = ClientOptions { qps: 0.001, burst: 1, ..ClientOptions::default() };
    let world = World::with(options, |_| TestFence::new(FenceState::Closed), answer(201, CREATED));
    let election = world.clients.for_election().unwrap();
    for _ in 0..5 {
        create(&election).await.unwrap();
    }
    assert_eq!(world.arrivals(), [0; 5]);
}

#[tokio::test(start_paused = true)]
async fn unfenced_write_has_the_timeout_of_its_caller() {
    let world = World::new(answer(201, CREATED));
    create(&world.client()).await.unwrap();
    create(&world.clients.for_election().unwrap()).await.unwrap();
    assert_eq!(world.seen().iter().map(timeout_of).collect::<Vec<_>>(), [seconds(60); 2]);
}

#[tokio::test(start_paused = true)]
async fn killed_environment_sends_nothing() {
    let world = World::new(answer(200, CREATED));
    let (client, election) = (world.client(), world.clients.for_election().unwrap());
    world.env.kill();
    assert!(killed(&config_maps(client).get("a").await.unwrap_err()));
    assert!(killed(&create(&election).await.unwrap_err()));
    assert!(world.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn response_after_sleep_past_the_deadline_is_discarded() {
    // The deadline passes without a timer, as when the machine sleeps: timers do not fire, but the clock advances.
    let fence = TestFence::new(until(seconds(5)));
    let world = World::fenced(&fence, |_| {
        async {
            Env::virtual_time(0).sleep(Duration::from_secs(6)).await;
            Response::new(full(CREATED.into()))
        }
        .boxed()
    });
    let result = create(&world.client()).await;
    assert_eq!(fenced(&result.unwrap_err()), Some(&FencedError::Interrupted));
    assert_eq!(world.env.now().since_origin(), seconds(6));
}

#[tokio::test(start_paused = true)]
async fn clients_with_own_fence_share_the_rest_of_their_identity() {
    let of_all = TestFence::new(FenceState::Closed);
    let own = TestFence::new(FenceState::Open);
    let world = World::fenced(&of_all, answer(201, CREATED));
    let clients = world.clients.for_controller("test-controller").unwrap();
    let behind = clients.with_fence(Arc::clone(&own) as _);
    for client in [behind.client(), behind.worker(Arc::<TestLog>::default(), None)] {
        create(&client).await.unwrap();
    }
    assert_eq!(fenced(&create(&clients.client()).await.unwrap_err()), Some(&FencedError::NotSent));
    own.state.set(FenceState::Closed);
    assert_eq!(fenced(&create(&behind.client()).await.unwrap_err()), Some(&FencedError::NotSent));
    assert_eq!(world.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn queued_request_is_not_sent_when_its_fence_closes() {
    let options = ClientOptions { qps: 1.0, burst: 1, ..ClientOptions::default() };
    let world = World::with(options, |_| TestFence::new(FenceState::Open), answer(201, CREATED));
    let own = TestFence::new(FenceState::Open);
    let clients = world.clients.for_controller("test-controller").unwrap();
    let client = clients.with_fence(Arc::clone(&own) as _).client();
    let closing = async {
        world.env.sleep(Duration::from_millis(500)).await;
        own.state.set(FenceState::Closed);
    };
    let ((), first, second) = futures_util::future::join3(closing, create(&client), create(&client)).await;
    assert!(first.is_ok(), "it is sent immediately");
    assert_eq!(fenced(&second.unwrap_err()), Some(&FencedError::NotSent));
}
