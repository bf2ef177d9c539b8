//! Renewals beside workers that leave nobody a turn, on real threads and in real time.

use super::*;

/// How long each reconcile keeps its thread: longer than the renew deadline.
const BUSY: Duration = Duration::from_secs(4);

/// Never awaits.
struct Hog;

#[async_trait]
impl Controller for Hog {
    const NAME: &'static str = "hog";

    fn setup(setup: &mut Setup) -> Result<Self, SetupError> {
        setup.workers(4);
        setup.watch::<ConfigMap>().enqueue(by_self);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_is_renewed_while_workers_burn_every_thread_of_the_runtime_for_longer_than_its_deadline() {
    let env = Env::system("one");
    let api = Scene::new(&env, Plan { seed: 3, faults: Vec::new() });
    api.put("/api/v1/namespaces/shop", json!({}));
    for name in ["a", "b", "c", "d"] {
        api.put(&format!("/api/v1/namespaces/shop/configmaps/{name}"), json!({}));
    }
    let world = World { env: env.clone(), api };
    let mut config = ManagerConfig::new("one");
    let election = config.election.as_mut().expect("elected");
    election.lease_duration = Duration::from_secs(3);
    election.renew_deadline = Duration::from_millis(2_500);
    election.retry_period = Duration::from_millis(400);
    let manager = world.manager(&env, config).register(Registration::of::<Hog>());
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
