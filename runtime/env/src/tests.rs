//! One test per guarantee.

mod threads;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use proptest::prelude::*;
use tokio::task::yield_now;

use crate::watch_channel::{RecvError, channel};
use crate::{Elapsed, Env, Instant, TaskError, catch_panic, catch_panic_sync};

/// Recorded events, in order.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Records its name when it is dropped.
struct Noting(Journal, String);

impl Drop for Noting {
    fn drop(&mut self) {
        self.0.note(format!("dropped {}", self.1));
    }
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Runs `future` on a runtime whose clock is paused.
fn paused<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime with a paused clock").block_on(future)
}

mod time {
    use super::*;

    proptest! {
        #[test]
        fn sleep_is_neither_early_nor_a_millisecond_late_at_any_rate(
            numerator in 1u32..2_000_000, denominator in 1u32..2_000_000,
            naps in prop::collection::vec(0u64..30_000_000_000, 1..20),
        ) {
            paused(async {
                let env = Env::virtual_time(1).with_rate(numerator, denominator);
                let true_time = Env::virtual_time(1);
                for nap in naps {
                    let nap = Duration::from_nanos(nap);
                    let (deadline, before) = (env.now() + nap, true_time.now());
                    env.sleep_until(deadline).await;
                    assert!(env.now() >= deadline, "woke {:?} early", deadline - env.now());
                    let slept = true_time.now() - before;
                    // One nanosecond for the floored reading, one millisecond for the timer's grid.
                    let expected = (nap.as_nanos() + 1) * u128::from(denominator) / u128::from(numerator);
                    assert!(slept.as_nanos() <= expected + 1_000_001, "slept {slept:?} for {expected} ns");
                    assert_eq!(slept.as_nanos() % 1_000_000, 0, "true time is not a whole millisecond");
                }
            });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fast_clock_reads_more_and_wakes_earlier() {
        let true_time = Env::virtual_time(1);
        let fast = Env::virtual_time(1).with_rate(3, 2);
        fast.sleep(ms(3_000)).await;
        assert_eq!(true_time.now() - Instant::ORIGIN, ms(2_000));
        assert_eq!(fast.now() - Instant::ORIGIN, ms(3_000));
    }

    #[tokio::test(start_paused = true)]
    async fn past_deadline_and_zero_sleep_return_without_advancing_time() {
        let env = Env::virtual_time(1);
        env.sleep(ms(5)).await;
        let before = env.now();
        env.sleep(Duration::ZERO).await;
        env.sleep_until(Instant::ORIGIN).await;
        assert_eq!(env.now(), before);
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_starts_at_the_call_not_at_the_first_poll() {
        let env = Env::virtual_time(1);
        let sleep = env.sleep(ms(10));
        env.sleep(ms(8)).await;
        sleep.await;
        assert_eq!(env.now() - Instant::ORIGIN, ms(10));
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_until_never_does_not_complete() {
        let env = Env::virtual_time(1).with_rate(2, 3);
        for never in [Instant::NEVER, env.now() + Duration::MAX] {
            let waited = env.timeout(Duration::from_secs(200 * 365 * 86_400), env.sleep_until(never)).await;
            assert_eq!(waited, Err(Elapsed));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_of_many_years_has_the_full_length() {
        let env = Env::virtual_time(1);
        let years = Duration::from_secs(7 * 365 * 86_400);
        env.sleep(years).await;
        assert_eq!(env.now() - Instant::ORIGIN, years);
    }

    #[tokio::test(start_paused = true)]
    async fn timeout_returns_output_or_elapses_on_time() {
        let env = Env::virtual_time(1);
        assert_eq!(env.timeout(ms(10), async { 7 }).await, Ok(7));
        assert_eq!(env.timeout(Duration::ZERO, async { 7 }).await, Ok(7), "a ready future beats the limit");
        assert_eq!(env.timeout(ms(10), std::future::pending::<()>()).await, Err(Elapsed));
        assert_eq!(env.now() - Instant::ORIGIN, ms(10));
    }

    #[tokio::test(start_paused = true)]
    async fn wall_time_starts_at_fixed_date_and_follows_clock_and_offset() {
        let env = Env::virtual_time(1);
        let shifted = env.clone().with_wall_offset(SignedDuration::from_secs(-60));
        env.sleep(ms(1_500)).await;
        assert_eq!(env.wall().to_string(), "2026-01-01T00:00:01.5Z");
        assert_eq!(shifted.wall().to_string(), "2025-12-31T23:59:01.5Z");
        assert_eq!(shifted.now(), env.now(), "an offset affects only wall time");
    }

    #[tokio::test]
    async fn system_clock_is_monotonic_and_sleeps_are_never_early() {
        let env = Env::system("a");
        let deadline = env.now() + ms(3);
        env.sleep_until(deadline).await;
        assert!(env.now() >= deadline);
        assert!(env.wall().as_second() > 1_767_225_600);
        assert_eq!(env.timeout(ms(1), env.sleep_until(Instant::NEVER)).await, Err(Elapsed));
    }

    #[test]
    fn system_clock_rejects_rate_offset_and_pause() {
        assert!(catch_panic_sync(|| Env::system("a").with_rate(1, 2)).is_err());
        assert!(catch_panic_sync(|| drop(Env::system("a").pause())).is_err());
        assert!(catch_panic_sync(|| Env::system("a").with_wall_offset(SignedDuration::ZERO)).is_err());
        assert!(catch_panic_sync(|| Env::virtual_time(1).with_rate(0, 2)).is_err());
    }

    #[test]
    fn instants_saturate_at_both_ends() {
        let late = Instant::NEVER + ms(1);
        assert_eq!(late, Instant::NEVER);
        assert_eq!(Instant::ORIGIN - ms(1), Instant::ORIGIN);
        assert_eq!(Instant::ORIGIN - late, Duration::ZERO);
        assert_eq!(late.checked_add(ms(1)), None);
        assert_eq!(Instant::ORIGIN.checked_sub(ms(1)), None);
    }
}

mod chance {
    use super::*;

    fn draws(rng: &mut crate::Rng) -> Vec<u64> {
        (0..8).map(|_| rng.next_u64()).collect()
    }

    #[test]
    fn draw_from_one_stream_does_not_affect_another() {
        let quiet = Env::virtual_time(7);
        let expected = draws(&mut quiet.rng("b"));

        let busy = Env::virtual_time(7);
        let (mut a, mut b) = (busy.rng("a"), busy.rng("b"));
        draws(&mut a);
        let first: Vec<u64> = (0..4).map(|_| b.next_u64()).collect();
        draws(&mut a);
        let rest: Vec<u64> = (0..4).map(|_| b.next_u64()).collect();
        assert_eq!([first, rest].concat(), expected);
    }

    #[test]
    fn seed_instance_incarnation_and_name_select_the_stream() {
        let env = Env::virtual_time(7);
        let streams = [
            env.rng("a"),
            env.rng("b"),
            Env::virtual_time(8).rng("a"),
            env.with_incarnation("other", 0).rng("a"),
            env.with_incarnation("main", 1).rng("a"),
            env.with_incarnation("maina", 0).rng(""),
        ];
        let distinct: std::collections::BTreeSet<Vec<u64>> =
            streams.into_iter().map(|mut rng| draws(&mut rng)).collect();
        assert_eq!(distinct.len(), 6);
    }

    /// A replay recorded with one release must produce the same history in the next.
    #[test]
    fn seed_produces_the_same_numbers_in_every_release() {
        let mut rng = Env::virtual_time(42).rng("a");
        assert_eq!(rng.next_u64(), PINNED.0);
        assert_eq!(rng.identifier(), PINNED.1);
    }

    const PINNED: (u64, &str) = (12_827_737_812_701_317_359, "0513638a-9a9e-4916-86cf-db6ca2f39d1f");

    #[test]
    fn duplicate_stream_name_panics_with_the_name() {
        let env = Env::virtual_time(7);
        let _taken = env.rng("backoff");
        let refusal = catch_panic_sync(|| env.clone().rng("backoff")).expect_err("the second owner panics");
        assert!(refusal.contains("backoff") && refusal.contains("share it in a Mutex"), "{refusal}");
        let _other_life = env.with_incarnation("main", 1).rng("backoff");
    }

    #[test]
    fn released_stream_frees_memory_and_can_be_taken_again() {
        let env = Env::virtual_time(7);
        let first = draws(&mut env.rng("backoff"));
        assert_eq!(env.rng_stream_count(), 1);
        env.release_rng("backoff");
        assert_eq!((env.rng_stream_count(), draws(&mut env.rng("backoff"))), (0, first));
    }

    #[test]
    fn system_envs_draw_different_numbers() {
        assert_ne!(draws(&mut Env::system("a").rng("x")), draws(&mut Env::system("a").rng("x")));
    }

    proptest! {
        #[test]
        fn draws_are_within_their_range(seed: u64, n in 1u64.., lo in 0u64..1 << 40, span in 0u64..1 << 40) {
            let mut rng = Env::virtual_time(seed).rng("x");
            let (lo, hi) = (Duration::from_nanos(lo), Duration::from_nanos(lo + span));
            for _ in 0..16 {
                prop_assert!(rng.below(n) < n);
                prop_assert!((0.0..1.0).contains(&rng.unit()));
                let between = rng.between(lo, hi);
                prop_assert!(between == lo || (lo..hi).contains(&between));
                let jittered = rng.jitter(lo, 0.5);
                prop_assert!(jittered >= lo && jittered <= lo.mul_f64(1.5) + Duration::from_nanos(2));
            }
            prop_assert_eq!(rng.jitter(lo, -1.0), lo);
            prop_assert_eq!(rng.between(hi, lo), hi);
        }
    }

    #[test]
    fn small_ranges_are_drawn_uniformly() {
        let mut rng = Env::virtual_time(3).rng("dice");
        let mut faces = [0u32; 6];
        for _ in 0..60_000 {
            faces[usize::try_from(rng.below(6)).unwrap()] += 1;
        }
        assert!(faces.iter().all(|count| (9_500..10_500).contains(count)), "{faces:?}");
    }

    #[test]
    fn identifier_has_format_of_version_4_uuid() {
        let mut rng = Env::virtual_time(3).rng("id");
        let (first, second) = (rng.identifier(), rng.identifier());
        assert_ne!(first, second);
        let groups: Vec<&str> = first.split('-').collect();
        assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(groups[2].starts_with('4') && "89ab".contains(&groups[3][..1]), "{first}");
    }
}

mod tasks {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn task_is_tracked_by_name_in_spawn_order_until_completion() {
        let env = Env::virtual_time(1);
        let slow = env.spawn("slow", env.sleep(ms(20)));
        let fast = env.spawn("fast", env.sleep(ms(10)));
        assert_eq!(env.tasks(), ["slow", "fast"]);
        fast.await.unwrap();
        assert_eq!(env.tasks(), ["slow"]);
        slow.await.unwrap();
        assert!(env.tasks().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_handle_neither_stops_nor_untracks_task() {
        let (env, journal) = (Env::virtual_time(1), Journal::default());
        drop(env.spawn("a", {
            let (env, journal) = (env.clone(), journal.clone());
            async move {
                env.sleep(ms(5)).await;
                journal.note("ran");
            }
        }));
        assert_eq!(env.tasks(), ["a"]);
        env.wait_for_tasks().await;
        assert_eq!(journal.lines(), ["ran"]);
    }

    #[tokio::test(start_paused = true)]
    async fn panic_message_is_returned_and_other_tasks_continue() {
        let env = Env::virtual_time(1);
        let other = env.spawn("other", {
            let env = env.clone();
            async move {
                env.sleep(ms(5)).await;
                3
            }
        });
        let outcome = env.spawn("bad", async { panic!("broken {}", 1) as () }).await;
        assert_eq!(outcome, Err(TaskError::Panicked("broken 1".to_owned())));
        assert_eq!(other.await, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn aborted_task_returns_aborted_error() {
        let env = Env::virtual_time(1);
        let task = env.spawn("a", std::future::pending::<()>());
        task.abort();
        assert_eq!(task.await, Err(TaskError::Aborted));
        assert!(env.tasks().is_empty() && env.is_alive());
    }

    /// Records the time at each of three timers.
    fn ticking(env: &Env, journal: &Journal, name: &'static str, every: u64) -> crate::Task<()> {
        let (env, journal) = (env.clone(), journal.clone());
        env.clone().spawn(name, async move {
            for _ in 0..3 {
                env.sleep(ms(every)).await;
                journal.note(format!("{name} {}", (env.now() - Instant::ORIGIN).as_millis()));
            }
        })
    }

    #[tokio::test(start_paused = true)]
    async fn paused_instance_runs_late_without_losing_wakeups() {
        let (world, journal) = (Env::virtual_time(1), Journal::default());
        let (one, other) = (world.with_incarnation("one", 0), world.with_incarnation("other", 0));
        let slow = ticking(&one, &journal, "slow", 20);
        let fast = ticking(&one, &journal, "fast", 10);
        let third = ticking(&other, &journal, "other", 15);
        world.sleep(ms(5)).await;
        let (pause, again) = (one.pause(), one.pause());
        world.sleep(ms(45)).await;
        drop(pause);
        world.sleep(ms(50)).await;
        assert_eq!(journal.lines(), ["other 15", "other 30", "other 45"], "one pause does not end another");
        drop(again);
        for task in [slow, fast, third] {
            assert_eq!(task.await, Ok(()));
        }
        let late = ["fast 100", "slow 100", "fast 110", "slow 120", "fast 120", "slow 140"];
        assert_eq!(journal.lines()[3..], late, "the clock advances, and tasks run in wakeup order");
    }

    #[tokio::test(start_paused = true)]
    async fn paused_instance_can_be_killed_and_defers_new_tasks() {
        let (world, journal) = (Env::virtual_time(1), Journal::default());
        let env = world.with_incarnation("one", 0);
        let pause = env.pause();
        let (sleeping, spawned) = (dropping(&env, &journal, "a"), ticking(&env, &journal, "late", 1));
        world.sleep(ms(2_000)).await;
        assert!(journal.lines().is_empty(), "{:?}", journal.lines());
        env.kill();
        assert_eq!((sleeping.await, spawned.await), (Err(TaskError::Aborted), Err(TaskError::Aborted)));
        drop(pause);
        world.sleep(ms(10)).await;
        assert_eq!(journal.lines(), ["dropped a"]);
    }

    fn dropping(env: &Env, journal: &Journal, name: &str) -> crate::Task<()> {
        let (env, guard) = (env.clone(), Noting(journal.clone(), name.to_owned()));
        env.clone().spawn(name, async move {
            let guard = guard;
            env.sleep(ms(1_000)).await;
            guard.0.note("survived");
        })
    }

    #[tokio::test(start_paused = true)]
    async fn kill_aborts_tasks_in_spawn_order_before_time_advances() {
        let (env, journal) = (Env::virtual_time(1), Journal::default());
        let tasks: Vec<_> = ["a", "b", "c"].iter().map(|name| dropping(&env, &journal, name)).collect();
        env.sleep(ms(10)).await;
        env.kill();
        env.wait_for_tasks().await;
        assert_eq!(journal.lines(), ["dropped a", "dropped b", "dropped c"]);
        assert_eq!(env.now() - Instant::ORIGIN, ms(10));
        for task in tasks {
            assert_eq!(task.await, Err(TaskError::Aborted));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn task_spawned_after_kill_never_runs() {
        let (env, journal) = (Env::virtual_time(1), Journal::default());
        env.kill();
        assert!(!env.is_alive());
        let late = env.spawn("late", {
            let journal = journal.clone();
            async move { journal.note("ran") }
        });
        assert!(env.tasks().is_empty());
        assert_eq!(late.await, Err(TaskError::Aborted));
        assert!(journal.lines().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_kills_its_env_cannot_spawn_afterwards() {
        let (env, journal) = (Env::virtual_time(1), Journal::default());
        let task = env.spawn("self", {
            let (env, journal) = (env.clone(), journal.clone());
            async move {
                env.kill();
                let child = env.spawn("child", std::future::ready(()));
                journal.note(format!("alive {}, child {:?}", env.is_alive(), child.await));
                yield_now().await;
                journal.note("polled after kill");
            }
        });
        assert_eq!(task.await, Err(TaskError::Aborted));
        assert_eq!(journal.lines(), ["alive false, child Err(Aborted)"]);
    }

    #[tokio::test(start_paused = true)]
    async fn incarnations_are_independent_on_the_same_clock() {
        let env = Env::virtual_time(1).with_rate(2, 1);
        let first = env.with_incarnation("a", 1);
        let second = env.with_incarnation("a", 2);
        let task = second.spawn("b", second.sleep(ms(10)));
        first.kill();
        assert!(env.is_alive() && second.is_alive());
        assert_eq!(task.await, Ok(()));
        assert_eq!(first.now(), env.now());
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_tasks_wakes_in_registration_order() {
        let (env, watchers, journal) = (Env::virtual_time(1), Env::virtual_time(2), Journal::default());
        let task = env.spawn("work", env.sleep(ms(5)));
        for name in ["c", "a", "b"] {
            let (env, journal) = (env.clone(), journal.clone());
            drop(watchers.spawn(name, async move {
                env.wait_for_tasks().await;
                journal.note(name);
            }));
            yield_now().await;
        }
        task.await.unwrap();
        watchers.wait_for_tasks().await;
        assert_eq!(journal.lines(), ["c", "a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_tasks_returns_immediately_without_tasks() {
        Env::virtual_time(1).wait_for_tasks().await;
    }

    #[tokio::test(start_paused = true)]
    async fn task_is_tracked_until_its_destructor_has_run() {
        struct Looks(Env, Journal);
        impl Drop for Looks {
            fn drop(&mut self) {
                self.1.note(self.0.tasks().join(","));
            }
        }
        let (env, journal) = (Env::virtual_time(1), Journal::default());
        let looks = Looks(env.clone(), journal.clone());
        env.spawn("a", async move { drop(looks) }).await.unwrap();
        let looks = Looks(env.clone(), journal.clone());
        let task = env.spawn("b", async move {
            let _looks = looks;
            std::future::pending::<()>().await;
        });
        yield_now().await;
        task.abort();
        assert_eq!(task.await, Err(TaskError::Aborted));
        assert_eq!(journal.lines(), ["a", "b"]);
    }

    #[test]
    fn spawn_during_runtime_shutdown_leaves_no_task() {
        struct Spawns(Env);
        impl Drop for Spawns {
            fn drop(&mut self) {
                drop(self.0.spawn("late", std::future::pending::<()>()));
            }
        }
        let env = Env::virtual_time(1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        {
            let env = env.clone();
            runtime.block_on(async move {
                let spawns = Spawns(env.clone());
                drop(env.spawn("a", async move {
                    let _spawns = spawns;
                    std::future::pending::<()>().await;
                }));
                yield_now().await;
            });
        }
        drop(runtime);
        assert!(env.tasks().is_empty(), "{:?}", env.tasks());
    }

    #[tokio::test]
    async fn caught_panic_is_returned_as_error() {
        assert_eq!(catch_panic(async { 1 }).await, Ok(1));
        assert_eq!(catch_panic(async { panic!("one") as u8 }).await, Err("one".to_owned()));
        assert_eq!(catch_panic_sync(|| -> u8 { panic!("{}", "two") }), Err("two".to_owned()));
        let wordless = catch_panic_sync(|| -> u8 { std::panic::panic_any(7) });
        assert_eq!(wordless, Err("a panic without a message".to_owned()));
    }
}

mod cells {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn receivers_wake_in_registration_order() {
        let (env, journal) = (Env::virtual_time(1), Journal::default());
        let (publisher, observer) = channel(0);
        for name in ["c", "a", "d", "b"] {
            let (mut observer, journal) = (observer.clone(), journal.clone());
            drop(env.spawn(name, async move {
                while let Ok(value) = observer.changed().await {
                    journal.note(format!("{name}{value}"));
                }
                journal.note(format!("{name} closed"));
            }));
        }
        for value in 1..=2 {
            yield_now().await;
            publisher.set(value);
        }
        yield_now().await;
        drop(publisher);
        env.wait_for_tasks().await;
        let expected = ["c1", "a1", "d1", "b1", "c2", "a2", "d2", "b2"];
        assert_eq!(journal.lines()[..8], expected);
        assert_eq!(journal.lines()[8..], ["c closed", "a closed", "d closed", "b closed"]);
    }

    #[tokio::test]
    async fn current_value_counts_as_seen_and_only_newest_is_returned() {
        let (publisher, mut observer) = channel(0);
        publisher.set(1);
        publisher.set(2);
        assert_eq!(observer.get(), 2);
        assert_eq!(observer.changed().await, Ok(2), "get does not count as seeing");
        let mut late = publisher.subscribe();
        publisher.send_modify(|value| *value += 1);
        assert_eq!(late.changed().await, Ok(3));
        assert_eq!(observer.clone().changed().await, Ok(3), "a clone has seen the same value");
        assert_eq!(publisher.get(), 3);
    }

    #[tokio::test]
    async fn last_value_is_returned_before_the_channel_closes() {
        let (publisher, mut observer) = channel(0);
        let second = publisher.clone();
        drop(publisher);
        second.set(1);
        assert!(!observer.is_closed());
        drop(second);
        assert!(observer.is_closed());
        assert_eq!(observer.changed().await, Ok(1));
        assert_eq!(observer.changed().await, Err(RecvError));
        assert_eq!(observer.wait_for(|value| *value == 1).await, Ok(1), "the current value needs no sender");
        assert_eq!(observer.wait_for(|value| *value == 2).await, Err(RecvError));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_skips_values_that_do_not_match() {
        let env = Env::virtual_time(1);
        let (publisher, mut observer) = channel(0);
        let task = env.spawn("wait", async move { observer.wait_for(|value| *value >= 2).await });
        for value in 1..=2 {
            yield_now().await;
            assert!(!task.is_finished());
            publisher.set(value);
        }
        assert_eq!(task.await, Ok(Ok(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn canceled_wait_does_not_mark_value_as_seen() {
        let env = Env::virtual_time(1);
        let (publisher, mut observer) = channel(0);
        assert_eq!(env.timeout(ms(1), observer.changed()).await, Err(Elapsed));
        publisher.set(1);
        assert_eq!(observer.changed().await, Ok(1));
    }

    #[tokio::test]
    async fn panic_in_send_modify_leaves_channel_usable() {
        let (publisher, observer) = channel(0);
        assert!(catch_panic_sync(|| publisher.send_modify(|_| panic!("oops"))).is_err());
        publisher.set(5);
        assert_eq!(observer.get(), 5);
    }
}

mod wall_steps {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wall_step_affects_one_machine_and_later_incarnations() {
        let world = Env::virtual_time(1);
        let machine = world.clone().with_wall_offset(jiff::SignedDuration::ZERO);
        let (first, begun) = (machine.with_incarnation("a", 0), world.wall());
        first.step_wall(jiff::SignedDuration::from_secs(-90));
        let second = machine.with_incarnation("a", 1);
        for env in [&first, &second, &machine] {
            assert_eq!(begun.duration_since(env.wall()), jiff::SignedDuration::from_secs(90));
        }
        assert_eq!(world.wall(), begun, "wall time of another machine");
        assert_eq!((second.incarnation(), second.now()), (1, world.now()));
    }
}

mod suspensions {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn suspension_stops_monotonic_clock_and_timers_not_wall_time() {
        let world = Env::virtual_time(1);
        let env = world.clone().with_wall_offset(jiff::SignedDuration::ZERO).with_incarnation("a", 0);
        let wall = env.wall();
        let nap = env.spawn("nap", {
            let env = env.clone();
            async move {
                env.sleep(ms(10_000)).await;
                env.now().since_origin()
            }
        });
        world.sleep(ms(4_000)).await;
        // Overlapping suspensions are counted once.
        let (first, second) = (env.suspend(), env.suspend());
        world.sleep(ms(60_000)).await;
        drop(first);
        world.sleep(ms(30_000)).await;
        drop(second);
        assert_eq!(env.now().since_origin(), ms(4_000));
        assert_eq!(env.with_incarnation("a", 1).now(), env.now(), "later incarnations on this machine");
        assert_eq!(env.wall().duration_since(wall), jiff::SignedDuration::from_secs(94));
        assert_eq!(nap.await, Ok(ms(10_000)));
        assert_eq!(world.now().since_origin(), ms(100_000));
    }

    #[tokio::test(start_paused = true)]
    async fn suspension_of_killed_incarnation_does_not_move_clock_back() {
        let world = Env::virtual_time(1);
        let suspension = world.suspend();
        world.sleep(ms(1_000)).await;
        world.kill();
        drop(suspension);
        assert_eq!(world.now().since_origin(), ms(1_000));
    }
}
