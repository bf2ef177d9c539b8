//! Tests of the state that requests to the admin server share between threads: deduplicated reviews. They use no socket
//! and no TLS, so `cargo xtask miri` can interpret them. It reports data races, uses after free, and lost wakeups,
//! after which every thread waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::FutureExt as _;
use windlass_env::Env;

use crate::review_cache::{CachedReview, ReviewCache};

/// Rounds per thread. Interpretation takes a thousand times as long; many interleavings of a few rounds matter, not
/// many rounds.
const ROUNDS: usize = if cfg!(miri) { 3 } else { 2_000 };

/// Turns a hang into a failure. The tests do not depend on speed; interpreted time advances with every step.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 100_000 } else { 60 });

/// Blocks this thread on a future.
fn wait<F: Future>(env: &Env, future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(env.timeout(LIMIT, future)).expect("a wakeup was lost")
}

#[test]
fn threads_that_share_a_review_are_all_answered() {
    const THREADS: usize = 3;
    let env = Env::virtual_time(1);
    let (memo, asked) = (ReviewCache::<usize, ()>::new(env.clone(), 8), Arc::new(AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (env, memo, asked) = (&env, &memo, &asked);
            scope.spawn(move || {
                wait(env, async {
                    for round in 0..ROUNDS {
                        let question = [u8::try_from(round % 200).expect("small"); 32];
                        let asked = Arc::clone(asked);
                        let asking = async move {
                            asked.fetch_add(1, Ordering::Relaxed);
                            tokio::task::yield_now().await;
                            Ok(CachedReview { value: round % 200, holds: Duration::ZERO, good: true })
                        };
                        let mut answer = Box::pin(memo.get_or_review(question, || asking.boxed()));
                        if thread == 0 && round % 2 == 0 {
                            // It can be the one that the others wait for, and leaves.
                            assert_ne!(answer.as_mut().now_or_never(), Some(Err(())));
                            continue;
                        }
                        assert_eq!(answer.await, Ok(round % 200));
                    }
                });
            });
        }
    });
    assert!((1..=THREADS * ROUNDS).contains(&asked.load(Ordering::Relaxed)));
}
