//! Keys whose shard is being taken over.

use std::sync::atomic::{AtomicUsize, Ordering};

use windlass_object::shard::ShardId;
use windlass_sharding::{KeyOwnership, Ownership};
use windlass_workqueue::{AddOptions, Priority, Queue};

use super::*;

/// A shard that stays pending for this number of checks.
struct Takeover(AtomicUsize);

impl KeyOwnership for Takeover {
    fn ownership(&self, _: &ObjectKey) -> Ownership {
        match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |checks| checks.checked_sub(1)) {
            Ok(_) => Ownership::Pending { shard: ShardId(3) },
            Err(_) => Ownership::Owned(None),
        }
    }
}

/// A controller that records the priorities of its reconciles, with its queue.
async fn start_during(
    takeover: &Arc<Takeover>,
) -> (World, Workers, Queue<ObjectKey>, Arc<Mutex<Vec<Priority>>>) {
    let (world, queue) = (World::with(&[]), Arc::new(Mutex::new(None)));
    let (theirs, seen) = (Arc::clone(&queue), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&seen);
    let wire = move |setup: &mut Setup| *theirs.lock().expect("whole") = Some(setup.queue());
    let act = move |_, cx: Context| {
        noted.lock().expect("whole").push(cx.priority());
        async { Ok(Outcome::Done) }
    };
    let scope: Arc<dyn KeyOwnership> = Arc::<Takeover>::clone(takeover);
    let readied = world.ready_in(scope, world.scripted(wire, act));
    let workers = readied.prepared.start(readied.resources).await.expect("started");
    let queue = queue.lock().expect("whole").take().expect("set up");
    (world, workers, queue, seen)
}

#[tokio::test(start_paused = true)]
async fn parked_key_keeps_its_priority_when_its_shard_is_acquired() {
    let takeover = Arc::new(Takeover(AtomicUsize::new(usize::MAX)));
    let (world, workers, queue, seen) = start_during(&takeover).await;
    for priority in [Priority(42), Priority::LOW] {
        queue.add_with(ObjectKey::cluster("m"), AddOptions::now().priority(priority));
        world.pass(60).await;
    }
    workers.shard_handoff().resume_parked();
    world.pass(60).await;
    assert_eq!(*seen.lock().expect("whole"), [], "still pending");
    takeover.0.store(0, Ordering::SeqCst);
    workers.shard_handoff().resume_parked();
    world.pass(60).await;
    assert_eq!(*seen.lock().expect("whole"), [Priority(42)]);
}

#[tokio::test(start_paused = true)]
async fn key_is_not_lost_when_its_shard_is_acquired_while_it_is_parked() {
    let takeover = Arc::new(Takeover(AtomicUsize::new(1)));
    let (world, _workers, queue, seen) = start_during(&takeover).await;
    queue.add(ObjectKey::cluster("m"));
    world.pass(60).await;
    assert_eq!(*seen.lock().expect("whole"), [Priority::NORMAL]);
}
