//! Tests with user code that blocks threads, on real threads and in real time: renewals continue, and a stop does not
//! wait for it indefinitely.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Time for which each reconcile blocks its thread: longer than the renew deadline.
const BUSY: Duration = Duration::from_secs(4);

/// Never awaits.
struct Hog;

impl Controller for Hog {
    const NAME: &'static str = "hog";
    /// The gate that blocks its mapper, if set.
    type Config = Option<Gate>;

    fn setup(setup: &mut Setup, gate: &Option<Gate>) -> Result<Self, SetupError> {
        setup.workers(4);
        let watch = setup.watch::<ConfigMap>();
        match gate.clone() {
            Some(gate) => watch.enqueue(move |map: &ConfigMap| gate.pass(map)),
            None => watch.enqueue(by_self),
        };
        Ok(Self)
    }

    async fn reconcile(&self, _: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let begun = cx.env().now();
        while since(cx.env(), begun) < BUSY {
            std::hint::spin_loop();
        }
        Ok(Outcome::Done)
    }
}

/// Returns a configuration with leases that expire within three seconds.
fn of_short_leases() -> ManagerConfig {
    let mut config = ManagerConfig::new("one");
    let election = config.election.as_mut().expect("elected");
    election.lease_duration = Duration::from_secs(3);
    election.renew_deadline = Duration::from_millis(2_500);
    election.retry_period = Duration::from_millis(400);
    config
}

// parity: renewals-next-workers-scheduler
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_is_renewed_while_workers_block_every_thread() {
    let env = Env::system("one");
    let api = FaultyServer::new(&env, FaultPlan { seed: 3, faults: Vec::new() });
    api.upsert("/api/v1/namespaces/shop", json!({}));
    for name in ["a", "b", "c", "d"] {
        api.upsert(&format!("/api/v1/namespaces/shop/configmaps/{name}"), json!({}));
    }
    let world = World::of(env.clone(), api);
    let manager = world.manager(&env, of_short_leases()).register(Registration::controller::<Hog>());
    let (trigger, signals) = ShutdownSignals::manual();
    let (metrics, begun) = (manager.metrics().clone(), env.now());
    let run = env.spawn("manager", manager.run(signals));
    let done = metrics.reconcile("hog").total.success;
    while done.get() < 4 {
        assert!(!run.is_finished(), "the lease was lost");
        assert!(since(&env, begun) < Duration::from_secs(60), "the reconciles do not end");
        env.sleep(Duration::from_millis(100)).await;
    }
    trigger.fire();
    assert!(matches!(run.await, Ok(Ok(()))), "it led to the end");
}

impl World {
    /// Returns the Leases of a replica's shards and of its membership, by name. The plan is not renewed.
    fn held_by(&self, replica: &str) -> BTreeMap<String, Value> {
        let leases = self.api.all("/apis/coordination.k8s.io/v1/leases").into_iter();
        let held = leases.filter(|lease| lease["spec"]["holderIdentity"] == replica);
        let named = held.map(|lease| {
            let name = lease["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            (name, lease["spec"].clone())
        });
        named.filter(|(name, _)| *name != "windlass-shards").collect()
    }
}

/// Waits until a condition holds, with a time limit for busy machines.
async fn until(env: &Env, what: &str, holds: impl Fn() -> bool) {
    let begun = env.now();
    while !holds() {
        assert!(since(env, begun) < Duration::from_secs(60), "{what}");
        env.sleep(Duration::from_millis(100)).await;
    }
}

// parity: renewals-next-workers-scheduler
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_and_membership_are_renewed_while_threads_are_blocked() {
    let env = Env::system("one");
    let world = World::of(env.clone(), FaultyServer::new(&env, FaultPlan { seed: 3, faults: Vec::new() }));
    let config = ManagerConfig { shards: NonZeroU16::new(2), ..of_short_leases() };
    let manager = world.manager(&env, config).register(Registration::controller::<Hog>());
    let (trigger, signals) = ShutdownSignals::manual();
    let metrics = manager.metrics().clone();
    let run = env.spawn("manager", manager.run(signals));
    // A claim can be repeated before the shard is acquired.
    let held = metrics.shards("windlass").held;
    until(&env, "it holds both and is a member", || held.get() == 2 && world.held_by("one").len() == 3).await;
    let before = world.held_by("one");
    // More than there are threads, and enough for both shards.
    for number in 0..8 {
        world.api.upsert(&format!("/api/v1/namespaces/shop-{number}"), json!({}));
        world.api.upsert(&format!("/api/v1/namespaces/shop-{number}/configmaps/web"), json!({}));
    }
    let done = metrics.reconcile("hog").total.success;
    until(&env, "the reconciles end", || done.get() >= 8).await;
    let after = world.held_by("one");
    assert!(!run.is_finished() && before.keys().eq(after.keys()), "{after:?}");
    for (lease, then) in &before {
        let now = &after[lease];
        for term in ["acquireTime", "leaseTransitions"] {
            assert_eq!(then[term], now[term], "{lease} was never lost");
        }
        assert_ne!(then["renewTime"], now["renewTime"], "{lease} was renewed");
    }
    assert_eq!(done.get(), 8, "no key was reconciled twice");
    trigger.fire();
    assert!(matches!(run.await, Ok(Ok(()))), "it worked to the end");
}

/// Blocks the first call of a mapper until the barrier is released.
#[derive(Clone)]
struct Gate {
    barrier: Arc<Barrier>,
    called: Arc<AtomicBool>,
}

impl Gate {
    fn pass(&self, map: &ConfigMap) -> Vec<ObjectKey> {
        if !self.called.swap(true, Ordering::SeqCst) {
            self.barrier.wait();
        }
        by_self(map)
    }
}

fn blocked_by(barrier: &Arc<Barrier>, called: &Arc<AtomicBool>) -> Registration {
    let gate = Gate { barrier: Arc::clone(barrier), called: Arc::clone(called) };
    Registration::controller_with::<Hog>(Some(gate)).with_descriptor(Descriptor::new("blocked"))
}

// parity: slow-handler-blocks-shutdown
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn blocked_handler_times_out_after_lease_release() {
    let env = Env::system("one");
    let api = FaultyServer::new(&env, FaultPlan { seed: 3, faults: Vec::new() });
    api.upsert("/api/v1/namespaces/shop", json!({}));
    let world = World::of(env.clone(), api);
    let (gate, called) = (Arc::new(Barrier::new(2)), Arc::default());
    let config = ManagerConfig { shutdown_timeout: Duration::from_secs(1), ..ManagerConfig::new("one") };
    let manager = world.manager(&env, config).register(blocked_by(&gate, &called));
    let (trigger, signals) = ShutdownSignals::manual();
    let run = env.spawn("manager", manager.run(signals));
    let soon = env.now() + Duration::from_secs(60);
    while world.holder() != json!("one") {
        assert!(env.now() < soon, "it does not lead");
        env.sleep(Duration::from_millis(20)).await;
    }
    world.api.upsert(MAP, json!({}));
    while !called.load(Ordering::SeqCst) {
        assert!(env.now() < soon, "the mapper is not called");
        env.sleep(Duration::from_millis(20)).await;
    }
    trigger.fire();
    let ended = env.timeout(Duration::from_secs(30), run).await;
    gate.wait();
    assert!(matches!(ended, Ok(Ok(Err(ManagerError::InformersStuck { .. })))), "{ended:?}");
    assert_eq!(world.holder(), json!(""), "the lease was released");
}
