//! Controllers of several parts, and controllers that do not run.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::ControllerSelection;
use windlass_controller::{BoxError, Runnable, RunnableContext};

/// Counts its reconciles.
struct Count(Arc<AtomicUsize>);

impl Controller for Count {
    const NAME: &'static str = "count-controller";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.primary::<ConfigMap>();
        Ok(Self(setup.shared()))
    }

    async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Outcome::Done)
    }
}

/// Writes the number of reconciles of [`Count`] into each ConfigMap.
struct WriteCount(Arc<AtomicUsize>);

impl Controller for WriteCount {
    const NAME: &'static str = "count-controller-writer";
    const DESCRIPTOR: Descriptor = Count::DESCRIPTOR.part(Self::NAME);
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Patch]);
        setup.primary::<ConfigMap>();
        Ok(Self(setup.shared()))
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let count = self.0.load(Ordering::Relaxed);
        if count == 0 {
            return Ok(Outcome::RequeueAfter(Duration::from_secs(1)));
        }
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "shop");
        let patch = Patch::Merge(json!({ "data": { "scribe": count.to_string() } }));
        maps.patch(key.name(), &PatchParams::default(), &patch).await?;
        Ok(Outcome::Done)
    }
}

/// Returns a replica with both parts, after its controllers have started.
async fn replica(world: &World, selection: &str) -> Replica {
    let controllers = ControllerSelection::parse(selection.split(','));
    let env = world.env.with_incarnation("one", 0);
    let manager = world.manager(&env, ManagerConfig { controllers, ..ManagerConfig::new("one") });
    let manager = manager
        .register(Registration::controller::<Count>())
        .register(Registration::controller::<WriteCount>());
    let replica = world.run(env, manager);
    world.pass(5).await;
    replica
}

#[tokio::test(start_paused = true)]
async fn parts_share_values_and_are_disabled_together() {
    for (selection, has_written) in [("*", true), ("count-controller", true), ("-count-controller,*", false)]
    {
        let world = World::new();
        let replica = replica(&world, selection).await;
        assert_eq!(world.scribbled() != Value::Null, has_written, "{selection}");
        replica.trigger.fire();
        assert!(replica.ended().await.is_ok());
    }
}

#[test]
fn parts_have_one_role() {
    let env = Env::virtual_time(1);
    let mut registry = Registry::new();
    for registration in [Registration::controller::<Count>(), Registration::controller::<WriteCount>()] {
        registry.register(registration).expect("registered");
    }
    let config = ManagerConfig { election: None, ..ManagerConfig::new("me") };
    let declared = registry.declarations_for(&env, &config).expect("declared");
    let clients: Vec<_> = declared.iter().map(|one| one.descriptor.client_name).collect();
    assert_eq!(clients[..2], [Count::NAME; 2]);
}

#[test]
fn part_is_registered_after_its_controller() {
    let error = Registry::new().register(Registration::controller::<WriteCount>()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot register count-controller-writer: it is a part of count-controller; register count-controller first"
    );
}

struct Absent;

impl Controller for Absent {
    const NAME: &'static str = "absent";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Delete]);
        Err(SetupError::absent("its gate is off"))
    }

    async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
        Ok(Outcome::Done)
    }
}

/// A part of a controller that does not run.
struct PartOfAbsent;

impl Controller for PartOfAbsent {
    const NAME: &'static str = "absent-part";
    const DESCRIPTOR: Descriptor = Absent::DESCRIPTOR.part("absent-first-part").part(Self::NAME);
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.primary::<ConfigMap>();
        Ok(Self)
    }

    async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
        panic!("its controller does not run")
    }
}

struct AbsentRunnable;

impl Runnable for AbsentRunnable {
    const NAME: &'static str = "absent-runnable";
    type Config = ();

    fn setup(_: &mut Setup, (): &()) -> Result<Self, SetupError> {
        Err(SetupError::absent("its gate is off"))
    }

    async fn run(&self, _: RunnableContext) -> Result<(), BoxError> {
        Err("it must not run".into())
    }
}

#[tokio::test(start_paused = true)]
async fn process_starts_without_an_absent_controller_and_its_rules() {
    let world = World::new();
    let env = world.env.with_incarnation("one", 0);
    let manager = world.manager(&env, ManagerConfig::new("one"));
    let manager =
        manager.register(Registration::controller::<Absent>()).register(Registration::controller::<Scribe>());
    let replica = world.run(env, manager);
    world.pass(5).await;
    assert_eq!(world.scribbled(), json!(begun_by("one")));
    replica.trigger.fire();
    assert!(replica.ended().await.is_ok());

    let mut registry = Registry::new();
    for registration in [
        Registration::controller::<Absent>(),
        Registration::controller::<PartOfAbsent>(),
        Registration::runnable::<AbsentRunnable>(()),
    ] {
        registry.register(registration).expect("registered");
    }
    let config = ManagerConfig { election: None, ..ManagerConfig::new("me") };
    let declared = registry.declarations_for(&Env::virtual_time(1), &config).expect("declared");
    assert!(declared.iter().all(|one| !one.descriptor.name.starts_with(Absent::NAME)));
}
