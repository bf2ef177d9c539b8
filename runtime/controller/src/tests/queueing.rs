//! Which key comes next, how many at once, for how long, and what becomes of those that fail.

use windlass_workqueue::Priority;

use super::*;

/// Keys take as many seconds as their name has letters.
async fn slow(key: ObjectKey, cx: Context) -> Result<Outcome, ReconcileError> {
    cx.env().sleep(Duration::from_secs(key.name().len() as u64)).await;
    Ok(Outcome::Done)
}

fn watch_maps(setup: &mut Setup) {
    setup.primary::<ConfigMap>();
}

// parity: low-priority-initial-list
#[tokio::test(start_paused = true)]
async fn what_changes_comes_before_what_was_there_when_the_controller_started() {
    let world = World::with(&["a1", "a2", "a3"]);
    let _workers = world.start_with(world.scripted(watch_maps, slow)).await;
    world.pass(1).await;
    world.put("z9");
    world.put("a3");
    world.pass(20).await;
    assert_eq!(world.diary.names(), ["a1", "z9", "a3", "a2"]);
}

// parity: low-priority-initial-list
#[tokio::test(start_paused = true)]
async fn with_the_usual_priority_for_the_initial_list_it_is_first_in_first_out() {
    let world = World::with(&["a1", "a2", "a3"]);
    let wire = |setup: &mut Setup| {
        setup.background_priority(Priority::NORMAL);
        watch_maps(setup);
    };
    let _workers = world.start_with(world.scripted(wire, slow)).await;
    world.pass(1).await;
    world.put("z9");
    world.put("a3");
    world.pass(20).await;
    assert_eq!(world.diary.names(), ["a1", "a2", "a3", "z9"]);
}

// parity: with-low-priority-when-unchanged, low-priority-initial-list
#[tokio::test(start_paused = true)]
async fn keys_of_a_resync_wait_behind_changes() {
    let mut world = World::with(&["a1", "a2", "a3"]);
    world.resync = Some(Duration::from_secs(100));
    let _workers = world.start_with(world.scripted(watch_maps, slow)).await;
    world.env.sleep(Duration::from_millis(99_990)).await;
    world.diary.names();
    world.pass(1).await;
    world.put("z9");
    world.pass(20).await;
    assert_eq!(world.diary.names(), ["a1", "z9", "a2", "a3"]);
}

// parity: priority-queue-starves-shutdown
#[tokio::test(start_paused = true)]
async fn low_keys_are_not_starved_by_a_stream_of_changes() {
    let names: Vec<String> = (0..20).map(|number| format!("o{number:02}")).collect();
    let world = World::with(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let _workers = world.start_with(world.scripted(watch_maps, slow)).await;
    for second in 0..600 {
        if second % 2 == 0 {
            world.put(&format!("n{second:03}"));
        }
        world.pass(1).await;
    }
    let done = world.diary.names();
    let old = done.iter().filter(|name| name.starts_with('o')).count();
    assert!(old >= 10, "{old} of 20 old keys came to their turn in ten minutes");
}

// parity: fairness-between-tenants
#[tokio::test(start_paused = true)]
async fn fair_by_replaces_namespaces_as_tenants() {
    let world = World::with(&["a1", "a2", "a3", "b1"]);
    let wire = |setup: &mut Setup| {
        setup.fair_by(|key| key.name().get(..1).unwrap_or_default());
        watch_maps(setup);
    };
    let _workers = world.start_with(world.scripted(wire, slow)).await;
    world.pass(20).await;
    assert_eq!(world.diary.names(), ["a1", "b1", "a2", "a3"]);
}

// parity: priority-retained-requeue-after
#[tokio::test(start_paused = true)]
async fn key_keeps_its_priority_when_it_comes_back_unless_the_reconcile_asks_for_another() {
    let world = World::with(&["after", "asked", "fails", "usual"]);
    let seen: Arc<Mutex<BTreeMap<String, Vec<Priority>>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let act = move |key: ObjectKey, cx: Context| {
        let first = {
            let mut seen = noted.lock().expect("whole");
            let seen = seen.entry(key.name().to_owned()).or_default();
            seen.push(cx.priority());
            seen.len() == 1
        };
        async move {
            let soon = Outcome::RequeueAfter(Duration::from_secs(1));
            match key.name() {
                "after" if first => Ok(soon),
                "asked" if first => Ok(soon.at(Priority::HIGH)),
                "fails" if first => Err(retry("once")),
                _ => Ok(Outcome::Done),
            }
        }
    };
    let wire = |setup: &mut Setup| {
        setup.primary::<ConfigMap>().priority(Priority(42));
    };
    let _workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(10).await;
    let seen = seen.lock().expect("whole").clone();
    assert_eq!(seen["after"], [Priority(42), Priority(42)]);
    assert_eq!(seen["asked"], [Priority(42), Priority::HIGH]);
    assert_eq!(seen["fails"], [Priority(42), Priority(42)]);
    assert_eq!(seen["usual"], [Priority(42)]);
}

/// How many keys of each class run, and the most there were at once.
#[derive(Clone, Default)]
struct Crowd(Arc<Mutex<BTreeMap<String, (u32, u32)>>>);

impl Crowd {
    fn step(&self, class: &str, by: i32) {
        let mut crowd = self.0.lock().expect("whole");
        let (now, most) = crowd.entry(class.to_owned()).or_default();
        *now = now.checked_add_signed(by).expect("never below zero");
        *most = (*most).max(*now);
    }

    fn most(&self, class: &str) -> u32 {
        self.0.lock().expect("whole").get(class).map_or(0, |(_, most)| *most)
    }
}

fn first_letter(key: &ObjectKey) -> Option<String> {
    key.name().get(..1).map(str::to_owned)
}

// parity: max-concurrent-reconciles
#[tokio::test(start_paused = true)]
async fn class_of_keys_never_runs_more_at_once_than_its_limit_and_holds_up_no_other() {
    let world = World::with(&["a1", "a2", "a3", "a4", "b1", "b2", "c1"]);
    let crowd = Crowd::default();
    let counted = crowd.clone();
    let act = move |key: ObjectKey, cx: Context| {
        let counted = counted.clone();
        async move {
            let class = first_letter(&key).expect("a letter");
            counted.step(&class, 1);
            cx.env().sleep(Duration::from_secs(10)).await;
            counted.step(&class, -1);
            Ok(Outcome::Done)
        }
    };
    let wire = |setup: &mut Setup| {
        setup.workers(4);
        setup.limit_concurrency(2, |key| first_letter(key).filter(|letter| letter != "c"));
        watch_maps(setup);
    };
    let _workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(5).await;
    assert_eq!(world.diary.names(), ["a1", "a2", "b1", "b2"], "full classes make way");
    world.pass(10).await;
    assert_eq!(world.diary.names().len(), 3, "and c1 is in nobody's way");
    world.put("a1");
    world.pass(20).await;
    assert_eq!((crowd.most("a"), crowd.most("b")), (2, 2));
    assert_eq!(world.diary.names(), ["a1"]);
}

#[tokio::test(start_paused = true)]
async fn two_limits_that_keys_share_crosswise_never_block_each_other_for_good() {
    let names: Vec<String> =
        ["a", "b", "c"].iter().flat_map(|a| (0..9).map(move |b| format!("{a}{b}"))).collect();
    let world = World::with(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let wire = |setup: &mut Setup| {
        setup.workers(8);
        setup.limit_concurrency(1, first_letter);
        setup.limit_concurrency(1, |key| key.name().get(1..2).map(str::to_owned));
        watch_maps(setup);
    };
    let _workers = world.start_with(world.scripted(wire, slow)).await;
    for _ in 0..40 {
        names.iter().step_by(5).for_each(|name| world.put(name));
        world.pass(2).await;
    }
    world.pass(100).await;
    world.diary.names();
    names.iter().for_each(|name| world.put(name));
    world.pass(100).await;
    let mut done = world.diary.names();
    done.sort();
    done.dedup();
    assert_eq!(done, names, "every key still comes to its turn");
}

#[tokio::test(start_paused = true)]
async fn limit_of_none_is_refused_at_setup() {
    let world = World::with(&[]);
    let none =
        world.scripted(|setup| setup.limit_concurrency(0, first_letter), |_, _| async { Ok(Outcome::Done) });
    assert!(matches!(none.declaration(&world.env).map(drop), Err(SetupError::NoPlaces)));
}

// parity: reconciliation-timeout, time-reconcile-count
#[tokio::test(start_paused = true)]
async fn reconcile_that_takes_too_long_is_dropped_counted_and_backed_off() {
    let world = World::with(&["stuck", "quick"]);
    let wire = |setup: &mut Setup| {
        setup.reconcile_timeout(Some(Duration::from_secs(3)));
        watch_maps(setup);
    };
    let dropped: Arc<Mutex<u32>> = Arc::default();
    let counter = Arc::clone(&dropped);
    let act = move |key: ObjectKey, cx: Context| {
        let counter = Arc::clone(&counter);
        async move {
            if key.name() == "stuck" {
                let _guard = Counted(counter);
                cx.env().sleep(Duration::from_secs(3600)).await;
            }
            Ok(Outcome::Done)
        }
    };
    let workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(10).await;
    let tries = world.diary.times("stuck");
    assert!(gaps(&tries).iter().all(|gap| *gap > Duration::from_secs(3)), "{tries:?}");
    assert_eq!(*dropped.lock().expect("whole"), 3, "three seconds each, and a back-off between");
    let metrics = world.metrics.reconcile("scripted");
    assert_eq!((metrics.timeouts.get(), metrics.total.error.get(), metrics.total.success.get()), (3, 3, 1));
    assert!(workers.health(Duration::from_secs(60))().is_ok());
}

struct Counted(Arc<Mutex<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.lock().expect("whole") += 1;
    }
}

// parity: reconciliation-timeout, time-reconcile-count
#[tokio::test(start_paused = true)]
async fn reconcile_that_ends_in_time_or_has_no_limit_is_never_counted_as_too_long() {
    for limit in [None, Some(Duration::from_secs(10))] {
        let world = World::with(&["slow"]);
        let wire = move |setup: &mut Setup| {
            setup.reconcile_timeout(limit);
            watch_maps(setup);
        };
        let _workers = world.start_with(world.scripted(wire, slow)).await;
        world.pass(60).await;
        let metrics = world.metrics.reconcile("scripted");
        assert_eq!((metrics.timeouts.get(), metrics.total.success.get()), (0, 1), "{limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn error_names_the_timeout() {
    let error = retry(crate::error::ReconcileTimeout { limit: Duration::from_secs(3) });
    assert!(error.to_string().contains("3s") && error.to_string().contains("reconcile timeout"), "{error}");
}

/// Fails as often as told, then works.
fn failing(
    error: fn() -> ReconcileError,
    times: usize,
) -> impl Fn(ObjectKey, Context) -> futures_util::future::Ready<Result<Outcome, ReconcileError>> + Send + Sync
{
    let left = Mutex::new(times);
    move |_, _| {
        let mut left = left.lock().expect("whole");
        let fails = *left > 0;
        *left = left.saturating_sub(1);
        futures_util::future::ready(if fails { Err(error()) } else { Ok(Outcome::Done) })
    }
}

// parity: no-reset-back-off
#[tokio::test(start_paused = true)]
async fn back_off_grows_until_a_reconcile_does_not_fail_and_then_begins_anew() {
    let world = World::with(&["m"]);
    let _workers = world.start_with(world.scripted(watch_maps, failing(|| retry("no"), 6))).await;
    world.pass(10).await;
    let before = gaps(&world.diary.times("m"));
    assert_eq!(before.len(), 6);
    assert!(before.is_sorted() && before[5] >= Duration::from_millis(160), "{before:?}");
    assert_eq!(world.diary.names().len(), 7);
    world.put("m");
    world.pass(10).await;
    assert_eq!(world.diary.names(), ["m"]);
}

// parity: terminal-error-keeps-back
#[tokio::test(start_paused = true)]
async fn terminal_failure_forgets_the_keys_back_off() {
    let world = World::with(&["m"]);
    let attempts: Arc<Mutex<Vec<u32>>> = Arc::default();
    let noted = Arc::clone(&attempts);
    let act = move |_: ObjectKey, cx: Context| {
        let number = {
            let mut noted = noted.lock().expect("whole");
            noted.push(cx.attempts());
            noted.len()
        };
        async move {
            match number {
                1..=4 => Err(retry("not yet")),
                5 => Err(terminal("never")),
                _ => Ok(Outcome::Done),
            }
        }
    };
    let _workers = world.start_with(world.scripted(watch_maps, act)).await;
    world.pass(60).await;
    world.put("m");
    world.pass(1).await;
    assert_eq!(*attempts.lock().expect("whole"), [0, 1, 2, 3, 4, 0], "the next change begins without a past");
}

// parity: recover-panic, panic-controller-down
#[tokio::test(start_paused = true)]
async fn key_that_panics_again_and_again_rests_until_its_next_change_and_says_so() {
    let mut world = World::with(&["panics", "calm"]);
    world.resync = Some(Duration::from_secs(1000));
    let wire = |setup: &mut Setup| {
        setup.quarantine_after(Some(3));
        let every = crate::Timer::every(Duration::from_secs(60));
        setup.every(every, || vec![ObjectKey::namespaced("shop", "panics")]);
        watch_maps(setup);
    };
    let act = |key: ObjectKey, _: Context| async move {
        assert_ne!(key.name(), "panics", "as told");
        Ok(Outcome::Done)
    };
    let workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(2500).await;
    assert_eq!(world.diary.times("panics").len(), 3, "neither the clock nor a resync wakes it");
    assert_eq!(world.diary.times("calm").len(), 3, "other keys are looked at with every resync");
    assert_eq!(workers.insight().overview().quarantined, ["shop/panics"]);
    let cause = workers.insight().explain(&ObjectKey::namespaced("shop", "panics")).cause;
    assert!(cause.contains("panicked 3 times") && cause.contains("as told"), "{cause}");
    assert_eq!(world.metrics.reconcile("scripted").quarantined.get(), 1);
    assert!(workers.quarantine_notice()().is_some() && format!("{workers:?}").contains("as told"));
    assert!(workers.health(Duration::from_secs(60))().is_ok(), "a restart would not mend it");
    world.put("panics");
    world.pass(100).await;
    assert_eq!(world.diary.times("panics").len(), 4, "one change, one try");
}

#[tokio::test(start_paused = true)]
async fn key_in_quarantine_is_free_again_once_a_try_does_not_panic() {
    let world = World::with(&["m"]);
    let wire = |setup: &mut Setup| {
        setup.quarantine_after(Some(2));
        watch_maps(setup);
    };
    let tries = Mutex::new(0);
    let act = move |_: ObjectKey, _: Context| {
        let number = {
            let mut tries = tries.lock().expect("whole");
            *tries += 1;
            *tries
        };
        async move {
            assert!(number > 2, "a defect that a change mends");
            Ok(Outcome::Done)
        }
    };
    let workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(10).await;
    assert_eq!(workers.insight().overview().quarantined.len(), 1);
    world.put("m");
    world.pass(10).await;
    assert_eq!((workers.insight().overview().quarantined.len(), workers.quarantine_notice()()), (0, None));
    assert_eq!(world.metrics.reconcile("scripted").quarantined.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn appointment_from_before_does_not_wake_a_key_in_quarantine() {
    let world = World::with(&["m"]);
    let wire = |setup: &mut Setup| {
        setup.quarantine_after(Some(1));
        let queue = setup.queue();
        setup.watch::<ConfigMap>().on_event(move |event, _| {
            let key = ObjectKey::of(&event.object().metadata);
            queue.add_after(key.clone(), Duration::from_secs(30));
            queue.add(key);
        });
    };
    let act = |_: ObjectKey, _: Context| async move { panic!("as told") };
    let _workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(100).await;
    assert_eq!(world.diary.names().len(), 1);
}

// parity: warm-fifteen-cases
#[tokio::test(start_paused = true)]
async fn nothing_of_a_controller_is_left_when_it_has_stopped() {
    let world = World::with(&["m"]);
    let idle = world.env.tasks();
    let wire = |setup: &mut Setup| {
        setup.workers(3);
        setup.every(crate::Timer::every(Duration::from_secs(5)), Vec::new);
        watch_maps(setup);
    };
    let readied = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let factory = readied.factory.clone();
    let mut workers = readied.prepared.start(readied.resources).await.expect("started");
    world.pass(10).await;
    assert!(world.env.tasks().len() > idle.len());
    workers.stop();
    workers.ended().await;
    factory.shutdown().await;
    assert_eq!(world.env.tasks(), idle);
}

#[tokio::test(start_paused = true)]
async fn panic_beside_the_reconcile_leaves_its_key_the_priority_it_had() {
    let world = World::with(&["m"]);
    let first = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let wire = move |setup: &mut Setup| {
        let first = Arc::clone(&first);
        setup.limit_concurrency(1, move |_| {
            assert!(!first.swap(false, std::sync::atomic::Ordering::Relaxed), "a defect of the first call");
            None
        });
        watch_maps(setup);
    };
    let seen: Arc<Mutex<Vec<Priority>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let act = move |_: ObjectKey, cx: Context| {
        noted.lock().expect("whole").push(cx.priority());
        async { Ok(Outcome::Done) }
    };
    let _workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(10).await;
    assert_eq!(*seen.lock().expect("whole"), [Priority::LOW]);
    assert_eq!(world.metrics.reconcile("scripted").panics.get(), 1);
}
