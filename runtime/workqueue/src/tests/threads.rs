//! All entry points of the queue, called from several threads. `cargo xtask miri` runs these tests under Miri, which
//! reports data races, use after free, and lost wakeups, after which all threads wait.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use windlass_env::Env;

use crate::Queue;

/// Number of adds per key. Miri takes a thousand times as long, and must check many orders of few adds instead of one
/// order of many.
const ROUNDS: u32 = if cfg!(miri) { 5 } else { 2_000 };

/// Turns a hang into a failure. The result does not depend on speed; under Miri, time advances with each step.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 100_000 } else { 60 });

fn queue(env: &Env) -> Queue<u32> {
    Queue::new(env.clone(), "threads", None)
}

/// Runs the future on this thread.
fn wait<F: Future>(env: &Env, future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(env.timeout(LIMIT, future)).expect("a wakeup was lost")
}

/// Data of one key. All accesses are relaxed, so only the queue orders them.
#[derive(Default)]
struct Work {
    held: AtomicBool,
    wanted: AtomicU32,
    /// Value that the latest run observed.
    seen: AtomicU32,
}

impl Work {
    fn begin(&self) {
        assert!(!self.held.swap(true, Ordering::Relaxed), "the key has two workers");
        let wanted = self.wanted.load(Ordering::Relaxed);
        assert!(self.seen.swap(wanted, Ordering::Relaxed) <= wanted, "older value than in the last run");
    }

    fn end(&self) {
        self.held.store(false, Ordering::Relaxed);
    }
}

#[test]
fn run_observes_data_written_before_its_add() {
    const KEYS: u32 = 2;
    let env = Env::virtual_time(1);
    let (queue, work) = (queue(&env), [Work::default(), Work::default()]);
    let of = |key: u32| &work[usize::try_from(key).expect("small")];
    let (hand_over, handed_over) = mpsc::channel();
    std::thread::scope(|scope| {
        for hands_over in [false, true] {
            let (env, queue, hand_over) = (&env, &queue, hand_over.clone());
            scope.spawn(move || {
                wait(env, async {
                    let mut next = queue.get().await;
                    while let Some(item) = next {
                        of(*item.key()).begin();
                        next = if hands_over {
                            hand_over.send(item).expect("the receiver exists");
                            queue.get().await
                        } else {
                            of(*item.key()).end();
                            item.get_next().await
                        };
                    }
                });
            });
        }
        drop(hand_over);
        // Items that one thread received are dropped by another.
        scope.spawn(|| handed_over.into_iter().for_each(|item| of(*item.key()).end()));
        let add = |key| {
            for round in 1..=ROUNDS {
                of(key).wanted.store(round, Ordering::Relaxed);
                queue.add(key);
            }
        };
        let adders: Vec<_> = (0..KEYS).map(|key| scope.spawn(move || add(key))).collect();
        adders.into_iter().for_each(|adder| adder.join().expect("the adder does not panic"));
        queue.shut_down();
        wait(&env, queue.wait_drained());
    });
    let seen = work.map(|one| one.seen.into_inner());
    assert_eq!(seen, [ROUNDS; 2], "an add was lost");
}

#[test]
fn cancelled_notified_get_wakes_another_thread() {
    let env = Env::virtual_time(1);
    let (queue, (ran, runs)) = (queue(&env), mpsc::channel());
    let ((begin, begins), (sit, seated)) = (mpsc::channel::<()>(), mpsc::channel());
    std::thread::scope(|scope| {
        let (env, queue) = (&env, &queue);
        scope.spawn(move || {
            wait(env, async {
                for () in begins {
                    let mut get = Box::pin(queue.get());
                    let once = poll_fn(|cx| Poll::Ready(get.as_mut().poll(cx))).await;
                    assert!(once.is_pending(), "no key is queued before the call waits");
                    sit.send(()).expect("the receiver exists");
                    // The call leaves the line here, notified or not.
                    drop(get);
                }
            });
        });
        scope.spawn(move || {
            wait(env, async {
                while let Some(item) = queue.get().await {
                    ran.send(*item.key()).expect("the receiver exists");
                }
            });
        });
        // Moved into this scope, so that the first thread stops if this thread panics.
        let begin = begin;
        for key in 0..ROUNDS {
            begin.send(()).expect("the first thread waits");
            seated.recv_timeout(LIMIT).expect("the first thread joins the line");
            // One key at a time: another add would wake the call that this add missed.
            queue.add(key);
            assert_eq!(runs.recv_timeout(LIMIT), Ok(key), "a wakeup was lost");
        }
        queue.shut_down();
    });
}

#[test]
fn shut_down_wakes_all_threads_and_drain_waits_for_items() {
    for _ in 0..ROUNDS.div_ceil(4) {
        let env = Env::virtual_time(1);
        let (queue, given_back) = (queue(&env), AtomicBool::new(false));
        queue.add(1);
        let held = wait(&env, queue.get());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| assert!(wait(&env, queue.get()).is_none()));
                scope.spawn(|| {
                    wait(&env, queue.wait_drained());
                    assert!(given_back.load(Ordering::Relaxed), "the drain completed too early");
                });
            }
            queue.shut_down();
            given_back.store(true, Ordering::Relaxed);
            drop(held);
        });
    }
}
