//! Tests of the state that requests to the admin server share between threads: deduplicated reviews and connection
//! permits. They use no socket and no TLS, so `cargo xtask miri` can interpret them. It reports data races, uses after
//! free, and lost wakeups, after which every thread waits.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::FutureExt as _;
use windlass_env::Env;
use windlass_metrics::Metrics;

use crate::connections::Connections;
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

#[test]
fn connection_limit_holds_across_threads_and_end_waits_for_all() {
    const MAX: usize = 2;
    let env = Env::virtual_time(1);
    let metrics = Metrics::new().admin();
    let (connections, open) = (Connections::new(env.clone(), MAX, metrics.clone()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for last in 1..=3 {
            let (env, connections, open) = (&env, &connections, &open);
            scope.spawn(move || {
                wait(env, async {
                    for round in 0..ROUNDS {
                        let Some(permit) = connections.acquire(Ipv4Addr::new(10, 0, 0, last).into()).await
                        else {
                            continue;
                        };
                        assert!(open.fetch_add(1, Ordering::Relaxed) < MAX, "too many");
                        if round % 2 == 0 {
                            let answering = permit.connection.answering();
                            tokio::task::yield_now().await;
                            drop(answering);
                        }
                        open.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            });
        }
    });
    wait(&env, connections.ended());
    assert_eq!((metrics.connections.get(), open.into_inner()), (0, 0));
}
