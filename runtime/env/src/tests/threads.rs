//! Channels and tasks across threads. `cargo xtask miri` interprets these tests. It detects data races, use after free
//! and lost wakeups, after which every thread waits.

use std::future::pending;
use std::sync::{
    Barrier,
    atomic::{AtomicU32, Ordering},
};
use std::time::Duration;

use tokio::task::yield_now;

use crate::watch_channel::channel;
use crate::{Env, TaskError};

/// Number of iterations of each thread. Miri is a thousand times slower; it should explore many orders of a few steps
/// instead of one order of many.
const ROUNDS: u32 = if cfg!(miri) { 6 } else { 5_000 };

/// Turns a hang into a failure. No test depends on speed; under Miri, time advances with every step.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 100_000 } else { 60 });

/// Runs `future` on this thread.
fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let env = Env::virtual_time(1);
    runtime.block_on(env.timeout(LIMIT, future)).expect("every wakeup arrives within the limit")
}

#[test]
fn receivers_on_other_threads_see_ordered_values_and_the_end() {
    // Only the channel orders these writes: data written before `set` must be visible with the value.
    let (written, (publisher, observer)) = ([AtomicU32::new(0), AtomicU32::new(0)], channel([0; 2]));
    std::thread::scope(|scope| {
        for (which, written) in written.iter().enumerate() {
            let publisher = publisher.clone();
            scope.spawn(move || {
                for n in 1..=ROUNDS {
                    written.store(n, Ordering::Relaxed);
                    publisher.send_modify(|counts| counts[which] = n);
                }
            });
        }
        drop(publisher);
        for mut observer in [observer.clone(), observer] {
            let written = &written;
            scope.spawn(move || {
                let mut seen = [0; 2];
                run(async {
                    while let Ok(received) = observer.changed().await {
                        assert!(
                            received.iter().zip(seen).all(|(new, old)| *new >= old) && received != seen,
                            "{received:?}"
                        );
                        for (received, written) in received.iter().zip(written) {
                            assert!(
                                written.load(Ordering::Relaxed) >= *received,
                                "data written before the value is visible with it"
                            );
                        }
                        seen = received;
                    }
                });
                assert_eq!(seen, [ROUNDS; 2]);
            });
        }
    });
}

#[test]
fn kill_ends_tasks_of_every_thread_and_wakes_waiters() {
    let (env, begun) = (Env::virtual_time(1), Barrier::new(3));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                run(async {
                    begun.wait();
                    let mut tasks = Vec::new();
                    for _ in 0..ROUNDS {
                        tasks.push(env.spawn("waits for ever", pending::<()>()));
                        yield_now().await;
                    }
                    for task in tasks {
                        assert_eq!(task.await, Err(TaskError::Aborted));
                    }
                });
            });
        }
        scope.spawn(|| {
            begun.wait();
            env.kill();
            run(env.wait_for_tasks());
        });
    });
    assert!(env.tasks().is_empty() && !env.is_alive());
}
