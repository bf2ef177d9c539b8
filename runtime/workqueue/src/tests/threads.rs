//! The queue between threads, each way in and out of it. `cargo xtask miri` interprets these tests: it objects to a race,
//! to memory that is used after it was freed, and to a wakeup that is lost, after which every thread waits.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use windlass_env::Env;

use crate::Queue;

/// How often each key is added. An interpreter takes a thousand times as long; it is to see many orders of a few adds
/// and not one order of many.
const ROUNDS: u32 = if cfg!(miri) { 5 } else { 2_000 };

/// Turns a hang into a failure. Nothing depends on speed; interpreted time continues with every step.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 100_000 } else { 60 });

fn queue(env: &Env) -> Queue<u32> {
    Queue::new(env.clone(), "threads", None)
}

/// Waits on this thread.
fn wait<F: Future>(env: &Env, future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(env.timeout(LIMIT, future)).expect("a wakeup was lost")
}

/// What a key stands for. Only the queue puts what is done to it in order: no access here does.
#[derive(Default)]
struct Work {
    held: AtomicBool,
    wanted: AtomicU32,
    /// What the latest run saw of it.
    seen: AtomicU32,
}

impl Work {
    fn begin(&self) {
        assert!(!self.held.swap(true, Ordering::Relaxed), "two workers hold it");
        let wanted = self.wanted.load(Ordering::Relaxed);
        assert!(self.seen.swap(wanted, Ordering::Relaxed) <= wanted, "it saw less than the run before it");
    }

    fn end(&self) {
        self.held.store(false, Ordering::Relaxed);
    }
}

#[test]
fn run_sees_what_was_there_before_its_add_and_no_key_is_with_two_threads() {
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
                    while let Some(item) = queue.get().await {
                        of(*item.key()).begin();
                        if hands_over {
                            hand_over.send(item).expect("somebody takes it");
                        } else {
                            of(*item.key()).end();
                        }
                    }
                });
            });
        }
        drop(hand_over);
        // What one thread took another gives back.
        scope.spawn(|| handed_over.into_iter().for_each(|item| of(*item.key()).end()));
        let add = |key| {
            for round in 1..=ROUNDS {
                of(key).wanted.store(round, Ordering::Relaxed);
                queue.add(key);
            }
        };
        let adders: Vec<_> = (0..KEYS).map(|key| scope.spawn(move || add(key))).collect();
        adders.into_iter().for_each(|adder| adder.join().expect("it only adds"));
        queue.shut_down();
        wait(&env, queue.wait_drained());
    });
    let seen = work.map(|one| one.seen.into_inner());
    assert_eq!(seen, [ROUNDS; 2], "an add was lost");
}

#[test]
fn who_is_told_of_a_key_and_gives_up_passes_the_word_to_another_thread() {
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
                    assert!(once.is_pending(), "nothing is queued before it is in the line");
                    sit.send(()).expect("somebody waits for it");
                    // Told of the key or not, it leaves the line here.
                    drop(get);
                }
            });
        });
        scope.spawn(move || {
            wait(env, async {
                while let Some(item) = queue.get().await {
                    ran.send(*item.key()).expect("somebody counts");
                }
            });
        });
        // Moved here, so that the first thread ends also when this one fails.
        let begin = begin;
        for key in 0..ROUNDS {
            begin.send(()).expect("it waits");
            seated.recv_timeout(LIMIT).expect("it sits down");
            // One at a time: another add would wake whoever this one did not.
            queue.add(key);
            assert_eq!(runs.recv_timeout(LIMIT), Ok(key), "a wakeup was lost");
        }
        queue.shut_down();
    });
}

#[test]
fn everybody_who_waits_on_a_thread_is_told_of_the_end_and_the_drain_waits_for_who_holds_a_key() {
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
                    assert!(given_back.load(Ordering::Relaxed), "the drain ended too early");
                });
            }
            queue.shut_down();
            given_back.store(true, Ordering::Relaxed);
            drop(held);
        });
    }
}
