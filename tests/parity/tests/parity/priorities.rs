//! Order of keys if workers are busy: changes come before the initial list, and no key starves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use windlass::controller::Timer;
use windlass::controller::predicate::{labels_changed, matches_labels, not};
use windlass::prelude::*;
use windlass::workqueue::Priority;

use crate::world::{Act, ReconcileLog, World, act, controller, map, noting};

/// Returns a reconcile function that takes 100 ms.
fn taking_its_time(log: &ReconcileLog) -> Act {
    let log = log.clone();
    act(move |key, cx| {
        log.note(cx.env().now(), &key.to_string());
        async move {
            cx.env().sleep(Duration::from_millis(100)).await;
            Ok(Outcome::Done)
        }
    })
}

fn one_of_maps(log: &ReconcileLog) -> Registration {
    let log = log.clone();
    controller("busy", move |setup| {
        setup.primary::<ConfigMap>();
        taking_its_time(&log)
    })
}

/// After a restart the initial list floods client-go's queue, and changes wait behind it (kubernetes#68179).
// parity: floods-initial-list-naive, with-low-priority-when-unchanged, low-priority-initial-list
#[tokio::test(start_paused = true)]
async fn changed_object_is_reconciled_before_initial_list() {
    let world = World::new();
    (0..300).for_each(|number| world.put(&format!("map-{number:03}")));
    let log = ReconcileLog::default();
    let _workers = world.run([one_of_maps(&log)]).await;
    world.pass(1).await;
    let begun = world.env.now().since_origin();
    world.put("map-290");
    world.put("new");
    world.pass(60).await;
    for name in ["shop/map-290", "shop/new"] {
        let waited = log.times(name)[0].saturating_sub(begun);
        assert!(waited <= Duration::from_millis(400), "{name} waited for {waited:?}");
    }
    assert_eq!(log.lines().len(), 301, "every other object is reconciled once");
}

/// Strict priorities starve low-priority keys, for 30 minutes in one report (controller-runtime #3496, miroir #122).
// parity: floods-initial-list-naive, priority-queue-starves-shutdown
#[tokio::test(start_paused = true)]
async fn initial_list_is_not_starved_by_constant_changes() {
    let world = World::new();
    (0..20).for_each(|number| world.put(&format!("quiet-{number}")));
    let log = ReconcileLog::default();
    let _workers = world.run([one_of_maps(&log)]).await;
    // More changes than one worker can keep up with.
    for turn in 0..1200 {
        world.put(&format!("loud-{}", turn % 50));
        world.env.sleep(Duration::from_millis(50)).await;
    }
    let quiet = log.lines().iter().filter(|line| line.starts_with("shop/quiet")).count();
    assert_eq!(quiet, 20, "all quiet keys are reconciled within a minute");
    let loud = log.lines().len() - quiet;
    assert!(loud > 400, "{loud}");
}

/// The other projects do not divide workers fairly between tenants (controller-runtime PR #3261 is open since 2025).
// parity: fairness-between-tenants
#[tokio::test(start_paused = true)]
async fn flood_in_one_namespace_does_not_delay_others() {
    let world = World::new();
    world.api.upsert("/api/v1/namespaces/calm", json!({}));
    let log = ReconcileLog::default();
    let _workers = world.run([one_of_maps(&log)]).await;
    world.pass(1).await;
    (0..300).for_each(|number| world.put(&format!("flood-{number}")));
    world.pass(1).await;
    let begun = world.env.now().since_origin();
    for name in ["a", "b", "c"] {
        world.api.upsert(&format!("/api/v1/namespaces/calm/configmaps/{name}"), json!({}));
    }
    world.pass(40).await;
    for name in ["calm/a", "calm/b", "calm/c"] {
        let waited = log.times(name)[0].saturating_sub(begun);
        assert!(waited <= Duration::from_millis(1000), "{name} waited for {waited:?}");
    }
    assert_eq!(log.lines().len(), 303, "every key is reconciled");
}

/// "should retain the priority when the reconciler requests a requeue": a failure does not raise the priority.
// parity: priority-retained-requeue-after
#[tokio::test(start_paused = true)]
async fn failed_key_is_retried_at_its_low_priority() {
    let world = World::new();
    (0..50).for_each(|number| world.put(&format!("failing-{number}")));
    let log = ReconcileLog::default();
    let notes = log.clone();
    let failing = controller("failing", move |setup| {
        setup.primary::<ConfigMap>();
        let notes = notes.clone();
        act(move |key, cx| {
            notes.note(cx.env().now(), key.name());
            async move {
                cx.env().sleep(Duration::from_millis(100)).await;
                if key.name().starts_with("failing") { Err(retry("as planned")) } else { Ok(Outcome::Done) }
            }
        })
    });
    let _workers = world.run([failing]).await;
    world.pass(5).await;
    for turn in 0..10 {
        let begun = world.env.now().since_origin();
        let name = format!("change-{turn}");
        world.put(&name);
        world.pass(1).await;
        let waited = log.times(&name)[0].saturating_sub(begun);
        assert!(waited <= Duration::from_millis(350), "{name} waited for {waited:?}");
    }
}

/// "should time out if ReconciliationTimeout is set", and its worker continues with others.
// parity: reconciliation-timeout, time-reconcile-count
#[tokio::test(start_paused = true)]
async fn hanging_reconcile_times_out_and_only_its_key_backs_off() {
    let world = World::new();
    ["a", "hangs"].iter().for_each(|name| world.put(name));
    let log = ReconcileLog::default();
    let notes = log.clone();
    let hanging = controller("hanging", move |setup| {
        setup.reconcile_timeout(Some(Duration::from_secs(5)));
        setup.primary::<ConfigMap>();
        let notes = notes.clone();
        act(move |key, cx| {
            notes.note(cx.env().now(), key.name());
            async move {
                if key.name() == "hangs" {
                    cx.env().sleep(Duration::from_secs(1_000_000)).await;
                }
                Ok(Outcome::Done)
            }
        })
    });
    let _workers = world.run([hanging]).await;
    world.pass(12).await;
    world.put("a");
    world.pass(6).await;
    assert_eq!(log.times("a").len(), 2);
    assert!((3..=5).contains(&log.times("hangs").len()), "{:?}", log.times("hangs"));
}

/// "should process events from source.Channel", "should be able to cope with events in the channel before the source is
/// started"; timers, for which controller-runtime has no source.
// parity: watches-raw-source, channel-generic-event-blocked
#[tokio::test(start_paused = true)]
async fn triggers_and_timers_enqueue_keys_like_watches() {
    let world = World::new();
    let (log, trigger) = (ReconcileLog::default(), Arc::new(Mutex::new(None)));
    let (notes, handed_out) = (log.clone(), Arc::clone(&trigger));
    let triggered = controller("triggered", move |setup| {
        let trigger = setup.trigger("feed", 10);
        trigger.try_send(ObjectKey::cluster("early")).expect("room");
        *handed_out.lock().expect("no panic") = Some(trigger);
        setup.every(Timer::every(Duration::from_secs(60)), || vec![ObjectKey::cluster("minutely")]);
        noting(&notes)
    });
    let _workers = world.run([triggered]).await;
    world.pass(1).await;
    assert_eq!(log.times("early").len(), 1, "keys sent before the start are kept");
    let trigger = trigger.lock().expect("no panic").clone().expect("set up");
    trigger.try_send_with_priority(ObjectKey::cluster("now"), Priority::HIGH).expect("room");
    world.pass(300).await;
    assert_eq!(log.times("now").len(), 1);
    assert!((4..=6).contains(&log.times("minutely").len()), "{:?}", log.times("minutely"));
}

/// "should execute registered predicates only for assigned kind". In controller-runtime the last of several calls
/// replaces the others; here all predicates must match.
// parity: with-event-filter, predicates-generation-labels-annotations, predicates-only-assigned-kind
// parity: predicates-cache-hashes
#[tokio::test(start_paused = true)]
async fn all_predicates_of_a_watch_must_match_and_affect_only_that_watch() {
    let world = World::new();
    let secret = "/api/v1/namespaces/shop/secrets/secret";
    world.put("map");
    world.api.upsert(secret, json!({}));
    let log = ReconcileLog::default();
    let notes = log.clone();
    let choosy = controller("choosy", move |setup| {
        setup.primary::<ConfigMap>().when(labels_changed()).when(not(matches_labels(muted())));
        setup.primary::<Secret>();
        noting(&notes)
    });
    let _workers = world.run([choosy]).await;
    world.pass(1).await;
    log.clear();
    for (labels, woken) in [
        (json!({}), 0),
        (json!({ "a": "1" }), 1),
        (json!({ "muted": "yes" }), 1),
        (json!({ "muted": null }), 2),
    ] {
        world.api.upsert(
            &map("map"),
            json!({ "metadata": { "labels": labels, "annotations": { "any": labels.to_string() } } }),
        );
        world.pass(1).await;
        assert_eq!(log.times("map").len(), woken, "{labels}");
    }
    world.api.upsert(secret, json!({ "metadata": { "annotations": { "any": "thing" } } }));
    world.pass(1).await;
    assert_eq!(log.times("secret").len(), 1);
    world.api.remove(&map("map"));
    world.pass(1).await;
    assert_eq!(log.times("map").len(), 3, "deletions always pass predicates on changes");
}

fn muted() -> windlass::object::LabelSelector {
    windlass::object::LabelSelector::from_map(&[("muted".to_owned(), "yes".to_owned())].into())
}
