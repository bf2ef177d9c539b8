//! Tests of a manager that was built and does not run.

use super::*;

#[tokio::test(start_paused = true)]
async fn building_a_manager_spawns_no_task_and_sends_no_request() {
    let world = World::new();
    let env = world.env.with_incarnation("one", 0);
    let manager =
        world.manager(&env, ManagerConfig::new("one")).register(Registration::controller::<Scribe>());
    world.pass(60).await;
    assert_eq!(env.tasks(), Vec::<String>::new());
    assert_eq!(world.api.sent_requests().len(), 0);
    let (trigger, signals) = ShutdownSignals::manual();
    let run = world.env.spawn("manager", manager.run(signals));
    world.pass(1).await;
    assert!(!env.tasks().is_empty() && !world.api.sent_requests().is_empty(), "running does both");
    trigger.fire();
    assert!(run.await.expect("no panic").is_ok());
}
