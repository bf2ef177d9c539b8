//! The shard table with one writer thread and several readers. `cargo xtask miri` runs this test and reports data races
//! and snapshots that are read after they were freed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use windlass_client::FenceState;
use windlass_election::{LeaderFence, PreviousHolder, WrittenVersions};
use windlass_env::Env;
use windlass_object::ObjectKey;
use windlass_object::shard::{HashRanges, ShardId};

use crate::ownership::Ownership;
use crate::shard_table::{HeldShard, KeyPosition, ShardTable};

/// Number of times that a shard is acquired and released. Miri is a thousand times slower; it should run many orders of
/// a few changes.
const ROUNDS: usize = if cfg!(miri) { 6 } else { 2_000 };

const ONLY: ShardId = ShardId(0);

#[test]
fn key_is_owned_only_between_start_and_stop_on_every_thread() {
    let (env, table, over) = (Env::virtual_time(1), ShardTable::default(), AtomicBool::new(false));
    let (keys, fence, key) =
        (table.ownership("ours", KeyPosition::OfKey), table.fence(), ObjectKey::namespaced("shop", "a"));
    // The latest round; relaxed, so that only the table orders it with its state.
    let (started, reads) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let mut last = 0;
                while !over.load(Ordering::Acquire) {
                    match keys.ownership(&key) {
                        Ownership::Owned(fence) => {
                            let round = started.load(Ordering::Relaxed);
                            assert!(round > 0 && round >= last, "a read observed the shard before its start");
                            assert_eq!(fence.expect("a shard's").state(), FenceState::Closed, "never opened");
                            last = round;
                        }
                        Ownership::Pending { shard } | Ownership::NotOwned { shard, .. } => {
                            assert_eq!(shard, ONLY);
                        }
                    }
                    assert_eq!(fence.state(), FenceState::Closed);
                    assert!(table.stages().len() <= 1 && table.overview().members.is_empty());
                    reads.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                }
            });
        }
        for round in 1..=ROUNDS {
            let held = HeldShard::new(
                HashRanges::whole(),
                LeaderFence::new(env.clone()),
                PreviousHolder::Unreported,
            );
            table.join(ONLY, held.clone());
            started.store(round, Ordering::Relaxed);
            assert!(table.start(ONLY, &held, "ours", 1, &WrittenVersions::new()));
            std::thread::yield_now();
            assert!(table.stop(ONLY).is_some() && held.leaving().is_cancelled());
            assert!(table.leave(ONLY).is_some_and(|held| held.record().is_some()), "it was not lost");
        }
        while reads.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        over.store(true, Ordering::Release);
    });
    assert!(matches!(keys.ownership(&key), Ownership::NotOwned { .. }));
}
