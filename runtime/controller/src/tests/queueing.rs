//! Order, concurrency and timeouts of keys, and handling of failed keys.

use windlass_client::RequestOptions;
use windlass_workqueue::Priority;

use super::*;

/// A reconciler that takes one second per letter of the key's name.
async fn slow(key: ObjectKey, cx: Context) -> Result<Outcome, ReconcileError> {
    cx.env().sleep(Duration::from_secs(key.name().len() as u64)).await;
    Ok(Outcome::Done)
}

fn watch_maps(setup: &mut Setup) {
    setup.primary::<ConfigMap>();
}

#[tokio::test(start_paused = true)]
async fn constantly_changing_key_rests_three_times_its_reconcile() {
    let world = World::with(&["a"]);
    let reconcile = async |_key: ObjectKey, cx: Context| {
        cx.env().sleep(Duration::from_millis(10)).await;
        Ok(Outcome::Done)
    };
    let _workers = world.start_with(world.scripted(watch_maps, reconcile)).await;
    world.pass(1).await;
    world.diary.names();
    for _ in 0..1000 {
        world.put("a");
        world.env.sleep(Duration::from_millis(1)).await;
    }
    let busy = world.diary.names().len();
    assert!((24..=26).contains(&busy), "{busy} reconciles of 10 ms in a second");
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["a"], "the last change is reconciled once");
}

#[tokio::test(start_paused = true)]
async fn key_with_slow_reconcile_rests_a_tenth_of_a_second() {
    let world = World::with(&["a"]);
    let _workers = world.start_with(world.scripted(watch_maps, slow)).await;
    world.env.sleep(Duration::from_millis(500)).await;
    world.put("a");
    world.pass(10).await;
    let starts = world.diary.times("a");
    assert_eq!(starts[1] - starts[0], Duration::from_millis(1100));
    world.put("a");
    world.pass(1).await;
    assert_eq!(world.diary.times("a").len(), 3, "a change after the rest does not wait");
}

#[tokio::test(start_paused = true)]
async fn change_waits_for_the_rest_that_the_reconcile_requested() {
    let world = World::with(&["a"]);
    let reconcile = async |_key: ObjectKey, cx: Context| {
        cx.rest_at_least(Duration::from_secs(1));
        cx.with(RequestOptions::default()).rest_at_least(Duration::from_millis(500));
        Ok(Outcome::Done)
    };
    let _workers = world.start_with(world.scripted(watch_maps, reconcile)).await;
    world.env.sleep(Duration::from_millis(10)).await;
    for _ in 0..30 {
        world.put("a");
        world.env.sleep(Duration::from_millis(100)).await;
    }
    let starts = world.diary.times("a");
    let gaps: Vec<_> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [Duration::from_secs(1); 3]);
}

#[tokio::test(start_paused = true)]
async fn key_that_requests_an_immediate_reconcile_does_not_rest() {
    let world = World::with(&["a"]);
    let reconcile = async |_key: ObjectKey, cx: Context| {
        cx.env().sleep(Duration::from_millis(10)).await;
        Ok(Outcome::RequeueAfter(Duration::ZERO))
    };
    let _workers = world.start_with(world.scripted(watch_maps, reconcile)).await;
    world.env.sleep(Duration::from_millis(995)).await;
    let starts = world.diary.times("a");
    assert_eq!(starts[50] - starts[0], Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn deletion_or_urgent_key_ends_the_rest_and_a_change_does_not() {
    let world = World::with(&["a", "b", "c"]);
    let feed = world.feed(1);
    let wire = |setup: &mut Setup| {
        watch_maps(setup);
        drop(setup.trigger("feed", 1));
    };
    let reconcile = async |_key: ObjectKey, cx: Context| {
        cx.rest_at_least(Duration::from_secs(10));
        Ok(Outcome::Done)
    };
    let _workers = world.start_with(world.scripted(wire, reconcile)).await;
    world.pass(1).await;
    world.diary.names();
    for name in ["a", "c"] {
        world.put(name);
    }
    world.api.delete(&path("a"));
    feed.try_send_with_priority(ObjectKey::namespaced("shop", "b"), Priority::HIGH)
        .expect("the trigger is not full");
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["b", "a"]);
    world.pass(10).await;
    assert_eq!(world.diary.names(), ["c"]);
}

// parity: low-priority-initial-list
#[tokio::test(start_paused = true)]
async fn changed_objects_precede_initial_list() {
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
async fn queue_is_fifo_when_initial_list_has_default_priority() {
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
async fn requeued_key_keeps_priority_unless_reconcile_changes_it() {
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
                "asked" if first => Ok(soon.with_priority(Priority::HIGH)),
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

/// The numbers of running keys per class, with their maxima.
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
async fn class_limit_bounds_concurrency_without_delaying_other_keys() {
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
    assert_eq!(world.diary.names(), ["a1", "a2", "b1", "b2"], "full classes do not block other keys");
    world.pass(10).await;
    assert_eq!(world.diary.names().len(), 3, "c1 does not delay other keys");
    world.put("a1");
    world.pass(20).await;
    assert_eq!((crowd.most("a"), crowd.most("b")), (2, 2));
    assert_eq!(world.diary.names(), ["a1"]);
}

#[tokio::test(start_paused = true)]
async fn limits_shared_crosswise_do_not_deadlock() {
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
    assert_eq!(done, names, "every key is processed");
}

#[tokio::test(start_paused = true)]
async fn setup_rejects_limit_of_zero() {
    let world = World::with(&[]);
    let none =
        world.scripted(|setup| setup.limit_concurrency(0, first_letter), |_, _| async { Ok(Outcome::Done) });
    assert!(matches!(none.declaration(&world.env).map(drop), Err(SetupError::ZeroConcurrencyLimit)));
}

// parity: reconciliation-timeout, time-reconcile-count
#[tokio::test(start_paused = true)]
async fn reconcile_timeout_drops_counts_and_backs_off() {
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
    assert_eq!(*dropped.lock().expect("whole"), 3, "three seconds each, with a backoff in between");
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
async fn reconcile_within_or_without_timeout_is_not_counted_as_timeout() {
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
    assert!(
        error.to_string().contains("3s") && error.to_string().contains("exceeded reconcile_timeout"),
        "{error}"
    );
}

/// A reconciler that fails a set number of times and then succeeds.
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
async fn backoff_grows_until_reconcile_succeeds_and_then_resets() {
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
    assert_eq!(*attempts.lock().expect("whole"), [0, 1, 2, 3, 4, 0], "the next change resets the attempts");
}

// parity: recover-panic, panic-controller-down
#[tokio::test(start_paused = true)]
async fn repeatedly_panicking_key_is_quarantined_until_next_change() {
    let mut world = World::with(&["panics", "calm"]);
    world.resync = Some(Duration::from_secs(1000));
    let wire = |setup: &mut Setup| {
        setup.quarantine_after(Some(3));
        let every = crate::Timer::every(Duration::from_secs(60));
        setup.every(every, || vec![ObjectKey::namespaced("shop", "panics")]);
        watch_maps(setup);
    };
    let act = |key: ObjectKey, _: Context| async move {
        assert_ne!(key.name(), "panics", "injected failure");
        Ok(Outcome::Done)
    };
    let workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(2500).await;
    assert_eq!(world.diary.times("panics").len(), 3, "neither time nor a resync wakes the key");
    assert_eq!(world.diary.times("calm").len(), 3, "other keys are reconciled at every resync");
    assert_eq!(workers.inspector().overview().quarantined, ["shop/panics"]);
    let cause = workers.inspector().explain(&ObjectKey::namespaced("shop", "panics")).cause;
    assert!(cause.contains("panicked 3 times in a row") && cause.contains("injected failure"), "{cause}");
    assert_eq!(world.metrics.reconcile("scripted").quarantined.get(), 1);
    assert!(workers.quarantine_notice()().is_some() && format!("{workers:?}").contains("injected failure"));
    assert!(workers.health(Duration::from_secs(60))().is_ok(), "a restart would not fix it");
    world.put("panics");
    world.pass(100).await;
    assert_eq!(world.diary.times("panics").len(), 4, "one attempt per change");
}

#[tokio::test(start_paused = true)]
async fn quarantine_ends_after_attempt_without_panic() {
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
            assert!(number > 2, "a defect that a change fixes");
            Ok(Outcome::Done)
        }
    };
    let workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(10).await;
    assert_eq!(workers.inspector().overview().quarantined.len(), 1);
    world.put("m");
    world.pass(10).await;
    assert_eq!((workers.inspector().overview().quarantined.len(), workers.quarantine_notice()()), (0, None));
    assert_eq!(world.metrics.reconcile("scripted").quarantined.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn earlier_requeue_does_not_wake_quarantined_key() {
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
    let act = |_: ObjectKey, _: Context| async move { panic!("injected failure") };
    let _workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(100).await;
    assert_eq!(world.diary.names().len(), 1);
}

// parity: warm-fifteen-cases
#[tokio::test(start_paused = true)]
async fn stopped_controller_leaves_no_state() {
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
async fn panic_outside_reconcile_keeps_priority_of_key() {
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
