//! An informer from the view of its users: listers, handlers, indexes and versions, with a small versioned server.

mod handlers;
mod storing;

use std::collections::BTreeMap;
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt as _, future};
use k8s_openapi::api::core::v1::ConfigMap;
use windlass_client::RequestError;
use windlass_env::Env;
use windlass_metrics::Metrics;
use windlass_object::{LabelSelector, ObjectKey, ResourceKind, ResourceVersion, TypedObjects};

use super::*;
use crate::erased::Codec;
use crate::settings::InformerSettings;
use crate::testing::*;
use crate::{
    Event, FactoryOptions, InformerFactory, ListerWatcher, Selection, SourceProvider, VersionedCache,
};

/// Starts an informer with a server that has these objects.
async fn running(names: &[&str]) -> (Rig, Arc<Server>, Log) {
    let (rig, server, log) = (Rig::new(), Server::new(), Log::default());
    for name in names {
        server.set(name, "first");
    }
    log.attach(&rig.informer, "log");
    rig.start(&server);
    rig.settle().await;
    (rig, server, log)
}

fn cut_connection() -> Option<RequestError> {
    Some(RequestError::Transport("connection reset".to_owned()))
}

// parity: config-controller, resource-event-handler, is-in-initial-list, test-reflector-watch-handler
// parity: sources-create-update-delete
#[tokio::test(start_paused = true)]
async fn handlers_receive_initial_list_and_changes_with_their_cause() {
    let (rig, server, log) = running(&["a"]).await;
    assert_eq!(log.take(), ["+a@1=first InitialList"]);
    server.set("b", "x");
    server.set("a", "y");
    server.delete("b");
    rig.settle().await;
    assert_eq!(log.take(), ["+b@2=x Watch", "-b@4=end Watch Observed", "~a@1=first>a@3=y Watch"]);
    assert_eq!(rig.held(), ["a@3=y"]);
}

// parity: test-update
#[tokio::test(start_paused = true)]
async fn handlers_receive_states_of_one_key_in_server_order() {
    let (rig, server, log) = running(&["a"]).await;
    for round in 0..30 {
        server.set("a", &round.to_string());
        if round % 7 == 0 {
            server.cut(cut_connection());
            server.compact(round % 2 == 0);
        }
        if round % 3 == 0 {
            rig.env.sleep(Duration::from_secs(1)).await;
        }
    }
    rig.env.sleep(LONG).await;
    let versions =
        |event: &TestEvent| event.object().metadata.resource_version.as_deref().map(ResourceVersion::new);
    let received: Vec<_> = log.events().iter().filter_map(versions).collect();
    assert!(received.windows(2).all(|pair| pair[0] < pair[1]), "{received:?}");
    assert_eq!(received.last(), Some(&at(31)));
}

#[tokio::test(start_paused = true)]
async fn deletion_during_outage_is_seen_with_history_and_inferred_without() {
    let (rig, server, log) = running(&["a", "b"]).await;
    log.take();
    server.cut(cut_connection());
    server.delete("a");
    rig.env.sleep(LONG).await;
    assert_eq!(log.take(), ["-a@3=end Watch Observed"]);
    server.cut(cut_connection());
    server.delete("b");
    server.compact(false);
    rig.env.sleep(LONG).await;
    assert_eq!(log.take(), ["-b@2=first Relist Inferred"]);
}

#[tokio::test(start_paused = true)]
async fn object_recreated_during_outage_is_deletion_and_addition() {
    let (rig, server, log) = running(&["a"]).await;
    log.take();
    server.cut(cut_connection());
    server.delete("a");
    server.set("a", "second");
    server.compact(true);
    rig.env.sleep(LONG).await;
    assert_eq!(log.take(), ["-a@1=first Relist Inferred", "+a@3=second Relist"]);
}

/// Upstream's handlers cannot distinguish a relist from a resync (client-go#843, #1315).
// parity: equal-versions-mean-resync, test-replace-events, test-shared-informer-watch-disruption
// parity: resync-re-list-confused
#[tokio::test(start_paused = true)]
async fn handler_receives_only_differences_of_a_relist() {
    let (rig, server, log) = running(&["a", "b", "c"]).await;
    log.take();
    server.cut(cut_connection());
    server.set("b", "changed");
    server.delete("c");
    server.set("d", "new");
    server.compact(false);
    rig.env.sleep(LONG).await;
    let received = log.take();
    assert_eq!(received, ["-c@3=first Relist Inferred", "~b@2=first>b@4=changed Relist", "+d@6=new Relist"]);
    assert!(rig.counts().lists.get() == 2, "the reflector listed again");
}

// parity: store-first-then-callbacks, test-replace-events, test-process-deltas-in-batch
#[tokio::test(start_paused = true)]
async fn store_contains_state_before_handler_receives_it() {
    let (rig, server) = (Rig::new(), Server::new());
    let (lister, behind) = (rig.lister.clone(), Arc::new(Mutex::new(Vec::new())));
    let found = Arc::clone(&behind);
    let check = move |event: &TestEvent| {
        let object = event.object();
        let held = lister.get_lossy(&ObjectKey::of(&object.metadata));
        let holds = match event {
            Event::Deleted { .. } => held.is_none(),
            Event::Added { .. } | Event::Updated { .. } => held.as_ref() == Some(object),
        };
        if !holds {
            found.lock().unwrap().push(brief_event(event));
        }
    };
    rig.informer.add_handler("check", check).unwrap();
    server.set("a", "first");
    rig.start(&server);
    rig.settle().await;
    for round in 0..5 {
        server.set("a", &round.to_string());
        rig.settle().await;
    }
    server.delete("a");
    rig.settle().await;
    assert_eq!(*behind.lock().unwrap(), Vec::<String>::new());
}

// parity: add-event-handler, late-handler-pauses-informer, test-add-while-active, replay-late-handler-blocks
// parity: shared-streams-unstable-duplicates
#[tokio::test(start_paused = true)]
async fn late_handler_receives_snapshot_then_changes_without_blocking() {
    let (rig, server, early) = running(&["a", "b"]).await;
    early.take();
    let late = Log::default();
    let handle = late.attach(&rig.informer, "late");
    // The other handlers receive events before the late handler's task has run.
    server.set("a", "second");
    server.delete("b");
    assert!(!handle.has_synced());
    rig.settle().await;
    assert!(handle.has_synced());
    let received = late.take();
    assert_eq!(
        received,
        [
            "+a@1=first InitialList",
            "+b@2=first InitialList",
            "~a@1=first>a@3=second Watch",
            "-b@4=end Watch Observed"
        ]
    );
    assert_eq!(early.take(), ["~a@1=first>a@3=second Watch", "-b@4=end Watch Observed"]);
}

// parity: stores-synctrack, has-synced-informer, test-add-while-active
#[tokio::test(start_paused = true)]
async fn handle_is_synced_after_its_handler_received_initial_list() {
    let (rig, server) = (Rig::new(), Server::new());
    server.set("a", "first");
    let (received, handle_seen) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(None::<HandlerHandle>)));
    let (counted, handle) = (Arc::clone(&received), Arc::clone(&handle_seen));
    let count = move |_: &TestEvent| {
        let synced = handle.lock().unwrap().as_ref().is_some_and(HandlerHandle::has_synced);
        assert!(!synced, "synced before delivery");
        *counted.lock().unwrap() += 1;
    };
    *handle_seen.lock().unwrap() = Some(rig.informer.add_handler("count", count).unwrap());
    let empty = rig.informer.add_handler("idle", |_: &TestEvent| {}).unwrap();
    assert!(!empty.has_synced());
    rig.start(&server);
    assert!(empty.synced().await);
    rig.settle().await;
    assert!(handle_seen.lock().unwrap().as_ref().unwrap().has_synced());
    assert_eq!((*received.lock().unwrap(), rig.counts().handler_panics.get()), (1, 0));
}

// parity: has-synced-informer
#[tokio::test(start_paused = true)]
async fn handler_with_empty_initial_list_becomes_synced() {
    let (rig, _server, log) = running(&[]).await;
    let late = log.attach(&rig.informer, "late");
    assert!(late.synced().await);
}

/// Upstream's handler that panics once never becomes synced (kubernetes#129024).
// parity: panic-handler-ends-process, test-event-panics, test-panic-propagated, handle-has-synced
#[tokio::test(start_paused = true)]
async fn panicking_handler_is_counted_continues_and_becomes_synced() {
    let (rig, server, log) = (Rig::new(), Server::new(), Log::default());
    for name in ["a", "b"] {
        server.set(name, "first");
    }
    let received = log.clone();
    let panics = move |event: &TestEvent| {
        received.push(event.clone());
        panic!("a bug in a handler");
    };
    let handle = rig.informer.add_handler("panics", panics).unwrap();
    let bystander = Log::default();
    bystander.attach(&rig.informer, "bystander");
    rig.start(&server);
    rig.settle().await;
    server.set("a", "second");
    rig.settle().await;
    assert!(handle.has_synced());
    assert_eq!((log.events().len(), rig.counts().handler_panics.get()), (3, 3));
    assert_eq!(bystander.events().len(), 3);
}

/// Upstream's buffers grow without bound behind a slow handler (kubernetes#121474).
// parity: processor-listeners, traces-slow-processing-slow, listener-rings-grow-without
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_handler_delays_only_itself_and_receives_bounded_backlog() {
    let (env, metrics) = (Env::system("test"), Metrics::new());
    let factory = InformerFactory::new(env, metrics, FactoryOptions::default());
    let (informer, server, slow, quick) =
        (factory.typed::<ConfigMap>(), Server::new(), Log::default(), Log::default());
    let (release, wait) = blocking::channel::<()>();
    let received = slow.clone();
    let blocks = move |event: &TestEvent| {
        received.push(event.clone());
        // Blocks until the test drops the sender; after that every call returns immediately.
        wait.recv().unwrap_err();
    };
    informer.add_handler("slow", blocks).unwrap();
    quick.attach(&informer, "quick");
    server.set("a", "first");
    factory.start(Arc::new(Only(Arc::clone(&server))));
    informer.synced().await;
    while slow.events().is_empty() {
        tokio::task::yield_now().await;
    }
    for round in 0..100 {
        server.set("a", &round.to_string());
    }
    server.delete("a");
    let last = server.set("a", "last");
    let mut progress = informer.version_changes();
    progress.wait_for(|progress| progress.version == Some(at(last))).await.unwrap();
    while quick.take().last().map(String::as_str) != Some("+a@103=last Watch") {
        tokio::task::yield_now().await;
    }
    assert_eq!(slow.take(), ["+a@1=first InitialList"]);
    drop(release);
    while slow.events().len() < 17 {
        tokio::task::yield_now().await;
    }
    let missed = slow.take();
    assert_eq!(missed[..2], ["~a@1=first>a@87=85 Watch", "~a@87=85>a@88=86 Watch"]);
    let end = ["~a@100=98>a@101=99 Watch", "-a@102=end Watch Observed", "+a@103=last Watch"];
    assert_eq!(missed[14..], end);
    factory.shutdown().await;
}

// parity: remove-event-handler, test-event-panics, test-shared-informer-remove-handler
#[tokio::test(start_paused = true)]
async fn removed_handler_receives_no_event_even_if_it_removes_itself() {
    let (rig, server, log) = running(&["a"]).await;
    let (own, received) = (Arc::new(Mutex::new(None::<HandlerHandle>)), Arc::new(Mutex::new(0)));
    let (handle, count) = (Arc::clone(&own), Arc::clone(&received));
    let removes_itself = move |_: &TestEvent| {
        *count.lock().unwrap() += 1;
        if let Some(handle) = &*handle.lock().unwrap() {
            handle.remove();
        }
    };
    *own.lock().unwrap() = Some(rig.informer.add_handler("once", removes_itself).unwrap());
    rig.settle().await;
    server.set("b", "first");
    rig.settle().await;
    assert_eq!(*received.lock().unwrap(), 1);
    assert!(!rig.env.tasks().iter().any(|task| task.ends_with("handler once")), "its task has ended");
    let handle = own.lock().unwrap().take().unwrap();
    assert!(!handle.synced().await);
    assert_eq!(log.events().len(), 2, "the other handler received both events");
}

// parity: deadlocks-start
#[tokio::test(start_paused = true)]
async fn handler_can_add_handlers_and_indexes() {
    let (rig, server) = (Rig::new(), Server::new());
    server.set("a", "first");
    let (informer, log) = (rig.informer.clone(), Log::default());
    let (inner, added) = (log.clone(), Arc::new(Mutex::new(None)));
    let index = Arc::clone(&added);
    let adds = move |_: &TestEvent| {
        let mut added = added.lock().unwrap();
        if added.is_none() {
            inner.attach(&informer, "added");
            *added = Some(informer.lister().index(|_| ["x".to_owned()]));
        }
    };
    rig.informer.add_handler("adds", adds).unwrap();
    rig.start(&server);
    rig.settle().await;
    let found = index.lock().unwrap().as_ref().map(|index| index.count(&"x".to_owned()));
    assert_eq!((log.take(), found), (vec!["+a@1=first InitialList".to_owned()], Some(1)));
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_returns_when_list_has_it_readable() {
    let (rig, log) = (Rig::new(), Log::default());
    let stalls = || Answer::Watch(Ok(vec![Play::Stall]));
    let list = |item| Answer::List(Ok(page(5, &[item])));
    let broken = || list(undecodable("a", "uid-a", 2));
    let fixed = list(object("a", "uid-a", 2, "first"));
    let answers = [broken(), stalls(), broken(), stalls(), fixed, stalls()];
    let script = Script::new(&rig.env, answers);
    log.attach(&rig.informer, "log");
    rig.start(&script);
    rig.settle().await;
    assert!(rig.relisted_within(LONG).await);
    assert!(rig.lister.get(&key("a")).is_err());
    assert_eq!(rig.counts().decode_failures.get(), 1, "a failure at one version is reported once");
    assert!(rig.relisted_within(LONG).await);
    rig.settle().await;
    assert_eq!((rig.held(), rig.lister.undecodable().len()), (vec!["a@2=first".to_owned()], 0));
    assert_eq!(log.take(), ["+a@2=first Relist"]);
}

#[tokio::test(start_paused = true)]
async fn lister_reports_unreadable_objects_instead_of_their_absence() {
    let rig = Rig::new();
    let broken = |name: &str, labels: &str| {
        let meta = format!(r#"{{"name":"{name}","namespace":"default","uid":"u","labels":{labels}}}"#);
        bytes::Bytes::from(format!(r#"{{"metadata":{meta},"data":7}}"#))
    };
    let items = [object("sound", "u", 1, "v"), broken("labeled", r#"{"tier":"front"}"#)];
    rig.start(&Script::new(&rig.env, [Answer::List(Ok(page(5, &items)))]));
    rig.settle().await;
    let unreadable = rig.lister.get(&key("labeled")).expect_err("it exists");
    assert_eq!(unreadable.key, key("labeled"));
    assert!(
        unreadable.to_string().starts_with("configmaps.v1 default/labeled exists and cannot be decoded: ")
    );
    assert_eq!(rig.lister.get_lossy(&key("labeled")), None);
    assert_eq!(rig.lister.get(&key("gone")), Ok(None));
    let of_tier = |tier: &'static str| {
        rig.lister
            .check_decodable(None, move |meta| meta.labels.iter().flatten().any(|(_, label)| label == tier))
    };
    assert_eq!((of_tier("back"), of_tier("front").map_err(|error| error.key)), (Ok(()), Err(key("labeled"))));
    let script = Script::new(&rig.env, [Answer::List(Ok(page(6, &[broken("unlabelled", "7")])))]);
    let other = Rig::new();
    other.start(&script);
    other.settle().await;
    let of = |namespace| other.lister.check_decodable(Some(namespace), |_| false).is_err();
    assert_eq!((of("default"), of("elsewhere")), (true, false), "its labels are unknown");
}

// parity: retry-on-error, process-loop, test-real-fifo-pop-broken-items-in-batch
#[tokio::test(start_paused = true)]
async fn undecodable_object_is_isolated_and_retried_when_it_changes() {
    let (rig, server, log) = (Rig::new(), Server::new(), Log::default());
    log.attach(&rig.informer, "log");
    server.set("a", "first");
    server.spoil("b");
    server.set("c", "first");
    rig.start(&server);
    rig.settle().await;
    assert_eq!(rig.held(), ["a@1=first", "c@3=first"]);
    assert_eq!((rig.lister.get(&key("b")).is_err(), rig.counts().decode_failures.get()), (true, 1));
    let undecodable = rig.lister.undecodable().iter().next().expect("one object").clone();
    assert_eq!((undecodable.key, undecodable.version), (key("b"), Some(at(2))));
    server.set("b", "repaired");
    rig.settle().await;
    assert_eq!((rig.held().len(), rig.lister.undecodable().len()), (3, 0));
    assert_eq!(log.take(), ["+a@1=first InitialList", "+c@3=first InitialList", "+b@4=repaired Watch"]);
}

// parity: store-error-logged-version, errors-store-transform-lose
#[tokio::test(start_paused = true)]
async fn object_that_becomes_undecodable_is_no_longer_served() {
    let (rig, server, log) = running(&["a", "b"]).await;
    log.take();
    let version = server.spoil("a");
    rig.settle().await;
    assert_eq!(log.take(), ["-a@1=first Watch Inferred"]);
    assert_eq!((rig.held(), rig.lister.get(&key("a")).is_err()), (vec!["b@2=first".to_owned()], true));
    assert_eq!(rig.informer.version(), Some(at(version)));
    server.delete("a");
    rig.settle().await;
    assert_eq!((log.take(), rig.lister.undecodable().len()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn repeated_decode_failure_at_one_version_is_counted_once() {
    let (rig, server, _log) = running(&["a"]).await;
    server.spoil("b");
    rig.settle().await;
    server.compact(false);
    server.pass_time();
    server.compact(false);
    server.cut(cut_connection());
    rig.env.sleep(LONG).await;
    assert_eq!((rig.counts().lists.get(), rig.counts().decode_failures.get()), (2, 1));
    assert!(rig.lister.get(&key("b")).is_err());
}

// parity: last-store-sync-resource-version
#[tokio::test(start_paused = true)]
async fn restored_server_starts_new_epoch_in_cache() {
    let (rig, server, log) = running(&["a", "b"]).await;
    let (backup, version) = (server.objects(), server.version());
    server.set("a", "lost");
    server.set("c", "lost too");
    rig.settle().await;
    log.take();
    server.restore(backup, version);
    // The restored server reuses versions for other states.
    server.set("a", "other");
    rig.env.sleep(LONG).await;
    assert_eq!(rig.held(), ["a@3=other", "b@2=first"]);
    let received = log.take();
    assert_eq!(
        received,
        ["-c@4=lost too Relist Inferred", "~a@3=lost>a@3=other Relist", "~b@2=first>b@2=first Relist"]
    );
    assert_eq!((VersionedCache::epoch(&*rig.informer), rig.informer.version()), (1, Some(at(3))));
}

// parity: add-indexers-after, transaction-store, test-get-index-func-values, index-field-several-cluster
// parity: no-secondary-indexes
#[tokio::test(start_paused = true)]
async fn indexes_are_consistent_and_can_be_added_while_running() {
    let (rig, server, _log) = running(&["a", "b"]).await;
    let by_value = rig.lister.index(|object| object.data.clone().unwrap_or_default().into_values());
    server.set("c", "second");
    rig.settle().await;
    let found = |value: &str| by_value.get(&value.to_owned()).iter().map(|it| brief(it)).collect::<Vec<_>>();
    assert_eq!(
        (found("first"), found("second")),
        (vec!["a@1=first".into(), "b@2=first".into()], vec!["c@3=second".to_owned()])
    );
    assert_eq!(by_value.values(), ["first", "second"]);
}

// parity: add-indexers-after
#[tokio::test(start_paused = true)]
async fn indexes_by_same_function_without_captures_are_shared() {
    fn everything(_: &ConfigMap) -> [String; 1] {
        ["all".to_owned()]
    }
    let (rig, _server, _log) = running(&["a"]).await;
    let count = || rig.informer.state.lock().unwrap().writer.indexes();
    let (one, other) = (rig.lister.index(everything), rig.lister.index(everything));
    assert_eq!((count(), one.keys(&"all".to_owned())), (1, other.keys(&"all".to_owned())));
    let captured = "all".to_owned();
    let by_capture = move |_: &ConfigMap| [captured.clone()];
    let (third, fourth) = (rig.lister.index(by_capture.clone()), rig.lister.index(by_capture));
    assert_eq!((count(), third.count(&"all".to_owned())), (3, 1));
    drop((one, fourth));
    assert_eq!((count(), other.count(&"all".to_owned())), (2, 1));
    drop((other, third));
    assert_eq!(count(), 0);
}

#[tokio::test(start_paused = true)]
async fn panicking_index_function_keeps_the_object_and_is_counted() {
    let (rig, server) = (Rig::new(), Server::new());
    let brittle = rig.lister.index(|object| {
        assert!(object.metadata.name.as_deref() != Some("b"), "a bug in an index function");
        ["all".to_owned()]
    });
    for name in ["a", "b", "c"] {
        server.set(name, "first");
    }
    rig.start(&server);
    rig.settle().await;
    assert_eq!((rig.held().len(), brittle.count(&"all".to_owned())), (3, 2));
    assert_eq!(rig.counts().handler_panics.get(), 1);
}

// parity: get-by-key, pod-informer-informer, add-update, listers-labels-linear-scan, test-list-all
#[tokio::test(start_paused = true)]
async fn listers_read_by_key_namespace_and_labels_in_the_order_of_keys() {
    let rig = Rig::new();
    let labeled = |namespace: &str, name: &str, tier: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{namespace}{name}","resourceVersion":"1","labels":{{"tier":"{tier}"}}}}}}"#
        )
        .into()
    };
    let items = [
        labeled("b", "x", "front"),
        labeled("a", "z", "front"),
        labeled("a", "y", "back"),
        labeled("aa", "x", "front"),
    ];
    let script = Script::new(&rig.env, [Answer::List(Ok(page(5, &items)))]);
    rig.start(&script);
    rig.settle().await;
    let names = |objects: Vec<Arc<ConfigMap>>| -> Vec<String> {
        objects.iter().map(|object| ObjectKey::of(&object.metadata).to_string()).collect()
    };
    assert_eq!(names(rig.lister.list()), ["a/y", "a/z", "aa/x", "b/x"]);
    assert_eq!(names(rig.lister.list_namespace("a")), ["a/y", "a/z"]);
    let front = LabelSelector::from_map(&BTreeMap::from([("tier".to_owned(), "front".to_owned())]));
    assert_eq!(names(rig.lister.select(None, &front)), ["a/z", "aa/x", "b/x"]);
    assert_eq!(names(rig.lister.select(Some("a"), &front)), ["a/z"]);
    assert!(rig.lister.get(&ObjectKey::namespaced("a", "x")).unwrap().is_none());
    assert_eq!((rig.lister.len(), rig.lister.is_empty()), (4, false));
}

// parity: wait-await
#[tokio::test(start_paused = true)]
async fn version_wait_ends_when_reached_timed_out_or_epoch_changes() {
    let (rig, server, _log) = running(&["a"]).await;
    let source: &dyn VersionedCache = &**rig.informer.erased();
    let within = Duration::from_secs(1);
    assert!(source.wait_for_version(at(1), Duration::ZERO).await, "the current version is reached");
    assert!(
        source.wait_for_version(ResourceVersion::new("opaque"), Duration::ZERO).await,
        "an opaque version cannot be compared"
    );
    assert!(!source.wait_for_version(at(2), within).await);
    let write = async { server.set("a", "second") };
    assert!(future::join(source.wait_for_version(at(2), within), write).await.0);
    server.pass_time();
    let bookmarked = async { server.bookmark() };
    assert!(
        future::join(source.wait_for_version(at(3), within), bookmarked).await.0,
        "a bookmark advances the version like a change"
    );
    let restored = async { server.restore(BTreeMap::new(), 1) };
    let (reached, ()) = future::join(source.wait_for_version(at(1000), LONG), restored).await;
    assert!(reached && source.epoch() == 1);
}

// parity: reader-waits-cache-sync
#[tokio::test(start_paused = true)]
async fn version_is_not_reached_before_the_initial_list() {
    let rig = Rig::new();
    let source: &dyn VersionedCache = &**rig.informer.erased();
    assert!(!source.wait_for_version(at(1), Duration::from_secs(1)).await);
    assert_eq!((source.version(), source.epoch()), (None, 0));
}

/// Upstream restarts the resync timer with each list, and its resyncs look like updates (client-go#843, #1315).
// parity: full-resync-period, default-resync, resync-timer-restarts-each-list, test-reflector-resync-chan
// parity: resync-re-list-confused, client-known-resync-timer-restarts-each, sync-period
#[tokio::test(start_paused = true)]
async fn resyncs_are_on_time_despite_relists_and_have_resync_cause() {
    let period = Duration::from_secs(600);
    let rig = Rig::with_options(FactoryOptions { resync: Some(period), ..FactoryOptions::default() });
    let (server, log) = (Server::new(), Log::default());
    server.set("a", "first");
    log.attach(&rig.informer, "log");
    rig.start(&server);
    rig.env.sleep(period - Duration::from_secs(100)).await;
    log.take();
    server.compact(true);
    server.pass_time();
    server.compact(true);
    server.cut(cut_connection());
    rig.env.sleep(Duration::from_secs(99)).await;
    assert_eq!((log.take(), rig.counts().lists.get()), (vec![], 2));
    rig.env.sleep(Duration::from_secs(2)).await;
    assert_eq!(log.take(), ["~a@1=first>a@1=first Resync"]);
    rig.env.sleep(period).await;
    assert_eq!(log.take().len(), 1);
}

// parity: traces-slow-processing-slow, new-informer-name, test-with-store-metrics-defaulting
#[tokio::test(start_paused = true)]
async fn metrics_report_object_count_and_store_version() {
    let (rig, server, _log) = running(&["a", "b"]).await;
    server.delete("a");
    rig.settle().await;
    let counts = rig.counts();
    assert_eq!((counts.objects.get(), counts.queued_items.get()), (1, 0));
    assert!((counts.store_resource_version.get() - 3.0).abs() < f64::EPSILON);
    assert!(counts.processing_latency.get_sample_count() >= 2);
}

#[tokio::test(start_paused = true)]
async fn killed_env_stops_informer_and_keeps_objects_readable() {
    let (rig, server, log) = running(&["a"]).await;
    rig.env.kill();
    rig.env.wait_for_tasks().await;
    server.set("b", "unheard");
    assert_eq!((log.take().len(), rig.held().len(), server.watchers()), (1, 1, 0));
}

// parity: test-new-informer-name
#[test]
fn informer_name_contains_kind_and_selection() {
    let env = Env::virtual_time(1);
    let selection = Selection { labels: Some("a=b".to_owned()), ..Selection::in_namespace("web") };
    let codec = Codec::of(TypedObjects::<ConfigMap>::new());
    let informer =
        crate::Informer::new(&env, &Metrics::new(), "f", codec, selection, InformerSettings::default(), None);
    assert_eq!(&*informer.name, "configmaps.v1 (namespace web, labels a=b)");
    assert!(informer.is_filtered());
}

#[tokio::test(start_paused = true)]
async fn failed_start_without_source_can_be_repeated() {
    let (rig, server, log) = (Rig::new(), Server::new(), Log::default());
    server.set("a", "first");
    let handle = log.attach(&rig.informer, "log");
    let informer = rig.informer.clone();
    let hub_is_free = move || informer.informer.state.try_lock().is_ok();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let questions = Arc::clone(&asked);
    let sources = move |_: &ResourceKind, _: &Selection| -> Arc<dyn ListerWatcher> {
        let first = {
            let mut asked = questions.lock().unwrap();
            asked.push(hub_is_free());
            asked.len() == 1
        };
        assert!(!first, "no source yet");
        Arc::<Server>::clone(&server)
    };
    let sources: Arc<dyn SourceProvider> = Arc::new(sources);
    let start = || rig.informer.informer.start(Arc::clone(&sources));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(start)).is_err());
    assert!(!rig.informer.is_running());
    start();
    assert!(rig.env.timeout(LONG, handle.synced()).await.is_ok_and(|synced| synced));
    assert_eq!(log.take(), ["+a@1=first InitialList"]);
    assert_eq!(*asked.lock().unwrap(), [true, true], "user code runs without the lock");
}

/// A value that records on drop whether the informer's lock was free.
struct Parting(SharedInformer<ConfigMap>, Arc<Mutex<Vec<bool>>>);

impl Drop for Parting {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0.informer.state.try_lock().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_that_never_ran_are_dropped_without_lock() {
    let rig = Rig::new();
    let partings = Arc::new(Mutex::new(Vec::new()));
    let add = |name| {
        let parting = Parting(rig.informer.clone(), Arc::clone(&partings));
        rig.informer.add_handler(name, move |_: &TestEvent| {
            let _kept = &parting;
        })
    };
    add("removed").unwrap().remove();
    add("not started").unwrap();
    rig.factory.shutdown().await;
    assert!(add("too late").is_err());
    assert_eq!(*partings.lock().unwrap(), [true, true, true]);
}
