//! The resync period of a manager.

use windlass_informer::FactoryOptions;

use super::*;

const HOUR: u64 = 60 * 60;

/// Records the time of each reconcile.
struct Recorder {
    times: Arc<Mutex<Vec<Instant>>>,
}

impl Controller for Recorder {
    const NAME: &'static str = "recorder";
    type Config = Arc<Mutex<Vec<Instant>>>;

    fn setup(setup: &mut Setup, times: &Self::Config) -> Result<Self, SetupError> {
        setup.primary::<ConfigMap>();
        Ok(Self { times: Arc::clone(times) })
    }

    async fn reconcile(&self, _: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        self.times.lock().expect("not poisoned").push(cx.env().now());
        Ok(Outcome::Done)
    }
}

// parity: sync-period
#[tokio::test(start_paused = true)]
async fn manager_resyncs_after_12_to_24_hours_and_plain_factory_never() {
    assert_eq!(FactoryOptions::default().resync, None);
    let world = World::new();
    let times = Arc::new(Mutex::new(Vec::new()));
    let registration = Registration::controller_with::<Recorder>(Arc::clone(&times));
    let one =
        world.start_controller(ManagerConfig { election: None, ..ManagerConfig::new("one") }, registration);
    world.pass(12 * HOUR - 1).await;
    assert_eq!(times.lock().expect("not poisoned").len(), 1, "the initial list only");
    world.pass(12 * HOUR + 60).await;
    assert_eq!(times.lock().expect("not poisoned").len(), 2, "the initial list and one resync");
    one.stops().await;
}
