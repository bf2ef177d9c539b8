//! Tests of liveness: stuck watches and workers fail it by name, quiet and slow ones do not.

use windlass_admin::CheckResult;

use super::*;

/// Maximum duration of a watch. A watch without progress for twice this time is stuck.
const WINDOW: Duration = Duration::from_secs(200);

/// Interval of probes.
const PROBED_INTERVAL: Duration = Duration::from_secs(10);

/// Reconciles each key for a fixed time of its clock.
struct Sluggish {
    takes: Duration,
}

/// Registers the controller with an optional reconcile timeout.
fn sluggish(takes: Duration, limit: Option<Duration>) -> Registration {
    Registration::controller_with::<Sluggish>(takes)
        .with_settings(move |setup| setup.reconcile_timeout(limit))
}

impl Controller for Sluggish {
    const NAME: &'static str = "sluggish";
    type Config = Duration;

    fn setup(setup: &mut Setup, takes: &Duration) -> Result<Self, SetupError> {
        setup.primary::<ConfigMap>();
        Ok(Self { takes: *takes })
    }

    async fn reconcile(&self, _: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        cx.env().sleep(self.takes).await;
        Ok(Outcome::Done)
    }
}

fn alone() -> ManagerConfig {
    ManagerConfig { election: None, ..ManagerConfig::new("one") }
}

impl Replica {
    /// Returns the failing liveness checks with their reasons.
    fn ailing(&self) -> Vec<(String, String)> {
        let failed = |CheckResult { name, outcome }| Some((name, outcome.err()?));
        self.health.report(Probe::Live).results.into_iter().filter_map(failed).collect()
    }

    /// Returns the first failing check with its delay; `None` if liveness passes for `within`.
    async fn first_ailment(&self, world: &World, within: Duration) -> Option<(Duration, String, String)> {
        let begun = world.env.now();
        while since(&world.env, begun) < within {
            if let Some((check, why)) = self.ailing().into_iter().next() {
                return Some((since(&world.env, begun), check, why));
            }
            world.env.sleep(PROBED_INTERVAL).await;
        }
        None
    }

    /// Returns the time until liveness passes again.
    async fn recovers(&self, world: &World) -> Duration {
        let begun = world.env.now();
        while !self.ailing().is_empty() {
            assert!(since(&world.env, begun) < Duration::from_secs(7200), "{:?}", self.ailing());
            world.env.sleep(PROBED_INTERVAL).await;
        }
        since(&world.env, begun)
    }
}

// parity: check-per-controller-most
#[tokio::test(start_paused = true)]
async fn stuck_watch_fails_liveness_by_kind_until_it_makes_progress() {
    let world = World::new();
    // With the default, every request ends long before, and each end counts as progress.
    let client = ClientOptions { request_timeout: WINDOW * 4, ..ClientOptions::default() };
    let replica = world.start_both(ManagerConfig { client, ..alone() });
    world.pass(60).await;
    assert_eq!((replica.ailing(), replica.ready()), (vec![], true));
    world.fail("secrets", FaultAction::RequestLost { silently: true });
    let (after, check, why) = replica.first_ailment(&world, WINDOW * 4).await.expect("it is stuck");
    assert_eq!(check, "watches");
    assert!(
        why.starts_with("the informer of secrets") && why.contains("has made no progress for 40"),
        "{why}"
    );
    // Open watches last for up to one window more.
    assert!((WINDOW * 2..=WINDOW * 3 + PROBED_INTERVAL).contains(&after), "{after:?}");
    assert_eq!(replica.ailing().len(), 1, "the other watch is quiet, and no informer has died");
    let shown = replica.health.report(Probe::Live);
    assert!(shown.details().contains("[-]watches failed: reason withheld\n"), "{}", shown.details());
    world.api.inject_fault(|_| None);
    let recovered = replica.recovers(&world).await;
    assert!(
        (WINDOW..=WINDOW * 2 + PROBED_INTERVAL).contains(&recovered),
        "as the request ends: {recovered:?}"
    );
    assert_eq!(replica.first_ailment(&world, WINDOW * 4).await, None, "and it stays well");
    replica.stops().await;
}

// parity: check-per-controller-most
#[tokio::test(start_paused = true)]
async fn quiet_watch_never_fails_liveness() {
    for what in [
        None,
        Some(FaultAction::BookmarksMissing),
        Some(FaultAction::WatchStalled),
        Some(FaultAction::RequestLost { silently: true }),
        Some(FaultAction::Unavailable),
    ] {
        let world = World::new();
        let replica = world.start_both(alone());
        world.pass(60).await;
        if let Some(what) = &what {
            world.fail("secrets", what.clone());
        }
        let ailment = replica.first_ailment(&world, WINDOW * 10).await;
        assert_eq!(ailment, None, "{what:?}");
        replica.dies().await;
    }
}

// parity: check-per-controller-most
#[tokio::test(start_paused = true)]
async fn worker_past_reconcile_timeout_fails_liveness_by_key() {
    let world = World::new();
    let limit = Duration::from_secs(10);
    let replica = world.start_controller(alone(), sluggish(Duration::from_secs(3600), Some(limit)));
    world.pass(5).await;
    assert_eq!(replica.ailing(), []);
    // Simulates a reconcile that never awaits: its thread is blocked, so its timeout cannot fire.
    let kept = replica.env.pause();
    world.pass(55).await;
    assert_eq!(replica.ailing(), [], "a worker has another minute outside of its reconcile");
    let (_, check, why) = replica.first_ailment(&world, limit * 3).await.expect("it is stuck");
    assert_eq!(check, "sluggish");
    assert!(why.starts_with("shop/web has been reconciled for "), "{why}");
    drop(kept);
    world.pass(1).await;
    assert_eq!(replica.ailing(), [], "its timeout has ended it");
    assert_eq!(replica.metrics.reconcile("sluggish").timeouts.get(), 1);
    replica.dies().await;
}

// parity: check-per-controller-most
#[tokio::test(start_paused = true)]
async fn timed_out_reconciles_never_fail_liveness() {
    let world = World::new();
    let limit = Duration::from_secs(10);
    let replica = world.start_controller(alone(), sluggish(Duration::from_secs(3600), Some(limit)));
    assert_eq!(replica.first_ailment(&world, Duration::from_secs(3600)).await, None);
    assert!(replica.metrics.reconcile("sluggish").timeouts.get() > 10);
    replica.dies().await;
}

// parity: check-per-controller-most
#[tokio::test(start_paused = true)]
async fn long_reconcile_without_timeout_fails_liveness_after_limit() {
    let world = World::new();
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let replica = world.start_controller(alone(), sluggish(minutes(29), None));
    assert_eq!(replica.first_ailment(&world, minutes(60)).await, None, "29 minutes are not too long");
    replica.dies().await;

    let world = World::new();
    let replica = world.start_controller(alone(), sluggish(minutes(40), None));
    let (after, check, why) = replica.first_ailment(&world, minutes(60)).await.expect("it is stuck");
    assert!((minutes(30)..=minutes(30) + PROBED_INTERVAL * 2).contains(&after), "{after:?}");
    assert_eq!(check, "sluggish");
    assert!(why.starts_with("shop/web has been reconciled for "), "{why}");
    let recovered = replica.recovers(&world).await;
    assert!(recovered <= minutes(10) + PROBED_INTERVAL, "as it ends: {recovered:?}");
    replica.dies().await;
}
