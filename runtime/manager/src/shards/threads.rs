//! The table of shards between one thread that writes it and others that read it. `cargo xtask miri` interprets this test:
//! it objects to a race, and to a snapshot that is read after it was freed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use windlass_client::FenceState;
use windlass_controller::Verdict;
use windlass_election::{LeaderFence, Predecessor};
use windlass_env::Env;
use windlass_object::ObjectKey;
use windlass_object::shard::{Ranges, ShardId};

use super::table::{Held, Table};

/// How often a shard comes and goes. An interpreter takes a thousand times as long; it is to see many orders of a few
/// changes and not one order of many.
const ROUNDS: usize = if cfg!(miri) { 6 } else { 2_000 };

const ONLY: ShardId = ShardId(0);

#[test]
fn a_key_is_ours_only_between_a_shards_opening_and_its_leaving_whichever_thread_asks() {
    let (env, table, over) = (Env::virtual_time(1), Table::default(), AtomicBool::new(false));
    let (scope, fence, key) = (table.scope("ours"), table.fence(), ObjectKey::namespaced("shop", "a"));
    // In which round the shard may be ours at most; relaxed, so that only the table puts this in order with its state.
    let (opened, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let mut last = 0;
                while !over.load(Ordering::Acquire) {
                    match scope.verdict(&key) {
                        Verdict::Mine(fence) => {
                            let round = opened.load(Ordering::Relaxed);
                            assert!(round > 0 && round >= last, "it was seen before it was opened");
                            assert_eq!(fence.expect("a shard's").state(), FenceState::Closed, "never opened");
                            last = round;
                        }
                        Verdict::Soon { shard } | Verdict::Elsewhere { shard, .. } => assert_eq!(shard, ONLY),
                    }
                    assert_eq!(fence.state(), FenceState::Closed);
                    assert!(table.stages().len() <= 1 && table.view().members.is_empty());
                    asked.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                }
            });
        }
        for round in 1..=ROUNDS {
            let held = Held::new(Ranges::whole(), LeaderFence::new(env.clone()), Predecessor::Silent);
            table.join(ONLY, held.clone());
            opened.store(round, Ordering::Relaxed);
            assert!(table.open(ONLY, &held, "ours", 1));
            std::thread::yield_now();
            assert!(table.close(ONLY).is_some() && held.over.is_cancelled());
            assert!(table.leave(ONLY).is_some_and(|held| !held.lost), "it was not lost");
        }
        while asked.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        over.store(true, Ordering::Release);
    });
    assert!(matches!(scope.verdict(&key), Verdict::Elsewhere { .. }));
}
