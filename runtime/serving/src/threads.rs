//! Tests of the state that connections share between threads: their permits. They use no socket and no TLS, so `cargo
//! xtask miri` can interpret them. It reports data races, uses after free, and lost wakeups, after which every thread
//! waits.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass_env::Env;
use windlass_metrics::Metrics;

use crate::connections::Connections;

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
fn connection_limit_holds_across_threads_and_end_waits_for_all() {
    const MAX: usize = 2;
    let env = Env::virtual_time(1);
    let metrics = Metrics::new().admin().serving;
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
