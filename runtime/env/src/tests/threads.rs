//! Cells and tasks between threads. `cargo xtask miri` interprets these tests: it objects to a race, to memory that is
//! used after it was freed, and to a wakeup that is lost, after which every thread waits.

use std::future::pending;
use std::sync::{
    Barrier,
    atomic::{AtomicU32, Ordering},
};
use std::time::Duration;

use tokio::task::yield_now;

use crate::watch_channel::channel;
use crate::{Env, TaskError};

/// How often each thread does what it does. An interpreter takes a thousand times as long; it is to see many orders of a
/// few steps and not one order of many.
const ROUNDS: u32 = if cfg!(miri) { 6 } else { 5_000 };

/// Turns a hang into a failure. Nothing depends on speed; interpreted time continues with every step.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 100_000 } else { 60 });

/// Runs `future` on this thread.
fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let env = Env::virtual_time(1);
    runtime.block_on(env.timeout(LIMIT, future)).expect("a wakeup was lost")
}

#[test]
fn observers_on_other_threads_see_values_in_order_up_to_the_last_and_then_the_end() {
    // What is written before a value is set is seen with it: only the cell puts these in order.
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
                    while let Ok(told) = observer.changed().await {
                        assert!(
                            told.iter().zip(seen).all(|(new, old)| *new >= old) && told != seen,
                            "{told:?}"
                        );
                        for (told, written) in told.iter().zip(written) {
                            assert!(written.load(Ordering::Relaxed) >= *told, "the value came first");
                        }
                        seen = told;
                    }
                });
                assert_eq!(seen, [ROUNDS; 2]);
            });
        }
    });
}

#[test]
fn kill_ends_the_tasks_of_every_thread_and_whoever_waits_for_that_is_told() {
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
    assert!(env.tasks().is_empty() && !env.alive());
}
